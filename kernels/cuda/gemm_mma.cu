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
 * tile. A block is as gemm_ring.cuh draws it. When every warp has taken its last operands out of a
 * stage, they meet, and it is filled again between the next mma. That is one barrier every 4 or 8
 * steps, at which the last mma still runs; the operands of a step are taken before the mma of the
 * step before it, but in the largest block.
 *
 * Up to 32 rows of x, reading the weights is what takes the time, so enough of their bytes must be
 * in flight: bandwidth times latency, about 3.35 TB/s times 0.8 us = 2.7 MB on an H100, or 20 KB
 * for each of its 132 multiprocessors. The rings have 28 to 64 KB of weights. The launcher takes
 * the widest block of which the matrix has ENOUGH, because wider blocks read x less often. The
 * chain of one accumulator, at 33 clocks a step of 16, takes 4.9 us for k = 4096; a
 * multiprocessor's share of 4096 x 4096 weights takes 11 us to arrive at full speed.
 *
 * With more rows, the L2 takes the time: every block reads its rows of x and its weights from
 * there. R rows of weights times M rows of x cost R + M, and make R M outputs, so blocks are as
 * large as registers allow, up to 192 x 192 with 96 accumulators a thread, and as many as there
 * are multiprocessors. Both wishes cannot be had for a small matrix. time_of weighs them for each
 * shape of block, and the launcher takes the best.
 *
 * A gated weight (launch.h) has a row of gate and the row of up that belongs to it in one thread's
 * results, so the block can write silu(gate) * up itself, with act.cu's operations.
 *
 * Rejected: weights straight to registers (a lane's 16 bytes would mix k across steps: another
 * order of summation); a split along k with an ordered merge (an order too, but not the one of the
 * library's kernels for many rows); wgmma (m64 of weights by n8 has no advantage while the memory
 * is the limit; docs/cuda.md has figures for many rows); x shared by a cluster of blocks
 * (docs/cuda.md too); instances for every eight rows of x (idle mma are hidden behind the memory,
 * and each instance is code to be loaded).
 */
#include "kernels/cuda/gemm_ring.cuh"

namespace
{

/* Blocks that keep an H100's multiprocessors busy, and the shared memory that a block may have on
 * any device with tensor cores for bf16. */
constexpr int ENOUGH = 128, LEAST_SHARED = 99 * 1024;
/* No device before sm_90 has more, so code for those has no shapes that need more. */
constexpr int MOST_SHARED_BEFORE = 163 * 1024;

template <enum sb_dtype TYPE>
struct element {
    typedef __nv_bfloat16 type;
};
template <>
struct element<SB_F16> {
    typedef __half type;
};

/* The operands of one step of 16 for a warp. */
template <class S>
struct gemm_step {
    uint32_t a[S::MT][4];
    uint32_t b[S::WARP_NT][2];

