/*
 * Products of the 16-bit class: y [m, n_out] f32 = x [m, n_in] W^T + bias, one numerics class for
 * every m. gemm_run.c says who makes them.
 */
#ifndef SB_CUDA_GEMM_RUN_H
#define SB_CUDA_GEMM_RUN_H

#include "backend/backend.h"
#include "backend/cuda/cuda_stream.h"

struct sb_gemm; /* of one device: its shapes of weights, and their plans */

/* For weights and inputs of `type`. A cuBLASLt that cannot be used is no error: the own kernels
 * then make all products. plan_file: a path for plan_file.h, which is copied, or NULL. The device
 * must be current. E_NOMEM. */
int32_t sb_gemm_create(struct sb_gemm **out, const struct sb_gpu *gpu, enum sb_dtype type,
                       const char *plan_file);
void sb_gemm_free(struct sb_gemm *gemm);
/* What the fingerprint says about products. */
const char *sb_gemm_class(const struct sb_gemm *gemm);
/* Remembers the shape of a weight that products will be made with, or forgets one that is about to
 * be freed. Once `gated` is set. E_NOMEM. */
int32_t sb_gemm_add_weight(struct sb_gemm *gemm, const struct sb_weight *weight);
void sb_gemm_forget_weight(struct sb_gemm *gemm, const struct sb_weight *weight);
/* Makes sure that products of up to max_m rows are planned. Threads that need plans at once wait
 * for each other, and then test only what is new. E_NOMEM, E_DEVICE. */
int32_t sb_gemm_prepare(struct sb_gemm *gemm, const struct sb_gpu *gpu, int32_t max_m);
/* Bytes of scratch memory that products of up to max_m rows need, or 0. */
size_t sb_gemm_scratch(const struct sb_gemm *gemm, int32_t max_m);

/* A product to be made, gated or not. */
struct sb_product {
    float *y;  /* dev [m, n_out]: the results, or memory for those that are then gated */
    void *act; /* dev [m] gemm inputs: the results gated by silu, or NULL: they are not gated */
    const void *x;
    const struct sb_weight *weight;
    const float *bias; /* or NULL */
    int32_t m;
    void *scratch; /* dev, of sb_gemm_scratch */
};

/* Queues it. */
cudaError_t sb_gemm_run(const struct sb_gemm *gemm, const struct sb_product *product,
                        cudaStream_t stream);

#endif
