/*
 * Traces of random requests (random_request.h) on one target: submissions at any time, steps and
 * cancellations in a pool of random options, with a random draft. Every result is compared with
 * plain decoding of its request alone.
 * In every step those that waited get slots in the order of their turns (docs/requests.md).
 */
#ifndef REQUEST_TRACE_H
#define REQUEST_TRACE_H

#include "support/random_request.h"

enum { REQUEST_TRACE_JOBS = 12 };

/* What happened in traces so far. A test asks whether it tested anything. */
struct request_counts {
    uint64_t requests, tokens, sampled, cancelled, rejected, accepted, hits, preemptions;
    uint64_t masked, failed, forced; /* failed: by a mask that allowed nothing */
    uint64_t stopped;                /* of those with stop strings */
    uint64_t several, shared;        /* one of several answers; prompts taken from another */
    uint64_t scored;                 /* whose prompt has log-probabilities */
    uint64_t chosen, late;           /* the best of some; whose time was over */
    uint64_t overtaken;              /* rounds in which a later request got a slot first */
};

struct request_trace {
    specbatch_model *target, *small; /* small: a draft model, or NULL */
    specbatch_model *oracle;         /* decodes plainly; NULL: the target does */
    int policy;                      /* SPECBATCH_POLICY_*; -1: any */
    int one_thread;                  /* no pool has more */
    struct request_counts counts;
    struct random_request jobs[REQUEST_TRACE_JOBS];
};

/* Draws the requests of a seed, and has them decoded plainly. Returns a status. */
int32_t request_trace_ask(struct request_trace *trace, uint64_t seed);
/* Runs them, after request_trace_ask of the same seed. Returns 0; or 1 when something differed or
 * failed, and then `why` says what. */
int request_trace_run(struct request_trace *trace, uint64_t seed, char *why, size_t size);

#endif
