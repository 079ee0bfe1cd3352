/*
 * The f32 class's product with quantised weights: y [m, ldy] = x [m, n_in] w^T + bias, where w lies
 * in tiles (quant_tile.h). It has the bits of the CPU's class F32 (kernels/cpu/gemm_quant.h,
 * docs/numerics.md). For each block of 32 columns, with the integers q as the weights,
 *
 *     even, odd   chains of fused multiply-adds over the block's even and odd columns, from +0
 *     sum         = fma(scale, even + odd, sum)
 *     sum         = fma(-min, a, sum)               for types with minima
 *     a           x[i] + x[i + 16], and then the sixteen sums in the tree of norms
 *
 * Groups of 16 columns, in Q6_K, have chains and a scale each, to which +0 is added for the half of
 * a block that they lack. Columns beyond n_in are zeros.
 *
 *     block: 16 rows x 64 outputs, 32 columns of k at a time; threads, tiles in shared memory and
 *     accumulators as in gemm_reference.cu, and beside them the factors of the 64 outputs
 *
 * It is for goldens and tests, not for speed.
 */
#include "fault.h"
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/quant_tile.cuh"

namespace
{

enum {
    ROWS = 16,
    LANES = 16,
    OUTS = 64,
    STEP = SB_QUANT_TILE_BLOCK,
    PITCH = STEP + 1,
    THREADS = ROWS * LANES,
    EACH = OUTS / LANES
};

struct quant_args {
    float *y;
    const float *x;
    const uint8_t *w;
    const float *bias; /* or NULL */
    int m, n_out, n_in;
    int64_t strip_bytes, ldy; /* of 16 rows of w; of a row of y */
};

/* The weights of a block for 64 outputs. */
struct weights {
    float *q;      /* [OUTS, PITCH] */
    float *scales; /* [2, OUTS] */
    float *less;   /* [OUTS] minima below zero */
};

/* The tile of output `o` that has column k. */
template <enum sb_dtype Q>
__device__ const uint8_t *tile_of(const quant_args &g, int64_t o, int64_t k)
{
    return g.w + o / SB_QUANT_TILE_ROWS * g.strip_bytes +
           k / quant_traits<Q>::COLUMNS * quant_traits<Q>::BYTES;
}

/* Deliberate faults of products with several rows (fault.h). */
__device__ int spoiled_row(const quant_args &g, int row)
{
    return g.m > 1 && SB_FAULT(SCALE_OF_NEIGHBOUR) ? (row + 1) % SB_QUANT_TILE_ROWS : row;
}
__device__ int spoiled_pair(const quant_args &g, enum sb_dtype type, int column)
{
    return g.m > 1 && type != SB_Q8_0 && SB_FAULT(NIBBLES_EXCHANGED) ? column ^ 1 : column;
}

template <enum sb_dtype Q>
__device__ void load_weights(const weights &w, const quant_args &g, int64_t first_out, int64_t k0)
{
    const int column = (int)(k0 % quant_traits<Q>::COLUMNS);

    for (int i = threadIdx.x; i < OUTS * STEP; i += THREADS) {
        const int64_t o = first_out + i / STEP;
        w.q[i / STEP * PITCH + i % STEP] = o < g.n_out ? quant_integer<Q>(
                                                             tile_of<Q>(g, o, k0),
                                                             (int)(o % SB_QUANT_TILE_ROWS),
                                                             spoiled_pair(g, Q, column + i % STEP))
                                                       : 0.0f;
    }
    if (threadIdx.x < OUTS) {
        const int64_t o = first_out + threadIdx.x < g.n_out ? first_out + threadIdx.x : g.n_out - 1;
        const int row = spoiled_row(g, (int)(o % SB_QUANT_TILE_ROWS)),
                  block = column / SB_QUANT_TILE_BLOCK;
        quant_head<Q> head;
        head.load(tile_of<Q>(g, o, k0), row % 8);
        w.scales[threadIdx.x] = head.scale(row / 8, block, 0);
        w.scales[OUTS + threadIdx.x] = head.scale(row / 8, block, quant_traits<Q>::GROUPS - 1);
        w.less[threadIdx.x] = g.m > 1 && SB_FAULT(MINIMUM_DROPPED) ? 0.0f
                                                                   : -head.min(row / 8, block);
    }
}

/* The sum of a row's block of x, by the sixteen threads of the row. */
__device__ float sum_of_block(const float *x, int lane)
{
    return __shfl_sync(SB_FULL_WARP, sb_hsum16(x[lane] + x[lane + 16]), 0, 16);
}

template <enum sb_dtype Q>
__device__ float add_block(float sum, const float *x, float a, const weights &w, int out)
{
    enum { GROUPS = quant_traits<Q>::GROUPS, N = STEP / GROUPS };
    const float *q = w.q + out * PITCH;

    for (int group = 0; group < GROUPS; group++) {
        float even = 0.0f, odd = 0.0f;
#pragma unroll 4 /* all of them would not fit the registers */
        for (int k = group * N; k < (group + 1) * N; k += 2) {
            even = fmaf(x[k], q[k], even);
            odd = fmaf(x[k + 1], q[k + 1], odd);
        }
        if (GROUPS == 2) {
            even += 0.0f;
            odd += 0.0f;
        }
        sum = fmaf(w.scales[group * OUTS + out], even + odd, sum);
    }
    return quant_traits<Q>::HAS_MINS ? fmaf(w.less[out], a, sum) : sum;
}

/* Rows of x from first_row on; row(r) says which row of g.x the r-th is. */
template <enum sb_dtype Q, typename F>
__device__ void multiply_block(const quant_args &g, float *x_tile, const weights &w,
                               int64_t first_row, int64_t first_out, F row)
{
    const int tx = threadIdx.x % LANES, ty = threadIdx.x / LANES;
    const int64_t my_row = first_row + ty;
    const bool warp_has_row = my_row - ty % 2 < g.m; /* the first of its two */
    float sum[EACH] = {0.0f, 0.0f, 0.0f, 0.0f};

    for (int64_t k0 = 0; k0 < g.n_in; k0 += STEP) {
        for (int i = threadIdx.x; i < ROWS * STEP; i += THREADS) {
            const int64_t r = first_row + i / STEP, k = k0 + i % STEP;
            x_tile[i / STEP * PITCH + i % STEP] = r < g.m && k < g.n_in ? g.x[row(r) * g.n_in + k]
                                                                        : 0.0f;
        }
        load_weights<Q>(w, g, first_out, k0);
        __syncthreads();
        const float *x = x_tile + ty * PITCH;
        const float a = quant_traits<Q>::HAS_MINS && warp_has_row ? sum_of_block(x, tx) : 0.0f;
        for (int j = 0; j < EACH && my_row < g.m; j++)
            sum[j] = add_block<Q>(sum[j], x, a, w, tx + j * LANES);
        __syncthreads();
    }
    for (int j = 0; j < EACH; j++) {
        const int64_t out = first_out + tx + j * LANES;
        if (my_row < g.m && out < g.n_out)
            g.y[my_row * g.ldy + out] = g.bias ? sum[j] + g.bias[out] : sum[j];
    }
}

template <enum sb_dtype Q>
__global__ void __launch_bounds__(THREADS) gemm_quant_reference(quant_args g)
{
    SB_SHARED(float, x_tile, ROWS *PITCH);
    SB_SHARED(float, q_tile, OUTS *PITCH);
    SB_SHARED(float, scales, 2 * OUTS);
    SB_SHARED(float, less, OUTS);
    const weights w = {q_tile, scales, less};
    multiply_block<Q>(g, x_tile, w, (int64_t)blockIdx.y * ROWS, (int64_t)blockIdx.x * OUTS,
                      [](int64_t r) { return r; });
}

/* The same for the pairs of a mixture: a block takes 16 places of a tile. Where no number
 * of blocks is said that share a multiprocessor, ptxas puts registers aside to have six of them. */
template <enum sb_dtype Q>
__global__ void __launch_bounds__(THREADS, 4)
    experts_quant_reference(quant_args all, const __grid_constant__ expert_args e)
{
    SB_SHARED(float, x_tile, ROWS *PITCH);
    SB_SHARED(float, q_tile, OUTS *PITCH);
    SB_SHARED(float, scales, 2 * OUTS);
    SB_SHARED(float, less, OUTS);
    const weights w = {q_tile, scales, less};
    const expert_work work(e, (int)blockIdx.x);
    const int first = (int)blockIdx.z * ROWS;
    quant_args g = all;

    if (!work.weight || first >= work.n)
        return;
    g.w = (const uint8_t *)work.weight;
    g.bias = work.bias;
    g.m = work.n;
    g.y += work.first * g.ldy;
    multiply_block<Q>(g, x_tile, w, first, (int64_t)blockIdx.y * OUTS,
                      [&](int64_t r) { return (int64_t)work.row(e, (int)r); });
}

} // namespace

