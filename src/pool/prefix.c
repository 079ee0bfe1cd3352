/* Columns of the prefix cache: copying them from and to slots, and pins; prefix.h draws it. */
#include "pool/prefix.h"

#include "engine/scores.h"
#include "fault.h"
#include "stats.h"
#include "status.h"

/* ------------------------------------------------------------------- memory */

/* Whole blocks that the longest sequence has; also where none has one, room for one. */
static int32_t max_path(const struct sb_runner_limits *limits)
{
    return limits->cap < SB_PREFIX_BLOCK ? 1 : limits->cap / SB_PREFIX_BLOCK;
}

size_t sb_prefix_bytes(const struct sb_runner_limits *limits)
{
    const int32_t n_blocks = (int32_t)(limits->block_columns / SB_PREFIX_BLOCK);

    if (n_blocks == 0)
        return 0;
    return sb_prefix_tree_bytes(n_blocks, max_path(limits)) + sb_moves_bytes(max_path(limits));
}

int32_t sb_prefix_create(struct sb_prefix *p, const struct sb_mem *mem, struct sb_runner *target,
                         struct sb_runner *draft, uint64_t *stats)
{
    const int32_t n_blocks = (int32_t)(target->limits.block_columns / SB_PREFIX_BLOCK);
    const int32_t longest = max_path(&target->limits);
    int32_t rc = SPECBATCH_OK;

    p->mem = *mem;
    p->target = target;
    p->draft = draft;
    p->stats = stats;
    if (n_blocks == 0)
        return rc;
    SB_TRY(sb_prefix_tree_create(&p->tree, mem, n_blocks, longest));
    SB_TRY(sb_moves_create(&p->moves, mem, target->model, longest));
done:
    return rc;
}

void sb_prefix_free(struct sb_prefix *p)
{
    sb_moves_free(&p->moves);
    sb_free(&p->mem, p->pins);
    sb_prefix_tree_free(&p->tree);
    *p = (struct sb_prefix){.target = NULL};
}

/* ------------------------------------------------------------------ columns */

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Copies from blocks path[first .. first + n) to the sequence's slot, or the other way. */
struct copy {
    struct sb_runner *runner;
    const struct sb_seq *seq;
    int32_t to_block;
    int32_t first, n;
    int32_t columns; /* of the sequence, from its position 0 on: no more are copied */
};

/* Waits until the columns are copied. */
static int32_t copy_columns(struct sb_prefix *p, const struct copy *copy)
{
    const struct sb_seq *seq = copy->seq;

    if (copy->n <= 0)
        return SPECBATCH_OK;
    sb_moves_begin(&p->moves, copy->n);
    for (int32_t i = 0; i < copy->n; i++) {
        const int32_t node = p->tree.path[copy->first + i];
        const int32_t pos = (copy->first + i) * SB_PREFIX_BLOCK, left = copy->columns - pos;
        const struct sb_place block = {sb_prefix_at(p, node), SB_PREFIX_BLOCK, 0};
        const struct sb_place slot = {seq->at, seq->cap, seq->start + pos};
        sb_moves_set(&p->moves, i, &copy->runner->kv, copy->to_block ? slot : block,
                     copy->to_block ? block : slot, smaller(left, SB_PREFIX_BLOCK));
    }
    return sb_moves_run(&p->moves, copy->runner);
}

/* -------------------------------------------------------------- hit and keep */

/* How many blocks of the open path have the target's columns: the first so many. */
static int32_t n_filled(const struct sb_prefix_tree *tree)
{
    int32_t n = 0;

    while (n < tree->n_path && tree->nodes[tree->path[n]].filled)
        n++;
    return n;
}

int32_t sb_prefix_n_drafted(const struct sb_prefix_tree *tree)
{
    int32_t n = 0;

    while (n < tree->n_path && tree->nodes[tree->path[n]].drafted)
        n++;
    return n;
}

static int32_t blocks_of(int32_t columns)
{
    return (columns + SB_PREFIX_BLOCK - 1) / SB_PREFIX_BLOCK;
}

int32_t sb_prefix_hit(struct sb_prefix *p, struct sb_seq *seq)
{
    const int32_t span = p->target->limits.span, spanned = sb_seq_spanned(seq, span);
    struct sb_prefix_tree *tree = &p->tree;
    struct copy target = {.runner = p->target, .seq = seq},
                draft = {.runner = p->draft, .seq = seq};
    int32_t columns, drafted, rc = SPECBATCH_OK;

    if (tree->n_blocks == 0 || sb_seq_is_scoring(seq))
        return rc;
    sb_prefix_open(tree, seq->tokens, sb_seq_content(seq) / SB_PREFIX_BLOCK, spanned);
    columns = n_filled(tree) * SB_PREFIX_BLOCK;
    if (columns < spanned && !SB_FAULT(SPAN_CUT))
        columns = columns / span * span;
    drafted = p->draft ? smaller(sb_prefix_n_drafted(tree) * SB_PREFIX_BLOCK, columns) : 0;
    target.columns = columns;
    target.n = blocks_of(columns);
    draft.columns = drafted;
    draft.n = blocks_of(drafted);
    SB_TRY(copy_columns(p, &target));
    if (p->draft)
        SB_TRY(copy_columns(p, &draft));
    seq->kv_len = columns;
    seq->draft_kv_len = drafted;
    if (SB_FAULT(HIT_ONE_LONG) && columns > 0 && columns < sb_seq_content(seq))
        seq->kv_len++;
    p->stats[SB_STAT_prefix_hits] += columns > 0;
    p->stats[SB_STAT_prefix_tokens] += (uint64_t)columns;
done:
    sb_prefix_close(tree);
    return rc;
}

