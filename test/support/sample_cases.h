/*
 * Cases of sampling that every backend has to get right, written once: values that are special,
 * equal values, and as many changed ids as there may be. A test hands them a function that has its
 * backend choose for one row, and that compares the choice with whatever it has to compare with.
 */
#ifndef SBTEST_SAMPLE_CASES_H
#define SBTEST_SAMPLE_CASES_H

#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/noise.h"
#include "sbtest.h"
#include "support/cpu_ways.h"
#include "support/sample_reference.h"
#include "support/sample_rounds.h"

/* The id that is chosen of n logits, which are left as they are. The samplers have so many numbers
 * in their lists and words in their masks. */
typedef int32_t (*sample_choose)(float *logits, int32_t n, const struct sample_one *one,
                                 int64_t lists, int64_t masks);

static inline void sample_special_values(sample_choose choose)
{
    enum { N = 70 };
    float logits[N];
    uint32_t mask[3] = {0, 0, 0};
    struct sample_one one;

    sample_one_init(&one, &sample_plain, 0);
    one.all.masks = mask;
    one.all.mask_words = 3;
    for (int i = 0; i < N; i++)
        logits[i] = (float)i;
    /* nothing is allowed: by the mask, or since all are -infinity; also where the largest would be
     * chosen */
    for (int greedy = 0; greedy < 2; greedy++) {
        one.sampler.temperature = greedy ? 0.0f : 1.0f;
        one.sampler.mask_at = 0;
        CHECK_INT(choose(logits, N, &one, 0, 3), SB_PICK_NONE);
        mask[1] = 8;
        CHECK_INT(choose(logits, N, &one, 0, 3), 35);
        mask[1] = 0;
    }
    one.sampler = sample_plain;
    one.sampler.top_k = 3;
    for (int i = 0; i < N; i++)
        logits[i] = -INFINITY;
    CHECK_INT(choose(logits, N, &one, 0, 0), SB_PICK_NONE);
    logits[66] = -3e38f;
    CHECK_INT(choose(logits, N, &one, 0, 0), 66);
    /* infinities count as the largest float */
    logits[5] = logits[7] = INFINITY;
    logits[3] = 3.4028234e38f;
    for (one.pos[0] = 0; one.pos[0] < 10; one.pos[0]++)
        CHECK(choose(logits, N, &one, 0, 0) <= 7);
    one.sampler.temperature = 0.0f;
    CHECK_INT(choose(logits, N, &one, 0, 0), 3);
    logits[9] = NAN;
    CHECK_INT(choose(logits, N, &one, 0, 0), SB_PICK_NAN);
    /* a temperature so small or large that logits divided by it are infinite or 0 */
    for (int i = 0; i < N; i++)
        logits[i] = i == 33 ? 1001.0f : 1000.0f;
    one.sampler = sample_plain;
    one.sampler.temperature = 1.2e-38f;
    CHECK_INT(choose(logits, N, &one, 0, 0), 33);
    logits[0] = -INFINITY;
    one.sampler.temperature = 3e38f;
    one.sampler.typical_p = 0.9f; /* which looks at all that is allowed */
    for (one.pos[0] = 0; one.pos[0] < 5; one.pos[0]++)
        CHECK(choose(logits, N, &one, 0, 0) > 0);
    /* zeros of both signs and denormals are equal */
    for (int i = 0; i < N; i++)
        logits[i] = i < 40 ? -1.0f : i % 3 == 1 ? -0.0f : i % 3 == 2 ? 0.0f : -1e-40f;
    one.sampler = sample_plain;
    for (int turn = 0; turn < 6; turn++) {
        one.pos[0] = turn;
        one.sampler.top_k = turn % 3 == 0 ? 1 : turn % 3 == 1 ? 7 : 35;
        one.sampler.typical_p = turn < 3 ? 1.0f : 0.5f;
        CHECK(choose(logits, N, &one, 0, 0) >= (turn % 3 == 2 ? 0 : 40));
    }
}

/* What has no noise is chosen by noise alone; and of n ids with equal values, of which some pairs
 * are left, the lowest, whichever threads look at them. */
static inline void sample_equal_values(sample_choose choose, int32_t n, int32_t n_pairs)
{
    const int32_t words = (n + 31) / 32;
    float *logits = cpu_floats(n), *noise = cpu_floats(n);
    uint32_t *mask = cpu_memory((size_t)words * sizeof *mask);
    struct sample_one one;
    int32_t n_ties = 0, best = 0;

    sample_one_init(&one, &sample_plain, 0);
    for (int32_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {1, (uint32_t)i / 4, 0, 0};
        logits[i] = 2.5f;
        noise[i] = sb_noise(sample_reference_philox(sample_plain.seed, counter, i % 4));
        best = noise[i] > noise[best] ? i : best;
    }
    CHECK_INT(choose(logits, n, &one, 0, 0), best);
    one.sampler.mask_at = 0;
    one.all.masks = mask;
    for (int32_t i = 0; i < n && n_ties < n_pairs; i++)
        for (int32_t k = i + 1; k < n && k < i + 40000; k++)
            if (noise[i] == noise[k] && noise[i] > 0.5f) {
                memset(mask, 0, (size_t)words * sizeof *mask);
                mask[i / 32] |= UINT32_C(1) << i % 32;
                mask[k / 32] |= UINT32_C(1) << k % 32;
                CHECK_INT(choose(logits, n, &one, 0, words), i);
                n_ties++;
                i += n / 400;
                break;
            }
    CHECK_INT(n_ties, n_pairs);
    free(logits);
    free(noise);
    free(mask);
}

/* As many ids as penalties and bias may change. */
static inline void sample_many_changes(sample_choose choose, int n_turns)
{
    enum { N = SB_CHANGED_MAX + 100, TOKENS = 9000, BIAS = 50 };
    int32_t *lists = cpu_memory((TOKENS + 2 * BIAS) * sizeof *lists);
    float *logits = cpu_floats(N);
    struct sb_sampler sampler = sample_plain;
    struct sample_one one;

    sampler.repetition = 1.2f;
    sampler.frequency = 0.05f;
    sampler.n_tokens = sampler.n_listed = sampler.window = TOKENS;
    sampler.n_prompt = TOKENS / 3;
    sampler.n_bias = BIAS;
    sampler.bias_at = TOKENS;
    for (int i = 0; i < TOKENS + BIAS; i++)
        lists[i] = N - 1 - (i < SB_CHANGED_MAX ? i : sample_below(SB_CHANGED_MAX));
    for (int i = 0; i < BIAS; i++) {
        const float bias = cpu_uniform();
        memcpy(&lists[TOKENS + BIAS + i], &bias, sizeof bias);
    }
    for (int turn = 0; turn < n_turns; turn++) {
        sampler.seed = (uint64_t)turn;
        sampler.temperature = turn % 2 ? 0.2f : 0.0f;
        sample_one_init(&one, &sampler, 0);
        one.all.lists = lists;
        (void)choose(logits, N, &one, TOKENS + 2 * BIAS, 0);
    }
    free(lists);
    free(logits);
}

#endif
