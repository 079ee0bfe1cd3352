/*
 * Files of torch.save for tests, byte by byte, and as wrong as a case needs: zip archives with a
 * pickle in them. Names in the archive are given without the "t/" that all of them begin with.
 *
 *     struct torch_writer w = {0};
 *     torch_tensor(&w, "x", "FloatStorage", 1, (int64_t[]){2}, "0", bytes, 4);
 *     torch_entry(&w, "data.pkl", pickle, n)      instead, a pickle of the caller's own
 *     torch_write(&w, &dir, "pytorch_model.bin");
 */
#ifndef SB_TEST_TORCH_WRITER_H
#define SB_TEST_TORCH_WRITER_H

#include "support/gguf_writer.h"

struct torch_writer {
    struct gguf_buffer file, directory, pickle;
    uint64_t n; /* entries */
    int zip64;  /* the directory's numbers are written with 64 bits */
    int padded; /* its entries have another extra field, before that one, and a comment */
    int method; /* 8: entries claim to be compressed */
    int flags;  /* 1: or encrypted */
};

/* A tensor that fills a storage of its own, the entry data/KEY: `size` bytes an element. */
void torch_tensor(struct torch_writer *w, const char *name, const char *storage, int32_t rank,
                  const int64_t *shape, const char *key, const void *bytes, size_t size);
/* An entry of the archive. */
void torch_entry(struct torch_writer *w, const char *name, const void *bytes, size_t n);
/* Ends the archive, with the pickle of the tensors if there is any, and returns it in w->file,
 * which the caller frees. */
void torch_end(struct torch_writer *w);
/* The same, to a file; the writer is empty then. */
void torch_write(struct torch_writer *w, const struct test_dir *dir, const char *name);

#endif
