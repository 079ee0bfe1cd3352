/* A round's memory: one block of tokens going up, one verdict coming down. round.h draws them. */
#include "engine/round.h"

#include <string.h>

#include "status.h"

static int32_t scratch_tokens(const struct sb_round_limits *limits)
{
    return limits->prefill_chunk + limits->max_rows;
}

static size_t verdict_bytes(const struct sb_round_limits *limits)
{
    const size_t cells = (size_t)limits->max_rows * (size_t)(limits->draft_len + 1);
    return (3 * cells + (size_t)limits->max_rows) * 4;
}

static size_t tokens_bytes(const struct sb_round_limits *limits)
{
    const size_t cells = (size_t)limits->max_rows * (size_t)(limits->draft_len + 1);
    return (cells + (size_t)scratch_tokens(limits) + (size_t)limits->max_rows) * sizeof(int32_t);
}

size_t sb_round_bytes(const struct sb_round_limits *limits)
{
    return 2 * (verdict_bytes(limits) + tokens_bytes(limits)) +
           (size_t)limits->max_rows * sizeof(struct sb_round_row) +
           (size_t)limits->max_prefill_rows * sizeof(struct sb_prefill_row);
}

int32_t sb_round_create(struct sb_round *round, struct specbatch_model *target, const struct sb_mem *mem,
                        const struct sb_round_limits *limits)
{
    const struct sb_backend *be = target->backend;
    const int32_t cells = limits->max_rows * (limits->draft_len + 1);
    void *dev;
    int32_t rc = SPECBATCH_OK;

    round->mem = *mem;
    round->model = target;
    round->max_rows = limits->max_rows;
    round->stride = limits->draft_len + 1;
    round->scratch = scratch_tokens(limits);
    round->max_prefill = limits->max_prefill_rows;
    round->tokens_bytes = tokens_bytes(limits);
    round->verdict_bytes = verdict_bytes(limits);
    SB_NEW(round->rows, sb_alloc(mem, (size_t)limits->max_rows, sizeof *round->rows), "a round");
    SB_NEW(round->prefill, sb_alloc(mem, (size_t)limits->max_prefill_rows, sizeof *round->prefill), "a round");
    SB_NEW(round->tokens, sb_alloc(mem, round->tokens_bytes, 1), "a round");
    SB_NEW(round->host_verdict, sb_alloc(mem, round->verdict_bytes, 1), "a round");
    SB_TRY(be->alloc(&dev, target->device, mem, round->tokens_bytes));
    round->dev_tokens = dev;
    SB_TRY(be->alloc(&dev, target->device, mem, round->verdict_bytes));
    round->dev_verdict = dev;

    round->n_draft = round->tokens + cells + round->scratch;
    round->dev_n_draft = round->dev_tokens + cells + round->scratch;
    round->picks = (int32_t *)(void *)round->host_verdict;
    round->n_accept = round->picks + cells;
    round->logprob = (float *)(void *)(round->n_accept + limits->max_rows);
    round->margin = round->logprob + cells;
    round->dev_picks = (int32_t *)(void *)round->dev_verdict;
    round->dev_n_accept = round->dev_picks + cells;
    round->dev_logprob = (float *)(void *)(round->dev_n_accept + limits->max_rows);
    round->dev_margin = round->dev_logprob + cells;
done:
    return rc;
}

void sb_round_free(struct sb_round *round)
{
    struct specbatch_model *target = round->model;

    if (!target)
        return;
    if (round->dev_tokens)
        target->backend->free(target->device, &round->mem, round->dev_tokens);
    if (round->dev_verdict)
        target->backend->free(target->device, &round->mem, round->dev_verdict);
    sb_free(&round->mem, round->host_verdict);
    sb_free(&round->mem, round->tokens);
    sb_free(&round->mem, round->prefill);
    sb_free(&round->mem, round->rows);
    *round = (struct sb_round){.model = NULL};
}

int32_t sb_round_begin(struct sb_round *round, struct sb_runner *target)
{
    const int32_t cells = round->n_rows * round->stride;

    for (int32_t i = 0; i < cells; i++)
        round->tokens[i] = -1;
    for (int32_t b = 0; b < round->n_rows; b++) {
        const struct sb_seq *seq = round->rows[b].seq;
        round->tokens[b * round->stride] = seq->tokens[seq->n_tokens - 1];
    }
    return target->backend->upload(target->exec, round->dev_tokens, round->tokens,
                                   (size_t)cells * sizeof *round->tokens);
}

int32_t sb_round_upload(struct sb_round *round, struct sb_runner *runner, const int32_t *ids, int32_t n, int32_t at)
{
    const int32_t first = round->max_rows * round->stride + at;

    memcpy(round->tokens + first, ids, (size_t)n * sizeof *ids);
    return runner->backend->upload(runner->exec, round->dev_tokens + first, round->tokens + first,
                                   (size_t)n * sizeof *ids);
}
