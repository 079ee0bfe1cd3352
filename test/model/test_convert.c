/*
 * Conversion to GGUF: a file gives the tokens, the log-probabilities and the ids of texts of the
 * directory that it was made from, bit for bit. That alone would not tell a mistake that writer and
 * reader share, so the bytes of its tensors and the values of its keys are held against a file that
 * is made by the tests' own writer (gguf_convert.h), which knows nothing of the library's. And what
 * becomes of a conversion that is cancelled, or for which there is no room.
 */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "backend/quantiser.h"
#include "model/gguf_model.h"
#include "model/model.h"
#include "model/shards.h"
#include "quant.h"
#include "sbtest.h"
#include "support/gguf_convert.h"
#include "support/run_to_end.h"
#include "support/same_tokenizer.h"

#define MODELS "test/data/models/"
#define TEXTS "test/data/tokenizers/qwen/golden.jsonl"

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
    MODELS "llama_untied_f32_sharded.draft",
    MODELS "long_qwen3_hd128_bf16",
    MODELS "mistral_window_bf16",
    MODELS "mixtral_f16",
    MODELS "phi3_longrope_f16",
    MODELS "qwen2_tied_f32",
    MODELS "qwen2_window_f32",
    MODELS "qwen3_untied_f32_sharded",
    MODELS "qwen3_untied_f32_sharded.draft",
    MODELS "qwen3_moe_bf16",
    MODELS "qwen3_yarn_f32",
    MODELS "smollm3_bf16",
    "examples/demo/target",
};
enum { N_MODELS = sizeof models / sizeof *models };

static struct test_dir dir;
static char path[128]; /* of the file that is made */

static specbatch_model_options options_of(int32_t weights)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.weights = weights;
    return options;
}

/* ----------------------------------------------------------------- the same model as before */

enum { MAX_NEW = 24 };

struct generated {
    int32_t tokens[MAX_NEW];
    float logprobs[MAX_NEW];
    size_t n;
};

static int32_t generate(struct generated *g, const char *from, int32_t weights)
{
    static const int32_t prompt[] = {5, 17, 30, 41, 5, 9, 21, 33, 40, 2, 11, 50};
    const specbatch_model_options options = options_of(weights);
    specbatch_pool_options pool_options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_result *result = NULL;
    specbatch_model *model = NULL;
    specbatch_pool *pool = NULL;
    int32_t rc;

    memset(g, 0, sizeof *g);
    pool_options.policy = SPECBATCH_POLICY_PLAIN;
    pool_options.max_len = 64;
    pool_options.n_threads = 1;
    request.flags = SPECBATCH_REQUEST_LOGPROBS | SPECBATCH_REQUEST_IGNORE_EOS;
    request.ids = prompt;
    request.n_ids = sizeof prompt / sizeof *prompt;
    request.max_new = MAX_NEW;
    if ((rc = specbatch_model_open(&model, from, &options)) == SPECBATCH_OK)
        rc = specbatch_pool_create(&pool, model, NULL, &pool_options);
    if (rc == SPECBATCH_OK && (rc = specbatch_pool_submit(pool, &request, NULL)) == SPECBATCH_OK)
        rc = run_to_end(pool);
    if (rc == SPECBATCH_OK && (rc = specbatch_pool_collect(pool, &result)) == SPECBATCH_OK) {
        memcpy(g->tokens, specbatch_result_tokens(result, &g->n), sizeof g->tokens);
        memcpy(g->logprobs, specbatch_result_logprobs(result, NULL), sizeof g->logprobs);
        specbatch_result_free(result);
    }
    specbatch_pool_free(pool);
    specbatch_model_close(model);
    return rc;
}

