/*
 * The 16-bit product of 17 rows and more on sm_90: y [m, n_out] f32 = x [m, ld] w^T + bias by
 * wgmma, which reads both operands from shared memory.
 *
 * Numerics: as gemm_mma.cu has it, one f32 accumulator an output that starts at 0 and takes
 * ascending steps of 16 along k. The instruction is another one. MMA-Sim (arXiv:2511.10909) reports
 * that both add the same way on sm_90, but nobody promises it, so whether this kernel has the bits
 * of gemm_mma.cu's is tested on the device (gemm_plan.c) before it is used.
 *
 * mma.sync reaches 62 % of the tensor cores' rate, and each of its warps reads its operands from
 * shared memory itself, with instructions that wait for each other: on an H100 it takes up to 1.3
 * times as long as cuBLASLt at 24 rows of x, and twice as long from 96 on. A wgmma of a warpgroup
 * reads 64 rows of weights and all rows of x once, and nobody waits for it but whoever needs its
 * sums.
 *
 *   a block: GROUPS warpgroups with 64 rows of weights each, and one warp that copies
 *
 *   a stage: 64 columns of k
 *   +-------------------------+  four panels are the first operand of one warpgroup
 *   | w  [PANELS] [2 KiB]     |
 *   +-------------------------+  the second operand of all
 *   | x  [X_ROWS] [128 B]     |
 *   +-------------------------+
 *
 *   STAGES of these, as many as there is room for, and two mbarriers for each behind them. Both
 *   operands come by tensor maps, one instruction each, which makes zeros of what is not there.
 *   Weights lie swizzled in memory; x is swizzled by its map.
 *
 *   full    counts all bytes of a stage. A warpgroup waits for it, begins its four wgmma, and then
 *           waits for those of the stage before, so that the tensor cores always have work.
 *   empty   counts the warps that have read a stage: each arrives when its wgmma of that stage have
 *           ended, which it knows one stage later. The lane that copies waits, and fills the slot
 *           again. So a slot is written only while nobody reads it, and nobody waits but for that.
 *   begin   The block meets once, behind the making of the mbarriers. Weights are copied before
 *           that and before the kernel ahead has ended; x is not read until it has.
 *
 * A matrix of 4096 rows has 64 blocks of 64 rows. Half of an H100's multiprocessors bring it at the
 * memory's speed if each has enough of it on the way, which is what the ring is deep for: 128 KiB
 * of weights beside 48 rows of x.
 *
 * Rejected: clusters of blocks that share x, with the cluster's barrier for `empty` (measured on an
 * H100: all its warps meet once a stage, which is a chain of about 700 clocks a stage whatever
 * there is to do, and 36 % of all samples waited there; [4096, 12288] took 77 to 92 us, and by
 * cuBLASLt 38 to 44); stages of 128 columns (half as many waits, but at the memory's speed a stage
 * of 64 takes 350 clocks, in which its 60 instructions have room); registers moved from the copying
 * warp to the others (setmaxnreg: none of these blocks has too few); 256 rows of x for a warpgroup
 * (with 128 sums a thread there is room for two of them, and 192 rows of weights need fewer
 * blocks); weights by bulk copies of a panel (a thread takes about 20 instructions for each).
 */
#include "kernels/cuda/gemm_launch.cuh"
#include "kernels/cuda/gemm_tile.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

template <int GROUPS, int NT_>
struct wgmma_shape {
    enum {
        NT = NT_,
        WARP_NT = NT_,          /* each warp has all rows of x, */
        MT = 1,                 /* and one panel */
        THREADS = 128 * GROUPS, /* that compute, */
        BLOCK = THREADS + 32,   /* and all */
        PANELS = 4 * GROUPS,
        X_ROWS = 8 * NT,
        READS = PANELS * SB_TILE_ROWS + GROUPS * X_ROWS, /* from a stage, in rows */
        X_AT = PANELS * TILE_BYTES,
        STAGE_BYTES = X_AT + X_ROWS * ROW_BYTES,
        STAGES = (224 << 10) / STAGE_BYTES, /* in the 227 KiB that a block may have */
        SHARED = STAGES * (STAGE_BYTES + 16)
    };
};

/* The tensor maps of a product. */
struct wgmma_maps {
    CUtensorMap w; /* panels as planes of rows of 64: boxes are a tile of each of some panels */
    CUtensorMap x; /* boxes are 64 columns of some rows */
};

