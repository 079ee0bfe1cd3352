/* One struct for each tensor, in which the names of the architecture meet the configuration's
 * numbers. */
#include "model/tensor_specs.h"

#include <stdio.h>

#include "model/tensors.h"
#include "status.h"

void sb_layer_tensor_specs(struct sb_tensor_spec out[SB_LAYER_TENSORS], const struct sb_config *c,
                           int32_t layer)
{
    const struct sb_arch *a = c->arch;
    const int32_t inter = sb_config_inter_of(c, layer);
    const int is_mixture = sb_config_experts_of(c, layer) > 0;
    const int32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const int32_t first = a->qkv[1] ? q : q + 2 * kv;
    const int32_t gate = a->gate_up[1] ? inter : 2 * inter;

    out[SB_TENSOR_ATTN_NORM] = (struct sb_tensor_spec){a->attn_norm, c->hidden, 0, 0};
    out[SB_TENSOR_POST_ATTN_NORM] = (struct sb_tensor_spec){a->post_attn_norm, c->hidden, 0, 0};
    out[SB_TENSOR_FFN_NORM] = (struct sb_tensor_spec){a->ffn_norm, c->hidden, 0, 0};
    out[SB_TENSOR_POST_FFN_NORM] = (struct sb_tensor_spec){a->post_ffn_norm, c->hidden, 0, 0};
    out[SB_TENSOR_Q_NORM] = (struct sb_tensor_spec){c->has_head_norms ? a->q_norm : NULL,
                                                    c->head_dim, 0, 0};
    out[SB_TENSOR_K_NORM] = (struct sb_tensor_spec){c->has_head_norms ? a->k_norm : NULL,
                                                    c->head_dim, 0, 0};
    out[SB_TENSOR_Q] = (struct sb_tensor_spec){a->qkv[0], first, c->hidden, c->has_qkv_bias};
    out[SB_TENSOR_K] = (struct sb_tensor_spec){a->qkv[1], kv, c->hidden, c->has_qkv_bias};
    out[SB_TENSOR_V] = (struct sb_tensor_spec){a->qkv[2], kv, c->hidden, c->has_qkv_bias};
    out[SB_TENSOR_O] = (struct sb_tensor_spec){a->o, c->hidden, q, c->has_o_bias};
    out[SB_TENSOR_SINKS] = (struct sb_tensor_spec){a->sinks, c->heads, 0, 0};
    out[SB_TENSOR_ROUTER] = (struct sb_tensor_spec){is_mixture ? a->router : NULL, c->experts,
                                                    c->hidden, a->router_has_bias};
    out[SB_TENSOR_CHOICE_BIAS] = (struct sb_tensor_spec){is_mixture ? a->choice_bias : NULL,
                                                         c->experts, 0, 0};
    out[SB_TENSOR_GATE] = (struct sb_tensor_spec){a->gate_up[0], gate, c->hidden, c->has_mlp_bias};
    out[SB_TENSOR_UP] = (struct sb_tensor_spec){a->gate_up[1], inter, c->hidden, c->has_mlp_bias};
    out[SB_TENSOR_DOWN] = (struct sb_tensor_spec){a->down, c->hidden, inter, c->has_mlp_bias};
}

void sb_mlp_prefix(char prefix[SB_PREFIX_BYTES], const struct sb_config *c, int32_t layer,
                   int32_t expert)
{
    const struct sb_arch *a = c->arch;

    if (!a->router)
        snprintf(prefix, SB_PREFIX_BYTES, "model.layers.%d.", (int)layer);
    else if (sb_config_experts_of(c, layer) == 0)
        snprintf(prefix, SB_PREFIX_BYTES, "model.layers.%d.%s.", (int)layer, a->dense);
    else if (expert == c->experts)
        snprintf(prefix, SB_PREFIX_BYTES, "model.layers.%d.%s.", (int)layer, a->shared_expert);
    else
        snprintf(prefix, SB_PREFIX_BYTES, "model.layers.%d.%s.%d.", (int)layer, a->expert,
                 (int)expert);
}

/* Visits a tensor, or its bias. */
static int32_t visit_one(const char *prefix, const struct sb_tensor_spec *t, int is_bias,
                         int32_t expert, sb_tensor_visitor *visit, void *ctx)
{
    char name[SB_TENSOR_NAME_BYTES];

    snprintf(name, sizeof name, "%s%s%s", prefix, t->name,
             is_bias   ? ".bias"
             : t->n_in ? ".weight"
                       : "");
    return visit(ctx, name, t->rows, is_bias ? 0 : t->n_in, expert);
}

/* Visits the tensors of one kind of all MLPs of a layer. */
static int32_t visit_mlps(const struct sb_config *config, int32_t layer,
                          const struct sb_tensor_spec *t, int is_bias, sb_tensor_visitor *visit,
                          void *ctx)
{
    const int32_t experts = sb_config_experts_of(config, layer), mlps = experts > 0 ? experts : 1;
    char prefix[SB_PREFIX_BYTES];
    int32_t rc = SPECBATCH_OK;

    for (int32_t e = 0; e < mlps; e++) {
        const int is_numbered = experts > 0 && e < config->experts;
        sb_mlp_prefix(prefix, config, layer, e);
        SB_TRY(visit_one(prefix, t, is_bias, is_numbered ? e : -1, visit, ctx));
    }
done:
    return rc;
}

int32_t sb_layer_tensors_visit(const struct sb_config *config, int32_t layer,
                               sb_tensor_visitor *visit, void *ctx)
{
    struct sb_tensor_spec specs[SB_LAYER_TENSORS];
    char prefix[SB_PREFIX_BYTES];
    int32_t rc = SPECBATCH_OK;

    sb_layer_tensor_specs(specs, config, layer);
    snprintf(prefix, sizeof prefix, "model.layers.%d.", (int)layer);
    for (int i = 0; i < SB_LAYER_TENSORS; i++)
        for (int is_bias = 0; specs[i].name && is_bias <= specs[i].has_bias; is_bias++)
            if (i < SB_TENSOR_GATE)
                SB_TRY(visit_one(prefix, &specs[i], is_bias, -1, visit, ctx));
            else
                SB_TRY(visit_mlps(config, layer, &specs[i], is_bias, visit, ctx));
done:
    return rc;
}
