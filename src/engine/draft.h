/*
 * Where proposals come from: a draft model, the text itself, a table of others, functions of the
 * caller's, several of these in turn, or nothing.
 *
 * Anything may propose. A wrong proposal costs time and never changes a token, so a draft need not
 * be exact, its cache may lag behind the sequence, and it may propose less than it is asked for.
 *
 *   struct specbatch_draft   a source, as the caller has it: immutable, with counted references,
 *                            shared by pools
 *   struct sb_draft          what one pool makes of a source: caches, tables and buffers for its
 *                            rows. A pool has exactly one, perhaps that which never proposes, or
 *                            that of a list, which has one for each of its sources.
 *
 * To add a source: a file draft_*.c with its sb_source_ops and sb_draft_ops, a line under "The
 * sources" below, and a public function in api_draft.c that creates it. Nothing else in the library
 * asks what kind of draft a pool has, except whether it has a model whose cache must be realigned,
 * and, for the adaptive length, whether its rounds differ in what they cost.
 */
#ifndef SB_DRAFT_H
#define SB_DRAFT_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/round.h"

/* ------------------------------------------------------------ a pool's draft */

struct sb_draft;

struct sb_draft_ops {
    /* Called after sb_round_begin and before anything of the round runs. On entry n_draft of each
     * row is what the scheduler asks for; prepare lowers it to what the draft will propose, and
     * raises round->n_steps to the largest. Rows of which nothing is asked it leaves as they are.
     * Proposals that the host already knows it writes into round->tokens. If the draft can never
     * propose anything for a sequence again, it sets that sequence's draft_sources to 0.
     * E_CANCELLED, E_DEVICE. */
    int32_t (*prepare)(struct sb_draft *draft, struct sb_round *round);
    /* Computes the proposals on the device: tokens[1 .. n_draft] of every row. NULL: prepare has
     * written all of them. E_DEVICE. */
    int32_t (*issue)(struct sb_draft *draft, struct sb_round *round);
    /* A sequence that prepare has marked as `shown` has ended, or will never be decoded again.
     * Call it by sb_draft_retire. NULL: the draft marks none. */
    void (*retire)(struct sb_draft *draft, const struct sb_seq *seq);
    void (*free)(struct sb_draft *draft);
};

struct sb_draft {
    const struct sb_draft_ops *ops;
    struct sb_mem mem;
    struct sb_runner *runner; /* the draft model's, whose cache is realigned together with the
                                 target's; NULL: no draft model */
    int32_t blends;           /* 1: it has a model that rounds with proposals may do without */
    uint64_t passes;          /* forward passes of the draft model so far */
    uint64_t caught_up;       /* tokens in those of them that closed long gaps */
    uint64_t catch_up_ns;     /* and the time of these, by sb_runner_clock */
    uint64_t waited_ns;       /* time of the host's functions that this clock did not count */
};

/* What a pool asks of its draft. */
struct sb_draft_limits {
    struct sb_runner_limits target; /* those of the target's runner */
    int32_t batch;                  /* rows of a round at most */
    int32_t draft_len;              /* proposals for a row at most: 1 or more */
    int32_t prefill_chunk;          /* prompt tokens of a pass at most */
    int32_t max_len;                /* tokens of a sequence at most */
    float min_prob; /* behind a proposal less probable than this a model makes none */
};

/* A draft that never proposes, for plain decoding. E_NOMEM. */
int32_t sb_draft_create_none(struct sb_draft **out, const struct sb_mem *mem);
/* Tells the draft that this sequence has ended, if the draft wants to know: once a sequence. No
 * lock may be held, and the sequence's owner must be in order: this may call the host's code. */
void sb_draft_retire(struct sb_draft *draft, struct sb_seq *seq);
/* NULL is fine. */
void sb_draft_free(struct sb_draft *draft);

/* ------------------------------------------------------------------ a source */

enum sb_source_traits {
    SB_SOURCE_ONCE = 1, /* a list may have one source of this kind, */
    SB_SOURCE_LIST = 2, /* or none, */
    SB_SOURCE_HOST = 4  /* and releases it last: it calls the host, which may not return */
};

struct sb_source_ops {
    const char *name; /* for the log */
    int32_t traits;   /* enum sb_source_traits */
    /* Whether the source may propose for this target, by a status. NULL: for any. */
    int32_t (*check)(const struct specbatch_draft *source, const struct specbatch_model *target);
    /* Bytes that `create` would take: of caches, and of everything else. E_INVALID. */
    int32_t (*bytes)(const struct specbatch_draft *source, const struct sb_draft_limits *limits,
                     uint64_t *cache, uint64_t *work);
    /* A draft for one pool. The source and the target's runner are borrowed. E_INVALID, E_NOMEM,
     * E_DEVICE. */
    int32_t (*create)(struct sb_draft **out, const struct specbatch_draft *source,
                      const struct sb_runner *target, const struct sb_mem *mem,
                      const struct sb_draft_limits *limits);
    /* Frees the source, whose last reference was dropped. */
    void (*free)(struct specbatch_draft *source);
};

struct specbatch_draft {
    const struct sb_source_ops *ops;
    struct sb_mem mem;
    atomic_int references;
    int32_t n_sources; /* of a list; 1: it is none */
};

/* Fills in a new source, which has one reference. */
void sb_source_init(struct specbatch_draft *source, const struct sb_source_ops *ops,
                    const struct sb_mem *mem);
/* Checks what a request says of the sources that may propose for it, a bit for each. A pool that
 * never speculates (NULL) takes any. E_OPTIONS. */
int32_t sb_source_check_bits(const struct specbatch_draft *source, uint32_t bits);
/* Adds a reference. NULL is fine. */
void sb_source_retain(struct specbatch_draft *source);
/* Drops a reference; the last one frees the source. NULL is fine. */
void sb_source_release(struct specbatch_draft *source);

/* The sources. Semantics and status codes are those of the public functions. */

/* draft_model.c */
int32_t sb_source_from_model(struct specbatch_draft **out, struct specbatch_model *model);
/* draft_ngram.c */
int32_t sb_source_from_ngrams(struct specbatch_draft **out, const specbatch_ngram_options *options);
/* draft_table.c; the second makes a file for the first. */
int32_t sb_source_from_table(struct specbatch_draft **out, const char *path);
int32_t sb_table_make(const char *to, const struct specbatch_model *model, const int32_t *ids,
                      size_t n_ids, const specbatch_table_options *options);
/* draft_callback.c */
int32_t sb_source_from_ops(struct specbatch_draft **out, const specbatch_draft_ops *ops);
/* draft_list.c */
int32_t sb_source_from_list(struct specbatch_draft **out, struct specbatch_draft *const *sources,
                            size_t n);

#endif
