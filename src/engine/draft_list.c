/*
 * The draft made of several others, which are asked in turn.
 *
 * A row of a round gets the proposals of the first source that has any for it. While a source is
 * asked, the rows that an earlier one has served ask for nothing, so it leaves them alone:
 *
 *                      row 0    row 1    row 2
 *   asked of the list    5        5        0       what the scheduler asks for
 *   n-grams: asked       5        5        0
 *            made        5        0        0
 *   model:   asked       0        5        0       its passes have row 1 only
 *            made        0        5        0
 *
 * So a model runs for the rows that nothing else has served, and its cache falls behind in the
 * others and catches up when it is asked for them again, as it does after rounds without proposals.
 *
 * A source may fail after a model has prepared, whose lengths then count entries that its passes
 * have yet to compute. The round is repeated in that case, so the lengths are put back.
 *
 * Rejected: asking all sources and taking the longest proposals, which costs what the dearest of
 * them costs. Rejected too: lists within lists, for a flat list can say the same.
 */
#include "engine/draft.h"

#include "status.h"

enum { SOURCES_MAX = 32 };

/* ------------------------------------------------------------ a pool's draft */

struct list_row {
    int32_t asked, made;
    int32_t draft_kv_len;   /* of its sequence, before any source was asked */
    uint32_t draft_sources; /* the same, less those that gave it up meanwhile */
};

struct list_draft {
    struct sb_draft base;
    int32_t n;
    struct sb_draft *drafts[SOURCES_MAX]; /* the pool's draft of each source */
    struct list_row *rows;                /* [batch] */
};

static void remember_rows(struct list_draft *draft, const struct sb_round *round)
{
    for (int32_t b = 0; b < round->n_rows; b++) {
        const struct sb_seq *seq = round->rows[b].seq;
        draft->rows[b] = (struct list_row){.asked = round->rows[b].n_draft,
                                           .draft_kv_len = seq->draft_kv_len,
                                           .draft_sources = seq->draft_sources};
    }
}

/* Source i has given up this row's sequence, as if it were the only one. The others may still be
 * asked. */
static void leave_out(struct list_draft *draft, const struct sb_round *round, int32_t b, int32_t i)
{
    struct list_row *row = &draft->rows[b];

    row->draft_sources &= UINT32_MAX >> (32 - draft->n) & ~(UINT32_C(1) << i);
    round->rows[b].seq->draft_sources = row->draft_sources;
}

/* Asks source i for the rows that have no proposals yet and may have some of it. */
static int32_t ask(struct list_draft *draft, struct sb_round *round, int32_t i)
{
    struct sb_draft *one = draft->drafts[i];
    int32_t n_asked = 0, rc;

    for (int32_t b = 0; b < round->n_rows; b++) {
        const struct list_row *row = &draft->rows[b];
        const int asks = row->made == 0 && (row->draft_sources >> i & 1);
        round->rows[b].n_draft = asks ? row->asked : 0;
        n_asked += round->rows[b].n_draft;
    }
    if (n_asked == 0)
        return SPECBATCH_OK;
    rc = one->ops->prepare(one, round);
    for (int32_t b = 0; b < round->n_rows; b++) {
        draft->rows[b].made += rc == SPECBATCH_OK ? round->rows[b].n_draft : 0;
        if (round->rows[b].seq->draft_sources == 0 && draft->rows[b].draft_sources != 0)
            leave_out(draft, round, b, i);
    }
    return rc;
}

/* What the sources have counted so far. */
static void add_up(struct list_draft *draft)
{
    struct sb_draft *all = &draft->base;

    all->passes = all->caught_up = all->catch_up_ns = all->waited_ns = 0;
    for (int32_t i = 0; i < draft->n; i++) {
        all->passes += draft->drafts[i]->passes;
        all->caught_up += draft->drafts[i]->caught_up;
        all->catch_up_ns += draft->drafts[i]->catch_up_ns;
        all->waited_ns += draft->drafts[i]->waited_ns;
    }
}

static int32_t list_prepare(struct sb_draft *base, struct sb_round *round)
{
    struct list_draft *draft = (struct list_draft *)base;
    int32_t rc = SPECBATCH_OK;

    remember_rows(draft, round);
    for (int32_t i = 0; i < draft->n && rc == SPECBATCH_OK; i++)
        rc = ask(draft, round, i);
    for (int32_t b = 0; b < round->n_rows; b++) {
        round->rows[b].n_draft = draft->rows[b].made;
        if (rc != SPECBATCH_OK)
            round->rows[b].seq->draft_kv_len = draft->rows[b].draft_kv_len;
    }
    add_up(draft);
    return rc;
}

static int32_t list_issue(struct sb_draft *base, struct sb_round *round)
{
    const struct list_draft *draft = (const struct list_draft *)base;
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < draft->n && rc == SPECBATCH_OK; i++)
        if (draft->drafts[i]->ops->issue)
            rc = draft->drafts[i]->ops->issue(draft->drafts[i], round);
    return rc;
}

static void list_retire(struct sb_draft *base, const struct sb_seq *seq)
{
    const struct list_draft *draft = (const struct list_draft *)base;

    for (int32_t i = 0; i < draft->n; i++)
        if (draft->drafts[i]->ops->retire)
            draft->drafts[i]->ops->retire(draft->drafts[i], seq);
}

