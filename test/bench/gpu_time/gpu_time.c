/*
 * gpu_time: counts what the launches of a round do, on the simulated device
 * (test/cudasim/counts.h), and prints them for gpu_time.py, which makes times of them.
 *
 *   gpu_time TARGET_DIR DRAFT_DIR [--batches 1,8,32] [--k 5] [--context 640] [--wgmma FILE]
 *
 * The real backend runs a real pool: what is counted is what the library would launch. The
 * checkpoints have the shapes of real models and one or two layers; all layers are alike, so
 * gpu_time.py scales by the difference. Prompts are prefilled by launches that run no block. All
 * weights are zeros, so all logits are equal, which changes no count but those of attention's
 * branches for infinities. Nor is there anything to time: mma.sync makes all products, and with
 * --wgmma, wgmma makes those of 17 rows and more, as a plan file says that is written to FILE.
 *
 * Output: a line of JSON for each thing counted, then one for each launch of it:
 *
 *   {"counted": "plain" | "round" | "move", "target": .., "draft": .., "layers": .., "batch": ..}
 *   {"kernel": .., "grid": [..], "block": [..], ..., "of": [[..], ..]}     of: by label
 *
 * "plain" is a pass of one token a row, "round" K draft steps and a verification, "move" the
 * realignment of every row's cache by one column (all moved, the dearest case).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counts.h"
#include "cudasim.h"
#include "backend/cuda/plan_file.h"
#include "kernels/cuda/launch.h"
#include "pool/pool.h"
#include "support/drafts.h"

/* Chunks are large, so that the first rows have not gone far when the last ones begin. */
enum { MOST_ROWS = 256, MOST_NEW = 64, PREFILL_CHUNK = 4096 };
enum label { OTHER, TARGET_WEIGHTS, DRAFT_WEIGHTS, TARGET_CACHE, DRAFT_CACHE };

struct task {
    specbatch_model *target, *draft;
    const char *names[2]; /* the folders' */
    int32_t k, context;
    int32_t *prompt;
};

static int fail(const char *what)
{
    fprintf(stderr, "gpu_time: %s: %s\n", what, specbatch_last_error());
    return 1;
}

/* ------------------------------------------------------------------ printing */

static void print_launch(const struct cudasim_launch *l)
{
    printf("{\"kernel\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], ", l->name,
           l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2]);
    printf("\"shared\": %lld, \"blocks\": %lld, \"ran\": %lld, \"busy\": %lld, \"rounds\": %lld, "
           "\"stored_rounds\": %lld, \"early_rounds\": %lld, \"loads\": %lld, \"barriers\": %lld, "
           "\"grid_barriers\": %lld, \"mma\": %lld, \"mma_steps\": %lld, \"wgmma\": %lld, "
           "\"matrix_bytes\": %lld, "
           "\"is_dependent\": %lld, \"of\": [",
           (long long)l->shared, (long long)l->blocks, (long long)l->ran, (long long)l->busy,
           (long long)l->rounds, (long long)l->stored_rounds, (long long)l->early_rounds,
           (long long)l->loads, (long long)l->barriers, (long long)l->grid_barriers,
           (long long)l->mma, (long long)l->mma_steps, (long long)l->wgmma,
           (long long)l->matrix_bytes, (long long)l->is_dependent);
    for (int i = 0; i < CUDASIM_LABELS; i++) {
        const struct cudasim_traffic *t = &l->of[i];
        printf("%s[%lld, %lld, %lld, %lld, %lld, %lld, %lld]", i ? ", " : "", (long long)t->read,
               (long long)t->written, (long long)t->copied, (long long)t->block_sectors,
               (long long)t->sectors_read, (long long)t->sectors_written,
               (long long)t->early_sectors);
    }
    printf("]}\n");
}

static void print_counted(const struct task *task, const char *what, int32_t rows)
{
    const struct cudasim_launch *launches;
    const size_t n = cudasim_counted(&launches);

    printf("{\"counted\": \"%s\", \"target\": \"%s\", \"draft\": \"%s\", \"layers\": %d, "
           "\"batch\": %d, \"k\": %d, \"context\": %d}\n",
           what, task->names[0], task->names[1], task->target->config.layers, rows, task->k,
           task->context);
    for (size_t i = 0; i < n; i++)
        print_launch(&launches[i]);
}

/* ------------------------------------------------------------------ what is counted */

static void label_cache(const struct sb_kv *kv, enum label label)
{
    cudasim_label(kv->planes, kv->bytes, label);
}

