/* Tables of n-grams: what they propose is what a count of the text by hand gives, and files that
 * are damaged, forged or of another tokenizer are refused. That a table cannot change a token is
 * shown by test/contract/test_contract.c. */
#include "sbtest.h"

#include "engine/draft.h"
#include "engine/table.h"
#include "support/drafts.h"
#include "support/model_files.h"
#include "support/trace.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"

enum { N = 400 };

static specbatch_model *target;
static char path[80];
static int32_t text[N];

static int below(uint64_t *random, int n)
{
    return (int)(trace_random(random) % (uint64_t)n);
}

/* What most often follows the n tokens before `end` in the text: the lowest of equals; -1: those
 * tokens occur less often than min_count. */
static int32_t counted(const int32_t *end, int32_t n, int32_t min_count)
{
    int32_t count[16] = {0}, best = 0, all = 0;

    for (int32_t i = n; i < N; i++)
        if (memcmp(text + i - n, end - n, (size_t)n * sizeof *text) == 0) {
            count[text[i]]++;
            all++;
        }
    for (int32_t id = 1; id < 16; id++)
        if (count[id] > count[best])
            best = id;
    return all < min_count ? -1 : best;
}

/* The longest context that occurs often enough decides. */
static int32_t naive_next(const int32_t *end, int32_t length, const specbatch_table_options *o)
{
    int32_t next = -1;

    for (int32_t n = o->max_match < length ? o->max_match : length; n >= o->min_match && next < 0;
         n--)
        next = counted(end, n, o->min_count);
    return next;
}

static void test_a_table_says_what_counting_says(void)
{
    uint64_t random = 7;

    for (int i = 0; i < 40; i++) {
        struct sb_ngram_table made = {.n_words = 0}, read = {.n_words = 0};
        specbatch_table_options options = SPECBATCH_TABLE_OPTIONS_INIT;
        const int32_t n_words = 2 + below(&random, 14);
        for (int32_t j = 0; j < N; j++)
            text[j] = below(&random, 3) ? below(&random, n_words)
                                        : text[j > 9 ? j - 9 : 0] % n_words;
        options.max_match = 1 + below(&random, SB_TABLE_MATCH);
        options.min_match = 1 + below(&random, options.max_match);
        options.min_count = 1 + below(&random, 4);
        CHECK_OK(sb_ngram_table_count(&made, text, N, &options));
        CHECK_OK(sb_ngram_table_write(&made, path));
        CHECK_OK(sb_ngram_table_read(&read, path));
        CHECK_INT(read.n_words, made.n_words);
        for (int32_t end = 0; end <= N; end++)
            CHECK_INT(sb_ngram_table_next(&read, text + end, end),
                      naive_next(text + end, end, &options));
        sb_ngram_table_clear(&made);
        sb_ngram_table_clear(&read);
    }
}

/* A text that says a cycle of tokens over and over, as a table in the file. */
static int32_t make_cycle(int32_t length)
{
    for (int32_t i = 0; i < N; i++)
        text[i] = 5 + i % length;
    return specbatch_table_make(path, target, text, N, NULL);
}

/* Proposals follow each other through the table, for as long as it says something. */
static void test_proposals_follow_each_other(void)
{
    const struct sb_mem mem = {NULL, NULL, NULL};
    const struct sb_draft_limits limits = {.batch = 2, .draft_len = 6, .max_len = 99};
    int32_t known[] = {100, 5, 6}, strange[] = {5, 6, 100}, out[14];
    struct sb_seq seqs[] = {{.tokens = known, .n_tokens = 3}, {.tokens = strange, .n_tokens = 3}};
    struct sb_round_row rows[] = {{.seq = &seqs[0], .n_draft = 6}, {.seq = &seqs[1], .n_draft = 6}};
    struct sb_round round = {.rows = rows, .n_rows = 2, .tokens = out, .stride = 7};
    specbatch_draft *source;
    struct sb_draft *draft;

    CHECK_OK(make_cycle(7));
    CHECK_OK(specbatch_draft_from_table(&source, path));
    CHECK_OK(source->ops->create(&draft, source, NULL, &mem, &limits));
    CHECK_OK(draft->ops->prepare(draft, &round));
    CHECK_INT(rows[0].n_draft, 6);
    CHECK_INT(rows[1].n_draft, 0);
    CHECK_INT(round.n_steps, 6);
    for (int32_t i = 0; i < 6; i++)
        CHECK_INT(out[1 + i], 5 + (2 + i) % 7);
    sb_draft_free(draft);
    specbatch_draft_release(source);
}

