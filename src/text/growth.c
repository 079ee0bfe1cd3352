/*
 * How much longer a list of steps can make a text, found out when the file is opened.
 *
 * Every Replace multiplies, so sixteen steps that each put 32 letters for one would make 10^24 bytes of one
 * byte. A list whose steps together could make a text more than 64 times as long is refused. Real files stay
 * below ten: a space becomes a mark of three bytes, a newline becomes <0x0A>.
 *
 * Stopping a text that grows too far while it is processed would let through a few more files, and would bring
 * a failure to every call that makes text of ids, a result that had finished among them.
 */
#include "pipeline.h"
#include "status.h"

enum { GROWTH_MAX = 64 };

/* Bytes out for each byte in, at most. */
static double growth_of(const struct sb_step *step)
{
    switch (step->kind) {
    case SB_STEP_NORMAL: /* https://unicode.org/faq/normalization.html, "maximum expansion factors" */
        return step->form & SB_NFKD ? 11 : 3;
    case SB_STEP_BYTES:
        return 2;
    case SB_STEP_REPLACE:
    case SB_STEP_METASPACE:
        return step->to.n > step->from.n ? (double)step->to.n / (double)step->from.n : 1;
    default:
        return 1;
    }
}

int32_t sb_steps_check_growth(const struct sb_steps *first, const struct sb_steps *second, const char *path,
                              const char *what)
{
    size_t n = first->n + (second ? second->n : 0), i;
    double growth = 1;

    for (i = 0; i < n; i++) {
        const struct sb_step *step = i < first->n ? &first->at[i] : &second->at[i - first->n];
        growth *= growth_of(step);
        if (growth > GROWTH_MAX || (step->kind == SB_STEP_PREPEND && step->to.n > GROWTH_MAX))
            return sb_fail(SPECBATCH_E_UNSUPPORTED,
                           "%s: %s: step %zu could make a text more than %d times as long", path, what, i + 1,
                           GROWTH_MAX);
    }
    return SPECBATCH_OK;
}
