/*
 * Conversion of GGUF files: by way of a float file a checkpoint becomes the file that it becomes at
 * once, byte by byte, whatever else that file says of it; what speaks of the file itself does not
 * stay; and what is quantised already is not quantised again. test_convert.c holds the conversion
 * of folders against another writer.
 */
#include "gguf.h"
#include "sbtest.h"
#include "support/gguf_convert.h"

#define MODELS "test/data/models/"

static const char *const models[] = {
    MODELS "emoji",
    MODELS "gemma2_bf16",
    MODELS "gemma3_bf16",
    MODELS "glm4_moe_bf16",
    MODELS "glm4_unbiased_bf16",
    MODELS "gpt_oss_mxfp4",
    MODELS "llama3_scaled_biased_tied_bf16",
    MODELS "llama_mha_f16",
    MODELS "llama_untied_f32_sharded",
    MODELS "long_qwen3_hd128_bf16",
    MODELS "mistral_window_bf16",
    MODELS "mixtral_f16",
    MODELS "phi3_longrope_f16",
    MODELS "qwen2_tied_f32",
    MODELS "qwen2_window_f32",
    MODELS "qwen3_moe_bf16",
    MODELS "qwen3_yarn_f32",
    MODELS "smollm3_bf16",
    "examples/demo/target",
};

static const char scaled[] = MODELS "llama3_scaled_biased_tied_bf16";

static struct test_dir dir;
static char from[128], to[128]; /* a GGUF file in the folder, and what it is converted to */

/* The path of a file in the folder, until the next call. */
static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", dir.path, name);
    return path;
}

static int32_t convert_as(const char *file, const char *source, int32_t weights)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.weights = weights;
    return specbatch_convert(file, source, &options);
}

/* Whether two files of the folder have the same bytes. */
static int are_equal(const char *a, const char *b)
{
    size_t n_a = 0, n_b = 0;
    char *x = test_read(dir.path, a, &n_a), *y = test_read(dir.path, b, &n_b);
    const int equal = x && y && n_a == n_b && memcmp(x, y, n_a) == 0;

    free(x);
    free(y);
    return equal;
}

/* Converts a folder at once and by way of a float file. */
static void check_both_ways(const char *folder)
{
    char at_once[128];

    snprintf(at_once, sizeof at_once, "%s/at_once.gguf", dir.path);
    CHECK_OK(convert_as(from, folder, SPECBATCH_WEIGHTS_AUTO));
    CHECK_OK(convert_as(to, from, SPECBATCH_WEIGHTS_AUTO));
    CHECK(are_equal("from.gguf", "to.gguf"));
    for (int32_t weights = SPECBATCH_WEIGHTS_Q8; weights <= SPECBATCH_WEIGHTS_Q4; weights++) {
        CHECK_OK(convert_as(at_once, folder, weights));
        CHECK_OK(convert_as(to, from, weights));
        CHECK(are_equal("at_once.gguf", "to.gguf"));
    }
    remove(at_once);
}

static void both_ways_lead_to_one_file(void)
{
    for (size_t i = 0; i < sizeof models / sizeof *models && !sbtest_failed_now; i++) {
        check_both_ways(models[i]);
        if (sbtest_failed_now)
            printf("     %s\n", models[i]);
    }
}

/* Also where the keys cannot describe the tokenizer, and tokenizer.json is in the file. */
static void a_tokenizer_in_the_file_stays_there(void)
{
    const struct test_dir folder = test_dir_make();

    test_copy(&folder, "examples/demo/target", "tokenizer.json");
    test_copy(&folder, "test/data/tokenizers/nfkc", "golden.jsonl");
    check_both_ways(folder.path);
    test_dir_remove(&folder);
}

static int is_text(const char *file, const char *key, const char *text)
{
    struct sb_gguf *gguf = NULL;
    struct sb_gguf_value value;
    int is;

    if (sb_gguf_open(&gguf, &test_mem, file) != SPECBATCH_OK)
        return 0;
    is = text ? sb_gguf_get(gguf, key, &value) && sb_gguf_is(&value, text)
              : !sb_gguf_get(gguf, key, &value);
    sb_gguf_close(gguf);
    return is;
}

