/* Conversion of checkpoints; see gguf_convert.h. */
#include "support/gguf_convert.h"

#include <math.h>

#include "json.h"
#include "model/container.h"
#include "model/shards.h"
#include "support/safetensors_writer.h"

/* ------------------------------------------------------------------------------ tensors */

static enum sb_dtype type_of(const struct sb_tensor *t)
{
    return strcmp(t->type, "F32") == 0 ? SB_F32 : strcmp(t->type, "F16") == 0 ? SB_F16 : SB_BF16;
}

static size_t elements_of(const struct sb_tensor *t)
{
    size_t n = 1;

    for (int32_t i = 0; i < t->rank; i++)
        n *= (size_t)t->shape[i];
    return n;
}

/* The data of a tensor as they are, which the caller frees; NULL when they cannot be read. */
static void *read_raw(const struct sb_tensors *set, const struct sb_tensor *t)
{
    void *raw = malloc(t->bytes);

    if (raw && sb_tensors_read(set, t, 0, raw, t->bytes) != SPECBATCH_OK) {
        free(raw);
        raw = NULL;
    }
    return raw;
}

/* The data of a tensor in another type, which the caller frees; NULL when it cannot be read. */
static void *read_as(const struct sb_tensors *set, const struct sb_tensor *t, enum sb_dtype dtype)
{
    const size_t n = elements_of(t);
    void *raw = read_raw(set, t), *data = malloc(n * sizeof(float));

    if (raw && data) {
        sb_convert(data, dtype, raw, type_of(t), n);
    } else {
        free(data);
        data = NULL;
    }
    free(raw);
    return data;
}

/* What llama.cpp calls an architecture. */
static const char *gguf_arch(const struct sb_config *c)
{
    const char *name = c->arch->model_type;

    return strcmp(name, "mistral") == 0       ? "llama"
           : strcmp(name, "mixtral") == 0     ? "llama"
           : strcmp(name, "qwen3_moe") == 0   ? "qwen3moe"
           : strcmp(name, "glm4_moe") == 0    ? "glm4moe"
           : strcmp(name, "gemma3_text") == 0 ? "gemma3"
           : strcmp(name, "gpt_oss") == 0     ? "gpt-oss"
                                              : name;
}

static int is_gemma(const struct sb_config *c)
{
    return strcmp(gguf_arch(c), "gemma2") == 0 || strcmp(gguf_arch(c), "gemma3") == 0;
}

/* Writes the name that llama.cpp gives a tensor. */
static void rename_tensor(char to[80], const struct sb_config *c, const char *from)
{
    static const char *const names[][2] = {
        {"model.embed_tokens", "token_embd"},
        {"model.norm", "output_norm"},
        {"lm_head", "output"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"input_layernorm", "attn_norm"},
        {"post_self_attn_layernorm", "post_attention_norm"},
        {"post_attention_layernorm", "ffn_norm"},
        {"post_mlp_layernorm", "post_ffw_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"self_attn.qkv_proj", "attn_qkv"},
        {"mlp.gate_up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
        {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
        {"mlp.gate", "ffn_gate_inp"},
        {"mlp.router", "ffn_gate_inp"},
        {"block_sparse_moe.gate", "ffn_gate_inp"},
    };
    const int other_norm = is_gemma(c) || strcmp(gguf_arch(c), "glm4moe") == 0 ||
                           strcmp(gguf_arch(c), "gpt-oss") == 0;
    int layer = -1, n = 0;

    sscanf(from, "model.layers.%d.%n", &layer, &n);
    n = layer < 0 ? 0 : n;
    if (strcmp(from + n, "mlp.gate.e_score_correction_bias") == 0) {
        snprintf(to, 80, "blk.%d.exp_probs_b.bias", layer);
        return;
    }
    if (strcmp(from + n, "self_attn.sinks") == 0) {
        snprintf(to, 80, "blk.%d.attn_sinks.weight", layer);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t length = strlen(names[i][0]);
        if (strncmp(from + n, names[i][0], length) != 0 || from[n + (int)length] != '.')
            continue;
        if (other_norm && strcmp(names[i][0], "post_attention_layernorm") == 0)
            snprintf(to, 80, "blk.%d.post_attention_norm.weight", layer);
        else if (layer < 0)
            snprintf(to, 80, "%s%s", names[i][1], from + length);
        else
            snprintf(to, 80, "blk.%d.%s%s", layer, names[i][1], from + n + (int)length);
        return;
    }
    snprintf(to, 80, "%s", from);
}

/* Writes the name of the tensor that llama.cpp makes of this one and those of the other experts;
 * returns 0 if it is of none. expert: which. */
static int name_of_experts(char to[80], int *expert, const char *from)
{
    static const char *const names[][2] = {
        {"gate_proj", "ffn_gate_exps"}, {"up_proj", "ffn_up_exps"}, {"down_proj", "ffn_down_exps"},
        {"w1", "ffn_gate_exps"},        {"w3", "ffn_up_exps"},      {"w2", "ffn_down_exps"}};
    char map[20], kind[8];
    int layer;

    if (sscanf(from, "model.layers.%d.%*[^.].experts.%d.%19[^.].%7s", &layer, expert, map, kind) !=
        4)
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], map) == 0)
            snprintf(to, 80, "blk.%d.%s.%s", layer, names[i][1], kind);
    return 1;
}

