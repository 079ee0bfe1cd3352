/*
 * Kernels that are wrong in one way each, which the simulator must notice, and some that are right
 * and look wrong, which it must not report. test_sim_faults.c lists them with what is expected.
 * memory: [64] floats.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/wgmma.cuh"

enum { THREADS = 64 };

static __global__ void nothing_wrong(float *memory)
{
    SB_SHARED(float, tile, THREADS);
    const int t = threadIdx.x;

    tile[t] = memory[t]; /* then read by the thread itself, by its warp, by the block */
    __syncwarp();
    const float neighbour = tile[t ^ 1];
    __syncthreads();
    const float far = tile[THREADS - 1 - t];
    __syncthreads();
    tile[t] = neighbour + far;
    __syncwarp();
    memory[t] = tile[t ^ 3] + __shfl_xor_sync(SB_FULL_WARP, far, 16);
}

static __global__ void shared_write_outside(float *memory)
{
    SB_SHARED(float, tile, THREADS);
    tile[threadIdx.x + 1] = memory[threadIdx.x];
}

static __global__ void shared_read_outside(float *memory)
{
    SB_SHARED(float, tile, THREADS);
    tile[threadIdx.x] = 1.0f;
    __syncthreads();
    memory[threadIdx.x] = tile[(int)threadIdx.x - 1];
}

static __global__ void shared_beside_another(float *memory)
{
    SB_SHARED(float, first, THREADS);
    SB_SHARED(float, second, THREADS);
    first[threadIdx.x] = second[threadIdx.x] = 1.0f;
    __syncthreads();
    memory[threadIdx.x] = first[threadIdx.x + 2];
}

static __global__ void dynamic_outside(float *memory)
{
    SB_DYNAMIC_SHARED(float, tile); /* 32 floats */
    tile[threadIdx.x] = memory[threadIdx.x];
}

static __global__ void shared_not_written(float *memory)
{
    SB_SHARED(float, tile, THREADS);
    if (threadIdx.x != 7)
        tile[threadIdx.x] = 1.0f;
    __syncthreads();
    memory[threadIdx.x] = tile[THREADS - 1 - threadIdx.x];
}

static __global__ void dynamic_not_written(float *memory)
{
    SB_DYNAMIC_SHARED(float, tile);
    memory[threadIdx.x] = tile[threadIdx.x % 32];
}

/* The block before has written there, but shared memory does not outlive a block. */
static __global__ void shared_of_another_block(float *memory)
{
    SB_SHARED(float, tile, THREADS);
    if (blockIdx.x == 0)
        tile[threadIdx.x] = 1.0f;
    __syncthreads();
    memory[threadIdx.x] = tile[threadIdx.x];
}

static __global__ void device_outside(float *memory) { memory[threadIdx.x + 1] = 1.0f; }

static __global__ void device_vector_outside(float *memory)
{
    if (threadIdx.x == 0)
        *reinterpret_cast<float4 *>(memory + THREADS) = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
}

static __global__ void device_read(const float *memory, float *out)
{
    if (threadIdx.x == 0)
        *out = memory[3];
}

/* memory: the address of what is read */
static __global__ void device_read_through(const float *memory, float *out)
{
    if (threadIdx.x == 0)
        *out = **reinterpret_cast<const float *const *>(memory);
}

static __global__ void race_in_block(float *memory)
{
    SB_SHARED(float, tile, THREADS);
    tile[threadIdx.x] = 0.0f;
    __syncthreads();
    tile[threadIdx.x] = memory[threadIdx.x];
    memory[threadIdx.x] = tile[THREADS - 1 - threadIdx.x]; /* no barrier */
}

static __global__ void race_in_warp(float *memory)
{
    SB_SHARED(float, tile, THREADS);
    tile[threadIdx.x] = memory[threadIdx.x];
    const float seen = __shfl_xor_sync(SB_FULL_WARP, memory[threadIdx.x], 1); /* orders no memory */
    memory[threadIdx.x] = tile[threadIdx.x ^ 1] + seen;
}

