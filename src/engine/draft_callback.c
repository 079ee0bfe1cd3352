/*
 * The draft made of functions of the caller's (specbatch_draft_ops).
 *
 * propose sees all rows of a round that may have proposals at once, so that a host can run a model
 * of its own over the batch. It reads the sequences where they are and writes into memory of this
 * draft's, never into the round's: what it wrote is checked before it is copied. A sequence is
 * marked as shown before propose sees it, so its end is told even if propose never returns.
 */
#include "engine/draft.h"

#include "options.h"
#include "port.h"
#include "status.h"

/* ------------------------------------------------------------ a pool's draft */

struct callback_draft {
    struct sb_draft base;
    specbatch_draft_ops ops;
    const struct sb_runner *target; /* borrowed; for its clock */
    int32_t vocab;                  /* of the target */
    int32_t draft_len;              /* places of each row in `out` */
    specbatch_draft_row *rows;      /* [batch], the first of which propose is given */
    specbatch_draft_row **list; /* [batch], a pointer to each row: rows may grow in later versions,
                                   so the host must not index them by its own size */
    int32_t *out;               /* [batch][draft_len] */
};

/* One call of propose: its arguments, and what it returned. */
struct proposal_call {
    const struct callback_draft *draft;
    size_t n_rows;
    int32_t returned;
};

static void call_propose(void *arg)
{
    struct proposal_call *call = arg;
    const specbatch_draft_ops *ops = &call->draft->ops;

    call->returned = ops->propose(ops->user, call->draft->list, call->n_rows);
}

/* Lists the rows that may have proposals, and returns how many they are. */
static size_t show_rows(struct callback_draft *draft, const struct sb_round *round)
{
    size_t n = 0;

    for (int32_t b = 0; b < round->n_rows; b++) {
        struct sb_seq *seq = round->rows[b].seq;
        if (round->rows[b].n_draft == 0)
            continue;
        seq->shown = 1;
        draft->rows[n] = (specbatch_draft_row){.struct_size = sizeof *draft->rows,
                                               .request_id = seq->id,
                                               .request_user = seq->user,
                                               .tokens = seq->tokens,
                                               .n_tokens = (size_t)seq->n_tokens,
                                               .out = draft->out + n * (size_t)draft->draft_len,
                                               .k = round->rows[b].n_draft};
        n++;
    }
    return n;
}

/* Copies the proposals for row b of the round, up to the first that is no token. The host may have
 * overwritten any field of the row it saw, so of those only n_out is read, and checked. */
static int32_t take_proposals(const struct callback_draft *draft, struct sb_round *round, int32_t b,
                              size_t shown_as)
{
    const int32_t *out = draft->out + shown_as * (size_t)draft->draft_len;
    const int32_t n_out = draft->rows[shown_as].n_out;
    struct sb_round_row *row = &round->rows[b];
    int32_t n = 0;

    if (n_out < 0 || n_out > row->n_draft)
        return sb_fail(SPECBATCH_E_CANCELLED,
                       "request %llu: the draft's propose set n_out to %d, not 0..%d",
                       (unsigned long long)row->seq->id, n_out, row->n_draft);
    for (; n < n_out && out[n] >= 0 && out[n] < draft->vocab; n++)
        round->tokens[b * round->stride + 1 + n] = out[n];
    row->n_draft = n;
    if (n > round->n_steps)
        round->n_steps = n;
    return SPECBATCH_OK;
}

/* Calls propose. It may wait for a device or another program, and all the time that it takes is a
 * cost of the round, also what the clock of passes leaves out. */
static void propose(struct callback_draft *draft, struct proposal_call *call)
{
    const uint64_t began = sb_port_now_ns(), worked = sb_runner_clock(draft->target);
    uint64_t took, work;

    sb_port_call_host(call_propose, call);
    took = sb_port_now_ns() - began;
    work = sb_runner_clock(draft->target) - worked;
    draft->base.waited_ns += took > work ? took - work : 0;
}

static int32_t callback_prepare(struct sb_draft *base, struct sb_round *round)
{
    struct callback_draft *draft = (struct callback_draft *)base;
    struct proposal_call call = {.draft = draft, .n_rows = show_rows(draft, round)};
    size_t shown_as = 0;
    int32_t rc = SPECBATCH_OK;

    if (call.n_rows == 0)
        return rc;
    propose(draft, &call);
    if (call.returned != 0)
        return sb_fail(SPECBATCH_E_CANCELLED, "the draft's propose returned %d", call.returned);
    for (int32_t b = 0; b < round->n_rows && rc == SPECBATCH_OK; b++)
        if (round->rows[b].n_draft > 0)
            rc = take_proposals(draft, round, b, shown_as++);
    return rc;
}

