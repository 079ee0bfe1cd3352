/*
 * Packs weights into panels (panel.h draws them), and reads rows back out of them for the
 * embedding.
 *
 * Nothing here computes but the rounding from f32 to bf16 (to nearest even, by the same bit
 * operations at every level), and the value of a quantised weight that is read back. So a weight
 * has the same value wherever it is read, and the embedding and a tied output layer can share one
 * table.
 */
#include "level.h"
#include "pack_tile.h"
#include "panel_quant.h"

static uint32_t load_bits(const void *row, enum sb_dtype dtype, int64_t k)
{
    if (dtype == SB_F32)
        return f32_bits(((const float *)row)[k]);
    return ((const uint16_t *)row)[k];
}

static float widen(uint32_t bits, enum sb_dtype dtype)
{
    if (dtype == SB_F32)
        return bits_f32(bits);
    return dtype == SB_BF16 ? bf16_f32((uint16_t)bits) : f16_f32((uint16_t)bits);
}

/* Where block `block` of 32 steps begins in the panel of row `out`, and where its span does. */
static char *quant_block(const struct sb_quant_panel *p, void *panels, int64_t n_in, int64_t out,
                         int64_t block, char **span)
{
    *span = (char *)panels + out / SB_PANEL * sb_quant_bytes(p, n_in) +
            block / p->blocks * sb_quant_span_bytes(p);
    return *span + sb_quant_head_bytes(p) + block % p->blocks * sb_quant_block_bytes(p);
}

/* The integer of step k of a block, whose integers begin at `at`. */
static int get_integer(const char *at, const struct sb_quant_panel *p, int64_t c, int64_t k)
{
    uint32_t word;

    if (p->kind == SB_KIND_BYTES)
        return (int8_t)at[sb_byte_index(p, c, k)];
    memcpy(&word, at + (k / 8 * SB_PANEL + c) * 4, sizeof word);
    word = word >> sb_nibble_shift(k) & 15;
    return p->kind == SB_KIND_CODES ? sb_quant_codes[word] : (int)word - p->zero;
}

static float get_half(const char *at, enum sb_dtype type)
{
    uint16_t half;

    memcpy(&half, at, sizeof half);
    return widen(half, type);
}

/* Reads a row of quantised weights: scale * q - min, rounded once. */
static void embed_quantised(float *x, const struct sb_quant_panel *p, const void *panels,
                            int64_t n_in, int64_t id)
{
    const int64_t c = id % SB_PANEL;

    for (int64_t k0 = 0; k0 < n_in; k0 += SB_BLOCK) {
        char *span;
        const char *at = quant_block(p, (void *)panels, n_in, id, k0 / SB_BLOCK, &span);
        const char *integers = at + sb_quant_factor_bytes(p), *mins = integers - SB_PANEL;
        const float d = get_half(span + 2 * c, p->d);
        const float dmin = p->has_mins ? get_half(span + 2 * (SB_PANEL + c), p->d) : 0;
        const float min = p->has_mins ? dmin * (uint8_t)mins[c] : 0;
        for (int64_t k = 0; k < SB_BLOCK && k0 + k < n_in; k++) {
            const int64_t group = k * p->groups / SB_BLOCK;
            const float scale = p->has_scales ? d * (int8_t)at[group * SB_PANEL + c] : d;
            x[k0 + k] = fmaf(scale, (float)get_integer(integers, p, c, k), -min);
        }
    }
}

/* ------------------------------------------------------------------- quantised weights */

/* Bytes: step 4 i + b of a column is byte b of its word i. */
static void put_bytes(char *at, const struct tile *t, tile_words words)
{
    int8_t line[TILE];

    for (int i = 0; i < SB_BLOCK / 4; i++)
        for (int b = 0; b < 4; b++, at += SB_PANEL) {
            for (int r = 0; r < TILE; r++)
                line[r] = (int8_t)(words[i][r] >> 8 * b);
            put_line(at, t, line, sizeof *line);
        }
}

/* Words of four bytes (sb_quad_index), each of two turned words. */
static void put_quads(char *at, const struct tile *t, tile_words words)
{
    uint32_t line[2][TILE];

    for (int i = 0; i < SB_BLOCK / 4; i += 2, at += 2 * SB_LINE_BYTES) {
        memset(line, 0, sizeof line);
        for (int k = 0; k < 8; k++) {
            const int64_t to = sb_quad_index(k);
            for (int r = 0; r < TILE; r++)
                line[to / 4][r] |= (words[i + k / 4][r] >> 8 * (k % 4) & 0xff) << 8 * (to % 4);
        }
        put_line(at, t, line[0], sizeof line[0][0]);
        put_line(at + SB_LINE_BYTES, t, line[1], sizeof line[1][0]);
    }
}

/* For each byte whether it is at least n: 1 or 0. Bytes are at most 127. */
static inline uint32_t at_least(uint32_t bytes, uint32_t n)
{
    return (bytes + (128 - n) * 0x01010101u) >> 7 & 0x01010101u;
}

