/*
 * Reading tiles of quantised weights (quant_tile.h) on the device: what a lane loads of a tile, and
 * what becomes of it. The integers turn into elements of 16 bits, and scales and minima into
 * floats, and both are exact.
 *
 * Integers become bf16 without a conversion. An integer of seven bits put into the lowest bits of
 * 128.0 (0x4300), whose unit is 1, makes 128 + q, and of f16 put into 1024.0 (0x6400), whose unit
 * is 1 for ten bits, 1024 + q. Subtracting that, and what stands for zero, is exact, and two
 * elements are made at once. A byte's sign is one bit too many for bf16: there the byte's lower
 * seven bits are put into 128.0, and what is subtracted is 128.0 with the sign put into its lowest
 * bit of the exponent, that is 256.0 for negative bytes.
 *
 * A code of MXFP4 is a number of two bits of exponent and one of mantissa, with denormals as other
 * types have them. So with its bits put into the lowest of the exponent and the highest of the
 * mantissa, and its sign where signs are, it is q times a power of two, 2^-127 in bf16 and 2^-15 in
 * f16, and one multiplication makes q of it.
 */
#ifndef SB_CUDA_QUANT_TILE_CUH
#define SB_CUDA_QUANT_TILE_CUH

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/quant_tile.h"

/* Runs `call` with the constant Q the quantised type that `quant` names, if it is one. */
#define SB_WITH_QUANT(quant, call)            \
    do {                                      \
        if ((quant) == SB_Q8_0) {             \
            const enum sb_dtype Q = SB_Q8_0;  \
            call;                             \
        } else if ((quant) == SB_Q4_0) {      \
            const enum sb_dtype Q = SB_Q4_0;  \
            call;                             \
        } else if ((quant) == SB_Q4_K) {      \
            const enum sb_dtype Q = SB_Q4_K;  \
            call;                             \
        } else if ((quant) == SB_Q5_K) {      \
            const enum sb_dtype Q = SB_Q5_K;  \
            call;                             \
        } else if ((quant) == SB_Q6_K) {      \
            const enum sb_dtype Q = SB_Q6_K;  \
            call;                             \
        } else if ((quant) == SB_MXFP4) {     \
            const enum sb_dtype Q = SB_MXFP4; \
            call;                             \
        }                                     \
    } while (0)

static __device__ __forceinline__ float byte_float(uint32_t word, int i)
{
    return (float)(int)(word >> 8 * i & 255u);
}

/* What a type has, and the elements in which it is multiplied. */
template <enum sb_dtype Q>
struct quant_traits {
    enum {
        COLUMNS = SB_QUANT_TILE_COLUMNS(Q),
        BLOCKS = COLUMNS / SB_QUANT_TILE_BLOCK,
        GROUPS = Q == SB_Q6_K ? 2 : 1, /* of a block */
        BYTES = SB_QUANT_TILE_BYTES(Q),
        CHUNKS = SB_QUANT_TILE_CHUNKS(Q),
        HAS_MINS = Q == SB_Q4_K || Q == SB_Q5_K
    };
};

/* ------------------------------------------------------------------ factors */

/* Scales, and minima, of the rows g and g + 8 of a tile, for one lane. */
template <enum sb_dtype Q>
struct quant_head { /* Q8_0, Q4_0, MXFP4 */
    uint2 d;

    __device__ __forceinline__ void load(const uint8_t *tile, int g)
    {
        d = __ldcg((const uint2 *)tile + g);
    }
    __device__ __forceinline__ float scale(int row, int block, int) const
    {
        const uint32_t rows = block ? d.y : d.x;
        if (Q == SB_MXFP4)
            return __uint_as_float(row ? rows & 0xffff0000u : rows << 16);
        return half_float(rows >> 16 * row);
    }
    __device__ __forceinline__ float min(int, int) const
    {
        return 0.0f;
    }
};

struct quant_head_k { /* Q4_K, Q5_K */
    uint4 rows[2];

    __device__ __forceinline__ void load(const uint8_t *tile, int g)
    {
        rows[0] = __ldcg((const uint4 *)tile + g);
        rows[1] = __ldcg((const uint4 *)tile + g + 8);
    }
    /* Group `block` of a row, from the word with the lower groups and the nibbles at `shift`. */
    static __device__ __forceinline__ float six_bits(uint32_t word, uint32_t low, int block,
                                                     int shift)
    {
        if (block < 4)
            return byte_float(word & 0x3f3f3f3fu, block);
        return byte_float((low >> shift & 0x0f0f0f0fu) | (word >> 2 & 0x30303030u), block - 4);
    }
    __device__ __forceinline__ float scale(int row, int block, int) const
    {
        return half_float(rows[row].x) * six_bits(rows[row].y, rows[row].w, block, 0);
    }
    __device__ __forceinline__ float min(int row, int block) const
    {
        return half_float(rows[row].x >> 16) * six_bits(rows[row].z, rows[row].w, block, 4);
    }
};
template <>
struct quant_head<SB_Q4_K> : quant_head_k {
};
template <>
struct quant_head<SB_Q5_K> : quant_head_k {
};

template <>
struct quant_head<SB_Q6_K> {
    uint4 scales[2];
    uint32_t d;

    __device__ __forceinline__ void load(const uint8_t *tile, int g)
    {
        scales[0] = __ldcg((const uint4 *)tile + g);
        scales[1] = __ldcg((const uint4 *)tile + g + 8);
        d = __ldcg((const uint32_t *)(tile + SB_QUANT_TILE_ROWS * 16) + g);
    }
    __device__ __forceinline__ float scale(int row, int block, int group) const
    {
        const uint4 *s = &scales[row];
        const uint32_t word = block < 2 ? s->x : block < 4 ? s->y : block < 6 ? s->z : s->w;
        const int byte = block % 2 * 2 + group;
        return half_float(d >> 16 * row) * (float)((int32_t)(word << (24 - 8 * byte)) >> 24);
    }
    __device__ __forceinline__ float min(int, int) const
    {
        return 0.0f;
    }
};

