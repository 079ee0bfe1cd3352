/*
 * Rounds as CUDA graphs.
 *
 *   first time under a key    run as issued: kernels get loaded, and a shape that comes once is not recorded
 *   second time               captured, instantiated, launched
 *   from then on              launched
 *
 * Copies of the round are part of the graph, so they must be from and to pinned memory that stays where it
 * is; that is the contract of record_begin (engine/backend.h). A queue keeps SB_GRAPHS graphs; the one unused
 * for longest makes room. Capture is local to the thread: other pools may take memory meanwhile.
 */
#include "cuda/cuda.h"
#include "status.h"

static void drop(struct sb_graph *graph)
{
    if (graph->exec)
        (void)cudaGraphExecDestroy(graph->exec);
    *graph = (struct sb_graph){.exec = NULL};
}

/* The key's entry, or one that is free or unused for longest. */
static struct sb_graph *look_up(struct sb_queue *queue, uint64_t key)
{
    struct sb_graph *oldest = &queue->graphs[0];

    for (int i = 0; i < SB_GRAPHS; i++) {
        struct sb_graph *graph = &queue->graphs[i];
        if (graph->last_use > 0 && graph->key == key)
            return graph;
        if (graph->last_use < oldest->last_use)
            oldest = graph;
    }
    return oldest;
}

int32_t sb_cuda_record_begin(struct sb_exec *exec, uint64_t key)
{
    struct sb_queue *queue = exec->queue;
    struct sb_graph *graph = look_up(queue, key);
    const int is_known = graph->last_use > 0 && graph->key == key;
    int was;

    queue->now = NULL;
    if (!is_known) {
        drop(graph);
        graph->key = key;
    }
    graph->last_use = ++queue->clock;
    if (!is_known || queue->error != cudaSuccess)
        return 0;
    queue->now = graph;
    if (graph->exec)
        return 1;
    was = sb_cuda_enter(exec->device);
    sb_cuda_note(queue, cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeThreadLocal),
                 "beginning a capture");
    sb_cuda_leave(exec->device, was);
    queue->capturing = queue->error == cudaSuccess;
    return 0;
}

static void end_capture(struct sb_queue *queue, struct sb_graph *into)
{
    cudaGraph_t graph = NULL;

    queue->capturing = 0;
    sb_cuda_note(queue, cudaStreamEndCapture(queue->stream, &graph), "ending a capture");
    if (into && queue->error == cudaSuccess)
        sb_cuda_note(queue, cudaGraphInstantiate(&into->exec, graph, 0), "instantiating a graph");
    if (graph)
        (void)cudaGraphDestroy(graph);
}

int32_t sb_cuda_record_end(struct sb_exec *exec)
{
    struct sb_queue *queue = exec->queue;
    struct sb_graph *graph = queue->now;
    const int was = sb_cuda_enter(exec->device);

    queue->now = NULL;
    if (queue->capturing)
        end_capture(queue, graph);
    if (graph && queue->error == cudaSuccess)
        sb_cuda_note(queue, cudaGraphLaunch(graph->exec, queue->stream), "launching a graph");
    sb_cuda_leave(exec->device, was);
    if (queue->error != cudaSuccess)
        return sb_fail(SPECBATCH_E_DEVICE, "CUDA: %s: %s", queue->where, cudaGetErrorString(queue->error));
    return SPECBATCH_OK;
}

void sb_cuda_graphs_free(struct sb_queue *queue)
{
    if (queue->capturing) /* a round failed between begin and end */
        end_capture(queue, NULL);
    for (int i = 0; i < SB_GRAPHS; i++)
        drop(&queue->graphs[i]);
}
