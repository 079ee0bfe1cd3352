/*
 * How quantised weights lie in panels of 64 columns (panel.h). A panel is a sequence of spans, and
 * each span begins with the factors of its columns, of 16 bits each: f16, or bf16 (sb_quant.d). A
 * span has one block of 32 steps where groups have no factors of their own, else the eight blocks
 * of 256 steps.
 *
 *   span      d [64]    dmin [64]    block  block  ..               dmin: types with minima
 *   block     scales [groups][64] bytes    mins [64] bytes    q     scales, mins: as the type has
 * them
 *
 *   scale of a group = d * scales, or d          min = dmin * mins          (quant.h)
 *
 * The integers q of a block are bytes, nibbles or codes.
 *
 *   bytes     [32 steps][64 columns], or of the layouts QUADS [8 quads][64 columns][4 steps]
 *   nibbles   words [4][64 columns]; word v of a column has the steps 8 v .. 8 v + 7:
 *
 *               bits     28   24   20   16   12    8    4    0
 *               step      5    4    1    0    7    6    3    2
 *
 *   codes     the same, but each stands for an integer by a table
 *
 * Nibbles lie so because a shift of the word by 0, 4, 8 or 12 bits then has two steps at the bottom
 * of its halves that belong to one chain, the earlier one in the upper half: what vdpbf16ps wants,
 * once a table look-up has made bf16 of them. For floats any order serves.
 *
 * A quad is four steps that an instruction for integers multiplies and adds at once. Quads have the
 * steps of the lower and of the upper nibbles of words, so that nibbles lie the same in every
 * layout, and inputs lie the same for nibbles and for bytes:
 *
 *   quad 2 v      steps 8 v + 2, 6, 0, 4           quad 2 v + 1      steps 8 v + 3, 7, 1, 5
 *
 * A nibble is q + `zero`, since it has no sign. A code is the index of q in sb_quant_codes: a sign,
 * and three bits of size. As it is no number, it cannot be multiplied as it lies, as a nibble can
 * in products of integers. Zeros are all code 0. Q5_K and Q6_K lie as bytes. Their upper bits in a
 * plane of their own would save a third and a quarter of the memory, and take more instructions; it
 * was not tried.
 */
#ifndef SB_CPU_PANEL_QUANT_H
#define SB_CPU_PANEL_QUANT_H

#include "panel.h"
#include "quant.h"

/* The kinds in which the integers of a block lie. */
enum sb_kind { SB_KIND_BYTES, SB_KIND_NIBBLES, SB_KIND_CODES };

/* What panels of a layout are. */
struct sb_quant_panel {
    enum sb_dtype dtype;
    enum sb_kind kind;
    int zero;                 /* of nibbles: what stands for 0 */
    enum sb_dtype d;          /* as struct sb_quant has it */
    int blocks;               /* of a span */
    int groups;               /* of a block */
    int has_quads;            /* of bytes: how they lie */
    int has_scales, has_mins; /* as struct sb_quant has them */
};

static inline struct sb_quant_panel sb_quant_panel(enum sb_layout layout)
{
    const int n_types = SB_LAYOUT_Q8_0_QUADS - SB_LAYOUT_Q8_0;
    const enum sb_dtype dtype = (enum sb_dtype)((layout - SB_LAYOUT_Q8_0) % n_types + SB_Q8_0);
    const struct sb_quant *quant = sb_quant_of(dtype);
    const struct sb_quant_panel panel = {
        .dtype = dtype,
        .kind = dtype == SB_MXFP4                      ? SB_KIND_CODES
                : dtype == SB_Q4_0 || dtype == SB_Q4_K ? SB_KIND_NIBBLES
                                                       : SB_KIND_BYTES,
        .zero = dtype == SB_Q4_0 ? 8 : 0,
        .d = quant->d,
        .blocks = quant->block / SB_BLOCK,
        .groups = SB_BLOCK / quant->group,
        .has_quads = layout >= SB_LAYOUT_Q8_0_QUADS,
        .has_scales = quant->has_scales,
        .has_mins = quant->has_mins,
    };
    return panel;
}

static inline int64_t sb_quant_head_bytes(const struct sb_quant_panel *p)
{
    return SB_PANEL * 2 * (1 + p->has_mins);
}

/* Bytes of a block before its integers, and all of them. */
static inline int64_t sb_quant_factor_bytes(const struct sb_quant_panel *p)
{
    return SB_PANEL * (p->has_scales * p->groups + p->has_mins);
}

static inline int64_t sb_quant_block_bytes(const struct sb_quant_panel *p)
{
    return sb_quant_factor_bytes(p) + SB_PANEL * SB_BLOCK / (p->kind == SB_KIND_BYTES ? 1 : 2);
}

static inline int64_t sb_quant_span_bytes(const struct sb_quant_panel *p)
{
    return sb_quant_head_bytes(p) + p->blocks * sb_quant_block_bytes(p);
}

/* Bytes of the spans that so many steps need. */
static inline int64_t sb_quant_bytes(const struct sb_quant_panel *p, int64_t steps)
{
    const int64_t span = (int64_t)p->blocks * SB_BLOCK;
    return (steps + span - 1) / span * sb_quant_span_bytes(p);
}

/* Bytes of a panel for so many steps, which are all of them or whole pieces: multiples of 256. */
static inline int64_t sb_panel_bytes(enum sb_layout layout, int64_t steps)
{
    if (sb_layout_is_quantised(layout)) {
        const struct sb_quant_panel panel = sb_quant_panel(layout);
        return sb_quant_bytes(&panel, steps);
    }
    return sb_panel_elements(layout, steps) * (int64_t)sb_layout_size(layout);
}

/* Where step k of a block is among the steps of one column that lie in quads. */
static inline int64_t sb_quad_index(int64_t k)
{
    return (k / 8 * 2 + k % 2) * 4 + (k % 4 < 2) * 2 + k % 8 / 4;
}

/* Where the byte of step k of a block is, for column c of a panel. */
static inline int64_t sb_byte_index(const struct sb_quant_panel *p, int64_t c, int64_t k)
{
    const int64_t at = sb_quad_index(k);

    return p->has_quads ? (at / 4 * SB_PANEL + c) * 4 + at % 4 : k * SB_PANEL + c;
}

/* How far a word of nibbles is shifted to bring step k % 8 to the bottom. */
static inline int sb_nibble_shift(int64_t k)
{
    return (int)(k % 8 / 4 * 8 + k % 2 * 4 + (k % 4 < 2) * 16);
}

#endif
