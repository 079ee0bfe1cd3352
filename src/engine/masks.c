/* Whom to ask for which masks, and forced proposals; masks.h draws it. */
#include "engine/masks.h"

#include <string.h>

#include "fault.h"
#include "port.h"
#include "status.h"

/* ------------------------------------------------------------------ asking */

static struct sb_round_row *row_of(const struct sb_round *round, int32_t m)
{
    return &round->rows[round->masks.rows[m].b];
}

/* Where in the block the mask of position j of masked row m begins, in words. */
static size_t mask_at(const struct sb_mask_block *block, int32_t m, int32_t j)
{
    return ((size_t)m * (size_t)block->stride + (size_t)j) * (size_t)block->n_words;
}

static uint32_t *mask_of(const struct sb_mask_block *block, int32_t m, int32_t j)
{
    return (uint32_t *)(void *)block->host + mask_at(block, m, j);
}

static int is_pending(const struct sb_round *round, int32_t m, const specbatch_mask *mask)
{
    const struct sb_masked_row *masked = &round->masks.rows[m];
    const specbatch_mask *own = &row_of(round, m)->seq->mask;

    return masked->n_asked < masked->n_wanted && own->allow == mask->allow &&
           own->user == mask->user;
}

/* Adds the positions of a masked row that are to be asked to those of a call, which has n so far.
 * Returns how many it has then. */
static size_t show(struct sb_round *round, int32_t m, size_t n)
{
    struct sb_mask_block *block = &round->masks;
    const struct sb_masked_row *masked = &block->rows[m];
    const struct sb_seq *seq = row_of(round, m)->seq;

    for (int32_t j = masked->n_asked; j < masked->n_wanted; j++) {
        const int32_t behind = j - (SB_FAULT(MASK_OF_WRONG_PREFIX) && j > 0);
        memcpy(mask_of(block, m, j), block->with_token,
               (size_t)block->n_words * sizeof *block->with_token);
        block->shown[n++] = (specbatch_mask_row){
            .struct_size = sizeof *block->shown,
            .request_id = seq->id,
            .request_user = seq->user,
            .tokens = seq->tokens,
            .n_tokens = (size_t)(seq->n_tokens + behind),
            .n_prompt = (size_t)seq->n_prompt,
            .n_answer = (size_t)sb_seq_n_generated(seq),
            .allowed = mask_of(block, m, j),
            .n_words = (size_t)block->n_words,
        };
    }
    return n;
}

/* The masks of a row have been asked. Whatever a function has set, an id without a token stays
 * forbidden. */
static void take(struct sb_mask_block *block, int32_t m)
{
    struct sb_masked_row *masked = &block->rows[m];

    for (; masked->n_asked < masked->n_wanted; masked->n_asked++) {
        uint32_t *mask = mask_of(block, m, masked->n_asked);
        for (int32_t i = 0; i < block->n_words; i++)
            mask[i] &= block->with_token[i];
    }
}

/* One call of a mask: its arguments, and what it returned. */
struct mask_call {
    specbatch_mask mask;
    specbatch_mask_row **list;
    size_t n;
    int32_t returned;
};

static void call_allow(void *arg)
{
    struct mask_call *call = arg;

    call->returned = call->mask.allow(call->mask.user, call->list, call->n);
}

/* Asks, in one call, for the pending positions of all rows that have the function and the user of
 * masked row `first`, the first of them. */
static int32_t ask_those_like(struct sb_round *round, int32_t first)
{
    struct sb_mask_block *block = &round->masks;
    const struct sb_seq *seq = row_of(round, first)->seq;
    struct mask_call call = {.mask = seq->mask, .list = block->list};

    for (int32_t m = first; m < block->n_rows; m++)
        if (is_pending(round, m, &call.mask))
            call.n = show(round, m, call.n);
    sb_port_call_host(call_allow, &call);
    if (call.returned != 0)
        return sb_fail(SPECBATCH_E_CANCELLED, "request %llu: its mask returned %d",
                       (unsigned long long)seq->id, call.returned);
    for (int32_t m = first; m < block->n_rows; m++)
        if (is_pending(round, m, &call.mask))
            take(block, m);
    return SPECBATCH_OK;
}

static int32_t ask(struct sb_round *round)
{
    int32_t rc = SPECBATCH_OK;

    for (int32_t m = 0; m < round->masks.n_rows && rc == SPECBATCH_OK; m++)
        if (is_pending(round, m, &row_of(round, m)->seq->mask))
            rc = ask_those_like(round, m);
    return rc;
}

/* ------------------------------------------------------------------ forced proposals */

/* The one id that a mask allows; -1: it allows none, or several. */
static int32_t only_id(const uint32_t *mask, int32_t n_words)
{
    int32_t word = 0, bit = 0;

    while (word < n_words && mask[word] == 0)
        word++;
    if (word == n_words || (mask[word] & (mask[word] - 1)) != 0)
        return -1;
    for (int32_t i = word + 1; i < n_words; i++)
        if (mask[i] != 0)
            return -1;
    while (mask[word] >> bit != 1)
        bit++;
    return 32 * word + bit;
}

