/*
 * Mutations: a test of the contract is worth no more than the mistakes that it catches. Each fault
 * below is a mistake that a published batch speculative decoder makes or could make. It is switched
 * on, and traces as in test_contract.c are run until one of them reports a difference in tokens or
 * log-probabilities. A fault that no trace notices fails the test. What plain decoding gives is
 * computed before any fault is switched on, and pool_check is not called, so that a fault has to be
 * caught by what it does to the results.
 *
 * A fault in the draft cannot change a token. That one is caught by comparing the draft's cache
 * with a fresh prefill (support/draft_check.h). Faults that show only where prompts are computed in
 * spans are in test/cuda/test_span_mutations.c.
 */
#include "fault.h"
#include "model/model.h"
#include "sbtest.h"
#include "support/answers_check.h"
#include "support/draft_check.h"
#include "support/masked_runs.h"
#include "support/place.h"
#include "support/run_to_end.h"
#include "support/stop_oracle.h"
#include "support/text_model.h"
#include "support/trace.h"
#include "support/vtable_faults.h"

unsigned sb_fault_now = SB_FAULT_NONE;

enum { TRACES = 60 };

static struct trace_world world;
static const struct sb_backend *sound;

static void set_backend(const struct sb_backend *backend)
{
    for (int m = 0; m < world.n_models; m++)
        for (int level = 0; level < TRACE_LEVELS; level++)
            if (world.models[0][m].target[level])
                world.models[0][m].target[level]->backend = backend;
}

/* What the traces have in common. memory, scene: as in struct trace_bias. There is one thread,
 * because a fault may let two moves of entries write the same place at once. */
static struct trace_bias mutation_bias(int32_t policy, int32_t memory, int32_t scene)
{
    struct trace_bias bias = TRACE_ANY;

    bias.policy = policy;
    bias.class = 0;
    bias.level = SPECBATCH_SIMD_AUTO;
    bias.memory = memory;
    bias.scene = scene;
    bias.roomy = bias.no_invariants = bias.fixed_k = bias.most_threads = 1;
    bias.min_draft_len = 2;
    return bias;
}

/* Runs traces until one of them differs. */
static void expect_caught(const char *name, const struct trace_bias *bias)
{
    char why[600];
    uint64_t seed;

    for (seed = 1; seed <= TRACES; seed++)
        if (trace_run(&world, seed, bias, why, sizeof why))
            break;
    if (seed > TRACES)
        FAIL("%s: none of %d traces noticed", name, TRACES);
    printf("     %s: caught by trace %" PRIu64 ": %.60s\n", name, seed, why);
}

static void expect_engine_fault(enum sb_fault fault, const char *name, int32_t policy,
                                int32_t memory, int32_t scene)
{
    const struct trace_bias bias = mutation_bias(policy, memory, scene);

    sb_fault_now = fault;
    expect_caught(name, &bias);
    sb_fault_now = SB_FAULT_NONE;
}

/* A fault of products with quantised weights, of which TRACE_GGUF has those with minima too, or of
 * attention. */
static void expect_product_fault(enum sb_fault fault, const char *name, int32_t model,
                                 int32_t class)
{
    struct trace_bias bias = mutation_bias(-1, 0, TRACE_MIXED);

    bias.model = model;
    bias.class = class;
    sb_fault_now = fault;
    expect_caught(name, &bias);
    sb_fault_now = SB_FAULT_NONE;
}

static void expect_operation_fault(enum vtable_fault fault, int32_t policy)
{
    const struct trace_bias bias = mutation_bias(policy, 0, TRACE_MIXED);

    set_backend(vtable_with_fault(sound, fault));
    expect_caught(vtable_fault_name(fault), &bias);
    set_backend(sound);
}

static void test_no_fault_is_not_caught(void)
{
    char why[600];

    set_backend(vtable_with_fault(sound, VTABLE_NONE));
    for (int32_t memory = 0; memory < 2; memory++) {
        const struct trace_bias bias = mutation_bias(-1, memory, TRACE_MIXED);
        for (uint64_t seed = 1; seed <= 10; seed++)
            if (trace_run(&world, seed, &bias, why, sizeof why))
                FAIL("seed %" PRIu64 ": %s", seed, why);
    }
    set_backend(sound);
}

