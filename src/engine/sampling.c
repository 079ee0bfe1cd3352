/* The block of samplers of a round; sampling.h draws it. */
#include "engine/sampling.h"

#include <string.h>

#include "engine/round.h"
#include "fault.h"
#include "status.h"

/* A rule by which the largest logit is chosen, for sequences without one. */
static const struct sb_sampler greedy = {
    .top_p = 1.0f, .typical_p = 1.0f, .repetition = 1.0f, .mask_at = -1};

static int has_penalties(const struct sb_sampler *rule)
{
    return rule->repetition != 1.0f || rule->presence != 0.0f || rule->frequency != 0.0f;
}

/* The ids that may not come before it has min_new tokens. */
static int32_t n_bans(const struct sb_seq *seq, const struct sb_config *config)
{
    if (sb_seq_n_generated(seq) >= seq->min_new)
        return 0;
    return seq->n_stop_ids + (seq->ignore_eos ? 0 : config->n_eos);
}

int sb_seq_has_sampler(const struct sb_seq *seq)
{
    return seq->sampling || seq->mask.allow || sb_seq_n_generated(seq) < seq->min_new;
}

/* ------------------------------------------------------------------ memory */

/* Lists of a round that is padded have this many words or a power of two times as many. */
enum { LEAST_WORDS = 64 };

static size_t samplers_bytes(const struct sb_sampler_block *block)
{
    return ((size_t)block->max_rows + 1) * sizeof(struct sb_sampler);
}

/* n is at most INT32_MAX. */
static int64_t rounded_words(int64_t n)
{
    int64_t words = LEAST_WORDS;

    while (words < n)
        words *= 2;
    return words;
}

/* Words of lists that a sequence needs at most, without its tokens. */
static int32_t fixed_words(const struct sb_seq *seq, const struct sb_config *config)
{
    return (seq->sampling ? 2 * seq->sampling->rule.n_bias : 0) + n_bans(seq, config);
}

static int32_t token_words(const struct sb_seq *seq)
{
    const struct sb_sampler *rule = seq->sampling ? &seq->sampling->rule : &greedy;

    if (!has_penalties(rule))
        return 0;
    return rule->window < seq->max_tokens ? rule->window : seq->max_tokens;
}

void sb_sampler_block_free(struct sb_sampler_block *block, struct specbatch_model *model,
                           const struct sb_mem *mem)
{
    block->bytes = 0;
    sb_model_give_memory(model, mem, &block->dev, &block->host);
}

int32_t sb_sampler_block_reserve(struct sb_sampler_block *block, struct specbatch_model *model,
                                 const struct sb_mem *mem, const struct sb_seq *seq,
                                 int64_t columns)
{
    const int32_t fixed = fixed_words(seq, &model->config), tokens = token_words(seq);
    struct sb_sampler_block larger = {
        .max_rows = block->max_rows,
        .most_tokens = tokens > block->most_tokens ? tokens : block->most_tokens,
        .most_fixed = fixed > block->most_fixed ? fixed : block->most_fixed,
        .n_moved = block->n_moved + 1};
    int64_t room = (int64_t)larger.most_tokens * larger.max_rows;
    int32_t rc = SPECBATCH_OK;

    if (!sb_seq_has_sampler(seq))
        return rc;
    room = room < columns ? room : columns;
    room += (int64_t)larger.most_fixed * larger.max_rows;
    if (block->bytes > 0 && room <= block->room) {
        block->most_tokens = larger.most_tokens;
        block->most_fixed = larger.most_fixed;
        return rc;
    }
    if (room > INT32_MAX / 2)
        SB_FAIL(SPECBATCH_E_NOMEM, "request: a round of its kind would list %lld words",
                (long long)room);
    larger.room = (int32_t)rounded_words(room);
    larger.bytes = samplers_bytes(&larger) + (size_t)larger.room * sizeof(int32_t);
    SB_TRY(sb_model_take_memory(model, mem, larger.bytes, &larger.dev, &larger.host));
    sb_sampler_block_free(block, model, mem);
    *block = larger;
    larger = (struct sb_sampler_block){.host = NULL};
done:
    sb_sampler_block_free(&larger, model, mem);
    return rc;
}

