/*
 * The tensor core kernels: products of the 16-bit class.
 *
 * Results are compared with double precision, within bounds that follow from the roundings that the
 * kernels are documented to make. They are also compared with each other, bit for bit: a row's bits
 * may depend on the row alone, so every shape of tile must agree.
 *
 * The program is linked with the kernels compiled for the host and the simulator, or with the
 * module's objects on a GPU. Inputs and outputs are device allocations of exactly their size, so
 * that a checker of memory accesses sees every wrong one.
 */
#include "cuda/matrix.h"

/* ------------------------------------------------------------------ products */

struct product {
    enum sb_dtype type;
    struct matrix x, w;
    float *bias;
    void *dev_w, *dev_bias;
};

static struct product product_make(enum sb_dtype type, int32_t m, int32_t n_out, int32_t n_in)
{
    struct product p = {
        .type = type, .x = matrix_make(m, n_in, type), .w = matrix_make(n_out, n_in, type)};

    p.bias = cpu_floats(n_out);
    p.dev_w = given_weight(p.w.bits, type, n_out, p.w.ld, 0);
    p.dev_bias = given(p.bias, (size_t)n_out * sizeof(float));
    return p;
}

static void product_free(struct product *p)
{
    matrix_free(&p->x);
    matrix_free(&p->w);
    free(p->bias);
    free_all();
}

/* Computes y [m, n_out] for rows index[0 .. m) of x. */
static cudaError_t multiply(float *y, const struct product *p, const int32_t *index, int32_t m,
                            int has_bias)
{
    const size_t bytes = (size_t)(m * p->w.rows) * sizeof(float), row = (size_t)p->x.ld * 2;
    uint16_t *x = cpu_memory((size_t)m * row);
    const int mark = n_owned;

    for (int32_t r = 0; r < m; r++)
        memcpy(x + r * p->x.ld, p->x.bits + index[r] * p->x.ld, row);
    void *dev_x = given(x, (size_t)m * row);
    float *dev_y = fresh(bytes);
    cudaError_t error = sb_cuda_gemm_mma(dev_y, dev_x, p->dev_w, p->type,
                                         has_bias ? p->dev_bias : NULL, m, (int32_t)p->w.rows,
                                         p->w.n, 0, product_limits(p->type), stream);
    if (error == cudaSuccess)
        error = fetch(y, dev_y, bytes);
    free_to(mark);
    free(x);
    return error;
}

#ifdef CUDASIM_CUDA_RUNTIME_API_H
#include "cudasim.h"

/* The simulated tensor core's sums in steps of 16 along k, ascending, from 0. */
static float in_steps(const float *x, const float *w, int32_t n)
{
    float sum = 0.0f;

    for (int32_t k = 0; k < n; k += 16) {
        float a[16] = {0.0f}, b[16] = {0.0f};
        memcpy(a, x + k, (size_t)(n - k < 16 ? n - k : 16) * sizeof(float));
        memcpy(b, w + k, (size_t)(n - k < 16 ? n - k : 16) * sizeof(float));
        sum = cudasim_tensor_sum(sum, a, b);
    }
    return sum;
}
#endif

/*
 * Checks row r of the product against double precision. An accumulator adds n_in products. Each
 * rounding or truncation is at most 2^-22 (25 fraction bits on sm_90, 24 on sm_80) of the largest
 * magnitude that the accumulator can have had, which is the sum of |x w|.
 */
