/*
 * Measures how long rows that run wait for their next token while long prompts arrive.
 *
 *   bench_gaps [--model DIR] [--rows N] [--prompt N] [--prompts N] [--chunks LIST]
 *
 * Some rows decode plainly, without an end. Then long prompts arrive, each when the one before it
 * has its first token. The gap between two tokens of a row is the time of a step, as every running
 * row gets one token in every step. Gaps are told in the time of a plain step, which decodes the
 * same rows and no prompt:
 *
 *   chunk     prefill_chunk of the pool: prompt tokens that a step computes at most
 *   p50 ..    gaps while prompts arrive, in plain steps
 *   first     the time to a prompt's first token, in plain steps
 *
 * One thread computes, and times are its processor time, since other programs may use the machine
 * meanwhile. Exits with 1 if a row ever had to wait for a second step, or for more prompt tokens
 * than one chunk has: that much is true whatever the times are.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "examples/support/args.h"
#include "examples/support/support.h"
#include "port.h"
#include "specbatch.h"
#include "support/median.h"

enum { MAX_ROWS = 64, PLAIN_STEPS = 32, MAX_STEPS = 8192, MAX_PROMPT = 8192 };

struct bench {
    const char *model_dir, *chunks;
    int32_t n_rows, n_prompt, n_prompts;
    specbatch_model *model;
    specbatch_pool *pool;
    uint64_t rows[MAX_ROWS]; /* the requests that run */
    double gaps[MAX_STEPS];  /* nanoseconds */
    int32_t ids[MAX_PROMPT];
};

static void need(int32_t rc, const char *what)
{
    if (rc != SPECBATCH_OK) {
        ex_complain("%s: %s", what, specbatch_last_error());
        exit(EX_FAILED);
    }
}

static uint64_t submit(struct bench *bench, int32_t n, int32_t max_new)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    uint64_t id;

    request.ids = bench->ids;
    request.n_ids = (size_t)n;
    request.max_new = max_new;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    need(specbatch_pool_submit(bench->pool, &request, &id), "submit");
    return id;
}

static uint64_t prefilled(const struct bench *bench)
{
    uint64_t n;

    need(specbatch_pool_stat(bench->pool, "prefill_tokens", &n), "prefill_tokens");
    return n;
}

/* A step, in nanoseconds. Every running row has to get a token in it, beside one chunk at most. */
static double step(struct bench *bench, int32_t chunk)
{
    const uint64_t before = prefilled(bench), began = sb_port_thread_ns();
    uint64_t took;

    need(specbatch_pool_step(bench->pool, NULL), "step");
    took = sb_port_thread_ns() - began;
    for (int32_t b = 0; b < bench->n_rows; b++) {
        int32_t id;
        size_t n = 0;
        need(specbatch_pool_poll(bench->pool, bench->rows[b], &id, 1, &n), "poll");
        if (n != 1) {
            ex_complain("a running row got no token in a step");
            exit(EX_FAILED);
        }
    }
    if (prefilled(bench) - before > (uint64_t)chunk) {
        ex_complain("a step computed %" PRIu64 " prompt tokens", prefilled(bench) - before);
        exit(EX_FAILED);
    }
    return (double)took;
}

/* Tokens that a sequence may have: enough for the rows to run to the end of the measurement. */
static int32_t longest(const struct bench *bench, int32_t chunk)
{
    const int32_t context = specbatch_model_context(bench->model),
                  steps = bench->n_prompts * (bench->n_prompt / chunk + 2) + PLAIN_STEPS;
    const int32_t n = 2 * MAX_ROWS + steps + bench->n_prompt;

    return n < context ? n : context;
}

/* A pool in which all rows run. */
static void begin(struct bench *bench, int32_t chunk)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    const int32_t room = longest(bench, chunk);
    specbatch_request_state state = SPECBATCH_REQUEST_STATE_INIT;

    options.policy = SPECBATCH_POLICY_PLAIN;
    options.batch = bench->n_rows + 1;
    options.prefill_chunk = chunk;
    options.max_len = room;
    options.n_threads = 1;
    need(specbatch_pool_create(&bench->pool, bench->model, NULL, &options), "pool");
    for (int32_t b = 0; b < bench->n_rows; b++)
        bench->rows[b] = submit(bench, 16 + b, room - 16 - b);
    do {
        int32_t id;
        size_t n;
        need(specbatch_pool_step(bench->pool, NULL), "step");
        for (int32_t b = 0; b < bench->n_rows; b++)
            need(specbatch_pool_poll(bench->pool, bench->rows[b], &id, 1, &n), "poll");
        need(specbatch_pool_state(bench->pool, bench->rows[bench->n_rows - 1], &state), "state");
    } while (state.n_generated == 0);
}

