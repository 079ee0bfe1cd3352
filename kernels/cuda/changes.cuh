/*
 * Steps 2 to 5 of sampling (struct sb_sampler): mask, bans, bias and penalties are written into the
 * row of logits, as kernels/cpu/changes.h does it, by one block.
 *
 * The ids that bias or penalties change are few, and are listed in shared memory. The list keeps
 * their logits, which the log-probability of the chosen id needs. It is made in four steps, with a
 * barrier after each:
 *
 *     claim    Every entry of the bias and every token that counts exchanges the id's logit for a
 *              NaN. Of those with the same id, one gets the logit and lists it.
 *     mark     The row gets at each listed id a NaN that holds the id's place in the list.
 *     count    Every token that counts finds its id's place in the row and is added there.
 *     write    Each place gets its bias and penalties, and goes into the row.
 *
 * Which place an id gets is chance, and no result depends on it. The biases of an id are added in
 * the order of the entries, so its thread looks through all of them.
 */
#ifndef SB_CUDA_CHANGES_CUH
#define SB_CUDA_CHANGES_CUH

#include "kernels/cuda/row_block.cuh"

namespace
{

/* A row's sampler at one position. */
struct sampling {
    const struct sb_sampler *rule;
    const uint32_t *mask; /* NULL: it has none */
    const int32_t *bans, *bias;
    const int32_t *listed, *proposals; /* tokens: from first_listed on, and from n_tokens on */
    int32_t first_listed;
    int32_t first, end; /* tokens [first, end) are those that penalties count */
    int32_t position;
};

struct change {
    int32_t id;
    float logit; /* as it was */
};

struct changes {
    struct change list[SB_CHANGED_MAX];
    int32_t n;
    float logit; /* of the chosen id */
};

#define SB_PLACE_0 0xffc00000u /* the bits of the NaN for place 0 */

/* Which sampler decides row i of the logits, and where in its row of the round that is. */
__device__ struct sampling sampling_of(const struct sb_samplers &all, int32_t i)
{
    const int32_t token = all.out[i], place = all.id_at[token];
    const int32_t b = place / all.row_stride, j = place % all.row_stride;
    const struct sb_sampler *r = &all.rows[b];
    struct sampling at;

    at.rule = r;
    at.mask = r->mask_at < 0 ? NULL : all.masks + r->mask_at + (int64_t)j * all.mask_words;
    at.bans = all.lists + r->bans_at;
    at.bias = all.lists + r->bias_at;
    at.listed = all.lists + r->listed_at;
    at.proposals = all.tokens + (int64_t)b * all.row_stride + 1;
    at.first_listed = r->n_tokens - r->n_listed;
    at.end = r->n_tokens + j;
    at.first = r->n_listed > 0 ? max(at.end - r->window, at.first_listed) : at.end;
    at.position = all.pos[token] + 1;
    return at;
}

/* The token of place p of [first, end), or -1 if repetition spares it. */
__device__ __forceinline__ int32_t counted(const struct sampling &at, int32_t p)
{
    const struct sb_sampler *r = at.rule;

    if (p < r->n_prompt && r->spares_prompt)
        return -1;
    return p < r->n_tokens ? at.listed[p - at.first_listed] : at.proposals[p - r->n_tokens];
}

__device__ void forbid(const struct sampling &at, float *row, int32_t limit)
{
    for (int32_t id = threadIdx.x; at.mask && id < limit; id += THREADS)
        if (!(at.mask[id / 32] >> id % 32 & 1))
            row[id] = -INFINITY;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < at.rule->n_bans && at.position < at.rule->ban_before;
         i += THREADS)
        if (at.bans[i] >= 0 && at.bans[i] < limit)
            atomicExch(&row[at.bans[i]], -INFINITY);
}

