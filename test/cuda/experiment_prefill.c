/*
 * What only a GPU can tell about prefill by cuDNN. test/cuda/run_on_gpu.sh runs it; the simulator
 * runs it with --tiny, which shows that the program works, and its figures mean nothing.
 * `experiment_prefill qwen3-8b bf16` takes one shape in one type, since each costs a self-test, for
 * which NVRTC compiles every plan by itself.
 *
 *   E6   for the models' shapes of attention: whether an engine of cuDNN passes the self-test and
 *        which, how long that takes, how far its results are from the own kernel's, microseconds a
 *        span by either
 *
 * FAIL, and exit status 1, where cuDNN is there and no engine passes for some shape: then the own
 * kernel computes it, to the same promise, but somebody has to look.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/device.h"
#include "backend/cuda/memory.h"
#include "kernels/cuda/launch.h"
#include "port.h"
#include "status.h"

struct shape {
    const char *name;
    struct sb_geometry geometry;
};

/* A model that cuDNN suits: without windows, sinks and soft caps. */
#define SHAPE(heads_, kv_heads_, head_dim_, context_)                                              \
    {                                                                                              \
        .heads = (heads_), .kv_heads = (kv_heads_), .head_dim = (head_dim_), .context = (context_) \
    }

static const struct shape models[] = {
    {"qwen3-8b", SHAPE(32, 8, 128, 8192)},  {"vicuna-7b", SHAPE(32, 32, 128, 4096)},
    {"glm4-9b", SHAPE(32, 2, 128, 8192)},   {"qwen3-0.6b", SHAPE(16, 8, 128, 8192)},
    {"llama-68m", SHAPE(12, 12, 64, 2048)},
};
static const struct shape tiny[] = {{"tiny", SHAPE(2, 1, 64, 512)}};
enum { REPEATS = 20 };

static void must(int good, const char *what)
{
    if (!good) {
        printf("FAIL experiment_prefill: %s: %s, %s\n", what, sb_last_error(),
               cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
}

/* One span at the end of a slot of the class, and everything that cuDNN and the own kernel need to
 * compute it. */
struct lab {
    struct sb_device *device;
    struct sb_prefill *prefill;
    float *qkv;
    char *k, *v, *y, *y_own, *scratch;
    int32_t *pos, *seq, *cap_start;
    int64_t *base;
    cudaEvent_t from, to;
    size_t n; /* elements of a result */
};

static void *take(const struct lab *lab, size_t bytes)
{
    void *dev = NULL;
    must(sb_cuda_alloc(&dev, &lab->device->gpu, bytes) == SPECBATCH_OK, "memory");
    return dev;
}

/* Values that look normally distributed with deviation 1, the same ones at every run. */
static float some(uint32_t *state)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        *state = *state * 1664525u + 1013904223u;
        sum += (float)(*state >> 8) / 8388608.0f - 1.0f;
    }
    return sum * 0.866f;
}

static void fill_plane(const struct lab *lab, char *plane, size_t n, uint32_t seed)
{
    uint16_t *host = malloc(n * sizeof *host);

    must(host != NULL, "memory");
    for (size_t i = 0; i < n; i++) {
        const float value = some(&seed);
        sb_convert(&host[i], lab->device->type, &value, SB_F32, 1);
    }
    must(sb_cuda_upload(NULL, plane, host, n * sizeof *host) == SPECBATCH_OK, "upload");
    free(host);
}

static void fill_queries(const struct lab *lab, size_t n)
{
    float *host = malloc(n * sizeof *host);
    uint32_t seed = 3;

    must(host != NULL, "memory");
    for (size_t i = 0; i < n; i++)
        host[i] = some(&seed);
    must(sb_cuda_upload(NULL, lab->qkv, host, n * sizeof *host) == SPECBATCH_OK, "upload");
    free(host);
}

