/*
 * Reading tensors whose rows do not lie in the file as the loader wants them: one behind the other,
 * each of them whole.
 *
 *   interleaved    GGUF files of Llama: the rows of a head's halves take turns
 *   apart          gate and up in one tensor: the rows of either are two rows apart
 *   as columns     floats of gpt-oss: an element of a row is as far from the next as two rows
 *                  of the tensor, of which ours are the columns
 *   in two         MXFP4 in safetensors: the blocks of a row in one tensor, their scales in another
 *
 * struct sb_tensor (tensors.h) says which of these a tensor is.
 */
#ifndef SB_TENSOR_ROWS_H
#define SB_TENSOR_ROWS_H

#include "model/tensors.h"

/* Whether a tensor is one of them. */
int sb_tensor_has_rows_apart(const struct sb_tensor *tensor);
/* Reads bytes of it, as sb_tensors_read does. Of those as columns and those in two they must be
 * whole rows. E_INVALID (they are not), E_IO. */
int32_t sb_tensor_rows_read(const struct sb_tensors *set, const struct sb_tensor *tensor,
                            uint64_t offset, char *into, size_t bytes);

#endif
