/*
 * The CUDA launchers in plain C. src/backend/cuda calls them, and kernels/cuda/NAME.cu defines
 * them, one file for a launcher or a family of them. Semantics, shapes and row invariance are those
 * of backend/backend.h.
 *
 * Every launcher queues its kernels on `stream` and returns at once, with the launch error. It
 * allocates nothing, waits for nothing, keeps no state, and tolerates zero rows. Offsets are
 * 64-bit. All pointers are device memory.
 *
 * There are two numerics classes, each exact in itself:
 *   f32 reference   everything is f32. Products are the CPU's fmaf chain over ascending k;
 *                   attention, norms, exp and log add in the CPU kernels' own order (16 lanes,
 *                   fixed trees). It equals the CPU backend bit for bit.
 *   16 bit          weights, gemm inputs and caches are bf16 or f16 (`type`); accumulation,
 *                   residual stream and logits are f32.
 *
 * A launcher with a `type` argument serves both classes; one that ends in _reference or _mma serves
 * one.
 */
#ifndef SB_CUDA_LAUNCH_H
#define SB_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "backend/backend.h"

#ifdef __CUDACC__
#define SB_ON_DEVICE __host__ __device__
#else
#define SB_ON_DEVICE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Elements in a row of a weight [n_out, ld] or of gemm inputs [m, ld], of which those from n_in on
 * are zeros. So in 16 bits every row is a whole number of 16-byte loads, of mma steps and of tiles.
 */
static inline int64_t sb_cuda_ld(enum sb_dtype type, int32_t n_in)
{
    return type == SB_F32 ? n_in : ((int64_t)n_in + 63) / 64 * 64;
}

/*
 * A weight of 16 bits lies in tiles of 16 rows and 64 columns: 2 KiB of consecutive memory each,
 * swizzled as products want them in shared memory. So a copy to shared memory is one piece, and
 * those of a panel of 16 rows follow each other along k.
 *
 *     panel 0   | tile: rows 0..15, k 0..63 | tile: rows 0..15, k 64..127 | ...   [ld / 64] tiles
 *     panel 1   | tile: rows 16..31, ...                                          the last panel is
 *                                                                                 filled with zeros
 *     tile      row r is 8 chunks of 8 elements; chunk c of it lies at place c ^ (r & 7)
 *
 * A GATED weight [2 n, ld], gate above up, has in each tile 8 rows of gate above the same 8 rows of
 * up. A tile of the product then has both factors of an output in one thread.
 */
enum { SB_TILE_ROWS = 16, SB_TILE_K = 64, SB_TILE = SB_TILE_ROWS * SB_TILE_K };

/* Where chunk `chunk` of row `row` lies in a tiled weight, in elements. */
static inline SB_ON_DEVICE int64_t sb_cuda_tiled(int64_t row, int64_t chunk, int64_t ld)
{
    return (row / SB_TILE_ROWS * (ld / SB_TILE_K) + chunk / 8) * SB_TILE +
           row % SB_TILE_ROWS * SB_TILE_K + ((chunk ^ row) & 7) * 8;
}

/* Which row of the tiles has row r of a weight; gated: half of its rows, or 0 if it is not. */
static inline SB_ON_DEVICE int64_t sb_cuda_tiled_row(int64_t r, int64_t gated)
{
    const int64_t o = r < gated ? r : r - gated;

    return gated == 0 ? r : o / 8 * 16 + o % 8 + (r < gated ? 0 : 8);
}

/* Elements of a weight in memory. */
static inline int64_t sb_cuda_weight_size(enum sb_dtype type, int32_t n_out, int32_t n_in)
{
    const int64_t rows = type == SB_F32
                             ? n_out
                             : ((int64_t)n_out + SB_TILE_ROWS - 1) / SB_TILE_ROWS * SB_TILE_ROWS;

    return rows * sb_cuda_ld(type, n_in);
}

/* Loads every kernel of the class whose weights are of `type`. It is called once for a device,
 * before the first launch and while nothing is captured; without it, launches of the 16-bit class
 * fail. */
cudaError_t sb_cuda_load_kernels(enum sb_dtype type);

/* Puts rows [first, first + n) into the tiles of a weight w [n_out, ld] of 16 bits, from dense rows
 * [n, ld]. gated: n_out / 2, or 0 if the weight is not gated. */
cudaError_t sb_cuda_tile(void *w, const void *rows, int32_t first, int32_t n, int64_t ld,
                         int32_t gated, cudaStream_t stream);
