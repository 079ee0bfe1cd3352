/*
 * Packing weights into panels: every byte of a whole panel is written, and the bytes are the same
 * at every SIMD level and however rows are cut into calls. That they are the right ones, the tests
 * of products and of the embedding see.
 */
#include "../kernels/cpu/kernels.h"
#include "../kernels/cpu/panel_quant.h"
#include "sbtest.h"
#include "support/cpu_ways.h"

enum { ROWS = 2 * SB_PANEL };

/* Every layout, with the types of rows that are packed into it. */
static const struct {
    enum sb_layout layout;
    enum sb_dtype dtype;
} cases[] = {
    {SB_LAYOUT_F32, SB_F32},      {SB_LAYOUT_F32, SB_BF16},      {SB_LAYOUT_F32, SB_F16},
    {SB_LAYOUT_F16, SB_F16},      {SB_LAYOUT_BF16, SB_BF16},     {SB_LAYOUT_BF16, SB_F32},
    {SB_LAYOUT_BF16, SB_F16},     {SB_LAYOUT_BF16_DOT, SB_BF16}, {SB_LAYOUT_BF16_DOT, SB_F32},
    {SB_LAYOUT_BF16_DOT, SB_F16}, {SB_LAYOUT_Q8_0, SB_Q8_0},     {SB_LAYOUT_Q4_0, SB_Q4_0},
    {SB_LAYOUT_Q4_K, SB_Q4_K},    {SB_LAYOUT_Q5_K, SB_Q5_K},     {SB_LAYOUT_Q6_K, SB_Q6_K},
    {SB_LAYOUT_MXFP4, SB_MXFP4},
};

/* Packs all rows by calls of so many, the last ones first, into memory of `fill`. */
static char *packed(const struct sb_cpu_kernels *kernels, size_t i, int32_t n_in, const char *rows,
                    int32_t count, int fill)
{
    const size_t row = sb_dtype_row_bytes(cases[i].dtype, (size_t)n_in);
    const size_t bytes = (size_t)sb_panel_bytes(cases[i].layout, n_in) * (ROWS / SB_PANEL);
    char *panels = memset(cpu_memory(bytes), fill, bytes);

    for (int32_t end = ROWS, first; end > 0; end = first) {
        first = end > count ? end - count : 0;
        kernels->pack(panels, cases[i].layout, n_in, first, end - first, rows + (size_t)first * row,
                      cases[i].dtype);
    }
    return panels;
}

static void panels_have_the_same_bytes(void)
{
    static const int32_t counts[] = {ROWS, SB_PANEL, 16, 7, 1}, widths[] = {512, 70, 31, 1};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            const int32_t n_in = widths[w];
            const size_t bytes = (size_t)sb_panel_bytes(cases[i].layout, n_in) * (ROWS / SB_PANEL);
            const size_t given = ROWS * sb_dtype_row_bytes(cases[i].dtype, (size_t)n_in);
            char *rows = cpu_memory(given);
            for (size_t b = 0; b < given; b++)
                rows[b] = (char)(cpu_random() >> 24);
            char *expected = packed(&sb_cpu_kernels_scalar, i, n_in, rows, ROWS, 0x55);
            for (int32_t simd = SPECBATCH_SIMD_SCALAR; simd <= SPECBATCH_SIMD_AVX512; simd++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                    const struct sb_cpu_kernels *kernels = sb_cpu_kernels_for(simd);
                    if (!kernels)
                        continue;
                    char *got = packed(kernels, i, n_in, rows, counts[c], 0xaa);
                    CHECK_MEM(got, expected, bytes);
                    free(got);
                }
            free(expected);
            free(rows);
        }
}

TEST_BEGIN
RUN(panels_have_the_same_bytes);
TEST_END
