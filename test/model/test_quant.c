/*
 * Quantised blocks: what they are read as is what the reference implementation reads (the Python
 * package gguf), and what is made of floats is near them, on every machine the same, and defined
 * for all floats.
 */
#include "quant.h"

#include <math.h>

#include "../kernels/cpu/kernels.h"
#include "backend/quantiser.h"
#include "half.h"
#include "sbtest.h"

enum { N = 512, BYTES_MAX = 1024 };

static uint64_t checksum(const void *data, size_t n)
{
    const unsigned char *at = data;
    uint64_t sum = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n; i++)
        sum = (sum ^ at[i]) * 0x100000001b3u;
    return sum;
}

/* Blocks of N elements, of bytes that look random; d of every other block is negative and
 * subnormal, and dmin is negative. */
static void fill_blocks(unsigned char bytes[BYTES_MAX], enum sb_dtype dtype)
{
    const struct sb_quant *quant = sb_quant_of(dtype);
    uint32_t state = 7;

    for (int i = 0; i < N / quant->block; i++) {
        unsigned char *block = bytes + i * quant->bytes, *d = block;
        const int half = i % 2 == 0 ? 0x1c00 + i * 0x155 : 0x8123 + i;
        for (int b = 0; b < quant->bytes; b++) {
            state = state * 1664525u + 1013904223u;
            block[b] = (unsigned char)(state >> 24);
        }
        if (dtype == SB_Q6_K)
            d = block + 208;
        if (dtype == SB_MXFP4) {
            d[0] = (unsigned char)(120 + i);
            continue;
        }
        d[0] = (unsigned char)half;
        d[1] = (unsigned char)(half >> 8);
        if (quant->has_mins) {
            block[2] = 0x3b;
            block[3] = 0x9a;
        }
    }
}

/* Some of the values that gguf.quants.dequantize gives for these blocks, and a checksum of all. A
 * zero of MXFP4 that has a sign there has none here. */
static const struct golden {
    enum sb_dtype dtype;
    uint64_t sum;
    float at_0, at_17, at_100, at_511;
} goldens[] = {
    {SB_Q8_0, 0x9a1dc319d5e129b2u, -0x1.9p-2f, -0x1.3p-3f, 0x1.eb88p-10f, 0x1.584p-11f},
    {SB_Q4_0, 0x847a1df89c0c5ba7u, 0x1p-6f, 0x1.8p-6f, 0x1.014p-13f, 0x1.cbp-15f},
    {SB_Q4_K, 0xa4c8b40e443ceaa7u, 0x1.84f58p-2f, 0x1.827acp-1f, 0x1.d1d8p-3f, 0x1.996dcp-4f},
    {SB_Q5_K, 0x7a7dcfe0822a29dau, 0x1.b27acp-1f, 0x1.ca7acp-1f, 0x1.723bp+0f, 0x1.40f9cp-3f},
    {SB_Q6_K, 0x5157c03674a96da6u, -0x1.edp+0f, -0x1.3bp+0f, 0x1.2p-2f, 0x1.5ebep-7f},
    {SB_MXFP4, 0x643172cd6d5c68deu, -0x1p-8f, -0x1p-8f, -0x1p-3f, 0x1.8p+10f},
};
enum { N_GOLDENS = sizeof goldens / sizeof *goldens };

/* Every scale of MXFP4 and every code: values as the format defines them, but for those of scales
 * whose halves are no normal floats. */
static void codes_are_what_the_format_says(void)
{
    static const float sizes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    unsigned char block[17];
    float values[32];

    for (int e = 0; e < 256; e++) {
        block[0] = (unsigned char)e;
        for (int i = 0; i < 16; i++)
            block[1 + i] = (unsigned char)(i | (15 - i) << 4);
        sb_quant_read(values, SB_MXFP4, block, 32);
        for (int i = 0; i < 32; i++) {
            const int code = i < 16 ? i : 31 - i;
            const float value = ldexpf(code < 8 ? sizes[code] : -sizes[code - 8], e - 127);
            if (e == 255)
                CHECK(isnan(values[i]));
            else
                CHECK(values[i] == (e < 2 ? 0.0f : value));
        }
    }
}

static void reads_what_the_reference_reads(void)
{
    unsigned char bytes[BYTES_MAX];
    float values[N];

    for (int i = 0; i < N_GOLDENS; i++) {
        const struct golden *g = &goldens[i];
        fill_blocks(bytes, g->dtype);
        sb_quant_read(values, g->dtype, bytes, N);
        CHECK(values[0] == g->at_0 && values[17] == g->at_17 && values[100] == g->at_100 &&
              values[511] == g->at_511);
        CHECK(checksum(values, sizeof values) == g->sum);
    }
}

