/*
 * Causal attention over the cache by multiply-adds, in one pass over the keys with an online
 * softmax (Milakov and Gimelshein 2018, arXiv:1805.02867). By matrix products it is in
 * attend_blocks.c.
 *
 * Keys are taken in tiles of 64, which are counted from position 0 of the query's own sequence. A
 * query at position p is computed as follows.
 *
 *     for each tile t = 0 .. p / 64, ascending, with keys j = 64 t .. min(64 t + 63, p)
 *                                        (of a layer with a window w only keys j > p - w, and only
 *                                        tiles that have some)
 *         s[j] = scale * dot(q, k[j])        16 lanes over ascending elements, then v_sum16
 *                                            (and a soft cap, if the layer has one)
 *         m'   = max(m, max s)               c = e^(m - m')
 *         w[j] = e^(s[j] - m')               l = l c + sum w, in 16 lanes, then v_hsum
 *         y[d] = y[d] c, then the chain over ascending j of w[j] v[j][d]
 *     y = y / l
 *
 * m begins at -infinity and l at 0; where heads have sinks, m begins at the head's sink and l at 1.
 *
 * A cache of 16-bit elements is widened to floats first, which is exact, so that the arithmetic is
 * the same for every type of cache. It is widened in pieces that stay in the first-level cache, and
 * each piece once for all queries, since to widen costs as much as a product. Rejected: loads that
 * widen, which would do it again for each query.
 *
 *     keys      16 keys   x PIECE elements of a head; those of a longer head for each query anew
 *     values    64 values x SLICE elements of a head
 *
 * All of this depends on q, p and the keys and values 0..p only. It does not depend on the tile's
 * other queries, on the slot, or on what lies beyond p or before the window, which never counts and
 * may be NaN. So queries may go over the keys together: a work item is a block of consecutive
 * tokens of one sequence and one kv head, with all the query heads that use this kv head. Splitting
 * the keys between threads instead would make the sum depend on where the split lies.
 */
#include "cached.h"
#include "level.h"
#include "softmax.h"

enum { TILE = SB_CPU_ATTEND_TILE, QUERIES = SB_CPU_ATTEND_QUERIES };

/* KEYS dot products run together, and SHARE queries use each load of v: as many as the registers
 * have room for. */
#if defined(SB_LEVEL_AVX512)
enum { KEYS = 16, SHARE = 4 };
#elif defined(SB_LEVEL_AVX2)
enum { KEYS = 4, SHARE = 1 };
#else
enum { KEYS = 1, SHARE = 1 };
#endif
enum { GROUPS = 4 }; /* the most groups of 16 elements of v that run together */
enum { SLICE = GROUPS * V16, PIECE = 256 };

/* The queries of a block that share a kv head, and what each has accumulated between two tiles. */
struct queries {
    int n;
    enum sb_dtype type;          /* of the cache */
    const float *q[QUERIES];     /* [head_dim] */
    float *y[QUERIES];           /* [head_dim], divided by the sum only at the end */
    int64_t pos[QUERIES];        /* ascending */
    int64_t reach;               /* positions that a query sees at most */
    struct softmax softmax;      /* begun */
    float weight[QUERIES][TILE]; /* of the current tile: first the scores, then the weights */
    /* A piece of the tile, of another type in the cache, as floats: TILE * SLICE of them are enough
     * for a piece of the keys too. */
    _Alignas(64) float wide[TILE * SLICE];
};
_Static_assert(16 * PIECE <= TILE * SLICE, "a piece of the keys fits");

/* out[i] = the 16 partial sums of the product of q and key i, or what is added to them if the sums
 * go on from an earlier piece of the head. There are n <= 16 keys, and the rest of out becomes
 * zero. keys [n, width]. Each key is addressed from the first of its group of four, because sixteen
 * pointers would not fit the registers. */
