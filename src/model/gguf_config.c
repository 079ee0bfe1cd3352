/*
 * The numbers of a configuration, from the metadata of a GGUF file.
 *
 * The rule is that of config.c: either the file means exactly what the forward pass computes, or
 * opening it fails with a message that says what is in the way. All keys under the architecture's
 * name change what a model computes, so one that is not known is refused, unless it is zero or
 * false. Two things are not in the metadata but in the tensors. A file without output.weight is of
 * a model whose head is the embedding table, and a bias is there when it is there.
 *
 * What llama.cpp's converter leaves out is found again:
 *   - The scaling of Llama 3 is a tensor of its factors, rope_freqs.weight. The numbers that they
 *     were computed from are tried until they give the same factors.
 *   - Phi's longrope has two such tensors, of which that for the original context counts here, as
 *     in config_rope.c.
 *   - Ids that end a text are in gguf_special.c.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "model/config_rope.h"
#include "model/config_window.h"
#include "model/gguf_model.h"
#include "status.h"

#define FACTOR_MAX 1e6
#define FACTOR_TOLERANCE 1e-4 /* of rope_freqs.weight, which was computed in float */

/* The file that is being read. */
struct source {
    const struct sb_gguf *gguf;
    const char *file; /* for messages */
    const char *arch; /* what its keys begin with */
};

/* The key that has this name under the architecture's. */
struct key {
    char text[96];
    struct sb_gguf_value value;
    int given;
};

static struct key find(const struct source *s, const char *name)
{
    struct key key;

    snprintf(key.text, sizeof key.text, "%s.%s", s->arch, name);
    key.given = sb_gguf_get(s->gguf, key.text, &key.value);
    return key;
}

/* Reads an integer; where it is missing, *value stays as it is. */
static int32_t read_int(const struct source *s, const char *name, int32_t low, int32_t high,
                        int32_t *value)
{
    const struct key key = find(s, name);
    int64_t number;

    if (!key.given)
        return SPECBATCH_OK;
    if (!sb_gguf_int(&key.value, &number) || number < low || number > high)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: %s is not an integer from %d to %d", s->file,
                       key.text, (int)low, (int)high);
    *value = (int32_t)number;
    return SPECBATCH_OK;
}

static int32_t read_double(const struct source *s, const char *name, double low, double high,
                           double *value)
{
    const struct key key = find(s, name);
    double number;

    if (!key.given)
        return SPECBATCH_OK;
    if (!sb_gguf_double(&key.value, &number) || !(number >= low && number <= high))
        return sb_fail(SPECBATCH_E_FORMAT, "%s: %s is not a number from %g to %g", s->file,
                       key.text, low, high);
    *value = number;
    return SPECBATCH_OK;
}

static int32_t need(const struct source *s, const char *name)
{
    const struct key key = find(s, name);

    if (key.given)
        return SPECBATCH_OK;
    return sb_fail(SPECBATCH_E_FORMAT, "%s: %s is missing", s->file, key.text);
}

/* The tensor of this name, or NULL. */
static const struct sb_gguf_tensor *find_tensor(const struct source *s, const char *name)
{
    for (int32_t i = 0; i < sb_gguf_n_tensors(s->gguf); i++)
        if (strcmp(sb_gguf_tensor(s->gguf, i)->name, name) == 0)
            return sb_gguf_tensor(s->gguf, i);
    return NULL;
}

/* ------------------------------------------------------------------ what kind of model */

/* Copies a short string, for comparisons and messages. */
static int32_t copy_word(char word[40], const struct source *s, const char *key)
{
    struct sb_gguf_value value;
    const char *text;

    word[0] = '\0';
    if (!sb_gguf_get(s->gguf, key, &value))
        return SPECBATCH_OK;
    text = sb_gguf_string(&value);
    if (!text || value.count >= 40 || memchr(text, '\0', (size_t)value.count))
        return sb_fail(SPECBATCH_E_FORMAT, "%s: %s is not a word", s->file, key);
    memcpy(word, text, (size_t)value.count);
    word[value.count] = '\0';
    return SPECBATCH_OK;
}

