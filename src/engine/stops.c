/* Searching for stop strings, and cutting answers; stops.h draws how. */
#include "engine/stops.h"

#include <string.h>

#include "fault.h"
#include "status.h"
#include "text/tokenizer.h"

/* ------------------------------------------------------------------ creation */

/* For each prefix of a string its longest border: what is still matched when the byte behind that
 * prefix does not come. */
static void set_borders(const char *text, int32_t n, uint8_t *border)
{
    int32_t k = 0;

    border[0] = 0;
    for (int32_t i = 1; i < n; i++) {
        while (k > 0 && text[i] != text[k])
            k = border[k - 1];
        k += text[i] == text[k];
        border[i] = (uint8_t)k;
    }
}

static void set_strings(struct sb_stops *s, const char *const *strings, const size_t *lengths)
{
    size_t total = 0;
    char *text = s->bytes;
    uint8_t *border;

    for (int32_t i = 0; i < s->n; i++)
        total += lengths[i];
    border = (uint8_t *)s->bytes + total;
    for (int32_t i = 0; i < s->n; i++) {
        const int32_t n = (int32_t)lengths[i];
        memcpy(text, strings[i], lengths[i]);
        set_borders(text, n, border);
        s->at[i] = (struct sb_stop){.text = text, .border = border, .n = n};
        text += n;
        border += n;
    }
}

int32_t sb_stops_create(struct sb_stops **out, const struct sb_mem *mem,
                        const struct sb_tokenizer *tokenizer, const char *const *strings,
                        const size_t *lengths, size_t n_strings, int32_t max_new)
{
    static const char what[] = "a request's stop strings";
    struct sb_stops *s = NULL;
    size_t total = 0;
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < n_strings; i++)
        total += lengths[i];
    SB_NEW(s, sb_alloc(mem, 1, sizeof *s), what);
    s->mem = *mem;
    s->n = (int32_t)n_strings;
    s->max_new = max_new;
    s->found = s->end = INT64_MAX;
    SB_NEW(s->bytes, sb_alloc(mem, total, 2), what);
    SB_NEW(s->ends, sb_alloc_raw(mem, (size_t)max_new, sizeof *s->ends), what);
    SB_NEW(s->accepted, sb_alloc_raw(mem, (size_t)max_new, sizeof *s->accepted), what);
    set_strings(s, strings, lengths);
    SB_TRY(sb_stream_create(&s->stream, mem, tokenizer, 0));
    SB_TRY(sb_stream_reserve(s->stream, (size_t)max_new));
    *out = s;
    s = NULL;
done:
    sb_stops_free(s);
    return rc;
}

void sb_stops_free(struct sb_stops *s)
{
    struct sb_mem mem;

    if (!s)
        return;
    mem = s->mem;
    sb_stream_free(s->stream);
    sb_free(&mem, s->bytes);
    sb_free(&mem, s->ends);
    sb_free(&mem, s->accepted);
    sb_free(&mem, s);
}

size_t sb_stops_bytes(const struct sb_stops *s)
{
    size_t n = 0;

    if (!s)
        return 0;
    for (int32_t i = 0; i < s->n; i++)
        n += 2 * (size_t)s->at[i].n;
    return sizeof *s + n + (size_t)s->max_new * (sizeof *s->ends + sizeof *s->accepted) +
           sb_stream_bytes(s->stream);
}

int sb_stops_equal(const struct sb_stops *a, const struct sb_stops *b)
{
    if (!a || !b)
        return a == b;
    if (a->n != b->n)
        return 0;
    for (int32_t i = 0; i < a->n; i++)
        if (a->at[i].n != b->at[i].n ||
            memcmp(a->at[i].text, b->at[i].text, (size_t)a->at[i].n) != 0)
            return 0;
    return 1;
}

/* ------------------------------------------------------------------ searching */

/* Where the first string begins of which the text ends with a part, or else the text's end. */
static int64_t first_part(const struct sb_stops *s, int64_t length)
{
    int32_t most = 0;

    for (int32_t i = 0; i < s->n; i++)
        if (s->at[i].matched > most)
            most = s->at[i].matched;
    return length - most;
}

/* Searches n more bytes, which make the text `length` long; from the end of the answer on they do
 * not matter. */
static void search(struct sb_stops *s, const char *text, size_t n, int64_t length)
{
    for (size_t at = 0; at < n && !s->is_decided; at++) {
        const int64_t behind = length - (int64_t)(n - at) + 1;
        for (int32_t i = 0; i < s->n; i++) {
            struct sb_stop *stop = &s->at[i];
            while (stop->matched > 0 && stop->text[stop->matched] != text[at])
                stop->matched = stop->border[stop->matched - 1];
            stop->matched += stop->text[stop->matched] == text[at];
            if (stop->matched < stop->n)
                continue;
            stop->matched = stop->border[stop->n - 1];
            if (behind - stop->n < s->found)
                s->found = behind - stop->n;
        }
        s->is_decided = s->found <= first_part(s, behind);
    }
}

