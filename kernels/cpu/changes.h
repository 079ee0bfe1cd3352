/*
 * Steps 2 to 5 of sampling (struct sb_sampler): mask, bans, bias and penalties are written into the
 * row of logits.
 *
 * The ids that bias or penalties change are few, and are listed. The list keeps their logits, which
 * the log-probability of the chosen id needs. While it is made, the row has at such an id a NaN
 * that holds the id's place in the list (logits are not NaN, or there would be nothing to choose).
 * So an id that comes again is found at once, without a table of the vocabulary's size or a search.
 */
#ifndef SB_CPU_CHANGES_H
#define SB_CPU_CHANGES_H

#include "fault.h"
#include "kernels.h"
#include "vec.h"

/* A row's sampler at one position. */
struct sampling {
    const struct sb_samplers *all;
    const struct sb_sampler *row;
    int32_t b, j; /* the row's index; the number of proposals before the position */
    int32_t position;
};

struct change {
    int32_t id;
    int32_t n;   /* how often it is generated; -1: penalties do not count it */
    float logit; /* as it was */
    float s;     /* and as it is after bias */
};

struct changes {
    int32_t n;
    struct change list[SB_CHANGED_MAX];
};

#define PLACE_0 0xffc00000u /* the bits of the NaN for place 0 */

/* The entry of an id, which is made if there is none; NULL if the row has no such id. */
static struct change *change_of(struct changes *changes, float *row, int32_t limit, int32_t id)
{
    if (id < 0 || id >= limit)
        return NULL;
    const uint32_t place = f32_bits(row[id]) - PLACE_0;
    if (place < (uint32_t)changes->n)
        return &changes->list[place];
    if (changes->n == SB_CHANGED_MAX)
        return NULL;
    struct change *made = &changes->list[changes->n];
    const uint32_t mark = PLACE_0 + (uint32_t)changes->n++;
    *made = (struct change){.id = id, .n = -1, .logit = row[id], .s = row[id]};
    memcpy(&row[id], &mark, sizeof mark);
    return made;
}

static void apply_mask(const struct sampling *at, float *row, int32_t limit)
{
    const struct sb_samplers *all = at->all;
    const uint32_t *mask = all->masks + at->row->mask_at + (int64_t)at->j * all->mask_words;

    for (int32_t first = 0; first < limit; first += 32) {
        const uint32_t word = mask[first / 32];
        const int32_t n = limit - first < 32 ? limit - first : 32;
        if (word == UINT32_MAX)
            continue;
        for (int32_t i = 0; i < n; i++)
            row[first + i] = word >> i & 1 ? row[first + i] : -INFINITY;
    }
}

static void apply_bans(const struct sampling *at, float *row, int32_t limit)
{
    const int32_t *bans = at->all->lists + at->row->bans_at;

    for (int32_t i = 0; i < at->row->n_bans; i++)
        if (bans[i] >= 0 && bans[i] < limit)
            row[bans[i]] = -INFINITY;
}

static void add_bias(struct changes *changes, const struct sampling *at, float *row, int32_t limit)
{
    const int32_t n = at->row->n_bias, *ids = at->all->lists + at->row->bias_at;

    for (int32_t i = 0; i < n; i++) {
        struct change *change = change_of(changes, row, limit, ids[i]);
        float bias;
        memcpy(&bias, &ids[n + i], sizeof bias);
        if (change)
            change->s += bias;
    }
}

/* Lists the tokens that penalties count: the last `window` before the position. */
static void count_tokens(struct changes *changes, const struct sampling *at, float *row,
                         int32_t limit)
{
    const struct sb_sampler *r = at->row;
    const int32_t *listed = at->all->lists + r->listed_at,
                  *tokens = at->all->tokens + (int64_t)at->b * at->all->row_stride;
    const int32_t n_proposed = SB_FAULT(PENALTY_OF_REJECTED) ? at->all->row_stride - 1 : at->j;
    const int32_t first_listed = r->n_tokens - r->n_listed, end = r->n_tokens + n_proposed;
    int32_t first = end > r->window ? end - r->window : 0;

    first = first > first_listed ? first : first_listed;
    for (int32_t p = first; p < end; p++) {
        const int32_t id = p < r->n_tokens ? listed[p - first_listed] : tokens[1 + p - r->n_tokens];
        struct change *change = NULL;
        if (p >= r->n_prompt || !r->spares_prompt)
            change = change_of(changes, row, limit, id);
        if (change)
            change->n = (change->n < 0 ? 0 : change->n) + (p >= r->n_prompt);
    }
}

/* Infinite terms may add up to a NaN, as where an id is forbidden already: then it stays so. */
static float penalised(const struct sb_sampler *r, float s, int32_t n)
{
    if (n >= 0)
        s = s > 0.0f ? s / r->repetition : s * r->repetition;
    if (n > 0)
        s -= (float)n * r->frequency + r->presence;
    return s == s ? s : -INFINITY;
}

/* Changes the row. Returns whether anything in it may be another value now. */
static int change_row(struct changes *changes, const struct sampling *at, float *row, int32_t limit)
{
    const struct sb_sampler *r = at->row;
    const int has_bans = r->n_bans > 0 && at->position < r->ban_before;

    changes->n = 0;
    if (r->mask_at >= 0)
        apply_mask(at, row, limit);
    if (has_bans)
        apply_bans(at, row, limit);
    add_bias(changes, at, row, limit);
    if (r->n_listed > 0)
        count_tokens(changes, at, row, limit);
    for (int32_t i = 0; i < changes->n; i++) {
        const struct change *change = &changes->list[i];
        row[change->id] = penalised(r, change->s, change->n);
    }
    return r->mask_at >= 0 || has_bans || changes->n > 0;
}

/* The logit that an id of the row had. */
static float logit_before(const struct changes *changes, const float *row, int32_t id)
{
    for (int32_t i = 0; i < changes->n; i++)
        if (changes->list[i].id == id)
            return changes->list[i].logit;
    return row[id];
}

#endif
