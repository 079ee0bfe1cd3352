/*
 * The portability layer: everything that is not plain C11 or POSIX file access, in one place. That
 * is the floating-point environment, calls of the host's code, processes and threads, the clock,
 * modules that are loaded at run time, random bytes, and what the processor can do.
 */
#ifndef SB_PORT_H
#define SB_PORT_H

#include <stddef.h>
#include <stdint.h>

/* The floating-point environment of the library's arithmetic: round to nearest, denormals flushed
 * to zero on input and on output, all exceptions masked. Every public function that computes enters
 * it, and so does every worker thread. Leaving puts the host's own environment back. So a host
 * built with -ffast-math neither changes the library's results nor is changed itself. Calls may
 * nest. */
struct sb_fp_env {
    uint64_t saved;          /* the mode at entry, to be put back */
    struct sb_fp_env *outer; /* the call that this one is nested in, or NULL */
    const void *callback; /* While a callback of the host runs inside this call: an address on the
                             stack that is above the callback's. Else NULL. */
};
void sb_port_fp_enter(struct sb_fp_env *env);
void sb_port_fp_leave(const struct sb_fp_env *env);

/* Calls fn(arg), which in turn calls a callback of the host: a memory, log or draft function. All
 * such calls are made through here. The callback runs in the host's floating-point environment, and
 * while it runs this thread counts as being outside of the library. */
void sb_port_call_host(void (*fn)(void *), void *arg);
/* 1: a callback that ran inside the call of `env` was left by longjmp or an exception, so that call
 * will never return. 0: the callback may still be running, or there is none. Ask on the thread that
 * entered `env`, which must lie in memory that outlives the call's stack frame. */
int sb_port_callback_is_gone(const struct sb_fp_env *env);
/* An address that identifies the calling thread: no two living threads have the same. */
const void *sb_port_thread(void);

/* Nanoseconds of a monotonic clock. */
uint64_t sb_port_now_ns(void);
/* Nanoseconds for which the calling thread has had a processor. They stand still while it waits,
 * and while other threads have the processor. Where the system does not count them: as above. */
uint64_t sb_port_thread_ns(void);
/* The processors that this process may run on: at least 1. */
int32_t sb_port_n_processors(void);
/* The number of the processor that the calling thread runs on, or -1 where that is not known. */
int32_t sb_port_processor(void);

/* A number that identifies this process: a forked child's differs from its parent's, within one PID
 * namespace. */
int64_t sb_port_process(void);

/* Modules (shared objects) that are loaded at run time.
 * open: returns NULL when it fails, and the reason in `why`, which has `size` bytes. symbol: writes
 * a function pointer of `size` bytes to *function, NULL when the module has no such symbol. close:
 * NULL is fine. */
void *sb_port_module_open(const char *path, char *why, size_t size);
void sb_port_module_symbol(void *function, size_t size, void *module, const char *name);
void sb_port_module_close(void *module);
/* The absolute path of the file that this code was loaded from: the shared library, or the program
 * if it is linked in statically. Returns 0 when that is not known, or known only relative to a
 * working directory that may have changed since. */
int sb_port_own_path(char *path, size_t size);

/* Writes n <= 256 unpredictable bytes from the operating system. Returns 0 when it gives none. */
int sb_port_random(void *bytes, size_t n);

/* Tells the processor that this thread polls in a loop. */
void sb_port_pause(void);

/* What this processor and operating system can run. */
int sb_port_has_avx2(void);        /* AVX2 with FMA and F16C */
int sb_port_has_avx512(void);      /* AVX-512 F, BW, VL and DQ */
int sb_port_has_avx512_bf16(void); /* that and BF16 */
int sb_port_has_avx512_vnni(void); /* and VNNI, the sums of integers of 8 bits */
/* 1 where the bfloat16 instruction vdpbf16ps is issued as fast as a float multiply-add. Since it
 * does twice the work, it is worth using there, and only there. */
int sb_port_is_avx512_bf16_fast(void);
/* The matrix unit (AMX) with bf16 products. The first says whether the processor has it and the
 * operating system saves its state; the second asks the operating system to let this process use
 * it, and returns 1 when that is granted, or was before.
 * A grant cannot be taken back. It holds for the whole process, for threads that start later as
 * well as for those that run, and it makes the frames of signals larger by 8 KiB: from then on the
 * kernel (Linux 5.16 or later) refuses a sigaltstack that is too small for them, and it refuses the
 * grant while such a stack is in use (Documentation/arch/x86/xstate.rst). So ask only when the unit
 * is wanted. */
int sb_port_has_amx(void);
int sb_port_has_amx_int8(void); /* and products of integers of 8 bits */
int sb_port_request_amx(void);

#endif
