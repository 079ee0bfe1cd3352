/*
 * The steps of a draft model.
 *
 * A backend may run several steps as one operation (steps of backend.h), where launching and
 * waiting would take longer than computing. Where proposals are sampled, or their probabilities are
 * wanted, that operation is one step, which leaves logits for the selection behind it. Whether the
 * backend does so is its own choice, by the sizes; otherwise each step is the same forward pass and
 * selection that everything else is.
 */
#include "engine/runner.h"
#include "status.h"

static struct sb_step_layer step_layer(const struct sb_runner *r, int32_t index)
{
    const struct sb_layer *layer = &r->model->layers[index];

    return (struct sb_step_layer){
        .qkv = &layer->qkv,
        .o = &layer->o,
        .gate_up = &layer->mlp.gate_up,
        .down = &layer->mlp.down,
        .qkv_bias = layer->qkv_bias,
        .o_bias = layer->o_bias,
        .gate_up_bias = layer->gate_up_bias,
        .down_bias = layer->down_bias,
        .attn_norm = layer->attn_norm,
        .ffn_norm = layer->ffn_norm,
        .post_attn_norm = layer->post_attn_norm,
        .post_ffn_norm = layer->post_ffn_norm,
        .attention = sb_layer_attention(r, index),
    };
}

int32_t sb_steps_prepare(struct sb_runner *r)
{
    const struct specbatch_model *model = r->model;
    const struct sb_config *c = &model->config;
    const struct sb_step_model steps = {
        .n_layers = c->layers,
        .hidden = c->hidden,
        .inter = c->inter,
        .eps = (float)c->eps,
        .embed_scale = sb_config_embed_scale(c),
        .gate = c->arch->gate,
        .embed = &model->embed,
        .head = &model->head,
        .final_norm = model->final_norm,
        .x = r->x,
        .qkv = r->qkv,
        .attended = r->attended,
        .act = r->act,
    };
    struct sb_step_layer *layers = NULL;
    int32_t rc = SPECBATCH_OK;

    if (!r->backend->step_prepare || c->experts > 0 || c->logit_cap > 0.0)
        return rc;
    SB_NEW(layers, sb_alloc(&r->mem, (size_t)c->layers, sizeof *layers), "the layers of a draft");
    for (int32_t i = 0; i < c->layers; i++)
        layers[i] = step_layer(r, i);
    SB_TRY(r->backend->step_prepare(r->exec, &steps, layers));
done:
    sb_free(&r->mem, layers);
    return rc;
}

/* Steps [first, first + n) as one operation. 0: the backend does not take them. */
static int32_t run_together(struct sb_runner *r, int32_t first, int32_t n, int32_t limit,
                            int32_t *ids, float *logits)
{
    struct sb_draft_step steps[SB_DRAFT_STEPS_MAX];

    if (!r->backend->steps)
        return 0;
    for (int32_t i = 0; i < n; i++)
        steps[i] = sb_step_on_device(r, first + i, ids);
    return r->backend->steps(r->exec, steps, n, limit, ids, logits);
}

/* Runs step i and its selection. runner->logits has room for all of its logits. */
static void run_single(struct sb_runner *r, int32_t i, int32_t limit,
                       const struct sb_samplers *samplers, int32_t *ids, float *logprob)
{
    if (!run_together(r, i, 1, limit, ids, r->logits))
        sb_pass_run(r, i, ids);
    sb_pass_select(r, i, limit, samplers, ids, logprob, NULL, NULL);
}

void sb_steps_run(struct sb_runner *r, int32_t first, int32_t n, int32_t limit,
                  const struct sb_samplers *samplers, int32_t *ids, float *logprob)
{
    const int is_greedy = !samplers && !logprob;

    for (int32_t i = first; i < first + n;) {
        const int32_t left = first + n - i,
                      count = left < SB_DRAFT_STEPS_MAX ? left : SB_DRAFT_STEPS_MAX;
        if (is_greedy && run_together(r, i, count, limit, ids, NULL)) {
            i += count;
        } else { /* the first step, which closes gaps, may have too many tokens, the others not */
            run_single(r, i, limit, samplers, ids, logprob);
            i++;
        }
    }
}
