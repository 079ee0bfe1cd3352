/*
 * The CUDA backend where things go wrong, on the simulated device. What is missing is named, what
 * was taken before a failure is given back, a failed launch ends its pool and nothing else, and
 * after each test the device holds what it held before.
 */
#include "cudasim.h"

#include <cuda_runtime_api.h>

#include "cuda/logits.h"
#include "model/model.h"
#include "sbtest.h"
#include "pool/pool.h"
#include "support/drafts.h"
#include "support/place.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"
#define DRAFT TARGET ".draft"

static const int32_t prompt[] = {5, 80, 311, 42, 9, 500, 77};
enum { PROMPT = sizeof prompt / sizeof prompt[0], NEW = 24 };

static specbatch_model_options on_device(int32_t compute)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.device = SPECBATCH_DEVICE_CUDA;
    options.compute = compute;
    return options;
}

/* Whether nothing of the device is in use: memory, pinned memory, streams, events, graphs. */
static int is_clean(void)
{
    if (cudasim_device_bytes() || cudasim_host_bytes() || cudasim_objects())
        printf("     left behind: %zu device bytes, %zu pinned bytes, %d objects\n",
               cudasim_device_bytes(), cudasim_host_bytes(), (int)cudasim_objects());
    return cudasim_device_bytes() == 0 && cudasim_host_bytes() == 0 && cudasim_objects() == 0;
}

static int32_t open_on(specbatch_model **out, const char *path, int32_t compute)
{
    const specbatch_model_options options = on_device(compute);

    *out = NULL;
    return specbatch_model_open(out, path, &options);
}

/* -------------------------------------------------------- what is missing */

static void test_what_is_missing_is_named(void)
{
    static const struct {
        struct cudasim_machine machine;
        int32_t code;
        const char *part;
    } cases[] = {
        {{1, 0, 9, 0, 132, (size_t)1 << 30, 0}, SPECBATCH_E_NO_DEVICE, "driver is not"},
        {{0, 13000, 9, 0, 132, (size_t)1 << 30, 0}, SPECBATCH_E_NO_DEVICE, "a device is not"},
        {{1, 13000, 7, 5, 40, (size_t)1 << 30, 0},
         SPECBATCH_E_UNSUPPORTED,
         "7.5, 8.0 is the least"},
    };
    specbatch_model *model;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cudasim_configure(&cases[i].machine);
        const int32_t rc = open_on(&model, TARGET, SPECBATCH_COMPUTE_F32);
        const int has = specbatch_has("cuda");
        CHECK_INT(rc, cases[i].code);
        CHECK_INT(has, 0);
        CHECK_ERROR(open_on(&model, TARGET, SPECBATCH_COMPUTE_F32), cases[i].code, cases[i].part);
    }
    cudasim_configure(NULL);
    CHECK_INT(specbatch_has("cuda"), 1);
    CHECK(is_clean());
}

/* A model chooses its device by number, and its draft must be on the same one. */
static void test_devices_have_numbers(void)
{
    const struct cudasim_machine two = {2, 13000, 9, 0, 132, (size_t)1 << 30, 0};
    specbatch_model_options options = on_device(SPECBATCH_COMPUTE_F32);
    specbatch_model *first = NULL, *second = NULL;
    specbatch_pool *pool = NULL;

    cudasim_configure(&two);
    CHECK_OK(open_on(&first, TARGET, SPECBATCH_COMPUTE_F32));
    options.device_index = 2;
    CHECK_ERROR(specbatch_model_open(&second, TARGET, &options), SPECBATCH_E_NO_DEVICE,
                "no CUDA device 2: there are 2");
    options.device_index = 1;
    CHECK_OK(specbatch_model_open(&second, TARGET, &options));
    CHECK_ERROR(create_with_model(&pool, first, second, NULL), SPECBATCH_E_INVALID,
                "device_index 1");
    specbatch_model_close(second);
    specbatch_model_close(first);
    cudasim_configure(NULL);
    CHECK(is_clean());
}

static void test_a_model_that_does_not_fit(void)
{
    const struct cudasim_machine small = {1, 13000, 9, 0, 132, 300000, 0};
    specbatch_model *model;

    cudasim_configure(&small);
    const int32_t rc = open_on(&model, TARGET, SPECBATCH_COMPUTE_F32);
    const int says = strstr(specbatch_last_error(), "bytes needed") &&
                     strstr(specbatch_last_error(), "of 300000 free");
    printf("     %s\n", specbatch_last_error());
    cudasim_configure(NULL);
    CHECK_INT(rc, SPECBATCH_E_NOMEM);
    CHECK(says);
    CHECK(is_clean());
}

