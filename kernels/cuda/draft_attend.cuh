/*
 * Attention within the steps of a draft: head norms, rotation, the new key and value, and the keys
 * before them.
 *
 *     unit: one token, one kv head with its query heads, and a part of 128 keys
 *
 *     warp w of a unit       keys 16 w .. 16 w + 15 of the part, two at a time: half a warp a key,
 *                            a lane eight elements. Its ring brings them, as it brings weights
 *                            (draft_stream.cuh), so that they are there when it is their turn.
 *     the eight warps        are merged in ascending order through shared memory, and so are the
 *                            parts through scratch, by the block that is the last of them
 *
 * So a result is a function of the query and its own history. Positions fix the parts, not the
 * pass.
 *
 * A block does all its units together, as far as there is shared memory for their queries and their
 * warps' results: all heads, all keys, all merges. So it waits as often for several units as for
 * one.
 *
 * A unit normalises and rotates its own queries, which costs less than to wait for a phase that
 * does it once. The keys and values of this pass are not read from the cache, because no barrier
 * lies between those who write and those who read it: a unit makes those of its own token and of
 * the one before it, if that is of the same sequence, and a step has at most these two. It writes
 * its own token's to the cache. Queries stay f32, with CUDA cores enough for the few that a draft
 * has.
 */
#ifndef SB_CUDA_DRAFT_ATTEND_CUH
#define SB_CUDA_DRAFT_ATTEND_CUH

#include "kernels/cuda/draft_stream.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/opaque.cuh"
#include "kernels/cuda/rope_head.cuh"

namespace
{

enum {
    GROUP = 8,        /* most query heads of a kv head */
    MOST_UNITS = 4,   /* that a block does together */
    PARTS_AT_ONCE = 8 /* of a head's keys, that are merged together */
};

/* What a launch says of all attention. */
struct attend_shape {
    const float *cos, *sin;
    float *partial;     /* [token, head, parts, d + 2]: o, m, l */
    unsigned *counters; /* [token, kv head] */
    int heads, kv_heads, d, rot_dim, interleaved;
    float eps, scale; /* scale: of scores, times log2(e) */

    __host__ __device__ __forceinline__ int group() const
    {
        return heads / kv_heads;
    }
};

/* One layer's attention in one step. */
struct attend_pass {
    const attend_shape &shape;
    const attend_layer &layer;
    const step_tokens &tokens;
    const float *qkv;
    uint16_t *y; /* [tokens, ld] */
    int64_t ld;
    int parts; /* that scratch has of each head */
};

/* How a block finds out whether it is the last of those that have parts of the same keys. */
struct unit_count {
    int counter, n_parts, is_last;
};

/* What a unit keeps in shared memory. The counts of all units lie behind them. */
struct attend_memory {
    float *q;      /* [group, HEAD] */
    float *merged; /* [WARPS, group, HEAD + 4]: o, m, l */
    uint16_t *k;   /* [FRESH, HEAD] */
    uint16_t *v;   /* [FRESH, HEAD] */

    static __host__ __device__ __forceinline__ int bytes(int group)
    {
        return (group * HEAD + WARPS * group * (HEAD + 4)) * 4 + FRESH * HEAD * 4;
    }
    static __host__ __device__ __forceinline__ int bytes_of_all(int group, int n_units)
    {
        return n_units * (bytes(group) + (int)sizeof(unit_count));
    }
    __device__ __forceinline__ attend_memory(uint8_t *all, int i, int group)
    {
        q = (float *)(all + i * bytes(group));
        merged = q + group * HEAD;
        k = (uint16_t *)(merged + WARPS * group * (HEAD + 4));
        v = k + FRESH * HEAD;
    }
    __device__ __forceinline__ float *of_warp(int warp, int head, int group) const
    {
        return merged + (warp * group + head) * (HEAD + 4);
    }
};

template <enum sb_dtype TYPE>
__device__ __forceinline__ float element(const uint4 &chunk, int i)
{
    const uint32_t word = i / 2 == 0   ? chunk.x
                          : i / 2 == 1 ? chunk.y
                          : i / 2 == 2 ? chunk.z
                                       : chunk.w;
    const uint32_t bits = i % 2 ? word >> 16 : word & 0xffffu;

    return TYPE == SB_BF16 ? __uint_as_float(bits << 16)
                           : __half2float(__ushort_as_half((unsigned short)bits));
}

/* ------------------------------------------------------------------ heads */

/* Number `job` of the heads that a unit may need: its queries, then the key and the value of its
 * own token, then those of the token before. */
struct head_job {
    int job, head, back; /* head: of the row of qkv `back` tokens before the unit's */
    bool is_query, is_value, is_wanted;

