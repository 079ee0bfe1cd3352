/*
 * Rotation, the cache and attention on CUDA. The f32 class has the CPU's bits. In the 16-bit class
 * the rotated q, k and v are those of the f32 class, the cache holds them rounded once, and
 * attention is within a few roundings of double precision.
 *
 * A sequence lies in planes of fresh device memory, in a slot of some length with some start
 * column. Only its own columns are ever written, so that reading any other is noticed. Its tokens
 * are computed all at once, alone, and mixed with another sequence's, and the bits of a token's
 * result may depend on none of that.
 */
#include "cuda/against_cpu.h"

enum {
    CLUSTER_LEN = 8 * 128, /* the longest pass whose partial results a cluster merges */
    SPLIT_TOKENS = 192,    /* of a pass that is split over blocks, at most */
    MOST_TOKENS = 540      /* of both sequences */
};

/* Two sequences of one layer, and what each of their tokens should give. */
struct layer {
    struct sb_attention attention; /* of the CPU */
    int32_t n, row, width;         /* tokens a sequence; floats of a row of qkv, of y */
    int32_t cap[2], start[2];
    int64_t base[2], plane;              /* elements */
    float *tables, *norms, *sinks, *qkv; /* qkv [2 n, row] before rotation */
    float *rotated, *y;                  /* [2 n, row], [2 n, width] from the CPU */
};

/* The tokens of a pass in their order: sequence and position. */
struct order {
    int32_t n, seq[MOST_TOKENS], pos[MOST_TOKENS];
};

static void layer_init(struct layer *l, int32_t heads, int32_t kv_heads, int32_t head_dim,
                       int32_t rot_dim, int32_t n)
{
    struct sb_attention *a = &l->attention;
    const int32_t half = rot_dim / 2;

    memset(l, 0, sizeof *l);
    l->n = n;
    l->row = (heads + 2 * kv_heads) * head_dim;
    l->width = heads * head_dim;
    l->tables = cpu_floats(2 * (int64_t)n * half + 1);
    l->norms = cpu_floats(2 * head_dim);
    l->sinks = cpu_floats(heads);
    l->qkv = cpu_floats(2 * (int64_t)n * l->row);
    l->rotated = cpu_floats(2 * (int64_t)n * l->row);
    l->y = cpu_floats(2 * (int64_t)n * l->width);
    *a = (struct sb_attention){.heads = heads,
                               .kv_heads = kv_heads,
                               .head_dim = head_dim,
                               .rot_dim = 2 * half,
                               .eps = 1e-6f,
                               .scale = 3.0f / sqrtf((float)head_dim)};
    a->cos = l->tables;
    a->sin = l->tables + (int64_t)n * half;
}

static void layer_place(struct layer *l, int32_t cap0, int32_t start0, int32_t cap1, int32_t start1)
{
    const int64_t per_column = (int64_t)l->attention.kv_heads * l->attention.head_dim;

    l->cap[0] = cap0;
    l->start[0] = start0;
    l->cap[1] = cap1;
    l->start[1] = start1;
    l->base[1] = 0; /* the second sequence has the first slot */
    l->base[0] = cap1 * per_column;
    l->plane = (cap0 + cap1) * per_column;
}

static void layer_free(struct layer *l)
{
    free(l->tables);
    free(l->norms);
    free(l->sinks);
    free(l->qkv);
    free(l->rotated);
    free(l->y);
}

