/*
 * What tests of the pool start from: options of a pool that runs to its end in a moment, the pair
 * of models to run it on, and a request.
 */
#ifndef SB_TEST_SMALL_POOL_H
#define SB_TEST_SMALL_POOL_H

#include "pool/pool.h"
#include "support/drafts.h"
#include "support/run_to_end.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"
#define DRAFT TARGET ".draft"

static specbatch_model *target;
static specbatch_draft *draft;
static const int32_t prompt[] = {5, 17, 300, 41, 5, 99, 210};
enum { N_PROMPT = 7 };

/* Opens both. Returns 0, or -1 with the library's last error set. */
static inline int open_pair(void)
{
    specbatch_model *small = NULL;

    if (specbatch_model_open(&target, TARGET, NULL) == SPECBATCH_OK &&
        specbatch_model_open(&small, DRAFT, NULL) == SPECBATCH_OK)
        draft = draft_of(small);
    specbatch_model_close(small);
    return draft ? 0 : -1;
}

static inline void close_pair(void)
{
    specbatch_draft_release(draft);
    specbatch_model_close(target);
}

static inline specbatch_pool_options small_options(int32_t policy)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.policy = policy;
    options.batch = 4;
    options.max_len = 128;
    options.n_threads = 1;
    options.flags = SPECBATCH_POOL_FIXED_K;
    return options;
}

static inline specbatch_request small_request(int32_t max_new)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = prompt;
    request.n_ids = N_PROMPT;
    request.max_new = max_new;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    return request;
}

/* Collects the next result, which the caller frees; NULL when there is none. */
static inline specbatch_result *take(specbatch_pool *pool)
{
    specbatch_result *result = NULL;

    return specbatch_pool_collect(pool, &result) == SPECBATCH_OK ? result : NULL;
}

static inline uint64_t stat(const specbatch_pool *pool, const char *name)
{
    uint64_t value = UINT64_MAX;

    specbatch_pool_stat(pool, name, &value);
    return value;
}

/* Makes the deadline of a request be over, which has one. */
static inline void expire(specbatch_pool *pool, uint64_t id)
{
    struct sb_seq *seq = sb_idmap_find(&pool->by_id, id);

    sb_queue_remove(&pool->deadlines, seq);
    seq->queued[SB_BY_DEADLINE].key = 0;
    sb_queue_add(&pool->deadlines, seq);
}

#endif
