/* Random requests, and the comparison of their results with plain decoding. */
#include "support/random_request.h"

#include <math.h>
#include <string.h>

#include "support/trace.h"

/* A bias beside which a logit is nothing, so ids that have it tie. */
#define TIED 1e30f

static int32_t below(uint64_t *state, int32_t n)
{
    return (int32_t)(trace_random(state) % (uint64_t)n);
}

/* One of n numbers. */
static float one_of(uint64_t *state, const float *numbers, int32_t n)
{
    return numbers[below(state, n)];
}
#define ONE_OF(state, ...)                      \
    one_of(state, (const float[]){__VA_ARGS__}, \
           (int32_t)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)))

/* Prompts share their beginnings, so that prefixes are found; a seed of few values makes equal
 * requests, whose answers must be equal. */
static void draw_prompt(struct random_request *random, int32_t vocab, uint64_t *state)
{
    const int32_t n = 1 + below(state, below(state, 3) ? 24 : RANDOM_PROMPT),
                  kind = below(state, 3);

    for (int32_t i = 0; i < n; i++)
        random->ids[i] = 3 + (i * 37 + kind * 11 + (i > 40 ? kind : 0)) % (vocab - 3);
    random->request.ids = random->ids;
    random->request.n_ids = (size_t)n;
}

static void draw_bias(struct random_request *random, int32_t vocab, uint64_t *state)
{
    const int32_t first = below(state, vocab);

    random->sampling.n_bias = (size_t)below(state, 4);
    for (int32_t i = 0; i < 3; i++) {
        random->bias_ids[i] = (first + i * 7) % vocab;
        random->bias[i] = ONE_OF(state, -INFINITY, -2.0f, 1.5f, 6.0f, TIED, TIED);
    }
    random->sampling.bias_ids = random->bias_ids;
    random->sampling.bias = random->bias;
}

static void draw_sampling(struct random_request *random, int32_t vocab, uint64_t *state)
{
    specbatch_sampling *s = &random->sampling;

    *s = (specbatch_sampling)SPECBATCH_SAMPLING_INIT;
    s->seed = below(state, 2) ? trace_random(state) : (uint64_t)below(state, 3);
    s->temperature = ONE_OF(state, 0.0f, 0.25f, 0.7f, 1.0f, 1.0f, 3.0f);
    s->top_k = below(state, 2) ? 0 : 1 + below(state, 60);
    s->top_p = ONE_OF(state, 0.0f, 0.0f, 0.2f, 0.8f, 0.95f, 1.0f);
    s->typical_p = ONE_OF(state, 0.0f, 0.0f, 0.0f, 0.5f, 0.9f);
    s->min_p = ONE_OF(state, 0.0f, 0.0f, 0.02f, 0.3f, 1.0f);
    s->repetition_penalty = ONE_OF(state, 0.0f, 0.0f, 1.3f, 0.8f, 3.0f);
    s->presence_penalty = ONE_OF(state, 0.0f, 0.0f, 1.0f, -0.5f);
    s->frequency_penalty = ONE_OF(state, 0.0f, 0.0f, 0.7f, -0.3f);
    s->penalty_window = below(state, 2) ? 0 : 1 + below(state, 30);
    s->flags = (uint32_t)below(state, 2) * SPECBATCH_SAMPLING_SPARE_PROMPT;
    draw_bias(random, vocab, state);
    random->request.sampling = s;
}

void random_request_draw(struct random_request *random, const specbatch_model *model,
                         uint64_t *state)
{
    const int32_t vocab = specbatch_model_vocab_size(model);
    specbatch_request *request = &random->request;

    memset(random, 0, sizeof *random);
    *request = (specbatch_request)SPECBATCH_REQUEST_INIT;
    draw_prompt(random, vocab, state);
    request->max_new = 1 + below(state, RANDOM_NEW);
    request->draft_len = below(state, 5) ? 0 : below(state, 2) ? -1 : 1 + below(state, 4);
    request->flags = (below(state, 3) ? SPECBATCH_REQUEST_LOGPROBS : 0u) |
                     (below(state, 3) ? SPECBATCH_REQUEST_IGNORE_EOS : 0u);
    request->stop_ids = random->stop_ids;
    request->n_stop_ids = (size_t)below(state, 3);
    for (int32_t i = 0; i < 2; i++)
        random->stop_ids[i] = below(state, vocab);
    request->min_new = below(state, 3) ? 0 : below(state, request->max_new + 1);
    if (below(state, 4))
        draw_sampling(random, vocab, state);
}

/* ------------------------------------------------------------------ answers */

static void take_answer(struct random_answer *answer, const specbatch_result *result)
{
    const float *logprobs = specbatch_result_logprobs(result, NULL);
    const char *text = specbatch_result_text(result, &answer->text_length);
    const int32_t *tokens = specbatch_result_tokens(result, &answer->n);

    answer->finish = specbatch_result_finish(result);
    answer->status = specbatch_result_status(result);
    memcpy(answer->tokens, tokens, answer->n * sizeof *tokens);
    answer->has_logprobs = logprobs != NULL;
    if (logprobs)
        memcpy(answer->logprobs, logprobs, answer->n * sizeof *logprobs);
    answer->has_text = text != NULL && answer->text_length < RANDOM_TEXT;
    if (answer->has_text)
        memcpy(answer->text, text, answer->text_length);
}

int32_t random_request_ask(struct random_request *random, specbatch_model *model)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result = NULL;
    int32_t rc;

    options.policy = SPECBATCH_POLICY_PLAIN;
    options.batch = 1;
    options.n_threads = 1;
    options.max_len = RANDOM_PROMPT + RANDOM_NEW;
    if ((rc = specbatch_pool_create(&pool, model, NULL, &options)) == SPECBATCH_OK &&
        (rc = specbatch_pool_submit(pool, &random->request, NULL)) == SPECBATCH_OK &&
        (rc = specbatch_pool_run(pool)) == SPECBATCH_OK &&
        (rc = specbatch_pool_collect(pool, &result)) == SPECBATCH_OK)
        take_answer(&random->plain, result);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
    return rc;
}

const char *random_request_compare(const struct random_request *random,
                                   const specbatch_result *result)
{
    const struct random_answer *plain = &random->plain;
    struct random_answer got;

    take_answer(&got, result);
    if (random->cancelled && got.finish == SPECBATCH_FINISH_CANCELLED) {
        if (got.n > plain->n)
            return "cancelled, and longer than plain";
    } else if (got.finish != plain->finish || got.status != plain->status) {
        return "another end";
    } else if (got.n != plain->n) {
        return "another length";
    } else if (got.has_text != plain->has_text || got.text_length != plain->text_length ||
               memcmp(got.text, plain->text, got.has_text ? got.text_length : 0) != 0) {
        return "another text";
    }
    if (memcmp(got.tokens, plain->tokens, got.n * sizeof *got.tokens) != 0)
        return "other tokens";
    if (got.has_logprobs != plain->has_logprobs ||
        (got.has_logprobs &&
         memcmp(got.logprobs, plain->logprobs, got.n * sizeof *got.logprobs) != 0))
        return "other log-probabilities";
    return NULL;
}
