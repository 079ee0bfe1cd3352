/*
 * Stop strings as programs see them: under every policy, with drafts that are right and wrong, the
 * tokens, log-probabilities and text of a request are those of plain decoding at batch 1, bit for
 * bit, and those that the whole answer without stop strings has before the first of them
 * (support/stop_oracle.h). Polls and events show nothing that is taken back. And min_new, and what
 * is refused.
 */
#include "sbtest.h"

#include "pool/pool.h"
#include "support/drafts.h"
#include "support/pool_check.h"
#include "support/run_to_end.h"
#include "support/stop_oracle.h"
#include "support/text_model.h"
#include "support/trace.h"

enum { N = 5, MAX_NEW = 40 };

/* A request with what it has to give, and what has been shown of it. */
struct asked {
    struct stop_strings stops;
    int32_t prompt[4], min_new;
    uint32_t flags;
    struct whole_answer whole;
    float logprobs[MAX_NEW];
    int32_t finish; /* of the whole answer */
    struct cut_answer cut;

    uint64_t id;
    int32_t cancelled;
    int32_t polled[MAX_NEW], told[MAX_NEW];
    size_t n_polled, n_told, told_length;
    char told_text[STOP_ORACLE_TEXT];
};

static struct failalloc memory;
static specbatch_model *model;
static struct asked asked[N];
static uint64_t state;

static uint64_t below(uint64_t n)
{
    return trace_random(&state) % n;
}

/* ------------------------------------------------------------------ pools and requests */

enum draft_kind { NO_DRAFT, ITSELF, KNOWING, NGRAMS, N_DRAFTS };

/* Proposes the whole answer's tokens, also behind a stop string, and now and then others. */
static int32_t propose(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++) {
        const struct asked *a = rows[b]->request_user;
        const int32_t n = (int32_t)rows[b]->n_tokens - 4;
        rows[b]->n_out = rows[b]->k;
        for (int32_t i = 0; i < rows[b]->k; i++)
            rows[b]->out[i] = n + i < a->whole.n && below(10) > 0 ? a->whole.ids[n + i] : 300;
    }
    return 0;
}

static int32_t make_pool(specbatch_pool **pool, int32_t policy, enum draft_kind kind, int32_t k)
{
    const specbatch_draft_ops knowing = only_propose(propose, NULL);
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.policy = policy;
    options.batch = policy == SPECBATCH_POLICY_PLAIN && k == 0 ? 1 : 3;
    options.draft_len = k > 0 ? k : -1;
    options.max_len = 64;
    options.n_threads = 1;
    options.flags = SPECBATCH_POOL_FIXED_K | (k == 4 ? SPECBATCH_POOL_GROW_SLOTS : 0);
    options.prefix_bytes = k == 4 ? 1 << 20 : 0;
    options.alloc = failalloc_alloc;
    options.free = failalloc_free;
    options.alloc_user = &memory;
    if (kind == KNOWING)
        return create_with_ops(pool, model, &knowing, &options);
    if (kind == NGRAMS)
        return create_with_ngrams(pool, model, NULL, &options);
    return create_with_model(pool, model, kind == ITSELF ? model : NULL, &options);
}

static specbatch_request request_of(struct asked *a, specbatch_stops *stops)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    stops->strings = a->stops.at;
    stops->lengths = a->stops.lengths;
    stops->n_strings = a->stops.n;
    request.ids = a->prompt;
    request.n_ids = 4;
    request.max_new = MAX_NEW;
    request.min_new = a->min_new;
    request.flags = SPECBATCH_REQUEST_LOGPROBS | a->flags;
    request.user = a;
    request.stops = stops->n_strings > 0 ? stops : NULL;
    return request;
}

static int32_t submit(specbatch_pool *pool, struct asked *a)
{
    specbatch_stops stops = SPECBATCH_STOPS_INIT;
    const specbatch_request request = request_of(a, &stops);

    a->n_polled = a->n_told = a->told_length = 0;
    a->cancelled = 0;
    return specbatch_pool_submit(pool, &request, &a->id);
}

