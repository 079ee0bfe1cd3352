/*
 * The list of tensors that torch.save writes as data.pkl: a Python pickle, of which only what such
 * a list needs is understood.
 *
 * A pickle is a program for a machine with a stack: it pushes numbers and strings, makes tuples and
 * dictionaries of them, imports functions by name and calls them. To run one in Python is to run
 * its author's program. Here nothing is imported and nothing is called. The few functions that a
 * list of tensors calls are known by name, and what a call of one would make is written down as
 * data; every other name and every other instruction is refused.
 *
 *   instruction          stack                                     what is written down
 *   "a.weight"           "a.weight"
 *   import, strings      "a.weight" f ("storage" type key ...)
 *   persistent id        "a.weight" f STORAGE                      storage: type, key, elements
 *   numbers, tuples      "a.weight" f (STORAGE offset shape ...)
 *   call                 "a.weight" TENSOR                         tensor: storage, place, shape
 *   set item             (the dictionary below)                    entry: dictionary, name, tensor
 *
 * Every instruction takes at least a byte and pushes at most one value, and values refer to each
 * other by their numbers and are never walked through. So memory and time are bounded by the
 * pickle's length, and nothing recurses, however deep a pickle nests its tuples.
 */
#ifndef SB_PICKLE_H
#define SB_PICKLE_H

#include <stddef.h>
#include <stdint.h>

#include "model/tensors.h"

/* A tensor of the list. Strings are borrowed from the pickle. */
struct sb_pickled {
    const char *name;
    const char *type;      /* "F32", "BF16", ... */
    uint32_t element_size; /* bytes */
    const char *key;       /* names its storage */
    uint64_t storage;      /* elements of the storage */
    uint64_t offset;       /* of its first element in the storage */
    int32_t rank;
    int64_t shape[SB_TENSOR_RANK_MAX], stride[SB_TENSOR_RANK_MAX]; /* in elements; 0 or more */
};

/* Reads n bytes of a pickle that is an (ordered) dictionary from names to tensors. Its bytes are
 * changed: a NUL is put behind names and keys. *list receives *n_list tensors, in the order of the
 * pickle, and is freed by the caller. `file` is named in messages.
 * E_FORMAT, E_UNSUPPORTED (it calls for what no list of tensors needs), E_NOMEM. */
int32_t sb_pickle_read(struct sb_pickled **list, size_t *n_list, const struct sb_mem *mem,
                       unsigned char *bytes, size_t n, const char *file);

#endif
