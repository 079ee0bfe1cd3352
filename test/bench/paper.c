/*
 * Repeats the paper's evaluation on this machine and writes CSV files. `make paper` runs this
 * program, draws the figures and writes the report.
 *
 *   speed.csv         every method at B = 1 .. 32, for Table 2, Figures 1, 5a, 5b and 6, and
 *                     Equation 1
 *   equivalence.csv   the first 50 tokens of the same runs at B = 1, 4, 8 and 16, compared with
 *                     plain decoding's at batch 1, for Table 1
 *   ablation.csv      tokens/s of ragged, eqspec and exspec over K = 1 .. 8, at B = 8
 *   captions_*.csv    how many rows are grouped over B, on captions of random and of equal
 *                     length, run as the paper's script does (admitted by length, 50 tokens), for
 *                     Figure 5c
 *   machine.txt       machine, date, fingerprint, and what share of the processors other programs
 *                     had meanwhile
 *
 * E and P (study.h) are counted in every run and not only for Table 1, since a speed says nothing
 * unless the output is the right one.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "examples/support/support.h"
#include "support/captions.h"
#include "support/machine.h"

enum { DRAFT_LEN = 5, WINDOW = 48, CAPTION_WINDOW = 50, ABLATION_BATCH = 8, ABLATION_PROMPTS = 24 };

enum { MAX_METHODS = 32 };

/* What is measured: the policies, and two variants. eqspec-replace lets newcomers take the place of
 * finished rows at once, which shows how much of exspec's gain is due to that. adaptive is what a
 * pool does by default, ragged with adaptive K. */
static struct method {
    const char *name;
    int32_t policy;
    uint32_t flags;
    int32_t chooses_k;
} methods[MAX_METHODS] = {
    {"plain", SPECBATCH_POLICY_PLAIN, 0, 0},
    {"eqspec", SPECBATCH_POLICY_EQSPEC, 0, 0},
    {"eqspec-replace", SPECBATCH_POLICY_EQSPEC, SPECBATCH_POOL_EQSPEC_REPLACE, 0},
    {"exspec", SPECBATCH_POLICY_EXSPEC, 0, 0},
    {"ragged", SPECBATCH_POLICY_RAGGED, 0, 0},
    {"rollback", SPECBATCH_POLICY_ROLLBACK, 0, 0},
    {"adaptive", SPECBATCH_POLICY_RAGGED, 0, 1},
};
enum { PLAIN, EQSPEC, EQSPEC_REPLACE, EXSPEC, RAGGED, ROLLBACK, ADAPTIVE, N_LISTED };
static int n_methods = N_LISTED;

/* Adds the policies of the library that are not listed above. */
static void add_other_policies(void)
{
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++) {
        int listed = 0;
        for (int m = 0; m < N_LISTED; m++)
            listed |= methods[m].policy == policy;
        if (!listed && n_methods < MAX_METHODS)
            methods[n_methods++] = (struct method){specbatch_policy_name(policy), policy, 0, 0};
    }
}

static struct cell cell_of(const struct method *method, int32_t batch, int32_t draft_len,
                           int32_t window, int32_t max_new)
{
    return (struct cell){.method = method->name,
                         .policy = method->policy,
                         .flags = method->flags,
                         .batch = batch,
                         .window = window,
                         .draft_len = method->policy == SPECBATCH_POLICY_PLAIN ? -1 : draft_len,
                         .max_new = max_new,
                         .chooses_k = method->chooses_k};
}

/* Runs a cell and writes its line, in which it is compared with the reference. */
static int add(const struct study *study, FILE *csv, const struct ex_prompts *prompts,
               struct cell cell, const struct outcome *reference)
{
    struct outcome outcome;
    const int ok = study_run(study, prompts, &cell, &outcome);

    if (ok)
        study_line(csv, &cell, &outcome, reference);
    outcome_free(&outcome);
    return ok;
}

/* Writes a run's line for Table 1, which compares the first tokens of each request, as many as the
 * paper does. */
static void verify(const struct study *study, FILE *csv, const struct cell *cell,
                   const struct outcome *outcome, const struct outcome *reference)
{
    double exact, partial;

    if (cell->batch != 1 && cell->batch != 4 && cell->batch != 8 && cell->batch != 16)
        return;
    study_compare(outcome, reference, study->verify_tokens, &exact, &partial);
    fprintf(csv, "%s,%" PRId32 ",%" PRId32 ",%zu,%.1f,%.1f\n", cell->method, cell->batch,
            study->verify_tokens, outcome->run.n, exact, partial);
    fflush(csv);
}

/* Runs every method at every batch size. Plain decoding at batch 1 comes first and is the
 * reference. The methods of one batch size run one after the other, so that runs which are compared
 * are minutes apart and the machine is as fast for one as for the other. */
