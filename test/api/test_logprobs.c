/*
 * Log-probabilities of alternatives and prompts: against logits that are computed all at once,
 * against plain decoding under every policy, and what is refused.
 */
#include "engine/scores.h"
#include "port.h"
#include "sched/policies.h"
#include "support/pool_check.h"
#include "support/scored.h"

/* --------------------------------------------------- against all logits at once */

/* The logits of n tokens, by one pass: [n, vocab], for the caller to free. */
static float *all_logits(const int32_t *ids, int32_t n)
{
    const struct sb_runner_limits limits = {.max_tokens = n,
                                            .max_seqs = 1,
                                            .max_out = n,
                                            .n_passes = 1,
                                            .n_slots = 1,
                                            .cap = n,
                                            .n_columns = n,
                                            .n_threads = 2};
    const size_t count = (size_t)n * (size_t)target->config.vocab;
    const struct sb_mem mem = {NULL, NULL, NULL};
    float *logits = calloc(count, sizeof *logits);
    struct sb_runner runner = {.model = NULL};
    struct sb_fp_env env;
    int32_t seq;

    sb_port_fp_enter(&env);
    if (logits && sb_runner_create(&runner, target, &mem, &limits, NULL) == SPECBATCH_OK) {
        sb_pass_begin(&runner, 0);
        seq = sb_pass_add_seq(&runner, 0, n, 0);
        for (int32_t p = 0; p < n; p++)
            sb_pass_add_token(&runner, seq, p, p, p);
        if (sb_pass_issue(&runner, 0, ids) == SPECBATCH_OK &&
            runner.backend->exec_sync(runner.exec) == SPECBATCH_OK)
            memcpy(logits, runner.logits, count * sizeof *logits);
    }
    sb_runner_free(&runner);
    sb_port_fp_leave(&env);
    return logits;
}

/* log of the sum of e^x over a row, less its maximum's. */
static double log_sum(const float *row, int32_t n)
{
    double largest = row[0], sum = 0.0;

    for (int32_t i = 1; i < n; i++)
        largest = row[i] > largest ? row[i] : largest;
    for (int32_t i = 0; i < n; i++)
        sum += exp(row[i] - largest);
    return largest + log(sum);
}

static void check_logprob(const float *row, double sum, int32_t id, float logprob)
{
    const double expected = row[id] - sum;

    if (!(fabs(logprob - expected) <= 3e-6 + 3e-7 * fabs(expected)))
        FAIL("log-probability of %d is %.9g, expected %.9g", id, (double)logprob, expected);
}

/* Whether id a comes before id b. */
static int comes_before(const float *row, int32_t a, int32_t b)
{
    return row[a] > row[b] || (row[a] == row[b] && a < b);
}

/* Alternatives are in their order, and no other id comes before the last of them. */
static void check_top(const float *row, const int32_t *ids, const float *logprobs, int32_t n_top)
{
    const int32_t vocab = target->config.vocab;
    const double sum = log_sum(row, vocab);
    int32_t n_before = 0;

    for (int32_t i = 0; i < n_top; i++) {
        check_logprob(row, sum, ids[i], logprobs[i]);
        CHECK(i == 0 || comes_before(row, ids[i - 1], ids[i]));
    }
    for (int32_t id = 0; n_top > 0 && id < vocab; id++)
        n_before += comes_before(row, id, ids[n_top - 1]);
    CHECK_INT(n_before, n_top > 0 ? n_top - 1 : 0);
}

