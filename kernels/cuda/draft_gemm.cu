/*
 * A draft's product of few rows with a matrix of few rows: y [m, n_out] = x W^T + bias, m <= 8.
 *
 * The target's kernel gives a matrix of 1024 rows 64 blocks of one warp, because it may not split
 * k, and so reads it with a quarter of the device. Here k is split over blocks as well as over
 * warps (draft_tile.cuh), by a count that follows from the matrix's shape:
 *
 *     grid: tiles of 16 rows x splits     block (tile, s): stages [s per, (s + 1) per) of a tile
 *
 * A block writes its sums to scratch and counts itself. The last one of a tile adds them in
 * ascending order of s and adds the bias. The counter is zero again then, for the next product.
 *
 * Rejected: atomic additions to y, whose order is a matter of luck, so that a draft would propose
 * differently from run to run.
 */
#include "kernels/cuda/draft_tile.cuh"

namespace
{

enum {
    SLOTS = 2,           /* 64 KB a block, and two blocks a multiprocessor */
    ENOUGH_BLOCKS = 264, /* two for each of an H100's multiprocessors */
    MOST_SPLITS = 16
};

struct split_args {
    float *y;
    const float *bias; /* or NULL */
    panels weight;
    global_inputs x;
    float *partial; /* [tile, split, THREADS] */
    unsigned *counters;
    int splits, per; /* stages of a split */
};

/* Some stages of one tile. */
struct tile_source {
    const uint16_t *at;
    int n;

    __device__ __forceinline__ void await_turn() const
    {
    }
    __device__ __forceinline__ bool next(slot_copy &copy)
    {
        if (n <= 0)
            return false;
        copy = {at, min((int)SLOT_STAGES, n) * (int)STAGE_BYTES, 0};
        at += SLOT_STAGES * SB_TILE;
        n -= SLOT_STAGES;
        return true;
    }
};

enum { RING = slot_ring<SLOTS>::BYTES, SHARED = RING + SUM_FLOATS * (int)sizeof(float) };

template <enum sb_dtype TYPE>
__global__ void __launch_bounds__(BLOCK, 2) split_kernel(split_args a)
{
    SB_DYNAMIC_SHARED(uint8_t, shared);
    SB_SHARED(int, is_last, 1);
    float *sums = (float *)(shared + RING);
    const int tile = (int)blockIdx.x, split = (int)blockIdx.y, t = (int)threadIdx.x;
    const int first = split * a.per, n = min(a.per, a.weight.stages() - first);
    const int o = a.weight.row(tile, t % ROWS), r = t / ROWS;
    slot_ring<SLOTS> ring = {shared, 0};
    float acc[4];

    if (t == THREADS)
        ring.make_mbarriers();
    __syncthreads();
    if (t >= THREADS) {
        tile_source source = {a.weight.w + ((int64_t)tile * a.weight.stages() + first) * SB_TILE,
                              n};
        copy_all(ring, source);
        return; /* those that are left meet without this warp */
    }
    multiply_tile<TYPE>(acc, ring, a.x, first, n);
    store_warp_sums(sums, acc);
    __syncthreads();
    float sum = r < MOST_ROWS ? add_warps(sums, r, t % ROWS) : 0.0f;
    if (a.splits > 1) {
        float *partial = a.partial + (int64_t)tile * a.splits * THREADS + t;
        partial[split * THREADS] = sum;
        if (!is_last_block(a.counters + tile, a.splits, is_last))
            return;
        sum = 0.0f;
        for (int s = SB_CUDA_FAULT(PART_LEFT_OUT); s < a.splits; s++)
            sum += __ldcg(partial + s * THREADS);
    }
    if (r < a.x.m && o >= 0)
        a.y[(int64_t)r * a.weight.n_out + o] = a.bias ? sum + a.bias[o] : sum;
}

template <enum sb_dtype TYPE>
cudaError_t launch_type(const split_args &a, int tiles, cudaStream_t stream)
{
    return SB_LAUNCH(split_kernel<TYPE>, dim3((unsigned)tiles, (unsigned)a.splits), dim3(BLOCK),
                     SHARED, stream, a);
}

int smaller(int a, int b)
{
    return a < b ? a : b;
}

} // namespace

int sb_cuda_draft_gemm_suits(int32_t m, int32_t n_out)
{
    return m <= MOST_ROWS && n_out <= ROWS * ENOUGH_BLOCKS;
}

/* Tiles times splits are less than twice ENOUGH_BLOCKS. */
size_t sb_cuda_draft_gemm_scratch(void)
{
    return ENOUGH_BLOCKS * sizeof(unsigned) + 2 * ENOUGH_BLOCKS * THREADS * sizeof(float);
}

cudaError_t sb_cuda_draft_gemm(float *y, const void *x, const void *w, enum sb_dtype type,
                               const float *bias, int32_t m, int32_t n_out, int32_t n_in,
                               void *scratch, cudaStream_t stream)
{
    const int64_t ld = sb_cuda_ld(type, n_in);
    const int tiles = (n_out + ROWS - 1) / ROWS, stages = (int)(ld / BK);
    unsigned *counters = (unsigned *)scratch;
    split_args a = {y,
                    bias,
                    {(const uint16_t *)w, ld, n_out, 0},
                    {(const uint16_t *)x, ld, m},
                    nullptr,
                    counters,
                    1,
                    stages};

    if (m <= 0 || n_out <= 0)
        return cudaSuccess;
    if (type == SB_F32 || !sb_cuda_draft_gemm_suits(m, n_out))
        return cudaErrorInvalidValue;
    a.partial = (float *)(counters + ENOUGH_BLOCKS);
    /* at least a stage for each warp of a block */
    a.splits = smaller((ENOUGH_BLOCKS + tiles - 1) / tiles,
                       smaller(MOST_SPLITS, (stages + WARPS - 1) / WARPS));
    a.per = (stages + a.splits - 1) / a.splits;
    return type == SB_BF16 ? launch_type<SB_BF16>(a, tiles, stream)
                           : launch_type<SB_F16>(a, tiles, stream);
}

cudaError_t sb_load_draft_gemm(enum sb_dtype type)
{
    if (type == SB_F32)
        return cudaSuccess;
    return type == SB_BF16 ? sb_load(split_kernel<SB_BF16>, SHARED)
                           : sb_load(split_kernel<SB_F16>, SHARED);
}
