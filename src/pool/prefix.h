/*
 * The prefix cache: keys and values that outlive their requests, so that a later request which
 * begins with the same tokens has less to compute.
 *
 *   a plane:   | slots of sequences         | block 0 | block 1 | ... | sink |
 *                  |          ^                 ^                |
 *                  |          `-- hit, at admission -------------'
 *                  `-- keep: a prompt is filled in, or its request leaves its slot
 *
 * The blocks are slots of SB_PREFIX_BLOCK columns at the end of every plane of both caches, and
 * prefix_tree.h knows which tokens each of them holds. Columns are copied between slots and blocks
 * by the operation `move`, so a sequence never reads a block, and a block never changes under one.
 *
 * A hit gives a request what a cold prefill of that request would have written, to the bit. Keys
 * and values of a token follow from the tokens up to it and from which of them are computed in
 * spans (backend.h), and that follows from the length of the request's own prompt. So spans are
 * part of the keys, and a hit ends with whole spans: the rest of a span cannot be computed without
 * its beginning. The last token of a sequence is never taken, as it is the next query.
 *
 * All memory is taken when the pool is created. If the pool has no prefix_bytes there are no
 * blocks, and all functions but those of pins do nothing.
 *
 * Working on blocks directly, as for a file that holds them:
 *
 *     n = sb_prefix_open(&prefix->tree, ids, n_blocks, spanned)         blocks that are there, or
 *     n = sb_prefix_open_longest(prefix, ids, n_ids, &spanned)
 *     n = sb_prefix_extend(&prefix->tree, ids, n_blocks, spanned)       and those that are not
 *     for each i < n: block = tree.path[i], tree.nodes[block].filled and .drafted
 *         in every plane of a cache, the block is kv_heads * SB_PREFIX_BLOCK * head_dim elements
 *         from sb_kv_base(kv, sb_prefix_at(prefix, block)) on, ordered [kv_head, column, head_dim]
 *     exec_sync, if columns were written; then set .filled, .drafted
 *     sb_prefix_close(&prefix->tree)
 */
#ifndef SB_PREFIX_H
#define SB_PREFIX_H

#include <stddef.h>
#include <stdint.h>

#include "engine/moves.h"
#include "engine/seq.h"
#include "pool/prefix_tree.h"

struct sb_prefix_pin {
    uint64_t id;
    int32_t last; /* node of its path */
};

struct sb_prefix {
    struct sb_mem mem;
    struct sb_runner *target; /* borrowed, as the next two */
    struct sb_runner *draft;  /* NULL: the draft has no cache */
    uint64_t *stats;          /* [SB_N_STATS], the pool's */
    struct sb_prefix_tree tree;
    struct sb_moves moves;      /* at most as many as a path has blocks */
    struct sb_prefix_pin *pins; /* [pins_capacity] */
    size_t n_pins, pins_capacity;
    uint64_t last_pin; /* the id that was given last */
};

/* Bytes of host and device memory that sb_prefix_create takes, beyond the blocks themselves, which
 * are part of the caches (block_columns of struct sb_runner_limits). */
size_t sb_prefix_bytes(const struct sb_runner_limits *limits);
/* The memory is the caller's and zeroed; on failure sb_prefix_free cleans up. The runners, which
 * have the same limits, and stats are borrowed. E_NOMEM. */
int32_t sb_prefix_create(struct sb_prefix *prefix, const struct sb_mem *mem,
                         struct sb_runner *target, struct sb_runner *draft, uint64_t *stats);
void sb_prefix_free(struct sb_prefix *prefix);

/* Blocks there are; 0: the pool keeps nothing. */
static inline int32_t sb_prefix_n_blocks(const struct sb_prefix *prefix)
{
    return prefix->tree.n_blocks;
}

/* A block's first column in every plane of both caches, as `at` of a sequence. */
static inline int64_t sb_prefix_at(const struct sb_prefix *prefix, int32_t block)
{
    return prefix->target->limits.n_columns + (int64_t)block * SB_PREFIX_BLOCK;
}

/* Gives a sequence, which has just got its slot and has nothing in it, the columns that are kept of
 * its tokens: sets kv_len and draft_kv_len. It may be ready then. A sequence whose prompt is to be
 * scored gets none, since that takes the logits too. E_DEVICE. */
int32_t sb_prefix_hit(struct sb_prefix *prefix, struct sb_seq *seq);
/* Keeps what a sequence has in its slot, in whole blocks, as far as there are blocks for it. Call
 * it before the sequence loses its slot, and between rounds. Nothing is kept of a request that
 * ended with an error. E_DEVICE. */
int32_t sb_prefix_keep(struct sb_prefix *prefix, const struct sb_seq *seq);

/* Opens the longest path that is filled of the first n_ids ids, however they were computed; of
 * several such the one with most spans. *spanned: how many of the ids it has in spans. Returns its
 * blocks; 0: there are none. Close it with sb_prefix_close. */
int32_t sb_prefix_open_longest(struct sb_prefix *prefix, const int32_t *ids, int32_t n_ids,
                               int32_t *spanned);
/* How many blocks of the open path have the draft's columns: the first so many. */
int32_t sb_prefix_n_drafted(const struct sb_prefix_tree *tree);

/* Semantics and status codes of the public functions; the ids have been checked to be tokens, and a
 * pool's max_len is no longer than its slots. */
int32_t sb_prefix_pin(struct sb_prefix *prefix, const int32_t *ids, size_t n_ids, int32_t max_len,
                      uint64_t *pin);
int32_t sb_prefix_unpin(struct sb_prefix *prefix, uint64_t pin);

#endif