static void check_row(const float *y, const struct product *p, int32_t r, int has_bias)
{
    for (int64_t o = 0; o < p->w.rows; o++) {
        const float *x = p->x.values + (int64_t)r * p->x.n, *w = p->w.values + o * p->w.n;
        double sum = has_bias ? p->bias[o] : 0.0, size = fabs(sum);
        for (int32_t k = 0; k < p->w.n; k++) {
            sum += (double)x[k] * w[k];
            size += fabs((double)x[k] * w[k]);
        }
        if (!(fabs(y[o] - sum) <= size * (p->w.n + 1) * 0x1p-22))
            FAIL("row %d, output %d of %d x %d: %g, expected %g", (int)r, (int)o, (int)p->w.rows,
                 (int)p->w.n, (double)y[o], sum);
#ifdef CUDASIM_CUDA_RUNTIME_API_H
        const float steps = in_steps(x, w, p->w.n) + (has_bias ? p->bias[o] : 0.0f);
        if (y[o] != steps)
            FAIL("row %d, output %d of %d x %d: %a, in order %a", (int)r, (int)o, (int)p->w.rows,
                 (int)p->w.n, (double)y[o], (double)steps);
#endif
    }
}

/* Checks that the rows of a product of m rows, in another order, have the bits that they have in
 * `all`. */
static void check_rows(const float *all, const struct product *p, const int32_t *index, int32_t m,
                       int has_bias)
{
    const size_t row = (size_t)p->w.rows * sizeof(float);
    float *y = cpu_memory((size_t)m * row);

    CHECK_CUDA(multiply(y, p, index, m, has_bias));
    for (int32_t r = 0; r < m; r++)
        if (memcmp(y + r * p->w.rows, all + index[r] * p->w.rows, row) != 0)
            FAIL("row %d of %d differs from the same row elsewhere (%d x %d)", (int)r, (int)m,
                 (int)p->w.rows, (int)p->w.n);
    free(y);
}

static void check_product(enum sb_dtype type, int32_t m, int32_t n_out, int32_t n_in, int has_bias)
{
    struct product p = product_make(type, m, n_out, n_in);
    float *all = cpu_memory((size_t)m * (size_t)n_out * sizeof(float));
    int32_t index[200] = {0};

    for (int32_t r = 0; r < m; r++)
        index[r] = r;
    CHECK_CUDA(multiply(all, &p, index, m, has_bias));
    for (int32_t r = 0; r < m; r++)
        TRY(check_row(all + (int64_t)r * n_out, &p, r, has_bias));
    for (int32_t r = 0; r < m; r++)
        index[r] = (r * 7 + 3) % m; /* a permutation, as 7 divides no m here */
    TRY(check_rows(all, &p, index, m, has_bias));
    free(all);
    product_free(&p);
}

static void test_gemm_shapes(void)
{
    static const int32_t outs[] = {1, 7, 16, 63, 517}, ins[] = {64, 100, 300, 512},
                         rows[] = {1, 9, 33, 130};

    for (int i = 0; i < 2 * COUNT(outs) * COUNT(ins); i++)
        TRY(check_product(types[i % 2], rows[i / 2 % COUNT(rows)], outs[i / 2 / COUNT(ins)],
                          ins[i / 2 % COUNT(ins)], i / 3 % 2));
}

/* There are enough outputs for each width of block, and numbers of rows for each number of x tiles.
 */
static void test_gemm_wide_blocks(void)
{
    static const int32_t rows[] = {3, 16, 22, 32, 40, 64}, outs[] = {2100, 4100, 8200};

    for (int i = 0; i < COUNT(rows) * COUNT(outs); i++)
        TRY(check_product(types[i % 2], rows[i % COUNT(rows)], outs[i / COUNT(rows)],
                          i % 4 ? 64 : 130, i % 3 == 0));
}

/* Products of every number of rows, with each row at the beginning of some and at the end of
 * others. */
static void test_gemm_every_m(void)
{
    enum { M = 70, OUT = 61, IN = 200 };
    float *all = cpu_memory((size_t)M * OUT * sizeof(float));

    for (int i = 0; i < COUNT(types); i++) {
        struct product p = product_make(types[i], M, OUT, IN);
        for (int32_t r = 0; r < M; r++)
            CHECK_CUDA(multiply(all + r * OUT, &p, &r, 1, 1));
        for (int32_t m = 1; m <= M; m++) {
            int32_t index[M];
            for (int32_t r = 0; r < m; r++)
                index[r] = (r * 3 + 5 * m) % M;
            TRY(check_rows(all, &p, index, m, 1));
        }
        product_free(&p);
    }
    free(all);
}

