/*
 * What an exec has in addition when it is a draft's, in the 16-bit class: memory for products whose
 * k is split, and its steps as one launch (kernels/cuda/draft_gemm.cu, draft_step.cu).
 *
 * Both are faster than what the target does, and neither has its bits. In the f32 class a draft
 * runs like a target, since there all results are the CPU's.
 */
#ifndef SB_CUDA_DRAFT_WORK_H
#define SB_CUDA_DRAFT_WORK_H

#include "../kernels/cuda/launch.h"
#include "backend/cuda/cuda_stream.h"

struct sb_draft_work {
    void *products;             /* scratch of split products; NULL: not a draft's, or class f32 */
    void *memory;               /* of the steps */
    struct sb_cuda_draft steps; /* zeros until prepared: no steps suit */
};

/* Bytes of the device that sb_draft_work_create takes. */
size_t sb_draft_work_bytes(enum sb_dtype type, const struct sb_exec_limits *limits);
/* Fills in *work, which is zeros; nothing where the exec is not a draft's. After a failure
 * sb_draft_work_free cleans up. The device must be current, as for the others. E_NOMEM, E_DEVICE.
 */
int32_t sb_draft_work_create(struct sb_draft_work *work, const struct sb_gpu *gpu,
                             enum sb_dtype type, const struct sb_exec_limits *limits);
/* As step_prepare of backend.h. E_DEVICE. */
int32_t sb_draft_work_prepare(struct sb_draft_work *work, const struct sb_gpu *gpu,
                              enum sb_dtype type, const struct sb_step_model *model,
                              const struct sb_step_layer *layers);
void sb_draft_work_free(struct sb_draft_work *work);

#endif
