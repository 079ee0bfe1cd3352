/*
 * Masks: what the function of a request says may follow (specbatch_mask). It is asked for every
 * position of a round for which the target selects a token:
 *
 *   tokens of the sequence   committed tokens | proposal 1 | proposal 2 | ..
 *   the mask of position 0   `------ of these
 *   the mask of position 1   `----------- of these
 *
 * The proposals are written behind the committed tokens of the sequence's own array, which has room
 * for them. So the prefixes of all positions are the beginnings of one array.
 *
 * Rows with the same function and user are asked about in one call. Before the draft prepares, rows
 * that may have proposals are asked at position 0. While a mask allows one id only, that id is a
 * proposal, which is called forced, and the mask behind it is asked. Forced proposals are verified
 * as all others are. When the draft's proposals are known, the rest of the positions is asked. The
 * samplers learn of the masks then: a draft model does without them.
 *
 * What a mask sees of a proposal may be wrong, and a draft model's proposals come from the device
 * first. Rejected: masks for the draft model too, because each of its steps would then wait for the
 * host. Rejected: states of the host's that move with a sequence, which would have to be taken back
 * with each rejected proposal; a pure function of the tokens needs none.
 */
#ifndef SB_MASKS_H
#define SB_MASKS_H

#include "engine/round.h"

/* Call after sb_round_begin and before the draft prepares: finds the masked rows and what they are
 * forced to. Rows with forced proposals then ask for none, so that the draft leaves them alone.
 * E_CANCELLED: a mask returned something else than 0. */
int32_t sb_masks_force(struct sb_round *round);
/* Call after the draft has prepared: those rows have their forced proposals. */
void sb_masks_propose(struct sb_round *round);
/* Call when round->tokens has all proposals and nothing is running: asks what has not been asked
 * yet, and uploads the masks and the samplers, which now name them. E_CANCELLED, E_DEVICE. */
int32_t sb_masks_complete(struct sb_round *round, struct sb_runner *target);

#endif
