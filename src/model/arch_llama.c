/* Llama 2 and 3, and what has the same layout (Vicuna). Source: transformers, models/llama. */
#include "model/arch.h"

const struct sb_arch sb_arch_llama = {
    .model_type = "llama",
    .class_name = "LlamaForCausalLM",
    .qkv_bias = SB_BIAS_BY_CONFIG,
    .o_bias = SB_BIAS_BY_CONFIG,
    .mlp_bias = SB_BIAS_BY_CONFIG,
    .default_attention_bias = 0,
    .rot_interleaved = 0,
    .gguf_interleaved = 1,
    .default_partial_rotary = 1.0,
    .default_eps = 1e-6,
    .default_kv_heads = 0,
    .default_head_dim = 0,
    .attn_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .gate_up = {"mlp.gate_proj", "mlp.up_proj"},
    .down = "mlp.down_proj",
};
