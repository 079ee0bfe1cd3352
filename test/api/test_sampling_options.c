/* What a request may say of its sampling: bad values are refused by the name of their field, and
 * what asks for nothing is greedy. */
#include <math.h>

#include "sbtest.h"
#include "status.h"
#include "support/small_pool.h"

static specbatch_pool *pool;

static int32_t submit(const specbatch_sampling *sampling)
{
    specbatch_request request = small_request(4);

    request.sampling = sampling;
    return specbatch_pool_submit(pool, &request, NULL);
}

/* A float field and what it must not be. */
static const struct bad {
    size_t at;
    const char *name;
    float values[4];
} bads[] = {
    {offsetof(specbatch_sampling, temperature), "temperature", {NAN, INFINITY, -1.0f, -0.001f}},
    {offsetof(specbatch_sampling, top_p), "top_p", {NAN, 1.001f, -0.1f, INFINITY}},
    {offsetof(specbatch_sampling, typical_p), "typical_p", {NAN, 1.5f, -0.1f, INFINITY}},
    {offsetof(specbatch_sampling, min_p), "min_p", {NAN, 1.001f, -0.1f, INFINITY}},
    {offsetof(specbatch_sampling, repetition_penalty),
     "repetition_penalty",
     {NAN, -1.0f, -0.001f, INFINITY}},
    {offsetof(specbatch_sampling, presence_penalty),
     "presence_penalty",
     {NAN, INFINITY, -INFINITY, NAN}},
    {offsetof(specbatch_sampling, frequency_penalty),
     "frequency_penalty",
     {NAN, INFINITY, -INFINITY, NAN}},
};

static void test_numbers_out_of_range(void)
{
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++)
        for (int v = 0; v < 4; v++) {
            specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;
            memcpy((char *)&sampling + bads[i].at, &bads[i].values[v], sizeof(float));
            CHECK_ERROR(submit(&sampling), SPECBATCH_E_INVALID, bads[i].name);
        }
}

static void test_integers_out_of_range(void)
{
    specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;

    sampling.top_k = -1;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_INVALID, "top_k");
    sampling.top_k = 0;
    sampling.penalty_window = -1;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_INVALID, "penalty_window");
    sampling.penalty_window = 3073;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_INVALID, "penalty_window");
    sampling.penalty_window = 0;
    sampling.flags = 2;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_OPTIONS, "flags");
    sampling.flags = 0;
    sampling.struct_size = 4;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_INVALID, "sampling: struct_size");
}

static void test_biases(void)
{
    specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;
    const int32_t same[] = {7, 7}, outside[] = {7, 517}, below[] = {-1};
    const float good[] = {1.0f, -INFINITY}, bad[] = {0.0f, NAN}, infinite[] = {INFINITY};

    sampling.n_bias = 2;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_INVALID, "bias_ids");
    sampling.bias_ids = same;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_INVALID, "bias is NULL");
    sampling.bias = good;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_INVALID, "bias_ids[0] and [1]");
    sampling.bias_ids = outside;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_TOKEN, "bias_ids[1]");
    sampling.n_bias = 1025;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_INVALID, "n_bias");
    sampling.n_bias = 1;
    sampling.bias_ids = below;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_TOKEN, "bias_ids[0]");
    sampling.bias_ids = same;
    sampling.bias = infinite;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_INVALID, "bias[0]");
    sampling.n_bias = 2;
    sampling.bias_ids = (const int32_t[]){7, 8};
    sampling.bias = bad;
    CHECK_ERROR(submit(&sampling), SPECBATCH_E_INVALID, "bias[1]");
}

