/*
 * Who may use what, where and for how long: forked children, and results that outlive their pool on
 * another thread.
 *
 * A child reports failures through its exit status, and an alarm kills it when it hangs; both fail
 * the test that forked it. The memory hooks count what is outstanding, so a child that frees less
 * than it should, or frees something twice, is noticed.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "port.h"
#include "sbtest.h"
#include "pool/pool.h"
#include "support/drafts.h"
#include "support/failalloc.h"
#include "backend/threads.h"

#define MODEL "examples/demo/draft"

enum { HANG_SECONDS = 60, N_REQUESTS = 4, MAX_NEW = 12 };

static struct failalloc memory;

static specbatch_model *open_model(void)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;
    specbatch_model *model = NULL;

    options.alloc = failalloc_alloc;
    options.free = failalloc_free;
    options.alloc_user = &memory;
    return specbatch_model_open(&model, MODEL, &options) == SPECBATCH_OK ? model : NULL;
}

static specbatch_pool *create_pool(specbatch_model *model, int32_t n_threads)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;

    options.batch = 2;
    options.max_len = 64;
    options.n_threads = n_threads;
    options.alloc = failalloc_alloc;
    options.free = failalloc_free;
    options.alloc_user = &memory;
    return create_with_model(&pool, model, model, &options) == SPECBATCH_OK ? pool : NULL;
}

static int32_t submit(specbatch_pool *pool, int32_t i)
{
    const int32_t ids[3] = {20 + i, 31, 42};
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = ids;
    request.n_ids = 3;
    request.max_new = MAX_NEW;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    return specbatch_pool_submit(pool, &request, NULL);
}

/* Runs the pool until `n` more requests have finished, and keeps their tokens by id. 0: something
 * failed. */
static int run_pool(specbatch_pool *pool, int n, int32_t tokens[N_REQUESTS][MAX_NEW])
{
    specbatch_result *result;
    size_t length;

    while (n > 0) {
        if (specbatch_pool_step(pool, NULL) != SPECBATCH_OK)
            return 0;
        while (n > 0 && specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
            memcpy(tokens[specbatch_result_id(result) - 1],
                   specbatch_result_tokens(result, &length), MAX_NEW * sizeof **tokens);
            specbatch_result_free(result);
            n--;
        }
    }
    return 1;
}

/* ------------------------------------------------------------------------ forks */

/* Runs a test function in a forked child. */
static void in_child(void (*test)(void), const char *what)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        alarm(HANG_SECONDS);
        test();
        fflush(stdout);
        _exit(sbtest_failed_now);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status))
        FAIL("%s: the child %s", what, WTERMSIG(status) == SIGALRM ? "hangs" : "died of a signal");
    if (WEXITSTATUS(status) != 0)
        FAIL("%s: the child failed with exit status %d", what, WEXITSTATUS(status));
}

static struct sb_threads *forked_threads;

static void free_threads(void)
{
    sb_threads_free(forked_threads);
    CHECK_INT(atomic_load(&memory.outstanding), 0);
    CHECK(!atomic_load(&memory.broken));
}

static void do_nothing(void *ctx, int64_t first, int64_t last)
{
    (void)ctx;
    (void)first;
    (void)last;
}

/* The fork happens while workers poll, while they fall asleep, and when they have been asleep for
 * long. */
static void test_thread_pool_after_fork(void)
{
    const struct sb_mem mem = {failalloc_alloc, failalloc_free, &memory};

    for (int i = 0; i < 12; i++) {
        const struct timespec nap = {0, i < 8 ? i * 20000 : 30000000};
        CHECK_OK(sb_threads_create(&forked_threads, &mem, 2 + i % 3));
        sb_threads_for(forked_threads, 100, 1, do_nothing, NULL);
        nanosleep(&nap, NULL);
        in_child(free_threads, "sb_threads_free");
        if (sbtest_failed_now)
            return;
        sb_threads_free(forked_threads);
        CHECK_INT(atomic_load(&memory.outstanding), 0);
    }
}

/* What the parent has when it forks: a model, a pool with waiting, running and finished requests, a
 * result and a text stream. */
static struct {
    specbatch_model *model;
    specbatch_pool *pool;
    specbatch_result *result;
    specbatch_text_stream *stream;
    int32_t tokens[N_REQUESTS][MAX_NEW];
} parent;

