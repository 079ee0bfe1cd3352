/*
 * Several answers to one prompt, which is computed once.
 *
 *   slots of the answers          fills      |ppppp...        |        |pppppppppa      |
 *   while the prompt is filled    follows    |                |  --->  |pppppppppb      |
 *   in, and then                  follows    |                |        |pppppppppc      |
 *
 * Each answer is a sequence like any other, with a slot of its own. Of those that have one, the
 * first fills the prompt in and the others follow: they compute nothing. When all of the prompt but
 * its last token is computed, these columns are copied into the slots of the followers, which then
 * are ready. Whoever gets a slot later has them copied at once. What a prefix hit gave is not
 * copied again.
 *
 *   first -> ... -> last      the siblings that have a slot, in a list: those that have all of the
 *                             prompt's columns, and then those that lack some
 *
 * Invariant: between rounds either all in the list have the prompt's columns, or none has. In the
 * second case the first fills the prompt in and the others follow. If it ends before that, it hands
 * what it has to the next one, which goes on. It is preempted after all that follow it, whose turns
 * come later.
 *
 * The columns are those that each would have written itself, to the bit: keys and values of a
 * prompt follow from its tokens and from its length, which decides what is computed in spans
 * (pool/prefix.h), and siblings have both in common. Of the draft's columns those are copied that
 * are there. When a prompt has just been filled in there are none, so that each answer's draft
 * computes the prompt itself.
 *
 * Best of several: answers are held back until all have ended. Then their mean log-probabilities
 * decide which of them are handed out, and the others are dropped.
 *
 * Rejected: one slot of prompt columns that all answers read, which would need kernels that read a
 * row from two slots; a row of a round with several answers, which is the same again.
 */
#ifndef SB_ANSWERS_H
#define SB_ANSWERS_H

#include "pool/pool.h"

enum { SB_ANSWERS_MAX = 1024 };

/* Checks and completes what a request says of its answers: best_of is how many are made, and n how
 * many of them are handed out. E_INVALID, E_OPTIONS. */
int32_t sb_answers_resolve(specbatch_answers *full, const specbatch_request *request);

/* Makes the struct that the answers of a request have in common; apart: 1, each is to compute the
 * prompt for itself. It has one reference. E_NOMEM. */
int32_t sb_answers_create(struct sb_answers **out, const struct sb_mem *mem,
                          const specbatch_answers *full, int apart);
/* Adds a sequence, which takes a reference, as the next answer. */
void sb_answers_add(struct sb_answers *answers, struct sb_seq *seq);
/* Drops a reference, on any thread; the last one frees it. NULL is fine. */
void sb_answers_release(const struct sb_mem *mem, struct sb_answers *answers);
/* Bytes of what the answers have in common, which count as the first one's. */
size_t sb_answers_bytes(const struct sb_seq *seq);

/* The next four are for a sequence that has a slot, and do nothing if it has no siblings. */

/* It has got its slot, and what is kept of its prompt. E_DEVICE. */
int32_t sb_answers_join(struct specbatch_pool *pool, struct sb_seq *seq);
/* A chunk of its prompt was computed. E_DEVICE. */
int32_t sb_answers_filled(struct specbatch_pool *pool, struct sb_seq *seq);
/* It is about to end, perhaps before its prompt was filled in: the next one gets what it has of the
 * prompt. E_DEVICE. */
int32_t sb_answers_hand_over(struct specbatch_pool *pool, struct sb_seq *seq);
/* It loses its slot. */
void sb_answers_leave(struct sb_seq *seq);

/* A sequence has ended. Returns those that are to be handed out now, as a list through seq->next:
 * itself, or the best answers of its request, or none. *dropped: a list of those that never will
 * be. */
struct sb_seq *sb_answers_end(struct sb_seq *seq, struct sb_seq **dropped);

#endif
