/*
 * Who may make which products is found by comparing bits, and then by comparing time.
 *
 * The kernel by mma.sync defines the class. For each number of rows, the kernel by wgmma, where the
 * device has it, and the suggestions of cuBLASLt's heuristic in their order are tried on the real
 * weight. wgmma, and the first suggestion, whose results have the bits of mma.sync in every row and
 * column are timed against it, and the fastest is used. So time chooses who computes, never what.
 *
 * Both are tested for each number of rows, whatever an algorithm's name is and whatever it did for
 * another number: libraries choose tiles by the number of rows, and it may be a tile in the middle
 * that adds differently. But what has once had other bits is not tried again for this shape, which
 * bounds the number of tests where nothing is equal.
 *
 * Rejected: to look for one algorithm id and number of stages that serve all rows. Every number of
 * rows has to be tested anyway, and there may be no such pair.
 */
#include "backend/cuda/gemm_plan.h"

#include <math.h>
#include <string.h>

#include "../kernels/cuda/cuda_fault.h"
#include "../kernels/cuda/launch.h"
#include "backend/cuda/gemm_suggest.h"
#include "backend/cuda/memory.h"
#include "status.h"

enum {
    CANDIDATES = 64,   /* suggestions that are asked for */
    REFUSED = 64,      /* algorithms refused for a shape; after as many, nothing more is tried */
    TIMED = 2,         /* runs of which the fastest counts */
    TILE = 64,         /* numbers of rows within one such tile take about the same time, */
    HALF_TILE = 32,    /* and of the first one those within its first half, which take less, */
    QUARTER_TILE = 16, /* and those within its first quarter */
    FEW = SB_PLANS_FROM - 1 /* rows of the largest product that is never made in pieces */
};

/* The memory of the tests of one shape, and what they have found so far. It is CUDA's, because the
 * host's memory functions may not be called under a lock. */
struct selftest {
    const struct sb_gemm_library *library;
    const struct sb_gpu *gpu;
    const struct sb_shape *shape;
    struct sb_plan_file *file; /* or NULL */
    char *x;                   /* dev [rows, ld] */
    float *own, *other;        /* dev [rows, n_out] */
    int32_t *different;        /* dev */
    void *scratch;             /* dev: a piece of the weight */
    char *host;                /* pinned: x, and later an answer of `different` */
    cudaEvent_t begun, ended;
    int32_t timed_rows;        /* the rows, as in struct sb_verdict, that times are of: */
    float ms[3];               /* by enum sb_maker; below 0: not measured yet */
    struct sb_algo_name timed; /* the algorithm of the library's time */
    int refuses_wgmma;
    struct sb_algo_name refused[REFUSED];
    int n_refused;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES]; /* suggestions for one number of rows */
};

/* Somebody who may make a product. */
struct candidate {
    enum sb_maker by;
    const cublasLtMatmulAlgo_t *algo; /* of the library, else NULL */
};

static const struct candidate by_mma = {SB_BY_MMA, NULL}, by_wgmma = {SB_BY_WGMMA, NULL};

/* --------------------------------------------------------------- testing */

static struct sb_gemm_size size_of(const struct sb_shape *shape, int32_t m)
{
    return (struct sb_gemm_size){m, shape->n_out, shape->n_in, shape->gated};
}

static int is_refused(const struct selftest *test, const struct sb_algo_name *name)
{
    for (int i = 0; i < test->n_refused; i++)
        if (memcmp(&test->refused[i], name, sizeof *name) == 0)
            return 1;
    return test->n_refused == REFUSED;
}

/* Gives back what open_test has taken, so that the test can be opened again. */
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
    sb_cuda_ignore(cudaFreeHost(test->host));
    test->x = test->host = NULL;
    test->own = test->other = NULL;
    test->different = NULL;
    test->scratch = NULL;
    test->begun = test->ended = NULL;
}

