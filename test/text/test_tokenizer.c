/*
 * Tokenizers, compared with what the reference implementations say: for the small tokenizers of
 * test/data/tokenizers (make.py), and for real vocabularies where their folder is there.
 */
#include <pthread.h>

#include "hash.h"
#include "support/tokenizer_data.h"
#include "support/words.h"
#include "text/chat.h"
#include "utf8.h"

#define SMALL "test/data/tokenizers/"

static const char *const small[] = {"qwen",
                                    "nfd",
                                    "nfkc",
                                    "nfkd",
                                    "glm",
                                    "gpt2",
                                    "regex",
                                    "added",
                                    "llama",
                                    "llama_unk",
                                    "llama_cross",
                                    "metaspace_first",
                                    "metaspace_always",
                                    "spm",
                                    "spm_user",
                                    "spm_squeeze",
                                    "spm_rules"};
enum { N_SMALL = sizeof small / sizeof *small };

/* The tokenizer of a folder; NULL, with a failed test, when it does not load. */
static struct sb_tokenizer *load(const char *dir)
{
    struct sb_tokenizer *t = NULL;
    int32_t rc = sb_tokenizer_load(&t, &test_mem, dir);

    if (rc || !t) {
        printf("     %s: status %d: %s\n", dir, (int)rc, specbatch_last_error());
        sbtest_failed_now = 1;
    }
    return t;
}

static int ids_equal(const struct sb_ids *ids, const struct sb_json_node *list)
{
    const struct sb_json_node *node = sb_json_first(list);
    int64_t id;

    if (ids->n != sb_json_count(list))
        return 0;
    for (size_t i = 0; i < ids->n; i++, node = sb_json_next(node))
        if (!sb_json_int(node, &id) || ids->data[i] != id)
            return 0;
    return 1;
}

static int check_encode(const struct sb_tokenizer *t, const char *where,
                        const struct sb_json_node *text, uint32_t flags,
                        const struct sb_json_node *expected)
{
    struct sb_ids ids = {.mem = &test_mem};
    size_t n = 0;
    const char *s = sb_json_string(text, &n);

    if (sb_json_kind(expected) == SB_JSON_NULL)
        return 1;
    const int32_t rc = sb_tokenizer_encode(t, s, n, flags, &ids);
    const int ok = rc == SPECBATCH_OK && ids_equal(&ids, expected);
    if (!ok) {
        printf("     %s: flags %u: text \"%s\": status %d, ids", where, (unsigned)flags, s,
               (int)rc);
        for (size_t i = 0; i < ids.n && i < 40; i++)
            printf(" %d", (int)ids.data[i]);
        printf("\n");
    }
    sb_ids_clear(&ids);
    return ok;
}

/* Decodes ids at once; as a stream, in two parts that meet at every place in turn; and one by
 * one. */
static int check_decode(const struct sb_tokenizer *t, const char *where, const struct sb_ids *ids,
                        uint32_t flags, const struct sb_json_node *expected)
{
    struct sb_bytes text = {.mem = &test_mem}, streamed = {.mem = &test_mem};
    struct sb_stream *stream = NULL;
    const char *piece;
    size_t n = 0, length;

    if (sb_json_kind(expected) == SB_JSON_NULL)
        return 1;
    const char *want = sb_json_string(expected, &n);
    int ok = sb_tokenizer_decode(t, ids->data, ids->n, flags, &text) == SPECBATCH_OK &&
             text.n == n && memcmp(text.data, want, n) == 0 &&
             sb_stream_create(&stream, &test_mem, t, flags) == SPECBATCH_OK;
    if (!ok)
        printf("     %s: flags %u: decoded \"%s\", expected \"%s\"\n", where, (unsigned)flags,
               text.data, want);
    for (size_t split = 0; ok && split <= (ids->n < 40 ? ids->n : 0) + 1; split++) {
        streamed.n = 0;
        for (size_t i = 0; ok && i <= ids->n; i += length) {
            length = split == ids->n + 1 || i == ids->n ? 1 : i < split ? split - i : ids->n - i;
            ok = sb_stream_push(stream, ids->data ? ids->data + i : NULL, i < ids->n ? length : 0,
                                &piece, &n) == SPECBATCH_OK &&
                 strlen(piece) <= n && sb_utf8_valid(piece, n) == n &&
                 sb_bytes_add(&streamed, piece, n) == SPECBATCH_OK;
        }
        ok = ok && streamed.n == text.n && memcmp(streamed.data, text.data, text.n) == 0;
        if (!ok)
            printf("     %s: streamed in two at %zu: \"%s\", expected \"%s\"\n", where, split,
                   streamed.data, want);
    }
    sb_stream_free(stream);
    sb_bytes_clear(&text);
    sb_bytes_clear(&streamed);
    return ok;
}

