/*
 * Attention within the steps of a draft: head norms, rotation, the new key and value, and the keys
 * before them.
 *
 *     unit: one token, one kv head with its query heads, and a part of 128 keys
 *
 *     warp w of a unit       keys 16 w .. 16 w + 15 of the part, two at a time: half a warp a key,
 *                            a lane eight elements. All of them are loaded at once, so that the
 *                            memory is waited for once.
 *     the eight warps        are merged in ascending order through shared memory, and so are the
 *                            parts through scratch, by the block that is the last of them
 *
 * So a result is a function of the query and its own history. Positions fix the parts, not the
 * pass.
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

#include "kernels/cuda/draft_tile.cuh"
#include "kernels/cuda/opaque.cuh"

namespace
{

enum {
    PART = 128,     /* keys */
    WARP_KEYS = 16, /* PART / WARPS */
    HEAD = 128,     /* the widest head */
    GROUP = 8,      /* most query heads of a kv head */
    FRESH = 2,      /* tokens of a sequence in a pass */
    PAIRS = WARP_KEYS / 2
};

struct attend_layer {
    const float *q_norm, *k_norm; /* or NULL */
    uint16_t *k, *v;              /* planes */
};

/* One step, with the device's arrays of struct sb_draft_step. */
struct one_step {
    int n_tokens, n_out, max_len;
    const int32_t *id_at, *pos, *seq, *cap, *start, *out, *select_at;
    const int64_t *base;
};

/* What a launch says of all attention. */
struct attend_shape {
    const float *cos, *sin;
    float *partial;     /* [token, head, parts, d + 2]: o, m, l */
    unsigned *counters; /* [token, kv head] */
    int heads, kv_heads, d, rot_dim, interleaved;
    float eps, scale; /* scale: of scores, times log2(e) */
};

/* What a unit keeps in shared memory, for `group` query heads. */
struct attend_memory {
    float *q;      /* [group, HEAD] */
    float *key;    /* [FRESH, HEAD]: while it is made */
    uint16_t *k;   /* [FRESH, HEAD] */
    uint16_t *v;   /* [FRESH, HEAD] */
    float *merged; /* [WARPS, group, HEAD + 4]: o, m, l */
    int *is_last;

    static __host__ __device__ __forceinline__ int bytes(int group)
    {
        return (group * HEAD + FRESH * HEAD + WARPS * group * (HEAD + 4)) * 4 + FRESH * HEAD * 4 +
               16;
    }
    __device__ __forceinline__ attend_memory(uint8_t *at, int group)
    {
        q = (float *)at;
        key = q + group * HEAD;
        merged = key + FRESH * HEAD;
        k = (uint16_t *)(merged + WARPS * group * (HEAD + 4));
        v = k + FRESH * HEAD;
        is_last = (int *)(v + FRESH * HEAD);
    }
    __device__ __forceinline__ float *of_warp(int warp, int head, int group) const
    {
        return merged + (warp * group + head) * (HEAD + 4);
    }
};

/* out [HEAD] = the head at `from`, normed and rotated for its position, by a warp; zeros from d on.
 */
__device__ __forceinline__ void make_head(float *out, const float *from, const float *weight,
                                          const attend_shape &a, int64_t pos)
{
    const int lane = threadIdx.x % 32, half = a.rot_dim / 2;
    float v[HEAD / 32], sum = 0.0f;

#pragma unroll
    for (int i = 0; i < HEAD / 32; i++) {
        v[i] = lane + 32 * i < a.d ? __ldcg(from + lane + 32 * i) : 0.0f;
        sum = fmaf(v[i], v[i], sum);
    }
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(SB_FULL_WARP, sum, step);
    const float scale = weight ? 1.0f / sqrtf(sum / (float)a.d + a.eps) : 1.0f;
#pragma unroll
    for (int i = 0; i < HEAD / 32; i++) {
        const int at = lane + 32 * i;
        out[at] = weight && at < a.d ? v[i] * scale * weight[at] : v[i];
    }
    __syncwarp();
    for (int i = lane; i < half; i += 32) {
        float *p = out + (a.interleaved ? 2 * i : i), *q = a.interleaved ? p + 1 : p + half;
        const float cosine = a.cos[pos * half + i], sine = a.sin[pos * half + i];
        const float x = *p, y = *q;
        *p = x * cosine - y * sine;
        *q = y * cosine + x * sine;
    }
    __syncwarp();
}

/* Elements [8 chunk, 8 chunk + 8) of a row of d elements; zeros from d on. */
__device__ __forceinline__ uint4 load_chunk(const uint16_t *row, int chunk, int d)
{
    if (d % 8 == 0 && (size_t)row % 16 == 0)
        return *(const uint4 *)(row + chunk * 8);
    uint32_t word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (chunk * 8 + i < d)
            word[i / 2] |= (uint32_t)row[chunk * 8 + i] << i % 2 * 16;
    const uint4 out = {word[0], word[1], word[2], word[3]};
    return out;
}

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