/* ------------------------------------------------------------------ the whole answers */

/* Has the request decoded plainly at batch 1. */
static specbatch_result *plain(struct asked *a)
{
    specbatch_result *result = NULL;
    specbatch_pool *pool = NULL;

    if (make_pool(&pool, SPECBATCH_POLICY_PLAIN, NO_DRAFT, 0) == SPECBATCH_OK &&
        submit(pool, a) == SPECBATCH_OK && run_to_end(pool) == SPECBATCH_OK)
        specbatch_pool_collect(pool, &result);
    specbatch_pool_free(pool);
    return result;
}

/* Asks for the whole answer, draws strings from it, and works out where they cut it. */
static int prepare(struct asked *a, int i)
{
    const int32_t prompt[] = {301 + (int32_t)below(40), 17, 340, 60 * i};
    specbatch_result *whole;
    const int32_t *ids;
    size_t n;

    a->stops.n = 0;
    a->flags = below(2) ? SPECBATCH_REQUEST_IGNORE_EOS : 0;
    a->min_new = below(3) ? 0 : (int32_t)below(12);
    memcpy(a->prompt, prompt, sizeof prompt);
    if (!(whole = plain(a)))
        return 0;
    ids = specbatch_result_tokens(whole, &n);
    memcpy(a->whole.ids, ids, n * sizeof *ids);
    memcpy(a->logprobs, specbatch_result_logprobs(whole, NULL), n * sizeof *a->logprobs);
    a->whole.n = (int32_t)n;
    a->finish = specbatch_result_finish(whole);
    specbatch_result_free(whole);
    if (stop_oracle_read(&a->whole, model->tokenizer) != SPECBATCH_OK)
        return 0;
    stop_oracle_draw(&a->stops, &a->whole, &state);
    a->cut = stop_oracle_cut(&a->whole, &a->stops, a->min_new);
    return 1;
}

/* ------------------------------------------------------------------ checks */

static void check_result(const struct asked *a, const specbatch_result *result)
{
    size_t n, length;
    const int32_t *ids = specbatch_result_tokens(result, &n);
    const float *logprobs = specbatch_result_logprobs(result, NULL);
    const char *text = specbatch_result_text(result, &length);

    if (a->cancelled && specbatch_result_finish(result) == SPECBATCH_FINISH_CANCELLED) {
        CHECK(n <= (size_t)a->cut.n && length <= a->cut.length);
    } else {
        CHECK_INT(specbatch_result_finish(result),
                  a->cut.is_stopped ? SPECBATCH_FINISH_STOP : a->finish);
        CHECK_INT(n, a->cut.n);
        CHECK_INT(length, a->cut.length);
    }
    CHECK_MEM(ids, a->whole.ids, n * sizeof *ids);
    CHECK_MEM(logprobs, a->logprobs, n * sizeof *logprobs);
    CHECK_MEM(text, a->whole.text, length);
    CHECK(text[length] == '\0');
    CHECK_INT(specbatch_result_time_first_token_ns(result) > 0, n > 0);
}

/* What was shown before its end is what the result has. */
static void check_shown(const struct asked *a, const specbatch_result *result)
{
    size_t n, length;
    const int32_t *ids = specbatch_result_tokens(result, &n);
    const char *text = specbatch_result_text(result, &length);

    CHECK_INT(a->n_told, n);
    CHECK_MEM(a->told, ids, n * sizeof *ids);
    CHECK_INT(a->told_length, length);
    CHECK_MEM(a->told_text, text, length);
    CHECK(a->n_polled <= n);
    CHECK_MEM(a->polled, ids, a->n_polled * sizeof *ids);
}

