/*
 * Compares rotation, the cache and attention on the CPU with double precision and with themselves.
 *
 * A sequence is put into planes that are otherwise full of NaN, in different slots, with different
 * capacities and start columns. Its tokens are computed all at once, one at a time, and mixed with
 * those of another sequence. The bits of a token's result may not depend on any of that, nor on the
 * SIMD level or the thread count. All of that holds for each type of cache, and for both kinds of
 * attention: that of attention.c, and by products in the order of blocks (attend_blocks.c).
 */
#include <math.h>

#include "support/cpu_ways.h"

#include "port.h"
#include "sbtest.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct sb_backend *cpu;
static const enum sb_dtype types[] = {SB_F32, SB_BF16, SB_F16}; /* of the cache */

/* The classes of attention. Compared with double precision results may be off by `bound`; where the
 * weights are rounded to bf16, one that is nearly a tie may be rounded the other way. */
static const struct class
{
    int32_t compute; /* SPECBATCH_COMPUTE_* */
    enum sb_dtype type;
    double bound;
} classes[] = {{SPECBATCH_COMPUTE_F32, SB_F32, 3e-6},
               {SPECBATCH_COMPUTE_F32, SB_BF16, 3e-6},
               {SPECBATCH_COMPUTE_F32, SB_F16, 3e-6},
               {SPECBATCH_COMPUTE_BF16, SB_BF16, 2e-4},
               {SPECBATCH_COMPUTE_SPLIT, SB_BF16, 3e-6}};

/* One layer's input for a sequence of n tokens, and where the sequence lies in the planes. */
struct layer {
    struct sb_attention attention;
    enum sb_dtype type;    /* of the planes */
    int32_t n, row;        /* tokens; floats in a row of qkv */
    float *qkv;            /* [n, row] before rotation */
    float *tables, *norms; /* of cos and sin; of q and k */
    int32_t cap, start;
    int64_t base, plane; /* elements */
};

static void layer_init(struct layer *layer, enum sb_dtype type, int32_t heads, int32_t kv_heads,
                       int32_t head_dim, int32_t n)
{
    struct sb_attention *a = &layer->attention;
    int32_t half = head_dim / 4; /* so half of the head rotates */

    memset(layer, 0, sizeof *layer);
    layer->type = type;
    layer->n = n;
    layer->row = (heads + 2 * kv_heads) * head_dim;
    layer->qkv = cpu_floats((int64_t)n * layer->row);
    layer->tables = cpu_floats(2 * (int64_t)n * half + 1);
    layer->norms = cpu_floats(2 * head_dim);
    *a = (struct sb_attention){.heads = heads,
                               .kv_heads = kv_heads,
                               .head_dim = head_dim,
                               .rot_dim = 2 * half,
                               .eps = 1e-6f,
                               .scale = 3.0f / sqrtf((float)head_dim)};
    a->cos = layer->tables;
    a->sin = layer->tables + (int64_t)n * half;
}

/* Sets element i to a NaN or to infinity, which no computation may meet. */
static void set_unwritten(void *plane, int64_t i, enum sb_dtype type)
{
    if (type == SB_F32)
        ((float *)plane)[i] = i % 2 ? NAN : INFINITY;
    else
        ((uint16_t *)plane)[i] = (uint16_t)((i % 2 ? 0xffffu : 0u) |
                                            (type == SB_F16 ? 0x7c00u : 0x7f80u));
}

/* Makes new planes in which nothing is written, with a slot of `cap` columns behind `before`
 * elements. */
static void layer_place(struct layer *layer, int32_t cap, int32_t start, int64_t before)
{
    struct sb_attention *a = &layer->attention;

    free(a->k);
    free(a->v);
    layer->cap = cap;
    layer->start = start;
    layer->base = before;
    layer->plane = before + (int64_t)a->kv_heads * cap * a->head_dim;
    a->k = cpu_memory((size_t)layer->plane * sb_dtype_size(layer->type));
    a->v = cpu_memory((size_t)layer->plane * sb_dtype_size(layer->type));
    for (int64_t i = 0; i < layer->plane; i++) {
        set_unwritten(a->k, i, layer->type);
        set_unwritten(a->v, i, layer->type);
    }
}

