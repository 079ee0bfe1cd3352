/*
 * v16, the one vector type that all CPU kernels are written over: sixteen float lanes.
 *
 *     AVX-512   one __m512         AVX2   two __m256         scalar   float[16]
 *
 * There are sixteen lanes on every machine, so the order of every sum, and with it the bits, is the
 * same at each SIMD level. For that, the levels also agree in the following. A multiply-add is
 * always fused (fmaf where there is no instruction). The maximum of a and b is a > b ? a : b. A sum
 * of lanes adds lanes i and i + 8, then i and i + 4, then i and i + 2, then i and i + 1. A width
 * that followed the machine would be simpler on AVX2, and would give each machine its own tokens.
 *
 * A file that includes this one is compiled once for each level, and SB_LEVEL(name) gives its
 * functions the suffix of the level.
 */
#ifndef SB_CPU_VEC_H
#define SB_CPU_VEC_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "half.h"

#if FLT_EVAL_METHOD != 0
#error "float arithmetic must be done in float (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

#define V16 16
/* Not inlined where the scalar level is compiled with a sanitizer: with its checks, loops over
 * sixteen lanes that are inlined everywhere take a compiler many minutes. */
#if defined(SB_LEVEL_SCALAR) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define V_INLINE static __attribute__((noinline, unused))
#else
#define V_INLINE static inline __attribute__((always_inline, unused))
#endif

V_INLINE float bits_f32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

V_INLINE uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Half-precision elements as floats and back (half.h). */
V_INLINE float bf16_f32(uint16_t half) { return bits_f32(sb_bf16_widen(half)); }
V_INLINE uint16_t f32_bf16(float value) { return sb_bf16_narrow(f32_bits(value)); }
V_INLINE float f16_f32(uint16_t half) { return bits_f32(sb_f16_widen(half)); }
V_INLINE uint16_t f32_f16(float value) { return sb_f16_narrow(f32_bits(value)); }
#define F16_MAX 65504.0f

#if defined(SB_LEVEL_AVX512)

#include <immintrin.h>
#define SB_LEVEL(name) sb_cpu_##name##_avx512
typedef __m512 v16;

V_INLINE v16 v_set1(float a) { return _mm512_set1_ps(a); }
V_INLINE v16 v_load(const float *p) { return _mm512_loadu_ps(p); }
V_INLINE void v_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
V_INLINE __mmask16 v_mask(int64_t n) { return (__mmask16)((1u << n) - 1); }
V_INLINE v16 v_load_n(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(v_mask(n), p); }
V_INLINE void v_store_n(float *p, v16 a, int64_t n) { _mm512_mask_storeu_ps(p, v_mask(n), a); }
V_INLINE v16 v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
V_INLINE v16 v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
V_INLINE v16 v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
V_INLINE v16 v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
V_INLINE v16 v_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
V_INLINE v16 v_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
V_INLINE v16 v_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
V_INLINE int v_any_nan(v16 a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }
V_INLINE v16 v_first(int64_t n, v16 a, v16 b) { return _mm512_mask_blend_ps(v_mask(n), b, a); }
V_INLINE v16 v_shift_left_23(v16 a)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a), 23));
}
V_INLINE v16 v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
/* Of two numbers that cannot be ordered, v_min and v_max return the second: NaNs stay. */
V_INLINE void v_store_f16(uint16_t *p, v16 a)
{
    a = v_max(v_set1(-F16_MAX), v_min(v_set1(F16_MAX), a));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
V_INLINE v16 v_load_bf16(const uint16_t *p)
{
    __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
/* As sb_bf16_narrow has it: the upper half of the bits, rounded unless it is a NaN, which becomes a
 * quiet one. */
V_INLINE void v_store_bf16(uint16_t *p, v16 a)
{
    const __m512i bits = _mm512_castps_si512(a), half = _mm512_set1_epi32(0x7fff);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, half), odd);
    const __m512i word = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), bits,
                                              _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(word, 16)));
}
V_INLINE v16 v_load_even(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
V_INLINE v16 v_load_odd(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(-65536)));
}
/* Into the second-level cache. */
V_INLINE void v_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }

