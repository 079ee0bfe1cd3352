/*
 * bench_gpu: measures plain and speculative decoding on a GPU, batch by batch, and compares plain
 * decoding with the memory roofline.
 *
 *   bench_gpu TARGET_DIR [--draft DRAFT_DIR] [--k 5] [--accept 0.8,0.6]
 *             [--batches 1,2,4,8,16,32] [--new 128] [--prompt 512] [--gbps 3000]
 *             [--module PATH] [--compute 16bit|f32] [--fill 1] [--temperature 0]
 *
 * The checkpoints may be random (make_checkpoint), since speed depends on shapes and not on values.
 * Acceptance does depend on values, so it is set: an oracle, a callback that knows what plain
 * decoding generates, makes the proposals and is right with the given probability. The oracle costs
 * nothing. What drafting costs is measured by another run, with the draft model in its place.
 *
 *   plain     tokens/s at batch B, and their share of B * bandwidth / (weights + B * cache), where
 *             weights and cache are the bytes that a pass reads
 *   oracle    tokens/s with the oracle's proposals: the speed of verification alone
 *   drafted   rounds/s with the draft model, times the tokens of an oracle's round: the speed
 *             that a draft of this acceptance and of the model's cost would give; it is derived,
 *             not measured, and printed as such
 *             With the target as its own draft, the tokens of a round tell how often the draft's
 *             arithmetic, which is its own, proposes what the target generates. With --least it
 *             fails where they are fewer: a draft that is wrong changes no token, so that no other
 *             check can find it
 *   equal     the share of the oracle run's tokens that are the plain run's; it must be all of
 *             them, as it must for the drafted run
 *
 * --fill 1 gives the matrices random values on the device, whatever the file has. A file of holes
 * is then enough (make_checkpoint --sparse), and 16 GB of weights are ready in seconds.
 *
 * With a temperature, requests sample, each with its own seed and with a top_p of 0.95. A draft's
 * steps are launched one by one then, each with a selection behind it.
 *
 * A batch is timed while it is full: from WARM_ROUNDS rounds after all prompts are in the cache
 * until the first row finishes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "port.h"
#include "support/drafts.h"

enum {
    WARM_ROUNDS = 4,
    MOST_ROWS = 32,
    MOST_NEW = 1024,
    MOST_PROMPT = 8192,
    MOST_LISTED = 8,
    RING = 1 << 22
};

struct list {
    double values[MOST_LISTED];
    int n;
};

struct bench {
    specbatch_model *target, *draft;
    struct list batches, accepts;
    int32_t k, n_new, n_prompt;
    double accept; /* acceptance of this run */
    double gbps;   /* the device's memory bandwidth */
    double least;  /* what the draft's own tokens a row and round must reach; 0: nothing */
    float temperature;
    int32_t prompts[MOST_ROWS][MOST_PROMPT], plain[MOST_ROWS][MOST_NEW];
    uint64_t state;
};

struct outcome {
    double seconds;
    uint64_t tokens, rounds, equal;
};

static int fail(const char *what)
{
    fprintf(stderr, "bench_gpu: %s: %s\n", what, specbatch_last_error());
    return 1;
}

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

static void oracle_row(struct bench *b, specbatch_draft_row *row)
{
    const int32_t vocab = specbatch_model_vocab_size(b->target);
    const uint32_t right = (uint32_t)(b->accept * 1000); /* of 1000 */

    for (int32_t i = 0; i < row->k; i++) {
        const int32_t at = (int32_t)row->n_tokens - b->n_prompt + i;
        const int32_t next = at < b->n_new ? b->plain[(row->request_id - 1) % MOST_ROWS][at] : 0;
        row->out[i] = random_below(&b->state, 1000) < right ? next : (next + 1) % vocab;
    }
    row->n_out = row->k;
}

static int32_t oracle(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    for (size_t r = 0; r < n_rows; r++)
        oracle_row(user, rows[r]);
    return 0;
}

enum proposals { NONE, ORACLE, MODEL };

