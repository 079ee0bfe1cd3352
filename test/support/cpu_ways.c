/* Devices and inputs for the kernel tests; see cpu_ways.h. The conversions between number formats
 * do not use the library's own, since they are there to test those. */
#include "support/cpu_ways.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu_ops.h"
#include "port.h"
#include "specbatch.h"

const struct sb_mem cpu_mem = {NULL, NULL, NULL};

static const char *const levels[] = {"", "scalar", "avx2", "avx512"};
static const char *const names[] = {"chain",
                                    "fma",
                                    "dot",
                                    "tiles",
                                    "emulated tiles",
                                    "integers",
                                    "integer dots",
                                    "integer tiles",
                                    "emulated integer tiles"};

/* Whether this machine can form products in this way at this level. Tiles are emulated at each. */
static int has_products(int32_t level, enum sb_products products)
{
    const int is_avx512 = level == SPECBATCH_SIMD_AVX512;

    switch (products) {
    case SB_BLOCKS_DOT:
        return is_avx512 && sb_port_has_avx512_bf16();
    case SB_INTEGERS_DOT:
        return is_avx512 && sb_port_has_avx512_vnni();
    case SB_BLOCKS_TILES:
        return is_avx512 && sb_cpu_has_matrix_unit(SPECBATCH_SIMD_AMX);
    case SB_INTEGERS_TILES:
        return is_avx512 && sb_cpu_has_matrix_unit(SPECBATCH_SIMD_AMX) && sb_port_has_amx_int8();
    default:
        return 1;
    }
}

/* Opens one way, unless this machine does not have it. Returns how many ways were opened. The
 * buffer for inputs begins with NaNs, which show if more of it is read than was written. */
static int open_way(struct cpu *way, int32_t compute, int32_t kv, int32_t level,
                    enum sb_products products, int32_t threads)
{
    const struct sb_backend *cpu = sb_backend_cpu();
    const struct sb_device_options options = {.compute = compute, .simd = level, .kv = kv};
    const struct sb_exec_limits limits = {.max_tokens = 256,
                                          .max_width = 8192,
                                          .max_len = 1024,
                                          .max_heads = 64,
                                          .max_head_dim = 576,
                                          .max_expert_width = 1024,
                                          .max_experts = 301,
                                          .max_chosen = 36};

    if (!has_products(level, products))
        return 0;
    int32_t rc = cpu->device_open(&way->device, &cpu_mem, &options);
    if (rc == SPECBATCH_E_UNSUPPORTED)
        return 0;
    if (rc == SPECBATCH_OK) {
        if (sb_cpu_is_integers(products)) {
            way->device->blocks = SB_BLOCKS_FMA;
            way->device->integers = products;
        } else {
            way->device->blocks = products;
        }
        way->device->is_quantised = way->device->has_mins = way->device->has_halves = 1;
        rc = cpu->exec_create(&way->exec, way->device, &cpu_mem, threads, &limits, NULL);
    }
    if (rc != SPECBATCH_OK) {
        fprintf(stderr, "cannot open the CPU: %s\n", specbatch_last_error());
        exit(2);
    }
    if (products != SB_CHAIN)
        memset(way->exec->inputs, 0xff,
               (size_t)sb_cpu_inputs_words(products, sb_form_parts(sb_cpu_form(way->device)),
                                           limits.max_tokens, limits.max_width) *
                   sizeof(uint32_t));
    snprintf(way->name, sizeof way->name, "%s, %s, %d threads", levels[level], names[products],
             (int)threads);
    return 1;
}

int cpu_open(struct cpu ways[CPU_WAYS], int32_t compute)
{
    return cpu_open_kv(ways, compute, SB_F32);
}

