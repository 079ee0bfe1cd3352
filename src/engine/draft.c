/*
 * The draft sources.
 *
 * model: K passes of the draft, one token a row each, feeding on its own selections without the host
 * seeing them. Its cache persists between rounds. Entering a round the draft has entries for a prefix
 * of the committed tokens; how much is missing differs by row:
 *
 *   after a rejection        1 token   (the correction)
 *   after full acceptance    2 tokens  (the last proposal was never fed to the draft, and the bonus)
 *   new or not drafted for   many      (the prompt, or rounds with K = 0)
 *
 * Long gaps are closed by chunked prefill first; gaps of one or two tokens ride along with the first
 * draft step. Rejected: drafting from scratch each round, as the paper's code does.
 */
#include "engine/draft.h"

#include "fault.h"
#include "status.h"

/* ------------------------------------------------------------------ model */

struct model_draft {
    struct sb_draft base;
    struct sb_runner runner;
    int32_t limit; /* proposals are ids below this: min(draft vocabulary, target vocabulary) */
};

/* Committed tokens that the draft has no entries for, the last one included. */
static int32_t gap(const struct sb_seq *seq)
{
    return SB_FAULT(DRAFT_NOT_ROLLED_BACK) && seq->draft_kv_len >= seq->n_tokens ? 1
                                                                                 : seq->n_tokens - seq->draft_kv_len;
}

/* How many proposals the draft can make for a row: none once the sequence holds a token that the draft does not
 * know, and none past the draft's context (a step that feeds position p needs p < context). */
static int32_t able(const struct model_draft *draft, struct sb_seq *seq, int32_t asked)
{
    const struct sb_config *c = &draft->runner.model->config;
    const int32_t room = c->context - seq->n_tokens + 1;

    for (int32_t i = seq->draft_kv_len; i < seq->n_tokens; i++)
        if (seq->tokens[i] >= c->vocab)
            seq->draft_len = 0;
    if (seq->draft_len == 0 || room <= 0)
        return 0;
    return asked < room ? asked : room;
}

/* Queues as many of the row's missing tokens as `room` scratch cells take, but leaves the last `keep` tokens. */
static int32_t feed(struct model_draft *draft, struct sb_round *round, struct sb_seq *seq, int32_t keep, int32_t room,
                    int32_t scratch, int32_t *fed)
{
    struct sb_runner *r = &draft->runner;
    const int32_t missing = gap(seq) - keep, n = missing < room ? missing : room;
    const int32_t first = round->max_rows * round->stride + scratch;
    int32_t in_pass, rc = SPECBATCH_OK;

    *fed = n > 0 ? n : 0;
    if (*fed == 0)
        return rc;
    in_pass = sb_pass_seq(r, seq->slot, seq->start);
    for (int32_t i = 0; i < n; i++)
        sb_pass_token(r, in_pass, seq->draft_kv_len + i, first + i, -1);
    rc = sb_round_upload(round, r, seq->tokens + seq->draft_kv_len, n, scratch);
    seq->draft_kv_len += n;
    return rc;
}

/* Passes without output until every row lacks at most its last two tokens. */
static int32_t catch_up(struct model_draft *draft, struct sb_round *round)
{
    struct sb_runner *r = &draft->runner;
    int32_t rc = SPECBATCH_OK, scratch;

    do {
        scratch = 0;
        sb_pass_begin(r);
        for (int32_t b = 0; b < round->n_rows; b++) {
            int32_t fed = 0;
            if (round->rows[b].n_draft > 0 && gap(round->rows[b].seq) > 2)
                SB_TRY(feed(draft, round, round->rows[b].seq, 1, round->scratch - scratch, scratch, &fed));
            scratch += fed;
        }
        if (scratch > 0) {
            SB_TRY(sb_pass_run(r, round->dev_tokens));
            draft->base.passes++;
        }
    } while (scratch > 0);
done:
    return rc;
}

/* Draft step j: every row that wants more than j proposals feeds its token j and selects token j + 1. */
static int32_t draft_step(struct model_draft *draft, struct sb_round *round, int32_t j)
{
    struct sb_runner *r = &draft->runner;
    int32_t rc = SPECBATCH_OK, scratch = 0;

    sb_pass_begin(r);
    for (int32_t b = 0; b < round->n_rows; b++) {
        const int32_t at = b * round->stride + j;
        struct sb_seq *seq = round->rows[b].seq;
        int32_t fed = 0;

        if (round->rows[b].n_draft <= j)
            continue;
        if (j == 0)
            SB_TRY(feed(draft, round, seq, 1, round->scratch - scratch, scratch, &fed));
        scratch += fed;
        /* A row fed just now is the pass's last sequence; otherwise it joins here. */
        sb_pass_token(r, fed ? r->n_seqs - 1 : sb_pass_seq(r, seq->slot, seq->start), seq->draft_kv_len++, at, at + 1);
    }
    if (r->n_tokens == 0)
        return rc;
    SB_TRY(sb_pass_run(r, round->dev_tokens));
    sb_pass_select(r, draft->limit, round->dev_tokens, NULL, NULL);
    draft->base.passes++;
done:
    return rc;
}