static void layer_free(struct layer *layer)
{
    free(layer->qkv);
    free(layer->tables);
    free(layer->norms);
    free(layer->attention.k);
    free(layer->attention.v);
}

/* Runs one pass over tokens [first, first + n) of the sequence: rotates and caches them, then
 * attends. Their rows of qkv are copied to `qkv` for that. With `cached` both is done already. */
static void run_pass(struct cpu *way, const struct layer *layer, int32_t first, int32_t n,
                     float *qkv, float *y, int cached)
{
    int32_t pos[256], seq[256];
    struct sb_pass pass = {.n_tokens = n,
                           .n_seqs = 1,
                           .max_len = first + n,
                           .pos = pos,
                           .seq = seq,
                           .base = &layer->base,
                           .cap = &layer->cap,
                           .start = &layer->start};

    for (int32_t t = 0; t < n; t++) {
        pos[t] = first + t;
        seq[t] = 0;
    }
    if (!cached) {
        memcpy(qkv, layer->qkv + (int64_t)first * layer->row,
               (size_t)n * (size_t)layer->row * sizeof(float));
        cpu->rope_kv(way->exec, qkv, &layer->attention, &pass);
    }
    cpu->attend(way->exec, y, qkv, &layer->attention, &pass);
}

static void run_tokens(struct cpu *way, const struct layer *layer, int32_t first, int32_t n,
                       float *qkv, float *y)
{
    run_pass(way, layer, first, n, qkv, y, 0);
}

/* ------------------------------------------------------------------ rotation and the cache */

/* out [row] becomes token t's row of qkv after norms and rotation, in double precision. */
static void reference_rope(double *out, const struct layer *layer, int32_t t)
{
    const struct sb_attention *a = &layer->attention;
    const float *in = layer->qkv + (int64_t)t * layer->row;
    int32_t half = a->rot_dim / 2;

    for (int32_t h = 0; h < a->heads + 2 * a->kv_heads; h++) {
        const float *norm = h < a->heads                 ? a->q_norm
                            : h < a->heads + a->kv_heads ? a->k_norm
                                                         : NULL;
        double *head = out + h * a->head_dim, squares = 0.0;
        for (int32_t d = 0; d < a->head_dim; d++) {
            head[d] = in[h * a->head_dim + d];
            squares += head[d] * head[d];
        }
        for (int32_t d = 0; norm && d < a->head_dim; d++)
            head[d] = head[d] / sqrt(squares / a->head_dim + a->eps) * norm[d];
        for (int32_t i = 0; i < half && h < a->heads + a->kv_heads; i++) {
            double *p = head + (a->rot_interleaved ? 2 * i : i),
                   *q = a->rot_interleaved ? p + 1 : p + half;
            double c = a->cos[t * half + i], s = a->sin[t * half + i], u = *p, v = *q;
            *p = u * c - v * s;
            *q = v * c + u * s;
        }
    }
}

/* Whether elements of the cache from `at` on have the very values of the row, rounded. */
static void check_cached(const struct layer *layer, const void *plane, int64_t at, const float *row)
{
    for (int32_t d = 0; d < layer->attention.head_dim; d++) {
        const float got = cpu_widen(plane, at + d, layer->type),
                    expected = cpu_round(row[d], layer->type);
        if (cpu_first_difference(&got, &expected, 1) >= 0)
            FAIL("%s cache: %a became %a, expected %a", sb_dtype_name(layer->type), (double)row[d],
                 (double)got, (double)expected);
    }
}

