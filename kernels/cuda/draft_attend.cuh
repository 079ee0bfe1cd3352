/*
 * Attention within the steps of a draft: head norms, rotation, the new key and value, and the keys
 * before them.
 *
 *     unit: one token, one kv head with its query heads, and a part of 128 keys
 *
 *     warp w of a unit       keys 16 w .. 16 w + 15 of the part. The ring brings them, as it brings
 *                            weights (draft_stream.cuh), so that they are there when it is their
 *                            turn.
 *     the eight warps        are merged in ascending order through shared memory, and so are the
 *                            parts through scratch, by the block that is the last of them
 *
 * So a result is a function of the query and its own history. Positions fix the parts, not the
 * pass.
 *
 * Scores and results are products of tensor cores, whose sixteen rows are
 *
 *     row 0 .. 7     the unit's query heads, rounded to 16 bits
 *     row 8 .. 15    what rounding has taken from rows 0 .. 7
 *
 * and two such rows are added at the end. So queries, and the weights of values, keep twice the
 * bits of an element, at no cost: a unit has eight query heads at most.
 *
 * A block does all its units together, as far as there is shared memory for their queries and their
 * warps' results: all heads, all keys, all merges. So it waits as often for several units as for
 * one.
 *
 * A unit normalises and rotates its own queries, which costs less than to wait for a phase that
 * does it once. The keys and values of this pass are not read from the cache, because no barrier
 * lies between those who write and those who read it: a unit makes those of its own token and of
 * the one before it, if that is of the same sequence, and a step has at most these two. It writes
 * its own token's to the cache.
 *
 * Rejected: scores and results by CUDA cores, half a warp a key. By a profile of an H100 that was
 * more than 1000 of the 2500 instructions that a warp spent on a unit of two query heads.
 */
#ifndef SB_CUDA_DRAFT_ATTEND_CUH
#define SB_CUDA_DRAFT_ATTEND_CUH

#include "kernels/cuda/draft_stream.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/rope_head.cuh"

namespace
{

enum {
    GROUP = 8,           /* most query heads of a kv head */
    MOST_UNITS = 4,      /* that a block does together */
    PARTS_AT_ONCE = 8,   /* of a head's keys, that are merged together */
    Q_PITCH = HEAD + 32, /* so that eight lanes of an operand read two rows without conflicts */
    MERGED_PITCH = HEAD + 4
};

/* What a launch says of all attention. */
struct attend_shape {
    const float *cos, *sin;
    float *partial;             /* [token, head, parts, d + 2]: o, m, l */
    unsigned *counters;         /* [token, kv head] */
    int heads, kv_heads, group; /* group: query heads of a kv head */
    int d, rot_dim, interleaved;
    float eps, scale; /* scale: of scores, times log2(e) */
    bool in_fours;    /* heads are as make_head_in_fours wants them */
};

/* One layer's attention in one step. */
struct attend_pass {
    const attend_shape &shape;
    const attend_layer &layer;
    stream_tables &tables;
    int step;
    const float *qkv;
    uint16_t *y; /* [tokens, ld] */
    int64_t ld;
    int parts; /* that scratch has of each head */
};

/* How a block finds out whether it is the last of those that have parts of the same keys. */
struct unit_count {
    int counter, n_parts, is_last;
};

/* What a unit keeps in shared memory. The counts of all units lie behind them. Rows of q, k, v and
 * zeros are zeros from the head's end on. */
struct attend_memory {
    float *merged;   /* [WARPS, group, MERGED_PITCH]: o [HEAD], m, l */
    uint16_t *q;     /* [2, group, Q_PITCH]: rounded, and what rounding has taken */
    uint16_t *k;     /* [FRESH, HEAD] */
    uint16_t *v;     /* [FRESH, HEAD] */
    uint16_t *zeros; /* [HEAD] */

