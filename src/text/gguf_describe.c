/*
 * A tokenizer as the metadata of a GGUF file: the way back from gguf_vocab.c, which lists the keys.
 * It goes out from the tables of the tokenizer, whatever kind of file they were read from, and asks
 * of them what the reader of such metadata would make. Two kinds can be described.
 *
 *   "gpt2"    byte-level BPE, if its steps are those of a pre-tokenizer that has a name
 *   "llama"   SentencePiece, from a tokenizer.model or, as Llama 2 has it, from a tokenizer.json
 *
 * Scores of "llama" are not in the tables, but only their order matters: a better score means an
 * earlier merge. So the pieces get the scores -1, -2 and so on, in the order of their merges.
 *
 * A description may lose something, since there are no keys for all that a tokenizer.json can say.
 * The caller is told what it loses first, and can put the tokenizer.json itself beside it.
 * Rejected: always to put it there, which makes files some MiB larger and helps other programs
 * nothing.
 */
#include <stdio.h>
#include <string.h>

#include "gguf_pre.h"
#include "gguf_write.h"
#include "pipeline.h"
#include "sort.h"
#include "spm.h"
#include "status.h"

struct writer {
    struct sb_gguf_out *out;
    const struct sb_tokenizer *t;
    struct sb_gguf_text *text;
    struct sb_merge *merges; /* in their order */
    size_t n_merges;
};

static void lose(struct writer *w, int lost, const char *what)
{
    if (lost && !w->text->lost)
        w->text->lost = what;
}

static void put_name(struct writer *w, const char *key, const char *name)
{
    sb_gguf_put_text(w->out, key, name, strlen(name));
}

/* -------------------------------------------------------------------------------- merges */

static int by_rank(const void *a, const void *b)
{
    const struct sb_merge *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->pair > y->pair) - (x->pair < y->pair);
}

static int32_t sort_merges(struct writer *w)
{
    const struct sb_bpe *bpe = &w->t->bpe;
    int32_t rc = SPECBATCH_OK;

    if (bpe->n_used == 0)
        goto done;
    SB_NEW(w->merges, sb_alloc_raw(&w->t->mem, bpe->n_used, sizeof *w->merges), "the merges");
    for (size_t i = 0; i < bpe->n_slots; i++)
        if (bpe->slots[i].pair != UINT64_MAX)
            w->merges[w->n_merges++] = bpe->slots[i];
    sb_sort(w->merges, w->n_merges, sizeof *w->merges, by_rank);
done:
    return rc;
}

static void put_merges(struct writer *w)
{
    const struct sb_vocab *vocab = &w->t->vocab;

    sb_gguf_put_array(w->out, "tokenizer.ggml.merges", SB_GGUF_STRING, w->n_merges);
    for (size_t i = 0; i < w->n_merges; i++) {
        const struct sb_piece *left = &vocab->pieces[w->merges[i].pair >> 32];
        const struct sb_piece *right = &vocab->pieces[(uint32_t)w->merges[i].pair];
        sb_gguf_put_number(w->out, (uint64_t)left->length + 1 + right->length, 8);
        sb_gguf_put_bytes(w->out, sb_vocab_text(vocab, left), left->length);
        sb_gguf_put_bytes(w->out, " ", 1);
        sb_gguf_put_bytes(w->out, sb_vocab_text(vocab, right), right->length);
    }
}

/* The scores that merge in this order, by id. Merges of one rank have one score, and so have those
 * of one piece. */
