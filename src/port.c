/*
 * Compiler and operating system, in one file.
 *
 * The floating-point environment. Results must not depend on how the host was built, so every entry sets
 * round-to-nearest with denormals flushed both ways. Flushing is not a speed trick here: vdpbf16ps always
 * flushes, so the other paths must too or the levels would differ. Where neither MXCSR nor FPCR exists only
 * the rounding mode is set; there is one SIMD level on such machines and denormals merely stay denormals.
 *
 * Affinity needs a GNU extension; without it the count of processors on line is used. So does dladdr; without it the
 * library does not know where it lies, and modules need an absolute path. Random bytes are asked of Linux only, and
 * never waited for: they key hash tables, where a bad key costs time and nothing else.
 */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "port.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/random.h>
#endif

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>
#include <immintrin.h>

#define MXCSR_MASKS 0x1f80u /* all exceptions masked, none raised, round to nearest */
#define MXCSR_FTZ 0x8000u
#define MXCSR_DAZ 0x0040u

void sb_port_fp_enter(struct sb_fp_env *env)
{
    env->saved = _mm_getcsr();
    _mm_setcsr(MXCSR_MASKS | MXCSR_FTZ | MXCSR_DAZ);
}

void sb_port_fp_leave(const struct sb_fp_env *env)
{
    _mm_setcsr((uint32_t)env->saved);
}

#elif defined(__aarch64__)

#define FPCR_FZ (UINT64_C(1) << 24) /* every other field zero: nearest, no traps, NaNs propagate */

void sb_port_fp_enter(struct sb_fp_env *env)
{
    __asm__ volatile("mrs %0, fpcr" : "=r"(env->saved));
    __asm__ volatile("msr fpcr, %0" : : "r"(FPCR_FZ) : "memory");
}

void sb_port_fp_leave(const struct sb_fp_env *env)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(env->saved) : "memory");
}

#else

#include <fenv.h>

void sb_port_fp_enter(struct sb_fp_env *env)
{
    env->saved = (uint64_t)fegetround();
    fesetround(FE_TONEAREST);
}

void sb_port_fp_leave(const struct sb_fp_env *env)
{
    fesetround((int)env->saved);
}

#endif

uint64_t sb_port_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

int32_t sb_port_n_processors(void)
{
    long online;
#if defined(__linux__)
    cpu_set_t set;
    /* Fails on machines with more processors than the set has bits: then all of them are counted. */
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (int32_t)CPU_COUNT(&set);
#endif
    online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int32_t)online : 1;
}

int sb_port_random(void *bytes, size_t n)
{
#if defined(__linux__)
    return getrandom(bytes, n, GRND_NONBLOCK) == (ssize_t)n;
#else
    (void)bytes;
    (void)n;
    return 0;
#endif
}

void *sb_port_module_open(const char *path, char *why, size_t size)
{
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *error = module ? NULL : dlerror();

    snprintf(why, size, "%s", error ? error : "");
    return module;
}

void sb_port_module_symbol(void *function, size_t size, void *module, const char *name)
{
    void *symbol = dlsym(module, name);
    memcpy(function, &symbol, size < sizeof symbol ? size : sizeof symbol);
}

void sb_port_module_close(void *module)
{
    if (module)
        dlclose(module);
}

#if defined(__linux__)

/* Of a program, dladdr gives what it was called as: /proc knows the file. */
static int program_path(char *path, size_t size, const char *called)
{
    const char *name = strrchr(called, '/'), *real;
    const ssize_t n = readlink("/proc/self/exe", path, size - 1);

    if (n <= 0)
        return 0;
    path[n] = '\0';
    real = strrchr(path, '/');
    return real && strcmp(real + 1, name ? name + 1 : called) == 0;
}

int sb_port_own_path(char *path, size_t size)
{
    static const char anchor = 0; /* any object of this file */
    Dl_info info;

    if (!dladdr(&anchor, &info) || !info.dli_fname)
        return 0;
    if (info.dli_fname[0] != '/')
        return program_path(path, size, info.dli_fname);
    return (size_t)snprintf(path, size, "%s", info.dli_fname) < size;
}

#else

int sb_port_own_path(char *path, size_t size)
{
    (void)path;
    (void)size;
    return 0;
}

#endif

void sb_port_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#if defined(__x86_64__) || defined(__i386__)

/* The builtin also asks the operating system (XGETBV) whether it saves the registers. Not every compiler's
 * builtin knows F16C, so that bit is read by hand. */
int sb_port_has_avx2(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma");
}

int sb_port_has_avx512(void)
{
    return sb_port_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

int sb_port_has_avx512_bf16(void)
{
    return sb_port_has_avx512() && __builtin_cpu_supports("avx512bf16");
}

/* AMD since Zen 4. On Intel it has a quarter of the rate (measured on Sapphire Rapids): the plain way is
 * twice as fast there. */
int sb_port_is_avx512_bf16_fast(void)
{
    return sb_port_has_avx512_bf16() && __builtin_cpu_is("amd");
}

#else

int sb_port_has_avx2(void)
{
    return 0;
}

int sb_port_has_avx512(void)
{
    return 0;
}

int sb_port_has_avx512_bf16(void)
{
    return 0;
}

int sb_port_is_avx512_bf16_fast(void)
{
    return 0;
}

#endif
