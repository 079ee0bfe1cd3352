/*
 * Quantised weights on the simulated device, as a model that is opened has them: they stay what
 * they are, in tiles.
 */
#include "cudasim.h"

#include <cuda_runtime_api.h>

#include "../kernels/cuda/quant_tile.h"
#include "backend/cuda/quant_pack.h"
#include "backend/cuda/staging.h"
#include "backend/threads.h"
#include "model/model.h"
#include "sbtest.h"

enum { MANY_ROWS = 2 * 16500, MANY_INPUTS = 256 };

#define TARGET "test/data/models/qwen3_untied_f32_sharded"

/* Whether nothing of the device is in use: memory, pinned memory, streams, events, graphs. */
static int is_clean(void)
{
    return cudasim_device_bytes() == 0 && cudasim_host_bytes() == 0 && cudasim_objects() == 0;
}

static int32_t open_quantised(specbatch_model **out, int32_t compute, int32_t weights)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.device = SPECBATCH_DEVICE_CUDA;
    options.compute = compute;
    options.weights = weights;
    *out = NULL;
    return specbatch_model_open(out, TARGET, &options);
}

/* They take the memory of their type, and are a class of their own. */
static void test_weights_stay_quantised(void)
{
    static const int32_t computes[] = {SPECBATCH_COMPUTE_F32, SPECBATCH_COMPUTE_BF16};
    specbatch_model *model;

    for (int i = 0; i < 4; i++) {
        const int32_t weights = i % 2 ? SPECBATCH_WEIGHTS_Q4 : SPECBATCH_WEIGHTS_Q8;
        CHECK_OK(open_quantised(&model, computes[i / 2], weights));
        const struct sb_weight *w = &model->layers[0].mlp.down;
        CHECK_INT(w->dtype, i % 2 ? SB_Q4_0 : SB_Q8_0);
        CHECK(w->bytes == sb_tile_weight_bytes(w->dtype, w->n_out, w->n_in));
        CHECK_INT(model->embed.dtype, SB_Q8_0);
        CHECK(strstr(specbatch_model_fingerprint(model), "quantised weights by scaled blocks"));
        specbatch_model_close(model);
        CHECK(is_clean());
    }
    CHECK_ERROR(open_quantised(&model, SPECBATCH_COMPUTE_INT8, SPECBATCH_WEIGHTS_Q8),
                SPECBATCH_E_UNSUPPORTED, "compute int8 is for the CPU");
}

static void test_no_memory_for_quantised_weights(void)
{
    specbatch_model *model = NULL;
    int32_t rc = SPECBATCH_OK;

    for (int64_t n = 1, left = 0; left == 0; n++) {
        cudasim_fail_alloc(n);
        rc = open_quantised(&model, SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_Q4);
        left = cudasim_fail_alloc(0);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
        specbatch_model_close(model);
        CHECK(is_clean());
    }
    CHECK_OK(rc);
}

/* Pieces that end inside a strip of 16 rows, and in any order. */
static void check_pieces(enum sb_dtype type, enum sb_dtype other)
{
    enum { ROWS = 53, INPUTS = 96 };
    static const int32_t pieces[][2] = {{37, 16}, {0, 7}, {9, 2}, {7, 2}, {11, 26}};
    const size_t row = sb_dtype_row_bytes(type, INPUTS);
    const size_t bytes = sb_tile_weight_bytes(type, ROWS, INPUTS);
    char *rows = malloc(ROWS * row), *expected = calloc(bytes, 1), *got = malloc(bytes), text[80];
    struct sb_weight weight = {.n_out = ROWS, .n_in = INPUTS};
    specbatch_model *model;

    CHECK(rows && expected && got);
    for (size_t i = 0; i < ROWS * row; i++)
        rows[i] = (char)(i * 31 + i / 7);
    sb_quant_pack(expected, type, INPUTS, 0, ROWS, rows);
    CHECK_OK(open_quantised(&model, SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_Q4));
    const struct sb_backend *b = model->backend;
    CHECK_OK(b->weight_create(&weight, model->device, &model->mem, type));
    CHECK_INT(weight.dtype, type);
    CHECK_INT(weight.bytes, bytes);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        CHECK_OK(b->weight_fill(&weight, model->device, pieces[i][0], pieces[i][1],
                                rows + (size_t)pieces[i][0] * row, type));
    CHECK_INT(cudaDeviceSynchronize(), cudaSuccess);
    CHECK_OK(b->download(NULL, got, weight.data, bytes));
    CHECK_MEM(got, expected, bytes);
    snprintf(text, sizeof text, "%s rows in a weight held as %s", sb_dtype_name(other),
             sb_dtype_name(type));
    CHECK_ERROR(b->weight_fill(&weight, model->device, 0, 1, rows, other), SPECBATCH_E_UNSUPPORTED,
                text);
    b->weight_free(&weight, model->device, &model->mem);
    specbatch_model_close(model);
    free(rows);
    free(expected);
    free(got);
    CHECK(is_clean());
}

