/*
 * The SIMD levels: a table of kernels for each, and the choice between them.
 *
 * This file is compiled once for every level, as all of kernels/cpu is, and gathers the kernels of
 * that level in a table. The choice between the tables is compiled at the scalar level, because
 * every build has that one. docs/architecture.md lists what a further level takes.
 */
#include "level.h"

#if defined(SB_LEVEL_AVX512)
#define LEVEL_NAME "avx512"
#elif defined(SB_LEVEL_AVX2)
#define LEVEL_NAME "avx2"
#else
#define LEVEL_NAME "scalar"
#endif

#define ENTRY(type, name, args) .name = SB_LEVEL(name),
const struct sb_cpu_kernels SB_LEVEL(kernels) = {.name = LEVEL_NAME, SB_CPU_KERNEL_LIST(ENTRY)};

#if defined(SB_LEVEL_SCALAR)

#include "port.h"
#include "specbatch.h"

const struct sb_cpu_kernels *sb_cpu_kernels_for(int32_t simd)
{
#if defined(__x86_64__) || defined(__i386__)
    if ((simd == SPECBATCH_SIMD_AUTO || simd == SPECBATCH_SIMD_AVX512 ||
         simd == SPECBATCH_SIMD_AMX) &&
        sb_port_has_avx512())
        return &sb_cpu_kernels_avx512;
    if ((simd == SPECBATCH_SIMD_AUTO || simd == SPECBATCH_SIMD_AVX2) && sb_port_has_avx2())
        return &sb_cpu_kernels_avx2;
#endif
    return simd == SPECBATCH_SIMD_AUTO || simd == SPECBATCH_SIMD_SCALAR ? &sb_cpu_kernels_scalar
                                                                        : NULL;
}

#endif
