/*
 * Re-creates the two faulty methods of the lower half of the paper's Table 1, in the library built
 * with SB_FAULTS, and compares them with plain decoding at batch 1 of the same library with its
 * faults off.
 *
 *   DSD   uses dynamic padding and eqspec's schedule. The correction token is the draft's, not the
 *         target's; rows are padded anew in each round, and the added padding stays counted as
 *         content; and the entries of rejected tokens stay in the cache.
 *   BSP   uses masking and ragged's schedule. Rejected tokens are masked but still count in the
 *         positions of the tokens after them, so positions have gaps from the first rejection on.
 *
 * This reproduces what the paper says is wrong with each method, and not their code line by line.
 */
#include "examples/support/support.h"
#include "fault.h"
#include "model/model.h"
#include "support/study.h"
#include "support/vtable_faults.h"

unsigned sb_fault_now = SB_FAULT_NONE;

enum { DRAFT_LEN = 5 };

struct prior {
    const char *name;
    int32_t policy;
    unsigned faults;
    enum vtable_fault operation;
};

static const struct prior priors[] = {
    {"DSD", SPECBATCH_POLICY_EQSPEC, SB_FAULT_BONUS_FROM_DRAFT | SB_FAULT_REPAD_WITHOUT_UNPAD,
     VTABLE_STALE_KV},
    {"BSP", SPECBATCH_POLICY_RAGGED, SB_FAULT_NONE, VTABLE_MASKED_IN_POSITIONS},
};
static const int32_t batches[] = {1, 4, 8, 16};

static int run_prior(const struct study *study, FILE *csv, const struct prior *prior, int32_t batch,
                     const struct outcome *reference)
{
    struct cell cell = {.method = prior->name,
                        .policy = prior->policy,
                        .batch = batch,
                        .window = batch,
                        .draft_len = DRAFT_LEN,
                        .max_new = study->verify_tokens};
    struct outcome outcome;
    int ok;

    /* A row of DSD also grows by its padding, which may be as long as the longest row. */
    cell.max_len = 2 * ((int32_t)study->prompts.longest + study->verify_tokens);
    sb_fault_now = prior->faults;
    study->target->backend = vtable_with_fault(sb_backend_cpu(), prior->operation);
    ok = study_run(study, &study->prompts, &cell, &outcome);
    study->target->backend = sb_backend_cpu();
    sb_fault_now = SB_FAULT_NONE;
    if (ok)
        study_line(csv, &cell, &outcome, reference);
    outcome_free(&outcome);
    return ok;
}

/* Leaves out the prompts that would not fit the context with their padding. The CSV file says how
 * many were run. */
static void drop_long(struct study *study)
{
    const size_t room = (size_t)(specbatch_model_context(study->target) / 2 - study->verify_tokens);
    struct ex_prompts *prompts = &study->prompts;
    size_t n = 0;

    for (size_t i = 0; i < prompts->n; i++) {
        if (prompts->at[i].n_ids <= room) {
            prompts->at[n++] = prompts->at[i];
        } else {
            ex_complain("a prompt of %zu tokens is left out", prompts->at[i].n_ids);
            ex_prompt_free(&prompts->at[i]);
        }
    }
    prompts->n = n;
    if (prompts->longest > room)
        prompts->longest = room;
}

int main(int argc, char **argv)
{
    struct study study = {.quick = 0};
    struct cell plain = {
        .method = "plain", .policy = SPECBATCH_POLICY_PLAIN, .batch = 1, .draft_len = -1};
    struct outcome reference = {.draft_len = 0};
    FILE *csv;
    int ok;

    if ((ok = study_open(&study, argc, argv, "[--prompts FILE] [--out DIR] [--quick]")) < 0)
        return EX_OK;
    if (!ok || (csv = study_csv(&study, "faults")) == NULL)
        return EX_FAILED;
    drop_long(&study);
    plain.max_new = study.verify_tokens;
    ok = study_run(&study, &study.prompts, &plain, &reference);
    for (size_t i = 0; ok && i < sizeof priors / sizeof *priors; i++)
        for (size_t b = 0; ok && b < (study.quick ? 2 : sizeof batches / sizeof *batches); b++)
            ok = run_prior(&study, csv, &priors[i], batches[b], &reference);
    outcome_free(&reference);
    study_close(&study);
    return fclose(csv) == 0 && ok ? EX_OK : EX_FAILED;
}