/* Converts with one option and opens the file with another. */
static void compare(const char *from, int32_t convert_as, int32_t open_as)
{
    const specbatch_model_options options = options_of(convert_as);
    static struct generated expected, got;

    CHECK_OK(specbatch_convert(path, from, &options));
    CHECK_OK(generate(&expected, from, convert_as));
    CHECK_OK(generate(&got, path, open_as));
    CHECK_INT(expected.n, MAX_NEW);
    CHECK_MEM(&got, &expected, sizeof got);
}

static void files_give_the_same_bits(void)
{
    for (int i = 0; i < N_MODELS && !sbtest_failed_now; i++) {
        compare(models[i], SPECBATCH_WEIGHTS_AUTO, SPECBATCH_WEIGHTS_AUTO);
        if (sbtest_failed_now)
            printf("     %s\n", models[i]);
    }
}

/* Rows of some of the models are no whole blocks, so that matrices stay as they were; opened with
 * the option, such a file is as its directory too. */
static void quantised_files_give_the_same_bits(void)
{
    for (int32_t weights = SPECBATCH_WEIGHTS_Q8; weights <= SPECBATCH_WEIGHTS_Q4; weights++)
        for (int i = 0; i < N_MODELS && !sbtest_failed_now; i++) {
            compare(models[i], weights, weights);
            if (sbtest_failed_now)
                printf("     %s, weights %d\n", models[i], (int)weights);
        }
}

static void whole_blocks_are_quantised_in_the_file(void)
{
    static const char *const whole[] = {MODELS "long_qwen3_hd128_bf16", "examples/demo/target"};

    for (int32_t weights = SPECBATCH_WEIGHTS_Q8; weights <= SPECBATCH_WEIGHTS_Q4; weights++)
        for (size_t i = 0; i < sizeof whole / sizeof *whole && !sbtest_failed_now; i++)
            compare(whole[i], weights, SPECBATCH_WEIGHTS_AUTO);
}

static void tokenizers_are_the_same(void)
{
    static const char *const from[] = {MODELS "emoji", "examples/demo/target"};
    const specbatch_model_options options = options_of(SPECBATCH_WEIGHTS_AUTO);

    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        struct specbatch_model *expected = NULL, *got = NULL;
        CHECK_OK(specbatch_convert(path, from[i], NULL));
        CHECK_OK(sb_model_open(&expected, from[i], &options));
        CHECK_OK(sb_model_open(&got, path, &options));
        CHECK(expected->tokenizer && got->tokenizer);
        CHECK(same_tokenizer(expected->tokenizer, got->tokenizer, 0, TEXTS) > 100);
        CHECK_INT(got->config.n_eos, expected->config.n_eos);
        CHECK_MEM(got->config.eos, expected->config.eos, sizeof got->config.eos);
        sb_model_release(expected);
        sb_model_release(got);
    }
}

/* A tokenizer that metadata cannot describe is in the file as it is, and the log says so. */
static char logged[512];

static void keep_line(void *user, int32_t level, const char *line)
{
    (void)user;
    if (level == SPECBATCH_LOG_WARN)
        snprintf(logged, sizeof logged, "%s", line);
}

static void other_tokenizers_go_in_whole(void)
{
    const struct test_dir from = test_dir_make();
    specbatch_model_options options = options_of(SPECBATCH_WEIGHTS_AUTO);
    struct specbatch_model *expected = NULL, *got = NULL;
    struct sb_gguf *gguf = NULL;
    struct sb_gguf_value value;
    char chat[] = "{{ messages }}", other[128];

    test_copy(&from, "examples/demo/target", "tokenizer.json");
    test_copy(&from, "test/data/tokenizers/nfkc", "golden.jsonl");
    test_write(&from, "chat_template.jinja", chat, strlen(chat));
    snprintf(other, sizeof other, "%s", from.path);
    logged[0] = '\0';
    options.log = keep_line;
    CHECK_OK(specbatch_convert(path, other, &options));
    CHECK(strstr(logged, "a pre-tokenizer that has no name in GGUF files; so tokenizer.json is"));
    CHECK_OK(sb_model_open(&expected, other, &options));
    CHECK_OK(sb_model_open(&got, path, &options));
    CHECK(same_tokenizer(expected->tokenizer, got->tokenizer, 0, TEXTS) > 100);
    CHECK_INT(got->chat, SB_CHAT_UNKNOWN);
    CHECK_OK(sb_gguf_open(&gguf, &test_mem, path));
    CHECK(sb_gguf_get(gguf, "tokenizer.chat_template", &value) && sb_gguf_is(&value, chat));
    CHECK(sb_gguf_get(gguf, "tokenizer.ggml.model", &value) && sb_gguf_is(&value, "none"));
    sb_gguf_close(gguf);
    sb_model_release(expected);
    sb_model_release(got);
    test_dir_remove(&from);
}