/* Steps until every prompt is in the cache, and twice more. Nothing is accepted then, so that the
 * draft has read everything but each row's last token. */
static int prefill(specbatch_pool *pool, int32_t rows, int32_t n_prompt)
{
    uint64_t done = 0;
    size_t active;

    while (done < (uint64_t)rows * (uint64_t)(n_prompt - 1)) {
        if (specbatch_pool_step(pool, &active) ||
            specbatch_pool_stat(pool, "prefill_tokens", &done))
            return fail("prefill");
    }
    for (int i = 0; i < 2; i++)
        if (specbatch_pool_step(pool, &active))
            return fail("step");
    return 0;
}

static int submit(specbatch_pool *pool, const struct task *task, int32_t rows, int32_t n_prompt)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    request.ids = task->prompt;
    request.n_ids = (size_t)n_prompt;
    request.max_new = MOST_NEW;
    for (int32_t r = 0; r < rows; r++)
        if (specbatch_pool_submit(pool, &request, NULL))
            return fail("submit");
    return 0;
}

/* Counts the realignment of all rows: every column of every plane moves by one. */
static int count_move(const struct task *task, const struct specbatch_pool *pool, int32_t rows)
{
    const struct sb_kv *kv = &pool->runner.kv;
    const struct sb_config *c = &task->target->config;
    int32_t *numbers = NULL; /* on the device: from, to, len, from_cap, to_cap */
    int64_t *bases = NULL;
    struct sb_move move = {.n = rows,
                           .n_planes = 2 * c->layers,
                           .kv_heads = kv->kv_heads,
                           .head_dim = kv->head_dim,
                           .plane_stride = kv->plane_stride};
    int32_t host[5][MOST_ROWS];
    int64_t base[MOST_ROWS];

    for (int32_t r = 0; r < rows; r++) {
        const int32_t cap = task->context + MOST_NEW;
        base[r] = sb_kv_base(kv, (int64_t)r * cap);
        host[0][r] = 0, host[1][r] = 1, host[2][r] = task->context, host[3][r] = host[4][r] = cap;
    }
    if (cudaMalloc((void **)&numbers, sizeof host) || cudaMalloc((void **)&bases, sizeof base) ||
        cudaMemcpy(numbers, host, sizeof host, cudaMemcpyHostToDevice) ||
        cudaMemcpy(bases, base, sizeof base, cudaMemcpyHostToDevice))
        return fail("move");
    move.from = numbers, move.to = numbers + MOST_ROWS, move.len = numbers + 2 * MOST_ROWS;
    move.from_cap = numbers + 3 * MOST_ROWS, move.to_cap = numbers + 4 * MOST_ROWS;
    move.from_base = move.to_base = bases;
    cudasim_count(CUDASIM_COUNT_SAMPLE);
    if (sb_cuda_move(kv->planes, SB_BF16, &move, NULL) || cudaDeviceSynchronize())
        return fail("move");
    print_counted(task, "move", rows);
    (void)cudaFree(numbers);
    (void)cudaFree(bases);
    return 0;
}

static int count_pool(const struct task *task, int32_t rows, int drafts)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    const int32_t n_prompt = task->context - task->k - 3;
    specbatch_pool *pool = NULL;
    size_t active;
    int bad = 1;

    options.policy = drafts ? SPECBATCH_POLICY_RAGGED : SPECBATCH_POLICY_PLAIN;
    options.batch = rows;
    options.draft_len = drafts ? task->k : -1;
    options.flags = SPECBATCH_POOL_FIXED_K;
    options.max_len = task->context + MOST_NEW;
    options.prefill_chunk = PREFILL_CHUNK;
    cudasim_count(CUDASIM_COUNT_NOTHING);
    cudasim_label_next(OTHER);
    if (create_with_model(&pool, task->target, drafts ? task->draft : NULL, &options))
        return fail("pool");
    label_cache(&pool->runner.kv, TARGET_CACHE);
    if (drafts && pool->draft->runner)
        label_cache(&pool->draft->runner->kv, DRAFT_CACHE);
    if (submit(pool, task, rows, n_prompt) || prefill(pool, rows, n_prompt))
        goto done;
    cudasim_count(CUDASIM_COUNT_SAMPLE);
    if (specbatch_pool_step(pool, &active)) {
        bad = fail("step");
        goto done;
    }
    print_counted(task, drafts ? "round" : "plain", rows);
    bad = drafts ? count_move(task, pool, rows) : 0;
