/*
 * How rows of integers pass over quantised weights. gemm_int8.c includes this file once for each
 * kind of instructions, after it has defined
 *
 *     INT8(name)           name with the suffix of the kind, as vec_int8.h has it
 *     INT8_TARGET          attributes that the functions need, or nothing
 *     INT8_GROUPS(rows)    groups of 16 columns at a time, beside so many rows
 */

/* Adds the products of one group of steps for `groups` groups of columns, from g on. half: which of
 * the `halves` groups of steps that a block has */
INLINE INT8_TARGET void INT8(add_group)(const struct rows *p, const int rows,
                                        const enum sb_kind kind, const int halves, const int half,
                                        int g)
{
    const int groups = INT8_GROUPS(rows), pairs = QUADS / 2 / halves;
    const int zero = INT8(zero)(kind, p->quants->panel.zero);
    int start[ROWS_AT_ONCE];
    INT8(isum) isum[ROWS_AT_ONCE][GROUPS];

    UNROLL
    for (int r = 0; r < rows; r++) {
        start[r] = -zero * sum_of_inputs(&p->x[r], halves, half);
        for (int j = 0; j < groups; j++)
            isum[r][j] = INT8(begin)(kind, start[r]);
    }
    for (int pair = half * pairs; pair < (half + 1) * pairs; pair++) {
        UNROLL
        for (int which = 0; which < 2; which++) {
            INT8(quad) w[GROUPS];
            for (int j = 0; j < groups; j++) {
                const char *at = quad_at(p->quants, kind, 2 * pair + which, g + j);
                if (rows <= near_rows(kind) && p->is_alone && (kind == SB_KIND_BYTES || which == 0))
                    v_prefetch(at + NEAR_BYTES);
                w[j] = INT8(take)(at, kind, which);
            }
            UNROLL
            for (int r = 0; r < rows; r++) {
                const int x = four_inputs(&p->x[r], 2 * pair + which);
                for (int j = 0; j < groups; j++)
                    isum[r][j] = INT8(add)(isum[r][j], w[j], x, kind);
            }
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const float d = scale_of_inputs(p, r);
        for (int j = 0; j < groups; j++)
            add_scaled(p, r, g + j, half, d, INT8(finish)(isum[r][j], kind, start[r]));
    }
}

/* Adds a block for `rows` rows. */
INLINE INT8_TARGET void INT8(add_block)(const struct rows *p, const int rows,
                                        const enum sb_kind kind, const int halves)
{
    for (int g = 0; g < GROUPS; g += INT8_GROUPS(rows)) {
        INT8(add_group)(p, rows, kind, halves, 0, g);
        if (halves == 2)
            INT8(add_group)(p, rows, kind, halves, 1, g);
    }
}

#define INT8_CASE(rows)                             \
    case rows:                                      \
        INT8(add_block)(&part, rows, kind, halves); \
        break

/* All rows of a block, in parts of nearly equal numbers of rows. */
INLINE INT8_TARGET void INT8(all_rows)(const struct rows *p, const enum sb_kind kind,
                                       const int halves)
{
    const int n_parts = (p->n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    const int most = (p->n + n_parts - 1) / n_parts;
    struct rows part = *p;

    for (int row = 0; row < p->n; row += most) {
        switch (p->n - row < most ? p->n - row : most) {
            INT8_CASE(1);
            INT8_CASE(2);
            INT8_CASE(3);
#if defined(SB_LEVEL_AVX512)
            INT8_CASE(4);
#endif
        }
        part.x += most;
        part.sums += most;
    }
}

/* All blocks of a panel. */
static INT8_TARGET void INT8(multiply)(void *unit, struct rows *p, struct quants *q, int64_t blocks,
                                       int64_t ldblock)
{
    (void)unit;
    for (int64_t block = 0; block < blocks; block++, p->x += ldblock) {
        next_block(p, q);
        if (q->panel.kind == SB_KIND_NIBBLES)
            INT8(all_rows)(p, SB_KIND_NIBBLES, 1);
        else if (q->panel.kind == SB_KIND_CODES)
            INT8(all_rows)(p, SB_KIND_CODES, 1);
        else if (q->panel.groups == 1)
            INT8(all_rows)(p, SB_KIND_BYTES, 1);
        else
            INT8(all_rows)(p, SB_KIND_BYTES, 2);
    }
}

#undef INT8
#undef INT8_TARGET
#undef INT8_GROUPS
#undef INT8_CASE
