/* The memory of a round: the block of inputs that is uploaded, and the block of verdicts that is
 * downloaded; and the shapes that rounds are padded to. round.h draws all of it. */
#include "engine/round.h"

#include "status.h"

/* max_len of a padded round is this or a power of two times as much. */
enum { LEN_LEAST = 256 };

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
    const size_t n = cells(limits) + 2 * (size_t)limits->max_rows + (size_t)limits->prefill_chunk;

    return (n + 1) / 2 * 2 * sizeof(int32_t); /* so that the block of a pass is aligned to 8 */
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

/* Takes the block of inputs, on host and device, and places the passes of both runners in it. */
static int32_t take_inputs(struct sb_round *round, struct sb_runner *target,
                           struct sb_runner *draft)
{
    const size_t of_target = sb_runner_blocks_bytes(&target->limits, 1),
                 of_draft = draft ? sb_runner_blocks_bytes(&draft->limits, 1) : 0,
                 draft_at = round->tokens_bytes + of_target,
                 bytes = draft_at + (draft ? (size_t)draft->limits.n_passes * of_draft : 0);
    int32_t rc = SPECBATCH_OK;

    round->pass_bytes[0] = of_target;
    round->pass_bytes[1] = of_draft;
    SB_TRY(sb_model_take_memory(round->model, &round->mem, bytes, &round->dev_inputs,
                                &round->host_inputs));
    sb_runner_place(target, round->host_inputs + round->tokens_bytes,
                    round->dev_inputs + round->tokens_bytes);
    if (draft)
        sb_runner_place(draft, round->host_inputs + draft_at, round->dev_inputs + draft_at);
    cut_tokens(round, round->host_inputs, &round->tokens, &round->n_draft);
    cut_tokens(round, round->dev_inputs, &round->dev_tokens, &round->dev_n_draft);
done:
    return rc;
}

int32_t sb_round_create(struct sb_round *round, struct sb_runner *target, struct sb_runner *draft,
                        const struct sb_mem *mem, const struct sb_round_limits *limits)
{
    int32_t rc = SPECBATCH_OK;

    round->mem = *mem;
    round->model = target->model;
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
    SB_TRY(take_inputs(round, target, draft));
    SB_TRY(sb_model_take_memory(round->model, mem, round->verdict_bytes, &round->dev_verdict,
                                &round->host_verdict));
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

    if (!target)
        return;
    sb_model_give_memory(target, &round->mem, &round->dev_inputs, &round->host_inputs);
    sb_model_give_memory(target, &round->mem, &round->dev_verdict, &round->host_verdict);
    sb_sampler_block_free(&round->samplers, target, &round->mem);
    sb_mask_block_free(&round->masks, target, &round->mem);
    sb_score_block_free(&round->scores, target, &round->mem);
    sb_free(&round->mem, round->chunks);
    sb_free(&round->mem, round->rows);
    *round = (struct sb_round){.model = NULL};
}

/* ------------------------------------------------------------------- shapes */

/* The next of 1, 2, 4, 8, 16, 24, 32, 48, 64, .., if that is not above `most`. From 16 on a row
 * costs something, so rounds are filled up by a third at most there. */
static int32_t rows_of_shape(int32_t n, int32_t most)
{
    int32_t size = 1;

    while (size < n)
        size = size < 16 ? 2 * size : (size & (size - 1)) == 0 ? size + size / 2 : size / 3 * 4;
    return size < most ? size : most;
}

static int32_t len_of_shape(int32_t len, int32_t most)
{
    int32_t size = LEN_LEAST;

    while (size < len && size < most)
        size = size > most / 2 ? most : 2 * size;
    return size < most ? size : most;
}

/* How often 1 is to be doubled until it is at least n. */
static int32_t doublings(int32_t n)
{
    int32_t i = 0;

    while (i < 31 && (INT64_C(1) << i) < n)
        i++;
    return i;
}

/* Gives the round its shape, if it may be recorded. */
static void pad(struct sb_round *round, const struct sb_runner *target)
{
    int32_t longest = 0;

    round->n_padded = round->n_rows;
    round->padded = target->backend->records && round->n_chunks == 0 &&
                    !(round->wants & SB_WANTS_MASKS);
    if (!round->padded)
        return;
    round->n_padded = rows_of_shape(round->n_rows, round->max_rows);
    for (int32_t b = 0; b < round->n_rows; b++)
        if (round->rows[b].seq->n_tokens > longest)
            longest = round->rows[b].seq->n_tokens;
    round->max_len = len_of_shape(longest + round->stride, target->limits.cap);
    if (round->wants & SB_WANTS_SAMPLERS)
        sb_sampler_block_pad(&round->samplers);
}

void sb_round_unpad(struct sb_round *round)
{
    round->padded = 0;
    round->n_padded = round->n_rows;
}

/* A length is a power of two or the longest, and lists are a power of two, so their doublings name
 * them. Rows are 4096 at most, passes and steps 64. A block moves fewer than 64 times: that of
 * samplers grows to twice its size at least, that of scores by at least one alternative of the
 * SB_TOP_MAX. */
uint64_t sb_round_key(const struct sb_round *round)
{
    const int samples = (round->wants & SB_WANTS_SAMPLERS) != 0,
              scores = (round->wants & SB_WANTS_SCORES) != 0;
    const struct {
        int32_t value, bits;
    } fields[] = {{doublings(round->max_len), 5},
                  {round->n_padded, 13},
                  {round->n_passes, 7},
                  {round->n_steps, 7},
                  {round->wants, 5},
                  {samples ? doublings(round->samplers.n_lists) : 0, 6},
                  {samples ? round->samplers.n_moved : 0, 6},
                  {scores ? round->scores.n_moved : 0, 6}};
    uint64_t key = 0;

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        key = key << fields[i].bits | (uint64_t)fields[i].value;
    return key;
}

/* ------------------------------------------------------------------- a round */

void sb_round_begin(struct sb_round *round, const struct sb_runner *target)
{
    round->wants = 0;
    for (int32_t b = 0; b < round->n_rows; b++) {
        const struct sb_seq *seq = round->rows[b].seq;
        int32_t *tokens = round->tokens + b * round->stride;
        tokens[0] = seq->tokens[seq->n_tokens - 1];
        for (int32_t j = 1; j < round->stride; j++)
            tokens[j] = -1;
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
    pad(round, target);
}

const struct sb_samplers *sb_round_samplers(const struct sb_round *round)
{
    return round->wants & SB_WANTS_SAMPLERS ? &round->samplers.view : NULL;
}
