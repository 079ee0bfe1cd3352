/* Rounds for the tests of sampling; see sample_rounds.h. */
#include "support/sample_rounds.h"

#include <math.h>
#include <string.h>

#include "support/cpu_ways.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

const struct sb_sampler sample_plain = {.seed = 1,
                                        .temperature = 1.0f,
                                        .top_p = 1.0f,
                                        .typical_p = 1.0f,
                                        .repetition = 1.0f,
                                        .n_tokens = 1,
                                        .greedy_from = INT32_MAX,
                                        .mask_at = -1};

void sample_one_init(struct sample_one *one, const struct sb_sampler *sampler, int32_t n_before)
{
    *one = (struct sample_one){.sampler = *sampler};
    one->id_at[0] = n_before;
    one->pos[0] = sampler->n_tokens - 1 + n_before;
    one->all = (struct sb_samplers){.rows = &one->sampler,
                                    .row_stride = COUNT(one->tokens),
                                    .tokens = one->tokens,
                                    .id_at = one->id_at,
                                    .pos = one->pos,
                                    .out = &one->out};
}

int32_t sample_below(int32_t n)
{
    return (int32_t)(cpu_random() % (uint32_t)n);
}
static int one_in(int32_t n)
{
    return sample_below(n) == 0;
}

/* A share: often one that is met exactly, or by the first. */
static float random_share(void)
{
    static const float shares[] = {0.0f, 0.25f, 0.5f, 0.75f, 0.999f, 1e-9f, 1.0f};
    return one_in(3) ? shares[sample_below(COUNT(shares))] : (cpu_uniform() + 1.0f) / 2.0f;
}

static void list(struct sample_round *round, int32_t value)
{
    round->lists[round->n_lists++] = value;
}

/* Fills in the lists of a sampler. Few ids occur, often twice, and some are outside of the
 * vocabulary. */
static void add_lists(struct sample_round *round, struct sb_sampler *r)
{
    r->listed_at = round->n_lists;
    for (int32_t i = 0; i < r->n_listed; i++)
        list(round, sample_below(12) - 1);
    r->bias_at = round->n_lists;
    for (int32_t i = 0; i < r->n_bias; i++)
        list(round, one_in(5) ? SAMPLE_STRIDE + i : sample_below(20));
    for (int32_t i = 0; i < r->n_bias; i++) {
        const float bias = cpu_uniform() * 5.0f;
        memcpy(&round->lists[round->n_lists++], &bias, sizeof bias);
    }
    r->bans_at = round->n_lists;
    for (int32_t i = 0; i < r->n_bans; i++)
        list(round, sample_below(25) - 2);
}

static void random_sampler(struct sample_round *round, struct sb_sampler *r)
{
    *r = sample_plain;
    r->seed = (uint64_t)cpu_random() << 32 | cpu_random();
    r->temperature = one_in(6) ? 0.0f : one_in(3) ? 1.0f : 0.2f + cpu_uniform() * 0.15f;
    r->top_k = one_in(2) ? 0 : 1 + sample_below(round->limit + 3);
    r->top_p = one_in(2) ? 1.0f : random_share();
    r->typical_p = one_in(2) ? 1.0f : random_share();
    r->min_p = one_in(2) ? 0.0f : random_share();
    r->n_tokens = 1 + sample_below(SAMPLE_LISTED);
    r->n_prompt = sample_below(r->n_tokens + 1);
    r->spares_prompt = sample_below(2);
    r->greedy_from = one_in(8) ? r->n_tokens + sample_below(SAMPLE_PLACES + 1) : INT32_MAX;
    if (one_in(2)) {
        r->window = sample_below(SAMPLE_LISTED);
        r->n_listed = r->window < r->n_tokens ? r->window : r->n_tokens;
        r->n_listed += sample_below(r->n_tokens - r->n_listed + 1);
        r->repetition = one_in(3) ? 1.0f : 1.5f + cpu_uniform();
        r->frequency = one_in(3) ? 0.0f : cpu_uniform();
        r->presence = one_in(3) ? 0.0f : cpu_uniform();
        if (one_in(12)) /* together they are -infinity */
            r->frequency = r->presence = -3e38f;
    }
    r->n_bias = one_in(2) ? 0 : sample_below(6);
    r->n_bans = one_in(2) ? 0 : sample_below(6);
    r->ban_before = r->n_tokens + sample_below(SAMPLE_PLACES + 1);
    add_lists(round, r);
}

void sample_round_draw(struct sample_round *round, int32_t limit)
{
    const int is_tied = one_in(2);

    round->limit = limit;
    round->n_lists = 0;
    round->all = (struct sb_samplers){.rows = round->rows,
                                      .lists = round->lists,
                                      .masks = round->masks,
                                      .mask_words = SAMPLE_WORDS,
                                      .row_stride = SAMPLE_PLACES,
                                      .tokens = round->tokens,
                                      .id_at = round->id_at,
                                      .pos = round->pos,
                                      .out = round->out};
    for (int i = 0; i < COUNT(round->masks); i++)
        round->masks[i] = one_in(4) ? UINT32_MAX : cpu_random() | cpu_random();
    for (int b = 0; b < SAMPLE_ROWS; b++) {
        random_sampler(round, &round->rows[b]);
        round->rows[b].mask_at = one_in(3) ? b * SAMPLE_PLACES * SAMPLE_WORDS : -1;
    }
    for (int i = 0; i < SAMPLE_OUT; i++) {
        round->tokens[i] = sample_below(12) - 1;
        round->out[i] = (i * 7 + 3) % SAMPLE_OUT; /* logits in another order than tokens, */
        round->id_at[i] = (i + 5) % SAMPLE_OUT;   /* and tokens in another than places */
        round->pos[i] = round->rows[round->id_at[i] / SAMPLE_PLACES].n_tokens - 1 +
                        round->id_at[i] % SAMPLE_PLACES;
        round->at[i] = (i * 3 + 1) % SAMPLE_OUT;
    }
    for (int i = 0; i < SAMPLE_OUT * SAMPLE_STRIDE; i++) {
        round->logits[i] = cpu_uniform() * 6.0f;
        if (is_tied)
            round->logits[i] = floorf(round->logits[i]);
        if (one_in(40))
            round->logits[i] = -INFINITY;
        if (i % SAMPLE_STRIDE >= limit)
            round->logits[i] = i % 2 ? NAN : 1e9f;
    }
}
