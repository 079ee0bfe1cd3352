/* The ring of staging.h. */
#include "backend/cuda/staging.h"

#include "status.h"

int32_t sb_staging_take(struct sb_stage **out, struct sb_staging *staging, const struct sb_gpu *gpu)
{
    struct sb_stage *stage = &staging->stages[staging->next];
    void *pinned = NULL;
    int32_t rc = SPECBATCH_OK;

    if (!stage->pinned) {
        SB_TRY(sb_cuda_status(gpu, cudaHostAlloc(&pinned, SB_STAGE_BYTES, cudaHostAllocDefault),
                              "pinned host memory", SB_STAGE_BYTES));
        stage->pinned = pinned;
        SB_TRY(sb_cuda_status(gpu, cudaEventCreateWithFlags(&stage->copied, cudaEventDisableTiming),
                              "an event", 0));
    } else {
        SB_TRY(sb_cuda_status(gpu, cudaEventSynchronize(stage->copied), "loading weights", 0));
    }
    staging->next = (staging->next + 1) % SB_STAGES;
    *out = stage;
done:
    return rc;
}

int32_t sb_staging_send(struct sb_stage *stage, void *dev, size_t bytes, const struct sb_gpu *gpu)
{
    cudaError_t error = cudaMemcpyAsync(dev, stage->pinned, bytes, cudaMemcpyHostToDevice,
                                        gpu->load);

    if (error == cudaSuccess)
        error = cudaEventRecord(stage->copied, gpu->load);
    return sb_cuda_status(gpu, error, "loading weights", 0);
}

int32_t sb_staging_landing(void **out, struct sb_staging *staging, const struct sb_gpu *gpu)
{
    int32_t rc = SPECBATCH_OK;

    if (!staging->landing)
        SB_TRY(sb_cuda_status(gpu, cudaMalloc(&staging->landing, SB_STAGE_BYTES),
                              "device memory for loading", SB_STAGE_BYTES));
    *out = staging->landing;
done:
    return rc;
}

int32_t sb_staging_finish(struct sb_staging *staging, const struct sb_gpu *gpu)
{
    const cudaError_t error = gpu->load ? cudaStreamSynchronize(gpu->load) : cudaSuccess;

    for (int i = 0; i < SB_STAGES; i++) {
        struct sb_stage *stage = &staging->stages[i];
        if (stage->copied)
            sb_cuda_ignore(cudaEventDestroy(stage->copied));
        if (stage->pinned)
            sb_cuda_ignore(cudaFreeHost(stage->pinned));
        *stage = (struct sb_stage){NULL, NULL};
    }
    if (staging->landing)
        sb_cuda_ignore(cudaFree(staging->landing));
    staging->landing = NULL;
    return sb_cuda_status(gpu, error, "loading weights", 0);
}
