/*
 * Weights on the device. A weight is [n_out, ld] elements of the device's type, where ld is
 * sb_cuda_ld(n_in) (kernels/cuda/launch.h) and each row is padded with zeros; or quantised, in
 * tiles (quant_weights.h).
 */
#ifndef SB_CUDA_DEVICE_WEIGHTS_H
#define SB_CUDA_DEVICE_WEIGHTS_H

#include "backend/backend.h"

/* As weight_create, weight_fill and weight_free of backend.h. */
int32_t sb_cuda_weight_create(struct sb_weight *out, struct sb_device *device,
                              const struct sb_mem *mem, enum sb_dtype dtype);
int32_t sb_cuda_weight_fill(struct sb_weight *weight, struct sb_device *device, int32_t first,
                            int32_t n, const void *rows, enum sb_dtype dtype);
void sb_cuda_weight_free(struct sb_weight *weight, struct sb_device *device,
                         const struct sb_mem *mem);

#endif
