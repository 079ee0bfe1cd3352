/*
 * Compares the matrix products of the CPU with a plain loop, which forms each sum as the contract
 * says (kernels/cpu/gemm.c). Bits are compared. Every product is computed in all ways of this
 * machine (support/cpu_ways.h), with many numbers of rows, which are drawn at random from a few and
 * so repeat: a row's bits can depend on nothing but the row.
 */
#include "kernels/cpu/kernels.h"

#include <math.h>

#include "support/cpu_ways.h"

#include "port.h"
#include "sbtest.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct sb_backend *cpu;

enum { BASE_ROWS = 13 };

/* What one_gemm tries. WILD: denormals, infinities and NaNs are among the values. */
enum kind { USUAL, WILD, MANY_ROWS, LONG_ROWS };

/* One sum over k products in the order of blocks, as kernels/cpu/gemm.c defines it. */
static float reference_blocks(const float *x, const float *w, int k)
{
    float sum = 0.0f;

    for (int block = 0; block < k; block += 32) {
        float chain[2] = {0.0f, 0.0f};
        for (int i = block; i < block + 32; i++)
            chain[i % 2] = fmaf(i < k ? x[i] : 0.0f, i < k ? w[i] : 0.0f, chain[i % 2]);
        sum = sum + (chain[0] + chain[1]);
    }
    return sum;
}

/* Whether a class rounds weights to bf16. */
static int rounds_weights(int32_t compute)
{
    return compute == SPECBATCH_COMPUTE_BF16 || compute == SPECBATCH_COMPUTE_INT8;
}

/* The sum for one row of x and one row of w in a compute class. is_bf16: the weights' type. */
static float reference_sum(const float *x, const float *w, int k, int32_t compute, int is_bf16)
{
    const int has_blocks = rounds_weights(compute) || is_bf16;
    float sum[3] = {0.0f, 0.0f, 0.0f}, *parts;

    if (compute == SPECBATCH_COMPUTE_F32 || !has_blocks) {
        for (int i = 0; i < k; i++)
            sum[0] = fmaf(x[i], w[i], sum[0]);
        return sum[0];
    }
    parts = cpu_memory((size_t)k * 3 * sizeof *parts);
    const int n_parts = cpu_parts(parts, x, k, compute);
    for (int p = 0; p < n_parts; p++)
        sum[p] = reference_blocks(parts + (size_t)p * (size_t)k, w, k);
    free(parts);
    return n_parts == 1 ? sum[0] : sum[0] + (sum[1] + sum[2]);
}

/* y [m, n] as the contract defines it. x [m, k], rows [n, k] of dtype */
static void reference_gemm(float *y, const float *x, const void *rows, enum sb_dtype dtype,
                           const float *bias, int m, int n, int k, int32_t compute)
{
    float *w = cpu_memory((size_t)k * sizeof *w);

    for (int o = 0; o < n; o++) {
        for (int i = 0; i < k; i++) {
            w[i] = cpu_widen(rows, (int64_t)o * k + i, dtype);
            w[i] = rounds_weights(compute) ? cpu_round_bf16(w[i]) : w[i];
        }
        for (int r = 0; r < m; r++) {
            float sum = reference_sum(x + r * k, w, k, compute, dtype == SB_BF16);
            y[r * n + o] = bias ? sum + bias[o] : sum;
        }
    }
    free(w);
}

/* The i-th number of rows that a matrix is multiplied by, or -1 after the last. */
static int row_count(enum kind kind, int i)
{
    static const int few[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 31, 48, 100};

    if (kind == MANY_ROWS) /* 200 and 256 are more than pass over the weights together */
        return i < 48 ? 1 + i : i == 48 ? 200 : i == 49 ? 256 : -1;
    if (kind == LONG_ROWS)
        return i == 0 ? 100 : -1;
    return i < COUNT(few) ? few[i] : -1;
}

/* Checks one matrix in all ways and with several numbers of rows. Returns what differed, or NULL.
 */
static const char *one_gemm(struct cpu *ways, int n_ways, enum sb_dtype dtype, int n, int k,
                            int32_t compute, enum kind kind)
{
    static char message[100];
    const int wild = kind == WILD;
    const char *failed = NULL;
    float *x = cpu_floats((int64_t)BASE_ROWS * k), *bias = cpu_floats(n),
          *expected = cpu_floats((int64_t)BASE_ROWS * n);
    void *rows = cpu_memory((size_t)n * (size_t)k * 4);
    int with_bias = n % 2;

    for (int64_t i = 0; i < (int64_t)n * k; i++)
        cpu_narrow(rows, i, wild ? cpu_any_bits() : cpu_uniform(), dtype);
    for (int64_t i = 0; wild && i < (int64_t)BASE_ROWS * k; i++)
        x[i] = i % 3 == 0 ? cpu_any_bits() : x[i] * 0x1p-100f;
    reference_gemm(expected, x, rows, dtype, with_bias ? bias : NULL, BASE_ROWS, n, k, compute);
    for (int w = 0; w < n_ways && !failed; w++) {
        struct sb_weight weight;
        if (!cpu_weight(&weight, &ways[w], rows, n, k, dtype))
            failed = specbatch_last_error();
        for (int i = 0, m; (m = row_count(kind, i)) >= 0 && !failed; i++)
            if (!cpu_rows_agree(&ways[w], &weight, x, BASE_ROWS, expected, with_bias ? bias : NULL,
                                m)) {
                snprintf(message, sizeof message, "%s: %s [%d, %d], %d rows", ways[w].name,
                         sb_dtype_name(dtype), n, k, m);
                failed = message;
            }
        cpu->weight_free(&weight, ways[w].device, &cpu_mem);
    }
    free(x);
    free(bias);
    free(expected);
    free(rows);
    return failed;
}

