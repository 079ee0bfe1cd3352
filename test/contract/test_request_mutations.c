/*
 * Mutations of what requests may want: each fault of fault.h that breaks the contract for requests
 * that sample, stop, mask and so on is switched on, and random traces (test_requests.c) are run
 * until one of them differs from plain decoding. The plain answers are made without the fault. A
 * fault that no trace notices fails the test.
 */
#include "fault.h"
#include "sbtest.h"
#include "support/request_trace.h"

unsigned sb_fault_now = SB_FAULT_NONE;

enum { TRACES = 60 };

static struct request_trace trace = {.policy = -1};

static void expect_caught(unsigned fault, const char *name)
{
    char why[600];
    int caught = 0;

    for (uint64_t seed = 1; seed <= TRACES && !caught; seed++) {
        CHECK_OK(request_trace_ask(&trace, seed));
        sb_fault_now = fault;
        caught = request_trace_run(&trace, seed, why, sizeof why);
        sb_fault_now = SB_FAULT_NONE;
        if (caught)
            printf("     %s: caught by trace %" PRIu64 ": %.60s\n", name, seed, why);
    }
    CHECK(caught || fault == SB_FAULT_NONE);
    CHECK(!caught || fault != SB_FAULT_NONE);
}

#define FAULT(test, fault)                       \
    static void test(void)                       \
    {                                            \
        expect_caught(SB_FAULT_##fault, #fault); \
    }

FAULT(test_no_fault, NONE)
FAULT(test_noise_by_round, NOISE_BY_ROUND)
FAULT(test_penalty_of_rejected_tokens, PENALTY_OF_REJECTED)
FAULT(test_ties_to_the_highest_id, TIES_TO_HIGHEST)
FAULT(test_mask_of_the_wrong_prefix, MASK_OF_WRONG_PREFIX)
FAULT(test_stop_strings_noticed_late, STOP_STRING_LATE)
FAULT(test_text_of_stops_kept, STOP_TEXT_KEPT)
FAULT(test_alternatives_of_another_token, TOPS_SHIFTED)
FAULT(test_answers_share_a_seed, SEED_SHARED)
FAULT(test_the_best_by_the_sum, BEST_BY_SUM)
FAULT(test_queued_requests_outlive_their_deadline, DEADLINE_SPARES_QUEUED)
FAULT(test_priority_alone, PRIORITY_ALONE)

TEST_BEGIN
if (specbatch_model_open(&trace.target, "examples/demo/draft", NULL)) {
    printf("FAIL open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_no_fault);
RUN(test_noise_by_round);
RUN(test_penalty_of_rejected_tokens);
RUN(test_ties_to_the_highest_id);
RUN(test_mask_of_the_wrong_prefix);
RUN(test_stop_strings_noticed_late);
RUN(test_text_of_stops_kept);
RUN(test_alternatives_of_another_token);
RUN(test_answers_share_a_seed);
RUN(test_the_best_by_the_sum);
RUN(test_queued_requests_outlive_their_deadline);
RUN(test_priority_alone);
specbatch_model_close(trace.target);
TEST_END