static void check_rope(const struct layer *layer, const float *qkv, int32_t t)
{
    const struct sb_attention *a = &layer->attention;
    double *expected = cpu_memory((size_t)layer->row * sizeof *expected);

    reference_rope(expected, layer, t);
    for (int32_t i = 0; i < layer->row; i++)
        if (!(fabs(qkv[i] - expected[i]) <= 2e-6))
            FAIL("head_dim %d, token %d, element %d: %g, expected %g", (int)a->head_dim, (int)t,
                 (int)i, (double)qkv[i], expected[i]);
    for (int32_t h = 0; h < a->kv_heads; h++) {
        int64_t at = layer->base + ((int64_t)h * layer->cap + layer->start + t) * a->head_dim;
        check_cached(layer, a->k, at, qkv + (a->heads + h) * a->head_dim);
        check_cached(layer, a->v, at, qkv + (a->heads + a->kv_heads + h) * a->head_dim);
    }
    free(expected);
}

static void test_rope_kv(void)
{
    enum { N = 9 };
    static const int32_t dims[] = {4, 12, 20, 64, 80, 128};
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    for (int i = 0; i < 4 * COUNT(dims) * COUNT(types); i++) {
        const enum sb_dtype type = types[i / (4 * COUNT(dims))];
        const int32_t dim = dims[i / 4 % COUNT(dims)];
        struct layer layer;
        cpu_set_kv(ways, n_ways, type);
        layer_init(&layer, type, 4, 2, dim, N);
        int64_t row = layer.row;
        float *first = cpu_floats(N * row), *qkv = cpu_floats(N * row), *y = cpu_floats(N * row);
        layer.attention.rot_interleaved = i % 2;
        layer.attention.q_norm = i & 2 ? layer.norms : NULL;
        layer.attention.k_norm = i & 2 ? layer.norms + dim : NULL;
        for (int w = 0; w < n_ways; w++) {
            layer_place(&layer, 20, 3, 50);
            run_tokens(&ways[w], &layer, 0, N, w == 0 ? first : qkv, y);
            if (w > 0)
                CHECK_MEM(qkv, first, (size_t)(N * row) * sizeof(float));
            int64_t written = 0;
            for (int64_t e = 0; e < layer.plane; e++)
                written += isfinite(cpu_widen(layer.attention.k, e, type)) +
                           isfinite(cpu_widen(layer.attention.v, e, type));
            /* nothing is written but the tokens' own columns, of 2 kv heads, of k and v */
            CHECK_INT(written, 2 * 2 * N * dim);
        }
        for (int32_t t = 0; t < N; t++)
            check_rope(&layer, first + t * row, t);
        /* each token alone */
        for (int32_t t = N - 1; t >= 0; t--) {
            run_tokens(&ways[0], &layer, t, 1, qkv, y);
            CHECK_MEM(qkv, first + t * row, (size_t)row * sizeof(float));
        }
        free(first);
        free(qkv);
        free(y);
        layer_free(&layer);
    }
    cpu_close(ways, n_ways);
}

/* Any bits as K and V, which are written as they are, since nothing is rotated: all levels write
 * the same, of NaNs too. */
static void test_any_bits_are_cached(void)
{
    enum { N = 40, DIM = 72, ROW = 3 * DIM };
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    for (int i = 0; i < COUNT(types); i++) {
        const size_t bytes = N * DIM * sb_dtype_size(types[i]);
        void *k = cpu_memory(bytes), *v = cpu_memory(bytes);
        float *qkv = cpu_floats(N * ROW), *y = cpu_floats(N * DIM);
        struct layer layer;
        layer_init(&layer, types[i], 1, 1, DIM, N);
        layer.attention.rot_dim = 0;
        for (int j = 0; j < N * ROW; j++) /* some are within f16's range, and some are ties */
            layer.qkv[j] = j % 3 == 0 ? cpu_any_bits()
                           : j % 3 == 1
                               ? ldexpf((float)(cpu_random() % 8192), (int)(cpu_random() % 40) - 36)
                               : cpu_uniform() * 0x1p-13f;
        cpu_set_kv(ways, n_ways, types[i]);
        for (int w = 0; w < n_ways; w++) {
            layer_place(&layer, N, 0, 0);
            run_tokens(&ways[w], &layer, 0, N, qkv, y);
            if (w == 0) {
                memcpy(k, layer.attention.k, bytes);
                memcpy(v, layer.attention.v, bytes);
            }
            CHECK_MEM(layer.attention.k, k, bytes);
            CHECK_MEM(layer.attention.v, v, bytes);
        }
        for (int32_t t = 0; t < N; t++) {
            check_cached(&layer, k, t * DIM, layer.qkv + t * ROW + DIM);
            check_cached(&layer, v, t * DIM, layer.qkv + t * ROW + 2 * DIM);
        }
        free(k);
        free(v);
        free(qkv);
        free(y);
        layer_free(&layer);
    }
    cpu_close(ways, n_ways);
}

