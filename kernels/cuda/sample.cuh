/*
 * Steps 6 to 8 of sampling (struct sb_sampler), by one block: temperature, filters and choice, for
 * a row that change_row (changes.cuh) has changed. kernels/cpu/sample.h defines depth, weight,
 * mass, the filters and the choice. The depths, weights and values are the CPU's float operations,
 * and the sums of masses are integers, which have no order of summation, so the bits are the CPU's.
 *
 * ORDER. A filter orders ids by a key, which is not negative, and equal keys by the id. Here both
 * are one number:
 *
 *     bits of the key (31) | id (32)
 *
 * What a filter leaves is told by the last one of its order that is left (row.depth_end,
 * row.deviation_end). It is found by its digits, of 11, 10 and 10 bits for the key and as many for
 * the id, from the upper ones on. The sums of masses under a digit, of those that begin with the
 * digits found so far, tell the digit. That is six digits, or five where no id has 21 bits.
 *
 * LIST. A pass over the whole row is what takes time, and after a digit or two few ids are looked
 * for: those that begin with the digits found, or, once a filter has run, all that are left. So a
 * pass over the row lists those that it adds to the sums, in shared memory, and if there was room
 * for all of them, the passes for further digits look at the list alone. A list that the first
 * digit of a filter has made has all that are left, and serves the filters after it and the choice
 * too. Which place an id gets is chance, and no result depends on it. Where there is no room, the
 * next pass is over the row again. With top_k and top_p the row is gone through three times, where
 * it was eleven times without a list. Where rows are few, several blocks may find a list first
 * (row_parts.cuh); then the filters and the choice look at that alone.
 *
 * Sums under a digit are kept in two halves of 32 bits. An addition to the lower half that wraps
 * adds 1 to the upper half. So both additions are the hardware's own, while one of 64 bits in
 * shared memory is a loop, which is slow where many threads add to the same sum.
 */
#ifndef SB_CUDA_SAMPLE_CUH
#define SB_CUDA_SAMPLE_CUH

#include <float.h>

#include "kernels/cuda/opaque.cuh"
#include "kernels/cuda/row_block.cuh"

#define SB_NOISE_INLINE static __device__ __forceinline__
#include "kernels/cpu/noise.h"

