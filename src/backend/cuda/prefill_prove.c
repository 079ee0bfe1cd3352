/*
 * The self-test of cuDNN's attention (prefill_prove.h). Two sides are computed and compared:
 *
 *   side     the class's plans             the plans under test
 *   slots    packed: as many columns as    of the length in question; the sequence lies at their
 *            there are keys                end, and the slot not at the start of the plane
 *   around   nothing else runs             the own kernel runs on another stream
 *   beyond   on both sides the columns of keys to come, and all others, are NaN. So a call shows
 *            that reads what is not its own, and so does one whose mask lets a later query in
 *
 * Keys and values come span by span, as in a prompt; before each call both sides have the same
 * ones. Values are within 1 of 0, and scores are spread widely, so that a few keys have most of a
 * query's weight. A mask or a head that is off by one therefore moves results by about 1, while
 * rounding moves them by about 2^-7.
 */
#include "backend/cuda/prefill_prove.h"

#include <math.h>
#include <string.h>

#include "../kernels/cuda/launch.h"
#include "backend/cuda/memory.h"
#include "status.h"

#define NEAR 0.03125f /* how far from the own kernel's result one may be */

enum what { QUERY = 1, KEY, VALUE };

struct side {
    const struct sb_span_plans *plans;
    char *k, *v; /* dev planes of one slot, with something before it */
    int64_t at;  /* the sequence's first element in them */
};

/* What the own kernel needs to know of a span's tokens, in one piece so that it is one upload. */
struct tokens {
    int64_t base;
    int32_t cap, start, pos[SB_SPAN], seq[SB_SPAN];
};

struct selftest {
    const struct sb_span_calls *calls;
    const struct sb_gpu *gpu;
    cudaStream_t stream;
    struct side class, other;        /* the class's plans, and the plans under test */
    uint16_t levels[VALUE + 1][256]; /* value_of of all levels, in the type */
    float *qkv;                      /* dev [SB_SPAN, (heads + 2 kv_heads) * head_dim] */
    char *q;                         /* dev; the queries, in the type */
    char *by_class, *by_other, *by_own, *workspace; /* dev; three results of a span */
    struct tokens *dev_tokens;                      /* dev; `tokens` after its upload */
    struct tokens tokens;
    void *host; /* pinned: room for a span's keys, or queries, or two results */
};

static int64_t width(const struct selftest *test)
{
    return (int64_t)test->calls->geometry.heads * test->calls->geometry.head_dim;
}

static size_t result_bytes(const struct selftest *test)
{
    return 2 * SB_SPAN * (size_t)width(test);
}

/* --------------------------------------------------------------------- data */

/* A pseudo-random number that is a function of its arguments. */
static uint8_t level_of(enum what what, int32_t head, int32_t pos, int32_t i)
{
    uint32_t x = (uint32_t)what * 0x27d4eb2fu ^ (uint32_t)head * 0x9e3779b1u ^
                 (uint32_t)pos * 0x85ebca77u ^ (uint32_t)i * 0xc2b2ae3du;

    x = (x ^ x >> 15) * 0x2c1b3c6du;
    x = (x ^ x >> 12) * 0x297a2d39u;
    return (uint8_t)(x >> 24);
}

static float value_of(enum what what, int level)
{
    const float within_one = ((float)level - 127.5f) / 127.5f;

    /* the scores then have a standard deviation of 3 */
    return what == VALUE ? within_one : 3.0f * within_one;
}

static void fill_levels(struct selftest *test)
{
    for (int what = QUERY; what <= VALUE; what++)
        for (int i = 0; i < 256; i++) {
            const float value = value_of((enum what)what, i);
            sb_convert(&test->levels[what][i], test->calls->type, &value, SB_F32, 1);
        }
}

/* All spans have the same queries. */
static int32_t upload_queries(struct selftest *test)
{
    const struct sb_geometry *g = &test->calls->geometry;
    const int64_t row = width(test) + 2 * (int64_t)g->kv_heads * g->head_dim;
    float *host = test->host;

    for (int32_t t = 0; t < SB_SPAN; t++)
        for (int64_t i = 0; i < row; i++)
            host[t * row + i] = value_of(
                QUERY, level_of(QUERY, (int32_t)(i / g->head_dim), t, (int32_t)i));
    return sb_cuda_upload(NULL, test->qkv, host, (size_t)(SB_SPAN * row) * sizeof *host);
}

/* Writes span `span` of all heads of a plane. */
static int32_t upload_plane(struct selftest *test, const struct side *side, char *plane,
                            enum what what, int32_t span)
{
    const struct sb_geometry *g = &test->calls->geometry;
    const int64_t n = (int64_t)SB_SPAN * g->head_dim;
    uint16_t *host = test->host;
    int32_t rc = SPECBATCH_OK;

