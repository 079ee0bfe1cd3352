/*
 * config.json of mixtures of experts: how many experts there are and how many are chosen for a
 * token, in each of the ways in which it is said; what becomes of their weights; and the layers
 * that Qwen's configuration can have and the forward pass has not.
 */
#include "digest.h"
#include "support/config_text.h"
#include "sbtest.h"

#define OF_QWEN "\"model_type\":\"qwen3_moe\"," SIZES REST ",\"num_key_value_heads\":2"
#define QWEN3_MOE OF_QWEN ",\"moe_intermediate_size\":40"
#define GLM4_MOE                              \
    "\"model_type\":\"glm4_moe\"," SIZES REST \
    ",\"num_key_value_heads\":2,\"moe_intermediate_size\":40"
#define GPT_OSS "\"model_type\":\"gpt_oss\"," SIZES REST ",\"num_key_value_heads\":2"
#define MIXTRAL "\"model_type\":\"mixtral\"," SIZES REST ",\"num_key_value_heads\":2"

/* A key that is null is as one that is not there. Models without a router have no experts, whatever
 * their config.json says of them. */
static void numbers(void)
{
    static const struct {
        const char *members;
        int32_t experts, chosen, renormalises, inter;
    } cases[] = {
        {QWEN3_MOE, 128, 8, 0, 40},
        {QWEN3_MOE ",\"norm_topk_prob\":true", 128, 8, 1, 40},
        {QWEN3_MOE ",\"norm_topk_prob\":false", 128, 8, 0, 40},
        {QWEN3_MOE ",\"num_experts\":60,\"num_experts_per_tok\":4", 60, 4, 0, 40},
        {QWEN3_MOE ",\"num_local_experts\":60", 60, 8, 0, 40},
        {QWEN3_MOE ",\"num_local_experts\":60,\"num_experts\":60", 60, 8, 0, 40},
        {QWEN3_MOE ",\"num_experts\":8", 8, 8, 0, 40},
        {QWEN3_MOE ",\"num_experts\":1,\"num_experts_per_tok\":1", 1, 1, 0, 40},
        {QWEN3_MOE ",\"num_experts\":4096,\"num_experts_per_tok\":4096", 4096, 4096, 0, 40},
        {QWEN3_MOE ",\"num_experts\":null,\"num_local_experts\":9,\"num_experts_per_tok\":null,"
                   "\"norm_topk_prob\":null",
         9, 8, 0, 40},
        {QWEN3_MOE ",\"mlp_only_layers\":[],\"decoder_sparse_step\":1,\"use_sliding_window\":false,"
                   "\"sliding_window\":null,\"max_window_layers\":3",
         128, 8, 0, 40},
        {QWEN3_MOE ",\"mlp_only_layers\":null,\"decoder_sparse_step\":null", 128, 8, 0, 40},
        {MIXTRAL, 8, 2, 1, 136},
        {MIXTRAL ",\"moe_intermediate_size\":40", 8, 2, 1, 136},
        {MIXTRAL ",\"norm_topk_prob\":false", 8, 2, 1, 136},
        {MIXTRAL ",\"num_local_experts\":5,\"num_experts_per_tok\":3", 5, 3, 1, 136},
        {MIXTRAL ",\"num_experts\":2", 2, 2, 1, 136},
        {BASE ",\"num_local_experts\":8,\"num_experts_per_tok\":2", 0, 0, 0, 136},
        {"\"model_type\":\"qwen3\"," SIZES REST ",\"num_experts\":0,\"norm_topk_prob\":true", 0, 0,
         0, 136},
    };
    char text[1024];
    struct sb_config c;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{%s}", cases[i].members);
        CHECK_OK(load_config(&c, text, NULL));
        CHECK_INT(c.experts, cases[i].experts);
        CHECK_INT(c.chosen, cases[i].chosen);
        CHECK_INT(c.renormalises, cases[i].renormalises);
        CHECK_INT(c.inter, cases[i].inter);
        CHECK_INT(c.window, 0);
    }
}

