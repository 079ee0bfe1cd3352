/* The table of pre-tokenizers that GGUF files name; see gguf_pre.h. All patterns are among those
 * that split_words.c has written out by hand. */
#include "gguf_pre.h"

#define WORDS(digits)                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct sb_gguf_pre pres[] = {
    {"llama-bpe", WORDS("\\p{N}{1,3}"), 0, 1, 1, {NULL, NULL}},
    {"llama3", WORDS("\\p{N}{1,3}"), 0, 1, 1, {NULL, NULL}},
    {"llama-v3", WORDS("\\p{N}{1,3}"), 0, 1, 1, {NULL, NULL}},
    {"qwen2", WORDS("\\p{N}"), 1, 0, 0, {NULL, NULL}},
    {"glm4", WORDS("\\p{N}{1,3}"), 0, 1, 0, {"[gMASK]", "<sop>"}},
    {"gpt-2", NULL, 0, 0, 0, {NULL, NULL}},
};

const struct sb_gguf_pre *sb_gguf_pre_at(size_t index)
{
    return index < sizeof pres / sizeof *pres ? &pres[index] : NULL;
}
