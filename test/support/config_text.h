/* config.json for tests: text that can be opened, to which cases add members, and how it is loaded.
 */
#ifndef SB_TEST_CONFIG_TEXT_H
#define SB_TEST_CONFIG_TEXT_H

#include "model/config.h"
#include "support/model_files.h"

/* A Llama config without the keys that have defaults. Cases add members to it. Since the reader
 * refuses duplicate names, it is in parts, so that a case can leave one out. */
#define ARCH "\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
#define SIZES "\"hidden_size\":72,\"intermediate_size\":136,\"num_hidden_layers\":3,"
#define REST "\"vocab_size\":517,\"num_attention_heads\":6,\"max_position_embeddings\":512"
#define BASE ARCH SIZES REST
#define GLM4 "\"model_type\":\"glm4\"," SIZES REST ",\"head_dim\":16"
#define QWEN2 "\"model_type\":\"qwen2\"," SIZES REST
#define MISTRAL "\"model_type\":\"mistral\"," SIZES REST ",\"num_key_value_heads\":2"
#define SMOLLM3 "\"model_type\":\"smollm3\"," SIZES REST ",\"num_key_value_heads\":2"
#define PHI3 "\"model_type\":\"phi3\"," SIZES REST
#define GEMMA2 "\"model_type\":\"gemma2\"," SIZES REST ",\"num_key_value_heads\":2"
#define GEMMA "\"model_type\":\"gemma3_text\"," SIZES REST ",\"num_key_value_heads\":2"

/* Reads it from a directory, with generation_config.json beside it unless that is NULL. */
static inline int32_t load_config(struct sb_config *config, const char *text,
                                  const char *generation)
{
    const struct test_dir dir = test_dir_make();
    const struct sb_log log = {NULL, NULL};
    int32_t rc;

    test_write_text(&dir, "config.json", text);
    if (generation)
        test_write_text(&dir, "generation_config.json", generation);
    rc = sb_config_load(config, &test_mem, &log, dir.path);
    test_dir_remove(&dir);
    return rc;
}

#endif
