/*
 * Sessions that must be refused, and then the pool is as it was: files that are damaged or forged,
 * or of another model or class, and calls at the wrong time.
 */
#include <sys/wait.h>

#include "pool/session_file.h"
#include "support/talk.h"

/* --------------------------------------------------------------------- refusals */

static void test_arguments_are_checked(void)
{
    specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    int32_t ids[N_TALK + 1], many[513] = {0};
    specbatch_pool *pool, *forgets;
    char long_path[1100];
    size_t n = 7;

    CHECK_OK(save_talk(target, NULL));
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    options.prefix_bytes = 0;
    CHECK_OK(specbatch_pool_create(&forgets, target, NULL, &options));
    CHECK_ERROR(specbatch_pool_save_session(forgets, talk, 3, path, &n), SPECBATCH_E_INVALID,
                "without prefix_bytes");
    CHECK_ERROR(specbatch_pool_load_session(forgets, path, ids, N_TALK, &n), SPECBATCH_E_INVALID,
                "without prefix_bytes");
    CHECK_ERROR(specbatch_pool_save_session(NULL, talk, 3, path, &n), SPECBATCH_E_INVALID, "pool");
    CHECK_ERROR(specbatch_pool_save_session(pool, NULL, 3, path, &n), SPECBATCH_E_INVALID, "ids");
    CHECK_ERROR(specbatch_pool_save_session(pool, talk, 0, path, &n), SPECBATCH_E_INVALID, "ids");
    CHECK_ERROR(specbatch_pool_save_session(pool, talk, 3, NULL, &n), SPECBATCH_E_INVALID, "path");
    many[2] = 517;
    CHECK_ERROR(specbatch_pool_save_session(pool, many, 3, path, &n), SPECBATCH_E_TOKEN,
                "id 2 is 517");
    CHECK_ERROR(specbatch_pool_save_session(pool, many, 513, path, &n), SPECBATCH_E_TOO_LONG,
                "513 ids");
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    CHECK_ERROR(specbatch_pool_save_session(pool, talk, 3, long_path, &n), SPECBATCH_E_INVALID,
                "1023");
    CHECK_ERROR(specbatch_pool_load_session(NULL, path, ids, N_TALK, &n), SPECBATCH_E_INVALID,
                "pool");
    CHECK_ERROR(specbatch_pool_load_session(pool, NULL, ids, N_TALK, &n), SPECBATCH_E_INVALID,
                "path");
    CHECK_ERROR(specbatch_pool_load_session(pool, path, NULL, 1, &n), SPECBATCH_E_INVALID, "ids");
    CHECK_ERROR(specbatch_pool_load_session(pool, path, ids, N_TALK, NULL), SPECBATCH_E_INVALID,
                "n is");
    CHECK_INT(n, 7);
    CHECK_ERROR(specbatch_pool_load_session(pool, path, ids, N_TALK - 1, &n), SPECBATCH_E_BUFFER,
                "120 are needed");
    CHECK_INT(n, N_TALK);
    CHECK_OK(specbatch_pool_load_session(pool, path, NULL, 0, &n));
    CHECK_INT(counter(pool, "prefix_blocks"), 0);
    specbatch_pool_free(pool);
    specbatch_pool_free(forgets);
}

/* A draft's function that tries to save and to load. */
struct meddler {
    specbatch_pool *pool;
    int32_t saved, loaded;
};

static int32_t meddle(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    struct meddler *m = user;
    int32_t id;
    size_t n;

    (void)rows;
    (void)n_rows;
    m->saved = specbatch_pool_save_session(m->pool, talk, N_TALK, path, NULL);
    m->loaded = specbatch_pool_load_session(m->pool, path, &id, 1, &n);
    return SPECBATCH_OK;
}

static void test_callbacks_and_children_are_refused(void)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    struct meddler m = {.saved = 0};
    specbatch_draft_ops ops = SPECBATCH_DRAFT_OPS_INIT;
    int status = 1;
    pid_t child;

    ops.propose = meddle;
    ops.user = &m;
    CHECK_OK(create_with_ops(&m.pool, target, &ops, &options));
    specbatch_result_free(answer(m.pool, talk, N_FIRST, 6));
    CHECK_INT(m.saved, SPECBATCH_E_BUSY);
    CHECK_INT(m.loaded, SPECBATCH_E_BUSY);
    if (!place_is_cuda()) {
        if ((child = fork()) == 0) {
            const int32_t saved = specbatch_pool_save_session(m.pool, talk, N_TALK, path, NULL);
            _exit(saved != SPECBATCH_E_INVALID || load_talk(m.pool) != SPECBATCH_E_INVALID);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_INT(status, 0);
    }
    specbatch_pool_free(m.pool);
}

