/*
 * Realignment: sequences' cached columns are shifted inside their slots, in the target's cache and
 * in the draft's, so that rows come to end in one column. And moves: a sequence's columns go to
 * another slot, where they keep their distance from its beginning.
 *
 *     column   0    from            cap            0 to                  cap
 *              |....aaaaaaaaaaa      |     --->    |.aaaaaaaaaaa          |
 *
 * Realignments and moves are asked for one by one, and the scheduler runs all that were asked for
 * at once: one operation of the backend for each cache. Both caches keep the same start column for
 * a sequence, but may hold different numbers of its columns, since the draft may lag. Positions are
 * counted from the start column, so a shifted sequence is the same sequence.
 */
#ifndef SB_REALIGNMENT_H
#define SB_REALIGNMENT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/moves.h"
#include "engine/seq.h"
#include "engine/slots.h"

struct sb_realignment {
    struct sb_mem mem;
    struct sb_runner *target; /* borrowed */
    struct sb_runner *draft;  /* borrowed; NULL when the draft has no cache */
    /* What was asked for and has not been run: the sequence, and where it shall be. */
    struct sb_seq **seq; /* [n_slots] */
    struct sb_place *to; /* [n_slots] its slot, and the column of its position 0 there */
    int32_t n;
    struct sb_moves moves;
};

/* Bytes that sb_realignment_create takes. */
size_t sb_realignment_bytes(int32_t n_slots);
/* The memory is the caller's and zeroed; on failure sb_realignment_free cleans up. E_NOMEM. */
int32_t sb_realignment_create(struct sb_realignment *r, const struct sb_mem *mem, int32_t n_slots,
                              struct sb_runner *target, struct sb_runner *draft);
void sb_realignment_free(struct sb_realignment *r);

/* Asks for the sequence's first content column to be `start`. Returns 1 when columns will be
 * shifted for that; 0 when it starts there already, or has nothing cached yet: then its start is
 * set at once. A sequence is asked for once between two runs. */
int sb_realignment_ask(struct sb_realignment *r, struct sb_seq *seq, int32_t start);
/* Asks for the sequence to be in the slot of `cap` columns from column `at` on, which was taken for
 * it. */
void sb_realignment_ask_move(struct sb_realignment *r, struct sb_seq *seq, int64_t at, int32_t cap);
/* Does what was asked for, which are only realignments, waits until that is done, and counts it in
 * the pool's `stats`. E_DEVICE. */
int32_t sb_realignment_run(struct sb_realignment *r, uint64_t *stats);
/* The same where only moves were asked for. The slots that the sequences leave are given back to
 * `slots`. E_DEVICE. */
int32_t sb_realignment_run_moves(struct sb_realignment *r, struct sb_slots *slots, uint64_t *stats);

#endif