    /* stage: with this warp's and lane's offsets, `a_at` and `b_at`, for w and x */
    __device__ __forceinline__ void load(shared_at a_at, shared_at b_at, int tile, int step)
    {
        if (SB_CUDA_FAULT(STEPS_EXCHANGED) && S::X_ROWS == 64 && S::PANELS == 2)
            step ^= 1;
#pragma unroll
        for (int t = 0; t < S::MT; t++) /* the swizzle of a step is an xor with bits 5 and 6 */
            ldmatrix4(a[t], (a_at ^ (step << 5)) + (t * S::KT + tile) * TILE_BYTES);
        b_at += tile * ROW_BYTES + step * 32;
#pragma unroll
        for (int t = 0; t + 2 <= S::WARP_NT; t += 2) {
            uint32_t r[4];
            ldmatrix4(r, b_at + t * 8 * S::X_PITCH);
            b[t][0] = r[0], b[t][1] = r[1], b[t + 1][0] = r[2], b[t + 1][1] = r[3];
        }
        if (S::WARP_NT % 2) /* x2 ignores the addresses that lanes from 16 on give */
            ldmatrix2(b[S::WARP_NT - 1], b_at + (S::WARP_NT - 1) * 8 * S::X_PITCH);
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

/* silu(gate) * up as act.cu computes it. */
template <typename T>
__device__ __forceinline__ T gated_output(float gate, float up)
{
    float silu = gate / (1.0f + sb_exp(0.0f - gate));

    if (SB_CUDA_FAULT(SILU_ROUNDED))
        silu = sb_to_f32(sb_from_f32<T>(silu));
    return sb_from_f32<T>(silu * up);
}

/* The same, gated. */
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
            ((T *)g.act)[r * g.act_ld + o] = SB_CUDA_FAULT(GATE_AND_UP_SWAPPED)
                                                 ? gated_output<T>(up, gate)
                                                 : gated_output<T>(gate, up);
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
    if (!has_bulk_copies() && S::SHARED > MOST_SHARED_BEFORE)
        return;
    SB_DYNAMIC_SHARED(uint8_t, shared);
    /* Tiles of x change fastest, so that blocks that run together share weights in L2. */
    const int first_panel = (int)(blockIdx.x / (unsigned)g.m_tiles) * S::PANELS;
    const int first_x = (int)(blockIdx.x % (unsigned)g.m_tiles) * S::X_ROWS;
    const gemm_ring<S> ring(g, shared, first_panel, first_x);
    const int n_stages = (g.n_tiles + S::KT - 1) / S::KT, lane = threadIdx.x % 32;
    const int warp_panel = (int)threadIdx.x / 32 % S::WR * S::MT;
    const int warp_x = (int)threadIdx.x / 32 / S::WR * S::WARP_NT * 8;
    const shared_at a_at = warp_panel * S::PIECE_BYTES + swizzled<ROW_BYTES>(lane % 16, lane / 16);
    const shared_at b_at = S::X_AT + (warp_x + lane / 16 * 8 + lane % 8) * S::X_PITCH +
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
    if (S::AHEAD)
        step[0].load(ring.stage(0) + a_at, ring.stage(0) + b_at, 0, 0);

    for (int i = 0, slot = 0, turn = 0, last_slot = 0;; i++) {
        const shared_at stage = ring.stage(slot);
#pragma unroll
        for (int tile = 0; tile < S::KT; tile++) {
            const bool is_last = tile + 1 == S::KT || i * S::KT + tile + 1 == g.n_tiles;
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                if (!S::AHEAD)
                    step[k % 2].load(stage + a_at, stage + b_at, tile, k);
                else if (k + 1 < STEPS)
                    step[(k + 1) % 2].load(stage + a_at, stage + b_at, tile, k + 1);
                else if (!is_last)
                    step[0].load(stage + a_at, stage + b_at, tile + 1, 0);
                step[k % 2].template add_to<TYPE>(acc);
                if (tile == 0 && k == 0 && i > 0) { /* while the tensor core works */
                    ring.fill_w(last_slot, i - 1 + S::STAGES);
                    ring.fill_x(last_slot, i - 1 + S::STAGES);
                }
            }
            if (is_last)
                break;
        }
        if (i + 1 == n_stages)
            break;
        cp_async_wait<S::STAGES - 2>();
        __syncthreads(); /* x of stage i + 1 is here, and all have what they need of stage i */
        last_slot = slot;
        slot = slot + 1 == S::STAGES ? 0 : slot + 1;
        turn += slot == 0;
        ring.wait(slot, turn);
        if (S::AHEAD)
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

/* The shapes of block for up to 8 * NT rows of x, with 64, 32 and 16 rows of weights. Every device
 * has the shared memory for them, 99 KB at most. */
template <int NT>
struct blocks_for {
    enum { WX = NT / 2 };
    typedef gemm_shape<NT, 4, WX, 1, 4, 2> wide;
    typedef gemm_shape<NT, 2, WX, 1, 5, 2> medium;
    typedef gemm_shape<NT, 1, WX, 1, 7, 2> narrow;
};
template <>
struct blocks_for<1> {
    typedef gemm_shape<1, 4, 1, 1, 4, 2> wide;
    typedef gemm_shape<1, 2, 1, 1, 6, 2> medium;
    typedef gemm_shape<1, 1, 1, 1, 12, 2> narrow;
};

/* Takes the widest block of which the matrix needs at least ENOUGH, else the narrowest. */
template <enum sb_dtype TYPE, int NT>
cudaError_t launch_rows(const gemm_args &g, cudaStream_t stream)
{
    typedef blocks_for<NT> blocks;

    static_assert(blocks::wide::SHARED <= LEAST_SHARED && blocks::medium::SHARED <= LEAST_SHARED &&
                      blocks::narrow::SHARED <= LEAST_SHARED,
                  "some devices have no more");
    if (g.panels > blocks::wide::PANELS * (ENOUGH - 1))
        return launch_shape<TYPE, typename blocks::wide>(g, stream);
    if (g.panels > blocks::medium::PANELS * (ENOUGH - 1))
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

/* A shape of block for more than 32 rows of x. */
struct many_rows {
    int panels, x_rows, shared;
    cudaError_t (*launch)(gemm_args, cudaStream_t);
    cudaError_t (*load)(void);
};

template <enum sb_dtype TYPE, class S>
cudaError_t load_shape(void)
{
    return sb_load(gemm_kernel<TYPE, S>, S::SHARED);
}

template <enum sb_dtype TYPE, class S>
constexpr many_rows of_shape(void)
{
    return {S::PANELS, S::X_ROWS, S::SHARED, launch_shape<TYPE, S>, load_shape<TYPE, S>};
}

/* Of equal times the first is taken. The last is for devices whose blocks have at most 99 KB. */
template <enum sb_dtype TYPE>
const many_rows *shape_of(int i)
{
    static const many_rows shapes[SB_GEMM_SHAPES] = {
        of_shape<TYPE, gemm_shape<8, 2, 2, 1, 6, 2>>(),
        of_shape<TYPE, gemm_shape<8, 4, 2, 1, 4, 2>>(),
        of_shape<TYPE, gemm_shape<8, 4, 2, 2, 3, 2>>(),
        of_shape<TYPE, gemm_shape<12, 2, 2, 2, 7, 1>>(),
        of_shape<TYPE, gemm_shape<16, 2, 4, 3, 5, 1>>(),
        of_shape<TYPE, gemm_shape<16, 4, 2, 3, 3, 1>>(),
        of_shape<TYPE, gemm_shape<24, 4, 3, 3, 4, 1>>(),
        of_shape<TYPE, gemm_shape<8, 4, 2, 1, 5, 1>>(),
    };

    return &shapes[i];
}

/* What decides between shapes: eighths of a clock that 64 columns of k take, by what the L2 gives
 * the whole device, what a multiprocessor's port takes, and what its tensor cores do. The numbers
 * are those of test/bench/gpu_time/gpu_time.py. */
int64_t time_of(const many_rows &s, const gemm_args &g, int processors)
{
    const int64_t row_blocks = (g.panels + s.panels - 1) / s.panels;
    const int64_t m_tiles = (g.m + s.x_rows - 1) / s.x_rows;
    const int64_t turns = (row_blocks * m_tiles + processors - 1) / processors;
    const int64_t rows = (int64_t)s.panels * SB_TILE_ROWS; /* of 128 bytes, as those of x */
    const int64_t of_l2 = row_blocks * (m_tiles * rows + g.m) * 128 * 8 / 28 / processors;
    const int64_t of_port = (rows + (g.m < s.x_rows ? g.m : s.x_rows)) * 128 * 8 / 64;
    const int64_t of_mma = (int64_t)s.panels * (s.x_rows / 8) * 13 * 8 / 2;
    const int64_t of_block = of_port > of_mma ? of_port : of_mma;

    return of_l2 > turns * of_block ? of_l2 : turns * of_block;
}

/* More than 32 rows of x: of the shapes whose stages a block can have, that which takes least time.
 */
template <enum sb_dtype TYPE>
cudaError_t launch_many(const gemm_args &g, cudaStream_t stream)
{
    int device = 0, processors = 1, most = 0;
    int64_t least = INT64_MAX;
    const many_rows *best = NULL;
    cudaError_t error = cudaGetDevice(&device);

    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess)
        return error;
    for (int i = 0; i < SB_GEMM_SHAPES; i++) {
        const many_rows *const s = shape_of<TYPE>(i);
        const int64_t time = time_of(*s, g, processors);
        if (s->shared <= most && time < least) {
            least = time;
            best = s;
        }
    }
    return best ? best->launch(g, stream) : cudaErrorInvalidConfiguration;
}

template <enum sb_dtype TYPE>
cudaError_t launch_type(const gemm_args &g, int shape, cudaStream_t stream)
{
    if (shape != SB_GEMM_ANY)
        return shape_of<TYPE>(shape)->launch(g, stream);
    if (g.m <= 8)
        return launch_rows<TYPE, 1>(g, stream);
    if (g.m <= 16)
        return launch_rows<TYPE, 2>(g, stream);
    if (g.m <= 32)
        return launch_rows<TYPE, 4>(g, stream);
    return launch_many<TYPE>(g, stream);
}

template <enum sb_dtype TYPE>
cudaError_t load_type(void)
{
    cudaError_t error = load_rows<TYPE, 1>();

    if (error == cudaSuccess)
        error = load_rows<TYPE, 2>();
    if (error == cudaSuccess)
        error = load_rows<TYPE, 4>();
    for (int i = 0; error == cudaSuccess && i < SB_GEMM_SHAPES; i++)
        error = shape_of<TYPE>(i)->load();
    return error;
}

/* Completes the arguments of a product with n_out rows of weights, and launches it. */
cudaError_t launch(gemm_args g, enum sb_dtype type, int32_t n_in, int shape, cudaStream_t stream)
{
    if (g.m <= 0 || g.n_out <= 0)
        return cudaSuccess;
    if (type == SB_F32 || shape < SB_GEMM_ANY || shape >= SB_GEMM_SHAPES)
        return cudaErrorInvalidValue;
    g.n_tiles = (int)(sb_cuda_ld(type, n_in) / SB_TILE_K);
    g.panels = (int)(((int64_t)g.n_out + SB_TILE_ROWS - 1) / SB_TILE_ROWS);
    return type == SB_BF16 ? launch_type<SB_BF16>(g, shape, stream)
                           : launch_type<SB_F16>(g, shape, stream);
}

} // namespace

cudaError_t sb_cuda_gemm_mma(float *y, const void *x, const void *w, enum sb_dtype type,
                             const float *bias, int32_t m, int32_t n_out, int32_t n_in,
                             int32_t gated, cudaStream_t stream)
{
    return sb_cuda_gemm_mma_in(SB_GEMM_ANY, y, x, w, type, bias, m, n_out, n_in, gated, stream);
}

cudaError_t sb_cuda_gemm_mma_in(int32_t shape, float *y, const void *x, const void *w,
                                enum sb_dtype type, const float *bias, int32_t m, int32_t n_out,
                                int32_t n_in, int32_t gated, cudaStream_t stream)
{
    const gemm_args g = {
        y, NULL, (const uint16_t *)x, (const uint16_t *)w, bias, m, n_out, gated, 0, 0, 0, 0};

    return launch(g, type, n_in, shape, stream);
}

cudaError_t sb_cuda_gated_mma(void *y, const void *x, const void *w, enum sb_dtype type,
                              const float *bias, int32_t m, int32_t n, int32_t n_in,
                              cudaStream_t stream)
{
    const gemm_args g = {NULL, y, (const uint16_t *)x, (const uint16_t *)w, bias, m, 2 * n, n, 0,
                         0,    0, sb_cuda_ld(type, n)};

    return launch(g, type, n_in, SB_GEMM_ANY, stream);
}

cudaError_t sb_load_gemm_mma(enum sb_dtype type)
{
    if (type == SB_F32)
        return cudaSuccess;
    return type == SB_BF16 ? load_type<SB_BF16>() : load_type<SB_F16>();
}