static int32_t put_scores(struct writer *w)
{
    const size_t n = (size_t)w->text->vocab;
    float *scores = NULL, score = 0.0f;
    uint32_t bits;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(scores, sb_alloc(&w->t->mem, n, sizeof *scores), "the scores");
    for (size_t i = w->n_merges; i > 0; i--) { /* so that a piece has the score of its first */
        const struct sb_merge *merge = &w->merges[i - 1];
        if (i < w->n_merges && merge->rank != merge[1].rank && merge->id != merge[1].id)
            score += 1.0f;
        scores[merge->id] = score - (float)w->n_merges;
    }
    sb_gguf_put_array(w->out, "tokenizer.ggml.scores", SB_GGUF_F32, n);
    for (size_t id = 0; id < n; id++) {
        memcpy(&bits, &scores[id], sizeof bits);
        sb_gguf_put_number(w->out, bits, 4);
    }
done:
    sb_free(&w->t->mem, scores);
    return rc;
}

/* -------------------------------------------------------------------------------- pieces */

/* The type of a piece, as both kinds of files have it. piece is NULL where the id has none. */
static uint32_t type_of(const struct writer *w, const struct sb_piece *piece, int32_t id)
{
    const int bytes = !w->t->decoder.byte_level && w->t->bpe.byte_fallback;

    if (!piece || piece->length == 0)
        return SB_SPM_UNUSED;
    if (id == w->t->bpe.unk && !w->t->decoder.byte_level)
        return SB_SPM_UNKNOWN;
    if (piece->flags & SB_PIECE_SPECIAL)
        return SB_SPM_CONTROL;
    if (piece->flags & (SB_PIECE_USER | SB_PIECE_ADDED))
        return SB_SPM_USER_DEFINED;
    if (bytes && sb_byte_of_spelling(sb_vocab_text(&w->t->vocab, piece), piece->length) >= 0)
        return SB_SPM_BYTE;
    return SB_SPM_NORMAL;
}

static void put_pieces(struct writer *w)
{
    const struct sb_vocab *vocab = &w->t->vocab;
    char unused[32];

    sb_gguf_put_array(w->out, "tokenizer.ggml.tokens", SB_GGUF_STRING, (uint64_t)w->text->vocab);
    for (int32_t id = 0; id < w->text->vocab; id++) {
        const struct sb_piece *piece = sb_vocab_piece(vocab, id);
        snprintf(unused, sizeof unused, "[PAD%d]", (int)id);
        if (type_of(w, piece, id) == SB_SPM_UNUSED)
            sb_gguf_put_string(w->out, unused, strlen(unused));
        else
            sb_gguf_put_string(w->out, sb_vocab_text(vocab, piece), piece->length);
    }
    sb_gguf_put_array(w->out, "tokenizer.ggml.token_type", SB_GGUF_I32, (uint64_t)w->text->vocab);
    for (int32_t id = 0; id < w->text->vocab; id++)
        sb_gguf_put_number(w->out, type_of(w, sb_vocab_piece(vocab, id), id), 4);
}

/* What a description has no keys for, and tokenizer.json has. */
static void lose_added(struct writer *w)
{
    for (size_t i = 0; i < w->t->added.n; i++) {
        const struct sb_added_token *token = &w->t->added.tokens[i];
        lose(w, token->single_word || token->lstrip || token->rstrip,
             "how added tokens treat the text beside them");
        lose(w, token->normalized && w->t->normalizers.n > 0,
             "that added tokens are looked for in normalised text");
    }
}

/* The ids around a text: one before it, if that is not in the pre-tokenizer, and one behind it. */
static void put_template(struct writer *w, int has_prefix)
{
    const struct sb_ids *prefix = &w->t->prefix, *suffix = &w->t->suffix;
    const int bos = !has_prefix && prefix->n == 1;
    const int eos = suffix->n == 1 && suffix->data[0] == w->text->eos;

    lose(w, (!has_prefix && prefix->n > 1) || suffix->n != (size_t)eos, "the tokens around a text");
    if (bos)
        w->text->bos = prefix->data[0];
    sb_gguf_put_bool(w->out, "tokenizer.ggml.add_bos_token", bos);
    sb_gguf_put_bool(w->out, "tokenizer.ggml.add_eos_token", eos);
}

/* ------------------------------------------------------------------------ byte-level BPE */

