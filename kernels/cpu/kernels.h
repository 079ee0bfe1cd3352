/*
 * The CPU kernels: one list of them, compiled once for each SIMD level into a table of its own.
 *
 * src/backend/cpu.c chooses a table when a device is opened, and the files beside it call through
 * it. Most kernels work on a range [first, last) of their items, so that the thread pool may cut
 * the work anywhere. Their contracts are those of backend.h: rows are invariant, and all the tables
 * give the same bits. To add a kernel, extend this list, put a file beside it, and test it in
 * test/cpu/test_kernels.c.
 */
#ifndef SB_CPU_KERNELS_H
#define SB_CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "panel.h"

/* How a matrix product forms its sums (gemm.c defines the two orders), and by which instructions.
 * The order of blocks needs weights in the layout BF16 or quantised ones, and all its ways give the
 * same bits. So do the ways of integers (gemm_int8.c), whose weights are quantised. */
enum sb_products {
    SB_CHAIN,            /* one chain over ascending steps */
    SB_BLOCKS_FMA,       /* blocks of 32 steps, by multiply-adds */
    SB_BLOCKS_DOT,       /* blocks, by vdpbf16ps */
    SB_BLOCKS_TILES,     /* blocks, by the matrix unit (AMX) */
    SB_BLOCKS_EMULATED,  /* blocks, by the loops for the matrix unit, without one: for tests */
    SB_INTEGERS,         /* integers, by what every processor of the SIMD level has */
    SB_INTEGERS_DOT,     /* integers, by vpdpbusd (AVX512-VNNI) */
    SB_INTEGERS_TILES,   /* integers, by the matrix unit */
    SB_INTEGERS_EMULATED /* integers, by the loops for the matrix unit, without one: for tests */
};

static inline int sb_cpu_is_integers(enum sb_products products) { return products >= SB_INTEGERS; }

/* The most rows of x that gemm multiplies in one pass over a panel: of chains as many as the
 * registers have room for, of blocks and integers as many as have room for their sums and inputs
 * in the first-level cache, beside a block of W. Of quantised weights fewer, because they pass
 * over a piece of a panel a few at a time, from its beginning to its end, and each twelve fetch a
 * part of the next. It has no effect on the bits. */
#define SB_CPU_CHAIN_ROWS 6
#define SB_CPU_BLOCK_ROWS 48
#define SB_CPU_QUANT_ROWS 12
#define SB_CPU_INTEGER_ROWS 48
/* The most rows of inputs that are multiplied by quantised weights without the matrix unit, where
 * there is one: as bf16, and as integers. On a Sapphire Rapids the unit is at least as fast as
 * multiply-adds from 4 rows on, and as vpdpbusd from 16 on. */
#define SB_CPU_FEW_ROWS 3
#define SB_CPU_FEW_INTEGER_ROWS 12

/* Whether products in the order of blocks take their inputs in tiles. */
static inline int sb_cpu_has_tiles(enum sb_products products)
{
    return products == SB_BLOCKS_TILES || products == SB_BLOCKS_EMULATED;
}

/* The bf16 parts that an f32 is split into (inputs.c). */
#define SB_CPU_PARTS 3

/* y = x W^T + bias, as backend.h defines gemm. Items: panels of 64 columns of y. */
struct sb_cpu_gemm {
    enum sb_products products;
    enum sb_layout layout;
    int32_t parts; /* rows of x for each row of y: 1, or SB_CPU_PARTS */
    int32_t m, n_in, n_out;
    const void *panels;
    const float *bias; /* [n_out] or NULL */
    const void *x;     /* of SB_CHAIN floats [m, n_in]; of the others what `inputs` made */
    const float *sums; /* of layouts with minima: what `inputs` made; else NULL */
    float *y;          /* [m, ldy] */
    int64_t ldy;
};

/* Which of the numbers above counts for a product. */
static inline int64_t sb_cpu_gemm_rows(const struct sb_cpu_gemm *a)
{
    return a->products == SB_CHAIN             ? SB_CPU_CHAIN_ROWS
           : sb_cpu_is_integers(a->products)   ? SB_CPU_INTEGER_ROWS
           : sb_layout_is_quantised(a->layout) ? SB_CPU_QUANT_ROWS
                                               : SB_CPU_BLOCK_ROWS;
}

/* What x becomes before it is multiplied in the order of blocks, or as integers. */
enum sb_form {
    SB_FORM_FLOAT, /* itself; only for SB_BLOCKS_FMA */
    SB_FORM_BF16,  /* one bf16: x rounded */
    SB_FORM_PARTS, /* three of them, whose sum is x */
    SB_FORM_INT8   /* integers of 8 bits; for all products of integers, and only these */
};

