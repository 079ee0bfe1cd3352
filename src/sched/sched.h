/*
 * Scheduling: which sequences a round decodes, and whether they are realigned first.
 *
 * A policy decides both. It sees the residents (residents.h) and their lengths, takes some of them
 * as the rows of a round, and may ask for realignments (realignment.h). Everything else of a round
 * is sched.c's. So a policy never sees a token, and cannot change one.
 *
 * policies.h has the list of policies, and what one is.
 */
#ifndef SB_SCHED_H
#define SB_SCHED_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/draft.h"
#include "engine/round.h"
#include "engine/slots.h"
#include "sched/adapt.h"
#include "sched/realignment.h"
#include "sched/residents.h"
#include "stats.h"

struct sb_policy;

struct sb_sched_limits {
    int32_t batch;         /* B: decode rows of a round at most */
    int32_t n_slots;       /* residents at most: W for the policies that have a window */
    int32_t draft_len;     /* K */
    int32_t prefill_chunk; /* prompt tokens of a pass at most */
    int32_t replace;       /* eqspec: a newcomer may take a finished row's slot at once */
    int32_t grouped;       /* residents are kept by end column too: the policy's `grouped` */
    int32_t adaptive;      /* K is a limit, and adapt.h chooses */
    int32_t grows;         /* slots grow with their sequences (admission.c) */
};

struct sb_sched {
    const struct sb_policy *policy;
    struct sb_sched_limits limits;
    struct sb_mem mem;
    struct sb_runner *target; /* borrowed, as the next two */
    struct sb_draft *draft;
    struct sb_round *round;
    uint64_t *stats; /* [SB_N_STATS], the pool's */

    atomic_int interrupted; /* 1: ends a round, which takes it back to 0. Any thread may set it. */
    struct sb_adapt adapt;
    struct sb_residents residents;
    struct sb_slots slots;         /* who has which columns */
    int32_t *free_numbers, n_free; /* a stack of the numbers of slots that nobody has */
    int32_t common;                /* the class of all residents' slots, if the policy realigns */
    uint64_t n_rounds;             /* so far */
    uint64_t batch_round; /* n_rounds when a sequence was last admitted as the only resident */
    struct sb_realignment realignment;
    int32_t lap_from, lap_start; /* exspec's own state: policy_exspec.c tells what they mean */
    /* Of the round's rows, for the counters: those that met in one column without realignment, if
     * there are two or more; and all rows, if realignment has brought them to one column. */
    int32_t n_grouped, n_mixed;
};

/* Bytes that sb_sched_create takes; `target`: the limits of the target's runner. */
size_t sb_sched_bytes(const struct sb_sched_limits *limits, const struct sb_runner_limits *target);
/* The memory is the caller's, and zeroed but for policy, limits, stats and the borrowed members,
 * which the caller has set. On failure sb_sched_free cleans up. E_NOMEM. */
int32_t sb_sched_create(struct sb_sched *sched, const struct sb_mem *mem);
void sb_sched_free(struct sb_sched *sched);

/* For the pool, in admission.c. Whether this sequence may have a slot now, and giving it one, for
 * which others may be moved to larger slots. E_DEVICE: it has none. */
int sb_sched_can_admit(const struct sb_sched *sched, const struct sb_seq *seq);
int32_t sb_sched_admit(struct sb_sched *sched, struct sb_seq *seq);
/* A resident gives its slot back. */
void sb_sched_retire(struct sb_sched *sched, struct sb_seq *seq);
/* Where slots grow: call these after a round for each of its rows. The first gives the resident
 * that is to be preempted, so that this row can have a larger slot where it needs one; NULL when
 * nobody is in the way (any more). The second takes a resident's slot and forgets what was cached:
 * it waits from then on as it did before it was admitted. The third moves the row to a larger slot
 * if it needs one and still has a slot; E_DEVICE. */
struct sb_seq *sb_sched_in_the_way(const struct sb_sched *sched, const struct sb_seq *seq);
void sb_sched_preempt(struct sb_sched *sched, struct sb_seq *seq);
int32_t sb_sched_grow(struct sb_sched *sched, struct sb_seq *seq);
/* Enters what a resident has in the caches now into the counter, in place of what it had. */
void sb_sched_count_live(struct sb_sched *sched, struct sb_seq *seq);
/* Something else than a round has put columns into a resident's slot: counts them, and enters the
 * resident as ready if it is so now. */
void sb_sched_cached(struct sb_sched *sched, struct sb_seq *seq);
/* Runs one round, in the phases that sched.c lists. Finished rows stay resident until retired.
 * E_CANCELLED (the draft callback) and E_INTERRUPTED: the round may be repeated. E_DEVICE. */
int32_t sb_sched_round(struct sb_sched *sched);

/* For policies. An `admits` that always says yes. */
int sb_admit_always(const struct sb_sched *sched);
/* Takes a resident that is ready into the round. */
void sb_take(struct sb_sched *sched, struct sb_seq *seq);
/* Takes the oldest ready residents, the batch at most. */
void sb_take_ready(struct sb_sched *sched);
/* Takes newcomers, while the batch has places: sequences whose prompt is completed by the round's
 * own target pass, and that shall have an answer. Their first query rides in that pass, without
 * proposals, and so needs no pass of its own. Call it last: newcomers are the last of a round's
 * rows. */
void sb_take_newcomers(struct sb_sched *sched);
#endif
