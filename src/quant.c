/* The blocks of quantised types taken apart, read and made (quant.h). */
#include "quant.h"

#include <math.h>
#include <string.h>

#include "half.h"

static const struct sb_quant quants[SB_DTYPES] = {
    [SB_Q8_0] = {32, 34, 32, 0, 0},   [SB_Q4_0] = {32, 18, 32, 0, 0},
    [SB_Q4_K] = {256, 144, 32, 1, 1}, [SB_Q5_K] = {256, 176, 32, 1, 1},
    [SB_Q6_K] = {256, 210, 16, 1, 0},
};

const struct sb_quant *sb_quant_of(enum sb_dtype dtype)
{
    return &quants[dtype];
}

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

/* f16 d | 16 bytes: elements i and i + 16 in the halves of byte i, with 8 added */
static void unpack_q4_0(struct sb_quant_block *out, const uint8_t *block)
{
    out->d = half_at(block);
    for (int i = 0; i < 16; i++) {
        out->q[i] = (int8_t)((block[2 + i] & 15) - 8);
        out->q[i + 16] = (int8_t)((block[2 + i] >> 4) - 8);
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

/* scales | 128 bytes: elements 64 c + i and 64 c + 32 + i in the halves of byte 32 c + i */
static void unpack_q4_k(struct sb_quant_block *out, const uint8_t *block)
{
    const uint8_t *low = block + 16;

    unpack_scales(out, block);
    for (int e = 0; e < 256; e++)
        out->q[e] = (int8_t)(low[e / 64 * 32 + e % 32] >> e % 64 / 32 * 4 & 15);
}

/* scales | 32 bytes: bit e / 32 of byte e % 32 is the fifth bit of element e | 128 bytes as in Q4_K
 */
static void unpack_q5_k(struct sb_quant_block *out, const uint8_t *block)
{
    const uint8_t *high = block + 16, *low = block + 48;

    unpack_scales(out, block);
    for (int e = 0; e < 256; e++)
        out->q[e] = (int8_t)((low[e / 64 * 32 + e % 32] >> e % 64 / 32 * 4 & 15) |
                             (high[e % 32] >> e / 32 & 1) << 4);
}

/* 128 bytes of lower halves | 64 bytes of two upper bits | 16 scales | f16 d; elements have 32
 * added. In each half of the block, elements i and i + 64 share byte i of the lower halves, and
 * elements i, i + 32, i + 64 and i + 96 share byte i of the upper bits. */
static void unpack_q6_k(struct sb_quant_block *out, const uint8_t *block)
{
    for (int e = 0; e < 256; e++) {
        const int half = e / 128, i = e % 128;
        const int low = block[half * 64 + i % 64] >> i / 64 * 4 & 15;
        const int high = block[128 + half * 32 + i % 32] >> i / 32 * 2 & 3;
        out->q[e] = (int8_t)((low | high << 4) - 32);
    }
    memcpy(out->scales, block + 192, 16);
    out->d = half_at(block + 208);
}

void sb_quant_unpack(struct sb_quant_block *out, enum sb_dtype dtype, const void *block)
{
    static void (*const unpack[SB_DTYPES])(struct sb_quant_block *, const uint8_t *) = {
        [SB_Q8_0] = unpack_q8_0, [SB_Q4_0] = unpack_q4_0, [SB_Q4_K] = unpack_q4_k,
        [SB_Q5_K] = unpack_q5_k, [SB_Q6_K] = unpack_q6_k,
    };

    memset(out, 0, sizeof *out);
    unpack[dtype](out, block);
}

static float as_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

void sb_quant_read(float *to, enum sb_dtype dtype, const void *row, size_t n)
{
    const struct sb_quant *quant = &quants[dtype];
    struct sb_quant_block block;

    for (size_t at = 0; at < n; at += (size_t)quant->block) {
        const char *from = (const char *)row + at / (size_t)quant->block * (size_t)quant->bytes;
        sb_quant_unpack(&block, dtype, from);
        const float d = as_float(sb_f16_widen(block.d)), dmin = as_float(sb_f16_widen(block.dmin));
        for (size_t i = 0; i < (size_t)quant->block && at + i < n; i++) {
            const size_t group = i / (size_t)quant->group;
            const float scale = quant->has_scales ? d * block.scales[group] : d;
            to[at + i] = fmaf(scale, block.q[i], -(dmin * block.mins[group]));
        }
    }
}

/* Makes a block of 32 elements: integers of at most `most`, in absolute value, and the scale that
 * they need. */
static uint16_t round_block(int8_t q[32], const float *x, size_t n, float least, float most)
{
    float extreme = 0.0f, d, inverse;
    uint32_t bits;

    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(extreme))
            extreme = x[i];
    d = extreme / least;
    inverse = d != 0.0f ? 1.0f / d : 0.0f;
    for (size_t i = 0; i < 32; i++) {
        const float value = i < n ? rintf(x[i] * inverse) : 0.0f;
        q[i] = (int8_t)(value > most ? most : value < least ? least : value);
    }
    memcpy(&bits, &d, sizeof bits);
    return sb_f16_narrow(bits);
}

void sb_quant_make(void *row, enum sb_dtype dtype, const float *from, size_t n)
{
    uint8_t *to = row;
    int8_t q[32];

    for (size_t at = 0; at < n; at += 32) {
        const size_t count = n - at < 32 ? n - at : 32;
        const uint16_t d = dtype == SB_Q8_0 ? round_block(q, from + at, count, -127, 127)
                                            : round_block(q, from + at, count, -8, 7);
        to[0] = (uint8_t)d;
        to[1] = (uint8_t)(d >> 8);
        if (dtype == SB_Q8_0)
            memcpy(to + 2, q, 32);
        else
            for (int i = 0; i < 16; i++)
                to[2 + i] = (uint8_t)((q[i] + 8) | (q[i + 16] + 8) << 4);
        to += quants[dtype].bytes;
    }
}
