/* The audit: what it confirms, finds and refuses. */
#include "sbtest.h"
#include "support/metered.h"
#include "support/small_pool.h"

static void test_the_audit_confirms_and_finds(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_EQSPEC);
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    specbatch_request request = small_request(30);
    specbatch_pool *pool;
    specbatch_result *result;

    request.flags |= SPECBATCH_REQUEST_LOGPROBS;
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(run_to_end(pool));
    CHECK((result = take(pool)) != NULL);
    CHECK_OK(specbatch_audit(target, &options, &request, result, &report));
    CHECK_INT(report.equal, 1);
    CHECK_INT(report.first_divergence, -1);
    CHECK_INT(report.n_tokens, 30);
    result->seq->tokens[N_PROMPT + 11] ^= 1;
    CHECK_OK(specbatch_audit(target, &options, &request, result, &report));
    CHECK_INT(report.equal, 0);
    CHECK_INT(report.first_divergence, 11);
    CHECK_INT(report.token_got, report.token_expected ^ 1);
    CHECK(report.margin > 0.0f);
    result->seq->tokens[N_PROMPT + 11] ^= 1;
    result->seq->logprobs[20] = nextafterf(result->seq->logprobs[20], 0.0f);
    CHECK_OK(specbatch_audit(target, &options, &request, result, &report));
    CHECK_INT(report.first_divergence, 20);
    result->seq->n_tokens -= 5;
    result->seq->logprobs[20] = nextafterf(result->seq->logprobs[20], -INFINITY);
    CHECK_OK(specbatch_audit(target, &options, &request, result, &report));
    CHECK_INT(report.first_divergence, 25);
    CHECK_INT(report.token_got, -1);
    result->seq->finish = SPECBATCH_FINISH_CANCELLED;
    CHECK_OK(specbatch_audit(target, &options, &request, result, &report));
    CHECK_INT(report.equal, 1);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

static int32_t allow_all(void *user, specbatch_mask_row *const *rows, size_t n)
{
    (void)user, (void)rows, (void)n;
    return 0;
}

/* Compares a result of small_request(10), with log-probabilities, to what it is not a result of. */
static void test_the_audit_refuses_another_request_or_model(void)
{
    specbatch_model *another = NULL;
    struct meter meter = {0};
    const specbatch_pool_options options = metered_options(SPECBATCH_POLICY_RAGGED, &meter);
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    specbatch_sampling sampled = SPECBATCH_SAMPLING_INIT;
    specbatch_mask masked = SPECBATCH_MASK_INIT;
    specbatch_request right = small_request(10), other;
    specbatch_pool *pool;
    specbatch_result *result;

    sampled.temperature = 1.0f;
    masked.allow = allow_all;
    right.flags |= SPECBATCH_REQUEST_LOGPROBS;
    right.stop_ids = prompt;
    right.n_stop_ids = 1;
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    CHECK_OK(specbatch_pool_submit(pool, &right, NULL));
    CHECK_OK(run_to_end(pool));
    CHECK((result = take(pool)) != NULL);
    specbatch_pool_free(pool);
    CHECK_OK(specbatch_model_open(&another, DRAFT, NULL));
#define REFUSED(model, part)                                                                    \
    CHECK_ERROR(specbatch_audit(model, &options, &other, result, &report), SPECBATCH_E_INVALID, \
                part)
    other = right;
    REFUSED(another, "another model");
    specbatch_model_close(another);
    other.n_ids--;
    REFUSED(target, "its prompt differs");
    other = right;
    other.max_new++;
    REFUSED(target, "its max_new differs");
    other = right;
    other.stop_ids = prompt + 1;
    REFUSED(target, "its stop_ids differ");
    other.n_stop_ids = 0;
    REFUSED(target, "its stop_ids differ");
    other = right;
    other.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    REFUSED(target, "its flags differ");
    other.flags = SPECBATCH_REQUEST_LOGPROBS;
    REFUSED(target, "its flags differ");
    other = right;
    other.sampling = &sampled;
    REFUSED(target, "its sampling differs");
    other = right;
    other.mask = &masked;
    REFUSED(target, "its mask differs");
    other = right;
    other.draft_len = 2;
    report.struct_size = 3;
    meter.largest = 0;
    REFUSED(target, "audit report: struct_size");
    CHECK_INT(meter.largest, 0); /* no replay has begun */
    report.struct_size = sizeof report;
    CHECK_OK(specbatch_audit(target, &options, &other, result, &report));
    CHECK_INT(report.equal, 1);
    CHECK(meter.largest > 0);
    specbatch_result_free(result);
    CHECK_INT(meter.now, 0);
}

static specbatch_result *answer(specbatch_pool *pool, const specbatch_request *request)
{
    return specbatch_pool_submit(pool, request, NULL) == SPECBATCH_OK &&
                   run_to_end(pool) == SPECBATCH_OK
               ? take(pool)
               : NULL;
}

/* There is room for what the result had room for, though the default of max_len is less. */
static void test_the_audit_of_a_long_request(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    specbatch_request request = small_request(1);
    specbatch_model *model = NULL;
    specbatch_pool *pool;
    specbatch_result *first, *result;
    size_t n;

    options.max_len = N_PROMPT + 2100;
    CHECK_OK(specbatch_model_open(&model, "examples/demo/draft", NULL));
    CHECK_OK(specbatch_pool_create(&pool, model, NULL, &options));
    CHECK((first = answer(pool, &request)) != NULL);
    request.max_new = 2100;
    request.stop_ids = specbatch_result_tokens(first, &n);
    request.n_stop_ids = 1;
    CHECK((result = answer(pool, &request)) != NULL);
    specbatch_pool_free(pool);
    CHECK_OK(specbatch_audit(model, NULL, &request, result, &report));
    CHECK_INT(report.equal, 1);
    specbatch_result_free(first);
    specbatch_result_free(result);
    specbatch_model_close(model);
}

/* A model in another class has the same digest, so it is not refused: the report tells what the
 * other class computes. Weights in bf16, so that SPLIT is not F32. */
static void test_the_audit_tells_classes_apart(void)
{
    enum { CLASSES = SPECBATCH_COMPUTE_SPLIT };
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    specbatch_model_options model_options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_request request = small_request(20);
    specbatch_model *model[CLASSES];
    specbatch_pool *pool;
    specbatch_result *result;

    request.flags |= SPECBATCH_REQUEST_LOGPROBS;
    for (int c = 0; c < CLASSES; c++) {
        model_options.compute = c + 1;
        CHECK_OK(
            specbatch_model_open(&model[c], "test/data/models/glm4_unbiased_bf16", &model_options));
    }
    for (int c = 0; c < CLASSES; c++) {
        CHECK_OK(create_with_model(&pool, model[c], model[c], &options));
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        CHECK((result = take(pool)) != NULL);
        for (int other = 0; other < CLASSES; other++) {
            CHECK_OK(specbatch_audit(model[other], &options, &request, result, &report));
            CHECK_INT(report.equal, c == other);
        }
        specbatch_result_free(result);
        specbatch_pool_free(pool);
    }
    for (int c = 0; c < CLASSES; c++)
        specbatch_model_close(model[c]);
}

TEST_BEGIN
if (open_pair()) {
    printf("FAIL the models do not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_the_audit_confirms_and_finds);
RUN(test_the_audit_refuses_another_request_or_model);
RUN(test_the_audit_of_a_long_request);
RUN(test_the_audit_tells_classes_apart);
close_pair();
TEST_END
