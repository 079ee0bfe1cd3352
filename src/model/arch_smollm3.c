/*
 * SmolLM3: Llama, with every fourth layer without a rotation (Yang et al. 2025, arXiv:2501.18795).
 * Source: transformers, models/smollm3.
 */
#include "model/arch.h"

const struct sb_arch sb_arch_smollm3 = {
    .model_type = "smollm3",
    .class_name = "SmolLM3ForCausalLM",
    .qkv_bias = SB_BIAS_BY_CONFIG,
    .o_bias = SB_BIAS_BY_CONFIG,
    .mlp_bias = SB_BIAS_BY_CONFIG,
    .default_attention_bias = 0,
    .rot_interleaved = 0,
    .gguf_interleaved = 1,
    .default_partial_rotary = 1.0,
    .default_theta = 2e6,
    .unrotated_period = 4,
    .default_eps = 1e-6,
    .default_tied = 1,
    .default_vocab = 128256,
    .default_heads = 16,
    .default_context = 32768,
    .default_kv_heads = 4,
    .default_head_dim = 0,
    .attn_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .gate_up = {"mlp.gate_proj", "mlp.up_proj"},
    .down = "mlp.down_proj",
};