static void measure(struct bench *bench, int32_t chunk)
{
    double plain, firsts[MAX_STEPS];
    int32_t n = 0;

    begin(bench, chunk);
    for (int i = 0; i < PLAIN_STEPS; i++)
        bench->gaps[i] = step(bench, 0);
    plain = median(bench->gaps, PLAIN_STEPS);
    for (int32_t p = 0; p < bench->n_prompts; p++) {
        const uint64_t id = submit(bench, bench->n_prompt, 1);
        specbatch_request_state state = SPECBATCH_REQUEST_STATE_INIT;
        firsts[p] = 0.0;
        do {
            if (n == MAX_STEPS) {
                ex_complain("more than %d steps", MAX_STEPS);
                exit(EX_FAILED);
            }
            firsts[p] += bench->gaps[n++] = step(bench, chunk);
            need(specbatch_pool_state(bench->pool, id, &state), "state");
        } while (state.n_generated == 0);
    }
    printf("%6d %6d", chunk, n);
    printf(" %8.1f", median(bench->gaps, n) / plain);
    printf(" %8.1f %8.1f %9.1f %12.2f\n", bench->gaps[n * 99 / 100] / plain,
           bench->gaps[n - 1] / plain, median(firsts, bench->n_prompts) / plain, plain / 1e6);
    fflush(stdout);
    specbatch_pool_free(bench->pool);
}

int main(int argc, char **argv)
{
    static struct bench bench = {.model_dir = "examples/demo/target",
                                 .chunks = "1024,512,256,128,64,32,16",
                                 .n_rows = 4,
                                 .n_prompt = 1025,
                                 .n_prompts = 8};
    const struct ex_option options[] = {
        {"--model", "DIR", EX_STRING, &bench.model_dir, 0, 0, "(examples/demo/target)"},
        {"--chunks", "LIST", EX_STRING, &bench.chunks, 0, 0, "(1024,512,256,128,64,32,16)"},
        {"--rows", "N", EX_INT, &bench.n_rows, 1, MAX_ROWS, "rows that run (4)"},
        {"--prompt", "N", EX_INT, &bench.n_prompt, 2, MAX_PROMPT, "tokens of a prompt (1025)"},
        {"--prompts", "N", EX_INT, &bench.n_prompts, 1, 64, "prompts that arrive (8)"},
    };
    specbatch_model_options model = SPECBATCH_MODEL_OPTIONS_INIT;
    const char *at;
    char *end;
    const int parsed = ex_args_parse(options, sizeof options / sizeof options[0], argc, argv,
                                     "[options]");

    if (parsed != 1)
        return parsed < 0 ? EX_OK : EX_USAGE;
    model.compute = SPECBATCH_COMPUTE_F32;
    need(specbatch_model_open(&bench.model, bench.model_dir, &model), bench.model_dir);
    for (int32_t i = 0; i < bench.n_prompt; i++)
        bench.ids[i] = (i * 37 + i * i) % specbatch_model_vocab_size(bench.model);
    printf("%d rows run; %d prompts of %d tokens; gaps in plain steps\n", bench.n_rows,
           bench.n_prompts, bench.n_prompt);
    printf(" chunk  steps      p50      p99      max     first   plain (ms)\n");
    for (at = bench.chunks; *at; at = *end == ',' ? end + 1 : end) {
        const long chunk = strtol(at, &end, 10);
        if (end == at || chunk < 1 || chunk > MAX_PROMPT) {
            ex_complain("--chunks: %s", bench.chunks);
            return EX_USAGE;
        }
        measure(&bench, (int32_t)chunk);
    }
    specbatch_model_close(bench.model);
    return EX_OK;
}
