/*
 * Making, filling and freeing weights. Rows are converted into pinned buffers (staging.h), by
 * several threads at once, and copied from there on the loading stream: in the f32 class to their
 * place, in the 16-bit class to the landing buffer, out of which a kernel puts them into the
 * weight's tiles.
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

/* Has the log hear of each further GiB of weights. */
static void report(struct sb_device *device, size_t bytes)
{
    const size_t before = device->reported;

    device->reported += bytes;
    if (before / REPORT_BYTES != device->reported / REPORT_BYTES)
        sb_log(&device->gpu.log, SPECBATCH_LOG_INFO, "CUDA: loading, %zu GiB of weights so far",
               device->reported / REPORT_BYTES);
}

static int32_t create(struct sb_weight *out, struct sb_device *device, enum sb_dtype dtype)
{
    struct sb_weight weight = *out;
    const int was = sb_cuda_enter(&device->gpu);
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_set_type(device, dtype == SB_F16 ? SB_F16 : SB_BF16));
    weight.dtype = device->type;
    weight.bytes = (size_t)sb_cuda_weight_size(weight.dtype, weight.n_out, weight.n_in) *
                   sb_dtype_size(weight.dtype);
    if (row_bytes(weight.dtype, weight.n_in) > SB_STAGE_BYTES)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "CUDA: a matrix of %d inputs is wider than %zu bytes",
                weight.n_in, SB_STAGE_BYTES);
    SB_TRY(sb_weight_memory_take(&weight.data, &device->weights, &device->gpu, weight.bytes));
    *out = weight;
    SB_TRY(clear_last_panel(out, device));
    if (device->gemm && !weight.is_of_expert)
        SB_TRY(sb_gemm_add_weight(device->gemm, out));
done:
    sb_cuda_leave(&device->gpu, was);
    return rc;
}

int32_t sb_cuda_weight_create(struct sb_weight *out, struct sb_device *device,
                              const struct sb_mem *mem, enum sb_dtype dtype)
{
    const int32_t rc = SB_QUANT_TILE_HAS(dtype) ? sb_quant_weight_create(out, device, dtype)
                                                : create(out, device, dtype);

    (void)mem;
    report(device, rc == SPECBATCH_OK ? out->bytes : 0);
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
    const size_t row = row_bytes(weight->dtype, weight->n_in), bytes = (size_t)n * row;
    const int64_t ld = sb_cuda_ld(weight->dtype, weight->n_in);
    void *landing;
    int32_t rc;

    if (weight->dtype == SB_F32)
        return sb_staging_send(&device->staging, stage, (char *)weight->data + (size_t)first * row,
                               bytes, &device->gpu);
    rc = sb_staging_land(&landing, &device->staging, stage, bytes, &device->gpu);
    if (rc != SPECBATCH_OK)
        return rc;
    rc = sb_cuda_status(
        &device->gpu,
        sb_cuda_tile(weight->data, landing, first, n, ld, weight->gated, device->gpu.load),
        "loading weights", 0);
    sb_staging_landed(&device->staging);
    return rc;
}

int32_t sb_cuda_weight_fill(struct sb_weight *weight, struct sb_device *device, int32_t first,
                            int32_t n, const void *rows, enum sb_dtype dtype)
{
    const size_t from_row = sb_dtype_row_bytes(dtype, (size_t)weight->n_in);
    const int32_t block = (int32_t)(SB_STAGE_BYTES / row_bytes(weight->dtype, weight->n_in));
    int32_t rc = SPECBATCH_OK;
    int was;

    if (sb_dtype_is_quantised(weight->dtype))
        return sb_quant_weight_fill(weight, device, first, n, rows, dtype);
    was = sb_cuda_enter(&device->gpu);
    for (int32_t at = 0, count; at < n; at += count) {
        struct sb_stage *stage = NULL;
        count = n - at < block ? n - at : block;
        SB_TRY(sb_staging_take(&stage, &device->staging, &device->gpu));
        convert_rows(stage->pinned, weight, (const char *)rows + (size_t)at * from_row, count,
                     dtype);
        SB_TRY(send_rows(weight, device, stage, first + at, count));
    }
done:
    sb_cuda_leave(&device->gpu, was);
    return rc;
}
