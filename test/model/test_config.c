/*
 * config.json: what each spelling of a key resolves to, and that everything that the forward pass
 * does not compute is refused by a message with the key in it. A case is a small change to a config
 * that can be opened.
 */
#include "engine/rope_table.h"
#include "support/config_text.h"
#include "sbtest.h"

static void defaults(void)
{
    struct sb_config c;

    CHECK_OK(load_config(&c, "{" BASE "}", NULL));
    CHECK_STR(c.arch->model_type, "llama");
    CHECK_INT(c.vocab, 517);
    CHECK_INT(c.hidden, 72);
    CHECK_INT(c.inter, 136);
    CHECK_INT(c.layers, 3);
    CHECK_INT(c.heads, 6);
    CHECK_INT(c.kv_heads, 6);
    CHECK_INT(c.head_dim, 12);
    CHECK_INT(c.context, 512);
    CHECK(c.eps == 1e-6);
    CHECK_INT(c.tied, 0);
    CHECK(!c.has_qkv_bias && !c.has_o_bias && !c.has_mlp_bias);
    CHECK_INT(c.rope.kind, SB_ROPE_DEFAULT);
    CHECK_INT(c.rope.rot_dim, 12);
    CHECK(c.rope.theta == 10000.0 && c.rope.attention_factor == 1.0);
    CHECK_INT(c.bos, -1);
    CHECK_INT(c.n_eos, 0);
}

static void given_values(void)
{
    struct sb_config c;

    CHECK_OK(load_config(
        &c,
        "{" BASE ",\"num_key_value_heads\":2,\"head_dim\":20,\"rms_norm_eps\":1e-05,"
        "\"tie_word_embeddings\":true,\"attention_bias\":true,\"mlp_bias\":true,"
        "\"rope_theta\":5e5,\"bos_token_id\":1,\"eos_token_id\":2,\"hidden_act\":\"silu\"}",
        NULL));
    CHECK_INT(c.kv_heads, 2);
    CHECK_INT(c.head_dim, 20);
    CHECK(c.eps == 1e-5 && c.rope.theta == 5e5);
    CHECK_INT(c.tied, 1);
    CHECK(c.has_qkv_bias && c.has_o_bias && c.has_mlp_bias);
    CHECK_INT(c.bos, 1);
    CHECK_INT(c.n_eos, 1);
    CHECK_INT(c.eos[0], 2);
}

/* What the architecture decides, not config.json: biases, rotation, epsilon. */
static void architectures(void)
{
    struct sb_config c;

    CHECK_OK(load_config(&c, "{\"model_type\":\"qwen2\",\"attention_bias\":false," SIZES REST "}",
                         NULL));
    CHECK(c.has_qkv_bias && !c.has_o_bias && !c.has_mlp_bias);
    CHECK_OK(load_config(&c, "{\"model_type\":\"qwen3\"," SIZES REST "}", NULL));
    CHECK(!c.has_qkv_bias && c.arch->q_norm && c.arch->k_norm);
    CHECK_OK(load_config(
        &c, "{\"model_type\":\"qwen3\",\"attention_bias\":true,\"mlp_bias\":true," SIZES REST "}",
        NULL));
    CHECK(c.has_qkv_bias && c.has_o_bias && !c.has_mlp_bias);
    CHECK_OK(load_config(&c, "{\"architectures\":[\"Glm4ForCausalLM\"]," SIZES REST "}", NULL));
    CHECK_STR(c.arch->model_type, "glm4");
    CHECK(c.has_qkv_bias && !c.has_o_bias && c.arch->rot_interleaved && c.eps == 1.5625e-7);
    CHECK_INT(c.rope.rot_dim, 64);
    CHECK(!c.arch->gate_up[1] && c.arch->post_attn_norm && c.arch->post_ffn_norm);
}

static void rotary_spellings(void)
{
    struct sb_config c;

    CHECK_OK(load_config(
        &c, "{" BASE ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5},\"rope_theta\":7000}",
        NULL));
    CHECK_INT(c.rope.kind, SB_ROPE_LINEAR);
    CHECK(c.rope.factor == 2.5 && c.rope.theta == 7000.0);
    CHECK_OK(load_config(&c,
                         "{" GLM4
                         ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e6,"
                         "\"partial_rotary_factor\":0.25},\"rope_scaling\":null,\"rope_theta\":3,"
                         "\"partial_rotary_factor\":0.5}",
                         NULL));
    CHECK_INT(c.rope.kind, SB_ROPE_DEFAULT);
    CHECK_INT(c.rope.rot_dim, 4);
    CHECK(c.rope.theta == 1e6);
    CHECK_OK(load_config(
        &c,
        "{" BASE ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
        "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":64}}",
        NULL));
    CHECK_INT(c.rope.kind, SB_ROPE_LLAMA3);
    CHECK(c.rope.low_freq == 1.0 && c.rope.high_freq == 4.0 && c.rope.original_context == 64.0);
}

