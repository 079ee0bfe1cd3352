/*
 * Steps 6 to 8 of sampling (struct sb_sampler): temperature, filters and choice, for s, a row of
 * logits that change_row (changes.h) has changed.
 *
 * DEPTH. Let top be the largest s. A +infinity counts as FLT_MAX. In float,
 *
 *     depth(id) = (top - s[id]) * (1 / temperature)          0 for the largest s, else more
 *
 * Adding a number to all s does not change it, and it cannot overflow where s is large. What is
 * infinitely deep is not allowed: -infinity, and what is so far below top that it overflows. The
 * reciprocal is at least FLT_MIN. Everything else follows from the depths:
 *
 *     weight = e^-depth         in float, by v_exp
 *     mass   = weight * 2^40    cut to an integer, uint64_t
 *     value  = noise - depth    in float
 *
 * Sums are sums of masses. Integers have no order of summation, so every SIMD level, and a GPU,
 * gets the same sums by any way. The weights that are cut to 0 are below 2^-40 of the largest.
 *
 * FILTERS. What is left of the vocabulary begins as all that is allowed. Each filter orders what is
 * left by a key, ascending, equal keys by ascending id, and leaves the beginning of that order. Z
 * is the mass of what is left when the filter begins.
 *
 *     top_k       key: depth. The first k.
 *     top_p       key: depth. The fewest whose mass is not 0 and at least top_p * Z.
 *     typical_p   key: |depth - mean|. The fewest whose mass is not 0 and at least typical_p * Z.
 *                 mean is (float)(D / Z) in double, D the sum of weight * depth * 2^40, each cut to
 *                 an integer. With p = weight / sum, -log p is depth + log sum, and the entropy is
 *                 mean + log sum, so this key is how far -log p is from the entropy.
 *     min_p       Those are left whose weight is at least min_p * the weight of the least depth
 *                 that is left, a product in float.
 *
 * Products with Z and comparisons of masses are in double. What a filter leaves is not listed. It
 * is told by the last one that is left (struct cut), and whether an id is left is whether it is not
 * behind any of the cuts. The last one is found without sorting: the keys, none of them negative,
 * are ordered like the bits of the floats, and the sums of masses under the upper 11 bits of a key
 * tell the upper 11 bits of the last key. Those of the next 10 bits, among keys that begin with
 * these, tell the next, and so do the last 10. Then equal keys are gone through by ascending id. A
 * sort would need memory of the vocabulary's size. Four passes over 8 bits each would put almost
 * all keys of the first pass into three sums, which have to wait for each other.
 *
 * CHOICE. The id with the largest value is chosen, of equal ones the lowest. An id whose value
 * cannot be larger than the best so far, by the bound of its noise (noise.h), needs no logarithms.
 */
#ifndef SB_CPU_SAMPLE_H
#define SB_CPU_SAMPLE_H

#include <float.h>

#include "kernels.h"
#include "math.h"
#include "noise.h"
#include "vec_bits.h"

/* The last of an order that is left. */
struct cut {
    uint32_t key; /* the bits of its key */
    int32_t id;
};

struct row {
    const float *s;
    int32_t n;
    float top, inverse;   /* inverse: of the temperature */
    struct cut depth;     /* what top_k and top_p leave */
    struct cut deviation; /* what typical_p leaves, */
    int has_mean;         /* once it has begun */
    float mean;
    float least_weight; /* what min_p leaves weighs at least this */
};

/* What a pass over the row looks for. */
struct search {
    int by_deviation; /* the key is |depth - mean|; 0: depth */
    int has_weights;
    float low, last; /* keys in [low, last] */
};

/* Sixteen ids. Of those in which a bit of `found` is set the search tells: */
struct group {
    uint32_t found;
    float depth[V16], key[V16], weight[V16];
};

/* All ids deeper than this have the mass 0: e^-28 is 0.76 * 2^-40. */
#define DEPTH_OF_NO_MASS 28.0f

static uint64_t mass_of(float weight) { return (uint64_t)(int64_t)((double)weight * 0x1p40); }

V_INLINE v16 depths(const struct row *row, int64_t first)
{
    const v16 lowest = v_set1(-INFINITY);
    const int64_t lanes = row->n - first;
    v16 s = lanes >= V16 ? v_load(row->s + first)
                         : v_first(lanes, v_load_n(row->s + first, lanes), lowest);
    s = v_min(s, v_set1(FLT_MAX));
    return v_mul(v_sub(v_set1(row->top), s), v_set1(row->inverse));
}

/* The key that orders by deviation; never -0. */
V_INLINE v16 deviations(v16 depth, float mean)
{
    const v16 m = v_set1(mean);
    return v_add(v_max(v_sub(depth, m), v_sub(m, depth)), v_set1(0.0f));
}