/* What the files beside a tokenizer.json say of it goes with it, from a folder and from beside a
 * GGUF file. */
static void files_beside_a_tokenizer_go_in(void)
{
    static const char config[] = "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":false,"
                                 "\"add_eos_token\":true,\"eos_token\":\"a\"}";
    const struct test_dir from = test_dir_make();
    const specbatch_model_options options = options_of(SPECBATCH_WEIGHTS_AUTO);
    char folder[128], first[160];

    test_copy(&from, "examples/demo/target", "tokenizer.json");
    test_copy(&from, "test/data/tokenizers/nfkc", "golden.jsonl");
    test_write_text(&from, "tokenizer_config.json", config);
    snprintf(folder, sizeof folder, "%s", from.path);
    snprintf(first, sizeof first, "%s/first.gguf", from.path);
    for (int i = 0; i < 2; i++) {
        struct specbatch_model *expected = NULL, *got = NULL;
        struct sb_ids ids = {.mem = &test_mem};
        if (i == 1) /* a second time, from beside a file */
            CHECK_OK(specbatch_convert(first, folder, NULL));
        CHECK_OK(specbatch_convert(path, i ? first : folder, NULL));
        CHECK_OK(sb_model_open(&expected, folder, &options));
        CHECK_OK(sb_model_open(&got, path, &options));
        CHECK(same_tokenizer(expected->tokenizer, got->tokenizer, 0, TEXTS) > 100);
        CHECK_OK(sb_tokenizer_encode(got->tokenizer, "a", 1, 0, &ids));
        CHECK(ids.n == 2 && ids.data[0] == ids.data[1]);
        sb_ids_clear(&ids);
        sb_model_release(expected);
        sb_model_release(got);
    }
    test_dir_remove(&from);
}

/* ------------------------------------------------------------------ held against another writer */

static const struct sb_gguf_tensor *find(const struct sb_gguf *gguf, const char *name)
{
    for (int32_t i = 0; i < sb_gguf_n_tensors(gguf); i++)
        if (strcmp(sb_gguf_tensor(gguf, i)->name, name) == 0)
            return sb_gguf_tensor(gguf, i);
    return NULL;
}

static void *read_tensor(const struct sb_gguf *gguf, const struct sb_gguf_tensor *t)
{
    void *bytes = malloc(t->bytes);

    if (!bytes || sb_file_read(sb_gguf_file(gguf, t->file), t->offset, bytes, t->bytes))
        exit(1);
    return bytes;
}

/* Whether both files have the same bytes of a tensor. The divisors of Llama 3 are computed in float
 * in one and in double in the other. */
static int same_tensor(const struct sb_gguf *a, const struct sb_gguf *b,
                       const struct sb_gguf_tensor *t)
{
    const struct sb_gguf_tensor *u = find(b, t->name);
    float *x, *y;
    int same;

    if (!u || strcmp(u->type, t->type) != 0 || u->rank != t->rank || u->bytes != t->bytes ||
        memcmp(u->shape, t->shape, sizeof t->shape) != 0)
        return 0;
    x = read_tensor(a, t);
    y = read_tensor(b, u);
    same = memcmp(x, y, t->bytes) == 0;
    if (strcmp(t->name, "rope_freqs.weight") == 0)
        for (size_t i = same = 1; i < t->bytes / sizeof *x; i++)
            same &= fabsf(x[i] - y[i]) <= 1e-5f * y[i];
    free(x);
    free(y);
    return same;
}

