/* Rounds for the tests of sampling: one row with one sampler, and random ones of several rows. */
#ifndef SBTEST_SAMPLE_ROUNDS_H
#define SBTEST_SAMPLE_ROUNDS_H

#include "backend/backend.h"

/* Nothing is in force but the noise, at temperature 1. */
extern const struct sb_sampler sample_plain;

/* A round of one row with one sampler, whose position is that after `n_before` proposals. */
struct sample_one {
    struct sb_sampler sampler;
    int32_t out, id_at[1], pos[1], tokens[16];
    struct sb_samplers all; /* of what is above; the caller adds lists and masks */
};

void sample_one_init(struct sample_one *one, const struct sb_sampler *sampler, int32_t n_before);

/* A round of several rows, each with up to SAMPLE_PLACES - 1 proposals, all of them sampled for.
 * Row i of the logits belongs to another token, which belongs to another place. */
enum {
    SAMPLE_ROWS = 5,
    SAMPLE_PLACES = 4,
    SAMPLE_OUT = SAMPLE_ROWS * SAMPLE_PLACES,
    SAMPLE_STRIDE = 203,
    SAMPLE_WORDS = 7,
    SAMPLE_LISTED = 30
};

struct sample_round {
    struct sb_sampler rows[SAMPLE_ROWS];
    int32_t lists[SAMPLE_ROWS * 100], n_lists;
    uint32_t masks[SAMPLE_ROWS * SAMPLE_PLACES * SAMPLE_WORDS];
    int32_t tokens[SAMPLE_OUT], id_at[SAMPLE_OUT], pos[SAMPLE_OUT], out[SAMPLE_OUT], at[SAMPLE_OUT];
    struct sb_samplers all;
    float logits[SAMPLE_OUT * SAMPLE_STRIDE];
    int32_t limit;
};

/* Draws samplers with everything in force, and logits of which many are equal. What is beyond the
 * limit is larger than all of them, or NaN. */
void sample_round_draw(struct sample_round *round, int32_t limit);
int32_t sample_below(int32_t n); /* of [0, n) */

#endif
