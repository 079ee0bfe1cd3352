/* The fields of a wish as a table: their names in a line, how each is read, places and ranges. */
#include "wish.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { MAX_BIAS = 1024, MAX_STOPS = 16, MAX_STOP_IDS = 64, MAX_SOURCES = 32 };

struct field {
    const char *name;
    /* Reads a value into `to`: NULL, or what is wrong with it. */
    const char *(*take)(struct ex_line_wish *line, const struct field *field, void *to,
                        yajl_val value);
    size_t at, size; /* in struct ex_wish */
    double low, high;
};

static const char out_of_range[] = "is out of range"; /* which the table tells */

/* ------------------------------------------------------------------ kinds of fields */

static const char *take_integer(struct ex_line_wish *line, const struct field *field, void *to,
                                yajl_val value)
{
    int32_t number;

    (void)line;
    if (!YAJL_IS_INTEGER(value) || (double)YAJL_GET_INTEGER(value) < field->low ||
        (double)YAJL_GET_INTEGER(value) > field->high)
        return out_of_range;
    number = (int32_t)YAJL_GET_INTEGER(value);
    memcpy(to, &number, sizeof number);
    return NULL;
}

/* The same float as that of an option with these digits. */
static const char *take_real(struct ex_line_wish *line, const struct field *field, void *to,
                             yajl_val value)
{
    const float number = YAJL_IS_NUMBER(value) ? strtof(YAJL_GET_NUMBER(value), NULL) : NAN;

    (void)line;
    if (!((double)number >= field->low && (double)number <= field->high))
        return out_of_range;
    memcpy(to, &number, sizeof number);
    return NULL;
}

/* Seeds may be greater than the integers that yajl reads. */
static const char *take_seed(struct ex_line_wish *line, const struct field *field, void *to,
                             yajl_val value)
{
    const char *text = YAJL_IS_NUMBER(value) ? YAJL_GET_NUMBER(value) : "";
    const size_t digits = strspn(text, "0123456789");
    uint64_t number;

    (void)line, (void)field;
    errno = 0;
    number = strtoull(text, NULL, 10);
    if (digits == 0 || text[digits] || errno)
        return "is not a number in 0..18446744073709551615";
    memcpy(to, &number, sizeof number);
    return NULL;
}

static const char *take_switch(struct ex_line_wish *line, const struct field *field, void *to,
                               yajl_val value)
{
    const int32_t on = YAJL_IS_TRUE(value);

    (void)line, (void)field;
    memcpy(to, &on, sizeof on);
    return on || YAJL_IS_FALSE(value) ? NULL : "is neither true nor false";
}

/* Memory that goes with the line. */
static void *block(struct ex_line_wish *line, size_t count, size_t size)
{
    return line->blocks[line->n_blocks++] = ex_alloc(count ? count : 1, size);
}

static int is_id(yajl_val value)
{
    return YAJL_IS_INTEGER(value) && YAJL_GET_INTEGER(value) >= 0 &&
           YAJL_GET_INTEGER(value) <= INT32_MAX;
}

static const char *take_draft_len(struct ex_line_wish *line, const struct field *field, void *to,
                                  yajl_val value)
{
    const char *why = take_integer(line, field, to, value);

    if (line->wish.draft_len == 0)
        line->wish.draft_len = -1;
    return why;
}

static const char *take_sources(struct ex_line_wish *line, const struct field *field, void *to,
                                yajl_val value)
{
    static const char wrong[] = "is not an array of numbers in 0..31, one or more";

    (void)field, (void)to;
    if (!YAJL_IS_ARRAY(value) || value->u.array.len == 0)
        return wrong;
    for (size_t i = 0; i < value->u.array.len; i++) {
        const yajl_val source = value->u.array.values[i];
        if (!is_id(source) || YAJL_GET_INTEGER(source) >= MAX_SOURCES)
            return wrong;
        line->wish.draft_sources |= (uint32_t)1 << YAJL_GET_INTEGER(source);
    }
    return NULL;
}

