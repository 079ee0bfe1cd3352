/*
 * The contract as a property that random traces test. A trace is a random series of submissions,
 * steps and cancellations on a pool. The tokens and log-probabilities of every request are
 * compared, by memcmp, with those of plain decoding at batch 1.
 *
 * A world holds what traces draw from: a few tiny models, each opened in every class and at every
 * SIMD level of this machine, or on a device (place.h), some prompts, and for each model, class and
 * prompt the oracle: what plain decoding at batch 1 on one thread gives when nothing stops it, in a
 * pool that keeps no prefixes and has room for all. The oracle decodes at the best level, so a
 * trace at another one also compares the two levels. It is asked when a trace first needs it. Where
 * a request must end is worked out here and not by the library: at the first end-of-sequence or
 * stop id of the oracle's tokens, or after max_new of them.
 *
 * A class is a compute class and a type of keys and values. Some models have quantised weights:
 * checkpoints that are quantised when they are opened, and GGUF files of all quantised types
 * (quantised_model.h). The draft may have others than the target. Many prompts begin alike, and end
 * or part at the borders of blocks of 16, 32 and 64 tokens or beside them (trace_world.c has them).
 * Some are the later turns of conversations, which quote the oracle's answer to another prompt.
 *
 * Memory is drawn too (trace_memory.c): columns of the caches from one longest slot to plenty,
 * slots that grow or not, a budget, and bytes for prefixes from one block to plenty; pins; sessions
 * that are saved, and loaded into the same pool or into a fresh one, which then takes over what is
 * left of the trace, at another SIMD level too. A session of another class must be refused. A trace
 * counts what happened (enum trace_event), so that a test can tell whether it tested anything.
 */
#ifndef TRACE_H
#define TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "specbatch.h"

enum {
    TRACE_PROMPTS = 24,
    TRACE_TURNS = 6, /* later turns of conversations */
    TRACE_TEXTS = TRACE_PROMPTS + TRACE_TURNS,
    TRACE_CLASSES = 7,                       /* at most; the first is all F32 on the CPU, */
    TRACE_BF16 = 1,                          /* this one all BF16, */
    TRACE_INT8 = 5,                          /* and this one INT8 */
    TRACE_EMULATED = SPECBATCH_SIMD_AMX + 1, /* the matrix unit, emulated (emulated_tiles.h) */
    TRACE_LEVELS,                            /* SPECBATCH_SIMD_AUTO, the four levels, and that */
    TRACE_ORACLE = 64,                       /* tokens that the oracle generates for a prompt */
    TRACE_MODELS = 12,                       /* the tests' own */
    TRACE_WINDOWED = 5,                      /* of those, that with sliding windows, */
    TRACE_QUANTISED = 6,                     /* the first with quantised weights, */
    TRACE_GGUF = 9,                          /* the first GGUF file of random_models.h, */
    TRACE_MIXTURE = 10,                      /* that with experts, */
    TRACE_CAPPED = 11                        /* and that with soft caps */
};

struct trace_prompt {
    int32_t ids[480]; /* a session has a prompt and an answer */
    int32_t n;
};

/* A checkpoint with one kind of weights, in one class. Its texts are the prompts of the world, then
 * its own turns. */
struct trace_model {
    char path[600];
    int32_t compute, kv;                    /* SPECBATCH_COMPUTE_*, SPECBATCH_KV_* */
    int32_t draft_compute;                  /* AUTO: that of the target */
    int32_t weights, draft_weights;         /* SPECBATCH_WEIGHTS_* */
    specbatch_model *target[TRACE_LEVELS];  /* by level; NULL: this machine lacks it */
    specbatch_model *draft[TRACE_LEVELS];   /* the checkpoint's own draft, or NULL */
    specbatch_model *oracle;                /* decodes plainly: target[0], or the same on the CPU */
    struct trace_prompt turns[TRACE_TURNS]; /* made when the oracle is asked for them */
    int32_t asked[TRACE_TEXTS];             /* whether the oracle's answer is below */
    int32_t tokens[TRACE_TEXTS][TRACE_ORACLE]; /* the first n_new of them count */
    float logprobs[TRACE_TEXTS][TRACE_ORACLE];
};

/* What traces count. Those up to TRACE_MOVED are the pool's own counters (docs/stats.md). */
enum trace_event {
    TRACE_HITS,
    TRACE_HIT_TOKENS,
    TRACE_EVICTIONS,
    TRACE_PREEMPTIONS,
    TRACE_MOVED,
    TRACE_ANSWERS,      /* turns for which more was taken from the cache than the prompt quoted */
    TRACE_CANCELLED,    /* requests that were cancelled before they ended */
    TRACE_PINS,         /* prefixes pinned */
    TRACE_UNPINS,       /* and let go again */
    TRACE_SAVED,        /* sessions saved that had columns */
    TRACE_LOADED,       /* sessions loaded into the pool that had saved them */
    TRACE_FRESH_LOADED, /* sessions loaded into a fresh pool */
    TRACE_SESSION_HITS, /* of those: the first request took columns of the session */
    TRACE_REFUSED,      /* sessions of another class that were refused */
    TRACE_MIXED_TYPES,  /* targets and drafts whose weights have no type in common */
    TRACE_MIXED_MAPS,   /* targets with a matrix of several types */
    TRACE_EVENTS
};

