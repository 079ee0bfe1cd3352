/* Who gets which slot and when: admission by class, waiting in the order of arrival, residents that
 * move to larger slots together, slots that grow, and requests that are preempted. Whatever
 * happens to a request, its tokens and log-probabilities are those of plain decoding. */
#include "sbtest.h"
#include "sched/policies.h"
#include "support/failalloc.h"
#include "support/pool_check.h"
#include "support/small_pool.h"
#include "support/trace.h"

/* With max_len 128 and K = 5 the longest slot has 160 columns, its halves 80 and 40. */
enum { LONGEST = 160, MAX_LEN = 128, PROMPTS = 6, LONGEST_PROMPT = 60, ANSWER = 68 };

/* Takes K + 1 = 6 more columns than tokens, at most: 34 tokens fit in 40 columns, 74 in 80. */
enum { FITS_QUARTER = 34 - N_PROMPT, FITS_HALF = 74 - N_PROMPT, NEEDS_ALL = MAX_LEN - N_PROMPT };

static int below(uint64_t *random, int n)
{
    return (int)(trace_random(random) % (uint64_t)n);
}

static uint64_t submit(specbatch_pool *pool, int32_t max_new)
{
    const specbatch_request request = small_request(max_new);
    uint64_t id = 0;

    (void)specbatch_pool_submit(pool, &request, &id); /* 0 is nobody's id */
    return id;
}

/* Columns of the slot that the request has, or had last; 0 while it has had none, -1: no such
 * request. */
static int32_t columns_of(specbatch_pool *pool, uint64_t id)
{
    const struct sb_seq *seq = sb_idmap_find(&pool->by_id, id);

    return seq ? seq->cap : -1;
}

static int waits(specbatch_pool *pool, uint64_t id)
{
    const struct sb_seq *seq = sb_idmap_find(&pool->by_id, id);

    return seq && seq->slot < 0 && !seq->finish;
}

/* Runs to the end and checks the invariants after every step. */
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

/* ----------------------------------------------------------------- admission */

static void test_requests_take_the_smallest_slot_that_fits(void)
{
    static const struct {
        int32_t max_new, columns;
    } expected[] = {{1, 40},         {FITS_QUARTER, 40},       {FITS_QUARTER + 1, 80},
                    {FITS_HALF, 80}, {FITS_HALF + 1, LONGEST}, {NEEDS_ALL, LONGEST}};
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool = NULL;

    options.batch = 8;
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        submit(pool, expected[i].max_new);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    for (size_t i = 1; i < sizeof expected / sizeof *expected; i++) /* the first has finished
                                                                       already */
        CHECK_INT(columns_of(pool, 1 + i), expected[i].columns);
    CHECK_OK(run_checked(pool));
    specbatch_pool_free(pool);
}

/* Four quarters of the one longest slot are taken: the fifth request waits for columns, although
 * there are numbers. One that needs a half is not overtaken by one that a free quarter would do. */
static void test_who_needs_more_waits_and_is_not_overtaken(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool = NULL;
    uint64_t half, small;

    options.batch = 8;
    options.cache_columns = LONGEST;
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    for (int i = 0; i < 5; i++)
        submit(pool, FITS_QUARTER - i);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_INT(pool->sched.residents.n, 4);
    CHECK(pool->sched.n_free > 0);
    CHECK_OK(run_checked(pool));

    for (int i = 0; i < 3; i++)
        submit(pool, FITS_QUARTER - 5 * i);
    half = submit(pool, FITS_HALF);
    small = submit(pool, FITS_QUARTER);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_INT(pool->sched.residents.n, 3);
    CHECK_INT(pool->sched.slots.n_free, LONGEST / 4);
    while (waits(pool, half)) {
        CHECK(waits(pool, small));
        CHECK_OK(specbatch_pool_step(pool, NULL));
        CHECK_OK(pool_check(pool));
    }
    CHECK_INT(columns_of(pool, half), LONGEST / 2);
    CHECK_OK(run_checked(pool));
    specbatch_pool_free(pool);
}

/* Policies that realign: three residents have quarters when a request comes that needs the longest
 * slot. It waits until two such slots are enough for everybody; then the other one moves. */
