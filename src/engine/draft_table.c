/*
 * The draft made of a table of n-grams (table.h): it proposes what follows the last tokens of
 * a sequence in the texts that the table was made of, then what follows those and the proposal, and
 * so on, until the table does not say.
 *
 * The table belongs to the source, which all pools share. A pool's draft has no memory of its own:
 * what it looks up depends on the last few tokens alone.
 */
#include "engine/draft.h"
#include "engine/table.h"

#include <string.h>

#include "options.h"
#include "status.h"

/* ------------------------------------------------------------------ a source */

struct table_source {
    struct specbatch_draft base;
    struct sb_ngram_table table;
};

static int32_t source_check(const struct specbatch_draft *base,
                            const struct specbatch_model *target)
{
    const struct sb_ngram_table *table = &((const struct table_source *)base)->table;
    char digest[SB_DIGEST_TEXT];

    if (table->n_ids > target->config.vocab)
        return sb_fail(SPECBATCH_E_VOCAB,
                       "the table of n-grams has ids up to %d, the target's "
                       "vocab_size is %d",
                       table->n_ids - 1, target->config.vocab);
    sb_model_spelling_digest(target, table->n_ids, digest);
    if (*digest && *table->digest && strcmp(digest, table->digest) != 0)
        return sb_fail(SPECBATCH_E_VOCAB, "the table of n-grams was made with another tokenizer "
                                          "than the target's");
    return SPECBATCH_OK;
}

static int32_t source_bytes(const struct specbatch_draft *source,
                            const struct sb_draft_limits *limits, uint64_t *cache, uint64_t *work)
{
    (void)source, (void)limits;
    *cache = *work = 0;
    return SPECBATCH_OK;
}

/* ------------------------------------------------------------ a pool's draft */

struct table_draft {
    struct sb_draft base;
    const struct table_source *source; /* borrowed */
};

/* Proposes for one row. Returns how many. */
static int32_t propose(const struct table_source *source, const struct sb_seq *seq, int32_t k,
                       int32_t *out)
{
    int32_t text[SB_TABLE_MATCH + SB_DRAFT_LEN_MAX], n = 0;
    const int32_t known = seq->n_tokens < SB_TABLE_MATCH ? seq->n_tokens : SB_TABLE_MATCH;

    memcpy(text, seq->tokens + seq->n_tokens - known, (size_t)known * sizeof *text);
    for (; n < k; n++) {
        const int32_t next = sb_ngram_table_next(&source->table, text + known + n, known + n);
        if (next < 0)
            break;
        text[known + n] = out[n] = next;
    }
    return n;
}

static int32_t table_prepare(struct sb_draft *base, struct sb_round *round)
{
    const struct table_source *source = ((const struct table_draft *)base)->source;

    for (int32_t b = 0; b < round->n_rows; b++) {
        struct sb_round_row *row = &round->rows[b];
        row->n_draft = propose(source, row->seq, row->n_draft,
                               round->tokens + b * round->stride + 1);
        if (row->n_draft > round->n_steps)
            round->n_steps = row->n_draft;
    }
    return SPECBATCH_OK;
}

static void table_free(struct sb_draft *base)
{
    const struct sb_mem mem = base->mem;

    sb_free(&mem, base);
}

static const struct sb_draft_ops table_ops = {table_prepare, NULL, NULL, table_free};

static int32_t source_create(struct sb_draft **out, const struct specbatch_draft *base,
                             const struct sb_runner *target, const struct sb_mem *mem,
                             const struct sb_draft_limits *limits)
{
    struct table_draft *draft;
    int32_t rc = SPECBATCH_OK;

    (void)target, (void)limits;
    SB_NEW(draft, sb_alloc(mem, 1, sizeof *draft), "a draft");
    draft->base = (struct sb_draft){.ops = &table_ops, .mem = *mem};
    draft->source = (const struct table_source *)base;
    *out = &draft->base;
done:
    return rc;
}

static void source_free(struct specbatch_draft *base)
{
    const struct sb_mem mem = base->mem;

    sb_ngram_table_clear(&((struct table_source *)base)->table);
    sb_free(&mem, base);
}

static const struct sb_source_ops source_ops = {
    "table", 0, source_check, source_bytes, source_create, source_free};

int32_t sb_source_from_table(struct specbatch_draft **out, const char *path)
{
    const struct sb_mem c_library = {NULL, NULL, NULL};
    struct table_source *source = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(source, sb_alloc(&c_library, 1, sizeof *source), "a draft");
    sb_source_init(&source->base, &source_ops, &c_library);
    source->table.mem = c_library;
    SB_TRY(sb_ngram_table_read(&source->table, path));
    *out = &source->base;
    source = NULL;
done:
    if (source)
        source_free(&source->base);
    return rc;
}

/* -------------------------------------------------------------------- making */

/* Unless the options say so. */
enum { MAX_MATCH = 4, MIN_MATCH = 1, MIN_COUNT = 2 };

static int32_t resolve_making(specbatch_table_options *full, const specbatch_table_options *given)
{
    static const char what[] = "table options";
    int32_t rc;

    SB_TRY(sb_options_copy(full, sizeof *full, given, what));
    if (full->max_match == 0)
        full->max_match = full->min_match > MAX_MATCH ? full->min_match : MAX_MATCH;
    SB_TRY(sb_check_range(what, "max_match", full->max_match, 1, SB_TABLE_MATCH));
    if (full->min_match == 0)
        full->min_match = MIN_MATCH;
    SB_TRY(sb_check_range(what, "min_match", full->min_match, 1, full->max_match));
    if (full->min_count == 0)
        full->min_count = MIN_COUNT;
    SB_TRY(sb_check_range(what, "min_count", full->min_count, 1, INT32_MAX));
    SB_TRY(sb_check_flags(SPECBATCH_E_OPTIONS, what, "reserved", (uint32_t)full->reserved, 0));
done:
    return rc;
}

int32_t sb_table_make(const char *to, const struct specbatch_model *model, const int32_t *ids,
                      size_t n_ids, const specbatch_table_options *options)
{
    struct sb_ngram_table table = {.mem = model->mem};
    specbatch_table_options full;
    int32_t rc;

    SB_TRY(resolve_making(&full, options));
    if (n_ids == 0 || n_ids > INT32_MAX)
        SB_FAIL(SPECBATCH_E_INVALID, "a table of n-grams: n_ids is %zu, outside 1..%d", n_ids,
                INT32_MAX);
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= model->config.vocab)
            SB_FAIL(SPECBATCH_E_TOKEN, "a table of n-grams: id %zu is %d, not one of 0..%d", i,
                    ids[i], model->config.vocab - 1);
    SB_TRY(sb_ngram_table_count(&table, ids, n_ids, &full));
    sb_model_spelling_digest(model, table.n_ids, table.digest);
    SB_TRY(sb_ngram_table_write(&table, to));
done:
    sb_ngram_table_clear(&table);
    return rc;
}