static void test_heads_that_do_not_fit(void)
{
    const struct cudasim_machine small = {1, 13000, 8, 6, 84, (size_t)1 << 30, 80 << 10};
    specbatch_model *model;
    specbatch_pool *pool = NULL;

    cudasim_configure(&small);
    CHECK_OK(open_on(&model, "test/data/models/long_qwen3_hd128_bf16", SPECBATCH_COMPUTE_BF16));
    CHECK_ERROR(specbatch_pool_create(&pool, model, NULL, NULL), SPECBATCH_E_UNSUPPORTED,
                "attention over heads of 128 columns takes 101");
    specbatch_model_close(model);
    CHECK_OK(open_on(&model, "test/data/models/long_qwen3_hd128_bf16", SPECBATCH_COMPUTE_F32));
    CHECK_OK(specbatch_pool_create(&pool, model, NULL, NULL));
    specbatch_pool_free(pool);
    specbatch_model_close(model);
    cudasim_configure(NULL);
    CHECK(is_clean());
}

static void test_a_draft_elsewhere(void)
{
    specbatch_model *target, *draft;
    specbatch_pool *pool = NULL;

    CHECK_OK(open_on(&target, TARGET, SPECBATCH_COMPUTE_F32));
    CHECK_OK(specbatch_model_open(&draft, DRAFT, NULL));
    CHECK_ERROR(create_with_model(&pool, target, draft, NULL), SPECBATCH_E_INVALID,
                "device cpu, the target on cuda");
    specbatch_model_close(target);
    specbatch_model_close(draft);
    CHECK(is_clean());
}

/* ----------------------------------------------------------------- pools */

struct job {
    specbatch_model *target, *draft;
    specbatch_pool *pool;
    int32_t tokens[3][NEW];
};

static int32_t create_pool(struct job *job, int32_t policy)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.policy = policy;
    options.batch = 3;
    options.draft_len = policy == SPECBATCH_POLICY_PLAIN ? -1 : 4;
    options.flags = SPECBATCH_POOL_FIXED_K;
    options.max_len = 64;
    options.prefill_chunk = 66; /* so that cuBLASLt may make products of 65 and 66 rows */
    return create_with_model(&job->pool, job->target, job->draft, &options);
}

static int32_t submit_all(struct job *job)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    int32_t rc = SPECBATCH_OK;

    request.ids = prompt;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    for (int i = 0; i < 3 && rc == SPECBATCH_OK; i++) {
        request.n_ids = (size_t)(PROMPT - 2 * i);
        request.max_new = NEW;
        rc = specbatch_pool_submit(job->pool, &request, NULL);
    }
    return rc;
}

static void collect_all(struct job *job)
{
    specbatch_result *result;

    while (specbatch_pool_collect(job->pool, &result) == SPECBATCH_OK) {
        size_t n;
        const int32_t *tokens = specbatch_result_tokens(result, &n);
        memcpy(job->tokens[specbatch_result_id(result) - 1], tokens, n * sizeof *tokens);
        specbatch_result_free(result);
    }
}

/* Creates a pool, runs it to the end, collects the results, and frees it. */
static int32_t run_job(struct job *job, int32_t policy)
{
    size_t active = 1;
    int32_t rc = create_pool(job, policy);

    rc = rc ? rc : submit_all(job);
    while (rc == SPECBATCH_OK && active)
        rc = specbatch_pool_step(job->pool, &active);
    if (rc == SPECBATCH_OK)
        collect_all(job);
    specbatch_pool_free(job->pool);
    job->pool = NULL;
    return rc;
}

static int32_t open_job(struct job *job, int32_t compute)
{
    int32_t rc;

    memset(job, 0, sizeof *job);
    rc = open_on(&job->target, TARGET, compute);
    return rc ? rc : open_on(&job->draft, DRAFT, compute);
}

static void close_job(struct job *job)
{
    specbatch_pool_free(job->pool);
    specbatch_model_close(job->target);
    specbatch_model_close(job->draft);
}

