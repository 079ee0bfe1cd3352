/*
 * Measures pairs of target and draft in the shapes of the paper's models with random weights: how
 * fast each policy is at each batch size and acceptance.
 *
 *   pairs [--dir DIR] [--out DIR] [--threads N] [--quick]
 *
 *   DIR/NAME-target and DIR/NAME-draft are the models, which pairs.sh makes.
 *
 * Speed depends on shapes, but acceptance depends on weights, and random weights agree with nobody.
 * So acceptance is set by an oracle, which knows what a plain run generated. It proposes the right
 * token with probability a and else a wrong one. The oracle stands on top of the draft model: the
 * model runs all of its passes, and its proposals are overwritten before the target sees them.
 *
 *      prepare   the model's own function; then the oracle's proposals are written into the
 *                round's block of tokens on the host
 *      issue     the model's own function; then that block is uploaded once more, over what the
 *                model has selected on the device
 *
 * A round therefore costs what it would cost with a trained draft, and E and P still compare every
 * token with the plain run. Whether a proposal is right depends on the request and the position
 * alone, so all policies and batches have the same luck. Rejected: a draft callback, as bench_gpu
 * has. A callback costs nothing, and the cost of drafting would have to be added by calculation.
 *
 * The results are pairs.csv, in the form of study.h, with a line for plain decoding at each batch
 * (accept 0) and one for each policy, acceptance and batch; and pairs.txt, with facts about the
 * machine.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/draft.h"
#include "examples/support/args.h"
#include "examples/support/support.h"
#include "pool/pool.h"
#include "support/machine.h"
#include "support/study.h"

enum { DRAFT_LEN = 5, N_REQUESTS = 16, MIN_PROMPT = 16, MAX_PROMPT = 32, MAX_NEW = 32 };

static const char *const pairs[] = {"vicuna", "qwen3", "glm4"};
/* The paper's two schedulers, and this library's default. */
static const char *const policies[] = {"eqspec", "exspec", "ragged"};
static const double acceptances[] = {0.5, 0.6, 0.7, 0.8, 0.9};
enum { N_PAIRS = 3, N_POLICIES = 3, N_ACCEPTANCES = 5, MAX_BATCH = 8 };

/* ------------------------------------------------------------------- oracle */

/* The oracle's state. The functions of a draft are not given any of a bench's, and only one pool
 * runs at a time, so one such state is enough. */
static struct {
    const struct sb_draft_ops *model; /* the draft model's own functions */
    const struct ex_run *plain;
    double accept;
    int32_t vocab;
} oracle;

