/*
 * Reads a SentencePiece model (tokenizer.model) into the tables of a tokenizer. The file is a
 * protobuf message, of which these fields are read, by their numbers:
 *
 *   ModelProto   1 pieces (each: 1 piece, 2 score, 3 type)   2 trainer   3 normalizer
 *   trainer      3 model_type   24 treat_whitespace_as_suffix   35 byte_fallback   41 bos_id
 *                44 unk_surface
 *   normalizer   2 precompiled_charsmap   3 add_dummy_prefix   4 remove_extra_whitespaces
 *                5 escape_whitespaces
 *
 * All other fields are skipped, as protobuf intends. A protobuf library would be a dependency for
 * the sake of four types of messages.
 */
#include <string.h>

#include "spm.h"
#include "status.h"
#include "utf8.h"

enum { MODEL_BPE = 2 /* the model type that is supported */ };

/* A stretch of the file, as offsets. */
struct span {
    size_t at, end;
};

struct reader {
    struct sb_spm spm; /* what is read */
    const char *text;
    uint64_t model_type, suffix_space, escape;
};

struct field {
    unsigned number, wire;
    uint64_t value;   /* of varints and 32-bit fields */
    struct span span; /* of length-delimited fields */
};

enum { VARINT = 0, FIXED64 = 1, DELIMITED = 2, FIXED32 = 5 };

/* The file is malformed at byte `at`. */
static int32_t bad(const struct reader *r, size_t at, const char *reason)
{
    return sb_fail(SPECBATCH_E_FORMAT, "%s: byte %zu: %s", r->spm.path, at, reason);
}

static int32_t read_varint(const struct reader *r, struct span *in, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && in->at < in->end; shift += 7) {
        unsigned char c = (unsigned char)r->text[in->at++];
        *value |= (uint64_t)(c & 0x7F) << shift;
        if (c < 0x80)
            return SPECBATCH_OK;
    }
    return bad(r, in->at, "a number does not end");
}

/* Reads the next field of a message and steps over it. */
static int32_t read_field(const struct reader *r, struct span *in, struct field *field)
{
    size_t start = in->at;
    uint64_t key;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_varint(r, in, &key));
    field->number = (unsigned)(key >> 3 & 0x1FFFFFFF);
    field->wire = (unsigned)(key & 7);
    field->value = 0;
    field->span = (struct span){start, start};
    if (field->number == 0 || (field->wire != VARINT && field->wire != FIXED64 &&
                               field->wire != DELIMITED && field->wire != FIXED32))
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: byte %zu: not a SentencePiece model", r->spm.path, start);
    if (field->wire == VARINT)
        return read_varint(r, in, &field->value);
    uint64_t length = field->wire == FIXED64 ? 8 : 4;
    if (field->wire == DELIMITED)
        SB_TRY(read_varint(r, in, &length));
    if (length > in->end - in->at)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: byte %zu: a field of %llu bytes is cut short", r->spm.path,
                start, (unsigned long long)length);
    const size_t size = (size_t)length;
    field->span = (struct span){in->at, in->at + size};
    for (size_t i = 0; field->wire == FIXED32 && i < 4; i++)
        field->value |= (uint64_t)(unsigned char)r->text[in->at + i] << 8 * i;
    in->at += size;
done:
    return rc;
}

static int32_t expect(const struct reader *r, const struct field *field, unsigned wire)
{
    return field->wire == wire ? SPECBATCH_OK
                               : bad(r, field->span.at, "a field has the wrong type");
}

/* ------------------------------------------------------------------------ messages */

static int32_t read_piece(struct reader *r, struct span in)
{
    struct span piece = {in.at, in.at};
    struct field field;
    uint64_t type = SB_SPM_NORMAL;
    uint32_t bits = 0;
    float score;
    int32_t rc = SPECBATCH_OK;

    while (in.at < in.end) {
        SB_TRY(read_field(r, &in, &field));
        if (field.number == 1) {
            SB_TRY(expect(r, &field, DELIMITED));
            piece = field.span;
        } else if (field.number == 2) {
            SB_TRY(expect(r, &field, FIXED32));
            bits = (uint32_t)field.value;
        } else if (field.number == 3) {
            SB_TRY(expect(r, &field, VARINT));
            type = field.value;
        }
    }
    memcpy(&score, &bits, sizeof score);
    if (type == SB_SPM_UNUSED)
        SB_FAIL(
            SPECBATCH_E_UNSUPPORTED,
            "%s: piece %zu: unused pieces are not supported; convert the model to tokenizer.json",
            r->spm.path, r->spm.n_pieces);
    SB_TRY(sb_spm_add(&r->spm, r->text + piece.at, piece.end - piece.at, type, score));
done:
    return rc;
}