/* The lanes whose keys are behind a cut: those with larger keys, and of those with the same key the
 * ones behind its id. */
V_INLINE uint32_t behind(struct cut cut, v16 key, int64_t first)
{
    const v16 last = v_set1(bits_f32(cut.key));
    const uint32_t larger = v_less_bits(last, key), less = v_less_bits(key, last);
    const int64_t n = (int64_t)cut.id + 1 - first; /* lanes that are not behind its id */

    if (n <= 0)
        return ~less & V_ALL_BITS;
    return n < V16 ? larger | (~less & V_ALL_BITS << n) : larger;
}

/* The depth of one id. */
static float depth_of(const struct row *row, int32_t id)
{
    return (row->top - (row->s[id] < FLT_MAX ? row->s[id] : FLT_MAX)) * row->inverse;
}

/* Looks through ids first .. first + 15. */
V_INLINE void look(struct group *group, const struct row *row, const struct search *search,
                   int64_t first)
{
    const v16 depth = depths(row, first);
    const v16 deviation = row->has_mean ? deviations(depth, row->mean) : depth;
    const v16 key = search->by_deviation ? deviation : depth;
    uint32_t out = behind(row->depth, depth, first) | v_less_bits(key, v_set1(search->low)) |
                   v_less_bits(v_set1(search->last), key);

    if (row->has_mean)
        out |= behind(row->deviation, deviation, first);
    group->found = ~out & V_ALL_BITS;
    if (!group->found)
        return;
    v_store(group->depth, depth);
    v_store(group->key, key);
    if (search->has_weights)
        v_store(group->weight, v_exp(v_sub(v_set1(0.0f), depth)));
}

/* The id up to which those with the key search->last are needed for `target`, after those that
 * count `before`. */
static int32_t find_last(const struct row *row, const struct search *search, int by_mass,
                         uint64_t before, double target)
{
    struct group group;

    for (int64_t i = 0; i < row->n; i += V16) {
        look(&group, row, search, i);
        for (uint32_t bits = group.found; bits; bits &= bits - 1) {
            const int lane = lowest_bit(bits);
            before += by_mass ? mass_of(group.weight[lane]) : 1;
            if ((double)before >= target)
                return (int32_t)i + lane;
        }
    }
    return INT32_MAX;
}

/* Finds the last id that a filter leaves: by_mass 1: the first whose mass and that of those before
 * it are at least share * Z, and not 0; 0: the one with share - 1 others before it. There are as
 * many, and share is at most 1 if by_mass. */
static struct cut find_cut(const struct row *row, int by_deviation, int by_mass, double share)
{
    static const struct {
        int shift, bits;
    } digits[] = {{20, 11}, {10, 10}, {0, 10}};
    uint64_t sums[1 << 11], before = 0;
    uint32_t key = 0; /* the digits found so far */
    double target = share;
    struct search search = {by_deviation, by_mass, 0.0f, FLT_MAX};
    struct group group;

    if (by_mass && !by_deviation)
        search.last = DEPTH_OF_NO_MASS;
    for (int d = 0; d < 3; d++) {
        const int shift = digits[d].shift;
        const uint32_t n = 1u << digits[d].bits;
        uint32_t digit = 0;

        memset(sums, 0, n * sizeof *sums);
        for (int64_t i = 0; i < row->n; i += V16) {
            look(&group, row, &search, i);
            for (uint32_t bits = group.found; bits; bits &= bits - 1) {
                const int lane = lowest_bit(bits);
                sums[f32_bits(group.key[lane]) >> shift & (n - 1)] += by_mass
                                                                          ? mass_of(
                                                                                group.weight[lane])
                                                                          : 1;
            }
        }
        if (by_mass && d == 0) {
            uint64_t z = 0;
            for (uint32_t i = 0; i < n; i++)
                z += sums[i];
            target = share * (double)z > 1.0 ? share * (double)z : 1.0;
        }
        while (digit < n - 1 && (double)(before + sums[digit]) < target)
            before += sums[digit++];
        key |= digit << shift;
        /* A bound that is a denormal may count as 0, which is right: no key is a denormal. */
        search.low = bits_f32(key);
        search.last = bits_f32(key | ((1u << shift) - 1));
    }

    return (struct cut){key, find_last(row, &search, by_mass, before, target)};
}

/* The mean depth of what is left, each id weighing as its mass. */
static float mean_depth(const struct row *row)
{
    const struct search all = {0, 1, 0.0f, FLT_MAX};
    uint64_t z = 0, sum = 0;
    struct group group;

    for (int64_t i = 0; i < row->n; i += V16) {
        look(&group, row, &all, i);
        for (uint32_t bits = group.found; bits; bits &= bits - 1) {
            const int lane = lowest_bit(bits);
            const double weight = group.weight[lane];
            z += mass_of(group.weight[lane]);
            sum += (uint64_t)(int64_t)(weight * (double)group.depth[lane] * 0x1p40);
        }
    }
    return (float)((double)sum / (double)z);
}

