/*
 * Small files and plain texts that once took minutes or gigabytes. Some files are refused, with a
 * message that names the member. The sizes of the others are such that these tests would not come
 * to an end if the work grew with the product of two sizes instead of their sum.
 */
#include "text/pipeline.h"
#include "text/spm.h"
#include "support/model_files.h"
#include "support/tokenizer_data.h"

#define MODEL \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\" \":2,\"<0x41>\":3},\"merges\":[]}"

struct text {
    struct sb_bytes bytes;
    int32_t rc;
};

static void put(struct text *t, const char *text)
{
    t->rc |= sb_bytes_add(&t->bytes, text, strlen(text));
}

static void put_many(struct text *t, const char *text, size_t n)
{
    while (n-- > 0)
        put(t, text);
}

/* The tokenizer of a file's text, which is freed; NULL and the last error when it is refused. */
static struct sb_tokenizer *read_file(struct text *file, int32_t *rc)
{
    struct sb_tokenizer *t = sb_tokenizer_create(&test_mem);

    *rc = t && !file->rc ? sb_tokenizer_read_hf(t, file->bytes.data, file->bytes.n, "t.json")
                         : SPECBATCH_E_NOMEM;
    sb_bytes_clear(&file->bytes);
    if (*rc) {
        sb_tokenizer_free(t);
        t = NULL;
    }
    return t;
}

/* {MODEL, name: {"type": "Sequence", list: [step, ... n in all]}, more} */
static int32_t read_steps(const char *name, const char *list, const char *step, int n,
                          const char *more)
{
    struct text file = {.bytes = {.mem = &test_mem}};
    int32_t rc;

    put(&file, "{" MODEL ",\"");
    put(&file, name);
    put(&file, "\":{\"type\":\"Sequence\",\"");
    put(&file, list);
    put(&file, "\":[");
    put(&file, step);
    for (; n > 1; n--) {
        put(&file, ",");
        put(&file, step);
    }
    put(&file, "]}");
    put(&file, more);
    put(&file, "}");
    struct sb_tokenizer *t = read_file(&file, &rc);
    sb_tokenizer_free(t);
    return rc;
}

#define EIGHT "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaa\"}"
#define PREPEND "{\"type\":\"Prepend\",\"prepend\":\"aaaaaaa\"}" /* seven */
#define MARKS "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}"
#define NO_MARKS "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\"}"
#define SPACED "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}"
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"

static void test_steps_that_multiply(void)
{
    static const char
        added[] = ",\"added_tokens\":[{\"id\":9,\"content\":\"ba\",\"normalized\":true}]";

    CHECK_OK(read_steps("normalizer", "normalizers", EIGHT, 2, added));
    CHECK_ERROR(read_steps("normalizer", "normalizers", EIGHT, 3, ""), SPECBATCH_E_UNSUPPORTED,
                "t.json: normalizer: step 3 could make a text more than 64 times as long");
    CHECK_ERROR(read_steps("normalizer", "normalizers", EIGHT, 16, added), SPECBATCH_E_UNSUPPORTED,
                "normalizer: step 3");
    CHECK_OK(read_steps("decoder", "decoders", EIGHT, 2, ""));
    CHECK_ERROR(read_steps("decoder", "decoders", EIGHT, 3, ""), SPECBATCH_E_UNSUPPORTED,
                "t.json: decoder: step 3");
    /* As far as growth goes, the steps before and after the bytes are one list. */
    CHECK_ERROR(read_steps("decoder", "decoders",
                           EIGHT "," EIGHT ",{\"type\":\"ByteFallback\"}," EIGHT, 1, ""),
                SPECBATCH_E_UNSUPPORTED, "decoder: step 3");
    CHECK_OK(read_steps("pre_tokenizer", "pretokenizers", BYTE_LEVEL, 1, ""));
    CHECK_ERROR(read_steps("pre_tokenizer", "pretokenizers", BYTE_LEVEL, 16, ""),
                SPECBATCH_E_UNSUPPORTED, "t.json: pre_tokenizer: step 7");
}

/* A Prepend puts its text before every stretch between added tokens, and the steps behind it
 * multiply that text. */
