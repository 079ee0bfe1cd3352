/*
 * Reading config.json and generation_config.json: checked, and resolved into struct sb_config.
 *
 * The rule throughout: either a checkpoint means exactly what the forward pass computes, or opening
 * it fails with a message that says what is in the way and what to do. Keys that cannot change the
 * logits at inference (dropout, initializer_range, use_cache) are not read. Nor are dtype and
 * torch_dtype: what counts is the type of each tensor, and a file may have been rewritten in
 * another precision without its config.
 */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "digest.h"
#include "file.h"
#include "line.h"
#include "model/config_experts.h"
#include "model/config_rope.h"
#include "model/config_window.h"
#include "model/fields.h"
#include "status.h"

#define CONFIG_MAX_BYTES (16u << 20)

/* ------------------------------------------------------------------ what kind of model */

/* Goes on with the text_config of a model that is more than this architecture. */
static int32_t enter_text(struct sb_fields *fields, const struct sb_arch *arch)
{
    const struct sb_json_node *text = sb_json_get(fields->object, "text_config");
    const char *type = arch->model_type;
    int32_t rc = SPECBATCH_OK;

    if (sb_json_kind(text) != SB_JSON_OBJECT)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: text_config is not an object", fields->file);
    *fields = (struct sb_fields){fields->file, "text_config.", text};
    SB_TRY(sb_field_string(fields, "model_type", &type));
    if (strcmp(type, arch->model_type) != 0)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: text_config.model_type \"%.40s\" is not supported; only %s is", fields->file,
                type, arch->model_type);
done:
    return rc;
}

/* Finds the architecture by model_type, or else by the class that architectures names. Either must
 * be known if it is there, and both must agree. fields: become those of the texts' model, where
 * that is only a part of the whole. */
static int32_t find_arch(struct sb_config *config, struct sb_fields *fields)
{
    const struct sb_json_node *classes = sb_json_get(fields->object, "architectures");
    const char *type = NULL, *class_name = NULL, *needed;
    int is_whole;
    char supported[SPECBATCH_ERROR_MAX];
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_field_string(fields, "model_type", &type));
    if (sb_field_given(fields, "architectures")) {
        class_name = sb_json_word(sb_json_first(classes));
        if (sb_json_kind(classes) != SB_JSON_ARRAY || sb_json_count(classes) != 1 || !class_name)
            SB_FAIL(SPECBATCH_E_FORMAT, "%s: architectures is not a list of one name",
                    fields->file);
    }
    if (!type && !class_name)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: model_type is missing", fields->file);
    config->arch = type ? sb_arch_by_type(type) : sb_arch_by_class(class_name);
    if (!config->arch) {
        sb_arch_list(supported, sizeof supported);
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: %s \"%.40s\" is not supported; supported: %s (LlamaForCausalLM and so on)",
                fields->file, type ? "model_type" : "architectures", type ? type : class_name,
                supported);
    }
    is_whole = strcmp(type ? type : class_name,
                      type ? config->arch->model_type : config->arch->class_name) != 0;
    needed = is_whole ? config->arch->whole_class : config->arch->class_name;
    if (class_name && strcmp(class_name, needed) != 0)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: architectures \"%.60s\" is not supported with model_type %s; needed: %s",
                fields->file, class_name, type ? type : config->arch->model_type, needed);
    if (is_whole)
        SB_TRY(enter_text(fields, config->arch));
done:
    return rc;
}

/* MXFP4 is known where an architecture has its experts in it. Which tensors are, the files say. */
static int32_t refuse_quantized(const struct sb_config *config, const struct sb_fields *fields)
{
    static const char *const keys[] = {"quantization_config", "compression_config"};
    const struct sb_json_node *quantised = sb_json_get(fields->object, keys[0]);
    const char *method = sb_json_word(sb_json_get(quantised, "quant_method"));

    if (config->arch->stacked_gate_up && method && strcmp(method, "mxfp4") == 0)
        return SPECBATCH_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (sb_field_given(fields, keys[i]))
            return sb_fail(SPECBATCH_E_UNSUPPORTED,
                           "%s: %s: quantized checkpoints are not supported; use a float one",
                           fields->file, keys[i]);
    return SPECBATCH_OK;
}