/* The numbers of two values are equal, or their strings or flags. */
static int same_value(const struct sb_gguf_value *a, const struct sb_gguf_value *b)
{
    double x = 0, y = 1;
    int flag, other;

    if (a->type == SB_GGUF_STRING)
        return b->type == SB_GGUF_STRING && a->count == b->count &&
               memcmp(a->at, b->at, a->count) == 0;
    if (a->type == SB_GGUF_ARRAY) /* of flags, a byte each */
        return b->type == SB_GGUF_ARRAY && a->of == SB_GGUF_BOOL && b->of == SB_GGUF_BOOL &&
               a->count == b->count && memcmp(a->at, b->at, a->count) == 0;
    if (sb_gguf_bool(a, &flag))
        return sb_gguf_bool(b, &other) && flag == other;
    return a->type == b->type && sb_gguf_double(a, &x) && sb_gguf_double(b, &y) && x == y;
}

/* The type of a checkpoint's matrices, which all have one. */
static enum sb_dtype stored_type(const char *from)
{
    struct sb_tensors *set = NULL;
    enum sb_dtype dtype = SB_F32;

    if (sb_tensors_open(&set, &test_mem, from) != SPECBATCH_OK ||
        !sb_tensor_dtype(&dtype, sb_tensors_find(set, "model.embed_tokens.weight")))
        exit(1);
    sb_tensors_close(set);
    return dtype;
}

/* longrope's divisors for more tokens than the file's context has. The other writer puts them in,
 * and the converter does not. */
static int is_left_out(const struct sb_gguf_tensor *t)
{
    return strcmp(t->name, "rope_factors_long.weight") == 0;
}

static void files_are_those_of_another_writer(void)
{
    char reference[128];

    snprintf(reference, sizeof reference, "%s/reference.gguf", dir.path);
    for (int i = 0; i < N_MODELS && !sbtest_failed_now; i++) {
        struct gguf_writer w = {.alignment = 32};
        struct sb_gguf *got = NULL, *expected = NULL;
        struct sb_gguf_value a, b;
        const char *key;
        size_t n;
        CHECK(convert_model(&w, models[i], stored_type(models[i]), 0));
        gguf_write(&w, &dir, "reference.gguf");
        CHECK_OK(specbatch_convert(path, models[i], NULL));
        CHECK_OK(sb_gguf_open(&expected, &test_mem, reference));
        CHECK_OK(sb_gguf_open(&got, &test_mem, path));
        CHECK_INT(sb_gguf_n_tensors(got),
                  sb_gguf_n_tensors(expected) - (strstr(models[i], "longrope") != NULL));
        for (int32_t t = 0; t < sb_gguf_n_tensors(expected); t++)
            if (!is_left_out(sb_gguf_tensor(expected, t)) &&
                !same_tensor(expected, got, sb_gguf_tensor(expected, t)))
                FAIL("%s: %s", models[i], sb_gguf_tensor(expected, t)->name);
        for (size_t k = 0; (key = sb_gguf_key(expected, k, &n)) != NULL; k++) {
            char name[128];
            snprintf(name, sizeof name, "%.*s", (int)n, key);
            if (!sb_gguf_get(expected, name, &a) || !sb_gguf_get(got, name, &b) ||
                !same_value(&a, &b))
                FAIL("%s: %s", models[i], name);
        }
        sb_gguf_close(got);
        sb_gguf_close(expected);
    }
    remove(reference);
}

