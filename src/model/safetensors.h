/*
 * The tensors of a checkpoint directory: in model.safetensors, or in the files (shards) that
 * model.safetensors.index.json lists. The reader is strict, since a checkpoint is untrusted input.
 */
#ifndef SB_SAFETENSORS_H
#define SB_SAFETENSORS_H

#include "model/tensors.h"

/* Opens the directory's files and checks all of them. E_IO, E_FORMAT (the message names file and
 * tensor), E_UNSUPPORTED (for example when only pytorch_model.bin is there), E_NOMEM. */
int32_t sb_tensors_open(struct sb_tensors **out, const struct sb_mem *mem, const char *dir);
/* The same for a single file. E_NOT_FOUND, and as above. */
int32_t sb_tensors_open_file(struct sb_tensors **out, const struct sb_mem *mem, const char *path);

#endif