/* What a line has under this name, where 0 stands for what it has under the other one. */
static const struct sb_json_node *golden(const struct sb_json_node *line, const char *name,
                                         const char *other)
{
    const struct sb_json_node *node = sb_json_get(line, name);
    int64_t zero;

    return sb_json_int(node, &zero) ? sb_json_get(line, other) : node;
}

static int check_line(const struct sb_tokenizer *t, const char *where,
                      const struct sb_json_node *line, uint32_t encode_flags, uint32_t decode_flags)
{
    const struct sb_json_node *text = sb_json_get(line, "text"), *list = sb_json_get(line, "ids"),
                              *node;
    struct sb_ids ids = {.mem = &test_mem};
    int64_t id;
    int ok = 1;

    if (text) {
        ok &= check_encode(t, where, text, encode_flags, list);
        ok &= check_encode(t, where, text, SPECBATCH_TEXT_PLAIN_SPECIAL,
                           golden(line, "plain", "ids"));
        ok &= check_encode(t, where, text, SPECBATCH_TEXT_NO_BOS, golden(line, "bare", "ids"));
    }
    for (node = sb_json_first(list); node; node = sb_json_next(node))
        if (sb_json_int(node, &id))
            ok &= sb_ids_add(&ids, (int32_t)id) == SPECBATCH_OK;
    ok &= check_decode(t, where, &ids, decode_flags, sb_json_get(line, "decoded"));
    ok &= check_decode(t, where, &ids, SPECBATCH_TEXT_KEEP_SPECIAL,
                       golden(line, "kept", "decoded"));
    sb_ids_clear(&ids);
    return ok;
}

/* Checks a file of golden lines. Returns the number of lines, or -1 when it cannot be read. */
static int check_golden(const struct sb_tokenizer *t, const char *path, uint32_t encode_flags,
                        uint32_t decode_flags)
{
    struct lines lines;
    char *line, where[600];
    int n = 0;

    if (!t || !open_lines(&lines, path))
        return -1;
    while ((line = next_line(&lines)) != NULL) {
        struct sb_json *doc = NULL;
        snprintf(where, sizeof where, "%s:%d", path, ++n);
        if (sb_json_parse(&doc, &test_mem, line, strlen(line), where) ||
            !check_line(t, where, sb_json_root(doc), encode_flags, decode_flags))
            sbtest_failed_now = 1;
        sb_json_free(doc);
    }
    close_lines(&lines);
    return n;
}

static void test_small_pipelines(void)
{
    char path[200];

    for (int i = 0; i < N_SMALL; i++) {
        struct sb_tokenizer *t;
        int n;
        snprintf(path, sizeof path, SMALL "%s", small[i]);
        t = load(path);
        snprintf(path, sizeof path, SMALL "%s/golden.jsonl", small[i]);
        n = check_golden(t, path, 0, 0);
        sb_tokenizer_free(t);
        if (n < 150)
            FAIL("%s: %d lines", path, n);
    }
}

