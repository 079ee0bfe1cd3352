/*
 * Tiles are filled by the row: each block of a row is taken apart (quant.h), and its integers and
 * factors are put where quant_tile.h says. Words are made whole, of the eight integers that a lane
 * has of a block; integer by integer took up to 3.6 times as long. Rows of one tile share words of
 * upper bits, so these are added to what is there. Elements of four bits, which tiles have as files
 * do, move without becoming integers, in two thirds of the time (Q4_0) and a third (MXFP4).
 */
#include "backend/cuda/quant_pack.h"

#include <string.h>

#include "../kernels/cuda/quant_tile.h"
#include "quant.h"

static void add_word(char *tile, int at, uint32_t bits)
{
    uint32_t word;

    memcpy(&word, tile + at, sizeof word);
    word |= bits;
    memcpy(tile + at, &word, sizeof word);
}

/* The lane's pairs in fields of `width` bits: pair i from bit width * i on, and 16 bits above it
 * its odd column. */
static inline uint32_t fields(const uint8_t e[8], int width)
{
    const uint32_t mask = (1u << width) - 1;
    uint32_t word = 0;

    for (int i = 0; i < 4; i++)
        word |= (e[2 * i] & mask) << width * i | (e[2 * i + 1] & mask) << (width * i + 16);
    return word;
}

/* Puts what one lane has of a row's block. e: by pair, the even column first. The first pair of a
 * word says where the word is. */
static inline void put_lane(char *tile, enum sb_dtype type, int row, int column, const uint8_t e[8])
{
    const struct sb_tile_place low = sb_tile_low(type, row, column);
    uint8_t upper[8];

    if (type == SB_Q8_0) {
        for (int half = 0; half < 2; half++) {
            const uint8_t *b = e + 4 * half;
            add_word(tile, low.at + 4 * half,
                     b[0] | (uint32_t)b[2] << 8 | (uint32_t)b[1] << 16 | (uint32_t)b[3] << 24);
        }
        return;
    }
    add_word(tile, low.at, fields(e, 4));
    if (type == SB_Q5_K || type == SB_Q6_K) {
        const struct sb_tile_place high = sb_tile_high(type, row, column);
        for (int i = 0; i < 8; i++)
            upper[i] = (uint8_t)(e[i] >> 4);
        add_word(tile, high.at, fields(upper, type == SB_Q5_K ? 1 : 2) << high.shift);
    }
}

static inline void put_integers(char *tile, enum sb_dtype type, int row, int column,
                                const int8_t *q, int n)
{
    for (int block = 0; block < n; block += SB_QUANT_TILE_BLOCK)
        for (int t = 0; t < 4; t++) {
            const int first = block + (type == SB_Q6_K ? 4 : 8) * t;
            uint8_t e[8];
            for (int i = 0; i < 8; i++)
                e[i] = (uint8_t)(q[first + i + (type == SB_Q6_K ? i / 4 * 12 : 0)] +
                                 SB_QUANT_TILE_ZERO(type));
            put_lane(tile, type, row, column + first, e);
        }
}

/* Of Q8_0, Q4_0 and MXFP4, whose tiles have two blocks. */
static void put_scale(char *tile, int row, int block, uint16_t d)
{
    memcpy(tile + row % 8 * 8 + block * 4 + row / 8 * 2, &d, sizeof d);
}

/* Of Q4_K and Q5_K. */
static void put_scales_and_mins(char *tile, int row, const struct sb_quant_block *block)
{
    char *head = tile + row * 16;

    memcpy(head, &block->d, 2);
    memcpy(head + 2, &block->dmin, 2);
    for (int j = 0; j < 4; j++) {
        const unsigned scale = (unsigned)block->scales[j + 4], min = block->mins[j + 4];
        head[4 + j] = (char)((unsigned)block->scales[j] | scale >> 4 << 6);
        head[8 + j] = (char)(block->mins[j] | min >> 4 << 6);
        head[12 + j] = (char)((scale & 15) | (min & 15) << 4);
    }
}

/* Of Q6_K. */
static void put_signed_scales(char *tile, int row, const struct sb_quant_block *block)
{
    memcpy(tile + row * 16, block->scales, 16);
    memcpy(tile + SB_QUANT_TILE_ROWS * 16 + row % 8 * 4 + row / 8 * 2, &block->d, 2);
}

