/*
 * The prefix cache in a pool: requests that hit it get the tokens and log-probabilities of requests
 * that find nothing, and the counters tell how much of a prompt was not computed.
 */
#include "sbtest.h"
#include "sched/policies.h"
#include "support/pool_check.h"
#include "support/prefix_check.h"
#include "support/small_pool.h"

enum { VOCAB = 500, LONGEST = 250, MAX_NEW = 20, CHUNK = 48, BLOCK = SB_PREFIX_BLOCK };

/* ------------------------------------------------------------------ requests */

/* A prompt: all that request `after` had, answer included, and then the first n tokens of a text.
 * after: an earlier index, or -1. */
struct ask {
    int32_t after, text, n;
};

/* Texts 2 t and 2 t + 1 agree in their first 40 tokens: in one block and a part of the next. */
static const struct ask asks[] = {
    {-1, 0, 100}, {-1, 0, 100}, {-1, 1, 100},                          /* parts in a block */
    {-1, 0, 64},  {-1, 0, 65},  {-1, 0, 33},  {-1, 0, 32}, {-1, 0, 1}, /* k blocks, and one more */
    {-1, 2, 97},  {-1, 0, 250}, {0, 3, 40},   {10, 3, 33}, {-1, 0, 250}, /* 10, 11: a talk */
};
enum { N_ASKS = (int)(sizeof asks / sizeof *asks) };

static struct answer {
    int32_t n_prompt, prompt[LONGEST + 60];
    int32_t tokens[MAX_NEW];
    float logprobs[MAX_NEW];
} cold[N_ASKS];

static void write_text(int32_t *ids, int32_t text, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        ids[i] = (i * 37 + (i < 40 ? text / 2 * 2 : text) * (i + 11) * 13 + i * i) % VOCAB;
}

static specbatch_request request_of(const int32_t *ids, int32_t n)
{
    specbatch_request request = small_request(MAX_NEW);

    request.ids = ids;
    request.n_ids = (size_t)n;
    request.flags |= SPECBATCH_REQUEST_LOGPROBS;
    return request;
}

/* What plain decoding at batch 1 gives for each of the asks, computed from the beginning. */
static void answer_all(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);

    options.batch = 1;
    options.max_len = 300;
    for (int i = 0; i < N_ASKS; i++) {
        struct answer *a = &cold[i];
        specbatch_request request;
        specbatch_result *result;
        specbatch_pool *pool;

        if (asks[i].after >= 0) {
            const struct answer *before = &cold[asks[i].after];
            a->n_prompt = before->n_prompt + MAX_NEW;
            memcpy(a->prompt, before->prompt, sizeof a->prompt);
            memcpy(a->prompt + before->n_prompt, before->tokens, sizeof before->tokens);
        }
        write_text(a->prompt + a->n_prompt, asks[i].text, asks[i].n);
        a->n_prompt += asks[i].n;
        request = request_of(a->prompt, a->n_prompt);
        CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        CHECK((result = take(pool)) != NULL);
        memcpy(a->tokens, specbatch_result_tokens(result, NULL), sizeof a->tokens);
        memcpy(a->logprobs, specbatch_result_logprobs(result, NULL), sizeof a->logprobs);
        specbatch_result_free(result);
        specbatch_pool_free(pool);
    }
}

/* --------------------------------------------------------------------- pools */

/* Bytes of a block in a pool without a draft that has a cache, or with that of the pair. */
static uint64_t block_bytes(specbatch_draft *with)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool = NULL;
    uint64_t bytes = 0;

    if (specbatch_pool_create(&pool, target, with, &options) == SPECBATCH_OK)
        bytes = BLOCK * (sb_kv_column_bytes(&pool->runner.kv) +
                         (pool->draft->runner ? sb_kv_column_bytes(&pool->draft->runner->kv) : 0));
    specbatch_pool_free(pool);
    return bytes;
}

/* A pool of batch 2 whose cache has n blocks. */
static specbatch_pool *create(int32_t policy, uint32_t flags, specbatch_draft *with, int32_t n)
{
    specbatch_pool_options options = small_options(policy);
    specbatch_pool *pool = NULL;

    options.batch = 2;
    options.max_len = 300;
    options.prefill_chunk = CHUNK;
    options.draft_len = 3;
    options.flags |= flags;
    options.prefix_bytes = (uint64_t)n *
                           block_bytes(policy == SPECBATCH_POLICY_PLAIN ? NULL : with);
    return specbatch_pool_create(&pool, target, with, &options) == SPECBATCH_OK ? pool : NULL;
}

