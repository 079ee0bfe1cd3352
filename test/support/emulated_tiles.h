/*
 * For whole passes by the loops of the matrix unit (kernels/cpu/gemm_tiles.h) on processors that
 * have none: the unit is emulated.
 */
#ifndef SBTEST_EMULATED_TILES_H
#define SBTEST_EMULATED_TILES_H

#include "specbatch.h"

/* Opens a model on the CPU as specbatch_model_open does, with a simd of its own choice. Its
 * products in the order of blocks, which are those of bf16 weights in the classes BF16 and SPLIT,
 * and those of integers in the class INT8 are formed by the emulated unit. */
int32_t open_with_emulated_tiles(specbatch_model **out, const char *path,
                                 const specbatch_model_options *options);

#endif