/* Whether a value turns off what its key is about. */
static int is_off(const struct sb_gguf_value *value)
{
    double number = 1.0;
    int flag = 1;

    return (sb_gguf_double(value, &number) && number == 0.0) ||
           (sb_gguf_bool(value, &flag) && !flag);
}

/* Whether the file has that key of this architecture, and it is on. */
static int says(const struct source *s, const char *arch, const char *name)
{
    struct sb_gguf_value value;
    char key[80];

    snprintf(key, sizeof key, "%s.%s", arch, name);
    return sb_gguf_get(s->gguf, key, &value) && !is_off(&value);
}

static int32_t find_arch(struct sb_config *config, const struct source *s)
{
    char word[40], supported[SPECBATCH_ERROR_MAX];
    int has_window, has_experts;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(copy_word(word, s, "general.type"));
    if (word[0] && strcmp(word, "model") != 0)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: general.type \"%s\" is not supported, only model is",
                s->file, word);
    SB_TRY(copy_word(word, s, "general.architecture"));
    has_window = says(s, word, "attention.sliding_window");
    has_experts = says(s, word, "expert_count");
    config->arch = sb_arch_by_gguf_name(word, has_window, has_experts);
    if (!config->arch && sb_arch_by_gguf_name(word, has_window, !has_experts))
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: general.architecture \"%s\" is not supported %s experts (expert_count)",
                s->file, word, has_experts ? "with" : "without");
    sb_arch_list(supported, sizeof supported);
    if (!config->arch)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: general.architecture \"%s\" is not supported; supported: %s", s->file, word,
                supported);
done:
    return rc;
}

/* The keys that are known. vocab_size is that of the tokens too, pooling_type is for embeddings,
 * and whether a model was trained with its scaling does not matter here. */
static const char *const known[] = {"block_count",
                                    "context_length",
                                    "embedding_length",
                                    "feed_forward_length",
                                    "expert_count",
                                    "expert_used_count",
                                    "expert_feed_forward_length",
                                    "expert_shared_count",
                                    "expert_gating_func",
                                    "expert_weights_scale",
                                    "expert_weights_norm",
                                    "expert_group_count",
                                    "expert_group_used_count",
                                    "leading_dense_block_count",
                                    "nextn_predict_layers",
                                    "attention.head_count",
                                    "attention.head_count_kv",
                                    "attention.key_length",
                                    "attention.value_length",
                                    "attention.layer_norm_rms_epsilon",
                                    "attention.causal",
                                    "attention.sliding_window",
                                    "attention.sliding_window_pattern",
                                    "attention.scale",
                                    "attn_logit_softcapping",
                                    "final_logit_softcapping",
                                    "rope.dimension_count",
                                    "rope.freq_base",
                                    "rope.freq_base_swa",
                                    "rope.scaling.type",
                                    "rope.scaling.factor",
                                    "rope.scaling.original_context_length",
                                    "rope.scaling.attn_factor",
                                    "rope.scaling.yarn_beta_fast",
                                    "rope.scaling.yarn_beta_slow",
                                    "rope.scaling.finetuned",
                                    "vocab_size",
                                    "pooling_type",
                                    "tensor_data_layout"};

