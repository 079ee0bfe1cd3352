/* The blocks of quantised types taken apart and read (quant.h). */
#include "quant.h"

#include <string.h>

#include "half.h"

static const struct sb_quant quants[SB_DTYPES] = {
    [SB_Q8_0] = {32, 34, 32, SB_F16, 0, 0},   [SB_Q4_0] = {32, 18, 32, SB_F16, 0, 0},
    [SB_Q4_K] = {256, 144, 32, SB_F16, 1, 1}, [SB_Q5_K] = {256, 176, 32, SB_F16, 1, 1},
    [SB_Q6_K] = {256, 210, 16, SB_F16, 1, 0}, [SB_MXFP4] = {32, 17, 32, SB_BF16, 0, 0},
};

const int8_t sb_quant_codes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

const struct sb_quant *sb_quant_of(enum sb_dtype dtype)
{
    return &quants[dtype];
}

/* What follows copies the bytes of a block before it loops over them, because a compiler makes
 * vectors only of what surely is not the integers that are written. */
static uint16_t half_at(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

/* f16 d | 32 elements */
static void unpack_q8_0(struct sb_quant_block *out, const uint8_t *block)
{
    out->d = half_at(block);
    memcpy(out->q, block + 2, 32);
}

/* Q4_0:  f16 d | 16 bytes: elements i and i + 16 in the halves of byte i, with 8 added
 * MXFP4: byte e | 16 bytes: their codes; d is 2^(e - 128) as bf16, whose exponents have 127 added
 */
uint16_t sb_quant_halves(uint8_t bytes[16], enum sb_dtype dtype, const void *block)
{
    const uint8_t *at = block;
    const int e = at[0], is_codes = dtype == SB_MXFP4;

    memcpy(bytes, at + (is_codes ? 1 : 2), 16);
    if (!is_codes)
        return half_at(at);
    return (uint16_t)(e == 255 ? 0x7fc0 : e > 0 ? (e - 1) << 7 : 0);
}

static void unpack_q4_0(struct sb_quant_block *out, const uint8_t *block)
{
    uint8_t bytes[16];

    out->d = sb_quant_halves(bytes, SB_Q4_0, block);
    for (int i = 0; i < 16; i++) {
        out->q[i] = (int8_t)((bytes[i] & 15) - 8);
        out->q[i + 16] = (int8_t)((bytes[i] >> 4) - 8);
    }
}

/* What Q4_K and Q5_K begin with: f16 d | f16 dmin | 8 scales and 8 minima of 6 bits in 12 bytes.
 * Those of groups 4 to 7 have their upper two bits above the six bits of group 0 to 3. */
static void unpack_scales(struct sb_quant_block *out, const uint8_t *block)
{
    const uint8_t *at = block + 4;

    out->d = half_at(block);
    out->dmin = half_at(block + 2);
    for (int g = 0; g < 4; g++) {
        out->scales[g] = (int8_t)(at[g] & 63);
        out->mins[g] = at[g + 4] & 63;
        out->scales[g + 4] = (int8_t)((at[g + 8] & 15) | at[g] >> 6 << 4);
        out->mins[g + 4] = (uint8_t)(at[g + 8] >> 4 | at[g + 4] >> 6 << 4);
    }
}

/* 128 bytes: elements 64 c + i and 64 c + 32 + i are in the halves of byte 32 c + i. */
static void unpack_halves(int8_t q[256], const uint8_t low[128])
{
    uint8_t bytes[32];

    for (int c = 0; c < 4; c++) {
        memcpy(bytes, low + 32 * c, sizeof bytes);
        for (int i = 0; i < 32; i++) {
            q[64 * c + i] = (int8_t)(bytes[i] & 15);
            q[64 * c + 32 + i] = (int8_t)(bytes[i] >> 4);
        }
    }
}

/* scales | 128 bytes of halves */
static void unpack_q4_k(struct sb_quant_block *out, const uint8_t *block)
{
    unpack_scales(out, block);
    unpack_halves(out->q, block + 16);
}

/* scales | 32 bytes: bit g of byte i is the fifth bit of element 32 g + i | 128 bytes of halves */
static void unpack_q5_k(struct sb_quant_block *out, const uint8_t *block)
{
    uint8_t high[32];

    memcpy(high, block + 16, sizeof high);
    unpack_scales(out, block);
    unpack_halves(out->q, block + 48);
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 32; i++)
            out->q[32 * g + i] |= (int8_t)((high[i] >> g & 1) << 4);
}