/* 32 inputs of a row as integers: x is about d q. */
struct sb_cpu_int8 {
    int8_t q[SB_BLOCK]; /* in quads (panel_quant.h) */
    float d;            /* the scale */
    float sum;          /* d times the sum of q */
    int32_t sums[2];    /* of q: of the first 16 steps, and of the others */
};

/* Rows of inputs for a row of x. */
static inline int32_t sb_form_parts(enum sb_form form)
{
    return form == SB_FORM_PARTS ? SB_CPU_PARTS : 1;
}

/* Makes x for the order of blocks, or for integers. Items: rows of x. */
struct sb_cpu_inputs {
    enum sb_products products;
    enum sb_form form;
    int32_t m, n;   /* rows, columns */
    const float *x; /* [m, n] */
    void *to;       /* sb_cpu_inputs_words words of 4 bytes */
    float *sums;    /* of blocks [m, parts, whole blocks of n]: the sum of each; or NULL */
};

/* Words that `inputs` makes of a block of a row, or of one part of it. */
static inline int64_t sb_cpu_block_words(enum sb_products products)
{
    return products == SB_BLOCKS_FMA ? SB_BLOCK : SB_BLOCK / 2;
}

/* Row tiles of m rows of x, each of `parts` rows of inputs. The matrix unit takes up to sixteen
 * rows of inputs together, and the parts of a row are never in two tiles. */
static inline int64_t sb_cpu_tile_count(int64_t m, int32_t parts)
{
    return (m + 16 / parts - 1) / (16 / parts);
}

/* Rows of x in a row tile: as many in each as can be. */
static inline int64_t sb_cpu_tile_rows(int64_t m, int32_t parts)
{
    const int64_t n_tiles = sb_cpu_tile_count(m, parts);
    return m > 0 ? (m + n_tiles - 1) / n_tiles : 1;
}

/* Words that `inputs` needs room for. A tile has room for sixteen rows; of integers, which lie in
 * no tiles, the matrix unit reads up to fifteen rows behind the last. */
static inline int64_t sb_cpu_inputs_words(enum sb_products products, int32_t parts, int64_t m,
                                          int64_t n)
{
    int64_t rows = sb_cpu_has_tiles(products) ? sb_cpu_tile_count(m, parts) * 16 : m * parts;

    if (sb_cpu_is_integers(products))
        return (m * (sb_whole_blocks(n) / SB_BLOCK) + 15) *
               (int64_t)(sizeof(struct sb_cpu_int8) / sizeof(uint32_t));
    return rows * (sb_whole_blocks(n) / SB_BLOCK) * sb_cpu_block_words(products);
}

/* Tokens of one sequence that follow each other: queries that read the same keys. */
struct sb_cpu_block {
    int32_t first, n; /* tokens of the pass */
};

/* Items: block * kv_heads + kv_head, for the blocks that the backend has cut the pass into. */
struct sb_cpu_attend {
    const struct sb_attention *attention;
    const struct sb_pass *pass;
    const struct sb_cpu_block *blocks;
    enum sb_dtype type; /* of the cache */
    const float *qkv;   /* [m, (heads + 2 * kv_heads) * head_dim] */
    float *y;           /* [m, heads * head_dim] */
    /* Of attend_blocks: how its products are formed, and its memory (struct sb_cpu_attend_work),
     * which no other thread uses meanwhile. */
    enum sb_products products;
    enum sb_form form;
    void *work;
};

/* Keys of a tile. The numerics class contains this number: it changes bits. */
#define SB_CPU_ATTEND_TILE 64
/* The most queries, pairs of a token and a head, that go over a tile together. It has no effect on
 * the bits. */
#define SB_CPU_ATTEND_QUERIES 64

/* The memory of one thread for attention in the order of blocks, in words of 4 bytes: of each part,
 * in the order in which they lie, whole cache lines. */
struct sb_cpu_attend_work {
    int64_t rows, weights, q, w, panels;
};

static inline int64_t sb_cpu_whole_lines(int64_t words) { return (words + 15) / 16 * 16; }

static inline struct sb_cpu_attend_work sb_cpu_attend_work(enum sb_products products, int32_t parts,
                                                           int64_t head_dim)
{
    const int64_t n = SB_CPU_ATTEND_QUERIES, keys = SB_CPU_ATTEND_TILE;
    const int64_t elements = sb_panel_count(head_dim) * SB_PANEL * keys; /* of keys or of values */
    const struct sb_cpu_attend_work size = {
        .rows = sb_cpu_whole_lines(n * head_dim),
        .weights = n * keys,
        .q = sb_cpu_whole_lines(sb_cpu_inputs_words(products, parts, n, head_dim)),
        .w = sb_cpu_whole_lines(sb_cpu_inputs_words(products, parts, n, keys)),
        .panels = elements / 2};

    return size;
}

