/*
 * chat: a conversation with a model in a terminal. Answers are shown while they are made; `chat
 * --help` lists the options and what can be typed.
 *
 * The conversation is kept as messages and given to the model as a whole each time. Its beginning
 * is not computed again: the pool keeps the keys and values of what it has seen (prefix_bytes).
 * Ctrl-C ends the answer that is being made, of which what is there stays in the conversation; at
 * the prompt it ends the program, as Ctrl-D does.
 * Exit codes: 0 done, 2 bad usage or input, 3 the model failed.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "specbatch.h"
#include "support/args.h"
#include "support/chat_ids.h"
#include "support/run.h"
#include "support/sampling_args.h"
#include "support/support.h"

struct chat {
    const char *target_dir, *system;
    struct ex_strings drafts;
    int32_t max_new, draft_len, threads, device, compute, kv, weights, fixed_k;
    int32_t format, no_think, date, effort;
    uint64_t prefix_bytes;
    specbatch_sampling sampling;

    specbatch_model *target;
    specbatch_draft *draft;
    specbatch_pool *pool;
    specbatch_message *messages; /* whose contents are its own */
    size_t n_messages, room;
    specbatch_text_stream *marked; /* of an answer whose marks are shown, or NULL */
    char *answer;                  /* its text so far */
    size_t answer_length;
    int is_terminal;
    uint64_t n_tokens, n_passes; /* of all answers, */
    double seconds;              /* and the time that they took */
};

/* ------------------------------------------------------------------ signals */

static specbatch_pool *volatile interruptible; /* while an answer is being made */

/* An answer is ended by an interruption of its pool. At the prompt the program ends. */
static void on_interrupt(int number)
{
    if (interruptible)
        specbatch_pool_interrupt(interruptible);
    else
        _exit(128 + number);
}

static void catch_interrupts(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, NULL);
}

/* ------------------------------------------------------------- conversation */

static void add_message(struct chat *chat, const char *role, const char *content, size_t length)
{
    char *copy = ex_alloc(length + 1, 1);
    specbatch_message *message;

    if (chat->n_messages == chat->room) {
        chat->room = 2 * chat->room + 8;
        chat->messages = ex_realloc(chat->messages, chat->room, sizeof *chat->messages);
    }
    memcpy(copy, content, length);
    message = &chat->messages[chat->n_messages++];
    message->role = role;
    message->content = copy;
    message->content_length = length;
}

static void drop_messages(struct chat *chat, size_t keep)
{
    while (chat->n_messages > keep)
        free((void *)(uintptr_t)chat->messages[--chat->n_messages].content);
}

static void begin_conversation(struct chat *chat)
{
    drop_messages(chat, 0);
    if (chat->system)
        add_message(chat, "system", chat->system, strlen(chat->system));
}

/* The conversation as ids, to be freed; NULL after a failure, of which the library has the line. */
static int32_t *conversation_ids(const struct chat *chat, size_t *n)
{
    specbatch_chat_options options = SPECBATCH_CHAT_OPTIONS_INIT;
    int32_t *ids = NULL, status;

    options.format = chat->format;
    options.flags = chat->no_think ? SPECBATCH_CHAT_NO_THINK : 0u;
    options.date = ex_chat_date(chat->target, chat->format, chat->date);
    options.effort = chat->effort;
    *n = 0;
    do {
        const size_t capacity = *n;
        ids = ex_realloc(ids, capacity + 1, sizeof *ids);
        status = specbatch_chat_tokens(chat->target, &options, chat->messages,
                                       sizeof *chat->messages, chat->n_messages, ids, capacity, n);
    } while (status == SPECBATCH_E_BUFFER);
    if (status == SPECBATCH_OK)
        return ids;
    free(ids);
    return NULL;
}

/* ------------------------------------------------------------------ answers */

/* An answer of gpt-oss has several parts. Marks say which part is reasoning and which is for the
 * user, and an answer's usual text is without them. So its text is made here, with all marks. */
