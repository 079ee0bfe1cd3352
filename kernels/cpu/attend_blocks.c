/*
 * Causal attention by matrix products in the order of blocks (gemm.c), for compute classes that
 * have it and caches of bf16: what a processor multiplies fastest also makes scores and adds
 * values.
 *
 * As in attention.c keys are taken in tiles of 64, counted from position 0 of the query's own
 * sequence, with an online softmax. A query at position p is computed as follows, where `product`
 * is that of the class: inputs become one bf16 or three (inputs.c), sums are in blocks of 32.
 *
 *     for each tile t = 0 .. p / 64, ascending, with keys j = 64 t .. min(64 t + 63, p)
 *                                            (of a layer with a window, tiles that have some of it)
 *         s[j] = scale * product(q, k[j])    over the elements of a head
 *         m'   = max(m, max s)               c = e^(m - m')
 *         w[j] = e^(s[j] - m')               l = l c + sum w, in 16 lanes, then v_hsum
 *         y[d] = fma(y[d], c, product(w, v[.][d]))    over the 64 keys of the tile, where w is 0
 *                                                     from p + 1 on, and before the window
 *     y = y / l
 *
 * m and l begin as in attention.c.
 *
 * So a tile of keys is a panel of 64 columns, a tile of values is a panel of 64 steps for each 64
 * elements of a head, and gemm multiplies by them like by any weight. It packs a tile for all the
 * queries that read it: a block of consecutive tokens of one sequence, with all the query heads of
 * one kv head.
 *
 *     cache    keys [64][head_dim]    -> panel [head_dim steps][64 columns]      pack
 *     cache    values [64][head_dim]  -> panels [64 steps][64 columns]           pack_values
 *
 * Nothing of a query depends on the others. Scores of keys behind its position, or before its
 * window, are dropped. Values there are multiplied by +0. If they are finite, that can only change
 * the sign of a chain that is zero, and no sum notices: a sum begins at +0 and cannot become -0 by
 * adding zeros. If they are not, queries that see other keys have products of their own, in which
 * the values of keys that they do not see are 0 too.
 *
 * Rejected: scores of one query by multiply-adds along the head, without packing. Its sums would
 * be in another order than those of many queries.
 */
#include "fault.h"
#include "level.h"
#include "pack_tile.h"
#include "softmax.h"

enum { KEYS = SB_CPU_ATTEND_TILE, QUERIES = SB_CPU_ATTEND_QUERIES, CACHE_LINE = 64 };
_Static_assert(KEYS == SB_PANEL && KEYS % SB_BLOCK == 0, "a tile of keys is a panel");

/* The queries that go over the keys together, and what they need meanwhile. */
struct queries {
    const struct sb_cpu_attend *args;
    int32_t n;
    int64_t reach;          /* positions that a query sees at most */
    int64_t n_next;         /* keys of the next tile */
    float *y[QUERIES];      /* [head_dim], divided by the sum only at the end */
    int64_t pos[QUERIES];   /* ascending */
    struct softmax softmax; /* begun */
    /* parts of args->work */
    float *rows;    /* [n, head_dim]: q, and later the products with a tile's values */
    float *weights; /* [n, KEYS]: of the tile; first the scores */
    void *q, *w;    /* both as inputs of products */
    void *panels;   /* of the tile's keys, and later of its values */
};

static enum sb_layout layout_of(const struct sb_cpu_attend *args)
{
    return args->products == SB_BLOCKS_DOT ? SB_LAYOUT_BF16_DOT : SB_LAYOUT_BF16;
}

/* Cuts the thread's memory into its parts. */
static void take_work(struct queries *qs, const struct sb_cpu_attend *args)
{
    const struct sb_cpu_attend_work size = sb_cpu_attend_work(
        args->products, sb_form_parts(args->form), args->attention->head_dim);
    uint32_t *at = args->work;

    qs->args = args;
    qs->rows = (float *)at;
    qs->weights = (float *)(at += size.rows);
    qs->q = at += size.weights;
    qs->w = at += size.q;
    qs->panels = at + size.w;
}

/* Makes rows [qs->n, columns] the inputs of a product. */
static void make_inputs(const struct queries *qs, void *to, const float *rows, int64_t columns)
{
    const struct sb_cpu_inputs inputs = {.products = qs->args->products,
                                         .form = qs->args->form,
                                         .m = qs->n,
                                         .n = (int32_t)columns,
                                         .x = rows,
                                         .to = to};
    SB_LEVEL(inputs)(&inputs, 0, qs->n);
}

/* y [qs->n, n_out] = the product of inputs with n_in columns and qs->panels. */
static void multiply(const struct queries *qs, float *y, const void *inputs, int64_t n_in,
                     int64_t n_out)
{
    const struct sb_cpu_gemm product = {.products = qs->args->products,
                                        .layout = layout_of(qs->args),
                                        .parts = sb_form_parts(qs->args->form),
                                        .m = qs->n,
                                        .n_in = (int32_t)n_in,
                                        .n_out = (int32_t)n_out,
                                        .panels = qs->panels,
                                        .x = inputs,
                                        .y = y,
                                        .ldy = n_out};
    SB_LEVEL(gemm)(&product, 0, sb_panel_count(n_out));
}

