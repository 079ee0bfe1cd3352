/*
 * Mixtures of experts on the CPU. A pair is a row of the pass with one of the experts that it goes
 * to. Pairs are sorted by expert, so that those of one lie side by side, and the products of all
 * experts run at once (cpu_gemm.h):
 *
 *   route     chosen, weights [m, of_row]     of each row, its experts ascending, then the shared
 *   sort      pairs: those of expert 0, those of expert 1, ...; an expert's in the order of rows
 *   gather    rows    [pairs, hidden]         each pair's row of h
 *   multiply  gate_up [pairs, 2 * inter]      by each expert's own weights, and its bias
 *   gate      act     [pairs, inter]
 *   multiply  out     [pairs, hidden]         likewise
 *   combine   y       [m, hidden]             each row's sum over its own pairs
 *
 * The products give a row the same bits whichever rows stand beside it, and a row's sum is in the
 * order of its own experts. So a result does not depend on how many rows an expert has, nor on
 * where the others go.
 */
#include "backend/cpu_mix.h"

#include <string.h>

#include "backend/cpu_gemm.h"
#include "backend/cpu_ops.h"
#include "backend/threads.h"
#include "fault.h"
#include "status.h"

/* One call of the operation. */
struct mix {
    const struct sb_cpu_kernels *kernels;
    const struct sb_mixture *mixture;
    int32_t n_experts; /* with the shared one, */
    int32_t of_row;    /* and pairs of a row, likewise */
    /* Of pair p, which is place p % of_row of row p / of_row: */
    int32_t *chosen; /* its expert */
    float *weights;  /* and that expert's weight */
    int32_t *at;     /* where it is among the sorted pairs */
    int32_t *ends;   /* [experts + 1] of each expert's pairs */
};

/* ------------------------------------------------------------------ memory */

static size_t words_of(const struct sb_exec_limits *limits)
{
    return (size_t)(3 * (int64_t)limits->max_tokens * limits->max_chosen + limits->max_experts + 1);
}

size_t sb_cpu_mix_bytes(const struct sb_exec_limits *limits)
{
    return limits->max_experts > 0 ? words_of(limits) * sizeof(int32_t) +
                                         (size_t)limits->max_experts * sizeof(struct sb_cpu_product)
                                   : 0;
}

int32_t sb_cpu_mix_create(struct sb_exec *exec, const struct sb_exec_limits *limits)
{
    int32_t rc = SPECBATCH_OK;

    if (limits->max_experts == 0)
        return SPECBATCH_OK;
    SB_NEW(exec->mix_words, sb_alloc(&exec->mem, words_of(limits), sizeof *exec->mix_words),
           "mixtures of experts");
    SB_NEW(exec->of_experts,
           sb_alloc(&exec->mem, (size_t)limits->max_experts, sizeof *exec->of_experts),
           "mixtures of experts");
done:
    return rc;
}

void sb_cpu_mix_free(struct sb_exec *exec)
{
    sb_free(&exec->mem, exec->mix_words);
    sb_free(&exec->mem, exec->of_experts);
}

static void cut_words(struct mix *mix, int32_t *words)
{
    const int64_t n = (int64_t)mix->mixture->m * mix->of_row;

    mix->chosen = words;
    mix->weights = (float *)(void *)(words + n);
    mix->at = words + 2 * n;
    mix->ends = words + 3 * n;
}

/* ------------------------------------------------------------------ choosing */

static void route_range(void *ctx, int64_t first, int64_t last)
{
    const struct mix *mix = ctx;
    const struct sb_cpu_route args = {mix->mixture, mix->chosen, mix->weights};

    mix->kernels->route(&args, first, last);
}

/* The choice of all rows. An expert of the `chosen` is found by looking at all logits. */
static void route(struct sb_exec *exec, struct mix *mix)
{
    const struct sb_mixture *a = mix->mixture;

    sb_threads_for(exec->threads, a->m, sb_cpu_grain((int64_t)a->n_experts * (a->chosen + 1)),
                   route_range, mix);
    if (SB_FAULT(EXPERTS_OF_FIRST))
        for (int64_t p = 0; p < (int64_t)a->m * mix->of_row; p++)
            mix->chosen[p] = mix->chosen[p % mix->of_row];
}

