/*
 * Who makes a product: the kernel by mma.sync, that by wgmma, or cuBLASLt.
 *
 * The numerics class is that of mma.sync (sb_cuda_gemm_mma): one f32 accumulator an output, steps
 * of 16 along k in ascending order. With few rows that kernel reads the weights at memory speed,
 * with more it is bound by its own instructions. There wgmma and cuBLASLt are faster, and as far as
 * is known (docs/cuda.md) wgmma, and cuBLASLt's un-split kernels, add in the same order.
 * gemm_plan.c does not rely on that but tests it. Where the bits are equal and the time is less,
 * wgmma makes products of SB_PLANS_FROM rows and more, and cuBLASLt those of SB_LIBRARY_FROM;
 * elsewhere mma.sync does. Either way the tokens are the same, and so is the class in the
 * fingerprint.
 *
 *   at pool creation       for each shape of weight and each m up to the pool's largest, wgmma and
 *                          cuBLASLt's algorithms are tried on the real weight (gemm_plan.c)
 *   at run time            the plan says who makes the product; mma.sync does where there is none,
 *                          or where cuBLASLt refuses
 *
 *   between processes      who was fastest may be kept in a file (plan_file.h)
 *
 * More than SB_PLANS_TO rows are computed in pieces, so the number of plans is bounded, and so are
 * more rows than there was memory to test. The rows of a product do not depend on each other, so
 * pieces change no bits.
 */
#include "backend/cuda/gemm_run.h"

#include <pthread.h>
#include <stdio.h>

#include "../kernels/cuda/launch.h"
#include "backend/cuda/gemm_plan.h"
#include "file.h"
#include "status.h"

enum { SHAPES = 16 }; /* of a model's weights: it has five */

/* Of one result of a test: this bounds the rows of a call for wide weights. */
#define TEST_BYTES ((size_t)256 << 20)

struct sb_gemm {
    struct sb_mem mem;
    struct sb_launch_limits limits; /* of the own kernels */
    struct sb_gemm_library library;
    struct sb_shape shapes[SHAPES];
    int n_shapes;
    pthread_mutex_t lock; /* over the shapes while plans are made; no function of the host runs */
    int has_lock;
    char plan_file[SB_FILE_PATH + 1]; /* or "" */
    char text[80];
};

int32_t sb_gemm_create(struct sb_gemm **out, const struct sb_gpu *gpu, enum sb_dtype type,
                       const char *plan_file)
{
    struct sb_gemm *gemm = NULL;
    char why[320] = "";
    int32_t rc = SPECBATCH_OK;

    SB_NEW(gemm, sb_alloc(&gpu->mem, 1, sizeof *gemm), "products");
    gemm->mem = gpu->mem;
    gemm->limits = gpu->limits;
    sb_gemm_library_open(&gemm->library, type, why, sizeof why);
    if (gemm->library.is_usable) {
        snprintf(gemm->text, sizeof gemm->text, "cublasLt %zu where equal",
                 gemm->library.api.version());
    } else {
        snprintf(gemm->text, sizeof gemm->text, "no cublasLt");
        sb_log(&gpu->log, SPECBATCH_LOG_INFO,
               "CUDA: the library's own kernels compute all products, with the same bits: %s", why);
    }
    if (plan_file && (gemm->library.is_usable || gpu->limits.map_encoder))
        snprintf(gemm->plan_file, sizeof gemm->plan_file, "%s", plan_file);
    if (pthread_mutex_init(&gemm->lock, NULL) != 0)
        SB_FAIL(SPECBATCH_E_NOMEM, "no memory for a lock");
    gemm->has_lock = 1;
    *out = gemm;
    gemm = NULL;
done:
    sb_gemm_free(gemm);
    return rc;
}

void sb_gemm_free(struct sb_gemm *gemm)
{
    struct sb_mem mem;

    if (!gemm)
        return;
    mem = gemm->mem;
    for (int i = 0; i < gemm->n_shapes; i++)
        sb_free(&mem, gemm->shapes[i].plans);
    sb_gemm_library_close(&gemm->library);
    if (gemm->has_lock)
        pthread_mutex_destroy(&gemm->lock);
    sb_free(&mem, gemm);
}

