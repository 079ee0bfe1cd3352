/*
 * Tokenizer files that are wrong, cut short, damaged or hostile, and memory that runs out. The
 * answer is always a status and a message that names the place, and never a crash;
 * SAN=address,undefined sees more than a plain build.
 */
#include "text/pipeline.h"
#include "support/tokenizer_data.h"

typedef int32_t (*read_fn)(struct sb_tokenizer *, const char *, size_t, const char *);

/* Reads the content of a file. If that gives a tokenizer, the tokenizer encodes a text and decodes
 * ids, which must not crash. The content is copied to a block of its exact size, so that a
 * sanitizer sees a read behind its end. */
static int32_t read_copy(read_fn read_content, const char *name, const char *content, size_t n)
{
    struct sb_tokenizer *t = sb_tokenizer_create(&test_mem);
    struct sb_ids ids = {.mem = &test_mem};
    struct sb_bytes back = {.mem = &test_mem};
    char *copy = malloc(n ? n : 1);

    if (!t || !copy)
        return SPECBATCH_E_NOMEM;
    memcpy(copy, content, n);
    const int32_t rc = read_content(t, copy, n, name);
    free(copy);
    if (rc == SPECBATCH_OK &&
        sb_tokenizer_encode(t, "ab abx\n<s> \xC3\xA9", 13, 0, &ids) == SPECBATCH_OK)
        sb_tokenizer_decode(t, ids.data, ids.n, 0, &back);
    sb_ids_clear(&ids);
    sb_bytes_clear(&back);
    sb_tokenizer_free(t);
    return rc;
}

static int32_t load_json(const char *text, size_t n)
{
    return read_copy(sb_tokenizer_read_hf, "tokenizer.json", text, n);
}

static int32_t load_model(const char *bytes, size_t n)
{
    return read_copy(sb_tokenizer_read_spm, "tokenizer.model", bytes, n);
}

/* A small tokenizer.json whose members can be replaced one at a time. */
enum member { ADDED, NORMALIZER, PRE, POST, DECODER, MODEL, N_MEMBERS };

static const char *const good[N_MEMBERS] = {
    [ADDED] =
        "[{\"id\":9,\"content\":\"<s>\",\"special\":true,\"normalized\":true,\"lstrip\":true}]",
    [NORMALIZER] = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"_"
                   "\"},{\"type\":\"NFC\"},"
                   "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]}",
    [PRE] = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
            "\"x+|[0-9]\"},"
            "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Metaspace\",\"replacement\":"
            "\"_\",\"split\":"
            "true}]}",
    [POST] = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{"
             "\"Sequence\":"
             "{\"id\":\"A\"}}],"
             "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[9],\"tokens\":[\"<s>\"]}}}",
    [DECODER] =
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},"
        "\"content\":\" \"},"
        "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
        "\",\"start\":1,\"stop\":0}]}",
    [MODEL] = "{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,\"byte_fallback\":true,"
              "\"vocab\":{\"?"
              "\":0,\"_\":1,\"a\":2,"
              "\"b\":3,\"ab\":4,\"_ab\":5,\"<0x0A>\":6},\"merges\":[\"a b\",[\"_\",\"ab\"]]}",
};

static size_t compose(char text[4096], enum member member, const char *replacement)
{
    static const char *const names[N_MEMBERS] = {"added_tokens",   "normalizer", "pre_tokenizer",
                                                 "post_processor", "decoder",    "model"};
    int n = snprintf(text, 4096,
                     "{\"version\":\"1.0\",\"truncation\":null,\"padding\":{\"length\":3}"),
        i;

    for (i = 0; i < N_MEMBERS; i++)
        n += snprintf(text + n, 4096 - (size_t)n, ",\"%s\":%s", names[i],
                      i == (int)member ? replacement : good[i]);
    n += snprintf(text + n, 4096 - (size_t)n, "}");
    return (size_t)n;
}

static void test_the_good_one(void)
{
    static const int32_t expected[] = {9, 5, 5, 1, 0, 9};
    struct sb_tokenizer *t = sb_tokenizer_create(&test_mem);
    struct sb_ids ids = {.mem = &test_mem};
    char text[4096];
    size_t n = compose(text, N_MEMBERS, "");

    CHECK(t != NULL);
    CHECK_OK(sb_tokenizer_read_hf(t, text, n, "tokenizer.json"));
    CHECK_OK(sb_tokenizer_encode(t, "ab abx\n <s>", 11, 0, &ids)); /* as Hugging Face tokenizers has
                                                                      it */
    CHECK_INT(ids.n, sizeof expected / sizeof *expected);
    CHECK_MEM(ids.data, expected, sizeof expected);
    sb_ids_clear(&ids);
    sb_tokenizer_free(t);
}

