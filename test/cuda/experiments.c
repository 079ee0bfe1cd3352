/*
 * What only a GPU can tell about products. test/cuda/run_on_gpu.sh runs it; the simulator runs it
 * with --tiny, which shows that the program works, and its figures mean nothing.
 *
 *   E1   cuBLASLt's first un-split candidates, for the models' shapes and many m: what each is, and
 *        whether it has the own kernel's bits in every row and column
 *   E2   cuBLASLt's free choice against itself: how many of m rows differ from the same row alone
 *   E3   GB/s of weights that are reached by the own kernel, by the first candidate with its bits,
 *        and by the free choice
 *
 * The program asks cuBLASLt itself, not through src/backend/cuda/gemm_library.c, so that the two
 * can be compared. --libraries prints which of NVIDIA's libraries are found, and needs no device.
 * --profile is for ncu: it launches the own kernel for the four products of a layer, once for a
 * round of one row and once for a round of eight.
 */
#include <string.h>

#include "kernels/cuda/launch.h"
#include "backend/cuda/cublaslt_api.h"
#include "backend/cuda/library.h"
#include "cuda/replay.h"

struct shape {
    const char *name;
    int32_t n_out, n_in;
};

static const struct shape models[] = {
    {"qwen3-8b qkv", 6144, 4096},      {"qwen3-8b o", 4096, 4096},
    {"qwen3-8b gate_up", 24576, 4096}, {"qwen3-8b down", 4096, 12288},
    {"qwen3-8b head", 151936, 4096},   {"qwen3-0.6b qkv", 4096, 1024},
    {"qwen3-0.6b o", 1024, 2048},      {"qwen3-0.6b down", 1024, 3072},
    {"vicuna-7b qkv", 12288, 4096},    {"vicuna-7b gate_up", 22016, 4096},
    {"vicuna-7b down", 4096, 11008},   {"vicuna-7b head", 32000, 4096},
    {"glm4-9b qkv", 4608, 4096},       {"glm4-9b gate_up", 27392, 4096},
    {"glm4-9b down", 4096, 13696},     {"llama-68m gate_up", 6144, 768},
    {"llama-68m head", 32000, 768},
};
static const struct shape tiny[] = {{"tiny", 96, 128}, {"tiny odd", 133, 64}};
static const int32_t rows[] = {1, 2, 6, 8, 9, 12, 17, 24, 33, 48, 64, 65, 96, 128, 192, 256};
static const int32_t few_rows[] = {1, 2, 8, 17, 65};
static const int32_t timed[] = {1, 6, 24, 48, 96, 192};
#define COUNT(list) (sizeof(list) / sizeof(list)[0])
enum { MOST = 256, LISTED_FROM = 9, LISTED = 8, CANDIDATES = 64, REPEATS = 4, LEAST_LAUNCHES = 8 };

struct lab {
    struct sb_cublaslt api;
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t desc;
    cudaStream_t stream;
    struct sb_launch_limits limits;
    void *workspace;
    size_t workspace_bytes;
    struct shape shape;
    int64_t ld;
    uint16_t *x, *w; /* copies of the weight in tiles, one after the other */
    uint16_t *dense; /* rows of the first copy, for cuBLASLt */
    int copies;
    float *y, *y_other;
    float *host, *host_other; /* pinned */
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
};

struct layouts {
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

static void make_layouts(struct layouts *l, const struct lab *lab, int32_t m)
{
    const uint64_t n_out = (uint64_t)lab->shape.n_out, ld = (uint64_t)lab->ld;

    must(lab->api.layout_init(&l->a, sizeof l->a, CUDA_R_16BF, ld, n_out, lab->ld) == 0 &&
             lab->api.layout_init(&l->b, sizeof l->b, CUDA_R_16BF, ld, (uint64_t)m, lab->ld) == 0 &&
             lab->api.layout_init(&l->d, sizeof l->d, CUDA_R_32F, n_out, (uint64_t)m,
                                  lab->shape.n_out) == 0,
         "cublasLt");
}

static uint32_t attribute(const struct lab *lab, const cublasLtMatmulAlgo_t *algo,
                          cublasLtMatmulAlgoConfigAttributes_t name)
{
    uint32_t value = 0;
    size_t size;

    (void)lab->api.algo_get(algo, name, &value, sizeof value, &size);
    return value;
}

/* Whether an algorithm neither splits k nor is of a gemv family. */
static int is_un_split(const struct lab *lab, const cublasLtMatmulAlgo_t *algo)
{
    const uint32_t id = attribute(lab, algo, CUBLASLT_ALGO_CONFIG_ID);

    return attribute(lab, algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1 && id != 11 && id != 13 &&
           id != 14 && id != 16 && id != 41 && id != 56;
}

/* Puts cuBLASLt's candidates for m rows into lab->found, the best first, and returns how many. A
 * free choice has workspace and may split k. */
static int ask(struct lab *lab, int32_t m, int is_free)
{
    const uint32_t mask = is_free ? 7u : 0u;
    const size_t workspace = is_free ? lab->workspace_bytes : 0;
    cublasLtMatmulPreference_t preference;
    struct layouts l;
    int n = 0;

    make_layouts(&l, lab, m);
    must(lab->api.preference_create(&preference) == 0 &&
             lab->api.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                     &workspace, sizeof workspace) == 0 &&
             lab->api.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask,
                                     sizeof mask) == 0,
         "cublasLt");
    if (lab->api.heuristic(lab->lt, lab->desc, &l.a, &l.b, &l.d, &l.d, preference, CANDIDATES,
                           lab->found, &n) != 0)
        n = 0;
    (void)lab->api.preference_destroy(preference);
    return n;
}

