/*
 * What the files beside a tokenizer say of it: added tokens, special ones, and what goes around a
 * text. The ids are those of transformers 4.53 for the same folders.
 */
#include "support/model_files.h"
#include "support/tokenizer_data.h"
#include "text/spm.h"

static const char json[] =
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],\"model\":{\"type\":"
    "\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\" \":2},\"merges\":[]}}";

/* A folder with a tokenizer and these files beside it; those that are NULL are not there. */
static struct test_dir write_folder(int is_json, const char *config, const char *added)
{
    static const char spm[] = "test/data/tokenizers/spm";
    struct test_dir dir = test_dir_make();
    size_t n = 0;
    char *model = is_json ? NULL : test_read(spm, "tokenizer.model", &n);

    if (is_json)
        test_write_text(&dir, "tokenizer.json", json);
    if (model)
        test_write(&dir, "tokenizer.model", model, n);
    free(model);
    if (config)
        test_write_text(&dir, "tokenizer_config.json", config);
    if (added)
        test_write_text(&dir, "added_tokens.json", added);
    return dir;
}

/* Loads a tokenizer from such a folder. */
static int32_t load(struct sb_tokenizer **t, int is_json, const char *config, const char *added)
{
    const struct test_dir dir = write_folder(is_json, config, added);
    const int32_t rc = sb_tokenizer_load(t, &test_mem, dir.path);

    test_dir_remove(&dir);
    return rc;
}

#define LLAMA "{\"tokenizer_class\":\"LlamaTokenizerFast\","
#define E_STRIPS "{\"content\":\"<e>\",\"rstrip\":true,\"special\":true}"

static const struct {
    int is_json;
    const char *config, *added, *text;
    int32_t n, ids[8];
    const char *back;
} same[] = {
    /* A new token, and another flag of a known one. */
    {1,
     "{\"added_tokens_decoder\":{\"4\":{\"content\":\"<e>\",\"special\":true},\"3\":{\"content\":"
     "\"<s>\",\"rstrip\":true,\"special\":true}}}",
     NULL,
     "a<s> b<e>a",
     5,
     {0, 3, 1, 4, 0},
     "a b a"},
    {1, NULL, "{\"<f>\":5,\"<e>\":4}", "a<e><f>b", 4, {0, 4, 5, 1}, "a <e> <f> b"},
    {1, "{\"added_tokens_decoder\":{}}", "{\"<e>\":4}", "ab", 2, {0, 1}, "a b"},
    {1, "{\"eos_token\":\"b\"}", NULL, "ab", 2, {0, 1}, "a"},
    {1, "{\"extra_special_tokens\":{\"image_token\":\"b\"}}", NULL, "ab", 2, {0, 1}, "a"},
    {1, "{\"extra_special_tokens\":[\"b\"]}", NULL, "ab", 2, {0, 1}, "a"},
    {0, "{\"unk_token\":\"<unk>\"}", NULL, "<unk>", 2, {1, 0}, ""},
    {0,
     "{\"eos_token\":\"<e>\"}",
     "{\"<f>\":601,\"<e>\":600}",
     "a<e>b<f>c",
     6,
     {1, 259, 600, 266, 601, 274},
     "a b<f> c"},
    {0,
     "{\"added_tokens_decoder\":{\"600\":" E_STRIPS "}}",
     NULL,
     "a<e> b",
     4,
     {1, 259, 600, 266},
     "a b"},
    /* What goes around a text. */
    {1,
     "{\"tokenizer_class\":\"LlamaTokenizerFast\",\"add_bos_token\":true}",
     NULL,
     "ab",
     3,
     {3, 0, 1},
     "a b"},
    {1, "{\"tokenizer_class\":\"LlamaTokenizerFast\"}", NULL, "ab", 2, {0, 1}, "a b"},
    {1,
     "{\"tokenizer_class\":\"Qwen2Tokenizer\",\"add_bos_token\":true}",
     NULL,
     "ab",
     2,
     {0, 1},
     "a b"},
    {1,
     "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":false,\"add_eos_token\":true,"
     "\"eos_token\":{\"content\":\"<s>\"}}",
     NULL,
     "ab",
     3,
     {0, 1, 3},
     "a b"},
    {0, "{\"add_bos_token\":false}", NULL, "ab", 2, {259, 545}, "ab"},
    /* Where blanks are put. */
    {0, "{\"legacy\":true}", NULL, "<s>ab</s> c", 7, {1, 1, 259, 545, 2, 527, 274}, "ab  c"},
    {0, "{\"legacy\":false}", NULL, "ab", 3, {1, 259, 545}, "ab"},
    {0, "{\"legacy\":false}", NULL, "<s>ab</s> c", 6, {1, 1, 528, 545, 2, 274}, "ab c"},
    {0, "{\"legacy\":false}", NULL, " ab", 3, {1, 259, 545}, "ab"},
    {0, LLAMA "\"legacy\":false}", NULL, " <s>ab", 5, {1, 527, 1, 528, 545}, "ab"},
    {0, LLAMA "\"add_prefix_space\":false}", NULL, "ab", 3, {1, 528, 545}, "ab"},
    {0, LLAMA "\"add_prefix_space\":false}", NULL, " ab", 3, {1, 259, 545}, " ab"},
    {0,
     "{\"tokenizer_class\":\"CodeLlamaTokenizer\",\"legacy\":false}",
     NULL,
     "<s>ab",
     4,
     {1, 1, 259, 545},
     "ab"},
    {1, LLAMA "\"legacy\":7}", NULL, "ab", 2, {0, 1}, "a b"},
};

