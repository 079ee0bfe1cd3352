/* The invariants of the prefix cache's tree; see prefix_check.h. */
#include "support/prefix_check.h"

#include "status.h"

/* The list by age is in order both ways, nobody holds its nodes, all of them are filled, and a
 * parent is younger than its child or held. */
static int32_t check_list(const struct sb_prefix_tree *tree)
{
    int32_t older = -1, n = 0;

    for (int32_t at = tree->oldest; at >= 0 && n <= tree->n_listed; at = tree->nodes[at].newer) {
        const struct sb_prefix_node *node = &tree->nodes[at];
        const int32_t parent = node->key.parent;

        if (node->holds != 0 || !node->filled || node->older != older)
            return sb_fail(SPECBATCH_E_INTERNAL,
                           "block %d is listed: %d holds, filled %d, behind %d, not %d", at,
                           node->holds, node->filled, node->older, older);
        for (int32_t i = at; parent >= 0 && i != parent; i = tree->nodes[i].newer)
            if (i < 0 && tree->nodes[parent].holds == 0)
                return sb_fail(SPECBATCH_E_INTERNAL, "block %d is younger than its parent %d", at,
                               parent);
            else if (i < 0)
                break;
        older = at;
        n++;
    }
    return n == tree->n_listed && older == tree->newest
               ? SPECBATCH_OK
               : sb_fail(SPECBATCH_E_INTERNAL, "%d of %d blocks are found by age", n,
                         tree->n_listed);
}

/* Every block is free or in one bucket, and what is in a bucket is held or listed. A parent is
 * held as often as its children together or more often, and filled if one of them is. */
static int32_t check_buckets(const struct sb_prefix_tree *tree)
{
    int32_t n_free = 0, n = 0, n_held = 0;

    for (int32_t at = tree->free; at >= 0 && n_free <= tree->n_blocks; at = tree->nodes[at].next)
        n_free++;
    for (uint32_t b = 0; b <= tree->mask; b++)
        for (int32_t at = tree->buckets[b]; at >= 0 && n <= tree->n_blocks; n++) {
            const struct sb_prefix_node *node = &tree->nodes[at];
            const struct sb_prefix_node *parent = node->key.parent < 0
                                                      ? NULL
                                                      : &tree->nodes[node->key.parent];

            n_held += node->holds > 0;
            if (parent && (parent->holds < node->holds || parent->filled < node->filled ||
                           parent->drafted < node->drafted))
                return sb_fail(SPECBATCH_E_INTERNAL, "block %d has a parent that has less", at);
            if (node->drafted && !node->filled)
                return sb_fail(SPECBATCH_E_INTERNAL, "block %d has only the draft's columns", at);
            at = node->next;
        }
    return n_free == tree->n_free && n_free + n == tree->n_blocks && n == n_held + tree->n_listed
               ? SPECBATCH_OK
               : sb_fail(SPECBATCH_E_INTERNAL,
                         "%d blocks: %d free, %d found, %d of them held and %d listed",
                         tree->n_blocks, n_free, n, n_held, tree->n_listed);
}

int32_t prefix_check(const struct sb_prefix_tree *tree)
{
    int32_t rc = SPECBATCH_OK;

    if (tree->n_blocks == 0)
        return rc;
    if (tree->n_path > 0)
        SB_FAIL(SPECBATCH_E_INTERNAL, "a path of %d blocks was left open", tree->n_path);
    SB_TRY(check_list(tree));
    SB_TRY(check_buckets(tree));
done:
    return rc;
}
