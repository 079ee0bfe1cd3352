/*
 * The inner loops of gemm over the layout BF16, which has two steps in a line and blocks of 32
 * steps (panel.h): in the order of a chain, and in the order of blocks by multiply-adds and by
 * vdpbf16ps. gemm.c includes this file; it defines struct piece.
 *
 * A chain needs one accumulator for each sum, as in gemm_rows.h. In the order of blocks there are
 * two more, the chains of the block in progress. These stay in registers, for up to PART_ROWS rows
 * by PART_GROUPS groups at once. The sums themselves are changed once a block, and lie in memory if
 * there are more rows. So any number of rows can pass over a block of W, a few at a time, while its
 * 4 KiB stay in the first-level cache.
 *
 * Few rows are done with a line so soon that memory is all they wait for. Then prefetches far ahead
 * are slow, probably because each holds one of the processor's few buffers for misses until memory
 * answers. (One row by vdpbf16ps on Zen 4 read 14 GB/s so, and 20 when the processor's own
 * prefetcher did the work.)
 * So up to six rows by vdpbf16ps fetch near by, what that prefetcher mostly has brought; it needs
 * help at the beginning of a page only. One or two rows by multiply-adds fetch far ahead, but one
 * line of the cache for each line of weights, and the prefetcher brings the rest. While more rows
 * compute, it rests. Then all has to be fetched.
 */
#define INLINE static inline __attribute__((always_inline))

/* FEW_ROWS, FEW_BLOCK_ROWS: the most rows that fetch but one line of the cache for each line of
 * weights, by multiply-adds, in a chain and in blocks. Groups of rows that share a piece are
 * larger, because they must fetch all of the next one. Where a block is done group by group of
 * columns, each takes every fourth line of the cache, in which the prefetcher sees no stream (on
 * Zen 4 with AVX2 one row read 8 to 12 GB/s so, and 12 to 15 when it fetched all; on Zen 3 it was
 * 13 when the first group fetched all, and 16 as each fetches a quarter). */
#if defined(SB_LEVEL_AVX512)
enum { PART_ROWS = 3, PART_GROUPS = GROUPS, FEW_ROWS = 2, FEW_BLOCK_ROWS = 2 };
#else
enum { PART_ROWS = 3, PART_GROUPS = 1, FEW_ROWS = 1, FEW_BLOCK_ROWS = 0 };
#endif

/* Beside the accumulators of six rows in a chain, AVX2 has registers for one step's weights and one
 * value of x. If the compiler needs another, an accumulator goes to memory instead, and its chain
 * waits for that: twice the time. So STEP_ENDS keeps it from loading the next step's weights early,
 * and load_odd_of_chain has shifts in place of a mask. */
#if defined(SB_LEVEL_AVX2)
#define STEP_ENDS __asm__ volatile("" : : : "memory")

INLINE __m256 odd8_by_shifts(const uint16_t *p)
{
    const __m256i words = _mm256_loadu_si256((const __m256i *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(words, 16), 16));
}
INLINE v16 load_odd_of_chain(const uint16_t *p)
{
    return v_pair(odd8_by_shifts(p), odd8_by_shifts(p + 16));
}
#else
#define STEP_ENDS ((void)0)

INLINE v16 load_odd_of_chain(const uint16_t *p) { return v_load_odd(p); }
#endif

/* One block of steps. */
struct block {
    const char *w;     /* [16 lines], from the first group of columns on */
    const float *x;    /* [rows, ldx], from the block's first step on */
    const char *ahead; /* as in struct piece, or NULL */
    int64_t ldx, ahead_step;
    int64_t ahead_bytes; /* of ahead_step, how many are fetched */
    int steps;           /* 32, or fewer in the last block of a chain */
};

