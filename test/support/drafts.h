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

/* A pool whose draft is `model`; NULL: none. */
static inline int32_t create_with_model(specbatch_pool **pool, specbatch_model *target,
                                        specbatch_model *model,
                                        const specbatch_pool_options *options)
{
    specbatch_draft *draft = NULL;
    int32_t rc = model ? specbatch_draft_from_model(&draft, model) : SPECBATCH_OK;

    if (rc == SPECBATCH_OK)
        rc = specbatch_pool_create(pool, target, draft, options);
    specbatch_draft_release(draft);
    return rc;
}

/* A pool whose draft has these functions. */
static inline int32_t create_with_ops(specbatch_pool **pool, specbatch_model *target,
                                      const specbatch_draft_ops *ops,
                                      const specbatch_pool_options *options)
{
    specbatch_draft *draft = NULL;
    int32_t rc = specbatch_draft_from_ops(&draft, ops);

    if (rc == SPECBATCH_OK)
        rc = specbatch_pool_create(pool, target, draft, options);
    specbatch_draft_release(draft);
    return rc;
}

/* A pool whose draft is the text itself. */
static inline int32_t create_with_ngrams(specbatch_pool **pool, specbatch_model *target,
                                         const specbatch_ngram_options *ngrams,
                                         const specbatch_pool_options *options)
{
    specbatch_draft *draft = NULL;
    int32_t rc = specbatch_draft_from_ngrams(&draft, ngrams);

    if (rc == SPECBATCH_OK)
        rc = specbatch_pool_create(pool, target, draft, options);
    specbatch_draft_release(draft);
    return rc;
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