static specbatch_pool *plain_pool(int32_t n)
{
    return create(SPECBATCH_POLICY_PLAIN, 0, NULL, n);
}

/* Submits the first n tokens of a text. */
static int32_t submit(specbatch_pool *pool, int32_t text, int32_t n, uint64_t *id)
{
    int32_t ids[LONGEST];
    specbatch_request request = request_of(ids, n);

    write_text(ids, text, n);
    return specbatch_pool_submit(pool, &request, id);
}

/* Runs that alone to its end, and tells how many of its tokens were found. */
static uint64_t found(specbatch_pool *pool, int32_t text, int32_t n)
{
    const uint64_t before = stat(pool, "prefix_tokens");

    if (submit(pool, text, n, NULL) != SPECBATCH_OK || run_to_end(pool) != SPECBATCH_OK)
        return UINT64_MAX;
    specbatch_result_free(take(pool));
    return stat(pool, "prefix_tokens") - before;
}

/* ------------------------------------------------------------------ the bits */

static void check_result(const specbatch_result *result)
{
    const struct answer *a = &cold[(specbatch_result_id(result) - 1) % N_ASKS];
    size_t n;

    CHECK_MEM(specbatch_result_tokens(result, &n), a->tokens, sizeof a->tokens);
    CHECK_INT(n, MAX_NEW);
    CHECK_MEM(specbatch_result_logprobs(result, NULL), a->logprobs, sizeof a->logprobs);
}

/* All asks at once, twice. */
static void check_pool(specbatch_pool *pool, int32_t n_blocks)
{
    specbatch_result *result;
    size_t active = 1;

    CHECK(pool != NULL);
    CHECK_INT(sb_prefix_n_blocks(&pool->prefix), n_blocks);
    for (int wave = 0; wave < 2; wave++) {
        for (int i = 0; i < N_ASKS; i++) {
            const specbatch_request request = request_of(cold[i].prompt, cold[i].n_prompt);
            CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        }
        for (active = 1; active > 0;) {
            CHECK_OK(specbatch_pool_step(pool, &active));
            CHECK_OK(pool_check(pool));
        }
        while ((result = take(pool)) != NULL && !sbtest_failed_now) {
            check_result(result);
            specbatch_result_free(result);
        }
    }
    CHECK(stat(pool, "prefix_hits") > 0 && stat(pool, "prefix_blocks") > 0);
    CHECK(stat(pool, "prefix_blocks") - stat(pool, "prefix_evictions") <= (uint64_t)n_blocks);
}

/* Under every policy, with caches that hold nearly nothing, a part and everything. */
static void check_policies(specbatch_draft *with)
{
    static const int32_t sizes[] = {1, 5, 64};

    for (int32_t policy = 0; policy < sb_policy_count(); policy++)
        for (int i = 0; i < 3 && !sbtest_failed_now; i++) {
            const uint32_t flags = i == 1 ? SPECBATCH_POOL_EQSPEC_REPLACE : 0;
            specbatch_pool *pool = create(policy, flags, with, sizes[i]);
            check_pool(pool, sizes[i]);
            if (sbtest_failed_now)
                printf("     %s, %d blocks\n", sb_policy_at(policy)->name, sizes[i]);
            specbatch_pool_free(pool);
        }
}

static void test_hits_change_no_bit_without_a_draft(void)
{
    check_policies(NULL);
}

static void test_hits_change_no_bit_with_a_model(void)
{
    check_policies(draft);
}

static void test_hits_change_no_bit_with_the_target_itself(void)
{
    specbatch_draft *self = draft_of(target);

    check_policies(self);
    specbatch_draft_release(self);
}

static void test_hits_change_no_bit_with_ngrams(void)
{
    specbatch_draft *ngrams = NULL;

    CHECK_OK(specbatch_draft_from_ngrams(&ngrams, NULL));
    check_policies(ngrams);
    specbatch_draft_release(ngrams);
}

/* Proposes what follows by counting. */
static int32_t count_on(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++)
        for (; rows[b]->n_out < rows[b]->k; rows[b]->n_out++)
            rows[b]->out[rows[b]->n_out] = (rows[b]->n_out + (int32_t)rows[b]->n_tokens) % VOCAB;
    return 0;
}

static void test_hits_change_no_bit_with_a_callback(void)
{
    const specbatch_draft_ops ops = only_propose(count_on, NULL);
    specbatch_draft *counts = NULL;

    CHECK_OK(specbatch_draft_from_ops(&counts, &ops));
    check_policies(counts);
    specbatch_draft_release(counts);
}

/* ------------------------------------------------------------------ how much */

