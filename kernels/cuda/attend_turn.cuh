/*
 * Rotation and the writing of keys and values inside attention, for passes of few tokens, which
 * would otherwise wait for one more kernel. qkv has the heads as the product has left them.
 *
 *     queries   a block turns those of its tile and writes them to shared memory only
 *     keys and values   a block makes the new ones of its split that its tile looks at, from qkv,
 *               and writes them to its tiles in shared memory, rounded as in the cache. It reads
 *               none of them from the cache, so no block waits for another.
 *     cache     the block whose tile has the token's first query of this kv head writes the token's
 *               key and value, so each is written by one block
 *
 * This needs a pass whose sequences are apart (struct sb_pass): then the new keys that a query sees
 * are those of its own run, token i of which is at the position of token 0 plus i. A padding run
 * breaks this: all its tokens are at position 0, which its first token makes and which is the
 * highest of its tiles.
 */
#ifndef SB_CUDA_ATTEND_TURN_CUH
#define SB_CUDA_ATTEND_TURN_CUH

#include "kernels/cuda/attend_tile.cuh"
#include "kernels/cuda/rope_head.cuh"

namespace
{

enum { HALF_WARPS = THREADS / HEAD_LANES };

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

/* load_queries for queries that are yet to be turned. */
template <class S>
__device__ __forceinline__ void turn_queries(uint8_t *shared, const attend_args &a,
                                             const query_tile &tile, int kv_head)
{
    const int half = (int)threadIdx.x / HEAD_LANES;
    uint8_t *queries = shared + S::Q_AT;

    for (int first = 0; first < S::ROWS; first += HALF_WARPS) {
        const int row = first + half, at = tile.first + min(row, tile.n - 1);
        const int token = tile.run + at / a.group, h = kv_head * a.group + at % a.group;
        const int pos = min(tile.fresh + token - tile.run, tile.highest);
        const bool is_real = row < tile.n;
        if (threadIdx.x % HEAD_LANES == 0)
            ((int *)(shared + S::POS_AT))[row] = is_real ? pos : -1;
        zero_columns<S>(queries, row, is_real ? a.d : 0);
        if (row - row % 2 >= tile.n) /* neither half of the warp has a query */
            continue;
        make_head<S::D / 32>(head_of(a, token, h), turn_of(a.layer, h, pos), a.layer.q_norm != NULL,
                             a.layer.eps, [=](int d, float value) {
                                 if (is_real)
                                     *element<S>(queries, row, d) = (uint16_t)pack2<S::TYPE>(value,
                                                                                             0.0f);
                             });
    }
}

/* An argument that says in how many pieces heads are made. */
template <int PIECES>
struct in_pieces {
};

/* Makes the keys, or the values, of a split that are not in the cache yet, a head in PIECES. Row i
 * of `tile` is key i of the split, and cached + i d its place in the cache. Returns whether this
 * thread has made an Inf or NaN that some query of the tile must not see. */
template <class S, int PIECES>
__device__ __forceinline__ bool turn_keys(uint8_t *tile_rows, uint16_t *cached,
                                          const attend_args &a, const query_tile &tile, int kv_head,
                                          int split, bool is_v, in_pieces<PIECES>)
{
    const int n = keys_of(tile, split), lowest = tile.lowest - split * SPLIT,
              h = a.heads + kv_head + (is_v ? a.kv_heads : 0);
    bool is_bad = false;

    for (int first = cached_keys_of(tile, split); first < n; first += HALF_WARPS) {
        const int key = first + (int)threadIdx.x / HEAD_LANES, row = min(key, n - 1);
        const int pos = split * SPLIT + row, i = pos - tile.fresh, query = i * a.group - tile.first;
        const bool is_mine = key == row, is_ours = is_mine && query >= 0 && query < tile.n;
        make_head<S::D / 32 / PIECES>(
            head_of(a, tile.run + i, h), turn_of(a.layer, h, pos), !is_v && a.layer.k_norm,
            a.layer.eps, [&](int d, float value) {
                const uint32_t bits = pack2<S::TYPE>(value, 0.0f);
                if (is_mine)
                    *element<S>(tile_rows, row, d) = (uint16_t)bits;
                if (is_ours)
                    cached[(int64_t)row * a.d + d] = (uint16_t)bits;
                is_bad |= is_v && row > lowest && !is_finite2<S::TYPE>(bits);
            });
        if (is_mine)
            zero_columns<S>(tile_rows, row, a.d);
    }
    return is_bad;
}

} // namespace

#endif
