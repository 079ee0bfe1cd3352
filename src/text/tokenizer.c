/*
 * Loading, encoding (pipeline.h has the order of the stages) and looking pieces up.
 *
 * Nothing writes to a tokenizer after it is loaded. What a call writes is in its `struct sb_work`,
 * which lives on the stack of that call. Buffers that were kept in the tokenizer would save a few
 * allocations a call and cost a lock.
 */
#include <string.h>

#include "checked.h"
#include "file.h"
#include "pipeline.h"
#include "status.h"
#include "utf8.h"

enum { FILE_MAX = 1 << 28 }; /* bytes of a tokenizer's file */

static void own_steps(struct sb_steps *steps, const struct sb_mem *mem)
{
    for (size_t i = 0; i < SB_STEPS_MAX; i++)
        steps->at[i].from.mem = steps->at[i].to.mem = mem;
}

struct sb_tokenizer *sb_tokenizer_create(const struct sb_mem *mem)
{
    struct sb_tokenizer *t = sb_alloc(mem, 1, sizeof *t);

    if (!t)
        return NULL;
    t->mem = *mem;
    t->vocab.text.mem = t->prefix.mem = t->suffix.mem = &t->mem;
    t->decoder.strip.mem = t->decoder.unknown.mem = &t->mem;
    own_steps(&t->normalizers, &t->mem);
    own_steps(&t->splitters, &t->mem);
    own_steps(&t->decoder.before, &t->mem);
    own_steps(&t->decoder.after, &t->mem);
    t->vocab.key = sb_hash_draw(&t->vocab);
    sb_hash_pairs_draw(&t->bpe.hash, &t->bpe);
    t->bpe.unk = -1;
    return t;
}

int32_t sb_tokenizer_load(struct sb_tokenizer **out, const struct sb_mem *mem, const char *dir)
{
    static const struct {
        const char *name;
        int32_t (*read)(struct sb_tokenizer *, const char *, size_t, const char *);
    } formats[] = {{"tokenizer.json", sb_tokenizer_read_hf},
                   {"tokenizer.model", sb_tokenizer_read_spm}};
    struct sb_tokenizer *t = NULL;
    char *text = NULL, path[1024];
    int32_t rc = SPECBATCH_E_NOT_FOUND;
    size_t length = 0, i;

    for (i = 0; i < 2 && rc == SPECBATCH_E_NOT_FOUND; i++) {
        SB_TRY(sb_file_join(path, dir, formats[i].name));
        rc = sb_file_load(&text, &length, mem, path, FILE_MAX);
    }
    if (rc == SPECBATCH_E_NOT_FOUND) {
        *out = NULL;
        return SPECBATCH_OK;
    }
    SB_TRY(rc);
    SB_NEW(t, sb_tokenizer_create(mem), formats[i - 1].name);
    SB_TRY(formats[i - 1].read(t, text, length, formats[i - 1].name));
    SB_TRY(sb_tokenizer_read_beside(t, dir, NULL, i == 1));
    *out = t;
    t = NULL;
done:
    sb_tokenizer_free(t);
    sb_free(mem, text);
    return rc;
}

void sb_tokenizer_free(struct sb_tokenizer *t)
{
    if (!t)
        return;
    struct sb_mem mem = t->mem;
    sb_vocab_clear(&t->vocab);
    sb_bpe_clear(&t->bpe, &mem);
    sb_added_clear(&t->added, &mem);
    sb_steps_clear(&t->normalizers);
    sb_steps_clear(&t->splitters);
    sb_steps_clear(&t->decoder.before);
    sb_steps_clear(&t->decoder.after);
    sb_bytes_clear(&t->decoder.strip);
    sb_bytes_clear(&t->decoder.unknown);
    sb_ids_clear(&t->prefix);
    sb_ids_clear(&t->suffix);
    sb_free(&mem, t);
}

/* ------------------------------------------------------------------------ encoding */

struct encoder {
    const struct sb_tokenizer *t;
    const char *input; /* the whole text: a segment that begins where it does is the first */
    struct sb_ids *ids;
    struct sb_work work;
    const struct sb_guard *guard; /* of the input, or NULL */
    struct sb_guard normal_guard; /* of the stretch of normalised text that is being cut */
    struct sb_range normal_range;
    int first; /* the next stretch of normalised text begins the whole input */
};

static int32_t encode_word(void *context, const char *word, size_t n)
{
    struct encoder *e = context;
    return sb_bpe_word(&e->t->bpe, &e->t->vocab, &e->work, word, n, e->ids);
}

static int32_t encode_normal(void *context, const char *text, size_t n, int32_t id)
{
    struct encoder *e = context;
    int32_t rc;

    if (id >= 0)
        rc = sb_ids_add(e->ids, id);
    else
        rc = sb_split(&e->t->splitters, 0, &e->work, text, n, e->first, encode_word, e);
    e->first = 0;
    return rc;
}

/*
 * The guard of a normalised text. A normaliser that changes a text moves its bytes, and where a
 * range has gone to is not known. So if there was one, the whole text becomes one, and no special
 * token is found in it: a message is never parsed, but one of the marks around it may be lost.
 * That takes a file whose special tokens are looked for in normalised text, as in tokenizer.json of
 * the first Llama; its marks are found behind a space only in any case.
 */
