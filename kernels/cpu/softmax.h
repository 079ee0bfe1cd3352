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

V_INLINE void softmax_begin(struct softmax *s, int32_t i)
{
    s->max[i] = -INFINITY;
    s->sum[i] = 0.0f;
}

/* How many of the n keys are in group g. */
V_INLINE int64_t keys_of_group(int64_t n, int g)
{
    return n - g * V16 < 0 ? 0 : n - g * V16 > V16 ? V16 : n - g * V16;
}

V_INLINE void weigh_some(struct softmax *s, int32_t i, float *score, float scale, int64_t n,
                         const int is_whole)
{
    const v16 lowest = v_set1(-INFINITY), zero = v_set1(0.0f);
    v16 group[TILE_GROUPS], top = lowest, total = zero;

    for (int g = 0; g < TILE_GROUPS; g++) {
        group[g] = v_mul(v_load(score + g * V16), v_set1(scale));
        if (!is_whole)
            group[g] = v_first(keys_of_group(n, g), group[g], lowest);
        top = v_max(top, group[g]);
    }
    float max = v_hmax(top);
    max = s->max[i] > max ? s->max[i] : max;
    for (int g = 0; g < TILE_GROUPS; g++) {
        group[g] = v_exp_negative(v_sub(group[g], v_set1(max)));
        if (!is_whole)
            group[g] = v_first(keys_of_group(n, g), group[g], zero);
        v_store(score + g * V16, group[g]);
        total = v_add(total, group[g]);
    }
    s->tile_max[i] = max;
    s->tile_sum[i] = v_hsum(total);
}

/* Turns query i's products with the tile's first n >= 1 keys into weights. The rest of the tile
 * gets weights of 0. score [SB_CPU_ATTEND_TILE] */
V_INLINE void weigh_tile(struct softmax *s, int32_t i, float *score, float scale, int64_t n)
{
    if (n == SB_CPU_ATTEND_TILE)
        weigh_some(s, i, score, scale, n, 1);
    else
        weigh_some(s, i, score, scale, n, 0);
}

/* Brings the maxima and sums of the queries [first, n), whose tiles are weighed, up to date, and
 * sets their factors. */
V_INLINE void carry_sums(struct softmax *s, int32_t first, int32_t n)
{
    for (int32_t i = first; i < n; i += V16) {
        const int64_t lanes = n - i < V16 ? n - i : V16;
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
