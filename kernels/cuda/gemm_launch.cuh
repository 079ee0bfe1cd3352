/*
 * What the launchers of 16-bit products share (gemm_mma.cu, gemm_wgmma.cu): the arguments of a
 * product, and what decides between shapes of block.
 *
 * A shape decides over time and over no bits. Its time is estimated from the sizes alone, because
 * that needs no device: what the L2 gives the whole device, what a multiprocessor's port and its
 * shared memory take, and what its tensor cores do, for 64 columns of k. Rejected: to time each
 * shape when a pool is created, which would take a run of every shape of block for every shape of
 * weight.
 */
#ifndef SB_CUDA_GEMM_LAUNCH_CUH
#define SB_CUDA_GEMM_LAUNCH_CUH

#include "kernels/cuda/gemm_ring.cuh"

namespace
{

/* A product that does not gate. */
inline gemm_args plain_product(float *y, const void *x, const void *w, const float *bias, int32_t m,
                               int32_t n_out, int32_t gated)
{
    return {y, NULL, (const uint16_t *)x, (const uint16_t *)w, bias, m, n_out, gated, 0, 0, 0,
            0, n_out};
}

/* One that does: n outputs of a weight [2 n]. */
inline gemm_args gated_product(void *act, const void *x, const void *w, enum sb_dtype type,
                               const float *bias, int32_t m, int32_t n)
{
    return {NULL,
            act,
            (const uint16_t *)x,
            (const uint16_t *)w,
            bias,
            m,
            2 * n,
            n,
            0,
            0,
            0,
            sb_cuda_ld(type, n),
            0};
}

/* Completes the arguments of a product with n_out rows of weights. false: there is nothing to do,
 * or an error. */
inline bool complete(gemm_args *g, cudaError_t *error, enum sb_dtype type, int32_t n_in)
{
    *error = g->m > 0 && g->n_out > 0 && type == SB_F32 ? cudaErrorInvalidValue : cudaSuccess;
    g->n_tiles = (int)(sb_cuda_ld(type, n_in) / SB_TILE_K);
    g->panels = (int)(((int64_t)g->n_out + SB_TILE_ROWS - 1) / SB_TILE_ROWS);
    return g->m > 0 && g->n_out > 0 && *error == cudaSuccess;
}

/* A shape of block, as a launcher compares it with others. */
struct block_shape {
    int panels, x_rows, shared;
    int reads;    /* rows of weights and of x that its warps read from shared memory, each as often
                     as it is read */
    int mma_time; /* eighths of a clock that the tensor cores of a multiprocessor take for 64
                     columns of a panel and eight rows of x */
};

/* Blocks along the panels of the weight. */
inline int64_t row_blocks_of(const gemm_args &g, const block_shape &s)
{
    return (g.panels + (int64_t)s.panels - 1) / s.panels;
}

/* Completes the arguments for blocks of this shape, and returns their number. 0: too many. */
inline unsigned blocks_of(gemm_args *g, const block_shape &s)
{
    g->m_tiles = (g->m + s.x_rows - 1) / s.x_rows;
    const int64_t blocks = row_blocks_of(*g, s) * g->m_tiles;
    return blocks > INT32_MAX ? 0 : (unsigned)blocks;
}

/* Bytes a clock, as test/bench/gpu_time/gpu_time.py has them: of the L2, for each multiprocessor of
 * the device (assumed; an H100 has shown 21); of a multiprocessor's port, and of its shared memory.
 */
enum { L2_RATE = 28, PORT_RATE = 64, SHARED_RATE = 128 };

/* Eighths of a clock for 64 columns of k. */
inline int64_t time_of(const block_shape &s, const gemm_args &g,
                       const struct sb_launch_limits &limits)
{
    const int64_t row_blocks = row_blocks_of(g, s);
    const int64_t x_blocks = (g.m + (int64_t)s.x_rows - 1) / s.x_rows;
    const int64_t turns = (row_blocks * x_blocks + limits.processors - 1) / limits.processors;
    const int64_t rows = (int64_t)s.panels * SB_TILE_ROWS; /* of 128 bytes, as those of x */
    const int64_t of_l2 = row_blocks * (x_blocks * rows + g.m) * 128 * 8 / L2_RATE /
                          limits.processors;
    const int64_t of_port = (rows + (g.m < s.x_rows ? g.m : s.x_rows)) * 128 * 8 / PORT_RATE;
    const int64_t of_shared = (rows + s.x_rows + s.reads) * 128 * 8 / SHARED_RATE; /* and writes */
    const int64_t of_mma = (int64_t)s.panels * (s.x_rows / 8) * s.mma_time;
    const int64_t of_either = of_port > of_shared ? of_port : of_shared;
    const int64_t of_block = of_either > of_mma ? of_either : of_mma;

    return of_l2 > turns * of_block ? of_l2 : turns * of_block;
}

/* Of n shapes, that which takes least time, and of equal times the first. `shape(i)` gives the
 * i-th; -1: the device can have none. */
template <typename F>
int best_shape(int n, F shape, const gemm_args &g, const struct sb_launch_limits &limits)
{
    int64_t least = INT64_MAX;
    int best = -1;

    for (int i = 0; i < n; i++) {
        const block_shape &s = shape(i);
        const int64_t time = time_of(s, g, limits);
        if (s.shared <= limits.shared && time < least) {
            least = time;
            best = i;
        }
    }
    return best;
}

} // namespace

#endif
