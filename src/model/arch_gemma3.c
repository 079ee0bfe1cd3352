/*
 * Gemma 3, its texts: Llama with norms also on the outputs of attention and MLP and on the heads of
 * q and k, weights of norms that count from 1, a gate by GELU, and embeddings multiplied by the
 * root of their length. Five layers of six attend to a window, with a rotation of their own. The
 * models that see pictures too are those with this one as text_config.
 * Source: transformers, models/gemma3.
 */
#include "model/arch.h"

const struct sb_arch sb_arch_gemma3 = {
    .model_type = "gemma3_text",
    .class_name = "Gemma3ForCausalLM",
    .whole_type = "gemma3",
    .whole_class = "Gemma3ForConditionalGeneration",
    .gguf_name = "gemma3",
    .gguf_wide_layers = 62,
    .qkv_bias = SB_BIAS_BY_CONFIG,
    .o_bias = SB_BIAS_BY_CONFIG,
    .mlp_bias = SB_BIAS_NEVER,
    .default_attention_bias = 0,
    .rot_interleaved = 0,
    .default_partial_rotary = 1.0,
    .default_theta = 1e6,
    .default_local_theta = 1e4,
    .default_query_scalar = 256.0,
    .default_eps = 1e-6,
    .norm_shift = 1.0,
    .gate = SB_GATE_GELU,
    .activation_key = "hidden_activation",
    .scales_embedding = 1,
    .default_tied = 1,
    .default_vocab = 262208,
    .default_heads = 8,
    .default_context = 131072,
    .default_kv_heads = 4,
    .default_head_dim = 256,
    .window = SB_WINDOW_ALWAYS,
    .default_window = 4096,
    .window_period = 6,
    .attn_norm = "input_layernorm.weight",
    .post_attn_norm = "post_attention_layernorm.weight",
    .ffn_norm = "pre_feedforward_layernorm.weight",
    .post_ffn_norm = "post_feedforward_layernorm.weight",
    .q_norm = "self_attn.q_norm.weight",
    .k_norm = "self_attn.k_norm.weight",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .gate_up = {"mlp.gate_proj", "mlp.up_proj"},
    .down = "mlp.down_proj",
};
