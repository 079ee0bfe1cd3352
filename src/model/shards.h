/*
 * The tensors of a checkpoint's directory: in one file, or in several (shards) that an index lists.
 * The first of these that is there is taken:
 *
 *   model.safetensors    model.safetensors.index.json    safetensors.h
 *   pytorch_model.bin    pytorch_model.bin.index.json    torch_file.h
 *
 * safetensors come first, as in transformers: where both are there, they are the same model, and
 * safetensors are the format that was made for untrusted files.
 */
#ifndef SB_SHARDS_H
#define SB_SHARDS_H

#include "model/tensors.h"

/* Opens the directory's files and checks all of them. E_IO, E_FORMAT (the message names file and
 * tensor), E_UNSUPPORTED, E_NOMEM. */
int32_t sb_tensors_open(struct sb_tensors **out, const struct sb_mem *mem, const char *dir);
/* The same for a single safetensors file. E_NOT_FOUND, and as above. */
int32_t sb_tensors_open_file(struct sb_tensors **out, const struct sb_mem *mem, const char *path);

#endif
