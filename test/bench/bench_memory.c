/*
 * Measures memory, and what the options about it are worth.
 *
 *   bench_memory [--part all|peak|pools|first|speed|open] [--target DIR] [--draft DIR]
 *                [--geometry DIR] [--kv auto|f32|bf16|f16] [--rounds R] [--threads T]
 *
 *   peak     Opens target and draft, fills all slots of a pool of 8, and compares the process's
 *            largest resident size with the sum of what the counters say. Exits with 1 if they
 *            differ by more than 10 %.
 *   pools    What pools of 48 requests of about 100 + 100 tokens take at max_len 2048 when the
 *            target has the geometry of another checkpoint, of which config.json is read alone: the
 *            pools run without arithmetic (support/null_backend.h).
 *   first    The time to the first token of a prompt that shares 1024 tokens with an earlier one,
 *            in a pool that keeps prefixes and in one that does not. Exits with 1 if the two pools
 *            disagree about a token.
 *   speed    Plain decoding with each type of the caches at contexts of 128 and 2048, B = 1 and 8.
 *            Sequences are declared filled without computing their prompts, which would take most
 *            of an hour here: attention reads as much whether a cache holds keys or zeros.
 *   open     How fast the target is opened with each type of weights, beside a plain read of its
 *            files. They are in the page cache then, since the first read puts them there.
 *
 * Runs that are compared alternate, and medians are taken, since other programs may use the machine
 * meanwhile. Random checkpoints (make_checkpoint) serve as well as trained ones.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "examples/support/args.h"
#include "examples/support/support.h"
#include "model/config.h"
#include "pool/pool.h"
#include "port.h"
#include "specbatch.h"
#include "support/drafts.h"
#include "support/median.h"
#include "support/null_backend.h"

enum {
    ALL,
    PEAK,
    POOLS,
    FIRST,
    SPEED,
    OPEN
}; /* the values of --part, in the order of their names */
enum { MAX_ROUNDS = 31, MAX_PROMPT = 2048 };

struct bench {
    const char *target_dir, *draft_dir, *geometry_dir;
    int32_t part, kv, rounds, threads;
    uint64_t random; /* of null_uniform: for lengths and ids */
};

static void need(int32_t rc, const char *what)
{
    if (rc != SPECBATCH_OK) {
        ex_complain("%s: %s", what, specbatch_last_error());
        exit(EX_FAILED);
    }
}

static specbatch_model *open_model(const char *dir, int32_t kv)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *model;

    options.compute = SPECBATCH_COMPUTE_F32;
    options.kv = kv;
    need(specbatch_model_open(&model, dir, &options), dir);
    return model;
}

static specbatch_pool_options pool_options(const struct bench *bench, int32_t policy, int32_t batch,
                                           int32_t max_len)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.policy = policy;
    options.batch = batch;
    options.max_len = max_len;
    options.n_threads = bench->threads;
    options.flags = SPECBATCH_POOL_FIXED_K;
    return options;
}

static int32_t between(struct bench *bench, int32_t low, int32_t high)
{
    return low + (int32_t)(null_uniform(&bench->random) * (high - low + 1));
}

/* Replaces ids from the index `from` on by random ones. */
static void draw_ids(struct bench *bench, int32_t *ids, int32_t from, int32_t n, int32_t vocab)
{
    for (int32_t i = from; i < n; i++)
        ids[i] = between(bench, 0, vocab - 1);
}

static uint64_t submit(specbatch_pool *pool, const int32_t *ids, int32_t n, int32_t max_new)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    uint64_t id;

    request.ids = ids;
    request.n_ids = (size_t)n;
    request.max_new = max_new;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    need(specbatch_pool_submit(pool, &request, &id), "submit");
    return id;
}

/* 0 for a counter that there is not. */
static uint64_t counter(const specbatch_pool *pool, const char *name)
{
    uint64_t value = 0;

    (void)specbatch_pool_stat(pool, name, &value);
    return value;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576.0;
}

