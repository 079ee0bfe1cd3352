/*
 * Models in GGUF files: each checkpoint of the tree, converted here, gives the tokens, the
 * log-probabilities and the digest of its safetensors directory, bit for bit. And what the metadata
 * may say: which configurations they make, and what is refused.
 */
#include "model/model.h"

#include "model/gguf_model.h"
#include "sbtest.h"
#include "support/gguf_convert.h"
#include "support/run_to_end.h"

#define MODELS "test/data/models/"

static const char *const models[] = {
    "emoji",
    "gemma2_bf16",
    "gemma3_bf16",
    "glm4_moe_bf16",
    "glm4_unbiased_bf16",
    "gpt_oss_mxfp4",
    "llama3_scaled_biased_tied_bf16",
    "llama_mha_f16",
    "llama_untied_f32_sharded",
    "llama_untied_f32_sharded.draft",
    "long_qwen3_hd128_bf16",
    "mistral_window_bf16",
    "mixtral_f16",
    "phi3_longrope_f16",
    "qwen2_tied_f32",
    "qwen2_window_f32",
    "qwen3_untied_f32_sharded",
    "qwen3_untied_f32_sharded.draft",
    "qwen3_moe_bf16",
    "qwen3_yarn_f32",
    "smollm3_bf16",
};
enum { N_MODELS = sizeof models / sizeof *models };

/* -------------------------------------------------------------------------- generating */

enum { PROMPTS = 3, MAX_NEW = 24 };

struct generated {
    int32_t tokens[PROMPTS][MAX_NEW];
    float logprobs[PROMPTS][MAX_NEW];
    size_t n[PROMPTS];
    char digest[SB_DIGEST_TEXT];
};

static int32_t generate(struct generated *g, const char *path, int32_t compute)
{
    static const int32_t prompt[] = {5, 17, 30, 41, 5, 9, 21, 33, 40, 2, 11, 50};
    specbatch_model_options as = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_result *result = NULL;
    specbatch_model *model = NULL;
    specbatch_pool *pool = NULL;
    uint64_t id;
    int32_t rc = SPECBATCH_OK;

    memset(g, 0, sizeof *g);
    as.compute = compute;
    options.policy = SPECBATCH_POLICY_PLAIN;
    options.batch = PROMPTS;
    options.max_len = 64;
    options.n_threads = 1;
    request.flags = SPECBATCH_REQUEST_LOGPROBS;
    request.ids = prompt;
    request.max_new = MAX_NEW;
    if ((rc = specbatch_model_open(&model, path, &as)) == SPECBATCH_OK)
        rc = specbatch_pool_create(&pool, model, NULL, &options);
    for (int i = 0; rc == SPECBATCH_OK && i < PROMPTS; i++) {
        request.n_ids = 1 + 5 * (size_t)i;
        rc = specbatch_pool_submit(pool, &request, &id);
    }
    rc = rc == SPECBATCH_OK ? run_to_end(pool) : rc;
    while (rc == SPECBATCH_OK && specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
        const size_t i = (size_t)(specbatch_result_id(result) - id) + PROMPTS - 1;
        const int32_t *tokens = specbatch_result_tokens(result, &g->n[i]);
        memcpy(g->tokens[i], tokens, g->n[i] * sizeof *tokens);
        memcpy(g->logprobs[i], specbatch_result_logprobs(result, NULL), g->n[i] * sizeof(float));
        specbatch_result_free(result);
    }
    snprintf(g->digest, sizeof g->digest, "%s", specbatch_model_digest(model));
    specbatch_pool_free(pool);
    specbatch_model_close(model);
    return rc;
}

static int same_output(const struct generated *a, const struct generated *b)
{
    return memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0 &&
           memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) == 0 &&
           memcmp(a->n, b->n, sizeof a->n) == 0;
}

/* Writes a checkpoint as model.gguf. */
static int write_gguf(const struct test_dir *dir, const char *from, enum sb_dtype dtype,
                      unsigned flags)
{
    struct gguf_writer w = {.alignment = 32};
    const int good = convert_model(&w, from, dtype, flags);

    gguf_write(&w, dir, "model.gguf");
    return good;
}

/* One checkpoint in one type and one class: as llama.cpp writes it, and with vectors of that type
 * too. Where the weights of norms have 1 added in a GGUF file, other bytes are read, and only f32
 * holds them. */
static void compare(const char *from, enum sb_dtype dtype, int32_t compute)
{
    const int is_shifted = strstr(from, "gemma") != NULL;
    static struct generated expected, got;
    const struct test_dir dir = test_dir_make();
    char path[128];

    snprintf(path, sizeof path, "%s/model.gguf", dir.path);
    CHECK(convert_safetensors(&dir, from, dtype));
    CHECK_OK(generate(&expected, dir.path, compute));
    CHECK(expected.n[0] > 0);
    CHECK(write_gguf(&dir, from, dtype, 0));
    CHECK_OK(generate(&got, path, compute));
    CHECK(same_output(&got, &expected));
    CHECK_INT(strcmp(got.digest, expected.digest) == 0, dtype == SB_F32 && !is_shifted);
    if (is_shifted) {
        test_dir_remove(&dir);
        return;
    }
    CHECK(write_gguf(&dir, from, dtype, CONVERT_VECTORS));
    CHECK_OK(generate(&got, path, compute));
    CHECK(same_output(&got, &expected));
    CHECK_STR(got.digest, expected.digest);
    test_dir_remove(&dir);
}

