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
 * stage, they meet, and it is filled again between the next mma. That is one barrier every 4, 8 or
 * 16 steps, at which the last mma still runs; the operands of a step are taken before the mma of
 * the step before it, but in the largest block.
 *
 * Up to 32 rows of x, reading the weights is what takes the time, so enough of their bytes must be
 * in flight: bandwidth times latency, about 3.35 TB/s times 0.8 us = 2.7 MB on an H100, or 20 KB
 * for each of its 132 multiprocessors. The rings have 28 to 64 KB of weights. The launcher takes
 * the widest block of which the matrix has ENOUGH, because wider blocks read x less often. The
 * chain of one accumulator, at 33 clocks a step of 16, takes 4.9 us for k = 4096; a
 * multiprocessor's share of 4096 x 4096 weights takes 11 us to arrive at full speed. From about 20
 * rows on, blocks of 32 rows of weights read x so often that the L2 takes longer than the memory.
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
 * library's kernels for many rows); wgmma for few rows (m64 of weights by n8 has no advantage while
 * the memory is the limit; gemm_wgmma.cu is for many); instances for every eight rows of x (idle
 * mma are hidden behind the memory, and each instance is code to be loaded); clusters of blocks
 * that share x by multicast, so that L2 is read less (on an H200 they took 78 us for 96 rows where
 * wgmma takes 36; sm_100, which has no wgmma, has never been timed).
 */
#include "kernels/cuda/gemm_launch.cuh"
#include "kernels/cuda/gemm_tile.cuh"