/* ---------------------------------------------------------------------- peak */

/* Bytes of memory that the process has at present, and the most it has had. */
static uint64_t resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    uint64_t size = 0, pages = 0;

    if (!file || fscanf(file, "%" SCNu64 " %" SCNu64, &size, &pages) != 2)
        ex_complain("/proc/self/statm: cannot read");
    if (file)
        fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t peak(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

/* Prints the parts that the counters name, and returns their sum. */
static uint64_t print_parts(const specbatch_pool *pool)
{
    static const char *const parts[] = {"target_bytes", "draft_bytes",      "kv_reserved_bytes",
                                        "prefix_bytes", "activation_bytes", "logits_bytes",
                                        "table_bytes",  "request_bytes"};
    uint64_t sum = 0;

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        printf("   %-18s %9.1f\n", parts[i], mib(counter(pool, parts[i])));
        sum += counter(pool, parts[i]);
    }
    return sum;
}

static int bench_peak(struct bench *bench)
{
    enum { BATCH = 8, MAX_LEN = 320, MAX_NEW = 16 };
    const uint64_t program = resident();
    specbatch_model *target = open_model(bench->target_dir, bench->kv);
    specbatch_model *draft = open_model(bench->draft_dir, bench->kv);
    const uint64_t loaded = resident(), loaded_peak = peak();
    specbatch_pool_options options = pool_options(bench, SPECBATCH_POLICY_RAGGED, BATCH, MAX_LEN);
    int32_t ids[MAX_LEN];
    specbatch_pool *pool;
    uint64_t sum;
    double share;

    options.prefix_bytes = (uint64_t)64 << 20;
    need(create_with_model(&pool, target, draft, &options), "pool");
    for (int32_t i = 0; i < BATCH; i++) {
        draw_ids(bench, ids, 0, MAX_LEN - MAX_NEW, specbatch_model_vocab_size(target));
        submit(pool, ids, MAX_LEN - MAX_NEW, MAX_NEW);
    }
    need(specbatch_pool_run(pool), "run");
    printf("peak: MiB, B = %d, %d tokens a request\n", BATCH, MAX_LEN);
    sum = program + print_parts(pool);
    share = (double)peak() / (double)sum;
    printf("   the program alone  %9.1f\n   sum                %9.1f\n", mib(program), mib(sum));
    printf("   peak resident size %9.1f   %.3f times the sum\n", mib(peak()), share);
    printf("   of the caches, requests had %.1f at most\n",
           mib(counter(pool, "kv_live_peak_bytes")));
    printf("   loaded: %.1f, and %.1f while loading, for %.1f of weights\n\n", mib(loaded),
           mib(loaded_peak), mib(specbatch_model_bytes(target) + specbatch_model_bytes(draft)));
    specbatch_pool_free(pool);
    specbatch_model_close(draft);
    specbatch_model_close(target);
    return share > 0.9 && share < 1.1;
}

/* ---------------------------------------------------------------------- pools */

enum { REQUESTS = 48, MAX_LEN = 2048, AROUND = 100, MAY_BE = 1024 };

/* A pool that takes the requests. Where answers may be longer than they come to be, they are ended
 * from outside, as an end-of-sequence token would. */
static const struct load {
    const char *name;
    int32_t policy, batch, max_new; /* max_new 0: what the answer comes to be */
    uint32_t flags;
    uint64_t cache_columns;
} loads[] = {
    {"exspec, B = 8, W = 48", SPECBATCH_POLICY_EXSPEC, 8, 0, 0, 0},
    {"ragged, B = 8", SPECBATCH_POLICY_RAGGED, 8, 0, 0, 0},
    {"ragged, B = 48, max_new 1024", SPECBATCH_POLICY_RAGGED, REQUESTS, MAY_BE, 0, 20000},
    {"the same, slots grow", SPECBATCH_POLICY_RAGGED, REQUESTS, MAY_BE, SPECBATCH_POOL_GROW_SLOTS,
     20000},
};

