/*
 * Greedy acceptance (paper, Algorithm 1, lines 8-15) counts the leading proposals that the target
 * agrees with. A thread takes a row; kernels/cpu/accept.c draws the rows. The counts stay on the
 * device, where the next draft step reads them.
 *
 *     tokens, picks [n_rows, stride]      n_draft, n_accept [n_rows]
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/grid.cuh"

enum { THREADS = 128 };

static __global__ void count_accepted(const int32_t *tokens, const int32_t *picks,
                                      const int32_t *n_draft, int32_t n_rows, int64_t stride,
                                      int32_t *n_accept)
{
    const int64_t b = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (b >= n_rows)
        return;
    grid_wait_for_previous();
    const int32_t *proposed = tokens + b * stride + 1, *picked = picks + b * stride;
    int32_t n = 0;
    while (n < n_draft[b] && proposed[n] == picked[n])
        n++;
    n_accept[b] = n;
}

extern "C" cudaError_t sb_cuda_accept(const int32_t *tokens, const int32_t *picks,
                                      const int32_t *n_draft, int32_t n_rows, int32_t stride,
                                      int32_t *n_accept, cudaStream_t stream)
{
    if (n_rows == 0)
        return cudaSuccess;
    return SB_LAUNCH_WITH(SB_DEPENDENT, count_accepted,
                          dim3((unsigned)((n_rows + THREADS - 1) / THREADS)), dim3(THREADS), 0,
                          stream, tokens, picks, n_draft, n_rows, stride, n_accept);
}

cudaError_t sb_load_accept(enum sb_dtype)
{
    return sb_load(count_accepted);
}
