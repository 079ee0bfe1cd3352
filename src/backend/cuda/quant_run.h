/*
 * Products with maps that have quantised weights, or rows of several types (struct sb_weight.next).
 */
#ifndef SB_CUDA_QUANT_RUN_H
#define SB_CUDA_QUANT_RUN_H

#include "backend/backend.h"
#include "backend/cuda/device.h"

/* Queues y [m, all rows of the map] = x W^T + bias; bias may be NULL. */
cudaError_t sb_quant_run(const struct sb_device *device, float *y, const void *x,
                         const struct sb_weight *map, const float *bias, int32_t m,
                         cudaStream_t stream);

#endif