/* A unit's token, as all of its threads see it. */
struct attend_unit {
    int token, kv_head, part, group, n_fresh;
    int64_t pos, at; /* at: of position 0 of its sequence's head, in a plane */
    int64_t row;     /* elements of a row of qkv */
};

/* Makes the unit's queries and the keys and values of this pass in its part, and writes its own
 * token's to the cache. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void make_heads(const attend_memory &m, const attend_unit &u,
                                           const attend_shape &a, const attend_layer &layer,
                                           const float *qkv)
{
    const int lane = threadIdx.x % 32;
    const float *own = qkv + u.token * u.row;

    for (int i = threadIdx.x / 32; i < u.group + u.n_fresh; i += WARPS) {
        const int back = i - u.group;
        if (back < 0) {
            make_head(m.q + i * HEAD, own + (int64_t)(u.kv_head * u.group + i) * a.d, layer.q_norm,
                      a, u.pos);
            continue;
        }
        const float *k = own - back * u.row + (int64_t)(a.heads + u.kv_head) * a.d;
        const float *v = k + (int64_t)a.kv_heads * a.d;
        make_head(m.key + back * HEAD, k, layer.k_norm, a, u.pos - back);
        for (int e = lane; e < HEAD; e += 32) {
            const uint32_t pair = pack2<TYPE>(m.key[back * HEAD + e],
                                              e < a.d ? __ldcg(v + e) : 0.0f);
            m.k[back * HEAD + e] = (uint16_t)pair;
            m.v[back * HEAD + e] = (uint16_t)(pair >> 16);
            if (back == 0 && e < a.d && u.pos / PART == u.part) {
                layer.k[u.at + u.pos * a.d + e] = (uint16_t)pair;
                layer.v[u.at + u.pos * a.d + e] = (uint16_t)(pair >> 16);
            }
        }
    }
}

/* This warp's keys and values: those of this lane's half of the warp, at this lane's elements. */
struct warp_keys {
    uint4 k[PAIRS], v[PAIRS];
    int64_t first; /* position of key 0 of this half; the others are two apart */

    __device__ __forceinline__ void load(const attend_memory &m, const attend_unit &u,
                                         const attend_shape &a, const attend_layer &layer)
    {
        const int lane = threadIdx.x % 32, chunk = lane % 16;

        first = (int64_t)u.part * PART + threadIdx.x / 32 * WARP_KEYS + lane / 16;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const int64_t p = first + 2 * i, back = u.pos - p;
            const uint4 zeros = {0, 0, 0, 0};
            k[i] = v[i] = zeros;
            if (back < 0 || chunk * 8 >= a.d)
                continue;
            const bool is_fresh = back < u.n_fresh;
            k[i] = load_chunk(is_fresh ? m.k + back * HEAD : layer.k + u.at + p * a.d, chunk, a.d);
            v[i] = load_chunk(is_fresh ? m.v + back * HEAD : layer.v + u.at + p * a.d, chunk, a.d);
        }
    }

    /* Else all elements are widened once for all heads. */
    __device__ __forceinline__ void keep_packed()
    {
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            opaque(k[i]);
            opaque(v[i]);
        }
    }
};

/* The result of one query head over this warp's keys, into shared memory. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void attend_head(float *out, const float *q, warp_keys &keys,
                                            const attend_unit &u, float scale)
{
    const int lane = threadIdx.x % 32, chunk = lane % 16;
    float s[PAIRS], query[8], o[8], top = -INFINITY, sum = 0.0f;

    keys.keep_packed();
#pragma unroll
    for (int e = 0; e < 8; e++) {
        query[e] = q[chunk * 8 + e];
        o[e] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        s[i] = 0.0f;
#pragma unroll
        for (int e = 0; e < 8; e++)
            s[i] = fmaf(query[e], element<TYPE>(keys.k[i], e), s[i]);
        for (int step = 8; step > 0; step /= 2)
            s[i] += __shfl_xor_sync(SB_FULL_WARP, s[i], step);
        s[i] = keys.first + 2 * i <= u.pos ? s[i] * scale : -INFINITY;
        top = fmaxf(top, s[i]);
    }
    top = fmaxf(top, __shfl_xor_sync(SB_FULL_WARP, top, 16));
    const float from = top == -INFINITY ? 0.0f : top;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const float w = exp2f(s[i] - from);
        sum += w;
        if (keys.first + 2 * i <= u.pos)
#pragma unroll
            for (int e = 0; e < 8; e++)
                o[e] = fmaf(w, element<TYPE>(keys.v[i], e), o[e]);
    }
    sum += __shfl_xor_sync(SB_FULL_WARP, sum, 16);
#pragma unroll
    for (int e = 0; e < 8; e++) {
        o[e] += __shfl_xor_sync(SB_FULL_WARP, o[e], 16);
        if (lane < 16)
            out[chunk * 8 + e] = o[e];
    }
    if (lane == 0)
        out[HEAD] = top, out[HEAD + 1] = sum;
}

/* Results merged so far, of one column. */
struct running_sum {
    float o, m, l;

