/*
 * Products of the 16-bit class: y [m, n_out] f32 = x [m, n_in] W^T, one numerics class for every m.
 *
 * The class is the own kernel's (sb_cuda_gemm_mma): one f32 accumulator an output, steps of 16 along k in
 * ascending order. It reads weights at memory speed for few rows and is bound by its arithmetic for many.
 * cuBLASLt is faster there, and its un-split kernels add in the same order, so far as is known
 * (docs/cuda.md): a claim that this file does not believe but tests. Where the bits are equal cuBLASLt
 * computes products of LT_FROM rows and more; where they are not, the own kernel does. Either way the tokens
 * are the same, and so is the class in the fingerprint.
 *
 *   at the first weight    a probe: which cuBLASLt family (algorithm id, stages) un-split products take
 *   at pool creation       for each shape of weight, each m up to the pool's largest: cuBLASLt's own choice
 *                          among algorithms of that family alone, run on the real weight, rows compared with
 *                          the own kernel's
 *   at run time            the planned algorithm, or the own kernel where there is none
 *
 * Rows beyond LT_ROWS are computed by pieces, so plans are bounded; a product's rows do not depend on each
 * other, so pieces change no bits. Split-k, stream-k and gemv families (they depend on m) never pass the
 * filter, and no workspace is given, so they could not run.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "cuda/cublaslt_api.h"
#include "cuda/cuda.h"
#include "status.h"

enum {
    LT_FROM = 65,        /* rows; below, the own kernel is at the memory limit anyway */
    LT_ROWS = 512,       /* of one call: well beyond where weights are read once for all of them */
    LT_CANDIDATES = 64,  /* of a heuristic */
    LT_SHAPES = 16,      /* of a model: it has five */
    PROBE_SIZE = 1024, PROBE_ROWS = 256
};
#define TEST_BYTES ((size_t)256 << 20) /* of a result in a test: bounds the rows of a call for wide weights */

struct family {
    int32_t id;
    uint32_t stages, custom;
};

struct plan {
    cublasLtMatmulAlgo_t algo;
    int is_usable;
};

struct shape {
    int32_t n_out, n_in;
    const void *data; /* a weight of this shape */
    int32_t max_rows; /* of a call */
    atomic_int tested; /* plans up to this many rows are there; grows while other pools run */
    struct plan *plans; /* [LT_ROWS + 1], or NULL before the first test */
};

struct sb_gemm {
    struct sb_mem mem;
    enum sb_dtype type;
    struct sb_cublaslt api; /* empty where cuBLASLt is not there: then there is no handle either */
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t desc;
    int is_usable; /* there is a family */
    struct family family;
    struct shape shapes[LT_SHAPES];
    int n_shapes;
    char text[80];
};

/* -------------------------------------------------------------- cuBLASLt */