const char *sb_gemm_class(const struct sb_gemm *gemm)
{
    return gemm->text;
}

static int find(const struct sb_gemm *gemm, const struct sb_weight *weight)
{
    for (int i = 0; i < gemm->n_shapes; i++)
        if (gemm->shapes[i].n_out == weight->n_out && gemm->shapes[i].n_in == weight->n_in &&
            gemm->shapes[i].gated == weight->gated)
            return i;
    return -1;
}

int32_t sb_gemm_add_weight(struct sb_gemm *gemm, const struct sb_weight *weight)
{
    const size_t fits = TEST_BYTES / ((size_t)weight->n_out * sizeof(float) + 1);
    const int known = find(gemm, weight);
    int32_t rc = SPECBATCH_OK;

    if (known >= 0) { /* any weight of the shape will do */
        gemm->shapes[known].data = weight->data;
    } else if (gemm->n_shapes < SHAPES) {
        struct sb_shape *shape = &gemm->shapes[gemm->n_shapes];
        SB_NEW(shape->plans, sb_alloc(&gemm->mem, SB_PLANS_TO + 1, sizeof *shape->plans),
               "plans of products");
        shape->n_out = weight->n_out;
        shape->n_in = weight->n_in;
        shape->gated = weight->gated;
        shape->data = weight->data;
        shape->max_rows = fits < SB_PLANS_TO ? (int32_t)fits : SB_PLANS_TO;
        gemm->n_shapes++;
    }
done:
    return rc;
}

void sb_gemm_forget_weight(struct sb_gemm *gemm, const struct sb_weight *weight)
{
    const int known = find(gemm, weight);

    if (known >= 0)
        gemm->shapes[known].data = NULL;
}

