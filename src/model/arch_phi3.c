/*
 * Phi-3 and Phi-4: Llama without biases, with q, k and v in one tensor, and gate and up in another.
 * Source: transformers, models/phi3.
 */
#include "model/arch.h"

const struct sb_arch sb_arch_phi3 = {
    .model_type = "phi3",
    .class_name = "Phi3ForCausalLM",
    .qkv_bias = SB_BIAS_NEVER,
    .o_bias = SB_BIAS_NEVER,
    .mlp_bias = SB_BIAS_NEVER,
    .default_attention_bias = 0,
    .rot_interleaved = 0,
    .has_partial_rotary = 1,
    .default_partial_rotary = 1.0,
    .default_eps = 1e-5,
    .default_kv_heads = 0,
    .default_head_dim = 0,
    .window = SB_WINDOW_ALWAYS,
    .default_window = 0,
    .attn_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .qkv = {"self_attn.qkv_proj"},
    .o = "self_attn.o_proj",
    .gate_up = {"mlp.gate_up_proj"},
    .down = "mlp.down_proj",
};
