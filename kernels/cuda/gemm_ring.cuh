/*
 * A block of a 16-bit product, and its ring of stages in shared memory (gemm_mma.cu has the
 * kernel).
 *
 * A block takes PANELS panels of 16 weight rows and 8 * NT rows of x. Its warps are WR along the
 * panels, MT panels each, times WX along the rows of x, NT / WX tiles of 8 each.
 *
 *   a stage: KT tiles of 64 columns of k
 *   +-------------------------+  a panel's tiles are one piece of KT * 2 KiB in both memories,
 *   | w  [PANELS] [KT] [2 KiB]|  swizzled already
 *   +-------------------------+
 *   | x  [8 NT] [KT * 128     |  dense rows; the 16 bytes more put the eight rows of an ldmatrix
 *   |            + 16 B]      |  into eight different groups of four banks
 *   +-------------------------+
 *
 *   STAGES of these, all filled ahead, and an mbarrier for each behind them. A stage is filled
 * again when all warps have met after they took their last operands out of it.
 *
 *   On sm_90 one thread brings the weights of a stage by PANELS bulk copies that are counted at the
 *   mbarrier, and begins before the kernel ahead has ended. Elsewhere all threads do, by cp.async.
 *   x, rows of any number, comes by cp.async everywhere.
 */
#ifndef SB_CUDA_GEMM_RING_CUH
#define SB_CUDA_GEMM_RING_CUH

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

enum {
    TILE_BYTES = SB_TILE * 2,  /* of a tile of weights */
    ROW_BYTES = SB_TILE_K * 2, /* of its row */
    STEPS = SB_TILE_K / 16     /* of an mma, in a tile */
};

struct gemm_args {
    float *y;  /* [m, y_ld], or */
    void *act; /* [m, act_ld]: the gated outputs */
    const uint16_t *x, *w;
    const float *bias; /* or NULL */
    int m, n_out, gated, n_tiles, panels, m_tiles;
    int64_t act_ld;
    int y_ld;
};

template <int NT_, int WR_, int WX_, int MT_, int STAGES_, int KT_>
struct gemm_shape {
    enum {
        NT = NT_,
        WR = WR_,
        MT = MT_,
        STAGES = STAGES_,
        KT = KT_,
        THREADS = 32 * WR * WX_,
        WARP_NT = NT / WX_,
        /* Whether a warp takes the operands of a step before the mma of the step before it. In
         * larger blocks there are no registers for that, and other warps' mma hide the wait. */
        AHEAD = THREADS <= 256,
        PANELS = WR * MT,
        PIECE_BYTES = KT * TILE_BYTES, /* of a panel in a stage, */
        X_BYTES = KT * ROW_BYTES,      /* and of a row of x */
        X_PITCH = X_BYTES + 16,
        X_ROWS = 8 * NT,
        X_CHUNKS = X_BYTES / 16,
        X_AT_ONCE = THREADS / X_CHUNKS, /* rows of x that the threads copy at once */
        /* Rows that the warps read from a stage: weights for each warp along x, and x for each
         * along the panels. */
        READS = WX_ * PANELS * SB_TILE_ROWS + WR * X_ROWS,
        X_AT = PANELS * PIECE_BYTES, /* of x within a stage */
        STAGE_BYTES = X_AT + X_ROWS * X_PITCH,
        SHARED = STAGES * (STAGE_BYTES + 8), /* with an mbarrier each */
        /* How many blocks a multiprocessor of compute capability 9.0 can hold, by its 228 KB of
         * shared memory, of which every block takes 1 KB more than it asks for. It is the bound
         * for registers. */
        RESIDENT_ = 228 * 1024 / (SHARED + 1024),
        RESIDENT = RESIDENT_ > 512 / THREADS ? 512 / THREADS : RESIDENT_
    };
};

/* Rows of x that are not there are zeros in every slot, and stay so. */
template <class S>
__device__ __forceinline__ void clear_rows(uint8_t *shared, int x_rows)
{
    const int n = (S::X_ROWS - x_rows) * (S::X_PITCH / 16);

#pragma unroll 1
    for (int slot = 0; slot < S::STAGES; slot++)
        for (int i = threadIdx.x; i < n; i += S::THREADS)
            ((uint4 *)(shared + slot * S::STAGE_BYTES + S::X_AT + x_rows * S::X_PITCH))[i] = uint4{
                0, 0, 0, 0};
}

/* Where a thread finds its chunks of stage 0 of a block's rows of x, from first_x on. at(c) is that
 * of row c * X_AT_ONCE, counted from the thread's first. */
template <class S>
struct gemm_rows {
    const uint8_t *first;
    int64_t step;

    __device__ __forceinline__ gemm_rows(const gemm_args &g, int first_x)
        : step((int64_t)S::X_AT_ONCE * g.n_tiles * ROW_BYTES)
    {
        const int tid = (int)threadIdx.x, row = first_x + tid / S::X_CHUNKS;
        first = (const uint8_t *)g.x + (int64_t)row * g.n_tiles * ROW_BYTES +
                tid % S::X_CHUNKS * 16;
    }
    __device__ __forceinline__ const uint8_t *at(int c) const
    {
        return first + c * step;
    }
};

/* The stages of a block, and what is copied into them. A thread copies chunks of 16 bytes, and with
 * bulk copies thread 0 copies pieces of weights. ROWS: where x is, as gemm_rows says it. */