done:
    cudasim_count(CUDASIM_COUNT_NOTHING);
    specbatch_pool_free(pool);
    return bad;
}

/* ------------------------------------------------------------------ the program */

/* Options of the command line, with what they are when they are not given. */
struct options {
    const char *batches, *k, *context, *wgmma;
};

static int read_options(struct options *to, int argc, char **argv)
{
    const struct {
        const char *name, **value;
    } known[] = {{"--batches", &to->batches},
                 {"--k", &to->k},
                 {"--context", &to->context},
                 {"--wgmma", &to->wgmma}};
    const size_t n = sizeof known / sizeof *known;

    for (int i = 3; i < argc; i += 2) {
        size_t at = 0;

        while (at < n && strcmp(argv[i], known[at].name) != 0)
            at++;
        if (at == n || i + 1 == argc) {
            fprintf(stderr, "%s: %s\n", argv[i], at == n ? "no such option" : "has no value");
            return -1;
        }
        *known[at].value = argv[i + 1];
    }
    return 0;
}

static int open_model(specbatch_model **model, const char *folder, enum label label,
                      const char *plan_file)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.device = SPECBATCH_DEVICE_CUDA;
    options.plan_file = plan_file;
    cudasim_label_next(label);
    return specbatch_model_open(model, folder, &options) ? fail(folder) : 0;
}

/* Writes a plan file by which wgmma is the fastest for all of the model's products. */
static int write_plans(const char *path, const struct sb_config *c)
{
    const int32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const struct sb_verdict shapes[] = {
        {.n_out = q + 2 * kv, .n_in = c->hidden},
        {.n_out = c->hidden, .n_in = q},
        {.n_out = 2 * c->inter, .n_in = c->hidden, .gated = c->inter},
        {.n_out = c->hidden, .n_in = c->inter},
        {.n_out = c->vocab, .n_in = c->hidden},
    };
    const struct sb_gpu gpu = {.index = 0};
    struct sb_plan_file *file = NULL;

    if (sb_plan_file_open(&file, &gpu, path, 0))
        return fail(path);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int32_t rows = 32; rows <= MOST_ROWS; rows += rows < 64 ? 32 : 64) {
            struct sb_verdict verdict = shapes[i];
            verdict.type = SB_BF16;
            verdict.rows = rows;
            verdict.by = SB_BY_WGMMA;
            sb_plan_file_note(file, &verdict);
        }
    sb_plan_file_write(file);
    sb_plan_file_close(file);
    return 0;
}

static const char *name_of(const char *folder)
{
    const char *slash = strrchr(folder, '/');

    return slash ? slash + 1 : folder;
}

int main(int argc, char **argv)
{
    const struct cudasim_machine machine = {1, 13000, 9, 0, 132, (size_t)28 << 30, 0};
    struct options options = {"1,8,32", "5", "640", NULL};
    struct task task = {0};
    const char *at;
    int bad;

    if (argc < 3 || read_options(&options, argc, argv)) {
        fprintf(stderr,
                "usage: %s TARGET_DIR DRAFT_DIR [--batches N,..] [--k N] [--context N] "
                "[--wgmma FILE]\n",
                argv[0]);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    task.k = atoi(options.k);
    task.context = atoi(options.context);
    task.names[0] = name_of(argv[1]);
    task.names[1] = name_of(argv[2]);
    task.prompt = calloc((size_t)task.context, sizeof *task.prompt);
    cudasim_count(CUDASIM_COUNT_NOTHING);
    cudasim_configure(&machine);
    cudasim_blas(0);
    if (!options.wgmma)
        cudasim_break_wgmma(CUDASIM_WGMMA_ABSENT, 0);
    bad = !task.prompt || open_model(&task.target, argv[1], TARGET_WEIGHTS, options.wgmma) ||
          open_model(&task.draft, argv[2], DRAFT_WEIGHTS, NULL) ||
          (options.wgmma && write_plans(options.wgmma, &task.target->config));
    for (at = options.batches; !bad && *at;) {
        char *end;
        const long rows = strtol(at, &end, 10);
        bad = rows < 1 || rows > MOST_ROWS || count_pool(&task, (int32_t)rows, 0) ||
              count_pool(&task, (int32_t)rows, 1);
        at = *end ? end + 1 : end;
    }
    specbatch_model_close(task.target);
    specbatch_model_close(task.draft);
    free(task.prompt);
    return bad;
}