/* Computes l->rotated and l->y of every token on the CPU. */
static void run_cpu(struct layer *l)
{
    struct sb_attention a = l->attention;
    int32_t pos[MOST_TOKENS], seq[MOST_TOKENS];
    struct sb_pass pass = {.n_tokens = 2 * l->n,
                           .n_seqs = 2,
                           .max_len = l->n,
                           .pos = pos,
                           .seq = seq,
                           .base = l->base,
                           .cap = l->cap,
                           .start = l->start};

    for (int32_t t = 0; t < 2 * l->n; t++) {
        seq[t] = t / l->n;
        pos[t] = t % l->n;
    }
    a.k = cpu_floats(l->plane);
    a.v = cpu_floats(l->plane);
    memcpy(l->rotated, l->qkv, 2 * (size_t)l->n * (size_t)l->row * 4);
    cpu->rope_kv(way->exec, l->rotated, &a, &pass);
    cpu->attend(way->exec, l->y, l->rotated, &a, &pass);
    free(a.k);
    free(a.v);
}

/* ------------------------------------------------------------------ on the device */

/* A layer on the device; nothing is written in its planes yet. */
struct dev_layer {
    const struct layer *host;
    struct sb_attention a, in_one; /* in_one: the same with planes for rope and attention in one */
    enum sb_dtype type;
    int64_t *base;
    int32_t *cap, *start;
    void *scratch, *counters;
};

static struct dev_layer upload(const struct layer *l, enum sb_dtype type)
{
    const int64_t half = l->attention.rot_dim / 2;
    const struct sb_exec_limits limits = {.max_tokens = 2 * l->n,
                                          .max_width = l->row,
                                          .max_len = CLUSTER_LEN,
                                          .max_heads = l->attention.heads,
                                          .max_head_dim = l->attention.head_dim};
    struct dev_layer d = {.host = l, .a = l->attention, .type = type};
    const float *tables = given_floats(l->tables, 2 * l->n * half + 1),
                *norms = given_floats(l->norms, 2 * d.a.head_dim);

    d.a.cos = tables;
    d.a.sin = tables + l->n * half;
    d.a.sinks = d.a.sinks ? given_floats(l->sinks, d.a.heads) : NULL;
    d.a.q_norm = d.a.q_norm ? norms : NULL;
    d.a.k_norm = d.a.k_norm ? norms + d.a.head_dim : NULL;
    d.a.k = fresh((size_t)l->plane * sb_dtype_size(type));
    d.a.v = fresh((size_t)l->plane * sb_dtype_size(type));
    d.base = given(l->base, sizeof l->base);
    d.cap = given_ints(l->cap, 2);
    d.start = given_ints(l->start, 2);
    d.in_one = d.a;
    d.in_one.k = fresh((size_t)l->plane * sb_dtype_size(type));
    d.in_one.v = fresh((size_t)l->plane * sb_dtype_size(type));
    d.scratch = fresh(sb_cuda_attend_scratch(type, &limits));
    d.counters = zeros(sb_cuda_attend_counters(type, &limits));
    return d;
}

static size_t y_row_bytes(const struct dev_layer *d)
{
    return (size_t)sb_cuda_ld(d->type, d->host->width) * sb_dtype_size(d->type);
}

/* Computes the attention of a pass by the kernel that rotates and caches too, in planes of its own,
 * with tiles of one size; -1: of the size that it chooses. limits: NULL: without clusters. y and
 * the cache of the pass's tokens must have the bits that the two kernels have given. */
