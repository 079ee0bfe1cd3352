/*
 * Masks: tokens are those of plain decoding whatever way requests are run, every one of them is
 * allowed behind those before it, and the function is asked for whole batches, by the rules for
 * callbacks. support/masked_runs.h has the rules and the requests.
 */
#include "sbtest.h"

#include "model/model.h"
#include "support/pool_check.h"
#include "support/drafts.h"
#include "support/masked_runs.h"
#include "support/model_files.h"

#define DRAFT "test/data/models/qwen3_untied_f32_sharded.draft"

/* ------------------------------------------------------------------ as plain decoding */

static void test_plain_tokens_are_allowed_and_ends_are_as_they_must_be(void)
{
    int n_dead = 0, n_long = 0;

    for (int i = 0; i < MASKED_JOBS; i++) {
        const struct masked_job *job = &masked_jobs()[i];
        int32_t all[MASKED_PROMPT + MASKED_NEW];
        memcpy(all, job->prompt, sizeof job->prompt);
        memcpy(all + MASKED_PROMPT, job->tokens, sizeof job->tokens);
        for (size_t n = 0; n < job->n_tokens && job->rule; n++)
            CHECK(masked_allows(job->rule, all, MASKED_PROMPT + n, MASKED_PROMPT, job->tokens[n]));
        if (job->finish == SPECBATCH_FINISH_ERROR)
            CHECK_INT(job->status, SPECBATCH_E_NO_CHOICE);
        n_dead += job->finish == SPECBATCH_FINISH_ERROR;
        n_long += job->n_tokens > 15;
        printf("     %2zu tokens, %s\n", job->n_tokens, specbatch_finish_name(job->finish));
    }
    CHECK_INT(n_dead, 2);
    CHECK_INT(masked_jobs()[6].n_tokens, 5); /* the bias bans what the mask forces */
    CHECK_INT(masked_jobs()[7].n_tokens, 10);
    CHECK(n_long >= 4);
}

/* Runs the requests in one way; `forced`: at least so many tokens are. */
static void check(struct masked_way way, uint64_t forced)
{
    static const char *const names[] = {"tokens_forced", "preemptions", "prefix_hits"};
    uint64_t values[3];
    char why[600];

    way.names = names;
    way.values = values;
    way.n_counters = 3;
    if (masked_run(&way, why, sizeof why))
        FAIL("%s", why);
    CHECK(values[0] >= forced);
    CHECK((values[1] > 0) == way.crowded);
    CHECK((values[2] > 0) == way.prefixes);
}

static void test_every_policy_and_draft_gives_plain_tokens(void)
{
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++)
        for (int draft = 0; draft < MASKED_DRAFTS; draft++) {
            const int speculates = policy != SPECBATCH_POLICY_PLAIN;
            const struct masked_way way = {.policy = policy,
                                           .batch = 1 + (policy + draft) % 4,
                                           .draft_len = 1 + (2 * policy + draft) % 6,
                                           .draft = (enum masked_draft)draft};
            check(way, speculates ? 10 : 0);
        }
}

static void test_adaptive_k_gives_plain_tokens(void)
{
    for (int draft = 0; draft < MASKED_DRAFTS; draft++)
        check((struct masked_way){.policy = SPECBATCH_POLICY_RAGGED,
                                  .batch = 4,
                                  .draft_len = 5,
                                  .draft = (enum masked_draft)draft,
                                  .adaptive = 1},
              10);
}

static void test_prefix_hits_and_preemptions_give_plain_tokens(void)
{
    for (int draft = 0; draft < MASKED_DRAFTS; draft++)
        for (int crowded = 0; crowded < 2; crowded++)
            check((struct masked_way){.policy = crowded ? SPECBATCH_POLICY_RAGGED
                                                        : SPECBATCH_POLICY_EXSPEC,
                                      .batch = 3,
                                      .draft_len = 4,
                                      .draft = (enum masked_draft)draft,
                                      .prefixes = 1,
                                      .crowded = crowded},
                  10);
}

/* ------------------------------------------------------------------ single requests */

