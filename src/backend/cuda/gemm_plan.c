/*
 * Which products cuBLASLt may make is found by comparing bits, and then by comparing time.
 *
 * For each number of rows, the suggestions of cuBLASLt's heuristic are tried in their order on the
 * real weight. The first whose result has the own kernel's bits in every row and column is timed
 * against the own kernel, and is used if it is faster. So time chooses who computes, never what.
 * Suggestions with split-k, with a reduction, with workspace (stream-k) or of a gemv family are not
 * tried, because they are known to add in another order.
 *
 * An algorithm is tested for each number of rows, whatever its name is and whatever it did for
 * another number: libraries choose tiles by the number of rows, and it may be a tile in the middle
 * that adds differently. But an algorithm whose bits have once been different is not tried again
 * for this shape, which bounds the number of tests where nothing is equal.
 *
 * Rejected: to look for one algorithm id and number of stages that serve all rows. Every number of
 * rows has to be tested anyway, and there may be no such pair.
 */
#include "backend/cuda/gemm_plan.h"

#include <math.h>
#include <string.h>

#include "../kernels/cuda/cuda_fault.h"
#include "../kernels/cuda/launch.h"
#include "backend/cuda/memory.h"
#include "status.h"

enum {
    CANDIDATES = 64, /* suggestions that are asked for */
    REFUSED = 64,    /* algorithms refused for a shape; after as many, nothing more is tried */
    TIMED = 2,       /* runs of which the fastest counts */
    TILE = 64        /* numbers of rows within one such tile take about the same time */
};

/* The memory of the tests of one shape, and what they have found so far. */
struct selftest {
    const struct sb_gemm_library *library;
    const struct sb_gpu *gpu;
    const struct sb_shape *shape;
    struct sb_plan_file *file;              /* or NULL */
    cublasLtMatmulHeuristicResult_t *found; /* [CANDIDATES] */
    char *x;                                /* dev [rows, ld] */
    float *own, *other;                     /* dev [rows, n_out] */
    int32_t *different;                     /* dev */
    void *scratch;                          /* dev: a piece of the weight */
    char *host;                             /* a row of x */
    cudaEvent_t begun, ended;
    int32_t timed_rows;        /* of the last timing: as in struct sb_verdict, */
    float own_ms;              /* the own kernel's time, */
    struct sb_algo_name timed; /* the algorithm, */
    int timed_faster;          /* and whether it was faster */
    struct sb_algo_name refused[REFUSED];
    int n_refused;
};

/* ------------------------------------------------------------ suggestions */

static int get(const struct sb_gemm_library *library, const cublasLtMatmulAlgo_t *algo,
               cublasLtMatmulAlgoConfigAttributes_t attribute, void *value, size_t size)
{
    size_t written;

    return library->api.algo_get(algo, attribute, value, size, &written) == CUBLAS_STATUS_SUCCESS;
}

static int is_un_split(const struct sb_gemm_library *library, const cublasLtMatmulAlgo_t *algo)
{
    int32_t split = 0;
    uint32_t reduction = 1;

    return get(library, algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split) &&
           get(library, algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
               sizeof reduction) &&
           (split == 0 || split == 1) && reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static uint32_t attribute(const struct sb_gemm_library *library, const cublasLtMatmulAlgo_t *algo,
                          cublasLtMatmulAlgoConfigAttributes_t which, size_t size)
{
    uint32_t word = 0;
    uint16_t half = 0;

    if (size == sizeof half)
        return get(library, algo, which, &half, size) ? half : 0;
    return get(library, algo, which, &word, size) ? word : 0;
}

/* Attributes that this version of cuBLASLt does not have are 0. */
static struct sb_algo_name name_of(const struct sb_gemm_library *library,
                                   const cublasLtMatmulAlgo_t *algo)
{
    return (struct sb_algo_name){
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_ID, 4),
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4),
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2)};
}

static int is_refused(const struct selftest *test, const struct sb_algo_name *name)
{
    for (int i = 0; i < test->n_refused; i++)
        if (memcmp(&test->refused[i], name, sizeof *name) == 0)
            return 1;
    return test->n_refused == REFUSED;
}