cudaError_t sb_cuda_gemm_quant_reference(float *y, int64_t ldy, const float *x, const void *w,
                                         enum sb_dtype quant, const float *bias, int32_t m,
                                         int32_t n_out, int32_t n_in, cudaStream_t stream)
{
    const dim3 grid((unsigned)((n_out + OUTS - 1) / OUTS), (unsigned)((m + ROWS - 1) / ROWS));
    const quant_args g = {
        y,  x, (const uint8_t *)w, bias, m, n_out, n_in, (int64_t)sb_tile_row_bytes(quant, n_in),
        ldy};
    cudaError_t error = cudaErrorInvalidValue;

    if (m <= 0 || n_out <= 0)
        return cudaSuccess;
    SB_WITH_QUANT(quant,
                  error = SB_LAUNCH(gemm_quant_reference<Q>, grid, dim3(THREADS), 0, stream, g));
    return error;
}

cudaError_t sb_cuda_experts_quant_reference(const struct sb_expert_products *p,
                                            const struct sb_cuda_experts *experts,
                                            const struct sb_cuda_pairs *pairs, cudaStream_t stream)
{
    const dim3 grid((unsigned)pairs->n_tiles, (unsigned)((p->n_out + OUTS - 1) / OUTS),
                    (unsigned)((pairs->tile_rows + ROWS - 1) / ROWS));
    const quant_args g = {p->y,     (const float *)p->x,
                          NULL,     NULL,
                          pairs->n, p->n_out,
                          p->n_in,  (int64_t)sb_tile_row_bytes(p->dtype, p->n_in),
                          p->y_ld};
    const expert_args e = arguments_of(*p, *experts, *pairs);
    cudaError_t error = cudaErrorInvalidValue;

    if (pairs->n == 0 || p->n_out <= 0)
        return cudaSuccess;
    SB_WITH_QUANT(p->dtype, error = SB_LAUNCH(experts_quant_reference<Q>, grid, dim3(THREADS), 0,
                                              stream, g, e));
    return error;
}

cudaError_t sb_load_gemm_quant_reference(enum sb_dtype type)
{
    cudaError_t error = cudaSuccess;

    if (type != SB_F32)
        return error;
    for (int quant = SB_Q8_0; error == cudaSuccess && quant < SB_DTYPES; quant++)
        SB_WITH_QUANT(quant, error = sb_load(gemm_quant_reference<Q>));
    for (int quant = SB_Q8_0; error == cudaSuccess && quant < SB_DTYPES; quant++)
        SB_WITH_QUANT(quant, error = sb_load(experts_quant_reference<Q>));
    return error;
}
