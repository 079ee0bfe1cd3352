/*
 * A tokenizer's lists of steps: adding a step, freeing a list, and refusing a list that could make
 * a text too long.
 */
#include "pipeline.h"
#include "status.h"

int32_t sb_step_add(struct sb_step **out, struct sb_steps *steps, enum sb_step_kind kind,
                    const char *where)
{
    if (steps->n == SB_STEPS_MAX)
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s: more than %d steps in a row", where,
                       SB_STEPS_MAX);
    *out = &steps->at[steps->n++];
    (*out)->kind = kind;
    return SPECBATCH_OK;
}

void sb_steps_clear(struct sb_steps *steps)
{
    for (size_t i = 0; i < steps->n; i++) {
        sb_bytes_clear(&steps->at[i].from);
        sb_bytes_clear(&steps->at[i].to);
        sb_pattern_free(steps->at[i].pattern);
    }
    steps->n = 0;
}

/* ---------------------------------------------------------------------------- growth */

/*
 * How much longer a list of steps can make a text. This is computed when the file is opened.
 *
 * Every Replace multiplies the length: sixteen steps that each put 32 letters for one would make
 * 10^24 bytes of a single byte. So a list whose steps together could make a text more than 64 times
 * as long is refused. The lists of real files stay below 25; they put a mark of three bytes before
 * the text and for every space, and spell bytes as characters of two bytes.
 *
 * The bound has two parts: `times` bytes for each byte of the text, and `more` bytes for each text.
 * A Prepend adds to `more`; every step behind it multiplies both. Each stretch of text between two
 * added tokens counts as a text here and may be a single byte long, so the sum of both parts is
 * held against the limit. A splitting step runs on pieces of text, and these too may be of a single
 * byte, so what such a step puts before a piece counts for every byte.
 *
 * Rejected: to stop a text while it is processed, once it has grown too far. A few more files would
 * be accepted, but then every call that makes text of ids could fail, even for a finished result.
 */
enum { GROWTH_MAX = 64 };

/* The most bytes that a step makes of one byte. */
static double factor(const struct sb_step *step)
{
    double replaced = step->to.n > step->from.n && step->from.n > 0
                          ? (double)step->to.n / (double)step->from.n
                          : 1;

    switch (step->kind) {
    case SB_STEP_NORMAL:
        /* "Maximum expansion factors" of https://unicode.org/faq/normalization.html, in UTF-8. */
        return step->form & SB_NFKD ? 11 : 3;
    case SB_STEP_BYTES:
    case SB_STEP_PREFIX_SPACE:
        return 2;
    case SB_STEP_REPLACE:
        return replaced;
    case SB_STEP_METASPACE:
        return replaced + (step->prepend != SB_PREPEND_NEVER ? (double)step->to.n : 0);
    default:
        return 1;
    }
}

/* Both parts of the bound of a list, which may be continued: they are 1 and 0 before its first
 * step. */
static void grow_by(const struct sb_step *step, double *times, double *more)
{
    *times *= factor(step);
    *more = *more * factor(step) + (step->kind == SB_STEP_PREPEND ? (double)step->to.n : 0);
}

size_t sb_steps_growth(const struct sb_steps *steps)
{
    double times = 1, more = 0;

    for (size_t i = 0; i < steps->n; i++)
        grow_by(&steps->at[i], &times, &more);
    return (size_t)(times + more) + 1;
}

int32_t sb_steps_check_growth(const struct sb_steps *first, const struct sb_steps *second,
                              const char *path, const char *what)
{
    size_t n = first->n + (second ? second->n : 0);
    double times = 1, more = 0;

    for (size_t i = 0; i < n; i++) {
        const struct sb_step *step = i < first->n ? &first->at[i] : &second->at[i - first->n];
        grow_by(step, &times, &more);
        if (times + more > GROWTH_MAX)
            return sb_fail(SPECBATCH_E_UNSUPPORTED,
                           "%s: %s: step %zu could make a text more than %d times as long", path,
                           what, i + 1, GROWTH_MAX);
    }
    return SPECBATCH_OK;
}
