/*
 * What the CUDA kernels share: how they are launched, the element types, and the arithmetic of the
 * CPU kernels.
 *
 * They are compiled with -fmad=false -ftz=true -prec-div=true -prec-sqrt=true. So a multiply-add is
 * fused where fmaf is written and nowhere else, denormals are zero, and division and root are
 * rounded correctly. That is the CPU kernels' arithmetic (kernels/cpu/vec.h, math.h), which is why
 * the f32 class can have their bits.
 *
 * On a host, the simulator's stand-in for the CUDA runtime (test/cudasim) defines SB_SHARED and
 * SB_DYNAMIC_SHARED itself, and mma.cuh takes the tensor core's instructions from there. Kernels
 * use nothing else that only nvcc understands.
 */
#ifndef SB_CUDA_COMMON_CUH
#define SB_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/cuda/cuda_fault.h"
#include "kernels/cuda/launch.h"

/* Scores are multiplied by it, as weights are powers of 2. */
#define SB_LOG2_E 1.44269504088896341f

/* Queues kernel(arguments...) and gives the launch's own cudaError_t. After <<< >>> one would have
 * to ask cudaGetLastError, which also tells what other calls of this thread have left behind, so
 * that one pool's failure would end the next pool. A template with several parameters goes in
 * parentheses. */
#define SB_LAUNCH(kernel, grid, block, shared, stream, ...) \
    SB_LAUNCH_WITH(0, kernel, grid, block, shared, stream, __VA_ARGS__)
/* The same with what `options` ask for, some of enum sb_launch_option. */
#define SB_LAUNCH_WITH(options, kernel, grid, block, shared, stream, ...)                     \
    cudaLaunchKernelEx(                                                                       \
        sb_launch_config(grid, block, shared, stream, options, (const void *)(kernel)).get(), \
        kernel, __VA_ARGS__)

/* Whether a kernel's code is for sm_90 or later. A newer device may run code that was made for an
 * older one. */
static inline bool sb_is_for_sm_90(const void *kernel)
{
    cudaFuncAttributes attributes;

    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}

enum sb_launch_option {
    /* All blocks are on the device at once, so that they may wait for each other (grid.cuh). A
     * launch of more blocks than the device holds is refused. */
    SB_COOPERATIVE = 1,
    /* The kernel may begin before the one before it on the stream has ended, and therefore calls
     * grid_wait_for_previous() (grid.cuh). Code for older devices than sm_90 is launched without.
     */
    SB_DEPENDENT = 2,
    /* Times n: each n blocks that follow each other are a cluster, which has a barrier (mma.cuh).
     * The x of the grid is a multiple of n. */
    SB_CLUSTER_OF = 4
};

/* The launch attributes lie in the object itself, so it is not copied. */
struct sb_launch_config {
    cudaLaunchAttribute attributes[3];
    cudaLaunchConfig_t config;

    sb_launch_config(dim3 grid, dim3 block, size_t shared, cudaStream_t stream, int options,
                     const void *kernel)
        : attributes(), config{grid, block, shared, stream, attributes, 0}
    {
        if (options & SB_COOPERATIVE) {
            attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
            attributes[config.numAttrs++].val.cooperative = 1;
        }
        if ((options & SB_DEPENDENT) && sb_is_for_sm_90(kernel)) {
            attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
            attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
        }
        if (options >= SB_CLUSTER_OF) {
            attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
            attributes[config.numAttrs].val.clusterDim.x = (unsigned)options / SB_CLUSTER_OF;
            attributes[config.numAttrs].val.clusterDim.y = 1;
            attributes[config.numAttrs++].val.clusterDim.z = 1;
        }
    }
    sb_launch_config(const sb_launch_config &) = delete;
    sb_launch_config &operator=(const sb_launch_config &) = delete;
    const cudaLaunchConfig_t *get() const
    {
        return &config;
    }
};

/* Loads a kernel, and lets its blocks have `shared` bytes of dynamic shared memory, if the device
 * has as many. If it has not, it is never asked to run the kernel (check_attention of ops.c). */
template <typename... P>
static inline cudaError_t sb_load(void (*kernel)(P...), int shared = 0)
{
    cudaFuncAttributes attributes;
    int device = 0, most = 0;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);

    if (error == cudaSuccess)
        error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess && shared > 0 && shared <= most)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    return error;
}

