/* How a round is issued: the upload, the draft's passes, the target's pass and the verdict's
 * download, as they are, or recorded and replayed by the backend (backend.h). */
#include "engine/draft.h"
#include "engine/masks.h"
#include "engine/round.h"
#include "port.h"
#include "status.h"

/* Uploads the first `bytes` of the round's inputs, and its samplers. */
static int32_t upload_inputs(const struct sb_round *round, const struct sb_runner *runner,
                             size_t bytes)
{
    const struct sb_backend *be = runner->backend;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(be->upload(runner->exec, round->dev_inputs, round->host_inputs, bytes));
    if (round->wants & SB_WANTS_SAMPLERS)
        SB_TRY(be->upload(runner->exec, round->samplers.dev, round->samplers.host,
                          sb_sampler_block_used(&round->samplers)));
done:
    return rc;
}

int32_t sb_round_upload(const struct sb_round *round, const struct sb_runner *runner)
{
    return upload_inputs(round, runner, round->tokens_bytes);
}

/* The masks need the proposals, which a draft model makes on the device, and the draft is done with
 * the samplers before they change. So this waits for all that has been issued. */
static int32_t complete_masks(struct sb_round *round, struct sb_runner *target)
{
    const size_t bytes = (size_t)round->n_rows * (size_t)round->stride * sizeof *round->tokens;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(target->backend->download(target->exec, round->tokens, round->dev_tokens, bytes));
    SB_TRY(target->backend->exec_sync(target->exec));
    SB_TRY(sb_masks_complete(round, target));
done:
    return rc;
}

static int32_t issue_all(struct sb_round *round, struct sb_runner *target, struct sb_draft *draft,
                         uint64_t *drafted_ns)
{
    const size_t bytes = round->tokens_bytes + round->pass_bytes[0] +
                         (size_t)round->n_passes * round->pass_bytes[1];
    int32_t rc = SPECBATCH_OK;

    SB_TRY(upload_inputs(round, target, bytes));
    if (round->wants & SB_WANTS_SCORES)
        SB_TRY(sb_scores_upload(round, target->exec));
    if (round->n_passes > 0)
        SB_TRY(draft->ops->issue(draft, round));
    *drafted_ns = sb_port_now_ns();
    if (round->wants & SB_WANTS_MASKS)
        SB_TRY(complete_masks(round, target));
    SB_TRY(sb_verify_issue(round, target));
done:
    return rc;
}

/* The backend decides whether the round is issued as it is, recorded as well, or replayed. */
static int32_t issue_recorded(struct sb_round *round, struct sb_runner *target,
                              struct sb_draft *draft, uint64_t *drafted_ns)
{
    const struct sb_backend *be = target->backend;
    int32_t rc = SPECBATCH_OK;

    if (!be->record_begin(target->exec, sb_round_key(round), &round->repeats))
        rc = issue_all(round, target, draft, drafted_ns);
    return rc == SPECBATCH_OK ? be->record_end(target->exec) : rc;
}

int32_t sb_round_issue(struct sb_round *round, struct sb_runner *target, struct sb_draft *draft,
                       uint64_t *drafted_ns)
{
    const struct sb_backend *be = target->backend;
    int32_t rc = SPECBATCH_OK;

    *drafted_ns = sb_port_now_ns();
    round->repeats = 1;
    if (!round->padded)
        rc = issue_all(round, target, draft, drafted_ns);
    else
        rc = issue_recorded(round, target, draft, drafted_ns);
    while (rc == SB_AGAIN) {
        rc = issue_recorded(round, target, draft, drafted_ns);
        round->repeats = 0; /* This round took two attempts; later ones will not. */
    }
    if (rc == SPECBATCH_OK)
        return be->exec_sync(target->exec);
    /* Waits until nothing of the broken round is running, and gives up its recording. The status
     * that is returned is that of the first failure. */
    (void)be->exec_sync(target->exec);
    return rc;
}
