/* From the caller's request to a queued sequence. Everything is checked and copied before anything
 * in the pool changes. */
#include "pool/pool.h"

#include <string.h>

#include "fault.h"
#include "options.h"
#include "pool/answers.h"
#include "pool/request_sampling.h"
#include "pool/request_stops.h"
#include "status.h"

int32_t sb_request_resolve(specbatch_request *full, const specbatch_request *given, int32_t k)
{
    static const char what[] = "request";
    const uint32_t flags = SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS |
                           SPECBATCH_REQUEST_PROMPT_LOGPROBS | SPECBATCH_REQUEST_FILTERED_LOGPROBS;
    int32_t rc = SPECBATCH_OK;

    if (!given)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: NULL", what);
    SB_TRY(sb_options_copy(full, sizeof *full, given, what));
    if (full->ids && full->text)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: both ids and text are set; give one of them", what);
    if (!full->ids && !full->text)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: neither ids nor text is set", what);
    if (full->ids && full->n_ids == 0)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: the prompt is empty (n_ids is 0)", what);
    if (!full->ids && full->n_ids != 0)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: n_ids is %zu, but ids is NULL", what, full->n_ids);
    if (!full->text && full->text_length != 0)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: text_length is %zu, but text is NULL", what,
                full->text_length);
    SB_TRY(sb_check_flags(SPECBATCH_E_OPTIONS, what, "text_flags", full->text_flags,
                          SB_FLAGS_TOKENIZE));
    SB_TRY(sb_check_flags(SPECBATCH_E_OPTIONS, what, "flags", full->flags, flags));
    SB_TRY(sb_check_range(what, "max_new", full->max_new,
                          full->flags & SPECBATCH_REQUEST_PROMPT_LOGPROBS ? 0 : 1, INT32_MAX));
    SB_TRY(sb_check_range(what, "top_logprobs", full->top_logprobs, 0, SB_TOP_MAX));
    SB_TRY(sb_check_range(what, "min_new", full->min_new, 0, full->max_new));
    SB_TRY(sb_check_range(what, "priority", full->priority, -SB_PRIORITY_MAX, SB_PRIORITY_MAX));
    SB_TRY(sb_check_range(what, "draft_len", full->draft_len, -1, SB_DRAFT_LEN_MAX));
    if (full->draft_len == -1)
        full->draft_len = 0;
    else if (full->draft_len == 0 || full->draft_len > k)
        full->draft_len = k;
    if (full->n_stop_ids > SB_STOP_MAX)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: n_stop_ids is %zu, outside 0..%d", what, full->n_stop_ids,
                SB_STOP_MAX);
    if (full->n_stop_ids && !full->stop_ids)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: n_stop_ids is %zu, but stop_ids is NULL", what,
                full->n_stop_ids);
done:
    return rc;
}

size_t sb_seq_bytes(const struct sb_seq *seq)
{
    const size_t n_new = (size_t)(seq->max_tokens - seq->n_prompt);

    return sizeof *seq + (size_t)seq->max_tokens * sizeof *seq->tokens +
           sb_sampling_bytes(seq->sampling) + sb_stops_bytes(seq->stops) +
           sb_seq_scores_bytes(seq) + (seq->logprobs ? n_new * sizeof *seq->logprobs : 0) +
           (seq->margins ? n_new * sizeof *seq->margins : 0) + sb_answers_bytes(seq);
}

void sb_seq_free(const struct sb_mem *mem, struct sb_seq *seq)
{
    if (!seq)
        return;
    sb_free(mem, seq->tokens);
    sb_free(mem, seq->logprobs);
    sb_free(mem, seq->margins);
    sb_sampling_free(mem, seq->sampling);
    sb_stops_free(seq->stops);
    sb_seq_scores_free(mem, seq);
    sb_stream_free(seq->stream);
    sb_answers_release(mem, seq->answers);
    sb_free(mem, seq);
}

/* The prompt as ids: the caller's own, or those of its text, which *text_ids then owns. */
static int32_t prompt_ids(const struct specbatch_pool *pool, const specbatch_request *request,
                          struct sb_ids *text_ids, const int32_t **ids, size_t *n)
{
    *ids = request->ids;
    *n = request->n_ids;
    if (request->text) {
        const size_t length = request->text_length ? request->text_length : strlen(request->text);
        int32_t rc;
        if (!pool->target->tokenizer)
            return sb_fail(SPECBATCH_E_NO_TOKENIZER,
                           "the prompt is text and the model has no tokenizer");
        rc = sb_tokenizer_encode(pool->target->tokenizer, request->text, length,
                                 request->text_flags, text_ids);
        if (rc != SPECBATCH_OK)
            return rc;
        *ids = text_ids->data;
        *n = text_ids->n;
    }
    if (*n == 0)
        return sb_fail(SPECBATCH_E_INVALID, "the prompt is empty");
    return SPECBATCH_OK;
}

