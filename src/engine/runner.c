/*
 * A runner's memory, and the building of passes; runner.h says what both are.
 *
 * The block of a pass, the same bytes on host and device (largest alignment first):
 *
 *   int64  base       [max_seqs]
 *   int32  cap, start [max_seqs] each
 *   int32  id_at, pos, seq [max_tokens] each
 *   int32  out, select_at [max_out + max_scored] each
 *
 * The block is uploaded whole, however little of it a pass uses: one copy of a few kilobytes takes
 * less time than eight copies of the exact sizes.
 */
#include "engine/runner.h"

#include <math.h>
#include <string.h>

#include "engine/rope_table.h"
#include "port.h"
#include "status.h"

/* ---------------------------------------------------------------- activations */

enum { N_BUFFERS = 11 };

static size_t row_bytes_of(const struct specbatch_model *model, int32_t width, int is_input)
{
    return is_input ? model->backend->input_bytes(model->device, width)
                    : (size_t)width * sizeof(float);
}

/* Rows of each activation buffer and bytes of one row, in the order of struct sb_runner. */
static void buffer_sizes(const struct specbatch_model *model, const struct sb_runner_limits *limits,
                         size_t rows[N_BUFFERS], size_t row_bytes[N_BUFFERS])
{
    const struct sb_config *c = &model->config;
    const int32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const int64_t m = limits->max_tokens;
    const int64_t of_experts = m * (c->experts > 0 ? c->chosen + c->has_shared : 0);
    const int64_t of_mlps = c->experts > 0 ? of_experts : m;
    const int gathers = model->backend->mix_gathers;
    const struct {
        int64_t rows;
        int32_t width;
        int is_input;        /* of a gemm */
        int32_t dense_width; /* of m rows, for which it must suffice too */
    } buffers[N_BUFFERS] = {
        {m, c->hidden, 0, 0},                           /* x */
        {m, c->hidden, 1, 0},                           /* h */
        {m, c->hidden, 0, 0},                           /* y */
        {m, q + 2 * kv, 0, 0},                          /* qkv */
        {m, q, 1, 0},                                   /* attended */
        {of_mlps, 2 * c->inter, 0, 2 * c->dense_inter}, /* gate_up */
        {of_mlps, c->inter, 1, c->dense_inter},         /* act */
        {m, c->experts, 0, 0},                          /* routed */
        {gathers ? 0 : of_experts, c->hidden, 1, 0},    /* expert_rows */
        {of_experts, c->hidden, 0, 0},                  /* expert_out */
        {limits->max_out, c->vocab, 0, 0},              /* logits */
    };

    for (int i = 0; i < N_BUFFERS; i++) {
        const size_t dense = row_bytes_of(model, buffers[i].dense_width, buffers[i].is_input);
        rows[i] = (size_t)buffers[i].rows;
        row_bytes[i] = row_bytes_of(model, buffers[i].width, buffers[i].is_input);
        if ((size_t)m * dense > rows[i] * row_bytes[i]) {
            rows[i] = (size_t)m;
            row_bytes[i] = dense;
        }
    }
}

/* Bytes of the one allocation that all activation buffers lie in. Each buffer begins on a 256-byte
 * boundary, which suits a device's widest loads. E_INVALID on overflow. */
static int32_t activation_bytes(const struct specbatch_model *model,
                                const struct sb_runner_limits *limits, size_t *bytes)
{
    size_t rows[N_BUFFERS], row_bytes[N_BUFFERS];

    *bytes = 0;
    buffer_sizes(model, limits, rows, row_bytes);
    for (int i = 0; i < N_BUFFERS; i++) {
        size_t n;
        if (!sb_mul_size(rows[i], row_bytes[i], &n) || !sb_add_size(n, 255, &n) ||
            !sb_add_size(*bytes, n / 256 * 256, bytes))
            return sb_fail(SPECBATCH_E_INVALID,
                           "buffers for %d tokens are larger than the address space",
                           limits->max_tokens);
    }
    return SPECBATCH_OK;
}

