/* Reading the tensors of a file of torch.save, which torch_file.h draws. What the list says of a
 * tensor is checked against its storage here, so whoever reads the tensor may trust its range. */
#include "model/torch_file.h"

#include <stdio.h>
#include <string.h>

#include "model/pickle.h"
#include "status.h"
#include "zip.h"

enum {
    PICKLE_MAX = 1 << 23, /* bytes of a list; one of 1000 tensors has about 150,000 */
    ENTRY_NAME_BYTES = 512
};

/* A file that is being read. */
struct torch_file {
    struct sb_tensors *set;
    struct sb_tensor_file *shard;
    const char *name; /* of the file, for messages */
    struct sb_zip zip;
    const char **types; /* of each entry of the archive: the type of elements that a tensor has
                           given it, or NULL */
    int prefix;         /* bytes of "NAME/", with which the names of all entries begin */
};

/* The archive's entry NAME/folder+name, or NULL. */
static const struct sb_zip_entry *find(const struct torch_file *f, const char *folder,
                                       const char *name)
{
    char path[ENTRY_NAME_BYTES];
    const int n = snprintf(path, sizeof path, "%.*s%s%s", f->prefix,
                           f->zip.n ? f->zip.list[0].name : "", folder, name);

    return n > 0 && (size_t)n < sizeof path ? sb_zip_find(&f->zip, path) : NULL;
}

/* Reads an entry of at most `max` bytes whole. The caller frees *out. */
static int32_t read_entry(unsigned char **out, const struct torch_file *f,
                          const struct sb_zip_entry *entry, size_t max)
{
    unsigned char *bytes = NULL;
    uint64_t at = 0;
    int32_t rc = SPECBATCH_OK;

    if (entry->bytes > max)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %.100s has %llu bytes, the limit is %zu", f->name,
                entry->name, (unsigned long long)entry->bytes, max);
    SB_TRY(sb_zip_locate(&at, &f->shard->file, entry));
    SB_NEW(bytes, sb_alloc_raw(&f->set->mem, (size_t)entry->bytes, 1), f->name);
    SB_TRY(sb_file_read(&f->shard->file, at, bytes, (size_t)entry->bytes));
    *out = bytes;
    bytes = NULL;
done:
    sb_free(&f->set->mem, bytes);
    return rc;
}

/* ------------------------------------------------------------------------ one tensor */

/* *elements: the product of the shape. Dimensions of one element, and all of an empty tensor, may
 * have any stride. */
static int32_t check_contiguous(uint64_t *elements, const struct torch_file *f,
                                const struct sb_pickled *p)
{
    uint64_t product = 1;
    int is_empty = 0;

    for (int32_t i = 0; i < p->rank; i++)
        is_empty |= p->shape[i] == 0;
    for (int32_t i = p->rank - 1; i >= 0 && !is_empty; i--) {
        if (p->shape[i] > 1 && (uint64_t)p->stride[i] != product)
            return sb_fail(
                SPECBATCH_E_UNSUPPORTED,
                "%s: tensor %.100s is not contiguous (a transposed or cut view); save it "
                "with .contiguous()",
                f->name, p->name);
        if (product > UINT64_MAX / (uint64_t)p->shape[i])
            return sb_fail(SPECBATCH_E_FORMAT, "%s: tensor %.100s: shape overflows", f->name,
                           p->name);
        product *= (uint64_t)p->shape[i];
    }
    *elements = is_empty ? 0 : product;
    return SPECBATCH_OK;
}

/* Finds the storage of a tensor, which has to have the size that the list says, and to be of one
 * type for all tensors in it. */
static int32_t find_storage(const struct sb_zip_entry **storage, struct torch_file *f,
                            const struct sb_pickled *p)
{
    const struct sb_zip_entry *entry = find(f, "data/", p->key);
    const char **type;
    int32_t rc = SPECBATCH_OK;

    if (!entry)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: tensor %.100s: its storage data/%.60s is not there",
                f->name, p->name, p->key);
    if (p->storage > UINT64_MAX / p->element_size || p->storage * p->element_size != entry->bytes)
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%s: tensor %.100s: its storage data/%.60s has %llu bytes, and not %llu elements "
                "of %s",
                f->name, p->name, p->key, (unsigned long long)entry->bytes,
                (unsigned long long)p->storage, p->type);
    type = &f->types[entry - f->zip.list];
    if (*type && strcmp(*type, p->type) != 0)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: tensor %.100s: its storage is %s here and %s elsewhere",
                f->name, p->name, p->type, *type);
    *type = p->type;
    *storage = entry;
