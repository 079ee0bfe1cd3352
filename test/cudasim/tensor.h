/* The tensor core's arithmetic, for the simulated mma and for a cublasLt that uses it. */
#ifndef CUDASIM_TENSOR_H
#define CUDASIM_TENSOR_H

#include "sim.h"

namespace cudasim {

/* value * 2^(exponent - 10) */
struct tensor_factor {
    int32_t value, exponent;
};

tensor_factor tensor_split(float value); /* an element of bf16 or f16, widened */
/* c + a[0] b[0] + ... + a[15] b[15]. The values are looked at when one is not finite. */
float tensor_step(float c, const tensor_factor *a, const tensor_factor *b, const float *a_values,
                  const float *b_values);

} // namespace cudasim

#endif
