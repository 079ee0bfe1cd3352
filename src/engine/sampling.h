/*
 * How a sequence's tokens are chosen where that is not greedily: the rule of its request, and what
 * a round hands to the backend of it (struct sb_sampler in backend.h).
 *
 *   a sequence        rule, ids and values of biases             from its submission on
 *   a round's block   samplers [max_rows + 1] | lists [room]     uploaded in each round
 *
 *   samplers          of the rows; and behind them one that is greedy, for padding tokens (round.h)
 *   lists             for each row with penalties its last tokens, with biases their ids and then
 *                     their values, with bans the ids that would end it
 *
 * Whatever depends on the position, such as which tokens a penalty counts behind a proposal, is
 * worked out where tokens are selected, since only the device knows the proposals. So the target
 * and a draft model sample by the same rule, with the same noise.
 *
 * The block grows when a request is submitted that needs more than any before it, because a step
 * takes no memory. Its lists have room for a power of two of words, so it seldom grows. Rounds
 * without samplers do not touch it.
 */
#ifndef SB_SAMPLING_H
#define SB_SAMPLING_H

#include "backend/backend.h"
#include "engine/seq.h"

struct sb_sampling {
    struct sb_sampler rule; /* without what a round fills in: tokens, lists, bans and masks */
    int32_t *bias_ids;      /* [rule.n_bias] */
    float *bias;
};

struct specbatch_model;
struct sb_round_row;

/* The samplers of a round. */
struct sb_sampler_block {
    char *host, *dev; /* samplers [max_rows + 1], then lists [room] */
    size_t bytes;     /* of either; 0: no request has needed one yet */
    int32_t max_rows, room;
    int32_t most_tokens, most_fixed; /* words that one row needs at most: of tokens, of all else */
    int32_t n_lists;                 /* words of this round, so far */
    int32_t n_moved;                 /* how often it has grown, and so moved */
    struct sb_samplers view;
};

/* Whether the greedy rule alone does not choose this sequence's next token. */
int sb_seq_has_sampler(const struct sb_seq *seq);
/* Makes room for as many sequences like this one as a round may have rows. `columns`: those of the
 * cache, more tokens than which no round can list. E_NOMEM, E_DEVICE. */
int32_t sb_sampler_block_reserve(struct sb_sampler_block *block, struct specbatch_model *model,
                                 const struct sb_mem *mem, const struct sb_seq *seq,
                                 int64_t columns);
void sb_sampler_block_free(struct sb_sampler_block *block, struct specbatch_model *model,
                           const struct sb_mem *mem);
/* Fills in the samplers of a round's rows. tokens: of the round, on the device, `stride` for a
 * row */
void sb_sampler_block_fill(struct sb_sampler_block *block, const struct specbatch_model *model,
                           const struct sb_round_row *rows, int32_t n_rows, const int32_t *tokens,
                           int32_t stride);
/* Rounds the number of words of the round's lists up, so that rounds of one shape upload as many.
 */
void sb_sampler_block_pad(struct sb_sampler_block *block);
/* Gives row b, after that, its masks, which begin at this word of them. */
void sb_sampler_block_mask(struct sb_sampler_block *block, int32_t b, int32_t at);
/* Bytes of the block that the round has filled. */
size_t sb_sampler_block_used(const struct sb_sampler_block *block);

#endif
