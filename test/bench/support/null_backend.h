/*
 * A backend that computes nothing. A pool that runs on it is the real scheduler without the
 * arithmetic. Time is a simulated clock, which passes and realignment advance by a cost model. How
 * many proposals of a row are accepted is drawn at random.
 *
 *   a pass          c_pass * max(1, tokens / ridge)    the weights are read once; from `ridge`
 *                                                      tokens on arithmetic takes longer
 *   a realignment   c_realign * bytes moved            the row's columns in each model's cache
 *
 * c_pass is c_verify for the target and c_draft for the draft. All tokens are 0; a model has no
 * weights and never ends a sequence.
 */
#ifndef BENCH_NULL_BACKEND_H
#define BENCH_NULL_BACKEND_H

#include "model/model.h"

struct null_costs {
    double c_verify, c_draft, ridge;
    double c_realign;
    double target_column, draft_column; /* bytes of one column of the cache */
    double acceptance;                  /* chance that a proposal is right */
};

struct null_clock {
    struct null_costs costs;
    double now;      /* the simulated time */
    double moved;    /* bytes that realignment has moved so far */
    uint64_t random; /* state of the random numbers */
};

/* The next random number in [0, 1) of the generator with this state. */
double null_uniform(uint64_t *random);

/* Makes a model on that backend, with one layer of one head and a context of `context` positions,
 * in the caller's memory. It need not be closed. */
void null_model(struct specbatch_model *model, struct null_clock *clock, int32_t context);
/* The same with the shapes of a real model, NULL_LAYERS layers at most, so that a pool takes as
 * much as on the CPU but for some scratch memory. `cell`: bytes of an element of the caches. One
 * such model at a time. */
enum { NULL_LAYERS = 128 };
void null_model_of(struct specbatch_model *model, struct null_clock *clock,
                   const struct sb_config *config, size_t cell);

#endif