/* ------------------------------------------------------------------ attention */

/* What a class makes of an operand of attention's products. */
static double operand(double value, const struct class *class)
{
    return class->compute == SPECBATCH_COMPUTE_BF16 ? cpu_round_bf16((float)value) : value;
}

/* Turns the scores of a tile, of n keys from j on, into weights. Brings `top`, the largest score so
 * far, up to date. Returns what the sums of the tiles before must be multiplied by. */
static double weigh(double *weight, int32_t j, int32_t n, double *top)
{
    double before = *top;

    for (int32_t i = j; i < j + n; i++)
        *top = fmax(*top, weight[i]);
    for (int32_t i = j; i < j + n; i++)
        weight[i] = exp(weight[i] - *top);
    return exp(before - *top);
}

/* Compares token t's y [heads * head_dim] with double precision on the rotated q and the cache. */
static void check_attention(const struct layer *layer, const struct class *class, const float *qkv,
                            const float *y, int32_t t)
{
    const struct sb_attention *a = &layer->attention;
    double weight[256], expected[600];

    for (int32_t h = 0; h < a->heads; h++) {
        int64_t kv = h / (a->heads / a->kv_heads);
        int64_t at = layer->base + (kv * layer->cap + layer->start) * a->head_dim;
        const int32_t from = a->window > 0 && t >= a->window ? t + 1 - a->window : 0;
        double top = a->sinks ? a->sinks[h] : -INFINITY, sum = a->sinks ? 1.0 : 0.0;
        memset(expected, 0, sizeof expected);
        for (int32_t j = from; j <= t; j++) {
            weight[j] = 0.0;
            for (int32_t d = 0; d < a->head_dim; d++)
                weight[j] += operand(qkv[h * a->head_dim + d], class) *
                             cpu_widen(a->k, at + (int64_t)j * a->head_dim + d, layer->type);
            weight[j] *= a->scale;
            if (a->score_cap > 0.0f)
                weight[j] = a->score_cap * tanh(weight[j] / a->score_cap);
        }
        for (int32_t j = from; j <= t; j = j / 64 * 64 + 64) {
            const int32_t end = t + 1 < j / 64 * 64 + 64 ? t + 1 : j / 64 * 64 + 64, n = end - j;
            const double factor = weigh(weight, j, n, &top);
            sum *= factor;
            for (int32_t d = 0; d < a->head_dim; d++)
                expected[d] *= factor;
            for (int32_t i = j; i < j + n; i++) {
                sum += weight[i];
                for (int32_t d = 0; d < a->head_dim; d++)
                    expected[d] += operand(weight[i], class) *
                                   cpu_widen(a->v, at + (int64_t)i * a->head_dim + d, layer->type);
            }
        }
        for (int32_t d = 0; d < a->head_dim; d++)
            if (!(fabs(y[h * a->head_dim + d] - expected[d] / sum) <= class->bound))
                FAIL("head_dim %d, token %d, head %d: %g, expected %g", (int)a->head_dim, (int)t,
                     (int)h, (double)y[h * a->head_dim + d], expected[d] / sum);
    }
}

