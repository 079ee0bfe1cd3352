/*
 * config.json of models with sliding windows: which layers have one, in each of the ways in which
 * it is said, and Gemma 3, whose layers with a window have a rotation of their own; SmolLM3, some
 * of whose layers have none; and models of which that of texts is a part.
 */
#include <math.h>

#include "support/config_text.h"
#include "sbtest.h"

#define WINDOWED(layers)                                                                   \
    "{\"model_type\":\"qwen2\",\"hidden_size\":72,\"intermediate_size\":136,\"num_hidden_" \
    "layers\":" #layers ",\"sliding_window\":64,\"use_sliding_window\":true," REST

#define FULL "\"full_attention\""
#define SLIDING "\"sliding_attention\""
#define USED ",\"sliding_window\":64,\"use_sliding_window\":true"

/* Which of three layers have a window, and of how many tokens. One that holds the context is none.
 */
static void sliding_windows(void)
{
    static const struct {
        const char *members;
        int32_t window;
        uint8_t is_local[3];
    } cases[] = {
        {QWEN2 ",\"sliding_window\":64,\"use_sliding_window\":false,\"max_window_layers\":0",
         0,
         {0}},
        {QWEN2 USED ",\"max_window_layers\":3", 0, {0}},
        {QWEN2 USED ",\"max_window_layers\":2", 64, {0, 0, 1}},
        {QWEN2 USED ",\"max_window_layers\":0", 64, {1, 1, 1}},
        {QWEN2 ",\"sliding_window\":null,\"use_sliding_window\":true,\"max_window_layers\":2",
         0,
         {0}},
        {QWEN2 ",\"sliding_window\":512,\"use_sliding_window\":true,\"max_window_layers\":2",
         0,
         {0}},
        {QWEN2 ",\"sliding_window\":511,\"use_sliding_window\":true,\"max_window_layers\":2",
         511,
         {0, 0, 1}},
        {QWEN2 ",\"layer_types\":[" FULL "," FULL "," FULL "]", 0, {0}},
        {QWEN2 USED ",\"layer_types\":[" FULL "," FULL "," FULL "],\"max_window_layers\":2",
         0,
         {0}},
        {QWEN2 USED ",\"layer_types\":[" FULL "," SLIDING "," FULL "]", 64, {0, 1, 0}},
        {BASE USED ",\"max_window_layers\":2", 0, {0}},
        {MISTRAL ",\"sliding_window\":64", 64, {1, 1, 1}},
        {MISTRAL ",\"sliding_window\":null", 0, {0}},
        {MISTRAL ",\"sliding_window\":513", 0, {0}},
        {MISTRAL, 0, {0}},
        {PHI3 ",\"sliding_window\":511", 511, {1, 1, 1}},
        {PHI3, 0, {0}},
    };
    char text[1024];
    struct sb_config c;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "{%s}", cases[i].members);
        CHECK_OK(load_config(&c, text, NULL));
        CHECK_INT(c.context, 512);
        CHECK_INT(c.window, cases[i].window);
        CHECK_MEM(c.is_local, cases[i].is_local, 3);
        CHECK(sb_config_window_of(&c, 1) == (cases[i].is_local[1] ? c.window : 0));
    }
}

/* What holds where config.json says less. */
static void default_windows(void)
{
    struct sb_config c;

    CHECK_OK(load_config(&c, WINDOWED(28) "}", NULL));
    CHECK_INT(c.window, 0);
    CHECK_OK(load_config(&c, WINDOWED(29) "}", NULL));
    CHECK_INT(c.window, 64);
    CHECK(!c.is_local[27] && c.is_local[28]);
    CHECK_OK(load_config(&c, WINDOWED(29) ",\"max_window_layers\":29}", NULL));
    CHECK_INT(c.window, 0);
    CHECK_OK(
        load_config(&c,
                    "{\"model_type\":\"mistral\"," SIZES "\"vocab_size\":517,"
                    "\"num_attention_heads\":8,\"head_dim\":16,\"max_position_embeddings\":32768}",
                    NULL));
    CHECK_INT(c.context, 32768);
    CHECK_INT(c.window, 4096);
    CHECK_ERROR(
        load_config(&c, "{" QWEN2 ",\"layer_types\":[" FULL "," SLIDING "," FULL "]}", NULL),
        SPECBATCH_E_FORMAT, "but there is no sliding_window");
    CHECK_ERROR(load_config(&c, "{" BASE ",\"layer_types\":[" FULL "," SLIDING "," FULL "]}", NULL),
                SPECBATCH_E_UNSUPPORTED,
                "layer_types has \"sliding_attention\", which is not supported with model_type "
                "llama");
    CHECK_ERROR(load_config(&c, "{" BASE ",\"layer_types\":[" FULL "]}", NULL), SPECBATCH_E_FORMAT,
                "layer_types is not a list of 3 names");
}


