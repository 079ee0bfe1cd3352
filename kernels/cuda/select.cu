/*
 * The one selection rule: the id of the largest of logits[i][0..limit), the lowest id where several
 * are the largest, -1 where any is NaN; or what the row's sampler makes of them (changes.cuh,
 * sample.cuh). Where asked for, it also gives the margin over the second largest and the
 * natural-log probability, and what is wanted beside the choice (logprobs.cuh). All but filtered
 * log-probabilities are of the logits before a sampler changes them. A block takes one row.
 *
 * The largest value and the lowest id that has it do not depend on the order of comparisons, so
 * each of 1024 threads looks at a stride, and they merge what they found (row_block.cuh). For the
 * same reason several blocks may look at a row, which is worth a kernel of its own where rows are
 * few: one multiprocessor alone reads at a small part of the memory's speed.
 *
 *     find_tops, find_candidates  [m, parts] blocks: what they find of each part of each row
 *                                 (row_parts.cuh); the second where there are samplers
 *     select_ids, sample_ids      [m] blocks: the row's top out of those of its parts, and all else
 *
 * Rounds without samplers have a kernel of their own, which takes 32 KiB of shared memory. The
 * other one takes 81 KiB.
 */
#include "kernels/cuda/logprobs.cuh"
#include "kernels/cuda/row_parts.cuh"

/* For thread 0. It is done before a token is chosen, so that the top takes no registers then. */
static __device__ void write_margin(const struct sb_select &args, const struct sb_want &want,
                                    const struct top &top)
{
    const float margin = top.has_nan ? NAN : top.first - top.second + 0.0f; /* -0 becomes 0 */

    if (args.margin && want.given < 0)
        args.margin[args.at[blockIdx.x]] = args.limit == 1 ? INFINITY : margin;
}

/* For thread 0. */
static __device__ void write(const struct sb_select &args, const struct sb_want &want, int32_t id,
                             float logprob)
{
    const int32_t out = args.at[blockIdx.x];

    if (args.logprob)
        args.logprob[out] = logprob;
    if (want.given < 0)
        args.ids[out] = id;
}

/* What is told by the logits as they are, if anything is wanted of it. */
static __device__ struct scale raw_scale(const struct sb_select &args,
                                         const struct sb_scores &scores, const struct sb_want &want,
                                         const float *row, struct top top, struct top *tops,
                                         float *powers)
{
    const struct scale none = {top.first, NAN};

    if (!args.logprob && want.n_top == 0)
        return none;
    return raw_logprobs(scores, args.at[blockIdx.x], want.n_top, row, args.limit, top, tops,
                        powers);
}

/* The top of this block's row, by its parts where they have been looked at. */
static __device__ struct top top_of_row(const float *row, int32_t limit, const struct parts &parts,
                                        struct top *tops)
{
    if (parts.n == 0)
        return row_top(row, 0, limit, INFINITY, tops);
    return top_of_parts(parts, (int32_t)blockIdx.x, tops);
}

static __global__ void __launch_bounds__(THREADS, 1)
    select_ids(struct sb_select args, struct sb_scores scores, struct parts parts)
{
    SB_SHARED(struct top, tops, WARPS);
    SB_SHARED(float, powers, 2 * PIECE);
    const float *row = args.logits + blockIdx.x * (int64_t)args.stride;

    grid_launch_next();
    grid_wait_for_previous();
    const struct sb_want want = want_of(scores, args.at[blockIdx.x]);
    const struct top top = top_of_row(row, args.limit, parts, tops);
    const struct scale scale = raw_scale(args, scores, want, row, top, tops, powers);

    if (threadIdx.x == 0)
        write_margin(args, want, top);
    if (threadIdx.x == 0)
        write(args, want, top.has_nan ? (int32_t)SB_PICK_NAN : top.id,
              logprob_of(scale, want.given < 0 ? top.first : row[want.given]));
}

/* Shared memory of a block that samples. */
struct sample_memory {
    struct changes changes;
    union {
        float powers[2 * PIECE];
        int32_t counts[SB_CHANGED_MAX];
        struct {
            struct digit_sums sums;
            struct id_list list;
        } filters;
    };
    struct top tops[WARPS];
    wide parts[WARPS], found[2], total;
    struct scale scale; /* by the logits as they are; thread 0's */
};

/* Whether the row's sampler is not greedy at its position. A row with a given id may have none. */
static __device__ bool is_sampled(const struct sb_samplers &samplers)
{
    return !is_greedy(sampling_of(samplers, (int32_t)blockIdx.x));
}

/* Selects by a sampler that is not greedy. *logprob becomes that of the token, by memory->scale, or
 * by what the filters leave. Alternatives of filtered rows are written here. Returns the token.
 * What is wanted is read where it is used, as registers are few. before: the row's top as it comes,
 * which is looked for again only if the row may have changed or has an infinity. */