static void test_rows_of_a_quantised_weight_come_in_any_pieces(void)
{
    check_pieces(SB_Q4_0, SB_Q8_0);
    if (!sbtest_failed_now)
        check_pieces(SB_MXFP4, SB_BF16);
}

/* ------------------------------------------------------------------ by several threads */

/* A weight, and the rows that threads fill it with. */
struct filling {
    struct sb_weight *weight;
    const specbatch_model *model;
    const char *rows;
    enum sb_dtype dtype;
    atomic_int failed;
};

static void fill_units(void *ctx, int64_t first, int64_t last)
{
    struct filling *f = ctx;
    const int64_t from = first * SB_FILL_UNIT, end = last * SB_FILL_UNIT;
    const int32_t n = (int32_t)((end < f->weight->n_out ? end : f->weight->n_out) - from);
    const size_t row = sb_dtype_row_bytes(f->dtype, (size_t)f->weight->n_in);

    if (f->model->backend->weight_fill(f->weight, f->model->device, (int32_t)from, n,
                                       f->rows + (size_t)from * row, f->dtype) != SPECBATCH_OK)
        atomic_store(&f->failed, 1);
}

/* The bytes of a weight that so many threads have filled, and how many; NULL where something fails.
 */
static char *filled_by(size_t *n, int32_t n_threads, const specbatch_model *model, const char *rows,
                       enum sb_dtype dtype, int32_t gated)
{
    struct sb_weight weight = {.n_out = MANY_ROWS, .n_in = MANY_INPUTS, .gated = gated};
    const struct sb_backend *b = model->backend;
    struct filling filling = {&weight, model, rows, dtype, 0};
    struct sb_threads *threads = NULL;
    char *bytes = NULL;

    if (b->weight_create(&weight, model->device, &model->mem, dtype) != SPECBATCH_OK)
        return NULL;
    if (sb_threads_create(&threads, &model->mem, n_threads) == SPECBATCH_OK) {
        sb_threads_for(threads, (MANY_ROWS + SB_FILL_UNIT - 1) / SB_FILL_UNIT, 1, fill_units,
                       &filling);
        *n = weight.bytes;
        bytes = malloc(weight.bytes);
        if (bytes && (atomic_load(&filling.failed) || cudaDeviceSynchronize() != cudaSuccess ||
                      b->download(NULL, bytes, weight.data, weight.bytes) != SPECBATCH_OK)) {
            free(bytes);
            bytes = NULL;
        }
    }
    sb_threads_free(threads);
    b->weight_free(&weight, model->device, &model->mem);
    return bytes;
}

/* Rows that many threads fill in at once, more of them than there are buffers, are those that one
 * fills in. */
static void test_threads_fill_a_weight(void)
{
    static const enum sb_dtype types[] = {SB_Q8_0, SB_Q5_K, SB_Q6_K, SB_MXFP4, SB_BF16, SB_BF16};
    static const int32_t computes[] = {SPECBATCH_COMPUTE_F32, SPECBATCH_COMPUTE_BF16};
    enum { N = sizeof types / sizeof types[0] };

    for (int i = 0; i < 2 * N && !sbtest_failed_now; i++) {
        const enum sb_dtype type = types[i / 2];
        const size_t bytes = MANY_ROWS * sb_dtype_row_bytes(type, MANY_INPUTS);
        const int32_t gated = i / 2 == N - 1 ? MANY_ROWS / 2 : 0;
        char *rows = malloc(bytes), *one, *many;
        specbatch_model *model;
        CHECK(rows != NULL);
        for (size_t k = 0; k < bytes; k++)
            rows[k] = (char)(k * 31 + k / 7);
        CHECK_OK(open_quantised(&model, computes[i % 2], SPECBATCH_WEIGHTS_Q4));
        size_t n = 0;
        one = filled_by(&n, 1, model, rows, type, gated);
        many = filled_by(&n, SB_STAGES + 3, model, rows, type, gated);
        CHECK(one && many);
        CHECK_MEM(many, one, n);
        free(one);
        free(many);
        free(rows);
        specbatch_model_close(model);
        CHECK(is_clean());
    }
}

static void test_rows_of_no_whole_blocks_are_refused(void)
{
    struct sb_weight weight = {.n_out = 16, .n_in = 320};
    specbatch_model *model;

    CHECK_OK(open_quantised(&model, SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_Q4));
    CHECK_ERROR(model->backend->weight_create(&weight, model->device, &model->mem, SB_Q6_K),
                SPECBATCH_E_UNSUPPORTED, "no whole blocks of q6_k");
    specbatch_model_close(model);
    CHECK(is_clean());
}

TEST_BEGIN
RUN(test_weights_stay_quantised);
RUN(test_no_memory_for_quantised_weights);
RUN(test_rows_of_a_quantised_weight_come_in_any_pieces);
RUN(test_threads_fill_a_weight);
RUN(test_rows_of_no_whole_blocks_are_refused);
TEST_END
