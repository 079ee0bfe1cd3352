/*
 * The counters of bytes: what a pool has taken is the sum of their parts, each part is what the
 * models' shapes make it, and what requests hold follows them from submission to collection. That
 * both of these hold after every step of random traces, pool_check.c sees to.
 */
#include "sbtest.h"
#include "support/pool_check.h"
#include "support/small_pool.h"

/* ------------------------------------------------------------ what a pool takes */

/* Bytes of one row of all activations but the logits; floats on the CPU. */
static uint64_t activation_row(const struct sb_config *c)
{
    const int32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;

    return (uint64_t)(3 * c->hidden + (q + 2 * kv) + q + 3 * c->inter) * sizeof(float);
}

/* What the shapes of a runner make of these parts. */
static uint64_t activations_of(const struct sb_runner *r)
{
    return (uint64_t)r->limits.max_tokens * activation_row(&r->model->config);
}

static uint64_t logits_of(const struct sb_runner *r)
{
    return (uint64_t)r->limits.max_out * (uint64_t)r->model->config.vocab * sizeof(float);
}

/* Each of a runner's eight buffers may be up to 255 bytes longer than its rows. */
static int is_about(uint64_t bytes, uint64_t rows_of_all)
{
    return bytes >= rows_of_all && bytes < rows_of_all + 2 * 8 * 256;
}

static void check_parts(const struct specbatch_pool *pool, uint64_t announced)
{
    const struct sb_runner *of_draft = pool->draft->runner, *of_target = &pool->runner;
    const uint64_t cache = stat(pool, "cache_bytes"), work = stat(pool, "work_bytes");

    CHECK_INT(cache + work, announced);
    CHECK_INT(stat(pool, "kv_reserved_bytes") + stat(pool, "prefix_bytes"), cache);
    CHECK_INT(cache, of_target->kv.bytes + (of_draft ? of_draft->kv.bytes : 0));
    CHECK_INT(stat(pool, "activation_bytes") + stat(pool, "logits_bytes") +
                  stat(pool, "table_bytes"),
              work);
    CHECK(is_about(stat(pool, "activation_bytes"),
                   activations_of(of_target) + (of_draft ? activations_of(of_draft) : 0)));
    CHECK(is_about(stat(pool, "logits_bytes"),
                   logits_of(of_target) + (of_draft ? logits_of(of_draft) : 0)));
    CHECK(stat(pool, "table_bytes") > 0 && stat(pool, "table_bytes") < work);
    CHECK_INT(stat(pool, "target_bytes"), specbatch_model_bytes(target));
    CHECK_INT(stat(pool, "draft_bytes"), of_draft ? specbatch_model_bytes(of_draft->model) : 0);
}

static void test_parts_add_up_to_what_was_announced(void)
{
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++) {
        for (int keeps = 0; keeps <= 1; keeps++) {
            specbatch_pool_options options = small_options(policy);
            specbatch_pool *pool;
            uint64_t bytes;

            options.prefix_bytes = keeps ? 1 << 20 : 0;
            CHECK_OK(specbatch_pool_bytes(&bytes, target, draft, &options));
            CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
            CHECK_INT(pool->draft->runner != NULL, policy != SPECBATCH_POLICY_PLAIN);
            check_parts(pool, bytes);
            CHECK_INT(stat(pool, "prefix_bytes") > 0, keeps);
            specbatch_pool_free(pool);
        }
    }
}

/* The tables of a draft without a model belong to the pool's other tables. */
static void test_a_draft_without_a_model_has_no_weights(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_draft *ngrams;
    specbatch_pool *pool;
    uint64_t bytes, without;

    CHECK_OK(specbatch_draft_from_ngrams(&ngrams, NULL));
    CHECK_OK(specbatch_pool_bytes(&bytes, target, ngrams, &options));
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    without = stat(pool, "table_bytes");
    specbatch_pool_free(pool);
    CHECK_OK(specbatch_pool_create(&pool, target, ngrams, &options));
    check_parts(pool, bytes);
    CHECK(stat(pool, "table_bytes") > without);
    specbatch_pool_free(pool);
    specbatch_draft_release(ngrams);
}

