/* Writing GGUF files; see gguf_writer.h. Without memory it ends the program. */
#include "support/gguf_writer.h"

void gguf_add(struct gguf_buffer *b, const void *bytes, size_t n)
{
    if (b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n);
        b->at = realloc(b->at, b->capacity);
        if (!b->at)
            exit(1);
    }
    if (n > 0)
        memcpy(b->at + b->n, bytes, n);
    b->n += n;
}

void gguf_add_number(struct gguf_buffer *b, uint64_t number, size_t size)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(number >> 8 * i);
    gguf_add(b, bytes, size);
}

void gguf_add_text(struct gguf_buffer *b, const char *text, size_t n)
{
    gguf_add_number(b, n, 8);
    gguf_add(b, text, n);
}

void gguf_key(struct gguf_writer *w, const char *key, uint32_t type)
{
    gguf_add_text(&w->keys, key, strlen(key));
    gguf_add_number(&w->keys, type, 4);
    w->n_keys++;
}

void gguf_key_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    gguf_key(w, key, SB_GGUF_U32);
    gguf_add_number(&w->keys, value, 4);
}

void gguf_key_f32(struct gguf_writer *w, const char *key, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    gguf_key(w, key, SB_GGUF_F32);
    gguf_add_number(&w->keys, bits, 4);
}

void gguf_key_flag(struct gguf_writer *w, const char *key, int value)
{
    gguf_key(w, key, SB_GGUF_BOOL);
    gguf_add_number(&w->keys, (uint64_t)value, 1);
}

void gguf_key_text(struct gguf_writer *w, const char *key, const char *value)
{
    gguf_key(w, key, SB_GGUF_STRING);
    gguf_add_text(&w->keys, value, strlen(value));
}

void gguf_key_array(struct gguf_writer *w, const char *key, uint32_t of, uint64_t count)
{
    gguf_key(w, key, SB_GGUF_ARRAY);
    gguf_add_number(&w->keys, of, 4);
    gguf_add_number(&w->keys, count, 8);
}

static void pad(struct gguf_buffer *b, size_t alignment)
{
    while (b->n % alignment != 0)
        gguf_add_number(b, 0, 1);
}

void gguf_tensor(struct gguf_writer *w, const char *name, int32_t rank, const int64_t *shape,
                 uint32_t type, const void *bytes, size_t n)
{
    gguf_add_text(&w->infos, name, strlen(name));
    gguf_add_number(&w->infos, (uint64_t)rank, 4);
    for (int32_t i = rank - 1; i >= 0; i--)
        gguf_add_number(&w->infos, (uint64_t)shape[i], 8);
    gguf_add_number(&w->infos, type, 4);
    gguf_add_number(&w->infos, w->data.n, 8);
    gguf_add(&w->data, bytes, n);
    pad(&w->data, w->alignment);
    w->n_tensors++;
}

void gguf_write(struct gguf_writer *w, const struct test_dir *dir, const char *name)
{
    struct gguf_buffer file = {.n = 0};

    gguf_add(&file, "GGUF", 4);
    gguf_add_number(&file, 3, 4);
    gguf_add_number(&file, w->n_tensors, 8);
    gguf_add_number(&file, w->n_keys, 8);
    gguf_add(&file, w->keys.at, w->keys.n);
    gguf_add(&file, w->infos.at, w->infos.n);
    if (w->n_tensors > 0)
        pad(&file, w->alignment);
    gguf_add(&file, w->data.at, w->data.n);
    test_write(dir, name, file.at, file.n);
    free(file.at);
    free(w->keys.at);
    free(w->infos.at);
    free(w->data.at);
    *w = (struct gguf_writer){.alignment = w->alignment};
}
