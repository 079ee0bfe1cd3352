/*
 * Packing rows of quantised weights, as files have them, into tiles (kernels/cuda/quant_tile.h).
 */
#ifndef SB_CUDA_QUANT_PACK_H
#define SB_CUDA_QUANT_PACK_H

#include "backend/backend.h"

/* Packs n rows of n_in elements of `type` into host memory with tiles, as the rows from `first` on
 * of those that the first tile there begins with. What is there of these rows must be zeros. */
void sb_quant_pack(void *tiles, enum sb_dtype type, int32_t n_in, int32_t first, int32_t n,
                   const void *rows);

#endif
