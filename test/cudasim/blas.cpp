/*
 * cublasLt: D = A^T B in columns, A [k, n] and B [k, m] of f32, bf16 or f16, D [n, m] f32, bias
 * over n if asked for.
 *
 * An un-split algorithm takes ascending steps of 16 along k from 0. They are the simulated tensor
 * core's steps for elements of 16 bits (tensor.cpp), and fused multiply-adds for f32. A split
 * algorithm adds the sums of its parts, so its bits differ, as those of a real one do. The
 * heuristic offers them in this order, in which the first is not one that a caller may use:
 *
 *     id 66 stages 35 split-k 2     not without workspace, nor when the reduction mask forbids it
 *     id 13 (a gemv family)         for m = 1; adds in another order (descending k)
 *     id 66 stages 35 split-k 1     two tiles, the same bits
 *
 * cudasim_break_blas makes the library wrong in one of the ways that a caller's self-test must
 * notice. cudasim_blas(0) takes the library away, as on a machine with only the driver.
 */
#include "cublasLt.h"

extern "C" {
#include "backend/cuda/cublaslt_api.h"
}

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <vector>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "runtime.h"
#include "tensor.h"

using namespace cudasim;

struct cublasLtContext {
    int unused;
};

struct layout {
    uint64_t type, rows, cols;
    int64_t ld;
};
struct desc {
    uint64_t compute, trans_a, trans_b, epilogue;
    const float *bias;
};
struct preference {
    uint64_t workspace, mask;
};
struct algo {
    int32_t id, stages, split, reduction, tile, custom;
};

template <typename V, typename O>
static V read(const O *opaque)
{
    static_assert(sizeof(V) <= sizeof(O), "it fits the opaque type");
    V value;
    memcpy(&value, opaque, sizeof value);
    return value;
}

template <typename V, typename O>
static void write(O *opaque, const V &value)
{
    memset(opaque, 0, sizeof *opaque);
    memcpy(opaque, &value, sizeof value);
}

static cudasim_blas_fault fault_now;
static int64_t fault_argument, calls;
static int version_there = 130100;

/* ------------------------------------------------------------------ the product */

struct product {
    const char *a, *b;
    float *d;
    const float *bias;
    uint64_t type_a, type_b;
    int64_t n, m, k, lda, ldb, ldd;
    algo how;
};

static size_t element_size(uint64_t type) { return type == CUDA_R_32F ? 4 : 2; }

static void widen(float *out, const char *in, uint64_t type, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned short half;
        if (type == CUDA_R_32F) {
            memcpy(&out[i], in + 4 * i, 4);
            continue;
        }
        memcpy(&half, in + 2 * i, 2);
        out[i] = type == CUDA_R_16BF ? __bfloat162float(__ushort_as_bfloat16(half))
                                     : __half2float(__ushort_as_half(half));
    }
}

/* Rows side by side. The last one stands there again until their number is a multiple of eight. */
static std::vector<float> widened_rows(const char *in, uint64_t type, int64_t rows, int64_t k,
                                       int64_t ld)
{
    const int64_t padded = (rows + 7) / 8 * 8;
    std::vector<float> values((size_t)(padded * k));

    for (int64_t r = 0; r < padded; r++)
        widen(values.data() + r * k, in + (size_t)(std::min(r, rows - 1) * ld) * element_size(type),
              type, k);
    return values;
}

/* Rows of values, and the same split as the tensor core needs them. */
struct operand {
    std::vector<float> values;
    std::vector<int32_t> parts; /* of tensor_split */
    tensor_factors factors;
    int64_t k;
    bool is_16_bit;

    operand(const char *in, uint64_t type, int64_t rows, int64_t columns, int64_t ld)
        : values(widened_rows(in, type, rows, columns, ld)), parts(2 * values.size()),
          factors(tensor_split(values.data(), values.size(), parts.data(),
                               parts.data() + values.size())),
          k(columns), is_16_bit(type != CUDA_R_32F)
    {
    }
};

/* Eight rows of b from `row` on, in steps of the tensor core. */
struct eight_rows {
    int64_t row;
    std::vector<tensor_step> steps;
};

static eight_rows rows_from(const operand &b, int64_t row)
{
    eight_rows rows = {row, {}};

    for (int64_t at = 0; b.is_16_bit && at + 16 <= b.k; at += 16)
        rows.steps.push_back(tensor_gather(b.factors, (size_t)(row * b.k + at), (size_t)b.k));
    return rows;
}

/* The sums over columns [first, last) in ascending order, by the tensor core where the type has 16
 * bits. */
static void ascending(float sums[8], const operand &a, int64_t o, const operand &b,
                      const eight_rows &rows, int64_t first, int64_t last)
{
    const int64_t at_a = o * a.k, at_b = rows.row * b.k;

    std::fill(sums, sums + 8, 0.0f);
    if (a.is_16_bit && first % 16 == 0 && last % 16 == 0 && fault_now != CUDASIM_BLAS_CHAIN) {
        tensor_sums(sums, a.factors, (size_t)(at_a + first), rows.steps.data() + first / 16,
                    (size_t)(last - first) / 16, b.factors, (size_t)(at_b + first), (size_t)b.k);
        return;
    }
    for (int64_t j = 0; j < 8; j++)
        for (int64_t i = first; i < last; i++)
            sums[j] = fmaf(a.values[at_a + i], b.values[at_b + j * b.k + i], sums[j]);
}

