/*
 * Compares the CPU kernels with independent references and with themselves.
 *
 * Where the contract fixes the order of every operation (gemm, copies, the selection of ids), the
 * reference is a plain loop, and bits are compared. Elsewhere the reference is in double precision,
 * and may differ by a few float roundings. Everything is run in several ways, at each SIMD level
 * with one and with three threads, and every way must give the bits of the first. Rows are shuffled
 * and repeated, so that a row's bits can depend on nothing but the row.
 */
#define SB_LEVEL_SCALAR 1
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"

#include <fenv.h>

#include "support/cpu_ways.h"

#include "port.h"
#include "sbtest.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct sb_backend *cpu;

/* Fails at the first of n floats whose bits differ, except that any NaN equals any NaN. */
#define CHECK_SAME(got, expected, n, what)                                                        \
    do {                                                                                          \
        int64_t at_ = cpu_first_difference(got, expected, n);                                     \
        if (at_ >= 0)                                                                             \
            FAIL("%s: element %lld is %a, expected %a", what, (long long)at_, (double)(got)[at_], \
                 (double)(expected)[at_]);                                                        \
    } while (0)

/* ------------------------------------------------------------------ gemm and weights */

enum { BASE_ROWS = 13 };

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

/* The bf16 value that is left of x when the lower half of its bits is cut off. A NaN stays one. */
static float cut(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits = isnan(x) ? 0x7fc00000u : bits & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The sum for one row of x and one row of w in a compute class. is_bf16: the weights' type. */
static float reference_sum(const float *x, const float *w, int k, int32_t compute, int is_bf16)
{
    float sum[3] = {0.0f, 0.0f, 0.0f}, *part = cpu_memory((size_t)k * sizeof *part);

    if (compute == SPECBATCH_COMPUTE_BF16) {
        for (int i = 0; i < k; i++)
            part[i] = cpu_round_bf16(x[i]);
        sum[0] = reference_blocks(part, w, k);
    } else if (compute == SPECBATCH_COMPUTE_SPLIT && is_bf16) {
        for (int p = 0; p < 3; p++) {
            for (int i = 0; i < k; i++) {
                float mid = cut(x[i] - cut(x[i]));
                part[i] = p == 0            ? cut(x[i])
                          : !isfinite(x[i]) ? 0.0f
                          : p == 1          ? mid
                                            : x[i] - cut(x[i]) - mid;
            }
            sum[p] = reference_blocks(part, w, k);
        }
        sum[0] = sum[0] + (sum[1] + sum[2]);
    } else {
        for (int i = 0; i < k; i++)
            sum[0] = fmaf(x[i], w[i], sum[0]);
    }
    free(part);
    return sum[0];
}

/* y [m, n] as the contract defines it. x [m, k], rows [n, k] of dtype */
static void reference_gemm(float *y, const float *x, const void *rows, enum sb_dtype dtype,
                           const float *bias, int m, int n, int k, int32_t compute)
{
    float *w = cpu_memory((size_t)k * sizeof *w);

    for (int o = 0; o < n; o++) {
        for (int i = 0; i < k; i++) {
            w[i] = cpu_widen(rows, (int64_t)o * k + i, dtype);
            w[i] = compute == SPECBATCH_COMPUTE_BF16 ? cpu_round_bf16(w[i]) : w[i];
        }
        for (int r = 0; r < m; r++) {
            float sum = reference_sum(x + r * k, w, k, compute, dtype == SB_BF16);
            y[r * n + o] = bias ? sum + bias[o] : sum;
        }
    }
    free(w);
}

/* Whether every row of a product of m rows, drawn at random from the BASE_ROWS rows of x, has the
 * bits of the reference's row. */
static int rows_agree(struct cpu *way, const struct sb_weight *weight, const float *x,
                      const float *expected, const float *bias, int m)
{
    int k = weight->n_in, n = weight->n_out, agree = 1, from[256];
    float *shuffled = cpu_memory((size_t)m * (size_t)k * sizeof(float)),
          *y = cpu_floats((int64_t)m * n);

    for (int r = 0; r < m; r++) {
        from[r] = (int)(cpu_random() % BASE_ROWS);
        memcpy(shuffled + (int64_t)r * k, x + from[r] * k, (size_t)k * sizeof(float));
    }
    cpu->gemm(way->exec, y, shuffled, weight, bias, m);
    for (int r = 0; r < m; r++)
        agree &= cpu_first_difference(y + (int64_t)r * n, expected + (int64_t)from[r] * n, n) < 0;
    free(shuffled);
    free(y);
    return agree;
}

/* Checks one matrix in all ways and with several numbers of rows. wild: with denormals, infinities
 * and NaNs among the values. Returns what differed, or NULL. */
static const char *one_gemm(struct cpu *ways, int n_ways, enum sb_dtype dtype, int n, int k,
                            int32_t compute, int wild)
{
    static const int row_counts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 31, 48};
    static char message[100];
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
        if (cpu->weight_create(&weight, ways[w].device, &cpu_mem, n, k, dtype) != SPECBATCH_OK)
            failed = specbatch_last_error();
        for (int first = 0, piece; first < n; first += piece) { /* filled in uneven pieces */
            piece = 1 + (int)(cpu_random() % 100);
            piece = piece < n - first ? piece : n - first;
            cpu->weight_fill(&weight, ways[w].device, first, piece,
                             (const char *)rows + (size_t)first * (size_t)k * sb_dtype_size(dtype),
                             dtype);
        }
        for (int i = 0; i < COUNT(row_counts) && !failed; i++)
            if (!rows_agree(&ways[w], &weight, x, expected, with_bias ? bias : NULL,
                            row_counts[i])) {
                snprintf(message, sizeof message, "%s: %s [%d, %d], %d rows", ways[w].name,
                         sb_dtype_name(dtype), n, k, row_counts[i]);
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
                                  compute, 0);
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
                              i < 45 ? 1 + i % 5 : 30 + 2 * (i % 7), compute, 1);
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

