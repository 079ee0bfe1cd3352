/*
 * What tests of log-probabilities start from: requests that want all kinds of them, what plain
 * decoding at batch 1 gives for each, and the comparison of a result with that, bit for bit.
 */
#ifndef SB_TEST_SCORED_H
#define SB_TEST_SCORED_H

#include "sbtest.h"
#include "support/small_pool.h"

enum { SCORED = 8, SCORED_PROMPT = 130, SCORED_NEW = 40, SCORED_TOP = 32 };

/* A prompt, what is wanted of it, and what plain decoding gives. */
static struct scored {
    int32_t n_prompt, max_new, n_top;
    uint32_t flags;
    int has_sampling;
    specbatch_sampling sampling;
    int32_t ids[SCORED_PROMPT];

    size_t n, n_scores;
    int32_t tokens[SCORED_NEW];
    float logprobs[SCORED_NEW];
    int32_t top_ids[SCORED_NEW * SCORED_TOP];
    float top_logprobs[SCORED_NEW * SCORED_TOP];
    float prompt_logprobs[SCORED_PROMPT];
    int32_t prompt_top_ids[SCORED_PROMPT * SCORED_TOP];
    float prompt_top_logprobs[SCORED_PROMPT * SCORED_TOP];
} scored[SCORED];

enum {
    OWN = SPECBATCH_REQUEST_LOGPROBS,
    OF_PROMPT = SPECBATCH_REQUEST_PROMPT_LOGPROBS,
    FILTERED = SPECBATCH_REQUEST_FILTERED_LOGPROBS
};

/* What the requests want. Prompts 2 and 3 begin with the same tokens. */
static inline void scored_choose(void)
{
    static const struct {
        int32_t n_prompt, max_new, n_top;
        uint32_t flags;
        float temperature;
        int32_t top_k;
    } kinds[SCORED] = {
        {7, SCORED_NEW, 5, OWN, -1.0f, 0},
        {1, SCORED_NEW, 3, OWN | OF_PROMPT, -1.0f, 0},
        {SCORED_PROMPT, 0, 4, OF_PROMPT, -1.0f, 0},
        {100, SCORED_NEW, SCORED_TOP, OWN | OF_PROMPT, -1.0f, 0},
        {50, SCORED_NEW, 0, OWN, -1.0f, 0},
        {49, 1, 0, OF_PROMPT, -1.0f, 0},
        {20, SCORED_NEW, 6, OWN | FILTERED, 0.9f, 4},
        {35, SCORED_NEW, 2, OWN | OF_PROMPT, 1.3f, 0},
    };

    for (int i = 0; i < SCORED; i++) {
        struct scored *s = &scored[i];
        s->n_prompt = kinds[i].n_prompt;
        s->max_new = kinds[i].max_new;
        s->n_top = kinds[i].n_top;
        s->flags = kinds[i].flags | SPECBATCH_REQUEST_IGNORE_EOS;
        s->has_sampling = kinds[i].temperature >= 0.0f;
        s->sampling = (specbatch_sampling)SPECBATCH_SAMPLING_INIT;
        s->sampling.temperature = s->has_sampling ? kinds[i].temperature : 0.0f;
        s->sampling.top_k = kinds[i].top_k;
        s->sampling.seed = (uint64_t)i;
        for (int32_t p = 0; p < s->n_prompt; p++)
            s->ids[p] = (p % 9 * 31 + (p > 60 ? i : i / 2) * 17 + p * p) % 500;
    }
}

static inline specbatch_request scored_request(struct scored *s)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = s->ids;
    request.n_ids = (size_t)s->n_prompt;
    request.max_new = s->max_new;
    request.flags = s->flags;
    request.top_logprobs = s->n_top;
    request.sampling = s->has_sampling ? &s->sampling : NULL;
    request.user = s;
    return request;
}