static int run_grid(const struct study *study, FILE *speed, FILE *equivalence)
{
    static const int32_t batches[] = {1, 2, 4, 8, 16, 32};
    const int n_batches = study->quick ? 4 : 6;
    struct outcome reference, outcome;
    int ok = 1;

    for (int b = 0; ok && b < n_batches; b++)
        for (int m = 0; ok && m < n_methods; m++) {
            const struct cell cell = cell_of(&methods[m], batches[b], DRAFT_LEN, WINDOW,
                                             study->speed_tokens);
            const int first = b == 0 && m == 0;
            struct outcome *out = first ? &reference : &outcome;
            ok = study_run(study, &study->prompts, &cell, out);
            if (ok) {
                study_line(speed, &cell, out, &reference);
                verify(study, equivalence, &cell, out, &reference);
            }
            if (!first)
                outcome_free(out);
        }
    outcome_free(&reference);
    return ok;
}

static int grid(const struct study *study)
{
    FILE *speed = study_csv(study, "speed"), *equivalence;
    int ok;

    if (!speed)
        return 0;
    printf("speed, equivalence\n");
    if ((equivalence = study_file(study, "equivalence")) == NULL) {
        fclose(speed);
        return 0;
    }
    fputs("method,batch,max_new,prompts,E,P\n", equivalence);
    ok = run_grid(study, speed, equivalence);
    ok = fclose(equivalence) == 0 && ok;
    return fclose(speed) == 0 && ok;
}

static int ablation(struct study *study)
{
    static const int policies[] = {EQSPEC, EXSPEC, RAGGED};
    const struct cell plain = cell_of(&methods[PLAIN], ABLATION_BATCH, 0, WINDOW,
                                      study->speed_tokens);
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
    for (int p = 0; ok && p < 3; p++)
        for (int32_t k = 1; ok && k <= 8; k += study->quick ? 3 : 1)
            ok = add(study, csv, &study->prompts,
                     cell_of(&methods[policies[p]], ABLATION_BATCH, k, WINDOW, study->speed_tokens),
                     &reference);
    outcome_free(&reference);
    return fclose(csv) == 0 && ok;
}

static int captions(const struct study *study, const char *name, enum captions_kind kind)
{
    const int32_t max_new = study->verify_tokens;
    const struct cell plain = cell_of(&methods[PLAIN], 32, 0, CAPTION_WINDOW, max_new);
    struct ex_prompts prompts;
    struct outcome reference;
    int32_t length;
    FILE *csv = study_csv(study, name);
    int ok;

    if (!csv)
        return 0;
    memset(&reference, 0, sizeof reference);
    ok = captions_draw(study, &prompts, kind, study->quick ? 25 : 100, &length);
    if (length)
        printf("%s: %zu of %" PRId32 " tokens\n", name, prompts.n, length);
    else
        printf("%s: %zu\n", name, prompts.n);
    ok = ok && study_run(study, &prompts, &plain, &reference);
    for (int32_t batch = 2; ok && batch <= 32; batch *= 2) {
        struct cell cell = cell_of(&methods[EXSPEC], batch, DRAFT_LEN, CAPTION_WINDOW, max_new);
        cell.flags |= SPECBATCH_POOL_SORT_BY_LENGTH;
        ok = add(study, csv, &prompts, cell, &reference);
    }
    outcome_free(&reference);
    ex_prompts_free(&prompts);
    return fclose(csv) == 0 && ok;
}

static int both_captions(const struct study *study)
{
    if (study->captions_file)
        return captions(study, "captions_random", CAPTIONS_RANDOM) &&
               captions(study, "captions_equal", CAPTIONS_EQUAL);
    printf("SKIP captions: no file of captions was given (--captions)\n");
    return 1;
}

static int write_facts(const struct study *study, const struct machine_watch *watch,
                       size_t n_prompts)
{
    FILE *out = machine_facts(watch, study->out_dir, "machine");

    if (!out)
        return 0;
    fprintf(out, "fingerprint\t%s\nprompts\t%zu\nprompts_file\t%s\nquick\t%d\n",
            specbatch_model_fingerprint(study->target), n_prompts,
            strrchr(study->prompts_file, '/') ? strrchr(study->prompts_file, '/') + 1
                                              : study->prompts_file,
            (int)study->quick);
    return fclose(out) == 0;
}

static int run_parts(struct study *study)
{
    const int32_t part = study->part;
    int ok = 1;

    if (part == STUDY_ALL || part == STUDY_GRID)
        ok = grid(study);
    if (ok && (part == STUDY_ALL || part == STUDY_CAPTIONS))
        ok = both_captions(study);
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

    add_other_policies();
    if ((ok = study_open(&study, argc, argv, "[options]: the paper's evaluation")) < 0)
        return EX_OK;
    n_prompts = study.prompts.n;
    ok = ok && run_parts(&study) && write_facts(&study, &watch, n_prompts);
    study_close(&study);
    return ok ? EX_OK : EX_FAILED;
}
