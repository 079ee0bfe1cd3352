/*
 * The simulator of test/cudasim by itself. Blocks wait for each other and copies arrive as on a
 * device, and its runtime behaves as CUDA's: work waits in streams, graphs replay addresses, errors
 * of kernels are sticky. test_sim_faults.c has what it notices.
 */
#include "fault_test.h"

#include <cublasLt.h>

/* ------------------------------------------------------------------ blocks and copies */

/* Blocks that wait for each other are all there at once, and see what the others stored. */
static void test_cooperative_launches(void)
{
    enum { BLOCKS = 7 };
    float *memory = given_floats((const float[N]){0.0f}, N), got[N], expected = 0.0f;
    uint32_t counter;

    for (int launch = 1; launch <= 2; launch++) { /* nothing is reset between them */
        CHECK(strcmp(fault_of("blocks_in_turns", memory, BLOCKS, 0), "") == 0);
        CHECK_CUDA(fetch(got, memory, sizeof got));
        for (int i = 0; i < 3; i++)
            expected = BLOCKS * expected + 1.0f;
        for (int b = 0; b < BLOCKS; b++)
            CHECK(got[b] == expected);
        memcpy(&counter, &got[N - 1], 4);
        CHECK_INT(counter, 0); /* an even number of barriers */
    }
    /* Six multiprocessors hold 512 threads each by registers, and 228 KB of shared memory. */
    CHECK_CUDA(cudasim_fault_kernel("blocks_in_turns", memory, NULL, 48, N, 0, stream));
    CHECK(cudasim_fault_kernel("blocks_in_turns", memory, NULL, 49, N, 0, stream) ==
          cudaErrorCooperativeLaunchTooLarge);
    CHECK_CUDA(cudasim_fault_kernel("blocks_in_turns", memory, NULL, 24, N, 48 << 10, stream));
    CHECK(cudasim_fault_kernel("blocks_in_turns", memory, NULL, 25, N, 48 << 10, stream) ==
          cudaErrorCooperativeLaunchTooLarge);
    (void)cudaGetLastError();
    CHECK_CUDA(cudaStreamSynchronize(stream));
    free_all();
}

/* The bytes of bulk copies come in any order of theirs and are all there. */
static void test_bulk_copies(void)
{
    float numbers[N], *memory, *out = fresh(4), sum;

    for (int i = 0; i < N; i++)
        numbers[i] = (float)(i + 1);
    memory = given_floats(numbers, N);
    for (int i = 0; i < 20; i++) {
        CHECK_CUDA(cudasim_fault_kernel("bulk<NOTHING>", memory, out, 1, N, 0, stream));
        CHECK_CUDA(fetch(&sum, out, 4));
        CHECK(sum == N * (N + 1) / 2);
    }
    free_all();
}

/* Blocks of two clusters exchange what they store, each with its own; clusters are whole. */
static void test_clusters(void)
{
    float *memory = zeros(N * 4), *out = zeros(4), sum;

    CHECK_CUDA(cudasim_fault_kernel("exchange<NOTHING>", memory, out, 8, N, 0, stream));
    CHECK_CUDA(fetch(&sum, out, 4));
    CHECK(sum == 8 * (N / 8) * (7 * 8 / 2));
    CHECK(cudasim_fault_kernel("exchange<NOTHING>", memory, out, 7, N, 0, stream) ==
          cudaErrorInvalidConfiguration);
    (void)cudaGetLastError();
    free_all();
}

/* A kernel that may begin before the one before it has ended touches what that one uses only after
 * it has waited, and some thread waits in any case. */
