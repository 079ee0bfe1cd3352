/*
 * Tensor maps of three dimensions with elements of 16 bits: what cuTensorMapEncodeTiled refuses, by
 * the driver's documentation ("Tensor Map Object Management"), and the box that a copy brings.
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
    cuuint64_t mark, at, sizes[3], pitches[2];
    cuuint32_t box[3], is_swizzled;
};
static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap), "a map holds all of it");

enum { ELEMENT = 2 };

copied_box box_of(const CUtensorMap &map, const int from[3])
{
    tensor_map m;
    int64_t there[3];

    memcpy(&m, &map, sizeof m);
    if (m.mark != MARK)
        fault("a copy by a tensor map, and there is none at %p", (const void *)&map);
    for (int i = 0; i < 3; i++) {
        if (from[i] < 0)
            fault("a copy by a tensor map from %d, %d, %d", from[0], from[1], from[2]);
        there[i] = std::clamp((int64_t)m.sizes[i] - from[i], (int64_t)0, (int64_t)m.box[i]);
    }
    return copied_box{(const char *)m.at + (uint64_t)from[2] * m.pitches[1] +
                          (uint64_t)from[1] * m.pitches[0] + (uint64_t)from[0] * ELEMENT,
                      m.box[0] * ELEMENT,
                      m.box[1],
                      m.box[2],
                      (uint32_t)there[0] * ELEMENT,
                      there[0] > 0 ? (uint32_t)there[1] : 0,
                      (uint32_t)there[2],
                      m.pitches[0],
                      m.pitches[1],
                      m.is_swizzled != 0};
}

/* Whether the sizes, box and distances of all dimensions may be. */
static bool are_sizes(const tensor_map &m, const cuuint32_t *steps)
{
    for (int i = 0; i < 3; i++)
        if (m.sizes[i] == 0 || m.sizes[i] > (cuuint64_t)1 << 32 || m.box[i] == 0 ||
            m.box[i] > 256 || steps[i] != 1)
            return false;
    for (cuuint64_t pitch : m.pitches)
        if (pitch % 16 || pitch >= (cuuint64_t)1 << 40 || pitch < m.sizes[0] * ELEMENT)
            return false;
    return m.box[0] * ELEMENT % 16 == 0 && (!m.is_swizzled || m.box[0] * ELEMENT <= 128);
}

} // namespace cudasim

extern "C" CUresult cuTensorMapEncodeTiled(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *at, const cuuint64_t *sizes,
    const cuuint64_t *pitches, const cuuint32_t *box, const cuuint32_t *steps,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill)
{
    const bool is_swizzled = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
    (void)promotion;

    if (!map || (uintptr_t)map % 64 || (uintptr_t)at % 16 || rank != 3 ||
        (type != CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) ||
        interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
        (!is_swizzled && swizzle != CU_TENSOR_MAP_SWIZZLE_NONE))
        return CUDA_ERROR_INVALID_VALUE;
    const cudasim::tensor_map m = {cudasim::MARK,
                                   (cuuint64_t)(uintptr_t)at,
                                   {sizes[0], sizes[1], sizes[2]},
                                   {pitches[0], pitches[1]},
                                   {box[0], box[1], box[2]},
                                   is_swizzled};
    if (!cudasim::are_sizes(m, steps))
        return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof *map);
    memcpy(map, &m, sizeof m);
    return CUDA_SUCCESS;
}
