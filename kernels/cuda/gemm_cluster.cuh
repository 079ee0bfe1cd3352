/*
 * The 16-bit product by blocks that share x: SB_CLUSTER blocks, each with panels of its own, have
 * the same rows of x. A cluster is these blocks, or twice as many, which have two tiles of x:
 *
 *                         weights of    block 0   block 1   block 2   block 3
 *      tile i of x                      rank 0    rank 1    rank 2    rank 3     a row shares x,
 *      tile i + 1                       rank 4    rank 5    rank 6    rank 7     a column weights
 *
 * Every block reads R rows of weights and M rows of x from L2. Where a matrix is so small that
 * there are no larger blocks for all multiprocessors, x is more than half of that, and L2 takes
 * more time than the memory (gemm_mma.cu). In a cluster each block brings a part of a stage of x,
 * and each of its copies writes into all blocks that have the tile (multicast), so that L2 is read
 * once for four. With two tiles, weights are brought in the same way, so tiles of x may be half as
 * large, and a block's weights twice, for as many blocks: that is fewer bytes for the port of a
 * multiprocessor, and for L2. The sums are those of gemm_kernel, in the same order.
 *
 *   row r of x is brought by the block r % SB_CLUSTER of those that share it, by one bulk copy of
 *   KT * 128 bytes. Each warp's first lane does its share of these. Thread 0 brings weights: all
 *   panels of its block, or every second one, for the block with the other tile of x, too.
 *
 *   full     an mbarrier for each slot of each block. It counts all panels and rows of x of the
 *            block, whoever brings them. Bytes of another block may come before they are announced.
 *   empty    the barrier of the cluster. A warp arrives when it has taken its last operands out of
 *            a stage, and waits for the others one tile of 64 columns later, in the next stage,
 *            where their answer has come long since. Then it fills the slot again. So a warp waits
 *            at most twice a stage, and no block is more than a stage ahead of another.
 *   begin    no copy goes to a block before its mbarriers are there: the first phase of that
 *            barrier. Weights that a block brings for itself alone need not wait for it.
 *   end      a block stays until all have got everything: the last phase.
 *
 * Stages have up to 256 columns, so that a copy of a row is 512 bytes and there are few of them.
 *
 * Rejected: x by a tensor map, as gemm_wgmma.cu has it, one instruction for a whole stage and no
 * padding of rows (it needs the driver's encoder for every x, which may not be there; copies of
 * 512 bytes are few enough); x that the kernel before has written in tiles (five kernels
 * write x, and cuBLASLt reads dense rows); reading a neighbour's shared memory (every byte would
 * cross the network between multiprocessors for each reader, with ordinary loads that wait for it);
 * an mbarrier for `empty` with arrivals from other blocks (every warp would send one to each of
 * four blocks, and a wait would be no later).
 */
#ifndef SB_CUDA_GEMM_CLUSTER_CUH
#define SB_CUDA_GEMM_CLUSTER_CUH

#include "kernels/cuda/gemm_tile.cuh"

namespace
{

/* Where a block is in its cluster, which has X_TILES tiles of x, and what of the product it has. */
template <class S, int X_TILES>
struct cluster_place {
    int along_w, tile; /* among the blocks that share x, and among those that share weights */
    int first_panel, first_x;

    __device__ __forceinline__ cluster_place(const gemm_args &g)
    {
        const int n = SB_CLUSTER * X_TILES, rank = (int)(blockIdx.x % (unsigned)n);
        const unsigned cluster = blockIdx.x / (unsigned)n;

        along_w = rank % SB_CLUSTER;
        tile = rank / SB_CLUSTER;
        first_panel = (int)(cluster / (unsigned)g.m_tiles * SB_CLUSTER + along_w) * S::PANELS;
        first_x = (int)(cluster % (unsigned)g.m_tiles * X_TILES + tile) * S::X_ROWS;
    }
};

/* The stages of a block of a cluster, and what is copied into them. */
template <class S, int X_TILES>
struct cluster_ring {
    /* Rows of x of which every warp of the blocks that share them copies one. */
    enum { WARPS = S::THREADS / 32, AT_ONCE = WARPS * SB_CLUSTER };
    /* Bits of the blocks that share x with rank 0, and of those that share weights with it. */
    enum { SHARE_X = (1 << SB_CLUSTER) - 1, SHARE_W = X_TILES == 2 ? 1 | 1 << SB_CLUSTER : 1 };