#define TEMPLATE(before, after)                                                                  \
    "{\"type\":\"TemplateProcessing\",\"single\":[" before "{\"Sequence\":{\"id\":\"A\"}}" after \
    "],\"special_tokens\":{\"b\":{\"ids\":[3]},\"s\":{\"ids\":[9]}}}"
#define SPECIAL(name) "{\"SpecialToken\":{\"id\":\"" name "\"}}"

/* Of two templates the first counts. */
static void test_two_templates(void)
{
    static const char
        post[] = "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," TEMPLATE(
            SPECIAL("s") ",", "") "," TEMPLATE(SPECIAL("b") ",", "," SPECIAL("b")) "]}";
    static const int32_t expected[] = {9, 5};
    struct sb_tokenizer *t = sb_tokenizer_create(&test_mem);
    struct sb_ids ids = {.mem = &test_mem};
    char text[4096];

    CHECK(t != NULL);
    CHECK_OK(sb_tokenizer_read_hf(t, text, compose(text, POST, post), "tokenizer.json"));
    CHECK_OK(sb_tokenizer_encode(t, "ab", 2, 0, &ids));
    CHECK_INT(ids.n, 2);
    CHECK_MEM(ids.data, expected, sizeof expected);
    sb_ids_clear(&ids);
    sb_tokenizer_free(t);
}

/* Digits, and a Split that keeps its matches only: the ids of a text as tokenizers 0.23 has them.
 * Where the words end shows in the ids: merges stop there. */
static void test_kept_words(void)
{
    static const struct {
        const char *pre;
        int32_t n, ids[6];
    } cases[] = {
        {"{\"type\":\"Digits\",\"individual_digits\":true}", 6, {2, 0, 0, 3, 0, 2}},
        {"{\"type\":\"Digits\",\"individual_digits\":false}", 5, {2, 1, 3, 0, 2}},
        {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"1\"},\"behavior\":\"Removed\",\"invert\":"
         "true}",
         3,
         {0, 0, 0}},
        {"{\"type\":\"Split\",\"pattern\":{\"String\":\"11\"},\"behavior\":\"Removed\",\"invert\":"
         "true}",
         1,
         {1}},
    };
    static const char model[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"1\":0,\"11\":1,\"a\":2,\"\xC2\xB2\":3},"
        "\"merges\":[\"1 1\"]},\"pre_tokenizer\":%s}";

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sb_tokenizer *t = sb_tokenizer_create(&test_mem);
        struct sb_ids ids = {.mem = &test_mem};
        char text[1024];
        snprintf(text, sizeof text, model, cases[i].pre);
        CHECK(t != NULL);
        CHECK_OK(sb_tokenizer_read_hf(t, text, strlen(text), "tokenizer.json"));
        CHECK_OK(sb_tokenizer_encode(t,
                                     "a11\xC2\xB2"
                                     "1a",
                                     7, 0, &ids));
        CHECK_INT(ids.n, cases[i].n);
        CHECK_MEM(ids.data, cases[i].ids, ids.n * sizeof *ids.data);
        sb_ids_clear(&ids);
        sb_tokenizer_free(t);
    }
}

