/* A second, plain implementation of sampling; see sample_reference.h. It shares with the kernels
 * the exponential function and that from a random word to noise, which fix bits. */
#define SB_LEVEL_SCALAR 1
#include "support/sample_reference.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/math.h"
#include "kernels/cpu/noise.h"
#include "support/cpu_ways.h"

uint32_t sample_reference_philox(uint64_t key, const uint32_t counter[4], int word)
{
    uint32_t x[4], key_low = (uint32_t)key, key_high = (uint32_t)(key >> 32);

    memcpy(x, counter, sizeof x);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = x[0] * UINT64_C(0xD2511F53), p1 = x[2] * UINT64_C(0xCD9E8D57);
        const uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ x[1] ^ key_low, (uint32_t)p1,
                                  (uint32_t)(p0 >> 32) ^ x[3] ^ key_high, (uint32_t)p0};
        memcpy(x, next, sizeof x);
        key_low += 0x9E3779B9;
        key_high += 0xBB67AE85;
    }
    return x[word];
}

static float exp_of(float x)
{
    float lanes[V16];
    v_store(lanes, v_exp(v_set1(x)));
    return lanes[0];
}

/* The token at place q of the row's prefix. */
static int32_t token_at(const struct sb_samplers *all, const struct sb_sampler *r, int32_t b,
                        int32_t q)
{
    if (q >= r->n_tokens)
        return all->tokens[b * all->row_stride + 1 + q - r->n_tokens];
    return all->lists[r->listed_at + q - (r->n_tokens - r->n_listed)];
}

static void penalise(float *s, int32_t limit, const struct sb_samplers *all,
                     const struct sb_sampler *r, int32_t b, int32_t p)
{
    int32_t *generated = cpu_memory((size_t)limit * sizeof *generated),
            *counts = cpu_memory((size_t)limit * sizeof *counts);

    memset(generated, 0, (size_t)limit * sizeof *generated);
    memset(counts, 0, (size_t)limit * sizeof *counts);
    for (int32_t q = p > r->window ? p - r->window : 0; q < p; q++) {
        const int32_t id = token_at(all, r, b, q);
        if (id < 0 || id >= limit)
            continue;
        generated[id] += q >= r->n_prompt;
        counts[id] |= q >= r->n_prompt || !r->spares_prompt;
    }
    for (int32_t id = 0; id < limit; id++) {
        if (counts[id])
            s[id] = s[id] > 0 ? s[id] / r->repetition : s[id] * r->repetition;
        if (generated[id]) {
            const float part = (float)generated[id] * r->frequency;
            s[id] -= part + r->presence;
        }
        if (isnan(s[id])) /* infinite terms */
            s[id] = -INFINITY;
    }
    free(generated);
    free(counts);
}

/* Steps 2 to 5. */
static void change(float *s, int32_t limit, const struct sb_samplers *all,
                   const struct sb_sampler *r, int32_t b, int32_t j, int32_t p)
{
    for (int32_t id = 0; id < limit && r->mask_at >= 0; id++)
        if (!(all->masks[r->mask_at + j * all->mask_words + id / 32] >> id % 32 & 1))
            s[id] = -INFINITY;
    for (int32_t i = 0; i < r->n_bans && p < r->ban_before; i++)
        if (all->lists[r->bans_at + i] >= 0 && all->lists[r->bans_at + i] < limit)
            s[all->lists[r->bans_at + i]] = -INFINITY;
    for (int32_t i = 0; i < r->n_bias; i++) {
        const int32_t id = all->lists[r->bias_at + i];
        float bias;
        memcpy(&bias, &all->lists[r->bias_at + r->n_bias + i], sizeof bias);
        if (id >= 0 && id < limit)
            s[id] += bias;
    }
    if (r->n_listed > 0)
        penalise(s, limit, all, r, b, p);
}

struct keyed {
    float key;
    int32_t id;
};

static int compare(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key ? 1 : x->id < y->id ? -1 : x->id > y->id;
}

static uint64_t mass(const struct sample_left *left, int32_t id)
{
    return (uint64_t)((double)left->weight[id] * 0x1p40);
}

/* Sorts what is left by depth, or by its distance from `from`, and leaves the first k of it, or as
 * many as have `share` of the mass. */
static void leave(struct sample_left *left, float from, int32_t k, double share)
{
    struct keyed *order = cpu_memory((size_t)(left->n + 1) * sizeof *order);
    uint64_t all = 0, sum = 0;
    int32_t n = 0;

    for (int32_t i = 0; i < left->n; i++) {
        const int32_t id = left->ids[i];
        order[i] = (struct keyed){fabsf(left->depth[id] - from), id};
        all += mass(left, id);
    }
    qsort(order, (size_t)left->n, sizeof *order, compare);
    while (n < left->n && n < k && (sum == 0 || (double)sum < share * (double)all)) {
        left->ids[n] = order[n].id;
        sum += k == INT32_MAX ? mass(left, order[n].id) : 0;
        n++;
    }
    left->n = n;
    free(order);
}

