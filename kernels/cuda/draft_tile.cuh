/*
 * What a draft's kernels share: products of up to eight rows whose sum over k is split.
 *
 * A draft's bits are outside the contract, so k may be split where the target's products may not.
 * A block takes a tile of 16 rows of weights, its eight warps take an eighth of k each, and the
 * eight sums are added in the order of the warps. The order is a function of the matrix's shape, so
 * proposals do not depend on what else is in the pass.
 *
 *     k         | 0   | 64  | 128 | 192 | 256 | 320 | ... | 960 | 1024 ...   a stage: 16 rows x
 *     warp        0     0     1     1     2     2           7     0          64 columns, 2 KB
 *     slot      | 0                                             | 1          16 stages, 32 KB
 *
 * The block has a ring of slots in shared memory, and a ninth warp that does nothing but fill them
 * (copy_all). A slot is what lies in one piece in memory, so it is filled by one copy: a bulk copy
 * on sm_90, else cp.async of all lanes. What comes next is said by a source, which may go on to the
 * next matrix before the inputs of that matrix exist: weights do not depend on them. Each slot has
 * two mbarriers:
 *
 *     full      counts the copy's bytes. A warp waits for it before it reads the slot.
 *     empty     counts the warps that have read the slot, all eight. The ninth waits for it before
 *               it fills the slot again.
 *
 * Fragments. The order of k within a step is free as long as weights and inputs agree. Lane l, with
 * g = l / 4 and q = l % 4, takes the 16 bytes of chunk 2 q + h of its rows as the operands of two
 * steps of 16. So all operands come by loads of 16 bytes, from a swizzled stage without bank
 * conflicts: eight lanes read the even (or odd) chunks of two neighbouring rows.
 *
 * Rejected: a ring for each warp, filled by the warp itself while it waits for other blocks. To
 * find out what comes next takes about as many instructions as to use it, and on an H200 the warps
 * were at it for 4800 of the 10000 clocks of a phase, longer than the wait.
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
    THREADS = 32 * WARPS, /* that compute, and all of a block: */
    BLOCK = THREADS + 32,
    ROWS = 16,
    BK = 64,
    STAGE_BYTES = ROWS * BK * 2,
    WARP_STAGES = 2, /* of a slot */
    SLOT_STAGES = WARPS * WARP_STAGES,
    SLOT_BYTES = SLOT_STAGES * STAGE_BYTES,
    MOST_ROWS = 8,        /* of x: the columns of an mma */
    SUM_PITCH = ROWS + 4, /* floats; so that lanes write their sums without bank conflicts */
    SUM_FLOATS = WARPS * MOST_ROWS * SUM_PITCH /* the warps' sums of a tile */
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
        const int o = gated ? tile * (ROWS / 2) + (i & (ROWS / 2 - 1)) : tile * ROWS + i;
        if (o >= (gated ? gated : n_out))
            return -1;
        return gated && i >= ROWS / 2 ? gated + o : o;
    }
    __device__ __forceinline__ uint16_t element(int64_t o, int64_t k) const
    {
        return w[sb_cuda_tiled(o, k / 8, ld) + k % 8];
    }
};

/* The stages of a slot that this warp multiplies, where the tile has n stages from the slot's first
 * on. */
struct warp_stages {
    int first, n;

    static __device__ __forceinline__ warp_stages of(int n)
    {
        const int all = min(max(n, 0), (int)SLOT_STAGES), warp = (int)threadIdx.x / 32;
        const int first = all * warp / WARPS;
        return {first, all * (warp + 1) / WARPS - first};
    }
};

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

/* The ring as a warp that reads it has it. All warps read all slots in turn, also those in which
 * they have nothing:
 *
 *     given back ... | taken, taken + 1, .. | still to come
 */
template <int SLOTS>
struct slot_ring {
    uint8_t *at;
    unsigned taken;

    enum { BYTES = SLOTS * (SLOT_BYTES + 16) }; /* of slots, and two mbarriers for each */

