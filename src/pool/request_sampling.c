/* Checks and copies how a request wants its tokens chosen. Every message names the field. */
#include "pool/request_sampling.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "options.h"
#include "sort.h"
#include "status.h"

/* Together the ids that a position's sampler may change. */
enum { BIAS_MAX = 1024, WINDOW_MAX = SB_CHANGED_MAX - BIAS_MAX };

static const char what[] = "request: sampling";

/* Refuses what is not a number between low and high. */
static int32_t check_number(const char *field, float value, float low, float high)
{
    return value >= low && value <= high
               ? SPECBATCH_OK
               : sb_fail(SPECBATCH_E_INVALID, "%s: %s is %g, outside %g..%g", what, field,
                         (double)value, (double)low, (double)high);
}

/* Fills in the defaults and checks the ranges. */
static int32_t resolve(specbatch_sampling *full, const specbatch_sampling *given)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_options_copy(full, sizeof *full, given, what));
    SB_TRY(check_number("temperature", full->temperature, 0.0f, FLT_MAX));
    SB_TRY(sb_check_range(what, "top_k", full->top_k, 0, INT32_MAX));
    SB_TRY(check_number("top_p", full->top_p, 0.0f, 1.0f));
    SB_TRY(check_number("typical_p", full->typical_p, 0.0f, 1.0f));
    SB_TRY(check_number("min_p", full->min_p, 0.0f, 1.0f));
    SB_TRY(check_number("repetition_penalty", full->repetition_penalty, 0.0f, FLT_MAX));
    SB_TRY(check_number("presence_penalty", full->presence_penalty, -FLT_MAX, FLT_MAX));
    SB_TRY(check_number("frequency_penalty", full->frequency_penalty, -FLT_MAX, FLT_MAX));
    SB_TRY(sb_check_range(what, "penalty_window", full->penalty_window, 0, WINDOW_MAX));
    SB_TRY(sb_check_flags(SPECBATCH_E_OPTIONS, what, "flags", full->flags,
                          SPECBATCH_SAMPLING_SPARE_PROMPT));
    if (full->n_bias > BIAS_MAX)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: n_bias is %zu, outside 0..%d", what, full->n_bias,
                BIAS_MAX);
    if (full->n_bias > 0 && (!full->bias_ids || !full->bias))
        SB_FAIL(SPECBATCH_E_INVALID, "%s: n_bias is %zu, but %s is NULL", what, full->n_bias,
                full->bias_ids ? "bias" : "bias_ids");
    if (full->top_p == 0.0f)
        full->top_p = 1.0f;
    if (full->typical_p == 0.0f)
        full->typical_p = 1.0f;
    if (full->repetition_penalty == 0.0f)
        full->repetition_penalty = 1.0f;
    if (full->penalty_window == 0)
        full->penalty_window = WINDOW_MAX;
    if (full->temperature < FLT_MIN)
        full->temperature = 0.0f;
done:
    return rc;
}

/* Whether it asks for nothing but the most probable token. */
static int is_greedy(const specbatch_sampling *full)
{
    return full->temperature == 0.0f && full->repetition_penalty == 1.0f &&
           full->presence_penalty == 0.0f && full->frequency_penalty == 0.0f && full->n_bias == 0;
}

