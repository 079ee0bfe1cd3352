/* Loading cuDNN; cudnn_api.h tells why so. The name is searched for as that of any library the module needs
 * would be. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cuda/cudnn_api.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define LIBRARY "libcudnn.so." TEXT(CUDNN_MAJOR)

int sb_cudnn_load(struct sb_cudnn *api, char *why, size_t why_size)
{
    const struct {
        void *function;
        const char *name;
    } symbols[] = {
        {&api->version, "cudnnGetVersion"},
        {&api->create, "cudnnCreate"},
        {&api->destroy, "cudnnDestroy"},
        {&api->set_stream, "cudnnSetStream"},
        {&api->make, "cudnnBackendCreateDescriptor"},
        {&api->unmake, "cudnnBackendDestroyDescriptor"},
        {&api->finalize, "cudnnBackendFinalize"},
        {&api->set, "cudnnBackendSetAttribute"},
        {&api->get, "cudnnBackendGetAttribute"},
        {&api->execute, "cudnnBackendExecute"},
    };
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        snprintf(why, why_size, "no " LIBRARY);
        return 0;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) {
            snprintf(why, why_size, LIBRARY " lacks %s", symbols[i].name);
            return 0;
        }
        memcpy(symbols[i].function, &symbol, sizeof symbol);
    }
    return 1;
}
