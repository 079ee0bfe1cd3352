/* Steps, cancelling, polling and results; pool.h draws the path of a request. Creation is in
 * create.c, submission in request.c. */
#include "pool/pool.h"

#include <stdio.h>
#include <string.h>

#include "fault.h"
#include "options.h"
#include "pool/answers.h"
#include "pool/request_stops.h"
#include "status.h"

static void enqueue_finished(struct specbatch_pool *pool, struct sb_seq *seq)
{
    seq->next = NULL;
    *(pool->last_finished ? &pool->last_finished->next : &pool->finished) = seq;
    pool->last_finished = seq;
    sb_pool_add_news(pool, seq);
}

/* A request has ended and has no slot any more. It is handed out, unless it is one of several
 * answers of which only the best are. */
static void end(struct specbatch_pool *pool, struct sb_seq *seq, uint64_t now)
{
    struct sb_seq *given, *dropped, *next;

    seq->finished_ns = now;
    if (seq->has_deadline)
        sb_queue_remove(&pool->deadlines, seq);
    sb_mask_block_remove(&pool->round.masks, seq);
    pool->n_active--;
    pool->stats[SB_STAT_requests_finished]++;
    for (given = sb_answers_end(seq, &dropped); given; given = next) {
        next = given->next;
        enqueue_finished(pool, given);
    }
    for (; dropped; dropped = next) {
        next = dropped->next;
        sb_idmap_remove(&pool->by_id, dropped);
        pool->stats[SB_STAT_request_bytes] -= sb_seq_bytes(dropped);
        dropped->next = pool->dropped;
        pool->dropped = dropped;
    }
}

/* Frees the answers that were not chosen, when a call has no more use for them. */
static void free_dropped(struct specbatch_pool *pool)
{
    struct sb_seq *seq;

    while ((seq = pool->dropped) != NULL) {
        pool->dropped = seq->next;
        sb_seq_free(&pool->mem, seq);
    }
}

static struct sb_seq *dequeue_finished(struct specbatch_pool *pool)
{
    struct sb_seq *seq = pool->finished;

    pool->finished = seq->next;
    if (!pool->finished)
        pool->last_finished = NULL;
    seq->next = NULL;
    return seq;
}

int32_t sb_pool_dead(const struct specbatch_pool *pool)
{
    return sb_fail(pool->fatal, "the pool ended with %s: %s", specbatch_status_name(pool->fatal),
                   pool->why);
}

/* A round that was not ended by its draft callback or an interruption cannot be repeated: rows may
 * have been realigned already, or the draft's lengths may count entries that were never computed.
 * So it ends the pool. A code that is not fatal by itself can only be a driver's that ran out of
 * memory, since rounds take no memory from the host; to the pool that is a failure of the device.
 * Returns the pool's fatal code. */
static int32_t end_pool(struct specbatch_pool *pool, int32_t rc)
{
    pool->fatal = specbatch_status_is_fatal(rc) ? rc : SPECBATCH_E_DEVICE;
    snprintf(pool->why, sizeof pool->why, "%s", sb_last_error());
    return pool->fatal;
}

/* A device that fails between rounds ends the pool as one that fails in a round does. */
int32_t sb_pool_end_if_fatal(struct specbatch_pool *pool, int32_t rc)
{
    return specbatch_status_is_fatal(rc) ? end_pool(pool, rc) : rc;
}

/* Gives waiting requests slots, while there are some for the first of them, and what is kept of
 * their tokens, or what other answers to their prompt have. */
