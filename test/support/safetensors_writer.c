/* Writing safetensors files; see safetensors_writer.h. Without memory it ends the program. */
#include "support/safetensors_writer.h"

void safetensors_tensor(struct safetensors_writer *w, const char *name, const char *type,
                        int32_t rank, const int64_t *shape, const void *bytes, size_t n)
{
    char text[400];
    int at = snprintf(text, sizeof text, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                      w->header.n > 0 ? ',' : '{', name, type);

    for (int32_t d = 0; d < rank; d++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%lld", d ? "," : "",
                       (long long)shape[d]);
    at += snprintf(text + at, sizeof text - (size_t)at, "],\"data_offsets\":[%zu,%zu]}", w->data.n,
                   w->data.n + n);
    gguf_add(&w->header, text, (size_t)at);
    gguf_add(&w->data, bytes, n);
}

void safetensors_write(struct safetensors_writer *w, const struct test_dir *dir)
{
    struct gguf_buffer file = {.n = 0};

    gguf_add(&w->header, "}", 1);
    gguf_add_text(&file, (const char *)w->header.at, w->header.n);
    gguf_add(&file, w->data.at, w->data.n);
    test_write(dir, "model.safetensors", file.at, file.n);
    free(file.at);
    free(w->header.at);
    free(w->data.at);
    memset(w, 0, sizeof *w);
}
