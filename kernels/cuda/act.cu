/*
 * Operations on single elements: gates, the bias of a product that cuBLASLt made, soft caps, and
 * the rounding of cuDNN's queries.
 *
 *     gate_rows  gate_up [m, 2 n] f32, gate then up  ->  y [m, ld] of `type`, zeros from n on
 *                what enum sb_gate says. Where e^-u is infinite, the quotient is -0 and not NaN
 *     add_bias   y [m, n_out] f32 += bias [n_out]
 *     soft_cap   x [n] f32 = cap * tanh(x / cap)
 *     narrow     y [m, n] of `type` = x [m, ld] f32
 *
 * The f32 values are the CPU's (kernels/cpu/act.c), by the same exp and one rounding an operation.
 */
#include "kernels/cuda/common.cuh"

enum { THREADS = 256, SOFT_CAPPED = 4 };

/* What e is raised to the negative power of. */
static __device__ __forceinline__ float exponent_of(float gate, enum sb_gate kind)
{
    if (kind == SB_GATE_SILU)
        return gate;
    if (kind == SB_GATE_CLAMPED)
        return gate * SB_CLAMPED_SLOPE;
    return gate * fmaf(gate * gate, SB_GELU_THIRD, SB_GELU_FIRST);
}

/* A NaN is not limited. */
static __device__ __forceinline__ float at_most(float x, float limit)
{
    return limit < x ? limit : x;
}

static __device__ __forceinline__ float gated(float gate, float up, enum sb_gate kind)
{
    if (kind == SB_GATE_CLAMPED) {
        gate = at_most(gate, SB_CLAMPED_LIMIT);
        up = at_most(up, SB_CLAMPED_LIMIT);
        up = (up < -SB_CLAMPED_LIMIT ? -SB_CLAMPED_LIMIT : up) + 1.0f;
    }
    return gate / (1.0f + sb_exp(0.0f - exponent_of(gate, kind))) * up;
}

/* Grid of the kernels but soft_cap: rows, pieces of THREADS columns. */
template <typename T>
static __global__ void gate_rows(T *y, const float *gate_up, enum sb_gate kind, int32_t n,
                                 int64_t ld)
{
    const int64_t row = blockIdx.x, k = (int64_t)blockIdx.y * THREADS + threadIdx.x;

    if (k < n)
        y[row * ld + k] = sb_from_f32<T>(
            gated(gate_up[row * 2 * n + k], gate_up[row * 2 * n + n + k], kind));
    else if (k < ld)
        y[row * ld + k] = sb_from_f32<T>(0.0f);
}

static __global__ void add_bias(float *y, const float *bias, int32_t n_out)
{
    const int64_t row = blockIdx.x, o = (int64_t)blockIdx.y * THREADS + threadIdx.x;

    if (o < n_out)
        y[row * n_out + o] += bias[o];
}

/* A block takes SOFT_CAPPED elements for each of its threads. */
static __global__ void soft_cap(float *x, float cap, int64_t n)
{
    const int64_t first = (int64_t)blockIdx.x * THREADS * SOFT_CAPPED + threadIdx.x;

    for (int i = 0; i < SOFT_CAPPED; i++)
        if (first + i * THREADS < n)
            x[first + i * THREADS] = sb_soft_cap(x[first + i * THREADS], cap);
}

template <typename T>
static __global__ void narrow(T *y, const float *x, int32_t n, int64_t ld)
{
    const int64_t row = blockIdx.x, k = (int64_t)blockIdx.y * THREADS + threadIdx.x;

    if (k < n)
        y[row * n + k] = sb_to_cache<T>(x[row * ld + k]);
}

static dim3 rows_by_pieces(int32_t m, int64_t columns)
{
    return dim3((unsigned)m, (unsigned)((columns + THREADS - 1) / THREADS));
}

extern "C" cudaError_t sb_cuda_gate(void *y, enum sb_dtype type, const float *gate_up,
                                    enum sb_gate gate, int32_t m, int32_t n, cudaStream_t stream)
{
    const int64_t ld = sb_cuda_ld(type, n);
    cudaError_t error = cudaSuccess;

    if (m > 0)
        SB_WITH_TYPE(type, error = SB_LAUNCH(gate_rows<T>, rows_by_pieces(m, ld), dim3(THREADS), 0,
                                             stream, static_cast<T *>(y), gate_up, gate, n, ld));
    return error;
}

extern "C" cudaError_t sb_cuda_add_bias(float *y, const float *bias, int32_t m, int32_t n_out,
                                        cudaStream_t stream)
{
    if (m == 0)
        return cudaSuccess;
    return SB_LAUNCH(add_bias, rows_by_pieces(m, n_out), dim3(THREADS), 0, stream, y, bias, n_out);
}

extern "C" cudaError_t sb_cuda_soft_cap(float *x, float cap, int64_t n, cudaStream_t stream)
{
    const int64_t a_block = THREADS * SOFT_CAPPED;

    if (n == 0)
        return cudaSuccess;
    return SB_LAUNCH(soft_cap, dim3((unsigned)((n + a_block - 1) / a_block)), dim3(THREADS), 0,
                     stream, x, cap, n);
}

extern "C" cudaError_t sb_cuda_narrow(void *y, enum sb_dtype type, const float *x, int32_t m,
                                      int32_t n, int64_t ld, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;

    if (m > 0)
        SB_WITH_TYPE(type, error = SB_LAUNCH(narrow<T>, rows_by_pieces(m, n), dim3(THREADS), 0,
                                             stream, static_cast<T *>(y), x, n, ld));
    return error;
}

cudaError_t sb_load_act(enum sb_dtype type)
{
    cudaError_t error = sb_load(add_bias);

    if (error == cudaSuccess)
        error = sb_load(soft_cap);
    if (error == cudaSuccess)
        SB_WITH_TYPE(type, error = sb_load(gate_rows<T>));
    if (error == cudaSuccess)
        SB_WITH_TYPE(type, error = sb_load(narrow<T>));
    return error;
}
