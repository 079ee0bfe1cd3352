/* Compares a draft's cache with a fresh prefill; see draft_check.h. */
#include "support/draft_check.h"

#include <stdio.h>
#include <string.h>

#include "pool/pool.h"
#include "support/drafts.h"

/* A plain pool that runs the draft model as its target and has decoded one token after
 * tokens[0..n): where its only request had its slot, the cache holds the entries of those n
 * tokens. */
static specbatch_pool *fresh_prefill(specbatch_model *model, const int32_t *tokens, int32_t n)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_pool *pool = NULL;
    size_t active = 1;

    options.policy = SPECBATCH_POLICY_PLAIN;
    options.batch = options.n_threads = 1;
    request.ids = tokens;
    request.n_ids = (size_t)n;
    request.max_new = 1;
    if (specbatch_pool_create(&pool, model, NULL, &options) ||
        specbatch_pool_submit(pool, &request, NULL))
        return pool;
    while (active && specbatch_pool_step(pool, &active) == SPECBATCH_OK)
        continue;
    return pool;
}

/* Compares every plane, head and column of one sequence's entries in the draft's cache with the
 * fresh ones. */
static int entries_differ(const struct sb_kv *got, const struct sb_seq *seq,
                          const struct specbatch_pool *fresh, char *why, size_t size)
{
    const struct sb_kv *kv = &fresh->runner.kv;
    const struct sb_seq *alone = fresh->finished;

    for (int32_t plane = 0; plane < 2 * got->layers; plane++)
        for (int32_t h = 0; h < got->kv_heads; h++)
            for (int32_t p = 0; p < seq->draft_kv_len; p++) {
                const int64_t a = plane * got->plane_stride + sb_kv_base(got, seq->at) +
                                  ((int64_t)h * seq->cap + seq->start + p) * got->head_dim;
                const int64_t b = plane * kv->plane_stride + sb_kv_base(kv, alone->at) +
                                  ((int64_t)h * alone->cap + p) * got->head_dim;
                if (memcmp(got->planes + (size_t)a * got->element_bytes,
                           kv->planes + (size_t)b * got->element_bytes,
                           (size_t)got->head_dim * got->element_bytes) != 0) {
                    snprintf(why, size, "request %llu: plane %d head %d position %d of %d differs",
                             (unsigned long long)seq->id, plane, h, p, seq->draft_kv_len);
                    return 1;
                }
            }
    return 0;
}

static int residents_differ(specbatch_pool *pool, char *why, size_t size)
{
    const struct sb_residents *all = &pool->sched.residents;

    for (int32_t at = sb_oldest(all, SB_ALL); at >= 0; at = sb_next(all, SB_ALL, at)) {
        const struct sb_seq *seq = all->seq[at];
        specbatch_pool *fresh;
        int differs;
        if (seq->draft_kv_len == 0)
            continue;
        fresh = fresh_prefill(pool->draft->runner->model, seq->tokens,
                              seq->draft_kv_len < seq->n_tokens ? seq->draft_kv_len
                                                                : seq->n_tokens);
        differs = !fresh || !fresh->finished ||
                  entries_differ(&pool->draft->runner->kv, seq, fresh, why, size);
        specbatch_pool_free(fresh);
        if (differs)
            return 1;
    }
    return 0;
}

int draft_cache_differs(specbatch_model *target, specbatch_model *draft,
                        const struct trace_prompt *prompt, char *why, size_t size)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;
    size_t active = 1;
    int differs = 0;

    snprintf(why, size, "setup");
    options.policy = SPECBATCH_POLICY_EQSPEC;
    options.batch = 2;
    options.draft_len = 4;
    options.flags = SPECBATCH_POOL_FIXED_K;
    options.n_threads = 2;
    if (create_with_model(&pool, target, draft, &options))
        return 1;
    for (int i = 0; i < 2 && !differs; i++) {
        specbatch_request request = SPECBATCH_REQUEST_INIT;
        request.ids = prompt->ids;
        request.n_ids = (size_t)(i == 0 ? prompt->n : 1);
        request.max_new = 32;
        request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
        differs = specbatch_pool_submit(pool, &request, NULL) != SPECBATCH_OK;
    }
    while (!differs && active)
        differs = specbatch_pool_step(pool, &active) != SPECBATCH_OK ||
                  residents_differ(pool, why, size);
    specbatch_pool_free(pool);
    return differs;
}