static __global__ void race_after_read(float *memory)
{
    const float seen = memory[THREADS - 1 - threadIdx.x];
    memory[threadIdx.x] = seen;
}

static __global__ void race_of_blocks(float *memory) { memory[threadIdx.x] = (float)blockIdx.x; }

static __global__ void blocks_with_atomics(float *memory) { atomicAdd(memory, 1.0f); }

static __global__ void lane_that_ended(float *memory)
{
    if (threadIdx.x == 5)
        return;
    memory[threadIdx.x] = __shfl_xor_sync(SB_FULL_WARP, 1.0f, 1);
}

static __global__ void lane_elsewhere(float *memory)
{
    if (threadIdx.x % 2)
        __syncthreads();
    memory[threadIdx.x] = __shfl_xor_sync(SB_FULL_WARP, 1.0f, 1);
}

static __global__ void lane_not_in_mask(float *memory)
{
    memory[threadIdx.x] = __shfl_xor_sync(0xffffu, 1.0f, 1);
}

static __global__ void vector_misaligned(float *memory)
{
    if (threadIdx.x == 9)
        *reinterpret_cast<float4 *>(memory + 1) = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
}

static __global__ void float_misaligned(float *memory)
{
    if (threadIdx.x == 0)
        memory[0] = *reinterpret_cast<float *>(reinterpret_cast<char *>(memory) + 2);
}

static __global__ void barriers_apart(float *memory)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    memory[threadIdx.x] = 1.0f;
}

/* All threads come to the same barrier, by two branches that a compiler may keep apart. */
static __global__ void barriers_together(float *memory)
{
    for (int i = 0; i < 3; i++) {
        if (threadIdx.x < 32)
            memory[threadIdx.x] = (float)i;
        __syncthreads();
    }
}

/* 40 KB of static shared memory, and what the launch asks for. */
static __global__ void shared_of_both_kinds(float *memory)
{
    SB_SHARED(float, tile, 10 << 10);
    SB_DYNAMIC_SHARED(float, more);
    tile[threadIdx.x] = more[threadIdx.x] = memory[threadIdx.x];
}

/* Each warp reads column 0 of a tile of 32 columns, which is 32 words of one bank. */
static __global__ void one_bank(float *memory)
{
    SB_SHARED(float, tile, 32 * THREADS);
    tile[threadIdx.x * 32] = memory[threadIdx.x];
}

static __global__ void all_banks(float *memory)
{
    SB_SHARED(float, tile, 33 * THREADS);
    SB_SHARED(float4, rows, THREADS);
    tile[threadIdx.x * 33] = memory[threadIdx.x];
    rows[threadIdx.x] = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
    __syncwarp();
    memory[threadIdx.x] = tile[threadIdx.x * 33] + tile[threadIdx.x / 32 * 32 * 33]; /* own, and one
                                                                                        for all */
}

/* ------------------------------------------------------------------ blocks that wait for blocks */

/* The grid's counter is the last of the floats. */
static __device__ unsigned *counter_in(float *memory)
{
    return reinterpret_cast<unsigned *>(memory + THREADS - 1);
}

/* Block b makes memory[b] the sum of all that the blocks had there, three times. */
static __device__ void sum_in_turns(float *memory)
{
    const int n = gridDim.x, t = threadIdx.x;

    for (int i = 0; i < 3; i++) {
        float sum = 0.0f;
        for (int b = 0; b < n && t == 5; b++)
            sum += memory[b];
        grid_barrier(counter_in(memory));
        if (t == 5)
            memory[blockIdx.x] = sum + 1.0f;
        grid_barrier(counter_in(memory));
    }
}

static __global__ void blocks_in_turns(float *memory) { sum_in_turns(memory); }
static __global__ void turns_not_cooperative(float *memory) { sum_in_turns(memory); }

/* One block after the other adds 1 to a number. */
static __global__ void one_block_at_a_time(float *memory)
{
    for (unsigned b = 0; b < gridDim.x; b++) {
        if (blockIdx.x == b && threadIdx.x == 0)
            memory[0] += 1.0f;
        grid_barrier(counter_in(memory));
    }
}

