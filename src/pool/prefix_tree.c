/* The tree of the prefix cache; prefix_tree.h draws it. */
#include "pool/prefix_tree.h"

#include <string.h>

#include "fault.h"
#include "status.h"

/* ------------------------------------------------------------------- memory */

/* A power of two, so that there are at least as many buckets as nodes. */
static size_t n_buckets(int32_t n_blocks)
{
    size_t n = 1;

    while (n < (size_t)n_blocks)
        n *= 2;
    return n;
}

size_t sb_prefix_tree_bytes(int32_t n_blocks, int32_t max_path)
{
    return (size_t)n_blocks * sizeof(struct sb_prefix_node) +
           (n_buckets(n_blocks) + (size_t)max_path) * sizeof(int32_t);
}

int32_t sb_prefix_tree_create(struct sb_prefix_tree *tree, const struct sb_mem *mem,
                              int32_t n_blocks, int32_t max_path)
{
    static const char what[] = "the prefix cache";
    const size_t buckets = n_buckets(n_blocks);
    int32_t rc = SPECBATCH_OK;

    tree->mem = *mem;
    tree->hash_key = sb_hash_draw(tree);
    SB_NEW(tree->nodes, sb_alloc(mem, (size_t)n_blocks, sizeof *tree->nodes), what);
    SB_NEW(tree->buckets, sb_alloc(mem, buckets, sizeof *tree->buckets), what);
    SB_NEW(tree->path, sb_alloc(mem, (size_t)max_path, sizeof *tree->path), what);
    tree->mask = (uint32_t)(buckets - 1);
    tree->n_blocks = tree->n_free = n_blocks;
    tree->max_path = max_path;
    tree->oldest = tree->newest = -1;
    for (size_t i = 0; i < buckets; i++)
        tree->buckets[i] = -1;
    for (int32_t i = 0; i < n_blocks; i++)
        tree->nodes[i].next = i + 1 < n_blocks ? i + 1 : -1;
done:
    return rc;
}

void sb_prefix_tree_free(struct sb_prefix_tree *tree)
{
    sb_free(&tree->mem, tree->path);
    sb_free(&tree->mem, tree->buckets);
    sb_free(&tree->mem, tree->nodes);
    *tree = (struct sb_prefix_tree){.n_blocks = 0};
}

/* --------------------------------------------------------------------- keys */

/* The key of block i of the ids, whose parent is the node `parent`. */
static struct sb_prefix_key key_of(int32_t parent, const int32_t *ids, int32_t i, int32_t spanned)
{
    const int32_t first = i * SB_PREFIX_BLOCK, left = spanned - first;
    struct sb_prefix_key key = {.parent = parent,
                                .spanned = left <= 0                ? 0
                                           : left < SB_PREFIX_BLOCK ? left
                                                                    : SB_PREFIX_BLOCK};

    memcpy(key.ids, ids + first, sizeof key.ids);
    return key;
}

static int32_t *bucket_of(const struct sb_prefix_tree *tree, const struct sb_prefix_key *key)
{
    return &tree->buckets[sb_hash(&tree->hash_key, key, sizeof *key) & tree->mask];
}

static int32_t find(const struct sb_prefix_tree *tree, const struct sb_prefix_key *key)
{
    int32_t at = *bucket_of(tree, key);

    while (at >= 0 && memcmp(&tree->nodes[at].key, key, sizeof *key) != 0)
        at = tree->nodes[at].next;
    return at;
}

static void enter(struct sb_prefix_tree *tree, int32_t at)
{
    int32_t *bucket = bucket_of(tree, &tree->nodes[at].key);

    tree->nodes[at].next = *bucket;
    *bucket = at;
}

static void leave(struct sb_prefix_tree *tree, int32_t at)
{
    int32_t *link = bucket_of(tree, &tree->nodes[at].key);

    while (*link != at)
        link = &tree->nodes[*link].next;
    *link = tree->nodes[at].next;
}

/* ---------------------------------------------------------------------- age */

static void list(struct sb_prefix_tree *tree, int32_t at)
{
    struct sb_prefix_node *node = &tree->nodes[at];

    node->older = tree->newest;
    node->newer = -1;
    *(tree->newest < 0 ? &tree->oldest : &tree->nodes[tree->newest].newer) = at;
    tree->newest = at;
    tree->n_listed++;
}

