/*
 * What tests of sessions start from: a conversation, how it goes on in a pool that keeps nothing,
 * and pools that hold, save or load it. Models are opened where place.h says.
 */
#ifndef SB_TEST_TALK_H
#define SB_TEST_TALK_H

#include "pool/pool.h"
#include "sbtest.h"
#include "support/drafts.h"
#include "support/model_files.h"
#include "support/place.h"
#include "support/pool_check.h"
#include "support/run_to_end.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"
#define DRAFT TARGET ".draft"

enum {
    N_FIRST = 90,                /* ids of the first prompt */
    N_TALK = 120,                /* ids of the conversation: the prompt and its answer */
    N_NEXT = 125,                /* ids of the prompt that goes on with it */
    N_NEW = 24,                  /* tokens of the second answer */
    N_BLOCKS = (N_TALK - 1) / 32 /* whole blocks that the conversation leaves */
};

static specbatch_model *target;
static specbatch_draft *draft;
static struct test_dir dir;
static char path[128];
static int32_t talk[N_NEXT]; /* the conversation, and what the user says next */
static int32_t expected[N_NEW];
static float expected_logprobs[N_NEW];

static int open_pair(void)
{
    const specbatch_model_options options = place_options();
    specbatch_model *small = NULL;

    if (specbatch_model_open(&target, TARGET, &options) == SPECBATCH_OK &&
        specbatch_model_open(&small, DRAFT, &options) == SPECBATCH_OK)
        draft = draft_of(small);
    specbatch_model_close(small);
    return draft ? 0 : -1;
}

static specbatch_pool_options keeping_options(int32_t policy)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.policy = policy;
    options.batch = 4;
    options.max_len = 200;
    options.n_threads = 1;
    options.flags = SPECBATCH_POOL_FIXED_K;
    options.prefix_bytes = 1 << 20;
    return options;
}

static uint64_t counter(const specbatch_pool *pool, const char *name)
{
    uint64_t value = UINT64_MAX;

    specbatch_pool_stat(pool, name, &value);
    return value;
}

/* Runs one request to its end. Returns its result, or NULL. */
static inline specbatch_result *answer(specbatch_pool *pool, const int32_t *ids, size_t n,
                                       int32_t max_new)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_result *result = NULL;

    request.ids = ids;
    request.n_ids = n;
    request.max_new = max_new;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS;
    if (specbatch_pool_submit(pool, &request, NULL) != SPECBATCH_OK || run_to_end(pool) != 0 ||
        specbatch_pool_collect(pool, &result) != SPECBATCH_OK)
        return NULL;
    return result;
}

/* What is compared with: a pool of one row that keeps nothing and does not speculate. */
static int make_expected(void)
{
    specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_PLAIN);
    specbatch_result *first, *second = NULL;
    specbatch_pool *pool = NULL;

    options.batch = 1;
    options.prefix_bytes = 0;
    for (int32_t i = 0; i < N_NEXT; i++)
        talk[i] = 3 + i * i * 7 % 500;
    if (specbatch_pool_create(&pool, target, NULL, &options) != SPECBATCH_OK)
        return -1;
    if ((first = answer(pool, talk, N_FIRST, N_TALK - N_FIRST)) != NULL) {
        memcpy(talk + N_FIRST, specbatch_result_tokens(first, NULL),
               (N_TALK - N_FIRST) * sizeof *talk);
        second = answer(pool, talk, N_NEXT, N_NEW);
    }
    if (second) {
        memcpy(expected, specbatch_result_tokens(second, NULL), sizeof expected);
        memcpy(expected_logprobs, specbatch_result_logprobs(second, NULL), sizeof expected);
    }
    specbatch_result_free(first);
    specbatch_result_free(second);
    specbatch_pool_free(pool);
    return second ? 0 : -1;
}

/* 1 when the pool's answer to the second prompt is the expected one, and `hit` of the prompt's
 * tokens were taken from what the pool keeps. */
static int goes_on(specbatch_pool *pool, uint64_t hit)
{
    const uint64_t before = counter(pool, "prefix_tokens");
    specbatch_result *result = answer(pool, talk, N_NEXT, N_NEW);
    size_t n = 0;
    int equal;

    if (!result)
        return 0;
    specbatch_result_tokens(result, &n);
    equal = n == N_NEW &&
            memcmp(specbatch_result_tokens(result, NULL), expected, sizeof expected) == 0 &&
            memcmp(specbatch_result_logprobs(result, NULL), expected_logprobs, sizeof expected) ==
                0;
    specbatch_result_free(result);
    if (counter(pool, "prefix_tokens") - before != hit)
        printf("     %llu tokens were taken, not %llu\n",
               (unsigned long long)(counter(pool, "prefix_tokens") - before),
               (unsigned long long)hit);
    return equal && counter(pool, "prefix_tokens") - before == hit;
}

/* Holds the conversation in a new pool. */
static int32_t hold_talk(specbatch_pool **out, specbatch_model *model, specbatch_draft *with,
                         const specbatch_pool_options *options)
{
    const int32_t rc = specbatch_pool_create(out, model, with, options);
    specbatch_result *result;

    if (rc != SPECBATCH_OK)
        return rc;
    result = answer(*out, talk, N_FIRST, N_TALK - N_FIRST);
    specbatch_result_free(result);
    return result ? SPECBATCH_OK : SPECBATCH_E_INTERNAL;
}

/* Saves the conversation, as a pool of `model` has it, to `path`. */
static int32_t save_talk(specbatch_model *model, specbatch_draft *with)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool = NULL;
    size_t kept = 0;
    int32_t rc = hold_talk(&pool, model, with, &options);

    if (rc == SPECBATCH_OK)
        rc = specbatch_pool_save_session(pool, talk, N_TALK, path, &kept);
    specbatch_pool_free(pool);
    return rc == SPECBATCH_OK && kept != N_BLOCKS * 32 ? SPECBATCH_E_INTERNAL : rc;
}

static int32_t load_talk(specbatch_pool *pool)
{
    int32_t ids[N_TALK] = {0};
    size_t n = 0;
    const int32_t rc = specbatch_pool_load_session(pool, path, ids, N_TALK, &n);

    if (rc == SPECBATCH_OK && (n != N_TALK || memcmp(ids, talk, sizeof ids) != 0))
        return SPECBATCH_E_INTERNAL;
    return rc == SPECBATCH_OK ? pool_check(pool) : rc;
}

/* Opens all of it. Returns 0, or -1 with the library's last error set. */
static inline int talk_open(void)
{
    dir = test_dir_make();
    snprintf(path, sizeof path, "%s/talk", dir.path);
    return open_pair() == 0 ? make_expected() : -1;
}

static inline void talk_close(void)
{
    test_dir_remove(&dir);
    specbatch_draft_release(draft);
    specbatch_model_close(target);
}

#endif
