/*
 * A model being run by one pool: its exec, its cache, its activation buffers and the pass being built.
 *
 * A pass is built on the host, token by token, and travels to the device in one copy:
 *
 *   sb_pass_begin   sb_pass_seq(...)  sb_pass_token(...) ...   sb_pass_run(ids)   sb_pass_select(...)
 *
 * What the host writes down is where every query token stands (sequence, position) and where its id
 * will be found (an index into a token buffer on the device); it never needs to know the ids. So the
 * tokens of a round stay on the device from the first draft step to the verdict.
 */
#ifndef SB_RUNNER_H
#define SB_RUNNER_H

#include <stdint.h>

#include "engine/kv.h"

/* Called with the residual stream during a pass, for tests that compare it: stage 0 after the embedding,
 * 1 .. layers-1 after that many layers, [n_tokens, hidden]; stage `layers` after the final norm,
 * [n_out, hidden]. x is dev memory and valid only during the call. */
struct sb_tap {
    void (*fn)(void *user, int32_t stage, const float *x, int32_t rows, int32_t hidden);
    void *user;
};

struct sb_runner_limits {
    int32_t max_tokens; /* query tokens of a pass */
    int32_t max_seqs;   /* sequences of a pass */
    int32_t max_out;    /* tokens of a pass whose logits are wanted */
    int32_t n_slots, cap, n_threads;
};

struct sb_runner {
    struct sb_mem mem;
    struct specbatch_model *model; /* borrowed */
    const struct sb_backend *backend;
    struct sb_exec *exec;
    struct sb_runner_limits limits;
    struct sb_kv kv;
    struct sb_tap tap;
    float scale; /* of attention scores: head_dim^-0.5 */

    /* One dev allocation, cut into: */
    float *activations;
    float *x, *h;    /* [max_tokens, hidden] residual stream; normed input or block output */
    float *qkv;      /* [max_tokens, (heads + 2 kv_heads) * head_dim] */
    float *attended; /* [max_tokens, heads * head_dim] */
    float *gate_up;  /* [max_tokens, 2 * inter] */
    float *act;      /* [max_tokens, inter] */
    float *logits;   /* [max_out, vocab] */
    float *cos, *sin; /* dev [cap, rot_dim / 2], one allocation */

    /* The pass: the same block of bytes on the host and on the device. */
    char *host_block, *dev_block;
    size_t block_bytes;
    int64_t *base;                                    /* host views into host_block */
    int32_t *id_at, *pos, *seq, *out, *at, *cap, *start;
    int32_t n_tokens, n_seqs, n_out, max_len;
    size_t bytes; /* of everything but the cache */
};

/* Bytes that create would take: the cache's into *cache_bytes, all else into *work_bytes. */
int32_t sb_runner_bytes(const struct specbatch_model *model, const struct sb_runner_limits *limits,
                        size_t *cache_bytes, size_t *work_bytes);
/* The runner is caller-owned memory, zeroed; on failure sb_runner_free cleans up. E_NOMEM, E_DEVICE. */
int32_t sb_runner_create(struct sb_runner *runner, struct specbatch_model *model, const struct sb_mem *mem,
                         const struct sb_runner_limits *limits);
void sb_runner_free(struct sb_runner *runner);

void sb_pass_begin(struct sb_runner *runner);
/* Adds a sequence: its slot and first content column. Returns its index in the pass. */
int32_t sb_pass_seq(struct sb_runner *runner, int32_t slot, int32_t start);
/* Adds the query token at `pos` of a sequence; its id is ids[id_at] on the device. select_at >= 0: its logits are
 * wanted, and its selection goes to index select_at. */
void sb_pass_token(struct sb_runner *runner, int32_t seq, int32_t pos, int32_t id_at, int32_t select_at);
/* Runs the pass. ids: dev token buffer. The only errors are those of the device. */
int32_t sb_pass_run(struct sb_runner *runner, const int32_t *ids);
/* Selects among ids < limit for every token that wanted it, into dev buffers indexed by select_at;
 * logprob and margin may be NULL. */
void sb_pass_select(struct sb_runner *runner, int32_t limit, int32_t *ids, float *logprob, float *margin);

/* forward.c: the transformer. Leaves logits [n_out, vocab] in runner->logits. */
void sb_forward(struct sb_runner *runner, const struct sb_pass *pass);

#endif