/* Whole blocks, and never the last token. */
static void test_a_hit_is_whole_blocks_and_leaves_the_last_token(void)
{
    static const int32_t expected[][3] = {{0, 100, 96}, {1, 100, 32}, {0, 65, 64}, {0, 64, 32},
                                          {0, 33, 32},  {0, 32, 0},   {0, 1, 0},   {2, 100, 0}};
    specbatch_pool *pool = plain_pool(64);

    CHECK(pool != NULL);
    CHECK_INT(found(pool, 0, 100), 0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const uint64_t computed = stat(pool, "prefill_tokens"), hits = stat(pool, "prefix_hits");
        const int32_t n = expected[i][1], hit = expected[i][2];
        CHECK_INT(found(pool, expected[i][0], n), hit);
        CHECK_INT(stat(pool, "prefill_tokens") - computed, n - 1 - hit);
        CHECK_INT(stat(pool, "prefix_hits") - hits, hit > 0);
    }
    specbatch_pool_free(pool);
}

/* An answer is found by the next turn: 100 tokens and 20, of which the last has no entry. */
static void test_the_next_turn_finds_the_answer(void)
{
    specbatch_pool *pool = plain_pool(64);
    const int turns[] = {0, 10, 11}, hits[] = {0, 96, 160};

    CHECK(pool != NULL);
    for (int i = 0; i < 3; i++) {
        const struct answer *a = &cold[turns[i]];
        const specbatch_request request = request_of(a->prompt, a->n_prompt);
        const uint64_t before = stat(pool, "prefix_tokens");
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        CHECK_INT(stat(pool, "prefix_tokens") - before, hits[i]);
    }
    specbatch_pool_free(pool);
}

/* Two requests of one prompt that come together compute it twice; a third one, which comes when
 * they have been filled in, need not wait for their end. */
static void test_a_prompt_is_found_while_its_request_runs(void)
{
    specbatch_pool *pool = plain_pool(64);

    CHECK(pool != NULL);
    for (int i = 0; i < 4; i++)
        CHECK_OK(submit(pool, 0, 100, NULL));
    CHECK_OK(run_to_end(pool));
    CHECK(stat(pool, "prefix_hits") > 0 && stat(pool, "prefix_blocks") == 3);
    specbatch_pool_free(pool);
}

static void test_hits_count_as_filled(void)
{
    specbatch_request_state state = SPECBATCH_REQUEST_STATE_INIT;
    specbatch_pool *pool = plain_pool(64);
    uint64_t id;

    CHECK(pool != NULL);
    CHECK_INT(found(pool, 0, 100), 0);
    CHECK_OK(submit(pool, 1, 250, &id));
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(specbatch_pool_state(pool, id, &state));
    CHECK_INT(state.n_filled, CHUNK); /* 32 found, and the rest of the first chunk */
    specbatch_pool_free(pool);
}

/* A draft that lags has kept less than the target. What it lacks is added when a later request has
 * computed it. */
static void test_the_drafts_columns_follow(void)
{
    static const int32_t draft_len[] = {-1, 0, 0};
    specbatch_pool *pool = create(SPECBATCH_POLICY_RAGGED, 0, draft, 64);
    uint64_t passes[3];

    CHECK(pool != NULL);
    for (int i = 0; i < 3; i++) {
        specbatch_request request = request_of(cold[0].prompt, cold[0].n_prompt);
        const uint64_t before = stat(pool, "draft_passes");
        request.draft_len = draft_len[i];
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        passes[i] = stat(pool, "draft_passes") - before;
    }
    CHECK_INT(stat(pool, "prefix_tokens"), 2 * 96);
    CHECK_INT(passes[0], 0);
    CHECK_INT(passes[1] - passes[2], 2); /* 96 tokens less, of chunks of 48 */
    specbatch_pool_free(pool);
}

static void test_a_cancelled_request_leaves_what_was_computed(void)
{
    specbatch_pool *pool = plain_pool(64);
    uint64_t id;

    CHECK(pool != NULL);
    CHECK_OK(submit(pool, 0, 250, &id));
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(specbatch_pool_cancel(pool, id));
    CHECK_OK(pool_check(pool));
    specbatch_result_free(take(pool));
    CHECK_INT(stat(pool, "prefix_blocks"), 2 * CHUNK / BLOCK);
    CHECK_INT(found(pool, 0, 250), 2 * CHUNK);
    specbatch_pool_free(pool);
}

/* ------------------------------------------------------------------ eviction */