/* Families of kernels that cuBLASLt takes for few rows. They run on ordinary cores and add in other
 * orders. */
static int is_gemv(uint32_t id)
{
    return id == 11 || id == 13 || id == 14 || id == 16 || id == 41 || id == 56;
}

static int set(const struct sb_gemm_library *library, cublasLtMatmulPreference_t preference,
               cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t size)
{
    return library->api.preference_set(preference, attribute, value, size) == CUBLAS_STATUS_SUCCESS;
}

static int set_preference(const struct sb_gemm_library *library,
                          cublasLtMatmulPreference_t preference, int32_t n_out)
{
    const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE, in = 16,
                   out = n_out % 4 == 0 ? 16 : 4;
    const size_t workspace = 0;

    return set(library, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
               sizeof workspace) &&
           set(library, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_reduction,
               sizeof no_reduction) &&
           set(library, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &in, sizeof in) &&
           set(library, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &in, sizeof in) &&
           set(library, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out) &&
           set(library, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out);
}

static struct sb_gemm_size size_of(const struct sb_shape *shape, int32_t m)
{
    return (struct sb_gemm_size){m, shape->n_out, shape->n_in, shape->gated};
}

/* The rows of all pieces but the last. */
static int32_t whole_piece(const struct sb_gemm_library *library, const struct sb_gemm_size *size)
{
    const int32_t piece = sb_gemm_piece(library, size);

    return size->n_out < piece ? size->n_out : piece;
}

/* Fills test->found with the suggestions for m rows that may be tried, best first. Returns how
 * many. */
