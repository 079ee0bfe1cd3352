/* The scores of sequences and of a round; scores.h draws them. */
#include "engine/scores.h"

#include <math.h>
#include <string.h>

#include "engine/round.h"
#include "fault.h"
#include "status.h"

/* ----------------------------------------------------------------- sequences */

/* The generated tokens at most, and the tokens of the prompt that are scored. */
static size_t n_answer(const struct sb_seq *seq)
{
    return (size_t)(seq->max_tokens - seq->n_prompt);
}

static size_t n_prompt(const struct sb_seq *seq)
{
    return seq->scores->has_prompt ? (size_t)seq->n_prompt - 1 : 0;
}

int32_t sb_seq_scores_create(struct sb_seq *seq, const struct sb_mem *mem, int32_t n_top,
                             uint32_t flags)
{
    const int32_t is_filtered = (flags & SPECBATCH_REQUEST_FILTERED_LOGPROBS) != 0,
                  has_prompt = (flags & SPECBATCH_REQUEST_PROMPT_LOGPROBS) != 0;
    const size_t top = (size_t)n_top;
    struct sb_seq_scores *s;
    size_t answer_tops, prompt_tops;
    int32_t rc = SPECBATCH_OK;

    if (n_top == 0 && !is_filtered && !has_prompt)
        return rc;
    SB_NEW(s, sb_alloc(mem, 1, sizeof *s), "a request");
    seq->scores = s;
    s->n_top = n_top;
    s->is_filtered = is_filtered;
    s->has_prompt = has_prompt;
    if (!sb_mul_size(n_answer(seq), top, &answer_tops) ||
        !sb_mul_size(n_prompt(seq), top, &prompt_tops))
        SB_FAIL(SPECBATCH_E_NOMEM, "request: top_logprobs %d of %d tokens do not fit", n_top,
                seq->max_tokens);
    SB_NEW(s->top_ids, sb_alloc_raw(mem, answer_tops, sizeof *s->top_ids), "a request");
    SB_NEW(s->top_logprobs, sb_alloc_raw(mem, answer_tops, sizeof *s->top_logprobs), "a request");
    SB_NEW(s->prompt_logprobs, sb_alloc(mem, n_prompt(seq), sizeof *s->prompt_logprobs),
           "a request");
    SB_NEW(s->prompt_top_ids, sb_alloc(mem, prompt_tops, sizeof *s->prompt_top_ids), "a request");
    SB_NEW(s->prompt_top_logprobs, sb_alloc(mem, prompt_tops, sizeof *s->prompt_top_logprobs),
           "a request");
done:
    return rc;
}

void sb_seq_scores_free(const struct sb_mem *mem, struct sb_seq *seq)
{
    struct sb_seq_scores *s = seq->scores;

    if (!s)
        return;
    sb_free(mem, s->top_ids);
    sb_free(mem, s->top_logprobs);
    sb_free(mem, s->prompt_logprobs);
    sb_free(mem, s->prompt_top_ids);
    sb_free(mem, s->prompt_top_logprobs);
    sb_free(mem, s);
    seq->scores = NULL;
}

size_t sb_seq_scores_bytes(const struct sb_seq *seq)
{
    const struct sb_seq_scores *s = seq->scores;

    if (!s)
        return 0;
    return sizeof *s + n_prompt(seq) * sizeof *s->prompt_logprobs +
           (n_answer(seq) + n_prompt(seq)) * (size_t)s->n_top *
               (sizeof *s->top_ids + sizeof *s->top_logprobs);
}

/* --------------------------------------------------------------------- block */

static size_t wants_bytes(const struct sb_score_block *block)
{
    return (size_t)block->places * sizeof(struct sb_want);
}

static size_t alternatives(const struct sb_score_block *block)
{
    return (size_t)block->places * (size_t)block->n_top;
}

