/* Qwen2, Qwen2.5 and GLM-4.5-DRAFT: like Llama, with biases on q, k and v whatever config.json
 * says. Source: transformers, models/qwen2. */
#include "model/arch.h"

const struct sb_arch sb_arch_qwen2 = {
    .model_type = "qwen2",
    .class_name = "Qwen2ForCausalLM",
    .qkv_bias = SB_BIAS_ALWAYS,
    .o_bias = SB_BIAS_NEVER,
    .mlp_bias = SB_BIAS_NEVER,
    .default_attention_bias = 1,
    .rot_interleaved = 0,
    .default_partial_rotary = 1.0,
    .default_eps = 1e-6,
    .default_kv_heads = 0,
    .default_head_dim = 0,
    .window = SB_WINDOW_IF_USED,
    .default_window = 4096,
    .attn_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .gate_up = {"mlp.gate_proj", "mlp.up_proj"},
    .down = "mlp.down_proj",
};
