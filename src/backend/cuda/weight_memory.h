/*
 * The device memory of weights. CUDA gives out memory in pages of 2 MiB, and an allocation of more
 * than one page takes whole pages: 4 MiB for a weight of 3.1 MB. A mixture of experts has ten
 * thousand such weights. So weights of less than 16 MiB are cut from slabs, one allocation each:
 *
 *   slab   | weight | weight | weight | weight | not cut yet |
 *
 * A weight is cut from the slab in which it leaves the least room. Where none has room for it, a
 * new slab is allocated: a quarter of what all slabs have together, but at least one page and at
 * most 64 MiB. So a small model has small slabs. Where the device has no memory for a slab, the
 * weight gets an allocation of its own, as weights of 16 MiB and more do.
 *
 * A slab is freed with its last weight. Until then the place of a freed weight is not used again:
 * all weights are made when a model is opened, and freed when it is closed. One thread at a time
 * does either, so there is no lock.
 */
#ifndef SB_CUDA_WEIGHT_MEMORY_H
#define SB_CUDA_WEIGHT_MEMORY_H

#include "backend/cuda/cuda_stream.h"

struct sb_slab {
    struct sb_slab *next;
    char *dev; /* [bytes] */
    size_t bytes;
    size_t cut;     /* bytes from the beginning on, of which weights were made */
    size_t weights; /* that are not freed yet */
};

/* Of one model. All zeros: there is none yet. */
struct sb_weight_memory {
    struct sb_slab *slabs; /* a list, the last one first */
    size_t bytes;          /* of all of them */
};

/* Device memory for a weight. It begins at a multiple of 256 bytes, as any that CUDA allocates.
 * What is asked for is added to gpu->held, and what nobody has cut yet is not. The device must be
 * current. E_NOMEM, E_DEVICE. */
int32_t sb_weight_memory_take(void **out, struct sb_weight_memory *memory, struct sb_gpu *gpu,
                              size_t bytes);
/* Gives back what was taken for so many bytes. */
void sb_weight_memory_give(struct sb_weight_memory *memory, struct sb_gpu *gpu, void *dev,
                           size_t bytes);

#endif
