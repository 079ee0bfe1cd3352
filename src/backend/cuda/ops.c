/*
 * A CUDA device as a backend: the table of operations (ops.h has the map of what stands behind it).
 * An operation makes the device current, calls one launcher of kernels/cuda and remembers the first
 * error. Nothing here waits but exec_sync.
 *
 * Errors. An operation returns nothing, so its error stays in the stream, with its name, until
 * exec_sync, a copy or record_end reports it: E_DEVICE, from then on always. The pool above is dead
 * then. The process and its other pools are not, unless the device itself is lost, which CUDA then
 * reports to each of them.
 */
#include "backend/cuda/ops.h"

#include "../kernels/cuda/launch.h"
#include "backend/cuda/device.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/draft_work.h"
#include "backend/cuda/graph.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/mix_run.h"
#include "backend/cuda/quant_run.h"
#include "status.h"

struct sb_exec {
    struct sb_mem mem;
    struct sb_device *device;
    struct sb_cuda_stream own, *queue;    /* queue: own, or the sibling's */
    struct sb_graphs own_graphs, *graphs; /* likewise */
    void *scratch;                        /* scratch_bytes says of what */
    void *counters;                       /* of attention; zeros between its launches */
    void *pairs;                          /* of mixtures; NULL: the model has none */
    struct sb_draft_work draft;           /* of a draft, else empty */
};

/* ---------------------------------------------------------------- memory */

static int32_t host_alloc(void **out, struct sb_device *device, const struct sb_mem *mem,
                          size_t bytes)
{
    (void)mem;
    return sb_cuda_host_alloc(out, &device->gpu, bytes);
}

static void host_free(struct sb_device *device, const struct sb_mem *mem, void *host)
{
    (void)mem;
    sb_cuda_host_free(&device->gpu, host);
}

static int32_t dev_alloc(void **out, struct sb_device *device, const struct sb_mem *mem,
                         size_t bytes)
{
    (void)mem;
    return sb_cuda_alloc(out, &device->gpu, bytes);
}

static void dev_free(struct sb_device *device, const struct sb_mem *mem, void *dev)
{
    (void)mem;
    sb_cuda_free(&device->gpu, dev);
}

static int32_t upload(struct sb_exec *exec, void *dev, const void *host, size_t bytes)
{
    return sb_cuda_upload(exec ? exec->queue : NULL, dev, host, bytes);
}

static int32_t download(struct sb_exec *exec, void *host, const void *dev, size_t bytes)
{
    return sb_cuda_download(exec ? exec->queue : NULL, host, dev, bytes);
}

/* ------------------------------------------------------------------ exec */

static size_t input_bytes(const struct sb_device *device, int32_t n)
{
    return (size_t)sb_cuda_ld(device->type, n) * sb_dtype_size(device->type);
}

static size_t cache_bytes(const struct sb_device *device)
{
    return sb_dtype_size(device->type);
}

/* Scratch of attention, by the own kernel and by cuDNN, of products by cuBLASLt, and of selection,
 * which take turns in it. */
static size_t scratch_bytes(const struct sb_device *device, const struct sb_exec_limits *limits)
{
    const size_t own = sb_cuda_attend_scratch(device->type, limits);
    const size_t spans = limits->span_cap > 0 && device->prefill
                             ? sb_prefill_scratch(device->prefill)
                             : 0;
    const size_t products = device->gemm ? sb_gemm_scratch(device->gemm, limits->max_tokens) : 0;
    const size_t needs[] = {own, spans, products, sb_cuda_select_scratch()};
    size_t most = 0;

    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        most = needs[i] > most ? needs[i] : most;
    return most;
}

static size_t exec_bytes(const struct sb_device *device, int32_t n_threads,
                         const struct sb_exec_limits *limits)
{
    (void)n_threads;
    return sizeof(struct sb_exec) + 4 * SB_MEM_ALIGN + scratch_bytes(device, limits) +
           sb_cuda_attend_counters(device->type, limits) + sb_cuda_pairs_bytes(limits) +
           sb_draft_work_bytes(device->type, limits);
}

static void exec_free(struct sb_exec *exec)
{
    const struct sb_gpu *gpu;
    struct sb_mem mem;
    int was;

    if (!exec)
        return;
    mem = exec->mem;
    gpu = &exec->device->gpu;
    was = sb_cuda_enter(gpu);
    sb_graphs_abandon(&exec->own_graphs, &exec->own); /* a stream that captures cannot be closed */
    sb_cuda_stream_close(&exec->own);
    sb_graphs_free(&exec->own_graphs);
    if (exec->scratch)
        sb_cuda_ignore(cudaFree(exec->scratch));
    if (exec->counters)
        sb_cuda_ignore(cudaFree(exec->counters));
    if (exec->pairs)
        sb_cuda_ignore(cudaFree(exec->pairs));
    sb_draft_work_free(&exec->draft);
    sb_cuda_leave(gpu, was);
    sb_free(&mem, exec);
}

