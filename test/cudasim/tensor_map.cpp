/*
 * Tensor maps of matrices with elements of 16 bits: what cuTensorMapEncodeTiled refuses, by the
 * driver's documentation ("Tensor Map Object Management"), and the box that a copy brings.
 *
 * A map of the simulator holds the arguments as they are, and a mark by which one is known.
 */
#include "cuda.h"
#include "sim.h"

#include <string.h>

#include <algorithm>

namespace cudasim
{

static const cuuint64_t MARK = 0x70616d726f736e74; /* "tnsormap" */

struct tensor_map {
    cuuint64_t mark, at, columns, rows, pitch;
    cuuint32_t box_columns, box_rows, is_swizzled;
};
static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap), "a map holds all of it");

copied_box box_of(const CUtensorMap &map, int column, int row)
{
    const int64_t element = 2;
    tensor_map m;

    memcpy(&m, &map, sizeof m);
    if (m.mark != MARK)
        fault("a copy by a tensor map, and there is none at %p", (const void *)&map);
    const int64_t columns = std::clamp((int64_t)m.columns - column, (int64_t)0,
                                       (int64_t)m.box_columns),
                  rows = std::clamp((int64_t)m.rows - row, (int64_t)0, (int64_t)m.box_rows);
    if (column < 0 || row < 0)
        fault("a copy by a tensor map from row %d, column %d", row, column);
    return copied_box{(const char *)m.at + (uint64_t)row * m.pitch + column * element,
                      (uint32_t)(m.box_columns * element),
                      m.box_rows,
                      columns > 0 ? (uint32_t)rows : 0,
                      (uint32_t)(columns * element),
                      m.pitch,
                      m.is_swizzled != 0};
}

} // namespace cudasim

extern "C" CUresult cuTensorMapEncodeTiled(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *at, const cuuint64_t *sizes,
    const cuuint64_t *pitches, const cuuint32_t *box, const cuuint32_t *steps,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill)
{
    const cuuint64_t most = (cuuint64_t)1 << 32, most_pitch = (cuuint64_t)1 << 40;
    const bool is_swizzled = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
    (void)promotion;

    if (!map || (uintptr_t)map % 64 || (uintptr_t)at % 16 || rank != 2 ||
        (type != CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) ||
        sizes[0] == 0 || sizes[0] > most || sizes[1] == 0 || sizes[1] > most || pitches[0] % 16 ||
        pitches[0] >= most_pitch || pitches[0] < sizes[0] * 2 || box[0] == 0 || box[0] > 256 ||
        box[1] == 0 || box[1] > 256 || box[0] * 2 % 16 || steps[0] != 1 || steps[1] != 1 ||
        interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
        (is_swizzled && box[0] * 2 > 128) ||
        (!is_swizzled && swizzle != CU_TENSOR_MAP_SWIZZLE_NONE))
        return CUDA_ERROR_INVALID_VALUE;
    const cudasim::tensor_map m = {
        cudasim::MARK, (cuuint64_t)(uintptr_t)at, sizes[0], sizes[1], pitches[0], box[0], box[1],
        is_swizzled};
    memset(map, 0, sizeof *map);
    memcpy(map, &m, sizeof m);
    return CUDA_SUCCESS;
}
