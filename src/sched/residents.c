/* Lists of slots and a tree over their columns; residents.h draws both. Links are in tables by
 * slot, apart from the sequences, so that a round over thousands of rows works on memory that stays
 * in the processor's cache. */
#include "sched/residents.h"

#include "status.h"

/* ------------------------------------------------------------------ memory */

/* The power of two above n_columns. */
static int32_t leaves_for(int32_t n_columns)
{
    int32_t n = 1;

    while (n <= n_columns)
        n *= 2;
    return n;
}

size_t sb_residents_bytes(int32_t n_slots, int32_t n_columns)
{
    const size_t keys = 1 + (size_t)n_columns, families = n_columns > 0 ? 2 : 1;
    const size_t tree = n_columns > 0 ? 2 * (size_t)leaves_for(n_columns) : 0;

    return (size_t)n_slots * (sizeof(struct sb_seq *) + sizeof(int32_t) + sizeof(uint8_t) +
                              families * 2 * sizeof(struct sb_links)) +
           keys * sizeof(struct sb_ends) + tree * sizeof(int32_t);
}

static int32_t create_ages(struct sb_ages *a, const struct sb_mem *mem, int32_t n_slots,
                           int32_t n_keys)
{
    int32_t rc = SPECBATCH_OK;

    SB_NEW(a->at, sb_alloc(mem, (size_t)n_slots, sizeof *a->at), "slots");
    SB_NEW(a->ends, sb_alloc(mem, (size_t)n_keys, sizeof *a->ends), "slots");
    for (int32_t key = 0; key < n_keys; key++)
        for (int list = 0; list < SB_N_LISTS; list++)
            a->ends[key].first[list] = a->ends[key].last[list] = -1;
done:
    return rc;
}

int32_t sb_residents_create(struct sb_residents *r, const struct sb_mem *mem, int32_t n_slots,
                            int32_t n_columns, int32_t batch)
{
    int32_t rc = SPECBATCH_OK;

    r->mem = *mem;
    r->batch = batch;
    r->n_columns = n_columns;
    SB_NEW(r->seq, sb_alloc(mem, (size_t)n_slots, sizeof(struct sb_seq *)), "slots");
    SB_NEW(r->column, sb_alloc(mem, (size_t)n_slots, sizeof *r->column), "slots");
    SB_NEW(r->ready, sb_alloc(mem, (size_t)n_slots, sizeof *r->ready), "slots");
    SB_TRY(create_ages(&r->everyone, mem, n_slots, 1));
    if (n_columns > 0) {
        SB_TRY(create_ages(&r->alike, mem, n_slots, n_columns));
        r->n_leaves = leaves_for(n_columns);
        SB_NEW(r->most, sb_alloc(mem, 2 * (size_t)r->n_leaves, sizeof *r->most), "slots");
    }
done:
    return rc;
}

void sb_residents_free(struct sb_residents *r)
{
    sb_free(&r->mem, r->most);
    sb_free(&r->mem, r->alike.ends);
    sb_free(&r->mem, r->alike.at);
    sb_free(&r->mem, r->everyone.ends);
    sb_free(&r->mem, r->everyone.at);
    sb_free(&r->mem, r->ready);
    sb_free(&r->mem, r->column);
    sb_free(&r->mem, r->seq);
}

/* -------------------------------------------------------------------- lists */

/* Inserts the slot behind `prev`; -1: at the beginning. */
static void link_after(struct sb_ages *a, struct sb_ends *ends, int list, int32_t prev,
                       int32_t slot)
{
    const int which = list != SB_ALL;
    const int32_t next = prev < 0 ? ends->first[list] : a->at[prev][which].next;

    a->at[slot][which] = (struct sb_links){prev, next};
    *(prev < 0 ? &ends->first[list] : &a->at[prev][which].next) = slot;
    *(next < 0 ? &ends->last[list] : &a->at[next][which].prev) = slot;
}

static void unlink_from(struct sb_ages *a, struct sb_ends *ends, int list, int32_t slot)
{
    const int which = list != SB_ALL;
    const struct sb_links at = a->at[slot][which];

    *(at.prev < 0 ? &ends->first[list] : &a->at[at.prev][which].next) = at.next;
    *(at.next < 0 ? &ends->last[list] : &a->at[at.next][which].prev) = at.prev;
}

