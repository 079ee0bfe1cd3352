/*
 * The residual stream and its norm. A block takes one row:
 *
 *     x[r] += y_weight ? rms(y[r]) * y_weight : y[r]     where y is given
 *     h[i]  = rms(x[r]) * weight                         r = index[i], or i
 *     rms(v) = v / sqrt(mean(v^2) + eps)
 *
 *     x, y [rows, n] f32      h [m, ld] f32, bf16 or f16, zeros from n on
 *
 * A row's sum of squares consists of LANES running sums in ascending order, which a fixed tree
 * adds. A block has the same number of threads for every n and m, so nothing but the row decides
 * the bits.
 *
 *     f32 class      16 lanes, as on the CPU (kernels/cpu/norm.h), so that it has the CPU's bits:
 *                    lane i sums over elements i, i + 16, ... The row goes through shared memory:
 *                    sixteen threads that read it themselves would wait for memory at every step
 *     16-bit class   256 lanes, one a thread, so that the chains are sixteen times shorter: lane i
 *                    sums over elements 4 i to 4 i + 3, then those that are 1024 further, ... A
 *                    thread keeps its elements in registers, all of them loaded before the first
 *                    is used, so that the row costs one wait for memory; and four neighbours are
 *                    one load, because what is left of the kernel's time is instructions. Rows too
 *                    wide for that are read twice, by the f32 class's kernel with 256 lanes, and
 *                    so are rows that are not whole fours
 */
#include <string.h>

#include "kernels/cuda/grid.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, STAGED = 4096 };

struct norm_rows {
    float *x;
    const float *y, *y_weight, *weight; /* y and y_weight may be NULL */
    const int32_t *index;               /* or NULL */
    int32_t n;
    int64_t ld;
    float eps;
};

/* 1 / sqrt(mean(x^2) + eps) in every thread, from the threads' sums of squares. The trees of both
 * kinds of lanes: 16 lanes are in the first warp, and the other warps have nothing. sums: [WARPS],
 * not used before */
template <int LANES>
static __device__ __forceinline__ float scale_of(float sum, int32_t n, float eps, float *sums)
{
    if (LANES == 16)
        sum = sb_hsum16(sum);
    else
        for (int half = 16; half > 0; half /= 2)
            sum += __shfl_down_sync(SB_FULL_WARP, sum, half);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = sums[0];
    for (int w = 1; w < WARPS && LANES > 16; w++)
        total += sums[w];
    return 1.0f / sqrtf(total / (float)n + eps);
}

/* ------------------------------------------------------------------ rows in registers */

/* The place in its row of this thread's element i, in the 16-bit class. */
static __device__ __forceinline__ int32_t place_of(int i)
{
    return (i / 4 * THREADS + (int32_t)threadIdx.x) * 4 + i % 4;
}

/* This thread's elements of v [n]; zeros past the row's end. They come past the first-level cache,
 * which has nothing of use here: no block reads a row again. */
template <int N>
static __device__ __forceinline__ void load_row(float (&own)[N], const float *v, int32_t n)
{
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const int32_t k = place_of(i);
        float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
        if (k < n + SB_CUDA_FAULT(ELEMENT_PAST_THE_ROW))
            four = __ldcg(reinterpret_cast<const float4 *>(v + k));
        own[i] = four.x, own[i + 1] = four.y, own[i + 2] = four.z, own[i + 3] = four.w;
    }
}

/* The reverse. */
template <int N>
static __device__ __forceinline__ void store_row(float *v, const float (&own)[N], int32_t n)
{
#pragma unroll
    for (int i = 0; i < N; i += 4)
        if (place_of(i) < n)
            *reinterpret_cast<float4 *>(v + place_of(i)) = float4{own[i], own[i + 1], own[i + 2],
                                                                  own[i + 3]};
}

