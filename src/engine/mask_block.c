/* The memory of a round's masks, and the check of a request's; mask_block.h draws it. */
#include "engine/mask_block.h"

#include "model/model.h"
#include "options.h"
#include "status.h"

int32_t sb_mask_copy(specbatch_mask *out, const specbatch_mask *given)
{
    static const char what[] = "request: mask";
    int32_t rc = SPECBATCH_OK;

    if (!given)
        return rc;
    SB_TRY(sb_options_copy(out, sizeof *out, given, what));
    if (!out->allow)
        SB_FAIL(SPECBATCH_E_INVALID, "%s: allow is NULL", what);
done:
    return rc;
}

/* ------------------------------------------------------------------ memory */

/* Each array is the block's no more before a hook is called to free it (sb_model_give_memory). */
void sb_mask_block_free(struct sb_mask_block *block, struct specbatch_model *model,
                        const struct sb_mem *mem)
{
    const struct sb_mask_block parts = *block;

    block->room = 0;
    sb_model_give_memory(model, mem, &block->dev, &block->host);
    block->with_token = NULL;
    sb_free(mem, parts.with_token);
    block->rows = NULL;
    sb_free(mem, parts.rows);
    block->shown = NULL;
    sb_free(mem, parts.shown);
    block->list = NULL;
    sb_free(mem, parts.list);
}

/* Takes the memory of a block with so much room. The places of masks are counted in words by 32
 * bits (struct sb_sampler). */
static int32_t take_memory(struct sb_mask_block *block, struct specbatch_model *model,
                           const struct sb_mem *mem)
{
    size_t n_positions, n_words;
    int32_t rc = SPECBATCH_OK;

    if (!sb_mul_size((size_t)block->room, (size_t)block->stride, &n_positions) ||
        !sb_mul_size(n_positions, (size_t)block->n_words, &n_words) || n_words > INT32_MAX ||
        n_words > SIZE_MAX / sizeof(uint32_t))
        SB_FAIL(SPECBATCH_E_NOMEM,
                "request: the masks of %d requests at %d positions have too many words",
                block->room, block->stride);
    SB_NEW(block->with_token, sb_alloc(mem, (size_t)block->n_words, sizeof(uint32_t)), "masks");
    SB_NEW(block->rows, sb_alloc(mem, (size_t)block->room, sizeof *block->rows), "masks");
    SB_NEW(block->shown, sb_alloc(mem, n_positions, sizeof *block->shown), "masks");
    SB_NEW(block->list, sb_alloc(mem, n_positions, sizeof(specbatch_mask_row *)), "masks");
    SB_TRY(sb_model_take_memory(model, mem, n_words * sizeof(uint32_t), &block->dev, &block->host));
    for (int32_t id = 0; id < model->config.vocab; id++)
        if (sb_model_has_token(model, id))
            block->with_token[id / 32] |= (uint32_t)1 << id % 32;
    for (size_t i = 0; i < n_positions; i++)
        block->list[i] = &block->shown[i];
done:
    return rc;
}

/* A block that is too small is replaced by one of twice the room at least, so that requests that
 * come one by one replace it a few times only. */
int32_t sb_mask_block_reserve(struct sb_mask_block *block, struct specbatch_model *model,
                              const struct sb_mem *mem, const struct sb_seq *seq, int32_t n)
{
    const int32_t most = block->max_rows;
    const int32_t need = block->n_requests < most - n ? block->n_requests + n : most;
    struct sb_mask_block larger = {.max_rows = most, .stride = block->stride};
    int32_t rc = SPECBATCH_OK;

    if (!seq->mask.allow || need <= block->room)
        return rc;
    larger.room = block->room < most / 2 ? 2 * block->room : most;
    if (larger.room < need)
        larger.room = need;
    larger.n_words = (model->config.vocab + 31) / 32;
    larger.n_requests = block->n_requests;
    SB_TRY(take_memory(&larger, model, mem));
    sb_mask_block_free(block, model, mem);
    *block = larger;
    larger = (struct sb_mask_block){.host = NULL};
done:
    sb_mask_block_free(&larger, model, mem);
    return rc;
}

void sb_mask_block_add(struct sb_mask_block *block, const struct sb_seq *seq)
{
    block->n_requests += seq->mask.allow != NULL;
}

void sb_mask_block_remove(struct sb_mask_block *block, const struct sb_seq *seq)
{
    block->n_requests -= seq->mask.allow != NULL;
}
