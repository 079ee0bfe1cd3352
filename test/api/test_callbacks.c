/*
 * Callbacks: the floating-point mode in which they run, callbacks that are left by longjmp instead
 * of returning, and threads that are in one pool at the same time. test/api/check_exceptions.sh
 * does the same with C++ exceptions.
 *
 * A pool of these tests takes its memory through hooks that count, so "frees everything" means that
 * nothing is left.
 */
#include "sbtest.h"

#include <dirent.h>
#include <fenv.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <time.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "support/drafts.h"
#include "support/failalloc.h"
#include "support/run_to_end.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"

static specbatch_model *target;
static const int32_t prompt[] = {5, 17, 300, 41, 5, 99, 210};

/* ------------------------------------------------------------------ the host's mode */

#if defined(__x86_64__)

/* A mode unlike the library's: it rounds up, keeps denormals, and traps division by zero and
 * overflow. */
static void set_hostile_mode(void)
{
    _mm_setcsr((0x1f80u & ~(0x0200u | 0x0400u)) | 0x4000u);
}

static unsigned mode(void)
{
    return _mm_getcsr() & ~0x3fu; /* without the exceptions raised so far */
}

static void set_calm_mode(void)
{
    _mm_setcsr(0x1f80u);
}

#else

static void set_hostile_mode(void)
{
    fesetround(FE_UPWARD);
}

static unsigned mode(void)
{
    return (unsigned)fegetround();
}

static void set_calm_mode(void)
{
    fesetround(FE_TONEAREST);
}

#endif

/* What the hooks below saw. */
static struct watch {
    struct failalloc memory;
    unsigned expected; /* the mode in which hooks should run */
    int allocs, frees, lines, drafts, retires, releases, masks; /* calls of each hook */
    int wrong; /* calls in another mode, and other surprises */
    /* Where not NULL, the hook leaves by this longjmp instead of returning; the free hook does so
     * in call number leave_at. */
    jmp_buf *leave_alloc, *leave_free, *leave_log, *leave_draft;
    int leave_at;
    int32_t (*inside)(void);  /* what propose calls first, if not NULL */
    int32_t (*in_mask)(void); /* what a mask does; NULL: requests have none */
    specbatch_pool *pool, *other;
    char line[256]; /* the last error logged */
} watch;

static void look(int *calls)
{
    ++*calls;
    watch.wrong += mode() != watch.expected;
}

static void *watched_alloc(void *user, size_t size, size_t align)
{
    look(&watch.allocs);
    if (watch.leave_alloc)
        longjmp(*watch.leave_alloc, 1);
    return failalloc_alloc(user, size, align);
}

static void watched_free(void *user, void *block, size_t size)
{
    look(&watch.frees);
    failalloc_free(user, block, size);
    if (watch.leave_free && watch.frees == watch.leave_at)
        longjmp(*watch.leave_free, 1);
}

static void watched_log(void *user, int32_t level, const char *line)
{
    (void)user;
    look(&watch.lines);
    if (level == SPECBATCH_LOG_ERROR)
        snprintf(watch.line, sizeof watch.line, "%s", line);
    if (watch.leave_log)
        longjmp(*watch.leave_log, 1);
}

static int32_t watched_propose(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    look(&watch.drafts);
    if (watch.inside)
        return watch.inside();
    if (watch.leave_draft)
        longjmp(*watch.leave_draft, 1);
    for (size_t b = 0; b < n_rows; b++) {
        rows[b]->n_out = rows[b]->k;
        for (int32_t i = 0; i < rows[b]->k; i++)
            rows[b]->out[i] = rows[b]->tokens[rows[b]->n_tokens - 1];
    }
    return 0;
}

static void watched_retire(void *user, uint64_t id, void *request_user)
{
    (void)user;
    (void)id;
    (void)request_user;
    look(&watch.retires);
}

static int32_t watched_allow(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    (void)user;
    (void)rows;
    (void)n_rows;
    look(&watch.masks);
    return watch.in_mask();
}

static void watched_release(void *user)
{
    (void)user;
    look(&watch.releases);
}

static specbatch_pool_options watched_options(int32_t n_threads)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.batch = 2;
    options.max_len = 64;
    options.draft_len = 3;
    options.n_threads = n_threads;
    options.flags = SPECBATCH_POOL_FIXED_K;
    options.alloc = watched_alloc;
    options.free = watched_free;
    options.alloc_user = &watch.memory;
    options.log = watched_log;
    return options;
}

