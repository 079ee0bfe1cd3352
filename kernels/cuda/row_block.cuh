/*
 * What a block of 1024 threads finds out about a row of logits: its largest, the sum of its powers,
 * and sums over the threads.
 *
 * All threads of the block call these functions together. Each thread looks at the ids
 * threadIdx.x, threadIdx.x + 1024, ..., so that a warp reads neighbours, and all of them get the
 * result unless it says otherwise. Shared memory that a function writes may be used for something
 * else as soon as the function has returned in all threads, that is, after the next barrier.
 */
#ifndef SB_CUDA_ROW_BLOCK_CUH
#define SB_CUDA_ROW_BLOCK_CUH

#include "kernels/cuda/common.cuh"

namespace
{

enum { THREADS = 1024, WARPS = THREADS / 32, PIECE = 4096, LANES = 16 };

typedef unsigned long long wide; /* as CUDA names uint64_t */

struct top {
    float first, second; /* largest, and the largest of the rest (-infinity when there is no
                            rest) */
    int32_t id;          /* lowest that has `first` */
    int32_t has_nan;
};

__device__ __forceinline__ struct top merged(struct top a, struct top b)
{
    const bool b_wins = b.first > a.first || (b.first == a.first && b.id < a.id);
    const struct top winner = b_wins ? b : a;
    const float loser = b_wins ? a.first : b.first;
    struct top out = {winner.first, sb_max(sb_max(a.second, b.second), loser), winner.id,
                      a.has_nan | b.has_nan};
    return out;
}

__device__ __forceinline__ struct top top_of_one(float x, int32_t id)
{
    struct top out = {x, -INFINITY, id, x != x};
    return out;
}

__device__ __forceinline__ struct top top_of_none(void)
{
    return top_of_one(-INFINITY, INT32_MAX);
}

__device__ struct top warp_top(struct top mine)
{
    for (int half = 16; half > 0; half /= 2) {
        struct top other;
        other.first = __shfl_xor_sync(SB_FULL_WARP, mine.first, half);
        other.second = __shfl_xor_sync(SB_FULL_WARP, mine.second, half);
        other.id = __shfl_xor_sync(SB_FULL_WARP, mine.id, half);
        other.has_nan = __shfl_xor_sync(SB_FULL_WARP, mine.has_nan, half);
        mine = merged(mine, other);
    }
    return mine;
}

/* The top of what the threads have. tops: [WARPS] */
__device__ struct top block_top(struct top mine, struct top *tops)
{
    static_assert(WARPS == 32, "the second merge is one warp's");
    mine = warp_top(mine);
    __syncthreads(); /* what tops had has been read */
    if (threadIdx.x % 32 == 0)
        tops[threadIdx.x / 32] = mine;
    __syncthreads();
    return warp_top(tops[threadIdx.x % WARPS]);
}

/* The top of the whole row, in which what is above `most` counts as `most`. tops: [WARPS] */
__device__ struct top row_top(const float *row, int32_t limit, float most, struct top *tops)
{
    struct top mine = top_of_none();

    for (int32_t i = threadIdx.x; i < limit; i += THREADS) {
        struct top one = top_of_one(row[i], i);
        one.first = sb_min(one.first, most);
        mine = merged(mine, one);
    }
    return block_top(mine, tops);
}

/* The top of what comes behind `first` and its id in the order of alternatives: the largest value
 * first, of equal ones the lowest id first. value(id) has no NaN. tops: [WARPS] */
template <typename F>
__device__ struct top next_top(int32_t limit, float first, int32_t id, F value, struct top *tops)
{
    struct top mine = top_of_none();

    for (int32_t i = threadIdx.x; i < limit; i += THREADS) {
        const float x = value(i);
        if (x < first || (x == first && i > id))
            mine = merged(mine, top_of_one(x, i));
    }
    return block_top(mine, tops);
}

/* The sum of power(id) over all ids; only thread 0 gets all of it. To have the CPU's bits
 * (kernels/cpu/select.c), it consists of sixteen running sums in ascending order, which the fixed
 * tree adds. All threads compute the powers, a piece at a time, and sixteen threads add them. That
 * takes about 20 us for 150,000 logits, all rows at once. powers: [PIECE] */
template <typename F>
__device__ float power_sum(int32_t limit, float *powers, F power)
{
    float sum = 0.0f;

    for (int64_t first = 0; first < limit; first += PIECE) {
        const int32_t n = limit - first < PIECE ? (int32_t)(limit - first) : PIECE;
        for (int32_t i = threadIdx.x; i < n; i += THREADS)
            powers[i] = power((int32_t)first + i);
        __syncthreads();
        for (int32_t i = threadIdx.x; i < n && threadIdx.x < LANES; i += LANES)
            sum += powers[i];
        __syncthreads();
    }
    return sb_hsum16(sum);
}

__device__ __forceinline__ wide warp_sum(wide v)
{
    for (int half = 16; half > 0; half /= 2)
        v += __shfl_xor_sync(SB_FULL_WARP, v, half);
    return v;
}

/* The sum of what this thread and those before it have, and of what all have. parts: [WARPS] */
__device__ wide running_sum(wide mine, wide *total, wide *parts)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    for (int step = 1; step < 32; step *= 2) {
        const wide other = __shfl_up_sync(SB_FULL_WARP, mine, step);
        mine += lane >= step ? other : 0;
    }
    __syncthreads(); /* what parts had has been read */
    if (lane == 31)
        parts[warp] = mine;
    __syncthreads();
    *total = warp_sum(parts[lane]);
    return mine + warp_sum(lane < warp ? parts[lane] : 0);
}

} // namespace

#endif
