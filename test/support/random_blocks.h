/*
 * Rows of quantised elements for tests, drawn at random in the blocks of GGUF files. They are
 * written here byte by byte and not by the library, which makes two of the six types only.
 */
#ifndef RANDOM_BLOCKS_H
#define RANDOM_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

enum random_kind {
    RANDOM_CENTRED, /* values of about `spread`, around zero, as those of a model's weights */
    RANDOM_ANY,     /* the same scale of the block, and any integers beside it */
    RANDOM_WILD     /* any bits at all: scales of infinity, NaN, and denormals too */
};

/* Writes a row of n elements. The rest of the last block is zeros. Random numbers are those of
 * trace_random. */
void random_row(void *row, enum sb_dtype dtype, size_t n, enum random_kind kind, float spread,
                uint64_t *state);

#endif