/* Refuses keys that change the computation in a way that the forward pass does not know. */
static int32_t refuse_unknown(const struct sb_config *config, const struct source *s)
{
    const struct key layout = find(s, "tensor_data_layout"), causal = find(s, "attention.causal"),
                     factor = find(s, "rope.scaling.attn_factor");
    /* and those that only some architectures know */
    const struct {
        const char *name;
        int is_known;
    } some[] = {{"expert_feed_forward_length", config->arch->inter_key != NULL},
                {"expert_shared_count", config->arch->shared_expert != NULL},
                {"expert_gating_func", config->arch->shared_expert != NULL},
                {"expert_weights_scale", config->arch->shared_expert != NULL},
                {"expert_weights_norm", config->arch->shared_expert != NULL},
                {"expert_group_count", config->arch->shared_expert != NULL},
                {"expert_group_used_count", config->arch->shared_expert != NULL},
                {"leading_dense_block_count", config->arch->dense != NULL},
                {"nextn_predict_layers", config->arch->dense != NULL},
                {"attention.sliding_window", config->arch->window != SB_WINDOW_NEVER},
                {"attention.scale", config->arch->default_query_scalar > 0.0},
                {"attn_logit_softcapping", config->arch->default_score_cap > 0.0},
                {"final_logit_softcapping", config->arch->default_logit_cap > 0.0},
                {"rope.freq_base_swa", sb_arch_has_local_rope(config->arch)}};
    const size_t prefix = strlen(s->arch);
    const char *key;
    size_t n, i;

    for (size_t k = 0; (key = sb_gguf_key(s->gguf, k, &n)) != NULL; k++) {
        struct key it;
        if (n <= prefix || memcmp(key, s->arch, prefix) != 0 || key[prefix] != '.')
            continue;
        for (i = 0; i < sizeof known / sizeof *known; i++)
            if (strlen(known[i]) == n - prefix - 1 &&
                memcmp(known[i], key + prefix + 1, n - prefix - 1) == 0)
                break;
        if (i < sizeof known / sizeof *known)
            continue;
        snprintf(it.text, sizeof it.text, "%.*s", n < 95 ? (int)n : 95, key);
        if (!sb_gguf_get(s->gguf, it.text, &it.value) || !is_off(&it.value))
            return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s: %s is not supported", s->file, it.text);
    }
    if (layout.given && !sb_gguf_is(&layout.value, "reference"))
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s: %s is not supported, unless it is reference",
                       s->file, layout.text);
    for (i = 0; i < sizeof some / sizeof *some; i++) {
        const struct key it = find(s, some[i].name);
        if (it.given && !some[i].is_known && !is_off(&it.value))
            return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s: %s is not supported", s->file, it.text);
    }
    if (factor.given && !is_off(&factor.value) && !find_tensor(s, SB_GGUF_SHORT_DIVISORS))
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s: %s is not supported without tensor %s",
                       s->file, factor.text, SB_GGUF_SHORT_DIVISORS);
    if (causal.given && is_off(&causal.value))
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "%s: %s is false, which is not supported", s->file,
                       causal.text);
    return SPECBATCH_OK;
}

/* ------------------------------------------------------------------------- its numbers */

/* As many as there are tokens, or as a file without a tokenizer says. */
static int32_t read_vocab(struct sb_config *config, const struct source *s)
{
    struct sb_gguf_value tokens;
    int32_t rc = SPECBATCH_OK;

    if (sb_gguf_get(s->gguf, "tokenizer.ggml.tokens", &tokens) && tokens.type == SB_GGUF_ARRAY &&
        tokens.count > 0) {
        if (tokens.count > SB_VOCAB_MAX)
            SB_FAIL(SPECBATCH_E_FORMAT, "%s: tokenizer.ggml.tokens has more than %d tokens",
                    s->file, SB_VOCAB_MAX);
        config->vocab = (int32_t)tokens.count;
        goto done;
    }
    SB_TRY(need(s, "vocab_size"));
    SB_TRY(read_int(s, "vocab_size", 1, SB_VOCAB_MAX, &config->vocab));
done:
    return rc;
}

