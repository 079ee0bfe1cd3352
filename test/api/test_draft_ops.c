/*
 * The functions of a caller's draft: what propose sees, when retire and release are called, and
 * what happens when they break the rules. The floating-point mode in which they run, and propose
 * left by longjmp, are in test_callbacks.c.
 *
 * A pool of these tests takes its memory through hooks that count, so that nothing may be left when
 * it has been freed.
 */
#include "sbtest.h"

#include <setjmp.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/drafts.h"
#include "support/failalloc.h"
#include "support/run_to_end.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"

static specbatch_model *target;
static int32_t prompt[] = {5, 17, 300, 41, 5, 99, 210};

/* What the functions below saw. */
static struct watch {
    struct failalloc memory;
    int drafts, retires, releases; /* calls of each */
    int shown;                     /* rows that propose saw last, */
    uint64_t shown_ids;            /* and a bit for each of their requests */
    uint64_t retired;              /* a bit for each request whose end was told */
    int wrong;                     /* surprises */
    int32_t (*inside)(void);       /* what propose calls instead of proposing, if not NULL */
    void (*inside_retire)(void);   /* what retire calls, if not NULL */
    /* Where not NULL, the function leaves by this longjmp instead of returning. */
    jmp_buf *leave_retire, *leave_release;
    specbatch_pool *pool, *other;
} watch;

static int32_t watched_propose(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    watch.drafts++;
    watch.shown = (int)n_rows;
    watch.shown_ids = 0;
    for (size_t b = 0; b < n_rows; b++)
        watch.shown_ids |= UINT64_C(1) << rows[b]->request_id;
    if (watch.inside)
        return watch.inside();
    for (size_t b = 0; b < n_rows; b++) {
        watch.wrong += rows[b]->request_user != prompt || rows[b]->n_out != 0 || rows[b]->k < 1 ||
                       rows[b]->struct_size != sizeof **rows;
        rows[b]->n_out = rows[b]->k;
        for (int32_t i = 0; i < rows[b]->k; i++)
            rows[b]->out[i] = rows[b]->tokens[rows[b]->n_tokens - 1];
    }
    return 0;
}

static void watched_retire(void *user, uint64_t id, void *request_user)
{
    (void)user;
    watch.retires++;
    watch.wrong += id >= 64 || (watch.retired >> id & 1) || request_user != prompt;
    watch.retired |= UINT64_C(1) << id;
    if (watch.inside_retire)
        watch.inside_retire();
    if (watch.leave_retire)
        longjmp(*watch.leave_retire, 1);
}

static void watched_release(void *user)
{
    (void)user;
    watch.releases++;
    if (watch.leave_release)
        longjmp(*watch.leave_release, 1);
}

static const specbatch_draft_ops watched = {sizeof watched, watched_propose, watched_retire,
                                            watched_release, NULL};

static specbatch_pool_options small_options(void)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.batch = 2;
    options.max_len = 64;
    options.draft_len = 3;
    options.n_threads = 1;
    options.flags = SPECBATCH_POOL_FIXED_K;
    options.alloc = failalloc_alloc;
    options.free = failalloc_free;
    options.alloc_user = &watch.memory;
    return options;
}

/* A pool whose draft is watched, and held by nobody else. */
static int32_t create_pool(specbatch_pool **pool)
{
    const specbatch_pool_options options = small_options();

    return create_with_ops(pool, target, &watched, &options);
}

static int32_t submit(specbatch_pool *pool, int32_t max_new)
{
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = prompt;
    request.n_ids = sizeof prompt / sizeof *prompt;
    request.max_new = max_new;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    request.user = prompt;
    return specbatch_pool_submit(pool, &request, NULL);
}

static void free_results(specbatch_pool *pool)
{
    specbatch_result *result;

    while (specbatch_pool_collect(pool, &result) == SPECBATCH_OK)
        specbatch_result_free(result);
}

static long outstanding(void)
{
    return atomic_load(&watch.memory.outstanding);
}

static void begin_watch(void)
{
    memset(&watch, 0, sizeof watch);
}

