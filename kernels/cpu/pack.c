/*
 * Packs weights into panels (panel.h draws them), and reads rows back out of them for the
 * embedding.
 *
 * Nothing here computes but the rounding from f32 to bf16 (to nearest even, by the same bit
 * operations at every level), and the value of a quantised weight that is read back. So a weight
 * has the same value wherever it is read, and the embedding and a tied output layer can share one
 * table.
 */
#include "level.h"
#include "panel_quant.h"

/* The steps k that are packed at a time: the 64 x 64 piece of the panel that they write stays in
 * the first-level cache. */
#define PACK_STEPS 64

static uint32_t load_bits(const void *row, enum sb_dtype dtype, int64_t k)
{
    if (dtype == SB_F32)
        return f32_bits(((const float *)row)[k]);
    return ((const uint16_t *)row)[k];
}

static float widen(uint32_t bits, enum sb_dtype dtype)
{
    if (dtype == SB_F32)
        return bits_f32(bits);
    return dtype == SB_BF16 ? bf16_f32((uint16_t)bits) : f16_f32((uint16_t)bits);
}

/* Where block `block` of 32 steps begins in the panel of row `out`, and where its span does. */
static char *quant_block(const struct sb_quant_panel *p, void *panels, int64_t n_in, int64_t out,
                         int64_t block, char **span)
{
    *span = (char *)panels + out / SB_PANEL * sb_quant_bytes(p, n_in) +
            block / p->blocks * sb_quant_span_bytes(p);
    return *span + sb_quant_head_bytes(p) + block % p->blocks * sb_quant_block_bytes(p);
}

/* The word of nibbles that 8 steps make (panel_quant.h draws it). zero is 0 or 8; q + 8 is q in
 * four bits with the upper one inverted. All steps are shifted together: `pairs` has steps 0 and 1,
 * 2 and 3, and so on, in the lowest byte of each of its quarters. */
static uint32_t nibbles_of(const int8_t q[8], int zero)
{
    uint64_t bytes, pairs;

    memcpy(&bytes, q, sizeof bytes);
    bytes = (bytes & UINT64_C(0x0f0f0f0f0f0f0f0f)) ^ (uint64_t)zero * UINT64_C(0x0101010101010101);
    pairs = bytes | bytes >> 4;
    return (uint32_t)((pairs >> 16 & 0xff) | (pairs >> 48 & 0xff) << 8 | (pairs & 0xff) << 16 |
                      (pairs >> 32 & 0xff) << 24);
}

static void put_integers(char *at, const struct sb_quant_panel *p, int64_t c, const int8_t *q)
{
    if (p->bits == 8) {
        for (int k = 0; k < SB_BLOCK; k++)
            at[sb_byte_index(p, c, k)] = (char)q[k];
        return;
    }
    for (int k = 0; k < SB_BLOCK; k += 8) {
        const uint32_t word = nibbles_of(q + k, p->zero);
        memcpy(at + (k / 8 * SB_PANEL + c) * 4, &word, sizeof word);
    }
}

/* Packs one row of quantised blocks. */
static void pack_row(void *panels, const struct sb_quant_panel *p, int64_t n_in, int64_t out,
                     const char *row)
{
    const struct sb_quant *quant = sb_quant_of(p->dtype);
    const int64_t c = out % SB_PANEL, blocks = sb_whole_blocks(n_in) / SB_BLOCK;
    struct sb_quant_block unpacked;

    for (int64_t block = 0; block < blocks; block++) {
        const int64_t in_span = block % p->blocks;
        char *span, *at = quant_block(p, panels, n_in, out, block, &span);
        if (in_span == 0) {
            sb_quant_unpack(&unpacked, p->dtype, row + block / p->blocks * quant->bytes);
            memcpy(span + 2 * c, &unpacked.d, 2);
            if (p->has_mins)
                memcpy(span + 2 * (SB_PANEL + c), &unpacked.dmin, 2);
        }
        for (int g = 0; g < p->groups && p->has_scales; g++, at += SB_PANEL)
            at[c] = (char)unpacked.scales[in_span * p->groups + g];
        if (p->has_mins) {
            at[c] = (char)unpacked.mins[in_span];
            at += SB_PANEL;
        }
        put_integers(at, p, c, unpacked.q + in_span * SB_BLOCK);
    }
}

static void pack_quantised(void *panels, enum sb_layout layout, int32_t n_in, int32_t first,
                           int32_t n, const char *rows)
{
    const struct sb_quant_panel p = sb_quant_panel(layout);
    const size_t bytes = sb_dtype_row_bytes(p.dtype, (size_t)n_in);

    for (int32_t r = 0; r < n; r++)
        pack_row(panels, &p, n_in, first + r, rows + (size_t)r * bytes);
}

/* The integer of step k of a block, whose integers begin at `at`. */
static int get_integer(const char *at, const struct sb_quant_panel *p, int64_t c, int64_t k)
{
    uint32_t word;

    if (p->bits == 8)
        return (int8_t)at[sb_byte_index(p, c, k)];
    memcpy(&word, at + (k / 8 * SB_PANEL + c) * 4, sizeof word);
    return (int)(word >> sb_nibble_shift(k) & 15) - p->zero;
}

