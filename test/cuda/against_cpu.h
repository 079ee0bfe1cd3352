/* For tests that compare the kernels of a device with the CPU's, in the floating-point environment
 * of the library. */
#ifndef TEST_CUDA_AGAINST_CPU_H
#define TEST_CUDA_AGAINST_CPU_H

#include "cuda/kernel_test.h"
#include "port.h"

static const struct sb_backend *cpu;
static struct cpu *way; /* which CPU kernels are compared with: all have the same bits */
static struct cpu ways[CPU_WAYS];
static int n_ways;

/* Opens both. Returns 0 where there is no device; then all tests are skipped. */
static inline int both_begin(void)
{
    static struct sb_fp_env env;

    n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    sb_port_fp_enter(&env);
    cpu = sb_backend_cpu();
    way = &ways[n_ways - 2]; /* the best level, one thread */
    return device_begin();
}

/* Closes what both_begin has opened, which is what it returned. */
static inline void both_end(int has_device)
{
    if (has_device)
        device_end();
    cpu_close(ways, n_ways);
}

#endif