static void ages_append(struct sb_ages *a, int32_t key, int32_t slot, int ready)
{
    struct sb_ends *ends = &a->ends[key];
    const int list = ready ? SB_READY : SB_FILLING;

    link_after(a, ends, SB_ALL, ends->last[SB_ALL], slot);
    link_after(a, ends, list, ends->last[list], slot);
    ends->n_ready += ready;
}

static void ages_remove(struct sb_ages *a, int32_t key, int32_t slot, int ready)
{
    struct sb_ends *ends = &a->ends[key];

    unlink_from(a, ends, SB_ALL, slot);
    unlink_from(a, ends, ready ? SB_READY : SB_FILLING, slot);
    ends->n_ready -= ready;
}

/* Moves the slot from `filling` to its place in `ready`, behind the next older row that is ready.
 */
static void ages_filled(const struct sb_residents *r, struct sb_ages *a, int32_t key, int32_t slot)
{
    struct sb_ends *ends = &a->ends[key];
    int32_t prev = a->at[slot][SB_ALL].prev;

    while (prev >= 0 && !r->ready[prev])
        prev = a->at[prev][SB_ALL].prev;
    unlink_from(a, ends, SB_FILLING, slot);
    link_after(a, ends, SB_READY, prev, slot);
    ends->n_ready++;
}

/* ------------------------------------------------------------------ columns */

/* Enters how many ready rows the column has now, and climbs while that changes a maximum. */
static void count_column(struct sb_residents *r, int32_t column)
{
    const int32_t n_ready = r->alike.ends[column].n_ready;
    int32_t most = n_ready < r->batch ? n_ready : r->batch;

    for (int32_t i = r->n_leaves + column; i > 0 && r->most[i] != most; i /= 2) {
        r->most[i] = most;
        if (r->most[i ^ 1] > most) /* the sibling; the root's, most[0], is 0 */
            most = r->most[i ^ 1];
    }
}

int32_t sb_residents_lowest(const struct sb_residents *r, int32_t from, int32_t n)
{
    int32_t i = r->n_leaves + from;

    while (r->most[i] < n) {
        while (i % 2)
            i /= 2; /* a right child: what lies to its right lies to its parent's right */
        if (i == 0)
            return -1;
        i++;
    }
    while (i < r->n_leaves)
        i = 2 * i + (r->most[2 * i] < n);
    return i - r->n_leaves;
}

/* ------------------------------------------------------------------- events */

/* Appends it to its lists, `ready` or `filling` as it is now, under the column in which it ends
 * now. */
static void append(struct sb_residents *r, struct sb_seq *seq)
{
    const int32_t slot = seq->slot;

    r->ready[slot] = (uint8_t)sb_seq_is_ready(seq);
    ages_append(&r->everyone, 0, slot, r->ready[slot]);
    if (r->n_columns > 0) {
        r->column[slot] = sb_end_column(seq);
        ages_append(&r->alike, r->column[slot], slot, r->ready[slot]);
        count_column(r, r->column[slot]);
    }
}

static void take_out(struct sb_residents *r, int32_t slot)
{
    ages_remove(&r->everyone, 0, slot, r->ready[slot]);
    if (r->n_columns > 0) {
        ages_remove(&r->alike, r->column[slot], slot, r->ready[slot]);
        count_column(r, r->column[slot]);
    }
}

void sb_residents_add(struct sb_residents *r, struct sb_seq *seq)
{
    r->seq[seq->slot] = seq;
    r->n++;
    append(r, seq);
}

void sb_residents_ran(struct sb_residents *r, struct sb_seq *seq)
{
    take_out(r, seq->slot);
    append(r, seq);
}

void sb_residents_moved(struct sb_residents *r, struct sb_seq *seq)
{
    if (r->n_columns > 0 && r->column[seq->slot] != sb_end_column(seq))
        sb_residents_ran(r, seq);
}

void sb_residents_filled(struct sb_residents *r, struct sb_seq *seq)
{
    const int32_t slot = seq->slot;

    ages_filled(r, &r->everyone, 0, slot);
    if (r->n_columns > 0) {
        ages_filled(r, &r->alike, r->column[slot], slot);
        count_column(r, r->column[slot]);
    }
    r->ready[slot] = 1;
}

void sb_residents_remove(struct sb_residents *r, struct sb_seq *seq)
{
    take_out(r, seq->slot);
    r->n--;
}