static void test_against_all_logits(void)
{
    const int32_t vocab = target->config.vocab;

    for (int i = 0; i < SCORED && !sbtest_failed_now; i++) {
        const struct scored *s = &scored[i];
        const int32_t n_top = s->n_top, n = s->n_prompt + (int32_t)s->n;
        int32_t ids[SCORED_PROMPT + SCORED_NEW];
        float *logits;

        memcpy(ids, s->ids, (size_t)s->n_prompt * sizeof *ids);
        memcpy(ids + s->n_prompt, s->tokens, s->n * sizeof *ids);
        logits = all_logits(ids, n);
        CHECK(logits != NULL);
        for (int32_t p = 0; p < n - 1 && !sbtest_failed_now; p++) {
            const float *row = logits + (int64_t)p * vocab;
            const int32_t at = p - s->n_prompt + 1; /* of the answer */
            if (at < 0 && s->flags & OF_PROMPT) {
                check_logprob(row, log_sum(row, vocab), ids[p + 1], s->prompt_logprobs[p]);
                check_top(row, s->prompt_top_ids + p * n_top, s->prompt_top_logprobs + p * n_top,
                          n_top);
            } else if (at >= 0 && !(s->flags & FILTERED)) {
                if (s->flags & OWN)
                    check_logprob(row, log_sum(row, vocab), ids[p + 1], s->logprobs[at]);
                check_top(row, s->top_ids + at * n_top, s->top_logprobs + at * n_top, n_top);
            }
        }
        free(logits);
    }
}

/* Behind top_k 4 there are four alternatives, whose probabilities are 1 together. */
static void test_filtered_probabilities(void)
{
    const struct scored *s = &scored[6];

    for (size_t i = 0; i < s->n; i++) {
        const int32_t *ids = s->top_ids + i * (size_t)s->n_top;
        const float *logprobs = s->top_logprobs + i * (size_t)s->n_top;
        double sum = 0.0;
        int found = 0;
        for (int k = 0; k < 4; k++) {
            sum += exp((double)logprobs[k]);
            CHECK(ids[k] >= 0 && (k == 0 || logprobs[k] <= logprobs[k - 1]));
            if (ids[k] == s->tokens[i])
                found = memcmp(&logprobs[k], &s->logprobs[i], sizeof(float)) == 0;
        }
        CHECK(found && fabs(sum - 1.0) < 1e-5);
        for (int k = 4; k < s->n_top; k++)
            CHECK(ids[k] == -1 && isinf(logprobs[k]) && logprobs[k] < 0.0f);
    }
}

/* ------------------------------------------------------- against plain decoding */

/* Proposes nonsense, most of which is wrong. */
static int32_t propose_nonsense(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++)
        for (int32_t k = 0; k < rows[b]->k; k++)
            rows[b]->out[rows[b]->n_out++] = (int32_t)(rows[b]->n_tokens * 7 + (size_t)k) % 500;
    return 0;
}

/* Proposes what is right. */
static int32_t propose_right(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++) {
        const struct scored *s = rows[b]->request_user;
        for (int32_t k = 0; k < rows[b]->k; k++) {
            const size_t at = rows[b]->n_tokens - (size_t)s->n_prompt + (size_t)k;
            if (at < s->n)
                rows[b]->out[rows[b]->n_out++] = s->tokens[at];
        }
    }
    return 0;
}

enum { NO_DRAFT, THE_MODEL, NONSENSE, RIGHT, DRAFTS };

static specbatch_draft *make_draft(int kind)
{
    specbatch_draft_ops ops = SPECBATCH_DRAFT_OPS_INIT;
    specbatch_draft *made = NULL;

    ops.propose = kind == RIGHT ? propose_right : propose_nonsense;
    if (kind == THE_MODEL)
        specbatch_draft_retain(made = draft);
    else if (kind != NO_DRAFT)
        (void)specbatch_draft_from_ops(&made, &ops);
    return made;
}

/* Runs all requests twice, so that the second time prompts are kept already. */
static void check_pool(const specbatch_pool_options *options, int kind)
{
    specbatch_draft *with = make_draft(kind);
    specbatch_pool *pool = NULL;

    CHECK_OK(specbatch_pool_create(&pool, target, with, options));
    specbatch_draft_release(with);
    for (int turn = 0; turn < 2; turn++)
        if (scored_run(pool) != 0)
            FAIL("policy %d, draft %d, K %d, kept bytes %d", options->policy, kind,
                 options->draft_len, (int)options->prefix_bytes);
    CHECK_OK(pool_check(pool));
    CHECK_INT(stat(pool, "request_bytes"), 0);
    CHECK(options->prefix_bytes == 0 || stat(pool, "prefix_hits") > 0);
    specbatch_pool_free(pool);
}