/* What else holds for either architecture where config.json is silent. */
static void defaults(void)
{
    struct sb_config c;

    CHECK_OK(load_config(&c,
                         "{\"model_type\":\"qwen3_moe\",\"moe_intermediate_size\":40,"
                         "\"hidden_size\":64,\"num_hidden_layers\":3,\"vocab_size\":517,"
                         "\"num_attention_heads\":8,\"max_position_embeddings\":512}",
                         NULL));
    CHECK(c.kv_heads == 4 && c.head_dim == 8 && c.inter == 40);
    CHECK(c.eps == 1e-6 && c.rope.theta == 10000.0 && !c.tied && !c.has_qkv_bias && !c.has_o_bias);
    CHECK_OK(load_config(&c,
                         "{\"model_type\":\"mixtral\",\"intermediate_size\":136,"
                         "\"hidden_size\":64,\"num_hidden_layers\":3,\"vocab_size\":517,"
                         "\"num_attention_heads\":8,\"max_position_embeddings\":512}",
                         NULL));
    CHECK(c.kv_heads == 8 && c.head_dim == 8 && c.inter == 136);
    CHECK(c.eps == 1e-5 && c.rope.theta == 1e6 && !c.tied && !c.has_qkv_bias && !c.has_o_bias);
    CHECK_OK(load_config(&c, "{" QWEN3_MOE ",\"attention_bias\":true,\"head_dim\":16}", NULL));
    CHECK(c.has_qkv_bias && c.has_o_bias && !c.has_mlp_bias && c.head_dim == 16);
    CHECK_OK(load_config(&c, "{" MIXTRAL ",\"sliding_window\":64}", NULL));
    CHECK(c.window == 64 && c.is_local[0] && c.is_local[2]);
}

/* What GLM has beside the experts that are chosen. */
static void others(void)
{
    static const struct {
        const char *members;
        int32_t chosen, has_shared, renormalises, dense_layers, of_first, of_last;
        double scale;
        int has_head_norms;
    } cases[] = {
        {GLM4_MOE, 8, 1, 1, 1, 136, 40, 1.0, 0},
        {GLM4_MOE ",\"n_routed_experts\":9,\"num_experts_per_tok\":2,\"norm_topk_prob\":false,"
                  "\"n_shared_experts\":0,\"routed_scaling_factor\":2.5,\"use_qk_norm\":true,"
                  "\"first_k_dense_replace\":0,\"n_group\":1,\"topk_group\":1",
         2, 0, 0, 0, 40, 40, 2.5, 1},
        {GLM4_MOE ",\"num_local_experts\":9,\"first_k_dense_replace\":2", 8, 1, 1, 2, 136, 40, 1.0,
         0},
        {GLM4_MOE ",\"first_k_dense_replace\":7", 8, 1, 1, 3, 136, 136, 1.0, 0},
        {QWEN3_MOE, 8, 0, 0, 0, 40, 40, 1.0, 1},
        {MIXTRAL ",\"n_shared_experts\":3,\"n_group\":8,\"first_k_dense_replace\":1,"
                 "\"routed_scaling_factor\":2.5",
         2, 0, 1, 0, 136, 136, 1.0, 0},
    };
    char text[1024];
    struct sb_config c;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{%s}", cases[i].members);
        CHECK_OK(load_config(&c, text, NULL));
        CHECK_INT(c.chosen, cases[i].chosen);
        CHECK_INT(c.has_shared, cases[i].has_shared);
        CHECK_INT(c.renormalises, cases[i].renormalises);
        CHECK_INT(c.dense_layers, cases[i].dense_layers);
        CHECK_INT(sb_config_inter_of(&c, 0), cases[i].of_first);
        CHECK_INT(sb_config_inter_of(&c, 2), cases[i].of_last);
        CHECK_INT(sb_config_experts_of(&c, 0),
                  c.dense_layers > 0 ? 0 : c.experts + cases[i].has_shared);
        CHECK_INT(sb_config_experts_of(&c, 2),
                  c.dense_layers > 2 ? 0 : c.experts + cases[i].has_shared);
        CHECK(c.expert_scale == cases[i].scale);
        CHECK_INT(c.has_head_norms, cases[i].has_head_norms);
    }
    CHECK_OK(load_config(&c, "{" GLM4_MOE "}", NULL));
    CHECK(c.rope.rot_dim * 2 == c.head_dim && c.eps == 1e-5 && !c.has_qkv_bias);
    CHECK_OK(load_config(&c, "{" GLM4_MOE ",\"attention_bias\":true}", NULL));
    CHECK(c.has_qkv_bias && !c.has_o_bias && !c.has_mlp_bias);
}

