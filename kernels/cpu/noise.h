/*
 * The noise of sampling: a number for each seed, position and token id, the same on every machine.
 *
 *     x(seed, position, id)    word id % 4 of Philox4x32-10, with the key (low half of seed, high
 *                              half) and the counter (position, id / 4, 0, 0)
 *     v                        1 - (x + 0.5) / 2^32, which a double holds exactly
 *     noise                    (float)(-log(-log(v)))
 *
 * Philox (Salmon et al., Parallel random numbers: as easy as 1, 2, 3; 2011) makes a word from its
 * counter alone, so the words of a row may be made in any order and by any number of threads, and
 * none has to be kept. v is uniform on 2^32 equal steps of (0, 1) and never 0 or 1, so the noise is
 * finite, from -3.2 to 22.9. It has Gumbel's distribution: the largest of log p[id] + noise is at
 * id with probability p[id].
 *
 * The logarithm is fdlibm's (Sun Microsystems, __ieee754_log), here because those of C libraries
 * differ. It is additions, multiplications and one division, none of them fused: the compiler has
 * to be told so, here by -ffp-contract=off and on a GPU by -fmad=false. Nothing here depends on a
 * vector width. The loops over lanes are plain C, which the compiler makes vectors of.
 *
 * BOUND. An id needs its logarithms only if its noise may be large. Let x have L leading zeros, so
 * x >= 2^(31-L), or x = 0 and L = 32. With u = 1 - v = (x + 0.5) / 2^32 that gives
 * u >= 2^-(L+1). As -log(1 - u) >= u,
 *
 *     -log(-log(v))  <=  -log(u)  <=  (L + 1) log 2
 *
 * SB_NOISE_STEP is log 2 and 1.7e-7 of it. That covers the roundings: of the noise to float (6e-8
 * of it), of this product (6e-8), and the logarithms' own (below 1e-15).
 */
#ifndef SB_CPU_NOISE_H
#define SB_CPU_NOISE_H

#include <stdint.h>
#include <string.h>

/* A CUDA kernel defines this as what its own functions are before it includes the file. */
#ifndef SB_NOISE_INLINE
#define SB_NOISE_INLINE static inline __attribute__((always_inline, unused))
#endif

#define SB_NOISE_STEP 0x1.62e434p-1f
#define SB_NOISE_MAX (33 * SB_NOISE_STEP) /* no noise is larger */
#define SB_NOISE_LANES 16                 /* counters that are done together */
#define SB_NOISE_BLOCK (4 * SB_NOISE_LANES)

/* Philox4x32-10 of n counters: word w of counter i is c[w * n + i] before, and of its result after.
 */
SB_NOISE_INLINE void sb_philox(uint32_t *c, uint64_t seed, const int n)
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < n; i++) {
            const uint64_t a = (uint64_t)0xd2511f53u * c[i],
                           b = (uint64_t)0xcd9e8d57u * c[2 * n + i];
            c[i] = (uint32_t)(b >> 32) ^ c[n + i] ^ key0;
            c[n + i] = (uint32_t)b;
            c[2 * n + i] = (uint32_t)(a >> 32) ^ c[3 * n + i] ^ key1;
            c[3 * n + i] = (uint32_t)a;
        }
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
}

/* The natural logarithm of a positive normal number. x = 2^k (1 + f), with 1 + f in [sqrt(1/2),
 * sqrt(2)) and log(1 + f) = f - f^2/2 + s (f^2/2 + R(s)), where s = f / (2 + f). */
SB_NOISE_INLINE double sb_log_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t high = (uint32_t)(bits >> 32) + (0x3ff00000u - 0x3fe6a09eu);
    const double k = (double)((int32_t)(high >> 20) - 0x3ff);
    high = (high & 0x000fffffu) + 0x3fe6a09eu;
    bits = (uint64_t)high << 32 | (bits & 0xffffffffu);
    memcpy(&x, &bits, sizeof x);

    const double f = x - 1.0, half = 0.5 * f * f, s = f / (2.0 + f), z = s * s, w = z * z;
    const double even = w * (3.999999999940941908e-01 +
                             w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    const double odd = z * (6.666666666666735130e-01 +
                            w * (2.857142874366239149e-01 +
                                 w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    return s * (half + (odd + even)) + k * 1.90821492927058770002e-10 - half + f +
           k * 6.93147180369123816490e-01;
}

/* The noise of a word. */
SB_NOISE_INLINE float sb_noise(uint32_t x)
{
    const double v = ((double)~x + 0.5) * 0x1p-32;
    return (float)-sb_log_double(-sb_log_double(v));
}

/* The words of ids [first, first + SB_NOISE_BLOCK); first is a multiple of 4. */
SB_NOISE_INLINE void sb_noise_words(uint32_t x[SB_NOISE_BLOCK], uint64_t seed, int32_t position,
                                    int32_t first)
{
    enum { N = SB_NOISE_LANES };
    uint32_t c[4 * N];

    for (int i = 0; i < N; i++) {
        c[i] = (uint32_t)position;
        c[N + i] = (uint32_t)first / 4 + (uint32_t)i;
        c[2 * N + i] = c[3 * N + i] = 0;
    }
    sb_philox(c, seed, N);
    for (int i = 0; i < N; i++)
        for (int w = 0; w < 4; w++)
            x[4 * i + w] = c[w * N + i];
}

/* An upper bound of the noise of a word. The exponent of x / 2^8 as a float, which holds its 24
 * bits exactly, tells the leading zeros. Where that is 0 the bound is high, and right. */
SB_NOISE_INLINE float sb_noise_bound(uint32_t x)
{
    const float high = (float)(int32_t)(x >> 8);
    uint32_t bits;

    memcpy(&bits, &high, sizeof bits);
    return (float)(151 - (int32_t)(bits >> 23)) * SB_NOISE_STEP;
}

/* The bounds of a block of words. */
SB_NOISE_INLINE void sb_noise_bounds(float bounds[SB_NOISE_BLOCK], const uint32_t x[SB_NOISE_BLOCK])
{
    for (int i = 0; i < SB_NOISE_BLOCK; i++)
        bounds[i] = sb_noise_bound(x[i]);
}

#endif