int cpu_open_kv(struct cpu ways[CPU_WAYS], int32_t compute, enum sb_dtype kv)
{
    static const struct {
        enum sb_products first, last;
    } all[] = {[SPECBATCH_COMPUTE_BF16] = {SB_BLOCKS_FMA, SB_BLOCKS_EMULATED},
               [SPECBATCH_COMPUTE_F32] = {SB_CHAIN, SB_CHAIN},
               [SPECBATCH_COMPUTE_SPLIT] = {SB_BLOCKS_FMA, SB_BLOCKS_EMULATED},
               [SPECBATCH_COMPUTE_INT8] = {SB_INTEGERS, SB_INTEGERS_EMULATED}};
    const int32_t option = kv == SB_F32    ? SPECBATCH_KV_F32
                           : kv == SB_BF16 ? SPECBATCH_KV_BF16
                                           : SPECBATCH_KV_F16;
    int n = 0;

    for (int32_t level = SPECBATCH_SIMD_SCALAR; level <= SPECBATCH_SIMD_AVX512; level++)
        for (int products = (int)all[compute].first; products <= (int)all[compute].last; products++)
            for (int32_t threads = 1; threads <= 3; threads += 2)
                n += open_way(&ways[n], compute, option, level, (enum sb_products)products,
                              threads);
    return n;
}

void cpu_close(struct cpu *ways, int n)
{
    for (int i = 0; i < n; i++) {
        sb_backend_cpu()->exec_free(ways[i].exec);
        sb_backend_cpu()->device_close(ways[i].device);
    }
}

void cpu_set_kv(struct cpu *ways, int n, enum sb_dtype kv)
{
    for (int i = 0; i < n; i++)
        ways[i].device->kv = kv;
}

/* ------------------------------------------------------------------ products */

int cpu_weight(struct sb_weight *weight, const struct cpu *way, const void *rows, int n, int k,
               enum sb_dtype dtype)
{
    const struct sb_backend *cpu = sb_backend_cpu();
    const size_t row_bytes = sb_dtype_row_bytes(dtype, (size_t)k);
    int first = 0, end = n;

    *weight = (struct sb_weight){.n_out = n, .n_in = k};
    if (cpu->weight_create(weight, way->device, &cpu_mem, dtype) != SPECBATCH_OK)
        return 0;
    while (first < end) { /* from both ends */
        const int piece = 1 + (int)(cpu_random() % 100), left = end - first;
        const int count = piece < left ? piece : left;
        const int at = cpu_random() % 2 ? first : end - count;
        if (cpu->weight_fill(weight, way->device, at, count,
                             (const char *)rows + (size_t)at * row_bytes, dtype) != SPECBATCH_OK)
            return 0;
        end = at == first ? end : at;
        first = at == first ? at + count : first;
    }
    return 1;
}

int cpu_rows_agree(const struct cpu *way, const struct sb_weight *weight, const float *x,
                   int n_base, const float *expected, const float *bias, int m)
{
    const int64_t k = weight->n_in;
    int64_t n = 0;
    int agree = 1, from[256];

    for (const struct sb_weight *w = weight; w; w = w->next)
        n += w->n_out;
    float *shuffled = cpu_memory((size_t)m * (size_t)k * sizeof(float)), *y = cpu_floats(m * n);
    for (int r = 0; r < m; r++) {
        from[r] = (int)(cpu_random() % (uint32_t)n_base);
        memcpy(shuffled + r * k, x + from[r] * k, (size_t)k * sizeof(float));
    }
    sb_backend_cpu()->gemm(way->exec, y, shuffled, weight, bias, m);
    for (int r = 0; r < m; r++)
        agree &= cpu_first_difference(y + r * n, expected + from[r] * n, n) < 0;
    free(shuffled);
    free(y);
    return agree;
}

/* ------------------------------------------------------------------ inputs */

