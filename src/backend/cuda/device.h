/*
 * The device of a model: found, opened, and with its numerics class.
 *
 * Classes (kernels/cuda/launch.h). SPECBATCH_COMPUTE_F32 is the f32 reference class, equal to the
 * CPU bit for bit: weights of any file type are widened. SPECBATCH_COMPUTE_BF16 is the 16-bit
 * class: weights stay in the file's 16-bit type, and a file of f32 is rounded to bf16. The first
 * weight of a model, its embedding, chooses the type, bf16 if it is quantised, and the rest follow
 * it. Quantised weights stay quantised in both, and their products are of a class of their own.
 * When the model is loaded and cuDNN is wanted, calibration decides who computes the attention of
 * long prompts.
 */
#ifndef SB_CUDA_DEVICE_H
#define SB_CUDA_DEVICE_H

#include "backend/backend.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/gemm_run.h"
#include "backend/cuda/prefill.h"
#include "backend/cuda/staging.h"
#include "backend/cuda/weight_memory.h"

struct sb_device {
    struct sb_gpu gpu;
    struct sb_weight_memory weights;
    int major, minor;           /* compute capability */
    int has_type;               /* `type` is chosen */
    enum sb_dtype type;         /* of weights, gemm inputs and caches */
    int32_t kv;                 /* SPECBATCH_KV_*: what was asked for, AUTO or that type */
    int32_t wants_cudnn;        /* for the attention of long prompts */
    const char *plan_file;      /* the option, until has_type */
    int has_quantised;          /* weights are quantised, so the class names their products */
    struct sb_staging staging;  /* through which weights are loaded */
    size_t reported;            /* bytes of weights that the log has heard of */
    struct sb_gemm *gemm;       /* the 16-bit class's products; NULL in the f32 class */
    struct sb_prefill *prefill; /* NULL: the own kernel computes all attention */
    char class_text[240];       /* for the fingerprint */
};

/* As device_open, device_close, device_class and calibrate of backend.h. */
int32_t sb_cuda_device_open(struct sb_device **out, const struct sb_mem *mem,
                            const struct sb_device_options *options);
void sb_cuda_device_close(struct sb_device *device);
const char *sb_cuda_device_class(const struct sb_device *device);
int32_t sb_cuda_calibrate(int32_t *span, struct sb_device *device,
                          const struct sb_geometry *geometry);
/* Chooses the type of weights, and what follows from it, unless that is done already. Only while a
 * model is opened and loaded; the device must be current. E_NOMEM, E_DEVICE. */
int32_t sb_cuda_set_type(struct sb_device *device, enum sb_dtype type);
/* Has the class name products with quantised weights, before calibration. */
void sb_cuda_note_quantised(struct sb_device *device);

#endif