/* Refuses numbers of the clamped gate that are not those of the forward pass (backend.h). */
static int32_t refuse_clamps(const struct sb_fields *fields)
{
    const struct {
        const char *key;
        double known;
    } numbers[] = {{"swiglu_limit", 7.0}, {"swiglu_alpha", 1.702}};
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double value = numbers[i].known;
        SB_TRY(sb_field_double(fields, numbers[i].key, -1e6, 1e6, &value));
        if (value != numbers[i].known)
            SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %s%s %g is not supported; only %g is",
                    fields->file, fields->prefix, numbers[i].key, value, numbers[i].known);
    }
done:
    return rc;
}

/* Refuses keys that change the computation in a way that the forward pass does not know. */
static int32_t refuse_unknown(const struct sb_config *config, const struct sb_fields *fields)
{
    static const char *const gates[] = {
        [SB_GATE_SILU] = "silu", [SB_GATE_GELU] = "gelu_pytorch_tanh", [SB_GATE_CLAMPED] = "silu"};
    const char *needed = gates[config->arch->gate], *act = needed;
    const char *key = config->arch->activation_key ? config->arch->activation_key : "hidden_act";
    int both_ways = 0;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(refuse_quantized(config, fields));
    SB_TRY(sb_field_bool(fields, "use_bidirectional_attention", &both_ways));
    if (both_ways)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %suse_bidirectional_attention is not supported",
                fields->file, fields->prefix);
    if (config->arch->gate == SB_GATE_CLAMPED)
        SB_TRY(refuse_clamps(fields));
    SB_TRY(sb_field_string(fields, key, &act));
    if (strcmp(act, needed) != 0)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: %s%s \"%.30s\" is not supported with model_type %s; only %s is", fields->file,
                fields->prefix, key, act, config->arch->model_type, needed);
done:
    return rc;
}

/* ------------------------------------------------------------------------- its numbers */

static int32_t read_sizes(struct sb_config *config, const struct sb_fields *fields)
{
    const struct sb_arch *arch = config->arch;
    const struct {
        const char *key;
        int32_t otherwise, most, *value; /* otherwise: what it is where it is silent; 0: it may not
                                            be */
    } numbers[] = {
        {"vocab_size", arch->default_vocab, SB_VOCAB_MAX, &config->vocab},
        {"hidden_size", 0, SB_HIDDEN_MAX, &config->hidden},
        {arch->inter_key ? arch->inter_key : "intermediate_size", 0, SB_INTER_MAX, &config->inter},
        {"num_hidden_layers", 0, SB_LAYERS_MAX, &config->layers},
        {"num_attention_heads", arch->default_heads, SB_HEADS_MAX, &config->heads},
        {"max_position_embeddings", arch->default_context, SB_CONTEXT_MAX, &config->context},
    };
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        *numbers[i].value = numbers[i].otherwise;
        if (numbers[i].otherwise == 0)
            SB_TRY(sb_field_need(fields, numbers[i].key));
        SB_TRY(sb_field_int(fields, numbers[i].key, 1, numbers[i].most, numbers[i].value));
    }
    /* If the number is absent, transformers takes 32 key/value heads for Qwen, whatever the number
     * of heads is. Here it is the number of heads. With fewer than 32 heads, 32 is impossible; with
     * more, the shapes of k_proj and v_proj show which is meant. */
    config->kv_heads = arch->default_kv_heads ? arch->default_kv_heads : config->heads;
    SB_TRY(sb_field_int(fields, "num_key_value_heads", 1, SB_HEADS_MAX, &config->kv_heads));
    if (config->heads % config->kv_heads != 0)
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%s: num_attention_heads %d is not a multiple of num_key_value_heads %d",
                fields->file, (int)config->heads, (int)config->kv_heads);
    config->head_dim = arch->default_head_dim ? arch->default_head_dim
                                              : config->hidden / config->heads;
    if (!sb_field_given(fields, "head_dim") && !arch->default_head_dim &&
        config->hidden % config->heads != 0)
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%s: head_dim is missing, and hidden_size %d is not a multiple of "
                "num_attention_heads %d",
                fields->file, (int)config->hidden, (int)config->heads);
    SB_TRY(sb_field_int(fields, "head_dim", 1, SB_HEAD_DIM_MAX, &config->head_dim));
    if (config->head_dim > SB_HEAD_DIM_MAX)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: head_dim (hidden_size / num_attention_heads) is above %d",
                fields->file, SB_HEAD_DIM_MAX);
    config->eps = arch->default_eps;
    SB_TRY(sb_field_double(fields, "rms_norm_eps", 1e-30, 1.0, &config->eps));
    config->query_scalar = config->head_dim;
    if (arch->default_query_scalar > 0.0) {
        config->query_scalar = arch->default_query_scalar;
        SB_TRY(sb_field_double(fields, "query_pre_attn_scalar", 1e-6, 1e9, &config->query_scalar));
    }