static void test_aligned_rows_move_to_larger_slots_together(void)
{
    for (uint32_t replace = 0; replace < 2; replace++) {
        specbatch_pool_options options = small_options(replace ? SPECBATCH_POLICY_EQSPEC
                                                               : SPECBATCH_POLICY_EXSPEC);
        specbatch_pool *pool = NULL;
        uint64_t first, large;
        options.flags |= SPECBATCH_POOL_EQSPEC_REPLACE | SPECBATCH_POOL_GROW_SLOTS; /* no growth */
        options.window = 8;
        options.cache_columns = 2 * LONGEST;
        CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
        first = submit(pool, FITS_QUARTER);
        for (int i = 0; i < 2; i++)
            submit(pool, 12);
        CHECK_OK(specbatch_pool_step(pool, NULL));
        CHECK_OK(specbatch_pool_step(pool, NULL));
        large = submit(pool, NEEDS_ALL);
        CHECK_OK(specbatch_pool_step(pool, NULL));
        CHECK_INT(columns_of(pool, first), LONGEST / 4);
        CHECK(waits(pool, large) && pool->sched.residents.n >= 2);
        CHECK_INT(stat(pool, "moved_bytes"), 0);
        while (waits(pool, large)) {
            CHECK_OK(specbatch_pool_step(pool, NULL));
            CHECK_OK(pool_check(pool));
        }
        CHECK_INT(columns_of(pool, first), LONGEST);
        CHECK_INT(columns_of(pool, large), LONGEST);
        CHECK(stat(pool, "moved_bytes") > 0);
        CHECK_OK(run_checked(pool));
        CHECK_INT(stat(pool, "preemptions"), 0);
        submit(pool, FITS_QUARTER); /* nobody is left, so it gets what it needs */
        CHECK_OK(specbatch_pool_step(pool, NULL));
        CHECK_INT(pool->sched.residents.n, 1);
        CHECK_INT(pool->sched.slots.n_free, 2 * LONGEST - LONGEST / 4);
        specbatch_pool_free(pool);
    }
}

/* ---------------------------------------------------------------- preemption */

static specbatch_pool *growing_pool(int32_t policy, int32_t batch, uint64_t columns,
                                    specbatch_draft *with)
{
    specbatch_pool_options options = small_options(policy);
    specbatch_pool *pool = NULL;

    options.batch = batch;
    options.cache_columns = columns;
    options.flags |= SPECBATCH_POOL_GROW_SLOTS;
    return specbatch_pool_create(&pool, target, with, &options) ? NULL : pool;
}

/* Four begin in quarters of one longest slot. As they grow, the last ones make room for the first
 * ones: whoever waits was submitted after whoever is resident. */
static void test_the_youngest_makes_room(void)
{
    specbatch_pool *pool = growing_pool(SPECBATCH_POLICY_RAGGED, 4, LONGEST, draft);
    specbatch_request_state before, after = SPECBATCH_REQUEST_STATE_INIT;
    size_t active = 1;
    uint64_t youngest = 0;

    CHECK(pool);
    for (int i = 0; i < 4; i++)
        youngest = submit(pool, NEEDS_ALL);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_INT(pool->sched.residents.n, 4);
    CHECK_INT(pool->sched.slots.n_free, 0);
    do {
        before = (specbatch_request_state)SPECBATCH_REQUEST_STATE_INIT;
        CHECK_OK(specbatch_pool_state(pool, youngest, &before));
        CHECK_OK(specbatch_pool_step(pool, NULL));
    } while (stat(pool, "preemptions") == 0);
    CHECK_OK(specbatch_pool_state(pool, youngest, &after));
    CHECK_INT(before.state, SPECBATCH_STATE_DECODING);
    CHECK_INT(after.state, SPECBATCH_STATE_QUEUED);
    CHECK(after.n_generated >= before.n_generated && before.n_generated > 20);
    CHECK_INT(after.n_filled, 0);
    CHECK_INT(after.time_queued_ns, before.time_queued_ns);
    CHECK_INT(after.time_first_token_ns, before.time_first_token_ns);
    while (active > 0) {
        uint64_t newest = 0;
        CHECK_OK(specbatch_pool_step(pool, &active));
        CHECK_OK(pool_check(pool));
        for (int32_t at = sb_oldest(&pool->sched.residents, SB_ALL); at >= 0;
             at = sb_next(&pool->sched.residents, SB_ALL, at))
            if (pool->sched.residents.seq[at]->id > newest)
                newest = pool->sched.residents.seq[at]->id;
        for (size_t i = 0; i < pool->queue.n; i++)
            CHECK(pool->queue.heap[i]->id > newest);
        if (pool->n_active > 0) {
            CHECK_OK(specbatch_pool_state(pool, youngest, &after));
            CHECK_INT(after.time_queued_ns, before.time_queued_ns);
        }
    }
    CHECK(stat(pool, "preemptions") >= 3);
    CHECK(stat(pool, "moved_bytes") > 0);
    CHECK_INT(stat(pool, "requests_finished"), 4);
    specbatch_pool_free(pool);
}

