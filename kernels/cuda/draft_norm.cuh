/*
 * Norms of the residual stream within the steps of a draft: rows of x f32, which other blocks have
 * just made, become the inputs of a product in shared memory. Every block norms all rows for
 * itself. x may be known, or be awaited element by element (draft_step.cu).
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

/* Rows of x that are known, behind a barrier of the grid. */
struct known_rows {
    const float *x;
    int hidden;

    /* Four columns from k on of each of the first n of N rows; zeros past the last column. */
    template <int N>
    __device__ __forceinline__ void load(float4 (&to)[N], const int (&row)[N], int n, int k) const
    {
        const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};

#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < n)
                to[i] = k < hidden ? __ldcg((const float4 *)(x + (int64_t)row[i] * hidden + k))
                                   : zeros;
    }
};

/* Where column k of a row with tags lies, and how many elements such a row has. Of 128 columns a
 * lane of a warp has four: the first two of all lanes lie side by side, and behind them the last
 * two, so that no load of a warp takes half of a sector. */
enum { TAGGED_HALF = 64 };
static __device__ __forceinline__ int tagged_at(int k)
{
    return (k & ~127) | (k & 2) * (TAGGED_HALF / 2) | (k & 124) / 2 | (k & 1);
}
static __host__ __device__ __forceinline__ int tagged_pitch(int hidden)
{
    return (hidden + 2 * TAGGED_HALF - 1) / (2 * TAGGED_HALF) * (2 * TAGGED_HALF);
}

/* Rows whose elements are known when they have this tag. */
struct awaited_rows {
    const tagged *x;
    int hidden;
    unsigned tag;

    __device__ __forceinline__ unsigned differ(const tagged_pair &a) const
    {
        return (a.of[0].tag ^ tag) | (a.of[1].tag ^ tag);
    }
    /* Asks for all before it looks at any, and says whether all are known. */
    template <int N>
    __device__ __forceinline__ bool take_all(float4 (&to)[N], const int (&row)[N], int n,
                                             int k) const
    {
        tagged_pair first[N], last[N];
        unsigned unknown = 0;

#pragma unroll
        for (int i = 0; i < N; i++) {
            const tagged *from = x + row[i] * tagged_pitch(hidden) + tagged_at(k);
            first[i] = load_tagged(from, i < n && k < hidden);
            last[i] = load_tagged(from + TAGGED_HALF, i < n && k < hidden);
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            const tagged_pair &a = first[i], &b = last[i];
            to[i] = {a.of[0].value, a.of[1].value, b.of[0].value, b.of[1].value};
            unknown |= i < n && k < hidden ? differ(a) | differ(b) : 0;
        }
        return SB_CUDA_FAULT(ROWS_NOT_AWAITED) || unknown == 0;
    }
    /* As that of known rows. */
    template <int N>
    __device__ __forceinline__ void load(float4 (&to)[N], const int (&row)[N], int n, int k) const
    {
        for (bool again = false; !take_all(to, row, n, k); again = true)
            spin(&x->tag, again);
    }
};

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
 * and keeps its first. Row i is that of token index[i], or first + i. It is called and not copied
 * to its two places, as it is long and its registers are free before and after it. */
template <enum sb_dtype TYPE, class X>
static __device__ __attribute__((noinline)) void norm_some(uint8_t *rows, X x, const int32_t *index,
                                                           int first, const float *weight,
                                                           float (*parts)[WARPS], int n,
                                                           norm_shape of)
{
    const int k = (int)threadIdx.x * 4, pitch = normed_inputs::pitch_of(of.ld);
    int row[ROWS_AT_ONCE];
    float4 kept[ROWS_AT_ONCE], more[1];

#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; i++)
        row[i] = i < n && index ? index[first + i] : first + i;
    x.load(kept, row, n, k);
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; i++) {
        if (i >= n)
            break;
        float sum = square_of(kept[i]);
#pragma unroll 1
        for (int next = k + 4 * THREADS; next < of.hidden; next += 4 * THREADS) {
            x.load(more, {row[i]}, 1, next);
            sum += square_of(more[0]);
        }
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
        for (int next = k + 4 * THREADS; next < of.ld; next += 4 * THREADS) {
            x.load(more, {row[i]}, 1, next);
            store_normed<TYPE>(h + next, more[0], weight + next, scale, next < of.hidden);
        }
    }
}

} // namespace

#endif
