/*
 * Mutations that show only where cuDNN computes spans of prompts, on the simulated device. Like the
 * others, in test/contract/test_mutations.c, each is a fault of src/fault.h that is switched on
 * after plain decoding has been asked, and must change a token or a log-probability.
 */
#include "cudasim.h"

#include "cuda/kept_prompts.h"
#include "cuda/three_spans.h"
#include "fault.h"
#include "sbtest.h"

unsigned sb_fault_now = SB_FAULT_NONE;

static specbatch_model *model;
static struct kept_answer answers[KEPT];
static struct preempted_answer alone[PREEMPTED];

static const int32_t prompts[] = {0, 2};

/* 700 tokens, and then 520 of which the first 290 are the same. */
static int long_prompts_differ(char *why, size_t size)
{
    return kept_in_turn_differ(model, answers, prompts, NULL, 2, why, size);
}

static void test_no_fault_is_not_caught(void)
{
    char why[300];

    if (long_prompts_differ(why, sizeof why) || preempted_differ(model, alone, 0, why, sizeof why))
        FAIL("%s", why);
}

static void test_prefix_ends_inside_a_span(void)
{
    char why[300];

    sb_fault_now = SB_FAULT_SPAN_CUT;
    const int caught = long_prompts_differ(why, sizeof why);
    sb_fault_now = SB_FAULT_NONE;
    if (!caught)
        FAIL("a prefix that ends inside a span was not noticed");
    printf("     caught: %s\n", why);
}

static void test_recomputed_as_prompt(void)
{
    char why[300];

    sb_fault_now = SB_FAULT_RECOMPUTED_AS_PROMPT;
    const int caught = preempted_differ(model, alone, 0, why, sizeof why);
    sb_fault_now = SB_FAULT_NONE;
    if (!caught || !strstr(why, "answers differ"))
        FAIL("an answer that was computed anew as a prompt was not noticed: %s", why);
    printf("     caught: %s\n", why);
}

static int32_t open_and_ask(const char *path)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    int32_t rc;

    cudasim_cudnn(91900);
    options.device = SPECBATCH_DEVICE_CUDA;
    options.compute = SPECBATCH_COMPUTE_BF16;
    options.prefill = SPECBATCH_PREFILL_CUDNN;
    rc = specbatch_model_open(&model, path, &options);
    if (rc == SPECBATCH_OK)
        rc = kept_ask(model, answers, prompts, 2);
    return rc == SPECBATCH_OK ? preempted_ask(model, alone) : rc;
}

TEST_BEGIN
const struct test_dir dir = three_spans_make();
const int32_t opened = open_and_ask(dir.path);
test_dir_remove(&dir);
if (opened != SPECBATCH_OK)
    printf("FAIL the model does not open: %s\n", specbatch_last_error());
else {
    RUN(test_no_fault_is_not_caught);
    RUN(test_prefix_ends_inside_a_span);
    RUN(test_recomputed_as_prompt);
}
specbatch_model_close(model);
if (opened != SPECBATCH_OK)
    return 1;
TEST_END
