/*
 * Making and filling quantised weights. Rows are packed into tiles in pinned buffers (staging.h),
 * and copied from there in whole strips, a strip being the tiles of 16 rows.
 *
 *   rows given        ..11 12 13 14 15 | 16 .. 31 | 32 33 34            (the weight has more)
 *   strips sent        with what the   |  anew    |  with what the
 *                      device has      |          |  device has
 *
 * Where the rows given end inside a strip, the strip is first fetched from the device, because
 * other rows of it may have been there before. That is rare: pieces of a matrix are mostly whole
 * strips. Threads that fill at once never have rows of the same strip (backend.h).
 */
#include "backend/cuda/quant_weights.h"

#include <string.h>

#include "../kernels/cuda/quant_tile.h"
#include "backend/cuda/device.h"
#include "backend/cuda/quant_pack.h"
#include "quant.h"
#include "status.h"

_Static_assert(SB_FILL_UNIT % SB_QUANT_TILE_ROWS == 0, "no two threads fill rows of one strip");

int32_t sb_quant_weight_create(struct sb_weight *out, struct sb_device *device, enum sb_dtype dtype)
{
    struct sb_weight weight = *out;
    const struct sb_gpu *gpu = &device->gpu;
    const int32_t n_in = weight.n_in;
    const int block = sb_quant_of(dtype)->block;
    const int was = sb_cuda_enter(gpu);
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_set_type(device, SB_BF16));
    if (block > SB_QUANT_TILE_COLUMNS(SB_Q8_0) && n_in % block != 0)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "CUDA: rows of %d inputs are no whole blocks of %s",
                (int)n_in, sb_dtype_name(dtype));
    if (sb_tile_row_bytes(dtype, n_in) > SB_STAGE_BYTES)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "CUDA: 16 rows of a matrix of %d inputs are over %zu bytes", (int)n_in,
                SB_STAGE_BYTES);
    weight.dtype = dtype;
    weight.bytes = sb_tile_weight_bytes(dtype, weight.n_out, n_in);
    SB_TRY(sb_weight_memory_take(&weight.data, &device->weights, &device->gpu, weight.bytes));
    *out = weight;
    SB_TRY(sb_cuda_status(gpu, cudaMemsetAsync(weight.data, 0, weight.bytes, gpu->load), "a weight",
                          0));
    sb_cuda_note_quantised(device);
done:
    sb_cuda_leave(gpu, was);
    return rc;
}

/* Copies a strip from the device to where it is packed. What was sent before is there then. */
static int32_t fetch_strip(char *to, const char *dev, size_t bytes, const struct sb_gpu *gpu)
{
    cudaError_t error = cudaMemcpyAsync(to, dev, bytes, cudaMemcpyDeviceToHost, gpu->load);

    if (error == cudaSuccess)
        error = cudaStreamSynchronize(gpu->load);
    return sb_cuda_status(gpu, error, "loading weights", 0);
}

/* Fills rows that fit one buffer. */
static int32_t fill_piece(struct sb_weight *weight, struct sb_device *device, int32_t first,
                          int32_t n, const void *rows)
{
    const size_t strip = sb_tile_row_bytes(weight->dtype, weight->n_in);
    const int32_t begin = first / SB_QUANT_TILE_ROWS, end = (first + n - 1) / SB_QUANT_TILE_ROWS;
    const int begins_inside = first % SB_QUANT_TILE_ROWS != 0;
    const int ends_inside = (first + n) % SB_QUANT_TILE_ROWS != 0 && first + n < weight->n_out;
    char *dev = (char *)weight->data + (size_t)begin * strip;
    const size_t bytes = (size_t)(end - begin + 1) * strip, last = bytes - strip;
    struct sb_stage *stage = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_staging_take(&stage, &device->staging, &device->gpu));
    memset(stage->pinned, 0, bytes);
    if (begins_inside || (ends_inside && begin == end))
        SB_TRY(fetch_strip(stage->pinned, dev, strip, &device->gpu));
    if (ends_inside && begin < end)
        SB_TRY(fetch_strip(stage->pinned + last, dev + last, strip, &device->gpu));
    sb_quant_pack(stage->pinned, weight->dtype, weight->n_in, first % SB_QUANT_TILE_ROWS, n, rows);
    rc = sb_staging_send(&device->staging, stage, dev, bytes, &device->gpu);
    stage = NULL;
done:
    if (stage)
        sb_staging_drop(&device->staging, stage);
    return rc;
}

int32_t sb_quant_weight_fill(struct sb_weight *weight, struct sb_device *device, int32_t first,
                             int32_t n, const void *rows, enum sb_dtype dtype)
{
    const size_t row = sb_dtype_row_bytes(dtype, (size_t)weight->n_in);
    const size_t strips = SB_STAGE_BYTES / sb_tile_row_bytes(weight->dtype, weight->n_in);
    const int32_t most = (int32_t)strips * SB_QUANT_TILE_ROWS;
    const int was = sb_cuda_enter(&device->gpu);
    int32_t rc = SPECBATCH_OK;

    if (dtype != weight->dtype)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "CUDA: %s rows in a weight held as %s",
                sb_dtype_name(dtype), sb_dtype_name(weight->dtype));
    for (int32_t at = 0, count; at < n; at += count) {
        const int32_t room = most - (first + at) % SB_QUANT_TILE_ROWS;
        count = n - at < room ? n - at : room;
        SB_TRY(
            fill_piece(weight, device, first + at, count, (const char *)rows + (size_t)at * row));
    }
done:
    sb_cuda_leave(&device->gpu, was);
    return rc;
}
