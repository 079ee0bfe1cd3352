/* The tensors of a safetensors file. The reader is strict, since a checkpoint is untrusted input.
 */
#ifndef SB_SAFETENSORS_H
#define SB_SAFETENSORS_H

#include "model/tensors.h"

/* Adds the tensors of an open file to the set. E_IO, E_FORMAT (the message names file and tensor),
 * E_UNSUPPORTED, E_NOMEM. */
int32_t sb_safetensors_read(struct sb_tensors *set, struct sb_tensor_file *shard);

#endif