/* The stages of a block, and what is copied into them. */
template <class S>
struct wgmma_ring {
    shared_at base;
    const wgmma_maps &maps;
    int n_stages, first_panel, first_x;

    __device__ __forceinline__ wgmma_ring(const gemm_args &g, const wgmma_maps &of, uint8_t *shared)
        : base(at_shared(shared)), maps(of), n_stages(g.n_tiles),
          first_panel((int)blockIdx.x / g.m_tiles * S::PANELS),
          first_x((int)blockIdx.x % g.m_tiles * S::X_ROWS)
    {
        static_assert(S::STAGE_BYTES % 1024 == 0 && S::X_AT % 1024 == 0,
                      "operands begin where the swizzle does");
    }

    __device__ __forceinline__ shared_at full(int slot) const
    {
        return base + S::STAGES * S::STAGE_BYTES + slot * 16;
    }

    __device__ __forceinline__ shared_at empty(int slot) const
    {
        return full(slot) + 8;
    }

    __device__ __forceinline__ void make_mbarriers(void) const
    {
#pragma unroll 1
        for (int slot = 0; slot < S::STAGES; slot++) {
            mbarrier_init(full(slot), 1);
            mbarrier_init(empty(slot), S::THREADS / 32);
        }
        async_fence_shared();
    }

    /* Announces all of stage i, and begins to copy its weights. */
    __device__ __forceinline__ void fill_w(int slot, int i) const
    {
        mbarrier_arrive_expect(full(slot), S::STAGE_BYTES);
        tensor_copy(base + slot * S::STAGE_BYTES, maps.w, {0, i * SB_TILE_ROWS, first_panel},
                    full(slot));
    }

    __device__ __forceinline__ void fill_x(int slot, int i) const
    {
        tensor_copy(base + slot * S::STAGE_BYTES + S::X_AT, maps.x, {i * SB_TILE_K, first_x, 0},
                    full(slot));
    }

    /* What comes before the kernel ahead has ended. */
    __device__ __forceinline__ void begin(void) const
    {
        make_mbarriers();
        tensor_prefetch(maps.x);
#pragma unroll 1
        for (int i = 0; i < S::STAGES && i < n_stages; i++)
            fill_w(i, i);
    }

    /* And all the rest. */
    __device__ __forceinline__ void copy_all(void) const
    {
#pragma unroll 1
        for (int i = 0; i < S::STAGES && i < n_stages; i++)
            fill_x(i, i);
#pragma unroll 1
        for (int i = S::STAGES, slot = 0, parity = 0; i < n_stages; i++) {
            if (!SB_CUDA_FAULT(READERS_NOT_AWAITED))
                mbarrier_wait(empty(slot), parity);
            fill_w(slot, i);
            fill_x(slot, i);
            if (++slot == S::STAGES)
                slot = 0, parity ^= 1;
        }
    }
};

/* Adds up what a warp has of the block's outputs. */
template <enum sb_dtype TYPE, class S>
__device__ __forceinline__ void add_all(float (&acc)[S::NT][4], const wgmma_ring<S> &ring)
{
    const bool speaks = threadIdx.x % 32 == 0;
    const wgmma_matrix w = wgmma_operand(ring.base + threadIdx.x / 128 * 4 * TILE_BYTES);
    const wgmma_matrix x = wgmma_operand(ring.base + S::X_AT);

    for (int i = 0, slot = 0, last = 0, parity = 0; i < ring.n_stages; i++) {
        if (!SB_CUDA_FAULT(STAGE_NOT_AWAITED))
            mbarrier_wait(ring.full(slot), parity);
        const wgmma_matrix w_at = wgmma_further(w, slot * S::STAGE_BYTES);
        const wgmma_matrix x_at = wgmma_further(x, slot * S::STAGE_BYTES);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            const int step = SB_CUDA_FAULT(STEPS_EXCHANGED) ? k ^ 1 : k;
            wgmma<TYPE>(acc, wgmma_further(w_at, step * 32), wgmma_further(x_at, step * 32));
        }
        wgmma_commit();
        if (!SB_CUDA_FAULT(RELEASED_TOO_EARLY))
            wgmma_wait<1>(); /* those of stage i - 1, in slot `last` */
        if (speaks && i > 0)
            mbarrier_arrive(ring.empty(last));
        last = slot;
        if (++slot == S::STAGES)
            slot = 0, parity ^= 1;
    }
    if (!SB_CUDA_FAULT(SUMS_NOT_AWAITED))
        wgmma_end(acc);
}

