/*
 * The architectures: what one is, and which there are (arch.c).
 *
 * There is one forward pass for all architectures. So an architecture is not code but data, a
 * struct sb_arch in a file of its own (arch_*.c): what its tensors are called, which of them it
 * has, and what config.json means where it is silent.
 */
#ifndef SB_ARCH_H
#define SB_ARCH_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

/* Whether a linear map has a bias. BY_CONFIG: if config.json says so, by attention_bias for q, k, v
 * and o, by mlp_bias for gate, up and down. */
enum sb_bias { SB_BIAS_NEVER, SB_BIAS_ALWAYS, SB_BIAS_BY_CONFIG };

/* Whether attention may reach back only so far as config.json's sliding_window. IF_USED: if
 * use_sliding_window says so. */
enum sb_window { SB_WINDOW_NEVER, SB_WINDOW_ALWAYS, SB_WINDOW_IF_USED };

/* One architecture. The names of tensors are relative to "model.layers.N."; NULL: there is no such
 * tensor. The defaults hold where config.json is silent. */
struct sb_arch {
    const char *model_type; /* "qwen3" */
    const char *class_name; /* "Qwen3ForCausalLM" */
    /* model_type and class name of models that are more than this one, which config.json then has
     * as text_config; NULL: there are none. */
    const char *whole_type, *whole_class;
    const char *gguf_name;     /* what GGUF files call it, if not by its model_type; else NULL */
    const char *gguf_ffn_norm; /* and the norm before the MLP, if not "ffn_norm"; else NULL */
    int gguf_untruncated;      /* 1: YaRN's truncate is false in GGUF files, which cannot say so */
    int gguf_has_window; /* 1: GGUF files that do not speak of a window have the default one */
    /* GGUF files do not say query_pre_attn_scalar: there it is head_dim, and in models of so many
     * layers hidden / heads. */
    int32_t gguf_wide_layers;
    enum sb_bias qkv_bias, o_bias, mlp_bias;
    int default_attention_bias;
    int rot_interleaved;  /* 1: rotated pairs are (2i, 2i + 1); 0: (i, i + rot_dim / 2) */
    int gguf_interleaved; /* 1: GGUF files have the rows of q and k as if rot_interleaved were 1 */
    int has_partial_rotary; /* 1: config.json may say which share of head_dim is rotated */
    double default_partial_rotary;
    double default_theta;       /* 0: 10000 */
    double default_local_theta; /* of layers with a window, if they have a rotation of their own;
                                   else 0 */
    /* Where no_rope_layers is silent, each layer of this number rotates nothing; 0: config.json may
     * not say it. */
    int32_t unrotated_period;
    /* Scores are divided by the root of config.json's query_pre_attn_scalar; 0: always by that of
     * head_dim. */
    double default_query_scalar;
    double default_score_cap, default_logit_cap; /* soft caps; 0: config.json may not have one */
    double default_eps;
    double norm_shift; /* what is added to the weights of norms; GGUF files have it added */
    enum sb_gate gate; /* what config.json has to say under activation_key, */
    const char *activation_key; /* or under hidden_act if that is NULL */
    int scales_embedding;       /* 1: embeddings are multiplied by the root of hidden */
    int default_tied;
    int32_t default_vocab, default_heads, default_context; /* 0: config.json must say it */
    int32_t default_kv_heads;                              /* 0: as many as heads */
    int32_t default_head_dim;                              /* 0: hidden / heads */
    enum sb_window window;
    int32_t default_window; /* tokens; 0: none */
    int32_t window_period;  /* where layer_types is silent, each layer of this number has no window;
                               0: all have it */
    const char *attn_norm;  /* norm before attention */
    const char *post_attn_norm; /* norm on attention's output, before it is added to the residual */
    const char *ffn_norm;       /* norm before the MLP */
    const char *post_ffn_norm;  /* norm on the MLP's output, before it is added to the residual */
    const char *q_norm, *k_norm; /* norms on each head, before the rotation */
    const char *head_norm_key;   /* what config.json says if they are there; NULL: they are */
    const char *sinks;           /* a vector of a number for each head; or NULL */
    const char *qkv[3]; /* q, k and v, which are stacked; or one tensor of all three, and NULL */
    const char *o;
    /* Of an architecture whose layers have a mixture of experts for an MLP: the matrix that experts
     * are chosen by, and what the names of expert N begin with, before ".N."; what those of the
     * expert begin with that every token goes to, and those of the MLP of layers that have no
     * mixture, before "."; the names below are then those behind that. NULL: a layer has one MLP,
     * or there is no such expert or layer. */
    const char *router, *expert, *shared_expert, *dense;
    int router_has_bias;
    const char *choice_bias; /* a vector that is added to what experts are chosen by; or NULL */
    enum sb_scoring scoring; /* what is made of the router's results */
    const char *gate_up[2];  /* gate and up, which are stacked; or one tensor of both, and NULL */
    const char *down;
    /* Where folders have one tensor of all experts, what gate and up together are called there;
     * NULL: they have one for each (stacked.h). */
    const char *stacked_gate_up;
    /* What config.json calls an expert's width, for which GGUF files have a key of its own then.
     * NULL: intermediate_size, which is else the width of other layers' MLPs, if there are any. And
     * what it calls the number of experts, if not num_experts; else NULL. */
    const char *inter_key, *experts_key;
    int32_t default_experts, default_chosen; /* of a mixture, and chosen for each token */
    int32_t default_shared, default_dense;   /* shared experts; layers at the beginning that have no
                                                mixture */
    int renormalises; /* 1: the weights of those that are chosen are made to have the sum 1 */
    const char *norm_topk_key; /* what config.json calls that; NULL: it does not say */
};

/* Whether a map that has a bias by this rule has one in a checkpoint that says so, or not. */
int sb_arch_has_bias(enum sb_bias rule, int by_config);
/* Whether heads have norms, in a checkpoint that says so under head_norm_key, or not. */
int sb_arch_has_head_norms(const struct sb_arch *arch, int by_config);
/* The architecture of this model_type, or that of the texts of such a model; NULL when the library
 * has none. */
const struct sb_arch *sb_arch_by_type(const char *model_type);
/* The same by the name of a class. */
const struct sb_arch *sb_arch_by_class(const char *class_name);
/* Whether layers with a window have a rotation of their own. */
int sb_arch_has_local_rope(const struct sb_arch *arch);
/* Whether they do, or some layers have none. */
int sb_arch_has_two_ropes(const struct sb_arch *arch);
/* What GGUF files call it; and the first architecture that they call so and that has experts if
 * they say that there are any, or the first of these that may have a window if they say that there
 * is one. NULL: they call none so. */
const char *sb_arch_gguf_name(const struct sb_arch *arch);
const struct sb_arch *sb_arch_by_gguf_name(const char *name, int has_window, int has_experts);
/* Writes every model_type that the library has, as in "llama, qwen2", cut to `size` bytes. */
void sb_arch_list(char *text, size_t size);

#endif
