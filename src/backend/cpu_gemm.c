/*
 * Products of the CPU backend. Those of a mixture's experts run at once, because one of them alone
 * may be too small for all threads. Any other product is a list of one.
 *
 *   products       [ expert 2: 3 rows | expert 5: 1 row | expert 9: 4 rows ]
 *
 *   inputs         rows    0 1 2        3                 4 5 6 7             one loop over all
 *   multiply       panels  0 .. 23      24 .. 47          48 .. 71            likewise
 *
 * A weight that another follows (struct sb_weight) takes two more loops. Inputs are made once for
 * weights that read them in the same form. Which products run together, and where the loops are
 * cut, changes no bit, because the kernels give each row of a product the same bits in any company.
 */
#include "backend/cpu_gemm.h"

#include "backend/threads.h"
#include "status.h"

/* A product on its way. */
struct sb_cpu_multiplying {
    struct sb_cpu_gemm gemm;        /* with the weight whose turn it is */
    const struct sb_weight *weight; /* that one; NULL: all of them have had it */
    const float *x;
    void *inputs; /* its part of the exec's memory */
    float *sums;
    enum sb_products made; /* what its inputs have been made for */
    /* Rows of inputs to be made, and panels: of this product and those before it. */
    int64_t rows_end, panels_end;
};

/* What the functions named *_range get. */
struct loop {
    const struct sb_exec *exec;
    const struct sb_cpu_multiplying *all;
    int32_t n;
};

/* ------------------------------------------------------------------ memory */

/* How many products may run at once. */
static int64_t most_products(const struct sb_exec_limits *limits)
{
    return limits->max_experts > 1 ? limits->max_experts : 1;
}

enum { WORDS_OF_LINE = SB_MEM_ALIGN / sizeof(uint32_t) };

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Words for the inputs of m tokens, of one product or of those of experts together. These need a
 * tile more, or the rows behind the last, for each. */
static int64_t words_for(const struct sb_exec_limits *limits, enum sb_products products,
                         int32_t parts, int64_t m)
{
    const int64_t width = limits->max_expert_width, pairs = m * limits->max_chosen;
    int64_t words = sb_cpu_inputs_words(products, parts, m, limits->max_width);

    if (pairs > 0)
        words = larger(words,
                       sb_cpu_inputs_words(products, parts, pairs, width) +
                           most_products(limits) *
                               (sb_cpu_inputs_words(products, parts, 1, width) + WORDS_OF_LINE));
    return words;
}

/* Words of the exec's buffer for inputs, whichever way of forming a product is used. */
static size_t inputs_count(const struct sb_device *device, const struct sb_exec_limits *limits)
{
    const int64_t m = limits->max_tokens, few = m < SB_CPU_FEW_ROWS ? m : SB_CPU_FEW_ROWS;
    const int32_t parts = sb_form_parts(sb_cpu_form(device));
    const int is_float = device->compute == SPECBATCH_COMPUTE_F32;
    const int all = is_float || device->has_halves || most_products(limits) > 1;
    int64_t most = 0, words;

    if (!is_float)
        most = words_for(limits, device->blocks, parts, m);
    if (device->is_quantised) {
        words = words_for(limits, SB_BLOCKS_FMA, parts, all ? m : few);
        most = words > most ? words : most;
    }
    if (device->is_quantised && device->compute == SPECBATCH_COMPUTE_INT8) {
        words = words_for(limits, device->integers, 1, m);
        most = words > most ? words : most;
    }
    return (size_t)most;
}

/* Floats of the sums that weights with minima need. */
static size_t sums_count(const struct sb_device *device, const struct sb_exec_limits *limits)
{
    const int64_t m = limits->max_tokens, pairs = m * limits->max_chosen;
    const int64_t blocks = larger(m * (sb_whole_blocks(limits->max_width) / SB_BLOCK),
                                  pairs * (sb_whole_blocks(limits->max_expert_width) / SB_BLOCK));

    return device->has_mins ? (size_t)(blocks * sb_form_parts(sb_cpu_form(device))) : 0;
}

size_t sb_cpu_products_bytes(const struct sb_device *device, const struct sb_exec_limits *limits)
{
    return (inputs_count(device, limits) + sums_count(device, limits)) * sizeof(float) +
           (size_t)most_products(limits) * sizeof(struct sb_cpu_multiplying);
}

