/*
 * The runtime: the devices, their memory and copies, and what carries out a stream's work;
 * launches.cpp has what concerns kernels, streams.cpp the calls on streams, events and graphs.
 *
 * Device memory is cut from one reserved range, first fit with gaps, so that a pointer tells what
 * it is; each device has an equal share of it. An operation on a stream is a closure in the
 * stream's queue; it runs when the host waits, when the queue is long, or, on the NULL stream, at
 * once after everything else.
 *
 * An error of a kernel is sticky: from then on every call for its device returns it. Each thread
 * has a current device, 0 at first. A stream, an event, and memory belong to the device that was
 * current when they were made. A launch is refused unless the stream is of the current device. CUDA
 * would copy for any device on the NULL stream of the current one, but to wait for that stream is
 * then to wait for the wrong device, so such copies are refused here.
 */
#include "runtime.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <utility>

extern "C" {
#include "port.h"
}

namespace cudasim
{

std::recursive_mutex big_lock;

static const size_t REGION = (size_t)32 << 30, GRAIN = 256, GAP = 256, LONG_QUEUE = 20000;
static const cudasim_machine default_machine = {2, 13000, 9, 0, 6, (size_t)16 << 30, 227 << 10};

cudasim_machine machine = default_machine;
thread_local int current_device;
int running_device;
cudaError_t sticky[MOST_DEVICES];
int64_t device_clock;
static thread_local cudaError_t last; /* what the next cudaGetLastError of this thread returns */
static char *region;
static std::map<char *, size_t> allocations, host_allocations;
std::set<CUstream_st *> streams;
std::set<CUevent_st *> events;
std::set<CUgraph_st *> graphs;
std::set<CUgraphExec_st *> graph_execs;
static int64_t fail_alloc;
static char fault_message[400];
static bool prints_faults = true;

cudaError_t report(cudaError_t error)
{
    if (error != cudaSuccess)
        last = error;
    return error;
}

/* There is no driver, or no device. */
cudaError_t has_devices()
{
    return machine.driver == 0    ? cudaErrorInsufficientDriver
           : machine.devices == 0 ? cudaErrorNoDevice
                                  : cudaSuccess;
}

/* The error that every call returns before it does anything: also that a kernel has failed. */
cudaError_t ready()
{
    const cudaError_t error = has_devices();
    return error != cudaSuccess ? error : sticky[current_device];
}

/* ------------------------------------------------------------------ memory */

bool alloc_fails() { return fail_alloc > 0 && --fail_alloc == 0; }

/* Of each device: whole pages. */
size_t device_share() { return REGION / (size_t)std::max(machine.devices, 1) / 4096 * 4096; }

static char *find_room(size_t bytes)
{
    char *const first = region + (size_t)current_device * device_share();
    char *at = first + GAP;
    for (const auto &a : allocations) {
        if (a.first < first || a.first >= first + device_share())
            continue;
        if ((size_t)(a.first - at) >= bytes + GAP && a.first > at)
            return at;
        at = region + ((size_t)(a.first - region) + a.second + GAP + GRAIN - 1) / GRAIN * GRAIN;
    }
    return (size_t)(at - first) + bytes + GAP <= device_share() ? at : NULL;
}

static size_t total(const std::map<char *, size_t> &blocks)
{
    size_t sum = 0;
    for (const auto &b : blocks)
        sum += b.second;
    return sum;
}

static bool holds(const std::map<char *, size_t> &blocks, const void *at, size_t bytes)
{
    char *p = const_cast<char *>(static_cast<const char *>(at));
    auto next = blocks.upper_bound(p);
    if (next == blocks.begin())
        return false;
    --next;
    return (size_t)(p - next->first) <= next->second &&
           bytes <= next->second - (size_t)(p - next->first);
}

bool is_device_range(const void *at, size_t bytes) { return holds(allocations, at, bytes); }

static bool in_region(const void *at)
{
    return region && (size_t)(static_cast<const char *>(at) - region) < REGION;
}

int device_of(const void *at)
{
    return in_region(at) ? (int)((size_t)(static_cast<const char *>(at) - region) / device_share())
                         : -1;
}

/* Bytes allocated on the current device. */
static size_t taken()
{
    size_t sum = 0;
    for (const auto &a : allocations)
        sum += device_of(a.first) == current_device ? a.second : 0;
    return sum;
}

void hide_other_devices(bool hide)
{
    for (int device = 0; device < machine.devices; device++) {
        char *const first = region + (size_t)device * device_share();
        const auto a = allocations.lower_bound(first);
        if (device == running_device || a == allocations.end() ||
            a->first >= first + device_share())
            continue;
        if (mprotect(first, device_share(), hide ? PROT_NONE : PROT_READ | PROT_WRITE) != 0) {
            perror("cudasim: mprotect");
            exit(2);
        }
    }
}

/* A kernel touches memory that is hidden from it: a fault of its own. Anything else is a crash of
 * the program. */
static void on_violation(int number, siginfo_t *info, void *)
{
    if (!on_fiber || device_of(info->si_addr) < 0 || device_of(info->si_addr) == running_device) {
        signal(number, SIG_DFL);
        return;
    }
    fault("it uses %p, memory of device %d, and runs on device %d", info->si_addr,
          device_of(info->si_addr), running_device);
}

static void set_up_region()
{
    if (region)
        return;
    void *at = mmap(NULL, REGION, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        perror("cudasim: mmap");
        exit(2);
    }
    struct sigaction action = {};
    action.sa_sigaction = on_violation;
    action.sa_flags = SA_SIGINFO | SA_NODEFER; /* a fault leaves the handler for good */
    sigaction(SIGSEGV, &action, NULL);
    region = static_cast<char *>(at);
    check_device_region(region, REGION);
}

/* ------------------------------------------------------------------ streams */

void tell(const char *what, bool asked_for)
{
    if (prints_faults && !asked_for)
        fprintf(stderr, "cudasim: %s\n", what);
    snprintf(fault_message, sizeof fault_message, "%s", what);
}

int64_t operations_run;

int compute_major() { return machine.major; }

/* Runs an operation in the floating-point environment of kernels: rounding to nearest, denormals
 * are zero. */
cudaError_t run_now(int device, const operation &op)
{
    const int was = running_device;
    struct sb_fp_env env;

    if (sticky[device] != cudaSuccess)
        return sticky[device];
    running_device = device;
    device_clock += 1000;
    operations_run++;
    sb_port_fp_enter(&env);
    cudaError_t error = op();
    sb_port_fp_leave(&env);
    running_device = was;
    if (error != cudaSuccess && sticky[device] == cudaSuccess)
        sticky[device] = last = error;
    return error;
}

void drain(CUstream_st *stream)
{
    if (stream->draining)
        return;
    stream->draining = true;
    /* The loop goes by index, because an operation may wait for an event of another stream, and
     * that may queue more here. */
    for (size_t i = 0; i < stream->queue.size(); i++)
        run_now(stream->device, stream->queue[i]);
    stream->queue.clear();
    stream->draining = false;
}

/* What the current device has to do. */
static void drain_all()
{
    for (CUstream_st *s : streams)
        if (s->device == current_device)
            drain(s);
}

/* Whether this thread may not make calls that a capture forbids for this stream's sake: the capture
 * is its own, or is of the mode that forbids them to all threads. */
static bool captures_here(const CUstream_st *s)
{
    return s->capturing &&
           (s->mode == cudaStreamCaptureModeGlobal || s->captured_by == std::this_thread::get_id());
}

bool any_capture()
{
    for (CUstream_st *s : streams)
        if (captures_here(s))
            return true;
    return false;
}

cudaError_t enqueue(cudaStream_t stream, std::function<cudaError_t()> op)
{
    if (!stream) {
        if (any_capture())
            return report(cudaErrorStreamCaptureUnsupported);
        drain_all();
        run_now(current_device, op);
        return report(sticky[current_device]);
    }
    if (!streams.count(stream))
        return report(cudaErrorInvalidResourceHandle);
    if (stream->invalidated)
        return report(cudaErrorStreamCaptureInvalidated);
    if (stream->capturing) {
        stream->capturing->operations.push_back(std::move(op));
        return cudaSuccess;
    }
    stream->queue.push_back(std::move(op));
    if (stream->queue.size() >= LONG_QUEUE)
        drain(stream);
    return cudaSuccess;
}

/* For calls that wait. Whether a stream captures; if so, the call must fail, and it makes the
 * capture invalid. */
static bool breaks_capture()
{
    bool any = false;
    for (CUstream_st *s : streams)
        if (captures_here(s))
            any = s->invalidated = true;
    return any;
}

/* ------------------------------------------------------------------ copies */

static cudaError_t copy_rows(char *to, size_t to_pitch, const char *from, size_t from_pitch,
                             size_t width, size_t height)
{
    const bool is_left_out = counting && width * height >= (size_t)1 << 20; /* counts.h */

    for (size_t r = 0; r < height && !is_left_out; r++) {
        char *row = to + r * to_pitch;
        memmove(row, from + r * from_pitch, width);
        if (in_region(row))
            check_device(row, width, MEMORY_WRITTEN);
    }
    return cudaSuccess;
}

/* Whether both sides lie wholly where `kind` says. */
static bool sides_fit(const void *to, size_t to_bytes, const void *from, size_t from_bytes,
                      cudaMemcpyKind kind)
{
    const bool to_device = kind == cudaMemcpyDefault ? in_region(to) : kind & 1;
    const bool from_device = kind == cudaMemcpyDefault ? in_region(from) : kind & 2;
    return (to_device ? is_device_range(to, to_bytes) : !in_region(to)) &&
           (from_device ? is_device_range(from, from_bytes) : !in_region(from));
}

/* Whether the host's side is pinned. */
static bool is_pinned(const void *to, size_t to_bytes, const void *from, size_t from_bytes)
{
    return (in_region(to) || holds(host_allocations, to, to_bytes)) &&
           (in_region(from) || holds(host_allocations, from, from_bytes));
}

static cudaError_t copy(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                        size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream,
                        bool waits)
{
    READY;
    if (width == 0 || height == 0)
        return cudaSuccess;
    REFUSE_IF(width > to_pitch || width > from_pitch, cudaErrorInvalidValue);
    REFUSE_IF(stream && !streams.count(stream), cudaErrorInvalidResourceHandle);
    const int device = stream ? stream->device : current_device;
    if ((in_region(to) && device_of(to) != device) ||
        (in_region(from) && device_of(from) != device)) {
        tell("a copy of one device's memory on a stream of another device");
        return report(cudaErrorInvalidValue);
    }
    REFUSE_IF(!sides_fit(to, (height - 1) * to_pitch + width, from,
                         (height - 1) * from_pitch + width, kind),
              cudaErrorInvalidValue);
    if (!waits &&
        !is_pinned(to, (height - 1) * to_pitch + width, from, (height - 1) * from_pitch + width)) {
        tell("an asynchronous copy with memory of the host that is not pinned");
        return report(cudaErrorInvalidValue);
    }
    return enqueue(stream, [=] {
        return copy_rows(static_cast<char *>(to), to_pitch, static_cast<const char *>(from),
                         from_pitch, width, height);
    });
}

} // namespace cudasim

