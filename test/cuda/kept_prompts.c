/* Prompts that begin alike, with and without spans; kept_prompts.h draws them. */
#include "cuda/kept_prompts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "support/drafts.h"

enum { KEPT_SHARED = 290, KEPT_MOST = 764 /* tokens of a sequence */ };
#define PLENTY ((uint64_t)8 << 20) /* bytes, for all prompts */

static const int32_t kept_lengths[KEPT] = {700, 300, 520, 200, 250, 290, 300};

static int32_t kept_token(int32_t prompt, int32_t at)
{
    const uint32_t stream = at < KEPT_SHARED && prompt != KEPT_TALK ? 99u : (uint32_t)prompt;

    return (int32_t)((((uint32_t)at + 1) * 2654435761u ^ stream * 40503u) >> 7) % 517;
}

/* `answers` has been given to the prompt of 250, if this is the talk. */
static specbatch_request kept_request(int32_t prompt, const struct kept_answer *answers)
{
    static int32_t ids[KEPT_MOST];
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    for (int32_t i = 0; i < kept_lengths[prompt]; i++)
        ids[i] = kept_token(prompt, i);
    if (prompt == KEPT_TALK) {
        for (int32_t i = 0; i < kept_lengths[4]; i++)
            ids[i] = kept_token(4, i);
        memcpy(ids + kept_lengths[4], answers[4].tokens, sizeof answers[4].tokens);
    }
    request.ids = ids;
    request.n_ids = (size_t)kept_lengths[prompt];
    request.max_new = KEPT_NEW;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS;
    return request;
}

static specbatch_pool_options kept_options(int32_t policy, int32_t batch)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.policy = policy;
    options.batch = batch;
    options.draft_len = policy == SPECBATCH_POLICY_PLAIN ? -1 : 3;
    options.max_len = KEPT_MOST;
    options.prefill_chunk = 512;
    return options;
}

static uint64_t kept_stat(const specbatch_pool *pool, const char *name)
{
    uint64_t value = 0;

    return specbatch_pool_stat(pool, name, &value) == SPECBATCH_OK ? value : 0;
}

/* Collects one result and copies its answer. */
static int32_t kept_collect(specbatch_pool *pool, struct kept_answer *answer, uint64_t *id)
{
    specbatch_result *result;
    const int32_t rc = specbatch_pool_collect(pool, &result);

    if (rc != SPECBATCH_OK)
        return rc;
    memcpy(answer->tokens, specbatch_result_tokens(result, NULL), sizeof answer->tokens);
    memcpy(answer->logprobs, specbatch_result_logprobs(result, NULL), sizeof answer->logprobs);
    *id = specbatch_result_id(result);
    specbatch_result_free(result);
    return SPECBATCH_OK;
}

/* Runs one prompt of a pool in which nothing else runs. */
static int32_t kept_run_one(specbatch_pool *pool, int32_t prompt, const struct kept_answer *answers,
                            struct kept_answer *got)
{
    const specbatch_request request = kept_request(prompt, answers);
    uint64_t id;
    int32_t rc = specbatch_pool_submit(pool, &request, NULL);

    if (rc == SPECBATCH_OK)
        rc = specbatch_pool_run(pool);
    return rc == SPECBATCH_OK ? kept_collect(pool, got, &id) : rc;
}

int32_t kept_ask(specbatch_model *model, struct kept_answer answers[KEPT], const int32_t *prompts,
                 int32_t n)
{
    const specbatch_pool_options options = kept_options(SPECBATCH_POLICY_PLAIN, 1);
    int32_t rc = SPECBATCH_OK;

    memset(answers, 0, KEPT * sizeof *answers);
    for (int32_t i = 0; rc == SPECBATCH_OK && i < n; i++) {
        specbatch_pool *pool = NULL;
        rc = specbatch_pool_create(&pool, model, NULL, &options);
        if (rc == SPECBATCH_OK)
            rc = kept_run_one(pool, prompts[i], answers, &answers[prompts[i]]);
        specbatch_pool_free(pool);
    }
    return rc;
}

