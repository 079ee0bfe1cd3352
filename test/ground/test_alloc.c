/*
 * Running out of memory at every point of several scenarios.
 *
 * A scenario first runs undisturbed, which counts its allocations. Then it runs once for each
 * allocation with that one failing, and once more with all from that one on failing, until the
 * library has reported it. A call that fails must return E_NOMEM, leave its object as it was, and
 * leak nothing. That the object is as it was shows by repeating the call: it then succeeds, and the
 * tokens are those of the undisturbed run.
 */
#include "sbtest.h"

#include "support/failalloc.h"

/* It has 0.9 million parameters: few enough to open it some hundred times. */
#define MODEL "examples/demo/draft"

/* Under the thread sanitizer every run takes a second. Few are enough there, as this test is about
 * memory. */
#if defined(__SANITIZE_THREAD__)
enum { MAX_RUNS = 10 };
#else
enum { MAX_RUNS = 400 };
#endif
enum { N_REQUESTS = 3, MAX_NEW = 6 };

static struct failalloc memory;
static int32_t reference[N_REQUESTS][MAX_NEW];
static int have_reference;

/* Makes a call; if it fails for want of memory, gives memory back and repeats it. Any other failure
 * fails the test. */
#define AGAIN(call)                                                                    \
    do {                                                                               \
        int32_t rc_ = (call);                                                          \
        if (rc_ == SPECBATCH_E_NOMEM) {                                                \
            if (atomic_load(&memory.n_failed) == 0)                                    \
                FAIL("%s: E_NOMEM out of nothing: %s", #call, specbatch_last_error()); \
            failalloc_arm(&memory, 0, 0);                                              \
            rc_ = (call);                                                              \
        }                                                                              \
        CHECK_INT(rc_, SPECBATCH_OK);                                                  \
    } while (0)

static specbatch_model *open_model(int32_t *rc)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *model = NULL;

    options.alloc = failalloc_alloc;
    options.free = failalloc_free;
    options.alloc_user = &memory;
    *rc = specbatch_model_open(&model, MODEL, &options);
    return model;
}

/* ---------------------------------------------------------------- the scenarios */

static specbatch_model *shared; /* opened once, undisturbed */

static void scenario_open(void)
{
    int32_t rc;
    specbatch_model *model = open_model(&rc);

    if (rc != SPECBATCH_OK) {
        CHECK_INT(rc, SPECBATCH_E_NOMEM);
        CHECK(model == NULL && atomic_load(&memory.n_failed) > 0);
    }
    specbatch_model_close(model);
}

static void scenario_text(void)
{
    static const specbatch_message message = {"user", "How many apples are left?", 25};
    static const char text[] = "Once upon a time, caf\xc3\xa9 \xf0\x9f\x98\x80.";
    specbatch_chat_options chat = SPECBATCH_CHAT_OPTIONS_INIT;
    int32_t ids[64], many[256];
    char back[256];
    specbatch_text_stream *stream = NULL;
    const char *piece;
    size_t n, n_many, length;

    chat.format = SPECBATCH_CHAT_QWEN3;
    AGAIN(specbatch_tokenize(shared, text, strlen(text), 0, ids, 64, &n));
    AGAIN(specbatch_detokenize(shared, ids, n, 0, back, sizeof back, &length));
    CHECK_STR(back, text);
    AGAIN(specbatch_chat_text(shared, &chat, &message, sizeof message, 1, back, sizeof back,
                              &length));
    AGAIN(specbatch_chat_tokens(shared, &chat, &message, sizeof message, 1, many, 256, &n_many));
    AGAIN(specbatch_text_stream_create(&stream, shared, 0));
    AGAIN(specbatch_text_stream_push(stream, ids, n - 1, &piece, &length));
    AGAIN(specbatch_text_stream_finish(stream, &piece, &length));
    specbatch_text_stream_free(stream);
}

/* Even ids. */
static int32_t allow_even(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++)
        for (size_t i = 0; i < rows[b]->n_words; i++)
            rows[b]->allowed[i] &= 0x55555555;
    return 0;
}

