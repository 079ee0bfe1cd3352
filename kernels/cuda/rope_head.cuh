/*
 * One head of q, k or v, normed and rotated, by 16 lanes: half a warp a head, in rope.cu and in
 * attention. So a head has the same bits whoever makes it.
 *
 *     unit u     a pair of elements that one lane makes: the rotated pair (u, u + half), or
 *                (2u, 2u + 1) if interleaved, for u < half; behind these the two neighbours
 *                (2u, 2u + 1), which are normed only. v has no pairs and no norm.
 *     lane t     makes units t, t + 16, ... and, for the norm, adds the squares of elements t,
 *                t + 16, ...: the CPU's 16 lanes, which its tree adds (kernels/cpu/rope.c)
 *
 * A lane keeps its units in registers, and all loads stand before the first use. So a head costs
 * one wait for memory, and may be replaced in place. Where all of a head is rotated, the elements
 * of a lane's units are those whose squares it adds, if half is a multiple of 16; else these are
 * loaded besides. Heads of more than 32 UNITS elements take several pieces.
 */
#ifndef SB_CUDA_ROPE_HEAD_CUH
#define SB_CUDA_ROPE_HEAD_CUH

#include "kernels/cuda/common.cuh"

namespace
{

enum { HEAD_LANES = 16 };

/* What is to be done with a head. */
struct rope_turn {
    const float *weight;        /* [n] of its norm, or NULL */
    const float *cosine, *sine; /* [half] of the token's position */
    int n, half, interleaved;
};

enum head_kind { QUERY_HEAD, KEY_HEAD, VALUE_HEAD };

/* A head of a token whose position is pos. */
__device__ __forceinline__ rope_turn turn_of_kind(const sb_attention &a, enum head_kind kind,
                                                  int64_t pos)
{
    const int half = kind == VALUE_HEAD ? 0 : a.rot_dim / 2;
    const float *norm = kind == QUERY_HEAD && !SB_CUDA_FAULT(K_NORM_FOR_Q) ? a.q_norm : a.k_norm;

    return {kind == VALUE_HEAD ? NULL : norm,
            a.cos + pos * half,
            a.sin + pos * half,
            a.head_dim,
            half,
            a.rot_interleaved};
}

/* The same of head number h of a token's row of qkv. */
__device__ __forceinline__ rope_turn turn_of(const sb_attention &a, int h, int64_t pos)
{
    return turn_of_kind(a,
                        h < a.heads                ? QUERY_HEAD
                        : h < a.heads + a.kv_heads ? KEY_HEAD
                                                   : VALUE_HEAD,
                        pos);
}

/* The one order of a lane's squares: one after the other. */
template <int N>
__device__ __forceinline__ float add_squares(float sum, const float (&own)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        sum = fmaf(own[i], own[i], sum);
    return sum;
}

/* A lane's sum of squares of a head [n]. All that it adds of 32 UNITS elements is loaded at once.
 */
template <int UNITS>
__device__ __forceinline__ float sum_of_squares(const float *head, int n)
{
    const int lane = (int)(threadIdx.x % HEAD_LANES);
    float sum = 0.0f;

#pragma unroll 1
    for (int first = 0; first < n; first += 2 * UNITS * HEAD_LANES) {
        float own[2 * UNITS];
#pragma unroll
        for (int i = 0; i < 2 * UNITS; i++) {
            const int d = first + i * HEAD_LANES + lane;
            own[i] = d < n ? head[d] : 0.0f;
        }
        sum = add_squares(sum, own);
    }
    return sum;
}

/* Where the elements of unit u are; the second may be n, past the head's end. */
__device__ __forceinline__ int2 elements_of(const rope_turn &turn, int u)
{
    return u < turn.half && !turn.interleaved ? make_int2(u, u + turn.half)
                                              : make_int2(2 * u, 2 * u + 1);
}

/* Unit number i of those of a lane that begin with unit `first` of the head. */
__device__ __forceinline__ int unit_of(int first, int i)
{
    return first + i * HEAD_LANES + (int)(threadIdx.x % HEAD_LANES);
}

/* The norm's weights of a lane's units; ones where there is no norm. */
template <int UNITS>
struct rope_weights {
    float a[UNITS], b[UNITS];