int32_t sb_cpu_products_create(struct sb_exec *exec, const struct sb_exec_limits *limits)
{
    const struct sb_device *device = exec->device;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(exec->inputs, sb_alloc(&exec->mem, inputs_count(device, limits), sizeof(uint32_t)),
           "the inputs of products");
    if (device->has_mins)
        SB_NEW(exec->sums, sb_alloc(&exec->mem, sums_count(device, limits), sizeof *exec->sums),
               "the inputs of products");
    SB_NEW(exec->multiplying,
           sb_alloc(&exec->mem, (size_t)most_products(limits), sizeof *exec->multiplying),
           "products");
done:
    return rc;
}

void sb_cpu_products_free(struct sb_exec *exec)
{
    sb_free(&exec->mem, exec->inputs);
    sb_free(&exec->mem, exec->sums);
    sb_free(&exec->mem, exec->multiplying);
}

/* ------------------------------------------------------------------ inputs */

static enum sb_form form_of(const struct sb_exec *exec, enum sb_products products)
{
    return sb_cpu_is_integers(products) ? SB_FORM_INT8 : sb_cpu_form(exec->device);
}

/* The product that a row of inputs is of, or a panel. */
static int32_t find(const struct loop *loop, int64_t item, int of_panels)
{
    int32_t low = 0, high = loop->n - 1;

    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        const struct sb_cpu_multiplying *p = &loop->all[middle];
        if (item < (of_panels ? p->panels_end : p->rows_end))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void inputs_range(void *ctx, int64_t first, int64_t last)
{
    const struct loop *loop = ctx;

    for (int32_t i = find(loop, first, 0); first < last; i++) {
        const struct sb_cpu_multiplying *p = &loop->all[i];
        const int64_t begin = i > 0 ? p[-1].rows_end : 0;
        const int64_t end = p->rows_end < last ? p->rows_end : last;
        const struct sb_cpu_inputs args = {.products = p->gemm.products,
                                           .form = form_of(loop->exec, p->gemm.products),
                                           .m = p->gemm.m,
                                           .n = p->gemm.n_in,
                                           .x = p->x,
                                           .to = p->inputs,
                                           .sums = p->sums};
        if (end > first)
            loop->exec->device->kernels->inputs(&args, first - begin, end - begin);
        first = end > first ? end : first;
    }
}

/* Has the products in the order of blocks, or of integers, read their inputs, which are made where
 * they are not there already, from a product with the weight before. */
static void take_inputs(struct sb_exec *exec, struct sb_cpu_multiplying *all, int32_t n)
{
    struct loop loop = {exec, all, n};
    int64_t rows = 0, cost = 0;

    for (struct sb_cpu_multiplying *p = all; p < all + n; p++) {
        const int is_chain = p->gemm.products == SB_CHAIN;
        const int is_made = is_chain || p->made == p->gemm.products || !p->weight;
        p->gemm.parts = is_chain ? 1 : sb_form_parts(form_of(exec, p->gemm.products));
        p->gemm.x = is_chain ? (const void *)p->x : p->inputs;
        p->gemm.sums = is_chain ? NULL : p->sums;
        p->rows_end = rows += is_made ? 0 : p->gemm.m;
        p->made = is_chain ? p->made : p->gemm.products;
        cost = (int64_t)p->gemm.n_in * p->gemm.parts;
    }
    if (rows > 0)
        sb_threads_for(exec->threads, rows, sb_cpu_grain(cost), inputs_range, &loop);
}

/* ------------------------------------------------------------------ multiplying */

static void gemm_range(void *ctx, int64_t first, int64_t last)
{
    const struct loop *loop = ctx;

    for (int32_t i = find(loop, first, 1); first < last; i++) {
        const struct sb_cpu_multiplying *p = &loop->all[i];
        const int64_t begin = i > 0 ? p[-1].panels_end : 0;
        const int64_t end = p->panels_end < last ? p->panels_end : last;
        if (end > first)
            loop->exec->device->kernels->gemm(&p->gemm, first - begin, end - begin);
        first = end > first ? end : first;
    }
}

/* Panels of a range: one, if the kernel takes all rows at once. If it does not, up to 8 of them,
 * because the panels of a range share what is loaded of x; but no more than leave every thread 4
 * ranges to do. */
static int64_t panels_of_range(const struct sb_exec *exec, int64_t n_panels, int takes_all_rows)
{
    const int64_t most = n_panels / (4 * (int64_t)exec->n_threads);

    if (takes_all_rows || most < 1)
        return 1;
    return most < 8 ? most : 8;
}

/* The products with the weights whose turn it is. */
static void multiply(struct sb_exec *exec, struct sb_cpu_multiplying *all, int32_t n)
{
    struct loop loop = {exec, all, n};
    int64_t panels = 0, cost = 0, grain;
    int takes_all_rows = 1;

    for (struct sb_cpu_multiplying *p = all; p < all + n; p++) {
        const int64_t rows = (int64_t)p->gemm.m * p->gemm.parts;
        const int64_t mine = p->weight && rows > 0 ? sb_panel_count(p->gemm.n_out) : 0;
        p->panels_end = panels += mine;
        cost += mine * rows * SB_PANEL * p->gemm.n_in;
        takes_all_rows &= rows <= sb_cpu_gemm_rows(&p->gemm);
    }
    if (panels == 0)
        return;
    grain = sb_cpu_grain(cost / panels);
    panels = panels_of_range(exec, panels, takes_all_rows);
    sb_threads_for(exec->threads, all[n - 1].panels_end, grain > panels ? grain : panels,
                   gemm_range, &loop);
}

/* Sets what changes from weight to weight; returns whether any product has one left. */
static int take_weights(const struct sb_exec *exec, struct sb_cpu_multiplying *all, int32_t n)
{
    int some = 0;

    for (struct sb_cpu_multiplying *p = all; p < all + n; p++) {
        if (!p->weight)
            continue;
        p->gemm.products = sb_cpu_products(exec->device, p->weight, p->gemm.m);
        p->gemm.layout = sb_cpu_layout(exec->device, p->weight);
        p->gemm.n_out = p->weight->n_out;
        p->gemm.panels = p->weight->data;
        some = 1;
    }
    return some;
}

static void next_weight(struct sb_cpu_multiplying *p)
{
    if (!p->weight)
        return;
    p->gemm.y += p->gemm.n_out;
    p->gemm.bias = p->gemm.bias ? p->gemm.bias + p->gemm.n_out : NULL;
    p->weight = p->weight->next;
}

/* Words of the inputs of a product, whichever of its weights reads them. */
static int64_t words_of(const struct sb_exec *exec, const struct sb_cpu_product *product)
{
    int64_t most = 0;

    for (const struct sb_weight *w = product->weight; w; w = w->next) {
        const enum sb_products products = sb_cpu_products(exec->device, w, product->m);
        const int32_t parts = sb_form_parts(form_of(exec, products));
        const int64_t words = products == SB_CHAIN
                                  ? 0
                                  : sb_cpu_inputs_words(products, parts, product->m, w->n_in);
        most = words > most ? words : most;
    }
    return (most + WORDS_OF_LINE - 1) / WORDS_OF_LINE * WORDS_OF_LINE;
}

/* Begins the products, each with memory for its inputs. */
static void begin(struct sb_exec *exec, const struct sb_cpu_product *products, int32_t n)
{
    const int32_t parts = sb_form_parts(sb_cpu_form(exec->device));
    uint32_t *inputs = exec->inputs;
    float *sums = exec->sums;

    for (int32_t i = 0; i < n; i++) {
        const struct sb_cpu_product *product = &products[i];
        const int32_t n_in = product->weight->n_in;
        struct sb_cpu_multiplying *p = &exec->multiplying[i];
        *p = (struct sb_cpu_multiplying){
            .gemm = {.m = product->m, .n_in = n_in, .bias = product->bias, .y = product->y},
            .weight = product->weight,
            .x = product->x,
            .inputs = inputs,
            .sums = sums,
            .made = SB_CHAIN};
        for (const struct sb_weight *w = product->weight; w; w = w->next)
            p->gemm.ldy += w->n_out;
        if (i + 1 < n)
            inputs += words_of(exec, product);
        if (sums)
            sums += (int64_t)product->m * parts * (sb_whole_blocks(n_in) / SB_BLOCK);
    }
}

void sb_cpu_run_products(struct sb_exec *exec, const struct sb_cpu_product *products, int32_t n)
{
    struct sb_cpu_multiplying *all = exec->multiplying;

    begin(exec, products, n);
    while (take_weights(exec, all, n)) {
        take_inputs(exec, all, n);
        multiply(exec, all, n);
        for (int32_t i = 0; i < n; i++)
            next_weight(&all[i]);
    }
}
