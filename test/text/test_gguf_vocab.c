/*
 * Tokenizers in GGUF files: those of the tree, converted here, give the ids and the texts of the
 * files that they were made from. And what is refused, for it would give other ids.
 */
#include "gguf.h"

#include "sbtest.h"
#include "support/gguf_convert.h"
#include "support/same_tokenizer.h"
#include "text/chat.h"

#define TOKENIZERS "test/data/tokenizers/"
#define TEXTS TOKENIZERS "qwen/golden.jsonl"

/* Writes the file and loads its tokenizer. */
static int32_t load(struct sb_tokenizer **t, struct gguf_writer *w, const struct test_dir *dir)
{
    struct sb_gguf *gguf = NULL;
    char path[128];
    int32_t rc;

    snprintf(path, sizeof path, "%s/model.gguf", dir->path);
    gguf_write(w, dir, "model.gguf");
    *t = NULL;
    rc = sb_gguf_open(&gguf, &test_mem, path);
    if (rc == SPECBATCH_OK)
        rc = sb_tokenizer_load_gguf(t, &test_mem, path, gguf);
    sb_gguf_close(gguf);
    return rc;
}

static int32_t load_alone(struct sb_tokenizer **t, struct gguf_writer *w)
{
    const struct test_dir dir = test_dir_make();
    const int32_t rc = load(t, w, &dir);

    test_dir_remove(&dir);
    return rc;
}

/* A table of n-grams that was made with one is taken with the other. */
static int same_digest(const struct sb_tokenizer *a, const struct sb_tokenizer *b)
{
    char of_a[SB_DIGEST_TEXT], of_b[SB_DIGEST_TEXT];

    sb_tokenizer_digest(a, INT32_MAX, of_a);
    sb_tokenizer_digest(b, INT32_MAX, of_b);
    return strcmp(of_a, of_b) == 0;
}

/* ----------------------------------------------------------------------- byte-level BPE */