    __device__ __forceinline__ head_job(const attend_unit &u, const attend_shape &a, int number)
    {
        const int group = a.group();

        job = number;
        is_query = job < group;
        is_value = !is_query && (job - group) % 2;
        back = is_query ? 0 : (job - group) / 2;
        head = is_query ? u.kv_head * group + job
                        : a.heads + (is_value ? a.kv_heads : 0) + u.kv_head;
        is_wanted = is_query || (back < u.n_fresh && (u.pos - back) / PART == u.part);
        if (!is_wanted) /* it is read all the same, where the warp's other head is wanted */
            back = 0;
    }
    __device__ __forceinline__ rope_turn turn(const attend_pass &pass, int64_t pos) const
    {
        const attend_shape &a = pass.shape;
        const int half = is_value ? 0 : a.rot_dim / 2;
        const float *norm = is_query ? pass.layer.q_norm : pass.layer.k_norm;

        return {is_value ? NULL : norm, a.cos + pos * half, a.sin + pos * half, a.d, half,
                a.interleaved};
    }
};

/* Makes heads 2 pair and 2 pair + 1 of a unit, half a warp each: its queries, and the keys and
 * values of this step that are in its part. Its own token's are written to the cache. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void make_heads(const attend_memory &m, const attend_unit &u,
                                           const attend_pass &pass, int pair)
{
    const attend_shape &a = pass.shape;
    const int lane = (int)threadIdx.x % HEAD_LANES;
    const head_job job(u, a, 2 * pair + (int)threadIdx.x % 32 / HEAD_LANES);
    const int64_t row = (int64_t)(a.heads + 2 * a.kv_heads) * a.d, pos = u.pos - job.back;
    const float *from = pass.qkv + (u.token - job.back) * row + (int64_t)job.head * a.d;
    float *query = m.q + job.job * HEAD;
    uint16_t *fresh = (job.is_value ? m.v : m.k) + job.back * HEAD,
             *cached = (job.is_value ? pass.layer.v : pass.layer.k) + u.at + pos * a.d;

    if (!__any_sync(SB_FULL_WARP, job.is_wanted))
        return;
    make_head<HEAD / 32>(from, job.turn(pass, pos), pass.layer.q_norm || pass.layer.k_norm, a.eps,
                         [&](int e, float value) {
                             const uint16_t bits = (uint16_t)pack2<TYPE>(value, 0.0f);
                             if (job.is_wanted && job.is_query)
                                 query[e] = value;
                             if (job.is_wanted && !job.is_query)
                                 fresh[e] = bits;
                             if (job.is_wanted && !job.is_query && job.back == 0)
                                 cached[e] = bits;
                         });
    for (int e = a.d + lane; job.is_query && e < HEAD; e += HEAD_LANES)
        query[e] = 0.0f;
    async_fence(); /* the next step reads the cache by bulk copies */
}

/* ------------------------------------------------------------------ keys */

/* This warp's keys or values: those of this lane's half of the warp, at this lane's elements. Both
 * together take more registers than there are. */
struct warp_rows {
    uint4 row[PAIRS];
    int first; /* position of row 0 of this half; the others are two apart */

    /* fresh: rows of this step, the unit's own token's first */
    template <class RING>
    __device__ __forceinline__ void take(RING &ring, const uint16_t *fresh, const attend_unit &u,
                                         int d)
    {
        const int lane = (int)threadIdx.x % 32, chunk = lane % 16, pitch = (d + 7) / 8 * 16;
        const bool has_keys = u.has_keys(); /* the whole warp */
        const uint8_t *cached = NULL;

        first = u.first_key() + lane / 16;
        if (has_keys)
            cached = ring.slot(0) + lane / 16 * pitch + chunk * 16;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const int back = u.pos - (first + 2 * i);
            const uint4 zeros = {0, 0, 0, 0};
            row[i] = zeros;
            if (back >= 0 && chunk * 8 < d)
                row[i] = back < u.n_fresh ? load_chunk(fresh + back * HEAD, chunk, d)
                                          : *(const uint4 *)(cached + 2 * i * pitch);
        }
        if (has_keys)
            ring.give_back(1);
    }

    /* Else all elements are widened once for all heads. */
    __device__ __forceinline__ void keep_packed()
    {
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            opaque(row[i]);
    }
};