/* Makes the one id that the latest mask of a row allows a proposal, and wants the mask behind it.
 * An id that would end the answer is left to the target, which finds it without a proposal too; so
 * no proposal is one that a ban forbids. */
static void force(struct sb_round *round, int32_t m)
{
    struct sb_masked_row *masked = &round->masks.rows[m];
    struct sb_round_row *row = row_of(round, m);
    struct sb_seq *seq = row->seq;
    const int32_t id = only_id(mask_of(&round->masks, m, row->n_forced), round->masks.n_words);

    if (id < 0 || sb_finish_at(seq, &round->model->config, id) != 0)
        return;
    seq->tokens[seq->n_tokens + row->n_forced] = id;
    round->tokens[masked->b * round->stride + ++row->n_forced] = id;
    if (row->n_forced < row->limit)
        masked->n_wanted++;
}

/* Lists the rows that have a mask. Returns how many of them are to be asked before the draft
 * prepares, at position 0: those that may have proposals. */
static int32_t begin(struct sb_round *round)
{
    struct sb_mask_block *block = &round->masks;
    int32_t n = 0;

    block->n_rows = 0;
    for (int32_t b = 0; b < round->n_rows; b++) {
        const int32_t wanted = round->rows[b].limit > 0;
        if (!round->rows[b].seq->mask.allow)
            continue;
        block->rows[block->n_rows++] = (struct sb_masked_row){.b = b, .n_wanted = wanted};
        n += wanted;
    }
    return n;
}

/* Has each row that was asked just now forced on. Returns how many are to be asked again. */
static int32_t force_all(struct sb_round *round, int32_t n_asked)
{
    struct sb_mask_block *block = &round->masks;
    int32_t n = 0;

    for (int32_t m = 0; m < block->n_rows; m++)
        if (block->rows[m].n_asked == n_asked) {
            force(round, m);
            n += block->rows[m].n_wanted > n_asked;
        }
    return n;
}

int32_t sb_masks_force(struct sb_round *round)
{
    int32_t rc = SPECBATCH_OK, n_pending = 0;

    if (round->wants & SB_WANTS_MASKS)
        n_pending = begin(round);
    for (int32_t n_asked = 1; n_pending > 0; n_asked++) {
        SB_TRY(ask(round));
        n_pending = force_all(round, n_asked);
    }
    for (int32_t b = 0; b < round->n_rows; b++)
        if (round->rows[b].n_forced > 0)
            round->rows[b].n_draft = 0;
done:
    return rc;
}

void sb_masks_propose(struct sb_round *round)
{
    for (int32_t b = 0; b < round->n_rows; b++)
        if (round->rows[b].n_forced > 0)
            round->rows[b].n_draft = round->rows[b].n_forced;
}

/* ------------------------------------------------------------------ all other positions */

/* How many positions of a masked row can matter: those up to the first proposal that is no token,
 * which a draft model gives after NaN, or that a mask asked before forbids. It puts the proposals
 * where masks find them. */
static int32_t n_that_matter(struct sb_round *round, int32_t m)
{
    const struct sb_mask_block *block = &round->masks;
    const struct sb_masked_row *masked = &block->rows[m];
    const struct sb_round_row *row = row_of(round, m);
    const int32_t *proposals = round->tokens + masked->b * round->stride + 1;
    struct sb_seq *seq = row->seq;

    for (int32_t j = 0; j < row->n_draft; j++) {
        const int32_t id = proposals[j];
        if (id < 0 || id >= round->model->config.vocab ||
            (j < masked->n_asked && !(mask_of(block, m, j)[id / 32] >> id % 32 & 1)))
            return j + 1;
        seq->tokens[seq->n_tokens + j] = id;
    }
    return row->n_draft + 1;
}

int32_t sb_masks_complete(struct sb_round *round, struct sb_runner *target)
{
    struct sb_mask_block *block = &round->masks;
    const struct sb_backend *be = target->backend;
    int32_t rc = SPECBATCH_OK;

    for (int32_t m = 0; m < block->n_rows; m++)
        block->rows[m].n_wanted = n_that_matter(round, m);
    SB_TRY(ask(round));
    for (int32_t m = 0; m < block->n_rows; m++) {
        const int32_t n = row_of(round, m)->n_draft + 1;
        const size_t at = mask_at(block, m, 0), bytes = mask_at(block, 0, n) * sizeof(uint32_t);
        for (int32_t j = block->rows[m].n_asked; j < n; j++)
            memcpy(mask_of(block, m, j), block->with_token,
                   (size_t)block->n_words * sizeof *block->with_token);
        sb_sampler_block_mask(&round->samplers, block->rows[m].b, (int32_t)at);
        SB_TRY(be->upload(target->exec, block->dev + at * sizeof(uint32_t),
                          block->host + at * sizeof(uint32_t), bytes));
    }
    round->samplers.view.masks = (const uint32_t *)(const void *)block->dev;
    round->samplers.view.mask_words = block->n_words;
    SB_TRY(be->upload(target->exec, round->samplers.dev, round->samplers.host,
                      sb_sampler_block_used(&round->samplers)));
done:
    return rc;
}