static void unlist(struct sb_prefix_tree *tree, int32_t at)
{
    const struct sb_prefix_node *node = &tree->nodes[at];

    *(node->older < 0 ? &tree->oldest : &tree->nodes[node->older].newer) = node->newer;
    *(node->newer < 0 ? &tree->newest : &tree->nodes[node->newer].older) = node->older;
    tree->n_listed--;
}

static void hold(struct sb_prefix_tree *tree, int32_t at)
{
    if (tree->nodes[at].holds++ == 0)
        unlist(tree, at);
}

/* A node that was not filled has no filled child, so none that is listed; and if nobody holds it,
 * none that is held. */
static void release(struct sb_prefix_tree *tree, int32_t at)
{
    struct sb_prefix_node *node = &tree->nodes[at];

    if (--node->holds > 0)
        return;
    if (node->filled) {
        list(tree, at);
        return;
    }
    leave(tree, at);
    node->next = tree->free;
    tree->free = at;
    tree->n_free++;
}

/* ------------------------------------------------------------------- blocks */

/* A node that is in no list and in no bucket, or -1. */
static int32_t take_free(struct sb_prefix_tree *tree)
{
    const int32_t at = tree->free;

    if (at < 0)
        return -1;
    tree->free = tree->nodes[at].next;
    tree->n_free--;
    return at;
}

/* Makes the node of this key, which there is none of yet. It is held and not filled. -1: there is
 * no block for it. */
static int32_t make(struct sb_prefix_tree *tree, const struct sb_prefix_key *key)
{
    int32_t at = take_free(tree);

    if (at < 0) {
        if ((at = tree->oldest) < 0)
            return -1;
        unlist(tree, at);
        tree->n_evicted++;
        if (SB_FAULT(STALE_BLOCK)) {
            tree->nodes[at].holds = 1;
            tree->nodes[at].filled = tree->nodes[at].drafted = 0;
            return at;
        }
        leave(tree, at);
    }
    tree->nodes[at] = (struct sb_prefix_node){.key = *key, .holds = 1};
    enter(tree, at);
    return at;
}

/* -------------------------------------------------------------------- paths */

/* The node before the next one of the open path. */
static int32_t end_of_path(const struct sb_prefix_tree *tree)
{
    return tree->n_path > 0 ? tree->path[tree->n_path - 1] : -1;
}

static int32_t at_most(int32_t value, int32_t most)
{
    return value < most ? value : most;
}

int32_t sb_prefix_open(struct sb_prefix_tree *tree, const int32_t *ids, int32_t n, int32_t spanned)
{
    for (n = at_most(n, tree->max_path); tree->n_path < n; tree->n_path++) {
        const struct sb_prefix_key key = key_of(end_of_path(tree), ids, tree->n_path, spanned);
        const int32_t at = find(tree, &key);
        if (at < 0)
            break;
        hold(tree, at);
        tree->path[tree->n_path] = at;
    }
    return tree->n_path;
}

int32_t sb_prefix_extend(struct sb_prefix_tree *tree, const int32_t *ids, int32_t n,
                         int32_t spanned)
{
    for (n = at_most(n, tree->max_path); tree->n_path < n; tree->n_path++) {
        const struct sb_prefix_key key = key_of(end_of_path(tree), ids, tree->n_path, spanned);
        const int32_t at = make(tree, &key);
        if (at < 0)
            break;
        tree->path[tree->n_path] = at;
    }
    return tree->n_path;
}

void sb_prefix_close(struct sb_prefix_tree *tree)
{
    while (tree->n_path > 0)
        release(tree, tree->path[--tree->n_path]);
}

int32_t sb_prefix_keep_open(struct sb_prefix_tree *tree)
{
    const int32_t last = end_of_path(tree);

    tree->n_path = 0;
    return last;
}

void sb_prefix_let_go(struct sb_prefix_tree *tree, int32_t last)
{
    while (last >= 0) {
        const int32_t parent = tree->nodes[last].key.parent;
        release(tree, last);
        last = parent;
    }
}