/* Each row of a quantised matrix is what sb_convert_rows makes of it. */
static void matrices_are_quantised_row_by_row(void)
{
    static const struct {
        const char *name, *type[2];
        enum sb_dtype dtype[2];
    } cases[] = {{"token_embd.weight", {"Q8_0", "Q8_0"}, {SB_Q8_0, SB_Q8_0}},
                 {"blk.1.ffn_down.weight", {"Q8_0", "Q4_0"}, {SB_Q8_0, SB_Q4_0}},
                 {"blk.0.attn_k.weight", {"Q8_0", "Q4_0"}, {SB_Q8_0, SB_Q4_0}},
                 {"blk.0.attn_norm.weight", {"F32", "F32"}, {SB_F32, SB_F32}}};
    struct sb_gguf *plain = NULL, *quantised = NULL;
    char other[128];

    snprintf(other, sizeof other, "%s/other.gguf", dir.path);
    CHECK_OK(specbatch_convert(other, "examples/demo/target", NULL));
    CHECK_OK(sb_gguf_open(&plain, &test_mem, other));
    for (int32_t weights = SPECBATCH_WEIGHTS_Q8; weights <= SPECBATCH_WEIGHTS_Q4; weights++) {
        const specbatch_model_options options = options_of(weights);
        CHECK_OK(specbatch_convert(path, "examples/demo/target", &options));
        CHECK_OK(sb_gguf_open(&quantised, &test_mem, path));
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const struct sb_gguf_tensor *from = find(plain, cases[i].name);
            const struct sb_gguf_tensor *t = find(quantised, cases[i].name);
            const enum sb_dtype dtype = cases[i].dtype[weights - SPECBATCH_WEIGHTS_Q8];
            CHECK(from && t);
            CHECK_STR(t->type, cases[i].type[weights - SPECBATCH_WEIGHTS_Q8]);
            char *rows = read_tensor(plain, from), *got = read_tensor(quantised, t);
            const size_t n = (size_t)from->shape[from->rank - 1];
            const size_t row = from->bytes / (from->rank == 2 ? (size_t)from->shape[0] : 1);
            char *expected = malloc(sb_dtype_row_bytes(dtype, n));
            CHECK(expected != NULL);
            for (size_t r = 0; r * row < from->bytes; r++) {
                sb_convert_rows(expected, dtype, rows + r * row, dtype == SB_F32 ? SB_F32 : SB_BF16,
                                1, n);
                CHECK_MEM(got + r * sb_dtype_row_bytes(dtype, n), expected,
                          sb_dtype_row_bytes(dtype, n));
            }
            free(rows);
            free(got);
            free(expected);
        }
        sb_gguf_close(quantised);
    }
    sb_gguf_close(plain);
    remove(other);
}

/* ----------------------------------------------------------------------------- what may fail */

static struct {
    int n_calls, cancel_at, wrong;
    uint64_t done, total;
} seen;

static int32_t progress(void *user, uint64_t done, uint64_t total)
{
    seen.wrong += user != &seen || done < seen.done || done > total;
    seen.done = done;
    seen.total = total;
    return ++seen.n_calls == seen.cancel_at ? 7 : 0;
}

static int32_t convert_until(int cancel_at)
{
    specbatch_model_options options = options_of(SPECBATCH_WEIGHTS_Q8);

    memset(&seen, 0, sizeof seen);
    seen.cancel_at = cancel_at;
    options.progress = progress;
    options.progress_user = &seen;
    return specbatch_convert(path, MODELS "llama_untied_f32_sharded", &options);
}

static void conversions_can_be_cancelled(void)
{
    int n_calls;

    remove(path);
    CHECK_OK(convert_until(0));
    CHECK(seen.n_calls > 10 && seen.wrong == 0 && seen.total > 100000 && seen.done == seen.total);
    n_calls = seen.n_calls;
    remove(path);
    for (int at = 1; at <= n_calls; at++) {
        CHECK_ERROR(convert_until(at), SPECBATCH_E_CANCELLED, "converting was cancelled after");
        CHECK_INT(seen.n_calls, at);
        CHECK_INT(test_dir_files(&dir), 0);
    }
}