/* Points the activation buffers into the allocation. */
static void cut_activations(struct sb_runner *r)
{
    size_t rows[N_BUFFERS], row_bytes[N_BUFFERS];
    char *at[N_BUFFERS + 1] = {r->activations};

    buffer_sizes(r->model, &r->limits, rows, row_bytes);
    for (int i = 0; i < N_BUFFERS; i++)
        at[i + 1] = at[i] + (rows[i] * row_bytes[i] + 255) / 256 * 256;
    r->x = (float *)(void *)at[0];
    r->h = at[1];
    r->y = (float *)(void *)at[2];
    r->qkv = (float *)(void *)at[3];
    r->attended = at[4];
    r->gate_up = (float *)(void *)at[5];
    r->act = at[6];
    r->routed = (float *)(void *)at[7];
    r->expert_rows = at[8];
    r->expert_out = (float *)(void *)at[9];
    r->logits = (float *)(void *)at[10];
    r->activation_bytes = (size_t)(at[10] - at[0]);
    r->logits_bytes = (size_t)(at[N_BUFFERS] - at[10]);
}

/* --------------------------------------------------------------- pass blocks */

/* Bytes of a pass's block. */
static size_t block_bytes(const struct sb_runner_limits *limits)
{
    const size_t per_seq = sizeof(int64_t) + 2 * sizeof(int32_t); /* base; cap, start */
    const size_t per_token = 3 * sizeof(int32_t);                 /* id_at, pos, seq */
    const size_t per_out = 2 * sizeof(int32_t);                   /* out, select_at */
    const size_t bytes = (size_t)limits->max_seqs * per_seq +
                         (size_t)limits->max_tokens * per_token +
                         ((size_t)limits->max_out + (size_t)limits->max_scored) * per_out;

    return (bytes + 7) / 8 * 8; /* the next pass's block begins where an int64_t may */
}

/* Points a pass's arrays into its host block. */
static void cut_block(struct sb_built_pass *pass, const struct sb_runner_limits *l)
{
    pass->base = (int64_t *)(void *)pass->host;
    pass->cap = (int32_t *)(void *)(pass->base + l->max_seqs);
    pass->start = pass->cap + l->max_seqs;
    pass->id_at = pass->start + l->max_seqs;
    pass->pos = pass->id_at + l->max_tokens;
    pass->seq = pass->pos + l->max_tokens;
    pass->out = pass->seq + l->max_tokens;
    pass->select_at = pass->out + l->max_out + l->max_scored;
}

/* As many spans as fit a pass. */
static size_t max_spans(const struct sb_runner_limits *limits)
{
    return limits->span > 0 ? (size_t)(limits->max_tokens / limits->span) : 0;
}

size_t sb_runner_blocks_bytes(const struct sb_runner_limits *limits, int32_t n)
{
    return (size_t)n * block_bytes(limits);
}

void sb_runner_place(struct sb_runner *r, char *host, char *dev)
{
    const size_t bytes = block_bytes(&r->limits), n = (size_t)r->limits.n_passes;

    r->host_blocks = host;
    r->dev_blocks = dev;
    for (size_t i = 0; i < n; i++) {
        r->passes[i].host = host + i * bytes;
        r->passes[i].dev = dev + i * bytes;
        r->passes[i].spans = r->spans + i * max_spans(&r->limits);
        cut_block(&r->passes[i], &r->limits);
    }
}

static int32_t create_passes(struct sb_runner *r)
{
    const size_t bytes = sb_runner_blocks_bytes(&r->limits, r->limits.n_passes),
                 n = (size_t)r->limits.n_passes;
    void *host, *dev;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(r->passes, sb_alloc(&r->mem, n, sizeof *r->passes), "passes");
    SB_NEW(r->spans, sb_alloc(&r->mem, n * max_spans(&r->limits), sizeof *r->spans), "passes");
    if (r->limits.is_placed)
        return rc;
    SB_TRY(r->backend->host_alloc(&host, r->model->device, &r->mem, bytes));
    r->host_blocks = host;
    SB_TRY(r->backend->alloc(&dev, r->model->device, &r->mem, bytes));
    sb_runner_place(r, host, dev);
done:
    return rc;
}

