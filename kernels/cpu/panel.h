/*
 * How a weight matrix W [n_out, n_in] lies in memory. A panel holds 64 rows of W, which make 64
 * columns of y = x W^T. Within a panel the 64 elements of one step k are together, and the steps
 * follow each other. Rows that are missing from the last panel are zeros.
 *
 *   W          panel 0               panel 1               ..      ceil(n_out / 64) panels
 *   panel p    step 0      step 1    ..                            n_in steps
 *   step k     W[64p][k], W[64p + 1][k], .. W[64p + 63][k]         64 elements
 *
 * That is how F32 and F16 lie, in order. BF16 has two steps in a line of 64 words, the even step in
 * the low half of each word, and lines up to a whole block of 32 steps. What is missing from the
 * last block is zeros.
 *
 *   panel p    line 0      line 1    ..                            ceil(n_in / 32) * 16 lines
 *   line l     word 0      word 1    ..    word 63                 steps 2l and 2l + 1
 *   word c     W[64p + c][2l + 1] << 16 | W[64p + c][2l]
 *
 * This is how x86's matrix unit takes its second operand, 16 lines by 16 words at a time, so one
 * layout serves all processors: a word also gives plain instructions the weights of two steps as
 * floats, the one by a shift and the other by a mask.
 *
 * BF16_DOT is the same with other pairs of steps in a word: 0 and 2, 1 and 3, 4 and 6, and so on,
 * with the earlier one in the high half. It is for vdpbf16ps, which adds the product of the high
 * halves and then that of the low halves to one sum, where even and odd steps have sums of their
 * own.
 *
 * Quantised weights lie as panel_quant.h draws them.
 *
 * A thread reads its panels from end to end in one stream. The 64 columns need four vectors of
 * accumulators for each row of x, so the registers hold several rows, and each weight is read once
 * for all of them. (Row-major W would need sums across a vector, whose order would then be part of
 * the contract, and each of its rows would be a separate stream.)
 */
#ifndef SB_CPU_PANEL_H
#define SB_CPU_PANEL_H

#include <stddef.h>
#include <stdint.h>

#define SB_PANEL 64

enum {
    SB_BLOCK = 32,               /* steps of a block */
    SB_LINE_BYTES = SB_PANEL * 4 /* of BF16: two steps of a panel */
};

/* The layouts of quantised weights (panel_quant.h) are in the order of their types, twice. */
enum sb_layout {
    SB_LAYOUT_F32,
    SB_LAYOUT_F16,
    SB_LAYOUT_BF16,
    SB_LAYOUT_BF16_DOT,
    SB_LAYOUT_Q8_0,
    SB_LAYOUT_Q4_0,
    SB_LAYOUT_Q4_K,
    SB_LAYOUT_Q5_K,
    SB_LAYOUT_Q6_K,
    SB_LAYOUT_MXFP4,
    /* Again, for products of integers. */
    SB_LAYOUT_Q8_0_QUADS,
    SB_LAYOUT_Q4_0_QUADS,
    SB_LAYOUT_Q4_K_QUADS,
    SB_LAYOUT_Q5_K_QUADS,
    SB_LAYOUT_Q6_K_QUADS,
    SB_LAYOUT_MXFP4_QUADS
};

static inline int sb_layout_is_quantised(enum sb_layout layout) { return layout >= SB_LAYOUT_Q8_0; }

/* Whether a layout has lines of two steps and whole blocks. */
static inline int sb_layout_has_blocks(enum sb_layout layout)
{
    return layout == SB_LAYOUT_BF16 || layout == SB_LAYOUT_BF16_DOT;
}

/* Bytes of an element that is not quantised. */
static inline size_t sb_layout_size(enum sb_layout layout)
{
    return layout == SB_LAYOUT_F32 ? 4 : 2;
}

/* n rounded up to whole blocks. */
static inline int64_t sb_whole_blocks(int64_t n)
{
    return (n + SB_BLOCK - 1) / SB_BLOCK * SB_BLOCK;
}

/* Elements of a panel, with the zeros that fill up the last block of BF16. */
static inline int64_t sb_panel_elements(enum sb_layout layout, int64_t n_in)
{
    return (sb_layout_has_blocks(layout) ? sb_whole_blocks(n_in) : n_in) * SB_PANEL;
}

/* Panels of a matrix. */
static inline int64_t sb_panel_count(int64_t n_out) { return (n_out + SB_PANEL - 1) / SB_PANEL; }

/* Where W[out][k] is, counted in elements from the first panel on. */
static inline int64_t sb_panel_index(enum sb_layout layout, int64_t n_in, int64_t out, int64_t k)
{
    int64_t c = out % SB_PANEL, panel = out / SB_PANEL * sb_panel_elements(layout, n_in);

    if (layout == SB_LAYOUT_BF16)
        return panel + k / 2 * 2 * SB_PANEL + c * 2 + k % 2;
    if (layout == SB_LAYOUT_BF16_DOT)
        return panel + (k / 4 * 2 + k % 2) * 2 * SB_PANEL + c * 2 + (k % 4 < 2);
    return panel + k * SB_PANEL + c;
}

#endif