/* The weight of the least depth that is left. */
static float largest_weight(const struct row *row)
{
    struct search search = {0, 1, 0.0f, FLT_MAX};
    struct group group;
    float weight = 0.0f;

    for (int64_t i = 0; i < row->n; i += V16) {
        look(&group, row, &search, i);
        for (uint32_t bits = group.found; bits; bits &= bits - 1) {
            const int lane = lowest_bit(bits);
            if (group.depth[lane] <= search.last) {
                search.last = group.depth[lane];
                weight = group.weight[lane];
            }
        }
    }
    return weight;
}

/* The number of ids that are allowed, or k if there are more. */
static int64_t count_allowed(const struct row *row, int64_t k)
{
    int64_t n = 0;
    for (int64_t i = 0; i < row->n && n < k; i += V16)
        n += __builtin_popcount(v_less_bits(depths(row, i), v_set1(INFINITY)));
    return n < k ? n : k;
}

/* Runs the filters, and returns the least weight that min_p leaves. */
static float filter(struct row *row, const struct sb_sampler *sampler)
{
    if (sampler->top_k > 0 && count_allowed(row, sampler->top_k) == sampler->top_k)
        row->depth = find_cut(row, 0, 0, sampler->top_k);
    if (sampler->top_p < 1.0f)
        row->depth = find_cut(row, 0, 1, (double)sampler->top_p);
    if (sampler->typical_p < 1.0f) {
        row->mean = mean_depth(row);
        row->deviation = (struct cut){f32_bits(FLT_MAX), INT32_MAX};
        row->has_mean = 1;
        row->deviation = find_cut(row, 1, 1, (double)sampler->typical_p);
    }
    return sampler->min_p > 0.0f ? sampler->min_p * largest_weight(row) : 0.0f;
}

/* The id with the largest value of those that are left and weigh at least least_weight. */
static int32_t choose(const struct row *row, float least_weight, uint64_t seed, int32_t position)
{
    enum { BLOCK = SB_NOISE_BLOCK, GROUPS = BLOCK / V16 };
    const struct search search = {0, least_weight > 0.0f, 0.0f, FLT_MAX};
    uint32_t x[BLOCK];
    float bounds[BLOCK], best = -INFINITY;
    struct group group;
    int32_t id = SB_PICK_NONE;

    for (int64_t first = 0; first < row->n; first += BLOCK) {
        const v16 most = v_set1(SB_NOISE_MAX), deepest = v_set1(bits_f32(row->depth.key));
        uint32_t hopeful[GROUPS] = {0}, any = 0;
        for (int g = 0; g < GROUPS && first + g * V16 < row->n; g++) {
            const v16 depth = depths(row, first + g * V16);
            hopeful[g] = v_less_bits(v_set1(best), v_sub(most, depth)) &
                         ~v_less_bits(deepest, depth);
            any |= hopeful[g];
        }
        if (!any)
            continue;
        sb_noise_words(x, seed, position, (int32_t)first);
        sb_noise_bounds(bounds, x);
        for (int g = 0; g < GROUPS; g++) {
            const int64_t at = first + g * V16;
            if (!hopeful[g])
                continue;
            hopeful[g] &= v_less_bits(v_set1(best),
                                      v_sub(v_load(bounds + g * V16), depths(row, at)));
            if (!hopeful[g])
                continue;
            look(&group, row, &search, at);
            for (uint32_t bits = hopeful[g] & group.found; bits; bits &= bits - 1) {
                const int lane = lowest_bit(bits);
                const float value = sb_noise(x[g * V16 + lane]) - group.depth[lane];
                if (value > best && !(search.has_weights && group.weight[lane] < least_weight)) {
                    best = value;
                    id = (int32_t)at + lane;
                }
            }
        }
    }
    return id;
}

/* What temperature and filters make of s [n], whose largest is top. With temperature 0 there are no
 * filters, and the temperature counts as 1. */
static struct row filtered_row(const float *s, int32_t n, float top,
                               const struct sb_sampler *sampler)
{
    const float inverse = sampler->temperature > 0.0f ? 1.0f / sampler->temperature : 1.0f;
    struct row row = {.s = s,
                      .n = n,
                      .top = top < FLT_MAX ? top : FLT_MAX,
                      .inverse = inverse > FLT_MIN ? inverse : FLT_MIN,
                      .depth = {f32_bits(FLT_MAX), INT32_MAX}};

    if (sampler->temperature > 0.0f)
        row.least_weight = filter(&row, sampler);
    return row;
}

/* The token that follows from what is left. */
static int32_t sample(const struct row *row, const struct sb_sampler *sampler, int32_t position)
{
    return choose(row, row->least_weight, sampler->seed, position);
}

#endif