static void test_steps_that_prepend(void)
{
    CHECK_OK(read_steps("normalizer", "normalizers", PREPEND, 9, "")); /* 1 + 9 x 7 */
    CHECK_ERROR(read_steps("normalizer", "normalizers", PREPEND, 10, ""), SPECBATCH_E_UNSUPPORTED,
                "t.json: normalizer: step 10 could make a text more than 64 times as long");
    CHECK_OK(read_steps("normalizer", "normalizers", PREPEND "," EIGHT, 1, "")); /* (1 + 7) x 8 */
    CHECK_ERROR(read_steps("normalizer", "normalizers", PREPEND "," PREPEND "," EIGHT, 1, ""),
                SPECBATCH_E_UNSUPPORTED, "normalizer: step 3");
    /* 8 + 7 + 7 */
    CHECK_OK(read_steps("normalizer", "normalizers", EIGHT "," PREPEND "," PREPEND, 1, ""));
    CHECK_OK(read_steps("pre_tokenizer", "pretokenizers", NO_MARKS, 8, ""));
    CHECK_OK(read_steps("pre_tokenizer", "pretokenizers", MARKS "," SPACED, 1, "")); /* 2 x 2 x 2 */
    CHECK_ERROR(read_steps("pre_tokenizer", "pretokenizers", MARKS, 7, ""), SPECBATCH_E_UNSUPPORTED,
                "t.json: pre_tokenizer: step 13");
    CHECK_ERROR(read_steps("pre_tokenizer", "pretokenizers", SPACED, 4, ""),
                SPECBATCH_E_UNSUPPORTED, "t.json: pre_tokenizer: step 7");
}

