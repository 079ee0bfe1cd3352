/*
 * Files of the library's own formats: numbers and bytes in parts, each of which ends in a check.
 *
 *   part 1 | check | part 2 | check | ...
 *
 * A check is the digest (digest.h) of all bytes of the file before it, as 32 hexadecimal digits. So
 * each part vouches for those before it, and none can be taken for another one or come from another
 * file. SQLite's write-ahead log chains its checksums from frame to frame for the same reason
 * (sqlite.org, "Database File Format", the write-ahead log). Checks tell damage, not forgery.
 *
 * Numbers have four bytes, little-endian, and are not negative.
 */
#ifndef SB_CHECKED_H
#define SB_CHECKED_H

#include <stddef.h>
#include <stdint.h>

#include "digest.h"
#include "file.h"

enum { SB_CHECK = SB_DIGEST_TEXT - 1 }; /* bytes of a check */

/* A number in memory. Each returns the place behind it. What is no int32_t from 0 on is read as
 * -1. */
unsigned char *sb_put_number(unsigned char *at, int32_t number);
const unsigned char *sb_get_number(const unsigned char *at, int32_t *number);

/* A file that is being written: sb_new_file_keep and sb_new_file_drop of `file` end it. */
struct sb_checked_out {
    struct sb_new_file file;
    struct sb_digest digest; /* of what was written so far */
};

/* E_IO, E_INVALID (the path is too long); the file is closed then. */
int32_t sb_checked_create(struct sb_checked_out *out, const char *path);
/* Append bytes, numbers, and the check that ends a part. E_IO. */
int32_t sb_checked_write(struct sb_checked_out *out, const void *bytes, size_t n);
int32_t sb_checked_write_numbers(struct sb_checked_out *out, const int32_t *numbers, size_t n);
int32_t sb_checked_end_part(struct sb_checked_out *out);

/* A file that is being read, from the front on. */
struct sb_checked_in {
    struct sb_file file;
    struct sb_digest digest; /* of what was read so far */
    uint64_t at;             /* bytes read so far */
    uint64_t checked;        /* of those: bytes that a check has vouched for */
};

/* E_IO, also if there is no such file; the file is closed then. */
int32_t sb_checked_open(struct sb_checked_in *in, const char *path);
/* Read bytes, and numbers. E_IO. */
int32_t sb_checked_read(struct sb_checked_in *in, void *into, size_t n);
int32_t sb_checked_read_numbers(struct sb_checked_in *in, int32_t *numbers, size_t n);
/* Reads the check at the end of a part. E_IO, E_FORMAT. */
int32_t sb_checked_read_check(struct sb_checked_in *in);

#endif
