/*
 * make demo: speculative against plain decoding on a small pair of models, at batch 1 and batch 8.
 *     demo [--compute bf16|f32|split|int8] [DIR]     DIR has target/, draft/, prompts.jsonl
 *
 * A line of the table is a policy at a batch. A turn runs every line once, and turns repeat, so
 * that a machine which is busy for a while is so for all lines alike: a run is compared with the
 * plain one of its own turn, and medians are shown. The class of arithmetic is chosen here and not
 * by the library, so that the tokens are the same on every machine. It is bf16, because the demo's
 * weights are, and a matrix unit is fastest at it.
 *
 * Exit codes: 0 done, 1 some output differed, 2 bad usage, 3 it failed, 130 and 143 ended by SIGINT
 * or SIGTERM, which let the running round end.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "specbatch.h"
#include "support/args.h"
#include "support/encode.h"
#include "support/outfile.h"
#include "support/prompts.h"
#include "support/run.h"
#include "support/signals.h"
#include "support/support.h"

enum { MAX_NEW = 64, DRAFT_LEN = 5, MIN_TURNS = 3, MAX_TURNS = 9, WIDTH = 76 };
#define ENOUGH_SECONDS 10.0 /* after MIN_TURNS no turn begins later than this */

/* At batch 1 all policies do the same work. */
static const struct line {
    const char *policy;
    int32_t batch, plain; /* plain: the line that it is compared with */
} lines[] = {{"plain", 1, 0},  {"ragged", 1, 0}, {"plain", 8, 2},   {"ragged", 8, 2},
             {"eqspec", 8, 2}, {"exspec", 8, 2}, {"rollback", 8, 2}};
enum { N_LINES = sizeof lines / sizeof lines[0] };

/* The classes of arithmetic that can be chosen, by --compute. */
static const struct {
    const char *name;
    int32_t compute;
} classes[] = {{"bf16", SPECBATCH_COMPUTE_BF16},
               {"f32", SPECBATCH_COMPUTE_F32},
               {"split", SPECBATCH_COMPUTE_SPLIT},
               {"int8", SPECBATCH_COMPUTE_INT8}};

static const char legend[] =
    " runs, taken in turn, each column for itself. times plain: against plain decoding at\n"
    "the same batch in the same turn, so it is not quite the quotient of tokens/s above.\n"
    "tokens a round: what a prompt gains by a pass of the target, whose own token is among them.\n"
    "equivalence: how many prompts get exactly the tokens of plain decoding at batch 1.\n\n"
    "Speculation gains most at batch 1. At batch 8 the prompts share each reading of the\n"
    "weights already, and checking proposals adds arithmetic, which is cheap only on a\n"
    "processor with a matrix unit.\n\n"
    "The first and the last text; what was generated follows >>>.\n";

struct measured {
    double speed[MAX_TURNS], times_plain[MAX_TURNS], per_round;
    size_t n_equal; /* the fewest in any turn */
};

struct demo {
    const char *dir;
    int32_t class, n_turns, all_equal; /* class: of classes */
    double seconds;                    /* of all runs */
    specbatch_model *target;
    specbatch_draft *draft;
    struct ex_prompts prompts;
    struct ex_run reference; /* plain decoding at batch 1: the first run of all */
    struct measured measured[N_LINES];
};

static int open_all(struct demo *demo)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct ex_prompt_rules rules = {NULL, {SPECBATCH_CHAT_RAW, 0, 0, 0}, MAX_NEW, 0, 0};
    char path[3][1024];
    const char *const draft = path[1];
    snprintf(path[0], sizeof path[0], "%s/target", demo->dir);
    snprintf(path[1], sizeof path[1], "%s/draft", demo->dir);
    snprintf(path[2], sizeof path[2], "%s/prompts.jsonl", demo->dir);
    options.compute = classes[demo->class].compute;
    if (specbatch_model_open(&demo->target, path[0], &options) != SPECBATCH_OK)
        return ex_complain("%s", specbatch_last_error());
    if (!ex_open_draft(&demo->draft, &draft, 1, &options))
        return 0;
    rules.target = demo->target;
    rules.max_len = specbatch_model_context(demo->target);
    return ex_prompts_load(&demo->prompts, path[2], &rules);
}

static int run_line(struct demo *demo, const struct line *line, struct ex_run *run)
{
    struct ex_settings settings = {.pool = SPECBATCH_POOL_OPTIONS_INIT,
                                   .wish = {.max_new = MAX_NEW}};

    settings.pool.policy = specbatch_policy_by_name(line->policy);
    settings.pool.batch = line->batch;
    settings.pool.draft_len = DRAFT_LEN;
    settings.pool.flags = SPECBATCH_POOL_FIXED_K;
    settings.pool.max_len = ex_prompts_positions(&demo->prompts, MAX_NEW);
    if (isatty(STDERR_FILENO))
        ex_progress("turn %" PRId32 ": batch %" PRId32 ", %-8s ", demo->n_turns + 1, line->batch,
                    line->policy);
    return ex_run(run, demo->target, demo->draft, &demo->prompts, &settings, NULL, NULL);
}

