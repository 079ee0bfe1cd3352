/* Reading the directory of a zip archive; zip.h draws the file. */
#include "zip.h"

#include <stdlib.h>
#include <string.h>

#include "little.h"
#include "sort.h"
#include "status.h"

enum {
    LOCAL_BYTES = 30, /* of the records, without the names and extra fields behind them */
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    ZIP64_END_BYTES = 56,
    ZIP64_LOCATOR_BYTES = 20,
    ZIP64_EXTRA = 1, /* the kind of extra field that has numbers of 64 bits */
    ENCRYPTED = 1,   /* a flag */
    DIRECTORY_MAX = 1 << 26,
    NAME_MAX_BYTES = 1024
};

static const char local_mark[] = "PK\3\4", central_mark[] = "PK\1\2", end_mark[] = "PK\5\6",
                  zip64_end_mark[] = "PK\6\6", zip64_locator_mark[] = "PK\6\7";

/* Where the directory lies. */
struct place {
    uint64_t offset, bytes, entries;
};

static int is(const unsigned char *record, const char *mark)
{
    return memcmp(record, mark, 4) == 0;
}

/* -------------------------------------------------------------------------- the end */

/* Reads the zip64 end, if its locator stands before the end of the file at byte `end`. */
static int32_t read_zip64_end(struct place *place, uint64_t *end, const struct sb_file *file)
{
    unsigned char locator[ZIP64_LOCATOR_BYTES], record[ZIP64_END_BYTES];
    uint64_t at;
    int32_t rc = SPECBATCH_OK;

    if (*end < sizeof locator + sizeof record)
        goto done;
    SB_TRY(sb_file_read(file, *end - sizeof locator, locator, sizeof locator));
    if (!is(locator, zip64_locator_mark))
        goto done;
    at = sb_little(locator + 8, 8);
    if (at > *end - sizeof locator - sizeof record)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: the zip64 locator points beyond the file", file->name);
    SB_TRY(sb_file_read(file, at, record, sizeof record));
    if (!is(record, zip64_end_mark))
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: the zip64 locator points to no zip64 end", file->name);
    place->entries = sb_little(record + 32, 8);
    place->bytes = sb_little(record + 40, 8);
    place->offset = sb_little(record + 48, 8);
    *end = at;
done:
    return rc;
}

/* Archives with a comment behind the end are refused like files that are cut off: nothing that is
 * read here has one. The number of this file among the archive's is 0 if it is the only one; with
 * zip64 it may have all bits set. */
static int32_t find_directory(struct place *place, const struct sb_file *file)
{
    unsigned char record[END_BYTES];
    uint64_t end, number;
    int32_t rc = SPECBATCH_OK;

    if (file->size < sizeof record)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: too short for a zip archive", file->name);
    end = file->size - sizeof record;
    SB_TRY(sb_file_read(file, end, record, sizeof record));
    if (!is(record, end_mark))
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: does not end as a zip archive does (truncated?)",
                file->name);
    number = sb_little(record + 4, 2);
    if (number != 0 && number != UINT16_MAX)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: the last of several files of an archive", file->name);
    place->entries = sb_little(record + 10, 2);
    place->bytes = sb_little(record + 12, 4);
    place->offset = sb_little(record + 16, 4);
    SB_TRY(read_zip64_end(place, &end, file));
    if (place->offset > end || place->bytes > end - place->offset)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: the directory of the archive is not inside the file",
                file->name);
    if (place->bytes > DIRECTORY_MAX)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: a directory of %llu bytes, the limit is %d", file->name,
                (unsigned long long)place->bytes, DIRECTORY_MAX);
    if (place->entries > place->bytes / CENTRAL_BYTES)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %llu entries in a directory of %llu bytes", file->name,
                (unsigned long long)place->entries, (unsigned long long)place->bytes);
done:
    return rc;
}

/* -------------------------------------------------------------------- the directory */

/* What a central header says. A number of 32 bits that are all set stands in the zip64 field. */
struct central {
    uint64_t packed, bytes, header;
};

/* Takes from the extra fields the numbers that did not fit their 32 bits, in the format's order.
 * Returns 0 when one is missing, or the fields do not fill their bytes. */
static int widen(struct central *c, const unsigned char *extra, size_t n)
{
    uint64_t *const wide[] = {&c->bytes, &c->packed, &c->header};
    const unsigned char *field = NULL;
    size_t left = 0;

    while (n >= 4 && sb_little(extra + 2, 2) <= n - 4) {
        const size_t size = (size_t)sb_little(extra + 2, 2);
        if (!field && sb_little(extra, 2) == ZIP64_EXTRA) {
            field = extra + 4;
            left = size;
        }
        extra += 4 + size;
        n -= 4 + size;
    }
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        if (*wide[i] != UINT32_MAX)
            continue;
        if (left < 8)
            return 0;
        *wide[i] = sb_little(field, 8);
        field += 8;
        left -= 8;
    }
    return n == 0;
}