/* The text has grown from `before` to its length now, and n tokens are known. If what was held back
 * is part of it, those of them that end there get their places. */
static void place_held(struct sb_stops *s, int32_t n, int64_t before)
{
    if (s->length == before && sb_stream_held(s->stream) > 0)
        return;
    for (; s->n_held > 0; s->n_held--) {
        int64_t *end = &s->ends[n - s->n_held];
        *end = before + (int64_t)sb_stream_place(s->stream, (size_t)(*end - before));
        if (*end > s->length)
            *end = s->length;
    }
}

/* How many of the last n bytes of the text are not searched, when it has been made of so many
 * tokens. The search begins with the first character of which no byte is of the first min_new
 * tokens. */
static size_t spared(const struct sb_stops *s, const struct sb_seq *seq, int32_t n_tokens,
                     const char *text, size_t n)
{
    const int64_t before = s->length - (int64_t)n;
    size_t at = 0;

    if (seq->min_new == 0)
        return 0;
    if (seq->min_new > n_tokens - s->n_held)
        return n;
    if (s->ends[seq->min_new - 1] > before)
        at = (size_t)(s->ends[seq->min_new - 1] - before);
    while (at < n && ((unsigned char)text[at] & 0xC0) == 0x80)
        at++;
    return at;
}

/* The text goes on with n bytes, which some of the first n_tokens tokens have made. */
static void go_on(struct sb_stops *s, const struct sb_seq *seq, int32_t n_tokens, const char *text,
                  size_t n)
{
    const size_t at = spared(s, seq, n_tokens, text, n);

    search(s, text + at, n - at, s->length);
}

/* Where the decided text ends: at a string that is complete or may become so. */
static int64_t decided(const struct sb_stops *s)
{
    const int64_t part = first_part(s, s->length);

    return s->found < part ? s->found : part;
}

/* Reads the sequence's last token. */
static int32_t read_token(struct sb_stops *s, const struct sb_seq *seq)
{
    const int32_t n = sb_seq_n_generated(seq);
    const int64_t before = s->length;
    const char *text;
    size_t length, held;
    int32_t rc = SPECBATCH_OK;

    s->ends[n - 1] = before; /* until its text is known */
    SB_TRY(sb_stream_push(s->stream, &seq->tokens[seq->n_tokens - 1], 1, &text, &length));
    s->length += (int64_t)length;
    place_held(s, n - 1, before);
    held = sb_stream_held(s->stream);
    s->ends[n - 1] = s->length + (int64_t)held;
    s->n_held += held > 0;
    go_on(s, seq, n, text, length);
done:
    return rc;
}

/* No more tokens come: reads what was held back. */
static int32_t read_end(struct sb_stops *s, const struct sb_seq *seq)
{
    const int32_t n = sb_seq_n_generated(seq);
    const int64_t before = s->length;
    const char *text;
    size_t length;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_stream_end(s->stream, NULL, 0, &text, &length));
    s->length += (int64_t)length;
    place_held(s, n, before);
    go_on(s, seq, n, text, length);
done:
    return rc;
}

/* ------------------------------------------------------------------ cutting */

/* Ends the answer at a byte of its text. */
static void cut_at(struct sb_seq *seq, int64_t end)
{
    struct sb_stops *s = seq->stops;
    const int32_t n = sb_seq_n_generated(seq);
    int32_t kept = n - s->n_held;

    while (kept > 0 && s->ends[kept - 1] > end)
        kept--;
    if (SB_FAULT(STOP_STRING_LATE) && kept < n)
        kept++;
    for (int32_t i = kept; i < n; i++)
        seq->accepted -= s->accepted[i];
    seq->n_tokens -= n - kept;
    s->n_tail = n - kept;
    s->end = end;
}

void sb_stops_cut(struct sb_seq *seq)
{
    cut_at(seq, decided(seq->stops));
}

void sb_stops_take(struct sb_seq *seq, int was_accepted)
{
    struct sb_stops *s = seq->stops;
    const int32_t n = sb_seq_n_generated(seq);
    int32_t rc = SPECBATCH_OK;

    s->accepted[n - 1] = was_accepted != 0;
    SB_TRY(read_token(s, seq));
    if (seq->finish)
        SB_TRY(read_end(s, seq));
    if (s->is_decided || (seq->finish && s->found < INT64_MAX)) {
        seq->finish = SPECBATCH_FINISH_STOP;
        cut_at(seq, s->found);
    }
    while (s->n_shown < n - s->n_held && s->ends[s->n_shown] <= decided(s))
        s->n_shown++;
done:
    if (rc != SPECBATCH_OK) { /* without memory for the text, all of which had been taken */
        seq->finish = SPECBATCH_FINISH_ERROR;
        seq->status = rc;
        sb_stops_cut(seq);
    }
}

size_t sb_stops_text(const struct sb_seq *seq, size_t length)
{
    if (SB_FAULT(STOP_TEXT_KEPT) || !seq->stops || (int64_t)length <= seq->stops->end)
        return length;
    return (size_t)seq->stops->end;
}
