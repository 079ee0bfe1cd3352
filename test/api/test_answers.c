/*
 * Several answers to one prompt: they are those of requests of their own, the prompt is computed
 * once, and it stays so whoever is cancelled, late or preempted; best_of; and what is refused.
 */
#include "sbtest.h"
#include "support/answers_check.h"
#include "support/failalloc.h"
#include "support/pool_check.h"
#include "support/prefix_pool.h"

enum { LONG = 100, BIG_CHUNK = 128 };

static struct answers_plain plain; /* of the long prompt, sampled */
static specbatch_sampling sampling;
static int32_t ids[LONGEST];

static specbatch_request request_for(int32_t n_prompt)
{
    write_text(ids, 0, n_prompt);
    return answers_request(ids, (size_t)n_prompt, &sampling);
}

static specbatch_pool *pool_of(int32_t policy, specbatch_draft *with, int32_t batch, uint32_t flags)
{
    specbatch_pool_options options = small_options(policy);
    specbatch_pool *pool = NULL;

    options.batch = batch;
    options.max_len = 300;
    options.prefill_chunk = CHUNK;
    options.flags |= flags;
    return specbatch_pool_create(&pool, target, with, &options) ? NULL : pool;
}

/* Submits n answers, of which best_of are made. Returns the id of the first, or 0. */
static uint64_t ask_for(specbatch_pool *pool, const specbatch_request *one, int32_t n,
                        int32_t best_of)
{
    specbatch_answers answers = SPECBATCH_ANSWERS_INIT;
    specbatch_request request = *one;
    uint64_t id;

    answers.n = n;
    answers.best_of = best_of;
    request.answers = &answers;
    return specbatch_pool_submit(pool, &request, &id) == SPECBATCH_OK ? id : 0;
}

static int32_t run_checked(specbatch_pool *pool)
{
    size_t active = 1;
    int32_t rc = SPECBATCH_OK;

    while (active > 0 && rc == SPECBATCH_OK) {
        rc = specbatch_pool_step(pool, &active);
        if (rc == SPECBATCH_OK)
            rc = pool_check(pool);
    }
    return rc;
}

/* Collects everything: n results, which are as they are to be. */
static void check_results(specbatch_pool *pool, int n)
{
    specbatch_result *result;
    char why[300] = "";
    int n_got = 0;

    while ((result = take(pool)) != NULL) {
        const int differs = answers_result_differs(&plain, result, why, sizeof why);
        specbatch_result_free(result);
        if (differs)
            FAIL("%s", why);
        n_got++;
    }
    CHECK_INT(n_got, n);
}

/* --------------------------------------------------------------------- tokens */

static void check_answers(specbatch_pool *pool, const specbatch_request *request, int32_t n)
{
    char why[300] = "";

    CHECK(pool);
    if (answers_differ(&plain, pool, request, n, 1, why, sizeof why))
        FAIL("%s, batch %d, %d answers: %s", specbatch_policy_name(pool->options.policy),
             pool->options.batch, n, why);
}

/* In pools of any policy, batch and draft; the longest prompt takes three chunks. */
static void test_answers_are_those_of_requests_of_their_own(void)
{
    static const int32_t prompts[] = {1, 2, CHUNK + 1, LONG};
    specbatch_draft *ngrams = NULL;

    CHECK_OK(specbatch_draft_from_ngrams(&ngrams, NULL));
    for (int i = 0; i < 4; i++) {
        specbatch_draft *const drafts[] = {NULL, draft, ngrams};
        const specbatch_request request = request_for(prompts[i]);
        CHECK_INT(answers_ask(&plain, target, &request, ANSWERS_MAX), 0);
        CHECK(memcmp(plain.tokens[0], plain.tokens[1], sizeof plain.tokens[0]) != 0);
        for (int32_t policy = 0; policy < specbatch_policy_count(); policy++)
            for (int d = 0; d < 3; d++)
                for (int32_t batch = 1; batch <= 8; batch += 1 + batch) {
                    specbatch_pool *pool = pool_of(policy, drafts[d], batch,
                                                   d == 1 ? SPECBATCH_POOL_EQSPEC_REPLACE : 0);
                    check_answers(pool, &request, d == 2 ? 3 : ANSWERS_MAX);
                    specbatch_pool_free(pool);
                    if (sbtest_failed_now)
                        return;
                }
    }
    specbatch_draft_release(ngrams);
}

