/*
 * The loops of gemm_tiles.c, which says how the product is cut and why. They are compiled once over
 * the real matrix unit and once over the emulated one (tiles.h); a test compiles them over a unit
 * with a fault. Whoever includes this file has defined
 *
 *     TILES(name)     name with the prefix of the unit's operations; the functions get it too
 *     TILES_TARGET    attributes that the functions need, or nothing
 *
 * A step takes one block of 32 steps k of a row tile by four groups of columns: four products.
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
    TILE_SMALL_PIECE = 4,                       /* of up to TILES_FEW row tiles */
    TILES_FEW = 3,
    TILE_QUANT_NEAR = 4096,  /* bytes between quantised weights in use and those being fetched */
    TILES_TOGETHER = 13,     /* row tiles, at most, that pass over W together */
    TILES_L2_BYTES = 3 << 19 /* of the second-level cache, for their x */
};

/* The sums of one row tile for one panel: [group of columns][row][column] */
typedef float tile_sums[TILE_GROUPS][16][16];

/* One pass of row tiles over a piece of a panel. */
struct tile_piece {
    const struct sb_cpu_gemm *gemm;
    const char *w;    /* the piece's first line */
    const char *x;    /* the first row tile's first block of the piece */
    int64_t x_stride; /* bytes from one row tile to the next */
    int64_t blocks;
    tile_sums *sums;       /* [tiles]: those of the pieces before, and where the new ones go */
    int tiles;             /* 1..TILES_TOGETHER */
    int is_first, is_last; /* whether the piece begins, ends the sums */
    const char *ahead;     /* what to prefetch at the piece's first block, or NULL */
    int64_t row, column;   /* the first of y */
    int64_t tile_rows;     /* rows of y in a row tile; the last one may have fewer */
};

/* Where four tiles of sums are: group g begins at + g * group, with its rows `stride` apart. */
struct tile_place {
    char *at;
    int64_t group, stride; /* bytes */
};

/* Rows of y in row tile t. */
static inline int64_t rows_of_tile(const struct tile_piece *p, int t)
{
    const int64_t left = p->gemm->m - p->row - t * p->tile_rows;
    return left < p->tile_rows ? left : p->tile_rows;
}

static inline float *results_of_tile(const struct tile_piece *p, int t)
{
    return p->gemm->y + (p->row + t * p->tile_rows) * p->gemm->ldy + p->column;
}

static inline struct tile_place sums_of_tile(const struct tile_piece *p, int t)
{
    return (struct tile_place){(char *)p->sums[t], TILE_BYTES, TILE_LINE};
}

/* Whether the sums of row tile t are results as they are, and whole tiles of y. */
static inline int sums_are_results(const struct tile_piece *p, int t)
{
    const struct sb_cpu_gemm *a = p->gemm;
    return p->is_last && a->parts == 1 && !a->bias && p->column + SB_PANEL <= a->n_out &&
           rows_of_tile(p, t) == p->tile_rows;
}

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

/* Puts the sums of row tile t into y: adds the parts of each row, and bias. */
static inline void finish_rows(const struct tile_piece *p, int t)
{
    const struct sb_cpu_gemm *a = p->gemm;
    float(*sums)[16][16] = p->sums[t], *y = results_of_tile(p, t);
    const int64_t n = rows_of_tile(p, t);

    for (int64_t row = 0; row < n; row++, y += a->ldy)
        for (int group = 0; group < TILE_GROUPS; group++) {
            const int64_t at = p->column + group * V16, lanes = a->n_out - at;
            float(*sum)[16] = sums[group] + row * a->parts;
            v16 value = v_load(sum[0]);
            if (lanes <= 0)
                break;
            if (a->parts == SB_CPU_PARTS)
                value = v_add(value, v_add(v_load(sum[1]), v_load(sum[2])));
            if (a->bias)
                value = v_add(value,
                              lanes >= V16 ? v_load(a->bias + at) : v_load_n(a->bias + at, lanes));
            if (lanes >= V16)
                v_store(y + group * V16, value);
            else
                v_store_n(y + group * V16, value, lanes);
        }
}

#endif

#define TILES_INLINE static inline __attribute__((always_inline)) TILES_TARGET

