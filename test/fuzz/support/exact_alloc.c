/*
 * The library's allocator (alloc.h) with blocks that end where their content ends. src/alloc.c
 * rounds a block up to whole cache lines, and a read of up to 63 bytes beyond an array would stay
 * inside it, where a sanitizer sees nothing. Fuzz programs are linked with this one instead.
 */
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "port.h"

int sb_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

int sb_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

struct hook_call {
    const struct sb_mem *mem;
    char *block;
    size_t total;
};

static void call_alloc(void *arg)
{
    struct hook_call *call = arg;
    void *block = NULL;

    if (call->mem->alloc)
        block = call->mem->alloc(call->mem->user, call->total, SB_MEM_ALIGN);
    else if (posix_memalign(&block, SB_MEM_ALIGN, call->total) != 0)
        block = NULL;
    call->block = block;
}

static void call_free(void *arg)
{
    struct hook_call *call = arg;

    if (call->mem->free)
        call->mem->free(call->mem->user, call->block, call->total);
    else
        free(call->block);
}

/* What is not asked to be zero is filled with something else. */
void *sb_alloc_raw(const struct sb_mem *mem, size_t count, size_t size)
{
    struct hook_call call = {.mem = mem};

    if (!sb_mul_size(count, size, &call.total) ||
        !sb_add_size(call.total, SB_MEM_ALIGN, &call.total))
        return NULL;
    sb_port_call_host(call_alloc, &call);
    if (!call.block)
        return NULL;
    memcpy(call.block, &call.total, sizeof call.total);
    memset(call.block + SB_MEM_ALIGN, 0xa5, call.total - SB_MEM_ALIGN);
    return call.block + SB_MEM_ALIGN;
}

void *sb_alloc(const struct sb_mem *mem, size_t count, size_t size)
{
    void *content = sb_alloc_raw(mem, count, size);

    return content ? memset(content, 0, count * size) : NULL;
}

static size_t block_total(const void *content)
{
    size_t total;

    memcpy(&total, (const char *)content - SB_MEM_ALIGN, sizeof total);
    return total;
}

void *sb_realloc(const struct sb_mem *mem, void *block, size_t count, size_t size)
{
    void *grown = sb_alloc_raw(mem, count, size);
    size_t old;

    if (!grown || !block)
        return grown;
    old = block_total(block) - SB_MEM_ALIGN;
    memcpy(grown, block, old < count * size ? old : count * size);
    sb_free(mem, block);
    return grown;
}

void sb_free(const struct sb_mem *mem, void *block)
{
    struct hook_call call = {.mem = mem};

    if (!block)
        return;
    call.block = (char *)block - SB_MEM_ALIGN;
    call.total = block_total(block);
    sb_port_call_host(call_free, &call);
}

/* The capacity doubles as in the library. So only what is beyond it is seen. */
void *sb_grow_apart(const struct sb_mem *mem, const void *array, size_t *capacity, size_t need,
                    size_t size)
{
    const size_t wanted = need < 2 * *capacity ? 2 * *capacity : need;
    void *grown = sb_alloc_raw(mem, wanted, size);

    if (grown && array)
        memcpy(grown, array, *capacity * size);
    if (grown)
        *capacity = wanted;
    return grown;
}

void *sb_grow(const struct sb_mem *mem, void *array, size_t *capacity, size_t need, size_t size)
{
    void *grown = need > *capacity ? sb_grow_apart(mem, array, capacity, need, size) : array;

    if (grown != array && grown)
        sb_free(mem, array);
    return grown;
}
