/*
 * Causal attention over bf16 or f16 caches on tensor cores: ragged rows, grouped heads, 1..K+1
 * queries a row and prompt chunks in one pass. q [m, ..] f32 from qkv, rounded to the caches' type;
 * y [m, ld] of that type.
 *
 * attend_tile.cuh has the arithmetic, which fixes the bits: partial results of splits of 128 keys,
 * merged in ascending order. Where partial results are made and merged is free, so there are two
 * ways:
 *
 *     walk    a block takes a query tile through all of its splits and merges in registers: for
 *             passes with enough tiles to fill the device
 *     split   a block takes one split of a tile and writes the partial results to scratch. The last
 *             block of a tile to do so merges them, or all of them together: for passes with few
 *             tiles
 *
 * Where a pass is longer than the layer's window, blocks always walk, from the first split that
 * some query of the tile sees: these splits are few, however long the text is. In other passes the
 * window hides nothing, and the layer is like any other.
 *
 * The launch is dependent: its blocks are there when the product before has ended, and the product
 * behind fills its rings with weights meanwhile. Rejected: fetching cached keys before the wait,
 * for the product before has most of a multiprocessor's shared memory until its end.
 *
 * K of the next split is fetched during softmax and values, V during the next scores. A block has
 * up to 64 KB in flight (D = 128); an H100 has the memory for 3 blocks of 16 or 32 queries, or 2 of
 * 64. (Of blocks that walk through several splits, for 2 of 32. Registers may allow fewer.) A block
 * of three teams has 48 or 96 queries and a multiprocessor to itself, as three blocks would, for
 * which keys and values would come three times.
 *
 * A warp runs once through what a launch of few tokens has it do, so the instructions come from the
 * L2 cache like everything else: on an H100, six tokens took 10 us where the kernel had 3000 of
 * them for a warp, and 42 % of that was waiting for instructions. Therefore the heads that most
 * models have are shapes of their own (WHOLE), with addresses that are constants, and without the
 * ways that such passes do not take.
 *
 *     grid   splits (1 of blocks that walk), kv heads, tiles
 *
 * There are blocks for all tiles and splits that a pass of its size might have. Those that have
 * none end at once, and since tiles are numbered from 0 on, most of them are last, so that blocks
 * with work do not wait for their places.
 */
#include "kernels/cuda/attend_merge.cuh"
#include "kernels/cuda/attend_turn.cuh"
#include "kernels/cuda/grid.cuh"