static const specbatch_draft_ops watched = {sizeof watched, watched_propose, watched_retire,
                                            watched_release, NULL};

/* A pool on the model whose draft is watched, and held by nobody else. */
static int32_t create_pool(specbatch_pool **pool, specbatch_model *model,
                           const specbatch_pool_options *options)
{
    return create_with_ops(pool, model, &watched, options);
}

static int32_t submit(specbatch_pool *pool, int32_t max_new)
{
    const specbatch_mask mask = {sizeof mask, watched_allow, NULL};
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = prompt;
    request.n_ids = sizeof prompt / sizeof *prompt;
    request.max_new = max_new;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    request.mask = watch.in_mask ? &mask : NULL;
    return specbatch_pool_submit(pool, &request, NULL);
}

static long outstanding(void)
{
    return atomic_load(&watch.memory.outstanding);
}

static void begin_watch(void)
{
    memset(&watch, 0, sizeof watch);
    watch.expected = mode();
}

/* Opens a model, runs a request, and frees everything. Returns the status of the first failure. */
static int32_t whole_life(void)
{
    specbatch_model_options model_options = SPECBATCH_MODEL_OPTIONS_INIT;
    const specbatch_pool_options options = watched_options(2);
    specbatch_model *model = NULL;
    specbatch_pool *pool = NULL;
    specbatch_result *result;
    int32_t rc;

    model_options.alloc = watched_alloc;
    model_options.free = watched_free;
    model_options.alloc_user = &watch.memory;
    model_options.log = watched_log;
    if ((rc = specbatch_model_open(&model, "examples/demo/target", &model_options)) ==
            SPECBATCH_OK &&
        (rc = create_pool(&pool, model, &options)) == SPECBATCH_OK &&
        (rc = submit(pool, 12)) == SPECBATCH_OK && (rc = run_to_end(pool)) == SPECBATCH_OK &&
        (rc = specbatch_pool_collect(pool, &result)) == SPECBATCH_OK)
        specbatch_result_free(result);
    specbatch_pool_free(pool);
    specbatch_model_close(model);
    return rc;
}

static int32_t do_nothing(void)
{
    return 0;
}

static void test_callbacks_run_in_the_mode_of_the_host(void)
{
    unsigned before, after;
    int32_t rc;

    set_hostile_mode();
    begin_watch();
    watch.in_mask = do_nothing;
    before = mode();
    rc = whole_life();
    after = mode();
    set_calm_mode();
    CHECK_OK(rc);
    CHECK(watch.allocs > 10 && watch.frees == watch.allocs && watch.lines > 0 && watch.drafts > 2);
    CHECK(watch.masks > 2);
    CHECK(watch.retires == 1 && watch.releases == 1);
    CHECK_INT(watch.wrong, 0);
    CHECK_INT(after, before);
}

static int32_t change_the_mode(void)
{
    set_hostile_mode();
    return 0;
}

/* When a callback changes the floating-point mode, the host keeps that change, as after any
 * function it calls; the library's own mode is not affected. */
static void test_a_callback_may_change_the_mode(void)
{
    const specbatch_pool_options options = watched_options(1);
    specbatch_pool *pool;
    unsigned hostile, after;

    set_hostile_mode();
    hostile = mode();
    set_calm_mode();
    begin_watch();
    watch.inside = change_the_mode;
    CHECK_OK(create_pool(&pool, target, &options));
    CHECK_OK(submit(pool, 12));
    CHECK_OK(specbatch_pool_step(pool, NULL)); /* the prompt */
    CHECK_OK(specbatch_pool_step(pool, NULL));
    after = mode();
    set_calm_mode();
    CHECK_INT(watch.drafts, 1);
    CHECK_INT(after, hostile);
    specbatch_pool_free(pool);
}

/* ------------------------------------------------------------- left by longjmp */