    __device__ __forceinline__ void add(float value, float top, float sum)
    {
        const float most = fmaxf(m, top);
        if (top == -INFINITY) /* no keys */
            return;
        const float mine = exp2f(m - most), its = exp2f(top - most);
        o = o * mine + value * its;
        l = l * mine + sum * its;
        m = most;
    }
};

/* Merges the warps' results, and the parts' if this block is the last of them; the last writes y
 * [m, ld]. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void merge_unit(const attend_memory &m, const attend_unit &u,
                                           const attend_shape &a, int parts, uint16_t *y,
                                           int64_t ld)
{
    const int n = (int)(u.pos / PART) + 1, all = u.group * a.d;
    const int64_t head = (int64_t)u.token * a.heads + u.kv_head * u.group;
    uint16_t *to = y + u.token * ld + (int64_t)u.kv_head * u.group * a.d;

    for (int i = threadIdx.x; i < all; i += THREADS) {
        const int h = i / a.d, e = i % a.d;
        running_sum sum = {0.0f, -INFINITY, 0.0f};
        for (int w = 0; w < WARPS; w++) {
            const float *of = m.of_warp(w, h, u.group);
            sum.add(of[e], of[HEAD], of[HEAD + 1]);
        }
        float *partial = n > 1 ? a.partial + ((head + h) * parts + u.part) * (a.d + 2) : NULL;
        if (n == 1)
            to[i] = (uint16_t)pack2<TYPE>(sum.o / sum.l, 0.0f);
        else
            partial[e] = sum.o;
        if (n > 1 && e == 0)
            partial[a.d] = sum.m, partial[a.d + 1] = sum.l;
    }
    unsigned *counter = a.counters + u.token * a.kv_heads + u.kv_head;
    if (n == 1 || !is_last_block(counter, n, m.is_last))
        return;
    for (int i = threadIdx.x; i < all; i += THREADS) {
        const float *partial = a.partial + (head + i / a.d) * parts * (a.d + 2);
        running_sum sum = {0.0f, -INFINITY, 0.0f};
        for (int p = 0; p < n; p++, partial += a.d + 2)
            sum.add(__ldcg(partial + i % a.d), __ldcg(partial + a.d), __ldcg(partial + a.d + 1));
        to[i] = (uint16_t)pack2<TYPE>(sum.o / sum.l, 0.0f);
    }
}

/* Attention of a pass, all blocks together. */
template <enum sb_dtype TYPE>
__device__ __forceinline__ void attend_pass(uint8_t *memory, const attend_shape &a,
                                            const attend_layer &layer, const one_step &pass,
                                            const float *qkv, uint16_t *y, int64_t ld)
{
    const int group = a.heads / a.kv_heads, parts = (pass.max_len + PART - 1) / PART;
    const attend_memory m(memory, group);
    const int per_part = pass.n_tokens * a.kv_heads;

    for (int i = (int)blockIdx.x; i < per_part * parts; i += (int)gridDim.x) {
        const int token = i % per_part / a.kv_heads, seq = pass.seq[token];
        attend_unit u = {token,
                         i % a.kv_heads,
                         i / per_part,
                         group,
                         1,
                         pass.pos[token],
                         0,
                         (int64_t)(a.heads + 2 * a.kv_heads) * a.d};
        if (u.part > u.pos / PART)
            continue;
        u.n_fresh += token > 0 && pass.seq[token - 1] == seq && pass.pos[token - 1] + 1 == u.pos;
        u.at = pass.base[seq] + ((int64_t)u.kv_head * pass.cap[seq] + pass.start[seq]) * a.d;
        make_heads<TYPE>(m, u, a, layer, qkv);
        __syncthreads();
        warp_keys keys;
        keys.load(m, u, a, layer);
        for (int h = 0; h < group; h++)
            attend_head<TYPE>(m.of_warp((int)threadIdx.x / 32, h, group), m.q + h * HEAD, keys, u,
                              a.scale);
        __syncthreads();
        merge_unit<TYPE>(m, u, a, parts, y, ld);
        __syncthreads(); /* the next unit may begin */
    }
}

} // namespace

#endif