namespace
{

enum {
    /* What may be split is limited, because scratch is: FEW_TOKENS tokens of any length, or
     * SPLIT_TOKENS tokens whose splits are SPLIT_PARTS together. */
    FEW_TOKENS = 64,
    SPLIT_TOKENS = 192,
    SPLIT_PARTS = 16384,
    ENOUGH_BLOCKS = 132, /* one for each of an H100's multiprocessors; so many need no splitting */
    TILE_ROWS = 64,      /* queries of the largest tile of a block that turns no heads itself; */
    ROPE_DIM = 128,      /* others may have so many columns: there are no registers for more */
    ROPE_QUERIES = 128,  /* of a sequence, all of whose tiles make the new keys, for one to write */
    MOST_TILES = 65535   /* of a grid */
};

/* ------------------------------------------------------------------ a tile */

/* Tells the block whether this warp has a value that needs care. care: one for each warp */
__device__ __forceinline__ void note_care(int *care, bool is_bad)
{
    const int is_any_bad = __any_sync(0xffffffffu, is_bad);

    if (threadIdx.x % 32 == 0)
        care[threadIdx.x / 32] = is_any_bad;
}

/* Whether some warp has. */
template <class S>
__device__ __forceinline__ bool is_care_noted(const int *care)
{
    int noted = 0;

#pragma unroll
    for (int i = 0; i < S::TEAMS * WARPS; i++)
        noted |= care[i];
    return noted;
}

/* Whether the block takes part in a tile: not if its split is behind all of the tile's keys. */
__device__ __forceinline__ bool has_part(const attend_args &a, const query_tile &tile)
{
    return a.walk || (int)blockIdx.x * SPLIT <= tile.highest;
}

/* The first split that the block takes of the tile. A window hides those before it. */
template <class S>
__device__ __forceinline__ int first_split(const query_tile &tile, int window, bool walks)
{
    if (S::WINDOWS)
        return max(tile.lowest - window + 1, 0) / SPLIT;
    return walks ? 0 : (int)blockIdx.x;
}

/* This warp's scores of a split, capped if the layer caps them, and masked. */
template <class S, bool ROPES>
__device__ __forceinline__ void masked_scores(float (&s)[S::MT][4][4], uint8_t *shared,
                                              const attend_args &a, int first_key, int n_mma)
{
    scores<S>(s, shared, n_mma);
    if (!ROPES && a.layer.score_cap > 0.0f)
        cap_scores<S>(s, a.layer.scale, a.layer.score_cap, n_mma);
    mask_scores<S>(s, shared, first_key, a.layer.window, a.scale, n_mma);
}

template <class S, bool ROPES>
__device__ __forceinline__ void do_tile(uint8_t *shared, const attend_args &a,
                                        const query_tile &tile, int kv_head, int number)
{
    const bool walks = S::WINDOWS || (!S::WHOLE && (a.walk || tile.highest < SPLIT));
    const int window = a.layer.window, highest = tile.highest;
    const int first = first_split<S>(tile, window, walks), last = walks ? highest / SPLIT : first;
    const int n_mma = mma_tiles_of<S>(tile.n), d = head_dim_of<S>(a);
    const int64_t from = tile.keys + kv_head * tile.stride;
    uint8_t *weights = shared + (S::WINDOWS || (!S::WHOLE && a.walk) ? S::W_AT : 0);
    int *care = (int *)(shared + S::CARE_AT);
    float2 *factors = (float2 *)(shared + S::FACTORS_AT);
    merged state = before_splits(a, place_of(a, kv_head, tile.first + (int)threadIdx.x).head);
    running<S> result;
    made_row<S> made;

    /* Every call makes one group of copies, empty past the last split, so that waits can count. */
    auto fetch = [&](const uint16_t *plane, int at, int split) {
        if (split <= last)
            fetch_rows<S>(shared + at, plane + from + (int64_t)split * SPLIT * d,
                          cached_keys_of(tile, split), keys_of(tile, split), d);
        cp_async_commit();
    };
    fetch(a.k, 0, first);
    fetch(a.v, S::V_AT, first);
    if (ROPES)
        turn_heads<S>(shared, &made, a, tile, kv_head, first, last);
    else
        load_queries<S>(shared, a, tile, kv_head);
    result.clear();

    for (int split = first; split <= last; split++) {
        const int first_key = split * SPLIT, lowest = max(tile.lowest - first_key, 0);
        if (ROPES)
            put_new<S>(shared, made, a, tile, kv_head, first, split, false);
        cp_async_wait<1>();
        __syncthreads(); /* K, Q and positions are here */
        {
            float s[S::MT][4][4];
            masked_scores<S, ROPES>(s, shared, a, first_key, n_mma);
            __syncthreads(); /* the warps' maxima; K has been read */
            fetch(a.k, 0, split + 1);
            weigh<S>(s, shared, weights, n_mma);
        }
        bool is_bad = ROPES && put_new<S>(shared, made, a, tile, kv_head, first, split, true);
        cp_async_wait<1>();
        is_bad |= has_bad_values_outside<S>(shared + S::V_AT, lowest, highest - first_key, window,
                                            cached_keys_of(tile, split));
        note_care(care, is_bad);
        __syncthreads(); /* V, weights and sums */
        const bool needs_care = is_care_noted<S>(care);
        if (walks) {
            add_sums<S>(&state, shared, (int)threadIdx.x, first_key, window);
            __syncthreads();
        }
#pragma unroll
        for (int group = 0; group < S::N8; group += S::GROUP) {
            float o[S::MT][S::GROUP][4];
            values<S>(o, shared, weights, group, n_mma);
            if (needs_care)
                values_with_care<S>(o, shared, weights, group, first_key, lowest, window, n_mma);
            if (walks)
                result.add(o, shared, factors, group, first_key, window, n_mma);
            else
                store_partial<S>(o, shared, a, tile, kv_head, group);
        }
        __syncthreads(); /* V, weights and sums have been read */
        if (S::WHOLE)    /* the only one, which the compiler does not see */
            break;
        fetch(a.v, S::V_AT, split + 1);
    }
    if (ROPES && has_bulk_copies() && !walks && a.clusters)
        return merge_by_cluster<S>(shared, a, tile, kv_head);
    if (!walks) {
        if (!is_last_block(a.counters + number * a.kv_heads + kv_head, highest / SPLIT + 1, care))
            return;
        merge_splits<S>(&result, &state, shared, a, tile, kv_head);
    }
    store_result<S>(&result, state, shared, a, tile, kv_head);
}

/* A block without work ends before it waits for the kernel ahead; a pass has a token, so some block
 * waits. Where there are more tiles than blocks, a block takes several. That cannot be where
 * heads are turned (most_tiles), so that kernel has no loop: the compiler would keep what is the
 * same for all tiles in some 90 registers, and a multiprocessor would have room for two blocks, not
 * three. */
template <class S, bool ROPES>
__global__ void __launch_bounds__(S::THREADS, ROPES ? S::RESIDENT : S::WALKING)
    attend_kernel(attend_args a)
{
    SB_DYNAMIC_SHARED(uint8_t, shared);
    const int kv_head = (int)blockIdx.y;
    int i = (int)blockIdx.z;
    query_tile tile;

    if (S::TEAMS > 1 && !has_bulk_copies()) /* such code is never launched */
        return;
    cp_async_begin();
    grid_launch_next();
    /* What tokens there are the host has uploaded before all of the round. */
    bool has_tile = find_tile<ROPES>(&tile, a, S::ROWS, i);
    if (!has_tile || (ROPES && !has_part(a, tile)))
        return;
    grid_wait_for_previous();
    while (has_tile) {
        if (ROPES || has_part(a, tile))
            do_tile<S, ROPES>(shared, a, tile, kv_head, i);
        if (ROPES)
            break;
        i += (int)gridDim.z;
        has_tile = find_tile<ROPES>(&tile, a, S::ROWS, i);
    }
}

/* ------------------------------------------------------------------ launching */

/* The most tiles of so many queries that a pass may have. Up to 2 n_seqs runs end in a tile that is
 * not full: the sequences', and runs of padding tokens between them. A pass whose sequences are
 * apart has no more, as all its padding is of one sequence; in other passes there may be more, and
 * blocks loop. */
int64_t most_tiles(int n_tokens, int n_seqs, int group, int rows)
{
    const int64_t each = (int64_t)(group + rows - 1) / rows * n_tokens;
    const int64_t packed = (int64_t)n_tokens * group / rows + 2 * (int64_t)n_seqs;

    return packed < each ? packed : each;
}

template <class S, bool ROPES>
cudaError_t launch_shape(const attend_args &a, int n_seqs, cudaStream_t stream)
{
    const int64_t tiles = most_tiles(a.n_tokens, n_seqs, a.group, S::ROWS);
    const dim3 grid(a.walk ? 1u : (unsigned)a.splits, (unsigned)a.kv_heads,
                    (unsigned)(tiles < (int)MOST_TILES ? tiles : (int)MOST_TILES));
    const int options = SB_DEPENDENT | (a.clusters ? SB_CLUSTER_OF * a.splits : 0);

    return SB_LAUNCH_WITH(options, (attend_kernel<S, ROPES>), grid, dim3(S::THREADS),
                          a.walk ? (size_t)S::SHARED : (size_t)S::SPLIT_SHARED, stream, a);
}

/* Blocks of several teams take one split. */
template <class S, bool ROPES = false>
cudaError_t load_shape(void)
{
    return sb_load(attend_kernel<S, ROPES>, S::TEAMS > 1 ? (int)S::SPLIT_SHARED : (int)S::SHARED);
}

/* Of blocks that turn no heads, with a window or without. */
template <enum sb_dtype TYPE, int D, int MT, bool WINDOWS>
using plain_shape = attend_shape<TYPE, D, MT, 1, false, WINDOWS>;

template <enum sb_dtype TYPE>
cudaError_t load_type(void)
{
    cudaError_t (*const of_shape[])(void) = {
        load_shape<attend_shape<TYPE, 64, 1>>,
        load_shape<attend_shape<TYPE, 64, 2>>,
        load_shape<attend_shape<TYPE, 64, 4>>,
        load_shape<attend_shape<TYPE, 128, 1>>,
        load_shape<attend_shape<TYPE, 128, 2>>,
        load_shape<attend_shape<TYPE, 128, 4>>,
        load_shape<attend_shape<TYPE, 256, 1>>,
        load_shape<attend_shape<TYPE, 256, 2>>,
        load_shape<plain_shape<TYPE, 64, 1, true>>,
        load_shape<plain_shape<TYPE, 64, 2, true>>,
        load_shape<plain_shape<TYPE, 64, 4, true>>,
        load_shape<plain_shape<TYPE, 128, 1, true>>,
        load_shape<plain_shape<TYPE, 128, 2, true>>,
        load_shape<plain_shape<TYPE, 128, 4, true>>,
        load_shape<plain_shape<TYPE, 256, 1, true>>,
        load_shape<plain_shape<TYPE, 256, 2, true>>,
        load_shape<attend_shape<TYPE, 64, 1>, true>,
        load_shape<attend_shape<TYPE, 64, 2>, true>,
        load_shape<attend_shape<TYPE, 128, 1>, true>,
        load_shape<attend_shape<TYPE, 128, 2>, true>,
        load_shape<attend_shape<TYPE, 128, 1, 3>, true>,
        load_shape<attend_shape<TYPE, 128, 2, 3>, true>,
        load_shape<attend_shape<TYPE, 64, 1, 1, true>, true>,
        load_shape<attend_shape<TYPE, 64, 2, 1, true>, true>,
        load_shape<attend_shape<TYPE, 128, 1, 1, true>, true>,
        load_shape<attend_shape<TYPE, 128, 2, 1, true>, true>,
        load_shape<attend_shape<TYPE, 128, 1, 3, true>, true>,
        load_shape<attend_shape<TYPE, 128, 2, 3, true>, true>,
    };
    cudaError_t error = cudaSuccess;

    for (size_t i = 0; error == cudaSuccess && i < sizeof of_shape / sizeof of_shape[0]; i++)
        error = of_shape[i]();
    return error;
}

/* A size of tile, and how many blocks of it there have to be, else smaller tiles are better. */
struct tile_size {
    int rows, enough;
};

/* Of tiles that turn no heads; with more than 128 columns there is none of 64. */
constexpr tile_size PLAIN_SIZES[] = {{16, 0}, {32, ENOUGH_BLOCKS}, {64, ENOUGH_BLOCKS}};
/* Of tiles that do, where a block takes one split. Those of three teams are for head_dim 65 to 128,
 * and for splits that a cluster merges. */
constexpr tile_size ROPE_SIZES[SB_ROPE_ATTEND_SHAPES] = {
    {16, 0}, {32, ENOUGH_BLOCKS * 3 / 2}, {48, ENOUGH_BLOCKS / 2}, {96, ENOUGH_BLOCKS / 2}};
enum { ROPE_OF_ONE_TEAM = 2 };

/* Chooses one of n sizes: that which holds the queries of a sequence, on average, and a smaller one
 * where it makes too few blocks. No bit depends on it. */
int choose_size(const attend_args &a, int n_seqs, const tile_size *sizes, int n)
{
    const int64_t seqs = n_seqs > 0 ? n_seqs : 1, rows = (int64_t)a.n_tokens * a.group / seqs;
    const int64_t a_tile = (int64_t)a.kv_heads * (a.walk ? 1 : a.splits);
    int i = 0;

    while (i < n - 1 && rows > sizes[i].rows)
        i++;
    /* A sequence's last tile may be small, and is a block all the same. */
    while (i > 0 && seqs * ((rows + sizes[i].rows - 1) / sizes[i].rows) * a_tile < sizes[i].enough)
        i--;
    return i;
}

/* The same for tiles that turn heads: 32 queries where these are blocks enough, and else the
 * largest that are. On an H200 with 24 and 96 queries a sequence, and on an H100 with 96, tiles of
 * 32 took least from 240 blocks on, by up to a fifth, and at 160 more than those of 16. With fewer
 * blocks, three teams took what tiles of 16 did. */
int choose_rope_size(const attend_args &a, int n_seqs, int n)
{
    const tile_size *const sizes = a.walk ? PLAIN_SIZES : ROPE_SIZES;
    const int best = choose_size(a, n_seqs, sizes, ROPE_OF_ONE_TEAM);

    return best > 0 ? best : choose_size(a, n_seqs, sizes, n);
}

template <enum sb_dtype TYPE, int D, bool WINDOWS>
cudaError_t launch_rows(const attend_args &a, int n_seqs, cudaStream_t stream)
{
    enum { MOST = D <= 128 ? 3 : 2 };
    cudaError_t (*const of_size[])(const attend_args &, int, cudaStream_t) = {
        launch_shape<plain_shape<TYPE, D, 1, WINDOWS>, false>,
        launch_shape<plain_shape<TYPE, D, 2, WINDOWS>, false>,
        launch_shape<plain_shape<TYPE, D, MOST == 3 ? 4 : 2, WINDOWS>, false>,
    };

    return of_size[choose_size(a, n_seqs, PLAIN_SIZES, MOST)](a, n_seqs, stream);
}

/* The same where qkv is yet to be turned. shape: of ROPE_SIZES, or -1 for the best. */
template <enum sb_dtype TYPE, int D, bool WHOLE>
cudaError_t launch_rope_rows(const attend_args &a, int n_seqs, int shape, cudaStream_t stream)
{
    enum { TEAMS = D > 64 ? 3 : 1 };
    const int n = TEAMS > 1 && a.clusters ? (int)SB_ROPE_ATTEND_SHAPES : (int)ROPE_OF_ONE_TEAM;
    cudaError_t (*const of_size[])(const attend_args &, int, cudaStream_t) = {
        launch_shape<attend_shape<TYPE, D, 1, 1, WHOLE>, true>,
        launch_shape<attend_shape<TYPE, D, 2, 1, WHOLE>, true>,
        launch_shape<attend_shape<TYPE, D, 1, TEAMS, WHOLE>, true>,
        launch_shape<attend_shape<TYPE, D, 2, TEAMS, WHOLE>, true>,
    };

    if (shape >= n)
        return cudaErrorNotSupported;
    return of_size[shape < 0 ? choose_rope_size(a, n_seqs, n) : shape](a, n_seqs, stream);
}

bool is_aligned(const void *p)
{
    return (size_t)p % 16 == 0;
}

/* Whether heads are as shapes that are WHOLE have them, and blocks take one split. */
bool is_whole(const attend_args &a)
{
    return !a.walk && (a.d == 64 || a.d == 128) && a.layer.rot_dim == a.d &&
           !a.layer.rot_interleaved && is_aligned(a.y) && is_aligned(a.qkv) && is_aligned(a.k) &&
           is_aligned(a.v);
}

template <enum sb_dtype TYPE, bool WINDOWS>
cudaError_t launch_plain(const attend_args &a, int n_seqs, cudaStream_t stream)
{
    if (a.d <= 64)
        return launch_rows<TYPE, 64, WINDOWS>(a, n_seqs, stream);
    return a.d <= 128 ? launch_rows<TYPE, 128, WINDOWS>(a, n_seqs, stream)
                      : launch_rows<TYPE, 256, WINDOWS>(a, n_seqs, stream);
}

template <enum sb_dtype TYPE>
cudaError_t launch_type(const attend_args &a, int n_seqs, int shape, cudaStream_t stream)
{
    if (a.ropes && is_whole(a))
        return a.d == 64 ? launch_rope_rows<TYPE, 64, true>(a, n_seqs, shape, stream)
                         : launch_rope_rows<TYPE, 128, true>(a, n_seqs, shape, stream);
    if (a.ropes)
        return a.d <= 64 ? launch_rope_rows<TYPE, 64, false>(a, n_seqs, shape, stream)
                         : launch_rope_rows<TYPE, 128, false>(a, n_seqs, shape, stream);
    return a.layer.window > 0 ? launch_plain<TYPE, true>(a, n_seqs, stream)
                              : launch_plain<TYPE, false>(a, n_seqs, stream);
}

} // namespace

