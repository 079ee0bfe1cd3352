/* The memory of a round: the block of tokens that is uploaded, and the block of verdicts that is
 * downloaded. round.h draws both. */
#include "engine/round.h"

#include "status.h"

/* max_len of a padded round is a multiple of this. It is part of the recording's key, so a
 * recording serves until the longest row has grown by so many positions. */
enum { LEN_STEP = 256 };

/* Places for tokens of rows: a last committed token and K proposals each. */
static size_t cells(const struct sb_round_limits *limits)
{
    return (size_t)limits->max_rows * (size_t)(limits->draft_len + 1);
}

static size_t verdict_bytes(const struct sb_round_limits *limits)
{
    return (3 * cells(limits) + (size_t)limits->max_rows + (size_t)limits->prefill_chunk) * 4;
}

static size_t tokens_bytes(const struct sb_round_limits *limits)
{
    return (cells(limits) + 2 * (size_t)limits->max_rows + (size_t)limits->prefill_chunk) *
           sizeof(int32_t);
}

size_t sb_round_bytes(const struct sb_round_limits *limits)
{
    return 2 * (verdict_bytes(limits) + tokens_bytes(limits)) +
           (size_t)limits->max_rows * sizeof(struct sb_round_row) +
           (size_t)limits->max_chunks * sizeof(struct sb_chunk);
}

/* Points `tokens` and `n_draft` into a block, be it the host's or the device's. */
static void cut_tokens(const struct sb_round *round, char *block, int32_t **tokens,
                       int32_t **n_draft)
{
    *tokens = (int32_t *)(void *)block;
    *n_draft = *tokens + round->chunks_at + round->chunk_tokens;
}

/* Points the parts of a verdict into a block, be it the host's or the device's. */
static void cut_verdict(const struct sb_round *round, char *block, int32_t **picks,
                        int32_t **n_accept, float **logprob, float **margin)
{
    *picks = (int32_t *)(void *)block;
    *n_accept = *picks + round->gaps_at;
    *margin = (float *)(void *)(*n_accept + round->max_rows);
    *logprob = *margin + round->gaps_at;
}

int32_t sb_round_create(struct sb_round *round, struct specbatch_model *target,
                        const struct sb_mem *mem, const struct sb_round_limits *limits)
{
    const struct sb_backend *be = target->backend;
    void *block;
    int32_t rc = SPECBATCH_OK;

    round->mem = *mem;
    round->model = target;
    round->max_rows = limits->max_rows;
    round->stride = limits->draft_len + 1;
    round->gaps_at = (int32_t)cells(limits);
    round->chunks_at = round->gaps_at + limits->max_rows;
    round->chunk_tokens = limits->prefill_chunk;
    round->max_chunks = limits->max_chunks;
    round->samplers.max_rows = limits->max_rows;
    round->masks.max_rows = limits->max_rows;
    round->masks.stride = round->stride;
    round->scores.places = round->gaps_at + limits->prefill_chunk;
    round->tokens_bytes = tokens_bytes(limits);
    round->verdict_bytes = verdict_bytes(limits);
    SB_NEW(round->rows, sb_alloc(mem, (size_t)limits->max_rows, sizeof *round->rows), "a round");
    SB_NEW(round->chunks, sb_alloc(mem, (size_t)limits->max_chunks, sizeof *round->chunks),
           "a round");
    SB_TRY(be->host_alloc(&block, target->device, mem, round->tokens_bytes));
    round->host_tokens = block;
    SB_TRY(be->host_alloc(&block, target->device, mem, round->verdict_bytes));
    round->host_verdict = block;
    SB_TRY(be->alloc(&block, target->device, mem, round->tokens_bytes));
    round->dev_tokens_block = block;
    SB_TRY(be->alloc(&block, target->device, mem, round->verdict_bytes));
    round->dev_verdict = block;
    cut_tokens(round, round->host_tokens, &round->tokens, &round->n_draft);
    cut_tokens(round, round->dev_tokens_block, &round->dev_tokens, &round->dev_n_draft);
    cut_verdict(round, round->host_verdict, &round->picks, &round->n_accept, &round->logprob,
                &round->margin);
    cut_verdict(round, round->dev_verdict, &round->dev_picks, &round->dev_n_accept,
                &round->dev_logprob, &round->dev_margin);
done:
    return rc;
}

void sb_round_free(struct sb_round *round)
{
    struct specbatch_model *target = round->model;
    const struct sb_backend *be = target ? target->backend : NULL;

    if (!target)
        return;
    if (round->dev_tokens_block)
        be->free(target->device, &round->mem, round->dev_tokens_block);
    if (round->dev_verdict)
        be->free(target->device, &round->mem, round->dev_verdict);
    if (round->host_verdict)
        be->host_free(target->device, &round->mem, round->host_verdict);
    if (round->host_tokens)
        be->host_free(target->device, &round->mem, round->host_tokens);
    sb_sampler_block_free(&round->samplers, target, &round->mem);
    sb_mask_block_free(&round->masks, target, &round->mem);
    sb_score_block_free(&round->scores, target, &round->mem);
    sb_free(&round->mem, round->chunks);
    sb_free(&round->mem, round->rows);
    *round = (struct sb_round){.model = NULL};
}

void sb_round_begin(struct sb_round *round, const struct sb_runner *target)
{
    int32_t longest = 0;

    round->wants = 0;
    for (int32_t i = 0; i < round->n_rows * round->stride; i++)
        round->tokens[i] = -1;
    for (int32_t b = 0; b < round->n_rows; b++) {
        const struct sb_seq *seq = round->rows[b].seq;
        round->tokens[b * round->stride] = seq->tokens[seq->n_tokens - 1];
        if (seq->n_tokens > longest)
            longest = seq->n_tokens;
        round->wants |= (seq->logprobs ? SB_WANTS_LOGPROBS : 0) |
                        (seq->margins ? SB_WANTS_MARGINS : 0) |
                        (sb_seq_has_sampler(seq) ? SB_WANTS_SAMPLERS : 0) |
                        (seq->mask.allow ? SB_WANTS_MASKS : 0);
    }
    if (round->wants & SB_WANTS_SAMPLERS)
        sb_sampler_block_fill(&round->samplers, round->model, round->rows, round->n_rows,
                              round->dev_tokens, round->stride);
    if (sb_round_wants_scores(round)) {
        round->wants |= SB_WANTS_SCORES | SB_WANTS_LOGPROBS;
        sb_scores_fill(round);
    }
    round->n_steps = round->n_passes = 0;
    round->padded = target->backend->records && round->n_chunks == 0 &&
                    !(round->wants & (SB_WANTS_SAMPLERS | SB_WANTS_SCORES));
    round->max_len = (longest + round->stride + LEN_STEP - 1) / LEN_STEP * LEN_STEP;
    if (round->max_len > target->limits.cap)
        round->max_len = target->limits.cap;
}

const struct sb_samplers *sb_round_samplers(const struct sb_round *round)
{
    return round->wants & SB_WANTS_SAMPLERS ? &round->samplers.view : NULL;
}
