/*
 * The instructions of mma.cuh in PTX, each as thin as it can be.
 */
#ifndef SB_CUDA_PTX_CUH
#define SB_CUDA_PTX_CUH

#include "kernels/cuda/common.cuh"

typedef uint32_t shared_at;

static __device__ __forceinline__ shared_at at_shared(const void *p)
{
    return (shared_at)__cvta_generic_to_shared(p);
}

template <enum sb_dtype TYPE>
static __device__ __forceinline__ uint32_t pack2(float lo, float hi);

template <>
__device__ __forceinline__ uint32_t pack2<SB_BF16>(float lo, float hi)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}

static __device__ __forceinline__ float within_f16(float v)
{
    return v > 65504.0f    ? 65504.0f
           : v < -65504.0f ? -65504.0f
                           : v; /* comparisons with NaN are false */
}

template <>
__device__ __forceinline__ uint32_t pack2<SB_F16>(float lo, float hi)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(within_f16(hi)), "f"(within_f16(lo)));
    return pair;
}

/* One instruction; of two constants the compiler would make two. */
static __device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits)
{
    uint32_t word;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(word) : "r"(a), "r"(mask), "r"(bits));
    return word;
}

/* sm_80 subtracts bf16 by a multiply-add only. */
template <enum sb_dtype TYPE>
static __device__ __forceinline__ uint32_t sub2(uint32_t a, uint32_t b)
{
    uint32_t pair;
    if (TYPE == SB_BF16)
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(b), "r"(0xbf80bf80u), "r"(a));
    else
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

/* The same of multiplications: there is nothing to add. */
template <enum sb_dtype TYPE>
static __device__ __forceinline__ uint32_t mul2(uint32_t a, uint32_t b)
{
    uint32_t pair;
    if (TYPE == SB_BF16)
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(0x80008000u));
    else
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}

template <enum sb_dtype TYPE>
static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                           uint32_t b1)
{
    if (TYPE == SB_BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void ldmatrix4(uint32_t (&r)[4], shared_at row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
}

static __device__ __forceinline__ void ldmatrix2(uint32_t (&r)[2], shared_at row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1},[%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(row));
}

static __device__ __forceinline__ void ldmatrix4_trans(uint32_t (&r)[4], shared_at row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
}

/* The copy goes through L2 only, because no block reads anything twice. */
static __device__ __forceinline__ void cp_async(shared_at to, const void *from, bool real)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0],[%1],16,%2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(real ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int LEFT>
static __device__ __forceinline__ void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* PTX ISA, "cp.async.mbarrier.arrive", variant .noinc: this thread arrives when all copies that it
 * has begun have come. */
static __device__ __forceinline__ void cp_async_arrive(shared_at bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

static __device__ __forceinline__ void cp_async_begin(void)
{
}

/* ------------------------------------------------------------------ mbarriers and bulk copies */

static constexpr __device__ __forceinline__ bool has_bulk_copies(void)
{
#if __CUDA_ARCH__ >= 900
    return true;
#else
    return false;
#endif
}

/* PTX ISA, "mbarrier.init". */
static __device__ __forceinline__ void mbarrier_init(shared_at bar, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(bar), "r"(arrivals) : "memory");
}

/* PTX ISA, "membar / fence": fence.proxy.async orders what this thread does by ordinary accesses
 * (the generic proxy) before what bulk copies and wgmma do (the async proxy). Without a state space
 * it would wait for the whole device, as __threadfence does. */
static __device__ __forceinline__ void async_fence_global(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

static __device__ __forceinline__ void async_fence_shared(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* PTX ISA, "mbarrier.arrive"; .release at .cta scope is its default. */
static __device__ __forceinline__ void mbarrier_arrive(shared_at bar)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state,[%0]; }" ::"r"(bar)
                 : "memory");
}

/* PTX ISA, "mbarrier.arrive", variant .expect_tx: an expect-tx operation, then an arrive-on. */
static __device__ __forceinline__ void mbarrier_arrive_expect(shared_at bar, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state,[%0],%1; }" ::"r"(bar),
        "r"(bytes)
        : "memory");
#endif
}

/* PTX ISA, "mbarrier.test_wait / mbarrier.try_wait", variant .parity: .acquire at .cta scope is the
 * default. try_wait, which sm_80 has not, may give up after a time of the system's own, so it is
 * asked again. */
#if __CUDA_ARCH__ >= 900
#define SB_MBARRIER_WAIT "mbarrier.try_wait"
#else
#define SB_MBARRIER_WAIT "mbarrier.test_wait"
#endif
static __device__ __forceinline__ void mbarrier_wait(shared_at bar, uint32_t parity)
{
    uint32_t done;
    do {
        asm volatile("{ .reg .pred p; " SB_MBARRIER_WAIT ".parity.shared::cta.b64 p,[%1],%2; "
                     "selp.u32 %0,1,0,p; }"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
    } while (!done);
}

/* PTX ISA, "cp.async.bulk": global to shared memory, completing on an mbarrier. A block without a
 * cluster is a cluster of one, so its own addresses are those of shared::cluster. */
static __device__ __forceinline__ void bulk_copy(shared_at to, const void *from, uint32_t bytes,
                                                 shared_at bar)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0],[%1],%2,[%3];" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(bar)
                 : "memory");
#endif
}

/* ------------------------------------------------------------------ clusters of blocks */

/* PTX ISA, "barrier.cluster"; .release and .acquire are its defaults. */
static __device__ __forceinline__ void cluster_arrive(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

static __device__ __forceinline__ void cluster_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

#endif
