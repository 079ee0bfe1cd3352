/* cuBLASLt as the maker of products; gemm_library.h has the contract. */
#include "backend/cuda/gemm_library.h"

#include <stdio.h>

#include "../kernels/cuda/launch.h"

/* In as much there is work for all of a GPU, and most models have a weight as large. */
#define PIECE_BYTES ((size_t)64 << 20)

enum { ALIGNED = 64 }; /* rows: pieces begin where vectors of y and whole tiles do */

static cudaDataType_t lt_type(const struct sb_gemm_library *library)
{
    return library->type == SB_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static int make_layout(cublasLtMatrixLayoutOpaque_t *layout, const struct sb_gemm_library *library,
                       cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld)
{
    return library->api.layout_init(layout, sizeof *layout, type, (uint64_t)rows, (uint64_t)cols,
                                    ld) == CUBLAS_STATUS_SUCCESS;
}

int32_t sb_gemm_piece(const struct sb_gemm_library *library, const struct sb_gemm_size *size)
{
    const size_t row = (size_t)sb_cuda_ld(SB_BF16, size->n_in) * 2 + 1;
    const int32_t most = (int32_t)(library->piece_bytes / row) + 1;
    const int32_t pieces = size->n_out / most + 1; /* of about the same size */

    return (size->n_out / pieces + ALIGNED) / ALIGNED * ALIGNED;
}

size_t sb_gemm_piece_bytes(const struct sb_gemm_library *library, const struct sb_gemm_size *size)
{
    return (size_t)sb_gemm_piece(library, size) * (size_t)sb_cuda_ld(SB_BF16, size->n_in) * 2;
}

int sb_gemm_layouts(struct sb_gemm_layouts *l, const struct sb_gemm_library *library,
                    const struct sb_gemm_size *size, int32_t rows)
{
    const int64_t ld = sb_cuda_ld(library->type, size->n_in);

    return make_layout(&l->a, library, lt_type(library), ld, rows, ld) &&
           make_layout(&l->b, library, lt_type(library), ld, size->m, ld) &&
           make_layout(&l->d, library, CUDA_R_32F, rows, size->m, size->n_out);
}

int sb_gemm_by_library(const struct sb_gemm_library *library, float *y, const void *x,
                       const void *w, void *scratch, const struct sb_gemm_size *size,
                       const cublasLtMatmulAlgo_t *algo, cudaStream_t stream)
{
    const float one = 1.0f, zero = 0.0f;
    const int64_t ld = sb_cuda_ld(library->type, size->n_in);
    const int32_t piece = sb_gemm_piece(library, size);
    struct sb_gemm_layouts l;

    for (int32_t first = 0, n; first < size->n_out; first += n) {
        n = size->n_out - first < piece ? size->n_out - first : piece;
        if (sb_cuda_untile(scratch, w, first, n, ld, size->gated, stream) != cudaSuccess ||
            !sb_gemm_layouts(&l, library, size, n) ||
            library->api.matmul(library->handle, library->desc, &one, scratch, &l.a, x, &l.b, &zero,
                                y + first, &l.d, y + first, &l.d, algo, NULL, 0,
                                stream) != CUBLAS_STATUS_SUCCESS) {
            (void)cudaGetLastError(); /* the own kernel makes it instead, so nothing has failed */
            return 0;
        }
    }
    return 1;
}

static int start(struct sb_gemm_library *library, char *why, size_t why_size)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;

    if (!sb_cublaslt_load(&library->api, why, why_size))
        return 0;
    snprintf(why, why_size, "cuBLASLt %zu does not start", library->api.version());
    return library->api.create(&library->handle) == CUBLAS_STATUS_SUCCESS &&
           library->api.desc_create(&library->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           library->api.desc_set(library->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                 sizeof transposed) == CUBLAS_STATUS_SUCCESS;
}

void sb_gemm_library_open(struct sb_gemm_library *library, enum sb_dtype type, char *why,
                          size_t why_size)
{
    library->type = type;
    library->piece_bytes = PIECE_BYTES;
    library->is_usable = start(library, why, why_size);
    if (!library->is_usable)
        (void)cudaGetLastError();
}

void sb_gemm_library_close(struct sb_gemm_library *library)
{
    if (library->desc)
        (void)library->api.desc_destroy(library->desc);
    if (library->handle)
        (void)library->api.destroy(library->handle);
}