int32_t sb_pool_check_ids(const struct specbatch_pool *pool, const int32_t *ids, size_t n,
                          const char *what)
{
    const int32_t vocab = pool->target->config.vocab;

    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return sb_fail(SPECBATCH_E_TOKEN, "%s %zu is %d, not one of 0..%d", what, i, ids[i],
                           vocab - 1);
    return SPECBATCH_OK;
}

static int32_t check_length(const struct specbatch_pool *pool, size_t n, int32_t max_new)
{
    const int32_t context = pool->target->config.context, max_len = pool->options.max_len;
    const int32_t room = context < max_len ? context : max_len;

    if (n > (size_t)room || (size_t)max_new > (size_t)room - n)
        return sb_fail(SPECBATCH_E_TOO_LONG,
                       "%zu prompt tokens and max_new %d are more than the %d that fit (%s)", n,
                       max_new, room,
                       context < max_len ? "the model's context" : "the pool's max_len");
    return SPECBATCH_OK;
}

/* What a request is made from. */
struct wish {
    const specbatch_request *request;
    specbatch_answers answers; /* resolved: best_of are made, n of them handed out */
    const int32_t *ids;
    size_t n;
};

/* Makes answer i. */
static int32_t make_seq(struct sb_seq **out, const struct specbatch_pool *pool,
                        const struct wish *wish, int32_t i)
{
    const specbatch_request *request = wish->request;
    const int asks_logprobs = (request->flags & SPECBATCH_REQUEST_LOGPROBS) != 0,
              ranks = wish->answers.best_of > wish->answers.n;
    const struct sb_mem *mem = &pool->mem;
    struct sb_seq *seq = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(seq, sb_alloc(mem, 1, sizeof *seq), "a request");
    seq->n_prompt = seq->n_tokens = (int32_t)wish->n;
    seq->max_tokens = seq->n_prompt + request->max_new;
    seq->answer = pool->first_answer + i;
    seq->hides_logprobs = ranks && !asks_logprobs;
    seq->slot = -1;
    seq->draft_len = request->draft_len;
    seq->draft_sources = request->draft_sources ? request->draft_sources : UINT32_MAX;
    seq->min_new = request->min_new;
    seq->user = request->user;
    seq->ignore_eos = (request->flags & SPECBATCH_REQUEST_IGNORE_EOS) != 0;
    seq->n_stop_ids = (int32_t)request->n_stop_ids;
    if (request->n_stop_ids > 0)
        memcpy(seq->stop_ids, request->stop_ids, request->n_stop_ids * sizeof *seq->stop_ids);
    SB_NEW(seq->tokens, sb_alloc_raw(mem, (size_t)seq->max_tokens, sizeof *seq->tokens),
           "a request");
    memcpy(seq->tokens, wish->ids, wish->n * sizeof *wish->ids);
    SB_TRY(sb_sampling_create(&seq->sampling, mem, request->sampling, pool->target->config.vocab,
                              SB_FAULT(SEED_SHARED) ? 0 : seq->answer));
    SB_TRY(sb_mask_copy(&seq->mask, request->mask));
    SB_TRY(sb_pool_make_stops(&seq->stops, pool, request));
    SB_TRY(sb_seq_scores_create(seq, mem, request->top_logprobs, request->flags));
    if (asks_logprobs || ranks)
        SB_NEW(seq->logprobs, sb_alloc_raw(mem, (size_t)request->max_new, sizeof *seq->logprobs),
               "a request");
    if (pool->keep_margins)
        SB_NEW(seq->margins, sb_alloc_raw(mem, (size_t)request->max_new, sizeof *seq->margins),
               "a request");
    *out = seq;
    seq = NULL;
done:
    sb_seq_free(mem, seq);
    return rc;
}

static void free_list(const struct sb_mem *mem, struct sb_seq *list)
{
    while (list) {
        struct sb_seq *next = list->next;
        sb_seq_free(mem, list);
        list = next;
    }
}

/* Makes all answers, as a list through seq->next. */
static int32_t make_answers(struct sb_seq **out, const struct specbatch_pool *pool,
                            const struct wish *wish)
{
    const int apart = (wish->request->flags & SPECBATCH_REQUEST_PROMPT_LOGPROBS) != 0;
    struct sb_seq *list = NULL, **end = &list;
    struct sb_answers *answers = NULL;
    int32_t rc = SPECBATCH_OK;

    if (wish->answers.best_of > 1)
        SB_TRY(sb_answers_create(&answers, &pool->mem, &wish->answers, apart));
    for (int32_t i = 0; i < wish->answers.best_of; i++, end = &(*end)->next) {
        SB_TRY(make_seq(end, pool, wish, i));
        if (answers)
            sb_answers_add(answers, *end);
    }
    *out = list;
    list = NULL;
done:
    free_list(&pool->mem, list);
    sb_answers_release(&pool->mem, answers);
    return rc;
}

