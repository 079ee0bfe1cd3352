/*
 * The tensor core's sum of products, as it is reported: not a chain of rounded additions but fixed point.
 *
 *     exponent   the largest of the exponents of the products (each the sum of its factors' exponents, so 1.5 * 1.5
 *                counts as 0) and of the accumulator; products and accumulator are exact
 *     sum        of all of them in steps of 2^(exponent - FRACTION), what is below a step cut off each
 *     result     the sum, cut off to f32's 24 bits
 *
 * On sm_90 a step of 16 along k is one such sum with 25 fraction bits; on sm_80 it is two sums of 8 products, the
 * first one's result the second one's accumulator, with 24 (MMA-Sim, arXiv:2511.10909; "Accurate Models of NVIDIA
 * Tensor Cores", arXiv:2512.07004). No GPU has confirmed these lines. What matters here is that the order of
 * products within a step does not, that steps matter, and that no chain of fused multiply-adds has the same bits.
 */
#include "tensor.h"

#include <math.h>
#include <string.h>

namespace cudasim {

enum { NOTHING = -10000, SPECIAL = 10000, MOST_SHIFT = 31 };

/* At most 11 significant bits: an element of bf16 or f16. */
tensor_factor tensor_split(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const int32_t exponent = (int32_t)(bits >> 23 & 255u), fraction = (int32_t)(bits >> 13 & 1023u);
    if (exponent == 255)
        return {0, SPECIAL};
    if ((bits & 0x7fffffffu) == 0)
        return {0, NOTHING};
    const int32_t magnitude = exponent > 0 ? fraction + 1024 : fraction;
    return {bits >> 31 ? -magnitude : magnitude, (exponent > 0 ? exponent : 1) - 127};
}

/* value * 2^exponent cut off to 24 bits; the value has fewer than 40. */
static float cut_off(int64_t value, int exponent)
{
    uint64_t magnitude = (uint64_t)(value < 0 ? -value : value);
    const int spare = magnitude ? 40 - __builtin_clzll(magnitude) : 0; /* bits beyond 24 */

    if (spare > 0) {
        magnitude >>= spare;
        exponent += spare;
    }
    double scale;
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52; /* from -275 to 275 */
    memcpy(&scale, &bits, sizeof scale);
    return (float)((value < 0 ? -(double)magnitude : (double)magnitude) * scale);
}

/* Infinities and NaN as f32 arithmetic has them, NaN the one that the device makes. */
static float special_sum(float c, const float *a, const float *b, int n)
{
    double sum = c;
    float nan;
    const uint32_t bits = 0x7fffffffu;

    for (int k = 0; k < n; k++)
        sum += (double)a[k] * b[k];
    memcpy(&nan, &bits, sizeof nan);
    return isnan(sum) ? nan : (float)sum;
}

/* One sum of n <= 16 products. *special: an operand is not finite, and nothing is computed. */
static float fixed_sum(float c, const tensor_factor *a, const tensor_factor *b, int n, int fraction, bool *special)
{
    int32_t exponents[16], bits, largest;
    int64_t sum = 0;

    memcpy(&bits, &c, sizeof bits);
    const int32_t c_exponent = (bits >> 23 & 255) ? (bits >> 23 & 255) - 127 : -126;
    const int32_t c_magnitude = (bits & 0x7fffff) | (bits >> 23 & 255 ? 0x800000 : 0);
    largest = c_magnitude ? c_exponent : (int32_t)NOTHING;
    for (int k = 0; k < n; k++) {
        exponents[k] = a[k].exponent + b[k].exponent;
        largest = exponents[k] > largest ? exponents[k] : largest;
    }
    *special = c_exponent == 128;
    for (int k = 0; k < n; k++)
        *special |= a[k].exponent == SPECIAL || b[k].exponent == SPECIAL;
    if (*special || largest < NOTHING / 2)
        return c;
    for (int k = 0; k < n; k++) {
        const int32_t product = a[k].value * b[k].value, away = largest - exponents[k];
        const int32_t steps = (product < 0 ? -product : product) << (fraction - 20) >>
                              (away < MOST_SHIFT ? away : MOST_SHIFT);
        sum += product < 0 ? -steps : steps;
    }
    const int32_t away = largest - c_exponent;
    const int64_t steps = ((int64_t)c_magnitude << (fraction - 23)) >> (away < MOST_SHIFT ? away : MOST_SHIFT);
    sum += bits < 0 ? -steps : steps;
    return cut_off(sum, largest - fraction);
}

float tensor_step(float c, const tensor_factor *a, const tensor_factor *b, const float *a_values,
                  const float *b_values)
{
    const bool whole = compute_major() >= 9;
    const int n = whole ? 16 : 8;

    for (int k = 0; k < 16; k += n) {
        bool special;
        c = fixed_sum(c, a + k, b + k, n, whole ? 25 : 24, &special);
        if (special)
            c = special_sum(c, a_values + k, b_values + k, n);
    }
    return c;
}

void tensor_core(float d[16][8], const float a[16][16], const float b[8][16])
{
    tensor_factor rows[16][16], columns[8][16];

    for (int k = 0; k < 16; k++) {
        for (int i = 0; i < 16; i++)
            rows[i][k] = tensor_split(a[i][k]);
        for (int j = 0; j < 8; j++)
            columns[j][k] = tensor_split(b[j][k]);
    }
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++)
            d[i][j] = tensor_step(d[i][j], rows[i], columns[j], a[i], b[j]);
}

} // namespace cudasim

extern "C" float cudasim_tensor_sum(float c, const float *a, const float *b)
{
    cudasim::tensor_factor rows[16], columns[16];

    for (int k = 0; k < 16; k++) {
        rows[k] = cudasim::tensor_split(a[k]);
        columns[k] = cudasim::tensor_split(b[k]);
    }
    return cudasim::tensor_step(c, rows, columns, a, b);
}