static void check_in_one(const struct dev_layer *d, const struct order *o,
                         const struct sb_pass *pass, const float *dev_qkv, const void *y,
                         int32_t shape, const struct sb_launch_limits *limits)
{
    const struct sb_attention *a = &d->in_one;
    const size_t y_bytes = (size_t)o->n * y_row_bytes(d), bytes = (size_t)d->host->plane * 2;
    char *got = cpu_memory(y_bytes), *two = cpu_memory(bytes), *one = cpu_memory(bytes);
    void *dev_y = fresh(y_bytes);

    if (shape < 0)
        CHECK_CUDA(sb_cuda_rope_attend_mma(dev_y, d->type, dev_qkv, a, pass, d->scratch,
                                           d->counters, limits, stream));
    else
        CHECK_CUDA(sb_cuda_rope_attend_mma_in(shape, dev_y, d->type, dev_qkv, a, pass, d->scratch,
                                              d->counters, limits, stream));
    CHECK_CUDA(fetch(got, dev_y, y_bytes));
    (void)cudaFree(owned[--n_owned]);
    if (memcmp(got, y, y_bytes) != 0)
        FAIL("attention in one kernel has other bits, size of tiles %d", (int)shape);
    for (int is_v = 0; is_v < 2; is_v++) {
        CHECK_CUDA(fetch(two, is_v ? d->a.v : d->a.k, bytes));
        CHECK_CUDA(fetch(one, is_v ? a->v : a->k, bytes));
        for (int64_t i = 0; i < (int64_t)o->n * a->kv_heads; i++) {
            const int64_t t = i / a->kv_heads, h = i % a->kv_heads, s = o->seq[t],
                          column = d->host->start[s] + o->pos[t];
            const int64_t at = d->host->base[s] + (h * d->host->cap[s] + column) * a->head_dim;
            if (memcmp(two + 2 * at, one + 2 * at, 2 * (size_t)a->head_dim) != 0)
                FAIL("the cache of position %d has other bits", (int)o->pos[t]);
        }
    }
    free(got);
    free(two);
    free(one);
}

/* The device's limits, with clusters of eight where it has clusters: a simulated one has too few
 * multiprocessors for these. */
static struct sb_launch_limits clusters_of_eight(enum sb_dtype type)
{
    struct sb_launch_limits limits = *product_limits(type);

    limits.cluster = limits.cluster > 0 ? 8 : 0;
    return limits;
}

/* The same with tiles of the size that it chooses, and of every size that it could have chosen; a
 * pass of a part of the tokens with one of these. The largest are of splits that a cluster merges:
 * a pass that says it is longer than it is has the same bits. */
static void check_in_sizes(const struct dev_layer *d, const struct order *o,
                           const struct sb_pass *pass, const float *dev_qkv, const void *y)
{
    const struct sb_launch_limits limits = clusters_of_eight(d->type);
    const int has_teams = d->in_one.head_dim > 64 && o->n <= SPLIT_TOKENS && limits.cluster > 0;
    const int n = has_teams ? SB_ROPE_ATTEND_SHAPES : 2, is_whole = o->n == 2 * d->host->n;
    struct sb_pass longer = *pass;

    longer.max_len = CLUSTER_LEN;
    for (int32_t i = 0; i < n + 2; i++)
        if (is_whole || i == o->pos[0] % (n + 2))
            check_in_one(d, o, i < 2 ? pass : &longer, dev_qkv, y, i < n ? i : -1,
                         i == n + 1 ? NULL : &limits);
    CHECK_INT(sb_cuda_rope_attend_mma_in(SB_ROPE_ATTEND_SHAPES - 1, NULL, d->type, dev_qkv,
                                         &d->in_one, pass, d->scratch, d->counters, NULL, stream),
              cudaErrorNotSupported);
}

/* The kernel that rotates and caches too takes passes that the layer's window hides nothing of, and
 * caps no scores. */
static void check_in_one_or_none(const struct dev_layer *d, const struct order *o,
                                 const struct sb_pass *pass, const float *dev_qkv, const void *y)
{
    const struct sb_launch_limits limits = clusters_of_eight(d->type);

    if (d->in_one.window >= pass->max_len && d->in_one.score_cap == 0.0f) {
        check_in_one(d, o, pass, dev_qkv, y, -1, &limits);
        return;
    }
    CHECK_INT(sb_cuda_rope_attend_fits(&d->in_one, pass), 0);
    CHECK_INT(sb_cuda_rope_attend_mma(NULL, d->type, dev_qkv, &d->in_one, pass, d->scratch,
                                      d->counters, &limits, stream),
              cudaErrorInvalidValue);
}

/* Rotates and caches the pass's tokens, then computes their attention. qkv [n, row] and y come back
 * to the host. */
