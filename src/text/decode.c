/*
 * Ids to text, one id at a time:
 *
 *   piece -> steps `before` -> bytes are put together -> steps `after` -> `strip` -> text
 *
 * To decode many ids at once is to feed them to a stream and to end it, so the two ways cannot
 * disagree.
 *
 * Text that is not certain yet is held back. The first bytes of a character wait for the others.
 * With Hugging Face's ByteFallback, a whole run of <0xXX> tokens waits for its end: a single bad
 * byte turns every byte of the run into U+FFFD, so no character of it is certain before.
 * SentencePiece decides each character by itself.
 *
 *   held   [ bytes before this push | bytes of this push ]
 *            0        from            keep                 n
 *   text of the bytes [0, from) has been made, that of [from, n) has not
 *
 * A push never overwrites the first `keep` bytes, which were held when it began. So when a push
 * fails, it is enough to put the numbers back, and the stream is as before. Copying the held bytes
 * at every push would serve the same purpose and cost the length of the run each time.
 *
 * A token that ends a run of bytes is on its way through the steps `before` when the run's text
 * goes through the steps `after`, so the two lists have buffers of their own.
 */
#include <string.h>

#include "pipeline.h"
#include "status.h"
#include "utf8.h"

/* Where a stream is. */
struct state {
    struct sb_bytes held; /* see above */
    size_t from, keep;
    size_t n_before, n_after; /* tokens that went through either list of steps */
    size_t stripped;          /* how often `strip` has been removed */
    int begun;                /* some text has come out */
    int replaced;             /* each of the bytes that were held last became a U+FFFD, */
    size_t lost;              /* or so many of them were removed as `strip` */
    int strip_over;           /* `strip` is not removed any more */
};

/* One call that decodes some ids. */
struct decoding {
    const struct sb_tokenizer *t;
    uint32_t flags;
    struct state *state;
    struct sb_bytes *before, *after; /* [2], what either list of steps writes */
    struct sb_bytes *out;            /* the text is appended here */
};

/* ------------------------------------------------------------------ the last stages */

/* Appends finished text, without what Strip removes at the very beginning. */
static int32_t emit(struct decoding *d, const char *text, size_t n)
{
    const struct sb_decoder *decoder = &d->t->decoder;
    const struct sb_bytes *strip = &decoder->strip;
    struct state *s = d->state;

    while (n > 0 && !s->strip_over && s->stripped < decoder->strip_count &&
           sb_bytes_begin(strip, text, n)) {
        text += strip->n;
        n -= strip->n;
        s->stripped++;
    }
    s->strip_over |= n > 0;
    s->begun |= n > 0;
    return sb_bytes_add(d->out, text, n);
}

/* The first n held bytes have become text. */
static void release(struct state *s, size_t n)
{
    s->from += n;
    if (s->from == s->held.n && s->from > s->keep)
        s->from = s->held.n = s->keep;
}

/*
 * Makes text of the held bytes as far as it is certain. `ended`: no more bytes can follow. `each`:
 * every byte of an ill-formed sequence becomes U+FFFD (SentencePiece); otherwise the sequence
 * becomes a single one, as is usual.
 */
static int32_t emit_held(struct decoding *d, int ended, int each)
{
    struct state *s = d->state;
    size_t n = s->held.n - s->from, at = 0, good = 0;
    int32_t rc = SPECBATCH_OK;
    uint32_t cp;

    if (n == 0)
        return rc;
    const char *bytes = s->held.data + s->from;
    s->replaced = 0;
    while (at < n) {
        int step = sb_utf8_step(bytes + at, n - at, &cp);
        if (step > 0) {
            at += (size_t)step;
            continue;
        }
        if (step == 0 && !ended)
            break;
        SB_TRY(emit(d, bytes + good, at - good));
        SB_TRY(emit(d, SB_REPLACEMENT, 3));
        s->replaced |= each && at == 0;
        good = at += each ? 1 : step == 0 ? n - at : (size_t)-step;
    }
    SB_TRY(emit(d, bytes + good, at - good));
    release(s, at);
done:
    return rc;
}

/* ---------------------------------------------------------------- steps on one token */

static int32_t strip_token(const struct sb_step *step, const char *text, size_t n,
                           struct sb_bytes *out)
{
    const struct sb_bytes *cut = &step->from;