static void byte_level_is_as_in_tokenizer_json(void)
{
    static const struct {
        const char *from, *pre;
        int32_t bos; /* that the file says; -1: none */
        uint32_t flags;
    } cases[] = {
        {TOKENIZERS "qwen", "qwen2", -1, 0},
        {TOKENIZERS "qwen", "qwen2", 400, 0}, /* qwen2 begins no text with it */
        {TOKENIZERS "glm", "glm4", -1, 0},
        {TOKENIZERS "glm", "glm4", 400, SPECBATCH_TEXT_NO_BOS},
        {TOKENIZERS "glm", "llama-bpe", 400, SPECBATCH_TEXT_NO_BOS},
        {TOKENIZERS "qwen", "qwen2", -1, SPECBATCH_TEXT_PLAIN_SPECIAL},
        {"test/data/models/emoji", "gpt-2", -1, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = {.alignment = 32};
        struct sb_tokenizer *expected = NULL, *got = NULL;
        CHECK_OK(sb_tokenizer_load(&expected, &test_mem, cases[i].from));
        CHECK(convert_tokenizer(&w, cases[i].from, cases[i].pre, 420));
        if (cases[i].bos >= 0)
            gguf_key_u32(&w, "tokenizer.ggml.bos_token_id", (uint32_t)cases[i].bos);
        CHECK_OK(load_alone(&got, &w));
        CHECK(got != NULL && expected != NULL);
        CHECK(same_tokenizer(expected, got, cases[i].flags, TEXTS) > 100);
        CHECK(same_digest(expected, got));
        sb_tokenizer_free(expected);
        sb_tokenizer_free(got);
    }
}

/* Replaces text that is there once. */
static void replace(char *text, size_t room, const char *from, const char *to)
{
    char *at = strstr(text, from);

    CHECK(at != NULL && strlen(text) + strlen(to) < room);
    memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
    memcpy(at, to, strlen(to));
}

/* A pre-tokenizer that is a pattern: tokenizer.json has it as gpt-oss's has. */
static void a_pattern_is_as_in_tokenizer_json(void)
{
    static const char o200k[] =
        "\"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*"
        "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+"
        "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\\\p{N}{1,3}|"
        " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"";
    const struct test_dir dir = test_dir_make();
    struct gguf_writer w = {.alignment = 32};
    struct sb_tokenizer *expected = NULL, *got = NULL;
    static char text[200000], qwen[400];
    const char *pattern, *end;
    char *file;
    size_t n = 0;

    file = test_read(TOKENIZERS "qwen", "tokenizer.json", &n);
    CHECK(file != NULL && n < sizeof text);
    memcpy(text, file, n + 1);
    free(file);
    pattern = strstr(text, "\"(?i:'s");
    CHECK(pattern != NULL && (end = strchr(pattern + 1, '"')) != NULL);
    snprintf(qwen, sizeof qwen, "%.*s", (int)(end + 1 - pattern), pattern);
    replace(text, sizeof text, qwen, o200k);
    replace(text, sizeof text, "{\"type\":\"NFC\"}", "null");
    test_write_text(&dir, "tokenizer.json", text);
    CHECK_OK(sb_tokenizer_load(&expected, &test_mem, dir.path));
    CHECK(convert_tokenizer(&w, TOKENIZERS "qwen", "gpt-4o", 420));
    CHECK_OK(load_alone(&got, &w));
    CHECK(got != NULL && expected != NULL);
    CHECK(same_tokenizer(expected, got, 0, TEXTS) > 100);
    CHECK(same_digest(expected, got));
    sb_tokenizer_free(expected);
    sb_tokenizer_free(got);
    test_dir_remove(&dir);
}

/* Every allocation of it fails in turn. */
static void runs_out_of_memory_cleanly(void)
{
    const struct test_dir dir = test_dir_make();
    struct test_memory memory = {0, 0, 0};
    const struct sb_mem mem = {test_memory_alloc, test_memory_free, &memory};
    struct gguf_writer w = {.alignment = 32};
    struct sb_gguf *gguf = NULL;
    int32_t rc = SPECBATCH_E_NOMEM;
    char path[128];

    snprintf(path, sizeof path, "%s/model.gguf", dir.path);
    CHECK(convert_tokenizer(&w, TOKENIZERS "qwen", "gpt-4o", 0));
    gguf_write(&w, &dir, "model.gguf");
    CHECK_OK(sb_gguf_open(&gguf, &test_mem, path));
    for (int64_t at = 0; rc != SPECBATCH_OK && at < 10000; at++) {
        struct sb_tokenizer *t = NULL;
        memory = (struct test_memory){0, at, 0};
        rc = sb_tokenizer_load_gguf(&t, &mem, path, gguf);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
        sb_tokenizer_free(t);
        CHECK_INT(memory.live, 0);
    }
    CHECK_OK(rc);
    sb_gguf_close(gguf);
    test_dir_remove(&dir);
}

/* Loads the GLM vocabulary of the tree under another name, with one more flag; NULL: none. Checks
 * the ids around "a". */
static void check_around(const char *pre, const char *flag, int value, int32_t before,
                         int32_t after)
{
    struct gguf_writer w = {.alignment = 32};
    struct sb_ids ids = {.mem = &test_mem};
    struct sb_tokenizer *t = NULL;
    const size_t n = 1 + (before >= 0) + (after >= 0);

    CHECK(convert_tokenizer(&w, TOKENIZERS "glm", pre, 0));
    gguf_key_u32(&w, "tokenizer.ggml.bos_token_id", 400);
    gguf_key_u32(&w, "tokenizer.ggml.eos_token_id", 403);
    if (flag)
        gguf_key_flag(&w, flag, value);
    CHECK_OK(load_alone(&t, &w));
    CHECK_OK(sb_tokenizer_encode(t, "a", 1, 0, &ids));
    CHECK_INT(ids.n, n);
    CHECK(before < 0 || ids.data[0] == before);
    CHECK(after < 0 || ids.data[ids.n - 1] == after);
    sb_ids_clear(&ids);
    sb_tokenizer_free(t);
}

static void ids_around_a_text(void)
{
    check_around("llama-bpe", NULL, 0, 400, -1);
    check_around("llama-bpe", "tokenizer.ggml.add_bos_token", 0, -1, -1);
    check_around("qwen2", NULL, 0, -1, -1);
    check_around("qwen2", "tokenizer.ggml.add_bos_token", 1, 400, -1);
    check_around("llama-bpe", "tokenizer.ggml.add_eos_token", 1, 400, 403);
}

/* ------------------------------------------------------------------------ SentencePiece */

/* The fields of a protobuf message, one after the other: 0 at its end. */
struct field {
    uint64_t number, value;
    const char *text; /* of delimited fields, which have value bytes */
};

static uint64_t varint(const char **at)
{
    uint64_t value = 0;
    unsigned shift = 0;

    do
        value |= (uint64_t)(**at & 0x7f) << shift, shift += 7;
    while (*(*at)++ & 0x80);
    return value;
}

static int next_field(struct field *f, const char **at, const char *end)
{
    uint64_t key;

    if (*at >= end)
        return 0;
    key = varint(at);
    f->number = key >> 3;
    f->text = NULL;
    if ((key & 7) == 5) {
        f->value = 0;
        memcpy(&f->value, *at, 4);
        *at += 4;
        return 1;
    }
    f->value = varint(at);
    if ((key & 7) == 2) {
        f->text = *at;
        *at += f->value;
    }
    return 1;
}

/* Adds a tokenizer.model to a GGUF file, and writes it to `to`. In both, user-defined pieces have
 * become control pieces, since those of a GGUF file are found elsewhere (spm_pieces.c). */
static void convert_spm(struct gguf_writer *w, const char *from, const struct test_dir *to)
{
    struct gguf_buffer tokens = {.n = 0}, scores = {.n = 0}, types = {.n = 0};
    size_t length = 0, n = 0;
    char *model = test_read(from, "tokenizer.model", &length);
    const char *at = model;
    struct field f, part;

    gguf_key_text(w, "tokenizer.ggml.model", "llama");
    while (model && next_field(&f, &at, model + length)) {
        const char *inner = f.text, *end = inner ? inner + f.value : NULL;
        uint64_t score = 0, type = 1;
        while (inner && f.number == 1 && next_field(&part, &inner, end))
            if (part.number == 1) {
                gguf_add_text(&tokens, part.text, part.value);
            } else if (part.number == 2) {
                score = part.value;
            } else {
                type = part.value == 4 ? 3 : part.value;
                model[inner - model - 1] = (char)type;
            }
        if (f.number == 1) {
            gguf_add_number(&scores, score, 4);
            gguf_add_number(&types, type, 4);
            n++;
        }
        while (f.number == 3 && next_field(&part, &inner, end))
            if (part.number == 2 && part.value > 0) {
                gguf_key_array(w, "tokenizer.ggml.precompiled_charsmap", SB_GGUF_U8, part.value);
                gguf_add(&w->keys, part.text, part.value);
            } else if (part.number == 3) {
                gguf_key_flag(w, "tokenizer.ggml.add_space_prefix", part.value != 0);
            } else if (part.number == 4) {
                gguf_key_flag(w, "tokenizer.ggml.remove_extra_whitespaces", part.value != 0);
            }
    }
    gguf_add_text(&tokens, "[PAD]", 5); /* as behind the end of a vocabulary */
    gguf_add_number(&scores, 0, 4);
    gguf_add_number(&types, 5, 4);
    gguf_key_array(w, "tokenizer.ggml.tokens", SB_GGUF_STRING, n + 1);
    gguf_add(&w->keys, tokens.at, tokens.n);
    gguf_key_array(w, "tokenizer.ggml.scores", SB_GGUF_F32, n + 1);
    gguf_add(&w->keys, scores.at, scores.n);
    gguf_key_array(w, "tokenizer.ggml.token_type", SB_GGUF_I32, n + 1);
    gguf_add(&w->keys, types.at, types.n);
    gguf_key_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_key_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    test_write(to, "tokenizer.model", model, length);
    free(tokens.at);
    free(scores.at);
    free(types.at);
    free(model);
}

static void sentencepiece_is_as_in_tokenizer_model(void)
{
    static const char *const dirs[] = {TOKENIZERS "spm", TOKENIZERS "spm_squeeze",
                                       TOKENIZERS "spm_rules"};
    const struct test_dir dir = test_dir_make();

    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        struct gguf_writer w = {.alignment = 32};
        struct sb_tokenizer *expected = NULL, *got = NULL;
        convert_spm(&w, dirs[i], &dir);
        CHECK_OK(sb_tokenizer_load(&expected, &test_mem, dir.path));
        CHECK_OK(load(&got, &w, &dir));
        CHECK(same_tokenizer(expected, got, 0, TEXTS) > 100);
        CHECK(same_tokenizer(expected, got, SPECBATCH_TEXT_NO_BOS, TEXTS) > 100);
        CHECK(same_digest(expected, got));
        sb_tokenizer_free(expected);
        sb_tokenizer_free(got);
    }
    test_dir_remove(&dir);
}

