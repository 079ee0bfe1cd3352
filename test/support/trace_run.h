/*
 * One trace while it runs. trace.c draws it and makes its steps, trace_memory.c does the part that
 * is about memory, and both stand on trace_run.c, where tokens go to the pool and come back.
 *
 * The jobs of a trace go through one pool, or through two, one after the other:
 *
 *   jobs   0 .. first_job - 1            first_job .. n_submitted - 1     .. n_jobs - 1
 *          the first pool's, collected   the pool's own, ids from 1 on    to be submitted
 */
#ifndef TRACE_RUN_H
#define TRACE_RUN_H

#include "support/trace.h"

enum {
    TRACE_VOCAB = 517,   /* of all models */
    TRACE_REQUESTS = 24, /* of a trace, at most */
    TRACE_PINNED = 3,    /* pins of a pool, at most */
    TRACE_SOURCES = 4    /* of a list: n-grams, the oracle, a table and a model */
};

struct trace_job {
    int prompt;
    int32_t max_new, draft_len, stop[2];
    size_t n_stop;
    uint32_t flags, draft_sources;
    uint64_t id;
    int cancelled, collected;
    int shown, retired; /* what the oracle draft was told of it */
};

struct trace_run {
    struct trace_world *world;
    struct trace_model *model;
    const struct trace_bias *bias;
    uint64_t state;
    int first_source; /* which source of a list is asked first; the others follow in turn */
    int m, level, draft_kind, draft_class, hostile; /* m: the model's place in its class */
    int32_t accept_percent; /* chance that a proposal of oracle_draft is right */
    specbatch_ngram_options ngrams;
    specbatch_pool_options options;
    specbatch_pool *pool;
    struct trace_job jobs[TRACE_REQUESTS];
    int n_jobs, n_submitted, n_collected, first_job;
    int crowded;         /* long answers, in slots that grow and have no room for all */
    int change_at;       /* a fresh pool takes over when so many jobs are done; n_jobs: none */
    int one_by_one;      /* each job is collected before the next is submitted */
    uint64_t hit_tokens; /* that counter when the last job was submitted */
    int badly_told;      /* notices that the oracle draft should not have got */
    uint64_t pins[TRACE_PINNED];
    int n_pins;
    struct trace_prompt session; /* the tokens of the saved session; n = 0: none was saved */
    int session_job;             /* whose tokens they are */
    size_t session_kept;         /* of how many of them it has the columns */
    char *why;
    size_t size;
};

/* A random number from 0 to n - 1. */
int32_t trace_below(struct trace_run *run, int32_t n);
/* Ends a trace: writes what went wrong, and with which parameters. Returns 1. */
int trace_complain(struct trace_run *run, const char *what, long a, long b, long c);
/* A counter of the pool; 0 if there is none of this name. */
uint64_t trace_stat(const struct trace_run *run, const char *name);
/* The prompt of a job. */
const struct trace_prompt *trace_text_of(const struct trace_run *run, const struct trace_job *job);
/* The model that proposes, or NULL. */
specbatch_model *trace_draft_model(const struct trace_run *run);
/* What proposes, or NULL; the caller releases it. Returns a status. */
int32_t trace_make_draft(struct trace_run *run, specbatch_draft **draft);
/* Collects what has finished and compares it. Returns 0, or 1 after a complaint. */
int trace_collect(struct trace_run *run);

/* trace_world.c. Which text a turn answers; -1: text p is no turn. */
int32_t trace_turn_to(int p);

/* trace_memory.c. Draws the options that are about memory, when all others have been. Returns a
 * status. */
int32_t trace_choose_memory(struct trace_run *run, const specbatch_draft *draft);
/* Now and then: a pin, or a session saved or loaded. Returns 0, or 1 after a complaint; so do the
 * rest. */
int trace_memory_event(struct trace_run *run);
/* Saves a session of a request of this pool; loads the saved one; has a pool of another class
 * refuse it. */
int trace_save(struct trace_run *run);
int trace_load(struct trace_run *run);
int trace_try_other_class(struct trace_run *run);
/* Adds the pool's counters to the events of the world. */
int trace_count_pool(struct trace_run *run);

#endif
