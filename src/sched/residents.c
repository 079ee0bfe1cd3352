/* Lists of slots and a tournament over them; residents.h draws both. Links are kept by slot, apart from the
 * sequences, so that a round over thousands of rows works on a table that stays in the processor's cache. */
#include "sched/residents.h"

#include "status.h"

/* ------------------------------------------------------------------ memory */

size_t sb_residents_bytes(int32_t n_slots, int32_t n_lengths)
{
    const size_t keys = 1 + (size_t)n_lengths, families = n_lengths > 0 ? 2 : 1;

    return (size_t)n_slots * (sizeof(struct sb_seq *) + sizeof(uint64_t) + sizeof(int32_t) + sizeof(uint8_t) +
                              families * 2 * sizeof(struct sb_links)) +
           keys * sizeof(struct sb_ends) +
           (size_t)n_lengths * (sizeof(struct sb_group) + 2 * sizeof(int32_t));
}

static int32_t create_ages(struct sb_ages *a, const struct sb_mem *mem, int32_t n_slots, int32_t n_keys)
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
                            int32_t n_lengths, int32_t batch)
{
    int32_t rc = SPECBATCH_OK;

    r->mem = *mem;
    r->batch = batch;
    r->n_lengths = n_lengths;
    r->first_changed = -1;
    SB_NEW(r->seq, sb_alloc(mem, (size_t)n_slots, sizeof(struct sb_seq *)), "slots");
    SB_NEW(r->age, sb_alloc(mem, (size_t)n_slots, sizeof *r->age), "slots");
    SB_NEW(r->length, sb_alloc(mem, (size_t)n_slots, sizeof *r->length), "slots");
    SB_NEW(r->ready, sb_alloc(mem, (size_t)n_slots, sizeof *r->ready), "slots");
    SB_TRY(create_ages(&r->everyone, mem, n_slots, 1));
    if (n_lengths > 0) {
        SB_TRY(create_ages(&r->alike, mem, n_slots, n_lengths));
        SB_NEW(r->group, sb_alloc(mem, (size_t)n_lengths, sizeof *r->group), "slots");
        SB_NEW(r->winner, sb_alloc(mem, (size_t)n_lengths, sizeof *r->winner), "slots");
        SB_NEW(r->changed, sb_alloc(mem, (size_t)n_lengths, sizeof *r->changed), "slots");
    }
done:
    return rc;
}

void sb_residents_free(struct sb_residents *r)
{
    sb_free(&r->mem, r->changed);
    sb_free(&r->mem, r->winner);
    sb_free(&r->mem, r->group);
    sb_free(&r->mem, r->alike.ends);
    sb_free(&r->mem, r->alike.at);
    sb_free(&r->mem, r->everyone.ends);
    sb_free(&r->mem, r->everyone.at);
    sb_free(&r->mem, r->ready);
    sb_free(&r->mem, r->length);
    sb_free(&r->mem, r->age);
    sb_free(&r->mem, r->seq);
}

/* -------------------------------------------------------------------- lists */

static void link_after(struct sb_ages *a, struct sb_ends *ends, int list, int32_t prev, int32_t slot)
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

/* From `filling` to its place in `ready`: after the next older row that is ready. */
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

/* ------------------------------------------------------------------- groups */

static void mark_changed(struct sb_residents *r, int32_t length)
{
    if (r->changed[length] == 0) {
        r->changed[length] = r->first_changed;
        r->first_changed = length;
    }
}

static int32_t better(const struct sb_residents *r, int32_t a, int32_t b)
{
    const struct sb_group *x = &r->group[a], *y = &r->group[b];

    return x->size != y->size ? (x->size > y->size ? a : b) : x->oldest < y->oldest ? a : b;
}

/* Who came through node i: a length itself below the tree. */
static int32_t through(const struct sb_residents *r, int32_t i)
{
    return i < r->n_lengths ? r->winner[i] : i - r->n_lengths;
}

/* Enters the group as it is now, and plays its matches up to one that goes to another, as it did before. */
static void play(struct sb_residents *r, int32_t length)
{
    const struct sb_ends *ends = &r->alike.ends[length];
    const int32_t first = ends->first[SB_READY];

    r->group[length].size = ends->n_ready < r->batch ? ends->n_ready : r->batch;
    r->group[length].oldest = first < 0 ? 0 : r->age[first];
    for (int32_t i = (r->n_lengths + length) / 2; i > 0; i /= 2) {
        const int32_t before = r->winner[i];
        r->winner[i] = better(r, through(r, 2 * i), through(r, 2 * i + 1));
        if (before != length && r->winner[i] == before)
            break;
    }
}

int32_t sb_residents_group(struct sb_residents *r, int32_t *size)
{
    while (r->first_changed > 0) {
        const int32_t length = r->first_changed;
        r->first_changed = r->changed[length];
        r->changed[length] = 0;
        play(r, length);
    }
    *size = r->group[r->winner[1]].size;
    return *size > 0 ? r->winner[1] : 0;
}

/* ------------------------------------------------------------------- events */

/* At the end of its lists, ready or filling as it is, under its length of now. */
static void append(struct sb_residents *r, struct sb_seq *seq)
{
    const int32_t slot = seq->slot;

    r->age[slot] = r->now++;
    r->ready[slot] = (uint8_t)sb_seq_is_ready(seq);
    ages_append(&r->everyone, 0, slot, r->ready[slot]);
    if (r->n_lengths > 0) {
        r->length[slot] = seq->n_tokens;
        ages_append(&r->alike, seq->n_tokens, slot, r->ready[slot]);
        mark_changed(r, seq->n_tokens);
    }
}

static void take_out(struct sb_residents *r, int32_t slot)
{
    ages_remove(&r->everyone, 0, slot, r->ready[slot]);
    if (r->n_lengths > 0) {
        ages_remove(&r->alike, r->length[slot], slot, r->ready[slot]);
        mark_changed(r, r->length[slot]);
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

void sb_residents_filled(struct sb_residents *r, struct sb_seq *seq)
{
    const int32_t slot = seq->slot;

    ages_filled(r, &r->everyone, 0, slot);
    if (r->n_lengths > 0) {
        ages_filled(r, &r->alike, r->length[slot], slot);
        mark_changed(r, r->length[slot]);
    }
    r->ready[slot] = 1;
}

void sb_residents_remove(struct sb_residents *r, struct sb_seq *seq)
{
    take_out(r, seq->slot);
    r->n--;
}