/* Loads the session into a new pool of this model, which must refuse it and be as new. */
static void check_refused_by(specbatch_model *model, int32_t code, const char *part)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool;

    CHECK_OK(specbatch_pool_create(&pool, model, NULL, &options));
    CHECK_ERROR(load_talk(pool), code, part);
    CHECK(strncmp(specbatch_last_error(), dir.path, strlen(dir.path)) == 0);
    CHECK_INT(counter(pool, "prefix_blocks"), 0);
    specbatch_pool_free(pool);
}

static void test_other_models_and_classes_are_refused(void)
{
    specbatch_model_options options = place_options();
    specbatch_model *model = NULL;

    CHECK_OK(save_talk(target, NULL));
    CHECK_OK(specbatch_model_open(&model, DRAFT, &options));
    check_refused_by(model, SPECBATCH_E_INVALID, "another model");
    specbatch_model_close(model);
    model = NULL;
    options.compute = strstr(specbatch_model_fingerprint(target), "bf16") ? SPECBATCH_COMPUTE_F32
                                                                          : SPECBATCH_COMPUTE_BF16;
    CHECK_OK(specbatch_model_open(&model, TARGET, &options));
    check_refused_by(model, SPECBATCH_E_INVALID, "another numerics class");
    specbatch_model_close(model);
    options = place_options();
    for (int32_t weights = SPECBATCH_WEIGHTS_Q8; weights <= SPECBATCH_WEIGHTS_Q4; weights++) {
        options.weights = weights;
        CHECK_OK(specbatch_model_open(&model, TARGET, &options));
        check_refused_by(model, SPECBATCH_E_INVALID, "another numerics class");
        specbatch_model_close(model);
    }
}

/* A pool that has the session already, and how many blocks it was given so far. */
static void check_harmless(specbatch_pool *pool, const char *what, size_t at)
{
    const int32_t rc = load_talk(pool);

    if (rc != SPECBATCH_E_FORMAT && rc != SPECBATCH_E_UNSUPPORTED)
        FAIL("%s %zu: status %d (%s)", what, at, (int)rc, specbatch_last_error());
    CHECK_INT(counter(pool, "prefix_blocks"), 0);
}

static void test_every_damaged_byte_is_noticed(void)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    specbatch_pool *pool;
    size_t n = 0, step;
    char *bytes;
    FILE *f;

    CHECK_OK(save_talk(target, NULL));
    CHECK((bytes = test_read(dir.path, "talk", &n)) != NULL && n > 3000);
    CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
    CHECK((f = fopen(path, "r+b")) != NULL);
    setbuf(f, NULL);
    /* All of the head and the ids; of the columns every 61st byte, which is odd and so comes to
     * each byte of an element. */
    for (size_t at = 0; at < n && !sbtest_failed_now; at += step) {
        const unsigned char flipped = (unsigned char)bytes[at] ^ (unsigned char)(1u << at % 8);
        fseek(f, (long)at, SEEK_SET);
        fputc(flipped, f);
        check_harmless(pool, "byte", at);
        fseek(f, (long)at, SEEK_SET);
        fputc(bytes[at], f);
        step = at < 2000 || at + 100 > n ? 1 : 61;
    }
    fclose(f);
    CHECK_OK(load_talk(pool));
    for (size_t shorter = n - 1; shorter > 0 && !sbtest_failed_now; shorter -= step) {
        CHECK(truncate(path, (off_t)shorter) == 0);
        CHECK_ERROR(load_talk(pool), SPECBATCH_E_FORMAT, "talk: ");
        step = shorter < 2000 ? 1 : 61;
    }
    CHECK(goes_on(pool, N_BLOCKS * 32));
    specbatch_pool_free(pool);
    free(bytes);
}

/* --------------------------------------------------------------------- forgeries */

/* The head of a good session without columns. */
static struct sb_session_head forged_head(void)
{
    struct sb_session_head head = {.block_columns = 32, .n_ids = N_TALK};
    struct sb_session_model *model = &head.target;

