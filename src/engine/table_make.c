/*
 * Making tables of n-grams.
 *
 * The positions of a text are sorted by the tokens before them, one more with each n. A counting
 * sort that keeps the order of equals adds a token in time that is linear in the text:
 *
 *   sorted by t[p]                       then, for n = 1, by t[p - 1]
 *                                        then, for n = 2, by t[p - 2], and so on
 *
 * After the sort for n, positions with the same n tokens before them lie together, in the order of
 * those tokens, and among them those with the same token lie together. So contexts, their counts
 * and those of what follows are all runs, and entries come out sorted. Rejected: hash tables of
 * counts, which take ten times the memory of two arrays of positions, most of it for n-grams that
 * occur once.
 */
#include "engine/table.h"
#include "status.h"

struct counting {
    struct sb_ngram_table *table;
    const int32_t *ids;
    const specbatch_table_options *options;
    uint32_t *positions, *sorted; /* [n ids] */
    uint32_t *starts;             /* [ids + 1] of the buckets of a sort */
    size_t n_positions;
};

/* Sorts the positions by the token `back` before each; those without one are dropped. */
static void sort_by(struct counting *c, uint32_t back)
{
    uint32_t *const old = c->positions;
    const size_t n_buckets = (size_t)c->table->n_ids;
    size_t n = 0;

    for (size_t i = 0; i <= n_buckets; i++)
        c->starts[i] = 0;
    for (size_t i = 0; i < c->n_positions; i++)
        if (old[i] >= back) {
            c->starts[c->ids[old[i] - back] + 1]++;
            n++;
        }
    for (size_t i = 0; i < n_buckets; i++)
        c->starts[i + 1] += c->starts[i];
    for (size_t i = 0; i < c->n_positions; i++)
        if (old[i] >= back)
            c->sorted[c->starts[c->ids[old[i] - back]]++] = old[i];
    c->positions = c->sorted;
    c->sorted = old;
    c->n_positions = n;
}

/* Whether the n tokens before two positions are the same. */
static int same_context(const struct counting *c, uint32_t a, uint32_t b, uint32_t n)
{
    for (uint32_t i = 1; i <= n; i++)
        if (c->ids[a - i] != c->ids[b - i])
            return 0;
    return 1;
}

/* The end of the run of positions that begins at i and has the same n tokens before, or the same
 * token besides. */
static size_t run_end(const struct counting *c, size_t i, size_t end, uint32_t n, int same_token)
{
    const uint32_t *p = c->positions;
    size_t j = i + 1;

    while (j < end && (same_token ? c->ids[p[j]] == c->ids[p[i]] : same_context(c, p[j], p[i], n)))
        j++;
    return j;
}

/* Adds an entry: the n tokens before position p, and what follows them. */
static int32_t add_entry(struct sb_ngram_table *table, const int32_t *end, int32_t n, int32_t next)
{
    const size_t size = (size_t)n + 1;
    int32_t *grown;

    if (table->n_words > (size_t)INT32_MAX * 8 - size || table->n[n] == INT32_MAX)
        return sb_fail(SPECBATCH_E_NOMEM, "a table of n-grams: too many entries");
    grown = sb_grow(&table->mem, table->words, &table->capacity, table->n_words + size,
                    sizeof *grown);
    if (!grown)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for a table of n-grams");
    table->words = grown;
    for (int32_t i = 0; i < n; i++)
        grown[table->n_words + (size_t)i] = end[i - n];
    grown[table->n_words + (size_t)n] = next;
    table->n_words += size;
    table->n[n]++;
    return SPECBATCH_OK;
}

/* The positions from `from` on, up to `to`, have the same n tokens before them. */
static int32_t add_context(struct counting *c, size_t from, size_t to, int32_t n)
{
    const int32_t *end = c->ids + c->positions[from];
    size_t most = 0;
    int32_t best = -1;

    if (to - from < (size_t)c->options->min_count)
        return SPECBATCH_OK;
    for (size_t i = from, j; i < to; i = j) {
        j = run_end(c, i, to, 0, 1);
        if (j - i > most) {
            most = j - i;
            best = c->ids[c->positions[i]];
        }
    }
    if (sb_ngram_table_next(c->table, end, n - 1) == best)
        return SPECBATCH_OK;
    return add_entry(c->table, end, n, best);
}

static int32_t count_all(struct counting *c)
{
    int32_t rc = SPECBATCH_OK;

    sort_by(c, 0);
    for (int32_t n = 1; n <= c->table->max_match; n++) {
        c->table->at[n] = c->table->n_words;
        sort_by(c, (uint32_t)n);
        for (size_t i = 0, j; n >= c->options->min_match && i < c->n_positions; i = j) {
            j = run_end(c, i, c->n_positions, (uint32_t)n, 0);
            SB_TRY(add_context(c, i, j, n));
        }
    }
done:
    return rc;
}

int32_t sb_ngram_table_count(struct sb_ngram_table *table, const int32_t *ids, size_t n,
                             const specbatch_table_options *options)
{
    struct counting c = {.table = table, .ids = ids, .options = options, .n_positions = n};
    int32_t rc = SPECBATCH_OK;

    table->max_match = options->max_match;
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= table->n_ids)
            table->n_ids = ids[i] + 1;
    SB_NEW(c.positions, sb_alloc_raw(&table->mem, n, sizeof *c.positions), "a table of n-grams");
    SB_NEW(c.sorted, sb_alloc_raw(&table->mem, n, sizeof *c.sorted), "a table of n-grams");
    SB_NEW(c.starts, sb_alloc_raw(&table->mem, (size_t)table->n_ids + 1, sizeof *c.starts),
           "a table of n-grams");
    for (size_t i = 0; i < n; i++)
        c.positions[i] = (uint32_t)i;
    SB_TRY(count_all(&c));
done:
    sb_free(&table->mem, c.positions);
    sb_free(&table->mem, c.sorted);
    sb_free(&table->mem, c.starts);
    return rc;
}
