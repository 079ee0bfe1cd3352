/*
 * GLM-4.5, 4.6 and 4.7, and their Air. Attention is Llama's with half of each head rotated, and
 * with norms on heads in the larger ones. The first layers have one MLP. The others have a mixture
 * that a sigmoid of the router's results chooses, after a bias is added, and an expert that every
 * token goes to. Layers behind the last, which predict further tokens, are not used. Source:
 * transformers, models/glm4_moe.
 */
#include "model/arch.h"

const struct sb_arch sb_arch_glm4_moe = {
    .model_type = "glm4_moe",
    .class_name = "Glm4MoeForCausalLM",
    .gguf_name = "glm4moe",
    .gguf_ffn_norm = "post_attention_norm",
    .qkv_bias = SB_BIAS_BY_CONFIG,
    .o_bias = SB_BIAS_NEVER,
    .mlp_bias = SB_BIAS_NEVER,
    .default_attention_bias = 0,
    .rot_interleaved = 0,
    .has_partial_rotary = 1,
    .default_partial_rotary = 0.5,
    .default_eps = 1e-5,
    .default_kv_heads = 8,
    .default_head_dim = 0,
    .attn_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .q_norm = "self_attn.q_norm.weight",
    .k_norm = "self_attn.k_norm.weight",
    .head_norm_key = "use_qk_norm",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .router = "mlp.gate",
    .expert = "mlp.experts",
    .shared_expert = "mlp.shared_experts",
    .dense = "mlp",
    .choice_bias = "mlp.gate.e_score_correction_bias",
    .scoring = SB_SCORE_SIGMOID,
    .gate_up = {"gate_proj", "up_proj"},
    .down = "down_proj",
    .inter_key = "moe_intermediate_size",
    .experts_key = "n_routed_experts",
    .default_experts = 128,
    .default_chosen = 8,
    .default_shared = 1,
    .default_dense = 1,
    .renormalises = 1,
    .norm_topk_key = "norm_topk_prob",
};