/* edges.jsonl: a line {"tokenizer"} changes the tokenizer, the others are golden lines for it. */
static void test_edges(void)
{
    struct sb_tokenizer *t = NULL;
    struct lines lines;
    char *line, where[100];
    int seen = 0;

    CHECK(open_lines(&lines, SMALL "edges.jsonl"));
    while ((line = next_line(&lines)) != NULL) {
        struct sb_json *doc = NULL;
        const char *file;
        size_t n;
        snprintf(where, sizeof where, "edges.jsonl:%d", ++seen);
        CHECK_OK(sb_json_parse(&doc, &test_mem, line, strlen(line), where));
        if ((file = sb_json_string(sb_json_get(sb_json_root(doc), "tokenizer"), &n)) != NULL) {
            sb_tokenizer_free(t);
            CHECK((t = sb_tokenizer_create(&test_mem)) != NULL);
            CHECK_OK(sb_tokenizer_read_hf(t, file, n, where));
        } else if (!check_line(t, where, sb_json_root(doc), 0, 0)) {
            sbtest_failed_now = 1;
        }
        sb_json_free(doc);
    }
    CHECK(seen > 50);
    close_lines(&lines);
    sb_tokenizer_free(t);
}

/* A line {"pattern"} changes the step, a line {"text", "words"} tries it. */
static int check_split_line(struct sb_steps *steps, const struct sb_json_node *root)
{
    struct sb_properties properties = {.mem = &test_mem};
    const char *s;
    size_t n = 0;
    int32_t rc;

    if ((s = sb_json_string(sb_json_get(root, "pattern"), &n)) != NULL) {
        sb_steps_clear(steps);
        memset(steps, 0, sizeof *steps);
        steps->n = 1;
        rc = sb_split_compile(&steps->at[0], &properties, s, n, "split.jsonl");
        sb_properties_clear(&properties);
        return rc == SPECBATCH_OK;
    }
    return makes_words(steps, root);
}

/* Compares the words of the hand-written patterns and of another with those of Hugging Face's
 * Split. */
static void test_split(void)
{
    struct sb_steps steps = {.n = 0};
    struct lines lines;
    char *line;
    int seen = 0;

    CHECK(open_lines(&lines, SMALL "split.jsonl"));
    for (; (line = next_line(&lines)) != NULL; seen++) {
        struct sb_json *doc = NULL;
        CHECK_OK(sb_json_parse(&doc, &test_mem, line, strlen(line), "split.jsonl"));
        if (!check_split_line(&steps, sb_json_root(doc)))
            FAIL("split.jsonl:%d: %s", seen + 1, line);
        sb_json_free(doc);
    }
    CHECK(seen > 900);
    close_lines(&lines);
    sb_steps_clear(&steps);
}

/* Letters of Unicode 15.1 and 16 are letters on every machine. */
static void test_new_letters(void)
{
    static const char *const lines[] = {
        "{\"text\":\"\xF0\xAE\xAF\xB0.a\",\"words\":[\"\xF0\xAE\xAF\xB0\",\".a\"]}", /* U+2EBF0 */
        "{\"text\":\".\xEA\x9F\x8B"
        "a b\",\"words\":[\".\xEA\x9F\x8B"
        "a\",\" b\"]}", /* U+A7CB */
    };
    struct sb_steps steps = {.at = {{.kind = SB_STEP_SPLIT_CL100K, .digits = 1}}, .n = 1};
    struct sb_work work;
    size_t i, n = 0;

    sb_work_init(&work, &test_mem);
    for (i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct sb_json *doc = NULL;
        const struct sb_json_node *root;
        const char *text;
        CHECK_OK(sb_json_parse(&doc, &test_mem, lines[i], strlen(lines[i]), "here"));
        root = sb_json_root(doc);
        struct expected_words expected = {sb_json_first(sb_json_get(root, "words")), 1};
        text = sb_json_string(sb_json_get(root, "text"), &n);
        CHECK_OK(sb_split(&steps, 0, &work, text, n, 1, check_word, &expected));
        CHECK(expected.ok && !expected.next);
        sb_json_free(doc);
    }
    sb_work_clear(&work);
}

/* U+11A7 stands where a trailing consonant would, but composes with nothing. NFC must not lose
 * it. */
