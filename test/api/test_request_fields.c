/*
 * Every field of a request, and of the structs that it points to, by a table: what it must not be,
 * and that this is refused by a status and a line that names it. The tables are in the order of the
 * structs, and have to reach from their first byte to their last: so a field that is new has to be
 * put there, with a bad value or with the word that it has none.
 */
#include <math.h>

#include "sbtest.h"
#include "specbatch.h"

static specbatch_model *model;
static specbatch_pool *pool;

/* A field of a struct with a value that is refused; NULL: every value is taken, or is refused by
 * another table. A field may have several rows. */
struct row {
    size_t at, size;
    const void *bad;
    int32_t status;
    const char *why;
};

#define AT(type, field) offsetof(type, field), sizeof(((type *)0)->field)
#define ANY(type, field)               \
    {                                  \
        AT(type, field), NULL, 0, NULL \
    }
#define BAD(type, field, kind, value, status, why)   \
    {                                                \
        AT(type, field), &(kind){value}, status, why \
    }
#define INVALID(type, field, kind, value, why) \
    BAD(type, field, kind, value, SPECBATCH_E_INVALID, why)
#define N_ROWS(rows) (sizeof(rows) / sizeof *(rows))

/* ------------------------------------------------------------------ the tables */

static const int32_t ids[] = {5, 17, 300}, below[] = {-1}, outside[] = {4096};
static const float bias[] = {1.0f}, infinite[] = {INFINITY};
static const char *const strings[] = {"a"}, *const empty[] = {""}, *const torn[] = {"\xe2\x82"};

#define OF specbatch_request
static const struct row of_request[] = {
    INVALID(OF, struct_size, size_t, 4, "request: struct_size is 4"),
    INVALID(OF, ids, const int32_t *, NULL, "neither ids nor text"),
    BAD(OF, ids, const int32_t *, below, SPECBATCH_E_TOKEN, "prompt id 0 is -1"),
    BAD(OF, ids, const int32_t *, outside, SPECBATCH_E_TOKEN, "prompt id 0 is 4096"),
    INVALID(OF, n_ids, size_t, 0, "the prompt is empty (n_ids is 0)"),
    INVALID(OF, text, const char *, "x", "both ids and text"),
    BAD(OF, text_flags, uint32_t, 64, SPECBATCH_E_OPTIONS, "request: text_flags"),
    BAD(OF, flags, uint32_t, 16, SPECBATCH_E_OPTIONS, "request: flags"),
    INVALID(OF, max_new, int32_t, 0, "request: max_new is 0"),
    INVALID(OF, max_new, int32_t, -1, "request: max_new is -1"),
    BAD(OF, max_new, int32_t, INT32_MAX, SPECBATCH_E_TOO_LONG, "max_new 2147483647"),
    INVALID(OF, draft_len, int32_t, -2, "request: draft_len is -2"),
    INVALID(OF, draft_len, int32_t, 65, "request: draft_len is 65"),
    INVALID(OF, stop_ids, const int32_t *, NULL, "stop_ids is NULL"),
    BAD(OF, stop_ids, const int32_t *, below, SPECBATCH_E_TOKEN, "stop id 0 is -1"),
    BAD(OF, stop_ids, const int32_t *, outside, SPECBATCH_E_TOKEN, "stop id 0 is 4096"),
    INVALID(OF, n_stop_ids, size_t, 65, "request: n_stop_ids is 65"),
    ANY(OF, user),
    INVALID(OF, text_length, size_t, 3, "text_length is 3, but text is NULL"),
    ANY(OF, sampling),
    ANY(OF, stops),
    ANY(OF, mask),
    ANY(OF, answers),
    INVALID(OF, min_new, int32_t, -1, "request: min_new is -1"),
    INVALID(OF, min_new, int32_t, 5, "request: min_new is 5, outside 0..4"),
    INVALID(OF, top_logprobs, int32_t, -1, "request: top_logprobs is -1"),
    INVALID(OF, top_logprobs, int32_t, 33, "request: top_logprobs is 33"),
    INVALID(OF, priority, int32_t, -1001, "request: priority is -1001"),
    INVALID(OF, priority, int32_t, 1001, "request: priority is 1001"),
    BAD(OF, draft_sources, uint32_t, 2, SPECBATCH_E_OPTIONS, "draft_sources"),
    ANY(OF, deadline_ns),
};
#undef OF

