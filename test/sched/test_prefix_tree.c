/*
 * The tree of the prefix cache, without a model: random paths are opened, filled, pinned and let go
 * of, and what is found is compared with a list of paths whose oldest is searched for. In half of
 * the runs all keys share one bucket, as if every hash were the same.
 */
#include "sbtest.h"
#include "support/prefix_check.h"
#include "support/trace.h"

enum { DEEP = 5, MAX_BLOCKS = 12, N_PINS = 3, N_STEPS = 4000 };

/* Which blocks a path has, each of them one of two texts, and how many of its tokens are in spans.
 */
struct way {
    int32_t n, spanned;
    int32_t text[DEEP];
};

/* What the tree should hold: a block is the way to it, itself included. */
struct entry {
    struct way way;
    uint64_t age;
    int32_t pins, filled;
};

static struct entry entries[MAX_BLOCKS];
static int32_t n_entries, n_blocks;
static uint64_t now, n_evicted;

static struct way part_of(const struct way *way, int32_t n)
{
    struct way part = *way;

    part.n = n;
    if (part.spanned > n * SB_PREFIX_BLOCK)
        part.spanned = n * SB_PREFIX_BLOCK;
    for (int32_t i = n; i < DEEP; i++)
        part.text[i] = 0;
    return part;
}

static int32_t find(const struct way *way, int32_t n)
{
    const struct way part = part_of(way, n);

    for (int32_t i = 0; i < n_entries; i++)
        if (memcmp(&entries[i].way, &part, sizeof part) == 0)
            return i;
    return -1;
}

/* How far the way leads. */
static int32_t depth(const struct way *way)
{
    int32_t n = 0;

    while (n < way->n && find(way, n + 1) >= 0)
        n++;
    return n;
}

/* Removes the oldest entry without a pin that is not on the way. Returns 0 if there is none. */
static int evict(const struct way *way, int32_t on_the_way)
{
    int32_t oldest = -1;

    for (int32_t i = 0; i < n_entries; i++) {
        int kept = entries[i].pins > 0;
        for (int32_t n = 1; n <= on_the_way; n++)
            kept |= find(way, n) == i;
        if (!kept && (oldest < 0 || entries[i].age < entries[oldest].age))
            oldest = i;
    }
    if (oldest < 0)
        return 0;
    entries[oldest] = entries[--n_entries];
    n_evicted++;
    return 1;
}

/* Adds what the way lacks, as far as there is room. Returns how far it leads then. */
static int32_t extend(const struct way *way)
{
    int32_t n = depth(way);

    for (; n < way->n; n++) {
        if (n_entries == n_blocks && !evict(way, n))
            break;
        entries[n_entries++] = (struct entry){.way = part_of(way, n + 1)};
    }
    return n;
}

/* The first n blocks were used: the end first. */
static void touch(const struct way *way, int32_t n)
{
    for (; n > 0; n--)
        entries[find(way, n)].age = ++now;
}

static struct way draw_way(uint64_t *random)
{
    struct way way = {.n = 1 + (int32_t)(trace_random(random) % DEEP)};

    for (int32_t i = 0; i < way.n; i++)
        way.text[i] = (int32_t)(trace_random(random) % 2);
    way.spanned = (int32_t)(trace_random(random) % 3) * 48;
    return part_of(&way, way.n);
}

/* The ids of a way. Texts differ in the last token of a block, so keys must be compared to the end.
 */
static void write_ids(int32_t ids[DEEP * SB_PREFIX_BLOCK], const struct way *way)
{
    for (int32_t i = 0; i < DEEP * SB_PREFIX_BLOCK; i++)
        ids[i] = i % SB_PREFIX_BLOCK == SB_PREFIX_BLOCK - 1 ? way->text[i / SB_PREFIX_BLOCK] : 7;
}

/* Keeps the blocks of a way, as a request does that ends. */
static void keep(struct sb_prefix_tree *tree, const struct way *way)
{
    const int32_t there = depth(way);
    int32_t ids[DEEP * SB_PREFIX_BLOCK], n;

    write_ids(ids, way);
    CHECK_INT(sb_prefix_open(tree, ids, way->n, way->spanned), there);
    for (int32_t i = 0; i < there; i++)
        CHECK_INT(tree->nodes[tree->path[i]].filled, entries[find(way, i + 1)].filled);
    n = extend(way);
    CHECK_INT(sb_prefix_extend(tree, ids, way->n, way->spanned), n);
    for (int32_t i = 0; i < n; i++)
        tree->nodes[tree->path[i]].filled = entries[find(way, i + 1)].filled = 1;
    sb_prefix_close(tree);
    touch(way, n);
    CHECK_INT(tree->n_evicted, n_evicted);
}

