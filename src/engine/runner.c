/*
 * A runner's memory and the building of passes; runner.h tells what they are.
 *
 * The pass block, the same bytes on host and device, in this order (largest alignment first):
 *
 *   base int64[max_seqs] | cap, start int32[max_seqs] | id_at, pos, seq int32[max_tokens] | out, at int32[max_out]
 *
 * It is uploaded whole: a few kilobytes in one copy beat eight exact ones.
 */
#include "engine/runner.h"

#include <math.h>
#include <string.h>

#include "engine/rope.h"
#include "status.h"

/* Widths of the activation buffers, per token but for the logits, in the order of struct sb_runner. */
enum { N_BUFFERS = 7 };

static void buffer_sizes(const struct sb_config *c, const struct sb_runner_limits *limits, size_t rows[N_BUFFERS],
                         size_t width[N_BUFFERS])
{
    const size_t q = (size_t)c->heads * (size_t)c->head_dim, kv = (size_t)c->kv_heads * (size_t)c->head_dim;
    const size_t widths[N_BUFFERS] = {(size_t)c->hidden, (size_t)c->hidden, q + 2 * kv, q,
                                      2 * (size_t)c->inter, (size_t)c->inter, (size_t)c->vocab};

    for (int i = 0; i < N_BUFFERS; i++) {
        rows[i] = (size_t)(i == N_BUFFERS - 1 ? limits->max_out : limits->max_tokens);
        width[i] = widths[i];
    }
}

/* Elements of the activation allocation; each buffer starts on a 64-byte boundary. */
static int activation_count(const struct sb_config *c, const struct sb_runner_limits *limits, size_t *count)
{
    size_t rows[N_BUFFERS], width[N_BUFFERS];

    *count = 0;
    buffer_sizes(c, limits, rows, width);
    for (int i = 0; i < N_BUFFERS; i++) {
        size_t n;
        if (!sb_mul_size(rows[i], width[i], &n) || !sb_add_size(n, 15, &n) ||
            !sb_add_size(*count, n / 16 * 16, count))
            return 0;
    }
    return *count <= SIZE_MAX / sizeof(float);
}

static size_t pass_bytes(const struct sb_runner_limits *limits)
{
    return (size_t)limits->max_seqs * 16 + (size_t)limits->max_tokens * 12 + (size_t)limits->max_out * 8;
}

static size_t rope_count(const struct sb_config *c, const struct sb_runner_limits *limits)
{
    return (size_t)limits->cap * (size_t)(c->rope.rot_dim / 2);
}

static struct sb_exec_limits exec_limits(const struct sb_config *c, const struct sb_runner_limits *limits)
{
    const int32_t q = c->heads * c->head_dim;
    int32_t width = c->hidden > c->inter ? c->hidden : c->inter;

    return (struct sb_exec_limits){.max_tokens = limits->max_tokens, .max_width = width > q ? width : q,
                                   .max_len = limits->cap, .max_heads = c->heads, .max_head_dim = c->head_dim};
}

int32_t sb_runner_bytes(const struct specbatch_model *model, const struct sb_runner_limits *limits,
                        size_t *cache_bytes, size_t *work_bytes)
{
    const struct sb_config *c = &model->config;
    const struct sb_exec_limits exec = exec_limits(c, limits);
    struct sb_kv kv;
    size_t activations;
    int32_t rc = sb_kv_plan(&kv, c, limits->n_slots, limits->cap);

    if (rc != SPECBATCH_OK)
        return rc;
    if (!activation_count(c, limits, &activations))
        return sb_fail(SPECBATCH_E_INVALID, "buffers for %d tokens are larger than the address space",
                       limits->max_tokens);
    *cache_bytes = kv.bytes;
    *work_bytes = activations * sizeof(float) + 2 * rope_count(c, limits) * sizeof(float) + 2 * pass_bytes(limits) +
                  model->backend->exec_bytes(model->device, limits->n_threads, &exec);
    return SPECBATCH_OK;
}

static void cut_activations(struct sb_runner *r)
{
    float **views[N_BUFFERS] = {&r->x, &r->h, &r->qkv, &r->attended, &r->gate_up, &r->act, &r->logits};
    size_t rows[N_BUFFERS], width[N_BUFFERS];
    float *at = r->activations;

    buffer_sizes(&r->model->config, &r->limits, rows, width);
    for (int i = 0; i < N_BUFFERS; i++) {
        *views[i] = at;
        at += (rows[i] * width[i] + 15) / 16 * 16;
    }
}

/* The host views of the pass block; the device sees the same offsets. */
static void cut_block(struct sb_runner *r)
{
    const struct sb_runner_limits *l = &r->limits;

    r->base = (int64_t *)(void *)r->host_block;
    r->cap = (int32_t *)(void *)(r->base + l->max_seqs);
    r->start = r->cap + l->max_seqs;
    r->id_at = r->start + l->max_seqs;
    r->pos = r->id_at + l->max_tokens;
    r->seq = r->pos + l->max_tokens;
    r->out = r->seq + l->max_tokens;
    r->at = r->out + l->max_out;
}

