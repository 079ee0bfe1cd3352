/*
 * The library's contract, tested as it is stated:
 *
 *     tokens(any policy, batch, K fixed or adaptive, arrival order, threads, SIMD level,
 *            columns of the caches, kept prefixes, preemptions, sessions, draft)
 *         == tokens(plain, batch 1)
 *
 * in each class: a compute class, a type of keys and values, and the types of the target's weights,
 * which may be quantised, and so may the draft's, to others. support/trace.h tells what a trace
 * is. A trace follows from its seed alone, so running the seed of a failure repeats it. Traces that
 * never hit a prefix would show nothing about prefixes, so each kind of event has to have occurred.
 */
#include "sbtest.h"
#include "support/place.h"
#include "support/trace.h"

static struct trace_world world;

static void traces(uint64_t first, uint64_t n, const struct trace_bias *bias)
{
    char why[600];

    for (uint64_t seed = first; seed < first + n; seed++)
        if (place_has_part(seed) && trace_run(&world, seed, bias, why, sizeof why))
            FAIL("seed %" PRIu64 ": %s", seed, why);
}

static void test_any(void)
{
    traces(1, place_traces(place_is_cuda() ? 130 : 90), &(struct trace_bias)TRACE_ANY);
}

/* Prints how often each kind of event has occurred so far, and fails if one never has. */
static void check_events(void)
{
    const char *missing = NULL;

    for (int event = 0; event < TRACE_EVENTS; event++) {
        const uint64_t n = world.events[event];
        printf("     %10" PRIu64 " %s\n", n, trace_event_name(event));
        if (n == 0 && (event < TRACE_REFUSED || world.n_classes > 1))
            missing = trace_event_name(event);
    }
    if (missing)
        FAIL("no %s: these traces do not test it", missing);
}

/* The scenes, of what other traces have now and then. A process that
 * runs a part of all traces has to meet each kind of event too. */
static void test_every_event_of_memory(void)
{
    for (int32_t scene = TRACE_TALK; scene < TRACE_SCENES && !sbtest_failed_now; scene++) {
        struct trace_bias bias = TRACE_ANY;
        bias.scene = scene;
        traces(6000 + (uint64_t)scene * 100, place_is_small() ? 4 : 8, &bias);
    }
    if (!sbtest_failed_now)
        check_events();
}

/* Models of one checkpoint with other weights are of other classes. */
static void check_fingerprints(void)
{
    for (int m = TRACE_QUANTISED; m < TRACE_MODELS; m++)
        for (int other = 0; other < m; other++) {
            const struct trace_model *a = &world.models[0][m], *b = &world.models[0][other];
            if (strcmp(a->path, b->path) == 0)
                CHECK(strcmp(specbatch_model_fingerprint(a->target[0]),
                             specbatch_model_fingerprint(b->target[0])) != 0);
        }
}

/* Every model with quantised weights, and whether each type of weights has had its part so far. On
 * a device, where traces are fewer, drafts may be without some. */
static void test_every_type_of_weights(void)
{
    for (int m = TRACE_QUANTISED; m < TRACE_MODELS && !sbtest_failed_now; m++) {
        struct trace_bias bias = TRACE_ANY;
        bias.model = m;
        traces(7000 + (uint64_t)m * 10, place_is_cuda() ? 2 : 3, &bias);
    }
    if (!sbtest_failed_now)
        check_fingerprints();
    for (int type = 0; type < SB_DTYPES && !sbtest_failed_now; type++) {
        printf("     %-5s %4" PRIu64 " targets, %4" PRIu64 " drafts\n",
               sb_dtype_name((enum sb_dtype)type), world.targets[type], world.drafts[type]);
        if (sb_dtype_is_quantised((enum sb_dtype)type) &&
            (world.targets[type] == 0 || (world.drafts[type] == 0 && !place_is_cuda())))
            FAIL("no target or no draft has them: these traces do not test it");
    }
}

/* In every class: the share of random traces that goes to one model is small. */
static void in_every_class(int32_t model, uint64_t first)
{
    for (int32_t class = 0; class < world.n_classes && !sbtest_failed_now; class ++) {
        struct trace_bias bias = TRACE_ANY;
        bias.model = model;
        bias.class = class;
        traces(first + (uint64_t) class * 10, place_is_small() ? 2 : 6, &bias);
    }
}

static void test_sliding_windows(void)
{
    in_every_class(TRACE_WINDOWED, 9000);
}

static void test_mixtures_of_experts(void)
{
    in_every_class(TRACE_MIXTURE, 9100);
}

static void test_soft_caps(void)
{
    in_every_class(TRACE_CAPPED, 9200);
}

/* Runs three traces for every policy and draft, on one model or on any (-1), and prints for each
 * policy how much was compared. Seeds are an odd number apart, so that each of two parts has its
 * share even of single traces. */