/* Runs the requests, each of which ends when it has so many tokens. */
static void run_answers(specbatch_pool *pool, const int32_t *lengths)
{
    specbatch_request_state state = SPECBATCH_REQUEST_STATE_INIT;
    size_t active = 1;

    while (active) {
        need(specbatch_pool_step(pool, &active), "step");
        for (uint64_t id = 1; id <= REQUESTS; id++) {
            need(specbatch_pool_state(pool, id, &state), "state");
            if (!state.finish && state.n_generated >= (uint64_t)lengths[id - 1])
                need(specbatch_pool_cancel(pool, id), "cancel");
        }
    }
}

static void run_load(struct bench *bench, const struct load *load, specbatch_model *model)
{
    static const int32_t zeros[2 * AROUND];
    specbatch_pool_options options = pool_options(bench, load->policy, load->batch, MAX_LEN);
    int32_t lengths[REQUESTS];
    specbatch_pool *pool;
    uint64_t bytes;

    options.window = REQUESTS;
    options.flags |= load->flags;
    options.cache_columns = load->cache_columns;
    printf("   %-29s", load->name);
    if (specbatch_pool_bytes(&bytes, model, NULL, &options) != SPECBATCH_OK ||
        specbatch_pool_create(&pool, model, NULL, &options) != SPECBATCH_OK) {
        printf(" %s\n", specbatch_last_error());
        return;
    }
    for (int32_t i = 0; i < REQUESTS; i++) {
        lengths[i] = between(bench, AROUND - 20, AROUND + 20);
        submit(pool, zeros, between(bench, AROUND - 20, AROUND + 20),
               load->max_new ? load->max_new : lengths[i]);
    }
    run_answers(pool, lengths);
    printf(" %9.1f %9.1f %9.1f %9" PRIu64 " %9" PRIu64 "\n", mib(bytes),
           mib(counter(pool, "kv_reserved_bytes")), mib(counter(pool, "kv_live_peak_bytes")),
           counter(pool, "rounds"), counter(pool, "preemptions"));
    specbatch_pool_free(pool);
}

static void bench_pools(struct bench *bench)
{
    const struct sb_mem mem = {NULL, NULL, NULL};
    const struct sb_log silence = {NULL, NULL};
    struct null_clock clock = {.costs = {.c_verify = 1.0, .ridge = 156.0}};
    struct specbatch_model model;
    struct sb_config config;

    memset(&config, 0, sizeof config);
    need(sb_config_load(&config, &mem, &silence, bench->geometry_dir), bench->geometry_dir);
    if (config.layers > NULL_LAYERS) {
        ex_complain("%s: more than %d layers", bench->geometry_dir, NULL_LAYERS);
        exit(EX_FAILED);
    }
    printf("pools: MiB of 48 requests of about 100 + 100 tokens, max_len 2048, at the shapes of\n"
           "   %s\n",
           bench->geometry_dir);
    for (size_t cell = sizeof(float); cell >= sizeof(uint16_t); cell /= 2) {
        const uint64_t column = 2 * (uint64_t)config.layers *
                                (uint64_t)(config.kv_heads * config.head_dim) * cell;
        printf("   %zu-bit caches; 48 slots of max_len would be %.1f\n   %-29s %9s %9s %9s %9s "
               "%9s\n",
               8 * cell, mib(REQUESTS * MAX_LEN * column), "", "pool", "caches", "live", "rounds",
               "preempted");
        null_model_of(&model, &clock, &config, cell);
        for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++)
            run_load(bench, &loads[i], &model);
    }
    printf("\n");
}

/* ---------------------------------------------------------------------- first */

