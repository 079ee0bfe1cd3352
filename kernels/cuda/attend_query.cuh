/*
 * Which queries a block of attention computes.
 *
 * Only the device knows the tokens of a pass, so that a recorded launch fits every pass of the same
 * size. The host therefore launches enough blocks for any such pass, and each block looks for its
 * work itself:
 *
 *   run     consecutive tokens of the pass that belong to one sequence
 *   query   one token and one query head. Query i of a run, for one kv head, is token i / group of
 *           the run and head i % group of the query heads that share the kv head.
 *   tile    `rows` consecutive queries of one run, or fewer at the run's end. Tiles are numbered
 *           through the runs of the pass in order.
 *
 * A block searches for the tile of its number, then determines how many queries the tile has and at
 * which positions. Every warp does both by itself and gets the same answer.
 */
#ifndef SB_CUDA_ATTEND_QUERY_CUH
#define SB_CUDA_ATTEND_QUERY_CUH

#include "kernels/cuda/common.cuh"

namespace
{

/* Pairs of floats of a query's partial result of a split: o [d], m, l, and where d is odd a float
 * between them. */
constexpr __host__ __device__ int partial_pairs(int d)
{
    return (d + 1) / 2 + 1;
}

/* The arguments of a launch. */
struct attend_args {
    uint16_t *y; /* [m, ldy] */
    const float *qkv;
    uint16_t *k, *v;
    float *partial;     /* [token, head, splits, 2 partial_pairs(d)] */
    unsigned *counters; /* [tile, kv_head]: splits that are done; zeros between launches */
    const int32_t *pos, *seq, *cap, *start;
    const int64_t *base;
    int n_tokens, heads, kv_heads;
    int group;              /* heads / kv_heads */
    uint32_t group_inverse; /* for over_group: the host divides, which takes a thread some 30
                               instructions each time */
    int d, splits;
    bool walk, ropes; /* ropes: qkv is yet to be turned, and its k and v to be cached */
    bool clusters;    /* the blocks of a tile's splits are a cluster */
    float scale;      /* of scores, capped ones if they are capped, times log2(e) */
    int64_t ldy;
    sb_attention layer; /* for turning heads; window: 0 where it hides nothing of the pass */
};

/* Queries [first, first + n) of the run that begins with token `run` of the pass. */
struct query_tile {
    int run, first, n, seq;
    int lowest, highest; /* positions */
    int fresh; /* keys from this position on are made from qkv, those before it are in the cache */
    int64_t keys, stride; /* in a plane: position 0 of the sequence's kv head 0, and from one kv
                             head to the next */
};

/* 1 / group in units of 2^-31, rounded up. */
static inline uint32_t inverse_of_group(int group)
{
    return (uint32_t)(((1u << 31) + (uint32_t)group - 1) / (uint32_t)group);
}

/* i / group for i >= 0. What the inverse is too large by, less than 2^-31, makes i / group too
 * large by less than 1 / group as long as i * group < 2^31. */
__device__ __forceinline__ int over_group(const attend_args &a, int i)
{
    return (int)((uint64_t)(uint32_t)i * a.group_inverse >> 31);
}

/* Query i of a run, for one kv head. */
struct query_place {
    int token, head; /* of the run, and of the pass's query heads */
};
__device__ __forceinline__ query_place place_of(const attend_args &a, int kv_head, int i)
{
    const int token = over_group(a, i);

    return {token, kv_head * a.group + i - token * a.group};
}

/* How many tiles the first `tokens` tokens of a run begin. */
__device__ __forceinline__ int tiles_of(int tokens, int group, int rows)
{
    return (int)((unsigned)(tokens * group + rows - 1) / (unsigned)rows);
}

/* Finds where tile number `want` of the pass is; returns 0 when the pass has fewer. The warp takes
 * 32 tokens a step: it finds which of them begin a run, how many tiles each token begins, and with
 * a running sum the token whose tiles include `want`. */
__device__ __forceinline__ int locate_tile(query_tile *tile, const attend_args &a, int rows,
                                           int want)
{
    const unsigned all = 0xffffffffu;
    const int lane = threadIdx.x % 32;
    int before = 0, run = 0, last_seq = -1;
    int seq = lane < a.n_tokens ? a.seq[lane] : -1;

    for (int first = 0; first < a.n_tokens; first += 32) {
        const int token = first + lane;
        /* loaded now, so that it arrives during this step */
        const int next = token + 32 < a.n_tokens ? a.seq[token + 32] : -1;
        const int up = __shfl_up_sync(all, seq, 1);
        const unsigned begins = __ballot_sync(all,
                                              token < a.n_tokens && seq != (lane ? up : last_seq));
        const unsigned mine = begins & ((2u << lane) - 1u);
        const int my_run = mine ? first + 31 - __clz((int)mine) : run;
        int my_tiles = tiles_of(token - my_run + 1, a.group, rows) -
                       tiles_of(token - my_run, a.group, rows);
        my_tiles = token < a.n_tokens ? my_tiles : 0;
        int sum = my_tiles;
        for (int step = 1; step < 32; step *= 2) {
            const int other = __shfl_up_sync(all, sum, step);
            sum += lane >= step ? other : 0;
        }
        const unsigned hits = __ballot_sync(all, want < before + sum);
        if (hits) {
            const int hit = __ffs((int)hits) - 1;
            tile->run = __shfl_sync(all, my_run, hit);
            tile->first = rows * (tiles_of(first + hit - tile->run, a.group, rows) + want -
                                  (before + __shfl_sync(all, sum - my_tiles, hit)));
            tile->seq = __shfl_sync(all, seq, hit);
            return 1;
        }
        before += __shfl_sync(all, sum, 31);
        run = __shfl_sync(all, my_run, 31);
        last_seq = __shfl_sync(all, seq, 31);
        seq = next;
    }
    return 0;
}

/* Determines how many queries the tile has, as the run may end in it, the range of their positions,
 * and where their keys are. None of the loads waits for another. ASCENDS: no position of a run is
 * lower than the one before it. */
template <bool ASCENDS>
__device__ __forceinline__ void measure_tile(query_tile *tile, const attend_args &a, int rows)
{
    const unsigned all = 0xffffffffu;
    const int lane = threadIdx.x % 32,
              end = tile->run + over_group(a, tile->first + rows + a.group - 1);
    int token = tile->run + over_group(a, tile->first);

    tile->lowest = INT32_MAX;
    tile->highest = 0;
    tile->fresh = a.ropes ? a.pos[tile->run] : INT32_MAX;
    tile->stride = (int64_t)a.cap[tile->seq] * a.d;
    tile->keys = a.base[tile->seq] + (int64_t)a.start[tile->seq] * a.d;
    for (unsigned inside = all; inside == all && token < end; token += 32) {
        const int t = token + lane;
        const bool is_there = t < end && t < a.n_tokens;
        const int seq = is_there ? a.seq[t] : -1, pos = is_there ? a.pos[t] : -1;
        inside = __ballot_sync(all, is_there && seq == tile->seq);
        /* only the tokens before the first that is not ours */
        inside &= ~inside ? (1u << (__ffs((int)~inside) - 1)) - 1u : all;
        if (ASCENDS && inside) {
            tile->lowest = min(tile->lowest, __shfl_sync(all, pos, 0));
            tile->highest = max(tile->highest, __shfl_sync(all, pos, __popc(inside) - 1));
        } else if (!ASCENDS && (inside >> lane & 1u)) {
            tile->lowest = min(tile->lowest, pos);
            tile->highest = max(tile->highest, pos);
        }
        tile->n = (token + __popc(inside) - tile->run) * a.group - tile->first;
    }
    tile->n = min(tile->n, rows);
    for (int step = 16; !ASCENDS && step > 0; step /= 2) {
        tile->lowest = min(tile->lowest, __shfl_xor_sync(all, tile->lowest, step));
        tile->highest = max(tile->highest, __shfl_xor_sync(all, tile->highest, step));
    }
}

/* Fills in tile number `want` of the pass; returns 0 when the pass has fewer. */
template <bool ASCENDS>
__device__ __forceinline__ int find_tile(query_tile *tile, const attend_args &a, int rows, int want)
{
    if (!locate_tile(tile, a, rows, want))
        return 0;
    measure_tile<ASCENDS>(tile, a, rows);
    return 1;
}

} // namespace

#endif