static void make_parent(void)
{
    int32_t others[N_REQUESTS][MAX_NEW];
    specbatch_pool *pool;

    failalloc_arm(&memory, 0, 0);
    CHECK((parent.model = open_model()) != NULL);
    CHECK((pool = create_pool(parent.model, 2)) != NULL);
    for (int32_t i = 0; i < N_REQUESTS; i++)
        CHECK_OK(submit(pool, i));
    CHECK(run_pool(pool, N_REQUESTS, parent.tokens)); /* the tokens without a fork */
    specbatch_pool_free(pool);
    CHECK((parent.pool = create_pool(parent.model, 2)) != NULL);
    for (int32_t i = 0; i < N_REQUESTS; i++)
        CHECK_OK(submit(parent.pool, i));
    CHECK(run_pool(parent.pool, 1, others));
    while (specbatch_pool_collect(parent.pool, &parent.result) == SPECBATCH_E_EMPTY)
        CHECK_OK(specbatch_pool_step(parent.pool, NULL));
    CHECK_OK(specbatch_text_stream_create(&parent.stream, parent.model, 0));
}

static void free_parent(void)
{
    specbatch_text_stream_free(parent.stream);
    specbatch_result_free(parent.result);
    specbatch_pool_free(parent.pool);
    specbatch_model_close(parent.model);
    memset(&parent, 0, sizeof parent);
}

static void check_refusals(void)
{
    specbatch_result *result = NULL;
    int32_t ids[8];
    size_t n = 77;

    CHECK_ERROR(specbatch_pool_step(parent.pool, &n), SPECBATCH_E_INVALID, "before a fork");
    CHECK_ERROR(submit(parent.pool, 1), SPECBATCH_E_INVALID, "before a fork");
    CHECK_ERROR(specbatch_pool_cancel(parent.pool, 4), SPECBATCH_E_INVALID, "before a fork");
    CHECK_ERROR(specbatch_pool_poll(parent.pool, 4, ids, 8, &n), SPECBATCH_E_INVALID,
                "before a fork");
    CHECK_ERROR(specbatch_pool_collect(parent.pool, &result), SPECBATCH_E_INVALID, "before a fork");
    CHECK(n == 77 && !result);
    CHECK_OK(specbatch_pool_interrupt(parent.pool));
}

static void refuse_and_free(void)
{
    const char *text;
    int32_t id = 40;
    size_t n;

    check_refusals();
    specbatch_result_tokens(parent.result, &n);
    CHECK_INT(n, MAX_NEW);
    CHECK_OK(specbatch_text_stream_push(parent.stream, &id, 1, &text, NULL));
    free_parent();
    CHECK_INT(atomic_load(&memory.outstanding), 0);
    CHECK(!atomic_load(&memory.broken));
}

/* A model on the CPU is ordinary memory, which a child may use: a server may open a model once and
 * then fork. */
static void use_the_model(void)
{
    int32_t tokens[N_REQUESTS][MAX_NEW];
/* With a thread sanitizer, the fork of a program with threads cannot start others. */
#if defined(__SANITIZE_THREAD__)
    specbatch_pool *pool = create_pool(parent.model, 1);
#else
    specbatch_pool *pool = create_pool(parent.model, 2);
#endif

    CHECK(pool != NULL);
    for (int32_t i = 0; i < N_REQUESTS; i++)
        CHECK_OK(submit(pool, i));
    CHECK(run_pool(pool, N_REQUESTS, tokens));
    CHECK_MEM(tokens, parent.tokens, sizeof tokens);
    specbatch_pool_free(pool);
    free_parent();
    CHECK_INT(atomic_load(&memory.outstanding), 0);
}

static void test_pool_after_fork(void)
{
    make_parent();
    if (sbtest_failed_now)
        return;
    in_child(refuse_and_free, "an inherited pool");
    in_child(use_the_model, "an inherited model");
    /* The parent goes on as if there had been no fork. */
    CHECK(run_pool(parent.pool, N_REQUESTS - 2, parent.tokens));
    free_parent();
    CHECK_INT(atomic_load(&memory.outstanding), 0);
}

/* The CPU backend stands for a device whose memory a forked child must not touch: the calls that
 * would free it are counted. */
static struct sb_backend device;
static int n_device_calls;

static void count_free(struct sb_device *d, const struct sb_mem *mem, void *block)
{
    n_device_calls++;
    sb_backend_cpu()->free(d, mem, block);
}

