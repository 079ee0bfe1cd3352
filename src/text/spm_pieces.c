/*
 * Fills the tables of a tokenizer from the pieces of a SentencePiece model.
 *
 * SentencePiece merges the pair whose concatenation has the best score. That becomes the table of
 * merges that bpe.c wants: each way to split a piece into two pieces is a merge, whose rank is that
 * of the piece's score. To look concatenations up while encoding, as SentencePiece does, would need
 * a second merge loop.
 *
 * User-defined pieces are found in the normalised text, longest first, before anything is merged,
 * as added tokens are.
 */
#include "spm.h"

#include <string.h>

#include "status.h"
#include "utf8.h"

enum {
    PIECE_MAX = 512, /* bytes; finding a piece's splits takes the square of its length */
    /* Merges that a model has at most: those of small ones, and so many for each piece. That of
     * Llama has two for each; if all parts of long pieces were pieces, there were hundreds. */
    MERGES_SMALL = 1 << 16,
    MERGES_PER_PIECE = 16
};

/* ---------------------------------------------------------------------------- pieces */

static int32_t keep_score(struct sb_spm *spm, float score)
{
    float *grown = sb_grow(&spm->t->mem, spm->scores, &spm->capacity, spm->n_pieces + 1,
                           sizeof *grown);

    if (!grown)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for %s", spm->path);
    spm->scores = grown;
    spm->scores[spm->n_pieces++] = score;
    return SPECBATCH_OK;
}

static int32_t bad(const struct sb_spm *spm, const char *reason)
{
    return sb_fail(SPECBATCH_E_FORMAT, "%s: piece %zu: %s", spm->path, spm->n_pieces, reason);
}

int32_t sb_spm_add(struct sb_spm *spm, const char *text, size_t n, uint64_t type, float score)
{
    static const uint32_t flags[] = {[SB_SPM_NORMAL] = SB_PIECE_BASE,
                                     [SB_SPM_UNKNOWN] = SB_PIECE_BASE | SB_PIECE_UNKNOWN,
                                     [SB_SPM_CONTROL] = SB_PIECE_BASE | SB_PIECE_SPECIAL,
                                     [SB_SPM_USER_DEFINED] = SB_PIECE_BASE | SB_PIECE_USER,
                                     [SB_SPM_BYTE] = SB_PIECE_BASE | SB_PIECE_BYTE};
    struct sb_tokenizer *t = spm->t;
    int32_t rc = SPECBATCH_OK;

    if (type < SB_SPM_NORMAL || type > SB_SPM_BYTE)
        SB_TRY(bad(spm, "unknown type"));
    if (type == SB_SPM_UNUSED)
        return keep_score(spm, 0.0f);
    if (n == 0 || n > PIECE_MAX || sb_utf8_valid(text, n) < n)
        SB_TRY(bad(spm, "empty, longer than 512 bytes or not valid UTF-8"));
    if (score != score)
        SB_TRY(bad(spm, "its score is not a number"));
    if (type == SB_SPM_BYTE && sb_byte_of_spelling(text, n) < 0)
        SB_TRY(bad(spm, "a byte piece is not spelled <0xXX>"));
    if (type == SB_SPM_UNKNOWN && t->bpe.unk >= 0)
        SB_TRY(bad(spm, "a second unknown piece"));
    if (type == SB_SPM_UNKNOWN)
        t->bpe.unk = (int32_t)spm->n_pieces;
    SB_TRY(sb_vocab_add(&t->vocab, spm->path, text, n, (int64_t)spm->n_pieces, flags[type]));
    SB_TRY(keep_score(spm, score));
done:
    return rc;
}

/* ---------------------------------------------------------------------------- merges */

/* A rank that falls as the score rises: the bits of an IEEE number, turned so that they are ordered
 * as integers. Equal scores have equal ranks, so the leftmost pair is merged first. */
