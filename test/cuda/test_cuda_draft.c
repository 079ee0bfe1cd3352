/*
 * A draft's own kernels. Their bits are no class's, so they are compared with double precision,
 * within what their roundings allow. They are compared with themselves bit for bit, too: a row's
 * result may depend on the row and the weights alone, so that a draft proposes the same in every
 * run and every batch.
 */
#include "cuda/kernel_test.h"

static const enum sb_dtype types[] = {SB_BF16, SB_F16};

struct product {
    enum sb_dtype type;
    int32_t m, n_out, n_in;
    int64_t ld;
    float *x, *w, *bias; /* rounded to the type */
    uint16_t *x_bits;
    void *dev_w, *dev_bias, *scratch;
};

/* Random values [rows, n], rounded to the type, and the same as rows of ld elements in *bits. */
static float *elements(uint16_t **bits, int64_t rows, int32_t n, enum sb_dtype type)
{
    const int64_t ld = sb_cuda_ld(type, n);
    float *values = cpu_floats(rows * n);

    *bits = cpu_memory((size_t)(rows * ld) * sizeof **bits);
    memset(*bits, 0, (size_t)(rows * ld) * sizeof **bits);
    for (int64_t i = 0; i < rows * n; i++) {
        uint16_t *at = *bits + i / n * ld + i % n;
        *at = narrow_bits(values[i], type, 0);
        values[i] = cpu_widen(at, 0, type);
    }
    return values;
}

/* The dense rows w as a weight in tiles. */
static void *tiled(const uint16_t *w, const struct product *p)
{
    const size_t bytes = (size_t)sb_cuda_weight_size(p->type, p->n_out, p->n_in) * sizeof *w;
    void *rows = given(w, (size_t)(p->n_out * p->ld) * sizeof *w), *dev = fresh(bytes);

    if (cudaMemset(dev, 0, bytes) != cudaSuccess ||
        sb_cuda_tile(dev, rows, 0, p->n_out, p->ld, 0, stream) != cudaSuccess ||
        cudaStreamSynchronize(stream) != cudaSuccess) {
        printf("     no tiles: %s\n", cudaGetErrorString(cudaGetLastError()));
        exit(2);
    }
    return dev;
}

static struct product product_make(enum sb_dtype type, int32_t m, int32_t n_out, int32_t n_in)
{
    struct product p = {.type = type, .m = m, .n_out = n_out, .n_in = n_in};
    uint16_t *w;

    p.ld = sb_cuda_ld(type, n_in);
    p.x = elements(&p.x_bits, m, n_in, type);
    p.w = elements(&w, n_out, n_in, type);
    p.bias = cpu_floats(n_out);
    p.dev_w = tiled(w, &p);
    p.dev_bias = given_floats(p.bias, n_out);
    p.scratch = fresh(sb_cuda_draft_gemm_scratch());
    (void)cudaMemset(p.scratch, 0, sb_cuda_draft_gemm_scratch());
    free(w);
    return p;
}

static void product_free(struct product *p)
{
    free(p->x);
    free(p->w);
    free(p->bias);
    free(p->x_bits);
    free_all();
}

/* Computes y [m, n_out] for rows first .. first + m - 1 of x. */
static cudaError_t multiply(float *y, const struct product *p, int32_t first, int32_t m,
                            int has_bias)
{
    const size_t bytes = (size_t)m * (size_t)p->n_out * sizeof *y;
    const int mark = n_owned;
    void *x = given(p->x_bits + first * p->ld, (size_t)(m * p->ld) * sizeof *p->x_bits);
    float *dev = fresh(bytes);
    cudaError_t error = sb_cuda_draft_gemm(dev, x, p->dev_w, p->type, has_bias ? p->dev_bias : NULL,
                                           m, p->n_out, p->n_in, p->scratch, stream);

    if (error == cudaSuccess)
        error = fetch(y, dev, bytes);
    free_to(mark);
    return error;
}