static cudaDataType_t lt_type(const struct sb_gemm *gemm)
{
    return gemm->type == SB_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* In cuBLASLt's columns: D [n_out, m] = A^T [n_out, ld] * B [ld, m], A the weight and B the inputs as they
 * lie. */
struct layouts {
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

static int make_layout(cublasLtMatrixLayoutOpaque_t *layout, const struct sb_gemm *gemm, cudaDataType_t type,
                       int64_t rows, int64_t cols, int64_t ld)
{
    return gemm->api.layout_init(layout, sizeof *layout, type, (uint64_t)rows, (uint64_t)cols, ld) ==
           CUBLAS_STATUS_SUCCESS;
}

static int make_layouts(struct layouts *l, const struct sb_gemm *gemm, const struct shape *shape, int32_t m)
{
    const int64_t ld = sb_cuda_ld(gemm->type, shape->n_in);

    return make_layout(&l->a, gemm, lt_type(gemm), ld, shape->n_out, ld) &&
           make_layout(&l->b, gemm, lt_type(gemm), ld, m, ld) &&
           make_layout(&l->d, gemm, CUDA_R_32F, shape->n_out, m, shape->n_out);
}

static int lt_run(const struct sb_gemm *gemm, float *y, const void *x, const void *w,
                  const struct shape *shape, int32_t m, const cublasLtMatmulAlgo_t *algo, cudaStream_t stream)
{
    const float one = 1.0f, zero = 0.0f;
    struct layouts l;

    return make_layouts(&l, gemm, shape, m) &&
           gemm->api.matmul(gemm->lt, gemm->desc, &one, w, &l.a, x, &l.b, &zero, y, &l.d, y, &l.d, algo, NULL,
                            0, stream) == CUBLAS_STATUS_SUCCESS;
}

static int get(const struct sb_gemm *gemm, const cublasLtMatmulAlgo_t *algo,
               cublasLtMatmulAlgoConfigAttributes_t attribute, void *value, size_t size)
{
    size_t written;

    return gemm->api.algo_get(algo, attribute, value, size, &written) == CUBLAS_STATUS_SUCCESS;
}

static int read_family(struct family *family, const struct sb_gemm *gemm, const cublasLtMatmulAlgo_t *algo)
{
    int32_t split = 0;
    uint32_t reduction = 1;

    *family = (struct family){0, 0, 0};
    return get(gemm, algo, CUBLASLT_ALGO_CONFIG_ID, &family->id, sizeof family->id) &&
           get(gemm, algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, &family->stages, sizeof family->stages) &&
           get(gemm, algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &family->custom, sizeof family->custom) &&
           get(gemm, algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split) &&
           get(gemm, algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction, sizeof reduction) &&
           (split == 0 || split == 1) && reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
}

/* Families that cuBLASLt takes for few rows, on ordinary cores and with other orders of addition. */
static int is_gemv(int32_t id)
{
    return id == 11 || id == 13 || id == 14 || id == 16 || id == 41 || id == 56;
}

static int set(const struct sb_gemm *gemm, cublasLtMatmulPreference_t preference,
               cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t size)
{
    return gemm->api.preference_set(preference, attribute, value, size) == CUBLAS_STATUS_SUCCESS;
}

static int set_preference(const struct sb_gemm *gemm, cublasLtMatmulPreference_t preference, int32_t n_out)
{
    const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE, in = 16, out = n_out % 4 == 0 ? 16 : 4;
    const size_t workspace = 0;

    return set(gemm, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace) &&
           set(gemm, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_reduction,
               sizeof no_reduction) &&
           set(gemm, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &in, sizeof in) &&
           set(gemm, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &in, sizeof in) &&
           set(gemm, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out) &&
           set(gemm, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out);
}

/* cuBLASLt's first choice among un-split matrix families; `only`, where not NULL: among algorithms of that
 * family. */
static int choose(cublasLtMatmulAlgo_t *algo, struct family *family, const struct sb_gemm *gemm,
                  const struct shape *shape, int32_t m, const struct family *only,
                  cublasLtMatmulHeuristicResult_t *found)
{
    cublasLtMatmulPreference_t preference = NULL;
    struct layouts l;
    int n = 0;

    if (gemm->api.preference_create(&preference) != CUBLAS_STATUS_SUCCESS)
        return 0;
    if (!set_preference(gemm, preference, shape->n_out) || !make_layouts(&l, gemm, shape, m) ||
        gemm->api.heuristic(gemm->lt, gemm->desc, &l.a, &l.b, &l.d, &l.d, preference, LT_CANDIDATES, found,
                            &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    (void)gemm->api.preference_destroy(preference);
    for (int i = 0; i < n; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS || found[i].workspaceSize > 0 ||
            !read_family(family, gemm, &found[i].algo) || is_gemv(family->id))
            continue;
        if (only &&
            (family->id != only->id || family->stages != only->stages || family->custom != only->custom))
            continue;
        *algo = found[i].algo;
        return 1;
    }
    return 0;
}

/* --------------------------------------------------------------- testing */

/* A test's memory, and what it compares on the host. */
struct bench {
    struct sb_gemm *gemm;
    struct sb_device *device;
    cublasLtMatmulHeuristicResult_t *found; /* [LT_CANDIDATES] */
    char *x;          /* dev [rows, ld] */
    float *own, *lt;  /* dev [rows, n_out] */
    char *host;       /* two rows of y, or a row of x */
    size_t row_bytes; /* of y */
};

static void close_bench(struct bench *bench)
{
    (void)cudaFree(bench->x);
    (void)cudaFree(bench->own);
    (void)cudaFree(bench->lt);
    sb_free(&bench->gemm->mem, bench->found);
    sb_free(&bench->gemm->mem, bench->host);
}

/* Inputs of all signs and some magnitudes, the same at every run. */
static int32_t fill_inputs(struct bench *bench, const struct shape *shape, int32_t rows)
{
    const size_t ld = (size_t)sb_cuda_ld(bench->gemm->type, shape->n_in);
    uint32_t state = 1;
    int32_t rc = SPECBATCH_OK;

    for (int32_t r = 0; r < rows; r++) {
        memset(bench->host, 0, ld * 2);
        for (int32_t k = 0; k < shape->n_in; k++) {
            float value;
            state = state * 1664525u + 1013904223u;
            value = ((float)(state >> 8 & 0xffffu) - 32768.0f) / (float)(1u << (12 + (state >> 28)));
            sb_convert(bench->host + 2 * k, bench->gemm->type, &value, SB_F32, 1);
        }
        SB_TRY(sb_cuda_upload(NULL, bench->x + (size_t)r * ld * 2, bench->host, ld * 2));
    }
done:
    return rc;
}

static int32_t open_bench(struct bench *bench, const struct shape *shape, int32_t rows)
{
    const struct sb_mem *mem = &bench->gemm->mem;
    const size_t x_row = (size_t)sb_cuda_ld(bench->gemm->type, shape->n_in) * 2;
    void *dev;
    int32_t rc = SPECBATCH_OK;

    bench->row_bytes = (size_t)shape->n_out * sizeof(float);
    SB_NEW(bench->found, sb_alloc(mem, LT_CANDIDATES, sizeof *bench->found), "a product's test");
    SB_NEW(bench->host, sb_alloc(mem, 2 * bench->row_bytes + x_row, 1), "a product's test");
    SB_TRY(sb_cuda_alloc(&dev, bench->device, mem, (size_t)rows * x_row));
    bench->x = dev;
    SB_TRY(sb_cuda_alloc(&dev, bench->device, mem, (size_t)rows * bench->row_bytes));
    bench->own = dev;
    SB_TRY(sb_cuda_alloc(&dev, bench->device, mem, (size_t)rows * bench->row_bytes));
    bench->lt = dev;
    SB_TRY(fill_inputs(bench, shape, rows));
done:
    return rc;
}

static cudaError_t own_product(const struct bench *bench, float *y, const struct shape *shape, int32_t first,
                               int32_t m)
{
    const size_t x_row = (size_t)sb_cuda_ld(bench->gemm->type, shape->n_in) * 2;

    return sb_cuda_gemm_mma(y, bench->x + (size_t)first * x_row, shape->data, bench->gemm->type, NULL, m,
                            shape->n_out, shape->n_in, bench->device->load);
}

/* Rows of two results on the device, compared by bits. */
static int32_t compare_rows(int *equal, struct bench *bench, const float *a, const float *b)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_download(NULL, bench->host, a, bench->row_bytes));
    SB_TRY(sb_cuda_download(NULL, bench->host + bench->row_bytes, b, bench->row_bytes));
    *equal = memcmp(bench->host, bench->host + bench->row_bytes, bench->row_bytes) == 0;
done:
    return rc;
}

/* Results of the own kernel for all rows, and that a row of them is what it is alone: the contract itself. */
static int32_t test_own(struct bench *bench, const struct shape *shape, int32_t rows)
{
    const int32_t some[] = {0, 1, 63, 64, rows - 1};
    struct sb_device *device = bench->device;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_status(device, own_product(bench, bench->own, shape, 0, rows), "a product", 0));
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        int equal = 0;
        if (some[i] >= rows)
            continue;
        SB_TRY(sb_cuda_status(device, own_product(bench, bench->lt, shape, some[i], 1), "a product", 0));
        SB_TRY(sb_cuda_status(device, cudaStreamSynchronize(device->load), "a product", 0));
        SB_TRY(compare_rows(&equal, bench, bench->own + (size_t)some[i] * (size_t)shape->n_out, bench->lt));
        if (!equal)
            SB_FAIL(SPECBATCH_E_DEVICE,
                    "CUDA: row %d of a product [%d, %d] differs between %d rows and 1: this device "
                    "does not keep the contract",
                    some[i], shape->n_out, shape->n_in, rows);
    }
