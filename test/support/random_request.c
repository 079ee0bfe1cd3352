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
    s->frequency_penalty = ONE_OF(state, 0.0f, 0.0f, 0.7f, -0.3f, -3e38f);
    s->penalty_window = below(state, 2) ? 0 : 1 + below(state, 30);
    s->flags = (uint32_t)below(state, 2) * SPECBATCH_SAMPLING_SPARE_PROMPT;
    draw_bias(random, vocab, state);
    random->request.sampling = s;
}

/* One of several rules, told by `user`: a quarter of the ids is forbidden behind each token; now
 * and then one id is allowed only, and seldom none. It depends on the last token and on how many
 * there are. */
static int32_t allow(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    const uint32_t rule = *(const uint32_t *)user;

    for (size_t b = 0; b < n_rows; b++) {
        const specbatch_mask_row *row = rows[b];
        uint64_t state = (uint64_t)row->tokens[row->n_tokens - 1] << 32 | row->n_tokens << 8 | rule;
        const uint64_t chance = trace_random(&state);
        const size_t only = chance >> 16 & 255;

        for (size_t w = 0; w < row->n_words; w++)
            row->allowed[w] &= chance % 6 == 0     ? (uint32_t)(w == only / 32) << only % 32
                               : chance % 300 == 1 ? 0u
                                                   : ~(uint32_t)(chance >> (w % 32));
    }
    return 0;
}

static void draw_mask(struct random_request *random, uint64_t *state)
{
    static uint32_t rules[3] = {1, 2, 3};

    random->mask = (specbatch_mask)SPECBATCH_MASK_INIT;
    random->mask.allow = allow;
    random->mask.user = &rules[below(state, 3)];
    random->request.mask = &random->mask;
}

/* In some requests fewer answers are handed out than are made, which log-probabilities of the
 * filtered distribution exclude. */
static void draw_answers(struct random_request *random, uint64_t *state)
{
    random->answers = (specbatch_answers)SPECBATCH_ANSWERS_INIT;
    random->answers.n = below(state, 4) ? 1 : 1 + below(state, RANDOM_ANSWERS - 1);
    random->n_made = random->answers.n;
    if (below(state, 4) == 0) {
        random->n_made += 1 + below(state, RANDOM_ANSWERS - random->answers.n);
        random->answers.best_of = random->n_made;
        random->request.flags &= ~(uint32_t)SPECBATCH_REQUEST_FILTERED_LOGPROBS;
    }
    random->request.answers = &random->answers;
}

static int wants_the_best(const struct random_request *random)
{
    return random->n_made > random->answers.n;
}

static void draw_deadline(struct random_request *random, uint64_t *state)
{
    static const uint64_t hour = UINT64_C(3600000000000);
    const int32_t kind = below(state, 12);

    if (kind == 0) {
        random->deadline = RANDOM_OVER;
        random->request.deadline_ns = 1;
    } else if (kind == 1 && !wants_the_best(random)) {
        random->deadline = RANDOM_ANY_TIME;
        random->request.deadline_ns = 1 + trace_random(state) % 5000000;
    } else if (kind < 4) {
        random->request.deadline_ns = kind == 2 ? 10 * hour : UINT64_MAX;
    }
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
    if (below(state, 4) == 0)
        draw_mask(random, state);
    request->priority = below(state, 5) - 2;
    request->top_logprobs = below(state, 3) ? 0 : 1 + below(state, RANDOM_TOP);
    request->flags |= (below(state, 4) ? 0u : SPECBATCH_REQUEST_PROMPT_LOGPROBS) |
                      (below(state, 4) ? 0u : SPECBATCH_REQUEST_FILTERED_LOGPROBS);
    draw_answers(random, state);
    draw_deadline(random, state);
}

/* ------------------------------------------------------------------ answers */

