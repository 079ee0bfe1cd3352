/*
 * y = x W^T + bias for quantised weights and inputs that are integers of 8 bits too, each with a
 * scale d for 32 steps (inputs.c). Each row of y has the bits it would have alone.
 *
 * Contract: for the groups g of steps in ascending order, in float, from +0,
 *
 *     sum = fma(scale[g] * d[g], isum, sum)        isum: the exact sum of the integers' products
 *     sum = fma(-min[g], a[g], sum)                of types with minima; a[g] = d[g] * the sum of
 *                                                  the inputs' integers
 *
 * and then bias is added. Groups of 16 steps have the d of the block they are in. (A scale for a
 * whole row of inputs would save the products scale * d. But one large input would leave few bits
 * to all others of its row, and not only to the 31 beside it.)
 *
 * Sums of integers have no order, so any instructions may form isum (vec_int8.h). The sums are in
 * memory: up to 48 rows by the 64 columns of a panel, 12 KiB, so that all of these rows pass over a
 * block of weights while that is in the first-level cache, and the block's scales are computed
 * once. A block of 4 rows by 64 columns has its integer sums in registers. Rows beyond 48 pass over
 * the same panel again, which is in the second-level cache by then.
 *
 * Few rows wait for memory. One row, or two rows by bytes, fetch each line of the weights just
 * before they need it. To fetch a whole block at once, as many rows do, made one row slower than
 * bf16 was (Zen 4), probably because its loads found the processor's few buffers for misses taken.
 * Other products of up to ROWS_AT_ONCE rows fetch nothing, which was faster than either.
 */
#include "level.h"
#include "quant_blocks.h"
#include "tiles.h"
#include "vec_int8.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    GROUPS = SB_PANEL / V16,
    QUADS = SB_BLOCK / 4,
    QUAD_BYTES = SB_PANEL * 4, /* of a quad of bytes: of all columns */
    AHEAD_BYTES = 4096,        /* between the weights in use and those being fetched, */
    NEAR_BYTES = 2048,         /* and where one or two rows pass over them */
#if defined(SB_LEVEL_AVX512)
    ROWS_AT_ONCE = 4 /* the most rows whose integer sums fit the registers */
#else
    ROWS_AT_ONCE = 3
#endif
};

/* Rows that pass over a block of weights together. */
struct rows {
    const struct quants *quants;
    const struct sb_cpu_int8 *x; /* [n] of this block */
    float (*sums)[SB_PANEL];     /* [n] */
    int n;                       /* 1..SB_CPU_INTEGER_ROWS */
    int tile_rows;               /* of a row tile, where the matrix unit is used */
    int is_alone;                /* whether they pass over the weights at once, and no others do */
};

/* How all blocks of a panel are multiplied. unit: the matrix unit, if it is used; blocks of x are
 * ldblock apart */
typedef void multiply_fn(void *unit, struct rows *p, struct quants *q, int64_t blocks,
                         int64_t ldblock);

/* Four inputs, of the steps of a quad. */
INLINE int four_inputs(const struct sb_cpu_int8 *x, int quad)
{
    int32_t word;

    memcpy(&word, x->q + 4 * quad, sizeof word);
    return word;
}

/* The sum of the inputs of a group of steps. */
INLINE int sum_of_inputs(const struct sb_cpu_int8 *x, const int halves, const int half)
{
    return halves == 2 ? x->sums[half] : x->sums[0] + x->sums[1];
}

/* Where the weights of a quad are, for group j of the columns. */
INLINE const char *quad_at(const struct quants *q, const enum sb_kind kind, int quad, int j)
{
    return q->q + (kind == SB_KIND_BYTES ? quad : quad / 2) * QUAD_BYTES + j * 64;
}

/* The scale of the inputs of row r, or by a deliberate fault (fault.h) that of another row. */
INLINE float scale_of_inputs(const struct rows *p, int r)
{
    return p->x[r > 0 && SB_FAULT(SCALE_OF_ANOTHER_ROW) ? r - 1 : r].d;
}