/* Row 2 j + s of each head becomes what was row s * rows / 2 + j of it. */
static void permute(void *data, const struct sb_tensor *t, size_t size, int32_t head_rows)
{
    const size_t row = elements_of(t) / (size_t)t->shape[0] * size;
    unsigned char *from = malloc((size_t)t->shape[0] * row), *to = data;

    if (!from)
        exit(1);
    memcpy(from, data, (size_t)t->shape[0] * row);
    for (int64_t head = 0; head < t->shape[0]; head += head_rows)
        for (int32_t s = 0; s < 2; s++)
            for (int32_t j = 0; j < head_rows / 2; j++)
                memcpy(to + (size_t)(head + 2 * j + s) * row,
                       from + (size_t)(head + s * head_rows / 2 + j) * row, row);
    free(from);
}

/* Gemma's norms count from 1 there. */
static void add_one(void *data, enum sb_dtype type, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float v;
        sb_convert(&v, SB_F32, (char *)data + i * sb_dtype_size(type), type, 1);
        v += 1.0f;
        sb_convert((char *)data + i * sb_dtype_size(type), type, &v, SB_F32, 1);
    }
}

/* A tensor's data as the file is to have them, which the caller frees; NULL when it cannot be read.
 * dtype: of the matrices; *type: of this tensor. */
static void *data_of(enum sb_dtype *type, const struct sb_config *c, const struct sb_tensors *set,
                     const struct sb_tensor *t, enum sb_dtype dtype, unsigned flags)
{
    const int is_permuted = strcmp(gguf_arch(c), "llama") == 0 ||
                            strcmp(gguf_arch(c), "smollm3") == 0;
    const int wide = t->rank == 1 || (c->experts > 0 && t->shape[0] == c->experts);
    void *data = read_as(set, t, dtype), *narrow = data;

    *type = wide && !(flags & CONVERT_VECTORS) ? SB_F32 : dtype;
    if (data && *type != dtype) { /* as if the checkpoint were of type dtype */
        data = malloc(elements_of(t) * sizeof(float));
        if (!data)
            exit(1);
        sb_convert(data, *type, narrow, dtype, elements_of(t));
        free(narrow);
    }
    if (data && is_permuted && !(flags & CONVERT_UNPERMUTED) &&
        (strstr(t->name, "q_proj") || strstr(t->name, "k_proj")))
        permute(data, t, sb_dtype_size(*type), c->head_dim);
    if (data && is_gemma(c) && strstr(t->name, "norm.weight"))
        add_one(data, *type, elements_of(t));
    return data;
}