static void test_rounds_are_recorded_and_replayed(void)
{
    struct job job, plain;
    int64_t most = 0;
    size_t active = 1;

    CHECK_OK(open_job(&plain, SPECBATCH_COMPUTE_F32));
    CHECK_OK(run_job(&plain, SPECBATCH_POLICY_PLAIN));
    close_job(&plain);
    CHECK_OK(open_job(&job, SPECBATCH_COMPUTE_F32));
    CHECK_OK(create_pool(&job, SPECBATCH_POLICY_RAGGED));
    const int64_t before = cudasim_objects();
    CHECK_OK(submit_all(&job));
    while (active) {
        CHECK_OK(specbatch_pool_step(job.pool, &active));
        most = cudasim_objects() > most ? cudasim_objects() : most;
    }
    collect_all(&job);
    close_job(&job);
    printf("     %d graphs\n", (int)(most - before));
    CHECK(most > before);
    CHECK_MEM(job.tokens, plain.tokens, sizeof job.tokens);
    CHECK(is_clean());
}

static void test_two_pools_take_turns(void)
{
    struct job a, b, alone;
    size_t active_a = 1, active_b = 1;

    CHECK_OK(open_job(&alone, SPECBATCH_COMPUTE_F32));
    CHECK_OK(run_job(&alone, SPECBATCH_POLICY_PLAIN));
    CHECK_OK(open_job(&a, SPECBATCH_COMPUTE_F32));
    b = a;
    specbatch_model_retain(b.target);
    specbatch_model_retain(b.draft);
    CHECK_OK(create_pool(&a, SPECBATCH_POLICY_EQSPEC));
    CHECK_OK(create_pool(&b, SPECBATCH_POLICY_RAGGED));
    CHECK_OK(submit_all(&a));
    CHECK_OK(submit_all(&b));
    while (active_a || active_b) {
        CHECK_OK(specbatch_pool_step(a.pool, &active_a));
        CHECK_OK(specbatch_pool_step(b.pool, &active_b));
    }
    collect_all(&a);
    collect_all(&b);
    CHECK_MEM(a.tokens, alone.tokens, sizeof a.tokens);
    CHECK_MEM(b.tokens, alone.tokens, sizeof b.tokens);
    close_job(&a);
    close_job(&b);
    close_job(&alone);
    CHECK(is_clean());
}

/* -------------------------------------------------------------- failures */

/* A pool's device is lost. A pool on another device goes on, and the host's current device is what
 * it was. */
static void test_a_lost_device_leaves_the_other(void)
{
    specbatch_model_options options = on_device(SPECBATCH_COMPUTE_F32);
    struct job lost, other, plain;
    size_t active = 1;
    int device = -1;

    CHECK_OK(open_job(&plain, SPECBATCH_COMPUTE_F32));
    CHECK_OK(run_job(&plain, SPECBATCH_POLICY_PLAIN));
    CHECK_OK(open_job(&lost, SPECBATCH_COMPUTE_F32));
    memset(&other, 0, sizeof other);
    options.device_index = 1;
    CHECK_OK(specbatch_model_open(&other.target, TARGET, &options));
    CHECK_OK(specbatch_model_open(&other.draft, DRAFT, &options));
    CHECK_OK(create_pool(&other, SPECBATCH_POLICY_RAGGED));
    CHECK_OK(submit_all(&other));
    cudasim_fail_launch(30);
    CHECK_INT(run_job(&lost, SPECBATCH_POLICY_RAGGED), SPECBATCH_E_DEVICE);
    while (active)
        CHECK_OK(specbatch_pool_step(other.pool, &active));
    collect_all(&other);
    CHECK_MEM(other.tokens, plain.tokens, sizeof other.tokens);
    CHECK_INT(cudaGetDevice(&device), cudaSuccess);
    CHECK_INT(device, 0);
    close_job(&other);
    close_job(&lost);
    close_job(&plain);
    cudasim_recover();
    CHECK(is_clean());
}

/* A device that does not become current is an error, when a model is opened and later. Nothing is
 * done on the host's own device instead. */