done:
    return rc;
}

/* Soft caps, which only some architectures have. One that is null is none. */
static int32_t read_caps(struct sb_config *config, const struct sb_fields *fields)
{
    const struct {
        const char *key;
        double otherwise, *value;
    } caps[] = {
        {"attn_logit_softcapping", config->arch->default_score_cap, &config->score_cap},
        {"final_logit_softcapping", config->arch->default_logit_cap, &config->logit_cap},
    };
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
        if (sb_field_given(fields, caps[i].key) && caps[i].otherwise == 0.0)
            SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %s%s is not supported with model_type %s",
                    fields->file, fields->prefix, caps[i].key, config->arch->model_type);
        *caps[i].value = sb_field_null(fields, caps[i].key) ? 0.0 : caps[i].otherwise;
        SB_TRY(sb_field_double(fields, caps[i].key, 1e-3, 1e6, caps[i].value));
    }
done:
    return rc;
}

static int32_t read_flags(struct sb_config *config, const struct sb_fields *fields)
{
    const struct sb_arch *arch = config->arch;
    int attention_bias = arch->default_attention_bias;
    int mlp_bias = 0, head_norms = 0;
    int32_t rc = SPECBATCH_OK;

    config->tied = arch->default_tied;
    SB_TRY(sb_field_bool(fields, "tie_word_embeddings", &config->tied));
    SB_TRY(sb_field_bool(fields, "attention_bias", &attention_bias));
    SB_TRY(sb_field_bool(fields, "mlp_bias", &mlp_bias));
    if (arch->head_norm_key)
        SB_TRY(sb_field_bool(fields, arch->head_norm_key, &head_norms));
    config->has_head_norms = sb_arch_has_head_norms(arch, head_norms);
    config->has_qkv_bias = sb_arch_has_bias(arch->qkv_bias, attention_bias);
    config->has_o_bias = sb_arch_has_bias(arch->o_bias, attention_bias);
    config->has_mlp_bias = sb_arch_has_bias(arch->mlp_bias, mlp_bias);
done:
    return rc;
}

/* ------------------------------------------------------------------- its special tokens */

static int32_t add_eos(struct sb_config *config, const struct sb_json_node *node, const char *file)
{
    int64_t id;

    if (!sb_json_int(node, &id) || id < 0 || id >= config->vocab)
        return sb_fail(SPECBATCH_E_FORMAT,
                       "%s: eos_token_id is not a token id or a list of them (vocab_size %d)", file,
                       (int)config->vocab);
    for (int32_t i = 0; i < config->n_eos; i++)
        if (config->eos[i] == id)
            return SPECBATCH_OK;
    if (config->n_eos == SB_EOS_MAX)
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s: eos_token_id has more than %d ids", file,
                       SB_EOS_MAX);
    config->eos[config->n_eos++] = (int32_t)id;
    return SPECBATCH_OK;
}

/* Reads eos_token_id, one id or a list of them. If the key is there, it replaces the ids found so
 * far. */