/* The product by blocks of one shape, first those of mma.sync, then those of wgmma. */
static cudaError_t multiply_in(int32_t shape, float *y, const void *x, const struct product *p,
                               const float *bias, int32_t m)
{
    const int32_t n_out = (int32_t)p->w.rows, n_in = p->w.n;

    if (shape < SB_GEMM_SHAPES)
        return sb_cuda_gemm_mma_in(shape, y, x, p->dev_w, p->type, bias, m, n_out, n_in, 0, stream);
    return sb_cuda_gemm_wgmma_in(shape - SB_GEMM_SHAPES, y, x, p->dev_w, p->type, bias, m, n_out,
                                 n_in, 0, product_limits(p->type), stream);
}

/* Products by wgmma that had other bits than mma.sync's. A device may add otherwise, and then does
 * not use them (gemm_plan.c). The simulated one does not. */
static int n_different;

static void check_difference(int32_t shape, const struct product *p, const float *y, int32_t r,
                             int has_bias)
{
#ifndef CUDASIM_CUDA_RUNTIME_API_H
    if (shape >= SB_GEMM_SHAPES) {
        n_different++;
        TRY(check_row(y, p, r, has_bias));
        return;
    }
#endif
    (void)y;
    (void)has_bias;
    FAIL("shape %d: row %d differs from the same row elsewhere (%d x %d)", (int)shape, (int)r,
         (int)p->w.rows, (int)p->w.n);
}

/* The rows of a product as other blocks compute them: each alone; or all together for wgmma, which
 * is compared with mma.sync and not with rows alone. */
static cudaError_t multiply_elsewhere(float *y, int32_t shape, const struct product *p, int32_t m)
{
    const int32_t at_once = shape < SB_GEMM_SHAPES ? 1 : m;
    int32_t index[400];
    cudaError_t error = cudaSuccess;

    for (int32_t r = 0; r < m; r++)
        index[r] = r;
    for (int32_t r = 0; error == cudaSuccess && r < m; r += at_once)
        error = multiply(y + (int64_t)r * p->w.rows, p, index + r, at_once, shape % 2);
    return error;
}

/* Checks that blocks of one shape give m rows, at most 400, the bits that other blocks do. */
static void check_shape(int32_t shape, enum sb_dtype type, int32_t m, int32_t n_out, int32_t n_in)
{
    struct product p = product_make(type, m, n_out, n_in);
    const size_t row = (size_t)n_out * sizeof(float), bytes = (size_t)m * row;
    float *others = cpu_memory(bytes), *y = cpu_memory(bytes), *dev_y = fresh(bytes);
    void *dev_x = given(p.x.bits, (size_t)(m * p.x.ld) * 2);

    CHECK_CUDA(multiply_elsewhere(others, shape, &p, m));
    CHECK_CUDA(multiply_in(shape, dev_y, dev_x, &p, shape % 2 ? p.dev_bias : NULL, m));
    CHECK_CUDA(fetch(y, dev_y, bytes));
    for (int32_t r = 0; r < m; r++)
        if (memcmp(y + (int64_t)r * n_out, others + (int64_t)r * n_out, row) != 0)
            TRY(check_difference(shape, &p, y + (int64_t)r * n_out, r, shape % 2));
    free(others);
    free(y);
    product_free(&p);
}

/* Every shape of block for many rows, where it is full and where it is not, with the ring filled
 * once and several times over. */
static void test_gemm_every_shape(void)
{
    static const int32_t rows[] = {33, 192, 197, 65}, outs[] = {200, 96, 17, 129},
                         ins[] = {64, 448, 300, 1700};

    for (int32_t shape = 0; shape < SB_GEMM_SHAPES; shape++)
        for (int i = 0; i < COUNT(rows); i++)
            TRY(check_shape(shape, types[(i + shape) % 2], rows[i], outs[i], ins[i]));
}

static int has_wgmma(void)
{
    return product_limits(SB_BF16)->map_encoder != NULL;
}

