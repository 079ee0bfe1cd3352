/*
 * Measures decoding from end to end: how much of the memory's bandwidth plain decoding uses, and
 * how near speculation comes to what it could give.
 *
 *   bench_speculation [--target DIR] [--draft DIR] [--draft-len K] [--max-new N]
 *                     [--rounds R] [--threads T] [--compute auto|bf16|f32|split|int8]
 *                     [--weights auto|q8|q4]
 *   bench_speculation --scaling N [--target DIR] [--max-new N] [--rounds R] [--compute ..]
 *   bench_speculation --types 1 [--target DIR] [--max-new N] [--rounds R] [--compute ..]
 *
 * The compute class is f32 unless it is given, since auto differs between machines. The second line
 * of the output names it. --weights is that of the target.
 *
 *   1. Plain decoding at B = 1, beside a plain read of the weights that a token needs, by the
 *      same number of threads. A token cannot take less time than that read:
 *
 *          share = read time / token time
 *
 *   2. Speculative decoding at B = 1, against its own limit. With E the tokens that a round keeps
 *      and c the time of a draft pass divided by that of a plain pass, both as measured,
 *      speculation can be E / (1 + K c) times as fast as plain decoding:
 *
 *          share = times plain / (E / (1 + K c))
 *
 *      a is the acceptance that gives this E, by E(a, K) = (1 - a^(K + 1)) / (1 - a). This is
 *      measured with the draft model, and with a callback that knows the tokens and is right in
 *      4 cases of 5. The callback shows what a good draft that costs nothing would give, which
 *      random weights cannot show, since they agree with nobody.
 *
 *   3. Speculative against plain decoding at B = 1, 2, 4, 8, with either draft, with K fixed and
 *      with K adaptive. Every run has a new pool, so the figure contains the rounds that adaptive
 *      K takes to learn.
 *
 * With --scaling, instead of these: how plain decoding at B = 1 and B = 8 and a prompt of 128
 * tokens gain from 1, 2, 4 .. N threads, beside a plain read of the weights by as many threads.
 *
 * With --types, instead of these: the same for each type that the target's weights can have, beside
 * a plain read of the bytes that this type has; and speculation at B = 8 with the callback, beside
 * the E tokens a round that it could gain if a verification cost no more than a plain pass.
 *
 * Runs that are compared alternate, and medians are taken, since other programs may use the machine
 * meanwhile. Only decoding is timed: the clock starts when all prompts are in the cache. Random
 * checkpoints (make_checkpoint) serve as well as trained ones, but for their acceptance.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "port.h"
#include "specbatch.h"
#include "status.h"
#include "support/drafts.h"
#include "support/median.h"
#include "backend/threads.h"

enum {
    MAX_ROUNDS = 31,
    MAX_BATCH = 8,
    PROMPT = 16,
    LONG_PROMPT = 128, /* of the scaling table */
    MAX_COUNTS = 10,   /* its rows: 1, 2, 4 .. 256 threads, and one number between */
    BLOCK = 65536
};

struct bench {
    const char *target_dir, *draft_dir;
    int32_t draft_len, max_new, rounds, threads, scaling, types, compute, weights;
    specbatch_model *target, *draft;
    int32_t *known; /* [MAX_BATCH][max_new] what the target generates for each prompt */
};

/* What a pool has done up to a moment. The difference of two moments is what was measured between
 * them. */
struct figures {
    double seconds, tokens, rows, drafted, draft_seconds, draft_passes, target_seconds,
        target_passes;
};

static void need(int32_t rc, const char *what)
{
    if (rc != SPECBATCH_OK) {
        fprintf(stderr, "bench_speculation: %s: %s\n", what, specbatch_last_error());
        exit(1);
    }
}

/* ---------------------------------------------------------------- the plain read */

typedef uint64_t block8 __attribute__((vector_size(64)));
static volatile uint64_t sink;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static void
read_blocks(void *ctx, int64_t first, int64_t last)
{
    const block8 *at = (const block8 *)((const char *)ctx + first * BLOCK);
    const block8 *end = (const block8 *)((const char *)ctx + last * BLOCK);
    block8 a = {0}, b = {0}, c = {0}, d = {0};

    for (; at < end; at += 4) {
        a += at[0];
        b += at[1];
        c += at[2];
        d += at[3];
    }
    a += b + c + d;
    sink = a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}