using namespace cudasim;

/* ------------------------------------------------------------------ control */

extern "C" {

void cudasim_configure(const struct cudasim_machine *wanted)
{
    CUDASIM_LOCK;
    machine = wanted ? *wanted : default_machine;
    if (machine.shared == 0)
        machine.shared = default_machine.shared;
    current_device = 0;
    forget_kernels();
    cudasim_recover();
}

int64_t cudasim_fail_alloc(int64_t n)
{
    CUDASIM_LOCK;
    return std::exchange(fail_alloc, n);
}
void cudasim_print_faults(int on) { prints_faults = on; }
const char *cudasim_fault(void) { return fault_message; }

void cudasim_recover(void)
{
    CUDASIM_LOCK;
    for (cudaError_t &error : sticky)
        error = cudaSuccess;
    last = cudaSuccess;
    fault_message[0] = '\0';
    fail_alloc = 0;
    cudasim_fail_launch(0);
    cudasim_refuse_launches(1, 0);
    cudasim_refuse_captures(0);
}

size_t cudasim_device_bytes(void)
{
    CUDASIM_LOCK;
    return total(allocations);
}
size_t cudasim_host_bytes(void)
{
    CUDASIM_LOCK;
    return total(host_allocations);
}
int64_t cudasim_objects(void)
{
    CUDASIM_LOCK;
    return (int64_t)(streams.size() + events.size() + graphs.size() + graph_execs.size());
}

/* ------------------------------------------------------------------ errors */

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
        return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
        return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
        return "cudaErrorInvalidDevice";
    case cudaErrorNoKernelImageForDevice:
        return "cudaErrorNoKernelImageForDevice";
    case cudaErrorInvalidResourceHandle:
        return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources:
        return "cudaErrorLaunchOutOfResources";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
    case cudaErrorCooperativeLaunchTooLarge:
        return "cudaErrorCooperativeLaunchTooLarge";
    case cudaErrorNotSupported:
        return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureUnsupported:
        return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
        return "cudaErrorStreamCaptureInvalidated";
    default:
        return "cudaErrorUnknown";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice:
        return "no kernel image is available for execution on the device";
    case cudaErrorInvalidResourceHandle:
        return "invalid resource handle";
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorLaunchOutOfResources:
        return "too many resources requested for launch";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorCooperativeLaunchTooLarge:
        return "too many blocks in cooperative launch";
    case cudaErrorNotSupported:
        return "operation not supported";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    default:
        return "unknown error";
    }
}