static cudaError_t run_order(const struct dev_layer *d, const struct order *o, float *qkv, void *y)
{
    const struct layer *l = d->host;
    const size_t qkv_bytes = (size_t)o->n * (size_t)l->row * 4,
                 y_bytes = (size_t)o->n * y_row_bytes(d);
    float *dev_qkv, *unturned;
    void *dev_y = fresh(y_bytes);
    struct sb_pass pass = {.n_tokens = o->n, .n_seqs = 2, .max_len = 0, .is_apart = 1};
    cudaError_t error;

    for (int32_t t = 0; t < o->n; t++) {
        memcpy(qkv + (int64_t)t * l->row, l->qkv + ((int64_t)o->seq[t] * l->n + o->pos[t]) * l->row,
               (size_t)l->row * 4);
        pass.max_len = o->pos[t] + 1 > pass.max_len ? o->pos[t] + 1 : pass.max_len;
    }
    dev_qkv = given_floats(qkv, (int64_t)o->n * l->row);
    unturned = given_floats(qkv, (int64_t)o->n * l->row);
    pass.pos = given_ints(o->pos, o->n);
    pass.seq = given_ints(o->seq, o->n);
    pass.base = d->base;
    pass.cap = d->cap;
    pass.start = d->start;
    error = sb_cuda_rope_kv(dev_qkv, &d->a, &pass, d->type, stream);
    if (error == cudaSuccess && d->type == SB_F32)
        error = sb_cuda_attend_reference(dev_y, dev_qkv, &d->a, &pass, d->scratch, stream);
    else if (error == cudaSuccess)
        error = sb_cuda_attend_mma(dev_y, d->type, dev_qkv, &d->a, &pass, d->scratch, d->counters,
                                   stream);
    if (error == cudaSuccess)
        error = fetch(qkv, dev_qkv, qkv_bytes);
    if (error == cudaSuccess)
        error = fetch(y, dev_y, y_bytes);
    if (error == cudaSuccess && d->type != SB_F32 && l->attention.head_dim <= 128) {
        if (d->a.window > 0 || d->a.score_cap > 0.0f)
            check_in_one_or_none(d, o, &pass, unturned, y);
        else
            check_in_sizes(d, o, &pass, unturned, y);
    }
    for (int i = 0; i < 5; i++) /* the five of this pass */
        (void)cudaFree(owned[--n_owned]);
    return error;
}

/* ------------------------------------------------------------------ what is right */

/* Checks the cache of sequence s on the device: each element is that of the rotated row, rounded
 * once. */
static int cache_is_right(const struct layer *l, const void *plane, enum sb_dtype type, int is_v)
{
    const struct sb_attention *a = &l->attention;

    for (int32_t s = 0; s < 2; s++)
        for (int64_t i = 0; i < (int64_t)l->n * a->kv_heads * a->head_dim; i++) {
            const int64_t t = i / a->head_dim / a->kv_heads, h = i / a->head_dim % a->kv_heads,
                          d = i % a->head_dim;
            const int64_t at = l->base[s] + (h * l->cap[s] + l->start[s] + t) * a->head_dim + d;
            const float value = l->rotated[(s * l->n + t) * l->row +
                                           (a->heads + (is_v ? a->kv_heads : 0) + h) * a->head_dim +
                                           d];
            uint32_t expected = 0;
            put(&expected, 0, value, type, 1);
            if (memcmp((const char *)plane + (size_t)at * sb_dtype_size(type), &expected,
                       sb_dtype_size(type)) != 0)
                return 0;
        }
    return 1;
}

/* A value rounded to the type. */
static double held(float value, enum sb_dtype type)
{
    uint32_t element = 0;

    put(&element, 0, value, type, 1);
    return (double)cpu_widen(&element, 0, type);
}