/* Spans are a matter of the prompt's length, which siblings have in common. */
static void check_spans(void)
{
    const specbatch_request request = request_for(LONG);

    CHECK_INT(answers_ask(&plain, target, &request, ANSWERS_MAX), 0);
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++)
        for (uint32_t grow = 0; grow < 2; grow++) {
            specbatch_pool *pool = pool_of(policy, draft, 3, grow * SPECBATCH_POOL_GROW_SLOTS);
            check_answers(pool, &request, ANSWERS_MAX);
            specbatch_pool_free(pool);
            if (sbtest_failed_now)
                return;
        }
}

static void test_answers_share_spans(void)
{
    with_spans(64, check_spans);
}

static void test_the_audit_knows_which_answer_it_is(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_request request = request_for(N_PROMPT);
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result;

    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    CHECK(ask_for(pool, &request, 2, 4));
    CHECK_OK(run_to_end(pool));
    while ((result = take(pool)) != NULL) {
        CHECK_OK(specbatch_audit(target, &options, &request, result, &report));
        specbatch_result_free(result);
        CHECK(report.equal && report.n_tokens > 0);
    }
    specbatch_pool_free(pool);
}

/* ------------------------------------------------------------------ the prompt */

/* All begin together: one computes the prompt, and the others follow. */
static void test_a_prompt_is_computed_once(void)
{
    const specbatch_request request = request_for(LONG);

    CHECK_INT(answers_ask(&plain, target, &request, ANSWERS_MAX), 0);
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++) {
        specbatch_pool *pool = pool_of(policy, draft, ANSWERS_MAX, 0);
        check_answers(pool, &request, ANSWERS_MAX);
        CHECK_INT(stat(pool, "prefill_tokens"), LONG - 1);
        CHECK_INT(stat(pool, "shared_prompts"), ANSWERS_MAX - 1);
        CHECK_INT(stat(pool, "shared_tokens"), (ANSWERS_MAX - 1) * (LONG - 1));
        specbatch_pool_free(pool);
    }
}

/* Three slots for eight answers: whoever comes later has the columns of one that is still there. A
 * slot is free now and then when nobody is, but not in this pool. */
static void test_answers_that_come_later_copy_the_prompt(void)
{
    const specbatch_request request = request_for(LONG);
    specbatch_pool *pool = pool_of(SPECBATCH_POLICY_RAGGED, draft, 2, 0);

    CHECK_INT(answers_ask(&plain, target, &request, ANSWERS_MAX), 0);
    check_answers(pool, &request, ANSWERS_MAX);
    CHECK_INT(stat(pool, "prefill_tokens"), LONG - 1);
    CHECK_INT(stat(pool, "shared_prompts"), ANSWERS_MAX - 1);
    specbatch_pool_free(pool);
}

/* One slot: nobody is there when the next answer gets it. What the prefix cache kept is not
 * computed again; without it the prompt is. */
static void test_answers_one_after_the_other_use_the_prefix_cache(void)
{
    const specbatch_request request = request_for(LONG);

    CHECK_INT(answers_ask(&plain, target, &request, ANSWERS_MAX), 0);
    for (int32_t blocks = 0; blocks <= 64; blocks += 64) {
        specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
        specbatch_pool *pool = NULL;
        options.batch = 1;
        options.max_len = 300;
        options.prefix_bytes = (uint64_t)blocks * block_bytes(draft);
        CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
        check_answers(pool, &request, 3);
        CHECK_INT(stat(pool, "shared_prompts"), 0);
        CHECK_INT(stat(pool, "prefix_hits"), blocks ? 2 : 0);
        CHECK_INT(stat(pool, "prefill_tokens"), 3 * (LONG - 1) - (blocks ? 2 * 96 : 0));
        specbatch_pool_free(pool);
    }
}

