/*
 * The CUDA kernels against the CPU's and against plain loops. The f32 class must have the CPU's
 * bits. Where the 16-bit class rounds a value of the f32 class once, it must have the bits of that
 * rounding; a norm adds in an order of its own there, which a plain loop repeats. Rows are computed
 * alone, in other orders and at other places, and a row's bits may depend on nothing but the row.
 *
 * The program is linked with the kernels compiled for the host and the simulator, or with the
 * module's objects on a GPU. Inputs and outputs are device allocations of exactly their size, and
 * outputs are fresh, so that a checker of memory accesses sees every wrong one.
 */
#include "backend/cpu_ops.h"
#include "cuda/against_cpu.h"

/* ------------------------------------------------------------------ rows of a type */

/* The floats rows [m, n] on the device as [m, ld] of the type, padded with zeros. */
static void *padded(const float *values, int64_t m, int32_t n, enum sb_dtype type)
{
    const int64_t ld = sb_cuda_ld(type, n);
    void *rows = cpu_memory((size_t)(m * ld) * sb_dtype_size(type));

    for (int64_t r = 0; r < m; r++)
        for (int64_t k = 0; k < ld; k++)
            put(rows, r * ld + k, k < n ? values[r * n + k] : 0.0f, type, 0);
    return rows;
}

static size_t row_bytes(enum sb_dtype type, int32_t n)
{
    return (size_t)sb_cuda_ld(type, n) * sb_dtype_size(type);
}

/* ------------------------------------------------------------------ embed */

static void check_embed(enum sb_dtype type, int32_t n, float scale)
{
    enum { ROWS = 131, M = 33 };
    float *values = cpu_floats((int64_t)ROWS * n), *expected = cpu_memory(M * (size_t)n * 4),
          *x = cpu_memory(M * (size_t)n * 4);
    void *table = padded(values, ROWS, n, type),
         *dev_table = given_weight(table, type, ROWS, sb_cuda_ld(type, n), 0);
    int32_t ids[M], id_at[M];
    struct sb_pass pass = {.n_tokens = M};

    for (int t = 0; t < M; t++) {
        id_at[t] = M - 1 - t;
        ids[id_at[t]] = t == 5   ? -1
                        : t == 6 ? ROWS
                        : t == 7 ? ROWS - 1
                                 : (int32_t)(cpu_random() % ROWS);
        for (int k = 0; k < n; k++) {
            const int32_t id = ids[id_at[t]];
            expected[t * n + k] = id < 0 || id >= ROWS
                                      ? 0.0f
                                      : scale *
                                            cpu_widen(table, id * sb_cuda_ld(type, n) + k, type);
        }
    }
    pass.ids = given_ints(ids, M);
    pass.id_at = given_ints(id_at, M);
    float *dev_x = fresh(M * (size_t)n * 4);
    CHECK_CUDA(sb_cuda_embed(dev_x, dev_table, type, ROWS, n, scale, &pass, stream));
    CHECK_CUDA(fetch(x, dev_x, M * (size_t)n * 4));
    CHECK_SAME(x, expected, M * n, "%s, %d columns, times %g", sb_dtype_name(type), (int)n,
               (double)scale);
    free(values);
    free(expected);
    free(x);
    free(table);
}

static void test_embed(void)
{
    static const int32_t widths[] = {1, 63, 75, 300, 4110};

    for (int type = SB_F32; type <= SB_F16; type++)
        for (int i = 0; i < 2 * COUNT(widths) && !sbtest_failed_now; i++) {
            check_embed((enum sb_dtype)type, widths[i / 2], i % 2 ? 33.94113f : 1.0f);
            free_all();
        }
}

/* With a scale of 1 a row is a copy, subnormal elements and all. */
static void test_embed_copies(void)
{
    enum { N = 8 };
    static const float row[N] = {1e-40f, -1e-45f, -0.0f, 3e38f, -INFINITY, 1e-38f, 2.0f, 1.0f};
    const int32_t *zero = given_ints((const int32_t[]){0}, 1);
    const struct sb_pass pass = {.n_tokens = 1, .ids = zero, .id_at = zero};
    float *dev_x = fresh(sizeof row), x[N];

    CHECK_CUDA(sb_cuda_embed(dev_x, given_floats(row, N), SB_F32, 1, N, 1.0f, &pass, stream));
    CHECK_CUDA(fetch(x, dev_x, sizeof x));
    CHECK_MEM(x, row, sizeof x);
    free_all();
}

/* As in a draft: a token is selected and embedded with nothing between, so the second kernel begins
 * while the first still runs, and reads the id that the first writes. */