/* Makes room for the blocks of a way and does not fill them, as when a device fails. */
static void give_up(struct sb_prefix_tree *tree, const struct way *way)
{
    const int32_t there = depth(way);
    int32_t ids[DEEP * SB_PREFIX_BLOCK], n;

    write_ids(ids, way);
    CHECK_INT(sb_prefix_open(tree, ids, way->n, way->spanned), there);
    n = extend(way);
    CHECK_INT(sb_prefix_extend(tree, ids, way->n, way->spanned), n);
    sb_prefix_close(tree);
    for (; n > there; n--) {
        struct entry *entry = &entries[find(way, n)];
        *entry = entries[--n_entries];
    }
    touch(way, there);
}

/* Only looks a way up. */
static void look_up(struct sb_prefix_tree *tree, const struct way *way)
{
    const int32_t there = depth(way);
    int32_t ids[DEEP * SB_PREFIX_BLOCK];

    write_ids(ids, way);
    CHECK_INT(sb_prefix_open(tree, ids, way->n, way->spanned), there);
    sb_prefix_close(tree);
    touch(way, there);
}

struct pin {
    struct way way;
    int32_t last;
};

static void pin(struct sb_prefix_tree *tree, struct pin *pin, const struct way *way)
{
    int32_t ids[DEEP * SB_PREFIX_BLOCK], n;

    write_ids(ids, way);
    sb_prefix_open(tree, ids, way->n, way->spanned);
    n = sb_prefix_extend(tree, ids, way->n, way->spanned);
    CHECK_INT(n, extend(way));
    if (n == 0)
        return;
    pin->way = part_of(way, n);
    pin->last = sb_prefix_keep_open(tree);
    for (int32_t i = 1; i <= n; i++)
        entries[find(way, i)].pins++;
}

/* Blocks that were never filled are gone with their last pin. */
static void unpin(struct sb_prefix_tree *tree, struct pin *pin)
{
    for (int32_t n = pin->way.n; n > 0; n--) {
        struct entry *entry = &entries[find(&pin->way, n)];
        if (--entry->pins == 0 && entry->filled)
            entry->age = ++now;
        else if (entry->pins == 0)
            *entry = entries[--n_entries];
    }
    sb_prefix_let_go(tree, pin->last);
    pin->way.n = 0;
}

static void run(uint64_t seed, int one_bucket)
{
    struct sb_prefix_tree tree = {.n_blocks = 0};
    struct pin pins[N_PINS] = {0};

    n_blocks = 1 + (int32_t)(trace_random(&seed) % MAX_BLOCKS);
    n_entries = 0;
    now = n_evicted = 0;
    CHECK_OK(sb_prefix_tree_create(&tree, &(struct sb_mem){NULL, NULL, NULL}, n_blocks, DEEP));
    if (one_bucket)
        tree.mask = 0;
    for (int i = 0; i < N_STEPS && !sbtest_failed_now; i++) {
        const struct way way = draw_way(&seed);
        struct pin *some = &pins[trace_random(&seed) % N_PINS];
        const uint64_t what = trace_random(&seed) % 16;
        if (what > 1)
            (what % 2 ? keep : what < 6 ? give_up : look_up)(&tree, &way);
        else if (some->way.n > 0)
            unpin(&tree, some);
        else if (what == 0)
            pin(&tree, some, &way);
        CHECK_OK(prefix_check(&tree));
        CHECK_INT(tree.n_free, n_blocks - n_entries);
    }
    sb_prefix_tree_free(&tree);
}

static void test_the_tree_is_a_list_that_is_searched(void)
{
    for (uint64_t seed = 0; seed < 20 && !sbtest_failed_now; seed++)
        run(seed, seed % 2);
}

TEST_BEGIN
RUN(test_the_tree_is_a_list_that_is_searched);
TEST_END
