/*
 * What kernels on tensor cores share: the instructions mma.sync m16n8k16, ldmatrix, cp.async of
 * 16 bytes, mbarriers, bulk copies and the barrier of a cluster, how their operands lie, and tiles
 * in shared memory.
 *
 * Elements are 16-bit patterns (uint16_t), bf16 or f16 as the template argument TYPE says.
 * Fragments are those of the PTX ISA (8.x, "Matrix fragments for mma.m16n8k16 with floating point
 * type" and "ldmatrix"). For lane l, let g = l / 4 and c = 2 (l % 4); (r, k) is a row and column of
 * the operand:
 *
 *   A [16 x 16] row major   a[0] (g, c..c+1)  a[1] (g+8, c..c+1)
 *                           a[2] (g, c+8..c+9)  a[3] (g+8, c+8..c+9)
 *   B [16 x 8]  col major   b[0] (c..c+1, g)  b[1] (c+8..c+9, g)
 *   D [16 x 8]  f32         d[0] (g, c)  d[1] (g, c+1)  d[2] (g+8, c)  d[3] (g+8, c+1)
 *
 *     ldmatrix: lanes 8i .. 8i+7 give the addresses of the eight 16-byte rows of matrix i; lane l
 *     gets the elements (g, c..c+1) of matrix i in register i; transposed, the elements (c, g) and
 *     (c+1, g).
 *
 * D[i][j] is a function of row i of A, column j of B and D[i][j] alone: row invariance rests on
 * this.
 *
 *   pack2<TYPE>(lo, hi)            two floats as two elements, lo in the low half of 32 bits; f16
 *                                   saturates, as the cache does, and NaN stays NaN
 *   and_or(a, mask, bits)           (a & mask) | bits
 *   sub2<TYPE>(a, b)                two elements less two others, rounded
 *   mul2<TYPE>(a, b)                two elements times two others, rounded; those that are denormal
 *                                   are what they are
 *   mma<TYPE>(d, a, b0, b1)         d += A B
 *   ldmatrix4, ldmatrix2, ldmatrix4_trans(r, row)
 *                                   r = 4, 2 or 4 matrices; row: this lane's address
 *   cp_async_begin()                a kernel that copies calls this first
 *   cp_async(to, from, real)        begins a copy of 16 bytes to shared memory, or of 16 zero
 *                                   bytes, without reading `from`, where not `real`
 *   cp_async_commit()               makes a group of this thread's copies since the last commit
 *   cp_async_wait<LEFT>()           waits until all but the last LEFT groups of this thread have
 *                                   arrived; other threads see them after a barrier
 *   mbarrier_init(bar, arrivals)    makes the 8 bytes of shared memory at `bar` a barrier whose
 *                                   phases end after so many arrivals and after all bytes announced
 *                                   have come. One thread does this, then async_fence_shared(),
 *                                   and the block meets at __syncthreads before anyone uses it
 *   mbarrier_arrive(bar)            counts one arrival; what this thread did before is seen by
 *                                   whoever waits for the phase
 *   mbarrier_arrive_expect(bar, n)  announces n bytes more for this phase and counts one arrival
 *   mbarrier_wait(bar, parity)      waits until the phase of that parity has ended: 0 for the
 *                                   first phase, 1 for the second, and so on by turns. With parity
 *                                   1 a thread gets past a barrier that is in its first phase
 *   bulk_copy(to, from, n, bar)     begins a copy of n bytes to shared memory; when they have
 *                                   come, n bytes are counted at `bar`. Addresses and n are
 *                                   multiples of 16. One thread does it for all. Whoever reads the
 *                                   bytes has waited at `bar`, or meets one who has
 *   async_fence_shared()            comes between ordinary stores to shared memory and the bulk
 *                                   copies (or wgmma) that touch the same bytes: in the thread that
 *                                   stored, before the barrier that tells the others
 *   async_fence_global()            the same for device memory
 *   cluster_arrive(), cluster_wait()
 *                                   the barrier of a cluster, in two halves that all threads call
 *                                   by turns. Who has waited sees what all did before they arrived
 *   has_bulk_copies()               whether the code is for sm_90 or later; before, what is from
 *                                   mbarrier_arrive_expect on does nothing, and there are no
 *                                   clusters
 *   shared_at, at_shared(pointer)   an address in the shared window, which ldmatrix and cp_async
 *                                   take
 *
 * nvcc takes them from ptx.cuh. On a host they are those of the simulated device.
 */
#ifndef SB_CUDA_MMA_CUH
#define SB_CUDA_MMA_CUH

#if defined(__CUDACC__)
#include "kernels/cuda/ptx.cuh"
#else
#include <instructions.h> /* the simulated device's, as <cuda_runtime.h> is there */
#endif

/* Byte offset of 16-byte chunk `c` of row `r` in a tile whose rows are 8 chunks times a power of
 * two. Chunks change places within their group of eight. So the eight rows of an ldmatrix, which
 * are a multiple of 128 bytes apart, lie in eight different groups of four banks. */
template <int ROW_BYTES>
static __device__ __forceinline__ int swizzled(int r, int c)
{
    static_assert(ROW_BYTES % 128 == 0, "rows of whole bank cycles");
    return r * ROW_BYTES + ((c ^ (r & 7)) << 4);
}

/* Whether neither of two elements is Inf or NaN. */
template <enum sb_dtype TYPE>
static __device__ __forceinline__ bool is_finite2(uint32_t pair)
{
    const uint32_t mask = TYPE == SB_BF16 ? 0x7f80u : 0x7c00u;
    return (pair & mask) != mask && (pair & mask << 16) != mask << 16;
}

#endif
