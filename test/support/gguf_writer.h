/*
 * GGUF files for tests, byte by byte: keys with their values, tensors with their data, in any order
 * and as wrong as a case needs.
 *
 *     struct gguf_writer w = {.alignment = 32};
 *     gguf_key_text(&w, "general.architecture", "llama");
 *     gguf_tensor(&w, "x", 1, (int64_t[]){2}, GGUF_F32, bytes, 8);
 *     gguf_write(&w, &dir, "model.gguf");
 */
#ifndef SB_TEST_GGUF_WRITER_H
#define SB_TEST_GGUF_WRITER_H

#include "gguf.h"
#include "support/model_files.h"

/* The numbers of tensors' types. */
enum {
    GGUF_F32 = 0,
    GGUF_F16 = 1,
    GGUF_Q4_0 = 2,
    GGUF_Q8_0 = 8,
    GGUF_Q4_K = 12,
    GGUF_Q5_K = 13,
    GGUF_Q6_K = 14,
    GGUF_BF16 = 30,
    GGUF_MXFP4 = 39
};

struct gguf_buffer {
    unsigned char *at;
    size_t n, capacity;
};

struct gguf_writer {
    struct gguf_buffer keys, infos, data;
    uint64_t n_keys, n_tensors;
    size_t alignment; /* of the data; not written, unless as a key */
};

/* Append to any of the buffers: bytes, a little-endian number, a string behind its length. */
void gguf_add(struct gguf_buffer *buffer, const void *bytes, size_t n);
void gguf_add_number(struct gguf_buffer *buffer, uint64_t number, size_t size);
void gguf_add_text(struct gguf_buffer *buffer, const char *text, size_t n);

/* A key, and the type of the value, which the caller appends to w->keys. */
void gguf_key(struct gguf_writer *w, const char *key, uint32_t type);
void gguf_key_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_key_f32(struct gguf_writer *w, const char *key, float value);
void gguf_key_flag(struct gguf_writer *w, const char *key, int value);
void gguf_key_text(struct gguf_writer *w, const char *key, const char *value);
/* An array whose elements the caller appends to w->keys. */
void gguf_key_array(struct gguf_writer *w, const char *key, uint32_t of, uint64_t count);
/* A tensor behind the others. shape: the slowest dimension first. */
void gguf_tensor(struct gguf_writer *w, const char *name, int32_t rank, const int64_t *shape,
                 uint32_t type, const void *bytes, size_t n);
/* Writes the file, and empties the writer. */
void gguf_write(struct gguf_writer *w, const struct test_dir *dir, const char *name);

#endif