/* 200 rows are more than gemm takes over W together (ROW_BLOCK). */
static void test_gemm_many_rows(void)
{
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    float *x = cpu_floats(BASE_ROWS * 70), *w = cpu_floats(130 * 70),
          *expected = cpu_floats(BASE_ROWS * 130);
    const char *failed = NULL;

    reference_gemm(expected, x, w, SB_F32, NULL, BASE_ROWS, 130, 70, SPECBATCH_COMPUTE_F32);
    for (int i = 0; i < n_ways; i++) {
        struct sb_weight weight;
        if (cpu->weight_create(&weight, ways[i].device, &cpu_mem, 130, 70, SB_F32) !=
                SPECBATCH_OK ||
            cpu->weight_fill(&weight, ways[i].device, 0, 130, w, SB_F32) != SPECBATCH_OK ||
            !rows_agree(&ways[i], &weight, x, expected, NULL, 200))
            failed = ways[i].name;
        cpu->weight_free(&weight, ways[i].device, &cpu_mem);
    }
    free(x);
    free(w);
    free(expected);
    cpu_close(ways, n_ways);
    if (failed)
        FAIL("%s", failed);
}

static void test_embed(void)
{
    enum { N = 131, K = 75, M = 33 };
    struct cpu ways[CPU_WAYS];
    float x[M * K], expected[M * K];
    uint16_t rows[2 * N * K]; /* room for f32 */
    int32_t ids[M], id_at[M];

    for (int compute = SPECBATCH_COMPUTE_BF16; compute <= SPECBATCH_COMPUTE_SPLIT; compute++)
        for (int dtype = SB_F32; dtype <= SB_F16; dtype++) {
            int n_ways = cpu_open(ways, compute);
            struct sb_pass pass = {.n_tokens = M, .ids = ids, .id_at = id_at};
            for (int i = 0; i < N * K; i++)
                cpu_narrow(rows, i, cpu_uniform(), (enum sb_dtype)dtype);
            for (int t = 0; t < M; t++) {
                id_at[t] = M - 1 - t;
                ids[id_at[t]] = t == 5 ? -1 : t == 6 ? N : (int32_t)(cpu_random() % N);
                for (int k = 0; k < K; k++) {
                    int32_t id = ids[id_at[t]];
                    float v = id < 0 || id >= N
                                  ? 0.0f
                                  : cpu_widen(rows, (int64_t)id * K + k, (enum sb_dtype)dtype);
                    expected[t * K + k] = compute == SPECBATCH_COMPUTE_BF16 ? cpu_round_bf16(v) : v;
                }
            }
            for (int w = 0; w < n_ways; w++) {
                struct sb_weight table;
                CHECK_OK(cpu->weight_create(&table, ways[w].device, &cpu_mem, N, K,
                                            (enum sb_dtype)dtype));
                CHECK_OK(
                    cpu->weight_fill(&table, ways[w].device, 0, N, rows, (enum sb_dtype)dtype));
                memset(x, 0xff, sizeof x);
                cpu->embed(ways[w].exec, x, &table, &pass);
                cpu->weight_free(&table, ways[w].device, &cpu_mem);
                CHECK_SAME(x, expected, M * K, ways[w].name);
            }
            cpu_close(ways, n_ways);
        }
}

