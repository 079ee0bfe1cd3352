/*
 * What a kernel uses when the host runs it: the language extensions, threads, warps, shared memory
 * and intrinsics; and how it is launched.
 *
 * An operation of a warp is a collective. Each lane of the mask gives a pointer to its own part and
 * waits. When the last lane has come, one function runs over all parts, and then all go on.
 * Shuffles, votes, ldmatrix and mma are such functions.
 */
#ifndef CUDASIM_DEVICE_CODE_H
#define CUDASIM_DEVICE_CODE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <tuple>
#include <type_traits>

#include "cuda.h"
#include "cuda_runtime_api.h"

#define __global__
#define __grid_constant__
#define __device__
#define __host__
#define __constant__ static const
#ifndef __forceinline__ /* it is less in kernels, as rules.mk says */
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* A plain __shared__ array would have no bounds here, so it does not compile. Kernels declare
 * theirs by SB_SHARED and SB_DYNAMIC_SHARED, which both compilers understand. */
#define __shared__ cudasim_use_SB_SHARED_instead

/* ------------------------------------------------------------------ vector types */

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct uint3 {
    unsigned x, y, z;
};

#define CUDASIM_VECTORS(type, name, pair_align, quad_align)                         \
    struct __align__(pair_align) name##2 { type x, y; };                            \
    struct __align__(quad_align) name##4 { type x, y, z, w; };                      \
    static inline name##2 make_##name##2(type x, type y) { return name##2 {x, y}; } \
    static inline name##4 make_##name##4(type x, type y, type z, type w)            \
    {                                                                               \
        return name##4 {x, y, z, w};                                                \
    }
CUDASIM_VECTORS(float, float, 8, 16)
CUDASIM_VECTORS(int, int, 8, 16)
CUDASIM_VECTORS(unsigned, uint, 8, 16)
CUDASIM_VECTORS(unsigned short, ushort, 4, 8)
#undef CUDASIM_VECTORS

/* ------------------------------------------------------------------ threads */

namespace cudasim
{

/* Where the running thread is. A kernel's body runs from start to end as one thread, so these are
 * constant within it. */
uint3 thread_index() __attribute__((const));
uint3 block_index() __attribute__((const));
dim3 block_size() __attribute__((const));
dim3 grid_size() __attribute__((const));

/* file, line: of the barrier in the source. All threads of a block must wait at the same one, or
 * the first n if n is not 0. */
void block_barrier(const char *file, int line, unsigned n = 0);
void thread_fence();

/* Waits until every lane of `mask` has come with the same `fn`; then fn(parts) has run once.
 * parts[lane] is that lane's part, or NULL for a lane outside the mask or the block. `orders`: the
 * lanes' earlier stores become visible to each other. */
typedef void (*collective_fn)(void *const parts[32]);
void collective(unsigned mask, collective_fn fn, void *part, bool orders = false);

/* The block's shared arrays. `token` says which declaration is meant; every thread gets the same
 * address for it. */
void *shared_array(const void *token, size_t bytes, size_t align);
void *dynamic_shared(size_t align);

/* The running thread reads, writes or changes n bytes. Host bodies of instructions call these,
 * because the compiler does not report such accesses. */
void note_read(const void *address, size_t bytes);
void note_write(const void *address, size_t bytes);
void note_atomic(const void *address, size_t bytes);

/* Faults, because the running thread's instruction cannot take this address. It does not return. */
void misaligned(const void *address, size_t bytes);
/* Tells the counter of bank conflicts that an ldmatrix reads these eight rows of 16 bytes at once.
 */
void note_matrix_rows(const void *const rows[8]);

/* An mma of this accumulator, or a copy into the shared memory of so many blocks, is counted
 * (counts.h). false: it must be carried out. */
bool count_mma(const void *accumulator);
bool count_wgmma(int tiles); /* the same of a wgmma, by tiles of eight columns */
void count_matrices(int n);  /* an ldmatrix reads so many of 128 bytes */
bool count_copy(const void *from, size_t bytes);

/* mma and ldmatrix (matrices.cpp): a lane's registers, and the collectives, which all lanes join.
 */
struct mma_part {
    float d[4];
    uint32_t a[4], b[2];
};
void mma_bf16(void *const parts[32]);
void mma_f16(void *const parts[32]);
struct ldmatrix_part {
    const void *row;
    uint32_t r[4];
};
void ldmatrix_2(void *const parts[32]);
void ldmatrix_4(void *const parts[32]);
void ldmatrix_4_trans(void *const parts[32]);

/* The running thread waits for a word to change, and lets others run. `again`: it has done so since
 * it last did anything else. */
enum spin_kind { SPINS_FOR_BLOCKS, SPINS_FOR_MBARRIER, SPINS_FOR_CLUSTER };
void spin(spin_kind kind, const void *at, bool again);
/* It stores to a word with release, or has read one with acquire. */
void note_release(const void *at);
void note_acquire(const void *at);
void note_acq_rel(const void *at); /* both, in one operation */
/* griddepcontrol.wait and griddepcontrol.launch_dependents */
void wait_for_previous();
void launch_next();

int compute_major(); /* of the device */

/* mbarriers and bulk copies (async.cpp) */
void mbarrier_init(uintptr_t at, uint32_t arrivals);
void mbarrier_arrive(uintptr_t at, uint32_t expected_bytes);
bool mbarrier_test(uintptr_t at, uint32_t parity);
void bulk_copy(uintptr_t to, const void *from, uint32_t bytes, uintptr_t mbarrier);
void async_fence(bool of_shared);
/* Copies by a tensor map, from a column, row and plane on (tensor_map.cpp). */
void tensor_copy(uintptr_t to, const CUtensorMap &map, const int from[3], uintptr_t mbarrier);

/* wgmma (wgmma.cpp). wgmma_issue is a collective; all lanes call the others, and wgmma_wait once
 * for all of them. */
struct wgmma_part {
    bool is_bf16; /* else f16 */
    float *d;     /* [tiles] [4] */
    int tiles;    /* of eight columns */
    uintptr_t a, b;
};
void wgmma_fence();
void wgmma_issue(void *const parts[32]);
void wgmma_commit();
void wgmma_wait(unsigned left);

/* The barrier of the cluster (cluster.cpp). */
void cluster_arrive();
bool cluster_test(); /* whether the phase in which the thread arrived has ended */

/* While such an object lives, the running thread's accesses are not checked. Host bodies need it
 * for their own data, which is on the heap. */
struct unwatched {
    unwatched();
    ~unwatched();
};

struct launch_shape {
    dim3 grid, block;
    size_t shared;
    bool cooperative, dependent;
    bool clustered;   /* the launch says that it has clusters, */
    unsigned cluster; /* of so many blocks */
};

} // namespace cudasim

