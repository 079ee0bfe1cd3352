/*
 * The numbers of a configuration as the metadata of a GGUF file: the way back from gguf_config.c.
 * The keys are those that llama.cpp's converter writes, in the types that llama.cpp reads.
 *
 * Not all that a config.json can say has a key: an f32 holds no more than its digits, the scaling
 * of Llama 3 is in a tensor, YaRN has no attention_factor. So whoever writes a file reads the
 * configuration back and has it compared here. That is simpler than to know of each number what the
 * reader does with it, and it cannot be wrong about that.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "line.h"
#include "model/config_window.h"
#include "model/gguf_model.h"
#include "status.h"

struct keys {
    struct sb_gguf_out *out;
    const char *arch; /* what its keys begin with */
    char key[96];
};

static const char *key_of(struct keys *k, const char *name)
{
    snprintf(k->key, sizeof k->key, "%s.%s", k->arch, name);
    return k->key;
}

static void put_text(struct keys *k, const char *key, const char *text)
{
    sb_gguf_put_text(k->out, key, text, strlen(text));
}

static void put_sizes(struct keys *k, const struct sb_config *c)
{
    const struct {
        const char *name;
        int32_t value;
    } numbers[] = {{"block_count", c->layers},
                   {"context_length", c->context},
                   {"embedding_length", c->hidden},
                   {"feed_forward_length", c->dense_inter > 0 ? c->dense_inter : c->inter},
                   {"attention.head_count", c->heads},
                   {"attention.head_count_kv", c->kv_heads},
                   {"attention.key_length", c->head_dim},
                   {"attention.value_length", c->head_dim},
                   {"rope.dimension_count", c->rope.rot_dim},
                   {"vocab_size", c->vocab}};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sb_gguf_put_u32(k->out, key_of(k, numbers[i].name), (uint32_t)numbers[i].value);
}

/* The width of the MLP that Qwen's layers would have without experts is not known any more, and
 * nobody reads it. */
static void put_experts(struct keys *k, const struct sb_config *c)
{
    if (c->experts == 0)
        return;
    sb_gguf_put_u32(k->out, key_of(k, "expert_count"), (uint32_t)c->experts);
    sb_gguf_put_u32(k->out, key_of(k, "expert_used_count"), (uint32_t)c->chosen);
    if (c->arch->inter_key)
        sb_gguf_put_u32(k->out, key_of(k, "expert_feed_forward_length"), (uint32_t)c->inter);
    if (!c->arch->shared_expert)
        return;
    sb_gguf_put_u32(k->out, key_of(k, "expert_shared_count"), (uint32_t)c->has_shared);
    sb_gguf_put_u32(k->out, key_of(k, "expert_gating_func"), SB_GGUF_SIGMOID);
    sb_gguf_put_f32(k->out, key_of(k, "expert_weights_scale"), (float)c->expert_scale);
    sb_gguf_put_bool(k->out, key_of(k, "expert_weights_norm"), c->renormalises);
    sb_gguf_put_u32(k->out, key_of(k, "leading_dense_block_count"), (uint32_t)c->dense_layers);
}

static void put_rope(struct keys *k, const struct sb_rope_config *rope)
{
    sb_gguf_put_f32(k->out, key_of(k, "rope.freq_base"), (float)rope->theta);
    if (rope->kind == SB_ROPE_LONGROPE) {
        sb_gguf_put_u32(k->out, key_of(k, "rope.scaling.original_context_length"),
                        (uint32_t)rope->original_context);
        sb_gguf_put_f32(k->out, key_of(k, "rope.scaling.attn_factor"),
                        (float)rope->attention_factor);
    }
    if (rope->kind != SB_ROPE_LINEAR && rope->kind != SB_ROPE_YARN)
        return;
    put_text(k, key_of(k, "rope.scaling.type"), rope->kind == SB_ROPE_YARN ? "yarn" : "linear");
    sb_gguf_put_f32(k->out, key_of(k, "rope.scaling.factor"), (float)rope->factor);
    if (rope->kind == SB_ROPE_LINEAR)
        return;
    sb_gguf_put_u32(k->out, key_of(k, "rope.scaling.original_context_length"),
                    (uint32_t)rope->original_context);
    sb_gguf_put_f32(k->out, key_of(k, "rope.scaling.yarn_beta_fast"), (float)rope->beta_fast);
    sb_gguf_put_f32(k->out, key_of(k, "rope.scaling.yarn_beta_slow"), (float)rope->beta_slow);
}

/* Whether nothing but a period says which layers are local. */
static int has_period(const struct sb_config *c, int32_t period)
{
    for (int32_t i = 0; i < c->layers; i++)
        if (c->is_local[i] != sb_is_local_by(period, i))
            return 0;
    return 1;
}

/* llama.cpp has a period for Gemma 3, and lists for other models. Where windows are none, it wants
 * to be told of Phi. */
static void put_window(struct keys *k, const struct sb_config *c)
{
    static const char pattern[] = "attention.sliding_window_pattern";
    int32_t period = c->arch->window_period;

    if (c->window > 0 || c->arch->window == SB_WINDOW_ALWAYS)
        sb_gguf_put_u32(k->out, key_of(k, "attention.sliding_window"), (uint32_t)c->window);
    if (c->window == 0 || has_period(c, period))
        return;
    for (period = 1; period < c->layers && !has_period(c, period);)
        period++;
    if (has_period(c, period)) {
        sb_gguf_put_u32(k->out, key_of(k, pattern), (uint32_t)period);
        return;
    }
    sb_gguf_put_array(k->out, key_of(k, pattern), SB_GGUF_BOOL, (uint64_t)c->layers);
    for (int32_t i = 0; i < c->layers; i++)
        sb_gguf_put_number(k->out, c->is_local[i], 1);
}