/* Every request that propose has seen is retired once, whatever ends it; others are not. */
static void test_the_end_of_every_shown_request_is_told(void)
{
    begin_watch();
    CHECK_OK(create_pool(&watch.pool));
    for (int i = 0; i < 5; i++)
        CHECK_OK(submit(watch.pool, i == 0 ? 12 : 40));
    CHECK_OK(specbatch_pool_cancel(watch.pool, 5)); /* has not been shown */
    for (int i = 0; i < 3; i++)
        CHECK_OK(specbatch_pool_step(watch.pool, NULL));
    CHECK_INT(watch.shown, 2);
    CHECK_INT(watch.retires, 0);
    CHECK_OK(specbatch_pool_cancel(watch.pool, 2));
    CHECK_INT(watch.retired, 1u << 2);
    for (int i = 0; i < 30 && watch.retires < 2; i++)
        CHECK_OK(specbatch_pool_step(watch.pool, NULL));
    CHECK_INT(watch.retired, 1u << 2 | 1u << 1); /* the first has its tokens */
    free_results(watch.pool);
    CHECK_OK(submit(watch.pool, 40)); /* and never steps */
    specbatch_pool_free(watch.pool);
    CHECK_INT(watch.retired, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4);
    CHECK_INT(watch.retires, 4);
    CHECK_INT(watch.releases, 1);
    CHECK_INT(watch.wrong, 0);
    CHECK_INT(outstanding(), 0);
}

static int32_t refuse(void)
{
    return 7;
}

/* After E_CANCELLED the next step shows the same rows again, and nothing has changed meanwhile. */
static void test_a_refused_round_is_asked_for_again(void)
{
    int32_t ids[64];
    size_t n, before;

    begin_watch();
    CHECK_OK(create_pool(&watch.pool));
    CHECK_OK(submit(watch.pool, 30));
    CHECK_OK(submit(watch.pool, 30));
    CHECK_OK(specbatch_pool_step(watch.pool, NULL)); /* the prompts */
    CHECK_OK(specbatch_pool_poll(watch.pool, 1, NULL, 0, &before));
    watch.inside = refuse;
    for (int i = 1; i <= 3; i++) {
        CHECK_ERROR(specbatch_pool_step(watch.pool, NULL), SPECBATCH_E_CANCELLED,
                    "propose returned 7");
        CHECK_INT(watch.drafts, i);
        CHECK_INT(watch.shown, 2);
        CHECK_OK(specbatch_pool_poll(watch.pool, 1, NULL, 0, &n));
        CHECK_INT(n, before);
    }
    watch.inside = NULL;
    CHECK_OK(run_to_end(watch.pool));
    CHECK_OK(specbatch_pool_poll(watch.pool, 1, ids, 64, &n));
    CHECK_INT(n, 30);
    specbatch_pool_free(watch.pool);
    CHECK_INT(watch.retires, 2);
    CHECK_INT(outstanding(), 0);
}

/* Also where more requests than a batch has places wait for their turn: it is not lost. */
static void test_refused_rows_keep_their_turn(void)
{
    static const int32_t policies[] = {SPECBATCH_POLICY_RAGGED, SPECBATCH_POLICY_ROLLBACK};

    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        specbatch_pool_options options = small_options();
        uint64_t first;
        begin_watch();
        options.policy = policies[i];
        options.cache_columns = 5 * options.max_len;
        CHECK_OK(create_with_ops(&watch.pool, target, &watched, &options));
        for (int r = 0; r < 5; r++)
            CHECK_OK(submit(watch.pool, 20));
        for (int step = 0; step < 6; step++)
            CHECK_OK(specbatch_pool_step(watch.pool, NULL));
        watch.inside = refuse;
        CHECK_ERROR(specbatch_pool_step(watch.pool, NULL), SPECBATCH_E_CANCELLED, "propose");
        first = watch.shown_ids;
        CHECK_INT(watch.shown, 2);
        CHECK_ERROR(specbatch_pool_step(watch.pool, NULL), SPECBATCH_E_CANCELLED, "propose");
        CHECK_INT(watch.shown_ids, first);
        watch.inside = NULL;
        CHECK_OK(run_to_end(watch.pool));
        specbatch_pool_free(watch.pool);
        CHECK_INT(watch.wrong, 0);
        CHECK_INT(outstanding(), 0);
    }
}

