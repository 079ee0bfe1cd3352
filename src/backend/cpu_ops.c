/*
 * The operations of the CPU backend: each call is cut into items, and the thread pool runs a kernel
 * of kernels/cpu on ranges of them.
 *
 * Only the cutting is decided here. A range is as many panels, rows or heads as are worth about
 * SB_CPU_RANGE_COST, so that a small operation never leaves the caller's thread. No cut can show in
 * a result, because the kernels give each row the same bits in any range.
 */
#include <string.h>

#include "backend/cpu_gemm.h"
#include "backend/cpu_ops.h"
#include "backend/threads.h"
#include "specbatch.h"

/* What the functions named *_range get, which run a kernel over the items [first, last). An
 * operation sets the fields that its own range function reads. */
struct job {
    const struct sb_cpu_kernels *kernels; /* set by run */
    const void *args;                     /* of a kernel that takes a struct */
    float *out;
    const float *in;
    int64_t n; /* columns of a row */
    float scale, cap;
    enum sb_gate gate;
    const struct sb_weight *table;
    enum sb_layout layout; /* of the table */
    const struct sb_pass *pass;
    const struct sb_attention *attention;
    enum sb_dtype kv; /* of the cache */
    void *planes;     /* of the cache */
    struct sb_exec *exec;
};

/* Runs fn over all items, in ranges that are worth it. `cost`: of one item, as in sb_cpu_grain. The
 * factors below are measured. */
static void run(struct sb_exec *exec, int64_t n_items, int64_t cost, sb_range_fn fn,
                struct job *job)
{
    job->kernels = exec->device->kernels;
    sb_threads_for(exec->threads, n_items, sb_cpu_grain(cost), fn, job);
}

static void embed_range(void *ctx, int64_t first, int64_t last)
{
    const struct job *job = ctx;
    const struct sb_pass *pass = job->pass;

    for (int64_t t = first; t < last; t++) {
        const int32_t id = pass->ids[pass->id_at[t]];
        float *x = job->out + t * job->n;
        if (id >= 0 && id < job->table->n_out)
            job->kernels->embed(x, job->table->data, job->layout, job->table->n_in, id);
        else
            memset(x, 0, (size_t)job->n * sizeof *x);
        for (int64_t k = 0; job->scale != 1.0f && k < job->n; k++)
            x[k] *= job->scale;
    }
}

void sb_cpu_op_embed(struct sb_exec *exec, float *x, const struct sb_weight *table, float scale,
                     const struct sb_pass *pass)
{
    struct job job = {.out = x, .n = table->n_in, .scale = scale, .table = table, .pass = pass};
    job.layout = sb_cpu_layout(exec->device, table);
    /* 16 for an element, because each lies in a cache line of its own */
    run(exec, pass->n_tokens, 16 * job.n, embed_range, &job);
}

static void norm_range(void *ctx, int64_t first, int64_t last)
{
    const struct job *job = ctx;
    job->kernels->norm(job->args, first, last);
}

void sb_cpu_op_norm(struct sb_exec *exec, const struct sb_norm *args)
{
    struct job job = {.args = args};
    run(exec, args->m, 8 * (int64_t)args->n, norm_range, &job);
}

void sb_cpu_op_gemm(struct sb_exec *exec, float *y, const void *x, const struct sb_weight *weight,
                    const float *bias, int32_t m)
{
    const struct sb_cpu_product product = {weight, bias, x, y, m};

    sb_cpu_run_products(exec, &product, 1);
}

static void rope_range(void *ctx, int64_t first, int64_t last)
{
    const struct job *job = ctx;
    for (int64_t t = first; t < last; t++)
        job->kernels->rope_kv(job->out + t * job->n, job->attention, job->pass, (int32_t)t,
                              job->kv);
}

void sb_cpu_op_rope_kv(struct sb_exec *exec, float *qkv, const struct sb_attention *attention,
                       const struct sb_pass *pass)
{
    struct job job = {.out = qkv, .attention = attention, .pass = pass, .kv = exec->device->kv};
    job.n = (int64_t)(attention->heads + 2 * attention->kv_heads) * attention->head_dim;
    run(exec, pass->n_tokens, 8 * job.n, rope_range, &job);
}

/* Cuts the pass into blocks of at most `most` tokens of one sequence, at positions that follow each
 * other. Returns the number of blocks. */
static int32_t cut_blocks(struct sb_cpu_block *blocks, const struct sb_pass *pass, int32_t most)
{
    int32_t n = 0;
    for (int32_t t = 0; t < pass->n_tokens; t++) {
        if (n > 0 && blocks[n - 1].n < most && pass->seq[t] == pass->seq[t - 1] &&
            pass->pos[t] == pass->pos[t - 1] + 1) {
            blocks[n - 1].n++;
        } else {
            blocks[n].first = t;
            blocks[n++].n = 1;
        }
    }
    return n;
}

static void attend_range(void *ctx, int64_t first, int64_t last)
{
    const struct job *job = ctx;
    job->kernels->attend(job->args, first, last);
}

/* The same in the order of blocks, with memory that no other thread has. As there are never more
 * ranges at work than threads, some is free. */
