/*
 * Queues of requests, as binary heaps: one of those that wait for a slot, in the order of their
 * turns, and one of those that have a deadline, in the order of these. Adding one, taking the first
 * and removing any one are O(log n); a request knows its own place in each heap, seq->queued.
 *
 * Turns. A request is served by its priority and by how long it has waited: a point of priority is
 * worth SB_ROUNDS_PER_POINT rounds of waiting. As all requests wait at the same speed, who is
 * before whom never changes while they wait. So the turn is a number that is known at submission,
 * and a heap needs no rebuilding:
 *
 *     turn = round of the submission - SB_ROUNDS_PER_POINT * priority
 *
 * No request can come before one that was submitted some number of rounds earlier, which the range
 * of priorities bounds: so none waits for ever. Where short prompts go first, each token of the
 * prompt counts as a round later, for the same reason. The clock is the number of the pool's
 * rounds, so the order does not depend on the speed of the machine.
 *
 * Rejected: priorities that are looked at alone, under which those that are low may never run;
 * priorities that are raised from time to time by a walk over the queue.
 */
#ifndef SB_QUEUE_H
#define SB_QUEUE_H

#include <stddef.h>

#include "engine/seq.h"

enum { SB_PRIORITY_MAX = 1000, SB_ROUNDS_PER_POINT = 16 };

struct sb_queue {
    struct sb_mem mem;
    struct sb_seq **heap;
    size_t n, capacity;
    enum sb_queue_order order;
};

/* The turn of a request of this priority, -SB_PRIORITY_MAX to SB_PRIORITY_MAX, that is submitted
 * when so many rounds have run. later: rounds that it is put back by. */
uint64_t sb_queue_turn(uint64_t round, int32_t priority, int32_t later);

/* Makes room for n sequences in all, so that adding them cannot fail. E_NOMEM. */
int32_t sb_queue_reserve(struct sb_queue *queue, size_t n);
/* The sequence's key has been set. */
void sb_queue_add(struct sb_queue *queue, struct sb_seq *seq);
struct sb_seq *sb_queue_first(const struct sb_queue *queue); /* NULL when empty */
void sb_queue_remove(struct sb_queue *queue, struct sb_seq *seq);
void sb_queue_free(struct sb_queue *queue); /* the heap, not the sequences */

#endif