static int32_t leave_the_vocabulary(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    const int32_t wrong = *(const int32_t *)user;

    for (size_t b = 0; b < n_rows; b++) {
        rows[b]->n_out = rows[b]->k;
        for (int32_t i = 0; i < rows[b]->k; i++)
            rows[b]->out[i] = i == 1 ? wrong : 5;
        rows[b]->k = 1000; /* nothing but n_out and out is read back */
    }
    return 0;
}

static void test_an_id_outside_the_vocabulary_ends_the_proposals(void)
{
    const int32_t vocab = specbatch_model_vocab_size(target);
    int32_t wrong[] = {-1, INT32_MIN, vocab, INT32_MAX, vocab - 1};

    for (int i = 0; i < 5; i++) {
        const specbatch_draft_ops ops = only_propose(leave_the_vocabulary, &wrong[i]);
        const specbatch_pool_options options = small_options();
        uint64_t drafted = 0;
        specbatch_pool *pool;
        begin_watch();
        CHECK_OK(create_with_ops(&pool, target, &ops, &options));
        CHECK_OK(submit(pool, 20));
        CHECK_OK(specbatch_pool_step(pool, NULL)); /* the prompt */
        CHECK_OK(specbatch_pool_step(pool, NULL));
        CHECK_OK(specbatch_pool_stat(pool, "tokens_drafted", &drafted));
        CHECK_INT(drafted, i < 4 ? 1 : 3);
        specbatch_pool_free(pool);
    }
}

/* Pools hold references: the draft is released once, when the last of its users is gone. */
static void test_a_draft_serves_two_pools_and_is_released_once(void)
{
    const specbatch_pool_options options = small_options();
    specbatch_draft *draft;

    begin_watch();
    CHECK_OK(specbatch_draft_from_ops(&draft, &watched));
    specbatch_draft_retain(draft);
    CHECK_OK(specbatch_pool_create(&watch.pool, target, draft, &options));
    CHECK_OK(specbatch_pool_create(&watch.other, target, draft, &options));
    specbatch_draft_release(draft);
    specbatch_draft_release(draft);
    CHECK_OK(submit(watch.pool, 9));
    CHECK_OK(run_to_end(watch.pool));
    specbatch_pool_free(watch.pool);
    CHECK(watch.drafts > 0 && watch.releases == 0);
    specbatch_pool_free(watch.other);
    CHECK_INT(watch.releases, 1);
    CHECK_INT(outstanding(), 0);
}

static void test_drafts_are_refused(void)
{
    specbatch_draft_ops ops = SPECBATCH_DRAFT_OPS_INIT;
    specbatch_draft *draft = NULL;
    struct {
        specbatch_draft_ops known;
        uint64_t unknown;
    } newer = {{sizeof newer, watched_propose, NULL, NULL, NULL}, 1};

    CHECK_ERROR(specbatch_draft_from_ops(&draft, &ops), SPECBATCH_E_INVALID, "propose");
    CHECK_ERROR(specbatch_draft_from_ops(&draft, NULL), SPECBATCH_E_INVALID, "ops");
    CHECK_ERROR(specbatch_draft_from_ops(NULL, &ops), SPECBATCH_E_INVALID, "out");
    CHECK_ERROR(specbatch_draft_from_ops(&draft, &newer.known), SPECBATCH_E_OPTIONS, "byte 40");
    CHECK_ERROR(specbatch_draft_from_model(&draft, NULL), SPECBATCH_E_INVALID, "model");
    CHECK_ERROR(specbatch_draft_from_model(NULL, target), SPECBATCH_E_INVALID, "out");
    CHECK(draft == NULL);
    specbatch_draft_retain(NULL);
    specbatch_draft_release(NULL);
}

static void step_inside_retire(void)
{
    watch.wrong += specbatch_pool_step(watch.pool, NULL) != SPECBATCH_E_BUSY;
}