static int begin_answer(struct chat *chat)
{
    specbatch_text_stream_free(chat->marked);
    chat->marked = NULL;
    chat->answer_length = 0;
    return chat->format != SPECBATCH_CHAT_GPT_OSS ||
           specbatch_text_stream_create(&chat->marked, chat->target, SPECBATCH_TEXT_KEEP_SPECIAL) ==
               SPECBATCH_OK ||
           ex_complain("%s", specbatch_last_error());
}

static int print_marked(struct chat *chat, const specbatch_event *event)
{
    const char *text;
    size_t length;

    /* the last event has what is held back, too */
    for (int ends = 0; ends <= (event->finish != 0); ends++) {
        if ((ends ? specbatch_text_stream_finish(chat->marked, &text, &length)
                  : specbatch_text_stream_push(chat->marked, event->ids, event->n_ids, &text,
                                               &length)) != SPECBATCH_OK)
            return ex_complain("%s", specbatch_last_error());
        chat->answer = ex_realloc(chat->answer, chat->answer_length + length + 1, 1);
        memcpy(chat->answer + chat->answer_length, text, length + 1);
        chat->answer_length += length;
        fwrite(text, 1, length, stdout);
    }
    return 1;
}

/* What of an answer with marks a later conversation has: the part behind the last mark of the
 * channel "final", up to the next mark. */
static const char *final_part(const struct chat *chat, size_t *length)
{
    static const char mark[] = "<|channel|>final<|message|>";
    const char *part = NULL, *end = NULL;

    for (const char *at = chat->answer_length ? strstr(chat->answer, mark) : NULL; at;
         at = strstr(part, mark))
        part = at + sizeof mark - 1;
    if (part)
        end = strstr(part, "<|");
    *length = !part ? 0 : end ? (size_t)(end - part) : strlen(part);
    return part ? part : "";
}

/* Prints what the last step has brought. */
static int print_events(struct chat *chat)
{
    specbatch_event event = SPECBATCH_EVENT_INIT;
    int32_t status;

    while ((status = specbatch_pool_next_event(chat->pool, &event)) == SPECBATCH_OK)
        if (!chat->marked)
            fwrite(event.text, 1, event.text_length, stdout);
        else if (!print_marked(chat, &event))
            return 0;
    fflush(stdout);
    return status == SPECBATCH_E_EMPTY || ex_complain("%s", specbatch_last_error());
}

/* Steps until the answer has ended. Ctrl-C ends it by cancelling it. */
static int run_answer(struct chat *chat, uint64_t id)
{
    size_t active = 1;
    int ok = 1;

    interruptible = chat->pool;
    while (active && ok) {
        const int32_t status = specbatch_pool_step(chat->pool, &active);
        if (status == SPECBATCH_E_INTERRUPTED) {
            specbatch_pool_cancel(chat->pool, id);
            active = 1; /* one more step finds nothing to do */
        } else if (status != SPECBATCH_OK) {
            ok = ex_complain("%s", specbatch_last_error());
        }
        ok = ok && print_events(chat);
    }
    interruptible = NULL;
    return ok;
}

static int keep_answer(struct chat *chat)
{
    specbatch_result *result = NULL;
    size_t length, n_tokens;
    const char *text;

    if (specbatch_pool_collect(chat->pool, &result) != SPECBATCH_OK)
        return ex_complain("%s", specbatch_last_error());
    text = chat->marked ? final_part(chat, &length) : specbatch_result_text(result, &length);
    add_message(chat, "assistant", text, length);
    specbatch_result_tokens(result, &n_tokens);
    chat->n_tokens += n_tokens;
    chat->n_passes += specbatch_result_rounds(result);
    chat->seconds += (double)specbatch_result_time_total_ns(result) / 1e9;
    if (specbatch_result_finish(result) == SPECBATCH_FINISH_CANCELLED)
        printf(" [interrupted]");
    else if (specbatch_result_finish(result) == SPECBATCH_FINISH_LENGTH)
        printf(" [--max-new %" PRId32 "]", chat->max_new);
    printf("\n");
    if (specbatch_result_status(result) != SPECBATCH_OK)
        ex_complain("the answer ended: %s", specbatch_status_name(specbatch_result_status(result)));
    specbatch_result_free(result);
    return 1;
}

/* Answers the last message. What goes wrong with one message, such as its length, leaves the
 * conversation without it. Returns 0 when the model has failed. */
