/* Geometry and memory of a key/value cache; kv.h draws the layout. */
#include "engine/kv.h"

#include <stdio.h>

#include "status.h"

int32_t sb_kv_plan(struct sb_kv *kv, const struct specbatch_model *model, int64_t n_columns)
{
    const struct sb_config *config = &model->config;
    const size_t element_bytes = model->backend->cache_bytes(model->device);
    size_t plane, bytes;

    if (!sb_mul_size((size_t)config->kv_heads * (size_t)config->head_dim, (size_t)n_columns,
                     &plane) ||
        !sb_mul_size(plane, (size_t)config->layers * 2 * element_bytes, &bytes) ||
        bytes > INT64_MAX)
        return sb_fail(SPECBATCH_E_INVALID,
                       "cache of %lld columns is larger than the address space",
                       (long long)n_columns);
    *kv = (struct sb_kv){.n_columns = n_columns,
                         .kv_heads = config->kv_heads,
                         .head_dim = config->head_dim,
                         .layers = config->layers,
                         .plane_stride = (int64_t)plane,
                         .element_bytes = element_bytes,
                         .bytes = bytes};
    return SPECBATCH_OK;
}

int32_t sb_kv_create(struct sb_kv *kv, const struct specbatch_model *model,
                     const struct sb_mem *mem)
{
    char why[160];
    void *planes;
    int32_t rc = model->backend->alloc(&planes, model->device, mem, kv->bytes);

    /* The backend's message says how much memory is free. This one adds what it was for. */
    if (rc != SPECBATCH_OK) {
        snprintf(why, sizeof why, "%s", sb_last_error());
        return sb_fail(rc, "no memory for a cache of %zu bytes (%lld columns): %s", kv->bytes,
                       (long long)kv->n_columns, why);
    }
    kv->planes = planes;
    return SPECBATCH_OK;
}

void sb_kv_free(struct sb_kv *kv, const struct specbatch_model *model, const struct sb_mem *mem)
{
    if (kv->planes)
        model->backend->free(model->device, mem, kv->planes);
    kv->planes = NULL;
}

void *sb_kv_k(const struct sb_kv *kv, int32_t layer)
{
    return kv->planes + (size_t)layer * 2 * (size_t)kv->plane_stride * kv->element_bytes;
}

void *sb_kv_v(const struct sb_kv *kv, int32_t layer)
{
    return kv->planes + ((size_t)layer * 2 + 1) * (size_t)kv->plane_stride * kv->element_bytes;
}

int64_t sb_kv_base(const struct sb_kv *kv, int64_t at)
{
    return at * kv->kv_heads * kv->head_dim;
}

size_t sb_kv_column_bytes(const struct sb_kv *kv)
{
    return (size_t)kv->layers * 2 * (size_t)kv->kv_heads * (size_t)kv->head_dim * kv->element_bytes;
}