/* Those that were preempted find room in the queue, however many came since they left it. */
static void test_the_queue_takes_preempted_requests_back(void)
{
    specbatch_pool *pool = growing_pool(SPECBATCH_POLICY_RAGGED, 4, LONGEST, NULL);
    size_t full;

    CHECK(pool);
    do
        submit(pool, NEEDS_ALL);
    while (pool->queue.n < pool->queue.capacity);
    full = pool->queue.capacity;
    CHECK_OK(specbatch_pool_step(pool, NULL));
    while (pool->queue.n < full)
        CHECK(submit(pool, 1) > 0);
    while (stat(pool, "preemptions") == 0)
        CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK(pool->queue.n > full && pool->queue.n <= pool->queue.capacity);
    CHECK_OK(pool_check(pool));
    specbatch_pool_free(pool);
}

/* A request alone in a pool of one longest slot grows to the whole of it: by a move to the half
 * beside its quarter, and then by giving its slot back. */
static void test_one_request_alone_gets_the_longest_slot(void)
{
    specbatch_pool *pool = growing_pool(SPECBATCH_POLICY_PLAIN, 1, 0, NULL);

    CHECK(pool);
    CHECK_INT(stat(pool, "cache_columns"), LONGEST);
    submit(pool, NEEDS_ALL);
    CHECK_OK(run_checked(pool));
    CHECK_INT(stat(pool, "tokens_committed"), NEEDS_ALL);
    CHECK_INT(stat(pool, "preemptions"), 1);
    CHECK(stat(pool, "moved_bytes") > 0);
    specbatch_pool_free(pool);
}

/* Without the flag, or under a policy that realigns, nobody is ever preempted. */
static void test_nobody_is_preempted_unless_asked_for(void)
{
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++) {
        specbatch_pool_options options = small_options(policy);
        specbatch_pool *pool = NULL;
        options.cache_columns = LONGEST;
        options.flags |= sb_policy_at(policy)->realigns ? SPECBATCH_POOL_GROW_SLOTS : 0;
        CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
        for (int i = 0; i < 4; i++)
            submit(pool, i == 1 ? FITS_QUARTER : NEEDS_ALL - i);
        CHECK_OK(run_checked(pool));
        CHECK_INT(stat(pool, "preemptions"), 0);
        CHECK_INT(stat(pool, "requests_finished"), 4);
        specbatch_pool_free(pool);
    }
}

/* ------------------------------------------------------------ the same tokens */

static struct {
    int32_t ids[LONGEST_PROMPT], n;
    int32_t tokens[ANSWER];
    float logprobs[ANSWER];
} plain[PROMPTS];

/* A prompt that repeats itself now and then, so that n-grams match. */
static void make_prompt(int p, uint64_t *random)
{
    plain[p].n = p == 0 ? 1 : 1 + below(random, LONGEST_PROMPT);
    for (int i = 0; i < plain[p].n; i++)
        plain[p].ids[i] = i > 6 && below(random, 3) ? plain[p].ids[i - 6] : 3 + below(random, 500);
}

static specbatch_request request_of(int p, int32_t max_new)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = plain[p].ids;
    request.n_ids = (size_t)plain[p].n;
    request.max_new = max_new;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS;
    request.user = &plain[p];
    return request;
}