/* Lists an id of the row that is not listed yet. What there is no room for stays as it is. */
__device__ void claim(struct changes *changes, float *row, int32_t limit, int32_t id)
{
    if (id < 0 || id >= limit)
        return;
    const float was = atomicExch(&row[id], __uint_as_float(SB_PLACE_0));
    if (__float_as_uint(was) == SB_PLACE_0)
        return;
    const int32_t place = atomicAdd(&changes->n, 1);
    if (place < SB_CHANGED_MAX) {
        changes->list[place].id = id;
        changes->list[place].logit = was;
    } else {
        atomicExch(&row[id], was);
    }
}

/* Lists the ids, and gives their number. counts: [SB_CHANGED_MAX], how often each is generated; -1:
 * penalties do not count it */
__device__ int32_t list_ids(struct changes *changes, int32_t *counts, const struct sampling &at,
                            float *row, int32_t limit)
{
    if (threadIdx.x == 0)
        changes->n = 0;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < at.rule->n_bias; i += THREADS)
        claim(changes, row, limit, at.bias[i]);
    for (int32_t p = at.first + (int32_t)threadIdx.x; p < at.end; p += THREADS)
        claim(changes, row, limit, counted(at, p));
    __syncthreads();
    const int32_t n = min(changes->n, (int32_t)SB_CHANGED_MAX);
    for (int32_t i = threadIdx.x; i < n; i += THREADS) {
        row[changes->list[i].id] = __uint_as_float(SB_PLACE_0 + (uint32_t)i);
        counts[i] = -1;
    }
    __syncthreads();
    for (int32_t p = at.first + (int32_t)threadIdx.x; p < at.end; p += THREADS) {
        const int32_t id = counted(at, p);
        if (id < 0 || id >= limit)
            continue;
        const uint32_t place = __float_as_uint(row[id]) - SB_PLACE_0;
        if (place < (uint32_t)n) {
            atomicMax(&counts[place], 0);
            atomicAdd(&counts[place], (int32_t)(p >= at.rule->n_prompt));
        }
    }
    __syncthreads();
    return n;
}

/* The logit of an id, which counts n, after bias and penalties: -infinity where they add up to a
 * NaN. */
__device__ float changed(const struct sampling &at, struct change change, int32_t n)
{
    const struct sb_sampler *r = at.rule;
    float s = change.logit;

    for (int32_t i = 0; i < r->n_bias; i++)
        if (at.bias[i] == change.id)
            s += __int_as_float(at.bias[r->n_bias + i]);
    if (n >= 0)
        s = s > 0.0f ? s / r->repetition : s * r->repetition;
    if (n > 0)
        s -= (float)n * r->frequency + r->presence;
    return s == s ? s : -INFINITY;
}

/* Whether nothing of the row's sampler is in force. */
__device__ bool is_greedy(const struct sampling &at)
{
    return at.position >= at.rule->greedy_from;
}

/* Whether anything may change logits of the row. */
__device__ bool is_changed(const struct sampling &at)
{
    return at.mask || (at.rule->n_bans > 0 && at.position < at.rule->ban_before) ||
           at.rule->n_bias > 0 || at.first < at.end;
}

/* Changes the row, which has no NaN, where anything asks for it. counts: [SB_CHANGED_MAX] */
__device__ void change_row(struct changes *changes, int32_t *counts, const struct sampling &at,
                           float *row, int32_t limit)
{
    int32_t n;

    __syncthreads(); /* the row as it was has been read */
    forbid(at, row, limit);
    __syncthreads();
    n = list_ids(changes, counts, at, row, limit);
    for (int32_t i = threadIdx.x; i < n; i += THREADS)
        row[changes->list[i].id] = changed(at, changes->list[i], counts[i]);
    __syncthreads();
}

/* The logit that an id of the row had. */
__device__ float logit_before(struct changes *changes, const float *row, int32_t id)
{
    const int32_t n = min(changes->n, (int32_t)SB_CHANGED_MAX);

    if (threadIdx.x == 0)
        changes->logit = row[id];
    __syncthreads();
    for (int32_t i = threadIdx.x; i < n; i += THREADS)
        if (changes->list[i].id == id)
            changes->logit = changes->list[i].logit;
    __syncthreads();
    return changes->logit;
}

} // namespace

#endif
