/*
 * The algorithms that cuBLASLt suggests for a product, and their names.
 */
#ifndef SB_CUDA_GEMM_SUGGEST_H
#define SB_CUDA_GEMM_SUGGEST_H

#include "backend/cuda/gemm_library.h"
#include "backend/cuda/plan_file.h"

/* Fills found, of `most`, with the suggestions that may be tried, best first. Returns how many. */
int sb_gemm_suggestions(cublasLtMatmulHeuristicResult_t *found, int most,
                        const struct sb_gemm_library *library, const struct sb_gemm_size *size);
/* Attributes that this version of cuBLASLt does not have are 0. */
struct sb_algo_name sb_algo_name_of(const struct sb_gemm_library *library,
                                    const cublasLtMatmulAlgo_t *algo);

#endif
