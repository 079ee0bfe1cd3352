/*
 * A mixture of experts but for its products (launch.h has the pairs): which experts each row goes
 * to and with what weights, where the pairs are, and the weighted sums. The numbers are the CPU's,
 * bit for bit (kernels/cpu/route.c), in both classes.
 *
 *     choose    a warp for each row
 *     deal      one block: counts the pairs of each expert, writes the tiles, and deals out places
 *               by a counter for each expert
 *     combine   a thread for each column of a row
 *
 * Up to 32 rows, deal has a warp for each, which chooses before it deals: a launch less in the
 * rounds that decode.
 *
 * Each lane of a warp has every 32nd expert, and knows the best of them that is not chosen yet. The
 * best of all lanes is chosen, and the lane that had it looks for its next one. Ranks are compared
 * as integers, so that no comparison branches. Rejected: to look at all experts for each that is
 * chosen.
 */
#include "kernels/cuda/grid.cuh"

enum {
    THREADS = 1024,       /* of deal */
    MOST_AT_ONCE = 32,    /* rows that it chooses for */
    CHOOSE_THREADS = 256, /* of choose: eight rows */
    COMBINE_THREADS = 256,
    MOST_EXPERTS = 4097 /* with a shared one */
};

/* ------------------------------------------------------------------ the experts of a row */

/* The scores of a row. */
struct candidates {
    const float *scores, *bias; /* bias: or NULL */
    int n;
};

