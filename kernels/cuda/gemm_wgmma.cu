/*
 * The 16-bit product of 33 rows and more on sm_90: y [m, n_out] f32 = x [m, ld] w^T + bias by
 * wgmma, which reads both operands from shared memory.
 *
 * Numerics: as gemm_mma.cu has it, one f32 accumulator an output that starts at 0 and takes
 * ascending steps of 16 along k. The instruction is another one. MMA-Sim (arXiv:2511.10909) reports
 * that both add the same way on sm_90, but nobody promises it, so whether this kernel has the bits
 * of gemm_mma.cu's is tested on the device (gemm_plan.c) before it is used.
 *
 * mma.sync reaches 62 % of the tensor cores' rate, and each of its warps reads its operands from
 * shared memory itself; so from 33 rows of x on it may take longer than the memory does for the
 * weights. A wgmma of a warpgroup reads 64 rows of weights and all rows of x once.
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
 *   STAGES of these, and an mbarrier for each behind them, which counts all bytes of a stage. Both
 *   come by tensor maps, one instruction each, which makes zeros of what is not there. Weights lie
 *   swizzled in memory; x is swizzled by its map.
 *
 * A cluster is SHARE_X blocks that have the same rows of x, times SHARE_W that have the same
 * weights, as gemm_cluster.cuh draws it, or one block. Each block brings its part of the rows of x
 * into all that share them, and of the panels of weights.
 *
 *   full    A warpgroup waits at the mbarrier of a stage, begins its four wgmma, and then waits for
 *           those of the stage before, so that the tensor cores always have work.
 *   empty   The barrier of the cluster, once for each stage that is filled again: the warps of all
 *           warpgroups arrive when their wgmma have ended, and the copying warp of each block
 *           waits, which fills the slot. A warp waits for the others one stage later, when they
 *           have come long since.
 *   begin   No copy goes to another block before its mbarriers are there, nor is x read before the
 *           kernel ahead has ended. Weights that a block brings for itself wait for neither.
 *   end     A block stays until all have got everything.
 *
 * Rejected: mbarriers for `empty` too (each warpgroup would arrive at those of up to five blocks; a
 * wait would be no shorter); registers moved from the copying warp to the others (setmaxnreg: none
 * of these blocks has too few); 256 rows of x for a warpgroup (with 128 sums a thread there is room
 * for two of them, and 192 rows of weights need fewer blocks); weights by bulk copies of a panel (a
 * thread takes about 20 instructions for each, and the smallest stages last 224 clocks by time_of).
 */
#include "kernels/cuda/gemm_launch.cuh"
#include "kernels/cuda/gemm_tile.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

template <int GROUPS, int NT_, int STAGES_>
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
        STAGES = STAGES_,
        SHARED = STAGES * (STAGE_BYTES + 8) /* with an mbarrier each */
    };
};

/* Of the rows of x, those that each of so many blocks brings: whole groups of eight, as the swizzle
 * wants them, so that some blocks may bring none. */
template <class S>
__host__ __device__ __forceinline__ int rows_of_part(int share_x)
{
    return (S::NT + share_x - 1) / share_x * 8;
}

/* How blocks of a cluster share, and where this one is. */
struct wgmma_cluster {
    int share_x, share_w;
    int along_w, tile; /* among the blocks that share x, and among those that share weights */
    int first_panel, first_x;

    template <class S>
    __device__ __forceinline__ static wgmma_cluster of(const gemm_args &g, int share_x, int share_w)
    {
        const int n = share_x * share_w, rank = (int)(blockIdx.x % (unsigned)n);
        const int cluster = (int)(blockIdx.x / (unsigned)n);
        const int along_w = rank % share_x, tile = rank / share_x;

        return {share_x,
                share_w,
                along_w,
                tile,
                (cluster / g.m_tiles * share_x + along_w) * (int)S::PANELS,
                (cluster % g.m_tiles * share_w + tile) * (int)S::X_ROWS};
    }
};

/* The tensor maps of a product. */
struct wgmma_maps {
    CUtensorMap w; /* panels as planes of rows of 64: boxes are a tile of each of some panels */
    CUtensorMap x; /* boxes are 64 columns of some rows */
};

/* The stages of a block, and what its copying warp copies into them. One lane of it does. */
template <class S>
struct wgmma_ring {
    shared_at base;
    const wgmma_maps &maps;
    int n_stages;
    wgmma_cluster at;