/* A struct of zeros asks for what no struct asks for. */
static void test_nothing_asked_for_is_greedy(void)
{
    const specbatch_sampling zeros = SPECBATCH_SAMPLING_INIT;
    specbatch_result *results[2];
    const int32_t *a, *b;
    size_t n, m;

    CHECK_OK(submit(&zeros));
    CHECK_OK(submit(NULL));
    CHECK_OK(run_to_end(pool));
    results[0] = take(pool);
    results[1] = take(pool);
    CHECK(results[0] && results[1]);
    a = specbatch_result_tokens(results[0], &n);
    b = specbatch_result_tokens(results[1], &m);
    CHECK(n == 4 && m == 4);
    CHECK_MEM(a, b, n * sizeof *a);
    specbatch_result_free(results[0]);
    specbatch_result_free(results[1]);
}

/* Requests of different kinds in one round, of which each needs little room for lists by itself:
 * one with many tokens that penalties count, in caches that have not room for several of it, and
 * some with biases. */
static void test_lists_of_different_requests_fit_together(void)
{
    enum { LONG = 110, BIASED = 50 };
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_sampling counts = SPECBATCH_SAMPLING_INIT, biased = SPECBATCH_SAMPLING_INIT;
    specbatch_request request = small_request(16);
    specbatch_pool *narrow = NULL;
    int32_t ids[LONG];
    float bias[LONG];
    size_t active = 1, most_rows = 0;

    for (int32_t i = 0; i < LONG; i++) {
        ids[i] = 3 + i;
        bias[i] = 0.5f;
    }
    options.cache_columns = 420; /* three of the longest slots */
    counts.presence_penalty = 1.0f;
    biased.bias_ids = ids;
    biased.bias = bias;
    biased.n_bias = BIASED;
    CHECK_OK(specbatch_pool_create(&narrow, target, NULL, &options));
    for (int i = 0; i < 4; i++) {
        request.ids = i == 0 ? ids : prompt;
        request.n_ids = i == 0 ? LONG : N_PROMPT;
        request.sampling = i == 0 ? &counts : &biased;
        CHECK_OK(specbatch_pool_submit(narrow, &request, NULL));
    }
    while (active) {
        CHECK_OK(specbatch_pool_step(narrow, &active));
        if ((size_t)narrow->round.n_rows > most_rows)
            most_rows = (size_t)narrow->round.n_rows;
        CHECK(narrow->round.samplers.n_lists <= narrow->round.samplers.room);
    }
    CHECK_INT(most_rows, 4);
    specbatch_pool_free(narrow);
}

static int32_t broken_alloc(void **out, struct sb_device *device, const struct sb_mem *mem,
                            size_t bytes)
{
    (void)out;
    (void)device;
    (void)mem;
    return sb_fail(SPECBATCH_E_DEVICE, "no device for %zu bytes", bytes);
}

/* The first request with a sampler takes memory of the device. If that does not lack memory but
 * fails, the pool is dead, as after a step. */
static void test_a_device_that_fails_at_a_submission_ends_the_pool(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const struct sb_backend *sound = target->backend;
    struct sb_backend broken = *sound;
    specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;
    specbatch_request request = small_request(4);
    specbatch_pool *one;

    broken.alloc = broken_alloc;
    sampling.temperature = 1.0f;
    request.sampling = &sampling;
    CHECK_OK(specbatch_pool_create(&one, target, NULL, &options));
    target->backend = &broken;
    CHECK_INT(specbatch_pool_submit(one, &request, NULL), SPECBATCH_E_DEVICE);
    target->backend = sound;
    request.sampling = NULL;
    CHECK_ERROR(specbatch_pool_submit(one, &request, NULL), SPECBATCH_E_DEVICE, "pool ended");
    CHECK_ERROR(specbatch_pool_step(one, NULL), SPECBATCH_E_DEVICE, "no device for");
    specbatch_pool_free(one);
}

TEST_BEGIN
const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
if (open_pair() || specbatch_pool_create(&pool, target, draft, &options)) {
    printf("FAIL open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_numbers_out_of_range);
RUN(test_integers_out_of_range);
RUN(test_biases);
RUN(test_nothing_asked_for_is_greedy);
RUN(test_lists_of_different_requests_fit_together);
RUN(test_a_device_that_fails_at_a_submission_ends_the_pool);
specbatch_pool_free(pool);
close_pair();
TEST_END