static float descending(const operand &a, int64_t row, const operand &b, int64_t column)
{
    float sum = 0.0f;

    for (int64_t i = a.k - 1; i >= 0; i--)
        sum = fmaf(a.values[row * a.k + i], b.values[column * b.k + i], sum);
    return sum;
}

/* Whether output o of row r comes from a tile that adds in another order. */
static bool is_wrong(const product &p, int64_t o, int64_t r)
{
    switch (fault_now) {
    case CUDASIM_BLAS_ROWS:
        return p.m > fault_argument;
    case CUDASIM_BLAS_TILE:
        return p.how.tile == 20 && r >= 64 && r < 128 && o % fault_argument == 5;
    default:
        return p.how.id == 13;
    }
}

/* Makes output o of eight rows, or of those that there are. */
static void store(const product &p, const operand &a, const operand &b, const eight_rows &rows,
                  int64_t o)
{
    float sums[8] = {0};

    for (int64_t s = 0; s < p.how.split; s++) {
        float part[8];
        ascending(part, a, o, b, rows, p.k * s / p.how.split, p.k * (s + 1) / p.how.split);
        for (int j = 0; j < 8; j++)
            sums[j] += part[j];
    }
    for (int64_t r = rows.row; r < std::min(rows.row + 8, p.m); r++) {
        if (fault_now == CUDASIM_BLAS_HOLE && p.how.tile == 20 && r >= 64 &&
            o % fault_argument == 5)
            continue;
        const float sum = is_wrong(p, o, r) ? descending(a, o, b, r) : sums[r - rows.row];
        p.d[r * p.ldd + o] = p.bias ? sum + p.bias[o] : sum;
    }
}

static cudaError_t multiply(const product &p)
{
    const operand a(p.a, p.type_a, p.n, p.k, p.lda), b(p.b, p.type_b, p.m, p.k, p.ldb);

    for (int64_t r = 0; r < p.m; r += 8) {
        const eight_rows rows = rows_from(b, r);
        for (int64_t o = 0; o < p.n; o++)
            store(p, a, b, rows, o);
    }
    device_clock += fault_now == CUDASIM_BLAS_SLOW ? 1000000 * fault_argument : 100;
    for (int64_t r = 0; r < p.m; r++)
        check_device(p.d + r * p.ldd, (size_t)p.n * sizeof(float), MEMORY_WRITTEN);
    return cudaSuccess;
}

/* Whether a product is of a kind that this stand-in computes. */
static bool is_supported(const desc &t, const layout &a, const layout &b, const layout &d)
{
    return t.compute == CUBLAS_COMPUTE_32F && t.trans_a == CUBLAS_OP_T &&
           t.trans_b == CUBLAS_OP_N && a.type == b.type && d.type == CUDA_R_32F &&
           a.rows == b.rows && d.rows == a.cols && d.cols == b.cols && a.ld >= (int64_t)a.rows &&
           b.ld >= (int64_t)b.rows && d.ld >= (int64_t)d.rows && d.rows > 0 && d.cols > 0;
}

static bool is_device_matrix(const void *at, const layout &l)
{
    return is_device_range(at, ((l.cols - 1) * (size_t)l.ld + l.rows) * element_size(l.type));
}

