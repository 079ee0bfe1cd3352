/*
 * Opening GGUF files (gguf.h draws them).
 *
 * The length of the metadata stands nowhere, so a file is read from its beginning on into a buffer
 * that grows as it is parsed, and never beyond what the file has. A key stands for its place in
 * that buffer, and an array for the place of its first element: reading 150,000 pieces of a
 * vocabulary allocates nothing. Counts are not believed. What they count has to be in the file, and
 * the tables grow with what has been found.
 *
 * The data is held to the rules of safetensors: tensors lie one after the other, but for the
 * padding, so none overlaps another and nothing is hidden between them.
 */
#include "gguf.h"

#include <stdio.h>
#include <string.h>

#include "gguf_types.h"
#include "little.h"
#include "sort.h"
#include "status.h"

enum {
    HEAD_MAX = 1 << 28,   /* bytes before the data */
    HEAD_FIRST = 1 << 16, /* bytes that are read first */
    KEYS_MAX = 1 << 16,
    TENSORS_MAX = 1000000,
    FILES_MAX = 4096,
    KEY_MAX_BYTES = 65535,
    LENGTH_BYTES = 8, /* of the length that a string begins with */
    DEPTH_MAX = 4,    /* of arrays in arrays */
    ALIGNMENT_MAX = 1 << 20
};

/* The types of tensors, by their numbers: `block` elements take `bytes`. */
static const struct {
    const char *name;
    uint16_t block, bytes;
} types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},    [40] = {"NVFP4", 64, 36},
};

uint32_t sb_gguf_type_number(const char *name)
{
    uint32_t number = 0;

    while (!types[number].name || strcmp(types[number].name, name) != 0)
        number++;
    return number;
}

struct key {
    size_t at, n; /* where in the head */
    const char *text;
    struct sb_gguf_value value;
    size_t value_at, end; /* end: behind the value */
};

/* What a file has before its data. */
struct head {
    const struct sb_mem *mem;
    const struct sb_file *file;
    unsigned char *bytes; /* the first `loaded` bytes of the file */
    size_t loaded, at;    /* at: parsed so far */
    struct key *keys;     /* in the order of their bytes once all is parsed */
    size_t n_keys, key_capacity;
};

struct sb_gguf {
    struct sb_mem mem;
    struct sb_file *files;
    size_t n_files;
    struct head head; /* of the first part */
    struct sb_gguf_tensor *tensors;
    size_t n_tensors, tensor_capacity;
};

/* ----------------------------------------------------------------------- reading a head */

/* Makes the next n bytes of the head available. */
static int32_t want(struct head *h, uint64_t n, const char *what)
{
    const uint64_t size = h->file->size;
    unsigned char *grown;
    uint64_t need;
    int32_t rc = SPECBATCH_OK;

    if (n > size - h->at)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: ends inside %s (truncated?)", h->file->name, what);
    if (n > HEAD_MAX - h->at)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: more than %d bytes before the tensors", h->file->name,
                HEAD_MAX);
    need = h->at + n;
    if (need <= h->loaded)
        goto done;
    need = need > 2 * (uint64_t)h->loaded ? need : 2 * (uint64_t)h->loaded;
    need = need > HEAD_FIRST ? need : HEAD_FIRST;
    need = need < size ? need : size;
    SB_NEW(grown, sb_realloc(h->mem, h->bytes, (size_t)need, 1), h->file->name);
    h->bytes = grown;
    SB_TRY(sb_file_read(h->file, h->loaded, grown + h->loaded, (size_t)need - h->loaded));
    h->loaded = (size_t)need;
done:
    return rc;
}

static int32_t read_number(struct head *h, size_t size, uint64_t *number, const char *what)
{
    int32_t rc = want(h, size, what);

    if (rc == SPECBATCH_OK) {
        *number = sb_little(h->bytes + h->at, size);
        h->at += size;
    }
    return rc;
}

/* Reads a string's length, and steps over it: the string begins at *at. */
static int32_t read_string(struct head *h, size_t *at, uint64_t *n, const char *what)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_number(h, LENGTH_BYTES, n, what));
    SB_TRY(want(h, *n, what));
    *at = h->at;
    h->at += (size_t)*n;
done:
    return rc;
}

/* Whether a name can be quoted in messages: printable ASCII, as keys are by the format. */
static int is_plain(const unsigned char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (name[i] <= 0x20 || name[i] >= 0x7f)
            return 0;
    return n > 0;
}

/* ------------------------------------------------------------------------- the metadata */

