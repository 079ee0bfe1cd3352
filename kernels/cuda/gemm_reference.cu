/*
 * The f32 class's product: y [m, n_out] = x [m, n_in] w [n_out, n_in]^T + bias. Each output is a
 * chain of fused multiply-adds over ascending k, from +0, and then + bias. This is the order that
 * backend.h prescribes, so it has the CPU's bits (kernels/cpu/gemm.c).
 *
 *     block: 16 rows x 64 outputs, 32 columns of k at a time
 *
 *            k k+1 ..  k+31                                   thread (tx, ty): row ty,
 *   x [16]   . . . . . . .     through shared memory; rows    outputs tx, tx + 16, tx + 32, tx + 48
 *   w [64]   . . . . . . .     padded to 33 words, so that    4 accumulators, never split
 *                              a column meets every bank
 *
 * It is for goldens and tests, not for speed, because no tensor core adds in this order.
 */
#include "kernels/cuda/experts.cuh"

enum {
    ROWS = 16,
    LANES = 16,
    OUTS = 64,
    STEP = 32,
    PITCH = STEP + 1,
    THREADS = ROWS * LANES,
    EACH = OUTS / LANES
};

namespace
{

struct reference_args {
    float *y;       /* [m, y_ld] */
    const float *x; /* rows of n_in */
    const float *w;
    const float *bias; /* or NULL */
    int64_t m, n_out, n_in, y_ld;
};

/* tile [rows, PITCH] = rows [first, first + rows) and columns [k0, k0 + STEP) of from [n, k], whose
 * r-th row is at row(r); zeros outside the matrix. */
template <typename F>
__device__ void load_tile(float *tile, const float *from, int64_t first, int32_t rows, int64_t n,
                          int64_t k0, int64_t k, F row)
{
    for (int32_t i = threadIdx.x; i < rows * STEP; i += THREADS) {
        const int64_t r = first + i / STEP, column = k0 + i % STEP;
        tile[i / STEP * PITCH + i % STEP] = r < n && column < k ? from[row(r) * k + column] : 0.0f;
    }
}

/* Rows of x from first_row on; row(r) says which row of g.x the r-th is. */
template <typename F>
__device__ void multiply_block(const reference_args &g, float *x_tile, float *w_tile,
                               int64_t first_row, int64_t first_out, F row)
{
    const int32_t tx = threadIdx.x % LANES, ty = threadIdx.x / LANES;
    const int64_t my_row = first_row + ty;
    float sum[EACH] = {0.0f, 0.0f, 0.0f, 0.0f};

    for (int64_t k0 = 0; k0 < g.n_in; k0 += STEP) {
        const int32_t steps = g.n_in - k0 < STEP ? (int32_t)(g.n_in - k0) : STEP;
        load_tile(x_tile, g.x, first_row, ROWS, g.m, k0, g.n_in, row);
        load_tile(w_tile, g.w, first_out, OUTS, g.n_out, k0, g.n_in, [](int64_t r) { return r; });
        __syncthreads();
        for (int32_t k = 0; k < steps && my_row < g.m; k++)
            for (int32_t j = 0; j < EACH; j++)
                sum[j] = fmaf(x_tile[ty * PITCH + k], w_tile[(tx + j * LANES) * PITCH + k], sum[j]);
        __syncthreads();
    }
    for (int32_t j = 0; j < EACH; j++) {
        const int64_t out = first_out + tx + j * LANES;
        if (my_row < g.m && out < g.n_out)
            g.y[my_row * g.y_ld + out] = g.bias ? sum[j] + g.bias[out] : sum[j];
    }
}

__global__ void __launch_bounds__(THREADS) gemm(reference_args g)
{
    SB_SHARED(float, x_tile, ROWS *PITCH);
    SB_SHARED(float, w_tile, OUTS *PITCH);

    multiply_block(g, x_tile, w_tile, (int64_t)blockIdx.y * ROWS, (int64_t)blockIdx.x * OUTS,
                   [](int64_t r) { return r; });
}

/* The same for the pairs of a mixture: a block takes 16 places of a tile. */
__global__ void __launch_bounds__(THREADS)
    experts(reference_args all, const __grid_constant__ expert_args e)
{
    SB_SHARED(float, x_tile, ROWS *PITCH);
    SB_SHARED(float, w_tile, OUTS *PITCH);
    const expert_work work(e, (int)blockIdx.x);
    const int first = (int)blockIdx.z * ROWS;
    reference_args g = all;

    if (!work.weight || first >= work.n)
        return;
    g.w = (const float *)work.weight;
    g.bias = work.bias;
    g.m = work.n;
    g.y += work.first * g.y_ld;
    multiply_block(g, x_tile, w_tile, first, (int64_t)blockIdx.y * OUTS,
                   [&](int64_t r) { return (int64_t)work.row(e, (int)r); });
}

} // namespace

extern "C" cudaError_t sb_cuda_gemm_reference(float *y, const float *x, const float *w,
                                              const float *bias, int32_t m, int32_t n_out,
                                              int32_t n_in, cudaStream_t stream)
{
    const dim3 grid((unsigned)((n_out + OUTS - 1) / OUTS), (unsigned)((m + ROWS - 1) / ROWS));

    const reference_args g = {y, x, w, bias, m, n_out, n_in, n_out};

    if (m == 0 || n_out == 0)
        return cudaSuccess;
    return SB_LAUNCH(gemm, grid, dim3(THREADS), 0, stream, g);
}

extern "C" cudaError_t sb_cuda_experts_reference(const struct sb_expert_products *p,
                                                 const struct sb_cuda_experts *weights,
                                                 const struct sb_cuda_pairs *pairs,
                                                 cudaStream_t stream)
{
    const dim3 grid((unsigned)pairs->n_tiles, (unsigned)((p->n_out + OUTS - 1) / OUTS),
                    (unsigned)((pairs->tile_rows + ROWS - 1) / ROWS));
    const reference_args g = {p->y,   (const float *)p->x, NULL, NULL, pairs->n, p->n_out, p->n_in,
                              p->y_ld};

    if (pairs->n == 0 || p->n_out == 0)
        return cudaSuccess;
    return SB_LAUNCH(experts, grid, dim3(THREADS), 0, stream, g,
                     arguments_of(*p, *weights, *pairs));
}

cudaError_t sb_load_gemm_reference(enum sb_dtype type)
{
    cudaError_t error = cudaSuccess;

    if (type == SB_F32)
        error = sb_load(gemm);
    return type == SB_F32 && error == cudaSuccess ? sb_load(experts) : error;
}