/* With kept blocks each answer gets those, and copies only the rest. */
static void test_a_hit_and_a_sibling_give_a_prompt_together(void)
{
    const specbatch_request request = request_for(LONG);
    specbatch_pool *pool = create(SPECBATCH_POLICY_RAGGED, 0, draft, 64);

    CHECK_INT(answers_ask(&plain, target, &request, ANSWERS_MAX), 0);
    check_answers(pool, &request, 2);
    CHECK_INT(stat(pool, "shared_tokens"), LONG - 1);
    check_answers(pool, &request, 3);
    CHECK_INT(stat(pool, "prefill_tokens"), LONG - 1 + (LONG - 1 - 96));
    CHECK_INT(stat(pool, "shared_tokens"), LONG - 1 + 2 * (LONG - 1 - 96));
    specbatch_pool_free(pool);
}

/* ------------------------------------------------- who fills the prompt ends */

/* After a chunk, one of four ends: the one that fills or one that follows, by cancelling or by its
 * deadline. What was computed is handed on, so the rest is computed once. */
static void check_loss(int32_t policy, uint64_t lost, int late)
{
    specbatch_pool *pool = pool_of(policy, draft, 4, 0);
    specbatch_request request = request_for(LONG);
    specbatch_request_state state = SPECBATCH_REQUEST_STATE_INIT;

    CHECK(pool);
    request.deadline_ns = UINT64_MAX;
    CHECK_INT(ask_for(pool, &request, 4, 0), 1);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(pool_check(pool));
    for (uint64_t id = 1; id <= 4; id++) {
        CHECK_OK(specbatch_pool_state(pool, id, &state));
        CHECK_INT(state.state, SPECBATCH_STATE_FILLING);
        CHECK_INT(state.n_filled, id == 1 ? CHUNK : 0);
    }
    if (late)
        expire(pool, lost);
    else
        CHECK_OK(specbatch_pool_cancel(pool, lost));
    CHECK_OK(pool_check(pool));
    CHECK_OK(run_checked(pool));
    CHECK_INT(stat(pool, "prefill_tokens"), LONG - 1);
    CHECK_INT(stat(pool, "shared_tokens"), 2 * (LONG - 1) + (lost == 1 ? CHUNK : 0));
    check_results(pool, 4);
    specbatch_pool_free(pool);
}

static void test_another_takes_over_when_the_one_that_fills_ends(void)
{
    const specbatch_request request = request_for(LONG);

    CHECK_INT(answers_ask(&plain, target, &request, ANSWERS_MAX), 0);
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++)
        for (uint64_t lost = 1; lost <= 4; lost++)
            for (int late = 0; late < 2 && !sbtest_failed_now; late++)
                check_loss(policy, lost, late);
}

/* All answers are cancelled one by one; then the pool is as if they had never been. */
static void test_all_can_be_cancelled(void)
{
    const specbatch_request request = request_for(LONG);

    for (int rounds = 0; rounds < 6; rounds++) {
        specbatch_pool *pool = pool_of(SPECBATCH_POLICY_RAGGED, draft, 4, 0);
        CHECK(pool);
        CHECK_INT(ask_for(pool, &request, 6, 0), 1);
        for (int i = 0; i < rounds; i++)
            CHECK_OK(specbatch_pool_step(pool, NULL));
        for (uint64_t id = 1; id <= 6; id++) {
            CHECK_OK(specbatch_pool_cancel(pool, id));
            CHECK_OK(pool_check(pool));
        }
        CHECK_INT(pool->n_active, 0);
        specbatch_pool_free(pool);
    }
}

/* Eight answers of four lengths of prompts in a cache that holds a few of them, each of which grows
 * out of its slot. */
static void test_preempted_answers_share_again(void)
{
    uint64_t preemptions = 0, shared = 0;

    for (int32_t n_prompt = 20; n_prompt <= LONG; n_prompt += 10) {
        specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
        const specbatch_request request = request_for(n_prompt);
        specbatch_pool *pool = NULL;
        options.batch = 8;
        options.prefill_chunk = 8;
        options.cache_columns = 320;
        options.flags |= SPECBATCH_POOL_GROW_SLOTS;
        CHECK_INT(answers_ask(&plain, target, &request, ANSWERS_MAX), 0);
        CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
        check_answers(pool, &request, ANSWERS_MAX);
        preemptions += stat(pool, "preemptions");
        shared += stat(pool, "shared_prompts");
        specbatch_pool_free(pool);
    }
    printf("     %" PRIu64 " preemptions, %" PRIu64 " prompts shared\n", preemptions, shared);
    CHECK(preemptions > 10 && shared > 60);
}