static const struct masked_rule some_ids = {.modulus = 7, .keep = 2},
                                one_id = {.modulus = 7, .period = 1}; /* all is forced */

static uint64_t count(const specbatch_pool *pool, const char *name)
{
    uint64_t value = UINT64_MAX;

    specbatch_pool_stat(pool, name, &value);
    return value;
}

/* A pool of the draft model; K = 0: without one. */
static specbatch_pool *pool_of(specbatch_model *model, int32_t batch, int32_t k)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;

    options.batch = batch;
    options.draft_len = k > 0 ? k : -1;
    options.max_len = 100;
    options.n_threads = 1;
    options.flags = SPECBATCH_POOL_FIXED_K;
    if (specbatch_pool_create(&pool, model, k > 0 ? masked_draft_model() : NULL, &options))
        printf("     %s\n", specbatch_last_error());
    return pool;
}

/* A request with the prompt of job i and this mask. */
static specbatch_request request_of(int32_t i, const specbatch_mask *mask, int32_t max_new)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = masked_jobs()[i].prompt;
    request.n_ids = MASKED_PROMPT;
    request.max_new = max_new;
    request.user = &masked_jobs()[i];
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    request.mask = mask;
    return request;
}

static specbatch_mask mask_of(struct masked_rule *rule)
{
    specbatch_mask mask = SPECBATCH_MASK_INIT;

    mask.allow = masked_allow;
    mask.user = rule;
    return mask;
}

static int32_t submit(specbatch_pool *pool, int32_t i, struct masked_rule *rule, int32_t max_new)
{
    const specbatch_mask mask = mask_of(rule);
    const specbatch_request request = request_of(i, &mask, max_new);

    return specbatch_pool_submit(pool, &request, NULL);
}

/* The next result, which the caller frees. */
static specbatch_result *collect(specbatch_pool *pool)
{
    specbatch_result *result = NULL;

    specbatch_pool_collect(pool, &result);
    return result;
}

/* Four rows of one function and user are one call where plain decoding asks once a round. With
 * proposals they are two: before the draft prepares, and when it has proposed. Rows with another
 * user have calls of their own. */
static void test_a_round_asks_for_all_rows_at_once(void)
{
    for (int32_t k = 0; k < 4; k += 3)
        for (int apart = 0; apart < 2; apart++) {
            struct masked_rule rules[2] = {some_ids, some_ids};
            specbatch_pool *pool = pool_of(masked_target(), 4, k);
            size_t active = 4;
            CHECK(pool != NULL);
            for (int32_t i = 0; i < 4; i++)
                CHECK_OK(submit(pool, i, &rules[apart && i % 2], 21));
            while (active == 4) {
                const uint64_t drafted = count(pool, "tokens_drafted"),
                               decoded = count(pool, "decode_rows");
                rules[0].n_calls = rules[0].n_positions = rules[1].n_calls = 0;
                rules[1].n_positions = 0;
                CHECK_OK(specbatch_pool_step(pool, &active));
                CHECK(rules[0].n_calls <= (k > 0 ? 2 : 1));
                CHECK(rules[1].n_calls <= (apart ? k > 0 ? 2 : 1 : 0));
                /* Nothing is asked behind a first proposal that a mask forbids. */
                CHECK(rules[0].n_positions + rules[1].n_positions <=
                      (int32_t)(count(pool, "decode_rows") - decoded +
                                count(pool, "tokens_drafted") - drafted));
                CHECK(rules[0].n_positions + rules[1].n_positions >=
                      (int32_t)(count(pool, "decode_rows") - decoded));
            }
            CHECK_INT(rules[0].n_odd + rules[1].n_odd, 0);
            specbatch_pool_free(pool);
        }
}

static void test_what_a_mask_alone_allows_is_not_drafted(void)
{
    struct masked_rule rule = one_id;
    specbatch_pool *pool = pool_of(masked_target(), 2, 4);

    CHECK(pool != NULL);
    CHECK_OK(submit(pool, 0, &rule, 21));
    CHECK_OK(specbatch_pool_run(pool));
    CHECK_INT(count(pool, "tokens_committed"), 21);
    CHECK_INT(count(pool, "tokens_forced"), 16); /* the others are first tokens of rounds */
    CHECK_INT(count(pool, "tokens_accepted"), 16);
    CHECK_INT(count(pool, "draft_passes"), 0);
    CHECK_INT(count(pool, "decode_rounds"), 5);
    specbatch_pool_free(pool);
}