static void take_scores(struct random_answer *answer, const specbatch_result *result)
{
    const int32_t *ids = specbatch_result_top_ids(result, &answer->n_top);
    const float *logprobs = specbatch_result_top_logprobs(result, NULL);
    const float *prompt = specbatch_result_prompt_logprobs(result, &answer->n_scored);

    if (ids) {
        memcpy(answer->top_ids, ids, answer->n * answer->n_top * sizeof *ids);
        memcpy(answer->top_logprobs, logprobs, answer->n * answer->n_top * sizeof *logprobs);
    }
    if (prompt)
        memcpy(answer->prompt_logprobs, prompt, answer->n_scored * sizeof *prompt);
}

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
    take_scores(answer, result);
}

/* What an answer is chosen by where only the best are handed out. Those that failed or have no
 * token come behind all others. The log-probabilities are seen only if they were asked for. */
static void take_mean(struct random_answer *plain, uint32_t flags)
{
    double sum = 0.0;

    for (size_t i = 0; i < plain->n; i++)
        sum += (double)plain->logprobs[i];
    plain->mean = plain->n > 0 && plain->status == SPECBATCH_OK ? sum / (double)plain->n
                                                                : -INFINITY;
    plain->has_logprobs = (flags & SPECBATCH_REQUEST_LOGPROBS) != 0;
}

/* Decodes answer i by itself: as a request for one with its seed. */
static int32_t decode_plainly(struct random_request *random, int32_t i, specbatch_model *model)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request alone = random->request;
    specbatch_sampling sampling = random->sampling;
    specbatch_pool *pool = NULL;
    specbatch_result *result = NULL;
    int32_t rc;

    alone.answers = NULL;
    alone.deadline_ns = 0;
    if (wants_the_best(random))
        alone.flags |= SPECBATCH_REQUEST_LOGPROBS;
    sampling.seed += (uint64_t)i;
    if (alone.sampling)
        alone.sampling = &sampling;
    options.policy = SPECBATCH_POLICY_PLAIN;
    options.batch = 1;
    options.n_threads = 1;
    options.max_len = RANDOM_PROMPT + RANDOM_NEW;
    memset(&random->plain[i], 0, sizeof random->plain[i]);
    if ((rc = specbatch_pool_create(&pool, model, NULL, &options)) == SPECBATCH_OK &&
        (rc = specbatch_pool_submit(pool, &alone, NULL)) == SPECBATCH_OK &&
        (rc = specbatch_pool_run(pool)) == SPECBATCH_OK &&
        (rc = specbatch_pool_collect(pool, &result)) == SPECBATCH_OK)
        take_answer(&random->plain[i], result);
    if (wants_the_best(random))
        take_mean(&random->plain[i], random->request.flags);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
    return rc;
}

/* Takes a few characters out of the plain text as a string that ends the request. Returns whether
 * there are any. */
static int take_stop(struct random_request *random, int i, uint64_t *state)
{
    const char *text = random->plain[0].text;
    size_t first, n = 0;

    if (!random->plain[0].has_text || random->plain[0].text_length == 0)
        return 0;
    first = (size_t)below(state, (int32_t)random->plain[0].text_length);
    while (first > 0 && (text[first] & 0xc0) == 0x80)
        first--;
    for (size_t most = 1 + (size_t)below(state, RANDOM_STOP - 4);
         first + n < random->plain[0].text_length && n < RANDOM_STOP - 1 &&
         (n < most || (text[first + n] & 0xc0) == 0x80);)
        n++;
    memcpy(random->stop_text[i], text + first, n);
    random->stop_text[i][n] = '\0';
    random->stop_strings[i] = random->stop_text[i];
    return strlen(random->stop_text[i]) > 0;
}

int32_t random_request_ask(struct random_request *random, specbatch_model *model, uint64_t *state)
{
    const int n = below(state, 3);
    int32_t rc = decode_plainly(random, 0, model);

    if (rc == SPECBATCH_OK && n > 0 && take_stop(random, 0, state)) {
        random->stops = (specbatch_stops)SPECBATCH_STOPS_INIT;
        random->stops.strings = random->stop_strings;
        random->stops.n_strings = n == 2 && take_stop(random, 1, state) ? 2 : 1;
        random->request.stops = &random->stops;
        rc = decode_plainly(random, 0, model);
    }
    for (int32_t i = 1; i < random->n_made && rc == SPECBATCH_OK; i++)
        rc = decode_plainly(random, i, model);
    return rc;
}