/* Rotary tables for every column the cache has: built on the host, kept on the device. */
static int32_t create_rope(struct sb_runner *r)
{
    const struct sb_config *c = &r->model->config;
    const size_t count = rope_count(c, &r->limits);
    float *host = NULL;
    void *dev;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(host, sb_alloc_raw(&r->mem, 2 * count, sizeof *host), "rotary tables");
    SB_TRY(sb_rope_tables(host, host + count, &c->rope, r->limits.cap));
    SB_TRY(r->backend->alloc(&dev, r->model->device, &r->mem, 2 * count * sizeof *host));
    r->cos = dev;
    r->sin = r->cos + count;
    SB_TRY(r->backend->upload(r->exec, r->cos, host, 2 * count * sizeof *host));
    SB_TRY(r->backend->exec_sync(r->exec));
done:
    sb_free(&r->mem, host);
    return rc;
}

int32_t sb_runner_create(struct sb_runner *r, struct specbatch_model *model, const struct sb_mem *mem,
                         const struct sb_runner_limits *limits)
{
    const struct sb_config *c = &model->config;
    const struct sb_exec_limits exec = exec_limits(c, limits);
    size_t count;
    void *dev;
    int32_t rc = SPECBATCH_OK;

    r->mem = *mem;
    r->model = model;
    r->backend = model->backend;
    r->limits = *limits;
    r->scale = (float)(1.0 / sqrt((double)c->head_dim));
    SB_TRY(sb_kv_plan(&r->kv, c, limits->n_slots, limits->cap));
    if (!activation_count(c, limits, &count))
        SB_FAIL(SPECBATCH_E_INVALID, "buffers for %d tokens are larger than the address space", limits->max_tokens);
    SB_TRY(r->backend->exec_create(&r->exec, model->device, mem, limits->n_threads, &exec));
    SB_TRY(sb_kv_create(&r->kv, model, mem));
    SB_TRY(r->backend->alloc(&dev, model->device, mem, count * sizeof(float)));
    r->activations = dev;
    cut_activations(r);
    r->block_bytes = pass_bytes(limits);
    SB_NEW(r->host_block, sb_alloc(mem, r->block_bytes, 1), "a pass");
    SB_TRY(r->backend->alloc(&dev, model->device, mem, r->block_bytes));
    r->dev_block = dev;
    cut_block(r);
    SB_TRY(create_rope(r));
done:
    return rc;
}

void sb_runner_free(struct sb_runner *r)
{
    struct specbatch_model *model = r->model;

    if (!model)
        return;
    if (r->cos)
        r->backend->free(model->device, &r->mem, r->cos);
    if (r->dev_block)
        r->backend->free(model->device, &r->mem, r->dev_block);
    if (r->activations)
        r->backend->free(model->device, &r->mem, r->activations);
    sb_kv_free(&r->kv, model, &r->mem);
    if (r->exec)
        r->backend->exec_free(r->exec);
    sb_free(&r->mem, r->host_block);
    *r = (struct sb_runner){.model = NULL};
}

void sb_pass_begin(struct sb_runner *r)
{
    r->n_tokens = r->n_seqs = r->n_out = r->max_len = 0;
}

int32_t sb_pass_seq(struct sb_runner *r, int32_t slot, int32_t start)
{
    const int32_t i = r->n_seqs++;

    r->base[i] = sb_kv_base(&r->kv, slot);
    r->cap[i] = r->kv.cap;
    r->start[i] = start;
    return i;
}

void sb_pass_token(struct sb_runner *r, int32_t seq, int32_t pos, int32_t id_at, int32_t select_at)
{
    const int32_t t = r->n_tokens++;

    r->id_at[t] = id_at;
    r->pos[t] = pos;
    r->seq[t] = seq;
    if (pos >= r->max_len)
        r->max_len = pos + 1;
    if (select_at >= 0) {
        r->out[r->n_out] = t;
        r->at[r->n_out++] = select_at;
    }
}

/* The device address of a host view into the pass block. */
static const void *on_device(const struct sb_runner *r, const void *view)
{
    return r->dev_block + ((const char *)view - r->host_block);
}

int32_t sb_pass_run(struct sb_runner *r, const int32_t *ids)
{
    const struct sb_pass pass = {
        .n_tokens = r->n_tokens, .n_seqs = r->n_seqs, .n_out = r->n_out, .max_len = r->max_len,
        .ids = ids,
        .id_at = on_device(r, r->id_at), .pos = on_device(r, r->pos), .seq = on_device(r, r->seq),
        .base = on_device(r, r->base), .cap = on_device(r, r->cap), .start = on_device(r, r->start),
        .out = on_device(r, r->out),
    };
    int32_t rc = r->backend->upload(r->exec, r->dev_block, r->host_block, r->block_bytes);

    if (rc == SPECBATCH_OK)
        sb_forward(r, &pass);
    return rc;
}

void sb_pass_select(struct sb_runner *r, int32_t limit, int32_t *ids, float *logprob, float *margin)
{
    r->backend->select(r->exec, r->logits, r->n_out, r->model->config.vocab, limit, on_device(r, r->at), ids,
                       logprob, margin);
}