void sb_score_block_free(struct sb_score_block *block, struct specbatch_model *model,
                         const struct sb_mem *mem)
{
    sb_model_give_memory(model, mem, &block->dev, &block->host);
    *block = (struct sb_score_block){.places = block->places, .n_moved = block->n_moved};
}

/* Points into both blocks. */
static void cut(struct sb_score_block *block)
{
    const size_t ids_at = wants_bytes(block), logprobs_at = ids_at + alternatives(block) * 4;

    block->wants = (struct sb_want *)(void *)block->host;
    block->ids = (int32_t *)(void *)(block->host + ids_at);
    block->logprobs = (float *)(void *)(block->host + logprobs_at);
    block->view = (struct sb_scores){.wants = (const struct sb_want *)(const void *)block->dev,
                                     .stride = block->n_top,
                                     .ids = (int32_t *)(void *)(block->dev + ids_at),
                                     .logprobs = (float *)(void *)(block->dev + logprobs_at)};
}

int32_t sb_score_block_reserve(struct sb_score_block *block, struct specbatch_model *model,
                               const struct sb_mem *mem, const struct sb_seq *seq)
{
    struct sb_score_block larger = {.places = block->places, .n_moved = block->n_moved + 1};
    int32_t rc = SPECBATCH_OK;

    if (!seq->scores || (block->bytes > 0 && seq->scores->n_top <= block->n_top))
        return rc;
    larger.n_top = seq->scores->n_top;
    larger.bytes = wants_bytes(&larger) + alternatives(&larger) * (sizeof(int32_t) + sizeof(float));
    SB_TRY(sb_model_take_memory(model, mem, larger.bytes, &larger.dev, &larger.host));
    cut(&larger);
    sb_score_block_free(block, model, mem);
    *block = larger;
    larger = (struct sb_score_block){.host = NULL};
done:
    sb_score_block_free(&larger, model, mem);
    return rc;
}

/* ------------------------------------------------------------------- a round */

int sb_round_wants_scores(const struct sb_round *round)
{
    for (int32_t b = 0; b < round->n_rows; b++) {
        const struct sb_seq_scores *scores = round->rows[b].seq->scores;
        if (scores && (scores->n_top > 0 || scores->is_filtered))
            return 1;
    }
    for (int32_t i = 0; i < round->n_chunks; i++)
        if (sb_seq_is_scoring(round->chunks[i].seq))
            return 1;
    return 0;
}

void sb_scores_fill(struct sb_round *round)
{
    struct sb_want *wants = round->scores.wants;
    int32_t place = round->gaps_at;

    for (int32_t b = 0; b < round->n_rows; b++) {
        const struct sb_seq_scores *scores = round->rows[b].seq->scores;
        for (int32_t j = 0; j < round->stride; j++)
            wants[b * round->stride + j] = (struct sb_want){-1, scores ? scores->n_top : 0,
                                                            scores && scores->is_filtered};
    }
    for (int32_t i = 0; i < round->n_chunks; i++) {
        const struct sb_seq *seq = round->chunks[i].seq;
        for (int32_t j = 0; j < round->chunks[i].n; j++, place++) {
            const int32_t pos = seq->kv_len + j;
            if (sb_seq_scores_at(seq, pos))
                wants[place] = (struct sb_want){seq->tokens[pos + 1], seq->scores->n_top, 0};
        }
    }
}

void sb_scores_want_nothing(struct sb_round *round, int32_t place)
{
    round->scores.wants[place] = (struct sb_want){-1, 0, 0};
}

int32_t sb_scores_upload(const struct sb_round *round, struct sb_exec *exec)
{
    const struct sb_score_block *block = &round->scores;

    return round->model->backend->upload(exec, block->dev, block->host, wants_bytes(block));
}

int32_t sb_scores_download(const struct sb_round *round, struct sb_exec *exec)
{
    const struct sb_score_block *block = &round->scores;
    const size_t at = wants_bytes(block);

    if (block->n_top == 0)
        return SPECBATCH_OK;
    return round->model->backend->download(exec, block->host + at, block->dev + at,
                                           block->bytes - at);
}

