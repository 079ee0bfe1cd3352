/*
 * The exported functions on text: tokens and text of a model, conversation formats, text streams.
 * Each checks its arguments and calls inward. They need no pool, and compute nothing in floating
 * point.
 */
#include <string.h>

#include "api.h"
#include "line.h"
#include "model/model.h"
#include "options.h"
#include "text/chat.h"
#include "text/tokenizer.h"

/* `name` is that of the argument `in`. */
static int32_t check_text_call(const specbatch_model *model, const void *in, const char *name,
                               const void *buffer, size_t capacity, const size_t *n)
{
    if (!model || !in || !n)
        return sb_null_argument(!model ? "model" : !in ? name : "n");
    if (!buffer && capacity > 0)
        return sb_null_argument("the buffer");
    if (!model->tokenizer)
        return sb_fail(SPECBATCH_E_NO_TOKENIZER, "the model has no tokenizer");
    return SPECBATCH_OK;
}

/* Bytes into the caller's buffer with a NUL, or E_BUFFER; *n is the length either way. */
static int32_t give_text(const char *text, size_t length, char *buffer, size_t capacity, size_t *n)
{
    *n = length;
    if (!buffer)
        return SPECBATCH_OK;
    if (capacity <= length)
        return sb_fail(SPECBATCH_E_BUFFER, "the buffer has %zu bytes, %zu are needed", capacity,
                       length + 1);
    memcpy(buffer, text, length);
    buffer[length] = '\0';
    return SPECBATCH_OK;
}

/* Ids into the caller's buffer, or E_BUFFER; *n is their number either way. */
static int32_t give_ids(const struct sb_ids *found, int32_t *ids, size_t capacity, size_t *n)
{
    *n = found->n;
    if (ids && capacity < found->n)
        return sb_fail(SPECBATCH_E_BUFFER, "the buffer holds %zu ids, %zu are needed", capacity,
                       found->n);
    if (ids && found->n > 0)
        memcpy(ids, found->data, found->n * sizeof *ids);
    return SPECBATCH_OK;
}

int32_t specbatch_tokenize(const specbatch_model *model, const char *text, size_t length,
                           uint32_t flags, int32_t *ids, size_t capacity, size_t *n)
{
    struct sb_ids found = {0};
    int32_t rc = SPECBATCH_OK;

    if (!text && length == 0)
        text = "";
    if ((rc = check_text_call(model, text, "text", ids, capacity, n)) != SPECBATCH_OK)
        return rc;
    found.mem = &model->mem;
    SB_TRY(sb_check_flags(SPECBATCH_E_INVALID, "tokenize", "flags", flags, SB_FLAGS_TOKENIZE));
    SB_TRY(sb_tokenizer_encode(model->tokenizer, text, length, flags, &found));
    SB_TRY(give_ids(&found, ids, capacity, n));
done:
    sb_ids_clear(&found);
    return rc;
}

int32_t specbatch_detokenize(const specbatch_model *model, const int32_t *ids, size_t n_ids,
                             uint32_t flags, char *buffer, size_t capacity, size_t *n)
{
    static const int32_t no_ids[1];
    struct sb_bytes text = {0};
    int32_t rc;

    if (!ids && n_ids == 0)
        ids = no_ids;
    if ((rc = check_text_call(model, ids, "ids", buffer, capacity, n)) != SPECBATCH_OK)
        return rc;
    text.mem = &model->mem;
    SB_TRY(sb_check_flags(SPECBATCH_E_INVALID, "detokenize", "flags", flags, SB_FLAGS_DETOKENIZE));
    SB_TRY(sb_tokenizer_decode(model->tokenizer, ids, n_ids, flags, &text));
    SB_TRY(give_text(text.data, text.n, buffer, capacity, n));
done:
    sb_bytes_clear(&text);
    return rc;
}

int32_t specbatch_token_text(const specbatch_model *model, int32_t id, char *buffer,
                             size_t capacity, size_t *n)
{
    const char *piece;
    size_t length;
    int32_t rc;

    if ((rc = check_text_call(model, &id, "id", buffer, capacity, n)) != SPECBATCH_OK)
        return rc;
    piece = sb_tokenizer_piece(model->tokenizer, id, &length);
    if (!piece)
        return sb_fail(SPECBATCH_E_TOKEN, "no token has id %d", id);
    return give_text(piece, length, buffer, capacity, n);
}

/* ------------------------------------------------------------------- conversations */

int32_t specbatch_chat_count(void)
{
    return sb_chat_count();
}

const char *specbatch_chat_name(int32_t format)
{
    return sb_chat_name(format);
}

int32_t specbatch_chat_by_name(const char *name)
{
    if (!name)
        return sb_null_argument("name");
    for (int32_t format = 0; format < sb_chat_count(); format++)
        if (strcmp(sb_chat_name(format), name) == 0)
            return format;
    return sb_fail(SPECBATCH_E_NOT_FOUND,
                   "chat format \"%.20s\" is unknown; specbatch_chat_name says those of 0 to %d",
                   name, (int)sb_chat_count() - 1);
}

