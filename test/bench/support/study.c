/* Runs cells and writes their lines; see study.h. */
#include "study.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "examples/support/args.h"
#include "examples/support/encode.h"
#include "examples/support/support.h"
#include "support/drafts.h"

static const char *const columns[] = {
    "target_passes",  "draft_passes",    "decode_rows",  "tokens_committed",
    "tokens_drafted", "tokens_accepted", "draft_ns",     "verify_ns",
    "realign_ns",     "round_ns",        "rounds",       "realigned_rows",
    "realign_bytes",  "group_rows",      "group_rounds", "decode_rounds"};
enum {
    N_COLUMNS = sizeof columns / sizeof *columns,
    SPEED_TOKENS = 128,
    VERIFY_TOKENS = 50,
    QUICK_TOKENS = 16
};

int study_open_models(struct study *study, const char *target, const char *draft)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.compute = study->compute;
    if (specbatch_model_open(&study->target, target, &options) != SPECBATCH_OK ||
        specbatch_model_open(&study->draft, draft, &options) != SPECBATCH_OK)
        return ex_complain("%s", specbatch_last_error());
    printf("%s\n", specbatch_model_fingerprint(study->target));
    return 1;
}

int study_open(struct study *study, int argc, char **argv, const char *intro)
{
    const struct ex_option options[] = {
        {"--demo", "DIR", EX_STRING, &study->demo, 0, 0,
         "holds target/ and draft/ (examples/demo)"},
        {"--prompts", "FILE", EX_STRING, &study->prompts_file, 0, 0, "JSON lines"},
        {"--captions", "FILE", EX_STRING, &study->captions_file, 0, 0,
         "text, a caption a line, for Figure 5c"},
        {"--out", "DIR", EX_STRING, &study->out_dir, 0, 0, "where the CSV files go (build/paper)"},
        {"--threads", "N", EX_INT, &study->threads, 1, 256, "threads (one for each processor)"},
        {"--compute", "auto|bf16|f32|split|int8", EX_CHOICE, &study->compute, 0, 0,
         "class of the products (f32)"},
        {"--part", "all|grid|captions|ablation", EX_CHOICE, &study->part, 0, 0,
         "one of them (all)"},
        {"--quick", NULL, EX_SWITCH, &study->quick, 0, 0,
         "few prompts and tokens: tries the pipeline"},
    };
    char path[2][1024];
    int parsed;

    study->demo = "examples/demo";
    study->prompts_file = "test/data/prompts/spec_bench_60.jsonl";
    study->out_dir = "build/paper";
    study->compute = SPECBATCH_COMPUTE_F32;
    if ((parsed = ex_args_parse(options, sizeof options / sizeof *options, argc, argv, intro)) != 1)
        return parsed;
    study->speed_tokens = study->quick ? 2 * QUICK_TOKENS : SPEED_TOKENS;
    study->verify_tokens = study->quick ? QUICK_TOKENS : VERIFY_TOKENS;
    snprintf(path[0], sizeof path[0], "%s/target", study->demo);
    snprintf(path[1], sizeof path[1], "%s/draft", study->demo);
    if (!study_open_models(study, path[0], path[1]))
        return 0;
    return study_load(study, &study->prompts, study->prompts_file, study->speed_tokens, 6);
}

void study_close(struct study *study)
{
    ex_prompts_free(&study->prompts);
    specbatch_model_close(study->draft);
    specbatch_model_close(study->target);
}

void study_thin(struct ex_prompts *prompts, size_t keep)
{
    size_t n = 0;

    if (prompts->n <= keep)
        return;
    prompts->longest = 0;
    for (size_t i = 0; i < prompts->n; i++) {
        if (n < keep && i == n * prompts->n / keep) {
            prompts->at[n++] = prompts->at[i];
            if (prompts->at[i].n_ids > prompts->longest)
                prompts->longest = prompts->at[i].n_ids;
        } else {
            ex_prompt_free(&prompts->at[i]);
        }
    }
    prompts->n = n;
}

int study_load(const struct study *study, struct ex_prompts *out, const char *file, int32_t max_new,
               size_t quick_limit)
{
    const struct ex_prompt_rules rules = {study->target,
                                          {SPECBATCH_CHAT_RAW, 0, 0, 0},
                                          max_new,
                                          specbatch_model_context(study->target),
                                          0};

    if (!ex_prompts_load(out, file, &rules))
        return 0;
    if (study->quick)
        study_thin(out, quick_limit);
    return 1;
}

/* -------------------------------------------------------------------- a cell */

static uint64_t counter(const uint64_t *counters, const char *name)
{
    for (int32_t i = 0; i < specbatch_stat_count(); i++)
        if (strcmp(specbatch_stat_name(i), name) == 0)
            return counters[i];
    return 0;
}

/* Called after every step: adds the step's counters to the sums if it was a decode round. */
static void add_step(void *user, struct ex_run *run)
{
    struct outcome *outcome = user;
    const uint64_t *now = run->counters, *last = outcome->last;
    const int decode = counter(now, "decode_rows") > counter(last, "decode_rows") &&
                       counter(now, "prefill_tokens") == counter(last, "prefill_tokens") &&
                       counter(now, "draft_passes") - counter(last, "draft_passes") <=
                           (uint64_t)outcome->draft_len;

    for (int32_t i = 0; i < specbatch_stat_count(); i++) {
        outcome->decode[i] += decode ? now[i] - last[i] : 0;
        outcome->last[i] = now[i];
    }
}

