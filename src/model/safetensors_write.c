/* Writing safetensors files; safetensors_write.h says how. */
#include "model/safetensors_write.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "status.h"

enum { PIECE_BYTES = 512 }; /* of the header, that are put at once */

void sb_safetensors_out_init(struct sb_safetensors_out *out, const struct sb_mem *mem)
{
    *out = (struct sb_safetensors_out){.mem = *mem, .file = {.fd = -1}};
}

void sb_safetensors_out_clear(struct sb_safetensors_out *out)
{
    sb_new_file_drop(&out->file);
    sb_free(&out->mem, out->header);
    out->header = NULL;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
put(struct sb_safetensors_out *out, const char *format, ...)
{
    char *grown;
    va_list args;

    if (out->rc != SPECBATCH_OK)
        return;
    grown = sb_grow(&out->mem, out->header, &out->capacity, out->n + PIECE_BYTES, 1);
    if (!grown) {
        out->rc = sb_fail(SPECBATCH_E_NOMEM, "no memory for the header of a safetensors file");
        return;
    }
    out->header = grown;
    va_start(args, format);
    out->n += (size_t)vsnprintf(grown + out->n, PIECE_BYTES, format, args);
    va_end(args);
}

void sb_safetensors_put(struct sb_safetensors_out *out, const struct sb_tensor *tensor)
{
    put(out, "%s\"%.*s\":{\"dtype\":\"%s\",\"shape\":[",
        out->n ? "," : "{\"__metadata__\":{\"format\":\"pt\"},", SB_TENSOR_NAME_BYTES, tensor->name,
        tensor->type);
    for (int32_t i = 0; i < tensor->rank; i++)
        put(out, "%s%lld", i ? "," : "", (long long)tensor->shape[i]);
    put(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)out->data,
        (unsigned long long)(out->data + tensor->bytes));
    out->data += tensor->bytes;
}

int32_t sb_safetensors_out_begin(struct sb_safetensors_out *out, const char *path)
{
    unsigned char length[8];

    put(out, "}");
    while (out->rc == SPECBATCH_OK && out->n % 8 != 0)
        put(out, " ");
    if (out->rc != SPECBATCH_OK)
        return out->rc;
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)out->n >> 8 * i);
    out->rc = sb_new_file_create(&out->file, path);
    sb_safetensors_out_data(out, length, sizeof length);
    return sb_safetensors_out_data(out, out->header, out->n);
}

int32_t sb_safetensors_out_data(struct sb_safetensors_out *out, const void *bytes, size_t n)
{
    if (out->rc == SPECBATCH_OK)
        out->rc = sb_new_file_write(&out->file, bytes, n);
    return out->rc;
}

int32_t sb_safetensors_out_keep(struct sb_safetensors_out *out)
{
    if (out->rc == SPECBATCH_OK)
        out->rc = sb_new_file_keep(&out->file);
    return out->rc;
}