static inline __attribute__((always_inline)) void partial_dots(v16 out[V16], const float *q,
                                                               const float *keys, int64_t n,
                                                               const int64_t width,
                                                               const int goes_on)
{
    const int64_t rest = width % V16, whole = width - rest;
    int64_t i = 0, d;

    for (; i + KEYS <= n; i += KEYS) {
        const float *four[(KEYS + 3) / 4];
        v16 acc[KEYS];
        for (int c = 0; c < KEYS; c++)
            acc[c] = goes_on ? out[i + c] : v_set1(0.0f);
        for (int c = 0; c < KEYS; c += 4)
            four[c / 4] = keys + (i + c) * width;
        for (d = 0; d < whole; d += V16) {
            v16 a = v_load(q + d);
            for (int c = 0; c < KEYS; c++)
                acc[c] = v_fma(a, v_load(four[c / 4] + c % 4 * width), acc[c]);
            for (int c = 0; c < KEYS; c += 4)
                four[c / 4] += V16;
        }
        if (rest) {
            v16 a = v_load_n(q + d, rest);
            for (int c = 0; c < KEYS; c++)
                acc[c] = v_fma(a, v_load_n(four[c / 4] + c % 4 * width, rest), acc[c]);
        }
        for (int c = 0; c < KEYS; c++)
            out[i + c] = acc[c];
    }
    for (; i < n; i++) {
        v16 acc = goes_on ? out[i] : v_set1(0.0f);
        for (d = 0; d < whole; d += V16)
            acc = v_fma(v_load(q + d), v_load(keys + i * width + d), acc);
        if (rest)
            acc = v_fma(v_load_n(q + d, rest), v_load_n(keys + i * width + d, rest), acc);
        out[i] = acc;
    }
    for (; i < V16; i++)
        out[i] = v_set1(0.0f);
}

/* score[0 .. 15] of query q and n <= 16 keys. For the usual head sizes head_dim is a constant: rows
 * at fixed distances need no address arithmetic, which otherwise costs as much as the products. */
static void score_keys(float *score, const float *q, const float *keys, int64_t n, int64_t head_dim)
{
    v16 partial[V16];

    if (head_dim == 128)
        partial_dots(partial, q, keys, n, 128, 0);
    else if (head_dim == 64)
        partial_dots(partial, q, keys, n, 64, 0);
    else
        partial_dots(partial, q, keys, n, head_dim, 0);
    v_store(score, v_sum16(partial));
}

/* Widens elements [d, d + width) of n rows of the cache, whose rows have head_dim elements, into
 * rows of qs->wide. */
static void widen_rows(struct queries *qs, const void *rows, int64_t n, int64_t d, int64_t width,
                       int64_t head_dim)
{
    if (width == head_dim)
        widen_cached(qs->wide, rows, 0, n * width, qs->type);
    else
        for (int64_t j = 0; j < n; j++)
            widen_cached(qs->wide + j * width, rows, j * head_dim + d, width, qs->type);
}

/* The same for query i and keys of 16 bits whose heads are longer than a piece. */
static void score_long_keys(struct queries *qs, int i, float *score, const void *keys, int64_t n,
                            int64_t head_dim)
{
    v16 partial[V16];

    for (int64_t d = 0; d < head_dim; d += PIECE) {
        const int64_t width = head_dim - d < PIECE ? head_dim - d : PIECE;
        widen_rows(qs, keys, n, d, width, head_dim);
        partial_dots(partial, qs->q[i] + d, qs->wide, n, width, d > 0);
    }
    v_store(score, v_sum16(partial));
}

/* The n <= 16 keys as floats, for score_keys: where they are in a cache of f32, or widened; NULL
 * for score_long_keys. */
static const float *keys_as_floats(struct queries *qs, const void *keys, int64_t n,
                                   int64_t head_dim)
{
    if (qs->type == SB_F32)
        return keys;
    if (head_dim > PIECE)
        return NULL;
    widen_rows(qs, keys, n, 0, head_dim, head_dim);
    return qs->wide;
}

/* Multiplies query i's y by the factor that the tile brings. */
static void rescale(struct queries *qs, int i, int64_t head_dim)
{
    const v16 factor = v_set1(qs->softmax.factor[i]);
    int64_t d;

    for (d = 0; d + V16 <= head_dim; d += V16)
        v_store(qs->y[i] + d, v_mul(v_load(qs->y[i] + d), factor));
    if (d < head_dim)
        v_store_n(qs->y[i] + d, v_mul(v_load_n(qs->y[i] + d, head_dim - d), factor), head_dim - d);
}

/* Loads group g of `groups` groups of 16 elements, of which the last has only `rest` elements. */
static inline __attribute__((always_inline)) v16 load_group(const float *from, const int g,
                                                            const int groups, int64_t rest)
{
    return g + 1 < groups || rest == V16 ? v_load(from + g * V16) : v_load_n(from + g * V16, rest);
}

/* Adds the values of these keys, weighted, to the y of `share` queries from i on: to `groups`
 * groups of 16 elements from element d on. Every element is a chain over ascending values. A step
 * of a chain must wait for the one before, so share * groups vectors of them run together. values:
 * element d of the first value, with `stride` floats from one value to the next */
