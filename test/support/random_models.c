/* Models with random weights; see random_models.h. */
#include "support/random_models.h"

#include "quant.h"
#include "support/gguf_writer.h"
#include "support/random_blocks.h"

enum { MATRICES = 9, OF_LAYER = 7, VOCAB = 517, CONTEXT = 512, EOS = 2, HEADS = 4, KV_HEADS = 2 };

struct shape {
    const char *arch;
    int32_t layers, hidden, inter, head_dim;
    int32_t experts, chosen;       /* 0: it has one MLP */
    enum sb_dtype types[MATRICES]; /* in the order of random_models.h */
};

static uint32_t number_of(enum sb_dtype dtype)
{
    static const uint32_t numbers[SB_DTYPES] = {
        [SB_F32] = GGUF_F32,   [SB_BF16] = GGUF_BF16, [SB_F16] = GGUF_F16,
        [SB_Q8_0] = GGUF_Q8_0, [SB_Q4_0] = GGUF_Q4_0, [SB_Q4_K] = GGUF_Q4_K,
        [SB_Q5_K] = GGUF_Q5_K, [SB_Q6_K] = GGUF_Q6_K, [SB_MXFP4] = GGUF_MXFP4};

    return numbers[dtype];
}

static void *memory(size_t bytes)
{
    void *block = malloc(bytes);

    if (!block)
        exit(1);
    return block;
}

/* A matrix whose product with a vector is about as large as the vector; or one of rank 3, of those
 * of all experts. */
static void add_matrix(struct gguf_writer *w, const char *name, int32_t experts, int32_t n_out,
                       int32_t n_in, enum sb_dtype dtype, uint64_t *state)
{
    const int32_t rows = experts > 0 ? experts * n_out : n_out;
    const size_t row = sb_dtype_row_bytes(dtype, (size_t)n_in), bytes = (size_t)rows * row;
    const float spread = 1.0f / (n_in < 128 ? 8.0f : 16.0f);
    float values[SB_QUANT_BLOCK_MAX];
    char *data = memory(bytes), blocks[SB_QUANT_BLOCK_MAX * 2];

    for (int32_t o = 0; o < rows; o++) {
        if (sb_dtype_is_quantised(dtype)) {
            random_row(data + (size_t)o * row, dtype, (size_t)n_in, RANDOM_CENTRED, spread, state);
            continue;
        }
        random_row(blocks, SB_Q8_0, (size_t)n_in, RANDOM_CENTRED, spread, state);
        sb_convert(values, SB_F32, blocks, SB_Q8_0, (size_t)n_in);
        sb_convert(data + (size_t)o * row, dtype, values, SB_F32, (size_t)n_in);
    }
    if (experts > 0)
        gguf_tensor(w, name, 3, (int64_t[]){experts, n_out, n_in}, number_of(dtype), data, bytes);
    else
        gguf_tensor(w, name, 2, (int64_t[]){n_out, n_in}, number_of(dtype), data, bytes);
    free(data);
}

static void add_norm(struct gguf_writer *w, const char *name, int32_t n)
{
    float *ones = memory((size_t)n * sizeof *ones);

    for (int32_t i = 0; i < n; i++)
        ones[i] = 1.0f;
    gguf_tensor(w, name, 1, (int64_t[]){n}, GGUF_F32, ones, (size_t)n * sizeof *ones);
    free(ones);
}

static void put_u32(struct gguf_writer *w, const struct shape *s, const char *name, int32_t value)
{
    char key[80];

    snprintf(key, sizeof key, "%s.%s", s->arch, name);
    gguf_key_u32(w, key, (uint32_t)value);
}

static void put_f32(struct gguf_writer *w, const struct shape *s, const char *name, float value)
{
    char key[80];

    snprintf(key, sizeof key, "%s.%s", s->arch, name);
    gguf_key_f32(w, key, value);
}

static int is_gemma(const struct shape *s)
{
    return strcmp(s->arch, "gemma2") == 0;
}

