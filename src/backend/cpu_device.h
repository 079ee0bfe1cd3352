/*
 * What the files of the CPU backend share: a device, an exec, and which kernels they stand for.
 * cpu.c makes both, cpu_ops.c, cpu_gemm.c and cpu_mix.c compute with them.
 */
#ifndef SB_CPU_DEVICE_H
#define SB_CPU_DEVICE_H

#include <stdatomic.h>

#include "../kernels/cpu/kernels.h"
#include "alloc.h"
#include "backend/backend.h"
#include "quant.h"
#include "specbatch.h"

struct sb_threads;

/* What a range shall at least be worth, in the time that a product takes for one multiply-add: one
 * or two microseconds, a few times what another thread takes to see that there is work. The demo
 * pair was as fast with half of it, and a twentieth slower with twice of it. */
#define SB_CPU_RANGE_COST 16384
/* Items of a range that are worth that. `cost` is roughly the time of one, in multiply-adds of a
 * product. */
static inline int64_t sb_cpu_grain(int64_t cost)
{
    return cost < SB_CPU_RANGE_COST ? SB_CPU_RANGE_COST / (cost + 1) + 1 : 1;
}

struct sb_device {
    struct sb_mem mem;
    const struct sb_cpu_kernels *kernels; /* of the SIMD level */
    int32_t compute;                      /* SPECBATCH_COMPUTE_* */
    enum sb_dtype kv;                     /* of the elements of caches */
    char class_text[224];                 /* for the fingerprint */
    /* How products with bf16 weights are formed, if not by a chain: by what this processor is
     * fastest at. */
    enum sb_products blocks;
    enum sb_products integers; /* and with quantised weights in the class INT8 */
    int is_quantised;          /* whether any weight is quantised, */
    int has_mins;              /* has minima, */
    int has_halves;            /* has groups of half a block */
};

struct sb_exec {
    struct sb_mem mem;
    const struct sb_device *device;
    /* Target and draft share one thread pool: two sets of spinning workers would compete for cores.
     * So this is own_threads, or the pool of the sibling, which has none of its own to free. */
    struct sb_threads *threads;
    struct sb_threads *own_threads;
    int32_t n_threads;
    void *inputs; /* of products in the order of blocks */
    float *sums;  /* of their blocks, for weights with minima; else NULL */
    struct sb_cpu_multiplying *multiplying; /* products on their way (cpu_gemm.c) */
    struct sb_cpu_block *blocks; /* [max_tokens] blocks of queries of the attention that runs */
    /* Memory of threads that attend in the order of blocks, [n_threads] of attend_words each, and
     * which of it a thread is using. NULL in classes that do not. */
    uint32_t *attend_work;
    int64_t attend_words;
    atomic_flag *attend_in_use;
    /* Of mixtures of experts (cpu_mix.c); NULL if the model has none. */
    int32_t *mix_words;
    struct sb_cpu_product *of_experts; /* [max_experts] */
};

/* Whether weights that are not quantised are held in bf16, whatever type they come in. */
static inline int sb_cpu_rounds_weights(const struct sb_device *device)
{
    return device->compute == SPECBATCH_COMPUTE_BF16 || device->compute == SPECBATCH_COMPUTE_INT8;
}

/* What the inputs of products in the order of blocks are made to. */
static inline enum sb_form sb_cpu_form(const struct sb_device *device)
{
    return sb_cpu_rounds_weights(device)                ? SB_FORM_BF16
           : device->compute == SPECBATCH_COMPUTE_SPLIT ? SB_FORM_PARTS
                                                        : SB_FORM_FLOAT;
}

/* Whether attention is by products in the order of blocks (kernels/cpu/attend_blocks.c). */
static inline int sb_cpu_attends_in_blocks(const struct sb_device *device)
{
    return device->compute != SPECBATCH_COMPUTE_F32 && device->kv == SB_BF16;
}

/* How the kernels read this weight. */
static inline enum sb_layout sb_cpu_layout(const struct sb_device *device,
                                           const struct sb_weight *weight)
{
    const enum sb_layout first = device->compute == SPECBATCH_COMPUTE_INT8 ? SB_LAYOUT_Q8_0_QUADS
                                                                           : SB_LAYOUT_Q8_0;

    if (sb_dtype_is_quantised(weight->dtype))
        return (enum sb_layout)(weight->dtype - SB_Q8_0 + first);
    if (weight->dtype == SB_BF16)
        return device->blocks == SB_BLOCKS_DOT ? SB_LAYOUT_BF16_DOT : SB_LAYOUT_BF16;
    return weight->dtype == SB_F16 ? SB_LAYOUT_F16 : SB_LAYOUT_F32;
}

/* Whether groups of a type are half a block of steps. The matrix unit multiplies whole blocks, so
 * these weights go by multiply-adds where it is used. */
static inline int sb_cpu_has_halves(enum sb_dtype dtype)
{
    return sb_dtype_is_quantised(dtype) && sb_quant_of(dtype)->group < SB_BLOCK;
}

/* How a product of quantised weights with so many rows of inputs is formed. With few rows the
 * matrix unit does not make up for the lines of bf16, or the integer sums, that go through
 * memory. */
static inline enum sb_products sb_cpu_quant_products(const struct sb_device *device,
                                                     enum sb_dtype dtype, int64_t rows)
{
    if (device->compute == SPECBATCH_COMPUTE_F32)
        return SB_BLOCKS_FMA;
    if (device->compute == SPECBATCH_COMPUTE_INT8) {
        if (device->integers == SB_INTEGERS_TILES && rows <= SB_CPU_FEW_INTEGER_ROWS)
            return SB_INTEGERS_DOT; /* whoever has the unit has this, too */
        return device->integers;
    }
    if (sb_cpu_has_tiles(device->blocks) && (rows <= SB_CPU_FEW_ROWS || sb_cpu_has_halves(dtype)))
        return SB_BLOCKS_FMA;
    return device->blocks;
}

/* How a product of m rows with this weight is formed. */
static inline enum sb_products sb_cpu_products(const struct sb_device *device,
                                               const struct sb_weight *weight, int32_t m)
{
    if (sb_dtype_is_quantised(weight->dtype))
        return sb_cpu_quant_products(device, weight->dtype,
                                     (int64_t)m * sb_form_parts(sb_cpu_form(device)));
    return device->compute == SPECBATCH_COMPUTE_F32 || weight->dtype != SB_BF16 ? SB_CHAIN
                                                                                : device->blocks;
}

#endif
