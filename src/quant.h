/*
 * Quantised elements as GGUF files have them; backend/quantiser.h makes them. An element is a small
 * integer q. Elements lie in blocks along a row, and groups of elements share a scale and, in some
 * types, a minimum:
 *
 *     value = scale * q                    Q8_0, Q4_0: scale = d
 *     value = scale * q - min              Q4_K, Q5_K: scale = d * scales[g], min = dmin * mins[g]
 *     value = scale * q                    Q6_K: scale = d * scales[g], which is signed
 *
 * d and dmin are f16 and belong to the block. g counts the block's groups. Products of them with
 * the small integers beside them are exact in float, so a scale is a float without any rounding.
 *
 *              elements of a block    of a group    q              bytes of a block
 *     Q8_0      32                     32           -128 .. 127     34
 *     Q4_0      32                     32             -8 .. 7       18
 *     Q4_K     256                     32              0 .. 15     144
 *     Q5_K     256                     32              0 .. 31     176
 *     Q6_K     256                     16            -32 .. 31     210
 *
 * Where the bits of a block are is what ggml-org/ggml has made it. Whoever wants them asks
 * sb_quant_unpack, the only code that knows.
 */
#ifndef SB_QUANT_H
#define SB_QUANT_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

enum { SB_QUANT_BLOCK_MAX = 256, SB_QUANT_GROUPS_MAX = 16 };

/* What the blocks of a type are. */
struct sb_quant {
    int block, bytes; /* elements of a block, and its bytes */
    int group;        /* elements that share a scale */
    int has_scales;   /* whether groups have integer scales of their own beside d */
    int has_mins;
};

/* The blocks of a quantised type. */
const struct sb_quant *sb_quant_of(enum sb_dtype dtype);

/* A block taken apart: its first elements of q, and of the scales and minima what the type has,
 * with zeros for what it has not. */
struct sb_quant_block {
    uint16_t d, dmin;                   /* f16 */
    int8_t scales[SB_QUANT_GROUPS_MAX]; /* of Q4_K and Q5_K 0 .. 63 */
    uint8_t mins[SB_QUANT_GROUPS_MAX];  /* 0 .. 63 */
    int8_t q[SB_QUANT_BLOCK_MAX];
};
void sb_quant_unpack(struct sb_quant_block *out, enum sb_dtype dtype, const void *block);

/* Reads a row of n elements as floats. The last block of a row may have fewer elements than others,
 * where the type's blocks are of 32; the rest of it is zeros. Each value is rounded once, as one
 * fused multiply-add of scale, q and -min would. */
void sb_quant_read(float *to, enum sb_dtype dtype, const void *row, size_t n);

#endif