    static __host__ __device__ __forceinline__ int bytes(int group)
    {
        return WARPS * group * MERGED_PITCH * 4 + 2 * group * Q_PITCH * 2 +
               (2 * FRESH + 1) * HEAD * 2;
    }
    static __host__ __device__ __forceinline__ int bytes_of_all(int group, int n_units)
    {
        return n_units * (bytes(group) + (int)sizeof(unit_count));
    }
    __device__ __forceinline__ attend_memory(uint8_t *all, int i, int group)
    {
        merged = (float *)(all + i * bytes(group));
        q = (uint16_t *)(merged + WARPS * group * MERGED_PITCH);
        k = q + 2 * group * Q_PITCH;
        v = k + FRESH * HEAD;
        zeros = v + FRESH * HEAD;
    }
    __device__ __forceinline__ float *of_warp(int warp, int head, int group) const
    {
        return merged + (warp * group + head) * MERGED_PITCH;
    }
};

template <enum sb_dtype TYPE>
__device__ __forceinline__ float widened(uint32_t bits)
{
    return TYPE == SB_BF16 ? __uint_as_float(bits << 16) : half_float(bits);
}

template <enum sb_dtype TYPE>
__device__ __forceinline__ uint32_t rounded(float v)
{
    return pack2<TYPE>(v, 0.0f);
}

/* What rounding takes from v. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ float lost(float v)
{
    return v - widened<TYPE>(rounded<TYPE>(v));
}

/* ------------------------------------------------------------------ heads */

/* Number `job` of the heads that a unit may need: its queries, then the key and the value of its
 * own token, then those of the token before. */
struct head_job {
    int job, head, back; /* head: of the row of qkv `back` tokens before the unit's */
    bool is_query, is_value, is_wanted;

    __device__ __forceinline__ head_job(const attend_unit &u, const attend_shape &a, int number)
    {
        const int group = a.group;

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

/* x by to, and y by more, and their sum */
__device__ __forceinline__ float4 turned(const float4 &x, const float4 &to, const float4 &y,
                                         const float4 &more)
{
    return {fmaf(x.x, to.x, y.x * more.x), fmaf(x.y, to.y, y.y * more.y),
            fmaf(x.z, to.z, y.z * more.z), fmaf(x.w, to.w, y.w * more.w)};
}

__device__ __forceinline__ float4 scaled(const float4 &x, float scale, const float4 &by)
{
    return {x.x * scale * by.x, x.y * scale * by.y, x.z * scale * by.z, x.w * scale * by.w};
}

/* Makes a head [d], calling put(e, four) for four neighbouring elements, where its halves are
 * turned with each other and have a multiple of four elements. Half a warp makes it: a lane has
 * four elements of the first half and the four that they are turned with, so that all it needs
 * comes by six loads. make_head of rope_head.cuh, which makes any head and in the order of the
 * target's class, takes four times as many. */
template <class F>
__device__ __forceinline__ void make_head_in_fours(const float *head, const rope_turn &turn,
                                                   float eps, F put)
{
    const int half = turn.n / 2, k = (int)threadIdx.x % HEAD_LANES * 4;
    const bool is_there = k < half, is_normed = is_there && turn.weight,
               is_turned = is_there && turn.half > 0;
    const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f}, ones = {1.0f, 1.0f, 1.0f, 1.0f};
    const auto load = [](bool does, const float *from, int at, const float4 &otherwise) {
        return does ? *(const float4 *)(from + at) : otherwise;
    };
    const float4 x = load(is_there, head, k, zeros), y = load(is_there, head, half + k, zeros),
                 by_x = load(is_normed, turn.weight, k, ones),
                 by_y = load(is_normed, turn.weight, half + k, ones),
                 cosine = load(is_turned, turn.cosine, k, ones),
                 sine = load(is_turned, turn.sine, k, zeros);
    float sum = square_of(x) + square_of(y);

    for (int step = HEAD_LANES / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(SB_FULL_WARP, sum, step);
    const float scale = turn.weight ? rsqrtf(__fdividef(sum, (float)turn.n) + eps) : 1.0f;
    const float4 normed_x = scaled(x, scale, by_x), normed_y = scaled(y, scale, by_y);
    if (!is_there)
        return;
    put(k, turned(normed_x, cosine, normed_y, scaled(sine, -1.0f, ones)));
    put(half + k, turned(normed_y, cosine, normed_x, sine));
}

template <enum sb_dtype TYPE>
__device__ __forceinline__ uint2 rounded(const float4 &v)
{
    return {pack2<TYPE>(v.x, v.y), pack2<TYPE>(v.z, v.w)};
}

template <enum sb_dtype TYPE>
__device__ __forceinline__ float4 lost(const float4 &v)
{
    return {lost<TYPE>(v.x), lost<TYPE>(v.y), lost<TYPE>(v.z), lost<TYPE>(v.w)};
}

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
    uint16_t *made = job.is_query ? m.q + job.job * Q_PITCH
                                  : (job.is_value ? m.v : m.k) + job.back * HEAD,
             *second = job.is_query
                           ? made + a.group * Q_PITCH
                           : (job.is_value ? pass.layer.v : pass.layer.k) + u.at + pos * a.d;
    const bool has_second = job.is_wanted && job.back == 0; /* else it is in the cache already */

    if (!__any_sync(SB_FULL_WARP, job.is_wanted))
        return;
    if (a.in_fours)
        make_head_in_fours(from, job.turn(pass, pos), a.eps, [&](int e, const float4 &values) {
            const uint2 bits = rounded<TYPE>(values);
            if (job.is_wanted)
                *(uint2 *)(made + e) = bits;
            if (has_second)
                *(uint2 *)(second + e) = job.is_query ? rounded<TYPE>(lost<TYPE>(values)) : bits;
        });
    else
        make_head<HEAD / 32>(from, job.turn(pass, pos), pass.layer.q_norm || pass.layer.k_norm,
                             a.eps, [&](int e, float value) {
                                 const uint16_t bits = (uint16_t)rounded<TYPE>(value);
                                 if (job.is_wanted)
                                     made[e] = bits;
                                 if (has_second)
                                     second[e] = job.is_query
                                                     ? (uint16_t)rounded<TYPE>(lost<TYPE>(value))
                                                     : bits;
                             });
    for (int e = a.d + lane; job.is_wanted && e < HEAD; e += HEAD_LANES) {
        made[e] = 0;
        if (job.is_query)
            second[e] = 0;
    }
    if (has_second && !job.is_query)
        async_fence_global(); /* the next step reads the cache by bulk copies */
}

/* ------------------------------------------------------------------ keys */

/* Where this warp has its keys or its values, by their number in the warp. */
struct warp_rows {
    const uint8_t *cached; /* what the ring has brought */
    const uint16_t *fresh; /* rows of this step, the unit's own token's first */
    const uint16_t *zeros;
    int pitch, d, n_fresh;
    int last; /* number of the unit's own token, which is the last that counts */