static void test_weight_types(void)
{
    struct cpu ways[CPU_WAYS];
    struct sb_weight weight;
    uint16_t half[2] = {0x3f80, 0x4000};
    float single[2] = {1.0f, 2.0f}, x = 1.0f, y[1];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    CHECK_OK(cpu->weight_create(&weight, ways[0].device, &cpu_mem, 1, 1, SB_BF16));
    CHECK_INT(weight.dtype, SB_BF16);
    CHECK_ERROR(cpu->weight_fill(&weight, ways[0].device, 0, 1, single, SB_F32),
                SPECBATCH_E_UNSUPPORTED, "bf16");
    cpu->weight_free(&weight, ways[0].device, &cpu_mem);
    /* rows of a smaller type are taken, since widening loses nothing */
    CHECK_OK(cpu->weight_create(&weight, ways[0].device, &cpu_mem, 1, 1, SB_F32));
    CHECK_OK(cpu->weight_fill(&weight, ways[0].device, 0, 1, half + 1, SB_BF16));
    cpu->gemm(ways[0].exec, y, &x, &weight, NULL, 1);
    cpu->weight_free(&weight, ways[0].device, &cpu_mem);
    CHECK(y[0] == 2.0f);
    cpu_close(ways, n_ways);

    n_ways = cpu_open(ways, SPECBATCH_COMPUTE_BF16);
    CHECK_OK(cpu->weight_create(&weight, ways[0].device, &cpu_mem, 1, 1, SB_F32));
    CHECK_INT(weight.dtype, SB_BF16);
    CHECK(weight.bytes == 64 * 32 * 2); /* a panel of one block */
    cpu->weight_free(&weight, ways[0].device, &cpu_mem);
    cpu_close(ways, n_ways);
}

/* ------------------------------------------------------------------ rows */

/* An index picks every third of the rows, in reverse order. */
enum { NORM_ROWS = 33, NORM_PICKED = 11 };

/* Whether h, and x after norm, agree with a plain computation of the row in double precision. */
static int norm_is_right(const float *h, const float *x_after, const float *x, const float *y,
                         const float *y_weight, const float *weight, int n)
{
    double sum_y = 0.0, sum_x = 0.0;

    for (int k = 0; k < n; k++)
        sum_y += y ? (double)y[k] * y[k] : 0.0;
    for (int k = 0; k < n; k++) {
        const double scale = y_weight ? y_weight[k] / sqrt(sum_y / n + 1e-6) : 1.0;
        const double expected = x[k] + (y ? y[k] * scale : 0.0);
        if (fabs(x_after[k] - expected) > 1e-6 * (fabs(expected) + 1.0))
            return 0;
        sum_x += (double)x_after[k] * x_after[k];
    }
    for (int k = 0; k < n; k++) {
        const double expected = x_after[k] / sqrt(sum_x / n + 1e-6) * weight[k];
        if (fabs(h[k] - expected) > 1e-6 * fabs(expected))
            return 0;
    }
    return 1;
}

