/*
 * Residents: the sequences that hold a slot, in the order in which they last ran.
 *
 *   everyone   oldest -> ... -> newest        a row that is admitted or has run goes to the end
 *   alike      the same for each end column   for policies that group rows by column
 *
 * Each of these orders is three lists: all of its residents, those that are ready for a round, and
 * those whose prompt is still being filled in. The list `all` keeps a filling row's place: the row
 * becomes ready long after it was admitted, and its place among the ready rows is then before those
 * that have run since.
 *
 *   all        a  b* c  d* e* f  g            *: filling
 *   ready      a  c  f  g                     d becomes ready: walk back along `all` to c, the
 *                                             first ready row, and insert d after it
 *
 * Report newly filled rows oldest first: each walk then stops at the row reported before. A round
 * fills the oldest filling rows, so its walks together pass no more rows than it has prompt chunks.
 *
 * Columns are found with a tree of maxima over how many ready rows each column has; a number above
 * the batch counts as the batch. To find the lowest column from c on that has at least n, climb
 * from c and descend into the first subtree that has such a column:
 *
 *               3                     from column 1, at least 2: column 1 has too few, and so has
 *          /         \                the subtree 0..1; its sibling 2..3 has enough, and in it
 *        1             3              column 3
 *      /   \         /   \
 *     1     0       1     3
 *     0     1       2     3   columns
 *
 * Cost: an event is O(1) and at most O(log columns) for what it changes in the tree; a question is
 * O(log columns). No list is ever walked as a whole, but for the walks above.
 * Invariant: each list is in the order in which its rows last ran. A row is in `all`, and in either
 * `ready` or `filling`. Its place in `alike` is of the column in which it ended when it was last
 * added or ran.
 * Rejected: counting the window's columns every round, which costs most where groups matter most;
 * trees ordered by age, since all but newly filled rows come and go at the ends of their lists.
 */
#ifndef SB_RESIDENTS_H
#define SB_RESIDENTS_H

#include <stddef.h>

#include "engine/seq.h"

enum sb_list { SB_ALL, SB_READY, SB_FILLING, SB_N_LISTS };

struct sb_links {
    int32_t prev, next; /* slots; -1: none */
};

/* Residents by age, the three lists for each key. `everyone` has one key, 0; the keys of `alike`
 * are columns. */
struct sb_ages {
    struct sb_links (*at)[2]; /* [n_slots] [0]: in `all`; [1]: in `ready` or `filling` */
    struct sb_ends {
        int32_t first[SB_N_LISTS], last[SB_N_LISTS]; /* slots, -1: empty */
        int32_t n_ready;
    } * ends; /* [keys] */
};

struct sb_residents {
    struct sb_mem mem;
    struct sb_seq **seq; /* [n_slots] by slot */
    int32_t n, batch;

    struct sb_ages everyone, alike;
    int32_t *column; /* [n_slots] by slot: the key in `alike` */
    uint8_t *ready;  /* [n_slots] by slot: 1 in `ready`, 0 in `filling` */

    int32_t n_columns; /* columns are below this; 0: rows are not kept by column */
    /* The tree. most[1] is the root, node i has the children 2 i and 2 i + 1, and column c is the
     * leaf n_leaves + c. A leaf holds the column's ready rows, the batch at most; a node the larger
     * of its children. */
    int32_t n_leaves; /* the power of two above n_columns */
    int32_t *most;    /* [2 * n_leaves] */
};

size_t sb_residents_bytes(int32_t n_slots, int32_t n_columns);
/* The memory is the caller's and zeroed; on failure sb_residents_free cleans up. n_columns: 0, or
 * rows are kept by column too. E_NOMEM. */
int32_t sb_residents_create(struct sb_residents *r, const struct sb_mem *mem, int32_t n_slots,
                            int32_t n_columns, int32_t batch);
void sb_residents_free(struct sb_residents *r);

/* A sequence has got a slot: it is the newest. */
void sb_residents_add(struct sb_residents *r, struct sb_seq *seq);
/* It has run: it is the newest now, in the column in which it ends now. */
void sb_residents_ran(struct sb_residents *r, struct sb_seq *seq);
/* It may have been realigned: if it ends in another column now, it is the newest there. */
void sb_residents_moved(struct sb_residents *r, struct sb_seq *seq);
/* Its prompt has been filled in. Of several such rows, report the oldest first. */
void sb_residents_filled(struct sb_residents *r, struct sb_seq *seq);
/* It is about to lose its slot. */
void sb_residents_remove(struct sb_residents *r, struct sb_seq *seq);

/* The lowest column from `from` on (n_columns at most) that has at least n ready rows (1 to the
 * batch); -1: there is none. */
int32_t sb_residents_lowest(const struct sb_residents *r, int32_t from, int32_t n);

static inline int32_t sb_residents_n_ready(const struct sb_residents *r)
{
    return r->everyone.ends[0].n_ready;
}

/* A walk: for (at = sb_oldest(r, LIST); at >= 0; at = sb_next(r, LIST, at)) ... r->seq[at] ...
 * `at` is a slot. Links are kept by slot because a walk that had to read every sequence to find the
 * next one would wait for memory at each. */
static inline int32_t sb_oldest(const struct sb_residents *r, enum sb_list list)
{
    return r->everyone.ends[0].first[list];
}

static inline int32_t sb_next(const struct sb_residents *r, enum sb_list list, int32_t at)
{
    return r->everyone.at[at][list != SB_ALL].next;
}

/* The same walk over the ready rows of one column. */
static inline int32_t sb_oldest_alike(const struct sb_residents *r, int32_t column)
{
    return r->alike.ends[column].first[SB_READY];
}

static inline int32_t sb_next_alike(const struct sb_residents *r, int32_t at)
{
    return r->alike.at[at][1].next;
}

/* The column behind a row's last token, once that token is in the cache. Rows that agree in it need
 * no realignment to be in one round. */
static inline int32_t sb_end_column(const struct sb_seq *seq)
{
    return seq->start + seq->n_tokens;
}

#endif
