/*
 * The draft model.
 *
 * It makes K proposals for each row by K passes, called steps: each step feeds it one
 * token of every row, and the token it selects is both the next proposal and what the next step
 * feeds. The host sees none of them.
 *
 * The draft's cache persists between rounds. When a round begins, the draft has entries for a
 * prefix of each sequence's committed tokens. The tokens it lacks are the row's gap, which the last
 * committed token always belongs to:
 *
 *   after a rejection           1 token    the correction
 *   after full acceptance       2 tokens   the last proposal, which was never fed to the draft, and
 *                                          the bonus
 *   new, or not drafted for     many       the prompt, or what was committed in rounds with K = 0
 *
 * A gap of more than two tokens is closed first, by passes of its own (catch_up). In a gap of two,
 * the first step feeds both tokens. Rejected: computing the whole sequence again each round, as the
 * paper's code does.
 *
 * If the pool has a draft_min_prob, the host does look: after each step it downloads how probable
 * the draft takes its proposals to be, and rows behind an improbable one are in no further step. So
 * the steps run while the round is prepared, because the target's pass needs to know how many
 * proposals there are, and such a round is not recorded. Rejected: building all steps and dropping
 * proposals afterwards, which saves the target work but the draft none.
 */
#include "engine/draft.h"

#include <math.h>

#include "fault.h"
#include "status.h"

/* ------------------------------------------------------------ a pool's draft */

struct model_draft {
    struct sb_draft base;
    struct sb_runner runner;
    int32_t limit;     /* proposals are ids below this: the smaller of the two vocabularies */
    float min_logprob; /* behind a proposal less probable than this a row has none; -infinity: any
                          may follow */
};

/* Committed tokens that the draft has no entries for; the last one is always among them. */
static int32_t gap(const struct sb_seq *seq)
{
    return SB_FAULT(DRAFT_NOT_ROLLED_BACK) && seq->draft_kv_len >= seq->n_tokens
               ? 1
               : seq->n_tokens - seq->draft_kv_len;
}

/* Whether the draft has an embedding for every token that it has yet to read. The target's
 * vocabulary may be the larger one (added tokens). */
static int knows_missing_tokens(const struct model_draft *draft, const struct sb_seq *seq)
{
    for (int32_t i = seq->draft_kv_len; i < seq->n_tokens; i++)
        if (seq->tokens[i] >= draft->runner.model->config.vocab)
            return 0;
    return 1;
}

/* No more proposals for this sequence, ever: a token that the draft cannot read stays in it. */
static void stop_drafting(struct sb_seq *seq)
{
    seq->draft_sources = 0;
}

/* How many of the proposals asked for fit the draft's context: a step that feeds the token at
 * position p needs p < context. */
static int32_t within_context(const struct model_draft *draft, const struct sb_seq *seq,
                              int32_t asked)
{
    const int32_t room = draft->runner.model->config.context - seq->n_tokens + 1;

    if (room <= 0)
        return 0;
    return asked < room ? asked : room;
}

/* Lowers the proposals asked for to those that the draft can make. */
static void limit_proposals(const struct model_draft *draft, struct sb_round_row *row)
{
    if (row->n_draft > 0 && !knows_missing_tokens(draft, row->seq)) {
        stop_drafting(row->seq);
        row->n_draft = 0;
    }
    row->n_draft = within_context(draft, row->seq, row->n_draft);
}

/* Adds the tokens of a row's gap, except the last `keep`, to the pass that is being built: the
 * first `room` of them at most. Their ids go into round->tokens, from index `at` on. Returns how
 * many were added. */
static int32_t feed(struct model_draft *draft, struct sb_round *round, struct sb_seq *seq,
                    int32_t keep, int32_t room, int32_t at)
{
    struct sb_runner *r = &draft->runner;
    const int32_t missing = gap(seq) - keep, n = missing < room ? missing : room;
    int32_t in_pass;

    if (n <= 0)
        return 0;
    in_pass = sb_pass_add_seq(r, seq->at, seq->cap, seq->start);
    for (int32_t i = 0; i < n; i++) {
        round->tokens[at + i] = seq->tokens[seq->draft_kv_len + i];
        sb_pass_add_token(r, in_pass, seq->draft_kv_len + i, at + i, -1);
    }
    seq->draft_kv_len += n;
    return n;
}

/* Closes long gaps: runs passes, without selecting anything, until no row's gap exceeds two tokens.
 * These passes run immediately, outside any recording: prompt lengths rarely repeat, so a recording
 * of them would hardly ever be replayed. */
