/*
 * A table of n-grams that was made of texts: what most often follows so many tokens in them.
 *
 * For each n from min_match to max_match the table has entries of n + 1 ids: a context of n tokens,
 * and the token that follows it most often (of equals the lowest). A context is in the table if it
 * occurs min_count times or more, and if the table would otherwise say something else: the longest
 * context that it has counts, so one that is followed by what follows the shorter one is left out.
 *
 *   n = 1   | a b | c d | f a |         after a comes b, after c comes d ...
 *   n = 2   | b a c | e c a |           but after b a comes c
 *
 * Entries of one n are sorted by their contexts, and found by binary search. Rejected: a hash
 * table, which needs fewer steps but more room, and can be written in many ways. Here the file is
 * the table: its order is checked in one pass when it is read, no file can make a search slow, and
 * equal texts make equal bytes. Rejected too: a trie of contexts, which has to keep those that are
 * left out here. Counts are not kept; nothing asks.
 *
 * The file, with the numbers and checks of checked.h:
 *
 *   head     0  "specbatch-ng"                  12 bytes
 *           12  version of the format, 1
 *           16  all ids are below this
 *           20  max_match
 *           24  number of entries for n = 1 .. 8; 0 above max_match
 *           56  digest of the tokenizer's pieces with these ids (tokenizer.h), or zeros
 *           88  check
 *   entries      those of n = 1, of n = 2, ...
 *                check
 *
 * All sizes follow from the head, and the length of the file has to be what they add up to.
 */
#ifndef SB_TABLE_H
#define SB_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "alloc.h"
#include "checked.h"
#include "specbatch.h"

enum { SB_TABLE_MATCH = 8 }; /* the longest contexts that a table can have */

struct sb_ngram_table {
    struct sb_mem mem;
    int32_t n_ids;               /* all ids are below this */
    int32_t max_match;           /* tokens of its contexts at most */
    char digest[SB_DIGEST_TEXT]; /* of the tokenizer; empty: it was made without one */
    /* Entries with contexts of n tokens: n[n] of them, the first at words[at[n]]. */
    size_t n[SB_TABLE_MATCH + 1], at[SB_TABLE_MATCH + 1];
    int32_t *words;
    size_t n_words, capacity;
};

/* What follows the last tokens before `end`, of which there are `length`, by the longest context
 * that is in the table. -1: the table does not say. */
int32_t sb_ngram_table_next(const struct sb_ngram_table *table, const int32_t *end, int32_t length);

/* Fills in *table, which is zero but for `mem`; clear it afterwards, also after a failure.
 * E_IO, E_FORMAT, E_UNSUPPORTED (another version of the format), E_NOMEM. */
int32_t sb_ngram_table_read(struct sb_ngram_table *table, const char *path);
/* E_IO, E_INVALID (the path is too long). */
int32_t sb_ngram_table_write(const struct sb_ngram_table *table, const char *path);
/* table_make.c: fills in *table as sb_ngram_table_read does, but for `digest`, from n tokens
 * that are all at least 0, by options that are resolved. E_NOMEM. */
int32_t sb_ngram_table_count(struct sb_ngram_table *table, const int32_t *ids, size_t n,
                             const specbatch_table_options *options);
void sb_ngram_table_clear(struct sb_ngram_table *table);

#endif
