/*
 * What a draft's kernels share: products of few rows whose sum over k is split.
 *
 * A draft's bits are outside the contract, so k may be split where the target's products may not.
 * A block takes a tile of 16 rows of weights, its eight warps take an eighth of k each, and the
 * eight sums are added in the order of the warps. The order is a function of the matrix's shape, so
 * proposals do not depend on what else is in the pass.
 *
 *     k         | 0   | 64  | 128 | 192 | 256 | 320 | ...       a stage: 16 rows x 64 columns,
 *     warp        0     0     1     1     2     2   ...           2 KB
 *
 * Each warp has a ring of slots of its own in shared memory. A slot takes up to SLOT_STAGES stages,
 * which lie one behind the other in memory, and is filled by one copy: a bulk copy on sm_90, else
 * cp.async of all lanes. Copies for slots to come are under way while the warp multiplies, and no
 * other warp is waited for. What a ring holds next is said by a source, which may go on to the next
 * matrix before the inputs of that matrix exist: weights do not depend on them.
 *
 * Fragments. The order of k within a step is free as long as weights and inputs agree. Lane l, with
 * g = l / 4 and q = l % 4, takes the 16 bytes of chunk 2 q + h of its rows as the operands of two
 * steps of 16. So all operands come by loads of 16 bytes, from a swizzled stage without bank
 * conflicts: eight lanes read the even (or odd) chunks of two neighbouring rows.
 *
 * Rejected: slots of one stage, each copied by cp.async. On an H100 a warp spent 240 instructions
 * on each of them, most of them to find out what comes next, and a step of 0.6 billion weights took
 * 1.1 ms, where the memory takes 0.4; with these slots it took 1.0.
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
    SLOT_STAGES = 2,
    SLOT_BYTES = SLOT_STAGES * STAGE_BYTES,
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
        return (int)((uint64_t)ld / BK);
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

/* The stages of a tile that this warp multiplies, of n: [first, last) */
struct warp_stages {
    int first, last;

    static __device__ __forceinline__ warp_stages of(int n)
    {
        const int warp = (int)threadIdx.x / 32;
        return {n * warp / WARPS, n * (warp + 1) / WARPS};
    }
};

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

/* What a slot is filled with: 0 bytes or more that lie one behind the other. Where they are rows of
 * `odd` elements, which is no multiple of eight, each begins at a multiple of 16 bytes in the slot
 * and ends in zeros. */
struct slot_copy {
    const uint16_t *from;
    int bytes, odd;
};

/* Elements [8 chunk, 8 chunk + 8) of a row of n elements; zeros from n on. */
__device__ __forceinline__ uint4 load_chunk(const uint16_t *row, int chunk, int n)
{
    if (n % 8 == 0)
        return *(const uint4 *)(row + chunk * 8);
    uint32_t word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (chunk * 8 + i < n)
            word[i / 2] |= (uint32_t)row[chunk * 8 + i] << i % 2 * 16;
    const uint4 out = {word[0], word[1], word[2], word[3]};
    return out;
}

/* Copies rows of an odd number of elements by ordinary loads, all lanes together. */
static __device__ void copy_odd_rows(uint8_t *to, const slot_copy &copy)
{
    const int chunks = (copy.odd + 7) / 8, n = copy.bytes / (copy.odd * 2) * chunks;

    for (int i = (int)threadIdx.x % 32; i < n; i += 32)
        ((uint4 *)to)[i] = load_chunk(copy.from + i / chunks * copy.odd, i % chunks, copy.odd);
    async_fence_shared(); /* bulk copies come to the same place later */
    __syncwarp();
}

/*
 * A warp's ring. A source has next(copy), which says with what the slot that comes next is to be
 * filled, and returns whether there is one: past the last, or where what comes next may not be read
 * yet, there is none.
 *
 *     given back ... | taken, taken + 1, .. arrived | .. put - 1: under way | room
 *
 * A slot has an mbarrier, at which its bulk copy is counted. Where there are none, a group of
 * cp.async is a slot; other groups of the thread between them do no harm, as a wait is only a
 * little longer then.
 */
template <int SLOTS, class SOURCE>
struct stage_ring {
    uint8_t *at;
    shared_at arrivals; /* mbarriers [SLOTS] */
    unsigned put, taken;
    SOURCE source;

