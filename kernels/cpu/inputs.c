/*
 * Makes the inputs of matrix products in the order of blocks, or of integers: takes each value of x
 * as it is, rounds it to one bf16, splits it into three, or makes it an integer of 8 bits.
 *
 * Rounding is to nearest, ties to even (half.h). Splitting cuts, because that is exact and cannot
 * overflow:
 *
 *     x = hi + mid + lo
 *
 *     hi = the upper 16 bits of x        mid = those of x - hi        lo = x - hi - mid
 *
 * Each part takes the next 8 of the 24 significant bits, and both differences are exact. Only what
 * falls below the smallest normal number is lost. An infinity or a NaN is all in hi, and the other
 * parts are zeros. The three parts make three rows, whose sums gemm adds.
 *
 * A row ends with zeros up to a whole block of 32 columns, and lies as its product reads it:
 *
 *   SB_BLOCKS_FMA     floats             [blocks, m, parts] of [32 columns]
 *   SB_BLOCKS_DOT     words of two       [blocks, m, parts] of [16]: columns 0 and 2, 1 and 3, 4
 *                                        and 6, .. with the first of each in the high half
 *   with tiles        bf16               tiles [sb_cpu_tile_count, blocks] of [16 rows, 32
 *                                        columns], each with sb_cpu_tile_rows rows of x, whose
 *                                        parts are rows side by side
 *
 *   integers          struct sb_cpu_int8 [blocks, m]
 *
 * The rows of a block lie side by side, so that their addresses differ by constants: of a dozen
 * rows far apart each would take a register.
 *
 * Weights with minima also need the sum of each block of a row, or of each part of it:
 * x[0] + x[16], x[1] + x[17] and so on, and then the sum of these in the order of v_hsum.
 */
#include "level.h"
#include "vec_int8.h"

/* The first part of a value: what is left of it when the lower half is cut off. A NaN whose
 * remaining bits would be those of an infinity becomes a quiet NaN. */
static inline uint32_t cut(uint32_t bits)
{
    uint32_t is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (bits & 0xffff0000u) | is_nan << 22;
}

V_INLINE void round_block(uint16_t (*parts)[SB_BLOCK], const float *x)
{
    for (int k = 0; k < SB_BLOCK; k += V16)
        v_store_bf16(parts[0] + k, v_load(x + k));
}

V_INLINE void split_block(uint16_t (*parts)[SB_BLOCK], const float *x)
{
    for (int k = 0; k < SB_BLOCK; k++) {
        uint32_t bits = f32_bits(x[k]), hi = cut(bits);
        uint32_t is_finite = (bits & 0x7f800000u) != 0x7f800000u, all = 0u - is_finite;
        float rest = x[k] - bits_f32(hi);
        uint32_t mid = f32_bits(rest) & 0xffff0000u;
        uint32_t lo = f32_bits(rest - bits_f32(mid));
        parts[0][k] = (uint16_t)(hi >> 16);
        parts[1][k] = (uint16_t)((mid & all) >> 16);
        parts[2][k] = (uint16_t)((lo & all) >> 16);
    }
}

/* The sum of a block, whose values are the upper halves of floats. */
static float sum_part(const uint16_t part[SB_BLOCK])
{
    return v_hsum(v_add(v_load_bf16(part), v_load_bf16(part + V16)));
}

/* Writes one block of one part where the product reads it. at: the block's first word */
static void store_block(uint32_t *at, const uint16_t part[SB_BLOCK], enum sb_products products)
{
    if (products == SB_BLOCKS_FMA)
        for (int k = 0; k < SB_BLOCK; k++)
            at[k] = sb_bf16_widen(part[k]);
    else
        for (int k = 0; k < SB_BLOCK; k += 4) {
            at[k / 2] = (uint32_t)part[k] << 16 | part[k + 2];
            at[k / 2 + 1] = (uint32_t)part[k + 1] << 16 | part[k + 3];
        }
}

/* Makes one block of a row of x, whose parts lie side by side. x: its 32 values; sums: where its
 * sum goes, with those of other parts ldsums apart, or NULL */
V_INLINE void make_block(uint32_t *to, enum sb_products products, enum sb_form form, const float *x,
                         float *sums, int64_t ldsums)
{
    uint16_t elsewhere[SB_CPU_PARTS][SB_BLOCK];
    uint16_t(*parts)[SB_BLOCK] = sb_cpu_has_tiles(products) ? (void *)to : elsewhere;

    if (form == SB_FORM_FLOAT) {
        memcpy(to, x, SB_BLOCK * sizeof *x);
        if (sums)
            *sums = v_hsum(v_add(v_load(x), v_load(x + V16)));
        return;
    }
    if (form == SB_FORM_PARTS)
        split_block(parts, x);
    else
        round_block(parts, x);
    for (int part = 0; part < sb_form_parts(form); part++) {
        if (!sb_cpu_has_tiles(products))
            store_block(to + part * sb_cpu_block_words(products), parts[part], products);
        if (sums)
            sums[part * ldsums] = sum_part(parts[part]);
    }
}

