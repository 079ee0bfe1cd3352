/*
 * The tensor core's sum of products, as it is reported to work: in fixed point, and not as a chain
 * of rounded additions.
 *
 *     exponent   the largest of the exponents of the products and of the accumulator. A product's
 *                exponent is the sum of its factors' (so 1.5 * 1.5 counts as 0); products and
 *                accumulator are exact
 *     sum        of products and accumulator, each first cut off to a multiple of
 *                2^(exponent - FRACTION)
 *     result     the sum, cut off to f32's 24 bits
 *
 * On sm_90 a step of 16 along k is one such sum with 25 fraction bits. On sm_80 it is two sums of 8
 * products with 24 fraction bits; the first one's result is the second one's accumulator. (MMA-Sim,
 * arXiv:2511.10909; "Accurate Models of NVIDIA Tensor Cores", arXiv:2512.07004.) No GPU has
 * confirmed this file. The tests need three properties of it: the order of products within a step
 * changes nothing, the order of steps does, and no chain of fused multiply-adds has the same bits.
 */
#include "tensor.h"

#include "runtime.h"

#include <math.h>
#include <string.h>

namespace cudasim
{

/* With AVX2 the shifts of eight products are one instruction. Functions that are inlined there must
 * be compiled for AVX2 too. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TENSOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TENSOR_CLONES
#endif

/* The exponents of zero and of what is not finite lie outside those of all other numbers, on either
 * side. */
static const int32_t NOTHING = -10000, SPECIAL = 1 << 20, MOST_SHIFT = 31;

/* Splits an element of bf16 or f16, which has at most 11 significant bits. */
static void split(int32_t *value, int32_t *exponent, float element)
{
    uint32_t bits;
    memcpy(&bits, &element, sizeof bits);
    const int32_t biased = (int32_t)(bits >> 23 & 255u), fraction = (int32_t)(bits >> 13 & 1023u);
    const int32_t magnitude = biased > 0 ? fraction + 1024 : fraction;

    *value = bits >> 31 ? -magnitude : magnitude;
    *exponent = biased == 255    ? SPECIAL
                : magnitude == 0 ? NOTHING
                                 : (biased > 0 ? biased : 1) - 127;
}

tensor_factors tensor_split(const float *elements, size_t n, int32_t *values, int32_t *exponents)
{
    for (size_t i = 0; i < n; i++)
        split(&values[i], &exponents[i], elements[i]);
    return {elements, values, exponents};
}

/* value * 2^exponent cut off to 24 bits; the value has fewer than 40. */
static __forceinline__ float cut_off(int64_t value, int exponent)
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

/* Infinities and NaN come out as in f32 arithmetic, but every NaN is the one that the device makes.
 */
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

/* One sum of N products. If an operand is not finite, *special is set and nothing is computed. A
 * product has at most 22 bits, and the sum of N of them with the fraction's bits fewer than 31. */
template <int N, int FRACTION>
static __forceinline__ float fixed_sum(float c, const int32_t *a, const int32_t *a_exponents,
                                       const int32_t *b, const int32_t *b_exponents, bool *special)
{
    int32_t bits, sum = 0;

    memcpy(&bits, &c, sizeof bits);
    const int32_t biased = bits >> 23 & 255, c_exponent = (biased ? biased : 1) - 127,
                  c_magnitude = (bits & 0x7fffff) | (biased ? 0x800000 : 0);
    int32_t largest = biased == 255 ? SPECIAL : c_magnitude ? c_exponent : NOTHING;
    for (int k = 0; k < N; k++) {
        const int32_t exponent = a_exponents[k] + b_exponents[k];
        largest = exponent > largest ? exponent : largest;
    }
    *special = largest > SPECIAL / 2;
    if (*special || largest < NOTHING / 2)
        return c;
    for (int k = 0; k < N; k++) {
        const int32_t product = a[k] * b[k], away = largest - a_exponents[k] - b_exponents[k];
        const uint32_t magnitude = (uint32_t)(product < 0 ? -product : product) << (FRACTION - 20);
        const int32_t steps = (int32_t)(magnitude >> (away < MOST_SHIFT ? away : MOST_SHIFT));
        sum += product < 0 ? -steps : steps;
    }
    const int32_t away = largest - c_exponent;
    const int64_t steps = ((int64_t)c_magnitude << (FRACTION - 23)) >>
                          (away < MOST_SHIFT ? away : MOST_SHIFT);
    return cut_off(bits < 0 ? sum - steps : sum + steps, largest - FRACTION);
}

template <int N, int FRACTION>
static __forceinline__ float sum_of_steps(float c, const tensor_factors &a, size_t at_a,
                                          const tensor_factors &b, size_t at_b, int64_t n)
{
    for (int64_t k = 0; k < n; k += N) {
        bool special;
        c = fixed_sum<N, FRACTION>(c, &a.values[at_a + k], &a.exponents[at_a + k],
                                   &b.values[at_b + k], &b.exponents[at_b + k], &special);
        if (special)
            c = special_sum(c, a.elements + at_a + k, b.elements + at_b + k, N);
    }
    return c;
}

TENSOR_CLONES
float tensor_sum(float c, const tensor_factors &a, size_t at_a, const tensor_factors &b,
                 size_t at_b, int64_t n)
{
    return compute_major() >= 9 ? sum_of_steps<16, 25>(c, a, at_a, b, at_b, n)
                                : sum_of_steps<8, 24>(c, a, at_a, b, at_b, n);
}

/* Eight columns of b, side by side: [k][column]. */
struct eight_columns {
    int32_t values[16][8], exponents[16][8];
};

/* The same as fixed_sum, for eight outputs of a row at once: N products from `first` on. If an
 * output is special or a sum of zeros only, it returns false and none is computed. */
template <int N, int FRACTION>
static __forceinline__ bool fixed_sums(float c[8], const int32_t *a, const int32_t *a_exponents,
                                       const eight_columns &b, int first)
{
    int32_t bits[8], largest[8], steps[8], sum[8] = {0};

    memcpy(bits, c, sizeof bits);
    for (int j = 0; j < 8; j++) {
        const int32_t biased = bits[j] >> 23 & 255;
        const bool is_zero = (bits[j] & 0x7fffffff) == 0;
        largest[j] = is_zero ? NOTHING : biased == 255 ? SPECIAL : (biased ? biased : 1) - 127;
    }
    for (int k = 0; k < N; k++)
        for (int j = 0; j < 8; j++) {
            const int32_t exponent = a_exponents[k] + b.exponents[first + k][j];
            largest[j] = exponent > largest[j] ? exponent : largest[j];
        }
    for (int j = 0; j < 8; j++)
        if (largest[j] > SPECIAL / 2 || largest[j] < NOTHING / 2)
            return false;
    for (int j = 0; j < 8; j++) {
        const int32_t biased = bits[j] >> 23 & 255,
                      away = largest[j] - ((biased ? biased : 1) - 127);
        const int32_t magnitude = (bits[j] & 0x7fffff) | (biased ? 0x800000 : 0);
        steps[j] = magnitude << (FRACTION - 23) >> (away < MOST_SHIFT ? away : MOST_SHIFT);
    }
    for (int k = 0; k < N; k++)
        for (int j = 0; j < 8; j++) {
            const int32_t product = a[k] * b.values[first + k][j],
                          away = largest[j] - a_exponents[k] - b.exponents[first + k][j];
            const uint32_t magnitude = (uint32_t)(product < 0 ? -product : product)
                                       << (FRACTION - 20);
            const int32_t part = (int32_t)(magnitude >> (away < MOST_SHIFT ? away : MOST_SHIFT));
            sum[j] += product < 0 ? -part : part;
        }
    for (int j = 0; j < 8; j++)
        c[j] = cut_off((int64_t)sum[j] + (bits[j] < 0 ? -steps[j] : steps[j]),
                       largest[j] - FRACTION);
    return true;
}

template <int N, int FRACTION>
static __forceinline__ void row_of_sums(float d[8], const tensor_factors &a, const eight_columns &b,
                                        const float b_elements[8][16])
{
    for (int k = 0; k < 16; k += N) {
        if (fixed_sums<N, FRACTION>(d, a.values + k, a.exponents + k, b, k))
            continue;
        for (int j = 0; j < 8; j++) {
            int32_t values[N], exponents[N];
            const tensor_factors column = tensor_split(b_elements[j] + k, N, values, exponents);
            d[j] = sum_of_steps<N, FRACTION>(d[j], a, (size_t)k, column, 0, N);
        }
    }
}

TENSOR_CLONES void tensor_core(float d[16][8], const float a[16][16], const float b[8][16])
{
    const bool whole = compute_major() >= 9;
    eight_columns columns;

    device_clock += 20; /* so that products of many rows take longer than moving weights */

    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++)
            split(&columns.values[k][j], &columns.exponents[k][j], b[j][k]);
    for (size_t i = 0; i < 16; i++) {
        int32_t values[16], exponents[16];
        const tensor_factors row = tensor_split(a[i], 16, values, exponents);
        if (whole)
            row_of_sums<16, 25>(d[i], row, columns, b);
        else
            row_of_sums<8, 24>(d[i], row, columns, b);
    }
}

} // namespace cudasim

extern "C" float cudasim_tensor_sum(float c, const float *a, const float *b)
{
    int32_t values[2][16], exponents[2][16];

    return cudasim::tensor_sum(c, cudasim::tensor_split(a, 16, values[0], exponents[0]), 0,
                               cudasim::tensor_split(b, 16, values[1], exponents[1]), 0, 16);
}