/* Prefetches the next `lines` lines of W. */
TILES_INLINE const char *TILES(fetch)(const char *ahead, const int lines)
{
    for (int line = 0; line < lines; line++)
        v_prefetch(ahead + line * 64);
    return ahead + lines * 64;
}

/* Puts a tile of sums into a register: zeros where a piece begins the sums. */
#define TILES_TAKE(unit, g, is_first, place)                                        \
    do {                                                                            \
        if (is_first)                                                               \
            TILES(zero)(unit, g);                                                   \
        else                                                                        \
            TILES(load)(unit, g, (place).at + (g) * (place).group, (place).stride); \
    } while (0)
#define TILES_PUT(unit, g, place) \
    TILES(store)(unit, g, (place).at + (g) * (place).group, (place).stride)

/* The same for all four groups of columns, in the registers 0 to 3. */
TILES_INLINE void TILES(take_sums)(struct TILES(unit) * unit, int is_first, struct tile_place place)
{
    TILES_TAKE(unit, 0, is_first, place);
    TILES_TAKE(unit, 1, is_first, place);
    TILES_TAKE(unit, 2, is_first, place);
    TILES_TAKE(unit, 3, is_first, place);
}

TILES_INLINE void TILES(put_sums)(struct TILES(unit) * unit, struct tile_place place)
{
    TILES_PUT(unit, 0, place);
    TILES_PUT(unit, 1, place);
    TILES_PUT(unit, 2, place);
    TILES_PUT(unit, 3, place);
}

/* One block of a row tile by all groups of columns, added to the registers 0 to 3. Behind each
 * product `lines` lines are prefetched. */
TILES_INLINE void TILES(one_block)(struct TILES(unit) * unit, const char *x, const char *w,
                                   const char *ahead, const int lines)
{
    TILES(load)(unit, 4, x, TILE_LINE);
    TILES(load)(unit, 6, w, SB_LINE_BYTES);
    TILES(product)(unit, 0, 4, 6);
    ahead = TILES(fetch)(ahead, lines);
    TILES(load)(unit, 7, w + TILE_LINE, SB_LINE_BYTES);
    TILES(product)(unit, 1, 4, 7);
    ahead = TILES(fetch)(ahead, lines);
    TILES(load)(unit, 6, w + 2 * TILE_LINE, SB_LINE_BYTES);
    TILES(product)(unit, 2, 4, 6);
    ahead = TILES(fetch)(ahead, lines);
    TILES(load)(unit, 7, w + 3 * TILE_LINE, SB_LINE_BYTES);
    TILES(product)(unit, 3, 4, 7);
    TILES(fetch)(ahead, lines);
}

/* Two blocks, one group of columns after the other, so that a group's sums can be taken before, and
 * put behind, while the products of others go on. */
#define TILES_GROUP(g)                                                        \
    do {                                                                      \
        if (from)                                                             \
            TILES_TAKE(unit, g, is_first, *from);                             \
        TILES(load)(unit, 6, w + (g)*TILE_LINE, SB_LINE_BYTES);               \
        TILES(product)(unit, g, 4, 6);                                        \
        ahead = TILES(fetch)(ahead, lines);                                   \
        TILES(load)(unit, 7, w + BLOCK_BYTES + (g)*TILE_LINE, SB_LINE_BYTES); \
        TILES(product)(unit, g, 5, 7);                                        \
        next = TILES(fetch)(next, lines);                                     \
    } while (0)
TILES_INLINE void TILES(two_blocks)(struct TILES(unit) * unit, const char *x, const char *w,
                                    const struct tile_place *from, int is_first,
                                    const struct tile_place *to, const char *ahead, const int lines)
{
    const char *next = ahead + BLOCK_BYTES;

    TILES(load)(unit, 4, x, TILE_LINE);
    TILES(load)(unit, 5, x + TILE_BYTES, TILE_LINE);
    TILES_GROUP(0);
    TILES_GROUP(1);
    if (to)
        TILES_PUT(unit, 0, *to);
    TILES_GROUP(2);
    if (to)
        TILES_PUT(unit, 1, *to);
    TILES_GROUP(3);
    if (to) {
        TILES_PUT(unit, 2, *to);
        TILES_PUT(unit, 3, *to);
    }
}