/* In each class: a GGUF file has some of its tensors in another type than the folder. */
static void both_containers_give_the_same_bits(void)
{
    char from[128];

    for (int i = 0; i < N_MODELS && !sbtest_failed_now; i++)
        for (int at = 0; at < 9 && !sbtest_failed_now; at++) {
            const int32_t compute = SPECBATCH_COMPUTE_BF16 + at / 3;
            snprintf(from, sizeof from, MODELS "%s", models[i]);
            compare(from, (enum sb_dtype)(SB_F32 + at % 3), compute);
            if (sbtest_failed_now)
                printf("     %s, type %d, class %d\n", from, SB_F32 + at % 3, (int)compute);
        }
}

/* A file of Llama whose rows are not permuted must give something else; that shows that the rows
 * are put back, and that the comparison above would see it if they were not. Architectures whose
 * rows stay as they are would differ in the same way if they were moved. */
static void the_permutation_matters(void)
{
    static struct generated expected, got;
    const struct test_dir dir = test_dir_make();
    char path[128];

    snprintf(path, sizeof path, "%s/model.gguf", dir.path);
    for (int i = 0; i < N_MODELS; i++) {
        char from[128];
        if (strncmp(models[i], "llama", 5) != 0)
            continue;
        snprintf(from, sizeof from, MODELS "%s", models[i]);
        CHECK_OK(generate(&expected, from, SPECBATCH_COMPUTE_AUTO));
        CHECK(write_gguf(&dir, from, SB_F32, CONVERT_UNPERMUTED | CONVERT_VECTORS));
        CHECK_OK(generate(&got, path, SPECBATCH_COMPUTE_AUTO));
        CHECK(!same_output(&got, &expected));
    }
    test_dir_remove(&dir);
}

/* ------------------------------------------------------------------- what metadata mean */

