/*
 * The life of requests through the public API: refusals that change nothing, stopping, streaming,
 * cancelling, callbacks that misbehave, pools that die, and the memory a pool takes.
 */
#include <float.h>

#include "sbtest.h"
#include "support/metered.h"
#include "support/small_pool.h"

/* ----------------------------------------------------------------- refusals */

static void test_requests_are_refused_and_nothing_changes(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const int32_t bad_ids[] = {1, 2, 517};
    specbatch_pool *pool;
    specbatch_request request;
    specbatch_result *result;
    size_t active = 9;

    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    request = small_request(10);
    request.n_ids = 0;
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_INVALID, "");
    request = small_request(0);
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_INVALID, "max_new");
    request = small_request(128 - N_PROMPT + 1);
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_TOO_LONG, "max_len");
    request = small_request(10);
    request.ids = bad_ids;
    request.n_ids = 3;
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_TOKEN,
                "prompt id 2 is 517");
    request = small_request(10);
    request.stop_ids = bad_ids;
    request.n_stop_ids = 3;
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_TOKEN, "stop id 2");
    request = small_request(10);
    request.ids = NULL;
    request.n_ids = 0;
    request.text = "text";
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_NO_TOKENIZER, "tokenizer");
    request = small_request(10);
    request.draft_len = 65;
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_INVALID, "draft_len");
    CHECK_ERROR(specbatch_pool_submit(pool, NULL, NULL), SPECBATCH_E_INVALID, "");
    CHECK_ERROR(specbatch_pool_submit(NULL, &request, NULL), SPECBATCH_E_INVALID, "pool");
    CHECK_ERROR(specbatch_pool_collect(pool, &result), SPECBATCH_E_EMPTY, "");
    CHECK_ERROR(specbatch_pool_cancel(pool, 1), SPECBATCH_E_NOT_FOUND, "1");
    CHECK_OK(specbatch_pool_step(pool, &active));
    CHECK_INT(active, 0);
    CHECK_INT(stat(pool, "rounds"), 0);
    specbatch_pool_free(pool);
}

static void test_the_longest_request_fits(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_EXSPEC);
    const specbatch_request request = small_request(128 - N_PROMPT);
    specbatch_pool *pool;
    specbatch_result *result;
    size_t n;

    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(run_to_end(pool));
    CHECK((result = take(pool)) != NULL);
    specbatch_result_tokens(result, &n);
    CHECK_INT(n, 128 - N_PROMPT);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

static void test_queue_is_bounded(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_request request = small_request(4);
    specbatch_pool *pool;
    uint64_t id = 0;

    options.queue_max = 3;
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    for (uint64_t i = 1; i <= 3; i++) {
        CHECK_OK(specbatch_pool_submit(pool, &request, &id));
        CHECK_INT(id, i);
    }
    CHECK_ERROR(specbatch_pool_submit(pool, &request, &id), SPECBATCH_E_QUEUE_FULL, "queue_max");
    CHECK_INT(id, 3);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(specbatch_pool_submit(pool, &request, &id));
    CHECK_INT(id, 4);
    specbatch_pool_free(pool);
}

/* The times of a request are in the order of what happened to it, and stand still after its end. */
static void check_times(const specbatch_request_state *state)
{
    CHECK(state->time_queued_ns <= state->time_total_ns);
    CHECK(state->n_generated == 0 ? state->time_first_token_ns == 0
                                  : state->time_queued_ns < state->time_first_token_ns &&
                                        state->time_first_token_ns <= state->time_total_ns);
}

