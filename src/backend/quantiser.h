/*
 * Making quantised rows, which is work for the CPU's kernels whatever device the weights are for.
 *
 *     Q8_0    d = the largest absolute value / 127, rounded to f16, and then the nearest integers
 *     Q4_0    the same with what loses least, in the sum of squares, of a few scales
 *
 * The same bytes are made on every machine. What is too large for the largest scale, infinities
 * too, becomes the largest value. Of a group with a NaN all values are NaN. The last block of a row
 * is filled up with zeros.
 */
#ifndef SB_QUANTISER_H
#define SB_QUANTISER_H

#include "backend/backend.h"

/* Makes rows of dtype, Q8_0 or Q4_0, of rows [n_rows, n] of a type that is not quantised. */
typedef void (*sb_quantise_fn)(void *to, enum sb_dtype dtype, const void *rows, enum sb_dtype type,
                               size_t n_rows, size_t n);
/* The function that is fastest on this processor. To ask for it takes as long as a row does, where
 * a virtual machine has to answer what the processor can do; so ask once. */
sb_quantise_fn sb_quantiser(void);

/* Converts rows as sb_convert does, and those of types that are not quantised also to Q8_0 and
 * Q4_0. */
void sb_convert_rows(void *to, enum sb_dtype to_type, const void *from, enum sb_dtype from_type,
                     size_t n_rows, size_t n);

#endif
