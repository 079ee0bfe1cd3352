/*
 * Moves of cached columns, as a list that is filled in and then run: how sequences are shifted in
 * their slots, go to other slots, and are copied to and from the blocks of the prefix cache.
 *
 *   the list, the same bytes on host and device, for n moves:
 *
 *     int64  from_base, to_base                 [n] each
 *     int32  from_cap, to_cap, from, to, len    [n] each
 *
 *   sb_moves_begin(n)   sb_moves_set(i, ...) for each i < n   sb_moves_run
 */
#ifndef SB_MOVES_H
#define SB_MOVES_H

#include <stddef.h>
#include <stdint.h>

#include "engine/runner.h"

/* Where columns are: a slot (kv.h), and the first of them in it. */
struct sb_place {
    int64_t at;
    int32_t cap, column;
};

struct sb_moves {
    struct sb_mem mem;
    struct specbatch_model *model; /* of the target, whose device has the list; borrowed */
    char *host, *dev;              /* the list */
    int32_t n;
};

/* Bytes that sb_moves_create takes; `most`: moves of a list. */
size_t sb_moves_bytes(int32_t most);
/* The memory is the caller's and zeroed; on failure sb_moves_free cleans up. E_NOMEM. */
int32_t sb_moves_create(struct sb_moves *moves, const struct sb_mem *mem,
                        struct specbatch_model *model, int32_t most);
void sb_moves_free(struct sb_moves *moves);

/* Begins a list of n moves, each of which is then to be set. */
void sb_moves_begin(struct sb_moves *moves, int32_t n);
/* Move i: len columns of a cache from one place to another. What moves of one list may overlap is
 * said at struct sb_move in backend.h. */
void sb_moves_set(struct sb_moves *moves, int32_t i, const struct sb_kv *kv, struct sb_place from,
                  struct sb_place to, int32_t len);
/* Runs the list in the runner's cache and waits until that is done. E_DEVICE. */
int32_t sb_moves_run(struct sb_moves *moves, struct sb_runner *runner);

#endif
