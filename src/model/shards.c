/*
 * Opening the files of a checkpoint's directory; shards.h says which.
 *
 * If there is an index, its map from tensors to files and the files themselves must agree in both
 * directions. A tensor that two sources place differently is an attack or an accident, and there is
 * no guessing which source is right.
 */
#include "model/shards.h"

#include <string.h>

#include "hash.h"
#include "json.h"
#include "model/safetensors.h"
#include "model/torch_file.h"
#include "status.h"

#define INDEX_MAX 100000000u /* bytes */
#define SHARDS_MAX 4096

/* A format of files, and how they are called. */
struct format {
    const char *file, *index;
    int32_t (*read)(struct sb_tensors *set, struct sb_tensor_file *shard);
};

static const struct format formats[] = {
    {"model.safetensors", "model.safetensors.index.json", sb_safetensors_read},
    {"pytorch_model.bin", "pytorch_model.bin.index.json", sb_torch_read},
};

/* --------------------------------------------------------------------------- one file */

/* A clone that was made without Git LFS has small text files in place of the weights. */
static int32_t refuse_pointer(const struct sb_file *file)
{
    static const char pointer[] = "version https://git-lfs";
    char start[sizeof pointer - 1];
    int32_t rc = SPECBATCH_OK;

    if (file->size < sizeof start)
        goto done;
    SB_TRY(sb_file_read(file, 0, start, sizeof start));
    if (memcmp(start, pointer, sizeof start) == 0)
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%.100s: a Git LFS pointer, not the file itself; fetch the real one (git lfs pull)",
                file->name);
done:
    return rc;
}

/* Opens the file at `path`, called `name` in messages, as a new shard, and adds its tensors to the
 * list. E_NOT_FOUND when there is no such file. */
static int32_t add_shard(struct sb_tensors *set, const struct format *format, const char *path,
                         const char *name)
{
    struct sb_tensor_file *shard;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_tensors_add_file(&shard, set));
    if (strlen(name) >= sizeof shard->file.name)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "file name too long: %.100s", name);
    SB_TRY(sb_file_open(&shard->file, path));
    SB_TRY(refuse_pointer(&shard->file));
    SB_TRY(format->read(set, shard));
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

/* The open files by name: a hash table with open addressing, at most half full. */
struct opened {
    struct sb_hash_key key;
    int32_t file1[2 * SHARDS_MAX]; /* index + 1; 0: the slot is free */
};

/* The slot of a name, or the free slot where it belongs. */
static int32_t *slot_of(struct opened *opened, const struct sb_tensors *set, const char *name)
{
    const size_t last = 2 * SHARDS_MAX - 1;
    size_t slot = (size_t)sb_hash(&opened->key, name, strlen(name)) & last;

    while (opened->file1[slot] && strcmp(set->files[opened->file1[slot] - 1].file.name, name) != 0)
        slot = (slot + 1) & last;
    return &opened->file1[slot];
}

/* Opens the file of an entry of the index, unless it is open. */
static int32_t open_entry(struct sb_tensors *set, const struct format *format, const char *dir,
                          const struct sb_json_node *entry, struct opened *opened)
{
    size_t length;
    const char *index = format->index, *tensor = sb_json_name(entry, &length),
               *name = sb_json_word(entry);
    char path[1024];
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_tensors_check_name(tensor, length, index));
    if (!name || !plain_name(name))
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: tensor %.100s: \"%.60s\" is not a plain file name", index,
                tensor, name ? name : "(not a string)");
    int32_t *slot = slot_of(opened, set, name);
    if (*slot)
        goto done;
    if (set->n_files == SHARDS_MAX)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: more than %d files", index, SHARDS_MAX);
    SB_TRY(sb_file_join(path, dir, name));
    rc = add_shard(set, format, path, name);
    if (rc == SPECBATCH_E_NOT_FOUND)
        rc = sb_fail(SPECBATCH_E_IO, "%s: %.150s is not there", index, name);
    *slot = set->n_files;
done:
    return rc;
}

/* Opens the files that the index names, each once. */
static int32_t open_files(struct sb_tensors *set, const struct format *format, const char *dir,
                          const struct sb_json_node *map)
{
    struct opened *opened = NULL;
    int32_t rc = SPECBATCH_OK;

    if (sb_json_count(map) > SB_TENSORS_MAX)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: more than %d tensors", format->index, SB_TENSORS_MAX);
    SB_NEW(opened, sb_alloc(&set->mem, 1, sizeof *opened), "the index");
    opened->key = sb_hash_draw(opened);
    for (const struct sb_json_node *m = sb_json_first(map); m; m = sb_json_next(m))
        SB_TRY(open_entry(set, format, dir, m, opened));
done:
    sb_free(&set->mem, opened);
    return rc;
}

