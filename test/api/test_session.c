/*
 * Sessions through the public API: a conversation is saved and loaded again, in the same pool and
 * in pools that differ in everything that must not matter, and what follows is compared with a pool
 * that keeps nothing, bit by bit. And what happens when the disk is full, memory is short, or the
 * device fails.
 */
#include <signal.h>
#include <sys/resource.h>

#include "status.h"
#include "support/failalloc.h"
#include "support/talk.h"

/* ---------------------------------------------------------------------- going on */

static void test_the_same_pool_goes_on(void)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool;
    size_t kept = 0;

    CHECK_OK(hold_talk(&pool, target, draft, &options));
    CHECK_OK(specbatch_pool_save_session(pool, talk, N_TALK, path, &kept));
    CHECK_INT(kept, N_BLOCKS * 32);
    CHECK_INT(test_dir_files(&dir), 1);
    CHECK_INT(counter(pool, "prefix_blocks"), N_BLOCKS);
    CHECK_OK(load_talk(pool)); /* all of it is there already */
    CHECK_INT(counter(pool, "prefix_blocks"), N_BLOCKS);
    CHECK(goes_on(pool, N_BLOCKS * 32));
    specbatch_pool_free(pool);
}

static void test_any_pool_goes_on(void)
{
    CHECK_OK(save_talk(target, draft));
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++)
        for (int32_t variant = place_is_small() ? 2 : 0; variant < 3; variant++) {
            specbatch_pool_options options = keeping_options(policy);
            specbatch_pool *pool;
            options.batch = 1 + 2 * variant;
            options.n_threads = 1 + variant;
            options.draft_len = variant == 0 ? -1 : 2 * variant;
            options.prefill_chunk = variant == 1 ? 7 : 0;
            options.flags = variant == 2 ? 0 : SPECBATCH_POOL_FIXED_K;
            CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
            CHECK_OK(load_talk(pool));
            CHECK_INT(counter(pool, "prefix_blocks"), N_BLOCKS);
            CHECK(goes_on(pool, N_BLOCKS * 32));
            specbatch_pool_free(pool);
        }
}

static void test_any_simd_level_goes_on(void)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    int n = 0;

    if (place_is_cuda())
        SKIP("a GPU has no SIMD levels");
    CHECK_OK(save_talk(target, draft));
    for (int32_t simd = SPECBATCH_SIMD_SCALAR; simd <= SPECBATCH_SIMD_AVX512; simd++) {
        specbatch_model_options model_options = place_options();
        specbatch_model *model = NULL;
        specbatch_pool *pool;
        model_options.simd = simd;
        if (specbatch_model_open(&model, TARGET, &model_options) == SPECBATCH_E_UNSUPPORTED)
            continue;
        CHECK(model != NULL);
        CHECK_OK(specbatch_pool_create(&pool, model, NULL, &options));
        CHECK_OK(load_talk(pool));
        CHECK(goes_on(pool, N_BLOCKS * 32));
        specbatch_pool_free(pool);
        specbatch_model_close(model);
        n++;
    }
    CHECK(n > 0);
}

/* The second answer of a pool that loads the session, which has `with` for a draft. Returns how
 * many blocks have the draft's columns too; -1: something failed. */
static int drafted_blocks(specbatch_draft *with)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool = NULL;
    int n = -1;

    if (specbatch_pool_create(&pool, target, with, &options) == SPECBATCH_OK &&
        load_talk(pool) == SPECBATCH_OK) {
        n = 0;
        for (int32_t i = 0; i < pool->prefix.tree.n_blocks; i++)
            n += pool->prefix.tree.nodes[i].drafted;
        if (!goes_on(pool, N_BLOCKS * 32))
            n = -1;
    }
    specbatch_pool_free(pool);
    return n;
}

static void test_the_columns_of_a_draft_are_its_own(void)
{
    const specbatch_model_options model_options = place_options();
    specbatch_model *same = NULL, *other = NULL;
    specbatch_draft *twin, *self;

    CHECK_OK(save_talk(target, draft));
    CHECK_OK(specbatch_model_open(&same, DRAFT, &model_options));
    CHECK((twin = draft_of(same)) != NULL && (self = draft_of(target)) != NULL);
    CHECK_INT(drafted_blocks(draft), N_BLOCKS);
    CHECK_INT(drafted_blocks(twin), N_BLOCKS); /* the same checkpoint, opened twice */
    CHECK_INT(drafted_blocks(self), 0);        /* another one of the same shape */
    CHECK_INT(drafted_blocks(NULL), 0);
    /* What was saved without a draft is loaded by a pool that has one. */
    CHECK_OK(save_talk(target, NULL));
    CHECK_INT(drafted_blocks(draft), 0);
    specbatch_draft_release(twin);
    specbatch_draft_release(self);
    specbatch_model_close(same);
    specbatch_model_close(other);
}

