/*
 * How quantised weights lie in the device's memory: in tiles of 16 rows, in which every lane of a
 * warp finds its operands of mma.sync (mma.cuh) by loads of 16 bytes. The integers stay in the bits
 * that their type has in files, and the factors as well (quant.h), so a weight takes as much memory
 * as its rows do in a file, filled up to 16 rows; in MXFP4, whose factors have two bytes here and
 * one there, a 17th more.
 *
 *   weight    for each 16 rows: tile | tile | ..       each of some consecutive columns, ascending
 *   tile      head: factors of the rows                chunk | chunk | ..  of 32 lanes x 16 bytes
 *
 *              columns    head    chunks                           bytes
 *     Q8_0        64       64     2: one a block                    1088
 *     Q4_0        64       64     1                                  576
 *     MXFP4       64       64     1                                  576
 *     Q4_K       256      256     4: one for each two blocks        2304
 *     Q5_K       256      256     4, and 1 with the fifth bits      2816
 *     Q6_K       256      288     4, and 2 with the upper two bits  3360
 *
 * A block is 32 columns here, for every type. Lane 4 g + t has those integers of rows g and g + 8
 * whose columns come from the 8 t-th of each block on: 8 t .. 8 t + 7, because 16 bytes of x are
 * these columns of a row. Q6_K has groups of 16 columns, and there they are 4 t .. 4 t + 3 and
 * 16 + 4 t .. 16 + 4 t + 3. Either way they are four pairs i of columns, of which an mma takes
 * pairs 0 and 1, and the next one 2 and 3. A lane's four words of 32 bits in a chunk are
 *
 *     bytes      two for row g, two for row g + 8; pair i in word i / 2, byte i % 2, and its odd
 *                column two bytes above it
 *     nibbles    row g and row g + 8 of an even block, and the same of an odd block; pair i at bit
 *                4 i, its odd column 16 bits above it
 *     codes      likewise, but a code's lower three bits at bit 3 i and its sign at 12 + (i ^ 1),
 *                because then one shift brings both of a pair to where bf16 has them, for two pairs
 *     fifth bits a word for two blocks: pair i at bit i, + 4 for row g + 8, + 8 for the odd block
 *     upper two  a word for a block: pair i at bit 2 i, + 8 for row g + 8
 *
 * so that a shift and a mask bring a pair into the lower bits of the two halves of a register, from
 * where they become elements of 16 bits.
 *
 * Heads. Lanes of one g read the same bytes.
 *
 *     Q8_0, Q4_0   for each g, f16: d of row g and of row g + 8, for block 0 and then block 1
 *     MXFP4        the same in bf16
 *     Q4_K, Q5_K   for each row, 16 bytes: d, dmin | words S | M | L. Byte j of S has the scale of
 *                  group j and above it the upper two bits of that of group j + 4, M has the same
 *                  of minima, and L the lower four bits of scale and minimum of group j + 4
 *     Q6_K         for each row, 16 bytes: the scales | for each g: d of row g and of row g + 8
 *
 * Rejected: panels as on the CPU, or rows as in files, because a lane's operands would be many
 * small loads, or go through shared memory; integers in 16 bits, which would read up to four times
 * as much.
 */
#ifndef SB_CUDA_QUANT_TILE_H
#define SB_CUDA_QUANT_TILE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

#ifdef __cplusplus
#define SB_QUANT_TILE_FN static __host__ __device__ __forceinline__
#else
#define SB_QUANT_TILE_FN static inline
#endif

enum { SB_QUANT_TILE_ROWS = 16, SB_QUANT_TILE_BLOCK = 32, SB_QUANT_TILE_CHUNK = 32 * 16 };

/* Whether tiles can have a type. */
#define SB_QUANT_TILE_HAS(type) ((type) >= SB_Q8_0 && (type) <= SB_MXFP4)

/* Of a type: whether columns, and scales, come in 256; the tile's columns; bytes of its head; its
 * chunks; its bytes. All are constant expressions if the type is one. */
#define SB_QUANT_TILE_IS_K(type) ((type) == SB_Q4_K || (type) == SB_Q5_K || (type) == SB_Q6_K)
#define SB_QUANT_TILE_COLUMNS(type) (SB_QUANT_TILE_IS_K(type) ? 256 : 64)
#define SB_QUANT_TILE_HEAD(type) ((type) == SB_Q6_K ? 288 : SB_QUANT_TILE_IS_K(type) ? 256 : 64)
#define SB_QUANT_TILE_CHUNKS(type)               \
    ((type) == SB_Q4_0 || (type) == SB_MXFP4 ? 1 \
     : (type) == SB_Q8_0                     ? 2 \
                                             : 4 + ((type) == SB_Q5_K) + 2 * ((type) == SB_Q6_K))
