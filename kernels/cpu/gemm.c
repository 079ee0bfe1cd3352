/*
 * y = x W^T + bias for any number of rows of x, where each row of y has the bits it would have
 * alone.
 *
 * Contract: the sum for y[r][o] is formed in one of three orders, in float; then bias[o] is added.
 *
 *     chain    one chain of fused multiply-adds over ascending k, which starts at +0
 *     blocks   of 32 steps k, in ascending order. For each block, one chain from +0 over its even
 *              steps and one over its odd steps, and then sum = sum + (even + odd), from +0. Steps
 *              that are missing from the last block are products of +0 and +0. Both factors are
 *              bf16. This is what x86's matrix unit computes (gemm_tiles.c).
 *     groups   blocks of quantised weights, whose factors multiply the sum of a block before it is
 *              added (gemm_quant.h; where inputs are integers too, gemm_int8.c)
 *
 * In the order of blocks, an x that is to keep the precision of f32 comes as three bf16 parts, in
 * three rows (inputs.c). Their sums s make y = s0 + (s1 + s2).
 *
 * Neither order leaves any freedom for a row. So rows, columns and threads may be cut anywhere, and
 * steps between two blocks. They are cut as follows.
 *
 *     rows     into groups of nearly equal size: at most 6 for chains (8 is 4 + 4), so that the
 *              accumulators fit the registers; at most 48 for blocks (gemm_bf16.h)
 *     columns  into panels of 64 (panel.h), of which a thread takes whole ones
 *     steps    into pieces of 128 to 1024. A piece of W, one panel by so many steps, is at most 128
 *              KiB and stays in the second-level cache while all groups of rows pass over it, or
 *              while few rows do, one group of columns after the other, where the registers have no
 *              room for all columns (AVX2). Between two pieces y holds the unfinished sums, which
 *              loses nothing. All passes of a chain fetch equal parts of the next piece, so that
 *              memory does not rest while they compute
 *
 * Products by the matrix unit are cut in another way, in gemm_tiles.c, and so are those of many
 * rows with quantised weights, in gemm_quant_lines.h.
 *
 * BLAS libraries change the order of summation with the number of rows, which is what this library
 * exists to avoid.
 */
#include "level.h"
#include "panel_quant.h"
#include "port.h"

enum {
    MAX_ROWS = SB_CPU_CHAIN_ROWS,
    BLOCK_ROWS = SB_CPU_BLOCK_ROWS,
    GROUPS = SB_PANEL / V16, /* vectors in a row of a panel */
    PARTS = SB_CPU_PARTS,
    CACHE_LINE = 64, /* bytes */
/* Steps of a piece. With AVX2, where few rows pass over it four times, 128 took less time than 512
 * with f32 weights, and as much with bf16 (Zen 3). */
#if defined(SB_LEVEL_AVX2)
    CHAIN_PIECE = 128,
#else
    CHAIN_PIECE = 512,
#endif
    BLOCKS_PIECE = 1024,
    /* Steps, and in the layout BF16 lines of two steps, between the weights in use and those being
     * fetched, where a piece is read only once. */
    NEAR_STEPS = 16,
    NEAR_LINES = 32,
    NEAR_LINES_BY_DOT = 8, /* by vdpbf16ps, for up to NEAR_ROWS rows */
    NEAR_ROWS = 6,
    NEAR_QUANT_BYTES = 4096, /* of quantised weights */
    FEW_QUANT_ROWS = 4,      /* up to so many rows fetch no quantised weights at all */
    ROWS_TOGETHER = 192      /* that pass over W; their x stays in the second-level cache */
};

/* What one call of a tile function works on: a group of rows, one panel, one piece of its steps. */
struct piece {
    const char *w;  /* the panel's elements, from the piece's first step on */
    const float *x; /* [rows, ldx], from the piece's first step on; of blocks [blocks, ldblock],
                       each of them [rows, ldx] */
    float *y; /* [rows, ldy] or, of three parts, [rows / 3, ldy]; at the panel's first column */
    const float *bias; /* at the panel's first column, or NULL */
    const float *sums; /* of x, for weights with minima: [rows, ldsums], from the first block on */
    const struct sb_quant_panel *quants; /* of quantised weights */
    int64_t ldx, ldblock, ldy, ldsums, steps;
    /* What to prefetch at the first step, and by how many bytes that moves with each step (in the
     * BF16 layout with each pair of steps, of quantised weights with each block). If rows or
     * columns are done in several passes, these share it. It may lie beyond the end of W, because a
     * prefetch is only a hint. */
    const char *ahead;
    int64_t ahead_step;
    int rows;              /* of x: 1..MAX_ROWS, or in the order of blocks 1..BLOCK_ROWS */
    int32_t columns;       /* the panel's columns that y has: 1..64 */
    int is_first, is_last; /* whether the piece begins, ends the sums */
    int is_split;          /* whether three rows of x are the parts of one */
};

