/*
 * Conversations as text and as token ids, in the formats that models were trained on.
 *
 *   chat_tokens.c    takes the caller's messages over, and makes text or ids of them
 *   chat_formats.c   the table of formats: a row and a function for each
 *   chat_text.c      what these functions write to
 *   chat_detect.c    which of them a checkpoint's chat template is
 *
 * The models ship their formats as Jinja templates, for which no C engine is small enough to embed.
 * The templates also come with the checkpoint, so to run them would be to run code from a file.
 * Each function of chat_formats.c makes the text that its template makes; test/text/check_chat.sh
 * compares them.
 *
 * A function writes the marks of its format and the contents of messages by different calls, so
 * that it is known of every byte where it came from. The ids are made of the whole text at once,
 * since words and merges may cross the border between a mark and a content, but special tokens are
 * looked for in the marks only. Rejected: to tokenize each piece by itself and to join the ids.
 * Those differ from what the model was trained on wherever a word crosses a border.
 */
#ifndef SB_CHAT_H
#define SB_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "bytes.h"
#include "tokenizer.h"

enum sb_role { SB_ROLE_SYSTEM, SB_ROLE_USER, SB_ROLE_ASSISTANT, SB_ROLES };

/* A message that has been checked. Its content is the caller's. */
struct sb_turn {
    enum sb_role role;
    const char *content; /* n bytes of valid UTF-8, which may have NULs inside */
    size_t n;
};

/* A day that a text says. */
struct sb_day {
    int year, month, day; /* year 0: it was not told */
};

/* A conversation, to be written in some format. */
struct sb_chat {
    const struct sb_turn *turns; /* one at least */
    size_t n;
    uint32_t flags; /* SPECBATCH_CHAT_NO_THINK and so on */
    struct sb_day day;
    int32_t effort; /* SPECBATCH_EFFORT_DEFAULT and so on */
};

/* The text that is made of it, and which bytes of the text are contents of messages. */
struct sb_chat_text {
    struct sb_bytes text;
    struct sb_range *contents; /* as a guard's ranges (tokenizer.h) */
    size_t n_contents, capacity;
};

struct sb_chat_format {
    const char *name;
    int32_t (*write)(const struct sb_chat *chat, struct sb_chat_text *out);
    const char *const *markers; /* the tokens that delimit its turns; a list that ends in NULL */
    int begins;                 /* its text has all that comes before the first turn, so that the
                                   tokenizer's template adds nothing */
    int always_thinks;          /* an answer without reasoning cannot be asked for */
};

/* The marks of DeepSeek-R1, which have a full-width bar and a block for a blank. */
#define SB_R1_BAR "\xEF\xBD\x9C"
#define SB_R1_BLANK "\xE2\x96\x81"
#define SB_R1_BEGIN "<" SB_R1_BAR "begin" SB_R1_BLANK "of" SB_R1_BLANK "sentence" SB_R1_BAR ">"
#define SB_R1_END "<" SB_R1_BAR "end" SB_R1_BLANK "of" SB_R1_BLANK "sentence" SB_R1_BAR ">"
#define SB_R1_USER "<" SB_R1_BAR "User" SB_R1_BAR ">"
#define SB_R1_ASSISTANT "<" SB_R1_BAR "Assistant" SB_R1_BAR ">"

/* chat_formats.c. The number of formats, with SPECBATCH_CHAT_AUTO, which has a name only; a
 * format's name, or NULL; its row, or NULL; and the name of a role. */
int32_t sb_chat_count(void);
const char *sb_chat_name(int32_t format);
const struct sb_chat_format *sb_chat_format(int32_t format);
const char *sb_role_name(enum sb_role role);

/* chat_text.c. Appends bytes that belong to the format, or to a content. */
int32_t sb_chat_mark(struct sb_chat_text *out, const char *mark);
int32_t sb_chat_content(struct sb_chat_text *out, const char *content, size_t n);
void sb_chat_text_clear(struct sb_chat_text *out);

/* chat_tokens.c. What the caller of a chat function gave (specbatch.h). */
struct sb_chat_call {
    const struct specbatch_message *messages;
    size_t message_size, n_messages;
    int32_t format; /* not SPECBATCH_CHAT_AUTO */
    uint32_t flags;
    int32_t date, effort;
};

/* Appends a conversation as text to an empty `out`, whose text.mem is set. E_NOT_FOUND (no such
 * format), E_INVALID, E_OPTIONS, E_UNSUPPORTED, E_NOMEM. */
int32_t sb_chat_write(const struct sb_chat_call *call, struct sb_chat_text *out);
/* Appends its ids. The same codes, and those of sb_tokenizer_encode. */
int32_t sb_chat_encode(const struct sb_chat_call *call, const struct sb_tokenizer *tokenizer,
                       struct sb_ids *ids);

enum { SB_CHAT_NONE = -1, SB_CHAT_UNKNOWN = -2 };

/* chat_detect.c. The chat template in a checkpoint's folder, *n bytes and a NUL behind them, which
 * the caller frees; NULL: there is none. E_IO, E_FORMAT, E_NOMEM. */
int32_t sb_chat_template(char **out, size_t *n, const struct sb_mem *mem, const char *dir);
/* The format of the chat template in a checkpoint's folder: a SPECBATCH_CHAT_*,
 * SB_CHAT_NONE (there is no template) or SB_CHAT_UNKNOWN. E_IO, E_FORMAT, E_NOMEM. */
int32_t sb_chat_detect(int32_t *format, const struct sb_mem *mem, const char *dir);
/* The same for a GGUF file, which has its template in the metadata (gguf_vocab.c). E_NOMEM. */
int32_t sb_chat_detect_gguf(int32_t *format, const struct sb_mem *mem, const struct sb_gguf *gguf);
/* The format of a template, or SB_CHAT_UNKNOWN. E_NOMEM. */
int32_t sb_chat_recognise(int32_t *format, const struct sb_mem *mem, const char *jinja, size_t n);

#endif