int sb_cuda_attend_shared(int32_t head_dim)
{
    if (head_dim <= 64)
        return attend_shape<SB_BF16, 64, 4>::SHARED;
    if (head_dim <= 128)
        return attend_shape<SB_BF16, 128, 4>::SHARED;
    return head_dim <= 256 ? (int)attend_shape<SB_BF16, 256, 2>::SHARED : 0;
}

/* Whether scratch has room for the partial results of so many tokens. */
static bool fits_scratch(int64_t tokens, int64_t splits)
{
    return tokens <= FEW_TOKENS || (tokens <= SPLIT_TOKENS && tokens * splits <= SPLIT_PARTS);
}

static size_t smaller(int64_t a, int64_t b)
{
    return (size_t)(a < b ? a : b);
}

size_t sb_cuda_attend_scratch(enum sb_dtype type, const struct sb_exec_limits *limits)
{
    const size_t splits = ((size_t)limits->max_len + SPLIT - 1) / SPLIT,
                 few = smaller(limits->max_tokens, FEW_TOKENS) * splits,
                 many = smaller(limits->max_tokens, SPLIT_TOKENS) * splits,
                 bounded = many < SPLIT_PARTS ? many : (size_t)SPLIT_PARTS;

    if (type == SB_F32 || splits <= 1)
        return 0;
    return (few > bounded ? few : bounded) * (size_t)limits->max_heads *
           (size_t)partial_pairs(limits->max_head_dim) * sizeof(float2);
}