/* Sorts the pairs by counting. Afterwards those of expert e are at ends[e - 1] .. ends[e] - 1, and
 * those of expert 0 begin at 0. */
static void sort_pairs(struct mix *mix)
{
    const int32_t n = mix->mixture->m * mix->of_row, experts = mix->n_experts;

    memset(mix->ends, 0, (size_t)(experts + 1) * sizeof *mix->ends);
    for (int32_t p = 0; p < n; p++)
        mix->ends[mix->chosen[p] + 1]++;
    for (int32_t e = 0; e < experts; e++)
        mix->ends[e + 1] += mix->ends[e];
    for (int32_t p = 0; p < n; p++)
        mix->at[p] = mix->ends[mix->chosen[p]]++;
}

/* ------------------------------------------------------------------ computing */

static void gather_range(void *ctx, int64_t first, int64_t last)
{
    const struct mix *mix = ctx;
    const int64_t n = mix->mixture->hidden;
    const float *h = mix->mixture->h;
    float *rows = mix->mixture->rows;

    for (int64_t p = first; p < last; p++)
        memcpy(rows + mix->at[p] * n, h + p / mix->of_row * n, (size_t)n * sizeof *rows);
}

/* Multiplies the pairs of each expert by one of its weights: y [pairs, n_out] from x [pairs, n_in].
 */
static void multiply(struct sb_exec *exec, const struct mix *mix, float *y, int64_t n_out,
                     const float *x, int64_t n_in, int is_down)
{
    const struct sb_mlp *experts = mix->mixture->experts;
    const float *biases = is_down ? mix->mixture->down_bias : mix->mixture->gate_up_bias;
    int32_t n = 0;

    for (int32_t e = 0, begin = 0; e < mix->n_experts; begin = mix->ends[e++])
        if (mix->ends[e] > begin)
            exec->of_experts[n++] = (struct sb_cpu_product){
                .weight = is_down ? &experts[e].down : &experts[e].gate_up,
                .bias = biases ? biases + e * n_out : NULL,
                .x = x + begin * n_in,
                .y = y + begin * n_out,
                .m = mix->ends[e] - begin};
    sb_cpu_run_products(exec, exec->of_experts, n);
}

static void combine_range(void *ctx, int64_t first, int64_t last)
{
    const struct mix *mix = ctx;
    const int64_t n = mix->mixture->hidden, of_row = mix->of_row;

    for (int64_t row = first; row < last; row++) {
        float *y = mix->mixture->y + row * n;
        memset(y, 0, (size_t)n * sizeof *y);
        for (int64_t p = row * of_row; p < (row + 1) * of_row; p++)
            mix->kernels->add_weighted(y, mix->mixture->out + mix->at[p] * n, mix->weights[p], n);
    }
}

void sb_cpu_op_mix(struct sb_exec *exec, const struct sb_mixture *mixture)
{
    struct mix mix = {.kernels = exec->device->kernels,
                      .mixture = mixture,
                      .n_experts = mixture->n_experts + mixture->has_shared,
                      .of_row = mixture->chosen + mixture->has_shared};
    const int32_t pairs = mixture->m * mix.of_row;
    const int64_t hidden = mixture->hidden, inter = mixture->inter;

    cut_words(&mix, exec->mix_words);
    route(exec, &mix);
    sort_pairs(&mix);
    sb_threads_for(exec->threads, pairs, sb_cpu_grain(hidden), gather_range, &mix);
    multiply(exec, &mix, mixture->gate_up, 2 * inter, mixture->rows, hidden, 0);
    sb_cpu_op_gate(exec, mixture->act, mixture->gate_up, mixture->gate, pairs, mixture->inter);
    multiply(exec, &mix, mixture->out, hidden, mixture->act, inter, 1);
    sb_threads_for(exec->threads, mixture->m, sb_cpu_grain(2 * hidden * mix.of_row), combine_range,
                   &mix);
}
