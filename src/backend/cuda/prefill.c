/* Which engine and which plans there are, and who computes what of a pass. prefill.h gives the
 * reasons. */
#include "backend/cuda/prefill.h"

#include <stdio.h>
#include <string.h>

#include "../kernels/cuda/launch.h"
#include "backend/cuda/prefill_prove.h"
#include "status.h"

enum {
    LAST_SPAN = 8192 / SB_SPAN, /* spans that have a plan; changes bits */
    ENGINES = 8,                /* that are asked for */
    MOST_DIM = 256,             /* of a head */
    SPARE = 40                  /* columns more than the class's slots have, in its second test */
};
#define MOST_WORKSPACE ((size_t)16 << 20)
#define ALIGNED ((size_t)256) /* bytes, of the workspace */

/* -------------------------------------------------------------------- plans */

static const struct sb_span_plans *find_plans(const struct sb_prefill *prefill, int32_t cap)
{
    const struct sb_span_plans *plans = prefill->first;

    while (plans && plans->cap != cap)
        plans = plans->next;
    return plans;
}

/* Makes and tests `plans`, and adds them to the list; *plans is NULL then. To be called under the
 * lock. */
static int32_t add_plans(struct sb_prefill *prefill, const struct sb_gpu *gpu,
                         struct sb_span_plans **plans)
{
    struct sb_span_plans *const new = *plans;
    int32_t rc = SPECBATCH_OK;
    int good;

    if (find_plans(prefill, new->cap))
        return rc;
    SB_TRY(sb_span_plans_make(&good, new, &prefill->calls));
    if (good)
        SB_TRY(sb_prefill_prove(&good, &prefill->calls, gpu, prefill->first, new));
    if (!good)
        SB_FAIL(SPECBATCH_E_DEVICE,
                "CUDA: cuDNN has other bits, or none, for slots of %d columns than the class of "
                "this model (%s)",
                new->cap, prefill->text);
    new->next = prefill->first->next;
    prefill->first->next = new;
    *plans = NULL;
done:
    if (rc != SPECBATCH_OK)
        sb_span_plans_unmake(new);
    return rc;
}

/* Memory for plans is taken and given back without the lock, because the host's functions do
 * that. */
int32_t sb_prefill_prepare(struct sb_prefill *prefill, const struct sb_gpu *gpu, int32_t cap)
{
    const int32_t fit = cap / SB_SPAN, n = fit < prefill->n_spans ? fit : prefill->n_spans;
    struct sb_span_plans *plans = NULL;
    int32_t rc = SPECBATCH_OK;

    if (n == 0)
        return rc;
    SB_TRY(sb_span_plans_create(&plans, &prefill->calls, cap, n));
    if (pthread_mutex_lock(&prefill->lock) != 0)
        SB_FAIL(SPECBATCH_E_INTERNAL, "CUDA: the lock of attention");
    rc = add_plans(prefill, gpu, &plans);
    pthread_mutex_unlock(&prefill->lock);
done:
    sb_span_plans_free(&prefill->calls, plans);
    return rc;
}

/* -------------------------------------------------------------------- class */

/* Makes the class with this engine. If it passes its tests, it is prefill->first. */
static int32_t try_engine(struct sb_prefill *prefill, const struct sb_gpu *gpu,
                          const struct sb_sdpa_engine *engine)
{
    const int32_t n = prefill->n_spans, cap = n * SB_SPAN;
    struct sb_span_plans *class = NULL, *other = NULL;
    int32_t rc = SPECBATCH_OK;
    int good = 0;

    prefill->calls.engine = *engine;
    prefill->calls.workspace = MOST_WORKSPACE;
    SB_TRY(sb_span_plans_create(&class, &prefill->calls, cap, n));
    SB_TRY(sb_span_plans_make(&good, class, &prefill->calls));
    if (!good)
        goto done;
    prefill->calls.workspace = sb_span_plans_workspace(class);
    SB_TRY(sb_prefill_prove(&good, &prefill->calls, gpu, class, class));
    SB_TRY(sb_span_plans_create(&other, &prefill->calls, cap + SPARE, n));
    if (good)
        SB_TRY(sb_span_plans_make(&good, other, &prefill->calls));
    if (good)
        SB_TRY(sb_prefill_prove(&good, &prefill->calls, gpu, class, other));
    if (good) {
        prefill->first = class;
        class = NULL;
    }
done:
    sb_span_plans_free(&prefill->calls, other);
    sb_span_plans_free(&prefill->calls, class);
    return rc;
}

