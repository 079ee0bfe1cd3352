/*
 * A mixture of experts but for its products (launch.h has the pairs): which experts each row goes
 * to and with what weights, where the pairs are, and the weighted sums. The numbers are the CPU's,
 * bit for bit (kernels/cpu/route.c), in both classes.
 *
 *     route     one block of 32 warps
 *               each warp    the experts of a row, as often as it takes: the row's best in order,
 *                            and then all experts once more, ascending, of which those are taken
 *                            that are not behind the last of the best
 *               warp 0       where the places and the tiles of each expert begin
 *               all          tiles; places, dealt out by a counter for each expert
 *     combine   a thread for each column of a row
 *
 * One block is enough, because a pass of the decoder has few rows: for 48 of 128 experts a warp has
 * two rows. Of longer prompts the products take so much longer that it does not show.
 */
#include "kernels/cuda/grid.cuh"

enum { THREADS = 1024, WARPS = THREADS / 32, MOST_EXPERTS = 4096, COMBINE_THREADS = 256 };

/* ------------------------------------------------------------------ the experts of a row */

/* A logit in the order of choice: a NaN is chosen last, and of equal ones the lower index first. */
struct candidate {
    float rank;
    int expert;
};

static __device__ __forceinline__ candidate candidate_of(float logit, int expert)
{
    return {logit == logit ? logit : -INFINITY, expert};
}

static __device__ __forceinline__ bool is_before(const candidate &a, const candidate &b)
{
    return a.rank > b.rank || (a.rank == b.rank && a.expert < b.expert);
}

/* The first of all candidates behind `last`, for all lanes. */
static __device__ candidate next_of(const float *logits, int n, const candidate &last)
{
    candidate best = {-INFINITY, INT32_MAX};

    for (int e = (int)threadIdx.x % 32; e < n; e += 32) {
        const candidate c = candidate_of(logits[e], e);
        if (is_before(last, c) && (best.expert == INT32_MAX || is_before(c, best)))
            best = c;
    }
    for (int step = 16; step > 0; step /= 2) {
        const candidate c = {__shfl_xor_sync(SB_FULL_WARP, best.rank, step),
                             __shfl_xor_sync(SB_FULL_WARP, best.expert, step)};
        if (c.expert != INT32_MAX && (best.expert == INT32_MAX || is_before(c, best)))
            best = c;
    }
    return best;
}

/* sum + the values of all lanes, in ascending order. */
static __device__ __forceinline__ float add_lanes(float sum, float value)
{
#pragma unroll
    for (int lane = 0; lane < 32; lane++)
        sum += __shfl_sync(SB_FULL_WARP, value, lane);
    return sum;
}

/* Writes the experts and weights of a row, and counts its pairs. */
static __device__ void choose(int32_t *experts, float *weights, int *counts, const float *logits,
                              const sb_mixture &mixture)
{
    const int n = mixture.n_experts, lane = (int)threadIdx.x % 32;
    candidate last = next_of(logits, n, {INFINITY, -1});
    const float largest = last.rank;
    float sum = 0.0f;

    for (int i = 1; i < mixture.chosen; i++)
        last = next_of(logits, n, last);
    for (int first = 0, found = 0; first < n; first += 32) {
        const int e = first + lane;
        const float logit = e < n ? logits[e] : 0.0f, power = sb_exp(logit - largest);
        const bool is_chosen = e < n && !is_before(last, candidate_of(logit, e));
        const unsigned chosen = __ballot_sync(SB_FULL_WARP, is_chosen);
        if (is_chosen) {
            const int at = found + __popc(chosen & ((1u << lane) - 1u));
            experts[at] = e;
            weights[at] = power;
            atomicAdd(&counts[e], 1);
        }
        found += __popc(chosen);
        /* No power is below zero, so adding +0 changes no bit of the sum. */
        sum = add_lanes(sum, is_chosen || (e < n && !mixture.renormalises) ? power : 0.0f);
    }
    __syncwarp();
    for (int i = lane; i < mixture.chosen; i += 32)
        weights[i] = weights[i] / sum;
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

static __global__ void __launch_bounds__(THREADS) route(sb_mixture mixture, sb_cuda_pairs pairs)
{
    SB_SHARED(int, counts, MOST_EXPERTS); /* pairs of each expert */
    SB_SHARED(int, places, MOST_EXPERTS); /* the next place of each expert */
    SB_SHARED(int, n_tiles, 1);
    const int tid = (int)threadIdx.x, n = mixture.n_experts;

    grid_launch_next();
    for (int e = tid; e < n; e += THREADS)
        counts[e] = 0;
    __syncthreads();
    grid_wait_for_previous();
    for (int r = tid / 32; r < mixture.m; r += WARPS) {
        const int64_t first = (int64_t)r * mixture.chosen;
        choose(pairs.expert + first, pairs.weight + first, counts, mixture.logits + (int64_t)r * n,
               mixture);
    }
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
        pairs.row_at[place] = p / mixture.chosen;
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
    for (int i = 0; i < pairs.chosen; i++) {
        const int64_t p = row * pairs.chosen +
                          (SB_CUDA_FAULT(EXPERTS_DESCENDING) ? pairs.chosen - 1 - i : i);
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

/* The rows of a tile. Up to eight rows of the pass, no expert has more of them. With more, a larger
 * tile costs no time as long as reading the weights takes longer, and it reads them once where
 * smaller ones read them again; that is, up to the number of rows that an expert has on average.
 * Products with quantised weights take 16. */
static int rows_of_tile(const sb_mixture &mixture, int64_t n, int has_quantised)
{
    if (mixture.m <= 8)
        return 8;
    if (has_quantised)
        return 16;
    return n <= (int64_t)32 * mixture.n_experts ? 32 : 64;
}

extern "C" struct sb_cuda_pairs sb_cuda_pairs_of(const struct sb_mixture *mixture,
                                                 int has_quantised, void *memory)
{
    const int64_t n = (int64_t)mixture->m * mixture->chosen;
    const int rows = rows_of_tile(*mixture, n, has_quantised);
    const int64_t with_rows = n < mixture->n_experts ? n : mixture->n_experts;
    /* Each expert that has rows has one tile that may not be full. */
    const int64_t n_tiles = (n - with_rows) / rows + with_rows;
    sb_expert_tile *tiles = (sb_expert_tile *)memory;
    int32_t *words = (int32_t *)(tiles + n_tiles);

    return {(int32_t)n, mixture->chosen, rows,          (int32_t)n_tiles,        tiles,
            words,      words + n,       words + 2 * n, (float *)(words + 3 * n)};
}

extern "C" cudaError_t sb_cuda_route(const struct sb_mixture *mixture,
                                     const struct sb_cuda_pairs *pairs, cudaStream_t stream)
{
    if (mixture->m == 0)
        return cudaSuccess;
    if (mixture->n_experts > MOST_EXPERTS)
        return cudaErrorInvalidValue;
    return SB_LAUNCH_WITH(SB_DEPENDENT, route, dim3(1), dim3(THREADS), 0, stream, *mixture, *pairs);
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
    const cudaError_t error = sb_load(route);

    (void)type;
    return error == cudaSuccess ? sb_load(combine) : error;
}
