/*
 * Logits on a device, real or simulated (place.h), compared by memcmp.
 *
 *   f32 reference class   with the CPU backend's logits, which test_golden.c compares with those of
 *                         transformers
 *   16-bit class          each way to compute a token with each other way: alone, in a prompt, in
 *                         chunks, beside copies, behind padding. They must also be near the CPU's
 *                         logits
 */
#include "cuda/logits.h"
#include "sbtest.h"
#include "support/place.h"
#include "support/trace.h"

#define MODELS "test/data/models"
enum { MOST_VOCAB = 517, LONGEST = 200, FEW = 4 /* tokens of 80 */ };

/* The models, what their weights are quantised to, and whether results in 16 bits must be near
 * those of the CPU's 16-bit class. With two experts whose logits are nearly equal, rounding decides
 * who computes a token, and in f32 that is another one. And whether it decides so for a few tokens
 * beside the CPU's 16-bit class, too, as that adds up in another order. */
static const struct {
    const char *name;
    int32_t weights, is_near_16_bits, has_few_far;
} models[] = {
    {"qwen3_untied_f32_sharded", SPECBATCH_WEIGHTS_AUTO, 0, 0},
    {"llama3_scaled_biased_tied_bf16", SPECBATCH_WEIGHTS_AUTO, 0, 0},
    {"glm4_unbiased_bf16", SPECBATCH_WEIGHTS_AUTO, 0, 0},
    {"qwen2_tied_f32", SPECBATCH_WEIGHTS_AUTO, 0, 0},
    {"llama_untied_f32_sharded", SPECBATCH_WEIGHTS_AUTO, 0, 0},
    {"llama_mha_f16", SPECBATCH_WEIGHTS_AUTO, 0, 0},
    {"qwen3_yarn_f32", SPECBATCH_WEIGHTS_AUTO, 0, 0},
    {"smollm3_bf16", SPECBATCH_WEIGHTS_AUTO, 0, 0},
    {"long_qwen3_hd128_bf16", SPECBATCH_WEIGHTS_AUTO, 0, 0},
    {"qwen3_untied_f32_sharded", SPECBATCH_WEIGHTS_Q8, 0, 0},
    {"llama3_scaled_biased_tied_bf16", SPECBATCH_WEIGHTS_Q4, 0, 0},
    {"gemma2_bf16", SPECBATCH_WEIGHTS_AUTO, 0, 0}, /* soft caps, and windows of 70 */
    {"gemma3_bf16", SPECBATCH_WEIGHTS_AUTO, 0, 0}, /* windows of 70 */
    {"gemma3_bf16", SPECBATCH_WEIGHTS_Q8, 0, 0},
    {"qwen2_window_f32", SPECBATCH_WEIGHTS_AUTO, 0, 0},
    {"mixtral_f16", SPECBATCH_WEIGHTS_AUTO, 0, 0},
    {"mixtral_f16", SPECBATCH_WEIGHTS_Q8, 1, 0},
    {"glm4_moe_bf16", SPECBATCH_WEIGHTS_AUTO, 1, 0},
    {"qwen3_moe_bf16", SPECBATCH_WEIGHTS_AUTO, 1, 0},
    {"qwen3_moe_bf16", SPECBATCH_WEIGHTS_Q4, 1, 0},
    {"gpt_oss_mxfp4", SPECBATCH_WEIGHTS_AUTO, 1, 1},
};
enum { N_MODELS = sizeof models / sizeof models[0] };

static int32_t ids[LONGEST], vocab; /* of the model that is open */
static float expected[LONGEST * MOST_VOCAB], got[LONGEST * MOST_VOCAB];

static void make_ids(void)
{
    uint64_t state = 7;

    for (int i = 0; i < LONGEST; i++)
        ids[i] = 3 + (int32_t)(trace_random(&state) % (uint32_t)(vocab - 3));
}

static int32_t open_pair(specbatch_model **cpu, specbatch_model **device, int i, int32_t compute)
{
    specbatch_model_options options = place_options(), on_cpu = SPECBATCH_MODEL_OPTIONS_INIT;
    char path[200];
    int32_t rc;

    *cpu = *device = NULL;
    on_cpu.compute = models[i].is_near_16_bits ? compute : SPECBATCH_COMPUTE_F32;
    options.compute = compute;
    on_cpu.weights = options.weights = models[i].weights;
    snprintf(path, sizeof path, MODELS "/%s", models[i].name);
    rc = specbatch_model_open(cpu, path, &on_cpu);
    if (rc == SPECBATCH_OK)
        rc = specbatch_model_open(device, path, &options);
    if (rc == SPECBATCH_OK) {
        vocab = (*cpu)->config.vocab;
        make_ids();
    }
    return rc;
}