#define SB_QUANT_TILE_BYTES(type) \
    (SB_QUANT_TILE_HEAD(type) + SB_QUANT_TILE_CHUNKS(type) * SB_QUANT_TILE_CHUNK)

/* Bytes of the tiles of 16 rows of n_in columns, and of all rows of a weight. */
static inline size_t sb_tile_row_bytes(enum sb_dtype type, int32_t n_in)
{
    const size_t columns = SB_QUANT_TILE_COLUMNS(type);

    return ((size_t)n_in + columns - 1) / columns * (size_t)SB_QUANT_TILE_BYTES(type);
}
static inline size_t sb_tile_weight_bytes(enum sb_dtype type, int32_t n_out, int32_t n_in)
{
    return ((size_t)n_out + SB_QUANT_TILE_ROWS - 1) / SB_QUANT_TILE_ROWS *
           sb_tile_row_bytes(type, n_in);
}

/* Where an integer's bits are: a byte offset in the tile, of a word, and how far up in it. */
struct sb_tile_place {
    int at, shift;
};

/* Pair and lane of column k of a block. */
SB_QUANT_TILE_FN int sb_tile_pair(enum sb_dtype type, int k)
{
    return type == SB_Q6_K ? k / 16 * 2 + k % 4 / 2 : k % 8 / 2;
}
SB_QUANT_TILE_FN int sb_tile_lane(enum sb_dtype type, int row, int k)
{
    return row % 8 * 4 + (type == SB_Q6_K ? k % 16 / 4 : k / 8);
}

SB_QUANT_TILE_FN int sb_tile_word(enum sb_dtype type, int chunk, int lane, int word)
{
    return SB_QUANT_TILE_HEAD(type) + chunk * SB_QUANT_TILE_CHUNK + lane * 16 + word * 4;
}

/* The byte or nibble of column `column` of a tile's row. */
SB_QUANT_TILE_FN struct sb_tile_place sb_tile_low(enum sb_dtype type, int row, int column)
{
    const int block = column / SB_QUANT_TILE_BLOCK, k = column % SB_QUANT_TILE_BLOCK;
    const int lane = sb_tile_lane(type, row, k), i = sb_tile_pair(type, k);
    struct sb_tile_place place;

    if (type == SB_Q8_0) {
        place.at = sb_tile_word(type, block, lane, row / 8 * 2 + i / 2);
        place.shift = i % 2 * 8 + k % 2 * 16;
    } else {
        place.at = sb_tile_word(type, block / 2, lane, block % 2 * 2 + row / 8);
        place.shift = i * (type == SB_MXFP4 ? 3 : 4) + k % 2 * 16;
    }
    return place;
}

/* Where a half of a word has the sign of pair i, in MXFP4. */
SB_QUANT_TILE_FN int sb_tile_sign(int i)
{
    return 12 + (i ^ 1);
}

/* The upper bits of the same, of Q5_K and Q6_K, and the sign of a code. */
SB_QUANT_TILE_FN struct sb_tile_place sb_tile_high(enum sb_dtype type, int row, int column)
{
    const int block = column / SB_QUANT_TILE_BLOCK, k = column % SB_QUANT_TILE_BLOCK;
    const int lane = sb_tile_lane(type, row, k), i = sb_tile_pair(type, k);
    struct sb_tile_place place;

    if (type == SB_Q5_K) {
        place.at = sb_tile_word(type, 4, lane, block / 2);
        place.shift = i + row / 8 * 4 + block % 2 * 8 + k % 2 * 16;
    } else if (type == SB_MXFP4) {
        place.at = sb_tile_word(type, block / 2, lane, block % 2 * 2 + row / 8);
        place.shift = sb_tile_sign(i) + k % 2 * 16;
    } else {
        place.at = sb_tile_word(type, 4 + block / 4, lane, block % 4);
        place.shift = (i + row / 8 * 4) * 2 + k % 2 * 16;
    }
    return place;
}

/* What stands for q = 0 where integers have no sign: 8 in the nibbles of Q4_0, 32 in Q6_K. */
#define SB_QUANT_TILE_ZERO(type) ((type) == SB_Q4_0 ? 8 : (type) == SB_Q6_K ? 32 : 0)

#endif
