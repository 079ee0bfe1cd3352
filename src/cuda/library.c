/* Opening a library and finding its functions; library.h tells why so. */
#include "cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int sb_cuda_library(const char *const *names, const struct sb_symbol *symbols, size_t n, char *why,
                    size_t why_size)
{
    void *library = NULL;
    const char *const *name = names;

    while (*name && (library = dlopen(*name, RTLD_NOW | RTLD_LOCAL)) == NULL)
        name++;
    if (!library) {
        snprintf(why, why_size, "no %s", names[0]);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) {
            snprintf(why, why_size, "%s lacks %s", *name, symbols[i].name);
            return 0;
        }
        memcpy(symbols[i].function, &symbol, sizeof symbol);
    }
    return 1;
}
