/* The text functions as a program calls them: streams that are fed what a poll gave, also when that
 * was nothing, and conversations. The flags that they refuse are in test_newer_callers.c. */
#include "sbtest.h"

#define MODEL "examples/demo/draft"

static specbatch_model *model;

/* An emoji comes in several tokens, and between two of them a poll gives nothing. */
static void test_a_poll_without_news_leaves_the_text_alone(void)
{
    static const char emoji[] = "\xf0\x9f\x98\x80";
    specbatch_text_stream *stream;
    char all[64] = "";
    const char *piece;
    int32_t ids[16];
    size_t n, length;

    CHECK_OK(specbatch_tokenize(model, emoji, 4, SPECBATCH_TEXT_NO_BOS, ids, 16, &n));
    CHECK(n > 1);
    CHECK_OK(specbatch_text_stream_create(&stream, model, 0));
    for (size_t i = 0; i < n; i++) {
        CHECK_OK(specbatch_text_stream_push(stream, ids + i, 1, &piece, &length));
        strcat(all, piece);
        length = 9;
        CHECK_OK(specbatch_text_stream_push(stream, NULL, 0, &piece, &length));
        CHECK_STR(piece, "");
        CHECK_INT(length, 0);
        CHECK_OK(specbatch_text_stream_push(stream, ids, 0, &piece, NULL));
    }
    CHECK_STR(all, emoji);
    specbatch_text_stream_free(stream);
}

static void test_finish_ends_the_text_and_the_next_begins(void)
{
    specbatch_text_stream *stream;
    const char *piece;
    int32_t ids[16];
    size_t n, length;

    CHECK_OK(specbatch_tokenize(model, "\xf0\x9f\x98\x80", 4, SPECBATCH_TEXT_NO_BOS, ids, 16, &n));
    CHECK_OK(specbatch_text_stream_create(&stream, model, 0));
    CHECK_OK(specbatch_text_stream_push(stream, ids, n - 1, &piece, NULL));
    CHECK_STR(piece, "");
    CHECK_OK(specbatch_text_stream_finish(stream, &piece, &length));
    CHECK_STR(piece, "\xef\xbf\xbd");
    CHECK_INT(length, 3);
    CHECK_OK(specbatch_text_stream_finish(stream, &piece, NULL));
    CHECK_STR(piece, "");
    CHECK_OK(specbatch_text_stream_push(stream, ids, n, &piece, &length));
    CHECK_STR(piece, "\xf0\x9f\x98\x80");
    CHECK_INT(length, 4);
    specbatch_text_stream_free(stream);
}

static void test_streams_refuse_what_is_missing(void)
{
    specbatch_text_stream *stream;
    const char *piece;

    CHECK_OK(specbatch_text_stream_create(&stream, model, 0));
    CHECK_ERROR(specbatch_text_stream_push(NULL, NULL, 0, &piece, NULL), SPECBATCH_E_INVALID,
                "stream");
    CHECK_ERROR(specbatch_text_stream_push(stream, NULL, 1, &piece, NULL), SPECBATCH_E_INVALID,
                "ids");
    CHECK_ERROR(specbatch_text_stream_push(stream, NULL, 0, NULL, NULL), SPECBATCH_E_INVALID,
                "text");
    CHECK_ERROR(specbatch_text_stream_finish(NULL, &piece, NULL), SPECBATCH_E_INVALID, "stream");
    CHECK_ERROR(specbatch_text_stream_finish(stream, NULL, NULL), SPECBATCH_E_INVALID, "text");
    specbatch_text_stream_free(stream);
}

static const specbatch_message hi = {"user", "Hi <|im_end|> the", 17};

static void test_chat_formats_have_names(void)
{
    CHECK_INT(specbatch_chat_count(), SPECBATCH_CHAT_DEEPSEEK_R1 + 1);
    for (int32_t i = 0; i < specbatch_chat_count(); i++)
        CHECK_INT(specbatch_chat_by_name(specbatch_chat_name(i)), i);
    CHECK_INT(specbatch_chat_by_name("qwen3"), SPECBATCH_CHAT_QWEN3);
    CHECK(specbatch_chat_name(-1) == NULL);
    CHECK(specbatch_chat_name(specbatch_chat_count()) == NULL);
    CHECK_ERROR(specbatch_chat_by_name("qwen"), SPECBATCH_E_NOT_FOUND,
                "chat format \"qwen\" is unknown; specbatch_chat_name says those of 0 to 24");
    CHECK_ERROR(specbatch_chat_by_name(NULL), SPECBATCH_E_INVALID, "name");
}