static int32_t check_flags(const struct head *h, uint64_t n, const char *what)
{
    for (uint64_t i = 0; i < n; i++)
        if (h->bytes[h->at + i] > 1)
            return sb_fail(SPECBATCH_E_FORMAT, "%s: %s: a flag that is neither 0 nor 1",
                           h->file->name, what);
    return SPECBATCH_OK;
}

static int32_t read_array(struct head *h, struct sb_gguf_value *value, const char *what, int depth);

/* Checks `count` values of one type and steps over them. */
static int32_t skip_values(struct head *h, uint32_t type, uint64_t count, const char *what,
                           int depth)
{
    const size_t size = sb_gguf_type_size(type);
    struct sb_gguf_value inner;
    uint64_t n;
    size_t at;
    int32_t rc = SPECBATCH_OK;

    if (type >= SB_GGUF_TYPES)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %s: unknown type of value %u", h->file->name, what,
                (unsigned)type);
    if (size > 0) {
        if (count > HEAD_MAX)
            SB_FAIL(SPECBATCH_E_FORMAT, "%s: %s: %llu values", h->file->name, what,
                    (unsigned long long)count);
        SB_TRY(want(h, count * size, what));
        if (type == SB_GGUF_BOOL)
            SB_TRY(check_flags(h, count, what));
        h->at += (size_t)(count * size);
        goto done;
    }
    for (uint64_t i = 0; i < count; i++)
        if (type == SB_GGUF_STRING)
            SB_TRY(read_string(h, &at, &n, what));
        else
            SB_TRY(read_array(h, &inner, what, depth + 1));
done:
    return rc;
}

/* Reads the type and number of an array's elements, and steps over the elements. An element takes
 * one byte at least, so the file's length bounds their number. */
static int32_t read_array(struct head *h, struct sb_gguf_value *value, const char *what, int depth)
{
    uint64_t of;
    int32_t rc = SPECBATCH_OK;

    if (depth > DEPTH_MAX)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %s: arrays more than %d deep", h->file->name, what,
                DEPTH_MAX);
    SB_TRY(read_number(h, 4, &of, what));
    SB_TRY(read_number(h, 8, &value->count, what));
    value->of = (uint32_t)of;
    SB_TRY(skip_values(h, value->of, value->count, what, depth));
done:
    return rc;
}

static int32_t read_value(struct head *h, struct key *key, const char *what)
{
    uint64_t type;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_number(h, 4, &type, what));
    key->value.type = (uint32_t)type;
    if (type == SB_GGUF_STRING) {
        SB_TRY(read_string(h, &key->value_at, &key->value.count, what));
    } else if (type == SB_GGUF_ARRAY) {
        key->value_at = h->at + 12; /* behind the type and the number of its elements */
        SB_TRY(read_array(h, &key->value, what, 1));
    } else {
        key->value_at = h->at;
        SB_TRY(skip_values(h, (uint32_t)type, 1, what, 0));
    }
done:
    return rc;
}

static int32_t read_key(struct head *h)
{
    char what[80];
    struct key *grown, key = {.n = 0};
    uint64_t n;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_string(h, &key.at, &n, "a key"));
    if (n > KEY_MAX_BYTES || !is_plain(h->bytes + key.at, (size_t)n))
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: byte %zu: not a key", h->file->name, key.at);
    key.n = (size_t)n;
    snprintf(what, sizeof what, "%.*s", n < 70 ? (int)n : 70, (const char *)h->bytes + key.at);
    SB_TRY(read_value(h, &key, what));
    key.end = h->at;
    SB_NEW(grown, sb_grow(h->mem, h->keys, &h->key_capacity, h->n_keys + 1, sizeof *grown), what);
    h->keys = grown;
    h->keys[h->n_keys++] = key;
done:
    return rc;
}

static int compare(const char *a, size_t n_a, const char *b, size_t n_b)
{
    const int order = memcmp(a, b, n_a < n_b ? n_a : n_b);

    return order ? order : (n_a > n_b) - (n_a < n_b);
}

static int by_key(const void *a, const void *b)
{
    const struct key *x = a, *y = b;

    return compare(x->text, x->n, y->text, y->n);
}

/* Sorts the keys, now that the head stays where it is. */
static int32_t sort_keys(struct head *h)
{
    for (size_t i = 0; i < h->n_keys; i++) {
        struct key *key = &h->keys[i];
        key->text = (const char *)h->bytes + key->at;
        key->value.at = h->bytes + key->value_at;
    }
    sb_sort(h->keys, h->n_keys, sizeof *h->keys, by_key);
    for (size_t i = 1; i < h->n_keys; i++)
        if (by_key(&h->keys[i - 1], &h->keys[i]) == 0)
            return sb_fail(SPECBATCH_E_FORMAT, "%s: %.*s is there twice", h->file->name,
                           h->keys[i].n < 70 ? (int)h->keys[i].n : 70, h->keys[i].text);
    return SPECBATCH_OK;
}

