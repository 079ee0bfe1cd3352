/*
 * A model as one pool runs it: its exec (the backend's queue of work), its key/value cache, its
 * activation buffers, and the passes that are being built.
 *
 * A pass is built on the host, token by token, and issued to the backend later:
 *
 *   build:   sb_pass_begin(i)   sb_pass_add_seq(...)   sb_pass_add_token(...) ...
 *   issue:   sb_pass_run(i, ids)   sb_pass_select(i, ...)
 *
 * For every query token the host writes down where it stands (sequence and position) and where its
 * id will be found (an index into a buffer of token ids on the device). The host does not need to
 * know the ids themselves. Hence the tokens of a round stay on the device from the first draft pass
 * to the verdict, all passes of a round can be built before the first is issued, and a backend may
 * record what is issued and replay it in later rounds.
 */
#ifndef SB_RUNNER_H
#define SB_RUNNER_H

#include <stdint.h>

#include "engine/kv.h"

/* For tests that compare the residual stream x: fn is called with it during a pass.
 *
 *   stage 0              after the embedding          x [n_tokens, hidden]
 *   stage 1 .. layers-1  after so many layers         x [n_tokens, hidden]
 *   stage `layers`       after the final norm         x [rows, hidden], for each piece of logits
 *
 * x is dev memory and valid only during the call. */
struct sb_tap {
    void (*fn)(void *user, int32_t stage, const float *x, int32_t rows, int32_t hidden);
    void *user;
};

struct sb_runner_limits {
    int32_t max_tokens; /* query tokens of a pass */
    int32_t max_seqs;   /* sequences of a pass */
    int32_t max_out;    /* rows of logits that there is memory for */
    int32_t max_scored; /* tokens of a pass whose logits are wanted, beyond max_out */
    int32_t n_passes;   /* passes that may be built before the first of them is issued */
    int32_t n_slots;    /* sequences that hold a slot of the cache at most */
    int32_t cap;        /* columns of the longest slots */
    int32_t halvings;   /* there are slots of cap >> i columns too, for i up to this */
    int64_t n_columns;  /* of all slots together */
    /* Columns behind those: blocks that outlive sequences (pool/prefix.h). */
    int64_t block_columns;
    int32_t n_threads;
    int32_t span; /* prompt tokens of a span (backend.h), or 0: passes have no spans */
    /* 1: the blocks of its passes lie in memory of the caller, who gives it with sb_runner_place
     * before the first pass. So the blocks of several runners can be uploaded together. */
    int32_t is_placed;
    int32_t is_draft; /* 1: the passes propose, and decide no token */
};

/* A pass while it is built. All of its arrays lie in one block of bytes, which is uploaded whole;
 * runner.c draws the block. What the arrays mean to the kernels is said at struct sb_pass in
 * backend.h. */
struct sb_built_pass {
    char *host, *dev; /* the block, here and on the device */
    /* Parts of `host`: */
    int64_t *base;                   /* [max_seqs] */
    int32_t *cap, *start;            /* [max_seqs] */
    int32_t *id_at, *pos, *seq;      /* [max_tokens] */
    int32_t *out;                    /* [max_out + max_scored] tokens whose logits are wanted */
    int32_t *select_at;              /* the same: where the selections after them go */
    int32_t n_tokens, n_seqs, n_out; /* so far */
    int32_t max_len;                 /* upper bound of pos + 1 over the tokens */
    int32_t n_spans;
    struct sb_span *spans; /* [max_tokens / span], not in the block: spans stay on the host */
    int32_t is_apart;      /* of struct sb_pass: 0, unless whoever builds the pass knows better */
};

/* The tables of a rotation. */
struct sb_rope_dev {
    float *cos, *sin; /* dev [cap, rot_dim / 2] */
};

struct sb_runner {
    struct sb_mem mem;
    struct specbatch_model *model; /* borrowed */
    const struct sb_backend *backend;
    struct sb_exec *exec;
    struct sb_runner_limits limits;
    struct sb_kv kv; /* has the columns of slots, then those of blocks; and, if the backend records,
                        one column more, the sink's */
    struct sb_tap tap;
    float scale; /* of attention scores: in most models head_dim^-0.5 */

    /* Activations: one dev allocation, cut into the buffers below. Those of type void are gemm
     * inputs, in the backend's own form (backend.h). */
    char *activations;
    float *x;          /* [max_tokens, hidden] residual stream */
    void *h;           /* [max_tokens, hidden] x after a norm */
    float *y;          /* [max_tokens, hidden] a block's output, before it is added to x */
    float *qkv;        /* [max_tokens, (heads + 2 kv_heads) * head_dim] */
    void *attended;    /* [max_tokens, heads * head_dim] */
    float *gate_up;    /* [max_tokens, 2 * inter] */
    void *act;         /* [max_tokens, inter] */
    float *routed;     /* [max_tokens, experts] what a mixture's experts are chosen by */
    void *expert_rows; /* [max_tokens * experts of a token, hidden] for a mixture (backend.h) */
    float *expert_out; /* [max_tokens * experts of a token, hidden] likewise */
    float *logits;     /* [max_out, vocab] */
    size_t activation_bytes, logits_bytes; /* of that allocation: up to the logits, and they */
    struct sb_rope_dev rope[2]; /* those of config.rope and, if there are two, of other_rope. One
                                   allocation, which begins with rope[0].cos */

    struct sb_built_pass *passes;   /* [n_passes] */
    struct sb_built_pass *building; /* one of them: the latest to be begun */
    struct sb_span *spans;          /* of all passes, one allocation */
    char *host_blocks, *dev_blocks; /* of all passes, in their order, without gaps */
};

