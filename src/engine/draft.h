/*
 * Where proposals come from. Anything may propose: a wrong proposal costs time, never a token, so a
 * source need not be exact and may lag behind, propose less than asked for, or nothing.
 */
#ifndef SB_DRAFT_H
#define SB_DRAFT_H

#include <stdint.h>

#include "engine/round.h"

struct sb_draft;

struct sb_draft_ops {
    const char *name;
    /* Fills tokens[1 .. n_draft] of every row of the round on the device, after sb_round_begin. On entry n_draft is
     * what the scheduler asks for; the source lowers it to what it made. E_CANCELLED, E_DEVICE. */
    int32_t (*propose)(struct sb_draft *draft, struct sb_round *round, struct sb_runner *target);
    void (*free)(struct sb_draft *draft);
};

struct sb_draft {
    const struct sb_draft_ops *ops;
    struct sb_mem mem;
    struct sb_runner *runner; /* a draft model's, or NULL: it has a cache to be realigned with the target's */
    uint64_t passes;          /* forward passes of the draft so far */
};

/* A draft model with a persistent cache of the same slots and columns as the target's. `limits` are the target
 * runner's. E_NOMEM, E_DEVICE. */
int32_t sb_draft_model_create(struct sb_draft **out, struct specbatch_model *draft, const struct specbatch_model *target,
                              const struct sb_mem *mem, const struct sb_runner_limits *limits);
/* The caller's function. `k_max`: the pool's draft length. E_NOMEM. */
int32_t sb_draft_callback_create(struct sb_draft **out, specbatch_draft_fn fn, void *user, const struct sb_mem *mem,
                                 int32_t k_max);
/* Never proposes. E_NOMEM. */
int32_t sb_draft_none_create(struct sb_draft **out, const struct sb_mem *mem);

#endif