static void test_embed_what_is_selected(void)
{
    enum { ROWS = 50, N = 40 };
    float *values = cpu_floats(ROWS * N), logits[ROWS], x[N];
    const float *dev_values = given_floats(values, ROWS * N);
    float *dev_x = fresh(sizeof x);
    int32_t *ids = fresh(sizeof *ids);
    const int32_t *zero = given_ints((const int32_t[]){0}, 1);
    const struct sb_pass pass = {.n_tokens = 1, .ids = ids, .id_at = zero};

    for (int32_t id = 0; id < ROWS; id += 7) {
        for (int32_t k = 0; k < ROWS; k++)
            logits[k] = k == id ? 1.0f : 0.0f;
        const struct sb_select args = {
            1, ROWS, ROWS, given_floats(logits, ROWS), zero, ids, NULL, NULL, NULL, NULL};
        CHECK_CUDA(sb_cuda_select(&args, NULL, stream));
        CHECK_CUDA(sb_cuda_embed(dev_x, dev_values, SB_F32, ROWS, N, 1.0f, &pass, stream));
        CHECK_CUDA(fetch(x, dev_x, sizeof x));
        CHECK_MEM(x, values + id * N, sizeof x);
    }
    free(values);
    free_all();
}

/* ------------------------------------------------------------------ norm */

enum { NORM_ROWS = 9, NORM_PICKED = 3 };

/* What one launch of norm writes. */
struct normed {
    void *h;  /* [m, ld] of type */
    float *x; /* [NORM_ROWS, n] */
};

/* index: of NORM_PICKED rows, or NULL for all rows. */
static cudaError_t run_norm(struct normed *out, enum sb_dtype type, const float *x, const float *y,
                            const float *y_weight, const float *weight, const int32_t *index,
                            int32_t n)
{
    const int32_t m = index ? NORM_PICKED : NORM_ROWS;
    const int64_t all = (int64_t)NORM_ROWS * n;
    float *dev_x = given_floats(x, all);
    void *dev_h = fresh((size_t)m * row_bytes(type, n));
    const struct sb_norm args = {.m = m,
                                 .n = n,
                                 .eps = 1e-6f,
                                 .h = dev_h,
                                 .x = dev_x,
                                 .y = y ? given_floats(y, all) : NULL,
                                 .y_weight = y_weight ? given_floats(y_weight, n) : NULL,
                                 .weight = given_floats(weight, n),
                                 .index = index ? given_ints(index, m) : NULL};
    cudaError_t error = sb_cuda_norm(&args, type, stream);

    out->h = cpu_memory((size_t)m * row_bytes(type, n));
    out->x = cpu_memory((size_t)all * sizeof(float));
    if (error == cudaSuccess)
        error = fetch(out->h, dev_h, (size_t)m * row_bytes(type, n));
    return error != cudaSuccess ? error : fetch(out->x, dev_x, (size_t)all * sizeof(float));
}

/* 1 / sqrt(mean(v^2) + eps) as the 16-bit class adds: 256 running sums, each of four neighbours and
 * those 1024 further, a tree in each warp of them, and the warps in ascending order. */
static float scale_by_256(const float *v, int32_t n, float eps)
{
    float sums[256] = {0.0f}, total;

    for (int32_t k = 0; k < n; k++)
        sums[k / 4 % 256] = fmaf(v[k], v[k], sums[k / 4 % 256]);
    for (int warp = 0; warp < 256; warp += 32)
        for (int half = 16; half > 0; half /= 2)
            for (int lane = warp; lane < warp + half; lane++)
                sums[lane] += sums[lane + half];
    total = sums[0];
    for (int warp = 32; warp < 256; warp += 32)
        total += sums[warp];
    return 1.0f / sqrtf(total / (float)n + eps);
}

/* The 16-bit class's norm of one row, bit for bit: x becomes the residual row, h the normed one. */
static void norm_by_256(void *h, float *x, const float *y, const float *y_weight,
                        const float *weight, int32_t n, enum sb_dtype type)
{
    float scale = y_weight ? scale_by_256(y, n, 1e-6f) : 1.0f;

    for (int32_t k = 0; k < n && y; k++)
        x[k] += y_weight ? y[k] * scale * y_weight[k] : y[k];
    scale = scale_by_256(x, n, 1e-6f);
    for (int32_t k = 0; k < sb_cuda_ld(type, n); k++)
        put(h, k, k < n ? x[k] * scale * weight[k] : 0.0f, type, 0);
}

/* Checks every bit of the 16-bit class's rows. x, y: before the norm */
static void check_norm_bits(const struct normed *got, enum sb_dtype type, const float *x,
                            const float *y, const float *y_weight, const float *weight, int32_t n)
{
    const size_t row = row_bytes(type, n);
    float *after = cpu_memory((size_t)n * 4);
    void *h = cpu_memory(row);

    for (int64_t r = 0; r < NORM_ROWS && !sbtest_failed_now; r++) {
        memcpy(after, x + r * n, (size_t)n * 4);
        norm_by_256(h, after, y ? y + r * n : NULL, y_weight, weight, n, type);
        CHECK_MEM(got->x + r * n, after, (size_t)n * 4);
        CHECK_MEM((char *)got->h + (size_t)r * row, h, row);
    }
    free(after);
    free(h);
}