static __global__ void blocks_not_ordered(float *memory)
{
    if (threadIdx.x == 0)
        memory[blockIdx.x] = 1.0f;
    __syncthreads();
    if (threadIdx.x == 1)
        memory[32 + blockIdx.x] = memory[(blockIdx.x + 1) % gridDim.x];
}

static __global__ void block_leaves_early(float *memory)
{
    if (blockIdx.x != 1)
        grid_barrier(counter_in(memory));
}

static __global__ void threads_part_at_grid(float *memory)
{
    if (threadIdx.x < 32)
        grid_barrier(counter_in(memory));
    else
        __syncthreads();
}

/* The first warp meets by itself, and in the end tells the second, which does not take part. */
enum meeting { ALL_IS_WELL, NO_MEETING, SECOND_COMES_TOO, FIRST_NEVER_TELLS };
template <enum meeting MISTAKE>
static __global__ void some_meet(float *memory)
{
    SB_SHARED(float, tile, 32);
    SB_SHARED(unsigned, told, 1);
    const unsigned t = threadIdx.x;

    if (t == 0)
        *told = 0;
    if (t < 32)
        tile[t] = 0.0f;
    __syncthreads();
    if (t >= 32) {
        if (MISTAKE == SECOND_COMES_TOO)
            sync_threads<32>();
        for (bool again = false; load_acquire_shared(told) == 0; again = true)
            spin(told, again);
        return;
    }
    tile[t] = memory[t];
    if (MISTAKE != NO_MEETING)
        sync_threads<32>();
    memory[t] = tile[31 - t];
    if (t == 0 && MISTAKE != FIRST_NEVER_TELLS)
        store_release_shared(told, 1);
}

/* Thread 0 tells the other block before thread 5 has stored. */
static __global__ void released_too_early(float *memory)
{
    unsigned *const ready = counter_in(memory);

    if (blockIdx.x == 0 && threadIdx.x == 0)
        add_release(ready, 1);
    if (blockIdx.x == 0 && threadIdx.x == 5)
        memory[0] = 1.0f;
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        for (bool again = false; load_acquire(ready) == 0; again = true)
            spin(ready, again);
        memory[1] = memory[0];
    }
}

/* The thread that stores is the one that tells. */
static __global__ void released_in_time(float *memory)
{
    unsigned *const ready = counter_in(memory);

    if (blockIdx.x == 0 && threadIdx.x == 5) {
        memory[0] = 1.0f;
        add_release(ready, 1);
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        for (bool again = false; load_acquire(ready) == 0; again = true)
            spin(ready, again);
        memory[1] = memory[0];
    }
}

static __global__ void resident_shared(float *memory)
{
    SB_SHARED(float, tile, 10 << 10);
    tile[threadIdx.x] = memory[threadIdx.x];
}

/* ------------------------------------------------------------------ kernels that begin early */

static __global__ void waits_in_time(float *memory, float *out)
{
    grid_launch_next();
    grid_wait_for_previous();
    if (threadIdx.x == 0)
        *out = memory[3];
}

static __global__ void waits_then_lets_go(float *memory, float *out)
{
    grid_wait_for_previous();
    grid_launch_next();
    if (threadIdx.x == 0)
        out[0] = memory[3];
}

static __global__ void reads_too_early(float *memory, float *out)
{
    const float seen = memory[3];
    grid_wait_for_previous();
    if (threadIdx.x == 0)
        *out = seen;
}

static __global__ void waits_for_others(float *memory, float *out)
{
    if (threadIdx.x == 0)
        grid_wait_for_previous();
    __syncthreads();
    if (threadIdx.x == 5)
        *out = memory[3];
}

static __global__ void waits_for_itself_alone(float *memory, float *out)
{
    if (threadIdx.x == 0)
        grid_wait_for_previous();
    if (threadIdx.x == 5)
        *out = memory[3];
}

static __global__ void stores_too_early(float *memory, float *out)
{
    if (threadIdx.x == 0)
        memory[3] = 1.0f;
    grid_wait_for_previous();
    if (threadIdx.x == 0)
        *out = 1.0f;
}