    for (int32_t h = 0; h < g->kv_heads; h++) {
        const int64_t to = side->at +
                           ((int64_t)h * side->plans->cap + (int64_t)span * SB_SPAN) * g->head_dim;
        for (int64_t i = 0; i < n; i++)
            host[i] = test->levels[what][level_of(
                what, h, span * SB_SPAN + (int32_t)(i / g->head_dim), (int32_t)(i % g->head_dim))];
        SB_TRY(sb_cuda_upload(NULL, plane + 2 * to, host, 2 * (size_t)n));
    }
done:
    return rc;
}

/* Writes the keys and values that a span adds to one side. */
static int32_t add_span(struct selftest *test, const struct side *side, int32_t span)
{
    const int32_t rc = upload_plane(test, side, side->k, KEY, span);

    return rc ? rc : upload_plane(test, side, side->v, VALUE, span);
}

/* ------------------------------------------------------------------- memory */

static int32_t take(void *into, const struct selftest *test, size_t bytes)
{
    void *dev = NULL;
    const int32_t rc = sb_cuda_alloc(&dev, test->gpu, bytes);

    memcpy(into, &dev, sizeof dev);
    return rc;
}

/* Makes planes full of NaN. `before`: elements in front of the slot. */
static int32_t open_side(struct side *side, const struct selftest *test,
                         const struct sb_span_plans *plans, int64_t before)
{
    const struct sb_geometry *g = &test->calls->geometry;
    const size_t bytes = 2 * (size_t)(before + (int64_t)g->kv_heads * plans->cap * g->head_dim);
    const struct sb_gpu *gpu = test->gpu;
    int32_t rc = SPECBATCH_OK;

    side->plans = plans;
    side->at = before + ((int64_t)plans->cap - (int64_t)plans->n * SB_SPAN) * g->head_dim;
    SB_TRY(take(&side->k, test, bytes));
    SB_TRY(take(&side->v, test, bytes));
    SB_TRY(sb_cuda_status(gpu, cudaMemsetAsync(side->k, 0xff, bytes, gpu->load),
                          "a test of attention", 0));
    SB_TRY(sb_cuda_status(gpu, cudaMemsetAsync(side->v, 0xff, bytes, gpu->load),
                          "a test of attention", 0));
    SB_TRY(sb_cuda_status(gpu, cudaStreamSynchronize(gpu->load), "a test of attention", 0));
done:
    return rc;
}

static int32_t open_test(struct selftest *test, const struct sb_span_plans *class,
                         const struct sb_span_plans *plans)
{
    const struct sb_geometry *g = &test->calls->geometry;
    const size_t result = result_bytes(test);
    const size_t row = (size_t)width(test) + 2 * (size_t)g->kv_heads * (size_t)g->head_dim;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_host_alloc(&test->host, test->gpu, SB_SPAN * row * sizeof(float)));
    SB_TRY(take(&test->qkv, test, SB_SPAN * row * sizeof(float)));
    SB_TRY(take(&test->q, test, result));
    SB_TRY(take(&test->by_class, test, result));
    SB_TRY(take(&test->by_other, test, result));
    SB_TRY(take(&test->by_own, test, result));
    SB_TRY(take(&test->workspace, test, test->calls->workspace));
    SB_TRY(take(&test->dev_tokens, test, sizeof test->tokens));
    SB_TRY(open_side(&test->class, test, class, 0));
    SB_TRY(open_side(&test->other, test, plans, 3 * (int64_t)g->head_dim));
    SB_TRY(sb_cuda_status(
        test->gpu, cudaStreamCreateWithFlags(&test->stream, cudaStreamNonBlocking), "a stream", 0));
    fill_levels(test);
    SB_TRY(upload_queries(test));
done:
    return rc;
}

static void close_test(struct selftest *test)
{
    void *const dev[] = {test->qkv,     test->q,         test->by_class,   test->by_other,
                         test->by_own,  test->workspace, test->dev_tokens, test->class.k,
                         test->class.v, test->other.k,   test->other.v};

    if (test->stream)
        sb_cuda_ignore(cudaStreamDestroy(test->stream));
    for (size_t i = 0; i < sizeof dev / sizeof dev[0]; i++)
        sb_cuda_ignore(cudaFree(dev[i]));
    sb_cuda_ignore(cudaFreeHost(test->host));
}

/* ------------------------------------------------------------------ running */

static float scale_of(const struct selftest *test)
{
    return (float)(1.0 / sqrt((double)test->calls->geometry.head_dim));
}

/* Waits for the test's stream and the loading stream. */
static int32_t wait_both(const struct selftest *test)
{
    const int32_t rc = sb_cuda_status(test->gpu, cudaStreamSynchronize(test->stream),
                                      "a test of attention", 0);

    return rc ? rc
              : sb_cuda_status(test->gpu, cudaStreamSynchronize(test->gpu->load),
                               "a test of attention", 0);
}

