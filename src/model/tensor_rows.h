/*
 * Reading tensors whose rows do not lie in the file as the loader wants them: one behind the other,
 * each of them whole.
 *
 *   interleaved    GGUF files of Llama: the rows of a head's halves take turns
 *   as columns     floats of gpt-oss: a row is a column of the file's matrix, and a bias one of
 *                  its elements; those of gate and of up take turns
 *   in two         MXFP4 in safetensors: the blocks of a row in one tensor, their scales in
 *                  another; rows of gate and of up take turns here, too
 *
 * struct sb_tensor (tensors.h) says which of these a tensor is.
 */
#ifndef SB_TENSOR_ROWS_H
#define SB_TENSOR_ROWS_H

#include "model/tensors.h"

/* Whether a tensor is one of them. */
int sb_tensor_has_rows_apart(const struct sb_tensor *tensor);
/* Reads bytes of it, as sb_tensors_read does. They must be whole rows, unless rows are interleaved.
 * E_INVALID (they are not), E_IO. */
int32_t sb_tensor_rows_read(const struct sb_tensors *set, const struct sb_tensor *tensor,
                            uint64_t offset, char *into, size_t bytes);

#endif