static int by_id(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Names the first two places of an id that is there more than once. */
static int32_t refuse_both(const int32_t *ids, int32_t id)
{
    size_t first = 0, second;

    while (ids[first] != id)
        first++;
    for (second = first + 1; ids[second] != id;)
        second++;
    return sb_fail(SPECBATCH_E_INVALID, "%s: bias_ids[%zu] and [%zu] are both %d", what, first,
                   second, id);
}

static int32_t check_bias(const specbatch_sampling *full, int32_t vocab)
{
    int32_t ids[BIAS_MAX];

    for (size_t i = 0; i < full->n_bias; i++) {
        const int32_t id = full->bias_ids[i];
        if (id < 0 || id >= vocab)
            return sb_fail(SPECBATCH_E_TOKEN, "%s: bias_ids[%zu] is %d, not one of 0..%d", what, i,
                           id, vocab - 1);
        if (!(full->bias[i] < INFINITY))
            return sb_fail(SPECBATCH_E_INVALID, "%s: bias[%zu] is %g", what, i,
                           (double)full->bias[i]);
        ids[i] = id;
    }
    sb_sort(ids, full->n_bias, sizeof *ids, by_id);
    for (size_t i = 1; i < full->n_bias; i++)
        if (ids[i - 1] == ids[i])
            return refuse_both(full->bias_ids, ids[i]);
    return SPECBATCH_OK;
}

void sb_sampling_free(const struct sb_mem *mem, struct sb_sampling *sampling)
{
    if (!sampling)
        return;
    sb_free(mem, sampling->bias_ids);
    sb_free(mem, sampling->bias);
    sb_free(mem, sampling);
}

size_t sb_sampling_bytes(const struct sb_sampling *sampling)
{
    const size_t bias = sizeof *sampling->bias_ids + sizeof *sampling->bias;

    return sampling ? sizeof *sampling + (size_t)sampling->rule.n_bias * bias : 0;
}

int sb_sampling_equal(const struct sb_sampling *a, const struct sb_sampling *b)
{
    const struct sb_sampler *x = a ? &a->rule : NULL, *y = b ? &b->rule : NULL;

    if (!a || !b)
        return a == b;
    return x->seed == y->seed && x->temperature == y->temperature && x->top_k == y->top_k &&
           x->top_p == y->top_p && x->typical_p == y->typical_p && x->min_p == y->min_p &&
           x->repetition == y->repetition && x->presence == y->presence &&
           x->frequency == y->frequency && x->window == y->window &&
           x->spares_prompt == y->spares_prompt && x->n_bias == y->n_bias &&
           (x->n_bias == 0 ||
            (memcmp(a->bias_ids, b->bias_ids, (size_t)x->n_bias * sizeof *a->bias_ids) == 0 &&
             memcmp(a->bias, b->bias, (size_t)x->n_bias * sizeof *a->bias) == 0));
}

static int32_t copy_bias(struct sb_sampling *sampling, const struct sb_mem *mem,
                         const specbatch_sampling *full)
{
    int32_t rc = SPECBATCH_OK;

    if (full->n_bias == 0)
        return rc;
    SB_NEW(sampling->bias_ids, sb_alloc(mem, full->n_bias, sizeof *sampling->bias_ids),
           "a request");
    SB_NEW(sampling->bias, sb_alloc(mem, full->n_bias, sizeof *sampling->bias), "a request");
    memcpy(sampling->bias_ids, full->bias_ids, full->n_bias * sizeof *full->bias_ids);
    memcpy(sampling->bias, full->bias, full->n_bias * sizeof *full->bias);
    sampling->rule.n_bias = (int32_t)full->n_bias;
done:
    return rc;
}

int32_t sb_sampling_create(struct sb_sampling **out, const struct sb_mem *mem,
                           const specbatch_sampling *given, int32_t vocab, int32_t answer)
{
    struct sb_sampling *sampling = NULL;
    specbatch_sampling full;
    int32_t rc = SPECBATCH_OK;

    *out = NULL;
    if (!given)
        return rc;
    SB_TRY(resolve(&full, given));
    SB_TRY(check_bias(&full, vocab));
    if (is_greedy(&full))
        return rc;
    SB_NEW(sampling, sb_alloc(mem, 1, sizeof *sampling), "a request");
    sampling->rule = (struct sb_sampler){
        .seed = full.seed + (uint64_t)answer,
        .temperature = full.temperature,
        .top_k = full.top_k,
        .top_p = full.top_p,
        .typical_p = full.typical_p,
        .min_p = full.min_p,
        .repetition = full.repetition_penalty,
        .presence = full.presence_penalty,
        .frequency = full.frequency_penalty,
        .window = full.penalty_window,
        .spares_prompt = (full.flags & SPECBATCH_SAMPLING_SPARE_PROMPT) != 0,
    };
    SB_TRY(copy_bias(sampling, mem, &full));
    *out = sampling;
    sampling = NULL;
done:
    sb_sampling_free(mem, sampling);
    return rc;
}
