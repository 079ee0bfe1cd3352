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

#include "kernels/cuda/opaque.cuh"

namespace
{

enum {
    THREADS = 1024,
    WARPS = THREADS / 32,
    LANES = 16,
    ADDERS = 32, /* threads of the warp that adds powers; the others compute them, */
    EACH = 4,    /* as many at a time */
    PIECE = EACH * (THREADS - ADDERS)
};

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

/* The top of ids [first, end) of a row, in which what is above `most` counts as `most`. A thread
 * loads several at once. tops: [WARPS] */
__device__ struct top row_top(const float *row, int32_t first, int32_t end, float most,
                              struct top *tops)
{
    enum { AT_ONCE = 4 };
    struct top mine = top_of_none();

    for (int64_t i = first + (int32_t)threadIdx.x; i < end; i += AT_ONCE * THREADS) {
        float x[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            x[k] = i + k * THREADS < end ? row[i + k * THREADS] : 0.0f;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            struct top one = top_of_one(x[k], (int32_t)i + k * THREADS);
            one.first = sb_min(one.first, most);
            if (i + k * THREADS < end)
                mine = merged(mine, one);
        }
    }
    return block_top(mine, tops);
}

/* The top of those of ids first, first + step, .. that come behind `last` in the order of
 * alternatives: the largest value first, of equal ones the lowest id first. value(id) has no NaN.
 * It is this thread's alone. */
template <typename F>
__device__ struct top top_behind(const struct top &last, int32_t first, int32_t step, int32_t limit,
                                 F value)
{
    struct top mine = top_of_none();

    for (int64_t i = first; i < limit; i += step) {
        const float x = value((int32_t)i);
        if (x < last.first || (x == last.first && i > last.id))
            mine = merged(mine, top_of_one(x, (int32_t)i));
    }
    return mine;
}

/* The sum of power(id, s[id]) over all ids; only thread 0 gets all of it. To have the CPU's bits
 * (kernels/cpu/select.c), it consists of sixteen running sums in ascending order, which the fixed
 * tree adds. So a sum is a chain of limit / 16 additions, each of which waits for the one before
 * it, and no number of blocks makes that shorter. All else is done beside it: the first warp adds a
 * piece while the others compute the next one and load the logits of the one after. A piece is
 * always full, with zeros at the end, which change no sum of powers; so its additions are one run
 * of instructions without a branch. powers: [2 * PIECE] */
template <typename F>
__device__ float power_sum(const float *s, int32_t limit, float *powers, F power)
{
    uint32_t thread = threadIdx.x;
    opaque(thread); /* else addresses are kept from one sum of a kernel to another */
    const int32_t n_pieces = (limit + PIECE - 1) / PIECE, mine = (int32_t)thread - ADDERS;
    float sum = 0.0f, loaded[EACH];
    const auto load = [&](int64_t first) {
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int64_t id = first + mine + k * (THREADS - ADDERS);
            loaded[k] = mine >= 0 && id < limit ? s[id] : 0.0f;
        }
    };

    load(0);
    for (int32_t p = 0; p <= n_pieces; p++) {
        const int64_t first = (int64_t)p * PIECE;
        if (mine >= 0 && p < n_pieces) {
            float x[EACH], *piece = powers + p % 2 * PIECE;
#pragma unroll
            for (int k = 0; k < EACH; k++)
                x[k] = loaded[k];
            load(first + PIECE);
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                const int32_t i = mine + k * (THREADS - ADDERS);
                piece[i] = first + i < limit ? power((int32_t)first + i, x[k]) : 0.0f;
            }
        } else if (threadIdx.x < LANES && p > 0) {
            const float *piece = powers + (p - 1) % 2 * PIECE + threadIdx.x;
#pragma unroll
            for (int i = 0; i < PIECE; i += LANES)
                sum += piece[i];
        }
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
