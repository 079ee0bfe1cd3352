/*
 * For tests of kernels: device memory that a test takes piece by piece and gives back together, and
 * elements of 16 bits. It works on whatever the CUDA runtime drives, the simulator or a GPU.
 */
#ifndef TEST_CUDA_KERNEL_TEST_H
#define TEST_CUDA_KERNEL_TEST_H

#include <cuda_runtime_api.h>
#include <math.h>

#include "kernels/cuda/launch.h"
#include "sbtest.h"
#include "support/cpu_ways.h"
#include "support/place.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define CHECK_CUDA(call)                                   \
    do {                                                   \
        cudaError_t e_ = (call);                           \
        if (e_ != cudaSuccess)                             \
            FAIL("%s: %s", #call, cudaGetErrorString(e_)); \
    } while (0)
/* The same bits, or NaN where NaN is expected. */
#define CHECK_SAME(got, expected, n, ...)                                                        \
    do {                                                                                         \
        int64_t at_ = cpu_first_difference(got, expected, n);                                    \
        if (at_ >= 0) {                                                                          \
            printf("     element %lld is %a, expected %a\n", (long long)at_, (double)(got)[at_], \
                   (double)(expected)[at_]);                                                     \
            FAIL(__VA_ARGS__);                                                                   \
        }                                                                                        \
    } while (0)

static cudaStream_t stream;

static void *owned[64];
static int n_owned;

/* Fresh device memory, until free_to or free_all. */
static inline void *fresh(size_t bytes)
{
    void *dev = NULL;

    if (n_owned == COUNT(owned) || cudaMalloc(&dev, bytes > 0 ? bytes : 1) != cudaSuccess) {
        printf("     no device memory: %s\n", cudaGetErrorString(cudaGetLastError()));
        exit(2);
    }
    return owned[n_owned++] = dev;
}

static inline void *given(const void *host, size_t bytes)
{
    void *dev = fresh(bytes);
    (void)cudaMemcpy(dev, host, bytes, cudaMemcpyHostToDevice);
    return dev;
}

/* Frees all but the first n pieces. */
static inline void free_to(int n)
{
    while (n_owned > n)
        (void)cudaFree(owned[--n_owned]);
}

static inline void free_all(void)
{
    free_to(0);
}

/* Dense rows [n_out, ld] as the weight that products and embed read: in tiles, but for f32. gated:
 * as in struct sb_weight. */
static inline void *given_weight(const void *rows, enum sb_dtype type, int32_t n_out, int64_t ld,
                                 int32_t gated)
{
    const size_t bytes = (size_t)sb_cuda_weight_size(type, n_out, (int32_t)ld) *
                         sb_dtype_size(type);
    uint16_t *tiled = calloc(1, bytes > 0 ? bytes : 1);
    void *dev;

    for (int64_t r = 0; type != SB_F32 && r < n_out; r++)
        for (int64_t c = 0; c < ld / 8; c++)
            memcpy(tiled + sb_cuda_tiled(sb_cuda_tiled_row(r, gated), c, ld),
                   (const uint16_t *)rows + r * ld + c * 8, 16);
    dev = given(type == SB_F32 ? rows : tiled, bytes);
    free(tiled);
    return dev;
}

/* Fresh device memory that is all zeros. */
static inline void *zeros(size_t bytes)
{
    void *dev = fresh(bytes);
    (void)cudaMemset(dev, 0, bytes);
    return dev;
}

static inline float *given_floats(const float *host, int64_t n)
{
    return given(host, (size_t)n * sizeof(float));
}

static inline int32_t *given_ints(const int32_t *host, int64_t n)
{
    return given(host, (size_t)n * sizeof(int32_t));
}

/* What products choose their blocks by on this device. */
static inline const struct sb_launch_limits *product_limits(enum sb_dtype type)
{
    static struct sb_launch_limits limits;

    (void)sb_cuda_launch_limits(&limits, type); /* where it fails, so does all else */
    return &limits;
}

/* Waits for the stream and copies to the host. An error of an earlier launch is reported here. */
static inline cudaError_t fetch(void *host, const void *dev, size_t bytes)
{
    cudaError_t error = cudaStreamSynchronize(stream);
    return error != cudaSuccess || bytes == 0
               ? error
               : cudaMemcpy(host, dev, bytes, cudaMemcpyDeviceToHost);
}

/* ------------------------------------------------------------------ elements */

/* An f16 by arithmetic in double precision, independent of half.h: to nearest, ties to even. */
static inline uint16_t half_bits(float value, int saturates)
{
    const double magnitude = fabs((double)value);
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    int exponent;

    if (isnan(value))
        return 0x7fff;
    if (magnitude >= 65520.0 || (saturates && magnitude > 65504.0))
        return (uint16_t)(sign | (saturates ? 0x7bff : 0x7c00));
    if (magnitude < 0x1p-14)
        return (uint16_t)(sign | (uint16_t)nearbyint(magnitude * 0x1p24));
    frexp(magnitude, &exponent);
    const int64_t mantissa = (int64_t)nearbyint(ldexp(magnitude, 11 - exponent)); /* 1024 .. 2048 */
    return (uint16_t)(sign | (uint16_t)(((exponent + 13) << 10) + mantissa));
}

static inline uint16_t narrow_bits(float value, enum sb_dtype type, int saturates)
{
    uint32_t bits;

    if (type == SB_F16)
        return half_bits(value, saturates);
    value = cpu_round_bf16(value);
    memcpy(&bits, &value, sizeof bits);
    return isnan(value) ? 0x7fff : (uint16_t)(bits >> 16);
}

/* Element i of `rows` = value rounded to the type. */
static inline void put(void *rows, int64_t i, float value, enum sb_dtype type, int saturates)
{
    if (type == SB_F32)
        ((float *)rows)[i] = value;
    else
        ((uint16_t *)rows)[i] = narrow_bits(value, type, saturates);
}

/* Opens the stream and loads the kernels. Returns 0 where there is no device; then all tests are
 * skipped, or have failed where a device is required. */
static inline int device_begin(void)
{
    int n = 0;

    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0 ||
        cudaStreamCreate(&stream) != cudaSuccess) {
        sbtest_chosen++;
        sbtest_failures += place_requires_device();
        printf("%s all: no CUDA device\n", place_requires_device() ? "FAIL" : "SKIP");
        return 0;
    }
    for (enum sb_dtype type = SB_F32; type <= SB_F16; type++)
        if (sb_cuda_load_kernels(type) != cudaSuccess) {
            sbtest_chosen++;
            sbtest_failures++;
            printf("FAIL all: loading kernels: %s\n", cudaGetErrorString(cudaGetLastError()));
            return 0;
        }
    return 1;
}

static inline void device_end(void)
{
    (void)cudaStreamDestroy(stream);
}

#endif