/* What struct sb_launch_limits (launch.h) says of wgmma and of clusters, for the current device. */
void *sb_cuda_map_encoder(void);
int32_t sb_cuda_most_of_cluster(enum sb_dtype type);

/* Each loads one file's kernels of the class whose weights are of `type`; load.cu calls them all. A
 * new kernel must be added to its file's function. */
cudaError_t sb_load_accept(enum sb_dtype type);
cudaError_t sb_load_act(enum sb_dtype type);
cudaError_t sb_load_attend_mma(enum sb_dtype type);
cudaError_t sb_load_attend_reference(enum sb_dtype type);
cudaError_t sb_load_compare(enum sb_dtype type);
cudaError_t sb_load_draft_gemm(enum sb_dtype type);
cudaError_t sb_load_draft_step(enum sb_dtype type);
cudaError_t sb_load_embed(enum sb_dtype type);
cudaError_t sb_load_embed_quant(enum sb_dtype type);
cudaError_t sb_load_experts_mma(enum sb_dtype type);
cudaError_t sb_load_gemm_mma(enum sb_dtype type);
cudaError_t sb_load_gemm_quant(enum sb_dtype type);
cudaError_t sb_load_gemm_quant_reference(enum sb_dtype type);
cudaError_t sb_load_gemm_reference(enum sb_dtype type);
cudaError_t sb_load_gemm_wgmma(enum sb_dtype type);
cudaError_t sb_load_mix(enum sb_dtype type);
cudaError_t sb_load_norm(enum sb_dtype type);
cudaError_t sb_load_move(enum sb_dtype type);
cudaError_t sb_load_rope(enum sb_dtype type);
cudaError_t sb_load_select(enum sb_dtype type);
cudaError_t sb_load_tile(enum sb_dtype type);

#ifndef SB_SHARED
/* Defines `type *name`, `count` elements of the block's shared memory. At the top of a kernel. */
#define SB_SHARED(type, name, count)              \
    __shared__ __align__(16) type name##_[count]; \
    type *const name = name##_
/* Defines `type *name`, the shared memory that the launch asked for, aligned to 1024 bytes. */
#define SB_DYNAMIC_SHARED(type, name)                                    \
    extern __shared__ __align__(1024) unsigned char sb_dynamic_shared[]; \
    type *const name = reinterpret_cast<type *>(sb_dynamic_shared)
#endif

#define SB_FULL_WARP 0xffffffffu

typedef unsigned long long wide; /* as CUDA names uint64_t, for atomics */

/* ------------------------------------------------------------------ element types */

__device__ __forceinline__ float sb_to_f32(float v)
{
    return v;
}
__device__ __forceinline__ float sb_to_f32(__nv_bfloat16 v)
{
    return __bfloat162float(v);
}
__device__ __forceinline__ float sb_to_f32(__half v)
{
    return __half2float(v);
}

/* The f16 in the lower half of a word. */
__device__ __forceinline__ float half_float(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* To nearest, ties to even; a value beyond f16 becomes infinite. */
template <typename T>
__device__ __forceinline__ T sb_from_f32(float v);
template <>
__device__ __forceinline__ float sb_from_f32<float>(float v)
{
    return v;
}
template <>
__device__ __forceinline__ __nv_bfloat16 sb_from_f32<__nv_bfloat16>(float v)
{
    return __float2bfloat16_rn(v);
}
template <>
__device__ __forceinline__ __half sb_from_f32<__half>(float v)
{
    return __float2half_rn(v);
}

/* For the cache: a value beyond f16 becomes the largest f16, because rows that read an infinity
 * from a cache would turn into NaN. */
template <typename T>
__device__ __forceinline__ T sb_to_cache(float v)
{
    return sb_from_f32<T>(v);
}
template <>
__device__ __forceinline__ __half sb_to_cache<__half>(float v)
{
    return __float2half_rn(v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v);
}

/* An element of an embedding times the model's scale. With a scale of 1 it is what the table has,
 * which a product would not always be: it flushes subnormal numbers to zero. */
__device__ __forceinline__ float sb_scaled(float v, float scale)
{
    return scale == 1.0f || SB_CUDA_FAULT(EMBEDDING_NOT_SCALED) ? v : v * scale;
}

/* Runs `call` with T the type that `dtype` names. */
#define SB_WITH_TYPE(dtype, call)        \
    do {                                 \
        if ((dtype) == SB_F32) {         \
            typedef float T;             \
            call;                        \
        } else if ((dtype) == SB_BF16) { \
            typedef __nv_bfloat16 T;     \
            call;                        \
        } else {                         \
            typedef __half T;            \
            call;                        \
        }                                \
    } while (0)

/* ------------------------------------------------------------------ the CPU kernels' arithmetic */

/* Written so, a NaN that comes second is the result, as on the CPU. */
__device__ __forceinline__ float sb_max(float a, float b)
{
    return a > b ? a : b;
}
__device__ __forceinline__ float sb_min(float a, float b)
{
    return a < b ? a : b;
}

/* e^r - 1: v_exp_rest_less_1 of kernels/cpu/math.h, where these functions are explained. */
__device__ __forceinline__ float sb_exp_rest_less_1(float x, float n)
{
    const float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));

    float p = 1.9875691500e-4f;
    p = fmaf(p, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    return fmaf(r * r, p, r);
}