/* vicuna-7b-v1.5-16k: 4096 positions, divided by 4, and 16384 as max_sequence_length. */
static void longest_of_linear(void)
{
    static const struct {
        const char *more;
        int32_t context;
    } cases[] = {
        {",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4},\"max_sequence_length\":2048", 2048},
        {",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4},\"max_sequence_length\":256", 512},
        {",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"max_sequence_length\":2048", 512},
        {",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}", 512},
        {",\"max_sequence_length\":2048", 512},
    };
    char text[600];
    struct sb_config c;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{" BASE "%s}", cases[i].more);
        CHECK_OK(load_config(&c, text, NULL));
        CHECK_INT(c.context, cases[i].context);
    }
    CHECK_ERROR(load_config(&c,
                            "{" BASE ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4},"
                            "\"max_sequence_length\":\"2048\"}",
                            NULL),
                SPECBATCH_E_FORMAT, "config.json: max_sequence_length is not an integer");
}

/* The architecture decides what absent num_key_value_heads and head_dim mean. */
static void default_heads(void)
{
    static const struct {
        const char *type;
        int32_t kv_heads, head_dim;
    } cases[] = {
        {"llama", 6, 12},
        {"qwen2", 6, 12},
        {"qwen3", 6, 128},
        {"glm4", 2, 128},
    };
    char text[1024];
    struct sb_config c;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "{\"model_type\":\"%s\",%s%s}", cases[i].type, SIZES, REST);
        CHECK_OK(load_config(&c, text, NULL));
        CHECK_INT(c.kv_heads, cases[i].kv_heads);
        CHECK_INT(c.head_dim, cases[i].head_dim);
        snprintf(text, sizeof text,
                 "{\"model_type\":\"%s\",%s%s,\"num_key_value_heads\":3,\"head_dim\":20}",
                 cases[i].type, SIZES, REST);
        CHECK_OK(load_config(&c, text, NULL));
        CHECK_INT(c.kv_heads, 3);
        CHECK_INT(c.head_dim, 20);
    }
    /* hidden_size / num_attention_heads must be a whole number only where head_dim is that. */
    CHECK_OK(load_config(&c,
                         "{\"model_type\":\"qwen3\",\"hidden_size\":70,\"intermediate_size\":136,"
                         "\"num_hidden_layers\":3," REST "}",
                         NULL));
    CHECK_INT(c.head_dim, 128);
}

/* Only GLM-4 rotates a part of each head. For the others, 1 is the only value that all versions of
 * transformers understand in the same way. */
static void partial_rotation(void)
{
    static const char *const types[] = {"llama", "qwen2", "qwen3"};
    static const char *const places[] = {"%s", "\"rope_parameters\":{%s}",
                                         "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,%s}"};
    char text[1024], member[64], place[128];
    struct sb_config c;

    for (int type = 0; type < 3; type++)
        for (int at = 0; at < 3; at++)
            for (int half = 0; half < 2; half++) {
                snprintf(member, sizeof member, "\"partial_rotary_factor\":%s",
                         half ? "0.5" : "1.0");
                snprintf(place, sizeof place, places[at], member);
                snprintf(text, sizeof text, "{\"model_type\":\"%s\",%s,%s}", types[type],
                         SIZES REST, place);
                if (half)
                    CHECK_ERROR(load_config(&c, text, NULL), SPECBATCH_E_UNSUPPORTED,
                                "partial_rotary_factor 0.5");
                else
                    CHECK_OK(load_config(&c, text, NULL));
            }
    /* A bad value in one place is not hidden by a good one in the other. */
    CHECK_ERROR(load_config(&c,
                            "{" BASE ",\"partial_rotary_factor\":0.5,\"rope_parameters\":"
                            "{\"partial_rotary_factor\":1}}",
                            NULL),
                SPECBATCH_E_UNSUPPORTED, "partial_rotary_factor 0.5");
    CHECK_OK(load_config(&c, "{" GLM4 ",\"partial_rotary_factor\":1}", NULL));
    CHECK_INT(c.rope.rot_dim, 16);
}