/* The reverse: dense rows [n, ld] from the tiles, for cuBLASLt. */
cudaError_t sb_cuda_untile(void *rows, const void *w, int32_t first, int32_t n, int64_t ld,
                           int32_t gated, cudaStream_t stream);

/* x [m, n] f32 = `scale` times rows of table [n_rows, ld] of `type`, in tiles if it is of 16 bits.
 */
cudaError_t sb_cuda_embed(float *x, const void *table, enum sb_dtype type, int32_t n_rows,
                          int32_t n, float scale, const struct sb_pass *pass, cudaStream_t stream);

/* The same from a quantised table in tiles (quant_tile.h), with the CPU's bits. */
cudaError_t sb_cuda_embed_quant(float *x, const void *table, enum sb_dtype quant, int32_t n_rows,
                                int32_t n, float scale, const struct sb_pass *pass,
                                cudaStream_t stream);

/* backend norm; h [m, ld] of `type`, its padding zeroed. One block of fixed size a row, fixed
 * tree. */
cudaError_t sb_cuda_norm(const struct sb_norm *args, enum sb_dtype type, cudaStream_t stream);

/* rope_kv of backend.h, with cache planes of `type`; f16 saturates. */
cudaError_t sb_cuda_rope_kv(float *qkv, const struct sb_attention *attention,
                            const struct sb_pass *pass, enum sb_dtype type, cudaStream_t stream);

/* Bytes of scratch that attention needs for these limits, or 0. */
size_t sb_cuda_attend_scratch(enum sb_dtype type, const struct sb_exec_limits *limits);
/* Bytes of counters that it needs, or 0. They are zeros before the first launch, and every launch
 * leaves them so. */
size_t sb_cuda_attend_counters(enum sb_dtype type, const struct sb_exec_limits *limits);
/* attend of backend.h in the f32 class: y [m, heads * head_dim] f32, in the CPU's tile order. */
cudaError_t sb_cuda_attend_reference(float *y, const float *qkv,
                                     const struct sb_attention *attention,
                                     const struct sb_pass *pass, void *scratch,
                                     cudaStream_t stream);
/* Bytes of shared memory that a block of sb_cuda_attend_mma needs at most for heads of this size,
 * or 0 if there is no kernel for them (more than 256 columns). */
int sb_cuda_attend_shared(int32_t head_dim);
/* attend of backend.h in the 16-bit class: y [m, ld(heads * head_dim)] of `type`, padding zeroed.
 * Keys come in splits of a fixed number counted from position 0. How many splits a query merges
 * follows from its own position, and it merges them in ascending order. It is made for head_dim 64
 * and 128. In a pass that is longer than the layer's window, a block walks through the splits of
 * its tile. */
cudaError_t sb_cuda_attend_mma(void *y, enum sb_dtype type, const float *qkv,
                               const struct sb_attention *attention, const struct sb_pass *pass,
                               void *scratch, unsigned *counters, cudaStream_t stream);
/* What launchers choose blocks by, asked once a device. It decides over time and over no bits. */
struct sb_launch_limits {
    int32_t processors; /* multiprocessors */
    int32_t shared;     /* bytes that a block may have */
    int32_t cluster;    /* the most blocks of attention that a cluster may have; 0: no clusters */
    void *map_encoder;  /* the driver's function that products by wgmma need; NULL: the device or
                           the code for it has none of these */
};
/* Asks the current device, whose kernels of `type` are loaded. */
cudaError_t sb_cuda_launch_limits(struct sb_launch_limits *limits, enum sb_dtype type);
/* sb_cuda_rope_kv and sb_cuda_attend_mma in one, with the same bits; qkv stays as it is. It takes
 * any pass whose sequences are apart and that is no longer than the layer's window, and is meant
 * for those that fit: sequences have few queries on average. limits: of the device; NULL: it has no
 * clusters of blocks. _in: with the tiles of one size, of 16, 32, 48 or 96 queries, for tests and
 * for timing; cudaErrorNotSupported where the device or the pass cannot have them. */
enum { SB_ROPE_ATTEND_SHAPES = 4 };
int sb_cuda_rope_attend_fits(const struct sb_attention *attention, const struct sb_pass *pass);
cudaError_t sb_cuda_rope_attend_mma(void *y, enum sb_dtype type, const float *qkv,
                                    const struct sb_attention *attention,
                                    const struct sb_pass *pass, void *scratch, unsigned *counters,
                                    const struct sb_launch_limits *limits, cudaStream_t stream);
