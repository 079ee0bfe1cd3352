/*
 * The loops of gemm_int8.c for x86's matrix unit (AMX): compiled once over the real unit and once
 * over the emulated one (tiles.h). gemm_int8.c includes this file, after it has defined
 *
 *     TILES(name)     name with the prefix of the unit's operations; the functions get it too
 *     TILES_TARGET    attributes that the functions need, or nothing
 *
 * A product is that of one group of steps, so that the group has integer sums of its own:
 *
 *     x       [16 rows][32 or 16 steps], as `inputs` made them: rows of a block are side by side
 *     W       [8 or 4 quads][16 columns][4 steps] of signed bytes. Bytes are multiplied where they
 *             lie, nibbles and codes after they were made bytes.
 *     sums    [16 rows][16 columns] of 32 bits, which plain instructions scale and add
 *
 * Rows that the last tile has too much are computed from whatever lies there, and not used. Up to
 * twelve rows are faster by vpdpbusd (kernels.h), since the sums of each group go through memory.
 */

/* The sums of one row tile by one group of steps: of all four groups of columns. */
TILES_INLINE void TILES(int8_products)(struct TILES(unit) * unit, int32_t (*sums)[16][16],
                                       const int8_t *x, const char *w)
{
    const int64_t line = QUAD_BYTES;

    TILES(zero)(unit, 0);
    TILES(zero)(unit, 1);
    TILES(zero)(unit, 2);
    TILES(zero)(unit, 3);
    TILES(load)(unit, 4, x, sizeof(struct sb_cpu_int8));
    TILES(load)(unit, 6, w, line);
    TILES(integers)(unit, 0, 4, 6);
    TILES(load)(unit, 7, w + TILE_LINE, line);
    TILES(integers)(unit, 1, 4, 7);
    TILES(load)(unit, 6, w + 2 * TILE_LINE, line);
    TILES(integers)(unit, 2, 4, 6);
    TILES(load)(unit, 7, w + 3 * TILE_LINE, line);
    TILES(integers)(unit, 3, 4, 7);
    TILES(store)(unit, 0, sums[0], TILE_LINE);
    TILES(store)(unit, 1, sums[1], TILE_LINE);
    TILES(store)(unit, 2, sums[2], TILE_LINE);
    TILES(store)(unit, 3, sums[3], TILE_LINE);
}

/* All blocks of a panel. p->tile_rows: rows of a row tile */
static TILES_TARGET void TILES(multiply)(void *of_thread, struct rows *p, struct quants *q,
                                         int64_t blocks, int64_t ldblock)
{
    struct TILES(unit) *unit = of_thread;
    _Alignas(64) char bytes[QUADS * QUAD_BYTES];
    _Alignas(64) int32_t sums[GROUPS][16][16];
    const int halves = q->panel.groups;

    for (int64_t block = 0; block < blocks; block++, p->x += ldblock) {
        next_block(p, q);
        const char *w = q->panel.kind == SB_KIND_BYTES ? q->q : bytes;
        if (q->panel.kind == SB_KIND_NIBBLES)
            nibbles_to_bytes(bytes, q);
        if (q->panel.kind == SB_KIND_CODES)
            codes_to_bytes(bytes, q);
        for (int row = 0; row < p->n; row += p->tile_rows)
            for (int half = 0; half < halves; half++) {
                TILES(int8_products)
                (unit, sums, p->x[row].q + half * V16, w + half * QUADS / 2 * QUAD_BYTES);
                add_tile(p, row, half, sums);
            }
    }
}
