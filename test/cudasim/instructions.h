/*
 * The tensor core's instructions of kernels/cuda/mma.cuh for the simulated device: the same names
 * and arguments as kernels/cuda/ptx.cuh, with bodies that a host runs.
 *
 * mma and ldmatrix are collectives (device_code.h) which exchange the lanes' parts as mma.cuh draws
 * them (matrices.cpp). An mma's sums are those that the real unit is reported to make (tensor.cpp).
 * A copy is made as late as the program allows, in cp_async_wait and not in cp_async, so that a
 * missing wait shows; bulk copies come while the threads of a block wait (async.cpp). So indices,
 * masks, barriers and the order of instructions are proved on the host; the bits of the real unit
 * are not.
 */
#ifndef CUDASIM_INSTRUCTIONS_H
#define CUDASIM_INSTRUCTIONS_H

#include <vector>

#include "half.h"
#include "kernels/cuda/common.cuh"

typedef uintptr_t shared_at;

static inline shared_at at_shared(const void *p) { return (shared_at)__cvta_generic_to_shared(p); }

/* ------------------------------------------------------------------ elements */

static inline float widened(enum sb_dtype type, uint16_t bits)
{
    return __uint_as_float(type == SB_BF16 ? sb_bf16_widen(bits) : sb_f16_widen(bits));
}

/* Every NaN becomes the device's one NaN. */
static inline uint16_t narrowed(enum sb_dtype type, float v)
{
    const uint32_t bits = __float_as_uint(v);

    return v != v ? 0x7fff : type == SB_BF16 ? sb_bf16_narrow(bits) : sb_f16_narrow(bits);
}

template <enum sb_dtype TYPE>
static inline uint32_t pack2(float lo, float hi)
{
    return narrowed(TYPE, lo) | (uint32_t)narrowed(TYPE, hi) << 16;
}

static inline uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits)
{
    return (a & mask) | bits;
}

template <enum sb_dtype TYPE>
static inline uint32_t sub2(uint32_t a, uint32_t b)
{
    return pack2<TYPE>(widened(TYPE, (uint16_t)a) - widened(TYPE, (uint16_t)b),
                       widened(TYPE, (uint16_t)(a >> 16)) - widened(TYPE, (uint16_t)(b >> 16)));
}

/* An element that may be denormal, which a float would lose here. */
static inline double exactly(enum sb_dtype type, uint16_t bits)
{
    if (type == SB_F16 || (bits & 0x7f80) != 0)
        return (double)widened(type, bits);
    return ldexp((double)(bits & 0x7f), -133) * (bits >> 15 ? -1.0 : 1.0);
}

template <enum sb_dtype TYPE>
static inline uint32_t mul2(uint32_t a, uint32_t b)
{
    return pack2<TYPE>(
        (float)(exactly(TYPE, (uint16_t)a) * exactly(TYPE, (uint16_t)b)),
        (float)(exactly(TYPE, (uint16_t)(a >> 16)) * exactly(TYPE, (uint16_t)(b >> 16))));
}

/* ------------------------------------------------------------------ matrices */