static int32_t read_heads(struct sb_config *config, const struct source *s)
{
    int32_t value_length;
    int32_t rc = SPECBATCH_OK;

    config->kv_heads = config->heads;
    SB_TRY(read_int(s, "attention.head_count_kv", 1, SB_HEADS_MAX, &config->kv_heads));
    if (config->heads % config->kv_heads != 0)
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%s: %s.attention.head_count %d is not a multiple of "
                "head_count_kv %d",
                s->file, s->arch, (int)config->heads, (int)config->kv_heads);
    if (!find(s, "attention.key_length").given && config->hidden % config->heads != 0)
        SB_FAIL(SPECBATCH_E_FORMAT,
                "%s: %s.attention.key_length is missing, and embedding_length %d is not a multiple "
                "of head_count %d",
                s->file, s->arch, (int)config->hidden, (int)config->heads);
    config->head_dim = config->hidden / config->heads;
    SB_TRY(read_int(s, "attention.key_length", 1, SB_HEAD_DIM_MAX, &config->head_dim));
    if (config->head_dim > SB_HEAD_DIM_MAX)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: heads of more than %d elements", s->file, SB_HEAD_DIM_MAX);
    value_length = config->head_dim;
    SB_TRY(read_int(s, "attention.value_length", 1, SB_HEAD_DIM_MAX, &value_length));
    if (value_length != config->head_dim)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %s.attention.value_length %d is not key_length %d",
                s->file, s->arch, (int)value_length, (int)config->head_dim);
done:
    return rc;
}

/* What there is beside the experts that are chosen, in files of an architecture that has it. A file
 * counts the layers too that predict further tokens. */
static int32_t read_other_experts(struct sb_config *config, const struct source *s)
{
    const struct key norm = find(s, "expert_weights_norm");
    int32_t scoring = SB_GGUF_SIGMOID, further = 0, groups = 1;
    int32_t rc = SPECBATCH_OK;

    config->has_shared = config->arch->default_shared;
    config->dense_layers = config->arch->default_dense;
    SB_TRY(read_int(s, "expert_shared_count", 0, 1, &config->has_shared));
    SB_TRY(read_int(s, "expert_gating_func", 0, INT32_MAX, &scoring));
    if (scoring != SB_GGUF_SIGMOID)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %s.expert_gating_func %d is not supported, only %d",
                s->file, s->arch, (int)scoring, SB_GGUF_SIGMOID);
    SB_TRY(read_int(s, "expert_group_count", 0, SB_EXPERTS_MAX, &groups));
    if (groups > 1)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: %s.expert_group_count %d: groups of experts are not supported", s->file,
                s->arch, (int)groups);
    SB_TRY(read_double(s, "expert_weights_scale", 1e-6, 1e6, &config->expert_scale));
    config->renormalises = norm.given ? !is_off(&norm.value) : config->arch->renormalises;
    SB_TRY(read_int(s, "nextn_predict_layers", 0, config->layers - 1, &further));
    config->layers -= further;
    SB_TRY(read_int(s, "leading_dense_block_count", 0, config->layers, &config->dense_layers));
    if (config->dense_layers > 0)
        SB_TRY(need(s, "feed_forward_length"));
    SB_TRY(read_int(s, "feed_forward_length", 1, SB_INTER_MAX, &config->dense_inter));
done:
    return rc;
}

/* Without a key that says otherwise, llama.cpp makes the weights of the chosen experts add up to 1.
 */
static int32_t read_experts(struct sb_config *config, const struct source *s)
{
    int32_t rc = SPECBATCH_OK;

    if (!config->arch->router)
        return SPECBATCH_OK;
    SB_TRY(need(s, "expert_count"));
    SB_TRY(read_int(s, "expert_count", 1, SB_EXPERTS_MAX, &config->experts));
    SB_TRY(need(s, "expert_used_count"));
    SB_TRY(read_int(s, "expert_used_count", 1, config->experts, &config->chosen));
    config->renormalises = 1;
    config->expert_scale = 1.0;
    if (config->arch->shared_expert)
        SB_TRY(read_other_experts(config, s));
done:
    return rc;
}

