/*
 * Opening, sharing and closing a checkpoint.
 *
 * The object exists, with its allocator in it, before any step that can fail. Every later step
 * leaves it in a state that free_model can handle. So there is one way to take a model apart,
 * however far the building of it got.
 */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda_loader.h"
#include "file.h"
#include "model/container.h"
#include "options.h"
#include "port.h"
#include "status.h"

int32_t sb_model_options_resolve(specbatch_model_options *full,
                                 const specbatch_model_options *given)
{
    static const char what[] = "model options";
    int32_t rc;

    SB_TRY(sb_options_copy(full, sizeof *full, given, what));
    SB_TRY(
        sb_check_range(what, "device", full->device, SPECBATCH_DEVICE_CPU, SPECBATCH_DEVICE_CUDA));
    SB_TRY(sb_check_range(what, "compute", full->compute, SPECBATCH_COMPUTE_AUTO,
                          SPECBATCH_COMPUTE_INT8));
    if (full->device == SPECBATCH_DEVICE_CUDA && full->compute > SPECBATCH_COMPUTE_F32)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: compute %s is for the CPU; CUDA has bf16 and f32",
                what, full->compute == SPECBATCH_COMPUTE_INT8 ? "int8" : "split");
    SB_TRY(sb_check_range(what, "simd", full->simd, SPECBATCH_SIMD_AUTO, SPECBATCH_SIMD_AMX));
    SB_TRY(sb_check_range(what, "device_index", full->device_index, 0,
                          full->device == SPECBATCH_DEVICE_CPU ? 0 : INT32_MAX));
    SB_TRY(sb_check_hooks(what, full->alloc, full->free));
    SB_TRY(sb_check_range(what, "kv", full->kv, SPECBATCH_KV_AUTO, SPECBATCH_KV_F16));
    SB_TRY(sb_check_range(what, "weights", full->weights, SPECBATCH_WEIGHTS_AUTO,
                          SPECBATCH_WEIGHTS_Q4));
    SB_TRY(sb_check_range(what, "prefill", full->prefill, SPECBATCH_PREFILL_OWN,
                          SPECBATCH_PREFILL_CUDNN));
    SB_TRY(sb_check_flags(SPECBATCH_E_OPTIONS, what, "reserved", (uint32_t)full->reserved, 0));
    if (full->plan_file && !full->plan_file[0])
        SB_FAIL(SPECBATCH_E_INVALID, "%s: the path of plan_file is empty", what);
    if (full->plan_file && strlen(full->plan_file) > SB_FILE_PATH)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: the path of plan_file is longer than %d bytes", what,
                SB_FILE_PATH);
done:
    return rc;
}

static void free_model(struct specbatch_model *model)
{
    const struct sb_mem mem = model->mem;

    sb_tokenizer_free(model->tokenizer);
    if (sb_model_is_usable(model)) {
        sb_model_weights_free(model);
        if (model->device)
            model->backend->device_close(model->device);
    } else {
        sb_free(&mem, model->layers);
    }
    sb_free(&mem, model);
}

int sb_model_is_usable(const struct specbatch_model *model)
{
    return model->process == 0 || model->process == sb_port_process();
}

int32_t sb_model_check_process(const struct specbatch_model *model)
{
    if (sb_model_is_usable(model))
        return SPECBATCH_OK;
    return sb_fail(SPECBATCH_E_INVALID,
                   "the model is on a device (%s), which a fork of the process that opened it "
                   "cannot use; fork first",
                   model->backend->name);
}

int sb_model_has_token(const struct specbatch_model *model, int32_t id)
{
    return !model->tokenizer || sb_tokenizer_piece(model->tokenizer, id, NULL) != NULL;
}

int32_t sb_model_take_memory(struct specbatch_model *model, const struct sb_mem *mem, size_t bytes,
                             char **dev, char **host)
{
    void *block;
    int32_t rc;

    SB_TRY(model->backend->host_alloc(&block, model->device, mem, bytes));
    *host = block;
    SB_TRY(model->backend->alloc(&block, model->device, mem, bytes));
    *dev = block;
done:
    return rc;
}

