/* Products of the CPU backend, one or several at once (cpu_gemm.c). */
#ifndef SB_CPU_GEMM_H
#define SB_CPU_GEMM_H

#include "backend/cpu_device.h"

/* y [m, n_out] = x [m, n_in] W^T + bias, as backend.h defines gemm. */
struct sb_cpu_product {
    const struct sb_weight *weight;
    const float *bias, *x;
    float *y;
    int32_t m;
};

/* Computes n products, of which none reads what another one writes, and n is at most the number of
 * experts that exec was made for, or 1. */
void sb_cpu_run_products(struct sb_exec *exec, const struct sb_cpu_product *products, int32_t n);

/* What an exec has for them, and its bytes. E_NOMEM. */
int32_t sb_cpu_products_create(struct sb_exec *exec, const struct sb_exec_limits *limits);
void sb_cpu_products_free(struct sb_exec *exec);
size_t sb_cpu_products_bytes(const struct sb_device *device, const struct sb_exec_limits *limits);

#endif