static int32_t catch_up(struct model_draft *draft, struct sb_round *round)
{
    struct sb_runner *r = &draft->runner;
    int32_t rc = SPECBATCH_OK, used;

    do {
        const uint64_t began = sb_runner_clock(r);
        used = 0;
        sb_pass_begin(r, 0);
        r->building->is_apart = 1;
        for (int32_t b = 0; b < round->n_rows; b++)
            if (round->rows[b].n_draft > 0 && gap(round->rows[b].seq) > 2)
                used += feed(draft, round, round->rows[b].seq, 1, round->chunk_tokens - used,
                             round->chunks_at + used);
        if (used > 0) {
            SB_TRY(r->backend->upload(r->exec, round->dev_tokens + round->chunks_at,
                                      round->tokens + round->chunks_at,
                                      (size_t)used * sizeof *round->tokens));
            SB_TRY(sb_pass_issue(r, 0, round->dev_tokens));
            SB_TRY(r->backend->exec_sync(r->exec));
            draft->base.passes++;
            draft->base.caught_up += (uint64_t)used;
            draft->base.catch_up_ns += sb_runner_clock(r) - began;
        }
    } while (used > 0);
done:
    return rc;
}

/* Builds draft step j. Every row with more than j proposals feeds its token j and selects its token
 * j + 1, the proposal. In step 0, where token 0 is the last committed one, a row whose gap is two
 * tokens feeds the token before that too. In a padded round every row adds the same number of
 * tokens: a padding token in the sink stands for each that it does not feed. What is selected
 * behind such a token goes to the row's place for gaps, which nothing reads any more by then: the
 * row may have proposals of another source. */
static void build_step(struct model_draft *draft, struct sb_round *round, int32_t j)
{
    struct sb_runner *r = &draft->runner;
    int32_t sink = 0;

    sb_pass_begin(r, j);
    r->building->is_apart = 1;
    if (round->padded)
        sink = sb_pass_add_sink(r);
    for (int32_t b = 0; b < round->n_padded; b++) {
        const int32_t at = b * round->stride + j,
                      wanted = b < round->n_rows && round->rows[b].n_draft > j;
        struct sb_seq *seq = wanted ? round->rows[b].seq : NULL;
        const int32_t fed = wanted && j == 0 ? feed(draft, round, seq, 1, 1, round->gaps_at + b)
                                             : 0;

        if (round->padded && j == 0 && !fed)
            sb_pass_add_token(r, sink, 0, sb_round_padding_at(round), -1);
        if (wanted) {
            /* If a gap was fed just now, the row is the pass's latest sequence already. */
            const int32_t in_pass = fed ? r->building->n_seqs - 1
                                        : sb_pass_add_seq(r, seq->at, seq->cap, seq->start);
            sb_pass_add_token(r, in_pass, seq->draft_kv_len++, at, at + 1);
        } else if (round->padded) {
            sb_pass_add_token(r, sink, 0, sb_round_padding_at(round), round->gaps_at + b);
        }
    }
    if (round->padded)
        sb_pass_fill_up(r, round->n_padded + 1, round->max_len);
}

/* The most proposals that a row has. */
static int32_t longest(const struct sb_round *round)
{
    int32_t most = 0;

    for (int32_t b = 0; b < round->n_rows; b++)
        if (round->rows[b].n_draft > most)
            most = round->rows[b].n_draft;
    return most;
}

/* After step j: rows whose proposal is too improbable, or has no probability, make no more. */
static void stop_rows(const struct model_draft *draft, struct sb_round *round, int32_t j)
{
    for (int32_t b = 0; b < round->n_rows; b++) {
        struct sb_round_row *row = &round->rows[b];
        if (row->n_draft > j + 1 &&
            !(round->logprob[b * round->stride + j + 1] >= draft->min_logprob))
            row->n_draft = j + 1;
    }
}

/* Runs one step, of which the probabilities are in round->logprob then. The first is built before
 * the upload, since it writes the tokens of gaps. */
static int32_t run_step(struct model_draft *draft, struct sb_round *round, int32_t j)
{
    struct sb_runner *r = &draft->runner;
    int32_t rc = SPECBATCH_OK;

    build_step(draft, round, j);
    if (j == 0)
        SB_TRY(sb_round_upload(round, r));
    SB_TRY(sb_pass_upload(r, j));
    sb_steps_run(r, j, 1, draft->limit, sb_round_samplers(round), round->dev_tokens,
                 round->dev_logprob);
    SB_TRY(r->backend->download(r->exec, round->logprob, round->dev_logprob,
                                (size_t)(round->n_rows * round->stride) * sizeof *round->logprob));
    SB_TRY(r->backend->exec_sync(r->exec));
    draft->base.passes++;
done:
    return rc;
}

/* Makes the proposals now, and stops for each row where the draft is no longer sure. They come back
 * to the host, whose tokens the round will upload. */
static int32_t draft_while_sure(struct model_draft *draft, struct sb_round *round)
{
    struct sb_runner *r = &draft->runner;
    int32_t rc = SPECBATCH_OK;

    sb_round_unpad(round);
    for (int32_t j = 0; j < longest(round); j++) {
        SB_TRY(run_step(draft, round, j));
        stop_rows(draft, round, j);
    }
    SB_TRY(r->backend->download(r->exec, round->tokens, round->dev_tokens,
                                (size_t)(round->n_rows * round->stride) * sizeof *round->tokens));
    SB_TRY(r->backend->exec_sync(r->exec));
done:
    return rc;
}