static void test_a_request_goes_from_state_to_state(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_request request = small_request(6);
    specbatch_request_state state = SPECBATCH_REQUEST_STATE_INIT;
    specbatch_request_state second = SPECBATCH_REQUEST_STATE_INIT;
    specbatch_pool *pool;
    specbatch_result *result;
    const int32_t *ids;
    size_t n;

    options.batch = 1;
    options.prefill_chunk = 4;
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(specbatch_pool_state(pool, 1, &state));
    CHECK_INT(state.state, SPECBATCH_STATE_QUEUED);
    CHECK(state.n_prompt == N_PROMPT && state.n_filled == 0);
    check_times(&state);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(specbatch_pool_state(pool, 1, &state));
    CHECK_INT(state.state, SPECBATCH_STATE_FILLING);
    CHECK(state.n_filled == 4 && state.n_generated == 0 && state.time_queued_ns > 0);
    check_times(&state);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(specbatch_pool_state(pool, 1, &state));
    CHECK_INT(state.state, SPECBATCH_STATE_DECODING);
    CHECK(state.n_filled == N_PROMPT && state.n_generated == 1 && state.finish == 0);
    check_times(&state);
    CHECK_OK(specbatch_pool_state(pool, 2, &second));
    CHECK_INT(second.state, SPECBATCH_STATE_QUEUED);
    CHECK_OK(specbatch_pool_cancel(pool, 2));
    CHECK_OK(specbatch_pool_state(pool, 2, &second));
    CHECK_INT(second.time_queued_ns, second.time_total_ns);
    CHECK_OK(run_to_end(pool));
    CHECK_OK(specbatch_pool_state(pool, 1, &state));
    CHECK_INT(state.state, SPECBATCH_STATE_FINISHED);
    CHECK_INT(state.finish, SPECBATCH_FINISH_LENGTH);
    check_times(&state);
    CHECK((result = take(pool)) != NULL); /* the cancelled one */
    CHECK_INT(specbatch_result_time_total_ns(result), second.time_total_ns);
    CHECK_INT(specbatch_result_time_first_token_ns(result), 0);
    specbatch_result_free(result);
    CHECK((result = take(pool)) != NULL);
    CHECK_INT(specbatch_result_time_queued_ns(result), state.time_queued_ns);
    CHECK_INT(specbatch_result_time_first_token_ns(result), state.time_first_token_ns);
    CHECK_INT(specbatch_result_time_total_ns(result), state.time_total_ns);
    ids = specbatch_result_prompt(result, &n);
    CHECK_INT(n, N_PROMPT);
    CHECK_MEM(ids, prompt, sizeof prompt);
    specbatch_result_free(result);
    CHECK(!specbatch_result_prompt(NULL, &n) && n == 0);
    CHECK_ERROR(specbatch_pool_state(pool, 1, &state), SPECBATCH_E_NOT_FOUND, "request 1");
    specbatch_pool_free(pool);
}

static void test_pools_are_refused(void)
{
    specbatch_pool_options options = small_options(99);
    specbatch_pool *pool = NULL;

    CHECK_ERROR(specbatch_pool_create(&pool, target, draft, &options), SPECBATCH_E_INVALID,
                "policy");
    options = small_options(0);
    options.batch = 4097;
    CHECK_ERROR(specbatch_pool_create(&pool, target, draft, &options), SPECBATCH_E_INVALID,
                "batch");
    options = small_options(SPECBATCH_POLICY_EXSPEC);
    options.window = 3;
    CHECK_ERROR(specbatch_pool_create(&pool, target, draft, &options), SPECBATCH_E_INVALID,
                "window");
    options = small_options(0);
    options.draft_len = 65;
    CHECK_ERROR(specbatch_pool_create(&pool, target, draft, &options), SPECBATCH_E_INVALID,
                "draft_len");
    options = small_options(0);
    options.max_len = 100000;
    CHECK_ERROR(specbatch_pool_create(&pool, target, draft, &options), SPECBATCH_E_INVALID,
                "max_len");
    CHECK_ERROR(specbatch_pool_create(&pool, NULL, draft, NULL), SPECBATCH_E_INVALID, "target");
    CHECK(pool == NULL);
}

static void test_draft_of_another_vocabulary(void)
{
    specbatch_model *demo;
    specbatch_pool *pool = NULL;

    CHECK_OK(specbatch_model_open(&demo, "examples/demo/draft", NULL));
    CHECK_ERROR(create_with_model(&pool, target, demo, NULL), SPECBATCH_E_VOCAB, "517");
    specbatch_model_close(demo);
}

/* ------------------------------------------------------------ life of requests */

static void test_results_outlive_pool_and_models(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_request request = small_request(6);
    specbatch_model *own;
    specbatch_pool *pool;
    specbatch_result *result;
    size_t n;

    CHECK_OK(specbatch_model_open(&own, TARGET, NULL));
    CHECK_OK(specbatch_pool_create(&pool, own, NULL, &options));
    specbatch_model_close(own);
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(run_to_end(pool));
    CHECK((result = take(pool)) != NULL);
    specbatch_pool_free(pool);
    CHECK(specbatch_result_tokens(result, &n) && n == 6);
    CHECK(strstr(specbatch_result_fingerprint(result), "cpu"));
    CHECK(specbatch_result_text(result, NULL) == NULL);
    CHECK_INT(specbatch_result_prompt_length(result), N_PROMPT);
    specbatch_result_free(result);
}

