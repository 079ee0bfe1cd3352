/*
 * The 16-bit class's product: y [m, n_out] f32 = x [m, ld] w^T + bias, where x is bf16 or f16 and w
 * [n_out, ld] lies in tiles of the same type (launch.h). It is made for few rows of x and many
 * weights.
 *
 * Numerics: an output has ONE f32 accumulator, which starts at 0 and takes ascending steps of 16
 * along k, each one mma.sync m16n8k16, and then + bias. k is never split. An element of an mma's
 * result depends on its own row of A and its own column of B only, so the bits of y[r][o] are a
 * function of x[r], w[o] and bias[o]: not of m, of the block's shape, of the row's place in it, nor
 * of what fills it up. (Meta's bitequiv and vLLM's batch-invariant mode report the same of
 * cuBLASLt's kernels without split-K; whether those have this kernel's bits is tested at load.)
 *
 * Weights are the m16 operand, rows of x the n8 operand: 1..8 rows of x waste no more than one n8
 * tile. A block takes PANELS panels of 16 weight rows and 8 * NT rows of x:
 *
 *   a stage in shared memory, 128 columns of k
 *   +------------------------+  a panel's two tiles are one piece of 4 KiB in both memories, and
 * are | w  [PANELS] [4 KiB]    |  swizzled already
 *   +------------------------+
 *   | x  [8 NT] [256 + 16 B] |  dense rows; the 16 bytes more put the eight rows of an ldmatrix
 *   +------------------------+  into eight different groups of four banks
 *   STAGES of these in a ring, all filled ahead. When every warp has taken its last operands out of
 *   a stage, it is filled again. That is one barrier every 8 steps, behind which the last mma still
 *   runs; the operands of a step are always taken before the mma of the step before it.
 *
 *   On sm_90 one thread brings the weights of a stage by PANELS bulk copies that are counted at an
 *   mbarrier, and begins to before the kernel ahead has ended. Elsewhere all threads do, by
 *   cp.async. x, which is rows of any number, comes by cp.async everywhere.
 *
 *   warps: WR along the panels, MT panels each, times WX along the rows of x, NT / WX tiles each.
 *
 * Reading the weights is what takes the time, so enough of their bytes must be in flight: bandwidth
 * times latency, about 3.35 TB/s times 0.8 us = 2.7 MB on an H100, or 20 KB for each of its 132
 * multiprocessors. The rings have 32 to 64 KB of weights. The launcher takes the widest block of
 * which the matrix has BLOCKS, because wider blocks read x less often: m / (16 PANELS) bytes of x
 * for each byte of w, from an L2 that gives about 5.5 TB/s in all. For up to 32 rows of x that is
 * no limit, and BLOCKS is 128. For up to 64 it is: 4096 outputs in blocks of 32 would read two
 * bytes of x for one of w, and 64 blocks of 64 with 64 KB in flight are the better bargain. The
 * chain of one accumulator, at 33 clocks a step of 16, takes 4.9 us for k = 4096; a
 * multiprocessor's share of 4096 x 4096 weights takes 11 us to arrive at full speed.
 *
 * A gated weight (launch.h) has a row of gate and the row of up that belongs to it in one thread's
 * results, so the block can write silu(gate) * up itself, with act.cu's operations.
 *
 * Rejected: weights straight to registers (a lane's 16 bytes would mix k across steps: another
 * order of summation); a split along k with an ordered merge (an order too, but not the one of the
 * library's kernels for many rows); wgmma (m64 of weights by n8 has no advantage while the memory
 * is the limit); instances for every eight rows of x (idle mma are hidden behind the memory, and
 * each instance is code to be loaded).
 */
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

enum {
    KT = 2,                    /* tiles of k in a stage */
    TILE_BYTES = SB_TILE * 2,  /* of a tile of weights */
    ROW_BYTES = SB_TILE_K * 2, /* of its row */
    STEPS = SB_TILE_K / 16,    /* of an mma, in a tile */
    PIECE_BYTES = KT * TILE_BYTES,
    X_BYTES = KT * ROW_BYTES, /* of a row of x in a stage */
    X_PITCH = X_BYTES + 16
};

struct gemm_args {
    float *y;  /* [m, n_out], or */
    void *act; /* [m, act_ld]: the gated outputs */
    const uint16_t *x, *w;
    const float *bias; /* or NULL */
    int m, n_out, gated, n_tiles, panels, m_tiles;
    int64_t act_ld;
};

template <enum sb_dtype TYPE>
struct element {
    typedef __nv_bfloat16 type;
};
template <>
struct element<SB_F16> {
    typedef __half type;
};