/* The second and the third have a mask, so the memory of masks grows twice. */
static specbatch_request request_of(size_t i)
{
    static const specbatch_mask even = {sizeof even, allow_even, NULL};
    static const char *const texts[N_REQUESTS] = {"Question: one and one is", "It was",
                                                  "The sea, the sea"};
    static const int32_t stops[] = {7, 8};
    static const char *const strings[] = {"~ ~", "no such text"};
    static const specbatch_stops stop_strings = {sizeof stop_strings, strings, NULL, 2};
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.text = texts[i];
    request.max_new = MAX_NEW;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS;
    request.stop_ids = stops;
    request.n_stop_ids = i == 1 ? 2 : 0;
    request.mask = i > 0 ? &even : NULL;
    request.top_logprobs = i == 2 ? 3 : 0;
    request.flags |= i == 2 ? SPECBATCH_REQUEST_PROMPT_LOGPROBS : 0;
    request.stops = i == 2 ? &stop_strings : NULL;
    return request;
}

static int32_t submit(specbatch_pool *pool, size_t i)
{
    const specbatch_request request = request_of(i);

    return specbatch_pool_submit(pool, &request, NULL);
}

static specbatch_pool_options pool_options(int32_t policy)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.policy = policy;
    options.batch = 2;
    options.draft_len = 3;
    options.flags = SPECBATCH_POOL_FIXED_K;
    options.max_len = 64;
    options.n_threads = 2;
    options.prefix_bytes = 1 << 20;
    options.alloc = failalloc_alloc;
    options.free = failalloc_free;
    options.alloc_user = &memory;
    return options;
}

static void check_result(const specbatch_result *result)
{
    const uint64_t at = specbatch_result_id(result) - 1;
    size_t n;
    const int32_t *ids = specbatch_result_tokens(result, &n);

    CHECK(at < N_REQUESTS && n >= 1 && n <= MAX_NEW);
    if (have_reference)
        CHECK_MEM(ids, reference[at], n * sizeof *ids);
    else
        memcpy(reference[at], ids, n * sizeof *ids);
}

static void audit(const specbatch_pool_options *options, const specbatch_result *result)
{
    const specbatch_request request = request_of(specbatch_result_id(result) - 1);
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;

    AGAIN(specbatch_audit(shared, options, &request, result, &report));
    CHECK(report.equal);
}

static void collect(specbatch_pool *pool, const specbatch_pool_options *options, size_t *n_done)
{
    specbatch_result *result;
    int32_t rc;

    while ((rc = specbatch_pool_collect(pool, &result)) != SPECBATCH_E_EMPTY) {
        if (rc == SPECBATCH_E_NOMEM && atomic_load(&memory.n_failed) > 0) {
            failalloc_arm(&memory, 0, 0);
            continue;
        }
        CHECK_INT(rc, SPECBATCH_OK);
        check_result(result);
        if (++*n_done == 1)
            audit(options, result);
        specbatch_result_free(result);
    }
}

enum draft_kind { DRAFT_MODEL, DRAFT_NGRAMS, DRAFT_CALLBACKS, DRAFT_LIST };

static int32_t repeat_the_last(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++) {
        rows[b]->out[0] = rows[b]->tokens[rows[b]->n_tokens - 1];
        rows[b]->n_out = 1;
    }
    return 0;
}

/* n-grams, and the model behind them. */
static int32_t make_list(specbatch_draft **draft)
{
    specbatch_draft *sources[2] = {NULL};
    int32_t rc = specbatch_draft_from_ngrams(&sources[0], NULL);

    if (rc == SPECBATCH_OK)
        rc = specbatch_draft_from_model(&sources[1], shared);
    if (rc == SPECBATCH_OK)
        rc = specbatch_draft_from_list(draft, sources, 2);
    specbatch_draft_release(sources[0]);
    specbatch_draft_release(sources[1]);
    return rc;
}

static int32_t make_draft(specbatch_draft **draft, enum draft_kind kind)
{
    const specbatch_draft_ops ops = {sizeof ops, repeat_the_last, NULL, NULL, NULL};

    return kind == DRAFT_MODEL    ? specbatch_draft_from_model(draft, shared)
           : kind == DRAFT_NGRAMS ? specbatch_draft_from_ngrams(draft, NULL)
           : kind == DRAFT_LIST   ? make_list(draft)
                                  : specbatch_draft_from_ops(draft, &ops);
}