static const struct {
    enum member member;
    const char *text;
    int32_t code;
    const char *where;
} wrong[] = {
    {NORMALIZER, "{\"type\":\"Lowercase\"}", SPECBATCH_E_UNSUPPORTED,
     "tokenizer.json: normalizer Lowercase is not supported"},
    {NORMALIZER, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}",
     SPECBATCH_E_UNSUPPORTED, "Replace of a Regex"},
    {NORMALIZER, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}",
     SPECBATCH_E_FORMAT, "empty string"},
    {NORMALIZER, "{\"type\":\"Prepend\"}", SPECBATCH_E_FORMAT, "prepend: not a string"},
    {NORMALIZER, "{\"type\":\"Sequence\"}", SPECBATCH_E_FORMAT, "normalizers: not an array"},
    {NORMALIZER, "{\"type\":\"NFC\\u0000\"}", SPECBATCH_E_UNSUPPORTED,
     "normalizer (without a type)"},
    {NORMALIZER, "{}", SPECBATCH_E_UNSUPPORTED, "normalizer (without a type)"},
    {NORMALIZER, "7", SPECBATCH_E_UNSUPPORTED, "normalizer (without a type)"},
    {PRE, "{\"type\":\"Digits\",\"individual_digits\":1}", SPECBATCH_E_FORMAT,
     "individual_digits: not true or false"},
    {PRE,
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
     "\"behavior\":\"Removed\",\"invert\":true},{\"type\":\"Metaspace\",\"replacement\":\"_\","
     "\"prepend_scheme\":\"first\"}]}",
     SPECBATCH_E_UNSUPPORTED, "Metaspace first, behind a step that removes text"},
    {PRE, "{\"type\":\"BertPreTokenizer\"}", SPECBATCH_E_UNSUPPORTED,
     "pre_tokenizer BertPreTokenizer is not supported"},
    {PRE, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\"}",
     SPECBATCH_E_UNSUPPORTED, "regular expression, byte 0: a group without its )"},
    {PRE,
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
     "\"\\\\C\"},"
     "\"behavior\":\"Isolated\"},{\"type\":\"Split\",\"pattern\":{\"Regex\":\".\"},\"behavior\":"
     "\"Isolated\"}]}",
     SPECBATCH_E_UNSUPPORTED, "regular expression, byte 0: \\C is not supported"},
    {PRE,
     "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(*NO_JIT)(?:a|b)*\"},\"behavior\":\"Isolated\"}",
     SPECBATCH_E_UNSUPPORTED, "regular expression, byte 0: (* is not supported"},
    {PRE, "{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\"}",
     SPECBATCH_E_FORMAT, "empty string"},
    {PRE, "{\"type\":\"Split\",\"behavior\":\"Isolated\"}", SPECBATCH_E_FORMAT,
     "String: not a string"},
    {PRE, "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"often\"}",
     SPECBATCH_E_UNSUPPORTED, "prepend_scheme often"},
    {PRE, "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\\u0000\"}",
     SPECBATCH_E_FORMAT, "prepend_scheme is not a word"},
    {PRE, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Isolated\\u0000\"}",
     SPECBATCH_E_UNSUPPORTED, "behavior (none)"},
    {PRE, "{\"type\":\"ByteLevel\",\"use_regex\":1}", SPECBATCH_E_FORMAT,
     "use_regex: not true or false"},
    {POST, "{\"type\":\"BertProcessing\"}", SPECBATCH_E_UNSUPPORTED,
     "post_processor BertProcessing is not supported"},
    {POST, "{\"type\":\"TemplateProcessing\"}", SPECBATCH_E_FORMAT, "post_processor"},
    {POST, "{\"type\":\"TemplateProcessing\",\"single\":[]}", SPECBATCH_E_UNSUPPORTED,
     "without $A"},
    {POST, "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\"}}]}",
     SPECBATCH_E_UNSUPPORTED, "around one $A"},
    {POST, "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\\u0000\"}}]}",
     SPECBATCH_E_UNSUPPORTED, "around one $A"},
    {POST,
     "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<q>\"}}],"
     "\"special_tokens\":{}}",
     SPECBATCH_E_FORMAT, "no ids for \"<q>\""},
    {POST,
     "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"q\"}}],"
     "\"special_tokens\":{\"q\":{\"ids\":[-1]}}}",
     SPECBATCH_E_FORMAT, "not a token id"},
    {POST,
     "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},{"
     "\"SpecialToken\":{\"id\":\"<s>\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[9,8]}}}",
     SPECBATCH_E_FORMAT, "post_processor: 8 is not the id of a token"},
    {DECODER, "{\"type\":\"WordPiece\"}", SPECBATCH_E_UNSUPPORTED,
     "decoder WordPiece is not supported"},
    {DECODER,
     "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Strip\","
     "\"content\":\" \",\"start\":0,\"stop\":1}]}",
     SPECBATCH_E_UNSUPPORTED, "at the end"},
    {DECODER,
     "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}",
     SPECBATCH_E_UNSUPPORTED, "ByteFallback"},
    {DECODER, "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":1}", SPECBATCH_E_FORMAT,
     "decoder Strip"},
    {MODEL, "null", SPECBATCH_E_FORMAT, "model: missing"},
    {MODEL, "{\"type\":\"Unigram\",\"vocab\":[]}", SPECBATCH_E_UNSUPPORTED,
     "model Unigram is not supported"},
    {MODEL, "{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}",
     SPECBATCH_E_UNSUPPORTED, "dropout"},
    {MODEL, "{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{},\"merges\":[]}",
     SPECBATCH_E_UNSUPPORTED, "end_of_word_suffix"},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}", SPECBATCH_E_FORMAT,
     "model.vocab: not an object"},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":\"b\"},\"merges\":[]}", SPECBATCH_E_FORMAT,
     "id of \"a\" is not an integer"},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}", SPECBATCH_E_FORMAT,
     "id -1 of piece \"a\" is out of range"},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":2147483648},\"merges\":[]}", SPECBATCH_E_FORMAT,
     "out of range"},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}", SPECBATCH_E_FORMAT,
     "id 1 is both \"a\" and \"b\""},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"a\":2},\"merges\":[]}", SPECBATCH_E_FORMAT,
     "duplicate name \"a\""},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":{\"a\":1}}", SPECBATCH_E_FORMAT,
     "model.merges: not an array"},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"aa\"]}", SPECBATCH_E_FORMAT,
     "model.merges[0]: \"aa\" is not two pieces"},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a a a\"]}", SPECBATCH_E_FORMAT,
     "is not two pieces"},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[[\"a\"]]}", SPECBATCH_E_FORMAT,
     "model.merges[0]"},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[7]}", SPECBATCH_E_FORMAT,
     "model.merges[0]"},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"aa\":2},\"merges\":[\"a a\",\"a q\"]}",
     SPECBATCH_E_FORMAT, "model.merges[1]: the second half of \"aq\" is not in the vocabulary"},
    {MODEL, "{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a a\"]}", SPECBATCH_E_FORMAT,
     "model.merges[0]: the whole of \"aa\" is not in the vocabulary"},
    {ADDED, "{}", SPECBATCH_E_FORMAT, "added_tokens: not an array"},
    {ADDED, "[{\"id\":9}]", SPECBATCH_E_FORMAT, "content: not a string"},
    {ADDED, "[{\"content\":\"q\"}]", SPECBATCH_E_FORMAT, "\"q\" has no id"},
    {ADDED, "[{\"id\":9,\"content\":\"\"}]", SPECBATCH_E_FORMAT, "an empty token"},
    {ADDED, "[{\"id\":9,\"content\":\"a\"}]", SPECBATCH_E_FORMAT,
     "added token \"a\" has id 9, and 2 before"},
    {ADDED, "[{\"id\":2,\"content\":\"q\"}]", SPECBATCH_E_FORMAT, "id 2 is both \"a\" and \"q\""},
    {ADDED, "[{\"id\":9,\"content\":\"q\"},{\"id\":10,\"content\":\"q\"}]", SPECBATCH_E_FORMAT,
     "added token \"q\""},
    {ADDED, "[{\"id\":99999999999,\"content\":\"q\"}]", SPECBATCH_E_FORMAT, "out of range"},
};

