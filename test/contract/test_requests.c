/*
 * The contract over what requests may want:
 *
 *     tokens, log-probabilities, text, end (any request; any policy, batch, K, draft, order)
 *         == those of plain decoding at batch 1
 *
 * for random requests that sample with filters, penalties and biases, that ban what would end them,
 * that end at strings, whose tokens a mask restricts, that have several answers or the best of
 * some, whose prompts are scored, that have priorities and deadlines, and so on
 * (support/random_request.h). A trace follows from its seed, all but the moment at which some
 * deadlines come. Traces that never sample or never reject a proposal would show little, so each
 * kind of event has to have occurred. On a device, plain decoding is the CPU's where both have the
 * same bits.
 */
#include "sbtest.h"
#include "support/place.h"
#include "support/request_trace.h"

#define TINY "test/data/models/qwen3_untied_f32_sharded"

static struct request_trace trace;

static int open_models(const char *target, const char *small)
{
    const specbatch_model_options there = place_options();
    const specbatch_model_options *options = place_is_cuda() ? &there : NULL;
    specbatch_model_options here = SPECBATCH_MODEL_OPTIONS_INIT;

    here.compute = SPECBATCH_COMPUTE_F32;
    trace.policy = -1;
    return specbatch_model_open(&trace.target, target, options) ||
           specbatch_model_open(&trace.small, small, options) ||
           (place_is_cuda() && place_is_reference() &&
            specbatch_model_open(&trace.oracle, target, &here));
}

static void close_models(void)
{
    specbatch_model_close(trace.target);
    specbatch_model_close(trace.small);
    specbatch_model_close(trace.oracle);
    trace.target = trace.small = trace.oracle = NULL;
}

static void run_traces(uint64_t first)
{
    const uint64_t n = place_traces(place_is_small() ? 2 : 40);
    char why[600];

    for (uint64_t seed = first; seed < first + n; seed++) {
        CHECK_OK(request_trace_ask(&trace, seed));
        if (request_trace_run(&trace, seed, why, sizeof why))
            FAIL("seed %" PRIu64 ": %s", seed, why);
    }
}

static void test_every_policy(void)
{
    CHECK_INT(open_models(TINY, TINY ".draft"), 0);
    for (trace.policy = 0; trace.policy < specbatch_policy_count(); trace.policy++)
        run_traces(100 * (uint64_t)trace.policy);
    close_models();
}

static void test_with_text(void)
{
    CHECK_INT(open_models("examples/demo/draft", "examples/demo/draft"), 0);
    run_traces(2000);
    close_models();
}

static void test_that_all_of_it_occurred(void)
{
    const struct request_counts *c = &trace.counts;

    printf("     %" PRIu64 " requests, %" PRIu64 " sampled, %" PRIu64 " masked, %" PRIu64
           " without a choice, %" PRIu64 " at strings, %" PRIu64 " cancelled\n",
           c->requests, c->sampled, c->masked, c->failed, c->stopped, c->cancelled);
    printf("     %" PRIu64 " tokens, %" PRIu64 " forced, proposals %" PRIu64 " accepted %" PRIu64
           " rejected, %" PRIu64 " prefix hits, %" PRIu64 " preemptions\n",
           c->tokens, c->forced, c->accepted, c->rejected, c->hits, c->preemptions);
    printf("     %" PRIu64 " one of several answers, %" PRIu64 " prompts shared, %" PRIu64
           " scored\n",
           c->several, c->shared, c->scored);
    printf("     %" PRIu64 " the best of several, %" PRIu64 " too late, %" PRIu64
           " times one overtook another\n",
           c->chosen, c->late, c->overtaken);
    CHECK(c->sampled > 0 && c->accepted > 0 && c->rejected > 0 && c->masked > 0);
    if (place_is_small())
        return;
    CHECK(c->cancelled > 0 && c->failed > 0 && c->forced > 0 && c->stopped > 0);
    CHECK(c->hits > 0 && c->preemptions > 0);
    CHECK(c->several > 0 && c->shared > 0 && c->scored > 0);
    CHECK(c->chosen > 0 && c->late > 0 && c->overtaken > 0);
}

TEST_BEGIN
RUN(test_every_policy);
RUN(test_with_text);
if (!only)
    RUN(test_that_all_of_it_occurred);
TEST_END