    for (size_t i = 0; i < step->start && sb_bytes_begin(cut, text, n); i++) {
        text += cut->n;
        n -= cut->n;
    }
    for (size_t i = 0;
         i < step->stop && n >= cut->n && memcmp(text + n - cut->n, cut->data, cut->n) == 0; i++)
        n -= cut->n;
    return sb_bytes_add(out, text, n);
}

/* Undoes Metaspace: marks become spaces. In the first token they vanish, if Metaspace puts one
 * before a text. */
static int32_t metaspace_token(const struct sb_step *step, size_t index, const char *text, size_t n,
                               struct sb_bytes *out)
{
    struct sb_step marks = {.kind = SB_STEP_REPLACE, .from = step->from, .to = step->to};

    if (index == 0 && step->prepend != SB_PREPEND_NEVER)
        marks.to.n = 0;
    return sb_replace(&marks, text, n, out);
}

/* Runs a list of steps over the text of one token, whose number is `index`. The result lies in one
 * of the two buffers, or where the text was. */
static int32_t run_steps(const struct sb_steps *steps, struct sb_bytes buffer[2], size_t index,
                         const char **text, size_t *n)
{
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < steps->n; i++) {
        const struct sb_step *step = &steps->at[i];
        struct sb_bytes *out = &buffer[i % 2];
        out->n = 0;
        if (step->kind == SB_STEP_REPLACE)
            SB_TRY(sb_replace(step, *text, *n, out));
        else if (step->kind == SB_STEP_METASPACE)
            SB_TRY(metaspace_token(step, index, *text, *n, out));
        else
            SB_TRY(strip_token(step, *text, *n, out));
        *text = out->data;
        *n = out->n;
    }
done:
    return rc;
}

/* Sends the text of a token through the steps `after`, and appends it. */
static int32_t emit_token(struct decoding *d, const char *text, size_t n)
{
    int32_t rc = SPECBATCH_OK;
    size_t index = d->state->n_after++;

    if (d->t->decoder.spaced && index > 0)
        SB_TRY(emit(d, " ", 1));
    SB_TRY(run_steps(&d->t->decoder.after, d->after, index, &text, &n));
    SB_TRY(emit(d, text, n));
done:
    return rc;
}

/* ---------------------------------------------------------------- bytes put together */

/* A run of <0xXX> has ended. It becomes text if all of it is valid, else a U+FFFD for each byte. */
static int32_t end_run(struct decoding *d)
{
    struct state *s = d->state;
    const size_t stripped = s->stripped;
    size_t n = s->held.n - s->from;
    int32_t rc = SPECBATCH_OK;

    if (n == 0)
        return rc;
    s->replaced = sb_utf8_valid(s->held.data + s->from, n) < n;
    if (!s->replaced)
        SB_TRY(emit_token(d, s->held.data + s->from, n));
    else
        for (size_t i = 0; i < n; i++)
            SB_TRY(emit_token(d, SB_REPLACEMENT, 3));
    s->lost = (s->stripped - stripped) * d->t->decoder.strip.n;
    release(s, n);
done:
    return rc;
}

/* Adds the bytes that a piece spells in byte-level characters. A piece with any other character is
 * taken as it is written. */
static int32_t add_byte_level(struct decoding *d, const char *text, size_t n)
{
    struct sb_bytes *held = &d->state->held;
    size_t before = held->n, at = 0;
    int32_t rc = SPECBATCH_OK;
    uint32_t cp = 0;

    while (at < n) {
        int step = sb_utf8_step(text + at, n - at, &cp), byte = step > 0 ? sb_byte_of_char(cp) : -1;
        char c = (char)byte;
        if (byte < 0) {
            held->n = before;
            SB_TRY(sb_bytes_add(held, text, n));
            break;
        }
        SB_TRY(sb_bytes_add(held, &c, 1));
        at += (size_t)step;
    }
    SB_TRY(emit_held(d, 0, 0));
done:
    return rc;
}

/* Decodes a piece of a SentencePiece model. */
static int32_t add_spm_piece(struct decoding *d, const struct sb_piece *piece, const char *text,
                             size_t n)
{
    const struct sb_decoder *decoder = &d->t->decoder;
    int32_t rc = SPECBATCH_OK;
    int dropped = 0;

    if (piece->flags & SB_PIECE_BYTE) {
        char c = (char)sb_byte_of_spelling(text, n);
        SB_TRY(sb_bytes_add(&d->state->held, &c, 1));
        return emit_held(d, 0, 1);
    }
    SB_TRY(emit_held(d, 1, 1));
    if (piece->flags & SB_PIECE_UNKNOWN)
        return emit(d, decoder->unknown.data, decoder->unknown.n);
    if (decoder->dummy_prefix && !d->state->begun && n >= 3 &&
        memcmp(text, SB_SPACE_MARK, 3) == 0) {
        text += 3;
        n -= 3;
        dropped = !decoder->squeeze;
    }
    SB_TRY(run_steps(&decoder->before, d->before, 0, &text, &n));
    SB_TRY(emit(d, text, n));
    d->state->begun |= dropped;
done:
    return rc;
}

