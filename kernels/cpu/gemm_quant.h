/*
 * The inner loops of gemm over quantised weights. gemm.c includes this file behind gemm_bf16.h.
 *
 * For each group of steps the sum of a block is formed as in the order of blocks, with the integers
 * as the weights, and then
 *
 *     sum = fma(scale, block, sum)            and, of types with minima,
 *     sum = fma(-min, sum of x's block, sum)
 *
 * The integers become floats, or pairs of bf16 for vdpbf16ps, in registers, and multiply all rows
 * of a group of rows there. So few columns are done at a time that the two chains of every sum fit
 * the registers beside them: 64 columns for one row, and 16 or 32 for six. To make bf16 or floats
 * in memory, a block at a time, took from a quarter more time, with 12 rows, to twice as much with
 * 4 (Zen 4), probably because loads waited for the stores. More rows make up for it, and do so in
 * gemm_quant_lines.h.
 */
#include "quant_blocks.h"

/* The most rows whose chains fit the registers. */
#if defined(SB_LEVEL_AVX512)
#define QUANT_ROWS 6
#else
#define QUANT_ROWS 3
#endif

/* The two chains of a group of steps. */
struct quant_chains {
    v16 even[QUANT_ROWS][GROUPS], odd[QUANT_ROWS][GROUPS];
};

/* sum + scale * (even + odd). Products of the half that is missing, +0 and +0, turn -0 into +0. */
INLINE v16 add_scaled_chains(v16 sum, v16 scale, v16 even, v16 odd, const int is_half)
{
    const v16 zero = v_set1(0.0f);

    if (is_half) {
        even = v_add(even, zero);
        odd = v_add(odd, zero);
    }
    return v_fma(scale, v_add(even, odd), sum);
}

/* Adds the sum of a group of steps, times its factors. x_sums: of the rows of x in this block,
 * ldsums floats apart. */
INLINE void add_scaled(v16 sum[][GROUPS], const int rows, int g, const int groups,
                       const struct quant_chains *c, const struct quants *q, int half,
                       const float *x_sums, int64_t ldsums)
{
    const int is_half = q->panel.groups == 2;

    for (int j = 0; j < groups; j++) {
        const v16 scale = v_load(q->scales[half] + (g + j) * V16);
        UNROLL
        for (int r = 0; r < rows; r++)
            sum[r][g + j] = add_scaled_chains(sum[r][g + j], scale, c->even[r][j], c->odd[r][j],
                                              is_half);
        if (q->panel.has_mins)
            for (int r = 0; r < rows; r++)
                sum[r][g + j] = v_fma(v_load(q->mins + (g + j) * V16), v_set1(x_sums[r * ldsums]),
                                      sum[r][g + j]);
    }
}

/* The chains of `words` words of 8 steps, from word `first` of a block on. x: the
 * block's rows */
INLINE void chains_by_fma(struct quant_chains *c, const int rows, int g, const int groups,
                          const enum sb_kind kind, const struct quants *q, int first, int words,
                          const float *x)
{
    for (int word = first; word < first + words; word++) {
        UNROLL
        for (int k = 0; k < 8; k++) {
            const int from = quants_step(rows, kind, k);
            v16 w[GROUPS];
            for (int j = 0; j < groups; j++)
                w[j] = quants_load(q, kind, word, from, g + j);
            UNROLL
            for (int r = 0; r < rows; r++) {
                v16 value = v_set1(x[r * SB_BLOCK + 8 * word + k]);
                for (int j = 0; j < groups; j++) {
                    v16 *chain = k % 2 ? &c->odd[r][j] : &c->even[r][j];
                    *chain = v_fma(value, w[j], *chain);
                }
            }
        }
    }
}

#define QUANT(name) name##_fma
#if defined(SB_LEVEL_AVX512)
#define QUANT_GROUPS(rows) ((rows) <= 2 ? 4 : 1)
#else
#define QUANT_GROUPS(rows) 1
#endif
#define QUANT_TARGET
#include "gemm_quant_rows.h"

#if defined(SB_LEVEL_AVX512)

/* The same by vdpbf16ps: a line of the layout BF16_DOT has two steps of one chain. */
INLINE TARGET_DOT void chains_by_dot(struct quant_chains *c, const int rows, int g,
                                     const int groups, const enum sb_kind kind,
                                     const struct quants *q, int first, int words, const float *x)
{
    for (int word = first; word < first + words; word++) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            const int from = quants_step(rows, kind, i);
            __m512i w[GROUPS];
            for (int j = 0; j < groups; j++)
                w[j] = kind == SB_KIND_BYTES
                           ? quants_pairs(q, word, i, g + j)
                           : v_nibble_pairs(q->table, quants_words(q, word, g + j), from);
            UNROLL
            for (int r = 0; r < rows; r++) {
                __m512i value = _mm512_castps_si512(v_set1(x[r * SB_BLOCK / 2 + 4 * word + i]));
                for (int j = 0; j < groups; j++) {
                    v16 *chain = i % 2 ? &c->odd[r][j] : &c->even[r][j];
                    *chain = dot(*chain, w[j], value);
                }
            }
        }
    }
}

#define QUANT(name) name##_dot
#define QUANT_GROUPS(rows) ((rows) <= 3 ? 4 : 2)
#define QUANT_TARGET TARGET_DOT
#include "gemm_quant_rows.h"

#endif
