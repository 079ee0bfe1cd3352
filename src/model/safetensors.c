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
 * If there is an index, its map from tensors to files and the files themselves must agree in both
 * directions. A tensor that two sources place differently is an attack or an accident, and there is
 * no guessing which source is right.
 *
 * The names of the tensors stay in the JSON document of their header, which the set keeps.
 */
#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "json.h"
#include "status.h"

#define HEADER_MAX 100000000u /* bytes; the reference implementation has the same limit */
#define SHARDS_MAX 4096
#define NAME_MAX_BYTES 1024

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

/* Checks a tensor's name. It will be quoted in messages and so in the host's logs, so it must not
 * hold a NUL or a control character, nor be endless. */
static int32_t check_name(const char *name, size_t length, const char *file)
{
    if (length == 0 || length > NAME_MAX_BYTES)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: a tensor's name has %zu bytes", file, length);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return sb_fail(SPECBATCH_E_FORMAT, "%s: a tensor's name holds a control character",
                           file);
    return SPECBATCH_OK;
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

    qsort(set->list + first, (size_t)(set->n - first), sizeof *set->list, by_offset);
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

/* A clone that was made without Git LFS has small text files in place of the weights. This is told
 * from their first bytes, which taken for a header's length are larger than any file. */
static int32_t refuse_pointer(const struct sb_tensor_file *shard, const unsigned char prefix[8])
{
    static const char pointer[] = "version https://git-lfs";
    char start[sizeof pointer - 1];
    int32_t rc = SPECBATCH_OK;

    if (memcmp(prefix, pointer, 8) != 0 || shard->file.size < sizeof start)
        goto done;
    SB_TRY(sb_file_read(&shard->file, 0, start, sizeof start));
    if (memcmp(start, pointer, sizeof start) == 0)
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%.100s: a Git LFS pointer, not the file itself; fetch the real one (git lfs pull)",
                shard->file.name);
done:
    return rc;
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
    for (int i = 7; i >= 0; i--)
        n = n << 8 | prefix[i];
    SB_TRY(refuse_pointer(shard, prefix));
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

/* Adds an open shard's tensors to the list. */
static int32_t read_shard(struct sb_tensors *set, struct sb_tensor_file *shard)
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
        SB_TRY(check_name(name, length, shard->file.name));
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

/* Opens the file at `path`, called `name` in messages, as a new shard, and adds its tensors to the
 * list. E_NOT_FOUND when there is no such file. */
static int32_t add_shard(struct sb_tensors *set, const char *path, const char *name)
{
    struct sb_tensor_file *shard;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_tensors_add_file(&shard, set));
    if (strlen(name) >= sizeof shard->file.name)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "file name too long: %.100s", name);
    SB_TRY(sb_file_open(&shard->file, path));
    SB_TRY(read_shard(set, shard));
done:
    return rc;
}

/* -------------------------------------------------------------------------- the index */

/* Whether a shard's name can only be that of a file beside the index. */
static int plain_name(const char *name)
{
    return name[0] && name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\') &&
           !strstr(name, "..");
}

static int32_t shard_by_name(const struct sb_tensors *set, const char *name)
{
    for (int32_t i = set->n_files - 1; i >= 0; i--)
        if (strcmp(set->files[i].file.name, name) == 0)
            return i;
    return -1;
}

/* Opens the files that the index names, each once. */
static int32_t open_files(struct sb_tensors *set, const char *dir, const struct sb_json_node *map)
{
    static const char index[] = "model.safetensors.index.json";
    char path[1024];
    int32_t rc = SPECBATCH_OK;

    for (const struct sb_json_node *m = sb_json_first(map); m; m = sb_json_next(m)) {
        size_t length;
        const char *tensor = sb_json_name(m, &length), *name = sb_json_word(m);
        SB_TRY(check_name(tensor, length, index));
        if (!name || !plain_name(name))
            SB_FAIL(SPECBATCH_E_FORMAT, "%s: tensor %.100s: \"%.60s\" is not a plain file name",
                    index, tensor, name ? name : "(not a string)");
        if (shard_by_name(set, name) >= 0)
            continue;
        if (set->n_files == SHARDS_MAX)
            SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: more than %d files", index, SHARDS_MAX);
        SB_TRY(sb_file_join(path, dir, name));
        rc = add_shard(set, path, name);
        if (rc == SPECBATCH_E_NOT_FOUND)
            rc = sb_fail(SPECBATCH_E_IO, "%s: %.150s is not there", index, name);
        if (rc != SPECBATCH_OK)
            goto done;
    }
done:
    return rc;
}