/* Computes the same tokens in all ways, at several places, all at once and in pieces. */
static void check_layer(struct cpu *ways, int n_ways, struct layer *layer,
                        const struct class *class)
{
    const struct sb_attention *a = &layer->attention;
    int32_t n = layer->n, width = a->heads * a->head_dim;
    float *first = cpu_floats((int64_t)n * width), *y = cpu_floats((int64_t)n * width);
    float *qkv = cpu_floats((int64_t)n * layer->row);

    for (int w = 0; w < n_ways; w++) {
        layer_place(layer, n + 5 + w, 5 - w % 3, 40 * w); /* another place for every way */
        run_tokens(&ways[w], layer, 0, n, qkv, w == 0 ? first : y);
        if (w == 0)
            for (int32_t t = 0; t < n; t += 1 + t / 8)
                check_attention(layer, class, qkv + (int64_t)t * layer->row,
                                first + (int64_t)t * width, t);
        else
            CHECK_MEM(y, first, (size_t)n * (size_t)width * sizeof(float));
        layer_place(layer, n + 1, 1, 0);
        /* in pieces of 1 to 9 tokens, while later columns are still unwritten */
        for (int32_t t = 0, q; t < n; t += q) {
            q = 1 + (int32_t)(cpu_random() % 9);
            q = q < n - t ? q : n - t;
            run_tokens(&ways[w], layer, t, q, qkv, y);
            CHECK_MEM(y, first + (int64_t)t * width, (size_t)q * (size_t)width * sizeof(float));
        }
    }
    free(first);
    free(y);
    free(qkv);
}

static void test_attend(void)
{
    static const int32_t shapes[][4] = {
        /* heads, kv_heads, head_dim, tokens */
        {1, 1, 12, 70}, {4, 2, 20, 66},  {3, 3, 24, 65},   {8, 2, 40, 64},  {4, 1, 64, 200},
        {2, 2, 80, 33}, {14, 2, 64, 70}, {8, 1, 128, 130}, {2, 1, 256, 63}, {40, 1, 16, 10},
        {2, 1, 4, 1},   {3, 1, 300, 70}, {2, 1, 576, 18}};

    for (int c = 0; c < COUNT(classes); c++) {
        const struct class *class = &classes[c];
        struct cpu ways[CPU_WAYS];
        const int n_ways = cpu_open_kv(ways, class->compute, class->type);
        for (int i = 0; i < COUNT(shapes); i++) {
            const int32_t *shape = shapes[i];
            struct layer layer;
            layer_init(&layer, class->type, shape[0], shape[1], shape[2], shape[3]);
            check_layer(ways, n_ways, &layer, class);
            layer_free(&layer);
            if (sbtest_failed_now)
                FAIL("shape %d, class %d", i, c);
        }
        cpu_close(ways, n_ways);
    }
}

/* Windows of one token, within a tile, of whole tiles and over several of them. One that holds the
 * whole sequence has the bits of none. */
static void test_windows(void)
{
    static const int32_t windows[] = {1, 5, 64, 65, 130, 140};
    enum { N = 140, HEADS = 4, DIM = 20 };

    for (int i = 0; i < COUNT(classes) * COUNT(windows); i++) {
        const struct class *class = &classes[i / COUNT(windows)];
        const int32_t window = windows[i % COUNT(windows)];
        struct cpu ways[CPU_WAYS];
        const int n_ways = cpu_open_kv(ways, class->compute, class->type);
        float *windowed = cpu_floats(N * HEADS * DIM), *whole = cpu_floats(N * HEADS * DIM);
        float *qkv = cpu_floats(N * (HEADS + 4) * DIM);
        struct layer layer;
        layer_init(&layer, class->type, HEADS, 2, DIM, N);
        layer.attention.window = window;
        check_layer(ways, n_ways, &layer, class);
        layer_place(&layer, N, 0, 0);
        run_tokens(&ways[0], &layer, 0, N, qkv, windowed);
        layer.attention.window = 0;
        run_pass(&ways[0], &layer, 0, N, qkv, whole, 1);
        const int64_t at = cpu_first_difference(windowed, whole, N * HEADS * DIM);
        CHECK(window < N ? at / (HEADS * DIM) == window : at < 0);
        free(windowed);
        free(whole);
        free(qkv);
        layer_free(&layer);
        cpu_close(ways, n_ways);
        if (sbtest_failed_now)
            FAIL("window %d, class %d", (int)window, i / COUNT(windows));
    }
}