static void test_policies_and_drafts(void)
{
    for (int32_t policy = 0; policy < sb_policy_count(); policy++)
        for (int kind = 0; kind < DRAFTS && !sbtest_failed_now; kind++) {
            specbatch_pool_options options = small_options(policy);
            options.batch = 1 + (policy + kind) % 3;
            options.max_len = 200;
            options.draft_len = kind == NO_DRAFT ? 0 : 1 + 2 * kind;
            options.prefill_chunk = 16 + 23 * kind;
            options.prefix_bytes = kind % 2 ? 1 << 22 : 0;
            check_pool(&options, kind);
        }
}

static void test_simd_levels_and_threads(void)
{
    static const int32_t levels[] = {SPECBATCH_SIMD_SCALAR, SPECBATCH_SIMD_AVX2,
                                     SPECBATCH_SIMD_AVX512};
    specbatch_model *best = target;

    for (int i = 0; i < 3; i++) {
        specbatch_model_options model_options = SPECBATCH_MODEL_OPTIONS_INIT;
        specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
        specbatch_model *model = NULL;
        model_options.simd = levels[i];
        options.n_threads = 1 + i;
        options.max_len = 200;
        options.draft_len = 3;
        if (specbatch_model_open(&model, TARGET, &model_options) != SPECBATCH_OK)
            continue; /* this machine lacks the level */
        target = model;
        check_pool(&options, RIGHT);
        target = best;
        specbatch_model_close(model);
    }
}

/* Whether a request waits that has some scores, but not all: it was preempted before its prompt was
 * computed. */
static int waits_half_scored(specbatch_pool *pool)
{
    for (uint64_t id = 1; id <= SCORED; id++) {
        const struct sb_seq *seq = sb_idmap_find(&pool->by_id, id);
        if (seq && seq->slot < 0 && !seq->finish && seq->scores && seq->scores->n_scored > 0 &&
            sb_seq_is_scoring(seq))
            return 1;
    }
    return 0;
}

/* Short prompts share one longest slot, and as they grow they need the one of a long prompt that is
 * being scored a few tokens at a time. */
static void test_preempted_requests(void)
{
    static const int order[SCORED] = {0, 1, 6, 7, 2, 3, 4, 5};
    uint64_t n_preempted = 0;
    int half_scored = 0;

    for (int kind = 0; kind < DRAFTS && !sbtest_failed_now; kind++) {
        specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
        specbatch_draft *with = make_draft(kind);
        specbatch_pool *pool = NULL;
        specbatch_result *result;
        size_t active = 1;
        options.flags |= SPECBATCH_POOL_GROW_SLOTS;
        options.max_len = 180;
        options.draft_len = kind == NO_DRAFT ? 0 : 2;
        options.batch = 5;
        options.prefill_chunk = 3;
        options.cache_columns = 384;
        options.prefix_bytes = kind % 2 ? 1 << 22 : 0;
        CHECK_OK(specbatch_pool_create(&pool, target, with, &options));
        specbatch_draft_release(with);
        for (int i = 0; i < SCORED; i++) {
            const specbatch_request request = scored_request(&scored[order[i]]);
            CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        }
        while (active > 0) {
            CHECK_OK(specbatch_pool_step(pool, &active));
            CHECK_OK(pool_check(pool));
            half_scored |= waits_half_scored(pool);
        }
        while ((result = take(pool)) != NULL) {
            CHECK(scored_is_plain(result));
            specbatch_result_free(result);
        }
        n_preempted += stat(pool, "preemptions");
        specbatch_pool_free(pool);
    }
    CHECK(n_preempted > 0 && half_scored);
}