    enum { BYTES = SLOTS * (SLOT_BYTES + 8) }; /* of a warp's slots and mbarriers */

    /* rings: of all warps, their slots before their mbarriers. */
    __device__ __forceinline__ void begin(uint8_t *rings)
    {
        const int warp = (int)threadIdx.x / 32;

        at = rings + warp * (SLOTS * SLOT_BYTES);
        arrivals = at_shared(rings + WARPS * SLOTS * SLOT_BYTES + warp * (SLOTS * 8));
        put = taken = 0;
        cp_async_begin();
        if (has_bulk_copies() && threadIdx.x % 32 == 0) {
#pragma unroll 1
            for (int slot = 0; slot < SLOTS; slot++)
                mbarrier_init(arrivals + slot * 8, 1);
            async_fence_shared();
        }
        __syncwarp();
        fill();
    }
    __device__ __forceinline__ void begin_copy(const slot_copy &copy) const
    {
        const int lane = (int)threadIdx.x % 32, slot = (int)(put % SLOTS);
        const int bytes = copy.odd ? 0 : copy.bytes;
        const shared_at to = at_shared(at) + slot * SLOT_BYTES;

        if (copy.odd)
            copy_odd_rows(at + slot * SLOT_BYTES, copy);
        if (!has_bulk_copies()) {
#pragma unroll 1
            for (int i = lane * 16; i < bytes; i += 512)
                cp_async(to + i, (const char *)copy.from + i, true);
            cp_async_commit();
        } else if (lane == 0) {
            mbarrier_arrive_expect(arrivals + slot * 8, (uint32_t)bytes);
            if (bytes > 0)
                bulk_copy(to, copy.from, (uint32_t)bytes, arrivals + slot * 8);
        }
    }
    /* Begins the copies that there is room for. */
    __device__ __forceinline__ void fill()
    {
        slot_copy copy;

#pragma unroll 1
        while (put - taken < SLOTS + (unsigned)SB_CUDA_FAULT(STAGE_COPIED_TOO_EARLY) &&
               source.next(copy)) {
            begin_copy(copy);
            put++;
        }
    }
    /* Waits for slot number i of those that are not given back. */
    __device__ __forceinline__ const uint8_t *slot(int i) const
    {
        const unsigned number = taken + (unsigned)i;

        if (has_bulk_copies()) {
            mbarrier_wait(arrivals + number % SLOTS * 8, number / SLOTS & 1);
        } else {
            cp_async_wait_but<SLOTS - 1>((int)(put - number) - 1);
            __syncwarp();
        }
        return at + number % SLOTS * SLOT_BYTES;
    }
    /* The next n have been read, and `left` more will be before the warp calls fill(). To find out
     * what to copy takes about as many instructions as to use it, so it is put off until the warp
     * has to wait for others, unless not all of these are under way. */
    __device__ __forceinline__ void give_back(int n, int left)
    {
        __syncwarp();
        taken += (unsigned)n;
        if (put - taken < (unsigned)left)
            fill();
    }
};

/* Inputs [m, ld] in device memory. They may just have come from other blocks, and each load waits
 * for the L2 cache, so those of several slots are loaded at once. What is asked for past the last
 * row is the last: it takes no branch, and nobody wants the sums. */
struct global_inputs {
    enum { SLOTS_AT_ONCE = 2 };

    const uint16_t *x;
    int64_t ld;
    int m;

    __device__ __forceinline__ uint4 load(int row, int k) const
    {
        return __ldcg((const uint4 *)(x + min(row, m - 1) * ld + k));
    }
};

/* Adds the products of STAGES stages, of which n are there, one of each after the other, so that
 * two that add to one sum need not follow each other. b: this lane's 16 bytes of its rows of x */