int kept_in_turn_differ(specbatch_model *model, const struct kept_answer *answers,
                        const int32_t *prompts, const int32_t *hits, int32_t n, char *why,
                        size_t size)
{
    specbatch_pool_options options = kept_options(SPECBATCH_POLICY_PLAIN, 1);
    specbatch_pool *pool = NULL;
    struct kept_answer got;
    int differ = 0;
    int32_t rc;

    options.prefix_bytes = PLENTY;
    rc = specbatch_pool_create(&pool, model, NULL, &options);
    for (int32_t i = 0; rc == SPECBATCH_OK && !differ && i < n; i++) {
        const uint64_t before = kept_stat(pool, "prefix_tokens");
        uint64_t found;
        rc = kept_run_one(pool, prompts[i], answers, &got);
        found = kept_stat(pool, "prefix_tokens") - before;
        differ = rc == SPECBATCH_OK && (memcmp(&got, &answers[prompts[i]], sizeof got) != 0 ||
                                        (hits && found != (uint64_t)hits[i]));
        snprintf(why, size, "prompt of %d, number %d in turn: found %" PRIu64 " tokens",
                 (int)kept_lengths[prompts[i]], (int)i, found);
    }
    if (rc != SPECBATCH_OK)
        snprintf(why, size, "in turn: %s: %s", specbatch_status_name(rc), specbatch_last_error());
    specbatch_pool_free(pool);
    return differ || rc != SPECBATCH_OK;
}

/* All prompts but the talk at once, the first two of them again, with the model as its own draft,
 * if there is one. Something has to be found, and with few prefix_bytes something has to be
 * evicted. */
static int kept_at_once_differ(specbatch_model *model, const struct kept_answer *answers,
                               const specbatch_pool_options *options, const char *event, char *why,
                               size_t size)
{
    enum { N = KEPT_TALK + 2 };
    specbatch_pool *pool = NULL;
    struct kept_answer got;
    uint64_t id;
    int differ = 0;
    int32_t rc = create_with_model(&pool, model, options->draft_len > 0 ? model : NULL, options);

    for (int32_t i = 0; rc == SPECBATCH_OK && i < N; i++) {
        const specbatch_request request = kept_request(i % KEPT_TALK, answers);
        rc = specbatch_pool_submit(pool, &request, NULL);
    }
    if (rc == SPECBATCH_OK)
        rc = specbatch_pool_run(pool);
    snprintf(why, size, "policy %d, batch %d: %s", (int)options->policy, (int)options->batch,
             rc ? specbatch_last_error() : "an answer");
    for (int32_t i = 0; rc == SPECBATCH_OK && i < N; i++) {
        rc = kept_collect(pool, &got, &id);
        differ |= memcmp(&got, &answers[(id - 1) % KEPT_TALK], sizeof got) != 0;
    }
    if (rc == SPECBATCH_OK && !differ && kept_stat(pool, event) == 0) {
        snprintf(why, size, "policy %d, batch %d: %s is 0", (int)options->policy,
                 (int)options->batch, event);
        differ = 1;
    }
    specbatch_pool_free(pool);
    return differ || rc != SPECBATCH_OK;
}

/* ------------------------------------------------------------------ preemption */

static int32_t preempted_run(specbatch_model *model, const specbatch_pool_options *options,
                             int32_t first, int32_t n, struct preempted_answer *answers,
                             uint64_t *preemptions)
{
    static const int32_t lengths[PREEMPTED] = {302, 250};
    specbatch_pool *pool = NULL;
    specbatch_result *result;
    int32_t rc = specbatch_pool_create(&pool, model, NULL, options);

    for (int32_t i = first; rc == SPECBATCH_OK && i < first + n; i++) {
        specbatch_request request = kept_request(0, NULL);
        request.ids += i;
        request.n_ids = (size_t)lengths[i];
        request.max_new = PREEMPTED_NEW;
        rc = specbatch_pool_submit(pool, &request, NULL);
    }
    if (rc == SPECBATCH_OK)
        rc = specbatch_pool_run(pool);
    for (int32_t i = 0; rc == SPECBATCH_OK && i < n; i++) {
        rc = specbatch_pool_collect(pool, &result);
        if (rc == SPECBATCH_OK) {
            struct preempted_answer *answer = &answers[specbatch_result_id(result) - 1];
            memcpy(answer->tokens, specbatch_result_tokens(result, NULL), sizeof answer->tokens);
            memcpy(answer->logprobs, specbatch_result_logprobs(result, NULL),
                   sizeof answer->logprobs);
            specbatch_result_free(result);
        }
    }
    if (rc == SPECBATCH_OK && preemptions)
        *preemptions = kept_stat(pool, "preemptions");
    specbatch_pool_free(pool);
    return rc;
}

