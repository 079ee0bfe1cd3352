/*
 * Products of many rows with quantised weights. gemm.c includes this file behind gemm_quant.h,
 * whose loops make floats, or pairs of bf16, of the integers in registers, anew for each few rows.
 * Here a block of a panel becomes lines in memory once for all rows, up to MANY_ROWS, which are
 * multiplied by the lines while these are in the first-level cache:
 *
 *     by vdpbf16ps        [16 lines][64] words of the layout BF16_DOT        4 KiB
 *     by multiply-adds    [32 steps][64] floats                              8 KiB
 *
 * The sums of the rows are in memory too, 256 bytes for each. The bits are those of gemm_quant.h.
 *
 * From how many rows on this is faster was measured on Zen 4: 48 rows are 1.27 (q4_0) and 1.46
 * times (q8_0) as fast by vdpbf16ps, and with AVX2 1.9 and 1.36 times. Rejected: the same for
 * multiply-adds with AVX-512, which without it are as fast as they can be there. Codes go by the
 * numbers for nibbles: with AVX2 (Zen 3) lines made two to four rows of them no faster.
 */
enum {
    MANY_ROWS = 48,
/* LINES_BY: the products that do so, or none. MANY_BYTES, MANY_NIBBLES: from how many rows on. */
#if defined(SB_LEVEL_AVX512)
    LINES_BY = SB_BLOCKS_DOT,
    MANY_NIBBLES = 20,
#elif defined(SB_LEVEL_AVX2)
    LINES_BY = SB_BLOCKS_FMA,
    MANY_NIBBLES = 5,
#else
    LINES_BY = -1,
    MANY_NIBBLES = 5,
#endif
    MANY_BYTES = 8
};

/* Whether a product is done so. */
static int makes_lines(const struct sb_cpu_gemm *a)
{
    if ((int)a->products != LINES_BY || !sb_layout_is_quantised(a->layout))
        return 0;
    return (int64_t)a->m * a->parts >=
           (sb_quant_panel(a->layout).kind != SB_KIND_BYTES ? MANY_NIBBLES : MANY_BYTES);
}

/* A block of weights as lines. */
typedef float lines_of_block[SB_BLOCK][SB_PANEL];

/* Rows of x that pass over a panel together. */
struct many_rows {
    const float *x;          /* [n, words of a block] of the block; blocks are ldblock apart */
    const float *x_sums;     /* [n, ldsums] of the block, for weights with minima; else NULL */
    float (*sums)[SB_PANEL]; /* [n] */
    int64_t ldblock, ldsums;
    int n; /* 1..MANY_ROWS */
};

#if defined(SB_LEVEL_AVX512)

#define LINES_TARGET TARGET_DOT
#define LINE_WORDS (SB_BLOCK / 2)

INLINE TARGET_DOT void make_lines(lines_of_block lines, const struct quants *q,
                                  const enum sb_kind kind)
{
    for (int word = 0; word < SB_BLOCK / 8; word++)
        for (int j = 0; j < GROUPS; j++) {
            UNROLL
            for (int i = 0; i < 4; i++)
                _mm512_storeu_si512(lines[4 * word + i] + j * V16,
                                    kind == SB_KIND_BYTES
                                        ? quants_pairs(q, word, i, j)
                                        : v_nibble_pairs(q->table, quants_words(q, word, j),
                                                         quants_step(2, kind, i)));
        }
}

/* Adds `steps` steps of a block to the chains of `rows` rows. g is 0, as in add_by_dot. */
INLINE TARGET_DOT void add_lines(struct chains *c, const int rows, const int g, int first,
                                 const int steps, lines_of_block lines, const float *x)
{
    const struct block b = {.w = (const char *)lines, .x = x, .ldx = LINE_WORDS};

    (void)g;
    for (int pair = first / 2; pair < (first + steps) / 2; pair += 2) {
        add_two_steps(c->even, rows, &b, pair, 0);
        add_two_steps(c->odd, rows, &b, pair, 1);
    }
}

#else

#define LINES_TARGET
#define LINE_WORDS SB_BLOCK

INLINE void make_lines(lines_of_block lines, const struct quants *q, const enum sb_kind kind)
{
    for (int word = 0; word < SB_BLOCK / 8; word++)
        for (int j = 0; j < GROUPS; j++) {
            UNROLL
            for (int k = 0; k < 8; k++)
                v_store(lines[8 * word + k] + j * V16,
                        quants_load(q, kind, word, quants_step(2, kind, k), j));
        }
}

INLINE void add_line(v16 acc[][GROUPS], const int rows, const float *line, const float *x)
{
    const v16 w = v_load(line);

    for (int r = 0; r < rows; r++)
        acc[r][0] = v_fma(v_set1(x[r * LINE_WORDS]), w, acc[r][0]);
}

/* Adds `steps` steps of a block to the chains of `rows` rows and group g of the columns. */
INLINE void add_lines(struct chains *c, const int rows, const int g, int first, const int steps,
                      lines_of_block lines, const float *x)
{
    for (int k = first; k < first + steps; k += 2) {
        add_line(c->even, rows, lines[k] + g * V16, x + k);
        add_line(c->odd, rows, lines[k + 1] + g * V16, x + k + 1);
    }
}

#endif

/* Adds the sums of a group of steps, times their factors, to those in memory, for PART_GROUPS
 * groups of columns. */
INLINE void put_scaled(float (*sums)[SB_PANEL], const int rows, int g, const int halves, int half,
                       const struct chains *c, const struct quants *q, const float *x_sums,
                       int64_t ldsums)
{
    for (int j = 0; j < PART_GROUPS; j++) {
        const v16 scale = v_load(q->scales[half] + (g + j) * V16);
        UNROLL
        for (int r = 0; r < rows; r++) {
            float *at = sums[r] + (g + j) * V16;
            v16 sum = add_scaled_chains(v_load(at), scale, c->even[r][j], c->odd[r][j],
                                        halves == 2);
            if (x_sums)
                sum = v_fma(v_load(q->mins + (g + j) * V16), v_set1(x_sums[r * ldsums]), sum);
            v_store(at, sum);
        }
    }
}

