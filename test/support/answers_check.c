/* Comparing answers with requests of their own; answers_check.h says how. */
#include "support/answers_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "support/pool_check.h"

specbatch_request answers_request(const int32_t *prompt, size_t n_prompt,
                                  specbatch_sampling *sampling)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    *sampling = (specbatch_sampling)SPECBATCH_SAMPLING_INIT;
    sampling->seed = 1234;
    sampling->temperature = 1.0f;
    request.ids = prompt;
    request.n_ids = n_prompt;
    request.max_new = ANSWERS_NEW;
    request.flags = SPECBATCH_REQUEST_LOGPROBS;
    request.sampling = sampling;
    return request;
}

static void note(struct answers_plain *plain, int32_t i, const specbatch_result *result)
{
    const int32_t *tokens = specbatch_result_tokens(result, &plain->n[i]);
    const float *logprobs = specbatch_result_logprobs(result, &plain->n[i]);

    memcpy(plain->tokens[i], tokens, plain->n[i] * sizeof *tokens);
    memcpy(plain->logprobs[i], logprobs, plain->n[i] * sizeof *logprobs);
}

int answers_ask(struct answers_plain *plain, specbatch_model *target,
                const specbatch_request *request, int32_t n)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request one = *request;
    specbatch_sampling sampling = *request->sampling;
    specbatch_pool *pool = NULL;
    specbatch_result *result;

    one.sampling = &sampling;
    options.policy = SPECBATCH_POLICY_PLAIN;
    options.batch = 1;
    options.max_len = 300;
    options.n_threads = 1;
    if (specbatch_pool_create(&pool, target, NULL, &options) != SPECBATCH_OK)
        return -1;
    for (int32_t i = 0; i < n; i++, sampling.seed++) {
        if (specbatch_pool_submit(pool, &one, NULL) != SPECBATCH_OK ||
            specbatch_pool_run(pool) != SPECBATCH_OK ||
            specbatch_pool_collect(pool, &result) != SPECBATCH_OK)
            break;
        note(plain, i, result);
        specbatch_result_free(result);
        if (i == n - 1)
            n = -1;
    }
    specbatch_pool_free(pool);
    return n == -1 ? 0 : -1;
}

int answers_result_differs(const struct answers_plain *plain, const specbatch_result *result,
                           char *why, size_t size)
{
    const int32_t i = specbatch_result_answer(result), finish = specbatch_result_finish(result);
    const int cut = finish == SPECBATCH_FINISH_CANCELLED || finish == SPECBATCH_FINISH_DEADLINE;
    size_t n, n_logprobs;
    const int32_t *tokens = specbatch_result_tokens(result, &n);
    const float *logprobs = specbatch_result_logprobs(result, &n_logprobs);

    if (i < 0 || i >= ANSWERS_MAX || (cut ? n > plain->n[i] : n != plain->n[i]))
        snprintf(why, size, "answer %d has %zu tokens", i, n);
    else if (memcmp(tokens, plain->tokens[i], n * sizeof *tokens) != 0)
        snprintf(why, size, "answer %d has other tokens", i);
    else if (logprobs && memcmp(logprobs, plain->logprobs[i], n * sizeof *logprobs) != 0)
        snprintf(why, size, "answer %d has other log-probabilities", i);
    else
        return 0;
    return 1;
}

int answers_differ(const struct answers_plain *plain, specbatch_pool *pool,
                   const specbatch_request *request, int32_t n, int invariants, char *why,
                   size_t size)
{
    specbatch_answers answers = SPECBATCH_ANSWERS_INIT;
    specbatch_request several = *request;
    specbatch_result *result;
    size_t active = 1;
    uint64_t first;
    int n_got = 0, differs = 0;

    answers.n = n;
    several.answers = &answers;
    if (specbatch_pool_submit(pool, &several, &first) != SPECBATCH_OK)
        active = 0;
    while (active > 0)
        if (specbatch_pool_step(pool, &active) != SPECBATCH_OK ||
            (invariants && pool_check(pool) != SPECBATCH_OK))
            break;
    while (specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
        if (specbatch_result_id(result) != first + (uint64_t)specbatch_result_answer(result)) {
            snprintf(why, size, "answer %d is request %" PRIu64, specbatch_result_answer(result),
                     specbatch_result_id(result));
            differs = 1;
        }
        differs = differs || answers_result_differs(plain, result, why, size);
        n_got++;
        specbatch_result_free(result);
    }
    if (active > 0 || n_got != n) {
        snprintf(why, size, "%d of %d answers: %.200s", n_got, n, specbatch_last_error());
        differs = 1;
    }
    return differs;
}