static void attend_blocks_range(void *ctx, int64_t first, int64_t last)
{
    const struct job *job = ctx;
    struct sb_exec *exec = job->exec;
    struct sb_cpu_attend args = *(const struct sb_cpu_attend *)job->args;
    int32_t i = 0;

    while (atomic_flag_test_and_set_explicit(&exec->attend_in_use[i], memory_order_acquire))
        i = (i + 1) % exec->n_threads;
    args.work = exec->attend_work + i * exec->attend_words;
    job->kernels->attend_blocks(&args, first, last);
    atomic_flag_clear_explicit(&exec->attend_in_use[i], memory_order_release);
}

void sb_cpu_op_attend(struct sb_exec *exec, void *y, const float *qkv,
                      const struct sb_attention *attention, const struct sb_pass *pass)
{
    struct sb_cpu_attend args = {.attention = attention,
                                 .pass = pass,
                                 .blocks = exec->blocks,
                                 .type = exec->device->kv,
                                 .qkv = qkv,
                                 .y = y,
                                 .products = exec->device->blocks,
                                 .form = sb_cpu_form(exec->device)};
    struct job job = {.args = &args, .exec = exec};
    const int in_blocks = sb_cpu_attends_in_blocks(exec->device);
    int32_t group = attention->heads / attention->kv_heads;
    int32_t most = group < SB_CPU_ATTEND_QUERIES ? SB_CPU_ATTEND_QUERIES / group : 1;
    const int64_t seen = attention->window > 0 && attention->window < pass->max_len
                             ? attention->window
                             : pass->max_len; /* positions */

    /* Long blocks read the keys less often. But every thread shall have two items to do, so the
     * blocks are halved until there are as many. */
    while (most > 1 &&
           (int64_t)((pass->n_tokens + most - 1) / most) * attention->kv_heads <
               2 * (int64_t)exec->n_threads &&
           exec->n_threads > 1)
        most /= 2;
    int64_t n_items = (int64_t)cut_blocks(exec->blocks, pass, most) * attention->kv_heads;
    run(exec, n_items, 4 * seen * attention->head_dim * group,
        in_blocks ? attend_blocks_range : attend_range, &job);
}

static void gate_range(void *ctx, int64_t first, int64_t last)
{
    const struct job *job = ctx;
    /* The items are the elements of y, so a range may begin and end inside a row. Each turn does
     * the part of one row that is in the range. */
    while (first < last) {
        int64_t row = first / job->n, column = first % job->n, n = job->n - column;
        n = n < last - first ? n : last - first;
        const float *gate = job->in + row * 2 * job->n + column;
        job->kernels->gate(job->out + first, gate, gate + job->n, n, job->gate);
        first += n;
    }
}

void sb_cpu_op_gate(struct sb_exec *exec, void *y, const float *gate_up, enum sb_gate gate,
                    int32_t m, int32_t n)
{
    struct job job = {.out = y, .in = gate_up, .n = n, .gate = gate};
    run(exec, (int64_t)m * n, 16, gate_range, &job);
}

void sb_cpu_op_gated(struct sb_exec *exec, void *y, float *gate_up, const void *x,
                     const struct sb_weight *weight, const float *bias, enum sb_gate gate,
                     int32_t m, int32_t n)
{
    sb_cpu_op_gemm(exec, gate_up, x, weight, bias, m);
    sb_cpu_op_gate(exec, y, gate_up, gate, m, n);
}

static void soft_cap_range(void *ctx, int64_t first, int64_t last)
{
    const struct job *job = ctx;
    job->kernels->soft_cap(job->out + first, job->cap, last - first);
}

void sb_cpu_op_soft_cap(struct sb_exec *exec, float *x, float cap, int64_t n)
{
    struct job job = {.out = x, .cap = cap};
    run(exec, n, 16, soft_cap_range, &job);
}

static void select_range(void *ctx, int64_t first, int64_t last)
{
    const struct job *job = ctx;
    job->kernels->select(job->args, first, last);
}

void sb_cpu_op_select(struct sb_exec *exec, const struct sb_select *args)
{
    struct job job = {.args = args};
    run(exec, args->m, args->logprob ? 4 * (int64_t)args->limit : args->limit, select_range, &job);
}

void sb_cpu_op_accept(struct sb_exec *exec, const int32_t *tokens, const int32_t *picks,
                      const int32_t *n_draft, int32_t n_rows, int32_t stride, int32_t *n_accept)
{
    exec->device->kernels->accept(tokens, picks, n_draft, n_rows, stride, n_accept);
}

static void move_range(void *ctx, int64_t first, int64_t last)
{
    const struct job *job = ctx;
    job->kernels->move(job->planes, (int64_t)sb_dtype_size(job->kv), job->args, first, last);
}

void sb_cpu_op_move(struct sb_exec *exec, void *planes, const struct sb_move *args)
{
    struct job job = {.planes = planes, .args = args, .kv = exec->device->kv};
    int64_t columns = 0;

    for (int32_t i = 0; i < args->n; i++)
        columns += args->len[i];
    run(exec, (int64_t)args->n * args->n_planes * args->kv_heads,
        args->n > 0 ? columns / args->n * args->head_dim : 0, move_range, &job);
}