namespace
{

enum { DIGITS = 1 << 11, LISTED_MAX = 4096 };

struct digit_sums {
    unsigned low[DIGITS], high[DIGITS];
};

struct listed {
    int32_t id;
    float s;
};

struct id_list {
    struct listed of[LISTED_MAX];
    int32_t n; /* more than LISTED_MAX: there was no room */
};

/* Shared memory of the filters. */
struct filter_memory {
    struct digit_sums *sums;
    struct id_list *list;
    wide *parts;      /* [WARPS] */
    struct top *tops; /* [WARPS] */
    wide *found;      /* [2]: a digit, and the sum before it */
    wide *total;      /* of the masses of all ids; 0: top_p has to find it */
};

struct row {
    const float *s;
    int32_t n;
    float top, inverse; /* inverse: of the temperature */
    wide depth_end;     /* what top_k and top_p leave */
    wide deviation_end; /* what typical_p leaves, */
    bool has_mean;      /* once it has begun */
    float mean;
    float least_weight; /* what min_p leaves weighs at least this */
    const struct listed *list;
    int32_t n_listed; /* all ids that are left are among so many of the list; -1: it has not all */
};

struct place {
    float depth;
    wide by_depth, by_deviation; /* its places in the orders; 0 where there is no mean */
};

/* What a filter looks for: the least mass, of the beginning of an order. */
struct search {
    bool by_deviation; /* the key is |depth - mean|; false: depth */
    bool by_mass;      /* false: each id counts 1 */
    double share;      /* of the mass of all; or, of ids, how many */
};

/* All ids deeper than this have the mass 0. */
#define SB_DEPTH_OF_NO_MASS 28.0f

__device__ __forceinline__ wide place_of(float key, int32_t id)
{
    return (wide)__float_as_uint(key) << 32 | (uint32_t)id;
}

__device__ __forceinline__ wide place_of_all(void)
{
    return place_of(FLT_MAX, INT32_MAX);
}

/* A multiplication by a power of two is exact. */
__device__ __forceinline__ wide mass_of(float weight)
{
    return (wide)(weight * 0x1p40f);
}

/* The same of an id at this depth. */
__device__ __forceinline__ wide mass_at(float depth)
{
    return depth > SB_DEPTH_OF_NO_MASS ? 0 : mass_of(sb_exp(0.0f - depth));
}

/* Never -0. */
__device__ __forceinline__ float depth_of(const struct row &row, float s)
{
    return (row.top - sb_min(s, FLT_MAX)) * row.inverse + 0.0f;
}

/* Whether an id whose logit is s is left. */
__device__ __forceinline__ bool is_left(struct place *place, const struct row &row, int32_t id,
                                        float s)
{
    place->depth = depth_of(row, s);
    place->by_depth = place_of(place->depth, id);
    place->by_deviation = 0;
    if (place->by_depth > row.depth_end)
        return false;
    if (!row.has_mean)
        return true;
    const float deviation = sb_max(place->depth - row.mean, row.mean - place->depth);
    place->by_deviation = place_of(deviation + 0.0f, id);
    return place->by_deviation <= row.deviation_end;
}

/* Calls visit(id, s, place) for this thread's ids that are left, of the first n_listed of the list,
 * or of the row if that is -1. Of the row it loads several at once. */
template <typename F>
__device__ __forceinline__ void for_left(const struct row &row, int32_t n_listed, F visit)
{
    enum { AT_ONCE = 4 };
    struct place place;

    for (int32_t i = threadIdx.x; i < n_listed; i += THREADS) {
        const struct listed at = row.list[i];
        if (is_left(&place, row, at.id, at.s))
            visit(at.id, at.s, place);
    }
    for (int64_t first = threadIdx.x; n_listed < 0 && first < row.n; first += AT_ONCE * THREADS) {
        float s[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            s[i] = first + i * THREADS < row.n ? row.s[first + i * THREADS] : -INFINITY;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (is_left(&place, row, (int32_t)first + i * THREADS, s[i]))
                visit((int32_t)first + i * THREADS, s[i], place);
    }
}

__device__ __forceinline__ void add_to(struct digit_sums *sums, uint32_t digit, wide mass)
{
    const unsigned low = (unsigned)mass, was = atomicAdd(&sums->low[digit], low);
    const unsigned high = (unsigned)(mass >> 32) + (was + low < was);

    if (high > 0)
        atomicAdd(&sums->high[digit], high);
}

/* Lists an id if there is room, and returns whether there was. */
__device__ __forceinline__ bool append(struct id_list *list, int32_t id, float s)
{
    const int32_t i = atomicAdd(&list->n, 1);

    if (i < LISTED_MAX)
        list->of[i] = {id, s};
    return i < LISTED_MAX;
}

/* Adds up the masses of those whose places are `end` from bit shift + bits on. It looks for them in
 * the row, and lists them, or among the first n_listed of the list. */
__device__ void sum_digits(const struct filter_memory &memory, const struct row &row,
                           int32_t n_listed, const struct search &search, wide end, int shift,
                           int bits)
{
    const wide known = ~(wide)0 << shift << bits;
    const uint32_t mask = (1u << bits) - 1;
    struct digit_sums *sums = memory.sums;
    bool has_room = n_listed < 0;

    __syncthreads(); /* what the sums had has been read */
    for (int i = threadIdx.x; i < DIGITS; i += THREADS)
        sums->low[i] = sums->high[i] = 0;
    if (threadIdx.x == 0 && n_listed < 0)
        memory.list->n = 0;
    __syncthreads();
    for_left(row, n_listed, [&](int32_t id, float s, const struct place &place) {
        const wide at = search.by_deviation ? place.by_deviation : place.by_depth;
        if ((at ^ end) & known)
            return;
        if (has_room)
            has_room = append(memory.list, id, s);
        const wide mass = search.by_mass ? mass_at(place.depth) : 1;
        if (mass > 0)
            add_to(sums, (uint32_t)(at >> shift) & mask, mass);
    });
    __syncthreads();
}

__device__ __forceinline__ wide sum_at(const struct digit_sums *sums, int digit)
{
    return (wide)sums->high[digit] << 32 | sums->low[digit];
}

/* The last place of what a filter leaves: the first at which the sum is at least the target. If all
 * ids together do not reach it, the last of all places. It may leave the row a list. */
__device__ wide find_end(struct row *row, const struct search &search,
                         const struct filter_memory &memory)
{
    static_assert(DIGITS == 2 * THREADS, "a thread has two digits");
    const int mine = 2 * (int)threadIdx.x;
    wide end = 0, before = 0;
    double target = search.share;
    int32_t n_listed = row->n_listed;

    for (int d = 0; d < 6; d++) {
        const int shift = (d < 3 ? 32 : 0) + (2 - d % 3) * 10, bits = d % 3 == 0 ? 11 : 10;
        wide total;
        if (d >= 3 && (row->n - 1) >> shift == 0)
            continue; /* no id has this digit */
        sum_digits(memory, *row, n_listed, search, end, shift, bits);
        if (n_listed < 0 && memory.list->n <= LISTED_MAX)
            n_listed = memory.list->n;
        if (d == 0)
            row->n_listed = n_listed;
        const wide first = sum_at(memory.sums, mine), both = first + sum_at(memory.sums, mine + 1);
        const wide sum = before + running_sum(both, &total, memory.parts), below = sum - both;
        if (d == 0 && search.by_mass) {
            const wide of = search.by_deviation ? 0 : *memory.total;
            target = fmax(search.share * (double)(of > 0 ? of : total), 1.0);
        }
        if ((double)(before + total) < target)
            return place_of_all();
        if ((double)below < target && (double)sum >= target) {
            const bool is_second = (double)(below + first) < target;
            memory.found[0] = (wide)(mine + is_second);
            memory.found[1] = is_second ? below + first : below;
        }
        __syncthreads();
        end |= memory.found[0] << shift;
        before = memory.found[1];
    }
    return end;
}

/* The mean depth of what is left, each id weighing as its mass. */
__device__ float mean_depth(const struct row &row, const struct filter_memory &memory)
{
    wide mass = 0, sum = 0, all_mass, all;

    for_left(row, row.n_listed, [&](int32_t, float, const struct place &place) {
        const float weight = sb_exp(0.0f - place.depth);
        mass += mass_of(weight);
        sum += (wide)((double)weight * (double)place.depth * 0x1p40);
    });
    running_sum(mass, &all_mass, memory.parts);
    running_sum(sum, &all, memory.parts);
    return (float)((double)all / (double)all_mass);
}

/* The weight of the least depth that is left. */
__device__ float largest_weight(const struct row &row, const struct filter_memory &memory)
{
    struct top highest = top_of_none();

    for_left(row, row.n_listed, [&](int32_t id, float, const struct place &place) {
        highest = merged(highest, top_of_one(-place.depth, id));
    });
    return sb_exp(block_top(highest, memory.tops).first);
}

/* Runs the filters, and returns the least weight that min_p leaves. */
__device__ float filter(struct row *row, const struct sb_sampler *r,
                        const struct filter_memory &memory)
{
    if (r->top_k > 0)
        row->depth_end = find_end(row, {false, false, (double)r->top_k}, memory);
    if (r->top_p < 1.0f)
        row->depth_end = find_end(row, {false, true, (double)r->top_p}, memory);
    if (r->typical_p < 1.0f) {
        row->mean = mean_depth(*row, memory);
        row->has_mean = true;
        row->deviation_end = find_end(row, {true, true, (double)r->typical_p}, memory);
    }
    if (!(r->min_p > 0.0f))
        return 0.0f;
    /* What is left by depth has the largest logit, of depth 0. */
    return r->min_p * (row->has_mean ? largest_weight(*row, memory) : 1.0f);
}

/* Group number i of those that are looked at for the choice: the four ids that share a counter of
 * the noise, or the only one that the list has at its place i. Returns id / 4. */
__device__ __forceinline__ int32_t load_logits(float (&s)[4], const struct row &row, int32_t i)
{
    const bool is_listed = row.n_listed >= 0;
    const struct listed one = is_listed ? row.list[i] : listed{4 * i, 0.0f};

#pragma unroll
    for (int k = 0; k < 4; k++)
        s[k] = is_listed            ? (one.id % 4 == k ? one.s : -INFINITY)
               : one.id + k < row.n ? row.s[one.id + k]
                                    : -INFINITY;
    return one.id / 4;
}

/* The largest value of those ids of groups [first, end) that are left and weigh at least
 * row.least_weight, and the lowest id that has it. It is this thread's alone. */
__device__ struct top best_choice(const struct row &row, int32_t first, int32_t end, uint64_t seed,
                                  int32_t position)
{
    const float least_weight = row.least_weight;
    const float deepest = __uint_as_float((uint32_t)(row.depth_end >> 32));
    uint32_t low = (uint32_t)seed, high = (uint32_t)(seed >> 32);
    struct top best = top_of_none();

    for (int32_t i = first + (int32_t)threadIdx.x; i < end; i += THREADS) {
        float s[4];
        const int32_t group = load_logits(s, row, i);
        uint32_t x[4] = {(uint32_t)position, (uint32_t)group, 0, 0};
        bool is_hopeful = false;
        for (int k = 0; k < 4; k++) {
            const float depth = depth_of(row, s[k]);
            is_hopeful |= depth <= deepest && best.first <= SB_NOISE_MAX - depth;
        }
        if (!is_hopeful)
            continue;
        opaque(low); /* else the keys of all rounds are made ahead */
        opaque(high);
        sb_philox(x, (uint64_t)high << 32 | low, 1);
        for (int k = 0; k < 4; k++) {
            struct place place;
            const int32_t id = 4 * group + k;
            if (!is_left(&place, row, id, s[k]) ||
                !(best.first <= sb_noise_bound(x[k]) - place.depth))
                continue;
            const float value = sb_noise(x[k]) - place.depth;
            if ((value > best.first || (value == best.first && id < best.id)) &&
                !(least_weight > 0.0f && sb_exp(0.0f - place.depth) < least_weight))
                best = top_of_one(value, id);
        }
    }
    return best;
}

/* The id of the best choice of all. */
__device__ __forceinline__ int32_t chosen(const struct top &best)
{
    return best.first > -INFINITY ? best.id : (int32_t)SB_PICK_NONE;
}

/* The id with the largest value of those that are left, the lowest of several. */
__device__ int32_t choose(const struct row &row, uint64_t seed, int32_t position, struct top *tops)
{
    const int32_t n_groups = row.n_listed >= 0 ? row.n_listed : (row.n + 3) / 4;

    return chosen(block_top(best_choice(row, 0, n_groups, seed, position), tops));
}

/* Logits s [n], whose largest is top, at most FLT_MAX, with a temperature and no filters but min_p.
 * With temperature 0 there are none, and the temperature counts as 1. */
__device__ struct row unfiltered_row(const float *s, int32_t n, float top,
                                     const struct sb_sampler *r)
{
    const bool has_temperature = r->temperature > 0.0f;
    const float inverse = has_temperature ? 1.0f / r->temperature : 1.0f;

    return {s,
            n,
            top,
            inverse > FLT_MIN ? inverse : FLT_MIN,
            place_of_all(),
            place_of_all(),
            false,
            0.0f,
            has_temperature && r->min_p > 0.0f ? r->min_p : 0.0f,
            NULL,
            -1};
}

/* Runs the filters of a row. n_listed: memory.list has all that they leave, among so many; -1: it
 * has not */
__device__ void filter_row(struct row *row, const struct sb_sampler *r, int32_t n_listed,
                           const struct filter_memory &memory)
{
    row->list = memory.list->of;
    row->n_listed = n_listed;
    if (r->temperature > 0.0f)
        row->least_weight = filter(row, r, memory);
}

} // namespace

#endif
