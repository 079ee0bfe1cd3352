/* Loads the CUDA module. cuda_loader.h tells from where, and why it is a module. */
#include "backend/cuda_loader.h"

#include <stdio.h>
#include <string.h>

#include "file.h"
#include "log.h"
#include "port.h"
#include "status.h"

enum { PATH_BYTES = 4096 };

static int32_t host_fail(int32_t code, const char *line)
{
    return sb_fail(code, "%s", line);
}

static void host_log(const struct sb_log *log, int32_t level, const char *line)
{
    sb_log(log, level, "%s", line);
}

static const struct sb_host_vtable host = {sb_alloc, sb_free,      host_fail,
                                           host_log, sb_file_load, sb_file_save};

/* path becomes that of the module beside this library. */
static int32_t beside(char path[PATH_BYTES])
{
    char *slash;

    if (!sb_port_own_path(path, PATH_BYTES - sizeof SB_MODULE_NAME) ||
        (slash = strrchr(path, '/')) == NULL)
        return sb_fail(SPECBATCH_E_NO_DEVICE,
                       "no CUDA: this library was loaded by a relative path, so its module is not "
                       "looked for; give cuda_module");
    memcpy(slash + 1, SB_MODULE_NAME, sizeof SB_MODULE_NAME);
    return SPECBATCH_OK;
}

int32_t sb_cuda_load(const struct sb_backend **out, const char *path)
{
    char found[PATH_BYTES], why[160] = "";
    sb_backend_get_fn get;
    void *module = NULL;
    int32_t rc = SPECBATCH_OK;

    if (path && path[0] != '/')
        SB_FAIL(SPECBATCH_E_INVALID, "model options: cuda_module is %.100s, not an absolute path",
                path);
    if (!path)
        SB_TRY(beside(found));
    path = path ? path : found;
    module = sb_port_module_open(path, why, sizeof why);
    if (!module)
        SB_FAIL(SPECBATCH_E_NO_DEVICE, "no CUDA: the module does not load: %s", why);
    sb_port_module_symbol(&get, sizeof get, module, SB_MODULE_EXPORT);
    if (!get)
        SB_FAIL(SPECBATCH_E_NO_DEVICE, "no CUDA: %.150s is not a module of this library", path);
    *out = get(SB_MODULE_ABI, &host, sizeof host);
    if (!*out)
        SB_FAIL(SPECBATCH_E_NO_DEVICE,
                "no CUDA: the module %.100s is of another build than this library, or another "
                "copy of the library uses it",
                path);
    module = NULL; /* it stays loaded */
done:
    sb_port_module_close(module);
    return rc;
}
