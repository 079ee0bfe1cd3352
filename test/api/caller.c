/*
 * A program of another version, which test/api/check_abi_gate.sh compiles with the header of an
 * earlier one, or with that of a later one that has a field more in each struct, and runs with the
 * library of today: caller MODEL_DIR PROMPT TEXT. It uses what there was in 0.2. Its text must come
 * out, by events and by a result; and a later one's new fields count as not given while they are 0,
 * and are refused when they are not.
 */
#include <stdio.h>
#include <string.h>

#include "specbatch.h"

static int failed;

static void check(int condition, const char *what, int line)
{
    if (condition)
        return;
    printf("line %d: %s: %s\n", line, what, specbatch_last_error());
    failed = 1;
}
#define CHECK(condition) check((condition) != 0, #condition, __LINE__)

static int32_t propose(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    *(size_t *)user += n_rows;
#ifdef SPECBATCH_NEWER
    CHECK(n_rows == 0 || rows[0]->struct_size < sizeof **rows);
#endif
    for (size_t i = 0; i < n_rows; i++)
        rows[i]->out[rows[i]->n_out++] = rows[i]->tokens[rows[i]->n_tokens - 1];
    return 0;
}

/* Streams the answer, and compares it and the result's with `text`. */
static void stream(specbatch_model *target, const char *prompt, const char *text)
{
    size_t asked = 0, active = 1, length = 0;
    char streamed[1000] = "";
    specbatch_draft_ops ops = SPECBATCH_DRAFT_OPS_INIT;
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_request_state state = SPECBATCH_REQUEST_STATE_INIT;
    specbatch_event event = SPECBATCH_EVENT_INIT;
    specbatch_draft *draft = NULL;
    specbatch_pool *pool = NULL;
    specbatch_result *result = NULL;
    uint64_t id = 0;

    ops.propose = propose;
    ops.user = &asked;
    options.max_len = 100;
    options.n_threads = 1;
    options.flags = SPECBATCH_POOL_FIXED_K;
    request.text = prompt;
    request.max_new = 64;
    CHECK(specbatch_draft_from_ops(&draft, &ops) == SPECBATCH_OK);
    CHECK(specbatch_pool_create(&pool, target, draft, &options) == SPECBATCH_OK);
    CHECK(specbatch_pool_submit(pool, &request, &id) == SPECBATCH_OK);
    CHECK(specbatch_pool_state(pool, id, &state) == SPECBATCH_OK);
    CHECK(state.state == SPECBATCH_STATE_QUEUED);
    while (active && specbatch_pool_step(pool, &active) == SPECBATCH_OK)
        while (specbatch_pool_next_event(pool, &event) == SPECBATCH_OK)
            if (strlen(streamed) + event.text_length < sizeof streamed)
                strcat(streamed, event.text);
    CHECK(specbatch_pool_collect(pool, &result) == SPECBATCH_OK);
    CHECK(asked > 0 && strcmp(streamed, text) == 0);
    CHECK(strcmp(specbatch_result_text(result, &length), text) == 0 && length == strlen(text));
    CHECK(specbatch_result_finish(result) == SPECBATCH_FINISH_EOS);
    specbatch_result_free(result);
    specbatch_pool_free(pool);
    specbatch_draft_release(draft);
}

#ifdef SPECBATCH_NEWER
#pragma weak specbatch_newer

