/* Models whose matrix unit is emulated; see emulated_tiles.h. */
#include "support/emulated_tiles.h"

#include "backend/cpu_ops.h"
#include "model/model.h"

/* Below AVX-512 weights are packed as the matrix unit takes them. At AVX-512 they may have been
 * packed for vdpbf16ps. */
int32_t open_with_emulated_tiles(specbatch_model **out, const char *path,
                                 const specbatch_model_options *options)
{
    specbatch_model_options below = *options;
    int32_t rc;

    below.simd = specbatch_has("avx2") ? SPECBATCH_SIMD_AVX2 : SPECBATCH_SIMD_SCALAR;
    rc = specbatch_model_open(out, path, &below);
    if (rc == SPECBATCH_OK) {
        (*out)->device->blocks = SB_BLOCKS_EMULATED;
        (*out)->device->integers = SB_INTEGERS_EMULATED;
    }
    return rc;
}
