/*
 * The contract as a property that random traces test. A trace is a random series of submissions,
 * steps and cancellations on one pool. The tokens and log-probabilities of every request are
 * compared, by memcmp, with those of plain decoding at batch 1.
 *
 * A world holds what traces draw from: a few tiny models, each opened in every compute class and at
 * every SIMD level of this machine, or on a device (place.h), some prompts, and for each model,
 * class and prompt the oracle: what plain decoding at batch 1 on one thread gives when nothing
 * stops it. The oracle decodes at the best level, so a trace at another one also compares the two
 * levels. It is asked when a trace first needs it. Where a request must end is worked out here and
 * not by the library: at the first end-of-sequence or stop id of the oracle's tokens, or after
 * max_new of them.
 */
#ifndef TRACE_H
#define TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "specbatch.h"

enum {
    TRACE_PROMPTS = 24,
    TRACE_CLASSES = 3,                       /* at most; the first is F32 on the CPU */
    TRACE_EMULATED = SPECBATCH_SIMD_AMX + 1, /* the matrix unit, emulated (emulated_tiles.h) */
    TRACE_LEVELS,                            /* SPECBATCH_SIMD_AUTO, the four levels, and that */
    TRACE_ORACLE = 64,                       /* tokens that the oracle generates for a prompt */
    TRACE_MODELS = 5,                        /* the tree's own */
    TRACE_GIVEN = TRACE_MODELS /* the checkpoint that the environment names (place.h) */
};

struct trace_prompt {
    int32_t ids[420];
    int32_t n;
};

/* A checkpoint in one compute class. */
struct trace_model {
    char path[600];
    int32_t compute;                       /* SPECBATCH_COMPUTE_* */
    specbatch_model *target[TRACE_LEVELS]; /* by level; NULL: this machine lacks it */
    specbatch_model *draft[TRACE_LEVELS];  /* the checkpoint's own draft, or NULL */
    specbatch_model *oracle;               /* decodes plainly: target[0], or the same on the CPU */
    int32_t asked[TRACE_PROMPTS];          /* whether the oracle's answer is below */
    int32_t tokens[TRACE_PROMPTS][TRACE_ORACLE]; /* the first n_new of them count */
    float logprobs[TRACE_PROMPTS][TRACE_ORACLE];
};

struct trace_world {
    int n_classes;                 /* one on a device, whose class place.h gives */
    int n_models;                  /* TRACE_MODELS, and one more where the environment names it */
    int n_prompts;                 /* of `prompts`, the first ones that traces use */
    int max_requests;              /* of one trace */
    int32_t n_new;                 /* tokens of the oracle, and the most that a request asks for */
    uint64_t n_requests, n_tokens; /* that traces have compared and found equal so far */
    struct trace_model models[TRACE_CLASSES][TRACE_MODELS + 1];
    struct trace_prompt prompts[TRACE_PROMPTS];
};

/* What the seed does not choose. The first five and fixed_k: -1 leaves it to the seed. */
struct trace_bias {
    int32_t policy, model, class, level, draft; /* class: an index; draft: enum trace_draft */
    int32_t min_draft_len;
    int32_t roomy;         /* max_len is far above need, so that faults stay inside the caches */
    int32_t no_invariants; /* pool_check is not called, so that results alone can catch a fault */
    int32_t fixed_k;       /* 1: K is fixed, which repeats the rounds of a run; 0: K is adaptive */
};
enum trace_draft {
    TRACE_DRAFT_NONE,
    TRACE_DRAFT_MODEL,    /* the checkpoint's own draft, or the target where it has none */
    TRACE_DRAFT_SELF,     /* the target */
    TRACE_DRAFT_STRANGER, /* the next model of the world, in any class */
    TRACE_DRAFT_ORACLE,   /* a callback that knows what plain decoding gives */
    TRACE_DRAFT_NGRAMS,   /* what followed the last few tokens earlier in the same text */
    TRACE_DRAFTS
};
/* The bias of traces that may be anything. */
#define TRACE_ANY                                                                       \
    {                                                                                   \
        .policy = -1, .model = -1, .class = -1, .level = -1, .draft = -1, .fixed_k = -1 \
    }

/* dir: the folder of the tiny models. Returns 0, or -1 with the library's last error set. */
int trace_world_open(struct trace_world *world, const char *dir);
/* Asks the oracle for everything in one class at once. A test that breaks the library on purpose
 * calls this before it does so. Returns as trace_world_open does. */
int trace_world_ask(struct trace_world *world, int class);
void trace_world_close(struct trace_world *world);

/* Runs the trace of a seed. Returns 0 when everything was equal; 1 when something differed or
 * failed, and then `why` says what, and with which parameters. */
int trace_run(struct trace_world *world, uint64_t seed, const struct trace_bias *bias, char *why,
              size_t size);

/* The tests' random numbers, by splitmix64. */
uint64_t trace_random(uint64_t *state);

#endif
