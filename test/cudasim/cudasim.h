/*
 * The CUDA simulator: the real .cu files and the real backend, compiled by the host's compiler, on
 * the host.
 *
 * It tests indices and order, launch shapes, and the use of the runtime, on any machine. It cannot
 * show speed, nor that a tensor core or cublasLt computes the same bits as its stand-in does.
 *
 *     cuda_runtime.h, cuda_runtime_api.h,     stand-ins with the real names, types and values;
 *     cuda_bf16.h, cuda_fp16.h, cublasLt.h,   this folder comes first on the include path
 *     cudnn_graph.h
 *
 *     device_code.h   what a kernel uses: threadIdx, barriers, shuffles, shared memory,
 *                     intrinsics, a launch
 *     instructions.h  the tensor core's instructions, under the names of kernels/cuda/ptx.cuh
 *     wgmma_instructions.h  those of kernels/cuda/wgmma.cuh
 *     grid_instructions.h  the same for kernels/cuda/grid.cuh
 *     fibers.cpp      runs a grid: blocks one after the other, those of a cluster together, or all
 *                     at once in a cooperative launch, the threads of a block as fibers
 *     async.cpp       mbarriers, and bulk copies whose bytes come later
 *     tensor_map.cpp  tensor maps, and the boxes that copies by them bring
 *     wgmma.cpp       products of a warpgroup, which are made as late as a program allows
 *     cluster.cpp     the barrier of a cluster of blocks
 *     check.cpp       watches each load and store of a kernel
 *     runtime.cpp     device memory, copies, errors, and what carries out a stream's work
 *     launches.cpp    what a launch may ask for, which kernels are loaded
 *     streams.cpp     the calls on streams, events and graphs
 *     tensor.cpp      the tensor core's sums
 *     banks.cpp       counts bank conflicts of shared memory
 *     counts.cpp      counts what launches read, write and wait for
 *     blas.cpp        cublasLt: the tensor core's sums over ascending k
 *     cudnn.cpp       cuDNN's backend API: graphs, operation by operation
 *
 * Streams are asynchronous here too. Work is queued, and runs when something waits for it or when
 * the queue is long. A host that reads a download too early reads old bytes. A capture records the
 * work, and its graph replays it with the same addresses. Events show a clock of the device's own,
 * which does not depend on the host's speed.
 *
 * WHAT IS DETECTED. A .cu file that is compiled with -fsanitize=thread reports each load and store
 * (to check.cpp, which is linked instead of that sanitizer's runtime). Then a launch fails, with
 * the kernel, block and thread in cudasim_fault(), and the device is lost as on a GPU
 * (cudaErrorIllegalAddress, sticky), when a thread
 *     - touches memory of another device than it runs on (in any build)
 *     - touches memory outside every device allocation or shared array (each array has its own
 *       bounds, to 2 bytes), a freed allocation, or memory of the host
 *     - reads a byte of shared or device memory that nothing has written
 *     - races: two threads touch a byte, one writes, and no __syncthreads (in a warp: __syncwarp)
 *       is between them; or two blocks of one launch do, in device memory. A kernel with a
 *       __threadfence orders its blocks by itself and is not checked for the latter. Atomics race
 *       with nothing. Blocks of a cooperative launch are ordered by add_release and load_acquire
 *       (grid.cuh), and so by grid_barrier; those of a cluster by its barrier.
 *     - touches what the kernel before it uses, in a launch that may begin before that one has
 *       ended, before grid_wait_for_previous
 *     - touches bytes that a bulk copy brings before it has waited for them at the mbarrier; lets a
 *       bulk copy overwrite what others may still read, or touch what ordinary stores wrote with no
 *       async_fence since. Warps are ordered by mbarriers as they are by __syncthreads
 *     - follows a pointer that is misaligned for its type (-fsanitize=alignment)
 * In any build: threads that wait for what nothing can change any more, so that the grid hangs, as
 * in a kernel that waits for other blocks and is not launched as cooperative, or announces other
 * bytes than come; an mbarrier used before it is fenced and known to the block; a bulk copy that is
 * misaligned, is outside an allocation, or has not come when the block that it goes to or comes
 * from ends; a copy by a tensor map that is none; a wgmma whose sums are not fenced, whose operands
 * do not begin where the swizzle does, are overwritten by a copy before it has ended or are others
 * in another warp of its warpgroup, or that has not ended when its block does; a thread that
 * arrives twice at the barrier of a cluster, or waits there and has not arrived; a dependent kernel
 * that never waits for the one before it; a shuffle or __syncwarp that some lanes of its mask never
 * reach, threads of a block at different __syncthreads, one at a barrier of others (sync_threads of
 * grid.cuh), a misaligned ldmatrix or cp.async, a grid,
 * block or shared size that a device refuses (static and dynamic together), a copy or memset
 * outside allocations, an asynchronous copy with pageable memory, a copy of one device's memory on
 * a stream of another, waiting on a capturing stream, a kernel whose first launch is in a capture.
 * Fresh memory, shared and of the device (up to 64 MiB a piece), is full of 0xff bytes: NaN in
 * every float type. Bank conflicts are counted on request.
 *
 * Not seen: accesses made inside the C library (a memcpy of a size unknown at compile time); a race
 * with the first of two loads when the second hides it (where warps meet at mbarriers, with any but
 * the last reader); weak memory order, since fibers see stores at once; a block larger than its
 * kernel's __launch_bounds__ (check_lint.sh compares them in the source); the bits of a NaN that
 * f32 arithmetic makes; a race with a warp that takes no part in a barrier of the block's other
 * warps, if one lies between; a store of a thread behind its arrival at the barrier of a cluster,
 * if another thread of its warp arrives later.
 *
 * A device's arithmetic has one NaN, 0x7fffffff (CUDA programming guide, "Floating-Point
 * Standard"); the sums and conversions of this folder make it, but an addition in a kernel is the
 * host's, which passes an operand's NaN on or makes 0xffc00000. No kernel looks at the bits of a
 * NaN that it computed, so results do not depend on it. What is moved keeps its bits on both, and
 * changes.cuh relies on that: it marks places of a row by NaN that no arithmetic of a device makes.
 */