/* Index of the first token whose logits differ, or -1. */
static int32_t first_difference(const float *a, const float *b, int32_t n)
{
    for (int32_t t = 0; t < n; t++)
        if (memcmp(a + (size_t)t * (size_t)vocab, b + (size_t)t * (size_t)vocab,
                   (size_t)vocab * sizeof *a) != 0)
            return t;
    return -1;
}

/* The worst difference of a logit as a share of the largest of all, but for the `left_out` tokens
 * that have the worst. None may have a NaN. */
static double worst_difference(int32_t n, int32_t left_out)
{
    double largest = 0.0, worst[LONGEST] = {0.0};

    for (size_t i = 0; i < (size_t)n * (size_t)vocab; i++) {
        const double off = fabs((double)expected[i] - (double)got[i]);
        double *of_token = &worst[i / (size_t)vocab];
        largest = fmax(largest, fabs((double)expected[i]));
        *of_token = isnan(got[i]) ? INFINITY : fmax(*of_token, off);
    }
    for (int32_t i = 0; i <= left_out; i++)
        for (int32_t t = i + 1; t < n; t++)
            if (worst[t] > worst[i]) {
                const double other = worst[i];
                worst[i] = worst[t];
                worst[t] = other;
            }
    return isinf(worst[0]) ? INFINITY : worst[left_out] / largest;
}

static void test_the_f32_class_has_the_cpus_bits(void)
{
    static const struct logits_run ways[] = {
        {ids, 33, 0, 33, 1, 1}, {ids, 33, 5, 33, 1, 1}, {ids, 130, 0, 120, 3, 1},
        {ids, 40, 2, 7, 6, 3},  {ids, 9, 0, 1, 1, 2},   {ids, 70, 1, 65, 5, 2},
    };

    for (int i = 0; i < N_MODELS; i++) {
        specbatch_model *cpu, *device;
        CHECK_OK(open_pair(&cpu, &device, i, SPECBATCH_COMPUTE_F32));
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            struct logits_run whole = {ids, ways[w].n, 0, ways[w].n, 1, 1};
            int32_t differs;
            CHECK_OK(logits_of(expected, cpu, &whole));
            CHECK_OK(logits_of(got, device, &ways[w]));
            differs = first_difference(got, expected, ways[w].n);
            if (differs >= 0)
                FAIL("%s, way %d: token %d differs from the CPU's", models[i].name, (int)w,
                     differs);
        }
        printf("     %-34s %s\n", models[i].name, specbatch_model_fingerprint(device));
        specbatch_model_close(cpu);
        specbatch_model_close(device);
    }
}

/* Every product's inputs are rounded to bf16 about twice, which leaves errors of some 2^-9 of the
 * largest value, and these grow over a few layers. A wrong head, mask or position would make errors
 * as large as the logits themselves. */
static void test_the_16_bit_class_is_invariant(void)
{
    static const struct logits_run ways[] = {
        {ids, 80, 3, 80, 1, 1}, {ids, 80, 0, 1, 1, 1},  {ids, 80, 0, 70, 5, 1},
        {ids, 80, 1, 33, 6, 3}, {ids, 80, 0, 80, 1, 2},
    };

    for (int i = 0; i < N_MODELS; i++) {
        const struct logits_run whole = {ids, 80, 0, 80, 1, 1};
        specbatch_model *cpu, *device;
        double worst;
        CHECK_OK(open_pair(&cpu, &device, i, SPECBATCH_COMPUTE_BF16));
        CHECK_OK(logits_of(expected, cpu, &whole));
        CHECK_OK(logits_of(got, device, &whole));
        worst = worst_difference(80, models[i].has_few_far ? FEW : 0);
        printf("     %-34s %.1e of the largest logit from the CPU's; %s\n", models[i].name, worst,
               specbatch_model_fingerprint(device));
        if (!(worst < 0.05))
            FAIL("%s: far from the CPU's", models[i].name);
        memcpy(expected, got, sizeof got);
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            int32_t differs;
            CHECK_OK(logits_of(got, device, &ways[w]));
            differs = first_difference(got, expected, 80);
            if (differs >= 0)
                FAIL("%s, way %d: token %d differs from a whole prompt's", models[i].name, (int)w,
                     differs);
        }
        specbatch_model_close(cpu);
        specbatch_model_close(device);
    }
}

TEST_BEGIN
RUN(test_the_f32_class_has_the_cpus_bits);
RUN(test_the_16_bit_class_is_invariant);
TEST_END
