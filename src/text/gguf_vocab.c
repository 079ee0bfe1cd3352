/*
 * Tokenizers of GGUF files: the vocabulary in the metadata, into the tables of a tokenizer.
 *
 *   tokenizer.ggml.model        "gpt2": byte-level BPE; "llama": SentencePiece
 *   tokenizer.ggml.pre          of "gpt2": how a text is cut into words, by a name
 *   tokenizer.ggml.tokens       the pieces by id, with
 *   tokenizer.ggml.token_type   what kind of piece each is, and
 *   tokenizer.ggml.scores       of "llama": which merge comes first
 *   tokenizer.ggml.merges       of "gpt2": the same
 *
 * A name of a pre-tokenizer that is not known (gguf_pre.h) is refused: to guess would silently give
 * other ids. The way out is the model's own tokenizer.json, which is taken when it lies beside the
 * file, or is in it (tokenizer.huggingface.json). It is also the more exact of the two, since the
 * conversion drops some properties of added tokens.
 */
#include <stdio.h>
#include <string.h>

#include "chat.h"
#include "file.h"
#include "gguf.h"
#include "gguf_pre.h"
#include "hf_fields.h"
#include "spm.h"
#include "status.h"
#include "utf8.h"

enum { FILE_MAX = 1 << 28 }; /* bytes of a tokenizer.json */

struct reader {
    struct sb_tokenizer *t;
    const struct sb_gguf *gguf;
    const char *path; /* begins messages */
    struct sb_gguf_value tokens, types, scores;
};

/* A piece as the file has it. */
struct token {
    const char *text;
    size_t n;
    int64_t type; /* SB_SPM_* */
    double score;
};

static int32_t malformed(const struct reader *r, const char *key, const char *reason)
{
    return sb_fail(SPECBATCH_E_FORMAT, "%s: tokenizer.ggml.%s: %s", r->path, key, reason);
}

/* A value of the tokenizer's; 0 when it is not there. */
static int get(const struct reader *r, const char *name, struct sb_gguf_value *value)
{
    char key[80];

    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    return sb_gguf_get(r->gguf, key, value);
}

/* Reads a flag; where it is missing, *flag stays as it is. */
static int32_t read_flag(const struct reader *r, const char *name, int *flag)
{
    struct sb_gguf_value value;

    if (get(r, name, &value) && !sb_gguf_bool(&value, flag))
        return malformed(r, name, "not true or false");
    return SPECBATCH_OK;
}

/* Reads the id of a token; where it is missing, *id stays as it is. */
static int32_t read_id(const struct reader *r, const char *name, int32_t *id)
{
    struct sb_gguf_value value;
    int64_t number;

    if (!get(r, name, &value))
        return SPECBATCH_OK;
    if (!sb_gguf_int(&value, &number) || number < 0 || (uint64_t)number >= r->tokens.count)
        return malformed(r, name, "not the id of a token");
    *id = (int32_t)number;
    return SPECBATCH_OK;
}

/* Reads the id that begins or ends a text, if the flag beside it says that one does. */
static int32_t read_added_id(const struct reader *r, const char *flag_name, int flag,
                             const char *name, int32_t *id)
{
    int32_t rc = SPECBATCH_OK;

    *id = -1;
    SB_TRY(read_flag(r, flag_name, &flag));
    if (flag)
        SB_TRY(read_id(r, name, id));
done:
    return rc;
}

/* ------------------------------------------------------------------------------ pieces */

