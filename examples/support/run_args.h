/*
 * The options that the programs have in common that run files of prompts (generate and bench):
 * which models and how they compute, which prompts, what is wished of each answer, and what the
 * caches take. Each group is rows for a table of options (args.h), which fill in a part of the
 * struct; what a group needs checked or opened is a function below.
 */
#ifndef EX_RUN_ARGS_H
#define EX_RUN_ARGS_H

#include "args.h"
#include "encode.h"
#include "run.h"
#include "specbatch.h"

struct ex_run_args {
    /* models */
    const char *target_dir, *plan_file;
    struct ex_strings drafts;
    int32_t draft_min_percent, threads, device, compute, draft_compute, kv;
    int32_t weights, draft_weights, prefill, simd;
    /* prompts */
    const char *prompts_file;
    int32_t limit, chat, no_think, date, effort;
    /* what is wished of those whose lines do not say otherwise */
    struct ex_wish wish;
    /* caches */
    int32_t cache_columns, grow_slots;
    uint64_t prefix_bytes;
};

/* Add rows behind the *n that there are. The first call sets defaults. */
void ex_model_options(struct ex_option *rows, size_t *n, struct ex_run_args *args);
void ex_prompt_options(struct ex_option *rows, size_t *n, struct ex_run_args *args);
void ex_wish_options(struct ex_option *rows, size_t *n, struct ex_run_args *args);
void ex_cache_options(struct ex_option *rows, size_t *n, struct ex_run_args *args);

/* What --help says of a line of a file of prompts. */
#define EX_PROMPTS_HELP                                                                            \
    "A line of FILE is a JSON object with one of \"prompt\" (a text), \"turns\" (texts, the "      \
    "first is\ntaken) and \"ids\" (tokens). It may also have an \"id\" for the result (else the "  \
    "line's number),\nand, which go before the options, \"max_new\", \"min_new\", \"draft_len\", " \
    "\"draft_sources\", \"n\",\n\"best_of\", \"priority\", \"deadline_ms\", \"ignore_eos\", "      \
    "\"logprobs\", \"filtered_logprobs\",\n\"top_logprobs\", \"stop\", \"stop_ids\", "             \
    "\"temperature\", \"seed\", \"top_k\", \"top_p\", \"typical_p\",\n\"min_p\", "                 \
    "\"repeat_penalty\", \"presence_penalty\", \"frequency_penalty\", \"penalty_window\",\n"       \
    "\"spare_prompt\", \"bias\"."

/* Checks what needs no model. 1, or 0 after a line on stderr. */
int ex_run_args_check(const struct ex_run_args *args);
/* Sets the pool's options that are among these. */
void ex_run_args_pool(specbatch_pool_options *pool, const struct ex_run_args *args);
/* What becomes of the prompts' texts, and what their lengths have to fit: of the target's context,
 * max_len positions, 0: all. */
struct ex_prompt_rules ex_run_args_rules(const struct ex_run_args *args,
                                         const specbatch_model *target, int32_t max_len);
/* Opens the target and what proposes, NULL if no draft was named. 1, or 0 after a line on stderr.
 * Either way the caller closes what is there. */
int ex_open_models(specbatch_model **target, specbatch_draft **draft,
                   const struct ex_run_args *args);

#endif
