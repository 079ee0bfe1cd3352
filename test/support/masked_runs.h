/*
 * Requests with masks and without, side by side in one pool. What plain decoding at batch 1 gives
 * is computed first, and every other way to run them has to give the same: ids, log-probabilities,
 * and how each request ends.
 *
 * A mask of these tests is a rule: a pure function of the tokens before a position, whose numbers
 * are its user pointer.
 */
#ifndef MASKED_RUNS_H
#define MASKED_RUNS_H

#include <stddef.h>
#include <stdint.h>

#include "specbatch.h"

enum { MASKED_JOBS = 8, MASKED_NEW = 24, MASKED_PROMPT = 40, MASKED_VOCAB = 517 };

/* What may be generated behind the first p tokens of an answer whose last token, or the prompt's,
 * is t. Zero switches a part off. */
struct masked_rule {
    int32_t modulus, keep; /* ids of which (id + t + p) % modulus < keep */
    int32_t period, free;  /* unless p % period >= free: then one id only, */
    int32_t forced;        /* which is this one, or made of t and p */
    int32_t dead_at;       /* nothing where p is at least this */
    int32_t n_calls;       /* of the mask, so far */
    int32_t n_positions;   /* that it was asked for */
    int32_t cancel_at;     /* the call that it cancels */
    int32_t n_odd;         /* positions that were not as they must be */
};

struct masked_job {
    int32_t prompt[MASKED_PROMPT];
    int32_t max_new;
    struct masked_rule *rule; /* or NULL */
    specbatch_sampling sampling;
    /* Of plain decoding: */
    int32_t tokens[MASKED_NEW];
    float logprobs[MASKED_NEW];
    size_t n_tokens;
    int32_t finish, status;
};

enum masked_draft {
    MASKED_NO_DRAFT,
    MASKED_MODEL, /* the checkpoint's draft */
    MASKED_SELF,  /* the target */
    MASKED_RIGHT, /* a callback that knows the answers */
    MASKED_WRONG, /* the same, with every third proposal wrong */
    MASKED_NGRAMS,
    MASKED_DRAFTS
};

/* A way to run the requests. */
struct masked_way {
    int32_t policy, batch, draft_len;
    enum masked_draft draft;
    int32_t adaptive;
    int32_t prefixes; /* they are kept, and all but the first request hit them */
    int32_t crowded;  /* slots grow, and there is room for two requests at their ends */
    /* Not NULL: the counters of the pool at its end, by name, n_counters of them. */
    const char *const *names;
    uint64_t *values;
    size_t n_counters;
};

/* The mask of a rule, which is `user`. */
int32_t masked_allow(void *user, specbatch_mask_row *const *rows, size_t n_rows);
/* Whether the rule allows `id` behind these tokens. */
int masked_allows(const struct masked_rule *rule, const int32_t *tokens, size_t n, size_t n_prompt,
                  int32_t id);

/* Opens the models and decodes the requests plainly. Returns 0, or -1 with the library's last error
 * set. */
int masked_open(void);
void masked_close(void);
specbatch_model *masked_target(void);
specbatch_draft *masked_draft_model(void);
struct masked_job *masked_jobs(void); /* [MASKED_JOBS] */
/* Runs all requests. Returns 0 when all is equal; 1 when something differed or failed, and then
 * `why` says what. Steps that a mask cancels are repeated. */
int masked_run(const struct masked_way *way, char *why, size_t size);

#endif
