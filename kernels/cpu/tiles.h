/*
 * The operations of x86's matrix unit (AMX), and the same operations emulated.
 *
 * The unit has eight registers, which are tiles of up to 16 rows of 64 bytes. They are used so:
 *
 *     tiles 0..3   sums       [rows][16] floats
 *     tiles 4, 5   factors x  [rows][32] bf16: the 32 steps of a block
 *     tiles 6, 7   factors W  [16 lines][16 columns][2] bf16: the even and the odd step of a line
 *
 * or, for products of integers, with sums of 32 bits in tiles 0 to 3,
 *
 *     tiles 4, 5   factors x  [rows][4 lines] bytes: 32 or 16 steps
 *     tiles 6, 7   factors W  [8 or 4 lines][16 columns][4] bytes: the four steps of a quad
 *
 *     enter(unit, rows, lines)        begins: every tile of sums and of x has so many rows, and
 *                                     every tile of W so many lines, of bf16 sixteen
 *     zero(unit, t)                   t = 0
 *     load(unit, t, from, stride)     row i of t = the bytes at from + i * stride: 64, but of
 *                                     x 4 * lines
 *     store(unit, t, to, stride)      the same in the other direction
 *     product(unit, sum, x, w)        sum = sum + x W for one block, in the order that gemm.c calls
 *                                     blocks: sum + (even chain + odd chain)
 *     integers(unit, sum, x, w)       sum = sum + x W, of integers
 *     leave(unit)                     ends: the thread's tiles are as they were at `enter`
 *
 * They exist with the prefix real_ and with the prefix emulated_. gemm_tiles.h is compiled over
 * each of them. `unit` is memory of the caller, so there is no other state than the registers
 * themselves. Tiles are named by literal numbers, because that is what the instructions contain.
 *
 * That the unit computes in this order was measured on Sapphire Rapids: with denormals flushed, no
 * difference in ten million outputs over all exponents, infinities and NaNs. The library tests it
 * again on each processor before it uses the unit (tiles_are_blocks in gemm_tiles.c).
 */
#ifndef SB_CPU_TILES_H
#define SB_CPU_TILES_H

#include "vec.h"

enum {
    TILE_LINE = 64, /* bytes of a row of a tile */
    TILE_BYTES = 16 * TILE_LINE,
    TILE_FACTORS = 4, /* the first tile of x */
    TILE_WEIGHTS = 6, /* the first tile of W */
    TILE_REGISTERS = 8
};

static inline int tile_is_x(int t) { return t >= TILE_FACTORS && t < TILE_WEIGHTS; }

/* ------------------------------------------------------------------ emulated */

struct emulated_unit {
    int rows[TILE_REGISTERS], bytes[TILE_REGISTERS]; /* of a tile, of a row of it */
    uint32_t words[TILE_REGISTERS][16][16];
};

static inline void emulated_enter(struct emulated_unit *unit, int rows, int lines)
{
    for (int t = 0; t < TILE_REGISTERS; t++) {
        unit->rows[t] = t < TILE_WEIGHTS ? rows : lines;
        unit->bytes[t] = tile_is_x(t) ? 4 * lines : TILE_LINE;
    }
}

static inline void emulated_zero(struct emulated_unit *unit, int t)
{
    memset(unit->words[t], 0, sizeof unit->words[t]);
}

static inline void emulated_load(struct emulated_unit *unit, int t, const void *from,
                                 int64_t stride)
{
    for (int i = 0; i < unit->rows[t]; i++)
        memcpy(unit->words[t][i], (const char *)from + i * stride, (size_t)unit->bytes[t]);
}

static inline void emulated_store(const struct emulated_unit *unit, int t, void *to, int64_t stride)
{
    for (int i = 0; i < unit->rows[t]; i++)
        memcpy((char *)to + i * stride, unit->words[t][i], TILE_LINE);
}

/* One row of x times W, for all 16 columns: sum [16], x [16 words], w [16 lines][16 words] */
static inline void emulated_row(uint32_t *sum, const uint32_t *x, uint32_t (*w)[16])
{
    v16 even = v_set1(0.0f), odd = even, before;
    float values[V16];

    for (int line = 0; line < 16; line++) {
        const uint16_t *at = (const uint16_t *)(const void *)w[line];
        even = v_fma(v_set1(bits_f32(x[line] << 16)), v_load_even(at), even);
        odd = v_fma(v_set1(bits_f32(x[line] & 0xffff0000u)), v_load_odd(at), odd);
    }
    memcpy(values, sum, sizeof values);
    before = v_load(values);
    v_store(values, v_add(before, v_add(even, odd)));
    memcpy(sum, values, sizeof values);
}

