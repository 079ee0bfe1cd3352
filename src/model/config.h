/*
 * What a checkpoint is: config.json and generation_config.json, in the old or the new style of
 * keys, or the metadata of a GGUF file (gguf_model.h), resolved into numbers that the forward pass
 * can use.
 *
 * What its numbers mean to an architecture, and what holds where it is silent, is in arch.h.
 */
#ifndef SB_CONFIG_H
#define SB_CONFIG_H

#include <stdint.h>

#include "alloc.h"
#include "backend/backend.h"
#include "log.h"
#include "model/arch.h"

struct sb_digest;

/* NONE: nothing is rotated. */
enum sb_rope_kind {
    SB_ROPE_DEFAULT,
    SB_ROPE_LINEAR,
    SB_ROPE_LLAMA3,
    SB_ROPE_YARN,
    SB_ROPE_LONGROPE,
    SB_ROPE_NONE
};

/* Divisors of frequencies that a checkpoint may list: one for each pair of dimensions. */
#define SB_ROPE_DIVISORS 256

/* The rotary position embedding. A comment names the kinds that a number is of, if not of all. */
struct sb_rope_config {
    enum sb_rope_kind kind;
    int32_t rot_dim;             /* the first so many elements of a head are rotated; even */
    double theta;                /* the base of the frequencies */
    double factor;               /* linear, llama3, yarn */
    double low_freq, high_freq;  /* llama3 */
    double original_context;     /* llama3, yarn, longrope: positions that the model was first
                                    trained on */
    double beta_fast, beta_slow; /* yarn */
    int truncate;                /* yarn: the ramp's ends are rounded to whole dimensions */
    double attention_factor;     /* cos and sin are multiplied by it; 1 for all kinds but yarn and
                                    longrope */
    float divisors[SB_ROPE_DIVISORS]; /* longrope: of the first rot_dim / 2 frequencies */
};

#define SB_EOS_MAX 32

/* Limits far above any real model. They are low enough for the product of any two of these numbers
 * to fit int64_t, and for the rows of a stacked matrix to fit int32_t. */
enum {
    SB_VOCAB_MAX = 1 << 24,
    SB_HIDDEN_MAX = 1 << 20,
    SB_INTER_MAX = 1 << 22,
    SB_LAYERS_MAX = 4096,
    SB_HEADS_MAX = 1 << 16,
    SB_HEAD_DIM_MAX = 1 << 13,
    SB_EXPERTS_MAX = 1 << 12,
    SB_CONTEXT_MAX = 1 << 24
};

struct sb_config {
    const struct sb_arch *arch;
    int32_t vocab, hidden, inter, layers, heads, kv_heads, head_dim;
    int32_t experts, chosen; /* of a mixture, each of width inter, and chosen for a token; 0: a
                                layer has one MLP */
    int32_t has_shared;      /* 1: and one more, of the same width, that every token goes to */
    int renormalises;        /* the weights of those that are chosen are made to have the sum 1, */
    double expert_scale;     /* and then multiplied by this */
    int32_t dense_layers, dense_inter; /* so many layers at the beginning have one MLP for a
                                          mixture, of this width */
    int32_t context;                   /* how long sequences may become */
    double eps;
    int tied; /* 1: the head is the embedding table */
    int has_qkv_bias, has_o_bias, has_mlp_bias, has_head_norms;
    double query_scalar;         /* scores are divided by its root */
    double score_cap, logit_cap; /* soft caps of scores and of logits; 0: there is none */
    struct sb_rope_config rope, other_rope; /* other_rope: of local layers, if the architecture has
                                               default_local_theta; of unrotated ones, if it has
                                               unrotated_period */
    uint8_t is_unrotated[SB_LAYERS_MAX];    /* whether a layer is */
    int32_t window; /* how many tokens the attention of local layers reaches back, the token itself
                       included; 0: none is local */
    uint8_t is_local[SB_LAYERS_MAX]; /* whether a layer is */
    int32_t bos;                     /* begin-of-sequence id, or -1 */
    int32_t eos[SB_EOS_MAX];         /* of generation_config.json, or else of config.json */
    int32_t n_eos;
};

/* Reads dir/config.json and, if it is there, dir/generation_config.json. The range of every number
 * is checked, so the product of any two of them fits int64_t. E_IO, E_FORMAT (the message names the
 * file and the key), E_UNSUPPORTED (the message says what is not supported, and what to do),
 * E_NOMEM. */
int32_t sb_config_load(struct sb_config *config, const struct sb_mem *mem, const struct sb_log *log,
                       const char *dir);

/* Warns of a configuration without end-of-sequence ids. `place`: the model's path. */
void sb_config_warn_endless(const struct sb_config *config, const struct sb_log *log,
                            const char *place);

/* Shortens the context to how long sequences may be before the model computes something that the
 * forward pass does not, and warns if that makes it shorter. place: the model's path. */
void sb_config_limit(struct sb_config *config, const struct sb_log *log, const char *place);

/* The rotation of a layer, and how many tokens its attention reaches back, or 0 for all. */
const struct sb_rope_config *sb_config_rope_of(const struct sb_config *config, int32_t layer);
int32_t sb_config_window_of(const struct sb_config *config, int32_t layer);
/* Experts of a layer's mixture with the shared one, or 0; and the width of its MLP, or of each
 * expert. */
int32_t sb_config_experts_of(const struct sb_config *config, int32_t layer);
int32_t sb_config_inter_of(const struct sb_config *config, int32_t layer);
/* What embeddings are multiplied by. */
float sb_config_embed_scale(const struct sb_config *config);

/* Adds every number of a configuration to a digest. */
void sb_config_digest(const struct sb_config *config, struct sb_digest *digest);

#endif