static float widened(uint16_t half, enum sb_dtype type)
{
    const uint32_t bits = type == SB_BF16 ? sb_bf16_widen(half) : sb_f16_widen(half);
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A block taken apart gives the values that are read, and its integers are in their ranges. */
static void parts_make_the_values(void)
{
    unsigned char bytes[BYTES_MAX];
    float values[SB_QUANT_BLOCK_MAX];

    for (int i = 0; i < N_GOLDENS; i++) {
        const enum sb_dtype dtype = goldens[i].dtype;
        const struct sb_quant *quant = sb_quant_of(dtype);
        struct sb_quant_block block;
        fill_blocks(bytes, dtype);
        memset(&block, 0x55, sizeof block);
        sb_quant_unpack(&block, dtype, bytes);
        sb_quant_read(values, dtype, bytes, (size_t)quant->block);
        CHECK(quant->has_mins || (block.dmin == 0 && block.mins[0] == 0));
        for (int e = 0; e < quant->block; e++) {
            const int g = e / quant->group;
            const float scale = widened(block.d, quant->d) *
                                (quant->has_scales ? block.scales[g] : 1.0f);
            CHECK(values[e] ==
                  fmaf(scale, block.q[e], -widened(block.dmin, quant->d) * block.mins[g]));
        }
    }
}

/* What is not a whole block is read without writing beyond the row. */
static void reads_short_rows(void)
{
    unsigned char bytes[BYTES_MAX];
    float values[N], part[N];

    for (int i = 0; i < N_GOLDENS; i++)
        for (size_t n = 1; n < 100; n += 7) {
            fill_blocks(bytes, goldens[i].dtype);
            sb_quant_read(values, goldens[i].dtype, bytes, N);
            memset(part, 0, sizeof part);
            sb_quant_read(part, goldens[i].dtype, bytes, n);
            CHECK_MEM(part, values, n * sizeof *part);
            CHECK(part[n] == 0.0f);
        }
}

/* ------------------------------------------------------------------------------- making */

/* Floats around zero, of many magnitudes: a sum of four uniform numbers, by groups of 32 larger. */
static void fill_floats(float x[N], uint32_t state)
{
    for (int i = 0; i < N; i++) {
        float sum = -2.0f;
        for (int k = 0; k < 4; k++) {
            state = state * 1664525u + 1013904223u;
            sum += (float)(state >> 8) * 0x1p-24f;
        }
        x[i] = ldexpf(sum, i / 32 - 8);
    }
}

static double error_of(const float *x, const float *y, int n)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++)
        sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    return sum;
}

/* The error of a group of 32 whose largest element becomes -8. */
static double simple_error(const float *x)
{
    float largest = 0.0f, y[32];

    for (int i = 0; i < 32; i++)
        largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
    for (int i = 0; i < 32; i++)
        y[i] = largest / -8.0f * fminf(nearbyintf(x[i] / largest * -8.0f), 7.0f);
    return error_of(x, y, 32);
}

/* Elements of 8 bits are as near as half a step, but for what rounding the scale to f16 takes.
 * Those of 4 bits lose less than with the simple rule: in no group much more, in all together a
 * twentieth less. */
static void made_rows_are_near(void)
{
    unsigned char row[BYTES_MAX];
    double simple = 0.0, made = 0.0;
    float x[N], y[N];

    for (uint32_t seed = 0; seed < 50; seed++) {
        fill_floats(x, seed);
        sb_convert_rows(row, SB_Q8_0, x, SB_F32, 1, N);
        sb_quant_read(y, SB_Q8_0, row, N);
        for (int i = 0; i < N; i++) {
            const float step = ldexpf(2.0f / 127.0f, i / 32 - 8);
            CHECK(fabsf(x[i] - y[i]) < 0.57f * step);
        }
        sb_convert_rows(row, SB_Q4_0, x, SB_F32, 1, N);
        sb_quant_read(y, SB_Q4_0, row, N);
        for (int i = 0; i < N; i += 32) {
            const double scale = ldexp(1.0, 2 * (i / 32));
            CHECK(error_of(x + i, y + i, 32) < 1.001 * simple_error(x + i));
            simple += simple_error(x + i) / scale;
            made += error_of(x + i, y + i, 32) / scale;
        }
    }
    CHECK(made < 0.95 * simple);
}

/* What has an exact form keeps its values. */
static void exact_rows_stay(void)
{
    unsigned char row[BYTES_MAX];
    float x[N], y[N];

    for (int i = 0; i < N; i++)
        x[i] = ldexpf((float)(i % 32 == 5 ? -8 : i * 7 % 15 - 7), i / 32 - 14);
    sb_convert_rows(row, SB_Q4_0, x, SB_F32, 1, N);
    sb_quant_read(y, SB_Q4_0, row, N);
    CHECK_MEM(y, x, sizeof x);
    for (int i = 0; i < N; i++)
        x[i] = ldexpf((float)(i % 32 == 5 ? 127 : i * 37 % 255 - 127), i / 32 - 14);
    sb_convert_rows(row, SB_Q8_0, x, SB_F32, 1, N);
    sb_quant_read(y, SB_Q8_0, row, N);
    CHECK_MEM(y, x, sizeof x);
}

