/* Streams and errors; cuda_stream.h explains both. */
#include "backend/cuda/cuda_stream.h"

#include "status.h"

/* To ask for the current device is free. To set it is not, even where it is current already. */
cudaError_t sb_cuda_try_enter(const struct sb_gpu *gpu, int *was)
{
    cudaError_t error;

    *was = gpu->index;
    error = cudaGetDevice(was);
    if (error == cudaSuccess && *was != gpu->index)
        error = cudaSetDevice(gpu->index);
    sb_cuda_ignore(error);
    return error;
}

int sb_cuda_enter(const struct sb_gpu *gpu)
{
    int was;

    (void)sb_cuda_try_enter(gpu, &was);
    return was;
}

void sb_cuda_leave(const struct sb_gpu *gpu, int was)
{
    if (was != gpu->index)
        sb_cuda_ignore(cudaSetDevice(was));
}

int32_t sb_cuda_status(const struct sb_gpu *gpu, cudaError_t error, const char *what, size_t bytes)
{
    size_t available = 0, total = 0;

    if (error == cudaSuccess)
        return SPECBATCH_OK;
    (void)cudaGetLastError(); /* it is reported here, and once */
    if (error != cudaErrorMemoryAllocation)
        return sb_fail(SPECBATCH_E_DEVICE, "CUDA: %s: %s", what, cudaGetErrorString(error));
    sb_cuda_ignore(cudaMemGetInfo(&available, &total));
    return sb_fail(SPECBATCH_E_NOMEM,
                   "CUDA: no memory for %s: %zu bytes needed, %zu of %zu free; the model's weights "
                   "hold %zu",
                   what, bytes, available, total, gpu->held);
}

int32_t sb_cuda_stream_open(struct sb_cuda_stream *stream, const struct sb_gpu *gpu)
{
    *stream = (struct sb_cuda_stream){.gpu = gpu};
    return sb_cuda_status(gpu, cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking),
                          "a stream", 0);
}

void sb_cuda_stream_close(struct sb_cuda_stream *stream)
{
    if (!stream->stream)
        return;
    sb_cuda_ignore(cudaStreamSynchronize(stream->stream));
    sb_cuda_ignore(cudaStreamDestroy(stream->stream));
    stream->stream = NULL;
}

void sb_cuda_note(struct sb_cuda_stream *stream, cudaError_t error, const char *where)
{
    if (error == cudaSuccess)
        return;
    (void)cudaGetLastError(); /* the error is this stream's now, and no later call's */
    if (stream->capturing && stream->capture_error == cudaSuccess)
        stream->capture_error = error;
    if (stream->capturing || stream->error != cudaSuccess)
        return;
    stream->error = error;
    stream->where = where;
}

int32_t sb_cuda_stream_status(const struct sb_cuda_stream *stream)
{
    if (stream->error == cudaSuccess)
        return SPECBATCH_OK;
    return sb_fail(SPECBATCH_E_DEVICE, "CUDA: %s: %s", stream->where,
                   cudaGetErrorString(stream->error));
}

int32_t sb_cuda_stream_sync(struct sb_cuda_stream *stream)
{
    const int was = sb_cuda_enter(stream->gpu);

    sb_cuda_note(stream, cudaStreamSynchronize(stream->stream), "running a round");
    sb_cuda_leave(stream->gpu, was);
    return sb_cuda_stream_status(stream);
}