/* The draft model gives the sequence up at the first place where its mask leaves a choice, as it
 * cannot read the prompt. The forced stretches behind that are proposed all the same. */
static void test_a_mask_proposes_where_no_draft_can(void)
{
    struct masked_rule rule = {.modulus = 7, .keep = 3, .period = 6, .free = 2};
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_model *small = NULL;
    specbatch_pool *pool = NULL;

    options.draft_len = 4;
    options.flags = SPECBATCH_POOL_FIXED_K;
    CHECK_OK(specbatch_model_open(&small, DRAFT, NULL));
    CHECK_OK(create_with_model(&pool, masked_target(), small, &options));
    small->config.vocab = 1;
    CHECK_OK(submit(pool, 0, &rule, 24));
    CHECK_OK(specbatch_pool_run(pool));
    small->config.vocab = MASKED_VOCAB;
    CHECK_INT(count(pool, "draft_passes"), 0);
    CHECK_INT(count(pool, "tokens_committed"), 24);
    CHECK_INT(count(pool, "tokens_forced"), 15); /* 4 of each 6, less the last token */
    specbatch_pool_free(pool);
    specbatch_model_close(small);
}

/* What is left of a round that a mask has cancelled: the round is repeated as if it had never been,
 * also by a draft model whose passes had run. All requests are in every round, so that the rounds
 * are the same too. */
static void test_a_cancelled_round_can_be_repeated(void)
{
    static const char *const names[] = {"tokens_drafted", "tokens_accepted", "rounds"};
    struct masked_rule *rules[] = {masked_jobs()[1].rule, masked_jobs()[5].rule};
    uint64_t expected[3], values[3];
    struct masked_way way = {.policy = SPECBATCH_POLICY_RAGGED,
                             .batch = MASKED_JOBS,
                             .draft_len = 3,
                             .draft = MASKED_MODEL,
                             .names = names,
                             .values = expected,
                             .n_counters = 3};
    char why[600];

    if (masked_run(&way, why, sizeof why))
        FAIL("%s", why);
    way.values = values;
    for (int at = 1; at < 40; at++) {
        for (int i = 0; i < 2; i++) {
            rules[i]->n_calls = 0;
            rules[i]->cancel_at = at + i;
        }
        if (masked_run(&way, why, sizeof why))
            FAIL("call %d: %s", at, why);
        CHECK_MEM(values, expected, sizeof values);
    }
    rules[0]->cancel_at = rules[1]->cancel_at = 0;
}

static void test_a_cancelled_step_says_so(void)
{
    struct masked_rule rule = some_ids;
    specbatch_pool *pool = pool_of(masked_target(), 2, 3);

    CHECK(pool != NULL);
    rule.cancel_at = 2;
    CHECK_OK(submit(pool, 0, &rule, 21));
    CHECK_ERROR(specbatch_pool_run(pool), SPECBATCH_E_CANCELLED, "request 1: its mask returned 7");
    CHECK_OK(pool_check(pool));
    CHECK_OK(specbatch_pool_run(pool));
    specbatch_pool_free(pool);
}

/* ------------------------------------------------------------------ ends */

/* Allows what job 0 has, and nothing behind anything else. */
static int32_t allow_one_text(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    const struct masked_job *job = user;

    for (size_t i = 0; i < n_rows; i++) {
        const size_t n = rows[i]->n_tokens - rows[i]->n_prompt;
        if (memcmp(rows[i]->tokens + rows[i]->n_prompt, job->tokens, n * sizeof *job->tokens) != 0)
            memset(rows[i]->allowed, 0, rows[i]->n_words * sizeof *rows[i]->allowed);
    }
    return 0;
}