static void open_lab(struct lab *lab)
{
    const struct sb_geometry *g = &lab->prefill->calls.geometry;
    const int32_t cap = lab->prefill->first->cap, ints[2] = {cap, 0};
    const size_t plane = (size_t)g->kv_heads * (size_t)cap * (size_t)g->head_dim;
    const size_t queries = (size_t)SB_SPAN * (size_t)(g->heads + 2 * g->kv_heads) *
                           (size_t)g->head_dim;

    lab->n = (size_t)SB_SPAN * (size_t)g->heads * (size_t)g->head_dim;
    lab->qkv = take(lab, queries * sizeof(float));
    lab->k = take(lab, 2 * plane);
    lab->v = take(lab, 2 * plane);
    lab->y = take(lab, 2 * lab->n);
    lab->y_own = take(lab, 2 * lab->n);
    lab->scratch = take(lab, sb_prefill_scratch(lab->prefill));
    lab->pos = take(lab, SB_SPAN * sizeof(int32_t));
    lab->seq = take(lab, SB_SPAN * sizeof(int32_t));
    lab->cap_start = take(lab, sizeof ints);
    lab->base = take(lab, sizeof(int64_t));
    must(sb_cuda_upload(NULL, lab->cap_start, ints, sizeof ints) == SPECBATCH_OK, "upload");
    fill_plane(lab, lab->k, plane, 1);
    fill_plane(lab, lab->v, plane, 2);
    fill_queries(lab, queries);
    must(cudaEventCreate(&lab->from) == cudaSuccess && cudaEventCreate(&lab->to) == cudaSuccess,
         "events");
}

static void close_lab(const struct lab *lab)
{
    void *const dev[] = {lab->qkv,     lab->k,   lab->v,   lab->y,         lab->y_own,
                         lab->scratch, lab->pos, lab->seq, lab->cap_start, lab->base};

    for (size_t i = 0; i < sizeof dev / sizeof dev[0]; i++)
        (void)cudaFree(dev[i]);
    (void)cudaEventDestroy(lab->from);
    (void)cudaEventDestroy(lab->to);
}

static cudaError_t attend(const struct lab *lab, int32_t span, int by_cudnn)
{
    const struct sb_geometry *g = &lab->prefill->calls.geometry;
    const struct sb_span one = {.pos = span * SB_SPAN, .cap = lab->prefill->first->cap};
    const struct sb_attention attention = {.heads = g->heads,
                                           .kv_heads = g->kv_heads,
                                           .head_dim = g->head_dim,
                                           .scale = (float)(1.0 / sqrt((double)g->head_dim)),
                                           .k = lab->k,
                                           .v = lab->v};
    const struct sb_pass pass = {.n_tokens = SB_SPAN,
                                 .n_seqs = 1,
                                 .max_len = (span + 1) * SB_SPAN,
                                 .pos = lab->pos,
                                 .seq = lab->seq,
                                 .base = lab->base,
                                 .cap = lab->cap_start,
                                 .start = lab->cap_start + 1,
                                 .n_spans = 1,
                                 .spans = &one};

    return by_cudnn ? sb_prefill_attend(lab->prefill, lab->y, lab->qkv, &attention, &pass,
                                        lab->scratch, NULL, lab->device->gpu.load)
                    : sb_cuda_attend_mma(lab->y_own, lab->device->type, lab->qkv, &attention, &pass,
                                         NULL, NULL, lab->device->gpu.load);
}

static double microseconds(const struct lab *lab, int32_t span, int by_cudnn)
{
    float ms = 0.0f;

    for (int i = -2; i < REPEATS; i++) {
        if (i == 0)
            must(cudaEventRecord(lab->from, lab->device->gpu.load) == cudaSuccess, "event");
        must(attend(lab, span, by_cudnn) == cudaSuccess, "attention");
    }
    must(cudaEventRecord(lab->to, lab->device->gpu.load) == cudaSuccess &&
             cudaEventSynchronize(lab->to) == cudaSuccess &&
             cudaEventElapsedTime(&ms, lab->from, lab->to) == cudaSuccess,
         "event");
    return (double)ms * 1000.0 / REPEATS;
}

static double largest_difference(const struct lab *lab)
{
    uint16_t *host = malloc(4 * lab->n);
    double largest = 0.0;

    must(host != NULL && cudaStreamSynchronize(lab->device->gpu.load) == cudaSuccess &&
             sb_cuda_download(NULL, host, lab->y, 2 * lab->n) == SPECBATCH_OK &&
             sb_cuda_download(NULL, host + lab->n, lab->y_own, 2 * lab->n) == SPECBATCH_OK,
         "download");
    for (size_t i = 0; i < lab->n; i++) {
        float a, b;
        sb_convert(&a, SB_F32, &host[i], lab->device->type, 1);
        sb_convert(&b, SB_F32, &host[lab->n + i], lab->device->type, 1);
        if (!(fabs((double)a - (double)b) <= largest))
            largest = fabs((double)a - (double)b);
    }
    free(host);
    return largest;
}

