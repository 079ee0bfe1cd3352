/*
 * The tensor core kernels: attention of the 16-bit class.
 *
 * Results are compared with double precision, within bounds that follow from the roundings that the
 * kernels are documented to make. They are also compared with each other, bit for bit: a query's
 * bits may depend on its own history alone, so both ways through the splits, and every way of
 * cutting a sequence into passes, must agree.
 *
 * test_cuda_mma.c says how the program is linked. In a cache only the content is ever written, so
 * that a checker of memory accesses sees every wrong one.
 */
#include "cuda/matrix.h"

/* ------------------------------------------------------------------ attention: a world of
 * sequences */

enum { MAX_SEQS = 4, MAX_QUERIES = 400 };

/* A sequence: its queries for all heads, its keys and values for all kv heads, and where it lies in
 * the planes. */
struct sequence {
    int32_t n, cap, start;
    int64_t base;
    float *q;           /* [n, heads, d], before rounding */
    struct matrix k, v; /* [kv_heads * n, d] */
};

struct world {
    enum sb_dtype type;
    int32_t heads, kv_heads, d, n_seqs, n_listed; /* n_listed: seqs that the pass says it has */
    int32_t window;                               /* of the layer, or 0 */
    float scale;
    struct sequence seqs[MAX_SEQS];
    uint16_t *dev_k, *dev_v;
};

/* Copies a row of content to element `at` of a plane. The simulator notices reads of memory that is
 * not written, so there `whole` is NULL, and every row is a copy of its own. On a GPU whoever
 * copies waits for the device, which other programs have by turns, and rows are 100,000 together:
 * they are put into a whole plane on the host, NaN between them, which is one copy. */
static void put_row(uint16_t *plane, uint16_t *whole, int64_t at, const uint16_t *row, size_t bytes)
{
    if (whole)
        memcpy(whole + at, row, bytes);
    else
        (void)cudaMemcpy(plane + at, row, bytes, cudaMemcpyHostToDevice);
}

/* Makes a plane in which the content of all sequences is written, and nothing else. */
static uint16_t *place(const struct world *world, int is_v, int64_t elements)
{
    const size_t bytes = (size_t)elements * 2;
    uint16_t *plane = fresh(bytes), *whole = NULL;

#ifndef CUDASIM_CUDA_RUNTIME_API_H
    whole = memset(cpu_memory(bytes), 0xff, bytes);
#endif
    for (int32_t i = 0; i < world->n_seqs; i++) {
        const struct sequence *s = &world->seqs[i];
        const struct matrix *m = is_v ? &s->v : &s->k;
        for (int32_t h = 0; h < world->kv_heads; h++)
            for (int32_t p = 0; p < s->n; p++)
                put_row(plane, whole, s->base + ((int64_t)h * s->cap + s->start + p) * world->d,
                        m->bits + ((int64_t)h * s->n + p) * m->ld, (size_t)world->d * 2);
    }
    if (whole)
        (void)cudaMemcpy(plane, whole, bytes, cudaMemcpyHostToDevice);
    free(whole);
    return plane;
}

/* Makes new planes. `seed` determines lengths of slots, which differ, and start columns. */
static void world_place(struct world *world, int32_t seed)
{
    int64_t at = (int64_t)world->d * (seed % 3) * 8;

    free_all();
    for (int32_t i = 0; i < world->n_seqs; i++) {
        struct sequence *s = &world->seqs[i];
        s->start = (seed * 5 + i * 3) % 11;
        s->cap = s->start + s->n + (seed + i) % 4;
        s->base = at;
        at += (int64_t)world->kv_heads * s->cap * world->d;
    }
    world->dev_k = place(world, 0, at);
    world->dev_v = place(world, 1, at);
}