/* Polls all requests and reads all events. */
static void look(specbatch_pool *pool)
{
    specbatch_request_state now = SPECBATCH_REQUEST_STATE_INIT;
    specbatch_event event = SPECBATCH_EVENT_INIT;
    size_t n;

    for (int i = 0; i < N; i++) {
        struct asked *a = &asked[i];
        if (a->id == 0 || specbatch_pool_state(pool, a->id, &now) != SPECBATCH_OK)
            continue;
        CHECK_OK(
            specbatch_pool_poll(pool, a->id, a->polled + a->n_polled, MAX_NEW - a->n_polled, &n));
        a->n_polled += n;
        CHECK_INT(now.n_generated, a->n_polled);
    }
    while (specbatch_pool_next_event(pool, &event) == SPECBATCH_OK) {
        struct asked *a = event.user;
        CHECK(a->n_told + event.n_ids <= MAX_NEW);
        CHECK(a->told_length + event.text_length < sizeof a->told_text);
        CHECK(event.text[event.text_length] == '\0');
        memcpy(a->told + a->n_told, event.ids, event.n_ids * sizeof *event.ids);
        memcpy(a->told_text + a->told_length, event.text, event.text_length);
        a->n_told += event.n_ids;
        a->told_length += event.text_length;
    }
}

static uint64_t counter(const specbatch_pool *pool, const char *name)
{
    uint64_t value = UINT64_MAX;

    specbatch_pool_stat(pool, name, &value);
    return value;
}

/* Collects all, checks each, and the counters against their sum. */
static void check_all(specbatch_pool *pool)
{
    uint64_t committed = 0, accepted = 0;
    specbatch_result *result;
    size_t n;

    for (int i = 0; i < N && !sbtest_failed_now; i++) {
        CHECK_OK(specbatch_pool_collect(pool, &result));
        check_result(specbatch_result_user(result), result);
        check_shown(specbatch_result_user(result), result);
        specbatch_result_tokens(result, &n);
        committed += n;
        accepted += specbatch_result_accepted(result);
        specbatch_result_free(result);
    }
    CHECK_INT(counter(pool, "tokens_committed"), committed);
    CHECK_INT(counter(pool, "tokens_accepted"), accepted);
}

/* Runs the requests, some of which are cancelled underway. A step takes no memory. */
static void run_all(int32_t policy, enum draft_kind kind, int32_t k)
{
    specbatch_pool *pool = NULL;
    size_t active = 1;

    CHECK_OK(make_pool(&pool, policy, kind, k));
    for (int i = 0; i < N; i++)
        CHECK_OK(submit(pool, &asked[i]));
    while (active && !sbtest_failed_now) {
        long calls = atomic_load(&memory.calls);
        CHECK_OK(specbatch_pool_step(pool, &active));
        CHECK_INT(atomic_load(&memory.calls), calls);
        CHECK_OK(pool_check(pool));
        look(pool);
        for (int i = 0; i < N; i++)
            if (below(100) < 2 && specbatch_pool_cancel(pool, asked[i].id) == SPECBATCH_OK)
                asked[i].cancelled = 1;
    }
    if (sbtest_failed_now)
        return;
    look(pool);
    check_all(pool);
    specbatch_pool_free(pool);
}

static void check_model(int rounds)
{
    int n_stopped = 0;

    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < N; i++) {
            CHECK(prepare(&asked[i], i));
            n_stopped += asked[i].cut.is_stopped;
        }
        for (int32_t policy = 0; policy < specbatch_policy_count(); policy++)
            for (int kind = 0; kind < N_DRAFTS; kind++) {
                const int32_t k = (int32_t[]){1, 4, 7}[below(3)];
                run_all(policy, kind, k);
                if (sbtest_failed_now)
                    FAIL("round %d, %s, draft %d, K %d", round, specbatch_policy_name(policy), kind,
                         k);
            }
    }
    CHECK(n_stopped > rounds && n_stopped < rounds * N);
}