    /* Every lane asks for the same. */
    template <class RING>
    static __device__ __forceinline__ warp_rows of(const RING &ring, const attend_memory &m,
                                                   const uint16_t *fresh, const attend_unit &u,
                                                   int d)
    {
        const int pitch = (d + 7) / 8 * 16, warp = (int)threadIdx.x / 32;

        return {ring.slot(0) + warp * WARP_KEYS * pitch,
                fresh,
                m.zeros,
                pitch,
                d,
                u.n_fresh,
                u.pos - u.first_key()};
    }
    __device__ __forceinline__ const uint8_t *row(int i) const
    {
        const int back = last - i;

        return back < 0         ? (const uint8_t *)zeros
               : back < n_fresh ? (const uint8_t *)(fresh + back * HEAD)
                                : cached + i * pitch;
    }
    __device__ __forceinline__ uint4 load(const uint8_t *row, int chunk) const
    {
        const uint4 nothing = {0, 0, 0, 0};
        return chunk * 8 < d ? *(const uint4 *)(row + chunk * 16) : nothing;
    }
};

/* The number of key i of the four whose scores and weights a lane has. */
__device__ __forceinline__ int key_of_lane(int i)
{
    return i / 2 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
}

/* The dot products of query lane / 4 with the keys of a lane. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void multiply_keys(float (&s)[4], const attend_memory &m,
                                              const warp_rows &keys, int group)
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    const uint8_t *low = keys.row(g), *high = keys.row(g + 8);
    const uint16_t *query = g < group ? m.q + g * Q_PITCH : m.zeros,
                   *rest = g < group ? query + group * Q_PITCH : m.zeros;
    float acc[2][4] = {};

#pragma unroll
    for (int c = 0; c < HEAD / 8; c += 4) {
        if (c * 8 >= keys.d)
            break;
        const uint4 top = *(const uint4 *)(query + (c + t) * 8),
                    bottom = *(const uint4 *)(rest + (c + t) * 8);
        const uint4 k[2] = {keys.load(low, c + t), keys.load(high, c + t)};
        const uint32_t first[4] = {top.x, bottom.x, top.y, bottom.y};
        const uint32_t second[4] = {top.z, bottom.z, top.w, bottom.w};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            mma<TYPE>(acc[i], first, k[i].x, k[i].y);
            mma<TYPE>(acc[i], second, k[i].z, k[i].w);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        s[i] = acc[i / 2][i % 2] + acc[i / 2][2 + i % 2];
}

/* Scores become weights of values, the largest being 1. top, sum: of the query over all keys of the
 * warp */
__device__ __forceinline__ void weigh(float (&s)[4], float *top, float *sum, int last, float scale)
{
    *top = -INFINITY, *sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s[i] = key_of_lane(i) <= last ? s[i] * scale : -INFINITY;
        *top = fmaxf(*top, s[i]);
    }
    for (int step = 2; step > 0; step /= 2)
        *top = fmaxf(*top, __shfl_xor_sync(SB_FULL_WARP, *top, step));
    const float from = *top == -INFINITY ? 0.0f : *top;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s[i] = exp2f(s[i] - from);
        *sum += s[i];
    }
    for (int step = 2; step > 0; step /= 2)
        *sum += __shfl_xor_sync(SB_FULL_WARP, *sum, step);
}