static void test_what_fits_is_loaded(void)
{
    specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool;

    CHECK_OK(save_talk(target, NULL));
    options.prefix_bytes = (uint64_t)2 * 32 *
                           sb_kv_column_bytes(&(struct sb_kv){
                               .layers = specbatch_model_layers(target),
                               .kv_heads = target->config.kv_heads,
                               .head_dim = target->config.head_dim,
                               .element_bytes = target->backend->cache_bytes(target->device)});
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    CHECK_OK(load_talk(pool));
    CHECK_INT(counter(pool, "prefix_blocks"), 2);
    CHECK(goes_on(pool, 64));
    specbatch_pool_free(pool);
}

static void test_ids_that_nobody_computed_are_saved_without_columns(void)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool;
    size_t kept = 9, n = 0;
    int32_t id = 0;

    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    CHECK_OK(specbatch_pool_save_session(pool, talk, 1, path, &kept));
    CHECK_INT(kept, 0);
    CHECK_OK(specbatch_pool_load_session(pool, path, &id, 1, &n));
    CHECK(n == 1 && id == talk[0]);
    CHECK(goes_on(pool, 0));
    specbatch_pool_free(pool);
}

/* ---------------------------------------------------------------- disk and memory */

/* The limit of a file's size stands for a full disk. */
static void test_a_file_that_cannot_be_written_leaves_nothing(void)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    struct rlimit before, limit;
    specbatch_pool *pool;
    size_t n = 0;
    char *old;

    test_write_text(&dir, "talk", "old");
    CHECK_OK(hold_talk(&pool, target, draft, &options));
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_IGN);
    limit = before;
    /* The test has no output while it is limited. */
    for (rlim_t size = 0; size < 200000; size += size < 2000 ? 400 : 30011) {
        int32_t rc;
        limit.rlim_cur = size;
        setrlimit(RLIMIT_FSIZE, &limit);
        rc = specbatch_pool_save_session(pool, talk, N_TALK, path, NULL);
        setrlimit(RLIMIT_FSIZE, &before);
        if (rc == SPECBATCH_OK)
            break;
        CHECK_INT(rc, SPECBATCH_E_IO);
        CHECK(strstr(specbatch_last_error(), "talk: cannot write: File too large") != NULL);
        CHECK_INT(test_dir_files(&dir), 1);
        CHECK((old = test_read(dir.path, "talk", &n)) != NULL);
        CHECK_STR(old, "old");
        free(old);
    }
    signal(SIGXFSZ, SIG_DFL);
    CHECK_ERROR(specbatch_pool_save_session(pool, talk, N_TALK, "build/none/talk", NULL),
                SPECBATCH_E_IO, "build/none/talk: cannot create: No such");
    CHECK_ERROR(specbatch_pool_save_session(pool, talk, N_TALK, dir.path, NULL), SPECBATCH_E_IO,
                "cannot give");
    CHECK_INT(test_dir_files(&dir), 1);
    CHECK_OK(specbatch_pool_save_session(pool, talk, N_TALK, path, NULL));
    CHECK(goes_on(pool, N_BLOCKS * 32));
    specbatch_pool_free(pool);
}