static int find_key(const struct head *h, const char *text, struct sb_gguf_value *value)
{
    const size_t n = strlen(text);
    size_t low = 0, high = h->n_keys;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct key *key = &h->keys[middle];
        const int order = compare(key->text, key->n, text, n);
        if (order == 0) {
            *value = key->value;
            return 1;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* -------------------------------------------------------------------------- the tensors */

/* Reads the dimensions, the fastest of which comes first, and multiplies them. */
static int32_t read_shape(struct head *h, struct sb_gguf_tensor *t, uint64_t *elements)
{
    uint64_t rank, size;
    int32_t rc = SPECBATCH_OK;

    *elements = 1;
    SB_TRY(read_number(h, 4, &rank, t->name));
    if (rank > SB_GGUF_RANK_MAX)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: tensor %s: more than %d dimensions", h->file->name,
                t->name, SB_GGUF_RANK_MAX);
    t->rank = (int32_t)rank;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        SB_TRY(read_number(h, 8, &size, t->name));
        if (size > INT64_MAX || (size != 0 && *elements > INT64_MAX / size))
            SB_FAIL(SPECBATCH_E_FORMAT, "%s: tensor %s: shape overflows", h->file->name, t->name);
        *elements *= size;
        t->shape[i] = (int64_t)size;
    }
done:
    return rc;
}

/* Reads the type, and computes from it how many bytes the tensor has. */
static int32_t read_type(struct head *h, struct sb_gguf_tensor *t, uint64_t elements)
{
    uint64_t type, row;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_number(h, 4, &type, t->name));
    if (type >= sizeof types / sizeof *types || !types[type].name)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: tensor %s: unknown type %llu", h->file->name, t->name,
                (unsigned long long)type);
    t->type = types[type].name;
    row = t->rank > 0 ? (uint64_t)t->shape[t->rank - 1] : 1;
    if (row % types[type].block != 0)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: tensor %s: rows of %llu elements are not blocks of %s",
                h->file->name, t->name, (unsigned long long)row, t->type);
    elements /= types[type].block;
    if (elements > UINT64_MAX / types[type].bytes)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: tensor %s: shape overflows", h->file->name, t->name);
    t->bytes = elements * types[type].bytes;
done:
    return rc;
}

/* Reads one tensor's info; its offset is still that in the data. */
static int32_t read_tensor(struct sb_gguf *g, struct head *h)
{
    struct sb_gguf_tensor *grown, t = {.file = (int32_t)g->n_files - 1};
    uint64_t n, elements;
    size_t at;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_string(h, &at, &n, "a tensor's name"));
    if (n > SB_GGUF_NAME_MAX || !is_plain(h->bytes + at, (size_t)n))
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: byte %zu: not a tensor's name", h->file->name, at);
    memcpy(t.name, h->bytes + at, (size_t)n);
    SB_TRY(read_shape(h, &t, &elements));
    SB_TRY(read_type(h, &t, elements));
    SB_TRY(read_number(h, 8, &t.offset, t.name));
    SB_NEW(grown,
           sb_grow(&g->mem, g->tensors, &g->tensor_capacity, g->n_tensors + 1, sizeof *grown),
           h->file->name);
    g->tensors = grown;
    g->tensors[g->n_tensors++] = t;
done:
    return rc;
}

static int by_offset(const void *a, const void *b)
{
    const struct sb_gguf_tensor *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty tensors first */
}

static uint64_t align_up(uint64_t at, uint64_t alignment)
{
    return at + (alignment - at % alignment) % alignment;
}

static int32_t read_alignment(const struct head *h, uint64_t *alignment)
{
    struct sb_gguf_value value;
    int64_t number = 32;

    if (find_key(h, "general.alignment", &value) &&
        (!sb_gguf_int(&value, &number) || number < 8 || number > ALIGNMENT_MAX || number % 8 != 0))
        return sb_fail(SPECBATCH_E_FORMAT,
                       "%s: general.alignment is not a multiple of 8 from 8 to %d", h->file->name,
                       ALIGNMENT_MAX);
    *alignment = (uint64_t)number;
    return SPECBATCH_OK;
}

/* Checks that the tensors from `first` on fill the data of their file, and makes their offsets
 * those in the file. Only padding may be between them and behind the last one. */