/* Takes what `mask` covers out of each of four numbers of 16 bits, and puts these fields side by
 * side: a power of two of `to`, 2^(48 + at - 16 i), brings field i to bit `at` of the result. What
 * the other powers make of field i is above or below the 16 bits that are taken. */
static inline uint32_t gathered(uint64_t numbers, uint64_t mask, uint64_t to)
{
    return (uint32_t)((numbers & mask * 0x0001000100010001u) * to >> 48);
}

#define TO(i, at) ((uint64_t)1 << (48 + (at)-16 * (i)))

/* The even columns of a lane's pairs, out of the lower bytes of four numbers. */
static inline uint32_t half_word(enum sb_dtype type, uint64_t e)
{
    if (type == SB_Q4_0)
        return gathered(e, 15, TO(0, 0) | TO(1, 4) | TO(2, 8) | TO(3, 12));
    return gathered(e, 7, TO(0, 0) | TO(1, 3) | TO(2, 6) | TO(3, 9)) |
           gathered(e >> 3, 1, TO(0, 1) | TO(1, 0) | TO(2, 3) | TO(3, 2)) << 12;
}

/* A block of Q4_0 or MXFP4. Lanes 0 and 1 have the lower halves of the bytes, and the others the
 * upper ones. */
static inline void put_halves(char *tile, enum sb_dtype type, int row, int column, const void *from)
{
    uint8_t bytes[16];

    put_scale(tile, row, column / SB_QUANT_TILE_BLOCK, sb_quant_halves(bytes, type, from));
    for (int t = 0; t < 4; t++) {
        uint64_t e;
        memcpy(&e, bytes + t % 2 * 8, sizeof e);
        e >>= t / 2 * 4;
        add_word(tile, sb_tile_low(type, row, column + 8 * t).at,
                 half_word(type, e) | half_word(type, e >> 8) << 16);
    }
}

/* Puts one block of the file into its tile. column: of the tile, at which the block begins. A case
 * a type makes loops of constants. */
static void put_block(char *tile, enum sb_dtype type, int row, int column, const void *from)
{
    struct sb_quant_block block;

    if (type == SB_Q4_0) {
        put_halves(tile, SB_Q4_0, row, column, from);
        return;
    }
    if (type == SB_MXFP4) {
        put_halves(tile, SB_MXFP4, row, column, from);
        return;
    }
    sb_quant_unpack(&block, type, from);
    switch (type) {
    case SB_Q8_0:
        put_scale(tile, row, column / SB_QUANT_TILE_BLOCK, block.d);
        put_integers(tile, SB_Q8_0, row, column, block.q, 32);
        break;
    case SB_Q4_K:
        put_scales_and_mins(tile, row, &block);
        put_integers(tile, SB_Q4_K, row, 0, block.q, 256);
        break;
    case SB_Q5_K:
        put_scales_and_mins(tile, row, &block);
        put_integers(tile, SB_Q5_K, row, 0, block.q, 256);
        break;
    default:
        put_signed_scales(tile, row, &block);
        put_integers(tile, SB_Q6_K, row, 0, block.q, 256);
    }
}

void sb_quant_pack(void *tiles, enum sb_dtype type, int32_t n_in, int32_t first, int32_t n,
                   const void *rows)
{
    const struct sb_quant *quant = sb_quant_of(type);
    const size_t row_bytes = sb_dtype_row_bytes(type, (size_t)n_in);
    const int32_t columns = SB_QUANT_TILE_COLUMNS(type);

    for (int32_t r = 0; r < n; r++) {
        const char *from = (const char *)rows + (size_t)r * row_bytes;
        char *line = (char *)tiles +
                     (size_t)((first + r) / SB_QUANT_TILE_ROWS) * sb_tile_row_bytes(type, n_in);
        for (int32_t k = 0; k < n_in; k += quant->block, from += quant->bytes)
            put_block(line + (size_t)(k / columns) * (size_t)SB_QUANT_TILE_BYTES(type), type,
                      (first + r) % SB_QUANT_TILE_ROWS, k % columns, from);
    }
}