/* Which answer is handed out as the one of this rank, where only the best are: that with the
 * largest mean, of equals the first. One that got no token is behind all that did. */
static int32_t answer_of_rank(const struct random_request *random, int32_t rank)
{
    int taken[RANDOM_ANSWERS] = {0};
    int32_t best = 0;

    for (; rank >= 0; rank--) {
        double largest = -INFINITY;
        best = -1;
        for (int32_t i = 0; i < random->n_made; i++) {
            const double mean = random->cancelled[i] || random->deadline == RANDOM_OVER
                                    ? -INFINITY
                                    : random->plain[i].mean;
            if (!taken[i] && (best < 0 || mean > largest)) {
                best = i;
                largest = mean;
            }
        }
        taken[best] = 1;
    }
    return best;
}

/* A request that was cancelled or late has the first tokens of the plain answer. */
static const char *compare_early(const struct random_request *random,
                                 const struct random_answer *got, const struct random_answer *plain)
{
    if (got->status != SPECBATCH_OK)
        return "cancelled or late, and an error";
    if (got->n > plain->n)
        return "cancelled or late, and longer than plain";
    return random->deadline == RANDOM_OVER && got->n > 0 ? "tokens from behind the deadline" : NULL;
}

static const char *compare_end(const struct random_request *random, int32_t i,
                               const struct random_answer *got)
{
    const struct random_answer *plain = &random->plain[i];

    if ((got->finish == SPECBATCH_FINISH_CANCELLED && random->cancelled[i]) ||
        (got->finish == SPECBATCH_FINISH_DEADLINE && random->deadline != RANDOM_UNBOUNDED))
        return compare_early(random, got, plain);
    if (random->deadline == RANDOM_OVER)
        return "an end behind the deadline";
    if (got->finish != plain->finish || got->status != plain->status)
        return "another end";
    if (got->n != plain->n)
        return "another length";
    if (got->has_text != plain->has_text || got->text_length != plain->text_length ||
        memcmp(got->text, plain->text, got->has_text ? got->text_length : 0) != 0)
        return "another text";
    return NULL;
}

static const char *compare_scores(const struct random_answer *got,
                                  const struct random_answer *plain)
{
    if (got->has_logprobs != plain->has_logprobs ||
        (got->has_logprobs &&
         memcmp(got->logprobs, plain->logprobs, got->n * sizeof *got->logprobs) != 0))
        return "other log-probabilities";
    if (got->n_top != plain->n_top ||
        memcmp(got->top_ids, plain->top_ids, got->n * got->n_top * sizeof *got->top_ids) != 0 ||
        memcmp(got->top_logprobs, plain->top_logprobs,
               got->n * got->n_top * sizeof *got->top_logprobs) != 0)
        return "other alternatives";
    if (got->n_scored > 0 &&
        (got->n_scored != plain->n_scored ||
         memcmp(got->prompt_logprobs, plain->prompt_logprobs, got->n_scored * sizeof(float)) != 0))
        return "other log-probabilities of the prompt";
    return NULL;
}

const char *random_request_compare(struct random_request *random, const specbatch_result *result)
{
    const int32_t i = specbatch_result_answer(result), rank = random->n_collected++;
    const struct random_answer *plain = &random->plain[i];
    struct random_answer got;
    const char *differs;

    if (random->collected[i]++ || rank >= random->answers.n)
        return "collected twice";
    if (wants_the_best(random) && i != answer_of_rank(random, rank))
        return "not the best answer";
    take_answer(&got, result);
    if ((differs = compare_end(random, i, &got)) != NULL)
        return differs;
    if (memcmp(got.tokens, plain->tokens, got.n * sizeof *got.tokens) != 0)
        return "other tokens";
    return compare_scores(&got, plain);
}
