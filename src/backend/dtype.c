/* Element types: their sizes, their names, and the conversions between them (half.h). Conversions
 * work on the bits, so that the floating-point environment does not matter. */
#include <string.h>

#include "backend/backend.h"
#include "half.h"
#include "specbatch.h"

size_t sb_dtype_size(enum sb_dtype dtype)
{
    return dtype == SB_F32 ? 4 : 2;
}

const char *sb_dtype_name(enum sb_dtype dtype)
{
    return dtype == SB_F32 ? "f32" : dtype == SB_BF16 ? "bf16" : "f16";
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

void sb_convert(void *to, enum sb_dtype to_type, const void *from, enum sb_dtype from_type,
                size_t n)
{
    const size_t in = sb_dtype_size(from_type), out = sb_dtype_size(to_type);

    if (to_type == from_type) {
        memcpy(to, from, n * in);
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
