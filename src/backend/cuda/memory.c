/*
 * Device memory, pinned memory and copies. Zeroing runs on the device's own non-blocking stream,
 * because the null stream would wait for the streams of every other pool in the process.
 */
#include "backend/cuda/memory.h"

#include <string.h>

#include "status.h"

int32_t sb_cuda_host_alloc(void **out, const struct sb_gpu *gpu, size_t bytes)
{
    const int was = sb_cuda_enter(gpu);
    void *host = NULL;
    const cudaError_t error = cudaHostAlloc(&host, bytes > 0 ? bytes : 1, cudaHostAllocDefault);
    const int32_t rc = sb_cuda_status(gpu, error, "pinned host memory", bytes);

    sb_cuda_leave(gpu, was);
    if (rc != SPECBATCH_OK)
        return rc;
    memset(host, 0, bytes);
    *out = host;
    return SPECBATCH_OK;
}

void sb_cuda_host_free(const struct sb_gpu *gpu, void *host)
{
    const int was = sb_cuda_enter(gpu);

    sb_cuda_ignore(cudaFreeHost(host));
    sb_cuda_leave(gpu, was);
}

int32_t sb_cuda_alloc(void **out, const struct sb_gpu *gpu, size_t bytes)
{
    int was;
    const cudaError_t error = sb_cuda_try_enter(gpu, &was);
    void *dev = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_cuda_status(gpu, error, "making the device current", 0));
    SB_TRY(sb_cuda_status(gpu, cudaMalloc(&dev, bytes > 0 ? bytes : 1), "a buffer", bytes));
    SB_TRY(sb_cuda_status(gpu, cudaMemsetAsync(dev, 0, bytes, gpu->load), "zeroing", 0));
    SB_TRY(sb_cuda_status(gpu, cudaStreamSynchronize(gpu->load), "zeroing", 0));
    *out = dev;
    dev = NULL;
done:
    if (dev)
        sb_cuda_ignore(cudaFree(dev));
    sb_cuda_leave(gpu, was);
    return rc;
}

void sb_cuda_free(const struct sb_gpu *gpu, void *dev)
{
    const int was = sb_cuda_enter(gpu);

    sb_cuda_ignore(cudaFree(dev));
    sb_cuda_leave(gpu, was);
}

static int32_t copy(struct sb_cuda_stream *stream, void *to, const void *from, size_t bytes,
                    enum cudaMemcpyKind kind, const char *what)
{
    int was;

    sb_cuda_note(stream, sb_cuda_try_enter(stream->gpu, &was), "making the device current");
    if (sb_cuda_is_sound(stream) && bytes > 0)
        sb_cuda_note(stream, cudaMemcpyAsync(to, from, bytes, kind, stream->stream), what);
    sb_cuda_leave(stream->gpu, was);
    return sb_cuda_stream_status(stream);
}

/* cudaMemcpy takes the memory of any device, but copies on the null stream of the current one. So
 * the device whose memory this is becomes current, else the wait would be for another device.
 * cudaMemcpy may return while the copy is still on its way, and the pools' streams do not wait for
 * the null stream. So this waits. */
static int32_t copy_now(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    struct cudaPointerAttributes memory = {0};
    struct sb_gpu gpu = {0};
    cudaError_t error;
    int was;

    if (bytes == 0)
        return SPECBATCH_OK;
    error = cudaPointerGetAttributes(&memory, kind == cudaMemcpyHostToDevice ? to : from);
    gpu.index = error == cudaSuccess ? memory.device : 0;
    was = sb_cuda_enter(&gpu);
    if (error == cudaSuccess)
        error = cudaMemcpy(to, from, bytes, kind);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(NULL);
    sb_cuda_ignore(error);
    sb_cuda_leave(&gpu, was);
    if (error != cudaSuccess)
        return sb_fail(SPECBATCH_E_DEVICE, "CUDA: a copy of %zu bytes: %s", bytes,
                       cudaGetErrorString(error));
    return SPECBATCH_OK;
}

int32_t sb_cuda_upload(struct sb_cuda_stream *stream, void *dev, const void *host, size_t bytes)
{
    return stream ? copy(stream, dev, host, bytes, cudaMemcpyHostToDevice, "an upload")
                  : copy_now(dev, host, bytes, cudaMemcpyHostToDevice);
}

int32_t sb_cuda_download(struct sb_cuda_stream *stream, void *host, const void *dev, size_t bytes)
{
    return stream ? copy(stream, host, dev, bytes, cudaMemcpyDeviceToHost, "a download")
                  : copy_now(host, dev, bytes, cudaMemcpyDeviceToHost);
}
