/* What drafts propose, and what is accepted of it. That a draft cannot change a token is shown by
 * test/contract/test_contract.c. */
#include <time.h>

#include "sbtest.h"
#include "pool/pool.h"
#include "sched/policies.h"
#include "support/draft_check.h"
#include "support/drafts.h"
#include "support/trace.h"

static struct trace_world world;

/* Sums over the requests of a run. */
struct totals {
    uint64_t drafted, accepted, rounds, tokens;
};

/* Runs every prompt that fits through one pool. */
static int run_all(specbatch_model *target, specbatch_model *draft, int32_t policy, int32_t max_len,
                   int32_t max_new, struct totals *totals)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result;
    size_t active = 1, n;
    int rc = 0;

    *totals = (struct totals){0};
    options.policy = policy;
    options.batch = 5;
    options.n_threads = 2;
    options.flags = SPECBATCH_POOL_FIXED_K;
    options.max_len = max_len;
    if (create_with_model(&pool, target, draft, &options))
        return -1;
    for (int p = 0; p < TRACE_PROMPTS && !rc; p++) {
        specbatch_request request = SPECBATCH_REQUEST_INIT;
        request.ids = world.prompts[p].ids;
        request.n_ids = (size_t)world.prompts[p].n;
        request.max_new = max_new;
        request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
        if (world.prompts[p].n + max_new <= max_len)
            rc = specbatch_pool_submit(pool, &request, NULL);
    }
    while (active && !rc)
        rc = specbatch_pool_step(pool, &active);
    while (!rc && specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
        specbatch_result_tokens(result, &n);
        totals->drafted += specbatch_result_drafted(result);
        totals->accepted += specbatch_result_accepted(result);
        totals->rounds += specbatch_result_rounds(result);
        totals->tokens += n;
        specbatch_result_free(result);
    }
    specbatch_pool_free(pool);
    return rc;
}

/* A policy with `trim`, as rollback, is left out: it throws accepted tokens away on purpose. */
static void test_target_as_its_own_draft_is_always_accepted(void)
{
    for (int m = 0; m < world.n_models; m++)
        for (int32_t policy = 0; policy < specbatch_policy_count(); policy++) {
            struct totals t;
            if (!sb_policy_at(policy)->speculates || sb_policy_at(policy)->trim)
                continue;
            CHECK_OK(run_all(world.models[0][m].target[0], world.models[0][m].target[0], policy,
                             480, 25, &t));
            CHECK_INT(t.accepted, t.drafted);
            /* 25 tokens are five rounds: four of five proposals and a bonus token, and one token by
             * itself. That is the first, if it comes from the pass that completes the prompt, or
             * else the last. */
            CHECK_INT(t.tokens, 25u * TRACE_PROMPTS);
            CHECK_INT(t.rounds, 5u * TRACE_PROMPTS);
        }
}

static void test_distilled_draft_is_worth_having(void)
{
    struct totals t;

    CHECK_OK(run_all(world.models[0][0].target[0], world.models[0][0].draft[0],
                     SPECBATCH_POLICY_RAGGED, 480, 48, &t));
    CHECK(t.accepted > 0 && t.accepted < t.drafted);
    CHECK(t.rounds < t.tokens);
    printf("     %" PRIu64 " tokens in %" PRIu64 " rounds, %" PRIu64 " of %" PRIu64
           " proposals accepted\n",
           t.tokens, t.rounds, t.accepted, t.drafted);
}

static void test_draft_cache_equals_a_fresh_prefill(void)
{
    char why[300];

    for (int m = 0; m < 2; m++)
        for (int p = 0; p < 16; p += 5) {
            if (draft_cache_differs(world.models[0][m].target[0], world.models[0][m].draft[0],
                                    &world.prompts[p], why, sizeof why))
                FAIL("%s", why);
            if (draft_cache_differs(world.models[0][m].target[0], world.models[0][m].target[0],
                                    &world.prompts[p], why, sizeof why))
                FAIL("draft = target: %s", why);
        }
}

/* A draft whose context ends before the target's stops proposing there, and the rest is decoded
 * plainly. */
static void test_draft_with_a_shorter_context(void)
{
    const int32_t context = world.models[0][1].target[0]->config.context;
    struct totals full, cut;

    CHECK_OK(run_all(world.models[0][0].target[0], world.models[0][1].target[0],
                     SPECBATCH_POLICY_RAGGED, 512, 48, &full));
    world.models[0][1].target[0]->config.context = 60;
    const int rc = run_all(world.models[0][0].target[0], world.models[0][1].target[0],
                           SPECBATCH_POLICY_RAGGED, 512, 48, &cut);
    world.models[0][1].target[0]->config.context = context;
    CHECK_OK(rc);
    CHECK_INT(cut.tokens, full.tokens);
    CHECK(cut.drafted > 0 && cut.drafted < full.drafted);
}

/* Proposes nothing useful, and spends a millisecond on that without working. */
static int32_t propose_slowly(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    const struct timespec nap = {0, 1000000};

    for (size_t b = 0; b < n_rows; b++) {
        rows[b]->out[0] = 0;
        rows[b]->n_out = 1;
    }
    ++*(int *)user;
    return nanosleep(&nap, NULL);
}

/* A round's cost is what its thread worked. A callback that waits for another program or a device
 * does not work meanwhile, and yet the time counts. */
static void test_what_a_callback_waits_for_is_a_cost(void)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    int n_calls = 0;
    const specbatch_draft_ops ops = only_propose(propose_slowly, &n_calls);
    specbatch_pool *pool;
    size_t active = 1;

    options.max_len = 128;
    options.n_threads = 1;
    CHECK_OK(create_with_ops(&pool, world.models[0][0].target[0], &ops, &options));
    request.ids = world.prompts[0].ids;
    request.n_ids = (size_t)world.prompts[0].n;
    request.max_new = 40;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    while (active)
        CHECK_OK(specbatch_pool_step(pool, &active));
    CHECK(n_calls > 0);
    CHECK(pool->draft->waited_ns > (uint64_t)n_calls * 500000);
    specbatch_pool_free(pool);
}

TEST_BEGIN
const int opened = trace_world_open(&world, "test/data/models");
if (opened != 0)
    printf("FAIL the world does not open: %s\n", specbatch_last_error());
else {
    RUN(test_target_as_its_own_draft_is_always_accepted);
    RUN(test_distilled_draft_is_worth_having);
    RUN(test_draft_cache_equals_a_fresh_prefill);
    RUN(test_draft_with_a_shorter_context);
    RUN(test_what_a_callback_waits_for_is_a_cost);
}
trace_world_close(&world);
if (opened != 0)
    return 1;
TEST_END
