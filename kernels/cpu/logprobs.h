/*
 * Log-probabilities of a row: of single ids, and of the n most probable ones.
 *
 *     logprob(id) = -(log(sum) + depth(id))        each operation in float, log by sb_log
 *
 *     of the model     depth = max - logit[id],      sum = sum of e^-depth over all ids
 *     filtered         depth as sample.h has it,     sum = the same over the ids that the filters
 *                      leave; behind them every other id has the probability 0. With temperature 0
 *                      there are no filters, and depth = max - s[id] for what changes.h has made
 *
 * Sums have sixteen lanes over ascending ids, which v_hsum adds in its fixed order. The most
 * probable ids are those with the largest logit or the largest s, of equal ones the lowest id. (By
 * depth those would be equal whose s differ by too little for a depth. Then a row in which nothing
 * is changed would have other alternatives than one that no sampler looks at.)
 * They are kept in order while the row is gone through once. An id gets in only if it is more
 * probable than the last of them, which is soon rare, so most of the row is passed a vector at a
 * time. Sorting would need memory of the vocabulary's size.
 */
#ifndef SB_CPU_LOGPROBS_H
#define SB_CPU_LOGPROBS_H

#include "backend/backend.h"
#include "math.h"
#include "sample.h"
#include "vec_bits.h"

/* What makes a log-probability of the value of an id: a logit, or -depth, of which the largest is
 * 0. */
struct scale {
    float top, log_sum; /* log_sum is NaN if the row has one */
};

/* Where the candidates lack the largest value, rounding may make it a little more than 0. */
static float logprob_of(const struct scale *scale, float value)
{
    const float logprob = -(scale->log_sum + (scale->top - value));

    return logprob > 0.0f ? 0.0f : logprob;
}

/* The n largest values so far. */
struct best {
    int32_t n, room;
    float last; /* what a value must be larger than to get in */
    float value[SB_TOP_MAX];
    int32_t id[SB_TOP_MAX];
};

/* Ids come in ascending order, so one that is equal to others goes behind them. */
static void best_add(struct best *best, float value, int32_t id)
{
    int32_t i = best->n < best->room ? best->n++ : best->room - 1;

    for (; i > 0 && best->value[i - 1] < value; i--) {
        best->value[i] = best->value[i - 1];
        best->id[i] = best->id[i - 1];
    }
    best->value[i] = value;
    best->id[i] = id;
    if (best->n == best->room)
        best->last = best->value[best->room - 1];
}

/* Adds those values of sixteen ids whose bits are set and that are large enough. */
static void best_add_group(struct best *best, const float *values, uint32_t bits, int32_t first)
{
    for (; bits; bits &= bits - 1) {
        const int lane = lowest_bit(bits);
        if (values[lane] > best->last)
            best_add(best, values[lane], first + lane);
    }
}

static struct best best_of(int32_t room) { return (struct best){.room = room, .last = -INFINITY}; }

/* Writes the alternatives of a place. */
static void tell_best(const struct sb_select *args, int32_t at, const struct best *best,
                      const struct scale *scale)
{
    int32_t *ids = args->scores->ids + (int64_t)at * args->scores->stride;
    float *logprobs = args->scores->logprobs + (int64_t)at * args->scores->stride;

    for (int32_t i = 0; i < best->room; i++) {
        ids[i] = i < best->n ? best->id[i] : -1;
        logprobs[i] = i < best->n                        ? logprob_of(scale, best->value[i])
                      : scale->log_sum == scale->log_sum ? -INFINITY
                                                         : NAN;
    }
}

/* The n largest of a row of logits, which has no NaN. */
static void find_best(struct best *best, const float *row, int64_t n)
{
    const v16 lowest = v_set1(-INFINITY);
    float values[V16];

    for (int64_t i = 0; i < n && best->room > 0; i += V16) {
        const int64_t lanes = n - i;
        const v16 x = lanes >= V16 ? v_load(row + i)
                                   : v_first(lanes, v_load_n(row + i, lanes), lowest);
        const uint32_t larger = v_less_bits(v_set1(best->last), x);
        if (!larger)
            continue;
        v_store(values, x);
        best_add_group(best, values, larger, (int32_t)i);
    }
}

/* Finds those with the largest s among what the filters leave, and the log-probability of `id`. */
static float filtered_logprobs(const struct sb_select *args, int32_t at, int32_t n_top,
                               const struct row *row, int32_t id)
{
    const struct search all = {0, 1, 0.0f, FLT_MAX};
    struct best best = best_of(n_top);
    struct scale scale = {0.0f, 0.0f};
    v16 sum = v_set1(0.0f);
    struct group group;

    for (int64_t i = 0; i < row->n; i += V16) {
        uint32_t left = 0;
        look(&group, row, &all, i);
        if (!group.found)
            continue;
        for (int lane = 0; lane < V16; lane++) {
            const int is_left = group.found >> lane & 1 && group.weight[lane] >= row->least_weight;
            left |= (uint32_t)is_left << lane;
            group.weight[lane] = is_left ? group.weight[lane] : 0.0f;
        }
        sum = v_add(sum, v_load(group.weight));
        if (n_top > 0)
            best_add_group(&best, row->s + i, left, (int32_t)i);
    }
    for (int32_t k = 0; k < best.n; k++)
        best.value[k] = -depth_of(row, best.id[k]);
    scale.log_sum = sb_log(v_hsum(sum));
    tell_best(args, at, &best, &scale);
    return logprob_of(&scale, -depth_of(row, id));
}

#endif
