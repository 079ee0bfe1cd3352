/*
 * Loads the CUDA backend. It is a module of its own, so that this library runs where no CUDA is
 * installed.
 *
 *   libspecbatch.so  --dlopen-->  libspecbatch_cuda.so  -->  libcublasLt, the driver
 *      host vtable   ---------->  specbatch_backend_get(abi, host, size)  -->  struct sb_backend
 *
 * The module is the file beside this library (or beside the program that this library is linked
 * into), or the one at the absolute path that the caller gives. It is never searched for in the
 * working directory or along a search path. What the module needs of this library (memory, the last
 * error, the log, files) it gets through the host vtable. Once loaded it stays, because CUDA's
 * libraries do not unload cleanly; a second dlopen of the same file gives the same module.
 */
#ifndef SB_CUDA_LOADER_H
#define SB_CUDA_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

/* What the module may call in this library. */
struct sb_host_vtable {
    void *(*alloc)(const struct sb_mem *mem, size_t count, size_t size);
    void (*free)(const struct sb_mem *mem, void *block);
    /* sets the calling thread's last error to `line` and returns `code` */
    int32_t (*fail)(int32_t code, const char *line);
    void (*log)(const struct sb_log *log, int32_t level, const char *line);
    /* of file.h */
    int32_t (*file_load)(char **out, size_t *length, const struct sb_mem *mem, const char *path,
                         size_t max_bytes);
    int32_t (*file_save)(const char *path, const void *bytes, size_t size);
};

/* Library and module are built together, and a module of another build is refused. This stamp tells
 * them apart: it has the version and the size of the table of operations in it. Whoever changes an
 * operation's arguments or meaning, and so not that size, raises the last number. */
#define SB_MODULE_ABI                                                             \
    ((uint32_t)(SPECBATCH_VERSION_MAJOR * 10000 + SPECBATCH_VERSION_MINOR * 100 + \
                SPECBATCH_VERSION_PATCH)                                          \
         << 16 |                                                                  \
     (uint32_t)sizeof(struct sb_backend) << 4 | 3u)

/* The module's one export, SB_MODULE_EXPORT. `size` is that of the host vtable. It returns NULL if
 * the module is of another build, or if another copy of this library in the process uses it. */
typedef const struct sb_backend *(*sb_backend_get_fn)(uint32_t abi,
                                                      const struct sb_host_vtable *host,
                                                      size_t size);
#define SB_MODULE_EXPORT "specbatch_backend_get"
#define SB_MODULE_NAME "libspecbatch_cuda.so"

/* Loads the module at an absolute path, or, when path is NULL, the one beside the library.
 * E_NO_DEVICE, with a message that says what is wrong with the module; E_INVALID for a relative
 * path. */
int32_t sb_cuda_load(const struct sb_backend **out, const char *path);

#endif