/* Puts a new sequence into the pool's lists, which have room for it. */
static void enter(struct specbatch_pool *pool, struct sb_seq *seq, const specbatch_request *request,
                  uint64_t now)
{
    const int by_length = (pool->options.flags & SPECBATCH_POOL_SORT_BY_LENGTH) != 0;

    seq->id = ++pool->last_id;
    seq->submitted_ns = now;
    seq->queued[SB_BY_TURN].key = sb_queue_turn(pool->sched.n_rounds, request->priority,
                                                by_length ? seq->n_prompt : 0);
    sb_queue_add(&pool->queue, seq);
    if (request->deadline_ns > 0) {
        const uint64_t left = UINT64_MAX - now;
        seq->queued[SB_BY_DEADLINE].key = now + (request->deadline_ns < left ? request->deadline_ns
                                                                             : left);
        seq->has_deadline = 1;
        sb_queue_add(&pool->deadlines, seq);
    }
    sb_idmap_add(&pool->by_id, seq);
    sb_mask_block_add(&pool->round.masks, seq);
    pool->n_active++;
    pool->stats[SB_STAT_request_bytes] += sb_seq_bytes(seq);
}

/* Takes the pool's places for n more requests. This comes before they are made, because a place
 * that grows frees memory, and a hook that does not return from that must not lose them. */
static int32_t reserve_places(struct specbatch_pool *pool, const specbatch_request *request,
                              size_t n)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_queue_reserve(&pool->queue, pool->n_active + n)); /* residents may come back */
    if (request->deadline_ns > 0)
        SB_TRY(sb_queue_reserve(&pool->deadlines, pool->deadlines.n + n));
    SB_TRY(sb_idmap_reserve(&pool->by_id, n));
done:
    return rc;
}

/* Takes what rounds need for n more requests like this one. */
static int32_t reserve_blocks(struct specbatch_pool *pool, const struct sb_seq *seq, size_t n)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_sampler_block_reserve(&pool->round.samplers, pool->target, &pool->mem, seq,
                                    pool->runner.limits.n_columns));
    SB_TRY(sb_mask_block_reserve(&pool->round.masks, pool->target, &pool->mem, seq, (int32_t)n));
    SB_TRY(sb_score_block_reserve(&pool->round.scores, pool->target, &pool->mem, seq));
done:
    return rc;
}

static int32_t check_room(const struct specbatch_pool *pool, const specbatch_answers *answers)
{
    const uint64_t max = pool->options.queue_max;

    if (pool->queue.n >= max)
        return sb_fail(SPECBATCH_E_QUEUE_FULL, "%zu requests wait, as many as queue_max allows",
                       pool->queue.n);
    if ((uint64_t)answers->best_of > max - pool->queue.n)
        return sb_fail(SPECBATCH_E_QUEUE_FULL,
                       "request: answers: %d of them and %zu requests that wait are more than "
                       "queue_max %llu",
                       answers->best_of, pool->queue.n, (unsigned long long)max);
    return SPECBATCH_OK;
}

int32_t sb_pool_submit(struct specbatch_pool *pool, const specbatch_request *request, uint64_t *id)
{
    struct sb_ids text_ids = {.mem = &pool->mem};
    struct wish wish = {.request = request};
    struct sb_seq *list = NULL, *next;
    uint64_t now;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_answers_resolve(&wish.answers, request));
    SB_TRY(check_room(pool, &wish.answers));
    SB_TRY(prompt_ids(pool, request, &text_ids, &wish.ids, &wish.n));
    SB_TRY(sb_pool_check_ids(pool, wish.ids, wish.n, "prompt id"));
    SB_TRY(sb_pool_check_ids(pool, request->stop_ids, request->n_stop_ids, "stop id"));
    SB_TRY(check_length(pool, wish.n, request->max_new));
    SB_TRY(sb_source_check_bits(pool->source, request->draft_sources));
    SB_TRY(reserve_places(pool, request, (size_t)wish.answers.best_of));
    SB_TRY(make_answers(&list, pool, &wish));
    SB_TRY(reserve_blocks(pool, list, (size_t)wish.answers.best_of));
    if (id)
        *id = pool->last_id + 1;
    now = sb_port_now_ns();
    for (; list; list = next) {
        next = list->next;
        enter(pool, list, request, now);
    }
done:
    free_list(&pool->mem, list);
    sb_ids_clear(&text_ids);
    return rc;
}