done:
    return rc;
}

/* Whether cuBLASLt's product of m rows has the own kernel's bits: first, middle and last row. */
static int32_t test_plan(struct bench *bench, const struct shape *shape, struct plan *plan, int32_t m)
{
    const int32_t some[] = {0, m / 2, m - 1};
    int equal;
    int32_t rc = SPECBATCH_OK;

    equal = lt_run(bench->gemm, bench->lt, bench->x, shape->data, shape, m, &plan->algo, bench->device->load);
    SB_TRY(sb_cuda_status(bench->device, cudaStreamSynchronize(bench->device->load), "cuBLASLt", 0));
    for (size_t i = 0; equal && i < sizeof some / sizeof some[0]; i++) {
        const size_t at = (size_t)some[i] * (size_t)shape->n_out;
        SB_TRY(compare_rows(&equal, bench, bench->own + at, bench->lt + at));
    }
    plan->is_usable = equal;
done:
    return rc;
}

/* Plans of a shape for every number of rows up to `rows`. */
static int32_t plan_shape(struct sb_gemm *gemm, struct sb_device *device, struct shape *shape, int32_t rows)
{
    const int32_t first = atomic_load(&shape->tested) + 1;
    struct bench bench = {.gemm = gemm, .device = device};
    int32_t refused = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(open_bench(&bench, shape, rows));
    SB_TRY(test_own(&bench, shape, rows));
    for (int32_t m = first > LT_FROM ? first : LT_FROM; gemm->is_usable && m <= rows; m++) {
        struct plan *plan = &shape->plans[m];
        struct family family;
        if (choose(&plan->algo, &family, gemm, shape, m, &gemm->family, bench.found))
            SB_TRY(test_plan(&bench, shape, plan, m));
        refused += !plan->is_usable;
    }
    if (refused > 0)
        sb_log(&device->log, SPECBATCH_LOG_WARN,
               "CUDA: for %d of %d row counts of a product [%d, %d] cuBLASLt has no "
               "algorithm of the same bits; the own kernel computes them",
               refused, rows - (first > LT_FROM ? first : LT_FROM) + 1, shape->n_out, shape->n_in);
    atomic_store(&shape->tested, rows);
done:
    close_bench(&bench);
    return rc;
}

