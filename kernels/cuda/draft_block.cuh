/*
 * A block of the kernel that runs a draft's steps (draft_step.cu): what it is given, what it has
 * while it runs, and what it knows of the steps and layers from its beginning on.
 *
 *     shared memory   ring of slots | tables | weights of the next norm | parts of a norm | sums of
 *                     tiles and normed rows, or units of attention
 *
 * Tables are made once, so that a phase asks the device's memory for nothing that does not change.
 */
#ifndef SB_CUDA_DRAFT_BLOCK_CUH
#define SB_CUDA_DRAFT_BLOCK_CUH

#include "kernels/cuda/draft_attend.cuh"
#include "kernels/cuda/draft_norm.cuh"

namespace
{

enum { TAGGED_ROWS = 4 }; /* at most, for x to have tags */
static_assert((int)TAGGED_ROWS <= (int)ROWS_AT_ONCE, "they are awaited together");

/* One step, with the device's arrays of struct sb_draft_step. */
struct one_step {
    int n_tokens, n_out, max_len;
    const int32_t *id_at, *pos, *seq, *cap, *start, *out, *select_at;
    const int64_t *base;
};

typedef slot_ring<4> step_ring;

/* What lies where in a block's shared memory, in bytes behind the ring. The tables are first. */
struct block_layout {
    int norm;   /* weights of the next norm, f32 [hidden] */
    int parts;  /* norm_parts */
    int shared; /* sums of tiles and then normed rows, or units of attention */
    int rows;   /* the normed rows */
    int bytes;  /* in all, with the ring */
    int tiles_at_once, units_at_once; /* for which there is room */
};

/* Arrays of the device that the blocks share, in the memory that step_prepare was given. */
struct step_memory {
    unsigned barrier;
    unsigned tag;           /* the last that x had */
    wide best[MOST_TOKENS]; /* largest logit and its id, zero between steps (see key_of) */
};

struct step_args {
    const step_layer *layers;
    step_memory *shared;
    panels embed, head; /* head.n_out: ids that may be proposed, and whose logits are stored */
    const float *final_norm;
    float *x, *qkv;
    tagged *tagged_x; /* [TAGGED_ROWS, tagged_pitch], in place of x in steps of few tokens */
    uint16_t *attended, *act;
    int32_t *ids;
    float *logits; /* [n_out, logits_stride] of the only step, for another kernel; or NULL */
    int64_t logits_stride;
    attend_shape attention;
    float eps, hidden_inverse; /* 1 / hidden */
    int n_layers, hidden, inter, vocab, n_steps;
    block_layout layout;
    one_step steps[SB_DRAFT_STEPS_MAX];
};

/* What a block has while it runs. Pointers to its parts of the shared memory would take registers,
 * so they are computed at each use. */
struct running_block {
    step_ring ring;
    uint8_t *memory; /* behind the ring */
    int tile;        /* the next item, as the ring's source counts them */

    /* Whether x has tags in a step. */
    __device__ __forceinline__ bool has_tags(const step_args &a, int step) const
    {
        return a.steps[step].n_tokens <= TAGGED_ROWS;
    }
    /* The tag of x before that half of a layer in that step. */
    __device__ __forceinline__ unsigned tag_of(int step, int half) const
    {
        return tables().last_tag + (unsigned)(step * (2 * tables().n_layers + 1) + half + 1);
    }
    __device__ __forceinline__ stream_tables &tables() const
    {
        return *(stream_tables *)memory;
    }
    __device__ __forceinline__ float *norm(const step_args &a) const
    {
        return (float *)(memory + a.layout.norm);
    }
    /* Begins to copy the weights of a norm; the ones before have been used. */
    __device__ __forceinline__ void bring_norm(const float *weight, const step_args &a)
    {
#pragma unroll 1
        for (int k = (int)threadIdx.x * 4; k < a.hidden; k += THREADS * 4)
            cp_async(at_shared(norm(a) + k), weight + k, true);
        cp_async_commit();
    }
    /* This thread's share of them has come. */
    __device__ __forceinline__ void await_norm() const
    {
        if (!SB_CUDA_FAULT(NORM_WEIGHTS_NOT_AWAITED))
            cp_async_wait<0>();
    }
};

/* The barrier over the grid behind a phase. meanwhile() is called while the block waits. */
template <class F>
__device__ __forceinline__ void end_phase(const running_block &block, const step_args &a,
                                          F meanwhile)
{
    grid_barrier<THREADS>(&a.shared->barrier, [&] {
        block.tables().set_storing(0); /* the fence is over */
        meanwhile();
    });
}

/* Behind a phase that has changed x, when the weights of the next norm are on their way. */
__device__ __forceinline__ void end_changes(const running_block &block, const step_args &a,
                                            int step)
{
    if (!block.has_tags(a, step))
        end_phase(block, a, [&] { block.await_norm(); });
}

/* The tokens of step `number`, by a warp. */
__device__ __forceinline__ void note_tokens(step_tokens *to, const one_step &s, int number, int d)
{
    const int lane = (int)threadIdx.x % 32;
    const bool is_token = lane < s.n_tokens;
    const int late = SB_CUDA_FAULT(POSITION_NOT_ADVANCED) && number > 0;
    const int pos = is_token ? s.pos[lane] - late : 0, n_parts = is_token ? pos / PART + 1 : 0;
    int end = n_parts;

    for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync(SB_FULL_WARP, end, step);
        end += lane >= step ? before : 0;
    }
    if (lane == 31)
        to->n = s.n_tokens, to->n_parts = end;
    if (!is_token)
        return;
    const int seq = s.seq[lane];
    const bool follows = lane > 0 && s.seq[lane - 1] == seq && s.pos[lane - 1] + 1 == pos;
    to->token[lane] = {s.base[seq] + (int64_t)s.start[seq] * d,
                       (int64_t)s.cap[seq] * d,
                       pos,
                       1 + follows,
                       end - n_parts,
                       n_parts};
}

/* By the threads that compute. */
__device__ __forceinline__ void make_tables(stream_tables *to, const step_args &a)
{
    for (int i = (int)threadIdx.x / 32; i < a.n_steps; i += WARPS)
        note_tokens(&to->steps[i], a.steps[i], i, a.attention.d);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.n_layers; i += THREADS)
        to->layers[i] = a.layers[i];
    if (threadIdx.x == 0) {
        to->head = a.head;
        to->n_layers = a.n_layers, to->n_steps = a.n_steps;
        to->kv_heads = a.attention.kv_heads, to->d = a.attention.d;
        to->by_kv_heads = (((uint64_t)1 << 32) + to->kv_heads - 1) / to->kv_heads;
        to->is_storing = to->attended = 0;
        to->last_tag = __ldcg(&a.shared->tag);
    }
}

} // namespace

#endif
