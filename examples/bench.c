/*
 * bench: finds out which policy, batch and draft length are fastest for your checkpoints and
 * prompts on this machine.
 *
 * Every setting runs all prompts. Its tokens are compared with those of plain decoding at batch 1,
 * which runs first, when one prompt has warmed the machine up, and is the table's own row of that
 * setting. The three fastest settings of which all tokens are equal run twice more, in turn, since
 * single runs differ by more than settings do; the best median is recommended. --trace writes every
 * round of every run into a file. SIGINT and SIGTERM let the running round end; settings that were
 * measured keep their rows. Exit codes: 0 done, 1 some output differed, 2 bad usage or input, 3 a
 * run failed, 130 and 143 ended by SIGINT or SIGTERM.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "specbatch.h"
#include "support/args.h"
#include "support/outfile.h"
#include "support/prompts.h"
#include "support/roundtrace.h"
#include "support/run.h"
#include "support/run_args.h"
#include "support/sampling_args.h"
#include "support/signals.h"
#include "support/support.h"

enum { MAX_LIST = 16, FINALISTS = 3, TURNS = 3 };

struct list {
    int32_t at[MAX_LIST], n;
};

struct setting {
    int32_t policy, batch, draft_len;
    double speed; /* tokens/s: of the first run, and then the median of those of TURNS */
};

struct bench {
    struct ex_run_args args;
    const char *trace_file, *policy_names, *batch_list, *draft_len_list;
    int32_t adaptive;

    specbatch_model *target;
    specbatch_draft *draft;
    struct ex_prompts prompts;
    struct list policies, batches, draft_lens;
    struct ex_trace trace;
    struct ex_run reference;             /* plain decoding at batch 1 */
    struct setting finalists[FINALISTS]; /* the fastest first */
    int32_t n_finalists;
    const struct setting *best; /* of them */
    int all_equal;
};

/* -------------------------------------------------------------------- input */

/* Copies the next word of "a,b,c" into `word`; 0 when there is none left. */
static int next_word(const char **text, char *word, size_t size)
{
    const size_t span = strcspn(*text, ",");

    if (**text == '\0')
        return 0;
    snprintf(word, size, "%.*s", (int)span, *text);
    *text += span + ((*text)[span] == ',');
    return 1;
}

static int take_item(struct list *list, int32_t value)
{
    if (list->n == MAX_LIST)
        return ex_complain("a list has more than %d items", MAX_LIST);
    list->at[list->n++] = value;
    return 1;
}

static int read_numbers(struct list *list, const char *option, const char *text, long high)
{
    char word[32], *end;

    while (next_word(&text, word, sizeof word)) {
        const long value = strtol(word, &end, 10);
        if (end == word || *end || value < 1 || value > high)
            return ex_complain("%s: \"%s\" is not a number in 1..%ld", option, word, high);
        if (!take_item(list, (int32_t)value))
            return 0;
    }
    return list->n > 0 ? 1 : ex_complain("%s: the list is empty", option);
}

static int read_policies(struct bench *bench)
{
    const char *text = bench->policy_names;
    char word[32];

    while (next_word(&text, word, sizeof word)) {
        const int32_t policy = specbatch_policy_by_name(word);
        if (policy < 0)
            return ex_complain("--policies: %s", specbatch_last_error());
        if (!take_item(&bench->policies, policy))
            return 0;
    }
    return bench->policies.n > 0 ? 1 : ex_complain("--policies: the list is empty");
}

