/*
 * How a block of a mixture's products finds its work: a tile of places (launch.h), the weight of
 * their expert, and the rows of x.
 *
 * Which experts have rows, the host does not know when it launches. So a launch has blocks for as
 * many tiles as there may be, and those of tiles that are not there end at once. The addresses of
 * the weights are an argument of the kernel, which lies in constant memory, so no table of them has
 * to be kept on the device.
 */
#ifndef SB_CUDA_EXPERTS_CUH
#define SB_CUDA_EXPERTS_CUH

#include "kernels/cuda/grid.cuh"

namespace
{

struct expert_args {
    sb_cuda_experts experts;
    const sb_expert_tile *tiles;
    const int32_t *row_at; /* the row of x for a place; NULL: x has the places themselves */
    const float *biases;   /* or NULL */
    int n_tiles, bias_ld;
};

inline expert_args arguments_of(const sb_expert_products &products, const sb_cuda_experts &experts,
                                const sb_cuda_pairs &pairs)
{
    return {experts,       pairs.tiles,   products.gathers ? pairs.row_at : NULL,
            products.bias, pairs.n_tiles, products.y_ld};
}

/* The tile of this block, whose weight the launch has. */
struct expert_work {
    const void *weight; /* NULL: there is nothing to do */
    const float *bias;  /* or NULL */
    int first, n;       /* places */

    /* Waits for the kernel before this one, which may have written the tiles. */
    __device__ __forceinline__ expert_work(const expert_args &e, int tile) : weight(NULL)
    {
        grid_wait_for_previous();
        const uint4 t = ((const uint4 *)e.tiles)[tile];
        const int expert = SB_CUDA_FAULT(EXPERT_OF_FIRST_TILE) ? e.tiles[0].expert : (int)t.x;
        const int i = expert - e.experts.first;
        bias = e.biases ? e.biases + (int64_t)expert * e.bias_ld : NULL;
        first = (int)t.y;
        n = (int)t.z;
        if (n > 0 && i >= 0 && i < SB_EXPERTS_OF_LAUNCH)
            weight = e.experts.weights[i];
    }

    /* The row of x for row r of the tile; for rows that are not there, that of the last. */
    __device__ __forceinline__ int row(const expert_args &e, int r) const
    {
        const int place = first + (SB_CUDA_FAULT(ROW_OF_FIRST_PLACE) ? 0 : min(r, n - 1));
        return e.row_at ? e.row_at[place] : place;
    }
};

} // namespace

#endif