static void every_policy_with_every_draft(uint64_t first, int32_t model)
{
    for (int32_t policy = 0; policy < specbatch_policy_count() && !sbtest_failed_now; policy++) {
        const uint64_t n_requests = world.n_requests, n_tokens = world.n_tokens;
        for (int32_t draft = 0; draft < TRACE_DRAFTS && !sbtest_failed_now; draft++) {
            struct trace_bias bias = TRACE_ANY;
            bias.policy = policy;
            bias.draft = draft;
            bias.model = model;
            traces(first + (uint64_t)(11 * (policy * TRACE_DRAFTS + draft)), place_traces(3),
                   &bias);
        }
        printf("     %-10s %4" PRIu64 " requests, %6" PRIu64 " tokens equal\n",
               specbatch_policy_name(policy), world.n_requests - n_requests,
               world.n_tokens - n_tokens);
    }
}

static void test_every_policy_with_every_draft(void)
{
    every_policy_with_every_draft(1000, -1);
}

static void test_every_policy_on_the_given_checkpoint(void)
{
    every_policy_with_every_draft(5000, world.given);
}

static void test_adaptive_k_in_every_policy(void)
{
    for (int32_t policy = 0; policy < specbatch_policy_count() && !sbtest_failed_now; policy++)
        for (int32_t draft = 1; draft < TRACE_DRAFTS && !sbtest_failed_now; draft++) {
            struct trace_bias bias = TRACE_ANY;
            bias.policy = policy;
            bias.draft = draft;
            bias.fixed_k = 0;
            bias.min_draft_len = 1;
            traces(4000 + (uint64_t)(11 * (policy * TRACE_DRAFTS + draft)),
                   place_is_small() ? 1 : 2, &bias);
        }
}

/* Every class at one level: the oracle's tokens and log-probabilities are those of the best one. Of
 * five traces two are of models with quantised weights, each of which comes up in some class; in
 * scalar code, which is slow, one of three. */
static void every_class(int32_t level)
{
    const uint64_t n_requests = world.n_requests, n_tokens = world.n_tokens;
    const int n_quantised = level == SPECBATCH_SIMD_SCALAR ? 1 : 2;

    if (!world.models[0][0].target[level])
        SKIP("this machine lacks it");
    for (int class = 0; class < world.n_classes && !sbtest_failed_now; class ++) {
        struct trace_bias bias = TRACE_ANY;
        bias.class = class;
        bias.level = level;
        traces(2000 + (uint64_t)(level * 100 + class * 10), 1 + (uint64_t)n_quantised, &bias);
        for (int i = 0; i < n_quantised && !sbtest_failed_now; i++) {
            bias.model = TRACE_QUANTISED +
                         (n_quantised * class + i) % (TRACE_MODELS - TRACE_QUANTISED);
            traces(2000 + (uint64_t)(level * 100 + class * 10 + 3 + i), 1, &bias);
        }
    }
    printf("     %4" PRIu64 " requests, %6" PRIu64 " tokens equal\n", world.n_requests - n_requests,
           world.n_tokens - n_tokens);
}

static void test_every_class_in_scalar_code(void)
{
    every_class(SPECBATCH_SIMD_SCALAR);
}

static void test_every_class_by_avx2(void)
{
    every_class(SPECBATCH_SIMD_AVX2);
}

static void test_every_class_by_avx512(void)
{
    every_class(SPECBATCH_SIMD_AVX512);
}

static void test_every_class_by_amx(void)
{
    every_class(SPECBATCH_SIMD_AMX);
}

static void test_every_class_by_an_emulated_matrix_unit(void)
{
    every_class(TRACE_EMULATED);
}

/* These are also what test/contract/check_fast_math.sh runs, in a program that was built with
 * -ffast-math. */
static void test_a_few(void)
{
    traces(3000, 8, &(struct trace_bias)TRACE_ANY);
}

TEST_BEGIN
const int opened = trace_world_open(&world, "test/data/models");
if (opened != 0)
    printf("FAIL the world does not open: %s\n", specbatch_last_error());
else {
    RUN(test_a_few);
    RUN(test_any);
    RUN(test_every_event_of_memory);
    RUN(test_every_policy_with_every_draft);
    RUN(test_adaptive_k_in_every_policy);
    if (world.given >= 0)
        RUN(test_every_policy_on_the_given_checkpoint);
    RUN(test_every_type_of_weights);
    RUN(test_sliding_windows);
    RUN(test_mixtures_of_experts);
    RUN(test_soft_caps);
    if (!place_is_cuda()) {
        RUN(test_every_class_in_scalar_code);
        RUN(test_every_class_by_avx2);
        RUN(test_every_class_by_avx512);
        RUN(test_every_class_by_amx);
        RUN(test_every_class_by_an_emulated_matrix_unit);
    }
}
trace_world_close(&world);
if (opened != 0)
    return 1;
TEST_END