static void add_config(struct gguf_writer *w, const struct shape *s)
{
    gguf_key_text(w, "general.architecture", s->arch);
    put_u32(w, s, "block_count", s->layers);
    put_u32(w, s, "context_length", CONTEXT);
    put_u32(w, s, "embedding_length", s->hidden);
    put_u32(w, s, "feed_forward_length", s->inter);
    put_u32(w, s, "attention.head_count", HEADS);
    put_u32(w, s, "attention.head_count_kv", KV_HEADS);
    put_u32(w, s, "attention.key_length", s->head_dim);
    put_u32(w, s, "attention.value_length", s->head_dim);
    put_u32(w, s, "vocab_size", VOCAB);
    put_f32(w, s, "attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_key_u32(w, "tokenizer.ggml.eos_token_id", EOS);
    if (s->experts > 0) {
        put_u32(w, s, "expert_count", s->experts);
        put_u32(w, s, "expert_used_count", s->chosen);
    }
    if (is_gemma(s)) {
        put_u32(w, s, "attention.sliding_window", 40);
        put_f32(w, s, "attn_logit_softcapping", 2.0f);
        put_f32(w, s, "final_logit_softcapping", 3.0f);
    }
}

/* Writes "blk.N.NAME". */
static const char *in_layer(char name[64], int32_t layer, const char *of_it)
{
    snprintf(name, 64, "blk.%d.%s", (int)layer, of_it);
    return name;
}

static void add_layer(struct gguf_writer *w, const struct shape *s, int32_t layer, uint64_t *state)
{
    const int32_t hidden = s->hidden, inter = s->inter, q = HEADS * s->head_dim;
    const int32_t kv = KV_HEADS * s->head_dim;
    const struct {
        const char *name;
        int32_t n_out, n_in;
    } matrices[OF_LAYER] = {{"attn_q", q, hidden},       {"attn_k", kv, hidden},
                            {"attn_v", kv, hidden},      {"attn_output", hidden, q},
                            {"ffn_gate", inter, hidden}, {"ffn_up", inter, hidden},
                            {"ffn_down", hidden, inter}};
    char name[64], whole[40];

    for (int i = 0; i < OF_LAYER; i++) {
        const int mixed = s->experts > 0 && strncmp(matrices[i].name, "ffn_", 4) == 0;
        snprintf(whole, sizeof whole, "%s%s.weight", matrices[i].name, mixed ? "_exps" : "");
        add_matrix(w, in_layer(name, layer, whole), mixed ? s->experts : 0, matrices[i].n_out,
                   matrices[i].n_in, s->types[1 + i], state);
    }
    if (s->experts > 0)
        add_matrix(w, in_layer(name, layer, "ffn_gate_inp.weight"), 0, s->experts, hidden, SB_F32,
                   state);
    add_norm(w, in_layer(name, layer, "attn_norm.weight"), hidden);
    add_norm(w, in_layer(name, layer, "ffn_norm.weight"), hidden);
    if (is_gemma(s)) {
        add_norm(w, in_layer(name, layer, "post_attention_norm.weight"), hidden);
        add_norm(w, in_layer(name, layer, "post_ffw_norm.weight"), hidden);
    }
}

static void write_model(const struct test_dir *dir, const char *file, const struct shape *s,
                        uint64_t state)
{
    struct gguf_writer w = {.alignment = 32};

    add_config(&w, s);
    add_matrix(&w, "token_embd.weight", 0, VOCAB, s->hidden, s->types[0], &state);
    for (int32_t i = 0; i < s->layers; i++)
        add_layer(&w, s, i, &state);
    add_norm(&w, "output_norm.weight", s->hidden);
    add_matrix(&w, "output.weight", 0, VOCAB, s->hidden, s->types[MATRICES - 1], &state);
    gguf_write(&w, dir, file);
}

void random_models_write(const struct test_dir *dir)
{
    static const struct shape target = {
        .arch = "llama",
        .layers = 1,
        .hidden = 256,
        .inter = 256,
        .head_dim = 64,
        .types = {SB_Q5_K, SB_Q4_K, SB_Q4_K, SB_Q6_K, SB_Q4_K, SB_Q5_K, SB_Q4_K, SB_Q6_K, SB_Q6_K}};
    static const struct shape draft = {
        .arch = "llama",
        .layers = 1,
        .hidden = 64,
        .inter = 96,
        .head_dim = 16,
        .types = {SB_Q8_0, SB_Q4_0, SB_Q8_0, SB_F16, SB_Q4_0, SB_Q4_0, SB_Q8_0, SB_Q8_0, SB_Q8_0}};
    static const struct shape mixture = {.arch = "llama",
                                         .layers = 1,
                                         .hidden = 64,
                                         .inter = 96,
                                         .head_dim = 16,
                                         .experts = 6,
                                         .chosen = 2,
                                         .types = {SB_BF16, SB_BF16, SB_Q8_0, SB_BF16, SB_BF16,
                                                   SB_BF16, SB_BF16, SB_MXFP4, SB_BF16}};
    static const struct shape mixed_draft = {
        .arch = "llama",
        .layers = 1,
        .hidden = 64,
        .inter = 32,
        .head_dim = 16,
        .experts = 4,
        .chosen = 1,
        .types = {SB_BF16, SB_Q4_0, SB_Q4_0, SB_F16, SB_Q4_0, SB_Q8_0, SB_MXFP4, SB_F32, SB_Q8_0}};

    static const struct shape capped = {
        .arch = "gemma2",
        .layers = 2,
        .hidden = 64,
        .inter = 96,
        .head_dim = 24,
        .types = {SB_F16, SB_F16, SB_F16, SB_F16, SB_F16, SB_F16, SB_F16, SB_F16, SB_F16}};
    static const struct shape capped_draft = {
        .arch = "gemma2",
        .layers = 1,
        .hidden = 32,
        .inter = 48,
        .head_dim = 16,
        .types = {SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_BF16, SB_BF16}};

    write_model(dir, "quantised.gguf", &target, 1);
    write_model(dir, "quantised.gguf.draft", &draft, 2);
    write_model(dir, "mixture.gguf", &mixture, 3);
    write_model(dir, "mixture.gguf.draft", &mixed_draft, 4);
    write_model(dir, "capped.gguf", &capped, 5);
    write_model(dir, "capped.gguf.draft", &capped_draft, 6);
}
