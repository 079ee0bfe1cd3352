/*
 * The exp, tanh and log of the CPU kernels. Those of C libraries differ between versions and
 * between scalar and vector code. These do the same fused multiply-adds at every SIMD level and so
 * give the same bits.
 *
 * Coefficients and reduction: Cephes expf and logf (S. Moshier, https://www.netlib.org/cephes/),
 * within about 1 ulp over the whole range (test/cpu/test_kernels.c measures it).
 */
#ifndef SB_CPU_MATH_H
#define SB_CPU_MATH_H

#include "vec.h"

/* e^r - 1 for r = x - n ln 2, with ln 2 in two pieces. */
V_INLINE v16 v_exp_rest_less_1(v16 x, v16 n)
{
    v16 r = v_fma(n, v_set1(-0.693359375f), x);
    r = v_fma(n, v_set1(2.12194440e-4f), r);

    v16 p = v_set1(1.9875691500e-4f);
    p = v_fma(p, r, v_set1(1.3981999507e-3f));
    p = v_fma(p, r, v_set1(8.3334519073e-3f));
    p = v_fma(p, r, v_set1(4.1665795894e-2f));
    p = v_fma(p, r, v_set1(1.6666665459e-1f));
    p = v_fma(p, r, v_set1(5.0000001201e-1f));
    return v_fma(v_mul(r, r), p, r);
}

/* e^r */
V_INLINE v16 v_exp_rest(v16 x, v16 n) { return v_add(v_exp_rest_less_1(x, n), v_set1(1.0f)); }

/* A float to which this is added has its rounded integer in the low mantissa bits. */
#define TO_INTEGER 0x1.8p23f

/* e^x = 2^n e^r, where n = round(x / ln 2). 2^n is multiplied in as two factors, since n reaches
 * 128 and -150. Below -110 the result is 0, above 90 it is infinity, and a NaN passes through. */
V_INLINE v16 v_exp(v16 x)
{
    const v16 to_int = v_set1(TO_INTEGER), bias = v_set1(TO_INTEGER + 127.0f);

    /* v_max and v_min return their second argument if it is a NaN */
    x = v_min(v_set1(90.0f), v_max(v_set1(-110.0f), x));
    v16 n = v_sub(v_fma(x, v_set1(0x1.715476p+0f), to_int), to_int);
    v16 p = v_exp_rest(x, n);

    v16 half = v_sub(v_fma(n, v_set1(0.5f), to_int), to_int);
    /* the shift makes the integer half + 127 the exponent */
    v16 scale_a = v_shift_left_23(v_add(half, bias));
    v16 scale_b = v_shift_left_23(v_add(v_sub(n, half), bias));
    return v_mul(v_mul(p, scale_a), scale_b);
}

/* The same for x that is not above 0: the bits of v_exp, in fewer steps. The one factor 2^n is
 * normal down to -126; for n = -127 it is 0, as is every result there, since denormals are
 * flushed. */
V_INLINE v16 v_exp_negative(v16 x)
{
    const v16 to_int = v_set1(TO_INTEGER), bias = v_set1(127.0f);

    x = v_max(v_set1(-88.0f), x);
    v16 shifted = v_fma(x, v_set1(0x1.715476p+0f), to_int);
    v16 p = v_exp_rest(x, v_sub(shifted, to_int));
    return v_mul(p, v_shift_left_23(v_add(shifted, bias)));
}

/* tanh x = t / (t + 2) with t = e^2x - 1 = 2^n (e^r - 1) + (2^n - 1), which is precise near 0 too.
 * From |2x| = 40 on the result is 1 or -1. A NaN passes through. */
V_INLINE v16 v_tanh(v16 x)
{
    const v16 to_int = v_set1(TO_INTEGER), bias = v_set1(127.0f), one = v_set1(1.0f);

    /* v_max and v_min return their second argument if it is a NaN */
    x = v_min(v_set1(40.0f), v_max(v_set1(-40.0f), v_add(x, x)));
    v16 shifted = v_fma(x, v_set1(0x1.715476p+0f), to_int);
    v16 scale = v_shift_left_23(v_add(shifted, bias));
    v16 t = v_fma(scale, v_exp_rest_less_1(x, v_sub(shifted, to_int)), v_sub(scale, one));
    return v_div(t, v_add(t, v_set1(2.0f)));
}

/* A soft cap (backend.h). */
V_INLINE v16 v_soft_cap(v16 x, v16 cap) { return v_mul(cap, v_tanh(v_div(x, cap))); }

/* The natural logarithm of a positive normal number. +infinity and NaN are returned as they are. */
V_INLINE float sb_log(float x)
{
    uint32_t bits = f32_bits(x);
    if (!(x < INFINITY))
        return x;
    /* x = 2^e m with m in [sqrt(1/2), sqrt(2)) */
    int32_t e = (int32_t)((bits - 0x3f3504f3u) >> 23);
    if (e >= 256)
        e -= 512;
    float n = (float)e, f = bits_f32(bits - ((uint32_t)e << 23)) - 1.0f, z = f * f;

    float p = 7.0376836292e-2f;
    p = fmaf(p, f, -1.1514610310e-1f);
    p = fmaf(p, f, 1.1676998740e-1f);
    p = fmaf(p, f, -1.2420140846e-1f);
    p = fmaf(p, f, 1.4249322787e-1f);
    p = fmaf(p, f, -1.6668057665e-1f);
    p = fmaf(p, f, 2.0000714765e-1f);
    p = fmaf(p, f, -2.4999993993e-1f);
    p = fmaf(p, f, 3.3333331174e-1f);
    float y = p * (f * z);
    y = fmaf(n, -2.12194440e-4f, y);
    y = fmaf(z, -0.5f, y);
    return fmaf(n, 0.693359375f, f + y);
}

#endif
