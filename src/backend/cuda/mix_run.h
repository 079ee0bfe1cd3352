/* Mixtures of experts on a CUDA device. mix_run.c says how. */
#ifndef SB_CUDA_MIX_RUN_H
#define SB_CUDA_MIX_RUN_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"

/* Queues the operation `mix` of backend.h on a device whose gemm inputs are of `type`. pairs: dev,
 * of sb_cuda_pairs_bytes(). */
cudaError_t sb_mix_run(enum sb_dtype type, const struct sb_mixture *mixture, void *pairs,
                       cudaStream_t stream);

#endif