/* form 0: y is NULL; 1: y is added; 2: y is normed and added. */
static void check_norm(enum sb_dtype type, int32_t n, int form)
{
    const int64_t all = (int64_t)NORM_ROWS * n;
    const size_t row = row_bytes(type, n);
    float *x = cpu_floats(all), *y = cpu_floats(all), *weight = cpu_floats(n),
          *y_weight = cpu_floats(n);
    float *h = cpu_floats(all), *after = cpu_memory((size_t)all * 4);
    const int32_t index[NORM_PICKED] = {7, 0, 4};
    const float *add = form > 0 ? y : NULL, *add_weight = form == 2 ? y_weight : NULL;
    struct normed whole, picked;

    memcpy(after, x, (size_t)all * 4);
    cpu->norm(way->exec, &(struct sb_norm){.m = NORM_ROWS,
                                           .n = n,
                                           .eps = 1e-6f,
                                           .h = h,
                                           .x = after,
                                           .y = add,
                                           .y_weight = add_weight,
                                           .weight = weight});
    CHECK_CUDA(run_norm(&whole, type, x, add, add_weight, weight, NULL, n));
    CHECK_CUDA(run_norm(&picked, type, x, add, add_weight, weight, index, n));
    if (type == SB_F32)
        CHECK_SAME((float *)whole.h, h, all, "f32 norm, %d columns, form %d", (int)n, form);
    else
        check_norm_bits(&whole, type, x, add, add_weight, weight, n);
    if (type == SB_F32)
        CHECK_SAME(whole.x, after, all, "residual, %d columns, form %d", (int)n, form);
    for (int i = 0; i < NORM_PICKED; i++) {
        CHECK_MEM((char *)picked.h + (size_t)i * row, (char *)whole.h + (size_t)index[i] * row,
                  row);
        CHECK_MEM(picked.x + (int64_t)index[i] * n, whole.x + (int64_t)index[i] * n, (size_t)n * 4);
    }
    CHECK_MEM(picked.x + n, x + n, (size_t)n * 4); /* row 1 is not in the index */
    free(whole.h);
    free(whole.x);
    free(picked.h);
    free(picked.x);
    free(x);
    free(y);
    free(weight);
    free(y_weight);
    free(h);
    free(after);
}

static void test_norm(void)
{
    static const int32_t widths[] = {1,    15,   16,   17,   100,  257,  1020, 1024,
                                     1025, 1028, 4096, 4097, 4100, 8192, 8193, 8196};

    for (int type = SB_F32; type <= SB_F16; type++)
        for (int i = 0; i < COUNT(widths); i++)
            for (int form = 0; form < 3 && !sbtest_failed_now; form++) {
                check_norm((enum sb_dtype)type, widths[i], form);
                free_all();
            }
}

/* Two norms on one stream, nothing between them: the second begins while the first still runs, and
 * reads the x that the first writes. It has the bits that it has after a wait. */
static void check_norms_in_turn(enum sb_dtype type, int32_t n)
{
    const size_t all = (size_t)NORM_ROWS * (size_t)n, h_bytes = NORM_ROWS * row_bytes(type, n);
    float *x = cpu_floats((int64_t)all), *y = cpu_floats((int64_t)all), *weight = cpu_floats(n);
    float *dev_x = given_floats(x, (int64_t)all), *got_x = cpu_memory(all * 4);
    void *dev_h = fresh(h_bytes), *got_h = cpu_memory(h_bytes);
    const struct sb_norm args = {.m = NORM_ROWS,
                                 .n = n,
                                 .eps = 1e-6f,
                                 .h = dev_h,
                                 .x = dev_x,
                                 .y = given_floats(y, (int64_t)all),
                                 .weight = given_floats(weight, n)};
    struct normed first, second;

    CHECK_CUDA(run_norm(&first, type, x, y, NULL, weight, NULL, n));
    CHECK_CUDA(run_norm(&second, type, first.x, y, NULL, weight, NULL, n));
    CHECK_CUDA(sb_cuda_norm(&args, type, stream));
    CHECK_CUDA(sb_cuda_norm(&args, type, stream));
    CHECK_CUDA(fetch(got_h, dev_h, h_bytes));
    CHECK_CUDA(fetch(got_x, dev_x, all * 4));
    CHECK_MEM(got_h, second.h, h_bytes);
    CHECK_MEM(got_x, second.x, all * 4);
    free(first.h);
    free(first.x);
    free(second.h);
    free(second.x);
    free(got_h);
    free(got_x);
    free(x);
    free(y);
    free(weight);
}

