/*
 * Gemma 2: Llama with norms also on the outputs of attention and MLP, weights of norms that count
 * from 1, a gate by GELU, and embeddings multiplied by the root of their length. Scores and logits
 * have soft caps, and every second layer attends to a window.
 * Source: transformers, models/gemma2.
 */
#include "model/arch.h"

const struct sb_arch sb_arch_gemma2 = {
    .model_type = "gemma2",
    .class_name = "Gemma2ForCausalLM",
    .gguf_has_window = 1,
    .gguf_wide_layers = 46,
    .qkv_bias = SB_BIAS_BY_CONFIG,
    .o_bias = SB_BIAS_BY_CONFIG,
    .mlp_bias = SB_BIAS_NEVER,
    .default_attention_bias = 0,
    .rot_interleaved = 0,
    .default_partial_rotary = 1.0,
    .default_query_scalar = 256.0,
    .default_score_cap = 50.0,
    .default_logit_cap = 30.0,
    .default_eps = 1e-6,
    .norm_shift = 1.0,
    .gate = SB_GATE_GELU,
    .activation_key = "hidden_activation",
    .scales_embedding = 1,
    .default_tied = 1,
    .default_vocab = 256000,
    .default_heads = 8,
    .default_context = 8192,
    .default_kv_heads = 4,
    .default_head_dim = 256,
    .window = SB_WINDOW_ALWAYS,
    .default_window = 4096,
    .window_period = 2,
    .attn_norm = "input_layernorm.weight",
    .post_attn_norm = "post_attention_layernorm.weight",
    .ffn_norm = "pre_feedforward_layernorm.weight",
    .post_ffn_norm = "post_feedforward_layernorm.weight",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .gate_up = {"mlp.gate_proj", "mlp.up_proj"},
    .down = "mlp.down_proj",
};