static struct world world_make(enum sb_dtype type, int32_t heads, int32_t kv_heads, int32_t d,
                               int32_t n_seqs, int32_t n)
{
    struct world world = {.type = type,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .d = d,
                          .n_seqs = n_seqs,
                          .n_listed = n_seqs,
                          .scale = 3.0f / sqrtf((float)d)};

    for (int32_t i = 0; i < n_seqs; i++) {
        struct sequence *s = &world.seqs[i];
        s->n = i == 0 ? n : n / (i + 1) + 1;
        s->q = cpu_floats((int64_t)s->n * heads * d);
        s->k = matrix_make((int64_t)kv_heads * s->n, d, type);
        s->v = matrix_make((int64_t)kv_heads * s->n, d, type);
    }
    world_place(&world, 1);
    return world;
}

static void world_free(struct world *world)
{
    for (int32_t i = 0; i < world->n_seqs; i++) {
        free(world->seqs[i].q);
        matrix_free(&world->seqs[i].k);
        matrix_free(&world->seqs[i].v);
    }
    free_all();
}

struct query {
    int32_t seq, pos;
};

/* Elements of a row of y with its padding. */
static int64_t y_row(const struct world *world)
{
    return sb_cuda_ld(world->type, world->heads * world->d);
}

/* The arrays of a pass over n queries, in device memory. */
static struct sb_pass make_pass(const struct world *world, const struct query *queries, int32_t n,
                                int32_t max_len)
{
    int32_t pos[MAX_QUERIES], seq[MAX_QUERIES], cap[MAX_SEQS], start[MAX_SEQS];
    int64_t base[MAX_SEQS];

    for (int32_t t = 0; t < n; t++) {
        pos[t] = queries[t].pos;
        seq[t] = queries[t].seq;
        max_len = pos[t] >= max_len ? pos[t] + 1 : max_len;
    }
    for (int32_t i = 0; i < world->n_seqs; i++) {
        base[i] = world->seqs[i].base;
        cap[i] = world->seqs[i].cap;
        start[i] = world->seqs[i].start;
    }
    return (struct sb_pass){
        .n_tokens = n,
        .n_seqs = world->n_listed,
        .max_len = max_len,
        .pos = given(pos, (size_t)n * 4),
        .seq = given(seq, (size_t)n * 4),
        .base = given(base, (size_t)world->n_seqs * 8),
        .cap = given(cap, (size_t)world->n_seqs * 4),
        .start = given(start, (size_t)world->n_seqs * 4),
    };
}

/* Makes qkv of n queries; nothing is written in its parts for k and v. */
static float *make_qkv(const struct world *world, const struct query *queries, int32_t n)
{
    const int64_t row = (int64_t)(world->heads + 2 * world->kv_heads) * world->d;
    const int64_t q = (int64_t)world->heads * world->d;
    float *dev = fresh((size_t)(n * row) * sizeof(float));

    for (int32_t t = 0; t < n; t++)
        (void)cudaMemcpy(dev + t * row, world->seqs[queries[t].seq].q + queries[t].pos * q,
                         (size_t)q * sizeof(float), cudaMemcpyHostToDevice);
    return dev;
}

/* Computes n queries in one pass. y [n, y_row]. The pass says that sequences have up to max_len
 * tokens, if that is more than they have; a recorded pass does so. */