#define ORIGINAL(n) ",\"original_max_position_embeddings\":" #n
#define SCALED(kind, more)                                        \
    ",\"rope_scaling\":{\"rope_type\":\"" kind "\",\"factor\":4," \
    "\"low_freq_factor\":1,\"high_freq_factor\":4" more "}"

/* original_max_position_embeddings may be in the scaling's object, at the top level, or the same in
 * both. */
static void original_context(void)
{
    static const char *const good[] = {
        SCALED("llama3", ORIGINAL(128)),
        SCALED("llama3", "") ORIGINAL(128),
        SCALED("llama3", ORIGINAL(128)) ORIGINAL(128.0),
        SCALED("llama3", ORIGINAL(128)) ORIGINAL(null),
        SCALED("yarn", ORIGINAL(128)),
        SCALED("yarn", "") ORIGINAL(128),
        SCALED("yarn", ORIGINAL(128)) ORIGINAL(128),
    };
    static const char *const bad[] = {SCALED("llama3", ORIGINAL(128)) ORIGINAL(64),
                                      SCALED("yarn", ORIGINAL(128)) ORIGINAL(64)};
    char text[1024];
    struct sb_config c;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(text, sizeof text, "{%s%s}", BASE, good[i]);
        CHECK_OK(load_config(&c, text, NULL));
        CHECK(c.rope.original_context == 128.0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text, "{%s%s}", BASE, bad[i]);
        CHECK_ERROR(load_config(&c, text, NULL), SPECBATCH_E_UNSUPPORTED, "keep one");
        CHECK(
            strstr(specbatch_last_error(), "rope_scaling.original_max_position_embeddings is 128"));
    }
    CHECK_OK(load_config(
        &c, "{" BASE ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}" ORIGINAL(64) "}",
        NULL));
}

static double yarn_attention(const char *members)
{
    char text[1024];
    struct sb_config c;

    snprintf(text, sizeof text,
             "{" BASE ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4%s}}", members);
    return load_config(&c, text, NULL) == SPECBATCH_OK ? c.rope.attention_factor : -1.0;
}

/* The rules of _compute_yarn_parameters for the factor on cos and sin. */
static void yarn_attention_factor(void)
{
    const double g1 = 0.1 * log(4.0) + 1.0;
    const double g2 = 0.1 * 0.707 * log(4.0) + 1.0;

    CHECK(yarn_attention("") == g1);
    CHECK(yarn_attention(",\"original_max_position_embeddings\":128") == g1);
    CHECK(yarn_attention(",\"attention_factor\":1.25") == 1.25);
    CHECK(yarn_attention(",\"attention_factor\":null") == g1);
    CHECK(yarn_attention(",\"mscale\":0.707") == g1);
    CHECK(yarn_attention(",\"mscale\":1.0,\"mscale_all_dim\":0.707") == g1 / g2);
    CHECK(yarn_attention(",\"mscale\":0.707,\"mscale_all_dim\":0") == g1);
    CHECK(yarn_attention(",\"mscale\":1.0,\"mscale_all_dim\":1.0,\"attention_factor\":2.0") == 2.0);
    CHECK(yarn_attention(",\"original_max_position_embeddings\":256") == -1.0);
}

/* In rope_scaling the factor must be context / original, because transformers 4 takes that
 * quotient. */
static void yarn_factor(void)
{
    static const char members[] = "\"rope_type\":\"yarn\",\"factor\":4.0,"
                                  "\"original_max_position_embeddings\":32768";
    static const char
        sizes[] = "\"vocab_size\":517,\"num_attention_heads\":6,\"max_position_embeddings\"";
    char text[1024];
    struct sb_config c;

    /* What the model card of Qwen3 says to write, which is refused, and the two ways to mend it. */
    snprintf(text, sizeof text, "{%s%s%s:40960,\"rope_scaling\":{%s}}", ARCH, SIZES, sizes,
             members);
    CHECK_ERROR(load_config(&c, text, NULL), SPECBATCH_E_UNSUPPORTED,
                "rope_scaling.factor 4 is not");
    CHECK(strstr(specbatch_last_error(), "(40960 / 32768)"));
    CHECK(strstr(specbatch_last_error(),
                 "set max_position_embeddings to factor * original = 131072, or "
                 "write rope_parameters"));
    snprintf(text, sizeof text, "{%s%s%s:131072,\"rope_scaling\":{%s}}", ARCH, SIZES, sizes,
             members);
    CHECK_OK(load_config(&c, text, NULL));
    snprintf(text, sizeof text, "{%s%s%s:40960,\"rope_parameters\":{%s}}", ARCH, SIZES, sizes,
             members);
    CHECK_OK(load_config(&c, text, NULL));
    CHECK(c.rope.factor == 4.0 && c.rope.original_context == 32768.0 &&
          c.rope.attention_factor == 0.1 * log(4.0) + 1.0);
    /* The factor 512 / 300, written with seven digits and with four. */
    CHECK_OK(load_config(
        &c, "{" BASE ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":1.7066667" ORIGINAL(300) "}}",
        NULL));
    CHECK_ERROR(
        load_config(
            &c, "{" BASE ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":1.707" ORIGINAL(300) "}}",
            NULL),
        SPECBATCH_E_UNSUPPORTED, "factor * original = 512");
}

