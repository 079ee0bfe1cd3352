/*
 * The arithmetic of attention over 16-bit caches, for one tile of queries and one split of keys.
 *
 * Numerics. For a query at position p, the keys come in SPLITS of 128, counted from position 0 of
 * the query's own sequence. Split i makes a partial result from nothing but the query and the keys
 * and values of positions 128 i .. min(128 i + 127, p):
 *
 *     s[j] = scale log2(e) * dot(q, k[j])   one accumulator, steps of 16 along head_dim; -inf where
 *                                           j > p. With a soft cap: log2(e) * capped(scale * dot)
 *     M    = max s                          w[j] = 2^(s[j] - M)
 *     L    = sum w                          fixed: 8 keys a lane, 4 lanes, 4 warps, each ascending
 *     O[d] = sum w[j] v[j][d]               w rounded to the type; one accumulator, 8 steps of 16
 *                                           keys
 *
 * The p / 128 + 1 partial results are merged in ascending order, from (m, l, o) = (-inf, 0, 0), by
 * one formula (merge):
 *
 *     m' = max(m, M)   l = l 2^(m - m') + L 2^(M - m')   o likewise   at the end y = o (1 / l)
 *
 * In a layer with a window of W positions, keys j < p - W + 1 are masked as those behind p are, and
 * a split that has no other keys is not merged. Its maximum would be -inf, and so would m be.
 *
 * So the bits are a function of the query and its own history. (FlashAttention's PRs 2604 and 2626
 * fix split boundaries and merge order the same way. Splits counted from the end, or as many splits
 * as fill the machine, would make the bits depend on the pass.)
 *
 * A tile has ROWS queries (attend_query.cuh), 16 MT for each of TEAMS teams of four warps. Which
 * queries share a tile changes no bits, because a row of an mma's result depends on its own row of
 * A only. The four warps of a team share its queries:
 *
 *   scores     warp w: all queries x keys [32 w, 32 w + 32): K fragments are read once for MT tiles
 *   softmax    max and sum: in the quad of lanes, then over the warps through shared memory
 *   values     warp w: all queries x columns [D/4 w, D/4 (w+1)): V likewise; W by way of shared
 *              memory
 *
 *   shared:  K [128, D]  V [128, D]  Q [ROWS, D]   16 bit, swizzled as in mma.cuh
 *            max, sum [ROWS, 4] f32   pos [ROWS]   factors [ROWS, 2] f32   care [4 TEAMS]
 *            W [ROWS, 128]   16 bit, swizzled
 *
 * Teams share K and V, which come from the L2 cache once for all of them: where many query heads
 * share a kv head, what the L2 gives is most of attention's time. Rejected: clusters of blocks that
 * share them. They would need bulk copies of single rows, and a multiprocessor would hold no more.
 *
 * A block that takes one split has W where K was, and so much less memory that a multiprocessor has
 * room for three blocks of 32 queries instead of two. With several splits the next K is on its way
 * to that place by then.
 *
 * So even one tile of 6 queries keeps all tensor cores busy behind the loads. head_dim is padded
 * with zeros to D = 64, 128 or 256 in shared memory.
 *
 * Keys and values that are not the query's own never count. Keys past the tile's last position are
 * not loaded, and masked scores are replaced by -inf, whatever they were. A masked value is
 * multiplied by 0, which is harmless unless the value is Inf or NaN (because a later token of this
 * very pass has gone wrong). The kernel looks for such values, and where there are any computes the
 * tile again (values_with_care): key by key, or position by position where there are windows.
 */
#ifndef SB_CUDA_ATTEND_TILE_CUH
#define SB_CUDA_ATTEND_TILE_CUH

#include "kernels/cuda/attend_query.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/opaque.cuh"