static uint32_t rank_of(float score)
{
    uint32_t bits;

    score = score == 0.0f ? 0.0f : score; /* -0 is 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : 0x7FFFFFFFu - bits;
}

/* Whether an id is that of an ordinary piece. */
static int is_normal(const struct sb_vocab *vocab, int32_t id)
{
    return id >= 0 && vocab->pieces[id].flags == SB_PIECE_BASE;
}

/* Whether an id is that of a piece that a longer piece may have among its characters. A
 * user-defined one never merges, so a piece that is spelled with it never comes about, but the file
 * may have it. */
static int is_character(const struct sb_vocab *vocab, int32_t id)
{
    return id >= 0 && (vocab->pieces[id].flags & ~(uint32_t)SB_PIECE_USER) == SB_PIECE_BASE;
}

/* The id of an ordinary piece, -1 for everything else. */
static int32_t find_normal(const struct sb_vocab *vocab, const char *text, size_t n)
{
    int32_t id = sb_vocab_find(vocab, text, n);
    return is_normal(vocab, id) ? id : -1;
}

/* Adds a merge for each way to split an ordinary piece into two. */
static int32_t add_merges(struct sb_spm *spm)
{
    const struct sb_tokenizer *t = spm->t;
    const struct sb_vocab *vocab = &t->vocab;
    const size_t most = MERGES_SMALL + MERGES_PER_PIECE * vocab->n;
    int32_t rc = SPECBATCH_OK;
    uint32_t cp = 0;

    for (int32_t id = 0; (size_t)id < t->vocab.n; id++) {
        if (t->bpe.n_used > most)
            SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                    "%s: its pieces can be merged in more than %zu ways; those of Llama have two "
                    "for each piece",
                    spm->path, most);
        const struct sb_piece *piece = &vocab->pieces[id];
        const char *text = sb_vocab_text(vocab, piece);
        size_t n = piece->length, at, step;
        if (piece->flags != SB_PIECE_BASE || (size_t)sb_utf8_step(text, n, &cp) == n)
            continue;
        for (at = 0; at < n; at += step) {
            int32_t left = at ? find_normal(vocab, text, at) : -1, right;
            step = (size_t)sb_utf8_step(text + at, n - at, &cp);
            if (!is_character(vocab, sb_bpe_char(&spm->t->bpe, cp)))
                SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                        "%s: piece %d \"%.40s\" has a character that is no piece itself", spm->path,
                        (int)id, text);
            if (left >= 0 && (right = find_normal(vocab, text + at, n - at)) >= 0)
                SB_TRY(sb_bpe_add(&spm->t->bpe, &spm->t->mem, left, right, rank_of(spm->scores[id]),
                                  id));
        }
    }
done:
    return rc;
}

/*
 * Makes added tokens of the pieces that are to be found in a text. Control pieces and the unknown
 * piece are found in the text as it came, as with the tokenizer.json that Hugging Face makes of
 * such a file. SentencePiece itself takes them for letters, so that the </s> of a chat would not
 * end it; SPECBATCH_TEXT_PLAIN_SPECIAL gives those ids. User-defined pieces are found in normalised
 * text, which SentencePiece does too, or as it came: those of a GGUF file are tokens that were
 * added to the model later.
 */
static int32_t add_found_pieces(const struct sb_spm *spm)
{
    struct sb_tokenizer *t = spm->t;
    struct sb_added_token token = {.content = {.mem = &t->mem}};
    int32_t rc = SPECBATCH_OK;

    for (size_t id = 0; id < t->vocab.n; id++) {
        const struct sb_piece *piece = &t->vocab.pieces[id];
        int user = (piece->flags & SB_PIECE_USER) != 0;
        if (!user && !(piece->flags & (SB_PIECE_SPECIAL | SB_PIECE_UNKNOWN)))
            continue;
        token = (struct sb_added_token){.content = {.mem = &t->mem},
                                        .id = (int32_t)id,
                                        .normalized = user && !spm->user_raw,
                                        .special = !user};
        SB_TRY(sb_bytes_set(&token.content, sb_vocab_text(&t->vocab, piece), piece->length));
        SB_TRY(sb_added_add(&t->added, &t->mem, &token));
        token.content.data = NULL; /* the table has it now */
    }
    sb_added_sort(&t->added);
done:
    sb_bytes_clear(&token.content);
    return rc;
}

/* ------------------------------------------------------------------------ the pipeline */

