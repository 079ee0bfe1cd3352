/*
 * The loops of gemm_tiles.c, which says how the product is cut and why. They are compiled once over
 * the real matrix unit and once over the emulated one (tiles.h); a test compiles them over a unit
 * with a fault. Whoever includes this file has defined
 *
 *     TILES(name)     name with the prefix of the unit's operations; the functions get it too
 *     TILES_TARGET    attributes that the functions need, or nothing
 *
 * A step takes one block of 32 steps k of two row tiles by two groups of columns, or of one row
 * tile by four groups. Either is four products.
 */
#ifndef SB_CPU_GEMM_TILES_H
#define SB_CPU_GEMM_TILES_H

#include "kernels.h"
#include "quant_blocks.h"
#include "tiles.h"

enum {
    TILE_GROUPS = SB_PANEL / 16,
    BLOCK_BYTES = SB_BLOCK / 2 * SB_LINE_BYTES, /* of a panel: four tiles of W */
    TILE_PIECE = 8,                             /* blocks */
    TILE_NEAR = 2,          /* blocks between W in use and W being fetched, for a single row tile */
    TILE_QUANT_NEAR = 4096, /* bytes between quantised weights in use and those being fetched */
    TILES_TOGETHER = 12,    /* row tiles, at most, that pass over W together */
    TILES_L2_BYTES = 3 << 19 /* of the second-level cache, for their x */
};

/* The sums of one row tile for one panel: [group of columns][row][column] */
typedef float tile_sums[TILE_GROUPS][16][16];

/* One pass of row tiles over a piece of a panel. */
struct tile_piece {
    const char *w;    /* the piece's first line */
    const char *x;    /* the first row tile's first block of the piece */
    int64_t x_stride; /* bytes from one row tile to the next */
    int64_t blocks;
    tile_sums *sums;   /* [tiles]: those of the pieces before, and where the new ones go */
    int tiles;         /* 1..TILES_TOGETHER */
    int32_t columns;   /* the panel's columns that y has */
    int is_first;      /* whether the piece begins the sums */
    const char *ahead; /* what to prefetch at the piece's first block, or NULL */
};

/* Adds the sums of one block of quantised weights, for 16 columns, to those of the blocks before:
 * times their scales, and less their minima times the sums of x (gemm_quant.h).
 *
 * x_sums: those of the rows in this block, ldsums floats apart */
static inline void add_scaled(float (*sums)[16], float (*block)[16], int64_t rows,
                              const float *scales, const float *mins, const float *x_sums,
                              int64_t ldsums)
{
    const v16 scale = v_load(scales);

    for (int64_t r = 0; r < rows; r++) {
        v16 sum = v_fma(scale, v_load(block[r]), v_load(sums[r]));
        if (mins)
            sum = v_fma(v_load(mins), v_set1(x_sums[r * ldsums]), sum);
        v_store(sums[r], sum);
    }
}

/* Puts the sums of rows [row, row + n) into y: adds the parts of each row, and bias. */
static inline void finish_rows(const struct sb_cpu_gemm *a, tile_sums *sums, int64_t row, int64_t n,
                               int64_t column)
{
    const int64_t tile_rows = sb_cpu_tile_rows(a->m);

    for (int64_t r = 0; r < n; r++) {
        tile_sums *of_row = sums + r / tile_rows * a->parts;
        for (int group = 0; group < TILE_GROUPS && column + group * V16 < a->n_out; group++) {
            const int64_t at = column + group * V16, lanes = a->n_out - at;
            float *y = a->y + (row + r) * a->ldy + at;
            v16 value = v_load(of_row[0][group][r % tile_rows]);
            if (a->parts == SB_CPU_PARTS)
                value = v_add(value, v_add(v_load(of_row[1][group][r % tile_rows]),
                                           v_load(of_row[2][group][r % tile_rows])));
            if (a->bias)
                value = v_add(value,
                              lanes >= V16 ? v_load(a->bias + at) : v_load_n(a->bias + at, lanes));
            if (lanes >= V16)
                v_store(y, value);
            else
                v_store_n(y, value, lanes);
        }
    }
}