/* Four integers as codes in the lower halves of bytes. The sizes 6, 8 and 12 have the codes 5, 6
 * and 7, and those up to 4 are their own. */
static inline uint32_t codes_of(uint32_t integers)
{
    const uint32_t signs = integers >> 7 & 0x01010101u;
    const uint32_t sizes = (integers ^ signs * 0xffu) + signs;

    return (sizes - at_least(sizes, 6) - at_least(sizes, 8) - 3 * at_least(sizes, 12)) | signs << 3;
}

/* Four integers as nibbles: steps 0 and 1 in the lowest byte, 2 and 3 in the third. zero is 0 or 8;
 * q + 8 is q in four bits with the upper one inverted. */
static inline uint32_t nibble_pairs(uint32_t integers, int zero)
{
    const uint32_t bytes = (integers & 0x0f0f0f0fu) ^ (uint32_t)zero * 0x01010101u;

    return (bytes | bytes >> 4) & 0x00ff00ffu;
}

/* Words of nibbles or codes (panel_quant.h draws them), each of two words of bytes. */
static void put_nibbles(char *at, const struct tile *t, tile_words words,
                        const struct sb_quant_panel *p)
{
    const int zero = p->zero, is_codes = p->kind == SB_KIND_CODES;
    uint32_t line[TILE];

    for (int i = 0; i < SB_BLOCK / 4 && is_codes; i++)
        for (int r = 0; r < TILE; r++)
            words[i][r] = codes_of(words[i][r]);
    for (int i = 0; i < SB_BLOCK / 4; i += 2, at += SB_LINE_BYTES) {
        for (int r = 0; r < TILE; r++) {
            const uint32_t low = nibble_pairs(words[i][r], zero);
            const uint32_t high = nibble_pairs(words[i + 1][r], zero);
            line[r] = low >> 16 | low << 16 | high >> 16 << 8 | high << 24;
        }
        put_line(at, t, line, sizeof *line);
    }
}

/* The scales and minima of block `block` of a span, and its integers. */
static void put_block(char *at, const struct tile *t, const struct sb_quant_panel *p, int block,
                      const struct sb_quant_block columns[TILE])
{
    const int factors = p->has_scales * p->groups;
    tile_words words;
    int8_t line[TILE];

    for (int g = 0; g < factors; g++, at += SB_PANEL) {
        for (int r = 0; r < t->n; r++)
            line[r] = columns[r].scales[block * factors + g];
        put_line(at, t, line, sizeof *line);
    }
    if (p->has_mins) {
        for (int r = 0; r < t->n; r++)
            line[r] = (int8_t)columns[r].mins[block];
        put_line(at, t, line, sizeof *line);
        at += SB_PANEL;
    }
    turn(words, (const char *)columns[0].q + block * SB_BLOCK, sizeof *columns, t->n, SB_BLOCK / 4);
    if (p->kind != SB_KIND_BYTES)
        put_nibbles(at, t, words, p);
    else if (p->has_quads)
        put_quads(at, t, words);
    else
        put_bytes(at, t, words);
}

static void pack_quantised(const struct tile *t, enum sb_layout layout, int64_t n_in)
{
    const struct sb_quant_panel p = sb_quant_panel(layout);
    const int bytes = sb_quant_of(p.dtype)->bytes;
    const int64_t span = sb_quant_span_bytes(&p), end = sb_quant_bytes(&p, n_in);
    struct sb_quant_block columns[TILE];
    uint16_t line[TILE];
    int64_t from = 0;

    for (char *at = t->panel; at < t->panel + end; at += span, from += bytes) {
        for (int r = 0; r < t->n; r++) {
            sb_quant_unpack(&columns[r], p.dtype, t->rows + (size_t)r * t->stride + from);
            line[r] = columns[r].d;
        }
        put_line(at, t, line, sizeof *line);
        for (int r = 0; r < t->n && p.has_mins; r++)
            line[r] = columns[r].dmin;
        if (p.has_mins)
            put_line(at + SB_PANEL * sizeof *line, t, line, sizeof *line);
        for (int b = 0; b < p.blocks; b++)
            put_block(at + sb_quant_head_bytes(&p) + b * sb_quant_block_bytes(&p), t, &p, b,
                      columns);
    }
}

/* ----------------------------------------------------------------------- other weights */

/* The first n words of each row as lines. is_dot: whether two words are two lines in another way,
 * as BF16_DOT has them */
static void put_words(char *at, const struct tile *t, const char *const *rows, int64_t n,
                      const int is_dot)
{
    tile_words words;

    if (t->n == TILE && n == TILE) {
        v_turn_words(at + t->column * 4, SB_LINE_BYTES, rows, is_dot);
        return;
    }
    v_turn_words((char *)words, sizeof *words, rows, is_dot);
    for (int64_t i = 0; i < n; i++)
        put_line(at + i * SB_LINE_BYTES, t, words[i], sizeof words[i][0]);
}

