/*
 * Tokenizers as the metadata of GGUF files. Of each tokenizer of the tree it is stated what a
 * description loses; those that lose nothing come back from the file with the same ids and texts.
 * test_gguf_vocab.c holds the reader of such metadata against files that are made in another way.
 */
#include "gguf_write.h"
#include "sbtest.h"
#include "support/model_files.h"
#include "support/same_tokenizer.h"
#include "text/spm.h"

#define TOKENIZERS "test/data/tokenizers/"
#define TEXTS TOKENIZERS "qwen/golden.jsonl"

/* Writes the description as a file of its own, and loads it again. */
static int32_t write_and_load(struct sb_tokenizer **out, struct sb_gguf_text *text,
                              const struct sb_tokenizer *t)
{
    const struct test_dir dir = test_dir_make();
    struct sb_gguf_out file;
    struct sb_gguf *gguf = NULL;
    char path[128];
    int32_t rc;

    *out = NULL;
    snprintf(path, sizeof path, "%s/model.gguf", dir.path);
    sb_gguf_out_init(&file, &test_mem);
    rc = sb_tokenizer_describe(&file, t, text);
    if (text->bos >= 0)
        sb_gguf_put_u32(&file, "tokenizer.ggml.bos_token_id", (uint32_t)text->bos);
    if (text->eos >= 0)
        sb_gguf_put_u32(&file, "tokenizer.ggml.eos_token_id", (uint32_t)text->eos);
    rc = rc == SPECBATCH_OK ? sb_gguf_out_begin(&file, path) : rc;
    rc = rc == SPECBATCH_OK ? sb_gguf_out_keep(&file) : rc;
    rc = rc == SPECBATCH_OK ? sb_gguf_open(&gguf, &test_mem, path) : rc;
    rc = rc == SPECBATCH_OK ? sb_tokenizer_load_gguf(out, &test_mem, path, gguf) : rc;
    sb_gguf_close(gguf);
    sb_gguf_out_clear(&file);
    test_dir_remove(&dir);
    return rc;
}

static void descriptions_give_the_tokenizer_back(void)
{
    static const char *const dirs[] = {TOKENIZERS "qwen", TOKENIZERS "glm", TOKENIZERS "spm",
                                       "test/data/models/emoji", "examples/demo/target"};

    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        struct sb_gguf_text text = {.vocab = 4096, .bos = -1, .eos = 2};
        struct sb_tokenizer *expected = NULL, *got = NULL;
        CHECK_OK(sb_tokenizer_load(&expected, &test_mem, dirs[i]));
        CHECK_OK(write_and_load(&got, &text, expected));
        CHECK(text.described && !text.lost && got);
        CHECK(same_tokenizer(expected, got, 0, TEXTS) > 100);
        CHECK(same_tokenizer(expected, got, SPECBATCH_TEXT_PLAIN_SPECIAL, TEXTS) > 100);
        CHECK(same_tokenizer(expected, got, SPECBATCH_TEXT_NO_BOS, TEXTS) > 100);
        sb_tokenizer_free(expected);
        sb_tokenizer_free(got);
    }
}

/* What cannot be described is said, and what is described in part can be loaded. */
static void descriptions_say_what_they_lose(void)
{
    static const struct {
        const char *from, *lost;
        int described;
    } cases[] = {
        {TOKENIZERS "gpt2", "a pre-tokenizer that has no name", 0}, /* a blank before the text */
        {TOKENIZERS "nfd", "a pre-tokenizer that has no name", 0},
        {TOKENIZERS "nfkc", "a pre-tokenizer that has no name", 0},
        {TOKENIZERS "nfkd", "a pre-tokenizer that has no name", 0},
        {TOKENIZERS "regex", "a pre-tokenizer that has no name", 0},
        {TOKENIZERS "added", "how added tokens treat the text beside them", 1},
        {TOKENIZERS "llama", "what only a tokenizer.json can say", 1},
        {TOKENIZERS "llama_cross", "what only a tokenizer.json can say", 1},
        {TOKENIZERS "llama_unk", "what only a tokenizer.json can say", 1},
        {TOKENIZERS "metaspace_always", "what only a tokenizer.json can say", 1},
        {TOKENIZERS "metaspace_first", "what only a tokenizer.json can say", 1},
        {TOKENIZERS "spm_squeeze", "that user-defined pieces are looked for in normalised text", 1},
        {TOKENIZERS "spm_rules", "that user-defined pieces are looked for in normalised text", 1},
        {TOKENIZERS "spm_user", "that user-defined pieces are looked for in normalised text", 1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sb_gguf_text text = {.vocab = 4096, .bos = -1, .eos = 2};
        struct sb_tokenizer *t = NULL, *got = NULL;
        CHECK_OK(sb_tokenizer_load(&t, &test_mem, cases[i].from));
        CHECK_OK(write_and_load(&got, &text, t));
        CHECK(text.lost && strncmp(text.lost, cases[i].lost, strlen(cases[i].lost)) == 0);
        CHECK_INT(text.described, cases[i].described);
        CHECK_INT(got != NULL, cases[i].described);
        sb_tokenizer_free(t);
        sb_tokenizer_free(got);
    }
}

/* A tokenizer.model whose tokenizer_config.json says legacy = false or add_prefix_space = false.
 * Files have a key for the second. */
static void descriptions_know_where_blanks_are_put(void)
{
    for (int prefix = 0; prefix < 2; prefix++) {
        struct sb_gguf_text text = {.vocab = 4096, .bos = -1, .eos = 2};
        struct sb_tokenizer *t = NULL, *got = NULL;
        CHECK_OK(sb_tokenizer_load(&t, &test_mem, TOKENIZERS "spm"));
        CHECK_OK(sb_spm_set_prefix(t, prefix, "config"));
        CHECK_OK(write_and_load(&got, &text, t));
        CHECK(text.described && got);
        if (prefix)
            CHECK_STR(text.lost, "that added tokens have no blank behind");
        else
            CHECK(!text.lost && same_tokenizer(t, got, 0, TEXTS) > 100);
        sb_tokenizer_free(t);
        sb_tokenizer_free(got);
    }
}

/* A vocabulary that the model has too few embeddings for is not described. */
static void vocabularies_have_to_fit(void)
{
    struct sb_gguf_text text = {.vocab = 50, .bos = -1, .eos = -1};
    struct sb_tokenizer *t = NULL, *got = NULL;

    CHECK_OK(sb_tokenizer_load(&t, &test_mem, TOKENIZERS "qwen"));
    CHECK_OK(write_and_load(&got, &text, t));
    CHECK(!text.described && !got);
    CHECK_STR(text.lost, "pieces for which the model has no embedding");
    sb_tokenizer_free(t);
}

TEST_BEGIN
RUN(descriptions_give_the_tokenizer_back);
RUN(descriptions_say_what_they_lose);
RUN(descriptions_know_where_blanks_are_put);
RUN(vocabularies_have_to_fit);
TEST_END
