/* Writing GGUF files; gguf_write.h explains it. Numbers go through bytes, so that the order of the
 * machine is not in a file. The alignment is 32, which holds where a file does not say another. */
#include "gguf_write.h"

#include <string.h>

#include "gguf_types.h"
#include "status.h"

enum { VERSION = 3, ALIGNMENT = 32 };

void sb_gguf_out_init(struct sb_gguf_out *out, const struct sb_mem *mem)
{
    memset(out, 0, sizeof *out);
    out->mem = *mem;
    out->file.fd = -1;
}

void sb_gguf_out_clear(struct sb_gguf_out *out)
{
    sb_free(&out->mem, out->keys.at);
    sb_free(&out->mem, out->infos.at);
    sb_new_file_drop(&out->file);
}

/* ----------------------------------------------------------------------------- gathering */

static void add(struct sb_gguf_out *out, struct sb_gguf_buffer *buffer, const void *bytes, size_t n)
{
    unsigned char *grown;

    if (out->rc != SPECBATCH_OK || n == 0)
        return;
    grown = n > SIZE_MAX - buffer->n
                ? NULL
                : sb_grow(&out->mem, buffer->at, &buffer->capacity, buffer->n + n, 1);
    if (!grown) {
        out->rc = sb_fail(SPECBATCH_E_NOMEM, "no memory for the metadata of a GGUF file");
        return;
    }
    buffer->at = grown;
    memcpy(grown + buffer->n, bytes, n);
    buffer->n += n;
}

/* Writes a little-endian number and returns the place behind it. */
static unsigned char *number_bytes(unsigned char *at, uint64_t number, size_t size)
{
    for (size_t i = 0; i < size; i++)
        *at++ = (unsigned char)(number >> 8 * i);
    return at;
}

static void add_number(struct sb_gguf_out *out, struct sb_gguf_buffer *buffer, uint64_t number,
                       size_t size)
{
    unsigned char bytes[8];

    number_bytes(bytes, number, size);
    add(out, buffer, bytes, size);
}

static void add_string(struct sb_gguf_out *out, struct sb_gguf_buffer *buffer, const char *text,
                       size_t n)
{
    add_number(out, buffer, n, 8);
    add(out, buffer, text, n);
}

static void put_key(struct sb_gguf_out *out, const char *key, uint32_t type)
{
    add_string(out, &out->keys, key, strlen(key));
    add_number(out, &out->keys, type, 4);
    out->n_keys++;
}

void sb_gguf_put_string(struct sb_gguf_out *out, const char *text, size_t n)
{
    add_string(out, &out->keys, text, n);
}

void sb_gguf_put_number(struct sb_gguf_out *out, uint64_t number, size_t size)
{
    add_number(out, &out->keys, number, size);
}

void sb_gguf_put_bytes(struct sb_gguf_out *out, const char *bytes, size_t n)
{
    add(out, &out->keys, bytes, n);
}

void sb_gguf_put_entry(struct sb_gguf_out *out, const unsigned char *bytes, size_t n)
{
    add(out, &out->keys, bytes, n);
    out->n_keys++;
}

void sb_gguf_put_u32(struct sb_gguf_out *out, const char *key, uint32_t value)
{
    put_key(out, key, SB_GGUF_U32);
    sb_gguf_put_number(out, value, 4);
}

void sb_gguf_put_f32(struct sb_gguf_out *out, const char *key, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_key(out, key, SB_GGUF_F32);
    sb_gguf_put_number(out, bits, 4);
}

void sb_gguf_put_bool(struct sb_gguf_out *out, const char *key, int value)
{
    put_key(out, key, SB_GGUF_BOOL);
    sb_gguf_put_number(out, value != 0, 1);
}

void sb_gguf_put_text(struct sb_gguf_out *out, const char *key, const char *text, size_t n)
{
    put_key(out, key, SB_GGUF_STRING);
    sb_gguf_put_string(out, text, n);
}

void sb_gguf_put_array(struct sb_gguf_out *out, const char *key, uint32_t of, uint64_t count)
{
    put_key(out, key, SB_GGUF_ARRAY);
    sb_gguf_put_number(out, of, 4);
    sb_gguf_put_number(out, count, 8);
}

static uint64_t padding(uint64_t at)
{
    return (ALIGNMENT - at % ALIGNMENT) % ALIGNMENT;
}

void sb_gguf_put_tensor(struct sb_gguf_out *out, const char *name, const char *type, int32_t rank,
                        const int64_t *shape, uint64_t bytes)
{
    struct sb_gguf_buffer *infos = &out->infos;

    add_string(out, infos, name, strlen(name));
    add_number(out, infos, (uint64_t)rank, 4);
    for (int32_t i = rank - 1; i >= 0; i--)
        add_number(out, infos, (uint64_t)shape[i], 8);
    add_number(out, infos, sb_gguf_type_number(type), 4);
    add_number(out, infos, out->data, 8);
    out->data += bytes + padding(bytes);
    out->n_tensors++;
}

/* ------------------------------------------------------------------------------- writing */

int32_t sb_gguf_out_data(struct sb_gguf_out *out, const void *bytes, size_t n)
{
    if (out->rc == SPECBATCH_OK)
        out->rc = sb_new_file_write(&out->file, bytes, n);
    out->at += n;
    return out->rc;
}

int32_t sb_gguf_out_pad(struct sb_gguf_out *out)
{
    static const unsigned char zeros[ALIGNMENT];

    return sb_gguf_out_data(out, zeros, (size_t)padding(out->at));
}

int32_t sb_gguf_out_begin(struct sb_gguf_out *out, const char *path)
{
    unsigned char head[24] = "GGUF", *at = head + 4;

    at = number_bytes(at, VERSION, 4);
    at = number_bytes(at, out->n_tensors, 8);
    number_bytes(at, out->n_keys, 8);
    if (out->rc == SPECBATCH_OK)
        out->rc = sb_new_file_create(&out->file, path);
    sb_gguf_out_data(out, head, sizeof head);
    sb_gguf_out_data(out, out->keys.at, out->keys.n);
    sb_gguf_out_data(out, out->infos.at, out->infos.n);
    return sb_gguf_out_pad(out);
}

int32_t sb_gguf_out_keep(struct sb_gguf_out *out)
{
    if (out->rc == SPECBATCH_OK)
        out->rc = sb_new_file_keep(&out->file);
    return out->rc;
}
