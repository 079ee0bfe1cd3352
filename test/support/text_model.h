/*
 * A small model that makes text: random weights with one of the small tokenizers, whose first ids
 * are single bytes, so its text is full of broken characters and of runs of byte tokens.
 */
#ifndef SB_TEST_TEXT_MODEL_H
#define SB_TEST_TEXT_MODEL_H

#include "support/failalloc.h"
#include "support/model_files.h"

#define TEXT_WEIGHTS "test/data/models/llama_mha_f16"

/* Opens it with a tokenizer of test/data/tokenizers, or with none (NULL). `memory` serves its
 * allocations; NULL: the C library does. */
static inline specbatch_model *open_text_model(const char *tokenizer, struct failalloc *memory)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    const struct test_dir dir = test_dir_make();
    specbatch_model *model = NULL;
    char from[200];

    test_copy(&dir, TEXT_WEIGHTS, NULL);
    snprintf(from, sizeof from, "test/data/tokenizers/%s", tokenizer ? tokenizer : "");
    if (tokenizer)
        test_copy(&dir, from, NULL);
    options.alloc = memory ? failalloc_alloc : NULL;
    options.free = memory ? failalloc_free : NULL;
    options.alloc_user = memory;
    if (specbatch_model_open(&model, dir.path, &options) != SPECBATCH_OK)
        printf("     %s\n", specbatch_last_error());
    test_dir_remove(&dir);
    return model;
}

#endif