static void test_wrong_members(void)
{
    char text[4096];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int32_t rc = load_json(text, compose(text, wrong[i].member, wrong[i].text));
        if (rc != wrong[i].code || !strstr(specbatch_last_error(), wrong[i].where) ||
            !strstr(specbatch_last_error(), "tokenizer.json: "))
            FAIL("%s: status %d, message \"%s\" lacks \"%s\"", wrong[i].text, (int)rc,
                 specbatch_last_error(), wrong[i].where);
    }
}

/* A text has a character without a piece, and the file names an unknown token that does not
 * exist. */
static void test_missing_unknown_token(void)
{
    static const char
        model[] = "{\"type\":\"BPE\",\"unk_token\":\"none\",\"vocab\":{\"a\":1},\"merges\":[]}";
    struct sb_tokenizer *t = sb_tokenizer_create(&test_mem);
    struct sb_ids ids = {.mem = &test_mem};
    char text[4096];

    CHECK(t != NULL);
    CHECK_OK(sb_tokenizer_read_hf(t, text, compose(text, MODEL, model), "tokenizer.json"));
    CHECK_ERROR(sb_tokenizer_encode(t, "b", 1, 0, &ids), SPECBATCH_E_INVALID,
                "U+005F has no token");
    CHECK_INT(ids.n, 0);
    sb_ids_clear(&ids);
    sb_tokenizer_free(t);
}

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

