/*
 * Kernels as the runtime sees them: what a launch may ask for, which kernels are loaded, and
 * launches that fail because a test wants it.
 *
 * A kernel is loaded on a device by its first launch there, as CUDA does by default, or when its
 * attributes are asked for. A capture that would have to load a kernel is refused, because on a
 * device loading may need what a capture forbids.
 *
 * A block may have 48 KB of shared memory, static and dynamic together. A kernel that has been
 * allowed more dynamic memory may have as much as the device gives a block at most. A
 * multiprocessor has 1 KB more than that, which the system reserves for each block.
 *
 * The blocks of a cooperative launch are all on the device at once, so their number is at most that
 * of the multiprocessors times the blocks that one of them holds: as many as its threads, shared
 * memory and registers allow. The simulator does not know how many registers a kernel takes and
 * assumes REGISTERS a thread.
 *
 * The blocks of a cluster are there at once, and clusters come one after the other.
 */
#include "runtime.h"

#include <stdio.h>

#include <algorithm>
#include <map>

namespace cudasim
{

static const int SHARED_DEFAULT = 48 << 10, SHARED_RESERVED = 1 << 10;

static const int SM_THREADS = 2048, SM_REGISTERS = 65536, REGISTERS = 128;

static const unsigned MOST_OF_CLUSTER = 8; /* blocks, on every device that has clusters */

/* A kernel on a device. */
typedef std::pair<int, const void *> kernel_there;

static std::map<kernel_there, int> shared_limit; /* those that may have more than the default */
static std::set<kernel_there> loaded;
static int64_t fail_launch, refuse_after, refuse_count, launches;
int refused_device = -1;
static int64_t last_kernel; /* operations_run when the last kernel ran */
static cudaStream_t last_stream;

void forget_kernels()
{
    shared_limit.clear();
    loaded.clear();
}

void take_attributes(launch_shape *shape, const cudaLaunchAttribute *attributes, unsigned n)
{
    for (const cudaLaunchAttribute *a = attributes; a < attributes + n; a++) {
        if (a->id == cudaLaunchAttributeCooperative)
            shape->cooperative = a->val.cooperative != 0;
        else if (a->id == cudaLaunchAttributeProgrammaticStreamSerialization)
            shape->dependent = a->val.programmaticStreamSerializationAllowed != 0;
        else if (a->id == cudaLaunchAttributeClusterDimension) {
            shape->clustered = true;
            shape->cluster = a->val.clusterDim.x * a->val.clusterDim.y * a->val.clusterDim.z;
        }
    }
}

static size_t in_block(dim3 size) { return (size_t)size.x * size.y * size.z; }

/* How many blocks a multiprocessor holds at once. */
static size_t blocks_at_once(size_t threads, size_t shared)
{
    const size_t by_threads = SM_THREADS / threads,
                 by_registers = std::max(SM_REGISTERS / (REGISTERS * threads), (size_t)1),
                 by_shared = ((size_t)machine.shared + SHARED_RESERVED) /
                             (shared + SHARED_RESERVED);
    return std::min(std::min(by_threads, by_registers), by_shared);
}

/* The shared memory that a block may have so that all blocks of a cooperative launch fit. */
static size_t most_shared_of(const launch_shape &s, size_t most)
{
    const size_t sms = (size_t)machine.multiprocessors,
                 of_each = (in_block(s.grid) + sms - 1) / sms;

    if (!s.cooperative)
        return most;
    return std::min(most, ((size_t)machine.shared + SHARED_RESERVED) / of_each - SHARED_RESERVED);
}

static kernel_there here(const void *function) { return {current_device, function}; }

static cudaError_t check_shape(const void *function, const launch_shape &s)
{
    const uint64_t n = (uint64_t)s.block.x * s.block.y * s.block.z;
    auto limit = shared_limit.find(here(function));

    if (n == 0 || n > 1024 || s.block.z > 64 || s.grid.x == 0 || s.grid.y == 0 || s.grid.z == 0 ||
        s.grid.x > 0x7fffffffu || s.grid.y > 65535 || s.grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (s.shared > (size_t)(limit == shared_limit.end() ? SHARED_DEFAULT : limit->second))
        return cudaErrorInvalidValue;
    if (s.dependent && machine.major < 9)
        return cudaErrorNotSupported;
    if (s.clustered && (machine.major < 9 || s.cooperative))
        return cudaErrorNotSupported;
    if (s.cluster == 0 || s.cluster > MOST_OF_CLUSTER)
        return cudaErrorInvalidClusterSize;
    if (s.grid.x % s.cluster != 0)
        return cudaErrorInvalidConfiguration;
    if (s.cooperative &&
        in_block(s.grid) > blocks_at_once(n, s.shared) * (size_t)machine.multiprocessors)
        return cudaErrorCooperativeLaunchTooLarge;
    return cudaSuccess;
}

cudaError_t max_active_clusters(int *clusters, const launch_shape &shape)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(machine.major < 9, cudaErrorNotSupported);
    REFUSE_IF(shape.cluster == 0 || shape.cluster > MOST_OF_CLUSTER, cudaErrorInvalidClusterSize);
    *clusters = (int)(blocks_at_once(in_block(shape.block), shape.shared) *
                      (size_t)machine.multiprocessors / shape.cluster);
    return cudaSuccess;
}

/* A dependent launch overlaps with a kernel that is the operation just before it. After anything
 * else it waits, as every launch does. */
static cudaError_t run_launch(grid_launch grid, cudaStream_t stream)
{
    grid.overlaps = grid.shape.dependent && last_kernel + 1 == operations_run &&
                    last_stream == stream;
    last_kernel = operations_run;
    last_stream = stream;
    launches++;
    device_clock += 100 * (int64_t)grid.shape.grid.x * grid.shape.grid.y * grid.shape.grid.z;
    if (fail_launch > 0 && --fail_launch == 0) {
        tell("a failure that the test asked for", true);
        return cudaErrorIllegalAddress;
    }
    hide_other_devices(true);
    const bool is_sound = run_grid(grid);
    hide_other_devices(false);
    if (is_sound)
        return cudaSuccess;
    tell(fault_text());
    return cudaErrorIllegalAddress;
}

static bool is_refused()
{
    if (refuse_count == 0 || refuse_after-- > 0)
        return false;
    refuse_after = 0;
    refuse_count--;
    return true;
}

/* Whether the kernel is loaded. If it is not, it is loaded now, but not while the stream captures.
 */
static bool is_loaded(const char *name, const void *function, bool captures)
{
    char text[300];

    if (!captures)
        loaded.insert(here(function));
    if (loaded.count(here(function)))
        return true;
    snprintf(text, sizeof text, "%s: its first launch is in a capture, which would have to load it",
             name);
    tell(text);
    return false;
}

cudaError_t launch(const char *name, const void *function, const launch_shape &shape,
                   cudaStream_t stream, void (*run)(const void *), void (*drop)(void *), void *args,
                   size_t bytes)
{
    CUDASIM_LOCK;
    std::shared_ptr<void> owned(args, drop);
    READY;
    REFUSE_IF(machine.major < 8, cudaErrorNoKernelImageForDevice);
    REFUSE_IF(streams.count(stream) && stream->device != current_device,
              cudaErrorInvalidResourceHandle);
    const bool captures = streams.count(stream) && stream->capturing;
    cudaError_t error = check_shape(function, shape);
    if (error == cudaSuccess && !is_loaded(name, function, captures))
        error = cudaErrorStreamCaptureUnsupported;
    if (error == cudaSuccess && is_refused())
        error = cudaErrorLaunchOutOfResources;
    if (error != cudaSuccess && captures)
        stream->invalidated = true;
    REFUSE_IF(error != cudaSuccess, error);
    const int most = shared_limit.count(here(function)) ? machine.shared : SHARED_DEFAULT;
    grid_launch grid = {name, shape, run, args, bytes, most_shared_of(shape, (size_t)most), false};
    return enqueue(stream, [grid, owned, stream] { return run_launch(grid, stream); });
}

} // namespace cudasim