/* Finds the lists of pieces, of which the second and the third may be missing. */
static int32_t find_tokens(struct reader *r)
{
    int32_t rc = SPECBATCH_OK;

    if (!get(r, "tokens", &r->tokens) || r->tokens.type != SB_GGUF_ARRAY ||
        r->tokens.of != SB_GGUF_STRING)
        SB_TRY(malformed(r, "tokens", "not a list of strings"));
    if (r->tokens.count > SB_ID_LIMIT)
        SB_TRY(malformed(r, "tokens", "too many"));
    if (get(r, "token_type", &r->types) && r->types.count != r->tokens.count)
        SB_TRY(malformed(r, "token_type", "not one for each token"));
    if (get(r, "scores", &r->scores) && r->scores.count != r->tokens.count)
        SB_TRY(malformed(r, "scores", "not one for each token"));
done:
    return rc;
}

/* Takes the next piece off the lists: 1, 0 at their end, or a failure. */
static int32_t next_token(struct reader *r, struct token *token)
{
    struct sb_gguf_value text, value;

    *token = (struct token){.type = SB_SPM_NORMAL};
    if (!sb_gguf_take(&r->tokens, &text))
        return 0;
    token->text = sb_gguf_string(&text);
    token->n = (size_t)text.count;
    if (sb_utf8_valid(token->text, token->n) < token->n)
        return malformed(r, "tokens", "not valid UTF-8");
    if (r->types.at && (!sb_gguf_take(&r->types, &value) || !sb_gguf_int(&value, &token->type)))
        return malformed(r, "token_type", "not a list of integers");
    if (r->scores.at &&
        (!sb_gguf_take(&r->scores, &value) || !sb_gguf_double(&value, &token->score)))
        return malformed(r, "scores", "not a list of numbers");
    return 1;
}

/* -------------------------------------------------------------------- byte-level BPE */

/* A piece that is found in a text before it is cut into words. */
static int32_t add_found(struct reader *r, const struct token *token, int32_t id)
{
    const int special = token->type == SB_SPM_CONTROL;
    const struct sb_hf l = {.t = r->t, .path = r->path};
    struct sb_added_token added = {.content = {.mem = &r->t->mem}, .id = id, .special = special};
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_vocab_add(&r->t->vocab, r->path, token->text, token->n, id,
                        SB_PIECE_ADDED | (special ? SB_PIECE_SPECIAL : 0)));
    SB_TRY(sb_bytes_set(&added.content, token->text, token->n));
    SB_TRY(sb_hf_check_searched(&l, "tokenizer.ggml.tokens", &added.content));
    SB_TRY(sb_added_add(&r->t->added, &r->t->mem, &added));
    return SPECBATCH_OK;
done:
    sb_bytes_clear(&added.content);
    return rc;
}

static int32_t read_bpe_tokens(struct reader *r)
{
    struct token token;
    int32_t rc, more;

    SB_TRY(sb_vocab_reserve(&r->t->vocab, (size_t)r->tokens.count));
    for (int32_t id = 0; (more = next_token(r, &token)) > 0; id++) {
        if (token.type == SB_SPM_UNUSED || token.n == 0)
            continue;
        if (token.type == SB_SPM_NORMAL)
            SB_TRY(sb_vocab_add(&r->t->vocab, r->path, token.text, token.n, id, SB_PIECE_BASE));
        else if (token.type == SB_SPM_CONTROL || token.type == SB_SPM_USER_DEFINED)
            SB_TRY(add_found(r, &token, id));
        else
            SB_TRY(malformed(r, "token_type", "neither of 1, 3, 4 and 5"));
    }
    SB_TRY(more);
    sb_added_sort(&r->t->added);
done:
    return rc;
}