template <enum sb_dtype TYPE>
static inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if (cudasim::count_mma(d))
        return;
    cudasim::mma_part part = {{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    cudasim::collective(0xffffffffu, TYPE == SB_BF16 ? cudasim::mma_bf16 : cudasim::mma_f16, &part);
    for (int i = 0; i < 4; i++)
        d[i] = part.d[i];
}

template <int N>
static inline void ldmatrix(uint32_t (&r)[N], shared_at row, cudasim::collective_fn fn)
{
    cudasim::count_matrices(N);
    cudasim::ldmatrix_part part;
    part.row = (const void *)row;
    cudasim::collective(0xffffffffu, fn, &part);
    for (int i = 0; i < N; i++)
        r[i] = part.r[i];
}

static inline void ldmatrix4(uint32_t (&r)[4], shared_at row)
{
    ldmatrix(r, row, cudasim::ldmatrix_4);
}

static inline void ldmatrix2(uint32_t (&r)[2], shared_at row)
{
    ldmatrix(r, row, cudasim::ldmatrix_2);
}

static inline void ldmatrix4_trans(uint32_t (&r)[4], shared_at row)
{
    ldmatrix(r, row, cudasim::ldmatrix_4_trans);
}

/* ------------------------------------------------------------------ copies */

/* The copies that a thread has begun and not waited for: those of its groups, one group behind the
 * other, and then those of the group that is still open. */
struct async_copy {
    shared_at to;
    const void *from;
};
struct async_copies {
    std::vector<async_copy> begun;
    std::vector<size_t> groups; /* the number of copies of each */
};

static inline async_copies &my_async_copies(void)
{
    /* Blocks that are there at once, at most 256 in a row, have their own. */
    static std::vector<async_copies> all(256 * 1024);
    return all[blockIdx.x % 256 * 1024 + threadIdx.x];
}

/* Forgets what a launch that failed has left behind. */
static inline void cp_async_begin(void)
{
    cudasim::unwatched books;
    my_async_copies().begun.clear();
    my_async_copies().groups.clear();
}

static inline void cp_async(shared_at to, const void *from, bool real)
{
    if (to % 16 || (uintptr_t)from % 16)
        cudasim::misaligned(to % 16 ? (const void *)to : from, 16);
    if (cudasim::count_copy(real ? from : NULL, 16))
        return;
    cudasim::note_write((const void *)to, 16); /* counts as written from now on, when races are
                                                  looked for */
    if (real)
        cudasim::note_read(from, 16);
    cudasim::unwatched books;
    my_async_copies().begun.push_back(async_copy{to, real ? from : NULL});
}

static inline void cp_async_commit(void)
{
    cudasim::unwatched books;
    async_copies &mine = my_async_copies();
    size_t open = mine.begun.size();

    for (size_t n : mine.groups)
        open -= n;
    mine.groups.push_back(open);
}

template <int LEFT>
static inline void cp_async_wait(void)
{
    cudasim::unwatched books;
    async_copies &mine = my_async_copies();
    const size_t ended = mine.groups.size() > LEFT ? mine.groups.size() - LEFT : 0;
    size_t copies = 0;

    for (size_t g = 0; g < ended; g++)
        copies += mine.groups[g];
    for (size_t c = 0; c < copies; c++) {
        const async_copy &copy = mine.begun[c];
        for (int i = 0; i < 4; i++)
            ((uint32_t *)copy.to)[i] = copy.from ? ((const uint32_t *)copy.from)[i] : 0;
    }
    mine.begun.erase(mine.begun.begin(), mine.begun.begin() + (ptrdiff_t)copies);
    mine.groups.erase(mine.groups.begin(), mine.groups.begin() + (ptrdiff_t)ended);
}

/* ------------------------------------------------------------------ mbarriers and bulk copies */

static inline bool has_bulk_copies(void) { return cudasim::compute_major() >= 9; }

static inline void mbarrier_init(shared_at bar, uint32_t arrivals)
{
    cudasim::note_write((const void *)bar, 8);
    cudasim::mbarrier_init(bar, arrivals);
}

static inline void mbarrier_arrive(shared_at bar) { cudasim::mbarrier_arrive(bar, 0); }

static inline void mbarrier_arrive_expect(shared_at bar, uint32_t bytes)
{
    cudasim::mbarrier_arrive(bar, bytes);
}

static inline void mbarrier_wait(shared_at bar, uint32_t parity)
{
    for (bool again = false; !cudasim::mbarrier_test(bar, parity); again = true)
        cudasim::spin(cudasim::SPINS_FOR_MBARRIER, (const void *)bar, again);
}

static inline void bulk_copy(shared_at to, const void *from, uint32_t bytes, shared_at bar)
{
    cudasim::bulk_copy(to, from, bytes, bar);
}

/* Copies that an mbarrier waits for come at once here. */
static inline void cp_async_arrive(shared_at bar)
{
    cp_async_commit();
    cp_async_wait<0>();
    cudasim::mbarrier_arrive(bar, 0);
}

static inline void cluster_arrive(void) { cudasim::cluster_arrive(); }

static inline void cluster_wait(void)
{
    for (bool again = false; !cudasim::cluster_test(); again = true)
        cudasim::spin(cudasim::SPINS_FOR_CLUSTER, NULL, again);
}

static inline void async_fence_global(void) { cudasim::async_fence(false); }
static inline void async_fence_shared(void) { cudasim::async_fence(true); }

#endif
