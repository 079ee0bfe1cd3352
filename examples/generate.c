/*
 * generate: reads a prompt file, generates under any policy, and writes a result file; `generate
 * --help` lists the options.
 *
 * All prompts are checked, and the output files opened, before anything runs. Each result is
 * written, as one line, as soon as its request has finished. SIGINT and SIGTERM let the running
 * round end, and leave a file with whole lines, on which --resume goes on if the last of them comes
 * out again. --verify afterwards replays every request with plain decoding at batch 1. --check
 * generates nothing, but says of the target what it is and what it takes; it exits with 0 if it
 * runs here.
 * Exit codes: 0 done, 1 --verify found a difference, 2 bad usage or input, 3 the run failed, 130
 * and 143 ended by SIGINT or SIGTERM.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "specbatch.h"
#include "support/args.h"
#include "support/check.h"
#include "support/outfile.h"
#include "support/output.h"
#include "support/prompts.h"
#include "support/resume.h"
#include "support/run.h"
#include "support/run_args.h"
#include "support/sampling_args.h"
#include "support/signals.h"
#include "support/support.h"

struct job {
    struct ex_run_args args;
    const char *policy, *output_file, *stats_file;
    int32_t batch, window, draft_len, max_len, sort_by_length, fixed_k;
    int32_t verify, in_order, resume, check;
    char draft_names[512]; /* of all drafts, with commas between them */

    specbatch_model *target;
    specbatch_draft *draft;
    struct ex_prompts prompts;
    struct ex_settings settings;
    struct ex_run run;
    struct ex_outfile output, stats;
    struct ex_resumed resumed;
    size_t n_written;      /* results written by this run */
    int32_t show_progress; /* stderr is a terminal, and the results do not go to one */
    int32_t failed;        /* a request ended in an error, or writing did */
};

/* The names of the library's policies, the default first. */
static const char *policies(void)
{
    static char names[256];
    size_t length = 0;

    for (int32_t i = 0; i < specbatch_policy_count() && length < sizeof names; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i > 0 ? ", " : "",
                                   specbatch_policy_name(i));
    return names;
}

static void set_defaults(struct job *job)
{
    job->policy = specbatch_policy_name(SPECBATCH_POLICY_RAGGED);
    job->output_file = "-";
    job->batch = 8;
    job->draft_len = 5;
}

/* What is written. */
static void add_file_options(struct job *job, struct ex_option *rows, size_t *n)
{
    const struct ex_option options[] = {
        {"--output", "FILE", EX_STRING, &job->output_file, 0, 0,
         "results as JSON lines; -: stdout (-)"},
        {"--in-order", NULL, EX_SWITCH, &job->in_order, 0, 0,
         "results in the order of the prompts (as they finish)"},
        {"--resume", NULL, EX_SWITCH, &job->resume, 0, 0,
         "keep the results that --output has, add those that are missing"},
        {"--stats", "FILE", EX_STRING, &job->stats_file, 0, 0,
         "totals and counters as JSON; -: stdout"},
        {"--verify", NULL, EX_SWITCH, &job->verify, 0, 0,
         "replay each plainly at batch 1 and compare"},
        {"--check", NULL, EX_SWITCH, &job->check, 0, 0,
         "generate nothing: say what the target is, whether it runs, and what it takes"},
    };

    ex_options_add(rows, n, options, sizeof options / sizeof options[0]);
}

/* How requests are decoded, which changes no token. */
static void add_pool_options(struct job *job, struct ex_option *rows, size_t *n)
{
    const struct ex_option options[] = {
        {"--policy", "NAME", EX_STRING, &job->policy, 0, 0, policies()},
        {"--batch", "B", EX_INT, &job->batch, 1, 4096, "rows of a round (8)"},
        {"--window", "W", EX_INT, &job->window, 1, 65536, "rows exspec keeps resident (6 * batch)"},
        {"--draft-len", "K", EX_INT, &job->draft_len, 0, 64,
         "tokens proposed a round at most (5); 0: none"},
        {"--fixed-k", NULL, EX_SWITCH, &job->fixed_k, 0, 0,
         "always K: do not adapt it to what pays"},
        {"--max-len", "N", EX_INT, &job->max_len, 2, INT32_MAX,
         "most of prompt + new tokens (context)"},
        {"--sort-by-length", NULL, EX_SWITCH, &job->sort_by_length, 0, 0,
         "admit prompts by length"},
    };

    ex_options_add(rows, n, options, sizeof options / sizeof options[0]);
}