size_t sb_cuda_attend_counters(enum sb_dtype type, const struct sb_exec_limits *limits)
{
    const size_t tokens = smaller(limits->max_tokens, SPLIT_TOKENS);

    return type == SB_F32 ? 0 : tokens * (size_t)limits->max_heads * sizeof(unsigned);
}

/* The queries that a sequence has on average, for one kv head. */
static int64_t queries_of(const sb_attention &layer, const sb_pass &pass)
{
    const int64_t n_seqs = pass.n_seqs > 0 ? pass.n_seqs : 1;

    return (pass.n_tokens * (int64_t)(layer.heads / layer.kv_heads) + n_seqs - 1) / n_seqs;
}

/* Whether the tiles alone are as many blocks as the device needs. */
static bool fills_device(const sb_attention &layer, const sb_pass &pass)
{
    const int64_t tiles = (queries_of(layer, pass) + TILE_ROWS - 1) / TILE_ROWS;

    return pass.n_seqs * tiles * layer.kv_heads >= ENOUGH_BLOCKS;
}

/* The layer's window, or 0 if it hides nothing of the pass. */
static int32_t window_of(const sb_attention &layer, const sb_pass &pass)
{
    return layer.window < pass.max_len ? layer.window : 0;
}

int sb_cuda_rope_attend_fits(const struct sb_attention *attention, const struct sb_pass *pass)
{
    const int32_t group = attention->heads / attention->kv_heads;

    return pass->is_apart && attention->head_dim <= ROPE_DIM && window_of(*attention, *pass) == 0 &&
           attention->score_cap == 0.0f && queries_of(*attention, *pass) <= ROPE_QUERIES &&
           most_tiles(pass->n_tokens, pass->n_seqs, group, ROPE_SIZES[0].rows) <= MOST_TILES;
}

