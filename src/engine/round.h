/*
 * A round: the rows chosen for one target pass, their proposals, and the verdict.
 *
 *   tokens, on the device:                                  [b]: stride = K + 1
 *     row b:   last committed | proposal 1 | ... | proposal K
 *     after the rows: a scratch area with the ids of prompt chunks
 *   picks:     what the target selects after each of those tokens, same indices
 *   n_accept:  how many leading proposals equal the pick before them
 *
 * A row's new tokens are picks[0 .. n_accept]: accepted proposals are equal to their picks, so a
 * proposal is never copied into a sequence and a draft cannot change a token, whatever it proposes.
 * The host writes each row's first token, the draft writes the others (a draft model without the host
 * seeing them), and one download brings the verdict.
 */
#ifndef SB_ROUND_H
#define SB_ROUND_H

#include <stdint.h>

#include "engine/runner.h"
#include "engine/seq.h"

struct sb_round_row {
    struct sb_seq *seq;
    int32_t n_draft;  /* proposals: asked for, then made */
    int32_t n_accept; /* of them */
};

struct sb_prefill_row {
    struct sb_seq *seq;
    int32_t n; /* prompt tokens from kv_len on */
};

struct sb_round {
    struct sb_mem mem;
    struct specbatch_model *model; /* the target; borrowed */
    int32_t max_rows, stride, scratch;

    struct sb_round_row *rows; /* [max_rows] decode rows */
    int32_t n_rows;
    struct sb_prefill_row *prefill; /* [max_prefill] */
    int32_t n_prefill, max_prefill;

    int32_t *tokens, *n_draft;   /* host */
    int32_t *picks, *n_accept;
    float *logprob, *margin;
    int32_t *dev_tokens, *dev_n_draft, *dev_picks, *dev_n_accept;
    float *dev_logprob, *dev_margin;
    char *host_verdict, *dev_verdict; /* picks, n_accept, logprob, margin: one block */
    size_t tokens_bytes, verdict_bytes;
};

struct sb_round_limits {
    int32_t max_rows, draft_len, max_prefill_rows, prefill_chunk;
};

size_t sb_round_bytes(const struct sb_round_limits *limits);
/* Caller-owned, zeroed memory; on failure sb_round_free cleans up. E_NOMEM. */
int32_t sb_round_create(struct sb_round *round, struct specbatch_model *target, const struct sb_mem *mem,
                        const struct sb_round_limits *limits);
void sb_round_free(struct sb_round *round);

/* Uploads every row's first token and marks the others empty. Call when the rows are chosen. */
int32_t sb_round_begin(struct sb_round *round, struct sb_runner *target);
/* Copies n ids to index `at` of the scratch area, on the host and on the device. The token-buffer index of scratch
 * index i is max_rows * stride + i. */
int32_t sb_round_upload(struct sb_round *round, struct sb_runner *runner, const int32_t *ids, int32_t n, int32_t at);

/* verify.c: one target pass over all rows and prompt chunks, and the verdict on the host. E_DEVICE. */
int32_t sb_verify(struct sb_round *round, struct sb_runner *target);
/* Appends what a row won, n_accept + 1 tokens, up to and including the first that ends the sequence, and rolls
 * both caches back to the committed prefix. Returns the number of tokens appended. */
int32_t sb_commit(struct sb_round *round, int32_t row);

#endif
