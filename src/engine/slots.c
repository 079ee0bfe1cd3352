/* Taking, halving and joining slots; slots.h draws them. */
#include "engine/slots.h"

#include "status.h"

/* Halving ends before a half would have fewer columns than this. ROUND: every class is a multiple
 * of so many columns. */
enum { SMALLEST = 32, ROUND = 8 };

struct sb_slot_sizes sb_slot_sizes(int32_t columns)
{
    struct sb_slot_sizes sizes = {.halvings = 0};
    int32_t multiple;

    while (sizes.halvings < SB_SLOT_HALVINGS && columns >> (sizes.halvings + 1) >= SMALLEST)
        sizes.halvings++;
    multiple = ROUND << sizes.halvings;
    sizes.longest = (columns + multiple - 1) / multiple * multiple;
    return sizes;
}

int32_t sb_slot_class(const struct sb_slot_sizes *sizes, int32_t columns)
{
    int32_t class = sizes->halvings;

    while (sb_slot_columns(sizes, class) < columns)
        class -= 1;
    return class;
}

/* ------------------------------------------------------------------- memory */

static size_t n_units(const struct sb_slot_sizes *sizes, int32_t n_longest)
{
    return (size_t)n_longest << sizes->halvings;
}

size_t sb_slots_bytes(const struct sb_slot_sizes *sizes, int32_t n_longest)
{
    return n_units(sizes, n_longest) * sizeof(struct sb_free_slot);
}

/* ---------------------------------------------------------------- free slots */

/* Units of a slot. */
static int32_t units_of(const struct sb_slots *s, int32_t class)
{
    return 1 << (s->sizes.halvings - class);
}

static int32_t unit_columns(const struct sb_slots *s)
{
    return sb_slot_columns(&s->sizes, s->sizes.halvings);
}

static void link_free(struct sb_slots *s, int32_t unit, int32_t class)
{
    const int32_t next = s->first[class];

    s->units[unit] = (struct sb_free_slot){.prev = -1, .next = next, .class = class};
    if (next >= 0)
        s->units[next].prev = unit;
    s->first[class] = unit;
}

static void unlink_free(struct sb_slots *s, int32_t unit)
{
    const struct sb_free_slot slot = s->units[unit];

    *(slot.prev < 0 ? &s->first[slot.class] : &s->units[slot.prev].next) = slot.next;
    if (slot.next >= 0)
        s->units[slot.next].prev = slot.prev;
    s->units[unit].class = -1;
}

int32_t sb_slots_create(struct sb_slots *s, const struct sb_mem *mem,
                        const struct sb_slot_sizes *sizes, int32_t n_longest)
{
    const size_t n = n_units(sizes, n_longest);
    int32_t rc = SPECBATCH_OK;

    s->mem = *mem;
    s->sizes = *sizes;
    s->n_longest = n_longest;
    s->n_free = (int64_t)n_longest * sizes->longest;
    for (int32_t i = 0; i <= SB_SLOT_HALVINGS; i++)
        s->first[i] = -1;
    SB_NEW(s->units, sb_alloc(mem, n, sizeof *s->units), "slots");
    for (size_t unit = 0; unit < n; unit++)
        s->units[unit].class = -1;
    for (int32_t i = n_longest; i-- > 0;)
        link_free(s, i * units_of(s, 0), 0);
done:
    return rc;
}

void sb_slots_free(struct sb_slots *s)
{
    sb_free(&s->mem, s->units);
    s->units = NULL;
}

/* ------------------------------------------------------------ taking, giving */

/* The smallest class that has a free slot and is no smaller than `class`; -1: there is none. */
static int32_t class_to_halve(const struct sb_slots *s, int32_t class)
{
    while (class >= 0 && s->first[class] < 0)
        class -= 1;
    return class;
}

int sb_slots_has(const struct sb_slots *s, int32_t class)
{
    return class_to_halve(s, class) >= 0;
}

int64_t sb_slots_take(struct sb_slots *s, int32_t class)
{
    int32_t larger = class_to_halve(s, class);
    const int32_t unit = s->first[larger];

    unlink_free(s, unit);
    while (larger < class) {
        larger++;
        link_free(s, unit + units_of(s, larger), larger); /* the upper half stays free */
    }
    s->n_free -= sb_slot_columns(&s->sizes, class);
    return (int64_t)unit * unit_columns(s);
}

void sb_slots_give(struct sb_slots *s, int64_t at, int32_t class)
{
    int32_t unit = (int32_t)(at / unit_columns(s));

    s->n_free += sb_slot_columns(&s->sizes, class);
    for (; class > 0; class -= 1) {
        const int32_t buddy = unit ^ units_of(s, class);
        if (s->units[buddy].class != class)
            break;
        unlink_free(s, buddy);
        unit &= ~units_of(s, class);
    }
    link_free(s, unit, class);
}