/* Bytes that sb_runner_create would take, and whoever places the blocks: the cache's into
 * *cache_bytes, all others into *work_bytes. E_INVALID when they do not fit the address space. */
int32_t sb_runner_bytes(const struct specbatch_model *model, const struct sb_runner_limits *limits,
                        size_t *cache_bytes, size_t *work_bytes);
/* Fills in *runner, which the caller owns and has zeroed; after a failure sb_runner_free cleans up.
 * The model is borrowed. sibling: NULL, or a runner of the same pool, whose threads or stream this
 * one then shares, so it must be freed after this one. E_INVALID, E_NOMEM, E_DEVICE. */
int32_t sb_runner_create(struct sb_runner *runner, struct specbatch_model *model,
                         const struct sb_mem *mem, const struct sb_runner_limits *limits,
                         const struct sb_runner *sibling);
void sb_runner_free(struct sb_runner *runner);

/* Bytes of the blocks of n passes, and where to find those of a runner that is_placed: n_passes of
 * them, here and on the device, both aligned to 8 bytes. The caller frees them after the runner. */
size_t sb_runner_blocks_bytes(const struct sb_runner_limits *limits, int32_t n);
void sb_runner_place(struct sb_runner *runner, char *host, char *dev);

/* Nanoseconds by the clock that shows what passes cost. A backend that records computes while the
 * thread waits for it, so there it is elapsed time. Elsewhere the thread computes itself, with
 * others that take equal shares, and its own time on a processor is what it would take if no other
 * program ran. */
uint64_t sb_runner_clock(const struct sb_runner *runner);

/* Begins to build pass i, which becomes empty. The sb_pass_add functions below add to it. */
void sb_pass_begin(struct sb_runner *runner, int32_t i);
/* Adds a sequence, given its slot (kv.h) and the column of its position 0 there. Returns its index
 * in the pass. */
int32_t sb_pass_add_seq(struct sb_runner *runner, int64_t at, int32_t cap, int32_t start);
/* Declares that the next `span` tokens to be added are a span: they are of the sequence with index
 * `seq`, and the first of them is at position `pos`. */
void sb_pass_add_span(struct sb_runner *runner, int32_t seq, int32_t pos);
/* Adds a query token: the one at position `pos` of the sequence with index `seq`. Its id will be
 * ids[id_at] on the device. select_at: -1, or its logits are wanted, and the token selected by them
 * goes to index select_at of what sb_pass_select writes. */
void sb_pass_add_token(struct sb_runner *runner, int32_t seq, int32_t pos, int32_t id_at,
                       int32_t select_at);
/* Adds the sequence that padding tokens belong to, which lies in the sink slot. Only where the
 * backend records. Returns its index in the pass. */
int32_t sb_pass_add_sink(struct sb_runner *runner);
/* Ends the building of a pass that others of the same shape are to resemble: it gets n_seqs
 * sequences, of which those that are missing lie in the sink, and this bound on its positions. */
void sb_pass_fill_up(struct sb_runner *runner, int32_t n_seqs, int32_t max_len);

/* Runs the model over pass i, whose block has been uploaded. ids: the buffer of token ids on the
 * device. Pass i must not be begun again before the next exec_sync, as the upload may still be
 * reading it. */
void sb_pass_run(struct sb_runner *runner, int32_t i, const int32_t *ids);
/* Uploads the block of pass i. E_DEVICE. */
int32_t sb_pass_upload(struct sb_runner *runner, int32_t i);
/* Uploads the block and runs the model. E_DEVICE. */
int32_t sb_pass_issue(struct sb_runner *runner, int32_t i, const int32_t *ids);
/* Selects a token for each of pass i's tokens whose logits are wanted, among the ids below `limit`.
 * Call it right after that pass has been issued, as the next pass overwrites the logits. The
 * results go to the dev buffers ids, logprob and margin, at the index select_at that the token was
 * added with; logprob and margin may be NULL. samplers: of the rows (without what the pass has,
 * which is filled in here), or NULL: all are greedy. scores: as in struct sb_select.
 *
 * If more logits are wanted than there is memory for, they are computed and selected from in
 * pieces: sb_pass_run leaves those of the first max_out tokens, and this the others in turn. */
void sb_pass_select(struct sb_runner *runner, int32_t i, int32_t limit,
                    const struct sb_samplers *samplers, int32_t *ids, float *logprob, float *margin,
                    const struct sb_scores *scores);

/* Pass i as a step of a draft, as the backend sees it. */
struct sb_draft_step sb_step_on_device(const struct sb_runner *runner, int32_t i,
                                       const int32_t *ids);

/* A draft's steps, in draft_steps.c. Tells the backend the model, if it runs steps as one
 * operation; for a draft's runner, once. E_NOMEM, E_DEVICE. */
int32_t sb_steps_prepare(struct sb_runner *runner);
/* Runs passes [first, first + n), each of which embeds what the ones before it have selected: as
 * sb_pass_run and sb_pass_select of each in turn. None selects for more than max_out tokens. ids:
 * dev, read and written. samplers and logprob may be NULL; where both are, several steps may be one
 * operation. */
void sb_steps_run(struct sb_runner *runner, int32_t first, int32_t n, int32_t limit,
                  const struct sb_samplers *samplers, int32_t *ids, float *logprob);

/* The transformer, in forward.c. Leaves the logits of the first max_out of the tokens whose logits
 * are wanted in runner->logits. */
void sb_forward(struct sb_runner *runner, const struct sb_pass *pass);
/* What attention needs to know of a layer. */
struct sb_attention sb_layer_attention(const struct sb_runner *runner, int32_t layer);
/* The logits of n of the pass's tokens, once each. out: dev [n], their indices. */
void sb_forward_logits(struct sb_runner *runner, const int32_t *out, int32_t n);

#endif
