/*
 * The 16-bit class's product with quantised weights: y [m, ldy] f32 = x [m, ld] w^T + bias, where x
 * is bf16 or f16 and w lies in tiles (quant_tile.h). It is made for few rows of x: the weights are
 * read once, in the bits that they have in files, and become elements in registers.
 *
 * Numerics. Integers are exact in 16 bits, so their products are those of blocks of 32 columns (of
 * groups of 16 in Q6_K), each summed by mma.sync into a fresh accumulator. In f32, with tiles u of
 * 64 or 256 columns, counted from column 0:
 *
 *     block       two mma, from 0: the lanes' pairs 0 and 1 first (quant_tile.h)
 *     a           the same with ones in place of the weights: the sum of x over the block
 *     sum[u % 8]  = fma(scale, block, sum[u % 8])         over ascending u and ascending groups
 *     sum[u % 8]  = fma(-min, a, sum[u % 8])              behind each, for types with minima
 *     y           = ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7)), then + bias
 *
 * That is the CPU's order of scaled blocks (docs/numerics.md) but for the eight sums. Nothing in it
 * knows m, the row's place, or another row, so a row has the bits that it has alone.
 *
 *     block of 8 warps: 16 weight rows x 8 * NT rows of x
 *
 *          tile 0   tile 1   ..   tile 7   tile 8  ..             k ->
 *          warp 0   warp 1        warp 7   warp 0                 warp w keeps sum w
 *
 * Eight warps share the columns because the memory needs many bytes in flight, and a matrix of 4096
 * rows has only 256 such strips of 16 rows: two a multiprocessor, or 16 warps of which each has the
 * next AHEAD tiles on their way, 34 KB or more. A warp loads its tiles straight to registers, and
 * its columns of x, 16 bytes a lane, from the first-level cache; no barrier is met before the end.
 *
 * Rejected: one sum over all columns, which a strip's warps would have to hand on from tile to
 * tile; sums of x computed beforehand, a kernel and a buffer more for two mma that the tensor core
 * has time for; scales multiplied into the elements, which rounds them.
 */
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/quant_tile.cuh"