/* {"post_processor": a template of n times the special token x, which stands for m ids, then $A} */
static int32_t read_template(size_t n, size_t m)
{
    struct text file = {.bytes = {.mem = &test_mem}};
    int32_t rc;

    put(&file, "{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    put_many(&file, "{\"SpecialToken\":{\"id\":\"x\"}},", n);
    put(&file, "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[0");
    put_many(&file, ",0", m - 1);
    put(&file, "]}}}}");
    struct sb_tokenizer *t = read_file(&file, &rc);
    sb_tokenizer_free(t);
    return rc;
}

static void test_long_templates(void)
{
    static const char why[] = "t.json: post_processor: a template of more than 64 tokens";

    CHECK_OK(read_template(63, 1));
    CHECK_OK(read_template(1, 64));
    CHECK_ERROR(read_template(64, 1), SPECBATCH_E_UNSUPPORTED, why);
    CHECK_ERROR(read_template(1, 65), SPECBATCH_E_UNSUPPORTED, why);
    CHECK_ERROR(read_template(33, 2), SPECBATCH_E_UNSUPPORTED, why);
}

/* {MODEL, "added_tokens": [...]}: n times an added token of `prefix`, six digits and `suffix`. */
static struct sb_tokenizer *with_added(const char *prefix, const char *suffix, const char *flags,
                                       int n, int32_t *rc)
{
    struct text file = {.bytes = {.mem = &test_mem}};
    char token[64];

    put(&file, "{" MODEL ",\"added_tokens\":[");
    for (int i = 0; i < n; i++) {
        snprintf(token, sizeof token, "%s{\"id\":%d,\"content\":\"", i ? "," : "", 10 + i);
        put(&file, token);
        put(&file, prefix);
        snprintf(token, sizeof token, n > 1 ? "%06d" : "", i);
        put(&file, token);
        put(&file, suffix);
        put(&file, flags);
    }
    put(&file, "]}");
    return read_file(&file, rc);
}

/* The number of ids of a text that is n times `part`, or a negative status. */
static long long count_ids(const struct sb_tokenizer *t, const char *part, size_t n)
{
    struct text text = {.bytes = {.mem = &test_mem}};
    struct sb_ids ids = {.mem = &test_mem};
    long long count;

    put_many(&text, part, n);
    count = text.rc |
            sb_tokenizer_encode(t, text.bytes.data, text.bytes.n, SPECBATCH_TEXT_NO_BOS, &ids);
    count = count ? count : (long long)ids.n;
    sb_bytes_clear(&text.bytes);
    sb_ids_clear(&ids);
    return count;
}

/* A hundred thousand tokens that begin alike, looked for at every byte of a million. To compare
 * them one by one would take 10^11 comparisons. */
static void test_many_added_tokens(void)
{
    int32_t rc;
    struct sb_tokenizer *t = with_added("a", "", "\"}", 100000, &rc);

    CHECK_OK(rc);
    CHECK_INT(count_ids(t, "a", 1000000), 1000000);
    CHECK_INT(count_ids(t, "a00000", 100000), 100000);
    CHECK_INT(count_ids(t, "a012345", 100000), 100000);
    CHECK_INT(sb_tokenizer_piece(t, 10 + 99999, NULL) != NULL, 1);
    sb_tokenizer_free(t);
}

/* A list of `n` strings of a letter and six digits; behind each, `value` for a name's value. */
static void put_names(struct text *t, char letter, int n, const char *value, int first_id)
{
    char token[40];

    for (int i = 0; i < n; i++) {
        snprintf(token, sizeof token, "%s\"%c%06d\"%s", i ? "," : "", letter, i, value);
        put(t, token);
        snprintf(token, sizeof token, "%d", first_id + i);
        put(t, *value ? token : "");
    }
}

/* Two hundred thousand tokens of added_tokens.json beside as many members and 4,000 named
 * tokens of tokenizer_config.json. To look at these for each token would take 10^11 steps. */
static void test_many_tokens_beside(void)
{
    enum { N = 200000 };
    const struct test_dir dir = test_dir_make();
    struct text config = {.bytes = {.mem = &test_mem}}, added = config;
    struct sb_tokenizer *t = NULL;

    put(&config, "{\"eos_token\":\"t000001\",\"additional_special_tokens\":[");
    put_names(&config, 'x', 4000, "", 0);
    put(&config, "],");
    put_names(&config, 'm', N, ":", 0);
    put(&config, "}");
    put(&added, "{");
    put_names(&added, 't', N, ":", 4);
    put(&added, "}");
    CHECK_OK(config.rc | added.rc);
    test_write_text(&dir, "tokenizer.json", "{" MODEL "}");
    test_write_text(&dir, "tokenizer_config.json", config.bytes.data);
    test_write_text(&dir, "added_tokens.json", added.bytes.data);
    CHECK_OK(sb_tokenizer_load(&t, &test_mem, dir.path));
    CHECK_INT(count_ids(t, "at000001t199999", 1), 3);
    CHECK(sb_vocab_piece(&t->vocab, 5)->flags & SB_PIECE_SPECIAL);
    CHECK(!(sb_vocab_piece(&t->vocab, 6)->flags & SB_PIECE_SPECIAL));
    sb_tokenizer_free(t);
    sb_bytes_clear(&config.bytes);
    sb_bytes_clear(&added.bytes);
    test_dir_remove(&dir);
}

/* A long string is looked for in a text that nearly is that string at every place. */
static void test_long_strings_to_look_for(void)
{
    static const char pattern[] = "\"pattern\":{\"String\":\"";
    char name[1026] = "", step[1200];
    struct sb_tokenizer *t;
    int32_t rc;

    memset(name, 'a', 1024);
    CHECK((t = with_added(name, "", "\"}", 1, &rc)) != NULL);
    CHECK_INT(count_ids(t, "a", 3000), 2 + 3000 - 2048);
    sb_tokenizer_free(t);
    name[1024] = 'a';
    t = with_added(name, "", "\"}", 1, &rc);
    CHECK_ERROR(rc, SPECBATCH_E_UNSUPPORTED, "t.json: added_tokens: \"aaaa");
    CHECK(t == NULL);
    snprintf(step, sizeof step, "{\"type\":\"Replace\",%s%s\"},\"content\":\"\"}", pattern, name);
    CHECK_ERROR(read_steps("normalizer", "normalizers", step, 1, ""), SPECBATCH_E_UNSUPPORTED,
                "t.json: normalizer: \"aaaa");
    snprintf(step, sizeof step, "{\"type\":\"Split\",%s%s\"},\"behavior\":\"Isolated\"}", pattern,
             name);
    CHECK_ERROR(read_steps("pre_tokenizer", "pretokenizers", step, 1, ""), SPECBATCH_E_UNSUPPORTED,
                "t.json: pre_tokenizer: \"aaaa");
}

/* Pieces of a letter, as long as 1, 2 and so on: each can be cut anywhere into two that are pieces.
 * A file of 19 megabytes had so 18 million merges, in 870 megabytes and half a minute. */
static int32_t build_pieces(size_t n)
{
    struct sb_tokenizer *t = sb_tokenizer_create(&test_mem);
    struct sb_spm spm = {.t = t, .path = "m", .bos = -1, .eos = -1};
    char text[512];
    int32_t rc = sb_spm_add(&spm, "<unk>", 5, SB_SPM_UNKNOWN, 0);

    memset(text, 'a', sizeof text);
    for (size_t i = 1; i <= n; i++)
        rc |= sb_spm_add(&spm, text, i, SB_SPM_NORMAL, -(float)i);
    rc = rc ? rc : sb_spm_build(&spm);
    sb_spm_clear(&spm);
    sb_tokenizer_free(t);
    return rc;
}

static void test_many_merges(void)
{
    CHECK_OK(build_pieces(370)); /* 68,265 merges */
    CHECK_ERROR(build_pieces(400), SPECBATCH_E_UNSUPPORTED,
                "m: its pieces can be merged in more than 71952 ways");
}

/* A token that takes the white space behind it, in a text of nothing but such tokens, which are
 * white space themselves. Each of them once walked to the end of the text. */
static void test_tokens_that_take_space(void)
{
    int32_t rc;
    struct sb_tokenizer *t = with_added("\\n", "", "\",\"rstrip\":true}", 1, &rc);

    CHECK_OK(rc);
    CHECK_INT(count_ids(t, "\n", 1000000), 1000000); /* as the reference has it */
    sb_tokenizer_free(t);
}

/* A run of byte tokens is held until its end. If every push copied what is held, two million pushes
 * would copy terabytes. */
static void test_a_long_run_of_bytes(void)
{
    enum { N = 2000000 };
    struct text file = {.bytes = {.mem = &test_mem}};
    const int32_t byte = 3;
    struct sb_stream *stream = NULL;
    struct sb_tokenizer *t;
    const char *text;
    int32_t rc;
    size_t n, i;

    put(&file, "{" MODEL ",\"decoder\":{\"type\":\"ByteFallback\"}}");
    CHECK((t = read_file(&file, &rc)) != NULL);
    CHECK_OK(sb_stream_create(&stream, &test_mem, t, 0));
    for (i = 0; i < N; i++)
        CHECK_OK(sb_stream_push(stream, &byte, 1, &text, &n));
    CHECK_INT(n, 0);
    CHECK_OK(sb_stream_push(stream, NULL, 0, &text, &n));
    CHECK_INT(n, N);
    CHECK_INT(strspn(text, "A"), N);
    sb_stream_free(stream);
    sb_tokenizer_free(t);
}

/* ------------------------------------------------------------------------- memory */

static size_t live, peak;

static void *counting_alloc(void *user, size_t size, size_t align)
{
    (void)user;
    live += size;
    peak = live > peak ? live : peak;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void counting_free(void *user, void *block, size_t size)
{
    (void)user;
    live -= size;
    free(block);
}

/* Memory for values is taken as values come: 64 million bytes may also be a single string. */
static void test_room_for_json(void)
{
    enum { N = 64 << 20 };
    const struct sb_mem mem = {counting_alloc, counting_free, NULL};
    struct sb_json *doc = NULL;
    char *text = malloc(N);

    CHECK(text != NULL);
    memset(text, 'x', N);
    text[0] = text[N - 1] = '"';
    CHECK_OK(sb_json_parse(&doc, &mem, text, N, "text"));
    CHECK_INT(sb_json_kind(sb_json_root(doc)), SB_JSON_STRING);
    sb_json_free(doc);
    free(text);
    CHECK_INT(live, 0);
    CHECK(peak < N + (40 << 20));
}

TEST_BEGIN
RUN(test_steps_that_multiply);
RUN(test_steps_that_prepend);
RUN(test_long_templates);
RUN(test_many_added_tokens);
RUN(test_many_tokens_beside);
RUN(test_long_strings_to_look_for);
RUN(test_many_merges);
RUN(test_tokens_that_take_space);
RUN(test_a_long_run_of_bytes);
RUN(test_room_for_json);
TEST_END