static void end_tokens(void)
{
    struct sb_config c;

    CHECK_OK(load_config(&c, "{" BASE ",\"eos_token_id\":[5,6,5]}", NULL));
    CHECK_INT(c.n_eos, 2);
    CHECK_INT(c.eos[1], 6);
    CHECK_OK(load_config(&c, "{" BASE ",\"eos_token_id\":[5,6]}", "{\"eos_token_id\":[7]}"));
    CHECK_INT(c.n_eos, 1);
    CHECK_INT(c.eos[0], 7);
    CHECK_OK(load_config(&c, "{" BASE ",\"eos_token_id\":5}",
                         "{\"eos_token_id\":null,\"temperature\":0.6}"));
    CHECK_INT(c.n_eos, 1);
    CHECK_INT(c.eos[0], 5);
    CHECK_ERROR(load_config(&c, "{" BASE "}", "{\"eos_token_id\":517}"), SPECBATCH_E_FORMAT,
                "generation_config.json");
    CHECK_ERROR(load_config(&c, "{" BASE "}", "{\"eos_token_id\":["), SPECBATCH_E_FORMAT,
                "generation_config.json");
}

/* Collects what is logged. */
static void keep_line(void *ctx, int32_t level, const char *line)
{
    snprintf(ctx, 300, "%d %s", (int)level, line);
}

/* That a context is shorter than the checkpoint says is told once, with both numbers. */
#define LONGROPE(more)                                                             \
    PHI3 ",\"partial_rotary_factor\":0.5,\"rope_scaling\":{\"type\":\"longrope\"," \
         "\"short_factor\":[1,1.5,2],\"long_factor\":[3,4,5]" more "}"

/* longrope holds for as long as its first divisors do. */
static void longrope(void)
{
    struct sb_config c;

    CHECK_OK(load_config(&c, "{" LONGROPE("") ",\"original_max_position_embeddings\":128}", NULL));
    CHECK_INT(c.rope.kind, SB_ROPE_LONGROPE);
    CHECK_INT(c.rope.rot_dim, 6);
    CHECK_INT(c.context, 128);
    CHECK(c.rope.divisors[1] == 1.5f);
    CHECK(fabs(c.rope.attention_factor - sqrt(1.0 + log(4.0) / log(128.0))) < 1e-7);
    CHECK_OK(load_config(
        &c, "{" LONGROPE(",\"factor\":8") ",\"original_max_position_embeddings\":128}", NULL));
    CHECK(fabs(c.rope.attention_factor - sqrt(1.0 + log(8.0) / log(128.0))) < 1e-7);
    CHECK_OK(load_config(&c, "{" LONGROPE(",\"attention_factor\":1.25") "}", NULL));
    CHECK(c.rope.attention_factor == 1.25);
    CHECK_INT(c.context, 512);
    CHECK_OK(load_config(&c, "{" LONGROPE(",\"original_max_position_embeddings\":128") "}", NULL));
    CHECK_INT(c.context, 128);
    CHECK_OK(load_config(&c,
                         "{" PHI3 ",\"rope_parameters\":{\"rope_type\":\"su\",\"short_factor\":"
                         "[1,1,1,1,1,1]}}",
                         NULL));
    CHECK_INT(c.rope.kind, SB_ROPE_LONGROPE);
    CHECK(c.rope.attention_factor == 1.0);
}

#define YARN(more) BASE ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4" more "}"
#define LLAMA3(more) BASE ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":4" more "}"

