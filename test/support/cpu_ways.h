/*
 * For tests of the CPU kernels: every way in which this machine can run them, and inputs to run
 * them on. A way is a SIMD level with a number of threads and, where products are formed in the
 * order of blocks or of integers, the instructions that form them; all of them must give the same
 * bits.
 */
#ifndef SBTEST_CPU_WAYS_H
#define SBTEST_CPU_WAYS_H

#include "backend/backend.h"

struct cpu {
    struct sb_device *device;
    struct sb_exec *exec;
    char name[48]; /* "avx2, fma, 3 threads" */
};

/* At most: multiply-adds and emulated tiles at three levels, vdpbf16ps and tiles at one, each with
 * one or three threads. Integers have as many. */
#define CPU_WAYS 16

extern const struct sb_mem cpu_mem; /* allocates by the C library */

/* Opens every way for a compute class and returns how many there are. Ends the program on failure.
 */
int cpu_open(struct cpu ways[CPU_WAYS], int32_t compute);
/* The same with caches of another type than f32. */
int cpu_open_kv(struct cpu ways[CPU_WAYS], int32_t compute, enum sb_dtype kv);
void cpu_close(struct cpu *ways, int n);
/* Gives all of them caches of this type. (A class whose attention depends on the type is to be
 * opened with it.) */
void cpu_set_kv(struct cpu *ways, int n, enum sb_dtype kv);

/* Makes a weight of rows [n, k] of dtype, and fills it in uneven pieces in any order. Returns 0
 * when it cannot be made. The caller frees it. */
int cpu_weight(struct sb_weight *weight, const struct cpu *way, const void *rows, int n, int k,
               enum sb_dtype dtype);
/* Whether each row of a product of m <= 256 rows, drawn at random from n_base rows of x, has the
 * bits of the row of `expected`. The product is with the weight and all those below it. */
int cpu_rows_agree(const struct cpu *way, const struct sb_weight *weight, const float *x,
                   int n_base, const float *expected, const float *bias, int m);

/* What a gate x does to up (enum sb_gate), in double precision. */
double cpu_gate_exactly(double x, double up, enum sb_gate gate);

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
/* What a product reads in place of n values x: parts [3, n], of which it makes and returns the
 * number. They are x itself in the class F32, x rounded in BF16 and INT8, and three parts in
 * SPLIT. (What INT8 makes of x for quantised weights is in test_quant_gemm.c.) */
int cpu_parts(float *parts, const float *x, int n, int32_t compute);
/* What a cache of type `dtype` holds of a value: the nearest that it can hold, of equally near ones
 * the even one. What is too large for f16 becomes its largest finite value. */
float cpu_round(float value, enum sb_dtype dtype);

#endif
