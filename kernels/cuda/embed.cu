/*
 * Token embeddings: x[t] = row ids[id_at[t]] of the table, widened to f32, or zeros for an id
 * outside the table.
 *
 *     table [n_rows, ld] f32, bf16 or f16      x [n_tokens, n] f32      one block a token
 *
 * A table of 16 bits lies in tiles like every weight (launch.h), because it may be the head too.
 *
 * Ids come from device memory, because a draft step embeds the token that the step before it
 * selected, which the host never sees. A row is only copied, so it is a function of its id. The
 * launch is dependent: its blocks are there when the kernel that selects has ended.
 */
#include "kernels/cuda/grid.cuh"

enum { THREADS = 256 };

template <typename T>
static __global__ void embed_rows(float *x, const T *table, int32_t n_rows, int32_t n, int64_t ld,
                                  const int32_t *ids, const int32_t *id_at)
{
    const int64_t token = blockIdx.x;
    const int32_t at = id_at[token]; /* the host has uploaded it before all of the round */

    grid_launch_next();
    grid_wait_for_previous();
    const int32_t id = ids[at];
    const bool is_known = id >= 0 && id < n_rows;
    const int64_t row = is_known ? id : 0;

    for (int32_t k = threadIdx.x; k < n; k += THREADS) {
        const int64_t at = sizeof(T) == 4 ? row * ld + k : sb_cuda_tiled(row, k / 8, ld) + k % 8;
        x[token * n + k] = is_known ? sb_to_f32(table[at]) : 0.0f;
    }
}

extern "C" cudaError_t sb_cuda_embed(float *x, const void *table, enum sb_dtype type,
                                     int32_t n_rows, int32_t n, const struct sb_pass *pass,
                                     cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;

    if (pass->n_tokens > 0)
        SB_WITH_TYPE(type,
                     error = SB_LAUNCH_WITH(SB_DEPENDENT, embed_rows<T>,
                                            dim3((unsigned)pass->n_tokens), dim3(THREADS), 0,
                                            stream, x, static_cast<const T *>(table), n_rows, n,
                                            sb_cuda_ld(type, n), pass->ids, pass->id_at));
    return error;
}

cudaError_t sb_load_embed(enum sb_dtype type)
{
    cudaError_t error;

    SB_WITH_TYPE(type, error = sb_load(embed_rows<T>));
    return error;
}