/* What requests may want here, and not where runs are compared. */
static void add_own_wishes(struct job *job, struct ex_option *rows, size_t *n)
{
    const struct ex_option options[] = {
        {"--deadline-ms", "N", EX_INT, &job->args.wish.deadline_ms, 0, INT32_MAX,
         "end each answer so many milliseconds after the start, as far as it is; 0: none (0)"},
        {"--score", NULL, EX_SWITCH, &job->args.wish.score, 0, 0,
         "no answers: write log-probabilities and perplexity of the prompts"},
    };

    ex_options_add(rows, n, options, sizeof options / sizeof options[0]);
}

static int read_arguments(struct job *job, int argc, char **argv)
{
    struct ex_option options[64];
    size_t n = 0;
    int parsed;

    set_defaults(job);
    ex_model_options(options, &n, &job->args);
    ex_prompt_options(options, &n, &job->args);
    add_file_options(job, options, &n);
    ex_wish_options(options, &n, &job->args);
    add_own_wishes(job, options, &n);
    add_pool_options(job, options, &n);
    ex_cache_options(options, &n, &job->args);
    parsed = ex_args_parse(
        options, n, argc, argv,
        "--target DIR --prompts FILE [--draft DIR|ngram|table:FILE]... "
        "[options]\n\n" EX_PROMPTS_HELP "\n\n"
        "Each result is written when it is finished. SIGINT and SIGTERM end the run "
        "after that, and\nthe same command with --resume does what is left.");
    if (parsed == 1 && job->check && job->args.target_dir)
        return 1;
    return parsed == 1 ? ex_run_args_check(&job->args) : parsed;
}

static int results_on_stdout(const struct job *job)
{
    return strcmp(job->output_file, "-") == 0;
}

static void join_draft_names(struct job *job)
{
    size_t length = 0;

    for (size_t i = 0; i < job->args.drafts.n && length < sizeof job->draft_names; i++)
        length += (size_t)snprintf(job->draft_names + length, sizeof job->draft_names - length,
                                   "%s%s", i > 0 ? "," : "", job->args.drafts.at[i]);
}

static int complete(struct job *job)
{
    specbatch_pool_options *pool = &job->settings.pool;
    struct ex_wish *wish = &job->args.wish;

    specbatch_pool_options_init(pool, sizeof *pool);
    if ((pool->policy = specbatch_policy_by_name(job->policy)) < 0)
        return ex_complain("--policy: \"%s\" is not one of %s", job->policy, policies());
    if (job->resume && results_on_stdout(job))
        return ex_complain("--resume: results go to stdout; it needs --output FILE");
    if (job->window && job->window < job->batch)
        return ex_complain("--window: %" PRId32 " is less than --batch, %" PRId32, job->window,
                           job->batch);
    join_draft_names(job);
    ex_run_args_pool(pool, &job->args);
    pool->batch = job->batch;
    pool->window = job->window ? job->window : 6 * job->batch;
    pool->flags |= (job->sort_by_length ? SPECBATCH_POOL_SORT_BY_LENGTH : 0u) |
                   (job->fixed_k ? SPECBATCH_POOL_FIXED_K : 0u);
    wish->max_new = wish->score ? 0 : wish->max_new;
    wish->draft_len = job->draft_len ? job->draft_len : -1;
    job->settings.wish = *wish;
    return 1;
}

/* A line may ask for more proposals than --draft-len: the pool then allows the most that any line
 * asks for, and lines that do not say keep to the option. */
static void allow_draft_lens(struct job *job)
{
    int32_t most = job->settings.wish.draft_len;

    for (size_t i = 0; i < job->prompts.n; i++)
        if (job->prompts.at[i].own.wish.draft_len > most)
            most = job->prompts.at[i].own.wish.draft_len;
    job->settings.pool.draft_len = most;
}

static int is_one_of_several(const struct job *job, const struct ex_prompt *prompt)
{
    const struct ex_wish wish = ex_wish_of(&prompt->own, &job->settings.wish);

    return ex_wish_made(&wish) > 1;
}