static void keep(struct demo *demo, size_t at, const struct ex_run *run)
{
    const size_t turn = (size_t)demo->n_turns, n_equal = ex_run_count_equal(run, &demo->reference);
    const struct measured *plain = &demo->measured[lines[at].plain];
    struct measured *measured = &demo->measured[at];

    measured->speed[turn] = (double)run->n_tokens / run->seconds;
    measured->times_plain[turn] = measured->speed[turn] / plain->speed[turn];
    measured->per_round = ex_ratio(ex_run_counter(run, "tokens_committed"),
                                   ex_run_counter(run, "decode_rows"));
    if (turn == 0 || n_equal < measured->n_equal)
        measured->n_equal = n_equal;
    demo->all_equal &= n_equal == run->n;
    demo->seconds += run->seconds;
}

/* Runs every line once. 0 if a run failed; 1 also if a signal ended it. */
static int take_turn(struct demo *demo)
{
    size_t i;

    for (i = 0; i < N_LINES && !ex_signal(); i++) {
        const int is_reference = demo->n_turns == 0 && i == 0;
        struct ex_run other, *run = is_reference ? &demo->reference : &other;
        const int ok = run_line(demo, &lines[i], run);
        if (ok && !ex_signal())
            keep(demo, i, run);
        if (!is_reference)
            ex_run_free(run);
        if (!ok)
            return 0;
    }
    demo->n_turns++;
    return 1;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static double median(double *values, int32_t n)
{
    qsort(values, (size_t)n, sizeof *values, by_size);
    return (values[(n - 1) / 2] + values[n / 2]) / 2.0;
}

static void print_table(struct demo *demo)
{
    size_t i;

    printf(
        "batch  policy    tokens/s   times plain   tokens a round   equal to plain at batch 1\n");
    for (i = 0; i < N_LINES; i++) {
        struct measured *measured = &demo->measured[i];
        printf("%s%5" PRId32 "  %-8s  %8.0f   %11.2f   %14.2f   equivalence %zu/%zu\n",
               i > 0 && lines[i].plain == (int32_t)i ? "\n" : "", lines[i].batch, lines[i].policy,
               median(measured->speed, demo->n_turns), median(measured->times_plain, demo->n_turns),
               measured->per_round, measured->n_equal, demo->prompts.n);
    }
    printf("\nMedians of %" PRId32 "%s", demo->n_turns, legend);
}

/* Prints a numbered text, in lines of WIDTH bytes that are broken at spaces. */
static void print_wrapped(size_t number, const char *text)
{
    size_t column = 0, word; /* with the space or the line end before it */

    printf("\n[%2zu] ", number);
    for (; *text; text += word) {
        word = 1 + strcspn(text + 1, " \n");
        if (*text == '\n' || column + word > WIDTH) {
            printf("\n%*s%.*s", word > 1 ? 5 : 0, "", (int)word - 1, text + 1);
            column = 0;
        } else {
            printf("%.*s", (int)word, text);
        }
        column += word;
    }
    printf("\n");
}

/* The first and the last prompt are of different kinds. */
static void print_texts(const struct demo *demo)
{
    const size_t at[] = {0, demo->prompts.n - 1};
    char text[4096];
    size_t i, n;

    for (i = 0; i < 2; i++) {
        const struct ex_prompt *prompt = &demo->prompts.at[at[i]];
        const char *more = specbatch_result_text(demo->reference.results[at[i]], NULL);
        if (specbatch_detokenize(demo->target, prompt->ids, prompt->n_ids, 0, text, sizeof text,
                                 &n) == SPECBATCH_OK) {
            snprintf(text + n, sizeof text - n, " >>>%s", more);
            print_wrapped(at[i] + 1, text);
        }
    }
}

/* Returns the exit code. */
static int show(struct demo *demo)
{
    ex_signals_catch();
    printf("Speculative against plain decoding: %zu prompts, up to %d new tokens each. A small\n"
           "draft proposes %d tokens a round, and the target keeps those that are its own choice.\n"
           "Computed in %s: %s\n\n",
           demo->prompts.n, MAX_NEW, DRAFT_LEN, classes[demo->class].name,
           specbatch_model_fingerprint(demo->target));
    if (!ex_stdout_flush())
        return EX_FAILED;
    while (demo->n_turns < MIN_TURNS ||
           (demo->n_turns < MAX_TURNS && demo->seconds < ENOUGH_SECONDS)) {
        if (!take_turn(demo))
            return EX_FAILED;
        if (ex_signal()) {
            ex_complain("%s: not all policies were run", ex_signal_name());
            return ex_signal_exit_code();
        }
    }
    if (isatty(STDERR_FILENO))
        ex_progress("%*s\r", WIDTH, "");
    print_table(demo);
    print_texts(demo);
    return demo->all_equal ? EX_OK : EX_DIFFERS;
}

int main(int argc, char **argv)
{
    static struct demo demo = {.dir = "examples/demo", .all_equal = 1};
    const struct ex_option options[] = {{"--compute", "bf16|f32|split|int8", EX_CHOICE, &demo.class,
                                         0, 0, "class of the products (bf16)"},
                                        {"DIR", NULL, EX_OPERAND, &demo.dir, 0, 0,
                                         "has target/, draft/ and prompts.jsonl (examples/demo)"}};
    int code, parsed;

    parsed = ex_args_parse(options, 2, argc, argv,
                           "[options] [DIR]: speculative against plain decoding");
    if (parsed <= 0)
        code = parsed < 0 ? EX_OK : EX_USAGE;
    else
        code = open_all(&demo) ? show(&demo) : EX_FAILED;
    if (!ex_stdout_flush())
        code = EX_FAILED;
    ex_run_free(&demo.reference);
    ex_prompts_free(&demo.prompts);
    specbatch_draft_release(demo.draft);
    specbatch_model_close(demo.target);
    return code;
}
