/* In which order requests are served, by priority and by waiting, and how deadlines end them. The
 * clock of turns is the pool's rounds, and deadlines are set back by hand: no test waits for time.
 */
#include "sbtest.h"
#include "support/pool_check.h"
#include "support/small_pool.h"

enum { MAX_NEW = 24, MANY = 400, PER_POINT = 16 }; /* as the header says */

static specbatch_pool *create(int32_t policy, int32_t batch, uint32_t flags)
{
    specbatch_pool_options options = small_options(policy);
    specbatch_pool *pool = NULL;

    options.batch = options.window = batch;
    options.flags |= flags;
    return specbatch_pool_create(&pool, target, draft, &options) ? NULL : pool;
}

static uint64_t submit(specbatch_pool *pool, int32_t n_prompt, int32_t max_new, int32_t priority)
{
    specbatch_request request = small_request(max_new);
    uint64_t id = 0;

    request.n_ids = (size_t)n_prompt;
    request.priority = priority;
    return specbatch_pool_submit(pool, &request, &id) ? 0 : id;
}

/* The id of the next result; 0: there is none. */
static uint64_t next_id(specbatch_pool *pool)
{
    specbatch_result *result = take(pool);
    const uint64_t id = specbatch_result_id(result);

    specbatch_result_free(result);
    return id;
}

/* -------------------------------------------------------------------- turns */

static void test_higher_priority_comes_first(void)
{
    static const int32_t priorities[] = {0, -1000, 7, 0, 1000, 7};
    static const uint64_t order[] = {5, 3, 6, 1, 4, 2};

    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++) {
        specbatch_pool *pool = create(policy, 1, 0);
        CHECK(pool);
        for (int i = 0; i < 6; i++)
            CHECK_INT(submit(pool, N_PROMPT, 5, priorities[i]), i + 1);
        CHECK_OK(run_to_end(pool));
        for (int i = 0; i < 6; i++)
            CHECK_INT(next_id(pool), order[i]);
        specbatch_pool_free(pool);
    }
}

/* One request comes in every round, has a single token, and so is served in that round unless the
 * first one, which is put back in some way, comes before it. Returns how many are served before. */
static int served_before(specbatch_pool *pool, uint64_t first, int32_t n_prompt, int32_t priority)
{
    int n = 0;

    for (int round = 0; round < MANY; round++) {
        uint64_t id;
        if (!submit(pool, n_prompt, 1, priority) || specbatch_pool_step(pool, NULL))
            return -1;
        while ((id = next_id(pool)) != 0) {
            if (id == first)
                return n;
            n++;
        }
    }
    return MANY;
}

static void test_waiting_makes_up_for_priority(void)
{
    for (int32_t points = 0; points < 4; points++) {
        specbatch_pool *pool = create(SPECBATCH_POLICY_RAGGED, 1, 0);
        const uint64_t low = submit(pool, N_PROMPT, 1, -points);
        CHECK(pool && low);
        CHECK_INT(served_before(pool, low, N_PROMPT, 0), points * PER_POINT);
        specbatch_pool_free(pool);
    }
}

/* A prompt of 7 tokens among prompts of one. */
static void test_waiting_makes_up_for_length(void)
{
    specbatch_pool *pool = create(SPECBATCH_POLICY_RAGGED, 1, SPECBATCH_POOL_SORT_BY_LENGTH);
    const uint64_t longer = submit(pool, N_PROMPT, 1, 0);

    CHECK(pool && longer);
    CHECK_INT(served_before(pool, longer, 1, 0), N_PROMPT - 1);
    specbatch_pool_free(pool);
}

/* Where slots grow, those whose turn comes last make room, be they the oldest. */
static void test_the_last_turn_makes_room(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool = NULL;
    size_t active = 1;

    options.cache_columns = 160;
    options.flags |= SPECBATCH_POOL_GROW_SLOTS;
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    for (int i = 0; i < 4; i++)
        CHECK(submit(pool, N_PROMPT, 128 - N_PROMPT, i));
    while (active > 0) {
        CHECK_OK(specbatch_pool_step(pool, &active));
        CHECK_OK(pool_check(pool));
    }
    CHECK(stat(pool, "preemptions") >= 3);
    for (uint64_t id = 4; id > 0; id--)
        CHECK_INT(next_id(pool), id);
    specbatch_pool_free(pool);
}

static void test_priorities_have_a_range(void)
{
    specbatch_pool *pool = create(SPECBATCH_POLICY_RAGGED, 1, 0);

    CHECK(pool);
    CHECK_INT(submit(pool, N_PROMPT, 1, 1001), 0);
    CHECK(strstr(specbatch_last_error(), "priority is 1001"));
    CHECK_INT(submit(pool, N_PROMPT, 1, -1001), 0);
    CHECK_INT(submit(pool, N_PROMPT, 1, 1000), 1);
    specbatch_pool_free(pool);
}

/* ---------------------------------------------------------------- deadlines */

static uint64_t submit_timed(specbatch_pool *pool, uint64_t deadline_ns)
{
    specbatch_request request = small_request(MAX_NEW);
    uint64_t id = 0;

    request.flags |= SPECBATCH_REQUEST_LOGPROBS;
    request.deadline_ns = deadline_ns;
    return specbatch_pool_submit(pool, &request, &id) ? 0 : id;
}

/* The plain answer. */
static int32_t tokens[MAX_NEW];
static float logprobs[MAX_NEW];