/* Whether these are the steps that a named pre-tokenizer stands for. A tokenizer does not keep the
 * text of a pattern, so none is recognised, and tokenizer.json goes into the file. */
static int has_steps(const struct sb_tokenizer *t, const struct sb_gguf_pre *pre)
{
    const struct sb_step *step = t->normalizers.at, *split = t->splitters.at;

    return !pre->pattern && t->normalizers.n == (size_t)pre->nfc &&
           (!pre->nfc || (step->kind == SB_STEP_NORMAL && step->form == (SB_NFC | SB_AS_OF_9))) &&
           t->splitters.n == 2 && split[0].kind == pre->words && split[0].digits == pre->digits &&
           split[1].kind == SB_STEP_BYTES;
}

/* Whether the tokens that a pre-tokenizer begins texts with are those of the template. */
static int has_prefix(const struct sb_tokenizer *t, const struct sb_gguf_pre *pre)
{
    size_t n = 0;

    for (; n < 2 && pre->prefix[n]; n++)
        if (n >= t->prefix.n ||
            t->prefix.data[n] != sb_vocab_find(&t->vocab, pre->prefix[n], strlen(pre->prefix[n])))
            return 0;
    return n > 0 ? t->prefix.n == n : t->prefix.n <= 1;
}

/* The pre-tokenizer, or NULL; if there is one, one whose other properties fit too is preferred. */
static const struct sb_gguf_pre *find_pre(const struct sb_tokenizer *t)
{
    const struct sb_gguf_pre *pre, *found = NULL;
    int best = -1;

    for (size_t i = 0; (pre = sb_gguf_pre_at(i)) != NULL; i++) {
        const int fit = 2 * has_prefix(t, pre) + (pre->ignore_merges == t->bpe.ignore_merges);
        if (has_steps(t, pre) && fit > best) {
            found = pre;
            best = fit;
        }
    }
    return found;
}

static int32_t describe_bpe(struct writer *w)
{
    const struct sb_tokenizer *t = w->t;
    const struct sb_gguf_pre *pre = find_pre(t);
    int32_t rc = SPECBATCH_OK;

    lose(w, !pre, "a pre-tokenizer that has no name in GGUF files");
    if (!pre)
        goto done;
    w->text->described = 1;
    lose(w, t->bpe.ignore_merges != pre->ignore_merges, "whether words that are pieces are merged");
    lose(w, t->bpe.unk != -1 || t->bpe.byte_fallback, "what becomes of unknown characters");
    lose(w, t->decoder.before.n + t->decoder.after.n + t->decoder.strip_count > 0, "its decoder");
    lose_added(w);
    put_name(w, "tokenizer.ggml.model", "gpt2");
    put_name(w, "tokenizer.ggml.pre", pre->name);
    put_pieces(w);
    SB_TRY(sort_merges(w));
    put_merges(w);
    put_template(w, pre->prefix[0] && has_prefix(t, pre));
done:
    return rc;
}

/* ------------------------------------------------------------------------- SentencePiece */

/* What a SentencePiece model does with blanks before anything is merged. */
struct blanks {
    int prefix, squeeze;            /* one is put before a text; runs of them become one */
    const struct sb_step *charsmap; /* or NULL */
};

static int is_mark(const struct sb_bytes *bytes)
{
    return bytes->n == 3 && memcmp(bytes->data, SB_SPACE_MARK, 3) == 0;
}

static int is_blank(const struct sb_bytes *bytes)
{
    return bytes->n == 1 && bytes->data[0] == ' ';
}

