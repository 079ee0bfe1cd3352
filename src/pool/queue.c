/* Heaps of requests: each is before its two children; see queue.h. */
#include "pool/queue.h"

#include "fault.h"
#include "status.h"

uint64_t sb_queue_turn(uint64_t round, int32_t priority, int32_t later)
{
    return (SB_FAULT(PRIORITY_ALONE) ? 0 : round) + (uint64_t)later +
           (uint64_t)SB_ROUNDS_PER_POINT * (uint64_t)(SB_PRIORITY_MAX - priority);
}

static int before(const struct sb_queue *queue, const struct sb_seq *a, const struct sb_seq *b)
{
    return sb_seq_precedes(a, b, queue->order);
}

static void place(struct sb_queue *queue, size_t at, struct sb_seq *seq)
{
    queue->heap[at] = seq;
    seq->queued[queue->order].at = at;
}

static void sift_up(struct sb_queue *queue, size_t at, struct sb_seq *seq)
{
    for (; at > 0 && before(queue, seq, queue->heap[(at - 1) / 2]); at = (at - 1) / 2)
        place(queue, at, queue->heap[(at - 1) / 2]);
    place(queue, at, seq);
}

static void sift_down(struct sb_queue *queue, size_t at, struct sb_seq *seq)
{
    for (size_t child; (child = 2 * at + 1) < queue->n; at = child) {
        if (child + 1 < queue->n && before(queue, queue->heap[child + 1], queue->heap[child]))
            child++;
        if (!before(queue, queue->heap[child], seq))
            break;
        place(queue, at, queue->heap[child]);
    }
    place(queue, at, seq);
}

int32_t sb_queue_reserve(struct sb_queue *queue, size_t n)
{
    struct sb_seq **heap, **old = queue->heap;
    int32_t rc = SPECBATCH_OK;

    if (n <= queue->capacity)
        return rc;
    SB_NEW(heap, sb_grow_apart(&queue->mem, old, &queue->capacity, n, sizeof(struct sb_seq *)),
           "the request queue");
    queue->heap = heap;
    sb_free(&queue->mem, old); /* last: a hook that does not return must leave a sound queue */
done:
    return rc;
}

void sb_queue_add(struct sb_queue *queue, struct sb_seq *seq)
{
    sift_up(queue, queue->n++, seq);
}

void sb_queue_remove(struct sb_queue *queue, struct sb_seq *seq)
{
    struct sb_seq *last = queue->heap[--queue->n];

    if (last == seq)
        return;
    sift_down(queue, seq->queued[queue->order].at, last);
    sift_up(queue, last->queued[queue->order].at, last);
}

struct sb_seq *sb_queue_first(const struct sb_queue *queue)
{
    return queue->n ? queue->heap[0] : NULL;
}

void sb_queue_free(struct sb_queue *queue)
{
    sb_free(&queue->mem, queue->heap);
    queue->heap = NULL;
    queue->n = queue->capacity = 0;
}