    shared_at base;
    const uint8_t *w, *x;   /* stage 0 of the block's first panel, and of this warp's first row */
    int64_t w_step, x_step; /* bytes from panel to panel, and over AT_ONCE rows of x */
    int last_panel;         /* a block's panels past the last are the last once more */
    int first_row, x_rows, n_tiles;
    cluster_place<S, X_TILES> at;

    __device__ __forceinline__ cluster_ring(const gemm_args &g, uint8_t *shared,
                                            const cluster_place<S, X_TILES> &place)
        : base(at_shared(shared)), w_step((int64_t)g.n_tiles * TILE_BYTES),
          x_step((int64_t)AT_ONCE * g.n_tiles * ROW_BYTES),
          last_panel(g.panels - 1 - place.first_panel),
          first_row((int)threadIdx.x / 32 * SB_CLUSTER + place.along_w),
          x_rows(max(0, min(g.m - place.first_x, (int)S::X_ROWS))), n_tiles(g.n_tiles), at(place)
    {
        w = (const uint8_t *)g.w + at.first_panel * w_step;
        x = (const uint8_t *)g.x + (int64_t)(at.first_x + first_row) * g.n_tiles * ROW_BYTES;
        static_assert(S::X_ROWS % AT_ONCE == 0, "warps have the same number of copies");
        static_assert(X_TILES == 1 || (X_TILES == 2 && (int)S::PANELS % 2 == 0),
                      "two blocks that share weights bring as many panels");
        static_assert(S::STAGE_BYTES % 128 == 0, "the swizzle of a stage is that of its tiles");
    }

    __device__ __forceinline__ shared_at stage(int slot) const
    {
        return base + slot * S::STAGE_BYTES;
    }

    /* The mbarrier at which what comes into a slot is counted. */
    __device__ __forceinline__ shared_at arrival(int slot) const
    {
        return base + S::STAGES * S::STAGE_BYTES + slot * 8;
    }

    __device__ __forceinline__ int tiles(int i) const
    {
        return min(n_tiles - i * S::KT, (int)S::KT);
    }

    /* Announces all of stage i, if there is one, and begins to copy this block's part of its
     * weights. */
    __device__ __forceinline__ void fill_w(int slot, int i) const
    {
        const int bytes = tiles(i) * TILE_BYTES;
        const uint8_t *const from = w + (int64_t)i * S::PIECE_BYTES;

        if (threadIdx.x != 0 || bytes <= 0)
            return;
        mbarrier_arrive_expect(arrival(slot), S::PANELS * bytes + x_rows * tiles(i) * ROW_BYTES);
#pragma unroll
        for (int first = 0; first < S::PANELS; first += X_TILES) {
            const int panel = first + at.tile;
            const shared_at to = stage(slot) + panel * S::PIECE_BYTES;
            if (X_TILES == 1)
                bulk_copy(to, from + min(panel, last_panel) * w_step, bytes, arrival(slot));
            else
                bulk_copy_to_cluster(to, from + min(panel, last_panel) * w_step, bytes,
                                     arrival(slot), SHARE_W << at.along_w);
        }
    }