/* What each prompt gives in a pool of one row with the longest slot. */
static void ask_plainly(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);
    uint64_t random = 7;

    options.batch = 1;
    for (int p = 0; p < PROMPTS; p++) {
        specbatch_pool *pool = NULL;
        specbatch_request request;
        specbatch_result *result;
        size_t n;
        make_prompt(p, &random);
        request = request_of(p, ANSWER);
        CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        CHECK((result = take(pool)) != NULL);
        memcpy(plain[p].tokens, specbatch_result_tokens(result, &n), sizeof plain[p].tokens);
        memcpy(plain[p].logprobs, specbatch_result_logprobs(result, &n), sizeof plain[p].logprobs);
        CHECK_INT(n, ANSWER);
        specbatch_result_free(result);
        specbatch_pool_free(pool);
    }
}

/* Collects everything, and compares it with the plain answers as far as it goes. */
static void compare_results(specbatch_pool *pool)
{
    specbatch_result *result;

    while ((result = take(pool)) != NULL) {
        const int p = (int)((const char *)specbatch_result_user(result) - (char *)plain) /
                      (int)sizeof *plain;
        size_t n;
        const int32_t *tokens = specbatch_result_tokens(result, &n);
        CHECK(n <= ANSWER);
        CHECK_MEM(tokens, plain[p].tokens, n * sizeof *tokens);
        CHECK_MEM(specbatch_result_logprobs(result, &n), plain[p].logprobs, n * sizeof(float));
        specbatch_result_free(result);
    }
}

/* How often the draft of functions was shown a request, and told of its end. */
static struct {
    uint8_t shown[200], retired[200];
    uint64_t random;
    int wrong;
} host;

/* Proposes what is right, for a while; and now and then ends the round. */
static int32_t propose(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++) {
        const size_t p = (size_t)((const char *)rows[b]->request_user - (char *)plain) /
                         sizeof *plain;
        const size_t n = rows[b]->n_tokens - (size_t)plain[p].n;
        host.wrong += host.retired[rows[b]->request_id];
        host.shown[rows[b]->request_id] = 1;
        for (int32_t i = 0; i < rows[b]->k; i++)
            rows[b]->out[rows[b]->n_out++] = n + (size_t)i < ANSWER && below(&host.random, 4)
                                                 ? plain[p].tokens[n + (size_t)i]
                                                 : 5;
    }
    return below(&host.random, 30) ? 0 : -1;
}

static void retire(void *user, uint64_t id, void *request_user)
{
    (void)user;
    (void)request_user;
    host.wrong += !host.shown[id] || host.retired[id];
    host.retired[id] = 1;
}

enum { NO_DRAFT, THE_MODEL, ITSELF, NGRAMS, FUNCTIONS, DRAFTS };

static specbatch_draft *make_draft(int kind)
{
    specbatch_draft_ops ops = SPECBATCH_DRAFT_OPS_INIT;
    specbatch_draft *made = NULL;

    ops.propose = propose;
    ops.retire = retire;
    switch (kind) {
    case THE_MODEL:
        specbatch_draft_retain(made = draft);
        break;
    case ITSELF:
        (void)specbatch_draft_from_model(&made, target);
        break;
    case NGRAMS:
        (void)specbatch_draft_from_ngrams(&made, NULL);
        break;
    case FUNCTIONS:
        (void)specbatch_draft_from_ops(&made, &ops);
        break;
    default:
        break;
    }
    return made;
}

/* A draft of functions is not told of the end of a request that is preempted, and is told of it
 * when the request is cancelled while it waits, or its pool is freed. */
static void test_drafts_are_told_of_the_end_of_who_waits(void)
{
    specbatch_draft *with = make_draft(FUNCTIONS);
    specbatch_pool *pool = growing_pool(SPECBATCH_POLICY_RAGGED, 4, LONGEST, with);

    specbatch_draft_release(with);
    memset(&host, 0, sizeof host);
    CHECK(pool);
    for (int p = 0; p < 4; p++) {
        specbatch_request request = request_of(p, ANSWER);
        request.n_ids = 1;
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    }
    while (stat(pool, "preemptions") == 0 || pool->queue.n < 2) {
        const int32_t rc = specbatch_pool_step(pool, NULL);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_CANCELLED);
    }
    CHECK(host.shown[3] && !host.retired[3] && host.shown[4] && !host.retired[4]);
    CHECK_OK(specbatch_pool_cancel(pool, 3));
    CHECK(host.retired[3] && !host.retired[4]);
    specbatch_pool_free(pool);
    CHECK(!host.wrong && memcmp(host.shown, host.retired, sizeof host.shown) == 0);
}