void sb_model_give_memory(struct specbatch_model *model, const struct sb_mem *mem, char **dev,
                          char **host)
{
    char *block = *dev;

    *dev = NULL;
    if (block)
        model->backend->free(model->device, mem, block);
    block = *host;
    *host = NULL;
    if (block)
        model->backend->host_free(model->device, mem, block);
}

static int32_t choose_backend(const struct sb_backend **backend, int32_t device, const char *module)
{
    if (device == SPECBATCH_DEVICE_CUDA)
        return sb_cuda_load(backend, module);
    *backend = sb_backend_cpu();
    return SPECBATCH_OK;
}

int32_t sb_model_device_exists(int32_t kind)
{
    const struct sb_mem mem = {NULL, NULL, NULL};
    const struct sb_log silence = {NULL, NULL};
    const struct sb_device_options options = {.compute = SPECBATCH_COMPUTE_F32, .log = &silence};
    const struct sb_backend *backend;
    struct sb_device *device;

    if (choose_backend(&backend, kind, NULL) != SPECBATCH_OK ||
        backend->device_open(&device, &mem, &options) != SPECBATCH_OK)
        return 0;
    backend->device_close(device);
    return 1;
}

/* Lets the backend choose what is left to choose, now that the weights are there (backend.h). */
static int32_t calibrate(struct specbatch_model *model)
{
    const struct sb_config *c = &model->config;
    const struct sb_geometry geometry = {.heads = c->heads,
                                         .kv_heads = c->kv_heads,
                                         .head_dim = c->head_dim,
                                         .context = c->context,
                                         .window = c->window,
                                         .has_sinks = c->arch->sinks != NULL,
                                         .caps_scores = c->score_cap > 0.0};

    return model->backend->calibrate
               ? model->backend->calibrate(&model->span, model->device, &geometry)
               : SPECBATCH_OK;
}

/* Whether the model will have weights in bf16. */
static int has_bf16(const specbatch_model_options *options, const struct sb_tensors *tensors)
{
    enum sb_dtype dtype;

    if (options->weights != SPECBATCH_WEIGHTS_AUTO)
        return 0;
    for (int32_t i = 0; i < sb_tensors_count(tensors); i++)
        if (sb_tensor_dtype(&dtype, sb_tensors_at(tensors, i)) && dtype == SB_BF16)
            return 1;
    return 0;
}

/* The compute class. Of products that keep the precision of f32, only those with bf16 weights gain
 * by a CPU's matrix unit, so for other weights the system is not asked for it. Quantised ones would
 * lose where a single row is decoded: three parts make three rows of one, which took 1.2 to 1.5
 * times as long with a unit (docs/numerics.md). */
static int32_t compute_of(const specbatch_model_options *options, const struct sb_tensors *tensors)
{
    if (options->compute != SPECBATCH_COMPUTE_AUTO)
        return options->compute;
    if (options->device == SPECBATCH_DEVICE_CUDA)
        return SPECBATCH_COMPUTE_BF16;
    return has_bf16(options, tensors) && sb_cpu_has_matrix_unit(options->simd)
               ? SPECBATCH_COMPUTE_SPLIT
               : SPECBATCH_COMPUTE_F32;
}

/* The tokenizer and the chat template, from where the configuration is from. */
static int32_t load_text(struct specbatch_model *model, const struct sb_container *from)
{
    int32_t rc = sb_container_tokenizer(&model->tokenizer, from, &model->mem);

    if (rc != SPECBATCH_OK)
        return rc;
    return from->gguf ? sb_chat_detect_gguf(&model->chat, &model->mem, from->gguf)
                      : sb_chat_detect(&model->chat, &model->mem, from->path);
}