struct retire_call {
    const specbatch_draft_ops *ops;
    const struct sb_seq *seq;
};

static void call_retire(void *arg)
{
    const struct retire_call *call = arg;

    call->ops->retire(call->ops->user, call->seq->id, call->seq->user);
}

static void callback_retire(struct sb_draft *base, const struct sb_seq *seq)
{
    const struct callback_draft *draft = (const struct callback_draft *)base;
    struct retire_call call = {&draft->ops, seq};

    if (draft->ops.retire)
        sb_port_call_host(call_retire, &call);
}

static void callback_free(struct sb_draft *base)
{
    struct callback_draft *draft = (struct callback_draft *)base;
    const struct sb_mem mem = base->mem;

    sb_free(&mem, draft->rows);
    sb_free(&mem, draft->list);
    sb_free(&mem, draft->out);
    sb_free(&mem, draft);
}

static const struct sb_draft_ops callback_ops = {callback_prepare, NULL, callback_retire,
                                                 callback_free};

/* ------------------------------------------------------------------ a source */

struct callback_source {
    struct specbatch_draft base;
    specbatch_draft_ops ops;
};

static int32_t source_bytes(const struct specbatch_draft *source,
                            const struct sb_draft_limits *limits, uint64_t *cache, uint64_t *work)
{
    const size_t row = sizeof(specbatch_draft_row) + sizeof(specbatch_draft_row *) +
                       (size_t)limits->draft_len * sizeof(int32_t);

    (void)source;
    *cache = 0;
    *work = (uint64_t)limits->batch * row;
    return SPECBATCH_OK;
}

static int32_t source_create(struct sb_draft **out, const struct specbatch_draft *source,
                             const struct sb_runner *target, const struct sb_mem *mem,
                             const struct sb_draft_limits *limits)
{
    const size_t batch = (size_t)limits->batch, k = (size_t)limits->draft_len;
    struct callback_draft *draft = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(draft, sb_alloc(mem, 1, sizeof *draft), "a draft");
    draft->base = (struct sb_draft){.ops = &callback_ops, .mem = *mem};
    draft->ops = ((const struct callback_source *)source)->ops;
    draft->target = target;
    draft->vocab = target->model->config.vocab;
    draft->draft_len = limits->draft_len;
    SB_NEW(draft->rows, sb_alloc(mem, batch, sizeof *draft->rows), "a draft");
    SB_NEW(draft->list, sb_alloc(mem, batch, sizeof(specbatch_draft_row *)), "a draft");
    SB_NEW(draft->out, sb_alloc(mem, batch * k, sizeof *draft->out), "a draft");
    for (size_t b = 0; b < batch; b++)
        draft->list[b] = &draft->rows[b];
    *out = &draft->base;
    draft = NULL;
done:
    if (draft)
        callback_free(&draft->base);
    return rc;
}

static void call_release(void *arg)
{
    const specbatch_draft_ops *ops = arg;

    ops->release(ops->user);
}

/* The host is told last, when nothing is left that it could leave unfreed by not returning. */
static void source_free(struct specbatch_draft *source)
{
    specbatch_draft_ops ops = ((struct callback_source *)source)->ops;
    const struct sb_mem mem = source->mem;

    sb_free(&mem, source);
    if (ops.release)
        sb_port_call_host(call_release, &ops);
}

static const struct sb_source_ops source_ops = {
    "callbacks", SB_SOURCE_ONCE | SB_SOURCE_HOST, NULL, source_bytes, source_create, source_free};

int32_t sb_source_from_ops(struct specbatch_draft **out, const specbatch_draft_ops *ops)
{
    const struct sb_mem c_library = {NULL, NULL, NULL};
    struct callback_source *source;
    specbatch_draft_ops full;
    int32_t rc;

    SB_TRY(sb_options_copy(&full, sizeof full, ops, "draft ops"));
    if (!full.propose)
        SB_FAIL(SPECBATCH_E_INVALID, "draft ops: propose is NULL");
    SB_NEW(source, sb_alloc(&c_library, 1, sizeof *source), "a draft");
    sb_source_init(&source->base, &source_ops, &c_library);
    source->ops = full;
    *out = &source->base;
done:
    return rc;
}