/* FNV-1a over the knobs, since two sets of knobs are two classes. */
static uint32_t knobs_hash(const struct sb_sdpa_engine *engine)
{
    uint32_t hash = 2166136261u;

    for (int32_t i = 0; i < engine->n_knobs; i++) {
        hash = (hash ^ (uint32_t)engine->knobs[i].knob) * 16777619u;
        hash = (hash ^ (uint32_t)engine->knobs[i].value) * 16777619u;
    }
    return hash;
}

static int32_t choose_engine(struct sb_prefill *prefill, const struct sb_gpu *gpu)
{
    const struct sb_sdpa_shape longest = sb_span_shape(&prefill->calls, prefill->n_spans - 1,
                                                       prefill->n_spans * SB_SPAN);
    struct sb_sdpa_engine engines[ENGINES];
    const int32_t n = sb_sdpa_engines(prefill->calls.sdpa, &longest, engines, ENGINES);
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < n && !prefill->first; i++)
        SB_TRY(try_engine(prefill, gpu, &engines[i]));
    if (prefill->first)
        snprintf(prefill->text, sizeof prefill->text,
                 "cudnn %zu engine %lld/%08x, spans of %d to %d",
                 sb_sdpa_version(prefill->calls.sdpa), (long long)prefill->calls.engine.id,
                 (unsigned)knobs_hash(&prefill->calls.engine), SB_SPAN, prefill->n_spans * SB_SPAN);
    else
        sb_log(&gpu->log, SPECBATCH_LOG_WARN,
               "CUDA: none of cuDNN's %d engines gives a span of a prompt the same bits "
               "wherever it is and whatever else runs, near the own kernel's; the own kernel "
               "computes all attention",
               n);
done:
    return rc;
}

/* Why cuDNN cannot compute the model's attention, or NULL. Its rows of results must need no
 * padding, and its heads must be whole units of the 16 bytes that cuDNN reads at a time. The graph
 * attends to all keys up to a query and to nothing else, so no layer may have a window, sinks or
 * a soft cap. */
static const char *unsuited(const struct sb_prefill *prefill)
{
    const struct sb_geometry *g = &prefill->calls.geometry;
    const int64_t width = (int64_t)g->heads * g->head_dim;

    if (g->window > 0)
        return "some layers have a sliding window";
    if (g->has_sinks)
        return "heads have sinks";
    if (g->caps_scores)
        return "scores are capped";
    if (prefill->n_spans == 0 || g->head_dim % 8 || g->head_dim > MOST_DIM ||
        sb_cuda_ld(prefill->calls.type, (int32_t)width) != width)
        return "it does not suit the model's shape";
    return NULL;
}

int32_t sb_prefill_create(struct sb_prefill **out, const struct sb_gpu *gpu, enum sb_dtype type,
                          const struct sb_geometry *geometry)
{
    const int32_t spans = geometry->context / SB_SPAN;
    struct sb_prefill *prefill = NULL;
    const char *reason = NULL;
    char why[320] = "";
    int32_t rc = SPECBATCH_OK;

    *out = NULL;
    SB_NEW(prefill, sb_alloc(&gpu->mem, 1, sizeof *prefill), "attention of prompts");
    prefill->calls.mem = gpu->mem;
    prefill->calls.type = type;
    prefill->calls.geometry = *geometry;
    prefill->n_spans = spans < LAST_SPAN ? spans : (int32_t)LAST_SPAN;
    if (pthread_mutex_init(&prefill->lock, NULL) != 0)
        SB_FAIL(SPECBATCH_E_NOMEM, "no memory for a lock");
    prefill->has_lock = 1;
    reason = unsuited(prefill);
    if (!reason)
        SB_TRY(sb_sdpa_open(&prefill->calls.sdpa, &prefill->calls.mem, why, sizeof why));
    if (!prefill->calls.sdpa) {
        sb_log(&gpu->log, SPECBATCH_LOG_INFO, "CUDA: prefill without cuDNN: %s",
               reason ? reason : why);
        goto done;
    }
    SB_TRY(choose_engine(prefill, gpu));
    if (prefill->first) {
        *out = prefill;
        prefill = NULL;
    }
done:
    sb_prefill_free(prefill);
    return rc;
}

