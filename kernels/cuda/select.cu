/*
 * The one selection rule, which is greedy: the id of the largest of logits[i][0..limit), the lowest
 * id where several are the largest, -1 where any is NaN. Where asked for, it also gives the
 * natural-log probability and the margin over the second largest. A block takes one row.
 *
 * The largest value and the lowest id that has it do not depend on the order of comparisons, so
 * each of 1024 threads looks at a stride, and they merge what they found. The log-probability is
 * -log(sum e^(x - max)). To have the CPU's bits (kernels/cpu/select.c), that sum consists of
 * sixteen running sums in ascending order, which the fixed tree adds. All threads compute the
 * powers, a piece at a time, and sixteen threads add them. That takes about 20 us for 150,000
 * logits, all rows at once, and only where it is asked for.
 *
 * Alternatives are found one after the other: each is the largest logit behind the one before it,
 * which takes another pass over the row. Sorting the row would need memory that a kernel has not
 * got, and lists of 32 in 1024 threads more registers than there are.
 */
#include "kernels/cuda/common.cuh"

enum { THREADS = 1024, WARPS = THREADS / 32, PIECE = 4096, LANES = 16 };

struct top {
    float first, second; /* largest, and the largest of the rest (-infinity when there is no
                            rest) */
    int32_t id;          /* lowest that has `first` */
    int32_t has_nan;
};

static __device__ __forceinline__ struct top merged(struct top a, struct top b)
{
    const bool b_wins = b.first > a.first || (b.first == a.first && b.id < a.id);
    const struct top winner = b_wins ? b : a;
    const float loser = b_wins ? a.first : b.first;
    struct top out = {winner.first, sb_max(sb_max(a.second, b.second), loser), winner.id,
                      a.has_nan | b.has_nan};
    return out;
}

static __device__ struct top warp_top(struct top mine)
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

/* The top of what comes behind a value and its id in the order of alternatives, in every thread.
 * tops: [WARPS] */
static __device__ struct top row_top(const float *row, int32_t limit, float value, int32_t id,
                                     struct top *tops)
{
    struct top mine = {-INFINITY, -INFINITY, INT32_MAX, 0};

    for (int32_t i = threadIdx.x; i < limit; i += THREADS) {
        const float x = row[i];
        struct top one = {x, -INFINITY, i, x != x};
        if (x != x || x < value || (x == value && i > id))
            mine = merged(mine, one);
    }
    mine = warp_top(mine);
    if (threadIdx.x % 32 == 0)
        tops[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = warp_top(tops[threadIdx.x % WARPS]);
    __syncthreads();
    return mine;
}

/* The sum of e^(x - max); only thread 0 gets all of it. powers: [PIECE] */
static __device__ float exp_sum(const float *row, int32_t limit, float max, float *powers)
{
    float sum = 0.0f;

    for (int64_t first = 0; first < limit; first += PIECE) {
        const int32_t n = limit - first < PIECE ? (int32_t)(limit - first) : PIECE;
        for (int32_t i = threadIdx.x; i < n; i += THREADS)
            powers[i] = sb_exp(row[first + i] - max);
        __syncthreads();
        for (int32_t i = threadIdx.x; i < n && threadIdx.x < LANES; i += LANES)
            sum += powers[i];
        __syncthreads();
    }
    return sb_hsum16(sum);
}

/* Writes the n most probable ids of a place, and their log-probabilities. best: the first of them;
 * log_sum: only thread 0 needs it. */
static __device__ void tell_best(const float *row, int32_t limit, struct top best, float log_sum,
                                 const struct sb_scores &scores, int32_t place, int32_t n,
                                 struct top *tops)
{
    const int64_t at = (int64_t)place * scores.stride;
    const float largest = best.first;
    const bool has_nan = best.has_nan != 0; /* of the row, and then log_sum is NaN too */

    for (int32_t k = 0; k < n; k++) {
        const bool is_there = !has_nan && best.first > -INFINITY;
        if (threadIdx.x == 0) {
            scores.ids[at + k] = is_there ? best.id : -1;
            scores.logprobs[at + k] = is_there             ? -(log_sum + (largest - best.first))
                                      : log_sum == log_sum ? -INFINITY
                                                           : NAN;
        }
        if (is_there && k + 1 < n)
            best = row_top(row, limit, best.first, best.id, tops);
    }
}

/* scores: those without wants are none. */
static __global__ void __launch_bounds__(THREADS, 1)
    select_ids(const float *logits, int64_t stride, int32_t limit, const int32_t *at, int32_t *ids,
               float *logprob, float *margin, struct sb_scores scores)
{
    SB_SHARED(struct top, tops, WARPS);
    SB_SHARED(float, powers, PIECE);
    const float *row = logits + blockIdx.x * stride;
    const struct top top = row_top(row, limit, INFINITY, -1, tops);
    const int32_t out = at[blockIdx.x];
    const int32_t given = scores.wants ? scores.wants[out].given : -1;
    const int32_t n_top = scores.wants ? scores.wants[out].n_top : 0;
    float log_sum = NAN;

    static_assert(WARPS == 32, "the second merge is one warp's");
    if ((logprob || n_top > 0) && !top.has_nan)
        log_sum = sb_log(exp_sum(row, limit, top.first, powers));
    tell_best(row, limit, top, log_sum, scores, out, n_top, tops);
    if (threadIdx.x != 0)
        return;
    if (logprob)
        logprob[out] = -(log_sum + (top.first - (given < 0 ? top.first : row[given])));
    if (given >= 0)
        return;
    ids[out] = top.has_nan ? -1 : top.id;
    if (margin)
        margin[out] = limit == 1    ? INFINITY
                      : top.has_nan ? NAN
                                    : top.first - top.second + 0.0f; /* -0 becomes 0 */
}

extern "C" cudaError_t sb_cuda_select(const struct sb_select *args, cudaStream_t stream)
{
    const dim3 grid((unsigned)args->m);
    const struct sb_scores none = {NULL, 0, NULL, NULL};

    if (args->m == 0)
        return cudaSuccess;
    return SB_LAUNCH(select_ids, grid, dim3(THREADS), 0, stream, args->logits, args->stride,
                     args->limit, args->at, args->ids, args->logprob, args->margin,
                     args->scores ? *args->scores : none);
}

cudaError_t sb_load_select(enum sb_dtype)
{
    return sb_load(select_ids);
}