static void test_polling_streams_what_the_result_has(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_EXSPEC);
    const specbatch_request request = small_request(40);
    int32_t streamed[64];
    specbatch_pool *pool;
    specbatch_result *result;
    uint64_t id;
    size_t n, have = 0, active = 1;

    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, &id));
    while (active) {
        CHECK_OK(specbatch_pool_step(pool, &active));
        CHECK_OK(specbatch_pool_poll(pool, id, streamed + have, 3, &n));
        CHECK(n <= 3);
        have += n;
    }
    do {
        CHECK_OK(specbatch_pool_poll(pool, id, streamed + have, 3, &n));
        have += n;
    } while (n > 0);
    CHECK((result = take(pool)) != NULL);
    CHECK_INT(have, 40);
    CHECK_MEM(streamed, specbatch_result_tokens(result, NULL), 40 * sizeof *streamed);
    CHECK_ERROR(specbatch_pool_poll(pool, id, streamed, 3, &n), SPECBATCH_E_NOT_FOUND, "1");
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

/* Asking how many tokens wait takes none of them. A stream whose request was collected goes on with
 * the tokens of the result. */
static void test_what_was_not_polled_is_in_the_result(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_request request = small_request(20);
    int32_t streamed[32];
    const int32_t *tokens;
    specbatch_pool *pool;
    specbatch_result *result;
    uint64_t id;
    size_t n, waiting, have = 0;

    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, &id));
    for (int i = 0; i < 4; i++)
        CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(specbatch_pool_poll(pool, id, NULL, 0, &waiting));
    CHECK(waiting > 1);
    CHECK_OK(specbatch_pool_poll(pool, id, streamed, 0, &n));
    CHECK_INT(n, 0);
    CHECK_OK(specbatch_pool_poll(pool, id, streamed, 1, &have));
    CHECK_INT(have, 1);
    CHECK_OK(specbatch_pool_poll(pool, id, NULL, 0, &n));
    CHECK_INT(n, waiting - 1);
    CHECK_ERROR(specbatch_pool_poll(pool, id, NULL, 1, &n), SPECBATCH_E_INVALID, "ids");
    CHECK_OK(run_to_end(pool));
    CHECK((result = take(pool)) != NULL);
    tokens = specbatch_result_tokens(result, &n);
    CHECK_INT(n, 20);
    CHECK_INT(streamed[0], tokens[0]);
    CHECK_ERROR(specbatch_pool_poll(pool, id, NULL, 0, &n), SPECBATCH_E_NOT_FOUND, "1");
    specbatch_result_free(result);
    specbatch_pool_free(pool);
}

static void test_cancelling(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_EQSPEC);
    const specbatch_request request = small_request(60);
    specbatch_pool *pool;
    specbatch_result *result;
    uint64_t id[6];
    size_t n, active;

    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    for (int i = 0; i < 6; i++)
        CHECK_OK(specbatch_pool_submit(pool, &request, &id[i]));
    for (int i = 0; i < 5; i++)
        CHECK_OK(specbatch_pool_step(pool, &active));
    CHECK_INT(active, 6);
    CHECK_OK(specbatch_pool_cancel(pool, id[5])); /* queued */
    CHECK_OK(specbatch_pool_cancel(pool, id[1])); /* running */
    CHECK_ERROR(specbatch_pool_cancel(pool, id[1]), SPECBATCH_E_NOT_FOUND, "already finished");
    CHECK((result = take(pool)) != NULL);
    CHECK_INT(specbatch_result_id(result), id[5]);
    CHECK_INT(specbatch_result_finish(result), SPECBATCH_FINISH_CANCELLED);
    specbatch_result_tokens(result, &n);
    CHECK_INT(n, 0);
    specbatch_result_free(result);
    CHECK((result = take(pool)) != NULL);
    CHECK_INT(specbatch_result_id(result), id[1]);
    specbatch_result_tokens(result, &n);
    CHECK(n > 0 && n < 60);
    specbatch_result_free(result);
    CHECK_OK(specbatch_pool_step(pool, &active));
    CHECK_INT(active, 4);
    CHECK_OK(run_to_end(pool));
    specbatch_pool_free(pool);
}