template <enum sb_dtype TYPE, class S>
__global__ void __launch_bounds__(S::BLOCK, 1)
    wgmma_kernel(gemm_args g, const __grid_constant__ wgmma_maps maps)
{
    if (!has_wgmma())
        return;
    SB_DYNAMIC_SHARED(uint8_t, shared);
    const wgmma_ring<S> ring(g, maps, shared);
    const int warp = (int)threadIdx.x / 32;
    float acc[S::MT][S::NT][4];

    if (threadIdx.x == S::THREADS)
        ring.begin();
    __syncthreads();
    grid_launch_next();
    grid_wait_for_previous(); /* which writes x, and may read y */
    if (warp == S::THREADS / 32) {
        if (threadIdx.x == S::THREADS)
            ring.copy_all();
        return;
    }
    clear_sums<S>(acc);
    add_all<TYPE>(acc[0], ring);
    store_all<TYPE, S>(g, acc, ring.first_panel + warp, ring.first_x);
    if (g.act)
        store_padding<S, typename element<TYPE>::type>(
            g, ring.first_panel, ring.first_x, max(0, min(g.m - ring.first_x, (int)S::X_ROWS)));
}

/* ------------------------------------------------------------------ launching */

typedef decltype(&cuTensorMapEncodeTiled) map_encoder;

/* A map of elements of 16 bits with these sizes and boxes of columns, rows and planes, which are so
 * many bytes from each other. */