uint32_t cpu_random(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

float cpu_uniform(void)
{
    return (float)(cpu_random() >> 8) * 0x1p-23f - 1.0f;
}

float cpu_any_bits(void)
{
    uint32_t bits = cpu_random();
    float value;

    if (cpu_random() % 4 == 0)
        bits &= 0x83ffffffu; /* a denormal, or a number nearly as small */
    memcpy(&value, &bits, sizeof value);
    return value;
}

void *cpu_memory(size_t bytes)
{
    void *block = malloc(bytes > 0 ? bytes : 1);
    if (!block) {
        fprintf(stderr, "no memory for a test\n");
        exit(2);
    }
    return block;
}

float *cpu_floats(int64_t n)
{
    float *values = cpu_memory((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        values[i] = cpu_uniform();
    return values;
}

int64_t cpu_first_difference(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return i;
    return -1;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float cpu_widen(const void *rows, int64_t i, enum sb_dtype dtype)
{
    uint32_t bits;
    float value;

    if (dtype == SB_F32)
        return ((const float *)rows)[i];
    bits = ((const uint16_t *)rows)[i];
    if (dtype == SB_F16) {
        int exponent = (int)(bits >> 10 & 31u), mantissa = (int)(bits & 1023u);
        double magnitude = exponent == 0    ? ldexp(mantissa, -24)
                           : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                            : ldexp(1024 + mantissa, exponent - 25);
        return (float)(bits & 0x8000u ? -magnitude : magnitude);
    }
    bits <<= 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to the nearer of the two bf16 numbers around the value, of equally near ones to the even
 * one. */
float cpu_round_bf16(float value)
{
    uint32_t low = bits_of(value) & 0xffff0000u, rest = bits_of(value) & 0xffffu;
    if (isnan(value))
        return value;
    if (rest > 0x8000u || (rest == 0x8000u && (low & 0x10000u)))
        low += 0x10000u;
    memcpy(&value, &low, sizeof value);
    return value;
}

/* The bf16 value that is left of x when the lower half of its bits is cut off. A NaN stays one. */
static float cut(float x)
{
    uint32_t bits = isnan(x) ? 0x7fc00000u : bits_of(x) & 0xffff0000u;

    memcpy(&x, &bits, sizeof x);
    return x;
}

int cpu_parts(float *parts, const float *x, int n, int32_t compute)
{
    for (int i = 0; i < n; i++) {
        const float high = cut(x[i]), rest = isfinite(x[i]) ? x[i] - high : 0.0f;
        if (compute != SPECBATCH_COMPUTE_SPLIT) {
            parts[i] = compute == SPECBATCH_COMPUTE_F32 ? x[i] : cpu_round_bf16(x[i]);
            continue;
        }
        parts[i] = high;
        parts[n + i] = cut(rest);
        parts[2 * n + i] = rest - cut(rest);
    }
    return compute == SPECBATCH_COMPUTE_SPLIT ? 3 : 1;
}

/* An f16 has 11 significant bits, and no bit below 2^-24. */
static float round_f16(float value)
{
    const double magnitude = fmin(fabs((double)value), 65504.0);
    int exponent;

    if (isnan(value))
        return value;
    frexp(magnitude, &exponent);
    exponent = exponent < -13 ? -24 : exponent - 11;
    return copysignf((float)ldexp(rint(ldexp(magnitude, -exponent)), exponent), value);
}

float cpu_round(float value, enum sb_dtype dtype)
{
    return dtype == SB_F32 ? value : dtype == SB_BF16 ? cpu_round_bf16(value) : round_f16(value);
}

void cpu_narrow(void *rows, int64_t i, float value, enum sb_dtype dtype)
{
    if (dtype == SB_F32) {
        ((float *)rows)[i] = value;
    } else if (dtype == SB_BF16) {
        ((uint16_t *)rows)[i] = (uint16_t)(bits_of(value) >> 16);
    } else {
        /* An input may be any f16 number, so this does not convert exactly: |value| < 2 is scaled
         * to the bits of a positive number, small ones to denormals. */
        int scaled = (int)(fabsf(value) < 2.0f ? fabsf(value) * 15360.0f / 2.0f
                                               : 31.0f * 1024.0f - 1.0f);
        ((uint16_t *)rows)[i] = (uint16_t)((value < 0.0f ? 0x8000 : 0) | scaled);
    }
}

double cpu_gate_exactly(double x, double up, enum sb_gate gate)
{
    const double pi = 3.14159265358979323846, least = fmin(x, 7.0);

    switch (gate) {
    case SB_GATE_SILU:
        return x / (1.0 + exp(-x)) * up;
    case SB_GATE_GELU:
        return x / (1.0 + exp(-sqrt(8.0 / pi) * (x + 0.044715 * x * x * x))) * up;
    default:
        return least / (1.0 + exp(-1.702 * least)) * (fmax(fmin(up, 7.0), -7.0) + 1.0);
    }
}
