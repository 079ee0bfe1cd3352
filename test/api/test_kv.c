/*
 * The option `kv`: what it accepts, what it saves, what the fingerprint says of it, and that the
 * contract holds for each type of cache. Target and draft may have different ones.
 */
#include "sbtest.h"
#include "support/small_pool.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { N_NEW = 40 };

static const struct {
    int32_t kv;
    const char *class;
    uint64_t bytes; /* of one element */
} types[] = {{SPECBATCH_KV_F32, "; kv f32;", 4},
             {SPECBATCH_KV_BF16, "; kv bf16;", 2},
             {SPECBATCH_KV_F16, "; kv f16;", 2}};

static int32_t open_class(specbatch_model **model, const char *dir, int32_t compute, int32_t kv)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.compute = compute;
    options.kv = kv;
    return specbatch_model_open(model, dir, &options);
}

static int32_t open_kv(specbatch_model **model, const char *dir, int32_t kv)
{
    return open_class(model, dir, SPECBATCH_COMPUTE_F32, kv);
}

static void test_what_is_not_a_type_is_refused(void)
{
    specbatch_model *model = NULL;

    CHECK_ERROR(open_kv(&model, TARGET, -1), SPECBATCH_E_INVALID, "kv is -1, outside 0..3");
    CHECK_ERROR(open_kv(&model, TARGET, SPECBATCH_KV_F16 + 1), SPECBATCH_E_INVALID, "kv is 4");
    CHECK(model == NULL);
}

static void test_the_fingerprint_names_the_type(void)
{
    specbatch_model_options older = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *model = NULL, *other = NULL;

    for (size_t i = 0; i < COUNT(types); i++) {
        CHECK_OK(open_kv(&model, TARGET, types[i].kv));
        CHECK(strstr(specbatch_model_fingerprint(model), types[i].class) != NULL);
        specbatch_model_close(model);
    }
    /* AUTO is f32 on the CPU, and so is what a caller gets who does not know the option */
    CHECK_OK(open_kv(&model, TARGET, SPECBATCH_KV_AUTO));
    older.struct_size = offsetof(specbatch_model_options, kv);
    older.compute = SPECBATCH_COMPUTE_F32;
    older.kv = SPECBATCH_KV_F16; /* lies behind the end */
    CHECK_OK(specbatch_model_open(&other, TARGET, &older));
    CHECK(strstr(specbatch_model_fingerprint(model), types[0].class) != NULL);
    CHECK_STR(specbatch_model_fingerprint(other), specbatch_model_fingerprint(model));
    specbatch_model_close(model);
    specbatch_model_close(other);
}

/* Which type AUTO is, and with which attention is by the products of the class. */
static void test_the_type_that_a_class_has(void)
{
    static const struct {
        int32_t compute, kv;
        const char *class;
    } cases[] = {{SPECBATCH_COMPUTE_BF16, SPECBATCH_KV_AUTO, "tile 64 in blocks; kv bf16;"},
                 {SPECBATCH_COMPUTE_INT8, SPECBATCH_KV_AUTO, "tile 64 in blocks; kv bf16;"},
                 {SPECBATCH_COMPUTE_SPLIT, SPECBATCH_KV_AUTO, "tile 64; kv f32;"},
                 {SPECBATCH_COMPUTE_SPLIT, SPECBATCH_KV_BF16, "tile 64 in blocks; kv bf16;"},
                 {SPECBATCH_COMPUTE_BF16, SPECBATCH_KV_F32, "tile 64; kv f32;"},
                 {SPECBATCH_COMPUTE_F32, SPECBATCH_KV_BF16, "tile 64; kv bf16;"}};

    for (size_t i = 0; i < COUNT(cases); i++) {
        specbatch_model *model = NULL;
        CHECK_OK(open_class(&model, TARGET, cases[i].compute, cases[i].kv));
        if (!strstr(specbatch_model_fingerprint(model), cases[i].class))
            FAIL("case %zu: %s", i, specbatch_model_fingerprint(model));
        specbatch_model_close(model);
    }
}

static void test_a_cache_takes_the_bytes_of_its_type(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);
    uint64_t bytes[COUNT(types)];

    for (size_t i = 0; i < COUNT(types); i++) {
        specbatch_model *model = NULL;
        specbatch_pool *pool = NULL;
        CHECK_OK(open_kv(&model, TARGET, types[i].kv));
        CHECK_OK(specbatch_pool_create(&pool, model, NULL, &options));
        bytes[i] = stat(pool, "cache_bytes");
        CHECK_INT(bytes[i] * 4, bytes[0] * types[i].bytes);
        specbatch_pool_free(pool);
        specbatch_model_close(model);
    }
}

