/* A draft's own memory and steps; draft_work.h says what they are. */
#include "backend/cuda/draft_work.h"

#include "backend/cuda/memory.h"
#include "status.h"

static int is_draft(enum sb_dtype type, const struct sb_exec_limits *limits)
{
    return limits->draft_layers > 0 && type != SB_F32;
}

size_t sb_draft_work_bytes(enum sb_dtype type, const struct sb_exec_limits *limits)
{
    return is_draft(type, limits) ? sb_cuda_draft_gemm_scratch() + sb_cuda_step_bytes(limits) : 0;
}

int32_t sb_draft_work_create(struct sb_draft_work *work, const struct sb_gpu *gpu,
                             enum sb_dtype type, const struct sb_exec_limits *limits)
{
    int32_t rc = SPECBATCH_OK;

    if (!is_draft(type, limits))
        return rc;
    SB_TRY(sb_cuda_alloc(&work->products, gpu, sb_cuda_draft_gemm_scratch()));
    SB_TRY(sb_cuda_alloc(&work->memory, gpu, sb_cuda_step_bytes(limits)));
done:
    return rc;
}

int32_t sb_draft_work_prepare(struct sb_draft_work *work, const struct sb_gpu *gpu,
                              enum sb_dtype type, const struct sb_step_model *model,
                              const struct sb_step_layer *layers)
{
    if (!work->memory)
        return SPECBATCH_OK;
    return sb_cuda_status(gpu,
                          sb_cuda_step_prepare(&work->steps, model, layers, type, work->memory),
                          "the steps of a draft", 0);
}

void sb_draft_work_free(struct sb_draft_work *work)
{
    if (work->products)
        sb_cuda_ignore(cudaFree(work->products));
    if (work->memory)
        sb_cuda_ignore(cudaFree(work->memory));
    *work = (struct sb_draft_work){.products = NULL};
}
