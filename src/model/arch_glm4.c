/*
 * GLM-4-0414. It differs from Llama in four ways: norms also on the outputs of attention and MLP
 * ("sandwich norms"); gate and up in one tensor; only half of each head is rotated, in neighbouring
 * pairs; biases on q, k and v only, if any (the 9B has them, the 32B has not).
 * Source: transformers, models/glm4.
 */
#include "model/arch.h"

const struct sb_arch sb_arch_glm4 = {
    .model_type = "glm4",
    .class_name = "Glm4ForCausalLM",
    .qkv_bias = SB_BIAS_BY_CONFIG,
    .o_bias = SB_BIAS_NEVER,
    .mlp_bias = SB_BIAS_NEVER,
    .default_attention_bias = 1,
    .rot_interleaved = 1,
    .has_partial_rotary = 1,
    .default_partial_rotary = 0.5,
    .default_eps = 1.5625e-7,
    .default_kv_heads = 2,
    .default_head_dim = 128,
    .attn_norm = "input_layernorm.weight",
    .post_attn_norm = "post_self_attn_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .post_ffn_norm = "post_mlp_layernorm.weight",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .gate_up = {"mlp.gate_up_proj"},
    .down = "mlp.down_proj",
};
