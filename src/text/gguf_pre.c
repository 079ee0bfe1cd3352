/* The table of pre-tokenizers that GGUF files name; see gguf_pre.h. */
#include "gguf_pre.h"

static const struct sb_gguf_pre pres[] = {
    {"llama-bpe", SB_STEP_SPLIT_CL100K, 3, 0, 1, 1, {NULL, NULL}},
    {"llama3", SB_STEP_SPLIT_CL100K, 3, 0, 1, 1, {NULL, NULL}},
    {"llama-v3", SB_STEP_SPLIT_CL100K, 3, 0, 1, 1, {NULL, NULL}},
    {"qwen2", SB_STEP_SPLIT_CL100K, 1, 1, 0, 0, {NULL, NULL}},
    {"glm4", SB_STEP_SPLIT_CL100K, 3, 0, 1, 0, {"[gMASK]", "<sop>"}},
    {"gpt-2", SB_STEP_SPLIT_GPT2, 0, 0, 0, 0, {NULL, NULL}},
};

const struct sb_gguf_pre *sb_gguf_pre_at(size_t index)
{
    return index < sizeof pres / sizeof *pres ? &pres[index] : NULL;
}
