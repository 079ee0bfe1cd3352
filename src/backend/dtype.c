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
        [SB_F32] = "f32",   [SB_BF16] = "bf16", [SB_F16] = "f16",   [SB_Q8_0] = "q8_0",
        [SB_Q4_0] = "q4_0", [SB_Q4_K] = "q4_k", [SB_Q5_K] = "q5_k", [SB_Q6_K] = "q6_k",
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

/* The element at `from` as the bits of an f32. */
static uint32_t load(const unsigned char *from, enum sb_dtype type)
{
    uint32_t bits;
    uint16_t half;

    if (type == SB_F32) {
        memcpy(&bits, from, sizeof bits);
        return bits;
    }
    memcpy(&half, from, sizeof half);
    return type == SB_BF16 ? sb_bf16_widen(half) : sb_f16_widen(half);
}

/* Goes by floats, a block of the widest type at a time. */
static void convert_quantised(void *to, enum sb_dtype to_type, const void *from,
                              enum sb_dtype from_type, size_t n)
{
    float values[SB_QUANT_BLOCK_MAX];

    for (size_t at = 0, count; at < n; at += count) {
        const char *in = (const char *)from + sb_dtype_row_bytes(from_type, at);
        char *out = (char *)to + sb_dtype_row_bytes(to_type, at);
        count = n - at < SB_QUANT_BLOCK_MAX ? n - at : SB_QUANT_BLOCK_MAX;
        if (sb_dtype_is_quantised(from_type))
            sb_quant_read(values, from_type, in, count);
        else
            sb_convert(values, SB_F32, in, from_type, count);
        if (sb_dtype_is_quantised(to_type))
            sb_quant_make(out, to_type, values, count);
        else
            sb_convert(out, to_type, values, SB_F32, count);
    }
}

void sb_convert(void *to, enum sb_dtype to_type, const void *from, enum sb_dtype from_type,
                size_t n)
{
    const size_t in = sb_dtype_size(from_type), out = sb_dtype_size(to_type);

    if (to_type == from_type) {
        memcpy(to, from, sb_dtype_row_bytes(from_type, n));
        return;
    }
    if (sb_dtype_is_quantised(from_type) || sb_dtype_is_quantised(to_type)) {
        convert_quantised(to, to_type, from, from_type, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = load((const unsigned char *)from + i * in, from_type);
        const uint16_t half = to_type == SB_BF16 ? sb_bf16_narrow(bits) : sb_f16_narrow(bits);
        if (to_type == SB_F32)
            memcpy((unsigned char *)to + i * out, &bits, sizeof bits);
        else
            memcpy((unsigned char *)to + i * out, &half, sizeof half);
    }
}
