/*
 * The only calls of an allocator in the library.
 *
 *   a block:  [ prefix of 64 bytes: its total size | content, 64-byte aligned ........ ]
 *               what the allocator gave              what the caller gets
 */
#include "alloc.h"

#include <stdlib.h>
#include <string.h>

#include "port.h"

int sb_mul_size(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b)
        return 0;
    *out = a * b;
    return 1;
}

int sb_add_size(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b)
        return 0;
    *out = a + b;
    return 1;
}

/* Bytes to ask for: prefix and content, rounded up to a multiple of the alignment, which
 * aligned_alloc requires. Returns 0 on overflow. */
static int total_size(size_t count, size_t size, size_t *out)
{
    size_t bytes;

    if (!sb_mul_size(count, size, &bytes) || !sb_add_size(bytes, 2 * SB_MEM_ALIGN - 1, &bytes))
        return 0;
    *out = bytes / SB_MEM_ALIGN * SB_MEM_ALIGN;
    return 1;
}

/* One call of the caller's alloc or free function, made through sb_port_call_host. */
struct hook_call {
    const struct sb_mem *mem;
    void *block;
    size_t total;
};

static void call_alloc(void *arg)
{
    struct hook_call *call = arg;

    call->block = call->mem->alloc(call->mem->user, call->total, SB_MEM_ALIGN);
}

static void call_free(void *arg)
{
    const struct hook_call *call = arg;

    call->mem->free(call->mem->user, call->block, call->total);
}

static void *take_block(const struct sb_mem *mem, size_t total)
{
    struct hook_call call = {.mem = mem, .total = total};

    if (!mem->alloc)
        return aligned_alloc(SB_MEM_ALIGN, total);
    sb_port_call_host(call_alloc, &call);
    return call.block;
}

static void give_block(const struct sb_mem *mem, void *block, size_t total)
{
    struct hook_call call = {.mem = mem, .block = block, .total = total};

    if (mem->free)
        sb_port_call_host(call_free, &call);
    else
        free(block);
}

void *sb_alloc_raw(const struct sb_mem *mem, size_t count, size_t size)
{
    size_t total;
    char *block;

    if (!total_size(count, size, &total))
        return NULL;
    block = take_block(mem, total);
    if (!block)
        return NULL;
    memcpy(block, &total, sizeof total);
    return block + SB_MEM_ALIGN;
}

void *sb_alloc(const struct sb_mem *mem, size_t count, size_t size)
{
    void *content = sb_alloc_raw(mem, count, size);

    if (content)
        memset(content, 0, count * size);
    return content;
}

static size_t block_total(const void *content)
{
    size_t total;

    memcpy(&total, (const char *)content - SB_MEM_ALIGN, sizeof total);
    return total;
}

void *sb_realloc(const struct sb_mem *mem, void *block, size_t count, size_t size)
{
    size_t old, bytes;
    void *grown = sb_alloc_raw(mem, count, size);

    if (!grown || !block)
        return grown;
    old = block_total(block) - SB_MEM_ALIGN;
    bytes = count * size;
    memcpy(grown, block, old < bytes ? old : bytes);
    sb_free(mem, block);
    return grown;
}

void sb_free(const struct sb_mem *mem, void *block)
{
    if (block)
        give_block(mem, (char *)block - SB_MEM_ALIGN, block_total(block));
}

void *sb_grow_apart(const struct sb_mem *mem, const void *array, size_t *capacity, size_t need,
                    size_t size)
{
    size_t wanted = *capacity ? *capacity : 32;

    while (wanted < need)
        wanted = wanted > SIZE_MAX / 2 ? need : wanted * 2;
    void *grown = sb_alloc_raw(mem, wanted, size);
    if (!grown)
        return NULL;
    if (array)
        memcpy(grown, array, *capacity * size);
    *capacity = wanted;
    return grown;
}

void *sb_grow(const struct sb_mem *mem, void *array, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return array;
    void *grown = sb_grow_apart(mem, array, capacity, need, size);
    if (grown)
        sb_free(mem, array);
    return grown;
}