/* Gemma 3 as transformers 4 and 5 write it, and what it has where config.json is silent. */
static void gemma3(void)
{
    static const uint8_t period[3] = {1, 1, 0};
    struct sb_config c;

    CHECK_OK(load_config(&c, "{" GEMMA "}", NULL));
    CHECK(c.kv_heads == 2 && c.head_dim == 256 && c.tied && c.query_scalar == 256.0);
    CHECK(c.rope.theta == 1e6 && c.other_rope.theta == 1e4 && c.rope.kind == SB_ROPE_DEFAULT);
    CHECK(c.window == 4096 && c.is_local[0] && c.is_local[2]);
    CHECK(sb_config_embed_scale(&c) == sqrtf(72.0f));
    CHECK_OK(
        load_config(&c,
                    "{" GEMMA ",\"rope_theta\":5e5,\"rope_local_base_freq\":2e4,\"rope_scaling\":"
                    "{\"rope_type\":\"linear\",\"factor\":8.0},\"sliding_window\":100,"
                    "\"sliding_window_pattern\":3,\"query_pre_attn_scalar\":168,"
                    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"final_logit_softcapping\":null}",
                    NULL));
    CHECK(c.rope.theta == 5e5 && c.rope.kind == SB_ROPE_LINEAR && c.rope.factor == 8.0);
    CHECK(c.other_rope.theta == 2e4 && c.other_rope.kind == SB_ROPE_DEFAULT);
    CHECK(c.query_scalar == 168.0 && c.window == 100);
    CHECK_MEM(c.is_local, period, 3);
    CHECK(sb_config_rope_of(&c, 0) == &c.other_rope && sb_config_rope_of(&c, 2) == &c.rope);
    CHECK_OK(load_config(
        &c,
        "{" GEMMA ",\"layer_types\":[" SLIDING "," SLIDING "," FULL "],"
        "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":2,"
        "\"rope_theta\":3e5},\"sliding_attention\":{\"rope_theta\":7e3}}}",
        NULL));
    CHECK(c.rope.theta == 3e5 && c.rope.factor == 2.0 && c.other_rope.theta == 7e3);
    CHECK_MEM(c.is_local, period, 3);
}

/* Gemma 2, and what it has where config.json is silent. A null is no window, or no soft cap. */
static void gemma2(void)
{
    static const uint8_t alternate[3] = {1, 0, 1};
    struct sb_config c;

    CHECK_OK(load_config(&c, "{" GEMMA2 ",\"sliding_window\":100}", NULL));
    CHECK(c.head_dim == 256 && c.tied && c.query_scalar == 256.0 && c.rope.theta == 1e4);
    CHECK(c.score_cap == 50.0 && c.logit_cap == 30.0 && c.window == 100);
    CHECK_MEM(c.is_local, alternate, 3);
    CHECK(sb_config_rope_of(&c, 0) == &c.rope && sb_config_embed_scale(&c) == sqrtf(72.0f));
    CHECK_OK(load_config(&c, "{" GEMMA2 "}", NULL));
    CHECK_INT(c.window, 0); /* it is longer than the context */
    CHECK_OK(load_config(&c,
                         "{" GEMMA2 ",\"sliding_window\":null,\"attn_logit_softcapping\":null,"
                         "\"final_logit_softcapping\":12.5,\"query_pre_attn_scalar\":144}",
                         NULL));
    CHECK(c.window == 0 && !c.is_local[0] && c.query_scalar == 144.0);
    CHECK(c.score_cap == 0.0 && c.logit_cap == 12.5);
}

