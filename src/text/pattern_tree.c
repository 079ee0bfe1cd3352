/*
 * What the files that read a pattern share: stepping through its text, refusing what is not
 * understood, and building the tree.
 */
#include "pattern_tree.h"
#include "utf8.h"

int32_t sb_pattern_refuse(const struct sb_reader *reader, size_t at, const char *what)
{
    return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s: regular expression, byte %zu: %s is not supported",
                   reader->where, at, what);
}

int sb_reader_skip(struct sb_reader *reader, const char *text)
{
    size_t n = strlen(text);

    if (reader->n - reader->at < n || memcmp(reader->text + reader->at, text, n) != 0)
        return 0;
    reader->at += n;
    return 1;
}

uint32_t sb_reader_char(struct sb_reader *reader)
{
    uint32_t cp = 0;
    int step = sb_utf8_step(reader->text + reader->at, reader->n - reader->at, &cp);

    if (reader->at < reader->n)
        reader->at += step > 0 ? (size_t)step : 1;
    return cp;
}

int32_t sb_tree_node(struct sb_reader *reader, enum sb_node_kind kind, uint32_t *index)
{
    struct sb_tree *tree = reader->tree;
    struct sb_node *nodes;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(nodes,
           sb_grow(tree->mem, tree->nodes, &tree->node_capacity, tree->n_nodes + 2, sizeof *nodes),
           "a regular expression");
    tree->nodes = nodes;
    if (tree->n_nodes == 0)
        tree->nodes[tree->n_nodes++] = (struct sb_node){.kind = SB_NODE_EMPTY};
    *index = (uint32_t)tree->n_nodes;
    tree->nodes[tree->n_nodes++] = (struct sb_node){.kind = kind};
done:
    return rc;
}

int32_t sb_tree_set(struct sb_reader *reader, struct sb_charset *set, uint32_t *index)
{
    struct sb_tree *tree = reader->tree;
    struct sb_charset *sets;
    int32_t rc = SPECBATCH_OK;
    size_t i;

    for (i = 0; i < tree->n_sets && !sb_charset_equal(&tree->sets[i], set); i++)
        continue;
    *index = (uint32_t)i;
    if (i < tree->n_sets) {
        sb_charset_clear(set);
        return SPECBATCH_OK;
    }
    if (i == SB_PATTERN_SETS)
        SB_TRY(sb_pattern_refuse(reader, reader->at,
                                 "a pattern of so many different sets of characters"));
    SB_NEW(sets,
           sb_grow(tree->mem, tree->sets, &tree->set_capacity, tree->n_sets + 1, sizeof *sets),
           "a regular expression");
    tree->sets = sets;
    tree->sets[tree->n_sets++] = *set;
    *set = (struct sb_charset){.mem = set->mem};
done:
    return rc;
}

void sb_tree_clear(struct sb_tree *tree)
{
    for (size_t i = 0; i < tree->n_sets; i++)
        sb_charset_clear(&tree->sets[i]);
    sb_free(tree->mem, tree->sets);
    sb_free(tree->mem, tree->nodes);
}

/* Sum and product of numbers of characters, of which SB_PATTERN_ENDLESS is the largest. */
static int32_t plus(int32_t a, int32_t b)
{
    return a > SB_PATTERN_ENDLESS - b ? SB_PATTERN_ENDLESS : a + b;
}

static int32_t times(int32_t a, int32_t b)
{
    return a > 0 && b > SB_PATTERN_ENDLESS / a ? SB_PATTERN_ENDLESS : a * b;
}

void sb_tree_measure(struct sb_tree *tree, uint32_t index)
{
    struct sb_node *node = &tree->nodes[index], *child;

    if (node->kind == SB_NODE_SET)
        node->least = node->most = 1;
    for (uint32_t i = node->child; i; i = child->next) {
        child = &tree->nodes[i];
        if (node->kind == SB_NODE_ALL || node->kind == SB_NODE_ATOMIC) {
            node->least = plus(node->least, child->least);
            node->most = plus(node->most, child->most);
        } else if (node->kind == SB_NODE_REPEAT) {
            node->least = times(child->least, node->min);
            node->most = times(child->most, node->max);
        } else if (node->kind == SB_NODE_ANY) {
            node->least = i == node->child || child->least < node->least ? child->least
                                                                         : node->least;
            node->most = child->most > node->most ? child->most : node->most;
        }
    }
}

int32_t sb_tree_wrap(struct sb_reader *reader, enum sb_node_kind kind, int flag, uint32_t *index)
{
    uint32_t child = *index;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_tree_node(reader, kind, index));
    reader->tree->nodes[*index].child = child;
    reader->tree->nodes[*index].flag = flag;
    sb_tree_measure(reader->tree, *index);
done:
    return rc;
}
