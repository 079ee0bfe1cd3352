/*
 * Log-probabilities of a row by one block: of single ids, and of the n most probable ones.
 * kernels/cpu/logprobs.h has the formulas, of which these are the same float operations.
 *
 * Alternatives are found one after the other: each is the largest value behind the one before it,
 * which takes another pass over the row. Sorting the row would need memory that a kernel has not
 * got, and lists of 32 in 1024 threads more registers than there are.
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
    return -(scale.log_sum + (scale.top - value));
}

/* Writes the n most probable ids of a place, and their log-probabilities. best: the first of them;
 * if its value is -infinity, or the row has a NaN, there is none. value(id): of the row */
template <typename F>
__device__ void tell_best(const struct sb_scores &scores, int32_t place, int32_t n, int32_t limit,
                          struct top best, const struct scale &scale, F value, struct top *tops)
{
    const int64_t at = (int64_t)place * scores.stride;
    const bool has_nan = best.has_nan != 0;

    for (int32_t k = 0; k < n; k++) {
        const bool is_there = !has_nan && best.first > -INFINITY;
        if (threadIdx.x == 0) {
            scores.ids[at + k] = is_there ? best.id : -1;
            scores.logprobs[at + k] = is_there ? logprob_of(scale, best.first)
                                      : scale.log_sum == scale.log_sum ? -INFINITY
                                                                       : NAN;
        }
        if (is_there && k + 1 < n)
            best = next_top(limit, best.first, best.id, value, tops);
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
            power_sum(limit, powers, [&](int32_t i) { return sb_exp(row[i] - top.first); }));
    tell_best(
        scores, place, n_top, limit, top, scale, [&](int32_t i) { return row[i]; }, tops);
    return scale;
}

/* The value of an id behind the filters: -depth, or -infinity where it is not left. */
__device__ __forceinline__ float filtered_value(const struct row &row, int32_t id)
{
    struct place place;

    if (!is_left(&place, row, id, row.s[id]) || sb_exp(0.0f - place.depth) < row.least_weight)
        return -INFINITY;
    return -place.depth;
}

/* The same by what the filters leave. Thread 0 gets the log-probability of `id`. */
__device__ float filtered_logprobs(const struct sb_scores &scores, int32_t place, int32_t n_top,
                                   const struct row &row, int32_t id, struct top *tops,
                                   float *powers)
{
    const auto value = [&](int32_t i) { return filtered_value(row, i); };
    struct scale scale = {0.0f, 0.0f};

    scale.log_sum = sb_log(power_sum(row.n, powers, [&](int32_t i) {
        const float v = filtered_value(row, i);
        return v > -INFINITY ? sb_exp(0.0f + v) : 0.0f; /* 0 + v is 0 - depth */
    }));
    if (n_top > 0)
        tell_best(scores, place, n_top, row.n, next_top(row.n, INFINITY, -1, value, tops), scale,
                  value, tops);
    return logprob_of(scale, -depth_of(row, row.s[id]));
}

} // namespace

#endif