/* What a result has, by the public getters. */
static inline void scored_take(struct scored *s, const specbatch_result *result)
{
    const int32_t *tokens = specbatch_result_tokens(result, &s->n);
    size_t n_top, n;

    CHECK(s->n <= SCORED_NEW);
    memcpy(s->tokens, tokens, s->n * sizeof *s->tokens);
    if (specbatch_result_logprobs(result, NULL))
        memcpy(s->logprobs, specbatch_result_logprobs(result, NULL), s->n * sizeof(float));
    if (specbatch_result_top_ids(result, &n_top)) {
        memcpy(s->top_ids, specbatch_result_top_ids(result, NULL), s->n * n_top * 4);
        memcpy(s->top_logprobs, specbatch_result_top_logprobs(result, NULL), s->n * n_top * 4);
    }
    CHECK_INT(n_top, s->n_top);
    if (specbatch_result_prompt_logprobs(result, &s->n_scores))
        memcpy(s->prompt_logprobs, specbatch_result_prompt_logprobs(result, NULL),
               s->n_scores * sizeof(float));
    CHECK_INT(s->n_scores, s->flags & OF_PROMPT ? s->n_prompt - 1 : 0);
    n = s->n_scores;
    if (specbatch_result_prompt_top_ids(result, &n_top)) {
        memcpy(s->prompt_top_ids, specbatch_result_prompt_top_ids(result, NULL), n * n_top * 4);
        memcpy(s->prompt_top_logprobs, specbatch_result_prompt_top_logprobs(result, NULL),
               n * n_top * 4);
    }
    CHECK_INT(n_top, n > 0 ? s->n_top : 0);
}

/* What plain decoding at batch 1 gives, each request in a pool of its own. */
static inline void scored_ask_plainly(void)
{
    specbatch_pool_options options = small_options(SPECBATCH_POLICY_PLAIN);

    options.batch = 1;
    options.max_len = 200;
    scored_choose();
    for (int i = 0; i < SCORED; i++) {
        const specbatch_request request = scored_request(&scored[i]);
        specbatch_pool *pool = NULL;
        specbatch_result *result;
        CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        CHECK((result = take(pool)) != NULL);
        CHECK_INT(specbatch_result_finish(result), SPECBATCH_FINISH_LENGTH);
        scored_take(&scored[i], result);
        CHECK_INT(scored[i].n, scored[i].max_new);
        specbatch_result_free(result);
        specbatch_pool_free(pool);
    }
}

/* Whether a result has the bits of plain decoding; says what differs. */
static inline int scored_is_plain(const specbatch_result *result)
{
    static struct scored got;
    const struct scored *s = specbatch_result_user(result);
    const size_t top = (size_t)s->n_top * 4;
    const char *differs = NULL;

    got = *s;
    scored_take(&got, result);
    if (got.n != s->n || memcmp(got.tokens, s->tokens, s->n * 4) != 0)
        differs = "tokens";
    else if (memcmp(got.logprobs, s->logprobs, s->n * 4) != 0)
        differs = "log-probabilities";
    else if (memcmp(got.top_ids, s->top_ids, s->n * top) != 0)
        differs = "alternatives";
    else if (memcmp(got.top_logprobs, s->top_logprobs, s->n * top) != 0)
        differs = "log-probabilities of alternatives";
    else if (memcmp(got.prompt_logprobs, s->prompt_logprobs, s->n_scores * 4) != 0)
        differs = "log-probabilities of the prompt";
    else if (memcmp(got.prompt_top_ids, s->prompt_top_ids, s->n_scores * top) != 0 ||
             memcmp(got.prompt_top_logprobs, s->prompt_top_logprobs, s->n_scores * top) != 0)
        differs = "alternatives to the prompt";
    if (differs)
        printf("     request %d: its %s differ\n", (int)(s - scored), differs);
    return !differs;
}

/* Submits all, runs the pool to its end, and compares. Returns how many differ. */
static inline int scored_run(specbatch_pool *pool)
{
    specbatch_result *result;
    int n_wrong = 0, n = 0;

    for (int i = 0; i < SCORED; i++) {
        const specbatch_request request = scored_request(&scored[i]);
        n_wrong += specbatch_pool_submit(pool, &request, NULL) != SPECBATCH_OK;
    }
    n_wrong += run_to_end(pool) != SPECBATCH_OK;
    for (; (result = take(pool)) != NULL; n++) {
        n_wrong += !scored_is_plain(result);
        specbatch_result_free(result);
    }
    return n_wrong + (n != SCORED);
}

#endif