#endif

#define TILES_INLINE static inline __attribute__((always_inline)) TILES_TARGET

/* Prefetches a share of what is ahead. Every block has as many steps as there are row tiles. */
TILES_INLINE void TILES(fetch_ahead)(const struct tile_piece *p, int64_t block, int step)
{
    const int lines = (BLOCK_BYTES / 64 + p->tiles - 1) / p->tiles;
    const int64_t at = block * BLOCK_BYTES + step * lines * 64;

    if (p->ahead)
        for (int line = 0; line < lines; line++)
            v_prefetch(p->ahead + at + line * 64);
}

/* Puts four tiles of sums into the registers 0 to 3: zeros where a piece begins the sums. */
TILES_INLINE void TILES(take_sums)(struct TILES(unit) * unit, int is_first, float (*s0)[16],
                                   float (*s1)[16], float (*s2)[16], float (*s3)[16])
{
    if (is_first) {
        TILES(zero)(unit, 0);
        TILES(zero)(unit, 1);
        TILES(zero)(unit, 2);
        TILES(zero)(unit, 3);
    } else {
        TILES(load)(unit, 0, s0, TILE_LINE);
        TILES(load)(unit, 1, s1, TILE_LINE);
        TILES(load)(unit, 2, s2, TILE_LINE);
        TILES(load)(unit, 3, s3, TILE_LINE);
    }
}

TILES_INLINE void TILES(put_sums)(struct TILES(unit) * unit, float (*s0)[16], float (*s1)[16],
                                  float (*s2)[16], float (*s3)[16])
{
    TILES(store)(unit, 0, s0, TILE_LINE);
    TILES(store)(unit, 1, s1, TILE_LINE);
    TILES(store)(unit, 2, s2, TILE_LINE);
    TILES(store)(unit, 3, s3, TILE_LINE);
}

/* The row tiles t and t + 1 by the groups of columns g and g + 1. */
TILES_INLINE void TILES(two_by_two)(struct TILES(unit) * unit, const struct tile_piece *p, int t,
                                    int g)
{
    const char *x0 = p->x + t * p->x_stride, *x1 = x0 + p->x_stride, *w = p->w + g * TILE_LINE;
    tile_sums *s = p->sums + t;
    const int step = g / 2 * (p->tiles / 2) + t / 2;

    TILES(take_sums)(unit, p->is_first, s[0][g], s[0][g + 1], s[1][g], s[1][g + 1]);
    for (int64_t block = 0; block < p->blocks; block++) {
        TILES(fetch_ahead)(p, block, step);
        TILES(load)(unit, 4, x0, TILE_LINE);
        TILES(load)(unit, 6, w, SB_LINE_BYTES);
        TILES(product)(unit, 0, 4, 6);
        TILES(load)(unit, 7, w + TILE_LINE, SB_LINE_BYTES);
        TILES(product)(unit, 1, 4, 7);
        TILES(load)(unit, 5, x1, TILE_LINE);
        TILES(product)(unit, 2, 5, 6);
        TILES(product)(unit, 3, 5, 7);
        x0 += TILE_BYTES;
        x1 += TILE_BYTES;
        w += BLOCK_BYTES;
    }
    TILES(put_sums)(unit, s[0][g], s[0][g + 1], s[1][g], s[1][g + 1]);
}