#ifndef CUDASIM_H
#define CUDASIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The machine that the runtime describes. */
struct cudasim_machine {
    int devices; /* cudaGetDeviceCount, at most 4; 0: cudaErrorNoDevice */
    int driver;  /* cudaDriverGetVersion; 0: no driver, every call is cudaErrorInsufficientDriver */
    int major, minor;    /* compute capability */
    int multiprocessors; /* what cooperative launches are made for; at most 16384 threads can really
                            be there at once */
    size_t memory;       /* bytes of a device; at most 32 GiB can really be taken of all */
    int shared;          /* bytes of shared memory a block may ask for; 0: 227 KiB */
};

/* The default: two devices of compute capability 9.0 with 6 multiprocessors and 16 GiB. Call it
 * with nothing allocated. NULL: the default. */
void cudasim_configure(const struct cudasim_machine *machine);

/* The n-th kernel to run from now on (1: the next) fails as by an illegal address. 0: none. */
void cudasim_fail_launch(int64_t n);
/* `count` launches from the n-th from now on (1: the next) are refused:
 * cudaErrorLaunchOutOfResources, which is not sticky. A capture that one was for becomes invalid.
 * Returns how many of those asked for before were left. */
int64_t cudasim_refuse_launches(int64_t n, int64_t count);
/* This device does not become current from now on: cudaErrorInitializationError. -1: each does. */
void cudasim_refuse_device(int device);
/* Whether streams will not begin to capture from now on. */
void cudasim_refuse_captures(int refuse);
/* The n-th cudaMalloc or cudaHostAlloc from now on finds no memory. 0: none. Returns how far away
 * the one asked for before still was; 0: it has failed. */
int64_t cudasim_fail_alloc(int64_t n);

