/*
 * Products and embeddings with quantised weights: the kernels over tiles (quant_tile.h) against the
 * CPU's, against what the class says, and against themselves.
 *
 *   f32 class      the bits of the CPU's class F32, for any blocks of a file
 *   16-bit class   on the simulator, the bits of a plain loop that follows the class; anywhere,
 *                  near the sum in double precision. A row has the bits that it has alone,
 *                  whatever m, its place and the other rows are.
 *
 * Tiles are packed as the backend packs them, in uneven pieces. As in test_cuda_kernels.c, device
 * allocations have exactly their size, and outputs are fresh.
 */
#include "backend/cuda/quant_pack.h"
#include "cuda/against_cpu.h"
#include "kernels/cuda/quant_tile.h"
#include "quant.h"
#include "support/random_blocks.h"

static uint64_t state = 5;

/* A weight [n_out, n_in] of random blocks, and it packed on the device. */
struct weight {
    enum sb_dtype type;
    int32_t n_out, n_in;
    char *rows;
    void *dev;
};

static struct weight weight_make(enum sb_dtype type, int32_t n_out, int32_t n_in,
                                 enum random_kind kind)
{
    struct weight w = {.type = type, .n_out = n_out, .n_in = n_in};
    const size_t row = sb_dtype_row_bytes(type, (size_t)n_in);
    const size_t bytes = sb_tile_weight_bytes(type, n_out, n_in);
    char *tiles = cpu_memory(bytes);

    w.rows = cpu_memory((size_t)n_out * row);
    for (int32_t r = 0; r < n_out; r++)
        random_row(w.rows + (size_t)r * row, type, (size_t)n_in, kind, 0.5f, &state);
    memset(tiles, 0, bytes);
    for (int32_t r = 0, n; r < n_out; r += n) { /* pieces of 1, 4, 7 .. rows, the last ones first */
        n = 1 + r % 11 * 3 < n_out - r ? 1 + r % 11 * 3 : n_out - r;
        sb_quant_pack(tiles, type, n_in, n_out - r - n, n, w.rows + (size_t)(n_out - r - n) * row);
    }
    w.dev = given(tiles, bytes);
    free(tiles);
    return w;
}

static void weight_free(struct weight *w)
{
    free(w->rows);
    free_all();
}

/* ------------------------------------------------------------------ f32 class */

/* Calls the kernel for x [m, n_in], with rows of y `gap` floats longer than they need be. */
static void check_reference(enum sb_dtype type, int32_t n_out, int32_t n_in, int32_t m, int32_t gap,
                            enum random_kind kind)
{
    struct weight w = weight_make(type, n_out, n_in, kind);
    float *x = cpu_floats((int64_t)m * n_in), *bias = cpu_floats(n_out);
    float *expected = cpu_memory((size_t)m * (size_t)n_out * 4);
    const int64_t ldy = n_out + gap;
    float *got = cpu_memory((size_t)(m * ldy) * 4), *y = given_floats(got, m * ldy);
    struct sb_weight on_cpu;

    CHECK(cpu_weight(&on_cpu, way, w.rows, n_out, n_in, type));
    cpu->gemm(way->exec, expected, x, &on_cpu, gap ? bias : NULL, m);
    CHECK_CUDA(sb_cuda_gemm_quant_reference(y, ldy, given_floats(x, (int64_t)m * n_in), w.dev, type,
                                            gap ? given_floats(bias, n_out) : NULL, m, n_out, n_in,
                                            stream));
    CHECK_CUDA(fetch(got, y, (size_t)(m * ldy) * 4));
    for (int32_t r = 0; r < m && !sbtest_failed_now; r++)
        CHECK_SAME(got + r * ldy, expected + (int64_t)r * n_out, n_out, "%s, %d x %d, row %d of %d",
                   sb_dtype_name(type), (int)n_out, (int)n_in, (int)r, (int)m);
    cpu->weight_free(&on_cpu, way->device, &cpu_mem);
    free(x);
    free(bias);
    free(expected);
    free(got);
    weight_free(&w);
}

static void test_the_f32_class_has_the_cpus_bits(void)
{
    static const int32_t outs[] = {1, 17, 70}, ins[] = {32, 100, 320}, rows[] = {1, 3, 21};

    for (int type = SB_Q8_0; SB_QUANT_TILE_HAS(type); type++)
        for (int i = 0; i < 3 && !sbtest_failed_now; i++) {
            const int32_t n_in = sb_quant_of((enum sb_dtype)type)->block == 256 ? 256 * (1 + i)
                                                                                : ins[i];
            check_reference((enum sb_dtype)type, outs[i], n_in, rows[i], i,
                            i == 0 ? RANDOM_CENTRED : RANDOM_ANY);
            if (!sbtest_failed_now)
                check_reference((enum sb_dtype)type, outs[i], n_in, 2, 0, RANDOM_WILD);
        }
}

