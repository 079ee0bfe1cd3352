/*
 * The inner loops of gemm over the layout BF16: functions that multiply 1 to 6 rows by a piece of
 * one panel. gemm.c includes this file once for each way to form the sums, after it has defined
 *
 *     TILE                 the name of the table of functions: TILE[rows - 1]
 *     TILE_CALL(rows)      the name of each function
 *     TILE_PRODUCTS        SB_CHAIN, SB_BLOCKS_FMA or SB_BLOCKS_DOT, a constant
 *     TILE_TARGET          attributes that the functions need, or nothing
 *     TILE_ADD_BLOCK       what adds one block of steps to the sums (gemm.c has these functions)
 *
 * The sums of rows * groups vectors live over the whole piece. What else a block needs, the
 * function that adds it keeps in registers.
 */

/* x [rows, ldx], y [rows, ldy], and the piece of the panel [steps / 2 lines] */
static inline __attribute__((always_inline)) TILE_TARGET void TILE_CALL(n)(const int rows,
                                                                           const int groups,
                                                                           const struct piece *p)
{
    const int64_t block_words = TILE_PRODUCTS == SB_BLOCKS_DOT ? SB_BLOCK / 2 : SB_BLOCK;

    for (int g = 0; g < GROUPS && g * V16 < p->columns; g += groups) {
        v16 sum[MAX_ROWS][GROUPS];
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < groups; j++)
                sum[r][j] = p->is_first ? v_set1(0.0f) : load_y(p, r, g + j);
        struct block b = {.w = p->w + g * V16 * 4,
                          .x = p->x,
                          .ldx = p->ldx,
                          .ahead = g == 0 ? p->ahead : NULL,
                          .ahead_step = p->ahead_step};
        for (int64_t left = p->steps; left > 0; left -= SB_BLOCK) {
            b.steps = left < SB_BLOCK ? (int)left : SB_BLOCK;
            TILE_ADD_BLOCK(sum, rows, groups, &b);
            b.w += SB_BLOCK / 2 * SB_LINE_BYTES;
            b.x += block_words;
            b.ahead += b.ahead ? SB_BLOCK / 2 * p->ahead_step : 0;
        }
        store_sums(p, sum, rows, groups, g);
    }
}

static TILE_TARGET void TILE_CALL(1)(const struct piece *p) { TILE_CALL(n)(1, TILE_WIDTH(1), p); }
static TILE_TARGET void TILE_CALL(2)(const struct piece *p) { TILE_CALL(n)(2, TILE_WIDTH(2), p); }
static TILE_TARGET void TILE_CALL(3)(const struct piece *p) { TILE_CALL(n)(3, TILE_WIDTH(3), p); }
static TILE_TARGET void TILE_CALL(4)(const struct piece *p) { TILE_CALL(n)(4, TILE_WIDTH(4), p); }
static TILE_TARGET void TILE_CALL(5)(const struct piece *p) { TILE_CALL(n)(5, TILE_WIDTH(5), p); }
static TILE_TARGET void TILE_CALL(6)(const struct piece *p) { TILE_CALL(n)(6, TILE_WIDTH(6), p); }

static void (*const TILE[MAX_ROWS])(const struct piece *) = {
    TILE_CALL(1), TILE_CALL(2), TILE_CALL(3), TILE_CALL(4), TILE_CALL(5), TILE_CALL(6)};

#undef TILE
#undef TILE_CALL
#undef TILE_PRODUCTS
#undef TILE_TARGET
#undef TILE_ADD_BLOCK
#undef TILE_WIDTH
