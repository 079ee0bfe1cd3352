/*
 * The CPU as a backend: its device, its memory, its weights, and the table of what it can do. The
 * operations of that table are in cpu_ops.c.
 *
 * Device memory is ordinary memory, so uploads and downloads are copies. An operation has run when
 * its call returns, so exec_sync has nothing to wait for and rounds are not recorded.
 *
 * The SIMD level and the compute class are fixed at device_open, because the packing of weights
 * depends on them (kernels/cpu/panel.h), and so is the type of caches. The numerics class names the
 * latter two but not the level: the levels agree bit for bit.
 */
#include <stdio.h>
#include <string.h>

#include "../kernels/cpu/panel_quant.h"
#include "backend/cpu_gemm.h"
#include "backend/cpu_mix.h"
#include "backend/cpu_ops.h"
#include "backend/threads.h"
#include "port.h"
#include "status.h"

/* ------------------------------------------------------------------ device and exec */

int sb_cpu_has_matrix_unit(int32_t simd)
{
    const struct sb_cpu_kernels *kernels = sb_cpu_kernels_for(simd);

    return (simd == SPECBATCH_SIMD_AUTO || simd == SPECBATCH_SIMD_AMX) && kernels &&
           kernels->tiles_are_blocks();
}

/* By what products with bf16 weights are formed at a level. A level that is forced does what it
 * would do on a processor that has no more than that. */
static enum sb_products best_blocks(int32_t simd, const struct sb_cpu_kernels *kernels)
{
    if (sb_cpu_has_matrix_unit(simd))
        return SB_BLOCKS_TILES;
    return sb_port_is_avx512_bf16_fast() && kernels->dot_is_chain() ? SB_BLOCKS_DOT : SB_BLOCKS_FMA;
}

/* The same for products of integers, where they are more than a few rows. */
static enum sb_products best_integers(int32_t simd, const struct sb_cpu_kernels *kernels)
{
    if (kernels != sb_cpu_kernels_for(SPECBATCH_SIMD_AVX512) || !sb_port_has_avx512_vnni())
        return SB_INTEGERS;
    return sb_port_has_amx_int8() && sb_cpu_has_matrix_unit(simd) ? SB_INTEGERS_TILES
                                                                  : SB_INTEGERS_DOT;
}

/* Names the numerics class, as far as the weights are known. */
static void name_class(struct sb_device *device)
{
    static const char *const arithmetic[] = {
        [SPECBATCH_COMPUTE_BF16] =
            "cpu-bf16: bf16 weights and gemm inputs, blocks of 32 k, attention tile 64",
        [SPECBATCH_COMPUTE_F32] = "cpu-f32: ascending-k fmaf, attention tile 64",
        [SPECBATCH_COMPUTE_SPLIT] =
            "cpu-split: with bf16 weights gemm inputs in 3 bf16 parts, blocks of 32 k, else "
            "ascending-k fmaf; attention tile 64",
        [SPECBATCH_COMPUTE_INT8] =
            "cpu-int8: with quantised weights gemm inputs of 8 bits, a scale for 32 k, else bf16 "
            "weights and gemm inputs, blocks of 32 k; attention tile 64"};
    const char *blocks = sb_cpu_attends_in_blocks(device) ? " in blocks" : "";
    const char *quantised = !device->is_quantised ? ""
                            : device->compute == SPECBATCH_COMPUTE_INT8
                                ? "; quantised weights by scaled sums of integers"
                                : "; quantised weights by scaled blocks of 32 k";

    snprintf(device->class_text, sizeof device->class_text, "%s%s%s; kv %s",
             arithmetic[device->compute], blocks, quantised, sb_dtype_name(device->kv));
}

static int32_t device_open(struct sb_device **out, const struct sb_mem *mem,
                           const struct sb_device_options *options)
{
    static const char *const levels[] = {"automatic", "scalar", "AVX2", "AVX-512", "AMX"};
    int32_t rc = SPECBATCH_OK;
    struct sb_device *device = NULL;
    const struct sb_cpu_kernels *kernels = sb_cpu_kernels_for(options->simd);
    int is_amx = options->simd == SPECBATCH_SIMD_AMX;

    if (!kernels || (is_amx && !sb_port_has_amx()))
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "SIMD level %s: this processor or this build does not have it",
                options->simd >= 0 && options->simd <= SPECBATCH_SIMD_AMX ? levels[options->simd]
                                                                          : "unknown");
    SB_NEW(device, sb_alloc(mem, 1, sizeof *device), "the CPU device");
    device->mem = *mem;
    device->kernels = kernels;
    device->compute = options->compute;
    device->kv = sb_kv_dtype(options->kv, sb_cpu_rounds_weights(device) ? SB_BF16 : SB_F32);
    name_class(device);
    device->blocks = options->compute == SPECBATCH_COMPUTE_F32
                         ? SB_CHAIN
                         : best_blocks(options->simd, kernels);
    if (options->compute == SPECBATCH_COMPUTE_INT8)
        device->integers = best_integers(options->simd, kernels);
    if (is_amx && device->blocks != SB_CHAIN && device->blocks != SB_BLOCKS_TILES)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "SIMD level AMX: the operating system does not let this process use the matrix "
                "unit, or the unit does not compute as it should");
    *out = device;
    device = NULL;
