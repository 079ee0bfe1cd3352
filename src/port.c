/*
 * What differs between compilers, processors and operating systems, in one file.
 *
 * The floating-point environment. Results must not depend on how the host was built, so every entry
 * sets round-to-nearest and flushes denormals to zero, on input and on output. Flushing is not for
 * speed: the instruction vdpbf16ps always flushes, so the SIMD levels that do without it must flush
 * too, or their bits would differ. On machines that have neither MXCSR nor FPCR only the rounding
 * mode is set. They have a single SIMD level, so there is nothing to differ from, and denormals
 * stay.
 *
 * Callbacks of the host run in the host's mode. Each thread remembers where that mode was saved
 * (`innermost`), because memory functions are called from everywhere and a parameter would have to
 * be passed down everywhere. While a callback runs, `innermost` is NULL and the mode is the host's,
 * as if the thread had never entered the library. So nothing has to be put right when the callback
 * is left by longjmp or an exception.
 *
 * Whether a callback has been left in that way is told from the stack, which grows downwards on
 * every machine that this runs on. As long as the callback has not been left, everything that it
 * calls lies below it on the stack. So a call into the library from above it means that the
 * callback is gone. A call from below it proves nothing, nor does a call from another stack (of
 * another thread, or of a coroutine): the callback then counts as still running, because the
 * conclusion from "gone" is that its pool may be freed. Between the library's frame and the
 * callback a gap of GAP_BYTES is left on the stack, so that the host's clean-up code counts as
 * above even if it runs a few calls deep. Rejected: an unwinder, which would know for certain, but
 * is a dependency and is blind behind frames without unwind tables; cleanup attributes, which
 * longjmp does not run.
 *
 * Affinity needs a GNU extension; without it the processors on line are counted. So does dladdr;
 * without it the library does not know where its file is, and modules need an absolute path. Random
 * bytes come from Linux only, and are never waited for: they are keys of hash tables, where a bad
 * key costs time and nothing else.
 */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "port.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/random.h>
#include <sys/syscall.h>
#endif

#define GAP_BYTES 8192 /* left free on the stack between the library's frame and a callback */

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>
#include <immintrin.h>

/* MXCSR: all exceptions masked, none raised, rounding to nearest | flush to zero (FTZ) | denormals
 * are zero (DAZ) */
#define OUR_MODE (0x1f80u | 0x8000u | 0x0040u)

static uint64_t fp_mode(void)
{
    return _mm_getcsr();
}

static void set_fp_mode(uint64_t mode)
{
    _mm_setcsr((uint32_t)mode);
}

#elif defined(__aarch64__)

/* FPCR: only FZ (flush to zero) is set. Zero in the other fields means rounding to nearest, no
 * traps, and NaNs that propagate. */
#define OUR_MODE (UINT64_C(1) << 24)

static uint64_t fp_mode(void)
{
    uint64_t mode;

    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static void set_fp_mode(uint64_t mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}

#else

#include <fenv.h>

#define OUR_MODE FE_TONEAREST

static uint64_t fp_mode(void)
{
    return (uint64_t)fegetround();
}

static void set_fp_mode(uint64_t mode)
{
    fesetround((int)mode);
}

#endif

/* The innermost call of the library that is in progress on this thread; NULL while the host's own
 * code runs, also in a callback. */
static _Thread_local struct sb_fp_env *innermost;

void sb_port_fp_enter(struct sb_fp_env *env)
{
    env->saved = fp_mode();
    env->outer = innermost;
    env->callback = NULL;
    innermost = env;
    set_fp_mode(OUR_MODE);
}

void sb_port_fp_leave(const struct sb_fp_env *env)
{
    innermost = env->outer;
    set_fp_mode(env->saved);
}

/* The call that the host itself made. The mode that was saved then is the host's. */
static struct sb_fp_env *outermost(struct sb_fp_env *env)
{
    while (env->outer)
        env = env->outer;
    return env;
}

/* The gap is written to before the call and after it. Otherwise the compiler would leave it out, or
 * turn the call of fn into a jump that frees it first. The address sanitizer is kept off this
 * function, since it would move the gap away from the stack. What the callback changes in the
 * host's mode stays changed afterwards, as if the host had made the call itself. */
__attribute__((no_sanitize("address"))) void sb_port_call_host(void (*fn)(void *), void *arg)
{
    struct sb_fp_env *env = innermost, *host;
    volatile char gap[GAP_BYTES];

    if (!env) {
        fn(arg);
        return;
    }
    host = outermost(env);
    gap[0] = 0;
    host->callback = (const void *)gap;
    innermost = NULL;
    set_fp_mode(host->saved);
    fn(arg);
    host->saved = fp_mode();
    set_fp_mode(OUR_MODE);
    innermost = env;
    host->callback = NULL;
    gap[0] = 0;
}

const void *sb_port_thread(void)
{
    return &innermost;
}

#if defined(__linux__)

/* Whether both addresses are on the stack that this thread was started with (not a coroutine's). */
static int on_own_stack(const void *a, const void *b)
{
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size = 0;

    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return 0;
    if (pthread_attr_getstack(&attributes, &low, &size) != 0)
        size = 0;
    pthread_attr_destroy(&attributes);
    return (uintptr_t)a - (uintptr_t)low < size && (uintptr_t)b - (uintptr_t)low < size;
}

int sb_port_callback_is_gone(const struct sb_fp_env *env)
{
    const void *here = __builtin_frame_address(0);

    return env->callback && (uintptr_t)here > (uintptr_t)env->callback &&
           on_own_stack(here, env->callback);
}

#else

int sb_port_callback_is_gone(const struct sb_fp_env *env)
{
    (void)env;
    return 0;
}

#endif

static uint64_t nanoseconds(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * UINT64_C(1000000000) + (uint64_t)time->tv_nsec;
}

uint64_t sb_port_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return nanoseconds(&now);
}