/* One block of a row tile by all groups of columns, added to the registers 0 to 3. */
TILES_INLINE void TILES(four_products)(struct TILES(unit) * unit, const char *x, const char *w)
{
    TILES(load)(unit, 4, x, TILE_LINE);
    TILES(load)(unit, 6, w, SB_LINE_BYTES);
    TILES(product)(unit, 0, 4, 6);
    TILES(load)(unit, 7, w + TILE_LINE, SB_LINE_BYTES);
    TILES(product)(unit, 1, 4, 7);
    TILES(load)(unit, 6, w + 2 * TILE_LINE, SB_LINE_BYTES);
    TILES(product)(unit, 2, 4, 6);
    TILES(load)(unit, 7, w + 3 * TILE_LINE, SB_LINE_BYTES);
    TILES(product)(unit, 3, 4, 7);
}

/* The row tile t by all groups of columns. */
TILES_INLINE void TILES(one_by_four)(struct TILES(unit) * unit, const struct tile_piece *p, int t)
{
    const char *x = p->x + t * p->x_stride, *w = p->w;
    float(*s)[16][16] = p->sums[t];

    TILES(take_sums)(unit, p->is_first, s[0], s[1], s[2], s[3]);
    for (int64_t block = 0; block < p->blocks; block++) {
        TILES(fetch_ahead)(p, block, p->tiles - 1);
        TILES(four_products)(unit, x, w);
        x += TILE_BYTES;
        w += BLOCK_BYTES;
    }
    TILES(put_sums)(unit, s[0], s[1], s[2], s[3]);
}

/* Row tiles [first, first + p->tiles) by one panel: all pieces of it, from end to end. `end` is
 * where the caller's panels end. */
TILES_INLINE void TILES(do_panel)(struct TILES(unit) * unit, struct tile_piece *p, const char *x,
                                  const char *w, int64_t blocks, const char *end)
{
    const int64_t most = p->tiles == 1 ? blocks : TILE_PIECE,
                  near = (p->tiles == 1 ? TILE_NEAR : TILE_PIECE) * BLOCK_BYTES;

    for (int64_t block = 0; block < blocks; block += most) {
        p->w = w + block * BLOCK_BYTES;
        p->x = x + block * TILE_BYTES;
        p->blocks = blocks - block < most ? blocks - block : most;
        p->is_first = block == 0;
        p->ahead = end - p->w > near ? p->w + near : NULL;
        for (int g = 0; g < TILE_GROUPS && g * 16 < p->columns; g += 2)
            for (int t = 0; t + 2 <= p->tiles; t += 2)
                TILES(two_by_two)(unit, p, t, g);
        if (p->tiles % 2)
            TILES(one_by_four)(unit, p, p->tiles - 1);
    }
}

/* Row tile t by all groups of columns of one block, whose weights are `lines`. */
TILES_INLINE void TILES(one_block)(struct TILES(unit) * unit, float (*block)[16][16], const char *x,
                                   const char *lines)
{
    TILES(take_sums)(unit, 1, NULL, NULL, NULL, NULL);
    TILES(four_products)(unit, x, lines);
    TILES(put_sums)(unit, block[0], block[1], block[2], block[3]);
}

/* Row tiles by one panel of quantised weights: a block at a time becomes lines of bf16, whose
 * products are added to the sums times their factors. (Its speed was measured on no machine.) t0:
 * the first row tile, counted in those of y
 */
