/*
 * Measures what a round consists of on a GPU. test/cuda/run_on_gpu.sh runs it; the simulator runs
 * it with --tiny, which shows that the program works, and its figures mean nothing.
 *
 *   E7   microseconds of every launcher at the row counts of rounds, from replays of a graph with
 *        one launch a layer, and their sum over a pass. The sum is what the time of a round is to
 *        be compared with, and the parts show where it goes. All layers of a pass in their order,
 *        and the same without one of the launches: what that takes where the others hide a part of
 *        it. Attention with many heads to a kv head by each size of tile, of which the library
 *        chooses by a rule that is an estimate
 *   E8   microseconds of products by matrices of as many bytes and other shapes: what the number of
 *        blocks and the length of their chains take
 *
 * m rows are m / 6 sequences that verify five proposals and one token, or one sequence that
 * decodes. Layers share no weight or cache until these are well beyond the L2 cache (replay.h);
 * activations do stay in it, as they do in a round.
 */
#include <math.h>
#include <string.h>

#include "cuda/replay.h"
#include "kernels/cuda/launch.h"

struct shape {
    const char *name;
    int32_t layers, hidden, inter, heads, kv_heads, head_dim, vocab;
};

static const struct shape models[] = {
    {"qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936},
    {"qwen3-0.6b", 28, 1024, 3072, 16, 8, 128, 151936},
};
static const struct shape tiny[] = {{"tiny", 2, 128, 192, 2, 1, 64, 300}};
static const struct shape many_heads = {"glm4-9b", 40, 4096, 13696, 32, 2, 128, 151552};
static const struct shape tiny_many_heads = {"tiny, many heads", 2, 128, 192, 8, 1, 128, 300};
/* E8 takes their product down. */
static const struct shape matrices[] = {
    {"", 12, 2048, 8192, 1, 1, 64, 64},  {"", 12, 4096, 4096, 1, 1, 64, 64},
    {"", 12, 8192, 2048, 1, 1, 64, 64},  {"", 12, 2048, 24576, 1, 1, 64, 64},
    {"", 12, 4096, 12288, 1, 1, 64, 64}, {"", 12, 8448, 5952, 1, 1, 64, 64},
    {"", 12, 12288, 4096, 1, 1, 64, 64}, {"", 12, 24576, 2048, 1, 1, 64, 64},
};
static const int32_t timed[] = {1, 6, 12, 24, 48, 96, 192};
#define COUNT(list) (sizeof(list) / sizeof(list)[0])
enum { MOST = 192, TOKENS = 6, CONTEXT = 640, REPEATS = 5, WGMMA_FROM = 9, SHIFT = 3 };

enum product { QKV, O, GATE_UP, DOWN, HEAD };

struct lab {
    const struct shape *shape;
    enum product product; /* that is timed, */
    int by_wgmma;         /* and by which kernel: 0: mma.sync */
    int32_t tiles;        /* their size, where attention is timed by each */
    int left_out;         /* of a layer's launches; -1: none */
    int is_tiny;
    cudaStream_t stream;
    struct sb_launch_limits limits;
    int32_t m, context;
    /* weights and caches, `copies` of each one after the other */
    uint16_t *w[5];
    int copies[5], caches;
    uint16_t *k, *v; /* in one piece of memory */
    /* activations */
    uint16_t *h, *act;
    float *x, *y, *wide, *ones, *cos, *sin, *logits, *logprob, *margin;
    int32_t *ids;
    struct sb_sampler *samplers; /* [SAMPLERS] */
    void *scratch, *split;       /* split: of products whose k is split */
    unsigned *counters;
    /* the pass */
    int32_t *pos, *seq, *cap, *start, *at, *from, *len;
    int64_t *base;
    struct sb_pass pass;
};

static int32_t n_out(const struct shape *s, enum product p)
{
    const int32_t all[] = {(s->heads + 2 * s->kv_heads) * s->head_dim, s->hidden, 2 * s->inter,
                           s->hidden, s->vocab};
    return all[p];
}

static int32_t n_in(const struct shape *s, enum product p)
{
    const int32_t all[] = {s->hidden, s->heads * s->head_dim, s->hidden, s->inter, s->hidden};
    return all[p];
}

static size_t weight_size(const struct shape *s, enum product p)
{
    return (size_t)sb_cuda_weight_size(SB_BF16, n_out(s, p), n_in(s, p));
}

static void good(cudaError_t error)
{
    must(error == cudaSuccess, "a launch");
}

/* ------------------------------------------------------------------ launchers, of a layer */

/* That which the lab names. Gate and up are gated. */
static void product(struct lab *lab, int layer)
{
    const struct shape *s = lab->shape;
    const enum product p = lab->product;
    const uint16_t *w = lab->w[p] + (size_t)(layer % lab->copies[p]) * weight_size(s, p);

    if (p == GATE_UP)
        good((lab->by_wgmma ? sb_cuda_gated_wgmma
                            : sb_cuda_gated_mma)(lab->act, lab->h, w, SB_BF16, NULL, lab->m,
                                                 s->inter, s->hidden, &lab->limits, lab->stream));
    else
        good((lab->by_wgmma ? sb_cuda_gemm_wgmma : sb_cuda_gemm_mma)(
            p == HEAD ? lab->logits : lab->wide, lab->h, w, SB_BF16, NULL, lab->m, n_out(s, p),
            n_in(s, p), 0, &lab->limits, lab->stream));
}

/* As a draft makes it. */
static void split_product(struct lab *lab, int layer)
{
    const struct shape *s = lab->shape;
    const enum product p = lab->product;

    good(sb_cuda_draft_gemm(
        lab->wide, lab->h, lab->w[p] + (size_t)(layer % lab->copies[p]) * weight_size(s, p),
        SB_BF16, NULL, lab->m, n_out(s, p), n_in(s, p), lab->split, lab->stream));
}

static void norm(struct lab *lab, int layer)
{
    const struct sb_norm args = {.m = lab->m,
                                 .n = lab->shape->hidden,
                                 .eps = 1e-6f,
                                 .h = lab->h,
                                 .x = lab->x,
                                 .y = lab->y,
                                 .weight = lab->ones};

    (void)layer;
    good(sb_cuda_norm(&args, SB_BF16, lab->stream));
}

/* Elements of a layer's keys, or values. */
static size_t plane_of(const struct lab *lab)
{
    return (size_t)(MOST / TOKENS) * (size_t)lab->shape->kv_heads * (size_t)lab->context *
           (size_t)lab->shape->head_dim;
}

static struct sb_attention attention_of(const struct lab *lab, int layer)
{
    const struct shape *s = lab->shape;
    const size_t plane = plane_of(lab);

    return (struct sb_attention){.heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .head_dim = s->head_dim,
                                 .rot_dim = s->head_dim,
                                 .eps = 1e-6f,
                                 .scale = (float)(1.0 / sqrt((double)s->head_dim)),
                                 .q_norm = lab->ones,
                                 .k_norm = lab->ones,
                                 .cos = lab->cos,
                                 .sin = lab->sin,
                                 .k = lab->k + (size_t)(layer % lab->caches) * plane,
                                 .v = lab->v + (size_t)(layer % lab->caches) * plane};
}

static void rope(struct lab *lab, int layer)
{
    const struct sb_attention attention = attention_of(lab, layer);

    good(sb_cuda_rope_kv(lab->wide, &attention, &lab->pass, SB_BF16, lab->stream));
}

static void attend(struct lab *lab, int layer)
{
    const struct sb_attention attention = attention_of(lab, layer);

    good(sb_cuda_attend_mma(lab->h, SB_BF16, lab->wide, &attention, &lab->pass, lab->scratch,
                            lab->counters, lab->stream));
}

static void rope_attend(struct lab *lab, int layer)
{
    const struct sb_attention attention = attention_of(lab, layer);

    good(sb_cuda_rope_attend_mma(lab->h, SB_BF16, lab->wide, &attention, &lab->pass, lab->scratch,
                                 lab->counters, &lab->limits, lab->stream));
}

static cudaError_t rope_attend_by_tiles(struct lab *lab, int layer)
{
    const struct sb_attention attention = attention_of(lab, layer);

    return sb_cuda_rope_attend_mma_in(lab->tiles, lab->h, SB_BF16, lab->wide, &attention,
                                      &lab->pass, lab->scratch, lab->counters, &lab->limits,
                                      lab->stream);
}

static void rope_attend_in(struct lab *lab, int layer)
{
    good(rope_attend_by_tiles(lab, layer));
}

static void gate(struct lab *lab, int layer)
{
    (void)layer;
    good(sb_cuda_gate(lab->h, SB_BF16, lab->wide, SB_GATE_SILU, lab->m, lab->shape->inter,
                      lab->stream));
}

/* What a layer consists of, in its order. */
enum { NO_PRODUCT = -1 };
static const struct {
    const char *name;
    void (*issue)(struct lab *, int layer);
    int product;
} steps[] = {
    {"its norm", norm, NO_PRODUCT},
    {"qkv", product, QKV},
    {"attention", rope_attend, NO_PRODUCT},
    {"o", product, O},
    {"its second norm", norm, NO_PRODUCT},
    {"gate_up", product, GATE_UP},
    {"down", product, DOWN},
};

/* A product is by wgmma where the library may choose that. */
static void whole_layer(struct lab *lab, int layer)
{
    lab->by_wgmma = lab->limits.map_encoder && lab->m >= WGMMA_FROM;
    for (int i = 0; i < (int)COUNT(steps); i++) {
        if (steps[i].product != NO_PRODUCT)
            lab->product = (enum product)steps[i].product;
        if (i != lab->left_out)
            steps[i].issue(lab, layer);
    }
}

/* The columns that a pass's sequences move where all have to be SHIFT nearer to their slots' begin,
 * in all planes at once. */
static struct sb_move realignment(const struct lab *lab)
{
    const struct shape *s = lab->shape;

    return (struct sb_move){.n = lab->pass.n_seqs,
                            .n_planes = 2 * lab->caches,
                            .kv_heads = s->kv_heads,
                            .head_dim = s->head_dim,
                            .plane_stride = (int64_t)plane_of(lab),
                            .from_base = lab->base,
                            .to_base = lab->base,
                            .from_cap = lab->cap,
                            .to_cap = lab->cap,
                            .from = lab->from,
                            .to = lab->start,
                            .len = lab->len};
}

static void realign(struct lab *lab, int layer)
{
    const struct sb_move move = realignment(lab);

    (void)layer;
    good(sb_cuda_move(lab->k, SB_BF16, &move, lab->stream));
}

/* Bytes of as many sequences, which are read once and written once. */
static size_t moved(const struct lab *lab)
{
    const struct shape *s = lab->shape;

    return (size_t)lab->pass.n_seqs * 2 * (size_t)lab->caches * (size_t)s->kv_heads *
           (size_t)s->head_dim * (size_t)(lab->context - SHIFT) * 2;
}

/* What the driver takes to copy as many bytes, here from the keys to the values. */
static void copy_as_much(struct lab *lab, int layer)
{
    const size_t half = moved(lab) / 2;

    (void)layer;
    good(cudaMemcpyAsync(lab->v, lab->k, half, cudaMemcpyDeviceToDevice, lab->stream));
    good(cudaMemcpyAsync(lab->v, lab->k, half, cudaMemcpyDeviceToDevice, lab->stream));
}

/* The samplers that are timed: without filters, and with those in usual use. */
enum { NO_FILTER, FILTERS, SAMPLERS };

/* logprob, margin and samplers may be NULL. */
static void choose_into(struct lab *lab, float *logprob, float *margin,
                        const struct sb_samplers *samplers)
{
    const struct sb_select args = {.m = lab->m,
                                   .stride = lab->shape->vocab,
                                   .limit = lab->shape->vocab,
                                   .logits = lab->logits,
                                   .at = lab->at,
                                   .ids = lab->ids,
                                   .logprob = logprob,
                                   .margin = margin,
                                   .samplers = samplers};

    good(sb_cuda_select(&args, lab->scratch, lab->stream));
}

static void choose(struct lab *lab, int layer)
{
    (void)layer;
    choose_into(lab, NULL, NULL, NULL);
}

static void choose_with_logprob(struct lab *lab, int layer)
{
    (void)layer;
    choose_into(lab, lab->logprob, lab->margin, NULL);
}

/* All rows belong to one row of a round. */
static void sample_by(struct lab *lab, int sampler)
{
    const struct sb_samplers samplers = {.rows = lab->samplers + sampler,
                                         .row_stride = MOST,
                                         .id_at = lab->at,
                                         .pos = lab->pos,
                                         .out = lab->at};

    choose_into(lab, NULL, NULL, &samplers);
}

static void sample(struct lab *lab, int layer)
{
    (void)layer;
    sample_by(lab, NO_FILTER);
}
static void sample_filtered(struct lab *lab, int layer)
{
    (void)layer;
    sample_by(lab, FILTERS);
}

/* ------------------------------------------------------------------ what they work on */

static void open_weights(struct lab *lab, enum product first, enum product last)
{
    const struct shape *s = lab->shape;

    for (enum product p = first; p <= last; p++) {
        const size_t size = weight_size(s, p);
        lab->copies[p] = copies_of(2 * size, s->layers);
        lab->w[p] = take(2 * size * (size_t)lab->copies[p]);
        fill(lab->w[p], size * (size_t)lab->copies[p], (uint32_t)p);
    }
}

static void open_caches(struct lab *lab)
{
    const size_t plane = plane_of(lab);

    lab->caches = lab->shape->layers; /* one for each layer, since few rows read little of a cache
                                       */
    lab->k = take(2 * 2 * plane * (size_t)lab->caches);
    lab->v = lab->k + plane * (size_t)lab->caches;
    fill(lab->k, 2 * plane * (size_t)lab->caches, 7);
}

static void *floats(size_t n, uint32_t seed)
{
    float *dev = take(n * sizeof *dev);

    fill_floats(dev, n, seed);
    return dev;
}

static void open_activations(struct lab *lab)
{
    const struct shape *s = lab->shape;
    const size_t q = (size_t)n_out(s, QKV),
                 widest = q > 2 * (size_t)s->inter ? q : 2 * (size_t)s->inter;
    const size_t wide = widest > (size_t)s->hidden ? widest : (size_t)s->hidden;
    const size_t angles = (size_t)lab->context * (size_t)s->head_dim / 2;
    const struct sb_exec_limits limits = {.max_tokens = MOST,
                                          .max_width = s->inter,
                                          .max_len = lab->context,
                                          .max_heads = s->heads,
                                          .max_head_dim = s->head_dim};
    const size_t scratch = sb_cuda_attend_scratch(SB_BF16, &limits),
                 counters = sb_cuda_attend_counters(SB_BF16, &limits);

    lab->h = take(2 * MOST * (wide + 64));
    lab->act = take(2 * MOST * (wide + 64));
    fill(lab->h, MOST * (wide + 64), 5);
    lab->x = floats(MOST * (size_t)s->hidden, 1);
    lab->y = floats(MOST * (size_t)s->hidden, 2);
    lab->wide = floats(MOST * wide, 3);
    lab->ones = floats((size_t)s->hidden, 4);
    lab->cos = floats(angles, 5);
    lab->sin = floats(angles, 6);
    lab->logits = floats(MOST * (size_t)s->vocab, 7);
    lab->logprob = take(MOST * sizeof(float));
    lab->margin = take(MOST * sizeof(float));
    lab->ids = take(MOST * sizeof(int32_t));
    lab->scratch = take(scratch > sb_cuda_select_scratch() ? scratch : sb_cuda_select_scratch());
    lab->counters = take(counters);
    lab->split = take(sb_cuda_draft_gemm_scratch());
    must(cudaMemset(lab->split, 0, sb_cuda_draft_gemm_scratch()) == cudaSuccess, "zeros");
    must(cudaMemset(lab->counters, 0, counters) == cudaSuccess, "zeros");
}

static void *given(const void *host, size_t bytes)
{
    void *dev = take(bytes);

    must(cudaMemcpy(dev, host, bytes, cudaMemcpyHostToDevice) == cudaSuccess, "upload");
    await_device();
    return dev;
}

/* The last tokens of sequences that fill their slots. */
static void open_pass(struct lab *lab)
{
    const struct shape *s = lab->shape;
    const struct sb_sampler plain = {.seed = 1,
                                     .temperature = 1.0f,
                                     .top_p = 1.0f,
                                     .typical_p = 1.0f,
                                     .repetition = 1.0f,
                                     .greedy_from = INT32_MAX,
                                     .mask_at = -1};
    int32_t pos[MOST], seq[MOST], at[MOST], cap[MOST], start[MOST], from[MOST], len[MOST];
    int64_t base[MOST];
    struct sb_sampler samplers[SAMPLERS] = {plain, plain};

    for (int32_t t = 0; t < MOST; t++) {
        pos[t] = lab->context - TOKENS + t % TOKENS;
        seq[t] = t / TOKENS;
        at[t] = t;
        cap[t] = lab->context;
        start[t] = 0;
        from[t] = SHIFT;
        len[t] = lab->context - SHIFT;
        base[t] = (int64_t)t * s->kv_heads * lab->context * s->head_dim;
    }
    samplers[FILTERS].top_k = 50;
    samplers[FILTERS].top_p = 0.95f;
    lab->samplers = given(samplers, sizeof samplers);
    lab->pos = given(pos, sizeof pos);
    lab->seq = given(seq, sizeof seq);
    lab->at = given(at, sizeof at);
    lab->cap = given(cap, sizeof cap);
    lab->start = given(start, sizeof start);
    lab->from = given(from, sizeof from);
    lab->len = given(len, sizeof len);
    lab->base = given(base, sizeof base);
}

static void set_rows(struct lab *lab, int32_t m)
{
    lab->m = m;
    lab->pass = (struct sb_pass){.n_tokens = m,
                                 .n_seqs = (m + TOKENS - 1) / TOKENS,
                                 .max_len = lab->context,
                                 .pos = lab->pos,
                                 .seq = lab->seq,
                                 .base = lab->base,
                                 .cap = lab->cap,
                                 .start = lab->start};
}

static void close_lab(struct lab *lab)
{
    void *const dev[] = {lab->w[0],   lab->w[1], lab->w[2],     lab->w[3],     lab->w[4],
                         lab->k,      lab->h,    lab->act,      lab->x,        lab->y,
                         lab->wide,   lab->ones, lab->cos,      lab->sin,      lab->ids,
                         lab->logits, lab->pos,  lab->seq,      lab->cap,      lab->start,
                         lab->at,     lab->base, lab->scratch,  lab->margin,   lab->logprob,
                         lab->from,   lab->len,  lab->samplers, lab->counters, lab->split};

    give_all(dev, COUNT(dev));
    (void)cudaStreamDestroy(lab->stream);
}

/* ------------------------------------------------------------------ E7 */

/* What is timed. in_pass: how many of its launches a layer has, or a pass if there is one of it,
 * as the sum counts them. GB/s are printed for a product, too. */
static const struct {
    const char *name;
    void (*issue)(struct lab *, int layer);
    int is_one; /* for all layers */
    int in_pass, product, by_wgmma;
} launchers[] = {
    {"norm", norm, 0, 2, NO_PRODUCT, 0},
    {"qkv", product, 0, 1, QKV, 0},
    {"rope", rope, 0, 0, NO_PRODUCT, 0},
    {"attend", attend, 0, 0, NO_PRODUCT, 0},
    {"rope and attend in one", rope_attend, 0, 1, NO_PRODUCT, 0},
    {"o", product, 0, 1, O, 0},
    {"gate_up, gated", product, 0, 1, GATE_UP, 0},
    {"gate", gate, 0, 0, NO_PRODUCT, 0},
    {"down", product, 0, 1, DOWN, 0},
    {"head", product, 1, 1, HEAD, 0},
    {"select", choose, 1, 1, NO_PRODUCT, 0},
    {"select with logprob", choose_with_logprob, 1, 0, NO_PRODUCT, 0},
    {"sample", sample, 1, 0, NO_PRODUCT, 0},
    {"sample by top_k 50 and top_p 0.95", sample_filtered, 1, 0, NO_PRODUCT, 0},
    {"o, k split", split_product, 0, 0, O, 0},
    {"down, k split", split_product, 0, 0, DOWN, 0},
    {"qkv by wgmma", product, 0, 0, QKV, 1},
    {"o by wgmma", product, 0, 0, O, 1},
    {"gate_up, gated, by wgmma", product, 0, 0, GATE_UP, 1},
    {"down by wgmma", product, 0, 0, DOWN, 1},
    {"head by wgmma", product, 1, 0, HEAD, 1},
};
/* These move bytes and nothing else. */
static const struct {
    const char *name;
    void (*issue)(struct lab *, int layer);
} movers[] = {{"realignment", realign}, {"a copy of as much", copy_as_much}};

static void open_lab(struct lab *lab)
{
    must(cudaStreamCreateWithFlags(&lab->stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    must(sb_cuda_load_kernels(SB_BF16) == cudaSuccess, "loading kernels");
    must(sb_cuda_launch_limits(&lab->limits, SB_BF16) == cudaSuccess, "the device");
    open_caches(lab);
    open_activations(lab);
    open_pass(lab);
}

struct issue {
    struct lab *lab;
    void (*issue)(struct lab *, int layer);
    int layers;
};

static void issue_all(void *what)
{
    const struct issue *all = what;

    for (int i = 0; i < all->layers; i++)
        all->issue(all->lab, i);
}

/* Microseconds of a launcher, or a list of them, for so many layers. */
static double time_us(struct lab *lab, void (*issue)(struct lab *, int layer), int layers)
{
    struct issue all = {lab, issue, layers};

    return replay_us(lab->stream, issue_all, &all, lab->is_tiny ? 1 : REPEATS);
}

/* How many of the numbers of rows are timed: on the simulated device those up to 24. */
static size_t n_timed(const struct lab *lab)
{
    return lab->is_tiny ? 4 : COUNT(timed);
}

static void e7_in_order(struct lab *lab)
{
    for (lab->left_out = -1; lab->left_out < (int)COUNT(steps); lab->left_out++) {
        printf("E7 %s a layer%s%s: us", lab->shape->name, lab->left_out < 0 ? "" : " without ",
               lab->left_out < 0 ? "" : steps[lab->left_out].name);
        for (size_t j = 0; j < n_timed(lab); j++) {
            set_rows(lab, timed[j]);
            printf("  m=%d %.1f", timed[j],
                   time_us(lab, whole_layer, lab->shape->layers) / lab->shape->layers);
        }
        printf("\n");
    }
}

static void e7(const struct shape *shape, int is_tiny)
{
    struct lab lab = {.shape = shape, .context = is_tiny ? 64 : CONTEXT, .is_tiny = is_tiny};
    double sum[COUNT(timed)] = {0.0};

    open_lab(&lab);
    open_weights(&lab, QKV, HEAD);
    for (size_t i = 0; i < COUNT(launchers); i++) {
        const int launches = launchers[i].is_one ? 1 : shape->layers;
        const int is_product = launchers[i].product != NO_PRODUCT;
        if (launchers[i].by_wgmma && !lab.limits.map_encoder)
            continue;
        if (is_product)
            lab.product = (enum product)launchers[i].product;
        lab.by_wgmma = launchers[i].by_wgmma;
        printf("E7 %s %s: us", shape->name, launchers[i].name);
        for (size_t j = 0; j < n_timed(&lab); j++) {
            double us;
            if ((lab.by_wgmma && timed[j] < WGMMA_FROM) ||
                (launchers[i].issue == split_product &&
                 !sb_cuda_draft_gemm_suits(timed[j], n_out(shape, lab.product))))
                continue;
            set_rows(&lab, timed[j]);
            us = time_us(&lab, launchers[i].issue, launches) / launches;
            sum[j] += us * launches * launchers[i].in_pass;
            printf("  m=%d %.1f", timed[j], us);
            if (is_product && us > 0.0)
                printf(" (%.0f GB/s)", 2e-3 * (double)weight_size(shape, lab.product) / us);
        }
        printf("\n");
    }
    for (size_t i = 0; i < COUNT(movers); i++) {
        printf("E7 %s %s: us", shape->name, movers[i].name);
        for (size_t j = 0; j < n_timed(&lab); j++) {
            set_rows(&lab, timed[j]);
            const double us = time_us(&lab, movers[i].issue, 1);
            printf("  m=%d %.1f (%.0f GB/s)", timed[j], us, 2e-3 * (double)moved(&lab) / us);
        }
        printf("\n");
    }
    printf("E7 %s a pass by their sum: ms", shape->name);
    for (size_t j = 0; j < n_timed(&lab); j++)
        printf("  m=%d %.2f", timed[j], sum[j] / 1000.0);
    printf("\n");
    e7_in_order(&lab);
    close_lab(&lab);
}

/* Passes that cannot have tiles of a size are left out. */
static void e7_tiles(const struct shape *shape, int is_tiny)
{
    static const int32_t queries[SB_ROPE_ATTEND_SHAPES] = {16, 32, 48, 96};
    struct lab lab = {.shape = shape, .context = is_tiny ? 200 : CONTEXT, .is_tiny = is_tiny};

    open_lab(&lab);
    for (lab.tiles = 0; lab.tiles < SB_ROPE_ATTEND_SHAPES; lab.tiles++) {
        printf("E7 %s attention by tiles of %d queries: us", shape->name, queries[lab.tiles]);
        for (size_t j = 0; j < n_timed(&lab); j++) {
            set_rows(&lab, timed[j]);
            if (rope_attend_by_tiles(&lab, 0) == cudaErrorNotSupported)
                continue;
            printf("  m=%d %.1f", timed[j],
                   time_us(&lab, rope_attend_in, shape->layers) / shape->layers);
        }
        printf("\n");
    }
    close_lab(&lab);
}

/* ------------------------------------------------------------------ E8 */

static void e8(const struct shape *shape, int is_tiny)
{
    struct lab lab = {.shape = shape, .context = 1, .product = DOWN, .is_tiny = is_tiny};

    open_lab(&lab);
    open_weights(&lab, DOWN, DOWN);
    printf("E8 %d rows of %d columns: us", shape->hidden, shape->inter);
    for (size_t j = 0; j < n_timed(&lab); j++) {
        set_rows(&lab, timed[j]);
        for (lab.by_wgmma = 0; lab.by_wgmma < 2; lab.by_wgmma++)
            if (!lab.by_wgmma || (lab.limits.map_encoder && timed[j] >= WGMMA_FROM))
                printf("  m=%d%s %.1f", timed[j], lab.by_wgmma ? " by wgmma" : "",
                       time_us(&lab, product, shape->layers) / shape->layers);
    }
    printf("\n");
    close_lab(&lab);
}

int main(int argc, char **argv)
{
    const int is_tiny = argc > 1 && strcmp(argv[1], "--tiny") == 0;
    int devices = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("FAIL experiment_launch: no GPU here\n");
        return 1;
    }
    for (size_t i = 0; i < (is_tiny ? COUNT(tiny) : COUNT(models)); i++)
        e7(is_tiny ? &tiny[i] : &models[i], is_tiny);
    e7_tiles(is_tiny ? &tiny_many_heads : &many_heads, is_tiny);
    if (!is_tiny)
        e7_tiles(&models[0], 0);
    for (size_t i = 0; i < (is_tiny ? COUNT(tiny) : COUNT(matrices)); i++)
        e8(is_tiny ? &tiny[i] : &matrices[i], is_tiny);
    printf("ok   experiment_launch\n");
    return 0;
}
