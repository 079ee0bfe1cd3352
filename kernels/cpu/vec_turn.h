/*
 * Moves words of four bytes from rows to where panels have them (panel.h).
 *
 *   v_turn_words     turns sixteen rows of sixteen words: line i gets word i of each row
 *   v_pair_words     makes words of two rows of 16-bit elements: the one in the lower halves, the
 *                    other in the upper ones
 *
 * To turn, vectors are loaded that have four rows, each four apart, side by side, so that what is
 * left is to turn 4 by 4 words within each 16 bytes. That takes half as many shuffles as to turn
 * whole rows, since loads put the rows in place.
 *
 *     loaded    words 4q .. 4q + 3 of row a | of row a + 4 | of row a + 8 | of row a + 12
 *     turned    word 4q + j of rows 0 .. 3  | of rows 4 .. | of rows 8 .. | of rows 12 .. 15
 *
 * For the layout BF16_DOT, four elements of a row that are two words, 0 1 and 2 3, become the words
 * 2 0 and 3 1 on the way.
 */
#ifndef SB_CPU_VEC_TURN_H
#define SB_CPU_VEC_TURN_H

#include "vec.h"

#if defined(SB_LEVEL_SCALAR)

V_INLINE void v_turn_words(char *line, size_t stride, const char *const *rows, const int is_dot)
{
    for (int i = 0; i < V16; i++, line += stride)
        for (int r = 0; r < V16; r++) {
            uint16_t element[2][2];
            memcpy(element, rows[r] + i / 2 * 8, sizeof element);
            const uint32_t low = is_dot ? element[1][i % 2] : element[i % 2][0];
            const uint32_t high = is_dot ? element[0][i % 2] : element[i % 2][1];
            const uint32_t word = high << 16 | low;
            memcpy(line + 4 * r, &word, sizeof word);
        }
}

V_INLINE void v_pair_words(uint32_t *to, const uint16_t *low, const uint16_t *high)
{
    for (int i = 0; i < V16; i++)
        to[i] = (uint32_t)high[i] << 16 | low[i];
}

#else

/* Where the bytes of the words 2 0 and 3 1 come from, twice. */
V_INLINE __m128i dot_bytes(void)
{
    return _mm_setr_epi8(4, 5, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9, 14, 15, 10, 11);
}

V_INLINE __m128i load_words(const char *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* Vectors of words: 16 bytes of every fourth of TURN_ROWS rows. low_words and high_words take words
 * of a and b in turn, from the first or the second half of each 16 bytes, and low_pairs and
 * high_pairs pairs of words. */
#if defined(SB_LEVEL_AVX512)

enum { TURN_ROWS = 16 };
typedef __m512i turn_vec;

V_INLINE turn_vec load_rows(const char *const *rows, size_t at, const int is_dot)
{
    __m512i four = _mm512_castsi128_si512(load_words(rows[0] + at));
    four = _mm512_inserti32x4(four, load_words(rows[4] + at), 1);
    four = _mm512_inserti32x4(four, load_words(rows[8] + at), 2);
    four = _mm512_inserti32x4(four, load_words(rows[12] + at), 3);
    return is_dot ? _mm512_shuffle_epi8(four, _mm512_broadcast_i32x4(dot_bytes())) : four;
}
V_INLINE turn_vec low_words(turn_vec a, turn_vec b) { return _mm512_unpacklo_epi32(a, b); }
V_INLINE turn_vec high_words(turn_vec a, turn_vec b) { return _mm512_unpackhi_epi32(a, b); }
V_INLINE turn_vec low_pairs(turn_vec a, turn_vec b) { return _mm512_unpacklo_epi64(a, b); }
V_INLINE turn_vec high_pairs(turn_vec a, turn_vec b) { return _mm512_unpackhi_epi64(a, b); }
V_INLINE void store_words(void *to, turn_vec a) { _mm512_storeu_si512(to, a); }

V_INLINE void v_pair_words(uint32_t *to, const uint16_t *low, const uint16_t *high)
{
    __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)low));
    __m512i upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)high));
    _mm512_storeu_si512(to, _mm512_or_si512(words, _mm512_slli_epi32(upper, 16)));
}

#else

enum { TURN_ROWS = 8 };
typedef __m256i turn_vec;

V_INLINE turn_vec load_rows(const char *const *rows, size_t at, const int is_dot)
{
    __m256i two = _mm256_inserti128_si256(_mm256_castsi128_si256(load_words(rows[0] + at)),
                                          load_words(rows[4] + at), 1);
    return is_dot ? _mm256_shuffle_epi8(two, _mm256_broadcastsi128_si256(dot_bytes())) : two;
}
V_INLINE turn_vec low_words(turn_vec a, turn_vec b) { return _mm256_unpacklo_epi32(a, b); }
V_INLINE turn_vec high_words(turn_vec a, turn_vec b) { return _mm256_unpackhi_epi32(a, b); }
V_INLINE turn_vec low_pairs(turn_vec a, turn_vec b) { return _mm256_unpacklo_epi64(a, b); }
V_INLINE turn_vec high_pairs(turn_vec a, turn_vec b) { return _mm256_unpackhi_epi64(a, b); }
V_INLINE void store_words(void *to, turn_vec a) { _mm256_storeu_si256(to, a); }

V_INLINE void v_pair_words(uint32_t *to, const uint16_t *low, const uint16_t *high)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)low),
            b = _mm256_loadu_si256((const __m256i *)high);
    __m256i even = _mm256_unpacklo_epi16(a, b), odd = _mm256_unpackhi_epi16(a, b);
    store_words(to, _mm256_permute2x128_si256(even, odd, 0x20));
    store_words(to + 8, _mm256_permute2x128_si256(even, odd, 0x31));
}

#endif

/* The words of TURN_ROWS rows. */
V_INLINE void turn_rows(char *line, size_t stride, const char *const *rows, const int is_dot)
{
    for (size_t at = 0; at < 64; at += 16, line += 4 * stride) {
        turn_vec a = load_rows(rows, at, is_dot), b = load_rows(rows + 1, at, is_dot),
                 c = load_rows(rows + 2, at, is_dot), d = load_rows(rows + 3, at, is_dot);
        turn_vec ab = low_words(a, b), cd = low_words(c, d);
        store_words(line, low_pairs(ab, cd));
        store_words(line + stride, high_pairs(ab, cd));
        ab = high_words(a, b), cd = high_words(c, d);
        store_words(line + 2 * stride, low_pairs(ab, cd));
        store_words(line + 3 * stride, high_pairs(ab, cd));
    }
}

V_INLINE void v_turn_words(char *line, size_t stride, const char *const *rows, const int is_dot)
{
    for (int r = 0; r < V16; r += TURN_ROWS)
        turn_rows(line + 4 * r, stride, rows + r, is_dot);
}

#endif
#endif