/* form 0: nothing is added to x; 1: y is added; 2: y is normed and added. */
static void check_norm(struct cpu *ways, int n_ways, int n, int form)
{
    enum { M = NORM_ROWS };
    float *x = cpu_floats(M * n), *y = cpu_floats(M * n), *weight = cpu_floats(n),
          *y_weight = cpu_floats(n);
    float *h = cpu_floats(M * n), *after = cpu_floats(M * n), *h0 = cpu_floats(M * n),
          *after0 = cpu_floats(M * n);
    const float *add = form > 0 ? y : NULL, *add_weight = form == 2 ? y_weight : NULL;
    int32_t index[NORM_PICKED];
    const struct sb_norm whole = {.m = M,
                                  .n = n,
                                  .eps = 1e-6f,
                                  .h = h,
                                  .x = after,
                                  .y = add,
                                  .y_weight = add_weight,
                                  .weight = weight};
    struct sb_norm picked = whole;

    picked.m = NORM_PICKED;
    picked.index = index;
    for (int i = 0; i < NORM_PICKED; i++)
        index[i] = M - 1 - 3 * i;
    for (int w = 0; w < n_ways; w++) {
        memcpy(after, x, sizeof(float) * (size_t)(M * n));
        cpu->norm(ways[w].exec, &whole);
        if (w == 0) {
            memcpy(h0, h, sizeof(float) * (size_t)(M * n));
            memcpy(after0, after, sizeof(float) * (size_t)(M * n));
        }
        CHECK_SAME(h, h0, M * n, ways[w].name);
        CHECK_SAME(after, after0, M * n, ways[w].name);
        memcpy(after, x, sizeof(float) * (size_t)(M * n));
        cpu->norm(ways[w].exec, &picked);
        for (int i = 0; i < NORM_PICKED; i++) {
            CHECK_SAME(h + i * n, h0 + index[i] * n, n, ways[w].name);
            CHECK_SAME(after + index[i] * n, after0 + index[i] * n, n, ways[w].name);
        }
        CHECK_SAME(after, x, n, "a row that is not in the index");
    }
    for (int r = 0; r < M; r++)
        CHECK(norm_is_right(h0 + r * n, after0 + r * n, x + r * n, add ? y + r * n : NULL,
                            add_weight, weight, n));
    free(x);
    free(y);
    free(weight);
    free(y_weight);
    free(h);
    free(after);
    free(h0);
    free(after0);
}

static void test_norm(void)
{
    static const int widths[] = {1, 15, 16, 17, 100, 1024};
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    for (int i = 0; i < COUNT(widths) && !sbtest_failed_now; i++)
        for (int form = 0; form < 3 && !sbtest_failed_now; form++)
            check_norm(ways, n_ways, widths[i], form);
    cpu->norm(ways[0].exec, &(struct sb_norm){.n = 8, .eps = 1e-6f});
    cpu_close(ways, n_ways);
}