namespace
{

/* Blocks that keep an H100's multiprocessors busy, and the shared memory that a block may have on
 * any device with tensor cores for bf16. */
constexpr int ENOUGH = 128, LEAST_SHARED = 99 * 1024;
/* No device before sm_90 has more, so code for those has no shapes that need more. */
constexpr int MOST_SHARED_BEFORE = 163 * 1024;

template <enum sb_dtype TYPE, class S>
__global__ void __launch_bounds__(S::THREADS, S::RESIDENT) gemm_kernel(gemm_args g)
{
    if (!has_bulk_copies() && S::SHARED > MOST_SHARED_BEFORE)
        return;
    SB_DYNAMIC_SHARED(uint8_t, shared);
    /* Tiles of x change fastest, so that blocks that run together share weights in L2. */
    const int first_panel = (int)(blockIdx.x / (unsigned)g.m_tiles) * S::PANELS;
    const int first_x = (int)(blockIdx.x % (unsigned)g.m_tiles) * S::X_ROWS;

    multiply_block<TYPE, S>(g, shared, first_panel, first_x, gemm_rows<S>(g, first_x));
}

/* What mma.sync takes (block_shape): four of 13 / 8 clocks, 62 % of the data sheet's peak. */
constexpr int MMA_TIME = 4 * 13;

/* A shape of block and its kernel. */
struct own_shape {
    block_shape block;
    cudaError_t (*launch)(gemm_args, cudaStream_t);
    cudaError_t (*load)(void);
};

template <class S>
constexpr block_shape block_of(void)
{
    return {S::PANELS, S::X_ROWS, S::SHARED, S::READS, MMA_TIME};
}

template <enum sb_dtype TYPE, class S>
cudaError_t launch_shape(gemm_args g, cudaStream_t stream)
{
    const unsigned blocks = blocks_of(&g, block_of<S>());

    if (blocks == 0)
        return cudaErrorInvalidConfiguration;
    return SB_LAUNCH_WITH(SB_DEPENDENT, (gemm_kernel<TYPE, S>), dim3(blocks), dim3(S::THREADS),
                          S::SHARED, stream, g);
}

/* The shapes of block for up to 8 * NT rows of x, with 64, 32 and 16 rows of weights. Every device
 * has the shared memory for them, 99 KB at most. A matrix of so few rows that a multiprocessor has
 * one block waits for the chain of its mma and barriers; so up to 16 rows of x, where there is room
 * for them, stages have 256 columns and half as many barriers. */
template <int NT>
struct blocks_for {
    enum { WX = NT / 2 };
    typedef gemm_shape<NT, 4, WX, 1, 4, 2> wide;
    typedef gemm_shape<NT, 2, WX, 1, 5, 2> medium;
    typedef gemm_shape<NT, 1, WX, 1, 7, 2> narrow;
};
template <>
struct blocks_for<2> {
    typedef gemm_shape<2, 4, 1, 1, 4, 2> wide;
    typedef gemm_shape<2, 2, 1, 1, 3, 4> medium;
    typedef gemm_shape<2, 1, 1, 1, 4, 4> narrow;
};
template <>
struct blocks_for<1> {
    typedef gemm_shape<1, 4, 1, 1, 4, 2> wide;
    typedef gemm_shape<1, 2, 1, 1, 3, 4> medium;
    typedef gemm_shape<1, 1, 1, 1, 6, 4> narrow;
};

template <enum sb_dtype TYPE, class S>
cudaError_t load_shape(void)
{
    return sb_load(gemm_kernel<TYPE, S>, S::SHARED);
}

template <enum sb_dtype TYPE, class S>
constexpr own_shape of_shape(void)
{
    return {block_of<S>(), launch_shape<TYPE, S>, load_shape<TYPE, S>};
}

template <enum sb_dtype TYPE, class S>
constexpr own_shape of_few(void)
{
    static_assert(S::SHARED <= LEAST_SHARED, "some devices have no more");
    return of_shape<TYPE, S>();
}

/* The shapes for more than 32 rows of x, of which the last is for devices whose blocks have at most
 * 99 KB. From SB_GEMM_SHAPES on: those for up to 8, 16 and 32 rows, of three widths each. */
template <enum sb_dtype TYPE>
const own_shape *shape_of(int i)
{
    static const own_shape shapes[SB_GEMM_KERNELS] = {
        of_shape<TYPE, gemm_shape<8, 2, 2, 1, 6, 2>>(),
        of_shape<TYPE, gemm_shape<8, 4, 2, 1, 4, 2>>(),
        of_shape<TYPE, gemm_shape<8, 4, 2, 2, 3, 2>>(),
        of_shape<TYPE, gemm_shape<12, 2, 2, 2, 7, 1>>(),
        of_shape<TYPE, gemm_shape<16, 2, 4, 3, 5, 1>>(),
        of_shape<TYPE, gemm_shape<16, 4, 2, 3, 3, 1>>(),
        of_shape<TYPE, gemm_shape<24, 4, 3, 3, 4, 1>>(),
        of_shape<TYPE, gemm_shape<8, 4, 2, 1, 5, 1>>(),
        of_few<TYPE, blocks_for<1>::wide>(),
        of_few<TYPE, blocks_for<1>::medium>(),
        of_few<TYPE, blocks_for<1>::narrow>(),
        of_few<TYPE, blocks_for<2>::wide>(),
        of_few<TYPE, blocks_for<2>::medium>(),
        of_few<TYPE, blocks_for<2>::narrow>(),
        of_few<TYPE, blocks_for<4>::wide>(),
        of_few<TYPE, blocks_for<4>::medium>(),
        of_few<TYPE, blocks_for<4>::narrow>(),
    };

    return &shapes[i];
}

/* Of the three shapes from `first` on, the widest of which the matrix needs at least ENOUGH blocks,
 * else the narrowest. */
template <enum sb_dtype TYPE>
int widest(int first, const gemm_args &g)
{
    for (int i = first; i < first + 2; i++)
        if (g.panels > shape_of<TYPE>(i)->block.panels * (ENOUGH - 1))
            return i;
    return first + 2;
}

/* The number of the shape that a product is made by; -1: the device can have none. */
template <enum sb_dtype TYPE>
int choose(const gemm_args &g, const struct sb_launch_limits &limits)
{
    if (g.m <= 8)
        return widest<TYPE>(SB_GEMM_SHAPES, g);
    if (g.m <= 16)
        return widest<TYPE>(SB_GEMM_SHAPES + 3, g);
    if (g.m <= 32)
        return widest<TYPE>(SB_GEMM_SHAPES + 6, g);
    return best_shape(
        SB_GEMM_SHAPES, [](int i) -> const block_shape & { return shape_of<TYPE>(i)->block; }, g,
        limits);
}

template <enum sb_dtype TYPE>
cudaError_t launch_type(const gemm_args &g, const struct sb_launch_limits &limits,
                        cudaStream_t stream)
{
    const int best = choose<TYPE>(g, limits);

    return best < 0 ? cudaErrorInvalidConfiguration : shape_of<TYPE>(best)->launch(g, stream);
}

template <enum sb_dtype TYPE>
cudaError_t load_type(void)
{
    cudaError_t error = cudaSuccess;

    for (int i = 0; error == cudaSuccess && i < SB_GEMM_KERNELS; i++)
        error = shape_of<TYPE>(i)->load();
    return error;
}

cudaError_t launch(gemm_args g, enum sb_dtype type, int32_t n_in,
                   const struct sb_launch_limits *limits, cudaStream_t stream)
{
    cudaError_t error;

    if (!complete(&g, &error, type, n_in))
        return error;
    return type == SB_BF16 ? launch_type<SB_BF16>(g, *limits, stream)
                           : launch_type<SB_F16>(g, *limits, stream);
}

} // namespace

