/*
 * The blocks of a panel of quantised weights, one after the other (panel_quant.h draws them): their
 * factors as floats, and their integers as floats in registers or as lines of bf16 in memory.
 */
#ifndef SB_CPU_QUANT_BLOCKS_H
#define SB_CPU_QUANT_BLOCKS_H

#include "fault.h"
#include "panel_quant.h"
#include "vec_quant.h"

/* Where a product is in the blocks of a piece. */
struct quants {
    struct sb_quant_panel panel;
    nibbles table;
    const char *at;                    /* the next block, or the span that it begins */
    const char *head;                  /* of the span */
    int left;                          /* blocks of the span behind this one */
    const char *q;                     /* the integers of this block */
    const char *ahead;                 /* what to prefetch at the next block, */
    int64_t ahead_step;                /* and how many bytes of it */
    _Alignas(64) float scales[2][64];  /* of this block, for each of its groups */
    _Alignas(64) float mins[SB_PANEL]; /* below zero */
};

V_INLINE struct quants quants_begin(const struct sb_quant_panel *panel, const char *at,
                                    const char *ahead, int64_t ahead_step)
{
    struct quants q;

    q.panel = *panel;
    q.table = nibbles_from(panel);
    q.at = at;
    q.left = 0;
    q.ahead = ahead;
    q.ahead_step = ahead_step;
    return q;
}

/* to [64] = factors of a type of 16 bits, times bytes if there are any. */
V_INLINE void load_factors(float *to, enum sb_dtype type, const char *halves, const char *bytes)
{
    for (int j = 0; j < SB_PANEL; j += V16) {
        const uint16_t *at = (const uint16_t *)(const void *)halves + j;
        v16 factor = type == SB_BF16 ? v_load_bf16(at) : v_load_f16(at);
        v_store(to + j, bytes ? v_mul(factor, v_bytes(bytes + j)) : factor);
    }
}

/* Steps to the next block: finds its integers, and computes its factors. */
V_INLINE void quants_next(struct quants *q)
{
    const struct sb_quant_panel *p = &q->panel;
    const char *factors;

    for (int64_t at = 0; at < q->ahead_step; at += 64)
        v_prefetch(q->ahead + at);
    q->ahead += q->ahead_step;
    if (q->left == 0) {
        q->head = q->at;
        q->at += sb_quant_head_bytes(p);
        q->left = p->blocks;
    }
    q->left--;
    factors = q->at;
    for (int g = 0; g < p->groups; g++)
        load_factors(q->scales[g], p->d, q->head, p->has_scales ? factors + g * SB_PANEL : NULL);
    if (p->has_mins) {
        load_factors(q->mins, p->d, q->head + 2 * SB_PANEL, factors + SB_PANEL);
        for (int j = 0; j < SB_PANEL; j += V16)
            v_store(q->mins + j, v_sub(v_set1(-0.0f), v_load(q->mins + j)));
    }
    q->q = factors + sb_quant_factor_bytes(p);
    q->at += sb_quant_block_bytes(p);
}

/* Deliberate faults of products with several rows (fault.h). */
V_INLINE void quants_spoil(struct quants *q)
{
    if (SB_FAULT(SCALE_OF_NEIGHBOUR))
        memmove(q->scales[0], q->scales[0] + 1, (SB_PANEL - 1) * sizeof(float));
    if (SB_FAULT(MINIMUM_DROPPED))
        memset(q->mins, 0, sizeof q->mins);
}
V_INLINE int quants_step(const int rows, const enum sb_kind kind, const int k)
{
    return rows > 1 && kind != SB_KIND_BYTES && SB_FAULT(NIBBLES_EXCHANGED) ? k ^ 1 : k;
}

/* The nibbles, or codes, of word `word` of a block, for group j of its columns. */
V_INLINE const char *quants_words(const struct quants *q, int word, int j)
{
    return q->q + (word * SB_PANEL + j * V16) * 4;
}

/* Step 8 word + k of a block as floats. k is a constant once its loop is unrolled (UNROLL), so that
 * a shift is by a constant. */
V_INLINE v16 quants_load(const struct quants *q, const enum sb_kind kind, int word, const int k,
                         int j)
{
    if (kind == SB_KIND_BYTES)
        return v_bytes(q->q + (8 * word + k) * SB_PANEL + j * V16);
    if (kind == SB_KIND_CODES)
        return v_codes(q->table, quants_words(q, word, j), k);
    return v_nibbles(q->table, quants_words(q, word, j), k);
}

/* Makes a block of the layout BF16, [16] lines, for the matrix unit. */
V_INLINE void quants_to_lines(char *lines, struct quants *q, const enum sb_kind kind)
{
    for (int word = 0; word < SB_BLOCK / 8; word++)
        for (int j = 0; j < SB_PANEL / V16; j++) {
            UNROLL
            for (int i = 0; i < 4; i++)
                v_store_words(lines + (4 * word + i) * SB_LINE_BYTES + j * 64,
                              v_pairs(quants_load(q, kind, word, 2 * i + 1, j),
                                      quants_load(q, kind, word, quants_step(2, kind, 2 * i), j)));
        }
}

#if defined(SB_LEVEL_AVX512)

/* Line i of the four of BF16_DOT that word `word` of 8 steps makes, from bytes. */
V_INLINE __m512i quants_pairs(const struct quants *q, int word, const int i, int j)
{
    const int high = i / 2 * 4 + i % 2;

    return v_pairs(quants_load(q, SB_KIND_BYTES, word, high, j),
                   quants_load(q, SB_KIND_BYTES, word, high + 2, j));
}

#endif

#endif