static int create(specbatch_pool **pool, struct bench *b, int32_t rows, enum proposals kind)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.policy = kind == NONE ? SPECBATCH_POLICY_PLAIN : SPECBATCH_POLICY_RAGGED;
    options.batch = rows;
    options.draft_len = kind == NONE ? -1 : b->k;
    options.flags = SPECBATCH_POOL_FIXED_K;
    options.max_len = b->n_prompt + b->n_new;
    /* Products are planned for as many rows as a pass may have, so chunks are kept small. */
    options.prefill_chunk = b->n_prompt < 256 ? b->n_prompt : 256;
    const specbatch_draft_ops ops = only_propose(oracle, b);
    const int32_t rc = kind == ORACLE
                           ? create_with_ops(pool, b->target, &ops, &options)
                           : create_with_model(pool, b->target, kind == MODEL ? b->draft : NULL,
                                               &options);
    return rc != SPECBATCH_OK ? fail("pool") : 0;
}

static int submit(specbatch_pool *pool, struct bench *b, int32_t rows)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;

    sampling.temperature = b->temperature;
    sampling.top_p = 0.95f;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    request.n_ids = (size_t)b->n_prompt;
    request.max_new = b->n_new;
    request.sampling = b->temperature > 0.0f ? &sampling : NULL;
    for (int32_t r = 0; r < rows; r++) {
        request.ids = b->prompts[r];
        sampling.seed = (uint64_t)r;
        if (specbatch_pool_submit(pool, &request, NULL))
            return fail("submit");
    }
    return 0;
}

static void collect(specbatch_pool *pool, struct bench *b, enum proposals kind, struct outcome *o)
{
    specbatch_result *result;

    while (specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
        int32_t *row = b->plain[(specbatch_result_id(result) - 1) % MOST_ROWS];
        size_t n;
        const int32_t *tokens = specbatch_result_tokens(result, &n);
        for (size_t i = 0; i < n; i++) {
            o->equal += row[i] == tokens[i];
            row[i] = kind == NONE ? tokens[i] : row[i];
        }
        specbatch_result_free(result);
    }
}

/* A moment of the run, and what had been counted by then. */
struct mark {
    uint64_t ns, committed, rounds;
};

/* Runs one batch to its end. Left out of the time are the prefill, the draft's passes over the
 * prompts, the first rounds, in which the device's graphs are recorded, and the rounds after a row
 * has finished. Where a row finishes within the first WARM_ROUNDS rounds, all rounds after the
 * prefill count. */
static int run(struct outcome *o, struct bench *b, int32_t rows, enum proposals kind)
{
    specbatch_pool *pool = NULL;
    struct mark from = {0}, to = {0};
    uint64_t chunks = 0, rounds = 0, committed = 0;
    size_t active = 1;

    *o = (struct outcome){0};
    b->state = 1;
    if (create(&pool, b, rows, kind) || submit(pool, b, rows))
        return 1;
    while (active) {
        if (specbatch_pool_step(pool, &active))
            return fail("step");
        (void)specbatch_pool_stat(pool, "prefill_tokens", &chunks);
        (void)specbatch_pool_stat(pool, "tokens_committed", &committed);
        if (chunks < (uint64_t)rows * (uint64_t)(b->n_prompt - 1) || to.ns > 0)
            continue;
        rounds++;
        if (rounds == 1 || (rounds == WARM_ROUNDS && active == (size_t)rows))
            from = (struct mark){sb_port_now_ns(), committed, rounds};
        if (active < (size_t)rows)
            to = (struct mark){sb_port_now_ns(), committed, rounds};
    }
    o->seconds = (double)(to.ns - from.ns) * 1e-9;
    o->tokens = to.committed - from.committed;
    o->rounds = to.rounds - from.rounds;
    collect(pool, b, kind, o);
    specbatch_pool_free(pool);
    return 0;
}

/* Bytes that a target pass over one token of each of `rows` sequences must read: all weights once,
 * but of the embedding only the tokens' own rows, which are not counted, and every sequence's
 * cache. */