    __device__ __forceinline__ void load(const rope_turn &turn, int first)
    {
#pragma unroll
        for (int i = 0; i < UNITS; i++) {
            const int2 d = elements_of(turn, unit_of(first, i));
            a[i] = turn.weight && d.x < turn.n ? turn.weight[d.x] : 1.0f;
            b[i] = turn.weight && d.y < turn.n ? turn.weight[d.y] : 1.0f;
        }
    }
};

/* The units of a lane that are in registers at a time. */
template <int UNITS>
struct rope_units {
    float a[UNITS], b[UNITS], cosine[UNITS], sine[UNITS];

    __device__ __forceinline__ void load(const float *head, const rope_turn &turn, int first)
    {
#pragma unroll
        for (int i = 0; i < UNITS; i++) {
            const int u = unit_of(first, i);
            const int2 d = elements_of(turn, u);
            a[i] = d.x < turn.n ? head[d.x] : 0.0f;
            b[i] = d.y < turn.n ? head[d.y] : 0.0f;
            cosine[i] = u < turn.half ? turn.cosine[u] : 1.0f;
            sine[i] = u < turn.half ? turn.sine[u] : 0.0f;
        }
    }

    /* Whether the units from 0 on are a head whose squares are added as they lie here. */
    static __device__ __forceinline__ bool are_in_order(const rope_turn &turn)
    {
        return turn.n <= 2 * UNITS * HEAD_LANES && turn.n == 2 * turn.half &&
               turn.half % HEAD_LANES == 0 && !turn.interleaved;
    }

    /* The norm's factor of the head whose units from 0 on these are. All lanes of the warp call
     * this together, each half for a head of its own. Units past the head's end are zeros, which
     * change no sum. */
    __device__ __forceinline__ float scale(const float *head, const rope_turn &turn,
                                           float eps) const
    {
        const float mine = are_in_order(turn) ? add_squares(add_squares(0.0f, a), b)
                                              : sum_of_squares<UNITS>(head, turn.n);
        const float sum = __shfl_sync(SB_FULL_WARP, sb_hsum16(mine), 0, HEAD_LANES);
        return 1.0f / sqrtf(sum / (float)turn.n + eps);
    }

    /* Norms and rotates the elements. scale is not used where the head has no norm. */
    __device__ __forceinline__ void make(const rope_turn &turn, const rope_weights<UNITS> &weights,
                                         int first, float scale)
    {
#pragma unroll
        for (int i = 0; i < UNITS; i++) {
            const float x = turn.weight ? a[i] * scale * weights.a[i] : a[i],
                        y = turn.weight ? b[i] * scale * weights.b[i] : b[i];
            const bool is_turned = unit_of(first, i) < turn.half;
            a[i] = is_turned ? x * cosine[i] - y * sine[i] : x;
            b[i] = is_turned ? y * cosine[i] + x * sine[i] : y;
        }
    }

    /* Calls put(d, value) for each element. */
    template <typename F>
    __device__ __forceinline__ void each(const rope_turn &turn, int first, F put) const
    {
#pragma unroll
        for (int i = 0; i < UNITS; i++) {
            const int2 d = elements_of(turn, unit_of(first, i));
            if (d.x < turn.n)
                put(d.x, a[i]);
            if (d.y < turn.n)
                put(d.y, b[i]);
        }
    }
};

/* Makes a head of f32 elements, calling put(d, value) for each. All lanes of the warp call this
 * together, each half for a head of its own. has_norms is the same for both; where it is 0, so are
 * the heads' weights. put may write where the head was. */
template <int UNITS, typename F>
__device__ __forceinline__ void make_head(const float *head, const rope_turn &turn, bool has_norms,
                                          float eps, F put)
{
    rope_units<UNITS> units;
    rope_weights<UNITS> weights;
    float scale = 1.0f;

    units.load(head, turn, 0);
    weights.load(turn, 0);
    if (has_norms)
        scale = units.scale(head, turn, eps);
    __syncwarp(); /* the whole head has been read */
    units.make(turn, weights, 0, scale);
    units.each(turn, 0, put);
    for (int first = UNITS * HEAD_LANES; 2 * first < turn.n; first += UNITS * HEAD_LANES) {
        units.load(head, turn, first);
        weights.load(turn, first);
        units.make(turn, weights, first, scale);
        units.each(turn, first, put);
    }
}

} // namespace

#endif
