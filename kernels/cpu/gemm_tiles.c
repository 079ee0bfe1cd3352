/*
 * The matrix product in the order of blocks by x86's matrix unit (AMX), whose one instruction is
 * the definition of that order (gemm.c, tiles.h): 16 rows of x by 16 columns of W, 32 steps.
 *
 *     x     row tiles as `inputs` makes them: [row tile][block] of [16 rows][32 steps]
 *     W     panels in the layout BF16: a tile of it is 16 lines of one of the panel's four groups
 *           of columns
 *     sums  [row tile][group] of [16 rows][16 columns], on the stack: at most 52 KiB
 *
 * m rows make row tiles of equal height, as 20 rows make two of 10. Where a row of x has three
 * parts, they are three rows of one tile, which then has up to five rows of x: a single row by
 * three parts passes over W once. Rows that the last tile has too much are computed from whatever
 * `inputs` left there, and not stored.
 *
 * How the loops are cut. Figures are from one core of a Sapphire Rapids (2 MiB of second-level
 * cache), on which they were measured one against the other; docs/performance.md has the results.
 *
 *     1 x 4 tiles   One row tile by the panel's four groups of columns, whose sums stay in
 *                   registers over a piece, so that x is loaded once for four products. Two row
 *                   tiles by two groups load less, but are no faster. (A product takes 4.4 ns,
 *                   also if the one before adds to the same sums.)
 *     pieces        W passes in pieces of 8 blocks of a panel, 32 KiB, under all row tiles, and so
 *                   comes from the first-level cache for all but the first. For two or three row
 *                   tiles pieces of 4 blocks are faster. A single row tile uses W once, so for it a
 *                   piece is the whole panel.
 *     sums          Between pieces they are in memory. To load and store four of them costs half of
 *                   the time of the piece's 32 products, which wait for that. So the first two
 *                   blocks and the last two go group by group, and sums are loaded and stored while
 *                   other groups multiply: an eighth less time for the whole. The last stores go to
 *                   y, if the sums are its values as they are.
 *     memory        W is read in one stream, panel after panel and each from end to end, and
 *                   fetched 8 blocks ahead into the second-level cache. The fetches are spread, a
 *                   few behind each product. In a burst they seem to fill the buffers in which a
 *                   core awaits lines of its caches: 2 KiB of W took 145 ns beside 12 products and
 *                   182 ns beside 16, and spread among these 16 it took 147 ns.
 *     row tiles     At most 13 pass over W together, which with three parts is half a chunk of 128
 *                   rows. Fewer, but at least 6, when their x would not stay in the second-level
 *                   cache from one panel to the next.
 *
 * The unit is used where the operating system permits it (port.h) and the test below finds that it
 * computes what it should. On all other processors the same loops run over the emulated unit, in
 * tests.
 */
#include "level.h"
#include "port.h"

#define TILES(name) emulated_##name
#define TILES_TARGET
#include "gemm_tiles.h"
#undef TILES
#undef TILES_TARGET

#if defined(SB_HAS_TILES)

#define TILES(name) real_##name
#define TILES_TARGET TARGET_TILES
#include "gemm_tiles.h"
#undef TILES
#undef TILES_TARGET

/* Operands of one product, and the sums that it adds to. */
struct sample {
    _Alignas(64) uint32_t x[16][16], w[16][16], sums[16][16];
};

/* Fills n words with pseudo-random bits. The exponents of both halves, as bf16, are those of
 * random bits & mask, plus low. */
static uint32_t fill(uint32_t *words, int n, uint32_t seed, uint32_t mask, uint32_t low)
{
    const uint32_t keep = ~(0xffu << 23 | 0xffu << 7);

    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t bits = seed ^ seed >> 15, high = (bits >> 23 & mask) + low,
                 lower = (bits >> 7 & mask) + low;
        words[i] = (bits & keep) | high << 23 | lower << 7;
    }
    return seed;
}

/* Whether both units make the same of a sample of `rows` rows. Where one sum is a NaN the other
 * must be too, but its payload may differ. */
static TARGET_TILES int units_agree(const struct sample *s, int rows)
{
    _Alignas(64) float got[16][16], expected[16][16];

    real_one_product(got, s->sums, s->x, s->w, rows);
    emulated_one_product(expected, s->sums, s->x, s->w, rows);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 16; j++)
            if (f32_bits(got[i][j]) != f32_bits(expected[i][j]) &&
                !(isnan(got[i][j]) && isnan(expected[i][j])))
                return 0;
    return 1;
}

/* The samples have exponents from all ranges, so that denormals, infinities, NaNs, and sums that
 * cancel, underflow and overflow come up. */
int SB_LEVEL(tiles_are_blocks)(void)
{
    static const struct {
        uint32_t mask, low;
    } exponents[] = {{255, 0}, {63, 0}, {63, 96}, {127, 64}, {15, 120}, {127, 0}};
    struct sb_fp_env env;
    struct sample s;
    uint32_t seed = 1;
    int same = sb_port_request_amx();

    sb_port_fp_enter(&env);
    for (int i = 0; same && i < 192; i++) {
        const uint32_t mask = exponents[i % 6].mask, low = exponents[i % 6].low;
        seed = fill(s.x[0], 256, seed, mask, low);
        seed = fill(s.w[0], 256, seed, mask, low);
        seed = fill(s.sums[0], 256, seed, mask, low);
        same = units_agree(&s, i % 2 ? 16 : 1 + i / 2 % 16);
    }
    sb_port_fp_leave(&env);
    return same;
}

#else

int SB_LEVEL(tiles_are_blocks)(void) { return 0; }

#endif

void SB_LEVEL(gemm_tiles)(const struct sb_cpu_gemm *a, int64_t first, int64_t last)
{
#if defined(SB_HAS_TILES)
    if (a->products == SB_BLOCKS_TILES) {
        real_gemm(a, first, last);
        return;
    }
#endif
    emulated_gemm(a, first, last);
}
