/*
 * What several blocks find out about a row of logits before its own block chooses (select.cu). One
 * multiprocessor reads a row at a small part of the memory's speed, so rows are cut into parts
 * where they are few:
 *
 *     find_tops         the top of each part, and the largest logit of each of its groups, which
 * are the ids that one warp or several have looked at find_candidates   for a row that samples and
 * whose logits nothing changes: the choice of each part, if there are no filters; with top_k, a
 * list of candidates
 *
 * A choice is the largest of values that each id has for itself, so the row's choice is the best of
 * its parts'. Candidates are the ids whose logits are not below the k-th largest of the groups'
 * largest. There are k of them at least, one in each of k groups, so what top_k leaves is among
 * them; and seldom many more. Where there is no room for all of them, the row's block does without
 * the list. Neither depends on how the row is cut, so the bits are those of one block.
 *
 * Rejected: the digits of a filter (sample.cuh) by several blocks, which would have to wait for
 * each other at every digit; a list where there is top_p alone, for how deep it goes is known only
 * when all masses have been added up.
 */
#ifndef SB_CUDA_ROW_PARTS_CUH
#define SB_CUDA_ROW_PARTS_CUH

#include "kernels/cuda/changes.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/sample.cuh"

namespace
{

enum {
    ENOUGH_BLOCKS = 264, /* two for each of an H100's multiprocessors; and groups of a row */
    LEAST_PART = 4096,   /* ids that are worth a block */
    CANDIDATES = 1024    /* of a row, at most */
};
static_assert((int)ENOUGH_BLOCKS <= (int)THREADS, "a thread takes one part, or one group");

struct candidates {
    int32_t n; /* more than CANDIDATES: there was no room */
    struct listed of[CANDIDATES];
};

/* Scratch memory, for m rows of n parts with `groups` groups each. */
struct found_of_parts {
    struct top tops[ENOUGH_BLOCKS], choices[ENOUGH_BLOCKS]; /* [m, n] */
    float largest[ENOUGH_BLOCKS * WARPS];                   /* [m, n, groups] */
    struct candidates candidates[ENOUGH_BLOCKS / 2];        /* [m] */
};

struct parts {
    struct found_of_parts *found;
    int32_t n, groups; /* n 0: rows are not cut, and nothing has been found */
};

/* What parts have found of a row. */
enum part_way {
    ROW_ALONE,     /* no more than its top */
    ROW_CHOICES,   /* its choices */
    ROW_CANDIDATES /* its candidates, if there was room */
};

/* r: a sampler that is not greedy; top: of the row, which has no NaN. An infinity may count as
 * FLT_MAX. changes: whether anything may change the row */
__device__ enum part_way way_of(const struct sb_sampler *r, bool changes, const struct top &top,
                                const struct parts &parts)
{
    if (parts.n == 0 || changes || !(r->temperature > 0.0f) ||
        !(top.first > -INFINITY && top.first < FLT_MAX))
        return ROW_ALONE;
    if (r->top_k > 0)
        return r->top_k <= parts.n * parts.groups ? ROW_CANDIDATES : ROW_ALONE;
    return r->top_p < 1.0f || r->typical_p < 1.0f ? ROW_ALONE : ROW_CHOICES;
}

/* The top of row i, which has been cut, by all threads. */
__device__ struct top top_of_parts(const struct parts &parts, int32_t i, struct top *tops)
{
    return block_top((int)threadIdx.x < parts.n
                         ? parts.found->tops[(int64_t)i * parts.n + threadIdx.x]
                         : top_of_none(),
                     tops);
}

/* Grid: parts, rows. */
__global__ void __launch_bounds__(THREADS, 1) find_tops(struct sb_select args, struct parts parts)
{
    SB_SHARED(struct top, tops, WARPS);
    const float *row = args.logits + blockIdx.y * (int64_t)args.stride;
    const int32_t each = (args.limit + parts.n - 1) / parts.n, first = (int32_t)blockIdx.x * each;
    const int64_t number = (int64_t)blockIdx.y * parts.n + blockIdx.x;
    const int t = (int)threadIdx.x, warps = WARPS / parts.groups;

    grid_launch_next();
    grid_wait_for_previous();
    const struct top top = row_top(row, first, min(first + each, args.limit), INFINITY, tops);

    if (t == 0)
        parts.found->tops[number] = top;
    if (t == 0 && blockIdx.x == 0 && !SB_CUDA_FAULT(CANDIDATES_KEPT))
        parts.found->candidates[blockIdx.y].n = 0;
    if (t < parts.groups) {
        float largest = -INFINITY;
        for (int w = t * warps; w < (t + 1) * warps; w++)
            largest = sb_max(largest, tops[w].first);
        parts.found->largest[number * parts.groups + t] = largest;
    }
}

/* The k-th largest of n values, by all threads. of: shared [n + 1] */
__device__ float kth_largest(const float *values, int32_t n, int32_t k, float *of)
{
    const int32_t t = (int32_t)threadIdx.x;
    int32_t rank = 0;

    if (t < n)
        of[t] = values[t];
    __syncthreads();
    for (int32_t i = 0; t < n && i < n; i++)
        rank += of[i] > of[t] || (of[i] == of[t] && i < t);
    if (t < n && rank == k - 1)
        of[n] = of[t];
    __syncthreads();
    return of[n];
}

/* Lists this thread's id if it is one, by all threads of a warp. They count together, for where
 * logits are equal there may be very many. */
__device__ void list_candidate(struct candidates *to, bool is_one, int32_t id, float s)
{
    const int lane = (int)threadIdx.x % 32;
    const unsigned all = __ballot_sync(SB_FULL_WARP, is_one);
    int32_t at = 0;

    if (all == 0)
        return;
    if (lane == 0)
        at = atomicAdd(&to->n, __popc(all));
    at = __shfl_sync(SB_FULL_WARP, at, 0) + __popc(all & ((1u << lane) - 1u));
    if (is_one && at < CANDIDATES)
        to->of[at] = {id, s};
}

/* Lists ids [first, end) whose logits are at least `least`. A thread loads several at once. */
__device__ void list_candidates(struct candidates *to, const float *row, int32_t first, int32_t end,
                                float least)
{
    enum { AT_ONCE = 4 };

    for (int64_t i = first; i < end; i += AT_ONCE * THREADS) {
        const int64_t mine = i + (int32_t)threadIdx.x;
        float s[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            s[k] = mine + k * THREADS < end ? row[mine + k * THREADS] : -INFINITY;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const bool is_one = mine + k * THREADS < end &&
                                (SB_CUDA_FAULT(CANDIDATE_LEFT_OUT) ? s[k] > least : s[k] >= least);
            list_candidate(to, is_one, (int32_t)mine + k * THREADS, s[k]);
        }
    }
}

/* Grid: parts, rows. Blocks of rows that have nothing to find end at once. */
__global__ void __launch_bounds__(THREADS, 1)
    find_candidates(struct sb_select args, struct sb_samplers samplers, struct sb_scores scores,
                    struct parts parts)
{
    SB_SHARED(struct top, tops, WARPS);
    SB_SHARED(float, largest, ENOUGH_BLOCKS + 1);
    const int32_t i = (int32_t)blockIdx.y, part = (int32_t)blockIdx.x;
    const float *row = args.logits + i * (int64_t)args.stride;
    struct found_of_parts *found = parts.found;

