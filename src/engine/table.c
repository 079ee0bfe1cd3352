/* Searching, reading and writing tables of n-grams; table.h draws them. */
#include "engine/table.h"

#include <string.h>

#include "status.h"

enum {
    VERSION = 1,
    MAGIC = 12,
    DIGEST = SB_DIGEST_TEXT - 1,
    HEAD = MAGIC + (3 + SB_TABLE_MATCH) * 4 + DIGEST
};
static const char magic[MAGIC + 1] = "specbatch-ng";

void sb_ngram_table_clear(struct sb_ngram_table *table)
{
    sb_free(&table->mem, table->words);
    table->words = NULL;
}

/* -------------------------------------------------------------------------- searching */

/* The order of contexts of n tokens: below 0, 0 or above 0. */
static int compare(const int32_t *a, const int32_t *b, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* What follows a context of n tokens, or -1. A table that is being made may have no words yet. */
static int32_t find(const struct sb_ngram_table *table, const int32_t *context, int32_t n)
{
    const size_t size = (size_t)n + 1;
    size_t low = 0, high = table->n[n];

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int32_t *entry = table->words + table->at[n] + middle * size;
        const int order = compare(entry, context, n);
        if (order == 0)
            return entry[n];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

int32_t sb_ngram_table_next(const struct sb_ngram_table *table, const int32_t *end, int32_t length)
{
    int32_t n = table->max_match < length ? table->max_match : length, next = -1;

    for (; n > 0 && next < 0; n--)
        next = find(table, end - n, n);
    return next;
}

/* ---------------------------------------------------------------------------- writing */

static int32_t write_head(struct sb_checked_out *out, const struct sb_ngram_table *table)
{
    unsigned char bytes[HEAD] = {0}, *at = bytes + MAGIC;
    int32_t rc = SPECBATCH_OK;

    memcpy(bytes, magic, MAGIC);
    at = sb_put_number(at, VERSION);
    at = sb_put_number(at, table->n_ids);
    at = sb_put_number(at, table->max_match);
    for (int32_t n = 1; n <= SB_TABLE_MATCH; n++)
        at = sb_put_number(at, n <= table->max_match ? (int32_t)table->n[n] : 0);
    memcpy(at, table->digest, strlen(table->digest));
    SB_TRY(sb_checked_write(out, bytes, sizeof bytes));
    SB_TRY(sb_checked_end_part(out));
done:
    return rc;
}

int32_t sb_ngram_table_write(const struct sb_ngram_table *table, const char *path)
{
    struct sb_checked_out out = {.file = {.fd = -1}};
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_checked_create(&out, path));
    SB_TRY(write_head(&out, table));
    SB_TRY(sb_checked_write_numbers(&out, table->words, table->n_words));
    SB_TRY(sb_checked_end_part(&out));
    SB_TRY(sb_new_file_keep(&out.file));
done:
    sb_new_file_drop(&out.file);
    return rc;
}

/* ---------------------------------------------------------------------------- reading */

/* Takes what the head says. Returns 0 when it contradicts itself, or the file is of another size;
 * no sum here can overflow, since every count has 31 bits. */
static int take_head(struct sb_ngram_table *table, const unsigned char *at, uint64_t file_size)
{
    uint64_t words = 0;
    int32_t count;

    at = sb_get_number(at, &table->n_ids);
    at = sb_get_number(at, &table->max_match);
    if (table->n_ids < 1 || table->max_match < 1 || table->max_match > SB_TABLE_MATCH)
        return 0;
    for (int32_t n = 1; n <= SB_TABLE_MATCH; n++) {
        at = sb_get_number(at, &count);
        if (count < 0 || (n > table->max_match && count > 0))
            return 0;
        table->n[n] = (size_t)count;
        table->at[n] = (size_t)words;
        words += (uint64_t)count * (uint64_t)(n + 1);
    }
    memcpy(table->digest, at, DIGEST);
    table->digest[DIGEST] = '\0';
    table->n_words = (size_t)words;
    return file_size == HEAD + SB_CHECK + words * 4 + SB_CHECK;
}

static int32_t read_head(struct sb_ngram_table *table, struct sb_checked_in *in)
{
    unsigned char bytes[HEAD];
    int32_t version, rc = SPECBATCH_OK;

    if (in->file.size < HEAD + SB_CHECK)
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: too short for a table of n-grams", in->file.name);
    SB_TRY(sb_checked_read(in, bytes, sizeof bytes));
    if (memcmp(bytes, magic, MAGIC) != 0)
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: not a table of n-grams", in->file.name);
    sb_get_number(bytes + MAGIC, &version);
    if (version != VERSION)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%.100s: version %d of the format, this library reads %d",
                in->file.name, (int)version, VERSION);
    SB_TRY(sb_checked_read_check(in));
    if (!take_head(table, bytes + MAGIC + 4, in->file.size))
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%.100s: the numbers in its head contradict each other or its "
                "length",
                in->file.name);
done:
    return rc;
}

/* Whether the entries of one n have ids of the table only, and are sorted without repetition. */
static int is_sorted(const struct sb_ngram_table *table, int32_t n)
{
    const size_t size = (size_t)n + 1;
    const int32_t *entry = table->words + table->at[n];

    for (size_t i = 0; i < table->n[n]; i++, entry += size) {
        for (size_t j = 0; j < size; j++)
            if (entry[j] < 0 || entry[j] >= table->n_ids)
                return 0;
        if (i > 0 && compare(entry - size, entry, n) >= 0)
            return 0;
    }
    return 1;
}

int32_t sb_ngram_table_read(struct sb_ngram_table *table, const char *path)
{
    struct sb_checked_in in;
    int32_t rc = sb_checked_open(&in, path);

    if (rc != SPECBATCH_OK)
        return rc;
    SB_TRY(read_head(table, &in));
    SB_NEW(table->words, sb_alloc_raw(&table->mem, table->n_words, sizeof *table->words),
           "a table of n-grams");
    SB_TRY(sb_checked_read_numbers(&in, table->words, table->n_words));
    SB_TRY(sb_checked_read_check(&in));
    for (int32_t n = 1; n <= table->max_match; n++)
        if (!is_sorted(table, n))
            SB_FAIL(SPECBATCH_E_FORMAT,
                    "%.100s: entries of %d tokens are not in order, or have "
                    "ids that are too large",
                    in.file.name, n);
done:
    sb_file_close(&in.file);
    return rc;
}