static cudaError_t attend(uint16_t *y, const struct world *world, const struct query *queries,
                          int32_t n, int32_t max_len)
{
    const int mark = n_owned;
    const struct sb_pass pass = make_pass(world, queries, n, max_len);
    const struct sb_attention attention = {.heads = world->heads,
                                           .kv_heads = world->kv_heads,
                                           .head_dim = world->d,
                                           .window = world->window,
                                           .scale = world->scale,
                                           .k = world->dev_k,
                                           .v = world->dev_v};
    const struct sb_exec_limits limits = {.max_tokens = n,
                                          .max_len = pass.max_len,
                                          .max_heads = world->heads,
                                          .max_head_dim = world->d};
    const size_t bytes = (size_t)(n * y_row(world)) * 2;
    const size_t counters_bytes = sb_cuda_attend_counters(world->type, &limits);
    void *dev_y = fresh(bytes), *scratch = fresh(sb_cuda_attend_scratch(world->type, &limits));
    void *counters = zeros(counters_bytes), *after = cpu_memory(counters_bytes);
    cudaError_t error = sb_cuda_attend_mma(dev_y, world->type, make_qkv(world, queries, n),
                                           &attention, &pass, scratch, counters, stream);

    if (error == cudaSuccess)
        error = fetch(y, dev_y, bytes);
    if (error == cudaSuccess)
        error = fetch(after, counters, counters_bytes);
    for (size_t i = 0; error == cudaSuccess && i < counters_bytes; i++)
        if (((char *)after)[i] != 0)
            error = cudaErrorUnknown; /* the next launch would find counters that are not zero */
    free(after);
    free_to(mark);
    return error;
}

/* ------------------------------------------------------------------ attention: checks */

/* The first key that a query attends to. */
static int32_t first_key_of(const struct world *world, int32_t pos)
{
    return world->window > 0 && pos >= world->window ? pos - world->window + 1 : 0;
}

/* One query's result for one head in double precision: sums[d] is the result, sizes[d] the same sum
 * with |v| for v. */
static void reference(double *sums, double *sizes, const struct world *world, struct query query,
                      int32_t head)
{
    const struct sequence *s = &world->seqs[query.seq];
    const int32_t d = world->d, first = head / (world->heads / world->kv_heads) * s->n;
    const int32_t from = first_key_of(world, query.pos);
    double score[MAX_QUERIES], top = -INFINITY, total = 0.0;

    for (int32_t j = from; j <= query.pos; j++) {
        score[j] = 0.0;
        for (int32_t i = 0; i < d; i++)
            score[j] += (double)rounded(s->q[(query.pos * world->heads + head) * d + i],
                                        world->type) *
                        s->k.values[(first + j) * d + i];
        score[j] *= world->scale;
        top = fmax(top, score[j]);
    }
    for (int32_t i = 0; i < d; i++)
        sums[i] = sizes[i] = 0.0;
    for (int32_t j = from; j <= query.pos; j++) {
        const double w = exp(score[j] - top);
        total += w;
        for (int32_t i = 0; i < d; i++) {
            sums[i] += w * s->v.values[(first + j) * d + i];
            sizes[i] += w * fabs(s->v.values[(first + j) * d + i]);
        }
    }
    for (int32_t i = 0; i < d; i++) {
        sums[i] /= total;
        sizes[i] /= total;
    }
}

/*
 * Checks one query's result against double precision. Weights and result are rounded to the type,
 * once each, by at most u of their size (2^-8 or 2^-11). A weight below f16's normal range is
 * rounded by at most 2^-25, where the weights' sum is at least 1. Scores, exp and sums together are
 * right to 2^-14.
 */
static void check_query(const uint16_t *y, const struct world *world, struct query query)
{
    const double u = world->type == SB_BF16 ? 0x1p-8 : 0x1p-11;
    double sums[256], sizes[256];

    for (int32_t h = 0; h < world->heads; h++) {
        reference(sums, sizes, world, query, h);
        for (int32_t i = 0; i < world->d; i++) {
            const double got = cpu_widen(y, h * world->d + i, world->type);
            if (!(fabs(got - sums[i]) <=
                  sizes[i] * (2.05 * u + 0x1p-14) + (query.pos + 1) * 0x1p-24))
                FAIL("%s, %d / %d heads of %d, window %d, position %d, head %d, element %d: %g, "
                     "expected %g",
                     sb_dtype_name(world->type), (int)world->heads, (int)world->kv_heads,
                     (int)world->d, (int)world->window, (int)query.pos, (int)h, (int)i, got,
                     sums[i]);
        }
    }
    for (int64_t i = (int64_t)world->heads * world->d; i < y_row(world); i++)
        CHECK_INT(y[i], 0);
}