cudaError_t sb_cuda_launch_limits(struct sb_launch_limits *limits, enum sb_dtype type)
{
    int device = 0, processors = 1, shared = 0;
    cudaError_t error = cudaGetDevice(&device);

    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess)
        return error;
    *limits = {processors, shared, 0, NULL};
    if (type == SB_F32)
        return cudaSuccess;
    /* The code that the device runs may be made for an older one. */
    if (shared > MOST_SHARED_BEFORE &&
        !sb_is_for_sm_90(type == SB_BF16 ? (const void *)gemm_kernel<SB_BF16, blocks_for<1>::wide>
                                         : (const void *)gemm_kernel<SB_F16, blocks_for<1>::wide>))
        limits->shared = MOST_SHARED_BEFORE;
    limits->cluster = sb_cuda_most_of_cluster(type);
    limits->map_encoder = sb_cuda_map_encoder();
    return cudaSuccess;
}

cudaError_t sb_cuda_gemm_mma(float *y, const void *x, const void *w, enum sb_dtype type,
                             const float *bias, int32_t m, int32_t n_out, int32_t n_in,
                             int32_t gated, const struct sb_launch_limits *limits,
                             cudaStream_t stream)
{
    return launch(plain_product(y, x, w, bias, m, n_out, gated), type, n_in, limits, stream);
}

int32_t sb_cuda_gemm_mma_shape(enum sb_dtype type, int32_t m, int32_t n_out, int32_t n_in,
                               const struct sb_launch_limits *limits)
{
    gemm_args g = plain_product(NULL, NULL, NULL, NULL, m, n_out, 0);
    cudaError_t error;

    if (!complete(&g, &error, type, n_in))
        return -1;
    return type == SB_BF16 ? choose<SB_BF16>(g, *limits) : choose<SB_F16>(g, *limits);
}

cudaError_t sb_cuda_gemm_mma_in(int32_t shape, float *y, const void *x, const void *w,
                                enum sb_dtype type, const float *bias, int32_t m, int32_t n_out,
                                int32_t n_in, int32_t gated, cudaStream_t stream)
{
    gemm_args g = plain_product(y, x, w, bias, m, n_out, gated);
    cudaError_t error;

    if (shape < 0 || shape >= SB_GEMM_SHAPES)
        return cudaErrorInvalidValue;
    if (!complete(&g, &error, type, n_in))
        return error;
    return (type == SB_BF16 ? shape_of<SB_BF16>(shape) : shape_of<SB_F16>(shape))
        ->launch(g, stream);
}

cudaError_t sb_cuda_gated_mma(void *y, const void *x, const void *w, enum sb_dtype type,
                              const float *bias, int32_t m, int32_t n, int32_t n_in,
                              const struct sb_launch_limits *limits, cudaStream_t stream)
{
    return launch(gated_product(y, x, w, type, bias, m, n), type, n_in, limits, stream);
}

cudaError_t sb_load_gemm_mma(enum sb_dtype type)
{
    if (type == SB_F32)
        return cudaSuccess;
    return type == SB_BF16 ? load_type<SB_BF16>() : load_type<SB_F16>();
}