static void test_as_transformers(void)
{
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct sb_tokenizer *t = NULL;
        struct sb_ids ids = {.mem = &test_mem};
        struct sb_bytes back = {.mem = &test_mem};
        CHECK_OK(load(&t, same[i].is_json, same[i].config, same[i].added));
        CHECK_OK(sb_tokenizer_encode(t, same[i].text, strlen(same[i].text), 0, &ids));
        CHECK_OK(sb_tokenizer_decode(t, ids.data, ids.n, 0, &back));
        if (ids.n != (size_t)same[i].n ||
            memcmp(ids.data, same[i].ids, ids.n * sizeof *ids.data) != 0 ||
            strcmp(back.data, same[i].back) != 0) {
            printf("     case %zu: \"%s\":", i, back.data);
            for (size_t k = 0; k < ids.n; k++)
                printf(" %d", (int)ids.data[k]);
            printf("\n");
            sbtest_failed_now = 1;
        }
        sb_ids_clear(&ids);
        sb_bytes_clear(&back);
        sb_tokenizer_free(t);
    }
}

/* A token whose flags do not say whether it is normalized is so unless it is special. */
static void test_a_missing_flag(void)
{
    static const char nfc[] =
        "{\"normalizer\":{\"type\":\"NFC\"},\"added_tokens\":[],\"model\":{\"type\":\"BPE\","
        "\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}";
    static const char text[] = "a\xC3\xA9xb"; /* with one e that has an accent */

    for (int special = 0; special < 2; special++) {
        const struct test_dir dir = test_dir_make();
        struct sb_ids ids = {.mem = &test_mem};
        struct sb_tokenizer *t = NULL;
        char config[160];
        snprintf(config, sizeof config,
                 "{\"added_tokens_decoder\":{\"2\":{\"content\":\"e\\u0301x\",\"special\":%s}}}",
                 special ? "true" : "false");
        test_write_text(&dir, "tokenizer.json", nfc);
        test_write_text(&dir, "tokenizer_config.json", config);
        CHECK_OK(sb_tokenizer_load(&t, &test_mem, dir.path));
        CHECK_OK(sb_tokenizer_encode(t, text, strlen(text), 0, &ids));
        CHECK_INT(ids.n, special ? 2 : 3);
        CHECK_INT(ids.data[1], special ? 1 : 2);
        sb_ids_clear(&ids);
        sb_tokenizer_free(t);
        test_dir_remove(&dir);
    }
}

/* Phi-3's tokenizer_config.json asks for a BOS, which its tokenizer.json has not. */
static void test_real_phi3(void)
{
    static const int32_t expected[] = {1, 15043};
    struct sb_ids ids = {.mem = &test_mem};
    struct sb_tokenizer *t = NULL;
    char path[512];

    if (!data_root())
        SKIP("no folder ../shared/data (or SPECBATCH_DATA) with the real vocabularies");
    snprintf(path, sizeof path, "%s/tokenizers/phi3", data_root());
    CHECK_OK(sb_tokenizer_load(&t, &test_mem, path));
    CHECK_OK(sb_tokenizer_encode(t, "Hello", 5, 0, &ids));
    CHECK_INT(ids.n, 2);
    CHECK_MEM(ids.data, expected, sizeof expected);
    sb_ids_clear(&ids);
    sb_tokenizer_free(t);
}

