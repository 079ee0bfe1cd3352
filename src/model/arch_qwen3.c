/* Qwen3: like Llama, with an RMS norm on each head of q and k before the rotation.
 * Source: transformers, models/qwen3. */
#include "model/arch.h"

const struct sb_arch sb_arch_qwen3 = {
    .model_type = "qwen3",
    .class_name = "Qwen3ForCausalLM",
    .qkv_bias = SB_BIAS_BY_CONFIG,
    .o_bias = SB_BIAS_BY_CONFIG,
    .mlp_bias = SB_BIAS_NEVER,
    .default_attention_bias = 0,
    .rot_interleaved = 0,
    .default_partial_rotary = 1.0,
    .default_eps = 1e-6,
    .default_kv_heads = 0,
    .default_head_dim = 128,
    .window = SB_WINDOW_IF_USED,
    .default_window = 4096,
    .attn_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .q_norm = "self_attn.q_norm.weight",
    .k_norm = "self_attn.k_norm.weight",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .gate_up = {"mlp.gate_proj", "mlp.up_proj"},
    .down = "mlp.down_proj",
};
