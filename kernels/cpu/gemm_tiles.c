/*
 * The matrix product in the order of blocks by x86's matrix unit (AMX), whose one instruction is
 * the definition of that order (gemm.c, tiles.h): 16 rows of x by 16 columns of W, 32 steps.
 *
 *     x     row tiles as `inputs` makes them: [row tile][part][block] of [16 rows][32 steps]
 *     W     panels in the layout BF16: a tile of it is 16 lines of one of the panel's four groups
 *           of columns
 *     sums  [row tile][part][group] of [16 rows][16 columns], on the stack: at most 48 KiB
 *
 * m rows make ceil(m / 16) row tiles of equal height, as 20 rows make two of 10, so that the unit
 * is set up once and multiplies hardly any rows that nobody wants. Rows that the last tile has too
 * much are computed from whatever `inputs` left there, and not stored.
 *
 * How the loops are cut. Figures are from one core of a Sapphire Rapids, on which prototypes of
 * these loops were measured; this file itself was measured on none.
 *
 *     2 x 2 tiles   Two row tiles by two groups of columns, so that four loads serve four products.
 *                   A load takes 2.2 ns from the first-level cache and 5.6 ns from the second, four
 *                   products 18 to 22 ns: with W in the first level and x in the second the loads
 *                   of a step take 16 ns, and hide behind the products. (Measured: 2.3 TFLOP/s so,
 *                   1.8 with all of it in the second level.) A row tile that is left over goes by
 *                   four groups, with five loads for four products.
 *     pieces        W passes in pieces of 8 blocks of a panel, 32 KiB, under all row tiles. Their
 *                   sums are loaded and stored at the ends of a piece. (Measured: 1.9 TFLOP/s with
 *                   pieces of 8 blocks.) A longer piece would leave the first level: of 48 KiB in
 *                   12 ways it takes 8 ways of each set. Two groups of columns alone would not fit
 *                   better, because their lines, 256 bytes apart, share half of the sets. A single
 *                   row tile uses W once, so for it a piece is the whole panel.
 *     memory        W is read in one stream, panel after panel and each from end to end. Every step
 *                   prefetches its share of the next piece, into the second level: to prefetch into
 *                   the first made the products slower (measured).
 *     row tiles     At most 12 pass over W together. With 192 rows of x, 14 GB/s of W, which is
 * what a core gets from memory, keep it busy at 2.7 TFLOP/s, which is what the unit does at best,
 * so more would not pay. Fewer, but at least 6, when their x would not stay in the second-level
 * cache (2 MiB) from one panel to the next.
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