static void test_a_device_that_does_not_become_current(void)
{
    specbatch_model_options options = on_device(SPECBATCH_COMPUTE_F32);
    specbatch_model *model = NULL;
    struct job job;
    size_t active = 1;

    memset(&job, 0, sizeof job);
    options.device_index = 1;
    cudasim_refuse_device(1);
    const int32_t rc = specbatch_model_open(&model, TARGET, &options);
    const int says = strstr(specbatch_last_error(), "making the device current") != NULL;
    cudasim_refuse_device(-1);
    CHECK_INT(rc, SPECBATCH_E_DEVICE);
    CHECK(says);
    CHECK_OK(specbatch_model_open(&job.target, TARGET, &options));
    CHECK_OK(create_pool(&job, SPECBATCH_POLICY_PLAIN));
    CHECK_OK(submit_all(&job));
    cudasim_refuse_device(1);
    const int32_t stepped = specbatch_pool_step(job.pool, &active);
    const int says_it_again = strstr(specbatch_last_error(), "making the device current") != NULL;
    cudasim_refuse_device(-1);
    CHECK_INT(stepped, SPECBATCH_E_DEVICE);
    CHECK(says_it_again);
    close_job(&job);
    CHECK(is_clean());
}

/* Opens a job's models, or creates a pool for models that are open, while the n-th allocation
 * fails, for every n. Nothing stays behind, and the next attempt works. A model is opened all the
 * same where it can do without a slab. Returns how many allocations there are; -1: something was
 * wrong. */
static int fail_in_turn(struct job *job, int32_t compute, int is_pool)
{
    for (int64_t n = 1;; n++) {
        const size_t before = cudasim_device_bytes() + cudasim_host_bytes();
        const int64_t objects = cudasim_objects();
        cudasim_fail_alloc(n);
        const int32_t rc = is_pool ? create_pool(job, SPECBATCH_POLICY_RAGGED)
                                   : open_job(job, compute);
        const int is_last = cudasim_fail_alloc(0) > 0;
        const int may_be_ok = is_last || !is_pool;
        specbatch_pool_free(job->pool);
        job->pool = NULL;
        if (!is_pool)
            close_job(job);
        if (cudasim_device_bytes() + cudasim_host_bytes() != before ||
            cudasim_objects() != objects || (rc == SPECBATCH_OK ? !may_be_ok : is_last) ||
            (rc != SPECBATCH_OK && rc != SPECBATCH_E_NOMEM)) {
            printf("     allocation %d: %s (%s)\n", (int)n, specbatch_status_name(rc),
                   specbatch_last_error());
            return -1;
        }
        if (is_last)
            return (int)n - 1;
    }
}

/* For every n when models are opened, and when a pool is created for models whose products have
 * been tested. The test of products, which is done for the first pool of a model and takes long,
 * does with less memory: there the first allocation fails, or the eighth, and so on. */
static void test_no_memory_at_any_point(void)
{
    for (int32_t compute = SPECBATCH_COMPUTE_BF16; compute <= SPECBATCH_COMPUTE_F32; compute++) {
        const int has_test = compute == SPECBATCH_COMPUTE_BF16;
        struct job job;
        int n_needed = fail_in_turn(&job, compute, 0), survives = 0;
        CHECK(n_needed > 30);
        for (int64_t at = 1, left = 0; left == 0; at += 7) {
            CHECK_OK(open_job(&job, compute));
            cudasim_fail_alloc(at);
            const int32_t rc = create_pool(&job, SPECBATCH_POLICY_RAGGED);
            left = cudasim_fail_alloc(0);
            CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
            survives |= rc == SPECBATCH_OK && left == 0;
            close_job(&job);
            CHECK(is_clean());
        }
        CHECK_INT(survives, has_test);
        CHECK_OK(open_job(&job, compute));
        CHECK_OK(create_pool(&job, SPECBATCH_POLICY_RAGGED));
        specbatch_pool_free(job.pool);
        job.pool = NULL;
        n_needed += fail_in_turn(&job, compute, 1);
        CHECK(n_needed > 45);
        close_job(&job);
        CHECK(is_clean());
    }
}

/* A launch fails in the middle of a job. The step says so, and so does every later call on the
 * pool; another pool goes on. */