    head.span = target->span;
    memcpy(model->digest, target->digest, sizeof model->digest);
    memcpy(model->fingerprint, target->fingerprint, sizeof model->fingerprint);
    model->layers = target->config.layers;
    model->kv_heads = target->config.kv_heads;
    model->head_dim = target->config.head_dim;
    model->element_bytes = (int32_t)target->backend->cache_bytes(target->device);
    return head;
}

/* Writes a forged session, all of whose columns are zero. */
static int forge(const struct sb_session_head *head, const int32_t *ids)
{
    struct sb_checked_out out;
    size_t target_bytes, draft_bytes = 0;
    int32_t rc = sb_session_create(&out, path, head, ids);
    char *zeros;

    sb_session_block_bytes(head, &head->target, &target_bytes);
    if (head->n_drafted > 0)
        sb_session_block_bytes(head, &head->draft, &draft_bytes);
    zeros = calloc(target_bytes + draft_bytes, 1);
    for (int32_t i = 0; i < head->n_blocks && zeros && rc == SPECBATCH_OK; i++)
        rc = sb_session_write_block(&out, zeros,
                                    target_bytes + (i < head->n_drafted ? draft_bytes : 0));
    free(zeros);
    return zeros && rc == SPECBATCH_OK && sb_new_file_keep(&out.file) == SPECBATCH_OK ? 0 : -1;
}

static void check_forged(const struct sb_session_head *head, int32_t code, const char *part)
{
    CHECK(forge(head, talk) == 0);
    check_refused_by(target, code, part);
}

static void test_forgeries_are_held_against_the_pool(void)
{
    struct sb_session_head head = forged_head();
    int32_t bad[N_TALK];

    head.block_columns = 16;
    check_forged(&head, SPECBATCH_E_UNSUPPORTED, "blocks of 16");
    head = forged_head();
    head.span = target->span + 64;
    check_forged(&head, SPECBATCH_E_INVALID, "another shape");
    for (int i = 0; i < 4; i++) {
        head = forged_head();
        *(i == 0   ? &head.target.layers
          : i == 1 ? &head.target.kv_heads
          : i == 2 ? &head.target.head_dim
                   : &head.target.element_bytes) += 1;
        head.n_blocks = N_BLOCKS;
        check_forged(&head, SPECBATCH_E_INVALID, "another shape");
    }
    /* The same number of elements in another order. */
    head = forged_head();
    head.target.kv_heads = target->config.head_dim;
    head.target.head_dim = target->config.kv_heads;
    check_forged(&head, SPECBATCH_E_INVALID, "another shape");
    memcpy(bad, talk, sizeof bad);
    bad[N_TALK - 1] = 517;
    head = forged_head();
    CHECK(forge(&head, bad) == 0);
    check_refused_by(target, SPECBATCH_E_FORMAT, "id 119 is 517");
}

static void test_a_session_longer_than_the_context(void)
{
    struct sb_session_head head = forged_head();
    int32_t many[513] = {0};

    head.n_ids = 513;
    CHECK(forge(&head, many) == 0);
    check_refused_by(target, SPECBATCH_E_FORMAT, "513 ids");
}

/* A draft with heads of any size is read over. */
static void test_columns_of_a_strange_draft_are_read_over(void)
{
    const specbatch_pool_options options = keeping_options(SPECBATCH_POLICY_RAGGED);
    struct sb_session_head head = forged_head();
    specbatch_pool *pool;

    head.n_blocks = head.n_drafted = 2;
    head.draft = (struct sb_session_model){"no digest", "no class", 1, 3, 911, 2};
    CHECK(forge(&head, talk) == 0);
    CHECK_OK(specbatch_pool_create(&pool, target, draft, &options));
    CHECK_OK(load_talk(pool));
    CHECK_INT(counter(pool, "prefix_blocks"), 2);
    specbatch_pool_free(pool);
}

TEST_BEGIN
if (talk_open() != 0) {
    printf("FAIL open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_arguments_are_checked);
RUN(test_callbacks_and_children_are_refused);
RUN(test_other_models_and_classes_are_refused);
RUN(test_every_damaged_byte_is_noticed);
RUN(test_forgeries_are_held_against_the_pool);
RUN(test_a_session_longer_than_the_context);
RUN(test_columns_of_a_strange_draft_are_read_over);
talk_close();
TEST_END