void sb_prefill_free(struct sb_prefill *prefill)
{
    struct sb_mem mem;

    if (!prefill)
        return;
    mem = prefill->calls.mem;
    while (prefill->first) {
        struct sb_span_plans *plans = prefill->first;
        prefill->first = plans->next;
        sb_span_plans_free(&prefill->calls, plans);
    }
    sb_sdpa_close(prefill->calls.sdpa);
    if (prefill->has_lock)
        pthread_mutex_destroy(&prefill->lock);
    sb_free(&mem, prefill);
}

const char *sb_prefill_class(const struct sb_prefill *prefill)
{
    return prefill ? prefill->text : "own";
}

/* ------------------------------------------------------------------ attention */

static size_t query_bytes(const struct sb_prefill *prefill)
{
    const size_t bytes = (size_t)SB_SPAN * (size_t)prefill->calls.geometry.heads *
                         (size_t)prefill->calls.geometry.head_dim * 2;

    return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

size_t sb_prefill_scratch(const struct sb_prefill *prefill)
{
    return query_bytes(prefill) + prefill->calls.workspace;
}

/* The own kernel computes tokens [first, first + n) of the pass. */
static cudaError_t own(const struct sb_prefill *prefill, char *y, const float *qkv,
                       const struct sb_attention *attention, const struct sb_pass *pass,
                       int32_t first, int32_t n, void *scratch, unsigned *counters,
                       cudaStream_t stream)
{
    const struct sb_geometry *g = &prefill->calls.geometry;
    const int64_t row = (int64_t)(g->heads + 2 * g->kv_heads) * g->head_dim;
    struct sb_pass part = *pass;

    part.pos += first;
    part.seq += first;
    part.n_tokens = n;
    return n > 0
               ? sb_cuda_attend_mma(y + (size_t)first * (size_t)g->heads * (size_t)g->head_dim * 2,
                                    prefill->calls.type, qkv + first * row, attention, &part,
                                    scratch, counters, stream)
               : cudaSuccess;
}

/* cuDNN computes a span. Its queries are first narrowed into scratch, and its workspace lies behind
 * them. */
static cudaError_t by_library(struct sb_prefill *prefill, char *y, const float *qkv,
                              const struct sb_attention *attention, const struct sb_span *span,
                              char *scratch, cudaStream_t stream)
{
    const struct sb_geometry *g = &prefill->calls.geometry;
    const int64_t width = (int64_t)g->heads * g->head_dim,
                  row = width + 2 * (int64_t)g->kv_heads * g->head_dim;
    const size_t at = 2 * (size_t)(span->base + (int64_t)span->start * g->head_dim);
    const struct sb_sdpa_call call = {.q = scratch,
                                      .k = (const char *)attention->k + at,
                                      .v = (const char *)attention->v + at,
                                      .y = y + 2 * (size_t)(span->first * width),
                                      .scale = attention->scale,
                                      .workspace = scratch + query_bytes(prefill),
                                      .stream = stream};
    const struct sb_span_plans *plans;
    cudaError_t error = sb_cuda_narrow(scratch, prefill->calls.type, qkv + span->first * row,
                                       SB_SPAN, (int32_t)width, row, stream);

    if (error != cudaSuccess)
        return error;
    if (pthread_mutex_lock(&prefill->lock) != 0)
        return cudaErrorUnknown;
    plans = find_plans(prefill, span->cap);
    if (!plans || !sb_sdpa_run(prefill->calls.sdpa, plans->plans[span->pos / SB_SPAN], &call))
        error = cudaErrorLaunchFailure;
    pthread_mutex_unlock(&prefill->lock);
    return error;
}

cudaError_t sb_prefill_attend(struct sb_prefill *prefill, void *y, const float *qkv,
                              const struct sb_attention *attention, const struct sb_pass *pass,
                              void *scratch, unsigned *counters, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    int32_t done = 0;

    for (int32_t i = 0; error == cudaSuccess && i < pass->n_spans; i++) {
        const struct sb_span *span = &pass->spans[i];
        if (span->pos / SB_SPAN >= prefill->n_spans)
            continue;
        error = own(prefill, y, qkv, attention, pass, done, span->first - done, scratch, counters,
                    stream);
        if (error == cudaSuccess)
            error = by_library(prefill, y, qkv, attention, span, scratch, stream);
        done = span->first + SB_SPAN;
    }
    if (error == cudaSuccess)
        error = own(prefill, y, qkv, attention, pass, done, pass->n_tokens - done, scratch,
                    counters, stream);
    return error;
}
