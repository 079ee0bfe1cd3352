/* Mixtral: Mistral with a mixture of experts in the place of each MLP. GGUF files of it are those
 * of Llama, with a number of experts.
 * Source: transformers, models/mixtral. */
#include "model/arch.h"

const struct sb_arch sb_arch_mixtral = {
    .model_type = "mixtral",
    .class_name = "MixtralForCausalLM",
    .gguf_name = "llama",
    .qkv_bias = SB_BIAS_NEVER,
    .o_bias = SB_BIAS_NEVER,
    .mlp_bias = SB_BIAS_NEVER,
    .default_attention_bias = 0,
    .rot_interleaved = 0,
    .gguf_interleaved = 1,
    .default_partial_rotary = 1.0,
    .default_theta = 1e6,
    .default_eps = 1e-5,
    .default_kv_heads = 8,
    .default_head_dim = 0,
    .window = SB_WINDOW_ALWAYS,
    .attn_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .router = "block_sparse_moe.gate",
    .expert = "block_sparse_moe.experts",
    .gate_up = {"w1", "w3"},
    .down = "w2",
    .default_experts = 8,
    .default_chosen = 2,
    .renormalises = 1,
};
