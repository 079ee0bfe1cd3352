/*
 * The instructions of kernels/cuda/wgmma.cuh for the simulated device, with bodies that a host
 * runs (wgmma.cpp).
 */
#ifndef CUDASIM_WGMMA_INSTRUCTIONS_H
#define CUDASIM_WGMMA_INSTRUCTIONS_H

static inline bool has_wgmma(void) { return cudasim::compute_major() == 9; }
static inline bool device_code_has_wgmma(void) { return has_wgmma(); }

static inline wgmma_matrix wgmma_operand(shared_at at) { return at; }

static inline wgmma_matrix wgmma_further(wgmma_matrix operand, uint32_t bytes)
{
    return operand + bytes;
}

static inline void wgmma_begin(void) { cudasim::wgmma_fence(); }

template <enum sb_dtype TYPE, int TILES>
static inline void wgmma(float (&d)[TILES][4], wgmma_matrix a, wgmma_matrix b)
{
    cudasim::wgmma_part part = {TYPE == SB_BF16, &d[0][0], TILES, a, b};

    if (!cudasim::count_wgmma(TILES))
        cudasim::collective(0xffffffffu, cudasim::wgmma_issue, &part);
}

static inline void wgmma_commit(void) { cudasim::wgmma_commit(); }

/* All lanes have their sums when they go on. */
static inline void wgmma_run(void *const parts[32])
{
    cudasim::wgmma_wait(*static_cast<const unsigned *>(parts[0]));
}

template <int LEFT>
static inline void wgmma_wait(void)
{
    unsigned left = LEFT;
    cudasim::collective(0xffffffffu, wgmma_run, &left);
}

template <int TILES>
static inline void wgmma_end(float (&d)[TILES][4])
{
    (void)d;
    wgmma_wait<0>();
}

static inline void tensor_copy(shared_at to, const CUtensorMap &map, tensor_at at, shared_at bar)
{
    const int from[3] = {at.column, at.row, at.plane};
    cudasim::tensor_copy(to, map, from, bar);
}

static inline void tensor_prefetch(const CUtensorMap &map) { (void)map; }

#endif