static void test_swiglu(void)
{
    static const float special[] = {0.0f,    -0.0f, 1e-30f, 88.0f, -88.0f, 104.0f,
                                    -104.0f, 1e30f, -1e30f, 3e38f, -3e38f};
    static const int widths[] = {1, 16, 31, 1000, 20000};
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    for (int i = 0; i < COUNT(widths); i++) {
        int n = widths[i], m = 3;
        float *x = cpu_floats(2 * m * n), *y = cpu_floats(m * n), *first = cpu_floats(m * n);
        for (int k = 0; k < n; k++) {
            x[k] = k < COUNT(special) ? special[k] : x[k] * 20.0f; /* row 0's gates */
            x[2 * n + k] = x[k];
            x[3 * n + k] = x[n + k]; /* row 1 repeats row 0 */
        }
        for (int w = 0; w < n_ways; w++) {
            cpu->swiglu(ways[w].exec, w == 0 ? first : y, x, m, n);
            CHECK_SAME(w == 0 ? first : y, first, m * n, ways[w].name);
        }
        CHECK_SAME(first, first + n, n, "equal rows");
        /* row 0, against double precision */
        for (int k = 0; k < n; k++) {
            double expected = x[k] / (1.0 + exp(-(double)x[k])) * x[n + k];
            CHECK(!isnan(first[k]));
            if (!(fabs(first[k] - expected) <= 5e-7 * fabs(expected) + 1e-37))
                FAIL("silu(%a) * %a is %a, expected %a", (double)x[k], (double)x[n + k],
                     (double)first[k], expected);
        }
        free(x);
        free(y);
        free(first);
    }
    cpu_close(ways, n_ways);
}

/* ------------------------------------------------------------------ selection, acceptance,
 * realignment */

static void check_choice(const float *row, int32_t limit, int32_t id, float logprob, float margin)
{
    int32_t best = 0;
    double sum = 0.0, second = -INFINITY;

    for (int32_t i = 1; i < limit; i++)
        if (row[i] > row[best])
            best = i;
    CHECK_INT(id, best);
    for (int32_t i = 0; i < limit; i++) {
        sum += exp((double)row[i] - row[best]);
        if (i != best && row[i] > second)
            second = row[i];
    }
    if (!(fabs(logprob + log(sum)) <= 2e-6 + 2e-7 * log(sum)))
        FAIL("log-probability %.9g, expected %.9g", (double)logprob, -log(sum));
    CHECK(limit == 1 ? isinf(margin) : margin == (float)((double)row[best] - second));
}

static void test_select(void)
{
    static const int32_t limits[] = {1, 2, 15, 16, 17, 33, 500, 5000};
    enum { M = 9, STRIDE = 5003 };
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    float *logits = cpu_floats(M * STRIDE), logprob[M], margin[M], other[M];
    int32_t ids[M], at[M];

    for (int i = 0; i < COUNT(limits); i++) {
        int32_t limit = limits[i];
        for (int r = 0; r < M; r++) {
            at[r] = (r + 4) % M;
            /* Few distinct values make ties. What lies beyond the limit is larger, or NaN. */
            for (int k = 0; k < STRIDE; k++)
                logits[r * STRIDE + k] = k >= limit ? (k % 2 ? NAN : 1e9f)
                                                    : floorf(cpu_uniform() * 8.0f) * 0.75f;
        }
        for (int w = 0; w < n_ways; w++) {
            cpu->select(ways[w].exec,
                        &(struct sb_select){M, STRIDE, limit, logits, at, ids, logprob, margin});
            for (int r = 0; r < M; r++)
                check_choice(logits + r * STRIDE, limit, ids[at[r]], logprob[at[r]], margin[at[r]]);
            if (w == 0)
                memcpy(other, logprob, sizeof other);
            CHECK_SAME(logprob, other, M, ways[w].name);
            /* row 3 alone */
            cpu->select(ways[w].exec, &(struct sb_select){1, STRIDE, limit, logits + 3 * STRIDE, at,
                                                          ids, logprob, NULL});
            CHECK_SAME(logprob + at[0], other + at[3], 1, ways[w].name);
        }
    }
    free(logits);
    cpu_close(ways, n_ways);
}