done:
    if (device)
        sb_free(mem, device);
    return rc;
}

static void device_close(struct sb_device *device)
{
    if (device) {
        struct sb_mem mem = device->mem;
        sb_free(&mem, device);
    }
}

static const char *device_class(const struct sb_device *device)
{
    return device->class_text;
}

/* Words of one thread's memory for attention in the order of blocks. */
static int64_t attend_words(const struct sb_device *device, const struct sb_exec_limits *limits)
{
    struct sb_cpu_attend_work size;

    if (!sb_cpu_attends_in_blocks(device))
        return 0;
    size = sb_cpu_attend_work(device->blocks, sb_form_parts(sb_cpu_form(device)),
                              limits->max_head_dim);
    return size.rows + size.weights + size.q + size.w + size.panels;
}

static size_t exec_bytes(const struct sb_device *device, int32_t n_threads,
                         const struct sb_exec_limits *limits)
{
    const size_t overhead = 9 * (2 * SB_MEM_ALIGN); /* of nine blocks: prefix and rounding up */

    return sizeof(struct sb_exec) + sb_threads_bytes(n_threads) +
           sb_cpu_products_bytes(device, limits) + sb_cpu_mix_bytes(limits) +
           (size_t)limits->max_tokens * sizeof(struct sb_cpu_block) +
           (size_t)n_threads *
               ((size_t)attend_words(device, limits) * sizeof(uint32_t) + sizeof(atomic_flag)) +
           overhead;
}

static void exec_free(struct sb_exec *exec)
{
    if (!exec)
        return;
    struct sb_mem mem = exec->mem;
    sb_threads_free(exec->own_threads);
    sb_cpu_products_free(exec);
    sb_cpu_mix_free(exec);
    sb_free(&mem, exec->blocks);
    sb_free(&mem, exec->attend_work);
    sb_free(&mem, exec->attend_in_use);
    sb_free(&mem, exec);
}

/* The memory of threads that attend in the order of blocks. */
static int32_t attend_create(struct sb_exec *exec, const struct sb_exec_limits *limits)
{
    int32_t rc = SPECBATCH_OK;

    exec->attend_words = attend_words(exec->device, limits);
    if (exec->attend_words == 0)
        return SPECBATCH_OK;
    SB_NEW(exec->attend_work,
           sb_alloc(&exec->mem, (size_t)exec->n_threads,
                    (size_t)exec->attend_words * sizeof(uint32_t)),
           "the tiles of attention");
    SB_NEW(exec->attend_in_use,
           sb_alloc(&exec->mem, (size_t)exec->n_threads, sizeof *exec->attend_in_use),
           "the tiles of attention");
    for (int32_t i = 0; i < exec->n_threads; i++)
        atomic_flag_clear(&exec->attend_in_use[i]);
done:
    return rc;
}

static int32_t exec_create(struct sb_exec **out, struct sb_device *device, const struct sb_mem *mem,
                           int32_t n_threads, const struct sb_exec_limits *limits,
                           struct sb_exec *sibling)
{
    int32_t rc = SPECBATCH_OK;
    struct sb_exec *exec;

    SB_NEW(exec, sb_alloc(mem, 1, sizeof *exec), "an execution context");
    exec->mem = *mem;
    exec->device = device;
    exec->n_threads = n_threads;
    SB_TRY(sb_cpu_products_create(exec, limits));
    SB_TRY(sb_cpu_mix_create(exec, limits));
    SB_NEW(exec->blocks, sb_alloc(mem, (size_t)limits->max_tokens, sizeof *exec->blocks),
           "attention blocks");
    SB_TRY(attend_create(exec, limits));
    if (!sibling)
        SB_TRY(sb_threads_create(&exec->own_threads, mem, n_threads));
    exec->threads = sibling ? sibling->threads : exec->own_threads;
    *out = exec;
done:
    if (rc != SPECBATCH_OK)
        exec_free(exec);
    return rc;
}

static int32_t exec_sync(struct sb_exec *exec)
{
    (void)exec;
    return SPECBATCH_OK;
}

/* Work runs as it is issued, so there is never a record to replay. */
static int32_t record_begin(struct sb_exec *exec, uint64_t key, int32_t *repeats)
{
    (void)exec;
    (void)key;
    *repeats = 1;
    return 0;
}

/* ------------------------------------------------------------------ memory */