/* The number of threads of this process; -1 where the system does not say. */
static int n_threads_now(void)
{
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;

    if (!tasks)
        return -1;
    while ((entry = readdir(tasks)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(tasks);
    return n;
}

/* Waits until there are at most n threads: one that was joined may be listed for a moment longer.
 */
static int threads_fall_to(int n)
{
    const struct timespec nap = {0, 1000000};

    for (int i = 0; i < 5000 && n_threads_now() > n; i++)
        nanosleep(&nap, NULL);
    return n_threads_now() <= n;
}

/* A pool with one finished request, and one whose draft callback was left by longjmp. NULL:
 * something failed. */
static specbatch_pool *left_pool(int32_t n_threads)
{
    static specbatch_pool *pool;
    static size_t active;
    static jmp_buf out;
    const specbatch_pool_options options = watched_options(n_threads);

    pool = NULL;
    active = 2;
    begin_watch();
    if (create_pool(&pool, target, &options) || submit(pool, 2) || submit(pool, 40))
        return NULL;
    while (active == 2)
        if (specbatch_pool_step(pool, &active))
            return NULL;
    watch.leave_draft = &out;
    if (setjmp(out) == 0) {
        specbatch_pool_step(pool, &active);
        return NULL;
    }
    watch.leave_draft = NULL;
    return pool;
}

static void test_a_pool_left_by_longjmp_is_dead_and_can_be_freed(void)
{
    const int threads = n_threads_now();
    specbatch_pool *pool;
    specbatch_result *result;
    int32_t ids[8];
    uint64_t rounds = 0;
    size_t n;

    set_hostile_mode();
    pool = left_pool(3);
    watch.wrong += mode() != watch.expected;
    set_calm_mode();
    CHECK(pool != NULL);
    CHECK_INT(watch.wrong, 0);
    watch.expected = mode();
    CHECK_ERROR(specbatch_pool_step(pool, &n), SPECBATCH_E_INTERNAL, "left by longjmp");
    CHECK_ERROR(submit(pool, 3), SPECBATCH_E_INTERNAL, "left by longjmp");
    CHECK_ERROR(specbatch_pool_cancel(pool, 2), SPECBATCH_E_INTERNAL, "left by longjmp");
    CHECK_ERROR(specbatch_pool_poll(pool, 2, ids, 8, &n), SPECBATCH_E_INTERNAL, "left by longjmp");
    CHECK_OK(specbatch_pool_stat(pool, "rounds", &rounds));
    CHECK(rounds > 0);
    CHECK_OK(specbatch_pool_collect(pool, &result));
    CHECK_INT(specbatch_result_id(result), 1);
    specbatch_result_free(result);
    CHECK_ERROR(specbatch_pool_collect(pool, &result), SPECBATCH_E_INTERNAL, "left by longjmp");
    specbatch_pool_free(pool);
    CHECK_INT(outstanding(), 0);
    CHECK(!atomic_load(&watch.memory.broken));
    CHECK(threads_fall_to(threads));
}

static void test_a_pool_left_by_longjmp_can_be_freed_at_once(void)
{
    const int threads = n_threads_now();
    specbatch_pool *pool = left_pool(3);

    CHECK(pool != NULL);
    specbatch_pool_free(pool);
    CHECK_INT(outstanding(), 0);
    CHECK_STR(watch.line, "");
    CHECK(threads_fall_to(threads));
}

static int32_t step_and_free_from_below(specbatch_pool *pool, int levels);
/* Called through a volatile pointer, so that the compiler cannot make a loop of the recursion. */
static int32_t (*volatile go_below)(specbatch_pool *, int) = step_and_free_from_below;

static int32_t step_and_free_from_below(specbatch_pool *pool, int levels)
{
    volatile int32_t rc = levels ? go_below(pool, levels - 1) : specbatch_pool_step(pool, NULL);

    if (!levels)
        specbatch_pool_free(pool);
    return rc;
}

/* A call from far down the stack could also come from the callback itself, while its step is alive.
 * It is refused, and nothing is freed. */
static void test_where_it_cannot_be_told_the_pool_is_busy(void)
{
    specbatch_pool *pool = left_pool(1);
    long held;

    CHECK(pool != NULL);
    held = outstanding();
    CHECK_INT(step_and_free_from_below(pool, 4000), SPECBATCH_E_BUSY);
    CHECK_INT(outstanding(), held);
    CHECK(strstr(watch.line, "pool_free: nothing is freed") && strstr(watch.line, "longjmp"));
    specbatch_pool_free(pool);
    CHECK_INT(outstanding(), 0);
}

static int32_t free_inside(void)
{
    specbatch_pool_free(watch.pool);
    watch.wrong += !strstr(specbatch_last_error(), "one of its own callbacks");
    return 0;
}

static void test_freeing_in_a_callback_is_refused_aloud(void)
{
    const specbatch_pool_options options = watched_options(1);

    begin_watch();
    watch.inside = free_inside;
    CHECK_OK(create_pool(&watch.pool, target, &options));
    CHECK_OK(submit(watch.pool, 4));
    CHECK_OK(run_to_end(watch.pool));
    CHECK(strstr(watch.line, "pool_free: nothing is freed"));
    CHECK_INT(watch.wrong, 0);
    specbatch_pool_free(watch.pool);
    CHECK_INT(outstanding(), 0);
}

/* A mask is left by longjmp: in the first call of a round, and in the second, when the draft's
 * proposals are known. */
static jmp_buf out_of_mask;

static int32_t leave_mask(void)
{
    longjmp(out_of_mask, 1);
}

static int32_t leave_second_mask(void)
{
    watch.in_mask = leave_mask;
    return 0;
}

static void test_a_pool_whose_mask_was_left_by_longjmp_is_dead(void)
{
    static specbatch_pool *pool;
    static int second;
    const specbatch_pool_options options = watched_options(1);

    for (second = 0; second < 2; second++) {
        begin_watch();
        watch.in_mask = do_nothing;
        CHECK_OK(create_pool(&pool, target, &options));
        CHECK_OK(submit(pool, 9));
        CHECK_OK(specbatch_pool_step(pool, NULL)); /* the prompt */
        watch.in_mask = second ? leave_second_mask : leave_mask;
        if (setjmp(out_of_mask) == 0)
            CHECK_OK(specbatch_pool_step(pool, NULL));
        CHECK(watch.in_mask == leave_mask);
        CHECK_ERROR(specbatch_pool_step(pool, NULL), SPECBATCH_E_INTERNAL, "left by longjmp");
        specbatch_pool_free(pool);
        CHECK_INT(outstanding(), 0);
    }
}

static int32_t step_and_interrupt_inside(void)
{
    watch.wrong += specbatch_pool_step(watch.pool, NULL) != SPECBATCH_E_BUSY;
    return specbatch_pool_interrupt(watch.pool);
}

/* An interruption from a mask ends that step, or the next one where the passes have begun. */
static void test_a_mask_may_interrupt_its_pool_and_not_step_it(void)
{
    const specbatch_pool_options options = watched_options(1);
    int32_t rc = SPECBATCH_OK;

    begin_watch();
    watch.in_mask = step_and_interrupt_inside;
    CHECK_OK(create_pool(&watch.pool, target, &options));
    CHECK_OK(submit(watch.pool, 9));
    for (int i = 0; i < 3 && rc == SPECBATCH_OK; i++)
        rc = specbatch_pool_step(watch.pool, NULL);
    CHECK_INT(rc, SPECBATCH_E_INTERRUPTED);
    watch.in_mask = do_nothing;
    CHECK_OK(run_to_end(watch.pool));
    CHECK_INT(watch.wrong, 0);
    specbatch_pool_free(watch.pool);
    CHECK_INT(outstanding(), 0);
}

static int32_t step_the_other_pool(void)
{
    watch.inside = NULL; /* so that the other pool's callback leaves at once */
    specbatch_pool_step(watch.other, NULL);
    return 0;
}

/* A pool is stepped in the callback of another pool, and its own callback leaves both steps. */
static void test_two_pools_left_at_once(void)
{
    static jmp_buf out;
    const specbatch_pool_options options = watched_options(1);
    static unsigned after;
    unsigned hostile;

    set_hostile_mode();
    hostile = mode();
    begin_watch();
    if (!create_pool(&watch.pool, target, &options) && !submit(watch.pool, 9) &&
        !create_pool(&watch.other, target, &options) && !submit(watch.other, 9) &&
        !specbatch_pool_step(watch.pool, NULL) && !specbatch_pool_step(watch.other, NULL)) {
        watch.inside = step_the_other_pool;
        watch.leave_draft = &out;
        if (setjmp(out) == 0)
            specbatch_pool_step(watch.pool, NULL);
        else
            after = mode();
    }
    set_calm_mode();
    watch.expected = mode();
    CHECK_INT(after, hostile);
    CHECK_INT(watch.wrong, 0);
    CHECK_INT(specbatch_pool_step(watch.other, NULL), SPECBATCH_E_INTERNAL);
    CHECK_INT(specbatch_pool_step(watch.pool, NULL), SPECBATCH_E_INTERNAL);
    specbatch_pool_free(watch.pool);
    specbatch_pool_free(watch.other);
    CHECK_INT(outstanding(), 0);
}

/* A memory hook is left by longjmp: the pool that was called is dead then, and a pool that was
 * being created does not exist. */
static void test_memory_hooks_left_by_longjmp(void)
{
    static jmp_buf out;
    const specbatch_pool_options options = watched_options(2);
    static specbatch_draft *draft; /* the test's own, for nothing else knows of it after the jump */
    static unsigned after[2];
    unsigned hostile;

    set_hostile_mode();
    hostile = mode();
    begin_watch();
    specbatch_draft_from_ops(&draft, &watched);
    watch.leave_alloc = &out;
    if (setjmp(out) == 0)
        specbatch_pool_create(&watch.other, target, draft, &options);
    else
        after[0] = mode();
    watch.leave_alloc = NULL;
    specbatch_draft_release(draft);
    if (create_pool(&watch.pool, target, &options) == SPECBATCH_OK) {
        watch.leave_alloc = &out;
        if (setjmp(out) == 0)
            submit(watch.pool, 5);
        else
            after[1] = mode();
    }
    set_calm_mode();
    watch.expected = mode();
    watch.leave_alloc = NULL;
    CHECK(watch.other == NULL && watch.pool != NULL);
    CHECK_INT(watch.wrong, 0);
    CHECK_INT(watch.releases, 1);
    CHECK_INT(after[0], hostile);
    CHECK_INT(after[1], hostile);
    CHECK_ERROR(submit(watch.pool, 5), SPECBATCH_E_INTERNAL, "left by longjmp");
    specbatch_pool_free(watch.pool);
    CHECK_INT(outstanding(), 0);
}

/* The 65th request makes the queue and the table of requests grow, and their old memory is freed.
 * The hook frees it and does not return. The pool must not free that memory again, and nothing may
 * be lost. */
static void test_a_free_hook_left_while_the_queue_grows(void)
{
    static jmp_buf out;
    static int at;
    const specbatch_pool_options options = watched_options(1);

    for (at = 1; at <= 2; at++) {
        begin_watch();
        CHECK_OK(create_pool(&watch.pool, target, &options));
        for (int i = 0; i < 64; i++)
            CHECK_OK(submit(watch.pool, 5));
        watch.frees = 0;
        watch.leave_at = at;
        watch.leave_free = &out;
        if (setjmp(out) == 0)
            submit(watch.pool, 5);
        watch.leave_free = NULL;
        CHECK_INT(watch.frees, at);
        CHECK_ERROR(submit(watch.pool, 5), SPECBATCH_E_INTERNAL, "left by longjmp");
        specbatch_pool_free(watch.pool);
        CHECK_INT(outstanding(), 0);
    }
}

/* ------------------------------------------------------------- threads in one pool */

static sem_t is_inside, may_go;

static int32_t wait_inside(void)
{
    watch.inside = NULL;
    sem_post(&is_inside);
    sem_wait(&may_go);
    return 0;
}

static void *step_for_ever(void *pool)
{
    return run_to_end(pool) == SPECBATCH_OK ? pool : NULL;
}

/* While one thread is inside a step, every call of another thread says so and changes nothing. */
static void check_all_calls_are_busy(specbatch_pool *pool)
{
    static const char elsewhere[] = "another thread";
    specbatch_result *result = NULL;
    int32_t ids[8];
    uint64_t value;
    size_t n;

    CHECK_ERROR(specbatch_pool_step(pool, &n), SPECBATCH_E_BUSY, elsewhere);
    CHECK_ERROR(submit(pool, 3), SPECBATCH_E_BUSY, elsewhere);
    CHECK_ERROR(specbatch_pool_cancel(pool, 1), SPECBATCH_E_BUSY, elsewhere);
    CHECK_ERROR(specbatch_pool_poll(pool, 1, ids, 8, &n), SPECBATCH_E_BUSY, elsewhere);
    CHECK_ERROR(specbatch_pool_collect(pool, &result), SPECBATCH_E_BUSY, elsewhere);
    CHECK_ERROR(specbatch_pool_stat(pool, "rounds", &value), SPECBATCH_E_BUSY, elsewhere);
    specbatch_pool_free(pool);
    CHECK(strstr(specbatch_last_error(), elsewhere) && strstr(watch.line, elsewhere));
}

static void test_another_thread_is_told_that_it_is_one(void)
{
    const specbatch_pool_options options = watched_options(1);
    specbatch_result *result;
    pthread_t thread;
    void *ended = NULL;
    size_t n;

    begin_watch();
    sem_init(&is_inside, 0, 0);
    sem_init(&may_go, 0, 0);
    watch.inside = wait_inside;
    CHECK_OK(create_pool(&watch.pool, target, &options));
    CHECK_OK(submit(watch.pool, 10));
    CHECK_INT(pthread_create(&thread, NULL, step_for_ever, watch.pool), 0);
    sem_wait(&is_inside);
    check_all_calls_are_busy(watch.pool);
    sem_post(&may_go);
    pthread_join(thread, &ended);
    CHECK(!sbtest_failed_now && ended == watch.pool);
    CHECK_OK(specbatch_pool_collect(watch.pool, &result));
    specbatch_result_tokens(result, &n);
    CHECK_INT(n, 10);
    specbatch_result_free(result);
    specbatch_pool_free(watch.pool);
    CHECK_INT(outstanding(), 0);
}

enum { N_CALLS = 300 };

static void *call_often(void *pool)
{
    size_t n_strange = 0;
    uint64_t value;

    for (int i = 0; i < N_CALLS; i++) {
        const int32_t step = specbatch_pool_step(pool, NULL),
                      stat = specbatch_pool_stat(pool, "rounds", &value);
        n_strange += (step != SPECBATCH_OK && step != SPECBATCH_E_BUSY) ||
                     (stat != SPECBATCH_OK && stat != SPECBATCH_E_BUSY);
    }
    return n_strange ? NULL : pool;
}

/* Two threads want to step at the same time: one gets in, and the other is told. A thread sanitizer
 * sees no race. */
static void test_two_threads_take_turns_or_are_refused(void)
{
    const specbatch_pool_options options = watched_options(1);
    specbatch_result *result;
    pthread_t thread;
    void *theirs = NULL, *ours;
    size_t n;

    begin_watch();
    CHECK_OK(specbatch_pool_create(&watch.pool, target, NULL, &options));
    CHECK_OK(submit(watch.pool, 50));
    CHECK_INT(pthread_create(&thread, NULL, call_often, watch.pool), 0);
    ours = call_often(watch.pool);
    pthread_join(thread, &theirs);
    CHECK(ours && theirs);
    CHECK_OK(run_to_end(watch.pool));
    CHECK_OK(specbatch_pool_collect(watch.pool, &result));
    specbatch_result_tokens(result, &n);
    CHECK_INT(n, 50);
    specbatch_result_free(result);
    specbatch_pool_free(watch.pool);
    CHECK_INT(outstanding(), 0);
}

TEST_BEGIN
if (specbatch_model_open(&target, TARGET, NULL)) {
    printf("FAIL the model does not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_callbacks_run_in_the_mode_of_the_host);
RUN(test_a_callback_may_change_the_mode);
RUN(test_a_pool_left_by_longjmp_is_dead_and_can_be_freed);
RUN(test_a_pool_left_by_longjmp_can_be_freed_at_once);
RUN(test_where_it_cannot_be_told_the_pool_is_busy);
RUN(test_freeing_in_a_callback_is_refused_aloud);
RUN(test_a_pool_whose_mask_was_left_by_longjmp_is_dead);
RUN(test_a_mask_may_interrupt_its_pool_and_not_step_it);
RUN(test_two_pools_left_at_once);
RUN(test_memory_hooks_left_by_longjmp);
RUN(test_a_free_hook_left_while_the_queue_grows);
RUN(test_another_thread_is_told_that_it_is_one);
RUN(test_two_threads_take_turns_or_are_refused);
specbatch_model_close(target);
TEST_END
