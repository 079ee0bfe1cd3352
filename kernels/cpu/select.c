/*
 * The one rule of selection: the largest logit, ties to the lowest id, or what the row's sampler
 * makes of them (changes.h, sample.h). What is wanted beside the choice is logprobs.h's.
 *
 * A first pass over a row keeps the largest and second largest value in each of sixteen lanes. A
 * maximum does not depend on the order of comparison, so the id is the same for every vector width.
 * A second pass, which ends early, finds the first id with that value. The log-probability is
 * x - max - log(sum of e^(x - max)), with the sum kept in sixteen lanes over ascending ids, which
 * v_hsum adds in its fixed order. It is of the logits as they are, so the sum and the margin are
 * taken before a sampler changes the row.
 */
#include "changes.h"
#include "level.h"
#include "logprobs.h"
#include "math.h"
#include "sample.h"

struct top {
    float first;  /* the largest */
    float second; /* the largest of the rest; -infinity when there is no rest */
    int has_nan;
};

/* row [n], n >= 1. A NaN may be lost from first and second, but has_nan tells of it. */
static struct top top_two(const float *row, int64_t n)
{
    const v16 lowest = v_set1(-INFINITY);
    v16 first = lowest, second = lowest;
    int has_nan = 0;

    for (int64_t i = 0; i < n; i += V16) {
        int64_t lanes = n - i < V16 ? n - i : V16;
        v16 x = lanes == V16 ? v_load(row + i) : v_first(lanes, v_load_n(row + i, lanes), lowest);
        has_nan |= v_any_nan(x);
        second = v_max(second, v_min(first, x));
        first = v_max(first, x);
    }

    float a[V16], b[V16];
    struct top top = {-INFINITY, -INFINITY, has_nan};
    v_store(a, first);
    v_store(b, second);
    for (int i = 0; i < V16; i++) {
        /* the smaller one of the two candidates for first place */
        float lower = a[i] > top.first ? top.first : a[i];
        top.first = a[i] > top.first ? a[i] : top.first;
        lower = lower > b[i] ? lower : b[i];
        top.second = lower > top.second ? lower : top.second;
    }
    return top;
}

/* The first index of a value that the row has. */
static int32_t find(const float *row, float value)
{
    int32_t i = 0;
    while (row[i] != value)
        i++;
    return i;
}

/* The sum of e^(x - max) over the x of row [n]. */
static float exp_sum(const float *row, int64_t n, float max)
{
    const v16 top = v_set1(max), zero = v_set1(0.0f);
    v16 sum = zero;
    int64_t i;

    for (i = 0; i + V16 <= n; i += V16)
        sum = v_add(sum, v_exp_negative(v_sub(v_load(row + i), top)));
    if (i < n)
        sum = v_add(sum,
                    v_first(n - i, v_exp_negative(v_sub(v_load_n(row + i, n - i), top)), zero));
    return v_hsum(sum);
}

/* The largest of row [n]. */
static float largest(const float *row, int64_t n)
{
    v16 top = v_set1(-INFINITY);
    int64_t i;

    for (i = 0; i + V16 <= n; i += V16)
        top = v_max(top, v_load(row + i));
    if (i < n)
        top = v_max(top, v_first(n - i, v_load_n(row + i, n - i), top));
    return v_hmax(top);
}

/* The first index of a value of the row that is at least FLT_MAX, if top is, or else is top. */
static int32_t find_top(const float *row, int32_t n, float top)
{
    int32_t i = 0;

    while (SB_FAULT(TIES_TO_HIGHEST) && --n > 0)
        if (row[n] == top)
            return n;
    if (top < FLT_MAX)
        return find(row, top);
    while (row[i] < FLT_MAX)
        i++;
    return i;
}

/* The token that a sampler chooses, or SB_PICK_NONE. top: the largest logit of the row, which has
 * no NaN. *logit becomes what the logit of the token was before the sampler changed the row.
 * *filtered becomes what filters leave of the row, if there is anything. */
