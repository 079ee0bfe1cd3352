/*
 * Attention of long prompts by cuDNN, on the simulated device. Tested is who computes what, that
 * this follows from the prompt alone, and that any policy, batch and chunk size gives plain's
 * tokens with it. Where cuDNN breaks the contract or is not there, the own kernel computes
 * everything, and the log says so.
 */
#include "cudasim.h"

#include "cuda/kept_prompts.h"
#include "cuda/long_prompts.h"
#include "cuda/three_spans.h"
#include "sbtest.h"

#define UNSUITED "test/data/models/llama3_scaled_biased_tied_bf16" /* heads of 20 */
#define WINDOWED "test/data/models/mistral_window_bf16"            /* windows of 70 */
#define VERSION 91900u

enum { LAYERS = 2 };

static struct test_dir model_dir;
static char warned[600], informed[600];

static void on_log(void *user, int32_t level, const char *message)
{
    (void)user;
    if (level == SPECBATCH_LOG_WARN || level == SPECBATCH_LOG_INFO)
        snprintf(level == SPECBATCH_LOG_WARN ? warned : informed, sizeof warned, "%s", message);
}

static int32_t open_model(specbatch_model **out, const char *path, int32_t compute, int32_t prefill)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.device = SPECBATCH_DEVICE_CUDA;
    options.compute = compute;
    options.prefill = prefill;
    options.log = on_log;
    warned[0] = informed[0] = '\0';
    *out = NULL;
    return specbatch_model_open(out, path, &options);
}

/* Opens the model with a cuDNN of this version and fault, until close_with. */
static int32_t open_with(specbatch_model **out, size_t version, enum cudasim_cudnn_fault fault,
                         int64_t argument)
{
    cudasim_cudnn(version);
    cudasim_break_cudnn(fault, argument);
    return open_model(out, model_dir.path, SPECBATCH_COMPUTE_BF16, SPECBATCH_PREFILL_CUDNN);
}

static void close_with(specbatch_model *model)
{
    specbatch_model_close(model);
    cudasim_break_cudnn(CUDASIM_CUDNN_SOUND, 0);
    cudasim_cudnn(0);
}

/* What tests of a cuDNN that keeps the contract share: the model, and plain's answers by it. A
 * model tests its products for every number of rows that its pools have, which takes long here. */
static specbatch_model *sound;
static struct answer plain[PROMPTS];
static int has_plain;

static int32_t take_sound(void)
{
    return sound ? SPECBATCH_OK : open_with(&sound, VERSION, CUDASIM_CUDNN_SOUND, 0);
}

static int32_t take_plain(void)
{
    int32_t rc = take_sound();

    if (rc == SPECBATCH_OK && !has_plain)
        rc = run_plainly(sound, plain);
    has_plain |= rc == SPECBATCH_OK;
    return rc;
}

static void close_sound(void)
{
    close_with(sound);
    sound = NULL;
}

static int is_clean(void)
{
    if (cudasim_device_bytes() || cudasim_host_bytes() || cudasim_objects() ||
        cudasim_cudnn_objects())
        printf("     left behind: %zu device bytes, %zu pinned bytes, %d objects, %d descriptors\n",
               cudasim_device_bytes(), cudasim_host_bytes(), (int)cudasim_objects(),
               (int)cudasim_cudnn_objects());
    return !cudasim_device_bytes() && !cudasim_host_bytes() && !cudasim_objects() &&
           !cudasim_cudnn_objects();
}

static int says(const specbatch_model *model, const char *part)
{
    return strstr(specbatch_model_fingerprint(model), part) != NULL;
}

/* -------------------------------------------------------------------- who computes what */

static void test_the_class_names_the_choice(void)
{
    CHECK_OK(take_sound());
    printf("     %s\n", specbatch_model_fingerprint(sound));
    CHECK(says(sound, "prefill cudnn 91900 engine 3/"));
    CHECK(says(sound, "spans of 256 to 768"));
    CHECK_STR(warned, "");
}

