/*
 * For tests of the 16-bit class's kernels: random matrices, as floats and as the device holds them.
 */
#ifndef TEST_CUDA_MATRIX_H
#define TEST_CUDA_MATRIX_H

#include "cuda/kernel_test.h"

/* Ends the calling test where a check within the call has failed. */
#define TRY(call)              \
    do {                       \
        call;                  \
        if (sbtest_failed_now) \
            return;            \
    } while (0)

static const enum sb_dtype types[] = {SB_BF16, SB_F16};

static inline float rounded(float value, enum sb_dtype type)
{
    const uint16_t bits = narrow_bits(value, type, 0);

    return cpu_widen(&bits, 0, type);
}

/* Random elements [rows, n], as floats and as device rows of ld elements whose padding is zero. */
struct matrix {
    float *values;  /* rounded to the type */
    uint16_t *bits; /* the same */
    int64_t rows, ld;
    int32_t n;
};

static inline struct matrix matrix_make(int64_t rows, int32_t n, enum sb_dtype type)
{
    struct matrix a = {.rows = rows, .ld = sb_cuda_ld(type, n), .n = n};

    a.values = cpu_floats(rows * n);
    a.bits = cpu_memory((size_t)(rows * a.ld) * 2);
    memset(a.bits, 0, (size_t)(rows * a.ld) * 2);
    for (int64_t r = 0; r < rows; r++)
        for (int32_t k = 0; k < n; k++) {
            a.bits[r * a.ld + k] = narrow_bits(a.values[r * n + k], type, 0);
            a.values[r * n + k] = rounded(a.values[r * n + k], type);
        }
    return a;
}

static inline void matrix_free(struct matrix *a)
{
    free(a->values);
    free(a->bits);
}

#endif
