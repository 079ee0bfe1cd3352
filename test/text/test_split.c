/*
 * Pre-tokenizers: the words that they make of texts are those of the reference implementation
 * (test/data/tokenizers/steps.jsonl, which compare_tokenizers.py --golden-steps wrote). The text
 * with every character of punctuation shows which of them it takes for such.
 */
#include "support/words.h"

/* A tokenizer with this pre-tokenizer. */
static int32_t make(struct sb_tokenizer **t, const char *step)
{
    char json[1024];

    sb_tokenizer_free(*t);
    *t = sb_tokenizer_create(&test_mem);
    const int n = snprintf(json, sizeof json,
                           "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},"
                           "\"pre_tokenizer\":%s}",
                           step);
    return *t ? sb_tokenizer_read_hf(*t, json, (size_t)n, "tokenizer.json") : SPECBATCH_E_NOMEM;
}

/* A line {"step"} changes the pre-tokenizer, a line {"text", "words"} tries it. */
static void test_reference_words(void)
{
    struct sb_tokenizer *t = NULL;
    struct lines lines;
    char *line;
    int seen = 0;

    CHECK(open_lines(&lines, "test/data/tokenizers/steps.jsonl"));
    for (; (line = next_line(&lines)) != NULL; seen++) {
        struct sb_json *doc = NULL;
        CHECK_OK(sb_json_parse(&doc, &test_mem, line, strlen(line), "steps.jsonl"));
        const struct sb_json_node *root = sb_json_root(doc);
        const char *step = sb_json_string(sb_json_get(root, "step"), NULL);
        if (step ? make(&t, step) != SPECBATCH_OK : !makes_words(&t->splitters, root))
            FAIL("steps.jsonl:%d: %.200s (%s)", seen + 1, line, specbatch_last_error());
        sb_json_free(doc);
    }
    CHECK(seen > 300);
    close_lines(&lines);
    sb_tokenizer_free(t);
}

static void test_refusals(void)
{
    static const struct {
        const char *step, *message;
    } cases[] = {
        {"{\"type\":\"Punctuation\",\"behavior\":\"Kept\"}", "pre_tokenizer with behavior Kept"},
        {"{\"type\":\"Punctuation\",\"behavior\":7}", "pre_tokenizer with behavior (none)"},
        {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"}}",
         "pre_tokenizer with behavior (none)"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sb_tokenizer *t = NULL;
        CHECK_ERROR(make(&t, cases[i].step), SPECBATCH_E_UNSUPPORTED, cases[i].message);
        sb_tokenizer_free(t);
    }
}

TEST_BEGIN
RUN(test_reference_words);
RUN(test_refusals);
TEST_END