/* Milliseconds until the first token of this prompt; its tokens go to `tokens`. */
static double first_token(specbatch_pool *pool, const int32_t *ids, int32_t n, int32_t *tokens,
                          int32_t max_new)
{
    specbatch_result *result;
    double ms;

    submit(pool, ids, n, max_new);
    need(specbatch_pool_run(pool), "run");
    need(specbatch_pool_collect(pool, &result), "collect");
    memcpy(tokens, specbatch_result_tokens(result, NULL), (size_t)max_new * sizeof *tokens);
    ms = 1e-6 * (double)specbatch_result_time_first_token_ns(result);
    specbatch_result_free(result);
    return ms;
}

/* Each round has a new prefix. A first prompt is computed and kept; a second one, of the same
 * prefix, is computed in the pool that keeps nothing, and then hits in the other. */
static int bench_first(struct bench *bench)
{
    enum { PREFIX = 1024, SUFFIX = 32, N = PREFIX + SUFFIX, MAX_NEW = 4 };
    specbatch_model *target = open_model(bench->target_dir, bench->kv);
    specbatch_pool_options options = pool_options(bench, SPECBATCH_POLICY_PLAIN, 1, N + MAX_NEW);
    const int32_t vocab = specbatch_model_vocab_size(target);
    double kept[MAX_ROUNDS], cold[MAX_ROUNDS], hit[MAX_ROUNDS], ratio[MAX_ROUNDS];
    int32_t ids[N], expected[MAX_NEW], got[MAX_NEW];
    specbatch_pool *keeps, *forgets;
    int equal = 1;

    need(specbatch_pool_create(&forgets, target, NULL, &options), "pool");
    options.prefix_bytes = (uint64_t)1 << 30;
    need(specbatch_pool_create(&keeps, target, NULL, &options), "pool");
    for (int r = 0; r < bench->rounds; r++) {
        draw_ids(bench, ids, 0, N, vocab);
        kept[r] = first_token(keeps, ids, N, got, MAX_NEW);
        draw_ids(bench, ids, PREFIX, N, vocab);
        cold[r] = first_token(forgets, ids, N, expected, MAX_NEW);
        hit[r] = first_token(keeps, ids, N, got, MAX_NEW);
        equal &= memcmp(expected, got, sizeof got) == 0;
        ratio[r] = cold[r] / hit[r];
    }
    printf("first token: ms, medians of %d, %d tokens of which %d are shared; %s\n", bench->rounds,
           N, PREFIX, specbatch_model_fingerprint(target));
    printf("   nothing is kept %9.1f\n   computed, kept  %9.1f\n   shared          %9.1f   %.2f "
           "times as fast; its tokens are %s\n",
           median(cold, bench->rounds), median(kept, bench->rounds), median(hit, bench->rounds),
           median(ratio, bench->rounds), equal ? "equal" : "DIFFERENT");
    printf("   hits %" PRIu64 ", tokens taken %" PRIu64 "\n\n", counter(keeps, "prefix_hits"),
           counter(keeps, "prefix_tokens"));
    specbatch_pool_free(keeps);
    specbatch_pool_free(forgets);
    specbatch_model_close(target);
    return equal;
}

/* ---------------------------------------------------------------------- speed */

enum { KINDS = SPECBATCH_KV_F16, STEPS = 6 }; /* types of caches; rounds that are timed at once */

/* A pool that has `batch` sequences of `context` tokens, ready to decode; of less where the model's
 * own context would not have room for what is decoded. */
static specbatch_pool *ready_pool(struct bench *bench, specbatch_model *model, int32_t batch,
                                  int32_t context)
{
    const int32_t max_new = STEPS * (bench->rounds + 1) + 1;
    const int32_t room = specbatch_model_context(model) - max_new;
    const int32_t n = context < room ? context : room;
    const specbatch_pool_options options = pool_options(bench, SPECBATCH_POLICY_PLAIN, batch,
                                                        n + max_new);
    int32_t ids[MAX_PROMPT];
    specbatch_pool *pool;

    need(specbatch_pool_create(&pool, model, NULL, &options), "pool");
    for (int32_t i = 0; i < batch; i++) {
        draw_ids(bench, ids, 0, n, specbatch_model_vocab_size(model));
        sb_idmap_find(&pool->by_id, submit(pool, ids, n, max_new))->kv_len = n - 1;
    }
    return pool;
}

