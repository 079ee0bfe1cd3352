/*
 * Compares products with quantised weights, and embeddings by them, with plain loops that follow
 * the definition of their numerics class (docs/numerics.md) and share no code with the kernels.
 * Bits are compared. Every product is computed in all ways of this machine (support/cpu_ways.h),
 * with many numbers of rows, which are drawn at random from a few and so repeat.
 *
 *     for each group g of a row in ascending order, with the float q of its elements:
 *         even, odd = chains of fma over its even and its odd steps, each from +0
 *         sum = fma(scale, even + odd, sum)
 *         sum = fma(-min, sum of the group's x, sum)           in types with minima
 *
 * In the class INT8 x is made integers first, 32 of them with a scale d:
 *
 *         sum = fma(scale * d, sum of the integers' products, sum)
 *         sum = fma(-min, d * sum of the integers of x, sum)
 */
#include <math.h>

#include "support/cpu_ways.h"
#include "support/random_blocks.h"

#include "backend/cpu_ops.h"
#include "port.h"
#include "quant.h"
#include "sbtest.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct sb_backend *cpu;
static uint64_t state = 1;

enum { BASE_ROWS = 7, GROUP = 32 /* the most elements of one */ };

/* What is among the values of x and the scales: see special_x. EXTREME: the largest integers there
 * are, all with the same sign or with both, so that sums are as large as they can be. */
enum kind { USUAL, WILD, MANY_ROWS, EXTREME };

/* ------------------------------------------------------------------ the definition */

/* A group of a row of W, unpacked. */
struct group {
    float scale, min, q[GROUP];
};

static float half_value(uint16_t half, enum sb_dtype type)
{
    return cpu_widen(&half, 0, type);
}

/* The groups of a row of n elements. The last may have fewer elements than others; zeros follow. */
static int unpack_row(struct group *groups, enum sb_dtype dtype, const void *row, int n)
{
    const struct sb_quant *quant = sb_quant_of(dtype);
    struct sb_quant_block block;
    int n_groups = 0;

    for (int at = 0; at < n; at += quant->block) {
        sb_quant_unpack(&block, dtype, (const char *)row + at / quant->block * quant->bytes);
        for (int g = 0; g < quant->block / quant->group; g++) {
            struct group *group = &groups[n_groups++];
            const float factor = quant->has_scales ? (float)block.scales[g] : 1.0f;
            *group = (struct group){.scale = half_value(block.d, quant->d) * factor,
                                    .min = half_value(block.dmin, quant->d) * (float)block.mins[g]};
            for (int i = 0; i < quant->group; i++)
                group->q[i] = (float)block.q[g * quant->group + i];
        }
    }
    return n_groups;
}

/* A group is filled up to 32 steps with products of +0 and +0. */
static float group_product(const float x[GROUP], const float q[GROUP])
{
    float chain[2] = {0.0f, 0.0f};

    for (int i = 0; i < GROUP; i++)
        chain[i % 2] = fmaf(x[i], q[i], chain[i % 2]);
    return chain[0] + chain[1];
}

/* The sum of a group's x: of the two halves lane by lane, then of the lanes by halves again. */
static float group_sum(const float x[GROUP])
{
    float lanes[GROUP];

    memcpy(lanes, x, sizeof lanes);
    for (int half = GROUP / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] = lanes[i] + lanes[i + half];
    return lanes[0];
}

static float reference_sum(const float *x, const struct group *groups, enum sb_dtype dtype, int n)
{
    const struct sb_quant *quant = sb_quant_of(dtype);
    float sum = 0.0f;

    for (int at = 0; at < n; at += quant->group, groups++) {
        const int count = n - at < quant->group ? n - at : quant->group;
        float steps[GROUP] = {0.0f};
        memcpy(steps, x + at, (size_t)count * sizeof *steps);
        sum = fmaf(groups->scale, group_product(steps, groups->q), sum);
        if (quant->has_mins)
            sum = fmaf(-groups->min, group_sum(steps), sum);
    }
    return sum;
}

/* 32 inputs as integers. */
struct inputs {
    float d;
    int q[GROUP];
};

static struct inputs integers_of(const float x[GROUP])
{
    struct inputs inputs = {0};
    float largest = 0.0f;

