/*
 * gpt-oss: a mixture of experts in every layer, whose experts, router and attention have biases.
 * Experts limit what they multiply (SB_GATE_CLAMPED), heads have sinks, and every second layer has
 * a window. Folders have the experts of a layer in one tensor, as MXFP4 or as floats (stacked.h).
 * Source: transformers, models/gpt_oss.
 */
#include "model/arch.h"

const struct sb_arch sb_arch_gpt_oss = {
    .model_type = "gpt_oss",
    .class_name = "GptOssForCausalLM",
    .gguf_name = "gpt-oss",
    .gguf_ffn_norm = "post_attention_norm",
    .gguf_untruncated = 1,
    .qkv_bias = SB_BIAS_BY_CONFIG,
    .o_bias = SB_BIAS_BY_CONFIG,
    .mlp_bias = SB_BIAS_ALWAYS,
    .default_attention_bias = 1,
    .rot_interleaved = 0,
    .default_partial_rotary = 1.0,
    .default_theta = 150000.0,
    .default_eps = 1e-5,
    .gate = SB_GATE_CLAMPED,
    .default_kv_heads = 8,
    .default_head_dim = 64,
    .window = SB_WINDOW_ALWAYS,
    .default_window = 128,
    .window_period = 2,
    .attn_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .sinks = "self_attn.sinks",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .router = "mlp.router",
    .router_has_bias = 1,
    .expert = "mlp.experts",
    .gate_up = {"gate_proj", "up_proj"},
    .down = "down_proj",
    .stacked_gate_up = "gate_up_proj",
    .inter_key = "intermediate_size",
    .default_experts = 128,
    .default_chosen = 4,
    .renormalises = 1,
};
