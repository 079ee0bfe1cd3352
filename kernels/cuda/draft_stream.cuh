/*
 * What the blocks of a draft's steps bring from memory, in the order in which they use it: the
 * tiles of all weights, and the cached keys and values.
 *
 * The memory does not wait for other blocks. Everything is dealt to the blocks in turn, through
 * phases, layers and steps:
 *
 *     item   0 1 2 ...  tiles of qkv, layer 0 | units of attention | tiles of o | gate_up | ...
 *     block  0 1 2 ... G-1 0 1 2 ...               and on, without beginning anew at block 0
 *
 * So a block knows what it will need however far ahead, and its ring (draft_tile.cuh) fills while
 * the block waits for others: 128 KB a multiprocessor, about two phases of a model of 0.6 billion
 * weights. As dealing never begins anew, every block reads the same share, though a phase may have
 * fewer items than there are blocks.
 *
 *     unit    one token, one kv head with its query heads, and a part of 128 keys, 16 of them for
 *             each warp. Only parts that have keys are units.
 *     slot    of a weight up to 16 stages of a tile; of a unit its cached keys, and then its cached
 *             values. Either lies in one piece in memory.
 *
 * Keys are not weights: a step writes some that the next one reads. The warp that copies gets no
 * further than to keys that were written before the last barrier that its block has passed
 * (await_keys). That is a whole step ahead, so it matters for small models only.
 *
 * A fence waits for all that its multiprocessor has asked for. So nothing is copied from when a
 * block begins to store the results of a phase until its fence at the barrier behind it is over
 * (await_turn): on an H200 a fence took up to 4700 clocks beside the copies of slots just given
 * back, and 700 where there were none.
 *
 * Rejected: slots asked for in pieces of 4 KB, as fast as the memory answers, instead of that wait
 * (the fence waits for pieces, too). To load a unit's keys when it is their turn. A block attends
 * to several units in each layer, and each would wait for the memory.
 */
#ifndef SB_CUDA_DRAFT_STREAM_CUH
#define SB_CUDA_DRAFT_STREAM_CUH

#include "kernels/cuda/draft_tile.cuh"

namespace
{

enum {
    MOST_TOKENS = MOST_ROWS, /* of a step; fewer than a warp has lanes */
    PART = 128,              /* keys */
    WARP_KEYS = 16,          /* PART / WARPS */
    HEAD = 128,              /* the widest head */
    UNIT_SLOTS = 2,          /* its keys, and its values */
    FRESH = 2                /* tokens of a sequence in a step, at most */
};
static_assert(PART * HEAD * 2 <= SLOT_BYTES, "a slot has room for the keys of a part");

enum { QKV, KEYS, O, GATE_UP, DOWN, PHASES };

struct attend_layer {
    const float *q_norm, *k_norm; /* or NULL */
    uint16_t *k, *v;              /* planes */
};

struct step_layer {
    panels w[PHASES];          /* KEYS has none */
    const float *bias[PHASES]; /* or NULL */
    const float *attn_norm, *ffn_norm;
    attend_layer attention;
};

/* A token of a step. */
struct step_token {
    int64_t at;     /* in a plane: position 0 of its sequence's kv head 0, */
    int64_t stride; /* and from one kv head to the next */
    int32_t pos;
    int32_t n_fresh; /* keys of its sequence that this step makes, up to its own */
    int32_t first;   /* parts of keys that the tokens before it have */
    int32_t n_parts;
};

struct step_tokens {
    int32_t n, n_parts; /* of all tokens */
    step_token token[MOST_TOKENS];
};

/* What a block keeps in shared memory of the model and the steps, so that it does not ask for it
 * again in each layer. */
struct stream_tables {
    panels head; /* n_out: ids that may be proposed */
    int32_t n_layers, n_steps, kv_heads, d;
    uint64_t by_kv_heads; /* 2^32 / kv_heads, rounded up: to divide numbers of units */
    unsigned is_storing;  /* whether the block has results on their way to other blocks */
    unsigned attended;    /* phases of attention that all blocks have behind them */
    unsigned last_tag;    /* of x, by the launch before */
    step_tokens steps[SB_DRAFT_STEPS_MAX];
    step_layer layers[1]; /* [n_layers] */

    /* A thread of the block says whether it is storing. */
    __device__ __forceinline__ void set_storing(unsigned is_so)
    {
        if (threadIdx.x == 0)
            store_relaxed_shared(&is_storing, is_so);
    }