static inline __attribute__((always_inline)) void add_values(struct queries *qs, int i,
                                                             const float *values, int64_t stride,
                                                             int64_t d, struct seen keys,
                                                             const int share, const int groups,
                                                             int64_t rest)
{
    v16 acc[SHARE][GROUPS];

    for (int s = 0; s < share; s++)
        for (int g = 0; g < groups; g++)
            acc[s][g] = load_group(qs->y[i + s] + d, g, groups, rest);
    for (int64_t j = keys.from; j < keys.end; j++) {
        v16 v[GROUPS];
        for (int g = 0; g < groups; g++)
            v[g] = load_group(values + j * stride, g, groups, rest);
        for (int s = 0; s < share; s++)
            for (int g = 0; g < groups; g++)
                acc[s][g] = v_fma(v_set1(qs->weight[i + s][j]), v[g], acc[s][g]);
    }
    for (int s = 0; s < share; s++)
        for (int g = 0; g < groups; g++)
            v_store_n(qs->y[i + s] + d + g * V16, acc[s][g], g + 1 < groups ? V16 : rest);
}

/* The same for `width` elements. The number of groups is a constant in each call, so that they stay
 * in registers. */
static inline __attribute__((always_inline)) void add_all_values(struct queries *qs, int i,
                                                                 const float *values,
                                                                 int64_t stride, int64_t d,
                                                                 int64_t width, struct seen keys,
                                                                 const int share)
{
    int64_t e = 0;

    for (; e + SLICE <= width; e += SLICE)
        add_values(qs, i, values + e, stride, d + e, keys, share, GROUPS, V16);
    const int64_t left = width - e, rest = (left + V16 - 1) % V16 + 1;
    if (left > 3 * V16)
        add_values(qs, i, values + e, stride, d + e, keys, share, 4, rest);
    else if (left > 2 * V16)
        add_values(qs, i, values + e, stride, d + e, keys, share, 3, rest);
    else if (left > V16)
        add_values(qs, i, values + e, stride, d + e, keys, share, 2, rest);
    else if (left > 0)
        add_values(qs, i, values + e, stride, d + e, keys, share, 1, rest);
}

/* The keys of the tile that query i may attend to. */
static struct seen keys_seen(const struct queries *qs, int i, int64_t first_key)
{
    return seen_of(qs->pos[i], qs->reach, first_key);
}

/* Whether queries i and j see the same of the tile. */
static int see_the_same(const struct queries *qs, int i, int j, int64_t first_key)
{
    const struct seen a = keys_seen(qs, i, first_key), b = keys_seen(qs, j, first_key);

    return a.from == b.from && a.end == b.end;
}

/* Adds `width` elements of the tile's values to the y of these queries. SHARE queries are done
 * together where they see the same keys, and one at a time otherwise. */
static void share_values(struct queries *qs, struct seers who, int64_t first_key,
                         const float *values, int64_t stride, int64_t d, int64_t width)
{
    int i = who.first;

    while (i < who.end) {
        const struct seen keys = keys_seen(qs, i, first_key);
        int together = 1;
        while (together < SHARE && i + together < who.end &&
               see_the_same(qs, i, i + together, first_key))
            together++;
        if (together == SHARE) {
            add_all_values(qs, i, values, stride, d, width, keys, SHARE);
            i += SHARE;
        } else {
            add_all_values(qs, i, values, stride, d, width, keys, 1);
            i++;
        }
    }
}

/* The same for all elements. values: the tile's n_keys values in the cache */
static void tile_values(struct queries *qs, struct seers who, int64_t first_key, const void *values,
                        int64_t n_keys, int64_t head_dim)
{
    if (qs->type == SB_F32) {
        share_values(qs, who, first_key, values, head_dim, 0, head_dim);
        return;
    }
    for (int64_t d = 0; d < head_dim; d += SLICE) {
        const int64_t width = head_dim - d < SLICE ? head_dim - d : SLICE;
        widen_rows(qs, values, n_keys, d, width, head_dim);
        share_values(qs, who, first_key, qs->wide, width, d, width);
    }
}

/* Does one tile for all queries, which see n_keys <= 64 keys of it at most. keys and values point
 * to those of the tile's first position. The scores are computed for all queries by sixteen keys at
 * a time, and then the values are added, so that what is in use stays in the first-level cache.
 * Meanwhile each query fetches a part of the next tile, which has `next` bytes of keys (0 after the
 * last tile), so that memory does not rest. */
