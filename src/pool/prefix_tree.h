/*
 * Which tokens the blocks of the prefix cache hold: a tree, without the keys and values themselves.
 *
 *   prompts  [A B C]  [A B D]  [E]         a node is a block of SB_PREFIX_BLOCK tokens, and has
 *                                          the number of the block that its columns are in
 *        A ---- B ---- C
 *               `----- D                   path: nodes from a root on, one for each block of ids
 *        E
 *
 * A node is found by its key: its parent's number, its tokens, and how many of them were computed
 * in spans. Keys and values of a token depend on all tokens before it and on how each of them was
 * computed. Both are in the path, and nothing else is in the bits (docs/numerics.md). A bucket of a
 * hash table has a chain of nodes, whose keys are compared in full: a hash that two keys share
 * costs a step and changes nothing.
 *
 * Nodes come and go:
 *
 *     free ----> held ----> listed ----> held again, or evicted and held under another key
 *      ^          |
 *      `----------'  never filled: no columns were written for it
 *
 * A path is worked on while it is held: opened, perhaps extended, and closed. A pin is a path that
 * stays held. Nodes that nobody holds are in a list by age, and the oldest is evicted when a block
 * is needed. Paths are closed from the end on, so a parent is younger than its children, and the
 * oldest node has no child; whoever holds a node holds its ancestors. So nothing is searched for.
 *
 * This is how others do it. vLLM finds blocks by a hash that is chained from block to block, and
 * evicts the oldest block without a user; the sequences use the blocks where they are. SGLang has a
 * radix tree whose edges are runs of tokens and are split, and evicts the oldest leaves. llama.cpp
 * keeps the tokens of each slot, and gives a request the slot whose tokens have the longest common
 * prefix with its own. There a request's log-probabilities change when it hits (its pull requests
 * 7745 and 18776), since other batches compute with other kernels.
 *
 *   W. Kwon et al.: Efficient memory management for large language model serving with
 *   PagedAttention. SOSP 2023; and vLLM's documentation, "Automatic Prefix Caching".
 *   L. Zheng et al.: SGLang: efficient execution of structured language model programs. NeurIPS
 *   2024.
 *
 * Rejected: blocks that sequences attend to where they are, as in vLLM. Attention would read a
 * table for every tile, in each kernel and in cuDNN, and realignment moves what a slot holds. A
 * copy costs little beside computing the tokens. Rejected too: edges of any length. The
 * blocks of a path would not be of one size, and splitting an edge would need memory in a step.
 */
#ifndef SB_PREFIX_TREE_H
#define SB_PREFIX_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "alloc.h"
#include "hash.h"

enum { SB_PREFIX_BLOCK = 32 }; /* tokens of a block */

struct sb_prefix_key {
    int32_t parent;  /* a node, or -1 */
    int32_t spanned; /* the first so many of its tokens were computed in spans */
    int32_t ids[SB_PREFIX_BLOCK];
};

struct sb_prefix_node {
    struct sb_prefix_key key;
    int32_t holds;        /* by pins and by the open path */
    int32_t next;         /* in its bucket or among the free nodes; -1: the last */
    int32_t older, newer; /* in the list by age, while nobody holds it; -1: none */
    int32_t filled;       /* 1: the target's columns are there */
    int32_t drafted;      /* 1: the draft's too */
};

struct sb_prefix_tree {
    struct sb_mem mem;
    struct sb_hash_key hash_key;
    struct sb_prefix_node *nodes; /* [n_blocks] */
    int32_t *buckets;             /* [mask + 1] the first node of each, or -1 */
    uint32_t mask;
    int32_t n_blocks;
    int32_t free, n_free;    /* a list through `next` */
    int32_t oldest, newest;  /* the list by age */
    int32_t n_listed;        /* nodes in it */
    int32_t *path, max_path; /* [max_path] the open path; at most so many blocks */
    int32_t n_path;          /* 0: none is open */
    uint64_t n_evicted;      /* so far */
};

/* Bytes that sb_prefix_tree_create takes. */
size_t sb_prefix_tree_bytes(int32_t n_blocks, int32_t max_path);
/* The memory is the caller's and zeroed; on failure sb_prefix_tree_free cleans up. E_NOMEM. */
int32_t sb_prefix_tree_create(struct sb_prefix_tree *tree, const struct sb_mem *mem,
                              int32_t n_blocks, int32_t max_path);
void sb_prefix_tree_free(struct sb_prefix_tree *tree);

/*
 * Opens the path of the first n blocks of ids, as far as it is there: path[0 .. n_path) are then
 * its nodes, which are held. `spanned`: the first so many of the ids are computed in spans. Blocks
 * beyond max_path are left out. Returns n_path. No path may be open.
 */
int32_t sb_prefix_open(struct sb_prefix_tree *tree, const int32_t *ids, int32_t n, int32_t spanned);
/* Adds what the open path lacks of the first n blocks, evicting others if it must, until there is
 * none left to evict. The ids are those that it was opened with. The new nodes are not filled:
 * write the columns and then set `filled` of a node, and `drafted` if the draft's are there. A node
 * may be filled only if its parent is. Returns n_path. */
int32_t sb_prefix_extend(struct sb_prefix_tree *tree, const int32_t *ids, int32_t n,
                         int32_t spanned);
/* Closes the path. Nodes that were not filled, and that no pin holds, are gone. */
void sb_prefix_close(struct sb_prefix_tree *tree);
/* Closes the path, which has a node or more, and goes on holding it. Returns its last node, which
 * names it. */
int32_t sb_prefix_keep_open(struct sb_prefix_tree *tree);
/* Lets go of a path that was kept open, given its last node. */
void sb_prefix_let_go(struct sb_prefix_tree *tree, int32_t last);

#endif