static uint64_t read_weight(struct sb_threads *threads, const struct sb_weight *weight)
{
    uint64_t bytes = 0;

    for (; weight; weight = weight->next) {
        sb_threads_for(threads, (int64_t)(weight->bytes / BLOCK), 4, read_blocks, weight->data);
        bytes += weight->bytes;
    }
    return bytes;
}

/* Reads every weight that is multiplied with for a token once, and returns how many bytes that
 * were. */
static uint64_t read_model(struct sb_threads *threads, const struct specbatch_model *model)
{
    uint64_t bytes = read_weight(threads, &model->head);

    for (int32_t i = 0; i < model->config.layers; i++) {
        const struct sb_layer *layer = &model->layers[i];
        bytes += read_weight(threads, &layer->qkv) + read_weight(threads, &layer->o);
        bytes += read_weight(threads, &layer->mlp.gate_up) + read_weight(threads, &layer->mlp.down);
    }
    return bytes;
}

/* ------------------------------------------------------------------ a run of a pool */

static double counter(const specbatch_pool *pool, const char *name)
{
    uint64_t value;
    need(specbatch_pool_stat(pool, name, &value), name);
    return (double)value;
}

static struct figures read_figures(const specbatch_pool *pool)
{
    const struct figures f = {(double)sb_port_now_ns() * 1e-9,   counter(pool, "tokens_committed"),
                              counter(pool, "decode_rows"),      counter(pool, "tokens_drafted"),
                              counter(pool, "draft_ns") * 1e-9,  counter(pool, "draft_passes"),
                              counter(pool, "verify_ns") * 1e-9, counter(pool, "target_passes")};
    return f;
}

static void submit(specbatch_pool *pool, const struct bench *bench, int32_t which, int32_t n_ids,
                   int32_t max_new)
{
    const int32_t vocab = specbatch_model_vocab_size(bench->target);
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    int32_t ids[LONG_PROMPT];

    for (int32_t i = 0; i < n_ids; i++)
        ids[i] = (int32_t)((uint32_t)(7919 * (i + 1) + 104729 * (which + 1)) % (uint32_t)vocab);
    request.ids = ids;
    request.n_ids = (size_t)n_ids;
    request.max_new = max_new;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    need(specbatch_pool_submit(pool, &request, NULL), "submit");
}

/* Proposes the known tokens. About one in five is replaced by -1, which is always wrong; they are
 * the same ones in every run. */
static void propose_row(const struct bench *bench, specbatch_draft_row *row)
{
    const int32_t done = (int32_t)row->n_tokens - PROMPT, which = (int32_t)row->request_id - 1;
    int32_t n = 0;

    for (; n < row->k && done + n < bench->max_new; n++) {
        const int32_t known = bench->known[which * bench->max_new + done + n];
        const int spoilt = ((uint32_t)(done + n + 977 * which) * 2654435761u >> 16) % 5 == 0;
        row->out[n] = spoilt ? (known + 1) % specbatch_model_vocab_size(bench->target) : known;
    }
    row->n_out = n;
}

static int32_t propose_known(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    for (size_t b = 0; b < n_rows; b++)
        propose_row(user, rows[b]);
    return 0;
}

/* Keeps what was generated for each prompt, for propose_known. */
static void learn(struct bench *bench, specbatch_pool *pool)
{
    specbatch_result *result;
    size_t n;

    while (specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
        const int32_t *ids = specbatch_result_tokens(result, &n);
        const size_t row = (size_t)specbatch_result_id(result) - 1;
        memcpy(bench->known + row * (size_t)bench->max_new, ids, n * sizeof *ids);
        specbatch_result_free(result);
    }
}

enum source { NO_DRAFT, MODEL_DRAFT, KNOWN_DRAFT };