/* How many keys of the tile from first_key on come before `end`. */
static int64_t keys_from(int64_t end, int64_t first_key)
{
    const int64_t n = end - first_key;
    return n > KEYS ? KEYS : n > 0 ? n : 0;
}

/* The keys of the tile that query i may attend to. */
static struct seen keys_seen(const struct queries *qs, int32_t i, int64_t first_key)
{
    struct seen keys = seen_of(qs->pos[i], qs->reach, first_key);

    if (SB_FAULT(WINDOW_OF_FIRST))
        keys.from = seen_of(qs->pos[0], qs->reach, first_key).from;
    return keys;
}

/* Fetches keys or values [first, last) of the tile behind the one that begins here, if it has
 * them. */
static void fetch(const struct queries *qs, const uint16_t *tile, int64_t first, int64_t last)
{
    const int64_t row = (int64_t)qs->args->attention->head_dim * (int64_t)sizeof *tile;

    last = last < qs->n_next ? last : qs->n_next;
    for (int64_t at = first * row; at < last * row; at += CACHE_LINE)
        v_prefetch((const char *)tile + KEYS * row + at);
}

/* Packs the first n of a tile's keys: a key is a column. */
static void pack_keys(const struct queries *qs, const uint16_t *keys, int64_t n)
{
    const int32_t head_dim = qs->args->attention->head_dim;
    const enum sb_layout layout = layout_of(qs->args);

    for (int32_t j = 0; j < n; j += V16) {
        const int32_t some = n - j < V16 ? (int32_t)n - j : V16;
        fetch(qs, keys, j, j + V16);
        SB_LEVEL(pack)(qs->panels, layout, head_dim, j, some, keys + j * head_dim, SB_BF16);
    }
}

/* Makes the weights of the tile's n keys for the queries that see some. */
static void weigh_keys(struct queries *qs, struct seers who, int64_t first_key,
                       const uint16_t *keys, int64_t n)
{
    const int32_t head_dim = qs->args->attention->head_dim;

    pack_keys(qs, keys, n);
    multiply(qs, qs->weights, qs->q, head_dim, KEYS);
    memset(qs->weights, 0, (size_t)who.first * KEYS * sizeof *qs->weights);
    memset(qs->weights + who.end * KEYS, 0, (size_t)(qs->n - who.end) * KEYS * sizeof *qs->weights);
    for (int32_t i = who.first; i < who.end; i++) {
        struct seen keys_of_i = keys_seen(qs, i, first_key);
        if (SB_FAULT(TILE_SEEN_WHOLE))
            keys_of_i.end = n;
        weigh_tile(&qs->softmax, i, qs->weights + i * KEYS, qs->args->attention, keys_of_i);
    }
    carry_sums(&qs->softmax, who);
    make_inputs(qs, qs->w, qs->weights, KEYS);
}

/* A line of a panel: `columns` elements of two rows, in the lower and the upper halves of words. */
static void put_two_rows(uint32_t *line, const uint16_t *low, const uint16_t *high, int64_t columns)
{
    int64_t c;

    columns = columns < SB_PANEL ? columns : SB_PANEL;
    for (c = 0; c + V16 <= columns; c += V16)
        v_pair_words(line + c, low + c, high + c);
    for (; c < columns; c++)
        line[c] = (uint32_t)high[c] << 16 | low[c];
}

static int is_seen(struct seen keys, int64_t key) { return key >= keys.from && key < keys.end; }

/* Packs these of a tile's values, with zeros for the others: a value is a step. */
static void pack_values(const struct queries *qs, const uint16_t *values, struct seen keys)
{
    static const uint16_t zeros[SB_PANEL];
    const int64_t head_dim = qs->args->attention->head_dim;
    const int is_dot = layout_of(qs->args) == SB_LAYOUT_BF16_DOT;
    uint32_t *line = qs->panels;

    for (int64_t d = 0; d < head_dim; d += SB_PANEL)
        for (int i = 0; i < KEYS / 2; i++, line += SB_PANEL) {
            if (d == 0)
                fetch(qs, values, 2 * i, 2 * i + 2);
            const int high = is_dot ? i / 2 * 4 + i % 2 : 2 * i + 1;
            const int low = is_dot ? high + 2 : 2 * i;
            put_two_rows(line, is_seen(keys, low) ? values + low * head_dim + d : zeros,
                         is_seen(keys, high) ? values + high * head_dim + d : zeros, head_dim - d);
        }
}

/* Whether n elements are neither infinite nor NaN. */
static int are_finite(const uint16_t *elements, int64_t n)
{
    int64_t i = 0;

    for (; i + V16 <= n; i += V16) {
        const v16 some = v_load_bf16(elements + i);
        if (v_any_nan(v_sub(some, some)))
            return 0;
    }
    for (; i < n; i++)
        if (!isfinite(bf16_f32(elements[i])))
            return 0;
    return 1;
}

