/*
 * The metadata of one GGUF file in another, for a file that is converted from such a file. Entries
 * are copied as they lie, in their order, whatever they mean: so nothing that the file says is
 * lost, and a file that was made by way of a float GGUF file is, byte by byte, the one that is made
 * of the folder. Rejected: to describe model and tokenizer anew from what was read, which would
 * drop keys that this library does not know and make other scores of pieces.
 *
 * What speaks of the file and not of the model is left out or written anew: the alignment, which is
 * the usual one in new files, the place in a row of parts, and the type of the matrices.
 */
#include <string.h>

#include "model/gguf_model.h"
#include "sort.h"
#include "status.h"

struct entry {
    const unsigned char *at; /* its bytes in the file's metadata */
    size_t n;
    const char *key;
    size_t n_key;
};

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

static int is_key(const struct entry *e, const char *key)
{
    return e->n_key == strlen(key) && memcmp(e->key, key, e->n_key) == 0;
}

static int begins(const struct entry *e, const char *text)
{
    const size_t n = strlen(text);

    return e->n_key > n && memcmp(e->key, text, n) == 0;
}

/* Whether an entry speaks of the file that it is in. */
static int is_of_the_file(const struct entry *e)
{
    return is_key(e, "general.alignment") || begins(e, "split.");
}

void sb_gguf_put_file_type(struct sb_gguf_out *out, uint32_t file_type)
{
    sb_gguf_put_u32(out, "general.file_type", file_type);
    sb_gguf_put_u32(out, "general.quantization_version", 2);
}

/* The entries of a file's metadata, in the order of the file; the caller frees them. */
static int32_t list_entries(struct entry **out, size_t *n, const struct sb_mem *mem,
                            const struct sb_gguf *gguf)
{
    struct entry *list = NULL;
    size_t n_key;
    int32_t rc = SPECBATCH_OK;

    for (*n = 0; sb_gguf_key(gguf, *n, &n_key) != NULL;)
        ++*n;
    SB_NEW(list, sb_alloc(mem, *n + 1, sizeof *list), "the metadata");
    for (size_t i = 0; i < *n; i++) {
        list[i].key = sb_gguf_key(gguf, i, &list[i].n_key);
        list[i].at = sb_gguf_entry(gguf, i, &list[i].n);
    }
    sb_sort(list, *n, sizeof *list, by_place);
    *out = list;
done:
    return rc;
}

int32_t sb_gguf_copy_keys(struct sb_gguf_out *out, const struct sb_mem *mem,
                          const struct sb_gguf *gguf, int32_t file_type, const char *without)
{
    const int is_new = file_type >= 0;
    struct entry *list = NULL;
    size_t n = 0;
    int is_put = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(list_entries(&list, &n, mem, gguf));
    for (const struct entry *e = list; e < list + n; e++) {
        if (is_of_the_file(e) || (without && begins(e, without)) ||
            (is_new && is_key(e, "general.quantization_version")))
            continue;
        if (is_new && is_key(e, "general.file_type")) {
            sb_gguf_put_file_type(out, (uint32_t)file_type);
            is_put = 1;
        } else {
            sb_gguf_put_entry(out, e->at, e->n);
        }
    }
    if (is_new && !is_put)
        sb_gguf_put_file_type(out, (uint32_t)file_type);
done:
    sb_free(mem, list);
    return rc;
}