static void test_json_cut_and_damaged(void)
{
    char text[4096], copy[4096];
    size_t n = compose(text, N_MEMBERS, "");
    int loaded = 0;

    for (size_t i = 0; i < n; i += 3)
        CHECK_ERROR(load_json(text, i), SPECBATCH_E_FORMAT, "tokenizer.json: byte ");
    for (size_t i = 0; i < 4000; i++) {
        uint32_t changes = 1 + random_below(3);
        int32_t rc;
        memcpy(copy, text, n);
        while (changes-- > 0)
            copy[random_below((uint32_t)n)] = random_below(2) ? text[random_below((uint32_t)n)]
                                                              : (char)random_below(256);
        rc = load_json(copy, n);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_FORMAT || rc == SPECBATCH_E_UNSUPPORTED);
        CHECK(rc == SPECBATCH_OK || strstr(specbatch_last_error(), "tokenizer.json: "));
        loaded += rc == SPECBATCH_OK;
    }
    CHECK(loaded > 10 && loaded < 3000); /* some changes are harmless, most are not */
}

/* -------------------------------------------------------------------- SentencePiece */

static void test_model_cut_everywhere(void)
{
    size_t n = 0;
    char *bytes = read_whole("test/data/tokenizers/spm/tokenizer.model", &n);

    CHECK(bytes != NULL && n > 5000);
    CHECK_OK(load_model(bytes, n));
    /* A protobuf message has no end mark, so one that is cut between two fields is valid too. */
    for (size_t i = 0; i < n; i++) {
        int32_t rc = load_model(bytes, i);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_FORMAT || rc == SPECBATCH_E_UNSUPPORTED);
        CHECK(rc == SPECBATCH_OK || strstr(specbatch_last_error(), "tokenizer.model: "));
        CHECK(rc != SPECBATCH_OK || i > n / 2);
    }
    free(bytes);
}

static void damage_model(const char *path)
{
    size_t n = 0;
    char *bytes = read_whole(path, &n), *copy = malloc(n);

    CHECK(bytes && copy);
    for (size_t i = 0; i < 3000; i++) {
        uint32_t changes = 1 + random_below(4);
        int32_t rc;
        memcpy(copy, bytes, n);
        while (changes-- > 0)
            copy[random_below(i % 2 ? (uint32_t)n : 400)] = (char)random_below(256);
        rc = load_model(copy, n);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_FORMAT || rc == SPECBATCH_E_UNSUPPORTED);
        CHECK(rc == SPECBATCH_OK || strstr(specbatch_last_error(), "tokenizer.model: "));
    }
    for (size_t i = 0; i < 3000; i++) {
        size_t length = random_below(200), j;
        for (j = 0; j < length; j++)
            copy[j] = (char)random_below(256);
        CHECK(load_model(copy, length) != SPECBATCH_OK);
    }
    free(copy);
    free(bytes);
}

static void test_model_damaged(void)
{
    damage_model("test/data/tokenizers/spm/tokenizer.model");
    damage_model("test/data/tokenizers/spm_rules/tokenizer.model");
}

/* A model in bytes written by hand: one piece of each kind, the trainer's and normalizer's
 * options. */
#define UNK "\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02"
#define A              \
    "\x0a\x08\x0a\x01" \
    "a\x15\x00\x00\x00\x00"
#define BPE "\x12\x02\x18\x02"
#define IDENTITY "\x1a\x02\x20\x00"

