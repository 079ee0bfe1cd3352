/*
 * What a draft's kernels share: products of few rows whose sum over k is split.
 *
 * A draft's bits are outside the contract, so k may be split where the target's products may not.
 * A block takes a tile of 16 rows of weights, its eight warps take every eighth stage of 64 columns
 * each, and the eight sums are added in the order of the warps. The order is a function of the
 * matrix's shape, so proposals do not depend on what else is in the pass.
 *
 *     k         | 0   | 64  | 128 | ...  | 448 | 512 | ...      a stage: 16 rows x 64 columns,
 *     warp        0     1     2     ...    7     0     ...        2 KB
 *
 * Each warp has a ring of stages of its own in shared memory. Copies for stages to come are under
 * way while it multiplies, and no other warp is waited for. What a ring holds next is said by a
 * source, which may go on to the next matrix before the inputs of that matrix exist: weights do not
 * depend on them.
 *
 * Fragments. The order of k within a step is free as long as weights and inputs agree. Lane l, with
 * g = l / 4 and q = l % 4, takes the 16 bytes of chunk 2 q + h of its rows as the operands of two
 * steps of 16. So all operands come by loads of 16 bytes, from a swizzled stage without bank
 * conflicts: eight lanes read the even (or odd) chunks of two neighbouring rows.
 */
#ifndef SB_CUDA_DRAFT_TILE_CUH
#define SB_CUDA_DRAFT_TILE_CUH

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

static_assert(SB_TILE_ROWS == 16 && SB_TILE_K == 64, "a stage is a tile of the weight");

enum {
    WARPS = 8,
    THREADS = 32 * WARPS,
    ROWS = 16,
    BK = 64,
    STAGE_BYTES = ROWS * BK * 2,
    SUM_PITCH = ROWS + 4 /* floats; so that lanes write their sums without bank conflicts */
};

/* A weight in its tiles (launch.h), of which a panel of ROWS rows is `tile` here. */
struct panels {
    const uint16_t *w; /* [n_out, ld] */
    int64_t ld;
    int32_t n_out, gated; /* gated: n_out / 2, or 0 */

    __device__ __forceinline__ int tiles() const
    {
        return gated ? (gated + ROWS / 2 - 1) / (ROWS / 2) : (n_out + ROWS - 1) / ROWS;
    }
    __device__ __forceinline__ int stages() const
    {
        return (int)(ld / BK);
    }
    /* The matrix's row that is row i of a tile, or -1 */
    __device__ __forceinline__ int row(int tile, int i) const
    {
        const int o = gated ? tile * (ROWS / 2) + i % (ROWS / 2) : tile * ROWS + i;
        if (o >= (gated ? gated : n_out))
            return -1;
        return gated && i >= ROWS / 2 ? gated + o : o;
    }
    __device__ __forceinline__ uint16_t element(int64_t o, int64_t k) const
    {
        return w[sb_cuda_tiled(o, k / 8, ld) + k % 8];
    }
};

/* Begins the warp's copy of a stage of a weight, which is one of its tiles. */
__device__ __forceinline__ void fetch_stage(uint8_t *to, const uint16_t *from)
{
    const int at = (int)threadIdx.x % 32 * 16;
#pragma unroll
    for (int i = 0; i < STAGE_BYTES; i += 512)
        cp_async(at_shared(to) + at + i, (const char *)from + at + i, true);
}

/* Waits for all groups of this thread's copies but the latest n, or the latest MOST where that is
 * less. */
template <int MOST>
__device__ __forceinline__ void cp_async_wait_but(int n)
{
    if constexpr (MOST == 0)
        cp_async_wait<0>();
    else if (n >= MOST)
        cp_async_wait<MOST>();
    else
        cp_async_wait_but<MOST - 1>(n);
}

/*
 * A warp's ring. A source has next(to), by which the warp begins to copy the stage that comes next
 * to `to`, and which says whether it has: past the last, or where what comes next may not be read
 * yet, it does nothing.
 *
 *     given back ... | taken, taken + 1, .. arrived | .. put - 1: under way | room
 *
 * A group of cp.async is a stage. Other groups of the thread between them do no harm: a wait is a
 * little longer then.
 */
template <int STAGES, class SOURCE>
struct stage_ring {
    uint8_t *at;
    int put, taken;
    SOURCE source;

