/*
 * How rows pass over quantised weights. gemm_quant.h includes this file once for each kind of
 * instructions, after it has defined
 *
 *     QUANT(name)         name with the suffix of the kind; chains_by adds steps to the chains
 *     QUANT_TARGET        attributes that the functions need, or nothing
 *     QUANT_GROUPS(rows)  groups of 16 columns at a time, beside so many rows
 */

/* Adds a block for `rows` rows and all groups of columns. */
INLINE QUANT_TARGET void QUANT(add_block)(v16 sum[][GROUPS], const int rows,
                                          const enum sb_kind kind, const struct quants *q,
                                          const float *x, const float *x_sums, int64_t ldsums)
{
    const int groups = QUANT_GROUPS(rows), words = SB_BLOCK / 8 / q->panel.groups;
    struct quant_chains c;

    for (int g = 0; g < GROUPS; g += groups)
        for (int half = 0; half < q->panel.groups; half++) {
            UNROLL
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < groups; j++)
                    c.even[r][j] = c.odd[r][j] = v_set1(0.0f);
            QUANT(chains_by)(&c, rows, g, groups, kind, q, half * words, words, x);
            add_scaled(sum, rows, g, groups, &c, q, half, x_sums, ldsums);
        }
}

/* All blocks of a piece. */
INLINE QUANT_TARGET void QUANT(quant_pass)(const struct piece *p, const int rows,
                                           const enum sb_kind kind)
{
    struct quants q = quants_begin(p->quants, p->w, p->ahead, p->ahead_step);
    const float *x = p->x, *x_sums = p->sums;
    v16 sum[QUANT_ROWS][GROUPS];

    for (int r = 0; r < rows; r++)
        for (int j = 0; j < GROUPS; j++)
            sum[r][j] = p->is_first ? v_set1(0.0f) : load_y(p, r, j);
    for (int64_t left = p->steps; left > 0; left -= SB_BLOCK) {
        quants_next(&q);
        if (rows > 1)
            quants_spoil(&q);
        QUANT(add_block)(sum, rows, kind, &q, x, x_sums, p->ldsums);
        x += p->ldblock;
        x_sums = x_sums ? x_sums + 1 : NULL;
    }
    store_sums(p, sum, rows, GROUPS, 0);
}

#define QUANT_CASE(rows)                      \
    case rows:                                \
        QUANT(quant_pass)(&part, rows, kind); \
        break

/* A piece, in parts of nearly equal numbers of rows. Three rows that are the parts of one stay
 * together. */
INLINE QUANT_TARGET void QUANT(quants)(const struct piece *p, const enum sb_kind kind)
{
    const int n_parts = (p->rows + QUANT_ROWS - 1) / QUANT_ROWS;
    const int unit = p->is_split ? PARTS : 1;
    const int most = (p->rows / unit + n_parts - 1) / n_parts * unit;
    struct piece part = *p;

    for (int row = 0; row < p->rows; row += most) {
        part.rows = p->rows - row < most ? p->rows - row : most;
        switch (part.rows) {
            QUANT_CASE(1);
            QUANT_CASE(2);
            QUANT_CASE(3);
#if QUANT_ROWS > 3
            QUANT_CASE(4);
            QUANT_CASE(5);
            QUANT_CASE(6);
#endif
        }
        part.x += most * p->ldx;
        part.y += most / unit * p->ldy;
        part.sums = p->sums ? part.sums + most * p->ldsums : NULL;
    }
}

static QUANT_TARGET void QUANT(bytes)(const struct piece *p) { QUANT(quants)(p, SB_KIND_BYTES); }
static QUANT_TARGET void QUANT(nibbles)(const struct piece *p)
{
    QUANT(quants)(p, SB_KIND_NIBBLES);
}
#if !defined(SB_LEVEL_AVX512) /* where codes are nibbles with another table */
static QUANT_TARGET void QUANT(codes)(const struct piece *p) { QUANT(quants)(p, SB_KIND_CODES); }
#endif

#undef QUANT
#undef QUANT_TARGET
#undef QUANT_CASE
#undef QUANT_GROUPS