/* The same by wgmma: with fewer stages than the ring has, as many, and several times as many; with
 * tiles of x that are full and nearly empty, and warps without weights. */
static void test_wgmma_every_shape(void)
{
    static const int32_t rows[] = {65, 192, 197, 96, 400, 33},
                         outs[] = {200, 400, 17, 129, 48, 300},
                         ins[] = {64, 448, 300, 1700, 512, 2600};

    if (!has_wgmma())
        SKIP("the device, or the code for it, has no wgmma");
    n_different = 0;
    for (int32_t shape = 0; shape < SB_WGMMA_SHAPES; shape++)
        for (int i = 0; i < COUNT(rows); i++)
            TRY(check_shape(SB_GEMM_SHAPES + shape, types[(i + shape) % 2], rows[i], outs[i],
                            ins[i]));
    if (n_different > 0)
        SKIP("wgmma adds otherwise than mma.sync on this device: %d rows differ", n_different);
}

/* A gated product by wgmma has the bits of its product, gated by act.cu's kernel. */
static void check_gated_wgmma(enum sb_dtype type, int32_t m, int32_t n, int32_t n_in, int has_bias)
{
    struct product p = product_make(type, m, 2 * n, n_in);
    const size_t y_bytes = (size_t)m * 2 * (size_t)n * 4,
                 act_bytes = (size_t)(m * sb_cuda_ld(type, n)) * 2;
    void *act = fresh(act_bytes), *expected = fresh(act_bytes);
    void *x = given(p.x.bits, (size_t)(m * p.x.ld) * 2),
         *w = given_weight(p.w.bits, type, 2 * n, p.w.ld, n);
    float *y = fresh(y_bytes), *bias = has_bias ? p.dev_bias : NULL;
    uint16_t *got = cpu_memory(act_bytes), *want = cpu_memory(act_bytes);

    CHECK_CUDA(
        sb_cuda_gemm_wgmma(y, x, w, type, bias, m, 2 * n, n_in, n, product_limits(type), stream));
    CHECK_CUDA(sb_cuda_gate(expected, type, y, SB_GATE_SILU, m, n, stream));
    CHECK_CUDA(
        sb_cuda_gated_wgmma(act, x, w, type, bias, m, n, n_in, product_limits(type), stream));
    CHECK_CUDA(fetch(want, expected, act_bytes));
    CHECK_CUDA(fetch(got, act, act_bytes));
    CHECK_MEM(got, want, act_bytes);
    free(got);
    free(want);
    product_free(&p);
}

static void test_gated_wgmma(void)
{
    static const int32_t outs[] = {7, 130, 200, 500}, ins[] = {100, 1500, 64, 300},
                         rows[] = {20, 96, 193, 130};

    if (!has_wgmma())
        SKIP("the device, or the code for it, has no wgmma");
    for (int i = 0; i < 2 * COUNT(outs) && !sbtest_failed_now; i++)
        check_gated_wgmma(types[i % 2], rows[i / 2], outs[i / 2], ins[i / 2], i / 2 % 2);
}

static void test_wgmma_refuses(void)
{
    const struct sb_launch_limits none = {1, 1 << 20, 0, NULL}, *limits = product_limits(SB_BF16);
    const void *x = given("", 1);

    CHECK_INT(sb_cuda_gemm_wgmma(NULL, NULL, NULL, SB_BF16, NULL, 0, 5, 64, 0, &none, stream),
              cudaSuccess);
    CHECK_INT(sb_cuda_gemm_wgmma(NULL, NULL, NULL, SB_F32, NULL, 1, 5, 64, 0, limits, stream),
              cudaErrorInvalidValue);
    CHECK_INT(sb_cuda_gemm_wgmma(NULL, NULL, NULL, SB_BF16, NULL, 1, 5, 64, 0, &none, stream),
              cudaErrorNotSupported);
    for (int32_t shape = -1; shape <= SB_WGMMA_SHAPES; shape += SB_WGMMA_SHAPES + 1)
        CHECK_INT(
            sb_cuda_gemm_wgmma_in(shape, NULL, x, NULL, SB_BF16, NULL, 1, 5, 64, 0, limits, stream),
            cudaErrorInvalidValue);
    free_all();
}

