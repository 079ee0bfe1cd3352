/*
 * What the programs of `make paper` share: the pair of models, the prompts, a measured run, and its
 * line in a CSV file.
 *
 * A cell is one run of all prompts through one pool, and its outcome is what was measured. The pool
 * counts over the whole run. The outcome also has the sums of these counters over decode rounds
 * alone, rounds without a prompt token in the target's pass and without a pass of the draft over a
 * prompt, since those tell what a round costs. Shares and ratios are computed later, from the CSV
 * files.
 *
 * Every outcome is compared with a reference, a plain run of the same prompts. E is the share of
 * requests whose tokens are all equal, P the mean share of the reference's tokens before the first
 * difference, both in percent.
 */
#ifndef BENCH_STUDY_H
#define BENCH_STUDY_H

#include <stdio.h>

#include "examples/support/prompts.h"
#include "examples/support/run.h"

/* The values of --part, in the order of their names. */
enum { STUDY_ALL, STUDY_GRID, STUDY_CAPTIONS, STUDY_ABLATION };

struct study {
    const char *demo, *prompts_file, *captions_file, *out_dir; /* captions_file: NULL without */
    int32_t quick, threads;
    /* SPECBATCH_COMPUTE_*: F32 unless --compute is given, since what AUTO chooses differs between
     * machines, whose figures are to be compared. */
    int32_t compute;
    int32_t part; /* STUDY_* */
    specbatch_model *target, *draft;
    struct ex_prompts prompts;
    int32_t verify_tokens, speed_tokens; /* new tokens of a request */
};

struct cell {
    const char *method; /* its name in the CSV file */
    int32_t policy, batch, window, draft_len, max_new;
    int32_t max_len;                     /* 0: as long as the longest prompt needs */
    uint32_t flags;                      /* of the pool, beside SPECBATCH_POOL_FIXED_K */
    int32_t chooses_k;                   /* 1: K is adaptive, draft_len at most; 0: it is fixed */
    const char *pair;                    /* name of the models; NULL: the demo pair */
    double accept;                       /* the acceptance that is set; 0: the draft's own */
    void (*adapt)(specbatch_pool *pool); /* changes the new pool before it runs, or NULL */
};

struct outcome {
    struct ex_run run;
    uint64_t *last;   /* [specbatch_stat_count()] the counters after the last step */
    uint64_t *decode; /* [specbatch_stat_count()] their sums over decode rounds */
    int32_t draft_len;
};

/* Opens both models in the study's class. Returns 1, or 0 after a line on stderr. */
int study_open_models(struct study *study, const char *target, const char *draft);

/* Reads the command line and opens models and prompts. Returns 1, 0 after a line on stderr, or -1
 * after --help. */
int study_open(struct study *study, int argc, char **argv, const char *intro);
void study_close(struct study *study);

/* Loads the prompts of a file, which must leave room for `max_new` tokens in the context. A quick
 * study keeps `quick_limit` of them, as study_thin does. Returns 1, or 0 after a line on stderr. */
int study_load(const struct study *study, struct ex_prompts *out, const char *file, int32_t max_new,
               size_t quick_limit);

/* Runs a cell. Returns 1, or 0 after a line on stderr; the caller calls outcome_free in either
 * case. */
int study_run(const struct study *study, const struct ex_prompts *prompts, const struct cell *cell,
              struct outcome *outcome);
void outcome_free(struct outcome *outcome);

/* Opens NAME.csv in the study's folder. study_csv also writes the names of study_line's columns.
 * NULL after a line on stderr. */
FILE *study_file(const struct study *study, const char *name);
FILE *study_csv(const struct study *study, const char *name);
/* Writes a cell's line, and a short one to stdout. E and P come from the comparison with
 * `reference`, an outcome of the same prompts. */
void study_line(FILE *csv, const struct cell *cell, const struct outcome *outcome,
                const struct outcome *reference);

/* Computes E and P over the first `first` tokens of each request. */
void study_compare(const struct outcome *outcome, const struct outcome *reference, int32_t first,
                   double *exact, double *partial);

/* Keeps `keep` prompts, one of every n / keep, and frees the others. */
void study_thin(struct ex_prompts *prompts, size_t keep);

#endif