static struct figures run(struct bench *bench, enum source source, int32_t batch, uint32_t flags)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    const specbatch_draft_ops known = only_propose(propose_known, bench);
    specbatch_model *draft = source == MODEL_DRAFT ? bench->draft : NULL;
    specbatch_pool *pool;
    struct figures begun, done;
    size_t active = 1;

    options.policy = source == NO_DRAFT ? SPECBATCH_POLICY_PLAIN : SPECBATCH_POLICY_RAGGED;
    options.batch = batch;
    options.draft_len = bench->draft_len;
    options.flags = flags;
    options.max_len = PROMPT + bench->max_new;
    options.n_threads = bench->threads;
    need(source == KNOWN_DRAFT ? create_with_ops(&pool, bench->target, &known, &options)
                               : create_with_model(&pool, bench->target, draft, &options),
         "pool");
    for (int32_t i = 0; i < batch; i++)
        submit(pool, bench, i, PROMPT, bench->max_new);
    while (counter(pool, "tokens_committed") == 0)
        need(specbatch_pool_step(pool, &active), "step");
    begun = read_figures(pool);
    while (active)
        need(specbatch_pool_step(pool, &active), "step");
    done = read_figures(pool);
    if (source == NO_DRAFT)
        learn(bench, pool);
    specbatch_pool_free(pool);
    done.seconds -= begun.seconds;
    done.tokens -= begun.tokens;
    done.rows -= begun.rows;
    done.drafted -= begun.drafted;
    done.draft_seconds -= begun.draft_seconds;
    done.draft_passes -= begun.draft_passes;
    done.target_seconds -= begun.target_seconds;
    done.target_passes -= begun.target_passes;
    return done;
}

/* ------------------------------------------------------------------- the comparisons */

static void bench_read(struct bench *bench)
{
    static const struct sb_mem mem = {NULL, NULL, NULL};
    const int32_t n_threads = bench->threads ? bench->threads : sb_port_n_processors();
    double reads[MAX_ROUNDS], tokens[MAX_ROUNDS];
    struct sb_threads *threads;
    uint64_t bytes = 0;

    need(sb_threads_create(&threads, &mem, n_threads), "threads");
    for (int i = 0; i < bench->rounds; i++) {
        const double start = (double)sb_port_now_ns() * 1e-9;
        bytes = read_model(threads, bench->target);
        reads[i] = (double)sb_port_now_ns() * 1e-9 - start;
        const struct figures plain = run(bench, NO_DRAFT, 1, 0);
        tokens[i] = plain.seconds / plain.tokens;
    }
    sb_threads_free(threads);
    const double read = median(reads, bench->rounds), token = median(tokens, bench->rounds);
    printf("1. plain, B = 1, %d threads: %.2f ms a token (%.1f tokens/s), %.0f MiB of weights: "
           "%.1f GB/s\n",
           (int)n_threads, 1e3 * token, 1.0 / token, (double)bytes / 1048576.0,
           (double)bytes / token * 1e-9);
    printf("   plain read of the same bytes: %.2f ms, %.1f GB/s.   share of it: %.2f\n\n",
           1e3 * read, (double)bytes / read * 1e-9, read / token);
}

/* Seconds from the first step of a new pool to the first token after a long prompt. */
static double fill_prompt(struct bench *bench)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool;
    size_t active = 1;

    options.max_len = LONG_PROMPT + 1;
    options.n_threads = bench->threads;
    need(specbatch_pool_create(&pool, bench->target, NULL, &options), "pool");
    submit(pool, bench, 0, LONG_PROMPT, 1);
    const double start = (double)sb_port_now_ns() * 1e-9;
    while (active)
        need(specbatch_pool_step(pool, &active), "step");
    const double seconds = (double)sb_port_now_ns() * 1e-9 - start;
    specbatch_pool_free(pool);
    return seconds;
}

/* What is compared: a read of the weights, a token at B = 1, one at B = 8, and the long prompt, in
 * seconds. */
enum measure { READ, ONE, EIGHT, FILL, MEASURES };

