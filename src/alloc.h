/*
 * Memory. All of the library's memory on the host comes from alloc.c.
 *
 * Every object that owns memory keeps a copy of a `struct sb_mem`: the caller's memory functions or
 * the C library's. It copies them before the first step that can fail, so that whatever frees the
 * object uses the allocator that made it. A block remembers its own size in a prefix of 64 bytes,
 * so it can be freed without repeating the size, which the caller's free function wants to be told.
 */
#ifndef SB_ALLOC_H
#define SB_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "specbatch.h"

struct sb_mem {
    specbatch_alloc_fn alloc; /* NULL: the C library's aligned_alloc and free */
    specbatch_free_fn free;
    void *user;
};

#define SB_MEM_ALIGN 64 /* every block starts on a cache line */

/* A zeroed array of `count` elements of `size` bytes. NULL when there is no memory or the product
 * overflows, but not for an array of no bytes. Callers turn NULL into E_NOMEM by SB_NEW
 * (status.h). */
void *sb_alloc(const struct sb_mem *mem, size_t count, size_t size);

/* The same without zeroing, for big buffers that are written whole anyway. */
void *sb_alloc_raw(const struct sb_mem *mem, size_t count, size_t size);

/* A block of `count` elements that begins with the content of `block`, which is freed (it may be
 * NULL). When there is no memory, this returns NULL and leaves the old block as it was. */
void *sb_realloc(const struct sb_mem *mem, void *block, size_t count, size_t size);

/* Frees a block that one of the functions above returned. NULL is fine. */
void sb_free(const struct sb_mem *mem, void *block);

/* *out = a * b, or a + b. Returns 0, without writing, when that does not fit in size_t. */
int sb_mul_size(size_t a, size_t b, size_t *out);
int sb_add_size(size_t a, size_t b, size_t *out);

/* Room for `need` elements (one or more) in an array that has room for *capacity. Returns the array
 * where it lies now and updates *capacity, which doubles as often as necessary, so that appending
 * one element at a time costs linear time in all. New elements are not zeroed. NULL (no memory, or
 * a size that does not fit in size_t): array and capacity are as they were. */
void *sb_grow(const struct sb_mem *mem, void *array, size_t *capacity, size_t need, size_t size);

/* The same for an array that must grow (need > *capacity), whose old memory the caller frees: last,
 * when the grown array has taken its place. So whoever cleans up after a free hook that did not
 * return frees nothing twice. */
void *sb_grow_apart(const struct sb_mem *mem, const void *array, size_t *capacity, size_t need,
                    size_t size);

#endif
