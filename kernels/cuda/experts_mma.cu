/*
 * Products of a mixture's experts in the 16-bit class. A block is one of gemm_mma.cu's: it takes a
 * tile of places instead of rows that follow each other, with the weight of their expert, and
 * gathers its rows of x. So the bits are those of that kernel for each row alone.
 *
 *     grid    n_tiles x groups of four panels, tiles changing fastest: those of an expert follow
 *             each other, so its weights come from the memory once and from the L2 afterwards
 *
 * Few rows have blocks of 64 rows of weights, because there is such a matrix for each expert that
 * some row has chosen: a row of Qwen3-30B-A3B makes 192 blocks for gate and up. A block knows its
 * weight only when the kernel ahead has ended, so nothing is fetched before.
 *
 * Rejected: all shapes of gemm_mma.cu (each is code to be loaded, and a matrix that is read for a
 * few rows waits for the memory in any of them); wgmma and cuBLASLt for long prompts, whose inputs
 * would have to be gathered first.
 */
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/gemm_launch.cuh"
#include "kernels/cuda/gemm_tile.cuh"

namespace
{

/* Blocks of 64 rows of weights and 8, 32 or 64 of x, that every device has the memory for. */
typedef gemm_shape<1, 4, 1, 1, 4, 2> few_rows;
typedef gemm_shape<4, 4, 2, 1, 4, 2> some_rows;
typedef gemm_shape<8, 4, 2, 1, 5, 1> many_rows;

/* gemm_rows for the rows of a tile. Addresses are formed when they are used, so that nobody waits
 * for the numbers of rows before weights are on their way. */
template <class S>
struct gathered_rows {
    enum { N = S::X_ROWS / S::X_AT_ONCE };
    const uint8_t *x;
    int row_bytes, row[N];

    __device__ __forceinline__ gathered_rows(const gemm_args &g, const expert_args &e,
                                             const expert_work &work)
        : x((const uint8_t *)g.x + (int)threadIdx.x % S::X_CHUNKS * 16),
          row_bytes(g.n_tiles * ROW_BYTES)
    {
#pragma unroll
        for (int c = 0; c < N; c++)
            row[c] = work.row(e, c * S::X_AT_ONCE + (int)threadIdx.x / S::X_CHUNKS);
    }
    __device__ __forceinline__ const uint8_t *at(int c) const
    {
        return x + (int64_t)row[c] * row_bytes;
    }
};

template <enum sb_dtype TYPE, class S>
__global__ void __launch_bounds__(S::THREADS, S::RESIDENT)
    experts_kernel(gemm_args all, const __grid_constant__ expert_args e)
{
    SB_DYNAMIC_SHARED(uint8_t, shared);
    const expert_work work(e, (int)(blockIdx.x % (unsigned)e.n_tiles));
    const int first_panel = (int)(blockIdx.x / (unsigned)e.n_tiles) * S::PANELS;
    gemm_args g = all;

    if (!work.weight)
        return;
    g.w = (const uint16_t *)work.weight;
    g.bias = work.bias;
    g.m = work.n;
    g.y += (int64_t)work.first * g.y_ld;
    g.act = g.act ? (uint16_t *)g.act + work.first * g.act_ld : NULL;
    multiply_block<TYPE, S>(g, shared, first_panel, 0, gathered_rows<S>(g, e, work));
}

template <enum sb_dtype TYPE, class S>
cudaError_t launch_shape(const gemm_args &g, const expert_args &e, cudaStream_t stream)
{
    const int64_t blocks = (g.panels + (int64_t)S::PANELS - 1) / S::PANELS * e.n_tiles;

    static_assert(S::SHARED <= 99 * 1024, "some devices have no more");
    if (blocks > INT32_MAX)
        return cudaErrorInvalidConfiguration;
    return SB_LAUNCH_WITH(SB_DEPENDENT, (experts_kernel<TYPE, S>), dim3((unsigned)blocks),
                          dim3(S::THREADS), S::SHARED, stream, g, e);
}

template <enum sb_dtype TYPE>
cudaError_t launch_type(const gemm_args &g, const expert_args &e, int tile_rows,
                        cudaStream_t stream)
{
    if (tile_rows <= few_rows::X_ROWS)
        return launch_shape<TYPE, few_rows>(g, e, stream);
    if (tile_rows <= some_rows::X_ROWS)
        return launch_shape<TYPE, some_rows>(g, e, stream);
    return launch_shape<TYPE, many_rows>(g, e, stream);
}

template <enum sb_dtype TYPE>
cudaError_t load_type(void)
{
    cudaError_t error = sb_load(experts_kernel<TYPE, few_rows>, few_rows::SHARED);

    if (error == cudaSuccess)
        error = sb_load(experts_kernel<TYPE, some_rows>, some_rows::SHARED);
    return error == cudaSuccess ? sb_load(experts_kernel<TYPE, many_rows>, many_rows::SHARED)
                                : error;
}

} // namespace

cudaError_t sb_cuda_experts_mma(const struct sb_expert_products *p,
                                const struct sb_cuda_experts *experts,
                                const struct sb_cuda_pairs *pairs, cudaStream_t stream)
{
    gemm_args g = p->act ? gated_product(p->act, p->x, NULL, p->dtype, NULL, pairs->n, p->n_out / 2)
                         : plain_product(p->y, p->x, NULL, NULL, pairs->n, p->n_out, p->gated);
    cudaError_t error;

    g.y_ld = p->y_ld;
    if (!complete(&g, &error, p->dtype, p->n_in))
        return error;
    return p->dtype == SB_BF16 ? launch_type<SB_BF16>(g, arguments_of(*p, *experts, *pairs),
                                                      pairs->tile_rows, stream)
                               : launch_type<SB_F16>(g, arguments_of(*p, *experts, *pairs),
                                                     pairs->tile_rows, stream);
}

cudaError_t sb_load_experts_mma(enum sb_dtype type)
{
    if (type == SB_F32)
        return cudaSuccess;
    return type == SB_BF16 ? load_type<SB_BF16>() : load_type<SB_F16>();
}
