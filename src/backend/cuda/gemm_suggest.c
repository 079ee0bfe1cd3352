/*
 * What cuBLASLt's heuristic suggests, without what is known to add in another order than one
 * accumulator over ascending k: algorithms with split-k, with a reduction, with workspace
 * (stream-k), or of a gemv family. What is left may do so too; gemm_plan.c compares the bits.
 */
#include "backend/cuda/gemm_suggest.h"

static int get(const struct sb_gemm_library *library, const cublasLtMatmulAlgo_t *algo,
               cublasLtMatmulAlgoConfigAttributes_t attribute, void *value, size_t size)
{
    size_t written;

    return library->api.algo_get(algo, attribute, value, size, &written) == CUBLAS_STATUS_SUCCESS;
}

static int is_un_split(const struct sb_gemm_library *library, const cublasLtMatmulAlgo_t *algo)
{
    int32_t split = 0;
    uint32_t reduction = 1;

    return get(library, algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split) &&
           get(library, algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
               sizeof reduction) &&
           (split == 0 || split == 1) && reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static uint32_t attribute(const struct sb_gemm_library *library, const cublasLtMatmulAlgo_t *algo,
                          cublasLtMatmulAlgoConfigAttributes_t which, size_t size)
{
    uint32_t word = 0;
    uint16_t half = 0;

    if (size == sizeof half)
        return get(library, algo, which, &half, size) ? half : 0;
    return get(library, algo, which, &word, size) ? word : 0;
}

struct sb_algo_name sb_algo_name_of(const struct sb_gemm_library *library,
                                    const cublasLtMatmulAlgo_t *algo)
{
    return (struct sb_algo_name){
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_ID, 4),
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4),
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
        attribute(library, algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2)};
}

/* Families of kernels that cuBLASLt takes for few rows. They run on ordinary cores and add in other
 * orders. */
static int is_gemv(uint32_t id)
{
    return id == 11 || id == 13 || id == 14 || id == 16 || id == 41 || id == 56;
}

static int set(const struct sb_gemm_library *library, cublasLtMatmulPreference_t preference,
               cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t size)
{
    return library->api.preference_set(preference, attribute, value, size) == CUBLAS_STATUS_SUCCESS;
}

static int set_preference(const struct sb_gemm_library *library,
                          cublasLtMatmulPreference_t preference, int32_t n_out)
{
    const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE, in = 16,
                   out = n_out % 4 == 0 ? 16 : 4;
    const size_t workspace = 0;

    return set(library, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
               sizeof workspace) &&
           set(library, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_reduction,
               sizeof no_reduction) &&
           set(library, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &in, sizeof in) &&
           set(library, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &in, sizeof in) &&
           set(library, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof out) &&
           set(library, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof out);
}

/* The rows of all pieces but the last. */
static int32_t whole_piece(const struct sb_gemm_library *library, const struct sb_gemm_size *size)
{
    const int32_t piece = sb_gemm_piece(library, size);

    return size->n_out < piece ? size->n_out : piece;
}

int sb_gemm_suggestions(cublasLtMatmulHeuristicResult_t *found, int most,
                        const struct sb_gemm_library *library, const struct sb_gemm_size *size)
{
    cublasLtMatmulPreference_t preference = NULL;
    struct sb_gemm_layouts l;
    int n = 0, kept = 0;

    if (library->api.preference_create(&preference) != CUBLAS_STATUS_SUCCESS)
        return 0;
    if (!set_preference(library, preference, size->n_out) ||
        !sb_gemm_layouts(&l, library, size, whole_piece(library, size)) ||
        library->api.heuristic(library->handle, library->desc, &l.a, &l.b, &l.d, &l.d, preference,
                               most, found, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    (void)library->api.preference_destroy(preference);
    for (int i = 0; i < n; i++) {
        const cublasLtMatmulAlgo_t *algo = &found[i].algo;
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize == 0 &&
            is_un_split(library, algo) && !is_gemv(sb_algo_name_of(library, algo).id))
            found[kept++] = found[i];
    }
    return kept;
}