static int32_t check_layout(struct sb_gguf *g, const struct head *h, size_t first)
{
    uint64_t alignment = 0, data, available, end = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_alignment(h, &alignment));
    data = align_up(h->at, alignment);
    if (first == g->n_tensors)
        goto done;
    available = h->file->size > data ? h->file->size - data : 0;
    sb_sort(g->tensors + first, g->n_tensors - first, sizeof *g->tensors, by_offset);
    for (size_t i = first; i < g->n_tensors; i++) {
        struct sb_gguf_tensor *t = &g->tensors[i];
        if (t->offset != align_up(end, alignment))
            SB_FAIL(SPECBATCH_E_FORMAT,
                    "%s: tensor %s: begins at byte %llu of the data, what is before it ends at "
                    "%llu, and the alignment is %llu",
                    h->file->name, t->name, (unsigned long long)t->offset, (unsigned long long)end,
                    (unsigned long long)alignment);
        /* a tensor without elements, too, begins inside the file or at its end */
        if (h->file->size < data || t->offset > available || t->bytes > available - t->offset)
            SB_FAIL(SPECBATCH_E_FORMAT, "%s: tensor %s: ends beyond the file (truncated?)",
                    h->file->name, t->name);
        end = t->offset + t->bytes;
        t->offset += data;
    }
    if (available - end >= alignment)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %llu bytes after the last tensor", h->file->name,
                (unsigned long long)(available - end));
done:
    return rc;
}

/* ----------------------------------------------------------------------------- one file */

static int32_t check_version(struct head *h)
{
    uint64_t magic, version;
    int32_t rc = SPECBATCH_OK;

    if (h->file->size < 24)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: too short for a GGUF file", h->file->name);
    SB_TRY(read_number(h, 4, &magic, "the header"));
    SB_TRY(read_number(h, 4, &version, "the header"));
    if (magic != 0x46554747)
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%s: not a GGUF file: it does not begin with GGUF; of a checkpoint in a folder "
                "give the folder",
                h->file->name);
    if (version != 0 && version % 65536 == 0)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: big-endian GGUF files are not supported",
                h->file->name);
    if (version != 2 && version != 3)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: version %llu of GGUF is not supported; versions 2 and 3 are", h->file->name,
                (unsigned long long)version);
done:
    return rc;
}

/* Reads all that the last of the files has before its data. */
static int32_t read_head(struct sb_gguf *g, struct head *h)
{
    const size_t first = g->n_tensors;
    uint64_t n_tensors, n_keys;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(check_version(h));
    SB_TRY(read_number(h, 8, &n_tensors, "the header"));
    SB_TRY(read_number(h, 8, &n_keys, "the header"));
    if (n_tensors > TENSORS_MAX - first || n_keys > KEYS_MAX)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %llu tensors and %llu keys; the limits are %d and %d",
                h->file->name, (unsigned long long)n_tensors, (unsigned long long)n_keys,
                TENSORS_MAX, KEYS_MAX);
    for (uint64_t i = 0; i < n_keys; i++)
        SB_TRY(read_key(h));
    for (uint64_t i = 0; i < n_tensors; i++)
        SB_TRY(read_tensor(g, h));
    SB_TRY(sort_keys(h));
    SB_TRY(check_layout(g, h, first));
done:
    return rc;
}

static void clear_head(struct head *h)
{
    sb_free(h->mem, h->bytes);
    sb_free(h->mem, h->keys);
}

/* Opens a file as the next part and reads its head, which the caller clears. */
static int32_t add_file(struct sb_gguf *g, const char *path, struct head *h)
{
    struct sb_file *file = &g->files[g->n_files];
    int32_t rc = SPECBATCH_OK;

    h->mem = &g->mem;
    h->file = file;
    SB_TRY(sb_file_open(file, path));
    g->n_files++;
    SB_TRY(read_head(g, h));
done:
    return rc;
}

/* ------------------------------------------------------------------------------- parts */

/* Which part a file is, and of how many. */
static int32_t read_split(const struct head *h, int64_t *number, int64_t *count)
{
    struct sb_gguf_value value;

    *number = 0;
    *count = 1;
    if ((find_key(h, "split.no", &value) && !sb_gguf_int(&value, number)) ||
        (find_key(h, "split.count", &value) && !sb_gguf_int(&value, count)) || *count < 0 ||
        *count > FILES_MAX || *number < 0 || (*number > 0 && *number >= *count))
        return sb_fail(SPECBATCH_E_FORMAT, "%s: split.no and split.count are not a part of parts",
                       h->file->name);
    *count = *count > 0 ? *count : 1;
    return SPECBATCH_OK;
}