    __device__ __forceinline__ void begin(uint8_t *ring)
    {
        at = ring;
        put = taken = 0;
        cp_async_begin();
        fill();
    }
    /* Begins the copies that there is room for. */
    __device__ __forceinline__ void fill()
    {
#pragma unroll 1
        while (put - taken < STAGES + SB_CUDA_FAULT(STAGE_COPIED_TOO_EARLY) &&
               source.next(at + put % STAGES * STAGE_BYTES)) {
            cp_async_commit();
            put++;
        }
    }
    /* Waits for the next n stages. */
    __device__ __forceinline__ void arrived(int n) const
    {
        cp_async_wait_but<STAGES - 1>(put - taken - n);
        __syncwarp();
    }
    /* One of them */
    __device__ __forceinline__ const uint8_t *stage(int i) const
    {
        return at + (taken + i) % STAGES * STAGE_BYTES;
    }
    /* They have been read. */
    __device__ __forceinline__ void give_back(int n)
    {
        __syncwarp();
        taken += n;
        fill();
    }
};

/* Inputs [m, ld] in device memory. They may just have come from other blocks. */
struct global_inputs {
    const uint16_t *x;
    int64_t ld;
    int m;

    __device__ __forceinline__ uint4 load(int row, int k) const
    {
        const uint4 zeros = {0, 0, 0, 0};
        return row < m ? __ldcg((const uint4 *)(x + row * ld + k)) : zeros;
    }
};

/* Adds a stage's products. b: this lane's 16 bytes of each of its rows of x. */
template <enum sb_dtype TYPE, int NT>
__device__ __forceinline__ void multiply_stage(float (&acc)[NT][4], const uint8_t *stage,
                                               const uint4 (&b)[2][NT])
{
    const int lane = threadIdx.x % 32, g = lane / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int chunk = lane % 4 * 2 + h;
        const uint4 top = *(const uint4 *)(stage + swizzled<BK * 2>(g, chunk));
        const uint4 low = *(const uint4 *)(stage + swizzled<BK * 2>(g + 8, chunk));
        const uint32_t first[4] = {top.x, low.x, top.y, low.y};
        const uint32_t second[4] = {top.z, low.z, top.w, low.w};
#pragma unroll
        for (int t = 0; t < NT; t++) {
            mma<TYPE>(acc[t], first, b[h][t].x, b[h][t].y);
            mma<TYPE>(acc[t], second, b[h][t].z, b[h][t].w);
        }
    }
}

/* Multiplies the rows of a tile with x over this warp's stages among [first, last). Inputs of
 * several stages are loaded at once, since each load waits for the L2 cache. */
template <enum sb_dtype TYPE, int NT, class RING, class INPUTS>
__device__ __forceinline__ void multiply_tile(float (&acc)[NT][4], RING &ring, const INPUTS &x,
                                              int first, int last)
{
    enum { AT_ONCE = 4 / NT };
    const int lane = threadIdx.x % 32;

#pragma unroll
    for (int i = 0; i < NT * 4; i++)
        acc[i / 4][i % 4] = 0.0f;
    for (int s = first + (int)threadIdx.x / 32; s < last; s += AT_ONCE * WARPS) {
        const int n = min((int)AT_ONCE, (last - s + WARPS - 1) / WARPS);
        uint4 b[AT_ONCE][2][NT];
#pragma unroll
        for (int i = 0; i < AT_ONCE * 2 * NT; i++) {
            const int stage = s + i / 2 / NT * WARPS, chunk = lane % 4 * 2 + i / NT % 2;
            const uint4 zeros = {0, 0, 0, 0}; /* so that no register is kept from before */
            b[i / 2 / NT][i / NT % 2][i % NT] = stage < last ? x.load(i % NT * 8 + lane / 4,
                                                                      stage * BK + chunk * 8)
                                                             : zeros;
        }
        ring.arrived(n);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (i < n)
                multiply_stage<TYPE, NT>(acc, ring.stage(i), b[i]);
        ring.give_back(n);
    }
}

/* The warps' sums of a tile in shared memory. */
template <int NT>
struct tile_sums {
    enum { FLOATS = WARPS * 8 * NT * SUM_PITCH, BYTES = FLOATS * 4, N = ROWS * 8 * NT };
};

/* Writes those of this warp. */
template <int NT>
__device__ __forceinline__ void store_warp_sums(float *sums, const float (&acc)[NT][4])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll
    for (int i = 0; i < NT * 4; i++)
        sums[(warp * 8 * NT + i / 4 * 8 + lane % 4 * 2 + i % 2) * SUM_PITCH + i % 4 / 2 * 8 +
             lane / 4] = acc[i / 4][i % 4];
}

/* Adds the warps' sums number i < N in ascending order: that of row i % 16 of the tile and of row i
 * / 16 of x. */
template <int NT>
__device__ __forceinline__ float add_warps(const float *sums, int i)
{
    float sum = 0.0f;

#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum += sums[(w * 8 * NT + i / ROWS) * SUM_PITCH + i % ROWS];
    return sum;
}

} // namespace

#endif