/* -------------------------------------------------------- what requests hold */

/* Entries that the target's cache has for a request. */
static uint64_t entries_of(specbatch_pool *pool, uint64_t id)
{
    specbatch_request_state state = SPECBATCH_REQUEST_STATE_INIT;

    if (specbatch_pool_state(pool, id, &state) != SPECBATCH_OK ||
        state.state == SPECBATCH_STATE_FINISHED)
        return 0;
    return state.n_generated > 0 ? state.n_prompt + state.n_generated - 1 : state.n_filled;
}

/* Plain decoding of more requests than have a slot at once. */
static void test_live_bytes_follow_the_requests(void)
{
    enum { N = 7 };
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);
    uint64_t column, most = 0;
    specbatch_pool *pool;
    size_t active = 1;

    options.prefill_chunk = 4;
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    column = sb_kv_column_bytes(&pool->runner.kv);
    for (int32_t i = 0; i < N; i++) {
        const specbatch_request request = small_request(5 + 3 * i);
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    }
    CHECK_INT(stat(pool, "kv_live_bytes"), 0);
    while (active) {
        uint64_t entries = 0;
        CHECK_OK(specbatch_pool_step(pool, &active));
        CHECK_OK(pool_check(pool));
        for (uint64_t id = 1; id <= N; id++)
            entries += entries_of(pool, id);
        CHECK_INT(stat(pool, "kv_live_bytes"), entries * column);
        CHECK(stat(pool, "kv_live_peak_bytes") >= entries * column);
        most = entries > most ? entries : most;
    }
    CHECK_INT(stat(pool, "kv_live_bytes"), 0);
    CHECK(most * column <= stat(pool, "kv_live_peak_bytes"));
    CHECK(stat(pool, "kv_live_peak_bytes") <= stat(pool, "kv_reserved_bytes"));
    specbatch_pool_free(pool);
}

static void test_a_cancelled_request_holds_no_cache(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_EXSPEC);
    const specbatch_request request = small_request(60);
    specbatch_pool *pool;
    uint64_t peak;

    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    for (int i = 0; i < 2; i++)
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    for (int i = 0; i < 3; i++)
        CHECK_OK(specbatch_pool_step(pool, NULL));
    peak = stat(pool, "kv_live_bytes");
    CHECK(peak > 0);
    CHECK_OK(specbatch_pool_cancel(pool, 1));
    CHECK_OK(pool_check(pool));
    CHECK(stat(pool, "kv_live_bytes") > 0 && stat(pool, "kv_live_bytes") < peak);
    CHECK_OK(specbatch_pool_cancel(pool, 2));
    CHECK_INT(stat(pool, "kv_live_bytes"), 0);
    CHECK_INT(stat(pool, "kv_live_peak_bytes"), peak);
    specbatch_pool_free(pool);
}

static void test_request_bytes_are_held_until_collection(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_request request = small_request(12);
    uint64_t without, with;
    specbatch_pool *pool;

    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    without = stat(pool, "request_bytes");
    CHECK_INT(without, sizeof(struct sb_seq) + (N_PROMPT + 12) * sizeof(int32_t));
    request.flags |= SPECBATCH_REQUEST_LOGPROBS;
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    with = stat(pool, "request_bytes") - without;
    CHECK_INT(with, without + 12 * sizeof(float));
    CHECK_OK(specbatch_pool_cancel(pool, 1));
    CHECK_OK(run_to_end(pool));
    CHECK_INT(stat(pool, "request_bytes"), without + with);
    specbatch_result_free(take(pool)); /* the cancelled one */
    CHECK_INT(stat(pool, "request_bytes"), with);
    specbatch_result_free(take(pool));
    CHECK_INT(stat(pool, "request_bytes"), 0);
    specbatch_pool_free(pool);
}

TEST_BEGIN
if (open_pair()) {
    printf("FAIL the models do not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_parts_add_up_to_what_was_announced);
RUN(test_a_draft_without_a_model_has_no_weights);
RUN(test_live_bytes_follow_the_requests);
RUN(test_a_cancelled_request_holds_no_cache);
RUN(test_request_bytes_are_held_until_collection);
close_pair();
TEST_END
