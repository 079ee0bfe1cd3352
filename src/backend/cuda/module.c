/*
 * The module's one export, and what it takes from the core (cuda_loader.h).
 *
 * The sources of the backend call sb_alloc, sb_fail and so on as any other part of the library
 * does. Where they are linked into the core, as for the tests on a simulated device, they get the
 * core's functions. In the module they get the ones below, which call the core's through a pointer,
 * the module's only state. The pointer is set once. A second copy of the core in the same process,
 * say inside another plug-in, is refused, because its errors would land in the first one's memory.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "backend/cuda/ops.h"
#include "backend/cuda_loader.h"
#include "file.h"
#include "log.h"
#include "status.h"

static _Atomic(const struct sb_host_vtable *) host;

SPECBATCH_API const struct sb_backend *specbatch_backend_get(uint32_t abi,
                                                             const struct sb_host_vtable *from,
                                                             size_t size);

SPECBATCH_API const struct sb_backend *specbatch_backend_get(uint32_t abi,
                                                             const struct sb_host_vtable *from,
                                                             size_t size)
{
    const struct sb_host_vtable *expected = NULL;

    if (abi != SB_MODULE_ABI || size != sizeof *from)
        return NULL;
    if (!atomic_compare_exchange_strong(&host, &expected, from) && expected != from)
        return NULL;
    return sb_backend_cuda();
}

void *sb_alloc(const struct sb_mem *mem, size_t count, size_t size)
{
    return atomic_load(&host)->alloc(mem, count, size);
}

void sb_free(const struct sb_mem *mem, void *block)
{
    atomic_load(&host)->free(mem, block);
}

int32_t sb_fail(int32_t code, const char *format, ...)
{
    char line[SPECBATCH_ERROR_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return atomic_load(&host)->fail(code, line);
}

void sb_log(const struct sb_log *log, int32_t level, const char *format, ...)
{
    char line[512];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    atomic_load(&host)->log(log, level, line);
}

int32_t sb_file_load(char **out, size_t *length, const struct sb_mem *mem, const char *path,
                     size_t max_bytes)
{
    return atomic_load(&host)->file_load(out, length, mem, path, max_bytes);
}

int32_t sb_file_save(const char *path, const void *bytes, size_t size)
{
    return atomic_load(&host)->file_save(path, bytes, size);
}