cudaError_t sb_cuda_rope_attend_mma_in(int32_t shape, void *y, enum sb_dtype type, const float *qkv,
                                       const struct sb_attention *attention,
                                       const struct sb_pass *pass, void *scratch,
                                       unsigned *counters, const struct sb_launch_limits *limits,
                                       cudaStream_t stream);

/* y [m, ld] of `type` (padding zeroed) = up, gated (enum sb_gate); gate_up [m, 2 * n] f32. */
cudaError_t sb_cuda_gate(void *y, enum sb_dtype type, const float *gate_up, enum sb_gate gate,
                         int32_t m, int32_t n, cudaStream_t stream);

/* y [m, n_out] = x [m, n_in] W^T + bias in fmaf chains over ascending k; all f32. */
cudaError_t sb_cuda_gemm_reference(float *y, const float *x, const float *w, const float *bias,
                                   int32_t m, int32_t n_out, int32_t n_in, cudaStream_t stream);
/* y [m, n_out] f32 = x [m, ld] W^T + bias, x and the tiled w of `type`: one f32 accumulator an
 * output, in ascending steps of 16 along k with mma.sync m16n8k16. Any m will do, but it is made
 * for m <= 192. gated: n_out / 2 where w is gated; y has the rows of gate before those of up then
 * too. */
cudaError_t sb_cuda_gemm_mma(float *y, const void *x, const void *w, enum sb_dtype type,
                             const float *bias, int32_t m, int32_t n_out, int32_t n_in,
                             int32_t gated, const struct sb_launch_limits *limits,
                             cudaStream_t stream);
/* The same with the blocks of one shape, of those for more than 32 rows, whatever m is: for tests
 * and for timing. The device must have the shared memory. */
enum { SB_GEMM_SHAPES = 8 };
cudaError_t sb_cuda_gemm_mma_in(int32_t shape, float *y, const void *x, const void *w,
                                enum sb_dtype type, const float *bias, int32_t m, int32_t n_out,
                                int32_t n_in, int32_t gated, cudaStream_t stream);
/* The number of the shape of block that sb_cuda_gemm_mma and sb_cuda_gated_mma make such a product
 * by: one of those above, or of those for up to 32 rows, whose numbers are behind them. -1: the
 * device can have none. */
enum { SB_GEMM_KERNELS = SB_GEMM_SHAPES + 9 };
int32_t sb_cuda_gemm_mma_shape(enum sb_dtype type, int32_t m, int32_t n_out, int32_t n_in,
                               const struct sb_launch_limits *limits);
/* The same two by wgmma, for 9 rows and more. Whether their bits are those of sb_cuda_gemm_mma is
 * to be tested on the device. cudaErrorNotSupported: there is no map_encoder. _in: by the blocks of
 * one shape. */
enum { SB_WGMMA_SHAPES = 11 };
cudaError_t sb_cuda_gemm_wgmma(float *y, const void *x, const void *w, enum sb_dtype type,
                               const float *bias, int32_t m, int32_t n_out, int32_t n_in,
                               int32_t gated, const struct sb_launch_limits *limits,
                               cudaStream_t stream);
cudaError_t sb_cuda_gemm_wgmma_in(int32_t shape, float *y, const void *x, const void *w,
                                  enum sb_dtype type, const float *bias, int32_t m, int32_t n_out,
                                  int32_t n_in, int32_t gated,
                                  const struct sb_launch_limits *limits, cudaStream_t stream);
/* y [m, ld(n)] of `type` (padding zeroed) = silu(gate) * up, where gate and up are the halves of x
 * W^T + bias for a gated w [2 n, ld]: the bits of sb_cuda_gemm_mma and then sb_cuda_gate. */
cudaError_t sb_cuda_gated_mma(void *y, const void *x, const void *w, enum sb_dtype type,
                              const float *bias, int32_t m, int32_t n, int32_t n_in,
                              const struct sb_launch_limits *limits, cudaStream_t stream);
/* The same by wgmma: the bits of sb_cuda_gemm_wgmma and then sb_cuda_gate. */
cudaError_t sb_cuda_gated_wgmma(void *y, const void *x, const void *w, enum sb_dtype type,
                                const float *bias, int32_t m, int32_t n, int32_t n_in,
                                const struct sb_launch_limits *limits, cudaStream_t stream);
