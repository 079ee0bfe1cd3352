/*
 * What the two files of the CPU backend share: cpu.c makes devices, execs and weights, cpu_ops.c
 * computes with them.
 */
#ifndef SB_CPU_OPS_H
#define SB_CPU_OPS_H

#include "../kernels/cpu/kernels.h"
#include "alloc.h"
#include "backend/backend.h"
#include "specbatch.h"

struct sb_threads;

struct sb_device {
    struct sb_mem mem;
    const struct sb_cpu_kernels *kernels; /* of the SIMD level */
    int32_t compute;                      /* SPECBATCH_COMPUTE_* */
    enum sb_dtype kv;                     /* of the elements of caches */
    char class_text[160];                 /* for the fingerprint */
    /* How products with bf16 weights are formed, if not by a chain: by what this processor is
     * fastest at. */
    enum sb_products blocks;
};

struct sb_exec {
    struct sb_mem mem;
    const struct sb_device *device;
    /* Target and draft share one thread pool: two sets of spinning workers would compete for cores.
     * So this is own_threads, or the pool of the sibling, which has none of its own to free. */
    struct sb_threads *threads;
    struct sb_threads *own_threads;
    int32_t n_threads;
    void *inputs;                /* of a product in the order of blocks; else NULL */
    struct sb_cpu_block *blocks; /* [max_tokens] blocks of queries of the attention that runs */
};

/* Rows of inputs for each row of a product that is formed in this way. */
static inline int32_t sb_cpu_parts(const struct sb_device *device, enum sb_products products)
{
    int is_split = device->compute == SPECBATCH_COMPUTE_SPLIT && products != SB_CHAIN;
    return is_split ? SB_CPU_PARTS : 1;
}

/* How a product with this weight is formed. */
static inline enum sb_products sb_cpu_products(const struct sb_device *device,
                                               const struct sb_weight *weight)
{
    int is_chain = device->compute == SPECBATCH_COMPUTE_F32 || weight->dtype != SB_BF16;
    return is_chain ? SB_CHAIN : device->blocks;
}

/* How the kernels read this weight. */
static inline enum sb_layout sb_cpu_layout(const struct sb_device *device,
                                           const struct sb_weight *weight)
{
    if (weight->dtype == SB_BF16)
        return sb_cpu_products(device, weight) == SB_BLOCKS_DOT ? SB_LAYOUT_BF16_DOT
                                                                : SB_LAYOUT_BF16;
    return weight->dtype == SB_F16 ? SB_LAYOUT_F16 : SB_LAYOUT_F32;
}

/* The operations of the table in backend.h, under these names for cpu.c. */
void sb_cpu_op_embed(struct sb_exec *exec, float *x, const struct sb_weight *table,
                     const struct sb_pass *pass);
void sb_cpu_op_norm(struct sb_exec *exec, const struct sb_norm *args);
void sb_cpu_op_gemm(struct sb_exec *exec, float *y, const void *x, const struct sb_weight *weight,
                    const float *bias, int32_t m);
void sb_cpu_op_rope_kv(struct sb_exec *exec, float *qkv, const struct sb_attention *attention,
                       const struct sb_pass *pass);
void sb_cpu_op_attend(struct sb_exec *exec, void *y, const float *qkv,
                      const struct sb_attention *attention, const struct sb_pass *pass);
void sb_cpu_op_swiglu(struct sb_exec *exec, void *y, const float *gate_up, int32_t m, int32_t n);
void sb_cpu_op_select(struct sb_exec *exec, const struct sb_select *args);
void sb_cpu_op_accept(struct sb_exec *exec, const int32_t *tokens, const int32_t *picks,
                      const int32_t *n_draft, int32_t n_rows, int32_t stride, int32_t *n_accept);
void sb_cpu_op_move(struct sb_exec *exec, void *planes, const struct sb_move *args);

#endif