/* Elements i of two rows, as two elements of an operand. */
__device__ __forceinline__ uint32_t pair_of(const uint32_t (&a)[4], const uint32_t (&b)[4], int i)
{
    return i % 2 ? and_or(b[i / 2], 0xffff0000u, a[i / 2] >> 16)
                 : and_or(a[i / 2], 0x0000ffffu, b[i / 2] << 16);
}

/* The sums of a warp's values with these weights: out [group, MERGED_PITCH]. A lane holds chunk
 * lane / 4 of its four values, and element i of it is a column of the i-th product. So it gets
 * columns 2 (lane % 4) and the next of eight products: sixteen neighbours. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void multiply_values(float *out, const float (&w)[4],
                                                const warp_rows &values, int group)
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    const uint32_t a[4] = {pack2<TYPE>(w[0], w[1]), pack2<TYPE>(lost<TYPE>(w[0]), lost<TYPE>(w[1])),
                           pack2<TYPE>(w[2], w[3]),
                           pack2<TYPE>(lost<TYPE>(w[2]), lost<TYPE>(w[3]))};
    const uint8_t *row[4];

#pragma unroll
    for (int i = 0; i < 4; i++)
        row[i] = values.row(key_of_lane(i));
#pragma unroll
    for (int first = 0; first < HEAD / 8; first += 8) {
        if (first * 8 >= values.d)
            break;
        uint32_t v[4][4];
        float sum[2][8];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint4 chunk = values.load(row[i], first + g);
            v[i][0] = chunk.x, v[i][1] = chunk.y, v[i][2] = chunk.z, v[i][3] = chunk.w;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float acc[4] = {};
            mma<TYPE>(acc, a, pair_of(v[0], v[1], i), pair_of(v[2], v[3], i));
            sum[0][i] = acc[0] + acc[2], sum[1][i] = acc[1] + acc[3];
        }
        if (g < group)
#pragma unroll
            for (int i = 0; i < 16; i += 4)
                *(float4 *)(out + g * MERGED_PITCH + (first + 2 * t) * 8 +
                            i) = {sum[i / 8][i % 8], sum[i / 8][i % 8 + 1], sum[i / 8][i % 8 + 2],
                                  sum[i / 8][i % 8 + 3]};
    }
}

/* The results of all query heads of a unit over this warp's keys, into shared memory. */
template <enum sb_dtype TYPE, class RING>
__device__ __forceinline__ void attend_warp(RING &ring, const attend_memory &m,
                                            const attend_unit &u, const attend_shape &a)
{
    const int lane = (int)threadIdx.x % 32, group = a.group;
    const warp_rows keys = warp_rows::of(ring, m, m.k, u, a.d);
    float *out = m.of_warp((int)threadIdx.x / 32, 0, group), w[4], top, sum;

    multiply_keys<TYPE>(w, m, keys, group);
    ring.give_back(1);
    weigh(w, &top, &sum, keys.last, a.scale);
    if (lane % 4 == 0 && lane / 4 < group) {
        float *end = out + lane / 4 * MERGED_PITCH + HEAD;
        end[0] = top, end[1] = sum;
    }
    multiply_values<TYPE>(out, w, warp_rows::of(ring, m, m.v, u, a.d), group);
    ring.give_back(1);
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
    const int64_t head = (int64_t)u.token * a.heads + u.kv_head * a.group + h;

    return a.partial + (head * pass.parts + part) * (a.d + 2);
}