static void a_tokenizer_beside_the_file_goes_in(void)
{
    char *json = NULL;
    size_t n = 0;

    CHECK_OK(convert_as(from, MODELS "emoji", SPECBATCH_WEIGHTS_AUTO));
    CHECK(is_text(from, "tokenizer.huggingface.json", NULL));
    CHECK((json = test_read(MODELS "emoji", "tokenizer.json", &n)) != NULL);
    test_write(&dir, "tokenizer.json", json, n);
    CHECK_OK(convert_as(to, from, SPECBATCH_WEIGHTS_AUTO));
    CHECK(is_text(to, "tokenizer.huggingface.json", json));
    test_write_text(&dir, "tokenizer.json", "{}");
    CHECK_ERROR(convert_as(to, from, SPECBATCH_WEIGHTS_AUTO), SPECBATCH_E_FORMAT, "tokenizer.json");
    remove(path_of("tokenizer.json"));
    free(json);
}

/* Writes a file as other programs do: with other keys, another alignment, its type in between, and
 * divisors of frequencies that were computed in another way; as the first of two parts if asked. */
static int write_other(const char *model, const char *name, int in_parts)
{
    struct gguf_writer w = {.alignment = 64}, rest = {.alignment = 64};

    gguf_key_text(&w, "general.name", "its name");
    gguf_key_u32(&w, "general.alignment", 64);
    gguf_key_u32(&w, "general.file_type", 32);
    gguf_key_array(&w, "general.tags", SB_GGUF_STRING, 2);
    gguf_add_text(&w.keys, "one", 3);
    gguf_add_text(&w.keys, "two", 3);
    if (in_parts) {
        gguf_key_u32(&w, "split.no", 0);
        gguf_key_u32(&w, "split.count", 2);
        gguf_key_u32(&rest, "split.no", 1);
        gguf_key_u32(&rest, "split.count", 2);
        gguf_write(&rest, &dir, "from-00002-of-00002.gguf");
    }
    if (!convert_model(&w, model, SB_BF16, 0))
        return 0;
    gguf_write(&w, &dir, name);
    return 1;
}

static uint32_t number_of(const struct sb_gguf *gguf, const char *key)
{
    struct sb_gguf_value value;
    int64_t number = -1;

    return sb_gguf_get(gguf, key, &value) && sb_gguf_int(&value, &number) ? (uint32_t)number
                                                                          : UINT32_MAX;
}

/* Whether both files have the same bytes of a tensor. */
static int have_the_same(const struct sb_gguf *a, const struct sb_gguf *b, const char *name)
{
    const struct sb_gguf *both[2] = {a, b};
    unsigned char bytes[2][4096];
    uint64_t n[2] = {0, 0};

    for (int f = 0; f < 2; f++)
        for (int32_t i = 0; i < sb_gguf_n_tensors(both[f]); i++) {
            const struct sb_gguf_tensor *t = sb_gguf_tensor(both[f], i);
            if (strcmp(t->name, name) == 0 && t->bytes <= sizeof bytes[f] &&
                sb_file_read(sb_gguf_file(both[f], t->file), t->offset, bytes[f], t->bytes) == 0)
                n[f] = t->bytes;
        }
    return n[0] > 0 && n[0] == n[1] && memcmp(bytes[0], bytes[1], n[0]) == 0;
}

/* Converts a file that write_other has made of `model`. `vector` is a tensor of it. */
static void check_other(const char *file, const char *model, const char *vector, int32_t weights,
                        uint32_t file_type)
{
    static const char *const of_the_file[] = {"general.alignment", "split.no", "split.count"};
    struct sb_gguf *before = NULL, *after = NULL;
    specbatch_model *expected = NULL, *got = NULL;
    struct sb_gguf_value value;
    char folder_made[128];

    snprintf(folder_made, sizeof folder_made, "%s/folder.gguf", dir.path);
    CHECK_OK(convert_as(to, file, weights));
    CHECK_OK(convert_as(folder_made, model, weights));
    CHECK_OK(specbatch_model_open(&expected, folder_made, NULL));
    CHECK_OK(specbatch_model_open(&got, to, NULL));
    CHECK_STR(specbatch_model_digest(got), specbatch_model_digest(expected));
    CHECK_OK(sb_gguf_open(&before, &test_mem, file));
    CHECK_OK(sb_gguf_open(&after, &test_mem, to));
    CHECK(have_the_same(before, after, vector));
    CHECK(sb_gguf_get(after, "general.tags", &value) && value.count == 2);
    CHECK_INT(number_of(after, "general.file_type"), file_type);
    for (size_t i = 0; i < 3; i++)
        CHECK(!sb_gguf_get(after, of_the_file[i], &value));
    CHECK(is_text(to, "general.name", "its name"));
    CHECK_INT(sb_gguf_n_files(after), 1);
    sb_gguf_close(before);
    sb_gguf_close(after);
    specbatch_model_close(expected);
    specbatch_model_close(got);
    remove(folder_made);
}

