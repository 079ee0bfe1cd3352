/*
 * Session files, loaded into a small pool. The first byte says what the file is:
 *
 *     0   the rest of the input
 *     1   a session that a pool has saved
 *     2   a forged one: numbers of the head, texts, ids and blocks are the input's where it asks
 * for that, and those of a good session else; all checks of the file are right
 *
 * In 1 and 2, what is left of the input then changes bytes of the file and cuts it off.
 *
 * What is checked: a file is refused with a status that the header allows, and then the pool is as
 * it was; or its ids are given back, and a request that begins with them runs to its end. A changed
 * file is refused, and the saved one is not: after that the answer is plain decoding's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz/support/fuzz.h"
#include "pool/pool.h"
#include "pool/session_file.h"
#include "support/pool_check.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"
#define DRAFT TARGET ".draft"

enum {
    MAX_LEN = 96,
    N_PROMPT = 40,
    N_TALK = 68,       /* ids of the saved session, two blocks and a rest */
    N_IDS_MAX = 200,   /* of a forged one */
    BLOCK_MAX = 70000, /* bytes; a longer block of a forged file is left out */
    FILE_MAX = 1 << 19,
    MEMORY = 16 << 20
};
static const char name[] = "session";

/* ------------------------------------------------------------------ what is good */

static specbatch_model *target;
static specbatch_draft *draft;
static char path[512];
static int32_t talk[N_TALK];
static uint8_t *saved;
static size_t n_saved;

static specbatch_pool *create_pool(void)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;

    options.batch = options.n_threads = 1;
    options.draft_len = 2;
    options.max_len = MAX_LEN;
    options.prefix_bytes = 1 << 18; /* four blocks */
    options.alloc = fuzz_mem.alloc;
    options.free = fuzz_mem.free;
    options.alloc_user = fuzz_mem.user;
    FUZZ_CHECK(specbatch_pool_create(&pool, target, draft, &options) == SPECBATCH_OK);
    return pool;
}

/* Runs a request of these ids to its end. Returns its result, which is freed by the caller. */
static specbatch_result *answer(specbatch_pool *pool, const int32_t *ids, size_t n, int32_t max_new,
                                specbatch_request *request)
{
    specbatch_result *result = NULL;

    *request = (specbatch_request)SPECBATCH_REQUEST_INIT;
    request->ids = ids;
    request->n_ids = n;
    request->max_new = max_new;
    request->flags = SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS;
    FUZZ_CHECK(specbatch_pool_submit(pool, request, NULL) == SPECBATCH_OK);
    FUZZ_CHECK(specbatch_pool_run(pool) == SPECBATCH_OK);
    FUZZ_CHECK(specbatch_pool_collect(pool, &result) == SPECBATCH_OK);
    return result;
}

/* Reads the file into a block of its own. */
static uint8_t *read_file(size_t *n)
{
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = malloc(FILE_MAX);

    FUZZ_CHECK(f != NULL && bytes != NULL);
    *n = fread(bytes, 1, FILE_MAX, f);
    FUZZ_CHECK(*n < FILE_MAX);
    fclose(f);
    return bytes;
}

/* Opens the models and saves a session, once for the whole process. */
static void prepare(void)
{
    specbatch_model *small = NULL;
    specbatch_result *result;
    specbatch_request request;
    specbatch_pool *pool;
    size_t kept = 0;

    FUZZ_CHECK(specbatch_model_open(&target, TARGET, NULL) == SPECBATCH_OK);
    FUZZ_CHECK(specbatch_model_open(&small, DRAFT, NULL) == SPECBATCH_OK);
    FUZZ_CHECK(specbatch_draft_from_model(&draft, small) == SPECBATCH_OK);
    specbatch_model_close(small);
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    for (int32_t i = 0; i < N_PROMPT; i++)
        talk[i] = 3 + 11 * i % 500;
    pool = create_pool();
    result = answer(pool, talk, N_PROMPT, N_TALK - N_PROMPT, &request);
    memcpy(talk + N_PROMPT, specbatch_result_tokens(result, NULL),
           (N_TALK - N_PROMPT) * sizeof *talk);
    specbatch_result_free(result);
    FUZZ_CHECK(specbatch_pool_save_session(pool, talk, N_TALK, path, &kept) == SPECBATCH_OK);
    FUZZ_CHECK(kept == 64);
    specbatch_pool_free(pool);
    saved = read_file(&n_saved);
}

/* ------------------------------------------------------------------------- files */

/* The number itself, or what the input has instead of it. */
static int32_t number(struct fuzz_input *input, int32_t good)
{
    const uint8_t how = fuzz_byte(input);

    if (how % 8 == 7)
        return (int32_t)fuzz_number(input, 4);
    return how % 8 == 6 ? (int32_t)fuzz_byte(input) : good;
}

static void change_text(struct fuzz_input *input, char *text, size_t size)
{
    const uint8_t how = fuzz_byte(input);

    if (how % 8 == 7)
        memset(text, how, size);
    else if (how % 8 == 6)
        text[how] = 'x';
}

static void forge_model(struct fuzz_input *input, struct sb_session_model *model,
                        const struct specbatch_model *good)
{
    memcpy(model->digest, good->digest, sizeof model->digest);
    memcpy(model->fingerprint, good->fingerprint, sizeof model->fingerprint);
    change_text(input, model->digest, sizeof model->digest - 1);
    change_text(input, model->fingerprint, sizeof model->fingerprint - 1);
    model->layers = number(input, good->config.layers);
    model->kv_heads = number(input, good->config.kv_heads);
    model->head_dim = number(input, good->config.head_dim);
    model->element_bytes = number(input, 4);
}