static void put_local_rope(struct keys *k, const struct sb_config *c)
{
    if (sb_arch_has_local_rope(c->arch))
        sb_gguf_put_f32(k->out, key_of(k, "rope.freq_base_swa"), (float)c->other_rope.theta);
}

/* llama.cpp does not read this key for Gemma, of which no published model needs it. */
static void put_scale(struct keys *k, const struct sb_config *c)
{
    if (c->arch->default_query_scalar > 0.0 && c->query_scalar != sb_gguf_query_scalar(c))
        sb_gguf_put_f32(k->out, key_of(k, "attention.scale"), (float)(1.0 / sqrt(c->query_scalar)));
}

static void put_caps(struct keys *k, const struct sb_config *c)
{
    if (c->arch->default_score_cap == 0.0)
        return;
    sb_gguf_put_f32(k->out, key_of(k, "attn_logit_softcapping"), (float)c->score_cap);
    sb_gguf_put_f32(k->out, key_of(k, "final_logit_softcapping"), (float)c->logit_cap);
}

/* A file has places for three ids that end a text. */
static void put_special(struct keys *k, const struct sb_config *c)
{
    static const char *const ends[] = {"eos", "eot", "eom"};
    char key[48];

    if (c->bos >= 0)
        sb_gguf_put_u32(k->out, "tokenizer.ggml.bos_token_id", (uint32_t)c->bos);
    for (int32_t i = 0; i < c->n_eos && i < 3; i++) {
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ends[i]);
        sb_gguf_put_u32(k->out, key, (uint32_t)c->eos[i]);
    }
}

void sb_gguf_put_config(struct sb_gguf_out *out, const struct sb_config *config)
{
    struct keys k = {.out = out, .arch = sb_arch_gguf_name(config->arch)};

    put_text(&k, "general.architecture", k.arch);
    put_text(&k, "general.type", "model");
    put_sizes(&k, config);
    put_experts(&k, config);
    sb_gguf_put_f32(out, key_of(&k, "attention.layer_norm_rms_epsilon"), (float)config->eps);
    put_rope(&k, &config->rope);
    put_window(&k, config);
    put_local_rope(&k, config);
    put_scale(&k, config);
    put_caps(&k, config);
    put_special(&k, config);
}

/* ------------------------------------------------------------------------------ comparing */

static int has_eos(const struct sb_config *config, int32_t id)
{
    for (int32_t i = 0; i < config->n_eos; i++)
        if (config->eos[i] == id)
            return 1;
    return 0;
}

/* A factor of 1 divides no frequency, whatever the other numbers of Llama 3's scaling are; and two
 * original contexts may give the same divisors (gguf_config.c), so they are not compared. */
int32_t sb_gguf_check_config(const struct sb_config *put, const struct sb_config *got,
                             const struct sb_log *log, const char *place)
{
    const struct sb_rope_config *a = &put->rope, *b = &got->rope;
    const int llama3 = a->kind == SB_ROPE_LLAMA3, none = llama3 && a->factor == 1.0;
    const struct {
        const char *name;
        double put, got;
        int ignored;
    } numbers[] = {
        {"rms_norm_eps", put->eps, got->eps, 0},
        {"tie_word_embeddings", put->tied, got->tied, 0},
        {"rope_theta", a->theta, b->theta, 0},
        {"rope_type", a->kind, b->kind, none},
        {"the factor of the rotary scaling", a->factor, b->factor, none},
        {"low_freq_factor", a->low_freq, b->low_freq, none},
        {"high_freq_factor", a->high_freq, b->high_freq, none},
        {"original_max_position_embeddings", a->original_context, b->original_context, llama3},
        {"beta_fast", a->beta_fast, b->beta_fast, 0},
        {"beta_slow", a->beta_slow, b->beta_slow, 0},
        {"truncate", a->truncate, b->truncate, 0},
        {"attention_factor", a->attention_factor, b->attention_factor, 0},
        {"query_pre_attn_scalar", put->query_scalar, got->query_scalar, 0},
        {"attn_logit_softcapping", put->score_cap, got->score_cap, 0},
        {"final_logit_softcapping", put->logit_cap, got->logit_cap, 0},
        {"norm_topk_prob", put->renormalises, got->renormalises, 0},
        {"routed_scaling_factor", put->expert_scale, got->expert_scale, 0},
        {"sliding_window", put->window, got->window, 0},
        {"rope_theta of local layers", put->other_rope.theta, got->other_rope.theta, 0},
        {"the factor of local layers", put->other_rope.factor, got->other_rope.factor, 0},
    };
    char path[200];

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!numbers[i].ignored && numbers[i].put != numbers[i].got)
            return sb_fail(SPECBATCH_E_UNSUPPORTED,
                           "config.json: %s %.9g cannot be said in a GGUF "
                           "file, which would mean %.9g",
                           numbers[i].name, numbers[i].put, numbers[i].got);
    if (memcmp(put->is_unrotated, got->is_unrotated, (size_t)put->layers) != 0)
        return sb_fail(SPECBATCH_E_UNSUPPORTED,
                       "config.json: these no_rope_layers cannot be said in a GGUF file, which "
                       "would mean each one of %d",
                       (int)put->arch->unrotated_period);
    sb_line_path(path, sizeof path, place);
    for (int32_t i = 0; i < put->n_eos; i++)
        if (!has_eos(got, put->eos[i]))
            sb_log(log, SPECBATCH_LOG_WARN,
                   "%s: eos_token_id %d is not in the GGUF file, which has places for three", path,
                   (int)put->eos[i]);
    return SPECBATCH_OK;
}