static const struct {
    const char *members;
    int32_t code;
    const char *part;
} refusals[] = {
    {"\"model_type\":\"mamba\"," SIZES REST, SPECBATCH_E_UNSUPPORTED, "mamba"},
    {"\"model_type\":\"mamba\"," SIZES REST, SPECBATCH_E_UNSUPPORTED, "supported: llama, "},
    {MISTRAL ",\"sliding_window\":0", SPECBATCH_E_FORMAT, "sliding_window"},
    {"\"architectures\":[\"BertModel\"]," SIZES REST, SPECBATCH_E_UNSUPPORTED, "BertModel"},
    {"\"model_type\":\"llama\",\"architectures\":[\"LlamaForSequenceClassification\"]," SIZES REST,
     SPECBATCH_E_UNSUPPORTED, "LlamaForSequenceClassification"},
    {"\"architectures\":[]," SIZES REST, SPECBATCH_E_FORMAT, "architectures"},
    {"\"architectures\":\"LlamaForCausalLM\"," SIZES REST, SPECBATCH_E_FORMAT, "architectures"},
    {"\"model_type\":4," SIZES REST, SPECBATCH_E_FORMAT, "model_type"},
    {"\"model_type\":\"llama\\u0000\"," SIZES REST, SPECBATCH_E_FORMAT, "model_type"},
    {"\"architectures\":[\"LlamaForCausalLM\\u0000\"]," SIZES REST, SPECBATCH_E_FORMAT,
     "architectures"},
    {SIZES REST, SPECBATCH_E_FORMAT, "model_type is missing"},
    {ARCH REST, SPECBATCH_E_FORMAT, "hidden_size is missing"},
    {ARCH SIZES "\"vocab_size\":5,\"num_attention_heads\":6", SPECBATCH_E_FORMAT,
     "max_position_embeddings"},
    {ARCH SIZES "\"vocab_size\":0,\"num_attention_heads\":6,\"max_position_embeddings\":5",
     SPECBATCH_E_FORMAT, "vocab_size"},
    {ARCH SIZES "\"vocab_size\":16777217,\"num_attention_heads\":6,\"max_position_embeddings\":5",
     SPECBATCH_E_FORMAT, "vocab_size"},
    {ARCH SIZES "\"vocab_size\":5.5,\"num_attention_heads\":6,\"max_position_embeddings\":5",
     SPECBATCH_E_FORMAT, "vocab_size"},
    {ARCH SIZES "\"vocab_size\":\"5\",\"num_attention_heads\":6,\"max_position_embeddings\":5",
     SPECBATCH_E_FORMAT, "vocab_size"},
    {ARCH SIZES
     "\"vocab_size\":99999999999999999999,\"num_attention_heads\":6,\"max_position_embeddings\":"
     "5",
     SPECBATCH_E_FORMAT, "vocab_size"},
    {ARCH "\"hidden_size\":-72,\"intermediate_size\":136,\"num_hidden_layers\":3," REST,
     SPECBATCH_E_FORMAT, "hidden_size"},
    {ARCH "\"hidden_size\":72,\"intermediate_size\":136,\"num_hidden_layers\":4097," REST,
     SPECBATCH_E_FORMAT, "num_hidden_layers"},
    {ARCH "\"hidden_size\":70,\"intermediate_size\":136,\"num_hidden_layers\":3," REST,
     SPECBATCH_E_FORMAT, "head_dim"},
    {ARCH
     "\"hidden_size\":1048576,\"intermediate_size\":136,\"num_hidden_layers\":3,\"vocab_size\":5,"
     "\"num_attention_heads\":1,\"max_position_embeddings\":5",
     SPECBATCH_E_FORMAT, "head_dim"},
    {BASE ",\"num_key_value_heads\":4", SPECBATCH_E_FORMAT, "num_key_value_heads"},
    {BASE ",\"num_key_value_heads\":0", SPECBATCH_E_FORMAT, "num_key_value_heads"},
    {BASE ",\"head_dim\":0", SPECBATCH_E_FORMAT, "head_dim"},
    {BASE ",\"head_dim\":15", SPECBATCH_E_UNSUPPORTED, "head_dim 15"},
    {BASE ",\"partial_rotary_factor\":0.25", SPECBATCH_E_UNSUPPORTED, "partial_rotary_factor"},
    {BASE ",\"partial_rotary_factor\":1.5", SPECBATCH_E_FORMAT, "partial_rotary_factor"},
    {BASE ",\"rms_norm_eps\":0", SPECBATCH_E_FORMAT, "rms_norm_eps"},
    {BASE ",\"rms_norm_eps\":-1e-6", SPECBATCH_E_FORMAT, "rms_norm_eps"},
    {BASE ",\"rms_norm_eps\":1e999", SPECBATCH_E_FORMAT, "rms_norm_eps"},
    {BASE ",\"rms_norm_eps\":NaN", SPECBATCH_E_FORMAT, "config.json"},
    {BASE ",\"tie_word_embeddings\":1", SPECBATCH_E_FORMAT, "tie_word_embeddings"},
    {BASE ",\"rope_theta\":0", SPECBATCH_E_FORMAT, "rope_theta"},
    {BASE ",\"rope_theta\":\"10000\"", SPECBATCH_E_FORMAT, "rope_theta"},
    {BASE ",\"bos_token_id\":517", SPECBATCH_E_FORMAT, "bos_token_id"},
    {BASE ",\"eos_token_id\":-1", SPECBATCH_E_FORMAT, "eos_token_id"},
    {BASE ",\"eos_token_id\":[1,\"2\"]", SPECBATCH_E_FORMAT, "eos_token_id"},
    {BASE ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,"
          "27,28,29,"
          "30,"
          "31,32,33]",
     SPECBATCH_E_UNSUPPORTED, "eos_token_id"},
    {BASE ",\"hidden_act\":\"gelu\"", SPECBATCH_E_UNSUPPORTED, "hidden_act"},
    {BASE ",\"hidden_act\":\"silu\\u0000\"", SPECBATCH_E_FORMAT, "hidden_act"},
    {BASE ",\"quantization_config\":{\"quant_method\":\"fp8\"}", SPECBATCH_E_UNSUPPORTED,
     "quantization_config"},
    {BASE ",\"compression_config\":{\"quant_method\":\"compressed-tensors\"}",
     SPECBATCH_E_UNSUPPORTED, "compression_config"},
    {BASE ",\"layer_types\":[\"full_attention\\u0000\",1,2]", SPECBATCH_E_UNSUPPORTED,
     "layer_types"},
    {GEMMA ",\"hidden_activation\":\"silu\"", SPECBATCH_E_UNSUPPORTED, "only gelu_pytorch_tanh is"},
    {GEMMA ",\"attn_logit_softcapping\":50", SPECBATCH_E_UNSUPPORTED, "attn_logit_softcapping"},
    {GEMMA ",\"final_logit_softcapping\":30", SPECBATCH_E_UNSUPPORTED, "final_logit_softcapping"},
    {SMOLLM3 ",\"no_rope_layers\":[1,1]", SPECBATCH_E_FORMAT, "no_rope_layers"},
    {SMOLLM3 ",\"no_rope_layers\":[1,2,0]", SPECBATCH_E_FORMAT, "no_rope_layers"},
    {SMOLLM3 ",\"no_rope_layers\":1", SPECBATCH_E_FORMAT, "no_rope_layers"},
    {SMOLLM3 ",\"no_rope_layer_interval\":0", SPECBATCH_E_FORMAT, "no_rope_layer_interval"},
    {SMOLLM3 ",\"use_sliding_window\":true", SPECBATCH_E_UNSUPPORTED, "use_sliding_window"},
    {GEMMA2 ",\"attn_logit_softcapping\":0", SPECBATCH_E_FORMAT, "attn_logit_softcapping"},
    {GEMMA2 ",\"final_logit_softcapping\":\"30\"", SPECBATCH_E_FORMAT, "final_logit_softcapping"},
    {GEMMA ",\"use_bidirectional_attention\":true", SPECBATCH_E_UNSUPPORTED, "bidirectional"},
    {GEMMA ",\"sliding_window\":null", SPECBATCH_E_UNSUPPORTED, "sliding_window null"},
    {GEMMA ",\"rope_parameters\":{\"rope_theta\":1e6}", SPECBATCH_E_FORMAT, "sliding_attention"},
    {GEMMA ",\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{\"rope_type\":"
           "\"yarn\",\"factor\":2}}",
     SPECBATCH_E_UNSUPPORTED, "sliding_attention.rope_type"},
    {GEMMA ",\"query_pre_attn_scalar\":0", SPECBATCH_E_FORMAT, "query_pre_attn_scalar"},
    {BASE ",\"layer_types\":{}", SPECBATCH_E_FORMAT, "layer_types"},
    {BASE ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}", SPECBATCH_E_UNSUPPORTED,
     "dynamic"},
    {BASE ",\"rope_scaling\":{\"type\":\"linear\\u0000\",\"factor\":2}", SPECBATCH_E_FORMAT,
     "rope_scaling.type"},
    {BASE ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}", SPECBATCH_E_FORMAT,
     "rope_scaling.short_factor is missing"},
    {BASE ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":3}", SPECBATCH_E_FORMAT,
     "short_factor is not a list of 6 numbers"},
    {BASE ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1]}",
     SPECBATCH_E_FORMAT, "short_factor is not a list of 6 numbers"},
    {BASE ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1]}",
     SPECBATCH_E_FORMAT, "short_factor is not a list of 6 numbers"},
    {BASE ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,0,1,1]}",
     SPECBATCH_E_FORMAT, "short_factor is not a list of 6 numbers"},
    {BASE ",\"original_max_position_embeddings\":1,\"rope_scaling\":{\"type\":\"longrope\","
          "\"short_factor\":[1,1,1,1,1,1]}",
     SPECBATCH_E_FORMAT, "attention_factor would be infinite"},
    {BASE ",\"head_dim\":1024,\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1]}",
     SPECBATCH_E_UNSUPPORTED, "more than 256 numbers"},
    {BASE ",\"rope_parameters\":{\"rope_type\":\"mrope\"}", SPECBATCH_E_UNSUPPORTED,
     "rope_parameters.rope_type"},
    {BASE ",\"rope_parameters\":{\"full_attention\":{}}", SPECBATCH_E_UNSUPPORTED, "layer type"},
    {BASE ",\"rope_scaling\":[]", SPECBATCH_E_FORMAT, "rope_scaling is not an object"},
    {BASE ",\"rope_scaling\":{},\"rope_parameters\":{}", SPECBATCH_E_UNSUPPORTED, "keep one"},
    {BASE ",\"rope_scaling\":{\"type\":\"linear\"}", SPECBATCH_E_FORMAT,
     "rope_scaling.factor is missing"},
    {BASE ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}", SPECBATCH_E_FORMAT,
     "rope_scaling.factor"},
    {YARN(",\"original_max_position_embeddings\":100"), SPECBATCH_E_UNSUPPORTED,
     "write rope_parameters"},
    {YARN(",\"beta_fast\":0.5"), SPECBATCH_E_FORMAT, "beta_fast"},
    {YARN(",\"beta_slow\":-1"), SPECBATCH_E_FORMAT, "beta_slow"},
    {YARN(",\"truncate\":null"), SPECBATCH_E_UNSUPPORTED, "rope_scaling.truncate is null"},
    {YARN(",\"truncate\":0"), SPECBATCH_E_FORMAT, "truncate"},
    {YARN(",\"attention_factor\":-1"), SPECBATCH_E_FORMAT, "attention_factor"},
    {LLAMA3(""), SPECBATCH_E_FORMAT, "low_freq_factor"},
    {LLAMA3(
         ",\"low_freq_factor\":4,\"high_freq_factor\":4,\"original_max_position_embeddings\":64"),
     SPECBATCH_E_FORMAT, "high_freq_factor"},
    {BASE ",\"vocab_size\":518", SPECBATCH_E_FORMAT, "config.json"},
};