/* ------------------------------------------------------------------ what lies elsewhere */

/* tokenizer.json has precedence, in the file and beside it, if it is that of the model. */
static void takes_tokenizer_json(void)
{
    const struct test_dir dir = test_dir_make();
    struct gguf_writer w = {.alignment = 32};
    struct sb_tokenizer *expected = NULL, *got = NULL;
    size_t n = 0;
    char *json = test_read(TOKENIZERS "qwen", "tokenizer.json", &n);

    CHECK(json != NULL);
    CHECK_OK(sb_tokenizer_load(&expected, &test_mem, TOKENIZERS "qwen"));
    CHECK(convert_tokenizer(&w, TOKENIZERS "qwen", "a-name-that-is-not-known", 0));
    gguf_key(&w, "tokenizer.huggingface.json", SB_GGUF_STRING);
    gguf_add_text(&w.keys, json, n);
    CHECK_OK(load(&got, &w, &dir));
    CHECK(same_tokenizer(expected, got, 0, TEXTS) > 100);
    sb_tokenizer_free(got);

    test_write(&dir, "tokenizer.json", json, n);
    CHECK(convert_tokenizer(&w, TOKENIZERS "qwen", "a-name-that-is-not-known", 0));
    CHECK_OK(load(&got, &w, &dir));
    CHECK(same_tokenizer(expected, got, 0, TEXTS) > 100);
    sb_tokenizer_free(got);
    CHECK(convert_tokenizer(&w, "test/data/models/emoji", "gpt-2", 0));
    CHECK_ERROR(load(&got, &w, &dir), SPECBATCH_E_FORMAT,
                "tokenizer.json is not that of model.gguf: piece ");
    CHECK(got == NULL);
    free(json);
    sb_tokenizer_free(expected);
    test_dir_remove(&dir);
}