/* The first pool ends the loading of the model. Any pool may need more products planned than the
 * pools before it, and plans for slots of its own lengths. */
static int32_t prepare_device(struct sb_device *device, const struct sb_exec_limits *limits)
{
    int32_t rc = sb_staging_finish(&device->staging, &device->gpu);

    if (rc == SPECBATCH_OK && device->gemm)
        rc = sb_gemm_prepare(device->gemm, &device->gpu, limits->max_tokens);
    for (int32_t i = 0; rc == SPECBATCH_OK && device->prefill && i <= limits->span_halvings; i++)
        rc = sb_prefill_prepare(device->prefill, &device->gpu, limits->span_cap >> i);
    return rc;
}

/* Whether the device can run the 16-bit class's attention over heads of this size. */
static int32_t check_attention(const struct sb_device *device, int32_t head_dim)
{
    const int needed = sb_cuda_attend_shared(head_dim);
    cudaError_t error;
    int available = 0;

    if (device->type == SB_F32)
        return SPECBATCH_OK;
    error = cudaDeviceGetAttribute(&available, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                   device->gpu.index);
    if (needed == 0)
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "CUDA: heads of %d columns, 256 is the most",
                       (int)head_dim);
    if (error == cudaSuccess && available < needed)
        return sb_fail(SPECBATCH_E_UNSUPPORTED,
                       "CUDA: attention over heads of %d columns takes %d bytes of shared memory a "
                       "block, this device has %d",
                       (int)head_dim, needed, available);
    return sb_cuda_status(&device->gpu, error, "shared memory of the device", 0);
}

static int32_t exec_create(struct sb_exec **out, struct sb_device *device, const struct sb_mem *mem,
                           int32_t n_threads, const struct sb_exec_limits *limits,
                           struct sb_exec *sibling)
{
    const size_t scratch = scratch_bytes(device, limits),
                 counters = sb_cuda_attend_counters(device->type, limits),
                 pairs = sb_cuda_pairs_bytes(limits);
    const int was = sb_cuda_enter(&device->gpu);
    struct sb_exec *exec = NULL;
    int32_t rc = SPECBATCH_OK;

    (void)n_threads;
    SB_NEW(exec, sb_alloc(mem, 1, sizeof *exec), "an execution context");
    exec->mem = *mem;
    exec->device = device;
    exec->queue = sibling ? sibling->queue : &exec->own;
    exec->graphs = sibling ? sibling->graphs : &exec->own_graphs;
    SB_TRY(check_attention(device, limits->max_head_dim));
    SB_TRY(prepare_device(device, limits));
    if (!sibling)
        SB_TRY(sb_cuda_stream_open(&exec->own, &device->gpu));
    if (scratch > 0)
        SB_TRY(sb_cuda_alloc(&exec->scratch, &device->gpu, scratch));
    if (counters > 0)
        SB_TRY(sb_cuda_alloc(&exec->counters, &device->gpu, counters));
    if (pairs > 0)
        SB_TRY(sb_cuda_alloc(&exec->pairs, &device->gpu, pairs));
    SB_TRY(sb_draft_work_create(&exec->draft, &device->gpu, device->type, limits));
    *out = exec;
    exec = NULL;
done:
    sb_cuda_leave(&device->gpu, was);
    exec_free(exec);
    return rc;
}

static int32_t exec_sync(struct sb_exec *exec)
{
    sb_graphs_abandon(exec->graphs, exec->queue);
    return sb_cuda_stream_sync(exec->queue);
}

static int32_t record_begin(struct sb_exec *exec, uint64_t key, int32_t *repeats)
{
    return sb_graphs_begin(exec->graphs, exec->queue, key, repeats);
}

static int32_t record_end(struct sb_exec *exec)
{
    return sb_graphs_end(exec->graphs, exec->queue);
}

/* ------------------------------------------------------------ operations */

/* Before a launch: makes the device current, and says whether the stream is sound. */
static int begin(const struct sb_exec *exec, int *was)
{
    sb_cuda_note(exec->queue, sb_cuda_try_enter(&exec->device->gpu, was),
                 "making the device current");
    return sb_cuda_is_sound(exec->queue);
}