static void test_answers_are_plain_ones_cut(void)
{
    static const char *const tokenizers[] = {"qwen", "llama", "spm"};

    for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++) {
        state = 11 + i;
        CHECK((model = open_text_model(tokenizers[i], NULL)) != NULL);
        check_model(8);
        specbatch_model_close(model);
        if (sbtest_failed_now)
            FAIL("%s", tokenizers[i]);
    }
    CHECK_INT(atomic_load(&memory.outstanding), 0);
}

static void test_a_gguf_file(void)
{
    const struct test_dir from = test_dir_make();
    char path[100];

    state = 5;
    snprintf(path, sizeof path, "%s/model.gguf", from.path);
    test_copy(&from, TEXT_WEIGHTS, NULL);
    test_copy(&from, "test/data/tokenizers/qwen", NULL);
    CHECK_OK(specbatch_convert(path, from.path, NULL));
    CHECK_OK(specbatch_model_open(&model, path, NULL));
    check_model(3);
    specbatch_model_close(model);
    test_dir_remove(&from);
}

/* The replay of the audit has the same stop strings, and one with others is told apart. */
static void test_the_audit(void)
{
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    specbatch_stops stops = SPECBATCH_STOPS_INIT;
    specbatch_result *result;
    specbatch_request request;
    struct asked *a = &asked[0];

    state = 3;
    CHECK((model = open_text_model("llama", NULL)) != NULL);
    do
        CHECK(prepare(a, 1));
    while (!a->cut.is_stopped || a->min_new > 0);
    CHECK((result = plain(a)) != NULL);
    request = request_of(a, &stops);
    CHECK_OK(specbatch_audit(model, NULL, &request, result, &report));
    CHECK_INT(report.equal, 1);
    CHECK_INT(report.n_tokens, a->cut.n);
    stops.n_strings = 1;
    stops.strings = &(const char *){"another"};
    stops.lengths = NULL;
    CHECK_ERROR(specbatch_audit(model, NULL, &request, result, &report), SPECBATCH_E_INVALID,
                "stop strings differ");
    request = request_of(a, &stops);
    request.min_new = 1;
    CHECK_ERROR(specbatch_audit(model, NULL, &request, result, &report), SPECBATCH_E_INVALID,
                "min_new differs");
    specbatch_result_free(result);
    specbatch_model_close(model);
}

/* Ids that end an answer do so behind min_new tokens and not before: with each id of an answer as
 * its only stop id, under every policy. */
static void test_min_new_bans_what_ends_an_answer(void)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    int32_t expected[MAX_NEW], id;
    size_t n_expected = 0, n;

    state = 9;
    CHECK((model = open_text_model("qwen", NULL)) != NULL);
    asked[0].flags = SPECBATCH_REQUEST_IGNORE_EOS;
    CHECK(prepare(&asked[0], 2));
    id = asked[0].whole.ids[2];
    request.ids = asked[0].prompt;
    request.n_ids = 4;
    request.max_new = 30;
    request.min_new = 12;
    request.stop_ids = &id;
    request.n_stop_ids = 1;
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++) {
        specbatch_pool *pool = NULL;
        specbatch_result *result = NULL;
        const int32_t *ids;
        CHECK_OK(make_pool(&pool, policy, policy == 0 ? NO_DRAFT : ITSELF, policy == 0 ? 0 : 4));
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(run_to_end(pool));
        CHECK_OK(specbatch_pool_collect(pool, &result));
        ids = specbatch_result_tokens(result, &n);
        CHECK(n >= 12);
        for (size_t i = 0; i < 12; i++)
            CHECK(ids[i] != id && ids[i] != 2);
        if (policy == 0)
            memcpy(expected, ids, (n_expected = n) * sizeof *ids);
        CHECK_INT(n, n_expected);
        CHECK_MEM(ids, expected, n * sizeof *ids);
        specbatch_result_free(result);
        specbatch_pool_free(pool);
    }
    specbatch_model_close(model);
}

/* ------------------------------------------------------------------ refusals */