static void a_shorter_context_is_told(void)
{
    const struct test_dir dir = test_dir_make();
    char line[300] = "";
    const struct sb_log log = {keep_line, line};
    struct sb_config c;

    test_write_text(
        &dir, "config.json",
        "{" LONGROPE("") ",\"original_max_position_embeddings\":128,\"eos_token_id\":2}");
    CHECK_OK(sb_config_load(&c, &test_mem, &log, dir.path));
    CHECK(strstr(line, "longrope has other frequencies for more: a sequence has at most 128 tokens "
                       "here, not 512") != NULL);
    CHECK_INT(atoi(line), SPECBATCH_LOG_WARN);
    test_dir_remove(&dir);
}

static void refused_with_the_key(void)
{
    char text[1024];
    struct sb_config c;

    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        snprintf(text, sizeof text, "{%s}", refusals[i].members);
        CHECK_ERROR(load_config(&c, text, NULL), refusals[i].code, refusals[i].part);
        CHECK(strstr(specbatch_last_error(), "config.json") != NULL);
    }
    CHECK_ERROR(load_config(&c, "[]", NULL), SPECBATCH_E_FORMAT, "not a JSON object");
    CHECK_ERROR(load_config(&c, "", NULL), SPECBATCH_E_FORMAT, "config.json");
}