static void test_norms_in_turn(void)
{
    static const int32_t widths[] = {100, 1025, 4096, 8192, 8193};

    for (int type = SB_F32; type <= SB_F16; type++)
        for (int i = 0; i < COUNT(widths) && !sbtest_failed_now; i++) {
            check_norms_in_turn((enum sb_dtype)type, widths[i]);
            free_all();
        }
}

/* ------------------------------------------------------------------ elementwise */

static void check_gate(enum sb_dtype type, enum sb_gate gate, int32_t n, int32_t m)
{
    static const float special[] = {0.0f,    -0.0f, 1e-30f, 88.0f, -88.0f, 104.0f,
                                    -104.0f, 1e30f, -1e30f, 3e38f, -3e38f, NAN};
    float *x = cpu_floats(2 * (int64_t)m * n), *f32 = cpu_floats((int64_t)m * n);
    const size_t bytes = (size_t)m * row_bytes(type, n);
    void *got = cpu_memory(bytes), *y = fresh(bytes), *expected;

    for (int64_t i = 0; i < 2 * (int64_t)m * n; i++)
        x[i] = i < COUNT(special) ? special[i] : x[i] * 20.0f;
    sb_cpu_op_gate(way->exec, f32, x, gate, m, n);
    expected = padded(f32, m, n, type);
    CHECK_CUDA(sb_cuda_gate(y, type, given_floats(x, 2 * (int64_t)m * n), gate, m, n, stream));
    CHECK_CUDA(fetch(got, y, bytes));
    if (type == SB_F32)
        CHECK_SAME((float *)got, (float *)expected, (int64_t)m * n, "f32, gate %d, %d columns",
                   (int)gate, (int)n);
    else
        CHECK_MEM(got, expected, bytes);
    free(x);
    free(f32);
    free(got);
    free(expected);
}

static void test_gates(void)
{
    static const int32_t widths[] = {1, 31, 64, 255, 256, 257, 1000};

    for (int type = SB_F32; type <= SB_F16; type++)
        for (int i = 0; i < 3 * COUNT(widths); i++)
            for (int32_t m = 0; m < 5 && !sbtest_failed_now; m += 1 + m) {
                check_gate((enum sb_dtype)type, (enum sb_gate)(i % 3), widths[i / 3], m);
                free_all();
            }
}

static void test_soft_caps(void)
{
    static const float special[] = {0.0f, -0.0f, 1e-30f, 1e4f, -1e4f, INFINITY, -INFINITY, NAN};
    static const int32_t sizes[] = {0, 1, 255, 1024, 1025, 5000};

    for (int i = 0; i < COUNT(sizes); i++) {
        const int32_t n = sizes[i];
        float *x = cpu_floats(n), *got = cpu_floats(n), *dev;
        for (int32_t k = 0; k < n; k++)
            x[k] = k < COUNT(special) ? special[k] : x[k] * 90.0f;
        dev = given_floats(x, n);
        cpu->soft_cap(way->exec, x, 30.0f, n);
        CHECK_CUDA(sb_cuda_soft_cap(dev, 30.0f, n, stream));
        CHECK_CUDA(fetch(got, dev, (size_t)n * sizeof *got));
        CHECK_SAME(got, x, n, "%d numbers", (int)n);
        free(x);
        free(got);
        free_all();
    }
}

/* The kernel and the CPU's could have the same mistake: a GELU is what its definition says. */
static void test_gelu(void)
{
    enum { N = 400 };
    float x[2 * N], y[N];
    float *dev_y = fresh(sizeof y);

    for (int i = 0; i < N; i++) {
        x[i] = (float)(i - N / 2) / 20.0f;
        x[N + i] = 1.0f;
    }
    CHECK_CUDA(sb_cuda_gate(dev_y, SB_F32, given_floats(x, 2 * N), SB_GATE_GELU, 1, N, stream));
    CHECK_CUDA(fetch(y, dev_y, sizeof y));
    for (int i = 0; i < N; i++) {
        const double g = x[i], u = sqrt(8.0 / 3.14159265358979324) * (g + 0.044715 * g * g * g);
        if (!(fabs(y[i] - g / (1.0 + exp(-u))) <= 1e-6 * fabs(g)))
            FAIL("gelu(%g) is %g, expected %g", g, (double)y[i], g / (1.0 + exp(-u)));
    }
    free_all();
}

static void test_add_bias(void)
{
    enum { M = 5, N = 517 };
    float *y = cpu_floats(M * N), *bias = cpu_floats(N), got[M * N];
    float *dev_y = given_floats(y, M * N), *dev_bias = given_floats(bias, N);

    CHECK_CUDA(sb_cuda_add_bias(dev_y, dev_bias, 0, N, stream));
    CHECK_CUDA(sb_cuda_add_bias(dev_y, dev_bias, M, N, stream));
    CHECK_CUDA(fetch(got, dev_y, sizeof got));
    for (int i = 0; i < M * N; i++)
        CHECK(got[i] == y[i] + bias[i % N]);
    free(y);
    free(bias);
    free_all();
}