/* Results are told apart by the ids of their prompts alone. */
static int check_resume(const struct job *job)
{
    for (size_t i = 0; job->resume && i < job->prompts.n; i++)
        if (is_one_of_several(job, &job->prompts.at[i]))
            return ex_complain("--resume: results of several answers to a prompt cannot be told "
                               "apart");
    return 1;
}

/* What needs no model is done before one is opened, which may take minutes: the prompts are read,
 * and the files that are to be written are opened. */
static int open_files(struct job *job)
{
    if (!ex_prompts_read(&job->prompts, job->args.prompts_file, job->args.limit) ||
        !check_resume(job) ||
        !ex_outfile_open(&job->output, job->output_file, job->args.prompts_file) ||
        !ex_outfile_open(&job->stats, job->stats_file, job->args.prompts_file) ||
        !ex_outfile_differs(&job->stats, &job->output))
        return 0;
    allow_draft_lens(job);
    job->show_progress = isatty(STDERR_FILENO) && !isatty(fileno(job->output.file));
    return !job->resume || ex_resume(&job->resumed, &job->prompts, job->output_file);
}

/* Makes ids of the prompts and checks them. The pool's max_len becomes what the longest one needs,
 * so that the pool takes no more memory than that. */
static int encode_prompts(struct job *job)
{
    const struct ex_prompt_rules rules = ex_run_args_rules(&job->args, job->target, job->max_len);
    const int32_t context = specbatch_model_context(job->target);
    int32_t positions, last;

    if (job->max_len > context)
        return ex_complain("--max-len: %" PRId32 " is more than the target's context, %" PRId32,
                           job->max_len, context);
    if (!ex_prompts_encode(&job->prompts, job->args.prompts_file, &rules) ||
        !ex_prompts_encode(&job->resumed.last, job->args.prompts_file, &rules))
        return 0;
    positions = ex_prompts_positions(&job->prompts, job->settings.wish.max_new);
    last = ex_prompts_positions(&job->resumed.last, job->settings.wish.max_new);
    job->settings.pool.max_len = last > positions ? last : positions;
    return 1;
}

static void draw_progress(const struct job *job, const struct ex_run *run)
{
    enum { WIDTH = 40 };
    char bar[WIDTH + 1];
    const size_t n_done = job->resumed.n + run->n_done, n = job->resumed.n + run->n;
    const size_t full = n_done * WIDTH / n;

    memset(bar, '.', WIDTH);
    memset(bar, '#', full);
    bar[WIDTH] = '\0';
    ex_progress("[%s] %zu/%zu  %.1f tokens/s ", bar, n_done, n,
                (double)run->n_tokens / run->seconds);
}

/* A result is kept afterwards only if it has to be verified. */
static int write_result(struct job *job, specbatch_result **result)
{
    const struct ex_prompt *prompt = specbatch_result_user(*result);
    const int32_t status = specbatch_result_status(*result);

    if (status != SPECBATCH_OK) {
        ex_complain("%s ended early: %s", prompt->id, specbatch_status_name(status));
        job->failed = 1;
    }
    ex_write_result(job->output.file, prompt->id, is_one_of_several(job, prompt), *result);
    if (!job->verify) {
        specbatch_result_free(*result);
        *result = NULL;
    }
    return ex_outfile_flush(&job->output);
}

/* Writes what has finished; with --in-order a result waits for those before it. */
static void tick(void *user, struct ex_run *run)
{
    struct job *job = user;

    while (!job->output.failed && job->n_written < run->n_done) {
        const size_t at = job->in_order ? job->n_written : run->order[job->n_written];
        if (!run->results[at])
            break;
        if (write_result(job, &run->results[at]))
            job->n_written++;
    }
    if (job->output.failed)
        run->stop = job->failed = 1;
    if (job->show_progress)
        draw_progress(job, run);
}

static int write_stats(struct job *job, size_t n_equal)
{
    const struct ex_stats stats = {&job->run,
                                   &job->settings,
                                   job->args.target_dir,
                                   job->args.drafts.n > 0 ? job->draft_names : NULL,
                                   specbatch_model_fingerprint(job->target),
                                   job->verify,
                                   n_equal};

    if (!job->stats_file)
        return 1;
    if (!ex_outfile_begin(&job->stats, 0))
        return 0;
    ex_write_stats(job->stats.file, &stats);
    return ex_outfile_close(&job->stats);
}

