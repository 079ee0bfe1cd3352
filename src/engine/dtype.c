/* Sizes and names of the storage types. */
#include "engine/backend.h"

size_t sb_dtype_size(enum sb_dtype dtype)
{
    return dtype == SB_F32 ? 4 : 2;
}

const char *sb_dtype_name(enum sb_dtype dtype)
{
    static const char *const names[] = {"f32", "bf16", "f16"};
    return names[dtype];
}
