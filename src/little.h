/* Numbers as files have them: their bytes in a row, the lowest first. */
#ifndef SB_LITTLE_H
#define SB_LITTLE_H

#include <stddef.h>
#include <stdint.h>

/* A little-endian number of so many bytes, eight at most. */
static inline uint64_t sb_little(const unsigned char *at, size_t size)
{
    uint64_t number = 0;

    for (size_t i = size; i > 0; i--)
        number = number << 8 | at[i - 1];
    return number;
}

#endif
