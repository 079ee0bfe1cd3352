/*
 * Splitting text into words. A tokenizer has a list of steps, each of which cuts the text that it
 * gets into pieces, or rewrites it, and hands each piece to the next step before it goes on to the
 * next piece. The last step's pieces are the words. So no list of pieces is ever built, and a step
 * that rewrites needs only one buffer, the one of its number in the call's work.
 *
 * A step that has a pattern runs a hand-written function (split_words.c) if the pattern is known,
 * or the matcher of pattern.h.
 */
#include <string.h>

#include "pipeline.h"
#include "status.h"
#include "unicode.h"
#include "utf8.h"

/* What a step needs to hand on its pieces. */
struct pass {
    const struct sb_steps *steps;
    size_t next;
    struct sb_work *work;
    sb_word_fn word;
    void *context;
};

static int32_t hand_on(const struct pass *pass, const char *text, size_t n, int first)
{
    return sb_split(pass->steps, pass->next, pass->work, text, n, first, pass->word, pass->context);
}

static int32_t split_by_hand(const struct pass *pass, const struct sb_step *step, const char *text,
                             size_t n, int first)
{
    int32_t rc = SPECBATCH_OK;
    size_t length;

    for (size_t at = 0; at < n; at += length) {
        length = sb_known_word(step, text + at, n - at);
        SB_TRY(hand_on(pass, text + at, length, first && at == 0));
    }
done:
    return rc;
}

/* How many bytes so many characters at the beginning of a text have. */
static size_t bytes_of(const char *text, size_t characters)
{
    size_t at = 0;

    for (; characters > 0; characters--) {
        unsigned char c = (unsigned char)text[at];
        at += c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    }
    return at;
}

/* Hands on what lies between two matches, unless the step removes that. */
static int32_t hand_on_between(const struct pass *pass, const struct sb_step *step,
                               const char *text, size_t n, int first)
{
    return step->removes ? SPECBATCH_OK : hand_on(pass, text, n, first);
}

/* Matches, and what lies between them, are pieces; an empty match only separates. The matcher
 * counts in characters (at_char, from, begin, end), the text in bytes (at). */
static int32_t split_by_pattern(const struct pass *pass, const struct sb_step *step,
                                const char *text, size_t n, int first, struct sb_bytes *kinds)
{
    struct sb_match *match = &pass->work->match;
    size_t at = 0, at_char = 0, from = 0, begin, end;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_match_begin(step->pattern, match, text, n, kinds));
    while (from < kinds->n) {
        SB_TRY(sb_match_next(step->pattern, match, kinds, from, &begin, &end));
        size_t bytes = bytes_of(text + at, begin - at_char);
        SB_TRY(hand_on_between(pass, step, text + at, bytes, first && at == 0));
        at += bytes;
        bytes = bytes_of(text + at, end - begin);
        SB_TRY(hand_on(pass, text + at, bytes, first && at == 0));
        at += bytes;
        at_char = end;
        from = end > begin ? end : end + 1;
    }
    SB_TRY(hand_on_between(pass, step, text + at, n - at, first && at == 0));
done:
    return rc;
}

/* Cuts at every occurrence of step->from, which is a piece itself (SPLIT_TEXT) or begins one
 * (SPLIT_BEFORE). */
static int32_t split_at_text(const struct pass *pass, const struct sb_step *step, const char *text,
                             size_t n, int first)
{
    const struct sb_bytes *from = &step->from;
    size_t done_to = 0, at = 0;
    int32_t rc = SPECBATCH_OK;

    while (at + from->n <= n) {
        if (memcmp(text + at, from->data, from->n) != 0) {
            at++;
            continue;
        }
        SB_TRY(hand_on_between(pass, step, text + done_to, at - done_to, first && done_to == 0));
        done_to = at;
        at += from->n;
        if (step->kind == SB_STEP_SPLIT_TEXT) {
            SB_TRY(hand_on(pass, text + done_to, from->n, first && done_to == 0));
            done_to = at;
        }
    }
    SB_TRY(hand_on_between(pass, step, text + done_to, n - done_to, first && done_to == 0));
done:
    return rc;
}

/* Spaces become step->to, and one more is put before the text where `prepend` asks for it. */
static int32_t metaspace(const struct pass *pass, const struct sb_step *step, const char *text,
                         size_t n, int first, struct sb_bytes *out)
{
    int32_t rc = SPECBATCH_OK;
    int wanted = step->prepend == SB_PREPEND_ALWAYS || (step->prepend == SB_PREPEND_FIRST && first);

    if (wanted && text[0] != ' ' && !sb_bytes_begin(&step->to, text, n))
        SB_TRY(sb_bytes_add(out, step->to.data, step->to.n));
    SB_TRY(sb_replace(step, text, n, out));
    SB_TRY(hand_on(pass, out->data, out->n, first));
done:
    return rc;
}

int32_t sb_split_compile(struct sb_step *step, struct sb_properties *properties,
                         const char *pattern, size_t n, const char *where)
{
    if (sb_known_pattern(step, pattern, n))
        return SPECBATCH_OK;
    step->kind = SB_STEP_SPLIT_PATTERN;
    return sb_pattern_create(&step->pattern, properties, pattern, n, where);
}

int32_t sb_split(const struct sb_steps *steps, size_t index, struct sb_work *work, const char *text,
                 size_t n, int first, sb_word_fn word, void *context)
{
    struct pass pass = {steps, index + 1, work, word, context};
    const struct sb_step *step = &steps->at[index];
    struct sb_bytes *out = &work->stage[index];
    int32_t rc = SPECBATCH_OK;

    if (n == 0)
        return SPECBATCH_OK;
    if (index == steps->n)
        return word(context, text, n);
    out->n = 0;
    switch (step->kind) {
    case SB_STEP_SPLIT_CL100K:
    case SB_STEP_SPLIT_GPT2:
        return split_by_hand(&pass, step, text, n, first);
    case SB_STEP_SPLIT_PATTERN:
        return split_by_pattern(&pass, step, text, n, first, out);
    case SB_STEP_SPLIT_TEXT:
    case SB_STEP_SPLIT_BEFORE:
        return split_at_text(&pass, step, text, n, first);
    case SB_STEP_METASPACE:
        return metaspace(&pass, step, text, n, first, out);
    case SB_STEP_BYTES:
        SB_TRY(sb_add_byte_chars(text, n, out));
        return hand_on(&pass, out->data, out->n, first);
    default: /* SB_STEP_PREFIX_SPACE */
        if (text[0] == ' ')
            return hand_on(&pass, text, n, first);
        SB_TRY(sb_bytes_add(out, " ", 1));
        SB_TRY(sb_bytes_add(out, text, n));
        return hand_on(&pass, out->data, out->n, first);
    }
done:
    return rc;
}
