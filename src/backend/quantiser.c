/* Which kernel quantises, and rows of any type (quantiser.h). */
#include "backend/quantiser.h"

#include "../kernels/cpu/kernels.h"

sb_quantise_fn sb_quantiser(void)
{
    return sb_cpu_kernels_for(SPECBATCH_SIMD_AUTO)->quantise;
}

void sb_convert_rows(void *to, enum sb_dtype to_type, const void *from, enum sb_dtype from_type,
                     size_t n_rows, size_t n)
{
    const size_t in = sb_dtype_row_bytes(from_type, n), out = sb_dtype_row_bytes(to_type, n);

    if (sb_dtype_is_quantised(to_type) && to_type != from_type)
        sb_quantiser()(to, to_type, from, from_type, n_rows, n);
    else if (!sb_dtype_is_quantised(from_type)) /* such rows lie one after the other */
        sb_convert(to, to_type, from, from_type, n_rows * n);
    else
        for (size_t r = 0; r < n_rows; r++)
            sb_convert((char *)to + r * out, to_type, (const char *)from + r * in, from_type, n);
}