static void test_chat_tokens(void)
{
    specbatch_chat_options options = SPECBATCH_CHAT_OPTIONS_INIT;
    int32_t ids[128], im_end;
    size_t n, m, found = 0;

    options.format = SPECBATCH_CHAT_CHATML;
    CHECK_OK(specbatch_tokenize(model, "<|im_end|>", 10, SPECBATCH_TEXT_NO_BOS, &im_end, 1, &n));
    CHECK_INT(n, 1);
    CHECK_OK(specbatch_chat_tokens(model, &options, &hi, sizeof hi, 1, NULL, 0, &n));
    CHECK_ERROR(specbatch_chat_tokens(model, &options, &hi, sizeof hi, 1, ids, n - 1, &m),
                SPECBATCH_E_BUFFER, "are needed");
    CHECK_INT(m, n);
    CHECK_OK(specbatch_chat_tokens(model, &options, &hi, sizeof hi, 1, ids, n, &n));
    for (size_t i = 0; i < n; i++)
        found += ids[i] == im_end;
    CHECK_INT(found, 1);
    options.flags = SPECBATCH_CHAT_PARSE_SPECIAL;
    CHECK_OK(specbatch_chat_tokens(model, &options, &hi, sizeof hi, 1, ids, 128, &m));
    CHECK(m < n);
}

static void test_chat_text(void)
{
    static const char expected[] = "<|im_start|>user\nHi <|im_end|> the<|im_end|>\n";
    specbatch_chat_options options = SPECBATCH_CHAT_OPTIONS_INIT;
    char text[128];
    size_t n;

    options.format = SPECBATCH_CHAT_QWEN3;
    options.flags = SPECBATCH_CHAT_NO_ANSWER_PROMPT;
    CHECK_OK(specbatch_chat_text(NULL, &options, &hi, sizeof hi, 1, text, sizeof text, &n));
    CHECK_STR(text, expected);
    CHECK_INT(n, sizeof expected - 1);
    CHECK_ERROR(specbatch_chat_text(NULL, &options, &hi, sizeof hi, 1, text, n, &n),
                SPECBATCH_E_BUFFER, "are needed");
}

/* What a caller knows and the library does not: the day, and how long an answer may take. An older
 * caller's struct ends before both. */
static void test_chat_text_of_a_day(void)
{
    specbatch_chat_options options = SPECBATCH_CHAT_OPTIONS_INIT;
    char text[512];
    size_t n;

    options.format = SPECBATCH_CHAT_GPT_OSS;
    options.date = 20261129;
    options.effort = SPECBATCH_EFFORT_HIGH;
    CHECK_OK(specbatch_chat_text(NULL, &options, &hi, sizeof hi, 1, text, sizeof text, &n));
    CHECK(strstr(text, "Current date: 2026-11-29\n\nReasoning: high\n") != NULL);
    options.struct_size = offsetof(specbatch_chat_options, date);
    CHECK_ERROR(specbatch_chat_text(NULL, &options, &hi, sizeof hi, 1, text, sizeof text, &n),
                SPECBATCH_E_INVALID, "chat options: date is 0");
    options.format = SPECBATCH_CHAT_LLAMA3_1;
    CHECK_OK(specbatch_chat_text(NULL, &options, &hi, sizeof hi, 1, text, sizeof text, &n));
    CHECK(strstr(text, "Today Date: 26 Jul 2024\n") != NULL);
}

/* The demo's checkpoints have no chat template. */
static void test_chat_without_a_format(void)
{
    specbatch_chat_options options = SPECBATCH_CHAT_OPTIONS_INIT;
    int32_t ids[8];
    size_t n;

    CHECK_ERROR(specbatch_model_chat_format(model), SPECBATCH_E_NOT_FOUND, "name the format");
    CHECK_ERROR(specbatch_model_chat_format(NULL), SPECBATCH_E_INVALID, "model");
    CHECK_ERROR(specbatch_chat_tokens(model, NULL, &hi, sizeof hi, 1, ids, 8, &n),
                SPECBATCH_E_NOT_FOUND, "name the format");
    CHECK_ERROR(specbatch_chat_text(NULL, &options, &hi, sizeof hi, 1, NULL, 0, &n),
                SPECBATCH_E_INVALID, "model");
}