static int run_lt(struct lab *lab, float *y, const uint16_t *w, int32_t m,
                  const cublasLtMatmulAlgo_t *algo)
{
    const float one = 1.0f, zero = 0.0f;
    struct layouts l;

    make_layouts(&l, lab, m);
    return lab->api.matmul(lab->lt, lab->desc, &one, w, &l.a, lab->x, &l.b, &zero, y, &l.d, y, &l.d,
                           algo, lab->workspace, lab->workspace_bytes, lab->stream) == 0;
}

static void run_own(struct lab *lab, float *y, const uint16_t *w, int32_t m)
{
    must(sb_cuda_gemm_mma(y, lab->x, w, SB_BF16, NULL, m, lab->shape.n_out, lab->shape.n_in, 0,
                          &lab->limits, lab->stream) == cudaSuccess,
         "the own kernel");
}

static void fetch(struct lab *lab, float *to, const float *from, int32_t m)
{
    must(cudaStreamSynchronize(lab->stream) == cudaSuccess, "waiting");
    must(cudaMemcpy(to, from, (size_t)m * (size_t)lab->shape.n_out * sizeof *to,
                    cudaMemcpyDeviceToHost) == cudaSuccess,
         "download");
}

/* How many rows of y [m, n_out] differ from those of `other`. */
static int32_t rows_that_differ(const struct lab *lab, const float *y, const float *other,
                                int32_t m)
{
    const size_t n = (size_t)lab->shape.n_out;
    int32_t count = 0;

    for (int32_t r = 0; r < m; r++)
        count += memcmp(y + (size_t)r * n, other + (size_t)r * n, n * sizeof *y) != 0;
    return count;
}

/* In how many rows an algorithm's result differs from the own kernel's, which is in lab->host; -1
 * if the algorithm does not run. */
static int32_t compare(struct lab *lab, int32_t m, const cublasLtMatmulAlgo_t *algo)
{
    must(cudaMemsetAsync(lab->y_other, 0xff, (size_t)m * (size_t)lab->shape.n_out * sizeof(float),
                         lab->stream) == cudaSuccess,
         "clearing");
    if (!run_lt(lab, lab->y_other, lab->dense, m, algo))
        return -1;
    fetch(lab, lab->host_other, lab->y_other, m);
    return rows_that_differ(lab, lab->host, lab->host_other, m);
}

/* E1 for one number of rows. It prints each candidate as id/stages/tile, with = or the number of
 * rows that differ, and returns 1 if one is equal. */