static int32_t admit(struct specbatch_pool *pool)
{
    struct sb_seq *seq;
    int32_t rc = SPECBATCH_OK;

    while ((seq = sb_queue_first(&pool->queue)) != NULL && sb_sched_can_admit(&pool->sched, seq)) {
        if (seq->max_tokens == 1) { /* a prompt of one token, which has no score, and no answer */
            sb_queue_remove(&pool->queue, seq);
            seq->finish = SPECBATCH_FINISH_LENGTH;
            end(pool, seq, sb_port_now_ns());
            continue;
        }
        SB_TRY(sb_sched_admit(&pool->sched, seq));
        sb_queue_remove(&pool->queue, seq);
        if (!seq->admitted_ns) /* it may have been preempted since */
            seq->admitted_ns = sb_port_now_ns();
        SB_TRY(sb_prefix_hit(&pool->prefix, seq));
        sb_sched_cached(&pool->sched, seq);
        SB_TRY(sb_answers_join(pool, seq));
    }
done:
    return rc;
}

/* After a round: keeps the prompts that it has filled in, gives them to other answers, and keeps
 * what its finished rows have. */
static int32_t keep_columns(struct specbatch_pool *pool)
{
    const struct sb_round *round = &pool->round;
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < round->n_chunks; i++) {
        struct sb_seq *seq = round->chunks[i].seq;
        if (seq->kv_len >= seq->n_prompt - 1)
            SB_TRY(sb_prefix_keep(&pool->prefix, seq));
        SB_TRY(sb_answers_filled(pool, seq));
    }
    for (int32_t b = 0; b < round->n_rows; b++)
        if (round->rows[b].seq->finish)
            SB_TRY(sb_prefix_keep(&pool->prefix, round->rows[b].seq));
done:
    return rc;
}

/* Where slots grow: sees to it that what the next round writes fits those of this round's rows. */
static int32_t grow(struct specbatch_pool *pool)
{
    const struct sb_round *round = &pool->round;
    struct sb_sched *sched = &pool->sched;
    int32_t rc = SPECBATCH_OK;

    for (int32_t b = 0; b < round->n_rows; b++) {
        struct sb_seq *seq = round->rows[b].seq, *last;
        while ((last = sb_sched_in_the_way(sched, seq)) != NULL) {
            SB_TRY(sb_prefix_keep(&pool->prefix, last));
            sb_answers_leave(last);
            sb_sched_preempt(sched, last);
            sb_queue_add(&pool->queue, last);
        }
        SB_TRY(sb_sched_grow(sched, seq));
    }
done:
    return rc;
}

/* After a round: tells of what a sequence of it has got, and takes its slot if it has ended. */
static void take_news(struct specbatch_pool *pool, struct sb_seq *seq, uint64_t now)
{
    sb_pool_add_news(pool, seq);
    if (!seq->first_token_ns && sb_seq_n_shown(seq) > 0)
        seq->first_token_ns = now;
    if (seq->finish && seq->slot >= 0) {
        sb_answers_leave(seq);
        sb_sched_retire(&pool->sched, seq);
        end(pool, seq, now);
    }
}

/* Ends a request, wherever it is, with the tokens that it has. A failure has ended the pool. */
static int32_t end_early(struct specbatch_pool *pool, struct sb_seq *seq, int32_t finish)
{
    int32_t rc = SPECBATCH_OK;

    sb_pool_settle(pool, seq);
    if (seq->slot < 0) {
        sb_queue_remove(&pool->queue, seq);
    } else {
        if ((rc = sb_prefix_keep(&pool->prefix, seq)) == SPECBATCH_OK)
            rc = sb_answers_hand_over(pool, seq);
        sb_answers_leave(seq);
        sb_sched_retire(&pool->sched, seq);
    }
    seq->finish = finish;
    end(pool, seq, sb_port_now_ns());
    if (rc != SPECBATCH_OK)
        rc = end_pool(pool, rc);
    sb_draft_retire(pool->draft, seq);
    free_dropped(pool);
    return rc;
}

/* Ends the requests whose time is over. If none has a deadline, the clock is not even read. */
static int32_t end_late(struct specbatch_pool *pool)
{
    struct sb_seq *seq = sb_queue_first(&pool->deadlines);
    const uint64_t now = seq ? sb_port_now_ns() : 0;
    int32_t rc = SPECBATCH_OK;

    while (rc == SPECBATCH_OK && seq && seq->queued[SB_BY_DEADLINE].key <= now) {
        if (SB_FAULT(DEADLINE_SPARES_QUEUED) && seq->slot < 0)
            break;
        rc = end_early(pool, seq, SPECBATCH_FINISH_DEADLINE);
        seq = sb_queue_first(&pool->deadlines);
    }
    return rc;
}