static void what_the_file_says_of_the_model_stays(void)
{
    CHECK(write_other(scaled, "from.gguf", 0));
    check_other(from, scaled, "rope_freqs.weight", SPECBATCH_WEIGHTS_AUTO, 32);
    CHECK(write_other("examples/demo/target", "from.gguf", 0));
    check_other(from, "examples/demo/target", "output_norm.weight", SPECBATCH_WEIGHTS_Q8, 7);
}

static void parts_become_one_file(void)
{
    CHECK(write_other(scaled, "from-00001-of-00002.gguf", 1));
    check_other(path_of("from-00001-of-00002.gguf"), scaled, "rope_freqs.weight",
                SPECBATCH_WEIGHTS_AUTO, 32);
    remove(path_of("from-00001-of-00002.gguf"));
    remove(path_of("from-00002-of-00002.gguf"));
}

static void what_is_quantised_is_not_quantised_again(void)
{
    CHECK_OK(convert_as(from, "examples/demo/target", SPECBATCH_WEIGHTS_Q4));
    remove(to);
    CHECK_ERROR(convert_as(to, from, SPECBATCH_WEIGHTS_Q8), SPECBATCH_E_UNSUPPORTED,
                "from.gguf: tensor token_embd.weight is Q8_0 already, and to quantise it again");
    CHECK_ERROR(convert_as(to, from, SPECBATCH_WEIGHTS_Q4), SPECBATCH_E_UNSUPPORTED, "already");
    CHECK_INT(test_dir_files(&dir), 1);
    CHECK_OK(convert_as(to, from, SPECBATCH_WEIGHTS_AUTO));
    CHECK(are_equal("from.gguf", "to.gguf"));
}

static void refuses_what_cannot_be_converted(void)
{
    CHECK_OK(convert_as(from, MODELS "emoji", SPECBATCH_WEIGHTS_AUTO));
    remove(to);
    CHECK_ERROR(convert_as(path_of("x.safetensors"), from, SPECBATCH_WEIGHTS_AUTO),
                SPECBATCH_E_UNSUPPORTED, "a GGUF file has no config.json");
    CHECK_ERROR(convert_as(to, "README.md", SPECBATCH_WEIGHTS_AUTO), SPECBATCH_E_FORMAT,
                "README.md: not a GGUF file");
    CHECK(strstr(specbatch_last_error(), "README.md: README.md") == NULL);
    CHECK_ERROR(convert_as(to, "no/such.gguf", SPECBATCH_WEIGHTS_AUTO), SPECBATCH_E_IO,
                "no/such.gguf: neither a directory nor a GGUF file is there");
    CHECK_INT(test_dir_files(&dir), 1);
}

/* Every allocation fails in turn. */
static void no_memory_leaves_nothing(void)
{
    struct test_memory memory = {0, 0, 0};
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    int32_t rc = SPECBATCH_E_NOMEM;

    CHECK_OK(convert_as(from, MODELS "emoji", SPECBATCH_WEIGHTS_AUTO));
    remove(to);
    options.weights = SPECBATCH_WEIGHTS_Q8;
    options.alloc = test_memory_alloc;
    options.free = test_memory_free;
    options.alloc_user = &memory;
    for (int64_t at = 0; rc != SPECBATCH_OK; at++) {
        memory = (struct test_memory){0, at, 0};
        rc = specbatch_convert(to, from, &options);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
        CHECK_INT(memory.live, 0);
        CHECK_INT(test_dir_files(&dir), 1 + (rc == SPECBATCH_OK));
        CHECK(at < 10000);
    }
}

TEST_BEGIN
dir = test_dir_make();
snprintf(from, sizeof from, "%s/from.gguf", dir.path);
snprintf(to, sizeof to, "%s/to.gguf", dir.path);
RUN(both_ways_lead_to_one_file);
RUN(a_tokenizer_in_the_file_stays_there);
RUN(a_tokenizer_beside_the_file_goes_in);
RUN(what_the_file_says_of_the_model_stays);
RUN(parts_become_one_file);
RUN(what_is_quantised_is_not_quantised_again);
RUN(refuses_what_cannot_be_converted);
RUN(no_memory_leaves_nothing);
test_dir_remove(&dir);
TEST_END
