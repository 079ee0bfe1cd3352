/* The rule of sampling (struct sb_sampler in backend.h), written a second time: with arrays of the
 * vocabulary's size, a sort for each filter, and no bound that saves work. */
#ifndef SBTEST_SAMPLE_REFERENCE_H
#define SBTEST_SAMPLE_REFERENCE_H

#include "backend/backend.h"

/* What is left of a row, as an array of ids in the order of the last filter. */
struct sample_left {
    int32_t n;
    int32_t *ids;  /* [n] */
    float *depth;  /* [limit]; infinity where an id is not allowed */
    float *weight; /* [limit] */
};

/* The token for row i of the logits: its id, or SB_PICK_NONE. No logit may be NaN. *logprob: its
 * log-probability, in double. left: NULL, or becomes what the filters leave, for the caller to free
 * by sample_left_free; that is for samplers whose temperature is not 0. */
int32_t sample_reference(double *logprob, struct sample_left *left, const float *logits,
                         int32_t limit, const struct sb_samplers *all, int32_t i);
void sample_left_free(struct sample_left *left);

/* Word `word` of Philox4x32-10. */
uint32_t sample_reference_philox(uint64_t key, const uint32_t counter[4], int word);

#endif