static int32_t dev_alloc(void **out, struct sb_device *device, const struct sb_mem *mem,
                         size_t bytes)
{
    void *block = sb_alloc(mem, bytes, 1);

    (void)device;
    if (!block)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for %zu bytes", bytes);
    *out = block;
    return SPECBATCH_OK;
}

static void dev_free(struct sb_device *device, const struct sb_mem *mem, void *dev)
{
    (void)device;
    sb_free(mem, dev);
}

static size_t input_bytes(const struct sb_device *device, int32_t n)
{
    (void)device;
    return (size_t)n * sizeof(float);
}

static size_t cache_bytes(const struct sb_device *device)
{
    return sb_dtype_size(device->kv);
}

static int32_t upload(struct sb_exec *exec, void *dev, const void *host, size_t bytes)
{
    (void)exec;
    if (bytes > 0)
        memcpy(dev, host, bytes);
    return SPECBATCH_OK;
}

static int32_t download(struct sb_exec *exec, void *host, const void *dev, size_t bytes)
{
    (void)exec;
    if (bytes > 0)
        memcpy(host, dev, bytes);
    return SPECBATCH_OK;
}

/* ------------------------------------------------------------------ weights */

/* Of the memory only the columns that the last panel has too many are zeroed here. Filling writes
 * the others, and so it is the threads that fill that touch new pages. */
static int32_t weight_create(struct sb_weight *out, struct sb_device *device,
                             const struct sb_mem *mem, enum sb_dtype dtype)
{
    struct sb_weight weight = *out;
    size_t panel;

    weight.dtype = sb_cpu_rounds_weights(device) && !sb_dtype_is_quantised(dtype) ? SB_BF16 : dtype;
    panel = (size_t)sb_panel_bytes(sb_cpu_layout(device, &weight), weight.n_in);
    weight.bytes = (size_t)sb_panel_count(weight.n_out) * panel;
    weight.data = sb_alloc_raw(mem, weight.bytes, 1);
    if (!weight.data)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for a weight of %zu bytes", weight.bytes);
    if (weight.n_out % SB_PANEL != 0)
        memset((char *)weight.data + weight.bytes - panel, 0, panel);
    if (sb_dtype_is_quantised(dtype)) {
        device->is_quantised = 1;
        name_class(device);
        device->has_mins |= sb_quant_of(dtype)->has_mins;
        device->has_halves |= sb_cpu_has_halves(dtype);
    }
    *out = weight;
    return SPECBATCH_OK;
}

/* The rows have the weight's own type, or one that this holds without loss. In the classes BF16 and
 * INT8 they may have any that is not quantised: to round it is what the class does. */
static int32_t weight_fill(struct sb_weight *weight, struct sb_device *device, int32_t first,
                           int32_t n, const void *rows, enum sb_dtype dtype)
{
    const int may_round = sb_cpu_rounds_weights(device) && weight->dtype == SB_BF16;

    if (dtype != weight->dtype &&
        (sb_dtype_is_quantised(dtype) || (weight->dtype != SB_F32 && !may_round)))
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s rows in a weight held as %s",
                       sb_dtype_name(dtype), sb_dtype_name(weight->dtype));
    device->kernels->pack(weight->data, sb_cpu_layout(device, weight), weight->n_in, first, n, rows,
                          dtype);
    return SPECBATCH_OK;
}

static void weight_free(struct sb_weight *weight, struct sb_device *device,
                        const struct sb_mem *mem)
{
    (void)device;
    sb_free(mem, weight->data);
    weight->data = NULL;
}

const struct sb_backend *sb_backend_cpu(void)
{
    static const struct sb_backend backend = {
        .name = "cpu",
        .device_open = device_open,
        .device_close = device_close,
        .device_class = device_class,
        .input_bytes = input_bytes,
        .cache_bytes = cache_bytes,
        .exec_bytes = exec_bytes,
        .exec_create = exec_create,
        .exec_free = exec_free,
        .exec_sync = exec_sync,
        .record_begin = record_begin,
        .record_end = exec_sync,
        .host_alloc = dev_alloc,
        .host_free = dev_free,
        .alloc = dev_alloc,
        .free = dev_free,
        .upload = upload,
        .download = download,
        .weight_create = weight_create,
        .weight_fill = weight_fill,
        .weight_free = weight_free,
        .embed = sb_cpu_op_embed,
        .norm = sb_cpu_op_norm,
        .gemm = sb_cpu_op_gemm,
        .rope_kv = sb_cpu_op_rope_kv,
        .attend = sb_cpu_op_attend,
        .gated = sb_cpu_op_gated,
        .mix = sb_cpu_op_mix,
        .soft_cap = sb_cpu_op_soft_cap,
        .select = sb_cpu_op_select,
        .accept = sb_cpu_op_accept,
        .move = sb_cpu_op_move,
    };
    return &backend;
}