static inline void emulated_product(struct emulated_unit *unit, int sum, int x, int w)
{
    for (int i = 0; i < unit->rows[sum]; i++)
        emulated_row(unit->words[sum][i], unit->words[x][i], unit->words[w]);
}

/* The sum of the products of four signed bytes and four others. */
static inline int32_t emulated_quad(uint32_t x, uint32_t w)
{
    int8_t a[4], b[4];

    memcpy(a, &x, sizeof a);
    memcpy(b, &w, sizeof b);
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
}

static inline void emulated_integers(struct emulated_unit *unit, int sum, int x, int w)
{
    for (int i = 0; i < unit->rows[sum]; i++)
        for (int line = 0; line < unit->rows[w]; line++)
            for (int column = 0; column < 16; column++)
                unit->words[sum][i][column] += (uint32_t)emulated_quad(
                    unit->words[x][i][line], unit->words[w][line][column]);
}

static inline void emulated_leave(struct emulated_unit *unit) { (void)unit; }

/* ------------------------------------------------------------------ real */

/* There are intrinsics for the unit in gcc since version 11 and in clang since version 12. */
#if defined(__x86_64__) && ((defined(__clang__) && __clang_major__ >= 12) || \
                            (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 11))

#include <immintrin.h>

#define SB_TILE_INTRINSICS 1
#define TARGET_TILES __attribute__((target("amx-tile,amx-bf16,amx-int8,xsave,xsavec")))

/* The memory of LDTILECFG: palette 1 has the eight tiles of 16 rows. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t line_bytes[16];
    uint8_t rows[16];
};

/* The host may have tiles of its own in this thread. The configuration says so, and reading it is
 * cheap. Only then all of the tiles' state is put aside: the components 17 and 18 of XSAVE, in its
 * compacted form. */
#define TILE_STATE_MASK (UINT64_C(3) << 17)
struct real_unit {
    _Alignas(64) struct tile_config host;
    _Alignas(64) uint8_t state[512 + 64 + 64 + TILE_REGISTERS * TILE_BYTES]; /* written by XSAVEC */
};

#if defined(SB_LEVEL_AVX512)
#define SB_HAS_TILES 1

static inline TARGET_TILES void real_enter(struct real_unit *unit, int rows, int lines)
{
    _Alignas(64) struct tile_config ours = {.palette = 1};

    _tile_storeconfig(&unit->host);
    if (unit->host.palette != 0) {
        memset(unit->state + 512, 0, 64); /* the header, whose unused bytes XRSTOR wants to be 0 */
        _xsavec64(unit->state, TILE_STATE_MASK);
    }
    for (int t = 0; t < TILE_REGISTERS; t++) {
        ours.line_bytes[t] = (uint16_t)(tile_is_x(t) ? 4 * lines : TILE_LINE);
        ours.rows[t] = (uint8_t)(t < TILE_WEIGHTS ? rows : lines);
    }
    /* The intrinsics do not tell gcc all of the memory that they read. What was written to it
     * before must be there now. */
    __asm__ volatile("" : : "r"(&ours) : "memory");
    _tile_loadconfig(&ours);
}

static inline TARGET_TILES void real_leave(struct real_unit *unit)
{
    /* Without a configuration the unit's state is at rest, and costs nothing when the operating
     * system switches threads. */
    if (unit->host.palette != 0)
        _xrstor64(unit->state, TILE_STATE_MASK);
    else
        _tile_release();
}

#define REAL(unit, operation) \
    do {                      \
        (void)(unit);         \
        operation;            \
    } while (0)
#define real_zero(unit, t) REAL(unit, _tile_zero(t))
/* What was written to the memory before must be there now, as in real_enter. */
#define real_load(unit, t, from, stride) \
    REAL(unit, __asm__ volatile("" : : : "memory"); _tile_loadd(t, from, stride))
#define real_store(unit, t, to, stride) REAL(unit, _tile_stored(t, to, stride))
#define real_product(unit, sum, x, w) REAL(unit, _tile_dpbf16ps(sum, x, w))
#define real_integers(unit, sum, x, w) REAL(unit, _tile_dpbssd(sum, x, w))

#endif /* SB_LEVEL_AVX512 */
#endif /* SB_TILE_INTRINSICS */

#endif