/* Results of queries of sequence 0, each computed alone in its pass. Other results are compared
 * with them. */
struct answers {
    uint16_t *y;             /* [n, y_row] */
    char known[MAX_QUERIES]; /* which are computed */
};

static void ask_alone(struct answers *alone, const struct world *world, int32_t pos)
{
    const struct query query = {0, pos};

    if (alone->known[pos])
        return;
    CHECK_CUDA(attend(alone->y + pos * y_row(world), world, &query, 1, 0));
    alone->known[pos] = 1;
}

/* Computes n queries in one pass. Those of sequence 0 that are known must have the same bits. */
static void check_pass(const struct answers *alone, const struct world *world,
                       const struct query *queries, int32_t n, int32_t max_len)
{
    const int64_t row = y_row(world);
    uint16_t *y = cpu_memory((size_t)(n * row) * 2);

    CHECK_CUDA(attend(y, world, queries, n, max_len));
    for (int32_t t = 0; t < n; t++)
        if (queries[t].seq == 0 && alone->known[queries[t].pos] &&
            memcmp(y + t * row, alone->y + queries[t].pos * row, (size_t)row * 2) != 0)
            FAIL("%d / %d heads of %d, window %d: query %d of %d, position %d, differs from the "
                 "same alone",
                 (int)world->heads, (int)world->kv_heads, (int)world->d, (int)world->window, (int)t,
                 (int)n, (int)queries[t].pos);
    free(y);
}

/* Adds tokens [first, first + n) of a sequence to a pass; returns how many tokens it then has. */
static int32_t put_run(struct query *queries, int32_t at, int32_t seq, int32_t first, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        queries[at + i] = (struct query){seq, first + i};
    return at + n;
}

static const struct geometry {
    int32_t heads, kv_heads, d, n;
} geometries[] = {
    {2, 2, 64, 301},  {4, 2, 128, 301}, {4, 1, 64, 301},   {8, 1, 128, 301},
    {16, 1, 40, 301}, {4, 2, 96, 140},  {6, 2, 20, 301},   {2, 1, 256, 140},
    {40, 1, 64, 140}, {1, 1, 129, 130}, {16, 1, 128, 301},
};

/* Queries at the edges of splits and key tiles, each alone, against double precision. */
static void test_attend_alone(void)
{
    static const int32_t positions[] = {0, 1, 7, 63, 64, 127, 128, 129, 255, 256, 300};

    for (int i = 0; i < COUNT(geometries); i++) {
        const struct geometry *g = &geometries[i];
        struct world world = world_make(types[i % 2], g->heads, g->kv_heads, g->d, 1, g->n);
        struct answers alone = {.y = cpu_memory((size_t)(g->n * y_row(&world)) * 2)};
        for (int j = 0; j < COUNT(positions) && positions[j] < g->n; j++) {
            TRY(ask_alone(&alone, &world, positions[j]));
            TRY(check_query(alone.y + positions[j] * y_row(&world), &world,
                            (struct query){0, positions[j]}));
        }
        free(alone.y);
        world_free(&world);
    }
}

/* The same queries in passes of 6 as in verification, in chunks, as the whole sequence, and among
 * the tokens of others. */