int study_run(const struct study *study, const struct ex_prompts *prompts, const struct cell *cell,
              struct outcome *outcome)
{
    struct ex_settings settings = {.pool = SPECBATCH_POOL_OPTIONS_INIT,
                                   .wish = {.max_new = cell->max_new}};
    specbatch_pool *pool = NULL;
    int ok;

    settings.pool.policy = cell->policy;
    settings.pool.batch = cell->batch;
    settings.pool.window = cell->window > cell->batch ? cell->window : cell->batch;
    settings.pool.cache_columns = UINT64_MAX; /* room for the whole window */
    settings.pool.draft_len = cell->draft_len;
    settings.pool.flags = cell->flags | (cell->chooses_k ? 0 : SPECBATCH_POOL_FIXED_K);
    settings.pool.max_len = cell->max_len ? cell->max_len
                                          : (int32_t)prompts->longest + cell->max_new;
    settings.pool.n_threads = study->threads;
    settings.pool.queue_max = prompts->n;
    *outcome = (struct outcome){.draft_len = cell->draft_len};
    if (create_with_model(&pool, study->target, study->draft, &settings.pool) != SPECBATCH_OK)
        return ex_complain("%s", specbatch_last_error());
    outcome->last = ex_alloc((size_t)specbatch_stat_count(), sizeof *outcome->last);
    outcome->decode = ex_alloc((size_t)specbatch_stat_count(), sizeof *outcome->decode);
    if (cell->adapt)
        cell->adapt(pool);
    ok = ex_run_in(&outcome->run, pool, prompts, &settings, add_step, outcome);
    specbatch_pool_free(pool);
    return ok;
}

void outcome_free(struct outcome *outcome)
{
    ex_run_free(&outcome->run);
    free(outcome->last);
    free(outcome->decode);
    *outcome = (struct outcome){.draft_len = 0};
}

/* --------------------------------------------------------------------- lines */

FILE *study_file(const struct study *study, const char *name)
{
    char path[1024];
    FILE *csv;

    snprintf(path, sizeof path, "%s/%s.csv", study->out_dir, name);
    if ((csv = fopen(path, "w")) == NULL)
        ex_complain("%s: cannot write", path);
    return csv;
}

FILE *study_csv(const struct study *study, const char *name)
{
    FILE *csv = study_file(study, name);

    if (!csv)
        return NULL;
    fprintf(csv,
            "method,batch,draft_len,window,max_new,prompts,E,P,tokens,seconds,tps,pair,accept");
    for (int i = 0; i < N_COLUMNS; i++)
        fprintf(csv, ",%s", columns[i]);
    for (int i = 0; i < N_COLUMNS; i++)
        fprintf(csv, ",d_%s", columns[i]);
    fputc('\n', csv);
    return csv;
}

void study_compare(const struct outcome *outcome, const struct outcome *reference, int32_t first,
                   double *exact, double *partial)
{
    const size_t n_results = outcome->run.n;

    *exact = *partial = 0.0;
    for (size_t i = 0; i < n_results; i++) {
        size_t n, n_reference, same = 0;
        const int32_t *got = specbatch_result_tokens(outcome->run.results[i], &n);
        const int32_t *expected = specbatch_result_tokens(reference->run.results[i], &n_reference);
        n = n < (size_t)first ? n : (size_t)first;
        n_reference = n_reference < (size_t)first ? n_reference : (size_t)first;
        while (same < n && same < n_reference && got[same] == expected[same])
            same++;
        *exact += same == n && same == n_reference;
        *partial += (double)same / (double)n_reference;
    }
    *exact *= 100.0 / (double)n_results;
    *partial *= 100.0 / (double)n_results;
}

void study_line(FILE *csv, const struct cell *cell, const struct outcome *outcome,
                const struct outcome *reference)
{
    const struct ex_run *run = &outcome->run;
    const double tps = (double)run->n_tokens / run->seconds;
    double exact, partial;

    study_compare(outcome, reference, cell->max_new, &exact, &partial);
    fprintf(csv,
            "%s,%" PRId32 ",%" PRId32 ",%" PRId32 ",%" PRId32 ",%zu,%.1f,%.1f,%" PRIu64
            ",%.3f,%.1f",
            cell->method, cell->batch, cell->draft_len, cell->window, cell->max_new, run->n, exact,
            partial, run->n_tokens, run->seconds, tps);
    fprintf(csv, ",%s,%.2f", cell->pair ? cell->pair : "demo", cell->accept);
    for (int i = 0; i < N_COLUMNS; i++)
        fprintf(csv, ",%" PRIu64, counter(run->counters, columns[i]));
    for (int i = 0; i < N_COLUMNS; i++)
        fprintf(csv, ",%" PRIu64, counter(outcome->decode, columns[i]));
    fputc('\n', csv);
    fflush(csv);
    printf("  %-12s B %2" PRId32 "  K %" PRId32 "  E %5.1f  P %5.1f  %8.1f tokens/s  %6.1f s",
           cell->method, cell->batch, cell->draft_len, exact, partial, tps, run->seconds);
    printf(cell->accept > 0.0 ? "  a %.1f\n" : "\n", cell->accept);
    fflush(stdout);
}
