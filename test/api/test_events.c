/*
 * Events: the ids and texts of a request's events are those of its result, cut at whole characters,
 * whatever is polled, collected or cancelled beside them, and whichever allocation fails.
 */
#include "sbtest.h"

#include "support/drafts.h"
#include "support/text_model.h"
#include "utf8.h"

enum { N = 6, MAX_NEW = 40 };

/* What the events of one request have told so far. */
struct told {
    int32_t ids[MAX_NEW];
    char text[4096];
    size_t n_ids, length;
    int32_t finish;
    int n_events;
};

static struct told told[N + 1]; /* by id */
static struct failalloc memory;

/* ------------------------------------------------------------------ models and pools */

static char users[N]; /* what requests have as their user pointer: its address */

static int32_t submit(specbatch_pool *pool, int32_t i)
{
    const int32_t prompt[] = {301 + i, 17, 340, 60 * i};
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = prompt;
    request.n_ids = sizeof prompt / sizeof *prompt;
    request.max_new = MAX_NEW - 3 * i;
    request.user = &users[i];
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    return specbatch_pool_submit(pool, &request, NULL);
}

/* A pool with N requests, whose draft is the target itself. NULL: something failed. */
static specbatch_pool *pool_of(specbatch_model *model, int32_t policy)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;
    int32_t rc;

    memset(told, 0, sizeof told);
    options.policy = policy;
    options.batch = 3;
    options.draft_len = 3;
    options.max_len = 64;
    options.n_threads = 1;
    options.flags = SPECBATCH_POOL_FIXED_K;
    options.alloc = failalloc_alloc;
    options.free = failalloc_free;
    options.alloc_user = &memory;
    rc = create_with_model(&pool, model, model, &options);
    for (int32_t i = 0; i < N && rc == SPECBATCH_OK; i++)
        rc = submit(pool, i);
    if (rc != SPECBATCH_OK)
        printf("     %s\n", specbatch_last_error());
    return rc == SPECBATCH_OK ? pool : NULL;
}

/* ----------------------------------------------------------------------- checks */

/* Notes an event, and checks what must hold of each. */
static void note(const specbatch_event *event, int has_text)
{
    struct told *t;

    CHECK(event->id >= 1 && event->id <= N);
    t = &told[event->id];
    CHECK(!t->finish && (event->n_ids > 0 || event->finish));
    CHECK_INT(event->status, SPECBATCH_OK);
    CHECK(t->n_ids + event->n_ids <= MAX_NEW);
    CHECK(has_text == (event->text != NULL));
    memcpy(t->ids + t->n_ids, event->ids, event->n_ids * sizeof *event->ids);
    t->n_ids += event->n_ids;
    t->finish = event->finish;
    t->n_events++;
    if (!event->text)
        return;
    CHECK(event->text[event->text_length] == '\0');
    CHECK_INT(sb_utf8_valid(event->text, event->text_length), event->text_length);
    CHECK(t->length + event->text_length < sizeof t->text);
    memcpy(t->text + t->length, event->text, event->text_length);
    t->length += event->text_length;
}

/* Reads all events that the pool has. */
static void read_events(specbatch_pool *pool, int has_text)
{
    specbatch_event event = SPECBATCH_EVENT_INIT;
    int32_t rc;

    while ((rc = specbatch_pool_next_event(pool, &event)) == SPECBATCH_OK && !sbtest_failed_now)
        note(&event, has_text);
    CHECK_INT(rc, SPECBATCH_E_EMPTY);
}

/* Collects all results, and compares each with what was told of it. */
static void compare_results(specbatch_pool *pool)
{
    specbatch_result *result = NULL;

    for (int i = 0; i < N; i++) {
        const struct told *t;
        const char *text;
        size_t n, length;

        CHECK_OK(specbatch_pool_collect(pool, &result));
        t = &told[specbatch_result_id(result)];
        CHECK_INT(t->finish, specbatch_result_finish(result));
        CHECK_MEM(t->ids, specbatch_result_tokens(result, &n), t->n_ids * sizeof *t->ids);
        CHECK_INT(t->n_ids, n);
        text = specbatch_result_text(result, &length);
        CHECK_INT(t->length, length);
        CHECK(length == 0 || memcmp(t->text, text, length) == 0);
        specbatch_result_free(result);
    }
}

