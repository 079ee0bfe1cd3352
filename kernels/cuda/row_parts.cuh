/*
 * What several blocks find out about a row of logits before its own block chooses (select.cu). One
 * multiprocessor reads a row at a small part of the memory's speed, so rows are cut into parts
 * where they are few:
 *
 *     find_tops         the top of each part, and the largest logit of each of its groups, which
 *                       are the ids that one warp or several have looked at
 *     find_candidates   for a row that samples and whose logits nothing changes: the choice of each
 *                       part, if there are no filters; a list of candidates for top_k up to the
 *                       number of groups, or for top_p; for typical_p alone nothing
 *
 * A choice is the largest of values that each id has for itself, so the row's choice is the best of
 * its parts'.
 *
 * Candidates are the ids up to some depth (sample.cuh), which filters order ids by. Unequal logits
 * may have the same depth, as it is rounded. For top_k it is the depth of the k-th largest of the
 * groups' largest logits. There are k candidates at least, one in each of k groups, so what top_k
 * leaves is among them.
 *
 * For top_p = p it is d = log(n / (1 - p)), for a row of n ids. The others weigh less than e^-d
 * each, so less than 1 - p together, of a mass that is at least the 1 of the id at depth 0. So the
 * candidates have more than a share of p of the mass of all, which the parts add up, too. d is
 * larger than that by 0.1, which is far more than roundings are.
 *
 * Where there is no room for all candidates, the row's block does without them. Neither they nor a
 * choice depend on how the row is cut, so the bits are those of one block.
 *
 * Rejected: the digits of a filter (sample.cuh) by several blocks, which would have to wait for
 * each other at every digit.
 */
#ifndef SB_CUDA_ROW_PARTS_CUH
#define SB_CUDA_ROW_PARTS_CUH

#include "kernels/cuda/changes.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/sample.cuh"

namespace
{

enum {
    ENOUGH_BLOCKS = 264,    /* two for each of an H100's multiprocessors; and groups of a row */
    LEAST_PART = 4096,      /* ids that are worth a block */
    CANDIDATES = LISTED_MAX /* of a row, at most */
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
    wide masses[ENOUGH_BLOCKS];                             /* [m, n] */
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
    if (r->top_p < 1.0f)
        return ROW_CANDIDATES;
    return r->typical_p < 1.0f ? ROW_ALONE : ROW_CHOICES;
}

/* scores: those without wants are none. */
__device__ struct sb_want want_of(const struct sb_scores &scores, int32_t place)
{
    const struct sb_want nothing = {-1, 0, 0};

    return scores.wants ? scores.wants[place] : nothing;
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

/* Lists ids [first, end) of a row up to a depth, and returns their mass, by all threads. A thread
 * loads several at once. sums: [WARPS] */
__device__ wide list_candidates(struct candidates *to, const struct row &row, int32_t first,
                                int32_t end, float deepest, wide *sums)
{
    enum { AT_ONCE = 4 };
    wide mass = 0, total;

    for (int64_t i = first; i < end; i += AT_ONCE * THREADS) {
        const int64_t mine = i + (int32_t)threadIdx.x;
        float s[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            s[k] = mine + k * THREADS < end ? row.s[mine + k * THREADS] : -INFINITY;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const float depth = depth_of(row, s[k]);
            const bool is_one = SB_CUDA_FAULT(CANDIDATE_LEFT_OUT) ? depth < deepest
                                                                  : depth <= deepest;
            mass += mass_at(depth);
            list_candidate(to, is_one && depth <= FLT_MAX, (int32_t)mine + k * THREADS, s[k]);
        }
    }
    running_sum(mass, &total, sums);
    return total;
}

/* How deep the candidates of row i are, by all threads. largest: shared [ENOUGH_BLOCKS + 1] */
__device__ float deepest_candidate(const struct row &row, const struct sb_sampler *r,
                                   const struct parts &parts, int32_t i, float *largest)
{
    const int32_t n = parts.n * parts.groups;

    if (r->top_k == 0)
        return sb_log((float)row.n / (1.0f - r->top_p)) + 0.1f;
    return depth_of(row, kth_largest(parts.found->largest + (int64_t)i * n, n, r->top_k, largest));
}

/* Grid: parts, rows. Blocks of rows that are not sampled, or that are changed, end at once. */
__global__ void __launch_bounds__(THREADS, 1)
    find_candidates(struct sb_select args, struct sb_samplers samplers, struct sb_scores scores,
                    struct parts parts)
{
    SB_SHARED(struct top, tops, WARPS);
    SB_SHARED(float, largest, ENOUGH_BLOCKS + 1);
    SB_SHARED(wide, sums, WARPS);
    const int32_t i = (int32_t)blockIdx.y, part = (int32_t)blockIdx.x;
    const float *row = args.logits + i * (int64_t)args.stride;
    struct found_of_parts *found = parts.found;
    const int64_t number = (int64_t)i * parts.n + part;

    grid_launch_next();
    grid_wait_for_previous();
    if (want_of(scores, args.at[i]).given >= 0)
        return;
    const struct sampling at = sampling_of(samplers, i);
    if (is_greedy(at) || is_changed(at))
        return;
    const struct top top = top_of_parts(parts, i, tops);
    const enum part_way way = top.has_nan ? ROW_ALONE : way_of(at.rule, false, top, parts);
    const struct row left = unfiltered_row(row, args.limit, top.first, at.rule);
    if (way == ROW_CANDIDATES) {
        const int32_t each = (args.limit + parts.n - 1) / parts.n;
        const wide mass = list_candidates(
            &found->candidates[i], left, part * each, min((part + 1) * each, args.limit),
            deepest_candidate(left, at.rule, parts, i, largest), sums);
        if (threadIdx.x == 0)
            found->masses[number] = mass;
    }
    if (way == ROW_CHOICES) {
        const int32_t n = (args.limit + 3) / 4, in_part = (n + parts.n - 1) / parts.n;
        const struct top best = block_top(best_choice(left, part * in_part,
                                                      min((part + 1) * in_part, n), at.rule->seed,
                                                      at.position),
                                          tops);
        if (threadIdx.x == 0)
            found->choices[number] = best;
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

/* Copies the candidates of row i to the filters' list, if there are any, and notes the mass of all
 * ids, where that is what top_p has a share of. Returns how many are in the list; -1: it is none.
 */
__device__ int32_t take_candidates(const struct filter_memory &memory, const struct parts &parts,
                                   int32_t i, enum part_way way, bool has_top_k)
{
    const int32_t t = (int32_t)threadIdx.x;
    int32_t n = -1;
    wide mass = 0, total = 0;

    if (way == ROW_CANDIDATES) {
        const struct candidates &from = parts.found->candidates[i];
        n = from.n <= CANDIDATES ? from.n : -1;
        for (int32_t at = t; at < n; at += THREADS)
            memory.list->of[at] = from.of[at];
        if (!has_top_k && t >= SB_CUDA_FAULT(MASS_LEFT_OUT) && t < parts.n)
            mass = parts.found->masses[(int64_t)i * parts.n + t];
        running_sum(mass, &total, memory.parts);
    }
    if (t == 0)
        *memory.total = total;
    __syncthreads();
    return n;
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
