/*
 * The partial results of attention, merged in ascending order of their splits:
 *
 *     in registers        by the block that has walked through the splits
 *     by the last block   of those that have written the results of one split each to scratch
 *     by a cluster        of these blocks, on devices that have clusters: when all have come to its
 *                         barrier, each merges some of the queries. The last block alone would
 *                         bring all of them through the port of one multiprocessor, 300 KB for 96
 *                         queries and six splits, while the others have nothing to do
 *
 *     scratch   [token, head, splits] partial results, in pairs of floats (partial_pairs): the
 *               columns, then maximum and sum
 */
#ifndef SB_CUDA_ATTEND_MERGE_CUH
#define SB_CUDA_ATTEND_MERGE_CUH

#include "kernels/cuda/attend_tile.cuh"

namespace
{

/* Makes columns [heads * d, ldy) of a token's result zeros. */
template <class S>
__device__ __forceinline__ void zero_padding(const attend_args &a, int token, int thread,
                                             int n_threads)
{
    for (int64_t i = (int64_t)a.heads * a.d + thread; !S::WHOLE && i < a.ldy; i += n_threads)
        a.y[token * a.ldy + i] = 0;
}

/* Writes columns col and col + 1 of a query's results y [d], rounded, where they exist. */
template <class S>
__device__ __forceinline__ void store_pair(uint16_t *y, int d, int col, float lo, float hi)
{
    const uint32_t pair = pack2<S::TYPE>(lo, hi);

    if (S::WHOLE) {
        *(uint32_t *)(y + col) = pair;
        return;
    }
    if (col < d)
        y[col] = (uint16_t)pair;
    if (col + 1 < d)
        y[col + 1] = (uint16_t)(pair >> 16);
}

/* What merging begins with for a query head: nothing, or its sink, as a key whose value is zero.
 * Scores are times log2(e). */
__device__ __forceinline__ merged before_splits(const attend_args &a, int head)
{
    if (!a.layer.sinks)
        return {-INFINITY, 0.0f};
    return {a.layer.sinks[head] * SB_LOG2_E, 1.0f};
}

/* Merges the maximum and sum of a split into those of query `row`, and writes the factors for the
 * query's values to shared memory. Each thread does it for one query, which takes fewer registers
 * than if every thread did it for the queries of its fragments. */
template <class S>
__device__ __forceinline__ void add_sums(merged *state, uint8_t *shared, int row, int first_key,
                                         int window)
{
    if (row < S::ROWS &&
        sees_split<S>(((const int *)(shared + S::POS_AT))[row], first_key, window)) {
        float2 factors;
        merge(state, row_max<S>(shared, row), row_sum<S>(shared, row), &factors.x, &factors.y);
        ((float2 *)(shared + S::FACTORS_AT))[row] = factors;
    }
}

/* The results of a tile, merged so far; fragments as in values(). */
template <class S>
struct running {
    float o[S::MT][S::N8][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < S::MT * S::N8 * 4; i++)
            o[i / 4 / S::N8][i / 4 % S::N8][i % 4] = 0.0f;
    }

    /* Merges one column group of a split's partial results, for queries with a key in the split.
     * factors: [ROWS] */
    __device__ __forceinline__ void add(const float (&part)[S::MT][S::GROUP][4],
                                        const uint8_t *shared, const float2 *factors_of, int group,
                                        int first_key, int window, int n_mma)
    {
#pragma unroll
        for (int i = 0; i < 2 * S::MT; i++) {
            if (i / 2 >= n_mma || !sees_split<S>(((const int *)(shared + S::POS_AT))[row_of<S>(i)],
                                                 first_key, window))
                continue;
            const float2 factors = factors_of[row_of<S>(i)];
#pragma unroll
            for (int j = 0; j < 2 * S::GROUP; j++) {
                float &value = o[i / 2][group + j / 2][i % 2 * 2 + j % 2];
                value = merge_value(value, factors.x, part[i / 2][j / 2][i % 2 * 2 + j % 2],
                                    factors.y);
            }
        }
    }