/* ------------------------------------------------------------------------ tests */

static void check_streaming(const char *tokenizer, int32_t policy)
{
    specbatch_model *model = open_text_model(tokenizer, &memory);
    specbatch_pool *pool = model ? pool_of(model, policy) : NULL;
    size_t active = 1;
    int32_t polled[4];
    size_t n;

    CHECK(pool != NULL);
    while (active) {
        CHECK_OK(specbatch_pool_step(pool, &active));
        CHECK_OK(specbatch_pool_poll(pool, 2, polled, 4, &n)); /* events do not miss these */
        read_events(pool, tokenizer != NULL);
        if (sbtest_failed_now)
            return;
    }
    for (int i = 1; i <= N; i++)
        CHECK(told[i].finish && told[i].n_events > 1);
    compare_results(pool);
    specbatch_pool_free(pool);
    specbatch_model_close(model);
}

/* The three ways to put bytes together: byte-level, runs of ByteFallback, and SentencePiece. */
static void test_events_add_up_to_the_result(void)
{
    static const char *const tokenizers[] = {"qwen", "llama", "spm"};

    for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++)
        for (int32_t policy = 0; policy < specbatch_policy_count(); policy++) {
            check_streaming(tokenizers[i], policy);
            if (sbtest_failed_now)
                FAIL("%s, %s", tokenizers[i], specbatch_policy_name(policy));
        }
}

static void test_events_without_a_tokenizer(void)
{
    check_streaming(NULL, SPECBATCH_POLICY_RAGGED);
}

/* Events that nobody reads gather: one event for each request, in the order of their first news. */
static void test_news_gather_in_one_event(void)
{
    specbatch_model *model = open_text_model("llama", &memory);
    specbatch_pool *pool = pool_of(model, SPECBATCH_POLICY_RAGGED);
    specbatch_event event = SPECBATCH_EVENT_INIT;
    size_t active = 1;

    CHECK(pool != NULL);
    CHECK_ERROR(specbatch_pool_next_event(pool, &event), SPECBATCH_E_EMPTY, "news");
    while (active)
        CHECK_OK(specbatch_pool_step(pool, &active));
    for (uint64_t id = 1; id <= N; id++) {
        CHECK_OK(specbatch_pool_next_event(pool, &event));
        CHECK_INT(event.id, id);
        CHECK(event.user == &users[id - 1]);
        CHECK_INT(event.finish, SPECBATCH_FINISH_LENGTH);
        note(&event, 1);
    }
    CHECK_ERROR(specbatch_pool_next_event(pool, &event), SPECBATCH_E_EMPTY, "news");
    compare_results(pool);
    specbatch_pool_free(pool);
    specbatch_model_close(model);
}

/* A request that is collected takes its news with it, wherever it stands in the list. */
static void test_collecting_drops_the_news(void)
{
    specbatch_model *model = open_text_model("qwen", &memory);
    specbatch_pool *pool = pool_of(model, SPECBATCH_POLICY_RAGGED);
    specbatch_event event = SPECBATCH_EVENT_INIT;
    specbatch_result *result;
    size_t active = 1;

    CHECK(pool != NULL);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(specbatch_pool_cancel(pool, 2)); /* in the middle of the list: 1, 2, 3 */
    CHECK_OK(specbatch_pool_cancel(pool, 5)); /* it waits: at the end */
    CHECK_OK(specbatch_pool_collect(pool, &result));
    CHECK_INT(specbatch_result_id(result), 2);
    specbatch_result_free(result);
    CHECK_OK(specbatch_pool_collect(pool, &result));
    CHECK_INT(specbatch_result_id(result), 5);
    specbatch_result_free(result);
    CHECK_OK(specbatch_pool_next_event(pool, &event));
    CHECK_INT(event.id, 1);
    CHECK_OK(specbatch_pool_next_event(pool, &event));
    CHECK_INT(event.id, 3);
    CHECK_ERROR(specbatch_pool_next_event(pool, &event), SPECBATCH_E_EMPTY, "news");
    while (active)
        CHECK_OK(specbatch_pool_step(pool, &active));
    while (specbatch_pool_collect(pool, &result) == SPECBATCH_OK)
        specbatch_result_free(result);
    CHECK_ERROR(specbatch_pool_next_event(pool, &event), SPECBATCH_E_EMPTY, "news");
    specbatch_pool_free(pool);
    specbatch_model_close(model);
}

