/*
 * Measures the CPU kernels against what the machine can do.
 *
 *   bench_kernels [ROUNDS [CASE]]      5 rounds; only the cases whose title contains CASE
 *
 * The weights are several matrices of 256 MiB or more together, which are multiplied with in turn,
 * so that every product reads them from memory and not from a cache. Each product is measured
 * beside a plain read of the same bytes by the same number of threads. The two alternate, and the
 * ratio is that of their medians, since other programs may use the machine meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "port.h"
#include "specbatch.h"
#include "support/median.h"
#include "backend/threads.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { N_OUT = 4096, N_IN = 4096, MAX_M = 48, MAX_ROUNDS = 51 };

static const struct sb_mem mem = {NULL, NULL, NULL};
static const struct sb_backend *cpu;
static volatile float sink;

static void need(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "bench_kernels: %s: %s\n", what, specbatch_last_error());
        exit(1);
    }
}

static double seconds(void)
{
    return (double)sb_port_now_ns() * 1e-9;
}

/* ------------------------------------------------------------------ plain reading */

#if defined(__x86_64__)
/* Memory is slower than SSE, which every such processor has. */
static float read_sum(const float *data, int64_t n)
{
    __m128 sum[8];
    float lanes[4];

    for (int j = 0; j < 8; j++)
        sum[j] = _mm_setzero_ps();
    for (int64_t i = 0; i + 32 <= n; i += 32)
        for (int j = 0; j < 8; j++)
            sum[j] = _mm_add_ps(sum[j], _mm_load_ps(data + i + 4 * j));
    for (int j = 1; j < 8; j++)
        sum[0] = _mm_add_ps(sum[0], sum[j]);
    _mm_storeu_ps(lanes, sum[0]);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}