static int32_t read_trainer(struct reader *r, struct span in)
{
    struct field field;
    int32_t rc = SPECBATCH_OK;

    while (in.at < in.end) {
        SB_TRY(read_field(r, &in, &field));
        if (field.number == 44) {
            SB_TRY(expect(r, &field, DELIMITED));
            const char *text = r->text + field.span.at;
            size_t n = field.span.end - field.span.at;
            if (sb_utf8_valid(text, n) < n)
                SB_TRY(bad(r, field.span.at, "the unknown surface is not valid UTF-8"));
            SB_TRY(sb_bytes_set(&r->spm.t->decoder.unknown, text, n));
            continue;
        }
        if (field.number != 3 && field.number != 24 && field.number != 35 && field.number != 41)
            continue;
        SB_TRY(expect(r, &field, VARINT));
        if (field.number == 3)
            r->model_type = field.value;
        else if (field.number == 24)
            r->suffix_space = field.value;
        else if (field.number == 35)
            r->spm.byte_fallback = field.value != 0;
        else
            r->spm.bos = field.value <= INT32_MAX ? (int32_t)field.value : -1;
    }
done:
    return rc;
}

static int32_t read_normalizer(struct reader *r, struct span in)
{
    struct field field;
    int32_t rc = SPECBATCH_OK;

    while (in.at < in.end) {
        SB_TRY(read_field(r, &in, &field));
        if (field.number < 2 || field.number > 5)
            continue;
        SB_TRY(expect(r, &field, field.number == 2 ? DELIMITED : VARINT));
        if (field.number == 2) {
            r->spm.charsmap = r->text + field.span.at;
            r->spm.n_charsmap = field.span.end - field.span.at;
        } else if (field.number == 3) {
            r->spm.dummy_prefix = field.value != 0;
        } else if (field.number == 4) {
            r->spm.squeeze = field.value != 0;
        } else {
            r->escape = field.value;
        }
    }
done:
    return rc;
}

static int32_t read_model(struct reader *r, struct span in)
{
    struct field field;
    int32_t rc = SPECBATCH_OK;

    while (in.at < in.end) {
        SB_TRY(read_field(r, &in, &field));
        if (field.number < 1 || field.number > 3)
            continue;
        SB_TRY(expect(r, &field, DELIMITED));
        if (field.number == 1)
            SB_TRY(read_piece(r, field.span));
        else if (field.number == 2)
            SB_TRY(read_trainer(r, field.span));
        else
            SB_TRY(read_normalizer(r, field.span));
    }
done:
    return rc;
}

static int32_t check_supported(const struct reader *r)
{
    const char *what = r->model_type != MODEL_BPE ? "a model type other than BPE"
                       : !r->escape               ? "escape_whitespaces = false"
                       : r->suffix_space          ? "treat_whitespace_as_suffix"
                                                  : NULL;

    if (what)
        return sb_fail(SPECBATCH_E_UNSUPPORTED,
                       "%s: %s is not supported; convert the model to tokenizer.json", r->spm.path,
                       what);
    return SPECBATCH_OK;
}

int32_t sb_tokenizer_read_spm(struct sb_tokenizer *t, const char *text, size_t length,
                              const char *path)
{
    struct reader r = {
        .spm = {.t = t, .path = path, .dummy_prefix = 1, .squeeze = 1, .bos = 1, .eos = -1},
        .text = text,
        .model_type = 1,
        .escape = 1};
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_bytes_set(&t->decoder.unknown, " \xE2\x81\x87 ", 5));
    SB_TRY(read_model(&r, (struct span){0, length}));
    SB_TRY(check_supported(&r));
    SB_TRY(sb_spm_build(&r.spm));
done:
    sb_spm_clear(&r.spm);
    return rc;
}