/* ------------------------------------------------------------- rotary tables */

/* The numbers in one table, and how many tables there are. */
static size_t rope_count(const struct sb_config *c, const struct sb_runner_limits *limits)
{
    return (size_t)limits->cap * (size_t)(c->rope.rot_dim / 2);
}
static size_t rope_tables(const struct sb_config *c)
{
    return sb_arch_has_two_ropes(c->arch) ? 4 : 2;
}

/* The tables have an entry for each position that a slot has columns for. They are computed on the
 * host and kept on the device. */
static int32_t create_rope(struct sb_runner *r)
{
    const struct sb_config *c = &r->model->config;
    const size_t count = rope_count(c, &r->limits), n = rope_tables(c);
    float *host = NULL;
    void *dev;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(host, sb_alloc_raw(&r->mem, n * count, sizeof *host), "rotary tables");
    SB_TRY(sb_rope_tables(host, host + count, &c->rope, r->limits.cap));
    if (sb_arch_has_two_ropes(c->arch))
        SB_TRY(sb_rope_tables(host + 2 * count, host + 3 * count, &c->other_rope, r->limits.cap));
    SB_TRY(r->backend->alloc(&dev, r->model->device, &r->mem, n * count * sizeof *host));
    for (size_t i = 0; i < n / 2; i++) {
        r->rope[i].cos = (float *)dev + 2 * i * count;
        r->rope[i].sin = r->rope[i].cos + count;
    }
    SB_TRY(r->backend->upload(NULL, dev, host, n * count * sizeof *host));
done:
    sb_free(&r->mem, host);
    return rc;
}

/* ------------------------------------------------------------------- runner */

static struct sb_exec_limits exec_limits(const struct sb_config *c,
                                         const struct sb_runner_limits *limits)
{
    const int32_t q = c->heads * c->head_dim;
    const int32_t expert = c->hidden > c->inter ? c->hidden : c->inter;
    int32_t width = expert > c->dense_inter ? expert : c->dense_inter;

    return (struct sb_exec_limits){.max_tokens = limits->max_tokens,
                                   .max_width = width > q ? width : q,
                                   .max_len = limits->cap,
                                   .max_heads = c->heads,
                                   .max_head_dim = c->head_dim,
                                   .max_expert_width = c->experts > 0 ? expert : 0,
                                   .max_experts = c->experts + c->has_shared,
                                   .max_chosen = c->chosen + c->has_shared,
                                   .span_cap = limits->span > 0 ? limits->cap : 0,
                                   .span_halvings = limits->span > 0 ? limits->halvings : 0,
                                   .draft_layers = limits->is_draft ? c->layers : 0};
}

/* Columns of the cache: those of slots and blocks and, where the backend records, the sink, a slot
 * of one column that only padding tokens write to. */
static int64_t n_columns(const struct specbatch_model *model, const struct sb_runner_limits *limits)
{
    return limits->n_columns + limits->block_columns + (model->backend->records != 0);
}

int32_t sb_runner_bytes(const struct specbatch_model *model, const struct sb_runner_limits *limits,
                        size_t *cache_bytes, size_t *work_bytes)
{
    const struct sb_config *c = &model->config;
    const struct sb_exec_limits exec = exec_limits(c, limits);
    struct sb_kv kv;
    size_t activations;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_kv_plan(&kv, model, n_columns(model, limits)));
    SB_TRY(activation_bytes(model, limits, &activations));
    *cache_bytes = kv.bytes;
    *work_bytes = activations + rope_tables(c) * rope_count(c, limits) * sizeof(float) +
                  2 * sb_runner_blocks_bytes(limits, limits->n_passes) +
                  (size_t)limits->n_passes *
                      (sizeof(struct sb_built_pass) + max_spans(limits) * sizeof(struct sb_span)) +
                  model->backend->exec_bytes(model->device, limits->n_threads, &exec);
