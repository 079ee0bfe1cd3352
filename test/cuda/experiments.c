/*
 * What only a GPU can tell about products: `make check-gpu` runs it, and the simulator runs it with --tiny,
 * to show that it works, not what it finds.
 *
 *   E1   the own kernel against cuBLASLt's un-split family, bit for bit, over the models' shapes and over m
 *   E2   cuBLASLt's free choice against itself: how many rows of m are not what the row is alone
 *   E3   GB/s of weights that the own kernel, the family and the free choice reach
 *
 * It asks cuBLASLt itself, apart from src/cuda/gemm.c, so that the one can be held against the other.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/cuda/launch.h"
#include "cuda/cublaslt_api.h"

struct shape { const char *name; int32_t n_out, n_in; };

static const struct shape models[] = {
    {"vicuna-7b qkv", 12288, 4096},  {"vicuna-7b o", 4096, 4096},     {"vicuna-7b gate_up", 22016, 4096},
    {"vicuna-7b down", 4096, 11008}, {"vicuna-7b head", 32000, 4096}, {"llama-68m gate_up", 6144, 768},
    {"llama-68m head", 32000, 768},  {"qwen3-8b qkv", 6144, 4096},    {"qwen3-8b gate_up", 24576, 4096},
    {"qwen3-8b down", 4096, 12288},  {"qwen3-8b head", 151936, 4096}, {"qwen3-0.6b qkv", 4096, 1024},
    {"qwen3-0.6b o", 1024, 2048},    {"qwen3-0.6b down", 1024, 3072}, {"glm4-9b qkv", 4608, 4096},
    {"glm4-9b gate_up", 27392, 4096}, {"glm4-9b down", 4096, 13696},
};
static const struct shape tiny[] = {{"tiny", 96, 128}, {"tiny odd", 133, 64}};
static const int32_t rows[] = {1, 2, 3, 6, 7, 8, 12, 17, 24, 33, 48, 64, 65, 96, 128, 192, 256};
static const int32_t few_rows[] = {1, 2, 8, 17, 65};
static const int32_t timed[] = {1, 6, 24, 48, 96, 192};
#define COUNT(list) (sizeof(list) / sizeof(list)[0])
enum { MOST = 256, CANDIDATES = 64, BLOCK = 1 << 20, REPEATS = 20 };

/* Every failure of the program's own calls ends it. */
static void must(int good, const char *what)
{
    if (!good) {
        printf("FAIL experiments: %s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
}

struct lab {
    struct sb_cublaslt api;
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t desc;
    cudaStream_t stream;
    cudaEvent_t from, to;
    void *workspace;
    size_t workspace_bytes;
    struct shape shape;
    int64_t ld;
    uint16_t *x, *w;
    float *y, *y_other;
    float *host, *host_other;
};

static void *take(size_t bytes)
{
    void *dev = NULL;
    must(cudaMalloc(&dev, bytes) == cudaSuccess, "memory");
    return dev;
}

/* bf16 values of both signs around 1/32, from a block that repeats. */
static void fill(uint16_t *dev, size_t n, uint32_t seed)
{
    uint16_t *block = malloc(BLOCK * sizeof *block);

    must(block != NULL, "memory");
    for (size_t i = 0; i < BLOCK; i++) {
        seed = seed * 1664525u + 1013904223u;
        block[i] = (uint16_t)((seed >> 16 & 0x807fu) | (0x3b80u + (seed >> 8 & 0x180u)));
    }
    for (size_t at = 0, count; at < n; at += count) {
        count = n - at < BLOCK - 13 ? n - at : BLOCK - 13;
        must(cudaMemcpy(dev + at, block, count * sizeof *block, cudaMemcpyHostToDevice) == cudaSuccess,
             "upload");
    }
    free(block);
}

struct layouts { cublasLtMatrixLayoutOpaque_t a, b, d; };

static void make_layouts(struct layouts *l, const struct lab *lab, int32_t m)
{
    const uint64_t n_out = (uint64_t)lab->shape.n_out, ld = (uint64_t)lab->ld;

    must(lab->api.layout_init(&l->a, sizeof l->a, CUDA_R_16BF, ld, n_out, lab->ld) == 0 &&
             lab->api.layout_init(&l->b, sizeof l->b, CUDA_R_16BF, ld, (uint64_t)m, lab->ld) == 0 &&
             lab->api.layout_init(&l->d, sizeof l->d, CUDA_R_32F, n_out, (uint64_t)m, lab->shape.n_out) == 0,
         "cublasLt");
}

/* Neither split along k nor a gemv family. */
static int is_un_split(const struct lab *lab, const cublasLtMatmulAlgo_t *algo)
{
    int32_t id = 0, split = 0;
    size_t size;

    (void)lab->api.algo_get(algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &size);
    (void)lab->api.algo_get(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split,
                                               &size);
    return (split == 0 || split == 1) && id != 11 && id != 13 && id != 14 && id != 16 && id != 41 && id != 56;
}

static int choose(cublasLtMatmulAlgo_t *algo, struct lab *lab, int32_t m, int is_pinned)
{
    static cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    const uint32_t mask = is_pinned ? 0u : 7u;
    const size_t workspace = is_pinned ? 0 : lab->workspace_bytes;
    cublasLtMatmulPreference_t preference;
    struct layouts l;
    int n = 0, chosen = -1;

    make_layouts(&l, lab, m);
    must(lab->api.preference_create(&preference) == 0 &&
             lab->api.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace, sizeof workspace) == 0 &&
             lab->api.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                  &mask, sizeof mask) == 0,
         "cublasLt");
    if (lab->api.heuristic(lab->lt, lab->desc, &l.a, &l.b, &l.d, &l.d, preference, CANDIDATES, found,
                                       &n) != 0)
        n = 0;
    for (int i = 0; chosen < 0 && i < n; i++)
        if (!is_pinned || is_un_split(lab, &found[i].algo))
            chosen = i;
    if (chosen >= 0)
        *algo = found[chosen].algo;
    (void)lab->api.preference_destroy(preference);
    return chosen >= 0;
}