cudaError_t cudaPeekAtLastError(void)
{
    CUDASIM_LOCK;
    return sticky[current_device] != cudaSuccess ? sticky[current_device] : last;
}

cudaError_t cudaGetLastError(void)
{
    CUDASIM_LOCK;
    cudaError_t error = cudaPeekAtLastError();
    last = cudaSuccess;
    return error;
}

/* ------------------------------------------------------------------ device */

/* Functions of the driver that a program asks for by name. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(!name || !function || !found || flags != cudaEnableDefault, cudaErrorInvalidValue);
    const bool is_known = strcmp(name, "cuTensorMapEncodeTiled") == 0 && has_map_encoder();
    *found = !is_known                            ? cudaDriverEntryPointSymbolNotFound
             : version > (unsigned)machine.driver ? cudaDriverEntryPointVersionNotSufficent
                                                  : cudaDriverEntryPointSuccess;
    *function = *found == cudaDriverEntryPointSuccess
                    ? reinterpret_cast<void *>(&cuTensorMapEncodeTiled)
                    : NULL;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    CUDASIM_LOCK;
    *version = machine.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    CUDASIM_LOCK;
    *count = machine.driver ? machine.devices : 0;
    if (machine.driver == 0 || machine.devices == 0)
        READY;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    CUDASIM_LOCK;
    DRIVER;
    REFUSE_IF(device < 0 || device >= machine.devices, cudaErrorInvalidDevice);
    REFUSE_IF(device == refused_device, cudaErrorInitializationError);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    CUDASIM_LOCK;
    DRIVER;
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    CUDASIM_LOCK;
    DRIVER;
    REFUSE_IF(device < 0 || device >= machine.devices, cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Simulated GPU");
    p->totalGlobalMem = machine.memory;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = machine.shared;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->reservedSharedMemPerBlock = 1 << 10;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->major = machine.major;
    p->minor = machine.minor;
    p->multiProcessorCount = machine.multiprocessors;
    p->l2CacheSize = 50 << 20;
    p->unifiedAddressing = p->canMapHostMemory = p->concurrentKernels = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    CUDASIM_LOCK;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess)
        return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)p.sharedMemPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)p.sharedMemPerBlockOptin;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)p.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrCooperativeLaunch:
        *value = 1;
        break;
    case cudaDevAttrWarpSize:
        *value = p.warpSize;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = p.maxThreadsPerMultiProcessor;
        break;
    case cudaDevAttrL2CacheSize:
        *value = p.l2CacheSize;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
    default:
        return report(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(breaks_capture(), cudaErrorStreamCaptureUnsupported);
    drain_all();
    return report(sticky[current_device]);
}

cudaError_t cudaDeviceReset(void)
{
    CUDASIM_LOCK;
    while (!allocations.empty()) {
        check_device(allocations.begin()->first, allocations.begin()->second, MEMORY_NONE);
        allocations.erase(allocations.begin());
    }
    for (CUstream_st *s : streams)
        s->queue.clear();
    cudasim_recover();
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
    CUDASIM_LOCK;
    READY;
    *all = machine.memory;
    *free_bytes = machine.memory - taken();
    return cudaSuccess;
}

/* ------------------------------------------------------------------ memory */

