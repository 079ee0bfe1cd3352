/*
 * Norms of the residual stream within the steps of a draft: rows of x f32, which other blocks have
 * just made, become the inputs of a product in shared memory. Every block norms all rows for
 * itself.
 *
 *     thread t    columns 4 t .. 4 t + 3 of every 4 THREADS, of up to four rows at once
 *     rows        elements [ld] and 16 bytes of nothing, so that neighbouring rows lie in other
 *                 banks
 *
 * Rejected: a row for each warp, which needs no barrier, but has one warp do all where there is one
 * row.
 */
#ifndef SB_CUDA_DRAFT_NORM_CUH
#define SB_CUDA_DRAFT_NORM_CUH

#include "kernels/cuda/draft_tile.cuh"

namespace
{

enum { ROWS_AT_ONCE = 4 }; /* that are normed together */

/* Sums of squares of the rows that are normed together, by each warp over its columns. Groups of
 * rows take turns in two of these, so that a group need not wait until the one before has read
 * its own. */
struct norm_parts {
    float of[2][ROWS_AT_ONCE][WARPS];
};

/* Normed rows in shared memory. A row ends in 16 bytes of nothing, so that neighbouring rows lie in
 * other banks. */
struct normed_inputs {
    enum { SLOTS_AT_ONCE = 1 };

    const uint8_t *h;
    int pitch, m;

    static __host__ __device__ __forceinline__ int pitch_of(int64_t ld)
    {
        return (int)ld * 2 + 16;
    }
    __device__ __forceinline__ uint4 load(int row, int k) const
    {
        return *(const uint4 *)(h + min(row, m - 1) * pitch + k * 2);
    }
};

/* Four columns of a row of x from k on, which other blocks have just made; zeros past the last. */
__device__ __forceinline__ float4 columns_of(const float *x, int k, int n)
{
    const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};
    return k < n ? __ldcg((const float4 *)(x + k)) : zeros;
}

template <enum sb_dtype TYPE>
__device__ __forceinline__ void store_normed(uint16_t *h, const float4 &v, const float *weight,
                                             float scale, bool is_there)
{
    const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f}, by = is_there ? *(const float4 *)weight : zeros;

    *(uint2 *)h = uint2{pack2<TYPE>(v.x * scale * by.x, v.y * scale * by.y),
                        pack2<TYPE>(v.z * scale * by.z, v.w * scale * by.w)};
}

/* What norms of a launch have in common. */
struct norm_shape {
    int hidden, ld; /* elements of a row of x, and of a normed one */
    float hidden_inverse, eps;
};

/* Norms n rows, n <= ROWS_AT_ONCE, by all threads: a thread has four columns of every 4 THREADS,
 * and keeps its first. Row i is that of token index[i], or i. It is called and not copied to its
 * two places, as it is long and its registers are free before and after it. */
template <enum sb_dtype TYPE>
static __device__ __attribute__((noinline)) void norm_some(uint8_t *rows, const float *x,
                                                           const int32_t *index,
                                                           const float *weight,
                                                           float (*parts)[WARPS], int n,
                                                           norm_shape of)
{
    const int k = (int)threadIdx.x * 4, pitch = normed_inputs::pitch_of(of.ld);
    const auto row = [&](int i) { return x + (int64_t)(index ? index[i] : i) * of.hidden; };
    float4 kept[ROWS_AT_ONCE];

#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; i++)
        if (i < n)
            kept[i] = columns_of(row(i), k, of.hidden);
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; i++) {
        if (i >= n)
            break;
        float sum = square_of(kept[i]);
#pragma unroll 1
        for (int next = k + 4 * THREADS; next < of.hidden; next += 4 * THREADS)
            sum += square_of(columns_of(row(i), next, of.hidden));
        for (int step = 16; step > 0; step /= 2)
            sum += __shfl_xor_sync(SB_FULL_WARP, sum, step);
        if (threadIdx.x % 32 == 0)
            parts[i][threadIdx.x / 32] = sum;
    }
    sync_threads<THREADS>();
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; i++) {
        if (i >= n)
            break;
        uint16_t *h = (uint16_t *)(rows + i * pitch);
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            sum += parts[i][w];
        const float scale = rsqrtf(fmaf(sum, of.hidden_inverse, of.eps));
        if (k < of.ld)
            store_normed<TYPE>(h + k, kept[i], weight + k, scale, k < of.hidden);
#pragma unroll 1
        for (int next = k + 4 * THREADS; next < of.ld; next += 4 * THREADS)
            store_normed<TYPE>(h + next, columns_of(row(i), next, of.hidden), weight + next, scale,
                               next < of.hidden);
    }
}

} // namespace

#endif
