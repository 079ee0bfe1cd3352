/*
 * Quantised weights on the simulated device, as a model that is opened has them: types that have
 * kernels stay what they are, in tiles, and MXFP4 is widened.
 */
#include "cudasim.h"

#include <cuda_runtime_api.h>

#include "../kernels/cuda/quant_tile.h"
#include "backend/cuda/quant_pack.h"
#include "model/model.h"
#include "sbtest.h"
#include "support/trace.h"

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
static void test_rows_of_a_quantised_weight_come_in_any_pieces(void)
{
    enum { ROWS = 53, INPUTS = 96 };
    static const int32_t pieces[][2] = {{37, 16}, {0, 7}, {9, 2}, {7, 2}, {11, 26}};
    const size_t row = sb_dtype_row_bytes(SB_Q4_0, INPUTS);
    const size_t bytes = sb_tile_weight_bytes(SB_Q4_0, ROWS, INPUTS);
    char *rows = malloc(ROWS * row), *expected = calloc(bytes, 1), *got = malloc(bytes);
    struct sb_weight weight;
    specbatch_model *model;

    CHECK(rows && expected && got);
    for (size_t i = 0; i < ROWS * row; i++)
        rows[i] = (char)(i * 31 + i / 7);
    sb_quant_pack(expected, SB_Q4_0, INPUTS, 0, ROWS, rows);
    CHECK_OK(open_quantised(&model, SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_Q4));
    const struct sb_backend *b = model->backend;
    CHECK_OK(b->weight_create(&weight, model->device, &model->mem, ROWS, INPUTS, SB_Q4_0));
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        CHECK_OK(b->weight_fill(&weight, model->device, pieces[i][0], pieces[i][1],
                                rows + (size_t)pieces[i][0] * row, SB_Q4_0));
    CHECK_INT(cudaDeviceSynchronize(), cudaSuccess);
    CHECK_OK(b->download(NULL, got, weight.data, bytes));
    CHECK_MEM(got, expected, bytes);
    CHECK_ERROR(b->weight_fill(&weight, model->device, 0, 1, rows, SB_Q8_0),
                SPECBATCH_E_UNSUPPORTED, "q8_0 rows in a weight held as q4_0");
    b->weight_free(&weight, model->device, &model->mem);
    CHECK_ERROR(b->weight_create(&weight, model->device, &model->mem, 16, 320, SB_Q6_K),
                SPECBATCH_E_UNSUPPORTED, "no whole blocks of q6_k");
    specbatch_model_close(model);
    free(rows);
    free(expected);
    free(got);
    CHECK(is_clean());
}

/* A matrix in MXFP4 lies in memory as the same numbers in BF16. */
static void test_mxfp4_is_widened(void)
{
    enum { ROWS = 40, INPUTS = 96 };
    const size_t row = sb_dtype_row_bytes(SB_MXFP4, INPUTS);
    unsigned char *rows = malloc(ROWS * row);
    uint16_t *wide = malloc(ROWS * INPUTS * sizeof *wide);
    struct specbatch_model *model = NULL;
    struct sb_weight weights[2];
    uint64_t state = 5;
    char *held[2] = {NULL, NULL};

    CHECK(rows != NULL && wide != NULL);
    for (size_t i = 0; i < ROWS * row; i++) /* a block's first byte is its scale */
        rows[i] = (unsigned char)(i % 17 == 0 ? 100 + trace_random(&state) % 50
                                              : trace_random(&state));
    for (size_t r = 0; r < ROWS; r++)
        sb_convert(wide + r * INPUTS, SB_BF16, rows + r * row, SB_MXFP4, INPUTS);
    CHECK_OK(open_quantised(&model, SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_AUTO));
    const struct sb_backend *b = model->backend;
    for (int i = 0; i < 2; i++) {
        const enum sb_dtype dtype = i == 0 ? SB_MXFP4 : SB_BF16;
        CHECK_OK(b->weight_create(&weights[i], model->device, &model->mem, ROWS, INPUTS, dtype));
        weights[i].is_of_expert = 1;
        CHECK_OK(b->weight_fill(&weights[i], model->device, 0, ROWS,
                                i == 0 ? (const void *)rows : wide, dtype));
        CHECK_INT(weights[i].dtype, SB_BF16);
        CHECK_INT(weights[i].bytes, weights[0].bytes);
        CHECK((held[i] = malloc(weights[i].bytes)) != NULL);
    }
    CHECK_INT(cudaDeviceSynchronize(), cudaSuccess);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(b->download(NULL, held[i], weights[i].data, weights[i].bytes));
        b->weight_free(&weights[i], model->device, &model->mem);
    }
    CHECK_MEM(held[0], held[1], weights[0].bytes);
    specbatch_model_close(model);
    free(rows);
    free(wide);
    free(held[0]);
    free(held[1]);
    CHECK(is_clean());
}

TEST_BEGIN
RUN(test_weights_stay_quantised);
RUN(test_mxfp4_is_widened);
RUN(test_no_memory_for_quantised_weights);
RUN(test_rows_of_a_quantised_weight_come_in_any_pieces);
TEST_END