static __global__ void never_waits(float *memory, float *out)
{
    (void)memory;
    (void)out;
}

/* ------------------------------------------------------------------ bulk copies */

enum bulk_wrong {
    NOTHING,
    NO_WAIT_FOR_FULL,
    NO_WAIT_FOR_EMPTY,
    WAITS_FOR_FULL,
    EXPECTS_MORE,
    EXPECTS_LESS,
    READS_AFTER_ARRIVING,
    NO_FENCE_AFTER_INIT,
    NO_BARRIER_AFTER_INIT,
    NO_FENCE_AFTER_STORE,
    NOT_BY_16_BYTES,
    BEYOND_MEMORY,
    LEAVES_EARLY,
    ARRIVES_TWICE,
    WAITS_ALONE,
    SOME_NEVER_ARRIVE,
    STORES_AFTER_ARRIVING,
    NO_FENCE_FOR_SUMS,
    SUMS_NOT_AWAITED,
    STORES_TOO_EARLY,
    OTHER_OPERANDS,
    FEWER_PRODUCTS,
    OPERAND_MISPLACED,
    OPERAND_OUTSIDE,
    NO_MAP
};
enum { STAGES = 2, CHUNKS = 4, CHUNK = THREADS / CHUNKS };

/* Thread 0 copies `memory` in four chunks through two stages, and warp 1 adds them up. */
template <int WRONG>
static __device__ void produce(float *memory, float *tile, shared_at full, shared_at empty)
{
    const uint32_t bytes = CHUNK * 4 - (WRONG == NOT_BY_16_BYTES ? 4 : 0),
                   more = WRONG == EXPECTS_MORE ? 16 : 0, less = WRONG == EXPECTS_LESS ? 16 : 0;

    for (int i = 0; i < (WRONG == LEAVES_EARLY ? STAGES : CHUNKS); i++) {
        const int s = i % STAGES;
        if (i >= STAGES && WRONG != NO_WAIT_FOR_EMPTY) /* or one that says only that it is full */
            mbarrier_wait((WRONG == WAITS_FOR_FULL ? full : empty) + 8 * s, i / STAGES - 1);
        mbarrier_arrive_expect(full + 8 * s, bytes + more - less);
        bulk_copy(at_shared(tile + CHUNK * s),
                  memory + CHUNK * i + (WRONG == BEYOND_MEMORY ? CHUNK / 2 : 0), bytes,
                  full + 8 * s);
    }
}

template <int WRONG>
static __device__ float consume(const float *tile, shared_at full, shared_at empty)
{
    float sum = 0.0f;

    for (int i = 0; i < CHUNKS; i++) {
        const int s = i % STAGES;
        if (WRONG != NO_WAIT_FOR_FULL)
            mbarrier_wait(full + 8 * s, i / STAGES);
        if (WRONG == READS_AFTER_ARRIVING)
            mbarrier_arrive(empty + 8 * s);
        sum += tile[CHUNK * s + threadIdx.x % CHUNK];
        if (WRONG != READS_AFTER_ARRIVING)
            mbarrier_arrive(empty + 8 * s);
    }
    return sum;
}

template <int WRONG>
static __global__ void bulk(float *memory, float *out)
{
    SB_SHARED(uint64_t, bars, 2 * STAGES);
    SB_SHARED(float, tile, STAGES *CHUNK);
    const shared_at full = at_shared(bars), empty = at_shared(bars + STAGES);

    for (int s = 0; s < STAGES && threadIdx.x == 0; s++) {
        mbarrier_init(full + 8 * s, 1);
        mbarrier_init(empty + 8 * s, 32);
    }
    if (WRONG != NO_FENCE_AFTER_INIT && threadIdx.x == 0)
        async_fence_shared();
    if (WRONG != NO_BARRIER_AFTER_INIT)
        __syncthreads();
    if (WRONG == NO_FENCE_AFTER_STORE) {
        if (threadIdx.x >= 32)
            tile[threadIdx.x - 32] = 0.0f;
        __syncthreads();
    }
    if (threadIdx.x == 0)
        produce<WRONG>(memory, tile, full, empty);
    if (threadIdx.x < 32 || WRONG == LEAVES_EARLY)
        return;
    const float sum = sb_hsum16(consume<WRONG>(tile, full, empty));
    if (threadIdx.x == 32)
        *out = sum;
}