/* Fetches what is the share of the groups from g on, PART_GROUPS of them, at a pair of steps. */
INLINE void fetch_ahead(const struct block *b, const int g, int pair)
{
    const int64_t step = b->ahead_step * PART_GROUPS / GROUPS;

    if (b->ahead)
        fetch_share(b->ahead + (g / PART_GROUPS * (SB_BLOCK / 2) + pair) * step, PART_GROUPS,
                    b->ahead_bytes * PART_GROUPS / GROUPS);
}

/* The next block of the piece. words: of x from one block to the next */
INLINE void next_block(struct block *b, int64_t words)
{
    b->w += SB_BLOCK / 2 * SB_LINE_BYTES;
    b->x += words;
    if (b->ahead)
        b->ahead += SB_BLOCK / 2 * b->ahead_step;
}

/* One step more for the chains of `rows` rows and the groups from g on: step 2 pair, or the one
 * after it. is_chain: whether acc is a chain over all steps, and not over those of a block */
INLINE void add_step(v16 acc[][GROUPS], const int rows, const int g, const int groups,
                     const struct block *b, int pair, const int is_odd, const int is_chain)
{
    v16 w[GROUPS];

    for (int j = 0; j < groups; j++) {
        const char *line = b->w + pair * SB_LINE_BYTES + (g + j) * V16 * 4;
        const uint16_t *both = (const uint16_t *)(const void *)line;
        w[j] = !is_odd ? v_load_even(both) : is_chain ? load_odd_of_chain(both) : v_load_odd(both);
    }
    for (int r = 0; r < rows; r++) {
        v16 x = v_set1(b->x[r * b->ldx + 2 * pair + is_odd]);
        for (int j = 0; j < groups; j++)
            acc[r][j] = v_fma(x, w[j], acc[r][j]);
    }
    if (is_chain && groups < GROUPS)
        STEP_ENDS;
}

/* ------------------------------------------------------------------ a chain */

/* x [rows, ldx], y [rows, ldy], and the piece of the panel [steps / 2 lines] */
INLINE void chain_n(const int rows, const int groups, const struct piece *p)
{
    for (int g = 0; g < GROUPS && g * V16 < p->columns; g += groups) {
        const int64_t share = p->ahead_step * groups / GROUPS;
        const char *ahead = p->ahead + g / groups * (p->steps / 2) * share;
        struct block b = {.w = p->w, .x = p->x, .ldx = p->ldx};
        v16 sum[MAX_ROWS][GROUPS];
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < groups; j++)
                sum[r][j] = p->is_first ? v_set1(0.0f) : load_y(p, r, g + j);
        for (int64_t left = p->steps; left > 0; left -= SB_BLOCK) {
            b.steps = left < SB_BLOCK ? (int)left : SB_BLOCK;
            for (int pair = 0; pair < b.steps / 2; pair++) {
                fetch_share(ahead, rows <= FEW_ROWS ? 1 : groups, share);
                ahead += share;
                add_step(sum, rows, g, groups, &b, pair, 0, 1);
                add_step(sum, rows, g, groups, &b, pair, 1, 1);
            }
            if (b.steps % 2)
                add_step(sum, rows, g, groups, &b, b.steps / 2, 0, 1);
            next_block(&b, SB_BLOCK);
        }
        store_sums(p, sum, rows, groups, g);
    }
}

static void chain_1(const struct piece *p) { chain_n(1, TILE_GROUPS(1), p); }
static void chain_2(const struct piece *p) { chain_n(2, TILE_GROUPS(2), p); }
static void chain_3(const struct piece *p) { chain_n(3, TILE_GROUPS(3), p); }
static void chain_4(const struct piece *p) { chain_n(4, TILE_GROUPS(4), p); }
static void chain_5(const struct piece *p) { chain_n(5, TILE_GROUPS(5), p); }
static void chain_6(const struct piece *p) { chain_n(6, TILE_GROUPS(6), p); }

static tile_fn *const tiles_bf16[MAX_ROWS] = {chain_1, chain_2, chain_3, chain_4, chain_5, chain_6};

/* ------------------------------------------------------------------ blocks */

