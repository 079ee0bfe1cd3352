/*
 * A ring of two pinned buffers, through which weights go to the device: while one is being copied,
 * the next rows are converted into the other.
 *
 *   take a buffer   waits until its last copy is over
 *   fill it         the caller writes to `pinned`
 *   send it         queues its copy on the device's loading stream
 *
 * The buffers are allocated when a model begins to load, and freed when its first pool is created
 * or the device is closed. Callers hold a lock over the ring, or are alone with it.
 */
#ifndef SB_CUDA_STAGING_H
#define SB_CUDA_STAGING_H

#include "backend/cuda/cuda_stream.h"

#define SB_STAGE_BYTES ((size_t)8 << 20)

enum { SB_STAGES = 2 };

struct sb_stage {
    char *pinned; /* [SB_STAGE_BYTES], or NULL */
    cudaEvent_t copied;
};

struct sb_staging {
    struct sb_stage stages[SB_STAGES];
    int next;
    void *landing; /* dev [SB_STAGE_BYTES], or NULL */
};

/* The next buffer, once the copy out of it is over. E_NOMEM, E_DEVICE. */
int32_t sb_staging_take(struct sb_stage **out, struct sb_staging *staging,
                        const struct sb_gpu *gpu);
/* Queues a copy of the buffer's first `bytes` to `dev`. E_DEVICE. */
int32_t sb_staging_send(struct sb_stage *stage, void *dev, size_t bytes, const struct sb_gpu *gpu);
/* Device memory that holds what a buffer does, for rows that a kernel puts into their place. What
 * is queued on the loading stream takes turns in it. E_NOMEM, E_DEVICE. */
int32_t sb_staging_landing(void **out, struct sb_staging *staging, const struct sb_gpu *gpu);
/* Waits for what was sent, and gives the buffers back. E_DEVICE. */
int32_t sb_staging_finish(struct sb_staging *staging, const struct sb_gpu *gpu);

#endif