/* Adds the sum of a group of steps, times its scales, for row r and group j of the columns. */
INLINE void add_scaled(const struct rows *p, int r, int j, const int half, float d, v16 isum)
{
    const struct quants *q = p->quants;
    float *at = p->sums[r] + j * V16;
    v16 sum = v_fma(v_mul(v_load(q->scales[half] + j * V16), v_set1(d)), isum, v_load(at));

    if (q->panel.has_mins)
        sum = v_fma(v_load(q->mins + j * V16), v_set1(p->x[r].sum), sum);
    v_store(at, sum);
}

/* The most rows that fetch their weights near by. */
INLINE int near_rows(const enum sb_kind kind) { return kind == SB_KIND_BYTES ? 2 : 1; }

INLINE void next_block(struct rows *p, struct quants *q)
{
    quants_next(q);
    if (p->n > 1)
        quants_spoil(q);
    p->quants = q;
}

#define INT8(name) name##_plain
#define INT8_TARGET
#if defined(SB_LEVEL_AVX512)
#define INT8_GROUPS(rows) 2
#else
#define INT8_GROUPS(rows) ((rows) == 1 ? 2 : 1)
#endif
#include "gemm_int8_rows.h"

#if defined(SB_LEVEL_AVX512)
#define INT8(name) name##_vnni
#define INT8_TARGET TARGET_VNNI
#define INT8_GROUPS(rows) 4
#include "gemm_int8_rows.h"
#endif

/* ------------------------------------------------------------------ the matrix unit */

/* The integers of a block of nibbles, as the layout of bytes has them. */
static void nibbles_to_bytes(char *to, const struct quants *q)
{
    const int zero = q->panel.zero;

    for (int word = 0; word < QUADS / 2; word++, to += 2 * QUAD_BYTES)
        for (int i = 0; i < QUAD_BYTES; i++) {
            const uint8_t both = (uint8_t)q->q[word * QUAD_BYTES + i];
            to[i] = (char)((both & 15) - zero);
            to[QUAD_BYTES + i] = (char)((both >> 4) - zero);
        }
}

static void codes_to_bytes(char *to, const struct quants *q)
{
    const char *at = q->q;

    for (int word = 0; word < QUADS / 2; word++, to += 2 * QUAD_BYTES, at += QUAD_BYTES)
        for (int i = 0; i < QUAD_BYTES; i += 64) {
            v_store_codes(to + i, at + i, 0);
            v_store_codes(to + QUAD_BYTES + i, at + i, 1);
        }
}

static v16 floats_of(const int32_t integers[V16])
{
    float floats[V16];

    for (int i = 0; i < V16; i++)
        floats[i] = (float)integers[i];
    return v_load(floats);
}

/* Adds the sums of a row tile, of which `row` is the first row. */
static void add_tile(const struct rows *p, int row, int half, int32_t (*sums)[16][16])
{
    for (int r = 0; r < p->tile_rows && row + r < p->n; r++)
        for (int j = 0; j < GROUPS; j++)
            add_scaled(p, row + r, j, half, scale_of_inputs(p, row + r), floats_of(sums[j][r]));
}

#define TILES_INLINE static inline __attribute__((always_inline)) TILES_TARGET

#define TILES(name) emulated_##name
#define TILES_TARGET
#include "gemm_int8_tiles.h"
#undef TILES
#undef TILES_TARGET

#if defined(SB_HAS_TILES)
#define TILES(name) real_##name
#define TILES_TARGET TARGET_TILES
#include "gemm_int8_tiles.h"
#undef TILES
#undef TILES_TARGET
#endif

/* ------------------------------------------------------------------ panels */