/* fold8 adds lanes i and i + 8, of x and of y, and returns the sums side by side. fold4 adds lanes
 * i and i + 4 of such a result, fold2 and fold1 continue. v_sum16 shows how they go together. */
V_INLINE v16 fold8(v16 x, v16 y)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xEE));
}
V_INLINE v16 fold4(v16 x, v16 y)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xDD));
}
V_INLINE v16 fold2(v16 x, v16 y)
{
    return _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xEE));
}
V_INLINE v16 fold1(v16 x, v16 y)
{
    return _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xDD));
}
V_INLINE v16 fold84(const v16 a[13]) { return fold4(fold8(a[0], a[4]), fold8(a[8], a[12])); }

/* Lane i of the result is the sum of the lanes of a[i]. The sixteen sums take fifteen folds. */
V_INLINE v16 v_sum16(const v16 a[16])
{
    return fold1(fold2(fold84(a), fold84(a + 1)), fold2(fold84(a + 2), fold84(a + 3)));
}

/* The sum and the maximum of the lanes. */
V_INLINE float v_hsum(v16 a)
{
    a = fold8(a, a);
    a = fold4(a, a);
    a = fold2(a, a);
    return _mm512_cvtss_f32(fold1(a, a));
}

V_INLINE float v_hmax(v16 a)
{
    a = v_max(a, _mm512_shuffle_f32x4(a, a, 0x4E));
    a = v_max(a, _mm512_shuffle_f32x4(a, a, 0xB1));
    a = v_max(a, _mm512_shuffle_ps(a, a, 0x4E));
    return _mm512_cvtss_f32(v_max(a, _mm512_shuffle_ps(a, a, 0xB1)));
}

#elif defined(SB_LEVEL_AVX2)

#include <immintrin.h>
#define SB_LEVEL(name) sb_cpu_##name##_avx2
typedef struct {
    __m256 lo, hi;
} v16;

