/*
 * Two devices in one process, real or simulated (place.h): models on both, their pools in two
 * threads at once and by turns in one. Each gives the tokens of plain decoding on its own device.
 * Where there is one device only, these tests are skipped.
 */
#include <pthread.h>

#include "sbtest.h"
#include "support/drafts.h"
#include "support/place.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"
#define DRAFT TARGET ".draft"

static const int32_t prompt[] = {5, 80, 311, 42, 9, 500, 77};
enum { PROMPT = sizeof prompt / sizeof prompt[0], NEW = 24, REQUESTS = 3, DEVICES = 2 };

struct job {
    specbatch_model *target, *draft;
    specbatch_pool *pool;
    int32_t tokens[REQUESTS][NEW], expected[REQUESTS][NEW];
    int32_t rc;
};

static int32_t create_pool(struct job *job, int32_t policy)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    int32_t rc;

    options.policy = policy;
    options.batch = REQUESTS;
    options.draft_len = policy == SPECBATCH_POLICY_PLAIN ? -1 : 4;
    options.flags = SPECBATCH_POOL_FIXED_K;
    options.max_len = 64;
    options.prefill_chunk = 66; /* so that cuBLASLt may make products of 65 and 66 rows */
    rc = create_with_model(&job->pool, job->target, job->draft, &options);
    request.ids = prompt;
    request.max_new = NEW;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    for (int i = 0; i < REQUESTS && rc == SPECBATCH_OK; i++) {
        request.n_ids = (size_t)(PROMPT - 2 * i);
        rc = specbatch_pool_submit(job->pool, &request, NULL);
    }
    return rc;
}

/* Collects the results and frees the pool. */
static void finish(struct job *job)
{
    specbatch_result *result;

    memset(job->tokens, 0, sizeof job->tokens);
    while (specbatch_pool_collect(job->pool, &result) == SPECBATCH_OK) {
        size_t n;
        const int32_t *tokens = specbatch_result_tokens(result, &n);
        memcpy(job->tokens[specbatch_result_id(result) - 1], tokens, n * sizeof *tokens);
        specbatch_result_free(result);
    }
    specbatch_pool_free(job->pool);
    job->pool = NULL;
}

static int32_t run(struct job *job, int32_t policy)
{
    size_t active = 1;
    int32_t rc = create_pool(job, policy);

    while (rc == SPECBATCH_OK && active)
        rc = specbatch_pool_step(job->pool, &active);
    finish(job);
    return rc;
}

/* Opens the models on a device, and learns the tokens of plain decoding there. */
static int32_t open_on(struct job *job, int32_t device_index)
{
    specbatch_model_options options = place_options();
    int32_t rc;

    memset(job, 0, sizeof *job);
    options.device = SPECBATCH_DEVICE_CUDA;
    options.device_index = device_index;
    rc = specbatch_model_open(&job->target, TARGET, &options);
    if (rc == SPECBATCH_OK)
        rc = specbatch_model_open(&job->draft, DRAFT, &options);
    if (rc == SPECBATCH_OK)
        rc = run(job, SPECBATCH_POLICY_PLAIN);
    memcpy(job->expected, job->tokens, sizeof job->tokens);
    return rc;
}

static void close_both(struct job *jobs)
{
    for (int d = 0; d < DEVICES; d++) {
        specbatch_pool_free(jobs[d].pool);
        specbatch_model_close(jobs[d].target);
        specbatch_model_close(jobs[d].draft);
    }
}

/* Opens the models on both devices. E_NO_DEVICE: there are not two. */
static int32_t open_both(struct job *jobs)
{
    int32_t rc = SPECBATCH_OK;

    memset(jobs, 0, DEVICES * sizeof *jobs);
    for (int d = 0; d < DEVICES && rc == SPECBATCH_OK; d++)
        rc = open_on(&jobs[d], d);
    if (rc != SPECBATCH_OK)
        close_both(jobs);
    return rc;
}

static void *run_all_policies(void *of)
{
    struct job *job = of;

    for (int turn = 0; turn < 2 && job->rc == SPECBATCH_OK; turn++) {
        job->rc = run(job, turn ? SPECBATCH_POLICY_EQSPEC : SPECBATCH_POLICY_RAGGED);
        if (job->rc == SPECBATCH_OK && memcmp(job->tokens, job->expected, sizeof job->tokens) != 0)
            job->rc = SPECBATCH_E_INTERNAL;
    }
    return NULL;
}

static void test_a_device_that_is_not_there(void)
{
    struct job job;

    CHECK_ERROR(open_on(&job, 1000), SPECBATCH_E_NO_DEVICE, "no CUDA");
}

static void test_pools_on_two_devices_at_once(void)
{
    struct job jobs[DEVICES];
    pthread_t threads[DEVICES];
    const int32_t rc = open_both(jobs);

    if (rc == SPECBATCH_E_NO_DEVICE)
        SKIP("%s", specbatch_last_error());
    CHECK_OK(rc);
    for (int d = 0; d < DEVICES; d++)
        CHECK_INT(pthread_create(&threads[d], NULL, run_all_policies, &jobs[d]), 0);
    for (int d = 0; d < DEVICES; d++)
        CHECK_INT(pthread_join(threads[d], NULL), 0);
    for (int d = 0; d < DEVICES; d++)
        CHECK_OK(jobs[d].rc);
    close_both(jobs);
}

static void test_pools_on_two_devices_take_turns(void)
{
    struct job jobs[DEVICES];
    size_t active[DEVICES] = {1, 1};
    const int32_t rc = open_both(jobs);

    if (rc == SPECBATCH_E_NO_DEVICE)
        SKIP("%s", specbatch_last_error());
    CHECK_OK(rc);
    for (int d = 0; d < DEVICES; d++)
        CHECK_OK(create_pool(&jobs[d], SPECBATCH_POLICY_RAGGED));
    while (active[0] || active[1])
        for (int d = 0; d < DEVICES; d++)
            CHECK_OK(specbatch_pool_step(jobs[d].pool, &active[d]));
    for (int d = 0; d < DEVICES; d++) {
        finish(&jobs[d]);
        CHECK_MEM(jobs[d].tokens, jobs[d].expected, sizeof jobs[d].tokens);
    }
    close_both(jobs);
}

TEST_BEGIN
RUN(test_a_device_that_is_not_there);
RUN(test_pools_on_two_devices_at_once);
RUN(test_pools_on_two_devices_take_turns);
TEST_END