/* Writes h [ld] of the elements x of a row [n]. */
template <typename T, int N>
static __device__ __forceinline__ void store_normed(T *h, const float (&x)[N],
                                                    const float (&weight)[N], float scale,
                                                    int32_t n, int64_t ld)
{
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        T own[4];
        uint2 four;
#pragma unroll
        for (int j = 0; j < 4; j++)
            own[j] = sb_from_f32<T>(place_of(i) < n ? x[i + j] * scale * weight[i + j] : 0.0f);
        memcpy(&four, own, sizeof four);
        if (place_of(i) < ld)
            *reinterpret_cast<uint2 *>(h + place_of(i)) = four;
    }
}

/* Zeros past the row's end add nothing, as a sum of squares is never -0. */
template <int N>
static __device__ __forceinline__ float row_scale(const float (&own)[N], int32_t n, float eps,
                                                  float *sums)
{
    float sum = 0.0f;

#pragma unroll
    for (int i = 0; i < N; i++)
        sum = fmaf(own[i], own[i], sum);
    return scale_of<THREADS>(sum, n, eps, sums);
}

/* The weights are loaded while the kernel ahead still runs. Two blocks a multiprocessor are asked
 * for: with no number ptxas wants three and spills. */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS, N > 16 ? 1 : 2)
    norm_in_registers(T *h, norm_rows a)
{
    SB_SHARED(float, sums, 2 * WARPS);
    const int64_t i = blockIdx.x;
    float x[N], y[N], weight[N], y_weight[N];

    load_row(weight, a.weight, a.n);
    if (a.y_weight)
        load_row(y_weight, a.y_weight, a.n);
    grid_launch_next();
    grid_wait_for_previous();
    const int64_t r = a.index ? a.index[i] : i;
    load_row(x, a.x + r * a.n, a.n);
    if (a.y) {
        load_row(y, a.y + r * a.n, a.n);
        const float scale = a.y_weight ? row_scale(y, a.n, a.eps, sums + WARPS) : 1.0f;
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] += !a.y_weight                          ? y[j]
                    : SB_CUDA_FAULT(NORM_IN_OTHER_ORDER) ? y[j] * (scale * y_weight[j])
                                                         : y[j] * scale * y_weight[j];
        store_row(a.x + r * a.n, x, a.n);
    }
    store_normed(h + i * a.ld, x, weight, row_scale(x, a.n, a.eps, sums), a.n, a.ld);
}

/* ------------------------------------------------------------------ rows of any width */

/* Calls f(k) for this thread's elements k of a row [n], in ascending order: of 256 lanes those of
 * its lane. */
template <int LANES, typename F>
static __device__ __forceinline__ void each_element(int32_t n, F f)
{
#pragma unroll 8
    for (int32_t i = 0;; i++) {
        const int32_t k = LANES == THREADS ? place_of(i) : (int32_t)threadIdx.x + i * THREADS;
        if (k >= n)
            break;
        f(k);
    }
}

/* This thread's sum over x [n], which may just have been written by each_element. With 16 lanes,
 * threads from 16 on have none. staged: [STAGED] */
template <int LANES>
static __device__ float lane_sum(const float *x, int32_t n, float *staged)
{
    static_assert((int)STAGED % THREADS == 0, "a thread stages what it has written itself");
    float sum = 0.0f;

    if (LANES == THREADS)
        each_element<LANES>(n, [&](int32_t k) { sum = fmaf(x[k], x[k], sum); });
    for (int32_t first = 0; first < n && LANES < THREADS; first += STAGED) {
        const int32_t m = n - first < STAGED ? n - first : STAGED;
        for (int32_t i = threadIdx.x; i < m; i += THREADS)
            staged[i] = x[first + i];
        __syncthreads();
        for (int32_t i = threadIdx.x; i < m && threadIdx.x < 16; i += 16)
            sum = fmaf(staged[i], staged[i], sum);
        __syncthreads();
    }
    return sum;
}