/* ---------------------------------------------------------------- single requests */

static void test_cancelled_while_it_is_scored(void)
{
    const specbatch_request request = scored_request(&scored[3]);
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool = NULL;
    specbatch_result *result;
    size_t n = 7;

    options.prefill_chunk = 16;
    options.max_len = 200;
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(specbatch_pool_cancel(pool, 1));
    CHECK((result = take(pool)) != NULL);
    CHECK(!specbatch_result_prompt_logprobs(result, &n) && n == 0);
    CHECK(!specbatch_result_prompt_top_ids(result, &n) && n == 0);
    CHECK(!specbatch_result_prompt_top_logprobs(result, &n) && n == 0);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

/* A prompt of one token without an answer has nothing to compute. */
static void test_nothing_to_compute(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_request request = small_request(0);
    specbatch_event event = SPECBATCH_EVENT_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result;
    size_t n = 7, active = 1;

    request.n_ids = 1;
    request.flags |= OF_PROMPT;
    request.top_logprobs = 2;
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(specbatch_pool_step(pool, &active));
    CHECK_INT(active, 0);
    CHECK_OK(specbatch_pool_next_event(pool, &event));
    CHECK(event.finish == SPECBATCH_FINISH_LENGTH && event.n_ids == 0);
    CHECK((result = take(pool)) != NULL);
    CHECK_INT(specbatch_result_finish(result), SPECBATCH_FINISH_LENGTH);
    CHECK(!specbatch_result_prompt_logprobs(result, &n) && n == 0);
    CHECK(specbatch_result_top_ids(result, &n) && n == 2);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

/* With a bias alone, filtered log-probabilities are those of the changed logits, and the model's
 * own are not. */
static void test_greedy_and_filtered(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);
    const int32_t biased[] = {123};
    const float bias[] = {1000.0f};
    specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;
    specbatch_pool *pool = NULL;
    float logprob[3];

    sampling.bias_ids = biased;
    sampling.bias = bias;
    sampling.n_bias = 1;
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    for (int i = 0; i < 3; i++) {
        specbatch_request request = small_request(1);
        specbatch_result *result;
        request.flags |= OWN | (i > 0 ? FILTERED : 0);
        request.sampling = i < 2 ? &sampling : NULL;
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        CHECK((result = take(pool)) != NULL);
        CHECK((specbatch_result_tokens(result, NULL)[0] == 123) == (i < 2));
        logprob[i] = specbatch_result_logprobs(result, NULL)[0];
        specbatch_result_free(result);
    }
    CHECK(logprob[0] < -0.1f && logprob[1] == 0.0f && logprob[2] < 0.0f);
    specbatch_pool_free(pool);
}

/* Selection from logits of which some are NaN. */
static void select_nan(struct sb_exec *exec, const struct sb_select *args)
{
    for (int32_t i = 0; i < args->m; i++)
        args->logits[(int64_t)i * args->stride + 3] = NAN;
    sb_backend_cpu()->select(exec, args);
}

/* NaN logits of a prompt end its request, whether it would have had an answer or not, and whether
 * its first query is in the same pass or not. */
static void test_nan_logits_of_a_prompt(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    struct sb_backend backend = *target->backend;
    const struct sb_backend *sound = target->backend;

    backend.select = select_nan;
    for (int i = 0; i < 4 && !sbtest_failed_now; i++) {
        specbatch_request request = small_request(i % 2 ? 5 : 0);
        specbatch_pool *pool = NULL;
        specbatch_result *result;
        size_t n;
        request.flags |= OF_PROMPT;
        options.prefill_chunk = i < 2 ? 64 : 3;
        CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
        target->backend = pool->runner.backend = &backend;
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        target->backend = pool->runner.backend = sound;
        CHECK((result = take(pool)) != NULL);
        CHECK_INT(specbatch_result_finish(result), SPECBATCH_FINISH_ERROR);
        CHECK_INT(specbatch_result_status(result), SPECBATCH_E_NAN);
        specbatch_result_tokens(result, &n);
        CHECK_INT(n, 0);
        /* Scores end at the first NaN, wherever its chunk ends. */
        CHECK(!specbatch_result_prompt_logprobs(result, &n) && n == 0);
        specbatch_result_free(result);
        CHECK_INT(pool->sched.residents.n, 0);
        specbatch_pool_free(pool);
    }
}

static void expect_refused(specbatch_pool *pool, const specbatch_request *request, const char *name)
{
    const int32_t rc = specbatch_pool_submit(pool, request, NULL);

    CHECK(rc == SPECBATCH_E_INVALID || rc == SPECBATCH_E_OPTIONS);
    if (!strstr(specbatch_last_error(), name))
        FAIL("%s is not named: %s", name, specbatch_last_error());
}

static void test_refusals(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);
    specbatch_request request = small_request(4);
    specbatch_pool *pool = NULL;
    size_t n = 7;

    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    request.top_logprobs = -1;
    expect_refused(pool, &request, "top_logprobs");
    request.top_logprobs = 33;
    expect_refused(pool, &request, "top_logprobs");
    request.top_logprobs = 0;
    request.flags |= 1u << 31;
    expect_refused(pool, &request, "flags");
    request = small_request(0);
    expect_refused(pool, &request, "max_new");
    request.flags |= OF_PROMPT;
    request.max_new = -1;
    expect_refused(pool, &request, "max_new");
    specbatch_pool_free(pool);
    CHECK(!specbatch_result_top_ids(NULL, &n) && n == 0);
    n = 7;
    CHECK(!specbatch_result_top_logprobs(NULL, &n) && n == 0);
    n = 7;
    CHECK(!specbatch_result_prompt_logprobs(NULL, &n) && n == 0);
    CHECK(!specbatch_result_prompt_top_ids(NULL, NULL));
    CHECK(!specbatch_result_prompt_top_logprobs(NULL, NULL));
}

