/*
 * Tables of n-grams. The first byte says what the file is:
 *
 *     0   the rest of the input
 *     1   a forged one: numbers of the head and entries are the input's, and all checks are right
 *     2   a table that is made of the input's bytes, which are its tokens
 *
 * What is checked: a file is refused with a status that the header allows, or no lookup gives an id
 * that the table does not have; and what was made is read again, byte for byte.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/table.h"
#include "fuzz/support/fuzz.h"

enum { MEMORY = 1 << 22, LOOKUPS = 32 };
static const char name[] = "table";

static void look_up(const struct sb_ngram_table *table, struct fuzz_input input)
{
    int32_t context[SB_TABLE_MATCH];

    for (int i = 0; i < LOOKUPS; i++) {
        const int32_t length = (int32_t)fuzz_below(&input, SB_TABLE_MATCH + 1);
        int32_t next;
        for (int32_t j = 0; j < length; j++)
            context[j] = fuzz_byte(&input);
        next = sb_ngram_table_next(table, context + length, length);
        FUZZ_CHECK(next >= -1 && next < table->n_ids);
    }
}

/* Writes a file whose numbers are the input's. */
static void forge(const char *path, struct fuzz_input *input)
{
    unsigned char head[88], *at = head + 12;
    struct sb_checked_out out = {.file = {.fd = -1}};
    int32_t word;

    memset(head, 0, sizeof head);
    memcpy(head, "specbatch-ng", 12);
    at = sb_put_number(at, 1);
    at = sb_put_number(at, (int32_t)fuzz_number(input, fuzz_byte(input) % 5));
    at = sb_put_number(at, (int32_t)fuzz_byte(input));
    for (int n = 1; n <= SB_TABLE_MATCH; n++)
        at = sb_put_number(at, (int32_t)fuzz_number(input, fuzz_byte(input) % 5));
    FUZZ_CHECK(sb_checked_create(&out, path) == SPECBATCH_OK);
    FUZZ_CHECK(sb_checked_write(&out, head, sizeof head) == SPECBATCH_OK);
    FUZZ_CHECK(sb_checked_end_part(&out) == SPECBATCH_OK);
    while (input->n > LOOKUPS) {
        word = fuzz_byte(input);
        FUZZ_CHECK(sb_checked_write_numbers(&out, &word, 1) == SPECBATCH_OK);
    }
    FUZZ_CHECK(sb_checked_end_part(&out) == SPECBATCH_OK);
    FUZZ_CHECK(sb_new_file_keep(&out.file) == SPECBATCH_OK);
}

/* Makes a table of the input, writes it, and reads it again. */
static void make(const char *path, struct fuzz_input *input)
{
    specbatch_table_options options = SPECBATCH_TABLE_OPTIONS_INIT;
    struct sb_ngram_table made = {.mem = fuzz_mem}, read = {.mem = fuzz_mem};
    size_t n;
    int32_t *ids;

    options.max_match = 1 + (int32_t)fuzz_below(input, SB_TABLE_MATCH);
    options.min_match = 1 + (int32_t)fuzz_below(input, (uint32_t)options.max_match);
    options.min_count = 1 + (int32_t)fuzz_below(input, 3);
    n = input->n;
    ids = malloc(n * sizeof *ids + 1);

    FUZZ_CHECK(ids != NULL);
    for (size_t i = 0; i < n; i++)
        ids[i] = fuzz_byte(input);
    if (n > 0) {
        FUZZ_CHECK(sb_ngram_table_count(&made, ids, n, &options) == SPECBATCH_OK);
        FUZZ_CHECK(sb_ngram_table_write(&made, path) == SPECBATCH_OK);
        FUZZ_CHECK(sb_ngram_table_read(&read, path) == SPECBATCH_OK);
        FUZZ_CHECK(read.n_words == made.n_words && read.n_ids == made.n_ids);
        FUZZ_CHECK(made.n_words == 0 ||
                   memcmp(read.words, made.words, made.n_words * sizeof *made.words) == 0);
    }
    sb_ngram_table_clear(&made);
    sb_ngram_table_clear(&read);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sb_ngram_table table = {.mem = fuzz_mem};
    struct fuzz_input input = {data, size};
    const uint32_t kind = fuzz_below(&input, 3);
    char path[512];

    fuzz_remove_files();
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    if (kind == 0)
        fuzz_write(name, input.at, input.n);
    else if (kind == 1)
        forge(path, &input);
    else
        make(path, &input);
    if (kind < 2 && fuzz_status(sb_ngram_table_read(&table, path)) == SPECBATCH_OK)
        look_up(&table, input);
    sb_ngram_table_clear(&table);
    fuzz_check_memory(0, MEMORY);
    return 0;
}