static int32_t read_eos(struct sb_config *config, const struct sb_fields *fields)
{
    const struct sb_json_node *node = sb_json_get(fields->object, "eos_token_id");
    int32_t rc = SPECBATCH_OK;

    if (!sb_field_given(fields, "eos_token_id"))
        goto done;
    config->n_eos = 0;
    if (sb_json_kind(node) != SB_JSON_ARRAY) {
        SB_TRY(add_eos(config, node, fields->file));
        goto done;
    }
    for (const struct sb_json_node *id = sb_json_first(node); id; id = sb_json_next(id))
        SB_TRY(add_eos(config, id, fields->file));
done:
    return rc;
}

static int32_t read_special(struct sb_config *config, const struct sb_fields *fields)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_field_int(fields, "bos_token_id", -1, config->vocab - 1, &config->bos));
    SB_TRY(read_eos(config, fields));
done:
    return rc;
}

/* What the top level of a model that is more than its texts says of these. Which
 * tie_word_embeddings counts differs between versions of transformers, so they must agree. */
static int32_t read_whole(struct sb_config *config, const struct sb_fields *text,
                          const struct sb_fields *top)
{
    static const char key[] = "tie_word_embeddings";
    int tied = config->tied;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(refuse_quantized(config, top));
    SB_TRY(sb_field_bool(top, key, &tied));
    if (sb_field_given(text, key) && tied != config->tied)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %s and text_config.%s differ; keep one", top->file,
                key, key);
    config->tied = tied;
    SB_TRY(read_special(config, top));
done:
    return rc;
}

/* ------------------------------------------------------------------------------ loading */

void sb_config_limit(struct sb_config *config, const struct sb_log *log, const char *place)
{
    const double most = config->rope.original_context;
    char short_place[200];

    if (config->rope.kind != SB_ROPE_LONGROPE || most >= config->context)
        return;
    sb_line_path(short_place, sizeof short_place, place);
    sb_log(log, SPECBATCH_LOG_WARN,
           "%s: longrope has other frequencies for more: a sequence has at most %d tokens here, "
           "not %d",
           short_place, (int)most, (int)config->context);
    config->context = (int32_t)most;
}

float sb_config_embed_scale(const struct sb_config *config)
{
    return config->arch->scales_embedding ? (float)sqrt((double)config->hidden) : 1.0f;
}

const struct sb_rope_config *sb_config_rope_of(const struct sb_config *config, int32_t layer)
{
    const int is_other = config->is_local[layer] && sb_arch_has_local_rope(config->arch);

    return is_other || config->is_unrotated[layer] ? &config->other_rope : &config->rope;
}

int32_t sb_config_window_of(const struct sb_config *config, int32_t layer)
{
    return config->is_local[layer] ? config->window : 0;
}

int32_t sb_config_experts_of(const struct sb_config *config, int32_t layer)
{
    return config->experts > 0 && layer >= config->dense_layers
               ? config->experts + config->has_shared
               : 0;
}

int32_t sb_config_inter_of(const struct sb_config *config, int32_t layer)
{
    return layer < config->dense_layers ? config->dense_inter : config->inter;
}

static int32_t read_config(struct sb_config *config, const struct sb_fields *fields,
                           const struct sb_log *log, const char *dir)
{
    struct sb_fields text = *fields;
    int32_t rc = SPECBATCH_OK;

    if (sb_json_kind(fields->object) != SB_JSON_OBJECT)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: not a JSON object", fields->file);
    config->bos = -1;
    SB_TRY(find_arch(config, &text));
    SB_TRY(read_sizes(config, &text));
    SB_TRY(refuse_unknown(config, &text));
    SB_TRY(read_caps(config, &text));
    SB_TRY(read_flags(config, &text));
    SB_TRY(sb_config_experts(config, &text));
    SB_TRY(sb_config_rope(config, &text));
    SB_TRY(sb_config_window(config, &text));
    sb_config_limit(config, log, dir);
    SB_TRY(read_special(config, &text));
    if (text.object != fields->object)
        SB_TRY(read_whole(config, &text, fields));
done:
    return rc;
}

/* Without them a model generates until max_new, which may surprise. */
void sb_config_warn_endless(const struct sb_config *config, const struct sb_log *log,
                            const char *place)
{
    char short_place[200];

    if (config->n_eos > 0)
        return;
    sb_line_path(short_place, sizeof short_place, place);
    sb_log(log, SPECBATCH_LOG_WARN, "%s: no eos_token_id: only max_new ends a request",
           short_place);
}

