/*
 * Making, filling and freeing weights. Rows are converted into the pinned buffers of the device's
 * staging ring and copied from there on the loading stream: in the f32 class to their place, in the
 * 16-bit class to a landing buffer, out of which a kernel puts them into the weight's tiles.
 */
#include "backend/cuda/device_weights.h"

#include <string.h>

#include "../kernels/cuda/launch.h"
#include "../kernels/cuda/quant_tile.h"
#include "backend/cuda/device.h"
#include "backend/cuda/quant_weights.h"
#include "status.h"

#define REPORT_BYTES ((size_t)1 << 30) /* between two lines of the log */

static size_t row_bytes(enum sb_dtype type, int32_t n_in)
{
    return (size_t)sb_cuda_ld(type, n_in) * sb_dtype_size(type);
}

/* Rows that the last panel of tiles has more than the weight are zeros. */
static int32_t clear_last_panel(const struct sb_weight *weight, const struct sb_device *device)
{
    const size_t panel = SB_TILE_ROWS * row_bytes(weight->dtype, weight->n_in);

    if (weight->dtype == SB_F32 || weight->n_out % SB_TILE_ROWS == 0)
        return SPECBATCH_OK;
    return sb_cuda_status(
        &device->gpu,
        cudaMemsetAsync((char *)weight->data + weight->bytes - panel, 0, panel, device->gpu.load),
        "a weight", 0);
}

int32_t sb_cuda_weight_create(struct sb_weight *out, struct sb_device *device,
                              const struct sb_mem *mem, int32_t n_out, int32_t n_in,
                              enum sb_dtype dtype)
{
    struct sb_weight weight = {.n_out = n_out, .n_in = n_in};
    const int was = sb_cuda_enter(&device->gpu);
    int32_t rc = SPECBATCH_OK;

    (void)mem;
    if (SB_QUANT_TILE_HAS(dtype)) {
        sb_cuda_leave(&device->gpu, was);
        return sb_quant_weight_create(out, device, n_out, n_in, dtype);
    }
    SB_TRY(sb_cuda_set_type(device, dtype == SB_F16 ? SB_F16 : SB_BF16));
    weight.dtype = device->type;
    weight.bytes = (size_t)sb_cuda_weight_size(weight.dtype, n_out, n_in) *
                   sb_dtype_size(weight.dtype);
    if (row_bytes(weight.dtype, n_in) > SB_STAGE_BYTES)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "CUDA: a matrix of %d inputs is wider than %zu bytes",
                n_in, SB_STAGE_BYTES);
    SB_TRY(sb_weight_memory_take(&weight.data, &device->weights, &device->gpu, weight.bytes));
    *out = weight;
    SB_TRY(clear_last_panel(out, device));
done:
    sb_cuda_leave(&device->gpu, was);
    return rc;
}

void sb_cuda_weight_free(struct sb_weight *weight, struct sb_device *device,
                         const struct sb_mem *mem)
{
    (void)mem;
    if (weight->data) {
        if (device->gemm)
            sb_gemm_forget_weight(device->gemm, weight);
        sb_weight_memory_give(&device->weights, &device->gpu, weight->data, weight->bytes);
    }
    weight->data = NULL;
}

static void report_progress(struct sb_device *device, size_t bytes)
{
    const size_t before = device->reported;

    device->reported += bytes;
    if (before / REPORT_BYTES != device->reported / REPORT_BYTES)
        sb_log(&device->gpu.log, SPECBATCH_LOG_INFO, "CUDA: %zu GiB of weights uploaded",
               device->reported / REPORT_BYTES);
}

static void convert_rows(char *to, const struct sb_weight *weight, const char *rows, int32_t n,
                         enum sb_dtype dtype)
{
    const size_t size = sb_dtype_size(weight->dtype), n_in = (size_t)weight->n_in;
    const size_t from_row = sb_dtype_row_bytes(dtype, n_in);
    const size_t to_row = row_bytes(weight->dtype, weight->n_in);

    if (dtype == weight->dtype && to_row == n_in * size) {
        memcpy(to, rows, (size_t)n * to_row);
        return;
    }
    for (size_t r = 0; r < (size_t)n; r++) {
        sb_convert(to + r * to_row, weight->dtype, rows + r * from_row, dtype, n_in);
        memset(to + r * to_row + n_in * size, 0, to_row - n_in * size);
    }
}

/* Sends n rows of the weight, from row `first` on, on their way out of a pinned buffer. */
static int32_t send_rows(const struct sb_weight *weight, struct sb_device *device,
                         struct sb_stage *stage, int32_t first, int32_t n)
{
    const size_t row = row_bytes(weight->dtype, weight->n_in);
    const int64_t ld = sb_cuda_ld(weight->dtype, weight->n_in);
    void *landing;
    int32_t rc = SPECBATCH_OK;

    if (weight->dtype == SB_F32)
        return sb_staging_send(stage, (char *)weight->data + (size_t)first * row, (size_t)n * row,
                               &device->gpu);
    SB_TRY(sb_staging_landing(&landing, &device->staging, &device->gpu));
    SB_TRY(sb_staging_send(stage, landing, (size_t)n * row, &device->gpu));
    SB_TRY(sb_cuda_status(
        &device->gpu,
        sb_cuda_tile(weight->data, landing, first, n, ld, weight->gated, device->gpu.load),
        "loading weights", 0));
done:
    return rc;
}

int32_t sb_cuda_weight_fill(struct sb_weight *weight, struct sb_device *device, int32_t first,
                            int32_t n, const void *rows, enum sb_dtype dtype)
{
    const size_t from_row = sb_dtype_row_bytes(dtype, (size_t)weight->n_in);
    const size_t to_row = row_bytes(weight->dtype, weight->n_in);
    const int32_t block = (int32_t)(SB_STAGE_BYTES / to_row);
    size_t sent = 0;
    int32_t rc = SPECBATCH_OK;
    int was;

    if (sb_dtype_is_quantised(weight->dtype)) {
        rc = sb_quant_weight_fill(weight, device, first, n, rows, dtype);
        report_progress(device, rc == SPECBATCH_OK ? (size_t)n * from_row : 0);
        return rc;
    }
    was = sb_cuda_enter(&device->gpu);
    if (device->gemm && !weight->is_of_expert)
        SB_TRY(sb_gemm_add_weight(device->gemm, weight));
    for (int32_t at = 0, count; at < n; at += count) {
        struct sb_stage *stage = NULL;
        count = n - at < block ? n - at : block;
        SB_TRY(sb_staging_take(&stage, &device->staging, &device->gpu));
        convert_rows(stage->pinned, weight, (const char *)rows + (size_t)at * from_row, count,
                     dtype);
        SB_TRY(send_rows(weight, device, stage, first + at, count));
        sent += (size_t)count * to_row;
    }
done:
    sb_cuda_leave(&device->gpu, was);
    report_progress(device, sent);
    return rc;
}