int32_t sb_model_open(struct specbatch_model **out, const char *path,
                      const specbatch_model_options *options)
{
    const struct sb_mem mem = {options->alloc, options->free, options->alloc_user};
    const struct sb_log log = {options->log, options->log_user};
    struct sb_device_options device = {.simd = options->simd,
                                       .log = &log,
                                       .index = options->device_index,
                                       .kv = options->kv,
                                       .prefill = options->prefill,
                                       .plan_file = options->plan_file};
    struct specbatch_model *model = NULL;
    struct sb_tensors *tensors = NULL;
    struct sb_container from = {NULL, NULL};
    int32_t rc = SPECBATCH_OK;

    if (!path[0])
        return sb_fail(SPECBATCH_E_INVALID, "the path of the model is empty");
    SB_NEW(model, sb_alloc(&mem, 1, sizeof *model), "a model");
    model->mem = mem;
    model->log = log;
    atomic_init(&model->references, 1);
    model->device_index = options->device_index;
    model->process = options->device == SPECBATCH_DEVICE_CPU ? 0 : sb_port_process();
    SB_TRY(choose_backend(&model->backend, options->device, options->cuda_module));
    SB_TRY(sb_container_open(&from, &model->mem, path));
    SB_TRY(sb_container_config(&model->config, &from, &model->mem, &model->log));
    SB_TRY(sb_container_tensors(&tensors, &from, &model->mem, &model->config));
    device.compute = compute_of(options, tensors);
    SB_TRY(model->backend->device_open(&model->device, &model->mem, &device));
    SB_TRY(sb_model_weights_load(model, tensors, path, options));
    SB_TRY(calibrate(model));
    SB_TRY(load_text(model, &from));
    snprintf(model->fingerprint, sizeof model->fingerprint, "specbatch %d.%d.%d; %s; %s %s",
             SPECBATCH_VERSION_MAJOR, SPECBATCH_VERSION_MINOR, SPECBATCH_VERSION_PATCH,
             model->backend->device_class(model->device), model->config.arch->model_type,
             model->types);
    *out = model;
    model = NULL;
done:
    sb_tensors_close(tensors);
    sb_container_close(&from);
    sb_model_release(model);
    return sb_file_fail(rc, path);
}

void sb_model_retain(struct specbatch_model *model)
{
    if (model)
        atomic_fetch_add_explicit(&model->references, 1, memory_order_relaxed);
}

/* The thread that drops the last reference must see all that other threads have done with the
 * model: hence acquire and release. */
void sb_model_release(struct specbatch_model *model)
{
    if (model && atomic_fetch_sub_explicit(&model->references, 1, memory_order_acq_rel) == 1)
        free_model(model);
}

int32_t sb_model_check_draft(const struct specbatch_model *target,
                             const struct specbatch_model *draft)
{
    if (strcmp(target->backend->name, draft->backend->name) != 0)
        return sb_fail(SPECBATCH_E_INVALID,
                       "the draft is on device %s, the target on %s; they must be on one",
                       draft->backend->name, target->backend->name);
    if (target->device_index != draft->device_index)
        return sb_fail(SPECBATCH_E_INVALID,
                       "the draft has device_index %d, the target %d; they must be on one device",
                       (int)draft->device_index, (int)target->device_index);
    if (target->tokenizer && draft->tokenizer)
        return sb_tokenizer_same_base(target->tokenizer, draft->tokenizer);
    if (target->config.vocab != draft->config.vocab)
        return sb_fail(SPECBATCH_E_VOCAB,
                       "the draft's vocab_size is %d, the target's %d, and without both "
                       "tokenizers they must be equal",
                       (int)draft->config.vocab, (int)target->config.vocab);
    return SPECBATCH_OK;
}

void sb_model_spelling_digest(const struct specbatch_model *model, int32_t n_ids,
                              char text[SB_DIGEST_TEXT])
{
    *text = '\0';
    if (model->tokenizer)
        sb_tokenizer_digest(model->tokenizer, n_ids, text);
}