/* After a launch: remembers its error under the operation's name. */
static void end(const struct sb_exec *exec, int was, cudaError_t error, const char *name)
{
    sb_cuda_note(exec->queue, error, name);
    sb_cuda_leave(&exec->device->gpu, was);
}

/* An operation's body: `launch`, which is a cudaError_t, between begin and end. It is evaluated
 * only where the stream is sound. */
#define ISSUE(exec, name, launch)         \
    do {                                  \
        cudaError_t error_ = cudaSuccess; \
        int was_;                         \
        if (begin(exec, &was_))           \
            error_ = (launch);            \
        end(exec, was_, error_, name);    \
    } while (0)

static void embed(struct sb_exec *exec, float *x, const struct sb_weight *table, float scale,
                  const struct sb_pass *pass)
{
    ISSUE(exec, "embed",
          sb_dtype_is_quantised(table->dtype)
              ? sb_cuda_embed_quant(x, table->data, table->dtype, table->n_out, table->n_in, scale,
                                    pass, exec->queue->stream)
              : sb_cuda_embed(x, table->data, table->dtype, table->n_out, table->n_in, scale, pass,
                              exec->queue->stream));
}

static void norm(struct sb_exec *exec, const struct sb_norm *args)
{
    ISSUE(exec, "norm", sb_cuda_norm(args, exec->device->type, exec->queue->stream));
}

static int is_quantised(const struct sb_weight *weight)
{
    return sb_dtype_is_quantised(weight->dtype) || weight->next;
}

/* Whether products by this weight gate, too: by silu, as the tiles have gate beside up. */
static int product_gates(const struct sb_exec *exec, const struct sb_weight *weight)
{
    return exec->device->gemm && weight->gated > 0 && !is_quantised(weight);
}

/* act: NULL, but where the product gates */
static cudaError_t launch_product(const struct sb_exec *exec, const struct sb_product *p)
{
    const struct sb_weight *weight = p->weight;
    const cudaStream_t stream = exec->queue->stream;

    if (is_quantised(weight))
        return sb_quant_run(exec->device, p->y, p->x, weight, p->bias, p->m, stream);
    if (exec->draft.products && weight->gated == 0 && sb_cuda_draft_gemm_suits(p->m, weight->n_out))
        return sb_cuda_draft_gemm(p->y, p->x, weight->data, weight->dtype, p->bias, p->m,
                                  weight->n_out, weight->n_in, exec->draft.products, stream);
    if (exec->device->gemm)
        return sb_gemm_run(exec->device->gemm, p, stream);
    return sb_cuda_gemm_reference(p->y, p->x, weight->data, p->bias, p->m, weight->n_out,
                                  weight->n_in, stream);
}

static void gemm(struct sb_exec *exec, float *y, const void *x, const struct sb_weight *weight,
                 const float *bias, int32_t m)
{
    const struct sb_product product = {y, NULL, x, weight, bias, m, exec->scratch};

    ISSUE(exec, "gemm", launch_product(exec, &product));
}

/* act [m, n] is gated. */
static cudaError_t launch_gated(const struct sb_exec *exec, const struct sb_product *p,
                                enum sb_gate gate, int32_t n)
{
    struct sb_product product = *p;
    cudaError_t error;

    if (product_gates(exec, p->weight))
        return launch_product(exec, p);
    product.act = NULL;
    error = launch_product(exec, &product);
    return error == cudaSuccess
               ? sb_cuda_gate(p->act, exec->device->type, p->y, gate, p->m, n, exec->queue->stream)
               : error;
}

static void gated(struct sb_exec *exec, void *y, float *gate_up, const void *x,
                  const struct sb_weight *weight, const float *bias, enum sb_gate gate, int32_t m,
                  int32_t n)
{
    const struct sb_product product = {gate_up, y, x, weight, bias, m, exec->scratch};

    ISSUE(exec, "gated", launch_gated(exec, &product, gate, n));
}

/* Whether attend does what rope_kv is for, too: one kernel less to wait for. */
static int attend_ropes(const struct sb_exec *exec, const struct sb_attention *attention,
                        const struct sb_pass *pass)
{
    return exec->device->type != SB_F32 && pass->n_spans == 0 &&
           sb_cuda_rope_attend_fits(attention, pass);
}

static void rope_kv(struct sb_exec *exec, float *qkv, const struct sb_attention *attention,
                    const struct sb_pass *pass)
{
    if (!attend_ropes(exec, attention, pass))
        ISSUE(exec, "rope_kv",
              sb_cuda_rope_kv(qkv, attention, pass, exec->device->type, exec->queue->stream));
}

