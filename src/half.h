/*
 * bfloat16 and half precision (IEEE binary16): their conversions to and from float, the only ones
 * in the library.
 *
 *            sign  exponent  fraction
 *   f32        1        8        23
 *   bf16       1        8         7     the upper half of an f32
 *   f16        1        5        10     6.0e-8 to 65504; below 6.1e-5 its values are subnormal
 *
 * A float comes and goes as its bits, so no register of any machine can change a NaN on the way.
 * The results do not depend on the floating-point environment: the one arithmetic operation is
 * exact and has a normal result, whatever the rounding and flushing modes are.
 *
 * To narrow is to round to nearest, ties to even. A NaN stays a NaN of its sign, and keeps the
 * upper bits of its fraction, as it does in the instructions of processors. What is too large
 * becomes infinite as a bf16, but the largest finite value as an f16: f16 overflows soon, and a row
 * that read an infinity from a cache would turn into NaN.
 *
 * Plain C that is C++ too; a device has instructions of its own for this (kernels/cuda/mma.cuh).
 */
#ifndef SB_HALF_H
#define SB_HALF_H

#include <stdint.h>
#include <string.h>

/* The f32 of the same value, as bits. */
static inline uint32_t sb_bf16_widen(uint16_t half)
{
    return (uint32_t)half << 16;
}

static inline uint32_t sb_f16_widen(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 31u;
    const uint32_t fraction = half & 1023u;
    float subnormal;
    uint32_t bits;

    if (exponent == 31)
        return sign | 0x7f800000u | fraction << 13;
    if (exponent != 0)
        return sign | (exponent + 112) << 23 | fraction << 13;
    subnormal = (float)fraction * 0x1p-24f; /* a normal f32 */
    memcpy(&bits, &subnormal, sizeof bits);
    return sign | bits;
}

/* The nearest value to the f32 with these bits. */
static inline uint16_t sb_bf16_narrow(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline uint16_t sb_f16_narrow(uint32_t bits)
{
    const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu, exponent = size >> 23;
    uint32_t fraction, shift;

    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
    if (size >= 0x477fe000u) /* 65504 and beyond, infinity included */
        return (uint16_t)(sign | 0x7bffu);
    if (exponent < 102) /* less than half the smallest subnormal */
        return (uint16_t)sign;
    /* A normal f16 drops 13 bits of the fraction. A subnormal drops more, and its leading one,
     * which an f32 implies, is spelled out. */
    shift = exponent >= 113 ? 13 : 126 - exponent;
    fraction = exponent >= 113 ? size - (112u << 23) : (size & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign |
                      (fraction + (1u << (shift - 1)) - 1 + (fraction >> shift & 1u)) >> shift);
}

#endif