static void scenario_pool(int32_t policy, enum draft_kind kind)
{
    const specbatch_pool_options options = pool_options(policy);
    static const int32_t system_prompt[32] = {1, 2, 3};
    specbatch_draft *draft = NULL;
    specbatch_pool *pool = NULL;
    size_t active = 1, n_done = 0, i;
    uint64_t pin;
    long calls;

    AGAIN(make_draft(&draft, kind));
    AGAIN(specbatch_pool_create(&pool, shared, draft, &options));
    specbatch_draft_release(draft);
    AGAIN(specbatch_pool_pin(pool, system_prompt, 32, &pin));
    for (i = 0; i < N_REQUESTS; i++)
        AGAIN(submit(pool, i));
    while (active && !sbtest_failed_now) {
        calls = atomic_load(&memory.calls);
        CHECK_OK(specbatch_pool_step(pool, &active));
        /* A step takes no memory, so it cannot fail for want of it. */
        CHECK_INT(atomic_load(&memory.calls), calls);
        collect(pool, &options, &n_done);
    }
    CHECK_INT(n_done, N_REQUESTS);
    have_reference = 1;
    specbatch_pool_free(pool);
}

static void scenario_eqspec(void)
{
    scenario_pool(SPECBATCH_POLICY_EQSPEC, DRAFT_MODEL);
}

static void scenario_exspec(void)
{
    scenario_pool(SPECBATCH_POLICY_EXSPEC, DRAFT_NGRAMS);
}

static void scenario_ragged(void)
{
    scenario_pool(SPECBATCH_POLICY_RAGGED, DRAFT_CALLBACKS);
}

static void scenario_list(void)
{
    scenario_pool(SPECBATCH_POLICY_RAGGED, DRAFT_LIST);
}

/* Makes a table in a folder that is not there: nothing but its memory can fail before that. */
static int32_t make_table(void)
{
    int32_t ids[200], rc;

    for (int32_t i = 0; i < 200; i++)
        ids[i] = i % 20;
    rc = specbatch_table_make("no/such/folder", shared, ids, 200, NULL);
    return rc == SPECBATCH_E_IO ? SPECBATCH_OK : rc;
}

static void scenario_table(void)
{
    AGAIN(make_table());
}

/* ------------------------------------------------------------------- the driver */

/* Runs a scenario with each of its allocations failing in turn; with some of them, evenly spread,
 * if they are more than MAX_RUNS. */
static void fail_everywhere(void (*scenario)(void))
{
    const long held = atomic_load(&memory.outstanding);
    long total, at;
    int for_good;

    failalloc_arm(&memory, 0, 0);
    scenario();
    if (sbtest_failed_now)
        return;
    total = atomic_load(&memory.calls);
    CHECK(total > 0);
    for (for_good = 0; for_good <= 1; for_good++)
        for (at = 1; at <= total; at += 1 + total / MAX_RUNS) {
            failalloc_arm(&memory, at, for_good);
            scenario();
            if (sbtest_failed_now)
                FAIL("with allocation %ld of %ld failing%s", at, total,
                     for_good ? " and all after it" : "");
            CHECK_INT(atomic_load(&memory.outstanding), held);
            CHECK(!atomic_load(&memory.broken));
        }
}

static void test_out_of_memory_in_model_open(void)
{
    fail_everywhere(scenario_open);
    CHECK_INT(atomic_load(&memory.outstanding), 0);
}

/* The same for a scenario that needs a model. */
static void with_shared_model(void (*scenario)(void))
{
    int32_t rc;

    failalloc_arm(&memory, 0, 0);
    shared = open_model(&rc);
    CHECK_INT(rc, SPECBATCH_OK);
    fail_everywhere(scenario);
    specbatch_model_close(shared);
    if (!sbtest_failed_now)
        CHECK_INT(atomic_load(&memory.outstanding), 0);
}

static void test_out_of_memory_in_text(void)
{
    with_shared_model(scenario_text);
}

static void test_out_of_memory_under_eqspec(void)
{
    with_shared_model(scenario_eqspec);
}

static void test_out_of_memory_under_exspec(void)
{
    with_shared_model(scenario_exspec);
}

static void test_out_of_memory_under_ragged(void)
{
    with_shared_model(scenario_ragged);
}

static void test_out_of_memory_with_a_list_of_drafts(void)
{
    with_shared_model(scenario_list);
}

static void test_out_of_memory_while_a_table_is_made(void)
{
    with_shared_model(scenario_table);
}

TEST_BEGIN
RUN(test_out_of_memory_in_model_open);
RUN(test_out_of_memory_in_text);
RUN(test_out_of_memory_with_a_list_of_drafts);
RUN(test_out_of_memory_while_a_table_is_made);
RUN(test_out_of_memory_under_eqspec);
RUN(test_out_of_memory_under_exspec);
RUN(test_out_of_memory_under_ragged);
TEST_END