/* As config.json of gpt-oss-20b has it, and what holds where it is silent. */
static void gpt_oss(void)
{
    static const char published[] =
        "{\"architectures\":[\"GptOssForCausalLM\"],\"attention_bias\":true,"
        "\"attention_dropout\":0.0,\"eos_token_id\":200002,\"experts_per_token\":4,"
        "\"head_dim\":64,\"hidden_act\":\"silu\",\"hidden_size\":2880,"
        "\"initial_context_length\":4096,\"initializer_range\":0.02,\"intermediate_size\":2880,"
        "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
        "\"full_attention\"],\"max_position_embeddings\":131072,\"model_type\":\"gpt_oss\","
        "\"num_attention_heads\":64,\"num_experts_per_tok\":4,\"num_hidden_layers\":4,"
        "\"num_key_value_heads\":8,\"num_local_experts\":32,\"output_router_logits\":false,"
        "\"pad_token_id\":199999,\"quantization_config\":{\"modules_to_not_convert\":"
        "[\"model.layers.*.self_attn\",\"model.layers.*.mlp.router\",\"model.embed_tokens\","
        "\"lm_head\"],\"quant_method\":\"mxfp4\"},\"rms_norm_eps\":1e-05,\"rope_scaling\":"
        "{\"beta_fast\":32.0,\"beta_slow\":1.0,\"factor\":32.0,"
        "\"original_max_position_embeddings\":4096,\"rope_type\":\"yarn\",\"truncate\":false},"
        "\"rope_theta\":150000,\"router_aux_loss_coef\":0.9,\"sliding_window\":128,"
        "\"swiglu_limit\":7.0,\"tie_word_embeddings\":false,\"use_cache\":true,"
        "\"vocab_size\":201088}";
    struct sb_config c;

    CHECK_OK(load_config(&c, published, "{\"eos_token_id\":[200002,199999,200012]}"));
    CHECK(c.layers == 4 && c.hidden == 2880 && c.inter == 2880 && c.heads == 64);
    CHECK(c.kv_heads == 8 && c.head_dim == 64 && c.vocab == 201088 && c.context == 131072);
    CHECK(c.experts == 32 && c.chosen == 4 && c.renormalises == 1 && c.has_shared == 0);
    CHECK(c.has_qkv_bias && c.has_o_bias && c.has_mlp_bias && !c.tied && c.eps == 1e-5);
    CHECK(c.window == 128 && c.is_local[0] && !c.is_local[1] && c.is_local[2] && !c.is_local[3]);
    CHECK(c.rope.kind == SB_ROPE_YARN && c.rope.factor == 32.0 && !c.rope.truncate);
    CHECK(c.rope.theta == 150000.0 && c.rope.original_context == 4096.0);
    CHECK(c.n_eos == 3 && c.eos[0] == 200002 && c.eos[2] == 200012);

    CHECK_OK(load_config(&c, "{" GPT_OSS "}", NULL));
    CHECK(c.experts == 128 && c.chosen == 4 && c.head_dim == 64 && c.rope.theta == 150000.0);
    CHECK(c.window == 128 && c.is_local[0] && !c.is_local[1] && c.is_local[2]);
    CHECK(c.has_qkv_bias && c.has_o_bias && c.eps == 1e-5);
    CHECK_OK(
        load_config(&c, "{" GPT_OSS ",\"attention_bias\":false,\"swiglu_alpha\":1.702}", NULL));
    CHECK(!c.has_qkv_bias && !c.has_o_bias && c.has_mlp_bias);
}