using namespace cudasim;

extern "C" {

void cudasim_fail_launch(int64_t n)
{
    CUDASIM_LOCK;
    fail_launch = n;
}

int64_t cudasim_refuse_launches(int64_t n, int64_t count)
{
    CUDASIM_LOCK;
    const int64_t left = refuse_count;
    refuse_after = n - 1;
    refuse_count = count;
    return left;
}

void cudasim_refuse_device(int device)
{
    CUDASIM_LOCK;
    refused_device = device;
}

int64_t cudasim_launches(void)
{
    CUDASIM_LOCK;
    return launches;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(machine.major < 8, cudaErrorNoKernelImageForDevice);
    REFUSE_IF(!is_loaded("a kernel whose attributes are asked for", function, any_capture()),
              cudaErrorStreamCaptureUnsupported);
    const bool has_more = shared_limit.count(here(function));
    *attributes = cudaFuncAttributes();
    attributes->maxThreadsPerBlock = 1024;
    attributes->maxDynamicSharedSizeBytes = has_more ? shared_limit[here(function)]
                                                     : SHARED_DEFAULT;
    attributes->ptxVersion = attributes->binaryVersion = 10 * machine.major + machine.minor;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    CUDASIM_LOCK;
    READY;
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        REFUSE_IF(value < 0 || value > machine.shared, cudaErrorInvalidValue);
        shared_limit[here(function)] = value;
    }
    loaded.insert(here(function));
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                          int threads, size_t shared)
{
    CUDASIM_LOCK;
    (void)function;
    READY;
    REFUSE_IF(threads < 1 || threads > 1024, cudaErrorInvalidValue);
    *blocks = (int)blocks_at_once((size_t)threads, shared);
    return cudaSuccess;
}
}
