/*
 * GGUF files: their metadata, and where their tensors are. The format is described in docs/gguf.md
 * of ggml-org/ggml.
 *
 *   header     "GGUF", version, number of tensors, number of keys
 *   metadata   key, type, value; a value is a number, a flag, a string, or an array of values
 *   infos      for each tensor: name, dimensions (the fastest first), type, offset in the data
 *   padding    to the alignment
 *   data       the tensors, each beginning at a multiple of the alignment
 *
 * All that is before the data is read into memory and checked when the file is opened. So whoever
 * reads a value or a tensor later may trust its length. What the keys and the names of tensors mean
 * is not known here: src/model and src/text know it.
 *
 * A model may be cut into parts, NAME-00001-of-00003.gguf and so on. The first part is opened, and
 * finds the others beside it. Its metadata are those of the model.
 */
#ifndef SB_GGUF_H
#define SB_GGUF_H

#include <stddef.h>
#include <stdint.h>

#include "alloc.h"
#include "file.h"

/* The types of values, as the file numbers them. */
enum {
    SB_GGUF_U8,
    SB_GGUF_I8,
    SB_GGUF_U16,
    SB_GGUF_I16,
    SB_GGUF_U32,
    SB_GGUF_I32,
    SB_GGUF_F32,
    SB_GGUF_BOOL,
    SB_GGUF_STRING,
    SB_GGUF_ARRAY,
    SB_GGUF_U64,
    SB_GGUF_I64,
    SB_GGUF_F64,
    SB_GGUF_TYPES
};

/* A value of the metadata, or an element of an array. */
struct sb_gguf_value {
    uint32_t type;           /* SB_GGUF_* */
    uint32_t of;             /* of an array: the type of its elements */
    uint64_t count;          /* an array's elements, a string's bytes */
    const unsigned char *at; /* the first byte; borrowed from the file's metadata */
};

enum { SB_GGUF_RANK_MAX = 4, SB_GGUF_NAME_MAX = 64 };

struct sb_gguf_tensor {
    char name[SB_GGUF_NAME_MAX + 1];
    const char *type; /* "F32", "BF16", "Q4_K", ... */
    int32_t rank;
    int64_t shape[SB_GGUF_RANK_MAX]; /* the slowest dimension first, unlike in the file */
    uint64_t offset;                 /* of its first byte in its file */
    uint64_t bytes;
    int32_t file; /* index of the part */
};

struct sb_gguf;

/* Opens a file, and all parts of a model that is cut into parts. E_NOT_FOUND, E_IO, E_FORMAT (the
 * message names the file, and the key or the tensor), E_UNSUPPORTED (a version, a big-endian file),
 * E_NOMEM. */
int32_t sb_gguf_open(struct sb_gguf **out, const struct sb_mem *mem, const char *path);
/* NULL is fine. */
void sb_gguf_close(struct sb_gguf *gguf);

int32_t sb_gguf_n_files(const struct sb_gguf *gguf);
/* A part of the model, for reading tensors; borrowed. */
const struct sb_file *sb_gguf_file(const struct sb_gguf *gguf, int32_t index);
int32_t sb_gguf_n_tensors(const struct sb_gguf *gguf);
const struct sb_gguf_tensor *sb_gguf_tensor(const struct sb_gguf *gguf, int32_t index);

/* The value of a key. Returns 0, without writing, when the key is not there. */
int sb_gguf_get(const struct sb_gguf *gguf, const char *key, struct sb_gguf_value *value);
/* A key by its index, which are in the order of their bytes; NULL behind the last one. It has
 * *length bytes, and no NUL behind it. */
const char *sb_gguf_key(const struct sb_gguf *gguf, size_t index, size_t *length);
/* The *n bytes of that key and its value as they lie in the file, where entry follows entry. The
 * index must be that of a key. */
const unsigned char *sb_gguf_entry(const struct sb_gguf *gguf, size_t index, size_t *n);

/* These write the value and return 1, or return 0 when it is of another type. sb_gguf_int takes
 * integers of any width that fit. sb_gguf_double takes those and finite floats; an f32 becomes the
 * shortest decimal number that rounds to it, since it was made from such a number: 1e-6, and not
 * 9.99999997475242708e-7. */
int sb_gguf_int(const struct sb_gguf_value *value, int64_t *number);
int sb_gguf_double(const struct sb_gguf_value *value, double *number);
int sb_gguf_bool(const struct sb_gguf_value *value, int *flag);
/* The bytes of a string, which has value->count of them and no NUL behind; NULL for other types. */
const char *sb_gguf_string(const struct sb_gguf_value *value);
/* Whether a value is this string. */
int sb_gguf_is(const struct sb_gguf_value *value, const char *text);

/* Takes the first element off an array, whose `at` and `count` then stand for the rest. Returns 0
 * at the end, and for what is no array or an array of arrays. */
int sb_gguf_take(struct sb_gguf_value *array, struct sb_gguf_value *element);

#endif