/* ------------------------------------------------------------------ embeddings */

static void check_embed(enum sb_dtype type, int32_t n, float scale, enum random_kind kind)
{
    enum { ROWS = 37, M = 9 };
    struct weight w = weight_make(type, ROWS, n, kind);
    const int32_t ids[M] = {0, 36, -1, 15, ROWS, 16, 7, 8, 31};
    const int32_t id_at[M] = {8, 7, 6, 5, 4, 3, 2, 1, 0};
    const struct sb_pass host = {.n_tokens = M, .ids = ids, .id_at = id_at};
    const struct sb_pass pass = {
        .n_tokens = M, .ids = given_ints(ids, M), .id_at = given_ints(id_at, M)};
    float *expected = cpu_memory(M * (size_t)n * 4), *got = cpu_memory(M * (size_t)n * 4);
    float *x = fresh(M * (size_t)n * 4);
    struct sb_weight on_cpu;

    CHECK(cpu_weight(&on_cpu, way, w.rows, ROWS, n, type));
    cpu->embed(way->exec, expected, &on_cpu, scale, &host);
    CHECK_CUDA(sb_cuda_embed_quant(x, w.dev, type, ROWS, n, scale, &pass, stream));
    CHECK_CUDA(fetch(got, x, M * (size_t)n * 4));
    CHECK_SAME(got, expected, M * n, "%s, %d columns", sb_dtype_name(type), (int)n);
    cpu->weight_free(&on_cpu, way->device, &cpu_mem);
    free(expected);
    free(got);
    weight_free(&w);
}

static void test_embeddings_have_the_cpus_bits(void)
{
    for (int type = SB_Q8_0; SB_QUANT_TILE_HAS(type) && !sbtest_failed_now; type++) {
        const int32_t is_k = sb_quant_of((enum sb_dtype)type)->block == 256;
        check_embed((enum sb_dtype)type, is_k ? 256 : 75, 1.0f, RANDOM_ANY);
        if (!sbtest_failed_now)
            check_embed((enum sb_dtype)type, is_k ? 768 : 320, 1.0f, RANDOM_WILD);
        if (!sbtest_failed_now)
            check_embed((enum sb_dtype)type, is_k ? 256 : 75, 50.59644f, RANDOM_ANY);
    }
}

/* ------------------------------------------------------------------ 16-bit class */

/* A product in the 16-bit class: elements of x, [rows, ld] with zeros behind n_in, and what they
 * are as floats. */
struct product {
    struct weight w;
    enum sb_dtype type;
    int32_t rows;
    int64_t ld;
    uint16_t *x;
    float *values, *bias;
    void *dev_bias;
};

static struct product product_make(enum sb_dtype type, enum sb_dtype quant, int32_t rows,
                                   int32_t n_out, int32_t n_in, enum random_kind kind)
{
    struct product p = {.type = type, .rows = rows, .ld = sb_cuda_ld(type, n_in)};
    float *values = cpu_floats((int64_t)rows * n_in);

    p.w = weight_make(quant, n_out, n_in, kind);
    p.x = cpu_memory((size_t)(rows * p.ld) * 2);
    p.values = cpu_memory((size_t)(rows * p.ld) * 4);
    p.bias = cpu_floats(n_out);
    p.dev_bias = given_floats(p.bias, n_out);
    for (int64_t i = 0; i < rows * p.ld; i++) {
        put(p.x, i, i % p.ld < n_in ? values[i / p.ld * n_in + i % p.ld] : 0.0f, type, 0);
        p.values[i] = cpu_widen(p.x, i, type);
    }
    free(values);
    return p;
}

static void product_free(struct product *p)
{
    free(p->x);
    free(p->values);
    free(p->bias);
    weight_free(&p->w);
}

/* Computes y [m, n_out] for the rows index[0 .. m) of x. */
static cudaError_t multiply(float *y, const struct product *p, const int32_t *index, int32_t m)
{
    const size_t bytes = (size_t)m * (size_t)p->w.n_out * 4, row = (size_t)p->ld * 2;
    uint16_t *x = cpu_memory((size_t)m * row);
    const int mark = n_owned;

    for (int32_t r = 0; r < m; r++)
        memcpy(x + r * p->ld, p->x + index[r] * p->ld, row);
    void *dev_x = given(x, (size_t)m * row);
    float *dev_y = fresh(bytes);
    cudaError_t error = sb_cuda_gemm_quant(dev_y, p->w.n_out, dev_x, p->type, p->w.dev, p->w.type,
                                           p->dev_bias, m, p->w.n_out, p->w.n_in, stream);
    if (error == cudaSuccess)
        error = fetch(y, dev_y, bytes);
    free_to(mark);
    free(x);
    return error;
}