/* Sinks far below all scores, which have the bits of none, among them, and far above: what is left
 * for values is then little. With windows and without. */
static void test_sinks(void)
{
    enum { N = 140, HEADS = 4, DIM = 20 };
    static const float sinks[HEADS] = {-1e4f, 0.5f, -2.25f, 80.0f};

    for (int i = 0; i < 2 * COUNT(classes); i++) {
        const struct class *class = &classes[i / 2];
        struct cpu ways[CPU_WAYS];
        const int n_ways = cpu_open_kv(ways, class->compute, class->type);
        float *sunk = cpu_floats(N * HEADS * DIM), *without = cpu_floats(N * HEADS * DIM);
        float *qkv = cpu_floats(N * (HEADS + 4) * DIM);
        struct layer layer;
        layer_init(&layer, class->type, HEADS, 2, DIM, N);
        layer.attention.window = i % 2 ? 65 : 0;
        layer.attention.sinks = sinks;
        check_layer(ways, n_ways, &layer, class);
        layer_place(&layer, N, 0, 0);
        run_tokens(&ways[0], &layer, 0, N, qkv, sunk);
        layer.attention.sinks = NULL;
        run_pass(&ways[0], &layer, 0, N, qkv, without, 1);
        for (int k = 0; k < N * HEADS; k++) {
            const float *a = sunk + k * DIM, *b = without + k * DIM;
            CHECK((k % HEADS == 0) == (cpu_first_difference(a, b, DIM) < 0));
            for (int d = 0; k % HEADS == 3 && d < DIM; d++)
                CHECK(fabsf(a[d]) < 1e-6f);
        }
        free(sunk);
        free(without);
        free(qkv);
        layer_free(&layer);
        cpu_close(ways, n_ways);
        if (sbtest_failed_now)
            FAIL("class %d, window %d", i / 2, i % 2);
    }
}

/* Scores that are capped, with windows and without. A cap far above all of them changes little. */
static void test_capped_scores(void)
{
    enum { N = 140, HEADS = 4, DIM = 20 };
    static const float caps[] = {0.75f, 1e4f};

    for (int i = 0; i < 4 * COUNT(classes); i++) {
        const struct class *class = &classes[i / 4];
        struct cpu ways[CPU_WAYS];
        const int n_ways = cpu_open_kv(ways, class->compute, class->type);
        float *capped = cpu_floats(N * HEADS * DIM), *without = cpu_floats(N * HEADS * DIM);
        float *qkv = cpu_floats(N * (HEADS + 4) * DIM), most = 0.0f;
        struct layer layer;
        layer_init(&layer, class->type, HEADS, 2, DIM, N);
        layer.attention.window = i % 2 ? 65 : 0;
        layer.attention.score_cap = caps[i / 2 % 2];
        check_layer(ways, n_ways, &layer, class);
        layer_place(&layer, N, 0, 0);
        run_tokens(&ways[0], &layer, 0, N, qkv, capped);
        layer.attention.score_cap = 0.0f;
        run_pass(&ways[0], &layer, 0, N, qkv, without, 1);
        for (int k = 0; k < N * HEADS * DIM; k++)
            most = fmaxf(most, fabsf(capped[k] - without[k]));
        CHECK(i / 2 % 2 ? most < 2.0f * (float)class->bound + 1e-4f : most > 0.1f);
        free(capped);
        free(without);
        free(qkv);
        layer_free(&layer);
        cpu_close(ways, n_ways);
        if (sbtest_failed_now)
            FAIL("class %d, cap %g, window %d", i / 4, (double)caps[i / 2 % 2], i % 2);
    }
}

/* Two sequences in one pass, with their tokens interleaved: each token gets the bits it has when
 * its sequence is alone. */
