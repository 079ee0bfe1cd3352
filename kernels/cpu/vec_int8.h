/*
 * Sums of products of 8-bit integers as vectors: of 16 columns, four steps of each at once. Sums of
 * integers have no order, and nothing here can overflow, so levels and instructions may differ in
 * how they come to a sum.
 *
 *   quad       four weights of each of 16 columns (panel_quant.h), ready to be multiplied
 *   isum       sums of products in progress
 *   take       the quad of step `which` of 0 and 1 of a word of nibbles, or the bytes of a quad
 *   begin      sums without products; `start` is added to each, here or in `finish`
 *   add        + the products of the quad and four inputs, which are a word of struct sb_cpu_int8
 *   finish     the sums as floats, which is exact
 *
 * They exist with the suffix _plain and, at AVX-512, with the suffix _vnni. `kind` is a constant.
 * Nibbles are multiplied as they lie, as 0 to 15. What stands for 0 (zero_plain, zero_vnni), times
 * the sum of the inputs, is what the caller has subtracted as `start`. Codes become bytes by a
 * look-up (v_store_codes stores those of `take`, for the matrix unit).
 *
 * None of the following can overflow, since inputs are -127 .. 127 and a group has 32 steps:
 *
 *   vpdpbusd     takes one factor without a sign: bytes are weight + 128, and 128 stands for 0; of
 *                codes they are weight + 12. It adds in 32 bits.
 *   vpmaddubsw   takes one factor without a sign, too, and adds two products in 16 bits. Bytes are
 *                the size of the weight, at most 128, and the input has the weight's sign: two
 *                products are at most 2 * 128 * 127 = 32512. Of nibbles sixteen products are at
 *                most 16 * 15 * 127 = 30480, so 16 bits hold the sums of a group. So they do of
 *                codes, whose weights are -12 .. 12: 16 * 12 * 127 = 24384. There the factor
 *                without a sign is the input's size, and the weight takes the input's sign. So one
 *                look-up is enough, whatever the number of rows.
 */
#ifndef SB_CPU_VEC_INT8_H
#define SB_CPU_VEC_INT8_H

#include "vec_quant.h"

/* What stands for 0 in a quad that `take` has made; zero: of the panel */
V_INLINE int zero_plain(const enum sb_kind kind, int zero)
{
    return kind == SB_KIND_BYTES ? 0 : zero;
}

/* Of 32 numbers the largest size, as the bits of a float: a NaN is more than an infinity, and this
 * more than any number. v_quads: rounds the 16 steps of x, which are -127 .. 127, to nearest, ties
 * to even; puts them where quads have them; and returns their sum. */
#if defined(SB_LEVEL_SCALAR)

V_INLINE uint32_t v_largest_size(v16 a, v16 b)
{
    uint32_t largest = 0;
    for (int i = 0; i < 2 * V16; i++) {
        const uint32_t size = f32_bits(i < V16 ? a.f[i] : b.f[i - V16]) & 0x7fffffffu;
        largest = size > largest ? size : largest;
    }
    return largest;
}
/* A number to which 0x1.8p23 is added has its rounded integer in the low bits. */
V_INLINE int v_quads(int8_t *to, v16 x)
{
    int sum = 0;
    for (int i = 0; i < V16; i++) {
        const int8_t q = (int8_t)(f32_bits(x.f[i] + 0x1.8p23f) & 0xff);
        to[sb_quad_index(i)] = q;
        sum += q;
    }
    return sum;
}

#else

V_INLINE int put_quads(int8_t *to, __m128i bytes)
{
    const __m128i steps = _mm_setr_epi8(2, 6, 0, 4, 3, 7, 1, 5, 10, 14, 8, 12, 11, 15, 9, 13);
    const __m128i sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)),
                                      _mm_setzero_si128());
    _mm_storeu_si128((__m128i *)to, _mm_shuffle_epi8(bytes, steps));
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi32(sums, 2) - V16 * 128;
}

#endif

#if defined(SB_LEVEL_AVX512)