static const uint32_t type_numbers[] = {
    [SB_F32] = GGUF_F32, [SB_BF16] = GGUF_BF16, [SB_F16] = GGUF_F16};

/* Adds the tensor that all experts' tensors like this one make, which is the first of them: MXFP4
 * as it is, vectors as F32. */
static int add_experts(struct gguf_writer *w, const struct sb_config *c, const char *name,
                       const struct sb_tensors *set, const struct sb_tensor *first,
                       enum sb_dtype dtype, unsigned flags)
{
    const int is_mx = strcmp(first->type, "MXFP4") == 0;
    const enum sb_dtype type = first->rank == 1 && !(flags & CONVERT_VECTORS) ? SB_F32 : dtype;
    const int64_t shape[3] = {c->experts, first->shape[0], first->shape[1]};
    const size_t bytes = is_mx ? first->bytes : elements_of(first) * sb_dtype_size(type);
    const char *at = strstr(first->name, ".experts.0.") + strlen(".experts.");
    char *all = malloc((size_t)c->experts * bytes), other[160];
    int good = all != NULL;

    for (int e = 0; good && e < c->experts; e++) {
        const struct sb_tensor *t;
        void *data;
        snprintf(other, sizeof other, "%.*s%d%s", (int)(at - first->name), first->name, e, at + 1);
        t = sb_tensors_find(set, other);
        data = !t ? NULL : is_mx ? read_raw(set, t) : read_as(set, t, type);
        good = data != NULL;
        if (good)
            memcpy(all + (size_t)e * bytes, data, bytes);
        free(data);
    }
    if (good)
        gguf_tensor(w, name, first->rank + 1, shape, is_mx ? GGUF_MXFP4 : type_numbers[type], all,
                    (size_t)c->experts * bytes);
    free(all);
    return good;
}

static int add_tensors(struct gguf_writer *w, const struct sb_config *c, const char *from,
                       enum sb_dtype dtype, unsigned flags)
{
    struct sb_tensors *set = NULL;
    int good = sb_container_tensors(&set, &(struct sb_container){.path = from}, &test_mem, c) ==
               SPECBATCH_OK;

    for (int32_t i = 0; good && i < sb_tensors_count(set); i++) {
        const struct sb_tensor *t = sb_tensors_at(set, i);
        enum sb_dtype type;
        void *data;
        char name[80];
        int expert = -1;
        if (name_of_experts(name, &expert, t->name)) {
            good = expert > 0 || add_experts(w, c, name, set, t, dtype, flags);
            continue;
        }
        data = data_of(&type, c, set, t, dtype, flags);
        good = data != NULL;
        rename_tensor(name, c, t->name);
        if (good)
            gguf_tensor(w, name, t->rank, t->shape, type_numbers[type], data,
                        elements_of(t) * sb_dtype_size(type));
        free(data);
    }
    sb_tensors_close(set);
    return good;
}

/* The divisors of Llama 3's frequencies, in float as the converter computes them. */
static void add_rope_freqs(struct gguf_writer *w, const struct sb_rope_config *r)
{
    float divisors[256];
    const int64_t n = r->rot_dim / 2;

    for (int64_t i = 0; i < n; i++) {
        const float frequency = 1.0f / powf((float)r->theta, (float)(2 * i) / (float)r->rot_dim);
        const float wavelength = 6.2831853f / frequency;
        const float smooth = ((float)r->original_context / wavelength - (float)r->low_freq) /
                             (float)(r->high_freq - r->low_freq);
        divisors[i] = 1.0f / ((1.0f - smooth) / (float)r->factor + smooth);
        if (wavelength < (float)(r->original_context / r->high_freq))
            divisors[i] = 1.0f;
        else if (wavelength > (float)(r->original_context / r->low_freq))
            divisors[i] = (float)r->factor;
    }
    gguf_tensor(w, "rope_freqs.weight", 1, &n, GGUF_F32, divisors, (size_t)n * sizeof *divisors);
}

