/* Pools with a draft that only they hold: made of a model, of the text, or of functions. */
#ifndef SB_TEST_DRAFTS_H
#define SB_TEST_DRAFTS_H

#include "specbatch.h"

/* A draft from a model, or NULL with the library's last error set. */
static inline specbatch_draft *draft_of(specbatch_model *model)
{
    specbatch_draft *draft = NULL;

    return specbatch_draft_from_model(&draft, model) == SPECBATCH_OK ? draft : NULL;
}

/* A pool that alone holds `draft`; NULL: it has none. `made` is the status of making the draft. */
static inline int32_t create_with(specbatch_pool **pool, specbatch_model *target, int32_t made,
                                  specbatch_draft *draft, const specbatch_pool_options *options)
{
    const int32_t rc = made ? made : specbatch_pool_create(pool, target, draft, options);

    specbatch_draft_release(draft);
    return rc;
}

/* A pool whose draft is `model`; NULL: none. */
static inline int32_t create_with_model(specbatch_pool **pool, specbatch_model *target,
                                        specbatch_model *model,
                                        const specbatch_pool_options *options)
{
    specbatch_draft *draft = NULL;
    const int32_t made = model ? specbatch_draft_from_model(&draft, model) : SPECBATCH_OK;

    return create_with(pool, target, made, draft, options);
}

/* A pool whose draft has these functions. */
static inline int32_t create_with_ops(specbatch_pool **pool, specbatch_model *target,
                                      const specbatch_draft_ops *ops,
                                      const specbatch_pool_options *options)
{
    specbatch_draft *draft = NULL;
    const int32_t made = specbatch_draft_from_ops(&draft, ops);

    return create_with(pool, target, made, draft, options);
}

/* A pool whose draft is the text itself. */
static inline int32_t create_with_ngrams(specbatch_pool **pool, specbatch_model *target,
                                         const specbatch_ngram_options *ngrams,
                                         const specbatch_pool_options *options)
{
    specbatch_draft *draft = NULL;
    const int32_t made = specbatch_draft_from_ngrams(&draft, ngrams);

    return create_with(pool, target, made, draft, options);
}

/* Functions that only propose. */
static inline specbatch_draft_ops only_propose(
    int32_t (*propose)(void *, specbatch_draft_row *const *, size_t), void *user)
{
    specbatch_draft_ops ops = SPECBATCH_DRAFT_OPS_INIT;

    ops.propose = propose;
    ops.user = user;
    return ops;
}

#endif
