/*
 * Growing arrays of bytes and of token ids. They start from all zero with `mem` set. A call that
 * fails (E_NOMEM) leaves the content as it was.
 */
#ifndef SB_BYTES_H
#define SB_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "alloc.h"

struct sb_bytes {
    const struct sb_mem *mem;
    char *data; /* NULL until something is added, then n bytes and a NUL behind them */
    size_t n, capacity;
};
struct sb_ids {
    const struct sb_mem *mem;
    int32_t *data;
    size_t n, capacity;
};

int32_t sb_bytes_add(struct sb_bytes *bytes, const char *data, size_t n); /* appends */
/* Makes room for n bytes in all, so that adding them takes no memory. */
int32_t sb_bytes_reserve(struct sb_bytes *bytes, size_t n);
int32_t sb_bytes_set(struct sb_bytes *bytes, const char *data, size_t n); /* replaces the content */
void sb_bytes_clear(struct sb_bytes *bytes);                              /* frees */
int32_t sb_ids_add(struct sb_ids *ids, int32_t id);                       /* appends */
void sb_ids_clear(struct sb_ids *ids);                                    /* frees */

/* Whether a text begins with these bytes. There is one at least. */
static inline int sb_bytes_begin(const struct sb_bytes *bytes, const char *text, size_t n)
{
    return n >= bytes->n && memcmp(text, bytes->data, bytes->n) == 0;
}

#endif