static void test_a_failed_launch_ends_its_pool(void)
{
    static const int64_t at[] = {1, 7, 100, 400, 900, 1500};
    struct job job, other;
    size_t active;

    CHECK_OK(open_job(&job, SPECBATCH_COMPUTE_F32));
    CHECK_OK(open_job(&other, SPECBATCH_COMPUTE_F32));
    CHECK_OK(run_job(&other, SPECBATCH_POLICY_PLAIN));
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        int32_t rc = SPECBATCH_OK;
        CHECK_OK(create_pool(&job, SPECBATCH_POLICY_RAGGED));
        CHECK_OK(submit_all(&job));
        cudasim_fail_launch(at[i]);
        for (active = 1; rc == SPECBATCH_OK && active;)
            rc = specbatch_pool_step(job.pool, &active);
        cudasim_fail_launch(0);
        if (i == 0)
            printf("     %s\n", specbatch_last_error());
        CHECK_INT(rc, SPECBATCH_E_DEVICE);
        CHECK(specbatch_status_is_fatal(rc));
        cudasim_recover();
        CHECK_INT(specbatch_pool_step(job.pool, &active), SPECBATCH_E_DEVICE);
        specbatch_pool_free(job.pool);
        job.pool = NULL;
    }
    memset(job.tokens, 0, sizeof job.tokens);
    CHECK_OK(run_job(&job, SPECBATCH_POLICY_RAGGED));
    CHECK_MEM(job.tokens, other.tokens, sizeof job.tokens);
    close_job(&job);
    close_job(&other);
    CHECK(is_clean());
}

/* Runs the job's pool while `count` launches are refused from launch `at` on. *left: how many of
 * these the job was too short for. */
static int32_t run_refused(struct job *job, int64_t at, int64_t count, int64_t *left)
{
    size_t active = 1;
    int32_t rc = SPECBATCH_OK;

    cudasim_refuse_launches(at, count);
    while (rc == SPECBATCH_OK && active)
        rc = specbatch_pool_step(job->pool, &active);
    *left = cudasim_refuse_launches(1, 0);
    return rc;
}

/*
 * A launch is refused. If a round is being recorded, the round is issued instead, and the tokens
 * are plain's. If a round is being issued, also one that could not be recorded, the pool ends, and
 * none of its errors stays in the thread. Another pool, which takes turns with it, goes on to
 * plain's tokens.
 */
static void test_a_refused_launch_leaves_nothing_behind(void)
{
    struct job job, other, plain;
    int64_t left = 0, at = 1, times = 1;
    int ended = 0, issued = 0;

    CHECK_OK(open_job(&plain, SPECBATCH_COMPUTE_F32));
    CHECK_OK(run_job(&plain, SPECBATCH_POLICY_PLAIN));
    CHECK_OK(open_job(&job, SPECBATCH_COMPUTE_F32));
    other = job;
    specbatch_model_retain(other.target);
    specbatch_model_retain(other.draft);
    while (left == 0) {
        size_t active, other_active = 1;
        CHECK_OK(create_pool(&job, SPECBATCH_POLICY_RAGGED));
        CHECK_OK(create_pool(&other, SPECBATCH_POLICY_RAGGED));
        CHECK_OK(submit_all(&job));
        CHECK_OK(submit_all(&other));
        const int32_t rc = run_refused(&job, at, times, &left);
        if (rc != SPECBATCH_OK) {
            CHECK_INT(rc, SPECBATCH_E_DEVICE);
            CHECK(strstr(specbatch_last_error(), "too many resources requested"));
            CHECK_INT(specbatch_pool_step(job.pool, &active), SPECBATCH_E_DEVICE);
        } else {
            CHECK_INT(times, 1); /* with two refusals the round fails when it is issued, too */
            collect_all(&job);
            CHECK_MEM(job.tokens, plain.tokens, sizeof job.tokens);
            memset(job.tokens, 0, sizeof job.tokens);
        }
        CHECK_INT(cudaPeekAtLastError(), cudaSuccess);
        if (ended % 2) { /* every other time; else it is still there while the other pool runs */
            specbatch_pool_free(job.pool);
            job.pool = NULL;
        }
        while (other_active)
            CHECK_OK(specbatch_pool_step(other.pool, &other_active));
        collect_all(&other);
        CHECK_MEM(other.tokens, plain.tokens, sizeof other.tokens);
        memset(other.tokens, 0, sizeof other.tokens);
        specbatch_pool_free(job.pool);
        specbatch_pool_free(other.pool);
        job.pool = other.pool = NULL;
        CHECK_INT(cudaPeekAtLastError(), cudaSuccess);
        ended += rc != SPECBATCH_OK;
        issued += rc == SPECBATCH_OK && left == 0;
        times = rc == SPECBATCH_OK && left == 0 ? 2 : 1;
        at += times == 2 ? 0 : 71;
    }
    printf("     ended at %d points, issued instead of recorded at %d\n", ended, issued);
    CHECK(ended > 4);
    CHECK(issued > 0);
    close_job(&job);
    close_job(&other);
    close_job(&plain);
    CHECK(is_clean());
}