struct trace_world {
    int n_classes;                 /* one on a device, whose class place.h gives */
    int n_models;                  /* the tests' own, and what the environment names (place.h) */
    int given;                     /* which one is that; -1: none */
    int n_prompts;                 /* of `prompts`, the first ones that traces use */
    int n_turns;                   /* of each model's turns, the same */
    int max_requests;              /* of one trace */
    int32_t n_new;                 /* tokens of the oracle, and the most that a request asks for */
    uint64_t n_requests, n_tokens; /* that traces have compared and found equal so far */
    uint64_t events[TRACE_EVENTS]; /* in all traces so far */
    uint64_t targets[SB_DTYPES];   /* traces so far whose target has weights of a type, */
    uint64_t drafts[SB_DTYPES];    /* and those whose draft has */
    char folder[64];               /* where sessions are saved */
    struct trace_model models[TRACE_CLASSES][TRACE_MODELS + 1];
    struct trace_prompt prompts[TRACE_PROMPTS];
};

/* What the seed does not choose. The first five, memory and fixed_k: -1 leaves it to the seed. */
struct trace_bias {
    int32_t policy, model, class, level, draft; /* class: an index; draft: enum trace_draft */
    int32_t min_draft_len;
    int32_t roomy;  /* slots are far longer than need, so that faults stay inside of them */
    int32_t scene;  /* enum trace_scene */
    int32_t memory; /* 0: the caches have plenty of room, and nothing is kept; 1: prefixes are
                       kept in every trace */
    int32_t no_invariants; /* pool_check is not called, so that results alone can catch a fault */
    int32_t fixed_k;       /* 1: K is fixed, which repeats the rounds of a run; 0: K is adaptive */
    int32_t most_threads;  /* of a pool */
};
enum trace_draft {
    TRACE_DRAFT_NONE,
    TRACE_DRAFT_MODEL,    /* the checkpoint's own draft, or the target where it has none */
    TRACE_DRAFT_SELF,     /* the target */
    TRACE_DRAFT_STRANGER, /* the next model of the world, in any class */
    TRACE_DRAFT_ORACLE,   /* a callback that knows what plain decoding gives */
    TRACE_DRAFT_NGRAMS,   /* what followed the last few tokens earlier in the same text */
    TRACE_DRAFT_LIST,     /* those two and the checkpoint's own draft; requests choose among them */
    TRACE_DRAFT_TABLE,    /* what most often follows the last few tokens in the world's texts */
    TRACE_DRAFT_SURE,     /* the checkpoint's own draft, as long as it is sure */
    TRACE_DRAFTS
};
/* What a trace is about. Mixed ones are about all of it, now and then. */
enum trace_scene {
    TRACE_MIXED,
    TRACE_TALK,      /* a conversation, turn by turn, of which all is kept */
    TRACE_CROWD,     /* long answers, in slots that grow and have no room for all of them */
    TRACE_TAKEOVER,  /* a fresh pool takes over in the middle, and loads a session */
    TRACE_STRANGERS, /* texts that share nothing, in turn, and room for one block of one of them */
    TRACE_SCENES
};
/* The bias of traces that may be anything. */
#define TRACE_ANY                                                                       \
    {                                                                                   \
        .policy = -1, .model = -1, .class = -1, .level = -1, .draft = -1, .memory = -1, \
        .fixed_k = -1, .most_threads = 3                                                \
    }

/* dir: the folder of the tiny models. Returns 0, or -1 with the library's last error set. */
int trace_world_open(struct trace_world *world, const char *dir);
/* Asks the oracle for everything in one class at once. A test that breaks the library on purpose
 * calls this before it does so. Returns as trace_world_open does. */
int trace_world_ask(struct trace_world *world, int class);
void trace_world_close(struct trace_world *world);
/* A text of a model: a prompt of the world, or a turn that has been made. */
const struct trace_prompt *trace_text(const struct trace_world *world,
                                      const struct trace_model *model, int p);
/* Has the oracle decode a text, unless it has; so a turn is made too. Returns as trace_world_open
 * does. */
int trace_ask(const struct trace_world *world, struct trace_model *model, int p);
/* The types of a model's weights: bit i is set for weights of type i. *mixed becomes 1 when a
 * matrix has rows of several types, else 0. */
unsigned trace_types(const specbatch_model *model, int *mixed);
/* What an event is called. */
const char *trace_event_name(int event);

/* Runs the trace of a seed. Returns 0 when everything was equal; 1 when something differed or
 * failed, and then `why` says what, and with which parameters. */
int trace_run(struct trace_world *world, uint64_t seed, const struct trace_bias *bias, char *why,
              size_t size);

/* The tests' random numbers, by splitmix64. */
uint64_t trace_random(uint64_t *state);

#endif
