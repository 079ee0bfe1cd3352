/*
 * Packs weights into panels (panel.h draws them), and reads rows back out of them for the
 * embedding.
 *
 * Nothing here computes but the rounding from f32 to bf16 (to nearest even, by the same bit
 * operations at every level). So a weight has the same value wherever it is read, and the embedding
 * and a tied output layer can share one table.
 */
#include "level.h"

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

/* rows [n, n_in] of dtype. F16 panels are packed from f16 rows only, because no class holds another
 * type as f16. */
void SB_LEVEL(pack)(void *panels, enum sb_layout layout, int32_t n_in, int32_t first, int32_t n,
                    const void *rows, enum sb_dtype dtype)
{
    size_t size = dtype == SB_F32 ? 4 : 2;
    int32_t rows_at_once;

    for (int32_t r0 = 0; r0 < n; r0 += rows_at_once) {
        rows_at_once = SB_PANEL - (first + r0) % SB_PANEL; /* up to the end of this panel */
        if (rows_at_once > n - r0)
            rows_at_once = n - r0;
        for (int64_t k0 = 0; k0 < n_in; k0 += PACK_STEPS) {
            int64_t k1 = k0 + PACK_STEPS < n_in ? k0 + PACK_STEPS : n_in;
            for (int32_t r = r0; r < r0 + rows_at_once; r++) {
                const char *row = (const char *)rows + (size_t)r * (size_t)n_in * size;
                for (int64_t k = k0; k < k1; k++) {
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