/* The scores of one query head with this warp's keys, into shared memory: out [WARP_KEYS]. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void score_head(float *out, const float *q, warp_rows &keys,
                                           const attend_unit &u, float scale)
{
    const int lane = (int)threadIdx.x % 32, chunk = lane % 16;
    float query[8];

    keys.keep_packed();
#pragma unroll
    for (int e = 0; e < 8; e++)
        query[e] = q[chunk * 8 + e];
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float s = 0.0f;
#pragma unroll
        for (int e = 0; e < 8; e++)
            s = fmaf(query[e], element<TYPE>(keys.row[i], e), s);
        for (int step = 8; step > 0; step /= 2)
            s += __shfl_xor_sync(SB_FULL_WARP, s, step);
        if (chunk == 0)
            out[2 * i + lane / 16] = keys.first + 2 * i <= u.pos ? s * scale : -INFINITY;
    }
}

/* The result of one query head over this warp's values, which takes the place of the scores: out
 * [HEAD + 2]. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void sum_head(float *out, warp_rows &values, const attend_unit &u)
{
    const int lane = (int)threadIdx.x % 32, chunk = lane % 16;
    float s[PAIRS], o[8], top = -INFINITY, sum = 0.0f;

    values.keep_packed();
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        s[i] = out[2 * i + lane / 16];
        top = fmaxf(top, s[i]);
    }
    top = fmaxf(top, __shfl_xor_sync(SB_FULL_WARP, top, 16));
    const float from = top == -INFINITY ? 0.0f : top;
#pragma unroll
    for (int e = 0; e < 8; e++)
        o[e] = 0.0f;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const float w = exp2f(s[i] - from);
        sum += w;
        if (values.first + 2 * i <= u.pos)
#pragma unroll
            for (int e = 0; e < 8; e++)
                o[e] = fmaf(w, element<TYPE>(values.row[i], e), o[e]);
    }
    sum += __shfl_xor_sync(SB_FULL_WARP, sum, 16);
    __syncwarp(); /* the scores have been read */
#pragma unroll
    for (int e = 0; e < 8; e++) {
        o[e] += __shfl_xor_sync(SB_FULL_WARP, o[e], 16);
        if (lane < 16)
            out[chunk * 8 + e] = o[e];
    }
    if (lane == 0)
        out[HEAD] = top, out[HEAD + 1] = sum;
}

/* The results of all query heads of a unit over this warp's keys, into shared memory. */
template <enum sb_dtype TYPE, class RING>
__device__ __forceinline__ void attend_warp(RING &ring, const attend_memory &m,
                                            const attend_unit &u, const attend_shape &a)
{
    const int warp = (int)threadIdx.x / 32, group = a.group();
    warp_rows rows;

    rows.take(ring, m.k, u, a.d);
#pragma unroll 1
    for (int h = 0; h < group; h++)
        score_head<TYPE>(m.of_warp(warp, h, group), m.q + h * HEAD, rows, u, a.scale);
    __syncwarp();
    rows.take(ring, m.v, u, a.d);
#pragma unroll 1
    for (int h = 0; h < group; h++)
        sum_head<TYPE>(m.of_warp(warp, h, group), rows, u);
}

/* ------------------------------------------------------------------ merging */

/* Results merged so far, of one column. */
struct running_sum {
    float o, m, l;

    /* Adds N more, of which get(i) gives the value, the largest score and the sum of weights. They
     * are weighted by one maximum, so that no exponential waits for another. */
    template <int N, class F>
    __device__ __forceinline__ void add(F get)
    {
        float value[N], top[N], sum[N], most = m;

#pragma unroll
        for (int i = 0; i < N; i++) {
            get(i, value[i], top[i], sum[i]);
            most = fmaxf(most, top[i]);
        }
        if (most == -INFINITY) /* no keys */
            return;
        const float mine = exp2f(m - most);
        o *= mine;
        l *= mine;
        m = most;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float its = exp2f(top[i] - most);
            o = fmaf(value[i], its, o);
            l = fmaf(sum[i], its, l);
        }
    }
};

/* Where a head of a unit has the result of a part in scratch. */
__device__ __forceinline__ float *partial_of(const attend_pass &pass, const attend_unit &u, int h,
                                             int part)
{
    const attend_shape &a = pass.shape;
    const int64_t head = (int64_t)u.token * a.heads + u.kv_head * a.group() + h;

    return a.partial + (head * pass.parts + part) * (a.d + 2);
}