done:
    return rc;
}

int32_t sb_runner_create(struct sb_runner *r, struct specbatch_model *model,
                         const struct sb_mem *mem, const struct sb_runner_limits *limits,
                         const struct sb_runner *sibling)
{
    const struct sb_config *c = &model->config;
    const struct sb_exec_limits exec = exec_limits(c, limits);
    size_t bytes;
    void *dev;
    int32_t rc = SPECBATCH_OK;

    r->mem = *mem;
    r->model = model;
    r->backend = model->backend;
    r->limits = *limits;
    r->scale = (float)(1.0 / sqrt(c->query_scalar));
    SB_TRY(sb_kv_plan(&r->kv, model, n_columns(model, limits)));
    SB_TRY(activation_bytes(model, limits, &bytes));
    SB_TRY(r->backend->exec_create(&r->exec, model->device, mem, limits->n_threads, &exec,
                                   sibling ? sibling->exec : NULL));
    SB_TRY(sb_kv_create(&r->kv, model, mem));
    SB_TRY(r->backend->alloc(&dev, model->device, mem, bytes));
    r->activations = dev;
    cut_activations(r);
    SB_TRY(create_passes(r));
    SB_TRY(create_rope(r));
done:
    return rc;
}

void sb_runner_free(struct sb_runner *r)
{
    struct specbatch_model *model = r->model;

    if (!model)
        return;
    if (r->rope[0].cos)
        r->backend->free(model->device, &r->mem, r->rope[0].cos);
    if (r->dev_blocks && !r->limits.is_placed)
        r->backend->free(model->device, &r->mem, r->dev_blocks);
    if (r->host_blocks && !r->limits.is_placed)
        r->backend->host_free(model->device, &r->mem, r->host_blocks);
    if (r->activations)
        r->backend->free(model->device, &r->mem, r->activations);
    sb_kv_free(&r->kv, model, &r->mem);
    if (r->exec)
        r->backend->exec_free(r->exec);
    sb_free(&r->mem, r->spans);
    sb_free(&r->mem, r->passes);
    *r = (struct sb_runner){.model = NULL};
}

uint64_t sb_runner_clock(const struct sb_runner *r)
{
    return r->backend->records ? sb_port_now_ns() : sb_port_thread_ns();
}

/* ------------------------------------------------------------------- passes */

void sb_pass_begin(struct sb_runner *r, int32_t i)
{
    r->building = &r->passes[i];
    r->building->n_tokens = r->building->n_seqs = r->building->n_out = r->building->max_len =
        r->building->n_spans = r->building->is_apart = 0;
}

int32_t sb_pass_add_seq(struct sb_runner *r, int64_t at, int32_t cap, int32_t start)
{
    struct sb_built_pass *pass = r->building;
    const int32_t i = pass->n_seqs++;

    pass->base[i] = sb_kv_base(&r->kv, at);
    pass->cap[i] = cap;
    pass->start[i] = start;
    return i;
}

int32_t sb_pass_add_sink(struct sb_runner *r)
{
    return sb_pass_add_seq(r, r->limits.n_columns + r->limits.block_columns, 1, 0);
}

void sb_pass_fill_up(struct sb_runner *r, int32_t n_seqs, int32_t max_len)
{
    while (r->building->n_seqs < n_seqs)
        sb_pass_add_sink(r);
    r->building->max_len = max_len;
}

void sb_pass_add_span(struct sb_runner *r, int32_t seq, int32_t pos)
{
    struct sb_built_pass *pass = r->building;

    pass->spans[pass->n_spans++] = (struct sb_span){.first = pass->n_tokens,
                                                    .pos = pos,
                                                    .base = pass->base[seq],
                                                    .cap = pass->cap[seq],
                                                    .start = pass->start[seq]};
}