static int32_t read_sizes(struct sb_config *config, const struct source *s)
{
    const struct {
        const char *name;
        int32_t max, *value;
    } numbers[] = {
        {"embedding_length", SB_HIDDEN_MAX, &config->hidden},
        {config->arch->inter_key ? "expert_feed_forward_length" : "feed_forward_length",
         SB_INTER_MAX, &config->inter},
        {"block_count", SB_LAYERS_MAX, &config->layers},
        {"attention.head_count", SB_HEADS_MAX, &config->heads},
        {"context_length", SB_CONTEXT_MAX, &config->context},
    };
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        SB_TRY(need(s, numbers[i].name));
        SB_TRY(read_int(s, numbers[i].name, 1, numbers[i].max, numbers[i].value));
    }
    SB_TRY(read_vocab(config, s));
    SB_TRY(read_heads(config, s));
    SB_TRY(read_experts(config, s));
    SB_TRY(need(s, "attention.layer_norm_rms_epsilon"));
    SB_TRY(read_double(s, "attention.layer_norm_rms_epsilon", 1e-30, 1.0, &config->eps));
done:
    return rc;
}

/* Reads from the names of the tensors which biases and norms of heads there are, and whether there
 * is a head of the model. */
static void read_flags(struct sb_config *config, const struct source *s)
{
    static const char *const some[] = {".attn_q.bias",      ".attn_k.bias",       ".attn_v.bias",
                                       ".attn_output.bias", ".ffn_gate.bias",     ".ffn_up.bias",
                                       ".ffn_down.bias",    ".attn_q_norm.weight"};
    const struct sb_arch *arch = config->arch;
    int there[sizeof some / sizeof *some] = {0};

    config->tied = 1;
    for (int32_t i = 0; i < sb_gguf_n_tensors(s->gguf); i++) {
        const char *name = sb_gguf_tensor(s->gguf, i)->name;
        if (strcmp(name, "output.weight") == 0)
            config->tied = 0;
        if (strncmp(name, "blk.", 4) != 0)
            continue;
        name += 4 + strspn(name + 4, "0123456789");
        for (size_t b = 0; b < sizeof some / sizeof *some; b++)
            there[b] |= strcmp(name, some[b]) == 0;
    }
    config->has_qkv_bias = sb_arch_has_bias(arch->qkv_bias, there[0] || there[1] || there[2]);
    config->has_o_bias = sb_arch_has_bias(arch->o_bias, there[3]);
    config->has_mlp_bias = sb_arch_has_bias(arch->mlp_bias, there[4] || there[5] || there[6]);
    config->has_head_norms = sb_arch_has_head_norms(arch, there[7]);
}

/* ---------------------------------------------------------------- its rotary embedding */

static int32_t read_scaling(struct sb_config *config, const struct source *s)
{
    struct sb_rope_config *rope = &config->rope;
    const struct key type = find(s, "rope.scaling.type");
    const struct key factor = find(s, "rope.scaling.factor");
    int32_t rc = SPECBATCH_OK;

    rope->factor = 1.0;
    rope->attention_factor = 1.0;
    if (type.given ? sb_gguf_is(&type.value, "none") : !factor.given || is_off(&factor.value))
        goto done;
    if (!type.given || sb_gguf_is(&type.value, "linear"))
        rope->kind = SB_ROPE_LINEAR;
    else if (sb_gguf_is(&type.value, "yarn"))
        rope->kind = SB_ROPE_YARN;
    else
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %s is not supported; supported: none, linear, yarn",
                s->file, type.text);
    SB_TRY(need(s, "rope.scaling.factor"));
    SB_TRY(read_double(s, "rope.scaling.factor", 1.0, FACTOR_MAX, &rope->factor));
    if (rope->kind == SB_ROPE_LINEAR)
        goto done;
    sb_rope_yarn_defaults(config);
    rope->truncate = !config->arch->gguf_untruncated;
    SB_TRY(read_double(s, "rope.scaling.original_context_length", 1.0, SB_CONTEXT_MAX,
                       &rope->original_context));
    SB_TRY(read_double(s, "rope.scaling.yarn_beta_fast", 1e-6, FACTOR_MAX, &rope->beta_fast));
    SB_TRY(read_double(s, "rope.scaling.yarn_beta_slow", 1e-6, FACTOR_MAX, &rope->beta_slow));
    if (rope->beta_fast < rope->beta_slow)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %s.rope.scaling.yarn_beta_fast is below yarn_beta_slow",
                s->file, s->arch);
    rope->attention_factor = sb_rope_yarn_mscale(rope->factor, 1.0);
