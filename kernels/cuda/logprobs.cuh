/*
 * Log-probabilities of a row by one block: of single ids, and of the n most probable ones.
 * kernels/cpu/logprobs.h has the formulas, of which these are the same float operations.
 *
 * Alternatives are found one after the other. Each thread keeps the largest value of its own ids
 * that has not been taken yet, and the largest of all threads is the next alternative. Only the
 * thread that had it looks at its ids again, with the help of its warp. Sorting the row would need
 * memory that a kernel has not got, and lists of 32 in 1024 threads more registers than there are.
 */
#ifndef SB_CUDA_LOGPROBS_CUH
#define SB_CUDA_LOGPROBS_CUH

#include "kernels/cuda/sample.cuh"

namespace
{

/* What makes a log-probability of the value of an id: a logit, or -depth, of which the largest is
 * 0. */
struct scale {
    float top, log_sum; /* log_sum is NaN if the row has one; only thread 0 needs it */
};

__device__ __forceinline__ float logprob_of(const struct scale &scale, float value)
{
    const float logprob = -(scale.log_sum + (scale.top - value));

    return logprob > 0.0f ? 0.0f : logprob;
}

/* The value of a key that is a logit. */
struct logit_itself {
    __device__ __forceinline__ float operator()(float key) const
    {
        return key;
    }
};

/* Writes the n most probable ids of a place, and their log-probabilities. has_nan: the row has one,
 * so there are none. key(id): what ids are ordered by, -infinity where an id is none of them;
 * value(key): what makes the log-probability */
template <typename F, typename G>
__device__ void tell_best(const struct sb_scores &scores, int32_t place, int32_t n, int32_t limit,
                          bool has_nan, const struct scale &scale, F key, G value, struct top *tops)
{
    const int64_t at = (int64_t)place * scores.stride;
    const int thread = (int)threadIdx.x;
    struct top mine = top_of_none();

    if (n > 0 && !has_nan)
        mine = top_behind(top_of_one(INFINITY, -1), thread, THREADS, limit, key);
    for (int32_t k = 0; k < n; k++) {
        const struct top best = block_top(mine, tops);
        const bool is_there = best.first > -INFINITY;
        const int owner = best.id % THREADS, lane = thread % 32;
        if (thread == 0) {
            scores.ids[at + k] = is_there ? best.id : -1;
            scores.logprobs[at + k] = is_there ? logprob_of(scale, value(best.first))
                                      : scale.log_sum == scale.log_sum ? -INFINITY
                                                                       : NAN;
        }
        if (is_there && thread / 32 == owner / 32) {
            const struct top next = warp_top(
                top_behind(best, owner + lane * THREADS, 32 * THREADS, limit, key));
            mine = thread == owner ? next : mine;
        }
    }
}

/* By the logits as they are: writes the alternatives, and gives the scale. top: of the row */
__device__ struct scale raw_logprobs(const struct sb_scores &scores, int32_t place, int32_t n_top,
                                     const float *row, int32_t limit, struct top top,
                                     struct top *tops, float *powers)
{
    struct scale scale = {top.first, NAN};

    if (!top.has_nan)
        scale.log_sum = sb_log(
            power_sum(row, limit, powers, [&](int32_t, float x) { return sb_exp(x - top.first); }));
    tell_best(
        scores, place, n_top, limit, top.has_nan != 0, scale, [&](int32_t i) { return row[i]; },
        logit_itself(), tops);
    return scale;
}

/* The value of an id whose logit is s, behind the filters: -depth, or -infinity where it is not
 * left. */
__device__ __forceinline__ float filtered_value(const struct row &row, int32_t id, float s)
{
    struct place place;

    if (!is_left(&place, row, id, s) || sb_exp(0.0f - place.depth) < row.least_weight)
        return -INFINITY;
    return -place.depth;
}

/* The same by what the filters leave. Thread 0 gets the log-probability of `id`. */
__device__ float filtered_logprobs(const struct sb_scores &scores, int32_t place, int32_t n_top,
                                   const struct row &row, int32_t id, struct top *tops,
                                   float *powers)
{
    const auto key = [&](int32_t i) {
        return filtered_value(row, i, row.s[i]) > -INFINITY ? row.s[i] : -INFINITY;
    };
    struct scale scale = {0.0f, 0.0f};

    scale.log_sum = sb_log(power_sum(row.s, row.n, powers, [&](int32_t i, float s) {
        const float v = filtered_value(row, i, s);
        return v > -INFINITY ? sb_exp(0.0f + v) : 0.0f; /* 0 + v is 0 - depth */
    }));
    tell_best(
        scores, place, n_top, row.n, false, scale, key, [&](float s) { return -depth_of(row, s); },
        tops);
    return logprob_of(scale, -depth_of(row, row.s[id]));
}

} // namespace

#endif