static void missing_file(void)
{
    const struct test_dir dir = test_dir_make();
    const struct sb_log log = {NULL, NULL};
    struct sb_config c;

    CHECK_ERROR(sb_config_load(&c, &test_mem, &log, dir.path), SPECBATCH_E_IO, "config.json");
    test_dir_remove(&dir);
}

/* ------------------------------------------------------------------------ rotary tables */

/* Frequency i, computed from the entries of position 1: the angle there is the frequency, and small
 * enough for atan2 to give it back. */
static double frequency(const float *cos_table, const float *sin_table, int i)
{
    return atan2((double)sin_table[i], (double)cos_table[i]);
}

/* Compares the tables with the formulas in double; they may differ by float rounding alone. */
static void rotary_tables(void)
{
    enum { HALF = 6, N = 40 };
    float c[N * HALF], s[N * HALF];
    struct sb_rope_config rope = {.kind = SB_ROPE_DEFAULT,
                                  .rot_dim = 12,
                                  .theta = 10000.0,
                                  .factor = 4.0,
                                  .attention_factor = 1.0};

    CHECK_OK(sb_rope_tables(c, s, &rope, N));
    for (int p = 0; p < N; p++)
        for (int i = 0; i < HALF; i++) {
            const double angle = p * pow(10000.0, -2.0 * i / 12);
            CHECK(fabs(c[p * HALF + i] - cos(angle)) < 1e-5 &&
                  fabs(s[p * HALF + i] - sin(angle)) < 1e-5);
        }
    CHECK(c[0] == 1.0f && s[0] == 0.0f);
    rope.kind = SB_ROPE_LINEAR;
    CHECK_OK(sb_rope_tables(c, s, &rope, 2));
    for (int i = 0; i < HALF; i++)
        CHECK(fabs(frequency(c + HALF, s + HALF, i) * 4.0 / pow(10000.0, -2.0 * i / 12) - 1.0) <
              1e-6);
    CHECK_ERROR(sb_rope_tables(c, s, &rope, 0), SPECBATCH_E_INVALID, "0 positions");
    rope.rot_dim = 11;
    CHECK_ERROR(sb_rope_tables(c, s, &rope, 2), SPECBATCH_E_INVALID, "11 dimensions");
}

