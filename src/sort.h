/*
 * Sorting in place, by a heap sort: n log n steps whatever the order of an untrusted file, and no
 * memory. Rejected: the C library's qsort, which may allocate memory that is not the caller's
 * (glibc's does so above a kilobyte). The sort is not stable, so a comparison leaves no order open.
 */
#ifndef SB_SORT_H
#define SB_SORT_H

#include <stddef.h>

/* Sorts n elements of `size` bytes; `compare` answers as for qsort. `base` may be NULL if n = 0. */
void sb_sort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *));

#endif