template <enum sb_dtype TYPE, int STAGES, int NT, int SUMS>
__device__ __forceinline__ void multiply_stages(float (&sum)[SUMS][NT][4], const uint8_t *stages,
                                                const uint4 (*b)[2][NT], int n)
{
    const int lane = threadIdx.x % 32, g = lane / 4;

#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t a[STAGES][2][4]; /* of two steps of 16 */
#pragma unroll
        for (int j = 0; j < STAGES; j++) {
            const uint8_t *stage = stages + (j < n ? j * STAGE_BYTES : 0);
            const int chunk = lane % 4 * 2 + h;
            const uint4 top = *(const uint4 *)(stage + swizzled<BK * 2>(g, chunk));
            const uint4 low = *(const uint4 *)(stage + swizzled<BK * 2>(g + 8, chunk));
            a[j][0][0] = top.x, a[j][0][1] = low.x, a[j][0][2] = top.y, a[j][0][3] = low.y;
            a[j][1][0] = top.z, a[j][1][1] = low.z, a[j][1][2] = top.w, a[j][1][3] = low.w;
        }
#pragma unroll
        for (int i = 0; i < 2 * STAGES * NT; i++) {
            const int t = i % NT, j = i / NT % STAGES, step = i / NT / STAGES;
            const uint4 &of = b[j][h][t];
            if (j < n)
                mma<TYPE>(sum[j % SUMS][t], a[j][step], step ? of.z : of.x, step ? of.w : of.y);
        }
    }
}

/* The slots that a warp's stages of a tile are in. */
__device__ __forceinline__ int slots_of(const warp_stages &mine)
{
    return (mine.last - mine.first + SLOT_STAGES - 1) / SLOT_STAGES;
}

/* Loads this lane's 16 bytes of its rows of x for STAGES stages from the s-th on, of which n are
 * there; of others zeros, so that no register is kept from before. */
template <int NT, int STAGES, class INPUTS>
__device__ __forceinline__ void load_inputs(uint4 (&b)[STAGES][2][NT], const INPUTS &x, int s,
                                            int n)
{
    const int lane = threadIdx.x % 32;

#pragma unroll
    for (int i = 0; i < STAGES * 2 * NT; i++) {
        const int stage = i / 2 / NT, chunk = lane % 4 * 2 + i / NT % 2;
        const uint4 zeros = {0, 0, 0, 0};
        b[stage][i / NT % 2][i % NT] = stage < n ? x.load(i % NT * 8 + lane / 4,
                                                          (s + stage) * BK + chunk * 8)
                                                 : zeros;
    }
}

/* Multiplies the rows of a tile with x over this warp's stages. A product waits for the one before
 * it whose sum it adds to, so eight rows of x have two sums, which the stages take by turns. Inputs
 * of all stages of a turn are loaded before, but those of 32 rows stage by stage, for want of
 * registers.
 *
 * later: slots that the warp reads behind these before it fills its ring */
template <enum sb_dtype TYPE, int NT, class RING, class INPUTS>
__device__ __forceinline__ void multiply_tile(float (&acc)[NT][4], RING &ring, const INPUTS &x,
                                              const warp_stages &mine, int later)
{
    enum { AT_ONCE = SLOT_STAGES * (NT == 1 ? (int)INPUTS::SLOTS_AT_ONCE : 1) };
    enum { SUMS = NT == 1 ? 2 : 1 }; /* and so many stages together */
    enum { LOADED = NT > 2 ? 1 : (int)AT_ONCE };
    float sum[SUMS][NT][4] = {};

#pragma unroll 1
    for (int s = mine.first; s < mine.last; s += AT_ONCE) {
        const int n = min((int)AT_ONCE, mine.last - s);
        uint4 b[LOADED][2][NT];
        const uint8_t *slot = NULL;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i += SUMS) {
            if (i % LOADED == 0)
                load_inputs<NT>(b, x, s + i, n - i);
            if (i >= n)
                break;
            if (i % SLOT_STAGES == 0)
                slot = ring.slot(i / SLOT_STAGES);
            multiply_stages<TYPE, SUMS>(sum, slot + i % SLOT_STAGES * STAGE_BYTES, b + i % LOADED,
                                        n - i);
        }
        ring.give_back(slots_of({s, s + n}), slots_of({s + n, mine.last}) + later);
    }
#pragma unroll
    for (int i = 0; i < NT * 4; i++)
        acc[i / 4][i % 4] = sum[0][i / 4][i % 4] + (SUMS > 1 ? sum[SUMS - 1][i / 4][i % 4] : 0.0f);
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

/* Adds the warps' sums of row r of x and row i of the tile, in ascending order. */
template <int NT>
__device__ __forceinline__ float add_warps(const float *sums, int r, int i)
{
    float sum = 0.0f;

#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum += sums[(w * 8 * NT + r) * SUM_PITCH + i];
    return sum;
}

} // namespace

#endif