/* ------------------------------------------------------------------ a round */

/* Writes n words behind the lists so far. Returns where. */
static int32_t add_list(struct sb_sampler_block *block, const void *words, int32_t n)
{
    int32_t *lists = (int32_t *)(void *)(block->host + samplers_bytes(block));
    const int32_t at = block->n_lists;

    if (n > 0)
        memcpy(lists + at, words, (size_t)n * sizeof *lists);
    block->n_lists += n;
    return at;
}

static void add_bans(struct sb_sampler_block *block, struct sb_sampler *sampler,
                     const struct sb_seq *seq, const struct sb_config *config)
{
    sampler->n_bans = n_bans(seq, config);
    if (sampler->n_bans == 0)
        return;
    sampler->ban_before = seq->n_prompt + seq->min_new;
    sampler->bans_at = add_list(block, seq->stop_ids, seq->n_stop_ids);
    if (!seq->ignore_eos)
        add_list(block, config->eos, config->n_eos);
}

static void fill_one(struct sb_sampler_block *block, struct sb_sampler *sampler,
                     const struct sb_seq *seq, const struct sb_config *config)
{
    *sampler = seq->sampling ? seq->sampling->rule : greedy;
    if (SB_FAULT(NOISE_BY_ROUND))
        sampler->seed += seq->rounds;
    sampler->n_prompt = seq->n_prompt;
    sampler->n_tokens = seq->n_tokens;
    sampler->mask_at = -1;
    if (has_penalties(sampler)) {
        sampler->n_listed = sampler->window < seq->n_tokens ? sampler->window : seq->n_tokens;
        sampler->listed_at = add_list(block, seq->tokens + seq->n_tokens - sampler->n_listed,
                                      sampler->n_listed);
    }
    if (sampler->n_bias > 0) {
        sampler->bias_at = add_list(block, seq->sampling->bias_ids, sampler->n_bias);
        add_list(block, seq->sampling->bias, sampler->n_bias);
    }
    add_bans(block, sampler, seq, config);
    /* Bans alone end with min_new tokens: a row may reach that among its proposals. */
    sampler->greedy_from = sampler->temperature > 0.0f || sampler->n_listed > 0 ||
                                   sampler->n_bias > 0
                               ? INT32_MAX
                               : sampler->ban_before;
}

void sb_sampler_block_fill(struct sb_sampler_block *block, const struct specbatch_model *model,
                           const struct sb_round_row *rows, int32_t n_rows, const int32_t *tokens,
                           int32_t stride)
{
    struct sb_sampler *samplers = (struct sb_sampler *)(void *)block->host;

    block->n_lists = 0;
    for (int32_t b = 0; b < n_rows; b++)
        fill_one(block, &samplers[b], rows[b].seq, &model->config);
    samplers[block->max_rows] = greedy;
    block->view = (struct sb_samplers){
        .rows = (const struct sb_sampler *)(const void *)block->dev,
        .lists = (const int32_t *)(const void *)(block->dev + samplers_bytes(block)),
        .row_stride = stride,
        .tokens = tokens,
    };
}

void sb_sampler_block_pad(struct sb_sampler_block *block)
{
    if (block->n_lists > 0)
        block->n_lists = (int32_t)rounded_words(block->n_lists);
}

void sb_sampler_block_mask(struct sb_sampler_block *block, int32_t b, int32_t at)
{
    struct sb_sampler *sampler = (struct sb_sampler *)(void *)block->host + b;

    sampler->mask_at = at;
    sampler->greedy_from = INT32_MAX;
}

size_t sb_sampler_block_used(const struct sb_sampler_block *block)
{
    return samplers_bytes(block) + (size_t)block->n_lists * sizeof(int32_t);
}