/* Tokens a second of some rounds. */
static double decode(specbatch_pool *pool)
{
    const uint64_t before = counter(pool, "tokens_committed"), began = sb_port_now_ns();

    for (int i = 0; i < STEPS; i++)
        need(specbatch_pool_step(pool, NULL), "step");
    return (double)(counter(pool, "tokens_committed") - before) /
           (1e-9 * (double)(sb_port_now_ns() - began));
}

static void compare_types(struct bench *bench, specbatch_model *const *models, int32_t batch,
                          int32_t context)
{
    double speed[KINDS][MAX_ROUNDS], ratio[KINDS][MAX_ROUNDS];
    specbatch_pool *pools[KINDS];

    for (int k = 0; k < KINDS; k++) {
        pools[k] = ready_pool(bench, models[k], batch, context);
        decode(pools[k]);
    }
    for (int r = 0; r < bench->rounds; r++)
        for (int k = 0; k < KINDS; k++) {
            speed[k][r] = decode(pools[k]);
            ratio[k][r] = speed[k][r] / speed[0][r];
        }
    printf("   %7" PRId32 " %3" PRId32, context, batch);
    for (int k = 0; k < KINDS; k++) {
        printf(" %9.2f (%4.2f)", median(speed[k], bench->rounds), median(ratio[k], bench->rounds));
        specbatch_pool_free(pools[k]);
    }
    printf("\n");
    fflush(stdout);
}

static void bench_speed(struct bench *bench)
{
    static const int32_t contexts[] = {128, MAX_PROMPT}, batches[] = {1, 8};
    specbatch_model *models[KINDS];

    printf("speed: tokens/s, and times f32's, medians of %d\n", bench->rounds);
    for (int k = 0; k < KINDS; k++) {
        models[k] = open_model(bench->target_dir, SPECBATCH_KV_F32 + k);
        printf("   %s\n", specbatch_model_fingerprint(models[k]));
    }
    printf("   %7s %3s %16s %16s %16s\n", "context", "B", "f32", "bf16", "f16");
    for (int c = 0; c < 2; c++)
        for (int b = 0; b < 2; b++)
            compare_types(bench, models, batches[b], contexts[c]);
    for (int k = 0; k < KINDS; k++)
        specbatch_model_close(models[k]);
}

/* ---------------------------------------------------------------------- open */

enum { TYPES = SPECBATCH_WEIGHTS_Q4 + 1 };

/* Reads a file from begin to end and returns its bytes. */
static uint64_t read_file(const char *path)
{
    enum { BUFFER = 4 << 20 };
    static char buffer[BUFFER];
    const int file = open(path, O_RDONLY);
    uint64_t bytes = 0;
    ssize_t n = -1;

    while (file >= 0 && (n = read(file, buffer, BUFFER)) > 0)
        bytes += (uint64_t)n;
    if (n < 0) {
        ex_complain("%s: cannot read", path);
        exit(EX_FAILED);
    }
    close(file);
    return bytes;
}

/* Reads a checkpoint: a GGUF file, or the safetensors files of a directory. */
static uint64_t read_checkpoint(const char *path)
{
    DIR *dir = opendir(path);
    uint64_t bytes = 0;
    char name[1200];

    if (!dir)
        return read_file(path);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".safetensors") && !strstr(entry->d_name, ".json")) {
            snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
            bytes += read_file(name);
        }
    closedir(dir);
    return bytes;
}