/* A row of Inf and NaN changes no other row. */
static void test_gemm_bad_row(void)
{
    enum { M = 13, OUT = 40, IN = 128 };
    float good[M * OUT], bad[M * OUT];

    for (int i = 0; i < COUNT(types); i++) {
        struct product p = product_make(types[i], M, OUT, IN);
        int32_t index[M];
        for (int32_t r = 0; r < M; r++)
            index[r] = r;
        CHECK_CUDA(multiply(good, &p, index, M, 0));
        for (int32_t k = 0; k < IN; k++)
            p.x.bits[5 * p.x.ld + k] = narrow_bits(k % 2 ? INFINITY : NAN, types[i], 0);
        CHECK_CUDA(multiply(bad, &p, index, M, 0));
        for (int32_t r = 0; r < M; r++)
            for (int32_t o = 0; o < OUT; o++)
                CHECK(r == 5 ? isnan(bad[r * OUT + o]) : bad[r * OUT + o] == good[r * OUT + o]);
        product_free(&p);
    }
}

/* A gated product of m rows of n outputs. Its weight was put into tiles by the kernel, in portions
 * that end anywhere. It has the bits of the products with gate and up apart, gated by act.cu's
 * kernel; the product of both together has those of the dense rows that the tiles are turned back
 * into. */