static void test_cancelled_requests_tell_their_end(void)
{
    specbatch_model *model = open_text_model("llama", &memory);
    specbatch_pool *pool = pool_of(model, SPECBATCH_POLICY_RAGGED);

    CHECK(pool != NULL);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_OK(specbatch_pool_step(pool, NULL));
    read_events(pool, 1);
    CHECK(told[1].n_ids > 0 && !told[1].finish);
    for (uint64_t id = 1; id <= N; id++)
        CHECK_OK(specbatch_pool_cancel(pool, id));
    read_events(pool, 1);
    CHECK_INT(told[1].finish, SPECBATCH_FINISH_CANCELLED);
    CHECK_INT(told[N].n_ids, 0); /* it never got a place */
    compare_results(pool);
    specbatch_pool_free(pool);
    specbatch_model_close(model);
}

/* Fails every allocation that an event makes, one after the other, and asks again. */
static void test_an_event_without_memory_is_not_lost(void)
{
    specbatch_model *model = open_text_model("llama", &memory);
    specbatch_pool *pool = pool_of(model, SPECBATCH_POLICY_RAGGED);
    specbatch_event event = SPECBATCH_EVENT_INIT;
    size_t active = 1;
    int32_t rc = SPECBATCH_OK;
    int n_failed = 0;

    CHECK(pool != NULL);
    while (active) {
        CHECK_OK(specbatch_pool_step(pool, &active));
        for (int more = 1; more;) {
            for (long at = 1;; at++) {
                failalloc_arm(&memory, at, 0);
                rc = specbatch_pool_next_event(pool, &event);
                failalloc_arm(&memory, 0, 0);
                if (rc != SPECBATCH_E_NOMEM)
                    break;
                n_failed++;
            }
            more = rc == SPECBATCH_OK;
            if (more)
                note(&event, 1);
            else
                CHECK_INT(rc, SPECBATCH_E_EMPTY);
            if (sbtest_failed_now)
                return;
        }
    }
    CHECK(n_failed > N);
    compare_results(pool);
    specbatch_pool_free(pool);
    specbatch_model_close(model);
    CHECK_INT(atomic_load(&memory.outstanding), 0);
    CHECK(!atomic_load(&memory.broken));
}

/* A struct of any size is filled as far as it goes; one without a size is refused, and the event
 * waits. */
static void test_the_size_of_the_struct(void)
{
    specbatch_model *model = open_text_model("llama", &memory);
    specbatch_pool *pool = pool_of(model, SPECBATCH_POLICY_RAGGED);
    specbatch_event event = {0};

    CHECK(pool != NULL);
    CHECK_OK(specbatch_pool_step(pool, NULL));
    CHECK_ERROR(specbatch_pool_next_event(pool, &event), SPECBATCH_E_INVALID, "event: struct_size");
    CHECK_ERROR(specbatch_pool_next_event(pool, NULL), SPECBATCH_E_INVALID, "event: NULL");
    CHECK_ERROR(specbatch_pool_next_event(NULL, &event), SPECBATCH_E_INVALID, "pool");
    event.struct_size = offsetof(specbatch_event, user);
    event.ids = &told[0].ids[3];
    CHECK_OK(specbatch_pool_next_event(pool, &event));
    CHECK_INT(event.id, 1);
    CHECK(event.ids == &told[0].ids[3]);
    event.struct_size = sizeof event;
    CHECK_OK(specbatch_pool_next_event(pool, &event));
    CHECK_INT(event.id, 2);
    specbatch_pool_free(pool); /* with news left, and with streams */
    specbatch_model_close(model);
    CHECK_INT(atomic_load(&memory.outstanding), 0);
}

TEST_BEGIN
RUN(test_events_add_up_to_the_result);
RUN(test_events_without_a_tokenizer);
RUN(test_news_gather_in_one_event);
RUN(test_collecting_drops_the_news);
RUN(test_cancelled_requests_tell_their_end);
RUN(test_an_event_without_memory_is_not_lost);
RUN(test_the_size_of_the_struct);
TEST_END
