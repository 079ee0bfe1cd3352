/* Takes a caller's messages over and makes text or token ids of them; chat.h has the design. */
#include "chat.h"

#include <string.h>

#include "options.h"
#include "specbatch.h"
#include "status.h"
#include "utf8.h"

/* ------------------------------------------------------------------------ messages */

/* A message as this library's struct. The caller's may be longer, if the caller is newer. */
static int32_t copy_message(struct specbatch_message *full, const struct sb_chat_call *call,
                            size_t index)
{
    const unsigned char *given = (const unsigned char *)call->messages + index * call->message_size;

    memcpy(full, given, sizeof *full);
    for (size_t i = sizeof *full; i < call->message_size; i++)
        if (given[i])
            return sb_fail(SPECBATCH_E_OPTIONS,
                           "messages[%zu]: the field at byte %zu is set; %d.%d.%d has none", index,
                           i, SPECBATCH_VERSION_MAJOR, SPECBATCH_VERSION_MINOR,
                           SPECBATCH_VERSION_PATCH);
    return SPECBATCH_OK;
}

static int32_t read_message(struct sb_turn *turn, const struct sb_chat_call *call, size_t index)
{
    struct specbatch_message message;
    int32_t rc = SPECBATCH_OK;
    size_t valid;
    int role;

    SB_TRY(copy_message(&message, call, index));
    if (!message.role || (!message.content && message.content_length > 0))
        SB_FAIL(SPECBATCH_E_INVALID, "messages[%zu]: %s is NULL", index,
                message.role ? "content" : "role");
    for (role = 0; role < SB_ROLES && strcmp(message.role, sb_role_name(role)) != 0; role++)
        continue;
    if (role == SB_ROLES)
        SB_FAIL(SPECBATCH_E_INVALID, "messages[%zu]: unknown role \"%.40s\"", index, message.role);
    turn->role = (enum sb_role)role;
    turn->content = message.content ? message.content : "";
    turn->n = message.content_length;
    valid = sb_utf8_valid(turn->content, turn->n);
    if (valid < turn->n)
        SB_FAIL(SPECBATCH_E_INVALID, "messages[%zu]: byte %zu: invalid UTF-8", index, valid);
done:
    return rc;
}

/* Takes a date apart; 0 is none. */
static int32_t read_day(struct sb_day *day, int32_t date)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const int year = date / 10000, month = date / 100 % 100, of_month = date % 100;
    const int is_leap_year = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

    *day = (struct sb_day){year, month, of_month};
    if (date == 0)
        return SPECBATCH_OK;
    if (year < 1000 || year > 9999 || month < 1 || month > 12 || of_month < 1 ||
        of_month > days[month - 1] + (month == 2 && is_leap_year))
        return sb_fail(SPECBATCH_E_INVALID,
                       "chat options: date is %d, and no day; November 29, 2026 is 20261129",
                       (int)date);
    return SPECBATCH_OK;
}

static int32_t check_call(const struct sb_chat_call *call)
{
    static const uint32_t known = SPECBATCH_CHAT_NO_THINK | SPECBATCH_CHAT_NO_ANSWER_PROMPT |
                                  SPECBATCH_CHAT_PARSE_SPECIAL;
    const struct sb_chat_format *format = sb_chat_format(call->format);
    size_t bytes;
    int32_t rc = SPECBATCH_OK;

    if (!format)
        SB_FAIL(SPECBATCH_E_NOT_FOUND, "chat format %d: there is none", (int)call->format);
    SB_TRY(sb_check_flags(SPECBATCH_E_OPTIONS, "chat options", "flags", call->flags, known));
    if (format->always_thinks && (call->flags & SPECBATCH_CHAT_NO_THINK))
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "chat format %s: its thinking cannot be switched off",
                format->name);
    if (call->effort < SPECBATCH_EFFORT_DEFAULT || call->effort > SPECBATCH_EFFORT_HIGH)
        SB_FAIL(SPECBATCH_E_INVALID, "chat options: effort is %d; it must be 0 to 3",
                (int)call->effort);
    if (call->message_size < sizeof(struct specbatch_message) || call->message_size % 8 ||
        call->message_size > SB_STRUCT_SIZE_MAX)
        SB_FAIL(SPECBATCH_E_INVALID,
                "message_size is %zu; it must be sizeof(specbatch_message), which is %zu here",
                call->message_size, sizeof(struct specbatch_message));
    if (call->n_messages == 0)
        SB_FAIL(SPECBATCH_E_INVALID, "messages: there is none");
    if (!sb_mul_size(call->n_messages, call->message_size, &bytes))
        SB_FAIL(SPECBATCH_E_INVALID, "n_messages is %zu, more than memory holds", call->n_messages);
done:
    return rc;
}

/* ------------------------------------------------------------------------- writing */

int32_t sb_chat_write(const struct sb_chat_call *call, struct sb_chat_text *out)
{
    struct sb_chat chat = {.n = call->n_messages, .flags = call->flags, .effort = call->effort};
    struct sb_turn *turns = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(check_call(call));
    SB_TRY(read_day(&chat.day, call->date));
    SB_NEW(turns, sb_alloc(out->text.mem, call->n_messages, sizeof *turns), "a conversation");
    for (size_t i = 0; i < call->n_messages; i++)
        SB_TRY(read_message(&turns[i], call, i));
    chat.turns = turns;
    SB_TRY(sb_bytes_add(&out->text, "", 0)); /* a text without bytes is a text, too */
    SB_TRY(sb_chat_format(call->format)->write(&chat, out));
done:
    sb_free(out->text.mem, turns);
    return rc;
}

int32_t sb_chat_encode(const struct sb_chat_call *call, const struct sb_tokenizer *tokenizer,
                       struct sb_ids *ids)
{
    struct sb_chat_text out = {.text = {.mem = ids->mem}};
    const struct sb_chat_format *format;
    struct sb_guard guard;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_chat_write(call, &out));
    format = sb_chat_format(call->format);
    guard = (struct sb_guard){.text = out.text.data,
                              .ranges = out.contents,
                              .n_ranges = out.n_contents,
                              .markers = format->markers};
    SB_TRY(sb_tokenizer_encode_guarded(
        tokenizer, out.text.data, out.text.n, format->begins ? SPECBATCH_TEXT_NO_BOS : 0,
        call->flags & SPECBATCH_CHAT_PARSE_SPECIAL ? NULL : &guard, ids));
done:
    sb_chat_text_clear(&out);
    return rc;
}
