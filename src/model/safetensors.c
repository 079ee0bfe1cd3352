/*
 * Reading safetensors, as strictly as the reference implementation, and more strictly where that is
 * lax (huggingface/safetensors, README "Format" and src/tensor.rs).
 *
 *   file   [u64 N, little endian][N bytes of JSON][data: tensors one after the other]
 *   JSON   {"__metadata__": {string: string},
 *           "name": {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, ...}
 *
 * The whole header of a file is checked when the file is opened: types are known, sizes multiply
 * without overflow to the length that is stated, and the tensors fill the data up to its last byte,
 * without a hole or an overlap. So whoever reads a tensor later may trust its shape and its range.
 *
 * The names of the tensors stay in the JSON document of their header, which the set keeps.
 */
#include "model/safetensors.h"

#include <string.h>

#include "json.h"
#include "little.h"
#include "sort.h"
#include "status.h"

#define HEADER_MAX 100000000u /* bytes; the reference implementation has the same limit */

static const struct dtype {
    const char *name;
    uint32_t bits;
} dtypes[] = {
    {"F32", 32},    {"BF16", 16},   {"F16", 16},        {"F64", 64},        {"BOOL", 8},
    {"U8", 8},      {"I8", 8},      {"I16", 16},        {"U16", 16},        {"I32", 32},
    {"U32", 32},    {"I64", 64},    {"U64", 64},        {"C64", 64},        {"F8_E5M2", 8},
    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E4M3FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
};

/* ------------------------------------------------------------------ one entry of a header */

static int32_t read_dtype(struct sb_tensor *t, const struct sb_json_node *node, const char *file,
                          uint32_t *bits)
{
    const char *spelled = sb_json_word(node);

    if (!spelled)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: tensor %.100s: dtype is not a word", file, t->name);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(spelled, dtypes[i].name) == 0) {
            memcpy(t->type, dtypes[i].name, strlen(dtypes[i].name) + 1);
            *bits = dtypes[i].bits;
            return SPECBATCH_OK;
        }
    return sb_fail(SPECBATCH_E_FORMAT, "%s: tensor %.100s: unknown dtype \"%.20s\"", file, t->name,
                   spelled);
}

/* Reads the shape, and multiplies it to *elements. */
static int32_t read_shape(struct sb_tensor *t, const struct sb_json_node *node, const char *file,
                          uint64_t *elements)
{
    if (sb_json_kind(node) != SB_JSON_ARRAY)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: tensor %.100s: shape is not an array", file,
                       t->name);
    if (sb_json_count(node) > SB_TENSOR_RANK_MAX)
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s: tensor %.100s: more than %d dimensions", file,
                       t->name, SB_TENSOR_RANK_MAX);
    *elements = 1;
    for (const struct sb_json_node *item = sb_json_first(node); item; item = sb_json_next(item)) {
        int64_t size;
        if (!sb_json_int(item, &size) || size < 0)
            return sb_fail(SPECBATCH_E_FORMAT,
                           "%s: tensor %.100s: shape holds something that is not a size", file,
                           t->name);
        if (size != 0 && *elements > UINT64_MAX / (uint64_t)size)
            return sb_fail(SPECBATCH_E_FORMAT, "%s: tensor %.100s: shape overflows", file, t->name);
        *elements *= (uint64_t)size;
        t->shape[t->rank++] = size;
    }
    return SPECBATCH_OK;
}

/* Reads data_offsets into t->offset, still relative to the data, and t->bytes. */
static int32_t read_offsets(struct sb_tensor *t, const struct sb_json_node *node, const char *file)
{
    const struct sb_json_node *first = sb_json_first(node);
    int64_t begin, end;

    if (sb_json_kind(node) != SB_JSON_ARRAY || sb_json_count(node) != 2 ||
        !sb_json_int(first, &begin) || !sb_json_int(sb_json_next(first), &end) || begin < 0 ||
        end < begin)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: tensor %.100s: data_offsets is not [begin, end]",
                       file, t->name);
    t->offset = (uint64_t)begin;
    t->bytes = (uint64_t)(end - begin);
    return SPECBATCH_OK;
}

static int32_t read_tensor(struct sb_tensor *t, const struct sb_json_node *entry, const char *file)
{
    uint64_t elements = 0;
    uint32_t bits = 0;
    int32_t rc = SPECBATCH_OK;

    if (sb_json_kind(entry) != SB_JSON_OBJECT || sb_json_count(entry) != 3)
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%s: tensor %.100s: not an object of dtype, shape and data_offsets", file, t->name);
    SB_TRY(read_dtype(t, sb_json_get(entry, "dtype"), file, &bits));
    SB_TRY(read_shape(t, sb_json_get(entry, "shape"), file, &elements));
    SB_TRY(read_offsets(t, sb_json_get(entry, "data_offsets"), file));
    if (elements > UINT64_MAX / bits || elements * bits % 8 != 0 || elements * bits / 8 != t->bytes)
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%s: tensor %.100s: its %llu bytes are not what shape and dtype %s need", file,
                t->name, (unsigned long long)t->bytes, t->type);