/* e^x: v_exp of kernels/cpu/math.h. */
__device__ __forceinline__ float sb_exp(float x)
{
    const float to_int = 0x1.8p23f, bias = 0x1.8p23f + 127.0f;

    x = sb_min(90.0f, sb_max(-110.0f, x));
    const float n = fmaf(x, 0x1.715476p+0f, to_int) - to_int;
    const float p = sb_exp_rest_less_1(x, n) + 1.0f;

    const float half = fmaf(n, 0.5f, to_int) - to_int;
    const float scale_a = __uint_as_float(__float_as_uint(half + bias) << 23);
    const float scale_b = __uint_as_float(__float_as_uint((n - half) + bias) << 23);
    return (p * scale_a) * scale_b;
}

/* tanh: v_tanh of kernels/cpu/math.h. */
__device__ __forceinline__ float sb_tanh(float x)
{
    const float to_int = 0x1.8p23f;

    x = sb_min(40.0f, sb_max(-40.0f, x + x));
    const float shifted = fmaf(x, 0x1.715476p+0f, to_int);
    const float scale = __uint_as_float(__float_as_uint(shifted + 127.0f) << 23);
    const float t = fmaf(scale, sb_exp_rest_less_1(x, shifted - to_int), scale - 1.0f);
    return t / (t + 2.0f);
}

/* A soft cap (backend.h). */
__device__ __forceinline__ float sb_soft_cap(float x, float cap)
{
    return cap * sb_tanh(x / cap);
}

/* Natural logarithm: sb_log of kernels/cpu/math.h. */
__device__ __forceinline__ float sb_log(float x)
{
    const uint32_t bits = __float_as_uint(x);
    if (!(x < INFINITY))
        return x;
    int32_t e = (int32_t)((bits - 0x3f3504f3u) >> 23);
    if (e >= 256)
        e -= 512;
    const float n = (float)e, f = __uint_as_float(bits - ((uint32_t)e << 23)) - 1.0f, z = f * f;

    float p = 7.0376836292e-2f;
    p = fmaf(p, f, -1.1514610310e-1f);
    p = fmaf(p, f, 1.1676998740e-1f);
    p = fmaf(p, f, -1.2420140846e-1f);
    p = fmaf(p, f, 1.4249322787e-1f);
    p = fmaf(p, f, -1.6668057665e-1f);
    p = fmaf(p, f, 2.0000714765e-1f);
    p = fmaf(p, f, -2.4999993993e-1f);
    p = fmaf(p, f, 3.3333331174e-1f);
    float y = p * (f * z);
    y = fmaf(n, -2.12194440e-4f, y);
    y = fmaf(z, -0.5f, y);
    return fmaf(n, 0.693359375f, f + y);
}

/* Adds the parts of a sum that sixteen lanes have, by the tree of v_hsum. Lane 0 of the sixteen
 * gets the result; all lanes of the warp must take part. */
__device__ __forceinline__ float sb_hsum16(float v)
{
    for (int half = 8; half > 0; half /= 2)
        v += __shfl_down_sync(SB_FULL_WARP, v, half, 16);
    return v;
}

/* The same for a maximum, by the tree of v_hmax. */
__device__ __forceinline__ float sb_hmax16(float v)
{
    for (int half = 8; half > 0; half /= 2)
        v = sb_max(v, __shfl_down_sync(SB_FULL_WARP, v, half, 16));
    return v;
}

#endif