/* x [n] += y, or y * scale * weight where there is a weight. */
template <int LANES>
static __device__ __forceinline__ void add_row(float *x, const float *y, float scale,
                                               const float *weight, int32_t n)
{
    each_element<LANES>(n, [&](int32_t k) { x[k] += weight ? y[k] * scale * weight[k] : y[k]; });
}

template <typename T, int LANES>
static __global__ void __launch_bounds__(THREADS) norm(T *h, norm_rows a)
{
    SB_SHARED(float, staged, LANES == 16 ? STAGED : 1);
    SB_SHARED(float, sums, 2 * WARPS);
    const int64_t i = blockIdx.x, r = a.index ? a.index[i] : i;
    float *x = a.x + r * a.n;

    if (a.y) {
        const float *y = a.y + r * a.n;
        float scale = 1.0f;
        if (a.y_weight)
            scale = scale_of<LANES>(lane_sum<LANES>(y, a.n, staged), a.n, a.eps, sums + WARPS);
        add_row<LANES>(x, y, scale, a.y_weight, a.n);
    }
    const float scale = scale_of<LANES>(lane_sum<LANES>(x, a.n, staged), a.n, a.eps, sums);
#pragma unroll 8
    for (int32_t k = threadIdx.x; k < a.ld; k += THREADS)
        h[i * a.ld + k] = sb_from_f32<T>(k < a.n ? x[k] * scale * a.weight[k] : 0.0f);
}

/* ------------------------------------------------------------------ launching */

template <typename T, int N>
static cudaError_t launch_in_registers(const norm_rows &rows, T *h, dim3 grid, cudaStream_t stream)
{
    return SB_LAUNCH_WITH(SB_DEPENDENT, (norm_in_registers<T, N>), grid, dim3(THREADS), 0, stream,
                          h, rows);
}

template <typename T>
static cudaError_t launch_16_bit(const norm_rows &rows, T *h, dim3 grid, cudaStream_t stream)
{
    if (rows.n % 4 != 0 || rows.ld > 32 * THREADS)
        return SB_LAUNCH((norm<T, THREADS>), grid, dim3(THREADS), 0, stream, h, rows);
    if (rows.ld <= 4 * THREADS)
        return launch_in_registers<T, 4>(rows, h, grid, stream);
    if (rows.ld <= 16 * THREADS)
        return launch_in_registers<T, 16>(rows, h, grid, stream);
    return launch_in_registers<T, 32>(rows, h, grid, stream);
}

extern "C" cudaError_t sb_cuda_norm(const struct sb_norm *args, enum sb_dtype type,
                                    cudaStream_t stream)
{
    const norm_rows rows = {args->x,
                            args->y,
                            args->y_weight,
                            args->weight,
                            args->index,
                            args->n,
                            sb_cuda_ld(type, args->n),
                            args->eps};

    const dim3 grid((unsigned)args->m);

    if (args->m == 0)
        return cudaSuccess;
    if (type == SB_F32)
        return SB_LAUNCH((norm<float, 16>), grid, dim3(THREADS), 0, stream,
                         static_cast<float *>(args->h), rows);
    return type == SB_BF16
               ? launch_16_bit(rows, static_cast<__nv_bfloat16 *>(args->h), grid, stream)
               : launch_16_bit(rows, static_cast<__half *>(args->h), grid, stream);
}

template <typename T>
static cudaError_t load_16_bit(void)
{
    void (*const kernels[])(T *, norm_rows) = {norm_in_registers<T, 4>, norm_in_registers<T, 16>,
                                               norm_in_registers<T, 32>, norm<T, THREADS>};
    cudaError_t error = cudaSuccess;

    for (size_t i = 0; error == cudaSuccess && i < sizeof kernels / sizeof kernels[0]; i++)
        error = sb_load(kernels[i]);
    return error;
}

cudaError_t sb_load_norm(enum sb_dtype type)
{
    if (type == SB_F32)
        return sb_load(norm<float, 16>);
    return type == SB_BF16 ? load_16_bit<__nv_bfloat16>() : load_16_bit<__half>();
}