static void test_stop_ids_end_a_request_at_once(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_request request = small_request(40);
    specbatch_pool *pool;
    specbatch_result *full, *cut;
    const int32_t *tokens;
    int32_t stop;
    size_t n, expected = 0;

    CHECK_OK(create_with_model(&pool, target, target, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(run_to_end(pool));
    CHECK((full = take(pool)) != NULL);
    tokens = specbatch_result_tokens(full, NULL);
    stop = tokens[8]; /* among accepted proposals: the draft is the target */
    while (tokens[expected] != stop)
        expected++;
    request.stop_ids = &stop;
    request.n_stop_ids = 1;
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(run_to_end(pool));
    CHECK((cut = take(pool)) != NULL);
    CHECK_MEM(specbatch_result_tokens(cut, &n), tokens, (expected + 1) * sizeof *tokens);
    CHECK_INT(n, expected + 1);
    CHECK_INT(specbatch_result_finish(cut), SPECBATCH_FINISH_STOP);
    specbatch_result_free(full);
    specbatch_result_free(cut);
    specbatch_pool_free(pool);
}

static void test_sorting_by_length_keeps_the_ids(void)
{
    static const size_t lengths[] = {7, 3, 5, 1, 6, 2};
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);
    specbatch_pool *pool;
    specbatch_result *result;
    size_t before = 0;

    options.batch = 1;
    options.flags |= SPECBATCH_POOL_SORT_BY_LENGTH;
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    for (int i = 0; i < 6; i++) {
        specbatch_request request = small_request(3);
        request.n_ids = lengths[i];
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    }
    CHECK_OK(run_to_end(pool));
    while ((result = take(pool)) != NULL) {
        CHECK(specbatch_result_prompt_length(result) > before);
        before = specbatch_result_prompt_length(result);
        CHECK_INT(lengths[specbatch_result_id(result) - 1], before);
        specbatch_result_free(result);
    }
    CHECK_INT(before, 7);
    specbatch_pool_free(pool);
}

/* ------------------------------------------------------------------ callbacks */

struct misbehaviour {
    specbatch_pool *pool;
    int32_t returns, n_out;
    int32_t status_inside;
    int calls;
};

static int32_t calls_back(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    struct misbehaviour *m = user;
    size_t active;

    m->calls++;
    m->status_inside = specbatch_pool_step(m->pool, &active);
    specbatch_pool_free(m->pool); /* refused: test_callbacks.c */
    rows[n_rows - 1]->n_out = m->n_out;
    return m->returns;
}

static void test_a_callback_may_not_use_its_pool(void)
{
    struct misbehaviour m = {0};
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_draft_ops ops = only_propose(calls_back, &m);
    const specbatch_request request = small_request(5);

    CHECK_OK(create_with_ops(&m.pool, target, &ops, &options));
    CHECK_OK(specbatch_pool_submit(m.pool, &request, NULL));
    CHECK_OK(run_to_end(m.pool));
    CHECK(m.calls > 0);
    CHECK_INT(m.status_inside, SPECBATCH_E_BUSY);
    specbatch_pool_free(m.pool);
}

static void test_a_callback_may_stop_the_step_and_go_on(void)
{
    struct misbehaviour m = {.returns = -1};
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_EXSPEC);
    const specbatch_draft_ops ops = only_propose(calls_back, &m);
    const specbatch_request request = small_request(5);
    specbatch_result *result;
    size_t active = 0, n;

    CHECK_OK(create_with_ops(&m.pool, target, &ops, &options));
    CHECK_OK(specbatch_pool_submit(m.pool, &request, NULL));
    CHECK_OK(specbatch_pool_step(m.pool, NULL)); /* the prompt */
    CHECK_ERROR(specbatch_pool_step(m.pool, &active), SPECBATCH_E_CANCELLED, "propose returned -1");
    m.returns = 0;
    m.n_out = 99;
    CHECK_ERROR(specbatch_pool_step(m.pool, &active), SPECBATCH_E_CANCELLED,
                "propose set n_out to 99");
    m.n_out = -1;
    CHECK_ERROR(specbatch_pool_step(m.pool, &active), SPECBATCH_E_CANCELLED,
                "propose set n_out to -1");
    m.n_out = 0;
    CHECK_OK(run_to_end(m.pool));
    CHECK((result = take(m.pool)) != NULL);
    specbatch_result_tokens(result, &n);
    CHECK_INT(n, 5);
    specbatch_result_free(result);
    specbatch_pool_free(m.pool);
}

/* ----------------------------------------------------------------- bad endings */