namespace
{

enum { WARPS = 8, THREADS = 32 * WARPS, STRIP = 16 * 8 /* outputs of 16 rows by 8 */ };

struct quant_args {
    float *y;
    const uint16_t *x;
    const uint8_t *w;
    const float *bias; /* or NULL */
    int m, n_out, m_tiles, n_tiles /* of a strip's columns */;
    int64_t ld, ldy;
};

/* Eights of rows of x that a block takes at most; tiles that a warp has on their way; and how many
 * blocks share a multiprocessor, which bounds the registers. Tiles of 256 columns take 24 to 36
 * registers, and as much again on their way. */
template <enum sb_dtype Q, int NT>
struct quant_shape {
    enum {
        MOST = SB_QUANT_TILE_IS_K(Q) ? 2 : 4,
        AHEAD = Q == SB_Q4_0 || Q == SB_MXFP4 ? 4
                : Q == SB_Q8_0                ? 2
                                              : 1,
        RESIDENT = NT == 1 || (NT == 2 && !SB_QUANT_TILE_IS_K(Q)) ? 2 : 1
    };
};

/* The lane's elements of x in a block: for pairs i of columns, register i. */
template <enum sb_dtype Q>
static __device__ __forceinline__ void load_x(uint32_t (&b)[4], const uint16_t *x, int t)
{
    if (quant_traits<Q>::GROUPS == 2) {
        const uint2 lower = *(const uint2 *)(x + 4 * t), upper = *(const uint2 *)(x + 16 + 4 * t);
        b[0] = lower.x, b[1] = lower.y, b[2] = upper.x, b[3] = upper.y;
    } else {
        const uint4 eight = *(const uint4 *)(x + 8 * t);
        b[0] = eight.x, b[1] = eight.y, b[2] = eight.z, b[3] = eight.w;
    }
}

/* Adds factor[row] * block to the sums of a lane, whose elements 0 and 1 are of row g. */
static __device__ __forceinline__ void add_scaled(float (&sum)[4], const float (&factor)[2],
                                                  const float (&block)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum[i] = fmaf(factor[i / 2], block[i], sum[i]);
}

/* Adds one block's products to the sums. a: the weights' pairs; x: the block's columns of the
 * lane's row of x, for each NT. */
template <enum sb_dtype TYPE, enum sb_dtype Q, int NT>
static __device__ __forceinline__ void add_block(float (&sum)[NT][4], const quant_lane<Q> &w,
                                                 int block, const uint16_t *const (&x)[NT],
                                                 int64_t k, int t)
{
    typedef quant_traits<Q> traits;
    const uint32_t one = TYPE == SB_BF16 ? 0x3f803f80u : 0x3c003c00u,
                   ones[4] = {one, one, one, one};
    uint32_t a[2][4];
    float scale[traits::GROUPS][2], less[2];

#pragma unroll
    for (int i = 0; i < 8; i++) /* mma i / 4; register i % 4 is of row i % 2, pair i / 2 */
        a[i / 4][i % 4] = w.template pair<TYPE>(block, i % 2, i / 2);
#pragma unroll
    for (int row = 0; row < 2; row++) {
#pragma unroll
        for (int group = 0; group < traits::GROUPS; group++)
            scale[group][row] = w.head.scale(row, block ^ SB_CUDA_FAULT(SCALE_OF_OTHER_BLOCK),
                                             group);
        less[row] = -w.head.min(row, block);
    }
#pragma unroll
    for (int n = 0; n < NT; n++) {
        uint32_t b[4];
        load_x<Q>(b, x[n] + k, t);
        float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        mma<TYPE>(products, a[0], b[0], b[1]);
        if (traits::GROUPS == 2) {
            add_scaled(sum[n], scale[0], products);
            products[0] = products[1] = products[2] = products[3] = 0.0f;
        }
        mma<TYPE>(products, a[1], b[2], b[3]);
        add_scaled(sum[n], scale[traits::GROUPS - 1], products);
        if (traits::HAS_MINS) {
            float x_sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            mma<TYPE>(x_sums, ones, b[0], b[1]);
            mma<TYPE>(x_sums, ones, b[2], b[3]);
            add_scaled(sum[n], less, x_sums);
        }
    }
}

/* Adds a tile's products. */
template <enum sb_dtype TYPE, enum sb_dtype Q, int NT>
static __device__ __forceinline__ void add_columns(float (&sum)[NT][4], const quant_lane<Q> &tile,
                                                   const uint16_t *const (&x)[NT], int u, int t)
{
#pragma unroll
    for (int block = 0; block < quant_traits<Q>::BLOCKS; block++)
        add_block<TYPE, Q, NT>(sum, tile, block, x,
                               (int64_t)u * quant_traits<Q>::COLUMNS + block * SB_QUANT_TILE_BLOCK,
                               t);
}

/* Adds the warps' sums and stores them. */
template <int NT>
static __device__ __forceinline__ void store_sums(const quant_args &g, float *parts,
                                                  const float (&sum)[NT][4], int strip, int first_x)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll
    for (int i = 0; i < 4 * NT; i++) { /* [x row][weight row] */
        const int r = i / 4 * 8 + lane % 4 * 2 + i % 2, o = i % 4 / 2 * 8 + lane / 4;
        parts[warp * NT * STRIP + r * 16 + o] = sum[i / 4][i % 4];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < NT * STRIP; i += THREADS) {
        const int r = first_x + i / 16, o = strip * 16 + i % 16;
        float s[WARPS];
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            s[w] = parts[w * NT * STRIP + i];
#pragma unroll
        for (int half = WARPS / 2; half > 0; half /= 2)
#pragma unroll
            for (int w = 0; w < half; w++)
                s[w] += s[w + half];
        if (r < g.m && o < g.n_out)
            g.y[r * g.ldy + o] = g.bias ? s[0] + g.bias[o] : s[0];
    }
}

/* A strip of 16 weight rows by 8 * NT rows of x, from first_x on; row(r) says which row of g.x the
 * r-th of them is. */
