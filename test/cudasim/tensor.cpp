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

/* Splits n elements of bf16 or f16, which have at most 11 significant bits. It has no branches, so
 * that eight elements are one instruction. */
static __forceinline__ void split(int32_t *__restrict values, int32_t *__restrict exponents,
                                  const float *elements, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &elements[i], sizeof bits);
        const int32_t biased = bits >> 23 & 255, is_denormal = biased == 0, sign = bits >> 31;
        const int32_t magnitude = (bits >> 13 & 1023) + (is_denormal ? 0 : 1024);
        const int32_t exponent = magnitude == 0 ? NOTHING : biased + is_denormal - 127;
        values[i] = (magnitude ^ sign) - sign;
        exponents[i] = biased == 255 ? SPECIAL : exponent;
    }
}

TENSOR_CLONES
tensor_factors tensor_split(const float *elements, size_t n, int32_t *values, int32_t *exponents)
{
    split(values, exponents, elements, n);
    return {elements, values, exponents};
}

/* value * 2^exponent cut off to 24 bits; the value is an integer of fewer than 40. A double has 29
 * bits of fraction more than a float. */
static __forceinline__ float cut_off(double value, int exponent)
{
    const uint64_t power = (uint64_t)(exponent + 1023) << 52; /* from -280 to 275 */
    double scale;
    uint64_t bits;

    memcpy(&scale, &power, sizeof scale);
    memcpy(&bits, &value, sizeof bits);
    bits &= ~(((uint64_t)1 << 29) - 1);
    memcpy(&value, &bits, sizeof value);
    return (float)(value * scale);
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
    const int32_t steps = c_magnitude << (FRACTION - 23) >> (away < MOST_SHIFT ? away : MOST_SHIFT);
    return cut_off((double)sum + (bits < 0 ? -steps : steps), largest - FRACTION);
}

template <int N, int FRACTION>
static __forceinline__ float sum_of(float c, const tensor_factors &a, size_t at_a,
                                    const tensor_factors &b, size_t at_b)
{
    bool special;
    const float sum = fixed_sum<N, FRACTION>(c, a.values + at_a, a.exponents + at_a,
                                             b.values + at_b, b.exponents + at_b, &special);

    return special ? special_sum(c, a.elements + at_a, b.elements + at_b, N) : sum;
}

/* Eight outputs side by side. As vectors of the compiler, because loops over arrays of eight became
 * loops along k with as many shuffles as sums. */
typedef int32_t lanes __attribute__((vector_size(32)));
typedef uint32_t unsigned_lanes __attribute__((vector_size(32)));
typedef int64_t wide_lanes __attribute__((vector_size(64)));
typedef double double_lanes __attribute__((vector_size(64)));
typedef float float_lanes __attribute__((vector_size(32)));

static __forceinline__ void load(lanes &out, const int32_t in[8]) { memcpy(&out, in, sizeof out); }

static __forceinline__ bool any(const lanes &truths)
{
    int64_t pairs[4];

    memcpy(pairs, &truths, sizeof pairs);
    return (pairs[0] | pairs[1] | pairs[2] | pairs[3]) != 0;
}

/* Adds the terms magnitude * 2^-away, cut off to integers and with their signs. */
static __forceinline__ void add_cut_off(lanes &sum, const lanes &magnitude, const lanes &away,
                                        const lanes &sign)
{
    const lanes shift = away < MOST_SHIFT ? away : lanes{} + MOST_SHIFT;
    const lanes part = (lanes)((unsigned_lanes)magnitude >> (unsigned_lanes)shift);

    sum += (part ^ sign) - sign;
}

/* The same as cut_off, but c stays as it is where `keeps` says so. */
static __forceinline__ void cut_off(float c[8], const double_lanes &value, const lanes &exponent,
                                    const lanes &keeps)
{
    float_lanes old;

    memcpy(&old, c, sizeof old);
    const wide_lanes power = (__builtin_convertvector(exponent, wide_lanes) + 1023) << 52;
    const double_lanes kept = (double_lanes)((wide_lanes)value & ~(((int64_t)1 << 29) - 1));
    const float_lanes cut = __builtin_convertvector(kept * (double_lanes)power, float_lanes);
    const float_lanes out = keeps ? old : cut;
    memcpy(c, &out, sizeof out);
}

/* The same as fixed_sum, for eight outputs of a row at once: N products from `first` on. If an
 * output is special, it returns false and none is computed. */
