/*
 * Option structs of the public API: the sized-struct rule, and the checks that several of them
 * need.
 *
 * A public struct begins with its own size and only grows at the end, zero being the default of
 * every field. So caller and library may be of different age in either direction:
 *
 * older caller    [ size | known ............ ]              the missing tail is zero: defaults
 * newer caller    [ size | known ............ | tail ]       refused unless the tail is all zero,
 *                                                            or an option would be ignored silently
 *
 * The rule is Linux's copy_struct_from_user. The defaults and ranges of the fields are with
 * whoever uses them, in a function whose name says resolve. What it returns is complete: every
 * field has its effective value and is in range, so nothing further in asks whether a zero means
 * the default.
 */
#ifndef SB_OPTIONS_H
#define SB_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "specbatch.h"

/* A larger struct_size is garbage, not a newer library's struct. */
#define SB_STRUCT_SIZE_MAX 4096
#define SB_DRAFT_LEN_MAX 64 /* the largest K */

/* The flags of a text call, or of a request's text. All others are refused, so that a later version
 * may give them a meaning. */
#define SB_FLAGS_TOKENIZE (SPECBATCH_TEXT_NO_BOS | SPECBATCH_TEXT_PLAIN_SPECIAL)
#define SB_FLAGS_DETOKENIZE SPECBATCH_TEXT_KEEP_SPECIAL

/* The caller's struct as this library's, `full_size` bytes; NULL gives all zero. `what` names the
 * struct in messages. E_INVALID (struct_size), E_OPTIONS (unknown tail). */
int32_t sb_options_copy(void *full, size_t full_size, const void *given, const char *what);

/* The init twin of the INIT macros: writes exactly `size` bytes. E_INVALID. */
int32_t sb_options_init(void *options, size_t size);

/* Checks the struct_size of a struct that the library fills, before the work is done. E_INVALID
 * (NULL, struct_size). */
int32_t sb_options_check_size(const void *given, const char *what);
/* The other way, for structs the library fills: writes as much of `full` as the caller's
 * struct_size covers, zeroes what it has beyond that and leaves struct_size alone. E_INVALID (NULL,
 * struct_size). */
int32_t sb_options_report(void *given, const void *full, size_t full_size, const char *what);

/* Checks of one field. `what` names the struct in the message, `field` the field. E_INVALID. */
int32_t sb_check_range(const char *what, const char *field, int32_t value, int32_t low,
                       int32_t high);
/* Both memory callbacks are given, or neither is. E_INVALID. */
int32_t sb_check_hooks(const char *what, specbatch_alloc_fn alloc, specbatch_free_fn release);
/* Returns `code` if `value` has other flags than the `known` ones: E_OPTIONS for a struct's field,
 * E_INVALID for an argument. */
int32_t sb_check_flags(int32_t code, const char *what, const char *field, uint32_t value,
                       uint32_t known);

#endif