/* Queries for cuDNN: the first columns of wider rows, packed, rounded as the cache is. */
static void test_narrow(void)
{
    enum { M = 5, N = 264, LD = 517 };
    float *x = cpu_floats(M * LD);
    uint16_t got[M * N], expected[M * N];

    x[0] = 1e9f;
    x[1] = -70000.0f;
    for (int type = SB_BF16; type <= SB_F16; type++) {
        uint16_t *dev_y = fresh(sizeof got);
        const float *dev_x = given_floats(x, M * LD);
        for (int64_t i = 0; i < M * N; i++)
            put(expected, i, x[i / N * LD + i % N], (enum sb_dtype)type, 1);
        CHECK_CUDA(sb_cuda_narrow(dev_y, (enum sb_dtype)type, dev_x, 0, N, LD, stream));
        CHECK_CUDA(sb_cuda_narrow(dev_y, (enum sb_dtype)type, dev_x, M, N, LD, stream));
        CHECK_CUDA(fetch(got, dev_y, sizeof got));
        CHECK_MEM(got, expected, sizeof got);
    }
    free(x);
    free_all();
}

/* ------------------------------------------------------------------ gemm, f32 class */

/* Products of one matrix with several numbers of rows, each time a random choice of the same rows.
 * wild: the elements have any bits at all. */
static void check_gemm(int32_t n, int32_t k, int wild)
{
    static const int32_t row_counts[] = {0, 1, 2, 15, 16, 17, 33};
    enum { BASE = 13 };
    float *x = cpu_floats((int64_t)BASE * k), *w = cpu_floats((int64_t)n * k),
          *bias = cpu_floats(n);
    float *expected = cpu_floats((int64_t)BASE * n), *shuffled = cpu_floats(33 * (int64_t)k),
          *y = cpu_floats(33 * (int64_t)n);
    struct sb_weight weight = {.n_out = n, .n_in = k};
    int32_t from[33];

    for (int64_t i = 0; wild && i < (int64_t)n * k; i++)
        w[i] = cpu_any_bits();
    for (int64_t i = 0; wild && i < (int64_t)BASE * k; i++)
        x[i] = i % 3 == 0 ? cpu_any_bits() : x[i] * 0x1p-100f;
    CHECK_OK(cpu->weight_create(&weight, way->device, &cpu_mem, SB_F32));
    CHECK_OK(cpu->weight_fill(&weight, way->device, 0, n, w, SB_F32));
    cpu->gemm(way->exec, expected, x, &weight, n % 2 ? bias : NULL, BASE);
    cpu->weight_free(&weight, way->device, &cpu_mem);
    const float *dev_w = given_floats(w, (int64_t)n * k),
                *dev_bias = n % 2 ? given_floats(bias, n) : NULL;
    for (int i = 0; i < COUNT(row_counts); i++) {
        const int32_t m = row_counts[i];
        for (int32_t r = 0; r < m; r++) {
            from[r] = (int32_t)(cpu_random() % BASE);
            memcpy(shuffled + (int64_t)r * k, x + (int64_t)from[r] * k, (size_t)k * 4);
        }
        float *dev_y = fresh((size_t)m * (size_t)n * 4);
        CHECK_CUDA(sb_cuda_gemm_reference(dev_y, given_floats(shuffled, (int64_t)m * k), dev_w,
                                          dev_bias, m, n, k, stream));
        CHECK_CUDA(fetch(y, dev_y, (size_t)m * (size_t)n * 4));
        for (int32_t r = 0; r < m; r++)
            CHECK_SAME(y + (int64_t)r * n, expected + (int64_t)from[r] * n, n, "[%d, %d], %d rows",
                       (int)n, (int)k, (int)m);
    }
    free(x);
    free(w);
    free(bias);
    free(expected);
    free(shuffled);
    free(y);
}

static void test_gemm_reference(void)
{
    static const int32_t ks[] = {1, 7, 32, 33, 513}, ns[] = {1, 63, 64, 65, 130};

    for (int k = 0; k < COUNT(ks); k++)
        for (int n = 0; n < COUNT(ns) && !sbtest_failed_now; n++) {
            check_gemm(ns[n], ks[k], 0);
            free_all();
        }
    for (int i = 1; i < 9 && !sbtest_failed_now; i++) {
        check_gemm(64, i, 1);
        free_all();
    }
}

/* ------------------------------------------------------------------ selection, acceptance,
 * moves */

/* Compares ids, log-probabilities and margins of m rows on the CPU and on the device, where several
 * blocks look at a row, if that is long, and where one does. */