static void test_select_special(void)
{
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    int32_t at = 0, id;
    float row[40], logprob, margin;

    for (int w = 0; w < n_ways; w++)
        for (int i = 0; i < 40; i++) {
            for (int k = 0; k < 40; k++)
                row[k] = -INFINITY;
            cpu->select(ways[w].exec, &(struct sb_select){1, 40, 40, row, &at, &id, NULL, NULL});
            CHECK_INT(id, 0); /* all are equal, so the lowest id */
            row[i] = -3e38f;
            cpu->select(ways[w].exec,
                        &(struct sb_select){1, 40, 40, row, &at, &id, &logprob, &margin});
            CHECK_INT(id, i);
            CHECK(logprob == 0.0f && isinf(margin));
            row[i] = NAN;
            cpu->select(ways[w].exec,
                        &(struct sb_select){1, 40, 40, row, &at, &id, &logprob, &margin});
            CHECK_INT(id, -1);
            row[i] = 0.0f;
            row[(i + 1) % 40] = -0.0f;
            cpu->select(ways[w].exec, &(struct sb_select){1, 40, 40, row, &at, &id, NULL, &margin});
            CHECK_INT(id, i == 39 ? 0 : i); /* 0 and -0 are equal, so the lower id */
            CHECK(margin == 0.0f);
        }
    cpu_close(ways, n_ways);
}

static void test_accept(void)
{
    enum { ROWS = 33, STRIDE = 6 };
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    int32_t tokens[ROWS * STRIDE], picks[ROWS * STRIDE], n_draft[ROWS], n_accept[ROWS];

    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < ROWS * STRIDE; i++) {
            /* -1 stands for a proposal outside the vocabulary, which never equals a pick */
            tokens[i] = (int32_t)(cpu_random() % 3) - 1;
            picks[i] = (int32_t)(cpu_random() % 2);
        }
        for (int b = 0; b < ROWS; b++)
            n_draft[b] = (int32_t)(cpu_random() % STRIDE);
        for (int w = 0; w < n_ways; w++) {
            cpu->accept(ways[w].exec, tokens, picks, n_draft, ROWS, STRIDE, n_accept);
            for (int b = 0; b < ROWS; b++) {
                int32_t n = 0, open = 1;
                for (int j = 0; j < n_draft[b]; j++) {
                    open = open && tokens[b * STRIDE + j + 1] == picks[b * STRIDE + j];
                    n += open;
                }
                CHECK_INT(n_accept[b], n);
            }
        }
    }
    cpu->accept(ways[0].exec, tokens, picks, n_draft, 0, STRIDE, n_accept);
    cpu_close(ways, n_ways);
}

static void test_realign(void)
{
    enum {
        SEQS = 3,
        PLANES = 4,
        HEADS = 2,
        DIM = 5,
        CAP = 40,
        SLOT = HEADS * CAP * DIM,
        STRIDE = SEQS * SLOT + 7
    };
    static const int32_t moves[][3] = {{3, 1, 20}, {1, 3, 20}, {0, 25, 15}, {25, 0, 15},
                                       {7, 7, 9},  {5, 6, 0},  {0, 1, 39}};
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    float *before = cpu_floats(PLANES * STRIDE), *expected = cpu_floats(PLANES * STRIDE),
          *got = cpu_floats(PLANES * STRIDE);
    int64_t base[SEQS] = {2 * SLOT, 0, SLOT};
    int32_t cap[SEQS] = {CAP, CAP, CAP}, from[SEQS], to[SEQS], len[SEQS];
    struct sb_realign args = {.n_seqs = SEQS,
                              .n_planes = PLANES,
                              .kv_heads = HEADS,
                              .head_dim = DIM,
                              .plane_stride = STRIDE,
                              .base = base,
                              .cap = cap,
                              .from = from,
                              .to = to,
                              .len = len};

    for (int i = 0; i < COUNT(moves); i++) {
        memcpy(expected, before, PLANES * STRIDE * sizeof(float));
        for (int b = 0; b < SEQS; b++) {
            const int32_t *move = moves[(i + b) % COUNT(moves)];
            from[b] = move[0];
            to[b] = move[1];
            len[b] = move[2];
            for (int64_t p = 0; p < PLANES * HEADS; p++) {
                int64_t head = p / HEADS * STRIDE + base[b] + p % HEADS * CAP * DIM;
                for (int64_t e = 0; e < (int64_t)len[b] * DIM; e++)
                    expected[head + to[b] * DIM + e] = before[head + from[b] * DIM + e];
            }
        }
        for (int w = 0; w < n_ways; w++) {
            memcpy(got, before, PLANES * STRIDE * sizeof(float));
            cpu->realign(ways[w].exec, got, &args);
            CHECK_MEM(got, expected, PLANES * STRIDE * sizeof(float));
        }
    }
    args.n_seqs = 0;
    cpu->realign(ways[0].exec, got, &args);
    free(before);
    free(expected);
    free(got);
    cpu_close(ways, n_ways);
}