static void check_passes(struct world *world, struct answers *alone)
{
    static const int32_t firsts[] = {0, 59, 124, 126, 251, 295};
    struct query queries[MAX_QUERIES];
    const int32_t n = world->seqs[0].n;

    for (int i = 0; i < COUNT(firsts) && firsts[i] + 6 <= n; i++) {
        for (int32_t j = 0; j < 6; j += i % 2 ? 1 : 5)
            TRY(ask_alone(alone, world, firsts[i] + j));
        put_run(queries, 0, 0, firsts[i], 6);
        TRY(check_pass(alone, world, queries, 6, i % 2 ? 700 : 0));
        TRY(world_place(world, i + 2)); /* another slot, start and capacity */
        /* A pass that says it has many sequences walks the splits; others merge them afterwards. */
        world->n_listed = i % 2 ? 300 : world->n_seqs;
        TRY(check_pass(alone, world, queries, 6, 0));
        world->n_listed = world->n_seqs;
    }
    put_run(queries, 0, 0, 0, n);
    TRY(check_pass(alone, world, queries, n, 0));
    put_run(queries, 0, 0, n - 30, 30);
    TRY(check_pass(alone, world, queries, 30, 0));
    /* A ragged pass: verification and chunks of others, and a padding token's sequence between
     * them. */
    int32_t at = put_run(queries, 0, 1, 5, 6);
    at = put_run(queries, at, 3, 0, 1);
    at = put_run(queries, at, 0, 124, 6);
    at = put_run(queries, at, 3, 0, 1);
    at = put_run(queries, at, 2, 0, 33);
    TRY(check_pass(alone, world, queries, at, 0));
    at = put_run(queries, at, 1, 20, 30); /* more than 64 tokens */
    TRY(check_pass(alone, world, queries, at, 512));
}

static void test_attend_passes(void)
{
    for (int i = 0; i < COUNT(geometries); i++) {
        const struct geometry *g = &geometries[i];
        struct world world = world_make(types[(i + 1) % 2], g->heads, g->kv_heads, g->d, MAX_SEQS,
                                        g->n);
        struct answers alone = {.y = cpu_memory((size_t)(g->n * y_row(&world)) * 2)};
        TRY(check_passes(&world, &alone));
        free(alone.y);
        world_free(&world);
    }
}

/* One token a sequence, as in plain decoding of many rows. Each third is the same query of sequence
 * 0, which is compared. */
static void test_attend_many_rows(void)
{
    enum { N = 200 };
    struct world world = world_make(SB_BF16, 8, 2, 64, MAX_SEQS, N);
    struct answers alone = {.y = cpu_memory((size_t)(N * y_row(&world)) * 2)};
    struct query queries[100];

    TRY(ask_alone(&alone, &world, 150));
    for (int32_t t = 0; t < COUNT(queries); t++)
        queries[t] = t % 3 == 1 ? (struct query){0, 150} : (struct query){1 + t % 3, t % 30};
    TRY(check_pass(&alone, &world, queries, COUNT(queries), 0));
    TRY(check_pass(&alone, &world, queries, 40, 0));
    free(alone.y);
    world_free(&world);
}

/* The order of merging. In another order partial results would differ in the last of 24 bits, which
 * rounding to 11 bits shows for one element in thousands only. So this test has 32768 elements, of
 * four splits each, merged while walking and by a last block. */
static void test_attend_merge_order(void)
{
    enum { N = 391, QUERIES = 8 };
    struct world world = world_make(SB_F16, 16, 1, 256, 1, N);
    struct answers alone = {.y = cpu_memory((size_t)(N * y_row(&world)) * 2)};
    struct query queries[QUERIES];

    for (int32_t i = 0; i < QUERIES; i++)
        TRY(ask_alone(&alone, &world, N - QUERIES + i));
    put_run(queries, 0, 0, N - QUERIES, QUERIES);
    TRY(check_pass(&alone, &world, queries, QUERIES, 0));
    world.n_listed = 300;
    TRY(check_pass(&alone, &world, queries, QUERIES, 0));
    free(alone.y);
    world_free(&world);
}

/* Sets element (pos, column) of the keys or values of sequence 0 in the planes, for every kv head.
 */