/* A string, or an array of strings. */
static const char *take_stops(struct ex_line_wish *line, const struct field *field, void *to,
                              yajl_val value)
{
    static const char wrong[] = "is neither a string nor an array of up to 16 strings";
    const int is_array = YAJL_IS_ARRAY(value);
    const size_t n = is_array ? value->u.array.len : 1;
    yajl_val *const strings = is_array ? value->u.array.values : &value;
    size_t size = 0;
    char *text;

    (void)field, (void)to;
    if (n > MAX_STOPS)
        return wrong;
    for (size_t i = 0; i < n; i++) {
        if (!YAJL_IS_STRING(strings[i]))
            return wrong;
        if (strings[i]->u.string[0] == '\0')
            return "has an empty string";
        size += strlen(strings[i]->u.string) + 1;
    }
    text = block(line, size, 1);
    for (size_t i = 0; i < n; i++) {
        const size_t length = strlen(strings[i]->u.string) + 1;
        line->wish.stops.at[line->wish.stops.n++] = memcpy(text, strings[i]->u.string, length);
        text += length;
    }
    return NULL;
}

static const char *take_stop_ids(struct ex_line_wish *line, const struct field *field, void *to,
                                 yajl_val value)
{
    static const char wrong[] = "is not an array of up to 64 token ids";

    (void)field, (void)to;
    if (!YAJL_IS_ARRAY(value) || value->u.array.len > MAX_STOP_IDS)
        return wrong;
    line->wish.stop_ids.n = value->u.array.len;
    line->wish.stop_ids.at = block(line, value->u.array.len, sizeof *line->wish.stop_ids.at);
    for (size_t i = 0; i < value->u.array.len; i++) {
        if (!is_id(value->u.array.values[i]))
            return wrong;
        line->wish.stop_ids.at[i] = (int32_t)YAJL_GET_INTEGER(value->u.array.values[i]);
    }
    return NULL;
}

/* An object, whose keys are ids and whose values what is added to their logits; null bans one. */
static const char *take_bias(struct ex_line_wish *line, const struct field *field, void *to,
                             yajl_val value)
{
    static const char wrong[] = "is not an object of up to 1024 token ids, each with a number or "
                                "null";
    const size_t n = YAJL_IS_OBJECT(value) ? value->u.object.len : SIZE_MAX;
    int32_t *ids;
    float *bias;

    (void)field, (void)to;
    if (n > MAX_BIAS)
        return wrong;
    ids = block(line, n, sizeof *ids);
    bias = block(line, n, sizeof *bias);
    for (size_t i = 0; i < n; i++) {
        const char *key = value->u.object.keys[i];
        const yajl_val number = value->u.object.values[i];
        const size_t digits = strspn(key, "0123456789");
        if (digits == 0 || digits > 9 || key[digits] ||
            !(YAJL_IS_NUMBER(number) || YAJL_IS_NULL(number)))
            return wrong;
        ids[i] = (int32_t)strtol(key, NULL, 10);
        bias[i] = YAJL_IS_NULL(number) ? -INFINITY : strtof(YAJL_GET_NUMBER(number), NULL);
    }
    line->wish.sampling.bias_ids = ids;
    line->wish.sampling.bias = bias;
    line->wish.sampling.n_bias = n;
    return NULL;
}

/* ------------------------------------------------------------------ the table */

#define AT(member) offsetof(struct ex_wish, member), sizeof(((struct ex_wish *)0)->member)
#define BIAS                                     \
    offsetof(struct ex_wish, sampling.bias_ids), \
        sizeof(specbatch_sampling) - offsetof(specbatch_sampling, bias_ids)

static const struct field fields[] = {
    {"max_new", take_integer, AT(max_new), 1, INT32_MAX},
    {"min_new", take_integer, AT(min_new), 0, INT32_MAX},
    {"draft_len", take_draft_len, AT(draft_len), 0, 64},
    {"draft_sources", take_sources, AT(draft_sources), 0, 0},
    {"n", take_integer, AT(n), 1, 1024},
    {"best_of", take_integer, AT(best_of), 1, 1024},
    {"priority", take_integer, AT(priority), -1000, 1000},
    {"deadline_ms", take_integer, AT(deadline_ms), 0, INT32_MAX},
    {"ignore_eos", take_switch, AT(ignore_eos), 0, 0},
    {"logprobs", take_switch, AT(logprobs), 0, 0},
    {"filtered_logprobs", take_switch, AT(filtered_logprobs), 0, 0},
    {"top_logprobs", take_integer, AT(top_logprobs), 0, 32},
    {"stop", take_stops, AT(stops), 0, 0},
    {"stop_ids", take_stop_ids, AT(stop_ids), 0, 0},
    {"temperature", take_real, AT(sampling.temperature), 0, 1e9},
    {"seed", take_seed, AT(sampling.seed), 0, 0},
    {"top_k", take_integer, AT(sampling.top_k), 0, INT32_MAX},
    {"top_p", take_real, AT(sampling.top_p), 0, 1},
    {"typical_p", take_real, AT(sampling.typical_p), 0, 1},
    {"min_p", take_real, AT(sampling.min_p), 0, 1},
    {"repeat_penalty", take_real, AT(sampling.repetition_penalty), 0, 1e9},
    {"presence_penalty", take_real, AT(sampling.presence_penalty), -1e9, 1e9},
    {"frequency_penalty", take_real, AT(sampling.frequency_penalty), -1e9, 1e9},
    {"penalty_window", take_integer, AT(sampling.penalty_window), 0, 3072},
    {"spare_prompt", take_switch, AT(spare_prompt), 0, 0},
    {"bias", take_bias, BIAS, 0, 0},
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };
_Static_assert(N_FIELDS <= 32, "a bit for each field");

