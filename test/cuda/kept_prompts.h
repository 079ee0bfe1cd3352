/*
 * Prompts that begin alike, in pools that keep prefixes and in pools that take a slot back. Drawn
 * is what computes them where cuDNN computes spans (src/backend/cuda/prefill.h). All share their
 * first 290 tokens, or as many as they have:
 *
 *    tokens    0       200   256    290               512       700
 *    700       |===== span =====|===== span ==========|== own ==|
 *    300       |===== span =====|== own ==|
 *    520       |===== span =====|===== span ==========|own|
 *    200       |=== own ===|
 *    250       |=== own =====|
 *    290       |===== span =====|== own |
 *    talk      |===== span =====|= own =|         the prompt of 250, its answer, and more: 300
 *
 * A token that one prompt has in a span and another has not is not the same column. So of 700, the
 * prompt of 300 may take one span, and no token behind it; so may the one of 520, which has the
 * rest in a span, but not all of that span. Neither may take anything of 200.
 *
 * Where the own kernel computes all, a prompt takes every whole block of 32 tokens that it shares
 * with one before it, its last token excepted: 288 of 290 tokens, 224 of 250, and the talk 256 of
 * the prompt of 250 and its answer.
 */
#ifndef KEPT_PROMPTS_H
#define KEPT_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "specbatch.h"

enum {
    KEPT = 7,      /* prompts */
    KEPT_TALK = 6, /* the last, which quotes an answer */
    KEPT_NEW = 8,  /* tokens of an answer */
    PREEMPTED = 2,
    PREEMPTED_NEW = 24
};

struct kept_answer {
    int32_t tokens[KEPT_NEW];
    float logprobs[KEPT_NEW];
};

/* What plain decoding of each of n prompts alone gives, in a pool that keeps nothing. Returns a
 * status. */
int32_t kept_ask(specbatch_model *model, struct kept_answer answers[KEPT], const int32_t *prompts,
                 int32_t n);
/* Runs n prompts one after the other, in one pool that keeps all. hits: how many tokens each has to
 * find there; NULL: any. Returns 0, or 1 and why. */
int kept_in_turn_differ(specbatch_model *model, const struct kept_answer *answers,
                        const int32_t *prompts, const int32_t *hits, int32_t n, char *why,
                        size_t size);

/*
 * Two requests of which the second is preempted when its tokens, but not its prompt, are long
 * enough for a span: the caches have one longest slot of 640 columns, each of the two has a half of
 * it, and the first, whose prompt is longer, outgrows its half.
 */
struct preempted_answer {
    int32_t tokens[PREEMPTED_NEW];
    float logprobs[PREEMPTED_NEW];
};

/* What each gives alone, in a pool with room for it. Returns a status. */
int32_t preempted_ask(specbatch_model *model, struct preempted_answer answers[PREEMPTED]);
/* Returns 0, or 1 and why; also if no request was preempted. */
int preempted_differ(specbatch_model *model, const struct preempted_answer *answers,
                     uint64_t prefix_bytes, char *why, size_t size);

/* Asks all prompts, and then runs them in turn and the first of them again: each has to find as
 * many tokens as it may. Returns 0, or 1 and why. */
int kept_hits_differ(specbatch_model *model, struct kept_answer answers[KEPT], char *why,
                     size_t size);
/* All of it, and all prompts at once, where something is found, and evicted. Returns 0, or 1 and
 * why. */
int kept_prompts_differ(specbatch_model *model, char *why, size_t size);

#endif