uint64_t sb_port_thread_ns(void)
{
#if defined(_POSIX_THREAD_CPUTIME)
    struct timespec time;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0)
        return nanoseconds(&time);
#endif
    return sb_port_now_ns();
}

int32_t sb_port_n_processors(void)
{
    long online;
#if defined(__linux__)
    cpu_set_t set;
    /* This fails on a machine with more processors than the set has bits. All of those that are on
     * line are counted then. */
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (int32_t)CPU_COUNT(&set);
#endif
    online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int32_t)online : 1;
}

int32_t sb_port_processor(void)
{
#if defined(__linux__)
    return (int32_t)sched_getcpu();
#else
    return -1;
#endif
}

int64_t sb_port_process(void)
{
    return (int64_t)getpid();
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

/* For code in the program itself dladdr gives the name by which the program was called, which may
 * be relative. /proc knows the program's file; its path is taken if its last part agrees with that.
 */
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
    static const char anchor = 0; /* any object of this file: dladdr is asked who contains it */
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

/* __builtin_cpu_supports also asks (by XGETBV) whether the operating system saves the registers.
 * Not every compiler's builtin knows F16C, so the bit for that is read here. */
int sb_port_has_avx2(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma");
}

int sb_port_has_avx512(void)
{
    return sb_port_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

int sb_port_has_avx512_bf16(void)
{
    return sb_port_has_avx512() && __builtin_cpu_supports("avx512bf16");
}

int sb_port_has_avx512_vnni(void)
{
    return sb_port_has_avx512() && __builtin_cpu_supports("avx512vnni");
}

/* It is fast on AMD since Zen 4. On Intel it has a quarter of a multiply-add's rate (measured on
 * Sapphire Rapids), so float multiply-adds are twice as fast there. */
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

int sb_port_has_avx512_vnni(void)
{
    return 0;
}

int sb_port_is_avx512_bf16_fast(void)
{
    return 0;
}

#endif

#if defined(__linux__) && defined(__x86_64__)

#define AMX_TILE_AND_BF16 (1u << 24 | 1u << 22) /* of CPUID leaf 7, EDX */
#define AMX_INT8 (1u << 25)                     /* of the same */
#define AMX_STATES (3u << 17)                   /* of XCR0: the tiles' configuration and data */
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XTILEDATA 18

int sb_port_has_amx(void)
{
    unsigned a, b, c, d = 0, saved, high;

    if (!sb_port_has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        (d & AMX_TILE_AND_BF16) != AMX_TILE_AND_BF16)
        return 0;
    /* The processor has XGETBV, because it saves AVX-512 registers by it. */
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    return (saved & AMX_STATES) == AMX_STATES;
}

int sb_port_has_amx_int8(void)
{
    unsigned a, b, c, d = 0;

    return sb_port_has_amx() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_INT8) != 0;
}

int sb_port_request_amx(void)
{
    return sb_port_has_amx() && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
}

#else

int sb_port_has_amx(void)
{
    return 0;
}

int sb_port_has_amx_int8(void)
{
    return 0;
}

int sb_port_request_amx(void)
{
    return 0;
}

#endif