static int32_t model_prepare(struct sb_draft *base, struct sb_round *round)
{
    struct model_draft *draft = (struct model_draft *)base;
    int32_t rc = SPECBATCH_OK, n_steps;

    for (int32_t b = 0; b < round->n_rows; b++)
        limit_proposals(draft, &round->rows[b]);
    n_steps = longest(round);
    if (n_steps == 0)
        return rc;
    SB_TRY(catch_up(draft, round));
    if (draft->min_logprob > -INFINITY) {
        SB_TRY(draft_while_sure(draft, round));
        n_steps = longest(round);
    } else {
        for (int32_t j = 0; j < n_steps; j++)
            build_step(draft, round, j);
        round->n_passes = n_steps;
        base->passes += (uint64_t)n_steps;
    }
    if (n_steps > round->n_steps)
        round->n_steps = n_steps;
done:
    return rc;
}

static int32_t model_issue(struct sb_draft *base, struct sb_round *round)
{
    struct model_draft *draft = (struct model_draft *)base;

    sb_steps_run(&draft->runner, 0, round->n_passes, draft->limit, sb_round_samplers(round),
                 round->dev_tokens, NULL);
    return SPECBATCH_OK;
}

static void model_free(struct sb_draft *base)
{
    struct model_draft *draft = (struct model_draft *)base;
    const struct sb_mem mem = base->mem;

    sb_runner_free(&draft->runner);
    sb_free(&mem, draft);
}

static const struct sb_draft_ops model_ops = {model_prepare, model_issue, NULL, model_free};

/* ------------------------------------------------------------------ a source */

struct model_source {
    struct specbatch_draft base;
    struct specbatch_model *model; /* a reference */
};

static struct specbatch_model *model_of(const struct specbatch_draft *source)
{
    return ((const struct model_source *)source)->model;
}

/* A draft model has K passes a round, each of at most two tokens and one selection a row; or, to
 * catch up, passes of a chunk. */
static struct sb_runner_limits runner_limits(const struct sb_draft_limits *limits)
{
    const int32_t step = 2 * limits->batch, chunk = limits->prefill_chunk;
    struct sb_runner_limits runner = limits->target;

    runner.max_tokens = step > chunk ? step : chunk;
    runner.max_out = limits->batch;
    runner.max_scored = 0;
    runner.n_passes = limits->draft_len;
    runner.span = 0; /* a draft may compute prompts in any way, so it needs none */
    runner.is_draft = 1;
    return runner;
}

static int32_t source_check(const struct specbatch_draft *source,
                            const struct specbatch_model *target)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_model_check_process(model_of(source)));
    SB_TRY(sb_model_check_draft(target, model_of(source)));
done:
    return rc;
}

static int32_t source_bytes(const struct specbatch_draft *source,
                            const struct sb_draft_limits *limits, uint64_t *cache, uint64_t *work)
{
    const struct sb_runner_limits runner = runner_limits(limits);
    size_t cache_bytes, work_bytes;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_runner_bytes(model_of(source), &runner, &cache_bytes, &work_bytes));
    *cache = cache_bytes;
    *work = work_bytes;
done:
    return rc;
}

/* The draft's cache lives as long as the pool, and has the same slots and columns as the
 * target's. */
static int32_t source_create(struct sb_draft **out, const struct specbatch_draft *source,
                             const struct sb_runner *target, const struct sb_mem *mem,
                             const struct sb_draft_limits *limits)
{
    const struct sb_runner_limits runner = runner_limits(limits);
    struct specbatch_model *model = model_of(source);
    struct model_draft *draft = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(draft, sb_alloc(mem, 1, sizeof *draft), "a draft");
    draft->base = (struct sb_draft){.ops = &model_ops, .mem = *mem, .runner = &draft->runner};
    draft->min_logprob = limits->min_prob > 0.0f ? logf(limits->min_prob) : -INFINITY;
    draft->limit = target->model->config.vocab;
    if (model->config.vocab < draft->limit)
        draft->limit = model->config.vocab;
    SB_TRY(sb_runner_create(&draft->runner, model, mem, &runner, target));
    SB_TRY(sb_steps_prepare(&draft->runner));
    *out = &draft->base;
    draft = NULL;
done:
    if (draft)
        model_free(&draft->base);
    return rc;
}

/* The model goes last: the source's memory came from its memory functions. */
static void source_free(struct specbatch_draft *source)
{
    struct specbatch_model *model = model_of(source);
    const struct sb_mem mem = source->mem;

    sb_free(&mem, source);
    sb_model_release(model);
}

static const struct sb_source_ops source_ops = {"model",      SB_SOURCE_ONCE, source_check,
                                                source_bytes, source_create,  source_free};

int32_t sb_source_from_model(struct specbatch_draft **out, struct specbatch_model *model)
{
    struct model_source *source;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(source, sb_alloc(&model->mem, 1, sizeof *source), "a draft");
    sb_source_init(&source->base, &source_ops, &model->mem);
    source->model = model;
    sb_model_retain(model);
    *out = &source->base;
done:
    return rc;
}