/* Decodes one id. Ids that have no piece are passed over. */
static int32_t feed(struct decoding *d, int32_t id)
{
    const struct sb_decoder *decoder = &d->t->decoder;
    const struct sb_piece *piece = sb_vocab_piece(&d->t->vocab, id);
    int32_t rc = SPECBATCH_OK;
    int byte;

    if (!piece)
        return SPECBATCH_OK;
    /* To Hugging Face a special token that is left out was never there. To SentencePiece the bytes
     * before it and behind it still belong to different characters. */
    if (piece->flags & SB_PIECE_SPECIAL && !(d->flags & SPECBATCH_TEXT_KEEP_SPECIAL))
        return decoder->bytes == SB_BYTES_EACH ? emit_held(d, 1, 1) : SPECBATCH_OK;
    const char *text = sb_vocab_text(&d->t->vocab, piece);
    size_t n = piece->length;
    if (decoder->bytes == SB_BYTES_EACH)
        return add_spm_piece(d, piece, text, n);
    SB_TRY(run_steps(&decoder->before, d->before, d->state->n_before++, &text, &n));
    if (decoder->byte_level)
        return add_byte_level(d, text, n);
    if (decoder->bytes == SB_BYTES_RUN && (byte = sb_byte_of_spelling(text, n)) >= 0) {
        char c = (char)byte;
        return sb_bytes_add(&d->state->held, &c, 1);
    }
    SB_TRY(end_run(d));
    SB_TRY(emit_token(d, text, n));
done:
    return rc;
}

/* Ends the text: what is held becomes text now. */
static int32_t finish(struct decoding *d)
{
    const struct sb_decoder *decoder = &d->t->decoder;

    if (decoder->bytes == SB_BYTES_RUN)
        return end_run(d);
    return emit_held(d, 1, decoder->bytes == SB_BYTES_EACH);
}

/* Decodes ids, and ends the text where `end` says so. */
static int32_t run(struct decoding *d, const int32_t *ids, size_t n, int end)
{
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < n; i++)
        SB_TRY(feed(d, ids[i]));
    if (end)
        SB_TRY(finish(d));
    SB_TRY(sb_bytes_add(d->out, "", 0));
done:
    return rc;
}

/* The buffers of both lists of steps. */
struct buffers {
    struct sb_bytes before[2], after[2];
};

static void set_memory(struct buffers *buffers, const struct sb_mem *mem)
{
    for (size_t i = 0; i < 2; i++)
        buffers->before[i].mem = buffers->after[i].mem = mem;
}

static void clear(struct buffers *buffers)
{
    for (size_t i = 0; i < 2; i++) {
        sb_bytes_clear(&buffers->before[i]);
        sb_bytes_clear(&buffers->after[i]);
    }
}

int32_t sb_tokenizer_decode(const struct sb_tokenizer *t, const int32_t *ids, size_t n,
                            uint32_t flags, struct sb_bytes *text)
{
    struct state state = {.held = {.mem = &t->mem}};
    struct buffers buffers = {0};
    struct decoding d = {t, flags, &state, buffers.before, buffers.after, text};
    size_t before = text->n;
    int32_t rc;

    set_memory(&buffers, &t->mem);
    rc = run(&d, ids, n, 1);
    if (rc) {
        text->n = before;
        if (text->data)
            text->data[before] = '\0';
    }
    sb_bytes_clear(&state.held);
    clear(&buffers);
    return rc;
}

/* -------------------------------------------------------------------------- streams */

struct sb_stream {
    struct sb_mem mem;
    const struct sb_tokenizer *t;
    uint32_t flags;
    struct state state;
    struct buffers buffers;
    struct sb_bytes text;
};

int32_t sb_stream_create(struct sb_stream **out, const struct sb_mem *mem,
                         const struct sb_tokenizer *t, uint32_t flags)
{
    struct sb_stream *s;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(s, sb_alloc(mem, 1, sizeof *s), "a text stream");
    s->mem = *mem;
    s->t = t;
    s->flags = flags;
    s->state.held.mem = s->text.mem = &s->mem;
    set_memory(&s->buffers, &s->mem);
    *out = s;
done:
    return rc;
}