static void test_nan_logits_end_one_request(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_request request = small_request(20);
    specbatch_model *sick;
    specbatch_pool *pool;
    specbatch_result *result;
    size_t n;

    CHECK_OK(specbatch_model_open(&sick, TARGET, NULL));
    CHECK_OK(specbatch_pool_create(&pool, sick, draft, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    for (int i = 0; i < 4; i++)
        CHECK_OK(specbatch_pool_step(pool, NULL));
    sick->final_norm[0] = NAN;
    CHECK_OK(run_to_end(pool));
    CHECK((result = take(pool)) != NULL);
    CHECK_INT(specbatch_result_finish(result), SPECBATCH_FINISH_ERROR);
    CHECK_INT(specbatch_result_status(result), SPECBATCH_E_NAN);
    specbatch_result_tokens(result, &n);
    CHECK(n > 0 && n < 20);
    specbatch_result_free(result);
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL)); /* the pool lives on */
    specbatch_pool_free(pool);
    specbatch_model_close(sick);
}

static const struct sb_backend *sound;

/* Selects from logits of which one is the largest float and a later one infinite. */
static void select_infinite(struct sb_exec *exec, const struct sb_select *args)
{
    for (int32_t i = 0; i < args->m; i++) {
        args->logits[i * (int64_t)args->stride + 3] = FLT_MAX;
        args->logits[i * (int64_t)args->stride + 9] = INFINITY;
    }
    sound->select(exec, args);
}

/* Where min_new is reached among the proposals of a row, the sampler that bans what would end the
 * answer chooses before it, and the greedy rule behind it. The sampler takes infinity for the
 * largest float, and the greedy rule does not. */
static void test_infinite_logits_where_min_new_ends(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_ngram_options from_one = {.struct_size = sizeof from_one, .min_match = 1};
    specbatch_request request = small_request(12);
    struct sb_backend infinite;
    specbatch_model *model = NULL;
    specbatch_draft *ngrams = NULL;
    specbatch_pool *pool;
    specbatch_result *results[2];

    request.min_new = 6;
    request.stop_ids = prompt;
    request.n_stop_ids = 1;
    request.flags |= SPECBATCH_REQUEST_LOGPROBS | SPECBATCH_REQUEST_FILTERED_LOGPROBS;
    CHECK_OK(specbatch_model_open(&model, TARGET, NULL));
    CHECK_OK(specbatch_draft_from_ngrams(&ngrams, &from_one));
    sound = model->backend;
    infinite = *sound;
    infinite.select = select_infinite;
    model->backend = &infinite;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(specbatch_pool_create(&pool, model, i == 0 ? NULL : ngrams, &options));
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        CHECK((results[i] = take(pool)) != NULL);
        specbatch_pool_free(pool);
    }
    CHECK(specbatch_result_accepted(results[1]) > 0);
    CHECK_INT(specbatch_result_tokens(results[0], NULL)[5], 3);
    CHECK_INT(specbatch_result_tokens(results[0], NULL)[6], 9);
    CHECK_MEM(specbatch_result_tokens(results[1], NULL), specbatch_result_tokens(results[0], NULL),
              12 * sizeof(int32_t));
    CHECK_MEM(specbatch_result_logprobs(results[1], NULL),
              specbatch_result_logprobs(results[0], NULL), 12 * sizeof(float));
    model->backend = sound;
    specbatch_result_free(results[0]);
    specbatch_result_free(results[1]);
    specbatch_draft_release(ngrams);
    specbatch_model_close(model);
}

