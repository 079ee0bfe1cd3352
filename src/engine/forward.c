/*
 * The transformer's forward pass, the only one in the library. Plain decoding, verification,
 * drafting and prefill are all this function with other tokens, which is why their results can be
 * equal bit for bit. Nothing here reads a token or a length on the host.
 *
 *   x = embed(tokens)
 *   for each layer:
 *       x += attention(norm(x))      GLM-4 and Gemma norm the block's output once more before
 *       x += mlp(norm(x))            adding it; the other architectures add it as it is. The MLP
 *                                    may be a mixture of experts
 *   logits = head(norm(x))           only for the tokens whose logits are wanted, and in pieces
 *                                    where they are more than there is memory for
 *
 * Shapes. m is the number of query tokens in the pass: row t of every activation belongs to token
 * t, whichever sequence it is of. q_dim = heads * head_dim, kv_dim = kv_heads * head_dim. A weight
 * W [n_out, n_in] maps a row of n_in numbers to one of n_out.
 *
 * The architectures (Llama, Qwen, GLM-4, Gemma and so on) differ in which tensors exist, in the
 * rotary layout, in the kind of gate and in how far attention reaches back. All of that is data
 * (model/arch_*.c); a tensor that an architecture lacks is NULL here.
 *
 * A block's output is not added to x at once: adding it and norming the sum for the next block are
 * one operation of the backend, so the output waits as `struct unadded` until then.
 *
 * Names and order follow llama2.c's forward() (github.com/karpathy/llama2.c, run.c); the
 * architectures follow transformers' models/NAME/modeling_*.py (llama, qwen2, qwen3, qwen3_moe,
 * mixtral, glm4, glm4_moe, gemma2, gemma3, gpt_oss, smollm3).
 */
#include "engine/runner.h"

/* The output of the latest block, which has not been added to the residual stream x yet. */
struct unadded {
    const float *y;           /* [m, hidden], or NULL: there is none */
    const float *norm_weight; /* [hidden]: of a norm on y before it is added, or NULL */
};

/* x += unadded; h = norm(x), the input of the next block.
 *
 * index NULL: h[i] is the normed x[i], for all m tokens of the pass. Otherwise h[i] is the normed
 * x[index[i]], for the m tokens of `index` (dev). */
static void add_and_norm(struct sb_runner *r, struct unadded unadded, const float *weight,
                         const int32_t *index, int32_t m)
{
    const struct sb_norm args = {
        .m = m,
        .n = r->model->config.hidden,
        .eps = (float)r->model->config.eps,
        .h = r->h,
        .x = r->x,
        .y = unadded.y,
        .y_weight = unadded.norm_weight,
        .weight = weight,
        .index = index,
    };

    r->backend->norm(r->exec, &args);
}

struct sb_attention sb_layer_attention(const struct sb_runner *r, int32_t index)
{
    const struct sb_config *c = &r->model->config;
    const struct sb_layer *layer = &r->model->layers[index];
    const struct sb_rope_dev *rope = &r->rope[sb_config_rope_of(c, index) == &c->other_rope];
    const int32_t window = sb_config_window_of(c, index);

    return (struct sb_attention){
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .rot_dim = c->rope.rot_dim,
        .rot_interleaved = c->arch->rot_interleaved,
        /* A window that holds whatever a slot holds is none. */
        .window = window < r->limits.cap ? window : 0,
        .eps = (float)c->eps,
        .scale = r->scale,
        .score_cap = (float)c->score_cap,
        .q_norm = layer->q_norm,     /* [head_dim] or NULL */
        .k_norm = layer->k_norm,     /* [head_dim] or NULL */
        .sinks = layer->sinks,       /* [heads] or NULL */
        .cos = rope->cos,            /* [cap, rot_dim / 2] */
        .sin = rope->sin,            /* [cap, rot_dim / 2] */
        .k = sb_kv_k(&r->kv, index), /* [slot, kv_head, column, head_dim] */
        .v = sb_kv_v(&r->kv, index), /* [slot, kv_head, column, head_dim] */
    };
}

static struct unadded attention_block(struct sb_runner *r, const struct sb_layer *layer,
                                      int32_t index, const struct sb_pass *pass)
{
    const struct sb_backend *be = r->backend;
    const int32_t m = pass->n_tokens;
    const struct sb_attention attention = sb_layer_attention(r, index);

    /* qkv [m, q_dim + 2 kv_dim] = h [m, hidden] . Wqkv [q_dim + 2 kv_dim, hidden] (+ bias) */
    be->gemm(r->exec, r->qkv, r->h, &layer->qkv, layer->qkv_bias, m);
    /* Each head of q and k is rotated by its token's position (Qwen3 norms it first). q stays in
     * qkv; k and v [m, kv_dim] go to their columns in the cache. */
    be->rope_kv(r->exec, r->qkv, &attention, pass);
    /* attended [m, q_dim]: each query head looks at positions 0 .. its token's own, in the cache */
    be->attend(r->exec, r->attended, r->qkv, &attention, pass);
    /* y [m, hidden] = attended [m, q_dim] . Wo [hidden, q_dim] (+ bias) */
    be->gemm(r->exec, r->y, r->attended, &layer->o, layer->o_bias, m);
    return (struct unadded){r->y, layer->post_attn_norm};
}