/* Merges the warps' results of a unit: into y if it is all of its keys, else into scratch. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void merge_warps(const attend_memory &m, const attend_unit &u,
                                            const attend_pass &pass)
{
    const int d = pass.shape.d, group = pass.shape.group;
    uint16_t *y = pass.y + u.token * pass.ld + (int64_t)u.kv_head * group * d;

#pragma unroll 1
    for (int i = (int)threadIdx.x; i < group * HEAD; i += THREADS) {
        const int h = i / HEAD, e = i % HEAD;
        if (e >= d)
            continue;
        running_sum sum = {0.0f, -INFINITY, 0.0f};
        sum.add<WARPS>([&](int w, float &value, float &top, float &weights) {
            const float *of = m.of_warp(w, h, group);
            value = of[e], top = of[HEAD], weights = of[HEAD + 1];
        });
        if (u.n_parts == 1) {
            y[h * d + e] = (uint16_t)rounded<TYPE>(__fdividef(sum.o, sum.l));
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
    const int d = pass.shape.d, group = pass.shape.group;
    uint16_t *y = pass.y + u.token * pass.ld + (int64_t)u.kv_head * group * d;

#pragma unroll 1
    for (int i = (int)threadIdx.x; i < group * HEAD; i += THREADS) {
        const int h = i / HEAD, e = i % HEAD;
        const float *partial = partial_of(pass, u, h, 0);
        if (e >= d)
            continue;
        running_sum sum = {0.0f, -INFINITY, 0.0f};
        for (int p = SB_CUDA_FAULT(PART_LEFT_OUT); p < u.n_parts; p += PARTS_AT_ONCE)
            sum.add<PARTS_AT_ONCE>([&](int j, float &value, float &top, float &weights) {
                const float *of = partial + (p + j) * (d + 2);
                const bool is_there = p + j < u.n_parts;
                value = is_there ? __ldcg(of + e) : 0.0f;
                top = is_there ? __ldcg(of + d) : -INFINITY;
                weights = is_there ? __ldcg(of + d + 1) : 0.0f;
            });
        y[h * d + e] = (uint16_t)rounded<TYPE>(__fdividef(sum.o, sum.l));
    }
}

/* ------------------------------------------------------------------ a block's units */

/* n units together: number `first`, which is u, and every gridDim.x-th behind it. */
template <enum sb_dtype TYPE, class RING>
__device__ __forceinline__ void attend_units(RING &ring, uint8_t *memory, int first,
                                             const attend_unit &u, int n, const attend_pass &pass)
{
    const attend_shape &a = pass.shape;
    const int group = a.group, pairs = (group + 2 * FRESH + 1) / 2, warp = (int)threadIdx.x / 32;
    unit_count *counts = (unit_count *)(memory + n * attend_memory::bytes(group));
    const auto unit = [&](int i) {
        return i == 0 ? u : unit_of(pass.tables, pass.step, first + i * (int)gridDim.x);
    };

    for (int i = 0, pair = warp;; pair += WARPS) {
        for (; pair >= pairs; pair -= pairs)
            i++;
        if (i >= n)
            break;
        make_heads<TYPE>(attend_memory(memory, i, group), unit(i), pass, pair);
    }
    for (int i = (int)threadIdx.x; i < n * HEAD; i += THREADS)
        attend_memory(memory, i / HEAD, group).zeros[i % HEAD] = 0;
    sync_threads<THREADS>();
#pragma unroll 1
    for (int i = 0; i < n; i++)
        attend_warp<TYPE>(ring, attend_memory(memory, i, group), unit(i), a);
    pass.tables.set_storing(1);
    sync_threads<THREADS>();
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        const attend_unit now = unit(i);
        merge_warps<TYPE>(attend_memory(memory, i, group), now, pass);
        if (threadIdx.x == 0)
            counts[i] = {now.token * a.kv_heads + now.kv_head, now.n_parts, 0};
    }
    sync_threads<THREADS>();
    if ((int)threadIdx.x < n) {
        unit_count *mine = counts + threadIdx.x;
        mine->is_last = mine->n_parts > 1 && is_last_of(a.counters + mine->counter, mine->n_parts);
    }
    sync_threads<THREADS>();
#pragma unroll 1
    for (int i = 0; i < n; i++)
        if (counts[i].is_last)
            merge_parts<TYPE>(unit(i), pass);
}

/* Attention of a pass, all blocks together. item: number of this block's first unit, and then its
 * first item of the next phase; unit: that unit, if there is one; at_once: units for which `memory`
 * has room. */
template <enum sb_dtype TYPE, class RING>
__device__ __forceinline__ void attend(RING &ring, int &item, attend_unit unit, uint8_t *memory,
                                       int at_once, const attend_pass &pass)
{
    const int n_units = pass.tables.steps[pass.step].n_parts * pass.shape.kv_heads,
              blocks = (int)gridDim.x;

    while (item < n_units) {
        int n = 1;
        while (n < at_once && item + n * blocks < n_units)
            n++;
        attend_units<TYPE>(ring, memory, item, unit, n, pass);
        item += n * blocks;
        if (item < n_units) {
            pass.tables.set_storing(0);
            unit = unit_of(pass.tables, pass.step, item);
            sync_threads<THREADS>(); /* the next units may take the memory */
        }
    }
    item -= n_units;
}

} // namespace

#endif