static __device__ int32_t select_sampled(float *logprob, const struct sb_select &args,
                                         const struct sb_samplers &samplers,
                                         const struct sb_scores &scores, float *row,
                                         const struct top &before, const struct parts &parts,
                                         struct sample_memory *memory)
{
    const int32_t i = (int32_t)blockIdx.x;
    const struct sampling at = sampling_of(samplers, i);
    const struct filter_memory filters = {&memory->filters.sums, &memory->filters.list,
                                          memory->parts,         memory->tops,
                                          memory->found,         &memory->total};
    const struct scale none = {0.0f, NAN};
    const bool changes = is_changed(at);
    int32_t id = SB_PICK_NONE;

    *logprob = NAN;
    change_row(&memory->changes, memory->counts, at, row, args.limit);
    const struct top top = changes || before.first == INFINITY
                               ? row_top(row, 0, args.limit, FLT_MAX, memory->tops)
                               : before;
    if (top.first > -INFINITY) {
        const enum part_way way = way_of(at.rule, changes, top, parts);
        struct row left = unfiltered_row(row, args.limit, top.first, at.rule);
        if (way == ROW_CHOICES) {
            id = choice_of_parts(parts, i, memory->tops);
        } else {
            const int32_t n = take_candidates(filters, parts, i, way, at.rule->top_k > 0);
            filter_row(&left, at.rule, n, filters);
            id = at.rule->temperature > 0.0f
                     ? choose(left, at.rule->seed, at.position, memory->tops)
                     : top.id;
        }
        const struct sb_want want = want_of(scores, args.at[i]);
        if (id >= 0 && want.is_filtered) {
            *logprob = filtered_logprobs(scores, args.at[i], want.n_top, left, id, memory->tops,
                                         memory->powers);
            return id;
        }
    }
    if (id >= 0) {
        *logprob = logprob_of(memory->scale, logit_before(&memory->changes, row, id));
    } else {
        const struct sb_want want = want_of(scores, args.at[i]);
        tell_best(
            scores, args.at[i], want.is_filtered ? want.n_top : 0, 0, false, none,
            [&](int32_t) { return -INFINITY; }, logit_itself(), memory->tops);
    }
    return id;
}

static __global__ void __launch_bounds__(THREADS, 1)
    sample_ids(struct sb_select args, struct sb_samplers samplers, struct sb_scores scores,
               struct parts parts)
{
    SB_DYNAMIC_SHARED(struct sample_memory, memory);
    float *row = args.logits + blockIdx.x * (int64_t)args.stride;

    grid_launch_next();
    grid_wait_for_previous();
    const struct sb_want want = want_of(scores, args.at[blockIdx.x]);
    const struct top top = top_of_row(row, args.limit, parts, memory->tops);
    const bool by_sampler = !top.has_nan && want.given < 0 && is_sampled(samplers);
    struct scale scale = {top.first, NAN};
    int32_t id = top.has_nan ? (int32_t)SB_PICK_NAN : top.id;
    float logprob;

    if (threadIdx.x == 0)
        write_margin(args, want, top);
    if (!(by_sampler && want.is_filtered))
        scale = raw_scale(args, scores, want, row, top, memory->tops, memory->powers);
    if (threadIdx.x == 0)
        memory->scale = scale;
    if (by_sampler)
        id = select_sampled(&logprob, args, samplers, scores, row, top, parts, memory);
    else
        logprob = logprob_of(scale, want.given < 0 ? top.first : row[want.given]);
    if (threadIdx.x == 0)
        write(args, want_of(scores, args.at[blockIdx.x]), id, logprob);
}

size_t sb_cuda_select_scratch(void)
{
    return sizeof(struct found_of_parts);
}

extern "C" cudaError_t sb_cuda_select(const struct sb_select *args, void *scratch,
                                      cudaStream_t stream)
{
    const dim3 grid((unsigned)args->m);
    const struct sb_scores none = {NULL, 0, NULL, NULL};
    const struct sb_scores scores = args->scores ? *args->scores : none;
    cudaError_t error = cudaSuccess;

    if (args->m == 0)
        return cudaSuccess;
    const struct parts parts = parts_of(args, scratch);
    const dim3 cut((unsigned)parts.n, (unsigned)args->m);
    if (parts.n > 0)
        error = SB_LAUNCH_WITH(SB_DEPENDENT, find_tops, cut, dim3(THREADS), 0, stream, *args,
                               parts);
    if (error == cudaSuccess && parts.n > 0 && args->samplers)
        error = SB_LAUNCH_WITH(SB_DEPENDENT, find_candidates, cut, dim3(THREADS), 0, stream, *args,
                               *args->samplers, scores, parts);
    if (error != cudaSuccess)
        return error;
    if (args->samplers)
        return SB_LAUNCH_WITH(SB_DEPENDENT, sample_ids, grid, dim3(THREADS),
                              sizeof(struct sample_memory), stream, *args, *args->samplers, scores,
                              parts);
    return SB_LAUNCH_WITH(SB_DEPENDENT, select_ids, grid, dim3(THREADS), 0, stream, *args, scores,
                          parts);
}

cudaError_t sb_load_select(enum sb_dtype)
{
    cudaError_t error = sb_load(find_tops);

    if (error == cudaSuccess)
        error = sb_load(find_candidates);
    if (error == cudaSuccess)
        error = sb_load(select_ids);
    return error == cudaSuccess ? sb_load(sample_ids, (int)sizeof(struct sample_memory)) : error;
}
