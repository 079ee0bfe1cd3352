/* A checkpoint whose context is cut to three spans (src/backend/cuda/prefill.h), because cuDNN's
 * self-tests are slow on the simulated device. */
#ifndef THREE_SPANS_H
#define THREE_SPANS_H

#include "support/model_files.h"

#define THREE_SPANS_OF "test/data/models/long_qwen3_hd128_bf16"

/* The caller removes the folder. Ends the program when the checkpoint is not there. */
static inline struct test_dir three_spans_make(void)
{
    static const char context[] = "\"max_position_embeddings\": ";
    size_t n_config, n_weights;
    char *config = test_read(THREE_SPANS_OF, "config.json", &n_config);
    char *weights = test_read(THREE_SPANS_OF, "model.safetensors", &n_weights);
    char *at = config ? strstr(config, context) : NULL;
    struct test_dir dir;

    if (!at || !weights)
        exit(2);
    memcpy(at + sizeof context - 1, " 768", 4);
    dir = test_dir_make();
    test_write(&dir, "config.json", config, n_config);
    test_write(&dir, "model.safetensors", weights, n_weights);
    free(config);
    free(weights);
    return dir;
}

#endif