#define OF specbatch_sampling
#define FLOAT(field, value) INVALID(OF, field, float, value, "request: sampling: " #field)
static const struct row of_sampling[] = {
    INVALID(OF, struct_size, size_t, 4, "request: sampling: struct_size is 4"),
    ANY(OF, seed),
    FLOAT(temperature, -0.5f),
    FLOAT(temperature, INFINITY),
    FLOAT(temperature, NAN),
    INVALID(OF, top_k, int32_t, -1, "request: sampling: top_k is -1"),
    FLOAT(top_p, -0.5f),
    FLOAT(top_p, 1.5f),
    FLOAT(typical_p, -0.5f),
    FLOAT(typical_p, NAN),
    FLOAT(min_p, -0.5f),
    FLOAT(min_p, 1.5f),
    FLOAT(repetition_penalty, -0.5f),
    FLOAT(repetition_penalty, INFINITY),
    FLOAT(presence_penalty, NAN),
    FLOAT(frequency_penalty, -INFINITY),
    INVALID(OF, penalty_window, int32_t, -1, "request: sampling: penalty_window is -1"),
    INVALID(OF, penalty_window, int32_t, 3073, "request: sampling: penalty_window is 3073"),
    BAD(OF, flags, uint32_t, 2, SPECBATCH_E_OPTIONS, "request: sampling: flags"),
    INVALID(OF, bias_ids, const int32_t *, NULL, "request: sampling: n_bias is 1, but bias_ids"),
    BAD(OF, bias_ids, const int32_t *, below, SPECBATCH_E_TOKEN, "sampling: bias_ids[0] is -1"),
    BAD(OF, bias_ids, const int32_t *, outside, SPECBATCH_E_TOKEN, "sampling: bias_ids[0] is 4096"),
    INVALID(OF, bias, const float *, NULL, "request: sampling: n_bias is 1, but bias is NULL"),
    INVALID(OF, bias, const float *, infinite, "request: sampling: bias[0] is inf"),
    INVALID(OF, n_bias, size_t, 1025, "request: sampling: n_bias is 1025"),
};
#undef OF

#define OF specbatch_stops
static const struct row of_stops[] = {
    INVALID(OF, struct_size, size_t, 4, "request: stops: struct_size is 4"),
    INVALID(OF, strings, const char *const *, NULL, "request: stops: strings is NULL"),
    INVALID(OF, strings, const char *const *, empty, "strings[0] is empty"),
    INVALID(OF, strings, const char *const *, torn, "strings[0] is not UTF-8"),
    INVALID(OF, lengths, const size_t *, &(const size_t){256}, "more than 255 bytes"),
    INVALID(OF, n_strings, size_t, 0, "request: stops: n_strings is 0"),
    INVALID(OF, n_strings, size_t, 17, "request: stops: n_strings is 17"),
};
#undef OF

static int32_t allow(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    (void)user, (void)rows, (void)n_rows;
    return 0;
}

typedef int32_t (*allow_fn)(void *, specbatch_mask_row *const *, size_t);
static const struct row of_mask[] = {
    INVALID(specbatch_mask, struct_size, size_t, 4, "request: mask: struct_size is 4"),
    INVALID(specbatch_mask, allow, allow_fn, NULL, "request: mask: allow is NULL"),
    ANY(specbatch_mask, user),
};

#define OF specbatch_answers
static const struct row of_answers[] = {
    INVALID(OF, struct_size, size_t, 4, "request: answers: struct_size is 4"),
    INVALID(OF, n, int32_t, 0, "request: answers: n is 0"),
    INVALID(OF, n, int32_t, 1025, "request: answers: n is 1025"),
    INVALID(OF, best_of, int32_t, -1, "request: answers: best_of is -1"),
    INVALID(OF, best_of, int32_t, 1, "request: answers: best_of is 1, outside 2..1024"),
    INVALID(OF, best_of, int32_t, 1025, "request: answers: best_of is 1025"),
};
#undef OF

