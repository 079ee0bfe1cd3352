/*
 * The last step of loading a matrix: its rows, which lie in memory as the file has them, are
 * quantised if that is wanted, and handed to the backend, which packs them. Meanwhile the next rows
 * are read:
 *
 *     units of work    reading the next rows | 32 rows | 32 rows | 32 rows | ..
 *     thread 0         ------------------------------------ ------- ..
 *     thread 1                                 ------- ------- -------  ..
 *
 * Several threads share the units. Reading is one unit, since the digest takes the bytes in their
 * order. Whatever calls the host stays with the thread that calls.
 */
#ifndef SB_FILL_H
#define SB_FILL_H

#include "backend/backend.h"

struct sb_filler;

/* For weights of this backend and device, with files of so many bytes: small ones are not worth
 * threads. E_NOMEM. */
int32_t sb_filler_create(struct sb_filler **out, const struct sb_mem *mem,
                         const struct sb_backend *backend, struct sb_device *device,
                         uint64_t bytes);
/* NULL is fine. */
void sb_filler_free(struct sb_filler *filler);

/* Rows of n_in elements that are to be filled in: how they are stored, and as what the backend is
 * given them, which is another type only for what is quantised here. */
struct sb_filling {
    struct sb_weight *weight;
    enum sb_dtype stored, given;
    int32_t first, n; /* which rows of the weight; n may be 0 */
    const char *rows;
    char *made; /* room for them as given, if they are quantised here */
};
/* Bytes that `made` needs for each row. */
size_t sb_filling_bytes(const struct sb_filling *filling);

/* Reads something. It may be called by another thread. */
typedef int32_t (*sb_read_fn)(void *ctx);
/* Fills the rows in, and meanwhile reads, if `read` is not NULL. Of pieces of a matrix all but the
 * last should have a multiple of SB_FILL_ROWS rows. E_NOMEM, E_UNSUPPORTED, E_DEVICE, or as `read`.
 */
enum { SB_FILL_ROWS = 64 };
int32_t sb_filler_fill(struct sb_filler *filler, const struct sb_filling *filling, sb_read_fn read,
                       void *ctx);

#endif