static int read_arguments(struct bench *bench, int argc, char **argv)
{
    const struct ex_option own[] = {
        {"--policies", "LIST", EX_STRING, &bench->policy_names, 0, 0,
         "(plain,eqspec,exspec,ragged)"},
        {"--batches", "LIST", EX_STRING, &bench->batch_list, 0, 0, "(1,4,8)"},
        {"--draft-lens", "LIST", EX_STRING, &bench->draft_len_list, 0, 0, "(3,5)"},
        {"--adaptive", NULL, EX_SWITCH, &bench->adaptive, 0, 0,
         "draft lengths are limits (they are fixed)"},
        {"--trace", "FILE", EX_STRING, &bench->trace_file, 0, 0,
         "rounds as a Chrome trace, for Perfetto"},
    };
    struct ex_option options[64];
    size_t n = 0;
    int parsed;

    ex_model_options(options, &n, &bench->args);
    ex_prompt_options(options, &n, &bench->args);
    ex_options_add(options, &n, own, sizeof own / sizeof own[0]);
    ex_wish_options(options, &n, &bench->args);
    ex_cache_options(options, &n, &bench->args);
    bench->policy_names = "plain,eqspec,exspec,ragged";
    bench->batch_list = "1,4,8";
    bench->draft_len_list = "3,5";
    parsed = ex_args_parse(options, n, argc, argv,
                           "--target DIR --draft DIR|ngram|table:FILE --prompts FILE "
                           "[options]; LIST: a,b,c\n\n" EX_PROMPTS_HELP);
    if (parsed == 1 && bench->args.drafts.n == 0)
        return ex_complain("--draft is required; --help lists all");
    if (parsed == 1)
        parsed = ex_run_args_check(&bench->args) && read_policies(bench) &&
                 read_numbers(&bench->batches, "--batches", bench->batch_list, 4096) &&
                 read_numbers(&bench->draft_lens, "--draft-lens", bench->draft_len_list, 64);
    return parsed;
}

/* What ends by a clock ends elsewhere in each run. */
static int check_deadlines(const struct bench *bench)
{
    for (size_t i = 0; i < bench->prompts.n; i++)
        if (bench->prompts.at[i].own.wish.deadline_ms)
            return ex_complain("%s:%zu: \"deadline_ms\": runs with deadlines cannot be compared",
                               ex_prompts_name(bench->args.prompts_file),
                               bench->prompts.at[i].line);
    return 1;
}

/* Files before models, since these may take minutes. */
static int open_all(struct bench *bench)
{
    const struct ex_run_args *args = &bench->args;
    struct ex_prompt_rules rules;

    if (!ex_prompts_read(&bench->prompts, args->prompts_file, args->limit) ||
        !check_deadlines(bench) ||
        !ex_trace_open(&bench->trace, bench->trace_file, args->prompts_file) ||
        !ex_open_models(&bench->target, &bench->draft, args))
        return 0;
    rules = ex_run_args_rules(args, bench->target, 0);
    return ex_prompts_encode(&bench->prompts, args->prompts_file, &rules);
}

/* --------------------------------------------------------------------- runs */

/* Proposals for a row in a round; 0: none. */
static int32_t draft_len_of(const struct setting *setting)
{
    return setting->policy == SPECBATCH_POLICY_PLAIN ? 0 : setting->draft_len;
}

static int run_setting(struct bench *bench, const struct setting *setting,
                       const struct ex_prompts *prompts, struct ex_run *run)
{
    struct ex_settings settings = {.pool = SPECBATCH_POOL_OPTIONS_INIT, .wish = bench->args.wish};
    const int32_t k = draft_len_of(setting);
    char name[80];

    ex_run_args_pool(&settings.pool, &bench->args);
    settings.pool.policy = setting->policy;
    settings.pool.batch = setting->batch;
    settings.pool.draft_len = k > 0 ? k : -1;
    settings.pool.flags |= bench->adaptive ? 0u : SPECBATCH_POOL_FIXED_K;
    settings.pool.max_len = ex_prompts_positions(&bench->prompts, bench->args.wish.max_new);
    if (bench->trace_file) {
        snprintf(name, sizeof name, "%s, batch %" PRId32 ", K = %" PRId32,
                 specbatch_policy_name(setting->policy), setting->batch, k);
        ex_trace_run(&bench->trace, name);
    }
    return ex_run(run, bench->target, bench->draft, prompts, &settings,
                  bench->trace_file ? ex_trace_tick : NULL, &bench->trace);
}

