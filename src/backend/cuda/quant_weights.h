/*
 * Quantised weights on the device: they keep the type that they have in memory or in the file, in
 * tiles (kernels/cuda/quant_tile.h), in both numerics classes.
 */
#ifndef SB_CUDA_QUANT_WEIGHTS_H
#define SB_CUDA_QUANT_WEIGHTS_H

#include "backend/backend.h"

/* As weight_create and weight_fill of backend.h, for quantised types. Rows are given in the
 * weight's own type. */
int32_t sb_quant_weight_create(struct sb_weight *out, struct sb_device *device,
                               enum sb_dtype dtype);
int32_t sb_quant_weight_fill(struct sb_weight *weight, struct sb_device *device, int32_t first,
                             int32_t n, const void *rows, enum sb_dtype dtype);

#endif