#else
static float read_sum(const float *data, int64_t n)
{
    float sum[16] = {0};
    for (int64_t i = 0; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            sum[j] += data[i + j];
    return sum[0] + sum[7];
}
#endif

enum { PAGE = 65536 / 4 }; /* floats in one item of the read */

static void read_range(void *ctx, int64_t first, int64_t last)
{
    sink = read_sum((const float *)ctx + first * PAGE, (last - first) * PAGE);
}

/* ------------------------------------------------------------------ gemm */

struct bench {
    struct sb_device *device;
    struct sb_exec *exec;
    struct sb_threads *threads; /* for the read, as many as exec has */
    struct sb_weight *weights;
    int n_weights, n_threads;
    float *x, *y; /* [MAX_M, N_IN], [MAX_M, N_OUT] */
};

static double read_once(struct bench *b)
{
    double start = seconds();
    for (int i = 0; i < b->n_weights; i++)
        sb_threads_for(b->threads, (int64_t)b->weights[i].bytes / (PAGE * 4), 8, read_range,
                       b->weights[i].data);
    return seconds() - start;
}

static double gemm_once(struct bench *b, int32_t m)
{
    double start = seconds();
    for (int i = 0; i < b->n_weights; i++)
        cpu->gemm(b->exec, b->y, b->x, &b->weights[i], NULL, m);
    return seconds() - start;
}

static void bench_gemm(struct bench *b, const char *title, int rounds)
{
    static const int32_t ms[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
    double bytes = (double)b->weights[0].bytes * b->n_weights,
           flops = 2.0 * N_OUT * N_IN * b->n_weights;
    double reads[MAX_ROUNDS], times[MAX_ROUNDS];

    printf("\n%s, %d thread%s, %.0f MiB of weights\n", title, b->n_threads,
           b->n_threads > 1 ? "s" : "", bytes / 1048576.0);
    printf("%6s %10s %10s %10s %10s\n", "rows", "GB/s", "read GB/s", "ratio", "GFLOP/s");
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
        for (int r = 0; r < rounds; r++) {
            reads[r] = read_once(b);
            times[r] = gemm_once(b, ms[i]);
        }
        double read = median(reads, rounds), time = median(times, rounds);
        printf("%6d %10.1f %10.1f %10.2f %10.1f\n", (int)ms[i], bytes / time * 1e-9,
               bytes / read * 1e-9, read / time, flops * ms[i] / time * 1e-9);
    }
}

/* A row of weights. The values do not matter, unless they are denormals, which no pattern makes. */
static char *make_row(enum sb_dtype dtype)
{
    static float values[N_IN];
    char *row = calloc(N_IN, 4);

    need(row != NULL, "no memory");
    for (int k = 0; k < N_IN; k++)
        values[k] = (float)(k % 89 - 44) * 0.01f;
    if (sb_dtype_is_quantised(dtype))
        for (size_t at = 0; at < sb_dtype_row_bytes(dtype, N_IN); at++)
            row[at] = (char)(at % 2 ? 0x2c : at % 97); /* no f16 made of these is a denormal */
    else
        sb_convert(row, dtype, values, SB_F32, N_IN);
    return row;
}

static void bench_open(struct bench *b, int32_t compute, enum sb_dtype dtype, int32_t simd,
                       int n_threads)
{
    struct sb_device_options options = {.compute = compute, .simd = simd};
    struct sb_exec_limits limits = {.max_tokens = MAX_M,
                                    .max_width = N_IN,
                                    .max_len = 8192,
                                    .max_heads = 64,
                                    .max_head_dim = 128};
    char *row = make_row(dtype);

    b->n_threads = n_threads;
    b->n_weights = dtype == SB_F32 && compute == SPECBATCH_COMPUTE_F32 ? 4
                   : sb_dtype_is_quantised(dtype)                      ? 20
                                                                       : 8;
    b->weights = calloc((size_t)b->n_weights, sizeof *b->weights);
    b->x = calloc((size_t)MAX_M * N_IN, 4);
    b->y = calloc((size_t)MAX_M * N_OUT, 4);
    need(b->weights && b->x && b->y, "no memory");
    need(cpu->device_open(&b->device, &mem, &options) == 0, "device");
    need(sb_threads_create(&b->threads, &mem, n_threads) == 0, "threads");
    for (int i = 0; i < MAX_M * N_IN; i++)
        b->x[i] = (float)(i % 97 - 48) * 0.01f;
    for (int i = 0; i < b->n_weights; i++) {
        b->weights[i] = (struct sb_weight){.n_out = N_OUT, .n_in = N_IN};
        need(cpu->weight_create(&b->weights[i], b->device, &mem, dtype) == 0, "weight");
        for (int32_t r = 0; r < N_OUT; r++)
            cpu->weight_fill(&b->weights[i], b->device, r, 1, row, dtype);
    }
    need(cpu->exec_create(&b->exec, b->device, &mem, n_threads, &limits, NULL) == 0, "exec");
    free(row);
}

static void bench_close(struct bench *b)
{
    for (int i = 0; i < b->n_weights; i++)
        cpu->weight_free(&b->weights[i], b->device, &mem);
    sb_threads_free(b->threads);
    cpu->exec_free(b->exec);
    cpu->device_close(b->device);
    free(b->weights);
    free(b->x);
    free(b->y);
}

/* ------------------------------------------------------------------ attention */

/* A class of attention. */
struct attention_class {
    const char *name;
    int32_t compute, kv, simd; /* SPECBATCH_COMPUTE_*, SPECBATCH_KV_*, SPECBATCH_SIMD_* */
};

/* Attends for the last q tokens of each of `rows` sequences of `len` tokens, and compares the GB/s
 * at which that reads K and V with a plain read. */
static void bench_attention(const struct attention_class *class, int n_threads, int32_t heads,
                            int32_t kv_heads, int32_t dim, int32_t rows, int32_t len, int32_t q,
                            int rounds)
{
    struct sb_device_options options = {
        .compute = class->compute, .simd = class->simd, .kv = class->kv};
    const enum sb_dtype type = sb_kv_dtype(class->kv, SB_F32);
    const size_t element = sb_dtype_size(type);
    struct sb_exec_limits limits = {.max_tokens = rows * q,
                                    .max_width = 64,
                                    .max_len = len,
                                    .max_heads = heads,
                                    .max_head_dim = dim};
    struct sb_device *device;
    struct sb_exec *exec;
    struct sb_threads *threads;
    int64_t slot = (int64_t)kv_heads * len * dim, plane = rows * slot;
    int64_t base[64];
    int32_t cap[64], start[64] = {0}, pos[512], seq[512];
    struct sb_attention a = {.heads = heads, .kv_heads = kv_heads, .head_dim = dim, .scale = 0.1f};
    struct sb_pass pass = {.n_tokens = rows * q,
                           .n_seqs = rows,
                           .max_len = len,
                           .pos = pos,
                           .seq = seq,
                           .base = base,
                           .cap = cap,
                           .start = start};
    double reads[MAX_ROUNDS], times[MAX_ROUNDS];

    need(cpu->device_open(&device, &mem, &options) == 0 &&
             cpu->exec_create(&exec, device, &mem, n_threads, &limits, NULL) == 0 &&
             sb_threads_create(&threads, &mem, n_threads) == 0,
         "attention");
    char *planes = sb_alloc_raw(&mem, (size_t)plane * 2, element);
    float *qkv = sb_alloc(&mem, (size_t)pass.n_tokens,
                          (size_t)(heads + 2 * kv_heads) * (size_t)dim * 4);
    float *y = sb_alloc(&mem, (size_t)pass.n_tokens, (size_t)heads * (size_t)dim * 4);
    need(planes && qkv && y, "no memory");
    for (int64_t i = 0; i < 2 * plane; i++) {
        const float value = (float)(i % 101 - 50) * 0.01f;
        sb_convert(planes + (size_t)i * element, type, &value, SB_F32, 1);
    }
    for (int64_t i = 0; i < (int64_t)pass.n_tokens * (heads + 2 * kv_heads) * dim; i++)
        qkv[i] = (float)(i % 31 - 15) * 0.1f;
    a.k = planes;
    a.v = planes + (size_t)plane * element;
    for (int32_t t = 0; t < pass.n_tokens; t++) {
        seq[t] = t / q;
        pos[t] = len - q + t % q;
        base[t / q] = t / q * slot;
        cap[t / q] = len;
    }
    for (int r = 0; r < rounds; r++) {
        double t0 = seconds();
        sb_threads_for(threads, 2 * plane * (int64_t)element / 4 / PAGE, 8, read_range, planes);
        double t1 = seconds();
        cpu->attend(exec, y, qkv, &a, &pass);
        reads[r] = t1 - t0;
        times[r] = seconds() - t1;
    }
    double read = median(reads, rounds), time = median(times, rounds),
           bytes = 2.0 * (double)plane * (double)element;
    printf("%-11s %4d %3d %4d %5d %6d %3d %10.1f %10.1f %10.2f %10.1f %10.1f\n", class->name,
           (int)heads, (int)kv_heads, (int)dim, (int)rows, (int)len, (int)q, bytes / time * 1e-9,
           bytes / read * 1e-9, read / time,
           4.0 * heads * dim * (double)len * rows * q / time * 1e-9, time * 1e6);
    sb_free(&mem, planes);
    sb_free(&mem, qkv);
    sb_free(&mem, y);
    sb_threads_free(threads);
    cpu->exec_free(exec);
    cpu->device_close(device);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *title;
        int32_t compute;
        enum sb_dtype dtype;
        int32_t simd;
    } cases[] = {{"f32 weights", SPECBATCH_COMPUTE_F32, SB_F32, SPECBATCH_SIMD_AUTO},
                 {"bf16 weights", SPECBATCH_COMPUTE_F32, SB_BF16, SPECBATCH_SIMD_AUTO},
                 {"f16 weights", SPECBATCH_COMPUTE_F32, SB_F16, SPECBATCH_SIMD_AUTO},
                 {"bf16 compute", SPECBATCH_COMPUTE_BF16, SB_BF16, SPECBATCH_SIMD_AUTO},
                 {"f32 weights, AVX2", SPECBATCH_COMPUTE_F32, SB_F32, SPECBATCH_SIMD_AVX2},
                 {"split compute", SPECBATCH_COMPUTE_SPLIT, SB_BF16, SPECBATCH_SIMD_AUTO},
                 {"bf16 weights, AVX2", SPECBATCH_COMPUTE_F32, SB_BF16, SPECBATCH_SIMD_AVX2},
                 {"bf16 compute, AVX2", SPECBATCH_COMPUTE_BF16, SB_BF16, SPECBATCH_SIMD_AVX2},
                 {"q8_0 weights", SPECBATCH_COMPUTE_F32, SB_Q8_0, SPECBATCH_SIMD_AUTO},
                 {"q4_0 weights", SPECBATCH_COMPUTE_F32, SB_Q4_0, SPECBATCH_SIMD_AUTO},
                 {"q4_k weights", SPECBATCH_COMPUTE_F32, SB_Q4_K, SPECBATCH_SIMD_AUTO},
                 {"q6_k weights", SPECBATCH_COMPUTE_F32, SB_Q6_K, SPECBATCH_SIMD_AUTO},
                 {"mxfp4 weights", SPECBATCH_COMPUTE_F32, SB_MXFP4, SPECBATCH_SIMD_AUTO},
                 {"bf16 compute, q8_0", SPECBATCH_COMPUTE_BF16, SB_Q8_0, SPECBATCH_SIMD_AUTO},
                 {"bf16 compute, q4_0", SPECBATCH_COMPUTE_BF16, SB_Q4_0, SPECBATCH_SIMD_AUTO},
                 {"int8 compute, q8_0", SPECBATCH_COMPUTE_INT8, SB_Q8_0, SPECBATCH_SIMD_AUTO},
                 {"int8 compute, q4_0", SPECBATCH_COMPUTE_INT8, SB_Q4_0, SPECBATCH_SIMD_AUTO},
                 {"int8 compute, mxfp4", SPECBATCH_COMPUTE_INT8, SB_MXFP4, SPECBATCH_SIMD_AUTO},
                 {"q4_0 weights, AVX2", SPECBATCH_COMPUTE_F32, SB_Q4_0, SPECBATCH_SIMD_AVX2},
                 {"q8_0 weights, AVX2", SPECBATCH_COMPUTE_F32, SB_Q8_0, SPECBATCH_SIMD_AVX2}};
    static const int32_t shapes[][6] = {
        /* heads, kv_heads, head_dim, rows, len, q */
        {32, 8, 128, 8, 4096, 1},   {32, 8, 128, 8, 4096, 6},   {32, 32, 64, 8, 2048, 1},
        {32, 32, 64, 8, 2048, 6},   {32, 8, 128, 8, 128, 1},    {32, 8, 128, 8, 128, 6},
        {16, 2, 64, 1, 8192, 1},    {32, 8, 128, 1, 1024, 128}, {16, 8, 128, 1, 1024, 1},
        {16, 8, 128, 1, 1024, 128}, {16, 8, 128, 1, 140, 6}};
    static const struct attention_class classes[] = {
        {"f32", SPECBATCH_COMPUTE_F32, SPECBATCH_KV_F32, SPECBATCH_SIMD_AUTO},
        {"kv bf16", SPECBATCH_COMPUTE_F32, SPECBATCH_KV_BF16, SPECBATCH_SIMD_AUTO},
        {"kv f16", SPECBATCH_COMPUTE_F32, SPECBATCH_KV_F16, SPECBATCH_SIMD_AUTO},
        {"bf16", SPECBATCH_COMPUTE_BF16, SPECBATCH_KV_BF16, SPECBATCH_SIMD_AUTO},
        {"split", SPECBATCH_COMPUTE_SPLIT, SPECBATCH_KV_BF16, SPECBATCH_SIMD_AUTO},
        {"f32, AVX2", SPECBATCH_COMPUTE_F32, SPECBATCH_KV_BF16, SPECBATCH_SIMD_AVX2},
        {"bf16, AVX2", SPECBATCH_COMPUTE_BF16, SPECBATCH_KV_BF16, SPECBATCH_SIMD_AVX2}};
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    const char *only = argc > 2 ? argv[2] : "";
    struct sb_fp_env env;

    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    cpu = sb_backend_cpu();
    sb_port_fp_enter(&env);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 2; threads++) {
            struct bench b;
            if (!strstr(cases[i].title, only))
                continue;
            bench_open(&b, cases[i].compute, cases[i].dtype, cases[i].simd, threads);
            bench_gemm(&b, cases[i].title, rounds);
            bench_close(&b);
        }
    if (!*only || strstr("attention", only)) {
        printf("\nattention (K and V read against a plain read of them)\n%-11s %4s %3s %4s %5s %6s "
               "%3s "
               "%10s %10s %10s %10s %10s\n",
               "class", "h", "kv", "dim", "rows", "len", "q", "GB/s", "read GB/s", "ratio",
               "GFLOP/s", "us");
        for (int threads = 1; threads <= 2; threads++) {
            printf("%d thread(s)\n", threads);
            for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++)
                for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
                    bench_attention(&classes[i], threads, shapes[c][0], shapes[c][1], shapes[c][2],
                                    shapes[c][3], shapes[c][4], shapes[c][5], rounds);
        }
    }
    return 0;
}
