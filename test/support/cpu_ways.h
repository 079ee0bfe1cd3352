/*
 * For tests of the CPU kernels: every way in which this machine can run them, and inputs to run
 * them on. A way is a SIMD level with a number of threads and, where products are formed in the
 * order of blocks, the instructions that form them; all of them must give the same bits.
 */
#ifndef SBTEST_CPU_WAYS_H
#define SBTEST_CPU_WAYS_H

#include "backend/backend.h"

struct cpu {
    struct sb_device *device;
    struct sb_exec *exec;
    char name[40]; /* "avx2, fma, 3 threads" */
};

/* At most: multiply-adds and emulated tiles at three levels, vdpbf16ps and tiles at one, each with
 * one or three threads. */
#define CPU_WAYS 16

extern const struct sb_mem cpu_mem; /* allocates by the C library */

/* Opens every way for a compute class and returns how many there are. Ends the program on failure.
 */
int cpu_open(struct cpu ways[CPU_WAYS], int32_t compute);
void cpu_close(struct cpu *ways, int n);
/* Gives all of them caches of this type. Those that cpu_open made have caches of f32. */
void cpu_set_kv(struct cpu *ways, int n, enum sb_dtype kv);

/* Inputs, the same in every run. */
uint32_t cpu_random(void);
float cpu_uniform(void);        /* [-1, 1) */
float cpu_any_bits(void);       /* any float, also denormals, infinities and NaNs */
void *cpu_memory(size_t bytes); /* from malloc; ends the program when there is none */
float *cpu_floats(int64_t n);   /* n values of cpu_uniform; the caller frees them */

/* The index of the first float whose bits differ, or -1. A NaN equals any other NaN. */
int64_t cpu_first_difference(const float *a, const float *b, int64_t n);

/* cpu_widen: the value of element i of a row of weights of type `dtype`. cpu_narrow: sets element i
 * to a value near `value`. */
float cpu_widen(const void *rows, int64_t i, enum sb_dtype dtype);
void cpu_narrow(void *rows, int64_t i, float value, enum sb_dtype dtype);
float cpu_round_bf16(float value);
/* What a cache of type `dtype` holds of a value: the nearest that it can hold, of equally near ones
 * the even one. What is too large for f16 becomes its largest finite value. */
float cpu_round(float value, enum sb_dtype dtype);

#endif
