/* Qwen3 with a mixture of experts in the place of each MLP.
 * Source: transformers, models/qwen3_moe. */
#include "model/arch.h"

const struct sb_arch sb_arch_qwen3_moe = {
    .model_type = "qwen3_moe",
    .class_name = "Qwen3MoeForCausalLM",
    .gguf_name = "qwen3moe",
    .qkv_bias = SB_BIAS_BY_CONFIG,
    .o_bias = SB_BIAS_BY_CONFIG,
    .mlp_bias = SB_BIAS_NEVER,
    .default_attention_bias = 0,
    .rot_interleaved = 0,
    .default_partial_rotary = 1.0,
    .default_eps = 1e-6,
    .default_kv_heads = 4,
    .default_head_dim = 0,
    .window = SB_WINDOW_NEVER,
    .attn_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .q_norm = "self_attn.q_norm.weight",
    .k_norm = "self_attn.k_norm.weight",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .router = "mlp.gate",
    .expert = "mlp.experts",
    .gate_up = {"gate_proj", "up_proj"},
    .down = "down_proj",
    .inter_key = "moe_intermediate_size",
    .default_experts = 128,
    .default_chosen = 8,
    .norm_topk_key = "norm_topk_prob",
};
