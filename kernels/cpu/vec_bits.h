/*
 * Comparisons of v16, as sixteen bits: bit i is set if they hold for lanes i. What is rare in a
 * long row is found by a vector at a time, and then done lane by lane.
 */
#ifndef SB_CPU_VEC_BITS_H
#define SB_CPU_VEC_BITS_H

#include "vec.h"

#define V_ALL_BITS 0xffffu

/* The lanes in which a < b. None in which either is NaN. */
V_INLINE uint32_t v_less_bits(v16 a, v16 b)
{
#if defined(SB_LEVEL_AVX512)
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
#elif defined(SB_LEVEL_AVX2)
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)) |
           (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)) << 8;
#else
    uint32_t bits = 0;
    for (int i = 0; i < V16; i++)
        bits |= (uint32_t)(a.f[i] < b.f[i]) << i;
    return bits;
#endif
}

/* The number of the lowest bit that is set. bits is not 0. */
V_INLINE int lowest_bit(uint32_t bits) { return __builtin_ctz(bits); }

#endif