/* Each rounding or truncation is at most 2^-22 of the largest magnitude that a sum can have had. */
static void check_near(const float *y, const struct product *p, int has_bias)
{
    for (int64_t i = 0; i < (int64_t)p->m * p->n_out; i++) {
        const float *x = p->x + i / p->n_out * p->n_in, *w = p->w + i % p->n_out * p->n_in;
        double sum = has_bias ? p->bias[i % p->n_out] : 0.0, size = fabs(sum);
        for (int32_t k = 0; k < p->n_in; k++) {
            sum += (double)x[k] * w[k];
            size += fabs((double)x[k] * w[k]);
        }
        if (!(fabs(y[i] - sum) <= size * (p->n_in + 32) * 0x1p-22))
            FAIL("row %d, output %d of %d x %d: %g, expected %g", (int)(i / p->n_out),
                 (int)(i % p->n_out), (int)p->n_out, (int)p->n_in, (double)y[i], sum);
    }
}

static void check_product(enum sb_dtype type, int32_t m, int32_t n_out, int32_t n_in, int has_bias)
{
    struct product p = product_make(type, m, n_out, n_in);
    const size_t row = (size_t)n_out * sizeof(float);
    float *all = cpu_memory((size_t)m * row), *part = cpu_memory((size_t)m * row);

    CHECK_CUDA(multiply(all, &p, 0, m, has_bias));
    check_near(all, &p, has_bias);
    /* the counters are zeros again, and the rows fall into other places of other tiles */
    for (int32_t first = 0, n; first < m; first += n) {
        n = m - first < 3 ? m - first : 3;
        CHECK_CUDA(multiply(part, &p, first, n, has_bias));
        if (memcmp(part, all + (int64_t)first * n_out, (size_t)n * row) != 0)
            FAIL("rows from %d on differ from the same rows elsewhere (%d x %d)", (int)first,
                 (int)n_out, (int)n_in);
    }
    free(all);
    free(part);
    product_free(&p);
}

static void test_split_products(void)
{
    static const struct {
        int32_t m, n_out, n_in;
    } sizes[] = {{1, 16, 64}, {8, 72, 136},   {4, 72, 72},   {8, 200, 1000}, {5, 48, 3072},
                 {2, 1, 1},   {7, 1024, 640}, {8, 33, 2048}, {3, 4224, 130}, {6, 17, 4096}};

    for (int i = 0; i < COUNT(sizes); i++)
        for (int t = 0; t < COUNT(types); t++)
            check_product(types[t], sizes[i].m, sizes[i].n_out, sizes[i].n_in, i % 2);
}

/* A row with NaN spoils its own results only. */
static void test_split_product_of_a_bad_row(void)
{
    struct product p = product_make(SB_BF16, 8, 40, 1500);
    float *good = cpu_memory(8 * 40 * sizeof *good), *bad = cpu_memory(8 * 40 * sizeof *bad);

    CHECK_CUDA(multiply(good, &p, 0, 8, 1));
    p.x_bits[6 * p.ld + 700] = 0x7fc0;
    CHECK_CUDA(multiply(bad, &p, 0, 8, 1));
    for (int i = 0; i < 8 * 40; i++)
        if (i / 40 == 6 ? !isnan(bad[i]) : memcmp(good + i, bad + i, sizeof *bad) != 0)
            FAIL("row %d, output %d: %g beside a bad row, %g without", i / 40, i % 40,
                 (double)bad[i], (double)good[i]);
    free(good);
    free(bad);
    product_free(&p);
}

static void test_split_products_refuse(void)
{
    float *y = fresh(64);

    CHECK_INT(sb_cuda_draft_gemm(y, y, y, SB_F32, NULL, 1, 1, 1, y, stream), cudaErrorInvalidValue);
    CHECK_INT(sb_cuda_draft_gemm(y, y, y, SB_BF16, NULL, 9, 1, 1, y, stream),
              cudaErrorInvalidValue);
    CHECK_INT(sb_cuda_draft_gemm(y, y, y, SB_BF16, NULL, 0, 1, 1, y, stream), cudaSuccess);
    free_all();
}

TEST_BEGIN
if (device_begin()) {
    RUN(test_split_products);
    RUN(test_split_product_of_a_bad_row);
    RUN(test_split_products_refuse);
    device_end();
}
TEST_END