/* Heads are turned, or not, and tiles have one size, or the best. */
struct attend_way {
    bool ropes;
    int shape;   /* of ROPE_SIZES; -1: the best */
    int cluster; /* the most blocks that a cluster may have; 0: there are none */
};

static cudaError_t attend(void *y, enum sb_dtype type, const float *qkv, const sb_attention &t,
                          const sb_pass &pass, const attend_way &way, void *scratch,
                          unsigned *counters, cudaStream_t stream)
{
    if (pass.n_tokens <= 0)
        return cudaSuccess;
    const int window = window_of(t, pass);
    if (type == SB_F32 || t.head_dim > (way.ropes ? (int)ROPE_DIM : 256) || t.kv_heads <= 0 ||
        t.heads % t.kv_heads || window < 0 || (way.ropes && (window > 0 || t.score_cap > 0.0f)))
        return cudaErrorInvalidValue;
    const int splits = (pass.max_len + SPLIT - 1) / SPLIT;
    const bool walk = window > 0 || splits <= 1 || !scratch ||
                      !fits_scratch(pass.n_tokens, splits) || fills_device(t, pass);
    attend_args a = {
        (uint16_t *)y,
        qkv,
        (uint16_t *)t.k,
        (uint16_t *)t.v,
        (float *)scratch,
        counters,
        pass.pos,
        pass.seq,
        pass.cap,
        pass.start,
        pass.base,
        pass.n_tokens,
        t.heads,
        t.kv_heads,
        t.heads / t.kv_heads,
        inverse_of_group(t.heads / t.kv_heads),
        t.head_dim,
        splits,
        walk,
        way.ropes,
        !walk && splits <= way.cluster,
        t.score_cap > 0.0f ? SB_LOG2_E : t.scale * SB_LOG2_E,
        sb_cuda_ld(type, t.heads * t.head_dim),
        t,
    };
    a.layer.window = window;
    return type == SB_BF16 ? launch_type<SB_BF16>(a, pass.n_seqs, way.shape, stream)
                           : launch_type<SB_F16>(a, pass.n_seqs, way.shape, stream);
}

