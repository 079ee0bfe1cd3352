/* One hash for every table of the library: eight bytes a step, so long names cost little. */
#ifndef SB_HASH_H
#define SB_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t sb_hash_mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static inline uint64_t sb_hash(const void *data, size_t n, uint64_t seed)
{
    const unsigned char *at = data;
    uint64_t h = sb_hash_mix(seed ^ n), word;

    for (; n >= 8; at += 8, n -= 8) {
        memcpy(&word, at, 8);
        h = sb_hash_mix(h ^ word);
    }
    for (word = 0; n > 0; n--)
        word = word << 8 | at[n - 1];
    return sb_hash_mix(h ^ word);
}

#endif