/* Runs random requests, some of which are cancelled, through a pool with few columns. Allocations
 * are counted: after the last submission there are none. `early`: it ends with the third
 * preemption, and what is left is freed with the pool. */
static void run_random(specbatch_pool *pool, uint64_t *random, struct failalloc *memory, int early)
{
    enum { REQUESTS = 14 };
    size_t active = REQUESTS;
    int n_cancelled = 0;

    for (int i = 0; i < REQUESTS; i++) {
        const specbatch_request request = request_of(below(random, PROMPTS),
                                                     1 + below(random, ANSWER));
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    }
    failalloc_arm(memory, 0, 0);
    while (active > 0 && !(early && stat(pool, "preemptions") >= 3)) {
        const int32_t rc = specbatch_pool_step(pool, &active);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_CANCELLED);
        CHECK_OK(pool_check(pool));
        if (n_cancelled < 3 && below(random, 12) == 0)
            n_cancelled += specbatch_pool_cancel(pool, 1 + (uint64_t)below(random, REQUESTS)) ==
                           SPECBATCH_OK;
    }
    CHECK_INT(atomic_load(&memory->calls), 0);
}

static void test_tokens_are_those_of_plain_decoding(void)
{
    uint64_t n_preempted[8] = {0}, n_moved[8] = {0}; /* by policy */

    ask_plainly();
    for (uint64_t seed = 0; seed < 120; seed++) {
        const int32_t policy = (int32_t)(seed % (uint64_t)specbatch_policy_count());
        specbatch_pool_options options = small_options(policy);
        struct failalloc memory = {0};
        uint64_t random = seed;
        specbatch_pool *pool = NULL;
        const int kind = (int)(seed / 5 % DRAFTS);
        specbatch_draft *with = make_draft(kind);
        CHECK(with || kind == NO_DRAFT);
        options.batch = 1 + below(&random, 6);
        options.window = options.batch + below(&random, 8);
        options.cache_columns = LONGEST * (1 + (uint64_t)below(&random, 3));
        options.prefill_chunk = 1 + below(&random, 40);
        options.flags = (below(&random, 4) ? SPECBATCH_POOL_GROW_SLOTS : 0) |
                        (below(&random, 2) ? SPECBATCH_POOL_FIXED_K : 0) |
                        (below(&random, 2) ? SPECBATCH_POOL_EQSPEC_REPLACE : 0) |
                        (below(&random, 4) ? 0 : SPECBATCH_POOL_SORT_BY_LENGTH);
        options.alloc = failalloc_alloc;
        options.free = failalloc_free;
        options.alloc_user = &memory;
        memset(&host, 0, sizeof host);
        host.random = seed;
        CHECK_OK(specbatch_pool_create(&pool, target, with, &options));
        run_random(pool, &random, &memory, seed % 3 == 0);
        compare_results(pool);
        n_preempted[policy] += stat(pool, "preemptions");
        n_moved[policy] += stat(pool, "moved_bytes");
        specbatch_pool_free(pool);
        specbatch_draft_release(with);
        CHECK_INT(atomic_load(&memory.outstanding), 0);
        CHECK(!host.wrong && memcmp(host.shown, host.retired, sizeof host.shown) == 0);
    }
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++) {
        CHECK(n_moved[policy] > 0);
        CHECK((n_preempted[policy] > 0) == !sb_policy_at(policy)->realigns);
        printf("     %-8s %4" PRIu64 " preemptions, %8" PRIu64 " bytes moved\n",
               specbatch_policy_name(policy), n_preempted[policy], n_moved[policy]);
    }
}

TEST_BEGIN
if (open_pair()) {
    printf("FAIL the models do not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_requests_take_the_smallest_slot_that_fits);
RUN(test_who_needs_more_waits_and_is_not_overtaken);
RUN(test_aligned_rows_move_to_larger_slots_together);
RUN(test_the_youngest_makes_room);
RUN(test_the_queue_takes_preempted_requests_back);
RUN(test_one_request_alone_gets_the_longest_slot);
RUN(test_nobody_is_preempted_unless_asked_for);
RUN(test_drafts_are_told_of_the_end_of_who_waits);
RUN(test_tokens_are_those_of_plain_decoding);
close_pair();
TEST_END