static struct unadded mlp_block(struct sb_runner *r, const struct sb_layer *layer, int32_t inter,
                                int32_t m)
{
    const struct sb_backend *be = r->backend;

    /* gate, up [m, inter] = the halves of h [m, hidden] . Wgate_up [2 * inter, hidden] (+ bias);
     * act [m, inter] = silu(gate) * up, or what another kind of gate does */
    be->gated(r->exec, r->act, r->gate_up, r->h, &layer->mlp.gate_up, layer->gate_up_bias,
              r->model->config.arch->gate, m, inter);
    /* y [m, hidden] = act [m, inter] . Wdown [hidden, inter] (+ bias) */
    be->gemm(r->exec, r->y, r->act, &layer->mlp.down, layer->down_bias, m);
    return (struct unadded){r->y, layer->post_ffn_norm};
}

static struct unadded mixture_block(struct sb_runner *r, const struct sb_layer *layer, int32_t m)
{
    const struct sb_config *c = &r->model->config;
    const struct sb_mixture mixture = {
        .m = m,
        .hidden = c->hidden,
        .inter = c->inter,
        .n_experts = c->experts,
        .chosen = c->chosen,
        .has_shared = c->has_shared,
        .scoring = c->arch->scoring,
        .renormalises = c->renormalises,
        .scale = (float)c->expert_scale,
        .gate = c->arch->gate,
        .gate_up_bias = layer->gate_up_bias,
        .down_bias = layer->down_bias,
        .experts = layer->experts,
        .bias = layer->choice_bias,
        .logits = r->routed,
        .h = r->h,
        .y = r->y,
        .rows = r->expert_rows,
        .act = r->act,
        .gate_up = r->gate_up,
        .out = r->expert_out,
    };

    /* routed [m, experts] = h [m, hidden] . Wrouter [experts, hidden] (+ bias) */
    r->backend->gemm(r->exec, r->routed, r->h, &layer->router, layer->router_bias, m);
    /* y [m, hidden] = the MLPs of the experts that each row of `routed` chooses, weighted */
    r->backend->mix(r->exec, &mixture);
    return (struct unadded){r->y, layer->post_ffn_norm};
}

/* Shows a stage to the test that asked for it (runner.h). */
static void tap(struct sb_runner *r, int32_t stage, const void *x, int32_t rows)
{
    if (r->tap.fn)
        r->tap.fn(r->tap.user, stage, x, rows, r->model->config.hidden);
}

void sb_forward_logits(struct sb_runner *r, const int32_t *out, int32_t n)
{
    const struct specbatch_model *model = r->model;
    const int32_t layers = model->config.layers;

    /* h [n, hidden] = norm(x), after the last block has been added to x, of these n tokens */
    add_and_norm(r, (struct unadded){r->y, model->layers[layers - 1].post_ffn_norm},
                 model->final_norm, out, n);
    tap(r, layers, r->h, n);
    /* logits [n, vocab] = h [n, hidden] . Whead [vocab, hidden], and a soft cap (Gemma 2) */
    r->backend->gemm(r->exec, r->logits, r->h, &model->head, NULL, n);
    if (model->config.logit_cap > 0.0)
        r->backend->soft_cap(r->exec, r->logits, (float)model->config.logit_cap,
                             (int64_t)n * model->config.vocab);
}

void sb_forward(struct sb_runner *r, const struct sb_pass *pass)
{
    const struct specbatch_model *model = r->model;
    const struct sb_config *c = &model->config;
    const int32_t m = pass->n_tokens;
    struct unadded unadded = {NULL, NULL};

    /* x [m, hidden] = rows of the embedding table [vocab, hidden], times a scale */
    r->backend->embed(r->exec, r->x, &model->embed, sb_config_embed_scale(c), pass);
    for (int32_t i = 0; i < c->layers; i++) {
        const struct sb_layer *layer = &model->layers[i];
        /* x [m, hidden] += the block before; h [m, hidden] = norm(x) */
        add_and_norm(r, unadded, layer->attn_norm, NULL, m);
        tap(r, i, r->x, m);
        unadded = attention_block(r, layer, i, pass);
        add_and_norm(r, unadded, layer->ffn_norm, NULL, m);
        unadded = layer->experts ? mixture_block(r, layer, m)
                                 : mlp_block(r, layer, sb_config_inter_of(&r->model->config, i), m);
    }
    if (pass->n_out > 0)
        sb_forward_logits(r, pass->out,
                          pass->n_out < r->limits.max_out ? pass->n_out : r->limits.max_out);
}