template <enum sb_dtype TYPE, enum sb_dtype Q, int NT, typename F>
static __device__ __forceinline__ void multiply_strip(const quant_args &g, float *parts, int strip,
                                                      int first_x, F row)
{
    typedef quant_traits<Q> traits;
    enum { AHEAD = quant_shape<Q, NT>::AHEAD };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint8_t *tiles = g.w + (int64_t)strip * g.n_tiles * traits::BYTES;
    const uint16_t *x[NT];
    quant_lane<Q> ring[AHEAD];
    float sum[NT][4];

#pragma unroll
    for (int n = 0; n < NT; n++) {
        x[n] = g.x + row(first_x + n * 8 + lane / 4) * g.ld;
        sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (warp + i * WARPS < g.n_tiles)
            ring[i].load(tiles + (int64_t)(warp + i * WARPS) * traits::BYTES, lane);
    for (int first = warp; first < g.n_tiles; first += AHEAD * WARPS)
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int u = first + i * WARPS, next = u + AHEAD * WARPS;
            if (u >= g.n_tiles)
                break;
            const quant_lane<Q> tile = ring[i];
            if (next < g.n_tiles)
                ring[i].load(tiles + (int64_t)next * traits::BYTES, lane);
            add_columns<TYPE, Q, NT>(sum, tile, x, u, lane % 4);
        }
    store_sums<NT>(g, parts, sum, strip, first_x);
}

template <enum sb_dtype TYPE, enum sb_dtype Q, int NT>
__global__ void __launch_bounds__(THREADS, quant_shape<Q, NT>::RESIDENT) gemm_quant(quant_args g)
{
    SB_SHARED(float, parts, WARPS *NT *STRIP);
    /* Tiles of x change fastest, so that blocks that run together share weights in L2. Rows beyond
     * the last are the last, and are not stored. */
    multiply_strip<TYPE, Q, NT>(g, parts, (int)(blockIdx.x / (unsigned)g.m_tiles),
                                (int)(blockIdx.x % (unsigned)g.m_tiles) * 8 * NT,
                                [&](int r) { return (int64_t)min(r, g.m - 1); });
}

/* The same for the pairs of a mixture, a tile of places by a block. */
template <enum sb_dtype TYPE, enum sb_dtype Q, int NT>
__global__ void __launch_bounds__(THREADS, quant_shape<Q, NT>::RESIDENT)
    experts_quant(quant_args all, const __grid_constant__ expert_args e)
{
    SB_SHARED(float, parts, WARPS *NT *STRIP);
    const expert_work work(e, (int)(blockIdx.x % (unsigned)e.n_tiles));
    quant_args g = all;

    if (!work.weight)
        return;
    g.w = (const uint8_t *)work.weight;
    g.bias = work.bias;
    g.m = work.n;
    g.y += work.first * g.ldy;
    grid_launch_next();
    multiply_strip<TYPE, Q, NT>(g, parts, (int)(blockIdx.x / (unsigned)e.n_tiles), 0,
                                [&](int r) { return (int64_t)work.row(e, r); });
}

/* The tiles of 16 weight rows: how many of them, and in *n_tiles those of each one's columns. */
template <enum sb_dtype Q>
int64_t strips_of(quant_args *g)
{
    g->n_tiles = (int)((g->ld + SB_QUANT_TILE_COLUMNS(Q) - 1) / SB_QUANT_TILE_COLUMNS(Q));
    return ((int64_t)g->n_out + SB_QUANT_TILE_ROWS - 1) / SB_QUANT_TILE_ROWS;
}

template <enum sb_dtype TYPE, enum sb_dtype Q, int NT>
cudaError_t launch_rows(quant_args g, cudaStream_t stream)
{
    const int64_t strips = strips_of<Q>(&g);

    g.m_tiles = (g.m + 8 * NT - 1) / (8 * NT);
    if (strips * g.m_tiles > INT32_MAX)
        return cudaErrorInvalidConfiguration;
    return SB_LAUNCH((gemm_quant<TYPE, Q, NT>), dim3((unsigned)(strips * g.m_tiles)), dim3(THREADS),
                     0, stream, g);
}

template <enum sb_dtype TYPE, enum sb_dtype Q>
cudaError_t launch_quant(const quant_args &g, cudaStream_t stream)
{
    if (g.m <= 8)
        return launch_rows<TYPE, Q, 1>(g, stream);
    if (g.m <= 16)
        return launch_rows<TYPE, Q, 2>(g, stream);
    /* more rows in tiles of 16 or 32 */
    return launch_rows<TYPE, Q, quant_shape<Q, 1>::MOST>(g, stream);
}