template <int N, int FRACTION>
static __forceinline__ bool fixed_sums(float c[8], const int32_t *a, const int32_t *a_exponents,
                                       const tensor_step &b, int first)
{
    lanes bits, of_b, sum = {}, of_c = {};

    memcpy(&bits, c, sizeof bits);
    const lanes biased = bits >> 23 & 255, c_exponent = (biased ? biased : lanes{} + 1) - 127;
    const lanes is_zero = (bits & 0x7fffffff) == 0;
    lanes largest = biased == 255 ? lanes{} + SPECIAL : c_exponent;
    largest = is_zero ? lanes{} + NOTHING : largest;
    for (int k = 0; k < N; k++) {
        load(of_b, b.exponents[first + k]);
        const lanes exponent = of_b + a_exponents[k];
        largest = exponent > largest ? exponent : largest;
    }
    if (any(largest > SPECIAL / 2))
        return false;
    const lanes is_nothing = largest < NOTHING / 2;
    if (!any(~is_nothing))
        return true;
    for (int k = 0; k < N; k++) {
        load(of_b, b.exponents[first + k]);
        const lanes away = largest - a_exponents[k] - of_b;
        load(of_b, b.values[first + k]);
        const lanes product = of_b * a[k], sign = product >> 31;
        add_cut_off(sum, ((product ^ sign) - sign) << (FRACTION - 20), away, sign);
    }
    const lanes magnitude = (bits & 0x7fffff) | (biased ? lanes{} + 0x800000 : lanes{});
    add_cut_off(of_c, magnitude << (FRACTION - 23), largest - c_exponent, bits >> 31);
    const double_lanes all = __builtin_convertvector(sum, double_lanes) +
                             __builtin_convertvector(of_c, double_lanes);
    cut_off(c, all, largest - FRACTION, is_nothing);
    return true;
}

/* The same as sum_of, for eight outputs and the 16 products of a step. */
template <int N, int FRACTION>
static __forceinline__ void row_of_sums(float d[8], const tensor_factors &a, size_t at_a,
                                        const tensor_step &step, const tensor_factors &b,
                                        size_t at_b, size_t stride)
{
    for (size_t k = 0; k < 16; k += N) {
        if (fixed_sums<N, FRACTION>(d, a.values + at_a + k, a.exponents + at_a + k, step, (int)k))
            continue;
        for (size_t j = 0; j < 8; j++)
            d[j] = sum_of<N, FRACTION>(d[j], a, at_a + k, b, at_b + j * stride + k);
    }
}

tensor_step tensor_gather(const tensor_factors &b, size_t at, size_t stride)
{
    tensor_step step;

    for (size_t k = 0; k < 16; k++)
        for (size_t j = 0; j < 8; j++) {
            step.values[k][j] = b.values[at + j * stride + k];
            step.exponents[k][j] = b.exponents[at + j * stride + k];
        }
    return step;
}

TENSOR_CLONES
void tensor_sums(float c[8], const tensor_factors &a, size_t at_a, const tensor_step *steps,
                 size_t n_steps, const tensor_factors &b, size_t at_b, size_t stride)
{
    const bool whole = compute_major() >= 9;

    for (size_t i = 0; i < n_steps; i++)
        if (whole)
            row_of_sums<16, 25>(c, a, at_a + 16 * i, steps[i], b, at_b + 16 * i, stride);
        else
            row_of_sums<8, 24>(c, a, at_a + 16 * i, steps[i], b, at_b + 16 * i, stride);
}

void tensor_core(float d[16][8], const float a[16][16], const float b[8][16])
{
    int32_t values[2][256], exponents[2][256];
    const tensor_factors rows = tensor_split(a[0], 256, values[0], exponents[0]),
                         columns = tensor_split(b[0], 128, values[1], exponents[1]);
    const tensor_step step = tensor_gather(columns, 0, 16);

    device_clock += 20; /* so that products of many rows take longer than moving weights */

    for (size_t i = 0; i < 16; i++)
        tensor_sums(d[i], rows, 16 * i, &step, 1, columns, 0, 16);
}

} // namespace cudasim

extern "C" float cudasim_tensor_sum(float c, const float *a, const float *b)
{
    using namespace cudasim;
    int32_t values[2][16], exponents[2][16];
    const tensor_factors x = tensor_split(a, 16, values[0], exponents[0]),
                         y = tensor_split(b, 16, values[1], exponents[1]);

    return compute_major() >= 9 ? sum_of<16, 25>(c, x, 0, y, 0)
                                : sum_of<8, 24>(sum_of<8, 24>(c, x, 0, y, 0), x, 8, y, 8);
}