static void count_exec_free(struct sb_exec *exec)
{
    n_device_calls++;
    sb_backend_cpu()->exec_free(exec);
}

static void count_weight_free(struct sb_weight *weight, struct sb_device *d,
                              const struct sb_mem *mem)
{
    n_device_calls++;
    sb_backend_cpu()->weight_free(weight, d, mem);
}

static void count_close(struct sb_device *d)
{
    n_device_calls++;
    sb_backend_cpu()->device_close(d);
}

static void leave_the_device_alone(void)
{
    specbatch_pool *pool = NULL;

    check_refusals();
    CHECK_ERROR(specbatch_pool_create(&pool, parent.model, NULL, NULL), SPECBATCH_E_INVALID,
                "a fork of the process");
    free_parent();
    CHECK_INT(n_device_calls, 0);
}

static void test_device_after_fork(void)
{
    device = *sb_backend_cpu();
    device.free = device.host_free = count_free;
    device.exec_free = count_exec_free;
    device.weight_free = count_weight_free;
    device.device_close = count_close;
    make_parent();
    if (sbtest_failed_now)
        return;
    specbatch_pool_free(parent.pool);
    parent.model->backend = &device;
    parent.model->process = sb_port_process(); /* as if it had been opened on a GPU */
    CHECK((parent.pool = create_pool(parent.model, 2)) != NULL);
    n_device_calls = 0;
    in_child(leave_the_device_alone, "a model on a device");
    free_parent();
    CHECK(n_device_calls > 10);
    CHECK_INT(atomic_load(&memory.outstanding), 0);
}

/* --------------------------------------------------------------------- results */

/* Results on their way from the thread that steps to the one that reads and frees them. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    specbatch_result *at[2 * N_REQUESTS];
    int n, closed;
} handed = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {NULL}, 0, 0};

static void hand_over(specbatch_result *result)
{
    pthread_mutex_lock(&handed.lock);
    if (result)
        handed.at[handed.n++] = result;
    else
        handed.closed = 1;
    pthread_cond_signal(&handed.changed);
    pthread_mutex_unlock(&handed.lock);
}

static void *consume(void *count)
{
    specbatch_result *result = NULL;

    do {
        pthread_mutex_lock(&handed.lock);
        while (handed.n == 0 && !handed.closed)
            pthread_cond_wait(&handed.changed, &handed.lock);
        result = handed.n > 0 ? handed.at[--handed.n] : NULL;
        pthread_mutex_unlock(&handed.lock);
        if (result) {
            size_t n;
            specbatch_result_tokens(result, &n);
            *(size_t *)count += n;
            specbatch_result_free(result);
        }
    } while (result);
    return NULL;
}

/* Results are freed on another thread while the pool still takes memory through the same hooks, and
 * after pool and model are gone. */
static void test_results_on_another_thread(void)
{
    specbatch_result *result, *last = NULL;
    specbatch_model *model;
    specbatch_pool *pool;
    pthread_t consumer;
    size_t n_tokens = 0, active = 1, n;

    failalloc_arm(&memory, 0, 0);
    CHECK((model = open_model()) != NULL);
    CHECK((pool = create_pool(model, 2)) != NULL);
    CHECK_INT(pthread_create(&consumer, NULL, consume, &n_tokens), 0);
    for (int32_t i = 0; i < 2 * N_REQUESTS; i++)
        CHECK_OK(submit(pool, i));
    while (active) {
        CHECK_OK(specbatch_pool_step(pool, &active));
        while (specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
            if (last)
                hand_over(last);
            last = result;
        }
    }
    specbatch_pool_free(pool);
    specbatch_model_close(model);
    specbatch_result_tokens(last, &n);
    CHECK_INT(n, MAX_NEW);
    CHECK(strstr(specbatch_result_fingerprint(last), "specbatch") != NULL);
    hand_over(last);
    hand_over(NULL);
    CHECK_INT(pthread_join(consumer, NULL), 0);
    CHECK_INT(n_tokens, 2 * N_REQUESTS * MAX_NEW);
    CHECK_INT(atomic_load(&memory.outstanding), 0);
    CHECK(!atomic_load(&memory.broken));
}

TEST_BEGIN
RUN(test_thread_pool_after_fork);
RUN(test_pool_after_fork);
RUN(test_device_after_fork);
RUN(test_results_on_another_thread);
TEST_END