static void measure(struct bench *bench, double *seconds)
{
    static const struct sb_mem mem = {NULL, NULL, NULL};
    const int32_t n_threads = bench->threads ? bench->threads : sb_port_n_processors();
    struct sb_threads *threads;

    need(sb_threads_create(&threads, &mem, n_threads), "threads");
    const double start = (double)sb_port_now_ns() * 1e-9;
    read_model(threads, bench->target);
    seconds[READ] = (double)sb_port_now_ns() * 1e-9 - start;
    sb_threads_free(threads);
    const struct figures one = run(bench, NO_DRAFT, 1, 0);
    const struct figures eight = run(bench, NO_DRAFT, MAX_BATCH, 0);
    seconds[ONE] = one.seconds / one.tokens;
    seconds[EIGHT] = eight.seconds / eight.tokens;
    seconds[FILL] = fill_prompt(bench);
}

/* The median of a figure's rounds, or of the rounds' multiples of another figure. */
static double median_of(const double *values, const double *of, int32_t rounds)
{
    double sorted[MAX_ROUNDS];

    for (int32_t r = 0; r < rounds; r++)
        sorted[r] = of ? values[r] / of[r] : values[r];
    return median(sorted, rounds);
}

/* What a line of a table is made of. */
struct line {
    double seconds[MEASURES][MAX_ROUNDS];
};

static void add_round(struct bench *bench, struct line *line, int32_t round)
{
    double now[MEASURES];

    measure(bench, now);
    for (int m = 0; m < MEASURES; m++)
        line->seconds[m][round] = now[m];
}

static void print_line(const struct line *line, const struct line *first, int32_t rounds)
{
    double now[MEASURES], gain[MEASURES];

    for (int m = 0; m < MEASURES; m++) {
        now[m] = median_of(line->seconds[m], NULL, rounds);
        gain[m] = median_of(first->seconds[m], line->seconds[m], rounds);
    }
    printf(" %8.2f (%4.2f) %8.1f (%4.2f) %6.2f %8.1f (%4.2f) %10.1f (%4.2f)", 1e3 * now[READ],
           gain[READ], 1.0 / now[ONE], gain[ONE],
           median_of(line->seconds[READ], line->seconds[ONE], rounds), 1.0 / now[EIGHT],
           gain[EIGHT], LONG_PROMPT / now[FILL], gain[FILL]);
}

static const char
    line_titles[] = "        read ms    plain, B = 1  share    plain, B = 8     prompt "
                    "of 128";

/* Every turn measures every number of threads once, so that a busy while hits all of them. */
static void bench_scaling(struct bench *bench)
{
    static struct line lines[MAX_COUNTS];
    int32_t counts[MAX_COUNTS], n = 0;

    for (int32_t t = 1; t < bench->scaling; t *= 2)
        counts[n++] = t;
    counts[n++] = bench->scaling;
    for (int r = 0; r < bench->rounds; r++)
        for (int32_t c = 0; c < n; c++) {
            bench->threads = counts[c];
            add_round(bench, &lines[c], r);
        }
    printf("tokens/s, and as a multiple of one thread's. share: a plain read's time by a token's "
           "at B = 1\nthreads %s\n",
           line_titles);
    for (int32_t c = 0; c < n; c++) {
        printf("%7d ", (int)counts[c]);
        print_line(&lines[c], &lines[0], bench->rounds);
        printf("\n");
    }
}

static const char *const weights_names[] = {"auto", "q8", "q4"}; /* SPECBATCH_WEIGHTS_* */
enum { TYPES = sizeof weights_names / sizeof *weights_names };

/* Opens the target with its weights in one of these types. */
static specbatch_model *open_target(const struct bench *bench, int32_t weights)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *model;

    options.compute = bench->compute;
    options.weights = weights;
    need(specbatch_model_open(&model, bench->target_dir, &options), "--target");
    return model;
}