template <class S, class ROWS = gemm_rows<S>>
struct gemm_ring {
    enum { PIECE_CHUNKS = S::PIECE_BYTES / 16 };
    /* Panels that the threads copy at once; or one in several turns. */
    enum { AT_ONCE = S::THREADS > (int)PIECE_CHUNKS ? S::THREADS / (int)PIECE_CHUNKS : 1 };

    shared_at base;
    /* This thread's first chunk of stage 0. Bulk copies of weights need the block's address, which
     * is the same in all threads, as the compiler then sees. */
    const uint8_t *w;
    int64_t w_step; /* bytes from panel to panel */
    ROWS x;
    int last_panel;      /* a block's panels past the last are the last once more */
    int x_rows, n_tiles; /* rows of x that there are; tiles along k */

    __device__ __forceinline__ gemm_ring(const gemm_args &g, uint8_t *shared, int first_panel,
                                         int first_x, const ROWS &rows)
        : base(at_shared(shared)), w_step((int64_t)g.n_tiles * TILE_BYTES), x(rows),
          last_panel(g.panels - 1 - first_panel), x_rows(min(g.m - first_x, (int)S::X_ROWS)),
          n_tiles(g.n_tiles)
    {
        w = (const uint8_t *)g.w + first_panel * w_step +
            (has_bulk_copies() ? 0 : (int)threadIdx.x % PIECE_CHUNKS * 16);
        static_assert((int)PIECE_CHUNKS % S::THREADS == 0 || S::THREADS % PIECE_CHUNKS == 0,
                      "a thread's chunks of a panel are alike");
        static_assert((int)S::PANELS % AT_ONCE == 0, "threads have the same number of chunks");
        static_assert(S::STAGE_BYTES % 128 == 0, "the swizzle of a stage is that of its tiles");
    }

    __device__ __forceinline__ shared_at stage(int slot) const
    {
        return base + slot * S::STAGE_BYTES;
    }

    /* The mbarrier at which the bulk copies of a slot are counted. */
    __device__ __forceinline__ shared_at arrival(int slot) const
    {
        return base + S::STAGES * S::STAGE_BYTES + slot * 8;
    }

    __device__ __forceinline__ void begin() const
    {
        cp_async_begin();
        if (has_bulk_copies() && threadIdx.x == 0) {
#pragma unroll 1
            for (int slot = 0; slot < S::STAGES; slot++)
                mbarrier_init(arrival(slot), 1);
            async_fence_shared();
        }
    }

    /* Begins to copy the weights of stage i, if there is one: thread 0 all of them, or this thread
     * its part. */
    __device__ __forceinline__ void fill_w(int slot, int i) const
    {
        const int bytes = min(n_tiles - i * S::KT, (int)S::KT) * TILE_BYTES, tid = (int)threadIdx.x;
        const int own_panel = AT_ONCE > 1 ? tid / PIECE_CHUNKS : 0;
        const uint8_t *const from = w + (int64_t)i * S::PIECE_BYTES;

        if (!has_bulk_copies()) {
#pragma unroll
            for (int c = 0; c < S::PANELS * PIECE_CHUNKS; c += S::THREADS)
                if ((c + tid) % PIECE_CHUNKS * 16 < bytes)
                    cp_async(stage(slot) + (c + tid) * 16,
                             from + min(c / PIECE_CHUNKS + own_panel, last_panel) * w_step +
                                 c % PIECE_CHUNKS * 16,
                             true);
        } else if (tid == 0 && bytes > 0) {
            mbarrier_arrive_expect(arrival(slot), S::PANELS * bytes);
            /* Unrolled, many panels would have their addresses in registers all the time. */
#pragma unroll(S::PANELS > 8 ? 1 : S::PANELS)
            for (int panel = 0; panel < S::PANELS; panel++)
                bulk_copy(stage(slot) + panel * S::PIECE_BYTES,
                          from + min(panel, last_panel) * w_step, bytes, arrival(slot));
        }
    }

    /* Begins this thread's part of copying x, and makes a group of it, which is empty past the last
     * stage so that waits can count. */
    __device__ __forceinline__ void fill_x(int slot, int i) const
    {
        const int row = (int)threadIdx.x / S::X_CHUNKS, chunk = (int)threadIdx.x % S::X_CHUNKS * 16;
        const bool is_here = chunk < (n_tiles - i * S::KT) * ROW_BYTES;

#pragma unroll
        for (int c = 0; c < S::X_ROWS; c += S::X_AT_ONCE)
            if (is_here && c + row < x_rows)
                cp_async(stage(slot) + S::X_AT + (c + row) * S::X_PITCH + chunk,
                         x.at(c / S::X_AT_ONCE) + (int64_t)i * S::X_BYTES, true);
        cp_async_commit();
    }

    /* Fills all slots. Weights come first: no kernel before this one writes them, so those that
     * come by bulk copies need not wait for its end. */
    __device__ __forceinline__ void fill_all() const
    {
        if (has_bulk_copies())
#pragma unroll 1
            for (int i = 0; i < S::STAGES; i++)
                fill_w(i, i);
        grid_launch_next();
        grid_wait_for_previous();
#pragma unroll 1
        for (int i = 0; i < S::STAGES; i++) {
            if (!has_bulk_copies())
                fill_w(i, i);
            fill_x(i, i);
        }
    }

    /* Waits for the weights of a slot, the turn-th time that it was filled; what came by cp.async
     * has its own wait. */
    __device__ __forceinline__ void wait(int slot, int turn) const
    {
        if (has_bulk_copies())
            mbarrier_wait(arrival(slot), turn & 1);
    }
};

} // namespace

#endif