size_t sb_gemm_scratch(const struct sb_gemm *gemm, int32_t max_m)
{
    size_t most = 0;

    if (max_m < SB_LIBRARY_FROM || !gemm->library.is_usable)
        return 0;
    for (int i = 0; i < gemm->n_shapes; i++) {
        const struct sb_gemm_size size = {max_m, gemm->shapes[i].n_out, gemm->shapes[i].n_in, 0};
        const size_t bytes = sb_gemm_piece_bytes(&gemm->library, &size);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Plans all shapes; to be called under the lock. */
static int32_t plan_all(struct sb_gemm *gemm, const struct sb_gpu *gpu, int32_t max_m,
                        struct sb_plan_file *file, struct sb_findings found[SHAPES])
{
    int32_t rc = SPECBATCH_OK;

    for (int i = 0; i < gemm->n_shapes && rc == SPECBATCH_OK; i++) {
        struct sb_shape *shape = &gemm->shapes[i];
        const int32_t rows = max_m < shape->max_rows ? max_m : shape->max_rows;
        if (shape->data && rows > atomic_load(&shape->tested))
            rc = sb_gemm_plan(&gemm->library, gpu, shape, rows, file, &found[i]);
    }
    return rc;
}

/* The file is this call's own, and what the log is told is kept until the lock is free, because
 * memory and log functions are the host's. */
int32_t sb_gemm_prepare(struct sb_gemm *gemm, const struct sb_gpu *gpu, int32_t max_m)
{
    const size_t version = gemm->library.is_usable ? gemm->library.api.version() : 0;
    struct sb_findings found[SHAPES] = {{.different = 0}};
    struct sb_plan_file *file = NULL;
    int32_t rc = SPECBATCH_OK;

    if (gemm->plan_file[0] && max_m >= SB_PLANS_FROM) {
        SB_TRY(sb_plan_file_open(&file, gpu, gemm->plan_file, version));
        sb_plan_file_read(file);
    }
    if (pthread_mutex_lock(&gemm->lock) != 0)
        SB_FAIL(SPECBATCH_E_INTERNAL, "CUDA: the lock of products");
    rc = plan_all(gemm, gpu, max_m, file, found);
    pthread_mutex_unlock(&gemm->lock);
    for (int i = 0; i < gemm->n_shapes; i++)
        sb_gemm_tell(gpu, &gemm->shapes[i], &found[i]);
    if (file && rc == SPECBATCH_OK)
        sb_plan_file_write(file);
done:
    sb_plan_file_close(file);
    return rc;
}

/* The plan for a call of n rows. */
static const struct sb_plan *find_plan(const struct sb_shape *shape, int32_t n)
{
    static const struct sb_plan none = {.by = SB_BY_MMA};

    return shape && n <= atomic_load(&shape->tested) ? &shape->plans[n] : &none;
}

/* The most rows of a call: no more than are tested. */
static int32_t most_rows(const struct sb_shape *shape)
{
    const int32_t tested = atomic_load(&shape->tested);

    return tested > 0 ? tested : shape->max_rows;
}

/* By one of the library's own kernels. */
static cudaError_t run_own(const struct sb_gemm *gemm, const struct sb_product *p, enum sb_maker by,
                           cudaStream_t stream)
{
    const enum sb_dtype type = gemm->library.type;
    const struct sb_weight *w = p->weight;

    if (by == SB_BY_WGMMA && p->act)
        return sb_cuda_gated_wgmma(p->act, p->x, w->data, type, p->bias, p->m, w->n_out / 2,
                                   w->n_in, &gemm->limits, stream);
    if (by == SB_BY_WGMMA)
        return sb_cuda_gemm_wgmma(p->y, p->x, w->data, type, p->bias, p->m, w->n_out, w->n_in,
                                  w->gated, &gemm->limits, stream);
    if (p->act)
        return sb_cuda_gated_mma(p->act, p->x, w->data, type, p->bias, p->m, w->n_out / 2, w->n_in,
                                 &gemm->limits, stream);
    return sb_cuda_gemm_mma(p->y, p->x, w->data, type, p->bias, p->m, w->n_out, w->n_in, w->gated,
                            &gemm->limits, stream);
}

/* What cuBLASLt leaves to be done: adding the bias and gating. */
static cudaError_t finish(const struct sb_product *p, enum sb_dtype type, cudaStream_t stream)
{
    const int32_t n_out = p->weight->n_out;
    cudaError_t error = cudaSuccess;

    if (p->bias)
        error = sb_cuda_add_bias(p->y, p->bias, p->m, n_out, stream);
    if (error == cudaSuccess && p->act)
        error = sb_cuda_gate(p->act, type, p->y, SB_GATE_SILU, p->m, n_out / 2, stream);
    return error;
}

cudaError_t sb_gemm_run(const struct sb_gemm *gemm, const struct sb_product *product,
                        cudaStream_t stream)
{
    const enum sb_dtype type = gemm->library.type;
    const struct sb_weight *w = product->weight;
    const int known = product->m >= SB_PLANS_FROM ? find(gemm, w) : -1;
    const struct sb_shape *shape = known >= 0 ? &gemm->shapes[known] : NULL;
    const int32_t most = shape ? most_rows(shape) : product->m;
    const size_t x_row = (size_t)sb_cuda_ld(type, w->n_in) * 2;
    const size_t act_row = (size_t)sb_cuda_ld(type, w->n_out / 2) * 2;
    struct sb_product p = *product;
    cudaError_t error = cudaSuccess;

    for (int32_t left = product->m; error == cudaSuccess && left > 0; left -= p.m) {
        p.m = left < most ? left : most;
        const struct sb_gemm_size size = {p.m, w->n_out, w->n_in, w->gated};
        const struct sb_plan *plan = find_plan(shape, p.m);
        if (plan->by != SB_BY_LIBRARY)
            error = run_own(gemm, &p, plan->by, stream);
        else if (sb_gemm_by_library(&gemm->library, p.y, p.x, w->data, p.scratch, &size,
                                    &plan->algo, stream))
            error = finish(&p, type, stream);
        else
            error = run_own(gemm, &p, SB_BY_MMA, stream);
        p.x = (const char *)p.x + (size_t)p.m * x_row;
        p.y += (int64_t)p.m * w->n_out;
        p.act = p.act ? (char *)p.act + (size_t)p.m * act_row : NULL;
    }
    return error;
}