static void run_lt(struct lab *lab, float *y, int32_t m, const cublasLtMatmulAlgo_t *algo)
{
    const float one = 1.0f, zero = 0.0f;
    struct layouts l;

    make_layouts(&l, lab, m);
    must(lab->api.matmul(lab->lt, lab->desc, &one, lab->w, &l.a, lab->x, &l.b, &zero, y, &l.d, y, &l.d, algo,
                        lab->workspace, lab->workspace_bytes, lab->stream) == 0,
         "cublasLtMatmul");
}

static void run_own(struct lab *lab, float *y, int32_t m)
{
    must(sb_cuda_gemm_mma(y, lab->x, lab->w, SB_BF16, NULL, m, lab->shape.n_out, lab->shape.n_in,
                          lab->stream) == cudaSuccess,
         "the own kernel");
}

static void fetch(struct lab *lab, float *to, const float *from, int32_t m)
{
    must(cudaStreamSynchronize(lab->stream) == cudaSuccess, "waiting");
    must(cudaMemcpy(to, from, (size_t)m * (size_t)lab->shape.n_out * sizeof *to, cudaMemcpyDeviceToHost) ==
             cudaSuccess, "download");
}

/* Rows of y [m, n_out] that are not what `one` has. stride: from row to row of `one`. */
static int32_t rows_that_differ(const struct lab *lab, const float *y, const float *one, int32_t m)
{
    const size_t n = (size_t)lab->shape.n_out;
    int32_t count = 0;

    for (int32_t r = 0; r < m; r++)
        count += memcmp(y + (size_t)r * n, one + (size_t)r * n, n * sizeof *y) != 0;
    return count;
}

static void e1(struct lab *lab, const int32_t *ms, size_t n)
{
    int32_t equal = 0, compared = 0;

    printf("E1 %-18s [%d, %d]:", lab->shape.name, lab->shape.n_out, lab->shape.n_in);
    for (size_t i = 0; i < n; i++) {
        cublasLtMatmulAlgo_t algo;
        int32_t differ;
        if (!choose(&algo, lab, ms[i], 1)) {
            printf(" m=%d: no un-split algorithm;", ms[i]);
            continue;
        }
        run_own(lab, lab->y, ms[i]);
        fetch(lab, lab->host, lab->y, ms[i]);
        run_lt(lab, lab->y_other, ms[i], &algo);
        fetch(lab, lab->host_other, lab->y_other, ms[i]);
        differ = rows_that_differ(lab, lab->host, lab->host_other, ms[i]);
        compared++;
        equal += differ == 0;
        if (differ)
            printf(" m=%d: %d rows differ;", ms[i], differ);
    }
    printf(" %d of %d row counts equal bit for bit\n", equal, compared);
}

/* Row r alone by the free choice for m = 1, at row r of host_other. */
static void e2(struct lab *lab, const int32_t *ms, size_t n)
{
    cublasLtMatmulAlgo_t algo;
    uint16_t *first = lab->x;

    if (!choose(&algo, lab, 1, 0))
        return;
    for (int32_t r = 0; r < ms[n - 1]; r++) {
        lab->x = first + (size_t)r * (size_t)lab->ld;
        run_lt(lab, lab->y_other + (size_t)r * (size_t)lab->shape.n_out, 1, &algo);
    }
    lab->x = first;
    fetch(lab, lab->host_other, lab->y_other, ms[n - 1]);
    printf("E2 %-18s rows that differ from m=1 under the free choice:", lab->shape.name);
    for (size_t i = 1; i < n; i++) {
        if (!choose(&algo, lab, ms[i], 0))
            continue;
        run_lt(lab, lab->y, ms[i], &algo);
        fetch(lab, lab->host, lab->y, ms[i]);
        printf(" %d/%d", rows_that_differ(lab, lab->host, lab->host_other, ms[i]), ms[i]);
    }
    printf("\n");
}