static void refusals(void)
{
    static const struct {
        const char *members;
        int32_t code;
        const char *part;
    } cases[] = {
        {QWEN3_MOE ",\"mlp_only_layers\":[0]", SPECBATCH_E_UNSUPPORTED,
         "config.json: mlp_only_layers: layers without experts are not supported"},
        {QWEN3_MOE ",\"mlp_only_layers\":2", SPECBATCH_E_UNSUPPORTED, "mlp_only_layers: layers"},
        {QWEN3_MOE ",\"decoder_sparse_step\":2", SPECBATCH_E_UNSUPPORTED,
         "config.json: decoder_sparse_step 2: layers without experts are not supported"},
        {QWEN3_MOE ",\"decoder_sparse_step\":0", SPECBATCH_E_FORMAT, "decoder_sparse_step"},
        {QWEN3_MOE ",\"use_sliding_window\":true,\"sliding_window\":64", SPECBATCH_E_UNSUPPORTED,
         "use_sliding_window is not supported with model_type qwen3_moe"},
        {MIXTRAL ",\"use_sliding_window\":true", SPECBATCH_E_UNSUPPORTED,
         "use_sliding_window is not supported with model_type mixtral"},
        {QWEN3_MOE ",\"use_sliding_window\":1", SPECBATCH_E_FORMAT, "use_sliding_window"},
        {QWEN3_MOE ",\"num_experts\":4", SPECBATCH_E_FORMAT,
         "config.json: num_experts_per_tok 8 is more than the 4 experts"},
        {MIXTRAL ",\"num_experts_per_tok\":9", SPECBATCH_E_FORMAT,
         "num_experts_per_tok 9 is more than the 8 experts"},
        {MIXTRAL ",\"num_experts\":4,\"num_local_experts\":6", SPECBATCH_E_FORMAT,
         "config.json: num_experts 4 and num_local_experts 6 differ; keep one"},
        {QWEN3_MOE ",\"num_experts\":0", SPECBATCH_E_FORMAT, "num_experts is not an integer from"},
        {QWEN3_MOE ",\"num_experts\":4097", SPECBATCH_E_FORMAT, "num_experts is not"},
        {QWEN3_MOE ",\"num_experts\":\"8\"", SPECBATCH_E_FORMAT, "num_experts is not"},
        {MIXTRAL ",\"num_local_experts\":0", SPECBATCH_E_FORMAT, "num_local_experts is not"},
        {MIXTRAL ",\"num_local_experts\":2.5", SPECBATCH_E_FORMAT, "num_local_experts is not"},
        {MIXTRAL ",\"num_experts_per_tok\":0", SPECBATCH_E_FORMAT, "num_experts_per_tok is not"},
        {MIXTRAL ",\"num_experts_per_tok\":-1", SPECBATCH_E_FORMAT, "num_experts_per_tok is not"},
        {QWEN3_MOE ",\"norm_topk_prob\":1", SPECBATCH_E_FORMAT, "norm_topk_prob"},
        {OF_QWEN, SPECBATCH_E_FORMAT, "moe_intermediate_size is missing"},
        {OF_QWEN ",\"moe_intermediate_size\":0", SPECBATCH_E_FORMAT, "moe_intermediate_size"},
        {GLM4_MOE ",\"n_group\":8", SPECBATCH_E_UNSUPPORTED,
         "config.json: n_group 8: groups of experts are not supported"},
        {GLM4_MOE ",\"n_shared_experts\":2", SPECBATCH_E_UNSUPPORTED,
         "config.json: n_shared_experts 2: at most 1 is supported"},
        {GLM4_MOE ",\"n_shared_experts\":-1", SPECBATCH_E_FORMAT, "n_shared_experts is not"},
        {GLM4_MOE ",\"first_k_dense_replace\":-1", SPECBATCH_E_FORMAT, "first_k_dense_replace is"},
        {GLM4_MOE ",\"routed_scaling_factor\":0", SPECBATCH_E_FORMAT, "routed_scaling_factor"},
        {GLM4_MOE ",\"n_routed_experts\":4,\"num_local_experts\":6", SPECBATCH_E_FORMAT,
         "config.json: n_routed_experts 4 and num_local_experts 6 differ; keep one"},
        {GLM4_MOE ",\"mlp_only_layers\":[1]", SPECBATCH_E_UNSUPPORTED, "mlp_only_layers: layers"},
        {GPT_OSS ",\"swiglu_limit\":6.5", SPECBATCH_E_UNSUPPORTED,
         "config.json: swiglu_limit 6.5 is not supported; only 7 is"},
        {GPT_OSS ",\"swiglu_alpha\":1", SPECBATCH_E_UNSUPPORTED,
         "config.json: swiglu_alpha 1 is not supported; only 1.702 is"},
        {GPT_OSS ",\"swiglu_limit\":\"7\"", SPECBATCH_E_FORMAT, "swiglu_limit is not a number"},
        {GPT_OSS ",\"quantization_config\":{\"quant_method\":\"gptq\"}", SPECBATCH_E_UNSUPPORTED,
         "quantization_config"},
        {MIXTRAL ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}", SPECBATCH_E_UNSUPPORTED,
         "quantization_config"},
        {"\"model_type\":\"qwen2_moe\"," SIZES REST, SPECBATCH_E_UNSUPPORTED, "qwen2_moe"},
    };
    char text[1024];
    struct sb_config c;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{%s}", cases[i].members);
        CHECK_ERROR(load_config(&c, text, NULL), cases[i].code, cases[i].part);
    }
}

/* They are part of what a session is held against. */
static void digests_differ(void)
{
    static const char *const texts[] = {"{" MIXTRAL "}", "{" MIXTRAL ",\"num_experts\":7}",
                                        "{" MIXTRAL ",\"num_experts_per_tok\":3}",
                                        "{" QWEN3_MOE "}",
                                        "{" QWEN3_MOE ",\"norm_topk_prob\":true}"};
    enum { N = sizeof texts / sizeof *texts };
    char digests[N][SB_DIGEST_TEXT];

    for (int i = 0; i < N; i++) {
        struct sb_digest digest;
        struct sb_config c;
        CHECK_OK(load_config(&c, texts[i], NULL));
        sb_digest_begin(&digest);
        sb_config_digest(&c, &digest);
        sb_digest_end(&digest, digests[i]);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(digests[i], digests[j]) != 0);
    }
}

TEST_BEGIN
RUN(numbers);
RUN(defaults);
RUN(others);
RUN(gpt_oss);
RUN(refusals);
RUN(digests_differ);
TEST_END
