/*
 * Quantised elements as GGUF files have them; backend/quantiser.h makes them. An element is a small
 * integer q. Elements lie in blocks along a row, and groups of elements share a scale and, in some
 * types, a minimum:
 *
 *     value = scale * q                    Q8_0, Q4_0, MXFP4: scale = d
 *     value = scale * q - min              Q4_K, Q5_K: scale = d * scales[g], min = dmin * mins[g]
 *     value = scale * q                    Q6_K: scale = d * scales[g], which is signed
 *
 * d and dmin are f16, in MXFP4 d is bf16, and belong to the block. g counts the block's groups.
 * Products of them with the small integers beside them are exact in float, so a scale is a float
 * without any rounding.
 *
 *              elements of a block    of a group    q              bytes of a block
 *     Q8_0      32                     32           -128 .. 127     34
 *     Q4_0      32                     32             -8 .. 7       18
 *     Q4_K     256                     32              0 .. 15     144
 *     Q5_K     256                     32              0 .. 31     176
 *     Q6_K     256                     16            -32 .. 31     210
 *     MXFP4     32                     32            -12 .. 12      17
 *
 * MXFP4 is that of OCP Microscaling Formats 1.0. An element is a code of four bits, FP4 E2M1, which
 * stands for 0, 0.5, 1, 1.5, 2, 3, 4 or 6 with a sign; q is twice that (sb_quant_codes). The scale
 * of a block is a power of two, E8M0: 2^(e - 127) in a byte e, so d is half of it. d is zero where
 * it is below the smallest normal float, e being 0 or 1, as denormals are zeros wherever the
 * library computes; and where e is 255 it is a NaN. Values up to 12 * 2^-127 are lost by that.
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
    enum sb_dtype d;  /* the type of d and dmin: f16 or bf16 */
    int has_scales;   /* whether groups have integer scales of their own beside d */
    int has_mins;
};

/* The blocks of a quantised type. */
const struct sb_quant *sb_quant_of(enum sb_dtype dtype);

/* The integers that the codes of MXFP4 stand for. Code 8, a zero with a sign, is 0. */
extern const int8_t sb_quant_codes[16];

/* A block taken apart: its first elements of q, and of the scales and minima what the type has,
 * with zeros for what it has not. */
struct sb_quant_block {
    uint16_t d, dmin;                   /* of the type that sb_quant.d says */
    int8_t scales[SB_QUANT_GROUPS_MAX]; /* of Q4_K and Q5_K 0 .. 63 */
    uint8_t mins[SB_QUANT_GROUPS_MAX];  /* 0 .. 63 */
    int8_t q[SB_QUANT_BLOCK_MAX];
};
void sb_quant_unpack(struct sb_quant_block *out, enum sb_dtype dtype, const void *block);

/* The same of Q4_0 and MXFP4 with the elements as they are, as q + 8 or as codes: elements i and
 * i + 16 in the halves of byte i. Returns d. */
uint16_t sb_quant_halves(uint8_t bytes[16], enum sb_dtype dtype, const void *block);

/* Reads a row of n elements as floats. The last block of a row may have fewer elements than others,
 * where the type's blocks are of 32; the rest of it is zeros. Each value is rounded once, as one
 * fused multiply-add of scale, q and -min would. */
void sb_quant_read(float *to, enum sb_dtype dtype, const void *row, size_t n);

#endif
