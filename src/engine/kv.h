/*
 * The key/value cache of one model in one pool.
 *
 *   planes: layer 0 K | layer 0 V | layer 1 K | layer 1 V | ...          one allocation
 *   plane:  [slot, kv_head, column, head_dim]                            rank 4, contiguous
 *
 * Slots need not have the same number of columns. Columns of all slots are counted through, and a
 * slot is the `cap` columns from column `at` of every plane on, one head after the other.
 *
 *   columns of a slot that a sequence holds:
 *
 *     0 .. start-1    start .. start+len-1        start+len .. cap-1
 *     padding         positions 0 .. len-1        free, or left over from rejected proposals
 *
 * A sequence holds one slot and knows its start and length (seq.h). The cache itself does not
 * record which columns are padding or rejected: a pass tells the kernels each sequence's start and
 * each token's position, and from those no other column can be reached. So a sequence is rolled
 * back by lowering its length, and nothing is ever cleared.
 *
 * Rejected: tensors that grow with each sequence, as in the paper's code. Every round would
 * allocate and copy every layer, and memory would have no bound.
 */
#ifndef SB_KV_H
#define SB_KV_H

#include <stdint.h>

#include "alloc.h"
#include "backend/backend.h"
#include "model/model.h"

struct sb_kv {
    int64_t n_columns; /* of all slots */
    int32_t kv_heads, head_dim, layers;
    int64_t plane_stride; /* in elements */
    size_t element_bytes;
    size_t bytes; /* of all planes */
    char *planes; /* dev; NULL until created */
};

/* Fills in the geometry and the number of bytes, and allocates nothing. E_INVALID when the cache
 * would be larger than the address space. */
int32_t sb_kv_plan(struct sb_kv *kv, const struct specbatch_model *model, int64_t n_columns);
/* Allocates the memory of a planned cache. E_NOMEM. */
int32_t sb_kv_create(struct sb_kv *kv, const struct specbatch_model *model,
                     const struct sb_mem *mem);
/* Frees that memory. A cache that was only planned, or is all zero, is fine. */
void sb_kv_free(struct sb_kv *kv, const struct specbatch_model *model, const struct sb_mem *mem);

/* A layer's plane of keys or of values; dev. */
void *sb_kv_k(const struct sb_kv *kv, int32_t layer);
void *sb_kv_v(const struct sb_kv *kv, int32_t layer);
/* Index of the first element in every plane of the slot that begins at column `at`. */
int64_t sb_kv_base(const struct sb_kv *kv, int64_t at);
/* Bytes of one column, summed over all planes and heads. */
size_t sb_kv_column_bytes(const struct sb_kv *kv);

#endif