static const struct {
    const char *config, *added;
    int32_t code;
    const char *message;
} wrong[] = {
    {"{\"added_tokens_decoder\":{\"9\":{\"content\":\"<e>\"}}}", NULL, SPECBATCH_E_UNSUPPORTED,
     "tokenizer_config.json: an added token has id 9, but none has 4"},
    {"{\"added_tokens_decoder\":{\"4\":{\"content\":\"<s>\"}}}", NULL, SPECBATCH_E_FORMAT,
     "tokenizer_config.json: added token \"<s>\" has id 4, and 3 before"},
    {"{\"added_tokens_decoder\":{\"0\":{\"content\":\"<e>\"}}}", NULL, SPECBATCH_E_FORMAT,
     "id 0 is both \"a\" and \"<e>\""},
    {"{\"added_tokens_decoder\":{\"x\":{\"content\":\"<e>\"}}}", NULL, SPECBATCH_E_FORMAT,
     "id -1 of added token \"<e>\" is out of range"},
    {"{\"added_tokens_decoder\":{\"4\":7}}", NULL, SPECBATCH_E_FORMAT, "content: not a string"},
    {NULL, "{\"<e>\":\"4\"}", SPECBATCH_E_FORMAT, "added_tokens.json: <e>: not an id"},
    {"{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true,\"bos_token\":\"<q>\"}", NULL,
     SPECBATCH_E_FORMAT, "add_bos_token, but bos_token \"<q>\" is not a token"},
    {"{\"add_bos_token\":", NULL, SPECBATCH_E_FORMAT, "tokenizer_config.json: byte "},
};

/* SentencePiece's own normaliser is not what transformers puts in its place. */
static void test_blanks_with_a_normalizer(void)
{
    struct sb_tokenizer *t = NULL;

    CHECK_OK(sb_tokenizer_load(&t, &test_mem, "test/data/tokenizers/spm_squeeze"));
    CHECK_ERROR(sb_spm_set_prefix(t, 1, "tokenizer_config.json"), SPECBATCH_E_UNSUPPORTED,
                "tokenizer_config.json: legacy = false or add_prefix_space = false, for a");
    sb_tokenizer_free(t);
}

static void test_refusals(void)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sb_tokenizer *t = NULL;
        CHECK_ERROR(load(&t, 1, wrong[i].config, wrong[i].added), wrong[i].code, wrong[i].message);
        CHECK(t == NULL);
    }
}

/* ---------------------------------------------------------------------- no memory */

/* Tokens of every kind, so that every list that can grow does. */
static const struct {
    int is_json;
    const char *config, *added, *special;
} whole[] = {
    {1, LLAMA "\"add_bos_token\":true,\"add_eos_token\":true,\"eos_token\":\"<e>\"}",
     "{\"<e>\":4,\"<f>\":5,\"<g>\":6}",
     "{\"pad_token\":{\"content\":\"<f>\",\"lstrip\":true},\"additional_special_tokens\":[\"a\"]}"},
    {1,
     "{\"added_tokens_decoder\":{\"3\":{\"content\":\"<s>\",\"rstrip\":true},\"4\":" E_STRIPS
     ",\"5\":{\"content\":\"<f>\",\"normalized\":true}},\"pad_token\":{\"content\":\"b\"}}",
     NULL, NULL},
    {0, LLAMA "\"legacy\":false,\"added_tokens_decoder\":{\"600\":" E_STRIPS "}}", NULL, NULL},
};

/* As test_memory_alloc, but if it fails, it does so once. */
static void *fail_once(void *user, size_t size, size_t align)
{
    struct test_memory *memory = user;
    const int fails = memory->calls == memory->fail_at;

    memory->calls += fails;
    memory->fail_at = fails ? INT64_MAX : memory->fail_at;
    return fails ? NULL : test_memory_alloc(user, size, align);
}

/* Loads a folder with the allocation number `fail_at` failing, and all later ones or `once`. */
static int32_t load_failing(const char *dir, int64_t fail_at, int once, int64_t *calls)
{
    struct test_memory memory = {0, fail_at, 0};
    const struct sb_mem mem = {once ? fail_once : test_memory_alloc, test_memory_free, &memory};
    struct sb_tokenizer *t = NULL;
    const int32_t rc = sb_tokenizer_load(&t, &mem, dir);

    *calls = memory.calls;
    sb_tokenizer_free(t);
    return memory.live == 0 && (t != NULL) == (rc == SPECBATCH_OK) ? rc : SPECBATCH_E_INTERNAL;
}

/* Whichever allocation fails, loading fails with it, and leaks nothing. */
static void test_no_memory(void)
{
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        struct test_dir dir = write_folder(whole[i].is_json, whole[i].config, whole[i].added);
        int64_t total, calls;
        if (whole[i].special)
            test_write_text(&dir, "special_tokens_map.json", whole[i].special);
        CHECK_OK(load_failing(dir.path, INT64_MAX, 0, &total));
        for (int64_t n = 0; n < 2 * total; n++)
            CHECK_ERROR(load_failing(dir.path, n / 2, n % 2, &calls), SPECBATCH_E_NOMEM,
                        "no memory");
        CHECK(total > 20);
        test_dir_remove(&dir);
    }
}

TEST_BEGIN
RUN(test_as_transformers);
RUN(test_a_missing_flag);
RUN(test_real_phi3);
RUN(test_blanks_with_a_normalizer);
RUN(test_refusals);
RUN(test_no_memory);
TEST_END
