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

/* The parts of a text, which are matches and what lies between them, on their way into words. */
struct parts {
    const struct pass *pass;
    const struct sb_step *step;
    const char *text; /* the whole */
    int first;
    const char *held; /* the word that the next part may be joined to; NULL: none yet */
    size_t n_held;
    int ends_in_match;
};

static int32_t let_go(struct parts *parts)
{
    if (!parts->held || (parts->step->behavior == SB_SPLIT_REMOVED && parts->ends_in_match))
        return SPECBATCH_OK;
    return hand_on(parts->pass, parts->held, parts->n_held,
                   parts->first && parts->held == parts->text);
}

/* Whether two parts that touch belong to one word. */
static int are_joined(enum sb_split_behavior behavior, int is_match, int next_is_match)
{
    switch (behavior) {
    case SB_SPLIT_CONTIGUOUS:
        return is_match == next_is_match;
    case SB_SPLIT_WITH_PREVIOUS:
        return !is_match && next_is_match;
    case SB_SPLIT_WITH_NEXT:
        return is_match && !next_is_match;
    default:
        return 0;
    }
}

static int32_t add_part(struct parts *parts, const char *part, size_t n, int is_match)
{
    const int counts = is_match != parts->step->inverted;
    int32_t rc = SPECBATCH_OK;

    if (n == 0 && !is_match)
        return SPECBATCH_OK;
    if (parts->held && are_joined(parts->step->behavior, parts->ends_in_match, counts)) {
        parts->n_held += n;
    } else {
        SB_TRY(let_go(parts));
        parts->held = part;
        parts->n_held = n;
    }
    parts->ends_in_match = counts;
done:
    return rc;
}

/* An empty match separates what lies before and behind it, and counts unless it touches the match
 * before it. The matcher counts in characters (at_char, from, begin, end), the text in bytes
 * (at). */
static int32_t split_by_pattern(const struct pass *pass, const struct sb_step *step,
                                const char *text, size_t n, int first, struct sb_bytes *kinds)
{
    struct parts parts = {.pass = pass, .step = step, .text = text, .first = first};
    struct sb_match *match = &pass->work->match;
    size_t at = 0, at_char = 0, from = 0, begin, end;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_match_begin(step->pattern, match, text, n, kinds));
    while (from < kinds->n) {
        SB_TRY(sb_match_next(step->pattern, match, kinds, from, &begin, &end));
        size_t bytes = bytes_of(text + at, begin - at_char);
        SB_TRY(add_part(&parts, text + at, bytes, 0));
        at += bytes;
        bytes = bytes_of(text + at, end - begin);
        if (bytes > 0 || begin > at_char || from == 0)
            SB_TRY(add_part(&parts, text + at, bytes, 1));
        at += bytes;
        at_char = end;
        from = end > begin ? end : end + 1;
    }
    SB_TRY(add_part(&parts, text + at, n - at, 0));
    SB_TRY(let_go(&parts));
done:
    return rc;
}

/* The matches are the occurrences of step->from. */
static int32_t split_at_text(const struct pass *pass, const struct sb_step *step, const char *text,
                             size_t n, int first)
{
    struct parts parts = {.pass = pass, .step = step, .text = text, .first = first};
    const struct sb_bytes *from = &step->from;
    size_t done_to = 0, at = 0;
    int32_t rc = SPECBATCH_OK;

    while (at + from->n <= n) {
        if (memcmp(text + at, from->data, from->n) != 0) {
            at++;
            continue;
        }
        SB_TRY(add_part(&parts, text + done_to, at - done_to, 0));
        SB_TRY(add_part(&parts, text + at, from->n, 1));
        done_to = at += from->n;
    }
    SB_TRY(add_part(&parts, text + done_to, n - done_to, 0));
    SB_TRY(let_go(&parts));
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
    /* The known patterns leave nothing between their matches. */
    if ((step->behavior == SB_SPLIT_ISOLATED ||
         (step->behavior == SB_SPLIT_REMOVED && step->inverted)) &&
        sb_known_pattern(step, pattern, n))
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
