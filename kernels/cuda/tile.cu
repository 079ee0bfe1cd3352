/*
 * Weights of 16 bits into tiles and out of them (launch.h draws the layout).
 *
 *     dense rows [n, ld]   <- untile, tile ->   tiles of 16 rows and 64 columns, swizzled
 *
 * Loading uploads dense rows, which a kernel puts into their tiles, so that rows may come in any
 * portions and a gated weight's halves find each other. cuBLASLt reads dense rows only. For its
 * products a piece of the weight is written out of the tiles first, which costs time and a bounded
 * scratch; a second copy of the weight would cost the memory of the model again.
 *
 * A thread moves one chunk of 16 bytes. Threads of a row are neighbours: 128 bytes of a tile's row
 * are one transaction on both sides.
 */
#include "kernels/cuda/common.cuh"

enum { THREADS = 256 };

/* The rows of a weight that are moved. */
struct portion {
    int32_t first, gated;
    uint32_t row_chunks, n_chunks; /* chunks of a row, and of all rows */

    /* Which chunk of the tiles is chunk i of the dense rows. */
    __device__ __forceinline__ int64_t tiled(uint32_t i) const
    {
        const int64_t row = sb_cuda_tiled_row(first + (int64_t)(i / row_chunks), gated);
        return sb_cuda_tiled(row, i % row_chunks, (int64_t)row_chunks * 8) / 8;
    }
};

/* Grid of both: the chunks. */
static __global__ void tile(uint4 *w, const uint4 *rows, portion p)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;

    if (i < p.n_chunks)
        w[p.tiled(i)] = rows[i];
}

static __global__ void untile(uint4 *rows, const uint4 *w, portion p)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;

    if (i < p.n_chunks)
        rows[i] = w[p.tiled(i)];
}

/* Launches one of them over rows [first, first + n), at most 32 GiB of them. */
static cudaError_t launch(void (*kernel)(uint4 *, const uint4 *, portion), void *to,
                          const void *from, int32_t first, int32_t n, int64_t ld, int32_t gated,
                          cudaStream_t stream)
{
    const int64_t n_chunks = n * (ld / 8);
    const portion p = {first, gated, (uint32_t)(ld / 8), (uint32_t)n_chunks};

    if (n_chunks == 0)
        return cudaSuccess;
    if (n_chunks > INT32_MAX)
        return cudaErrorInvalidConfiguration;
    return SB_LAUNCH(kernel, dim3((unsigned)((n_chunks + THREADS - 1) / THREADS)), dim3(THREADS), 0,
                     stream, static_cast<uint4 *>(to), static_cast<const uint4 *>(from), p);
}

extern "C" cudaError_t sb_cuda_tile(void *w, const void *rows, int32_t first, int32_t n, int64_t ld,
                                    int32_t gated, cudaStream_t stream)
{
    return launch(tile, w, rows, first, n, ld, gated, stream);
}

extern "C" cudaError_t sb_cuda_untile(void *rows, const void *w, int32_t first, int32_t n,
                                      int64_t ld, int32_t gated, cudaStream_t stream)
{
    return launch(untile, rows, w, first, n, ld, gated, stream);
}

cudaError_t sb_load_tile(enum sb_dtype type)
{
    cudaError_t error = type == SB_F32 ? cudaSuccess : sb_load(tile);

    if (error == cudaSuccess && type != SB_F32)
        error = sb_load(untile);
    return error;
}
