/*
 * Attention of long prompts by cuDNN, span by span (backend/backend.h), where the model's option
 * `prefill` asks for it and it keeps the contract.
 *
 * THE CONTRACT HERE. cuDNN's bits differ from the own kernel's. So which of the two computes a
 * token must follow from the token's own sequence, or tokens would depend on the batch:
 *
 *   prompt   |  span 0  |  span 1  | .. |  span s - 1  |  rest  | last |   generated ...
 *   by          cuDNN      cuDNN             cuDNN        own     own      own
 *               keys: 256  512          ..   256 s
 *
 * - A span is 256 prompt tokens from a multiple of 256 on. Whether a token is in one follows from
 *   the prompt's length and the token's position alone: not from the pass, the batch, the policy,
 *   the chunk size, or the draft. Plain decoding and the audit build prompts by the same code, so
 *   they take the same route.
 * - Every span is a call of its own, for one sequence: 256 queries, a multiple of 256 keys, causal
 *   at the bottom right. Keys are read in place, so three things outside the span can still differ
 *   between calls: where the slot lies, where the sequence starts in it, and how many columns a
 *   slot has, which is the distance between heads.
 * - That these three, and whatever else runs, change no bit is tested (prefill_prove.c). When a
 *   model is loaded, the test covers every number of keys and fixes the class. When a pool is
 *   created some of whose slots have a new length, that must give the class's bits, or the pool is
 *   refused.
 * - The rows of one span share a call. All are of one prompt, so a row is still a function of its
 *   own sequence. But a later row could affect an earlier one if a masked weight were not exactly
 *   0 or a value were not finite, which cannot happen with the own kernel.
 * - Proposals, rounds with K = 0, and a draft's own prefill never come in spans.
 *
 * One engine with one set of knobs computes all spans: the first of those offered by cuDNN for the
 * longest span that cuDNN does not call nondeterministic and that passes the test. Its number, the
 * hash of its knobs and cuDNN's version are in the class. Spans beyond LAST_SPAN are the own
 * kernel's, again by position.
 *
 * Rejected: a chunk as a call, since its bits would follow prefill_chunk; copying keys and values
 * to a buffer of fixed strides, which needs no plans for a pool but copies as much as a call reads;
 * padding masks or ragged offsets, by which cuDNN would take several sequences in a call.
 */
#ifndef SB_CUDA_PREFILL_H
#define SB_CUDA_PREFILL_H

#include <pthread.h>

#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/span_plans.h"

struct sb_prefill {
    struct sb_span_calls calls;
    pthread_mutex_t lock; /* over the library's one handle and the list of plans: while a new pool
                             is tested, the spans of other pools wait. No function of the host runs
                             under it */
    int has_lock;
    int32_t n_spans;             /* of a prompt, at most */
    struct sb_span_plans *first; /* the class: slots without a column to spare; then the pools' */
    char text[80];
};

/* *out NULL: the own kernel computes all, for a reason that is in the log. E_NOMEM, E_DEVICE. */
int32_t sb_prefill_create(struct sb_prefill **out, const struct sb_gpu *gpu, enum sb_dtype type,
                          const struct sb_geometry *geometry);
void sb_prefill_free(struct sb_prefill *prefill);
/* What the fingerprint says about attention of prompts; NULL is fine. */
const char *sb_prefill_class(const struct sb_prefill *prefill);
/* Bytes of scratch that sb_prefill_attend needs. */
size_t sb_prefill_scratch(const struct sb_prefill *prefill);
/* Makes sure that slots of `cap` columns have plans with the bits of the class. E_NOMEM,
 * E_DEVICE. */
int32_t sb_prefill_prepare(struct sb_prefill *prefill, const struct sb_gpu *gpu, int32_t cap);
/* attend of backend.h for a pass with spans, 16 bit: cuDNN computes the spans, the own kernel the
 * tokens between them. scratch, counters: those of attention */
cudaError_t sb_prefill_attend(struct sb_prefill *prefill, void *y, const float *qkv,
                              const struct sb_attention *attention, const struct sb_pass *pass,
                              void *scratch, unsigned *counters, cudaStream_t stream);

#endif