    /* Begins this warp's part of copying x into all blocks that share it. */
    __device__ __forceinline__ void fill_x(int slot, int i) const
    {
        const int bytes = tiles(i) * ROW_BYTES;

        if (threadIdx.x % 32 != 0 || bytes <= 0)
            return;
#pragma unroll
        for (int r = 0; r < S::X_ROWS; r += AT_ONCE)
            if (first_row + r < x_rows)
                bulk_copy_to_cluster(stage(slot) + S::X_AT + (first_row + r) * S::X_PITCH,
                                     x + (int64_t)i * S::X_BYTES + r / AT_ONCE * x_step, bytes,
                                     arrival(slot), SHARE_X << at.tile * SB_CLUSTER);
    }

    __device__ __forceinline__ void make_mbarriers() const
    {
        if (threadIdx.x != 0)
            return;
#pragma unroll 1
        for (int slot = 0; slot < S::STAGES; slot++)
            mbarrier_init(arrival(slot), 1);
        async_fence();
    }

    /* Fills all slots with weights, which no kernel before this one writes. */
    __device__ __forceinline__ void fill_all_w() const
    {
#pragma unroll 1
        for (int i = 0; i < S::STAGES; i++)
            fill_w(i, i);
    }

    /* Waits for all of a slot, the turn-th time that it was filled. */
    __device__ __forceinline__ void wait(int slot, int turn) const
    {
        if (!SB_CUDA_FAULT(STAGE_NOT_AWAITED))
            mbarrier_wait(arrival(slot), turn & 1);
    }
};

template <enum sb_dtype TYPE, class S, int X_TILES>
__global__ void __launch_bounds__(S::THREADS, 1) cluster_kernel(gemm_args g)
{
    if (!has_clusters())
        return;
    SB_DYNAMIC_SHARED(uint8_t, shared);
    const cluster_place<S, X_TILES> at(g);
    const cluster_ring<S, X_TILES> ring(g, shared, at);
    const int n_stages = (g.n_tiles + S::KT - 1) / S::KT;
    const gemm_place<S> place;
    float acc[S::MT][S::WARP_NT][4];
    gemm_step<S> step[2];

    static_assert((int)S::KT > 1, "a slot is filled in the second tile of the next stage");
    ring.make_mbarriers();
    if (X_TILES == 1)
        ring.fill_all_w();
    clear_rows<S>(shared, ring.x_rows);
    cluster_arrive();
    clear_sums<S>(acc);
    grid_launch_next();
    if (!SB_CUDA_FAULT(BLOCKS_NOT_AWAITED))
        cluster_wait();
    if (X_TILES > 1)
        ring.fill_all_w();
    grid_wait_for_previous();
#pragma unroll 1
    for (int i = 0; i < S::STAGES; i++)
        ring.fill_x(i, i);
    if (SB_CUDA_FAULT(BLOCKS_NOT_AWAITED))
        cluster_wait();

    for (int i = 0, slot = 0, turn = 0, last_slot = 0;; i++) {
        ring.wait(slot, turn);
        add_stage<TYPE>(acc, step, ring.stage(slot), place, g.n_tiles - i * S::KT, [&](int tile) {
            if (tile != 1 || i == 0 || i + 1 == n_stages)
                return;
            if (!SB_CUDA_FAULT(READERS_NOT_AWAITED))
                cluster_wait();
            ring.fill_w(last_slot, i - 1 + S::STAGES);
            ring.fill_x(last_slot, i - 1 + S::STAGES);
            if (SB_CUDA_FAULT(READERS_NOT_AWAITED))
                cluster_wait();
        });
        if (i + 1 == n_stages)
            break;
        cluster_arrive_after_reads(); /* the mma have their operands */
        last_slot = slot;
        slot = slot + 1 == S::STAGES ? 0 : slot + 1;
        turn += slot == 0;
    }

    if (n_stages > 1)
        cluster_wait();
    cluster_arrive_after_reads();
    store_all<TYPE, S>(g, acc, at.first_panel + place.panel, at.first_x + place.x);
    if (g.act)
        store_padding<S, typename element<TYPE>::type>(g, at.first_panel, at.first_x, ring.x_rows);
    if (!SB_CUDA_FAULT(LEFT_TOO_EARLY))
        cluster_wait();
}

} // namespace

#endif