/* A rank as an integer of the same order, from 1 on. -0 is as 0, and a NaN as -infinity. */
static __device__ __forceinline__ unsigned order_of(float rank)
{
    const unsigned bits = __float_as_uint((rank == rank ? rank : -INFINITY) + 0.0f);

    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ unsigned order_at(const candidates &c, int expert)
{
    return order_of(c.bias ? c.scores[expert] + c.bias[expert] : c.scores[expert]);
}

/* The best of the experts first, first + 32, ... that comes behind the one with this order and
 * index: a lower order, or the same and a higher index. order 0: there is none. */
struct candidate {
    unsigned order;
    unsigned expert;
};
static __device__ candidate next_of_lane(const candidates &c, int first, const candidate &last)
{
    candidate best = {0, UINT32_MAX};

#pragma unroll 4
    for (int e = first; e < c.n; e += 32) {
        const unsigned order = order_at(c, e);
        const bool is_behind = (order < last.order) |
                               ((order == last.order) & ((unsigned)e > last.expert));
        const bool is_better = is_behind & (order > best.order);
        best.expert = is_better ? (unsigned)e : best.expert;
        best.order = is_better ? order : best.order;
    }
    return best;
}

/* The n-th of all candidates. Every lane gets it; *largest: the order of the first. */
static __device__ candidate find_last(const candidates &c, int n, unsigned *largest)
{
    const int lane = (int)threadIdx.x % 32;
    candidate mine = next_of_lane(c, lane, {UINT32_MAX, 0}), best = {0, 0};

#pragma unroll 1
    for (int i = 0; i < n; i++) {
        best.order = __reduce_max_sync(SB_FULL_WARP, mine.order);
        best.expert = __reduce_min_sync(SB_FULL_WARP,
                                        mine.order == best.order ? mine.expert : UINT32_MAX);
        *largest = i == 0 ? best.order : *largest;
        if (best.expert % 32 == (unsigned)lane)
            mine = next_of_lane(c, lane, best);
    }
    return best;
}

/* sum + the values of the lanes of a mask, in ascending order. */
static __device__ __forceinline__ float add_lanes(float sum, float value, unsigned mask)
{
    for (; mask; mask &= mask - 1)
        sum += __shfl_sync(SB_FULL_WARP, value, __ffs((int)mask) - 1);
    return sum;
}

/* Puts the sigmoids of a row's logits in their place. */
static __device__ void make_sigmoids(float *logits, int n)
{
    for (int e = (int)threadIdx.x % 32; e < n; e += 32)
        logits[e] = 1.0f / (1.0f + sb_exp(0.0f - logits[e]));
    __syncwarp();
}

/* Of the experts first, first + 1, ..., one a lane: the mask of those that are not behind `last`.
 */
static __device__ __forceinline__ unsigned chosen_of(const candidates &c, int first,
                                                     const candidate &last)
{
    const int e = first + (int)threadIdx.x % 32;
    const unsigned order = e < c.n ? order_at(c, e) : 0;

    return __ballot_sync(SB_FULL_WARP, (order > last.order) |
                                           ((order == last.order) & ((unsigned)e <= last.expert)));
}

/* The float that has this order. */
static __device__ __forceinline__ float rank_of(unsigned order)
{
    return __uint_as_float(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}

/* Writes the experts and weights of a row, for one warp. */
static __device__ void choose_for(int row, const sb_mixture &mixture, const sb_cuda_pairs &pairs)
{
    const int n = mixture.n_experts, lane = (int)threadIdx.x % 32;
    const bool is_softmax = mixture.scoring == SB_SCORE_SOFTMAX;
    int32_t *const experts = pairs.expert + (int64_t)row * pairs.of_row;
    float *const weights = pairs.weight + (int64_t)row * pairs.of_row;
    float *const logits = mixture.logits + (int64_t)row * n;
    const candidates all = {logits, mixture.bias, n};
    unsigned largest = 0;
    float sum = 0.0f;

    if (!is_softmax)
        make_sigmoids(logits, n);
    const candidate last = find_last(all, mixture.chosen, &largest);
#pragma unroll 1
    for (int first = 0, found = 0; first < n; first += 32) {
        const int e = first + lane;
        const unsigned chosen = chosen_of(all, first, last);
        const unsigned there = n - first < 32 ? (1u << (n - first)) - 1u : SB_FULL_WARP;
        const float score = e < n ? logits[e] : 0.0f;
        const float p = is_softmax ? sb_exp(score - rank_of(largest)) : score;
        if (chosen >> lane & 1u) {
            const int at = found + __popc(chosen & ((1u << lane) - 1u));
            experts[at] = e;
            weights[at] = p;
        }
        found += __popc(chosen);
        sum = add_lanes(sum, p, is_softmax && !mixture.renormalises ? there : chosen);
    }
    __syncwarp();
    if (!is_softmax)
        sum = mixture.renormalises ? sum + 1e-20f : 1.0f;
    for (int i = lane; i < mixture.chosen; i += 32)
        weights[i] = weights[i] / sum * mixture.scale;
    if (mixture.has_shared && lane == 0) {
        experts[mixture.chosen] = n;
        weights[mixture.chosen] = 1.0f;
    }
}

static __global__ void __launch_bounds__(CHOOSE_THREADS)
    choose(sb_mixture mixture, sb_cuda_pairs pairs)
{
    const int row = (int)(blockIdx.x * (CHOOSE_THREADS / 32) + threadIdx.x / 32);

    grid_launch_next();
    grid_wait_for_previous();
    if (row < mixture.m)
        choose_for(row, mixture, pairs);
}

/* ------------------------------------------------------------------ places and tiles */

/* The sum of the values of the lanes below this one; *all: of all lanes. */
static __device__ int sum_before(int value, int *all)
{
    const int lane = (int)threadIdx.x % 32;
    int sum = value;

    for (int step = 1; step < 32; step *= 2) {
        const int below = __shfl_up_sync(SB_FULL_WARP, sum, step);
        sum += lane >= step ? below : 0;
    }
    *all = __shfl_sync(SB_FULL_WARP, sum, 31);
    return sum - value;
}

/* For one warp: writes the tiles of all experts, and where each one's places begin. Returns the
 * number of tiles. */
static __device__ int make_tiles(sb_expert_tile *tiles, int *places, const int *counts,
                                 int n_experts, int rows)
{
    int n_places = 0, n_tiles = 0;

    for (int first = 0; first < n_experts; first += 32) {
        const int e = first + (int)threadIdx.x % 32, count = e < n_experts ? counts[e] : 0;
        int more_places, more_tiles;
        const int place = n_places + sum_before(count, &more_places),
                  tile = n_tiles + sum_before((count + rows - 1) / rows, &more_tiles);
        if (e < n_experts)
            places[e] = place;
        for (int i = 0; i * rows < count; i++)
            tiles[tile + i] = {e, place + i * rows, min(rows, count - i * rows), 0};
        n_places += more_places;
        n_tiles += more_tiles;
    }
    return n_tiles;
}

/* `chooses`: for up to MOST_AT_ONCE rows, before it deals. */
static __global__ void __launch_bounds__(THREADS)
    deal(sb_mixture mixture, sb_cuda_pairs pairs, int chooses)
{
    SB_SHARED(int, counts, MOST_EXPERTS); /* pairs of each expert */
    SB_SHARED(int, places, MOST_EXPERTS); /* the next place of each expert */
    SB_SHARED(int, n_tiles, 1);
    const int tid = (int)threadIdx.x, n = mixture.n_experts + mixture.has_shared;

    grid_launch_next();
    for (int e = tid; e < n; e += THREADS)
        counts[e] = 0;
    grid_wait_for_previous();
    if (chooses && tid / 32 < mixture.m)
        choose_for(tid / 32, mixture, pairs);
    __syncthreads();
    for (int p = tid; p < pairs.n; p += THREADS)
        atomicAdd(&counts[pairs.expert[p]], 1);
    __syncthreads();
    if (tid < 32) {
        const int found = make_tiles(pairs.tiles, places, counts, n, pairs.tile_rows);
        if (tid == 0)
            *n_tiles = found;
    }
    __syncthreads();
    for (int i = *n_tiles + tid; i < pairs.n_tiles; i += THREADS)
        pairs.tiles[i] = {0, 0, 0, 0};
    for (int p = tid; p < pairs.n; p += THREADS) {
        const int place = atomicAdd(&places[pairs.expert[p]], 1);
        pairs.place[p] = place;
        pairs.row_at[place] = p / pairs.of_row;
    }
}

/* ------------------------------------------------------------------ weighted sums */

static __global__ void __launch_bounds__(COMBINE_THREADS)
    combine(float *y, const float *out, sb_cuda_pairs pairs, int hidden)
{
    const int64_t row = blockIdx.x, column = (int64_t)blockIdx.y * COMBINE_THREADS + threadIdx.x;
    float sum = 0.0f;

    grid_launch_next();
    grid_wait_for_previous();
    if (column >= hidden)
        return;
#pragma unroll 8
    for (int i = 0; i < pairs.of_row; i++) {
        const int64_t p = row * pairs.of_row +
                          (SB_CUDA_FAULT(EXPERTS_DESCENDING) ? pairs.of_row - 1 - i : i);
        sum = sum + pairs.weight[p] * out[pairs.place[p] * (int64_t)hidden + column];
    }
    y[row * hidden + column] = sum;
}

/* ------------------------------------------------------------------ launchers */

/* The memory of n pairs and their tiles. */
static size_t bytes_of(int64_t n, int64_t n_tiles)
{
    return (size_t)n_tiles * sizeof(sb_expert_tile) + (size_t)n * 4 * sizeof(int32_t);
}

extern "C" size_t sb_cuda_pairs_bytes(const struct sb_exec_limits *limits)
{
    const int64_t n = (int64_t)limits->max_tokens * limits->max_chosen;

    return bytes_of(n, n); /* no tile is empty */
}

/* With the shared one. */
static int experts_of(const sb_mixture &mixture)
{
    return mixture.n_experts + mixture.has_shared;
}

/* The rows of a tile. Up to eight rows of the pass, no expert has more of them. With more, a larger
 * tile costs no time as long as reading the weights takes longer, and it reads them once where
 * smaller ones read them again. Few experts have more than twice as many rows as all have on
 * average. Products with quantised weights take 16. */
static int rows_of_tile(const sb_mixture &mixture, int64_t n, int has_quantised)
{
    if (mixture.m <= 8)
        return 8;
    if (has_quantised)
        return 16;
    return n <= (int64_t)16 * experts_of(mixture) ? 32 : 64;
}

extern "C" struct sb_cuda_pairs sb_cuda_pairs_of(const struct sb_mixture *mixture,
                                                 int has_quantised, void *memory)
{
    const int32_t of_row = mixture->chosen + mixture->has_shared;
    const int64_t n = (int64_t)mixture->m * of_row;
    const int rows = rows_of_tile(*mixture, n, has_quantised);
    const int64_t with_rows = n < experts_of(*mixture) ? n : experts_of(*mixture);
    /* Each expert that has rows has one tile that may not be full. */
    const int64_t n_tiles = (n - with_rows) / rows + with_rows;
    sb_expert_tile *tiles = (sb_expert_tile *)memory;
    int32_t *words = (int32_t *)(tiles + n_tiles);

    return {(int32_t)n, of_row,    rows,          (int32_t)n_tiles,        tiles,
            words,      words + n, words + 2 * n, (float *)(words + 3 * n)};
}

extern "C" cudaError_t sb_cuda_route(const struct sb_mixture *mixture,
                                     const struct sb_cuda_pairs *pairs, cudaStream_t stream)
{
    const int rows = CHOOSE_THREADS / 32, is_apart = mixture->m > MOST_AT_ONCE;
    cudaError_t error = cudaSuccess;

    if (mixture->m == 0)
        return cudaSuccess;
    if (experts_of(*mixture) > MOST_EXPERTS)
        return cudaErrorInvalidValue;
    if (is_apart)
        error = SB_LAUNCH_WITH(SB_DEPENDENT, choose,
                               dim3((unsigned)((mixture->m + rows - 1) / rows)),
                               dim3(CHOOSE_THREADS), 0, stream, *mixture, *pairs);
    if (error != cudaSuccess)
        return error;
    return SB_LAUNCH_WITH(SB_DEPENDENT, deal, dim3(1), dim3(THREADS), 0, stream, *mixture, *pairs,
                          !is_apart);
}

extern "C" cudaError_t sb_cuda_combine(const struct sb_mixture *mixture,
                                       const struct sb_cuda_pairs *pairs, cudaStream_t stream)
{
    const dim3 grid((unsigned)mixture->m,
                    (unsigned)((mixture->hidden + COMBINE_THREADS - 1) / COMBINE_THREADS));

    if (mixture->m == 0)
        return cudaSuccess;
    return SB_LAUNCH_WITH(SB_DEPENDENT, combine, grid, dim3(COMBINE_THREADS), 0, stream, mixture->y,
                          mixture->out, *pairs, mixture->hidden);
}

cudaError_t sb_load_mix(enum sb_dtype type)
{
    cudaError_t error = sb_load(choose);

    (void)type;
    if (error == cudaSuccess)
        error = sb_load(deal);
    return error == cudaSuccess ? sb_load(combine) : error;
}
