/* Slots against a plain map of columns: after random takings and givings no two slots overlap, each
 * begins at a multiple of its own length, and a slot can be taken exactly where the map has a free
 * stretch for it. So what is given back has been joined as far as it can be. */
#include "sbtest.h"
#include "engine/slots.h"
#include "support/trace.h"

enum { MAX_LONGEST = 7, MAX_SLOTS = MAX_LONGEST << SB_SLOT_HALVINGS, MAX_COLUMNS = 4000 };

static int below(uint64_t *random, int n)
{
    return (int)(trace_random(random) % (uint64_t)n);
}

static void test_lengths_of_slots(void)
{
    static const struct {
        int32_t columns, longest, halvings;
    } expected[] = {{1, 8, 0},       {13, 16, 0},       {63, 64, 0},          {64, 64, 1},
                    {134, 160, 2},   {511, 512, 3},     {512, 512, 4},        {513, 640, 4},
                    {2054, 2176, 4}, {65536, 65536, 4}, {1000006, 1000064, 4}};

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct sb_slot_sizes sizes = sb_slot_sizes(expected[i].columns);
        CHECK_INT(sizes.longest, expected[i].longest);
        CHECK_INT(sizes.halvings, expected[i].halvings);
    }
    for (int32_t columns = 1; columns < 3000; columns++) {
        const struct sb_slot_sizes sizes = sb_slot_sizes(columns);
        const int32_t smallest = sb_slot_columns(&sizes, sizes.halvings);
        CHECK(sizes.longest >= columns && sizes.longest < columns + 128);
        CHECK(smallest % 8 == 0 && smallest << sizes.halvings == sizes.longest);
        CHECK(sizes.halvings == 0 || smallest >= 32);
        for (int32_t n = 1; n <= sizes.longest; n += 7) {
            const int32_t class = sb_slot_class(&sizes, n);
            CHECK(sb_slot_columns(&sizes, class) >= n);
            CHECK(class == sizes.halvings || sb_slot_columns(&sizes, class + 1) < n);
        }
    }
}

/* ---------------------------------------------------------- random operations */

struct crowd {
    struct sb_slots slots;
    uint8_t taken[MAX_COLUMNS]; /* the map */
    struct {
        int64_t at;
        int32_t class;
    } held[MAX_SLOTS];
    int n_held;
    uint64_t random;
};

/* Whether the map has a free slot of the class. */
static int map_has(const struct crowd *c, int32_t class)
{
    const int32_t n = sb_slot_columns(&c->slots.sizes, class);

    for (int64_t at = 0; at < sb_slots_most(&c->slots, class) * n; at += n) {
        int32_t i = 0;
        while (i < n && !c->taken[at + i])
            i++;
        if (i == n)
            return 1;
    }
    return 0;
}

static int64_t map_n_free(const struct crowd *c)
{
    int64_t n = 0;

    for (int64_t at = 0; at < sb_slots_most(&c->slots, 0) * c->slots.sizes.longest; at++)
        n += !c->taken[at];
    return n;
}

/* NULL, or what is wrong with a slot that was taken. */
static const char *take(struct crowd *c, int32_t class)
{
    const int32_t n = sb_slot_columns(&c->slots.sizes, class);
    const int64_t at = sb_slots_take(&c->slots, class);

    if (at < 0 || at + n > sb_slots_most(&c->slots, class) * n)
        return "a slot is not in the caches";
    if (at % n != 0)
        return "a slot does not begin at a multiple of its length";
    for (int32_t i = 0; i < n; i++)
        if (c->taken[at + i]++)
            return "two slots overlap";
    c->held[c->n_held].at = at;
    c->held[c->n_held++].class = class;
    return NULL;
}

static void give(struct crowd *c, int i)
{
    const int32_t class = c->held[i].class;

    memset(c->taken + c->held[i].at, 0, (size_t)sb_slot_columns(&c->slots.sizes, class));
    sb_slots_give(&c->slots, c->held[i].at, class);
    c->held[i] = c->held[--c->n_held];
}

static const char *compare(const struct crowd *c)
{
    for (int32_t class = 0; class <= c->slots.sizes.halvings; class += 1)
        if (sb_slots_has(&c->slots, class) != map_has(c, class))
            return "what can be taken";
    return c->slots.n_free == map_n_free(c) ? NULL : "the number of free columns";
}

/* Takes and gives at random, sometimes more of the one, sometimes of the other; then gives all. */
static const char *live(struct crowd *c)
{
    const char *why = compare(c);

    for (int event = 0; !why && event < 1500; event++) {
        const int takes = below(&c->random, 10) < (event / 100 % 2 ? 3 : 7);
        const int32_t class = below(&c->random, c->slots.sizes.halvings + 1);
        if (takes && sb_slots_has(&c->slots, class))
            why = take(c, class);
        else if (c->n_held > 0)
            give(c, below(&c->random, c->n_held));
        if (!why)
            why = compare(c);
    }
    while (!why && c->n_held > 0)
        give(c, below(&c->random, c->n_held));
    for (int32_t i = 0; !why && i < c->slots.n_longest; i++)
        why = sb_slots_has(&c->slots, 0) ? take(c, 0) : "a longest slot was not joined again";
    return why ? why : sb_slots_has(&c->slots, c->slots.sizes.halvings) ? "more than all" : NULL;
}

static void test_slots_are_those_of_a_map(void)
{
    const struct sb_mem mem = {NULL, NULL, NULL};

    for (uint64_t seed = 0; seed < 100; seed++) {
        static struct crowd c;
        const char *why;
        c = (struct crowd){.random = seed};
        const struct sb_slot_sizes sizes = sb_slot_sizes(1 + below(&c.random, 500));
        CHECK_OK(sb_slots_create(&c.slots, &mem, &sizes, 1 + (int32_t)(seed % MAX_LONGEST)));
        why = live(&c);
        sb_slots_free(&c.slots);
        if (why)
            FAIL("%s, seed %" PRIu64, why, seed);
    }
}

TEST_BEGIN
RUN(test_lengths_of_slots);
RUN(test_slots_are_those_of_a_map);
TEST_END
