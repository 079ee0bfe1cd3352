/*
 * The f32 class's attention: causal, over the cache. It adds in the CPU's order
 * (kernels/cpu/attention.c has the recurrence), so it has the CPU's bits. A block takes one token
 * and head. Key tiles of 64 are counted from position 0 of the token's own sequence, and columns
 * after the token's own are never read. Neither are those before its window, if the layer has one:
 * tiles that end before it are left out, and keys before it count as those behind the token do. A
 * head's sink is what its maximum and sum begin with.
 *
 *     scores    eight groups of 16 threads, a key each: 16 running sums over ascending d, the fixed
 *               tree, times scale; and the soft cap
 *     softmax   16 threads of the first warp: largest, weights and their sum in 16 lanes and the
 *               fixed tree
 *     values    a thread an element d: y[d] = y[d] * rescale, then fused multiply-adds over
 *               ascending keys
 *
 *     shared: q [head_dim] | y [head_dim] | weights of the tile [64] | rescale, sum
 *
 * Keys are not split over blocks, because that would be another order of summation. This kernel is
 * for goldens and tests, not for speed.
 */
#include "kernels/cuda/common.cuh"

enum { THREADS = 128, TILE = 64, LANES = 16, GROUPS = TILE / LANES, KEYS = THREADS / LANES };

/* What the first warp keeps from tile to tile. All its lanes have the same max; lane 0 has the
 * sum. */
struct softmax {
    float max, sum;
};

/* The keys of a tile that the token attends to. */
struct key_range {
    int32_t first, end;

    __device__ __forceinline__ bool has(int32_t j) const
    {
        return j >= first && j < end;
    }
};

/* weights[j] = scale * dot(q, keys[j]), capped if the layer says so, for j in `range`. keys [end,
 * head_dim] */
static __device__ void tile_scores(float *weights, const float *q, const float *keys,
                                   const key_range &range, const sb_attention &a)
{
    const int32_t lane = threadIdx.x % LANES, group = threadIdx.x / LANES;

    /* A warp's two groups go on until neither has a key, since both add up their lanes at once. */
    for (int32_t j = group; j - group % 2 < range.end; j += KEYS) {
        const float *key = keys + (int64_t)j * a.head_dim;
        float sum = 0.0f;
        for (int32_t d = lane; d < a.head_dim && range.has(j); d += LANES)
            sum = fmaf(q[d], key[d], sum);
        sum = sb_hsum16(sum);
        if (lane == 0 && range.has(j))
            weights[j] = a.score_cap > 0.0f ? sb_soft_cap(sum * a.scale, a.score_cap)
                                            : sum * a.scale;
    }
}

/* Turns the tile's scores into weights. The first warp does it: both of its halves compute the
 * same, and the first half stores. Returns what the sums so far must be multiplied by. */
static __device__ float tile_softmax(struct softmax *s, float *weights, const key_range &range)
{
    const int32_t lane = threadIdx.x % LANES;
    float score[GROUPS], top = -INFINITY, total = 0.0f;

    for (int32_t g = 0; g < GROUPS; g++) {
        score[g] = range.has(g * LANES + lane) ? weights[g * LANES + lane] : -INFINITY;
        top = sb_max(top, score[g]);
    }
    __syncwarp(); /* both halves must have read before one of them stores */
    float max = __shfl_sync(SB_FULL_WARP, sb_hmax16(top), 0);
    max = s->max > max ? s->max : max;
    for (int32_t g = 0; g < GROUPS; g++) {
        const float weight = range.has(g * LANES + lane) ? sb_exp(score[g] - max) : 0.0f;
        if (threadIdx.x < LANES && range.has(g * LANES + lane))
            weights[g * LANES + lane] = weight;
        total += weight;
    }
    const float rescale = sb_exp(s->max - max);
    s->sum = fmaf(s->sum, rescale, sb_hsum16(total));
    s->max = max;
    return rescale;
}

static __global__ void __launch_bounds__(THREADS)
    attend(float *y, const float *qkv, const sb_attention a, const sb_pass pass)
{
    SB_DYNAMIC_SHARED(float, shared);
    float *q = shared, *sums = q + a.head_dim, *weights = sums + a.head_dim,
          *state = weights + TILE;
    const int64_t token = blockIdx.x / a.heads, head = blockIdx.x % a.heads,
                  kv_head = head / (a.heads / a.kv_heads);
    const int64_t seq = pass.seq[token], pos = pass.pos[token], row = a.heads + 2 * a.kv_heads;
    const int64_t from = a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
    const int64_t at = pass.base[seq] + (kv_head * pass.cap[seq] + pass.start[seq]) * a.head_dim;
    const float *keys = static_cast<const float *>(a.k) + at,
                *values = static_cast<const float *>(a.v) + at;
    struct softmax s = {a.sinks ? a.sinks[head] : -INFINITY, a.sinks ? 1.0f : 0.0f};

    for (int32_t d = threadIdx.x; d < a.head_dim; d += THREADS) {
        q[d] = qkv[(token * row + head) * a.head_dim + d];
        sums[d] = 0.0f;
    }
    __syncthreads();
    for (int64_t key = from / TILE * TILE; key <= pos; key += TILE) {
        const key_range range = {from > key ? (int32_t)(from - key) : 0,
                                 pos + 1 - key < TILE ? (int32_t)(pos + 1 - key) : (int32_t)TILE};
        tile_scores(weights, q, keys + key * a.head_dim, range, a);
        __syncthreads();
        if (threadIdx.x < 32) {
            const float rescale = tile_softmax(&s, weights, range);
            if (threadIdx.x == 0)
                state[0] = rescale;
        }
        __syncthreads();
        for (int32_t d = threadIdx.x; d < a.head_dim; d += THREADS) {
            float sum = sums[d] * state[0];
            for (int32_t j = range.first; j < range.end; j++)
                sum = fmaf(weights[j], values[(key + j) * a.head_dim + d], sum);
            sums[d] = sum;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        state[1] = s.sum;
    __syncthreads();
    for (int32_t d = threadIdx.x; d < a.head_dim; d += THREADS)
        y[(token * a.heads + head) * a.head_dim + d] = sums[d] / state[1];
}

extern "C" cudaError_t sb_cuda_attend_reference(float *y, const float *qkv,
                                                const struct sb_attention *attention,
                                                const struct sb_pass *pass, void *scratch,
                                                cudaStream_t stream)
{
    const size_t shared = (2 * (size_t)attention->head_dim + TILE + 2) * sizeof(float);
    const int64_t blocks = (int64_t)pass->n_tokens * attention->heads;

    (void)scratch;
    if (blocks == 0)
        return cudaSuccess;
    return SB_LAUNCH(attend, dim3((unsigned)blocks), dim3(THREADS), shared, stream, y, qkv,
                     *attention, *pass);
}

cudaError_t sb_load_attend_reference(enum sb_dtype type)
{
    return type == SB_F32 ? sb_load(attend) : cudaSuccess;
}