/* Fills x with numbers of both signs and many magnitudes, the same ones at every run. */
static int32_t fill_inputs(struct selftest *test, const struct sb_shape *shape, int32_t rows)
{
    const size_t ld = (size_t)sb_cuda_ld(test->library->type, shape->n_in);
    uint32_t state = 1;

    memset(test->host, 0, (size_t)rows * ld * 2);
    for (int32_t r = 0; r < rows; r++)
        for (int32_t k = 0; k < shape->n_in; k++) {
            char *to = test->host + 2 * ((size_t)r * ld + (size_t)k);
            float value;
            state = state * 1664525u + 1013904223u;
            value = ((float)(state >> 8 & 0xffffu) - 32768.0f) /
                    (float)(1u << (12 + (state >> 28)));
            sb_convert(to, test->library->type, &value, SB_F32, 1);
        }
    return sb_cuda_upload(NULL, test->x, test->host, (size_t)rows * ld * 2);
}

static int32_t open_test(struct selftest *test, int32_t rows)
{
    const size_t x_row = (size_t)sb_cuda_ld(test->library->type, test->shape->n_in) * 2;
    const size_t y_row = (size_t)test->shape->n_out * sizeof(float);
    const struct sb_gemm_size size = size_of(test->shape, rows);
    void *dev;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_host_alloc(&dev, test->gpu, (size_t)rows * x_row));
    test->host = dev;
    SB_TRY(sb_cuda_alloc(&dev, test->gpu, (size_t)rows * x_row));
    test->x = dev;
    SB_TRY(sb_cuda_alloc(&dev, test->gpu, (size_t)rows * y_row));
    test->own = dev;
    SB_TRY(sb_cuda_alloc(&dev, test->gpu, (size_t)rows * y_row));
    test->other = dev;
    SB_TRY(sb_cuda_alloc(&dev, test->gpu, sizeof *test->different));
    test->different = dev;
    if (test->library->is_usable && rows >= SB_LIBRARY_FROM)
        SB_TRY(sb_cuda_alloc(&test->scratch, test->gpu, sb_gemm_piece_bytes(test->library, &size)));
    SB_TRY(sb_cuda_status(test->gpu, cudaEventCreate(&test->begun), "an event", 0));
    SB_TRY(sb_cuda_status(test->gpu, cudaEventCreate(&test->ended), "an event", 0));
    SB_TRY(fill_inputs(test, test->shape, rows));
done:
    return rc;
}

/* Opens a test of *rows rows, or of half as many, and so on, where the device has no memory for
 * more. What is tested already needs no memory. */
static int32_t open_what_fits(struct selftest *test, int32_t *rows, int32_t tested)
{
    int32_t rc = SPECBATCH_OK;

    while (*rows > tested) {
        rc = open_test(test, *rows);
        if (rc != SPECBATCH_E_NOMEM || *rows <= FEW)
            return rc;
        close_test(test);
        *rows = *rows / 2 > FEW ? *rows / 2 : FEW;
    }
    return SPECBATCH_OK;
}

/* Queues the product of m rows of x, from row `first` on, into y. *ran is 0 if whoever makes it
 * refuses, which mma.sync may not. */
static int32_t run(int *ran, const struct selftest *test, float *y, int32_t first, int32_t m,
                   struct candidate c)
{
    const struct sb_shape *shape = test->shape;
    const enum sb_dtype type = test->library->type;
    const struct sb_gemm_size size = size_of(shape, m);
    const char *x = test->x + (size_t)first * (size_t)sb_cuda_ld(type, shape->n_in) * 2;
    const struct sb_launch_limits *limits = &test->gpu->limits;
    const cudaStream_t stream = test->gpu->load;

    *ran = 1;
    switch (c.by) {
    case SB_BY_LIBRARY:
        *ran = sb_gemm_by_library(test->library, y, x, shape->data, test->scratch, &size, c.algo,
                                  stream);
        return SPECBATCH_OK;
    case SB_BY_WGMMA:
        *ran = sb_cuda_gemm_wgmma(y, x, shape->data, type, NULL, m, shape->n_out, shape->n_in,
                                  shape->gated, limits, stream) == cudaSuccess;
        if (!*ran)
            (void)cudaGetLastError();
        return SPECBATCH_OK;
    case SB_BY_MMA:
        break;
    }
    return sb_cuda_status(test->gpu,
                          sb_cuda_gemm_mma(y, x, shape->data, type, NULL, m, shape->n_out,
                                           shape->n_in, shape->gated, limits, stream),
                          "a product", 0);
}

