/* The set of a checkpoint's tensors; tensors.h draws it. */
#include "model/tensors.h"

#include <stdio.h>
#include <string.h>

#include "json.h"
#include "model/arch.h"
#include "model/tensor_rows.h"
#include "sort.h"
#include "status.h"

enum { NAME_MAX_BYTES = 1024 };

/* ---------------------------------------------------------------------------- filling it */

int32_t sb_tensors_create(struct sb_tensors **out, const struct sb_mem *mem)
{
    struct sb_tensors *set = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(set, sb_alloc(mem, 1, sizeof *set), "a tensor list");
    set->mem = *mem;
    set->config = "config.json";
    *out = set;
    SB_TRY(sb_tensors_reserve(set, 1, set->config));
done:
    return rc;
}

int32_t sb_tensors_add_file(struct sb_tensor_file **file, struct sb_tensors *set)
{
    struct sb_tensor_file *grown;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(grown,
           sb_grow(&set->mem, set->files, &set->files_capacity, (size_t)set->n_files + 1,
                   sizeof *grown),
           "a tensor list");
    set->files = grown;
    *file = &set->files[set->n_files++];
    memset(*file, 0, sizeof **file);
    (*file)->file.fd = -1;
done:
    return rc;
}

int32_t sb_tensors_reserve(struct sb_tensors *set, size_t more, const char *name)
{
    struct sb_tensor *grown;

    if (more > (size_t)(SB_TENSORS_MAX - set->n))
        return sb_fail(SPECBATCH_E_FORMAT, "%s: more than %d tensors", name, SB_TENSORS_MAX);
    grown = sb_grow(&set->mem, set->list, &set->capacity, (size_t)set->n + more, sizeof *grown);
    if (!grown)
        return sb_fail(SPECBATCH_E_NOMEM, "no memory for %zu tensors", more);
    set->list = grown;
    return SPECBATCH_OK;
}

int32_t sb_tensors_check_name(const char *name, size_t length, const char *file)
{
    if (length == 0 || length > NAME_MAX_BYTES)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: a tensor's name has %zu bytes", file, length);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return sb_fail(SPECBATCH_E_FORMAT, "%s: a tensor's name holds a control character",
                           file);
    return SPECBATCH_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct sb_tensor *)a)->name, ((const struct sb_tensor *)b)->name);
}

int32_t sb_tensors_sort(struct sb_tensors *set)
{
    sb_sort(set->list, (size_t)set->n, sizeof *set->list, by_name);
    for (int32_t i = 1; i < set->n; i++)
        if (strcmp(set->list[i - 1].name, set->list[i].name) == 0)
            return sb_fail(SPECBATCH_E_FORMAT, "tensor %.80s is in %.60s and in %.60s",
                           set->list[i].name, sb_tensors_file(set, &set->list[i - 1]),
                           sb_tensors_file(set, &set->list[i]));
    return SPECBATCH_OK;
}

void sb_tensors_close(struct sb_tensors *set)
{
    struct sb_mem mem;

    if (!set)
        return;
    mem = set->mem;
    for (int32_t i = 0; i < set->n_files; i++) {
        if (!set->files[i].borrowed)
            sb_file_close(&set->files[i].file);
        sb_json_free(set->files[i].doc);
        sb_free(&mem, set->files[i].names);
    }
    sb_free(&mem, set->expert_names);
    sb_free(&mem, set->files);
    sb_free(&mem, set->list);
    sb_free(&mem, set);
}

/* ------------------------------------------------------------------------------ using it */

/* How the set's files call a tensor. */
static const char *spell(char spelled[SB_TENSOR_NAME_BYTES], const struct sb_tensors *set,
                         const char *name)
{
    if (!set->spell)
        return name;
    set->spell(spelled, set->arch, name);
    return spelled;
}