/* Every turn measures every type once. */
static void bench_types(struct bench *bench)
{
    static struct line lines[TYPES];
    double gains[TYPES][MAX_ROUNDS], e[TYPES] = {0};
    specbatch_model *const stored = bench->target, *models[TYPES] = {stored};

    for (int32_t t = 1; t < TYPES; t++)
        models[t] = open_target(bench, t);
    for (int r = 0; r < bench->rounds; r++)
        for (int t = 0; t < TYPES; t++) {
            bench->target = models[t];
            add_round(bench, &lines[t], r);
            const struct figures s = run(bench, KNOWN_DRAFT, MAX_BATCH, SPECBATCH_POOL_FIXED_K);
            gains[t][r] = s.tokens / s.seconds * lines[t].seconds[EIGHT][r];
            e[t] = s.tokens / s.rows;
        }
    printf("tokens/s, and as a multiple of the first line's. share: a plain read's time by a "
           "token's at B = 1\nspeculative: times plain at B = 8, K = %d, and that by the E tokens "
           "of a round\nweights %s    speculative, by E\n",
           (int)bench->draft_len, line_titles);
    for (int t = 0; t < TYPES; t++) {
        const double gain = median_of(gains[t], NULL, bench->rounds);
        printf("%7s ", weights_names[t]);
        print_line(&lines[t], &lines[0], bench->rounds);
        printf(" %8.2f %11.2f (E = %.2f)\n", gain, gain / e[t], e[t]);
    }
    for (int t = 1; t < TYPES; t++)
        specbatch_model_close(models[t]);
    bench->target = stored;
}

/* Finds the acceptance a for which E(a, k) = e, by bisection, since E grows with a. */
static double acceptance(double e, int32_t k)
{
    double low = 0.0, high = 1.0;

    for (int i = 0; i < 60; i++) {
        const double a = 0.5 * (low + high);
        double sum = 0.0, power = 1.0;
        for (int32_t j = 0; j <= k; j++, power *= a)
            sum += power;
        if (sum < e)
            low = a;
        else
            high = a;
    }
    return low;
}

static void bench_limit(struct bench *bench, enum source source, const char *name)
{
    double gains[MAX_ROUNDS], costs[MAX_ROUNDS], verifies[MAX_ROUNDS], e = 0.0;
    const int32_t k = bench->draft_len;

    for (int i = 0; i < bench->rounds; i++) {
        const struct figures plain = run(bench, NO_DRAFT, 1, 0);
        const struct figures spec = run(bench, source, 1, SPECBATCH_POOL_FIXED_K);
        gains[i] = (spec.tokens / spec.seconds) / (plain.tokens / plain.seconds);
        const double pass = plain.target_seconds / plain.target_passes;
        costs[i] = spec.draft_passes > 0 ? spec.draft_seconds / spec.draft_passes / pass : 0.0;
        verifies[i] = spec.target_seconds / spec.target_passes / pass;
        e = spec.tokens / spec.rows;
    }
    const double gain = median(gains, bench->rounds), c = median(costs, bench->rounds);
    const double limit = e / (1.0 + k * c);
    printf("2. %s, B = 1, K = %d: E = %.2f tokens a round (a = %.2f), c = %.3f\n", name, (int)k, e,
           acceptance(e, k), c);
    printf("   %.2f times plain; limit E / (1 + K c) = %.2f.   share of it: %.2f   (a verify pass "
           "takes %.2f "
           "plain passes)\n\n",
           gain, limit, gain / limit, median(verifies, bench->rounds));
}

static void bench_batches(struct bench *bench)
{
    static const struct {
        enum source source;
        uint32_t flags;
    } kinds[] = {{MODEL_DRAFT, SPECBATCH_POOL_FIXED_K},
                 {MODEL_DRAFT, 0},
                 {KNOWN_DRAFT, SPECBATCH_POOL_FIXED_K},
                 {KNOWN_DRAFT, 0}};
    enum { KINDS = sizeof kinds / sizeof *kinds };

    printf("3. times plain at batch B, and proposals a row\n   %4s %14s %18s %18s %18s %18s\n", "B",
           "plain tokens/s", "draft, K fixed", "draft, adaptive", "callback, fixed",
           "callback, adaptive");
    for (int32_t batch = 1; batch <= MAX_BATCH; batch *= 2) {
        double plain[MAX_ROUNDS], ratio[KINDS][MAX_ROUNDS], k[KINDS][MAX_ROUNDS];
        for (int i = 0; i < bench->rounds; i++) {
            const struct figures p = run(bench, NO_DRAFT, batch, 0);
            plain[i] = p.tokens / p.seconds;
            for (int kind = 0; kind < KINDS; kind++) {
                const struct figures s = run(bench, kinds[kind].source, batch, kinds[kind].flags);
                ratio[kind][i] = s.tokens / s.seconds / plain[i];
                k[kind][i] = s.drafted / s.rows;
            }
        }
        printf("   %4d %14.1f", (int)batch, median(plain, bench->rounds));
        for (int kind = 0; kind < KINDS; kind++)
            printf("     %6.2f (%5.2f)", median(ratio[kind], bench->rounds),
                   median(k[kind], bench->rounds));
        printf("\n");
        fflush(stdout);
    }
}