/* Without merges, each character of a text is a piece. */
static int32_t read_merges(struct reader *r)
{
    struct sb_bytes joined = {.mem = &r->t->mem};
    struct sb_gguf_value merges = {.count = 0}, merge;
    struct sb_half half[2];
    char where[48];
    int32_t rc = SPECBATCH_OK;

    if (get(r, "merges", &merges) && (merges.of != SB_GGUF_STRING || merges.count > UINT32_MAX))
        SB_TRY(malformed(r, "merges", "not a list of strings"));
    SB_TRY(sb_bpe_reserve(&r->t->bpe, &r->t->mem, (size_t)merges.count));
    for (size_t i = 0; sb_gguf_take(&merges, &merge); i++) {
        snprintf(where, sizeof where, "tokenizer.ggml.merges[%zu]", i);
        if (!sb_merge_cut(half, sb_gguf_string(&merge), (size_t)merge.count))
            SB_FAIL(SPECBATCH_E_FORMAT, "%s: %s is not two pieces", r->path, where);
        SB_TRY(sb_merge_add(r->t, half, i, &joined, r->path, where));
    }
done:
    sb_bytes_clear(&joined);
    return rc;
}

static int32_t find_pre(const struct sb_gguf_pre **pre, const struct reader *r)
{
    struct sb_gguf_value value = {.type = SB_GGUF_TYPES};
    const char *name = get(r, "pre", &value) ? sb_gguf_string(&value) : NULL;

    for (size_t i = 0; (*pre = sb_gguf_pre_at(i)) != NULL; i++)
        if (sb_gguf_is(&value, (*pre)->name))
            return SPECBATCH_OK;
    return sb_fail(SPECBATCH_E_UNSUPPORTED,
                   "%s: tokenizer.ggml.pre \"%.*s\" is not supported; put the model's "
                   "tokenizer.json beside the file",
                   r->path, name && value.count < 40 ? (int)value.count : 0, name ? name : "");
}

static int32_t add_steps(struct reader *r, const struct sb_gguf_pre *pre)
{
    struct sb_tokenizer *t = r->t;
    struct sb_properties properties = {.mem = &t->mem};
    struct sb_step *step;
    int32_t rc = SPECBATCH_OK;

    if (pre->nfc) {
        SB_TRY(sb_step_add(&step, &t->normalizers, SB_STEP_NORMAL, r->path));
        step->form = SB_NFC | SB_AS_OF_9;
    }
    SB_TRY(sb_step_add(&step, &t->splitters, pre->words, r->path));
    step->digits = pre->digits;
    if (pre->pattern)
        SB_TRY(sb_split_compile(step, &properties, pre->pattern, strlen(pre->pattern), r->path));
    SB_TRY(sb_step_add(&step, &t->splitters, SB_STEP_BYTES, r->path));
    t->decoder.byte_level = 1;
    t->decoder.fused = 1;
done:
    sb_properties_clear(&properties);
    return rc;
}

/* The ids around every text. */
static int32_t add_template(struct reader *r, const struct sb_gguf_pre *pre)
{
    int32_t id, bos, eos;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_added_id(r, "add_bos_token", pre->bos, "bos_token_id", &bos));
    SB_TRY(read_added_id(r, "add_eos_token", 0, "eos_token_id", &eos));
    for (size_t i = 0; i < 2 && pre->prefix[i]; i++) {
        bos = -1;
        id = sb_vocab_find(&r->t->vocab, pre->prefix[i], strlen(pre->prefix[i]));
        if (id >= 0)
            SB_TRY(sb_ids_add(&r->t->prefix, id));
    }
    if (sb_vocab_piece(&r->t->vocab, bos))
        SB_TRY(sb_ids_add(&r->t->prefix, bos));
    if (sb_vocab_piece(&r->t->vocab, eos))
        SB_TRY(sb_ids_add(&r->t->suffix, eos));
done:
    return rc;
}

static int32_t read_bpe(struct reader *r)
{
    const struct sb_gguf_pre *pre = NULL;
    const struct reader start = *r; /* next_token moves the lists */
    int32_t rc = SPECBATCH_OK;

    SB_TRY(find_pre(&pre, r));
    SB_TRY(read_bpe_tokens(r));
    *r = start;
    SB_TRY(read_merges(r));
    r->t->bpe.ignore_merges = pre->ignore_merges;
    SB_TRY(sb_bpe_index(&r->t->bpe, &r->t->mem, &r->t->vocab));
    SB_TRY(add_steps(r, pre));
    SB_TRY(add_template(r, pre));
done:
    return rc;
}