/* llama3 and yarn both keep the frequency where the wavelength is short, divide it where that is
 * long, and have something between where that is between. */
static void rotary_scalings(void)
{
    enum { HALF = 32 };
    float c[2 * HALF], s[2 * HALF];
    struct sb_rope_config rope = {.kind = SB_ROPE_LLAMA3,
                                  .rot_dim = 64,
                                  .theta = 500000.0,
                                  .factor = 8.0,
                                  .low_freq = 1.0,
                                  .high_freq = 4.0,
                                  .original_context = 8192.0,
                                  .beta_fast = 32.0,
                                  .beta_slow = 1.0,
                                  .truncate = 1,
                                  .attention_factor = 1.0};

    for (int kind = SB_ROPE_LLAMA3; kind <= SB_ROPE_YARN; kind++) {
        int between = 0;
        rope.kind = (enum sb_rope_kind)kind;
        CHECK_OK(sb_rope_tables(c, s, &rope, 2));
        for (int i = 0; i < HALF; i++) {
            const double plain = pow(500000.0, -2.0 * i / 64);
            const double ratio = frequency(c + HALF, s + HALF, i) / plain;
            CHECK(ratio < 1.0 + 1e-6 && ratio > 1.0 / 8.0 - 1e-6);
            CHECK(i > 3 || fabs(ratio - 1.0) < 1e-6);
            CHECK(i < HALF - 3 || fabs(ratio - 1.0 / 8.0) < 1e-6);
            between += ratio < 0.99 && ratio > 0.13;
        }
        CHECK(between > 0);
    }
    rope.attention_factor = 2.0;
    CHECK_OK(sb_rope_tables(c, s, &rope, 1));
    CHECK(c[0] == 2.0f);
}

TEST_BEGIN
RUN(defaults);
RUN(given_values);
RUN(architectures);
RUN(default_heads);
RUN(rotary_spellings);
RUN(longest_of_linear);
RUN(partial_rotation);
RUN(original_context);
RUN(yarn_attention_factor);
RUN(yarn_factor);
RUN(end_tokens);
RUN(a_shorter_context_is_told);
RUN(longrope);
RUN(refused_with_the_key);
RUN(missing_file);
RUN(rotary_tables);
RUN(rotary_scalings);
TEST_END