static const char *all_gemms(int32_t compute)
{
    static const struct {
        int n, k;
    } shapes[] = {{1, 1},   {65, 2},  {63, 7},    {517, 7},   {64, 31},  {1, 32},
                  {65, 33}, {1, 511}, {130, 512}, {517, 513}, {3, 1025}, {2, 2080}};
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, compute);
    const char *failed = NULL;

    for (int dtype = SB_F32; dtype <= SB_F16; dtype++)
        for (int i = 0; i < COUNT(shapes) && !failed; i++)
            if (shapes[i].n < 500 || shapes[i].k == 7 || dtype == SB_BF16)
                failed = one_gemm(ways, n_ways, (enum sb_dtype)dtype, shapes[i].n, shapes[i].k,
                                  compute, USUAL);
    cpu_close(ways, n_ways);
    return failed;
}

static void test_gemm_f32(void)
{
    const char *failed = all_gemms(SPECBATCH_COMPUTE_F32);
    if (failed)
        FAIL("%s", failed);
}

static void test_gemm_bf16(void)
{
    const char *failed = all_gemms(SPECBATCH_COMPUTE_BF16);
    if (failed)
        FAIL("%s", failed);
}

static void test_gemm_split(void)
{
    const char *failed = all_gemms(SPECBATCH_COMPUTE_SPLIT);
    if (failed)
        FAIL("%s", failed);
}

/* INT8 is BF16 for weights that are not quantised. */
static void test_gemm_int8(void)
{
    const char *failed = all_gemms(SPECBATCH_COMPUTE_INT8);
    if (failed)
        FAIL("%s", failed);
}

/* Denormals, infinities and huge values become zero, infinity or NaN in the same places in every
 * way. */
static void test_gemm_wild_values(void)
{
    for (int compute = SPECBATCH_COMPUTE_BF16; compute <= SPECBATCH_COMPUTE_SPLIT; compute++) {
        struct cpu ways[CPU_WAYS];
        int n_ways = cpu_open(ways, compute);
        const char *failed = NULL;
        for (int i = 0; i < 60 && !failed; i++)
            failed = one_gemm(ways, n_ways, (enum sb_dtype)(i % 3), 64,
                              i < 45 ? 1 + i % 5 : 30 + 2 * (i % 7), compute, WILD);
        cpu_close(ways, n_ways);
        if (failed)
            FAIL("compute %d: %s", compute, failed);
    }
}

/* Every number of rows, because it decides how they are cut: with a bias, and for a whole panel
 * without one, whose sums may go to y directly. And rows so long that fewer of them pass over the
 * weights together. */
static void test_gemm_many_rows(void)
{
    for (int compute = SPECBATCH_COMPUTE_BF16; compute <= SPECBATCH_COMPUTE_SPLIT; compute++) {
        struct cpu ways[CPU_WAYS];
        int n_ways = cpu_open(ways, compute);
        const char *failed = one_gemm(ways, n_ways, SB_BF16, 49, 258, compute, MANY_ROWS);
        if (!failed)
            failed = one_gemm(ways, n_ways, SB_BF16, 66, 386, compute, MANY_ROWS);
        if (!failed && compute == SPECBATCH_COMPUTE_SPLIT)
            failed = one_gemm(ways, n_ways, SB_BF16, 2, 8100, compute, LONG_ROWS);
        cpu_close(ways, n_ways);
        if (failed)
            FAIL("compute %d: %s", compute, failed);
    }
}

/* vdpbf16ps is used only where it is found to compute two steps of a chain; it should be found so
 * on every processor that has it. */
static void test_dot_is_chain(void)
{
    const struct sb_cpu_kernels *kernels = sb_cpu_kernels_for(SPECBATCH_SIMD_AVX512);

    if (!kernels || !sb_port_has_avx512_bf16())
        SKIP("no AVX512_BF16 here");
    CHECK(kernels->dot_is_chain());
}

TEST_BEGIN
struct sb_fp_env env;
cpu = sb_backend_cpu();
sb_port_fp_enter(&env);
RUN(test_gemm_f32);
RUN(test_gemm_bf16);
RUN(test_gemm_split);
RUN(test_gemm_int8);
RUN(test_gemm_wild_values);
RUN(test_gemm_many_rows);
RUN(test_dot_is_chain);
TEST_END