/* Puts the sums of rows from `row` on into y, and adds bias. */
static void store_sums(const struct sb_cpu_gemm *a, const struct rows *p, int64_t row,
                       int64_t column)
{
    for (int r = 0; r < p->n; r++)
        for (int j = 0; j < GROUPS && column + j * V16 < a->n_out; j++) {
            const int64_t at = column + j * V16, lanes = a->n_out - at < V16 ? a->n_out - at : V16;
            v16 value = v_load(p->sums[r] + j * V16);
            if (a->bias)
                value = v_add(value, v_load_n(a->bias + at, lanes));
            v_store_n(a->y + (row + r) * a->ldy + at, value, lanes);
        }
}

/* Multiplies all rows, `most` of them at a time, by the panels [first, last). */
static void all_panels(const struct sb_cpu_gemm *a, int64_t first, int64_t last, int64_t most,
                       multiply_fn *multiply, void *unit)
{
    const struct sb_quant_panel panel = sb_quant_panel(a->layout);
    const int64_t blocks = sb_whole_blocks(a->n_in) / SB_BLOCK;
    const int64_t panel_bytes = sb_panel_bytes(a->layout, a->n_in);
    const struct sb_cpu_int8 *x = a->x;
    _Alignas(64) float sums[SB_CPU_INTEGER_ROWS][SB_PANEL];

    for (int64_t at = first; at < last; at++)
        for (int64_t row = 0; row < a->m; row += most) {
            const char *w = (const char *)a->panels + at * panel_bytes;
            const int is_alone = a->m <= ROWS_AT_ONCE;
            struct quants q = quants_begin(&panel, w, w + AHEAD_BYTES,
                                           is_alone || row > 0 ? 0 : sb_quant_block_bytes(&panel));
            struct rows p = {.x = x + row, .sums = sums, .is_alone = is_alone};
            p.tile_rows = (int)sb_cpu_tile_rows(a->m, 1);
            p.n = (int)(a->m - row < most ? a->m - row : most);
            memset(sums, 0, (size_t)p.n * sizeof *sums);
            multiply(unit, &p, &q, blocks, a->m);
            store_sums(a, &p, row, at * SB_PANEL);
        }
}

#if defined(SB_HAS_TILES)

static TARGET_TILES void by_real_tiles(const struct sb_cpu_gemm *a, int64_t first, int64_t last,
                                       int64_t most, int rows, int lines)
{
    struct real_unit unit;

    real_enter(&unit, rows, lines);
    all_panels(a, first, last, most, real_multiply, &unit);
    real_leave(&unit);
}

#endif

/* The same by the matrix unit, of row tiles of equal height. A group of steps is a product. */
static void by_tiles(const struct sb_cpu_gemm *a, int64_t first, int64_t last)
{
    const int rows = (int)sb_cpu_tile_rows(a->m, 1);
    const int lines = QUADS / sb_quant_panel(a->layout).groups;
    const int64_t most = SB_CPU_INTEGER_ROWS / 16 * rows;

#if defined(SB_HAS_TILES)
    if (a->products == SB_INTEGERS_TILES) {
        by_real_tiles(a, first, last, most, rows, lines);
        return;
    }
#endif
    struct emulated_unit unit;
    emulated_enter(&unit, rows, lines);
    all_panels(a, first, last, most, emulated_multiply, &unit);
    emulated_leave(&unit);
}

void SB_LEVEL(gemm_int8)(const struct sb_cpu_gemm *a, int64_t first, int64_t last)
{
    const int64_t n_turns = (a->m + SB_CPU_INTEGER_ROWS - 1) / SB_CPU_INTEGER_ROWS;
    const int64_t most = n_turns > 0 ? (a->m + n_turns - 1) / n_turns : 1;

    if (a->products == SB_INTEGERS_TILES || a->products == SB_INTEGERS_EMULATED) {
        by_tiles(a, first, last);
        return;
    }
#if defined(SB_LEVEL_AVX512)
    if (a->products == SB_INTEGERS_DOT) {
        all_panels(a, first, last, most, multiply_vnni, NULL);
        return;
    }
#endif
    all_panels(a, first, last, most, multiply_plain, NULL);
}