/* Chooses the experts of a mixture. Items: rows. */
struct sb_cpu_route {
    const struct sb_mixture *mixture;
    int32_t *chosen; /* [m, chosen + has_shared] of each row, ascending */
    float *weights;  /* likewise */
};

#define SB_CPU_KERNEL_LIST(X)                                                                 \
    /* writes rows [first, first + n) of W, given as [n, n_in] of `dtype`, into its panels */ \
    X(void, pack,                                                                             \
      (void *panels, enum sb_layout layout, int32_t n_in, int32_t first, int32_t n,           \
       const void *rows, enum sb_dtype dtype))                                                \
    /* makes rows of dtype, Q8_0 or Q4_0, of rows [n_rows, n] of a type not quantised */      \
    X(void, quantise,                                                                         \
      (void *to, enum sb_dtype dtype, const void *rows, enum sb_dtype type, size_t n_rows,    \
       size_t n))                                                                             \
    /* reads row `id` of W back out of its panels: x [n_in] */                                \
    X(void, embed,                                                                            \
      (float *x, const void *panels, enum sb_layout layout, int32_t n_in, int32_t id))        \
    /* whether this level has vdpbf16ps, and the instruction gives the bits of two fused      \
     * multiply-adds, that of the high halves first */                                        \
    X(int, dot_is_chain, (void))                                                              \
    X(void, inputs, (const struct sb_cpu_inputs *args, int64_t first, int64_t last))          \
    X(void, gemm, (const struct sb_cpu_gemm *args, int64_t first, int64_t last))              \
    /* gemm for products that have tiles; gemm calls it */                                    \
    X(void, gemm_tiles, (const struct sb_cpu_gemm *args, int64_t first, int64_t last))        \
    /* gemm for products of integers; gemm calls it */                                        \
    X(void, gemm_int8, (const struct sb_cpu_gemm *args, int64_t first, int64_t last))         \
    /* whether this process may use the matrix unit, and the unit gives the bits of blocks;   \
     * asks the operating system for it */                                                    \
    X(int, tiles_are_blocks, (void))                                                          \
    /* items: rows of h */                                                                    \
    X(void, norm, (const struct sb_norm *args, int64_t first, int64_t last))                  \
    /* qkv: the row of this one token; type: of the cache */                                  \
    X(void, rope_kv,                                                                          \
      (float *qkv, const struct sb_attention *a, const struct sb_pass *pass, int32_t token,   \
       enum sb_dtype type))                                                                   \
    X(void, attend, (const struct sb_cpu_attend *args, int64_t first, int64_t last))          \
    X(void, attend_blocks, (const struct sb_cpu_attend *args, int64_t first, int64_t last))   \
    /* y, gate, up [n] */                                                                     \
    X(void, gate, (float *y, const float *g, const float *up, int64_t n, enum sb_gate kind))  \
    /* x [n] */                                                                               \
    X(void, soft_cap, (float *x, float cap, int64_t n))                                       \
    X(void, route, (const struct sb_cpu_route *args, int64_t first, int64_t last))            \
    /* y += weight * x, [n] */                                                                \
    X(void, add_weighted, (float *y, const float *x, float weight, int64_t n))                \
    /* items: rows of logits */                                                               \
    X(void, select, (const struct sb_select *args, int64_t first, int64_t last))              \
    X(void, accept,                                                                           \
      (const int32_t *tokens, const int32_t *picks, const int32_t *n_draft, int32_t n_rows,   \
       int32_t stride, int32_t *n_accept))                                                    \
    /* items: (sequence, plane, kv_head), the head running fastest; element: bytes of one */  \
    X(void, move,                                                                             \
      (char *planes, int64_t element, const struct sb_move *args, int64_t first, int64_t last))

struct sb_cpu_kernels {
    const char *name;
#define SB_CPU_FIELD(type, name, args) type(*name) args;
    SB_CPU_KERNEL_LIST(SB_CPU_FIELD)
#undef SB_CPU_FIELD
};

/* One table for each SIMD level; builds for other processors than x86 have only the first. */
extern const struct sb_cpu_kernels sb_cpu_kernels_scalar, sb_cpu_kernels_avx2,
    sb_cpu_kernels_avx512;

/* The table for SPECBATCH_SIMD_*, or NULL if this build or this processor lacks that level. Beside
 * the matrix unit the kernels of AVX-512 run. */
const struct sb_cpu_kernels *sb_cpu_kernels_for(int32_t simd);

#endif
