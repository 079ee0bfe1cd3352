/* One struct for each tensor, in which the names of the architecture meet the configuration's
 * numbers. */
#include "model/tensor_specs.h"

#include <stdio.h>

#include "model/tensors.h"
#include "status.h"

void sb_layer_tensor_specs(struct sb_tensor_spec out[SB_LAYER_TENSORS], const struct sb_config *c)
{
    const struct sb_arch *a = c->arch;
    const int32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const int32_t first = a->qkv[1] ? q : q + 2 * kv;
    const int32_t gate = a->gate_up[1] ? c->inter : 2 * c->inter;

    out[SB_TENSOR_ATTN_NORM] = (struct sb_tensor_spec){a->attn_norm, c->hidden, 0, 0};
    out[SB_TENSOR_POST_ATTN_NORM] = (struct sb_tensor_spec){a->post_attn_norm, c->hidden, 0, 0};
    out[SB_TENSOR_FFN_NORM] = (struct sb_tensor_spec){a->ffn_norm, c->hidden, 0, 0};
    out[SB_TENSOR_POST_FFN_NORM] = (struct sb_tensor_spec){a->post_ffn_norm, c->hidden, 0, 0};
    out[SB_TENSOR_Q_NORM] = (struct sb_tensor_spec){a->q_norm, c->head_dim, 0, 0};
    out[SB_TENSOR_K_NORM] = (struct sb_tensor_spec){a->k_norm, c->head_dim, 0, 0};
    out[SB_TENSOR_Q] = (struct sb_tensor_spec){a->qkv[0], first, c->hidden, c->has_qkv_bias};
    out[SB_TENSOR_K] = (struct sb_tensor_spec){a->qkv[1], kv, c->hidden, c->has_qkv_bias};
    out[SB_TENSOR_V] = (struct sb_tensor_spec){a->qkv[2], kv, c->hidden, c->has_qkv_bias};
    out[SB_TENSOR_O] = (struct sb_tensor_spec){a->o, c->hidden, q, c->has_o_bias};
    out[SB_TENSOR_ROUTER] = (struct sb_tensor_spec){a->router, c->experts, c->hidden, 0};
    out[SB_TENSOR_GATE] = (struct sb_tensor_spec){a->gate_up[0], gate, c->hidden, c->has_mlp_bias};
    out[SB_TENSOR_UP] = (struct sb_tensor_spec){a->gate_up[1], c->inter, c->hidden,
                                                c->has_mlp_bias};
    out[SB_TENSOR_DOWN] = (struct sb_tensor_spec){a->down, c->hidden, c->inter, c->has_mlp_bias};
}

void sb_expert_prefix(char prefix[SB_PREFIX_BYTES], const struct sb_config *c, int32_t layer,
                      int32_t expert)
{
    snprintf(prefix, SB_PREFIX_BYTES, "model.layers.%d.%s.%d.", (int)layer, c->arch->expert,
             (int)expert);
}

/* Visits a tensor and its bias. */
static int32_t visit_one(const char *prefix, const struct sb_tensor_spec *t, int32_t expert,
                         sb_tensor_visitor *visit, void *ctx)
{
    char name[SB_TENSOR_NAME_BYTES];
    int32_t rc = SPECBATCH_OK;

    snprintf(name, sizeof name, "%s%s%s", prefix, t->name, t->n_in ? ".weight" : "");
    SB_TRY(visit(ctx, name, t->rows, t->n_in, expert));
    snprintf(name, sizeof name, "%s%s.bias", prefix, t->name);
    if (t->has_bias)
        SB_TRY(visit(ctx, name, t->rows, 0, expert));
done:
    return rc;
}

int32_t sb_layer_tensors_visit(const struct sb_config *config, int32_t layer,
                               sb_tensor_visitor *visit, void *ctx)
{
    struct sb_tensor_spec specs[SB_LAYER_TENSORS];
    char prefix[SB_PREFIX_BYTES];
    int32_t rc = SPECBATCH_OK;

    sb_layer_tensor_specs(specs, config);
    for (int i = 0; i < SB_LAYER_TENSORS; i++) {
        const int32_t experts = i >= SB_TENSOR_GATE ? config->experts : 0;
        if (!specs[i].name)
            continue;
        snprintf(prefix, sizeof prefix, "model.layers.%d.", (int)layer);
        if (experts == 0)
            SB_TRY(visit_one(prefix, &specs[i], -1, visit, ctx));
        for (int32_t e = 0; e < experts; e++) {
            sb_expert_prefix(prefix, config, layer, e);
            SB_TRY(visit_one(prefix, &specs[i], e, visit, ctx));
        }
    }
done:
    return rc;
}
