/*
 * Prompts of lengths around those from which on cuDNN computes spans (src/backend/cuda/prefill.h),
 * long ones beside short ones, and the contract over them: any policy, batch and chunk size gives
 * the tokens and log-probabilities of one prompt at a time.
 */
#ifndef LONG_PROMPTS_H
#define LONG_PROMPTS_H

#include <stdio.h>
#include <string.h>

#include "specbatch.h"
#include "support/drafts.h"

enum { NEW = 8, MOST = 740, PROMPTS = 6 };
static const int32_t lengths[PROMPTS] = {700, 30, 513, 256, 257, 300};
static const int32_t spans[PROMPTS] = {2, 0, 2, 0, 1, 1};

struct answer {
    int32_t tokens[NEW];
    float logprobs[NEW];
};

static inline specbatch_request request_of(int32_t prompt)
{
    static int32_t ids[PROMPTS][MOST];
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    for (int32_t i = 0; i < lengths[prompt]; i++)
        ids[prompt][i] = (int32_t)(((uint32_t)(i + 1) * 2654435761u ^ (uint32_t)prompt * 40503u) >>
                                   7) %
                         517;
    request.ids = ids[prompt];
    request.n_ids = (size_t)lengths[prompt];
    request.max_new = NEW;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS;
    return request;
}

static inline specbatch_pool_options pool_options(int32_t policy, int32_t batch, int32_t chunk)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.policy = policy;
    options.batch = batch;
    options.draft_len = policy == SPECBATCH_POLICY_PLAIN ? -1 : 3;
    options.max_len = MOST;
    options.prefill_chunk = chunk;
    return options;
}

static inline int32_t collect_all(specbatch_pool *pool, struct answer *answers)
{
    specbatch_result *result;
    int32_t rc;

    while ((rc = specbatch_pool_collect(pool, &result)) == SPECBATCH_OK) {
        size_t n;
        struct answer *answer = &answers[specbatch_result_id(result) - 1];
        memcpy(answer->tokens, specbatch_result_tokens(result, &n), sizeof answer->tokens);
        memcpy(answer->logprobs, specbatch_result_logprobs(result, NULL), sizeof answer->logprobs);
        specbatch_result_free(result);
    }
    return rc == SPECBATCH_E_EMPTY ? SPECBATCH_OK : rc;
}

/* Runs prompts [first, first + n) in one pool; answers[i] is that of prompt first + i. The model is
 * its own draft. */
static inline int32_t run(specbatch_model *model, const specbatch_pool_options *options,
                          int32_t first, int32_t n, struct answer *answers)
{
    specbatch_pool *pool = NULL;
    size_t active = 1;
    int32_t rc = create_with_model(&pool, model, options->draft_len > 0 ? model : NULL, options);

    for (int32_t i = 0; rc == SPECBATCH_OK && i < n; i++) {
        const specbatch_request request = request_of(first + i);
        rc = specbatch_pool_submit(pool, &request, NULL);
    }
    while (rc == SPECBATCH_OK && active)
        rc = specbatch_pool_step(pool, &active);
    if (rc == SPECBATCH_OK)
        rc = collect_all(pool, answers);
    specbatch_pool_free(pool);
    return rc;
}

static inline int32_t run_plainly(specbatch_model *model, struct answer answers[PROMPTS])
{
    const specbatch_pool_options options = pool_options(SPECBATCH_POLICY_PLAIN, 1, 0);
    int32_t rc = SPECBATCH_OK;

    memset(answers, 0, PROMPTS * sizeof *answers);
    for (int32_t i = 0; rc == SPECBATCH_OK && i < PROMPTS; i++)
        rc = run(model, &options, i, 1, &answers[i]);
    return rc;
}

/* Whether the contract holds, where plain are the answers of run_plainly; if not, `why` says
 * where. */
static inline int long_prompts_hold(specbatch_model *model, const struct answer plain[PROMPTS],
                                    char *why, size_t why_size)
{
    static const struct {
        int32_t policy, batch, chunk;
    } ways[] = {
        {SPECBATCH_POLICY_PLAIN, 3, 1},    {SPECBATCH_POLICY_RAGGED, 6, 600},
        {SPECBATCH_POLICY_RAGGED, 2, 256}, {SPECBATCH_POLICY_EQSPEC, 3, 100},
        {SPECBATCH_POLICY_EXSPEC, 2, 700}, {SPECBATCH_POLICY_ROLLBACK, 4, 257},
    };
    struct answer got[PROMPTS];

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const specbatch_pool_options options = pool_options(ways[i].policy, ways[i].batch,
                                                            ways[i].chunk);
        int32_t rc;
        memset(got, 0, sizeof got);
        rc = run(model, &options, 0, PROMPTS, got);
        for (int32_t p = 0; p < PROMPTS; p++)
            if (rc != SPECBATCH_OK || memcmp(&got[p], &plain[p], sizeof got[p]) != 0) {
                snprintf(why, why_size,
                         "policy %d, batch %d, chunk %d: prompt %d is not plain's (%s)",
                         (int)ways[i].policy, (int)ways[i].batch, (int)ways[i].chunk, (int)p,
                         specbatch_status_name(rc));
                return 0;
            }
    }
    return 1;
}

#endif
