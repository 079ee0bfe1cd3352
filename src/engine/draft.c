/* What all drafts share: the references to a source, the notice that a sequence has ended, and the
 * draft that never proposes. */
#include "engine/draft.h"

#include "options.h"
#include "status.h"

/* ---------------------------------------------------------------- sources */

void sb_source_init(struct specbatch_draft *source, const struct sb_source_ops *ops,
                    const struct sb_mem *mem)
{
    source->ops = ops;
    source->mem = *mem;
    atomic_init(&source->references, 1);
    source->n_sources = 1;
}

int32_t sb_source_check_bits(const struct specbatch_draft *source, uint32_t bits)
{
    const uint32_t known = source ? UINT32_MAX >> (32 - source->n_sources) : UINT32_MAX;

    return sb_check_flags(SPECBATCH_E_OPTIONS, "request", "draft_sources", bits, known);
}

void sb_source_retain(struct specbatch_draft *source)
{
    if (source)
        atomic_fetch_add_explicit(&source->references, 1, memory_order_relaxed);
}

/* The thread that drops the last reference must see all that other threads have done with the
 * source: hence acquire and release. */
void sb_source_release(struct specbatch_draft *source)
{
    if (source && atomic_fetch_sub_explicit(&source->references, 1, memory_order_acq_rel) == 1)
        source->ops->free(source);
}

/* ----------------------------------------------------------------- drafts */

/* The mark is taken off first: if the host's code does not return, it has been told all the same.
 */
void sb_draft_retire(struct sb_draft *draft, struct sb_seq *seq)
{
    if (!seq->shown)
        return;
    seq->shown = 0;
    draft->ops->retire(draft, seq);
}

void sb_draft_free(struct sb_draft *draft)
{
    if (draft)
        draft->ops->free(draft);
}

static int32_t none_prepare(struct sb_draft *draft, struct sb_round *round)
{
    (void)draft;
    for (int32_t b = 0; b < round->n_rows; b++)
        round->rows[b].n_draft = 0;
    return SPECBATCH_OK;
}

static void none_free(struct sb_draft *draft)
{
    const struct sb_mem mem = draft->mem;

    sb_free(&mem, draft);
}

static const struct sb_draft_ops none_ops = {none_prepare, NULL, NULL, none_free};

int32_t sb_draft_create_none(struct sb_draft **out, const struct sb_mem *mem)
{
    struct sb_draft *draft = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(draft, sb_alloc(mem, 1, sizeof *draft), "a draft");
    *draft = (struct sb_draft){.ops = &none_ops, .mem = *mem};
    *out = draft;
done:
    return rc;
}
