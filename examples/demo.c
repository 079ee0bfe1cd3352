/*
 * make demo: runs the demo prompts under four policies, audits each run, and prints a table.
 *     demo [DIR]        DIR (examples/demo) holds target/, draft/ and prompts.jsonl
 * Exit codes: 0 done, 1 some output differed, 2 bad usage, 3 it failed, 130 and 143 ended by SIGINT
 * or SIGTERM, which let the running round end.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "specbatch.h"
#include "support/args.h"
#include "support/encode.h"
#include "support/outfile.h"
#include "support/prompts.h"
#include "support/run.h"
#include "support/signals.h"
#include "support/support.h"

enum { MAX_NEW = 96, BATCH = 4, DRAFT_LEN = 4, N_TEXTS = 2 };

struct demo {
    specbatch_model *target;
    specbatch_draft *draft;
    struct ex_prompts prompts;
    int all_equal;
};

static int open_all(struct demo *demo, const char *dir)
{
    struct ex_prompt_rules rules = {NULL, {SPECBATCH_CHAT_RAW, 0}, MAX_NEW, 0, 0};
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    char path[3][1024];

    options.compute = SPECBATCH_COMPUTE_F32; /* the same texts on every machine */
    snprintf(path[0], sizeof path[0], "%s/target", dir);
    snprintf(path[1], sizeof path[1], "%s/draft", dir);
    snprintf(path[2], sizeof path[2], "%s/prompts.jsonl", dir);
    if (specbatch_model_open(&demo->target, path[0], &options) != SPECBATCH_OK)
        return ex_complain("%s", specbatch_last_error());
    if (!ex_open_draft(&demo->draft, path[1], &options))
        return 0;
    rules.target = demo->target;
    rules.max_len = specbatch_model_context(demo->target);
    return ex_prompts_load(&demo->prompts, path[2], &rules);
}

static struct ex_settings settings_of(const struct demo *demo, int32_t policy)
{
    struct ex_settings settings = {SPECBATCH_POOL_OPTIONS_INIT, 0, MAX_NEW};

    settings.pool.policy = policy;
    settings.pool.batch = BATCH;
    settings.pool.window = (int32_t)demo->prompts.n;
    settings.pool.draft_len = DRAFT_LEN;
    settings.pool.flags = SPECBATCH_POOL_FIXED_K;
    settings.pool.max_len = ex_prompts_positions(&demo->prompts, MAX_NEW);
    return settings;
}

static int print_row(const char *policy, const struct ex_run *run, size_t n_equal)
{
    const uint64_t rows = ex_run_counter(run, "decode_rows");

    printf("%-8s %9.0f %11.2f %7.2f %9.1f %% %9.1f %%     equivalence %zu/%zu\n", policy,
           (double)run->n_tokens / run->seconds,
           ex_ratio(ex_run_counter(run, "tokens_committed"), rows),
           ex_ratio(rows, ex_run_counter(run, "decode_rounds")),
           100.0 * ex_ratio(ex_run_counter(run, "realign_ns"), ex_run_counter(run, "round_ns")),
           100.0 * ex_ratio(ex_run_counter(run, "group_rows"), rows), n_equal, run->n);
    return ex_stdout_flush();
}

static void print_legend(void)
{
    printf("\nper round: tokens a row keeps of one round, the target's own token included\n"
           "rows:      a round has, of 4 places\n"
           "realign:   share of the rounds' time spent shifting rows to a common end column\n"
           "grouped:   share of rows that met others in their end column and needed no shift\n");
}

static void print_texts(const struct ex_run *run, const struct demo *demo)
{
    size_t i;
    for (i = 0; i < N_TEXTS && i < run->n; i++) {
        /* the first and the last prompt are of different kinds */
        const size_t at = i * (run->n - 1);
        const struct ex_prompt *prompt = &demo->prompts.at[at];
        char text[1024];
        size_t n;
        if (specbatch_detokenize(demo->target, prompt->ids, prompt->n_ids, 0, text, sizeof text,
                                 &n) == 0)
            printf("\n[%zu] %s >>>%s\n", at, text, specbatch_result_text(run->results[at], NULL));
    }
}

static int run_policy(struct demo *demo, const char *policy, int last)
{
    const struct ex_settings settings = settings_of(demo, specbatch_policy_by_name(policy));
    struct ex_run run;
    size_t n_equal;
    int ok = ex_run(&run, demo->target, demo->draft, &demo->prompts, &settings, NULL, NULL) &&
             ex_run_verify(&run, demo->target, &demo->prompts, &settings, &n_equal);
    if (ok && !ex_signal()) {
        ok = print_row(policy, &run, n_equal);
        demo->all_equal &= n_equal == run.n;
        if (last) {
            print_legend();
            print_texts(&run, demo);
        }
    }
    ex_run_free(&run);
    return ok;
}

/* Returns the exit code. */
static int run_policies(struct demo *demo)
{
    static const char *const policies[] = {"plain", "eqspec", "exspec", "ragged"};
    const size_t n_policies = sizeof policies / sizeof policies[0];
    size_t i;

    ex_signals_catch();
    printf("%zu prompts, up to %d new tokens each, batch %d, %d tokens drafted a round\n%s\n\n",
           demo->prompts.n, MAX_NEW, BATCH, DRAFT_LEN, specbatch_model_fingerprint(demo->target));
    printf("policy    tokens/s   per round    rows     realign     grouped     against plain "
           "at batch 1\n");
    if (!ex_stdout_flush())
        return EX_FAILED;
    for (i = 0; i < n_policies && !ex_signal(); i++)
        if (!run_policy(demo, policies[i], i + 1 == n_policies))
            return EX_FAILED;
    if (ex_signal()) {
        ex_complain("%s: not all policies were run", ex_signal_name());
        return ex_signal_exit_code();
    }
    return demo->all_equal ? EX_OK : EX_DIFFERS;
}

int main(int argc, char **argv)
{
    const char *dir = "examples/demo";
    const struct ex_option options[] = {
        {"DIR", NULL, EX_OPERAND, &dir, 0, 0,
         "holds target/, draft/ and prompts.jsonl (examples/demo)"}};
    struct demo demo = {NULL, NULL, {NULL, 0, 0, 0}, 1};
    int code, parsed;

    ex_program = "demo";
    parsed = ex_args_parse(options, 1, argc, argv,
                           "demo [DIR]: a small pair of models under four policies");
    if (parsed <= 0)
        code = parsed < 0 ? EX_OK : EX_USAGE;
    else
        code = open_all(&demo, dir) ? run_policies(&demo) : EX_FAILED;
    if (!ex_stdout_flush())
        code = EX_FAILED;
    ex_prompts_free(&demo.prompts);
    specbatch_draft_release(demo.draft);
    specbatch_model_close(demo.target);
    return code;
}
