/*
 * Rotation and the writing of keys and values inside attention, for passes of few tokens, which
 * would otherwise wait for one more kernel. qkv has the heads as the product has left them.
 *
 *     queries   a block turns those of its tile and writes them to shared memory only
 *     keys and values   a block makes the new ones of its splits that its tile looks at, from qkv,
 *               and puts them into its tiles in shared memory, rounded as in the cache. It reads
 *               none of them from the cache, so no block waits for another.
 *     cache     the block whose tile has the token's first query of this kv head writes the token's
 *               key and value, so each is written by one block
 *
 * A head is made by half a warp. The first HALF_WARPS new keys, which are all there are in most
 * passes, their values and the tile's queries are loaded before any of them is made, so together
 * they cost one wait for memory. Registers hold what was made of the keys and values until their
 * split has its tiles; rounded, they are few.
 *
 * This needs a pass whose sequences are apart (struct sb_pass): then the new keys that a query sees
 * are those of its own run, token i of which is at the position of token 0 plus i. A padding run
 * breaks this: all its tokens are at position 0, which its first token makes and which is the
 * highest of its tiles.
 */
#ifndef SB_CUDA_ATTEND_TURN_CUH
#define SB_CUDA_ATTEND_TURN_CUH

#include "kernels/cuda/attend_tile.cuh"
#include "kernels/cuda/opaque.cuh"
#include "kernels/cuda/rope_head.cuh"

namespace
{

/* Element d of a row of a tile: at swizzled(row, d / 8) + d % 8 * 2, written so that what is the
 * same for all elements of a lane is computed once. */
template <class S>
__device__ __forceinline__ uint16_t *element(uint8_t *tile, int row, int d)
{
    const int lane = (int)(threadIdx.x % HEAD_LANES);
    const int of_lane = row * S::ROW_BYTES + ((2 * lane) ^ ((row & 7) << 4));

    return (uint16_t *)(tile + (of_lane ^ (2 * lane) ^ (2 * d)));
}

/* Makes a row zeros, by half a warp. */
template <class S>
__device__ __forceinline__ void zero_row(uint8_t *tile, int row)
{
    const int lane = (int)(threadIdx.x % HEAD_LANES);

    if (lane < S::ROW_BYTES / 16)
        *(uint4 *)(tile + row * S::ROW_BYTES + lane * 16) = make_uint4(0, 0, 0, 0);
}

/* Makes columns [d, D) of a row zeros, by half a warp. */
template <class S>
__device__ __forceinline__ void zero_columns(uint8_t *tile, int row, const attend_args &a)
{
    for (int d = head_dim_of<S>(a) + (int)(threadIdx.x % HEAD_LANES); d < S::D; d += HEAD_LANES)
        *element<S>(tile, row, d) = 0;
}

/* Head number h of token t of the pass. */
template <class S>
__device__ __forceinline__ const float *head_of(const attend_args &a, int t, int h)
{
    return a.qkv + (int64_t)(t * (a.heads + 2 * a.kv_heads) + h) * head_dim_of<S>(a);
}

/* What is to be done with a head; much of it are constants where heads are whole. */
template <class S>
__device__ __forceinline__ rope_turn turn_in(const attend_args &a, enum head_kind kind, int pos)
{
    sb_attention layer = a.layer;

    if (S::WHOLE) {
        layer.head_dim = layer.rot_dim = S::D;
        layer.rot_interleaved = 0;
    }
    return turn_of_kind(layer, kind, pos);
}

/* A new key and its value, made and rounded by half a warp: a lane's pairs of elements, which lie
 * as those of its units do (rope_head.cuh). */
template <class S>
struct made_row {
    int key; /* its position; -1 of a half warp that has made none */
    uint32_t k[S::D / 32], v[S::D / 32];
};

/* Unit u of a head [n] of values, which is two neighbours. */
template <class S>
__device__ __forceinline__ float2 load_pair(const float *head, int n, int u)
{
    if (S::WHOLE)
        return ((const float2 *)head)[u];
    return make_float2(2 * u < n ? head[2 * u] : 0.0f, 2 * u + 1 < n ? head[2 * u + 1] : 0.0f);
}

/* Whether a tile of queries is the one that writes the new key of this position to the cache. */
__device__ __forceinline__ bool is_ours(const attend_args &a, const query_tile &tile, int pos)
{
    const int query = (pos - tile.fresh) * a.group - tile.first;

    return query >= 0 && query < tile.n;
}

/* The tile's queries, as the product has left them. Number i of a half warp's is row
 * HALF_WARPS i + half. */
template <class S>
struct unturned_queries {
    enum { UNITS = S::D / 32, N = S::ROWS / S::HALF_WARPS };
    rope_units<UNITS> units[N];
    rope_weights<UNITS> weights;

    struct query {
        int row, pos;
        bool is_real, is_warps; /* is_warps: one of the warp's two halves has a query */
        const float *head;
        rope_turn turn;

