/*
 * Quantised weights on the simulated device, as a model that is opened has them: they stay what
 * they are, in tiles.
 */
#include "cudasim.h"

#include <cuda_runtime_api.h>

#include "../kernels/cuda/quant_tile.h"
#include "backend/cuda/quant_pack.h"
#include "model/model.h"
#include "sbtest.h"

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
    struct sb_weight weight;
    specbatch_model *model;

    CHECK(rows && expected && got);
    for (size_t i = 0; i < ROWS * row; i++)
        rows[i] = (char)(i * 31 + i / 7);
    sb_quant_pack(expected, type, INPUTS, 0, ROWS, rows);
    CHECK_OK(open_quantised(&model, SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_Q4));
    const struct sb_backend *b = model->backend;
    CHECK_OK(b->weight_create(&weight, model->device, &model->mem, ROWS, INPUTS, type));
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

static void test_rows_of_no_whole_blocks_are_refused(void)
{
    struct sb_weight weight;
    specbatch_model *model;

    CHECK_OK(open_quantised(&model, SPECBATCH_COMPUTE_BF16, SPECBATCH_WEIGHTS_Q4));
    CHECK_ERROR(
        model->backend->weight_create(&weight, model->device, &model->mem, 16, 320, SB_Q6_K),
        SPECBATCH_E_UNSUPPORTED, "no whole blocks of q6_k");
    specbatch_model_close(model);
    CHECK(is_clean());
}

TEST_BEGIN
RUN(test_weights_stay_quantised);
RUN(test_no_memory_for_quantised_weights);
RUN(test_rows_of_a_quantised_weight_come_in_any_pieces);
RUN(test_rows_of_no_whole_blocks_are_refused);
TEST_END