/* ------------------------------------------------------------------ the tests */

/* A request that wants something of every kind, and which the pool takes. */
struct wish {
    specbatch_request request;
    specbatch_sampling sampling;
    specbatch_stops stops;
    specbatch_mask mask;
    specbatch_answers answers;
};

static void wish_for_all(struct wish *w)
{
    *w = (struct wish){SPECBATCH_REQUEST_INIT, SPECBATCH_SAMPLING_INIT, SPECBATCH_STOPS_INIT,
                       SPECBATCH_MASK_INIT, SPECBATCH_ANSWERS_INIT};
    w->request.ids = ids;
    w->request.n_ids = 3;
    w->request.max_new = 4;
    w->request.stop_ids = ids;
    w->request.n_stop_ids = 1;
    w->request.sampling = &w->sampling;
    w->request.stops = &w->stops;
    w->request.mask = &w->mask;
    w->request.answers = &w->answers;
    w->sampling.bias_ids = ids;
    w->sampling.bias = bias;
    w->sampling.n_bias = 1;
    w->stops.strings = strings;
    w->stops.n_strings = 1;
    w->mask.allow = allow;
    w->answers.n = 2;
}

/* The rows of the struct at `part` of a wish. */
static void check_rows(const struct row *rows, size_t n, size_t part, size_t size)
{
    size_t end = 0;

    for (size_t i = 0; i < n; i++) {
        struct wish w;
        wish_for_all(&w);
        if (i == 0 || rows[i].at != rows[i - 1].at) {
            CHECK_INT(rows[i].at, end);
            end += rows[i].size;
        }
        if (!rows[i].bad)
            continue;
        memcpy((char *)&w + part + rows[i].at, rows[i].bad, rows[i].size);
        CHECK_ERROR(specbatch_pool_submit(pool, &w.request, NULL), rows[i].status, rows[i].why);
    }
    CHECK_INT(end, size);
}

#define TEST_OF(part)                                                         \
    static void test_fields_of_##part(void)                                   \
    {                                                                         \
        check_rows(of_##part, N_ROWS(of_##part), offsetof(struct wish, part), \
                   sizeof(specbatch_##part));                                 \
    }
TEST_OF(request)
TEST_OF(sampling)
TEST_OF(stops)
TEST_OF(mask)
TEST_OF(answers)

/* Nothing of what was refused is in the pool; and what the rows were made from is taken. */
static void test_nothing_was_taken(void)
{
    struct wish w;
    size_t active = 1;
    uint64_t id = 0;

    CHECK_OK(specbatch_pool_step(pool, &active));
    CHECK_INT(active, 0);
    wish_for_all(&w);
    CHECK_OK(specbatch_pool_submit(pool, &w.request, &id));
    CHECK_INT(id, 1);
}

/* A draft of one source, so that there is a source that is not there. */
static int32_t open_all(void)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_draft *draft = NULL;
    int32_t rc = specbatch_model_open(&model, "examples/demo/draft", NULL);

    options.n_threads = 1;
    options.max_len = 64;
    if (rc == SPECBATCH_OK)
        rc = specbatch_draft_from_ngrams(&draft, NULL);
    if (rc == SPECBATCH_OK)
        rc = specbatch_pool_create(&pool, model, draft, &options);
    specbatch_draft_release(draft);
    return rc;
}

TEST_BEGIN
if (open_all() != SPECBATCH_OK) {
    printf("FAIL open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_fields_of_request);
RUN(test_fields_of_sampling);
RUN(test_fields_of_stops);
RUN(test_fields_of_mask);
RUN(test_fields_of_answers);
RUN(test_nothing_was_taken);
specbatch_pool_free(pool);
specbatch_model_close(model);
TEST_END