/* The first columns of a line. */
static void print_name(const struct setting *setting)
{
    printf("%-8s %5" PRId32 " %3" PRId32, specbatch_policy_name(setting->policy), setting->batch,
           draft_len_of(setting));
}

static int print_row(const struct bench *bench, const struct setting *setting,
                     const struct ex_run *run, size_t n_equal)
{
    const double base = (double)bench->reference.n_tokens / bench->reference.seconds;
    const uint64_t round_ns = ex_run_counter(run, "round_ns");

    print_name(setting);
    printf(" %10.1f %7.2f %10.2f %6.1f %6.1f %8.1f     %zu/%zu\n", setting->speed,
           setting->speed / base,
           ex_ratio(ex_run_counter(run, "tokens_committed"), ex_run_counter(run, "decode_rows")),
           100.0 * ex_ratio(ex_run_counter(run, "draft_ns"), round_ns),
           100.0 * ex_ratio(ex_run_counter(run, "verify_ns"), round_ns),
           100.0 * ex_ratio(ex_run_counter(run, "realign_ns"), round_ns), n_equal, run->n);
    return ex_stdout_flush();
}

/* Puts a setting into its place among the finalists, if it has one. */
static void enter(struct bench *bench, const struct setting *setting)
{
    struct setting *at = bench->finalists;
    int32_t i = bench->n_finalists;

    if (i == FINALISTS && setting->speed <= at[i - 1].speed)
        return;
    if (i < FINALISTS)
        bench->n_finalists++;
    else
        i--;
    for (; i > 0 && at[i - 1].speed < setting->speed; i--)
        at[i] = at[i - 1];
    at[i] = *setting;
}

/* The row of a run that has come to its end. */
static int take_run(struct bench *bench, struct setting setting, const struct ex_run *run)
{
    const size_t n_equal = ex_run_count_equal(run, &bench->reference);

    setting.speed = (double)run->n_tokens / run->seconds;
    bench->all_equal &= n_equal == run->n;
    if (n_equal == run->n)
        enter(bench, &setting);
    return print_row(bench, &setting, run, n_equal);
}

/* Plain decoding at batch 1 has run already, as the reference. */
static int measure(struct bench *bench, struct setting setting)
{
    struct ex_run run;
    int ok;

    if (setting.policy == SPECBATCH_POLICY_PLAIN && setting.batch == 1)
        return take_run(bench, setting, &bench->reference);
    ok = run_setting(bench, &setting, &bench->prompts, &run);
    if (ok && !run.stop)
        ok = take_run(bench, setting, &run);
    ex_run_free(&run);
    return ok;
}

/* Runs the reference behind the first prompt alone, which bears what only a first run costs. */
static int run_reference(struct bench *bench)
{
    const struct setting plain = {SPECBATCH_POLICY_PLAIN, 1, 0, 0.0};
    struct ex_prompts first = bench->prompts;
    struct ex_run run;
    int ok;

    first.n = 1;
    ok = run_setting(bench, &plain, &first, &run);
    ex_run_free(&run);
    return ok && (ex_signal() || run_setting(bench, &plain, &bench->prompts, &bench->reference));
}