static void spoil(const struct world *world, uint16_t *plane, int32_t pos, int32_t column,
                  float value)
{
    const struct sequence *s = &world->seqs[0];
    const uint16_t bits = narrow_bits(value, world->type, 0);

    for (int32_t h = 0; h < world->kv_heads; h++)
        (void)cudaMemcpy(plane + s->base + ((int64_t)h * s->cap + s->start + pos) * world->d +
                             column,
                         &bits, 2, cudaMemcpyHostToDevice);
}

/* Inf and NaN of a token reach no earlier token of the same pass. Later tokens have them, as they
 * have when computed alone. */
static void check_spoiled(enum sb_dtype type, int32_t heads, int32_t d, int32_t first, int32_t bad)
{
    struct world world = world_make(type, heads, 1, d, 1, first + 8);
    const int64_t row = y_row(&world);
    struct answers alone = {.y = cpu_memory((size_t)((first + 8) * row) * 2)};
    struct query queries[8];

    for (int32_t i = 0; i < bad; i++)
        TRY(ask_alone(&alone, &world, first + i));
    spoil(&world, world.dev_v, first + bad, 3, NAN);
    spoil(&world, world.dev_v, first + bad + 1, d - 2, INFINITY);
    spoil(&world, world.dev_k, first + bad + 2, 1, NAN);
    for (int32_t i = bad; i < 8; i++) {
        TRY(ask_alone(&alone, &world, first + i));
        for (int32_t h = 0; h < heads; h++) {
            const uint16_t *y = alone.y + (first + i) * row + h * d;
            CHECK(isnan(cpu_widen(y, 3, type)));
            CHECK(isfinite(cpu_widen(y, 4, type)) == (i < bad + 2));
            CHECK((fabsf(cpu_widen(y, d - 2, type)) <= 1.0f) == (i < bad + 1)); /* f16 saturates */
        }
    }
    put_run(queries, 0, 0, first, 8);
    TRY(check_pass(&alone, &world, queries, 8, 0));
    world.n_listed = 300;
    TRY(check_pass(&alone, &world, queries, 8, 0));
    free(alone.y);
    world_free(&world);
}

static void test_attend_spoiled(void)
{
    TRY(check_spoiled(SB_BF16, 1, 64, 3, 2));
    TRY(check_spoiled(SB_F16, 4, 128, 122, 4));
    TRY(check_spoiled(SB_BF16, 3, 40, 130, 5));
    TRY(check_spoiled(SB_F16, 8, 64, 127, 1));
    /* 40 queries, so that the last mma tile of a block is empty */
    TRY(check_spoiled(SB_BF16, 5, 64, 126, 3));
}

/* ------------------------------------------------------------------ attention: windows */

/* Of these some have tiles of 16, 32 and 64 queries in the pass of the whole sequence, for each
 * size of heads. */
static const struct {
    struct geometry of;
    int32_t window;
} windowed[] = {
    {{2, 2, 64, 301}, 1},     {{4, 1, 128, 301}, 5},   {{32, 2, 64, 301}, 64},
    {{8, 1, 96, 301}, 70},    {{32, 2, 128, 301}, 70}, {{4, 2, 40, 391}, 128},
    {{16, 1, 256, 301}, 129}, {{3, 1, 64, 391}, 200},  {{2, 1, 129, 150}, 6},
};

static struct world windowed_world(int i)
{
    const struct geometry *g = &windowed[i].of;
    struct world world = world_make(types[i % 2], g->heads, g->kv_heads, g->d, MAX_SEQS, g->n);

    world.window = windowed[i].window;
    return world;
}

/* Queries whose windows begin and end at the edges of splits, each alone, against double precision.
 */
static void test_windows_alone(void)
{
    for (int i = 0; i < COUNT(windowed); i++) {
        const int32_t n = windowed[i].of.n, w = windowed[i].window;
        const int32_t positions[] = {0,       w - 1,   w,       w + 1,   127, 128,
                                     126 + w, 127 + w, 128 + w, 255 + w, 256, n - 1};
        struct world world = windowed_world(i);
        struct answers alone = {.y = cpu_memory((size_t)(n * y_row(&world)) * 2)};
        for (int j = 0; j < COUNT(positions); j++) {
            const struct query query = {0, positions[j] < n ? positions[j] : n - 2};
            TRY(ask_alone(&alone, &world, query.pos));
            TRY(check_query(alone.y + query.pos * y_row(&world), &world, query));
        }
        free(alone.y);
        world_free(&world);
    }
}

