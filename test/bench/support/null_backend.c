/* Operations that do nothing but advance the clock; see null_backend.h. Device memory is ordinary
 * memory that is never written, so caches of any size cost nothing but address space. */
#include "support/null_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

struct sb_device {
    struct null_clock *clock;
    size_t cell, input; /* bytes of an element of a cache, and of a gemm input */
};

struct sb_exec {
    struct null_clock *clock;
    double c_pass, column;
};

/* SplitMix64: https://prng.di.unimi.it/splitmix64.c */
double null_uniform(uint64_t *random)
{
    uint64_t z = (*random += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static size_t input_bytes(const struct sb_device *device, int32_t n)
{
    return (size_t)n * device->input;
}

static size_t cache_bytes(const struct sb_device *device)
{
    return device->cell;
}

static size_t exec_bytes(const struct sb_device *device, int32_t n_threads,
                         const struct sb_exec_limits *limits)
{
    (void)device, (void)n_threads, (void)limits;
    return 0;
}

static int32_t exec_create(struct sb_exec **out, struct sb_device *device, const struct sb_mem *mem,
                           int32_t n_threads, const struct sb_exec_limits *limits,
                           struct sb_exec *sibling)
{
    const struct null_costs *costs = &device->clock->costs;
    struct sb_exec *exec = malloc(sizeof *exec);

    (void)mem, (void)n_threads, (void)limits;
    if (!exec)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory");
    *exec = (struct sb_exec){device->clock, sibling ? costs->c_draft : costs->c_verify,
                             sibling ? costs->draft_column : costs->target_column};
    *out = exec;
    return SPECBATCH_OK;
}

static void exec_free(struct sb_exec *exec)
{
    free(exec);
}

static int32_t exec_sync(struct sb_exec *exec)
{
    (void)exec;
    return SPECBATCH_OK;
}

static int32_t take(void **out, struct sb_device *device, const struct sb_mem *mem, size_t bytes)
{
    (void)device, (void)mem;
    *out = calloc(1, bytes ? bytes : 1);
    return *out ? SPECBATCH_OK : sb_fail(SPECBATCH_E_NOMEM, "no memory");
}

static void give(struct sb_device *device, const struct sb_mem *mem, void *block)
{
    (void)device, (void)mem;
    free(block);
}

static int32_t copy(struct sb_exec *exec, void *to, const void *from, size_t bytes)
{
    (void)exec;
    memcpy(to, from, bytes);
    return SPECBATCH_OK;
}

static void embed(struct sb_exec *exec, float *x, const struct sb_weight *table, float scale,
                  const struct sb_pass *pass)
{
    const double work = (double)pass->n_tokens / exec->clock->costs.ridge;

    (void)x, (void)table, (void)scale;
    exec->clock->now += exec->c_pass * (work > 1.0 ? work : 1.0);
}

static void norm(struct sb_exec *exec, const struct sb_norm *args)
{
    (void)exec, (void)args;
}

static void gemm(struct sb_exec *exec, float *y, const void *x, const struct sb_weight *weight,
                 const float *bias, int32_t m)
{
    (void)exec, (void)y, (void)x, (void)weight, (void)bias, (void)m;
}

static void rope_kv(struct sb_exec *exec, float *qkv, const struct sb_attention *attention,
                    const struct sb_pass *pass)
{
    (void)exec, (void)qkv, (void)attention, (void)pass;
}

static void attend(struct sb_exec *exec, void *y, const float *qkv,
                   const struct sb_attention *attention, const struct sb_pass *pass)
{
    (void)exec, (void)y, (void)qkv, (void)attention, (void)pass;
}

static void gated(struct sb_exec *exec, void *y, float *gate_up, const void *x,
                  const struct sb_weight *weight, const float *bias, enum sb_gate gate, int32_t m,
                  int32_t n)
{
    (void)exec, (void)y, (void)gate_up, (void)x, (void)weight, (void)bias, (void)gate, (void)m,
        (void)n;
}

static void soft_cap(struct sb_exec *exec, float *x, float cap, int64_t n)
{
    (void)exec, (void)x, (void)cap, (void)n;
}

static void select_none(struct sb_exec *exec, const struct sb_select *args)
{
    (void)exec, (void)args;
}

/* Each proposal is right with the given probability, and the first wrong one ends the accepted
 * ones. */
static void accept(struct sb_exec *exec, const int32_t *tokens, const int32_t *picks,
                   const int32_t *n_draft, int32_t n_rows, int32_t stride, int32_t *n_accept)
{
    (void)tokens, (void)picks, (void)stride;
    for (int32_t b = 0; b < n_rows; b++)
        for (n_accept[b] = 0; n_accept[b] < n_draft[b]; n_accept[b]++)
            if (null_uniform(&exec->clock->random) >= exec->clock->costs.acceptance)
                break;
}

static void move(struct sb_exec *exec, void *planes, const struct sb_move *moves)
{
    (void)planes;
    for (int32_t i = 0; i < moves->n; i++) {
        const double bytes = exec->column * moves->len[i];
        exec->clock->moved += bytes;
        exec->clock->now += exec->clock->costs.c_realign * bytes;
    }
}

static const struct sb_backend null_backend = {
    .name = "null",
    .input_bytes = input_bytes,
    .cache_bytes = cache_bytes,
    .exec_bytes = exec_bytes,
    .exec_create = exec_create,
    .exec_free = exec_free,
    .exec_sync = exec_sync,
    .host_alloc = take,
    .host_free = give,
    .alloc = take,
    .free = give,
    .upload = copy,
    .download = copy,
    .embed = embed,
    .norm = norm,
    .gemm = gemm,
    .rope_kv = rope_kv,
    .attend = attend,
    .gated = gated,
    .soft_cap = soft_cap,
    .select = select_none,
    .accept = accept,
    .move = move,
};

/* A model on the device, whose config is not set yet. */
static void init_model(struct specbatch_model *model, struct sb_device *device)
{
    static struct sb_layer layers[NULL_LAYERS]; /* of all models: nothing is in them */

    memset(model, 0, sizeof *model);
    atomic_init(&model->references, 1);
    model->backend = &null_backend;
    model->device = device;
    model->layers = layers;
    snprintf(model->fingerprint, sizeof model->fingerprint, "null");
}

void null_model(struct specbatch_model *model, struct null_clock *clock, int32_t context)
{
    static struct sb_device device = {.cell = 1, .input = 1};

    device.clock = clock;
    init_model(model, &device);
    model->config = (struct sb_config){.arch = sb_arch_by_type("qwen3"),
                                       .vocab = 2,
                                       .hidden = 2,
                                       .inter = 2,
                                       .layers = 1,
                                       .heads = 1,
                                       .kv_heads = 1,
                                       .head_dim = 2,
                                       .context = context,
                                       .eps = 1e-6,
                                       .bos = -1,
                                       .rope = {.kind = SB_ROPE_DEFAULT,
                                                .rot_dim = 2,
                                                .theta = 1e4,
                                                .factor = 1.0,
                                                .attention_factor = 1.0}};
}

void null_model_of(struct specbatch_model *model, struct null_clock *clock,
                   const struct sb_config *config, size_t cell)
{
    static struct sb_device device = {.input = sizeof(float)};

    device.clock = clock;
    device.cell = cell;
    init_model(model, &device);
    model->config = *config;
}