done:
    return rc;
}

static double llama3_divisor(const struct sb_rope_config *rope, int32_t i)
{
    const double wavelength = 2.0 * 3.14159265358979323846 *
                              pow(rope->theta, (double)(2 * i) / rope->rot_dim);
    const double turns = rope->original_context / wavelength;
    const double smooth = (turns - rope->low_freq) / (rope->high_freq - rope->low_freq);

    if (smooth >= 1.0)
        return 1.0;
    return smooth <= 0.0 ? rope->factor : 1.0 / ((1.0 - smooth) / rope->factor + smooth);
}

double sb_gguf_divisor(const struct sb_rope_config *rope, int32_t i)
{
    return rope->kind == SB_ROPE_LONGROPE ? (double)rope->divisors[i] : llama3_divisor(rope, i);
}

/* Whether the numbers of a scaling give these divisors. */
static int gives_divisors(const struct sb_rope_config *rope, const float *divisors)
{
    for (int32_t i = 0; i < rope->rot_dim / 2; i++) {
        const double expected = llama3_divisor(rope, i);
        if (!(fabs(divisors[i] - expected) <= FACTOR_TOLERANCE * expected))
            return 0;
    }
    return 1;
}

/* Reads the divisors of a tensor into `divisors`, which have room for rot_dim / 2. */
static int32_t read_divisors(float *divisors, const struct sb_rope_config *rope,
                             const struct source *s, const struct sb_gguf_tensor *t)
{
    if (strcmp(t->type, "F32") != 0 || t->rank != 1 || t->shape[0] != rope->rot_dim / 2)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: tensor %s is not of %d numbers of type F32",
                       s->file, t->name, (int)rope->rot_dim / 2);
    return sb_file_read(sb_gguf_file(s->gguf, t->file), t->offset, divisors, (size_t)t->bytes);
}

/* Finds the numbers that rope_freqs.weight was computed from. Its largest divisor is the factor.
 * All published models have 1 and 4 as the other two, and for the context a power of two. Where
 * two contexts give the same divisors, no frequency is blended, and either gives the same model. */
static int32_t find_llama3(struct sb_rope_config *rope, const struct source *s,
                           const struct sb_gguf_tensor *t)
{
    float divisors[SB_HEAD_DIM_MAX / 2], largest = 1.0f;
    struct sb_gguf_value value = {.type = SB_GGUF_F32, .at = (const unsigned char *)&largest};
    int32_t rc = SPECBATCH_OK;

    if (rope->kind != SB_ROPE_DEFAULT)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: both %s and %s.rope.scaling.type", s->file, t->name,
                s->arch);
    SB_TRY(read_divisors(divisors, rope, s, t));
    for (int32_t i = 0; i < rope->rot_dim / 2; i++)
        largest = divisors[i] > largest ? divisors[i] : largest;
    rope->low_freq = 1.0;
    rope->high_freq = 4.0;
    if (sb_gguf_double(&value, &rope->factor) && rope->factor <= FACTOR_MAX)
        for (rope->original_context = 32.0; rope->original_context <= SB_CONTEXT_MAX;
             rope->original_context *= 2.0)
            if (gives_divisors(rope, divisors)) {
                rope->kind = rope->factor > 1.0 ? SB_ROPE_LLAMA3 : SB_ROPE_DEFAULT;
                goto done;
            }
    SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: tensor %s is not the scaling of Llama 3", s->file,
            t->name);
done:
    return rc;
}