static int suggestions(struct selftest *test, int32_t m)
{
    const struct sb_gemm_library *library = test->library;
    cublasLtMatmulPreference_t preference = NULL;
    const struct sb_gemm_size size = size_of(test->shape, m);
    struct sb_gemm_layouts l;
    int n = 0, kept = 0;

    if (library->api.preference_create(&preference) != CUBLAS_STATUS_SUCCESS)
        return 0;
    if (!set_preference(library, preference, test->shape->n_out) ||
        !sb_gemm_layouts(&l, library, &size, whole_piece(library, &size)) ||
        library->api.heuristic(library->handle, library->desc, &l.a, &l.b, &l.d, &l.d, preference,
                               CANDIDATES, test->found, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    (void)library->api.preference_destroy(preference);
    for (int i = 0; i < n; i++) {
        const cublasLtMatmulHeuristicResult_t *found = &test->found[i];
        if (found->state != CUBLAS_STATUS_SUCCESS || found->workspaceSize > 0 ||
            !is_un_split(library, &found->algo) || is_gemv(name_of(library, &found->algo).id))
            continue;
        test->found[kept++] = *found;
    }
    return kept;
}

/* --------------------------------------------------------------- testing */

static void close_test(struct selftest *test)
{
    sb_cuda_ignore(cudaFree(test->x));
    sb_cuda_ignore(cudaFree(test->own));
    sb_cuda_ignore(cudaFree(test->other));
    sb_cuda_ignore(cudaFree(test->different));
    sb_cuda_ignore(cudaFree(test->scratch));
    if (test->begun)
        sb_cuda_ignore(cudaEventDestroy(test->begun));
    if (test->ended)
        sb_cuda_ignore(cudaEventDestroy(test->ended));
    sb_free(&test->gpu->mem, test->found);
    sb_free(&test->gpu->mem, test->host);
}

/* Fills x with numbers of both signs and many magnitudes, the same ones at every run. */
static int32_t fill_inputs(struct selftest *test, const struct sb_shape *shape, int32_t rows)
{
    const size_t ld = (size_t)sb_cuda_ld(test->library->type, shape->n_in);
    uint32_t state = 1;
    int32_t rc = SPECBATCH_OK;

    for (int32_t r = 0; r < rows; r++) {
        memset(test->host, 0, ld * 2);
        for (int32_t k = 0; k < shape->n_in; k++) {
            float value;
            state = state * 1664525u + 1013904223u;
            value = ((float)(state >> 8 & 0xffffu) - 32768.0f) /
                    (float)(1u << (12 + (state >> 28)));
            sb_convert(test->host + 2 * k, test->library->type, &value, SB_F32, 1);
        }
        SB_TRY(sb_cuda_upload(NULL, test->x + (size_t)r * ld * 2, test->host, ld * 2));
    }
done:
    return rc;
}

static int32_t open_test(struct selftest *test, int32_t rows)
{
    const struct sb_mem *mem = &test->gpu->mem;
    const size_t x_row = (size_t)sb_cuda_ld(test->library->type, test->shape->n_in) * 2;
    const size_t y_row = (size_t)test->shape->n_out * sizeof(float);
    const struct sb_gemm_size size = size_of(test->shape, rows);
    void *dev;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(test->found, sb_alloc(mem, CANDIDATES, sizeof *test->found), "a product's test");
    SB_NEW(test->host, sb_alloc(mem, x_row, 1), "a product's test");
    SB_TRY(sb_cuda_alloc(&dev, test->gpu, (size_t)rows * x_row));
    test->x = dev;
    SB_TRY(sb_cuda_alloc(&dev, test->gpu, (size_t)rows * y_row));
    test->own = dev;
    SB_TRY(sb_cuda_alloc(&dev, test->gpu, (size_t)rows * y_row));
    test->other = dev;
    SB_TRY(sb_cuda_alloc(&dev, test->gpu, sizeof *test->different));
    test->different = dev;
    if (test->library->is_usable)
        SB_TRY(sb_cuda_alloc(&test->scratch, test->gpu, sb_gemm_piece_bytes(test->library, &size)));
    SB_TRY(sb_cuda_status(test->gpu, cudaEventCreate(&test->begun), "an event", 0));
    SB_TRY(sb_cuda_status(test->gpu, cudaEventCreate(&test->ended), "an event", 0));
    SB_TRY(fill_inputs(test, test->shape, rows));
done:
    return rc;
}

/* Queues the product of m rows of x, from row `first` on, into y: by `algo`, or by the own kernel
 * where algo is NULL. *ran is 0 if cuBLASLt refuses. */
static int32_t run(int *ran, const struct selftest *test, float *y, int32_t first, int32_t m,
                   const cublasLtMatmulAlgo_t *algo)
{
    const struct sb_shape *shape = test->shape;
    const struct sb_gemm_size size = size_of(shape, m);
    const char *x = test->x +
                    (size_t)first * (size_t)sb_cuda_ld(test->library->type, shape->n_in) * 2;
    const cudaStream_t stream = test->gpu->load;

    *ran = 1;
    if (!algo)
        return sb_cuda_status(test->gpu,
                              sb_cuda_gemm_mma(y, x, shape->data, test->library->type, NULL, m,
                                               shape->n_out, shape->n_in, shape->gated,
                                               &test->gpu->products, stream),
                              "a product", 0);
    *ran = sb_gemm_by_library(test->library, y, x, shape->data, test->scratch, &size, algo, stream);
    return SPECBATCH_OK;
}

/* Whether all bits of m rows of two results on the device are the same. */
static int32_t compare(int *equal, struct selftest *test, const float *a, const float *b, int32_t m)
{
    const int64_t words = (int64_t)m * test->shape->n_out;
    int32_t different = 1, rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_status(test->gpu,
                          sb_cuda_count_different(test->different, a, b, words, test->gpu->load),
                          "a product's test", 0));
    SB_TRY(
        sb_cuda_status(test->gpu, cudaStreamSynchronize(test->gpu->load), "a product's test", 0));
    SB_TRY(sb_cuda_download(NULL, &different, test->different, sizeof different));
    *equal = different == 0;
done:
    return rc;
}

/* Computes the own kernel's result for all rows, and tests the contract on some: a row is the same
 * when it is computed alone. */
static int32_t test_own(struct selftest *test, int32_t rows)
{
    const int32_t some[] = {0, 1, 63, 64, rows - 1};
    int ran;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(run(&ran, test, test->own, 0, rows, NULL));
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        int equal = 0;
        if (some[i] >= rows)
            continue;
        SB_TRY(run(&ran, test, test->other, some[i], 1, NULL));
        SB_TRY(compare(&equal, test, test->own + (int64_t)some[i] * test->shape->n_out, test->other,
                       1));
        if (!equal)
            SB_FAIL(SPECBATCH_E_DEVICE,
                    "CUDA: row %d of a product [%d, %d] differs between %d rows and 1: this device "
                    "does not keep the contract",
                    some[i], test->shape->n_out, test->shape->n_in, rows);
    }
done:
    return rc;
}

