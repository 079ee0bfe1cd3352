/* Makes ids of a text, with the tokenizer and the chat format of the target. */
#include "chat_ids.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support.h"

int32_t ex_chat_date(const specbatch_model *target, int32_t format, int32_t asked)
{
    const time_t now = time(NULL);
    struct tm today;

    if (format == SPECBATCH_CHAT_AUTO)
        format = specbatch_model_chat_format(target);
    if (asked || (format != SPECBATCH_CHAT_LLAMA3_2 && format != SPECBATCH_CHAT_GPT_OSS) ||
        !localtime_r(&now, &today))
        return asked;
    return (today.tm_year + 1900) * 10000 + (today.tm_mon + 1) * 100 + today.tm_mday;
}

/* Writes ids, or only counts them if ids is NULL. */
static int32_t convert(const specbatch_model *target, const specbatch_chat_options *options,
                       const char *text, int32_t *ids, size_t capacity, size_t *n)
{
    specbatch_message message;

    if (options->format == SPECBATCH_CHAT_RAW)
        return specbatch_tokenize(target, text, strlen(text), 0, ids, capacity, n);
    memset(&message, 0, sizeof message);
    message.role = "user";
    message.content = text;
    message.content_length = strlen(text);
    return specbatch_chat_tokens(target, options, &message, sizeof message, 1, ids, capacity, n);
}

int32_t *ex_text_ids(const specbatch_model *target, const struct ex_chat *chat, int turn,
                     const char *text, size_t *n)
{
    specbatch_chat_options options = SPECBATCH_CHAT_OPTIONS_INIT;
    int32_t *ids;

    options.format = chat->format;
    options.flags = chat->flags;
    options.effort = chat->effort;
    options.date = ex_chat_date(target, chat->format, chat->date);
    if (chat->format == SPECBATCH_CHAT_AUTO && !turn)
        options.format = SPECBATCH_CHAT_RAW;
    if (convert(target, &options, text, NULL, 0, n) != SPECBATCH_OK)
        return NULL;
    ids = ex_alloc(*n + 1, sizeof *ids);
    if (convert(target, &options, text, ids, *n, n) == SPECBATCH_OK)
        return ids;
    free(ids);
    return NULL;
}