void sb_pass_add_token(struct sb_runner *r, int32_t seq, int32_t pos, int32_t id_at,
                       int32_t select_at)
{
    struct sb_built_pass *pass = r->building;
    const int32_t t = pass->n_tokens++;

    pass->id_at[t] = id_at;
    pass->pos[t] = pos;
    pass->seq[t] = seq;
    if (pos >= pass->max_len)
        pass->max_len = pos + 1;
    if (select_at >= 0) {
        pass->out[pass->n_out] = t;
        pass->select_at[pass->n_out++] = select_at;
    }
}

/* The device address of an array in a pass's block, given its host address. */
static const void *on_device(const struct sb_built_pass *pass, const void *array)
{
    return pass->dev + ((const char *)array - pass->host);
}

/* Pass i as the backend sees it. */
static struct sb_pass pass_on_device(const struct sb_runner *r, int32_t i, const int32_t *ids)
{
    const struct sb_built_pass *p = &r->passes[i];

    return (struct sb_pass){
        .n_tokens = p->n_tokens,
        .n_seqs = p->n_seqs,
        .n_out = p->n_out,
        .max_len = p->max_len,
        .ids = ids,
        .id_at = on_device(p, p->id_at),
        .pos = on_device(p, p->pos),
        .seq = on_device(p, p->seq),
        .base = on_device(p, p->base),
        .cap = on_device(p, p->cap),
        .start = on_device(p, p->start),
        .out = on_device(p, p->out),
        .n_spans = p->n_spans,
        .spans = p->spans,
        .is_apart = p->is_apart,
    };
}

void sb_pass_run(struct sb_runner *r, int32_t i, const int32_t *ids)
{
    const struct sb_pass pass = pass_on_device(r, i, ids);

    sb_forward(r, &pass);
}

int32_t sb_pass_upload(struct sb_runner *r, int32_t i)
{
    const struct sb_built_pass *p = &r->passes[i];

    return r->backend->upload(r->exec, p->dev, p->host, block_bytes(&r->limits));
}

int32_t sb_pass_issue(struct sb_runner *r, int32_t i, const int32_t *ids)
{
    const int32_t rc = sb_pass_upload(r, i);

    if (rc == SPECBATCH_OK)
        sb_pass_run(r, i, ids);
    return rc;
}

struct sb_draft_step sb_step_on_device(const struct sb_runner *r, int32_t i, const int32_t *ids)
{
    const struct sb_built_pass *p = &r->passes[i];

    return (struct sb_draft_step){pass_on_device(r, i, ids), on_device(p, p->select_at)};
}

/* Selects from the logits in memory, which are those of the pass's outputs from `first` on. */
static void select_piece(struct sb_runner *r, const struct sb_built_pass *p, struct sb_select *args,
                         int32_t first)
{
    struct sb_samplers samplers = {.rows = NULL};

    args->at = on_device(p, p->select_at + first);
    if (args->samplers) {
        samplers = *args->samplers;
        samplers.id_at = on_device(p, p->id_at);
        samplers.pos = on_device(p, p->pos);
        samplers.out = on_device(p, p->out + first);
        args->samplers = &samplers;
    }
    r->backend->select(r->exec, args);
}

void sb_pass_select(struct sb_runner *r, int32_t i, int32_t limit,
                    const struct sb_samplers *samplers, int32_t *ids, float *logprob, float *margin,
                    const struct sb_scores *scores)
{
    const struct sb_built_pass *p = &r->passes[i];
    const int32_t most = r->limits.max_out;

    for (int32_t first = 0; first < p->n_out; first += most) {
        struct sb_select args = {
            .m = p->n_out - first < most ? p->n_out - first : most,
            .stride = r->model->config.vocab,
            .limit = limit,
            .logits = r->logits,
            .ids = ids,
            .logprob = logprob,
            .margin = margin,
            .samplers = samplers,
            .scores = scores,
        };
        if (first > 0)
            sb_forward_logits(r, on_device(p, p->out + first), args.m);
        select_piece(r, p, &args, first);
    }
}
