/*
 * The instructions of sm_90a that gemm_wgmma.cu has beside those of mma.cuh: products of a
 * warpgroup, whose operands lie in shared memory, and copies by a tensor map.
 *
 * A warpgroup is four warps that follow each other, the first a multiple of four. One wgmma
 * m64nNk16 adds to D [64 x N] f32 the product of A [64 x 16] and B [16 x N] of 16 bits. Warp w has
 * rows 16 w to 16 w + 15 of D, and each eight columns of them lie in its lanes as those of mma.sync
 * m16n8k16 do (mma.cuh):
 *
 *   d[j]    of lane l: rows l / 4 (d[j][0], d[j][1]) and l / 4 + 8 (d[j][2], d[j][3]), columns
 *           8 j + 2 (l % 4) and the next
 *
 * An operand is rows of 64 elements, 128 bytes each: of A its rows, of B its columns. Eight rows
 * are 1 KiB, and within these chunk c of row r lies at place c ^ r (the "swizzle of 128 bytes"). A
 * tile of weights (launch.h) is two such KiB, so panels that follow each other are an A as they lie
 * there, and a tensor map writes rows of x so.
 *
 *   rows 0..7    | 1 KiB |   the operand's address, a multiple of 1 KiB; 16 elements further along
 *   rows 8..15   | 1 KiB |   k is 32 bytes further, as the unit applies the swizzle to addresses
 *   ...
 *
 *   has_wgmma(), device_code_has_wgmma()
 *                                   whether the code is for sm_90a, in a kernel and on the host;
 *                                   elsewhere the others do nothing
 *   wgmma_begin()                   comes between ordinary uses of d and the first wgmma
 *   wgmma_operand(at)               an operand that lies there
 *   wgmma_further(operand, n)       that which lies n bytes further, a multiple of 16
 *   wgmma<TYPE>(d, a, b)            begins d += A B. N is eight times the size of d. From here on
 *                                   until it is known to have ended nobody touches d, or stores
 *                                   into the operands
 *   wgmma_commit()                  makes a group of those begun since the last commit
 *   wgmma_wait<LEFT>()              waits until all but the warp's last LEFT groups have ended
 *   wgmma_end(d)                    waits for all of them, and d may be used
 *   tensor_copy(to, map, at, bar)   begins a copy of the map's box, whose first element is that of
 *                                   the plane, row and column of `at`; all of the box's bytes are
 *                                   counted at `bar`. What the tensor has not is zeros. It is as
 *                                   bulk_copy otherwise; `map` is a parameter of the kernel
 *   tensor_prefetch(map)            says that the map will be needed
 *
 * PTX ISA 8.x: "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions", with
 * "Register Fragments and Shared Memory Matrix Layouts", "Matrix-Descriptor Format" and "Strides";
 * "cp.async.bulk.tensor". On a host they are those of the simulated device.
 */
#ifndef SB_CUDA_WGMMA_CUH
#define SB_CUDA_WGMMA_CUH

#include <cuda.h>

#include "kernels/cuda/mma.cuh"

typedef uint64_t wgmma_matrix;

struct tensor_at {
    int column, row, plane;
};

#if defined(__CUDACC__)

#if defined __CUDA_ARCH_FEAT_SM90_ALL
#define SB_HAS_WGMMA 1
#define SB_IF_WGMMA __cluster_dims__(2)
#else
#define SB_HAS_WGMMA 0
#define SB_IF_WGMMA
#endif

static constexpr __device__ __forceinline__ bool has_wgmma(void)
{
    return SB_HAS_WGMMA;
}

/* It is never launched: its attributes tell which code the device has taken. */
static __global__ void SB_IF_WGMMA is_for_wgmma(void)
{
}

static inline bool device_code_has_wgmma(void)
{
    cudaFuncAttributes attributes;

    return cudaFuncGetAttributes(&attributes, is_for_wgmma) == cudaSuccess &&
           attributes.requiredClusterWidth == 2;
}

/* Bits 0 to 13 are the address and 32 to 45 the distance of groups of eight rows, in units of 16
 * bytes; bits 62 and 63 say swizzle. (16 to 29, the distance along k, is unused with one.) */