enum kind { OWN, PINNED, FREE };

static double gigabytes(struct lab *lab, int32_t m, enum kind kind)
{
    cublasLtMatmulAlgo_t algo;
    float ms = 0.0f;

    if (kind != OWN && !choose(&algo, lab, m, kind == PINNED))
        return 0.0;
    for (int i = -3; i < REPEATS; i++) {
        if (i == 0)
            must(cudaEventRecord(lab->from, lab->stream) == cudaSuccess, "event");
        if (kind == OWN)
            run_own(lab, lab->y, m);
        else
            run_lt(lab, lab->y, m, &algo);
    }
    must(cudaEventRecord(lab->to, lab->stream) == cudaSuccess &&
             cudaEventSynchronize(lab->to) == cudaSuccess &&
             cudaEventElapsedTime(&ms, lab->from, lab->to) == cudaSuccess,
         "event");
    return ms > 0.0f ? 2.0 * (double)lab->shape.n_out * (double)lab->shape.n_in * REPEATS / ((double)ms * 1e6)
                     : 0.0;
}

static void e3(struct lab *lab)
{
    printf("E3 %-18s GB/s own, pinned, free:", lab->shape.name);
    for (size_t i = 0; i < COUNT(timed); i++)
        printf("  m=%d %.0f %.0f %.0f", timed[i], gigabytes(lab, timed[i], OWN),
               gigabytes(lab, timed[i], PINNED), gigabytes(lab, timed[i], FREE));
    printf("\n");
}

static void one_shape(struct lab *lab, const struct shape *shape, int is_tiny)
{
    const size_t bytes = (size_t)MOST * (size_t)shape->n_out * sizeof(float);
    const int32_t *ms = is_tiny ? few_rows : rows;
    const size_t n = is_tiny ? COUNT(few_rows) : COUNT(rows);

    lab->shape = *shape;
    lab->ld = sb_cuda_ld(SB_BF16, shape->n_in);
    lab->x = take((size_t)MOST * (size_t)lab->ld * 2);
    lab->w = take((size_t)shape->n_out * (size_t)lab->ld * 2);
    lab->y = take(bytes);
    lab->y_other = take(bytes);
    lab->host = malloc(bytes);
    lab->host_other = malloc(bytes);
    must(lab->host && lab->host_other, "memory");
    fill(lab->x, (size_t)MOST * (size_t)lab->ld, 1);
    fill(lab->w, (size_t)shape->n_out * (size_t)lab->ld, 2);
    e1(lab, ms, n);
    e2(lab, ms, n);
    if (!is_tiny)
        e3(lab);
    must(cudaFree(lab->x) == cudaSuccess && cudaFree(lab->w) == cudaSuccess &&
             cudaFree(lab->y) == cudaSuccess && cudaFree(lab->y_other) == cudaSuccess,
         "free");
    free(lab->host);
    free(lab->host_other);
}

int main(int argc, char **argv)
{
    const int is_tiny = argc > 1 && strcmp(argv[1], "--tiny") == 0;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    struct lab lab = {.workspace_bytes = (size_t)32 << 20};
    char why[120] = "";
    int devices = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("FAIL experiments: no GPU here\n");
        return 1;
    }
    if (!sb_cublaslt_load(&lab.api, why, sizeof why)) {
        printf("FAIL experiments: %s\n", why);
        return 1;
    }
    must(cudaStreamCreateWithFlags(&lab.stream, cudaStreamNonBlocking) == cudaSuccess &&
             cudaEventCreate(&lab.from) == cudaSuccess && cudaEventCreate(&lab.to) == cudaSuccess &&
             lab.api.create(&lab.lt) == 0 &&
             lab.api.desc_create(&lab.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0 &&
             lab.api.desc_set(lab.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                            sizeof transposed) == 0,
         "setting up");
    lab.workspace = take(lab.workspace_bytes);
    printf("     cublasLt %zu\n", lab.api.version());
    for (size_t i = 0; i < (is_tiny ? COUNT(tiny) : COUNT(models)); i++)
        one_shape(&lab, is_tiny ? &tiny[i] : &models[i], is_tiny);
    (void)cudaFree(lab.workspace);
    (void)lab.api.desc_destroy(lab.desc);
    (void)lab.api.destroy(lab.lt);
    (void)cudaEventDestroy(lab.from);
    (void)cudaEventDestroy(lab.to);
    (void)cudaStreamDestroy(lab.stream);
    printf("ok   experiments\n");
    return 0;
}