/* Token t's output in double precision, from q, k and v rounded to the type. out [width] */
static void exact_attention(double *out, const struct layer *l, int32_t seq, int32_t pos,
                            enum sb_dtype type)
{
    const struct sb_attention *a = &l->attention;
    const int32_t dim = a->head_dim, group = a->heads / a->kv_heads;
    const float *rows = l->rotated + (int64_t)seq * l->n * l->row;
    const int32_t from = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
    double w[MOST_TOKENS / 2];

    for (int32_t h = 0; h < a->heads; h++) {
        double top = a->sinks ? (double)a->sinks[h] : -INFINITY, sum;
        for (int32_t j = from; j <= pos; j++) {
            w[j] = 0.0;
            for (int32_t d = 0; d < dim; d++)
                w[j] += held(rows[pos * l->row + h * dim + d], type) *
                        held(rows[j * l->row + (a->heads + h / group) * dim + d], type);
            w[j] *= (double)a->scale;
            if (a->score_cap > 0.0f)
                w[j] = (double)a->score_cap * tanh(w[j] / (double)a->score_cap);
            top = fmax(top, w[j]);
        }
        sum = a->sinks ? exp((double)a->sinks[h] - top) : 0.0;
        for (int32_t j = from; j <= pos; j++)
            sum += w[j] = exp(w[j] - top);
        for (int32_t d = 0; d < dim; d++) {
            double y = 0.0;
            for (int32_t j = from; j <= pos; j++)
                y += w[j] *
                     held(rows[j * l->row + (a->heads + a->kv_heads + h / group) * dim + d], type);
            out[h * dim + d] = y / sum;
        }
    }
}

/* ------------------------------------------------------------------ one layer */

static void all_tokens(struct order *o, const struct layer *l)
{
    for (o->n = 0; o->n < 2 * l->n; o->n++) {
        o->seq[o->n] = o->n / l->n;
        o->pos[o->n] = o->n % l->n;
    }
}

/* Computes both sequences in passes of uneven numbers of tokens, the second sequence first in each.
 */
static int next_tokens(struct order *o, const struct layer *l, int32_t done[2])
{
    o->n = 0;
    for (int32_t i = 0; i < 2; i++) {
        const int32_t s = 1 - i, left = l->n - done[s];
        int32_t n = 1 + (int32_t)(cpu_random() % 7);
        for (n = n < left ? n : left; n > 0; n--, o->n++) {
            o->seq[o->n] = s;
            o->pos[o->n] = done[s]++;
        }
    }
    return o->n > 0;
}

/* Computes all tokens in one pass, and compares with the CPU and double precision. whole [2 n] rows
 * of y */
static void check_whole(const struct dev_layer *d, float *qkv, char *whole)
{
    const struct layer *l = d->host;
    const size_t row = y_row_bytes(d), elements = (size_t)l->plane * sb_dtype_size(d->type);
    double *exact = cpu_memory((size_t)l->width * sizeof *exact);
    char *plane = cpu_memory(elements);
    struct order o;

    all_tokens(&o, l);
    CHECK_CUDA(run_order(d, &o, qkv, whole));
    CHECK_SAME(qkv, l->rotated, 2 * (int64_t)l->n * l->row, "%s, rotated rows",
               sb_dtype_name(d->type));
    CHECK_CUDA(fetch(plane, d->a.k, elements));
    CHECK(cache_is_right(l, plane, d->type, 0));
    CHECK_CUDA(fetch(plane, d->a.v, elements));
    CHECK(cache_is_right(l, plane, d->type, 1));
    if (d->type == SB_F32)
        CHECK_SAME((float *)(void *)whole, l->y, 2 * (int64_t)l->n * l->width, "f32 attention");
    for (int32_t t = 0; t < o.n && d->type != SB_F32; t += 1 + t / 4) {
        exact_attention(exact, l, o.seq[t], o.pos[t], d->type);
        for (int32_t i = 0; i < (int32_t)(row / 2); i++) {
            const double got = (double)cpu_widen(whole + (size_t)t * row, i, d->type),
                         want = i < l->width ? exact[i] : 0.0;
            if (!(fabs(got - want) <=
                  (i < l->width ? 2 * (d->type == SB_BF16 ? 0x1p-8 : 0x1p-11) : 0.0)))
                FAIL("%s: token %d, element %d is %g, expected %g", sb_dtype_name(d->type), (int)t,
                     (int)i, got, want);
        }
    }
    free(exact);
    free(plane);
}