done:
    return rc;
}

static int32_t add_tensor(struct torch_file *f, const struct sb_pickled *p)
{
    struct sb_tensor t = {.name = p->name, .rank = p->rank};
    const struct sb_zip_entry *storage = NULL;
    uint64_t elements = 0, data = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(check_contiguous(&elements, f, p));
    SB_TRY(find_storage(&storage, f, p));
    if (p->offset > p->storage || elements > p->storage - p->offset)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: tensor %.100s: ends beyond its storage", f->name, p->name);
    SB_TRY(sb_zip_locate(&data, &f->shard->file, storage));
    t.offset = data + p->offset * p->element_size;
    t.bytes = elements * p->element_size;
    t.file = (int32_t)(f->shard - f->set->files);
    memcpy(t.type, p->type, strlen(p->type) + 1);
    memcpy(t.shape, p->shape, sizeof t.shape);
    f->set->list[f->set->n++] = t;
done:
    return rc;
}

/* ------------------------------------------------------------------------- the file */

/* Refuses what torch.save wrote before it wrote archives: it begins with a pickle of this number.
 */
static int32_t refuse_old_format(const struct sb_tensor_file *shard)
{
    static const unsigned char magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                          0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    unsigned char start[sizeof magic];
    int32_t rc = SPECBATCH_OK;

    if (shard->file.size < sizeof magic)
        goto done;
    SB_TRY(sb_file_read(&shard->file, 0, start, sizeof start));
    if (memcmp(start, magic, sizeof magic) == 0)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: in the format of torch before 1.6; load it with torch, and save it again",
                shard->file.name);
done:
    return rc;
}

static int32_t check_byteorder(const struct torch_file *f)
{
    const struct sb_zip_entry *entry = find(f, "", "byteorder");
    unsigned char *order = NULL;
    int32_t rc = SPECBATCH_OK;

    if (!entry)
        goto done;
    SB_TRY(read_entry(&order, f, entry, 16));
    if (entry->bytes != 6 || memcmp(order, "little", 6) != 0)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: its numbers are not little-endian", f->name);
done:
    sb_free(&f->set->mem, order);
    return rc;
}

static int32_t read_list(struct sb_pickled **list, size_t *n, struct torch_file *f)
{
    const struct sb_zip_entry *entry;
    unsigned char *pickle = NULL;
    int32_t rc = SPECBATCH_OK;

    if (f->zip.n > 0 && strchr(f->zip.list[0].name, '/'))
        f->prefix = (int)(strchr(f->zip.list[0].name, '/') + 1 - f->zip.list[0].name);
    entry = find(f, "", "data.pkl");
    if (!entry)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: an archive without data.pkl, so not one of torch.save",
                f->name);
    if (find(f, "", "constants.pkl"))
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: a TorchScript program; what is saved has to be a model's state_dict()",
                f->name);
    SB_TRY(check_byteorder(f));
    SB_TRY(read_entry(&pickle, f, entry, PICKLE_MAX));
    f->shard->names = (char *)pickle;
    rc = sb_pickle_read(list, n, &f->set->mem, pickle, (size_t)entry->bytes, f->name);
done:
    return rc;
}

int32_t sb_torch_read(struct sb_tensors *set, struct sb_tensor_file *shard)
{
    struct torch_file f = {.set = set, .shard = shard, .name = shard->file.name};
    struct sb_pickled *list = NULL;
    size_t n = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(refuse_old_format(shard));
    SB_TRY(sb_zip_open(&f.zip, &set->mem, &shard->file));
    SB_NEW(f.types, sb_alloc(&set->mem, f.zip.n, sizeof *f.types), f.name);
    SB_TRY(read_list(&list, &n, &f));
    SB_TRY(sb_tensors_reserve(set, n, f.name));
    for (size_t i = 0; i < n; i++)
        SB_TRY(add_tensor(&f, &list[i]));
done:
    sb_free(&set->mem, list);
    sb_free(&set->mem, f.types);
    sb_zip_close(&f.zip);
    return rc;
}