static int32_t check_entry(const struct sb_zip_entry *entry, const struct central *c,
                           const unsigned char *header, const struct sb_file *file)
{
    const uint64_t method = sb_little(header + 10, 2);

    for (const char *at = entry->name; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return sb_fail(SPECBATCH_E_FORMAT, "%s: an entry's name holds a control character",
                           file->name);
    if (sb_little(header + 8, 2) & ENCRYPTED)
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s: entry %.100s is encrypted", file->name,
                       entry->name);
    if (method != 0)
        return sb_fail(SPECBATCH_E_UNSUPPORTED,
                       "%s: entry %.100s is compressed (method %d); only stored ones are read",
                       file->name, entry->name, (int)method);
    if (c->packed != c->bytes || c->header > file->size || c->bytes > file->size - c->header)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: entry %.100s: its %llu bytes are not in the file",
                       file->name, entry->name, (unsigned long long)c->bytes);
    return SPECBATCH_OK;
}

/* Reads the central header at byte *at of the directory. Its name is moved one byte to the front,
 * over what has been read of the header, to make room for a NUL. */
static int32_t read_central(struct sb_zip *zip, size_t *at, size_t bytes,
                            const struct sb_file *file)
{
    unsigned char *header = zip->directory + *at;
    struct sb_zip_entry *entry = &zip->list[zip->n];
    const size_t left = bytes - *at;
    struct central c;
    size_t name, extra, comment;
    int32_t rc = SPECBATCH_OK;

    if (left < CENTRAL_BYTES || !is(header, central_mark))
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: the directory of the archive ends after %zu entries",
                file->name, zip->n);
    name = (size_t)sb_little(header + 28, 2);
    extra = (size_t)sb_little(header + 30, 2);
    comment = (size_t)sb_little(header + 32, 2);
    c = (struct central){sb_little(header + 20, 4), sb_little(header + 24, 4),
                         sb_little(header + 42, 4)};
    if (name + extra + comment > left - CENTRAL_BYTES ||
        !widen(&c, header + CENTRAL_BYTES + name, extra))
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: entry %zu of the archive's directory is broken",
                file->name, zip->n);
    if (name == 0 || name > NAME_MAX_BYTES || memchr(header + CENTRAL_BYTES, 0, name))
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: an entry's name is empty, too long, or has a NUL",
                file->name);
    memmove(header + CENTRAL_BYTES - 1, header + CENTRAL_BYTES, name);
    header[CENTRAL_BYTES - 1 + name] = '\0';
    *entry = (struct sb_zip_entry){(const char *)header + CENTRAL_BYTES - 1, c.header, c.bytes};
    SB_TRY(check_entry(entry, &c, header, file));
    zip->n++;
    *at += CENTRAL_BYTES + name + extra + comment;
done:
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct sb_zip_entry *)a)->name, ((const struct sb_zip_entry *)b)->name);
}

static int32_t read_directory(struct sb_zip *zip, const struct sb_file *file)
{
    struct place place = {0, 0, 0};
    size_t at = 0, bytes;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(find_directory(&place, file));
    bytes = (size_t)place.bytes;
    SB_NEW(zip->directory, sb_alloc_raw(&zip->mem, bytes, 1), file->name);
    SB_NEW(zip->list, sb_alloc(&zip->mem, (size_t)place.entries, sizeof *zip->list), file->name);
    SB_TRY(sb_file_read(file, place.offset, zip->directory, bytes));
    while (zip->n < place.entries)
        SB_TRY(read_central(zip, &at, bytes, file));
    if (at != bytes)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %zu bytes after the last entry of the archive's directory",
                file->name, bytes - at);
    sb_sort(zip->list, zip->n, sizeof *zip->list, by_name);
    for (size_t i = 1; i < zip->n; i++)
        if (by_name(&zip->list[i - 1], &zip->list[i]) == 0)
            SB_FAIL(SPECBATCH_E_FORMAT, "%s: two entries are called %.100s", file->name,
                    zip->list[i].name);
done:
    return rc;
}

int32_t sb_zip_open(struct sb_zip *zip, const struct sb_mem *mem, const struct sb_file *file)
{
    int32_t rc;

    *zip = (struct sb_zip){.mem = *mem};
    rc = read_directory(zip, file);
    if (rc != SPECBATCH_OK)
        sb_zip_close(zip);
    return rc;
}

void sb_zip_close(struct sb_zip *zip)
{
    sb_free(&zip->mem, zip->directory);
    sb_free(&zip->mem, zip->list);
    zip->directory = NULL;
    zip->list = NULL;
    zip->n = 0;
}

const struct sb_zip_entry *sb_zip_find(const struct sb_zip *zip, const char *name)
{
    const struct sb_zip_entry key = {name, 0, 0};

    return zip->n ? bsearch(&key, zip->list, zip->n, sizeof key, by_name) : NULL;
}

int32_t sb_zip_locate(uint64_t *data, const struct sb_file *file, const struct sb_zip_entry *entry)
{
    unsigned char header[LOCAL_BYTES];
    uint64_t at;
    int32_t rc = SPECBATCH_OK;

    if (entry->header > file->size || file->size - entry->header < sizeof header)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: entry %.100s begins beyond the file", file->name,
                entry->name);
    SB_TRY(sb_file_read(file, entry->header, header, sizeof header));
    if (!is(header, local_mark))
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: entry %.100s has no header before its data", file->name,
                entry->name);
    at = entry->header + sizeof header + sb_little(header + 26, 2) + sb_little(header + 28, 2);
    if (at > file->size || entry->bytes > file->size - at)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: entry %.100s: its %llu bytes are not in the file",
                file->name, entry->name, (unsigned long long)entry->bytes);
    *data = at;
done:
    return rc;
}
