/*
 * Mistral: Llama without biases. The first one has a sliding window of attention, later ones
 * (sliding_window null) have none. GGUF files of it are those of Llama.
 * Source: transformers, models/mistral.
 */
#include "model/arch.h"

const struct sb_arch sb_arch_mistral = {
    .model_type = "mistral",
    .class_name = "MistralForCausalLM",
    .whole_type = "mistral3",
    .whole_class = "Mistral3ForConditionalGeneration",
    .gguf_name = "llama",
    .qkv_bias = SB_BIAS_NEVER,
    .o_bias = SB_BIAS_NEVER,
    .mlp_bias = SB_BIAS_NEVER,
    .default_attention_bias = 0,
    .rot_interleaved = 0,
    .gguf_interleaved = 1,
    .default_partial_rotary = 1.0,
    .default_eps = 1e-6,
    .default_kv_heads = 8,
    .default_head_dim = 0,
    .window = SB_WINDOW_ALWAYS,
    .default_window = 4096,
    .attn_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .o = "self_attn.o_proj",
    .gate_up = {"mlp.gate_proj", "mlp.up_proj"},
    .down = "mlp.down_proj",
};