extern "C" {

void cudasim_break_blas(enum cudasim_blas_fault what, int64_t argument)
{
    CUDASIM_LOCK;
    fault_now = what;
    fault_argument = argument;
}

int64_t cudasim_blas_calls(void)
{
    CUDASIM_LOCK;
    return calls;
}

void cudasim_blas(int version)
{
    CUDASIM_LOCK;
    version_there = version;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t computeDesc,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *opaque,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    CUDASIM_LOCK;
    (void)c;
    (void)c_layout;
    if (!handle || !opaque)
        return CUBLAS_STATUS_INVALID_VALUE;
    const desc t = read<desc>(computeDesc);
    const layout la = read<layout>(a_layout), lb = read<layout>(b_layout),
                 ld = read<layout>(d_layout);
    const algo how = read<algo>(opaque);
    if (!is_supported(t, la, lb, ld) || *(const float *)alpha != 1.0f ||
        *(const float *)beta != 0.0f ||
        (how.split > 1 && (!workspace || workspace_bytes < ld.rows * ld.cols * sizeof(float))))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!is_device_matrix(a, la) || !is_device_matrix(b, lb) || !is_device_matrix(d, ld))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (fault_now == CUDASIM_BLAS_NO_RUN && fault_argument-- <= 0) {
        fault_argument = 0;
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    calls++;
    product p = {(const char *)a,
                 (const char *)b,
                 (float *)d,
                 t.epilogue == CUBLASLT_EPILOGUE_BIAS ? t.bias : NULL,
                 la.type,
                 lb.type,
                 (int64_t)ld.rows,
                 (int64_t)ld.cols,
                 (int64_t)la.rows,
                 la.ld,
                 lb.ld,
                 ld.ld,
                 how};
    return enqueue(stream, [p] { return multiply(p); }) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* ------------------------------------------------------------------ choosing */

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t computeDesc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t opaque, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    const preference pref = read<preference>(opaque);
    const layout ld = read<layout>(d);
    const size_t split_bytes = ld.rows * ld.cols * sizeof(float);
    std::vector<cublasLtMatmulHeuristicResult_t> all;

    (void)c;
    *found = 0;
    if (!handle || wanted < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_supported(read<desc>(computeDesc), read<layout>(a), read<layout>(b), ld))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    auto offer = [&all](const algo &how, size_t bytes) {
        cublasLtMatmulHeuristicResult_t r;
        memset(&r, 0, sizeof r);
        write(&r.algo, how);
        r.workspaceSize = bytes;
        r.wavesCount = 1.0f;
        all.push_back(r);
    };
    if ((pref.mask & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) && pref.workspace >= split_bytes)
        offer(algo{66, 35, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 20, 0}, split_bytes);
    if (ld.cols == 1)
        offer(algo{13, 0, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 1}, 0);
    const int32_t stages = fault_now == CUDASIM_BLAS_STAGES ? 20 + (int32_t)ld.cols % 7 : 35;
    offer(algo{66, stages, 1, CUBLASLT_REDUCTION_SCHEME_NONE, ld.cols > 64 ? 20 : 10, 0}, 0);
    offer(algo{66, stages, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 312, 0}, 0);
    for (*found = 0; *found < wanted && (size_t)*found < all.size(); ++*found)
        results[*found] = all[(size_t)*found];
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *opaque,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t size, size_t *written)
{
    const algo how = read<algo>(opaque);
    int32_t v;

    switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
        v = how.id;
        break;
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
        v = how.stages;
        break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
        v = how.split;
        break;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
        v = how.reduction;
        break;
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
        v = how.tile;
        break;
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
        v = how.custom;
        break;
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (size != sizeof v)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &v, sizeof v);
    if (written)
        *written = sizeof v;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t computeDesc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *opaque,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    (void)c;
    if (!handle ||
        !is_supported(read<desc>(computeDesc), read<layout>(a), read<layout>(b), read<layout>(d)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(result, 0, sizeof *result);
    result->algo = *opaque;
    return CUBLAS_STATUS_SUCCESS;
}

/* ------------------------------------------------------------------ handles and descriptors */

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS"
                                           : "CUBLAS_STATUS of the simulator";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "an error of the simulator";
}

size_t cublasLtGetVersion(void) { return (size_t)version_there; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new cublasLtContext();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t size,
                                                 cudaDataType_t type, uint64_t rows, uint64_t cols,
                                                 int64_t ld)
{
    if (size < sizeof *l)
        return CUBLAS_STATUS_INVALID_VALUE;
    write(l, layout{(uint64_t)type, rows, cols, ld});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    *l = new cublasLtMatrixLayoutOpaque_t;
    return cublasLtMatrixLayoutInit(*l, type, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *t, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *t = new cublasLtMatmulDescOpaque_t;
    write(*t, desc{(uint64_t)compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t t)
{
    delete t;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size)
{
    desc t = read<desc>(opaque);
    int32_t v = 0;

    if (size != (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof t.bias : sizeof v))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        memcpy(&t.bias, value, sizeof t.bias);
    else
        memcpy(&v, value, sizeof v);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        t.trans_a = (uint64_t)v;
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        t.trans_b = (uint64_t)v;
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        t.epilogue = (uint64_t)v;
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        break;
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    write(opaque, t);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = new cublasLtMatmulPreferenceOpaque_t;
    write(*p, preference{0, CUBLASLT_REDUCTION_SCHEME_MASK});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t size)
{
    preference p = read<preference>(opaque);
    uint64_t v = 0;

    if (size > sizeof v)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&v, value, size);
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        p.workspace = v;
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        p.mask = v;
    write(opaque, p);
    return CUBLAS_STATUS_SUCCESS;
}

/* Stands in for src/backend/cuda/cublaslt.c. */
int sb_cublaslt_load(struct sb_cublaslt *api, char *why, size_t why_size)
{
    *api = {cublasLtGetVersion,
            cublasLtCreate,
            cublasLtDestroy,
            cublasLtMatrixLayoutInit_internal,
            cublasLtMatmulDescCreate,
            cublasLtMatmulDescDestroy,
            cublasLtMatmulDescSetAttribute,
            cublasLtMatmulPreferenceCreate,
            cublasLtMatmulPreferenceDestroy,
            cublasLtMatmulPreferenceSetAttribute,
            cublasLtMatmulAlgoGetHeuristic,
            cublasLtMatmulAlgoConfigGetAttribute,
            cublasLtMatmul};
    if (!version_there)
        snprintf(why, why_size, "no libcublasLt on this machine");
    return version_there != 0;
}
}