/* Fetches the share of a step that a pass over `groups` groups of columns has, which is no more
 * than so many lines of the cache. Where it is less than a line, the next step fetches that line
 * again, which costs less than to find out. (When the first passes fetched all, a line at each
 * step, and the others nothing, 8 to 12 rows with AVX2 took 1.3 to 2 times as long.) */
static inline __attribute__((always_inline)) void fetch_share(const char *at, const int groups,
                                                              int64_t share)
{
    for (int line = 0; line < groups; line++)
        if (line == 0 || line * CACHE_LINE < share)
            v_prefetch(at + line * CACHE_LINE);
}

static inline __attribute__((always_inline)) v16 load_y(const struct piece *p, int r, int group)
{
    const float *at = p->y + r * p->ldy + group * V16;
    int32_t lanes = p->columns - group * V16;
    if (lanes >= V16)
        return v_load(at);
    return lanes > 0 ? v_load_n(at, lanes) : v_set1(0.0f);
}

static inline __attribute__((always_inline)) void store_y(const struct piece *p, int r, int group,
                                                          v16 value)
{
    float *at = p->y + r * p->ldy + group * V16;
    int32_t lanes = p->columns - group * V16;
    if (lanes <= 0)
        return;
    if (p->is_last && p->bias) {
        const float *bias = p->bias + group * V16;
        value = v_add(value, lanes >= V16 ? v_load(bias) : v_load_n(bias, lanes));
    }
    if (lanes >= V16)
        v_store(at, value);
    else
        v_store_n(at, value, lanes);
}

/* Stores the sums of all rows for the groups from g on; those of three parts become one row. */
static inline __attribute__((always_inline)) void store_sums(const struct piece *p,
                                                             v16 sum[][GROUPS], const int rows,
                                                             const int groups, int g)
{
    if (p->is_split)
        for (int r = 0; r + PARTS <= rows; r += PARTS)
            for (int j = 0; j < groups; j++)
                store_y(p, r / PARTS, g + j, v_add(sum[r][j], v_add(sum[r + 1][j], sum[r + 2][j])));
    else
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < groups; j++)
                store_y(p, r, g + j, sum[r][j]);
}

/* The weights of one step for 16 columns, as floats, in the layouts that are in order. */
static inline __attribute__((always_inline)) v16 load_group(const char *w, enum sb_layout layout,
                                                            int group)
{
    if (layout == SB_LAYOUT_F32)
        return v_load((const float *)(const void *)w + group * V16);
    return v_load_f16((const uint16_t *)(const void *)w + group * V16);
}

/* How many groups of 16 columns a chain's tile function computes at once: as many accumulators as
 * the level's registers have room for beside the weights. */
#if defined(SB_LEVEL_AVX512)
#define TILE_GROUPS(rows) GROUPS
#elif defined(SB_LEVEL_AVX2)
#define TILE_GROUPS(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)
#else
#define TILE_GROUPS(rows) 1
#endif

typedef void tile_fn(const struct piece *);

#define TILE tiles_f32
#define TILE_CALL(rows) tile_f32_##rows
#define TILE_LAYOUT SB_LAYOUT_F32
#include "gemm_rows.h"

#define TILE tiles_f16
#define TILE_CALL(rows) tile_f16_##rows
#define TILE_LAYOUT SB_LAYOUT_F16
#include "gemm_rows.h"

#include "gemm_bf16.h"

#include "gemm_quant.h"

#include "gemm_quant_lines.h"

#if defined(SB_LEVEL_AVX512)

/* Whether vdpbf16ps equals the chain on sixteen pseudo-random accumulators and bf16 pairs. They
 * have all exponents, less the bits in `cleared`, so that denormals, infinities, and sums that
 * cancel or underflow come up. Where one result is a NaN, the other must be too, but its payload
 * may differ. */