static int32_t model_propose(struct sb_draft *base, struct sb_round *round, struct sb_runner *target)
{
    struct model_draft *draft = (struct model_draft *)base;
    int32_t steps = 0, rc = SPECBATCH_OK;

    (void)target;
    for (int32_t b = 0; b < round->n_rows; b++) {
        struct sb_round_row *row = &round->rows[b];
        row->n_draft = row->n_draft > 0 ? able(draft, row->seq, row->n_draft) : 0;
        if (row->n_draft > steps)
            steps = row->n_draft;
    }
    SB_TRY(catch_up(draft, round));
    for (int32_t j = 0; j < steps; j++)
        SB_TRY(draft_step(draft, round, j));
    SB_TRY(draft->runner.backend->exec_sync(draft->runner.exec));
done:
    return rc;
}

static void model_free(struct sb_draft *base)
{
    struct model_draft *draft = (struct model_draft *)base;
    const struct sb_mem mem = base->mem;

    sb_runner_free(&draft->runner);
    sb_free(&mem, draft);
}

static const struct sb_draft_ops model_ops = {"model", model_propose, model_free};

int32_t sb_draft_model_create(struct sb_draft **out, struct specbatch_model *model, const struct specbatch_model *target,
                              const struct sb_mem *mem, const struct sb_runner_limits *limits)
{
    struct model_draft *draft = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(draft, sb_alloc(mem, 1, sizeof *draft), "a draft");
    draft->base = (struct sb_draft){.ops = &model_ops, .mem = *mem, .runner = &draft->runner};
    draft->limit = model->config.vocab < target->config.vocab ? model->config.vocab : target->config.vocab;
    SB_TRY(sb_runner_create(&draft->runner, model, mem, limits));
    *out = &draft->base;
    draft = NULL;
done:
    if (draft)
        model_free(&draft->base);
    return rc;
}

/* --------------------------------------------------------------- callback */

struct callback_draft {
    struct sb_draft base;
    specbatch_draft_fn fn;
    void *user;
    int32_t *proposals; /* [k_max]: the callback never writes into the round */
};

static int32_t callback_propose(struct sb_draft *base, struct sb_round *round, struct sb_runner *target)
{
    struct callback_draft *draft = (struct callback_draft *)base;

    for (int32_t b = 0; b < round->n_rows; b++) {
        struct sb_round_row *row = &round->rows[b];
        int32_t *tokens = round->tokens + b * round->stride + 1;
        int32_t n = 0;

        if (row->n_draft > 0)
            n = draft->fn(draft->user, row->seq->id, row->seq->tokens, (size_t)row->seq->n_tokens, row->n_draft,
                          draft->proposals);
        if (n < 0 || n > row->n_draft)
            return sb_fail(SPECBATCH_E_CANCELLED, "request %llu: the draft callback returned %d, not 0..%d",
                           (unsigned long long)row->seq->id, n, row->n_draft);
        for (int32_t i = 0; i < n; i++)
            tokens[i] = draft->proposals[i];
        row->n_draft = n;
    }
    return target->backend->upload(target->exec, round->dev_tokens, round->tokens,
                                   (size_t)(round->n_rows * round->stride) * sizeof *round->tokens);
}

static void callback_free(struct sb_draft *base)
{
    const struct sb_mem mem = base->mem;

    sb_free(&mem, ((struct callback_draft *)base)->proposals);
    sb_free(&mem, base);
}

static const struct sb_draft_ops callback_ops = {"callback", callback_propose, callback_free};

int32_t sb_draft_callback_create(struct sb_draft **out, specbatch_draft_fn fn, void *user, const struct sb_mem *mem,
                                 int32_t k_max)
{
    struct callback_draft *draft = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(draft, sb_alloc(mem, 1, sizeof *draft), "a draft");
    draft->base = (struct sb_draft){.ops = &callback_ops, .mem = *mem};
    draft->fn = fn;
    draft->user = user;
    SB_NEW(draft->proposals, sb_alloc(mem, (size_t)k_max, sizeof *draft->proposals), "a draft");
    *out = &draft->base;
    draft = NULL;
done:
    if (draft)
        callback_free(&draft->base);
    return rc;
}

/* ------------------------------------------------------------------- none */

static int32_t none_propose(struct sb_draft *draft, struct sb_round *round, struct sb_runner *target)
{
    (void)draft;
    (void)target;
    for (int32_t b = 0; b < round->n_rows; b++)
        round->rows[b].n_draft = 0;
    return SPECBATCH_OK;
}

static void none_free(struct sb_draft *draft)
{
    const struct sb_mem mem = draft->mem;

    sb_free(&mem, draft);
}

static const struct sb_draft_ops none_ops = {"none", none_propose, none_free};

int32_t sb_draft_none_create(struct sb_draft **out, const struct sb_mem *mem)
{
    struct sb_draft *draft = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(draft, sb_alloc(mem, 1, sizeof *draft), "a draft");
    *draft = (struct sb_draft){.ops = &none_ops, .mem = *mem};
    *out = draft;
done:
    return rc;
}