static int e1_rows(struct lab *lab, int32_t m)
{
    const int n = ask(lab, m, 0);
    int listed = 0, equal = 0;

    run_own(lab, lab->y, lab->w, m);
    fetch(lab, lab->host, lab->y, m);
    printf("E1    m=%d:", m);
    for (int i = 0; i < n && listed < (m < LISTED_FROM ? 1 : LISTED); i++) {
        const cublasLtMatmulAlgo_t *algo = &lab->found[i].algo;
        int32_t differ;
        if (!is_un_split(lab, algo))
            continue;
        listed++;
        differ = compare(lab, m, algo);
        equal |= differ == 0;
        printf(" %u/%u/%u%s", attribute(lab, algo, CUBLASLT_ALGO_CONFIG_ID),
               attribute(lab, algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
               attribute(lab, algo, CUBLASLT_ALGO_CONFIG_TILE_ID), differ == 0 ? " =" : " !");
        if (differ != 0)
            printf("%d", differ);
    }
    printf("%s\n", listed ? "" : " no un-split candidate");
    return equal;
}

static void e1(struct lab *lab, const int32_t *ms, size_t n)
{
    int equal = 0;

    printf("E1 %s [%d, %d], id/stages/tile of candidates, = bits equal, !n differs in n rows (-1: "
           "refused)\n",
           lab->shape.name, lab->shape.n_out, lab->shape.n_in);
    for (size_t i = 0; i < n; i++)
        equal += e1_rows(lab, ms[i]);
    printf("E1 %s: %d of %d row counts have a candidate equal bit for bit\n", lab->shape.name,
           equal, (int)n);
}

/* E2. Row r of host_other is row r computed alone, by the free choice for m = 1. */
static void e2(struct lab *lab, const int32_t *ms, size_t n)
{
    cublasLtMatmulAlgo_t algo;
    uint16_t *first = lab->x;

    if (ask(lab, 1, 1) < 1)
        return;
    algo = lab->found[0].algo;
    for (int32_t r = 0; r < ms[n - 1]; r++) {
        lab->x = first + (size_t)r * (size_t)lab->ld;
        must(run_lt(lab, lab->y_other + (size_t)r * (size_t)lab->shape.n_out, lab->dense, 1, &algo),
             "cublasLtMatmul");
    }
    lab->x = first;
    fetch(lab, lab->host_other, lab->y_other, ms[n - 1]);
    printf("E2 %s: rows that differ from m=1 under the free choice:", lab->shape.name);
    for (size_t i = 1; i < n; i++) {
        if (ask(lab, ms[i], 1) < 1 || !run_lt(lab, lab->y, lab->dense, ms[i], &lab->found[0].algo))
            continue;
        fetch(lab, lab->host, lab->y, ms[i]);
        printf(" %d/%d", rows_that_differ(lab, lab->host, lab->host_other, ms[i]), ms[i]);
    }
    printf("\n");
}

/* The product that a replay repeats; algo NULL: by the own kernel. */
struct round {
    struct lab *lab;
    const cublasLtMatmulAlgo_t *algo;
    int32_t m;
    int launches;
};

static void issue(void *what)
{
    const struct round *round = what;
    struct lab *lab = round->lab;
    const size_t size = (size_t)sb_cuda_weight_size(SB_BF16, lab->shape.n_out, lab->shape.n_in);

    for (int i = 0; i < round->launches; i++) {
        const uint16_t *w = lab->w + (size_t)(i % lab->copies) * size;
        if (round->algo)
            must(run_lt(lab, lab->y, w, round->m, round->algo), "cublasLtMatmul");
        else
            run_own(lab, lab->y, w, round->m);
    }
}

static double gigabytes(struct lab *lab, int32_t m, const cublasLtMatmulAlgo_t *algo)
{
    struct round round = {lab, algo, m,
                          lab->copies > LEAST_LAUNCHES ? lab->copies : LEAST_LAUNCHES};
    const double us = replay_us(lab->stream, issue, &round, REPEATS);

    return us > 0.0
               ? 2e-3 * (double)lab->shape.n_out * (double)lab->shape.n_in * round.launches / us
               : 0.0;
}

/* Finds the first un-split candidate with the own kernel's bits. */
static int find_equal(cublasLtMatmulAlgo_t *algo, struct lab *lab, int32_t m)
{
    const int n = ask(lab, m, 0);

    run_own(lab, lab->y, lab->w, m);
    fetch(lab, lab->host, lab->y, m);
    for (int i = 0, tried = 0; i < n && tried < LISTED; i++) {
        *algo = lab->found[i].algo;
        if (!is_un_split(lab, algo))
            continue;
        tried++;
        if (compare(lab, m, algo) == 0)
            return 1;
    }
    return 0;
}

static void e3(struct lab *lab)
{
    printf("E3 %s: GB/s own, equal, free:", lab->shape.name);
    for (size_t i = 0; i < COUNT(timed); i++) {
        cublasLtMatmulAlgo_t algo;
        double equal = 0.0, is_free = 0.0;
        if (find_equal(&algo, lab, timed[i]))
            equal = gigabytes(lab, timed[i], &algo);
        if (ask(lab, timed[i], 1) > 0) {
            algo = lab->found[0].algo;
            is_free = gigabytes(lab, timed[i], &algo);
        }
        printf("  m=%d %.0f %.0f %.0f", timed[i], gigabytes(lab, timed[i], NULL), equal, is_free);
    }
    printf("\n");
}

static void open_shape(struct lab *lab, const struct shape *shape)
{
    const size_t bytes = (size_t)MOST * (size_t)shape->n_out * sizeof(float);
    size_t size;

    lab->shape = *shape;
    lab->ld = sb_cuda_ld(SB_BF16, shape->n_in);
    size = (size_t)sb_cuda_weight_size(SB_BF16, shape->n_out, shape->n_in);
    lab->copies = shape->n_out < 1000 ? 2 : copies_of(2 * size, 1 << 10);
    lab->x = take((size_t)MOST * (size_t)lab->ld * 2);
    lab->w = take((size_t)lab->copies * size * 2);
    lab->dense = take(size * 2);
    lab->y = take(bytes);
    lab->y_other = take(bytes);
    must(cudaMallocHost((void **)&lab->host, bytes) == cudaSuccess &&
             cudaMallocHost((void **)&lab->host_other, bytes) == cudaSuccess,
         "pinned memory");
    fill(lab->x, (size_t)MOST * (size_t)lab->ld, 1);
    fill(lab->w, (size_t)lab->copies * size, 2);
    must(sb_cuda_untile(lab->dense, lab->w, 0, shape->n_out, lab->ld, 0, lab->stream) ==
             cudaSuccess,
         "dense rows");
}

static void close_shape(struct lab *lab)
{
    void *const dev[] = {lab->x, lab->w, lab->dense, lab->y, lab->y_other};

    give_all(dev, COUNT(dev));
    must(cudaFreeHost(lab->host) == cudaSuccess && cudaFreeHost(lab->host_other) == cudaSuccess,
         "free");
}

static void open_lab(struct lab *lab)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    char why[320] = "";

    lab->workspace_bytes = (size_t)32 << 20;
    must(cudaStreamCreateWithFlags(&lab->stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    must(sb_cuda_load_kernels(SB_BF16) == cudaSuccess, "loading kernels");
    must(sb_cuda_launch_limits(&lab->limits, SB_BF16) == cudaSuccess, "the device");
    if (!sb_cublaslt_load(&lab->api, why, sizeof why)) {
        printf("FAIL experiments: %s\n", why);
        exit(1);
    }
    must(lab->api.create(&lab->lt) == 0 &&
             lab->api.desc_create(&lab->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0 &&
             lab->api.desc_set(lab->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                               sizeof transposed) == 0,
         "cublasLt");
    lab->workspace = take(lab->workspace_bytes);
    printf("     cublasLt %zu\n", lab->api.version());
}

static void close_lab(struct lab *lab)
{
    must(cudaFree(lab->workspace) == cudaSuccess, "free");
    (void)lab->api.desc_destroy(lab->desc);
    (void)lab->api.destroy(lab->lt);
    (void)cudaStreamDestroy(lab->stream);
}

static void profile(void)
{
    static struct lab lab;

    must(cudaStreamCreateWithFlags(&lab.stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    must(sb_cuda_load_kernels(SB_BF16) == cudaSuccess, "loading kernels");
    must(sb_cuda_launch_limits(&lab.limits, SB_BF16) == cudaSuccess, "the device");
    for (size_t i = 0; i < COUNT(models); i++) {
        if (strncmp(models[i].name, "qwen3-8b", 8) != 0 || strstr(models[i].name, "head"))
            continue;
        open_shape(&lab, &models[i]);
        run_own(&lab, lab.y, lab.w, 6);
        run_own(&lab, lab.y, lab.w, 48);
        must(cudaStreamSynchronize(lab.stream) == cudaSuccess, "a product");
        printf("     %s: m=6, then m=48\n", models[i].name);
        close_shape(&lab);
    }
    (void)cudaStreamDestroy(lab.stream);
    printf("ok   profile\n");
}

/* Prints which libraries are found. cuDNN is found by its name only, and not started. */
static void libraries(void)
{
    static const char *const names[][3] = {{"libcudnn.so.9", NULL},
                                           {"libnvrtc.so.13", "libnvrtc.so.12", NULL},
                                           {"libcuda.so.1", NULL}};
    struct sb_cublaslt api;
    char why[320] = "";

    if (sb_cublaslt_load(&api, why, sizeof why))
        printf("     cuBLASLt %zu\n", api.version());
    else
        printf("     %s\n", why);
    for (size_t i = 0; i < COUNT(names); i++) {
        const char *const *name = names[i];
        const char *one[] = {name[0], NULL};
        while (name[1] && !sb_cuda_library(one, NULL, 0, why, sizeof why))
            one[0] = *++name;
        printf("     %s\n", sb_cuda_library(one, NULL, 0, why, sizeof why) ? one[0] : why);
    }
}

int main(int argc, char **argv)
{
    const int is_tiny = argc > 1 && strcmp(argv[1], "--tiny") == 0;
    static struct lab lab;
    int devices = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && strcmp(argv[1], "--libraries") == 0) {
        libraries();
        return 0;
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("FAIL experiments: no GPU here\n");
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "--profile") == 0) {
        profile();
        return 0;
    }
    open_lab(&lab);
    for (size_t i = 0; i < (is_tiny ? COUNT(tiny) : COUNT(models)); i++) {
        open_shape(&lab, is_tiny ? &tiny[i] : &models[i]);
        e1(&lab, is_tiny ? few_rows : rows, is_tiny ? COUNT(few_rows) : COUNT(rows));
        e2(&lab, is_tiny ? few_rows : rows, is_tiny ? COUNT(few_rows) : COUNT(rows));
        e3(&lab);
        close_shape(&lab);
    }
    close_lab(&lab);
    printf("ok   experiments\n");
    return 0;
}
