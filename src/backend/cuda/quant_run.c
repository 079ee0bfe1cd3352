/*
 * A map's weights write columns of one y, side by side, so rows of y are further apart than a
 * weight has outputs:
 *
 *     map        [q rows | k rows] Q4_K  - next ->  [v rows] Q6_K
 *     row of y   [ q, k                 |             v        ]        ldy = all of them
 *
 * Kernels for quantised weights take ldy. Those for other weights do not, as no other maps need it:
 * where a map has such rows beside quantised ones, which is rare, they are multiplied by one row of
 * x at a time. That changes no bit, because a row has the bits that it has alone.
 */
#include "backend/cuda/quant_run.h"

#include "../kernels/cuda/launch.h"

static cudaError_t run_quantised(const struct sb_device *device, float *y, int64_t ldy,
                                 const void *x, const struct sb_weight *weight, const float *bias,
                                 int32_t m, cudaStream_t stream)
{
    if (device->type == SB_F32)
        return sb_cuda_gemm_quant_reference(y, ldy, x, weight->data, weight->dtype, bias, m,
                                            weight->n_out, weight->n_in, stream);
    return sb_cuda_gemm_quant(y, ldy, x, device->type, weight->data, weight->dtype, bias, m,
                              weight->n_out, weight->n_in, stream);
}

static cudaError_t run_by_rows(const struct sb_device *device, float *y, int64_t ldy, const void *x,
                               const struct sb_weight *weight, const float *bias, int32_t m,
                               cudaStream_t stream)
{
    const size_t x_row = (size_t)sb_cuda_ld(device->type, weight->n_in) *
                         sb_dtype_size(device->type);
    cudaError_t error = cudaSuccess;

    for (int32_t r = 0; error == cudaSuccess && r < m; r++) {
        const char *row = (const char *)x + (size_t)r * x_row;
        const struct sb_product product = {y + r * ldy, NULL, row, weight, bias, 1, NULL};
        error = device->gemm
                    ? sb_gemm_run(device->gemm, &product, stream)
                    : sb_cuda_gemm_reference(product.y, (const float *)product.x, weight->data,
                                             bias, 1, weight->n_out, weight->n_in, stream);
    }
    return error;
}

cudaError_t sb_quant_run(const struct sb_device *device, float *y, const void *x,
                         const struct sb_weight *map, const float *bias, int32_t m,
                         cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    int64_t ldy = 0;

    for (const struct sb_weight *w = map; w; w = w->next)
        ldy += w->n_out;
    for (const struct sb_weight *w = map; w && error == cudaSuccess; w = w->next) {
        error = sb_dtype_is_quantised(w->dtype)
                    ? run_quantised(device, y, ldy, x, w, bias, m, stream)
                    : run_by_rows(device, y, ldy, x, w, bias, m, stream);
        y += w->n_out;
        bias = bias ? bias + w->n_out : NULL;
    }
    return error;
}
