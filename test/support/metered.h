/*
 * Options of a small pool whose memory functions count what is in use.
 */
#ifndef SB_TEST_METERED_H
#define SB_TEST_METERED_H

#include "support/small_pool.h"

struct meter {
    size_t now, largest; /* bytes in use, and of the largest block there was */
};

static inline void *metered_alloc(void *user, size_t size, size_t align)
{
    struct meter *meter = user;

    meter->now += size;
    if (size > meter->largest)
        meter->largest = size;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static inline void metered_free(void *user, void *ptr, size_t size)
{
    ((struct meter *)user)->now -= size;
    free(ptr);
}

static inline specbatch_pool_options metered_options(int32_t policy, struct meter *meter)
{
    specbatch_pool_options options = small_options(policy);

    options.alloc = metered_alloc;
    options.free = metered_free;
    options.alloc_user = meter;
    return options;
}

#endif