/* What one request got. */
struct got {
    int32_t tokens[N_NEW];
    float logprobs[N_NEW];
};

/* Requests begin at different places of the prompt, so that they are of different lengths. */
static int32_t submit_from(specbatch_pool *pool, int i)
{
    specbatch_request request = small_request(N_NEW);

    request.ids += i;
    request.n_ids -= (size_t)i;
    request.flags |= SPECBATCH_REQUEST_LOGPROBS;
    return specbatch_pool_submit(pool, &request, NULL);
}

/* Runs the pool to its end and puts the results at the places of their requests, of which the first
 * is `first`. Returns how many there were. */
static int collect_all(specbatch_pool *pool, struct got *got, int first)
{
    specbatch_result *result;
    size_t n = 0, n_logprobs = 0;
    int collected = 0;

    if (run_to_end(pool) != SPECBATCH_OK)
        return 0;
    for (; (result = take(pool)) != NULL; collected++) {
        struct got *to = &got[first + (int)specbatch_result_id(result) - 1];
        const int32_t *tokens = specbatch_result_tokens(result, &n);
        const float *logprobs = specbatch_result_logprobs(result, &n_logprobs);
        if (n == N_NEW && n_logprobs == N_NEW) {
            memcpy(to->tokens, tokens, sizeof to->tokens);
            memcpy(to->logprobs, logprobs, sizeof to->logprobs);
        }
        specbatch_result_free(result);
    }
    return collected;
}

/* Each request alone, plainly. */
static void decode_plainly(struct got *got, specbatch_model *model, int n)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);

    options.batch = 1;
    for (int i = 0; i < n; i++) {
        specbatch_pool *pool = NULL;
        CHECK_OK(specbatch_pool_create(&pool, model, NULL, &options));
        CHECK_OK(submit_from(pool, i));
        CHECK_INT(collect_all(pool, got, i), 1);
        specbatch_pool_free(pool);
    }
}

/* All of them under one policy gets what each has got alone. */
static void check_policy(const struct got *alone, specbatch_model *model, specbatch_model *small,
                         int32_t policy, int n)
{
    specbatch_pool_options options = small_options(policy);
    struct got got[N_PROMPT];
    specbatch_pool *pool = NULL;

    memset(got, 0, sizeof got);
    options.n_threads = 2;
    CHECK_OK(create_with_model(&pool, model, small, &options));
    for (int i = 0; i < n; i++)
        CHECK_OK(submit_from(pool, i));
    CHECK_INT(collect_all(pool, got, 0), n);
    CHECK_MEM(got, alone, (size_t)n * sizeof *got);
    if (policy == SPECBATCH_POLICY_EQSPEC && small)
        CHECK(stat(pool, "realigned_rows") > 0); /* or else nothing was moved */
    specbatch_pool_free(pool);
}

static void test_every_type_keeps_the_contract(void)
{
    for (size_t i = 0; i < COUNT(types) * COUNT(types); i++) {
        struct got alone[N_PROMPT];
        specbatch_model *model = NULL, *small = NULL;
        memset(alone, 0, sizeof alone);
        CHECK_OK(open_kv(&model, TARGET, types[i / COUNT(types)].kv));
        CHECK_OK(open_kv(&small, DRAFT, types[i % COUNT(types)].kv));
        decode_plainly(alone, model, N_PROMPT);
        for (int32_t policy = 0; !sbtest_failed_now && policy < specbatch_policy_count(); policy++)
            check_policy(alone, model, small, policy, N_PROMPT);
        specbatch_model_close(model);
        specbatch_model_close(small);
        if (sbtest_failed_now)
            FAIL("target with%s draft with%s", types[i / COUNT(types)].class,
                 types[i % COUNT(types)].class);
    }
}

TEST_BEGIN
RUN(test_what_is_not_a_type_is_refused);
RUN(test_the_fingerprint_names_the_type);
RUN(test_the_type_that_a_class_has);
RUN(test_a_cache_takes_the_bytes_of_its_type);
RUN(test_every_type_keeps_the_contract);
TEST_END