static int32_t number(const char *text, int32_t low, int32_t high)
{
    char *end;
    const long value = strtol(text, &end, 10);

    if (*end || end == text || value < low || value > high) {
        fprintf(stderr, "bench_speculation: \"%s\" is not a number in %d..%d\n", text, (int)low,
                (int)high);
        exit(2);
    }
    return (int32_t)value;
}

/* SPECBATCH_COMPUTE_* */
static const char *const class_names[] = {"auto", "bf16", "f32", "split", "int8"};

/* The index of the value of an option among these names. */
static int32_t index_of(const char *value, const char *const *names, int32_t n, const char *option)
{
    for (int32_t i = 0; i < n; i++)
        if (strcmp(value, names[i]) == 0)
            return i;
    need(sb_fail(SPECBATCH_E_INVALID, "unknown value; see the top of the source"), option);
    return 0;
}

static void read_arguments(struct bench *bench, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(name, "--target") == 0)
            bench->target_dir = value;
        else if (strcmp(name, "--draft") == 0)
            bench->draft_dir = value;
        else if (strcmp(name, "--draft-len") == 0)
            bench->draft_len = number(value, 1, 64);
        else if (strcmp(name, "--max-new") == 0)
            bench->max_new = number(value, 2, 100000);
        else if (strcmp(name, "--rounds") == 0)
            bench->rounds = number(value, 1, MAX_ROUNDS);
        else if (strcmp(name, "--threads") == 0)
            bench->threads = number(value, 1, 256);
        else if (strcmp(name, "--scaling") == 0)
            bench->scaling = number(value, 1, 256);
        else if (strcmp(name, "--compute") == 0)
            bench->compute = index_of(value, class_names, 5, name);
        else if (strcmp(name, "--weights") == 0)
            bench->weights = index_of(value, weights_names, TYPES, name);
        else if (strcmp(name, "--types") == 0)
            bench->types = number(value, 0, 1);
        else
            need(sb_fail(SPECBATCH_E_INVALID, "unknown; see the top of the source"), name);
    }
}

int main(int argc, char **argv)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct bench bench = {.target_dir = "examples/demo/target",
                          .draft_dir = "examples/demo/draft",
                          .draft_len = 5,
                          .max_new = 64,
                          .rounds = 3,
                          .compute = SPECBATCH_COMPUTE_F32};

    read_arguments(&bench, argc, argv);
    options.compute = bench.compute;
    bench.target = open_target(&bench, bench.types ? SPECBATCH_WEIGHTS_AUTO : bench.weights);
    need(specbatch_model_open(&bench.draft, bench.draft_dir, &options), "--draft");
    printf("target %s, draft %s, %d tokens each\n%s\n\n", bench.target_dir, bench.draft_dir,
           (int)bench.max_new, specbatch_model_fingerprint(bench.target));
    if ((bench.known = calloc((size_t)bench.max_new * MAX_BATCH, sizeof *bench.known)) == NULL)
        need(sb_fail(SPECBATCH_E_NOMEM, "no memory"), "--max-new");
    if (bench.types) {
        bench_types(&bench);
    } else if (bench.scaling > 0) {
        bench_scaling(&bench);
    } else {
        bench_read(&bench);
        bench_limit(&bench, MODEL_DRAFT, "draft model");
        bench_limit(&bench, KNOWN_DRAFT, "callback that is right 4 times of 5");
        bench_batches(&bench);
    }
    free(bench.known);
    specbatch_model_close(bench.draft);
    specbatch_model_close(bench.target);
    return 0;
}