    /* Divides by the queries' sums, sums[query], and writes y. */
    __device__ __forceinline__ void store(const float *sums, const attend_args &a,
                                          const query_tile &tile, int kv_head)
    {
        const int lane = threadIdx.x % 32, warp = warp_of_team<S>();
#pragma unroll
        for (int i = 0; i < 2 * S::MT; i++) {
            const int row = row_of<S>(i);
            if (row >= tile.n)
                continue;
            const query_place query = place_of(a, kv_head, tile.first + row);
            const int token = tile.run + query.token;
            uint16_t *y = a.y + token * a.ldy + query.head * head_dim_of<S>(a);
            const float inverse = __frcp_rn(sums[row]);
#pragma unroll
            for (int n = 0; n < S::N8; n++) {
                const int col = (warp * S::N8 + n) * 8 + lane % 4 * 2;
                store_pair<S>(y, head_dim_of<S>(a), col, __fmul_rn(o[i / 2][n][i % 2 * 2], inverse),
                              __fmul_rn(o[i / 2][n][i % 2 * 2 + 1], inverse));
            }
            if (query.head == a.heads - 1)
                zero_padding<S>(a, token, warp * 4 + lane % 4, WARPS * 4);
        }
    }
};

/* ------------------------------------------------------------------ splits in blocks of their own
 */

/* Where the partial result of a query of the tile and a split is in scratch. */
template <class S>
__device__ __forceinline__ float2 *partial_of(const attend_args &a, const query_tile &tile,
                                              int kv_head, int row, int split)
{
    const query_place query = place_of(a, kv_head, tile.first + row);
    const int number = (tile.run + query.token) * a.heads + query.head;
    return (float2 *)a.partial +
           (int64_t)(number * a.splits + split) * partial_pairs(head_dim_of<S>(a));
}

/* Whether the tile has this query, with a key in the split. */
template <class S>
__device__ __forceinline__ bool has_keys(const uint8_t *shared, const query_tile &tile, int row,
                                         int split)
{
    return row < tile.n && ((const int *)(shared + S::POS_AT))[row] >= split * SPLIT;
}

/* Where its maximum and sum are. */
template <class S>
__device__ __forceinline__ float2 *sums_of(const attend_args &a, float2 *partial)
{
    return partial + partial_pairs(head_dim_of<S>(a)) - 1;
}

/* The partial results of this lane in scratch. */
template <class S>
struct lane_partials {
    float2 *at[2 * S::MT]; /* of its queries and split 0 */
    int splits[2 * S::MT]; /* in which they have keys */
    int pairs, step;       /* pairs of columns, and from split to split */

    __device__ __forceinline__ lane_partials(const uint8_t *shared, const attend_args &a,
                                             const query_tile &tile, int kv_head)
        : pairs((head_dim_of<S>(a) + 1) / 2), step(partial_pairs(head_dim_of<S>(a)))
    {
#pragma unroll
        for (int i = 0; i < 2 * S::MT; i++) {
            const int row = row_of<S>(i), pos = ((const int *)(shared + S::POS_AT))[row];
            splits[i] = row < tile.n ? pos / SPLIT + 1 : 0;
            at[i] = partial_of<S>(a, tile, kv_head, row, 0);
        }
    }

    /* Calls f(place in scratch, their place in fragments) for each pair of columns that exists. */
    template <typename F>
    __device__ __forceinline__ void each(int group, int split, F f) const
    {
        const int lane = threadIdx.x % 32, warp = warp_of_team<S>();

#pragma unroll
        for (int i = 0; i < 2 * S::MT; i++)
#pragma unroll
            for (int n = 0; n < S::GROUP; n++) {
                const int pair = (warp * S::N8 + group + n) * 4 + lane % 4;
                if (split < splits[i] && (S::WHOLE || pair < pairs))
                    f(at[i] + (int64_t)split * step + pair, i / 2, n, i % 2 * 2);
            }
    }
};

/* Writes the partial results of one split to scratch, unmerged. */
template <class S>
__device__ __forceinline__ void store_partial(const float (&o)[S::MT][S::GROUP][4],
                                              const uint8_t *shared, const attend_args &a,
                                              const query_tile &tile, int kv_head, int group)
{
    const int split = (int)blockIdx.x, row = (int)threadIdx.x;
    const lane_partials<S> mine(shared, a, tile, kv_head);

    mine.each(group, split, [&](float2 *to, int t, int n, int j) {
        *to = make_float2(o[t][n][j], o[t][n][j + 1]);
    });
    if (group == 0 && has_keys<S>(shared, tile, row, split))
        *sums_of<S>(a, partial_of<S>(a, tile, kv_head, row, split)) = make_float2(
            row_max<S>(shared, row), row_sum<S>(shared, row));
}