V_INLINE uint32_t v_largest_size(v16 a, v16 b)
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    return _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), mask),
                         _mm512_and_si512(_mm512_castps_si512(b), mask)));
}
V_INLINE int v_quads(int8_t *to, v16 x)
{
    return put_quads(to, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
}

typedef struct {
    __m512i size; /* of codes the weights with their signs */
    __mmask64 is_negative;
} quad_plain;
typedef __m512i isum_plain;

V_INLINE __m512i nibbles_of_quad(const char *at, const int which)
{
    const __m512i w = _mm512_loadu_si512(at);
    return _mm512_and_si512(which ? _mm512_srli_epi16(w, 4) : w, _mm512_set1_epi8(15));
}
V_INLINE __m512i codes_of_quad(const char *at, const int which)
{
    const __m128i table = _mm_loadu_si128((const __m128i *)sb_quant_codes);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles_of_quad(at, which));
}
V_INLINE void v_store_codes(char *to, const char *at, const int which)
{
    _mm512_storeu_si512(to, codes_of_quad(at, which));
}
V_INLINE quad_plain take_plain(const char *at, const enum sb_kind kind, const int which)
{
    quad_plain quad = {_mm512_loadu_si512(at), 0};
    if (kind == SB_KIND_NIBBLES) {
        quad.size = nibbles_of_quad(at, which);
    } else if (kind == SB_KIND_CODES) {
        quad.size = codes_of_quad(at, which);
    } else {
        quad.is_negative = _mm512_movepi8_mask(quad.size);
        quad.size = _mm512_abs_epi8(quad.size);
    }
    return quad;
}
V_INLINE isum_plain begin_plain(const enum sb_kind kind, int start)
{
    return kind != SB_KIND_BYTES ? _mm512_setzero_si512() : _mm512_set1_epi32(start);
}
V_INLINE isum_plain add_plain(isum_plain sum, quad_plain w, int x, const enum sb_kind kind)
{
    const __m512i words = _mm512_set1_epi32(x), zero = _mm512_setzero_si512();
    if (kind == SB_KIND_NIBBLES)
        return _mm512_add_epi16(sum, _mm512_maddubs_epi16(w.size, words));
    if (kind == SB_KIND_CODES) {
        const __m512i signs = _mm512_mask_sub_epi8(w.size, _mm512_movepi8_mask(words), zero,
                                                   w.size);
        return _mm512_add_epi16(sum, _mm512_maddubs_epi16(_mm512_abs_epi8(words), signs));
    }
    const __m512i signs = _mm512_mask_sub_epi8(words, w.is_negative, zero, words);
    return _mm512_add_epi32(
        sum, _mm512_madd_epi16(_mm512_maddubs_epi16(w.size, signs), _mm512_set1_epi16(1)));
}
V_INLINE v16 finish_plain(isum_plain sum, const enum sb_kind kind, int start)
{
    if (kind != SB_KIND_BYTES)
        sum = _mm512_add_epi32(_mm512_madd_epi16(sum, _mm512_set1_epi16(1)),
                               _mm512_set1_epi32(start));
    return _mm512_cvtepi32_ps(sum);
}

#define TARGET_VNNI __attribute__((target("avx512vnni")))
typedef __m512i quad_vnni;
typedef __m512i isum_vnni;

V_INLINE int zero_vnni(const enum sb_kind kind, int zero)
{
    return kind == SB_KIND_BYTES ? 128 : kind == SB_KIND_CODES ? 12 : zero;
}
V_INLINE quad_vnni take_vnni(const char *at, const enum sb_kind kind, const int which)
{
    if (kind == SB_KIND_NIBBLES)
        return nibbles_of_quad(at, which);
    if (kind == SB_KIND_CODES)
        return _mm512_add_epi8(codes_of_quad(at, which), _mm512_set1_epi8(12));
    return _mm512_xor_si512(_mm512_loadu_si512(at), _mm512_set1_epi8(-128));
}
V_INLINE isum_vnni begin_vnni(const enum sb_kind kind, int start)
{
    (void)kind;
    return _mm512_set1_epi32(start);
}
V_INLINE TARGET_VNNI isum_vnni add_vnni(isum_vnni sum, quad_vnni w, int x, const enum sb_kind kind)
{
    (void)kind;
    return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(x));
}
V_INLINE v16 finish_vnni(isum_vnni sum, const enum sb_kind kind, int start)
{
    (void)kind;
    (void)start;
    return _mm512_cvtepi32_ps(sum);
}

#elif defined(SB_LEVEL_AVX2)

V_INLINE __m256i size8(__m256 a)
{
    return _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
}
V_INLINE uint32_t v_largest_size(v16 a, v16 b)
{
    const __m256i sizes = _mm256_max_epu32(_mm256_max_epu32(size8(a.lo), size8(a.hi)),
                                           _mm256_max_epu32(size8(b.lo), size8(b.hi)));
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(sizes), _mm256_extracti128_si256(sizes, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1)));
}
V_INLINE __m128i rounded8(__m256 x)
{
    const __m256i q = _mm256_cvtps_epi32(x);
    return _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
}
V_INLINE int v_quads(int8_t *to, v16 x)
{
    return put_quads(to, _mm_packs_epi16(rounded8(x.lo), rounded8(x.hi)));
}

typedef struct {
    __m256i lo, hi;           /* signed bytes, or nibbles */
    __m256i lo_size, hi_size; /* without their signs; not of codes */
} quad_plain;
typedef struct {
    __m256i lo, hi;
} isum_plain;

