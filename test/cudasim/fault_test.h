/* What the tests of the simulator share: launching the kernels of faults.cu. */
#ifndef CUDASIM_FAULT_TEST_H
#define CUDASIM_FAULT_TEST_H

#include "cudasim.h"

#include "cuda/kernel_test.h"

enum { N = 64 };

cudaError_t cudasim_fault_kernel(const char *name, float *memory, float *out, unsigned blocks,
                                 unsigned threads, size_t shared, cudaStream_t stream);

/* Launches N threads on N floats once; returns the text of the fault, or "". */
static const char *fault_of(const char *name, float *memory, unsigned blocks, size_t shared)
{
    float *out = given_floats((const float[1]){0.0f}, 1);
    cudaError_t error = cudasim_fault_kernel(name, memory, out, blocks, N, shared, stream);

    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    return error == cudaSuccess ? "" : cudasim_fault();
}

#endif
