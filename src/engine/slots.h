/*
 * Slots: which columns of a pool's caches (kv.h) are whose.
 *
 * The caches are a row of longest slots, each of which may be halved, and its halves again, a few
 * times. A slot is thus of one of a few classes: class 0 is the longest, and each class has half
 * the columns of the one before it. A sequence takes the smallest class that it fits in.
 *
 *   class 0    |               |    free       |       a slot begins at a multiple of its own
 *   class 1    | free  |       |       :       |       length, so its buddy, the other half of the
 *   class 2    |   :   | a |fre|   :   :   :   |       slot that was halved, is found by a bit
 *   units       0   1   2   3   4   5   6   7
 *
 * This is the binary buddy system: to take a slot, the smallest free one that is large enough is
 * halved until it fits; a slot that is given back is joined with its buddy for as long as that is
 * free as a whole. So free columns that could be a slot always are one, and taking and giving cost
 * O(classes). Free slots of a class are in a list, the one given back last coming first. Whether a
 * buddy is free, and of which class, is known by its first unit, as the page allocator of Linux
 * knows it by a block's first page.
 *
 *   K. C. Knowlton: A fast storage allocator. Communications of the ACM 8(10), 1965.
 *   D. E. Knuth: The Art of Computer Programming, volume 1, section 2.5, algorithms R and S.
 *
 * Rejected: slots of any length, whose free space falls into pieces that nobody fits in, and for
 * each of whose lengths a GPU's library would need plans of its own; blocks of a few columns that
 * are found by a table for each sequence (paged attention), which every kernel would have to read,
 * and over which that library has no attention with the bits of the contract (backend.h, spans).
 */
#ifndef SB_SLOTS_H
#define SB_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#include "alloc.h"

enum { SB_SLOT_HALVINGS = 4 }; /* at most */

/* The lengths that slots have. */
struct sb_slot_sizes {
    int32_t longest;  /* columns of class 0 */
    int32_t halvings; /* class i has longest >> i columns, for i up to this */
};

/* Sizes for sequences of up to `columns` columns. Every class is a whole number of 8 columns, which
 * lengthens the longest by less than 128: and so prompts and answers whose lengths together are a
 * power of two fit in a half, a quarter and so on, although proposals take some columns more. */
struct sb_slot_sizes sb_slot_sizes(int32_t columns);
/* The smallest class with at least so many columns, which class 0 must have. */
int32_t sb_slot_class(const struct sb_slot_sizes *sizes, int32_t columns);

static inline int32_t sb_slot_columns(const struct sb_slot_sizes *sizes, int32_t class)
{
    return sizes->longest >> class;
}

struct sb_slots {
    struct sb_mem mem;
    struct sb_slot_sizes sizes;
    int32_t n_longest; /* slots of class 0 that all columns together are */
    int64_t n_free;    /* columns */
    /* A unit is as many columns as the smallest class has. A free slot is known by its first. */
    int32_t first[SB_SLOT_HALVINGS + 1]; /* unit of the first free slot of each class; -1: none */
    struct sb_free_slot {
        int32_t prev, next; /* units of its neighbours in the list; -1: none */
        int32_t class;      /* -1: no free slot begins with this unit */
    } * units;
};

size_t sb_slots_bytes(const struct sb_slot_sizes *sizes, int32_t n_longest);
/* The memory is the caller's and zeroed; on failure sb_slots_free cleans up. All is free then. At
 * most 65536 longest slots. E_NOMEM. */
int32_t sb_slots_create(struct sb_slots *slots, const struct sb_mem *mem,
                        const struct sb_slot_sizes *sizes, int32_t n_longest);
void sb_slots_free(struct sb_slots *slots);

/* Slots of a class that all columns together are. */
static inline int64_t sb_slots_most(const struct sb_slots *slots, int32_t class)
{
    return (int64_t)slots->n_longest << class;
}

/* Whether a slot of the class can be taken. */
int sb_slots_has(const struct sb_slots *slots, int32_t class);
/* Takes a slot of the class, which must be there, and returns its first column. */
int64_t sb_slots_take(struct sb_slots *slots, int32_t class);
/* Gives back a slot that was taken: its first column, and its class. */
void sb_slots_give(struct sb_slots *slots, int64_t at, int32_t class);

#endif