static TARGET_DOT int dot_matches_chain(uint32_t seed, uint32_t cleared)
{
    uint32_t words[3][V16];
    float got[V16], expected[V16];

    for (int i = 0; i < 3; i++)
        for (int lane = 0; lane < V16; lane++) {
            seed = seed * 1664525u + 1013904223u;
            words[i][lane] = seed ^ seed >> 15;
            words[i][lane] &= ~(cleared << 23 | cleared << 7);
        }
    __m512i a = _mm512_loadu_si512(words[0]), b = _mm512_loadu_si512(words[1]);
    v16 acc = _mm512_castsi512_ps(_mm512_loadu_si512(words[2]));
    v16 high = v_fma(v_load_odd((const uint16_t *)words[0]), v_load_odd((const uint16_t *)words[1]),
                     acc);
    v_store(got, _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b));
    v_store(expected, v_fma(v_load_even((const uint16_t *)words[0]),
                            v_load_even((const uint16_t *)words[1]), high));
    for (int lane = 0; lane < V16; lane++)
        if (f32_bits(got[lane]) != f32_bits(expected[lane]) &&
            !(isnan(got[lane]) && isnan(expected[lane])))
            return 0;
    return 1;
}

int SB_LEVEL(dot_is_chain)(void)
{
    struct sb_fp_env env;
    int same = sb_port_has_avx512_bf16();

    /* The chain must flush denormals here as vdpbf16ps does in every environment. In half of the
     * cases the exponents are kept small. */
    sb_port_fp_enter(&env);
    for (uint32_t i = 0; same && i < 20000; i++)
        same = dot_matches_chain(i * 2654435761u, i % 2 ? 0xc0u : 0u);
    sb_port_fp_leave(&env);
    return same;
}

#else

int SB_LEVEL(dot_is_chain)(void) { return 0; }

#endif

static tile_fn *tile_of_kind(enum sb_products products, enum sb_kind kind)
{
#if defined(SB_LEVEL_AVX512)
    if (products == SB_BLOCKS_DOT)
        return kind == SB_KIND_BYTES ? bytes_dot : nibbles_dot;
    return kind == SB_KIND_BYTES ? bytes_fma : nibbles_fma;
#else
    (void)products;
    return kind == SB_KIND_BYTES ? bytes_fma : kind == SB_KIND_NIBBLES ? nibbles_fma : codes_fma;
#endif
}

static tile_fn *tile_of(const struct sb_cpu_gemm *a, int rows)
{
    if (sb_layout_is_quantised(a->layout))
        return tile_of_kind(a->products, sb_quant_panel(a->layout).kind);
#if defined(SB_LEVEL_AVX512)
    if (a->products == SB_BLOCKS_DOT)
        return blocks_dot;
#endif
    if (a->products == SB_BLOCKS_FMA)
        return blocks_fma;
    if (a->layout == SB_LAYOUT_F32)
        return tiles_f32[rows - 1];
    if (a->layout == SB_LAYOUT_F16)
        return tiles_f16[rows - 1];
    return tiles_bf16[rows - 1];
}

/* Has a piece take x from row `row` and step k0 on. */
static void take_x(struct piece *p, const struct sb_cpu_gemm *a, int64_t row, int64_t k0)
{
    const float *x = a->x;

    if (a->products == SB_CHAIN) {
        p->ldx = a->n_in;
        p->x = x + row * p->ldx + k0;
        return;
    }
    p->ldx = sb_cpu_block_words(a->products);
    p->ldblock = a->m * a->parts * p->ldx;
    p->x = x + row * a->parts * p->ldx + k0 / SB_BLOCK * p->ldblock;
}

/* Steps for which struct piece counts what it prefetches. */
static int64_t steps_ahead(const struct sb_cpu_gemm *a)
{
    if (sb_layout_is_quantised(a->layout))
        return SB_BLOCK;
    return sb_layout_has_blocks(a->layout) ? 2 : 1;
}

/* Multiplies rows [row, row + n), group by group, by one piece of W. The caller has filled in what
 * p says of W; what it says of the rows is filled in here. */
static void do_piece(const struct sb_cpu_gemm *a, struct piece *p, int64_t row, int64_t n,
                     int64_t k0, int64_t column)
{
    const int64_t most = sb_cpu_gemm_rows(a) / a->parts, n_groups = (n + most - 1) / most;

    p->ldy = a->ldy;
    p->ldsums = sb_whole_blocks(a->n_in) / SB_BLOCK;
    p->columns = (int32_t)(a->n_out - column < SB_PANEL ? a->n_out - column : SB_PANEL);
    p->bias = a->bias ? a->bias + column : NULL;
    p->is_split = a->parts == PARTS;
    for (int64_t b = 0; b < n_groups; b++) {
        int64_t r0 = row + n * b / n_groups, r1 = row + n * (b + 1) / n_groups;
        take_x(p, a, r0, k0);
        p->y = a->y + r0 * a->ldy + column;
        p->sums = a->sums ? a->sums + r0 * a->parts * p->ldsums + k0 / SB_BLOCK : NULL;
        p->rows = (int)(r1 - r0) * a->parts;
        tile_of(a, p->rows)(p);
        p->ahead += p->steps / steps_ahead(a) * p->ahead_step;
    }
}

