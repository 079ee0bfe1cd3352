/*
 * Files of torch.save with the tensors of a model (pytorch_model.bin): a zip archive.
 *
 *   NAME/data.pkl       the list of tensors (pickle.h): type, shape, storage, place in it
 *   NAME/data/0, ...    the storages, which tensors can share: tied ones do
 *   NAME/byteorder      "little", if it is there
 *
 * No file is a program: a list that would call anything but what makes tensors is refused, and
 * nothing of it is executed. Tensors have to be contiguous in their storages, as parameters of a
 * model are when they are made; a transposed one is refused by its name rather than gathered, which
 * would be a second way of reading for files that nobody has been seen to write. The format of
 * torch before 1.6 (2020), a row of pickles without an archive, is refused with what to do about
 * it.
 */
#ifndef SB_TORCH_FILE_H
#define SB_TORCH_FILE_H

#include "model/tensors.h"

/* Adds the tensors of an open file to the set. E_FORMAT (the message names file and tensor),
 * E_UNSUPPORTED, E_IO, E_NOMEM. */
int32_t sb_torch_read(struct sb_tensors *set, struct sb_tensor_file *shard);

#endif
