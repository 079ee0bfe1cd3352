/*
 * What kernels/cuda/grid.cuh takes from PTX, for the simulated device: the same names and arguments
 * with bodies that a host runs. A thread that spins lets the others run; fibers.cpp reports it when
 * none of them can change what it waits for.
 */
#ifndef CUDASIM_GRID_INSTRUCTIONS_H
#define CUDASIM_GRID_INSTRUCTIONS_H

#include "kernels/cuda/common.cuh"

static inline void grid_wait_for_previous(void)
{
    if (SB_CUDA_FAULT(NO_THREAD_WAITS) ||
        (SB_CUDA_FAULT(ONE_WARP_DOES_NOT_WAIT) && threadIdx.x < 32))
        return;
    cudasim::wait_for_previous();
}
static inline void grid_launch_next(void) { cudasim::launch_next(); }

static inline void add_release(unsigned *at, unsigned n)
{
    cudasim::note_release(at);
    cudasim::atomic(at, [n](unsigned o) { return o + n; });
}

static inline unsigned inc_acq_rel(unsigned *at, unsigned most)
{
    cudasim::note_acq_rel(at);
    return atomicInc(at, most);
}

__attribute__((noinline, no_sanitize("thread"))) static unsigned load_acquire(const unsigned *at)
{
    cudasim::note_atomic(at, sizeof *at);
    cudasim::note_acquire(at);
    return *at;
}

__attribute__((noinline, no_sanitize("thread"))) static unsigned load_relaxed(const unsigned *at)
{
    cudasim::note_atomic(at, sizeof *at);
    return *at;
}

static inline void store_tagged(tagged *at, float value, unsigned tag)
{
    cudasim::atomic(at, [value, tag](tagged) { return tagged{value, tag}; });
}

static inline tagged_pair load_tagged(const tagged *at, bool is_there)
{
    tagged_pair pair = {};

    if (!is_there)
        return pair;
    if ((uintptr_t)at % 16)
        cudasim::misaligned(at, 16);
    for (int i = 0; i < 2; i++)
        pair.of[i] = cudasim::atomic((tagged *)at + i, [](tagged was) { return was; });
    return pair;
}

/* Words of shared memory order warps of a block here only as far as the block's barriers do. */
static inline void store_release_shared(unsigned *at, unsigned n)
{
    cudasim::atomic(at, [n](unsigned) { return n; });
}

static inline void store_relaxed_shared(unsigned *at, unsigned n) { store_release_shared(at, n); }

static inline unsigned load_acquire_shared(const unsigned *at) { return load_relaxed(at); }

template <int N>
static inline void sync_threads(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    cudasim::block_barrier(file, line, N);
}

static inline void spin(const unsigned *at, bool again)
{
    cudasim::spin(cudasim::SPINS_FOR_BLOCKS, at, again);
}

#endif
