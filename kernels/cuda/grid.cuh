/*
 * What a kernel does that waits for other blocks of its grid, or for the kernel before it.
 *
 *   grid_barrier(counter)        Every thread of every block waits until all blocks have come, and
 *                                then sees what they stored before. The kernel is launched with
 *                                SB_COOPERATIVE; all threads of a block call it. `counter` is four
 *                                bytes of device memory for this kernel alone, zero at first.
 *   grid_barrier(counter, meanwhile)
 *                                The same, and every thread calls meanwhile() while it waits: after
 *                                its block has come, and before it leaves. What a thread stores to
 *                                shared memory there, its block sees behind the barrier.
 *   grid_barrier<N>(...)         The same where the first N threads of each block call it and the
 *                                others do something else. N is a multiple of 32.
 *   sync_threads<N>()            __syncthreads for the first N threads of the block; 0: for all.
 *   grid_wait_for_previous()     The thread waits until the kernel before it on the stream has
 *                                ended; its stores are visible then. Until then a kernel launched
 *                                with SB_DEPENDENT may read only what that kernel does not write,
 *                                and store nothing that it uses. Every such kernel waits in every
 *                                thread that stores or reads, else the kernel after it would not
 *                                know that the one before has ended.
 *   grid_launch_next()           From here on this block does not keep the next kernel on the
 *                                stream from beginning, if that was launched with SB_DEPENDENT. It
 *                                still waits for this kernel's end in grid_wait_for_previous().
 *   add_release(at, n)           Adds to a word of device memory, and does not wait for that. Who
 *                                reads the sum by load_acquire sees what this thread has stored,
 *                                and what its block had stored before the last __syncthreads.
 *   load_acquire(at)             Reads such a word.
 *   load_relaxed(at)             Reads such a word, and says nothing of others' stores.
 *   store_release_shared(at, n)  Stores to a word of shared memory. Who reads it by
 *   load_acquire_shared(at)      sees what this thread has stored, or has itself seen, before.
 *   store_relaxed_shared(at, n)  Stores to such a word, says nothing of other stores, and waits for
 *                                none.
 *   store_tagged(at, value, tag) Stores a float and a number together. Who finds that number by
 *                                load_tagged there has that float, without a fence, and knows
 *                                nothing of other stores.
 *   load_tagged(at, is_there)    Two of them that follow each other, at a multiple of 16 bytes, or
 *                                zeros, without a branch, so that several loads are on their way.
 *   inc_acq_rel(at, most)        Adds 1 to a word, or makes it 0 where it is `most`, and returns
 *                                what it was. It does what add_release does and what load_acquire
 *                                does.
 *   is_last_of(counter, n)       Whether this block is the last of n that come here with one
 *                                counter, zero at first. One thread of a block calls it, between
 *                                two __syncthreads; behind them the threads of the last block see
 *                                what those of the others stored before. The counter is zero again
 *                                after it.
 *   is_last_block(counter, n, flag)
 *                                The same for all threads of a block, which call it together.
 *                                flag: one int of shared memory
 *   spin(at, again)              Is called in a loop that waits for a word to change, with
 *                                `again` false the first time, so that the simulated device lets
 *                                other threads run. It is nothing on a GPU.
 *
 * The counter of the barrier is never reset. One block adds 2^31 - (blocks - 1) and each of the
 * others adds 1, so that all together turn over the highest bit and leave the other bits zero; a
 * block waits until the bit is not what it was before it came. The same counter therefore serves
 * any number of barriers, launches, and numbers of blocks, one after the other. What the bit was is
 * read while the block's own threads come, as it cannot change until the block has come; an atomic
 * that returns it would have the last block wait for two answers of the L2 cache. A barrier of the
 * cooperative groups library would do the same, but it needs a workspace that only relocatable
 * device code has.
 *
 * PTX ISA: "Parallel Synchronization and Communication Instructions: griddepcontrol" (sm_90), and
 * "Memory Consistency Model: Release and Acquire Patterns".
 */
#ifndef SB_CUDA_GRID_CUH
#define SB_CUDA_GRID_CUH

#include "kernels/cuda/common.cuh"

struct tagged {
    float value;
    unsigned tag;
};
struct tagged_pair {
    tagged of[2];
};

#if defined(__CUDACC__)

/* PTX ISA, "Memory Consistency Model: Vector Data-types": each element of 8 bytes is loaded and
 * stored as a whole. */