/* ---------------------------------------------------------------------- SentencePiece */

/* Adds the pieces. Files that were made from a tokenizer.json have one score for all, by which
 * nothing can be merged in order. */
static int32_t read_spm_tokens(struct reader *r, struct sb_spm *spm, int32_t unknown)
{
    struct token token;
    double score = 0;
    size_t longer = 0, different = 0;
    uint32_t cp;
    int32_t rc, more;

    for (int32_t id = 0; (more = next_token(r, &token)) > 0; id++) {
        if (id == unknown)
            token.type = SB_SPM_UNKNOWN;
        else if (token.type == SB_SPM_NORMAL &&
                 (size_t)sb_utf8_step(token.text, token.n, &cp) < token.n) {
            different += longer++ > 0 && token.score != score;
            score = token.score;
        }
        spm->byte_fallback |= token.type == SB_SPM_BYTE;
        SB_TRY(sb_spm_add(spm, token.text, token.n, (uint64_t)token.type, (float)token.score));
    }
    SB_TRY(more);
    if (longer > 1 && different == 0)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: tokenizer.ggml.scores has one score for all, so the order of merges is not "
                "in the file; put the model's tokenizer.json beside it",
                r->path);
done:
    return rc;
}

static int32_t read_spm(struct reader *r)
{
    struct sb_spm spm = {.t = r->t, .path = r->path, .dummy_prefix = 1, .user_raw = 1};
    const struct reader start = *r; /* next_token moves the lists */
    struct sb_gguf_value map;
    int32_t unknown = -1;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_id(r, "unknown_token_id", &unknown));
    SB_TRY(read_spm_tokens(r, &spm, unknown));
    *r = start;
    SB_TRY(read_flag(r, "add_space_prefix", &spm.dummy_prefix));
    SB_TRY(read_flag(r, "remove_extra_whitespaces", &spm.squeeze));
    SB_TRY(read_added_id(r, "add_bos_token", 1, "bos_token_id", &spm.bos));
    SB_TRY(read_added_id(r, "add_eos_token", 0, "eos_token_id", &spm.eos));
    if (get(r, "precompiled_charsmap", &map)) {
        if (map.type != SB_GGUF_ARRAY || (map.of != SB_GGUF_U8 && map.of != SB_GGUF_I8))
            SB_TRY(malformed(r, "precompiled_charsmap", "not a list of bytes"));
        spm.charsmap = (const char *)map.at;
        spm.n_charsmap = (size_t)map.count;
    }
    SB_TRY(sb_bytes_set(&r->t->decoder.unknown, " \xE2\x81\x87 ", 5));
    SB_TRY(sb_spm_build(&spm));
done:
    sb_spm_clear(&spm);
    return rc;
}

/* --------------------------------------------------------------------- tokenizer.json */

/* Whether a tokenizer.json belongs to the file: the ordinary pieces of the file are spelled as it
 * has them. */
static int32_t check_same(struct reader *r)
{
    struct token token;
    int32_t rc = SPECBATCH_OK, more;

    if (!get(r, "tokens", &r->tokens))
        goto done;
    SB_TRY(find_tokens(r));
    for (int32_t id = 0; (more = next_token(r, &token)) > 0; id++) {
        const struct sb_piece *piece = sb_vocab_piece(&r->t->vocab, id);
        if (token.type != SB_SPM_NORMAL || token.n == 0)
            continue;
        if (!piece || piece->length != token.n ||
            memcmp(sb_vocab_text(&r->t->vocab, piece), token.text, token.n) != 0)
            SB_FAIL(
                SPECBATCH_E_FORMAT,
                "tokenizer.json is not that of %s: piece %d is \"%.40s\" in it, and \"%.*s\" in "
                "the file",
                r->path, (int)id, piece ? sb_vocab_text(&r->t->vocab, piece) : "",
                token.n < 40 ? (int)token.n : 40, token.text);
    }
    SB_TRY(more);
done:
    return rc;
}

