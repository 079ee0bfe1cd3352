/* Streaming: the texts of many requests are printed while they are made, as they come. The draft is
 * n-grams, so one checkpoint is enough.
 *     stream MODEL_DIR POLICY NAME PROMPT [NAME PROMPT ...]
 *
 * Each event is printed as a line `NAME> TEXT`, and each result as two lines: `NAME= TEXT` with its
 * whole text, and `NAME: ` with how it ended. A newline in a text is printed as \n and a backslash
 * as \\, so that every text stays on its line. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "specbatch.h"

static void print_text(const char *name, char mark, const char *text, size_t length)
{
    printf("%s%c ", name, mark);
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\n')
            fputs("\\n", stdout);
        else if (text[i] == '\\')
            fputs("\\\\", stdout);
        else
            putchar(text[i]);
    putchar('\n');
}

/* How a request ended, or the name of the error that ended it. */
static const char *end_of(const specbatch_result *result)
{
    const int32_t finish = specbatch_result_finish(result);
    return finish == SPECBATCH_FINISH_ERROR ? specbatch_status_name(specbatch_result_status(result))
                                            : specbatch_finish_name(finish);
}

static void print_result(const specbatch_result *result)
{
    const char *name = specbatch_result_user(result);
    size_t length, n_tokens;
    const char *text = specbatch_result_text(result, &length);

    specbatch_result_tokens(result, &n_tokens);
    print_text(name, '=', text, length);
    printf("%s: %s, %zu tokens in %" PRIu64 " passes, %" PRIu64 " of %" PRIu64
           " proposals accepted; waited %.3f ms, first token after %.3f ms, all after %.3f ms\n",
           name, end_of(result), n_tokens, specbatch_result_rounds(result),
           specbatch_result_accepted(result), specbatch_result_drafted(result),
           (double)specbatch_result_time_queued_ns(result) / 1e6,
           (double)specbatch_result_time_first_token_ns(result) / 1e6,
           (double)specbatch_result_time_total_ns(result) / 1e6);
}

/* Prints what the last step has brought. Events come first: collecting a request drops those that
 * it still has. */
static int32_t print_news(specbatch_pool *pool)
{
    specbatch_event event = SPECBATCH_EVENT_INIT;
    specbatch_result *result = NULL;
    int32_t status;

    while ((status = specbatch_pool_next_event(pool, &event)) == SPECBATCH_OK)
        if (event.text_length > 0)
            print_text(event.user, '>', event.text, event.text_length);
    if (status != SPECBATCH_E_EMPTY)
        return status;
    while ((status = specbatch_pool_collect(pool, &result)) == SPECBATCH_OK) {
        print_result(result);
        specbatch_result_free(result);
    }
    fflush(stdout);
    return status == SPECBATCH_E_EMPTY ? SPECBATCH_OK : status;
}

static int32_t stream(specbatch_pool *pool, int n, char **args)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    size_t active = 1;
    int32_t status;

    for (int i = 0; i + 1 < n; i += 2) {
        request.user = args[i];
        request.text = args[i + 1];
        request.max_new = 64;
        if ((status = specbatch_pool_submit(pool, &request, NULL)) != SPECBATCH_OK)
            return status;
    }
    while (active)
        if ((status = specbatch_pool_step(pool, &active)) != SPECBATCH_OK ||
            (status = print_news(pool)) != SPECBATCH_OK)
            return status;
    return SPECBATCH_OK;
}

/* For arguments that are no requests. Returns the exit code. */
static int print_usage(const char *option)
{
    const int help = strcmp(option, "-h") == 0 || strcmp(option, "--help") == 0;
    const int version = strcmp(option, "--version") == 0;

    if (version)
        printf("stream (libspecbatch %s)\n", specbatch_version_string());
    else
        fprintf(help ? stdout : stderr,
                "usage: stream MODEL_DIR POLICY NAME PROMPT [NAME PROMPT ...]\n");
    return help || version ? fflush(stdout) != 0 : 2;
}

int main(int argc, char **argv)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_model *model = NULL;
    specbatch_draft *draft = NULL;
    specbatch_pool *pool = NULL;
    int failed;

    if (argc < 5 || argc % 2 == 0)
        return print_usage(argc == 2 ? argv[1] : "");
    options.policy = specbatch_policy_by_name(argv[2]);
    options.flags = SPECBATCH_POOL_FIXED_K; /* also where speculation does not pay */
    failed = options.policy < 0 || specbatch_model_open(&model, argv[1], NULL) ||
             specbatch_draft_from_ngrams(&draft, NULL) ||
             specbatch_pool_create(&pool, model, draft, &options) ||
             stream(pool, argc - 3, argv + 3);
    if (failed)
        fprintf(stderr, "stream: %s\n", specbatch_last_error());
    else if ((failed = fflush(stdout) || ferror(stdout)) != 0)
        perror("stream: stdout");
    specbatch_pool_free(pool);
    specbatch_draft_release(draft);
    specbatch_model_close(model);
    return failed;
}
