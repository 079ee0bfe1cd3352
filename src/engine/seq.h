/*
 * A sequence: one request's tokens, and where its keys and values are.
 *
 *   tokens     t0 t1 ........ t(n-2) t(n-1)      committed: the prompt, then what the target chose
 *   target KV  k0 k1 ........ k(n-2)             kv_len = n - 1 between rounds, once prefilled
 *   draft KV   k0 k1 .... k(d-1)                 draft_kv_len = d <= n - 1: a prefix, may lag
 *
 * The last token has no entry in either cache yet: it is the first query of the next pass (the
 * paper's bonus token, Figure 3). A sequence holds the same slot in both caches, and its position 0
 * is in the same column of that slot (`start`). Whether its prompt is still being prefilled is not
 * stored but follows: kv_len < n_tokens - 1.
 */
#ifndef SB_SEQ_H
#define SB_SEQ_H

#include <stdint.h>

#include "alloc.h"
#include "specbatch.h"

#define SB_STOP_MAX 64

struct sb_answers;
struct sb_stream;
struct sb_sampling;
struct sb_stops;
struct sb_seq_scores;

struct sb_seq {
    /* A round may go through thousands of sequences. What it reads of each while it chooses rows,
     * realigns them and builds its passes is in the first cache line (64 bytes). Only of those that
     * it takes is more read: how they are drafted and sampled, in the third. */
    int32_t *tokens;      /* [max_tokens] */
    int64_t at;           /* its slot's first column in every plane of both caches (kv.h) */
    uint64_t last_round;  /* the number of the round that last decoded it, or admitted it */
    int32_t n_tokens;     /* committed so far */
    int32_t kv_len;       /* entries in the target's cache: of positions 0 .. kv_len - 1 */
    int32_t draft_kv_len; /* entries in the draft's cache */
    int32_t start;        /* the column of its slot that position 0 is in */
    int32_t cap;          /* columns of its slot */
    int32_t slot;         /* its slot's number; -1 while queued, and again after it has finished */
    int32_t finish;       /* 0 while unfinished, then SPECBATCH_FINISH_* */
    int32_t n_prompt;     /* the first so many tokens are the prompt */
    int32_t max_tokens;   /* n_prompt + the request's max_new */
    int32_t draft_len;    /* proposals in a round at most; 0: it gets none */

    /* What committing a round's tokens writes is in the second cache line. */
    uint64_t rounds;     /* rounds that decoded it */
    uint64_t drafted;    /* proposals that were verified for it */
    uint64_t accepted;   /* of those: proposals that became tokens */
    uint64_t live_bytes; /* of its entries in both caches, as sb_sched_count_live has them */
    float hits;          /* proposals accepted lately (sched/adapt.h) */
    float expected;      /* how many of those the pool's average would have led one to expect */
    float *logprobs;     /* [max_tokens - n_prompt], of the generated tokens; NULL: not asked for */
    float *margins;      /* the same of top-1 minus top-2 logit, which only the audit asks for */
    uint64_t id;         /* of the request */

    struct sb_seq *next;      /* in the list of finished sequences */
    struct sb_seq *hash_next; /* in a bucket of the map from ids to sequences */

    struct sb_sampling *sampling; /* how its tokens are chosen (sampling.h); NULL: greedily */
    specbatch_mask mask;          /* what may follow (masks.h); allow is NULL: all tokens */
    struct sb_stops *stops;       /* strings that end it (stops.h); NULL: there are none */
    struct sb_seq_scores *scores; /* log-probabilities of others (scores.h); NULL: none */
    uint32_t draft_sources;       /* bit i: source i of a list of drafts may propose for it; 0: no
                                     draft can, but its mask still may */
    int32_t min_new;              /* tokens before which nothing ends it */
    int32_t ignore_eos;           /* 1: end-of-sequence ids do not end it */
    int32_t n_stop_ids;           /* ids in stop_ids, below */
    int32_t status;               /* after SPECBATCH_FINISH_ERROR: why */

    void *user;       /* the caller's own (specbatch_request) */
    int32_t n_polled; /* generated tokens that specbatch_pool_poll has handed out */
    int32_t shown;    /* 1: the draft wants to be told when it ends (engine/draft.h) */
    int32_t stop_ids[SB_STOP_MAX];

    /* What pool/events.c tells of it. */
    struct sb_seq *news_next, *news_previous; /* in the list of requests with news, if has_news */
    struct sb_stream *stream; /* makes the text of its events; NULL: there has been none */
    int32_t has_news;
    int32_t n_told; /* generated tokens that events have told */

    /* When what happened to it, by the clock of port.h; 0: it has not happened yet. */
    uint64_t submitted_ns, admitted_ns, first_token_ns, finished_ns;

    /* Its places in the queues of the pool (pool/queue.h), by enum sb_queue_order. */
    struct {
        uint64_t key; /* what the queue is ordered by; the smallest comes first */
        size_t at;    /* its index in the queue's heap */
    } queued[2];
    int32_t has_deadline;

    /* Several answers to one prompt (pool/answers.h). */
    int32_t answer;             /* which one it is */
    struct sb_answers *answers; /* what they have in common; NULL: it is the only one */
    struct sb_seq *sibling_next, *sibling_previous; /* in the list of those that have a slot */
    int32_t follows;                                /* 1: another one fills its prompt in */
    int32_t held;           /* 1: it is not to be seen before the best answers are chosen */
    int32_t hides_logprobs; /* 1: they are kept for that choice only */
};

/* What queues are ordered by: by the turn to get a slot, and by the time when a request ends. */
enum sb_queue_order { SB_BY_TURN, SB_BY_DEADLINE };

/* 1 when a comes before b in a queue of this order. Of equals the older one comes first. */
static inline int sb_seq_precedes(const struct sb_seq *a, const struct sb_seq *b,
                                  enum sb_queue_order order)
{
    const uint64_t a_key = a->queued[order].key, b_key = b->queued[order].key;

    return a_key != b_key ? a_key < b_key : a->id < b->id;
}

/* Cache entries of the whole sequence once it is prefilled: all tokens but the last have one. So
 * start + sb_seq_content is the column in which its next entry will lie, its end column. */
static inline int32_t sb_seq_content(const struct sb_seq *seq)
{
    return seq->n_tokens - 1;
}

/* 1 when the prompt has been prefilled, so that the sequence can be a decode row. */
static inline int sb_seq_is_ready(const struct sb_seq *seq)
{
    return seq->kv_len >= sb_seq_content(seq);
}

/* How many of its tokens are computed in spans (backend.h), which are the first so many: the whole
 * spans of all of the prompt but its last token, which is not prefilled. The prompt's length alone
 * decides; span: tokens of a span, 0: there are none. */
static inline int32_t sb_seq_spanned(const struct sb_seq *seq, int32_t span)
{
    return span > 0 ? (seq->n_prompt - 1) / span * span : 0;
}

static inline int32_t sb_seq_n_generated(const struct sb_seq *seq)
{
    return seq->n_tokens - seq->n_prompt;
}

#endif