/* ------------------------------------------------------------------ functions and environment */

/* Distance from the double result in units of the float's last place. */
static double ulps(float got, double expected)
{
    int exponent;
    frexp(expected, &exponent);
    return fabs(got - expected) / ldexp(1.0, exponent - 24);
}

static void test_exp_and_log(void)
{
    float lanes[V16];
    double worst_exp = 0.0, worst_log = 0.0;

    for (float x = -87.3f; x < 88.7f; x += 0.00037f) {
        v_store(lanes, v_exp(v_set1(x)));
        worst_exp = fmax(worst_exp, ulps(lanes[0], exp((double)x)));
    }
    for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 9973u)
        /* Near 1 the logarithm passes through 0, so the bound there is absolute, below. */
        if (bits < 0x3f7f0000u || bits > 0x3f810000u)
            worst_log = fmax(worst_log, ulps(sb_log(bits_f32(bits)), log((double)bits_f32(bits))));
    printf("     exp within %.2f ulp, log within %.2f ulp\n", worst_exp, worst_log);
    CHECK(worst_exp < 1.5 && worst_log < 1.5);
    for (float x = 0.99f; x < 1.01f; x += 1e-6f)
        CHECK(fabs(sb_log(x) - log((double)x)) < 1e-9);
    v_store(lanes, v_exp(v_set1(-INFINITY)));
    CHECK(lanes[0] == 0.0f);
    v_store(lanes, v_exp(v_set1(INFINITY)));
    CHECK(isinf(lanes[0]));
    v_store(lanes, v_exp(v_set1(NAN)));
    CHECK(isnan(lanes[0]) && isnan(sb_log(NAN)) && isinf(sb_log(INFINITY)) && sb_log(1.0f) == 0.0f);
    v_store(lanes, v_exp(v_set1(0.0f)));
    CHECK(lanes[0] == 1.0f);
}

/* The results of a gemm, a swiglu and a selection. */
static void sample_results(struct cpu *way, const float *x, float out[64 + 32 + 1])
{
    struct sb_weight weight;
    int32_t at = 0, id;

    if (cpu->weight_create(&weight, way->device, &cpu_mem, 64, 32, SB_F32) == SPECBATCH_OK) {
        cpu->weight_fill(&weight, way->device, 0, 64, x, SB_F32);
        cpu->gemm(way->exec, out, x, &weight, NULL, 1);
        cpu->weight_free(&weight, way->device, &cpu_mem);
    }
    cpu->swiglu(way->exec, out + 64, x, 1, 32);
    cpu->select(way->exec, &(struct sb_select){1, 64, 64, x, &at, &id, out + 64 + 32, NULL});
}

/* A host that rounds upwards and keeps denormals gets the same bits, and gets its own environment
 * back. */
static void test_fp_environment(void)
{
    enum { N = 64 + 32 + 1 };
    struct cpu ways[CPU_WAYS];
    struct sb_fp_env ours, host;
    float *x = cpu_floats(64 * 32), calm[N], hostile[N];
    volatile float tiny = 0x1p-126f, three = 3.0f;
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    for (int i = 0; i < 64 * 32; i += 5)
        x[i] *= 0x1p-126f;
    for (int w = 0; w < n_ways; w++) {
        sample_results(&ways[w], x, calm);
        sb_port_fp_enter(&ours);
        fesetenv(FE_DFL_ENV);
        fesetround(FE_UPWARD);
        sb_port_fp_enter(&host);
        int flushed = tiny / 2.0f == 0.0f, nearest = 1.0f / three == 0x1.555556p-2f;
        sample_results(&ways[w], x, hostile);
        sb_port_fp_leave(&host);
        int restored = fegetround() == FE_UPWARD && tiny / 2.0f != 0.0f &&
                       -1.0f / three == -0x1.555554p-2f;
        sb_port_fp_leave(&ours);
        CHECK(flushed && nearest && restored);
        CHECK_SAME(hostile, calm, N, ways[w].name);
    }
    free(x);
    cpu_close(ways, n_ways);
}