/* Three blocks, and texts that have one each. */
static void test_the_least_recently_used_goes_first(void)
{
    specbatch_pool *pool = plain_pool(3);

    CHECK(pool != NULL);
    for (int32_t text = 0; text < 6; text += 2)
        CHECK_INT(found(pool, text, 40), 0);
    CHECK_INT(stat(pool, "prefix_evictions"), 0);
    CHECK_INT(found(pool, 0, 40), BLOCK);
    CHECK_INT(found(pool, 6, 40), 0); /* in the place of text 2 */
    CHECK_INT(stat(pool, "prefix_evictions"), 1);
    CHECK_INT(found(pool, 0, 40), BLOCK);
    CHECK_INT(found(pool, 4, 40), BLOCK);
    CHECK_INT(found(pool, 2, 40), 0);
    specbatch_pool_free(pool);
}

/* A prompt that is longer than the cache: its beginning is kept, and stays. */
static void test_the_beginning_of_a_long_prompt_is_kept(void)
{
    specbatch_pool *pool = plain_pool(3);

    CHECK(pool != NULL);
    CHECK_INT(found(pool, 0, 250), 0);
    CHECK_INT(stat(pool, "prefix_blocks"), 3);
    CHECK_INT(found(pool, 0, 250), 96);
    CHECK_INT(stat(pool, "prefix_evictions"), 0);
    specbatch_pool_free(pool);
}

/* ---------------------------------------------------------------------- pins */

static int32_t pin_text(specbatch_pool *pool, int32_t text, size_t n, uint64_t *pin)
{
    int32_t ids[LONGEST];

    write_text(ids, text, LONGEST);
    return specbatch_pool_pin(pool, ids, n, pin);
}

static void test_a_pin_stays_and_is_filled_by_who_comes_first(void)
{
    specbatch_pool *pool = plain_pool(3);
    uint64_t pin;

    CHECK(pool != NULL);
    CHECK_OK(pin_text(pool, 0, 70, &pin));
    CHECK_INT(stat(pool, "prefix_blocks"), 0);
    for (int32_t text = 2; text < 8; text += 2)
        CHECK_INT(found(pool, text, 40), 0); /* one block is left to them */
    CHECK_INT(found(pool, 0, 100), 0);
    for (int32_t text = 2; text < 8; text += 2)
        CHECK_INT(found(pool, text, 40), 0);
    CHECK_INT(found(pool, 0, 100), 64);
    CHECK_OK(specbatch_pool_unpin(pool, pin));
    for (int32_t text = 2; text < 8; text += 2)
        CHECK_INT(found(pool, text, 40), 0);
    CHECK_INT(found(pool, 0, 100), 0);
    CHECK_OK(pool_check(pool));
    specbatch_pool_free(pool);
}

static void test_pins_share_blocks(void)
{
    specbatch_pool *pool = plain_pool(5);
    uint64_t pins[4];

    CHECK(pool != NULL);
    CHECK_OK(pin_text(pool, 0, 128, &pins[0])); /* 4 blocks */
    CHECK_OK(pin_text(pool, 0, 64, &pins[1]));
    CHECK_OK(pin_text(pool, 1, 64, &pins[2])); /* one of its own */
    CHECK_INT(pin_text(pool, 2, 32, &pins[3]), SPECBATCH_E_BUDGET);
    CHECK_OK(specbatch_pool_unpin(pool, pins[0]));
    CHECK_OK(pool_check(pool));
    CHECK_INT(pin_text(pool, 2, 96, &pins[3]), SPECBATCH_E_BUDGET);
    CHECK_OK(pin_text(pool, 2, 64, &pins[3]));
    CHECK_OK(pool_check(pool));
    CHECK_INT(specbatch_pool_unpin(pool, pins[0]), SPECBATCH_E_NOT_FOUND);
    for (int i = 1; i < 4; i++)
        CHECK_OK(specbatch_pool_unpin(pool, pins[i]));
    CHECK_INT(pool->prefix.tree.n_free, 5);
    CHECK_OK(pool_check(pool));
    specbatch_pool_free(pool);
}

