/*
 * One product by cuBLASLt: y [m, n_out] f32 = x [m, ld] W^T. Which algorithm may make it is
 * gemm_plan.h's business, who makes it gemm_run.h's.
 *
 * cuBLASLt reads dense rows, and a weight lies in tiles (kernels/cuda/launch.h). So pieces of it
 * are written out of the tiles into scratch memory, one after the other, and multiplied there:
 *
 *     W, in tiles   | piece 0 | piece 1 | piece 2 |      y  | piece 0 | piece 1 | piece 2 |  m rows
 *                        '-> scratch [rows of a piece, ld] -> columns of y
 *
 * That reads and writes the weight once more, which only products of many rows make worth while.
 * Rejected: a second copy of every weight in dense rows, which would take the model's memory again;
 * dense rows alone, from which the own kernel would read slower what most rounds need.
 */
#ifndef SB_CUDA_GEMM_LIBRARY_H
#define SB_CUDA_GEMM_LIBRARY_H

#include "backend/backend.h"
#include "backend/cuda/cublaslt_api.h"

struct sb_gemm_library {
    enum sb_dtype type;     /* of weights and inputs */
    int is_usable;          /* cuBLASLt is there, and has started */
    struct sb_cublaslt api; /* empty where cuBLASLt is not there; then there is no handle either */
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    size_t piece_bytes; /* of a piece of a weight, about */
};

struct sb_gemm_size {
    int32_t m, n_out, n_in;
    int32_t gated; /* as in struct sb_weight */
};

/* The rows of a piece of a weight, and the scratch memory that it takes. */
int32_t sb_gemm_piece(const struct sb_gemm_library *library, const struct sb_gemm_size *size);
size_t sb_gemm_piece_bytes(const struct sb_gemm_library *library, const struct sb_gemm_size *size);

/* As cuBLASLt sees a product, by columns: D [n_out, m] = A^T [n_out, ld] * B [ld, m], where A is
 * the weight and B the inputs, as they lie in memory. */
struct sb_gemm_layouts {
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

/* Loads and starts cuBLASLt for elements of `type`. Where that fails, is_usable stays 0 and `why`
 * says what is missing. */
void sb_gemm_library_open(struct sb_gemm_library *library, enum sb_dtype type, char *why,
                          size_t why_size);
void sb_gemm_library_close(struct sb_gemm_library *library);
/* The layouts for a piece of `rows` rows of the weight. 0: cuBLASLt refuses. */
int sb_gemm_layouts(struct sb_gemm_layouts *l, const struct sb_gemm_library *library,
                    const struct sb_gemm_size *size, int32_t rows);
/* Queues a product, with scratch of sb_gemm_piece_bytes. 0: cuBLASLt refuses, and no error of it is
 * left in the thread. */
int sb_gemm_by_library(const struct sb_gemm_library *library, float *y, const void *x,
                       const void *w, void *scratch, const struct sb_gemm_size *size,
                       const cublasLtMatmulAlgo_t *algo, cudaStream_t stream);

#endif