/* Each struct with its new field set is refused. */
static void ask_for_more(specbatch_model *target, const char *path)
{
    specbatch_model_options model = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_pool_options pool_options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_ngram_options ngrams = SPECBATCH_NGRAM_OPTIONS_INIT;
    specbatch_table_options table = SPECBATCH_TABLE_OPTIONS_INIT;
    specbatch_chat_options chat = SPECBATCH_CHAT_OPTIONS_INIT;
    specbatch_draft_ops ops = SPECBATCH_DRAFT_OPS_INIT;
    specbatch_message message = {"user", "hello", 5, 0};
    specbatch_model *model_made = NULL;
    specbatch_draft *draft = NULL;
    specbatch_pool *pool = NULL;
    const int32_t ids[] = {1, 2, 3};
    char buffer[100];
    size_t n = 0;

    model.newer_field = pool_options.newer_field = ngrams.newer_field = table.newer_field = 1;
    chat.newer_field = ops.newer_field = 1;
    ops.propose = propose;
    CHECK(specbatch_newer == NULL);
    CHECK(specbatch_model_open(&model_made, path, &model) == SPECBATCH_E_OPTIONS);
    CHECK(specbatch_convert("no/such", path, &model) == SPECBATCH_E_OPTIONS);
    CHECK(specbatch_pool_create(&pool, target, NULL, &pool_options) == SPECBATCH_E_OPTIONS);
    CHECK(specbatch_draft_from_ngrams(&draft, &ngrams) == SPECBATCH_E_OPTIONS);
    CHECK(specbatch_draft_from_ops(&draft, &ops) == SPECBATCH_E_OPTIONS);
    CHECK(specbatch_table_make("no/such", target, ids, 3, &table) == SPECBATCH_E_OPTIONS);
    chat.format = SPECBATCH_CHAT_RAW;
    CHECK(specbatch_chat_text(target, &chat, &message, sizeof message, 1, buffer, sizeof buffer,
                              &n) == SPECBATCH_E_OPTIONS);
    chat.newer_field = 0;
    CHECK(specbatch_chat_text(target, &chat, &message, sizeof message, 1, buffer, sizeof buffer,
                              &n) == SPECBATCH_OK);
    message.newer_field = 1;
    CHECK(specbatch_chat_text(target, &chat, &message, sizeof message, 1, buffer, sizeof buffer,
                              &n) == SPECBATCH_E_OPTIONS);
    pool_options.newer_field = 0;
    pool_options.policy = SPECBATCH_NEWER;
    CHECK(specbatch_pool_create(&pool, target, NULL, &pool_options) < 0);
}

static int32_t allow(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    (void)user;
    return n_rows > 0 && rows[0]->struct_size >= sizeof **rows;
}

/* The same of what a request points to: zero works, and one is refused. */
static void submit_more(specbatch_model *target)
{
    const int32_t ids[] = {1, 2, 3};
    const char *const strings[] = {"nowhere"};
    specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;
    specbatch_stops stops = SPECBATCH_STOPS_INIT;
    specbatch_mask mask = SPECBATCH_MASK_INIT;
    specbatch_answers answers = SPECBATCH_ANSWERS_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    uint64_t *const fields[] = {&sampling.newer_field, &stops.newer_field, &mask.newer_field,
                                &answers.newer_field, &request.newer_field};
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;

    options.max_len = 32;
    CHECK(specbatch_pool_create(&pool, target, NULL, &options) == SPECBATCH_OK);
    stops.strings = strings;
    stops.n_strings = 1;
    mask.allow = allow;
    request.ids = ids;
    request.n_ids = 3;
    request.max_new = 4;
    request.sampling = &sampling;
    request.stops = &stops;
    request.mask = &mask;
    request.answers = &answers;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        *fields[i] = 1;
        CHECK(specbatch_pool_submit(pool, &request, NULL) == SPECBATCH_E_OPTIONS);
        *fields[i] = 0;
    }
    CHECK(specbatch_pool_submit(pool, &request, NULL) == SPECBATCH_OK);
    CHECK(specbatch_pool_run(pool) == SPECBATCH_OK);
    specbatch_pool_free(pool);
}
#endif

int main(int argc, char **argv)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *target = NULL;

    if (argc != 4)
        return 2;
    CHECK(specbatch_abi_version() == SPECBATCH_SOVERSION);
    CHECK(specbatch_model_open(&target, argv[1], &options) == SPECBATCH_OK);
    stream(target, argv[2], argv[3]);
#ifdef SPECBATCH_NEWER
    ask_for_more(target, argv[1]);
    submit_more(target);
#endif
    specbatch_model_close(target);
    return failed;
}