static const struct sb_guard *guard_normal(struct encoder *e, const char *raw, size_t n_raw,
                                           const char *normal, size_t n_normal)
{
    int inside;

    if (!e->guard || normal == raw || n_normal == 0)
        return e->guard;
    const size_t outside = sb_guard_stretch(e->guard, raw, n_raw, &inside);
    e->normal_range = (struct sb_range){0, n_normal};
    e->normal_guard = (struct sb_guard){.text = normal,
                                        .ranges = &e->normal_range,
                                        .n_ranges = inside || outside < n_raw,
                                        .markers = e->guard->markers};
    return &e->normal_guard;
}

static int32_t encode_raw(void *context, const char *text, size_t n, int32_t id)
{
    struct encoder *e = context;
    const struct sb_guard *guard;
    const char *normal;
    size_t n_normal;
    int32_t rc = SPECBATCH_OK;

    if (id >= 0)
        return sb_ids_add(e->ids, id);
    e->first = text == e->input;
    SB_TRY(sb_normalize(&e->t->normalizers, &e->work, text, n, &normal, &n_normal));
    guard = guard_normal(e, text, n, normal, n_normal);
    SB_TRY(sb_added_split(&e->t->added, 1, guard, normal, n_normal, encode_normal, e));
done:
    return rc;
}

static int32_t add_all(struct sb_ids *ids, const struct sb_ids *more)
{
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < more->n; i++)
        SB_TRY(sb_ids_add(ids, more->data[i]));
done:
    return rc;
}

int32_t sb_tokenizer_encode(const struct sb_tokenizer *t, const char *text, size_t length,
                            uint32_t flags, struct sb_ids *ids)
{
    const struct sb_range whole = {0, length};
    const struct sb_guard guard = {.text = text, .ranges = &whole, .n_ranges = length > 0};

    return sb_tokenizer_encode_guarded(t, text, length, flags,
                                       flags & SPECBATCH_TEXT_PLAIN_SPECIAL ? &guard : NULL, ids);
}

int32_t sb_tokenizer_encode_guarded(const struct sb_tokenizer *t, const char *text, size_t length,
                                    uint32_t flags, const struct sb_guard *guard,
                                    struct sb_ids *ids)
{
    struct encoder e = {.t = t, .input = text, .ids = ids, .guard = guard};
    size_t before = ids->n, valid = sb_utf8_valid(text, length);
    int32_t rc = SPECBATCH_OK;

    if (valid < length)
        return sb_fail(SPECBATCH_E_INVALID, "text: byte %zu: invalid UTF-8", valid);
    sb_work_init(&e.work, &t->mem);
    if (!(flags & SPECBATCH_TEXT_NO_BOS))
        SB_TRY(add_all(ids, &t->prefix));
    SB_TRY(sb_added_split(&t->added, 0, guard, text, length, encode_raw, &e));
    if (!(flags & SPECBATCH_TEXT_NO_BOS))
        SB_TRY(add_all(ids, &t->suffix));
done:
    if (rc)
        ids->n = before;
    sb_work_clear(&e.work);
    return rc;
}

/* ----------------------------------------------------------------------- looking up */

const char *sb_tokenizer_piece(const struct sb_tokenizer *t, int32_t id, size_t *length)
{
    const struct sb_piece *piece = sb_vocab_piece(&t->vocab, id);

    if (!piece)
        return NULL;
    if (length)
        *length = piece->length;
    return sb_vocab_text(&t->vocab, piece);
}

int32_t sb_tokenizer_same_base(const struct sb_tokenizer *target, const struct sb_tokenizer *draft)
{
    size_t n = target->vocab.n < draft->vocab.n ? target->vocab.n : draft->vocab.n;

    for (size_t id = 0; id < n; id++) {
        const struct sb_piece *a = &target->vocab.pieces[id], *b = &draft->vocab.pieces[id];
        const char *text_a = sb_vocab_text(&target->vocab, a),
                   *text_b = sb_vocab_text(&draft->vocab, b);
        if (!(a->flags & b->flags & SB_PIECE_BASE))
            continue;
        if (a->length != b->length || memcmp(text_a, text_b, a->length) != 0)
            return sb_fail(SPECBATCH_E_VOCAB,
                           "token %zu is \"%.60s\" for the target and \"%.60s\" for the draft", id,
                           text_a, text_b);
    }
    return SPECBATCH_OK;
}

/* A piece is 8 bytes and its text: its id and its length, little-endian. A special or added token
 * may be listed in the vocabulary too: tokenizer.json does that, and a GGUF file of it does not
 * tell. So only pieces that are ordinary in both count. */
void sb_tokenizer_digest(const struct sb_tokenizer *t, int32_t n_ids, char text[SB_DIGEST_TEXT])
{
    const uint32_t ordinary = SB_PIECE_BASE | SB_PIECE_BYTE;
    struct sb_digest digest;

    sb_digest_begin(&digest);
    for (size_t id = 0; id < t->vocab.n && id < (size_t)n_ids; id++) {
        const struct sb_piece *piece = &t->vocab.pieces[id];
        unsigned char head[8];
        if (!(piece->flags & SB_PIECE_BASE) || piece->flags & ~ordinary)
            continue;
        sb_put_number(sb_put_number(head, (int32_t)id), (int32_t)piece->length);
        sb_digest_add(&digest, head, sizeof head);
        sb_digest_add(&digest, sb_vocab_text(&t->vocab, piece), piece->length);
    }
    sb_digest_end(&digest, text);
}