static void e6_span(const struct lab *lab, int32_t span, int is_timed)
{
    int32_t pos[SB_SPAN];

    for (int32_t t = 0; t < SB_SPAN; t++)
        pos[t] = span * SB_SPAN + t;
    must(sb_cuda_upload(NULL, lab->pos, pos, sizeof pos) == SPECBATCH_OK, "upload");
    must(attend(lab, span, 0) == cudaSuccess && attend(lab, span, 1) == cudaSuccess, "attention");
    printf("     %d keys: largest difference %.3g", (span + 1) * SB_SPAN, largest_difference(lab));
    if (is_timed)
        printf("; us a span: own %.1f, cuDNN %.1f", microseconds(lab, span, 0),
               microseconds(lab, span, 1));
    printf("\n");
}

/* Returns 0 where cuDNN is there and none of its engines passes. */
static int e6(const struct shape *shape, enum sb_dtype type, const struct sb_log *log, int is_tiny)
{
    const struct sb_mem mem = {NULL, NULL, NULL};
    const struct sb_device_options options = {
        .compute = SPECBATCH_COMPUTE_BF16, .log = log, .prefill = SPECBATCH_PREFILL_CUDNN};
    const uint64_t began = sb_port_now_ns();
    struct lab lab = {.device = NULL};
    int32_t span = 0;

    must(sb_cuda_device_open(&lab.device, &mem, &options) == SPECBATCH_OK &&
             sb_cuda_set_type(lab.device, type) == SPECBATCH_OK,
         "device");
    must(sb_cuda_calibrate(&span, lab.device, &shape->geometry) == SPECBATCH_OK, "self-test");
    lab.prefill = lab.device->prefill;
    printf("E6 %-10s %s: prefill %s, %.2f s\n", shape->name, sb_dtype_name(type),
           sb_prefill_class(lab.prefill), (double)(sb_port_now_ns() - began) / 1e9);
    if (lab.prefill) {
        open_lab(&lab);
        for (int32_t n = 1; n <= lab.prefill->n_spans; n *= 2)
            e6_span(&lab, n - 1, !is_tiny);
        close_lab(&lab);
    }
    sb_cuda_device_close(lab.device);
    return span > 0;
}

static void print_log(void *user, int32_t level, const char *line)
{
    (void)user, (void)level;
    printf("     %s\n", line);
}

int main(int argc, char **argv)
{
    const int is_tiny = argc > 1 && strcmp(argv[1], "--tiny") == 0;
    const struct sb_log log = {print_log, NULL};
    const struct sb_mem mem = {NULL, NULL, NULL};
    const struct shape *shapes = is_tiny ? tiny : models;
    const size_t n = is_tiny ? sizeof tiny / sizeof tiny[0] : sizeof models / sizeof models[0];
    struct sb_sdpa *sdpa = NULL;
    char why[320] = "";
    int good = 1, devices = 0, ran = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("FAIL experiment_prefill: no GPU here\n");
        return 1;
    }
    must(sb_sdpa_open(&sdpa, &mem, why, sizeof why) == SPECBATCH_OK, "cuDNN");
    if (!sdpa) {
        printf("SKIP experiment_prefill: %s\n", why);
        return 0;
    }
    sb_sdpa_close(sdpa);
    for (int type = SB_BF16; type <= SB_F16; type++)
        for (size_t i = 0; i < n; i++) {
            if (!is_tiny && argc > 1 && strcmp(argv[1], shapes[i].name) != 0)
                continue;
            if (argc > 2 && strcmp(argv[2], sb_dtype_name((enum sb_dtype)type)) != 0)
                continue;
            good &= e6(&shapes[i], (enum sb_dtype)type, &log, is_tiny);
            ran++;
        }
    good &= ran > 0;
    printf("%s experiment_prefill\n", good ? "ok  " : "FAIL");
    return !good;
}