/* What verdicts on m rows are for: numbers of rows in the same tiles. */
static struct sb_verdict key_of(const struct selftest *test, int32_t m)
{
    return (struct sb_verdict){.type = test->library->type,
                               .n_out = test->shape->n_out,
                               .n_in = test->shape->n_in,
                               .gated = test->shape->gated,
                               .rows = (m + TILE - 1) / TILE * TILE};
}

/* The verdict that the file has on m rows, or NULL. */
static const struct sb_verdict *known(const struct selftest *test, int32_t m)
{
    const struct sb_verdict key = key_of(test, m);

    return test->file ? sb_plan_file_find(test->file, &key) : NULL;
}

/* Whether cuBLASLt's product of m rows has the own kernel's bits. The result is first overwritten,
 * so that what an earlier test left there does not pass for what this one should have written. */
static int32_t test_algo(int *equal, struct selftest *test, int32_t m,
                         const cublasLtMatmulAlgo_t *algo)
{
    const size_t bytes = (size_t)m * (size_t)test->shape->n_out * sizeof(float);
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_status(test->gpu, cudaMemsetAsync(test->other, 0xff, bytes, test->gpu->load),
                          "a product's test", 0));
    SB_TRY(run(equal, test, test->other, 0, m, algo));
    if (*equal && !(SB_CUDA_FAULT(PLAN_WITHOUT_TEST) && known(test, m)))
        SB_TRY(compare(equal, test, test->own, test->other, m));
done:
    return rc;
}

/* Measures the milliseconds that m rows take by `algo`, or by the own kernel where algo is NULL;
 * infinite where cuBLASLt refuses now. */
static int32_t measure(float *ms, struct selftest *test, int32_t m,
                       const cublasLtMatmulAlgo_t *algo)
{
    const cudaStream_t stream = test->gpu->load;
    int32_t rc = SPECBATCH_OK;

    for (int i = 0; i < TIMED; i++) {
        float once = 0.0f;
        int ran;
        SB_TRY(
            sb_cuda_status(test->gpu, cudaEventRecord(test->begun, stream), "timing a product", 0));
        SB_TRY(run(&ran, test, test->other, 0, m, algo));
        if (!ran) {
            *ms = INFINITY;
            goto done;
        }
        SB_TRY(
            sb_cuda_status(test->gpu, cudaEventRecord(test->ended, stream), "timing a product", 0));
        SB_TRY(sb_cuda_status(test->gpu, cudaEventSynchronize(test->ended), "timing a product", 0));
        SB_TRY(sb_cuda_status(test->gpu, cudaEventElapsedTime(&once, test->begun, test->ended),
                              "timing a product", 0));
        *ms = i == 0 || once < *ms ? once : *ms;
    }
done:
    return rc;
}

/* Whether an algorithm is faster than the own kernel: as the file knows, or as the last timing
 * found for as many tiles of rows, or by a new timing. */
