/*
 * Token embeddings: x[t] = scale times row ids[id_at[t]] of the table, widened to f32, or zeros for
 * an id outside the table.
 *
 *     table [n_rows, ld] f32, bf16 or f16      x [n_tokens, n] f32      one block a token
 *
 * A table of 16 bits lies in tiles like every weight (launch.h), because it may be the head too.
 *
 * Ids come from device memory, because a draft step embeds the token that the step before it
 * selected, which the host never sees. Elements do not mix, so a row is a function of its id. The
 * launch is dependent: its blocks are there when the kernel that selects has ended. A thread loads
 * all that it has of a row of up to 4096 columns before it stores any, so that the row costs one
 * wait for memory.
 */
#include <string.h>

#include "kernels/cuda/grid.cuh"

enum {
    THREADS = 256,
    CHUNK = 8,   /* elements that lie together in a tile */
    AT_ONCE = 2, /* chunks of a thread that are loaded before one is used */
};

/* A chunk of a row of the table. */
template <typename T>
static __device__ __forceinline__ void load_chunk(float (&v)[CHUNK], const T *table, int64_t row,
                                                  int32_t chunk, int64_t ld)
{
    const uint4 bits = *reinterpret_cast<const uint4 *>(table + sb_cuda_tiled(row, chunk, ld));
    T own[CHUNK];

    memcpy(own, &bits, sizeof own);
#pragma unroll
    for (int i = 0; i < CHUNK; i++)
        v[i] = sb_to_f32(own[i]);
}

/* A row of f32 is dense, and may begin anywhere. */
template <>
__device__ __forceinline__ void load_chunk(float (&v)[CHUNK], const float *table, int64_t row,
                                           int32_t chunk, int64_t ld)
{
#pragma unroll
    for (int i = 0; i < CHUNK; i++)
        v[i] = chunk * CHUNK + i < ld ? table[row * ld + chunk * CHUNK + i] : 0.0f;
}

template <typename T>
static __global__ void embed_rows(float *x, const T *table, int32_t n_rows, int32_t n, int64_t ld,
                                  float scale, const int32_t *ids, const int32_t *id_at)
{
    const int64_t token = blockIdx.x;
    const int32_t at = id_at[token]; /* the host has uploaded it before all of the round */

    grid_launch_next();
    grid_wait_for_previous();
    const int32_t id = ids[at];
    const bool is_known = id >= 0 && id < n_rows;

    for (int32_t first = threadIdx.x; first * CHUNK < n; first += AT_ONCE * THREADS) {
        float v[AT_ONCE][CHUNK] = {};
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (is_known && (first + i * THREADS) * CHUNK < n)
                load_chunk(v[i], table, id, first + i * THREADS, ld);
#pragma unroll
        for (int i = 0; i < AT_ONCE * CHUNK; i++) {
            const int32_t k = (first + i / CHUNK * THREADS) * CHUNK + i % CHUNK;
            if (k < n)
                x[token * n + k] = sb_scaled(v[i / CHUNK][i % CHUNK], scale);
        }
    }
}

extern "C" cudaError_t sb_cuda_embed(float *x, const void *table, enum sb_dtype type,
                                     int32_t n_rows, int32_t n, float scale,
                                     const struct sb_pass *pass, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;

    if (pass->n_tokens > 0)
        SB_WITH_TYPE(type, error = SB_LAUNCH_WITH(
                               SB_DEPENDENT, embed_rows<T>, dim3((unsigned)pass->n_tokens),
                               dim3(THREADS), 0, stream, x, static_cast<const T *>(table), n_rows,
                               n, sb_cuda_ld(type, n), scale, pass->ids, pass->id_at));
    return error;
}

cudaError_t sb_load_embed(enum sb_dtype type)
{
    cudaError_t error;

    SB_WITH_TYPE(type, error = sb_load(embed_rows<T>));
    return error;
}