/* A pin for which there is no room evicts nothing. */
static void test_pins_are_refused(void)
{
    specbatch_pool *pool = plain_pool(3), *without = plain_pool(0);
    int32_t ids[BLOCK] = {-1};
    uint64_t pin = 77;

    CHECK(pool != NULL && without != NULL);
    CHECK_INT(found(pool, 0, 100), 0);
    CHECK_INT(pin_text(pool, 0, 31, &pin), SPECBATCH_E_INVALID);
    CHECK_INT(pin_text(pool, 0, 0, &pin), SPECBATCH_E_INVALID);
    CHECK_INT(pin_text(without, 0, 64, &pin), SPECBATCH_E_INVALID);
    CHECK_INT(specbatch_pool_pin(pool, ids, BLOCK, &pin), SPECBATCH_E_TOKEN);
    CHECK_INT(specbatch_pool_pin(pool, NULL, BLOCK, &pin), SPECBATCH_E_INVALID);
    CHECK_INT(specbatch_pool_pin(pool, ids, BLOCK, NULL), SPECBATCH_E_INVALID);
    CHECK_INT(specbatch_pool_pin(NULL, ids, BLOCK, &pin), SPECBATCH_E_INVALID);
    CHECK_INT(pin_text(pool, 0, 128, &pin), SPECBATCH_E_BUDGET);
    CHECK_INT(specbatch_pool_unpin(pool, 0), SPECBATCH_E_NOT_FOUND);
    CHECK_INT(pin, 77);
    CHECK_INT(found(pool, 0, 100), 96);
    CHECK_INT(stat(pool, "prefix_evictions"), 0);
    specbatch_pool_free(without);
    specbatch_pool_free(pool);
}

/* ------------------------------------------------------------------ creation */

static void test_less_than_a_block_is_refused(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool = NULL;
    uint64_t without, with;

    CHECK_OK(specbatch_pool_bytes(&without, target, draft, &options));
    options.prefix_bytes = block_bytes(draft) - 1;
    CHECK_INT(specbatch_pool_bytes(&with, target, draft, &options), SPECBATCH_E_INVALID);
    CHECK_INT(specbatch_pool_create(&pool, target, draft, &options), SPECBATCH_E_INVALID);
    options.prefix_bytes++;
    CHECK_OK(specbatch_pool_bytes(&with, target, draft, &options));
    CHECK(with > without + options.prefix_bytes);
    options.budget_bytes = with - 1;
    CHECK_INT(specbatch_pool_create(&pool, target, draft, &options), SPECBATCH_E_BUDGET);
    options.budget_bytes++;
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    specbatch_pool_free(pool);
    options.budget_bytes = 0;
    options.prefix_bytes = UINT64_MAX;
    CHECK_INT(specbatch_pool_create(&pool, target, draft, &options) == SPECBATCH_OK, 0);
}

/* ------------------------------------------------------------------- failures */

static int32_t broken_sync(struct sb_exec *exec)
{
    (void)exec;
    return SPECBATCH_E_DEVICE;
}

/* The device fails while columns are kept: the request ends, and the pool with it. */
static void test_a_failing_device_ends_the_pool(void)
{
    specbatch_pool *pool = plain_pool(8);
    const struct sb_backend *whole;
    struct sb_backend broken;
    uint64_t id;

    CHECK(pool != NULL);
    CHECK_OK(submit(pool, 0, 100, &id));
    CHECK_OK(specbatch_pool_step(pool, NULL));
    whole = pool->runner.backend;
    broken = *whole;
    broken.exec_sync = broken_sync;
    pool->runner.backend = &broken;
    CHECK_INT(specbatch_pool_cancel(pool, id), SPECBATCH_E_DEVICE);
    pool->runner.backend = whole;
    CHECK_OK(prefix_check(&pool->prefix.tree));
    CHECK_INT(pool->prefix.tree.n_free, 8);
    CHECK_INT(specbatch_pool_step(pool, NULL), SPECBATCH_E_DEVICE);
    specbatch_result_free(take(pool));
    specbatch_pool_free(pool);
}

TEST_BEGIN
if (open_pair()) {
    printf("FAIL the models do not open: %s\n", specbatch_last_error());
    return 1;
}
answer_all();
RUN(test_hits_change_no_bit_without_a_draft);
RUN(test_hits_change_no_bit_with_a_model);
RUN(test_hits_change_no_bit_with_the_target_itself);
RUN(test_hits_change_no_bit_with_ngrams);
RUN(test_hits_change_no_bit_with_a_callback);
RUN(test_a_hit_is_whole_blocks_and_leaves_the_last_token);
RUN(test_the_next_turn_finds_the_answer);
RUN(test_a_prompt_is_found_while_its_request_runs);
RUN(test_hits_count_as_filled);
RUN(test_the_drafts_columns_follow);
RUN(test_a_cancelled_request_leaves_what_was_computed);
RUN(test_the_least_recently_used_goes_first);
RUN(test_the_beginning_of_a_long_prompt_is_kept);
RUN(test_a_pin_stays_and_is_filled_by_who_comes_first);
RUN(test_pins_share_blocks);
RUN(test_pins_are_refused);
RUN(test_less_than_a_block_is_refused);
RUN(test_a_failing_device_ends_the_pool);
close_pair();
TEST_END