static void test_hangul_survives_nfc(void)
{
    static const char text[] = "\xEA\xB0\x80\xE1\x86\xA7";
    struct sb_tokenizer *t = load(SMALL "qwen");
    struct sb_ids ids = {.mem = &test_mem};
    struct sb_bytes back = {.mem = &test_mem};

    CHECK(t != NULL);
    CHECK_OK(sb_tokenizer_encode(t, text, sizeof text - 1, 0, &ids));
    CHECK_OK(sb_tokenizer_decode(t, ids.data, ids.n, 0, &back));
    CHECK_STR(back.data, text);
    sb_ids_clear(&ids);
    sb_bytes_clear(&back);
    sb_tokenizer_free(t);
}

/* ------------------------------------------------------------- real vocabularies */

/* The folder of a real vocabulary, converted where it has no tokenizer.json of its own. */
static int real_folder(char path[512], const char *root, const char *name)
{
    if (strcmp(name, "qwen") == 0 || strcmp(name, "llama3") == 0)
        return converted(path, root, name);
    snprintf(path, 512, "%s/tokenizers/%s", root, name);
    return 1;
}

/* cases.inp: texts between lines of dashes and underscores; cases.out: their ids, a line each. */
static void check_cases(const struct sb_tokenizer *t, const char *folder)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    struct lines out;
    char path[600], *text, *at, *end, *line;
    size_t n;
    int seen = 0;

    snprintf(path, sizeof path, "%s/cases.inp", folder);
    text = at = read_whole(path, &n);
    snprintf(path, sizeof path, "%s/cases.out", folder);
    CHECK(text && open_lines(&out, path));
    for (; at; at = end ? end + sizeof separator - 1 : NULL, seen++) {
        struct sb_ids ids = {.mem = &test_mem};
        size_t i;
        end = strstr(at, separator);
        if (!(line = next_line(&out)))
            break;
        CHECK_OK(sb_tokenizer_encode(t, at, end ? (size_t)(end - at) : strlen(at),
                                     SPECBATCH_TEXT_NO_BOS, &ids));
        for (i = 0; i < ids.n; i++)
            CHECK_INT(ids.data[i], strtol(line, &line, 10));
        if (line[strspn(line, " ")])
            FAIL("%s: case %d: more ids expected:%s", folder, seen, line);
        sb_ids_clear(&ids);
    }
    CHECK(seen >= 46);
    close_lines(&out);
    free(text);
}