static int32_t add_step(struct sb_steps *steps, enum sb_step_kind kind, const char *from,
                        const char *to)
{
    struct sb_step *step;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_step_add(&step, steps, kind, "tokenizer.model"));
    SB_TRY(sb_bytes_set(&step->from, from, strlen(from)));
    SB_TRY(sb_bytes_set(&step->to, to, strlen(to)));
done:
    return rc;
}

/* Adds the normaliser: the two steps that do for most files, or the whole of SentencePiece's. */
static int32_t add_normalizers(struct sb_spm *spm)
{
    struct sb_steps *steps = &spm->t->normalizers;
    struct sb_step *step;
    int32_t rc = SPECBATCH_OK;

    if (spm->n_charsmap == 0 && !spm->squeeze) {
        if (spm->dummy_prefix)
            SB_TRY(add_step(steps, SB_STEP_PREPEND, "", SB_SPACE_MARK));
        return add_step(steps, SB_STEP_REPLACE, " ", SB_SPACE_MARK);
    }
    SB_TRY(sb_step_add(&step, steps, SB_STEP_CHARSMAP, spm->path));
    step->prepend = spm->dummy_prefix ? SB_PREPEND_ALWAYS : SB_PREPEND_NEVER;
    step->squeeze = spm->squeeze;
    step->kept = &spm->t->added;
    if (spm->n_charsmap > 0)
        SB_TRY(sb_charsmap_set(step, spm->charsmap, spm->n_charsmap, spm->path));
done:
    return rc;
}

/* Whether an id is that of a control piece. */
static int is_control(const struct sb_vocab *vocab, int32_t id)
{
    const struct sb_piece *piece = sb_vocab_piece(vocab, id);

    return piece && piece->flags & SB_PIECE_SPECIAL;
}

int32_t sb_spm_build(struct sb_spm *spm)
{
    struct sb_tokenizer *t = spm->t;
    int32_t rc = SPECBATCH_OK;

    if (spm->n_pieces == 0)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: no pieces", spm->path);
    if (t->bpe.unk < 0)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: no unknown piece", spm->path);
    t->bpe.fuse_unk = 1;
    t->bpe.byte_fallback = spm->byte_fallback;
    SB_TRY(sb_bpe_index(&t->bpe, &t->mem, &t->vocab));
    SB_TRY(add_merges(spm));
    SB_TRY(add_found_pieces(spm));
    for (size_t i = 0; t->bpe.byte_fallback && i < 256; i++)
        if (t->bpe.byte_ids[i] < 0)
            SB_FAIL(SPECBATCH_E_FORMAT, "%s: byte_fallback, but no piece <0x%02X>", spm->path,
                    (unsigned)i);
    SB_TRY(add_normalizers(spm));
    SB_TRY(add_step(&t->decoder.before, SB_STEP_REPLACE, SB_SPACE_MARK, " "));
    t->decoder.bytes = SB_BYTES_EACH;
    t->decoder.dummy_prefix = spm->dummy_prefix || spm->squeeze;
    t->decoder.squeeze = spm->squeeze;
    if (is_control(&t->vocab, spm->bos))
        SB_TRY(sb_ids_add(&t->prefix, spm->bos));
    if (is_control(&t->vocab, spm->eos))
        SB_TRY(sb_ids_add(&t->suffix, spm->eos));
done:
    return rc;
}

int32_t sb_spm_set_prefix(struct sb_tokenizer *t, int prefix, const char *path)
{
    struct sb_steps *splitters = &t->splitters;
    int32_t rc = SPECBATCH_OK;

    if (t->normalizers.at[0].kind == SB_STEP_CHARSMAP)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: legacy = false or add_prefix_space = false, for a tokenizer.model with a "
                "normalizer, is not supported; convert the model to tokenizer.json",
                path);
    sb_steps_clear(&t->normalizers);
    SB_TRY(add_step(splitters, SB_STEP_METASPACE, " ", SB_SPACE_MARK));
    splitters->at[splitters->n - 1].prepend = prefix ? SB_PREPEND_FIRST : SB_PREPEND_NEVER;
    t->decoder.dummy_prefix = prefix;
done:
    return rc;
}

void sb_spm_clear(struct sb_spm *spm)
{
    sb_free(&spm->t->mem, spm->scores);
}
