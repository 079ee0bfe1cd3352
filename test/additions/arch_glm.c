/*
 * GLM-4-9B and GLM-4-9B-Chat: as GLM-4-0414, but with Llama's two norms a layer in place of the
 * four. Source: transformers models/glm.
 *
 * This is the architecture that check_additions.sh adds to a copy of the library: an example of
 * what a new architecture takes.
 */
#include "model/arch.h"

const struct sb_arch sb_arch_glm = {
    .model_type = "glm",
    .class_name = "GlmForCausalLM",
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
    .ffn_norm = "post_attention_layernorm.weight",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .gate_up = {"mlp.gate_up_proj"},
    .down = "mlp.down_proj",
};