/* The queries from `first` on, before `end`, that see the same keys of the tile as it does. */
static struct seers alike(const struct queries *qs, int32_t first, int32_t end, int64_t first_key)
{
    const struct seen keys = keys_seen(qs, first, first_key);
    struct seers some = {first, first};

    while (some.end < end) {
        const struct seen its = keys_seen(qs, some.end, first_key);
        if (its.from != keys.from || its.end != keys.end)
            break;
        some.end++;
    }
    return some;
}

/* Adds the tile's values to the y of these queries, as if there were only those of `keys`. */
static void add_values(struct queries *qs, struct seers who, const uint16_t *values,
                       struct seen keys)
{
    const int64_t head_dim = qs->args->attention->head_dim, whole = head_dim - head_dim % V16;

    pack_values(qs, values, keys);
    multiply(qs, qs->rows, qs->w, KEYS, head_dim);
    for (int32_t i = who.first; i < who.end; i++) {
        const float *row = qs->rows + i * head_dim;
        const float factor = qs->softmax.factor[i];
        float *y = qs->y[i];
        for (int64_t d = 0; d < whole; d += V16)
            v_store(y + d, v_fma(v_load(y + d), v_set1(factor), v_load(row + d)));
        for (int64_t d = whole; d < head_dim; d++)
            y[d] = fmaf(y[d], factor, row[d]);
    }
}

/* Does one tile for all queries. Of its keys the first n are there for the last query that sees
 * some. */
static void do_tile(struct queries *qs, int64_t first_key, const uint16_t *keys,
                    const uint16_t *values, int64_t n)
{
    const int64_t head_dim = qs->args->attention->head_dim;
    const struct seers who = seers_of(qs->pos, qs->n, qs->reach, first_key);
    /* all see these, if from < end */
    const struct seen common = {keys_seen(qs, who.end - 1, first_key).from,
                                keys_seen(qs, who.first, first_key).end};
    const int is_finite = are_finite(values, common.from * head_dim) &&
                          are_finite(values + common.end * head_dim, (n - common.end) * head_dim);
    struct seers some = who;

    weigh_keys(qs, who, first_key, keys, n);
    if (is_finite) {
        add_values(qs, who, values, (struct seen){0, n});
        return;
    }
    for (; some.first < who.end; some.first = some.end) {
        some = alike(qs, some.first, who.end, first_key);
        add_values(qs, some, values, keys_seen(qs, some.first, first_key));
    }
}

/* Takes the queries through all their tiles. */
static void do_queries(struct queries *qs, int64_t seq, int64_t kv_head)
{
    const struct sb_attention *a = qs->args->attention;
    const struct sb_pass *pass = qs->args->pass;
    const int64_t head_dim = a->head_dim;
    const int64_t at = pass->base[seq] + (kv_head * pass->cap[seq] + pass->start[seq]) * head_dim;
    const uint16_t *keys = (const uint16_t *)a->k + at, *values = (const uint16_t *)a->v + at;
    const int64_t end = qs->pos[qs->n - 1] + 1;

    make_inputs(qs, qs->q, qs->rows, head_dim);
    for (int32_t i = 0; i < qs->n; i++)
        memset(qs->y[i], 0, (size_t)head_dim * sizeof(float));
    for (int64_t key = first_tile_of(qs->pos[0], qs->reach); key < end; key += KEYS) {
        qs->n_next = keys_from(end, key + KEYS);
        do_tile(qs, key, keys + key * head_dim, values + key * head_dim, keys_from(end, key));
    }
    for (int32_t i = 0; i < qs->n; i++)
        for (int64_t d = 0; d < head_dim; d++)
            qs->y[i][d] /= qs->softmax.sum[i];
}

void SB_LEVEL(attend_blocks)(const struct sb_cpu_attend *args, int64_t first, int64_t last)
{
    const struct sb_attention *a = args->attention;
    const int64_t head_dim = a->head_dim, group = a->heads / a->kv_heads,
                  row = a->heads + 2 * a->kv_heads;
    struct queries qs;

    take_work(&qs, args);
    qs.reach = reach_of(a);
    for (int64_t item = first; item < last; item++) {
        const struct sb_cpu_block block = args->blocks[item / a->kv_heads];
        const int64_t kv_head = item % a->kv_heads, seq = args->pass->seq[block.first];
        qs.n = 0;
        for (int64_t i = 0; i < block.n * group; i++) {
            const int64_t token = block.first + i / group, head = kv_head * group + i % group;
            memcpy(qs.rows + qs.n * head_dim, args->qkv + (token * row + head) * head_dim,
                   (size_t)head_dim * sizeof(float));
            qs.y[qs.n] = args->y + (token * a->heads + head) * head_dim;
            qs.pos[qs.n] = args->pass->pos[token];
            softmax_begin(&qs.softmax, qs.n, a, head);
            qs.n++;
            if (qs.n == QUERIES || i + 1 == block.n * group) {
                do_queries(&qs, seq, kv_head);
                qs.n = 0;
            }
        }
    }
}