static int answer(struct chat *chat)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    size_t n_ids;
    int32_t *ids = conversation_ids(chat, &n_ids);
    uint64_t id;
    int32_t status = SPECBATCH_E_INVALID;

    /* A step with nothing to do takes the Ctrl-C that came just as the last answer ended. */
    specbatch_pool_step(chat->pool, NULL);
    if (ids) {
        request.ids = ids;
        request.n_ids = n_ids;
        request.max_new = chat->max_new;
        request.sampling = &chat->sampling;
        status = specbatch_pool_submit(chat->pool, &request, &id);
        free(ids);
    }
    if (status == SPECBATCH_OK)
        return begin_answer(chat) && run_answer(chat, id) && keep_answer(chat);
    ex_complain("%s%s", specbatch_last_error(),
                status == SPECBATCH_E_TOO_LONG ? "; /reset begins anew" : "");
    drop_messages(chat, chat->n_messages - 1);
    return 1;
}

/* ----------------------------------------------------------------- the user */

static void print_stats(const struct chat *chat)
{
    uint64_t kept = 0, computed = 0;

    specbatch_pool_stat(chat->pool, "prefix_tokens", &kept);
    specbatch_pool_stat(chat->pool, "prefill_tokens", &computed);
    printf("%" PRIu64 " tokens in %.2f s, %.1f a second, %.2f for each pass of the target; "
           "%" PRIu64 " prompt tokens computed, %" PRIu64 " not computed again; %zu messages\n",
           chat->n_tokens, chat->seconds,
           chat->seconds > 0 ? (double)chat->n_tokens / chat->seconds : 0.0,
           ex_ratio(chat->n_tokens, chat->n_passes), computed, kept, chat->n_messages);
}

/* What was typed, without its newline. Returns 0 when the program is to end. */
static int take_line(struct chat *chat, const char *line, size_t length)
{
    if (strcmp(line, "/quit") == 0)
        return 0;
    if (strcmp(line, "/reset") == 0)
        begin_conversation(chat);
    else if (strcmp(line, "/stats") == 0)
        print_stats(chat);
    else if (line[0] == '/' && line[1] != '/')
        printf(
            "unknown command; there are\n"
            "/reset  begin a new conversation\n/stats  speed so far\n/quit   end; so does Ctrl-D\n"
            "//...   a message that begins with a slash\n");
    else if (length > 0) {
        const size_t skip = line[0] == '/';
        add_message(chat, "user", line + skip, length - skip);
        return answer(chat);
    }
    return 1;
}

static int talk(struct chat *chat)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int goes_on = 1, ok = 1;

    while (goes_on) {
        if (chat->is_terminal)
            printf("> ");
        fflush(stdout);
        if ((length = getline(&line, &room, stdin)) < 0)
            break;
        if (length > 0 && line[length - 1] == '\n')
            line[--length] = '\0';
        goes_on = take_line(chat, line, (size_t)length);
        ok = goes_on || strcmp(line, "/quit") == 0;
    }
    if (chat->is_terminal)
        printf("\n");
    free(line);
    return ok;
}

/* ------------------------------------------------------------------ start */