static void check_select(float *logits, int32_t m, int32_t stride, int32_t limit)
{
    int32_t at[16], ids[16], expected_ids[16];
    float logprob[16], margin[16], expected_logprob[16], expected_margin[16];

    for (int32_t r = 0; r < m; r++)
        at[r] = (r + 4) % m;
    cpu->select(way->exec, &(struct sb_select){m, stride, limit, logits, at, expected_ids,
                                               expected_logprob, expected_margin, NULL, NULL});
    float *dev_logits = given_floats(logits, (int64_t)m * stride);
    int32_t *dev_at = given_ints(at, m), *dev_ids = fresh((size_t)m * 4);
    float *dev_logprob = fresh((size_t)m * 4), *dev_margin = fresh((size_t)m * 4);
    void *scratch = fresh(sb_cuda_select_scratch());
    for (int is_alone = 0; is_alone < 2; is_alone++) {
        CHECK_CUDA(sb_cuda_select(&(struct sb_select){m, stride, limit, dev_logits, dev_at, dev_ids,
                                                      dev_logprob, dev_margin, NULL, NULL},
                                  is_alone ? NULL : scratch, stream));
        CHECK_CUDA(fetch(ids, dev_ids, (size_t)m * 4));
        CHECK_CUDA(fetch(logprob, dev_logprob, (size_t)m * 4));
        CHECK_CUDA(fetch(margin, dev_margin, (size_t)m * 4));
        CHECK_MEM(ids, expected_ids, (size_t)m * 4);
        CHECK_SAME(logprob, expected_logprob, m, "log-probability, limit %d", (int)limit);
        /* the sign of a zero margin is not compared, nor a margin beside a NaN */
        for (int32_t r = 0; r < m; r++)
            CHECK(ids[r] < 0 || margin[r] == expected_margin[r] ||
                  (isnan(margin[r]) && isnan(expected_margin[r])));
    }
    float *last = dev_logits + (m - 1) * (int64_t)stride;
    CHECK_CUDA(sb_cuda_select(
        &(struct sb_select){1, stride, limit, last, dev_at, dev_ids, NULL, NULL, NULL, NULL},
        scratch, stream));
    CHECK_CUDA(fetch(ids, dev_ids, (size_t)m * 4));
    CHECK_INT(ids[at[0]], expected_ids[at[m - 1]]);
    CHECK_CUDA(sb_cuda_select(
        &(struct sb_select){0, stride, limit, dev_logits, dev_at, dev_ids, NULL, NULL, NULL, NULL},
        scratch, stream));
    free_all();
}

/* The same for what is wanted beside the choice: every other row has a given id. */
static void check_scores(float *logits, int32_t m, int32_t stride, int32_t limit)
{
    enum { TOP = SB_TOP_MAX };
    struct sb_want wants[16];
    int32_t at[16], ids[16], expected_ids[16], top_ids[16 * TOP], expected_top_ids[16 * TOP];
    float logprob[16], expected_logprob[16], tops[16 * TOP], expected_tops[16 * TOP];
    const struct sb_scores expected = {wants, TOP, expected_top_ids, expected_tops};
    struct sb_scores scores = {NULL, TOP, NULL, NULL};

    for (int32_t r = 0; r < m; r++) {
        at[r] = (r + 4) % m;
        wants[r] = (struct sb_want){r % 2 ? (r * 5) % limit : -1, (r * 11 + 3) % (TOP + 1), 0};
    }
    memset(expected_ids, 0, sizeof expected_ids);
    memset(expected_top_ids, 0, sizeof expected_top_ids);
    memset(expected_tops, 0, sizeof expected_tops);
    cpu->select(way->exec, &(struct sb_select){m, stride, limit, logits, at, expected_ids,
                                               expected_logprob, NULL, NULL, &expected});
    int32_t *dev_at = given_ints(at, m), *dev_ids = fresh((size_t)m * 4);
    float *dev_logits = given_floats(logits, (int64_t)m * stride);
    float *dev_logprob = fresh((size_t)m * 4);
    scores.wants = (const void *)given_ints((const int32_t *)wants, 3 * m);
    scores.ids = fresh((size_t)m * TOP * 4);
    scores.logprobs = fresh((size_t)m * TOP * 4);
    CHECK_CUDA(sb_cuda_select(&(struct sb_select){m, stride, limit, dev_logits, dev_at, dev_ids,
                                                  dev_logprob, NULL, NULL, &scores},
                              fresh(sb_cuda_select_scratch()), stream));
    CHECK_CUDA(fetch(ids, dev_ids, (size_t)m * 4));
    CHECK_CUDA(fetch(logprob, dev_logprob, (size_t)m * 4));
    CHECK_CUDA(fetch(top_ids, scores.ids, (size_t)m * TOP * 4));
    CHECK_CUDA(fetch(tops, scores.logprobs, (size_t)m * TOP * 4));
    CHECK_SAME(logprob, expected_logprob, m, "log-probability, limit %d", (int)limit);
    for (int32_t r = 0; r < m && !sbtest_failed_now; r++) {
        CHECK(wants[r].given >= 0 || ids[r] == expected_ids[r]);
        CHECK_MEM(top_ids + r * TOP, expected_top_ids + r * TOP, (size_t)wants[r].n_top * 4);
        CHECK_SAME(tops + r * TOP, expected_tops + r * TOP, wants[r].n_top, "limit %d", (int)limit);
    }
    free_all();
}