/* ------------------------------------------------------------------ integers */

static __device__ __forceinline__ uint32_t word_of(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* Moves bits up or down: from position `from` to `to`. */
static __device__ __forceinline__ uint32_t moved(uint32_t word, int from, int to)
{
    return from < to ? word << (to - from) : word >> (from - to);
}

/* The elements that stand for `bits` with zero at 0: TYPE's 128.0 or 1024.0, with them in it. */
template <enum sb_dtype TYPE>
static __device__ __forceinline__ constexpr uint32_t magic2(uint32_t bits)
{
    return (TYPE == SB_BF16 ? 0x43004300u : 0x64006400u) | bits << 16 | bits;
}

/* Two bytes with a sign, in the lower halves of 16 bits, as elements. */
template <enum sb_dtype TYPE>
static __device__ __forceinline__ uint32_t bytes2(uint32_t word)
{
    if (TYPE == SB_BF16)
        return sub2<TYPE>(and_or(word, 0x007f007fu, magic2<TYPE>(0)),
                          and_or(word, 0x00800080u, magic2<TYPE>(0)));
    return sub2<TYPE>((word & 0x00ff00ffu) ^ magic2<TYPE>(0x80), magic2<TYPE>(0x80));
}

/* Pair i of a word of codes, as elements. */
template <enum sb_dtype TYPE>
static __device__ __forceinline__ uint32_t codes2(uint32_t word, int i)
{
    const int low = TYPE == SB_BF16 ? 6 : 9; /* the lowest bit of a code in an element */
    const uint32_t size = 7u << low | 7u << (low + 16), sign = 0x80008000u;
    const uint32_t power = TYPE == SB_BF16 ? 0x7f007f00u : 0x78007800u; /* 2^127, 2^15 */
    const uint32_t sizes = moved(word, 3 * i, low), signs = moved(word, sb_tile_sign(i), 15);

    if (low - 3 * i == 15 - sb_tile_sign(i)) /* the same */
        return mul2<TYPE>(sizes & (size | sign), power);
    return mul2<TYPE>(and_or(sizes, size, signs & sign), power);
}

/* A tile as one lane has loaded it. */
template <enum sb_dtype Q>
struct quant_lane {
    quant_head<Q> head;
    uint4 chunk[quant_traits<Q>::CHUNKS];

    /* Streamed past the first-level cache, which is for x. */
    __device__ __forceinline__ void load(const uint8_t *tile, int lane)
    {
        head.load(tile, lane / 4);
#pragma unroll
        for (int i = 0; i < quant_traits<Q>::CHUNKS; i++)
            chunk[i] = __ldcg((const uint4 *)(tile + SB_QUANT_TILE_HEAD(Q)) + i * 32 + lane);
    }

    /* Pair i of row g (row 0) or g + 8 (row 1) of a block, as two elements. */
    template <enum sb_dtype TYPE>
    __device__ __forceinline__ uint32_t pair(int block, int row, int i) const
    {
        if (Q == SB_Q8_0)
            return bytes2<TYPE>(word_of(chunk[block], row * 2 + i / 2) >> i % 2 * 8);
        if (Q == SB_MXFP4)
            return codes2<TYPE>(word_of(chunk[block / 2], block % 2 * 2 + row), i);
        const uint32_t low = word_of(chunk[block / 2], block % 2 * 2 + row) >> 4 * i;
        uint32_t bits = and_or(low, 0x000f000fu, magic2<TYPE>(0));
        if (Q == SB_Q5_K)
            bits = and_or(moved(word_of(chunk[4], block / 2), i + row * 4 + block % 2 * 8, 4),
                          0x00100010u, bits);
        if (Q == SB_Q6_K)
            bits = and_or(moved(word_of(chunk[4 + block / 4], block % 4), (i + row * 4) * 2, 4),
                          0x00300030u, bits);
        return sub2<TYPE>(bits, magic2<TYPE>(SB_QUANT_TILE_ZERO(Q)));
    }
};

/* ------------------------------------------------------------------ one by one */

static __device__ __forceinline__ uint32_t bits_at(const uint8_t *tile, struct sb_tile_place place)
{
    return *(const uint32_t *)(tile + place.at) >> place.shift;
}

/* The integer of a code, of its lower three bits and its sign. */
static __device__ __forceinline__ int code_integer(int bits, int sign)
{
    const int size = bits + (bits > 4) + (bits > 5) + 3 * (bits > 6);

    return sign ? -size : size;
}

/* The integer of one row and column of a tile. */
template <enum sb_dtype Q>
static __device__ __forceinline__ float quant_integer(const uint8_t *tile, int row, int column)
{
    const uint32_t low = bits_at(tile, sb_tile_low(Q, row, column));

    if (Q == SB_Q8_0)
        return (float)(int8_t)low;
    if (Q == SB_MXFP4)
        return (float)code_integer((int)low & 7,
                                   (int)bits_at(tile, sb_tile_high(Q, row, column)) & 1);
    uint32_t bits = low & 15;
    if (Q == SB_Q5_K || Q == SB_Q6_K)
        bits |= (bits_at(tile, sb_tile_high(Q, row, column)) & (Q == SB_Q5_K ? 1 : 3)) << 4;
    return (float)((int)bits - SB_QUANT_TILE_ZERO(Q));
}

#endif