done:
    return rc;
}

static int32_t check_metadata(const struct sb_json_node *entry, const char *file)
{
    if (sb_json_kind(entry) != SB_JSON_OBJECT)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: __metadata__ is not an object", file);
    for (const struct sb_json_node *m = sb_json_first(entry); m; m = sb_json_next(m))
        if (!sb_json_string(m, NULL))
            return sb_fail(SPECBATCH_E_FORMAT,
                           "%s: __metadata__ holds something that is not a string", file);
    return SPECBATCH_OK;
}

/* --------------------------------------------------------------------------- one file */

static int by_offset(const void *a, const void *b)
{
    const struct sb_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty tensors first */
}

/* Checks that the tensors list[first .. n) fill the shard's data exactly, which begins at byte
 * `data` of the file. Makes their offsets relative to the file. */
static int32_t check_layout(struct sb_tensors *set, const struct sb_tensor_file *shard,
                            int32_t first, uint64_t data)
{
    const uint64_t available = shard->file.size - data;
    uint64_t end = 0;

    sb_sort(set->list + first, (size_t)(set->n - first), sizeof *set->list, by_offset);
    for (int32_t i = first; i < set->n; i++) {
        struct sb_tensor *t = &set->list[i];
        if (t->offset != end)
            return sb_fail(SPECBATCH_E_FORMAT,
                           "%s: tensor %.100s: begins at byte %llu of the data, %s ends at %llu",
                           shard->file.name, t->name, (unsigned long long)t->offset,
                           t->offset < end ? "overlapping what"
                                           : "leaving a hole: what is before it",
                           (unsigned long long)end);
        if (t->bytes > available - end)
            return sb_fail(SPECBATCH_E_FORMAT,
                           "%s: tensor %.100s: ends beyond the file (truncated?)", shard->file.name,
                           t->name);
        end += t->bytes;
        t->offset += data;
    }
    if (end != available)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: %llu bytes after the last tensor", shard->file.name,
                       (unsigned long long)(available - end));
    return SPECBATCH_OK;
}

/* Reads and parses the header of an open shard; *data is where its tensors' bytes begin. */
static int32_t read_header(struct sb_tensors *set, struct sb_tensor_file *shard, uint64_t *data)
{
    unsigned char prefix[8];
    uint64_t n = 0;
    char *text = NULL;
    int32_t rc = SPECBATCH_OK;

    if (shard->file.size < sizeof prefix)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: too short for a safetensors file", shard->file.name);
    SB_TRY(sb_file_read(&shard->file, 0, prefix, sizeof prefix));
    n = sb_little(prefix, sizeof prefix);
    if (n > HEADER_MAX || n > shard->file.size - sizeof prefix)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: header of %llu bytes, the file has %llu (limit %u)",
                shard->file.name, (unsigned long long)n, (unsigned long long)shard->file.size,
                HEADER_MAX);
    SB_NEW(text, sb_alloc_raw(&set->mem, (size_t)n + 1, 1), shard->file.name);
    SB_TRY(sb_file_read(&shard->file, sizeof prefix, text, (size_t)n));
    if (n == 0 || text[0] != '{')
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: the header is not a JSON object", shard->file.name);
    SB_TRY(sb_json_parse(&shard->doc, &set->mem, text, (size_t)n, shard->file.name));
    *data = sizeof prefix + n;
done:
    sb_free(&set->mem, text);
    return rc;
}

int32_t sb_safetensors_read(struct sb_tensors *set, struct sb_tensor_file *shard)
{
    const int32_t first = set->n;
    const int32_t index = (int32_t)(shard - set->files);
    const struct sb_json_node *root, *entry;
    uint64_t data = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_header(set, shard, &data));
    root = sb_json_root(shard->doc);
    SB_TRY(sb_tensors_reserve(set, sb_json_count(root), shard->file.name));
    for (entry = sb_json_first(root); entry; entry = sb_json_next(entry)) {
        size_t length;
        const char *name = sb_json_name(entry, &length);
        SB_TRY(sb_tensors_check_name(name, length, shard->file.name));
        if (strcmp(name, "__metadata__") == 0) {
            SB_TRY(check_metadata(entry, shard->file.name));
            continue;
        }
        set->list[set->n] = (struct sb_tensor){.name = name, .file = index};
        SB_TRY(read_tensor(&set->list[set->n], entry, shard->file.name));
        set->n++;
    }
    SB_TRY(check_layout(set, shard, first, data));
done:
    return rc;
}