bool make_map(CUtensorMap *map, void *encoder, enum sb_dtype type, const uint16_t *at,
              const cuuint64_t (&sizes)[3], const cuuint64_t (&pitches)[2],
              const cuuint32_t (&box)[3], CUtensorMapSwizzle swizzle)
{
    const cuuint32_t steps[3] = {1, 1, 1};

    return reinterpret_cast<map_encoder>(encoder)(
               map,
               type == SB_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
               3, const_cast<uint16_t *>(at), sizes, pitches, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* panels, rows: of a box */
bool make_maps(wgmma_maps *maps, const gemm_args &g, enum sb_dtype type, int panels, int rows,
               void *encoder)
{
    const cuuint64_t tiles = (cuuint64_t)g.n_tiles, x_row = tiles * ROW_BYTES;

    return make_map(&maps->w, encoder, type, g.w,
                    {SB_TILE_K, tiles * SB_TILE_ROWS, (cuuint64_t)g.panels},
                    {ROW_BYTES, tiles * TILE_BYTES}, {SB_TILE_K, SB_TILE_ROWS, (cuuint32_t)panels},
                    CU_TENSOR_MAP_SWIZZLE_NONE) &&
           make_map(&maps->x, encoder, type, g.x, {tiles * SB_TILE_K, (cuuint64_t)g.m, 1},
                    {x_row, x_row * (cuuint64_t)g.m}, {SB_TILE_K, (cuuint32_t)rows, 1},
                    CU_TENSOR_MAP_SWIZZLE_128B);
}

/* What wgmma is taken to need (block_shape): four of 5 / 4 clocks, 80 % of the data sheet's peak,
 * as the best products known of an H100. */
constexpr int WGMMA_TIME = 4 * 10;

struct wgmma_choice {
    block_shape block;
    cudaError_t (*launch)(const wgmma_choice &, gemm_args, void *, cudaStream_t);
    cudaError_t (*load)(void);
};

template <enum sb_dtype TYPE, class S>
cudaError_t launch_shape(const wgmma_choice &c, gemm_args g, void *encoder, cudaStream_t stream)
{
    const unsigned blocks = blocks_of(&g, c.block);
    wgmma_maps maps;

    if (blocks == 0 || !make_maps(&maps, g, TYPE, S::PANELS, S::X_ROWS, encoder))
        return cudaErrorInvalidConfiguration;
    return SB_LAUNCH_WITH(SB_DEPENDENT, (wgmma_kernel<TYPE, S>), dim3(blocks), dim3(S::BLOCK),
                          S::SHARED, stream, g, maps);
}

template <enum sb_dtype TYPE, class S>
cudaError_t load_shape(void)
{
    return sb_load(wgmma_kernel<TYPE, S>, S::SHARED);
}

template <enum sb_dtype TYPE, int GROUPS, int X_ROWS>
constexpr wgmma_choice of_shape(void)
{
    typedef wgmma_shape<GROUPS, X_ROWS / 8> S;

    return {{S::PANELS, S::X_ROWS, S::SHARED, S::READS, WGMMA_TIME},
            launch_shape<TYPE, S>,
            load_shape<TYPE, S>};
}

/* Of warpgroups, and of rows of x; fewer of these go before, because the first of equal times is
 * taken. */
template <enum sb_dtype TYPE>
const wgmma_choice &choice_of(int i)
{
    static const wgmma_choice choices[SB_WGMMA_SHAPES] = {
        of_shape<TYPE, 1, 32>(),  of_shape<TYPE, 1, 48>(),  of_shape<TYPE, 2, 48>(),
        of_shape<TYPE, 3, 48>(),  of_shape<TYPE, 1, 96>(),  of_shape<TYPE, 2, 96>(),
        of_shape<TYPE, 3, 96>(),  of_shape<TYPE, 3, 128>(), of_shape<TYPE, 1, 192>(),
        of_shape<TYPE, 2, 192>(), of_shape<TYPE, 3, 192>(),
    };

    return choices[i];
}

const wgmma_choice &choice_of(enum sb_dtype type, int i)
{
    return type == SB_BF16 ? choice_of<SB_BF16>(i) : choice_of<SB_F16>(i);
}

/* shape: which, or -1 for the best */
cudaError_t launch(gemm_args g, enum sb_dtype type, int32_t n_in, int shape,
                   const struct sb_launch_limits &limits, cudaStream_t stream)
{
    cudaError_t error;

    if (!complete(&g, &error, type, n_in))
        return error;
    if (!limits.map_encoder)
        return cudaErrorNotSupported;
    if (shape < 0)
        shape = best_shape(
            SB_WGMMA_SHAPES,
            [type](int i) -> const block_shape & { return choice_of(type, i).block; }, g, limits);
    if (shape < 0)
        return cudaErrorInvalidConfiguration;
    const wgmma_choice &c = choice_of(type, shape);
    return c.launch(c, g, limits.map_encoder, stream);
}

} // namespace

void *sb_cuda_map_encoder(void)
{
    void *encoder = NULL;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;

    if (!device_code_has_wgmma() ||
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encoder, 12000,
                                         cudaEnableDefault, &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return encoder;
}

cudaError_t sb_cuda_gemm_wgmma(float *y, const void *x, const void *w, enum sb_dtype type,
                               const float *bias, int32_t m, int32_t n_out, int32_t n_in,
                               int32_t gated, const struct sb_launch_limits *limits,
                               cudaStream_t stream)
{
    return launch(plain_product(y, x, w, bias, m, n_out, gated), type, n_in, -1, *limits, stream);
}

cudaError_t sb_cuda_gemm_wgmma_in(int32_t shape, float *y, const void *x, const void *w,
                                  enum sb_dtype type, const float *bias, int32_t m, int32_t n_out,
                                  int32_t n_in, int32_t gated,
                                  const struct sb_launch_limits *limits, cudaStream_t stream)
{
    if (shape < 0 || shape >= SB_WGMMA_SHAPES)
        return cudaErrorInvalidValue;
    return launch(plain_product(y, x, w, bias, m, n_out, gated), type, n_in, shape, *limits,
                  stream);
}

cudaError_t sb_cuda_gated_wgmma(void *y, const void *x, const void *w, enum sb_dtype type,
                                const float *bias, int32_t m, int32_t n, int32_t n_in,
                                const struct sb_launch_limits *limits, cudaStream_t stream)
{
    return launch(gated_product(y, x, w, type, bias, m, n), type, n_in, -1, *limits, stream);
}

cudaError_t sb_load_gemm_wgmma(enum sb_dtype type)
{
    cudaError_t error = cudaSuccess;

    for (int i = 0; type != SB_F32 && error == cudaSuccess && i < SB_WGMMA_SHAPES; i++)
        error = choice_of(type, i).load();
    return error;
}