enum cudaLaunchAttributeID {
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
union cudaLaunchAttributeValue {
    char pad[64];
    int cooperative, programmaticStreamSerializationAllowed;
    struct {
        unsigned x, y, z;
    } clusterDim;
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    char pad[4];
    cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

namespace cudasim
{

void take_attributes(launch_shape *shape, const cudaLaunchAttribute *attributes, unsigned n);
cudaError_t max_active_clusters(int *clusters, const launch_shape &shape);

static inline launch_shape shape_of(const cudaLaunchConfig_t *config)
{
    launch_shape shape = {
        config->gridDim, config->blockDim, config->dynamicSmemBytes, false, false, false, 1};

    take_attributes(&shape, config->attrs, config->numAttrs);
    return shape;
}

/* Queues run(args) for every thread of a grid. args, of `bytes` bytes, belongs to the launch, which
 * frees it by drop. */
cudaError_t launch(const char *name, const void *function, const launch_shape &shape,
                   cudaStream_t stream, void (*run)(const void *args), void (*drop)(void *args),
                   void *args, size_t bytes);

template <typename... P>
struct call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
    static void run(const void *self)
    {
        const call *c = static_cast<const call *>(self);
        std::apply(c->kernel, c->arguments);
    }
    static void drop(void *self) { delete static_cast<call *>(self); }
};

template <typename... P, typename... A>
static cudaError_t launch_kernel(const char *name, const cudaLaunchConfig_t *config,
                                 void (*kernel)(P...), A... arguments)
{
    call<P...> *c = new call<P...>{kernel, std::tuple<P...>(static_cast<P>(arguments)...)};
    return launch(name, (const void *)kernel, shape_of(config), config->stream, call<P...>::run,
                  call<P...>::drop, c, sizeof *c);
}

} // namespace cudasim

#define threadIdx (cudasim::thread_index())
#define blockIdx (cudasim::block_index())
#define blockDim (cudasim::block_size())
#define gridDim (cudasim::grid_size())

template <typename... P>
static inline cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, void (*)(P...),
                                                         const cudaLaunchConfig_t *config)
{
    return cudasim::max_active_clusters(clusters, cudasim::shape_of(config));
}
/* It is a macro, so that faults can give the kernel's name. */
#define cudaLaunchKernelEx(config, kernel, ...) \
    cudasim::launch_kernel(#kernel, config, kernel, __VA_ARGS__)
#define SB_SHARED(type, name, count)        \
    static const char name##_token = 0;     \
    type *const name = static_cast<type *>( \
        cudasim::shared_array(&name##_token, sizeof(type) * (count), 16))
#define SB_DYNAMIC_SHARED(type, name) \
    type *const name = static_cast<type *>(cudasim::dynamic_shared(1024))

static inline void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    cudasim::block_barrier(file, line);
}
static inline void __threadfence(void) { cudasim::thread_fence(); }
static inline void __threadfence_block(void) {}

/* ------------------------------------------------------------------ warps */

namespace cudasim
{

enum shuffle_kind { SHUFFLE_IDX, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR };

struct shuffle_part {
    uint64_t value, result;
    int kind, operand, width;
};
void shuffle_parts(void *const parts[32]);

struct vote_part {
    int predicate;
    unsigned ballot;
};
void vote_parts(void *const parts[32]);
void no_parts(void *const parts[32]);

template <typename T>
static inline T shuffle(unsigned mask, T value, int kind, int operand, int width)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    shuffle_part part = {0, 0, kind, operand, width};
    memcpy(&part.value, &value, sizeof value);
    collective(mask, shuffle_parts, &part);
    memcpy(&value, &part.result, sizeof value);
    return value;
}

static inline unsigned vote(unsigned mask, int predicate)
{
    vote_part part = {predicate != 0, 0};
    collective(mask, vote_parts, &part);
    return part.ballot;
}

} // namespace cudasim

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    cudasim::collective(mask, cudasim::no_parts, NULL, true);
}
template <typename T>
static inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32)
{
    return cudasim::shuffle(mask, v, cudasim::SHUFFLE_IDX, lane, width);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32)
{
    return cudasim::shuffle(mask, v, cudasim::SHUFFLE_UP, (int)delta, width);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32)
{
    return cudasim::shuffle(mask, v, cudasim::SHUFFLE_DOWN, (int)delta, width);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32)
{
    return cudasim::shuffle(mask, v, cudasim::SHUFFLE_XOR, lanes, width);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return cudasim::vote(mask, predicate);
}
/* redux.sync, for a whole warp only: as all users have it. */
static inline unsigned __reduce_max_sync(unsigned mask, unsigned v)
{
    for (int step = 16; step > 0; step /= 2) {
        const unsigned other = cudasim::shuffle(mask, v, cudasim::SHUFFLE_XOR, step, 32);
        v = other > v ? other : v;
    }
    return v;
}
static inline unsigned __reduce_min_sync(unsigned mask, unsigned v)
{
    return ~__reduce_max_sync(mask, ~v);
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return cudasim::vote(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return cudasim::vote(mask, predicate) == mask;
}

/* ------------------------------------------------------------------ memory */

template <typename T>
static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T>
static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T>
static inline T __ldcg(const T *p)
{
    T value;

    memcpy(&value, p, sizeof value); /* one access, where *p would be one for each member */
    return value;
}
template <typename T>
static inline void __stcs(T *p, T v)
{
    *p = v;
}
template <typename T>
static inline void __stcg(T *p, T v)
{
    *p = v;
}

namespace cudasim
{

/* The checker does not see the plain accesses in here; note_atomic has told it of the atomic. */
template <typename T, typename F>
__attribute__((noinline, no_sanitize("thread"))) static T atomic(T *p, F update)
{
    note_atomic(p, sizeof *p);
    T old, fresh;
    __builtin_memcpy(&old, p, sizeof old);
    fresh = update(old);
    __builtin_memcpy(p, &fresh, sizeof fresh);
    return old;
}

} // namespace cudasim

template <typename T>
static inline T atomicAdd(T *p, T v)
{
    return cudasim::atomic(p, [v](T o) { return (T)(o + v); });
}
template <typename T>
static inline T atomicSub(T *p, T v)
{
    return cudasim::atomic(p, [v](T o) { return (T)(o - v); });
}
template <typename T>
static inline T atomicMax(T *p, T v)
{
    return cudasim::atomic(p, [v](T o) { return o > v ? o : v; });
}
template <typename T>
static inline T atomicMin(T *p, T v)
{
    return cudasim::atomic(p, [v](T o) { return o < v ? o : v; });
}
template <typename T>
static inline T atomicExch(T *p, T v)
{
    return cudasim::atomic(p, [v](T) { return v; });
}
template <typename T>
static inline T atomicCAS(T *p, T was, T v)
{
    return cudasim::atomic(p, [was, v](T o) { return o == was ? v : o; });
}
static inline unsigned atomicInc(unsigned *p, unsigned most)
{
    return cudasim::atomic(p, [most](unsigned o) { return o >= most ? 0u : o + 1u; });
}

/* ------------------------------------------------------------------ arithmetic */

/* Each is one rounded operation, because kernels are compiled with -ffp-contract=off. */
static inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float rsqrtf(float a) { return 1.0f / __builtin_sqrtf(a); }
static inline float __fdividef(float a, float b) { return a / b; }
#define __expf(a) expf(a) /* the C library declares these names */
#define __logf(a) logf(a)

static inline unsigned __float_as_uint(float v)
{
    unsigned b;
    memcpy(&b, &v, sizeof b);
    return b;
}
static inline int __float_as_int(float v)
{
    int b;
    memcpy(&b, &v, sizeof b);
    return b;
}
static inline float __uint_as_float(unsigned b)
{
    float v;
    memcpy(&v, &b, sizeof v);
    return v;
}
static inline float __int_as_float(int b)
{
    float v;
    memcpy(&v, &b, sizeof v);
    return v;
}
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }

template <typename T>
static inline T min(T a, T b)
{
    return b < a ? b : a;
}
template <typename T>
static inline T max(T a, T b)
{
    return b > a ? b : a;
}

/* The address that instructions take for shared memory is the pointer itself here. */
static inline size_t __cvta_generic_to_shared(const void *p) { return (size_t)(uintptr_t)p; }

#endif