/* A stream does not begin to capture, so all rounds are issued. */
static void test_a_stream_that_does_not_capture(void)
{
    struct job job, plain;

    CHECK_OK(open_job(&plain, SPECBATCH_COMPUTE_F32));
    CHECK_OK(run_job(&plain, SPECBATCH_POLICY_PLAIN));
    close_job(&plain);
    CHECK_OK(open_job(&job, SPECBATCH_COMPUTE_F32));
    cudasim_refuse_captures(1);
    const int32_t rc = run_job(&job, SPECBATCH_POLICY_RAGGED);
    cudasim_refuse_captures(0);
    CHECK_OK(rc);
    CHECK_INT(cudaPeekAtLastError(), cudaSuccess);
    close_job(&job);
    CHECK_MEM(job.tokens, plain.tokens, sizeof job.tokens);
    CHECK(is_clean());
}

/* There is no memory for a graph, so the round is issued instead. Only the log says so. */
static void test_a_round_that_cannot_be_recorded_is_issued(void)
{
    struct job job, plain;
    size_t active = 1;
    int64_t most = 0;

    CHECK_OK(open_job(&plain, SPECBATCH_COMPUTE_F32));
    CHECK_OK(run_job(&plain, SPECBATCH_POLICY_PLAIN));
    close_job(&plain);
    CHECK_OK(open_job(&job, SPECBATCH_COMPUTE_F32));
    CHECK_OK(create_pool(&job, SPECBATCH_POLICY_RAGGED));
    CHECK_OK(submit_all(&job));
    const int64_t before = cudasim_objects();
    cudasim_fail_alloc(1); /* a running pool allocates nothing but graphs */
    while (active) {
        CHECK_OK(specbatch_pool_step(job.pool, &active));
        most = cudasim_objects() > most ? cudasim_objects() : most;
        CHECK_INT(cudaPeekAtLastError(), cudaSuccess);
    }
    cudasim_fail_alloc(0);
    collect_all(&job);
    close_job(&job);
    /* This job has rounds of one shape (see test_rounds_are_recorded_and_replayed), so no graph
     * came. */
    CHECK_INT(most, before);
    CHECK_MEM(job.tokens, plain.tokens, sizeof job.tokens);
    CHECK(is_clean());
}

/* A cuBLASLt whose bits depend on the rows is not used, and the tokens are the same. */
static void test_a_cublas_of_other_bits_is_refused(void)
{
    struct job sound, broken;

    CHECK_OK(open_job(&sound, SPECBATCH_COMPUTE_BF16));
    CHECK_OK(run_job(&sound, SPECBATCH_POLICY_RAGGED));
    cudasim_break_blas(CUDASIM_BLAS_ROWS, 65);
    const int32_t rc = open_job(&broken, SPECBATCH_COMPUTE_BF16);
    const int32_t ran = rc ? rc : run_job(&broken, SPECBATCH_POLICY_EQSPEC);
    cudasim_break_blas(CUDASIM_BLAS_SOUND, 0);
    CHECK_OK(ran);
    CHECK_MEM(broken.tokens, sound.tokens, sizeof sound.tokens);
    CHECK_STR(specbatch_model_fingerprint(broken.target),
              specbatch_model_fingerprint(sound.target));
    close_job(&sound);
    close_job(&broken);
    CHECK(is_clean());
}

/* Nor is such a wgmma, which is tried once for each shape of weight. */
static void test_a_wgmma_of_other_bits_is_refused(void)
{
    struct job sound, broken;

    int64_t calls[3] = {cudasim_wgmma_calls(), 0, 0};

    CHECK_OK(open_job(&sound, SPECBATCH_COMPUTE_BF16));
    CHECK_OK(run_job(&sound, SPECBATCH_POLICY_EQSPEC));
    calls[1] = cudasim_wgmma_calls();
    cudasim_break_wgmma(CUDASIM_WGMMA_OTHER, 0);
    const int32_t rc = open_job(&broken, SPECBATCH_COMPUTE_BF16);
    const int32_t ran = rc ? rc : run_job(&broken, SPECBATCH_POLICY_EQSPEC);
    cudasim_break_wgmma(CUDASIM_WGMMA_SOUND, 0);
    calls[2] = cudasim_wgmma_calls();
    CHECK_OK(ran);
    CHECK(calls[2] > calls[1] && 3 * (calls[2] - calls[1]) < calls[1] - calls[0]);
    CHECK_MEM(broken.tokens, sound.tokens, sizeof sound.tokens);
    close_job(&sound);
    close_job(&broken);
    CHECK(is_clean());
}