static double since(uint64_t began)
{
    return 1e-9 * (double)(sb_port_now_ns() - began);
}

static void print_opening(const char *name, double *seconds, double *ratio, double bytes, int n)
{
    const double middle = median(seconds, n);

    printf("   %-10s %9.3f %9.2f %9.2f\n", name, middle, 1e-9 * bytes / middle, median(ratio, n));
}

static void bench_open(struct bench *bench)
{
    static const char *const names[TYPES] = {"as stored", "q8", "q4"};
    double plain[MAX_ROUNDS], seconds[TYPES][MAX_ROUNDS], ratio[TYPES + 1][MAX_ROUNDS];
    uint64_t bytes = read_checkpoint(bench->target_dir), began;

    for (int r = 0; r < bench->rounds; r++) {
        began = sb_port_now_ns();
        bytes = read_checkpoint(bench->target_dir);
        plain[r] = since(began);
        ratio[TYPES][r] = 1.0;
        for (int t = 0; t < TYPES; t++) {
            specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
            specbatch_model *model;
            options.weights = t;
            began = sb_port_now_ns();
            need(specbatch_model_open(&model, bench->target_dir, &options), bench->target_dir);
            seconds[t][r] = since(began);
            ratio[t][r] = plain[r] / seconds[t][r];
            specbatch_model_close(model);
        }
    }
    printf("open: %s, %.2f GB, medians of %d\n   %-10s %9s %9s %9s\n", bench->target_dir,
           1e-9 * (double)bytes, bench->rounds, "weights", "seconds", "GB/s", "of read");
    print_opening("plain read", plain, ratio[TYPES], (double)bytes, bench->rounds);
    for (int t = 0; t < TYPES; t++)
        print_opening(names[t], seconds[t], ratio[t], (double)bytes, bench->rounds);
}

/* ------------------------------------------------------------------ command line */

int main(int argc, char **argv)
{
    struct bench bench = {.target_dir = "build/bench/target",
                          .draft_dir = "build/bench/draft",
                          .geometry_dir = "build/bench/qwen3-8b",
                          .kv = SPECBATCH_KV_F32,
                          .rounds = 7,
                          .threads = 2};
    const struct ex_option options[] = {
        {"--part", "all|peak|pools|first|speed|open", EX_CHOICE, &bench.part, 0, 0, "(all)"},
        {"--target", "DIR", EX_STRING, &bench.target_dir, 0, 0, "(build/bench/target)"},
        {"--draft", "DIR", EX_STRING, &bench.draft_dir, 0, 0, "of peak (build/bench/draft)"},
        {"--geometry", "DIR", EX_STRING, &bench.geometry_dir, 0, 0,
         "of pools; only config.json is read (build/bench/qwen3-8b)"},
        {"--kv", "auto|f32|bf16|f16", EX_CHOICE, &bench.kv, 0, 0, "of peak and first (f32)"},
        {"--rounds", "R", EX_INT, &bench.rounds, 1, MAX_ROUNDS, "of first, speed and open (7)"},
        {"--threads", "T", EX_INT, &bench.threads, 1, 256, "(2)"},
    };
    int ok = 1, parsed;

    parsed = ex_args_parse(options, sizeof options / sizeof options[0], argc, argv, "[options]");
    if (parsed != 1)
        return parsed < 0 ? EX_OK : EX_USAGE;
    /* First, since a process's largest size never falls. */
    if (bench.part == ALL || bench.part == PEAK)
        ok &= bench_peak(&bench);
    if (bench.part == ALL || bench.part == POOLS)
        bench_pools(&bench);
    if (bench.part == ALL || bench.part == FIRST)
        ok &= bench_first(&bench);
    if (bench.part == ALL || bench.part == SPEED)
        bench_speed(&bench);
    if (bench.part == ALL || bench.part == OPEN)
        bench_open(&bench);
    return ok ? EX_OK : EX_DIFFERS;
}