/* The limit of a file's size stands for a full disk. A file that was there stays as it was. */
static void a_full_disk_leaves_nothing(void)
{
    struct rlimit before, limit;
    int32_t rc = SPECBATCH_E_IO;
    size_t n = 0;
    char *old;

    test_write_text(&dir, "model.gguf", "old");
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_IGN);
    limit = before;
    /* The test has no output while it is limited. */
    for (rlim_t size = 0; size < 1200000; size += size < 4000 ? 400 : 99991) {
        limit.rlim_cur = size;
        setrlimit(RLIMIT_FSIZE, &limit);
        rc = specbatch_convert(path, MODELS "llama_untied_f32_sharded", NULL);
        setrlimit(RLIMIT_FSIZE, &before);
        if (rc == SPECBATCH_OK)
            break;
        CHECK_INT(rc, SPECBATCH_E_IO);
        CHECK(strstr(specbatch_last_error(), "model.gguf: cannot write: File too large") != NULL);
        CHECK(strncmp(specbatch_last_error(), dir.path, strlen(dir.path)) == 0);
        CHECK_INT(test_dir_files(&dir), 1);
        CHECK((old = test_read(dir.path, "model.gguf", &n)) != NULL);
        CHECK_STR(old, "old");
        free(old);
    }
    signal(SIGXFSZ, SIG_DFL);
    CHECK_OK(rc);
    remove(path);
}

/* Every allocation fails in turn. */
static void no_memory_leaves_nothing(void)
{
    struct test_memory memory = {0, 0, 0};
    specbatch_model_options options = options_of(SPECBATCH_WEIGHTS_Q4);
    int32_t rc = SPECBATCH_E_NOMEM;

    options.alloc = test_memory_alloc;
    options.free = test_memory_free;
    options.alloc_user = &memory;
    for (int64_t at = 0; rc != SPECBATCH_OK; at++) {
        memory = (struct test_memory){0, at, 0};
        rc = specbatch_convert(path, MODELS "emoji", &options);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
        CHECK_INT(memory.live, 0);
        CHECK_INT(test_dir_files(&dir), rc == SPECBATCH_OK);
        CHECK(at < 10000);
    }
    remove(path);
}