/* The audit finds an alternative that is another, and a score of the prompt. */
static void test_audit(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_request request = small_request(6);
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result;
    float *score;

    request.top_logprobs = 3;
    request.flags |= OF_PROMPT;
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(run_to_end(pool));
    CHECK((result = take(pool)) != NULL);
    CHECK_OK(specbatch_audit(target, &options, &request, result, &report));
    CHECK(report.equal);
    result->seq->scores->top_ids[4 * 3 + 1]++;
    CHECK_OK(specbatch_audit(target, &options, &request, result, &report));
    CHECK(!report.equal && report.first_divergence == 4);
    score = &result->seq->scores->prompt_logprobs[2];
    *score = nextafterf(*score, 0.0f);
    CHECK_OK(specbatch_audit(target, &options, &request, result, &report));
    CHECK(!report.equal && report.first_divergence == 0);
    request.top_logprobs = 2;
    CHECK_INT(specbatch_audit(target, &options, &request, result, &report), SPECBATCH_E_INVALID);
    CHECK(strstr(specbatch_last_error(), "top_logprobs") != NULL);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

TEST_BEGIN
if (open_pair() != 0)
    printf("FAIL the pair does not open: %s\n", specbatch_last_error());
else {
    RUN(scored_ask_plainly);
    RUN(test_against_all_logits);
    RUN(test_filtered_probabilities);
    RUN(test_policies_and_drafts);
    RUN(test_simd_levels_and_threads);
    RUN(test_preempted_requests);
    RUN(test_cancelled_while_it_is_scored);
    RUN(test_nothing_to_compute);
    RUN(test_greedy_and_filtered);
    RUN(test_nan_logits_of_a_prompt);
    RUN(test_refusals);
    RUN(test_audit);
}
close_pair();
TEST_END