int32_t sb_gemm_prepare(struct sb_gemm *gemm, struct sb_device *device, int32_t max_m)
{
    int32_t rc = SPECBATCH_OK;

    for (int i = 0; i < gemm->n_shapes; i++) {
        struct shape *shape = &gemm->shapes[i];
        const int32_t rows = max_m < shape->max_rows ? max_m : shape->max_rows;
        if (!shape->data || rows <= atomic_load(&shape->tested))
            continue;
        if (!shape->plans)
            SB_NEW(shape->plans, sb_alloc(&gemm->mem, LT_ROWS + 1, sizeof *shape->plans),
                   "plans of products");
        SB_TRY(plan_shape(gemm, device, shape, rows));
    }
done:
    return rc;
}

/* ---------------------------------------------------------------- object */

static void probe(struct sb_gemm *gemm, cublasLtMatmulHeuristicResult_t *found)
{
    const struct shape shape = {.n_out = PROBE_SIZE, .n_in = PROBE_SIZE};
    cublasLtMatmulAlgo_t algo;

    gemm->is_usable = choose(&algo, &gemm->family, gemm, &shape, PROBE_ROWS, NULL, found);
    if (gemm->is_usable)
        snprintf(gemm->text, sizeof gemm->text, "cublasLt %zu (%d,%u) where equal", gemm->api.version(),
                 gemm->family.id, gemm->family.stages);
}

static int open_cublaslt(struct sb_gemm *gemm, char *why, size_t why_size)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;

    if (!sb_cublaslt_load(&gemm->api, why, why_size))
        return 0;
    snprintf(why, why_size, "cuBLASLt %zu does not start or has no un-split algorithm", gemm->api.version());
    return gemm->api.create(&gemm->lt) == CUBLAS_STATUS_SUCCESS &&
           gemm->api.desc_create(&gemm->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           gemm->api.desc_set(gemm->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) ==
               CUBLAS_STATUS_SUCCESS;
}