template <int NT_, int WR_, int WX_, int MT_, int STAGES_>
struct gemm_shape {
    enum {
        NT = NT_,
        WR = WR_,
        MT = MT_,
        STAGES = STAGES_,
        THREADS = 32 * WR * WX_,
        WARP_NT = NT / WX_,
        PANELS = WR * MT,
        X_ROWS = 8 * NT,
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

/* The stages of a block, and what is copied into them. */
template <class S>
struct gemm_ring {
    const gemm_args &g;
    shared_at base;
    int first_panel, first_x, x_rows; /* x_rows: rows of x that there are */

    __device__ __forceinline__ shared_at stage(int slot) const
    {
        return base + slot * S::STAGE_BYTES;
    }

    /* The mbarrier at which the bulk copies of a slot are counted. */
    __device__ __forceinline__ shared_at arrival(int slot) const
    {
        return base + S::STAGES * S::STAGE_BYTES + slot * 8;
    }

    /* Where the weights of stage i begin, of panel `panel` of this block. A panel past the last is
     * the last once more. */
    __device__ __forceinline__ const uint8_t *weights(int i, int panel) const
    {
        return (const uint8_t *)g.w +
               ((int64_t)min(first_panel + panel, g.panels - 1) * g.n_tiles + i * KT) * TILE_BYTES;
    }

    __device__ __forceinline__ void begin() const
    {
        cp_async_begin();
        if (has_bulk_copies() && threadIdx.x == 0) {
            for (int slot = 0; slot < S::STAGES; slot++)
                mbarrier_init(arrival(slot), 1);
            async_fence_shared();
        }
    }

    /* Rows of x that are not there are zeros in every slot, and stay so. */
    __device__ __forceinline__ void clear(uint8_t *shared) const
    {
        const int n = (S::X_ROWS - x_rows) * (X_PITCH / 16);

        for (int i = threadIdx.x; i < S::STAGES * n; i += S::THREADS)
            ((uint4 *)(shared + i / n * S::STAGE_BYTES + S::X_AT +
                       x_rows * X_PITCH))[i % n] = uint4{0, 0, 0, 0};
    }

    /* Begins to copy the weights of stage i, if there is one: one thread by bulk copies, or this
     * thread's part of them. */
    __device__ __forceinline__ void fill_w(int slot, int i) const
    {
        const int bytes = min(g.n_tiles - i * KT, (int)KT) * TILE_BYTES;

        if (bytes <= 0)
            return;
        if (!has_bulk_copies()) {
#pragma unroll
            for (int c = 0; c < S::PANELS * PIECE_BYTES / 16; c += S::THREADS) {
                const int chunk = c + (int)threadIdx.x, at = chunk % (PIECE_BYTES / 16) * 16;
                if (at < bytes)
                    cp_async(stage(slot) + chunk * 16, weights(i, chunk / (PIECE_BYTES / 16)) + at,
                             true);
            }
        } else if (threadIdx.x == 0) {
            mbarrier_arrive_expect(arrival(slot), S::PANELS * bytes);
#pragma unroll
            for (int panel = 0; panel < S::PANELS; panel++)
                bulk_copy(stage(slot) + panel * PIECE_BYTES, weights(i, panel), bytes,
                          arrival(slot));
        }
    }

    /* Begins this thread's part of copying x, and makes a group of it, which is empty past the last
     * stage so that waits can count. */
    __device__ __forceinline__ void fill_x(int slot, int i) const
    {
        const int chunk = threadIdx.x % (X_BYTES / 16) * 16;
        const uint8_t *const x = (const uint8_t *)g.x + (int64_t)i * X_BYTES + chunk;

        if (chunk < (g.n_tiles - i * KT) * ROW_BYTES)
            for (int r = threadIdx.x / (X_BYTES / 16); r < x_rows; r += S::THREADS / (X_BYTES / 16))
                cp_async(stage(slot) + S::X_AT + r * X_PITCH + chunk,
                         x + (int64_t)(first_x + r) * g.n_tiles * ROW_BYTES, true);
        cp_async_commit();
    }