/* Rows of higher priority take the slots of those that follow, and then of the one that fills. */
static void test_who_fills_is_preempted(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_request request, other = small_request(100);
    specbatch_pool *pool = NULL;
    specbatch_result *result;
    uint64_t id = 0;
    char why[300] = "";
    int n_lost = 0;

    other.priority = 1;
    request = request_for(60);
    CHECK_INT(answers_ask(&plain, target, &request, ANSWERS_MAX), 0);
    options.batch = 8;
    options.prefill_chunk = 1;
    options.cache_columns = 320;
    options.flags |= SPECBATCH_POOL_GROW_SLOTS;
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    for (int i = 0; i < 2; i++)
        CHECK_OK(specbatch_pool_submit(pool, &other, &id));
    CHECK_INT(ask_for(pool, &request, 3, 0), id + 1);
    while (pool->n_active > 0) {
        const struct sb_seq *first = sb_idmap_find(&pool->by_id, id + 1);
        const int fills = first && first->slot >= 0 && first->kv_len < first->n_prompt - 1;
        CHECK_OK(specbatch_pool_step(pool, NULL));
        CHECK_OK(pool_check(pool));
        n_lost += fills && first->slot < 0;
    }
    CHECK(n_lost > 0);
    while ((result = take(pool)) != NULL) {
        if (specbatch_result_id(result) > id)
            CHECK_INT(answers_result_differs(&plain, result, why, sizeof why), 0);
        specbatch_result_free(result);
    }
    specbatch_pool_free(pool);
}

/* ------------------------------------------------------------------- best of */

static double mean_of(int i)
{
    double sum = 0.0;

    for (size_t t = 0; t < plain.n[i]; t++)
        sum += (double)plain.logprobs[i][t];
    return sum / (double)plain.n[i];
}