static uint32_t crc32_of(const void *data, size_t n)
{
    const unsigned char *at = data;
    uint32_t crc = 0xFFFFFFFFu;
    int bit;

    for (; n > 0; n--, at++)
        for (crc ^= *at, bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    return ~crc;
}

static void check_prompts(const struct sb_tokenizer *t, const char *root, const char *name,
                          uint32_t flags)
{
    struct lines prompts, expected;
    char path[600], *line, *row;
    int seen = 0;

    snprintf(path, sizeof path, "%s/prompts/spec_bench.jsonl", root);
    CHECK(open_lines(&prompts, path));
    snprintf(path, sizeof path, "%s/tokenizers/%s/spec_bench.tsv", root, name);
    CHECK(open_lines(&expected, path) && (row = next_line(&expected)) && *row == '#');
    while ((line = next_line(&prompts)) != NULL && (row = next_line(&expected)) != NULL) {
        struct sb_json *doc = NULL;
        struct sb_ids ids = {.mem = &test_mem};
        struct sb_bytes text = {.mem = &test_mem};
        const char *prompt;
        size_t n;
        CHECK_OK(sb_json_parse(&doc, &test_mem, line, strlen(line), path));
        prompt = sb_json_string(sb_json_first(sb_json_get(sb_json_root(doc), "turns")), &n);
        CHECK_OK(sb_tokenizer_encode(t, prompt, n, 0, &ids));
        CHECK_OK(sb_tokenizer_decode(t, ids.data, ids.n, flags, &text));
        CHECK_INT(strtol(row, &row, 10), seen++);
        CHECK_INT(ids.n, strtol(row, &row, 10));
        CHECK_INT(crc32_of(ids.data, ids.n * sizeof *ids.data), strtoll(row, &row, 16));
        CHECK_INT(crc32_of(text.data, text.n), strtoll(row, &row, 16));
        sb_json_free(doc);
        sb_ids_clear(&ids);
        sb_bytes_clear(&text);
    }
    CHECK_INT(seen, 480);
    close_lines(&prompts);
    close_lines(&expected);
}

static void check_real(const char *name)
{
    const char *root = data_root();
    char folder[512], path[600];
    size_t n;
    /* The expected texts have their special tokens. Only SentencePiece neither finds such tokens in
     * a text nor writes them. */
    int alone = strcmp(name, "llama") == 0;
    uint32_t flags = alone ? 0 : SPECBATCH_TEXT_KEEP_SPECIAL;

    if (!root)
        SKIP("no folder ../shared/data (or SPECBATCH_DATA) with the real vocabularies");
    if (!real_folder(folder, root, name))
        SKIP("%s: python3 could not convert the .tiktoken file", name);
    /* The expected ids are those of the tokenizers library, which reads a tokenizer.json alone. */
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    char *json = read_whole(path, &n);
    struct sb_tokenizer *t = json ? sb_tokenizer_create(&test_mem) : load(folder);
    CHECK(t != NULL);
    if (json)
        CHECK_OK(sb_tokenizer_read_hf(t, json, n, path));
    free(json);
    snprintf(folder, sizeof folder, "%s/tokenizers/%s", root, name);
    check_cases(t, folder);
    snprintf(path, sizeof path, "%s/tricky.jsonl", folder);
    CHECK_INT(check_golden(t, path, alone ? SPECBATCH_TEXT_PLAIN_SPECIAL : 0, flags), 112);
    check_prompts(t, root, name, flags);
    sb_tokenizer_free(t);
}

static void test_real_llama(void)
{
    check_real("llama");
}
static void test_real_phi3(void)
{
    check_real("phi3");
}
static void test_real_qwen(void)
{
    check_real("qwen");
}
static void test_real_llama3(void)
{
    check_real("llama3");
}

static int32_t put(struct sb_bytes *out, const char *text)
{
    return sb_bytes_add(out, text, strlen(text));
}

/* GPT-2 comes as two files. Puts them together to the tokenizer.json that stands for them. */
static int gpt2_as_json(struct sb_bytes *out, const char *root)
{
    char path[600], *line, *c;
    struct lines merges;
    size_t n = 0;
    int rc = 0, first = 1;

    snprintf(path, sizeof path, "%s/tokenizers/gpt2/vocab.json", root);
    char *vocab = read_whole(path, &n);
    snprintf(path, sizeof path, "%s/tokenizers/gpt2/merges.txt", root);
    if (!vocab || !open_lines(&merges, path))
        return 0;
    rc |= put(out, "{\"model\":{\"type\":\"BPE\",\"vocab\":");
    rc |= sb_bytes_add(out, vocab, n);
    rc |= put(out, ",\"merges\":[");
    next_line(&merges); /* #version */
    while ((line = next_line(&merges)) != NULL) {
        rc |= put(out, first ? "\"" : ",\"");
        for (first = 0, c = line; *c; c++)
            rc |= sb_bytes_add(out, "\\", *c == '"' || *c == '\\') | sb_bytes_add(out, c, 1);
        rc |= put(out, "\"");
    }
    rc |= put(out, "]},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}}");
    close_lines(&merges);
    free(vocab);
    return rc == 0;
}

static void test_real_gpt2(void)
{
    const char *root = data_root();
    struct sb_bytes json = {.mem = &test_mem};
    struct sb_tokenizer *t;
    char folder[512];

    if (!root)
        SKIP("no folder ../shared/data (or SPECBATCH_DATA) with the real vocabularies");
    t = sb_tokenizer_create(&test_mem);
    CHECK(t && gpt2_as_json(&json, root));
    CHECK_OK(sb_tokenizer_read_hf(t, json.data, json.n, "gpt2"));
    snprintf(folder, sizeof folder, "%s/tokenizers/gpt2", root);
    check_cases(t, folder);
    sb_bytes_clear(&json);
    sb_tokenizer_free(t);
}

/* The text of code points in hexadecimal, up to a tab. */
static size_t points_to_text(char *line, char *text)
{
    size_t n = 0;

    while (*line && *line != '\t' && *line != '#') {
        uint32_t cp = (uint32_t)strtoul(line, &line, 16);
        if (cp >= 0x10000) {
            text[n++] = (char)(0xF0 | cp >> 18);
            text[n++] = (char)(0x80 | (cp >> 12 & 63));
        } else if (cp >= 0x800) {
            text[n++] = (char)(0xE0 | cp >> 12);
        }
        if (cp >= 0x800)
            text[n++] = (char)(0x80 | (cp >> 6 & 63));
        else if (cp >= 0x80)
            text[n++] = (char)(0xC0 | cp >> 6);
        text[n++] = (char)(cp >= 0x80 ? 0x80 | (cp & 63) : cp);
        line += strspn(line, " ");
    }
    return n;
}

/* A line of nfc.tsv is code points, a tab, and code points. Both texts must normalise to the
 * second. */
static void test_nfc(void)
{
    const char *root = data_root();
    struct sb_steps steps = {.n = 1};
    struct sb_work work;
    struct lines lines;
    char path[600], *line, *tab, before[400], after[400];
    int seen = 0;

    if (!root)
        SKIP("no folder ../shared/data (or SPECBATCH_DATA) with nfc.tsv");
    snprintf(path, sizeof path, "%s/tokenizers/nfc.tsv", root);
    CHECK(open_lines(&lines, path));
    steps.at[0].kind = SB_STEP_NORMAL;
    steps.at[0].form = SB_NFC;
    sb_work_init(&work, &test_mem);
    for (; (line = next_line(&lines)) != NULL; seen++) {
        size_t n = points_to_text(line, before), m, n_out;
        const char *out;
        CHECK((tab = strchr(line, '\t')) != NULL);
        m = points_to_text(tab + 1, after);
        CHECK_OK(sb_normalize(&steps, &work, before, n, &out, &n_out));
        if (n_out != m || memcmp(out, after, m) != 0)
            FAIL("%s: line %d", path, seen + 1);
        CHECK_OK(sb_normalize(&steps, &work, after, m, &out, &n_out));
        CHECK(n_out == m && memcmp(out, after, m) == 0);
    }
    CHECK(seen > 10000);
    sb_work_clear(&work);
    close_lines(&lines);
}

static void test_real_edge_cases(void)
{
    static const int32_t expected[] = {32006, 13, 0, 32007, 32010};
    const char *root = data_root(), text[] = "<|system|>a\nb<|end|><|user|>";
    struct sb_tokenizer *t = NULL;
    struct sb_ids ids = {.mem = &test_mem};
    char path[600];

    if (!root)
        SKIP("no folder ../shared/data (or SPECBATCH_DATA) with the edge cases");
    snprintf(path, sizeof path, "%s/tokenizers/malformed", root);
    CHECK_ERROR(sb_tokenizer_load(&t, &test_mem, path), SPECBATCH_E_FORMAT,
                "tokenizer.json: model.merges[");
    CHECK(t == NULL);
    snprintf(path, sizeof path, "%s/tokenizers/added_tokens", root);
    t = load(path);
    CHECK(t != NULL);
    CHECK_OK(sb_tokenizer_encode(t, text, strlen(text), 0, &ids));
    CHECK_INT(ids.n, sizeof expected / sizeof *expected);
    CHECK_MEM(ids.data, expected, sizeof expected);
    sb_ids_clear(&ids);
    sb_tokenizer_free(t);
}

/* ---------------------------------------------------------------- pieces and vocabularies */

/* An array that cannot grow, here because its size in bytes does not fit in size_t, stays as it
 * is. */
static void test_arrays_grow(void)
{
    size_t capacity = 0;
    int32_t *ids = sb_grow(&test_mem, NULL, &capacity, 1, sizeof *ids);

    CHECK(ids && capacity >= 1);
    const size_t before = capacity;
    ids[0] = 7;
    CHECK(sb_grow(&test_mem, ids, &capacity, before, sizeof *ids) == ids);
    CHECK(sb_grow(&test_mem, ids, &capacity, SIZE_MAX - 1, 1) == NULL);
    CHECK(sb_grow(&test_mem, ids, &capacity, SIZE_MAX / 2, sizeof *ids) == NULL);
    CHECK_INT(capacity, before);
    ids = sb_grow(&test_mem, ids, &capacity, before + 1, sizeof *ids);
    CHECK(ids && ids[0] == 7);
    CHECK_INT(capacity, 2 * before);
    sb_free(&test_mem, ids);
}

static void test_pieces(void)
{
    struct sb_tokenizer *t = load(SMALL "llama");
    size_t n = 0;

    CHECK(t != NULL);
    CHECK_STR(sb_tokenizer_piece(t, 1, &n), "<s>");
    CHECK_INT(n, 3);
    CHECK_STR(sb_tokenizer_piece(t, 3 + 0x0A, NULL), "<0x0A>");
    CHECK(sb_tokenizer_piece(t, -1, &n) == NULL && sb_tokenizer_piece(t, 1 << 30, &n) == NULL);
    sb_tokenizer_free(t);
}

static void test_same_base(void)
{
    struct sb_tokenizer *a = load(SMALL "qwen"), *b = load(SMALL "added"), *c = load(SMALL "llama");

    CHECK(a && b && c);
    CHECK_OK(sb_tokenizer_same_base(a, a));
    CHECK_OK(sb_tokenizer_same_base(a, b)); /* the same vocabulary with other added tokens */
    CHECK_ERROR(sb_tokenizer_same_base(a, c), SPECBATCH_E_VOCAB,
                "token 0 is \"!\" for the target and \"<unk>\"");
    sb_tokenizer_free(a);
    sb_tokenizer_free(b);
    sb_tokenizer_free(c);
}

static void test_no_tokenizer(void)
{
    struct sb_tokenizer *t = NULL;
    CHECK_OK(sb_tokenizer_load(&t, &test_mem, "test"));
    CHECK(t == NULL);
}

static void test_invalid_text(void)
{
    struct sb_tokenizer *t = load(SMALL "qwen");
    struct sb_ids ids = {.mem = &test_mem};

    CHECK(t != NULL);
    CHECK_OK(sb_ids_add(&ids, 7));
    CHECK_ERROR(sb_tokenizer_encode(t, "ab\xFF", 3, 0, &ids), SPECBATCH_E_INVALID,
                "text: byte 2: invalid UTF-8");
    CHECK_ERROR(sb_tokenizer_encode(t, "\xED\xA0\x80", 3, 0, &ids), SPECBATCH_E_INVALID, "byte 0");
    CHECK(ids.n == 1 && ids.data[0] == 7);
    sb_ids_clear(&ids);
    sb_tokenizer_free(t);
}

/* A long text of marks in descending order, which would take a bubble sort the square of its
 * length; and a long text of one word, which would take the square if each merge looked for the
 * best pair. */
static void test_hostile_text(void)
{
    enum { N = 300000 };
    struct sb_tokenizer *qwen = load(SMALL "qwen"), *llama = load(SMALL "llama");
    struct sb_ids ids = {.mem = &test_mem};
    char *text = malloc(N * 2);
    size_t i;

    CHECK(qwen && llama && text);
    for (i = 0; i < N; i++)
        memcpy(text + 2 * i, i < N / 2 ? "\xCC\x81" : "\xCC\xA7", 2); /* classes 230 and 202 */
    CHECK_OK(sb_tokenizer_encode(qwen, text, N * 2, 0, &ids));
    memset(text, 'a', N);
    CHECK_OK(sb_tokenizer_encode(llama, text, N, 0, &ids));
    CHECK(ids.n > 0);
    sb_ids_clear(&ids);
    sb_tokenizer_free(qwen);
    sb_tokenizer_free(llama);
    free(text);
}

/* What one thread finds while all use the same tokenizers: a hash of the ids, or 0 after a
 * failure. */
struct shared_use {
    struct sb_tokenizer *t[N_SMALL];
    uint64_t found;
};

static void *use_shared(void *argument)
{
    static const char
        text[] = "A man's 12 nai\u0308ve caf\u00e9 <s> x <x> \u4f60\u597d //\n \U0001F600";
    struct shared_use *use = argument;
    int round, i;

    use->found = 1;
    for (round = 0; round < 50; round++)
        for (i = 0; i < N_SMALL; i++) {
            struct sb_ids ids = {.mem = &test_mem};
            struct sb_bytes back = {.mem = &test_mem};
            struct sb_hash_key key = {{0, 0}};
            if (sb_tokenizer_encode(use->t[i], text, sizeof text - 1, 0, &ids) ||
                sb_tokenizer_decode(use->t[i], ids.data, ids.n, 0, &back))
                return NULL;
            key.k[0] = use->found;
            key.k[1] = sb_hash(&key, ids.data, ids.n * sizeof *ids.data);
            use->found = sb_hash(&key, back.data, back.n);
            sb_ids_clear(&ids);
            sb_bytes_clear(&back);
        }
    return NULL;
}

/* Four threads use one set of tokenizers at once. SAN=thread sees races that luck would hide. */
static void test_threads(void)
{
    struct shared_use uses[4];
    pthread_t threads[4];
    char path[200];
    int i, k;

    for (i = 0; i < N_SMALL; i++) {
        snprintf(path, sizeof path, SMALL "%s", small[i]);
        CHECK((uses[0].t[i] = load(path)) != NULL);
    }
    for (k = 1; k < 4; k++)
        uses[k] = uses[0];
    for (k = 0; k < 4; k++)
        CHECK(pthread_create(&threads[k], NULL, use_shared, &uses[k]) == 0);
    for (k = 0; k < 4; k++)
        pthread_join(threads[k], NULL);
    for (k = 1; k < 4; k++)
        CHECK(uses[k].found == uses[0].found && uses[k].found > 1);
    for (i = 0; i < N_SMALL; i++)
        sb_tokenizer_free(uses[0].t[i]);
}

/* Special pieces are found in a text, such as the </s> of a chat, as with the tokenizer.json that
 * Hugging Face makes of a tokenizer.model. */
static void test_real_chat(void)
{
    static const int32_t expected[] = {1, 263, 2, 289},
                         end_of_turn[] = {612, 29877, 2, 3148, 1001, 29901};
    static const specbatch_message talk[] = {
        {"user", "Hi", 2}, {"assistant", "Yo", 2}, {"user", "Why?", 4}};
    const char *root = data_root();
    const struct sb_chat_call call = {talk, sizeof *talk, 3, SPECBATCH_CHAT_VICUNA, 0, 0, 0};
    struct sb_ids ids = {.mem = &test_mem};
    struct sb_tokenizer *t;
    char path[600];

    if (!root)
        SKIP("no folder ../shared/data (or SPECBATCH_DATA) with the real vocabularies");
    snprintf(path, sizeof path, "%s/tokenizers/llama", root);
    CHECK((t = load(path)) != NULL);
    CHECK_OK(sb_tokenizer_encode(t, "a</s>b", 6, 0, &ids));
    CHECK_INT(ids.n, 4);
    CHECK_MEM(ids.data, expected, sizeof expected);
    ids.n = 0;
    CHECK_OK(sb_chat_encode(&call, t, &ids));
    CHECK_INT(ids.n, 53);
    CHECK_MEM(ids.data + 40, end_of_turn, sizeof end_of_turn);
    sb_ids_clear(&ids);
    sb_tokenizer_free(t);
}

TEST_BEGIN
RUN(test_small_pipelines);
RUN(test_edges);
RUN(test_split);
RUN(test_new_letters);
RUN(test_hangul_survives_nfc);
RUN(test_real_llama);
RUN(test_real_phi3);
RUN(test_real_qwen);
RUN(test_real_llama3);
RUN(test_real_gpt2);
RUN(test_nfc);
RUN(test_real_edge_cases);
RUN(test_real_chat);
RUN(test_arrays_grow);
RUN(test_pieces);
RUN(test_same_base);
RUN(test_no_tokenizer);
RUN(test_invalid_text);
RUN(test_hostile_text);
RUN(test_threads);
TEST_END
