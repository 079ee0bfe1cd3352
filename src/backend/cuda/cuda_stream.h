/*
 * The lowest floor of the CUDA backend: which device is meant, what an error means, and a stream
 * that remembers the first error of its work. (ops.h has the map of the floors.)
 *
 * The host program may have another device current in its threads. So everything that needs ours to
 * be current lies between sb_cuda_enter and sb_cuda_leave, which puts the host's back.
 *
 * An operation that is queued returns nothing, so its error stays in the stream, with its name, and
 * whoever waits for the stream or copies through it is told. An error while the stream captures is
 * kept apart: it spoils the recording and not yet the stream, as a recorded operation has not run.
 */
#ifndef SB_CUDA_STREAM_H
#define SB_CUDA_STREAM_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "../kernels/cuda/launch.h"
#include "alloc.h"
#include "log.h"

/* The device of one model, as the floors see it that do not own it (device.h). */
struct sb_gpu {
    struct sb_mem mem;
    struct sb_log log;
    int index;
    cudaStream_t load; /* for zeroing, loading and self-tests; pools have their own streams */
    size_t held;       /* bytes of weights on the device */
    struct sb_launch_limits limits; /* of the 16-bit class */
};

struct sb_cuda_stream {
    const struct sb_gpu *gpu;
    cudaStream_t stream;
    cudaError_t error; /* the first, for good */
    const char *where; /* the operation it came from */
    int capturing;
    cudaError_t capture_error; /* the first of this capture */
};

/* Makes the device current in this thread; returns the one that was, for sb_cuda_leave. */
int sb_cuda_enter(const struct sb_gpu *gpu);
/* The same into *was, with the error that keeps the device from becoming current: for what would
 * else be done on another device. */
cudaError_t sb_cuda_try_enter(const struct sb_gpu *gpu, int *was);
void sb_cuda_leave(const struct sb_gpu *gpu, int was);

/* The status of a call that takes memory or talks to the device: E_NOMEM where `bytes` could not be
 * had, else E_DEVICE. `what` completes "CUDA: ...". */
int32_t sb_cuda_status(const struct sb_gpu *gpu, cudaError_t error, const char *what, size_t bytes);
/* For an error that nobody is told of, such as one of giving something back. It must not stay in
 * the thread either: CUDA keeps a thread's last error, and the next to ask would take it for its
 * own. */
static inline void sb_cuda_ignore(cudaError_t error)
{
    if (error != cudaSuccess)
        (void)cudaGetLastError();
}

/* Opens a stream that does not wait for other streams. The device must be current. E_DEVICE,
 * E_NOMEM. */
int32_t sb_cuda_stream_open(struct sb_cuda_stream *stream, const struct sb_gpu *gpu);
/* Waits for the stream's work and closes it. A stream that was never opened is fine; one that
 * captures is not. The device must be current. */
void sb_cuda_stream_close(struct sb_cuda_stream *stream);

/* Whether the next operation is worth trying: nothing has failed so far. */
static inline int sb_cuda_is_sound(const struct sb_cuda_stream *stream)
{
    return stream->error == cudaSuccess && stream->capture_error == cudaSuccess;
}
/* Remembers the first error of the stream, or of its capture, and takes any out of the thread. */
void sb_cuda_note(struct sb_cuda_stream *stream, cudaError_t error, const char *where);
/* E_DEVICE with the operation that first failed, if any has. */
int32_t sb_cuda_stream_status(const struct sb_cuda_stream *stream);
/* Waits for the stream, which must not capture, and returns its status. */
int32_t sb_cuda_stream_sync(struct sb_cuda_stream *stream);

#endif