static void test_no_memory_changes_nothing(void)
{
    specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    struct failalloc memory = {.fail_at = 0};
    specbatch_pool *pool;
    int32_t rc = SPECBATCH_E_NOMEM;
    long at;

    options.alloc = failalloc_alloc;
    options.free = failalloc_free;
    options.alloc_user = &memory;
    CHECK_OK(save_talk(target, draft));
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    for (at = 1; rc == SPECBATCH_E_NOMEM; at++) {
        failalloc_arm(&memory, at, 0);
        rc = load_talk(pool);
        CHECK(rc == SPECBATCH_OK || counter(pool, "prefix_blocks") == 0);
    }
    CHECK_OK(rc);
    CHECK(at > 2);
    CHECK(unlink(path) == 0);
    for (rc = SPECBATCH_E_NOMEM, at = 1; rc == SPECBATCH_E_NOMEM; at++) {
        failalloc_arm(&memory, at, 0);
        rc = specbatch_pool_save_session(pool, talk, N_TALK, path, NULL);
        CHECK_INT(test_dir_files(&dir), rc == SPECBATCH_OK);
    }
    CHECK_OK(rc);
    CHECK(at > 2 || place_is_cuda()); /* where the buffer is the driver's */
    failalloc_arm(&memory, 0, 0);
    CHECK(goes_on(pool, N_BLOCKS * 32));
    specbatch_pool_free(pool);
    CHECK(memory.outstanding == 0 && !memory.broken);
}

/* ------------------------------------------------------------- devices and other writers */

static int32_t fail_download(struct sb_exec *exec, void *host, const void *dev, size_t bytes)
{
    (void)exec;
    (void)host;
    (void)dev;
    (void)bytes;
    return sb_fail(SPECBATCH_E_DEVICE, "the device is gone");
}

static void test_a_device_that_fails_ends_the_pool(void)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    struct sb_backend failing;
    specbatch_pool *pool;

    CHECK_OK(save_talk(target, NULL));
    CHECK_OK(hold_talk(&pool, target, NULL, &options));
    failing = *pool->runner.backend;
    failing.download = fail_download;
    pool->runner.backend = &failing;
    CHECK_ERROR(specbatch_pool_save_session(pool, talk, N_TALK, path, NULL), SPECBATCH_E_DEVICE,
                "the device is gone");
    CHECK_INT(test_dir_files(&dir), 1);
    CHECK_ERROR(load_talk(pool), SPECBATCH_E_DEVICE, "the device is gone");
    CHECK_ERROR(specbatch_pool_step(pool, NULL), SPECBATCH_E_DEVICE, "the pool ended");
    pool->runner.backend = target->backend;
    specbatch_pool_free(pool);
}

/* An upload that, before its first copy, gives every byte from the second block on another value:
 * somebody writes into the file while it is loaded. */
static const struct sb_backend *sound;
static int overwritten;

static int32_t overwrite_and_upload(struct sb_exec *exec, void *dev, const void *host, size_t bytes)
{
    const size_t block = 32 * 2 * (size_t)target->config.layers *
                         (size_t)(target->config.kv_heads * target->config.head_dim) *
                         target->backend->cache_bytes(target->device);
    FILE *f = overwritten ? NULL : fopen(path, "r+b");

    if (f) {
        fseek(f, (long)(808 + 4 * N_TALK + 32 + block + 32), SEEK_SET);
        for (size_t i = 0; i < block + 32; i++)
            fputc(0x55, f);
        fclose(f);
        overwritten = 1;
    }
    return sound->upload(exec, dev, host, bytes);
}

static void test_a_file_that_is_overwritten_while_it_is_loaded(void)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    struct sb_backend overwriting;
    specbatch_pool *pool;

    CHECK_OK(save_talk(target, NULL));
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    sound = pool->runner.backend;
    overwriting = *sound;
    overwriting.upload = overwrite_and_upload;
    pool->runner.backend = &overwriting;
    overwritten = 0;
    CHECK_ERROR(load_talk(pool), SPECBATCH_E_FORMAT, "damaged between byte");
    pool->runner.backend = sound;
    CHECK_INT(overwritten, 1);
    CHECK_OK(pool_check(pool));
    CHECK_INT(counter(pool, "prefix_blocks"), 1);
    CHECK(goes_on(pool, 32));
    specbatch_pool_free(pool);
}

TEST_BEGIN
if (talk_open() != 0) {
    printf("FAIL open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_the_same_pool_goes_on);
RUN(test_any_pool_goes_on);
RUN(test_any_simd_level_goes_on);
RUN(test_the_columns_of_a_draft_are_its_own);
RUN(test_what_fits_is_loaded);
RUN(test_ids_that_nobody_computed_are_saved_without_columns);
RUN(test_a_file_that_cannot_be_written_leaves_nothing);
RUN(test_no_memory_changes_nothing);
RUN(test_a_device_that_fails_ends_the_pool);
RUN(test_a_file_that_is_overwritten_while_it_is_loaded);
talk_close();
TEST_END