    __device__ __forceinline__ shared_at full(unsigned number) const
    {
        return at_shared(at) + SLOTS * SLOT_BYTES + number % SLOTS * 16;
    }
    __device__ __forceinline__ shared_at empty(unsigned number) const
    {
        return full(number) + 8;
    }
    /* One thread makes the mbarriers, and then the block meets. */
    __device__ __forceinline__ void make_mbarriers(void) const
    {
#pragma unroll 1
        for (unsigned slot = 0; slot < SLOTS; slot++) {
            mbarrier_init(full(slot), has_bulk_copies() ? 1 : 32);
            mbarrier_init(empty(slot), WARPS);
        }
        async_fence_shared();
    }
    /* Waits for slot number i of those that are not given back. */
    __device__ __forceinline__ const uint8_t *slot(int i) const
    {
        const unsigned number = taken + (unsigned)i;

        mbarrier_wait(full(number), number / SLOTS & 1);
        return at + number % SLOTS * SLOT_BYTES;
    }
    /* The warp has read the next n. */
    __device__ __forceinline__ void give_back(int n)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            for (int i = 0; i < n; i++)
                mbarrier_arrive(empty(taken + (unsigned)i));
        taken += (unsigned)n;
    }
    /* Begins to fill a slot, by a warp. */
    __device__ __forceinline__ void begin_copy(unsigned number, const slot_copy &copy) const
    {
        const int lane = (int)threadIdx.x % 32, bytes = copy.odd ? 0 : copy.bytes;
        uint8_t *const to = at + number % SLOTS * SLOT_BYTES;

        if (copy.odd)
            copy_odd_rows(to, copy);
        if (has_bulk_copies() && lane == 0) {
            mbarrier_arrive_expect(full(number), (uint32_t)bytes);
            if (bytes > 0)
                bulk_copy(at_shared(to), copy.from, (uint32_t)bytes, full(number));
        } else if (!has_bulk_copies() && copy.odd) {
            mbarrier_arrive(full(number)); /* which ordinary stores need */
        } else if (!has_bulk_copies()) {
#pragma unroll 1
            for (int i = lane * 16; i < bytes; i += 512)
                cp_async(at_shared(to) + i, (const char *)copy.from + i, true);
            cp_async_arrive(full(number));
        }
    }
};

/* What the ninth warp does: it fills the slots with all that the source has. source.next(copy) says
 * with what the slot that comes next is to be filled, and is false behind the last;
 * source.await_turn() returns when the block may begin to copy. */
template <int SLOTS, class SOURCE>
__device__ __forceinline__ void copy_all(const slot_ring<SLOTS> &ring, SOURCE &source)
{
    slot_copy copy;

    cp_async_begin();
#pragma unroll 1
    for (unsigned put = 0; source.next(copy); put++) {
        if (put >= SLOTS && !SB_CUDA_FAULT(STAGE_COPIED_TOO_EARLY))
            mbarrier_wait(ring.empty(put), (put / SLOTS & 1) ^ 1);
        source.await_turn();
        ring.begin_copy(put, copy);
    }
}

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

/* Adds the products of a warp's stages of a slot, of which n are there, one of each after the
 * other, so that two that add to one sum need not follow each other. b: this lane's 16 bytes of its
 * row of x, for the even chunks of a stage and the odd ones */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void multiply_stages(float (&sum)[WARP_STAGES][4], const uint8_t *stages,
                                                const uint4 (&b)[WARP_STAGES][2], int n)
{
    const int lane = threadIdx.x % 32, g = lane / 4;

#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t a[WARP_STAGES][2][4]; /* of two steps of 16 */
#pragma unroll
        for (int j = 0; j < WARP_STAGES; j++) {
            const uint8_t *stage = stages + (j < n ? j * STAGE_BYTES : 0);
            const int chunk = lane % 4 * 2 + h;
            const uint4 top = *(const uint4 *)(stage + swizzled<BK * 2>(g, chunk));
            const uint4 low = *(const uint4 *)(stage + swizzled<BK * 2>(g + 8, chunk));
            a[j][0][0] = top.x, a[j][0][1] = low.x, a[j][0][2] = top.y, a[j][0][3] = low.y;
            a[j][1][0] = top.z, a[j][1][1] = low.z, a[j][1][2] = top.w, a[j][1][3] = low.w;
        }
#pragma unroll
        for (int i = 0; i < 2 * WARP_STAGES; i++) {
            const int j = i % WARP_STAGES, step = i / WARP_STAGES;
            const uint4 &of = b[j][h];
            if (j < n)
                mma<TYPE>(sum[j], a[j][step], step ? of.z : of.x, step ? of.w : of.y);
        }
    }
}