/* 0 if a run failed; 1 also if a signal ended it. */
static int run_all(struct bench *bench)
{
    int32_t p, b, k;

    printf("%zu prompts, %" PRId32 " new tokens each\n%s\n\n", bench->prompts.n,
           bench->args.wish.max_new, specbatch_model_fingerprint(bench->target));
    if (!ex_stdout_flush() || !run_reference(bench))
        return 0;
    if (ex_signal())
        return 1;
    printf(
        "                                times      tokens    share of the time, %%      equal to\n"
        "policy       B   K   tokens/s   plain 1  per round  draft verify  realign     plain at "
        "batch 1\n");
    for (p = 0; p < bench->policies.n; p++)
        for (b = 0; b < bench->batches.n; b++)
            for (k = 0; k < bench->draft_lens.n; k++) {
                const struct setting setting = {bench->policies.at[p], bench->batches.at[b],
                                                bench->draft_lens.at[k], 0};
                if (k > 0 && setting.policy == SPECBATCH_POLICY_PLAIN)
                    continue;
                if (!measure(bench, setting))
                    return 0;
                if (ex_signal())
                    return 1;
            }
    return 1;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Prints the speeds of the finalists, and returns the one of the best median. */
static const struct setting *winner(struct bench *bench, double speeds[FINALISTS][TURNS])
{
    const struct setting *best = &bench->finalists[0];

    printf("\nagain, in turn, tokens/s:\n");
    for (int32_t i = 0; i < bench->n_finalists; i++) {
        struct setting *setting = &bench->finalists[i];
        print_name(setting);
        for (int turn = 0; turn < TURNS; turn++)
            printf(" %10.1f", speeds[i][turn]);
        printf("\n");
        qsort(speeds[i], TURNS, sizeof speeds[i][0], by_value);
        setting->speed = speeds[i][TURNS / 2];
        if (setting->speed > best->speed)
            best = setting;
    }
    return best;
}

/* Runs the finalists again, in turn. As run_all. */
static int run_off(struct bench *bench)
{
    double speeds[FINALISTS][TURNS];
    struct ex_run run;

    bench->best = &bench->finalists[0];
    if (bench->n_finalists < 2)
        return 1;
    for (int32_t i = 0; i < bench->n_finalists; i++)
        speeds[i][0] = bench->finalists[i].speed;
    for (int turn = 1; turn < TURNS; turn++)
        for (int32_t i = 0; i < bench->n_finalists; i++) {
            const int ok = run_setting(bench, &bench->finalists[i], &bench->prompts, &run);
            speeds[i][turn] = (double)run.n_tokens / run.seconds;
            if (ok && !run.stop && ex_run_count_equal(&run, &bench->reference) < run.n) {
                bench->all_equal = 0;
                memset(speeds[i], 0, sizeof speeds[i]); /* it cannot win */
            }
            ex_run_free(&run);
            if (!ok || ex_signal())
                return ok;
        }
    bench->best = winner(bench, speeds);
    return ex_stdout_flush();
}

static void recommend(const struct bench *bench)
{
    const struct setting *best = bench->best;

    if (bench->n_finalists == 0 || best->speed == 0.0)
        printf("\nno setting was equal to plain decoding\n");
    else if (best->policy == SPECBATCH_POLICY_PLAIN)
        printf("\nfastest: --policy plain --batch %" PRId32
               "; speculation does not pay with this draft here\n",
               best->batch);
    else
        printf("\nfastest: --policy %s --batch %" PRId32 " --draft-len %" PRId32 "%s\n",
               specbatch_policy_name(best->policy), best->batch, best->draft_len,
               bench->adaptive ? "" : " --fixed-k");
}

static int end_early(const char *what)
{
    ex_complain("%s: %s", ex_signal_name(), what);
    return ex_signal_exit_code();
}

static int run_bench(struct bench *bench)
{
    bench->all_equal = 1;
    if (!ex_trace_begin(&bench->trace))
        return EX_FAILED;
    ex_signals_catch();
    if (!run_all(bench))
        return EX_FAILED;
    if (ex_signal())
        return end_early("not all settings were measured");
    if (!run_off(bench))
        return EX_FAILED;
    if (ex_signal())
        return end_early("the fastest settings have not run again");
    recommend(bench);
    return bench->all_equal ? EX_OK : EX_DIFFERS;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    int code = EX_USAGE, parsed;

    parsed = read_arguments(&bench, argc, argv);
    if (parsed < 0)
        code = EX_OK;
    else if (parsed && open_all(&bench))
        code = run_bench(&bench);
    if (!ex_trace_close(&bench.trace) || !ex_stdout_flush())
        code = EX_FAILED;
    ex_run_free(&bench.reference);
    ex_prompts_free(&bench.prompts);
    specbatch_draft_release(bench.draft);
    specbatch_model_close(bench.target);
    return code;
}