/* Checks that the index and the shards agree: every tensor of either is in the other, in the same
 * file. mapped: one zeroed byte for each tensor of the list, to be used here. */
static int32_t check_map(const struct sb_tensors *set, const struct format *format,
                         const struct sb_json_node *map, char *mapped)
{
    for (const struct sb_json_node *m = sb_json_first(map); m; m = sb_json_next(m)) {
        const char *file = sb_json_string(m, NULL);
        const char *name = sb_json_name(m, NULL);
        const struct sb_tensor *t = sb_tensors_find(set, name);
        if (!t || strcmp(sb_tensors_file(set, t), file) != 0)
            return sb_fail(SPECBATCH_E_FORMAT, "%s: tensor %.100s is not in %.60s", format->index,
                           name, file);
        mapped[t - set->list] = 1;
    }
    for (int32_t i = 0; i < set->n; i++)
        if (!mapped[i])
            return sb_fail(SPECBATCH_E_FORMAT, "%.60s: tensor %.100s is not in %s",
                           sb_tensors_file(set, &set->list[i]), set->list[i].name, format->index);
    return SPECBATCH_OK;
}

static int32_t open_index(struct sb_tensors *set, const struct format *format, const char *dir,
                          const struct sb_json *doc)
{
    const struct sb_json_node *map = sb_json_get(sb_json_root(doc), "weight_map");
    char *mapped = NULL;
    int32_t rc = SPECBATCH_OK;

    if (sb_json_kind(map) != SB_JSON_OBJECT)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: weight_map is not an object", format->index);
    SB_TRY(open_files(set, format, dir, map));
    SB_TRY(sb_tensors_sort(set));
    SB_NEW(mapped, sb_alloc(&set->mem, (size_t)set->n, 1), "the index");
    SB_TRY(check_map(set, format, map, mapped));
done:
    sb_free(&set->mem, mapped);
    return rc;
}

/* --------------------------------------------------------------------------- the set */

static int32_t open_single(struct sb_tensors **out, const struct sb_mem *mem,
                           const struct format *format, const char *path)
{
    struct sb_tensors *set = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_tensors_create(&set, mem));
    SB_TRY(add_shard(set, format, path, sb_file_name(path)));
    SB_TRY(sb_tensors_sort(set));
    *out = set;
    set = NULL;
done:
    sb_tensors_close(set);
    return rc;
}

/* Opens a directory's files of one format. E_NOT_FOUND: there are none. */
static int32_t open_format(struct sb_tensors **out, const struct sb_mem *mem,
                           const struct format *format, const char *dir)
{
    char path[1024];
    struct sb_tensors *set = NULL;
    struct sb_json *index = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_file_join(path, dir, format->file));
    rc = open_single(out, mem, format, path);
    if (rc != SPECBATCH_E_NOT_FOUND)
        goto done;
    SB_TRY(sb_file_join(path, dir, format->index));
    SB_TRY(sb_json_load(&index, mem, path, INDEX_MAX));
    SB_TRY(sb_tensors_create(&set, mem));
    SB_TRY(open_index(set, format, dir, index));
    *out = set;
    set = NULL;
done:
    sb_tensors_close(set);
    sb_json_free(index);
    return rc;
}

int32_t sb_tensors_open_file(struct sb_tensors **out, const struct sb_mem *mem, const char *path)
{
    return open_single(out, mem, &formats[0], path);
}

int32_t sb_tensors_open(struct sb_tensors **out, const struct sb_mem *mem, const char *dir)
{
    int32_t rc = SPECBATCH_E_NOT_FOUND;

    for (size_t i = 0; i < sizeof formats / sizeof *formats && rc == SPECBATCH_E_NOT_FOUND; i++)
        rc = open_format(out, mem, &formats[i], dir);
    if (rc == SPECBATCH_E_NOT_FOUND)
        rc = sb_fail(SPECBATCH_E_IO,
                     "no model.safetensors or model.safetensors.index.json there, nor a "
                     "pytorch_model.bin");
    return rc;
}
