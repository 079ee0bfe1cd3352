/*
 * The ids of a prompt that is given as text: as the text is, or as the user's message of a
 * conversation.
 */
#ifndef EX_CHAT_IDS_H
#define EX_CHAT_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "specbatch.h"

/* The formats by name, in the order of SPECBATCH_CHAT_*. */
#define EX_CHAT_FORMATS                                                \
    "auto|raw|vicuna|qwen3|glm4|glmz1|llama3|chatml|qwen2|qwen2.5|"    \
    "phi3|phi3.5|phi4|gemma2|gemma3|mistral-v1|mistral-v3|"            \
    "mistral-v3-tekken|mistral-v7|phi4-mini|glm4.5|llama3.1|llama3.2|" \
    "gpt-oss|deepseek-r1"

struct ex_chat {
    int32_t format; /* SPECBATCH_CHAT_*. RAW: texts are as they are. AUTO: a turn is a message in
                       the target's own format, and other texts are as they are */
    uint32_t flags; /* SPECBATCH_CHAT_NO_THINK and so on */
    int32_t date, effort;
};

/* The date for a chat format: the one that was asked for, or today's if that is 0 and the format
 * says the day that it is. format may be AUTO. */
int32_t ex_chat_date(const specbatch_model *target, int32_t format, int32_t asked);

/* The ids of a text, *n of them, to be freed; NULL after a failure, of which the library has the
 * line. turn: it is the first turn of a conversation, not a prompt. */
int32_t *ex_text_ids(const specbatch_model *target, const struct ex_chat *chat, int turn,
                     const char *text, size_t *n);

#endif