/* What the files beside a tokenizer.json say counts where that does, as in a folder. */
static void reads_what_lies_beside_tokenizer_json(void)
{
    static const char config[] = "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":false,"
                                 "\"add_eos_token\":true,\"eos_token\":\"a\"}";
    const struct test_dir dir = test_dir_make();
    struct gguf_writer w = {.alignment = 32};
    struct sb_tokenizer *expected = NULL, *got = NULL;
    struct sb_ids ids = {.mem = &test_mem};
    int32_t last[2];
    size_t n = 0;
    char *json = test_read(TOKENIZERS "qwen", "tokenizer.json", &n);

    test_write_text(&dir, "tokenizer_config.json", config);
    for (int has_json = 0; has_json < 2; has_json++) {
        if (has_json)
            test_write(&dir, "tokenizer.json", json, n);
        CHECK(convert_tokenizer(&w, TOKENIZERS "qwen", "qwen2", 0));
        CHECK_OK(load(&got, &w, &dir));
        ids.n = 0;
        CHECK_OK(sb_tokenizer_encode(got, "b", 1, 0, &ids));
        CHECK(ids.n > 0);
        last[has_json] = ids.data[ids.n - 1];
        if (has_json) {
            CHECK_OK(sb_tokenizer_load(&expected, &test_mem, dir.path));
            CHECK(same_tokenizer(expected, got, 0, TEXTS) > 100);
        }
        sb_tokenizer_free(got);
    }
    CHECK(last[0] != last[1] && ids.n == 2);
    free(json);
    sb_ids_clear(&ids);
    sb_tokenizer_free(expected);
    test_dir_remove(&dir);
}