/* Both of longrope's tensors: the divisors for short texts, and others that nobody may take. */
static void add_longrope(struct gguf_writer *w, const struct sb_rope_config *r)
{
    const int64_t n = r->rot_dim / 2;
    float others[SB_ROPE_DIVISORS];

    for (int64_t i = 0; i < n; i++)
        others[i] = 3.0f * r->divisors[i];
    gguf_tensor(w, "rope_factors_long.weight", 1, &n, GGUF_F32, others, (size_t)n * sizeof *others);
    gguf_tensor(w, "rope_factors_short.weight", 1, &n, GGUF_F32, r->divisors,
                (size_t)n * sizeof *r->divisors);
}

/* ------------------------------------------------------------------------------ metadata */

static void key_of(char key[96], const struct sb_config *c, const char *name)
{
    snprintf(key, 96, "%s.%s", gguf_arch(c), name);
}

/* Phi has a window of 0 if it has none; the checkpoints of Gemma 3 here have three layers of four,
 * or a list; those of Qwen a list. */
static void add_windows(struct gguf_writer *w, const struct sb_config *c)
{
    char key[96];

    key_of(key, c, "attention.sliding_window");
    if (c->window > 0 || strcmp(gguf_arch(c), "phi3") == 0)
        gguf_key_u32(w, key, (uint32_t)c->window);
    key_of(key, c, "attention.sliding_window_pattern");
    if (c->window > 0 && strcmp(gguf_arch(c), "qwen2") == 0) {
        gguf_key_array(w, key, SB_GGUF_BOOL, (uint64_t)c->layers);
        gguf_add(&w->keys, c->is_local, (size_t)c->layers);
    }
    if (strcmp(gguf_arch(c), "gemma3") != 0)
        return;
    gguf_key_u32(w, key, 3);
    key_of(key, c, "rope.freq_base_swa");
    gguf_key_f32(w, key, 10000.0f);
}

static void add_scores(struct gguf_writer *w, const struct sb_config *c)
{
    char key[96];

    if (!is_gemma(c))
        return;
    key_of(key, c, "attention.scale");
    gguf_key_f32(w, key, (float)(1.0 / sqrt(28.0)));
    if (c->score_cap == 0.0)
        return;
    key_of(key, c, "attn_logit_softcapping");
    gguf_key_f32(w, key, (float)c->score_cap);
    key_of(key, c, "final_logit_softcapping");
    gguf_key_f32(w, key, (float)c->logit_cap);
}

/* The width of Qwen's other MLPs is in no checkpoint's tensors, and any will do. */
static void add_experts_keys(struct gguf_writer *w, const struct sb_config *c)
{
    char key[96];

    if (c->experts == 0)
        return;
    key_of(key, c, "expert_count");
    gguf_key_u32(w, key, (uint32_t)c->experts);
    key_of(key, c, "expert_used_count");
    gguf_key_u32(w, key, (uint32_t)c->chosen);
    key_of(key, c, "expert_feed_forward_length");
    if (strcmp(gguf_arch(c), "llama") != 0)
        gguf_key_u32(w, key, (uint32_t)c->inter);
    if (strcmp(gguf_arch(c), "glm4moe") != 0)
        return;
    key_of(key, c, "expert_shared_count");
    gguf_key_u32(w, key, 1);
    key_of(key, c, "leading_dense_block_count");
    gguf_key_u32(w, key, 1);
    key_of(key, c, "expert_gating_func");
    gguf_key_u32(w, key, 2);
    key_of(key, c, "expert_weights_scale");
    gguf_key_f32(w, key, 2.5f);
    key_of(key, c, "expert_weights_norm");
    gguf_key_flag(w, key, 1);
}