/* Writes a checkpoint whose config.json has one string replaced. */
static int32_t convert_changed(const char *model, const char *old, const char *new)
{
    const struct test_dir from = test_dir_make();
    size_t n = 0;
    char *text, *at, *changed = malloc(1 << 16);
    int32_t rc;

    test_copy(&from, model, "config.json");
    text = test_read(model, "config.json", &n);
    at = text ? strstr(text, old) : NULL;
    if (!at || !changed)
        exit(1);
    snprintf(changed, 1 << 16, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    test_write_text(&from, "config.json", changed);
    rc = specbatch_convert(path, from.path, NULL);
    test_dir_remove(&from);
    free(text);
    free(changed);
    return rc;
}

/* A file has places for three ids that end a text. */
static void the_first_ends_are_in_the_file(void)
{
    static const int32_t expected[] = {0, 5, 7};
    const struct sb_log silence = {NULL, NULL};
    struct sb_gguf *gguf = NULL;
    struct sb_config config;

    CHECK_OK(convert_changed(MODELS "emoji", "\"eos_token_id\": 0",
                             "\"eos_token_id\": [0, 5, 7, 9], \"bos_token_id\": 3"));
    CHECK_OK(sb_gguf_open(&gguf, &test_mem, path));
    CHECK_OK(sb_gguf_config(&config, &silence, gguf));
    CHECK_INT(config.n_eos, 3);
    CHECK_MEM(config.eos, expected, sizeof expected);
    CHECK_INT(config.bos, 3);
    sb_gguf_close(gguf);
    remove(path);
}

/* A folder need not have a chat template, nor a machine CUDA. */
static void a_success_leaves_the_last_error(void)
{
    specbatch_model *model = NULL;
    char line[SPECBATCH_ERROR_MAX];

    CHECK_INT(specbatch_policy_by_name("none"), SPECBATCH_E_NOT_FOUND);
    snprintf(line, sizeof line, "%s", specbatch_last_error());
    CHECK_OK(specbatch_convert(path, models[0], NULL));
    CHECK_STR(specbatch_last_error(), line);
    CHECK_OK(specbatch_model_open(&model, models[0], NULL));
    CHECK_STR(specbatch_last_error(), line);
    specbatch_model_close(model);
    specbatch_has("cuda");
    CHECK_STR(specbatch_last_error(), line);
}

static void refuses_what_cannot_be_converted(void)
{
    specbatch_model_options options = options_of(3);

    CHECK_ERROR(specbatch_convert(NULL, models[0], NULL), SPECBATCH_E_INVALID, "to");
    CHECK_ERROR(specbatch_convert(path, NULL, NULL), SPECBATCH_E_INVALID, "from");
    CHECK_ERROR(specbatch_convert(path, models[0], &options), SPECBATCH_E_INVALID, "weights");
    CHECK_ERROR(specbatch_convert(dir.path, models[0], NULL), SPECBATCH_E_INVALID,
                "is a directory");
    CHECK_ERROR(specbatch_convert("", models[0], NULL), SPECBATCH_E_INVALID, "GGUF file is empty");
    CHECK_ERROR(specbatch_convert(path, "", NULL), SPECBATCH_E_INVALID, "model is empty");
    CHECK_ERROR(specbatch_convert("build/none/x.gguf", models[0], NULL), SPECBATCH_E_IO,
                "build/none/x.gguf: cannot create");
    CHECK_ERROR(convert_changed(MODELS "qwen3_yarn_f32", "\"factor\"",
                                "\"attention_factor\": 1.5, \"factor\""),
                SPECBATCH_E_UNSUPPORTED, "attention_factor 1.5 cannot be said in a GGUF file");
    CHECK_ERROR(convert_changed(MODELS "qwen3_moe_bf16", "\"norm_topk_prob\": true",
                                "\"norm_topk_prob\": false"),
                SPECBATCH_E_UNSUPPORTED, "norm_topk_prob 0 cannot be said in a GGUF file");
    CHECK_ERROR(convert_changed(MODELS "smollm3_bf16", "\"no_rope_layers\": [\n    1",
                                "\"no_rope_layers\": [\n    0"),
                SPECBATCH_E_UNSUPPORTED, "no_rope_layers cannot be said in a GGUF file");
    CHECK_ERROR(convert_changed(MODELS "qwen2_tied_f32",
                                "\"intermediate_size\": ", "\"intermediate_size\": 1"),
                SPECBATCH_E_FORMAT, "config.json calls for");
    CHECK_INT(test_dir_files(&dir), 0);
}

/* -------------------------------------------------------------------- safetensors files */

/* Converts to safetensors. A failure that leaves something behind is another one, E_INTERNAL. */
static int32_t to_safetensors(const char *from, const specbatch_model_options *options)
{
    char file[128];
    int32_t rc;

    snprintf(file, sizeof file, "%s/model.safetensors", dir.path);
    remove(file);
    rc = specbatch_convert(file, from, options);
    if (test_dir_files(&dir) != (rc == SPECBATCH_OK))
        return SPECBATCH_E_INTERNAL;
    return rc;
}

/* A folder with that file has the bits of the one that it was made from. */
static void safetensors_files_are_the_same_model(void)
{
    for (int i = 0; i < N_MODELS && !sbtest_failed_now; i++) {
        struct sb_tensors *set = NULL;
        specbatch_model *before = NULL, *after = NULL;
        const struct test_dir folder = test_dir_make();
        char *bytes;
        size_t n = 0;
        if (strstr(models[i], "gpt_oss")) {
            CHECK_ERROR(to_safetensors(models[i], NULL), SPECBATCH_E_UNSUPPORTED,
                        "safetensors of gpt_oss are not written; convert it to a GGUF file");
            test_dir_remove(&folder);
            continue;
        }
        CHECK_OK(to_safetensors(models[i], NULL));
        test_copy(&folder, dir.path, NULL);
        bytes = test_read(models[i], "config.json", &n);
        CHECK(bytes != NULL);
        test_write(&folder, "config.json", bytes, n);
        free(bytes);
        CHECK_OK(specbatch_model_open(&before, models[i], NULL));
        CHECK_OK(specbatch_model_open(&after, folder.path, NULL));
        CHECK_STR(specbatch_model_digest(after), specbatch_model_digest(before));
        CHECK_OK(sb_tensors_open(&set, &test_mem, folder.path));
        for (int32_t t = 0; t < sb_tensors_count(set); t++)
            CHECK(sb_tensors_at(set, t)->offset %
                      (strcmp(sb_tensors_at(set, t)->type, "F32") == 0 ? 4 : 2) ==
                  0);
        sb_tensors_close(set);
        specbatch_model_close(before);
        specbatch_model_close(after);
        test_dir_remove(&folder);
    }
}

static void safetensors_files_are_whole_or_not_there(void)
{
    struct test_memory memory = {0, 0, 0};
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    int32_t rc = SPECBATCH_E_NOMEM;
    int n_calls;

    options.alloc = test_memory_alloc;
    options.free = test_memory_free;
    options.alloc_user = &memory;
    for (int64_t at = 0; rc != SPECBATCH_OK; at++) {
        memory = (struct test_memory){0, at, 0};
        rc = to_safetensors(MODELS "emoji", &options);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
        CHECK_INT(memory.live, 0);
        CHECK(at < 10000);
    }
    options = options_of(SPECBATCH_WEIGHTS_AUTO);
    options.progress = progress;
    options.progress_user = &seen;
    memset(&seen, 0, sizeof seen);
    CHECK_OK(to_safetensors(MODELS "emoji", &options));
    CHECK(seen.n_calls > 1 && seen.wrong == 0 && seen.done == seen.total);
    n_calls = seen.n_calls;
    for (int at = 1; at <= n_calls; at++) {
        memset(&seen, 0, sizeof seen);
        seen.cancel_at = at;
        CHECK_ERROR(to_safetensors(MODELS "emoji", &options), SPECBATCH_E_CANCELLED,
                    "converting was cancelled after");
    }
    CHECK_ERROR(specbatch_convert("build/none/x.safetensors", models[0], NULL), SPECBATCH_E_IO,
                "build/none/x.safetensors: cannot create");
    options = options_of(SPECBATCH_WEIGHTS_Q8);
    CHECK_ERROR(to_safetensors(MODELS "emoji", &options), SPECBATCH_E_UNSUPPORTED,
                "no quantised types");
}

TEST_BEGIN
dir = test_dir_make();
snprintf(path, sizeof path, "%s/model.gguf", dir.path);
RUN(files_give_the_same_bits);
RUN(quantised_files_give_the_same_bits);
RUN(whole_blocks_are_quantised_in_the_file);
RUN(tokenizers_are_the_same);
RUN(other_tokenizers_go_in_whole);
RUN(files_beside_a_tokenizer_go_in);
RUN(files_are_those_of_another_writer);
RUN(matrices_are_quantised_row_by_row);
RUN(conversions_can_be_cancelled);
RUN(a_full_disk_leaves_nothing);
RUN(no_memory_leaves_nothing);
RUN(a_success_leaves_the_last_error);
RUN(the_first_ends_are_in_the_file);
RUN(refuses_what_cannot_be_converted);
RUN(safetensors_files_are_the_same_model);
RUN(safetensors_files_are_whole_or_not_there);
test_dir_remove(&dir);
TEST_END
