/* The pair of quantised models; see quantised_model.h. */
#include "support/quantised_model.h"

#include "quant.h"
#include "support/gguf_writer.h"
#include "support/random_blocks.h"

enum { MATRICES = 9, VOCAB = 517, CONTEXT = 512, EOS = 2, HEADS = 4, KV_HEADS = 2 };

/* A model of one layer. */
struct shape {
    int32_t hidden, inter, head_dim;
    int32_t experts, chosen;       /* 0: it has one MLP */
    enum sb_dtype types[MATRICES]; /* in the order of quantised_model.h */
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

static void add_config(struct gguf_writer *w, const struct shape *s)
{
    gguf_key_text(w, "general.architecture", "llama");
    gguf_key_u32(w, "llama.block_count", 1);
    gguf_key_u32(w, "llama.context_length", CONTEXT);
    gguf_key_u32(w, "llama.embedding_length", (uint32_t)s->hidden);
    gguf_key_u32(w, "llama.feed_forward_length", (uint32_t)s->inter);
    gguf_key_u32(w, "llama.attention.head_count", HEADS);
    gguf_key_u32(w, "llama.attention.head_count_kv", KV_HEADS);
    gguf_key_u32(w, "llama.attention.key_length", (uint32_t)s->head_dim);
    gguf_key_u32(w, "llama.attention.value_length", (uint32_t)s->head_dim);
    gguf_key_u32(w, "llama.vocab_size", VOCAB);
    gguf_key_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_key_u32(w, "tokenizer.ggml.eos_token_id", EOS);
    if (s->experts == 0)
        return;
    gguf_key_u32(w, "llama.expert_count", (uint32_t)s->experts);
    gguf_key_u32(w, "llama.expert_used_count", (uint32_t)s->chosen);
}

static void write_model(const struct test_dir *dir, const char *file, const struct shape *s,
                        uint64_t state)
{
    const int32_t hidden = s->hidden, inter = s->inter, q = HEADS * s->head_dim;
    const int32_t kv = KV_HEADS * s->head_dim, experts = s->experts;
    const struct {
        const char *name;
        int32_t n_out, n_in;
    } matrices[MATRICES] = {
        {"token_embd.weight", VOCAB, hidden},    {"blk.0.attn_q.weight", q, hidden},
        {"blk.0.attn_k.weight", kv, hidden},     {"blk.0.attn_v.weight", kv, hidden},
        {"blk.0.attn_output.weight", hidden, q}, {"blk.0.ffn_gate.weight", inter, hidden},
        {"blk.0.ffn_up.weight", inter, hidden},  {"blk.0.ffn_down.weight", hidden, inter},
        {"output.weight", VOCAB, hidden}};
    struct gguf_writer w = {.alignment = 32};
    char name[40];

    add_config(&w, s);
    for (int i = 0; i < MATRICES; i++) {
        const int mixed = experts > 0 && strstr(matrices[i].name, ".ffn_") != NULL;
        snprintf(name, sizeof name, "%.*s%s.weight",
                 (int)(strlen(matrices[i].name) - strlen(".weight")), matrices[i].name,
                 mixed ? "_exps" : "");
        add_matrix(&w, name, mixed ? experts : 0, matrices[i].n_out, matrices[i].n_in, s->types[i],
                   &state);
    }
    if (experts > 0)
        add_matrix(&w, "blk.0.ffn_gate_inp.weight", 0, experts, hidden, SB_F32, &state);
    add_norm(&w, "blk.0.attn_norm.weight", hidden);
    add_norm(&w, "blk.0.ffn_norm.weight", hidden);
    add_norm(&w, "output_norm.weight", hidden);
    gguf_write(&w, dir, file);
}

void quantised_model_write(const struct test_dir *dir)
{
    static const struct shape target = {
        .hidden = 256,
        .inter = 256,
        .head_dim = 64,
        .types = {SB_Q5_K, SB_Q4_K, SB_Q4_K, SB_Q6_K, SB_Q4_K, SB_Q5_K, SB_Q4_K, SB_Q6_K, SB_Q6_K}};
    static const struct shape draft = {
        .hidden = 64,
        .inter = 96,
        .head_dim = 16,
        .types = {SB_Q8_0, SB_Q4_0, SB_Q8_0, SB_F16, SB_Q4_0, SB_Q4_0, SB_Q8_0, SB_Q8_0, SB_Q8_0}};
    static const struct shape mixture = {.hidden = 64,
                                         .inter = 96,
                                         .head_dim = 16,
                                         .experts = 6,
                                         .chosen = 2,
                                         .types = {SB_BF16, SB_BF16, SB_Q8_0, SB_BF16, SB_BF16,
                                                   SB_BF16, SB_BF16, SB_MXFP4, SB_BF16}};
    static const struct shape mixed_draft = {
        .hidden = 64,
        .inter = 32,
        .head_dim = 16,
        .experts = 4,
        .chosen = 1,
        .types = {SB_BF16, SB_Q4_0, SB_Q4_0, SB_F16, SB_Q4_0, SB_Q8_0, SB_MXFP4, SB_F32, SB_Q8_0}};

    write_model(dir, "quantised.gguf", &target, 1);
    write_model(dir, "quantised.gguf.draft", &draft, 2);
    write_model(dir, "mixture.gguf", &mixture, 3);
    write_model(dir, "mixture.gguf.draft", &mixed_draft, 4);
}