int32_t sb_prefix_keep(struct sb_prefix *p, const struct sb_seq *seq)
{
    const int32_t spanned = sb_seq_spanned(seq, p->target->limits.span);
    const int32_t n = smaller(seq->kv_len, sb_seq_content(seq)) / SB_PREFIX_BLOCK;
    struct sb_prefix_tree *tree = &p->tree;
    struct copy target = {.runner = p->target, .seq = seq, .to_block = 1, .columns = seq->kv_len};
    struct copy draft = {
        .runner = p->draft, .seq = seq, .to_block = 1, .columns = seq->draft_kv_len};
    int32_t rc = SPECBATCH_OK;

    if (tree->n_blocks == 0 || seq->finish == SPECBATCH_FINISH_ERROR)
        return rc;
    sb_prefix_open(tree, seq->tokens, n, spanned);
    sb_prefix_extend(tree, seq->tokens, n, spanned);
    target.first = n_filled(tree);
    target.n = tree->n_path - target.first;
    draft.first = sb_prefix_n_drafted(tree);
    draft.n = p->draft ? smaller(tree->n_path, draft.columns / SB_PREFIX_BLOCK) - draft.first : 0;
    SB_TRY(copy_columns(p, &target));
    if (p->draft)
        SB_TRY(copy_columns(p, &draft));
    for (int32_t i = 0; i < target.n; i++)
        tree->nodes[tree->path[target.first + i]].filled = 1;
    for (int32_t i = 0; i < draft.n; i++)
        tree->nodes[tree->path[draft.first + i]].drafted = 1;
    p->stats[SB_STAT_prefix_blocks] += (uint64_t)target.n;
    p->stats[SB_STAT_prefix_evictions] = tree->n_evicted;
done:
    sb_prefix_close(tree);
    return rc;
}

int32_t sb_prefix_open_longest(struct sb_prefix *p, const int32_t *ids, int32_t n_ids,
                               int32_t *spanned)
{
    const int32_t span = p->target->limits.span, n = n_ids / SB_PREFIX_BLOCK;
    struct sb_prefix_tree *tree = &p->tree;
    int32_t longest = 0;

    *spanned = 0;
    for (int32_t tried = 0; tried <= n_ids; tried += span) {
        sb_prefix_open(tree, ids, n, tried);
        if (n_filled(tree) >= longest) {
            longest = n_filled(tree);
            *spanned = tried;
        }
        sb_prefix_close(tree);
        if (span == 0)
            break;
    }
    sb_prefix_open(tree, ids, longest, *spanned);
    return longest;
}

/* --------------------------------------------------------------------- pins */

/* Opens the whole path of n blocks, with new nodes for those that are missing, or fails and changes
 * nothing. */
static int32_t reserve(struct sb_prefix_tree *tree, const int32_t *ids, int32_t n, int32_t spanned)
{
    const int32_t missing = n - sb_prefix_open(tree, ids, n, spanned);
    const int32_t left = tree->n_free + tree->n_listed;

    if (missing > left) {
        sb_prefix_close(tree);
        return sb_fail(SPECBATCH_E_BUDGET,
                       "the prefix needs %d more blocks of %d tokens, and %d of %d are not pinned",
                       missing, SB_PREFIX_BLOCK, left, tree->n_blocks);
    }
    sb_prefix_extend(tree, ids, n, spanned);
    return SPECBATCH_OK;
}

/* Makes room for one more pin. */
static int32_t reserve_pin(struct sb_prefix *p)
{
    struct sb_prefix_pin *pins, *old = p->pins;
    int32_t rc = SPECBATCH_OK;

    if (p->n_pins < p->pins_capacity)
        return rc;
    SB_NEW(pins, sb_grow_apart(&p->mem, old, &p->pins_capacity, p->n_pins + 1, sizeof *pins),
           "a pin");
    p->pins = pins;
    sb_free(&p->mem, old);
done:
    return rc;
}

int32_t sb_prefix_pin(struct sb_prefix *p, const int32_t *ids, size_t n_ids, int32_t max_len,
                      uint64_t *pin)
{
    const int32_t span = p->target->limits.span;
    struct sb_prefix_tree *tree = &p->tree;
    int32_t n, rc = SPECBATCH_OK;

    if (tree->n_blocks == 0)
        SB_FAIL(SPECBATCH_E_INVALID, "the pool was created without prefix_bytes");
    if (n_ids < SB_PREFIX_BLOCK || n_ids > (size_t)max_len)
        SB_FAIL(SPECBATCH_E_INVALID, "the prefix has %zu tokens, outside %d..%d", n_ids,
                SB_PREFIX_BLOCK, (int)max_len);
    n = (int32_t)n_ids / SB_PREFIX_BLOCK;
    SB_TRY(reserve_pin(p));
    SB_TRY(reserve(tree, ids, n, span > 0 ? (int32_t)n_ids / span * span : 0));
    *pin = ++p->last_pin;
    p->pins[p->n_pins++] = (struct sb_prefix_pin){.id = *pin, .last = sb_prefix_keep_open(tree)};
    p->stats[SB_STAT_prefix_evictions] = tree->n_evicted;
done:
    return rc;
}

int32_t sb_prefix_unpin(struct sb_prefix *p, uint64_t pin)
{
    for (size_t i = 0; i < p->n_pins; i++)
        if (p->pins[i].id == pin) {
            sb_prefix_let_go(&p->tree, p->pins[i].last);
            p->pins[i] = p->pins[--p->n_pins];
            return SPECBATCH_OK;
        }
    return sb_fail(SPECBATCH_E_NOT_FOUND, "pin %llu is unknown", (unsigned long long)pin);
}
