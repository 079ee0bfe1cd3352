/*
 * How much the prefix cache finds and keeps, counted to the token: hits, what goes first when there
 * is no room, pins, and what is refused.
 */
#include "support/pool_check.h"
#include "support/prefix_check.h"
#include "support/prefix_pool.h"

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

/* With spans of 64, a prompt of 100 has a span and 35 tokens outside, and one of 64 has no span. */
static void check_spans(void)
{
    static const int32_t expected[][2] = {{100, 96}, {65, 64},   {97, 96},   {64, 0},   {60, 32},
                                          {129, 64}, {129, 128}, {250, 128}, {250, 224}};
    specbatch_pool *pool = plain_pool(64);

    CHECK(pool != NULL);
    CHECK_INT(found(pool, 0, 100), 0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        CHECK_INT(found(pool, 0, expected[i][0]), expected[i][1]);
    specbatch_pool_free(pool);
}

static void test_a_hit_ends_where_a_cold_prompt_has_other_spans(void)
{
    with_spans(64, check_spans);
}

/* The blocks of a pin are those of a prompt that goes on for less than a span. */
static void check_pins_and_spans(void)
{
    specbatch_pool *pool = plain_pool(3);
    int32_t ids[LONGEST];
    uint64_t pin;

    CHECK(pool != NULL);
    write_text(ids, 0, LONGEST);
    CHECK_OK(specbatch_pool_pin(pool, ids, 100, &pin));
    CHECK_INT(found(pool, 0, 250), 0);
    CHECK_INT(found(pool, 2, 40), 0);
    CHECK_INT(found(pool, 0, 250), 64);
    CHECK_INT(found(pool, 0, 120), 64);
    CHECK_INT(found(pool, 0, 120), 96);
    specbatch_pool_free(pool);
}

static void test_a_pin_has_the_spans_of_its_ids(void)
{
    with_spans(64, check_pins_and_spans);
}

/* An answer is found by the next turn: 100 tokens and 20, of which the last has no entry; then 40
 * and 20 more, the entries of which follow those in the next block. */
static void test_the_next_turn_finds_the_answer(void)
{
    static const uint64_t hits[] = {0, 96, 160};
    specbatch_pool *pool = plain_pool(64);
    int32_t ids[LONGEST + 60], n = 100;

    CHECK(pool != NULL);
    write_text(ids, 0, n);
    for (int turn = 0; turn < 3; turn++) {
        const specbatch_request request = request_of(ids, n);
        const uint64_t before = stat(pool, "prefix_tokens");
        specbatch_result *result;
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        CHECK_INT(stat(pool, "prefix_tokens") - before, hits[turn]);
        CHECK((result = take(pool)) != NULL);
        memcpy(ids + n, specbatch_result_tokens(result, NULL), MAX_NEW * sizeof *ids);
        specbatch_result_free(result);
        n += MAX_NEW;
        write_text(ids + n, 3, 40);
        n += turn == 0 ? 40 : 30;
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
    int32_t ids[100];
    uint64_t passes[3];

    CHECK(pool != NULL);
    write_text(ids, 0, 100);
    for (int i = 0; i < 3; i++) {
        specbatch_request request = request_of(ids, 100);
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

/* A slot of this pool has some columns more. */
static void test_a_pin_is_no_longer_than_max_len(void)
{
    specbatch_pool *pool = plain_pool(64);
    int32_t ids[301];
    uint64_t pin;

    CHECK(pool != NULL);
    CHECK_INT(pool->options.max_len, 300);
    write_text(ids, 0, 301);
    CHECK_ERROR(specbatch_pool_pin(pool, ids, 301, &pin), SPECBATCH_E_INVALID,
                "the prefix has 301 tokens, outside 32..300");
    CHECK_OK(specbatch_pool_pin(pool, ids, 300, &pin));
    CHECK_OK(specbatch_pool_unpin(pool, pin));
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

    options.cache_columns = UINT64_MAX; /* or a budget would make the caches smaller */
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
    options.prefix_bytes = UINT64_MAX;
    CHECK_INT(specbatch_pool_create(&pool, target, draft, &options), SPECBATCH_E_BUDGET);
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
RUN(test_a_hit_ends_where_a_cold_prompt_has_other_spans);
RUN(test_a_pin_has_the_spans_of_its_ids);
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
RUN(test_a_pin_is_no_longer_than_max_len);
RUN(test_pins_are_refused);
RUN(test_less_than_a_block_is_refused);
RUN(test_a_failing_device_ends_the_pool);
close_pair();
TEST_END