static void check_mixed(struct cpu *ways, int n_ways, enum sb_dtype type, int32_t window)
{
    enum {
        N = 75,
        HEADS = 4,
        DIM = 32,
        WIDTH = HEADS * DIM,
        CAP = 80,
        SLOT = 2 * CAP * DIM,
        M = 12
    };
    static const int32_t seq[M] = {0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0, 1};
    static const int32_t pos[M] = {70, 71, 60, 61, 62, 72, 63, 73, 74, 0, 1, 64};
    struct layer layer;

    layer_init(&layer, type, HEADS, 2, DIM, N);
    layer.attention.window = window;
    float *first = cpu_floats(N * WIDTH), *qkv = cpu_floats((int64_t)N * layer.row), y[M * WIDTH];
    float *mixed = cpu_floats((int64_t)M * layer.row);
    /* Both slots hold the same sequence, from different start columns on. */
    for (int w = 0; w < n_ways; w++) {
        int64_t base[2] = {SLOT, 0};
        int32_t cap[2] = {CAP, CAP}, start[2] = {0, 5};
        struct sb_pass pass = {.n_tokens = M,
                               .n_seqs = 2,
                               .max_len = N,
                               .pos = pos,
                               .seq = seq,
                               .base = base,
                               .cap = cap,
                               .start = start};
        layer_place(&layer, CAP, 0, SLOT);
        run_tokens(&ways[w], &layer, 0, N, qkv, first);
        layer.base = 0;
        layer.start = 5;
        run_tokens(&ways[w], &layer, 0, N, qkv, first);
        for (int t = 0; t < M; t++)
            memcpy(mixed + t * layer.row, qkv + pos[t] * layer.row,
                   (size_t)layer.row * sizeof(float));
        cpu->attend(ways[w].exec, y, mixed, &layer.attention, &pass);
        for (int t = 0; t < M; t++)
            CHECK_MEM(y + t * WIDTH, first + pos[t] * WIDTH, WIDTH * sizeof(float));
        pass.n_tokens = 0;
        cpu->attend(ways[w].exec, y, mixed, &layer.attention, &pass);
        cpu->rope_kv(ways[w].exec, mixed, &layer.attention, &pass);
    }
    free(first);
    free(qkv);
    free(mixed);
    layer_free(&layer);
}

static void test_attend_mixed(void)
{
    for (int c = 0; c < COUNT(classes); c++) {
        struct cpu ways[CPU_WAYS];
        const int n_ways = cpu_open_kv(ways, classes[c].compute, classes[c].type);
        check_mixed(ways, n_ways, classes[c].type, 0);
        check_mixed(ways, n_ways, classes[c].type, 62);
        cpu_close(ways, n_ways);
    }
}

/* What a query must not notice of those behind it, and of those before its window: values and keys
 * that are infinite or NaN, and zeros and tiny values, whose products leave the sign of a zero. All
 * tokens at once have the bits that each has alone. */
static void check_values_behind(struct cpu *ways, int n_ways, enum sb_dtype type, int kind,
                                int32_t window)
{
    enum { N = 90, DIM = 40, ROW = 3 * DIM };
    float *qkv = cpu_floats(N * ROW), *all = cpu_floats(N * DIM), y[DIM];
    struct layer layer;

    layer_init(&layer, type, 1, 1, DIM, N);
    layer.attention.window = window;
    for (int t = 0; t < N; t++)
        for (int d = 0; d < DIM; d++) {
            float *k = layer.qkv + t * ROW + DIM + d, *v = k + DIM;
            const float sign = cpu_random() % 2 ? 1.0f : -1.0f;
            if (kind == 0 && t % 7 == 6 && d % 5 == 0)
                *v = d % 2 ? INFINITY : NAN;
            else if (kind == 0 && t == 80 && d == 3)
                *k = NAN;
            else if (kind == 1)
                *v = sign * (cpu_random() % 3 ? 0x1.8p-126f : 0.0f);
        }
    for (int w = 0; w < n_ways; w++) {
        layer_place(&layer, N, 0, 0);
        run_tokens(&ways[w], &layer, 0, N, qkv, all);
        CHECK(kind == 1 || (isfinite(all[5 * DIM]) && !isfinite(all[6 * DIM])));
        CHECK(kind == 1 || (isfinite(all[11 * DIM]) != 0) == (window == 5));
        CHECK(kind == 1 || (isfinite(all[88 * DIM]) != 0) == (window == 5));
        for (int t = 0; t < N; t++) {
            run_pass(&ways[w], &layer, t, 1, qkv + t * ROW, y, 1);
            if (cpu_first_difference(y, all + t * DIM, DIM) >= 0)
                FAIL("%s, kind %d: token %d differs", ways[w].name, kind, t);
        }
    }
    free(qkv);
    free(all);
    layer_free(&layer);
}