/* SmolLM3: which layers rotate nothing. A list may be longer than there are layers. */
static void unrotated_layers(void)
{
    struct sb_config c;

    CHECK_OK(load_config(&c, "{" SMOLLM3 ",\"no_rope_layer_interval\":2}", NULL));
    CHECK(c.tied && c.rope.theta == 2e6 && c.other_rope.kind == SB_ROPE_NONE);
    CHECK(sb_config_rope_of(&c, 0) == &c.rope && sb_config_rope_of(&c, 1) == &c.other_rope);
    CHECK(sb_config_rope_of(&c, 2) == &c.rope);
    CHECK_OK(load_config(&c, "{" SMOLLM3 "}", NULL));
    CHECK(!c.is_unrotated[0] && !c.is_unrotated[2]); /* there are three, and it is each fourth */
    CHECK_OK(load_config(&c,
                         "{" SMOLLM3 ",\"no_rope_layers\":[0,1,0,0,1],\"rope_scaling\":"
                         "{\"rope_type\":\"yarn\",\"factor\":2.0,"
                         "\"original_max_position_embeddings\":256}}",
                         NULL));
    CHECK(c.is_unrotated[0] && !c.is_unrotated[1] && c.is_unrotated[2]);
    CHECK(c.rope.attention_factor > 1.0 && c.other_rope.attention_factor == 1.0);
}

/* A model that sees pictures: the text_config says what its texts are, and the top which tokens end
 * them. */
static void texts_of_a_whole(void)
{
    struct sb_config c;

    CHECK_OK(load_config(
        &c,
        "{\"model_type\":\"gemma3\",\"architectures\":[\"Gemma3ForConditionalGeneration\"],"
        "\"eos_token_id\":[1,106],\"text_config\":{\"model_type\":\"gemma3_text\","
        "\"hidden_size\":2560,\"intermediate_size\":10240,\"num_hidden_layers\":34,"
        "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},"
        "\"sliding_window\":1024}}",
        NULL));
    CHECK(c.vocab == 262208 && c.heads == 8 && c.kv_heads == 4 && c.context == 131072);
    CHECK(c.window == 1024 && c.rope.factor == 8.0 && c.is_local[4] && !c.is_local[5]);
    CHECK(c.n_eos == 2 && c.eos[1] == 106);
    CHECK_OK(load_config(&c,
                         "{\"model_type\":\"mistral3\",\"text_config\":{" MISTRAL
                         ",\"sliding_window\":null,\"eos_token_id\":2}}",
                         NULL));
    CHECK_STR(c.arch->model_type, "mistral");
    CHECK(c.n_eos == 1 && c.eos[0] == 2);
    CHECK_ERROR(
        load_config(&c,
                    "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"ministral3\"}}",
                    NULL),
        SPECBATCH_E_UNSUPPORTED, "text_config.model_type \"ministral3\"");
    CHECK_ERROR(
        load_config(&c,
                    "{\"model_type\":\"gemma3\",\"quantization_config\":{},\"text_config\":{" GEMMA
                    "}}",
                    NULL),
        SPECBATCH_E_UNSUPPORTED, "quantization_config");
    CHECK_OK(load_config(
        &c, "{\"model_type\":\"gemma3\",\"tie_word_embeddings\":false,\"text_config\":{" GEMMA "}}",
        NULL));
    CHECK_INT(c.tied, 0);
    CHECK_ERROR(load_config(&c,
                            "{\"model_type\":\"gemma3\",\"tie_word_embeddings\":false,"
                            "\"text_config\":{" GEMMA ",\"tie_word_embeddings\":true}}",
                            NULL),
                SPECBATCH_E_UNSUPPORTED, "differ; keep one");
    CHECK_ERROR(load_config(&c, "{\"model_type\":\"gemma3\"}", NULL), SPECBATCH_E_FORMAT,
                "text_config is not an object");
    CHECK_ERROR(
        load_config(&c, "{\"model_type\":\"mistral3\",\"text_config\":{\"hidden_size\":0}}", NULL),
        SPECBATCH_E_FORMAT, "vocab_size");
}

TEST_BEGIN
RUN(sliding_windows);
RUN(default_windows);
RUN(gemma2);
RUN(gemma3);
RUN(unrotated_layers);
RUN(texts_of_a_whole);
TEST_END