/* The same queries beside others, whose windows begin elsewhere. */
static void test_windows_passes(void)
{
    for (int i = 0; i < COUNT(windowed); i++) {
        struct world world = windowed_world(i);
        struct answers alone = {.y = cpu_memory((size_t)(windowed[i].of.n * y_row(&world)) * 2)};
        for (int32_t pos = i; pos < windowed[i].of.n; pos += 13)
            TRY(ask_alone(&alone, &world, pos));
        TRY(check_passes(&world, &alone));
        free(alone.y);
        world_free(&world);
    }
}

/* A window that hides nothing changes no bit, whether the pass is longer than it or not. */
static void test_windows_that_hide_nothing(void)
{
    enum { N = 270 };
    struct world world = world_make(SB_BF16, 8, 1, 64, 1, N);
    struct answers alone = {.y = cpu_memory((size_t)(N * y_row(&world)) * 2)};
    struct query queries[N];

    for (int32_t pos = 0; pos < N; pos += 9)
        TRY(ask_alone(&alone, &world, pos));
    put_run(queries, 0, 0, 0, N);
    for (world.window = N; world.window < INT32_MAX - 1000; world.window += INT32_MAX / 2) {
        TRY(check_pass(&alone, &world, queries, N, 0));
        TRY(check_pass(&alone, &world, queries, N, N + 100));
        TRY(check_pass(&alone, &world, queries + 130, 6, 0));
    }
    free(alone.y);
    world_free(&world);
}

/* Inf and NaN in values and keys that are before a query's window, or behind it, do not reach it.
 * Those within it do, as they do when the query is computed alone. */
static void check_spoiled_window(enum sb_dtype type, int32_t heads, int32_t d, int32_t window,
                                 int32_t first)
{
    enum { N = 9 };
    /* the last two are where every query is blind */
    const int32_t bad[] = {first + 7, first - window + 3, first - window, first - window - 2};
    struct world world = world_make(type, heads, 1, d, 1, first + N);
    const int64_t row = y_row(&world);
    struct answers alone = {.y = cpu_memory((size_t)((first + N) * row) * 2)};
    struct query queries[N];
    int32_t seen[N];

    world.window = window;
    for (int32_t i = 0; i < N; i++) {
        seen[i] = -1;
        for (int b = 0; b < COUNT(bad); b++)
            if (bad[b] <= first + i && bad[b] >= first_key_of(&world, first + i))
                seen[i] = b;
        if (seen[i] < 0)
            TRY(ask_alone(&alone, &world, first + i));
    }
    for (int b = 0; b < COUNT(bad); b++)
        spoil(&world, world.dev_v, bad[b], b, b % 2 ? INFINITY : NAN);
    spoil(&world, world.dev_k, bad[3], 1, NAN);
    for (int32_t i = 0; i < N; i++) {
        TRY(ask_alone(&alone, &world, first + i));
        for (int b = 0; b < COUNT(bad) && !sbtest_failed_now; b++)
            CHECK(isfinite(cpu_widen(alone.y + (first + i) * row, b, type)) == (b != seen[i]) ||
                  type == SB_F16); /* Inf saturates */
    }
    put_run(queries, 0, 0, first, N);
    TRY(check_pass(&alone, &world, queries, N, 0));
    world.n_listed = 300;
    TRY(check_pass(&alone, &world, queries, N, 0));
    free(alone.y);
    world_free(&world);
}