static void test_values_behind_a_query(void)
{
    for (int c = 0; c < COUNT(classes); c++) {
        struct cpu ways[CPU_WAYS];
        const int n_ways = cpu_open_kv(ways, classes[c].compute, classes[c].type);
        for (int kind = 0; kind < 2; kind++) {
            check_values_behind(ways, n_ways, classes[c].type, kind, 0);
            check_values_behind(ways, n_ways, classes[c].type, kind, 5);
            check_values_behind(ways, n_ways, classes[c].type, kind, 70);
        }
        cpu_close(ways, n_ways);
    }
}

/* Values below the normal numbers of f16 are kept, as is every f16. Those of bf16 are below the
 * normal floats and count as zero, which is how all denormals are read. */
static void test_denormal_values(void)
{
    enum { N = 21, DIM = 20 };
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    float *qkv = cpu_floats(N * 3 * DIM), y[N * DIM], first[N * DIM];

    for (int i = 1; i < COUNT(types); i++) {
        struct layer layer;
        cpu_set_kv(ways, n_ways, types[i]);
        layer_init(&layer, types[i], 1, 1, DIM, N);
        for (int w = 0; w < n_ways; w++) {
            struct sb_attention *a = &layer.attention;
            layer_place(&layer, N, 0, 0);
            run_tokens(&ways[w], &layer, 0, N, qkv, y);
            /* the smallest f16 denormal, or the largest bf16 denormal, as the value of all keys */
            for (int e = 0; e < N * DIM; e++)
                ((uint16_t *)a->v)[e] = types[i] == SB_F16 ? 0x0001u : 0x807fu;
            run_pass(&ways[w], &layer, 0, N, qkv, y, 1);
            for (int e = 0; e < N * DIM; e++)
                if (types[i] == SB_F16)
                    CHECK(fabs((double)y[e] / 0x1p-24 - 1.0) < 1e-6);
                else
                    CHECK(y[e] == 0.0f);
            if (w == 0)
                memcpy(first, y, sizeof y);
            CHECK_MEM(y, first, sizeof y);
        }
        layer_free(&layer);
    }
    free(qkv);
    cpu_close(ways, n_ways);
}

/* Scores of many thousands still give weights between 0 and 1, and no NaN. */
static void test_attend_extreme_scores(void)
{
    for (int c = 0; c < COUNT(classes); c++) {
        struct cpu ways[CPU_WAYS];
        const int n_ways = cpu_open_kv(ways, classes[c].compute, classes[c].type);
        struct layer layer;
        float y[100 * 16], qkv[100 * 48];
        layer_init(&layer, classes[c].type, 1, 1, 16, 100);
        layer.attention.scale = 5e4f;
        for (int w = 0; w < n_ways; w++) {
            layer_place(&layer, 100, 0, 0);
            run_tokens(&ways[w], &layer, 0, 100, qkv, y);
            for (int i = 0; i < 100 * 16; i++)
                CHECK(fabsf(y[i]) <= 1.0f);
        }
        layer_free(&layer);
        cpu_close(ways, n_ways);
    }
}

TEST_BEGIN
struct sb_fp_env env;
cpu = sb_backend_cpu();
sb_port_fp_enter(&env);
RUN(test_rope_kv);
RUN(test_any_bits_are_cached);
RUN(test_attend);
RUN(test_windows);
RUN(test_sinks);
RUN(test_capped_scores);
RUN(test_attend_mixed);
RUN(test_values_behind_a_query);
RUN(test_denormal_values);
RUN(test_attend_extreme_scores);
TEST_END