/* `steps` steps, in words of two, as lines of one. */
static void put_f16(char *at, const struct tile *t, const char *const *rows, int64_t steps)
{
    tile_words words;
    uint16_t line[TILE];

    v_turn_words((char *)words, sizeof *words, rows, 0);
    for (int64_t k = 0; k < steps; k++, at += SB_PANEL * sizeof *line) {
        for (int r = 0; r < TILE; r++)
            line[r] = (uint16_t)(words[k / 2][r] >> 16 * (k % 2));
        put_line(at, t, line, sizeof *line);
    }
}

/* Copies n steps of a row, from step k on, as the layout has elements, with zeros behind them. */
static void convert_steps(char to[TILE_BYTES], enum sb_layout layout, const char *row,
                          enum sb_dtype dtype, int64_t k, int64_t n)
{
    uint16_t half[TILE_HALVES] = {0};
    float single[TILE] = {0.0f};

    if (layout == SB_LAYOUT_F32) {
        for (int64_t i = 0; i < n; i++)
            single[i] = widen(load_bits(row, dtype, k + i), dtype);
        memcpy(to, single, sizeof single);
        return;
    }
    if (layout == SB_LAYOUT_F16 || dtype == SB_BF16)
        for (int64_t i = 0; i < n; i++)
            half[i] = (uint16_t)load_bits(row, dtype, k + i);
    else
        for (int64_t i = 0; i < n; i++)
            half[i] = f32_bf16(widen(load_bits(row, dtype, k + i), dtype));
    memcpy(to, half, sizeof half);
}

static void pack_plain(const struct tile *t, enum sb_layout layout, int64_t n_in,
                       enum sb_dtype dtype)
{
    static const enum sb_dtype own_type[] = {[SB_LAYOUT_F32] = SB_F32,
                                             [SB_LAYOUT_F16] = SB_F16,
                                             [SB_LAYOUT_BF16] = SB_BF16,
                                             [SB_LAYOUT_BF16_DOT] = SB_BF16};
    const int64_t size = (int64_t)sb_layout_size(layout), piece = TILE_BYTES / size;
    char converted[TILE][TILE_BYTES];
    const char *rows[TILE]; /* those that a narrow tile has too few are copies of the last one */

    for (int64_t k = 0; k < n_in; k += piece) {
        const int64_t steps = n_in - k < piece ? n_in - k : piece;
        const int is_converted = steps < piece || dtype != own_type[layout];
        char *at = t->panel + k * size * SB_PANEL;
        for (int r = 0; r < TILE; r++) {
            const int from = r < t->n ? r : t->n - 1;
            rows[r] = t->rows + (size_t)from * t->stride + k * size;
            if (is_converted && r < t->n)
                convert_steps(converted[r], layout, t->rows + (size_t)r * t->stride, dtype, k,
                              steps);
            if (is_converted)
                rows[r] = converted[from];
        }
        if (layout == SB_LAYOUT_F16)
            put_f16(at, t, rows, steps);
        else if (layout == SB_LAYOUT_BF16_DOT)
            put_words(at, t, rows, TILE, 1);
        else
            put_words(at, t, rows, layout == SB_LAYOUT_F32 ? steps : TILE, 0);
    }
}

/* rows [n, n_in] of dtype. Quantised panels are packed from rows of their own type, and F16 panels
 * from f16 rows, because no class holds another type as these. All steps of the columns are
 * written, also those that fill up the last block. */
void SB_LEVEL(pack)(void *panels, enum sb_layout layout, int32_t n_in, int32_t first, int32_t n,
                    const void *rows, enum sb_dtype dtype)
{
    const int64_t panel = sb_panel_bytes(layout, n_in);
    struct tile t = {.rows = rows, .stride = sb_dtype_row_bytes(dtype, (size_t)n_in)};

    for (int32_t r = 0; r < n; r += t.n, t.rows += (size_t)t.n * t.stride) {
        t.panel = (char *)panels + (first + r) / SB_PANEL * panel;
        t.column = (first + r) % SB_PANEL;
        t.n = SB_PANEL - (int)t.column < TILE ? SB_PANEL - (int)t.column : TILE;
        t.n = n - r < t.n ? n - r : t.n;
        if (sb_layout_is_quantised(layout))
            pack_quantised(&t, layout, n_in);
        else
            pack_plain(&t, layout, n_in, dtype);
    }
}

/* x [n_in] = row `id` of W. */
void SB_LEVEL(embed)(float *x, const void *panels, enum sb_layout layout, int32_t n_in, int32_t id)
{
    if (sb_layout_is_quantised(layout)) {
        const struct sb_quant_panel p = sb_quant_panel(layout);
        embed_quantised(x, &p, panels, n_in, id);
        return;
    }
    for (int64_t k = 0; k < n_in; k++) {
        int64_t at = sb_panel_index(layout, n_in, id, k);
        if (layout == SB_LAYOUT_F32)
            x[k] = ((const float *)panels)[at];
        else if (layout == SB_LAYOUT_F16)
            x[k] = f16_f32(((const uint16_t *)panels)[at]);
        else
            x[k] = bf16_f32(((const uint16_t *)panels)[at]);
    }
}