static void list_free(struct sb_draft *base)
{
    struct list_draft *draft = (struct list_draft *)base;
    const struct sb_mem mem = base->mem;

    for (int32_t i = 0; i < draft->n; i++)
        sb_draft_free(draft->drafts[i]);
    sb_free(&mem, draft->rows);
    sb_free(&mem, draft);
}

static const struct sb_draft_ops list_ops = {list_prepare, list_issue, list_retire, list_free};

/* ------------------------------------------------------------------ a source */

struct list_source {
    struct specbatch_draft base;
    struct specbatch_draft *sources[SOURCES_MAX]; /* references; base.n_sources of them */
};

static int32_t source_check(const struct specbatch_draft *base,
                            const struct specbatch_model *target)
{
    const struct list_source *list = (const struct list_source *)base;
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < base->n_sources && rc == SPECBATCH_OK; i++)
        if (list->sources[i]->ops->check)
            rc = list->sources[i]->ops->check(list->sources[i], target);
    return rc;
}

static int32_t source_bytes(const struct specbatch_draft *base,
                            const struct sb_draft_limits *limits, uint64_t *cache, uint64_t *work)
{
    const struct list_source *list = (const struct list_source *)base;
    int32_t rc = SPECBATCH_OK;

    *cache = 0;
    *work = (uint64_t)limits->batch * sizeof(struct list_row);
    for (int32_t i = 0; i < base->n_sources; i++) {
        uint64_t its_cache, its_work;
        SB_TRY(list->sources[i]->ops->bytes(list->sources[i], limits, &its_cache, &its_work));
        *cache += its_cache;
        *work += its_work;
    }
done:
    return rc;
}

static int32_t source_create(struct sb_draft **out, const struct specbatch_draft *base,
                             const struct sb_runner *target, const struct sb_mem *mem,
                             const struct sb_draft_limits *limits)
{
    const struct list_source *list = (const struct list_source *)base;
    struct list_draft *draft = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(draft, sb_alloc(mem, 1, sizeof *draft), "a draft");
    draft->base = (struct sb_draft){.ops = &list_ops, .mem = *mem};
    SB_NEW(draft->rows, sb_alloc(mem, (size_t)limits->batch, sizeof *draft->rows), "a draft");
    for (; draft->n < base->n_sources; draft->n++) {
        const struct specbatch_draft *source = list->sources[draft->n];
        struct sb_draft **one = &draft->drafts[draft->n];
        SB_TRY(source->ops->create(one, source, target, mem, limits));
        if ((*one)->runner)
            draft->base.runner = (*one)->runner;
    }
    draft->base.blends = draft->base.runner != NULL && draft->n > 1;
    *out = &draft->base;
    draft = NULL;
done:
    if (draft)
        list_free(&draft->base);
    return rc;
}

/* The host's functions are released last, when nothing is left that they could leave unfreed by not
 * returning. */
static void source_free(struct specbatch_draft *base)
{
    const struct list_source list = *(const struct list_source *)base;
    const struct sb_mem mem = base->mem;
    struct specbatch_draft *host = NULL; /* of which a list has one at most */

    sb_free(&mem, base);
    for (int32_t i = 0; i < list.base.n_sources; i++)
        if (list.sources[i]->ops->traits & SB_SOURCE_HOST)
            host = list.sources[i];
        else
            sb_source_release(list.sources[i]);
    sb_source_release(host);
}

static const struct sb_source_ops source_ops = {"list",       SB_SOURCE_LIST, source_check,
                                                source_bytes, source_create,  source_free};

/* Whether source i may be in the list, behind those before it. */
static int32_t check_source(struct specbatch_draft *const *sources, size_t i)
{
    if (!sources[i])
        return sb_fail(SPECBATCH_E_INVALID, "a list of drafts: drafts[%zu] is NULL", i);
    if (sources[i]->ops->traits & SB_SOURCE_LIST)
        return sb_fail(SPECBATCH_E_INVALID, "a list of drafts: drafts[%zu] is a list", i);
    for (size_t j = 0; j < i && sources[i]->ops->traits & SB_SOURCE_ONCE; j++)
        if (sources[j]->ops == sources[i]->ops)
            return sb_fail(SPECBATCH_E_INVALID,
                           "a list of drafts: drafts[%zu] and drafts[%zu] are both of the kind %s, "
                           "of which it may have one",
                           j, i, sources[i]->ops->name);
    return SPECBATCH_OK;
}

int32_t sb_source_from_list(struct specbatch_draft **out, struct specbatch_draft *const *sources,
                            size_t n)
{
    const struct sb_mem c_library = {NULL, NULL, NULL};
    struct list_source *list;
    int32_t rc = SPECBATCH_OK;

    if (n == 0 || n > SOURCES_MAX)
        SB_FAIL(SPECBATCH_E_INVALID, "a list of drafts: n_drafts is %zu, outside 1..%d", n,
                SOURCES_MAX);
    for (size_t i = 0; i < n; i++)
        SB_TRY(check_source(sources, i));
    SB_NEW(list, sb_alloc(&c_library, 1, sizeof *list), "a draft");
    sb_source_init(&list->base, &source_ops, &c_library);
    list->base.n_sources = (int32_t)n;
    for (size_t i = 0; i < n; i++) {
        list->sources[i] = sources[i];
        sb_source_retain(sources[i]);
    }
    *out = &list->base;
done:
    return rc;
}