    __device__ __forceinline__ wgmma_ring(const gemm_args &g, const wgmma_maps &of, uint8_t *shared,
                                          const wgmma_cluster &place)
        : base(at_shared(shared)), maps(of), n_stages(g.n_tiles), at(place)
    {
        static_assert(S::STAGE_BYTES % 1024 == 0 && S::X_AT % 1024 == 0,
                      "operands begin where the swizzle does");
        static_assert(S::NT % 4 == 0 || S::NT % ((S::NT + 3) / 4) == 0,
                      "four blocks, or fewer of them, bring all rows");
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

    /* How many slots are filled again. */
    __device__ __forceinline__ int refills(void) const
    {
        return n_stages > (int)S::STAGES ? n_stages - (int)S::STAGES : 0;
    }

    __device__ __forceinline__ void make_mbarriers(void) const
    {
#pragma unroll 1
        for (int slot = 0; slot < S::STAGES; slot++)
            mbarrier_init(arrival(slot), 1);
        async_fence();
    }

    /* Announces all of stage i, and begins to copy this block's part of its weights. */
    __device__ __forceinline__ void fill_w(int slot, int i) const
    {
        const int first = at.tile * (S::PANELS / at.share_w);
        const shared_at to = stage(slot) + first * TILE_BYTES;
        const tensor_at from = {0, i * SB_TILE_ROWS, at.first_panel + first};

        mbarrier_arrive_expect(arrival(slot), S::STAGE_BYTES);
        if (at.share_w == 1)
            tensor_copy(to, maps.w, from, arrival(slot));
        else
            tensor_copy_to_cluster(to, maps.w, from, arrival(slot),
                                   (1u | 1u << at.share_x) << at.along_w);
    }

    /* Begins to copy this block's part of the rows of x, if there is one for it. */
    __device__ __forceinline__ void fill_x(int slot, int i) const
    {
        const int first = at.along_w * rows_of_part<S>(at.share_x);
        const shared_at to = stage(slot) + S::X_AT + first * ROW_BYTES;
        const tensor_at from = {i * SB_TILE_K, at.first_x + first, 0};

        if (first >= S::X_ROWS)
            return;
        if (at.share_x == 1)
            tensor_copy(to, maps.x, from, arrival(slot));
        else
            tensor_copy_to_cluster(to, maps.x, from, arrival(slot),
                                   ((1u << at.share_x) - 1) << at.tile * at.share_x);
    }

    __device__ __forceinline__ void fill_all_w(void) const
    {
#pragma unroll 1
        for (int i = 0; i < S::STAGES && i < n_stages; i++)
            fill_w(i, i);
    }
};

/* What the copying warp does. */
template <class S>
__device__ __forceinline__ void copy_all(const wgmma_ring<S> &ring)
{
    const bool speaks = threadIdx.x % 32 == 0, brings_own_w = ring.at.share_w == 1;

    if (speaks) {
        ring.make_mbarriers();
        if (brings_own_w)
            ring.fill_all_w();
    }
    __syncwarp();
    cluster_arrive();
    if (!SB_CUDA_FAULT(BLOCKS_NOT_AWAITED))
        cluster_wait();
    grid_launch_next();
    if (speaks && !brings_own_w)
        ring.fill_all_w();
    grid_wait_for_previous();
    for (int i = 0; speaks && i < S::STAGES && i < ring.n_stages; i++)
        ring.fill_x(i, i);
    __syncwarp();
    if (SB_CUDA_FAULT(BLOCKS_NOT_AWAITED))
        cluster_wait();
    cluster_arrive_after_reads();
    for (int i = 0, slot = 0; i < ring.refills(); i++) {
        if (!SB_CUDA_FAULT(READERS_NOT_AWAITED))
            cluster_wait(); /* all have read the stage that is there */
        if (speaks) {
            ring.fill_w(slot, i + S::STAGES);
            ring.fill_x(slot, i + S::STAGES);
        }
        __syncwarp();
        if (SB_CUDA_FAULT(READERS_NOT_AWAITED))
            cluster_wait();
        cluster_arrive_after_reads();
        slot = slot + 1 == S::STAGES ? 0 : slot + 1;
    }
    if (!SB_CUDA_FAULT(LEFT_TOO_EARLY))
        cluster_wait();
}

/* Adds up what a warp has of the block's outputs. */
template <enum sb_dtype TYPE, class S>
__device__ __forceinline__ void add_all(float (&acc)[S::NT][4], const wgmma_ring<S> &ring)
{
    const int refills = ring.refills();
    const wgmma_matrix w = wgmma_operand(ring.stage(0) + threadIdx.x / 128 * 4 * TILE_BYTES);
    const wgmma_matrix x = wgmma_operand(ring.stage(0) + S::X_AT);

    for (int i = 0, slot = 0, turn = 0; i < ring.n_stages; i++) {
        if (!SB_CUDA_FAULT(STAGE_NOT_AWAITED))
            mbarrier_wait(ring.arrival(slot), turn & 1);
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            const int step = SB_CUDA_FAULT(STEPS_EXCHANGED) ? k ^ 1 : k;
            const uint32_t at = (uint32_t)(slot * S::STAGE_BYTES + step * 32);
            wgmma<TYPE>(acc, wgmma_further(w, at), wgmma_further(x, at));
        }
        wgmma_commit();
        if (!SB_CUDA_FAULT(RELEASED_TOO_EARLY))
            wgmma_wait<1>(); /* those of stage i - 1 */
        if (i > 0 && i <= refills) {
            if (i > 1)
                cluster_wait();
            cluster_arrive_after_reads();
        }
        slot = slot + 1 == S::STAGES ? 0 : slot + 1;
        turn += slot == 0;
    }
    if (!SB_CUDA_FAULT(SUMS_NOT_AWAITED))
        wgmma_end(acc);
}

