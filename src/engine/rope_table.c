/*
 * The tables of the rotary position embedding, computed step by step as transformers does
 * (modeling_rope_utils.py: _compute_{default,linear_scaling,llama3,yarn,longrope}_parameters).
 *
 * The precision of each step is chosen to give the same tables as torch. Torch computes frequencies
 * in float, so every step that is float there is float here. Only the power is computed in double
 * and then rounded; torch's powf differs from that by one ulp at most. Frequencies in double would
 * be more accurate and further from torch: at position p, one ulp in the frequency moves the angle
 * by p ulps, which shows in long prompts. The angle is one float product, as in torch. Its sine and
 * cosine are computed in double and rounded once.
 */
#include "engine/rope_table.h"

#include <math.h>

#include "status.h"

static const double PI = 3.14159265358979323846;

/* Llama 3.1 keeps the frequencies of short wavelengths, divides those of long wavelengths by the
 * factor, and blends the two between. */
static float llama3_frequency(const struct sb_rope_config *rope, float frequency)
{
    const float factor = (float)rope->factor;
    const float low = (float)rope->low_freq;
    const float wavelength = (float)(2.0 * PI) / frequency;
    float smooth;

    if (wavelength < (float)(rope->original_context / rope->high_freq))
        return frequency;
    if (wavelength > (float)(rope->original_context / rope->low_freq))
        return frequency / factor;
    smooth = ((float)rope->original_context / wavelength - low) /
             (float)(rope->high_freq - rope->low_freq);
    return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

/* The dimension (a real number) that turns `rotations` times within the original context (YaRN,
 * equation 17 and after). */
static double yarn_dimension(const struct sb_rope_config *rope, double rotations)
{
    return rope->rot_dim * log(rope->original_context / (rotations * 2.0 * PI)) /
           (2.0 * log(rope->theta));
}

/* YaRN keeps the frequencies of dimensions below `low`, divides those above `high` by the factor,
 * and goes from one to the other along a ramp. power: 1 / frequency of dimension i, unscaled. */
static float yarn_frequency(const struct sb_rope_config *rope, float power, int32_t i)
{
    double low = yarn_dimension(rope, rope->beta_fast);
    double high = yarn_dimension(rope, rope->beta_slow);
    float ramp, keep;

    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0.0 ? low : 0.0;
    high = high < rope->rot_dim - 1 ? high : rope->rot_dim - 1;
    if (low == high)
        high += 0.001;
    ramp = ((float)i - (float)low) / (float)(high - low);
    ramp = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
    keep = 1.0f - ramp;
    return 1.0f / ((float)rope->factor * power) * (1.0f - keep) + 1.0f / power * keep;
}

/* The frequency of dimension pair i, in radians per position. */
static float frequency_of(const struct sb_rope_config *rope, int32_t i)
{
    const float exponent = (float)(2 * i) / (float)rope->rot_dim;
    const float power = (float)pow((double)(float)rope->theta, (double)exponent);

    switch (rope->kind) {
    case SB_ROPE_LINEAR:
        return 1.0f / power / (float)rope->factor;
    case SB_ROPE_LLAMA3:
        return llama3_frequency(rope, 1.0f / power);
    case SB_ROPE_YARN:
        return yarn_frequency(rope, power, i);
    case SB_ROPE_LONGROPE:
        return 1.0f / (rope->divisors[i] * power);
    case SB_ROPE_NONE: /* cosines are 1 and sines 0, by which elements stay what they are */
        return 0.0f;
    case SB_ROPE_DEFAULT:
        break;
    }
    return 1.0f / power;
}

int32_t sb_rope_tables(float *cos_table, float *sin_table, const struct sb_rope_config *rope,
                       int32_t n_positions)
{
    const int32_t half = rope->rot_dim / 2;
    const float scale = (float)rope->attention_factor;

    if (n_positions < 1 || half < 1 || rope->rot_dim % 2 != 0)
        return sb_fail(SPECBATCH_E_INVALID, "rotary tables of %d positions and %d dimensions",
                       (int)n_positions, (int)rope->rot_dim);
    for (int32_t i = 0; i < half; i++) {
        const float frequency = frequency_of(rope, i);
        for (int32_t p = 0; p < n_positions; p++) {
            const double angle = (double)((float)p * frequency);
            const size_t at = (size_t)p * (size_t)half + (size_t)i;
            cos_table[at] = (float)cos(angle) * scale;
            sin_table[at] = (float)sin(angle) * scale;
        }
    }
    return SPECBATCH_OK;
}