static int32_t read_longrope(struct sb_config *config, const struct source *s,
                             const struct sb_gguf_tensor *t)
{
    struct sb_rope_config *rope = &config->rope;
    int32_t rc = SPECBATCH_OK;

    if (rope->kind != SB_ROPE_DEFAULT)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: both %s and another scaling", s->file, t->name);
    if (rope->rot_dim / 2 > SB_ROPE_DIVISORS)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: tensor %s has more than %d numbers", s->file, t->name,
                SB_ROPE_DIVISORS);
    rope->kind = SB_ROPE_LONGROPE;
    SB_TRY(read_divisors(rope->divisors, rope, s, t));
    for (int32_t i = 0; i < rope->rot_dim / 2; i++)
        if (!(rope->divisors[i] >= 1e-6f && rope->divisors[i] <= (float)FACTOR_MAX))
            SB_FAIL(SPECBATCH_E_FORMAT, "%s: tensor %s has a number that is not from %g to %g",
                    s->file, t->name, 1e-6, FACTOR_MAX);
    SB_TRY(need(s, "rope.scaling.original_context_length"));
    SB_TRY(read_double(s, "rope.scaling.original_context_length", 1.0, SB_CONTEXT_MAX,
                       &rope->original_context));
    SB_TRY(read_double(s, "rope.scaling.attn_factor", 1e-6, FACTOR_MAX, &rope->attention_factor));
    rope->attention_factor = (float)rope->attention_factor;
done:
    return rc;
}

static int32_t read_rope(struct sb_config *config, const struct source *s)
{
    struct sb_rope_config *rope = &config->rope;
    const double whole = config->arch->default_partial_rotary;
    const struct sb_gguf_tensor *t;
    int32_t rc = SPECBATCH_OK;

    rope->theta = 10000.0;
    SB_TRY(read_double(s, "rope.freq_base", 1.01, 1e15, &rope->theta));
    rope->rot_dim = (int32_t)(config->head_dim * whole);
    SB_TRY(read_int(s, "rope.dimension_count", 2, config->head_dim, &rope->rot_dim));
    if (rope->rot_dim < 2 || rope->rot_dim % 2 != 0 ||
        (!config->arch->has_partial_rotary && rope->rot_dim != config->head_dim))
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "%s: %s.rope.dimension_count %d is not supported with heads of %d elements",
                s->file, s->arch, (int)rope->rot_dim, (int)config->head_dim);
    SB_TRY(read_scaling(config, s));
    if ((t = find_tensor(s, SB_GGUF_DIVISORS)) != NULL)
        SB_TRY(find_llama3(rope, s, t));
    if ((t = find_tensor(s, SB_GGUF_SHORT_DIVISORS)) != NULL)
        SB_TRY(read_longrope(config, s, t));
done:
    return rc;
}

/* ------------------------------------------------------------------------- its windows */

/* Marks local layers by a list of flags. */
static int32_t mark_by_list(struct sb_config *config, const struct source *s, struct key *key)
{
    struct sb_gguf_value element;
    int32_t i = 0;
    int flag;

    while (sb_gguf_take(&key->value, &element) && i < config->layers &&
           sb_gguf_bool(&element, &flag))
        config->is_local[i++] = (uint8_t)flag;
    if (i != config->layers)
        return sb_fail(SPECBATCH_E_FORMAT, "%s: %s is not a list of %d flags", s->file, key->text,
                       (int)config->layers);
    return SPECBATCH_OK;
}

/* Architectures without windows have been refused if they have one. */
static int32_t read_window(struct sb_config *config, const struct source *s)
{
    const struct key window = find(s, "attention.sliding_window");
    struct key pattern = find(s, "attention.sliding_window_pattern");
    int32_t tokens = config->arch->default_window, period = config->arch->window_period;
    int32_t rc = SPECBATCH_OK;

    if (window.given ? is_off(&window.value) : !config->arch->gguf_has_window)
        goto done;
    SB_TRY(read_int(s, "attention.sliding_window", 1, INT32_MAX, &tokens));
    if (pattern.given && pattern.value.type == SB_GGUF_ARRAY) {
        SB_TRY(mark_by_list(config, s, &pattern));
    } else {
        SB_TRY(read_int(s, "attention.sliding_window_pattern", 0, SB_LAYERS_MAX, &period));
        sb_config_mark_local(config, period);
    }
    sb_config_set_window(config, tokens);
done:
    return rc;
}