int32_t sb_pool_step(struct specbatch_pool *pool)
{
    const struct sb_round *round = &pool->round;
    struct sb_sched *sched = &pool->sched;
    uint64_t now;
    int32_t rc = end_late(pool);

    if (rc != SPECBATCH_OK)
        return rc;
    if ((rc = admit(pool)) != SPECBATCH_OK)
        return end_pool(pool, rc);
    if ((rc = sb_sched_round(sched)) == SPECBATCH_OK)
        rc = keep_columns(pool);
    now = sb_port_now_ns();
    for (int32_t b = 0; b < round->n_rows; b++)
        take_news(pool, round->rows[b].seq, now);
    for (int32_t i = 0; i < round->n_chunks; i++) /* a scored prompt may have ended its request */
        take_news(pool, round->chunks[i].seq, now);
    if (rc == SPECBATCH_OK && sched->limits.grows)
        rc = grow(pool);
    /* The draft is told when everything is in its place: its callback may never return. */
    for (int32_t b = 0; b < round->n_rows; b++)
        if (round->rows[b].seq->finish)
            sb_draft_retire(pool->draft, round->rows[b].seq);
    for (int32_t i = 0; i < round->n_chunks; i++)
        if (round->chunks[i].seq->finish)
            sb_draft_retire(pool->draft, round->chunks[i].seq);
    free_dropped(pool);
    if (rc == SPECBATCH_E_INTERRUPTED) /* those that have come since count with it */
        atomic_store(&sched->interrupted, 0);
    if (rc == SPECBATCH_OK || rc == SPECBATCH_E_CANCELLED || rc == SPECBATCH_E_INTERRUPTED)
        return rc;
    return end_pool(pool, rc);
}

int32_t sb_pool_run(struct specbatch_pool *pool)
{
    int32_t rc;

    do
        rc = sb_pool_step(pool);
    while (rc == SPECBATCH_OK && pool->n_active > 0);
    return rc;
}

int32_t sb_pool_cancel(struct specbatch_pool *pool, uint64_t id)
{
    struct sb_seq *seq = sb_idmap_find(&pool->by_id, id);

    if (!seq || seq->finish)
        return sb_fail(SPECBATCH_E_NOT_FOUND, "request %llu is %s", (unsigned long long)id,
                       seq ? "already finished" : "unknown");
    return end_early(pool, seq, SPECBATCH_FINISH_CANCELLED);
}

int32_t sb_pool_pin(struct specbatch_pool *pool, const int32_t *ids, size_t n_ids, uint64_t *pin)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_pool_check_ids(pool, ids, n_ids, "id"));
    SB_TRY(sb_prefix_pin(&pool->prefix, ids, n_ids, pool->options.max_len, pin));
done:
    return rc;
}

int32_t sb_pool_poll(struct specbatch_pool *pool, uint64_t id, int32_t *ids, size_t capacity,
                     size_t *n)
{
    struct sb_seq *seq = sb_idmap_find(&pool->by_id, id);
    size_t waiting;

    if (!seq)
        return sb_fail(SPECBATCH_E_NOT_FOUND, "request %llu is unknown or collected",
                       (unsigned long long)id);
    waiting = seq->held ? 0 : (size_t)(sb_seq_n_shown(seq) - seq->n_polled);
    *n = !ids || waiting < capacity ? waiting : capacity;
    if (ids && *n > 0) {
        memcpy(ids, seq->tokens + seq->n_prompt + seq->n_polled, *n * sizeof *ids);
        seq->n_polled += (int32_t)*n;
    }
    return SPECBATCH_OK;
}