cudaError_t cudaMalloc(void **dev, size_t bytes)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(breaks_capture(), cudaErrorStreamCaptureUnsupported);
    *dev = NULL;
    if (bytes == 0)
        return cudaSuccess;
    set_up_region();
    REFUSE_IF(alloc_fails() || bytes > machine.memory - taken(), cudaErrorMemoryAllocation);
    char *at = find_room(bytes);
    REFUSE_IF(!at, cudaErrorMemoryAllocation);
    if (!count_alloc(at, bytes) && bytes <= (size_t)64 << 20) /* larger ones are only reserved, and
                                      would take real memory if they were filled */
        memset(at, 0xff, bytes);
    check_device(at, bytes, MEMORY_FRESH);
    allocations[at] = bytes;
    *dev = at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *dev)
{
    CUDASIM_LOCK;
    if (!dev)
        return cudaSuccess;
    drain_all();
    auto a = allocations.find(static_cast<char *>(dev));
    REFUSE_IF(a == allocations.end(), cudaErrorInvalidValue);
    check_device(a->first, a->second, MEMORY_NONE);
    madvise(
        reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(a->first) + 4095) & ~(uintptr_t)4095),
        a->second > 8192 ? a->second - 8192 : 0, MADV_DONTNEED);
    allocations.erase(a);
    return report(sticky[current_device]);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *at)
{
    CUDASIM_LOCK;
    DRIVER;
    *attributes = cudaPointerAttributes();
    attributes->device = device_of(at);
    attributes->type = in_region(at)                    ? cudaMemoryTypeDevice
                       : holds(host_allocations, at, 1) ? cudaMemoryTypeHost
                                                        : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **host, size_t bytes, unsigned flags)
{
    CUDASIM_LOCK;
    (void)flags;
    READY;
    REFUSE_IF(breaks_capture(), cudaErrorStreamCaptureUnsupported);
    *host = alloc_fails() ? NULL : malloc(bytes > 0 ? bytes : 1);
    REFUSE_IF(!*host, cudaErrorMemoryAllocation);
    memset(*host, 0xff, bytes);
    host_allocations[static_cast<char *>(*host)] = bytes;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **host, size_t bytes)
{
    return cudaHostAlloc(host, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *host)
{
    CUDASIM_LOCK;
    if (!host)
        return cudaSuccess;
    drain_all();
    REFUSE_IF(!host_allocations.erase(static_cast<char *>(host)), cudaErrorInvalidValue);
    free(host);
    return report(sticky[current_device]);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    CUDASIM_LOCK;
    return copy(to, bytes, from, bytes, bytes, 1, kind, stream, false);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    CUDASIM_LOCK;
    return copy(to, bytes, from, bytes, bytes, 1, kind, NULL, true);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    CUDASIM_LOCK;
    return copy(to, to_pitch, from, from_pitch, width, height, kind, stream, false);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind)
{
    CUDASIM_LOCK;
    return copy(to, to_pitch, from, from_pitch, width, height, kind, NULL, true);
}

cudaError_t cudaMemsetAsync(void *dev, int value, size_t bytes, cudaStream_t stream)
{
    CUDASIM_LOCK;
    READY;
    if (bytes == 0)
        return cudaSuccess;
    REFUSE_IF(!is_device_range(dev, bytes), cudaErrorInvalidValue);
    REFUSE_IF(device_of(dev) != (stream ? stream->device : current_device), cudaErrorInvalidValue);
    return enqueue(stream, [=] {
        memset(dev, value, bytes);
        check_device(dev, bytes, MEMORY_WRITTEN);
        return cudaSuccess;
    });
}

cudaError_t cudaMemset(void *dev, int value, size_t bytes)
{
    return cudaMemsetAsync(dev, value, bytes, NULL);
}
}
