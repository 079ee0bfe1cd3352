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

/* f16 d | 16 bytes: elements i and i + 16 in the halves of byte i, with 8 added */
static void unpack_q4_0(struct sb_quant_block *out, const uint8_t *block)
{
    uint8_t bytes[16];

    out->d = half_at(block);
    memcpy(bytes, block + 2, sizeof bytes);
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

void sb_quant_unpack(struct sb_quant_block *out, enum sb_dtype dtype, const void *block)
{
    static void (*const unpack[SB_DTYPES])(struct sb_quant_block *, const uint8_t *) = {
        [SB_Q8_0] = unpack_q8_0, [SB_Q4_0] = unpack_q4_0, [SB_Q4_K] = unpack_q4_k,
        [SB_Q5_K] = unpack_q5_k, [SB_Q6_K] = unpack_q6_k,
    };

    memset(out, 0, offsetof(struct sb_quant_block, q));
    unpack[dtype](out, block);
}

static float widen(uint16_t half)
{
    const uint32_t bits = sb_f16_widen(half);
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
        const float d = widen(block.d), dmin = widen(block.dmin);
        for (size_t i = 0; i < size; i += 16) {
            const size_t g = i / (size_t)quant->group;
            const float scale = quant->has_scales ? d * (float)block.scales[g] : d;
            read_16(values + i, block.q + i, scale, dmin * (float)block.mins[g]);
        }
        if (values == last)
            memcpy(to + at, last, (n - at) * sizeof *to);
    }
}

/* ------------------------------------------------------------------------------- making */

/* The integers that a type can hold, and as which of them the extreme element of a group is tried.
 * Where there is one integer more below zero than above, the extreme goes below. */
struct range {
    float least, most;
    int n_places;
    float places[3];
};
static const struct range ranges[SB_DTYPES] = {
    [SB_Q8_0] = {-127.0f, 127.0f, 1, {127.0f}},
    [SB_Q4_0] = {-8.0f, 7.0f, 3, {-8.0f, -8.8f, -7.2f}},
};

/* The loops below have fixed lengths and keep their terms in arrays, so that compilers make vectors
 * of them; sums have a fixed order, so that vectors of any width give the same. */
static float sum_of(const float x[32])
{
    float a[16], b[8], c[4];

    for (int i = 0; i < 16; i++)
        a[i] = x[i] + x[i + 16];
    for (int i = 0; i < 8; i++)
        b[i] = a[i] + a[i + 8];
    for (int i = 0; i < 4; i++)
        c[i] = b[i] + b[i + 4];
    return (c[0] + c[2]) + (c[1] + c[3]);
}

static float inverse_of(float scale)
{
    return scale != 0.0f ? 1.0f / scale : 0.0f;
}

/* The integer, as a float, that comes nearest to x / scale, ties to even. What is far beyond the
 * range is cut before it is rounded, so a sum with 1.5 * 2^23 rounds to whole numbers. A NaN gives
 * some integer of the range. */
static inline float integer_of(float x, float inverse, float least, float most)
{
    float value = x * inverse;

    value = value < most ? value : most;
    value = value > least ? value : least;
    return (value + 0x1.8p23f) - 0x1.8p23f;
}

/* The sum of squares of what is lost with this scale. */
static float error_of(const float *x, float scale, const struct range *range)
{
    const float inverse = inverse_of(scale), least = range->least, most = range->most;
    float squares[32];

    for (int i = 0; i < 32; i++) {
        const float lost = x[i] - scale * integer_of(x[i], inverse, least, most);
        squares[i] = lost * lost;
    }
    return sum_of(squares);
}

/* The scale with which the integers for this one would come nearest to x: sum(x q) / sum(q q). */
static float better_scale(const float *x, float scale, const struct range *range)
{
    const float inverse = inverse_of(scale), least = range->least, most = range->most;
    float xq[32], qq[32];

    for (int i = 0; i < 32; i++) {
        const float q = integer_of(x[i], inverse, least, most);
        xq[i] = x[i] * q;
        qq[i] = q * q;
    }
    return sum_of(xq) * inverse_of(sum_of(qq));
}

/* The element farthest from zero, without the last bit of its fraction. */
static float extreme_of(const float *x)
{
    int32_t key[32], most = 0;
    float extreme;

    memcpy(key, x, sizeof key);
    for (int i = 0; i < 32; i++) {
        const int32_t size = (key[i] & 0x7ffffffe) | (int32_t)((uint32_t)key[i] >> 31);
        most = size > most ? size : most;
    }
    most = (most & 0x7ffffffe) | (int32_t)((uint32_t)most << 31);
    memcpy(&extreme, &most, sizeof extreme);
    return extreme;
}

static uint16_t narrow(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return sb_f16_narrow(bits);
}

/* The scale for 32 elements. Of those that are tried, the one that loses least is improved once, if
 * what suits its integers best loses less. Every scale is rounded to f16 before it is tried. */
static uint16_t search_scale(const float *x, const struct range *range)
{
    const float extreme = extreme_of(x);
    float least = INFINITY;
    uint16_t best = 0;

    if (range->n_places == 1)
        return narrow(fabsf(extreme) / range->places[0]);
    for (int i = 0; i <= range->n_places; i++) {
        const uint16_t d = narrow(i < range->n_places ? extreme / range->places[i]
                                                      : better_scale(x, widen(best), range));
        const float error = error_of(x, widen(d), range);
        best = i == 0 || error < least ? d : best;
        least = error < least ? error : least;
    }
    return best;
}

/* Makes a block of 32 elements, none of which is NaN. */
static void make_block(uint8_t *to, const float *x, const struct range *range)
{
    const uint16_t d = search_scale(x, range);
    const float inverse = inverse_of(widen(d)), least = range->least, most = range->most;
    int8_t q[32];

    for (int i = 0; i < 32; i++)
        q[i] = (int8_t)(int32_t)integer_of(x[i], inverse, least, most);
    to[0] = (uint8_t)d;
    to[1] = (uint8_t)(d >> 8);
    if (range->most > 7.0f)
        memcpy(to + 2, q, 32);
    else
        for (int i = 0; i < 16; i++)
            to[2 + i] = (uint8_t)((q[i] + 8) | (q[i + 16] + 8) << 4);
}

void sb_quant_make(void *row, enum sb_dtype dtype, const float *from, size_t n)
{
    const struct range *range = &ranges[dtype];
    uint8_t *to = row;
    float x[32] = {0.0f};

    for (size_t at = 0; at < n; at += 32, to += quants[dtype].bytes) {
        const float *in = from + at;
        if (n - at < 32)
            in = memcpy(x, from + at, (n - at) * sizeof *x);
        make_block(to, in, range);
    }
}