/* A configuration of Llama that can be read; more keys and tensors may follow. */
static struct gguf_writer config_of(const char *arch, uint32_t layers)
{
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"block_count", layers},     {"context_length", 64},
                   {"embedding_length", 64},    {"feed_forward_length", 12},
                   {"attention.head_count", 2}, {"attention.head_count_kv", 1},
                   {"vocab_size", 70}};
    struct gguf_writer w = {.alignment = 32};
    char key[80];

    gguf_key_text(&w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, numbers[i].name);
        gguf_key_u32(&w, key, numbers[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_key_f32(&w, key, 1e-6f);
    return w;
}

static struct gguf_writer small_config(const char *arch)
{
    return config_of(arch, 1);
}

static int32_t read_config(struct sb_config *config, struct gguf_writer *w)
{
    const struct sb_log silence = {NULL, NULL};
    const struct test_dir dir = test_dir_make();
    struct sb_gguf *gguf = NULL;
    char path[128];
    int32_t rc;

    snprintf(path, sizeof path, "%s/model.gguf", dir.path);
    gguf_write(w, &dir, "model.gguf");
    rc = sb_gguf_open(&gguf, &test_mem, path);
    if (rc == SPECBATCH_OK)
        rc = sb_gguf_config(config, &silence, gguf);
    sb_gguf_close(gguf);
    test_dir_remove(&dir);
    return rc;
}

static void reads_numbers(void)
{
    struct gguf_writer w = small_config("llama");
    struct sb_config c;

    gguf_key(&w, "llama.rope.freq_base", SB_GGUF_F64);
    gguf_add_number(&w.keys, 0x411e848000000000u, 8); /* 500000 */
    gguf_key(&w, "llama.attention.value_length", SB_GGUF_U64);
    gguf_add_number(&w.keys, 32, 8);
    gguf_key_u32(&w, "llama.expert_count", 0);
    gguf_key_u32(&w, "tokenizer.ggml.eos_token_id", 7);
    gguf_key_u32(&w, "tokenizer.ggml.eot_token_id", 9);
    gguf_key_u32(&w, "tokenizer.ggml.eom_token_id", 7);
    CHECK_OK(read_config(&c, &w));
    CHECK_STR(c.arch->model_type, "llama");
    CHECK_INT(c.vocab, 70);
    CHECK_INT(c.head_dim, 32);
    CHECK_INT(c.kv_heads, 1);
    CHECK_INT(c.rope.rot_dim, 32);
    CHECK(c.eps == 1e-6 && c.rope.theta == 500000.0 && c.rope.kind == SB_ROPE_DEFAULT);
    CHECK(c.tied && !c.has_qkv_bias && !c.has_o_bias && !c.has_mlp_bias);
    CHECK_INT(c.n_eos, 2);
    CHECK_INT(c.eos[0], 7);
    CHECK_INT(c.eos[1], 9);
    CHECK_INT(c.bos, -1);
}

/* What a family's generation_config.json has, and a GGUF file has not. */
static void ends_of_families(void)
{
    static const struct {
        const char *tokens[4];
        uint32_t eos, eot; /* eot 0: none */
        int32_t n, expected[3];
    } cases[] = {
        {{"a", "<|endoftext|>", "<|im_end|>", "b"}, 2, 0, 2, {2, 1}},
        {{"a", "<|endoftext|>", "<|im_end|>", "b"}, 1, 0, 1, {1}},
        {{"a", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"}, 3, 0, 3, {3, 1, 2}},
        {{"a", "<|endoftext|>", "<|user|>", "<|observation|>"}, 1, 2, 3, {1, 2, 3}},
        {{"a", "<|endoftext|>", "<|end|>", "<|assistant|>"}, 1, 0, 2, {1, 2}},
        {{"a", "</s>", "b", "c"}, 1, 0, 1, {1}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = small_config("qwen2");
        struct sb_config c;
        gguf_key_array(&w, "tokenizer.ggml.tokens", SB_GGUF_STRING, 4);
        for (int t = 0; t < 4; t++)
            gguf_add_text(&w.keys, cases[i].tokens[t], strlen(cases[i].tokens[t]));
        gguf_key_u32(&w, "tokenizer.ggml.eos_token_id", cases[i].eos);
        if (cases[i].eot)
            gguf_key_u32(&w, "tokenizer.ggml.eot_token_id", cases[i].eot);
        CHECK_OK(read_config(&c, &w));
        CHECK_INT(c.vocab, 4);
        CHECK_INT(c.n_eos, cases[i].n);
        CHECK_MEM(c.eos, cases[i].expected, (size_t)c.n_eos * sizeof *c.eos);
    }
}

/* One more key, or another value of a key, that must be refused. */
static void refuses_metadata(void)
{
    static const struct {
        const char *key, *text; /* text NULL: the number */
        uint32_t number;
        int32_t code;
        const char *part;
    } cases[] = {
        {"llama.expert_count", NULL, 8, SPECBATCH_E_FORMAT, "expert_used_count is missing"},
        {"llama.expert_count", NULL, 5000, SPECBATCH_E_FORMAT, "expert_count is not an integer"},
        {"llama.expert_shared_count", NULL, 1, SPECBATCH_E_UNSUPPORTED, "expert_shared_count"},
        {"llama.expert_feed_forward_length", NULL, 8, SPECBATCH_E_UNSUPPORTED, "feed_forward"},
        {"llama.attention.scale", NULL, 1, SPECBATCH_E_UNSUPPORTED, "attention.scale"},
        {"llama.rope.freq_base_swa", NULL, 100, SPECBATCH_E_UNSUPPORTED, "freq_base_swa"},
        {"llama.rope.scaling.attn_factor", NULL, 2, SPECBATCH_E_UNSUPPORTED, "attn_factor"},
        {"llama.tensor_data_layout", "Meta AI original pth", 0, SPECBATCH_E_UNSUPPORTED, "layout"},
        {"llama.rope.scaling.type", "dynamic", 0, SPECBATCH_E_UNSUPPORTED, "scaling.type"},
        {"llama.rope.scaling.type", "linear", 0, SPECBATCH_E_FORMAT, "scaling.factor is missing"},
        {"llama.rope.dimension_count", NULL, 16, SPECBATCH_E_UNSUPPORTED, "dimension_count 16"},
        {"llama.rope.dimension_count", NULL, 33, SPECBATCH_E_FORMAT, "dimension_count"},
        {"llama.attention.key_length", NULL, 9000, SPECBATCH_E_FORMAT, "key_length"},
        {"llama.attention.value_length", NULL, 16, SPECBATCH_E_UNSUPPORTED, "value_length 16"},
        {"llama.rope.freq_base", NULL, 1, SPECBATCH_E_FORMAT, "freq_base"},
        {"llama.rope.freq_base", "much", 0, SPECBATCH_E_FORMAT, "freq_base"},
        {"general.type", "adapter", 0, SPECBATCH_E_UNSUPPORTED, "adapter"},
        {"general.type", NULL, 3, SPECBATCH_E_FORMAT, "general.type"},
        {"tokenizer.ggml.eos_token_id", NULL, 70, SPECBATCH_E_FORMAT, "eos_token_id"},
        {"tokenizer.ggml.bos_token_id", "x", 0, SPECBATCH_E_FORMAT, "bos_token_id"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = small_config("llama");
        struct sb_config c;
        if (cases[i].text)
            gguf_key_text(&w, cases[i].key, cases[i].text);
        else
            gguf_key_u32(&w, cases[i].key, cases[i].number);
        CHECK_ERROR(read_config(&c, &w), cases[i].code, cases[i].part);
    }
}

/* Files of Llama that have a window are Mistral's. longrope has its numbers in a tensor of divisors
 * and two keys, of which the tensor decides. */
static void reads_windows_and_longrope(void)
{
    const int64_t half = 16, fewer = 15;
    float divisors[16];
    struct gguf_writer w = small_config("phi3");
    struct sb_config c;

    gguf_key_u32(&w, "phi3.attention.sliding_window", 40);
    CHECK_OK(read_config(&c, &w));
    CHECK_INT(c.context, 64);
    CHECK_INT(c.window, 40);
    CHECK(c.is_local[0] == 1);
    CHECK_INT(c.rope.kind, SB_ROPE_DEFAULT);
    w = small_config("llama");
    gguf_key_u32(&w, "llama.attention.sliding_window", 40);
    CHECK_OK(read_config(&c, &w));
    CHECK_STR(c.arch->model_type, "mistral");
    CHECK_INT(c.window, 40);
    w = small_config("qwen3");
    gguf_key_u32(&w, "qwen3.attention.sliding_window", 64); /* the context */
    CHECK_OK(read_config(&c, &w));
    CHECK(c.window == 0 && c.is_local[0] == 0);
    w = small_config("glm4");
    gguf_key_u32(&w, "glm4.attention.sliding_window", 40);
    CHECK_ERROR(read_config(&c, &w), SPECBATCH_E_UNSUPPORTED, "sliding_window is not supported");

    for (int i = 0; i < 16; i++)
        divisors[i] = 1.0f + (float)i / 8.0f;
    w = small_config("phi3");
    gguf_key_u32(&w, "phi3.attention.sliding_window", 0);
    gguf_key_u32(&w, "phi3.rope.scaling.original_context_length", 50);
    gguf_key_f32(&w, "phi3.rope.scaling.attn_factor", 1.25f);
    gguf_tensor(&w, "rope_factors_short.weight", 1, &half, GGUF_F32, divisors, sizeof divisors);
    CHECK_OK(read_config(&c, &w));
    CHECK_INT(c.context, 50);
    CHECK_INT(c.rope.kind, SB_ROPE_LONGROPE);
    CHECK(c.rope.attention_factor == 1.25 && c.rope.divisors[15] == divisors[15]);

    w = small_config("phi3");
    gguf_tensor(&w, "rope_factors_short.weight", 1, &half, GGUF_F32, divisors, sizeof divisors);
    CHECK_ERROR(read_config(&c, &w), SPECBATCH_E_FORMAT, "original_context_length is missing");
    w = small_config("phi3");
    gguf_tensor(&w, "rope_factors_short.weight", 1, &fewer, GGUF_F32, divisors,
                sizeof *divisors * 15);
    CHECK_ERROR(read_config(&c, &w), SPECBATCH_E_FORMAT, "is not of 16 numbers of type F32");
    divisors[3] = NAN;
    w = small_config("phi3");
    gguf_tensor(&w, "rope_factors_short.weight", 1, &half, GGUF_F32, divisors, sizeof divisors);
    CHECK_ERROR(read_config(&c, &w), SPECBATCH_E_FORMAT, "a number that is not from");
}

/* Files of Gemma 2 may say nothing of their window and soft caps, and say nothing of what scores
 * are divided by: the model of 27B has another number than the smaller ones. */
static void reads_gemma2(void)
{
    struct gguf_writer w = config_of("gemma2", 46);
    struct sb_config c;

    gguf_key_u32(&w, "gemma2.attention.key_length", 16);
    CHECK_OK(read_config(&c, &w));
    CHECK(c.score_cap == 50.0 && c.logit_cap == 30.0 && c.query_scalar == 32.0);
    CHECK_INT(c.window, 0); /* 4096 is more than the context */
    w = small_config("gemma2");
    gguf_key_u32(&w, "gemma2.attention.key_length", 16);
    gguf_key_u32(&w, "gemma2.attention.sliding_window", 40);
    gguf_key_f32(&w, "gemma2.attn_logit_softcapping", 0.0f);
    gguf_key_f32(&w, "gemma2.final_logit_softcapping", 12.5f);
    CHECK_OK(read_config(&c, &w));
    CHECK(c.score_cap == 0.0 && c.logit_cap == 12.5 && c.query_scalar == 16.0);
    CHECK(c.window == 40 && c.is_local[0] == 1);
    w = small_config("gemma2");
    gguf_key_f32(&w, "gemma2.attn_logit_softcapping", -1.0f);
    CHECK_ERROR(read_config(&c, &w), SPECBATCH_E_FORMAT, "attn_logit_softcapping is not a number");
    w = small_config("gemma3");
    gguf_key_f32(&w, "gemma3.final_logit_softcapping", 30.0f);
    CHECK_ERROR(read_config(&c, &w), SPECBATCH_E_UNSUPPORTED, "softcapping is not supported");
}

/* A configuration of an architecture whose files may have experts: n of them, of which some are
 * chosen, each of `inter` columns (0: there is no key of that). */
static struct gguf_writer layers_config(const char *arch, uint32_t layers, uint32_t n,
                                        uint32_t chosen, uint32_t inter)
{
    struct gguf_writer w = config_of(arch, layers);
    char key[80];

    snprintf(key, sizeof key, "%s.expert_count", arch);
    gguf_key_u32(&w, key, n);
    snprintf(key, sizeof key, "%s.expert_used_count", arch);
    gguf_key_u32(&w, key, chosen);
    snprintf(key, sizeof key, "%s.expert_feed_forward_length", arch);
    if (inter > 0)
        gguf_key_u32(&w, key, inter);
    return w;
}

static struct gguf_writer mixture_config(const char *arch, uint32_t n, uint32_t chosen,
                                         uint32_t inter)
{
    return layers_config(arch, 1, n, chosen, inter);
}

/* Files of Llama that have experts are Mixtral's, whose experts are as wide as an MLP. */
static void reads_experts(void)
{
    struct gguf_writer w = mixture_config("qwen3moe", 6, 2, 40);
    struct sb_config c;

    CHECK_OK(read_config(&c, &w));
    CHECK_STR(c.arch->model_type, "qwen3_moe");
    CHECK(c.experts == 6 && c.chosen == 2 && c.renormalises == 1 && c.inter == 40);
    w = mixture_config("llama", 6, 6, 0);
    CHECK_OK(read_config(&c, &w));
    CHECK_STR(c.arch->model_type, "mixtral");
    CHECK(c.experts == 6 && c.chosen == 6 && c.renormalises == 1 && c.inter == 12);
    CHECK_INT(c.window, 0);
    w = mixture_config("llama", 6, 2, 0);
    gguf_key_u32(&w, "llama.attention.sliding_window", 40);
    CHECK_OK(read_config(&c, &w));
    CHECK_STR(c.arch->model_type, "mixtral");
    CHECK_INT(c.window, 40);
    w = mixture_config("gpt-oss", 6, 2, 40);
    gguf_key_u32(&w, "gpt-oss.attention.sliding_window", 40);
    gguf_key_text(&w, "gpt-oss.rope.scaling.type", "yarn");
    gguf_key_f32(&w, "gpt-oss.rope.scaling.factor", 4.0f);
    gguf_key_u32(&w, "gpt-oss.rope.scaling.original_context_length", 16);
    CHECK_OK(read_config(&c, &w));
    CHECK_STR(c.arch->model_type, "gpt_oss");
    CHECK(c.experts == 6 && c.chosen == 2 && c.renormalises == 1 && c.inter == 40);
    CHECK(c.window == 40 && c.is_local[0] && !c.rope.truncate && c.has_mlp_bias);
    w = mixture_config("qwen3", 0, 0, 0);
    CHECK_OK(read_config(&c, &w));
    CHECK(c.experts == 0 && c.chosen == 0 && c.inter == 12);
}

/* Files of GLM say what there is beside the experts that are chosen, and count the layers too that
 * predict further tokens. */
static void reads_other_experts(void)
{
    struct gguf_writer w = layers_config("glm4moe", 4, 6, 2, 40);
    struct sb_config c;

    CHECK_OK(read_config(&c, &w));
    CHECK_STR(c.arch->model_type, "glm4_moe");
    CHECK_INT(c.layers, 4);
    CHECK(c.has_shared == 1 && c.dense_layers == 1 && c.dense_inter == 12 && c.inter == 40);
    CHECK(c.expert_scale == 1.0 && c.renormalises == 1 && !c.has_head_norms);
    w = layers_config("glm4moe", 4, 6, 2, 40);
    gguf_key_u32(&w, "glm4moe.expert_shared_count", 0);
    gguf_key_u32(&w, "glm4moe.leading_dense_block_count", 0);
    gguf_key_u32(&w, "glm4moe.nextn_predict_layers", 1);
    gguf_key_u32(&w, "glm4moe.expert_gating_func", 2);
    gguf_key_u32(&w, "glm4moe.expert_group_count", 1);
    gguf_key_u32(&w, "glm4moe.expert_group_used_count", 1);
    gguf_key_f32(&w, "glm4moe.expert_weights_scale", 2.5f);
    gguf_key_flag(&w, "glm4moe.expert_weights_norm", 0);
    CHECK_OK(read_config(&c, &w));
    CHECK(c.has_shared == 0 && c.dense_layers == 0 && c.layers == 3);
    CHECK(c.expert_scale == 2.5 && c.renormalises == 0);
}

/* A file of GLM with one more key. */
static struct gguf_writer glm_config(const char *key, uint32_t value)
{
    struct gguf_writer w = mixture_config("glm4moe", 6, 2, 40);

    gguf_key_u32(&w, key, value);
    return w;
}

static void refuses_experts(void)
{
    const struct {
        struct gguf_writer w;
        int32_t code;
        const char *part;
    } cases[] = {
        {small_config("qwen3moe"), SPECBATCH_E_UNSUPPORTED,
         "general.architecture \"qwen3moe\" is not supported without experts (expert_count)"},
        {mixture_config("qwen3moe", 0, 2, 40), SPECBATCH_E_UNSUPPORTED, "without experts"},
        {mixture_config("qwen2", 6, 2, 0), SPECBATCH_E_UNSUPPORTED,
         "general.architecture \"qwen2\" is not supported with experts (expert_count)"},
        {mixture_config("qwen2moe", 6, 2, 40), SPECBATCH_E_UNSUPPORTED,
         "general.architecture \"qwen2moe\" is not supported; supported: llama"},
        {mixture_config("qwen3moe", 6, 2, 0), SPECBATCH_E_FORMAT,
         "qwen3moe.expert_feed_forward_length is missing"},
        {mixture_config("qwen3moe", 6, 7, 40), SPECBATCH_E_FORMAT,
         "qwen3moe.expert_used_count is not an integer from 1 to 6"},
        {mixture_config("qwen3moe", 6, 0, 40), SPECBATCH_E_FORMAT, "expert_used_count is not"},
        {mixture_config("qwen3moe", 4097, 2, 40), SPECBATCH_E_FORMAT,
         "qwen3moe.expert_count is not an integer from 1 to 4096"},
        {mixture_config("qwen3moe", 6, 2, 5000000), SPECBATCH_E_FORMAT,
         "expert_feed_forward_length is not an integer from 1"},
        {mixture_config("llama", 6, 2, 40), SPECBATCH_E_UNSUPPORTED,
         "llama.expert_feed_forward_length is not supported"},
        {glm_config("glm4moe.expert_gating_func", 1), SPECBATCH_E_UNSUPPORTED,
         "glm4moe.expert_gating_func 1 is not supported, only 2"},
        {glm_config("glm4moe.expert_shared_count", 2), SPECBATCH_E_FORMAT,
         "glm4moe.expert_shared_count is not an integer from 0 to 1"},
        {glm_config("glm4moe.nextn_predict_layers", 4000), SPECBATCH_E_FORMAT,
         "glm4moe.nextn_predict_layers is not an integer from 0"},
        {glm_config("glm4moe.leading_dense_block_count", 4000), SPECBATCH_E_FORMAT,
         "glm4moe.leading_dense_block_count is not an integer from 0"},
        {glm_config("glm4moe.expert_group_count", 8), SPECBATCH_E_UNSUPPORTED,
         "glm4moe.expert_group_count 8: groups of experts are not supported"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = cases[i].w;
        struct sb_config c;
        CHECK_ERROR(read_config(&c, &w), cases[i].code, cases[i].part);
    }
}

static void refuses_other_models(void)
{
    struct gguf_writer w = small_config("mamba");
    struct sb_config c;

    CHECK_ERROR(read_config(&c, &w), SPECBATCH_E_UNSUPPORTED,
                "general.architecture \"mamba\" is not supported; supported: llama, qwen2");
    w = (struct gguf_writer){.alignment = 32};
    gguf_key_text(&w, "general.architecture", "llama");
    CHECK_ERROR(read_config(&c, &w), SPECBATCH_E_FORMAT, "llama.embedding_length is missing");
    w = small_config("llama");
    gguf_key_flag(&w, "llama.attention.causal", 0);
    CHECK_ERROR(read_config(&c, &w), SPECBATCH_E_UNSUPPORTED, "llama.attention.causal is false");
}

/* rope_freqs.weight: the numbers that it was made from are found, or it is refused. */
static void finds_the_scaling_of_llama3(void)
{
    enum { HALF = 16 };
    const int64_t half = HALF, wrong = HALF - 1;
    float divisors[HALF];
    struct sb_config c;
    struct gguf_writer w = small_config("llama");

    for (int i = 0; i < HALF; i++) { /* factor 32, contexts of 1, 4 and 8192; theta 10000 */
        const double smooth = (8192.0 / (6.283185307179586 * pow(10000.0, i / 16.0)) - 1.0) / 3.0;
        divisors[i] = smooth >= 1.0   ? 1.0f
                      : smooth <= 0.0 ? 32.0f
                                      : (float)(1.0 / ((1.0 - smooth) / 32.0 + smooth));
    }
    gguf_tensor(&w, "rope_freqs.weight", 1, &half, GGUF_F32, divisors, sizeof divisors);
    CHECK_OK(read_config(&c, &w));
    CHECK_INT(c.rope.kind, SB_ROPE_LLAMA3);
    CHECK(c.rope.factor == 32.0 && c.rope.low_freq == 1.0 && c.rope.high_freq == 4.0);
    CHECK(c.rope.original_context == 8192.0);

    divisors[HALF / 2 + 4] *= 1.01f;
    w = small_config("llama");
    gguf_tensor(&w, "rope_freqs.weight", 1, &half, GGUF_F32, divisors, sizeof divisors);
    CHECK_ERROR(read_config(&c, &w), SPECBATCH_E_UNSUPPORTED, "rope_freqs.weight is not");
    w = small_config("llama");
    gguf_tensor(&w, "rope_freqs.weight", 1, &wrong, GGUF_F32, divisors, sizeof divisors - 4);
    CHECK_ERROR(read_config(&c, &w), SPECBATCH_E_FORMAT, "rope_freqs.weight is not of 16");
    for (int i = 0; i < HALF; i++)
        divisors[i] = 1.0f;
    w = small_config("llama");
    gguf_tensor(&w, "rope_freqs.weight", 1, &half, GGUF_F32, divisors, sizeof divisors);
    CHECK_OK(read_config(&c, &w));
    CHECK_INT(c.rope.kind, SB_ROPE_DEFAULT);
}

/* --------------------------------------------------------------------- opening a model */

static int32_t open_file(const struct test_dir *dir, const char *name)
{
    const specbatch_model_options defaults = SPECBATCH_MODEL_OPTIONS_INIT;
    struct specbatch_model *model = NULL;
    char path[128];
    int32_t rc;

    snprintf(path, sizeof path, "%s/%s", dir->path, name);
    rc = sb_model_open(&model, path, &defaults);
    sb_model_release(model);
    return rc;
}

/* A tensor of a type that is not supported, a missing one, one of another shape: the message has
 * the file's own names. */
static void names_tensors_as_the_file_does(void)
{
    static const unsigned char zeros[70 * 64 * 4];
    const struct test_dir dir = test_dir_make();
    struct gguf_writer w = small_config("llama");

    gguf_tensor(&w, "token_embd.weight", 2, (int64_t[]){70, 64}, 3, zeros, 70 * 2 * 20);
    gguf_write(&w, &dir, "model.gguf");
    CHECK_ERROR(open_file(&dir, "model.gguf"), SPECBATCH_E_UNSUPPORTED,
                "model.gguf: tensor token_embd.weight has dtype Q4_1; supported: F32, BF16, F16, "
                "Q8_0, Q4_0, Q4_K, Q5_K, Q6_K, MXFP4");
    w = small_config("llama");
    gguf_tensor(&w, "token_embd.weight", 2, (int64_t[]){69, 64}, GGUF_F32, zeros, 69 * 64 * 4);
    gguf_write(&w, &dir, "model.gguf");
    CHECK_ERROR(open_file(&dir, "model.gguf"), SPECBATCH_E_FORMAT,
                "token_embd.weight has shape [69, 64], the metadata calls for [70, 64]");
    w = small_config("llama");
    gguf_tensor(&w, "token_embd.weight", 2, (int64_t[]){70, 64}, GGUF_F32, zeros, 70 * 64 * 4);
    gguf_write(&w, &dir, "model.gguf");
    CHECK_ERROR(open_file(&dir, "model.gguf"), SPECBATCH_E_FORMAT,
                "tensor output_norm.weight is missing, and the metadata calls for it");
    w = small_config("llama");
    gguf_tensor(&w, "blk.0.attn_q.weight", 2, (int64_t[]){33, 2}, GGUF_F32, zeros, 33 * 2 * 4);
    gguf_write(&w, &dir, "model.gguf");
    CHECK_ERROR(open_file(&dir, "model.gguf"), SPECBATCH_E_FORMAT,
                "blk.0.attn_q.weight has rows that are not heads of 32");
    CHECK_ERROR(open_file(&dir, "other.gguf"), SPECBATCH_E_IO, "neither a directory nor a GGUF");
    test_dir_remove(&dir);
}

/* A whole file of Mixtral, of one layer and 7 experts, whose last tensor is
 * blk.0.ffn_up_exps.weight. It has n bytes of data. */
static struct gguf_writer file_of_experts(const int64_t up[3], uint32_t type, size_t n)
{
    static const unsigned char zeros[7 * 12 * 64 * 4];
    static const struct {
        const char *name;
        int32_t rank;
        int64_t shape[3];
    } others[] = {{"token_embd.weight", 2, {70, 64}},
                  {"output_norm.weight", 1, {64}},
                  {"blk.0.attn_norm.weight", 1, {64}},
                  {"blk.0.ffn_norm.weight", 1, {64}},
                  {"blk.0.attn_q.weight", 2, {64, 64}},
                  {"blk.0.attn_k.weight", 2, {32, 64}},
                  {"blk.0.attn_v.weight", 2, {32, 64}},
                  {"blk.0.attn_output.weight", 2, {64, 64}},
                  {"blk.0.ffn_gate_inp.weight", 2, {7, 64}},
                  {"blk.0.ffn_gate_exps.weight", 3, {7, 12, 64}},
                  {"blk.0.ffn_down_exps.weight", 3, {7, 64, 12}}};
    struct gguf_writer w = mixture_config("llama", 7, 2, 0);

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int64_t elements = 1;
        for (int32_t d = 0; d < others[i].rank; d++)
            elements *= others[i].shape[d];
        gguf_tensor(&w, others[i].name, others[i].rank, others[i].shape, GGUF_F32, zeros,
                    (size_t)elements * 4);
    }
    gguf_tensor(&w, "blk.0.ffn_up_exps.weight", 3, up, type, zeros, n);
    return w;
}

/* A tensor of experts in shapes that are not that of the metadata, [7, 12, 64]. */
static void refuses_tensors_of_experts(void)
{
    static const struct {
        int64_t shape[3];
        uint32_t type;
        size_t n;
        const char *part;
    } cases[] = {
        {{6, 12, 64}, GGUF_F32, 6 * 12 * 64 * 4, "has shape [6, 12, 64], the metadata calls for"},
        {{8, 1, 1}, GGUF_F32, 32, "has shape [8, 1, 1], the metadata calls for [7, 12, 64]"},
        {{0, 12, 64}, GGUF_F32, 0, "has shape [0, 12, 64]"},
        {{INT64_C(1) << 40, 1, 0}, GGUF_F32, 0, "has shape [1099511627776, 1, 0]"},
        {{7, 64, 12}, GGUF_F32, 7 * 12 * 64 * 4, "has shape [7, 64, 12]"},
        {{7, 0, 64}, GGUF_F32, 0, "has shape [7, 0, 64]"},
        {{7, 12, 0}, GGUF_F32, 0, "model.gguf: tensor blk.0.ffn_up_exps.weight has shape [7"},
        {{7, INT64_C(1) << 61, 64}, GGUF_F32, 0, "blk.0.ffn_up_exps.weight: shape overflows"},
        {{7, INT64_C(1) << 40, 64}, GGUF_F32, 64, "blk.0.ffn_up_exps.weight: ends beyond"},
        {{7, 12, 64}, GGUF_F32, 7 * 12 * 64, "blk.0.ffn_up_exps.weight: ends beyond"},
        {{7, 12, 33}, GGUF_Q8_0, 64, "rows of 33 elements are not blocks of Q8_0"},
        {{7, 12, 96}, GGUF_Q8_0, 7 * 12 * 3 * 34, "has shape [7, 12, 96]"},
    };
    static const unsigned char zeros[7 * 12 * 64 * 4];
    const int64_t right[3] = {7, 12, 64};
    const struct test_dir dir = test_dir_make();
    struct gguf_writer w = file_of_experts(right, GGUF_F32, 7 * 12 * 64 * 4);

    gguf_write(&w, &dir, "model.gguf");
    CHECK_OK(open_file(&dir, "model.gguf"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        w = file_of_experts(cases[i].shape, cases[i].type, cases[i].n);
        gguf_write(&w, &dir, "model.gguf");
        CHECK_ERROR(open_file(&dir, "model.gguf"), SPECBATCH_E_FORMAT, cases[i].part);
    }
    w = mixture_config("llama", 7, 2, 0);
    gguf_tensor(&w, "blk.0.ffn_up_exps.weight", 2, (int64_t[]){7, 4}, GGUF_F32, zeros, 7 * 4 * 4);
    gguf_write(&w, &dir, "model.gguf");
    CHECK_ERROR(open_file(&dir, "model.gguf"), SPECBATCH_E_FORMAT,
                "tensor blk.0.ffn_up_exps.weight has 2 dimensions; one of experts has 3");
    w = mixture_config("gpt-oss", 7, 2, 12);
    gguf_tensor(&w, "blk.0.ffn_up_exps.bias", 1, (int64_t[]){7 * 12}, GGUF_F32, zeros, 7 * 12 * 4);
    gguf_write(&w, &dir, "model.gguf");
    CHECK_ERROR(open_file(&dir, "model.gguf"), SPECBATCH_E_FORMAT,
                "tensor blk.0.ffn_up_exps.bias has 1 dimensions; one of experts has 2");
    w = mixture_config("gpt-oss", 7, 2, 12);
    gguf_tensor(&w, "blk.0.ffn_up_exps.bias", 2, (int64_t[]){12, 7}, GGUF_F32, zeros, 7 * 12 * 4);
    gguf_write(&w, &dir, "model.gguf");
    CHECK_ERROR(open_file(&dir, "model.gguf"), SPECBATCH_E_FORMAT,
                "tensor blk.0.ffn_up_exps.bias has shape [12, 7, ");
    w = mixture_config("llama", 7, 2, 0);
    gguf_tensor(&w, "blk.0.ffn_up.3.weight", 2, (int64_t[]){7, 4}, GGUF_F32, zeros, 7 * 4 * 4);
    gguf_write(&w, &dir, "model.gguf");
    CHECK_ERROR(open_file(&dir, "model.gguf"), SPECBATCH_E_FORMAT,
                "no tensor is of a layer's experts, as blk.0.ffn_up_exps.weight is");
    w = mixture_config("llama", 7, 2, 0); /* a name that one of the experts has */
    gguf_tensor(&w, "blk.0.ffn_up_exps.weight", 3, right, GGUF_F32, zeros, 7 * 12 * 64 * 4);
    gguf_tensor(&w, "blk.0.ffn_up_exps.6.weight", 1, (int64_t[]){2}, GGUF_F32, zeros, 8);
    gguf_write(&w, &dir, "model.gguf");
    CHECK_ERROR(open_file(&dir, "model.gguf"), SPECBATCH_E_FORMAT, "blk.0.ffn_up_exps.6.weight");
    test_dir_remove(&dir);
}

/* The whole of opening a model, with every allocation failing in turn. */
static void fail_each_allocation(const char *path)
{
    struct test_memory memory = {0, 0, 0};
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *model = NULL;
    int32_t rc = SPECBATCH_E_NOMEM;

    options.alloc = test_memory_alloc;
    options.free = test_memory_free;
    options.alloc_user = &memory;
    for (int64_t at = 0; rc != SPECBATCH_OK; at++) {
        memory = (struct test_memory){0, at, 0};
        rc = specbatch_model_open(&model, path, &options);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
        CHECK(rc == SPECBATCH_OK || memory.live == 0);
        CHECK(at < 10000);
    }
    specbatch_model_close(model);
    CHECK_INT(memory.live, 0);
}

static void runs_out_of_memory_cleanly(void)
{
    const struct test_dir dir = test_dir_make();
    struct gguf_writer w = {.alignment = 32};
    char path[128];

    snprintf(path, sizeof path, "%s/model.gguf", dir.path);
    CHECK(convert_model(&w, MODELS "emoji", SB_BF16, 0));
    CHECK(convert_tokenizer(&w, MODELS "emoji", "gpt-2", 64));
    gguf_write(&w, &dir, "model.gguf");
    fail_each_allocation(path);
    CHECK(write_gguf(&dir, MODELS "qwen3_moe_bf16", SB_BF16, 0));
    fail_each_allocation(path);
    test_dir_remove(&dir);
}

TEST_BEGIN
RUN(both_containers_give_the_same_bits);
RUN(the_permutation_matters);
RUN(reads_numbers);
RUN(ends_of_families);
RUN(refuses_metadata);
RUN(reads_windows_and_longrope);
RUN(reads_gemma2);
RUN(reads_experts);
RUN(reads_other_experts);
RUN(refuses_experts);
RUN(refuses_other_models);
RUN(finds_the_scaling_of_llama3);
RUN(names_tensors_as_the_file_does);
RUN(refuses_tensors_of_experts);
RUN(runs_out_of_memory_cleanly);
TEST_END