/* The tokens in several passes, at other places in memory, have the bits that they have in one
 * pass. */
static void check_steps(const struct dev_layer *d, float *qkv, const char *whole)
{
    const struct layer *l = d->host;
    const size_t row = y_row_bytes(d);
    char *y = cpu_memory(16 * row);
    int32_t done[2] = {0, 0};
    struct order o;

    while (next_tokens(&o, l, done)) {
        CHECK_CUDA(run_order(d, &o, qkv, y));
        for (int32_t t = 0; t < o.n; t++)
            if (memcmp(y + (size_t)t * row, whole + (size_t)(o.seq[t] * l->n + o.pos[t]) * row,
                       row) != 0)
                FAIL("%s: position %d of sequence %d, %d tokens in the pass",
                     sb_dtype_name(d->type), (int)o.pos[t], (int)o.seq[t], (int)o.n);
    }
    free(y);
}

static void check_layer(struct layer *l, enum sb_dtype type)
{
    float *qkv = cpu_floats(2 * (int64_t)l->n * l->row);
    char *whole = cpu_memory(2 * (size_t)l->n * (size_t)(sb_cuda_ld(type, l->width) * 4));
    struct dev_layer d;

    layer_place(l, l->n + 5, 3, l->n + 2, 0);
    run_cpu(l);
    d = upload(l, type);
    check_whole(&d, qkv, whole);
    free_all();
    layer_place(l, l->n, 0, l->n + 9, 9);
    d = upload(l, type);
    if (!sbtest_failed_now)
        check_steps(&d, qkv, whole);
    free_all();
    free(qkv);
    free(whole);
}

/* {heads, kv_heads, head_dim, tokens, head norms, interleaved, all of a head rotates, else half,
 * window} */
static void check_shapes(enum sb_dtype type, const int32_t shapes[][8], int n, int has_sinks,
                         float score_cap)
{
    for (int i = 0; i < n && !sbtest_failed_now; i++) {
        struct layer l;
        layer_init(&l, shapes[i][0], shapes[i][1], shapes[i][2],
                   shapes[i][6] ? shapes[i][2] : shapes[i][2] / 4 * 2, shapes[i][3]);
        l.attention.q_norm = shapes[i][4] ? l.norms : NULL;
        l.attention.k_norm = shapes[i][4] ? l.norms + shapes[i][2] : NULL;
        l.attention.rot_interleaved = shapes[i][5];
        l.attention.window = shapes[i][7];
        for (int32_t h = 0; h < shapes[i][0]; h++)
            l.sinks[h] *= 3.0f;
        l.attention.sinks = has_sinks ? l.sinks : NULL;
        l.attention.score_cap = score_cap;
        check_layer(&l, type);
        layer_free(&l);
        if (sbtest_failed_now)
            FAIL("shape %d", i);
    }
}

static const int32_t shapes[][8] = {
    {1, 1, 4, 1, 0, 0},    {2, 1, 12, 70, 1, 0}, {4, 2, 20, 66, 0, 1},  {3, 3, 24, 65, 1, 1},
    {4, 1, 64, 130, 0, 0}, {4, 2, 80, 33, 1, 0}, {14, 2, 64, 20, 1, 1}, {2, 1, 128, 67, 1, 0},
    {2, 1, 256, 10, 0, 0}, {40, 1, 16, 10, 0, 1}};