const struct sb_tensor *sb_tensors_find(const struct sb_tensors *set, const char *name)
{
    char spelled[SB_TENSOR_NAME_BYTES];
    int32_t low = 0, high = set->n;

    name = spell(spelled, set, name);
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        const int order = strcmp(set->list[middle].name, name);
        if (order == 0)
            return &set->list[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* The two ways of transformers to name the tensors of a model within another one, which the files
 * of one model all have in common. */
static void spell_inner(char spelled[SB_TENSOR_NAME_BYTES], const struct sb_arch *arch,
                        const char *name)
{
    (void)arch;
    snprintf(spelled, SB_TENSOR_NAME_BYTES, "language_model.%s", name);
}
static void spell_outer(char spelled[SB_TENSOR_NAME_BYTES], const struct sb_arch *arch,
                        const char *name)
{
    static const char model[] = "model.";
    const size_t n = sizeof model - 1;

    (void)arch;
    if (strncmp(name, model, n) == 0)
        snprintf(spelled, SB_TENSOR_NAME_BYTES, "model.language_model.%s", name + n);
    else
        snprintf(spelled, SB_TENSOR_NAME_BYTES, "%s", name);
}

void sb_tensors_set_arch(struct sb_tensors *set, const struct sb_arch *arch)
{
    static const char table[] = "model.embed_tokens.weight";

    set->arch = arch;
    set->norm_shift = (float)arch->norm_shift;
    if (!arch->whole_type || sb_tensors_find(set, table))
        return;
    set->spell = spell_inner;
    if (sb_tensors_find(set, table))
        return;
    set->spell = spell_outer;
    if (!sb_tensors_find(set, table))
        set->spell = NULL;
}

/* A shape for a message: "[4, 8]". */
static void shape_text(char text[96], int32_t rank, const int64_t *shape)
{
    size_t at = 1;

    text[0] = '[';
    for (int32_t i = 0; i < rank && at < 72; i++)
        at += (size_t)snprintf(text + at, 96 - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(text + at, 96 - at, "]");
}

int32_t sb_tensors_check_shape(const struct sb_tensors *set, const struct sb_tensor *t,
                               int32_t rank, const int64_t *shape)
{
    char got[96], expected[96];

    if (t->rank == rank && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) == 0)
        return SPECBATCH_OK;
    shape_text(got, t->rank, t->shape);
    shape_text(expected, rank, shape);
    return sb_fail(SPECBATCH_E_FORMAT, "%.60s: tensor %s has shape %s, %s calls for %s",
                   sb_tensors_file(set, t), t->name, got, set->config, expected);
}

int32_t sb_tensors_check_type(enum sb_dtype *dtype, const struct sb_tensors *set,
                              const struct sb_tensor *t)
{
    if (sb_tensor_dtype(dtype, t))
        return SPECBATCH_OK;
    return sb_fail(SPECBATCH_E_UNSUPPORTED,
                   "%.60s: tensor %s has dtype %s; supported: F32, BF16, F16, Q8_0, Q4_0, "
                   "Q4_K, Q5_K, Q6_K, MXFP4",
                   sb_tensors_file(set, t), t->name, t->type);
}

int32_t sb_tensors_need(const struct sb_tensor **out, enum sb_dtype *dtype,
                        const struct sb_tensors *set, const char *name, int32_t rows, int32_t n_in)
{
    const int64_t want[2] = {rows, n_in};
    const int32_t rank = n_in ? 2 : 1;
    const struct sb_tensor *t = sb_tensors_find(set, name);
    char spelled[SB_TENSOR_NAME_BYTES];
    int32_t rc;

    if (!t)
        return sb_fail(SPECBATCH_E_FORMAT, "tensor %s is missing, and %s calls for it",
                       spell(spelled, set, name), set->config);
    rc = sb_tensors_check_shape(set, t, rank, want);
    if (rc != SPECBATCH_OK)
        return rc;
    rc = sb_tensors_check_type(dtype, set, t);
    if (rc != SPECBATCH_OK)
        return rc;
    if (rank == 1 && sb_dtype_is_quantised(*dtype))
        return sb_fail(SPECBATCH_E_UNSUPPORTED,
                       "%.60s: tensor %s has dtype %s; a vector must be F32, BF16 or F16",
                       sb_tensors_file(set, t), t->name, t->type);
    *out = t;
    return SPECBATCH_OK;
}

int32_t sb_tensors_count(const struct sb_tensors *set)
{
    return set->n;
}

const struct sb_tensor *sb_tensors_at(const struct sb_tensors *set, int32_t index)
{
    return &set->list[index];
}

int32_t sb_tensors_read(const struct sb_tensors *set, const struct sb_tensor *tensor,
                        uint64_t offset, void *into, size_t bytes)
{
    const struct sb_file *file = &set->files[tensor->file].file;

    if (offset > tensor->bytes || bytes > tensor->bytes - offset)
        return sb_fail(SPECBATCH_E_INVALID, "%s: tensor %.100s: read beyond its end",
                       sb_tensors_file(set, tensor), tensor->name);
    if (sb_tensor_has_rows_apart(tensor))
        return sb_tensor_rows_read(set, tensor, offset, into, bytes);
    return sb_file_read(file, tensor->offset + offset, into, bytes);
}

int sb_tensor_dtype(enum sb_dtype *dtype, const struct sb_tensor *tensor)
{
    static const char *const names[SB_DTYPES] = {
        [SB_F32] = "F32",   [SB_BF16] = "BF16", [SB_F16] = "F16",
        [SB_Q8_0] = "Q8_0", [SB_Q4_0] = "Q4_0", [SB_Q4_K] = "Q4_K",
        [SB_Q5_K] = "Q5_K", [SB_Q6_K] = "Q6_K", [SB_MXFP4] = "MXFP4",
    };

    for (int i = 0; i < SB_DTYPES; i++)
        if (strcmp(tensor->type, names[i]) == 0) {
            *dtype = (enum sb_dtype)i;
            return 1;
        }
    return 0;
}

const char *sb_tensors_file(const struct sb_tensors *set, const struct sb_tensor *tensor)
{
    return set->files[tensor->file].file.name;
}

/* *same: whether two tensors hold the same bytes. Each is read into one half of the buffer. */
static int32_t compare(int *same, const struct sb_tensors *set, const struct sb_tensor *a,
                       const struct sb_tensor *b, char *buffer, size_t bytes)
{
    const size_t block = bytes / 2;
    int32_t rc = SPECBATCH_OK;

    *same = strcmp(a->type, b->type) == 0 && a->bytes == b->bytes;
    for (uint64_t at = 0; *same && at < a->bytes; at += block) {
        const size_t count = a->bytes - at < block ? (size_t)(a->bytes - at) : block;
        SB_TRY(sb_tensors_read(set, a, at, buffer, count));
        SB_TRY(sb_tensors_read(set, b, at, buffer + block, count));
        *same = memcmp(buffer, buffer + block, count) == 0;
    }
done:
    return rc;
}

int32_t sb_tensors_check_tied(const struct sb_tensors *set, int32_t vocab, int32_t hidden,
                              char *buffer, size_t bytes)
{
    static const char embed[] = "model.embed_tokens.weight", head[] = "lm_head.weight";
    const struct sb_tensor *a = NULL, *b = NULL;
    enum sb_dtype dtype;
    int same = 0;
    int32_t rc = SPECBATCH_OK;

    if (!sb_tensors_find(set, head))
        goto done;
    SB_TRY(sb_tensors_need(&a, &dtype, set, embed, vocab, hidden));
    SB_TRY(sb_tensors_need(&b, &dtype, set, head, vocab, hidden));
    SB_TRY(compare(&same, set, a, b, buffer, bytes));
    if (!same)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%.40s: tensor %s differs from %s, which config.json ties it to: versions of "
                "transformers disagree; set tie_word_embeddings to false to use it, or remove it",
                sb_tensors_file(set, b), head, embed);
done:
    return rc;
}
