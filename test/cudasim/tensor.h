/* The tensor core's arithmetic, for the simulated mma and for a cublasLt that uses it. */
#ifndef CUDASIM_TENSOR_H
#define CUDASIM_TENSOR_H

#include "sim.h"

namespace cudasim
{

/* Elements of bf16 or f16, widened, and the same as value * 2^(exponent - 10). */
struct tensor_factors {
    const float *elements;
    const int32_t *values, *exponents;
};

/* Fills values and exponents, n of each. */
tensor_factors tensor_split(const float *elements, size_t n, int32_t *values, int32_t *exponents);

/* A step of 16 along k of eight columns, side by side. */
struct tensor_step {
    int32_t values[16][8], exponents[16][8];
};

/* The step of eight columns of b that begins at `at` of the first; each column is `stride` elements
 * behind the one before. */
tensor_step tensor_gather(const tensor_factors &b, size_t at, size_t stride);

/* Adds to eight outputs the products of elements of a, from at_a on, and of eight columns, by
 * ascending steps. The steps are those of b from at_b on, as for tensor_gather. */
void tensor_sums(float c[8], const tensor_factors &a, size_t at_a, const tensor_step *steps,
                 size_t n_steps, const tensor_factors &b, size_t at_b, size_t stride);

/* d [16 x 8] += a [16 x 16] b [16 x 8], b by columns: the tensor core of the simulated device. */
void tensor_core(float d[16][8], const float a[16][16], const float b[8][16]);

} // namespace cudasim

#endif
