/* The buffers of staging.h. */
#include "backend/cuda/staging.h"

#include "status.h"

int32_t sb_staging_open(struct sb_staging *staging)
{
    if (pthread_mutex_init(&staging->lock, NULL) != 0)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for a lock");
    if (pthread_cond_init(&staging->given, NULL) != 0) {
        pthread_mutex_destroy(&staging->lock);
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for a lock");
    }
    staging->is_open = 1;
    return SPECBATCH_OK;
}

void sb_staging_close(struct sb_staging *staging, const struct sb_gpu *gpu)
{
    if (!staging->is_open)
        return;
    (void)sb_staging_finish(staging, gpu);
    pthread_cond_destroy(&staging->given);
    pthread_mutex_destroy(&staging->lock);
    staging->is_open = 0;
}

static int32_t lock(struct sb_staging *staging)
{
    if (pthread_mutex_lock(&staging->lock) != 0)
        return sb_fail(SPECBATCH_E_INTERNAL, "CUDA: the lock of loading");
    return SPECBATCH_OK;
}

/* A buffer that nobody holds: one that is not allocated yet, if there may be one more, or else the
 * one whose last copy was queued first; NULL if all are held. To be called under the lock. */
static struct sb_stage *find(struct sb_staging *staging)
{
    struct sb_stage *none = NULL, *oldest = NULL;
    int held = 0, there = 0;

    for (int i = 0; i < SB_STAGES; i++) {
        struct sb_stage *stage = &staging->stages[i];
        held += stage->is_held;
        there += stage->is_held || stage->pinned;
        if (stage->is_held)
            continue;
        if (!stage->pinned)
            none = none ? none : stage;
        else if (!oldest || stage->sent < oldest->sent)
            oldest = stage;
    }
    return none && there < held + 2 ? none : oldest;
}

/* Takes a buffer back from a thread. To be called under the lock. */
static void give(struct sb_staging *staging, struct sb_stage *stage)
{
    stage->is_held = 0;
    pthread_cond_signal(&staging->given);
}

static int32_t allocate(struct sb_stage *stage, const struct sb_gpu *gpu)
{
    void *pinned = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_status(gpu, cudaHostAlloc(&pinned, SB_STAGE_BYTES, cudaHostAllocDefault),
                          "pinned host memory", SB_STAGE_BYTES));
    stage->pinned = pinned;
    SB_TRY(sb_cuda_status(gpu, cudaEventCreateWithFlags(&stage->copied, cudaEventDisableTiming),
                          "an event", 0));
done:
    return rc;
}

int32_t sb_staging_take(struct sb_stage **out, struct sb_staging *staging, const struct sb_gpu *gpu)
{
    struct sb_stage *stage;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(lock(staging));
    while ((stage = find(staging)) == NULL)
        pthread_cond_wait(&staging->given, &staging->lock);
    stage->is_held = 1;
    pthread_mutex_unlock(&staging->lock);
    if (!stage->pinned)
        rc = allocate(stage, gpu);
    else if (stage->sent > 0)
        rc = sb_cuda_status(gpu, cudaEventSynchronize(stage->copied), "loading weights", 0);
    if (rc == SPECBATCH_OK)
        *out = stage;
    else
        sb_staging_drop(staging, stage);
done:
    return rc;
}

/* Queues a copy, and gives the buffer back. To be called under the lock. */
static int32_t queue(struct sb_staging *staging, struct sb_stage *stage, void *dev, size_t bytes,
                     const struct sb_gpu *gpu)
{
    cudaError_t error = cudaMemcpyAsync(dev, stage->pinned, bytes, cudaMemcpyHostToDevice,
                                        gpu->load);

    if (error == cudaSuccess)
        error = cudaEventRecord(stage->copied, gpu->load);
    stage->sent = ++staging->sent;
    give(staging, stage);
    return sb_cuda_status(gpu, error, "loading weights", 0);
}

int32_t sb_staging_send(struct sb_staging *staging, struct sb_stage *stage, void *dev, size_t bytes,
                        const struct sb_gpu *gpu)
{
    int32_t rc = lock(staging);

    if (rc != SPECBATCH_OK)
        return rc;
    rc = queue(staging, stage, dev, bytes, gpu);
    pthread_mutex_unlock(&staging->lock);
    return rc;
}

int32_t sb_staging_land(void **out, struct sb_staging *staging, struct sb_stage *stage,
                        size_t bytes, const struct sb_gpu *gpu)
{
    int32_t rc = lock(staging);

    if (rc != SPECBATCH_OK)
        return rc;
    if (!staging->landing)
        rc = sb_cuda_status(gpu, cudaMalloc(&staging->landing, SB_STAGE_BYTES),
                            "device memory for loading", SB_STAGE_BYTES);
    if (rc == SPECBATCH_OK)
        rc = queue(staging, stage, staging->landing, bytes, gpu);
    else
        give(staging, stage);
    *out = staging->landing;
    if (rc != SPECBATCH_OK)
        pthread_mutex_unlock(&staging->lock);
    return rc;
}

void sb_staging_landed(struct sb_staging *staging)
{
    pthread_mutex_unlock(&staging->lock);
}

void sb_staging_drop(struct sb_staging *staging, struct sb_stage *stage)
{
    if (pthread_mutex_lock(&staging->lock) != 0)
        return;
    give(staging, stage);
    pthread_mutex_unlock(&staging->lock);
}

int32_t sb_staging_finish(struct sb_staging *staging, const struct sb_gpu *gpu)
{
    cudaError_t error;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(lock(staging));
    error = gpu->load ? cudaStreamSynchronize(gpu->load) : cudaSuccess;
    for (int i = 0; i < SB_STAGES; i++) {
        struct sb_stage *stage = &staging->stages[i];
        if (stage->copied)
            sb_cuda_ignore(cudaEventDestroy(stage->copied));
        if (stage->pinned)
            sb_cuda_ignore(cudaFreeHost(stage->pinned));
        *stage = (struct sb_stage){NULL, NULL, 0, 0};
    }
    if (staging->landing)
        sb_cuda_ignore(cudaFree(staging->landing));
    staging->landing = NULL;
    pthread_mutex_unlock(&staging->lock);
    rc = sb_cuda_status(gpu, error, "loading weights", 0);
done:
    return rc;
}
