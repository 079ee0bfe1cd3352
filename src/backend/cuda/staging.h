/*
 * Pinned buffers, through which weights go to the device: while some are being copied, the next
 * rows are converted into others, by as many threads as load a model.
 *
 *   take a buffer   one that no thread has. Waits until its last copy is over
 *   fill it         the caller writes to `pinned`
 *   send it         queues its copy on the device's loading stream; or drop it
 *
 *   buffers    | being filled by thread A | on its way | on its way | being filled by thread B |
 *
 * There are two more than the sixteen threads that load a model at most (model/fill.c), so that
 * each finds one whose copy is over or soon will be. If two models are loaded at once, a thread
 * that finds none waits. They are allocated as they are needed, and freed when the first pool is
 * created or the device is closed.
 *
 * Rows that a kernel puts into their place are copied to a landing buffer on the device first, of
 * which there is one: what is queued on the loading stream takes turns in it. So nothing may be
 * queued between such a copy and its kernel, and whoever lands holds the lock until the kernel is
 * queued.
 */
#ifndef SB_CUDA_STAGING_H
#define SB_CUDA_STAGING_H

#include <pthread.h>

#include "backend/cuda/cuda_stream.h"

#define SB_STAGE_BYTES ((size_t)2 << 20) /* as much as is read of a file at a time */

enum { SB_STAGES = 18 };

struct sb_stage {
    char *pinned; /* [SB_STAGE_BYTES], or NULL */
    cudaEvent_t copied;
    int is_held;   /* by a thread */
    uint64_t sent; /* the number of its last copy, of all that there were; 0: it had none */
};

struct sb_staging {
    struct sb_stage stages[SB_STAGES];
    uint64_t sent;
    void *landing;        /* dev [SB_STAGE_BYTES], or NULL */
    pthread_mutex_t lock; /* over all of this. No function of the host runs under it: it may wait
                             for another pool, or never return */
    pthread_cond_t given; /* a buffer is not held any more */
    int is_open;
};

/* E_NOMEM. The memory was zeros. */
int32_t sb_staging_open(struct sb_staging *staging);
/* When nobody uses it any more. */
void sb_staging_close(struct sb_staging *staging, const struct sb_gpu *gpu);

/* A buffer that is the caller's until it is sent or dropped. E_NOMEM, E_DEVICE, E_INTERNAL. */
int32_t sb_staging_take(struct sb_stage **out, struct sb_staging *staging,
                        const struct sb_gpu *gpu);
/* Queues a copy of the buffer's first `bytes` to `dev`. E_DEVICE. */
int32_t sb_staging_send(struct sb_staging *staging, struct sb_stage *stage, void *dev, size_t bytes,
                        const struct sb_gpu *gpu);
/* The same to the landing buffer, *out. If it succeeds, sb_staging_landed has to be called when
 * what reads it is queued. E_NOMEM, E_DEVICE. */
int32_t sb_staging_land(void **out, struct sb_staging *staging, struct sb_stage *stage,
                        size_t bytes, const struct sb_gpu *gpu);
void sb_staging_landed(struct sb_staging *staging);
/* Gives a buffer back that was taken and not sent. */
void sb_staging_drop(struct sb_staging *staging, struct sb_stage *stage);
/* Waits for what was sent, and frees the buffers. No thread holds one. E_DEVICE, E_INTERNAL. */
int32_t sb_staging_finish(struct sb_staging *staging, const struct sb_gpu *gpu);

#endif