TILES_INLINE void TILES(do_quants)(struct TILES(unit) * unit, const struct sb_cpu_gemm *a,
                                   const struct tile_piece *p, const char *w, int64_t t0)
{
    const struct sb_quant_panel panel = sb_quant_panel(a->layout);
    const int64_t blocks = sb_whole_blocks(a->n_in) / SB_BLOCK, tile_rows = sb_cpu_tile_rows(a->m);
    struct quants q = quants_begin(&panel, w, w + TILE_QUANT_NEAR, sb_quant_block_bytes(&panel));
    _Alignas(64) char lines[BLOCK_BYTES];
    _Alignas(64) float block[TILE_GROUPS][16][16];

    memset(p->sums, 0, (size_t)p->tiles * sizeof *p->sums);
    for (int64_t b = 0; b < blocks; b++) {
        quants_next(&q);
        quants_spoil(&q);
        if (panel.bits == 8)
            quants_to_lines(lines, &q, 8);
        else
            quants_to_lines(lines, &q, 4);
        for (int t = 0; t < p->tiles; t++) {
            const int64_t row = (t0 + t / a->parts) * tile_rows, left = a->m - row;
            const int64_t at = (row * a->parts + t % a->parts) * blocks + b;
            const float *x_sums = panel.has_mins ? a->sums + at : NULL;
            TILES(one_block)(unit, block, p->x + t * p->x_stride + b * TILE_BYTES, lines);
            for (int g = 0; g < TILE_GROUPS; g++)
                add_scaled(p->sums[t][g], block[g], left < tile_rows ? left : tile_rows,
                           q.scales[0] + g * V16, panel.has_mins ? q.mins + g * V16 : NULL, x_sums,
                           a->parts * blocks);
        }
    }
}

#if defined(SB_HAS_TILES)

/* sums + x W for `rows` rows and one block, by one product: how the units are compared. */
static TILES_TARGET void TILES(one_product)(float (*result)[16], const void *sums, const void *x,
                                            const void *w, int rows)
{
    struct TILES(unit) unit;

    TILES(enter)(&unit, rows, 16);
    TILES(load)(&unit, 0, sums, TILE_LINE);
    TILES(load)(&unit, 4, x, TILE_LINE);
    TILES(load)(&unit, 6, w, TILE_LINE);
    TILES(product)(&unit, 0, 4, 6);
    TILES(store)(&unit, 0, result, TILE_LINE);
    TILES(leave)(&unit);
}

#endif

/* y = x W^T for the panels [first, last). */
static TILES_TARGET void TILES(gemm)(const struct sb_cpu_gemm *a, int64_t first, int64_t last)
{
    const int64_t blocks = sb_whole_blocks(a->n_in) / SB_BLOCK;
    const int64_t panel_bytes = sb_panel_bytes(a->layout, a->n_in);
    const int64_t tile_rows = sb_cpu_tile_rows(a->m), n = (a->m + tile_rows - 1) / tile_rows;
    int64_t most = TILES_L2_BYTES / (blocks * TILE_BYTES);
    struct TILES(unit) unit;
    tile_sums sums[TILES_TOGETHER];

    /* Row tiles are counted in those of y from here on, each of which has `parts` of x. */
    most = most < TILES_TOGETHER / 2 ? TILES_TOGETHER / 2 : most;
    most = (most < TILES_TOGETHER ? most : TILES_TOGETHER) / a->parts;
    const int64_t turns = (n + most - 1) / most;
    TILES(enter)(&unit, (int)tile_rows, 16);
    for (int64_t turn = 0; turn < turns; turn++) {
        const int64_t t0 = n * turn / turns, t1 = n * (turn + 1) / turns;
        const int64_t r0 = t0 * tile_rows, r1 = t1 * tile_rows < a->m ? t1 * tile_rows : a->m;
        struct tile_piece p = {
            .x_stride = blocks * TILE_BYTES, .sums = sums, .tiles = (int)(t1 - t0) * a->parts};
        const char *x = (const char *)a->x + t0 * a->parts * p.x_stride;
        for (int64_t panel = first; panel < last; panel++) {
            const int64_t column = panel * SB_PANEL, left = a->n_out - column;
            const char *w = (const char *)a->panels + panel * panel_bytes;
            p.columns = (int32_t)(left < SB_PANEL ? left : SB_PANEL);
            if (sb_layout_is_quantised(a->layout)) {
                p.x = x;
                TILES(do_quants)(&unit, a, &p, w, t0);
            } else {
                TILES(do_panel)(&unit, &p, x, w, blocks, w + (last - panel) * panel_bytes);
            }
            finish_rows(a, sums, r0, r1 - r0, column);
        }
    }
    TILES(leave)(&unit);
}

#undef TILES_INLINE