/* sb_cuda_gemm_mma with quantised weights, which lie in tiles (quant_tile.h), and where rows of y
 * are ldy floats apart, so that several weights can have columns of one y. _reference: the f32
 * class, with the CPU's bits; x [m, n_in]. The other: the 16-bit class with x [m, ld] of `type`,
 * blocks of 32 columns scaled and added in eight sums. It is made for m <= 32. */
cudaError_t sb_cuda_gemm_quant_reference(float *y, int64_t ldy, const float *x, const void *w,
                                         enum sb_dtype quant, const float *bias, int32_t m,
                                         int32_t n_out, int32_t n_in, cudaStream_t stream);
cudaError_t sb_cuda_gemm_quant(float *y, int64_t ldy, const void *x, enum sb_dtype type,
                               const void *w, enum sb_dtype quant, const float *bias, int32_t m,
                               int32_t n_out, int32_t n_in, cudaStream_t stream);
/*
 * A mixture of experts (struct sb_mixture) in launches. A pair is a row of the pass with one of its
 * experts. `route` chooses the experts of all rows and deals places to the pairs, so that those of
 * an expert lie side by side. Products have a row of results at each place, and are computed by
 * tiles of places with one expert:
 *
 *     places    | 0 .. expert 1 .. 8 | 9 .. expert 4 .. 36             | 37 .. expert 7 ..
 *     tiles     | 0 .. 8             | 9 .. 24 | 25 .. 36              | ..     of up to 16 places
 *
 * Which place a pair of an expert has is left to chance: it shows in no result, because a row of a
 * product depends on nothing but itself.
 */
struct sb_expert_tile {
    int32_t expert, first, n; /* its places; n is 0 of tiles behind the last */
    int32_t unused;           /* so that a tile is loaded at once, by 16 bytes */
};
struct sb_cuda_pairs { /* what route writes; all pointers dev */
    int32_t n;         /* of pairs */
    int32_t of_row;    /* pairs of a row */
    int32_t tile_rows; /* the most places of a tile */
    int32_t n_tiles;   /* the most tiles that there may be */
    struct sb_expert_tile *tiles;
    int32_t *row_at; /* [n] the row of the pair at a place */
    int32_t *expert; /* [n] of a row's pairs, in ascending order: the expert, */
    int32_t *place;  /* [n] the place, */
    float *weight;   /* [n] and the weight */
};
/* Device memory for the pairs of these limits, or 0. */
size_t sb_cuda_pairs_bytes(const struct sb_exec_limits *limits);
/* Lays out the pairs of a mixture in such memory. has_quantised: whether some experts are. */
struct sb_cuda_pairs sb_cuda_pairs_of(const struct sb_mixture *mixture, int has_quantised,
                                      void *memory);
cudaError_t sb_cuda_route(const struct sb_mixture *mixture, const struct sb_cuda_pairs *pairs,
                          cudaStream_t stream);
/* mixture->y from mixture->out, which has a row at each place. */
cudaError_t sb_cuda_combine(const struct sb_mixture *mixture, const struct sb_cuda_pairs *pairs,
                            cudaStream_t stream);

/* The weights of some experts, as an argument of a kernel. NULL: the expert has no part in the
 * launch. */
enum { SB_EXPERTS_OF_LAUNCH = 256 };
struct sb_cuda_experts {
    const void *weights[SB_EXPERTS_OF_LAUNCH];
    int32_t first; /* the expert that weights[0] is of */
};
/* Products of pairs with weights [n_out, n_in] of their own experts. */
struct sb_expert_products {
    float *y;          /* [places, y_ld], or */
    void *act;         /* gemm inputs of n_out / 2 columns at each place, if weights are gated */
    const float *bias; /* of each expert, y_ld floats from the next one's; or NULL */
    int32_t y_ld;
    const void *x;       /* gemm inputs: of the rows, or at each place */
    int32_t gathers;     /* 1: of the rows */
    enum sb_dtype dtype; /* of the weights */
    int32_t n_out, n_in, gated;
};
/* Each has the bits of a launcher above: sb_cuda_gemm_reference; sb_cuda_gemm_mma, or
 * sb_cuda_gated_mma; sb_cuda_gemm_quant_reference; sb_cuda_gemm_quant, with x of `type`. */
cudaError_t sb_cuda_experts_reference(const struct sb_expert_products *products,
                                      const struct sb_cuda_experts *experts,
                                      const struct sb_cuda_pairs *pairs, cudaStream_t stream);
