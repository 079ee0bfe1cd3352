/*
 * The requests that wait, as a binary heap: by arrival, or by prompt length and then arrival.
 * Adding one, taking the first and removing any one are O(log n); a request that is cancelled knows
 * its own place in the heap, seq->queue_at.
 */
#ifndef SB_QUEUE_H
#define SB_QUEUE_H

#include <stddef.h>

#include "engine/seq.h"

struct sb_queue {
    struct sb_mem mem;
    struct sb_seq **heap;
    size_t n, capacity;
    int by_length; /* the order is by prompt length first */
};

/* Makes room for n sequences in all, so that adding them cannot fail. E_NOMEM. */
int32_t sb_queue_reserve(struct sb_queue *queue, size_t n);
void sb_queue_add(struct sb_queue *queue, struct sb_seq *seq);
struct sb_seq *sb_queue_first(const struct sb_queue *queue); /* NULL when empty */
void sb_queue_remove(struct sb_queue *queue, struct sb_seq *seq);
void sb_queue_free(struct sb_queue *queue); /* the heap, not the sequences */

#endif