/* A block of 32 columns of a row of weights, as floats. */
struct block {
    float q[32], scale[2], min;
};

/* Takes apart the block that has column k of a row. What a row's last block lacks are zeros. */
static void block_read(struct block *out, const struct weight *w, int32_t row, int64_t k)
{
    const struct sb_quant *quant = sb_quant_of(w->type);
    const size_t row_bytes = sb_dtype_row_bytes(w->type, (size_t)w->n_in);
    const int64_t block = k / quant->block, at = k % quant->block;
    struct sb_quant_block b;
    float d, dmin;

    memset(out, 0, sizeof *out);
    if (k >= w->n_in)
        return;
    sb_quant_unpack(&b, w->type, w->rows + (size_t)row * row_bytes + block * quant->bytes);
    d = cpu_widen(&b.d, 0, quant->d);
    dmin = cpu_widen(&b.dmin, 0, quant->d);
    for (int i = 0; i < 32; i++)
        out->q[i] = b.q[at + i];
    for (int half = 0; half < 2; half++) {
        const int64_t group = (at + 16 * half) / quant->group;
        out->scale[half] = quant->has_scales ? d * (float)b.scales[group] : d;
    }
    out->min = quant->has_mins ? dmin * (float)b.mins[at / quant->group] : 0.0f;
}

#ifdef CUDASIM_CUDA_RUNTIME_API_H
#include "cudasim.h"

/* One mma of 16 of the columns of a block: those of lanes t = 0 .. 3 at first + stride * t .. + 3.
 */
static float one_mma(float sum, const float *x, const float *q, int first, int stride)
{
    float a[16], b[16];

    for (int i = 0; i < 16; i++) {
        const int k = first + stride * (i / 4) + i % 4;
        a[i] = q ? q[k] : 1.0f;
        b[i] = x[k];
    }
    return cudasim_tensor_sum(sum, a, b);
}

/* The class, for one output. */
static float by_the_class(const struct product *p, int32_t r, int32_t o)
{
    const int32_t columns = SB_QUANT_TILE_COLUMNS(p->w.type);
    const struct sb_quant *quant = sb_quant_of(p->w.type);
    float sum[8] = {0.0f};

    for (int64_t k = 0; k < p->ld; k += 32) {
        const float *x = p->values + r * p->ld + k;
        float *s = &sum[k / columns % 8];
        struct block b;
        block_read(&b, &p->w, o, k);
        if (quant->group == 16) {
            *s = fmaf(b.scale[0], one_mma(0.0f, x, b.q, 0, 4), *s);
            *s = fmaf(b.scale[1], one_mma(0.0f, x, b.q, 16, 4), *s);
        } else {
            *s = fmaf(b.scale[0], one_mma(one_mma(0.0f, x, b.q, 0, 8), x, b.q, 4, 8), *s);
        }
        if (quant->has_mins)
            *s = fmaf(-b.min, one_mma(one_mma(0.0f, x, NULL, 0, 8), x, NULL, 4, 8), *s);
    }
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7])) +
           p->bias[o];
}
#endif

/*
 * Checks an output against double precision. A block is summed with errors of at most 2^-22 of the
 * sum of its |x q| a step (test_cuda_mma.c), and that of x likewise; then there are fewer than one
 * rounded operation for each column.
 */
static void check_output(float y, const struct product *p, int32_t r, int32_t o)
{
    double sum = p->bias[o], size = fabs(sum);

    for (int64_t k = 0; k < p->ld; k += 32) {
        struct block b;
        block_read(&b, &p->w, o, k);
        for (int i = 0; i < 32; i++) {
            const double x = p->values[r * p->ld + k + i], q = (double)b.scale[i / 16] * b.q[i];
            sum += x * q - x * b.min;
            size += fabs(x * q) + fabs(x * b.min);
        }
    }
    if (!(fabs(y - sum) <= size * (double)(p->ld + 8) * 0x1p-22))
        FAIL("%s, row %d, output %d of %d x %d: %g, expected %g", sb_dtype_name(p->w.type), (int)r,
             (int)o, (int)p->w.n_out, (int)p->w.n_in, (double)y, sum);
#ifdef CUDASIM_CUDA_RUNTIME_API_H
    const float expected = by_the_class(p, r, o);
    if (y != expected)
        FAIL("%s, row %d, output %d of %d x %d: %a, by the class %a", sb_dtype_name(p->w.type),
             (int)r, (int)o, (int)p->w.n_out, (int)p->w.n_in, (double)y, (double)expected);
#endif
}