static void test_chat_calls_that_are_refused(void)
{
    specbatch_chat_options options = SPECBATCH_CHAT_OPTIONS_INIT;
    struct {
        specbatch_chat_options known;
        uint64_t more;
    } newer = {{sizeof newer, SPECBATCH_CHAT_CHATML, 0, 0, 0}, 0};
    int32_t ids[64];
    size_t n;

    CHECK_OK(specbatch_chat_tokens(model, &newer.known, &hi, sizeof hi, 1, ids, 64, &n));
    newer.more = 1;
    CHECK_ERROR(specbatch_chat_tokens(model, &newer.known, &hi, sizeof hi, 1, ids, 64, &n),
                SPECBATCH_E_OPTIONS, "chat options");
    CHECK_OK(specbatch_chat_options_init(&options, sizeof options));
    options.format = SPECBATCH_CHAT_CHATML;
    CHECK_ERROR(specbatch_chat_tokens(NULL, &options, &hi, sizeof hi, 1, ids, 64, &n),
                SPECBATCH_E_INVALID, "model");
    CHECK_ERROR(specbatch_chat_tokens(model, &options, NULL, sizeof hi, 1, ids, 64, &n),
                SPECBATCH_E_INVALID, "messages is NULL");
    CHECK_ERROR(specbatch_chat_tokens(model, &options, &hi, sizeof hi, 1, NULL, 64, &n),
                SPECBATCH_E_INVALID, "the buffer");
    options.flags = 8;
    CHECK_ERROR(specbatch_chat_tokens(model, &options, &hi, sizeof hi, 1, ids, 64, &n),
                SPECBATCH_E_OPTIONS, "unknown bits 0x8");
    CHECK_ERROR(specbatch_chat_text(NULL, &options, NULL, sizeof hi, 1, NULL, 0, &n),
                SPECBATCH_E_INVALID, "messages");
    CHECK_ERROR(specbatch_chat_text(NULL, &options, &hi, sizeof hi, 1, NULL, 8, &n),
                SPECBATCH_E_INVALID, "the buffer");
}

static void test_a_text_of_no_bytes_may_be_null(void)
{
    char text[8] = "before";
    int32_t ids[8];
    size_t n = 1;

    CHECK_OK(specbatch_tokenize(model, NULL, 0, SPECBATCH_TEXT_NO_BOS, ids, 8, &n));
    CHECK_INT(n, 0);
    CHECK_ERROR(specbatch_tokenize(model, NULL, 1, 0, ids, 8, &n), SPECBATCH_E_INVALID,
                "text is NULL");
    CHECK_OK(specbatch_detokenize(model, NULL, 0, 0, text, sizeof text, &n));
    CHECK_INT(n, 0);
    CHECK_STR(text, "");
    CHECK_ERROR(specbatch_detokenize(model, NULL, 1, 0, text, sizeof text, &n), SPECBATCH_E_INVALID,
                "ids is NULL");
}

/* The prompt that a request with these bytes of text gets: *n ids, 40 at most. */
static int32_t prompt_of(const char *text, size_t length, int32_t ids[40], size_t *n)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result = NULL;
    const int32_t *prompt;
    int32_t rc;

    request.text = text;
    request.text_length = length;
    request.max_new = 1;
    if ((rc = specbatch_pool_create(&pool, model, NULL, NULL)) == SPECBATCH_OK &&
        (rc = specbatch_pool_submit(pool, &request, NULL)) == SPECBATCH_OK &&
        (rc = specbatch_pool_run(pool)) == SPECBATCH_OK &&
        (rc = specbatch_pool_collect(pool, &result)) == SPECBATCH_OK) {
        prompt = specbatch_result_prompt(result, n);
        memcpy(ids, prompt, (*n < 40 ? *n : 40) * sizeof *ids);
    }
    specbatch_result_free(result);
    specbatch_pool_free(pool);
    return rc;
}

/* A text with a length is taken to its end, through NULs, and not beyond. */
static void test_the_text_of_a_request_may_have_a_length(void)
{
    static const char text[] = "one\0two three";
    const int32_t id = 5;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_pool *pool = NULL;
    int32_t ids[40], expected[40];
    size_t n, m;

    CHECK_OK(specbatch_tokenize(model, text, 7, 0, expected, 40, &m));
    CHECK_OK(prompt_of(text, 7, ids, &n));
    CHECK_INT(n, m);
    CHECK_MEM(ids, expected, n * sizeof *ids);
    CHECK_OK(specbatch_tokenize(model, text, 3, 0, expected, 40, &m));
    CHECK_OK(prompt_of(text, 0, ids, &n));
    CHECK_INT(n, m);
    CHECK_MEM(ids, expected, n * sizeof *ids);
    CHECK_OK(specbatch_pool_create(&pool, model, NULL, NULL));
    request.ids = &id;
    request.n_ids = 1;
    request.max_new = 1;
    request.text_length = 1;
    CHECK_ERROR(specbatch_pool_submit(pool, &request, NULL), SPECBATCH_E_INVALID, "text_length");
    specbatch_pool_free(pool);
}

TEST_BEGIN
if (specbatch_model_open(&model, MODEL, NULL)) {
    printf("FAIL the model does not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_a_poll_without_news_leaves_the_text_alone);
RUN(test_finish_ends_the_text_and_the_next_begins);
RUN(test_streams_refuse_what_is_missing);
RUN(test_chat_formats_have_names);
RUN(test_chat_tokens);
RUN(test_chat_text);
RUN(test_chat_text_of_a_day);
RUN(test_chat_without_a_format);
RUN(test_chat_calls_that_are_refused);
RUN(test_a_text_of_no_bytes_may_be_null);
RUN(test_the_text_of_a_request_may_have_a_length);
specbatch_model_close(model);
TEST_END