cudaError_t sb_cuda_attend_mma(void *y, enum sb_dtype type, const float *qkv,
                               const struct sb_attention *attention, const struct sb_pass *pass,
                               void *scratch, unsigned *counters, cudaStream_t stream)
{
    return attend(y, type, qkv, *attention, *pass, {false, -1, 0}, scratch, counters, stream);
}

/* By the blocks that take most shared memory, of the kernel that a pass of many queries has. A
 * device or code without clusters is no error. */
template <enum sb_dtype TYPE>
static int32_t most_of_cluster(void)
{
    typedef attend_shape<TYPE, ROPE_DIM, 2, 3> S;
    const auto kernel = attend_kernel<S, true>;

    for (int blocks = CLUSTER_SPLITS; blocks > 1; blocks /= 2) {
        const sb_launch_config config(dim3((unsigned)blocks), dim3(S::THREADS), S::SPLIT_SHARED, 0,
                                      SB_CLUSTER_OF * blocks, (const void *)kernel);
        int n = 0;
        if (!sb_is_for_sm_90((const void *)kernel) ||
            cudaOccupancyMaxActiveClusters(&n, kernel, config.get()) != cudaSuccess)
            break;
        if (n > 0)
            return blocks;
    }
    (void)cudaGetLastError();
    return 0;
}