static double bytes_of_a_pass(const struct bench *b, int32_t rows)
{
    const struct sb_config *c = &b->target->config;
    const double cell = (double)b->target->backend->cache_bytes(b->target->device);
    const double cache = 2.0 * c->layers * c->kv_heads * c->head_dim * cell *
                         (b->n_prompt + b->n_new / 2.0);
    const double table = c->tied ? 0.0 : (double)b->target->embed.bytes;

    return (double)specbatch_model_bytes(b->target) - table + rows * cache;
}

/* Measures one acceptance and prints it beside the plain and the drafted run of the same batch. */
static int measure_accept(struct bench *b, int32_t rows, const struct outcome *plain,
                          const struct outcome *drafted)
{
    struct outcome guided;
    double per_round;

    if (run(&guided, b, rows, ORACLE))
        return 1;
    if (guided.rounds == 0) {
        printf("B=%-2d accept %.2f: a row ended before the last prompt was in: more --new\n", rows,
               b->accept);
        return guided.equal != (uint64_t)rows * (uint64_t)b->n_new;
    }
    per_round = (double)guided.tokens / (double)guided.rounds;
    printf("B=%-2d accept %.2f: oracle %8.0f tok/s (%4.2fx, %.2f tok/row/round, round %.2f ms)",
           rows, b->accept, guided.tokens / guided.seconds,
           guided.tokens / guided.seconds * plain->seconds / plain->tokens, per_round / rows,
           1e3 * guided.seconds / guided.rounds);
    if (b->draft)
        printf("   drafted %8.0f tok/s derived, round %.2f ms",
               per_round * drafted->rounds / drafted->seconds,
               1e3 * drafted->seconds / drafted->rounds);
    printf("   equal %5.1f %%\n", 100.0 * guided.equal / ((double)rows * b->n_new));
    return guided.equal != (uint64_t)rows * (uint64_t)b->n_new;
}

static int measure(struct bench *b, int32_t rows)
{
    struct outcome plain, drafted = {0};
    int bad;

    if (run(&plain, b, rows, NONE) || (b->draft && run(&drafted, b, rows, MODEL)))
        return 1;
    bad = b->draft && drafted.equal != (uint64_t)rows * (uint64_t)b->n_new;
    if (b->draft) {
        const double own = drafted.rounds ? (double)drafted.tokens / (double)drafted.rounds / rows
                                          : 0.0;
        const int few = own < b->least;
        printf("%sB=%-2d drafted: %.2f tok/row/round of its own   equal %5.1f %%\n",
               b->least <= 0.0 ? ""
               : few           ? "FAIL "
                               : "ok   ",
               rows, own, 100.0 * drafted.equal / ((double)rows * b->n_new));
        bad |= few;
    }
    printf(
        "B=%-2d plain %8.0f tok/s (%3.0f %% of the roofline)\n", rows, plain.tokens / plain.seconds,
        100.0 * plain.tokens / plain.seconds / (rows * b->gbps * 1e9 / bytes_of_a_pass(b, rows)));
    for (int i = 0; i < b->accepts.n; i++) {
        b->accept = b->accepts.values[i];
        bad |= measure_accept(b, rows, &plain, &drafted);
    }
    return bad;
}