enum { CLUSTER = 4, PIECE = THREADS / 8 };

/* Each of up to eight blocks stores its piece of `memory`, and reads that of the next block of its
 * cluster behind the cluster's barrier. */
template <int WRONG>
static __global__ void exchange(float *memory, float *out)
{
    const int t = threadIdx.x, me = blockIdx.x, rank = me % CLUSTER,
              next = me - rank + (rank + 1) % CLUSTER;

    if (WRONG == SOME_NEVER_ARRIVE && rank == 2 && t < 32)
        __syncthreads();
    if (WRONG == STORES_AFTER_ARRIVING) {
        cluster_arrive();
        __syncwarp();
    }
    if (t < PIECE)
        memory[PIECE * me + t] = (float)t;
    if (WRONG != STORES_AFTER_ARRIVING && WRONG != WAITS_ALONE)
        cluster_arrive();
    if (WRONG == ARRIVES_TWICE)
        cluster_arrive();
    if (WRONG != NO_WAIT_FOR_FULL)
        cluster_wait();
    atomicAdd(out, memory[PIECE * next + t % PIECE]);
}

/* ------------------------------------------------------------------ products of a warpgroup */

enum { WARPGROUP = 128, TILE_ROWS = 96, TILE_BYTES = TILE_ROWS * 128 };

/* Two steps of 16 of the product of `memory`, as two rows of 64 bf16 and rows of zeros, by itself.
 */
template <int WRONG>
static __global__ void warpgroup(float *out, const __grid_constant__ CUtensorMap map)
{
    SB_SHARED(uint64_t, bar, 1);
    SB_DYNAMIC_SHARED(float, tile);
    const shared_at full = at_shared(bar), at = at_shared(tile);
    const int t = threadIdx.x, warp = t / 32;
    float d[TILE_ROWS / 8][4] = {{0.0f}}, sum = 0.0f;

    if (t == 0) {
        mbarrier_init(full, 1);
        async_fence_shared();
        mbarrier_arrive_expect(full, TILE_BYTES);
        tensor_copy(at, map, {0, 0, 0}, full);
    }
    __syncthreads();
    if (WRONG != NO_WAIT_FOR_FULL)
        mbarrier_wait(full, 0);
    if (WRONG == NO_FENCE_AFTER_STORE) {
        tile[t] = 0.0f;
        __syncthreads();
    }
    if (WRONG != NO_FENCE_FOR_SUMS)
        wgmma_begin();
    for (int k = 0; k < (WRONG == FEWER_PRODUCTS && warp == 3 ? 1 : 2); k++) {
        shared_at a = at + 32 * k + (WRONG == OTHER_OPERANDS && warp == 2 ? 64 : 0);
        a += WRONG == OPERAND_MISPLACED ? 128 : WRONG == OPERAND_OUTSIDE ? 8192 : 0;
        wgmma<SB_BF16>(d, wgmma_operand(a), wgmma_operand(at + 32 * k));
    }
    wgmma_commit();
    if (WRONG == NO_WAIT_FOR_EMPTY && t == 0)
        tensor_copy(at, map, {0, 0, 0}, full);
    if (WRONG == STORES_TOO_EARLY) {
        async_fence_shared();
        tile[t] = 0.0f;
    }
    if (WRONG != SUMS_NOT_AWAITED)
        wgmma_end(d);
    for (int i = 0; i < TILE_ROWS / 8 * 4; i++)
        sum += d[i / 4][i % 4];
    atomicAdd(out, sum);
}