/* Which of the splits [first, end) is the i-th to be merged, where i counts from `first`. */
__device__ __forceinline__ int in_turn(int i, int first, int end)
{
    return SB_CUDA_FAULT(MERGE_DESCENDING) ? first + end - 1 - i : i;
}

/* Brings the maxima and sums of splits [first, end) to shared memory: to [end - first, ROWS]. */
template <class S>
__device__ __forceinline__ void fetch_sums(float2 *to, const uint8_t *shared, const attend_args &a,
                                           const query_tile &tile, int kv_head, int first, int end)
{
    enum { AT_ONCE = 4 };
    const int n = (end - first) * S::ROWS;

    for (int i = (int)threadIdx.x; i < n; i += AT_ONCE * S::THREADS) {
        float2 sums[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int at = i + j * S::THREADS, row = at % S::ROWS, split = first + at / S::ROWS;
            sums[j] = at < n && has_keys<S>(shared, tile, row, split)
                          ? __ldcg(sums_of<S>(a, partial_of<S>(a, tile, kv_head, row, split)))
                          : make_float2(0.0f, 0.0f);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (i + j * S::THREADS < n)
                to[i + j * S::THREADS] = sums[j];
    }
}

/* Merges the values of splits [first, end) by their factors [end - first, ROWS]. There are no
 * windows. */
template <class S>
__device__ __forceinline__ void merge_values(running<S> *result, const lane_partials<S> &mine,
                                             const uint8_t *shared, const float2 *factors,
                                             int first, int end, int n_mma)
{
    /* splits: as many as there are registers for */
    enum { FIT = 16 / (S::MT * S::N8), AT_ONCE = FIT > 4 ? 4 : FIT };

    for (int i = first; i < end; i += AT_ONCE)
#pragma unroll
        for (int group = 0; group < S::N8; group += S::GROUP) {
            float o[AT_ONCE][S::MT][S::GROUP][4] = {};
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (i + k < end)
                    mine.each(group, in_turn(i + k, first, end),
                              [&](const float2 *from, int t, int n, int j) {
                                  const float2 pair = __ldcg(from);
                                  o[k][t][n][j] = pair.x;
                                  o[k][t][n][j + 1] = pair.y;
                              });
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                const int split = in_turn(i + k, first, end);
                if (i + k < end)
                    result->add(o[k], shared, factors + (split - first) * S::ROWS, group,
                                split * SPLIT, 0, n_mma);
            }
        }
}

/* Merges the partial results of all splits in ascending order, MERGED splits at a time: first a
 * thread a query merges maxima and sums and leaves the factors in their place, where keys and
 * values were; then come the values, for which nothing but their own loads has to be waited for. */
template <class S>
__device__ __forceinline__ void merge_splits(running<S> *result, merged *state, uint8_t *shared,
                                             const attend_args &a, const query_tile &tile,
                                             int kv_head)
{
    enum { MERGED = 64 };
    static_assert(MERGED * S::ROWS * sizeof(float2) <= S::Q_AT, "factors are where K and V were");
    float2 *factors = (float2 *)shared;
    const lane_partials<S> mine(shared, a, tile, kv_head);
    const int last = tile.highest / SPLIT - SB_CUDA_FAULT(MERGE_WITHOUT_LAST);
    const int n_mma = mma_tiles_of<S>(tile.n), row = (int)threadIdx.x;

    for (int first = 0; first <= last; first += MERGED) {
        const int end = min(first + (int)MERGED, last + 1);
        fetch_sums<S>(factors, shared, a, tile, kv_head, first, end);
        __syncthreads();
        for (int i = first; i < end && has_keys<S>(shared, tile, row, i); i++) {
            const int of_row = ((const int *)(shared + S::POS_AT))[row] / SPLIT + 1;
            float2 *at = factors + (in_turn(i, first, min(end, of_row)) - first) * S::ROWS + row;
            const float2 part = *at;
            merge(state, part.x, part.y, &at->x, &at->y);
        }
        __syncthreads();
        merge_values<S>(result, mine, shared, factors, first, end, n_mma);
        __syncthreads(); /* the factors have been read */
    }
}