static void test_windows_spoiled(void)
{
    TRY(check_spoiled_window(SB_BF16, 1, 64, 1, 126));
    TRY(check_spoiled_window(SB_F16, 4, 128, 5, 122));
    TRY(check_spoiled_window(SB_BF16, 3, 40, 64, 190));
    TRY(check_spoiled_window(SB_F16, 8, 64, 70, 200));
    TRY(check_spoiled_window(SB_BF16, 5, 64, 128, 254));
    TRY(check_spoiled_window(SB_BF16, 2, 256, 129, 383));
}

/* ------------------------------------------------------------------ attention: what is special */

/* Where scores are far apart, weights vanish and nothing overflows. Where they are equal, the
 * result is the mean. */
static void test_attend_extremes(void)
{
    for (int i = 0; i < COUNT(types); i++) {
        struct world world = world_make(types[i], 4, 2, 64, 1, 260);
        uint16_t *y = cpu_memory((size_t)y_row(&world) * 2);
        const struct query query = {0, 259};
        world.scale = 400.0f;
        CHECK_CUDA(attend(y, &world, &query, 1, 0));
        for (int32_t e = 0; e < world.heads * world.d; e++)
            CHECK(fabsf(cpu_widen(y, e, types[i])) <= 1.0f);
        world.scale = 0.0f;
        CHECK_CUDA(attend(y, &world, &query, 1, 0));
        TRY(check_query(y, &world, query));
        free(y);
        world_free(&world);
    }
}

static void test_attend_refuses(void)
{
    const struct sb_pass none = {.n_tokens = 0}, one = {.n_tokens = 1, .n_seqs = 1, .max_len = 1};
    const struct sb_attention wide = {.heads = 1, .kv_heads = 1, .head_dim = 257};
    const struct sb_attention odd = {.heads = 3, .kv_heads = 2, .head_dim = 64};
    const struct sb_attention past = {.heads = 1, .kv_heads = 1, .head_dim = 64, .window = -1};
    const struct sb_exec_limits limits = {
        .max_tokens = 700, .max_len = 300, .max_heads = 4, .max_head_dim = 64};

    CHECK_INT(sb_cuda_attend_mma(NULL, SB_BF16, NULL, &wide, &none, NULL, NULL, stream),
              cudaSuccess);
    CHECK_INT(sb_cuda_attend_mma(NULL, SB_BF16, NULL, &wide, &one, NULL, NULL, stream),
              cudaErrorInvalidValue);
    CHECK_INT(sb_cuda_attend_mma(NULL, SB_BF16, NULL, &odd, &one, NULL, NULL, stream),
              cudaErrorInvalidValue);
    CHECK_INT(sb_cuda_attend_mma(NULL, SB_BF16, NULL, &past, &one, NULL, NULL, stream),
              cudaErrorInvalidValue);
    CHECK_INT(sb_cuda_attend_mma(NULL, SB_F32, NULL, &odd, &one, NULL, NULL, stream),
              cudaErrorInvalidValue);
    CHECK_INT(sb_cuda_attend_scratch(SB_F32, &limits), 0);
    CHECK_INT(sb_cuda_attend_scratch(SB_F16, &limits), 192 * 4 * 3 * 66 * 4);
    CHECK_INT(sb_cuda_attend_counters(SB_F32, &limits), 0);
    CHECK_INT(sb_cuda_attend_counters(SB_F16, &limits), 192 * 4 * 4);
}

TEST_BEGIN
if (device_begin()) {
    RUN(test_attend_alone);
    RUN(test_attend_passes);
    RUN(test_attend_many_rows);
    RUN(test_attend_merge_order);
    RUN(test_attend_spoiled);
    RUN(test_windows_alone);
    RUN(test_windows_passes);
    RUN(test_windows_that_hide_nothing);
    RUN(test_windows_spoiled);
    RUN(test_attend_extremes);
    RUN(test_attend_refuses);
    device_end();
}
TEST_END