/* Adds a block, whose lines are made, for `rows` rows and all groups of columns. */
INLINE LINES_TARGET void add_lines_of_rows(float (*sums)[SB_PANEL], const int rows,
                                           const int halves, const struct quants *q,
                                           lines_of_block lines, const float *x,
                                           const float *x_sums, int64_t ldsums)
{
    struct chains c;

    for (int g = 0; g < GROUPS; g += PART_GROUPS)
        for (int half = 0; half < halves; half++) {
            chains_clear(&c, rows);
            add_lines(&c, rows, g, half * SB_BLOCK / halves, SB_BLOCK / halves, lines, x);
            put_scaled(sums, rows, g, halves, half, &c, q, x_sums, ldsums);
        }
}

/* The same for all rows, in parts of nearly equal numbers of them. */
INLINE LINES_TARGET void add_lines_of_all(const struct many_rows *p, const int halves,
                                          const struct quants *q, lines_of_block lines)
{
    const int parts = (p->n + PART_ROWS - 1) / PART_ROWS;
    const float *x = p->x, *x_sums = p->x_sums;
    float(*sums)[SB_PANEL] = p->sums;

    for (int left = p->n, part = parts; part > 0; part--) {
        const int rows = (left + part - 1) / part;
        if (rows == 3)
            add_lines_of_rows(sums, 3, halves, q, lines, x, x_sums, p->ldsums);
        else if (rows == 2)
            add_lines_of_rows(sums, 2, halves, q, lines, x, x_sums, p->ldsums);
        else
            add_lines_of_rows(sums, 1, halves, q, lines, x, x_sums, p->ldsums);
        x += rows * LINE_WORDS;
        x_sums = x_sums ? x_sums + rows * p->ldsums : NULL;
        sums += rows;
        left -= rows;
    }
}

/* All blocks of a panel. */
static LINES_TARGET void all_lines(struct many_rows *p, struct quants *q, int64_t blocks)
{
    _Alignas(64) lines_of_block lines;

    for (int64_t block = 0; block < blocks; block++) {
        quants_next(q);
        quants_spoil(q);
        if (q->panel.kind == SB_KIND_BYTES)
            make_lines(lines, q, SB_KIND_BYTES);
        else if (q->panel.kind == SB_KIND_NIBBLES)
            make_lines(lines, q, SB_KIND_NIBBLES);
        else
            make_lines(lines, q, SB_KIND_CODES);
        if (q->panel.groups == 1)
            add_lines_of_all(p, 1, q, lines);
        else
            add_lines_of_all(p, 2, q, lines);
        p->x += p->ldblock;
        p->x_sums = p->x_sums ? p->x_sums + 1 : NULL;
    }
}

/* Puts the sums of n rows of x into y, whose first row is `row`. */
static void store_many(const struct sb_cpu_gemm *a, float (*sums)[SB_PANEL], int64_t row, int n,
                       int64_t column)
{
    const int64_t left = a->n_out - column;
    struct piece p = {.y = a->y + row * a->ldy + column,
                      .bias = a->bias ? a->bias + column : NULL,
                      .ldy = a->ldy,
                      .columns = (int32_t)(left < SB_PANEL ? left : SB_PANEL),
                      .is_last = 1,
                      .is_split = a->parts == PARTS};
    v16 sum[PARTS][GROUPS];

    for (int r = 0; r < n; r += a->parts, p.y += p.ldy) {
        for (int part = 0; part < a->parts; part++)
            for (int j = 0; j < GROUPS; j++)
                sum[part][j] = v_load(sums[r + part] + j * V16);
        store_sums(&p, sum, a->parts, GROUPS, 0);
    }
}

/* Multiplies all rows by the panels [first, last), MANY_ROWS rows of x at a time. */
static void do_many_rows(const struct sb_cpu_gemm *a, int64_t first, int64_t last)
{
    const struct sb_quant_panel panel = sb_quant_panel(a->layout);
    const int64_t blocks = sb_whole_blocks(a->n_in) / SB_BLOCK;
    const int64_t panel_bytes = sb_panel_bytes(a->layout, a->n_in);
    const int64_t n_turns = (a->m * a->parts + MANY_ROWS - 1) / MANY_ROWS;
    const int64_t most = (a->m + n_turns - 1) / n_turns; /* rows of y in a turn */
    _Alignas(64) float sums[MANY_ROWS][SB_PANEL];

    for (int64_t at = first; at < last; at++)
        for (int64_t row = 0; row < a->m; row += most) {
            const char *w = (const char *)a->panels + at * panel_bytes;
            const int64_t part = row * a->parts, n = a->m - row < most ? a->m - row : most;
            struct quants q = quants_begin(&panel, w, w + NEAR_QUANT_BYTES,
                                           row > 0 ? 0 : sb_quant_block_bytes(&panel));
            struct many_rows p = {.x = (const float *)a->x + part * LINE_WORDS,
                                  .x_sums = panel.has_mins ? a->sums + part * blocks : NULL,
                                  .sums = sums,
                                  .ldblock = a->m * a->parts * LINE_WORDS,
                                  .ldsums = blocks,
                                  .n = (int)(n * a->parts)};
            memset(sums, 0, (size_t)p.n * sizeof *sums);
            all_lines(&p, &q, blocks);
            store_many(a, sums, row, p.n, at * SB_PANEL);
        }
}

#undef LINES_TARGET
#undef LINE_WORDS