namespace
{

enum {
    SPLIT = 128, /* keys; changes bits */
    WARPS = 4,   /* of a team */
    TEAM = 32 * WARPS,
    W_BYTES = SPLIT * 2, /* a row of W */
    CLUSTER_SPLITS = 8,  /* at most, for the blocks of a tile's splits to be a cluster */
/* Shared memory of a multiprocessor: of compute capability 9.0 and later, and of 8.0. */
#if __CUDA_ARCH__ >= 900
    MULTIPROCESSOR_KB = 228
#else
    MULTIPROCESSOR_KB = 164
#endif
};

/* WHOLE: heads have D columns, all of them rotated and not interleaved, all that is read or written
 * is aligned to 16 bytes, and a block takes one split of a pass whose heads it turns. WINDOWS: the
 * layer has a window, and blocks walk through their splits. */
template <enum sb_dtype TYPE_, int D_, int MT_, int TEAMS_ = 1, bool WHOLE_ = false,
          bool WINDOWS_ = false>
struct attend_shape {
    static constexpr enum sb_dtype TYPE = TYPE_;
    static constexpr bool WHOLE = WHOLE_, WINDOWS = WINDOWS_;
    enum {
        D = D_,
        MT = MT_,
        TEAMS = TEAMS_,
        THREADS = TEAM * TEAMS,
        HALF_WARPS = THREADS / 16,
        ROWS = 16 * MT * TEAMS,
        ROW_BYTES = 2 * D,
        N8 = D / WARPS / 8,       /* n8 tiles of a warp's columns */
        GROUP = MT == 4 ? 2 : N8, /* n8 tiles whose partial results are in registers at a time */
        UNROLL = MT == 4 ? 2 : 8, /* steps of 16; four query tiles hide their loads anyway */
        V_AT = SPLIT * ROW_BYTES,
        Q_AT = 2 * V_AT,
        MAX_AT = Q_AT + ROWS * ROW_BYTES,
        SUM_AT = MAX_AT + ROWS * WARPS * 4,
        POS_AT = SUM_AT + ROWS * WARPS * 4,
        FACTORS_AT = POS_AT + ROWS * 4,
        CARE_AT = FACTORS_AT + ROWS * 8,
        W_AT = (CARE_AT + TEAMS * WARPS * 4 + 127) / 128 * 128,
        SHARED = W_AT + ROWS * W_BYTES,
        SPLIT_SHARED = W_AT, /* of a block that takes one split */
        /* How many blocks of one split a multiprocessor can hold: by its shared memory, of which
         * every block takes 1 KB more than it asks for, and by registers. */
        RESIDENT_ = MULTIPROCESSOR_KB * 1024 / (SPLIT_SHARED + 1024),
        REGISTERS = (MT == 1   ? 4
                     : MT == 2 ? 3
                               : 2) /
                    TEAMS,
        RESIDENT = RESIDENT_ > REGISTERS ? REGISTERS : RESIDENT_,
        /* The same of blocks that walk through splits. */
        WALKING_ = MULTIPROCESSOR_KB * 1024 / (SHARED + 1024),
        WALKING = WALKING_ > RESIDENT ? RESIDENT : WALKING_
    };
};

template <class S>
__device__ __forceinline__ int head_dim_of(const attend_args &a)
{
    return S::WHOLE ? (int)S::D : a.d;
}

/* ------------------------------------------------------------------ merging */

struct merged {
    float m, l;
};

/* Takes the maximum m and sum l of a partial result, which has at least one key, into *state. The
 * values merged so far are to be multiplied by *old_factor, the partial result's by *new_factor. */
__device__ __forceinline__ void merge(merged *state, float m, float l, float *old_factor,
                                      float *new_factor)
{
    const float top = fmaxf(state->m, m);
    *old_factor = exp2f(state->m - top);
    *new_factor = exp2f(m - top);
    state->l = __fmaf_rn(state->l, *old_factor, __fmul_rn(l, *new_factor));
    state->m = top;
}

__device__ __forceinline__ float merge_value(float o, float old_factor, float value,
                                             float new_factor)
{
    return __fmaf_rn(o, old_factor, __fmul_rn(value, new_factor));
}

/* Whether a query at this position attends to a key of the split. window: of the layer, if shapes
 * have one. */
template <class S>
__device__ __forceinline__ bool sees_split(int pos, int first_key, int window)
{
    return pos >= first_key && (!S::WINDOWS || SB_CUDA_FAULT(SPLIT_BEFORE_WINDOW_MERGED) ||
                                pos - window + 1 < first_key + SPLIT);
}

/* How many keys of a split the tile looks at, and how many of these are in the cache. */
__device__ __forceinline__ int keys_of(const query_tile &tile, int split)
{
    return min((int)SPLIT, tile.highest + 1 - split * SPLIT);
}
__device__ __forceinline__ int cached_keys_of(const query_tile &tile, int split)
{
    return max(0, min(keys_of(tile, split), tile.fresh - split * SPLIT));
}

/* ------------------------------------------------------------------ loading */

/* Copies rows [0, cached) of keys or values into a tile of SPLIT rows. Rows from n on become zeros,
 * and so do columns from d on. Rows [cached, n) are left for put_new. Nearly all splits are full,
 * and their copies are one run of instructions without a branch: a thread makes up to 32, and every
 * instruction between them delays the last. The one that is not takes short loops. */
template <class S>
__device__ __forceinline__ void fetch_rows(uint8_t *tile, const uint16_t *from, int cached, int n,
                                           int d)
{
    enum {
        CHUNKS = S::ROW_BYTES / 16,
        AT_ONCE = S::THREADS / CHUNKS,
        ALL = SPLIT / AT_ONCE, /* of a thread's rows, those that every thread has */
        TURNS = (SPLIT + AT_ONCE - 1) / AT_ONCE /* and those that some have */
    };
    const int chunk = (int)(threadIdx.x % CHUNKS), mine = (int)(threadIdx.x / CHUNKS);

    if (S::WHOLE || (d % 8 == 0 && (size_t)from % 16 == 0)) {
        const bool is_inside = S::WHOLE || chunk * 8 < d;
        const uint16_t *const first = is_inside ? from + mine * d + chunk * 8 : from;
        const int step = is_inside ? AT_ONCE * d : 0;
        const shared_at to = at_shared(tile);
        if (cached == SPLIT) {
#pragma unroll
            for (int i = 0; i < TURNS; i++)
                if (i < ALL || mine + i * AT_ONCE < SPLIT)
                    cp_async(to + swizzled<S::ROW_BYTES>(mine + i * AT_ONCE, chunk),
                             first + i * step, is_inside);
            return;
        }
        int row = mine;
#pragma unroll 1
        for (int i = 0; row < cached; row += AT_ONCE, i++)
            cp_async(to + swizzled<S::ROW_BYTES>(row, chunk), first + i * step, is_inside);
#pragma unroll 1
        for (; row < SPLIT; row += AT_ONCE)
            if (row >= n)
                *(uint4 *)(tile + swizzled<S::ROW_BYTES>(row, chunk)) = make_uint4(0, 0, 0, 0);
    } else { /* rows are not aligned to 16 bytes, so they are copied by elements */
        for (int row = mine; row < SPLIT; row += AT_ONCE) {
            uint16_t *to = (uint16_t *)(tile + swizzled<S::ROW_BYTES>(row, chunk));
            for (int i = 0; i < 8 && (row < cached || row >= n); i++)
                to[i] = row < cached && chunk * 8 + i < d ? from[(int64_t)row * d + chunk * 8 + i]
                                                          : (uint16_t)0;
        }
    }
}

/* Writes the tile's queries, rounded to the type, and their positions to shared memory. Queries
 * past the tile's last are zeros and have position -1; columns past head_dim are zeros. */
template <class S>
__device__ __forceinline__ void load_queries(uint8_t *shared, const attend_args &a,
                                             const query_tile &tile, int kv_head)
{
    const int64_t stride = (int64_t)(a.heads + 2 * a.kv_heads) * a.d;

    for (int row = threadIdx.x / 32; row < S::ROWS; row += S::TEAMS * WARPS) {
        const query_place query = place_of(a, kv_head, tile.first + row);
        const int token = tile.run + query.token;
        const float *q = a.qkv + token * stride + (int64_t)query.head * a.d;
        const bool is_real = row < tile.n;
        if (threadIdx.x % 32 == 0)
            ((int *)(shared + S::POS_AT))[row] = is_real ? a.pos[token] : -1;
#pragma unroll
        for (int col = 2 * (threadIdx.x % 32); col < S::D; col += 64) {
            const float lo = is_real && col < a.d ? q[col] : 0.0f;
            const float hi = is_real && col + 1 < a.d ? q[col + 1] : 0.0f;
            uint8_t *to = shared + S::Q_AT + swizzled<S::ROW_BYTES>(row, col / 8) + col % 8 * 2;
            *(uint32_t *)to = pack2<S::TYPE>(lo, hi);
        }
    }
}

/* ------------------------------------------------------------------ one split */

/* The warp's number in its team, and the first of the team's queries, counted within the tile. */
template <class S>
__device__ __forceinline__ int warp_of_team(void)
{
    return (int)(S::TEAMS == 1 ? threadIdx.x / 32 : threadIdx.x % TEAM / 32);
}
template <class S>
__device__ __forceinline__ int first_of_team(void)
{
    return S::TEAMS == 1 ? 0 : (int)(threadIdx.x / TEAM) * 16 * S::MT;
}

/* How many mma tiles the team computes of a tile of n queries. */
template <class S>
__device__ __forceinline__ int mma_tiles_of(int n)
{
    const int tiles = (n - first_of_team<S>() + 15) / 16;

    if (S::ROWS == 16)
        return 1;
    return S::TEAMS == 1 ? tiles : max(0, min((int)S::MT, tiles));
}

/* A lane holds results of two queries of each mma tile. This is the query, counted within the tile,
 * of half i % 2 of the lane's results of the team's mma tile i / 2. */
template <class S>
__device__ __forceinline__ int row_of(int i)
{
    return first_of_team<S>() + i / 2 * 16 + i % 2 * 8 + (int)(threadIdx.x % 32 / 4);
}

/* s[t][n] = the products of the queries of the team's mma tile t and of keys 32 warp + 8 n ..
 * 32 warp + 8 n + 7. Only mma tiles t < n_mma are computed. */
template <class S>
__device__ __forceinline__ void scores(float (&s)[S::MT][4][4], const uint8_t *shared, int n_mma)
{
    const int lane = threadIdx.x % 32, warp = warp_of_team<S>();
    const int first = SB_CUDA_FAULT(QUERIES_OF_FIRST_TEAM) ? 0 : first_of_team<S>();
    const shared_at keys = at_shared(shared), queries = keys + S::Q_AT;

#pragma unroll
    for (int i = 0; i < S::MT * 16; i++)
        s[i / 16][i / 4 % 4][i % 4] = 0.0f;
#pragma unroll S::UNROLL
    for (int step = 0; step < S::D / 16; step++) {
        uint32_t b[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
            ldmatrix4(b[i],
                      keys + swizzled<S::ROW_BYTES>(warp * 32 + i * 16 + lane / 16 * 8 + lane % 8,
                                                    step * 2 + lane / 8 % 2));
#pragma unroll
        for (int t = 0; t < S::MT; t++) {
            if (t >= n_mma)
                break;
            uint32_t q[4];
            ldmatrix4(q, queries + swizzled<S::ROW_BYTES>(first + t * 16 + lane % 16,
                                                          step * 2 + lane / 16));
#pragma unroll
            for (int n = 0; n < 4; n++)
                mma<S::TYPE>(s[t][n], q, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
    }
}

/* Scales the scores and caps them softly: by c * tanh(s / c) = c - 2 c / (1 + e^(2 s / c)), in few
 * steps, whose errors are far below those of rounded queries and keys. */
template <class S>
__device__ __forceinline__ void cap_scores(float (&s)[S::MT][4][4], float scale, float cap,
                                           int n_mma)
{
    const float factor = __fmul_rn(scale, __fdividef(2.0f * SB_LOG2_E, cap));

#pragma unroll
    for (int i = 0; i < S::MT * 16; i++) {
        if (i / 16 >= n_mma || (SB_CUDA_FAULT(FEW_SCORES_NOT_CAPPED) && n_mma == 1))
            break;
        float &score = s[i / 16][i / 4 % 4][i % 4];
        const float e = exp2f(__fmul_rn(score, factor));
        score = __fadd_rn(cap, -__fdividef(2.0f * cap, __fadd_rn(1.0f, e)));
    }
}

/* Scales the scores, replaces masked ones by -inf, and writes each query's largest score over this
 * warp's keys to shared memory. */
template <class S>
__device__ __forceinline__ void mask_scores(float (&s)[S::MT][4][4], uint8_t *shared, int first_key,
                                            int window, float scale, int n_mma)
{
    const int lane = threadIdx.x % 32, warp = warp_of_team<S>();

#pragma unroll
    for (int i = 0; i < 2 * S::MT; i++) {
        if (i / 2 >= n_mma)
            break;
        const int row = row_of<S>(i), pos = ((const int *)(shared + S::POS_AT))[row],
                  from = pos - window + (SB_CUDA_FAULT(WINDOW_TOO_LONG) ? 0 : 1);
        float top = -INFINITY;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float &score = s[i / 2][j / 2][i % 2 * 2 + j % 2];
            const int key = first_key + warp * 32 + j / 2 * 8 + lane % 4 * 2 + j % 2;
            uint32_t scaled = __float_as_uint(__fmul_rn(score, scale));
            opaque(scaled); /* else it loads scale for each score that it multiplies */
            score = key <= pos && (!S::WINDOWS || key >= from) ? __uint_as_float(scaled)
                                                               : -INFINITY;
            top = fmaxf(top, score);
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        if (lane % 4 == 0)
            ((float *)(shared + S::MAX_AT))[row * WARPS + warp] = top;
    }
}

template <class S>
__device__ __forceinline__ float row_max(const uint8_t *shared, int row)
{
    const float4 m = ((const float4 *)(shared + S::MAX_AT))[row];
    return fmaxf(fmaxf(m.x, m.y), fmaxf(m.z, m.w));
}

template <class S>
__device__ __forceinline__ float row_sum(const uint8_t *shared, int row)
{
    const float4 l = ((const float4 *)(shared + S::SUM_AT))[row];
    return l.x + l.y + l.z + l.w;
}

/* Makes weights of the scores. The weights go to shared memory rounded to the type, and so does
 * each query's sum over this warp's keys, which is of the unrounded weights. */
template <class S>
__device__ __forceinline__ void weigh(float (&s)[S::MT][4][4], uint8_t *shared, uint8_t *weights,
                                      int n_mma)
{
    const int lane = threadIdx.x % 32, warp = warp_of_team<S>();

#pragma unroll
    for (int i = 0; i < 2 * S::MT; i++) {
        if (i / 2 >= n_mma)
            break;
        const int row = row_of<S>(i);
        float top = row_max<S>(shared, row), sum = 0.0f;
        top = top == -INFINITY ? 0.0f : top; /* a query without a key here gets weights of 0, not
                                                NaN */
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float w0 = exp2f(s[i / 2][n][i % 2 * 2] - top);
            const float w1 = exp2f(s[i / 2][n][i % 2 * 2 + 1] - top);
            sum = sum + w0 + w1;
            uint8_t *to = weights + swizzled<W_BYTES>(row, warp * 4 + n) + lane % 4 * 4;
            *(uint32_t *)to = pack2<S::TYPE>(w0, w1);
        }
        sum = sum + __shfl_xor_sync(0xffffffffu, sum, 1);
        sum = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0)
            ((float *)(shared + S::SUM_AT))[row * WARPS + warp] = sum;
    }
}

/* Loads V's fragments for 16 keys and 16 columns: b[0..1] are the first n8 tile, b[2..3] the
 * second. */
template <class S>
__device__ __forceinline__ void load_values(uint32_t (&b)[4], const uint8_t *shared, int step,
                                            int chunk)
{
    const int lane = threadIdx.x % 32;
    ldmatrix4_trans(b, at_shared(shared) + S::V_AT +
                           swizzled<S::ROW_BYTES>(step * 16 + lane % 16, chunk + lane / 16));
}

template <class S>
__device__ __forceinline__ void load_weights(uint32_t (&w)[4], const uint8_t *weights, int t,
                                             int step)
{
    const int lane = threadIdx.x % 32, row = first_of_team<S>() + t * 16 + lane % 16;
    ldmatrix4(w, at_shared(weights) + swizzled<W_BYTES>(row, step * 2 + lane / 16));
}

/* o[t][n] = the partial result of the queries of the team's mma tile t, columns from
 * D/4 warp + 8 (group + n) on. */
template <class S>
__device__ __forceinline__ void values(float (&o)[S::MT][S::GROUP][4], const uint8_t *shared,
                                       const uint8_t *weights, int group, int n_mma)
{
    const int warp = warp_of_team<S>();

#pragma unroll
    for (int i = 0; i < S::MT * S::GROUP * 4; i++)
        o[i / 4 / S::GROUP][i / 4 % S::GROUP][i % 4] = 0.0f;
#pragma unroll S::UNROLL
    for (int step = 0; step < SPLIT / 16; step++) {
        uint32_t b[S::GROUP / 2][4];
#pragma unroll
        for (int n = 0; n < S::GROUP / 2; n++)
            load_values<S>(b[n], shared, step, warp * S::N8 + group + n * 2);
#pragma unroll
        for (int t = 0; t < S::MT; t++) {
            if (t >= n_mma)
                break;
            uint32_t w[4];
            load_weights<S>(w, weights, t, step);
#pragma unroll
            for (int n = 0; n < S::GROUP; n++)
                mma<S::TYPE>(o[t][n], w, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
    }
}

/* Whether this thread finds an Inf or NaN in its part of the values of keys lowest + 1 .. n - 1.
 * These are the keys that some query of the tile must not see. */
template <class S>
__device__ __forceinline__ bool has_bad_values(const uint8_t *tile, int lowest, int n)
{
    enum { CHUNKS = S::ROW_BYTES / 16, STEP = S::THREADS / CHUNKS };
    const int chunk = (int)(threadIdx.x % CHUNKS), mine = (int)(threadIdx.x / CHUNKS);
    const int skipped = lowest < mine ? 0 : (int)((unsigned)(lowest - mine) / STEP) + 1;
    bool is_bad = false;

#pragma unroll 1 /* there are few, mostly none */
    for (int row = mine + skipped * STEP; row < n; row += STEP) {
        const uint4 v = *(const uint4 *)(tile + swizzled<S::ROW_BYTES>(row, chunk));
        is_bad |= !(is_finite2<S::TYPE>(v.x) && is_finite2<S::TYPE>(v.y) &&
                    is_finite2<S::TYPE>(v.z) && is_finite2<S::TYPE>(v.w));
    }
    return is_bad;
}

/* The same for all values of a split that a query with a window must not see: those of keys behind
 * the lowest query of the tile, and of keys before the window of its highest. n: keys in the split
 */
template <class S>
__device__ __forceinline__ bool has_bad_values_outside(const uint8_t *tile, int lowest, int highest,
                                                       int window, int n)
{
    bool is_bad = has_bad_values<S>(tile, lowest, n);

    if (S::WINDOWS && !SB_CUDA_FAULT(VALUES_BEFORE_WINDOW_TRUSTED))
        is_bad |= has_bad_values<S>(tile, -1, min(n, highest - window + 1));
    return is_bad;
}

/* A barrier of the warps that read the same columns of the values. */
template <class S>
__device__ __forceinline__ void sync_readers(void)
{
    if (S::TEAMS > 1)
        __syncthreads();
    else
        __syncwarp();
}

/* The same as values, but a query's result does not feel the Inf and NaN of later tokens. It takes
 * the queries by their last key, from the highest down: the queries that end with this key are
 * computed, then the key's values are overwritten with zeros. Nobody reads a warp's columns but the
 * warps of the same number in other teams. It is slow, but only passes that are partly lost anyway
 * need it. All threads of the block call it. */
template <class S>
__device__ __forceinline__ void values_by_last_key(float (&o)[S::MT][S::GROUP][4], uint8_t *shared,
                                                   const uint8_t *weights, int group, int first_key,
                                                   int lowest, int n_mma)
{
    const int lane = threadIdx.x % 32, warp = warp_of_team<S>();
    const int *pos = (const int *)(shared + S::POS_AT) + first_of_team<S>() + lane / 4;

#pragma unroll 1
    for (int key = SPLIT - 1; key >= lowest; key--) {
#pragma unroll
        /* one mma tile at a time: there are few registers */
        for (int i = 0; i < S::MT * S::GROUP; i++) {
            const int t = i / S::GROUP, n = i % S::GROUP;
            if (t >= n_mma)
                break;
            float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
            for (int step = 0; step < SPLIT / 16; step++) {
                uint32_t b[4], w[4];
                load_values<S>(b, shared, step, warp * S::N8 + group + n / 2 * 2);
                load_weights<S>(w, weights, t, step);
                mma<S::TYPE>(sum, w, n % 2 ? b[2] : b[0], n % 2 ? b[3] : b[1]);
            }
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (min(pos[t * 16 + j / 2 * 8] - first_key, (int)SPLIT - 1) == key)
                    o[t][n][j] = sum[j];
        }
        sync_readers<S>();
        for (int col = lane; (S::TEAMS == 1 || threadIdx.x < TEAM) && col < S::GROUP * 8;
             col += 32) {
            const int chunk = warp * S::N8 + group + col / 8;
            *(uint16_t *)(shared + S::V_AT + swizzled<S::ROW_BYTES>(key, chunk) + col % 8 * 2) = 0;
        }
        sync_readers<S>();
    }
}

/* Values `key` and key + 1 of a fragment, with zeros in place of those outside [from, to]. */
__device__ __forceinline__ uint32_t only_within(uint32_t pair, int key, int from, int to)
{
    return (key >= from && key <= to ? pair & 0xffffu : 0) |
           (key + 1 >= from && key + 1 <= to ? pair & 0xffff0000u : 0);
}

/* The same for queries that have windows, which begin at different keys as well as end at them. It
 * takes one position of the tile's queries after the other, with zeros in place of the values that
 * are not for it. Those are made in the fragments, so shared memory stays as it is. */
template <class S>
__device__ __forceinline__ void values_in_window(float (&o)[S::MT][S::GROUP][4],
                                                 const uint8_t *shared, const uint8_t *weights,
                                                 int group, int first_key, int window, int n_mma)
{
    const int lane = threadIdx.x % 32, warp = warp_of_team<S>();
    const int *pos = (const int *)(shared + S::POS_AT) + first_of_team<S>();

#pragma unroll
    for (int i = 0; i < S::MT * S::GROUP; i++) {
        const int t = i / S::GROUP, n = i % S::GROUP;
        if (t >= n_mma)
            break;
#pragma unroll 1
        for (int row = t * 16; row < t * 16 + 16; row++) {
            const int to = pos[row] - first_key, from = to - window + 1;
            float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            if (row % 16 > 0 && pos[row] == pos[row - 1])
                continue;
#pragma unroll 1
            for (int step = 0; step < SPLIT / 16; step++) {
                const int key = step * 16 + lane % 4 * 2;
                uint32_t b[4], w[4];
                load_values<S>(b, shared, step, warp * S::N8 + group + n / 2 * 2);
                load_weights<S>(w, weights, t, step);
                mma<S::TYPE>(sum, w, only_within(n % 2 ? b[2] : b[0], key, from, to),
                             only_within(n % 2 ? b[3] : b[1], key + 8, from, to));
            }
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (pos[t * 16 + j / 2 * 8 + lane / 4] == pos[row])
                    o[t][n][j] = sum[j];
        }
    }
}

/* The same by either way. lowest: of the tile's positions; window: of the layer, if shapes have one
 */
template <class S>
__device__ __forceinline__ void values_with_care(float (&o)[S::MT][S::GROUP][4], uint8_t *shared,
                                                 const uint8_t *weights, int group, int first_key,
                                                 int lowest, int window, int n_mma)
{
    if (S::WINDOWS)
        values_in_window<S>(o, shared, weights, group, first_key, window, n_mma);
    else
        values_by_last_key<S>(o, shared, weights, group, first_key, lowest, n_mma);
}

} // namespace

#endif
