/* The operations of the CPU backend that are loops over a kernel (cpu_ops.c). */
#ifndef SB_CPU_OPS_H
#define SB_CPU_OPS_H

#include "backend/cpu_device.h"

/* The operations of the table in backend.h, under these names for cpu.c. */
void sb_cpu_op_embed(struct sb_exec *exec, float *x, const struct sb_weight *table, float scale,
                     const struct sb_pass *pass);
void sb_cpu_op_norm(struct sb_exec *exec, const struct sb_norm *args);
void sb_cpu_op_gemm(struct sb_exec *exec, float *y, const void *x, const struct sb_weight *weight,
                    const float *bias, int32_t m);
void sb_cpu_op_rope_kv(struct sb_exec *exec, float *qkv, const struct sb_attention *attention,
                       const struct sb_pass *pass);
void sb_cpu_op_attend(struct sb_exec *exec, void *y, const float *qkv,
                      const struct sb_attention *attention, const struct sb_pass *pass);
/* y [m] gemm inputs of n columns = gate(g) * up, where each row of gate_up [m, 2 * n] has n of g
 * and then n of up. */
void sb_cpu_op_gate(struct sb_exec *exec, void *y, const float *gate_up, enum sb_gate gate,
                    int32_t m, int32_t n);
void sb_cpu_op_gated(struct sb_exec *exec, void *y, float *gate_up, const void *x,
                     const struct sb_weight *weight, const float *bias, enum sb_gate gate,
                     int32_t m, int32_t n);
void sb_cpu_op_soft_cap(struct sb_exec *exec, float *x, float cap, int64_t n);
void sb_cpu_op_select(struct sb_exec *exec, const struct sb_select *args);
void sb_cpu_op_accept(struct sb_exec *exec, const int32_t *tokens, const int32_t *picks,
                      const int32_t *n_draft, int32_t n_rows, int32_t stride, int32_t *n_accept);
void sb_cpu_op_move(struct sb_exec *exec, void *planes, const struct sb_move *args);

#endif