/* Reads the tokenizer.json in the folder of the file, and with it what the other files there say of
 * it, as in the folder of a checkpoint. E_NOT_FOUND: there is no tokenizer.json, and then the other
 * files are of something else. */
static int32_t read_folder(struct reader *r, const char *path)
{
    char dir[1024], name[1024], *text = NULL;
    size_t length = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_file_folder(dir, path));
    SB_TRY(sb_file_join(name, dir, "tokenizer.json"));
    rc = sb_file_load(&text, &length, &r->t->mem, name, FILE_MAX);
    if (rc == SPECBATCH_E_NOT_FOUND)
        goto done;
    SB_TRY(rc);
    SB_TRY(sb_tokenizer_read_hf(r->t, text, length, "tokenizer.json"));
    SB_TRY(check_same(r));
    SB_TRY(sb_tokenizer_read_beside(r->t, dir, NULL, 1));
done:
    sb_free(&r->t->mem, text);
    return rc;
}

/* Reads the tokenizer.json beside the file, or the one in it. E_NOT_FOUND: there is neither. */
static int32_t read_json(struct reader *r, const char *path)
{
    struct sb_gguf_value inside;
    int32_t rc = read_folder(r, path);

    if (rc != SPECBATCH_E_NOT_FOUND ||
        !sb_gguf_get(r->gguf, SB_GGUF_HUGGING_FACE "json", &inside) || !sb_gguf_string(&inside))
        return rc;
    rc = SPECBATCH_OK;
    SB_TRY(sb_tokenizer_read_hf(r->t, sb_gguf_string(&inside), (size_t)inside.count,
                                "tokenizer.huggingface.json"));
    SB_TRY(check_same(r));
    SB_TRY(sb_tokenizer_read_beside(r->t, NULL, r->gguf, 1));
done:
    return rc;
}

/* --------------------------------------------------------------------------- the whole */

int32_t sb_tokenizer_load_gguf(struct sb_tokenizer **out, const struct sb_mem *mem,
                               const char *path, const struct sb_gguf *gguf)
{
    struct reader r = {.gguf = gguf, .path = sb_gguf_file(gguf, 0)->name};
    struct sb_gguf_value model;
    int32_t rc = SPECBATCH_OK;

    *out = NULL;
    SB_NEW(r.t, sb_tokenizer_create(mem), r.path);
    rc = read_json(&r, path);
    if (rc == SPECBATCH_E_NOT_FOUND) {
        rc = SPECBATCH_OK;
        if (!get(&r, "model", &model) || sb_gguf_is(&model, "none") ||
            sb_gguf_is(&model, "no_vocab"))
            goto done;
        SB_TRY(find_tokens(&r));
        if (sb_gguf_is(&model, "gpt2"))
            SB_TRY(read_bpe(&r));
        else if (sb_gguf_is(&model, "llama"))
            SB_TRY(read_spm(&r));
        else
            SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                    "%s: tokenizer.ggml.model is not supported unless it is gpt2 or llama; put the "
                    "model's tokenizer.json beside the file",
                    r.path);
    }
    SB_TRY(rc);
    *out = r.t;
    r.t = NULL;
done:
    sb_tokenizer_free(r.t);
    return rc;
}

int32_t sb_chat_detect_gguf(int32_t *format, const struct sb_mem *mem, const struct sb_gguf *gguf)
{
    struct sb_gguf_value value;

    *format = SB_CHAT_NONE;
    if (!sb_gguf_get(gguf, "tokenizer.chat_template", &value) || !sb_gguf_string(&value))
        return SPECBATCH_OK;
    return sb_chat_recognise(format, mem, sb_gguf_string(&value), (size_t)value.count);
}