/* Merges the warps' results of a unit: into y if it is all of its keys, else into scratch. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void merge_warps(const attend_memory &m, const attend_unit &u,
                                            const attend_pass &pass)
{
    const int d = pass.shape.d, group = pass.shape.group();
    uint16_t *y = pass.y + u.token * pass.ld + (int64_t)u.kv_head * group * d;

    for (int i = (int)threadIdx.x; i < group * d; i += THREADS) {
        const int h = i / d, e = i % d;
        running_sum sum = {0.0f, -INFINITY, 0.0f};
        sum.add<WARPS>([&](int w, float &value, float &top, float &weights) {
            const float *of = m.of_warp(w, h, group);
            value = of[e], top = of[HEAD], weights = of[HEAD + 1];
        });
        if (u.n_parts == 1) {
            y[i] = (uint16_t)pack2<TYPE>(sum.o / sum.l, 0.0f);
            continue;
        }
        float *partial = partial_of(pass, u, h, u.part);
        partial[e] = sum.o;
        if (e == 0)
            partial[d] = sum.m, partial[d + 1] = sum.l;
    }
}

/* Merges all parts of a unit's keys. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void merge_parts(const attend_unit &u, const attend_pass &pass)
{
    const int d = pass.shape.d, group = pass.shape.group();
    uint16_t *y = pass.y + u.token * pass.ld + (int64_t)u.kv_head * group * d;

    for (int i = (int)threadIdx.x; i < group * d; i += THREADS) {
        const float *partial = partial_of(pass, u, i / d, 0);
        running_sum sum = {0.0f, -INFINITY, 0.0f};
        for (int p = SB_CUDA_FAULT(PART_LEFT_OUT); p < u.n_parts; p += PARTS_AT_ONCE)
            sum.add<PARTS_AT_ONCE>([&](int j, float &value, float &top, float &weights) {
                const float *of = partial + (p + j) * (d + 2);
                const bool is_there = p + j < u.n_parts;
                value = is_there ? __ldcg(of + i % d) : 0.0f;
                top = is_there ? __ldcg(of + d) : -INFINITY;
                weights = is_there ? __ldcg(of + d + 1) : 0.0f;
            });
        y[i] = (uint16_t)pack2<TYPE>(sum.o / sum.l, 0.0f);
    }
}

/* ------------------------------------------------------------------ a block's units */

/* n units together: `first`, and every gridDim.x-th behind it. */
template <enum sb_dtype TYPE, class RING>
__device__ __forceinline__ void attend_units(RING &ring, uint8_t *memory, int first, int n,
                                             const attend_pass &pass)
{
    const attend_shape &a = pass.shape;
    const int group = a.group(), pairs = (group + 2 * FRESH + 1) / 2, warp = (int)threadIdx.x / 32;
    unit_count *counts = (unit_count *)(memory + n * attend_memory::bytes(group));
    const auto unit = [&](int i) {
        return unit_of(pass.tokens, a.kv_heads, first + i * (int)gridDim.x);
    };

    for (int i = warp; i < n * pairs; i += WARPS)
        make_heads<TYPE>(attend_memory(memory, i / pairs, group), unit(i / pairs), pass, i % pairs);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < n; i++)
        attend_warp<TYPE>(ring, attend_memory(memory, i, group), unit(i), a);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        const attend_unit u = unit(i);
        merge_warps<TYPE>(attend_memory(memory, i, group), u, pass);
        if (threadIdx.x == 0)
            counts[i] = {u.token * a.kv_heads + u.kv_head, u.n_parts, 0};
    }
    __syncthreads();
    if ((int)threadIdx.x < n) {
        unit_count *mine = counts + threadIdx.x;
        mine->is_last = mine->n_parts > 1 && is_last_of(a.counters + mine->counter, mine->n_parts);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < n; i++)
        if (counts[i].is_last)
            merge_parts<TYPE>(unit(i), pass);
}

/* Attention of a pass, all blocks together. item: this block's first unit, and then its first item
 * of the next phase; at_once: units for which `memory` has room. */
template <enum sb_dtype TYPE, class RING>
__device__ __forceinline__ void attend(RING &ring, int &item, uint8_t *memory, int at_once,
                                       const attend_pass &pass)
{
    const int n_units = pass.tokens.n_parts * pass.shape.kv_heads, blocks = (int)gridDim.x;

    while (item < n_units) {
        const int n = min(at_once, (n_units - item + blocks - 1) / blocks);
        attend_units<TYPE>(ring, memory, item, n, pass);
        item += n * blocks;
        if (item < n_units)
            __syncthreads(); /* the next units may take the memory */
    }
    item -= n_units;
}

} // namespace

#endif
