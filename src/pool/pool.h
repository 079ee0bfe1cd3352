/*
 * A pool: the life of requests, from submission to result. sched/ runs the rounds that decode them.
 *
 *            submit              admit                 finish             collect
 *   caller ---------> queue -------------> residents ----------> finished ---------> result
 *                    (heap)   a free slot            retire       (FIFO)
 *                       `------------- cancel -------------------->'
 *
 * Every request is one struct sb_seq from submission to result, and is found by its id. A
 * submission that fails leaves the pool as it was. What a request leaves in its slot may be kept
 * for later ones (prefix.h). A device error or a broken invariant is fatal, and so is a callback
 * that never returned (api.c notices that). A dead pool remembers the code and the message, hands
 * out what had finished, and can still be freed.
 */
#ifndef SB_POOL_H
#define SB_POOL_H

#include <stdatomic.h>

#include "port.h"
#include "pool/idmap.h"
#include "pool/prefix.h"
#include "pool/queue.h"
#include "sched/sched.h"

struct specbatch_pool {
    struct sb_mem mem;
    struct sb_log log;
    specbatch_pool_options options; /* resolved */
    struct specbatch_model *target; /* a reference, as the next */
    struct specbatch_draft *source; /* what proposes; NULL: nothing does */
    struct sb_runner runner;
    struct sb_draft *draft; /* made of the source; also if there is none */
    struct sb_round round;
    struct sb_sched sched;
    struct sb_prefix prefix;
    struct sb_queue queue, deadlines; /* who waits, and who has a deadline and is unfinished */
    struct sb_idmap by_id;
    struct sb_seq *finished, *last_finished; /* a list through seq->next, the oldest first */
    struct sb_seq *dropped; /* the same of answers that were not the best: nobody can see them */
    struct sb_seq *news, *last_news; /* the list of events.c */
    size_t n_active;                 /* requests queued or resident */
    uint64_t last_id;
    /* For the audit: every request records the margins of its tokens, and the first answer to a
     * prompt has this number. */
    int32_t keep_margins, first_answer;
    int64_t process; /* the process that created the pool (port.h), which has its threads */
    /* The thread that is inside a call on this pool (sb_port_thread), or NULL. */
    _Atomic(const void *) owner;
    /* The environment of that call. It is not kept in the call's own stack frame, because a
     * callback that is left by longjmp takes that frame with it. */
    struct sb_fp_env call;
    int32_t fatal;                 /* 0, or the code that ended the pool */
    char why[SPECBATCH_ERROR_MAX]; /* the message of the failure that did */
    uint64_t stats[SB_N_STATS];
};

/* A finished request that was collected: the caller's, it may outlive the pool. */
struct specbatch_result {
    struct sb_mem mem;
    struct specbatch_model *model; /* a reference */
    struct sb_seq *seq;
    char *text; /* or NULL */
    size_t text_length;
};

/* Fills in the defaults and checks the ranges of the caller's options. Afterwards draft_len is K
 * itself, 0..64 (0: no speculation, as always with a policy that does not speculate); window is how
 * many residents the pool keeps, whatever the policy; budget_bytes is UINT64_MAX for "no bound".
 * `given` may be NULL. E_INVALID, E_OPTIONS. */
int32_t sb_pool_options_resolve(specbatch_pool_options *full, const specbatch_pool_options *given,
                                int32_t target_context);
/* The same for a request of a pool with draft length `k`, as resolved. Afterwards its draft_len is
 * K itself, 0..k (0: no speculation). Its pointers still are the caller's, and what they point to
 * has not been looked at. E_INVALID, E_OPTIONS. */
int32_t sb_request_resolve(specbatch_request *full, const specbatch_request *given, int32_t k);

/* Options and requests have been resolved. Semantics and status codes of these functions are those
 * of the public ones. */
int32_t sb_pool_bytes(uint64_t *bytes, const struct specbatch_model *target,
                      const struct specbatch_draft *draft, const specbatch_pool_options *options);
int32_t sb_pool_create(struct specbatch_pool **out, struct specbatch_model *target,
                       struct specbatch_draft *draft, const specbatch_pool_options *options);
/* In a forked child this frees the pool's memory, and leaves devices and threads to the parent. */
void sb_pool_free(struct specbatch_pool *pool);
/* E_INVALID in a forked child. */
int32_t sb_pool_check_process(const struct specbatch_pool *pool);
int32_t sb_pool_submit(struct specbatch_pool *pool, const specbatch_request *request, uint64_t *id);
int32_t sb_pool_cancel(struct specbatch_pool *pool, uint64_t id);
int32_t sb_pool_step(struct specbatch_pool *pool);
int32_t sb_pool_run(struct specbatch_pool *pool);
int32_t sb_pool_poll(struct specbatch_pool *pool, uint64_t id, int32_t *ids, size_t capacity,
                     size_t *n);
int32_t sb_pool_state(struct specbatch_pool *pool, uint64_t id, specbatch_request_state *state);
int32_t sb_pool_pin(struct specbatch_pool *pool, const int32_t *ids, size_t n_ids, uint64_t *pin);
int32_t sb_pool_collect(struct specbatch_pool *pool, struct specbatch_result **out);
/* events.c: the next request with news tells it, in a struct of the caller's. */
int32_t sb_pool_next_event(struct specbatch_pool *pool, specbatch_event *event);
/* Puts a request into the list of those with news, if it has some and is not in it. */
void sb_pool_add_news(struct specbatch_pool *pool, struct sb_seq *seq);
/* Takes it out of the list, if it is in it. */
void sb_pool_remove_news(struct specbatch_pool *pool, struct sb_seq *seq);
/* Ends the pool if a call between rounds failed with a fatal code; the last error says how. Returns
 * rc. */
int32_t sb_pool_end_if_fatal(struct specbatch_pool *pool, int32_t rc);
/* Makes what ended a dead pool the last error, and returns its fatal code. */
int32_t sb_pool_dead(const struct specbatch_pool *pool);
/* How long a request waited for a slot, for its first token (0: it has none), and for its end, in
 * nanoseconds from its submission; what has not ended yet counts until now. */
void sb_seq_times(const struct sb_seq *seq, uint64_t *queued, uint64_t *first_token,
                  uint64_t *total);
/* request.c: E_TOKEN, unless all n ids are tokens of the target; `what` is the message's word for
 * one of them. */
int32_t sb_pool_check_ids(const struct specbatch_pool *pool, const int32_t *ids, size_t n,
                          const char *what);
/* Bytes of host memory that a sequence takes: itself, its tokens, what is kept of each. */
size_t sb_seq_bytes(const struct sb_seq *seq);
/* Frees a sequence, which must be in no list any more. NULL is fine. */
void sb_seq_free(const struct sb_mem *mem, struct sb_seq *seq);

/* audit.c: replays a request plainly and compares. */
int32_t sb_audit(struct specbatch_model *target, const specbatch_pool_options *options,
                 const specbatch_request *request, const struct specbatch_result *result,
                 specbatch_audit_report *report);

#endif