static int read_arguments(struct chat *chat, int argc, char **argv)
{
    struct ex_option options[16 + EX_SAMPLING_OPTIONS] = {
        {"--target", "DIR", EX_STRING, &chat->target_dir, 0, 0,
         "checkpoint, or a GGUF file; required"},
        {"--draft", "DIR|ngram|table:FILE", EX_STRINGS, &chat->drafts, 0, 0,
         "what proposes, as for generate (none)"},
        {"--draft-len", "K", EX_INT, &chat->draft_len, 1, 64,
         "tokens proposed a round at most (5)"},
        {"--fixed-k", NULL, EX_SWITCH, &chat->fixed_k, 0, 0,
         "always K: do not adapt it to what pays"},
        {"--system", "TEXT", EX_STRING, &chat->system, 0, 0, "the system message (none)"},
        {"--chat", EX_CHAT_FORMATS, EX_CHOICE, &chat->format, 0, 0,
         "the chat format (auto: that of the target)"},
        {"--no-think", NULL, EX_SWITCH, &chat->no_think, 0, 0, "answers without reasoning"},
        {"--effort", "default|low|medium|high", EX_CHOICE, &chat->effort, 0, 0,
         "how long gpt-oss is to reason (default: medium)"},
        {"--date", "YYYYMMDD", EX_INT, &chat->date, 0, 99991231,
         "the day that a chat format says, 20261129 for example (today, for those that ask)"},
        {"--max-new", "N", EX_INT, &chat->max_new, 1, INT32_MAX,
         "tokens of an answer at most (512)"},
        {"--prefix-bytes", "BYTES", EX_BYTES, &chat->prefix_bytes, 0, 0,
         "for what is not computed again; 64M, 2G (256M)"},
        {"--threads", "N", EX_INT, &chat->threads, 1, 256, "threads (one for each processor)"},
        {"--device", "cpu|cuda", EX_CHOICE, &chat->device, 0, 0, "where the models run (cpu)"},
        {"--compute", "auto|bf16|f32|split|int8", EX_CHOICE, &chat->compute, 0, 0,
         "class of the products (auto)"},
        {"--kv", "auto|f32|bf16|f16", EX_CHOICE, &chat->kv, 0, 0, "type of the caches (auto)"},
        {"--weights", "auto|q8|q4", EX_CHOICE, &chat->weights, 0, 0,
         "quantise the matrices when loading (auto: as they are stored)"},
    };
    int parsed;

    ex_sampling_options(options + 16, &chat->sampling);
    chat->max_new = 512;
    chat->prefix_bytes = (uint64_t)256 << 20;
    parsed = ex_args_parse(options, sizeof options / sizeof options[0], argc, argv,
                           "--target DIR [--draft DIR|ngram|table:FILE]... [options]\n\n"
                           "Type a message and Enter. /reset begins a new conversation, /stats "
                           "shows the speed,\n/quit or Ctrl-D ends. Ctrl-C ends the answer that is "
                           "being made.");
    if (parsed == 1 && !chat->target_dir)
        return ex_complain("--target is required; --help lists all");
    return parsed;
}

static int open_all(struct chat *chat)
{
    specbatch_model_options model = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_pool_options pool = SPECBATCH_POOL_OPTIONS_INIT;
    int32_t context;

    model.device = chat->device;
    model.compute = chat->compute;
    model.kv = chat->kv;
    model.weights = chat->weights;
    if (specbatch_model_open(&chat->target, chat->target_dir, &model) != SPECBATCH_OK)
        return ex_complain("--target: %s", specbatch_last_error());
    if (chat->format == SPECBATCH_CHAT_AUTO)
        chat->format = specbatch_model_chat_format(chat->target);
    if (chat->format < 0)
        return ex_complain("--chat: %s; raw takes the text as it is", specbatch_last_error());
    if (chat->drafts.n > 0 && !ex_open_draft(&chat->draft, chat->drafts.at, chat->drafts.n, &model))
        return 0;
    context = specbatch_model_context(chat->target);
    pool.batch = 1;
    pool.max_len = context < 8192 ? context : 8192;
    pool.draft_len = chat->draft_len;
    pool.n_threads = chat->threads;
    pool.flags = chat->fixed_k ? SPECBATCH_POOL_FIXED_K : 0u;
    pool.prefix_bytes = chat->prefix_bytes;
    if (specbatch_pool_create(&chat->pool, chat->target, chat->draft, &pool) != SPECBATCH_OK)
        return ex_complain("%s", specbatch_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    static struct chat chat;
    int code = EX_USAGE, parsed;

    parsed = read_arguments(&chat, argc, argv);
    if (parsed < 0)
        code = EX_OK;
    else if (parsed && open_all(&chat)) {
        chat.is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
        catch_interrupts();
        begin_conversation(&chat);
        code = talk(&chat) ? EX_OK : EX_FAILED;
    }
    drop_messages(&chat, 0);
    free(chat.messages);
    free(chat.answer);
    specbatch_text_stream_free(chat.marked);
    specbatch_pool_free(chat.pool);
    specbatch_draft_release(chat.draft);
    specbatch_model_close(chat.target);
    return code;
}
