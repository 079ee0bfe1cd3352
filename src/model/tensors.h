/*
 * The tensors of a checkpoint, by name, whatever container they are in: shards.c fills the set from
 * the files of a directory, gguf_tensors.c from a GGUF file. The loader of weights knows this set
 * only.
 *
 *   list    [ {name, type, shape, file, offset}, ... ]   sorted by name, for binary searches
 *   files   [ {file, its JSON}, ... ]                    open until the set is closed
 *
 * A hash table would save nothing, since a model asks for each name once. Files stay open from the
 * check to the last read, so that both see the same file.
 */
#ifndef SB_TENSORS_H
#define SB_TENSORS_H

#include <stdint.h>

#include "alloc.h"
#include "backend/backend.h"
#include "file.h"

struct sb_arch;
struct sb_json;

#define SB_TENSORS_MAX 1000000 /* in a set */
#define SB_TENSOR_RANK_MAX 8
#define SB_TENSOR_NAME_BYTES 160 /* of the names that a loader asks for, with the NUL */

struct sb_tensor {
    const char *name; /* borrowed from the set */
    char type[12];    /* "F32", "BF16", "F16", "I64", "Q4_K", ... */
    int32_t rank;
    int64_t shape[SB_TENSOR_RANK_MAX];
    uint64_t offset; /* of its first byte in its file */
    uint64_t bytes;
    int32_t file;       /* index of the file */
    int32_t interleave; /* 0, or the rows of a head: the file has rows i and i + interleave / 2 of
                           each head side by side, and reading puts them where they belong */
    /* Where rows do not lie one behind the other (tensor_rows.h): bytes from a row to the next, and
     * of floats from an element of it to the next. Where scales are in a tensor of
     * their own, that is in the file scale_file, and a row's are scale_step bytes from the next
     * one's. 0: it is not so. */
    uint64_t row_step, column_step;
    uint64_t scale_offset, scale_step;
    int32_t scale_file;
};

struct sb_tensor_file {
    struct sb_file file;
    int borrowed;        /* the file is not closed with the set */
    struct sb_json *doc; /* safetensors: the header, which owns the names of the file's tensors */
    char *names;         /* what owns them else: the pickle of a file of torch.save */
};

struct sb_tensors {
    struct sb_mem mem;
    struct sb_tensor_file *files;
    int32_t n_files;
    size_t files_capacity;
    struct sb_tensor *list;
    int32_t n;
    size_t capacity;
    const char *config; /* what says which tensors there have to be, for messages */
    const struct sb_arch *arch;
    /* Writes how the container spells the name of a tensor, which is that of transformers for a
     * model of the architecture. NULL: it spells it so too. */
    void (*spell)(char spelled[SB_TENSOR_NAME_BYTES], const struct sb_arch *arch, const char *name);
    float norm_shift;   /* to be added to the weights of norms */
    char *expert_names; /* of tensors that are a part of one of all experts; or NULL */
};

/* Creates an empty set. After a failure *out is what there is of it, for the caller to close. */
int32_t sb_tensors_create(struct sb_tensors **out, const struct sb_mem *mem);
/* Adds an empty place for a file; *file is valid until the next one is added. */
int32_t sb_tensors_add_file(struct sb_tensor_file **file, struct sb_tensors *set);
/* Makes room for so many more tensors, which are in the file called `name`. E_FORMAT, E_NOMEM. */
int32_t sb_tensors_reserve(struct sb_tensors *set, size_t more, const char *name);
/* Checks a tensor's name, of `length` bytes in the file called `file`. It will be quoted in
 * messages and so in the host's logs, so it must not hold a NUL or a control character, nor be
 * endless. E_FORMAT. */
int32_t sb_tensors_check_name(const char *name, size_t length, const char *file);
/* Sorts the list by name. E_FORMAT: a name is there twice. */
int32_t sb_tensors_sort(struct sb_tensors *set);
/* NULL is fine. */
void sb_tensors_close(struct sb_tensors *set);

/* Sets the architecture of a directory's tensors. Where the model of texts is a part of another
 * one, tensors are then found under the names that it has there. */
void sb_tensors_set_arch(struct sb_tensors *set, const struct sb_arch *arch);

/* Checks a tensor's shape. E_FORMAT. */
int32_t sb_tensors_check_shape(const struct sb_tensors *set, const struct sb_tensor *tensor,
                               int32_t rank, const int64_t *shape);
/* The type of a tensor's elements, as sb_tensor_dtype gives it. E_UNSUPPORTED. */
int32_t sb_tensors_check_type(enum sb_dtype *dtype, const struct sb_tensors *set,
                              const struct sb_tensor *tensor);
/* The tensor that transformers calls so, or NULL. */
const struct sb_tensor *sb_tensors_find(const struct sb_tensors *set, const char *name);
/* The same for a tensor that the configuration calls for: of [rows, n_in], or of [rows] when n_in
 * is 0, and its type. E_FORMAT, E_UNSUPPORTED (its type). */
int32_t sb_tensors_need(const struct sb_tensor **out, enum sb_dtype *dtype,
                        const struct sb_tensors *set, const char *name, int32_t rows, int32_t n_in);
/* The head of a tied model is the embedding table. Some checkpoints (Qwen3-0.6B) have a copy of
 * that table as lm_head.weight too. If it is there and is not a copy, transformers 5 computes with
 * it and 4 with the table, so this refuses it: E_UNSUPPORTED; or as sb_tensors_need and
 * sb_tensors_read. */
int32_t sb_tensors_check_tied(const struct sb_tensors *set, int32_t vocab, int32_t hidden,
                              char *buffer, size_t bytes);
int32_t sb_tensors_count(const struct sb_tensors *set);
/* A tensor by its index, 0 .. count - 1: they are in the order of their names. */
const struct sb_tensor *sb_tensors_at(const struct sb_tensors *set, int32_t index);
/* Reads `bytes` bytes of a tensor, from its byte `offset` on. E_INVALID (that is not inside the
 * tensor), E_IO. */
int32_t sb_tensors_read(const struct sb_tensors *set, const struct sb_tensor *tensor,
                        uint64_t offset, void *into, size_t bytes);
/* The type of a tensor's elements; 0, without writing, for types that weights cannot have. */
int sb_tensor_dtype(enum sb_dtype *dtype, const struct sb_tensor *tensor);
/* The name of a tensor's file without its directory, for messages. */
const char *sb_tensors_file(const struct sb_tensors *set, const struct sb_tensor *tensor);

#endif
