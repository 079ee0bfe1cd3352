/*
 * Quantised weights as vectors: 16 columns of one step as floats, and the bf16 pairs that lines of
 * the layouts BF16 and BF16_DOT have (panel.h, panel_quant.h). All of it is exact, so there is
 * nothing here that levels could do in different ways.
 *
 *   nibbles      what nibbles become floats by: a table with one for each of 16 values, or what
 *                stands for 0; of codes a table too
 *   v_nibbles    16 floats: those of step k of the 8 steps that words of nibbles have
 *   v_codes      the same of codes, which are never the zero with a sign
 *   v_bytes      16 signed bytes as floats
 *   v_nibble_pairs    where vdpbf16ps is: line i of the four of BF16_DOT that a word of nibbles
 * makes v_pairs      16 words, whose upper halves are those of `high` and lower halves the upper
 * ones of `low`
 */
#ifndef SB_CPU_VEC_QUANT_H
#define SB_CPU_VEC_QUANT_H

#include "panel_quant.h"
#include "vec.h"

/* Before a loop over the steps of a word, or over rows. At the scalar level it would only make the
 * code large. */
#if defined(SB_LEVEL_SCALAR)
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(SB_LEVEL_AVX512)

/* A table of bf16 for the 32 values that five bits have. A look-up heeds the lowest five bits of
 * each half of a lane, and the fifth belongs to another nibble. */
typedef __m512i nibbles;

V_INLINE nibbles nibbles_from(const struct sb_quant_panel *panel)
{
    const __m512i values = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i codes = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)sb_quant_codes));
    __m512 floats = _mm512_cvtepi32_ps(
        panel->kind == SB_KIND_CODES ? codes
                                     : _mm512_sub_epi32(values, _mm512_set1_epi32(panel->zero)));
    __m512i upper = _mm512_srli_epi32(_mm512_castps_si512(floats), 16);
    return _mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(upper));
}
/* Line i of the four of BF16_DOT that 8 steps make. */
V_INLINE __m512i v_nibble_pairs(nibbles table, const char *words, const int i)
{
    __m512i w = _mm512_srli_epi16(_mm512_loadu_si512(words), (unsigned)(4 * i));
    return _mm512_permutexvar_epi16(w, table);
}
/* Floats are made of such lines, too: one look-up serves two steps. */
V_INLINE v16 v_nibbles(nibbles table, const char *words, const int k)
{
    __m512i pairs = v_nibble_pairs(table, words, k / 4 * 2 + k % 2);
    return _mm512_castsi512_ps(k % 4 < 2 ? _mm512_and_si512(pairs, _mm512_set1_epi32(-65536))
                                         : _mm512_slli_epi32(pairs, 16));
}
V_INLINE v16 v_codes(nibbles table, const char *words, const int k)
{
    return v_nibbles(table, words, k);
}
V_INLINE v16 v_bytes(const char *bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)bytes)));
}
typedef __m512i words16;

V_INLINE words16 v_pairs(v16 high, v16 low)
{
    words16 lower = _mm512_srli_epi32(_mm512_castps_si512(low), 16);
    return _mm512_mask_blend_epi16(0xaaaaaaaau, lower, _mm512_castps_si512(high));
}
V_INLINE void v_store_words(char *to, words16 words) { _mm512_storeu_si512(to, words); }

#elif defined(SB_LEVEL_AVX2)

typedef __m256i nibbles; /* what stands for 0; of codes the floats of the eight without a sign */

V_INLINE nibbles nibbles_from(const struct sb_quant_panel *panel)
{
    const __m256i sizes = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)sb_quant_codes));
    return panel->kind == SB_KIND_CODES ? _mm256_castps_si256(_mm256_cvtepi32_ps(sizes))
                                        : _mm256_set1_epi32(panel->zero);
}
V_INLINE __m256 nibbles8(nibbles zero, const char *words, const int shift)
{
    __m256i w = _mm256_srli_epi32(_mm256_loadu_si256((const __m256i *)words), shift);
    w = _mm256_sub_epi32(_mm256_and_si256(w, _mm256_set1_epi32(15)), zero);
    return _mm256_cvtepi32_ps(w);
}
V_INLINE v16 v_nibbles(nibbles zero, const char *words, const int k)
{
    const int shift = sb_nibble_shift(k);
    return v_pair(nibbles8(zero, words, shift), nibbles8(zero, words + 32, shift));
}
/* A look-up heeds the lowest three bits of a lane. The fourth is the sign. */
V_INLINE __m256 codes8(nibbles sizes, const char *words, const int shift)
{
    const __m256i w = _mm256_loadu_si256((const __m256i *)words);
    const __m256 size = _mm256_permutevar8x32_ps(_mm256_castsi256_ps(sizes),
                                                 _mm256_srli_epi32(w, shift));
    const __m256 sign = _mm256_castsi256_ps(_mm256_slli_epi32(w, 28 - shift));
    return _mm256_xor_ps(size, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}
V_INLINE v16 v_codes(nibbles sizes, const char *words, const int k)
{
    const int shift = sb_nibble_shift(k);
    return v_pair(codes8(sizes, words, shift), codes8(sizes, words + 32, shift));
}
V_INLINE __m256 bytes8(const char *bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)bytes)));
}
V_INLINE v16 v_bytes(const char *bytes) { return v_pair(bytes8(bytes), bytes8(bytes + 8)); }
typedef struct {
    __m256i lo, hi;
} words16;

V_INLINE __m256i pairs8(__m256 high, __m256 low)
{
    __m256i lower = _mm256_srli_epi32(_mm256_castps_si256(low), 16);
    return _mm256_blend_epi16(lower, _mm256_castps_si256(high), 0xaa);
}
V_INLINE words16 v_pairs(v16 high, v16 low)
{
    words16 words = {pairs8(high.lo, low.lo), pairs8(high.hi, low.hi)};
    return words;
}
V_INLINE void v_store_words(char *to, words16 words)
{
    _mm256_storeu_si256((__m256i *)to, words.lo);
    _mm256_storeu_si256((__m256i *)(to + 32), words.hi);
}

#else

typedef int nibbles;

V_INLINE nibbles nibbles_from(const struct sb_quant_panel *panel) { return panel->zero; }
V_INLINE v16 v_nibbles(nibbles zero, const char *words, const int k)
{
    const int shift = sb_nibble_shift(k);
    uint32_t w[V16];
    memcpy(w, words, sizeof w);
    V_LANES((float)((int)(w[i] >> shift & 15) - zero));
}
V_INLINE v16 v_codes(nibbles zero, const char *words, const int k)
{
    const int shift = sb_nibble_shift(k);
    uint32_t w[V16];
    (void)zero;
    memcpy(w, words, sizeof w);
    V_LANES((float)sb_quant_codes[w[i] >> shift & 15]);
}
V_INLINE v16 v_bytes(const char *bytes) { V_LANES((float)(signed char)bytes[i]); }

typedef struct {
    uint32_t w[V16];
} words16;

V_INLINE words16 v_pairs(v16 high, v16 low)
{
    words16 words;
    for (int i = 0; i < V16; i++)
        words.w[i] = (f32_bits(high.f[i]) & 0xffff0000u) | f32_bits(low.f[i]) >> 16;
    return words;
}
V_INLINE void v_store_words(char *to, words16 words) { memcpy(to, words.w, sizeof words.w); }

#endif

#endif