/* Many queries to a key, and more splits. */
static const int32_t bf16_shapes[][8] = {{16, 1, 80, 96, 1, 0},
                                         {2, 1, 96, 270, 1, 0},
                                         {4, 1, 128, 270, 1, 0, 1},
                                         {6, 2, 64, 135, 0, 0, 1}};
static const int32_t f16_shapes[][8] = {{8, 1, 128, 140, 0, 1}, {3, 1, 128, 131, 0, 0, 1}};

/* Heads of more elements than a half warp has registers for, which the f32 class takes. */
static const int32_t wide_shapes[][8] = {{2, 1, 300, 5, 1, 0}, {1, 1, 600, 3, 1, 1}};

/* Windows within a tile of 64 keys, at its edges, of several tiles, and longer than the text. */
static const int32_t window_shapes[][8] = {
    {2, 1, 12, 70, 1, 0, 0, 1},    {4, 2, 20, 200, 0, 1, 0, 5},   {3, 3, 24, 150, 1, 1, 0, 63},
    {4, 1, 64, 150, 0, 0, 1, 64},  {2, 1, 128, 200, 1, 0, 1, 70}, {2, 1, 80, 270, 1, 0, 0, 129},
    {1, 1, 256, 140, 0, 0, 1, 65}, {16, 1, 80, 96, 1, 0, 0, 300}};

static void test_attend_reference(void)
{
    check_shapes(SB_F32, shapes, COUNT(shapes), 0, 0.0f);
    check_shapes(SB_F32, wide_shapes, COUNT(wide_shapes), 0, 0.0f);
}

static void test_attend_bf16(void)
{
    check_shapes(SB_BF16, shapes, COUNT(shapes), 0, 0.0f);
    check_shapes(SB_BF16, bf16_shapes, COUNT(bf16_shapes), 0, 0.0f);
}

static void test_attend_f16(void)
{
    check_shapes(SB_F16, shapes, COUNT(shapes), 0, 0.0f);
    check_shapes(SB_F16, f16_shapes, COUNT(f16_shapes), 0, 0.0f);
}

/* Scores are in the thousands, so weights are 0 and 1. Values beyond f16 become its largest value,
 * in the cache and in y. */
static void test_attend_extremes(void)
{
    for (int type = SB_F32; type <= SB_F16; type++) {
        const size_t width = 32;
        struct layer l;
        struct order o;
        struct dev_layer d;
        char y[200 * 64 * 4];
        float *qkv;

        layer_init(&l, 2, 1, 16, 8, 100);
        l.attention.scale = 5e4f;
        for (int32_t t = 0; t < 200; t++)
            l.qkv[t * l.row + 3 * 16] = t % 2 ? 1e9f : -1e9f; /* v */
        layer_place(&l, 100, 0, 100, 0);
        run_cpu(&l);
        d = upload(&l, (enum sb_dtype)type);
        all_tokens(&o, &l);
        qkv = cpu_floats(200 * (int64_t)l.row);
        CHECK_CUDA(run_order(&d, &o, qkv, y));
        for (size_t t = 0; t < 200; t++)
            for (size_t i = 0; i < width; i++) {
                const float v = cpu_widen(y + t * y_row_bytes(&d), (int64_t)i, (enum sb_dtype)type);
                CHECK(fabsf(v) <= (i % 16 ? 1.01f : type == SB_F16 ? 65504.0f : 1.01e9f));
            }
        free(qkv);
        free_all();
        layer_free(&l);
    }
}

static void test_attend_windows(void)
{
    for (int type = SB_F32; type <= SB_F16 && !sbtest_failed_now; type++)
        check_shapes((enum sb_dtype)type, window_shapes, COUNT(window_shapes), 0, 0.0f);
}

/* One split and several, in all ways in which they are merged, and windows. */
static const int32_t sink_shapes[][8] = {{2, 1, 12, 70, 1, 0},      {4, 2, 20, 66, 0, 1},
                                         {16, 2, 64, 20, 0, 0, 1},  {8, 1, 64, 140, 0, 0, 1},
                                         {4, 1, 128, 150, 1, 0, 1}, {16, 2, 64, 140, 0, 0, 1, 70},
                                         {3, 1, 40, 90, 0, 0, 0, 5}};