/* Prints a line for people, on stdout unless the results go there. */
static void print_summary(const struct job *job, size_t n_equal)
{
    const struct ex_run *run = &job->run;
    FILE *out = results_on_stdout(job) ? stderr : stdout;

    fprintf(out,
            "%s: %zu requests, %" PRIu64
            " tokens in %.2f s, %.1f tokens/s, %.2f tokens a row gets in a round\n",
            job->policy, run->n, run->n_tokens, run->seconds, (double)run->n_tokens / run->seconds,
            ex_ratio(ex_run_counter(run, "tokens_committed"), ex_run_counter(run, "decode_rows")));
    if (job->verify)
        fprintf(out, "equivalence %zu/%zu\n", n_equal, run->n);
}

/* How many results this run is to write. */
static size_t n_results(const struct job *job)
{
    size_t n = 0;

    for (size_t i = 0; i < job->prompts.n; i++) {
        const struct ex_wish wish = ex_wish_of(&job->prompts.at[i].own, &job->settings.wish);
        n += (size_t)ex_wish_answers(&wish);
    }
    return n;
}

/* Says how far a run came that did not come to its end. Returns the exit code. */
static int end_early(const struct job *job)
{
    const size_t n_done = job->resumed.n + job->n_written, n = job->resumed.n + n_results(job);

    ex_complain("%s%s%zu of %zu are done%s", ex_signal() ? ex_signal_name() : "",
                ex_signal() ? ": " : "", n_done, n,
                n_done < n && !results_on_stdout(job)
                    ? "; the same command with --resume does the others"
                    : "");
    return ex_signal() ? ex_signal_exit_code() : EX_FAILED;
}

static int run_job(struct job *job)
{
    size_t n_equal = 0;
    int ok, code;

    ex_signals_catch();
    code = ex_resumed_check(&job->resumed, job->output_file, job->target, job->draft,
                            &job->settings);
    if (code != EX_OK || ex_signal())
        return code != EX_OK ? code : end_early(job);
    if (!ex_outfile_begin(&job->output, job->resumed.bytes))
        return EX_FAILED;
    ok = ex_run(&job->run, job->target, job->draft, &job->prompts, &job->settings, tick, job);
    ex_progress_end();
    ok = ex_outfile_close(&job->output) && ok;
    if (!ok || job->n_written < n_results(job) || ex_signal())
        return end_early(job);
    if (job->failed)
        return EX_FAILED;
    if (job->verify &&
        !ex_run_verify(&job->run, job->target, &job->prompts, &job->settings, &n_equal))
        return EX_FAILED;
    if (ex_signal())
        return end_early(job);
    if (!write_stats(job, n_equal))
        return EX_FAILED;
    print_summary(job, n_equal);
    return job->verify && n_equal < job->run.n ? EX_DIFFERS : EX_OK;
}

/* --resume has found every result. A torn line behind them is cut off. */
static int end_at_once(struct job *job)
{
    ex_complain("all %zu are done", job->resumed.n);
    return ex_outfile_begin(&job->output, job->resumed.bytes) ? EX_OK : EX_FAILED;
}

/* --check: with the options of the run that is planned, and without its prompts. */
static int check(struct job *job)
{
    job->settings.pool.draft_len = job->settings.wish.draft_len;
    job->settings.pool.max_len = job->max_len;
    return ex_open_models(&job->target, &job->draft, &job->args) &&
                   ex_check(job->target, job->args.target_dir, job->draft, &job->settings.pool)
               ? EX_OK
               : EX_USAGE;
}

int main(int argc, char **argv)
{
    static struct job job;
    int code = EX_USAGE, parsed;

    parsed = read_arguments(&job, argc, argv);
    if (parsed < 0)
        code = EX_OK;
    else if (parsed && job.check)
        code = complete(&job) ? check(&job) : EX_USAGE;
    else if (parsed && complete(&job) && open_files(&job)) {
        if (job.prompts.n == 0)
            code = end_at_once(&job);
        else if (ex_open_models(&job.target, &job.draft, &job.args) && encode_prompts(&job))
            code = run_job(&job);
    }
    if (!ex_outfile_close(&job.output) || !ex_outfile_close(&job.stats) || !ex_stdout_flush())
        code = EX_FAILED;
    ex_run_free(&job.run);
    ex_prompts_free(&job.prompts);
    ex_resumed_free(&job.resumed);
    specbatch_draft_release(job.draft);
    specbatch_model_close(job.target);
    return code;
}