static float get_half(const char *at)
{
    uint16_t half;

    memcpy(&half, at, sizeof half);
    return f16_f32(half);
}

/* Reads a row of quantised weights: scale * q - min, rounded once. */
static void embed_quantised(float *x, const struct sb_quant_panel *p, const void *panels,
                            int64_t n_in, int64_t id)
{
    const int64_t c = id % SB_PANEL;

    for (int64_t k0 = 0; k0 < n_in; k0 += SB_BLOCK) {
        char *span;
        const char *at = quant_block(p, (void *)panels, n_in, id, k0 / SB_BLOCK, &span);
        const char *integers = at + sb_quant_factor_bytes(p), *mins = integers - SB_PANEL;
        const float d = get_half(span + 2 * c);
        const float min = p->has_mins ? get_half(span + 2 * (SB_PANEL + c)) * (uint8_t)mins[c] : 0;
        for (int64_t k = 0; k < SB_BLOCK && k0 + k < n_in; k++) {
            const int64_t group = k * p->groups / SB_BLOCK;
            const float scale = p->has_scales ? d * (int8_t)at[group * SB_PANEL + c] : d;
            x[k0 + k] = fmaf(scale, (float)get_integer(integers, p, c, k), -min);
        }
    }
}

/* Packs steps [k0, k1) of one row, which are not more than PACK_STEPS: by words of two steps where
 * two bf16 of the row are one (BF16) or two are two (BF16_DOT). Returns how far it got, since the
 * steps behind the last four, and other types, have no words. */
static int64_t pack_words(uint32_t *panels, enum sb_layout layout, int64_t n_in, int64_t out,
                          const uint16_t *row, int64_t k0, int64_t k1)
{
    uint32_t *line = panels + sb_panel_index(layout, n_in, out / SB_PANEL * SB_PANEL, k0) / 2 +
                     out % SB_PANEL;
    uint32_t words[2];

    for (; k0 + 4 <= k1; k0 += 4, line += 2 * SB_PANEL) {
        memcpy(words, row + k0, sizeof words);
        if (layout == SB_LAYOUT_BF16) {
            line[0] = words[0];
            line[SB_PANEL] = words[1];
        } else {
            line[0] = words[0] << 16 | (words[1] & 0xffffu);
            line[SB_PANEL] = (words[0] & 0xffff0000u) | words[1] >> 16;
        }
    }
    return k0;
}

/* rows [n, n_in] of dtype. Quantised panels are packed from rows of their own type, and F16 panels
 * from f16 rows, because no class holds another type as these. */
void SB_LEVEL(pack)(void *panels, enum sb_layout layout, int32_t n_in, int32_t first, int32_t n,
                    const void *rows, enum sb_dtype dtype)
{
    size_t size = dtype == SB_F32 ? 4 : 2;
    int32_t rows_at_once;

    if (sb_layout_is_quantised(layout)) {
        pack_quantised(panels, layout, n_in, first, n, rows);
        return;
    }
    for (int32_t r0 = 0; r0 < n; r0 += rows_at_once) {
        rows_at_once = SB_PANEL - (first + r0) % SB_PANEL; /* up to the end of this panel */
        if (rows_at_once > n - r0)
            rows_at_once = n - r0;
        for (int64_t k0 = 0; k0 < n_in; k0 += PACK_STEPS) {
            int64_t k1 = k0 + PACK_STEPS < n_in ? k0 + PACK_STEPS : n_in;
            for (int32_t r = r0; r < r0 + rows_at_once; r++) {
                const char *row = (const char *)rows + (size_t)r * (size_t)n_in * size;
                int64_t k = k0;
                if (dtype == SB_BF16 && sb_layout_has_blocks(layout))
                    k = pack_words(panels, layout, n_in, first + r,
                                   (const uint16_t *)(const void *)row, k0, k1);
                for (; k < k1; k++) {
                    uint32_t bits = load_bits(row, dtype, k);
                    int64_t at = sb_panel_index(layout, n_in, first + r, k);
                    if (layout == SB_LAYOUT_F32)
                        ((float *)panels)[at] = widen(bits, dtype);
                    else if (layout == SB_LAYOUT_F16 || dtype == SB_BF16)
                        ((uint16_t *)panels)[at] = (uint16_t)bits;
                    else
                        ((uint16_t *)panels)[at] = f32_bf16(widen(bits, dtype));
                }
            }
        }
    }
}

/* x [n_in] = row `id` of W. */
void SB_LEVEL(embed)(float *x, const void *panels, enum sb_layout layout, int32_t n_in, int32_t id)
{
    if (sb_layout_is_quantised(layout)) {
        const struct sb_quant_panel p = sb_quant_panel(layout);
        embed_quantised(x, &p, panels, n_in, id);
        return;
    }
    for (int64_t k = 0; k < n_in; k++) {
        int64_t at = sb_panel_index(layout, n_in, id, k);
        if (layout == SB_LAYOUT_F32)
            x[k] = ((const float *)panels)[at];
        else if (layout == SB_LAYOUT_F16)
            x[k] = f16_f32(((const uint16_t *)panels)[at]);
        else
            x[k] = bf16_f32(((const uint16_t *)panels)[at]);
    }
}