template <enum sb_dtype TYPE, enum sb_dtype Q, int NT>
cudaError_t launch_experts_of(quant_args g, const expert_args &e, cudaStream_t stream)
{
    const int64_t blocks = strips_of<Q>(&g) * e.n_tiles;

    if (blocks > INT32_MAX)
        return cudaErrorInvalidConfiguration;
    return SB_LAUNCH_WITH(SB_DEPENDENT, (experts_quant<TYPE, Q, NT>), dim3((unsigned)blocks),
                          dim3(THREADS), 0, stream, g, e);
}

template <enum sb_dtype TYPE, enum sb_dtype Q>
cudaError_t launch_experts(const quant_args &g, const expert_args &e, int tile_rows,
                           cudaStream_t stream)
{
    if (tile_rows <= 8)
        return launch_experts_of<TYPE, Q, 1>(g, e, stream);
    return tile_rows <= 16 ? launch_experts_of<TYPE, Q, 2>(g, e, stream) : cudaErrorInvalidValue;
}

template <enum sb_dtype TYPE, enum sb_dtype Q>
cudaError_t load_quant(void)
{
    cudaError_t error = sb_load(gemm_quant<TYPE, Q, 1>);

    if (error == cudaSuccess)
        error = sb_load(gemm_quant<TYPE, Q, 2>);
    if (error == cudaSuccess)
        error = sb_load(experts_quant<TYPE, Q, 1>);
    if (error == cudaSuccess)
        error = sb_load(experts_quant<TYPE, Q, 2>);
    return error == cudaSuccess ? sb_load(gemm_quant<TYPE, Q, quant_shape<Q, 1>::MOST>) : error;
}

} // namespace

cudaError_t sb_cuda_gemm_quant(float *y, int64_t ldy, const void *x, enum sb_dtype type,
                               const void *w, enum sb_dtype quant, const float *bias, int32_t m,
                               int32_t n_out, int32_t n_in, cudaStream_t stream)
{
    const quant_args g = {
        y,  (const uint16_t *)x, (const uint8_t *)w, bias, m, n_out, 0, 0, sb_cuda_ld(type, n_in),
        ldy};
    cudaError_t error = cudaErrorInvalidValue;

    if (m <= 0 || n_out <= 0)
        return cudaSuccess;
    if (type == SB_BF16)
        SB_WITH_QUANT(quant, error = (launch_quant<SB_BF16, Q>(g, stream)));
    else if (type == SB_F16)
        SB_WITH_QUANT(quant, error = (launch_quant<SB_F16, Q>(g, stream)));
    return error;
}

cudaError_t sb_cuda_experts_quant(const struct sb_expert_products *p, enum sb_dtype type,
                                  const struct sb_cuda_experts *experts,
                                  const struct sb_cuda_pairs *pairs, cudaStream_t stream)
{
    const expert_args e = arguments_of(*p, *experts, *pairs);
    const quant_args g = {p->y, (const uint16_t *)p->x,    NULL,   NULL, pairs->n, p->n_out, 0,
                          0,    sb_cuda_ld(type, p->n_in), p->y_ld};
    cudaError_t error = cudaErrorInvalidValue;

    if (pairs->n == 0 || p->n_out <= 0)
        return cudaSuccess;
    if (type == SB_BF16)
        SB_WITH_QUANT(p->dtype,
                      error = (launch_experts<SB_BF16, Q>(g, e, pairs->tile_rows, stream)));
    else if (type == SB_F16)
        SB_WITH_QUANT(p->dtype,
                      error = (launch_experts<SB_F16, Q>(g, e, pairs->tile_rows, stream)));
    return error;
}

cudaError_t sb_load_gemm_quant(enum sb_dtype type)
{
    cudaError_t error = cudaSuccess;

    for (int quant = SB_Q8_0; error == cudaSuccess && quant < SB_DTYPES; quant++)
        if (type == SB_BF16)
            SB_WITH_QUANT(quant, error = (load_quant<SB_BF16, Q>()));
        else if (type == SB_F16)
            SB_WITH_QUANT(quant, error = (load_quant<SB_F16, Q>()));
    return error;
}