int32_t preempted_ask(specbatch_model *model, struct preempted_answer answers[PREEMPTED])
{
    specbatch_pool_options options = kept_options(SPECBATCH_POLICY_PLAIN, 1);
    int32_t rc = SPECBATCH_OK;

    memset(answers, 0, PREEMPTED * sizeof *answers);
    for (int32_t i = 0; rc == SPECBATCH_OK && i < PREEMPTED; i++)
        rc = preempted_run(model, &options, i, 1, &answers[i], NULL);
    return rc;
}

int preempted_differ(specbatch_model *model, const struct preempted_answer *answers,
                     uint64_t prefix_bytes, char *why, size_t size)
{
    specbatch_pool_options options = kept_options(SPECBATCH_POLICY_PLAIN, 2);
    struct preempted_answer got[PREEMPTED];
    uint64_t preemptions = 0;
    int differ;
    int32_t rc;

    memset(got, 0, sizeof got);
    options.max_len = 639; /* and the column of the last query */
    options.cache_columns = 640;
    options.prefill_chunk = 1024;
    options.prefix_bytes = prefix_bytes;
    options.flags = SPECBATCH_POOL_GROW_SLOTS;
    rc = preempted_run(model, &options, 0, PREEMPTED, got, &preemptions);
    differ = memcmp(got, answers, sizeof got) != 0;
    snprintf(why, size, "preempted: %" PRIu64 " times, %s: %s", preemptions,
             differ ? "answers differ" : "answers are equal",
             rc ? specbatch_last_error() : "no error");
    return rc != SPECBATCH_OK || differ || preemptions == 0;
}

int kept_hits_differ(specbatch_model *model, struct kept_answer answers[KEPT], char *why,
                     size_t size)
{
    static const int32_t order[] = {0, 1, 2, 3, 4, 5, KEPT_TALK, 0};
    /* with spans, and without */
    static const int32_t hits[2][8] = {{0, 256, 256, 0, 192, 288, 0, 672},
                                       {0, 288, 288, 192, 224, 288, 256, 672}};
    const int is_own = strstr(specbatch_model_fingerprint(model), "prefill own") != NULL;

    snprintf(why, size, "plain");
    return kept_ask(model, answers, order, KEPT) != SPECBATCH_OK ||
           kept_in_turn_differ(model, answers, order, hits[is_own], 8, why, size);
}

int kept_prompts_differ(specbatch_model *model, char *why, size_t size)
{
    struct kept_answer answers[KEPT];
    struct preempted_answer alone[PREEMPTED];
    specbatch_pool_options plenty = kept_options(SPECBATCH_POLICY_RAGGED, 3);
    specbatch_pool_options few = kept_options(SPECBATCH_POLICY_EQSPEC, 2);

    plenty.prefix_bytes = PLENTY;
    plenty.flags = SPECBATCH_POOL_GROW_SLOTS;
    few.prefix_bytes = (uint64_t)1 << 20;
    snprintf(why, size, "plain");
    return preempted_ask(model, alone) != SPECBATCH_OK ||
           kept_hits_differ(model, answers, why, size) ||
           kept_at_once_differ(model, answers, &plenty, "prefix_hits", why, size) ||
           kept_at_once_differ(model, answers, &few, "prefix_evictions", why, size) ||
           preempted_differ(model, alone, 0, why, size) ||
           preempted_differ(model, alone, PLENTY, why, size);
}