static void add_config(struct gguf_writer *w, const struct sb_config *c)
{
    const struct {
        const char *name;
        int32_t value;
    } numbers[] = {{"block_count", c->layers},
                   {"context_length", c->context},
                   {"embedding_length", c->hidden},
                   {"feed_forward_length", c->dense_inter > 0 ? c->dense_inter : c->inter},
                   {"attention.head_count", c->heads},
                   {"attention.head_count_kv", c->kv_heads},
                   {"attention.key_length", c->head_dim},
                   {"attention.value_length", c->head_dim},
                   {"rope.dimension_count", c->rope.rot_dim},
                   {"vocab_size", c->vocab}};
    static const char *const eos[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
    char key[96];

    gguf_key_text(w, "general.architecture", gguf_arch(c));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        key_of(key, c, numbers[i].name);
        gguf_key_u32(w, key, (uint32_t)numbers[i].value);
    }
    key_of(key, c, "attention.layer_norm_rms_epsilon");
    gguf_key_f32(w, key, (float)c->eps);
    key_of(key, c, "rope.freq_base");
    gguf_key_f32(w, key, (float)c->rope.theta);
    if (c->bos >= 0)
        gguf_key_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)c->bos);
    for (int32_t i = 0; i < c->n_eos && i < 3; i++)
        gguf_key_u32(w, eos[i], (uint32_t)c->eos[i]);
    add_windows(w, c);
    add_scores(w, c);
    add_experts_keys(w, c);
    if (c->rope.kind == SB_ROPE_LONGROPE) {
        key_of(key, c, "rope.scaling.original_context_length");
        gguf_key_u32(w, key, (uint32_t)c->rope.original_context);
        key_of(key, c, "rope.scaling.attn_factor");
        gguf_key_f32(w, key, (float)c->rope.attention_factor);
    }
    if (c->rope.kind != SB_ROPE_YARN && c->rope.kind != SB_ROPE_LINEAR)
        return;
    key_of(key, c, "rope.scaling.type");
    gguf_key_text(w, key, c->rope.kind == SB_ROPE_YARN ? "yarn" : "linear");
    key_of(key, c, "rope.scaling.factor");
    gguf_key_f32(w, key, (float)c->rope.factor);
    key_of(key, c, "rope.scaling.original_context_length");
    if (c->rope.kind == SB_ROPE_YARN)
        gguf_key_u32(w, key, (uint32_t)c->rope.original_context);
}

int convert_model(struct gguf_writer *w, const char *from, enum sb_dtype dtype, unsigned flags)
{
    const struct sb_log silence = {NULL, NULL};
    struct sb_config config;

    if (sb_config_load(&config, &test_mem, &silence, from) != SPECBATCH_OK)
        return 0;
    add_config(w, &config);
    if (config.rope.kind == SB_ROPE_LLAMA3)
        add_rope_freqs(w, &config.rope);
    if (config.rope.kind == SB_ROPE_LONGROPE)
        add_longrope(w, &config.rope);
    return add_tensors(w, &config, from, dtype, flags);
}

/* --------------------------------------------------------------------------- safetensors */

int convert_safetensors(const struct test_dir *to, const char *from, enum sb_dtype dtype)
{
    static const char *const names[] = {[SB_F32] = "F32", [SB_BF16] = "BF16", [SB_F16] = "F16"};
    static const char *const others[] = {"config.json", "generation_config.json"};
    struct safetensors_writer w = {.data = {.n = 0}};
    struct sb_tensors *set = NULL;
    int good = sb_tensors_open(&set, &test_mem, from) == SPECBATCH_OK;

    for (int32_t i = 0; good && i < sb_tensors_count(set); i++) {
        const struct sb_tensor *t = sb_tensors_at(set, i);
        const int stays = strcmp(t->type, "U8") == 0; /* blocks and scales of MXFP4 */
        const size_t bytes = stays ? t->bytes : elements_of(t) * sb_dtype_size(dtype);
        void *converted = stays ? read_raw(set, t) : read_as(set, t, dtype);
        good = converted != NULL;
        safetensors_tensor(&w, t->name, stays ? "U8" : names[dtype], t->rank, t->shape, converted,
                           good ? bytes : 0);
        free(converted);
    }
    safetensors_write(&w, to);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        size_t n = 0;
        char *text = test_read(from, others[i], &n);
        if (text)
            test_write(to, others[i], text, n);
        free(text);
    }
    sb_tensors_close(set);
    return good;
}