/* 128 bytes of lower halves | 64 bytes of two upper bits | 16 scales | f16 d; elements have 32
 * added. In each half of the block, elements i and i + 64 share byte i of the lower halves, and
 * elements i, i + 32, i + 64 and i + 96 share byte i of the upper bits. */
static void unpack_q6_k(struct sb_quant_block *out, const uint8_t *block)
{
    uint8_t low[64], high[32];

    for (int half = 0; half < 2; half++) {
        int8_t *q = out->q + 128 * half;
        memcpy(low, block + 64 * half, sizeof low);
        memcpy(high, block + 128 + 32 * half, sizeof high);
        for (int i = 0; i < 32; i++) {
            q[i] = (int8_t)((low[i] & 15) + (high[i] << 4 & 48) - 32);
            q[i + 32] = (int8_t)((low[i + 32] & 15) + (high[i] << 2 & 48) - 32);
            q[i + 64] = (int8_t)((low[i] >> 4) + (high[i] & 48) - 32);
            q[i + 96] = (int8_t)((low[i + 32] >> 4) + (high[i] >> 2 & 48) - 32);
        }
    }
    memcpy(out->scales, block + 192, 16);
    out->d = half_at(block + 208);
}

/* What sb_quant_codes has for a code, by operations that compilers make of 16 codes at once, as
 * they cannot of reading a table. */
static int8_t of_code(uint8_t code)
{
    const uint8_t bits = code & 7;
    const uint8_t size = (uint8_t)(bits + (bits > 4) + (bits > 5) + 3 * (bits > 6));

    return (int8_t)(code > 7 ? -size : size);
}

static void unpack_mxfp4(struct sb_quant_block *out, const uint8_t *block)
{
    uint8_t bytes[16];

    out->d = sb_quant_halves(bytes, SB_MXFP4, block);
    for (int i = 0; i < 16; i++) {
        out->q[i] = of_code(bytes[i] & 15);
        out->q[i + 16] = of_code(bytes[i] >> 4);
    }
}

void sb_quant_unpack(struct sb_quant_block *out, enum sb_dtype dtype, const void *block)
{
    static void (*const unpack[SB_DTYPES])(struct sb_quant_block *, const uint8_t *) = {
        [SB_Q8_0] = unpack_q8_0, [SB_Q4_0] = unpack_q4_0, [SB_Q4_K] = unpack_q4_k,
        [SB_Q5_K] = unpack_q5_k, [SB_Q6_K] = unpack_q6_k, [SB_MXFP4] = unpack_mxfp4,
    };

    memset(out, 0, offsetof(struct sb_quant_block, q));
    unpack[dtype](out, block);
}

static float widen(uint16_t half, enum sb_dtype type)
{
    const uint32_t bits = type == SB_BF16 ? sb_bf16_widen(half) : sb_f16_widen(half);
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The values of 16 elements. The product is exact, so this rounds once, as a fused operation does.
 */
static void read_16(float *to, const int8_t *q, float scale, float min)
{
    for (int i = 0; i < 16; i++)
        to[i] = scale * (float)q[i] - min;
}

void sb_quant_read(float *to, enum sb_dtype dtype, const void *row, size_t n)
{
    const struct sb_quant *quant = &quants[dtype];
    const size_t size = (size_t)quant->block;
    const uint8_t *from = row;
    struct sb_quant_block block;
    float last[SB_QUANT_BLOCK_MAX];

    for (size_t at = 0; at < n; at += size, from += quant->bytes) {
        float *values = n - at < size ? last : to + at;
        sb_quant_unpack(&block, dtype, from);
        const float d = widen(block.d, quant->d), dmin = widen(block.dmin, quant->d);
        for (size_t i = 0; i < size; i += 16) {
            const size_t g = i / (size_t)quant->group;
            const float scale = quant->has_scales ? d * (float)block.scales[g] : d;
            read_16(values + i, block.q + i, scale, dmin * (float)block.mins[g]);
        }
        if (values == last)
            memcpy(to + at, last, (n - at) * sizeof *to);
    }
}
