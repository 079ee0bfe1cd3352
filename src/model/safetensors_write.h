/*
 * Writing safetensors files, which safetensors.c draws: the header, and the data of the tensors
 * streamed behind it. Tensors that are F32 have to be in front of those of 16 bits, so that all
 * begin at a multiple of their size, as the format wants it.
 */
#ifndef SB_SAFETENSORS_WRITE_H
#define SB_SAFETENSORS_WRITE_H

#include "model/tensors.h"

struct sb_safetensors_out {
    struct sb_mem mem;
    struct sb_new_file file;
    char *header; /* JSON, gathered before there is a file */
    size_t n, capacity;
    uint64_t data; /* bytes of data that the header speaks of */
    int32_t rc;    /* SPECBATCH_OK, or the first failure of these functions */
};

void sb_safetensors_out_init(struct sb_safetensors_out *out, const struct sb_mem *mem);
/* Frees the memory, and removes a file that was begun and not kept. */
void sb_safetensors_out_clear(struct sb_safetensors_out *out);

/* A tensor behind those before it, by its name, type and shape. Its name is one that needs no
 * escapes in JSON. The first failure (E_NOMEM) is kept, and sb_safetensors_out_begin returns it. */
void sb_safetensors_put(struct sb_safetensors_out *out, const struct sb_tensor *tensor);
/* Begins the file, which is to lie at `path`, with the header. E_NOMEM, E_IO, E_INVALID (the path
 * is too long). */
int32_t sb_safetensors_out_begin(struct sb_safetensors_out *out, const char *path);
/* Appends bytes of the data, in the order of the header. E_IO. */
int32_t sb_safetensors_out_data(struct sb_safetensors_out *out, const void *bytes, size_t n);
/* Gives the file its name. E_IO. */
int32_t sb_safetensors_out_keep(struct sb_safetensors_out *out);

#endif