/* Where rows are, in words: one row from the next, in groups of so many rows that begin one after
 * the other, and each block of a row from the next. Without tiles all rows are one group. */
struct places {
    int64_t rows, row, group, block;
};

static struct places places_of_rows(const struct sb_cpu_inputs *a)
{
    const int64_t words = sb_cpu_block_words(a->products), parts = sb_form_parts(a->form);
    const int64_t of_tile = 16 * words, blocks = sb_whole_blocks(a->n) / SB_BLOCK;

    if (sb_cpu_has_tiles(a->products))
        return (struct places){sb_cpu_tile_rows(a->m, (int32_t)parts), parts * words,
                               blocks * of_tile, of_tile};
    return (struct places){INT64_MAX, parts * words, 0, a->m * parts * words};
}

/* Makes the rows [first, last) of x. Divides once: a row of few blocks takes less than finding its
 * place by divisions does. */
V_INLINE void make_rows(const struct sb_cpu_inputs *a, enum sb_products products, enum sb_form form,
                        int64_t first, int64_t last)
{
    const struct places places = places_of_rows(a);
    const int64_t n = a->n, blocks = sb_whole_blocks(n) / SB_BLOCK, whole = n / SB_BLOCK;
    int64_t group = first / places.rows, in_group = first % places.rows;

    for (int64_t row = first; row < last; row++) {
        uint32_t *to = (uint32_t *)a->to + group * places.group + in_group * places.row;
        const float *x = a->x + row * n;
        float *sums = a->sums ? a->sums + row * sb_form_parts(form) * blocks : NULL;
        for (int64_t block = 0; block < whole; block++, to += places.block)
            make_block(to, products, form, x + block * SB_BLOCK, sums ? sums + block : NULL,
                       blocks);
        if (whole < blocks) {
            float filled[SB_BLOCK] = {0};
            memcpy(filled, x + whole * SB_BLOCK, (size_t)(n % SB_BLOCK) * sizeof *x);
            make_block(to, products, form, filled, sums ? sums + whole : NULL, blocks);
        }
        if (++in_group == places.rows) {
            in_group = 0;
            group++;
        }
    }
}

/* The integers of 32 columns. Where d is 0 (all x are, or nearly) so are they, and where d is a
 * NaN, because of an infinity or a NaN in x, they do not count. */
static void make_integers(struct sb_cpu_int8 *to, const float *x)
{
    const v16 lower = v_load(x), upper = v_load(x + V16);
    const uint32_t largest = v_largest_size(lower, upper);

    memset(to, 0, sizeof *to);
    to->d = largest < 0x7f800000u ? bits_f32(largest) / 127.0f : NAN;
    if (to->d > 0.0f) {
        const v16 factor = v_set1(127.0f / bits_f32(largest));
        to->sums[0] = v_quads(to->q, v_mul(lower, factor));
        to->sums[1] = v_quads(to->q + V16, v_mul(upper, factor));
    }
    to->sum = to->d * (float)(to->sums[0] + to->sums[1]);
}

static void make_integer_rows(const struct sb_cpu_inputs *a, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row++) {
        struct sb_cpu_int8 *to = (struct sb_cpu_int8 *)a->to + row;
        const float *x = a->x + row * a->n;
        for (int64_t k = 0; k < a->n; k += SB_BLOCK, to += a->m) {
            float filled[SB_BLOCK] = {0};
            if (a->n - k < SB_BLOCK)
                make_integers(to, memcpy(filled, x + k, (size_t)(a->n - k) * sizeof *x));
            else
                make_integers(to, x + k);
        }
    }
}

/* What a processor with a matrix unit makes all the time is compiled apart, since the choices of a
 * block took longer than the block. */
void SB_LEVEL(inputs)(const struct sb_cpu_inputs *args, int64_t first, int64_t last)
{
    const struct sb_cpu_inputs a = *args; /* which no store of a block can change */
    const int has_tiles = sb_cpu_has_tiles(a.products);

    if (a.form == SB_FORM_INT8)
        make_integer_rows(&a, first, last);
    else if (has_tiles && a.form == SB_FORM_BF16)
        make_rows(&a, SB_BLOCKS_TILES, SB_FORM_BF16, first, last);
    else if (has_tiles && a.form == SB_FORM_PARTS)
        make_rows(&a, SB_BLOCKS_TILES, SB_FORM_PARTS, first, last);
    else
        make_rows(&a, a.products, a.form, first, last);
}