static void test_select(void)
{
    static const int32_t limits[] = {1, 2, 15, 16, 17, 33, 500, 1023, 4096, 5000};
    enum { M = 5, STRIDE = 5003 };
    float *logits = cpu_floats(M * STRIDE);

    for (int i = 0; i < COUNT(limits) && !sbtest_failed_now; i++) {
        /* There are few distinct values, so that ties occur. What lies past the limit is larger or
         * NaN. */
        for (int k = 0; k < M * STRIDE; k++)
            logits[k] = k % STRIDE >= limits[i] ? (k % 2 ? NAN : 1e9f)
                                                : floorf(cpu_uniform() * 8.0f) * 0.75f;
        check_select(logits, M, STRIDE, limits[i]);
        check_scores(logits, M, STRIDE, limits[i]);
    }
    free(logits);
}

/* Rows that several blocks look at: the largest value in several parts, in the first or the last of
 * them only, or in none, as all values are -infinity; and a NaN in one part. */
static void test_select_in_parts(void)
{
    static const int32_t limits[] = {8191, 8192, 12289, 20011};
    enum { M = 5, STRIDE = 20011 };
    float *logits = cpu_floats(M * STRIDE);

    for (int i = 0; i < COUNT(limits) && !sbtest_failed_now; i++) {
        const int32_t n = limits[i];
        for (int k = 0; k < M * STRIDE; k++)
            logits[k] = k % STRIDE >= n ? 1e9f : floorf(cpu_uniform() * 16.0f) * 0.75f;
        logits[STRIDE] = 100.0f;
        logits[2 * STRIDE + n - 1] = 100.0f;
        logits[3 * STRIDE + n / 2] = NAN;
        for (int k = 0; k < n; k++)
            logits[4 * STRIDE + k] = -INFINITY;
        check_select(logits, M, STRIDE, n);
        check_scores(logits, M - 1, STRIDE, n);
    }
    free(logits);
}

static void test_select_special(void)
{
    enum { M = 7, N = 40 };
    float rows[M * N];

    for (int i = 0; i < N && !sbtest_failed_now; i += 3) {
        for (int k = 0; k < M * N; k++)
            rows[k] = -INFINITY; /* row 0: all equal */
        rows[N + i] = -3e38f;
        rows[2 * N + i] = NAN;
        rows[3 * N + i] = 0.0f;
        rows[3 * N + (i + 1) % N] = -0.0f;
        rows[4 * N + i] = INFINITY;
        rows[5 * N + i] = 1e-40f; /* a denormal is zero */
        rows[5 * N + (i + 1) % N] = 0.0f;
        rows[6 * N + i] = 3e38f;
        rows[6 * N + (i + 1) % N] = -3e38f;
        check_select(rows, M, N, N);
        check_scores(rows, M, N, N);
    }
}

static void test_accept(void)
{
    enum { ROWS = 133, STRIDE = 6 };
    int32_t tokens[ROWS * STRIDE], picks[ROWS * STRIDE], n_draft[ROWS], n_accept[ROWS];

    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < ROWS * STRIDE; i++) {
            tokens[i] = (int32_t)(cpu_random() % 3) - 1;
            picks[i] = (int32_t)(cpu_random() % 2);
        }
        for (int b = 0; b < ROWS; b++)
            n_draft[b] = (int32_t)(cpu_random() % STRIDE);
        int32_t *dev_tokens = given_ints(tokens, ROWS * STRIDE),
                *dev_picks = given_ints(picks, ROWS * STRIDE);
        int32_t *dev_draft = given_ints(n_draft, ROWS), *dev_accept = fresh(sizeof n_accept);
        CHECK_CUDA(sb_cuda_accept(dev_tokens, dev_picks, dev_draft, 0, STRIDE, dev_accept, stream));
        CHECK_CUDA(
            sb_cuda_accept(dev_tokens, dev_picks, dev_draft, ROWS, STRIDE, dev_accept, stream));
        CHECK_CUDA(fetch(n_accept, dev_accept, sizeof n_accept));
        for (int b = 0; b < ROWS; b++) {
            int32_t n = 0, open = 1;
            for (int j = 0; j < n_draft[b]; j++) {
                open = open && tokens[b * STRIDE + j + 1] == picks[b * STRIDE + j];
                n += open;
            }
            CHECK_INT(n_accept[b], n);
        }
        free_all();
    }
}

/* Moves inside a slot, in place, or from one slot to another of a different size. Bytes outside
 * what is written stay as they were. */
