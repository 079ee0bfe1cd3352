/*
 * Token embeddings from a quantised table: x[t] = `factor` times row ids[id_at[t]] of the table,
 * each value of which is fma(scale, q, -min), as on the CPU; or zeros for an id outside the table.
 * Both classes have it.
 *
 *     table in tiles (quant_tile.h)      x [n_tokens, n] f32      one block a token
 *
 * The launch is dependent, as that of other embeddings is (embed.cu).
 */
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/quant_tile.cuh"

enum { THREADS = 256 };

template <enum sb_dtype Q>
static __global__ void embed_quant(float *x, const uint8_t *table, int64_t strip_bytes,
                                   int32_t n_rows, int32_t n, float factor, const int32_t *ids,
                                   const int32_t *id_at)
{
    typedef quant_traits<Q> traits;
    const int64_t token = blockIdx.x;
    const int32_t at = id_at[token]; /* the host has uploaded it before all of the round */

    grid_launch_next();
    grid_wait_for_previous();
    const int32_t id = ids[at];
    const bool is_known = id >= 0 && id < n_rows;
    const int row = is_known ? id % SB_QUANT_TILE_ROWS : 0;
    const uint8_t *strip = table + (is_known ? id / SB_QUANT_TILE_ROWS : 0) * strip_bytes;

    for (int32_t k = threadIdx.x; k < n; k += THREADS) {
        const uint8_t *tile = strip + (int64_t)(k / traits::COLUMNS) * traits::BYTES;
        const int column = k % traits::COLUMNS, block = column / SB_QUANT_TILE_BLOCK;
        const int group = column % SB_QUANT_TILE_BLOCK * traits::GROUPS / SB_QUANT_TILE_BLOCK;
        quant_head<Q> head;
        head.load(tile, row % 8);
        const float value = fmaf(head.scale(row / 8, block, group),
                                 quant_integer<Q>(tile, row, column), -head.min(row / 8, block));
        x[token * n + k] = is_known ? sb_scaled(value, factor) : 0.0f;
    }
}

cudaError_t sb_cuda_embed_quant(float *x, const void *table, enum sb_dtype quant, int32_t n_rows,
                                int32_t n, float scale, const struct sb_pass *pass,
                                cudaStream_t stream)
{
    cudaError_t error = cudaErrorInvalidValue;

    if (pass->n_tokens <= 0)
        return cudaSuccess;
    SB_WITH_QUANT(quant, error = SB_LAUNCH_WITH(SB_DEPENDENT, embed_quant<Q>,
                                                dim3((unsigned)pass->n_tokens), dim3(THREADS), 0,
                                                stream, x, static_cast<const uint8_t *>(table),
                                                (int64_t)sb_tile_row_bytes(quant, n), n_rows, n,
                                                scale, pass->ids, pass->id_at));
    return error;
}

cudaError_t sb_load_embed_quant(enum sb_dtype type)
{
    cudaError_t error = cudaSuccess;

    (void)type;
    for (int quant = SB_Q8_0; error == cudaSuccess && quant < SB_DTYPES; quant++)
        SB_WITH_QUANT(quant, error = sb_load(embed_quant<Q>));
    return error;
}
