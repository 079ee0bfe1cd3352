/*
 * The online softmax of attention (attention.c, attend_blocks.c): what a tile of keys does to a
 * query. Its scores become weights, e to the power of what they are above the largest score so far,
 * and what the tiles before have summed is to be multiplied by a factor where that maximum grew.
 *
 *     weigh_tile       for each query, over its keys: the weights, their sum, the new maximum
 *     carry_sums       for sixteen queries at a time: the factors, and the sums of weights
 *
 * (The factor needs an e^x that would cost a query as much as those of sixteen weights.)
 */
#ifndef SB_CPU_SOFTMAX_H
#define SB_CPU_SOFTMAX_H

#include "kernels.h"
#include "math.h"

enum { TILE_GROUPS = SB_CPU_ATTEND_TILE / V16 };

/* What queries carry from tile to tile, and what the present tile adds to it. There is room for
 * whole vectors. */
struct softmax {
    float max[SB_CPU_ATTEND_QUERIES], sum[SB_CPU_ATTEND_QUERIES];
    float tile_max[SB_CPU_ATTEND_QUERIES]; /* the largest score, that of the tile among them */
    float tile_sum[SB_CPU_ATTEND_QUERIES]; /* of the tile's weights */
    float factor[SB_CPU_ATTEND_QUERIES];   /* for what the tiles before have summed */
};
_Static_assert(SB_CPU_ATTEND_QUERIES % V16 == 0, "whole vectors of queries");

/* Before the first tile: the layer's sink of query head `head`, if there is one, counts as a key
 * whose value is zero. */
V_INLINE void softmax_begin(struct softmax *s, int32_t i, const struct sb_attention *a,
                            int64_t head)
{
    s->max[i] = a->sinks ? a->sinks[head] : -INFINITY;
    s->sum[i] = a->sinks ? 1.0f : 0.0f;
}

/* How many positions a query of the layer sees at most, its own among them. */
V_INLINE int64_t reach_of(const struct sb_attention *a)
{
    return a->window > 0 ? a->window : INT32_MAX;
}

/* The keys [from, end) of a tile that a query sees; none where from == end. */
struct seen {
    int64_t from, end;
};

V_INLINE int64_t in_tile(int64_t key)
{
    return key > SB_CPU_ATTEND_TILE ? SB_CPU_ATTEND_TILE : key > 0 ? key : 0;
}

/* Those that a query at position pos sees of the tile whose first key is first_key. */
V_INLINE struct seen seen_of(int64_t pos, int64_t reach, int64_t first_key)
{
    return (struct seen){in_tile(pos + 1 - reach - first_key), in_tile(pos + 1 - first_key)};
}

/* The first key of the first tile that a query at position pos sees any of. */
V_INLINE int64_t first_tile_of(int64_t pos, int64_t reach)
{
    return pos + 1 > reach ? (pos + 1 - reach) / SB_CPU_ATTEND_TILE * SB_CPU_ATTEND_TILE : 0;
}

/* The queries [first, end) that see any of a tile. */
struct seers {
    int32_t first, end;
};

/* Those of n queries at ascending positions, of which some do. */
V_INLINE struct seers seers_of(const int64_t *pos, int32_t n, int64_t reach, int64_t first_key)
{
    struct seers s = {0, n};

    while (seen_of(pos[s.first], reach, first_key).end == 0)
        s.first++;
    while (seen_of(pos[s.end - 1], reach, first_key).from == SB_CPU_ATTEND_TILE)
        s.end--;
    return s;
}

/* How many of the n keys are in group g. */
V_INLINE int64_t keys_of_group(int64_t n, int g)
{
    return n - g * V16 < 0 ? 0 : n - g * V16 > V16 ? V16 : n - g * V16;
}

/* group, with `other` for the keys that are not seen. */
V_INLINE v16 only_seen(v16 group, struct seen keys, int g, v16 other)
{
    return v_first(keys_of_group(keys.from, g), other,
                   v_first(keys_of_group(keys.end, g), group, other));
}

V_INLINE void weigh_some(struct softmax *s, int32_t i, float *score, const struct sb_attention *a,
                         struct seen keys, const int is_whole)
{
    const v16 lowest = v_set1(-INFINITY), zero = v_set1(0.0f);
    v16 group[TILE_GROUPS], top = lowest, total = zero;

    for (int g = 0; g < TILE_GROUPS; g++) {
        group[g] = v_mul(v_load(score + g * V16), v_set1(a->scale));
        if (a->score_cap > 0.0f)
            group[g] = v_soft_cap(group[g], v_set1(a->score_cap));
        if (!is_whole)
            group[g] = only_seen(group[g], keys, g, lowest);
        top = v_max(top, group[g]);
    }
    float max = v_hmax(top);
    max = s->max[i] > max ? s->max[i] : max;
    for (int g = 0; g < TILE_GROUPS; g++) {
        group[g] = v_exp_negative(v_sub(group[g], v_set1(max)));
        if (!is_whole)
            group[g] = only_seen(group[g], keys, g, zero);
        v_store(score + g * V16, group[g]);
        total = v_add(total, group[g]);
    }
    s->tile_max[i] = max;
    s->tile_sum[i] = v_hsum(total);
}

/* Turns query i's products with the keys of the tile that it sees, at least one, into weights. The
 * rest of the tile gets weights of 0. score [SB_CPU_ATTEND_TILE] */
V_INLINE void weigh_tile(struct softmax *s, int32_t i, float *score, const struct sb_attention *a,
                         struct seen keys)
{
    if (keys.from == 0 && keys.end == SB_CPU_ATTEND_TILE)
        weigh_some(s, i, score, a, keys, 1);
    else
        weigh_some(s, i, score, a, keys, 0);
}

/* Brings the maxima and sums of the queries that see the tile, which are weighed, up to date, and
 * sets their factors. */
V_INLINE void carry_sums(struct softmax *s, struct seers who)
{
    for (int32_t i = who.first; i < who.end; i += V16) {
        const int64_t lanes = who.end - i < V16 ? who.end - i : V16;
        const v16 max = v_load_n(s->tile_max + i, lanes);
        const v16 factor = v_exp_negative(v_sub(v_load_n(s->max + i, lanes), max));
        v_store_n(s->factor + i, factor, lanes);
        v_store_n(s->max + i, max, lanes);
        v_store_n(s->sum + i,
                  v_fma(v_load_n(s->sum + i, lanes), factor, v_load_n(s->tile_sum + i, lanes)),
                  lanes);
    }
}

#endif
