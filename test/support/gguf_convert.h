/*
 * Makes a GGUF file of a safetensors checkpoint, as the converter of llama.cpp does, and the
 * same checkpoint as safetensors in another type. It has its own table of names and its own
 * permutation, so that a mistake in the library's is not made twice.
 */
#ifndef SB_TEST_GGUF_CONVERT_H
#define SB_TEST_GGUF_CONVERT_H

#include "model/config.h"
#include "support/gguf_writer.h"

enum {
    CONVERT_UNPERMUTED = 1, /* a mistake: the rows of Llama's q and k stay as they are */
    CONVERT_VECTORS = 2     /* vectors are of the type of matrices, where llama.cpp writes F32 */
};

/* Adds the configuration and the tensors of the checkpoint in `from` to a GGUF file. Returns 0 when
 * the checkpoint cannot be read. */
int convert_model(struct gguf_writer *w, const char *from, enum sb_dtype dtype, unsigned flags);
/* Writes the checkpoint in `from` to `to`, with all tensors in one file and of one type. */
int convert_safetensors(const struct test_dir *to, const char *from, enum sb_dtype dtype);
/* Adds the tokenizer.json in `from`, which must be byte-level BPE, under the name of a
 * pre-tokenizer. vocab: pieces that the file has at least. */
int convert_tokenizer(struct gguf_writer *w, const char *from, const char *pre, int32_t vocab);

#endif