int32_t sb_cuda_most_of_cluster(enum sb_dtype type)
{
    return type == SB_BF16 ? most_of_cluster<SB_BF16>() : most_of_cluster<SB_F16>();
}

cudaError_t sb_cuda_rope_attend_mma(void *y, enum sb_dtype type, const float *qkv,
                                    const struct sb_attention *attention,
                                    const struct sb_pass *pass, void *scratch, unsigned *counters,
                                    const struct sb_launch_limits *limits, cudaStream_t stream)
{
    return attend(y, type, qkv, *attention, *pass, {true, -1, limits ? limits->cluster : 0},
                  scratch, counters, stream);
}

cudaError_t sb_cuda_rope_attend_mma_in(int32_t shape, void *y, enum sb_dtype type, const float *qkv,
                                       const struct sb_attention *attention,
                                       const struct sb_pass *pass, void *scratch,
                                       unsigned *counters, const struct sb_launch_limits *limits,
                                       cudaStream_t stream)
{
    if (shape < 0)
        return cudaErrorInvalidValue;
    return attend(y, type, qkv, *attention, *pass, {true, shape, limits ? limits->cluster : 0},
                  scratch, counters, stream);
}

cudaError_t sb_load_attend_mma(enum sb_dtype type)
{
    if (type == SB_F32)
        return cudaSuccess;
    return type == SB_BF16 ? load_type<SB_BF16>() : load_type<SB_F16>();
}