/* The bytes themselves: no compiler and no machine may give others. */
static void made_rows_are_the_same_everywhere(void)
{
    unsigned char row[BYTES_MAX], narrow[BYTES_MAX];
    uint16_t half[N];
    float x[N];

    fill_floats(x, 11);
    sb_convert_rows(row, SB_Q8_0, x, SB_F32, 1, N);
    CHECK(checksum(row, sb_dtype_row_bytes(SB_Q8_0, N)) == 0x2da3d63dd50b254u);
    sb_convert_rows(row, SB_Q4_0, x, SB_F32, 1, N);
    CHECK(checksum(row, sb_dtype_row_bytes(SB_Q4_0, N)) == 0x2e09828fb05b7b31u);
    for (int type = SB_BF16; type <= SB_F16; type++) {
        sb_convert(half, (enum sb_dtype)type, x, SB_F32, N);
        sb_convert(x, SB_F32, half, (enum sb_dtype)type, N);
        sb_convert_rows(narrow, SB_Q4_0, half, (enum sb_dtype)type, 1, N - 3);
        sb_convert_rows(row, SB_Q4_0, x, SB_F32, 1, N - 3);
        CHECK_MEM(narrow, row, sb_dtype_row_bytes(SB_Q4_0, N));
    }
}

/* Elements of any bits, among them infinities, NaNs and subnormals, in every third block. Blocks of
 * the second kind have them all near zero, and those of the third a few large ones. */
static void fill_bits(uint32_t bits[N], uint32_t state)
{
    for (uint32_t i = 0; i < N; i++) {
        state = state * 1664525u + 1013904223u;
        bits[i] = state;
        if (i / 32 % 3 == 1)
            bits[i] = (state & 0x807fffffu) | (80 + (state >> 23) % 24) << 23;
        if (i / 32 % 3 == 2)
            bits[i] = (state & 0x807fffffu) | (108 + (state >> 23) % 24) << 23;
    }
}

/* All levels make the same bytes of rows of every type and length, and they are those that the
 * rule gave when it was first written, block by block. */
static void all_levels_make_the_same(void)
{
    static const enum sb_dtype made[] = {SB_Q8_0, SB_Q4_0};
    static const size_t lengths[] = {512, 160, 96, 31, 1};
    unsigned char first[N * 34], row[N * 34 + 1];
    uint32_t bits[N];
    uint64_t sum = 0;

    for (uint32_t i = 0; i < 600; i++) {
        const enum sb_dtype dtype = made[i % 2], type = (enum sb_dtype)(i / 2 % 3);
        const size_t n = lengths[i / 6 % 5], rows = N / n;
        const size_t bytes = rows * sb_dtype_row_bytes(dtype, n);
        fill_bits(bits, i);
        sb_cpu_kernels_scalar.quantise(first, dtype, bits, type, rows, n);
        sum = sum * 31 + checksum(first, bytes);
        for (int32_t simd = SPECBATCH_SIMD_AVX2; simd <= SPECBATCH_SIMD_AVX512; simd++) {
            const struct sb_cpu_kernels *kernels = sb_cpu_kernels_for(simd);
            if (!kernels)
                continue;
            memset(row, 0x55, bytes + 1);
            kernels->quantise(row, dtype, bits, type, rows, n);
            CHECK_MEM(row, first, bytes);
            CHECK_INT(row[bytes], 0x55);
        }
    }
    CHECK(sum == 0xe677393ccd6b67edu);
}

/* Zeros, rows that end inside a block, and what is no number. */
static void special_values_are_defined(void)
{
    static const enum sb_dtype types[] = {SB_Q8_0, SB_Q4_0};
    unsigned char row[BYTES_MAX];
    float x[N], y[N];

    for (int t = 0; t < 2; t++) {
        memset(x, 0, sizeof x);
        x[33] = INFINITY;
        x[34] = 1.0f;
        x[64] = -3.0e38f;
        x[96] = NAN;
        x[97] = 1.0f;
        x[128] = 1e-40f;
        x[192] = 8.0f;
        sb_convert_rows(row, types[t], x, SB_F32, 1, 193);
        sb_quant_read(y, types[t], row, 224);
        for (int i = 0; i < 224; i++)
            CHECK(i / 32 == 3 ? isnan(y[i]) : isfinite(y[i]));
        CHECK(y[0] == 0.0f && y[31] == 0.0f && y[128] == 0.0f);
        CHECK(y[33] >= 127.0f / 128.0f * 65504.0f * 7.0f && y[34] == 0.0f);
        CHECK(y[64] <= -65504.0f * 7.0f);
        CHECK(y[192] > 7.9f && y[192] < 8.1f && y[193] == 0.0f && y[223] == 0.0f);
    }
}

TEST_BEGIN
RUN(codes_are_what_the_format_says);
RUN(reads_what_the_reference_reads);
RUN(parts_make_the_values);
RUN(reads_short_rows);
RUN(made_rows_are_near);
RUN(exact_rows_stay);
RUN(made_rows_are_the_same_everywhere);
RUN(all_levels_make_the_same);
RUN(special_values_are_defined);
TEST_END