static void recognises_chat_templates(void)
{
    static const char chatml[] =
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
        "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\n' }}{% endif %}";
    static const struct {
        const char *template;
        int32_t format;
    } cases[] = {
        {NULL, SB_CHAT_NONE}, {"{{ messages }}", SB_CHAT_UNKNOWN}, {chatml, SPECBATCH_CHAT_CHATML}};
    const struct test_dir dir = test_dir_make();
    char path[128];

    snprintf(path, sizeof path, "%s/model.gguf", dir.path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = {.alignment = 32};
        struct sb_gguf *gguf = NULL;
        int32_t format = 0;
        if (cases[i].template)
            gguf_key_text(&w, "tokenizer.chat_template", cases[i].template);
        gguf_write(&w, &dir, "model.gguf");
        CHECK_OK(sb_gguf_open(&gguf, &test_mem, path));
        CHECK_OK(sb_chat_detect_gguf(&format, &test_mem, gguf));
        CHECK_INT(format, cases[i].format);
        sb_gguf_close(gguf);
    }
    test_dir_remove(&dir);
}

/* --------------------------------------------------------------------- what is refused */

/* A vocabulary of these tokens, types and, if it is not 0, one score. */
static struct gguf_writer vocabulary(const char *model, const char *const *tokens,
                                     const uint32_t *types, size_t n, float score)
{
    struct gguf_writer w = {.alignment = 32};
    uint32_t bits;

    memcpy(&bits, &score, sizeof bits);
    gguf_key_text(&w, "tokenizer.ggml.model", model);
    gguf_key_text(&w, "tokenizer.ggml.pre", "qwen2");
    gguf_key_array(&w, "tokenizer.ggml.merges", SB_GGUF_STRING, 0);
    gguf_key_array(&w, "tokenizer.ggml.tokens", SB_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        gguf_add_text(&w.keys, tokens[i], strlen(tokens[i]));
    gguf_key_array(&w, "tokenizer.ggml.token_type", SB_GGUF_I32, n);
    for (size_t i = 0; i < n; i++)
        gguf_add_number(&w.keys, types[i], 4);
    gguf_key_array(&w, "tokenizer.ggml.scores", SB_GGUF_F32, n);
    for (size_t i = 0; i < n; i++)
        gguf_add_number(&w.keys, bits, 4);
    return w;
}

/* A user-defined piece of a GGUF file is a token that was added to the model: it is found in the
 * text as it came, with its blank, and what is behind it begins anew. */
static void finds_added_pieces_of_sentencepiece(void)
{
    static const char *const tokens[] = {"?", "\xE2\x96\x81", "a", "b", "x y"};
    static const uint32_t types[] = {2, 1, 1, 1, 4};
    static const int32_t expected[] = {1, 2, 4, 1, 3};
    struct gguf_writer w = vocabulary("llama", tokens, types, 5, -1.0f);
    struct sb_ids ids = {.mem = &test_mem};
    struct sb_tokenizer *t = NULL;

    CHECK_OK(load_alone(&t, &w));
    CHECK_OK(sb_tokenizer_encode(t, "ax yb", 5, 0, &ids));
    CHECK_INT(ids.n, 5);
    CHECK_MEM(ids.data, expected, sizeof expected);
    sb_ids_clear(&ids);
    sb_tokenizer_free(t);
}

static void refuses_vocabularies(void)
{
    static const struct {
        const char *model, *tokens[5];
        uint32_t types[5];
        int32_t code;
        const char *part;
    } cases[] = {
        {"bert", {"a"}, {1}, SPECBATCH_E_UNSUPPORTED, "tokenizer.ggml.model is not supported"},
        {"gpt2", {"a", "b", "a"}, {1, 1, 1}, SPECBATCH_E_FORMAT, "piece \"a\" has two ids"},
        {"gpt2", {"a", "\xff"}, {1, 1}, SPECBATCH_E_FORMAT, "tokens: not valid UTF-8"},
        {"gpt2", {"a", "b"}, {1, 2}, SPECBATCH_E_FORMAT, "token_type: neither of"},
        {"gpt2", {"a", "b"}, {1, 7}, SPECBATCH_E_FORMAT, "token_type: neither of"},
        {"llama", {"a", "b"}, {1, 7}, SPECBATCH_E_FORMAT, "piece 1: unknown type"},
        {"llama", {"a", "b"}, {1, 1}, SPECBATCH_E_FORMAT, "no unknown piece"},
        {"llama",
         {"?", "ab", "bc", "a", "b"},
         {2, 1, 1, 1, 1},
         SPECBATCH_E_UNSUPPORTED,
         "one score for all"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sb_tokenizer *t = NULL;
        size_t n = 0;
        while (n < 5 && cases[i].tokens[n])
            n++;
        struct gguf_writer w = vocabulary(cases[i].model, cases[i].tokens, cases[i].types, n,
                                          -1.0f);
        CHECK_ERROR(load_alone(&t, &w), cases[i].code, cases[i].part);
        CHECK(t == NULL);
    }
}

static void refuses_metadata(void)
{
    struct gguf_writer w = {.alignment = 32};
    struct sb_tokenizer *t = NULL;

    CHECK_OK(load_alone(&t, &w)); /* no tokenizer at all */
    CHECK(t == NULL);
    gguf_key_text(&w, "tokenizer.ggml.model", "gpt2");
    CHECK_ERROR(load_alone(&t, &w), SPECBATCH_E_FORMAT, "tokenizer.ggml.tokens");
    CHECK(convert_tokenizer(&w, TOKENIZERS "qwen", "tekken", 0));
    CHECK_ERROR(load_alone(&t, &w), SPECBATCH_E_UNSUPPORTED,
                "tokenizer.ggml.pre \"tekken\" is not supported; put the model's tokenizer.json");
    CHECK(convert_tokenizer(&w, TOKENIZERS "qwen", "qwen2", 0));
    gguf_key_text(&w, "tokenizer.ggml.add_bos_token", "yes");
    CHECK_ERROR(load_alone(&t, &w), SPECBATCH_E_FORMAT, "add_bos_token: not true or false");
    CHECK(convert_tokenizer(&w, TOKENIZERS "qwen", "llama-bpe", 0));
    gguf_key_u32(&w, "tokenizer.ggml.bos_token_id", 4000);
    CHECK_ERROR(load_alone(&t, &w), SPECBATCH_E_FORMAT, "bos_token_id: not the id of a token");
    gguf_key_text(&w, "tokenizer.ggml.model", "gpt2");
    gguf_key_text(&w, "tokenizer.ggml.pre", "qwen2");
    gguf_key_array(&w, "tokenizer.ggml.tokens", SB_GGUF_STRING, 1);
    gguf_add_text(&w.keys, "a", 1);
    gguf_key_array(&w, "tokenizer.ggml.merges", SB_GGUF_STRING, 1);
    gguf_add_text(&w.keys, "a b", 3);
    CHECK_ERROR(load_alone(&t, &w), SPECBATCH_E_FORMAT,
                "tokenizer.ggml.merges[0]: the second half of \"ab\" is not in the vocabulary");
}

TEST_BEGIN
RUN(byte_level_is_as_in_tokenizer_json);
RUN(a_pattern_is_as_in_tokenizer_json);
RUN(runs_out_of_memory_cleanly);
RUN(ids_around_a_text);
RUN(sentencepiece_is_as_in_tokenizer_model);
RUN(takes_tokenizer_json);
RUN(reads_what_lies_beside_tokenizer_json);
RUN(recognises_chat_templates);
RUN(finds_added_pieces_of_sentencepiece);
RUN(refuses_vocabularies);
RUN(refuses_metadata);
TEST_END
