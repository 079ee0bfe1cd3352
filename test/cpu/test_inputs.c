/*
 * Making the inputs of products: the words are the same at every SIMD level and however rows are
 * cut into calls, no level writes where the scalar one does not, and one bf16 is what half.h makes
 * of a float. That they lie where products read them, the tests of products see.
 */
#include "../kernels/cpu/kernels.h"
#include "half.h"
#include "sbtest.h"
#include "support/cpu_ways.h"

enum { FILL = 0x5a };

/* Every order with the forms that it takes. */
static const struct {
    enum sb_products products;
    enum sb_form form;
} cases[] = {
    {SB_BLOCKS_FMA, SB_FORM_FLOAT},   {SB_BLOCKS_FMA, SB_FORM_BF16},
    {SB_BLOCKS_FMA, SB_FORM_PARTS},   {SB_BLOCKS_DOT, SB_FORM_BF16},
    {SB_BLOCKS_DOT, SB_FORM_PARTS},   {SB_BLOCKS_TILES, SB_FORM_BF16},
    {SB_BLOCKS_TILES, SB_FORM_PARTS}, {SB_BLOCKS_EMULATED, SB_FORM_BF16},
    {SB_INTEGERS, SB_FORM_INT8},      {SB_INTEGERS_TILES, SB_FORM_INT8},
};

/* What was made of x, and the sums of its blocks, of which integers have none. */
struct made {
    char *words, *sums;
    size_t n_words, n_sums; /* bytes */
};

/* Makes the inputs by calls for so many rows, the last ones first. */
static struct made make(const struct sb_cpu_kernels *kernels, size_t i, const float *x, int32_t m,
                        int32_t n, int32_t count)
{
    const int32_t parts = sb_form_parts(cases[i].form);
    struct made made = {.n_words = (size_t)sb_cpu_inputs_words(cases[i].products, parts, m, n) * 4,
                        .n_sums = (size_t)(m * parts * (sb_whole_blocks(n) / SB_BLOCK)) *
                                  sizeof(float)};
    made.words = memset(cpu_memory(made.n_words), FILL, made.n_words);
    made.sums = memset(cpu_memory(made.n_sums), FILL, made.n_sums);
    const struct sb_cpu_inputs inputs = {.products = cases[i].products,
                                         .form = cases[i].form,
                                         .m = m,
                                         .n = n,
                                         .x = x,
                                         .to = made.words,
                                         .sums = cases[i].form == SB_FORM_INT8 ? NULL
                                                                               : (void *)made.sums};

    for (int32_t end = m, first; end > 0; end = first) {
        first = end > count ? end - count : 0;
        kernels->inputs(&inputs, first, end);
    }
    return made;
}

static void free_made(struct made made)
{
    free(made.words);
    free(made.sums);
}

/* Sixteen rows and more are several row tiles. */
static void test_words_are_the_same(void)
{
    static const int32_t rows[] = {1, 5, 16, 35}, widths[] = {1, 31, 64, 296},
                         counts[] = {35, 16, 3, 1};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t at = 0; at < 16; at++) {
            const int32_t m = rows[at / 4], n = widths[at % 4];
            float *x = cpu_floats(m * n);
            for (int32_t k = 0; at % 2 && k < m * n; k++)
                x[k] = cpu_any_bits();
            const struct made expected = make(&sb_cpu_kernels_scalar, i, x, m, n, m);
            for (int32_t simd = SPECBATCH_SIMD_SCALAR; simd <= SPECBATCH_SIMD_AVX512; simd++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                    const struct sb_cpu_kernels *kernels = sb_cpu_kernels_for(simd);
                    if (!kernels)
                        continue;
                    const struct made got = make(kernels, i, x, m, n, counts[c]);
                    CHECK_MEM(got.words, expected.words, expected.n_words);
                    CHECK(cpu_first_difference((void *)got.sums, (void *)expected.sums,
                                               (int64_t)(expected.n_sums / sizeof(float))) < 0);
                    free_made(got);
                }
            free_made(expected);
            free(x);
        }
}

/* Ties to even and away from it, the largest numbers, infinities, NaNs that rounding would make
 * infinities, and a few of all others. */
static uint32_t bits_to_round(int32_t k)
{
    static const uint32_t hard[] = {0x3f808000u, 0x3f818000u, 0x3f807fffu, 0x3f808001u,
                                    0x7f7f7fffu, 0x7f7f8000u, 0x7f7fffffu, 0x7f800000u,
                                    0x7f800001u, 0x7fffffffu, 0x7fc00000u, 0x00000000u,
                                    0x00007fffu, 0x00008000u, 0x00018000u, 0x007fffffu};

    return k % 2 ? hard[k / 4 % 16] | (uint32_t)(k & 2) << 30 : cpu_random();
}

static void test_bf16_is_rounded(void)
{
    enum { N = 4096 };
    uint32_t bits[N];
    uint16_t expected[N];
    float x[N];

    for (int32_t k = 0; k < N; k++)
        expected[k] = sb_bf16_narrow(bits[k] = bits_to_round(k));
    memcpy(x, bits, sizeof x);
    for (int32_t simd = SPECBATCH_SIMD_SCALAR; simd <= SPECBATCH_SIMD_AVX512; simd++) {
        const struct sb_cpu_kernels *kernels = sb_cpu_kernels_for(simd);
        /* One row of tiles: of each block the first 32 of 512 elements. */
        uint16_t got[N / SB_BLOCK][16 * SB_BLOCK];
        if (!kernels)
            continue;
        const struct sb_cpu_inputs inputs = {.products = SB_BLOCKS_EMULATED,
                                             .form = SB_FORM_BF16,
                                             .m = 1,
                                             .n = N,
                                             .x = x,
                                             .to = got};
        kernels->inputs(&inputs, 0, 1);
        for (int32_t k = 0; k < N; k += SB_BLOCK)
            CHECK_MEM(got[k / SB_BLOCK], expected + k, SB_BLOCK * sizeof *expected);
    }
}

TEST_BEGIN
RUN(test_words_are_the_same);
RUN(test_bf16_is_rounded);
TEST_END
