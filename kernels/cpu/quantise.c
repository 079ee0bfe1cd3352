/*
 * Makes blocks of Q8_0 and Q4_0 (quant.h says by which rule), sixteen blocks at a time.
 *
 *     x [16 blocks][32 elements]          one block is two vectors
 *     d, scale, inverse, error [16]       one for each block, and one vector of them all
 *
 * What has to be summed over a block is left in one vector of partial sums for each, and sixteen of
 * those are summed together. So divisions and roundings to f16 are done for sixteen blocks at once,
 * and no sum ends in a chain of instructions that wait for each other. Block by block, as it was
 * before, they took most of the time.
 *
 * Every step is one operation that all levels round alike, and v_sum16 has one order on all of
 * them, so every level makes the same bytes (test/model/test_quant.c).
 */
#include "level.h"
#include "quant.h"

enum { GROUP = 16 };

/* The integers that a type can hold, and as which of them the extreme element of a block is tried.
 * Where there is one integer more below zero than above, the extreme goes below. */
struct range {
    float least, most;
    int n_places;
    float places[3];
};

/* Blocks that are made together, and where they go. */
struct group {
    float x[GROUP][SB_BLOCK];
    uint8_t *to[GROUP];
    int n;
};

/* A scale for each block: as f16, as float, and 1 / scale, or 0 where the scale is 0. */
struct scales {
    uint16_t d[GROUP];
    float scale[GROUP], inverse[GROUP];
};

static v16 inverse_of(v16 value)
{
    float of[GROUP], inverse[GROUP];

    v_store(of, value);
    v_store(inverse, v_div(v_set1(1.0f), value));
    for (int i = 0; i < GROUP; i++)
        inverse[i] = of[i] != 0.0f ? inverse[i] : 0.0f;
    return v_load(inverse);
}

/* Scales are rounded to f16 before they are tried. */
static void set_scales(struct scales *s, v16 wanted)
{
    v_store_f16(s->d, wanted);
    v_store(s->scale, v_load_f16(s->d));
    v_store(s->inverse, inverse_of(v_load(s->scale)));
}

/* The integers, as floats, that come nearest to x / scale, ties to even. What is far beyond the
 * range is cut before it is rounded, so a sum with 1.5 * 2^23 rounds to whole numbers. A NaN gives
 * some integer of the range. */
V_INLINE v16 integers_of(v16 x, v16 inverse, const struct range *range)
{
    const v16 rounder = v_set1(0x1.8p23f);
    v16 value = v_min(v_mul(x, inverse), v_set1(range->most));

    value = v_max(value, v_set1(range->least));
    return v_sub(v_add(value, rounder), rounder);
}

/* The squares of what is lost with this scale. */
V_INLINE v16 squares_lost(v16 x, v16 scale, v16 inverse, const struct range *range)
{
    const v16 lost = v_sub(x, v_mul(scale, integers_of(x, inverse, range)));

    return v_mul(lost, lost);
}

/* The sum of squares of what each block loses. */
static v16 errors_of(const struct group *g, const struct scales *s, const struct range *range)
{
    v16 squares[GROUP];

    for (int b = 0; b < GROUP; b++) {
        const v16 scale = v_set1(s->scale[b]), inverse = v_set1(s->inverse[b]);
        squares[b] = v_add(squares_lost(v_load(g->x[b]), scale, inverse, range),
                           squares_lost(v_load(g->x[b] + V16), scale, inverse, range));
    }
    return v_sum16(squares);
}

/* The scales with which the integers for these would come nearest to x: sum(x q) / sum(q q). */
static v16 better_scales(const struct group *g, const struct scales *s, const struct range *range)
{
    v16 xq[GROUP], qq[GROUP];

    for (int b = 0; b < GROUP; b++) {
        const v16 low = v_load(g->x[b]), high = v_load(g->x[b] + V16);
        const v16 inverse = v_set1(s->inverse[b]);
        const v16 low_q = integers_of(low, inverse, range);
        const v16 high_q = integers_of(high, inverse, range);
        xq[b] = v_add(v_mul(low, low_q), v_mul(high, high_q));
        qq[b] = v_add(v_mul(low_q, low_q), v_mul(high_q, high_q));
    }
    return v_mul(v_sum16(xq), inverse_of(v_sum16(qq)));
}

/* The element farthest from zero, without the last bit of its fraction. */
static float extreme_of(const float x[SB_BLOCK])
{
    int32_t key[SB_BLOCK], most = 0;

    memcpy(key, x, sizeof key);
    for (int i = 0; i < SB_BLOCK; i++) {
        const int32_t size = (key[i] & 0x7ffffffe) | (int32_t)((uint32_t)key[i] >> 31);
        most = size > most ? size : most;
    }
    return bits_f32((uint32_t)(most & 0x7ffffffe) | (uint32_t)most << 31);
}

