/*
 * Residents: the sequences that hold a slot, by the order in which they last ran.
 *
 *   everyone   oldest -> ... -> newest              a row that is admitted or has run goes to the end
 *   alike      the same, of one length only         for policies that group by length
 *
 * Each is three lists: all of its residents, those that are ready for a round, and those whose prompt is
 * still being filled in. `all` is there to keep a filling row's place: it becomes ready long after it was
 * admitted, and then belongs before rows that have run since.
 *
 *   all        a  b* c  d* e* f  g              *: filling
 *   ready      a  c  f  g                       d becomes ready: back along `all` to c, the first that is
 *
 * A round fills the oldest of the filling rows. So when they are told oldest first, no row is passed by
 * more than one such walk, and a round's walks are no longer than the list of what it filled.
 *
 * The largest group of ready rows of one length is the winner of a tournament over lengths:
 *
 *          winner[1]                            more ready rows (more than a batch count as a batch),
 *         /         \                           then the older oldest
 *     winner[2]   winner[3]
 *      /    \      /    \                       A length whose group has changed plays its log2(lengths)
 *     0      1    2      3   lengths            matches again, or as many as concern it, when the next winner
 *                                               is asked for.
 *
 * Cost: O(1) for an event and O(log lengths) for what it changes; nothing here is ever walked as a whole.
 * Invariant: a list is in the order of `age`, and a row is in `ready` or in `filling`, and in `all`.
 * Rejected: counting the window every round, which costs most where groups matter most; trees by age,
 * when all but freshly filled rows come and go at the ends of their lists.
 */
#ifndef SB_RESIDENTS_H
#define SB_RESIDENTS_H

#include <stddef.h>

#include "engine/seq.h"

enum sb_list { SB_ALL, SB_READY, SB_FILLING, SB_N_LISTS };

struct sb_links {
    int32_t prev, next; /* slots, -1: none */
};

/* Residents by age under keys: `everyone` has one key, `alike` has lengths. */
struct sb_ages {
    struct sb_links (*at)[2]; /* [n_slots]: in `all`; in `ready` or `filling` */
    struct sb_ends {
        int32_t first[SB_N_LISTS], last[SB_N_LISTS]; /* slots, -1: empty */
        int32_t n_ready;
    } *ends; /* [keys] */
};

/* A length's ready rows, as they were when it last played. */
struct sb_group {
    uint64_t oldest; /* age */
    int32_t size;    /* a batch at most */
};

struct sb_residents {
    struct sb_mem mem;
    struct sb_seq **seq; /* [n_slots] by slot */
    int32_t n, batch;

    struct sb_ages everyone, alike;
    uint64_t *age; /* [n_slots] when it came to the end of the list, in events */
    uint64_t now;
    int32_t *length; /* [n_slots] the key in `alike` */
    uint8_t *ready;  /* [n_slots] in `ready`, not in `filling` */

    int32_t n_lengths;      /* lengths are below this; 0: no groups */
    struct sb_group *group; /* [n_lengths] */
    int32_t *winner;        /* [n_lengths] */
    int32_t *changed;       /* [n_lengths] since the last winner: 0: no; the next that is; -1: the last */
    int32_t first_changed;  /* -1: none */
};

size_t sb_residents_bytes(int32_t n_slots, int32_t n_lengths);
/* Caller-owned, zeroed memory; on failure sb_residents_free cleans up. n_lengths: 0, or 2 at least.
 * E_NOMEM. */
int32_t sb_residents_create(struct sb_residents *r, const struct sb_mem *mem, int32_t n_slots,
                            int32_t n_lengths, int32_t batch);
void sb_residents_free(struct sb_residents *r);

/* A sequence has got a slot: it is the newest. */
void sb_residents_add(struct sb_residents *r, struct sb_seq *seq);
/* It has run, and its length may have changed: it is the newest again. */
void sb_residents_ran(struct sb_residents *r, struct sb_seq *seq);
/* Its prompt has been filled in. Of several, tell the oldest first. */
void sb_residents_filled(struct sb_residents *r, struct sb_seq *seq);
/* It is about to lose its slot. */
void sb_residents_remove(struct sb_residents *r, struct sb_seq *seq);

/* The length of the winning group, 0 when nobody is ready; *size: its ready rows, a batch at most. */
int32_t sb_residents_group(struct sb_residents *r, int32_t *size);

static inline int32_t sb_residents_n_ready(const struct sb_residents *r)
{
    return r->everyone.ends[0].n_ready;
}

/* for (at = sb_oldest(r, LIST); at >= 0; at = sb_next(r, LIST, at)) ... r->seq[at] ...
 * By slot: a walk that had to read every sequence to find the next would wait for memory at each. */
static inline int32_t sb_oldest(const struct sb_residents *r, enum sb_list list)
{
    return r->everyone.ends[0].first[list];
}

static inline int32_t sb_next(const struct sb_residents *r, enum sb_list list, int32_t at)
{
    return r->everyone.at[at][list != SB_ALL].next;
}

/* The same for the ready rows of one length. */
static inline int32_t sb_oldest_alike(const struct sb_residents *r, int32_t length)
{
    return r->alike.ends[length].first[SB_READY];
}

static inline int32_t sb_next_alike(const struct sb_residents *r, int32_t at)
{
    return r->alike.at[at][1].next;
}

#endif