/*
 * The bounds of what one id needs, by its longest way through the stages:
 *
 *   piece       at most the longest one, made longer by the steps `before`
 *   held        that, behind the up to three bytes of a character; a run has a byte for each id
 *   text        what is held or the piece, and the unknown token's text or a space; made longer by
 *               the steps `after`, and by a U+FFFD of three bytes for each byte
 */
int32_t sb_stream_reserve(struct sb_stream *s, size_t n_ids)
{
    const struct sb_decoder *decoder = &s->t->decoder;
    const size_t after = sb_steps_growth(&decoder->after);
    size_t piece, held, text;
    int32_t rc = SPECBATCH_OK;

    if (!sb_mul_size(s->t->vocab.longest, sb_steps_growth(&decoder->before), &piece) ||
        !sb_add_size(piece, 3 + (decoder->bytes == SB_BYTES_RUN ? n_ids : 0), &held) ||
        !sb_add_size(piece, held, &text) || !sb_add_size(text, decoder->unknown.n + 1, &text) ||
        !sb_mul_size(text, 3 * after, &text))
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for text");
    for (size_t i = 0; i < 2; i++) {
        if (decoder->before.n > i)
            SB_TRY(sb_bytes_reserve(&s->buffers.before[i], piece));
        if (decoder->after.n > i)
            SB_TRY(sb_bytes_reserve(&s->buffers.after[i], text));
    }
    SB_TRY(sb_bytes_reserve(&s->state.held, held));
    SB_TRY(sb_bytes_reserve(&s->text, text));
done:
    return rc;
}

size_t sb_stream_bytes(const struct sb_stream *s)
{
    size_t n = sizeof *s + s->state.held.capacity + s->text.capacity;

    for (size_t i = 0; i < 2; i++)
        n += s->buffers.before[i].capacity + s->buffers.after[i].capacity;
    return n;
}

size_t sb_stream_held(const struct sb_stream *s)
{
    return s->state.held.n;
}

size_t sb_stream_place(const struct sb_stream *s, size_t n)
{
    const size_t at = s->state.replaced ? 3 * n : n;

    return at > s->state.lost ? at - s->state.lost : 0;
}

const char *sb_stream_cut(struct sb_stream *s, size_t n)
{
    s->text.data[n] = '\0';
    return s->text.data;
}

/* Takes another state's numbers over. The array of held bytes stays, as a push may have moved
 * it. */
static void put_back(struct state *s, const struct state *other)
{
    struct sb_bytes held = s->held;

    held.n = other->held.n;
    *s = *other;
    s->held = held;
}

static int32_t push(struct sb_stream *s, const int32_t *ids, size_t n, int end, const char **text,
                    size_t *length)
{
    static const struct state begin;
    struct state before = s->state;
    struct decoding d = {s->t, s->flags, &s->state, s->buffers.before, s->buffers.after, &s->text};
    int32_t rc = SPECBATCH_OK;
    size_t left;

    s->text.n = 0;
    s->state.keep = s->state.held.n;
    SB_TRY(run(&d, ids, n, end));
    if (end) { /* what comes now begins another text */
        const struct state last = s->state;
        put_back(&s->state, &begin);
        s->state.replaced = last.replaced;
        s->state.lost = last.lost;
    }
    left = s->state.held.n - s->state.from;
    if (s->state.from > 0)
        memmove(s->state.held.data, s->state.held.data + s->state.from, left);
    s->state.held.n = left;
    s->state.from = 0;
    *text = s->text.data;
    if (length)
        *length = s->text.n;
done:
    if (rc)
        put_back(&s->state, &before);
    return rc;
}

int32_t sb_stream_push(struct sb_stream *s, const int32_t *ids, size_t n, const char **text,
                       size_t *length)
{
    return push(s, ids, n, n == 0, text, length);
}

int32_t sb_stream_end(struct sb_stream *s, const int32_t *ids, size_t n, const char **text,
                      size_t *length)
{
    return push(s, ids, n, 1, text, length);
}

void sb_stream_free(struct sb_stream *s)
{
    if (!s)
        return;
    struct sb_mem mem = s->mem;
    sb_bytes_clear(&s->state.held);
    sb_bytes_clear(&s->text);
    clear(&s->buffers);
    sb_free(&mem, s);
}