static void test_dependent_launches(void)
{
    static const struct {
        const char *before, *kernel, *text;
    } cases[] = {
        {"barriers_together", "waits_in_time", ""},
        {"barriers_together", "waits_for_others", ""},
        {"barriers_together", "reads_too_early", "written by a kernel that may still run"},
        {"waits_in_time", "reads_too_early", "kernel that may still run"},
        {"waits_then_lets_go", "reads_too_early", ""},
        {"barriers_together", "waits_for_itself_alone", "kernel that may still run"},
        {"waits_then_lets_go", "stores_too_early", "read by a kernel that may still run"},
        {"barriers_together", "never_waits", "no thread waits for the kernel before it"},
    };

    for (int i = 0; i < COUNT(cases); i++) {
        float *memory = given_floats((const float[N]){0.0f}, N), *out = fresh(4);
        const char *wanted = cases[i].text, *got;
        CHECK_CUDA(cudasim_fault_kernel("barriers_together", memory, NULL, 1, N, 0, stream));
        CHECK_CUDA(cudasim_fault_kernel(cases[i].before, memory, out, 1, N, 0, stream));
        CHECK_CUDA(cudasim_fault_kernel(cases[i].kernel, memory, out, 1, N, 0, stream));
        got = cudaStreamSynchronize(stream) == cudaSuccess ? "" : cudasim_fault();
        if (wanted[0] ? !strstr(got, wanted) : got[0] != '\0')
            FAIL("%s: \"%s\", expected \"%s\"", cases[i].kernel, got, wanted);
        cudasim_recover();
        free_all();
    }
}

/* Where something else lies between the kernels, or the device is older, a dependent launch begins
 * after everything before it. */
