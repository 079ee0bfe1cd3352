/*
 * Tiles are filled by the row: each block of a row is taken apart (quant.h), and its integers and
 * factors are put where quant_tile.h says. Words are made whole, of the eight integers that a lane
 * has of a block; integer by integer took up to 3.6 times as long. Rows of one tile share words of
 * upper bits, so these are added to what is there.
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

/* The code of an integer of MXFP4, one of sb_quant_codes. */
static inline uint8_t code_of(int q)
{
    const int size = q < 0 ? -q : q;

    return (uint8_t)((q < 0) << 3 | (size - (size > 4) - (size > 6) - 3 * (size > 8)));
}

static inline void put_integers(char *tile, enum sb_dtype type, int row, int column,
                                const int8_t *q, int n)
{
    for (int block = 0; block < n; block += SB_QUANT_TILE_BLOCK)
        for (int t = 0; t < 4; t++) {
            const int first = block + (type == SB_Q6_K ? 4 : 8) * t;
            uint8_t e[8];
            for (int i = 0; i < 8; i++) {
                const int integer = q[first + i + (type == SB_Q6_K ? i / 4 * 12 : 0)];
                e[i] = type == SB_MXFP4 ? code_of(integer)
                                        : (uint8_t)(integer + SB_QUANT_TILE_ZERO(type));
            }
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

/* Puts one block of the file into its tile. column: of the tile, at which the block begins. A case
 * a type makes loops of constants. */
static void put_block(char *tile, enum sb_dtype type, int row, int column,
                      const struct sb_quant_block *block)
{
    switch (type) {
    case SB_Q8_0:
        put_scale(tile, row, column / SB_QUANT_TILE_BLOCK, block->d);
        put_integers(tile, SB_Q8_0, row, column, block->q, 32);
        break;
    case SB_Q4_0:
        put_scale(tile, row, column / SB_QUANT_TILE_BLOCK, block->d);
        put_integers(tile, SB_Q4_0, row, column, block->q, 32);
        break;
    case SB_MXFP4:
        put_scale(tile, row, column / SB_QUANT_TILE_BLOCK, block->d);
        put_integers(tile, SB_MXFP4, row, column, block->q, 32);
        break;
    case SB_Q4_K:
        put_scales_and_mins(tile, row, block);
        put_integers(tile, SB_Q4_K, row, 0, block->q, 256);
        break;
    case SB_Q5_K:
        put_scales_and_mins(tile, row, block);
        put_integers(tile, SB_Q5_K, row, 0, block->q, 256);
        break;
    default:
        put_signed_scales(tile, row, block);
        put_integers(tile, SB_Q6_K, row, 0, block->q, 256);
    }
}

void sb_quant_pack(void *tiles, enum sb_dtype type, int32_t n_in, int32_t first, int32_t n,
                   const void *rows)
{
    const struct sb_quant *quant = sb_quant_of(type);
    const size_t row_bytes = sb_dtype_row_bytes(type, (size_t)n_in);
    const int32_t columns = SB_QUANT_TILE_COLUMNS(type);
    struct sb_quant_block block;

    for (int32_t r = 0; r < n; r++) {
        const char *from = (const char *)rows + (size_t)r * row_bytes;
        char *line = (char *)tiles +
                     (size_t)((first + r) / SB_QUANT_TILE_ROWS) * sb_tile_row_bytes(type, n_in);
        for (int32_t k = 0; k < n_in; k += quant->block, from += quant->bytes) {
            sb_quant_unpack(&block, type, from);
            put_block(line + (size_t)(k / columns) * (size_t)SB_QUANT_TILE_BYTES(type), type,
                      (first + r) % SB_QUANT_TILE_ROWS, k % columns, &block);
        }
    }
}
