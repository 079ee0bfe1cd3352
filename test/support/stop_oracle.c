/* Where stop strings end an answer, found the long way; see stop_oracle.h. */
#include "support/stop_oracle.h"

#include <string.h>

#include "status.h"
#include "support/trace.h"

static int is_inside_character(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* The end of the character at `at`. */
static size_t behind(const struct whole_answer *whole, size_t at)
{
    do
        at++;
    while (at < whole->length && is_inside_character(whole->text[at]));
    return at < whole->length ? at : whole->length;
}

/* ------------------------------------------------------------------ ends of tokens */

/* Where token i ends, if the text of the ids up to it is no beginning of the whole text: inside the
 * character in which the two part. In a run of byte tokens (Hugging Face's ByteFallback) all of the
 * run reads differently until it is whole, so there the tokens before it tell where it is. */
static size_t torn_end(const struct whole_answer *whole, int32_t i, const char *text, size_t n)
{
    const size_t before = i > 0 ? whole->ends[i - 1] : 0;
    size_t at = 0;

    if (whole->tokenizer->decoder.bytes == SB_BYTES_RUN) {
        const struct sb_piece *piece = sb_vocab_piece(&whole->tokenizer->vocab, whole->ids[i]);
        return !piece || piece->flags & SB_PIECE_SPECIAL ? before : before + 1;
    }
    while (at < n && at < whole->length && text[at] == whole->text[at])
        at++;
    while (at > 0 && is_inside_character(whole->text[at]))
        at--;
    return behind(whole, at);
}

/* In a run that was no text, each byte has become a U+FFFD, and each of them counts three. */
static void widen_runs(struct whole_answer *whole)
{
    for (int32_t i = 0; i < whole->n; i++) {
        const size_t before = i > 0 ? whole->ends[i - 1] : 0;
        if (whole->ends[i] == before + 1 && before + 3 <= whole->length &&
            memcmp(whole->text + before, SB_REPLACEMENT, 3) == 0)
            whole->ends[i] = before + 3;
    }
}

int32_t stop_oracle_read(struct whole_answer *whole, const struct sb_tokenizer *tokenizer)
{
    struct sb_bytes text = {.mem = &tokenizer->mem};
    int32_t rc = SPECBATCH_OK;

    whole->tokenizer = tokenizer;
    SB_TRY(sb_tokenizer_decode(tokenizer, whole->ids, (size_t)whole->n, 0, &text));
    if (text.n >= sizeof whole->text)
        SB_FAIL(SPECBATCH_E_INTERNAL, "a text of %zu bytes", text.n);
    memcpy(whole->text, text.data, text.n + 1);
    whole->length = text.n;
    for (int32_t i = 0; i < whole->n; i++) {
        text.n = 0;
        SB_TRY(sb_tokenizer_decode(tokenizer, whole->ids, (size_t)i + 1, 0, &text));
        whole->ends[i] = text.n <= whole->length && memcmp(text.data, whole->text, text.n) == 0
                             ? text.n
                             : torn_end(whole, i, text.data, text.n);
        if (tokenizer->decoder.bytes == SB_BYTES_RUN)
            widen_runs(whole);
    }
done:
    sb_bytes_clear(&text);
    return rc;
}

/* ------------------------------------------------------------------ cutting */

/* The first byte that is searched. */
static size_t search_from(const struct whole_answer *whole, int32_t min_new)
{
    size_t at;

    if (min_new == 0)
        return 0;
    at = whole->ends[min_new - 1];
    while (at < whole->length && is_inside_character(whole->text[at]))
        at++;
    return at;
}

struct cut_answer stop_oracle_cut(const struct whole_answer *whole,
                                  const struct stop_strings *stops, int32_t min_new)
{
    struct cut_answer cut = {whole->n, whole->length, 0};

    if (min_new > whole->n)
        return cut;
    for (size_t at = search_from(whole, min_new); at < whole->length && !cut.is_stopped; at++)
        for (size_t i = 0; i < stops->n; i++)
            if (stops->lengths[i] <= whole->length - at &&
                memcmp(whole->text + at, stops->at[i], stops->lengths[i]) == 0)
                cut = (struct cut_answer){0, at, 1};
    while (cut.is_stopped && cut.n < whole->n && whole->ends[cut.n] <= cut.length)
        cut.n++;
    return cut;
}

/* ------------------------------------------------------------------ drawing */

void stop_strings_add(struct stop_strings *stops, const char *text, size_t n)
{
    if (n == 0 || n > 255 || stops->n == STOP_ORACLE_STRINGS)
        return;
    memcpy(stops->bytes[stops->n], text, n);
    stops->at[stops->n] = stops->bytes[stops->n];
    stops->lengths[stops->n++] = n;
}

static size_t below(uint64_t *state, size_t n)
{
    return (size_t)(trace_random(state) % n);
}

/* Draws one string. */
static void draw_one(struct stop_strings *stops, const struct whole_answer *whole, uint64_t *state)
{
    size_t from = below(state, whole->length), to, chars = 1 + below(state, 6);
    char text[600];
    size_t n;

    while (from > 0 && is_inside_character(whole->text[from]))
        from--;
    for (to = from; chars > 0 && to < whole->length; chars--)
        to = behind(whole, to);
    n = to - from;
    memcpy(text, whole->text + from, n);
    switch (below(state, 5)) {
    case 0: /* it never comes, or only by chance */
        memcpy(text + n, "~", 1);
        n++;
        break;
    case 1: /* it overlaps itself */
        memcpy(text + n, text, n);
        n *= 2;
        break;
    default:
        break;
    }
    stop_strings_add(stops, text, n);
}

void stop_oracle_draw(struct stop_strings *stops, const struct whole_answer *whole, uint64_t *state)
{
    const size_t n = below(state, 8) ? 1 + below(state, 3) : STOP_ORACLE_STRINGS;

    stops->n = 0;
    for (size_t i = 0; i < n && whole->length > 0; i++)
        draw_one(stops, whole, state);
    if (stops->n == 0)
        stop_strings_add(stops, "~", 1);
}