int32_t specbatch_model_chat_format(const specbatch_model *model)
{
    if (!model)
        return sb_null_argument("model");
    if (model->chat == SB_CHAT_NONE)
        return sb_fail(SPECBATCH_E_NOT_FOUND,
                       "the checkpoint has no chat template; name the format");
    if (model->chat == SB_CHAT_UNKNOWN)
        return sb_fail(SPECBATCH_E_NOT_FOUND,
                       "the checkpoint's chat template is none that this library knows; name the "
                       "format, or make the text by other means");
    return model->chat;
}

int32_t specbatch_chat_options_init(specbatch_chat_options *options, size_t size)
{
    return sb_options_init(options, size);
}

/* What the arguments of a chat function say, with the model's own format for AUTO. */
static int32_t read_chat_call(struct sb_chat_call *call, const specbatch_model *model,
                              const specbatch_chat_options *given)
{
    specbatch_chat_options options;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_options_copy(&options, sizeof options, given, "chat options"));
    call->format = options.format;
    call->flags = options.flags;
    call->date = options.date;
    call->effort = options.effort;
    if (options.format == SPECBATCH_CHAT_AUTO) {
        call->format = specbatch_model_chat_format(model);
        if (call->format < 0)
            rc = call->format;
    }
done:
    return rc;
}

int32_t specbatch_chat_tokens(const specbatch_model *model, const specbatch_chat_options *options,
                              const specbatch_message *messages, size_t message_size,
                              size_t n_messages, int32_t *ids, size_t capacity, size_t *n)
{
    struct sb_chat_call call = {messages, message_size, n_messages, 0, 0, 0, 0};
    struct sb_ids found = {0};
    int32_t rc;

    if ((rc = check_text_call(model, messages, "messages", ids, capacity, n)) != SPECBATCH_OK)
        return rc;
    found.mem = &model->mem;
    SB_TRY(read_chat_call(&call, model, options));
    SB_TRY(sb_chat_encode(&call, model->tokenizer, &found));
    SB_TRY(give_ids(&found, ids, capacity, n));
done:
    sb_ids_clear(&found);
    return rc;
}

int32_t specbatch_chat_text(const specbatch_model *model, const specbatch_chat_options *options,
                            const specbatch_message *messages, size_t message_size,
                            size_t n_messages, char *buffer, size_t capacity, size_t *n)
{
    const struct sb_mem mem = {NULL, NULL, NULL};
    struct sb_chat_call call = {messages, message_size, n_messages, 0, 0, 0, 0};
    struct sb_chat_text out = {.text = {.mem = model ? &model->mem : &mem}};
    int32_t rc;

    if (!messages || !n)
        return sb_null_argument(n ? "messages" : "n");
    if (!buffer && capacity > 0)
        return sb_null_argument("the buffer");
    SB_TRY(read_chat_call(&call, model, options));
    SB_TRY(sb_chat_write(&call, &out));
    SB_TRY(give_text(out.text.data, out.text.n, buffer, capacity, n));
done:
    sb_chat_text_clear(&out);
    return rc;
}

/* -------------------------------------------------------------------- text streams */

struct specbatch_text_stream {
    specbatch_model *model; /* a reference */
    struct sb_stream *stream;
};

int32_t specbatch_text_stream_create(specbatch_text_stream **out, specbatch_model *model,
                                     uint32_t flags)
{
    specbatch_text_stream *stream = NULL;
    size_t unused;
    int32_t rc;

    if (!out)
        return sb_null_argument("out");
    if ((rc = check_text_call(model, out, "out", NULL, 0, &unused)) != SPECBATCH_OK ||
        (rc = sb_check_flags(SPECBATCH_E_INVALID, "text stream", "flags", flags,
                             SB_FLAGS_DETOKENIZE)) != SPECBATCH_OK)
        return rc;
    SB_NEW(stream, sb_alloc(&model->mem, 1, sizeof *stream), "a text stream");
    SB_TRY(sb_stream_create(&stream->stream, &model->mem, model->tokenizer, flags));
    stream->model = model;
    sb_model_retain(model);
    *out = stream;
    stream = NULL;
done:
    if (stream)
        sb_free(&model->mem, stream);
    return rc;
}

static int32_t check_stream_call(const specbatch_text_stream *stream, const char **text)
{
    return stream && text ? SPECBATCH_OK : sb_null_argument(stream ? "text" : "stream");
}

int32_t specbatch_text_stream_push(specbatch_text_stream *stream, const int32_t *ids, size_t n_ids,
                                   const char **text, size_t *length)
{
    int32_t rc = check_stream_call(stream, text);

    if (rc != SPECBATCH_OK)
        return rc;
    if (!ids && n_ids > 0)
        return sb_null_argument("ids");
    if (n_ids > 0)
        return sb_stream_push(stream->stream, ids, n_ids, text, length);
    *text = "";
    if (length)
        *length = 0;
    return SPECBATCH_OK;
}

int32_t specbatch_text_stream_finish(specbatch_text_stream *stream, const char **text,
                                     size_t *length)
{
    const int32_t rc = check_stream_call(stream, text);

    return rc == SPECBATCH_OK ? sb_stream_push(stream->stream, NULL, 0, text, length) : rc;
}

void specbatch_text_stream_free(specbatch_text_stream *stream)
{
    specbatch_model *model;

    if (!stream)
        return;
    model = stream->model;
    sb_stream_free(stream->stream);
    sb_free(&model->mem, stream);
    sb_model_release(model);
}