/* The answers from the best to the worst. */
static void rank(int order[ANSWERS_MAX])
{
    for (int i = 0; i < ANSWERS_MAX; i++) {
        int at = i;
        for (; at > 0 && mean_of(order[at - 1]) < mean_of(i); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static void check_best(specbatch_pool *pool, const specbatch_request *request, int32_t n)
{
    specbatch_request_state state = SPECBATCH_REQUEST_STATE_INIT;
    specbatch_event event = SPECBATCH_EVENT_INIT;
    specbatch_result *result;
    const uint64_t first = ask_for(pool, request, n, ANSWERS_MAX);
    int order[ANSWERS_MAX];
    size_t active = 1, got;
    uint64_t total;
    char why[300] = "";

    CHECK(first);
    rank(order);
    while (active > 0) {
        CHECK_OK(specbatch_pool_step(pool, &active));
        CHECK_OK(pool_check(pool));
        for (uint64_t id = first; active > 0 && id < first + ANSWERS_MAX; id++) {
            CHECK_OK(specbatch_pool_poll(pool, id, NULL, 0, &got));
            CHECK_INT(got, 0);
            CHECK_OK(specbatch_pool_state(pool, id, &state));
            CHECK_INT(state.finish, 0);
            CHECK_INT(state.n_generated, 0);
            CHECK_INT(state.time_first_token_ns, 0);
            total = state.time_total_ns;
            CHECK_OK(specbatch_pool_state(pool, id, &state));
            CHECK(state.time_total_ns > total); /* also of one that has ended and is held back */
        }
        if (active > 0)
            CHECK_INT(specbatch_pool_next_event(pool, &event), SPECBATCH_E_EMPTY);
    }
    for (int i = 0; i < n; i++) {
        CHECK_OK(specbatch_pool_next_event(pool, &event));
        CHECK_INT(event.id, first + (uint64_t)order[i]);
        CHECK_INT(event.n_ids, plain.n[order[i]]);
    }
    CHECK_INT(specbatch_pool_next_event(pool, &event), SPECBATCH_E_EMPTY);
    for (int i = 0; i < ANSWERS_MAX; i++)
        CHECK_INT(specbatch_pool_state(pool, first + (uint64_t)order[i], &state),
                  i < n ? SPECBATCH_OK : SPECBATCH_E_NOT_FOUND);
    for (int i = 0; i < n; i++) {
        CHECK((result = take(pool)) != NULL);
        CHECK_INT(specbatch_result_answer(result), order[i]);
        CHECK_INT(specbatch_result_id(result), first + (uint64_t)order[i]);
        CHECK_INT(answers_result_differs(&plain, result, why, sizeof why), 0);
        CHECK(!specbatch_result_logprobs(result, NULL) ==
              !(request->flags & SPECBATCH_REQUEST_LOGPROBS));
        specbatch_result_free(result);
    }
    CHECK(!take(pool));
    CHECK_INT(stat(pool, "request_bytes"), 0);
}

static void test_the_best_are_handed_out_and_no_others(void)
{
    specbatch_request request = request_for(LONG);

    CHECK_INT(answers_ask(&plain, target, &request, ANSWERS_MAX), 0);
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++)
        for (int32_t n = 1; n < ANSWERS_MAX && !sbtest_failed_now; n += 3) {
            specbatch_pool *pool = pool_of(policy, draft, n == 1 ? 2 : 8, 0);
            CHECK(pool);
            request.flags ^= SPECBATCH_REQUEST_LOGPROBS;
            check_best(pool, &request, n);
            specbatch_pool_free(pool);
        }
}

/* Those that were cancelled come last, the lower number first, whatever their tokens are. The last
 * one to end decides, also if it ends by being cancelled. */
static void test_cancelled_answers_are_the_worst(void)
{
    specbatch_pool *pool = pool_of(SPECBATCH_POLICY_RAGGED, draft, 4, 0);
    const specbatch_request request = request_for(N_PROMPT);
    specbatch_result *result;
    size_t active;

    CHECK(pool);
    CHECK_INT(ask_for(pool, &request, 3, 4), 1);
    for (int i = 0; i < 2; i++)
        CHECK_OK(specbatch_pool_step(pool, NULL));
    for (uint64_t id = 4; id > 1; id--) {
        CHECK_OK(specbatch_pool_cancel(pool, id));
        CHECK_INT(specbatch_pool_cancel(pool, id), SPECBATCH_E_NOT_FOUND);
        CHECK(!take(pool));
    }
    do
        CHECK_OK(specbatch_pool_step(pool, &active));
    while (active > 0);
    for (int32_t i = 0; i < 3; i++) {
        CHECK((result = take(pool)) != NULL);
        CHECK_INT(specbatch_result_answer(result), i);
        CHECK_INT(specbatch_result_finish(result) == SPECBATCH_FINISH_CANCELLED, i > 0);
        specbatch_result_free(result);
    }
    CHECK_INT(ask_for(pool, &request, 1, 2), 5);
    CHECK_OK(specbatch_pool_cancel(pool, 5));
    CHECK_OK(specbatch_pool_cancel(pool, 6));
    CHECK((result = take(pool)) != NULL);
    CHECK_INT(specbatch_result_id(result), 5);
    specbatch_result_free(result);
    CHECK(!take(pool));
    CHECK_INT(ask_for(pool, &request, 1, 2), 7); /* a pool that is freed before they are chosen */
    CHECK_OK(specbatch_pool_cancel(pool, 8));
    specbatch_pool_free(pool);
}

/* ------------------------------------------------------------------ refusals */

static void test_bad_values_are_refused_by_name(void)
{
    static const struct {
        int32_t n, best_of;
        const char *why;
    } bad[] = {{0, 0, "answers: n is 0"},         {-1, 0, "answers: n is -1"},
               {1025, 0, "answers: n is 1025"},   {4, 3, "answers: best_of is 3"},
               {4, -1, "answers: best_of is -1"}, {4, 1025, "answers: best_of is 1025"}};
    specbatch_pool *pool = pool_of(SPECBATCH_POLICY_RAGGED, NULL, 2, 0);
    const specbatch_request one = request_for(N_PROMPT);
    specbatch_answers answers = SPECBATCH_ANSWERS_INIT;
    specbatch_request request = one;

    CHECK(pool);
    request.answers = &answers;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        answers.n = bad[i].n;
        answers.best_of = bad[i].best_of;
        CHECK_INT(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_INVALID);
        CHECK(strstr(specbatch_last_error(), bad[i].why));
    }
    answers = (specbatch_answers){.n = 1};
    CHECK_INT(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_INVALID);
    CHECK_INT(pool->n_active, 0);
    CHECK_INT(ask_for(pool, &one, 1024, 1024), 1); /* and the next number is 1025 */
    CHECK_INT(ask_for(pool, &one, 1, 0), 1025);
    specbatch_pool_free(pool);
}

static void test_all_of_them_must_fit_in_the_queue(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_request request = request_for(N_PROMPT);
    specbatch_answers answers = SPECBATCH_ANSWERS_INIT;
    specbatch_request several = request;
    specbatch_pool *pool = NULL;

    options.queue_max = 4;
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    answers.best_of = 5;
    several.answers = &answers;
    CHECK_INT(specbatch_pool_submit(pool, &several, NULL), SPECBATCH_E_QUEUE_FULL);
    CHECK(strstr(specbatch_last_error(), "queue_max 4"));
    CHECK_INT(pool->n_active, 0);
    CHECK_INT(ask_for(pool, &request, 1, 4), 1);
    CHECK_INT(ask_for(pool, &request, 1, 0), 0);
    specbatch_pool_free(pool);
}

/* Each allocation of a submission fails in turn: nothing of it is left. The steps take no memory,
 * also the last one, which chooses the best. */
static void test_all_or_nothing(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_request request = request_for(N_PROMPT);
    static struct failalloc memory;
    specbatch_pool *pool = NULL;
    long failed = 0, held;

    options.alloc = failalloc_alloc;
    options.free = failalloc_free;
    options.alloc_user = &memory;
    failalloc_arm(&memory, 0, 0);
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    for (long at = 1;; at++) {
        const size_t capacity = pool->queue.capacity, buckets = pool->by_id.n_buckets;
        held = atomic_load(&memory.outstanding);
        failalloc_arm(&memory, at, 0);
        if (ask_for(pool, &request, 70, 80))
            break;
        failed++;
        CHECK_INT(pool->n_active + pool->queue.n + pool->by_id.n, 0);
        CHECK_INT(pool->last_id, 0);
        CHECK_INT(stat(pool, "request_bytes"), 0);
        if (pool->queue.capacity == capacity && pool->by_id.n_buckets == buckets &&
            !pool->round.samplers.bytes)
            CHECK_INT(atomic_load(&memory.outstanding), held);
    }
    CHECK(failed > 4 * 80);
    failalloc_arm(&memory, 0, 0);
    CHECK_INT(pool->n_active, 80);
    CHECK_OK(run_checked(pool));
    CHECK_INT(atomic_load(&memory.calls), 0);
    specbatch_pool_free(pool);
    CHECK_INT(atomic_load(&memory.outstanding), 0);
}

TEST_BEGIN
if (open_pair()) {
    printf("FAIL the models do not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_answers_are_those_of_requests_of_their_own);
RUN(test_answers_share_spans);
RUN(test_the_audit_knows_which_answer_it_is);
RUN(test_a_prompt_is_computed_once);
RUN(test_answers_that_come_later_copy_the_prompt);
RUN(test_answers_one_after_the_other_use_the_prefix_cache);
RUN(test_a_hit_and_a_sibling_give_a_prompt_together);
RUN(test_another_takes_over_when_the_one_that_fills_ends);
RUN(test_all_can_be_cancelled);
RUN(test_preempted_answers_share_again);
RUN(test_who_fills_is_preempted);
RUN(test_the_best_are_handed_out_and_no_others);
RUN(test_cancelled_answers_are_the_worst);
RUN(test_bad_values_are_refused_by_name);
RUN(test_all_of_them_must_fit_in_the_queue);
RUN(test_all_or_nothing);
close_pair();
TEST_END
