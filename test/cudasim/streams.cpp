/*
 * Streams, events and graphs. While a stream captures, its closures go to a graph, and to launch
 * the graph is to queue them again. So addresses and parameters are those of the capture, and
 * contents are those of the time when the graph runs. An event is reached when its closure runs; to
 * wait for an event makes its stream run.
 */
#include "runtime.h"

using namespace cudasim;

static int refuse_captures;

extern "C" {

/* ------------------------------------------------------------------ streams and events */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    CUDASIM_LOCK;
    (void)flags;
    READY;
    *stream = new CUstream_st;
    (*stream)->device = current_device;
    streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    CUDASIM_LOCK;
    REFUSE_IF(!streams.count(stream), cudaErrorInvalidResourceHandle);
    drain(stream);
    for (CUevent_st *e : events)
        if (e->stream == stream)
            e->stream = NULL;
    const int device = stream->device;
    streams.erase(stream);
    delete stream;
    return report(sticky[device]);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    CUDASIM_LOCK;
    READY;
    if (!stream)
        return cudaDeviceSynchronize();
    REFUSE_IF(!streams.count(stream), cudaErrorInvalidResourceHandle);
    if (stream->capturing) {
        stream->invalidated = true;
        return report(cudaErrorStreamCaptureUnsupported);
    }
    drain(stream);
    return report(sticky[stream->device]);
}

static cudaError_t failed_or_not_ready(int device)
{
    return sticky[device] != cudaSuccess ? report(sticky[device]) : cudaErrorNotReady;
}

/* Nothing runs by itself here. To ask makes the stream run, and whoever asks again is told that it
 * is done. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(stream && !streams.count(stream), cudaErrorInvalidResourceHandle);
    if (!stream || stream->queue.empty())
        return cudaSuccess;
    drain(stream);
    return failed_or_not_ready(stream->device);
}

static void pass_event(CUevent_st *event, uint64_t record)
{
    if (!events.count(event) || event->passed >= record)
        return;
    event->passed = record;
    event->at = device_clock;
}

static void wait_event(CUevent_st *event)
{
    if (events.count(event) && event->stream && event->passed < event->recorded)
        drain(event->stream);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    CUDASIM_LOCK;
    (void)flags;
    READY;
    *event = new CUevent_st;
    (*event)->device = current_device;
    events.insert(*event);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    CUDASIM_LOCK;
    REFUSE_IF(!events.erase(event), cudaErrorInvalidResourceHandle);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(!events.count(event), cudaErrorInvalidResourceHandle);
    REFUSE_IF(event->device != (streams.count(stream) ? stream->device : current_device),
              cudaErrorInvalidResourceHandle);
    const uint64_t record = ++event->recorded;
    event->stream = stream;
    return enqueue(stream, [event, record] {
        pass_event(event, record);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    CUDASIM_LOCK;
    (void)flags;
    READY;
    REFUSE_IF(!events.count(event), cudaErrorInvalidResourceHandle);
    return enqueue(stream, [event] {
        wait_event(event);
        return cudaSuccess;
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(!events.count(event), cudaErrorInvalidResourceHandle);
    wait_event(event);
    return report(sticky[event->device]);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(!events.count(event), cudaErrorInvalidResourceHandle);
    if (event->passed >= event->recorded)
        return cudaSuccess;
    wait_event(event);
    return failed_or_not_ready(event->device);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(!events.count(start) || !events.count(end), cudaErrorInvalidResourceHandle);
    REFUSE_IF(start->recorded == 0 || end->recorded == 0, cudaErrorInvalidResourceHandle);
    if (start->passed < start->recorded || end->passed < end->recorded)
        return report(cudaErrorNotReady);
    *milliseconds = (float)(end->at - start->at) * 1e-6f;
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user)
{
    CUDASIM_LOCK;
    READY;
    return enqueue(stream, [fn, user] {
        fn(user);
        return cudaSuccess;
    });
}

/* ------------------------------------------------------------------ graphs */

void cudasim_refuse_captures(int refuse)
{
    CUDASIM_LOCK;
    refuse_captures = refuse;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    CUDASIM_LOCK;
    READY;
    /* the NULL stream does not capture either */
    REFUSE_IF(!streams.count(stream), cudaErrorStreamCaptureUnsupported);
    REFUSE_IF(stream->capturing, cudaErrorInvalidValue);
    REFUSE_IF(refuse_captures, cudaErrorStreamCaptureUnsupported);
    stream->capturing = new CUgraph_st;
    stream->captured_by = std::this_thread::get_id();
    stream->mode = mode;
    stream->invalidated = false;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    CUDASIM_LOCK;
    REFUSE_IF(!streams.count(stream) || !stream->capturing, cudaErrorInvalidValue);
    CUgraph_st *captured = stream->capturing;
    const bool broken = stream->invalidated;
    stream->capturing = NULL;
    stream->invalidated = false;
    *graph = NULL;
    if (broken || sticky[stream->device] != cudaSuccess) {
        delete captured;
        return report(sticky[stream->device] != cudaSuccess ? sticky[stream->device]
                                                            : cudaErrorStreamCaptureInvalidated);
    }
    graphs.insert(captured);
    *graph = captured;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(stream && !streams.count(stream), cudaErrorInvalidResourceHandle);
    *status = !stream || !stream->capturing ? cudaStreamCaptureStatusNone
              : stream->invalidated         ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* Only the number of nodes is given, since no caller needs the nodes. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    CUDASIM_LOCK;
    REFUSE_IF(!graphs.count(graph) || nodes, cudaErrorInvalidValue);
    *count = graph->operations.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    CUDASIM_LOCK;
    (void)flags;
    READY;
    REFUSE_IF(!graphs.count(graph), cudaErrorInvalidValue);
    REFUSE_IF(alloc_fails(), cudaErrorMemoryAllocation);
    *exec = new CUgraphExec_st;
    (*exec)->operations = std::make_shared<std::vector<operation>>(graph->operations);
    graph_execs.insert(*exec);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(!graph_execs.count(exec) || (stream && !streams.count(stream)),
              cudaErrorInvalidResourceHandle);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    CUDASIM_LOCK;
    READY;
    REFUSE_IF(!graph_execs.count(exec), cudaErrorInvalidResourceHandle);
    auto operations = exec->operations;
    return enqueue(stream, [operations] {
        for (const operation &op : *operations)
            if (run_now(running_device, op) != cudaSuccess)
                break;
        return sticky[running_device];
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    CUDASIM_LOCK;
    REFUSE_IF(!graph_execs.erase(exec), cudaErrorInvalidResourceHandle);
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    CUDASIM_LOCK;
    REFUSE_IF(!graphs.erase(graph), cudaErrorInvalidResourceHandle);
    delete graph;
    return cudaSuccess;
}
}
