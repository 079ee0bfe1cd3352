/*
 * Events: what each request has got since its last event, for programs that stream.
 *
 *   pool->news    request <-> request <-> request    those with something to tell, in the order in
 *                                                    which they got it
 *
 * A request joins the list when a step gives it tokens or it finishes, and leaves it when its event
 * is handed out, or when it is collected. So an event costs what it tells, however many requests
 * there are. The links are in the sequences, because a step takes no memory. Text takes memory, so
 * it is made when an event is asked for. If there is none then, the request stays where it is in
 * the list and its text stream is as before, so the next call begins where this one began.
 *
 * Rejected: a queue of events. It would grow without bound in a pool whose events nobody reads.
 */
#include "pool/pool.h"

#include "options.h"
#include "pool/request_stops.h"
#include "status.h"

void sb_pool_add_news(struct specbatch_pool *pool, struct sb_seq *seq)
{
    if (seq->has_news || seq->held || (sb_seq_n_shown(seq) == seq->n_told && !seq->finish))
        return;
    seq->has_news = 1;
    seq->news_next = NULL;
    seq->news_previous = pool->last_news;
    *(pool->last_news ? &pool->last_news->news_next : &pool->news) = seq;
    pool->last_news = seq;
}

void sb_pool_remove_news(struct specbatch_pool *pool, struct sb_seq *seq)
{
    if (!seq->has_news)
        return;
    seq->has_news = 0;
    *(seq->news_previous ? &seq->news_previous->news_next : &pool->news) = seq->news_next;
    *(seq->news_next ? &seq->news_next->news_previous : &pool->last_news) = seq->news_previous;
}

/* Makes what is left of an answer's text. Where a stop string has cut it, more tokens than those of
 * the answer make it. */
static int32_t last_text(const struct sb_seq *seq, struct sb_stream *stream, specbatch_event *event)
{
    const size_t told = seq->stops ? (size_t)seq->stops->told : 0;
    const size_t n = event->n_ids + (size_t)sb_seq_n_tail(seq);
    const int32_t rc = sb_stream_end(stream, event->ids, n, &event->text, &event->text_length);

    if (rc != SPECBATCH_OK)
        return rc;
    event->text_length = sb_stops_text(seq, told + event->text_length) - told;
    event->text = sb_stream_cut(stream, event->text_length);
    return rc;
}

/* Makes the text of an event's ids. While that runs, the sequence does not own its stream: a memory
 * function that never returns may leave the stream's buffers in two minds. */
static int32_t event_text(struct specbatch_pool *pool, struct sb_seq *seq, specbatch_event *event)
{
    const struct sb_tokenizer *tokenizer = pool->target->tokenizer;
    struct sb_stream *stream = seq->stream;
    int32_t rc = SPECBATCH_OK;

    if (!tokenizer)
        return rc;
    seq->stream = NULL;
    if (!stream)
        SB_TRY(sb_stream_create(&stream, &pool->mem, tokenizer, 0));
    if (seq->finish)
        SB_TRY(last_text(seq, stream, event));
    else
        SB_TRY(sb_stream_push(stream, event->ids, event->n_ids, &event->text, &event->text_length));
    if (seq->stops)
        seq->stops->told += (int64_t)event->text_length;
done:
    seq->stream = stream;
    return rc;
}

int32_t sb_pool_next_event(struct specbatch_pool *pool, specbatch_event *out)
{
    struct sb_seq *seq = pool->news;
    specbatch_event event = SPECBATCH_EVENT_INIT;
    int32_t rc = sb_options_check_size(out, "event");

    if (rc != SPECBATCH_OK)
        return rc;
    if (!seq)
        return sb_fail(SPECBATCH_E_EMPTY, "no request has news");
    event.id = seq->id;
    event.user = seq->user;
    event.ids = seq->tokens + seq->n_prompt + seq->n_told;
    event.n_ids = (size_t)(sb_seq_n_shown(seq) - seq->n_told);
    event.finish = seq->finish;
    event.status = seq->status;
    if ((rc = event_text(pool, seq, &event)) != SPECBATCH_OK)
        return rc;
    seq->n_told = sb_seq_n_shown(seq);
    sb_pool_remove_news(pool, seq);
    return sb_options_report(out, &event, sizeof event, "event");
}