static const char *option(int argc, char **argv, const char *name, const char *normal)
{
    for (int i = 2; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return normal;
}

static int32_t number(int argc, char **argv, const char *name, const char *normal, int32_t most)
{
    const long value = strtol(option(argc, argv, name, normal), NULL, 10);

    return value < 1 ? 1 : value > most ? most : (int32_t)value;
}

/* Reads numbers with commas between them and brings each into the range least..most. */
static struct list numbers(int argc, char **argv, const char *name, const char *normal,
                           double least, double most)
{
    const char *at = option(argc, argv, name, normal);
    struct list list = {.n = 0};

    while (*at && list.n < MOST_LISTED) {
        char *end;
        const double value = strtod(at, &end);
        if (end == at)
            break;
        list.values[list.n++] = value < least ? least : value > most ? most : value;
        at = *end ? end + 1 : end;
    }
    return list;
}

/* Fills a matrix from a ring of random bf16 numbers of both signs and magnitudes around 1/32. Every
 * block of rows begins at another place of the ring. */
static int fill_weight(struct specbatch_model *model, struct sb_weight *weight,
                       const uint16_t *ring)
{
    const int32_t block = RING / 2 / weight->n_in;

    for (int32_t at = 0, n; at < weight->n_out; at += n) {
        const size_t from = (size_t)at * 7919u % (RING / 2);
        n = weight->n_out - at < block ? weight->n_out - at : block;
        if (model->backend->weight_fill(weight, model->device, at, n, ring + from, SB_BF16))
            return 0;
    }
    return 1;
}

static int fill_weights(struct specbatch_model *model)
{
    uint16_t *ring = malloc(RING * sizeof *ring);
    uint64_t state = 1;
    int good = ring != NULL;

    for (size_t i = 0; good && i < RING; i++) {
        const uint32_t bits = random_below(&state, 0x7fffffff);
        ring[i] = (uint16_t)((bits & 0x807fu) | (0x3b80u + (bits >> 16 & 0x180u)));
    }
    good = good && fill_weight(model, &model->embed, ring) &&
           (model->config.tied || fill_weight(model, &model->head, ring));
    for (int32_t i = 0; good && i < model->config.layers; i++)
        good = fill_weight(model, &model->layers[i].qkv, ring) &&
               fill_weight(model, &model->layers[i].o, ring) &&
               fill_weight(model, &model->layers[i].mlp.gate_up, ring) &&
               fill_weight(model, &model->layers[i].mlp.down, ring);
    free(ring);
    return good;
}

static int open_models(struct bench *b, int argc, char **argv)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    const char *draft = option(argc, argv, "--draft", NULL);

    options.device = SPECBATCH_DEVICE_CUDA;
    options.cuda_module = option(argc, argv, "--module", NULL);
    if (strcmp(option(argc, argv, "--compute", "16bit"), "16bit") != 0)
        options.compute = SPECBATCH_COMPUTE_F32;
    if (specbatch_model_open(&b->target, argv[1], &options) ||
        (draft && specbatch_model_open(&b->draft, draft, &options)))
        return fail("model");
    if (atoi(option(argc, argv, "--fill", "0")) != 0 &&
        (!fill_weights(b->target) || (b->draft && !fill_weights(b->draft))))
        return fail("random weights");
    printf("%s; K %d, %d + %d tokens, roofline at %.0f GB/s\n",
           specbatch_model_fingerprint(b->target), b->k, b->n_prompt, b->n_new, b->gbps);
    return 0;
}

int main(int argc, char **argv)
{
    struct bench *b = calloc(1, sizeof *b);
    int bad;

    if (argc < 2 || !b) {
        fprintf(
            stderr,
            "usage: %s TARGET_DIR [--draft DIR] [--k N] [--accept P,..] [--batches B,..] [--new N] "
            "[--prompt N] [--gbps N] [--module PATH] [--compute 16bit|f32] [--fill 1] "
            "[--temperature T] [--least TOKENS]\n",
            argv[0]);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    b->k = number(argc, argv, "--k", "5", 64);
    b->n_new = number(argc, argv, "--new", "128", MOST_NEW);
    b->n_prompt = number(argc, argv, "--prompt", "512", MOST_PROMPT);
    b->batches = numbers(argc, argv, "--batches", "1,2,4,8,16,32", 1.0, MOST_ROWS);
    b->accepts = numbers(argc, argv, "--accept", "0.8", 0.0, 1.0);
    b->gbps = strtod(option(argc, argv, "--gbps", "3000"), NULL);
    b->least = strtod(option(argc, argv, "--least", "0"), NULL);
    b->temperature = strtof(option(argc, argv, "--temperature", "0"), NULL);
    bad = open_models(b, argc, argv);
    for (int32_t r = 0; !bad && r < MOST_ROWS; r++)
        for (int32_t i = 0; i < b->n_prompt; i++)
            b->prompts[r][i] = (int32_t)random_below(
                &b->state, (uint32_t)specbatch_model_vocab_size(b->target));
    for (int i = 0; !bad && i < b->batches.n; i++)
        bad = measure(b, (int32_t)b->batches.values[i]);
    specbatch_model_close(b->target);
    specbatch_model_close(b->draft);
    free(b);
    return bad;
}