/* llama.cpp's converter writes the base of Gemma's local layers into newer files only; their
 * rotation is never scaled. Nor does it write which layers of SmolLM3 rotate nothing, as each
 * fourth does in llama.cpp. */
static int32_t read_other_rope(struct sb_config *config, const struct source *s)
{
    struct sb_rope_config *local = &config->other_rope;

    if (config->arch->unrotated_period > 0)
        sb_config_mark_unrotated(config, config->arch->unrotated_period);
    if (!sb_arch_has_local_rope(config->arch))
        return SPECBATCH_OK;
    *local = (struct sb_rope_config){.rot_dim = config->rope.rot_dim,
                                     .theta = config->arch->default_local_theta,
                                     .factor = 1.0,
                                     .attention_factor = 1.0};
    return read_double(s, "rope.freq_base_swa", 1.01, 1e15, &local->theta);
}

/* By what scores are divided. llama.cpp knows it by the size of the model: Gemma of 27B has its
 * own. attention.scale is a float, from which the number is had by rounding. */
static int32_t read_scale(struct sb_config *config, const struct source *s)
{
    double scale = 0.0;
    int32_t rc = SPECBATCH_OK;

    config->query_scalar = config->head_dim;
    if (config->arch->default_query_scalar > 0.0)
        config->query_scalar = sb_gguf_query_scalar(config);
    SB_TRY(read_double(s, "attention.scale", 0.0, 1e3, &scale));
    if (scale > 0.0)
        config->query_scalar = nearbyint(1.0 / (scale * scale));
    if (!(config->query_scalar >= 1.0))
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%s: %s.attention.scale %g is not supported", s->file,
                s->arch, scale);
done:
    return rc;
}

double sb_gguf_query_scalar(const struct sb_config *config)
{
    return config->layers == config->arch->gguf_wide_layers ? config->hidden / config->heads
                                                            : config->head_dim;
}

/* Files may lack them: then they are what llama.cpp takes, and that is what the architecture has. 0
 * is none. */
static int32_t read_caps(struct sb_config *config, const struct source *s)
{
    int32_t rc = SPECBATCH_OK;

    config->score_cap = config->arch->default_score_cap;
    config->logit_cap = config->arch->default_logit_cap;
    SB_TRY(read_double(s, "attn_logit_softcapping", 0.0, 1e6, &config->score_cap));
    SB_TRY(read_double(s, "final_logit_softcapping", 0.0, 1e6, &config->logit_cap));
done:
    return rc;
}

int32_t sb_gguf_config(struct sb_config *config, const struct sb_log *log,
                       const struct sb_gguf *gguf)
{
    struct source s = {gguf, sb_gguf_file(gguf, 0)->name, ""};
    int32_t rc = SPECBATCH_OK;

    memset(config, 0, sizeof *config);
    SB_TRY(find_arch(config, &s));
    s.arch = sb_arch_gguf_name(config->arch);
    SB_TRY(refuse_unknown(config, &s));
    SB_TRY(read_sizes(config, &s));
    read_flags(config, &s);
    SB_TRY(read_rope(config, &s));
    SB_TRY(read_window(config, &s));
    SB_TRY(read_other_rope(config, &s));
    SB_TRY(read_scale(config, &s));
    SB_TRY(read_caps(config, &s));
    sb_config_limit(config, log, s.file);
    SB_TRY(sb_gguf_special(config, gguf));
    sb_config_warn_endless(config, log, s.file);
done:
    return rc;
}
