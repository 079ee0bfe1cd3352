/*
 * A small thread pool for data-parallel loops. A pool of requests has one, which its execs share
 * (backend/cpu_device.h), and only one thread at a time may call it.
 *
 * The threads only divide work: which thread runs which items, and how many threads there are, must
 * not show in a result. Workers run in the library's floating-point environment (port.h).
 */
#ifndef SB_THREADS_H
#define SB_THREADS_H

#include <stddef.h>
#include <stdint.h>

#include "alloc.h"

struct sb_threads;

/* Works on the items [first, last). Several threads call it at once, for disjoint ranges. */
typedef void (*sb_range_fn)(void *ctx, int64_t first, int64_t last);

/* Starts n_threads - 1 workers, because n_threads >= 1 counts the caller. E_NOMEM when memory or
 * threads run out; nothing is left behind then. */
int32_t sb_threads_create(struct sb_threads **out, const struct sb_mem *mem, int32_t n_threads);
/* Stops the workers and frees everything. A forked child does not have the workers: there this only
 * frees the memory, and no other function may be called. */
void sb_threads_free(struct sb_threads *threads);
size_t sb_threads_bytes(int32_t n_threads); /* what create takes, without the threads' stacks */

/* Calls fn for all of [0, n_items), in ranges of `grain` >= 1 items (the last may be shorter), and
 * returns when every range is done. If there is only one range, the caller runs it and wakes
 * nobody. fn must not call this function. */
void sb_threads_for(struct sb_threads *threads, int64_t n_items, int64_t grain, sb_range_fn fn,
                    void *ctx);

#endif