static void test_nan_in_the_draft_costs_only_time(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_request request = small_request(20);
    specbatch_model *sick;
    specbatch_pool *pool;
    specbatch_result *result, *other;

    CHECK_OK(specbatch_model_open(&sick, DRAFT, NULL));
    sick->final_norm[0] = NAN;
    CHECK_OK(create_with_model(&pool, target, sick, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(run_to_end(pool));
    CHECK((result = take(pool)) != NULL);
    CHECK_INT(specbatch_result_accepted(result), 0);
    specbatch_pool_free(pool);
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    CHECK_OK(run_to_end(pool));
    CHECK((other = take(pool)) != NULL);
    CHECK_MEM(specbatch_result_tokens(result, NULL), specbatch_result_tokens(other, NULL),
              20 * sizeof(int32_t));
    specbatch_result_free(result);
    specbatch_result_free(other);
    specbatch_pool_free(pool);
    specbatch_model_close(sick);
}

static int32_t broken_sync(struct sb_exec *exec)
{
    (void)exec;
    return SPECBATCH_E_DEVICE;
}

/* On a dead pool every call is refused, but for collect, which still has one result to give. */
static void check_dead(specbatch_pool *pool)
{
    const specbatch_request request = small_request(2);
    specbatch_result *result;
    int32_t ids[4];
    size_t n;

    CHECK_ERROR(specbatch_pool_step(pool, &n), SPECBATCH_E_DEVICE, "pool ended");
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_DEVICE, "pool ended");
    CHECK_ERROR(specbatch_pool_cancel(pool, 2), SPECBATCH_E_DEVICE, "pool ended");
    CHECK_ERROR(specbatch_pool_poll(pool, 2, ids, 4, &n), SPECBATCH_E_DEVICE, "pool ended");
    CHECK(stat(pool, "rounds") > 0 && stat(pool, "rounds") != UINT64_MAX);
    CHECK_OK(specbatch_pool_collect(pool, &result));
    specbatch_result_free(result);
    CHECK_ERROR(specbatch_pool_collect(pool, &result), SPECBATCH_E_DEVICE, "pool ended");
}

static int32_t sync_without_memory(struct sb_exec *exec)
{
    (void)exec;
    return SPECBATCH_E_NOMEM;
}

/* The device fails by this exec_sync in a step, when one of two requests has finished. */
static void check_device_failure(int32_t (*failing_sync)(struct sb_exec *))
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);
    struct sb_backend broken = *sb_backend_cpu();
    specbatch_request request = small_request(2);
    specbatch_pool *pool;
    size_t active = 2;

    options.batch = 2;
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    request.max_new = 50;
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    while (active == 2)
        CHECK_OK(specbatch_pool_step(pool, &active));
    broken.exec_sync = failing_sync;
    pool->runner.backend = &broken;
    CHECK_INT(specbatch_pool_step(pool, &active), SPECBATCH_E_DEVICE);
    CHECK_INT(specbatch_status_is_fatal(SPECBATCH_E_DEVICE), 1);
    pool->runner.backend = sb_backend_cpu();
    check_dead(pool);
    specbatch_pool_free(pool);
}

/* When a driver runs out of its own memory in a step, that is reported as a failure of the device:
 * the step has a fatal code, and the pool is dead. */
static void test_a_step_that_fails_is_fatal_by_its_code(void)
{
    check_device_failure(sync_without_memory);
}

static void test_a_dead_pool_says_so_and_gives_out_what_it_had(void)
{
    check_device_failure(broken_sync);
}

/* --------------------------------------------------------------------- memory */

/* A pool takes what specbatch_pool_bytes says, but for the prefixes of memory blocks and for the
 * handles themselves. */
static void test_a_pool_takes_what_it_says(void)
{
    struct meter meter = {0};
    specbatch_pool_options options = metered_options(SPECBATCH_POLICY_EXSPEC, &meter);
    specbatch_pool *pool;
    uint64_t bytes;

    options.prefix_bytes = 1 << 22;
    CHECK_OK(specbatch_pool_bytes(&bytes, target, draft, &options));
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    if (meter.now < bytes || meter.now > bytes + 65536)
        FAIL("%zu bytes taken, %" PRIu64 " announced", meter.now, bytes);
    CHECK(meter.largest >= pool->runner.kv.bytes); /* the target's cache is one block */
    specbatch_pool_free(pool);
    CHECK_INT(meter.now, 0);
}

TEST_BEGIN
if (open_pair()) {
    printf("FAIL the models do not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_requests_are_refused_and_nothing_changes);
RUN(test_the_longest_request_fits);
RUN(test_queue_is_bounded);
RUN(test_a_request_goes_from_state_to_state);
RUN(test_pools_are_refused);
RUN(test_draft_of_another_vocabulary);
RUN(test_results_outlive_pool_and_models);
RUN(test_polling_streams_what_the_result_has);
RUN(test_what_was_not_polled_is_in_the_result);
RUN(test_cancelling);
RUN(test_stop_ids_end_a_request_at_once);
RUN(test_sorting_by_length_keeps_the_ids);
RUN(test_a_callback_may_not_use_its_pool);
RUN(test_a_callback_may_stop_the_step_and_go_on);
RUN(test_nan_logits_end_one_request);
RUN(test_infinite_logits_where_min_new_ends);
RUN(test_nan_in_the_draft_costs_only_time);
RUN(test_a_dead_pool_says_so_and_gives_out_what_it_had);
RUN(test_a_step_that_fails_is_fatal_by_its_code);
RUN(test_a_pool_takes_what_it_says);
close_pair();
TEST_END