/* Blocks that are small enough, in the number that the head says; all bytes of one are equal. */
static void forge_blocks(struct fuzz_input *input, struct sb_checked_out *out,
                         const struct sb_session_head *head)
{
    static uint8_t columns[BLOCK_MAX];

    for (int32_t i = 0; i < head->n_blocks && i < 4; i++) {
        size_t bytes = 0, more = 0;
        if (!sb_session_block_bytes(head, &head->target, &bytes) ||
            (i < head->n_drafted && !sb_session_block_bytes(head, &head->draft, &more)) ||
            bytes > BLOCK_MAX || more > BLOCK_MAX - bytes)
            return;
        memset(columns, fuzz_byte(input), bytes + more);
        FUZZ_CHECK(sb_session_write_block(out, columns, bytes + more) == SPECBATCH_OK);
    }
}

static void forge(struct fuzz_input *input)
{
    struct sb_session_head head = {.block_columns = number(input, SB_PREFIX_BLOCK)};
    struct sb_checked_out out;
    static int32_t ids[N_IDS_MAX];
    int32_t n = 1 + (int32_t)fuzz_below(input, N_IDS_MAX);

    for (int32_t i = 0; i < n; i++)
        ids[i] = number(input, i % 7);
    head.n_ids = n;
    head.span = number(input, 0);
    head.n_spanned = number(input, 0);
    head.n_blocks = number(input, n / SB_PREFIX_BLOCK);
    head.n_drafted = number(input, head.n_blocks);
    forge_model(input, &head.target, target);
    if (head.n_drafted != 0)
        forge_model(input, &head.draft, target);
    FUZZ_CHECK(sb_session_create(&out, path, &head, ids) == SPECBATCH_OK);
    forge_blocks(input, &out, &head);
    FUZZ_CHECK(sb_new_file_keep(&out.file) == SPECBATCH_OK);
}

/* Changes and shortens the file as the input says. */
static void change_bytes(struct fuzz_input *input)
{
    FILE *f = fopen(path, "r+b");
    long size;

    FUZZ_CHECK(f != NULL && fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) > 0);
    while (input->n > 0) {
        const long at = (long)fuzz_number(input, 3) % size;
        const int flip = fuzz_byte(input);
        int byte;
        if (flip == 0) {
            FUZZ_CHECK(fflush(f) == 0 && ftruncate(fileno(f), at) == 0);
            break;
        }
        FUZZ_CHECK(fseek(f, at, SEEK_SET) == 0 && (byte = fgetc(f)) != EOF);
        FUZZ_CHECK(fseek(f, at, SEEK_SET) == 0 && fputc(byte ^ flip, f) != EOF);
    }
    fclose(f);
}

/* The same. Returns 1 if the file is now another one. */
static int damage(struct fuzz_input *input)
{
    size_t n_before, n_after;
    uint8_t *before = read_file(&n_before), *after;
    int changed;

    change_bytes(input);
    after = read_file(&n_after);
    changed = n_after != n_before || memcmp(before, after, n_after) != 0;
    free(before);
    free(after);
    return changed;
}

/* --------------------------------------------------------------------------- run */

/* After a file was refused. */
static void check_unchanged(specbatch_pool *pool, int32_t rc)
{
    uint64_t blocks = 1;

    FUZZ_CHECK(rc == SPECBATCH_E_FORMAT || rc == SPECBATCH_E_UNSUPPORTED ||
               rc == SPECBATCH_E_INVALID || rc == SPECBATCH_E_BUFFER);
    FUZZ_CHECK(specbatch_pool_stat(pool, "prefix_blocks", &blocks) == SPECBATCH_OK && blocks == 0);
}

static void check_loaded(specbatch_pool *pool, const int32_t *ids, size_t n, int is_saved)
{
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request request;
    specbatch_result *result;

    if (is_saved)
        FUZZ_CHECK(n == N_TALK && memcmp(ids, talk, sizeof talk) == 0);
    result = answer(pool, ids, n < MAX_LEN - 4 ? n : MAX_LEN - 4, 4, &request);
    options.n_threads = 1;
    FUZZ_CHECK(specbatch_audit(target, &options, &request, result, &report) == SPECBATCH_OK);
    FUZZ_CHECK(report.equal || !is_saved);
    specbatch_result_free(result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    const uint8_t mode = fuzz_byte(&input) % 3;
    int32_t ids[N_IDS_MAX], rc;
    specbatch_pool *pool;
    int damaged = 0;
    size_t n = 0;

    if (!target)
        prepare();
    fuzz_remove_files();
    if (mode == 2)
        forge(&input);
    else
        fuzz_write(name, mode == 1 ? saved : input.at, mode == 1 ? n_saved : input.n);
    if (mode != 0)
        damaged = damage(&input);
    pool = create_pool();
    rc = fuzz_status(specbatch_pool_load_session(pool, path, ids, N_IDS_MAX, &n));
    FUZZ_CHECK(pool_check(pool) == SPECBATCH_OK);
    FUZZ_CHECK(rc != SPECBATCH_OK || !damaged);
    FUZZ_CHECK(rc == SPECBATCH_OK || mode != 1 || damaged);
    if (rc == SPECBATCH_OK)
        check_loaded(pool, ids, n, mode == 1);
    else
        check_unchanged(pool, rc);
    specbatch_pool_free(pool);
    fuzz_check_memory(0, MEMORY);
    return 0;
}