    for (int i = 0; i < GROUP; i++) {
        if (!isfinite(x[i]))
            return (struct inputs){.d = NAN};
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    inputs.d = largest / 127.0f;
    for (int i = 0; i < GROUP && inputs.d > 0.0f; i++)
        inputs.q[i] = (int)nearbyintf(x[i] * (127.0f / largest));
    return inputs;
}

static float reference_integers(const float *x, const struct group *groups, enum sb_dtype dtype,
                                int n)
{
    const struct sb_quant *quant = sb_quant_of(dtype);
    float sum = 0.0f;

    for (int at = 0; at < n; at += GROUP) {
        float steps[GROUP] = {0.0f};
        memcpy(steps, x + at, (size_t)(n - at < GROUP ? n - at : GROUP) * sizeof *steps);
        const struct inputs inputs = integers_of(steps);
        for (int first = 0; first < GROUP; first += quant->group, groups++) {
            int64_t products = 0, total = 0;
            for (int i = 0; i < quant->group; i++) {
                products += (int64_t)inputs.q[first + i] * (int64_t)groups->q[i];
                total += inputs.q[first + i];
            }
            sum = fmaf(groups->scale * inputs.d, (float)products, sum);
            if (quant->has_mins)
                sum = fmaf(-groups->min, inputs.d * (float)total, sum);
        }
    }
    return sum;
}

/* y [m, n] as the class defines it. x [m, k], rows [n, k] of dtype */
static void reference_gemm(float *y, const float *x, const void *rows, enum sb_dtype dtype,
                           const float *bias, int m, int n, int k, int32_t compute)
{
    const size_t row_bytes = sb_dtype_row_bytes(dtype, (size_t)k);
    struct group *groups = cpu_memory(((size_t)k / 16 + 2) * sizeof *groups);
    float *parts = cpu_memory((size_t)m * 3 * (size_t)k * sizeof *parts);
    int n_parts = 1;

    for (int r = 0; r < m; r++)
        n_parts = cpu_parts(parts + r * 3 * k, x + r * k, k, compute);
    for (int o = 0; o < n; o++) {
        unpack_row(groups, dtype, (const char *)rows + (size_t)o * row_bytes, k);
        for (int r = 0; r < m; r++) {
            float sum[3] = {0.0f, 0.0f, 0.0f};
            for (int p = 0; p < n_parts; p++)
                sum[p] = compute == SPECBATCH_COMPUTE_INT8
                             ? reference_integers(x + r * k, groups, dtype, k)
                             : reference_sum(parts + (r * 3 + p) * k, groups, dtype, k);
            if (n_parts == 3)
                sum[0] = sum[0] + (sum[1] + sum[2]);
            y[r * n + o] = bias ? sum[0] + bias[o] : sum[0];
        }
    }
    free(groups);
    free(parts);
}

/* ------------------------------------------------------------------ products */

/* Rows [n, k], which the caller frees. */
static void *random_rows(enum sb_dtype dtype, int n, int k, enum random_kind kind)
{
    const size_t row_bytes = sb_dtype_row_bytes(dtype, (size_t)k);
    char *rows = cpu_memory((size_t)n * row_bytes);

    for (int o = 0; o < n; o++)
        random_row(rows + (size_t)o * row_bytes, dtype, (size_t)k, kind, 0.1f, &state);
    return rows;
}

/* Rows [n, k] whose integers have all the same bits, in each row others: those of the largest
 * numbers with and without a sign. All factors are 1. */
static void *extreme_rows(enum sb_dtype dtype, int n, int k)
{
    static const int bytes[] = {0x80, 0xff, 0x00, 0x7f, 0xf0, 0x0f, 0x88, 0x77};
    const struct sb_quant *quant = sb_quant_of(dtype);
    const size_t row_bytes = sb_dtype_row_bytes(dtype, (size_t)k);
    uint8_t *rows = cpu_memory((size_t)n * row_bytes);

    for (int o = 0; o < n; o++) {
        uint8_t *row = rows + (size_t)o * row_bytes;
        memset(row, bytes[o % COUNT(bytes)], row_bytes);
        for (uint8_t *block = row; block < row + row_bytes; block += quant->bytes) {
            if (dtype == SB_MXFP4) {
                block[0] = 128;
                continue;
            }
            uint8_t *at = dtype == SB_Q6_K ? block + quant->bytes - 2 : block;
            for (int i = 0; i <= quant->has_mins; i++) {
                at[2 * i] = 0x00;
                at[2 * i + 1] = 0x3c;
            }
        }
    }
    return rows;
}

/* Inputs that all become 127 or -127, by the row: with one sign, the other, or both by turns. */
static float extreme_x(int row, int column)
{
    static const int signs[BASE_ROWS] = {0xf, 0x0, 0x5, 0x3, 0x6, 0x1, 0xe};
    return signs[row % BASE_ROWS] >> column % 4 & 1 ? 1.0f : -1.0f;
}

/* Values that need care: any bits, among them denormals, infinities and NaNs; numbers whose
 * products underflow or overflow; zeros of both signs. A row keeps to one of these, since an
 * infinity hides what is beside it. */
static float special_x(int row)
{
    switch (row % 6) {
    case 0:
        return cpu_any_bits();
    case 1:
        return cpu_uniform() * 0x1p-126f;
    case 2:
        return cpu_uniform() * 0x1p+124f;
    case 3:
        return cpu_random() % 2 ? 0.0f : -0.0f;
    case 4: /* the scale of integers is about the smallest normal number */
        return cpu_uniform() * 0x1p-119f;
    default:
        return cpu_random() % 16 ? cpu_uniform() * 0x1p-120f : cpu_uniform();
    }
}

/* The i-th number of rows that a matrix is multiplied by, or -1 after the last. */
static int row_count(enum kind kind, int i)
{
    static const int few[] = {0, 1, 2, 3, 4, 5, 8, 13, 31}, large[] = {64, 100, 200, 256};

    if (kind == MANY_ROWS)
        return i < 40 ? 1 + i : i < 40 + COUNT(large) ? large[i - 40] : -1;
    return i < COUNT(few) ? few[i] : -1;
}

/* Checks one matrix in all ways and with several numbers of rows. Returns what differed, or NULL. A
 * single panel is one thread's work, so for that threads make no other way. */
static const char *one_gemm(struct cpu *ways, int n_ways, enum sb_dtype dtype, int n, int k,
                            int32_t compute, enum kind kind)
{
    static char message[100];
    const char *failed = NULL;
    float *x = cpu_floats(BASE_ROWS * k), *bias = cpu_floats(n),
          *expected = cpu_floats(BASE_ROWS * n), *used_bias = n % 2 ? bias : NULL;
    void *rows = kind == EXTREME
                     ? extreme_rows(dtype, n, k)
                     : random_rows(dtype, n, k,
                                   kind == WILD && cpu_random() % 2 ? RANDOM_WILD : RANDOM_ANY);

    for (int i = 0; kind == WILD && i < BASE_ROWS * k; i++)
        x[i] = special_x(i / k);
    for (int i = 0; kind == EXTREME && i < BASE_ROWS * k; i++)
        x[i] = extreme_x(i / k, i % k);
    reference_gemm(expected, x, rows, dtype, used_bias, BASE_ROWS, n, k, compute);
    for (int w = 0; w < n_ways && !failed; w++) {
        struct sb_weight weight;
        if (n <= SB_PANEL && ways[w].exec->n_threads > 1)
            continue;
        if (!cpu_weight(&weight, &ways[w], rows, n, k, dtype))
            failed = specbatch_last_error();
        for (int i = 0, m; !failed && (m = row_count(kind, i)) >= 0; i++)
            if (!cpu_rows_agree(&ways[w], &weight, x, BASE_ROWS, expected, used_bias, m)) {
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

/* Shapes of matrices: of blocks of 32, which may end anywhere, and of blocks of 256. */
static const struct {
    int n, k;
} small_blocks[] = {{1, 1},   {65, 2},   {63, 31},  {64, 32},  {130, 33},
                    {9, 511}, {261, 96}, {64, 257}, {66, 544}, {2, 2080}},
  large_blocks[] = {{1, 256}, {63, 256}, {64, 512}, {70, 768}, {197, 256}, {3, 1280}};

static const char *all_gemms(int32_t compute)
{
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, compute);
    const char *failed = NULL;

    for (int dtype = SB_Q8_0; dtype < SB_DTYPES; dtype++) {
        const int is_large = sb_quant_of((enum sb_dtype)dtype)->block == 256;
        for (int i = 0; i < (is_large ? COUNT(large_blocks) : COUNT(small_blocks)) && !failed; i++)
            failed = one_gemm(ways, n_ways, (enum sb_dtype)dtype,
                              is_large ? large_blocks[i].n : small_blocks[i].n,
                              is_large ? large_blocks[i].k : small_blocks[i].k, compute, USUAL);
    }
    cpu_close(ways, n_ways);
    return failed;
}

static void test_x_as_it_is(void)
{
    const char *failed = all_gemms(SPECBATCH_COMPUTE_F32);
    if (failed)
        FAIL("%s", failed);
}

static void test_x_rounded(void)
{
    const char *failed = all_gemms(SPECBATCH_COMPUTE_BF16);
    if (failed)
        FAIL("%s", failed);
}

static void test_x_in_three_parts(void)
{
    const char *failed = all_gemms(SPECBATCH_COMPUTE_SPLIT);
    if (failed)
        FAIL("%s", failed);
}

static void test_x_as_integers(void)
{
    const char *failed = all_gemms(SPECBATCH_COMPUTE_INT8);
    if (failed)
        FAIL("%s", failed);
}

/* Every class with every type, and n_tries matrices of n rows for each. */
static void every_type(int n, int n_tries, enum kind kind)
{
    for (int compute = SPECBATCH_COMPUTE_BF16; compute <= SPECBATCH_COMPUTE_INT8; compute++) {
        struct cpu ways[CPU_WAYS];
        int n_ways = cpu_open(ways, compute);
        const char *failed = NULL;
        for (int dtype = SB_Q8_0; dtype < SB_DTYPES; dtype++)
            for (int i = 0; i < n_tries && !failed; i++) {
                const int is_large = sb_quant_of((enum sb_dtype)dtype)->block == 256;
                failed = one_gemm(ways, n_ways, (enum sb_dtype)dtype, n,
                                  is_large ? 256 : 1 + (int)(cpu_random() % 100), compute, kind);
            }
        cpu_close(ways, n_ways);
        if (failed)
            FAIL("compute %d: %s", compute, failed);
    }
}

/* Denormals, infinities, NaNs, huge scales and zeros of both signs become the same in every way. */
static void test_wild_values(void)
{
    every_type(33, 12, WILD);
}

/* Nothing is cut off where sums are as large as they can be. */
static void test_extreme_values(void)
{
    every_type(64, 4, EXTREME);
}

/* Every number of rows, because it decides how they are cut. */
static void test_many_rows(void)
{
    every_type(49, 1, MANY_ROWS);
}

/* ------------------------------------------------------------------ weights below others */

enum { CHAINED = 9, CHAIN_K = 256, CHAIN_ROWS = 40 };

/* The product of every weight by itself, side by side as the product of all is: y [BASE_ROWS, n] */
static void side_by_side(float *y, struct cpu *way, const float *x, struct sb_weight *weights,
                         const float *bias, int n)
{
    for (int i = 0, first = 0; i < CHAINED; first += weights[i++].n_out) {
        const int n_out = weights[i].n_out;
        struct sb_weight *next = weights[i].next;
        float *own = cpu_floats((int64_t)BASE_ROWS * n_out);
        weights[i].next = NULL;
        cpu->gemm(way->exec, own, x, &weights[i], bias + first, BASE_ROWS);
        weights[i].next = next;
        for (int r = 0; r < BASE_ROWS; r++)
            memcpy(y + r * n + first, own + r * n_out, (size_t)n_out * sizeof *own);
        free(own);
    }
}

/* The rows of a map in every type there is, in uneven shares. */
static int chain_agrees(struct cpu *way)
{
    static const struct {
        enum sb_dtype dtype;
        int n;
    } shares[CHAINED] = {{SB_Q4_K, 64}, {SB_Q6_K, 33}, {SB_BF16, 5}, {SB_Q8_0, 70}, {SB_F32, 64},
                         {SB_Q5_K, 1},  {SB_Q4_0, 63}, {SB_F16, 7},  {SB_MXFP4, 66}};
    struct sb_weight weights[CHAINED];
    int n = 0, agree = 1;

    for (int i = 0; i < CHAINED; i++) {
        const enum sb_dtype dtype = shares[i].dtype;
        void *rows = sb_dtype_is_quantised(dtype)
                         ? random_rows(dtype, shares[i].n, CHAIN_K, RANDOM_ANY)
                         : cpu_memory((size_t)shares[i].n * CHAIN_K * 4);
        for (int at = 0; !sb_dtype_is_quantised(dtype) && at < shares[i].n * CHAIN_K; at++)
            cpu_narrow(rows, at, cpu_uniform(), dtype);
        agree = cpu_weight(&weights[i], way, rows, shares[i].n, CHAIN_K, dtype) && agree;
        free(rows);
        n += shares[i].n;
    }
    for (int i = 0; i + 1 < CHAINED; i++)
        weights[i].next = &weights[i + 1];
    float *x = cpu_floats(BASE_ROWS * CHAIN_K), *bias = cpu_floats(n),
          *expected = cpu_floats((int64_t)BASE_ROWS * n);
    if (agree)
        side_by_side(expected, way, x, weights, bias, n);
    for (int m = 0; m <= CHAIN_ROWS && agree; m++)
        agree = cpu_rows_agree(way, weights, x, BASE_ROWS, expected, bias, m);
    for (int i = 0; i < CHAINED; i++)
        cpu->weight_free(&weights[i], way->device, &cpu_mem);
    free(x);
    free(bias);
    free(expected);
    return agree;
}

/* A product with weights that are below each other is the products with each, whatever their types.
 */
static void test_types_below_each_other(void)
{
    for (int compute = SPECBATCH_COMPUTE_BF16; compute <= SPECBATCH_COMPUTE_INT8; compute++) {
        struct cpu ways[CPU_WAYS];
        int n_ways = cpu_open(ways, compute), at = 0;
        while (at < n_ways && chain_agrees(&ways[at]))
            at++;
        cpu_close(ways, n_ways);
        if (at < n_ways)
            FAIL("compute %d: %s", compute, ways[at].name);
    }
}

/* ------------------------------------------------------------------ embeddings */

/* x [k]: a row of W, each value rounded once. */
static void reference_embed(float *x, enum sb_dtype dtype, const void *row, int k)
{
    const int per_group = sb_quant_of(dtype)->group;
    struct group *groups = cpu_memory(((size_t)k / 16 + 2) * sizeof *groups);

    unpack_row(groups, dtype, row, k);
    for (int i = 0; i < k; i++)
        x[i] = fmaf(groups[i / per_group].scale, groups[i / per_group].q[i % per_group],
                    -groups[i / per_group].min);
    free(groups);
}

/* Embeds every row of a table, in any order, and ids that are none. */
static int embedding_agrees(struct cpu *way, enum sb_dtype dtype, int n, int k,
                            enum random_kind kind)
{
    const size_t row_bytes = sb_dtype_row_bytes(dtype, (size_t)k);
    int32_t *ids = cpu_memory((size_t)(n + 2) * sizeof *ids),
            *id_at = cpu_memory((size_t)(n + 2) * sizeof *id_at);
    const struct sb_pass pass = {.n_tokens = n + 2, .ids = ids, .id_at = id_at};
    char *rows = random_rows(dtype, n, k, kind);
    float *x = cpu_floats((int64_t)(n + 2) * k), *expected = cpu_floats(k);
    struct sb_weight table;
    int agree = cpu_weight(&table, way, rows, n, k, dtype);

    for (int t = 0; t < n + 2; t++) {
        ids[t] = t - 1; /* -1, the rows, and the number of rows */
        id_at[t] = (t * 7 + 3) % (n + 2);
    }
    if (agree)
        cpu->embed(way->exec, x, &table, 1.0f, &pass);
    for (int t = 0; t < n + 2 && agree; t++) {
        const int id = ids[id_at[t]];
        memset(expected, 0, (size_t)k * sizeof *expected);
        if (id >= 0 && id < n)
            reference_embed(expected, dtype, rows + (size_t)id * row_bytes, k);
        agree = cpu_first_difference(x + t * k, expected, k) < 0;
    }
    cpu->weight_free(&table, way->device, &cpu_mem);
    free(ids);
    free(id_at);
    free(rows);
    free(x);
    free(expected);
    return agree;
}

static void test_embeddings(void)
{
    for (int compute = SPECBATCH_COMPUTE_BF16; compute <= SPECBATCH_COMPUTE_INT8; compute++) {
        struct cpu ways[CPU_WAYS];
        int n_ways = cpu_open(ways, compute);
        char failed[100] = "";
        for (int dtype = SB_Q8_0; dtype < SB_DTYPES; dtype++)
            for (int w = 0; w < n_ways && !failed[0]; w++)
                for (int kind = RANDOM_ANY; kind <= RANDOM_WILD; kind++) {
                    const int is_large = sb_quant_of((enum sb_dtype)dtype)->block == 256;
                    if (!embedding_agrees(&ways[w], (enum sb_dtype)dtype, 131, is_large ? 512 : 77,
                                          (enum random_kind)kind))
                        snprintf(failed, sizeof failed, "%s: %s", ways[w].name,
                                 sb_dtype_name((enum sb_dtype)dtype));
                }
        cpu_close(ways, n_ways);
        if (failed[0])
            FAIL("compute %d: %s", compute, failed);
    }
}

TEST_BEGIN
struct sb_fp_env env;
cpu = sb_backend_cpu();
sb_port_fp_enter(&env);
RUN(test_x_as_it_is);
RUN(test_x_rounded);
RUN(test_x_in_three_parts);
RUN(test_x_as_integers);
RUN(test_wild_values);
RUN(test_extreme_values);
RUN(test_many_rows);
RUN(test_types_below_each_other);
RUN(test_embeddings);
TEST_END
