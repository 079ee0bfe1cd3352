/*
 * The paper's evaluation on this machine, as CSV files: `make paper` runs it, draws and reports.
 *
 *   equivalence.csv   Table 1: every policy at B = 1, 4, 8, 16 against plain decoding at batch 1
 *   speed.csv         Table 2, Figures 1, 5a, 5b, 6, Equation 1: every policy at B = 1 .. 32
 *   ablation.csv      tokens/s over K = 1 .. 8 at B = 8 of ragged, eqspec, exspec
 *   captions_*.csv    Figure 5c: grouping over B on captions of random and of equal length
 *   machine.txt       machine, date, fingerprint, and what share of the processors others took meanwhile
 *
 * E and P are counted in every run, not only in Table 1: a figure without equivalence is worth nothing.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "examples/support/support.h"
#include "support/machine.h"
#include "support/study.h"

enum { DRAFT_LEN = 5, WINDOW = 48, CAPTION_WINDOW = 50, ABLATION_BATCH = 8, ABLATION_PROMPTS = 24 };

static const char *const policies[] = {"plain", "eqspec", "exspec", "ragged", "rollback"};
enum { N_POLICIES = sizeof policies / sizeof *policies };

static struct cell cell_of(const char *policy, int32_t batch, int32_t draft_len, int32_t window,
                           int32_t max_new)
{
    const int32_t number = specbatch_policy_by_name(policy);

    return (struct cell){.method = policy,
                         .policy = number,
                         .batch = batch,
                         .window = window,
                         .draft_len = number == SPECBATCH_POLICY_PLAIN ? -1 : draft_len,
                         .max_new = max_new};
}

/* Runs a cell and writes its line. */
static int add(const struct study *study, FILE *csv, const struct ex_prompts *prompts, struct cell cell,
               const struct outcome *reference)
{
    struct outcome outcome;
    const int ok = study_run(study, prompts, &cell, &outcome);

    if (ok)
        study_line(csv, &cell, &outcome, reference);
    outcome_free(&outcome);
    return ok;
}

/* Every policy at every batch, plain at batch 1 first: it is the reference. */
static int grid(const struct study *study, const char *name, const int32_t *batches, int n_batches,
                int32_t max_new)
{
    const struct cell plain = cell_of("plain", 1, DRAFT_LEN, WINDOW, max_new);
    struct outcome reference;
    FILE *csv = study_csv(study, name);
    int ok = csv != NULL && study_run(study, &study->prompts, &plain, &reference);

    if (!csv)
        return 0;
    printf("%s\n", name);
    if (ok)
        study_line(csv, &plain, &reference, &reference);
    for (int p = 0; ok && p < N_POLICIES; p++)
        for (int b = 0; ok && b < n_batches; b++)
            if (p > 0 || batches[b] > 1)
                ok = add(study, csv, &study->prompts,
                         cell_of(policies[p], batches[b], DRAFT_LEN, WINDOW, max_new), &reference);
    outcome_free(&reference);
    return fclose(csv) == 0 && ok;
}

static int ablation(struct study *study)
{
    const struct cell plain = cell_of("plain", ABLATION_BATCH, 0, WINDOW, study->speed_tokens);
    struct outcome reference;
    FILE *csv = study_csv(study, "ablation");
    int ok;

    if (!csv)
        return 0;
    printf("ablation\n");
    study_thin(&study->prompts, ABLATION_PROMPTS);
    ok = study_run(study, &study->prompts, &plain, &reference);
    if (ok)
        study_line(csv, &plain, &reference, &reference);
    for (int p = 1; ok && p < 4; p++)
        for (int32_t k = 1; ok && k <= 8; k += study->quick ? 3 : 1)
            ok = add(study, csv, &study->prompts,
                     cell_of(policies[p], ABLATION_BATCH, k, WINDOW, study->speed_tokens), &reference);
    outcome_free(&reference);
    return fclose(csv) == 0 && ok;
}

static int captions(const struct study *study, const char *kind)
{
    const struct cell plain = cell_of("plain", 32, 0, CAPTION_WINDOW, study->speed_tokens);
    char name[64], file[1024];
    struct ex_prompts prompts;
    struct outcome reference;
    FILE *csv;
    int ok;

    snprintf(name, sizeof name, "captions_%s", kind);
    snprintf(file, sizeof file, "%s/multi30k_%s.jsonl", study->captions_dir, kind);
    printf("%s\n", name);
    if ((csv = fopen(file, "r")) == NULL) {
        printf("SKIP %s: %s is not there\n", name, file);
        return 1;
    }
    fclose(csv);
    if ((csv = study_csv(study, name)) == NULL)
        return 0;
    memset(&reference, 0, sizeof reference);
    ok = study_load(study, &prompts, file, study->speed_tokens, 25) &&
         study_run(study, &prompts, &plain, &reference);
    for (int32_t batch = 2; ok && batch <= 32; batch *= 2)
        ok = add(study, csv, &prompts,
                 cell_of("exspec", batch, DRAFT_LEN, CAPTION_WINDOW, study->speed_tokens), &reference);
    outcome_free(&reference);
    ex_prompts_free(&prompts);
    return fclose(csv) == 0 && ok;
}

static int write_facts(const struct study *study, const struct machine_watch *watch, size_t n_prompts)
{
    FILE *out = machine_facts(watch, study->out_dir, "machine");

    if (!out)
        return 0;
    fprintf(out, "fingerprint\t%s\nprompts\t%zu\nprompts_file\t%s\nquick\t%d\n",
            specbatch_model_fingerprint(study->target), n_prompts,
            strrchr(study->prompts_file, '/') ? strrchr(study->prompts_file, '/') + 1 : study->prompts_file,
            (int)study->quick);
    return fclose(out) == 0;
}

static int run_parts(struct study *study)
{
    static const int32_t verified[] = {1, 4, 8, 16}, timed[] = {1, 2, 4, 8, 16, 32};
    const int32_t part = study->part;
    int ok = 1;

    if (part == STUDY_ALL || part == STUDY_EQUIVALENCE)
        ok = grid(study, "equivalence", verified, study->quick ? 2 : 4, study->verify_tokens);
    if (ok && (part == STUDY_ALL || part == STUDY_SPEED))
        ok = grid(study, "speed", timed, study->quick ? 4 : 6, study->speed_tokens);
    if (ok && (part == STUDY_ALL || part == STUDY_CAPTIONS))
        ok = captions(study, "random") && captions(study, "equal");
    if (ok && (part == STUDY_ALL || part == STUDY_ABLATION))
        ok = ablation(study);
    return ok;
}

int main(int argc, char **argv)
{
    const struct machine_watch watch = machine_watch();
    struct study study = {.quick = 0};
    size_t n_prompts;
    int ok;

    ex_program = "paper";
    if ((ok = study_open(&study, argc, argv, "paper [options]: the paper's evaluation")) < 0)
        return EX_OK;
    n_prompts = study.prompts.n;
    ok = ok && run_parts(&study) && write_facts(&study, &watch, n_prompts);
    study_close(&study);
    return ok ? EX_OK : EX_FAILED;
}
