/*
 * What a kernel does that waits for other blocks of its grid, or for the kernel before it.
 *
 *   grid_barrier(counter)        Every thread of every block waits until all blocks have come, and
 *                                then sees what they stored before. The kernel is launched with
 *                                SB_COOPERATIVE; all threads of a block call it. `counter` is four
 *                                bytes of device memory for this kernel alone, zero at first.
 *   grid_wait_for_previous()     The thread waits until the kernel before it on the stream has
 *                                ended; its stores are visible then. Until then a kernel launched
 *                                with SB_DEPENDENT may read only what that kernel does not write,
 *                                and store nothing that it uses. Every such kernel waits in every
 *                                thread that stores or reads, else the kernel after it would not
 *                                know that the one before has ended.
 *   grid_launch_next()           From here on this block does not keep the next kernel on the
 *                                stream from beginning, if that was launched with SB_DEPENDENT. It
 *                                still waits for this kernel's end in grid_wait_for_previous().
 *   add_release(at, n)           Adds to a word of device memory and returns what it was. Whoever
 *                                reads the sum by load_acquire sees what this thread has stored,
 *                                and what its block had stored before the last __syncthreads.
 *   load_acquire(at)             Reads such a word.
 *   is_last_block(counter, n, flag)
 *                                Whether this block is the last of n that come here with one
 *                                counter, zero at first. All threads of a block call it. Those of
 *                                the last then see what the threads of the others stored before.
 *                                The counter is zero again after it. flag: one int of shared memory
 *   spin(at, again)              Is called in a loop that waits for a word to change, with
 *                                `again` false the first time, so that the simulated device lets
 *                                other threads run. It is nothing on a GPU.
 *
 * The counter of the barrier is never reset. One block adds 2^31 - (blocks - 1) and each of the
 * others adds 1, so that all together turn over the highest bit and leave the other bits zero; a
 * block waits until the bit is not what it was when it came. The same counter therefore serves any
 * number of barriers, launches, and numbers of blocks, one after the other. A barrier of the
 * cooperative groups library would do the same, but it needs a workspace that only relocatable
 * device code has.
 *
 * In is_last_block every thread's stores are made visible before the block counts itself, as in
 * NVIDIA's sample threadFenceReduction (CUDA Programming Guide, "Memory Fence Functions").
 *
 * PTX ISA: "Parallel Synchronization and Communication Instructions: griddepcontrol" (sm_90), and
 * "Memory Consistency Model: Release and Acquire Patterns".
 */
#ifndef SB_CUDA_GRID_CUH
#define SB_CUDA_GRID_CUH

#include "kernels/cuda/common.cuh"

#if defined(__CUDACC__)

static __device__ __forceinline__ void grid_wait_for_previous(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ void grid_launch_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ __forceinline__ unsigned add_release(unsigned *at, unsigned n)
{
    unsigned before;
    asm volatile("atom.add.release.gpu.global.u32 %0,[%1],%2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(at)), "r"(n)
                 : "memory");
    return before;
}

static __device__ __forceinline__ unsigned load_acquire(const unsigned *at)
{
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0,[%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(at))
                 : "memory");
    return value;
}

static __device__ __forceinline__ void spin(const unsigned *at, bool again)
{
}

#else
#include <grid_instructions.h> /* the simulated device's, as <cuda_runtime.h> is there */
#endif

static __device__ __forceinline__ void grid_barrier(unsigned *counter)
{
    const unsigned turn = 0x80000000u;

    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        const bool is_first = blockIdx.x + blockIdx.y + blockIdx.z == 0;
        const unsigned others = gridDim.x * gridDim.y * gridDim.z - 1;
        const unsigned before = add_release(counter, is_first ? turn - others : 1u);
        for (bool again = false; ((load_acquire(counter) ^ before) & turn) == 0; again = true)
            spin(counter, again);
    }
    __syncthreads();
}

static __device__ __forceinline__ bool is_last_block(unsigned *counter, int n, int *flag)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        *flag = atomicInc(counter, SB_CUDA_FAULT(COUNTER_KEPT) ? UINT32_MAX : (unsigned)n - 1) ==
                (unsigned)n - 1;
    __syncthreads();
    __threadfence();
    return *flag;
}

#endif