int32_t sb_gemm_create(struct sb_gemm **out, struct sb_device *device)
{
    cublasLtMatmulHeuristicResult_t *found = NULL;
    struct sb_gemm *gemm = NULL;
    char why[120] = "";
    int32_t rc = SPECBATCH_OK;

    SB_NEW(gemm, sb_alloc(&device->mem, 1, sizeof *gemm), "products");
    gemm->mem = device->mem;
    gemm->type = device->type;
    snprintf(gemm->text, sizeof gemm->text, "no cublasLt");
    SB_NEW(found, sb_alloc(&device->mem, LT_CANDIDATES, sizeof *found), "products");
    if (open_cublaslt(gemm, why, sizeof why))
        probe(gemm, found);
    if (!gemm->is_usable)
        sb_log(&device->log, SPECBATCH_LOG_INFO,
               "CUDA: the own kernel computes all products, with the same bits: %s", why);
    *out = gemm;
    gemm = NULL;
done:
    sb_free(&device->mem, found);
    sb_gemm_free(gemm, device);
    return rc;
}

void sb_gemm_free(struct sb_gemm *gemm, struct sb_device *device)
{
    if (!gemm)
        return;
    for (int i = 0; i < gemm->n_shapes; i++)
        sb_free(&device->mem, gemm->shapes[i].plans);
    if (gemm->desc)
        (void)gemm->api.desc_destroy(gemm->desc);
    if (gemm->lt)
        (void)gemm->api.destroy(gemm->lt);
    sb_free(&device->mem, gemm);
}

const char *sb_gemm_class(const struct sb_gemm *gemm)
{
    return gemm->text;
}

static const struct shape *find(const struct sb_gemm *gemm, int32_t n_out, int32_t n_in)
{
    for (int i = 0; i < gemm->n_shapes; i++)
        if (gemm->shapes[i].n_out == n_out && gemm->shapes[i].n_in == n_in)
            return &gemm->shapes[i];
    return NULL;
}

void sb_gemm_add_weight(struct sb_gemm *gemm, const void *data, int32_t n_out, int32_t n_in)
{
    const struct shape *known = find(gemm, n_out, n_in);
    const size_t fits = TEST_BYTES / ((size_t)n_out * sizeof(float) + 1);

    if (known) /* any weight of the shape will do */
        gemm->shapes[known - gemm->shapes].data = data;
    else if (data && gemm->n_shapes < LT_SHAPES) {
        struct shape *shape = &gemm->shapes[gemm->n_shapes++];
        shape->n_out = n_out;
        shape->n_in = n_in;
        shape->data = data;
        shape->max_rows = fits < LT_ROWS ? (int32_t)fits : LT_ROWS;
    }
}

cudaError_t sb_gemm_run(const struct sb_gemm *gemm, float *y, const void *x, const struct sb_weight *weight,
                        const float *bias, int32_t m, cudaStream_t stream)
{
    const struct shape *shape = m >= LT_FROM ? find(gemm, weight->n_out, weight->n_in) : NULL;
    const size_t x_row = (size_t)sb_cuda_ld(gemm->type, weight->n_in) * 2;
    cudaError_t error = cudaSuccess;

    for (int32_t first = 0, n; error == cudaSuccess && first < m; first += n) {
        const char *rows = (const char *)x + (size_t)first * x_row;
        float *to = y + (int64_t)first * weight->n_out;
        n = shape && m - first > shape->max_rows ? shape->max_rows : m - first;
        if (!shape || n > atomic_load(&shape->tested) || !shape->plans[n].is_usable)
            error = sb_cuda_gemm_mma(to, rows, weight->data, gemm->type, bias, n, weight->n_out, weight->n_in,
                                     stream);
        else if (!lt_run(gemm, to, rows, weight->data, shape, n, &shape->plans[n].algo, stream))
            error = cudaErrorLaunchFailure;
        else if (bias)
            error = sb_cuda_add_bias(to, bias, n, weight->n_out, stream);
    }
    return error;
}