static void do_tile(struct queries *qs, int64_t first_key, const char *keys, const char *values,
                    int64_t n_keys, const struct sb_attention *a, int64_t next)
{
    const int64_t head_dim = a->head_dim;
    const int64_t row = head_dim * (int64_t)sb_dtype_size(qs->type), ahead = TILE * row;
    const int64_t share = next / (qs->n * (TILE / V16)) + 1;
    const struct seers who = seers_of(qs->pos, qs->n, qs->reach, first_key);
    int64_t done = 0;

    for (int64_t j = keys_seen(qs, who.first, first_key).from / V16 * V16; j < n_keys; j += V16) {
        const char *some = keys + j * row;
        const float *floats = keys_as_floats(qs, some, n_keys - j < V16 ? n_keys - j : V16,
                                             head_dim);
        for (int i = 0; i < qs->n; i++) {
            const struct seen seen = keys_seen(qs, i, first_key);
            const int64_t n = seen.end - j < V16 ? seen.end - j : V16;
            const int sees = n > 0 && seen.from < j + V16;
            for (int64_t end = done + share; done < end && done < next; done += 64) {
                v_prefetch(keys + ahead + done);
                v_prefetch(values + ahead + done);
            }
            if (sees && floats)
                score_keys(qs->weight[i] + j, qs->q[i], floats, n, head_dim);
            else if (sees)
                score_long_keys(qs, i, qs->weight[i] + j, some, n, head_dim);
        }
    }
    for (int i = who.first; i < who.end; i++)
        weigh_tile(&qs->softmax, i, qs->weight[i], a, keys_seen(qs, i, first_key));
    carry_sums(&qs->softmax, who);
    for (int i = who.first; i < who.end; i++)
        rescale(qs, i, head_dim);
    tile_values(qs, who, first_key, values, n_keys, head_dim);
}

/* Takes up to QUERIES queries of one sequence and kv head through all their tiles. */
static void do_queries(struct queries *qs, const struct sb_attention *a, const struct sb_pass *pass,
                       int64_t seq, int64_t kv_head)
{
    const int64_t head_dim = a->head_dim, bytes = (int64_t)sb_dtype_size(qs->type);
    const int64_t at = pass->base[seq] + (kv_head * pass->cap[seq] + pass->start[seq]) * head_dim;
    const char *keys = (const char *)a->k + at * bytes, *values = (const char *)a->v + at * bytes;
    const int64_t last = qs->pos[qs->n - 1];

    for (int i = 0; i < qs->n; i++)
        memset(qs->y[i], 0, (size_t)head_dim * sizeof(float));
    for (int64_t key = first_tile_of(qs->pos[0], qs->reach); key <= last; key += TILE) {
        int64_t left = last + 1 - key, n_keys = left < TILE ? left : TILE, rest = left - n_keys;
        do_tile(qs, key, keys + key * head_dim * bytes, values + key * head_dim * bytes, n_keys, a,
                (rest < TILE ? rest : TILE) * head_dim * bytes);
    }
    for (int i = 0; i < qs->n; i++)
        for (int64_t d = 0; d < head_dim; d++)
            qs->y[i][d] /= qs->softmax.sum[i];
}

void SB_LEVEL(attend)(const struct sb_cpu_attend *args, int64_t first, int64_t last)
{
    const struct sb_attention *a = args->attention;
    int64_t head_dim = a->head_dim, group = a->heads / a->kv_heads,
            row = a->heads + 2 * a->kv_heads;
    struct queries qs;

    qs.type = args->type;
    qs.reach = reach_of(a);
    for (int64_t item = first; item < last; item++) {
        struct sb_cpu_block block = args->blocks[item / a->kv_heads];
        int64_t kv_head = item % a->kv_heads, seq = args->pass->seq[block.first];
        qs.n = 0;
        for (int64_t i = 0; i < block.n * group; i++) {
            int64_t token = block.first + i / group, head = kv_head * group + i % group;
            qs.q[qs.n] = args->qkv + (token * row + head) * head_dim;
            qs.y[qs.n] = args->y + (token * a->heads + head) * head_dim;
            qs.pos[qs.n] = args->pass->pos[token];
            softmax_begin(&qs.softmax, qs.n, a, head);
            qs.n++;
            if (qs.n == QUERIES || i + 1 == block.n * group) {
                do_queries(&qs, a, args->pass, seq, kv_head);
                qs.n = 0;
            }
        }
    }
}