static cudaError_t launch_attend(const struct sb_exec *exec, void *y, const float *qkv,
                                 const struct sb_attention *attention, const struct sb_pass *pass)
{
    const struct sb_device *device = exec->device;
    const cudaStream_t stream = exec->queue->stream;
    unsigned *counters = exec->counters;

    if (device->type == SB_F32)
        return sb_cuda_attend_reference(y, qkv, attention, pass, exec->scratch, stream);
    if (pass->n_spans > 0 && device->prefill)
        return sb_prefill_attend(device->prefill, y, qkv, attention, pass, exec->scratch, counters,
                                 stream);
    if (attend_ropes(exec, attention, pass))
        return sb_cuda_rope_attend_mma(y, device->type, qkv, attention, pass, exec->scratch,
                                       counters, &device->gpu.limits, stream);
    return sb_cuda_attend_mma(y, device->type, qkv, attention, pass, exec->scratch, counters,
                              stream);
}

static void attend(struct sb_exec *exec, void *y, const float *qkv,
                   const struct sb_attention *attention, const struct sb_pass *pass)
{
    ISSUE(exec, "attend", launch_attend(exec, y, qkv, attention, pass));
}

static void mix(struct sb_exec *exec, const struct sb_mixture *mixture)
{
    ISSUE(exec, "mix", sb_mix_run(exec->device->type, mixture, exec->pairs, exec->queue->stream));
}

static void soft_cap(struct sb_exec *exec, float *x, float cap, int64_t n)
{
    ISSUE(exec, "soft_cap", sb_cuda_soft_cap(x, cap, n, exec->queue->stream));
}

static void select_token(struct sb_exec *exec, const struct sb_select *args)
{
    ISSUE(exec, "select", sb_cuda_select(args, exec->scratch, exec->queue->stream));
}

static void accept(struct sb_exec *exec, const int32_t *tokens, const int32_t *picks,
                   const int32_t *n_draft, int32_t n_rows, int32_t stride, int32_t *n_accept)
{
    ISSUE(exec, "accept",
          sb_cuda_accept(tokens, picks, n_draft, n_rows, stride, n_accept, exec->queue->stream));
}

static void move(struct sb_exec *exec, void *planes, const struct sb_move *args)
{
    ISSUE(exec, "move", sb_cuda_move(planes, exec->device->type, args, exec->queue->stream));
}

static int32_t step_prepare(struct sb_exec *exec, const struct sb_step_model *model,
                            const struct sb_step_layer *layers)
{
    const int was = sb_cuda_enter(&exec->device->gpu);
    const int32_t rc = sb_draft_work_prepare(&exec->draft, &exec->device->gpu, exec->device->type,
                                             model, layers);

    sb_cuda_leave(&exec->device->gpu, was);
    return rc;
}

static int32_t steps(struct sb_exec *exec, const struct sb_draft_step *given, int32_t n,
                     int32_t limit, int32_t *ids, float *logits)
{
    const int was = sb_cuda_enter(&exec->device->gpu);
    const int suits = sb_cuda_step_suits(&exec->draft.steps, given, n);

    sb_cuda_leave(&exec->device->gpu, was);
    if (suits)
        ISSUE(exec, "steps",
              sb_cuda_steps(&exec->draft.steps, given, n, limit, ids, logits, exec->scratch,
                            exec->queue->stream));
    return suits;
}

const struct sb_backend *sb_backend_cuda(void)
{
    static const struct sb_backend backend = {
        .name = "cuda",
        .records = 1,
        .mix_gathers = 1,
        .device_open = sb_cuda_device_open,
        .device_close = sb_cuda_device_close,
        .calibrate = sb_cuda_calibrate,
        .device_class = sb_cuda_device_class,
        .input_bytes = input_bytes,
        .cache_bytes = cache_bytes,
        .exec_bytes = exec_bytes,
        .exec_create = exec_create,
        .exec_free = exec_free,
        .exec_sync = exec_sync,
        .record_begin = record_begin,
        .record_end = record_end,
        .host_alloc = host_alloc,
        .host_free = host_free,
        .alloc = dev_alloc,
        .free = dev_free,
        .upload = upload,
        .download = download,
        .weight_create = sb_cuda_weight_create,
        .weight_fill = sb_cuda_weight_fill,
        .weight_free = sb_cuda_weight_free,
        .embed = embed,
        .norm = norm,
        .gemm = gemm,
        .rope_kv = rope_kv,
        .attend = attend,
        .gated = gated,
        .mix = mix,
        .soft_cap = soft_cap,
        .select = select_token,
        .accept = accept,
        .step_prepare = step_prepare,
        .steps = steps,
        .move = move,
    };
    return &backend;
}