/* The row tile t by a piece of W. lines: to prefetch behind each product */
TILES_INLINE void TILES(one_tile)(struct TILES(unit) * unit, const struct tile_piece *p, int t,
                                  const int lines)
{
    const struct tile_place from = sums_of_tile(p, t);
    const struct tile_place to = sums_are_results(p, t)
                                     ? (struct tile_place){(char *)results_of_tile(p, t), TILE_LINE,
                                                           p->gemm->ldy * 4}
                                     : from;
    const char *x = p->x + t * p->x_stride, *w = p->w;
    const char *ahead = lines > 0 ? p->ahead + t * 4 * lines * 64 : w;
    const int64_t edge = p->blocks < 4 ? 0 : 2; /* blocks that go group by group */

    if (edge)
        TILES(two_blocks)(unit, x, w, &from, p->is_first, NULL, ahead, lines);
    else
        TILES(take_sums)(unit, p->is_first, from);
    x += edge * TILE_BYTES;
    w += edge * BLOCK_BYTES;
    ahead += edge * BLOCK_BYTES;
    for (int64_t block = 2 * edge; block < p->blocks; block++) {
        TILES(one_block)(unit, x, w, ahead, lines);
        x += TILE_BYTES;
        w += BLOCK_BYTES;
        ahead += BLOCK_BYTES;
    }
    if (edge)
        TILES(two_blocks)(unit, x, w, NULL, 0, &to, ahead, lines);
    else
        TILES(put_sums)(unit, to);
}

/* The same, where the row tiles share the lines of W that are ahead. */
TILES_INLINE void TILES(tile_of_piece)(struct TILES(unit) * unit, const struct tile_piece *p, int t)
{
    const int of_block = BLOCK_BYTES / 64 / 4, lines = (of_block + p->tiles - 1) / p->tiles;

    if (!p->ahead || t * lines >= of_block)
        TILES(one_tile)(unit, p, t, 0);
    else if (lines == 2)
        TILES(one_tile)(unit, p, t, 2);
    else if (lines == 3)
        TILES(one_tile)(unit, p, t, 3);
    else if (lines == 4)
        TILES(one_tile)(unit, p, t, 4);
    else if (lines == 6)
        TILES(one_tile)(unit, p, t, 6);
    else if (lines == 8)
        TILES(one_tile)(unit, p, t, 8);
    else
        TILES(one_tile)(unit, p, t, 16);
}

/* All row tiles by one panel: all pieces of it, from end to end. end: of W. What is fetched ahead
 * of a panel is the next one, which is the thread's next work where it is not this call's. */
TILES_INLINE void TILES(do_panel)(struct TILES(unit) * unit, struct tile_piece *p, const char *x,
                                  const char *w, const char *end)
{
    const int64_t blocks = sb_whole_blocks(p->gemm->n_in) / SB_BLOCK;
    const int64_t near = TILE_PIECE * BLOCK_BYTES;
    const int64_t most = p->tiles == 1           ? blocks
                         : p->tiles <= TILES_FEW ? TILE_SMALL_PIECE
                                                 : TILE_PIECE;

    const int64_t pieces = (blocks + most - 1) / most;
    const int64_t least = blocks / pieces;
    int64_t longer = blocks % pieces; /* pieces that are left with a block more */

    for (int64_t block = 0; block < blocks; block += p->blocks) {
        p->w = w + block * BLOCK_BYTES;
        p->x = x + block * TILE_BYTES;
        p->blocks = least + (longer-- > 0);
        p->is_first = block == 0;
        p->is_last = block + p->blocks == blocks;
        p->ahead = end - p->w > near ? p->w + near : NULL;
        for (int t = 0; t <= p->tiles; t++) {
            if (t < p->tiles)
                TILES(tile_of_piece)(unit, p, t);
            if (t > 0 && p->is_last && !sums_are_results(p, t - 1))
                finish_rows(p, t - 1);
        }
    }
}

/* Row tile t by block b of quantised weights, whose lines of bf16 are `lines`: the products are
 * added to the sums times their factors. */