/* 0: its steps are others. */
static int find_blanks(struct blanks *blanks, const struct sb_tokenizer *t)
{
    const struct sb_steps *normal = &t->normalizers, *split = &t->splitters;
    const struct sb_step *last = normal->n ? &normal->at[normal->n - 1] : NULL;

    *blanks = (struct blanks){.prefix = normal->n == 2};
    if (last && split->n == 0 && last->kind == SB_STEP_CHARSMAP) {
        *blanks = (struct blanks){last->prepend != SB_PREPEND_NEVER, last->squeeze, last};
        return normal->n == 1;
    }
    if (last)
        return split->n == 0 && last->kind == SB_STEP_REPLACE && is_blank(&last->from) &&
               is_mark(&last->to) &&
               (normal->n == 1 || (normal->n == 2 && normal->at->kind == SB_STEP_PREPEND &&
                                   is_mark(&normal->at->to)));
    blanks->prefix = split->at->prepend != SB_PREPEND_NEVER;
    return split->n > 0 && split->at->kind == SB_STEP_METASPACE && is_mark(&split->at->to);
}

/* The map of a step as a file has it: the length of its trie, the trie, the replacements. */
static void put_charsmap(struct writer *w, const struct sb_step *step)
{
    const size_t n = step->from.n;

    sb_gguf_put_array(w->out, "tokenizer.ggml.precompiled_charsmap", SB_GGUF_U8,
                      4 + n + step->to.n);
    sb_gguf_put_number(w->out, n, 4);
    sb_gguf_put_bytes(w->out, step->from.data, n);
    sb_gguf_put_bytes(w->out, step->to.data, step->to.n);
}

/* A tokenizer.json may say more than a SentencePiece model, so it is never described in full. */
static void lose_of_spm(struct writer *w)
{
    const struct sb_tokenizer *t = w->t;
    int user = 0;

    for (size_t id = 0; id < t->vocab.n; id++)
        user |= (t->vocab.pieces[id].flags & SB_PIECE_USER) != 0;
    lose(w, t->decoder.bytes != SB_BYTES_EACH, "what only a tokenizer.json can say");
    lose(w, t->splitters.at->prepend == SB_PREPEND_FIRST, "that added tokens have no blank behind");
    lose(w, user, "that user-defined pieces are looked for in normalised text");
    lose(w, t->decoder.unknown.n != 5 || memcmp(t->decoder.unknown.data, " \xE2\x81\x87 ", 5) != 0,
         "the text of unknown characters");
}

static int32_t describe_spm(struct writer *w)
{
    const struct sb_tokenizer *t = w->t;
    struct blanks blanks;
    const int known = find_blanks(&blanks, t) && t->bpe.unk >= 0;
    int32_t rc = SPECBATCH_OK;

    lose(w, !known, "steps that are not those of SentencePiece");
    if (!known)
        goto done;
    w->text->described = 1;
    lose_of_spm(w);
    put_name(w, "tokenizer.ggml.model", "llama");
    put_name(w, "tokenizer.ggml.pre", "default");
    put_pieces(w);
    SB_TRY(sort_merges(w));
    SB_TRY(put_scores(w));
    sb_gguf_put_u32(w->out, "tokenizer.ggml.unknown_token_id", (uint32_t)t->bpe.unk);
    sb_gguf_put_bool(w->out, "tokenizer.ggml.add_space_prefix", blanks.prefix);
    sb_gguf_put_bool(w->out, "tokenizer.ggml.remove_extra_whitespaces", blanks.squeeze);
    if (blanks.charsmap && blanks.charsmap->from.n > 0)
        put_charsmap(w, blanks.charsmap);
    put_template(w, 0);
done:
    return rc;
}

int32_t sb_tokenizer_describe(struct sb_gguf_out *out, const struct sb_tokenizer *t,
                              struct sb_gguf_text *text)
{
    struct writer w = {.out = out, .t = t, .text = text};
    int32_t rc = SPECBATCH_OK;

    text->described = 0;
    text->lost = NULL;
    if (t->vocab.n > (size_t)text->vocab)
        lose(&w, 1, "pieces for which the model has no embedding");
    else if (t->decoder.byte_level)
        rc = describe_bpe(&w);
    else
        rc = describe_spm(&w);
    sb_free(&t->mem, w.merges);
    return rc;
}
