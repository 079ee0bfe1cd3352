/*
 * What tests of the prefix cache start from: texts that share their beginnings, pools whose cache
 * has a number of blocks, and a model of the CPU whose prompts have spans.
 */
#ifndef SB_TEST_PREFIX_POOL_H
#define SB_TEST_PREFIX_POOL_H

#include "sbtest.h"
#include "support/small_pool.h"

enum { VOCAB = 500, LONGEST = 250, MAX_NEW = 20, CHUNK = 48, BLOCK = SB_PREFIX_BLOCK };

/* The first n tokens of a text. Texts 2 t and 2 t + 1 agree in their first 40 tokens: in one block
 * and a part of the next. */
static inline void write_text(int32_t *ids, int32_t text, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        ids[i] = (i * 37 + (i < 40 ? text / 2 * 2 : text) * (i + 11) * 13 + i * i) % VOCAB;
}

static inline specbatch_request request_of(const int32_t *ids, int32_t n)
{
    specbatch_request request = small_request(MAX_NEW);

    request.ids = ids;
    request.n_ids = (size_t)n;
    request.flags |= SPECBATCH_REQUEST_LOGPROBS;
    return request;
}

/* Bytes of a block in a pool without a draft that has a cache, or with that of the pair. */
static inline uint64_t block_bytes(specbatch_draft *with)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool = NULL;
    uint64_t bytes = 0;

    if (specbatch_pool_create(&pool, target, with, &options) == SPECBATCH_OK)
        bytes = BLOCK * (sb_kv_column_bytes(&pool->runner.kv) +
                         (pool->draft->runner ? sb_kv_column_bytes(&pool->draft->runner->kv) : 0));
    specbatch_pool_free(pool);
    return bytes;
}

/* A pool of batch 2 whose cache has n blocks. */
static inline specbatch_pool *create(int32_t policy, uint32_t flags, specbatch_draft *with,
                                     int32_t n)
{
    specbatch_pool_options options = small_options(policy);
    specbatch_pool *pool = NULL;

    options.batch = 2;
    options.max_len = 300;
    options.prefill_chunk = CHUNK;
    options.draft_len = 3;
    options.flags |= flags;
    options.prefix_bytes = (uint64_t)n *
                           block_bytes(policy == SPECBATCH_POLICY_PLAIN ? NULL : with);
    return specbatch_pool_create(&pool, target, with, &options) == SPECBATCH_OK ? pool : NULL;
}

static inline specbatch_pool *plain_pool(int32_t n)
{
    return create(SPECBATCH_POLICY_PLAIN, 0, NULL, n);
}

/* Submits the first n tokens of a text. */
static inline int32_t submit(specbatch_pool *pool, int32_t text, int32_t n, uint64_t *id)
{
    int32_t ids[LONGEST];
    specbatch_request request = request_of(ids, n);

    write_text(ids, text, n);
    return specbatch_pool_submit(pool, &request, id);
}

/* Runs that alone to its end, and tells how many of its tokens were found. */
static inline uint64_t found(specbatch_pool *pool, int32_t text, int32_t n)
{
    const uint64_t before = stat(pool, "prefix_tokens");

    if (submit(pool, text, n, NULL) != SPECBATCH_OK || run_to_end(pool) != SPECBATCH_OK)
        return UINT64_MAX;
    specbatch_result_free(take(pool));
    return stat(pool, "prefix_tokens") - before;
}

/* Attention that gives tokens of a span other results than tokens outside: a sign is changed. The
 * class F32 of the CPU has floats as gemm inputs. */
static inline void attend_by_spans(struct sb_exec *exec, void *y, const float *qkv,
                                   const struct sb_attention *attention, const struct sb_pass *pass)
{
    const struct sb_backend *be = sb_backend_cpu();
    const size_t row = be->input_bytes(target->device, attention->heads * attention->head_dim);

    be->attend(exec, y, qkv, attention, pass);
    for (int32_t i = 0; i < pass->n_spans; i++)
        for (int32_t t = 0; t < target->span; t++) {
            float *first = (void *)((char *)y + (size_t)(pass->spans[i].first + t) * row);
            *first = -*first;
        }
}

/* Runs a test on a model of the class F32 with spans of so many tokens. */
static inline void with_spans(int32_t span, void (*test)(void))
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct sb_backend backend = *sb_backend_cpu();
    specbatch_model *other = target;

    options.compute = SPECBATCH_COMPUTE_F32;
    CHECK_OK(specbatch_model_open(&target, TARGET, &options));
    backend.attend = attend_by_spans;
    target->backend = &backend;
    target->span = span;
    test();
    specbatch_model_close(target);
    target = other;
}

#endif