        __device__ __forceinline__ query(const attend_args &a, const query_tile &tile, int kv_head,
                                         int i)
        {
            row = i * S::HALF_WARPS + (int)(threadIdx.x / HEAD_LANES);
            is_real = row < tile.n;
            is_warps = row - row % 2 < tile.n;
            const query_place place = place_of(a, kv_head, tile.first + min(row, tile.n - 1));
            pos = min(tile.fresh + place.token, tile.highest);
            head = head_of<S>(a, tile.run + place.token, place.head);
            turn = turn_in<S>(a, QUERY_HEAD, pos);
        }
    };

    /* Loads them, and writes their positions to shared memory. */
    __device__ __forceinline__ void load(uint8_t *shared, const attend_args &a,
                                         const query_tile &tile, int kv_head)
    {
        weights.load(query(a, tile, kv_head, 0).turn, 0);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const query q(a, tile, kv_head, i);
            if (q.is_warps)
                units[i].load(q.head, q.turn, 0);
            if (threadIdx.x % HEAD_LANES == 0)
                ((int *)(shared + S::POS_AT))[q.row] = q.is_real ? q.pos : -1;
        }
    }

    /* Makes them, and writes them to shared memory. */
    __device__ __forceinline__ void make(uint8_t *shared, const attend_args &a,
                                         const query_tile &tile, int kv_head)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const query q(a, tile, kv_head, i);
            uint8_t *rows = shared + S::Q_AT;
            if (q.is_real)
                zero_columns<S>(rows, q.row, a);
            else
                zero_row<S>(rows, q.row);
            if (!q.is_warps)
                continue;
            units[i].make(q.turn, weights, 0,
                          q.turn.weight ? units[i].scale(q.head, q.turn, a.layer.eps) : 1.0f);
            if (q.is_real)
                units[i].each(q.turn, 0, [=](int d, float value) {
                    *element<S>(rows, q.row, d) = (uint16_t)pack2<S::TYPE>(value, 0.0f);
                });
        }
    }
};

/* The first new key of the splits from `split` on, of which turn_heads makes HALF_WARPS. */
__device__ __forceinline__ int first_new_key(const query_tile &tile, int split)
{
    return max(tile.fresh, split * SPLIT);
}

/* load_queries for queries that are yet to be turned. And each half warp makes one of the first
 * HALF_WARPS new keys of splits [first, last], and its value. */
template <class S>
__device__ __forceinline__ void turn_heads(uint8_t *shared, made_row<S> *made, const attend_args &a,
                                           const query_tile &tile, int kv_head, int first, int last)
{
    const int begin = first_new_key(tile, first),
              n_new = min(tile.highest + 1, (last + 1) * SPLIT) - begin;
    const int half = (int)(threadIdx.x / HEAD_LANES), pos = begin + min(half, n_new - 1);
    const int token = tile.run + pos - tile.fresh, k_head = a.heads + kv_head,
              v_head = k_head + a.kv_heads;
    const bool is_warps = half - half % 2 < n_new; /* one of the warp's two halves has a key */
    const rope_turn turn = turn_in<S>(a, KEY_HEAD, pos);
    rope_units<S::D / 32> k;
    float2 v[S::D / 32];
    rope_weights<S::D / 32> k_weights;
    unturned_queries<S> queries;

    if (is_warps) {
        k.load(head_of<S>(a, token, k_head), turn, 0);
#pragma unroll
        for (int i = 0; i < S::D / 32; i++)
            v[i] = load_pair<S>(head_of<S>(a, token, v_head), turn.n, unit_of(0, i));
        k_weights.load(turn, 0);
    }
    queries.load(shared, a, tile, kv_head);
    made->key = half < n_new ? pos : -1;
    if (is_warps) {
        k.make(turn, k_weights, 0,
               turn.weight ? k.scale(head_of<S>(a, token, k_head), turn, a.layer.eps) : 1.0f);
#pragma unroll
        for (int i = 0; i < S::D / 32; i++) {
            made->k[i] = pack2<S::TYPE>(k.a[i], k.b[i]);
            made->v[i] = pack2<S::TYPE>(v[i].x, v[i].y);
        }
    }
    queries.make(shared, a, tile, kv_head);
}

/* Where the new keys, or values, of a split go. */
struct split_rows {
    uint8_t *tile;    /* row i is key i of the split */
    uint16_t *cached; /* row i, of head_dim elements, likewise */
    int split, head;  /* head: number of the kv head in a token's row of qkv */
    bool is_v;
};

/* Puts element d of the new row of a split where it belongs. */
template <class S>
__device__ __forceinline__ void put_element(const split_rows &to, const attend_args &a, int row,
                                            bool is_ours, int d, uint16_t bits)
{
    *element<S>(to.tile, row, d) = bits;
    if (is_ours)
        to.cached[row * head_dim_of<S>(a) + d] = bits;
}