/* Makes the path of a part from that of the first, which ends in -00001-of-00003.gguf. */
static int32_t part_path(char path[1024], const char *first, int64_t number, int64_t count)
{
    char end[32];
    const size_t n = strlen(first);
    size_t stem;

    snprintf(end, sizeof end, "-%05d-of-%05d.gguf", 1, (int)count);
    stem = n > strlen(end) ? n - strlen(end) : 0;
    if (stem == 0 || strcmp(first + stem, end) != 0 || n >= 1024)
        return sb_fail(SPECBATCH_E_FORMAT,
                       "%.200s: the first of %d parts, and its name does not end in %s",
                       sb_file_name(first), (int)count, end);
    snprintf(path, 1024, "%.*s-%05d-of-%05d.gguf", (int)stem, first, (int)number + 1, (int)count);
    return SPECBATCH_OK;
}

static int32_t add_part(struct sb_gguf *g, const char *path, int64_t number, int64_t count)
{
    struct head head = {.at = 0};
    int64_t its_number, its_count;
    int32_t rc;

    rc = add_file(g, path, &head);
    if (rc == SPECBATCH_E_NOT_FOUND)
        rc = sb_fail(SPECBATCH_E_IO, "%.200s is not there, one of %d parts", sb_file_name(path),
                     (int)count);
    SB_TRY(rc);
    SB_TRY(read_split(&head, &its_number, &its_count));
    if (its_number != number || its_count != count)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: it is part %d of %d, and not %d of %d", head.file->name,
                (int)its_number + 1, (int)its_count, (int)number + 1, (int)count);
done:
    if (head.mem)
        clear_head(&head);
    return rc;
}

static int32_t add_parts(struct sb_gguf *g, const char *first)
{
    char path[1024];
    struct sb_file *grown;
    int64_t number, count;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(read_split(&g->head, &number, &count));
    if (number != 0)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: part %d of %d; open the first part", g->files->name,
                (int)number + 1, (int)count);
    if (count == 1)
        goto done;
    SB_NEW(grown, sb_realloc(&g->mem, g->files, (size_t)count, sizeof *grown), "the parts");
    g->files = grown;
    g->head.file = grown;
    for (number = 1; number < count; number++) {
        SB_TRY(part_path(path, first, number, count));
        SB_TRY(add_part(g, path, number, count));
    }
done:
    return rc;
}

/* --------------------------------------------------------------------------- the whole */

int32_t sb_gguf_open(struct sb_gguf **out, const struct sb_mem *mem, const char *path)
{
    struct sb_gguf *g = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(g, sb_alloc(mem, 1, sizeof *g), "a GGUF file");
    g->mem = *mem;
    SB_NEW(g->files, sb_alloc(mem, 1, sizeof *g->files), "a GGUF file");
    SB_TRY(add_file(g, path, &g->head));
    SB_TRY(add_parts(g, path));
    *out = g;
    g = NULL;
done:
    sb_gguf_close(g);
    return rc;
}

void sb_gguf_close(struct sb_gguf *g)
{
    struct sb_mem mem;

    if (!g)
        return;
    mem = g->mem;
    for (size_t i = 0; i < g->n_files; i++)
        sb_file_close(&g->files[i]);
    if (g->head.mem)
        clear_head(&g->head);
    sb_free(&mem, g->files);
    sb_free(&mem, g->tensors);
    sb_free(&mem, g);
}

int32_t sb_gguf_n_files(const struct sb_gguf *g)
{
    return (int32_t)g->n_files;
}

const struct sb_file *sb_gguf_file(const struct sb_gguf *g, int32_t index)
{
    return &g->files[index];
}

int32_t sb_gguf_n_tensors(const struct sb_gguf *g)
{
    return (int32_t)g->n_tensors;
}

const struct sb_gguf_tensor *sb_gguf_tensor(const struct sb_gguf *g, int32_t index)
{
    return &g->tensors[index];
}

int sb_gguf_get(const struct sb_gguf *g, const char *key, struct sb_gguf_value *value)
{
    return find_key(&g->head, key, value);
}

const char *sb_gguf_key(const struct sb_gguf *g, size_t index, size_t *length)
{
    if (index >= g->head.n_keys)
        return NULL;
    *length = g->head.keys[index].n;
    return g->head.keys[index].text;
}

const unsigned char *sb_gguf_entry(const struct sb_gguf *g, size_t index, size_t *n)
{
    const struct key *key = &g->head.keys[index];
    const size_t begin = key->at - LENGTH_BYTES;

    *n = key->end - begin;
    return g->head.bytes + begin;
}
