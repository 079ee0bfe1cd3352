/*
 * The inner loops of gemm in the order of a chain, for weights that lie step by step: functions
 * that multiply 1 to 6 rows by a piece of one panel. gemm.c includes this file once for each
 * layout, after it has defined
 *
 *     TILE                 the name of the table of functions: TILE[rows - 1]
 *     TILE_CALL(rows)      the name of each function
 *     TILE_LAYOUT          the layout, a constant
 *
 * rows * groups accumulators stay in registers over the whole loop over k, so each weight is loaded
 * once for all the rows. Every accumulator is a chain of its own over ascending k. So the shape of
 * the tile cannot show in the bits.
 */

/* x [rows, ldx], y [rows, ldy], and the piece of the panel [steps][64] */
static inline __attribute__((always_inline)) void TILE_CALL(n)(const int rows, const int groups,
                                                               const struct piece *p)
{
    const int64_t step_bytes = SB_PANEL * (int64_t)sb_layout_size(TILE_LAYOUT);

    for (int g = 0; g < GROUPS && g * V16 < p->columns; g += groups) {
        v16 acc[MAX_ROWS][GROUPS];
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < groups; j++)
                acc[r][j] = p->is_first ? v_set1(0.0f) : load_y(p, r, g + j);
        const int64_t share = p->ahead_step * groups / GROUPS;
        const char *w_at = p->w, *ahead = p->ahead + g / groups * p->steps * share;
        for (int64_t k = 0; k < p->steps; k++, w_at += step_bytes, ahead += share) {
            v16 w[GROUPS];
            for (int j = 0; j < groups; j++)
                w[j] = load_group(w_at, TILE_LAYOUT, g + j);
            fetch_share(ahead, groups, share);
            for (int r = 0; r < rows; r++) {
                v16 x = v_set1(p->x[r * p->ldx + k]);
                for (int j = 0; j < groups; j++)
                    acc[r][j] = v_fma(x, w[j], acc[r][j]);
            }
        }
        store_sums(p, acc, rows, groups, g);
    }
}

static void TILE_CALL(1)(const struct piece *p) { TILE_CALL(n)(1, TILE_GROUPS(1), p); }
static void TILE_CALL(2)(const struct piece *p) { TILE_CALL(n)(2, TILE_GROUPS(2), p); }
static void TILE_CALL(3)(const struct piece *p) { TILE_CALL(n)(3, TILE_GROUPS(3), p); }
static void TILE_CALL(4)(const struct piece *p) { TILE_CALL(n)(4, TILE_GROUPS(4), p); }
static void TILE_CALL(5)(const struct piece *p) { TILE_CALL(n)(5, TILE_GROUPS(5), p); }
static void TILE_CALL(6)(const struct piece *p) { TILE_CALL(n)(6, TILE_GROUPS(6), p); }

static tile_fn *const TILE[MAX_ROWS] = {TILE_CALL(1), TILE_CALL(2), TILE_CALL(3),
                                        TILE_CALL(4), TILE_CALL(5), TILE_CALL(6)};

#undef TILE
#undef TILE_CALL
#undef TILE_LAYOUT