static float mean_depth(const struct sample_left *left)
{
    uint64_t all = 0, sum = 0;

    for (int32_t i = 0; i < left->n; i++) {
        const int32_t id = left->ids[i];
        all += mass(left, id);
        sum += (uint64_t)((double)left->weight[id] * (double)left->depth[id] * 0x1p40);
    }
    return (float)((double)sum / (double)all);
}

static void filter(struct sample_left *left, const struct sb_sampler *r)
{
    int32_t n = 0, least = 0;

    if (r->top_k > 0)
        leave(left, 0.0f, r->top_k, 1.0);
    if (r->top_p < 1.0f)
        leave(left, 0.0f, INT32_MAX, (double)r->top_p);
    if (r->typical_p < 1.0f)
        leave(left, mean_depth(left), INT32_MAX, (double)r->typical_p);
    for (int32_t i = 1; i < left->n; i++)
        if (left->depth[left->ids[i]] < left->depth[left->ids[least]])
            least = i;
    const float weight = left->weight[left->ids[least]] * r->min_p;
    for (int32_t i = 0; i < left->n; i++)
        if (left->weight[left->ids[i]] >= weight)
            left->ids[n++] = left->ids[i];
    left->n = n;
}

static int32_t choose(const struct sample_left *left, uint64_t seed, int32_t p)
{
    float best = -INFINITY;
    int32_t chosen = SB_PICK_NONE;

    for (int32_t i = 0; i < left->n; i++) {
        const int32_t id = left->ids[i];
        const uint32_t counter[4] = {(uint32_t)p, (uint32_t)id / 4, 0, 0};
        const float value = sb_noise(sample_reference_philox(seed, counter, id % 4)) -
                            left->depth[id];
        if (value > best || (value == best && id < chosen)) {
            best = value;
            chosen = id;
        }
    }
    return chosen;
}

void sample_left_free(struct sample_left *left)
{
    free(left->ids);
    free(left->depth);
    free(left->weight);
}

/* Denormals are zeros, as numbers and as results. */
static float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? 0.0f : x;
}

/* What is allowed of s, whose largest is at `top`. */
static struct sample_left allowed(const float *s, int32_t limit, int32_t top, float temperature)
{
    struct sample_left left = {.ids = cpu_memory((size_t)limit * sizeof *left.ids),
                               .depth = cpu_memory((size_t)limit * sizeof *left.depth),
                               .weight = cpu_memory((size_t)limit * sizeof *left.weight)};

    for (int32_t id = 0; id < limit; id++) {
        const float below = flushed(fminf(s[top], FLT_MAX) - fminf(s[id], FLT_MAX));
        left.depth[id] = flushed(below * fmaxf(1.0f / temperature, FLT_MIN));
        left.weight[id] = exp_of(-left.depth[id]);
        if (left.depth[id] < INFINITY)
            left.ids[left.n++] = id;
    }
    return left;
}

static double logprob_of(const float *logits, int32_t limit, int32_t id)
{
    double top = -INFINITY, sum = 0.0;

    for (int32_t i = 0; i < limit; i++)
        top = fmax(top, (double)logits[i]);
    for (int32_t i = 0; i < limit; i++)
        sum += exp((double)logits[i] - top);
    return (double)logits[id] - top - log(sum);
}

int32_t sample_reference(double *logprob, struct sample_left *left, const float *logits,
                         int32_t limit, const struct sb_samplers *all, int32_t i)
{
    const int32_t token = all->out[i], b = all->id_at[token] / all->row_stride,
                  j = all->id_at[token] % all->row_stride, p = all->pos[token] + 1;
    const struct sb_sampler *r = &all->rows[b];
    const int is_greedy = p >= r->greedy_from;
    const float most = is_greedy ? INFINITY : FLT_MAX;
    float *s = cpu_memory((size_t)limit * sizeof *s);
    int32_t top = 0;

    memcpy(s, logits, (size_t)limit * sizeof *s);
    if (!is_greedy)
        change(s, limit, all, r, b, j, p);
    for (int32_t id = 1; id < limit; id++)
        if (fminf(s[id], most) > fminf(s[top], most))
            top = id;
    if (!is_greedy && s[top] == -INFINITY)
        top = SB_PICK_NONE;
    if (!is_greedy && top >= 0 && r->temperature > 0.0f) {
        struct sample_left mine = allowed(s, limit, top, r->temperature);
        filter(&mine, r);
        top = choose(&mine, r->seed, p);
        if (left)
            *left = mine;
        else
            sample_left_free(&mine);
    }
    *logprob = top < 0 ? NAN : logprob_of(logits, limit, top);
    free(s);
    return top;
}