/* One query's partial results of up to MERGED splits, as a warp loads them: each lane has the
 * maxima and sums, and PAIRS pairs of columns, 64 columns apart. */
template <class S>
struct warp_partials {
    enum { MERGED = CLUSTER_SPLITS, PAIRS = S::D / 64 };
    float2 sums[MERGED], o[MERGED][PAIRS];

    /* All of it is on its way before any is used. */
    __device__ __forceinline__ void load(const attend_args &a, float2 *from, int splits)
    {
        const int lane = threadIdx.x % 32, pairs = (head_dim_of<S>(a) + 1) / 2,
                  step = partial_pairs(head_dim_of<S>(a));

#pragma unroll
        for (int i = 0; i < MERGED; i++) {
            if (i >= splits)
                break;
            sums[i] = __ldcg(sums_of<S>(a, from + i * step));
#pragma unroll
            for (int p = 0; p < PAIRS; p++)
                o[i][p] = lane + 32 * p < pairs ? __ldcg(from + i * step + lane + 32 * p)
                                                : make_float2(0.0f, 0.0f);
        }
    }

    /* Merges them, divides by their sum and writes the query's part of y. */
    __device__ __forceinline__ void store_merged(const attend_args &a, int head, uint16_t *y,
                                                 int splits)
    {
        merged state = before_splits(a, head);
        float2 result[PAIRS] = {};

#pragma unroll
        for (int i = 0; i < MERGED; i++) {
            if (i >= splits - SB_CUDA_FAULT(MERGE_WITHOUT_LAST))
                break;
            const int split = in_turn(i, 0, splits);
            float old_factor, new_factor;
            merge(&state, sums[split].x, sums[split].y, &old_factor, &new_factor);
#pragma unroll
            for (int p = 0; p < PAIRS; p++) {
                result[p].x = merge_value(result[p].x, old_factor, o[split][p].x, new_factor);
                result[p].y = merge_value(result[p].y, old_factor, o[split][p].y, new_factor);
            }
        }
        const float inverse = __frcp_rn(state.l);
#pragma unroll
        for (int p = 0; p < PAIRS; p++)
            store_pair<S>(y, head_dim_of<S>(a), ((int)(threadIdx.x % 32) + 32 * p) * 2,
                          __fmul_rn(result[p].x, inverse), __fmul_rn(result[p].y, inverse));
    }
};

/* Merges the partial results of a tile by the blocks of the cluster that have a split of it, a warp
 * a query, and writes y. */
template <class S>
__device__ __forceinline__ void merge_by_cluster(const uint8_t *shared, const attend_args &a,
                                                 const query_tile &tile, int kv_head)
{
    const int blocks = tile.highest / SPLIT + 1, warp = threadIdx.x / 32;

    cluster_arrive();
    if (!SB_CUDA_FAULT(BLOCKS_NOT_AWAITED))
        cluster_wait();
    for (int row = warp * blocks + (int)blockIdx.x; row < tile.n;
         row += S::TEAMS * WARPS * blocks) {
        const query_place query = place_of(a, kv_head, tile.first + row);
        const int token = tile.run + query.token;
        const int splits = ((const int *)(shared + S::POS_AT))[row] / SPLIT + 1;
        warp_partials<S> partials;
        partials.load(a, partial_of<S>(a, tile, kv_head, row, 0), splits);
        partials.store_merged(a, query.head, a.y + token * a.ldy + query.head * head_dim_of<S>(a),
                              splits);
        if (query.head == a.heads - 1)
            zero_padding<S>(a, token, (int)(threadIdx.x % 32), 32);
    }
}

/* Divides by the sums, which the first threads have, and writes y. The block's sums of a split may
 * be overwritten. */
template <class S>
__device__ __forceinline__ void store_result(running<S> *result, const merged &state,
                                             uint8_t *shared, const attend_args &a,
                                             const query_tile &tile, int kv_head)
{
    float *sums = (float *)(shared + S::SUM_AT);

    if (threadIdx.x < S::ROWS)
        sums[threadIdx.x] = state.l;
    __syncthreads();
    result->store(sums, a, tile, kv_head);
    __syncthreads(); /* the next tile may begin */
}

} // namespace

#endif
