/* The contract over long prompts on a GPU, whether cuDNN or the own kernel computes their attention
 * there; the fingerprint says which. */
#include "cuda/kept_prompts.h"
#include "cuda/long_prompts.h"
#include "sbtest.h"
#include "support/place.h"

static int32_t open_model(specbatch_model **model)
{
    specbatch_model_options options = place_options();

    *model = NULL;
    options.compute = SPECBATCH_COMPUTE_BF16;
    return specbatch_model_open(model, "test/data/models/long_qwen3_hd128_bf16", &options);
}

static void test_long_prompts_beside_short_ones(void)
{
    specbatch_model *model;
    char why[200] = "";

    CHECK_OK(open_model(&model));
    printf("     %s\n", specbatch_model_fingerprint(model));
    const int holds = long_prompts_hold(model, why, sizeof why);
    specbatch_model_close(model);
    if (!holds)
        FAIL("%s", why);
}

static void test_kept_prefixes_and_preempted_requests(void)
{
    specbatch_model *model;
    char why[300] = "";

    CHECK_OK(open_model(&model));
    const int differ = kept_prompts_differ(model, why, sizeof why);
    specbatch_model_close(model);
    if (differ)
        FAIL("%s", why);
}

TEST_BEGIN
RUN(test_long_prompts_beside_short_ones);
RUN(test_kept_prefixes_and_preempted_requests);
TEST_END