/* Whether all bits of m rows of two results on the device are the same. The answer comes on the
 * same stream, so that the device is waited for once: a pool's creation asks for thousands. */
static int32_t compare(int *equal, struct selftest *test, const float *a, const float *b, int32_t m)
{
    const int64_t words = (int64_t)m * test->shape->n_out;
    int32_t different = 1, rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_status(test->gpu,
                          sb_cuda_count_different(test->different, a, b, words, test->gpu->load),
                          "a product's test", 0));
    SB_TRY(sb_cuda_status(test->gpu,
                          cudaMemcpyAsync(test->host, test->different, sizeof different,
                                          cudaMemcpyDeviceToHost, test->gpu->load),
                          "a product's test", 0));
    SB_TRY(
        sb_cuda_status(test->gpu, cudaStreamSynchronize(test->gpu->load), "a product's test", 0));
    memcpy(&different, test->host, sizeof different);
    *equal = different == 0;
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
                               .rows = m <= QUARTER_TILE ? QUARTER_TILE
                                       : m <= HALF_TILE  ? HALF_TILE
                                                         : (m + TILE - 1) / TILE * TILE};
}

/* The verdict that the file has on m rows, or NULL. */
static const struct sb_verdict *known(const struct selftest *test, int32_t m)
{
    const struct sb_verdict key = key_of(test, m);

    return test->file ? sb_plan_file_find(test->file, &key) : NULL;
}

/* Whether a product of m rows has the bits of mma.sync. The result is first overwritten, so that
 * what an earlier test left there does not pass for what this one should have written. */
static int32_t test_bits(int *equal, struct selftest *test, int32_t m, struct candidate c)
{
    const size_t bytes = (size_t)m * (size_t)test->shape->n_out * sizeof(float);
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_status(test->gpu, cudaMemsetAsync(test->other, 0xff, bytes, test->gpu->load),
                          "a product's test", 0));
    SB_TRY(run(equal, test, test->other, 0, m, c));
    if (*equal && !(SB_CUDA_FAULT(PLAN_WITHOUT_TEST) && known(test, m)))
        SB_TRY(compare(equal, test, test->own, test->other, m));
done:
    return rc;
}