/* Of the parts of the rows, how many fetch what is ahead, the first ones: as many as have a line of
 * the cache each for a line of weights. */
static inline int parts_that_fetch(const struct piece *p, int parts)
{
    const int64_t lines = (p->ahead_step + CACHE_LINE - 1) / CACHE_LINE;
    return lines < 1 ? 1 : lines < parts ? (int)lines : parts;
}

/* The two chains of a block. */
struct chains {
    v16 even[PART_ROWS][GROUPS], odd[PART_ROWS][GROUPS];
};

INLINE void chains_clear(struct chains *c, const int rows)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < PART_GROUPS; j++)
            c->even[r][j] = c->odd[r][j] = v_set1(0.0f);
}

INLINE void chains_add(v16 sum[][GROUPS], const int rows, const int g, const struct chains *c)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < PART_GROUPS; j++)
            sum[r][g + j] = v_add(sum[r][g + j], v_add(c->even[r][j], c->odd[r][j]));
}

/* Adds a block by multiply-adds, for PART_GROUPS groups. */
INLINE void add_by_fma(v16 sum[][GROUPS], const int rows, const int g, const struct block *b)
{
    struct chains c;

    chains_clear(&c, rows);
    for (int pair = 0; pair < SB_BLOCK / 2; pair++) {
        fetch_ahead(b, g, pair);
        add_step(c.even, rows, g, PART_GROUPS, b, pair, 0, 0);
        add_step(c.odd, rows, g, PART_GROUPS, b, pair, 1, 0);
    }
    chains_add(sum, rows, g, &c);
}

#define BLOCKS(name) name##_fma
#define BLOCKS_TARGET
#define BLOCK_WORDS SB_BLOCK
#define BLOCKS_FEW FEW_BLOCK_ROWS
#include "gemm_blocks.h"

#if defined(SB_LEVEL_AVX512)

#define TARGET_DOT __attribute__((target("avx512bf16")))

/* Adds two products to each lane: that of the high halves first, then that of the low halves. */
INLINE TARGET_DOT v16 dot(v16 acc, __m512i w, __m512i x)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);
}

/* Two steps more for the chains of `rows` rows: 2 pair and 2 pair + 2 or, if is_odd, those after
 * them. Words of w and of x have both (panel.h, inputs.c). */
INLINE TARGET_DOT void add_two_steps(v16 acc[][GROUPS], const int rows, const struct block *b,
                                     int pair, const int is_odd)
{
    __m512i w[GROUPS];

    for (int j = 0; j < GROUPS; j++) {
        w[j] = _mm512_loadu_si512(b->w + (pair + is_odd) * SB_LINE_BYTES + j * 64);
        /* Keeps it in a register; the compiler would load it anew for every row. */
        __asm__("" : "+v"(w[j]));
    }
    for (int r = 0; r < rows; r++) {
        __m512i x = _mm512_castps_si512(v_set1(b->x[r * b->ldx + pair + is_odd]));
        for (int j = 0; j < GROUPS; j++)
            acc[r][j] = dot(acc[r][j], w[j], x);
    }
}

/* Adds a block by vdpbf16ps. g is 0, because a part has all groups. */
INLINE TARGET_DOT void add_by_dot(v16 sum[][GROUPS], const int rows, const int g,
                                  const struct block *b)
{
    struct chains c;

    chains_clear(&c, rows);
    for (int pair = 0; pair < SB_BLOCK / 2; pair += 2) {
        fetch_ahead(b, g, pair);
        fetch_ahead(b, g, pair + 1);
        add_two_steps(c.even, rows, b, pair, 0);
        add_two_steps(c.odd, rows, b, pair, 1);
    }
    chains_add(sum, rows, g, &c);
}

#define BLOCKS(name) name##_dot
#define BLOCKS_TARGET TARGET_DOT
#define BLOCK_WORDS (SB_BLOCK / 2)
#define BLOCKS_FEW 0
#include "gemm_blocks.h"

#endif