    /* Fills all slots. Weights come first: no kernel before this one writes them, so those that
     * come by bulk copies need not wait for its end. */
    __device__ __forceinline__ void fill_all() const
    {
        if (has_bulk_copies())
            for (int i = 0; i < S::STAGES; i++)
                fill_w(i, i);
        grid_launch_next();
        grid_wait_for_previous();
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

/* The operands of one step of 16 for a warp. */
template <class S>
struct gemm_step {
    uint32_t a[S::MT][4];
    uint32_t b[S::WARP_NT][2];

    /* stage: with this warp's and lane's offsets, `a_at` and `b_at`, for w and x */
    __device__ __forceinline__ void load(shared_at a_at, shared_at b_at, int tile, int step)
    {
#pragma unroll
        for (int t = 0; t < S::MT; t++) /* the swizzle of a step is an xor with bits 5 and 6 */
            ldmatrix4(a[t], (a_at ^ (step << 5)) + (t * KT + tile) * TILE_BYTES);
        b_at += tile * ROW_BYTES + step * 32;
#pragma unroll
        for (int t = 0; t + 2 <= S::WARP_NT; t += 2) {
            uint32_t r[4];
            ldmatrix4(r, b_at + t * 8 * X_PITCH);
            b[t][0] = r[0], b[t][1] = r[1], b[t + 1][0] = r[2], b[t + 1][1] = r[3];
        }
        if (S::WARP_NT % 2) /* x2 ignores the addresses that lanes from 16 on give */
            ldmatrix2(b[S::WARP_NT - 1], b_at + (S::WARP_NT - 1) * 8 * X_PITCH);
    }

    template <enum sb_dtype TYPE>
    __device__ __forceinline__ void add_to(float (&acc)[S::MT][S::WARP_NT][4]) const
    {
#pragma unroll
        for (int t = 0; t < S::MT; t++)
#pragma unroll
            for (int n = 0; n < S::WARP_NT; n++)
                mma<TYPE>(acc[t][n], a[t], b[n][0], b[n][1]);
    }
};

/* y of this thread's results of one panel. */
template <class S>
__device__ __forceinline__ void store(const gemm_args &g, const float (&acc)[S::WARP_NT][4],
                                      int panel, int first_r)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int lane_row = threadIdx.x % 32 / 4, i = panel * 8 + lane_row;
        const int o = g.gated ? i + half * g.gated : panel * 16 + half * 8 + lane_row;
        const bool is_real = g.gated ? i < g.gated : o < g.n_out;
        const float bias = g.bias && is_real ? g.bias[o] : 0.0f;
#pragma unroll
        for (int n = 0; n < S::WARP_NT * 2; n++) {
            const int r = first_r + n / 2 * 8 + threadIdx.x % 4 * 2 + n % 2;
            const float sum = acc[n / 2][half * 2 + n % 2];
            if (is_real && r < g.m)
                g.y[(int64_t)r * g.n_out + o] = g.bias ? sum + bias : sum;
        }
    }
}

/* The same, gated: silu(gate) * up as act.cu computes it. */
template <class S, typename T>
__device__ __forceinline__ void store_gated(const gemm_args &g, const float (&acc)[S::WARP_NT][4],
                                            int panel, int first_r)
{
    const int o = panel * 8 + threadIdx.x % 32 / 4;

    if (o >= g.gated)
        return;
    const float gate_bias = g.bias ? g.bias[o] : 0.0f,
                up_bias = g.bias ? g.bias[g.gated + o] : 0.0f;
#pragma unroll
    for (int n = 0; n < S::WARP_NT * 2; n++) {
        const int r = first_r + n / 2 * 8 + threadIdx.x % 4 * 2 + n % 2;
        float gate = acc[n / 2][n % 2], up = acc[n / 2][2 + n % 2];
        if (g.bias) {
            gate += gate_bias;
            up += up_bias;
        }
        if (r < g.m)
            ((T *)g.act)[r * g.act_ld + o] = sb_from_f32<T>(gate / (1.0f + sb_exp(0.0f - gate)) *
                                                            up);
    }
}

/* Zeros behind the gated outputs of the block's rows, which the block of the last panel writes. */
template <class S, typename T>
__device__ __forceinline__ void store_padding(const gemm_args &g, int first_panel, int first_x,
                                              int x_rows)
{
    const int n = (int)g.act_ld - g.gated;

    if (first_panel + S::PANELS < g.panels)
        return;
    for (int i = threadIdx.x; i < n * x_rows; i += S::THREADS)
        ((T *)g.act)[(first_x + i / n) * g.act_ld + g.gated + i % n] = sb_from_f32<T>(0.0f);
}

template <enum sb_dtype TYPE, class S>
__global__ void __launch_bounds__(S::THREADS, S::RESIDENT) gemm_kernel(gemm_args g)
{
    SB_DYNAMIC_SHARED(uint8_t, shared);
    /* Tiles of x change fastest, so that blocks that run together share weights in L2. */
    const int first_panel = (int)(blockIdx.x / (unsigned)g.m_tiles) * S::PANELS;
    const int first_x = (int)(blockIdx.x % (unsigned)g.m_tiles) * S::X_ROWS;
    const gemm_ring<S> ring = {g, at_shared(shared), first_panel, first_x,
                               min(g.m - first_x, (int)S::X_ROWS)};
    const int n_stages = (g.n_tiles + KT - 1) / KT, lane = threadIdx.x % 32;
    const int warp_panel = (int)threadIdx.x / 32 % S::WR * S::MT;
    const int warp_x = (int)threadIdx.x / 32 / S::WR * S::WARP_NT * 8;
    const shared_at a_at = warp_panel * PIECE_BYTES + swizzled<ROW_BYTES>(lane % 16, lane / 16);
    const shared_at b_at = S::X_AT + (warp_x + lane / 16 * 8 + lane % 8) * X_PITCH +
                           lane / 8 % 2 * 16;
    float acc[S::MT][S::WARP_NT][4];
    gemm_step<S> step[2];

    ring.begin();
    ring.fill_all();
    ring.clear(shared);
#pragma unroll
    for (int i = 0; i < S::MT * S::WARP_NT * 4; i++)
        acc[i / 4 / S::WARP_NT][i / 4 % S::WARP_NT][i % 4] = 0.0f;
    cp_async_wait<S::STAGES - 1>();
    __syncthreads();
    ring.wait(0, 0);
    step[0].load(ring.stage(0) + a_at, ring.stage(0) + b_at, 0, 0);

    for (int i = 0, slot = 0, turn = 0;; i++) {
        const shared_at stage = ring.stage(slot);
#pragma unroll
        for (int tile = 0; tile < KT; tile++) {
            const bool is_last = tile + 1 == KT || i * KT + tile + 1 == g.n_tiles;
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                if (k + 1 < STEPS)
                    step[(k + 1) % 2].load(stage + a_at, stage + b_at, tile, k + 1);
                else if (!is_last)
                    step[0].load(stage + a_at, stage + b_at, tile + 1, 0);
                step[k % 2].template add_to<TYPE>(acc);
            }
            if (is_last)
                break;
        }
        if (i + 1 == n_stages)
            break;
        cp_async_wait<S::STAGES - 2>();
        __syncthreads(); /* x of stage i + 1 is here, and all have what they need of stage i */
        ring.fill_w(slot, i + S::STAGES);
        ring.fill_x(slot, i + S::STAGES);
        slot = slot + 1 == S::STAGES ? 0 : slot + 1;
        turn += slot == 0;
        ring.wait(slot, turn);
        step[0].load(ring.stage(slot) + a_at, ring.stage(slot) + b_at, 0, 0);
    }

#pragma unroll
    for (int t = 0; t < S::MT; t++)
        if (g.act)
            store_gated<S, typename element<TYPE>::type>(g, acc[t], first_panel + warp_panel + t,
                                                         first_x + warp_x);
        else
            store<S>(g, acc[t], first_panel + warp_panel + t, first_x + warp_x);
    if (g.act)
        store_padding<S, typename element<TYPE>::type>(g, first_panel, first_x, ring.x_rows);
}

template <enum sb_dtype TYPE, class S>
cudaError_t launch_shape(gemm_args g, cudaStream_t stream)
{
    const int64_t row_blocks = ((int64_t)g.panels + S::PANELS - 1) / S::PANELS;

    g.m_tiles = (g.m + S::X_ROWS - 1) / S::X_ROWS;
    if (row_blocks * g.m_tiles > INT32_MAX)
        return cudaErrorInvalidConfiguration;
    return SB_LAUNCH_WITH(SB_DEPENDENT, (gemm_kernel<TYPE, S>),
                          dim3((unsigned)(row_blocks * g.m_tiles)), dim3(S::THREADS), S::SHARED,
                          stream, g);
}

/* The shapes of block for 8 * NT rows of x, with 64, 32 and 16 rows of weights; for 64 rows of x
 * with 128, 64 and 32. */
template <int NT>
struct blocks_for {
    enum { BLOCKS = 128, WX = NT / 2 };
    typedef gemm_shape<NT, 4, WX, 1, 4> wide;
    typedef gemm_shape<NT, 2, WX, 1, 6> medium;
    typedef gemm_shape<NT, 1, WX, 1, 8> narrow;
};
template <>
struct blocks_for<1> {
    enum { BLOCKS = 128 };
    typedef gemm_shape<1, 4, 1, 1, 4> wide;
    typedef gemm_shape<1, 2, 1, 1, 6> medium;
    typedef gemm_shape<1, 1, 1, 1, 12> narrow;
};
template <>
struct blocks_for<8> {
    enum { BLOCKS = 64 };
    typedef gemm_shape<8, 4, 2, 2, 3> wide;
    typedef gemm_shape<8, 4, 2, 1, 4> medium;
    typedef gemm_shape<8, 2, 2, 1, 6> narrow;
};

/* Takes the widest block of which the matrix needs at least BLOCKS, else the narrowest. */
template <enum sb_dtype TYPE, int NT>
cudaError_t launch_rows(const gemm_args &g, cudaStream_t stream)
{
    typedef blocks_for<NT> blocks;

    if (g.panels > blocks::wide::PANELS * (blocks::BLOCKS - 1))
        return launch_shape<TYPE, typename blocks::wide>(g, stream);
    if (g.panels > blocks::medium::PANELS * (blocks::BLOCKS - 1))
        return launch_shape<TYPE, typename blocks::medium>(g, stream);
    return launch_shape<TYPE, typename blocks::narrow>(g, stream);
}

template <enum sb_dtype TYPE, int NT>
cudaError_t load_rows(void)
{
    typedef blocks_for<NT> blocks;
    cudaError_t error = sb_load(gemm_kernel<TYPE, typename blocks::wide>, blocks::wide::SHARED);

    if (error == cudaSuccess)
        error = sb_load(gemm_kernel<TYPE, typename blocks::medium>, blocks::medium::SHARED);
    if (error == cudaSuccess)
        error = sb_load(gemm_kernel<TYPE, typename blocks::narrow>, blocks::narrow::SHARED);
    return error;
}

template <enum sb_dtype TYPE>
cudaError_t launch_type(const gemm_args &g, cudaStream_t stream)
{
    if (g.m <= 8)
        return launch_rows<TYPE, 1>(g, stream);
    if (g.m <= 16)
        return launch_rows<TYPE, 2>(g, stream);
    if (g.m <= 32)
        return launch_rows<TYPE, 4>(g, stream);
    return launch_rows<TYPE, 8>(g, stream); /* more than 64 rows in tiles of 64 */
}

template <enum sb_dtype TYPE>
cudaError_t load_type(void)
{
    cudaError_t (*const of_rows[])(void) = {load_rows<TYPE, 1>, load_rows<TYPE, 2>,
                                            load_rows<TYPE, 4>, load_rows<TYPE, 8>};
    cudaError_t error = cudaSuccess;

    for (size_t i = 0; error == cudaSuccess && i < sizeof of_rows / sizeof of_rows[0]; i++)
        error = of_rows[i]();
    return error;
}

/* Completes the arguments of a product with n_out rows of weights, and launches it. */
cudaError_t launch(gemm_args g, enum sb_dtype type, int32_t n_in, cudaStream_t stream)
{
    if (g.m <= 0 || g.n_out <= 0)
        return cudaSuccess;
    if (type == SB_F32)
        return cudaErrorInvalidValue;
    g.n_tiles = (int)(sb_cuda_ld(type, n_in) / SB_TILE_K);
    g.panels = (int)(((int64_t)g.n_out + SB_TILE_ROWS - 1) / SB_TILE_ROWS);
    return type == SB_BF16 ? launch_type<SB_BF16>(g, stream) : launch_type<SB_F16>(g, stream);
}

} // namespace

cudaError_t sb_cuda_gemm_mma(float *y, const void *x, const void *w, enum sb_dtype type,
                             const float *bias, int32_t m, int32_t n_out, int32_t n_in,
                             int32_t gated, cudaStream_t stream)
{
    const gemm_args g = {
        y, NULL, (const uint16_t *)x, (const uint16_t *)w, bias, m, n_out, gated, 0, 0, 0, 0};

    return launch(g, type, n_in, stream);
}

cudaError_t sb_cuda_gated_mma(void *y, const void *x, const void *w, enum sb_dtype type,
                              const float *bias, int32_t m, int32_t n, int32_t n_in,
                              cudaStream_t stream)
{
    const gemm_args g = {NULL, y, (const uint16_t *)x, (const uint16_t *)w, bias, m, 2 * n, n, 0,
                         0,    0, sb_cuda_ld(type, n)};

    return launch(g, type, n_in, stream);
}

cudaError_t sb_load_gemm_mma(enum sb_dtype type)
{
    if (type == SB_F32)
        return cudaSuccess;
    return type == SB_BF16 ? load_type<SB_BF16>() : load_type<SB_F16>();
}