    grid_launch_next();
    grid_wait_for_previous();
    if (scores.wants && scores.wants[args.at[i]].given >= 0)
        return;
    const struct sampling at = sampling_of(samplers, i);
    if (at.rule->is_greedy)
        return;
    const struct top top = top_of_parts(parts, i, tops);
    const enum part_way way = top.has_nan ? ROW_ALONE : way_of(at.rule, is_changed(at), top, parts);
    if (way == ROW_CANDIDATES) {
        const int32_t n = parts.n * parts.groups, each = (args.limit + parts.n - 1) / parts.n,
                      first = part * each;
        const float least = kth_largest(found->largest + (int64_t)i * n, n, at.rule->top_k,
                                        largest);
        list_candidates(&found->candidates[i], row, first, min(first + each, args.limit), least);
    }
    if (way == ROW_CHOICES) {
        const int32_t n = (args.limit + 3) / 4, each = (n + parts.n - 1) / parts.n,
                      first = part * each;
        const struct top best = block_top(
            best_choice(unfiltered_row(row, args.limit, top.first, at.rule), first,
                        min(first + each, n), at.rule->seed, at.position),
            tops);
        if (threadIdx.x == 0)
            found->choices[(int64_t)i * parts.n + part] = best;
    }
}

/* The choice of row i, by those of its parts. */
__device__ int32_t choice_of_parts(const struct parts &parts, int32_t i, struct top *tops)
{
    const int32_t t = (int32_t)threadIdx.x;
    const bool is_there = t >= SB_CUDA_FAULT(CHOICE_LEFT_OUT) && t < parts.n;

    return chosen(
        block_top(is_there ? parts.found->choices[(int64_t)i * parts.n + t] : top_of_none(), tops));
}

/* Copies the candidates of row i, and returns how many there are; -1: there was no room. */
__device__ int32_t take_candidates(struct id_list *to, const struct parts &parts, int32_t i)
{
    const struct candidates &from = parts.found->candidates[i];
    const int32_t n = from.n;

    for (int32_t at = (int32_t)threadIdx.x; n <= CANDIDATES && at < n; at += THREADS)
        to->of[at] = from.of[at];
    __syncthreads();
    return n <= CANDIDATES ? n : -1;
}

/* How m rows of `limit` ids are cut: into as many parts as give the device enough blocks. */
parts parts_of(const struct sb_select *args, void *scratch)
{
    const int32_t enough = ENOUGH_BLOCKS / args->m, most = args->limit / LEAST_PART;
    struct parts parts = {(struct found_of_parts *)scratch, enough < most ? enough : most, WARPS};

    if (!scratch || parts.n <= 1)
        parts.n = 0;
    while (parts.n * parts.groups > ENOUGH_BLOCKS)
        parts.groups /= 2;
    return parts;
}

} // namespace

#endif