#define ENGINE_FAULT(test, fault, policy)                                     \
    static void test(void)                                                    \
    {                                                                         \
        expect_engine_fault(SB_FAULT_##fault, #test, policy, 0, TRACE_MIXED); \
    }
#define MEMORY_FAULT(test, fault, scene)                                    \
    static void test(void)                                                  \
    {                                                                       \
        expect_engine_fault(SB_FAULT_##fault, #test, -1, 1, TRACE_##scene); \
    }
#define OPERATION_FAULT(test, fault, policy)            \
    static void test(void)                              \
    {                                                   \
        expect_operation_fault(VTABLE_##fault, policy); \
    }

/* On a device one class is open, and none that runs mixtures. */
#define PRODUCT_FAULT(test, fault, model, class)                     \
    static void test(void)                                           \
    {                                                                \
        if (world.n_classes <= (class))                              \
            SKIP("this class is not open");                          \
        expect_product_fault(SB_FAULT_##fault, #test, model, class); \
    }

ENGINE_FAULT(test_bonus_from_the_draft, BONUS_FROM_DRAFT, -1)
ENGINE_FAULT(test_repad_without_unpad, REPAD_WITHOUT_UNPAD, SPECBATCH_POLICY_EQSPEC)
ENGINE_FAULT(test_last_kv_entry_assumed_present, LAST_KV_PRESENT, -1)
ENGINE_FAULT(test_stop_handled_after_the_wrong_token, STOP_LATE, -1)
ENGINE_FAULT(test_logprob_of_another_token, LOGPROB_SHIFTED, -1)
ENGINE_FAULT(test_prefill_loses_a_token, PREFILL_SKIPS_ONE, -1)
MEMORY_FAULT(test_prefix_taken_for_one_token_longer, HIT_ONE_LONG, MIXED)
MEMORY_FAULT(test_evicted_block_still_found, STALE_BLOCK, STRANGERS)
OPERATION_FAULT(test_pads_counted_in_positions, PADS_IN_POSITIONS, SPECBATCH_POLICY_EQSPEC)
OPERATION_FAULT(test_rejected_counted_in_positions, MASKED_IN_POSITIONS, SPECBATCH_POLICY_RAGGED)
OPERATION_FAULT(test_mask_hides_own_column, MASK_ONE_OFF, -1)
OPERATION_FAULT(test_mask_shows_next_column, MASK_SEES_NEXT, -1)
OPERATION_FAULT(test_pad_attended_to, PADS_ATTENDED, SPECBATCH_POLICY_EXSPEC)
OPERATION_FAULT(test_stale_kv_after_rejection, STALE_KV, SPECBATCH_POLICY_RAGGED)
OPERATION_FAULT(test_realign_by_the_wrong_rows_offset, REALIGN_WRONG_ROW, SPECBATCH_POLICY_EQSPEC)
OPERATION_FAULT(test_one_token_too_many_accepted, ACCEPT_ONE_MORE, -1)
PRODUCT_FAULT(test_scale_of_the_neighbour, SCALE_OF_NEIGHBOUR, TRACE_GGUF, 0)
PRODUCT_FAULT(test_minimum_dropped, MINIMUM_DROPPED, TRACE_GGUF, 0)
PRODUCT_FAULT(test_halves_of_bytes_exchanged, NIBBLES_EXCHANGED, TRACE_GGUF, 0)
PRODUCT_FAULT(test_scale_of_the_row_before, SCALE_OF_ANOTHER_ROW, TRACE_GGUF, TRACE_INT8)
PRODUCT_FAULT(test_minimum_dropped_from_integers, MINIMUM_DROPPED, TRACE_GGUF, TRACE_INT8)
PRODUCT_FAULT(test_keys_behind_a_query_attended_to, TILE_SEEN_WHOLE, TRACE_GGUF, TRACE_BF16)
PRODUCT_FAULT(test_window_of_another_query, WINDOW_OF_FIRST, TRACE_WINDOWED, TRACE_BF16)
PRODUCT_FAULT(test_experts_of_the_first_row, EXPERTS_OF_FIRST, TRACE_MIXTURE, TRACE_BF16)

/* There has to be another class. A device's has none on the same device. */
static void test_session_of_another_class_loaded(void)
{
    if (world.n_classes == 1)
        SKIP("one class alone is open");
    expect_engine_fault(SB_FAULT_SESSION_OF_ANY_CLASS, "session of any class", -1, 1, TRACE_MIXED);
}

/* Decodes a prompt, with stop strings unless there are none. NULL: this failed. */
static specbatch_result *decode(specbatch_model *model, const struct stop_strings *strings)
{
    const specbatch_stops stops = {sizeof stops, strings->at, strings->lengths, strings->n};
    const int32_t prompt[] = {301, 17, 340, 60};
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_result *result = NULL;
    specbatch_pool *pool = NULL;

    request.ids = prompt;
    request.n_ids = 4;
    request.max_new = 32;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    request.stops = strings->n > 0 ? &stops : NULL;
    if (specbatch_pool_create(&pool, model, NULL, NULL) == SPECBATCH_OK &&
        specbatch_pool_submit(pool, &request, NULL) == SPECBATCH_OK &&
        run_to_end(pool) == SPECBATCH_OK)
        specbatch_pool_collect(pool, &result);
    specbatch_pool_free(pool);
    return result;
}

/* Whether an answer ends otherwise than before a string that has been cut out of it. */
static int answer_differs(specbatch_model *model, const struct whole_answer *whole, uint64_t seed,
                          char *why, size_t size)
{
    struct stop_strings strings;
    struct cut_answer cut;
    specbatch_result *result;
    size_t n, length;

    stop_oracle_draw(&strings, whole, &seed);
    cut = stop_oracle_cut(whole, &strings, 0);
    if (!(result = decode(model, &strings)))
        return 0;
    specbatch_result_tokens(result, &n);
    specbatch_result_text(result, &length);
    specbatch_result_free(result);
    snprintf(why, size, "%zu tokens and %zu bytes, not %d and %zu", n, length, cut.n, cut.length);
    return n != (size_t)cut.n || length != cut.length;
}

/* Traces have models without text, so faults of stop strings are caught by random requests of one
 * that has some. */
static void expect_stop_fault(enum sb_fault fault, const char *name)
{
    static const struct stop_strings none;
    static struct whole_answer whole;
    specbatch_model *model = open_text_model("qwen", NULL);
    specbatch_result *result = model ? decode(model, &none) : NULL;
    const int32_t *ids;
    char why[200];
    uint64_t seed;
    size_t n;

    CHECK(result != NULL);
    ids = specbatch_result_tokens(result, &n);
    memcpy(whole.ids, ids, n * sizeof *ids);
    whole.n = (int32_t)n;
    specbatch_result_free(result);
    CHECK_OK(stop_oracle_read(&whole, model->tokenizer));
    for (seed = 1; seed <= TRACES; seed++)
        if (answer_differs(model, &whole, seed, why, sizeof why))
            FAIL("without a fault: %s", why);
    sb_fault_now = fault;
    for (seed = 1; seed <= TRACES; seed++)
        if (answer_differs(model, &whole, seed, why, sizeof why))
            break;
    sb_fault_now = SB_FAULT_NONE;
    specbatch_model_close(model);
    if (seed > TRACES)
        FAIL("%s: none of %d requests noticed", name, TRACES);
    printf("     %s: caught by request %" PRIu64 ": %s\n", name, seed, why);
}

static void test_stop_string_noticed_late(void)
{
    expect_stop_fault(SB_FAULT_STOP_STRING_LATE, "stop string late");
}

static void test_text_goes_on_behind_a_stop_string(void)
{
    expect_stop_fault(SB_FAULT_STOP_TEXT_KEPT, "stop text kept");
}

/* Answers to one prompt, which traces do not ask for. */
static void test_answers_share_a_seed(void)
{
    specbatch_model *target = world.models[0][0].target[0];
    const struct trace_prompt *prompt = &world.prompts[9];
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_sampling sampling;
    const specbatch_request request = answers_request(prompt->ids, (size_t)prompt->n, &sampling);
    static struct answers_plain plain;
    specbatch_pool *pool = NULL;
    char why[300] = "";
    int differs[2];

    options.n_threads = 1;
    CHECK_INT(answers_ask(&plain, target, &request, 4), 0);
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    for (int fault = 0; fault < 2; fault++) {
        sb_fault_now = fault ? SB_FAULT_SEED_SHARED : SB_FAULT_NONE;
        differs[fault] = answers_differ(&plain, pool, &request, 4, 0, why, sizeof why);
    }
    sb_fault_now = SB_FAULT_NONE;
    specbatch_pool_free(pool);
    if (differs[0] || !differs[1])
        FAIL("without the fault %s, with it %s", differs[0] ? why : "equal",
             differs[1] ? "different" : "equal");
    printf("     answers share a seed: caught: %.100s\n", why);
}

static void test_draft_kv_not_rolled_back(void)
{
    char why[300];

    sb_fault_now = SB_FAULT_DRAFT_NOT_ROLLED_BACK;
    const int caught = draft_cache_differs(world.models[0][0].target[0],
                                           world.models[0][0].draft[0], &world.prompts[9], why,
                                           sizeof why);
    sb_fault_now = SB_FAULT_NONE;
    if (!caught)
        FAIL("the draft's cache equals a fresh prefill in spite of the fault");
    printf("     draft KV not rolled back: caught: %.100s\n", why);
}

/* Faults of masks, which traces do not have. */
static void expect_mask_fault(enum sb_fault fault, const char *name, enum masked_draft draft)
{
    const struct masked_way way = {
        .policy = SPECBATCH_POLICY_RAGGED, .batch = 3, .draft_len = 4, .draft = draft};
    char why[600];

    if (place_is_cuda())
        SKIP("these requests run on the CPU");
    if (masked_open() != 0)
        FAIL("the models do not open: %s", specbatch_last_error());
    const int differed = masked_run(&way, why, sizeof why);
    sb_fault_now = fault;
    const int caught = masked_run(&way, why, sizeof why);
    sb_fault_now = SB_FAULT_NONE;
    masked_close();
    if (differed || !caught)
        FAIL("%s: %s", name, differed ? "a fault was seen where there is none" : "nobody noticed");
    printf("     %s: caught: %.100s\n", name, why);
}

static void test_mask_of_the_prefix_before(void)
{
    expect_mask_fault(SB_FAULT_MASK_OF_WRONG_PREFIX, "mask of wrong prefix", MASKED_RIGHT);
}

static void test_forced_token_not_verified(void)
{
    expect_mask_fault(SB_FAULT_FORCED_NOT_VERIFIED, "forced not verified", MASKED_NO_DRAFT);
}

TEST_BEGIN
const int opened = trace_world_open(&world, "test/data/models") || trace_world_ask(&world, 0);
if (opened != 0)
    printf("FAIL the world does not open: %s\n", specbatch_last_error());
else {
    sound = world.models[0][0].target[0]->backend;
    RUN(test_no_fault_is_not_caught);
    RUN(test_bonus_from_the_draft);
    RUN(test_repad_without_unpad);
    RUN(test_last_kv_entry_assumed_present);
    RUN(test_stop_handled_after_the_wrong_token);
    RUN(test_logprob_of_another_token);
    RUN(test_prefill_loses_a_token);
    RUN(test_prefix_taken_for_one_token_longer);
    RUN(test_evicted_block_still_found);
    RUN(test_session_of_another_class_loaded);
    RUN(test_pads_counted_in_positions);
    RUN(test_rejected_counted_in_positions);
    RUN(test_mask_hides_own_column);
    RUN(test_mask_shows_next_column);
    RUN(test_pad_attended_to);
    RUN(test_stale_kv_after_rejection);
    RUN(test_realign_by_the_wrong_rows_offset);
    RUN(test_one_token_too_many_accepted);
    RUN(test_scale_of_the_neighbour);
    RUN(test_minimum_dropped);
    RUN(test_halves_of_bytes_exchanged);
    RUN(test_answers_share_a_seed);
    RUN(test_scale_of_the_row_before);
    RUN(test_minimum_dropped_from_integers);
    RUN(test_keys_behind_a_query_attended_to);
    RUN(test_window_of_another_query);
    RUN(test_experts_of_the_first_row);
    RUN(test_draft_kv_not_rolled_back);
    RUN(test_mask_of_the_prefix_before);
    RUN(test_forced_token_not_verified);
    RUN(test_stop_string_noticed_late);
    RUN(test_text_goes_on_behind_a_stop_string);
}
trace_world_close(&world);
if (opened != 0)
    return 1;
TEST_END