static __device__ __forceinline__ void store_tagged(tagged *at, float value, unsigned tag)
{
    const uint64_t both = (uint64_t)tag << 32 | __float_as_uint(value);

    asm volatile("st.relaxed.gpu.global.b64 [%0],%1;" ::"l"(__cvta_generic_to_global(at)), "l"(both)
                 : "memory");
}

static __device__ __forceinline__ tagged_pair load_tagged(const tagged *at, bool is_there)
{
    uint64_t a = 0, b = 0;

    asm volatile("{ .reg .pred there; setp.ne.u32 there,%3,0;"
                 "  @there ld.relaxed.gpu.global.v2.b64 {%0,%1},[%2]; }"
                 : "+l"(a), "+l"(b)
                 : "l"(__cvta_generic_to_global(at)), "r"((unsigned)is_there)
                 : "memory");
    return {{{__uint_as_float((uint32_t)a), (unsigned)(a >> 32)},
             {__uint_as_float((uint32_t)b), (unsigned)(b >> 32)}}};
}

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

static __device__ __forceinline__ void add_release(unsigned *at, unsigned n)
{
    asm volatile("red.release.gpu.global.add.u32 [%0],%1;" ::"l"(__cvta_generic_to_global(at)),
                 "r"(n)
                 : "memory");
}

static __device__ __forceinline__ unsigned inc_acq_rel(unsigned *at, unsigned most)
{
    unsigned before;
    asm volatile("atom.inc.acq_rel.gpu.global.u32 %0,[%1],%2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(at)), "r"(most)
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

static __device__ __forceinline__ unsigned load_relaxed(const unsigned *at)
{
    unsigned value;
    asm volatile("ld.relaxed.gpu.global.u32 %0,[%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(at)));
    return value;
}

static __device__ __forceinline__ void store_release_shared(unsigned *at, unsigned n)
{
    asm volatile(
        "st.release.cta.shared::cta.u32 [%0],%1;" ::"r"((uint32_t)__cvta_generic_to_shared(at)),
        "r"(n)
        : "memory");
}

static __device__ __forceinline__ void store_relaxed_shared(unsigned *at, unsigned n)
{
    asm volatile(
        "st.relaxed.cta.shared::cta.u32 [%0],%1;" ::"r"((uint32_t)__cvta_generic_to_shared(at)),
        "r"(n)
        : "memory");
}

static __device__ __forceinline__ unsigned load_acquire_shared(const unsigned *at)
{
    unsigned value;
    asm volatile("ld.acquire.cta.shared::cta.u32 %0,[%1];"
                 : "=r"(value)
                 : "r"((uint32_t)__cvta_generic_to_shared(at))
                 : "memory");
    return value;
}

/* PTX ISA, "bar.sync": number 0 is that of __syncthreads. */
template <int N>
static __device__ __forceinline__ void sync_threads(void)
{
    if (N == 0)
        __syncthreads();
    else
        asm volatile("bar.sync 1,%0;" ::"n"(N) : "memory");
}

static __device__ __forceinline__ void spin(const unsigned *at, bool again)
{
}

#else
#include <grid_instructions.h> /* the simulated device's, as <cuda_runtime.h> is there */
#endif

template <int N = 0, class F>
static __device__ __forceinline__ void grid_barrier(unsigned *counter, F meanwhile)
{
    const unsigned turn = 0x80000000u;
    const bool speaks = threadIdx.x + threadIdx.y + threadIdx.z == 0;
    const unsigned before = speaks ? load_relaxed(counter) : 0;

    sync_threads<N>();
    if (speaks) {
        const bool is_first = blockIdx.x + blockIdx.y + blockIdx.z == 0;
        const unsigned others = gridDim.x * gridDim.y * gridDim.z - 1;
        add_release(counter, is_first ? turn - others : 1u);
    }
    meanwhile();
    for (bool again = false; speaks && ((load_acquire(counter) ^ before) & turn) == 0; again = true)
        spin(counter, again);
    sync_threads<N>();
}

template <int N = 0>
static __device__ __forceinline__ void grid_barrier(unsigned *counter)
{
    grid_barrier<N>(counter, [] {});
}

static __device__ __forceinline__ bool is_last_of(unsigned *counter, int n)
{
    const unsigned most = (unsigned)n - 1;

    return inc_acq_rel(counter, SB_CUDA_FAULT(COUNTER_KEPT) ? UINT32_MAX : most) == most;
}

static __device__ __forceinline__ bool is_last_block(unsigned *counter, int n, int *flag)
{
    __syncthreads();
    if (threadIdx.x == 0)
        *flag = is_last_of(counter, n);
    __syncthreads();
    return *flag;
}

#endif