static void check_gated(enum sb_dtype type, int32_t m, int32_t n, int32_t n_in, int has_bias,
                        const struct sb_launch_limits *limits)
{
    struct product p = product_make(type, m, 2 * n, n_in);
    const int64_t ld = p.w.ld, act_ld = sb_cuda_ld(type, n);
    const size_t w_bytes = (size_t)sb_cuda_weight_size(type, 2 * n, n_in) * 2;
    const size_t dense = (size_t)(2 * n * ld) * 2, y_bytes = (size_t)m * 2 * (size_t)n * 4,
                 act_bytes = (size_t)(m * act_ld) * 2;
    void *w = fresh(w_bytes), *rows = fresh(dense), *act = fresh(act_bytes);
    void *dev_x = given(p.x.bits, (size_t)(m * p.x.ld) * 2), *expected_act = fresh(act_bytes);
    float *y = fresh(y_bytes), *expected_y = fresh(y_bytes), *bias = has_bias ? p.dev_bias : NULL;
    uint16_t *back = cpu_memory(dense), *got = cpu_memory(act_bytes), *want = cpu_memory(act_bytes);
    float *got_y = cpu_memory(y_bytes), *want_y = cpu_memory(y_bytes);

    CHECK_CUDA(cudaMemset(w, 0, w_bytes));
    for (int32_t first = 0, some; first < 2 * n; first += some) {
        some = 2 * n - first < 21 ? 2 * n - first : 21;
        CHECK_CUDA(sb_cuda_tile(w, given(p.w.bits + first * ld, (size_t)(some * ld) * 2), first,
                                some, ld, n, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        free_to(n_owned - 1);
    }
    CHECK_CUDA(sb_cuda_untile(rows, w, 0, 2 * n, ld, n, stream));
    CHECK_CUDA(fetch(back, rows, dense));
    CHECK_MEM(back, p.w.bits, dense);
    CHECK_CUDA(sb_cuda_gemm_mma(expected_y, dev_x, p.dev_w, type, bias, m, 2 * n, n_in, 0, limits,
                                stream));
    CHECK_CUDA(sb_cuda_gemm_mma(y, dev_x, w, type, bias, m, 2 * n, n_in, n, limits, stream));
    CHECK_CUDA(sb_cuda_gate(expected_act, type, expected_y, SB_GATE_SILU, m, n, stream));
    CHECK_CUDA(sb_cuda_gated_mma(act, dev_x, w, type, bias, m, n, n_in, limits, stream));
    CHECK_CUDA(fetch(want_y, expected_y, y_bytes));
    CHECK_CUDA(fetch(got_y, y, y_bytes));
    CHECK_MEM(got_y, want_y, y_bytes);
    CHECK_CUDA(fetch(want, expected_act, act_bytes));
    CHECK_CUDA(fetch(got, act, act_bytes));
    CHECK_MEM(got, want, act_bytes);
    free(back);
    free(got);
    free(want);
    free(got_y);
    free(want_y);
    product_free(&p);
}

static void test_gated(void)
{
    static const int32_t outs[] = {1, 7, 8, 65, 130, 1040}, ins[] = {64, 100, 192, 300},
                         rows[] = {1, 9, 20, 33, 70};

    for (int i = 0; i < 2 * COUNT(outs) * COUNT(rows) && !sbtest_failed_now; i += 1 + (i > 20))
        check_gated(types[i % 2], rows[i / 2 % COUNT(rows)], outs[i / 2 / COUNT(rows)],
                    ins[i / 2 % COUNT(ins)], i / 3 % 2, product_limits(types[i % 2]));
}

#ifdef CUDASIM_CUDA_RUNTIME_API_H
/* Before sm_90 weights come by cp.async, and some devices have less shared memory for a block. Code
 * for those may run on a newer device, which has more. */
static void check_older_device(const struct cudasim_machine *machine)
{
    static const int32_t rows[] = {1, 12, 20, 33, 70, 192};

    device_end();
    cudasim_configure(machine);
    CHECK(device_begin());
    for (int i = 0; i < COUNT(rows) && !sbtest_failed_now; i++) {
        check_product(types[i % 2], rows[i], i == 1 ? 4100 : i == 5 ? 400 : 77, 100, i % 2);
        check_gated(types[i % 2], rows[i], 39, 200, 1 - i % 2, product_limits(types[i % 2]));
    }
    device_end();
    cudasim_configure(NULL);
    CHECK(device_begin());
}

static void test_on_older_devices(void)
{
    static const struct cudasim_machine a100 = {1, 13000, 8, 0, 108, (size_t)1 << 30, 163 << 10},
                                        l4 = {1, 13000, 8, 9, 58, (size_t)1 << 30, 99 << 10},
                                        newer = {1, 13000, 8, 0, 1, (size_t)1 << 30, 227 << 10};

    check_older_device(&a100);
    check_older_device(&l4);
    check_older_device(&newer);
}
#endif

static void test_gemm_refuses(void)
{
    CHECK_INT(sb_cuda_gemm_mma(NULL, NULL, NULL, SB_BF16, NULL, 0, 5, 64, 0, NULL, stream),
              cudaSuccess);
    CHECK_INT(sb_cuda_gemm_mma(NULL, NULL, NULL, SB_F32, NULL, 1, 5, 64, 0, NULL, stream),
              cudaErrorInvalidValue);
    CHECK_INT(sb_cuda_gemm_mma_in(-1, NULL, NULL, NULL, SB_BF16, NULL, 1, 5, 64, 0, stream),
              cudaErrorInvalidValue);
    CHECK_INT(
        sb_cuda_gemm_mma_in(SB_GEMM_SHAPES, NULL, NULL, NULL, SB_BF16, NULL, 1, 5, 64, 0, stream),
        cudaErrorInvalidValue);
}

TEST_BEGIN
if (device_begin()) {
    RUN(test_gemm_shapes);
    RUN(test_gemm_wide_blocks);
    RUN(test_gemm_every_m);
    RUN(test_gemm_every_shape);
    RUN(test_wgmma_every_shape);
    RUN(test_gated_wgmma);
    RUN(test_wgmma_refuses);
    RUN(test_gemm_bad_row);
    RUN(test_gated);
#ifdef CUDASIM_CUDA_RUNTIME_API_H
    RUN(test_on_older_devices);
#endif
    RUN(test_gemm_refuses);
    device_end();
}
TEST_END