static void check_move(enum sb_dtype type, int32_t dim, int32_t least, const int32_t moves[][3],
                       int n_moves)
{
    enum { MOVES = 3, SLOTS = 2 * MOVES, PLANES = 2, HEADS = 2 };
    const int64_t stride = (int64_t)SLOTS * HEADS * (least + 8 * SLOTS) * dim + 8,
                  all = PLANES * stride;
    const size_t size = sb_dtype_size(type), bytes = (size_t)all * size;
    uint8_t *before = cpu_memory(bytes), *expected = cpu_memory(bytes), *got = cpu_memory(bytes);
    int64_t from_base[MOVES], to_base[MOVES], base[SLOTS];
    int32_t from_cap[MOVES], to_cap[MOVES], cap[SLOTS], from[MOVES], to[MOVES], len[MOVES];
    struct sb_move args = {
        .n = MOVES, .n_planes = PLANES, .kv_heads = HEADS, .head_dim = dim, .plane_stride = stride};

    for (int slot = 0; slot < SLOTS; slot++) {
        cap[slot] = least + 8 * (slot * 5 % SLOTS);
        base[slot] = slot == 0 ? 0 : base[slot - 1] + (int64_t)HEADS * cap[slot - 1] * dim;
    }
    for (size_t i = 0; i < bytes; i++)
        before[i] = (uint8_t)cpu_random();
    for (int i = 0; i < 2 * n_moves; i++) {
        const int n_before = n_owned;
        memcpy(expected, before, bytes);
        for (int m = 0; m < MOVES; m++) {
            const int in = m, out = i < n_moves ? m : SLOTS - 1 - m;
            from_base[m] = base[in];
            from_cap[m] = cap[in];
            to_base[m] = base[out];
            to_cap[m] = cap[out];
            from[m] = moves[(i + m) % n_moves][0];
            to[m] = moves[(i + m) % n_moves][1];
            len[m] = moves[(i + m) % n_moves][2];
            for (int64_t p = 0; p < PLANES * HEADS; p++) {
                const int64_t plane = p / HEADS * stride, head = p % HEADS;
                const int64_t there = plane + base[out] + (head * cap[out] + to[m]) * dim,
                              here = plane + base[in] + (head * cap[in] + from[m]) * dim;
                memcpy(expected + (size_t)there * size, before + (size_t)here * size,
                       (size_t)(len[m] * dim) * size);
            }
        }
        args.from_base = given(from_base, sizeof from_base);
        args.to_base = given(to_base, sizeof to_base);
        args.from_cap = given_ints(from_cap, MOVES);
        args.to_cap = given_ints(to_cap, MOVES);
        args.from = given_ints(from, MOVES);
        args.to = given_ints(to, MOVES);
        args.len = given_ints(len, MOVES);
        void *planes = given(before, bytes);
        CHECK_CUDA(sb_cuda_move(planes, type, &args, stream));
        CHECK_CUDA(fetch(got, planes, bytes));
        CHECK_MEM(got, expected, bytes);
        free_to(n_before);
    }
    args.n = 0;
    CHECK_CUDA(sb_cuda_move(NULL, type, &args, stream));
    free(before);
    free(expected);
    free(got);
}

static void test_move(void)
{
    static const int32_t dims[] = {1, 2, 3, 4, 5, 8, 16, 64};
    static const int32_t few[][3] = {{3, 1, 20}, {1, 3, 20}, {0, 25, 15}, {25, 0, 15},
                                     {7, 7, 9},  {5, 6, 0},  {0, 1, 39},  {1, 0, 39}};
    static const int32_t many[][3] = {
        {1, 0, 299}, {0, 1, 299}, {7, 3, 290}, {40, 170, 130}, {5, 130, 150}};

    for (int type = SB_F32; type <= SB_F16; type++)
        for (int i = 0; i < COUNT(dims) && !sbtest_failed_now; i++) { /* all three sizes of unit */
            check_move((enum sb_dtype)type, dims[i], 40, few, COUNT(few));
            free_all();
        }
    /* pieces of 4 bytes and of 16, many of them */
    check_move(SB_F32, 33, 300, many, COUNT(many));
    free_all();
    check_move(SB_BF16, 128, 300, many, COUNT(many));
    free_all();
}

TEST_BEGIN
const int has_device = both_begin();
if (has_device) {
    RUN(test_embed);
    RUN(test_embed_copies);
    RUN(test_embed_what_is_selected);
    RUN(test_norm);
    RUN(test_norms_in_turn);
    RUN(test_gates);
    RUN(test_soft_caps);
    RUN(test_gelu);
    RUN(test_add_bias);
    RUN(test_narrow);
    RUN(test_gemm_reference);
    RUN(test_select);
    RUN(test_select_in_parts);
    RUN(test_select_special);
    RUN(test_accept);
    RUN(test_move);
}
both_end(has_device);
TEST_END