/* A cuDNN that nobody asks for is not touched, and prefixes end where blocks do. */
static void test_the_own_kernel_is_the_default(void)
{
    const int64_t before = cudasim_cudnn_calls();
    struct kept_answer answers[KEPT];
    specbatch_model *model;
    char why[300] = "";

    cudasim_cudnn(VERSION);
    CHECK_OK(open_model(&model, model_dir.path, SPECBATCH_COMPUTE_BF16, SPECBATCH_PREFILL_OWN));
    CHECK(says(model, "prefill own"));
    CHECK_STR(warned, "");
    const int differ = kept_hits_differ(model, answers, why, sizeof why);
    CHECK_INT(cudasim_cudnn_calls(), before);
    close_with(model);
    if (differ)
        FAIL("%s", why);
    CHECK(is_clean());
}

/* For each span of a prompt and each layer there is one call of cuDNN, and no call for anything
 * else. */
static void test_spans_and_nothing_else_are_calls(void)
{
    const specbatch_pool_options options = pool_options(SPECBATCH_POLICY_PLAIN, 1, 0);
    struct answer answer;

    CHECK_OK(take_sound());
    CHECK_OK(run(sound, &options, 1, 1, &answer)); /* the plans of such slots are tested here */
    for (int32_t i = 0; i < PROMPTS; i++) {
        const int64_t before = cudasim_cudnn_calls();
        CHECK_OK(run(sound, &options, i, 1, &answer));
        CHECK_INT(cudasim_cudnn_calls() - before, spans[i] * LAYERS);
    }
}

static void test_the_f32_class_and_unsuited_shapes_go_without(void)
{
    specbatch_model *model;

    cudasim_cudnn(VERSION);
    CHECK_OK(open_model(&model, model_dir.path, SPECBATCH_COMPUTE_F32, SPECBATCH_PREFILL_CUDNN));
    CHECK(!says(model, "prefill"));
    specbatch_model_close(model);
    CHECK_OK(open_model(&model, UNSUITED, SPECBATCH_COMPUTE_BF16, SPECBATCH_PREFILL_CUDNN));
    CHECK(says(model, "prefill own"));
    CHECK(strstr(informed, "does not suit") != NULL);
    specbatch_model_close(model);
    CHECK_OK(open_model(&model, WINDOWED, SPECBATCH_COMPUTE_BF16, SPECBATCH_PREFILL_CUDNN));
    CHECK(says(model, "prefill own"));
    CHECK(strstr(informed, "sliding window") != NULL);
    specbatch_model_close(model);
    cudasim_cudnn(0);
    CHECK(is_clean());
}

/* -------------------------------------------------------------------- the contract */

/* Long prompts beside short ones, under every policy, with several batch and chunk sizes, against
 * one prompt at a time. */
static void test_any_policy_batch_and_chunk_is_plain(void)
{
    char why[200] = "";

    CHECK_OK(take_plain());
    const int64_t before = cudasim_cudnn_calls();
    if (!long_prompts_hold(sound, plain, why, sizeof why))
        FAIL("%s", why);
    CHECK(cudasim_cudnn_calls() > before);
}

/* The same of pools that keep prefixes, or take slots back. */
static void test_kept_prefixes_and_preempted_requests_are_plain(void)
{
    char why[300] = "";

    CHECK_OK(take_sound());
    if (kept_prompts_differ(sound, why, sizeof why))
        FAIL("%s", why);
}

/* These tests could fail: cuDNN's bits are not the own kernel's, and log-probabilities show
 * that. */
static void test_the_route_shows_in_the_bits(void)
{
    struct answer by_own[PROMPTS];
    specbatch_model *model;

    CHECK_OK(take_plain());
    CHECK_OK(open_with(&model, 0, CUDASIM_CUDNN_SOUND, 0));
    CHECK_OK(run_plainly(model, by_own));
    specbatch_model_close(model);
    cudasim_cudnn(VERSION);
    for (int32_t p = 0; p < PROMPTS; p++) {
        const int differ = memcmp(&plain[p], &by_own[p], sizeof by_own[p]) != 0;
        CHECK_INT(differ, spans[p] > 0);
    }
}