template <enum sb_dtype TYPE, class S>
__global__ void __launch_bounds__(S::BLOCK, 1)
    wgmma_kernel(gemm_args g, int share_x, int share_w, const __grid_constant__ wgmma_maps maps)
{
    if (!has_wgmma())
        return;
    SB_DYNAMIC_SHARED(uint8_t, shared);
    const wgmma_cluster at = wgmma_cluster::of<S>(g, share_x, share_w);
    const wgmma_ring<S> ring(g, maps, shared, at);
    const int warp = (int)threadIdx.x / 32;
    float acc[S::MT][S::NT][4];

    if (warp == S::THREADS / 32)
        return copy_all(ring);
    clear_sums<S>(acc);
    cluster_arrive();
    cluster_wait();
    grid_launch_next();
    grid_wait_for_previous(); /* which may read y */
    add_all<TYPE>(acc[0], ring);
    if (ring.refills() > 0)
        cluster_wait();
    cluster_arrive_after_reads();
    store_all<TYPE, S>(g, acc, at.first_panel + warp, at.first_x);
    if (g.act)
        store_padding<S, typename element<TYPE>::type>(
            g, at.first_panel, at.first_x, max(0, min(g.m - at.first_x, (int)S::X_ROWS)));
    if (!SB_CUDA_FAULT(LEFT_TOO_EARLY))
        cluster_wait();
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
    const int options = SB_DEPENDENT | SB_CLUSTER_OF * c.block.share_x * c.block.share_w;
    const unsigned blocks = blocks_of(&g, c.block);
    wgmma_maps maps;

    if (blocks == 0 || !make_maps(&maps, g, TYPE, S::PANELS / c.block.share_w,
                                  rows_of_part<S>(c.block.share_x), encoder))
        return cudaErrorInvalidConfiguration;
    return SB_LAUNCH_WITH(options, (wgmma_kernel<TYPE, S>), dim3(blocks), dim3(S::BLOCK), S::SHARED,
                          stream, g, c.block.share_x, c.block.share_w, maps);
}

template <enum sb_dtype TYPE, class S>
cudaError_t load_shape(void)
{
    return sb_load(wgmma_kernel<TYPE, S>, S::SHARED);
}

template <enum sb_dtype TYPE, class S>
constexpr wgmma_choice of_shape(int share_x, int share_w)
{
    return {{S::PANELS, S::X_ROWS, S::SHARED, share_x, share_w, S::READS, WGMMA_TIME},
            launch_shape<TYPE, S>,
            load_shape<TYPE, S>};
}

/* Names tell the rows of x, and how many rows of weights a block has for them: 192, 128 or 64.
 * Those that come in clusters are last, as best_shape wants them, and a second tile of x, which may
 * have nothing to do, comes behind a single one. */
template <enum sb_dtype TYPE>
const wgmma_choice &choice_of(int i)
{
    typedef wgmma_shape<3, 24, 4> rows_192;
    typedef wgmma_shape<2, 24, 5> rows_192_few;
    typedef wgmma_shape<3, 16, 5> rows_128;
    typedef wgmma_shape<3, 12, 6> rows_96;
    typedef wgmma_shape<2, 12, 7> rows_96_few;
    typedef wgmma_shape<1, 12, 8> rows_96_fewest;
    typedef wgmma_shape<1, 6, 8> rows_48;
    static const wgmma_choice choices[SB_WGMMA_SHAPES] = {
        of_shape<TYPE, rows_192>(1, 1),
        of_shape<TYPE, rows_192_few>(1, 1),
        of_shape<TYPE, rows_128>(1, 1),
        of_shape<TYPE, rows_96>(1, 1),
        of_shape<TYPE, rows_192>(SB_CLUSTER, 1),
        of_shape<TYPE, rows_192_few>(SB_CLUSTER, 1),
        of_shape<TYPE, rows_128>(SB_CLUSTER, 2),
        of_shape<TYPE, rows_96>(SB_CLUSTER, 1),
        of_shape<TYPE, rows_96_few>(SB_CLUSTER, 2),
        of_shape<TYPE, rows_96_fewest>(SB_CLUSTER, 1),
        of_shape<TYPE, rows_96_fewest>(SB_CLUSTER, 2),
        of_shape<TYPE, rows_48>(SB_CLUSTER, 1),
        of_shape<TYPE, rows_48>(SB_CLUSTER, 2),
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
    int device = 0, major = 0;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;

    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        major != 9 || !device_code_has_clusters() ||
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