static __device__ __forceinline__ wgmma_matrix wgmma_operand(shared_at at)
{
    return (uint64_t)1 << 62 | (uint64_t)(1024 / 16) << 32 | (uint64_t)1 << 16 | (at >> 4 & 0x3fff);
}

/* A block's shared memory has addresses of 18 bits, so nothing is carried out of the field. */
static __device__ __forceinline__ wgmma_matrix wgmma_further(wgmma_matrix operand, uint32_t bytes)
{
    return (operand & ~(uint64_t)0xffffffff) | ((uint32_t)operand + bytes / 16);
}

static __device__ __forceinline__ void wgmma_begin(void)
{
#if SB_HAS_WGMMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

static __device__ __forceinline__ void wgmma_commit(void)
{
#if SB_HAS_WGMMA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

template <int LEFT>
static __device__ __forceinline__ void wgmma_wait(void)
{
#if SB_HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
#endif
}

/* The empty instruction keeps the compiler from using d before the wait. */
template <int TILES>
static __device__ __forceinline__ void wgmma_end(float (&d)[TILES][4])
{
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < TILES * 4; i++)
        asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}

/* The registers of 4, 6, 12, 16 and 24 tiles of eight columns. */
#define SB_REGISTERS_4 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define SB_REGISTERS_6 SB_REGISTERS_4 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define SB_REGISTERS_12                                                                       \
    SB_REGISTERS_6 ",%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41" \
                   ",%42,%43,%44,%45,%46,%47"
#define SB_REGISTERS_16 \
    SB_REGISTERS_12 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define SB_REGISTERS_24                                                                     \
    SB_REGISTERS_16 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80," \
                    "%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define SB_OUT(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define SB_OUTS(i) SB_OUT(i), SB_OUT(i + 1), SB_OUT(i + 2), SB_OUT(i + 3)
#define SB_OUT_4 SB_OUTS(0)
#define SB_OUT_6 SB_OUTS(0), SB_OUT(4), SB_OUT(5)
#define SB_OUT_12 SB_OUTS(0), SB_OUTS(4), SB_OUTS(8)
#define SB_OUT_16 SB_OUT_12, SB_OUTS(12)
#define SB_OUT_24 SB_OUT_16, SB_OUTS(16), SB_OUTS(20)

#if SB_HAS_WGMMA
#define SB_WGMMA_OF(n, type, registers, out, a_at, b_at)                                      \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " " registers \
                 "},%" a_at ",%" b_at ",1,1,1,0,0;"                                           \
                 : out                                                                        \
                 : "l"(a), "l"(b))
#else
#define SB_WGMMA_OF(n, type, registers, out, a_at, b_at) ((void)d, (void)a, (void)b)
#endif

#define SB_DEFINE_WGMMA(tiles, n, a_at, b_at)                                         \
    template <enum sb_dtype TYPE>                                                     \
    static __device__ __forceinline__ void wgmma(float(&d)[tiles][4], wgmma_matrix a, \
                                                 wgmma_matrix b)                      \
    {                                                                                 \
        if (TYPE == SB_BF16)                                                          \
            SB_WGMMA_OF(n, "bf16", SB_REGISTERS_##tiles, SB_OUT_##tiles, a_at, b_at); \
        else                                                                          \
            SB_WGMMA_OF(n, "f16", SB_REGISTERS_##tiles, SB_OUT_##tiles, a_at, b_at);  \
    }
SB_DEFINE_WGMMA(4, "32", "16", "17")
SB_DEFINE_WGMMA(6, "48", "24", "25")
SB_DEFINE_WGMMA(12, "96", "48", "49")
SB_DEFINE_WGMMA(16, "128", "64", "65")
SB_DEFINE_WGMMA(24, "192", "96", "97")

static __device__ __forceinline__ void tensor_copy(shared_at to, const CUtensorMap &map,
                                                   tensor_at at, shared_at bar)
{
#if SB_HAS_WGMMA
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0],[%1,{%2,%3,%4}],[%5];" ::"r"(to),
                 "l"(&map), "r"(at.column), "r"(at.row), "r"(at.plane), "r"(bar)
                 : "memory");
#endif
}

static __device__ __forceinline__ void tensor_prefetch(const CUtensorMap &map)
{
#if SB_HAS_WGMMA
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}

#else
#include <wgmma_instructions.h> /* the simulated device's, as <cuda_runtime.h> is there */
#endif

#endif