V_INLINE __m256i nibbles_of_quad(const char *at, const int which)
{
    const __m256i w = _mm256_loadu_si256((const __m256i *)at);
    return _mm256_and_si256(which ? _mm256_srli_epi16(w, 4) : w, _mm256_set1_epi8(15));
}
V_INLINE __m256i codes_of_quad(const char *at, const int which)
{
    const __m128i table = _mm_loadu_si128((const __m128i *)sb_quant_codes);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles_of_quad(at, which));
}
V_INLINE void v_store_codes(char *to, const char *at, const int which)
{
    _mm256_storeu_si256((__m256i *)to, codes_of_quad(at, which));
    _mm256_storeu_si256((__m256i *)(to + 32), codes_of_quad(at + 32, which));
}
V_INLINE quad_plain take_plain(const char *at, const enum sb_kind kind, const int which)
{
    quad_plain quad;
    if (kind == SB_KIND_CODES) {
        quad.lo = quad.lo_size = codes_of_quad(at, which);
        quad.hi = quad.hi_size = codes_of_quad(at + 32, which);
    } else if (kind == SB_KIND_NIBBLES) {
        quad.lo = quad.lo_size = nibbles_of_quad(at, which);
        quad.hi = quad.hi_size = nibbles_of_quad(at + 32, which);
    } else {
        quad.lo = _mm256_loadu_si256((const __m256i *)at);
        quad.hi = _mm256_loadu_si256((const __m256i *)(at + 32));
        quad.lo_size = _mm256_abs_epi8(quad.lo);
        quad.hi_size = _mm256_abs_epi8(quad.hi);
    }
    return quad;
}
V_INLINE isum_plain begin_plain(const enum sb_kind kind, int start)
{
    const __m256i each = kind != SB_KIND_BYTES ? _mm256_setzero_si256() : _mm256_set1_epi32(start);
    const isum_plain sum = {each, each};
    return sum;
}
V_INLINE __m256i add8(__m256i sum, __m256i w, __m256i size, __m256i x, const enum sb_kind kind)
{
    if (kind == SB_KIND_NIBBLES)
        return _mm256_add_epi16(sum, _mm256_maddubs_epi16(size, x));
    if (kind == SB_KIND_CODES)
        return _mm256_add_epi16(sum,
                                _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(w, x)));
    const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(x, w));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
V_INLINE isum_plain add_plain(isum_plain sum, quad_plain w, int x, const enum sb_kind kind)
{
    const __m256i words = _mm256_set1_epi32(x);
    sum.lo = add8(sum.lo, w.lo, w.lo_size, words, kind);
    sum.hi = add8(sum.hi, w.hi, w.hi_size, words, kind);
    return sum;
}
V_INLINE __m256 finish8(__m256i sum, const enum sb_kind kind, int start)
{
    if (kind != SB_KIND_BYTES)
        sum = _mm256_add_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)),
                               _mm256_set1_epi32(start));
    return _mm256_cvtepi32_ps(sum);
}
V_INLINE v16 finish_plain(isum_plain sum, const enum sb_kind kind, int start)
{
    return v_pair(finish8(sum.lo, kind, start), finish8(sum.hi, kind, start));
}

#else

typedef struct {
    int8_t w[V16][4];
} quad_plain;
typedef struct {
    int32_t lane[V16];
} isum_plain;

V_INLINE void v_store_codes(char *to, const char *at, const int which)
{
    for (int i = 0; i < 4 * V16; i++)
        to[i] = (char)sb_quant_codes[(uint8_t)at[i] >> 4 * which & 15];
}
V_INLINE quad_plain take_plain(const char *at, const enum sb_kind kind, const int which)
{
    quad_plain quad;
    if (kind == SB_KIND_CODES) {
        v_store_codes((char *)quad.w, at, which);
        return quad;
    }
    memcpy(quad.w, at, sizeof quad.w);
    for (int i = 0; kind == SB_KIND_NIBBLES && i < 4 * V16; i++)
        quad.w[i / 4][i % 4] = (int8_t)((uint8_t)quad.w[i / 4][i % 4] >> 4 * which & 15);
    return quad;
}
V_INLINE isum_plain begin_plain(const enum sb_kind kind, int start)
{
    isum_plain sum;
    (void)kind;
    for (int i = 0; i < V16; i++)
        sum.lane[i] = start;
    return sum;
}
V_INLINE isum_plain add_plain(isum_plain sum, quad_plain quad, int x, const enum sb_kind kind)
{
    int8_t inputs[4];
    (void)kind;
    memcpy(inputs, &x, sizeof inputs);
    for (int i = 0; i < V16; i++)
        for (int k = 0; k < 4; k++)
            sum.lane[i] += quad.w[i][k] * inputs[k];
    return sum;
}
V_INLINE v16 finish_plain(isum_plain sum, const enum sb_kind kind, int start)
{
    (void)kind;
    (void)start;
    V_LANES((float)sum.lane[i]);
}

#endif

#endif