int32_t sb_config_load(struct sb_config *config, const struct sb_mem *mem, const struct sb_log *log,
                       const char *dir)
{
    char path[1024];
    struct sb_json *doc = NULL, *generation = NULL;
    struct sb_fields fields = {"config.json", "", NULL};
    int32_t rc = SPECBATCH_OK;

    memset(config, 0, sizeof *config);
    SB_TRY(sb_file_join(path, dir, "config.json"));
    rc = sb_json_load(&doc, mem, path, CONFIG_MAX_BYTES);
    if (rc == SPECBATCH_E_NOT_FOUND)
        rc = sb_fail(SPECBATCH_E_IO, "no config.json there");
    if (rc != SPECBATCH_OK)
        goto done;
    fields.object = sb_json_root(doc);
    SB_TRY(read_config(config, &fields, log, dir));

    SB_TRY(sb_file_join(path, dir, "generation_config.json"));
    rc = sb_json_load(&generation, mem, path, CONFIG_MAX_BYTES);
    if (rc == SPECBATCH_E_NOT_FOUND)
        rc = SPECBATCH_OK;
    if (rc != SPECBATCH_OK)
        goto done;
    fields = (struct sb_fields){"generation_config.json", "", sb_json_root(generation)};
    SB_TRY(read_eos(config, &fields));
    sb_config_warn_endless(config, log, dir);
done:
    sb_json_free(doc);
    sb_json_free(generation);
    return rc;
}

void sb_config_digest(const struct sb_config *c, struct sb_digest *digest)
{
    const char *arch = sb_arch_gguf_name(c->arch); /* the same in either container */
    const struct sb_rope_config *r = &c->rope;
    const int32_t numbers[] = {
        c->vocab,         c->hidden,  c->inter,    c->layers,       c->heads,      c->kv_heads,
        c->head_dim,      c->context, c->tied,     c->has_qkv_bias, c->has_o_bias, c->has_mlp_bias,
        (int32_t)r->kind, r->rot_dim, r->truncate, c->bos,          c->n_eos};
    const double reals[] = {c->eps,       r->theta,     r->factor,
                            r->low_freq,  r->high_freq, r->original_context,
                            r->beta_fast, r->beta_slow, r->attention_factor};

    sb_digest_add(digest, arch, strlen(arch) + 1);
    sb_digest_add(digest, numbers, sizeof numbers);
    sb_digest_add(digest, reals, sizeof reals);
    if (r->kind == SB_ROPE_LONGROPE)
        sb_digest_add(digest, r->divisors, (size_t)r->rot_dim / 2 * sizeof *r->divisors);
    if (c->experts > 0) {
        const int32_t experts[] = {c->experts, c->chosen, c->renormalises};
        sb_digest_add(digest, experts, sizeof experts);
    }
    if (c->arch->scoring != SB_SCORE_SOFTMAX) {
        const int32_t more[] = {c->has_shared, c->dense_layers, c->dense_inter, c->has_head_norms};
        sb_digest_add(digest, more, sizeof more);
        sb_digest_add(digest, &c->expert_scale, sizeof c->expert_scale);
    }
    if (c->window > 0) {
        sb_digest_add(digest, &c->window, sizeof c->window);
        sb_digest_add(digest, c->is_local, (size_t)c->layers);
    }
    if (c->arch->default_score_cap > 0.0) {
        const double caps[] = {c->query_scalar, c->score_cap, c->logit_cap};
        sb_digest_add(digest, caps, sizeof caps);
    }
    if (c->arch->unrotated_period > 0)
        sb_digest_add(digest, c->is_unrotated, (size_t)c->layers);
    if (sb_arch_has_local_rope(c->arch)) {
        const double local[] = {c->query_scalar, c->other_rope.kind, c->other_rope.theta,
                                c->other_rope.factor};
        sb_digest_add(digest, local, sizeof local);
    }
    sb_digest_add(digest, c->eos, (size_t)c->n_eos * sizeof *c->eos);
}