static void test_retire_may_not_use_its_pool(void)
{
    begin_watch();
    watch.inside_retire = step_inside_retire;
    CHECK_OK(create_pool(&watch.pool));
    CHECK_OK(submit(watch.pool, 4));
    CHECK_OK(submit(watch.pool, 40));
    for (int i = 0; i < 6; i++)
        CHECK_OK(specbatch_pool_step(watch.pool, NULL));
    CHECK_INT(watch.retires, 1);
    specbatch_pool_free(watch.pool);
    CHECK_INT(watch.retires, 2);
    CHECK_INT(watch.wrong, 0);
}

/* retire is left by longjmp in a step that ends two requests, in a cancellation, and while the pool
 * is freed: 0, 1, 2. Every end is told once all the same, and everything is freed. */
static void test_retire_left_by_longjmp(void)
{
    static jmp_buf out;
    static int in;

    for (in = 0; in < 3; in++) {
        begin_watch();
        CHECK_OK(create_pool(&watch.pool));
        CHECK_OK(submit(watch.pool, in == 0 ? 8 : 40));
        CHECK_OK(submit(watch.pool, in == 0 ? 8 : 40));
        CHECK_OK(specbatch_pool_step(watch.pool, NULL));
        CHECK_OK(specbatch_pool_step(watch.pool, NULL));
        watch.leave_retire = &out;
        if (setjmp(out) == 0) {
            if (in == 0)
                run_to_end(watch.pool);
            else if (in == 1)
                specbatch_pool_cancel(watch.pool, 1);
            else
                specbatch_pool_free(watch.pool);
        }
        watch.leave_retire = NULL;
        CHECK_INT(watch.retires, 1);
        CHECK_ERROR(specbatch_pool_step(watch.pool, NULL), SPECBATCH_E_INTERNAL, "left by longjmp");
        free_results(watch.pool);
        specbatch_pool_free(watch.pool);
        CHECK_INT(watch.retired, 1u << 1 | 1u << 2);
        CHECK_INT(watch.wrong, 0);
        CHECK_INT(watch.releases, 1);
        CHECK_INT(outstanding(), 0);
    }
}

static void test_release_left_by_longjmp(void)
{
    static jmp_buf out;

    begin_watch();
    CHECK_OK(create_pool(&watch.pool));
    watch.leave_release = &out;
    if (setjmp(out) == 0)
        specbatch_pool_free(watch.pool);
    CHECK_INT(watch.releases, 1);
    CHECK_INT(outstanding(), 0);
}

/* A forked child that frees its parent's pool is told of the ends too, in its own memory. */
static void test_a_forked_child_is_told_too(void)
{
    int status = 1;
    pid_t child;

    begin_watch();
    CHECK_OK(create_pool(&watch.pool));
    CHECK_OK(submit(watch.pool, 40));
    CHECK_OK(specbatch_pool_step(watch.pool, NULL));
    CHECK_OK(specbatch_pool_step(watch.pool, NULL));
    child = fork();
    if (child == 0) {
        specbatch_pool_free(watch.pool);
        _exit(watch.retired == 1u << 1 && watch.releases == 1 && outstanding() == 0 ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK_INT(watch.retires, 0);
    specbatch_pool_free(watch.pool);
    CHECK_INT(watch.retires, 1);
    CHECK_INT(outstanding(), 0);
}

TEST_BEGIN
if (specbatch_model_open(&target, TARGET, NULL)) {
    printf("FAIL the model does not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_the_end_of_every_shown_request_is_told);
RUN(test_a_refused_round_is_asked_for_again);
RUN(test_refused_rows_keep_their_turn);
RUN(test_an_id_outside_the_vocabulary_ends_the_proposals);
RUN(test_a_draft_serves_two_pools_and_is_released_once);
RUN(test_drafts_are_refused);
RUN(test_retire_may_not_use_its_pool);
RUN(test_retire_left_by_longjmp);
RUN(test_release_left_by_longjmp);
RUN(test_a_forked_child_is_told_too);
specbatch_model_close(target);
TEST_END
