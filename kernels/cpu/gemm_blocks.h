/*
 * How rows pass over the blocks of a piece, in the order of blocks. gemm_bf16.h includes this file
 * once for each kind of instructions, after it has defined
 *
 *     BLOCKS(name)      name with the suffix of the kind; add_by adds a block to the sums of up to
 *                       PART_ROWS rows and PART_GROUPS groups
 *     BLOCKS_TARGET     attributes that the functions need, or nothing
 *     BLOCK_WORDS       words of a row of x for a block
 *     BLOCKS_FEW        the most rows that fetch one line of the cache for each line of weights
 */

/* Adds a block for all groups. (This is no loop, because the accumulators of a loop that the
 * compiler does not unroll would lie in memory.) */
INLINE BLOCKS_TARGET void BLOCKS(add_groups)(v16 sum[][GROUPS], const int rows,
                                             const struct block *b)
{
    BLOCKS(add_by)(sum, rows, 0, b);
    if (PART_GROUPS == 1) {
        BLOCKS(add_by)(sum, rows, 1, b);
        BLOCKS(add_by)(sum, rows, 2, b);
        BLOCKS(add_by)(sum, rows, 3, b);
    }
}

/* Adds a block for p->rows rows, which are more than one part has, in parts of three rows and of
 * two. */
INLINE BLOCKS_TARGET void BLOCKS(add_rows)(v16 sum[][GROUPS], const struct piece *p, struct block b)
{
    const int parts = (p->rows + PART_ROWS - 1) / PART_ROWS;
    const int large = p->rows - parts * (PART_ROWS - 1); /* parts of three rows */
    const int fetching = parts_that_fetch(p, parts);

    b.ahead_step = (p->ahead_step / fetching + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    b.ahead_bytes = b.ahead_step;
    for (int part = 0; part < parts; part++) {
        const int rows = part < large ? PART_ROWS : PART_ROWS - 1;
        if (part == fetching)
            b.ahead = NULL;
        if (rows == PART_ROWS)
            BLOCKS(add_groups)(sum, PART_ROWS, &b);
        else
            BLOCKS(add_groups)(sum, PART_ROWS - 1, &b);
        if (b.ahead)
            b.ahead += SB_BLOCK / 2 * b.ahead_step;
        b.x += rows * b.ldx;
        sum += rows;
    }
}

/* All blocks of a piece. If the rows make one part, their number is a constant, and so the sums
 * stay in registers, too. */
INLINE BLOCKS_TARGET void BLOCKS(pass)(const struct piece *p, const int rows, const int is_one_part)
{
    struct block b = {.w = p->w,
                      .x = p->x,
                      .ldx = BLOCK_WORDS,
                      .ahead = p->ahead,
                      .ahead_step = p->ahead_step,
                      .ahead_bytes = rows <= BLOCKS_FEW ? CACHE_LINE : SB_LINE_BYTES};
    v16 sum[BLOCK_ROWS][GROUPS];

    for (int r = 0; r < rows; r++)
        for (int j = 0; j < GROUPS; j++)
            sum[r][j] = p->is_first ? v_set1(0.0f) : load_y(p, r, j);
    for (int64_t left = p->steps; left > 0; left -= SB_BLOCK) {
        if (is_one_part)
            BLOCKS(add_groups)(sum, rows, &b);
        else
            BLOCKS(add_rows)(sum, p, b);
        next_block(&b, p->ldblock);
    }
    store_sums(p, sum, rows, GROUPS, 0);
}

/* x [blocks, ldblock], y [rows, ldy], and the piece of the panel [steps / 2 lines] */
static BLOCKS_TARGET void BLOCKS(blocks)(const struct piece *p)
{
    if (p->rows == 1)
        BLOCKS(pass)(p, 1, 1);
    else if (p->rows == 2)
        BLOCKS(pass)(p, 2, 1);
    else if (p->rows == 3)
        BLOCKS(pass)(p, 3, 1);
    else
        BLOCKS(pass)(p, p->rows, 0);
}

#undef BLOCKS
#undef BLOCKS_TARGET
#undef BLOCK_WORDS
#undef BLOCKS_FEW
