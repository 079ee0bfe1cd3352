/* The contract over long prompts on a GPU, with their attention by the own kernel and by cuDNN. */
#include "cuda/kept_prompts.h"
#include "cuda/long_prompts.h"
#include "sbtest.h"
#include "support/place.h"

static char logged[160]; /* the last line: where cuDNN does not compute, the reason */

static void on_log(void *user, int32_t level, const char *line)
{
    (void)user, (void)level;
    snprintf(logged, sizeof logged, "%s", line);
}

static int32_t open_model(specbatch_model **model, int32_t prefill)
{
    specbatch_model_options options = place_options();

    *model = NULL;
    options.compute = SPECBATCH_COMPUTE_BF16;
    options.prefill = prefill;
    options.log = on_log;
    return specbatch_model_open(model, "test/data/models/long_qwen3_hd128_bf16", &options);
}

static void check(int32_t prefill)
{
    const char *const by = prefill == SPECBATCH_PREFILL_CUDNN ? "prefill cudnn" : "prefill own";
    struct answer plain[PROMPTS];
    specbatch_model *model;
    char why[300] = "plain decoding";
    int is_right = 1, is_it;

    CHECK_OK(open_model(&model, prefill));
    printf("     %s\n", specbatch_model_fingerprint(model));
    is_it = strstr(specbatch_model_fingerprint(model), by) != NULL;
    if (is_it)
        is_right = run_plainly(model, plain) == SPECBATCH_OK &&
                   long_prompts_hold(model, plain, why, sizeof why) &&
                   !kept_prompts_differ(model, why, sizeof why);
    specbatch_model_close(model);
    if (!is_right)
        FAIL("%s", why);
    if (!is_it && prefill == SPECBATCH_PREFILL_CUDNN)
        SKIP("cuDNN computes nothing here: %s", logged);
    CHECK(is_it);
}

static void test_long_prompts_by_the_own_kernel(void)
{
    check(SPECBATCH_PREFILL_OWN);
}

static void test_long_prompts_by_cudnn(void)
{
    check(SPECBATCH_PREFILL_CUDNN);
}

TEST_BEGIN
RUN(test_long_prompts_by_the_own_kernel);
RUN(test_long_prompts_by_cudnn);
TEST_END
