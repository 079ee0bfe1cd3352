/*
 * opaque(word): nothing, but the compiler cannot tell that the word stays as it was. What a loop
 * computes of it is therefore computed in the loop, and not once before it, where the results would
 * take more registers than there are.
 */
#ifndef SB_CUDA_OPAQUE_CUH
#define SB_CUDA_OPAQUE_CUH

#include "kernels/cuda/common.cuh"

static __device__ __forceinline__ void opaque(uint32_t &word)
{
    asm volatile("" : "+r"(word));
}

#endif