/* Without cuBLASLt the own kernels make all products. The bits are the same, and the log says so.
 */
static void keep_line(void *user, int32_t level, const char *line)
{
    (void)level;
    if (strstr(line, "own kernels compute all products"))
        snprintf(user, 200, "%s", line);
}

static void test_without_cublas_the_tokens_are_the_same(void)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *model = NULL;
    struct job with, without;
    char line[200] = "";

    CHECK_OK(open_job(&with, SPECBATCH_COMPUTE_BF16));
    CHECK_OK(run_job(&with, SPECBATCH_POLICY_RAGGED));
    cudasim_blas(0);
    const int32_t rc = open_job(&without, SPECBATCH_COMPUTE_BF16);
    const int32_t ran = rc ? rc : run_job(&without, SPECBATCH_POLICY_RAGGED);
    options.device = SPECBATCH_DEVICE_CUDA;
    options.compute = SPECBATCH_COMPUTE_BF16;
    options.log = keep_line;
    options.log_user = line;
    const int32_t opened = specbatch_model_open(&model, TARGET, &options);
    cudasim_blas(130100);
    CHECK_OK(ran);
    CHECK_OK(opened);
    CHECK_MEM(without.tokens, with.tokens, sizeof with.tokens);
    CHECK(strstr(specbatch_model_fingerprint(model), "no cublasLt") != NULL);
    CHECK(strstr(line, "no libcublasLt on this machine") != NULL);
    specbatch_model_close(model);
    close_job(&with);
    close_job(&without);
    CHECK(is_clean());
}

/* A cache has the type of the weights, which may be named; any other type is refused. */
static void test_the_type_of_a_cache(void)
{
    static const struct {
        int32_t compute, kv;
        const char *part; /* of the fingerprint, or of the error */
    } cases[] = {{SPECBATCH_COMPUTE_F32, SPECBATCH_KV_AUTO, "; kv f32;"},
                 {SPECBATCH_COMPUTE_F32, SPECBATCH_KV_F32, "; kv f32;"},
                 {SPECBATCH_COMPUTE_BF16, SPECBATCH_KV_AUTO, "; kv bf16;"},
                 {SPECBATCH_COMPUTE_BF16, SPECBATCH_KV_BF16, "; kv bf16;"},
                 {SPECBATCH_COMPUTE_F32, SPECBATCH_KV_BF16, "kv bf16: on CUDA"},
                 {SPECBATCH_COMPUTE_BF16, SPECBATCH_KV_F32, "weights, which is bf16 here"},
                 {SPECBATCH_COMPUTE_BF16, SPECBATCH_KV_F16, "kv f16: on CUDA"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        specbatch_model_options options = on_device(cases[i].compute);
        specbatch_model *model = NULL;
        options.kv = cases[i].kv;
        if (cases[i].part[0] == ';') {
            CHECK_OK(specbatch_model_open(&model, TARGET, &options));
            CHECK(strstr(specbatch_model_fingerprint(model), cases[i].part) != NULL);
            specbatch_model_close(model);
        } else {
            CHECK_ERROR(specbatch_model_open(&model, TARGET, &options), SPECBATCH_E_UNSUPPORTED,
                        cases[i].part);
        }
        CHECK(is_clean());
    }
}

TEST_BEGIN
RUN(test_what_is_missing_is_named);
RUN(test_the_type_of_a_cache);
RUN(test_devices_have_numbers);
RUN(test_a_model_that_does_not_fit);
RUN(test_heads_that_do_not_fit);
RUN(test_a_draft_elsewhere);
RUN(test_rounds_are_recorded_and_replayed);
RUN(test_two_pools_take_turns);
RUN(test_a_lost_device_leaves_the_other);
RUN(test_a_device_that_does_not_become_current);
RUN(test_no_memory_at_any_point);
RUN(test_a_failed_launch_ends_its_pool);
RUN(test_a_refused_launch_leaves_nothing_behind);
RUN(test_a_stream_that_does_not_capture);
RUN(test_a_round_that_cannot_be_recorded_is_issued);
RUN(test_a_cublas_of_other_bits_is_refused);
RUN(test_a_wgmma_of_other_bits_is_refused);
RUN(test_without_cublas_the_tokens_are_the_same);
TEST_END