/* Launches one of these, with rows of `memory` that are there, or one more. */
static cudaError_t launch_warpgroup(void (*kernel)(float *, CUtensorMap), const char *name,
                                    float *memory, float *out, cudaStream_t stream)
{
    const bool is_beyond = strstr(name, "BEYOND_MEMORY"), has_none = strstr(name, "NO_MAP");
    const cuuint64_t sizes[3] = {64, is_beyond ? 3u : 2u, 1}, pitches[2] = {128, 128};
    const cuuint32_t box[3] = {64, TILE_ROWS, 1}, steps[3] = {1, 1, 1};
    CUtensorMap map = {};

    if (!has_none &&
        cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, memory, sizes, pitches,
                               box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return cudaErrorInvalidValue;
    return SB_LAUNCH(kernel, dim3(1), dim3(WARPGROUP), TILE_BYTES, stream, out, map);
}

/* Launches the one of this name. */
static cudaError_t launch_warpgroup_of(const char *name, float *memory, float *out,
                                       cudaStream_t stream)
{
#define KERNEL(kernel)              \
    if (strcmp(name, #kernel) == 0) \
    return launch_warpgroup(kernel, name, memory, out, stream)

    KERNEL(warpgroup<NOTHING>);
    KERNEL(warpgroup<NO_WAIT_FOR_FULL>);
    KERNEL(warpgroup<NO_WAIT_FOR_EMPTY>);
    KERNEL(warpgroup<NO_FENCE_AFTER_STORE>);
    KERNEL(warpgroup<NO_FENCE_FOR_SUMS>);
    KERNEL(warpgroup<SUMS_NOT_AWAITED>);
    KERNEL(warpgroup<STORES_TOO_EARLY>);
    KERNEL(warpgroup<OTHER_OPERANDS>);
    KERNEL(warpgroup<FEWER_PRODUCTS>);
    KERNEL(warpgroup<OPERAND_MISPLACED>);
    KERNEL(warpgroup<OPERAND_OUTSIDE>);
    KERNEL(warpgroup<BEYOND_MEMORY>);
    KERNEL(warpgroup<NO_MAP>);
#undef KERNEL
    return cudaErrorInvalidDeviceFunction;
}

/* ------------------------------------------------------------------ by name */

static cudaError_t launch_meeting_of(const char *name, float *memory, unsigned blocks,
                                     unsigned threads, cudaStream_t stream)
{
#define KERNEL(kernel)              \
    if (strcmp(name, #kernel) == 0) \
    return SB_LAUNCH(kernel, dim3(blocks), dim3(threads), 0, stream, memory)

    KERNEL(some_meet<ALL_IS_WELL>);
    KERNEL(some_meet<NO_MEETING>);
    KERNEL(some_meet<SECOND_COMES_TOO>);
    KERNEL(some_meet<FIRST_NEVER_TELLS>);
#undef KERNEL
    return cudaErrorInvalidDeviceFunction;
}

extern "C" cudaError_t cudasim_fault_kernel(const char *name, float *memory, float *out,
                                            unsigned blocks, unsigned threads, size_t shared,
                                            cudaStream_t stream)
{
    if (strncmp(name, "some_meet", 9) == 0)
        return launch_meeting_of(name, memory, blocks, threads, stream);
#define KERNEL_WITH(options, kernel, ...) \
    if (strcmp(name, #kernel) == 0)       \
    return SB_LAUNCH_WITH(options, kernel, dim3(blocks), dim3(threads), shared, stream, __VA_ARGS__)
#define KERNEL(kernel, ...) KERNEL_WITH(0, kernel, __VA_ARGS__)
#define KERNEL_IN_CLUSTERS(kernel, ...) KERNEL_WITH(SB_CLUSTER_OF *CLUSTER, kernel, __VA_ARGS__)

    KERNEL(nothing_wrong, memory);
    KERNEL(shared_write_outside, memory);
    KERNEL(shared_read_outside, memory);
    KERNEL(shared_beside_another, memory);
    KERNEL(dynamic_outside, memory);
    KERNEL(shared_not_written, memory);
    KERNEL(dynamic_not_written, memory);
    KERNEL(shared_of_another_block, memory);
    KERNEL(device_outside, memory);
    KERNEL(device_vector_outside, memory);
    KERNEL(device_read, memory, out);
    KERNEL(device_read_through, memory, out);
    KERNEL(race_in_block, memory);
    KERNEL(race_in_warp, memory);
    KERNEL(race_after_read, memory);
    KERNEL(race_of_blocks, memory);
    KERNEL(blocks_with_atomics, memory);
    KERNEL(lane_that_ended, memory);
    KERNEL(lane_elsewhere, memory);
    KERNEL(lane_not_in_mask, memory);
    KERNEL(vector_misaligned, memory);
    KERNEL(float_misaligned, memory);
    KERNEL(barriers_apart, memory);
    KERNEL(barriers_together, memory);
    KERNEL(shared_of_both_kinds, memory);
    KERNEL(one_bank, memory);
    KERNEL(all_banks, memory);
    KERNEL_WITH(SB_COOPERATIVE, blocks_in_turns, memory);
    KERNEL(turns_not_cooperative, memory);
    KERNEL_WITH(SB_COOPERATIVE, one_block_at_a_time, memory);
    KERNEL_WITH(SB_COOPERATIVE, blocks_not_ordered, memory);
    KERNEL_WITH(SB_COOPERATIVE, block_leaves_early, memory);
    KERNEL_WITH(SB_COOPERATIVE, threads_part_at_grid, memory);
    KERNEL_WITH(SB_COOPERATIVE, released_too_early, memory);
    KERNEL_WITH(SB_COOPERATIVE, released_in_time, memory);
    KERNEL_WITH(SB_COOPERATIVE, resident_shared, memory);
    KERNEL_WITH(SB_DEPENDENT, waits_in_time, memory, out);
    KERNEL_WITH(SB_DEPENDENT, waits_then_lets_go, memory, out);
    KERNEL_WITH(SB_DEPENDENT, reads_too_early, memory, out);
    KERNEL_WITH(SB_DEPENDENT, waits_for_others, memory, out);
    KERNEL_WITH(SB_DEPENDENT, waits_for_itself_alone, memory, out);
    KERNEL_WITH(SB_DEPENDENT, stores_too_early, memory, out);
    KERNEL_WITH(SB_DEPENDENT, never_waits, memory, out);
    KERNEL(bulk<NOTHING>, memory, out);
    KERNEL(bulk<NO_WAIT_FOR_FULL>, memory, out);
    KERNEL(bulk<NO_WAIT_FOR_EMPTY>, memory, out);
    KERNEL(bulk<WAITS_FOR_FULL>, memory, out);
    KERNEL(bulk<EXPECTS_MORE>, memory, out);
    KERNEL(bulk<EXPECTS_LESS>, memory, out);
    KERNEL(bulk<READS_AFTER_ARRIVING>, memory, out);
    KERNEL(bulk<NO_FENCE_AFTER_INIT>, memory, out);
    KERNEL(bulk<NO_BARRIER_AFTER_INIT>, memory, out);
    KERNEL(bulk<NO_FENCE_AFTER_STORE>, memory, out);
    KERNEL(bulk<NOT_BY_16_BYTES>, memory, out);
    KERNEL(bulk<BEYOND_MEMORY>, memory, out);
    KERNEL(bulk<LEAVES_EARLY>, memory, out);
    KERNEL_IN_CLUSTERS(exchange<NOTHING>, memory, out);
    KERNEL_IN_CLUSTERS(exchange<NO_WAIT_FOR_FULL>, memory, out);
    KERNEL_IN_CLUSTERS(exchange<STORES_AFTER_ARRIVING>, memory, out);
    KERNEL_IN_CLUSTERS(exchange<ARRIVES_TWICE>, memory, out);
    KERNEL_IN_CLUSTERS(exchange<WAITS_ALONE>, memory, out);
    KERNEL_IN_CLUSTERS(exchange<SOME_NEVER_ARRIVE>, memory, out);
#undef KERNEL
#undef KERNEL_IN_CLUSTERS
#undef KERNEL_WITH
    return launch_warpgroup_of(name, memory, out, stream);
}
