/* The options of sampling. Their ranges are the library's to check. */
#include "sampling_args.h"

#include <string.h>

void ex_options_add(struct ex_option *rows, size_t *n_rows, const struct ex_option *more, size_t n)
{
    memcpy(rows + *n_rows, more, n * sizeof *rows);
    *n_rows += n;
}

void ex_sampling_options(struct ex_option *rows, specbatch_sampling *sampling)
{
    const struct ex_option options[EX_SAMPLING_OPTIONS] = {
        {"--temperature", "T", EX_FLOAT, &sampling->temperature, 0, 0,
         "sample at this temperature; 0: the most probable token (0)"},
        {"--seed", "N", EX_SEED, &sampling->seed, 0, 0,
         "what is sampled, the same for the same number (0)"},
        {"--top-k", "N", EX_INT, &sampling->top_k, 0, INT32_MAX,
         "among the N most probable tokens (all)"},
        {"--top-p", "P", EX_FLOAT, &sampling->top_p, 0, 0,
         "among the most probable tokens with this probability together (1)"},
        {"--typical-p", "P", EX_FLOAT, &sampling->typical_p, 0, 0,
         "the same with the most typical tokens (1)"},
        {"--min-p", "P", EX_FLOAT, &sampling->min_p, 0, 0,
         "among tokens at least this times as probable as the first (0)"},
        {"--repeat-penalty", "F", EX_FLOAT, &sampling->repetition_penalty, 0, 0,
         "divides the logits of tokens that have occurred (1)"},
        {"--presence-penalty", "F", EX_FLOAT, &sampling->presence_penalty, 0, 0,
         "taken from the logits of tokens that the answer has (0)"},
        {"--frequency-penalty", "F", EX_FLOAT, &sampling->frequency_penalty, 0, 0,
         "the same, as many times as it has them (0)"},
        {"--penalty-window", "N", EX_INT, &sampling->penalty_window, 1, 3072,
         "how many tokens penalties look back (3072)"},
    };

    *sampling = (specbatch_sampling)SPECBATCH_SAMPLING_INIT;
    memcpy(rows, options, sizeof options);
}