static void test_dependent_launches_after_a_copy(void)
{
    const struct cudasim_machine a100 = {1, 13000, 8, 0, 108, (size_t)1 << 30, 163 << 10};
    float *memory = given_floats((const float[N]){0.0f}, N), *out = fresh(4);

    CHECK_CUDA(cudasim_fault_kernel("barriers_together", memory, NULL, 1, N, 0, stream));
    CHECK_CUDA(cudaMemsetAsync(out, 0, 4, stream));
    CHECK_CUDA(cudasim_fault_kernel("reads_too_early", memory, out, 1, N, 0, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    cudasim_configure(&a100);
    CHECK_CUDA(cudasim_fault_kernel("barriers_together", memory, NULL, 1, N, 0, stream));
    CHECK_CUDA(cudasim_fault_kernel("never_waits", memory, out, 1, N, 0, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    cudasim_configure(NULL);
    free_all();
}

/* Reads of memory that is fresh, freed, or the host's. */
static void test_foreign_memory(void)
{
    float host[N] = {0.0f}, *freed;

    CHECK(strstr(fault_of("device_read", fresh(sizeof host), 1, 0), "that nothing has written"));
    cudasim_recover();
    CHECK(strstr(fault_of("device_read", host, 1, 0), "not device memory"));
    cudasim_recover();
    CHECK_CUDA(cudaMalloc((void **)&freed, sizeof host));
    CHECK_CUDA(cudaMemset(freed, 0, sizeof host));
    CHECK(strcmp(fault_of("device_read", freed, 1, 0), "") == 0);
    CHECK_CUDA(cudaFree(freed));
    CHECK(strstr(fault_of("device_read", freed, 1, 0), "outside every device allocation"));
    cudasim_recover();
    CHECK_CUDA(cudaHostAlloc((void **)&freed, sizeof host, 0));
    CHECK(strstr(fault_of("device_read", freed, 1, 0), "not device memory"));
    cudasim_recover();
    CHECK_CUDA(cudaFreeHost(freed));
    free_all();
}

static void test_launch_shapes(void)
{
    float *memory = given_floats((const float[N]){0.0f}, N);

    CHECK(cudasim_fault_kernel("device_read", memory, memory, 0, N, 0, stream) ==
          cudaErrorInvalidConfiguration);
    CHECK(cudasim_fault_kernel("device_read", memory, memory, 1, 1025, 0, stream) ==
          cudaErrorInvalidConfiguration);
    CHECK(cudasim_fault_kernel("device_read", memory, memory, 1, N, 49 << 10, stream) ==
          cudaErrorInvalidValue);
    /* not sticky */
    CHECK(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
    free_all();
}

/* ------------------------------------------------------------------ streams and graphs */

/* Work happens when the host waits and not before, in order, and with what memory holds then. */
static void test_streams_are_late(void)
{
    float *host, *dev = fresh(4 * N), *copy = fresh(4);

    CHECK_CUDA(cudaHostAlloc((void **)&host, 8, 0));
    host[0] = 1.0f;
    host[1] = -1.0f;
    CHECK_CUDA(cudaMemsetAsync(dev, 0, 4 * N, stream));
    CHECK_CUDA(cudaMemcpyAsync(dev + 3, &host[0], 4, cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudasim_fault_kernel("device_read", dev, copy, 1, N, 0, stream));
    CHECK_CUDA(cudaMemcpyAsync(&host[1], copy, 4, cudaMemcpyDeviceToHost, stream));
    CHECK(host[1] == -1.0f);
    host[0] = 2.0f; /* the host changes its buffer too early */
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(host[1] == 2.0f);
    CHECK_CUDA(cudaFreeHost(host));
    free_all();
}

/* CUDA accepts pageable memory: it copies some of it at once and waits for the rest. A caller that
 * does not want to wait does not mean that, and a graph would read the memory at every replay. So
 * the simulator refuses it. */
static void test_copies_that_do_not_wait_are_of_pinned_memory(void)
{
    float host = 1.0f, *pinned, *dev = fresh(8);
    cudaGraph_t graph;

    CHECK_CUDA(cudaHostAlloc((void **)&pinned, 4, 0));
    CHECK(cudaMemcpyAsync(dev, &host, 4, cudaMemcpyHostToDevice, stream) == cudaErrorInvalidValue);
    CHECK(strstr(cudasim_fault(), "not pinned"));
    CHECK(cudaMemcpyAsync(&host, dev, 4, cudaMemcpyDeviceToHost, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(dev, pinned, 8, cudaMemcpyHostToDevice, stream) == cudaErrorInvalidValue);
    CHECK_CUDA(cudaMemcpyAsync(dev, pinned, 4, cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaMemcpyAsync(dev + 1, dev, 4, cudaMemcpyDeviceToDevice, stream));
    CHECK_CUDA(cudaMemcpy(dev, &host, 4, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemcpyAsync(dev, &host, 4, cudaMemcpyHostToDevice, stream) == cudaErrorInvalidValue);
    CHECK_CUDA(cudaMemcpyAsync(pinned, dev, 4, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaFreeHost(pinned));
    (void)cudaGetLastError();
    free_all();
}

static void test_copies_have_bounds(void)
{
    float host[N], *dev = fresh(sizeof host);

    CHECK(cudaMemcpy(dev, host, sizeof host + 1, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(host, dev + 1, sizeof host, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(host, dev, sizeof host, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemset(dev + N / 2, 0, sizeof host) == cudaErrorInvalidValue);
    CHECK(cudaMemset(host, 0, sizeof host) == cudaErrorInvalidValue);
    CHECK(cudaFree(dev + 1) == cudaErrorInvalidValue);
    (void)cudaGetLastError();
    free_all();
}

/* Captured work does not run. A launch of the graph runs it, with what memory holds then. To wait
 * ends a capture. */
static void test_graphs(void)
{
    float *in, *out, *dev = fresh(4 * N), *copy = fresh(4);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    const int64_t before = cudasim_launches(), objects = cudasim_objects();

    CHECK_CUDA(cudaHostAlloc((void **)&in, 8, 0));
    out = in + 1;
    *in = 5.0f;
    *out = 0.0f;
    CHECK_CUDA(cudaMemset(dev, 0, 4 * N));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaMemcpyAsync(dev + 3, in, 4, cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudasim_fault_kernel("device_read", dev, copy, 1, N, 0, stream));
    CHECK_CUDA(cudaMemcpyAsync(out, copy, 4, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(*out == 0.0f && cudasim_launches() == before);
    for (*in = 7.0f; *in < 10.0f; *in += 1.0f) {
        CHECK_CUDA(cudaGraphLaunch(exec, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK(*out == *in);
    }
    CHECK(cudasim_launches() == before + 3);
    CHECK_CUDA(cudaFreeHost(in));
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    (void)cudaGetLastError();
    CHECK_INT(cudasim_objects(), objects);
    free_all();
}

static void test_events(void)
{
    float *host, *dev = fresh(4), ms;
    cudaEvent_t first, last;
    cudaStream_t other;

    CHECK_CUDA(cudaHostAlloc((void **)&host, 8, 0));
    host[0] = 1.0f;
    CHECK_CUDA(cudaEventCreate(&first));
    CHECK_CUDA(cudaEventCreate(&last));
    CHECK_CUDA(cudaStreamCreate(&other));
    CHECK_CUDA(cudaEventRecord(first, stream));
    CHECK_CUDA(cudaMemcpyAsync(dev, &host[0], 4, cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaEventRecord(last, stream));
    CHECK_CUDA(cudaStreamWaitEvent(other, last, 0));
    CHECK_CUDA(cudaMemcpyAsync(&host[1], dev, 4, cudaMemcpyDeviceToHost, other));
    CHECK(cudaEventElapsedTime(&ms, first, last) == cudaErrorNotReady);
    CHECK_CUDA(cudaStreamSynchronize(other)); /* makes the first stream run */
    CHECK(host[1] == 1.0f);
    CHECK_CUDA(cudaEventElapsedTime(&ms, first, last));
    CHECK(ms > 0.0f);
    CHECK_CUDA(cudaFreeHost(host));
    CHECK_CUDA(cudaStreamDestroy(other));
    CHECK_CUDA(cudaEventDestroy(first));
    CHECK_CUDA(cudaEventDestroy(last));
    (void)cudaGetLastError();
    free_all();
}

/* ------------------------------------------------------------------ the machine */

static void test_machine(void)
{
    struct cudasim_machine machine = {1, 13000, 9, 0, 132, 1 << 20, 0};
    struct cudaDeviceProp properties;
    size_t available, all;
    void *dev;
    int n;

    cudasim_configure(&machine);
    CHECK(cudaMalloc(&dev, (1 << 20) + 1) == cudaErrorMemoryAllocation);
    CHECK_CUDA(cudaMalloc(&dev, 1 << 19));
    CHECK_CUDA(cudaMemGetInfo(&available, &all));
    CHECK(available == 1 << 19 && all == 1 << 20 && cudasim_device_bytes() == 1 << 19);
    CHECK_CUDA(cudaFree(dev));
    cudasim_fail_alloc(2);
    CHECK_CUDA(cudaMalloc(&dev, 4));
    CHECK_CUDA(cudaFree(dev));
    CHECK(cudaMalloc(&dev, 4) == cudaErrorMemoryAllocation);
    machine.major = 7;
    cudasim_configure(&machine);
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    CHECK_INT(properties.major, 7);
    CHECK(cudasim_fault_kernel("nothing_wrong", NULL, NULL, 1, N, 0, stream) ==
          cudaErrorNoKernelImageForDevice);
    machine.devices = 0;
    cudasim_configure(&machine);
    CHECK(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0);
    machine.driver = 0;
    cudasim_configure(&machine);
    CHECK(cudaMalloc(&dev, 4) == cudaErrorInsufficientDriver);
    CHECK_CUDA(cudaDriverGetVersion(&n));
    CHECK_INT(n, 0);
    cudasim_configure(NULL);
    CHECK_CUDA(cudaGetDeviceCount(&n));
    CHECK_INT(n, 2);
}

/* Streams, memory, what kernels may have, and errors are each device's own. */
static void test_two_devices(void)
{
    const struct cudasim_machine two = {2, 13000, 9, 0, 6, 1 << 20, 0};
    struct cudaPointerAttributes attributes;
    cudaStream_t streams[2];
    float *memory[2], *out[2], host[N] = {0.0f};
    int device;

    cudasim_configure(&two);
    for (int d = 0; d < 2; d++) {
        CHECK_CUDA(cudaSetDevice(d));
        CHECK_CUDA(cudaStreamCreate(&streams[d]));
        CHECK_CUDA(cudaMalloc((void **)&memory[d], sizeof host));
        CHECK_CUDA(cudaMalloc((void **)&out[d], (1 << 20) - sizeof host)); /* each has its own */
        CHECK_CUDA(cudaMemcpy(memory[d], host, sizeof host, cudaMemcpyHostToDevice));
        CHECK_CUDA(cudaPointerGetAttributes(&attributes, memory[d]));
        CHECK_INT(attributes.device, d);
    }
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_INT(device, 1);
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
    /* device 1 is current */
    CHECK(cudasim_fault_kernel("device_read", memory[0], out[0], 1, N, 0, streams[0]) ==
          cudaErrorInvalidResourceHandle);
    CHECK(cudaMemcpy(memory[0], host, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(strstr(cudasim_fault(), "on a stream of another device"));
    (void)cudaGetLastError();
    CHECK_CUDA(cudasim_fault_kernel("device_read", memory[1], out[1], 1, N, 0, streams[1]));
    CHECK_CUDA(cudaStreamSynchronize(streams[1]));
    CHECK_CUDA(cudasim_fault_kernel("device_read", memory[0], out[1], 1, N, 0, streams[1]));
    CHECK(cudaStreamSynchronize(streams[1]) == cudaErrorIllegalAddress);
    CHECK(strstr(cudasim_fault(), "memory of device 0, and runs on device 1"));
    CHECK(cudaStreamQuery(streams[1]) == cudaErrorIllegalAddress); /* it is lost ... */
    CHECK_CUDA(cudaSetDevice(0));                                  /* ... and 0 is not */
    CHECK_CUDA(cudasim_fault_kernel("device_read", memory[0], out[0], 1, N, 0, streams[0]));
    CHECK_CUDA(cudaStreamSynchronize(streams[0]));
    CHECK_CUDA(cudaMemcpy(memory[0], &memory[1], sizeof memory[1], cudaMemcpyHostToDevice));
    CHECK_CUDA(cudasim_fault_kernel("device_read_through", memory[0], out[0], 1, N, 0, streams[0]));
    CHECK(cudaStreamSynchronize(streams[0]) == cudaErrorIllegalAddress);
    CHECK(strstr(cudasim_fault(), "memory of device 1, and runs on device 0"));
    cudasim_recover();
    for (int d = 0; d < 2; d++) {
        CHECK_CUDA(cudaStreamDestroy(streams[d]));
        CHECK_CUDA(cudaFree(out[d]));
    }
    CHECK_CUDA(cudaFree(memory[0]));
    CHECK_CUDA(cudaFree(memory[1]));
    cudasim_configure(NULL);
}

static void test_failing_launch(void)
{
    float *memory = given_floats((const float[N]){0.0f}, N);

    cudasim_fail_launch(2);
    CHECK_CUDA(cudasim_fault_kernel("nothing_wrong", memory, NULL, 1, N, 0, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    /* The work is only queued, so its fault is not known yet. */
    CHECK_CUDA(cudasim_fault_kernel("nothing_wrong", memory, NULL, 1, N, 0, stream));
    CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    cudasim_recover();
    CHECK_CUDA(cudaStreamSynchronize(stream));
    free_all();
}

/* A refused launch is reported once, by the call itself, and the next launch works. But a capture
 * that the launch was for becomes invalid. */
static void test_refused_launch(void)
{
    float *memory = given_floats((const float[N]){0.0f}, N);
    cudaGraph_t graph;

    cudasim_refuse_launches(2, 1);
    CHECK_CUDA(cudasim_fault_kernel("nothing_wrong", memory, NULL, 1, N, 0, stream));
    CHECK(cudasim_fault_kernel("nothing_wrong", memory, NULL, 1, N, 0, stream) ==
          cudaErrorLaunchOutOfResources);
    CHECK_CUDA(cudasim_fault_kernel("nothing_wrong", memory, NULL, 1, N, 0, stream));
    CHECK(cudaGetLastError() == cudaErrorLaunchOutOfResources && cudaGetLastError() == cudaSuccess);
    CHECK_CUDA(cudaStreamSynchronize(stream));

    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudasim_refuse_launches(1, 1);
    CHECK(cudasim_fault_kernel("nothing_wrong", memory, NULL, 1, N, 0, stream) ==
          cudaErrorLaunchOutOfResources);
    CHECK(cudasim_fault_kernel("nothing_wrong", memory, NULL, 1, N, 0, stream) ==
          cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    (void)cudaGetLastError();
    CHECK_CUDA(cudasim_fault_kernel("nothing_wrong", memory, NULL, 1, N, 0, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    free_all();
}

/* A kernel that is not loaded yet cannot be captured; to ask for its attributes loads it. */
static void test_first_launch_in_a_capture(void)
{
    float *memory = given_floats((const float[N]){0.0f}, N);
    struct cudasim_machine machine = {1, 13000, 9, 0, 132, (size_t)1 << 30, 0};
    cudaGraph_t graph;

    cudasim_configure(&machine); /* unloads all kernels, as in a new process */
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudasim_fault_kernel("nothing_wrong", memory, NULL, 1, N, 0, stream) ==
          cudaErrorStreamCaptureUnsupported);
    CHECK(strstr(cudasim_fault(), "nothing_wrong: its first launch is in a capture"));
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    /* its launcher asks for its attributes */
    CHECK(cudasim_fault_kernel("never_waits", memory, NULL, 1, N, 0, stream) ==
          cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK_CUDA(cudasim_fault_kernel("nothing_wrong", memory, NULL, 1, N, 0, stream));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudasim_fault_kernel("nothing_wrong", memory, NULL, 1, N, 0, stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphDestroy(graph));
    cudasim_configure(NULL);
    CHECK_CUDA(sb_cuda_load_kernels(SB_F32));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(sb_cuda_add_bias(memory, memory, 1, N, stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
    free_all();
}

/* To read a column of a tile of 32 columns costs each warp 31 turns more. With padding, with
 * vectors, or with one word for all threads it costs none. */
static void test_bank_conflicts(void)
{
    float *memory = given_floats((const float[N]){0.0f}, N);

    cudasim_count_bank_conflicts(1);
    CHECK(strcmp(fault_of("one_bank", memory, 1, 0), "") == 0);
    CHECK_INT(cudasim_bank_conflicts(), 2 * 31);
    cudasim_count_bank_conflicts(1);
    CHECK(strcmp(fault_of("all_banks", memory, 1, 0), "") == 0);
    CHECK_INT(cudasim_bank_conflicts(), 0);
    cudasim_count_bank_conflicts(0);
    free_all();
}

/* The kernels of products, whose tiles are swizzled to have no conflicts. */
static void test_products_have_no_bank_conflicts(void)
{
    enum { M = 64, OUT = 96, IN = 192 };
    static const int rows[] = {1, 8, 15, 24, 64};
    void *x = fresh(M * IN * 2), *w = fresh(OUT * IN * 2);
    float *y = fresh(M * OUT * 4);

    CHECK_CUDA(cudaMemset(x, 0, M * IN * 2));
    CHECK_CUDA(cudaMemset(w, 0, OUT * IN * 2));
    for (int i = 0; i < COUNT(rows); i++) {
        cudasim_count_bank_conflicts(1);
        CHECK_CUDA(sb_cuda_gemm_mma(y, x, w, SB_BF16, NULL, rows[i], OUT, IN, 0,
                                    product_limits(SB_BF16), stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK_INT(cudasim_bank_conflicts(), 0);
    }
    for (int32_t shape = 0; shape < SB_GEMM_SHAPES; shape++) {
        cudasim_count_bank_conflicts(1);
        CHECK_CUDA(sb_cuda_gemm_mma_in(shape, y, x, w, SB_BF16, NULL, M, OUT, IN, 0, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK_INT(cudasim_bank_conflicts(), 0);
    }
    cudasim_count_bank_conflicts(0);
    free_all();
}

/* ------------------------------------------------------------------ products */

/* One step of 16: c plus n products given by their factors; the other products are zeros. */
static float step(float c, int n, const float (*factors)[2], const int *at)
{
    float a[16] = {0.0f}, b[16] = {0.0f};

    for (int i = 0; i < n; i++) {
        a[at[i]] = factors[i][0];
        b[at[i]] = factors[i][1];
    }
    return cudasim_tensor_sum(c, a, b);
}

/* The tensor core cuts each product off below 25 fraction bits of the largest (24 on sm_80), and
 * adds 16 of them at once (8 on sm_80). The expected results were worked out by hand. */
static void test_tensor_core(void)
{
    static const float small[4][2] = {
        {0x1p-12f, 0x1p-13f}, {0x1p-12f, 0x1p-13f}, {0x1p-12f, 0x1p-13f}, {0x1p-12f, 0x1p-13f}};
    static const float tiny[4][2] = {
        {0x1p-13f, 0x1p-13f}, {0x1p-13f, 0x1p-13f}, {0x1p-13f, 0x1p-13f}, {0x1p-13f, 0x1p-13f}};
    static const float half[1][2] = {{0x1.8p-12f, 0x1p-12f}}; /* three quarters of the last place of
                                                                 1 */
    static const float apart[3][2] = {{0x1p12f, 0x1p12f}, {1.0f, 1.0f}, {-0x1p12f, 0x1p12f}};
    static const float infinite[2][2] = {{INFINITY, 1.0f}, {1.0f, -INFINITY}};
    static const int at[4] = {0, 5, 10, 15}, halves[3] = {0, 1, 8};
    const struct cudasim_machine a100 = {1, 13000, 8, 0, 108, (size_t)1 << 30, 163 << 10};

    CHECK(step(0.0f, 1, apart + 1, at) == 1.0f && step(-3.5f, 0, NULL, at) == -3.5f);
    /* four steps of 2^-25: a chain of fmaf gives 1 */
    CHECK(step(1.0f, 4, small, at) == 1.0f + 0x1p-23f);
    CHECK(step(1.0f, 3, small, at) == 1.0f);             /* cut off, not rounded up */
    CHECK(step(1.0f, 4, tiny, at) == 1.0f);              /* each cut off before it is added */
    CHECK(step(-1.0f, 1, half, at) == -1.0f + 0x1p-23f); /* towards zero */
    CHECK(step(1.0f, 1, half, at) == 1.0f);
    CHECK(step(0.0f, 3, apart, halves) == 1.0f);
    CHECK(isinf(step(1.0f, 1, infinite, at)) && isnan(step(1.0f, 2, infinite, at)));
    cudasim_configure(&a100);
    CHECK(step(1.0f, 4, small, at) == 1.0f);
    CHECK(step(0.0f, 3, apart, halves) == 0.0f); /* 1 is lost before the second half */
    cudasim_configure(NULL);
}

/* Computes y [m, n] = x [m, k] w [n, k]^T by number `pick` of what the heuristic offers. */
static int multiply(float *y, const float *x, const float *w, uint64_t m, uint64_t n, uint64_t k,
                    int pick)
{
    const float one = 1.0f, zero = 0.0f;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const uint64_t plenty = 1 << 20;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulHeuristicResult_t found[8];
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulDesc_t desc;
    cublasLtHandle_t lt;
    int n_found, ok;

    ok = !cublasLtCreate(&lt) && !cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
         !cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                         sizeof transposed) &&
         !cublasLtMatmulPreferenceCreate(&preference) &&
         !cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &plenty, 8) &&
         !cublasLtMatrixLayoutInit(&a, CUDA_R_32F, k, n, (int64_t)k) &&
         !cublasLtMatrixLayoutInit(&b, CUDA_R_32F, k, m, (int64_t)k) &&
         !cublasLtMatrixLayoutInit(&d, CUDA_R_32F, n, m, (int64_t)n) &&
         !cublasLtMatmulAlgoGetHeuristic(lt, desc, &a, &b, &d, &d, preference, 8, found,
                                         &n_found) &&
         pick < n_found;
    ok = ok && !cublasLtMatmul(lt, desc, &one, w, &a, x, &b, &zero, y, &d, y, &d, &found[pick].algo,
                               fresh(plenty), plenty, stream);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    (void)cublasLtMatmulDescDestroy(desc);
    (void)cublasLtDestroy(lt);
    return ok;
}

/* The un-split algorithms have the bits of the steps; the split one, which is offered first, has
 * not. A library with CUDASIM_BLAS_ROWS is wrong for many rows only. */
static void test_products(void)
{
    enum { M = 9, OUT = 17, K = 200 };
    float *x = cpu_floats(M * K), *w = cpu_floats(OUT * K), expected[M * OUT], got[M * OUT];
    float *dev_x = given_floats(x, M * K), *dev_w = given_floats(w, OUT * K),
          *y = fresh(sizeof got);

    for (int i = 0; i < M * OUT; i++) {
        expected[i] = 0.0f;
        for (int k = 0; k < K; k++)
            expected[i] = fmaf(x[i / OUT * K + k], w[i % OUT * K + k], expected[i]);
    }
    for (int pick = 0; pick < 3; pick++) {
        CHECK(multiply(y, dev_x, dev_w, M, OUT, K, pick));
        CHECK_CUDA(fetch(got, y, sizeof got));
        CHECK((memcmp(got, expected, sizeof got) == 0) == (pick > 0));
    }
    cudasim_break_blas(CUDASIM_BLAS_ROWS, M - 1);
    for (uint64_t m = M - 1; m <= M; m++) {
        CHECK(multiply(y, dev_x, dev_w, m, OUT, K, 1));
        CHECK_CUDA(fetch(got, y, sizeof got));
        CHECK((memcmp(got, expected, sizeof got - OUT * 4) == 0) == (m < M));
    }
    cudasim_break_blas(CUDASIM_BLAS_SOUND, 0);
    free(x);
    free(w);
    free_all();
}

TEST_BEGIN
cudasim_print_faults(0);
if (!device_begin())
    return 2;
RUN(test_cooperative_launches);
RUN(test_bulk_copies);
RUN(test_clusters);
RUN(test_dependent_launches);
RUN(test_foreign_memory);
RUN(test_launch_shapes);
RUN(test_streams_are_late);
RUN(test_copies_have_bounds);
RUN(test_copies_that_do_not_wait_are_of_pinned_memory);
RUN(test_graphs);
RUN(test_events);
RUN(test_failing_launch);
RUN(test_refused_launch);
RUN(test_bank_conflicts);
RUN(test_products_have_no_bank_conflicts);
RUN(test_tensor_core);
RUN(test_products);
RUN(test_dependent_launches_after_a_copy);
RUN(test_first_launch_in_a_capture);
device_end();
RUN(test_machine);
RUN(test_two_devices);
TEST_END
