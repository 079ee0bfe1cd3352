/*
 * Tokenizing, splitting and conversations for test/text/compare_tokenizers.py and
 * test/text/compare_chat.py, which compare the answers with those of the reference implementations.
 * Lines of JSON come in, and each is answered by a line:
 *
 *   {"load": DIR}      a tokenizer: "ok"
 *   {"text": TEXT}     its ids, without special tokens around
 *   {"plain": TEXT}    the same, with special tokens in the text taken for text
 *   {"words": TEXT}    the lengths in bytes of the words that its pre_tokenizer makes
 *   {"pattern": TEXT}  a Split's pattern: "ok"
 *   {"split": TEXT}    the lengths in bytes of the words that it makes
 *   {"chat": CHAT}     a conversation's text, in hexadecimal digits
 *   {"ids": CHAT}      its ids
 *   {"jinja": TEXT}    the name of the format that a chat template is, or "unknown"
 *
 * where CHAT is [FORMAT'S NAME, FLAGS, DATE, EFFORT, ROLE, CONTENT, ROLE, CONTENT, ...],
 *
 * or by "error CODE MESSAGE".
 */
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "text/chat.h"
#include "text/pipeline.h"

static const struct sb_mem mem;

struct state {
    struct sb_tokenizer *tokenizer;
    struct sb_steps steps;
};

static void print_error(int32_t rc)
{
    printf("error %d %s", (int)rc, specbatch_last_error());
}

static int32_t print_word(void *context, const char *word, size_t n)
{
    (void)context;
    (void)word;
    printf("%zu ", n);
    return SPECBATCH_OK;
}

static void load(struct state *s, const char *dir)
{
    sb_tokenizer_free(s->tokenizer);
    s->tokenizer = NULL;
    const int32_t rc = sb_tokenizer_load(&s->tokenizer, &mem, dir);
    if (rc || !s->tokenizer)
        print_error(rc);
    else
        printf("ok");
}

static void encode(struct state *s, const char *text, size_t n, uint32_t flags)
{
    struct sb_ids ids = {.mem = &mem};
    int32_t rc = s->tokenizer ? sb_tokenizer_encode(s->tokenizer, text, n,
                                                    SPECBATCH_TEXT_NO_BOS | flags, &ids)
                              : SPECBATCH_E_NOT_FOUND;

    for (size_t i = 0; i < ids.n; i++)
        printf("%d ", (int)ids.data[i]);
    if (rc)
        print_error(rc);
    sb_ids_clear(&ids);
}

static void compile(struct state *s, const char *text, size_t n)
{
    struct sb_properties properties = {.mem = &mem};

    sb_steps_clear(&s->steps);
    memset(&s->steps, 0, sizeof s->steps);
    const int32_t rc = sb_split_compile(&s->steps.at[0], &properties, text, n, "pattern");
    sb_properties_clear(&properties);
    if (rc) {
        print_error(rc);
        return;
    }
    s->steps.n = 1;
    printf("ok");
}

static void split(const struct sb_steps *steps, const char *text, size_t n)
{
    struct sb_work work;

    sb_work_init(&work, &mem);
    const int32_t rc = sb_split(steps, 0, &work, text, n, 1, print_word, NULL);
    if (rc)
        print_error(rc);
    sb_work_clear(&work);
}

enum { MESSAGES_MAX = 64 };

static void chat_text(const struct sb_chat_call *call)
{
    struct sb_chat_text out = {.text = {.mem = &mem}};
    const int32_t rc = sb_chat_write(call, &out);

    for (size_t i = 0; rc == SPECBATCH_OK && i < out.text.n; i++)
        printf("%02x", (unsigned char)out.text.data[i]);
    if (rc)
        print_error(rc);
    sb_chat_text_clear(&out);
}

static void chat_ids(const struct state *s, const struct sb_chat_call *call)
{
    struct sb_ids ids = {.mem = &mem};
    const int32_t rc = sb_chat_encode(call, s->tokenizer, &ids);

    for (size_t i = 0; i < ids.n; i++)
        printf("%d ", (int)ids.data[i]);
    if (rc)
        print_error(rc);
    sb_ids_clear(&ids);
}

static void chat(struct state *s, const struct sb_json_node *list, int wants_ids)
{
    specbatch_message messages[MESSAGES_MAX];
    struct sb_chat_call call = {messages, sizeof *messages, 0, 0, 0, 0, 0};
    const struct sb_json_node *node = sb_json_first(list);
    int64_t flags = 0, date = 0, effort = 0;

    call.format = specbatch_chat_by_name(sb_json_string(node, NULL));
    node = sb_json_next(node);
    sb_json_int(node, &flags);
    node = sb_json_next(node);
    sb_json_int(node, &date);
    node = sb_json_next(node);
    sb_json_int(node, &effort);
    call.flags = (uint32_t)flags;
    call.date = (int32_t)date;
    call.effort = (int32_t)effort;
    while ((node = sb_json_next(node)) != NULL && call.n_messages < MESSAGES_MAX) {
        specbatch_message *message = &messages[call.n_messages++];
        message->role = sb_json_string(node, NULL);
        node = sb_json_next(node);
        message->content = sb_json_string(node, &message->content_length);
    }
    if (wants_ids)
        chat_ids(s, &call);
    else
        chat_text(&call);
}

static void recognise(const char *text, size_t n)
{
    int32_t format;
    const int32_t rc = sb_chat_recognise(&format, &mem, text, n);

    if (rc)
        print_error(rc);
    else
        printf("%s", format > 0 ? sb_chat_name(format) : "unknown");
}

static void answer(struct state *s, const struct sb_json_node *line)
{
    const struct sb_json_node *list;
    const char *text;
    size_t n = 0;

    if ((text = sb_json_string(sb_json_get(line, "load"), &n)) != NULL)
        load(s, text);
    else if ((text = sb_json_string(sb_json_get(line, "text"), &n)) != NULL)
        encode(s, text, n, 0);
    else if ((text = sb_json_string(sb_json_get(line, "plain"), &n)) != NULL)
        encode(s, text, n, SPECBATCH_TEXT_PLAIN_SPECIAL);
    else if ((text = sb_json_string(sb_json_get(line, "pattern"), &n)) != NULL)
        compile(s, text, n);
    else if ((text = sb_json_string(sb_json_get(line, "split"), &n)) != NULL)
        split(&s->steps, text, n);
    else if (s->tokenizer && (text = sb_json_string(sb_json_get(line, "words"), &n)) != NULL)
        split(&s->tokenizer->splitters, text, n);
    else if ((text = sb_json_string(sb_json_get(line, "jinja"), &n)) != NULL)
        recognise(text, n);
    else if ((list = sb_json_get(line, "chat")) != NULL)
        chat(s, list, 0);
    else if ((list = sb_json_get(line, "ids")) != NULL)
        chat(s, list, 1);
    printf("\n");
    fflush(stdout);
}

int main(void)
{
    static char line[1 << 24];
    struct state s = {.tokenizer = NULL};

    while (fgets(line, sizeof line, stdin)) {
        struct sb_json *doc = NULL;
        if (sb_json_parse(&doc, &mem, line, strlen(line), "line"))
            return 1;
        answer(&s, sb_json_root(doc));
        sb_json_free(doc);
    }
    sb_tokenizer_free(s.tokenizer);
    sb_steps_clear(&s.steps);
    return 0;
}