static void test_model_by_hand(void)
{
    static const struct {
        const char *bytes;
        size_t n;
        int32_t code;
        const char *where;
    } cases[] = {
#define CASE(bytes, code, where) {bytes, sizeof bytes - 1, code, where}
        CASE(UNK A BPE IDENTITY, SPECBATCH_OK, ""),
        CASE("", SPECBATCH_E_UNSUPPORTED, "a model type other than BPE"),
        CASE(BPE IDENTITY, SPECBATCH_E_FORMAT, "no pieces"),
        CASE(A BPE IDENTITY, SPECBATCH_E_FORMAT, "no unknown piece"),
        CASE(UNK A IDENTITY, SPECBATCH_E_UNSUPPORTED, "a model type other than BPE"),
        CASE(UNK A BPE, SPECBATCH_OK, ""),
        CASE(UNK A BPE "\x1a\x05\x12\x01x\x20\x00", SPECBATCH_E_FORMAT,
             "precompiled_charsmap is cut short"),
        CASE(UNK A BPE "\x1a\x04\x20\x00\x28\x00", SPECBATCH_E_UNSUPPORTED, "escape_whitespaces"),
        CASE(UNK A "\x12\x05\x18\x02\xc0\x01\x01" IDENTITY, SPECBATCH_E_UNSUPPORTED,
             "treat_whitespace_as_suffix"),
        CASE(UNK A "\x12\x05\x18\x02\x98\x02\x01" IDENTITY, SPECBATCH_E_FORMAT, "no piece <0x00>"),
        CASE(UNK A A BPE IDENTITY, SPECBATCH_E_FORMAT, "piece \"a\" has two ids, 1 and 2"),
        CASE(UNK UNK BPE IDENTITY, SPECBATCH_E_FORMAT, "piece 1: a second unknown piece"),
        CASE(UNK "\x0a\x02\x0a\x00", SPECBATCH_E_FORMAT, "piece 1: empty"),
        CASE(UNK "\x0a\x03\x0a\x01\xff", SPECBATCH_E_FORMAT, "not valid UTF-8"),
        CASE(UNK "\x0a\x05\x0a\x01z\x18\x04" BPE IDENTITY, SPECBATCH_OK, ""),
        CASE(UNK "\x0a\x05\x0a\x01z\x18\x05", SPECBATCH_E_UNSUPPORTED, "piece 1: unused"),
        CASE(UNK "\x0a\x05\x0a\x01z\x18\x09", SPECBATCH_E_FORMAT, "unknown type"),
        CASE(UNK "\x0a\x05\x0a\x01z\x18\x06", SPECBATCH_E_FORMAT,
             "a byte piece is not spelled <0xXX>"),
        CASE(UNK "\x0a\x08\x0a\x01z\x15\xff\xff\xff\x7f", SPECBATCH_E_FORMAT,
             "score is not a number"),
        CASE(UNK "\x0a\x04\x0a\x02zy" BPE IDENTITY, SPECBATCH_E_UNSUPPORTED,
             "piece 1 \"zy\" has a character that is no piece"),
        CASE(UNK "\x0a\x05\x0a\x01z\x10\x01", SPECBATCH_E_FORMAT, "wrong type"),
        CASE(UNK "\x0a\x7f\x0a\x01z", SPECBATCH_E_FORMAT,
             "byte 16: a field of 127 bytes is cut short"),
        CASE(UNK "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", SPECBATCH_E_FORMAT,
             "a number does not end"),
        CASE("\x07", SPECBATCH_E_FORMAT, "byte 0: not a SentencePiece model"),
        CASE("{\"json\": 1}", SPECBATCH_E_FORMAT, "byte 0: not a SentencePiece model"),
    };
    size_t i;

    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t rc = load_model(cases[i].bytes, cases[i].n);
        if (rc != cases[i].code || (rc && (!strstr(specbatch_last_error(), cases[i].where) ||
                                           !strstr(specbatch_last_error(), "tokenizer.model: "))))
            FAIL("case %zu: status %d, message \"%s\" lacks \"%s\"", i, (int)rc,
                 specbatch_last_error(), cases[i].where);
    }
}

#define SCORED(length, text, score) "\x0a" length "\x0a" text "\x15" score

/* The pair of the better score is merged first, whatever the signs, and the leftmost among
 * equals. */