V_INLINE v16 v_pair(__m256 lo, __m256 hi)
{
    v16 r = {lo, hi};
    return r;
}
V_INLINE v16 v_set1(float a) { return v_pair(_mm256_set1_ps(a), _mm256_set1_ps(a)); }
V_INLINE v16 v_load(const float *p) { return v_pair(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
V_INLINE void v_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
/* All ones in lanes first + i < n. */
V_INLINE __m256i v_mask(int64_t n, int first)
{
    __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                                    _mm256_set1_epi32(first));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
V_INLINE v16 v_load_n(const float *p, int64_t n)
{
    if (n <= 8) /* p + 8 may be past the end of the object, where not even an address may be formed
                 */
        return v_pair(_mm256_maskload_ps(p, v_mask(n, 0)), _mm256_setzero_ps());
    return v_pair(_mm256_loadu_ps(p), _mm256_maskload_ps(p + 8, v_mask(n, 8)));
}
V_INLINE void v_store_n(float *p, v16 a, int64_t n)
{
    _mm256_maskstore_ps(p, v_mask(n, 0), a.lo);
    if (n > 8)
        _mm256_maskstore_ps(p + 8, v_mask(n, 8), a.hi);
}
V_INLINE v16 v_add(v16 a, v16 b)
{
    return v_pair(_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi));
}
V_INLINE v16 v_sub(v16 a, v16 b)
{
    return v_pair(_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi));
}
V_INLINE v16 v_mul(v16 a, v16 b)
{
    return v_pair(_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi));
}
V_INLINE v16 v_div(v16 a, v16 b)
{
    return v_pair(_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi));
}
V_INLINE v16 v_max(v16 a, v16 b)
{
    return v_pair(_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi));
}
V_INLINE v16 v_min(v16 a, v16 b)
{
    return v_pair(_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi));
}
V_INLINE v16 v_fma(v16 a, v16 b, v16 c)
{
    return v_pair(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
V_INLINE int v_any_nan(v16 a)
{
    __m256 lo = _mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q),
           hi = _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q);
    return _mm256_movemask_ps(_mm256_or_ps(lo, hi)) != 0;
}
V_INLINE v16 v_first(int64_t n, v16 a, v16 b)
{
    return v_pair(_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(v_mask(n, 0))),
                  _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(v_mask(n, 8))));
}
V_INLINE v16 v_shift_left_23(v16 a)
{
    return v_pair(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.lo), 23)),
                  _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.hi), 23)));
}
V_INLINE v16 v_load_f16(const uint16_t *p)
{
    return v_pair(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))));
}
/* Of two numbers that cannot be ordered, v_min and v_max return the second: NaNs stay. */
V_INLINE void v_store_f16(uint16_t *p, v16 a)
{
    a = v_max(v_set1(-F16_MAX), v_min(v_set1(F16_MAX), a));
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
V_INLINE __m256 bf16_8(const uint16_t *p)
{
    __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}
V_INLINE v16 v_load_bf16(const uint16_t *p) { return v_pair(bf16_8(p), bf16_8(p + 8)); }
/* As sb_bf16_narrow has it: the upper half of the bits, rounded unless it is a NaN, which becomes a
 * quiet one. */
V_INLINE __m256i narrow8(__m256 a)
{
    const __m256i bits = _mm256_castps_si256(a), half = _mm256_set1_epi32(0x7fff);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, half), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
}
V_INLINE void v_store_bf16(uint16_t *p, v16 a)
{
    const __m256i halves = _mm256_packus_epi32(narrow8(a.lo), narrow8(a.hi));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(halves, 0xD8));
}
V_INLINE __m256 even8(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)p), 16));
}
V_INLINE __m256 odd8(const uint16_t *p)
{
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_loadu_si256((const __m256i *)p), _mm256_set1_epi32(-65536)));
}
V_INLINE v16 v_load_even(const uint16_t *p) { return v_pair(even8(p), even8(p + 16)); }
V_INLINE v16 v_load_odd(const uint16_t *p) { return v_pair(odd8(p), odd8(p + 16)); }
/* Into the second-level cache. */
V_INLINE void v_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }

V_INLINE __m256 fold8(v16 x) { return _mm256_add_ps(x.lo, x.hi); }
V_INLINE __m256 fold4(__m256 x, __m256 y)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
}
V_INLINE __m256 fold2(__m256 x, __m256 y)
{
    return _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xEE));
}
V_INLINE __m256 fold1(__m256 x, __m256 y)
{
    return _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xDD));
}
V_INLINE __m256 fold84(const v16 a[5]) { return fold4(fold8(a[0]), fold8(a[4])); }

/* Lane i of the result is the sum of the lanes of a[i]. */
V_INLINE __m256 sum8(const v16 a[8])
{
    return fold1(fold2(fold84(a), fold84(a + 1)), fold2(fold84(a + 2), fold84(a + 3)));
}
V_INLINE v16 v_sum16(const v16 a[16]) { return v_pair(sum8(a), sum8(a + 8)); }

V_INLINE float v_hsum(v16 a)
{
    __m256 s = fold8(a);
    s = fold4(s, s);
    s = fold2(s, s);
    return _mm256_cvtss_f32(fold1(s, s));
}

V_INLINE float v_hmax(v16 a)
{
    __m256 m = _mm256_max_ps(a.lo, a.hi);
    m = _mm256_max_ps(m, _mm256_permute2f128_ps(m, m, 1));
    m = _mm256_max_ps(m, _mm256_shuffle_ps(m, m, 0x4E));
    return _mm256_cvtss_f32(_mm256_max_ps(m, _mm256_shuffle_ps(m, m, 0xB1)));
}