/* Computes the result of mma.sync for all rows, and compares some of them with the row alone. */
static int32_t test_alone(struct selftest *test, int32_t rows)
{
    const int32_t some[] = {0, 1, 63, 64, rows - 1};
    int ran;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(run(&ran, test, test->own, 0, rows, by_mma));
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        int equal = 0;
        if (some[i] >= rows)
            continue;
        SB_TRY(run(&ran, test, test->other, some[i], 1, by_mma));
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

/* Tests the contract of mma.sync: a row is the same when it is computed alone. Fewer rows may be
 * made by other shapes of block, and each shape is another kernel. So the result for all rows is
 * compared with that of each other shape, for the most rows that it is used for. */
static int32_t test_own(struct selftest *test, int32_t rows)
{
    uint32_t tested = 0; /* a bit for each shape of block */
    int32_t rc = SPECBATCH_OK;

    SB_TRY(test_alone(test, rows));
    for (int32_t m = rows; m > 0; m--) {
        const int32_t block = sb_cuda_gemm_mma_shape(test->library->type, m, test->shape->n_out,
                                                     test->shape->n_in, &test->gpu->limits);
        const uint32_t bit = block < 0 ? 0 : (uint32_t)1 << block;
        int equal = 1;
        if (m < rows && !(tested & bit))
            SB_TRY(test_bits(&equal, test, m, by_mma));
        if (!equal)
            SB_FAIL(SPECBATCH_E_DEVICE,
                    "CUDA: rows of a product [%d, %d] differ between %d rows and %d: this device "
                    "does not keep the contract",
                    test->shape->n_out, test->shape->n_in, rows, m);
        tested |= bit;
    }
done:
    return rc;
}

/* Measures the milliseconds that m rows take; infinite where whoever makes them refuses now. */
static int32_t measure(struct selftest *test, int32_t m, struct candidate c)
{
    const cudaStream_t stream = test->gpu->load;
    float *ms = &test->ms[c.by];
    int32_t rc = SPECBATCH_OK;

    for (int i = 0; i < TIMED; i++) {
        float once = 0.0f;
        int ran;
        SB_TRY(
            sb_cuda_status(test->gpu, cudaEventRecord(test->begun, stream), "timing a product", 0));
        SB_TRY(run(&ran, test, test->other, 0, m, c));
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

/* Makes the plan from those that have the bits of mma.sync: wgmma, and the library's algorithm or
 * NULL. The last timings count if they were of as many tiles of rows and of this algorithm. */
static int32_t take_fastest(struct sb_plan *plan, struct selftest *test, int32_t m, int has_wgmma,
                            const cublasLtMatmulAlgo_t *algo)
{
    const struct candidate all[] = {by_mma, by_wgmma, {SB_BY_LIBRARY, algo}};
    const int has[] = {1, has_wgmma, algo != NULL};
    struct sb_verdict found = key_of(test, m);
    struct sb_algo_name name = found.algo;
    int32_t rc = SPECBATCH_OK;

    if (algo)
        name = sb_algo_name_of(test->library, algo);
    for (int i = 0; i < 3; i++)
        if (found.rows != test->timed_rows ||
            (i == SB_BY_LIBRARY && memcmp(&name, &test->timed, sizeof name) != 0))
            test->ms[i] = -1.0f;
    test->timed_rows = found.rows;
    test->timed = name;
    plan->by = SB_BY_MMA;
    for (int i = 0; i < 3; i++) {
        if (has[i] && test->ms[i] < 0.0f)
            SB_TRY(measure(test, m, all[i]));
        if (has[i] && test->ms[i] < test->ms[plan->by])
            plan->by = (enum sb_maker)i;
    }
    found.by = plan->by;
    if (plan->by == SB_BY_LIBRARY)
        found.algo = name;
    if (test->file)
        sb_plan_file_note(test->file, &found);
done:
    return rc;
}

/* Puts the algorithm of that name, if it is among the n suggestions, before all others. */
static void put_first(struct selftest *test, int n, const struct sb_algo_name *name)
{
    for (int i = 0; i < n; i++) {
        const struct sb_algo_name other = sb_algo_name_of(test->library, &test->found[i].algo);
        if (memcmp(&other, name, sizeof other) == 0) {
            const cublasLtMatmulHeuristicResult_t found = test->found[i];
            memmove(test->found + 1, test->found, (size_t)i * sizeof *test->found);
            test->found[0] = found;
            return;
        }
    }
}

/* Finds the first suggestion whose bits are those of mma.sync for m rows: test->found[*at], or *at
 * is -1. */
static int32_t find_equal(int *at, struct selftest *test, int32_t m,
                          const struct sb_verdict *verdict)
{
    const struct sb_gemm_size size = size_of(test->shape, m);
    const int n = sb_gemm_suggestions(test->found, CANDIDATES, test->library, &size);
    int32_t rc = SPECBATCH_OK;

    if (verdict)
        put_first(test, n, &verdict->algo);
    *at = -1;
    for (int i = 0; i < n && *at < 0; i++) {
        const struct candidate c = {SB_BY_LIBRARY, &test->found[i].algo};
        const struct sb_algo_name name = sb_algo_name_of(test->library, c.algo);
        int equal;
        if (is_refused(test, &name))
            continue;
        SB_TRY(test_bits(&equal, test, m, c));
        if (equal)
            *at = i;
        else
            test->refused[test->n_refused++] = name;
    }
done:
    return rc;
}

/* Whether wgmma has the bits of mma.sync for m rows. */
static int32_t test_wgmma(int *equal, struct selftest *test, int32_t m)
{
    int32_t rc = SPECBATCH_OK;

    *equal = 0;
    if (!test->gpu->limits.map_encoder || test->refuses_wgmma)
        goto done;
    SB_TRY(test_bits(equal, test, m, by_wgmma));
    test->refuses_wgmma = !*equal;
done:
    return rc;
}

/* Makes the plan for m rows. What the file has a verdict for is tested first, and is not timed if
 * its bits are those of mma.sync; if they are not, it is as if the file had none. *different:
 * cuBLASLt was tried, and has no algorithm of the same bits. */
static int32_t plan_rows(int *different, struct selftest *test, struct sb_plan *plan, int32_t m)
{
    const struct sb_verdict *verdict = known(test, m);
    const int by_file = verdict ? (int)verdict->by : -1;
    int has_wgmma = 0, at = -1, rc = SPECBATCH_OK;

    *different = 0;
    if (by_file == SB_BY_MMA)
        goto done;
    if (by_file != SB_BY_LIBRARY)
        SB_TRY(test_wgmma(&has_wgmma, test, m));
    if (by_file == SB_BY_WGMMA && has_wgmma) {
        plan->by = SB_BY_WGMMA;
        goto done;
    }
    if (test->library->is_usable && m >= SB_LIBRARY_FROM) {
        SB_TRY(find_equal(&at, test, m, by_file == SB_BY_LIBRARY ? verdict : NULL));
        *different = at < 0;
    }
    if (at >= 0)
        plan->algo = test->found[at].algo;
    if (at >= 0 && by_file == SB_BY_LIBRARY) {
        const struct sb_algo_name name = sb_algo_name_of(test->library, &plan->algo);
        if (memcmp(&name, &verdict->algo, sizeof name) == 0) {
            plan->by = SB_BY_LIBRARY;
            goto done;
        }
    }
    if (by_file == SB_BY_LIBRARY)
        SB_TRY(test_wgmma(&has_wgmma, test, m));
    if (at >= 0 || has_wgmma)
        SB_TRY(take_fastest(plan, test, m, has_wgmma, at >= 0 ? &plan->algo : NULL));
done:
    return rc;
}

void sb_gemm_tell(const struct sb_gpu *gpu, const struct sb_shape *shape,
                  const struct sb_findings *found)
{
    const int *by = found->by, all = by[SB_BY_MMA] + by[SB_BY_WGMMA] + by[SB_BY_LIBRARY];

    if (found->refuses_wgmma)
        sb_log(&gpu->log, SPECBATCH_LOG_WARN,
               "CUDA: products [%d, %d] by wgmma have other bits on this device, and are not made",
               shape->n_out, shape->n_in);
    if (found->most < found->wanted)
        sb_log(&gpu->log, SPECBATCH_LOG_WARN,
               "CUDA: no memory to test products [%d, %d] of %d rows, so they are made in pieces "
               "of %d",
               shape->n_out, shape->n_in, found->wanted, found->most);
    if (found->different > 0)
        sb_log(&gpu->log, SPECBATCH_LOG_WARN,
               "CUDA: for %d of %d row counts of a product [%d, %d] cuBLASLt has no algorithm of "
               "the same bits",
               found->different, all, shape->n_out, shape->n_in);
    if (all > 0)
        sb_log(&gpu->log, SPECBATCH_LOG_INFO,
               "CUDA: of %d row counts of a product [%d, %d], %d are made by mma.sync, %d by "
               "wgmma, %d by cuBLASLt",
               all, shape->n_out, shape->n_in, by[SB_BY_MMA], by[SB_BY_WGMMA], by[SB_BY_LIBRARY]);
}

int32_t sb_gemm_plan(const struct sb_gemm_library *library, const struct sb_gpu *gpu,
                     struct sb_shape *shape, int32_t rows, struct sb_plan_file *file,
                     struct sb_findings *found)
{
    const int32_t tested = atomic_load(&shape->tested),
                  first = tested < SB_PLANS_FROM ? SB_PLANS_FROM : tested + 1;
    struct selftest test = {.library = library, .gpu = gpu, .shape = shape, .file = file};
    struct sb_findings now = {.wanted = rows};
    int32_t most = rows, rc = SPECBATCH_OK;

    SB_TRY(open_what_fits(&test, &most, tested));
    if (most > tested)
        SB_TRY(test_own(&test, most));
    for (int32_t m = first; m <= most; m++) {
        int has_none;
        SB_TRY(plan_rows(&has_none, &test, &shape->plans[m], m));
        now.different += has_none;
        now.by[shape->plans[m].by]++;
    }
    now.refuses_wgmma = test.refuses_wgmma;
    now.most = most > tested ? most : tested;
    *found = now;
    atomic_store(&shape->tested, now.most);
done:
    close_test(&test);
    return rc;
}
