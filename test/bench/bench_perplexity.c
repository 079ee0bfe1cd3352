/*
 * Measures how well a model predicts a text, which is what quantised weights cost.
 *
 *   bench_perplexity --model DIR|FILE.gguf --text FILE [--weights auto|q8|q4]
 *                    [--compute auto|bf16|f32|split|int8] [--context N] [--threads T] [--ids FILE]
 *
 * The text's tokens, without any that a tokenizer would put before them, are cut into chunks of
 * --context tokens that do not overlap. Each chunk is one pass from an empty cache, and each token
 * but its first is predicted:
 *
 *          tokens     t0  t1  t2 .. t(n-1)
 *          logits     l0  l1  l2 ..                        l(i) is of the token behind t(i)
 *          loss           log sum exp l0 - l0[t1]   ..     in double
 *
 * The mean of the losses over all chunks is printed, and exp of it, the perplexity. Perplexities
 * compare where text, tokenizer and context are the same. Other programs often leave out the first
 * half of every chunk, which gives other figures; peers/perplexity.py has llama.cpp do what is done
 * here, for which --ids writes the tokens, one a line.
 *
 * The passes are the engine's own, with the logits of every token wanted, so what is measured is
 * the arithmetic that decoding has.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/runner.h"
#include "examples/support/args.h"
#include "examples/support/support.h"
#include "port.h"
#include "specbatch.h"
#include "status.h"

struct bench {
    const char *model_path, *text_path, *ids_path;
    int32_t weights, compute, context, threads;
};

/* The model as it runs, and what a chunk needs. */
struct scorer {
    struct sb_runner runner;
    int32_t *dev_ids; /* [context] */
    float *logits;    /* [context, vocab] */
};

static const struct sb_mem mem = {NULL, NULL, NULL};

static void need(int32_t rc, const char *what)
{
    if (rc != SPECBATCH_OK) {
        ex_complain("%s: %s", what, specbatch_last_error());
        exit(EX_FAILED);
    }
}

/* ---------------------------------------------------------------------- the text */

/* The whole file, which the caller frees. */
static char *read_text(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    size_t size = 0, got;
    char *text = NULL;

    *n = 0;
    if (!file) {
        perror(path);
        exit(EX_FAILED);
    }
    do {
        if (*n == size)
            text = ex_realloc(text, size = size ? 2 * size : 65536, 1);
        *n += got = fread(text + *n, 1, size - *n, file);
    } while (got > 0);
    if (ferror(file)) {
        perror(path);
        exit(EX_FAILED);
    }
    fclose(file);
    return text;
}

/* The tokens of the text, which the caller frees. */
static int32_t *read_tokens(const char *path, const specbatch_model *model, size_t *n)
{
    size_t length;
    char *text = read_text(path, &length);
    /* A token has a byte at least, but normalisation may add some. */
    const size_t capacity = 4 * length + 1;
    int32_t *ids = ex_alloc(capacity, sizeof *ids);

    need(specbatch_tokenize(model, text, length, SPECBATCH_TEXT_NO_BOS, ids, capacity, n), path);
    free(text);
    return ids;
}

static void write_tokens(const char *path, const int32_t *ids, size_t n)
{
    FILE *file = fopen(path, "w");
    int failed = !file;

    for (size_t i = 0; !failed && i < n; i++)
        failed = fprintf(file, "%" PRId32 "\n", ids[i]) < 0;
    if (failed || fclose(file) != 0) {
        perror(path);
        exit(EX_FAILED);
    }
}

/* ---------------------------------------------------------------------- the losses */

static int32_t scorer_create(struct scorer *scorer, specbatch_model *model,
                             const struct bench *bench)
{
    const struct sb_runner_limits limits = {.max_tokens = bench->context,
                                            .max_seqs = 1,
                                            .max_out = bench->context,
                                            .n_passes = 1,
                                            .n_slots = 1,
                                            .cap = bench->context,
                                            .n_columns = bench->context,
                                            .n_threads = bench->threads};
    int32_t rc = SPECBATCH_OK;
    void *block;

    SB_TRY(sb_runner_create(&scorer->runner, model, &mem, &limits, NULL));
    SB_TRY(model->backend->alloc(&block, model->device, &mem,
                                 (size_t)bench->context * sizeof *scorer->dev_ids));
    scorer->dev_ids = block;
    scorer->logits = ex_alloc((size_t)bench->context * (size_t)model->config.vocab,
                              sizeof *scorer->logits);
done:
    return rc;
}

static void scorer_free(struct scorer *scorer)
{
    const struct specbatch_model *model = scorer->runner.model;

    free(scorer->logits);
    model->backend->free(model->device, &mem, scorer->dev_ids);
    sb_runner_free(&scorer->runner);
}