int ex_wish_take(struct ex_line_wish *line, const char *name, yajl_val value, char why[EX_WHY])
{
    const struct field *field = fields;
    const char *wrong;

    while (field < fields + N_FIELDS && strcmp(field->name, name) != 0)
        field++;
    if (field == fields + N_FIELDS)
        return -1;
    if (line->here >> (field - fields) & 1)
        wrong = "is there twice";
    else
        wrong = field->take(line, field, (char *)&line->wish + field->at, value);
    line->here |= (uint32_t)1 << (field - fields);
    if (wrong == out_of_range)
        snprintf(why, EX_WHY, "\"%s\" is not a number in %.10g..%.10g", name, field->low,
                 field->high);
    else if (wrong)
        snprintf(why, EX_WHY, "\"%s\" %s", name, wrong);
    return wrong == NULL;
}

void ex_wish_free(struct ex_line_wish *line)
{
    for (size_t i = 0; i < line->n_blocks; i++)
        free(line->blocks[i]);
    line->n_blocks = 0;
}

/* ------------------------------------------------------------------ what is wished */

struct ex_wish ex_wish_of(const struct ex_line_wish *line, const struct ex_wish *usual)
{
    struct ex_wish wish = *usual;

    for (size_t i = 0; i < N_FIELDS; i++)
        if (line->here >> i & 1)
            memcpy((char *)&wish + fields[i].at, (const char *)&line->wish + fields[i].at,
                   fields[i].size);
    if (wish.min_new > wish.max_new && !line->wish.min_new)
        wish.min_new = wish.max_new;
    return wish;
}

int32_t ex_wish_answers(const struct ex_wish *wish)
{
    return wish->n > 0 ? wish->n : 1;
}

int32_t ex_wish_made(const struct ex_wish *wish)
{
    return wish->best_of > 0 ? wish->best_of : ex_wish_answers(wish);
}

void ex_wish_request(struct ex_request *out, const struct ex_wish *wish)
{
    static const uint64_t millisecond = 1000000;
    specbatch_request *request = &out->request;

    *request = (specbatch_request)SPECBATCH_REQUEST_INIT;
    request->max_new = wish->max_new;
    request->min_new = wish->min_new;
    request->draft_len = wish->draft_len;
    request->draft_sources = wish->draft_sources;
    request->top_logprobs = wish->top_logprobs;
    request->priority = wish->priority;
    request->deadline_ns = (uint64_t)wish->deadline_ms * millisecond;
    request->stop_ids = wish->stop_ids.at;
    request->n_stop_ids = wish->stop_ids.n;
    request->flags = (wish->ignore_eos ? SPECBATCH_REQUEST_IGNORE_EOS : 0u) |
                     (wish->logprobs ? SPECBATCH_REQUEST_LOGPROBS : 0u) |
                     (wish->filtered_logprobs ? SPECBATCH_REQUEST_FILTERED_LOGPROBS : 0u) |
                     (wish->score ? SPECBATCH_REQUEST_PROMPT_LOGPROBS : 0u);
    out->sampling = wish->sampling;
    out->sampling.struct_size = sizeof out->sampling;
    out->sampling.flags = wish->spare_prompt ? SPECBATCH_SAMPLING_SPARE_PROMPT : 0u;
    request->sampling = &out->sampling;
    out->stops = (specbatch_stops)SPECBATCH_STOPS_INIT;
    out->stops.strings = wish->stops.at;
    out->stops.n_strings = wish->stops.n;
    request->stops = wish->stops.n > 0 ? &out->stops : NULL;
    out->answers = (specbatch_answers)SPECBATCH_ANSWERS_INIT;
    out->answers.n = ex_wish_answers(wish);
    out->answers.best_of = ex_wish_made(wish);
    request->answers = &out->answers;
}