/* How many bytes are between the weights in use and those being fetched, for a group of `rows` rows
 * of x that alone passes over W. */
static int64_t near_bytes(const struct sb_cpu_gemm *a, int64_t rows)
{
    if (sb_layout_is_quantised(a->layout))
        return NEAR_QUANT_BYTES;
    if (!sb_layout_has_blocks(a->layout))
        return NEAR_STEPS * SB_PANEL * (int64_t)sb_layout_size(a->layout);
    return (a->products == SB_BLOCKS_DOT && rows <= NEAR_ROWS ? NEAR_LINES_BY_DOT : NEAR_LINES) *
           SB_LINE_BYTES;
}

/* How many bytes a step of struct piece prefetches, all groups of rows together. Few rows leave
 * quantised weights to the processor's own prefetcher: they wait for memory, and bursts of
 * prefetches take the buffers for misses from it (gemm_bf16.h). */
static int64_t bytes_to_prefetch(const struct sb_cpu_gemm *a, const struct sb_quant_panel *quants,
                                 int64_t rows)
{
    if (sb_layout_is_quantised(a->layout))
        return rows <= FEW_QUANT_ROWS ? 0 : sb_quant_block_bytes(quants);
    return sb_layout_has_blocks(a->layout) ? SB_LINE_BYTES
                                           : SB_PANEL * (int64_t)sb_layout_size(a->layout);
}

/* Multiplies rows [row, row + n) by the panels [first, last). The pieces of steps are the outermost
 * loop, so that the rows' x of one piece stays in the cache for all panels. A single group of rows
 * that passes over a panel once instead takes all steps at once, and so reads each panel from end
 * to end. So do rows in parts, whose unfinished sums y has no room for. */
static void do_rows(const struct sb_cpu_gemm *a, int64_t first, int64_t last, int64_t row,
                    int64_t n)
{
    const struct sb_quant_panel quants = sb_layout_is_quantised(a->layout)
                                             ? sb_quant_panel(a->layout)
                                             : (struct sb_quant_panel){0};
    const int64_t panel_bytes = sb_panel_bytes(a->layout, a->n_in);
    const int64_t steps = a->products == SB_CHAIN ? a->n_in : sb_whole_blocks(a->n_in);
    const int64_t n_groups = (n * a->parts + sb_cpu_gemm_rows(a) - 1) / sb_cpu_gemm_rows(a);
    const int is_one_pass = n_groups == 1 && (a->products != SB_CHAIN || TILE_GROUPS(n) == GROUPS);
    const int64_t most = is_one_pass || a->parts == PARTS ? steps
                         : a->products == SB_CHAIN        ? CHAIN_PIECE
                                                          : BLOCKS_PIECE;
    const int64_t prefetched = bytes_to_prefetch(a, &quants, n * a->parts);
    const char *panels = a->panels;

    for (int64_t k0 = 0; k0 < steps; k0 += most)
        for (int64_t panel = first; panel < last; panel++) {
            struct piece p = {.w = panels + panel * panel_bytes + sb_panel_bytes(a->layout, k0),
                              .quants = sb_layout_is_quantised(a->layout) ? &quants : NULL,
                              .is_first = k0 == 0};
            const char *next = panel + 1 < last ? p.w + panel_bytes
                                                : panels + first * panel_bytes +
                                                      sb_panel_bytes(a->layout, k0 + most);
            p.steps = steps - k0 < most ? steps - k0 : most;
            p.is_last = k0 + p.steps == steps;
            p.ahead = is_one_pass ? p.w + near_bytes(a, n * a->parts) : next;
            p.ahead_step = prefetched / n_groups;
            do_piece(a, &p, row, n, k0, panel * SB_PANEL);
        }
}

void SB_LEVEL(gemm)(const struct sb_cpu_gemm *a, int64_t first, int64_t last)
{
    int64_t most = ROWS_TOGETHER / a->parts;

    if (sb_cpu_is_integers(a->products)) {
        SB_LEVEL(gemm_int8)(a, first, last);
        return;
    }
    if (sb_cpu_has_tiles(a->products)) {
        SB_LEVEL(gemm_tiles)(a, first, last);
        return;
    }
    if (makes_lines(a)) {
        do_many_rows(a, first, last);
        return;
    }
    for (int64_t row = 0; row < a->m; row += most)
        do_rows(a, first, last, row, a->m - row < most ? a->m - row : most);
}