/* Takes the scales that were tried for the blocks that lose less by them. */
static void keep_better(struct scales *best, float least[GROUP], const struct scales *tried,
                        v16 errors)
{
    float error[GROUP];

    v_store(error, errors);
    for (int b = 0; b < GROUP; b++) {
        const int is_better = error[b] < least[b];
        best->d[b] = is_better ? tried->d[b] : best->d[b];
        best->scale[b] = is_better ? tried->scale[b] : best->scale[b];
        best->inverse[b] = is_better ? tried->inverse[b] : best->inverse[b];
        least[b] = is_better ? error[b] : least[b];
    }
}

/* Of the scales that are tried for a block, the one that loses least is improved once, if what
 * suits its integers best loses less. */
static void search_scales(struct scales *best, const struct group *g, const struct range *range)
{
    float extreme[GROUP], least[GROUP];
    struct scales tried;

    for (int b = 0; b < GROUP; b++)
        extreme[b] = extreme_of(g->x[b]);
    if (range->n_places == 1)
        for (int b = 0; b < GROUP; b++)
            extreme[b] = fabsf(extreme[b]);
    set_scales(best, v_div(v_load(extreme), v_set1(range->places[0])));
    if (range->n_places == 1)
        return;
    v_store(least, errors_of(g, best, range));
    for (int i = 1; i <= range->n_places; i++) {
        set_scales(&tried, i < range->n_places ? v_div(v_load(extreme), v_set1(range->places[i]))
                                               : better_scales(g, best, range));
        keep_better(best, least, &tried, errors_of(g, &tried, range));
    }
}

static void write_block(uint8_t *to, const float *x, uint16_t d, float inverse,
                        const struct range *range)
{
    float q[SB_BLOCK];
    uint8_t bytes[SB_BLOCK];

    v_store(q, integers_of(v_load(x), v_set1(inverse), range));
    v_store(q + V16, integers_of(v_load(x + V16), v_set1(inverse), range));
    memcpy(to, &d, sizeof d);
    if (range->most > 7.0f) {
        for (int i = 0; i < SB_BLOCK; i++)
            bytes[i] = (uint8_t)(int32_t)q[i];
        memcpy(to + 2, bytes, SB_BLOCK);
        return;
    }
    for (int i = 0; i < SB_BLOCK / 2; i++)
        bytes[i] = (uint8_t)(((int32_t)q[i] + 8) | ((int32_t)q[i + 16] + 8) << 4);
    memcpy(to + 2, bytes, SB_BLOCK / 2);
}

/* Makes the blocks of a group. Those that it has too few are made with them, of whatever floats
 * there are, and not written. */
static void make_group(struct group *g, const struct range *range)
{
    struct scales s;

    search_scales(&s, g, range);
    for (int b = 0; b < g->n; b++)
        write_block(g->to[b], g->x[b], s.d[b], s.inverse[b], range);
    g->n = 0;
}

/* The n <= 32 elements of a block as floats, with zeros behind them. */
static void widen_block(float *to, const char *from, enum sb_dtype type, size_t n)
{
    uint16_t half[SB_BLOCK] = {0};

    if (type == SB_F32) {
        memset(to, 0, SB_BLOCK * sizeof *to);
        memcpy(to, from, n * sizeof *to);
        return;
    }
    memcpy(half, from, n * sizeof *half);
    if (type == SB_BF16)
        for (int i = 0; i < SB_BLOCK; i += V16)
            v_store(to + i, v_load_bf16(half + i));
    else
        for (int i = 0; i < SB_BLOCK; i++)
            to[i] = f16_f32(half[i]);
}

/* rows [n_rows, n] of `type`, which is not quantised, become rows of dtype: Q8_0 or Q4_0. */
void SB_LEVEL(quantise)(void *to, enum sb_dtype dtype, const void *rows, enum sb_dtype type,
                        size_t n_rows, size_t n)
{
    static const struct range ranges[SB_DTYPES] = {
        [SB_Q8_0] = {-127.0f, 127.0f, 1, {127.0f}},
        [SB_Q4_0] = {-8.0f, 7.0f, 3, {-8.0f, -8.8f, -7.2f}},
    };
    const size_t size = type == SB_F32 ? 4 : 2, bytes = (size_t)sb_quant_of(dtype)->bytes;
    const char *from = rows;
    uint8_t *at = to;
    struct group g = {.n = 0};

    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0, count; k < n; k += count, from += count * size, at += bytes) {
            count = n - k < SB_BLOCK ? n - k : SB_BLOCK;
            widen_block(g.x[g.n], from, type, count);
            g.to[g.n++] = at;
            if (g.n == GROUP)
                make_group(&g, &ranges[dtype]);
        }
    if (g.n > 0)
        make_group(&g, &ranges[dtype]);
}