static void ask_plainly(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);
    specbatch_pool *pool = NULL;
    specbatch_result *result;
    size_t n;

    options.batch = 1;
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    CHECK_INT(submit_timed(pool, 0), 1);
    CHECK_OK(run_to_end(pool));
    CHECK((result = take(pool)) != NULL);
    memcpy(tokens, specbatch_result_tokens(result, &n), sizeof tokens);
    memcpy(logprobs, specbatch_result_logprobs(result, &n), sizeof logprobs);
    CHECK_INT(n, MAX_NEW);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

/* A result has the first of the plain tokens, how many of which is told, and all of them unless its
 * time was over. */
static void check_result(const specbatch_result *result, int32_t finish, size_t at_least,
                         size_t at_most)
{
    size_t n;
    const int32_t *ids = specbatch_result_tokens(result, &n);

    CHECK_INT(specbatch_result_finish(result), finish);
    CHECK_OK(specbatch_result_status(result));
    CHECK(n >= at_least && n <= at_most);
    CHECK_MEM(ids, tokens, n * sizeof *ids);
    CHECK_MEM(specbatch_result_logprobs(result, &n), logprobs, n * sizeof *logprobs);
}

/* Six requests for a batch of two: after a few rounds one that runs and one that waits are late,
 * and end with the next step. The others are as if nothing had happened. */
static void check_deadlines(int32_t policy)
{
    specbatch_pool *pool = create(policy, 2, 0);
    specbatch_event event = SPECBATCH_EVENT_INIT;
    specbatch_result *result;
    int n_late = 0;

    CHECK(pool);
    for (uint64_t id = 1; id <= 6; id++)
        CHECK_INT(submit_timed(pool, id == 3 ? 0 : id == 4 ? UINT64_MAX : UINT64_MAX / 2), id);
    CHECK_INT(pool->deadlines.n, 5);
    for (int i = 0; i < 3; i++)
        CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK(!sb_idmap_find(&pool->by_id, 1)->finish && !sb_idmap_find(&pool->by_id, 6)->finish);
    expire(pool, 1);
    expire(pool, 6);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(pool_check(pool));
    CHECK_OK(run_to_end(pool));
    CHECK_INT(pool->deadlines.n, 0);
    while (specbatch_pool_next_event(pool, &event) == SPECBATCH_OK)
        n_late += event.finish == SPECBATCH_FINISH_DEADLINE;
    CHECK_INT(n_late, 2);
    while ((result = take(pool)) != NULL) {
        const uint64_t id = specbatch_result_id(result);
        if (id == 1 || id == 6)
            check_result(result, SPECBATCH_FINISH_DEADLINE, id == 1, id == 1 ? MAX_NEW - 1 : 0);
        else
            check_result(result, SPECBATCH_FINISH_LENGTH, MAX_NEW, MAX_NEW);
        specbatch_result_free(result);
    }
    CHECK_STR(specbatch_finish_name(SPECBATCH_FINISH_DEADLINE), "deadline");
    CHECK_INT(stat(pool, "requests_finished"), 6);
    specbatch_pool_free(pool);
}

static void test_late_requests_end_with_the_tokens_they_have(void)
{
    ask_plainly();
    for (int32_t policy = 0; policy < specbatch_policy_count() && !sbtest_failed_now; policy++)
        check_deadlines(policy);
}

/* In a call of the public interface alone: a nanosecond is over when the clock has gone on. */
static void test_a_deadline_is_of_the_clock(void)
{
    specbatch_pool *pool = create(SPECBATCH_POLICY_RAGGED, 2, 0);
    specbatch_result *result;
    uint64_t now;
    size_t active = 1;

    CHECK(pool);
    CHECK_INT(submit_timed(pool, 1), 1);
    now = sb_port_now_ns();
    while (sb_port_now_ns() == now)
        continue;
    CHECK_OK(specbatch_pool_step(pool, &active));
    CHECK_INT(active, 0);
    CHECK_INT(stat(pool, "rounds"), 0);
    CHECK((result = take(pool)) != NULL);
    check_result(result, SPECBATCH_FINISH_DEADLINE, 0, 0);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

/* A late request that is being cancelled, or was, is in no list any more. */
static void test_a_cancelled_request_has_no_deadline(void)
{
    specbatch_pool *pool = create(SPECBATCH_POLICY_RAGGED, 2, 0);

    CHECK(pool);
    for (uint64_t id = 1; id <= 3; id++)
        CHECK_INT(submit_timed(pool, UINT64_MAX / 2), id);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    expire(pool, 2);
    CHECK_OK(specbatch_pool_cancel(pool, 2));
    CHECK_OK(specbatch_pool_cancel(pool, 3));
    CHECK_INT(pool->deadlines.n, 1);
    CHECK_OK(run_to_end(pool));
    CHECK_INT(pool->deadlines.n, 0);
    CHECK_INT(stat(pool, "requests_finished"), 3);
    specbatch_pool_free(pool);
}

TEST_BEGIN
if (open_pair()) {
    printf("FAIL the models do not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_higher_priority_comes_first);
RUN(test_waiting_makes_up_for_priority);
RUN(test_waiting_makes_up_for_length);
RUN(test_the_last_turn_makes_room);
RUN(test_priorities_have_a_range);
RUN(test_late_requests_end_with_the_tokens_they_have);
RUN(test_a_deadline_is_of_the_clock);
RUN(test_a_cancelled_request_has_no_deadline);
close_pair();
TEST_END