static int32_t state_of(const struct sb_seq *seq)
{
    if (seq->finish)
        return seq->held ? SPECBATCH_STATE_DECODING : SPECBATCH_STATE_FINISHED;
    if (seq->slot < 0)
        return SPECBATCH_STATE_QUEUED;
    return sb_seq_is_ready(seq) ? SPECBATCH_STATE_DECODING : SPECBATCH_STATE_FILLING;
}

void sb_seq_times(const struct sb_seq *seq, uint64_t *queued, uint64_t *first_token,
                  uint64_t *total)
{
    const uint64_t end = seq->finished_ns && !seq->held ? seq->finished_ns : sb_port_now_ns();

    *queued = (seq->admitted_ns ? seq->admitted_ns : end) - seq->submitted_ns;
    *first_token = seq->first_token_ns ? seq->first_token_ns - seq->submitted_ns : 0;
    *total = end - seq->submitted_ns;
}

int32_t sb_pool_state(struct specbatch_pool *pool, uint64_t id, specbatch_request_state *out)
{
    const struct sb_seq *seq = sb_idmap_find(&pool->by_id, id);
    specbatch_request_state state = SPECBATCH_REQUEST_STATE_INIT;

    if (!seq)
        return sb_fail(SPECBATCH_E_NOT_FOUND, "request %llu is unknown or collected",
                       (unsigned long long)id);
    state.state = state_of(seq);
    state.n_prompt = (uint64_t)seq->n_prompt;
    state.n_filled = (uint64_t)(seq->kv_len < seq->n_prompt ? seq->kv_len : seq->n_prompt);
    state.finish = seq->finish;
    state.n_generated = (uint64_t)sb_seq_n_shown(seq);
    sb_seq_times(seq, &state.time_queued_ns, &state.time_first_token_ns, &state.time_total_ns);
    if (seq->held) { /* nothing of it is to be seen */
        state.finish = 0;
        state.n_generated = state.time_first_token_ns = 0;
    }
    return sb_options_report(out, &state, sizeof state, "request state");
}

static int32_t result_text(struct specbatch_result *result)
{
    const struct sb_seq *seq = result->seq;
    struct sb_bytes text = {.mem = &result->mem};
    int32_t rc = SPECBATCH_OK;

    if (!result->model->tokenizer)
        return rc;
    SB_TRY(sb_bytes_add(&text, "", 0));
    SB_TRY(sb_tokenizer_decode(result->model->tokenizer, seq->tokens + seq->n_prompt,
                               (size_t)(sb_seq_n_generated(seq) + sb_seq_n_tail(seq)), 0, &text));
    result->text = text.data;
    result->text_length = sb_stops_text(seq, text.n);
    result->text[result->text_length] = '\0';
done:
    if (rc != SPECBATCH_OK)
        sb_bytes_clear(&text);
    return rc;
}

int32_t sb_pool_collect(struct specbatch_pool *pool, struct specbatch_result **out)
{
    struct specbatch_result *result = NULL;
    struct sb_stream *stream = NULL;
    int32_t rc = SPECBATCH_OK;

    if (!pool->finished)
        return pool->fatal ? sb_pool_dead(pool)
                           : sb_fail(SPECBATCH_E_EMPTY, "no request has finished");
    /* Told of already, unless a callback of its last step did not return. */
    sb_draft_retire(pool->draft, pool->finished);
    SB_NEW(result, sb_alloc(&pool->mem, 1, sizeof *result), "a result");
    result->mem = pool->mem;
    result->model = pool->target;
    result->seq = pool->finished;
    SB_TRY(result_text(result));
    sb_idmap_remove(&pool->by_id, dequeue_finished(pool));
    sb_pool_remove_news(pool, result->seq);
    pool->stats[SB_STAT_request_bytes] -= sb_seq_bytes(result->seq);
    stream = result->seq->stream;
    result->seq->stream = NULL;
    sb_model_retain(pool->target);
    *out = result;
    result = NULL;
done:
    sb_stream_free(stream);
    sb_free(&pool->mem, result);
    return rc;
}