static int32_t ask(specbatch_pool *pool, const specbatch_stops *stops)
{
    static const int32_t ids[] = {5};
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = ids;
    request.n_ids = 1;
    request.max_new = 4;
    request.stops = stops;
    return specbatch_pool_submit(pool, &request, NULL);
}

#define REFUSED(field, value, code, part)          \
    do {                                           \
        specbatch_stops bad_ = good;               \
        bad_.field = value;                        \
        CHECK_ERROR(ask(pool, &bad_), code, part); \
    } while (0)

static void test_what_is_refused(void)
{
    static const char many[257] = "";
    const char *strings[17] = {"ab", "c"}, *none[] = {"a", NULL}, *empty[] = {"a", ""};
    const char *broken[] = {"a", "\xC3("}, *longest[1];
    char text[257];
    const size_t lengths[] = {2, 0};
    const specbatch_stops good = {sizeof good, strings, NULL, 2};
    specbatch_pool *pool = NULL;

    memset(text, 'x', sizeof text);
    text[256] = '\0';
    longest[0] = text;
    CHECK((model = open_text_model("llama", NULL)) != NULL);
    CHECK_OK(make_pool(&pool, SPECBATCH_POLICY_RAGGED, ITSELF, 4));
    REFUSED(struct_size, 0, SPECBATCH_E_INVALID, "stops: struct_size");
    REFUSED(n_strings, 0, SPECBATCH_E_INVALID, "stops: n_strings is 0, outside 1..16");
    REFUSED(n_strings, 17, SPECBATCH_E_INVALID, "stops: n_strings is 17");
    REFUSED(strings, NULL, SPECBATCH_E_INVALID, "stops: strings is NULL");
    REFUSED(strings, none, SPECBATCH_E_INVALID, "strings[1] is NULL");
    REFUSED(strings, empty, SPECBATCH_E_INVALID, "strings[1] is empty");
    REFUSED(lengths, lengths, SPECBATCH_E_INVALID, "strings[1] is empty");
    REFUSED(strings, broken, SPECBATCH_E_INVALID, "strings[1] is not UTF-8 from byte 0 on");
    {
        specbatch_stops bad = {sizeof bad, longest, NULL, 1};
        CHECK_ERROR(ask(pool, &bad), SPECBATCH_E_INVALID, "strings[0] has more than 255 bytes");
        text[255] = '\0';
        CHECK_OK(ask(pool, &bad));
        bad.strings = &(const char *){many}; /* NULs are characters too */
        bad.lengths = &(size_t){255};
        CHECK_OK(ask(pool, &bad));
    }
    CHECK_OK(ask(pool, &good));
    specbatch_pool_free(pool);
    specbatch_model_close(model);
    CHECK((model = open_text_model(NULL, NULL)) != NULL);
    CHECK_OK(make_pool(&pool, SPECBATCH_POLICY_RAGGED, ITSELF, 4));
    CHECK_ERROR(ask(pool, &good), SPECBATCH_E_NO_TOKENIZER, "stops");
    specbatch_pool_free(pool);
    specbatch_model_close(model);
}

static void test_min_new_has_a_range(void)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_pool *pool = NULL;

    CHECK((model = open_text_model(NULL, NULL)) != NULL);
    CHECK_OK(make_pool(&pool, SPECBATCH_POLICY_RAGGED, ITSELF, 4));
    request.ids = (int32_t[]){5};
    request.n_ids = 1;
    request.max_new = 4;
    request.min_new = -1;
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_INVALID, "min_new");
    request.min_new = 5;
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_INVALID,
                "min_new is 5, outside 0..4");
    request.min_new = 4;
    CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
    specbatch_pool_free(pool);
    specbatch_model_close(model);
}

TEST_BEGIN
RUN(test_answers_are_plain_ones_cut);
RUN(test_a_gguf_file);
RUN(test_the_audit);
RUN(test_min_new_bans_what_ends_an_answer);
RUN(test_what_is_refused);
RUN(test_min_new_has_a_range);
TEST_END
