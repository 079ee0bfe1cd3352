/*
 * The transformer pass: the only one. Llama, Qwen2, Qwen3 and GLM-4 differ in which tensors exist
 * and in the rotary layout, all of which is data (model/arch_*.c); here an absent tensor is NULL.
 *
 *   x = embed(tokens)
 *   each layer:  x += [norm](O . attend(rope(QKV . norm(x))))      [norm]: GLM-4's sandwich norms
 *                x += [norm](Down . swiglu(GateUp . norm(x)))
 *   logits = Head . norm(x of the wanted tokens)
 *
 * Plain decoding, verification, drafting and prefill are all this function with other tokens; that is
 * what makes them equal. Nothing here reads a token or a length on the host.
 *
 * Names and order follow llama2.c's forward() (github.com/karpathy/llama2.c, run.c); the
 * architectures follow transformers' models/{llama,qwen2,qwen3,glm4}/modeling_*.py.
 */
#include "engine/runner.h"

static void attention_block(struct sb_runner *r, const struct sb_layer *layer, int32_t index,
                            const struct sb_pass *pass)
{
    const struct sb_backend *be = r->backend;
    const struct sb_config *c = &r->model->config;
    const float eps = (float)c->eps;
    const int32_t m = pass->n_tokens;
    const struct sb_attention attention = {
        .heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->head_dim,
        .rot_dim = c->rope.rot_dim, .rot_interleaved = c->arch->rot_interleaved,
        .eps = eps, .scale = r->scale,
        .q_norm = layer->q_norm, .k_norm = layer->k_norm,
        .cos = r->cos, .sin = r->sin,
        .k = sb_kv_k(&r->kv, index), .v = sb_kv_v(&r->kv, index),
    };

    be->rmsnorm(r->exec, r->h, r->x, layer->attn_norm, m, c->hidden, eps);
    be->gemm(r->exec, r->qkv, r->h, &layer->qkv, layer->qkv_bias, m);
    be->rope_kv(r->exec, r->qkv, &attention, pass);
    be->attend(r->exec, r->attended, r->qkv, &attention, pass);
    be->gemm(r->exec, r->h, r->attended, &layer->o, layer->o_bias, m);
    if (layer->post_attn_norm)
        be->rmsnorm(r->exec, r->h, r->h, layer->post_attn_norm, m, c->hidden, eps);
    be->add(r->exec, r->x, r->h, m, c->hidden);
}

static void mlp_block(struct sb_runner *r, const struct sb_layer *layer, int32_t m)
{
    const struct sb_backend *be = r->backend;
    const struct sb_config *c = &r->model->config;
    const float eps = (float)c->eps;

    be->rmsnorm(r->exec, r->h, r->x, layer->ffn_norm, m, c->hidden, eps);
    be->gemm(r->exec, r->gate_up, r->h, &layer->gate_up, layer->gate_up_bias, m);
    be->swiglu(r->exec, r->act, r->gate_up, m, c->inter);
    be->gemm(r->exec, r->h, r->act, &layer->down, layer->down_bias, m);
    if (layer->post_ffn_norm)
        be->rmsnorm(r->exec, r->h, r->h, layer->post_ffn_norm, m, c->hidden, eps);
    be->add(r->exec, r->x, r->h, m, c->hidden);
}

static void tap(struct sb_runner *r, int32_t stage, const float *x, int32_t rows)
{
    if (r->tap.fn)
        r->tap.fn(r->tap.user, stage, x, rows, r->model->config.hidden);
}

void sb_forward(struct sb_runner *r, const struct sb_pass *pass)
{
    const struct sb_backend *be = r->backend;
    const struct specbatch_model *model = r->model;
    const struct sb_config *c = &model->config;

    be->embed(r->exec, r->x, &model->embed, pass);
    for (int32_t i = 0; i < c->layers; i++) {
        tap(r, i, r->x, pass->n_tokens);
        attention_block(r, &model->layers[i], i, pass);
        mlp_block(r, &model->layers[i], pass->n_tokens);
    }
    if (pass->n_out == 0)
        return;
    be->gather(r->exec, r->h, r->x, pass->out, pass->n_out, c->hidden);
    be->rmsnorm(r->exec, r->h, r->h, model->final_norm, pass->n_out, c->hidden, (float)c->eps);
    tap(r, c->layers, r->h, pass->n_out);
    be->gemm(r->exec, r->logits, r->h, &model->head, NULL, pass->n_out);
}
