/*
 * Files for the tests of the loader: directories under build/ that a test makes and removes again,
 * safetensors files with any header, and an allocator that fails on demand and counts the blocks
 * that have not been freed.
 */
#ifndef MODEL_FILES_H
#define MODEL_FILES_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"

struct test_dir {
    char path[64];
};

/* Makes a new empty directory; ends the program when that fails. */
static inline struct test_dir test_dir_make(void)
{
    struct test_dir dir = {"build/tmp-XXXXXX"};

    mkdir("build", 0777);
    if (!mkdtemp(dir.path)) {
        perror("build/tmp-XXXXXX");
        exit(1);
    }
    return dir;
}

/* How many files lie in it. */
static inline int test_dir_files(const struct test_dir *dir)
{
    struct dirent *entry;
    DIR *d = opendir(dir->path);
    int n = 0;

    while (d && (entry = readdir(d)) != NULL)
        n += entry->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

/* Removes the directory and the files in it. */
static inline void test_dir_remove(const struct test_dir *dir)
{
    char path[512];
    struct dirent *entry;
    DIR *d = opendir(dir->path);

    while (d && (entry = readdir(d)) != NULL) {
        snprintf(path, sizeof path, "%s/%.255s", dir->path, entry->d_name);
        unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(dir->path);
}

/* Writes a file. An old one is removed first: ext4 writes a file that was truncated and rewritten
 * to the disk at once, which takes long. */
static inline void test_write(const struct test_dir *dir, const char *name, const void *bytes,
                              size_t n)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s/%.255s", dir->path, name);
    unlink(path);
    f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

static inline void test_write_text(const struct test_dir *dir, const char *name, const char *text)
{
    test_write(dir, name, text, strlen(text));
}

/* Reads the whole file from/name, which the caller frees; NULL when it is not there. */
static inline char *test_read(const char *from, const char *name, size_t *n)
{
    char path[512];
    char *bytes = NULL;
    long size;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", from, name);
    f = fopen(path, "rb");
    if (!f)
        return NULL;
    if (fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0 &&
        (bytes = malloc((size_t)size + 1)) != NULL) {
        *n = fread(bytes, 1, (size_t)size, f);
        bytes[*n] = '\0';
    }
    fclose(f);
    return bytes;
}

/* Copies every file of the directory `from` but the one called `except` (NULL: every file). */
static inline void test_copy(const struct test_dir *dir, const char *from, const char *except)
{
    struct dirent *entry;
    DIR *d = opendir(from);

    while (d && (entry = readdir(d)) != NULL) {
        size_t n = 0;
        char *bytes;
        if (entry->d_name[0] == '.' || (except && strcmp(entry->d_name, except) == 0))
            continue;
        bytes = test_read(from, entry->d_name, &n);
        if (bytes)
            test_write(dir, entry->d_name, bytes, n);
        free(bytes);
    }
    if (d)
        closedir(d);
}

/* Writes a safetensors file: the header with `padding` spaces after it, then n data bytes, which
 * are 0, 1, 2 and so on. */
static inline void test_write_tensors(const struct test_dir *dir, const char *name,
                                      const char *header, size_t padding, size_t n)
{
    const size_t length = strlen(header) + padding;
    unsigned char *file = malloc(8 + length + n + 1);

    if (!file)
        exit(1);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memset(file + 8, ' ', length);
    memcpy(file + 8, header, strlen(header));
    for (size_t i = 0; i < n; i++)
        file[8 + length + i] = (unsigned char)i;
    test_write(dir, name, file, 8 + length + n);
    free(file);
}

/* An allocator that fails its call number `fail_at`, counted from 0, and all later ones. */
struct test_memory {
    int64_t calls, fail_at, live;
};

static inline void *test_memory_alloc(void *user, size_t size, size_t align)
{
    struct test_memory *memory = user;
    void *block = memory->calls++ >= memory->fail_at ? NULL : aligned_alloc(align, size);

    memory->live += block != NULL;
    return block;
}

static inline void test_memory_free(void *user, void *block, size_t size)
{
    struct test_memory *memory = user;

    (void)size;
    memory->live--;
    free(block);
}

/* Allocates by the C library; for tests of single functions. */
static const struct sb_mem test_mem = {NULL, NULL, NULL};

#endif