/* ----------------------------------------------------------------------------- tokenizer */

/* What a piece is spelled like and what kind it is, by id. */
struct piece {
    const char *text;
    size_t n;
    uint32_t type; /* as in a file; 5: there is none */
};

static void add_pieces(struct gguf_writer *w, const struct piece *pieces, size_t n)
{
    char unused[32];

    gguf_key_array(w, "tokenizer.ggml.tokens", SB_GGUF_STRING, n);
    for (size_t id = 0; id < n; id++) {
        snprintf(unused, sizeof unused, "[PAD%zu]", id);
        gguf_add_text(&w->keys, pieces[id].text ? pieces[id].text : unused,
                      pieces[id].text ? pieces[id].n : strlen(unused));
    }
    gguf_key_array(w, "tokenizer.ggml.token_type", SB_GGUF_I32, n);
    for (size_t id = 0; id < n; id++)
        gguf_add_number(&w->keys, pieces[id].type, 4);
}

static void add_merges(struct gguf_writer *w, const struct sb_json_node *merges)
{
    gguf_key_array(w, "tokenizer.ggml.merges", SB_GGUF_STRING, sb_json_count(merges));
    for (const struct sb_json_node *m = sb_json_first(merges); m; m = sb_json_next(m)) {
        struct gguf_buffer text = {.n = 0};
        size_t n = 0;
        const char *part = sb_json_string(m, &n);
        if (part) {
            gguf_add(&text, part, n);
        } else {
            part = sb_json_string(sb_json_first(m), &n);
            gguf_add(&text, part, n);
            gguf_add(&text, " ", 1);
            part = sb_json_string(sb_json_next(sb_json_first(m)), &n);
            gguf_add(&text, part, n);
        }
        gguf_add_text(&w->keys, (const char *)text.at, text.n);
        free(text.at);
    }
}

int convert_tokenizer(struct gguf_writer *w, const char *from, const char *pre, int32_t vocab)
{
    enum { PIECES = 1024 };
    struct piece pieces[PIECES];
    const struct sb_json_node *root, *model, *node;
    struct sb_json *doc = NULL;
    char path[512];
    size_t n = (size_t)vocab;
    int64_t id = 0;

    for (size_t i = 0; i < PIECES; i++)
        pieces[i] = (struct piece){NULL, 0, 5};
    snprintf(path, sizeof path, "%s/tokenizer.json", from);
    if (sb_json_load(&doc, &test_mem, path, 1 << 24) != SPECBATCH_OK)
        return 0;
    root = sb_json_root(doc);
    model = sb_json_get(root, "model");
    for (node = sb_json_first(sb_json_get(model, "vocab")); node; node = sb_json_next(node))
        if (sb_json_int(node, &id) && id >= 0 && id < PIECES) {
            pieces[id].text = sb_json_name(node, &pieces[id].n);
            pieces[id].type = 1;
            n = (size_t)id >= n ? (size_t)id + 1 : n;
        }
    for (node = sb_json_first(sb_json_get(root, "added_tokens")); node; node = sb_json_next(node))
        if (sb_json_int(sb_json_get(node, "id"), &id) && id >= 0 && id < PIECES) {
            int special = 0;
            sb_json_bool(sb_json_get(node, "special"), &special);
            pieces[id].text = sb_json_string(sb_json_get(node, "content"), &pieces[id].n);
            pieces[id].type = special ? 3 : 4;
            n = (size_t)id >= n ? (size_t)id + 1 : n;
        }
    gguf_key_text(w, "tokenizer.ggml.model", "gpt2");
    gguf_key_text(w, "tokenizer.ggml.pre", pre);
    add_pieces(w, pieces, n);
    add_merges(w, sb_json_get(model, "merges"));
    sb_json_free(doc);
    return n <= PIECES;
}