#elif defined(SB_LEVEL_SCALAR)

#define SB_LEVEL(name) sb_cpu_##name##_scalar
typedef struct {
    float f[V16];
} v16;

#define V_LANES(expr)             \
    v16 r;                        \
    for (int i = 0; i < V16; i++) \
        r.f[i] = (expr);          \
    return r

V_INLINE v16 v_set1(float a) { V_LANES(a); }
V_INLINE v16 v_load(const float *p) { V_LANES(p[i]); }
V_INLINE void v_store(float *p, v16 a) { memcpy(p, a.f, sizeof a.f); }
V_INLINE v16 v_load_n(const float *p, int64_t n) { V_LANES(i < n ? p[i] : 0.0f); }
V_INLINE void v_store_n(float *p, v16 a, int64_t n) { memcpy(p, a.f, (size_t)n * sizeof *p); }
V_INLINE v16 v_add(v16 a, v16 b) { V_LANES(a.f[i] + b.f[i]); }
V_INLINE v16 v_sub(v16 a, v16 b) { V_LANES(a.f[i] - b.f[i]); }
V_INLINE v16 v_mul(v16 a, v16 b) { V_LANES(a.f[i] * b.f[i]); }
V_INLINE v16 v_div(v16 a, v16 b) { V_LANES(a.f[i] / b.f[i]); }
V_INLINE v16 v_max(v16 a, v16 b) { V_LANES(a.f[i] > b.f[i] ? a.f[i] : b.f[i]); }
V_INLINE v16 v_min(v16 a, v16 b) { V_LANES(a.f[i] < b.f[i] ? a.f[i] : b.f[i]); }
V_INLINE v16 v_fma(v16 a, v16 b, v16 c) { V_LANES(fmaf(a.f[i], b.f[i], c.f[i])); }
V_INLINE v16 v_first(int64_t n, v16 a, v16 b) { V_LANES(i < n ? a.f[i] : b.f[i]); }
V_INLINE v16 v_shift_left_23(v16 a) { V_LANES(bits_f32(f32_bits(a.f[i]) << 23)); }
V_INLINE v16 v_load_f16(const uint16_t *p) { V_LANES(f16_f32(p[i])); }
V_INLINE void v_store_f16(uint16_t *p, v16 a)
{
    for (int i = 0; i < V16; i++)
        p[i] = f32_f16(a.f[i]);
}
V_INLINE v16 v_load_bf16(const uint16_t *p) { V_LANES(bf16_f32(p[i])); }
V_INLINE void v_store_bf16(uint16_t *p, v16 a)
{
    for (int i = 0; i < V16; i++)
        p[i] = f32_bf16(a.f[i]);
}
V_INLINE v16 v_load_even(const uint16_t *p) { V_LANES(bf16_f32(p[2 * i])); }
V_INLINE v16 v_load_odd(const uint16_t *p) { V_LANES(bf16_f32(p[2 * i + 1])); }
V_INLINE void v_prefetch(const void *p) { (void)p; }

V_INLINE int v_any_nan(v16 a)
{
    int any = 0;
    for (int i = 0; i < V16; i++)
        any |= isnan(a.f[i]) != 0;
    return any;
}

V_INLINE float v_hsum(v16 a)
{
    for (int half = V16 / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            a.f[i] += a.f[i + half];
    return a.f[0];
}

V_INLINE float v_hmax(v16 a)
{
    for (int half = V16 / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            a.f[i] = a.f[i] > a.f[i + half] ? a.f[i] : a.f[i + half];
    return a.f[0];
}

V_INLINE v16 v_sum16(const v16 a[16]) { V_LANES(v_hsum(a[i])); }

#else
#error "compile with SB_LEVEL_SCALAR, SB_LEVEL_AVX2 or SB_LEVEL_AVX512 (see the Makefile)"
#endif

#endif