static void test_bad_arguments_are_refused(void)
{
    specbatch_table_options options = SPECBATCH_TABLE_OPTIONS_INIT;
    specbatch_draft *draft = NULL;
    const int32_t wrong[] = {5, specbatch_model_vocab_size(target)}, negative = -1;

    CHECK_ERROR(specbatch_table_make(path, target, wrong, 2, NULL), SPECBATCH_E_TOKEN, "id 1");
    CHECK_ERROR(specbatch_table_make(path, target, &negative, 1, NULL), SPECBATCH_E_TOKEN, "id 0");
    CHECK_ERROR(specbatch_table_make(path, target, wrong, 0, NULL), SPECBATCH_E_INVALID, "n_ids");
    CHECK_ERROR(specbatch_table_make(NULL, target, wrong, 1, NULL), SPECBATCH_E_INVALID, "to");
    CHECK_ERROR(specbatch_table_make(path, NULL, wrong, 1, NULL), SPECBATCH_E_INVALID, "model");
    CHECK_ERROR(specbatch_table_make(path, target, NULL, 1, NULL), SPECBATCH_E_INVALID, "ids");
    CHECK_ERROR(specbatch_table_make("no/such/folder", target, wrong, 1, NULL), SPECBATCH_E_IO,
                "no/such/folder: cannot create");
    options.max_match = 9;
    CHECK_ERROR(specbatch_table_make(path, target, wrong, 1, &options), SPECBATCH_E_INVALID,
                "max_match");
    options.max_match = 0;
    options.min_match = 5;
    options.max_match = 4;
    CHECK_ERROR(specbatch_table_make(path, target, wrong, 1, &options), SPECBATCH_E_INVALID,
                "min_match");
    options.min_match = 0;
    options.min_count = -1;
    CHECK_ERROR(specbatch_table_make(path, target, wrong, 1, &options), SPECBATCH_E_INVALID,
                "min_count");
    CHECK_ERROR(specbatch_draft_from_table(&draft, "no/such/file"), SPECBATCH_E_IO,
                "no/such/file: cannot open");
    CHECK_ERROR(specbatch_draft_from_table(NULL, path), SPECBATCH_E_INVALID, "out");
    CHECK_ERROR(specbatch_draft_from_table(&draft, NULL), SPECBATCH_E_INVALID, "path");
    CHECK(draft == NULL);
}

/* The file of the cycle with one byte changed, or with its end cut off. */
static int32_t open_changed(long at, long cut)
{
    static unsigned char bytes[1 << 16];
    FILE *file = fopen(path, "rb");
    specbatch_draft *draft = NULL;
    size_t n;
    int32_t rc;

    n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    if (at >= 0)
        bytes[at] ^= 0x41;
    file = fopen(path, "wb");
    fwrite(bytes, 1, n - (size_t)cut, file);
    fclose(file);
    rc = specbatch_draft_from_table(&draft, path);
    specbatch_draft_release(draft);
    return rc;
}

static void test_damaged_files_are_refused(void)
{
    long size;

    CHECK_OK(make_cycle(3));
    FILE *file = fopen(path, "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    size = ftell(file);
    fclose(file);
    CHECK_OK(open_changed(-1, 0));
    for (long at = 0; at < size; at++) {
        const int32_t rc = make_cycle(3) ? SPECBATCH_OK : open_changed(at, 0);
        CHECK(rc == SPECBATCH_E_FORMAT || (at >= 12 && at < 16 && rc == SPECBATCH_E_UNSUPPORTED));
    }
    for (long cut = 1; cut <= size; cut += 7) {
        CHECK_OK(make_cycle(3));
        CHECK_ERROR(open_changed(-1, cut), SPECBATCH_E_FORMAT, "");
    }
}

/* Files whose checks are right, and whose entries are not. */
static void test_forged_entries_are_refused(void)
{
    static const int32_t wrong[][4] = {
        {7, 1, 6, 1}, {6, 1, 6, 2}, {5, 9, 6, 1}, {5, 1, 9, 1}, {5, -1, 6, 1}};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int32_t words[4];
        struct sb_ngram_table table = {.n_ids = 9, .max_match = 1, .words = words, .n_words = 4};
        struct sb_ngram_table read = {.n_words = 0};
        table.n[1] = 2;
        memcpy(words, wrong[i], sizeof words);
        CHECK_OK(sb_ngram_table_write(&table, path));
        CHECK_ERROR(sb_ngram_table_read(&read, path), SPECBATCH_E_FORMAT, "entries");
        sb_ngram_table_clear(&read);
    }
}

static void test_a_table_of_another_tokenizer_is_refused(void)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    struct sb_ngram_table table = {.n_words = 0};
    specbatch_model *demo = NULL;
    specbatch_draft *draft = NULL;
    uint64_t bytes;

    CHECK_OK(specbatch_model_open(&demo, "examples/demo/target", NULL));
    for (int32_t i = 0; i < N; i++)
        text[i] = 300 + i % 5;
    CHECK_OK(specbatch_table_make(path, demo, text, N, NULL));
    CHECK_OK(specbatch_draft_from_table(&draft, path));
    CHECK_OK(specbatch_pool_bytes(&bytes, demo, draft, &options));
    specbatch_draft_release(draft);
    CHECK_OK(sb_ngram_table_read(&table, path));
    table.digest[0] ^= 1;
    CHECK_OK(sb_ngram_table_write(&table, path));
    CHECK_OK(specbatch_draft_from_table(&draft, path));
    CHECK_ERROR(specbatch_pool_bytes(&bytes, demo, draft, &options), SPECBATCH_E_VOCAB,
                "tokenizer");
    specbatch_draft_release(draft);
    table.digest[0] ^= 1;
    table.n_ids = specbatch_model_vocab_size(demo) + 1;
    CHECK_OK(sb_ngram_table_write(&table, path));
    CHECK_OK(specbatch_draft_from_table(&draft, path));
    CHECK_ERROR(specbatch_pool_bytes(&bytes, demo, draft, &options), SPECBATCH_E_VOCAB,
                "vocab_size");
    specbatch_draft_release(draft);
    sb_ngram_table_clear(&table);
    specbatch_model_close(demo);
}

TEST_BEGIN
const struct test_dir folder = test_dir_make();
snprintf(path, sizeof path, "%s/table", folder.path);
if (specbatch_model_open(&target, TARGET, NULL)) {
    printf("FAIL the model does not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_a_table_says_what_counting_says);
RUN(test_proposals_follow_each_other);
RUN(test_bad_arguments_are_refused);
RUN(test_damaged_files_are_refused);
RUN(test_forged_entries_are_refused);
RUN(test_a_table_of_another_tokenizer_is_refused);
test_dir_remove(&folder);
specbatch_model_close(target);
TEST_END
