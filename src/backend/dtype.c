/* Element types: their sizes, their names, and the conversions between them (half.h). Conversions
 * work on the bits, so that the floating-point environment does not matter. */
#include <string.h>

#include "backend/backend.h"
#include "half.h"
#include "quant.h"
#include "specbatch.h"

int sb_dtype_is_quantised(enum sb_dtype dtype)
{
    return dtype >= SB_Q8_0;
}

size_t sb_dtype_size(enum sb_dtype dtype)
{
    return dtype == SB_F32 ? 4 : 2;
}

size_t sb_dtype_row_bytes(enum sb_dtype dtype, size_t n)
{
    const struct sb_quant *quant;

    if (!sb_dtype_is_quantised(dtype))
        return n * sb_dtype_size(dtype);
    quant = sb_quant_of(dtype);
    return (n + (size_t)quant->block - 1) / (size_t)quant->block * (size_t)quant->bytes;
}

const char *sb_dtype_name(enum sb_dtype dtype)
{
    static const char *const names[SB_DTYPES] = {
        [SB_F32] = "f32",   [SB_BF16] = "bf16", [SB_F16] = "f16",
        [SB_Q8_0] = "q8_0", [SB_Q4_0] = "q4_0", [SB_Q4_K] = "q4_k",
        [SB_Q5_K] = "q5_k", [SB_Q6_K] = "q6_k", [SB_MXFP4] = "mxfp4",
    };

    return names[dtype];
}

enum sb_dtype sb_kv_dtype(int32_t kv, enum sb_dtype automatic)
{
    switch (kv) {
    case SPECBATCH_KV_F32:
        return SB_F32;
    case SPECBATCH_KV_BF16:
        return SB_BF16;
    case SPECBATCH_KV_F16:
        return SB_F16;
    default:
        return automatic;
    }
}

enum sb_dtype sb_weights_dtype(int32_t weights, enum sb_dtype stored, int is_table)
{
    if (weights == SPECBATCH_WEIGHTS_AUTO || sb_dtype_is_quantised(stored))
        return stored;
    return weights == SPECBATCH_WEIGHTS_Q4 && !is_table ? SB_Q4_0 : SB_Q8_0;
}

enum {
    PIECE = 16
}; /* elements that loops of fixed length convert, which compilers make vectors of */

/* PIECE elements of a type that is not quantised as the bits of f32. */
static void widen_piece(uint32_t *restrict to, const unsigned char *from, enum sb_dtype type)
{
    uint16_t half[PIECE];

    if (type == SB_F32) {
        memcpy(to, from, PIECE * sizeof *to);
        return;
    }
    memcpy(half, from, sizeof half);
    if (type == SB_BF16)
        for (int i = 0; i < PIECE; i++)
            to[i] = sb_bf16_widen(half[i]);
    else
        for (int i = 0; i < PIECE; i++)
            to[i] = sb_f16_widen(half[i]);
}

static void narrow_piece(unsigned char *to, enum sb_dtype type, const uint32_t *restrict from)
{
    uint16_t half[PIECE];

    if (type == SB_F32) {
        memcpy(to, from, PIECE * sizeof *from);
        return;
    }
    if (type == SB_BF16)
        for (int i = 0; i < PIECE; i++)
            half[i] = sb_bf16_narrow(from[i]);
    else
        for (int i = 0; i < PIECE; i++)
            half[i] = sb_f16_narrow(from[i]);
    memcpy(to, half, sizeof half);
}

/* Converts between types that are not quantised. */
static void convert_plain(unsigned char *to, enum sb_dtype to_type, const unsigned char *from,
                          enum sb_dtype from_type, size_t n)
{
    const size_t in = sb_dtype_size(from_type), out = sb_dtype_size(to_type);
    uint32_t bits[PIECE];

    for (; n >= PIECE; n -= PIECE, from += PIECE * in, to += PIECE * out) {
        widen_piece(bits, from, from_type);
        narrow_piece(to, to_type, bits);
    }
    if (n > 0) {
        unsigned char last_in[PIECE * sizeof(float)] = {0}, last_out[PIECE * sizeof(float)];
        memcpy(last_in, from, n * in);
        widen_piece(bits, last_in, from_type);
        narrow_piece(last_out, to_type, bits);
        memcpy(to, last_out, n * out);
    }
}

/* Converts a quantised row to a type that is not, by floats, a block of the widest type at a time.
 */
static void convert_quantised(void *to, enum sb_dtype to_type, const void *from,
                              enum sb_dtype from_type, size_t n)
{
    float values[SB_QUANT_BLOCK_MAX];

    for (size_t at = 0, count; at < n; at += count) {
        const unsigned char *in = (const unsigned char *)from + sb_dtype_row_bytes(from_type, at);
        unsigned char *out = (unsigned char *)to + sb_dtype_row_bytes(to_type, at);
        count = n - at < SB_QUANT_BLOCK_MAX ? n - at : SB_QUANT_BLOCK_MAX;
        sb_quant_read(values, from_type, in, count);
        convert_plain(out, to_type, (const unsigned char *)values, SB_F32, count);
    }
}

void sb_convert(void *to, enum sb_dtype to_type, const void *from, enum sb_dtype from_type,
                size_t n)
{
    if (to_type == from_type)
        memcpy(to, from, sb_dtype_row_bytes(from_type, n));
    else if (sb_dtype_is_quantised(from_type))
        convert_quantised(to, to_type, from, from_type, n);
    else
        convert_plain(to, to_type, from, from_type, n);
}