static int32_t pick(float *logit, struct row *filtered, const struct sampling *at, float *row,
                    int32_t limit, float top)
{
    struct changes changes;
    int32_t id;

    if (change_row(&changes, at, row, limit))
        top = largest(row, limit);
    if (!(top > -INFINITY))
        return SB_PICK_NONE;
    *filtered = filtered_row(row, limit, top, at->row);
    id = at->row->temperature > 0.0f ? sample(filtered, at->row, at->position)
                                     : find_top(row, limit, top);
    if (id >= 0)
        *logit = logit_before(&changes, row, id);
    return id;
}

/* What sampler decides row i of the logits, and where in its row of the round that is. */
static struct sampling sampling_of(const struct sb_samplers *all, int64_t i)
{
    const int32_t token = all->out[i], place = all->id_at[token], b = place / all->row_stride;

    return (struct sampling){.all = all,
                             .row = &all->rows[b],
                             .b = b,
                             .j = place % all->row_stride,
                             .position = all->pos[token] + 1};
}

/* Selects by a sampler that is not greedy. Log-probabilities of filtered rows are told here, as
 * they are of what the sampler has made of the row. *logit: as in pick. Returns the token. */
static int32_t select_sampled(const struct sb_select *args, int64_t i, float *row, float top,
                              float *logit, const struct sb_want *want)
{
    const struct sampling sampling = sampling_of(args->samplers, i);
    const struct scale none = {0.0f, NAN};
    const struct best empty = best_of(want->n_top);
    const int32_t at = args->at[i];
    struct row filtered;
    const int32_t id = pick(logit, &filtered, &sampling, row, args->limit, top);
    float logprob = NAN;

    if (!want->is_filtered)
        return id;
    if (id >= 0)
        logprob = filtered_logprobs(args, at, want->n_top, &filtered, id);
    else
        tell_best(args, at, &empty, &none);
    if (args->logprob)
        args->logprob[at] = logprob;
    return id;
}

/* Whether the row's sampler is not greedy at its position. */
static int is_sampled(const struct sb_select *args, int64_t i)
{
    struct sampling at;

    if (!args->samplers)
        return 0;
    at = sampling_of(args->samplers, i);
    return at.position < at.row->greedy_from;
}

static void select_row(const struct sb_select *args, int64_t i)
{
    static const struct sb_want nothing = {.given = -1};
    const int32_t at = args->at[i];
    const struct sb_want *want = args->scores ? &args->scores->wants[at] : &nothing;
    float *row = args->logits + i * (int64_t)args->stride, logit;
    const struct top top = top_two(row, args->limit);
    const int by_sampler = !top.has_nan && want->given < 0 && is_sampled(args, i),
              is_raw = !(by_sampler && want->is_filtered);
    struct scale scale = {top.first, NAN};
    struct best best = best_of(want->n_top);
    int32_t id;

    if (is_raw && !top.has_nan && (args->logprob || want->n_top > 0))
        scale.log_sum = sb_log(exp_sum(row, args->limit, top.first));
    if (is_raw && want->n_top > 0) {
        if (!top.has_nan)
            find_best(&best, row, args->limit);
        tell_best(args, at, &best, &scale);
    }
    if (want->given >= 0) {
        if (args->logprob)
            args->logprob[at] = logprob_of(&scale, row[want->given]);
        return;
    }
    logit = top.first;
    if (by_sampler)
        id = select_sampled(args, i, row, top.first, &logit, want);
    else
        id = top.has_nan ? SB_PICK_NAN : find(row, top.first);
    args->ids[at] = id;
    if (args->logprob && is_raw)
        args->logprob[at] = id < 0 ? NAN : logprob_of(&scale, logit);
    if (args->margin)
        args->margin[at] = args->limit == 1 ? INFINITY : top.first - top.second;
}

void SB_LEVEL(select)(const struct sb_select *args, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++)
        select_row(args, i);
}