/* Loads this lane's 16 bytes of its row of x for the stages from the s-th on, of which n are there;
 * of others zeros, so that no register is kept from before. */
template <class INPUTS>
__device__ __forceinline__ void load_inputs(uint4 (&b)[WARP_STAGES][2], const INPUTS &x, int s,
                                            int n)
{
    const int lane = threadIdx.x % 32;
    const uint4 zeros = {0, 0, 0, 0};

#pragma unroll
    for (int i = 0; i < WARP_STAGES * 2; i++) {
        const int chunk = lane % 4 * 2 + i % 2;
        b[i / 2][i % 2] = i / 2 < n ? x.load(lane / 4, (s + i / 2) * BK + chunk * 8) : zeros;
    }
}

/* Multiplies the rows of a tile with x over this warp's part of its stages, from stage `first` on,
 * n of them. A product waits for the one before it whose sum it adds to, so each of a warp's stages
 * in a slot has its own sum. Inputs of SLOTS_AT_ONCE slots are loaded before these are read. */
template <enum sb_dtype TYPE, class RING, class INPUTS>
__device__ __forceinline__ void multiply_tile(float (&acc)[4], RING &ring, const INPUTS &x,
                                              int first, int n)
{
    enum { TURN = INPUTS::SLOTS_AT_ONCE };
    float sum[WARP_STAGES][4] = {};

#pragma unroll 1
    for (int s = 0; s < n; s += TURN * SLOT_STAGES) {
        uint4 b[TURN][WARP_STAGES][2];
        warp_stages mine[TURN];
#pragma unroll
        for (int t = 0; t < TURN; t++) {
            mine[t] = warp_stages::of(n - s - t * SLOT_STAGES);
            mine[t].first += s + t * SLOT_STAGES;
            load_inputs(b[t], x, first + mine[t].first, mine[t].n);
        }
#pragma unroll
        for (int t = 0; t < TURN; t++) {
            if (s + t * SLOT_STAGES >= n)
                break;
            const uint8_t *const slot = ring.slot(t);
            if (mine[t].n > 0)
                multiply_stages<TYPE>(sum, slot + mine[t].first % SLOT_STAGES * STAGE_BYTES, b[t],
                                      mine[t].n);
        }
        ring.give_back(TURN > 1 && s + SLOT_STAGES < n ? (int)TURN : 1);
    }
    static_assert(WARP_STAGES == 2, "a warp has two sums");
#pragma unroll
    for (int i = 0; i < 4; i++)
        acc[i] = sum[0][i] + sum[1][i];
}

__device__ __forceinline__ float square_of(const float4 &v)
{
    return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, v.x * v.x)));
}

/* Writes the sums of this warp for a tile and the rows of x to shared memory, [SUM_FLOATS]. */
__device__ __forceinline__ void store_warp_sums(float *sums, const float (&acc)[4])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll
    for (int i = 0; i < 4; i++)
        sums[(warp * MOST_ROWS + lane % 4 * 2 + i % 2) * SUM_PITCH + i / 2 * 8 + lane / 4] = acc[i];
}

/* Adds the warps' sums of row r of x and row i of the tile, in ascending order. */
__device__ __forceinline__ float add_warps(const float *sums, int r, int i)
{
    float sum = 0.0f;

#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum += sums[(w * MOST_ROWS + r) * SUM_PITCH + i];
    return sum;
}

} // namespace

#endif