/* Copies n alternatives of a place to index i of a sequence's. */
static void copy_top(const struct sb_score_block *block, int32_t place, int32_t *ids,
                     float *logprobs, int32_t i, int32_t n)
{
    const size_t from = (size_t)place * (size_t)block->n_top, to = (size_t)i * (size_t)n;

    memcpy(ids + to, block->ids + from, (size_t)n * sizeof *ids);
    memcpy(logprobs + to, block->logprobs + from, (size_t)n * sizeof *logprobs);
}

void sb_scores_take(const struct sb_round *round, struct sb_seq *seq, int32_t i, int32_t place)
{
    const struct sb_seq_scores *s = seq->scores;

    if (s && s->n_top > 0)
        copy_top(&round->scores, place + SB_FAULT(TOPS_SHIFTED), s->top_ids, s->top_logprobs, i,
                 s->n_top);
}

void sb_scores_take_prompt(const struct sb_round *round, const struct sb_chunk *chunk,
                           int32_t place)
{
    struct sb_seq *seq = chunk->seq;
    struct sb_seq_scores *s = seq->scores;

    for (int32_t j = 0; j < chunk->n; j++) {
        const int32_t pos = seq->kv_len + j;
        if (!sb_seq_scores_at(seq, pos))
            continue;
        s->prompt_logprobs[pos] = round->logprob[place + j];
        if (s->n_top > 0)
            copy_top(&round->scores, place + j, s->prompt_top_ids, s->prompt_top_logprobs, pos,
                     s->n_top);
        s->n_scored = pos + 1;
        if (!isnan(s->prompt_logprobs[pos]))
            continue;
        if (!seq->finish) {
            seq->finish = SPECBATCH_FINISH_ERROR;
            seq->status = sb_fail(SPECBATCH_E_NAN, "request %llu: NaN logits after %d tokens",
                                  (unsigned long long)seq->id, pos + 1);
        }
        return; /* what follows is as unknown as what later chunks would have had */
    }
}

/* --------------------------------------------------------------------- audit */

int sb_scores_want_same(const struct sb_seq *a, const struct sb_seq *b)
{
    const struct sb_seq_scores *p = a->scores, *q = b->scores;

    if (!p || !q)
        return !p && !q;
    return p->n_top == q->n_top && p->is_filtered == q->is_filtered &&
           p->has_prompt == q->has_prompt;
}

/* Whether the first `count` tokens from index i on have the same n alternatives. */
static int same_tops(const int32_t *ids_a, const float *logprobs_a, const int32_t *ids_b,
                     const float *logprobs_b, size_t i, size_t count, int32_t n)
{
    const size_t at = i * (size_t)n, bytes = count * (size_t)n * 4;

    return bytes == 0 || (memcmp(ids_a + at, ids_b + at, bytes) == 0 &&
                          memcmp(logprobs_a + at, logprobs_b + at, bytes) == 0);
}

int sb_scores_same_at(const struct sb_seq *a, const struct sb_seq *b, int32_t i)
{
    const struct sb_seq_scores *p = a->scores, *q = b->scores;

    return !p || !q ||
           same_tops(p->top_ids, p->top_logprobs, q->top_ids, q->top_logprobs, (size_t)i, 1,
                     p->n_top);
}

int sb_scores_same_prompt(const struct sb_seq *a, const struct sb_seq *b)
{
    const struct sb_seq_scores *p = a->scores, *q = b->scores;
    size_t n;

    if (!p || !q)
        return 1;
    n = (size_t)(p->n_scored < q->n_scored ? p->n_scored : q->n_scored);
    return (n == 0 || memcmp(p->prompt_logprobs, q->prompt_logprobs, n * sizeof(float)) == 0) &&
           same_tops(p->prompt_top_ids, p->prompt_top_logprobs, q->prompt_top_ids,
                     q->prompt_top_logprobs, 0, n, p->n_top);
}