TILES_INLINE void TILES(one_quant)(struct TILES(unit) * unit, const struct tile_piece *p, int t,
                                   int64_t b, const char *lines, const struct quants *q)
{
    const struct sb_cpu_gemm *a = p->gemm;
    const int64_t blocks = sb_whole_blocks(a->n_in) / SB_BLOCK;
    const int64_t first = (p->row + t * p->tile_rows) * a->parts;
    const float *x_sums = q->panel.has_mins ? a->sums + first * blocks + b : NULL;
    _Alignas(64) float block[TILE_GROUPS][16][16];
    const struct tile_place place = {(char *)block, TILE_BYTES, TILE_LINE};

    TILES(take_sums)(unit, 1, place);
    TILES(one_block)(unit, p->x + t * p->x_stride + b * TILE_BYTES, lines, lines, 0);
    TILES(put_sums)(unit, place);
    for (int g = 0; g < TILE_GROUPS; g++)
        add_scaled(p->sums[t][g], block[g], rows_of_tile(p, t) * a->parts, q->scales[0] + g * V16,
                   q->panel.has_mins ? q->mins + g * V16 : NULL, x_sums, blocks);
}

/* All row tiles by one panel of quantised weights. */
TILES_INLINE void TILES(do_quants)(struct TILES(unit) * unit, struct tile_piece *p, const char *x,
                                   const char *w)
{
    const struct sb_quant_panel panel = sb_quant_panel(p->gemm->layout);
    const int64_t blocks = sb_whole_blocks(p->gemm->n_in) / SB_BLOCK;
    struct quants q = quants_begin(&panel, w, w + TILE_QUANT_NEAR, sb_quant_block_bytes(&panel));
    _Alignas(64) char lines[BLOCK_BYTES];

    p->x = x;
    memset(p->sums, 0, (size_t)p->tiles * sizeof *p->sums);
    for (int64_t b = 0; b < blocks; b++) {
        quants_next(&q);
        quants_spoil(&q);
        if (panel.kind == SB_KIND_BYTES)
            quants_to_lines(lines, &q, SB_KIND_BYTES);
        else if (panel.kind == SB_KIND_NIBBLES)
            quants_to_lines(lines, &q, SB_KIND_NIBBLES);
        else
            quants_to_lines(lines, &q, SB_KIND_CODES);
        for (int t = 0; t < p->tiles; t++)
            TILES(one_quant)(unit, p, t, b, lines, &q);
    }
    for (int t = 0; t < p->tiles; t++)
        finish_rows(p, t);
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
    const int64_t rows = sb_cpu_tile_rows(a->m, a->parts), n = (a->m + rows - 1) / rows;
    const char *end = (const char *)a->panels + sb_panel_count(a->n_out) * panel_bytes;
    int64_t most = TILES_L2_BYTES / (blocks * TILE_BYTES);
    struct TILES(unit) unit;
    tile_sums sums[TILES_TOGETHER];

    most = most < TILES_TOGETHER / 2 ? TILES_TOGETHER / 2 : most;
    most = most < TILES_TOGETHER ? most : TILES_TOGETHER;
    const int64_t turns = (n + most - 1) / most;
    TILES(enter)(&unit, (int)rows * a->parts, 16);
    for (int64_t turn = 0; turn < turns; turn++) {
        const int64_t t0 = n * turn / turns, t1 = n * (turn + 1) / turns;
        struct tile_piece p = {.gemm = a,
                               .x_stride = blocks * TILE_BYTES,
                               .sums = sums,
                               .tiles = (int)(t1 - t0),
                               .row = t0 * rows,
                               .tile_rows = rows};
        const char *x = (const char *)a->x + t0 * p.x_stride;
        for (int64_t panel = first; panel < last; panel++) {
            const char *w = (const char *)a->panels + panel * panel_bytes;
            p.column = panel * SB_PANEL;
            if (sb_layout_is_quantised(a->layout))
                TILES(do_quants)(&unit, &p, x, w);
            else
                TILES(do_panel)(&unit, &p, x, w, end);
        }
    }
    TILES(leave)(&unit);
}

#undef TILES_TAKE
#undef TILES_PUT
#undef TILES_GROUP
#undef TILES_INLINE