/* Job 0 has no mask of its own. Its draft model is often wrong, and behind what is wrong nothing is
 * allowed: which ends nothing, as no such position becomes the request's. */
static void test_a_dead_end_behind_a_rejected_proposal_ends_nothing(void)
{
    const struct masked_job *job = &masked_jobs()[0];
    const specbatch_mask mask = {sizeof mask, allow_one_text, (void *)job};
    const specbatch_request request = request_of(0, &mask, (int32_t)job->n_tokens);
    specbatch_pool *pool = pool_of(masked_target(), 2, 4);
    specbatch_result *result;
    size_t n;

    CHECK(pool != NULL);
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(specbatch_pool_run(pool));
    result = collect(pool);
    CHECK(count(pool, "tokens_accepted") < count(pool, "tokens_drafted"));
    CHECK_INT(specbatch_result_finish(result), SPECBATCH_FINISH_LENGTH);
    CHECK_MEM(specbatch_result_tokens(result, &n), job->tokens, job->n_tokens * sizeof(int32_t));
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

/* Allows the end only. */
static int32_t allow_end(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t i = 0; i < n_rows; i++) {
        memset(rows[i]->allowed, 0, rows[i]->n_words * sizeof *rows[i]->allowed);
        rows[i]->allowed[0] = 4; /* id 2 */
    }
    return 0;
}

static void test_an_end_that_is_banned_is_no_choice(void)
{
    const specbatch_mask mask = {sizeof mask, allow_end, NULL};

    for (int32_t min_new = 0; min_new < 3; min_new += 2)
        for (int32_t k = 0; k < 4; k += 3) {
            specbatch_request request = request_of(0, &mask, 21);
            specbatch_pool *pool = pool_of(masked_target(), 2, k);
            specbatch_result *result;
            size_t n;
            request.flags = 0;
            request.min_new = min_new;
            CHECK(pool != NULL);
            CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
            CHECK_OK(specbatch_pool_run(pool));
            result = collect(pool);
            specbatch_result_tokens(result, &n);
            CHECK_INT(n, min_new == 0);
            CHECK_INT(specbatch_result_finish(result),
                      min_new ? SPECBATCH_FINISH_ERROR : SPECBATCH_FINISH_EOS);
            CHECK_INT(specbatch_result_status(result), min_new ? SPECBATCH_E_NO_CHOICE : 0);
            CHECK_INT(count(pool, "tokens_forced"), 0);
            specbatch_result_free(result);
            specbatch_pool_free(pool);
        }
}

/* ------------------------------------------------------------------ ids without a token */

/* Notes which ids have a token, and then allows all bits that there are. */
static int32_t allow_all_bits(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    for (size_t i = 0; i < n_rows; i++) {
        const size_t bytes = rows[i]->n_words * sizeof *rows[i]->allowed;
        memcpy(user, rows[i]->allowed, bytes);
        memset(rows[i]->allowed, 0xff, bytes);
    }
    return 0;
}

/* A tokenizer of fewer tokens than the model has embeddings. An id without a token is never chosen
 * under a mask, not even if a bias asks for it. */
static void test_an_id_without_a_token_is_never_allowed(void)
{
    static const int32_t last = MASKED_VOCAB - 1;
    static const float much = 1e6f;
    const struct test_dir dir = test_dir_make();
    uint32_t seen[(MASKED_VOCAB + 31) / 32];
    const specbatch_mask mask = {sizeof mask, allow_all_bits, seen};
    specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;
    specbatch_request request = request_of(0, &mask, 4);
    specbatch_model *model = NULL;
    specbatch_pool *pool;
    specbatch_result *result;
    size_t n, n_with_token = 0;
    char buffer[64];

    test_copy(&dir, "test/data/models/llama_mha_f16", NULL);
    test_copy(&dir, "test/data/tokenizers/gpt2", NULL);
    CHECK_OK(specbatch_model_open(&model, dir.path, NULL));
    test_dir_remove(&dir);
    sampling.bias_ids = &last;
    sampling.bias = &much;
    sampling.n_bias = 1;
    request.sampling = &sampling;
    pool = pool_of(model, 1, 0);
    CHECK(pool != NULL);
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(specbatch_pool_run(pool));
    result = collect(pool);
    const int32_t *tokens = specbatch_result_tokens(result, &n);
    CHECK_INT(n, 4);
    for (size_t i = 0; i < n; i++)
        CHECK(tokens[i] != last && seen[tokens[i] / 32] >> tokens[i] % 32 & 1);
    for (int32_t id = 0; id < 32 * (int32_t)(sizeof seen / sizeof *seen); id++) {
        const int has = specbatch_token_text(model, id, buffer, sizeof buffer, &n) == SPECBATCH_OK;
        CHECK_INT(seen[id / 32] >> id % 32 & 1, has);
        n_with_token += (size_t)has;
    }
    CHECK(n_with_token > 100 && n_with_token < MASKED_VOCAB - 1);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
    specbatch_model_close(model);
}

