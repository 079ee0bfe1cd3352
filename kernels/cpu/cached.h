/*
 * Elements of a KV cache to floats and back. The cache is f32, bf16 or f16 (struct sb_device of
 * src/backend/cpu_device.h), and all arithmetic is in float.
 *
 * To widen is exact. To narrow is to round to nearest, ties to even; what is too large for f16
 * becomes its largest finite value, and a NaN stays one. Both work on the bits (half.h), or by
 * instructions that do not heed the flushing of denormals, so every level has the same results: an
 * f16 denormal is kept and has its value, which is a normal float. A bf16 denormal is a denormal
 * float, and so counts as zero in whatever reads it.
 */
#ifndef SB_CPU_CACHED_H
#define SB_CPU_CACHED_H

#include "backend/backend.h"
#include "vec.h"

/* to[i] = element from[at + i], for i in [0, n). `type` is not f32. */
V_INLINE void widen_cached(float *to, const void *from, int64_t at, int64_t n, enum sb_dtype type)
{
    const uint16_t *halves = (const uint16_t *)from + at;
    int64_t i = 0;

    if (type == SB_BF16) {
        for (; i + V16 <= n; i += V16)
            v_store(to + i, v_load_bf16(halves + i));
        for (; i < n; i++)
            to[i] = bf16_f32(halves[i]);
    } else {
        for (; i + V16 <= n; i += V16)
            v_store(to + i, v_load_f16(halves + i));
        for (; i < n; i++)
            to[i] = f16_f32(halves[i]);
    }
}

/* Element to[at + i] = from[i], rounded, for i in [0, n). */
V_INLINE void narrow_cached(void *to, int64_t at, const float *from, int64_t n, enum sb_dtype type)
{
    uint16_t *halves = (uint16_t *)to + at;
    int64_t i = 0;

    if (type == SB_F32) {
        memcpy((float *)to + at, from, (size_t)n * sizeof *from);
    } else if (type == SB_BF16) {
        for (; i + V16 <= n; i += V16)
            v_store_bf16(halves + i, v_load(from + i));
        for (; i < n; i++)
            halves[i] = f32_bf16(from[i]);
    } else {
        for (; i + V16 <= n; i += V16)
            v_store_f16(halves + i, v_load(from + i));
        for (; i < n; i++)
            halves[i] = f32_f16(from[i]);
    }
}

#endif