static void check_product(enum sb_dtype type, enum sb_dtype quant, int32_t m, int32_t n_out,
                          int32_t n_in)
{
    struct product p = product_make(type, quant, m, n_out, n_in, RANDOM_ANY);
    float *y = cpu_memory((size_t)m * (size_t)n_out * 4);
    int32_t index[64] = {0};

    for (int32_t r = 0; r < m; r++)
        index[r] = r;
    CHECK_CUDA(multiply(y, &p, index, m));
    for (int32_t r = 0; r < m && !sbtest_failed_now; r++)
        for (int32_t o = 0; o < n_out && !sbtest_failed_now; o++)
            check_output(y[(int64_t)r * n_out + o], &p, r, o);
    free(y);
    product_free(&p);
}

/* Rows shorter than the eight warps' tiles, and longer than two rounds of them. */
static void test_the_16_bit_class(void)
{
    static const int32_t ins[] = {32, 100, 600, 1216}, outs[] = {1, 16, 37, 5},
                         rows[] = {1, 9, 35, 8};

    for (int quant = SB_Q8_0; SB_QUANT_TILE_HAS(quant); quant++)
        for (int i = 0; i < 4 && !sbtest_failed_now; i++) {
            static const int32_t tiles[] = {1, 2, 9, 18};
            const int is_k = sb_quant_of((enum sb_dtype)quant)->block == 256;
            check_product(i % 2 ? SB_BF16 : SB_F16, (enum sb_dtype)quant, rows[i], outs[i],
                          is_k ? 256 * tiles[i] : ins[i]);
        }
    check_product(SB_BF16, SB_Q6_K, 3, 7, 256);
    check_product(SB_F16, SB_Q4_K, 3, 7, 256);
}

/* Each row alone has the bits that it has in a product of m rows, at every place. Of other rows one
 * is full of NaN and infinities. */
static void check_every_m(enum sb_dtype type, enum sb_dtype quant, int32_t n_in)
{
    enum { BASE = 9, OUT = 21, MOST = 69, BAD = BASE - 1 };
    struct product p = product_make(type, quant, BASE, OUT, n_in, RANDOM_ANY);
    float alone[BASE][OUT], y[MOST][OUT];
    int32_t index[MOST] = {0};

    for (int32_t k = 0; k < n_in; k++)
        put(p.x, BAD * p.ld + k, k % 3 ? INFINITY : NAN, type, 0);
    for (int32_t r = 0; r < BASE; r++)
        CHECK_CUDA(multiply(alone[r], &p, &r, 1));
    for (int32_t m = 1; m <= MOST && !sbtest_failed_now; m += m < 35 ? 1 : 17) {
        for (int32_t r = 0; r < m; r++)
            index[r] = (int32_t)(cpu_random() % BASE);
        CHECK_CUDA(multiply(y[0], &p, index, m));
        for (int32_t r = 0; r < m; r++)
            if (index[r] != BAD && memcmp(y[r], alone[index[r]], sizeof y[r]) != 0)
                FAIL("%s: row %d of %d differs from the row alone", sb_dtype_name(quant), (int)r,
                     (int)m);
    }
    product_free(&p);
}

static void test_rows_have_the_bits_they_have_alone(void)
{
    for (int quant = SB_Q8_0; SB_QUANT_TILE_HAS(quant) && !sbtest_failed_now; quant++)
        check_every_m(quant % 2 ? SB_BF16 : SB_F16, (enum sb_dtype)quant,
                      sb_quant_of((enum sb_dtype)quant)->block == 256 ? 256 : 160);
}

static void test_what_is_refused(void)
{
    CHECK_INT(sb_cuda_gemm_quant(NULL, 5, NULL, SB_BF16, NULL, SB_Q8_0, NULL, 0, 5, 64, stream),
              cudaSuccess);
    CHECK_INT(sb_cuda_gemm_quant(NULL, 5, NULL, SB_F32, NULL, SB_Q8_0, NULL, 1, 5, 64, stream),
              cudaErrorInvalidValue);
    CHECK_INT(sb_cuda_gemm_quant(NULL, 5, NULL, SB_BF16, NULL, SB_F16, NULL, 1, 5, 64, stream),
              cudaErrorInvalidValue);
    CHECK_INT(sb_cuda_gemm_quant_reference(NULL, 5, NULL, NULL, SB_Q4_K, NULL, 0, 5, 256, stream),
              cudaSuccess);
}

TEST_BEGIN
const int has_device = both_begin();
if (has_device) {
    RUN(test_the_f32_class_has_the_cpus_bits);
    RUN(test_embeddings_have_the_cpus_bits);
    RUN(test_the_16_bit_class);
    RUN(test_rows_have_the_bits_they_have_alone);
    RUN(test_what_is_refused);
}
both_end(has_device);
TEST_END