/* A random number that depends on the request and the position alone, by splitmix64's last step. */
static double luck(uint64_t id, uint64_t position)
{
    uint64_t z = (id << 32 | position) * 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int32_t proposal(const struct sb_seq *seq, int32_t position)
{
    size_t n;
    const int32_t *plain = specbatch_result_tokens(oracle.plain->results[seq->id - 1], &n);
    const size_t at = (size_t)(position - seq->n_prompt);
    const int32_t next = at < n ? plain[at] : 0;

    return luck(seq->id, (uint64_t)position) < oracle.accept ? next : (next + 1) % oracle.vocab;
}

static int32_t oracle_prepare(struct sb_draft *draft, struct sb_round *round)
{
    const int32_t rc = oracle.model->prepare(draft, round);

    for (int32_t b = 0; b < round->n_rows; b++)
        for (int32_t i = 0; i < round->rows[b].n_draft; i++)
            round->tokens[b * round->stride + 1 + i] = proposal(round->rows[b].seq,
                                                                round->rows[b].seq->n_tokens + i);
    return rc;
}

static int32_t oracle_issue(struct sb_draft *draft, struct sb_round *round)
{
    const int32_t rc = oracle.model->issue(draft, round);

    return rc != SPECBATCH_OK ? rc : sb_round_upload(round, draft->runner);
}

static void oracle_free(struct sb_draft *draft)
{
    oracle.model->free(draft);
}

static const struct sb_draft_ops oracle_ops = {oracle_prepare, oracle_issue, NULL, oracle_free};

static void put_oracle(specbatch_pool *pool)
{
    oracle.model = pool->draft->ops;
    pool->draft->ops = &oracle_ops;
}

/* --------------------------------------------------------------------- cells */

/* Runs a cell and writes its line, in which the cell is compared with plain decoding at batch 1. */
static int run_cell(const struct study *study, FILE *csv, struct cell cell,
                    const struct outcome *reference)
{
    struct outcome outcome;
    int ok;

    oracle.plain = &reference->run;
    oracle.accept = cell.accept;
    oracle.vocab = specbatch_model_vocab_size(study->target);
    if ((ok = study_run(study, &study->prompts, &cell, &outcome)) != 0)
        study_line(csv, &cell, &outcome, reference);
    outcome_free(&outcome);
    return ok;
}

static int run_batch(const struct study *study, FILE *csv, struct cell cell,
                     const struct outcome *reference)
{
    const int n_accept = study->quick ? 2 : N_ACCEPTANCES;
    int ok = 1;

    if (cell.batch > 1)
        ok = run_cell(study, csv, cell, reference);
    cell.adapt = put_oracle;
    cell.draft_len = DRAFT_LEN;
    for (int p = 0; p < N_POLICIES; p++) {
        cell.method = policies[p];
        cell.policy = specbatch_policy_by_name(policies[p]);
        for (int a = 0; ok && a < n_accept; a++) {
            cell.accept = acceptances[study->quick ? a * (N_ACCEPTANCES - 1) : a];
            ok = run_cell(study, csv, cell, reference);
        }
    }
    return ok;
}

static int run_pair(const struct study *study, FILE *csv, const char *name)
{
    struct cell cell = {.method = "plain",
                        .policy = SPECBATCH_POLICY_PLAIN,
                        .batch = 1,
                        .window = N_REQUESTS,
                        .draft_len = -1,
                        .max_new = MAX_NEW,
                        .pair = name};
    struct outcome reference;
    int ok = study_run(study, &study->prompts, &cell, &reference);

    printf("%s: %" PRIu64 " and %" PRIu64 " MiB\n", name,
           specbatch_model_bytes(study->target) >> 20, specbatch_model_bytes(study->draft) >> 20);
    if (ok)
        study_line(csv, &cell, &reference, &reference);
    for (; ok && cell.batch <= (study->quick ? 2 : MAX_BATCH); cell.batch *= 2)
        ok = run_batch(study, csv, cell, &reference);
    outcome_free(&reference);
    return ok;
}

/* -------------------------------------------------------------------- models */

/* Makes prompts of random ids and of different lengths. */
static void make_prompts(struct study *study)
{
    const double vocab = specbatch_model_vocab_size(study->target);

    study->prompts = (struct ex_prompts){ex_alloc(N_REQUESTS, sizeof *study->prompts.at),
                                         study->quick ? 4 : N_REQUESTS, N_REQUESTS, MAX_PROMPT};
    for (size_t i = 0; i < study->prompts.n; i++) {
        struct ex_prompt *prompt = &study->prompts.at[i];
        prompt->n_ids = MIN_PROMPT + (size_t)(luck(i, 0) * (MAX_PROMPT + 1 - MIN_PROMPT));
        prompt->ids = ex_alloc(prompt->n_ids, sizeof *prompt->ids);
        for (size_t j = 0; j < prompt->n_ids; j++)
            prompt->ids[j] = (int32_t)(luck(i, j + 1) * vocab);
    }
}

static int measure_pair(struct study *study, FILE *csv, const char *dir, const char *name)
{
    char target[1024], draft[1024];
    int ok;

    snprintf(target, sizeof target, "%s/%s-target", dir, name);
    snprintf(draft, sizeof draft, "%s/%s-draft", dir, name);
    ok = study_open_models(study, target, draft);
    if (ok) {
        make_prompts(study);
        ok = run_pair(study, csv, name);
    }
    study_close(study);
    study->target = study->draft = NULL;
    return ok;
}

static int write_facts(const struct study *study, const struct machine_watch *watch)
{
    FILE *out = machine_facts(watch, study->out_dir, "pairs");

    if (!out)
        return 0;
    fprintf(out, "quick\t%d\n", (int)study->quick);
    return fclose(out) == 0;
}

int main(int argc, char **argv)
{
    const struct machine_watch watch = machine_watch();
    struct study study = {.out_dir = "build/paper", .compute = SPECBATCH_COMPUTE_F32};
    const char *dir = "build/bench/pairs";
    const struct ex_option options[] = {
        {"--dir", "DIR", EX_STRING, &dir, 0, 0,
         "holds NAME-target, NAME-draft (build/bench/pairs)"},
        {"--out", "DIR", EX_STRING, &study.out_dir, 0, 0, "where pairs.csv goes (build/paper)"},
        {"--threads", "N", EX_INT, &study.threads, 1, 256, "threads (one for each processor)"},
        {"--compute", "auto|bf16|f32|split|int8", EX_CHOICE, &study.compute, 0, 0,
         "class of the products (f32)"},
        {"--quick", NULL, EX_SWITCH, &study.quick, 0, 0,
         "few requests and cells: tries the pipeline"},
    };
    const int parsed = ex_args_parse(options, sizeof options / sizeof *options, argc, argv,
                                     "[options]: the paper's geometries at set acceptance");
    int ok = parsed == 1;
    FILE *csv;

    if (parsed < 0)
        return EX_OK;
    if (!ok || (csv = study_csv(&study, "pairs")) == NULL)
        return EX_USAGE;
    for (int i = 0; ok && i < N_PAIRS; i++)
        ok = measure_pair(&study, csv, dir, pairs[i]);
    ok = ok && write_facts(&study, &watch);
    return fclose(csv) == 0 && ok ? EX_OK : EX_FAILED;
}
