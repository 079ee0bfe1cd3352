/*
 * The last step of loading a matrix: its rows, which lie in memory as the file has them, are
 * quantised if that is wanted, and handed to the backend, which packs them. Where the backend
 * allows it, several threads share the rows. Reading stays with one thread, since the digest takes
 * the bytes in their order, and so does whatever may fail or call the host.
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
};
/* Bytes that sb_filler_fill needs for each row beside the row itself. */
size_t sb_filling_bytes(const struct sb_filling *filling);
/* Fills rows first .. first + n - 1. `made` has room for n rows as given, if they are quantised
 * here. E_UNSUPPORTED, E_DEVICE. */
int32_t sb_filler_fill(struct sb_filler *filler, const struct sb_filling *filling, int32_t first,
                       int32_t n, const char *rows, char *made);

#endif