static void test_attend_sinks(void)
{
    for (int type = SB_F32; type <= SB_F16 && !sbtest_failed_now; type++)
        check_shapes((enum sb_dtype)type, sink_shapes, COUNT(sink_shapes), 1, 0.0f);
}

/* The same, and heads of 256 columns, with scores of which many are near the cap. */
static const int32_t capped_shapes[][8] = {{4, 2, 20, 66, 0, 1},
                                           {8, 1, 64, 140, 0, 0, 1},
                                           {16, 2, 64, 80, 0, 0, 1, 70},
                                           {2, 1, 256, 70, 0, 0, 1, 65}};

static void test_attend_capped(void)
{
    for (int type = SB_F32; type <= SB_F16 && !sbtest_failed_now; type++)
        check_shapes((enum sb_dtype)type, capped_shapes, COUNT(capped_shapes), 0, 2.0f);
}

/* Inf and NaN of later tokens of a pass reach no earlier one, whichever kernel and size of tile,
 * and those of tokens before a window reach none behind it. */
static void check_spoiled(enum sb_dtype type, int32_t window)
{
    struct layer l;
    struct order o;
    struct dev_layer d;
    float *qkv;
    char *y;

    layer_init(&l, 16, 1, 80, 40, 24);
    for (int32_t t = 9; t < 24; t += 7) /* v */
        l.qkv[t * l.row + 17 * 80 + t] = t % 2 ? NAN : INFINITY;
    l.attention.window = window;
    layer_place(&l, 24, 0, 24, 0);
    d = upload(&l, type);
    all_tokens(&o, &l);
    qkv = cpu_floats(48 * (int64_t)l.row);
    y = cpu_memory(48 * y_row_bytes(&d));
    CHECK_CUDA(run_order(&d, &o, qkv, y));
    for (int32_t t = 0; t < 48; t++)
        for (int32_t i = 0; i < 80; i++) {
            const float value = cpu_widen(y + (size_t)t * y_row_bytes(&d), i, type);
            const int sees_i = t < 24 && t >= i && (window == 0 || t < i + window);
            CHECK(isfinite(value) == !(sees_i && (i == 9 || i == 16 || i == 23)));
        }
    free(qkv);
    free(y);
    free_all();
    layer_free(&l);
}

static void test_attend_spoiled(void)
{
    check_spoiled(SB_BF16, 0);
    if (!sbtest_failed_now)
        check_spoiled(SB_BF16, 5);
    if (!sbtest_failed_now)
        check_spoiled(SB_F32, 5);
}

/* A pass without tokens does nothing. */
static void test_no_tokens(void)
{
    struct sb_pass pass = {.n_tokens = 0};
    struct sb_attention a = {.heads = 4, .kv_heads = 2, .head_dim = 64, .rot_dim = 64};

    for (int type = SB_F32; type <= SB_F16; type++)
        CHECK_CUDA(sb_cuda_rope_kv(NULL, &a, &pass, (enum sb_dtype)type, stream));
    CHECK_CUDA(sb_cuda_attend_reference(NULL, NULL, &a, &pass, NULL, stream));
    CHECK_CUDA(sb_cuda_attend_mma(NULL, SB_BF16, NULL, &a, &pass, NULL, NULL, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
}

TEST_BEGIN
const int has_device = both_begin();
if (has_device) {
    RUN(test_attend_reference);
    RUN(test_attend_bf16);
    RUN(test_attend_f16);
    RUN(test_attend_windows);
    RUN(test_attend_sinks);
    RUN(test_attend_capped);
    RUN(test_attend_extremes);
    RUN(test_attend_spoiled);
    RUN(test_no_tokens);
}
both_end(has_device);
TEST_END