static void test_scores(void)
{
    static const char model[] = UNK A SCORED("\x08",
                                             "\x01"
                                             "b",
                                             "\x00\x00\x00\x00") SCORED("\x08",
                                                                        "\x01"
                                                                        "c",
                                                                        "\x00\x00\x00\x00")
        SCORED("\x09",
               "\x02"
               "ab",
               "\x00\x00\x80\x3f") /* 4: 1.0 */
        SCORED("\x09",
               "\x02"
               "bc",
               "\x00\x00\x00\x40") /* 5: 2.0 */
        SCORED("\x09",
               "\x02"
               "ca",
               "\x00\x00\x80\xbf") /* 6: -1.0 */
        SCORED("\x09",
               "\x02"
               "cb",
               "\x00\x00\x00\xc0") /* 7: -2.0 */
        SCORED("\x09",
               "\x02"
               "aa",
               "\x00\x00\x80\x3f") /* 8: 1.0 */
        BPE "\x1a\x04\x18\x00\x20\x00";
    static const struct {
        const char *text;
        size_t n;
        int32_t ids[4];
    } cases[] = {
        {"abc", 2, {1, 5}}, {"cab", 2, {3, 4}}, {"cb", 1, {7}},     {"acb", 2, {1, 7}},
        {"bca", 2, {5, 1}}, {"aaa", 2, {8, 1}}, {"cca", 2, {3, 6}}, {"aab", 2, {8, 2}},
    };
    struct sb_tokenizer *t = sb_tokenizer_create(&test_mem);
    size_t i;

    CHECK(t != NULL);
    CHECK_OK(sb_tokenizer_read_spm(t, model, sizeof model - 1, "tokenizer.model"));
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sb_ids ids = {.mem = &test_mem};
        CHECK_OK(sb_tokenizer_encode(t, cases[i].text, strlen(cases[i].text), 0, &ids));
        if (ids.n != cases[i].n || memcmp(ids.data, cases[i].ids, ids.n * sizeof *ids.data) != 0)
            FAIL("\"%s\": %zu ids, the first is %d", cases[i].text, ids.n, (int)ids.data[0]);
        sb_ids_clear(&ids);
    }
    sb_tokenizer_free(t);
}

/* ---------------------------------------------------------------------- no memory */

struct failing {
    int left;
    size_t live;
};

static void *failing_alloc(void *user, size_t size, size_t align)
{
    struct failing *f = user;
    void *block = f->left != 0 ? aligned_alloc(align, size) : NULL;

    f->left -= f->left > 0;
    f->live += block != NULL;
    return block;
}

static void failing_free(void *user, void *block, size_t size)
{
    struct failing *f = user;
    (void)size;
    f->live--;
    free(block);
}

/* Loads, encodes and decodes with the allocation number `budget` and all later ones failing. */
static int32_t use_with_budget(const char *dir, struct failing *f, const struct sb_mem *mem)
{
    static const char text[] = "A man's 12 n\xCC\x83 caf\xC3\xA9 \xE4\xBD\xA0 <s> x <|im_start|>//";
    struct sb_tokenizer *t = NULL;
    struct sb_ids ids = {.mem = mem};
    struct sb_bytes back = {.mem = mem};
    int32_t rc = SPECBATCH_OK;

    if ((rc = sb_tokenizer_load(&t, mem, dir)) != SPECBATCH_OK)
        return rc;
    rc = sb_tokenizer_encode(t, text, sizeof text - 1, 0, &ids);
    if (rc == SPECBATCH_OK)
        rc = sb_tokenizer_decode(t, ids.data, ids.n, 0, &back);
    else if (ids.n != 0)
        rc = SPECBATCH_E_INTERNAL;
    sb_ids_clear(&ids);
    sb_bytes_clear(&back);
    sb_tokenizer_free(t);
    return f->live == 0 ? rc : SPECBATCH_E_INTERNAL;
}

static void test_no_memory(void)
{
    static const char *const dirs[] = {"qwen", "nfkc",     "regex", "llama", "metaspace_first",
                                       "spm",  "spm_rules"};
    size_t i;

    for (i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        char dir[100];
        int budget;
        snprintf(dir, sizeof dir, "test/data/tokenizers/%s", dirs[i]);
        for (budget = 0;; budget++) {
            struct failing f = {budget, 0};
            struct sb_mem mem = {failing_alloc, failing_free, &f};
            int32_t rc = use_with_budget(dir, &f, &mem);
            if (rc == SPECBATCH_OK)
                break;
            if (rc != SPECBATCH_E_NOMEM || !strstr(specbatch_last_error(), "no memory"))
                FAIL("%s: allocation %d: status %d: %s", dir, budget, (int)rc,
                     specbatch_last_error());
            CHECK_INT(f.live, 0);
        }
        CHECK(budget > 20);
    }
}

TEST_BEGIN
RUN(test_the_good_one);
RUN(test_two_templates);
RUN(test_kept_words);
RUN(test_wrong_members);
RUN(test_missing_unknown_token);
RUN(test_json_cut_and_damaged);
RUN(test_model_cut_everywhere);
RUN(test_model_damaged);
RUN(test_model_by_hand);
RUN(test_scores);
RUN(test_no_memory);
TEST_END