static int32_t is_faster(int *faster, struct selftest *test, int32_t m,
                         const cublasLtMatmulAlgo_t *algo)
{
    const struct sb_verdict *verdict = known(test, m);
    struct sb_verdict found = key_of(test, m);
    float ms = 0.0f;
    int32_t rc = SPECBATCH_OK;

    found.algo = name_of(test->library, algo);
    *faster = verdict && memcmp(&found.algo, &verdict->algo, sizeof found.algo) == 0;
    if (*faster)
        goto done;
    if (found.rows != test->timed_rows)
        SB_TRY(measure(&test->own_ms, test, m, NULL));
    if (found.rows != test->timed_rows ||
        memcmp(&found.algo, &test->timed, sizeof found.algo) != 0) {
        SB_TRY(measure(&ms, test, m, algo));
        test->timed_faster = ms < test->own_ms;
        test->timed = found.algo;
    }
    test->timed_rows = found.rows;
    *faster = found.by_library = test->timed_faster;
    if (!found.by_library)
        memset(&found.algo, 0, sizeof found.algo);
    if (test->file)
        sb_plan_file_note(test->file, &found);
done:
    return rc;
}

/* Puts the algorithm of that name, if it is among the n suggestions, before all others. */
static void put_first(struct selftest *test, int n, const struct sb_algo_name *name)
{
    for (int i = 0; i < n; i++) {
        const struct sb_algo_name other = name_of(test->library, &test->found[i].algo);
        if (memcmp(&other, name, sizeof other) == 0) {
            const cublasLtMatmulHeuristicResult_t found = test->found[i];
            memmove(test->found + 1, test->found, (size_t)i * sizeof *test->found);
            test->found[0] = found;
            return;
        }
    }
}

/* Makes the plan for m rows. *equal: some algorithm has the own kernel's bits; or the file knows
 * that none of them is worth its test. */
static int32_t plan_rows(int *equal, struct selftest *test, struct sb_plan *plan, int32_t m)
{
    const struct sb_verdict *verdict = known(test, m);
    int n, rc = SPECBATCH_OK;

    *equal = verdict && !verdict->by_library;
    if (*equal)
        return rc;
    n = suggestions(test, m);
    if (verdict)
        put_first(test, n, &verdict->algo);
    for (int i = 0; i < n; i++) {
        const cublasLtMatmulAlgo_t *algo = &test->found[i].algo;
        const struct sb_algo_name name = name_of(test->library, algo);
        if (is_refused(test, &name))
            continue;
        SB_TRY(test_algo(equal, test, m, algo));
        if (*equal) {
            plan->algo = *algo;
            SB_TRY(is_faster(&plan->is_usable, test, m, algo));
            break;
        }
        test->refused[test->n_refused++] = name;
    }
done:
    return rc;
}

int32_t sb_gemm_plan(const struct sb_gemm_library *library, const struct sb_gpu *gpu,
                     struct sb_shape *shape, int32_t rows, struct sb_plan_file *file)
{
    const int32_t tested = atomic_load(&shape->tested),
                  first = tested < SB_PLANS_FROM ? SB_PLANS_FROM : tested + 1;
    struct selftest test = {.library = library, .gpu = gpu, .shape = shape, .file = file};
    int32_t different = 0, slower = 0, rc = SPECBATCH_OK;

    SB_TRY(open_test(&test, rows));
    SB_TRY(test_own(&test, rows));
    for (int32_t m = first; library->is_usable && m <= rows; m++) {
        int equal;
        SB_TRY(plan_rows(&equal, &test, &shape->plans[m], m));
        different += !equal;
        slower += equal && !shape->plans[m].is_usable;
    }
    if (different > 0)
        sb_log(&gpu->log, SPECBATCH_LOG_WARN,
               "CUDA: for %d of %d row counts of a product [%d, %d] cuBLASLt has no "
               "algorithm of the same bits; the own kernel computes them",
               different, rows - first + 1, shape->n_out, shape->n_in);
    if (slower > 0)
        sb_log(&gpu->log, SPECBATCH_LOG_INFO,
               "CUDA: for %d of %d row counts of a product [%d, %d] the own kernel is faster than "
               "cuBLASLt's of the same bits",
               slower, rows - first + 1, shape->n_out, shape->n_in);
    atomic_store(&shape->tested, rows);
done:
    close_test(&test);
    return rc;
}