cudaError_t sb_cuda_experts_mma(const struct sb_expert_products *products,
                                const struct sb_cuda_experts *experts,
                                const struct sb_cuda_pairs *pairs, cudaStream_t stream);
cudaError_t sb_cuda_experts_quant_reference(const struct sb_expert_products *products,
                                            const struct sb_cuda_experts *experts,
                                            const struct sb_cuda_pairs *pairs, cudaStream_t stream);
cudaError_t sb_cuda_experts_quant(const struct sb_expert_products *products, enum sb_dtype type,
                                  const struct sb_cuda_experts *experts,
                                  const struct sb_cuda_pairs *pairs, cudaStream_t stream);
/* The same for a draft, with k split over blocks, so that few rows of weights keep a whole device
 * busy: other bits than sb_cuda_gemm_mma, but still a function of the row and the weights alone.
 * For sizes that suit only. scratch: sb_cuda_draft_gemm_scratch() bytes, zeros before the first
 * use. */
cudaError_t sb_cuda_draft_gemm(float *y, const void *x, const void *w, enum sb_dtype type,
                               const float *bias, int32_t m, int32_t n_out, int32_t n_in,
                               void *scratch, cudaStream_t stream);
int sb_cuda_draft_gemm_suits(int32_t m, int32_t n_out);
size_t sb_cuda_draft_gemm_scratch(void);
/*
 * The steps of a draft in one launch (draft_step.cu), in the 16-bit class.
 *
 *   step_bytes     device memory that the steps of a model need; zeros before step_prepare
 *   step_prepare   fills it with the layers, host [n_layers], and fills in *draft, whose blocks are
 *                  0 where the model or the device does not suit. It waits for its copies.
 *   step_suits     whether these steps do
 *   steps          queues them; logits: as in backend.h; scratch: that of attention, for the exec's
 *                  limits
 */
struct sb_cuda_draft {
    struct sb_step_model model; /* with the weights themselves, which the launch needs */
    struct sb_weight embed, head;
    struct sb_attention attention; /* of any layer: without its vectors and planes */
    enum sb_dtype type;
    int32_t blocks;      /* of a launch */
    int32_t most_shared; /* bytes of shared memory that a block may have */
    void *memory;
};
size_t sb_cuda_step_bytes(const struct sb_exec_limits *limits);
cudaError_t sb_cuda_step_prepare(struct sb_cuda_draft *draft, const struct sb_step_model *model,
                                 const struct sb_step_layer *layers, enum sb_dtype type,
                                 void *memory);
int sb_cuda_step_suits(const struct sb_cuda_draft *draft, const struct sb_draft_step *steps,
                       int32_t n);
cudaError_t sb_cuda_steps(const struct sb_cuda_draft *draft, const struct sb_draft_step *steps,
                          int32_t n, int32_t limit, int32_t *ids, float *logits, void *scratch,
                          cudaStream_t stream);
/* y[r][o] += bias[o], for products that cuBLASLt made. */
cudaError_t sb_cuda_add_bias(float *y, const float *bias, int32_t m, int32_t n_out,
                             cudaStream_t stream);

/* Caps x [n] softly (backend.h). */
cudaError_t sb_cuda_soft_cap(float *x, float cap, int64_t n, cudaStream_t stream);

/* *n = how many of the 32-bit words of a and b differ; n is device memory too. */
cudaError_t sb_cuda_count_different(int32_t *n, const void *a, const void *b, int64_t words,
                                    cudaStream_t stream);

/* y [m, n] of `type` = the first n elements of each row of x [m, ld], for cuDNN's queries; f16
 * saturates. */
cudaError_t sb_cuda_narrow(void *y, enum sb_dtype type, const float *x, int32_t m, int32_t n,
                           int64_t ld, cudaStream_t stream);

/* select, accept and move of backend.h; move's planes have elements of `type`. scratch: of
 * sb_cuda_select_scratch() bytes; or NULL, then a block looks at a row alone, which gives the same
 * bits. */
size_t sb_cuda_select_scratch(void);
cudaError_t sb_cuda_select(const struct sb_select *args, void *scratch, cudaStream_t stream);
cudaError_t sb_cuda_accept(const int32_t *tokens, const int32_t *picks, const int32_t *n_draft,
                           int32_t n_rows, int32_t stride, int32_t *n_accept, cudaStream_t stream);
cudaError_t sb_cuda_move(void *planes, enum sb_dtype type, const struct sb_move *moves,
                         cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
