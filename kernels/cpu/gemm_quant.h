/*
 * Products of few rows with quantised weights. gemm_bf16.h includes this file.
 *
 * For each group of steps the sum of a block is formed as in the order of blocks, with the integers
 * as the weights, and then
 *
 *     sum = fma(scale, block, sum)            and, of types with minima,
 *     sum = fma(-min, sum of x's block, sum)
 *
 * Up to SB_CPU_FEW_ROWS rows are multiplied by floats that are made of the integers in registers:
 * to write them to memory first would take as long as all the rest. For more rows a block becomes
 * lines of bf16, in which integers are exact, and these are multiplied as weights in bf16 are
 * (gemm_blocks.h), by whatever instructions. The bits are the same.
 */
#include "quant_blocks.h"

/* Adds a group of steps, the block or one half of it, for PART_GROUPS groups of columns. first: the
 * group's first step; b: x from there on, and the factors */
INLINE void add_group(v16 sum[][GROUPS], const int rows, int g, const int bits, const int first,
                      const struct quants *q, const struct block *b, const enum scaling scaling)
{
    struct chains c;

    chains_clear(&c, rows);
    for (int word = 0; word < pairs_of(scaling) / 4; word++) {
        UNROLL
        for (int k = 0; k < 8; k++) {
            v16 w[GROUPS];
            for (int j = 0; j < PART_GROUPS; j++)
                w[j] = quants_load(q, bits, first / 8 + word, k, g + j);
            for (int r = 0; r < rows; r++) {
                v16 x = v_set1(b->x[r * b->ldx + 8 * word + k]);
                for (int j = 0; j < PART_GROUPS; j++) {
                    v16 *chain = k % 2 ? &c.odd[r][j] : &c.even[r][j];
                    *chain = v_fma(x, w[j], *chain);
                }
            }
        }
    }
    chains_add(sum, rows, g, &c, b, scaling);
}

/* Adds a block. */
INLINE void add_quants(v16 sum[][GROUPS], const int rows, const int bits, const struct quants *q,
                       struct block b)
{
    const int is_whole = q->panel.groups == 1;
    struct block second = b;

    b.scales = q->scales[0];
    b.mins = q->panel.has_mins ? q->mins : NULL;
    second.scales = q->scales[1];
    second.x += SB_BLOCK / 2;
    for (int g = 0; g < GROUPS; g += PART_GROUPS)
        if (is_whole || bits == 4) {
            add_group(sum, rows, g, bits, 0, q, &b, SCALED);
        } else {
            add_group(sum, rows, g, bits, 0, q, &b, SCALED_HALF);
            add_group(sum, rows, g, bits, SB_BLOCK / 2, q, &second, SCALED_HALF);
        }
}

INLINE void few_rows(const struct piece *p, const int rows, const int bits)
{
    struct quants q = quants_begin(p->quants, p->w, p->ahead, p->ahead_step);
    struct block b = {.x = p->x, .ldx = p->ldx, .sums = p->sums, .ldsums = p->ldsums};
    v16 sum[PART_ROWS][GROUPS];

    for (int r = 0; r < rows; r++)
        for (int j = 0; j < GROUPS; j++)
            sum[r][j] = p->is_first ? v_set1(0.0f) : load_y(p, r, j);
    for (int64_t left = p->steps; left > 0; left -= SB_BLOCK) {
        quants_next(&q);
        add_quants(sum, rows, bits, &q, b);
        b.x += SB_BLOCK;
        b.sums = p->sums ? b.sums + 1 : NULL;
    }
    store_sums(p, sum, rows, GROUPS, 0);
}

static void few_bytes_1(const struct piece *p) { few_rows(p, 1, 8); }
static void few_bytes_2(const struct piece *p) { few_rows(p, 2, 8); }
static void few_bytes_3(const struct piece *p) { few_rows(p, 3, 8); }
static void few_nibbles_1(const struct piece *p) { few_rows(p, 1, 4); }
static void few_nibbles_2(const struct piece *p) { few_rows(p, 2, 4); }
static void few_nibbles_3(const struct piece *p) { few_rows(p, 3, 4); }

static tile_fn *const few_bytes[SB_CPU_FEW_ROWS] = {few_bytes_1, few_bytes_2, few_bytes_3};
static tile_fn *const few_nibbles[SB_CPU_FEW_ROWS] = {few_nibbles_1, few_nibbles_2, few_nibbles_3};
