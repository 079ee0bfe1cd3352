/*
 * The one selection rule: the id of the largest of logits[i][0..limit), the lowest id where several
 * are the largest, -1 where any is NaN; or what the row's sampler makes of them (changes.cuh,
 * sample.cuh). Where asked for, it also gives the natural-log probability and the margin over the
 * second largest, both of the logits before a sampler changes them. A block takes one row.
 *
 * The largest value and the lowest id that has it do not depend on the order of comparisons, so
 * each of 1024 threads looks at a stride, and they merge what they found (row_block.cuh). The
 * log-probability is -(log(sum e^(x - max)) + (max - logit)).
 *
 * Rounds without samplers have a kernel of their own, which takes 16 KiB of shared memory. The
 * other one takes 48 KiB and a little.
 */
#include "kernels/cuda/changes.cuh"
#include "kernels/cuda/sample.cuh"

/* What a row's block has found out. */
struct selected {
    struct top top;
    int32_t id;
    float logit; /* of the id */
    float sum;   /* of e^(x - max) in thread 0, if the log-probability is wanted */
};

/* The largest logit of the row. */
static __device__ struct selected select_greedily(const struct sb_select &args, const float *row,
                                                  struct top *tops, float *powers)
{
    struct selected out;

    out.top = row_top(row, args.limit, INFINITY, tops);
    out.id = out.top.has_nan ? (int32_t)SB_PICK_NAN : out.top.id;
    out.logit = out.top.first;
    out.sum = args.logprob && !out.top.has_nan ? exp_sum(row, args.limit, out.top.first, powers)
                                               : NAN;
    return out;
}

/* For thread 0. */
static __device__ void write(const struct sb_select &args, const struct selected &row)
{
    const int32_t out = args.at[blockIdx.x];
    const struct top *top = &row.top;

    args.ids[out] = row.id;
    if (args.logprob)
        args.logprob[out] = row.id < 0 ? NAN : -(sb_log(row.sum) + (top->first - row.logit));
    if (args.margin)
        args.margin[out] = args.limit == 1 ? INFINITY
                           : top->has_nan  ? NAN
                                           : top->first - top->second + 0.0f; /* -0 becomes 0 */
}

static __global__ void __launch_bounds__(THREADS, 1) select_ids(struct sb_select args)
{
    SB_SHARED(struct top, tops, WARPS);
    SB_SHARED(float, powers, PIECE);
    const float *row = args.logits + blockIdx.x * (int64_t)args.stride;
    const struct selected selected = select_greedily(args, row, tops, powers);

    if (threadIdx.x == 0)
        write(args, selected);
}

/* Shared memory of a block that samples. */
struct sample_memory {
    struct changes changes;
    union {
        float powers[PIECE];
        int32_t counts[SB_CHANGED_MAX];
        struct digit_sums sums;
    };
    struct top tops[WARPS];
    wide parts[WARPS], found[2];
};

/* What the sampler chooses. */
static __device__ void pick(struct selected *out, const struct sampling &at, float *row,
                            int32_t limit, struct sample_memory *memory)
{
    const struct filter_memory filters = {&memory->sums, memory->parts, memory->tops,
                                          memory->found};

    change_row(&memory->changes, memory->counts, at, row, limit);
    const struct top top = row_top(row, limit, FLT_MAX, memory->tops);
    out->id = SB_PICK_NONE;
    if (top.first > -INFINITY)
        out->id = at.rule->temperature > 0.0f
                      ? sample(row, limit, top.first, at.rule, at.position, filters)
                      : top.id;
    if (out->id >= 0)
        out->logit = logit_before(&memory->changes, row, out->id);
}

static __global__ void __launch_bounds__(THREADS, 1)
    sample_ids(struct sb_select args, struct sb_samplers samplers)
{
    SB_DYNAMIC_SHARED(struct sample_memory, memory);
    float *row = args.logits + blockIdx.x * (int64_t)args.stride;
    const struct sampling at = sampling_of(samplers, (int32_t)blockIdx.x);
    struct selected selected = select_greedily(args, row, memory->tops, memory->powers);

    if (selected.id >= 0 && !at.rule->is_greedy)
        pick(&selected, at, row, args.limit, memory);
    if (threadIdx.x == 0)
        write(args, selected);
}

extern "C" cudaError_t sb_cuda_select(const struct sb_select *args, cudaStream_t stream)
{
    const dim3 grid((unsigned)args->m);

    if (args->m == 0)
        return cudaSuccess;
    if (args->samplers)
        return SB_LAUNCH(sample_ids, grid, dim3(THREADS), sizeof(struct sample_memory), stream,
                         *args, *args->samplers);
    return SB_LAUNCH(select_ids, grid, dim3(THREADS), 0, stream, *args);
}

cudaError_t sb_load_select(enum sb_dtype)
{
    const cudaError_t error = sb_load(select_ids);

    return error == cudaSuccess ? sb_load(sample_ids, (int)sizeof(struct sample_memory)) : error;
}