    static __host__ __device__ __forceinline__ int bytes(int n_layers)
    {
        return (int)sizeof(stream_tables) + (n_layers - 1) * (int)sizeof(step_layer);
    }
};

/* ------------------------------------------------------------------ units */

struct attend_unit {
    int token, kv_head, part, n_parts, pos, n_fresh;
    int64_t at; /* in a plane: position 0 of its sequence's kv head */

    /* The first of this warp's keys. */
    __device__ __forceinline__ int first_key() const
    {
        return part * PART + (int)threadIdx.x / 32 * WARP_KEYS;
    }
};

/* Unit `number` of a step, by all lanes of a warp together. The multiplication divides exactly
 * where number * kv_heads is below 2^32: with 64 kv heads, up to four million keys a token. */
__device__ __forceinline__ attend_unit unit_of(const stream_tables &tables, int of, int number)
{
    const step_tokens &step = tables.steps[of];
    const int i = (int)((uint64_t)(unsigned)number * tables.by_kv_heads >> 32),
              kv_head = number - i * tables.kv_heads, lane = (int)threadIdx.x % 32;
    const bool begins = lane < step.n && step.token[lane].first <= i;
    const int token = __popc(__ballot_sync(SB_FULL_WARP, begins)) - 1;
    const step_token &t = step.token[token];

    return {token, kv_head, i - t.first, t.n_parts, t.pos, t.n_fresh, t.at + kv_head * t.stride};
}

/* ------------------------------------------------------------------ the stream */

/* All slots of a block, in the order in which it uses them. */
struct stream_source {
    const stream_tables *tables;
    int step, layer, phase; /* layer n_layers: the head */
    int item, items;        /* of the phase */
    int part, parts;        /* of the item: stages of a tile, or the slots of a unit */
    bool is_keys;           /* whether the items are units */
    int tile_stages;
    const uint16_t *w; /* of a matrix */
    int64_t keys_at;   /* of a unit: its first key, in a plane, */
    int n_keys;        /* and how many from there on are cached */

    __device__ __forceinline__ void begin(const stream_tables *t)
    {
        tables = t;
        step = layer = items = part = parts = 0;
        phase = -1;
        item = (int)blockIdx.x - (int)gridDim.x;
    }
    /* Returns false behind the last. */
    __device__ __forceinline__ bool next_phase()
    {
        item -= items;
        if (layer == tables->n_layers)
            step++, layer = phase = 0;
        else if (++phase == PHASES)
            layer++, phase = 0;
        if (step == tables->n_steps)
            return false;
        is_keys = phase == KEYS && layer < tables->n_layers;
        if (is_keys) {
            items = tables->steps[step].n_parts * tables->kv_heads;
            return true;
        }
        const panels &now = layer < tables->n_layers ? tables->layers[layer].w[phase]
                                                     : tables->head;
        w = now.w;
        items = now.tiles();
        tile_stages = now.stages();
        return true;
    }
    __device__ __forceinline__ void begin_unit()
    {
        const attend_unit u = unit_of(*tables, step, item);

        keys_at = u.at + (int64_t)u.part * PART * tables->d;
        n_keys = max(0, min(u.pos + 1 - u.n_fresh - u.part * PART, (int)PART));
    }
    /* Waits until the keys of this phase are no longer of a step that some block still makes. */
    __device__ __forceinline__ void await_keys() const
    {
        const int needed = (step - 1) * tables->n_layers + layer;

        for (bool again = false; !SB_CUDA_FAULT(KEYS_NOT_HELD_BACK) &&
                                 needed >= (int)load_acquire_shared(&tables->attended);
             again = true)
            spin(&tables->attended, again);
    }
    /* These two are as copy_all wants them. */
    __device__ __forceinline__ void await_turn() const
    {
        for (bool again = false; load_acquire_shared(&tables->is_storing) != 0; again = true)
            spin(&tables->is_storing, again);
    }
    __device__ __forceinline__ bool next(slot_copy &copy)
    {
        while (part >= parts) {
            item += (int)gridDim.x;
            while (item >= items)
                if (!next_phase())
                    return false;
            part = 0;
            parts = is_keys ? (int)UNIT_SLOTS : tile_stages;
            if (is_keys)
                begin_unit();
        }
        if (!is_keys) {
            copy = {w + ((int64_t)item * tile_stages + part) * SB_TILE,
                    min((int)SLOT_STAGES, parts - part) * (int)STAGE_BYTES, 0};
            part += SLOT_STAGES;
            return true;
        }
        await_keys();
        const attend_layer &of = tables->layers[layer].attention;
        copy = {(part == 0 ? of.k : of.v) + keys_at, n_keys * tables->d * 2,
                tables->d % 8 == 0 ? 0 : tables->d};
        part++;
        return true;
    }
};

} // namespace

#endif
