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

/* Element d of a row of a tile. */
template <class S>
__device__ __forceinline__ uint16_t *element(uint8_t *tile, int row, int d)
{
    return (uint16_t *)(tile + swizzled<S::ROW_BYTES>(row, d / 8) + d % 8 * 2);
}

/* Makes columns [from, D) of a row zeros, by half a warp. */
template <class S>
__device__ __forceinline__ void zero_columns(uint8_t *tile, int row, int from)
{
    for (int d = from + (int)threadIdx.x % HEAD_LANES; d < S::D; d += HEAD_LANES)
        *element<S>(tile, row, d) = 0;
}

/* Head number h of token t of the pass. */
__device__ __forceinline__ const float *head_of(const attend_args &a, int t, int h)
{
    return a.qkv + ((int64_t)t * (a.heads + 2 * a.kv_heads) + h) * a.d;
}

/* A new key and its value, made and rounded by half a warp: a lane's pairs of elements, which lie
 * as those of its units do (rope_head.cuh). */
template <class S>
struct made_row {
    int key; /* its position; -1 of a half warp that has made none */
    uint32_t k[S::D / 32], v[S::D / 32];
};

/* Rounds a lane's units to pairs. */
template <class S>
__device__ __forceinline__ void round_units(uint32_t (&pairs)[S::D / 32],
                                            const rope_units<S::D / 32> &units)
{
#pragma unroll
    for (int i = 0; i < S::D / 32; i++)
        pairs[i] = pack2<S::TYPE>(units.a[i], units.b[i]);
}

/* Calls put(d, bits) for each element of a lane's pairs of head number h. */
template <class S, typename F>
__device__ __forceinline__ void each_element(const uint32_t (&pairs)[S::D / 32],
                                             const attend_args &a, int h, F put)
{
    const rope_turn turn = turn_of(a.layer, h, 0);

#pragma unroll
    for (int i = 0; i < S::D / 32; i++) {
        const int2 d = elements_of(turn, unit_of(0, i));
        uint32_t pair = pairs[i];
        opaque(pair);
        if (d.x < turn.n)
            put(d.x, (uint16_t)pair);
        if (d.y < turn.n)
            put(d.y, (uint16_t)(pair >> 16));
    }
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
            row = i * S::HALF_WARPS + (int)threadIdx.x / HEAD_LANES;
            is_real = row < tile.n;
            is_warps = row - row % 2 < tile.n;
            const int at = tile.first + min(row, tile.n - 1), token = at / a.group;
            const int h = kv_head * a.group + at % a.group;
            pos = min(tile.fresh + token, tile.highest);
            head = head_of(a, tile.run + token, h);
            turn = turn_of(a.layer, h, pos);
        }
    };

    __device__ __forceinline__ void load(const attend_args &a, const query_tile &tile, int kv_head)
    {
        weights.load(query(a, tile, kv_head, 0).turn, 0);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const query q(a, tile, kv_head, i);
            if (q.is_warps)
                units[i].load(q.head, q.turn, 0);
        }
    }

    /* Makes them, and writes them and their positions to shared memory. */
    __device__ __forceinline__ void make(uint8_t *shared, const attend_args &a,
                                         const query_tile &tile, int kv_head)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const query q(a, tile, kv_head, i);
            uint8_t *rows = shared + S::Q_AT;
            if (threadIdx.x % HEAD_LANES == 0)
                ((int *)(shared + S::POS_AT))[q.row] = q.is_real ? q.pos : -1;
            zero_columns<S>(rows, q.row, q.is_real ? a.d : 0);
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
    const int half = (int)threadIdx.x / HEAD_LANES, pos = begin + min(half, n_new - 1);
    const int token = tile.run + pos - tile.fresh, k_head = a.heads + kv_head,
              v_head = k_head + a.kv_heads;
    const bool is_warps = half - half % 2 < n_new; /* one of the warp's two halves has a key */
    const rope_turn turn = turn_of(a.layer, k_head, pos);
    rope_units<S::D / 32> k, v;
    rope_weights<S::D / 32> k_weights;
    unturned_queries<S> queries;

    if (is_warps) {
        k.load(head_of(a, token, k_head), turn, 0);
        v.load(head_of(a, token, v_head), turn_of(a.layer, v_head, pos), 0);
        k_weights.load(turn, 0);
    }
    queries.load(a, tile, kv_head);
    made->key = half < n_new ? pos : -1;
    if (is_warps) {
        k.make(turn, k_weights, 0,
               turn.weight ? k.scale(head_of(a, token, k_head), turn, a.layer.eps) : 1.0f);
        round_units<S>(made->k, k);
        round_units<S>(made->v, v);
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

/* Puts element d of the new row of a split where it belongs. Returns whether it is an Inf or NaN
 * that some query of the tile must not see. */
template <class S>
__device__ __forceinline__ bool put_element(const split_rows &to, const attend_args &a,
                                            const query_tile &tile, int row, bool is_ours, int d,
                                            uint16_t bits)
{
    *element<S>(to.tile, row, d) = bits;
    if (is_ours)
        to.cached[(int64_t)row * a.d + d] = bits;
    return to.is_v && to.split * SPLIT + row > tile.lowest && !is_finite2<S::TYPE>(bits);
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
    each_element<S>(to.is_v ? made.v : made.k, a, to.head, [&](int d, uint16_t bits) {
        is_bad |= put_element<S>(to, a, tile, row, ours, d, bits);
    });
    zero_columns<S>(to.tile, row, a.d);
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
        const int key = first + (int)threadIdx.x / HEAD_LANES, row = min(key, n - 1);
        const int pos = to.split * SPLIT + row;
        const bool is_mine = key == row, ours = is_ours(a, tile, pos);
        make_head<S::D / 64>(head_of(a, tile.run + pos - tile.fresh, to.head),
                             turn_of(a.layer, to.head, pos), !to.is_v && a.layer.k_norm,
                             a.layer.eps, [&](int d, float value) {
                                 const uint16_t bits = (uint16_t)pack2<S::TYPE>(value, 0.0f);
                                 if (is_mine)
                                     is_bad |= put_element<S>(to, a, tile, row, ours, d, bits);
                             });
        if (is_mine)
            zero_columns<S>(to.tile, row, a.d);
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
    const int64_t at = tile.keys + kv_head * tile.stride + (int64_t)split * SPLIT * a.d;
    const split_rows to = {shared + (is_v ? S::V_AT : 0), (is_v ? a.v : a.k) + at, split,
                           a.heads + kv_head + (is_v ? a.kv_heads : 0), is_v};
    bool is_bad = put_made<S>(to, made, a, tile);

    is_bad |= make_more<S>(to, a, tile, first_split);
    return is_bad;
}

} // namespace

#endif
