/*
 * Reading files with pread, and writing new ones. Mapping them was rejected: a file that is
 * truncated while it is mapped kills the host with SIGBUS, and since weights are packed into
 * another layout, their bytes are copied anyway.
 *
 * A new file is written under a temporary name in its own directory, reaches the disk, and is then
 * renamed. So whoever opens its name finds the old file or the whole new one, also after a crash in
 * between: rename replaces a name in one step, but says nothing about the bytes behind it, so fsync
 * comes first (POSIX, rename and fsync; ext4(5), auto_da_alloc).
 */
#ifndef SB_FILE_H
#define SB_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "alloc.h"

struct sb_file {
    int fd; /* -1: closed */
    uint64_t size;
    char name[256]; /* without its directory, for messages */
};

/* Opens a regular file for reading. E_NOT_FOUND (it does not exist), E_IO; *file is closed then. */
int32_t sb_file_open(struct sb_file *file, const char *path);
/* Reads exactly `size` bytes from `offset` on. E_IO, also when the file has fewer bytes, which may
 * have happened since it was opened. */
int32_t sb_file_read(const struct sb_file *file, uint64_t offset, void *into, size_t size);
/* Closes a file; one that is closed already is fine. */
void sb_file_close(struct sb_file *file);

enum { SB_FILE_PATH = 1023 }; /* bytes of the longest path that is written to */

/* A file that is being written. */
struct sb_new_file {
    int fd;         /* -1: closed */
    char name[256]; /* as in struct sb_file */
    char path[1024], temporary[1024 + 32];
};

/* Begins a file that will lie at `path`. E_IO, E_INVALID (the path has more than 1023 bytes);
 * *file is closed then. */
int32_t sb_new_file_create(struct sb_new_file *file, const char *path);
/* Appends bytes. E_IO. */
int32_t sb_new_file_write(struct sb_new_file *file, const void *from, size_t size);
/* Ends the file and gives it its name, in the place of a file that may lie there. After a failure
 * nothing of it is left. The file is closed either way. E_IO. */
int32_t sb_new_file_keep(struct sb_new_file *file);
/* Closes and removes a file that was not kept; one that is closed already is fine. */
void sb_new_file_drop(struct sb_new_file *file);

/* Writes a whole file, as above. E_IO, E_INVALID. */
int32_t sb_file_save(const char *path, const void *bytes, size_t size);

/* Loads a whole file of at most max_bytes into *out, with a NUL behind it; the caller frees it.
 * length: receives the bytes without the NUL, or NULL.
 * E_NOT_FOUND, E_IO, E_FORMAT (too big), E_NOMEM. */
int32_t sb_file_load(char **out, size_t *length, const struct sb_mem *mem, const char *path,
                     size_t max_bytes);

/* Whether a directory is there. */
int sb_file_is_directory(const char *path);

/* The part of a path behind its last slash. */
const char *sb_file_name(const char *path);

/* Messages name a file without its directory. This puts the path that the caller knows in front of
 * the message of a failure `rc`, which it returns, and in the place of the file's name if the
 * message begins with that. SPECBATCH_OK is fine. */
int32_t sb_file_fail(int32_t rc, const char *path);

/* The folder that a file is in, for sb_file_join. E_INVALID when that has more than 1023 bytes. */
int32_t sb_file_folder(char dir[1024], const char *path);

/* path = dir + "/" + name. E_INVALID when that has more than 1023 bytes. */
int32_t sb_file_join(char path[1024], const char *dir, const char *name);

#endif