/* Queues a span of one side. 0: the library refuses. */
static int run(const struct selftest *test, const struct side *side, int32_t span, char *y)
{
    const struct sb_sdpa_call call = {.q = test->q,
                                      .k = side->k + 2 * side->at,
                                      .v = side->v + 2 * side->at,
                                      .y = y,
                                      .scale = scale_of(test),
                                      .workspace = test->workspace,
                                      .stream = test->stream};

    return sb_sdpa_run(test->calls->sdpa, side->plans->plans[span], &call);
}

/* Queues the same span by the own kernel: on the class's side, and on the loading stream, so that
 * it runs beside what the test's stream does next. */
static int32_t run_own(struct selftest *test, int32_t span)
{
    const struct sb_geometry *g = &test->calls->geometry;
    const struct tokens *dev = test->dev_tokens;
    const struct sb_attention attention = {.heads = g->heads,
                                           .kv_heads = g->kv_heads,
                                           .head_dim = g->head_dim,
                                           .scale = scale_of(test),
                                           .k = test->class.k,
                                           .v = test->class.v};
    const struct sb_pass pass = {.n_tokens = SB_SPAN,
                                 .n_seqs = 1,
                                 .max_len = (span + 1) * SB_SPAN,
                                 .pos = dev->pos,
                                 .seq = dev->seq,
                                 .base = &dev->base,
                                 .cap = &dev->cap,
                                 .start = &dev->start};
    int32_t rc = SPECBATCH_OK;

    test->tokens.cap = test->class.plans->cap;
    for (int32_t t = 0; t < SB_SPAN; t++)
        test->tokens.pos[t] = span * SB_SPAN + t;
    SB_TRY(sb_cuda_upload(NULL, test->dev_tokens, &test->tokens, sizeof test->tokens));
    SB_TRY(sb_cuda_status(test->gpu,
                          sb_cuda_attend_mma(test->by_own, test->calls->type, test->qkv, &attention,
                                             &pass, NULL, NULL, test->gpu->load),
                          "attention", 0));
done:
    return rc;
}

/* ---------------------------------------------------------------- comparing */

/* Fetches two results into test->host, one behind the other. */
static int32_t fetch_two(struct selftest *test, const char *a, const char *b)
{
    const size_t bytes = result_bytes(test);
    const int32_t rc = sb_cuda_download(NULL, test->host, a, bytes);

    return rc ? rc : sb_cuda_download(NULL, (char *)test->host + bytes, b, bytes);
}

static int32_t are_equal(int *equal, struct selftest *test, const char *a, const char *b)
{
    const size_t bytes = result_bytes(test);
    const int32_t rc = fetch_two(test, a, b);

    *equal = rc == SPECBATCH_OK && memcmp(test->host, (char *)test->host + bytes, bytes) == 0;
    return rc;
}

static int32_t are_near(int *near, struct selftest *test, const char *a, const char *b)
{
    const size_t n = (size_t)(SB_SPAN * width(test));
    const uint16_t *host = test->host;
    const int32_t rc = fetch_two(test, a, b);

    *near = rc == SPECBATCH_OK;
    for (size_t i = 0; *near && i < n; i++) {
        float x, y;
        sb_convert(&x, SB_F32, &host[i], test->calls->type, 1);
        sb_convert(&y, SB_F32, &host[n + i], test->calls->type, 1);
        *near = fabsf(x - y) <= NEAR; /* false for NaN */
    }
    return rc;
}

/* Computes a span on both sides and by the own kernel, and compares. */
static int32_t compare_span(int *good, struct selftest *test, int32_t span)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(add_span(test, &test->class, span));
    SB_TRY(add_span(test, &test->other, span));
    *good = run(test, &test->class, span, test->by_class);
    SB_TRY(wait_both(test));
    SB_TRY(run_own(test, span));
    *good = *good && run(test, &test->other, span, test->by_other);
    SB_TRY(wait_both(test));
    if (*good)
        SB_TRY(are_equal(good, test, test->by_class, test->by_other));
    if (*good && test->class.plans == test->other.plans)
        SB_TRY(are_near(good, test, test->by_class, test->by_own));
done:
    return rc;
}

int32_t sb_prefill_prove(int *good, const struct sb_span_calls *calls, const struct sb_gpu *gpu,
                         const struct sb_span_plans *class, const struct sb_span_plans *plans)
{
    struct selftest test = {.calls = calls, .gpu = gpu};
    int32_t rc = SPECBATCH_OK;

    *good = 1;
    SB_TRY(open_test(&test, class, plans));
    SB_TRY(
        sb_cuda_status(gpu,
                       sb_cuda_narrow(test.q, calls->type, test.qkv, SB_SPAN, (int32_t)width(&test),
                                      width(&test) + 2 * (int64_t)calls->geometry.kv_heads *
                                                         calls->geometry.head_dim,
                                      test.stream),
                       "a test of attention", 0));
    for (int32_t span = 0; *good && span < plans->n; span++)
        SB_TRY(compare_span(good, &test, span));
done:
    close_test(&test);
    return rc;
}