/* Checks that the index and the shards agree: every tensor of either is in the other, in the same
 * file. mapped: one zeroed byte for each tensor of the list, to be used here. */
static int32_t check_map(const struct sb_tensors *set, const struct sb_json_node *map, char *mapped)
{
    for (const struct sb_json_node *m = sb_json_first(map); m; m = sb_json_next(m)) {
        const char *file = sb_json_string(m, NULL);
        const char *name = sb_json_name(m, NULL);
        const struct sb_tensor *t = sb_tensors_find(set, name);
        if (!t || strcmp(sb_tensors_file(set, t), file) != 0)
            return sb_fail(SPECBATCH_E_FORMAT,
                           "model.safetensors.index.json: tensor %.100s is not in %.60s", name,
                           file);
        mapped[t - set->list] = 1;
    }
    for (int32_t i = 0; i < set->n; i++)
        if (!mapped[i])
            return sb_fail(SPECBATCH_E_FORMAT,
                           "%.60s: tensor %.100s is not in model.safetensors.index.json",
                           sb_tensors_file(set, &set->list[i]), set->list[i].name);
    return SPECBATCH_OK;
}

static int32_t open_index(struct sb_tensors *set, const char *dir, const struct sb_json *doc)
{
    const struct sb_json_node *map = sb_json_get(sb_json_root(doc), "weight_map");
    char *mapped = NULL;
    int32_t rc = SPECBATCH_OK;

    if (sb_json_kind(map) != SB_JSON_OBJECT)
        SB_FAIL(SPECBATCH_E_FORMAT, "model.safetensors.index.json: weight_map is not an object");
    SB_TRY(open_files(set, dir, map));
    SB_TRY(sb_tensors_sort(set));
    SB_NEW(mapped, sb_alloc(&set->mem, (size_t)set->n, 1), "the index");
    SB_TRY(check_map(set, map, mapped));
done:
    sb_free(&set->mem, mapped);
    return rc;
}

/* --------------------------------------------------------------------------- the set */

static int file_exists(const char *dir, const char *name)
{
    char path[1024];
    struct sb_file file;
    int there = sb_file_join(path, dir, name) == SPECBATCH_OK &&
                sb_file_open(&file, path) == SPECBATCH_OK;

    if (there)
        sb_file_close(&file);
    return there;
}

/* Fails because neither safetensors file is there, and says what there is instead. */
static int32_t no_weights(const char *dir)
{
    if (file_exists(dir, "pytorch_model.bin") || file_exists(dir, "pytorch_model.bin.index.json"))
        return sb_fail(
            SPECBATCH_E_UNSUPPORTED,
            "the weights are pytorch_model.bin (pickle); convert the checkpoint to safetensors");
    return sb_fail(SPECBATCH_E_IO, "no model.safetensors or model.safetensors.index.json there");
}

int32_t sb_tensors_open_file(struct sb_tensors **out, const struct sb_mem *mem, const char *path)
{
    struct sb_tensors *set = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_tensors_create(&set, mem));
    SB_TRY(add_shard(set, path, sb_file_name(path)));
    SB_TRY(sb_tensors_sort(set));
    *out = set;
    set = NULL;
done:
    sb_tensors_close(set);
    return rc;
}

int32_t sb_tensors_open(struct sb_tensors **out, const struct sb_mem *mem, const char *dir)
{
    char path[1024];
    struct sb_tensors *set = NULL;
    struct sb_json *index = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_file_join(path, dir, "model.safetensors"));
    rc = sb_tensors_open_file(out, mem, path);
    if (rc != SPECBATCH_E_NOT_FOUND)
        goto done;
    SB_TRY(sb_file_join(path, dir, "model.safetensors.index.json"));
    rc = sb_json_load(&index, mem, path, HEADER_MAX);
    if (rc == SPECBATCH_E_NOT_FOUND)
        rc = no_weights(dir);
    if (rc != SPECBATCH_OK)
        goto done;
    SB_TRY(sb_tensors_create(&set, mem));
    SB_TRY(open_index(set, dir, index));
    *out = set;
    set = NULL;
done:
    sb_tensors_close(set);
    sb_json_free(index);
    return rc;
}
