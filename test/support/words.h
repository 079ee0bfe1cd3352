/* Compares the words that splitting steps make of a text with those of a line of a golden file. */
#ifndef WORDS_H
#define WORDS_H

#include "support/tokenizer_data.h"
#include "text/pipeline.h"

/* The words that are expected; `next` is the next one. */
struct expected_words {
    const struct sb_json_node *next;
    int ok;
};

static inline int32_t check_word(void *context, const char *word, size_t n)
{
    struct expected_words *expected = context;
    size_t length = 0;
    const char *text = sb_json_string(expected->next, &length);

    expected->ok &= text && length == n && memcmp(text, word, n) == 0;
    if (text)
        expected->next = sb_json_next(expected->next);
    return SPECBATCH_OK;
}

/* Whether the steps make of the text of a line {"text", "words"} these words. */
static inline int makes_words(const struct sb_steps *steps, const struct sb_json_node *line)
{
    struct expected_words expected = {sb_json_first(sb_json_get(line, "words")), 1};
    struct sb_work work;
    size_t n = 0;
    const char *text = sb_json_string(sb_json_get(line, "text"), &n);

    sb_work_init(&work, &test_mem);
    const int32_t rc = sb_split(steps, 0, &work, text, n, 1, check_word, &expected);
    sb_work_clear(&work);
    return rc == SPECBATCH_OK && expected.ok && !expected.next;
}

#endif