/* ------------------------------------------------------------------ memory */

static size_t bytes_taken;
static int allocations_left;

static void *counted_alloc(void *user, size_t size, size_t align)
{
    (void)user;
    if (allocations_left-- <= 0)
        return NULL;
    bytes_taken += size;
    return aligned_alloc(align, size);
}

static void counted_free(void *user, void *block, size_t size)
{
    (void)user;
    bytes_taken -= size;
    free(block);
}

/* exec_bytes says what exec_create takes. Each allocation of it is made to fail, and then nothing
 * may be left behind. */
static void test_memory(void)
{
    const struct sb_mem counted = {counted_alloc, counted_free, NULL};
    const struct sb_exec_limits limits = {
        .max_tokens = 100, .max_width = 1000, .max_len = 10, .max_heads = 4, .max_head_dim = 8};

    for (int32_t compute = SPECBATCH_COMPUTE_BF16; compute <= SPECBATCH_COMPUTE_F32; compute++) {
        struct sb_device_options options = {.compute = compute, .simd = SPECBATCH_SIMD_AUTO};
        struct sb_device *device;
        struct sb_exec *exec;
        struct sb_weight weight;
        int allowed = 0;

        allocations_left = 0;
        CHECK_INT(cpu->device_open(&device, &counted, &options), SPECBATCH_E_NOMEM);
        CHECK_OK(cpu->device_open(&device, &cpu_mem, &options));
        CHECK_INT(cpu->weight_create(&weight, device, &counted, 10, 10, SB_F32), SPECBATCH_E_NOMEM);
        do {
            CHECK_INT(bytes_taken, 0);
            allocations_left = allowed++;
        } while (cpu->exec_create(&exec, device, &counted, 3, &limits, NULL) == SPECBATCH_E_NOMEM);
        CHECK(allowed > 4);
        CHECK(bytes_taken <= cpu->exec_bytes(device, 3, &limits));
        CHECK(bytes_taken + 1024 > cpu->exec_bytes(device, 3, &limits));
        CHECK_OK(cpu->exec_sync(exec));
        cpu->exec_free(exec);
        cpu->device_close(device);
        CHECK_INT(bytes_taken, 0);
    }
}

static void test_device(void)
{
    struct cpu ways[CPU_WAYS];
    struct sb_device *device;
    struct sb_device_options options = {.compute = SPECBATCH_COMPUTE_F32, .simd = 7};
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    CHECK_ERROR(cpu->device_open(&device, &cpu_mem, &options), SPECBATCH_E_UNSUPPORTED,
                "SIMD level");
    /* a class names arithmetic, and all levels do the same */
    for (int w = 0; w < n_ways; w++)
        CHECK_STR(cpu->device_class(ways[w].device), cpu->device_class(ways[0].device));
    cpu_close(ways, n_ways);
}

TEST_BEGIN
struct sb_fp_env env;
cpu = sb_backend_cpu();
sb_port_fp_enter(&env);
RUN(test_gemm_f32);
RUN(test_gemm_bf16);
RUN(test_gemm_wild_values);
RUN(test_gemm_split);
RUN(test_dot_is_chain);
RUN(test_gemm_many_rows);
RUN(test_embed);
RUN(test_weight_types);
RUN(test_norm);
RUN(test_swiglu);
RUN(test_select);
RUN(test_select_special);
RUN(test_accept);
RUN(test_realign);
RUN(test_exp_and_log);
RUN(test_fp_environment);
RUN(test_memory);
RUN(test_device);
TEST_END