/* Puts elements d.x and d.y, those that exist. */
template <class S>
__device__ __forceinline__ void put_pair(const split_rows &to, const attend_args &a, int row,
                                         bool is_ours, int2 d, uint32_t pair)
{
    if (S::WHOLE && to.is_v) { /* neighbours */
        *(uint32_t *)element<S>(to.tile, row, d.x) = pair;
        if (is_ours)
            *(uint32_t *)(to.cached + row * S::D + d.x) = pair;
        return;
    }
    if (d.x < head_dim_of<S>(a))
        put_element<S>(to, a, row, is_ours, d.x, (uint16_t)pair);
    if (d.y < head_dim_of<S>(a))
        put_element<S>(to, a, row, is_ours, d.y, (uint16_t)(pair >> 16));
}

/* Whether two elements, or one, of a new row have an Inf or NaN that some query of the tile must
 * not see. */
template <class S>
__device__ __forceinline__ bool is_bad_value(const split_rows &to, const query_tile &tile, int row,
                                             uint32_t pair)
{
    return to.is_v && to.split * SPLIT + row > tile.lowest && !is_finite2<S::TYPE>(pair);
}

/* Puts what turn_heads has made into its row of a split, if it is of this split. Returns whether
 * this thread has put an Inf or NaN that some query of the tile must not see. */
template <class S>
__device__ __forceinline__ bool put_made(const split_rows &to, const made_row<S> &made,
                                         const attend_args &a, const query_tile &tile)
{
    const int row = made.key - to.split * SPLIT;
    const bool ours = is_ours(a, tile, made.key);
    bool is_bad = false;

    if (row < 0 || row >= keys_of(tile, to.split) ||
        (SB_CUDA_FAULT(MADE_FOR_ONE_SPLIT) && to.split > 0))
        return false;
    const rope_turn turn = turn_in<S>(a, to.is_v ? VALUE_HEAD : KEY_HEAD, 0);
#pragma unroll
    for (int i = 0; i < S::D / 32; i++) {
        uint32_t pair = to.is_v ? made.v[i] : made.k[i];
        opaque(pair);
        put_pair<S>(to, a, row, ours, elements_of(turn, unit_of(0, i)), pair);
        is_bad |= is_bad_value<S>(to, tile, row, pair);
    }
    zero_columns<S>(to.tile, row, a);
    return is_bad;
}

/* Makes the new keys, or values, of a split that are not among those that turn_heads has made for
 * splits from `first_split` on: a pass has them if it has more than HALF_WARPS tokens of a
 * sequence. They are loaded when it is their turn, and made in two pieces, as there are few
 * registers then. Returns as put_made does. */
template <class S>
__device__ __forceinline__ bool make_more(const split_rows &to, const attend_args &a,
                                          const query_tile &tile, int first_split)
{
    const int begin = first_new_key(tile, first_split) + S::HALF_WARPS - to.split * SPLIT,
              n = keys_of(tile, to.split);
    bool is_bad = false;

#pragma unroll 1
    for (int first = max(begin, 0); first < n && !SB_CUDA_FAULT(MORE_LEFT_OUT);
         first += S::HALF_WARPS) {
        const int key = first + (int)(threadIdx.x / HEAD_LANES), row = min(key, n - 1);
        const int pos = to.split * SPLIT + row;
        const bool is_mine = key == row, ours = is_ours(a, tile, pos);
        make_head<S::D / 64>(head_of<S>(a, tile.run + pos - tile.fresh, to.head),
                             turn_in<S>(a, to.is_v ? VALUE_HEAD : KEY_HEAD, pos),
                             !to.is_v && a.layer.k_norm, a.layer.eps, [&](int d, float value) {
                                 const uint16_t bits = (uint16_t)pack2<S::TYPE>(value, 0.0f);
                                 if (!is_mine)
                                     return;
                                 put_element<S>(to, a, row, ours, d, bits);
                                 is_bad |= is_bad_value<S>(to, tile, row, bits);
                             });
        if (is_mine)
            zero_columns<S>(to.tile, row, a);
    }
    return is_bad;
}

/* Puts all new keys, or values, of a split where they belong. Of the splits from `first_split` on
 * turn_heads has made some. Returns as put_made does. */
template <class S>
__device__ __forceinline__ bool put_new(uint8_t *shared, const made_row<S> &made,
                                        const attend_args &a, const query_tile &tile, int kv_head,
                                        int first_split, int split, bool is_v)
{
    const int64_t at = tile.keys + kv_head * tile.stride +
                       (int64_t)split * SPLIT * head_dim_of<S>(a);
    const split_rows to = {shared + (is_v ? S::V_AT : 0), (is_v ? a.v : a.k) + at, split,
                           a.heads + kv_head + (is_v ? a.kv_heads : 0), is_v};
    bool is_bad = put_made<S>(to, made, a, tile);

    is_bad |= make_more<S>(to, a, tile, first_split);
    return is_bad;
}

} // namespace

#endif
