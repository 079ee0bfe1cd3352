/* The table of pre-tokenizers that GGUF files name; see gguf_pre.h. */
#include "gguf_pre.h"

/* o200k_base of tiktoken, which gpt-oss and GPT-4o have. Words also end where an upper-case letter
 * comes behind a lower-case one. */
#define O200K                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"  \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"  \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" \
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"   \
    "\\s+(?!\\S)|\\s+"

static const struct sb_gguf_pre pres[] = {
    {"llama-bpe", SB_STEP_SPLIT_CL100K, 3, 0, 1, 1, {NULL, NULL}, NULL},
    {"llama3", SB_STEP_SPLIT_CL100K, 3, 0, 1, 1, {NULL, NULL}, NULL},
    {"llama-v3", SB_STEP_SPLIT_CL100K, 3, 0, 1, 1, {NULL, NULL}, NULL},
    {"qwen2", SB_STEP_SPLIT_CL100K, 1, 1, 0, 0, {NULL, NULL}, NULL},
    {"glm4", SB_STEP_SPLIT_CL100K, 3, 0, 1, 0, {"[gMASK]", "<sop>"}, NULL},
    {"gpt-4o", SB_STEP_SPLIT_PATTERN, 0, 0, 0, 0, {NULL, NULL}, O200K},
    {"gpt-2", SB_STEP_SPLIT_GPT2, 0, 0, 0, 0, {NULL, NULL}, NULL},
};

const struct sb_gguf_pre *sb_gguf_pre_at(size_t index)
{
    return index < sizeof pres / sizeof *pres ? &pres[index] : NULL;
}