/* Logits of each of the n tokens. */
static int32_t run_chunk(struct scorer *scorer, const int32_t *ids, int32_t n)
{
    struct sb_runner *runner = &scorer->runner;
    const struct sb_backend *backend = runner->backend;
    const size_t vocab = (size_t)runner->model->config.vocab;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(backend->upload(NULL, scorer->dev_ids, ids, (size_t)n * sizeof *ids));
    sb_pass_begin(runner, 0);
    const int32_t seq = sb_pass_add_seq(runner, 0, runner->limits.cap, 0);
    for (int32_t i = 0; i < n; i++)
        sb_pass_add_token(runner, seq, i, i, i);
    SB_TRY(sb_pass_issue(runner, 0, scorer->dev_ids));
    SB_TRY(backend->exec_sync(runner->exec));
    SB_TRY(backend->download(NULL, scorer->logits, runner->logits,
                             (size_t)n * vocab * sizeof *scorer->logits));
done:
    return rc;
}

/* The negative log-likelihood of the token `id`. */
static double loss(const float *logits, int32_t vocab, int32_t id)
{
    double largest = logits[0], sum = 0.0;

    for (int32_t i = 1; i < vocab; i++)
        largest = fmax(largest, logits[i]);
    for (int32_t i = 0; i < vocab; i++)
        sum += exp(logits[i] - largest);
    return largest + log(sum) - logits[id];
}

/* The sum of the losses of n tokens, and in *scored how many they are. */
static double losses(struct scorer *scorer, const int32_t *ids, size_t n, int32_t context,
                     uint64_t *scored)
{
    const int32_t vocab = scorer->runner.model->config.vocab;
    double sum = 0.0;

    *scored = 0;
    for (size_t at = 0; at < n; at += (size_t)context) {
        const int32_t chunk = n - at < (size_t)context ? (int32_t)(n - at) : context;
        struct sb_fp_env env;
        sb_port_fp_enter(&env);
        const int32_t rc = run_chunk(scorer, ids + at, chunk);
        sb_port_fp_leave(&env);
        need(rc, "pass");
        for (int32_t i = 0; i + 1 < chunk; i++)
            sum += loss(scorer->logits + (size_t)i * (size_t)vocab, vocab, ids[at + (size_t)i + 1]);
        *scored += (uint64_t)chunk - 1;
    }
    return sum;
}

/* ------------------------------------------------------------------ command line */

static void measure(const struct bench *bench)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    struct scorer scorer = {.dev_ids = NULL};
    specbatch_model *model;
    struct sb_fp_env env;
    uint64_t scored;
    double mean;
    int32_t *ids;
    size_t n;

    options.compute = bench->compute;
    options.weights = bench->weights;
    need(specbatch_model_open(&model, bench->model_path, &options), "--model");
    if (bench->context > specbatch_model_context(model)) {
        ex_complain("--context: the model has %" PRId32, specbatch_model_context(model));
        exit(EX_USAGE);
    }
    ids = read_tokens(bench->text_path, model, &n);
    if (bench->ids_path)
        write_tokens(bench->ids_path, ids, n);
    sb_port_fp_enter(&env);
    const int32_t rc = scorer_create(&scorer, model, bench);
    sb_port_fp_leave(&env);
    need(rc, "--context");
    mean = losses(&scorer, ids, n, bench->context, &scored);
    if (scored == 0) {
        ex_complain("%s: %zu tokens, of which none can be predicted", bench->text_path, n);
        exit(EX_FAILED);
    }
    mean /= (double)scored;
    printf("model       %s\nclass       %s\nbytes       %" PRIu64 "\ntokens      %" PRIu64
           " scored of %zu, in chunks of %" PRId32 "\nloss        %.6f\nperplexity  %.4f\n",
           bench->model_path, specbatch_model_fingerprint(model), specbatch_model_bytes(model),
           scored, n, bench->context, mean, exp(mean));
    scorer_free(&scorer);
    free(ids);
    specbatch_model_close(model);
}

int main(int argc, char **argv)
{
    struct bench bench = {.compute = SPECBATCH_COMPUTE_F32, .context = 256, .threads = 2};
    const struct ex_option options[] = {
        {"--model", "DIR|FILE", EX_STRING, &bench.model_path, 0, 0, "a checkpoint or a GGUF file"},
        {"--text", "FILE", EX_STRING, &bench.text_path, 0, 0, "what is predicted, in UTF-8"},
        {"--weights", "auto|q8|q4", EX_CHOICE, &bench.weights, 0, 0,
         "quantise the weights when the model is opened (auto: as they are stored)"},
        {"--compute", "auto|bf16|f32|split|int8", EX_CHOICE, &bench.compute, 0, 0, "(f32)"},
        {"--context", "N", EX_INT, &bench.context, 2, 1 << 20, "tokens of a chunk (256)"},
        {"--threads", "T", EX_INT, &bench.threads, 1, 256, "(2)"},
        {"--ids", "FILE", EX_STRING, &bench.ids_path, 0, 0, "write the tokens, one a line"},
    };
    int parsed;

    parsed = ex_args_parse(options, sizeof options / sizeof options[0], argc, argv,
                           "--model DIR|FILE --text FILE [options]");
    if (parsed != 1)
        return parsed < 0 ? EX_OK : EX_USAGE;
    if (!bench.model_path || !bench.text_path) {
        ex_complain("--model and --text are needed; --help lists the options");
        return EX_USAGE;
    }
    measure(&bench);
    return EX_OK;
}
