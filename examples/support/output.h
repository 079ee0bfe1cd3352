/* Writes results and statistics as JSON. Floats have nine digits, so that reading them gives the
 * same float again. */
#ifndef EX_OUTPUT_H
#define EX_OUTPUT_H

#include <stddef.h>
#include <stdio.h>

#include "run.h"
#include "specbatch.h"

/* Writes one line: {"id", "answer", "ids", "text", "finish", "logprobs", "top_logprobs",
 * "prompt_logprobs", "prompt_top_logprobs", "perplexity"}, id being the prompt's. It has "answer"
 * if a prompt has several, "text" if there is a tokenizer, log-probabilities if they were asked
 * for, and "error", the status, if the request failed. Returns 1, or 0 when writing failed. */
int ex_write_result(FILE *out, const char *id, int is_one_of_several,
                    const specbatch_result *result);

struct ex_stats {
    const struct ex_run *run;
    const struct ex_settings *settings;
    const char *target, *draft; /* as given; draft may be NULL */
    const char *fingerprint;
    int verified; /* results were verified; n_equal says how many were equal */
    size_t n_equal;
};

/* Writes one object: settings, totals, ratios and every counter of the pool. Returns 1, or 0 when
 * writing failed. */
int ex_write_stats(FILE *out, const struct ex_stats *stats);

#endif