/* From now on cublasLt's un-split products are wrong in this way, or slow. */
enum cudasim_blas_fault {
    CUDASIM_BLAS_SOUND,  /* the tensor core's bits, at once */
    CUDASIM_BLAS_ROWS,   /* products of more than `argument` rows are added in another order */
    CUDASIM_BLAS_CHAIN,  /* no tensor core: fused multiply-adds one after the other */
    CUDASIM_BLAS_TILE,   /* of the first algorithm offered, rows 64 to 127 of every `argument`-th
                            column differ */
    CUDASIM_BLAS_HOLE,   /* ... rows from 64 on of such columns are not written */
    CUDASIM_BLAS_STAGES, /* sound, but the algorithms offered depend on the number of rows */
    CUDASIM_BLAS_NO_RUN, /* sound, but after `argument` products it refuses */
    CUDASIM_BLAS_SLOW /* sound, but a product takes `argument` milliseconds of the device's clock */
};
void cudasim_break_blas(enum cudasim_blas_fault what, int64_t argument);
int64_t cudasim_blas_calls(void); /* products so far */
/* cublasLt is of this version from now on (130100 at first: 13.1.0). 0: it is not there. */
void cudasim_blas(int version);

/* From now on wgmma is wrong in this way, or slow. */
enum cudasim_wgmma_fault {
    CUDASIM_WGMMA_SOUND, /* the bits of mma.sync, in no time */
    CUDASIM_WGMMA_OTHER, /* column 2 of each product has other lowest bits */
    CUDASIM_WGMMA_SLOW,  /* sound, but each takes `argument` ns of the device's clock */
    CUDASIM_WGMMA_ABSENT /* the driver has no encoder of tensor maps */
};
void cudasim_break_wgmma(enum cudasim_wgmma_fault what, int64_t argument);
int64_t cudasim_wgmma_calls(void); /* of warps, so far */

/* cuDNN is of this version from now on (91900: 9.19.0). 0, as at first: it is not there. */
void cudasim_cudnn(size_t version);
/* From now on attention by cuDNN is wrong in this way. */
enum cudasim_cudnn_fault {
    CUDASIM_CUDNN_SOUND,
    CUDASIM_CUDNN_STRIDES,    /* bits depend on how far apart heads are */
    CUDASIM_CUDNN_ONE_LENGTH, /* ... for slots of `argument` columns only */
    CUDASIM_CUDNN_ADDRESS,    /* ... on where keys begin */
    CUDASIM_CUDNN_HISTORY,    /* ... on what ran before */
    CUDASIM_CUDNN_ENGINE,     /* the same, of engine `argument` only */
    CUDASIM_CUDNN_NEIGHBOUR,  /* reads the column after the last key */
    CUDASIM_CUDNN_TOP_LEFT,   /* masks as if keys began with the queries */
    CUDASIM_CUDNN_NO_PLAN,    /* takes no graph */
    CUDASIM_CUDNN_NO_RUN      /* refuses calls */
};
void cudasim_break_cudnn(enum cudasim_cudnn_fault what, int64_t argument);
int64_t cudasim_cudnn_calls(void);   /* so far */
int64_t cudasim_cudnn_objects(void); /* descriptors that exist */

/* What the last failed launch did, or "". */
const char *cudasim_fault(void);
void cudasim_print_faults(int on); /* to stderr too: the default */
/* Makes a lost device work again. What is allocated stays, while cudaDeviceReset of the real
 * runtime would free it. */
void cudasim_recover(void);

size_t cudasim_device_bytes(void); /* allocated now */
size_t cudasim_host_bytes(void);   /* of cudaHostAlloc */
/* The tensor core's c + a[0] b[0] + ... + a[15] b[15] of elements of bf16 or f16, widened. */
float cudasim_tensor_sum(float c, const float *a, const float *b);
/* Begins to count bank conflicts from 0, or stops. They are counted for kernels that are compiled
 * with checks, and for ldmatrix in all kernels. */
void cudasim_count_bank_conflicts(int on);
int64_t cudasim_bank_conflicts(void);
int64_t cudasim_launches(void); /* kernels run so far, those of graphs included */
int cudasim_is_checked(void);   /* 1 when loads and stores are watched */
/* Streams, events, graphs and instantiated graphs that exist. */
int64_t cudasim_objects(void);

#ifdef __cplusplus
}
#endif

#endif
