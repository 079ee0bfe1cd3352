/*
 * Writing GGUF files, which gguf.h draws. What is before the data is gathered in memory, keys and
 * infos of tensors in any order; then the file is begun, and the data streamed behind it.
 *
 *     sb_gguf_out_init(&out, &mem);
 *     sb_gguf_put_text(&out, "general.architecture", "llama", 5);
 *     sb_gguf_put_tensor(&out, "output.weight", "Q8_0", 2, shape, bytes);
 *     sb_gguf_out_begin(&out, path)
 *     sb_gguf_out_data(&out, some of the bytes, n) ... sb_gguf_out_pad(&out)
 *     sb_gguf_out_keep(&out), sb_gguf_out_clear(&out)
 *
 * The functions that put something fail without memory only. They return nothing: the first failure
 * is kept, and sb_gguf_out_begin returns it. So a list of keys is a list of calls. What comes after
 * a failure does nothing, and returns that failure.
 */
#ifndef SB_GGUF_WRITE_H
#define SB_GGUF_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "alloc.h"
#include "file.h"
#include "gguf.h"

struct sb_gguf_buffer {
    unsigned char *at;
    size_t n, capacity;
};

struct sb_gguf_out {
    struct sb_mem mem;
    struct sb_gguf_buffer keys, infos;
    uint64_t n_keys, n_tensors;
    uint64_t data; /* bytes of data that the infos speak of, with the padding */
    uint64_t at;   /* bytes of the file that are written */
    struct sb_new_file file;
    int32_t rc; /* SPECBATCH_OK, or the first failure of these functions */
};

void sb_gguf_out_init(struct sb_gguf_out *out, const struct sb_mem *mem);
/* Frees the memory, and removes a file that was begun and not kept. */
void sb_gguf_out_clear(struct sb_gguf_out *out);

/* Keys with their values. */
void sb_gguf_put_u32(struct sb_gguf_out *out, const char *key, uint32_t value);
void sb_gguf_put_f32(struct sb_gguf_out *out, const char *key, float value);
void sb_gguf_put_bool(struct sb_gguf_out *out, const char *key, int value);
void sb_gguf_put_text(struct sb_gguf_out *out, const char *key, const char *text, size_t n);
/* An array of `count` elements of a type (SB_GGUF_*). They are put behind it one by one: strings,
 * which are their length as a number of 8 bytes and their bytes, or numbers of so many bytes. */
void sb_gguf_put_array(struct sb_gguf_out *out, const char *key, uint32_t of, uint64_t count);
void sb_gguf_put_string(struct sb_gguf_out *out, const char *text, size_t n);
void sb_gguf_put_number(struct sb_gguf_out *out, uint64_t number, size_t size);
void sb_gguf_put_bytes(struct sb_gguf_out *out, const char *bytes, size_t n);
/* A key with its value, as sb_gguf_entry gives them. */
void sb_gguf_put_entry(struct sb_gguf_out *out, const unsigned char *bytes, size_t n);

/* A tensor behind those before it. type: "F32", "Q8_0" and so on; shape: the slowest dimension
 * first; bytes: those of its data. */
void sb_gguf_put_tensor(struct sb_gguf_out *out, const char *name, const char *type, int32_t rank,
                        const int64_t *shape, uint64_t bytes);

/* Writes all that is before the data to a new file, which is to lie at `path`. E_NOMEM, E_IO,
 * E_INVALID (the path is too long). */
int32_t sb_gguf_out_begin(struct sb_gguf_out *out, const char *path);
/* Appends bytes of the data, in the order of the infos. E_IO. */
int32_t sb_gguf_out_data(struct sb_gguf_out *out, const void *bytes, size_t n);
/* Ends the data of a tensor. E_IO. */
int32_t sb_gguf_out_pad(struct sb_gguf_out *out);
/* Gives the file its name. E_IO. */
int32_t sb_gguf_out_keep(struct sb_gguf_out *out);

#endif