/* ------------------------------------------------------------------ submissions */

static void test_bad_masks_are_refused(void)
{
    struct masked_rule rule = some_ids;
    specbatch_pool *pool = pool_of(masked_target(), 2, 3);
    specbatch_mask mask = mask_of(&rule);
    const specbatch_request request = request_of(0, &mask, 4);
    struct {
        specbatch_mask mask;
        uint64_t more;
    } newer = {mask_of(&rule), 1};

    CHECK(pool != NULL);
    mask.allow = NULL;
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_INVALID,
                "request: mask: allow is NULL");
    mask = mask_of(&rule);
    mask.struct_size = 0;
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_INVALID, "request: mask");
    newer.mask.struct_size = sizeof newer;
    const specbatch_request of_newer = request_of(0, &newer.mask, 4);
    CHECK_ERROR(specbatch_pool_submit(pool, &of_newer, NULL), SPECBATCH_E_OPTIONS, "request: mask");
    newer.more = 0;
    CHECK_OK(specbatch_pool_submit(pool, &of_newer, NULL));
    CHECK_OK(specbatch_pool_run(pool));
    specbatch_pool_free(pool);
}

/* The audit replays a request with its mask. */
static void test_an_audit_asks_the_mask(void)
{
    struct masked_rule rule = some_ids, other = {.modulus = 5, .keep = 1};
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    specbatch_mask mask = mask_of(&rule);
    const specbatch_request request = request_of(0, &mask, 12);
    specbatch_pool *pool = pool_of(masked_target(), 2, 3);
    specbatch_result *result;

    CHECK(pool != NULL);
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(specbatch_pool_run(pool));
    result = collect(pool);
    CHECK_OK(specbatch_audit(masked_target(), NULL, &request, result, &report));
    CHECK(report.equal && report.n_tokens == 12);
    mask = mask_of(&other);
    CHECK_OK(specbatch_audit(masked_target(), NULL, &request, result, &report));
    CHECK(!report.equal);
    other.cancel_at = other.n_calls + 1;
    CHECK_ERROR(specbatch_audit(masked_target(), NULL, &request, result, &report),
                SPECBATCH_E_CANCELLED, "its mask returned");
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

TEST_BEGIN
if (masked_open() != 0) {
    printf("FAIL the models do not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_plain_tokens_are_allowed_and_ends_are_as_they_must_be);
RUN(test_every_policy_and_draft_gives_plain_tokens);
RUN(test_adaptive_k_gives_plain_tokens);
RUN(test_prefix_hits_and_preemptions_give_plain_tokens);
RUN(test_a_round_asks_for_all_rows_at_once);
RUN(test_what_a_mask_alone_allows_is_not_drafted);
RUN(test_a_mask_proposes_where_no_draft_can);
RUN(test_a_cancelled_round_can_be_repeated);
RUN(test_a_cancelled_step_says_so);
RUN(test_a_dead_end_behind_a_rejected_proposal_ends_nothing);
RUN(test_an_end_that_is_banned_is_no_choice);
RUN(test_an_id_without_a_token_is_never_allowed);
RUN(test_bad_masks_are_refused);
RUN(test_an_audit_asks_the_mask);
masked_close();
TEST_END
