/*
 * Safetensors files for tests: tensors with their data, in the order in which they come, and as
 * wrong as a case needs.
 *
 *     struct safetensors_writer w = {.data = {.n = 0}};
 *     safetensors_tensor(&w, "x", "F32", 1, (int64_t[]){2}, bytes, 8);
 *     safetensors_write(&w, &dir);
 */
#ifndef SB_TEST_SAFETENSORS_WRITER_H
#define SB_TEST_SAFETENSORS_WRITER_H

#include "support/gguf_writer.h"

struct safetensors_writer {
    struct gguf_buffer header, data;
};

/* A tensor behind the others. Its name is one that needs no escapes in JSON. */
void safetensors_tensor(struct safetensors_writer *w, const char *name, const char *type,
                        int32_t rank, const int64_t *shape, const void *bytes, size_t n);
/* Writes model.safetensors, and empties the writer. */
void safetensors_write(struct safetensors_writer *w, const struct test_dir *dir);

#endif