static void test_the_audit_takes_the_same_route(void)
{
    specbatch_pool_options options = pool_options(SPECBATCH_POLICY_RAGGED, 2, 0);
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    const specbatch_request request = request_of(0);
    specbatch_pool *pool = NULL;
    specbatch_result *result = NULL;
    size_t active = 1;

    CHECK_OK(take_sound());
    CHECK_OK(create_with_model(&pool, sound, sound, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    while (active)
        CHECK_OK(specbatch_pool_step(pool, &active));
    CHECK_OK(specbatch_pool_collect(pool, &result));
    options.prefill_chunk = 512;
    CHECK_OK(specbatch_audit(sound, &options, &request, result, &report));
    CHECK_INT(report.equal, 1);
    CHECK_INT(report.n_tokens, NEW);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

/* Two requests begin in halves of the one longest slot, of 640 columns. When the first outgrows its
 * half, the other is preempted. By then it has more tokens than a span, while its prompt had one
 * too few for a span: so there must be none in what is computed anew. */
static void test_what_is_computed_anew_takes_the_same_route(void)
{
    specbatch_pool_options options = pool_options(SPECBATCH_POLICY_RAGGED, 2, 0);
    specbatch_request requests[2] = {request_of(5), request_of(3)};
    specbatch_pool *pool;
    size_t active = 1;
    uint64_t n_preempted;

    options.max_len = 600;
    options.cache_columns = 640;
    options.flags = SPECBATCH_POOL_GROW_SLOTS | SPECBATCH_POOL_FIXED_K;
    CHECK_OK(take_sound());
    CHECK_OK(create_with_model(&pool, sound, sound, &options));
    for (int i = 0; i < 2; i++) {
        requests[i].max_new = 24;
        CHECK_OK(specbatch_pool_submit(pool, &requests[i], NULL));
    }
    while (active)
        CHECK_OK(specbatch_pool_step(pool, &active));
    CHECK_OK(specbatch_pool_stat(pool, "preemptions", &n_preempted));
    CHECK(n_preempted >= 1);
    for (int i = 0; i < 2; i++) {
        specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
        specbatch_result *result;
        CHECK_OK(specbatch_pool_collect(pool, &result));
        CHECK_OK(specbatch_audit(sound, NULL, &requests[specbatch_result_id(result) - 1], result,
                                 &report));
        CHECK_INT(report.equal, 1);
        specbatch_result_free(result);
    }
    specbatch_pool_free(pool);
}

static void test_a_refused_call_ends_its_pool(void)
{
    const specbatch_pool_options options = pool_options(SPECBATCH_POLICY_PLAIN, 1, 0);
    const specbatch_request request = request_of(0);
    specbatch_pool *pool = NULL;
    size_t active = 1;
    int32_t rc = SPECBATCH_OK;

    CHECK_OK(take_sound());
    CHECK_OK(specbatch_pool_create(&pool, sound, NULL, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    cudasim_break_cudnn(CUDASIM_CUDNN_NO_RUN, 0);
    while (rc == SPECBATCH_OK && active)
        rc = specbatch_pool_step(pool, &active);
    cudasim_break_cudnn(CUDASIM_CUDNN_SOUND, 0);
    CHECK_INT(rc, SPECBATCH_E_DEVICE);
    CHECK(strstr(specbatch_last_error(), "attend") != NULL);
    specbatch_pool_free(pool);
}

static void test_nothing_of_these_is_left_behind(void)
{
    CHECK_OK(take_sound());
    close_sound();
    CHECK(is_clean());
}

/* -------------------------------------------------------------------- what is refused */

static void test_a_cudnn_that_breaks_the_contract_is_refused(void)
{
    static const struct {
        enum cudasim_cudnn_fault fault;
        const char *name;
    } faults[] = {
        {CUDASIM_CUDNN_STRIDES, "strides"},   {CUDASIM_CUDNN_ADDRESS, "address"},
        {CUDASIM_CUDNN_HISTORY, "history"},   {CUDASIM_CUDNN_NEIGHBOUR, "neighbour"},
        {CUDASIM_CUDNN_TOP_LEFT, "top left"}, {CUDASIM_CUDNN_NO_PLAN, "no plan"},
        {CUDASIM_CUDNN_NO_RUN, "no run"},
    };

    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        const specbatch_pool_options options = pool_options(SPECBATCH_POLICY_RAGGED, 2, 0);
        struct answer answers[2];
        specbatch_model *model;
        CHECK_OK(open_with(&model, VERSION, faults[i].fault, 0));
        if (!says(model, "prefill own"))
            FAIL("%s: %s", faults[i].name, specbatch_model_fingerprint(model));
        CHECK(strstr(warned, "the own kernel computes all attention") != NULL);
        const int64_t before = cudasim_cudnn_calls();
        if (i == 0)
            CHECK_OK(run(model, &options, 0, 2, answers));
        CHECK_INT(cudasim_cudnn_calls(), before);
        close_with(model);
        CHECK(is_clean());
    }
}

static void test_the_next_engine_is_taken(void)
{
    specbatch_model *model;

    CHECK_OK(open_with(&model, VERSION, CUDASIM_CUDNN_ENGINE, 3));
    CHECK(says(model, "prefill cudnn 91900 engine 1/"));
    CHECK_STR(warned, "");
    close_with(model);
    CHECK(is_clean());
}

static void test_a_cudnn_that_is_absent_or_old(void)
{
    static const struct {
        size_t version;
        const char *part;
    } cases[] = {{0, "no libcudnn"}, {90900, "cuDNN is 90900"}, {100000, "cuDNN is 100000"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        specbatch_model *model;
        CHECK_OK(open_with(&model, cases[i].version, CUDASIM_CUDNN_SOUND, 0));
        CHECK(says(model, "prefill own"));
        CHECK(strstr(informed, cases[i].part) != NULL);
        CHECK_STR(warned, "");
        close_with(model);
    }
    CHECK(is_clean());
}

/* cuDNN has other bits for slots of one length. The class does not change, a pool some of whose
 * slots would have it is refused, and other pools are not. For max_len 600 the longest slots have
 * 640 columns; for MOST 768, and their halves the 384 that are meant; and for 400 they have 448. */
static void test_a_pool_of_other_bits_is_refused(void)
{
    specbatch_pool_options options = pool_options(SPECBATCH_POLICY_PLAIN, 1, 0);
    specbatch_model *model;
    specbatch_pool *pool = NULL;
    struct answer answer;

    CHECK_OK(open_with(&model, VERSION, CUDASIM_CUDNN_ONE_LENGTH, 384));
    CHECK(says(model, "prefill cudnn"));
    options.max_len = 600;
    CHECK_OK(run(model, &options, 2, 1, &answer));
    options.max_len = MOST;
    CHECK_ERROR(specbatch_pool_create(&pool, model, NULL, &options), SPECBATCH_E_DEVICE,
                "slots of 384 columns");
    options.max_len = 400;
    CHECK_OK(run(model, &options, 4, 1, &answer));
    close_with(model);
    CHECK(is_clean());
}

/* The n-th allocation on the device fails, for every n while a model is opened, its self-test
 * included. Nothing stays behind. Without a slab of its weights a model is opened all the same;
 * everything else it needs. */
static void test_no_memory_at_any_point(void)
{
    int32_t rc = SPECBATCH_OK, n_opened = 0;
    int64_t n = 0;

    for (int64_t left = 0; left == 0; left = cudasim_fail_alloc(0)) {
        specbatch_model *model;
        cudasim_fail_alloc(++n);
        rc = open_with(&model, VERSION, CUDASIM_CUDNN_SOUND, 0);
        if (rc != SPECBATCH_OK && rc != SPECBATCH_E_NOMEM)
            FAIL("allocation %d: %s (%s)", (int)n, specbatch_status_name(rc),
                 specbatch_last_error());
        n_opened += rc == SPECBATCH_OK;
        close_with(model);
        CHECK(is_clean());
    }
    CHECK_OK(rc);
    printf("     %d allocations, %d of them of slabs\n", (int)n - 1, n_opened - 1);
    CHECK(n > 35 && n_opened == 2);
}

TEST_BEGIN
model_dir = three_spans_make();
RUN(test_the_class_names_the_choice);
RUN(test_spans_and_nothing_else_are_calls);
RUN(test_any_policy_batch_and_chunk_is_plain);
RUN(test_kept_prefixes_and_preempted_requests_are_plain);
RUN(test_the_route_shows_in_the_bits);
RUN(test_the_audit_takes_the_same_route);
RUN(test_what_is_computed_anew_takes_the_same_route);
RUN(test_a_refused_call_ends_its_pool);
RUN(test_nothing_of_these_is_left_behind);
close_sound(); /* of a run in which only some tests were chosen */
RUN(test_the_own_kernel_is_the_default);
RUN(test_the_f32_class_and_unsuited_shapes_go_without);
RUN(test_a_cudnn_that_breaks_the_contract_is_refused);
RUN(test_the_next_engine_is_taken);
RUN(test_a_cudnn_that_is_absent_or_old);
RUN(test_a_pool_of_other_bits_is_refused);
RUN(test_no_memory_at_any_point);
test_dir_remove(&model_dir);
TEST_END
