/*
 * Pools of one model that are created at once, on the simulated device. A new pool tests who may
 * make its products and its prompts' attention, and what it finds is kept with the model, behind
 * locks. No function of the host is called while one is held: a log or memory function may wait for
 * a thread that creates a pool of the same model, and one that never returns leaves the model as it
 * was.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "cudasim.h"

#include "cuda/three_spans.h"
#include "sbtest.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"

enum { ROWS = 40, THREADS = 4, MOST_MS = 20000 };

/* What the functions of the host do while `is_armed`: wait for another thread's pool. */
static struct {
    specbatch_model *model;
    int32_t max_len;
    atomic_int is_armed, has_ended; /* has_ended: the other thread's pool is there */
    pthread_t thread;
    int32_t rc;      /* of that pool */
    int n_waited;    /* such pools so far */
    int is_late;     /* one did not come, and its thread still runs */
    jmp_buf *escape; /* where the log function goes instead, or NULL */
} host;

/* Creates a pool whose products have up to so many rows, and frees it. */
static int32_t create(int32_t rows)
{
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;
    int32_t rc;

    options.policy = SPECBATCH_POLICY_PLAIN;
    options.batch = 1;
    options.draft_len = -1;
    options.max_len = host.max_len;
    options.prefill_chunk = rows;
    rc = specbatch_pool_create(&pool, host.model, NULL, &options);
    specbatch_pool_free(pool);
    return rc;
}

/* Each of these pools has more rows than those before it, so it needs tests of its own. */
static void *create_another(void *unused)
{
    (void)unused;
    host.rc = create(ROWS + 1 + host.n_waited);
    atomic_store(&host.has_ended, 1);
    return NULL;
}

static int has_ended(void)
{
    const struct timespec one_ms = {0, 1000000};

    for (int ms = 0; ms < MOST_MS && !atomic_load(&host.has_ended); ms++)
        (void)nanosleep(&one_ms, NULL);
    return atomic_load(&host.has_ended);
}

static void wait_for_another(void)
{
    if (!atomic_exchange(&host.is_armed, 0))
        return;
    atomic_store(&host.has_ended, 0);
    host.is_late = pthread_create(&host.thread, NULL, create_another, NULL) != 0 || !has_ended();
    if (host.is_late)
        return;
    (void)pthread_join(host.thread, NULL);
    host.n_waited++;
    atomic_store(&host.is_armed, host.rc == SPECBATCH_OK);
}

static void *waiting_alloc(void *user, size_t size, size_t align)
{
    (void)user;
    wait_for_another();
    return aligned_alloc(align, size);
}

static void waiting_free(void *user, void *block, size_t size)
{
    (void)user;
    (void)size;
    wait_for_another();
    free(block);
}

static void waiting_log(void *user, int32_t level, const char *line)
{
    jmp_buf *const escape = host.escape;

    (void)user;
    (void)level;
    (void)line;
    host.escape = NULL;
    if (escape)
        longjmp(*escape, 1);
    wait_for_another();
}

static int32_t open_model(const char *path, int32_t max_len, int32_t prefill, const char *plan_file)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    memset(&host, 0, sizeof host);
    options.device = SPECBATCH_DEVICE_CUDA;
    options.compute = SPECBATCH_COMPUTE_BF16;
    options.log = waiting_log;
    options.alloc = waiting_alloc;
    options.free = waiting_free;
    options.prefill = prefill;
    options.plan_file = plan_file;
    host.max_len = max_len;
    return specbatch_model_open(&host.model, path, &options);
}

/* Creates a pool while the host's functions wait for others. Whether all were there in time. */
static void check_creation(int32_t least)
{
    atomic_store(&host.is_armed, 1);
    const int32_t rc = create(ROWS);
    atomic_store(&host.is_armed, 0);
    if (host.is_late)
        (void)pthread_join(host.thread, NULL);
    specbatch_model_close(host.model);
    printf("     waited for %d pools\n", host.n_waited);
    CHECK_INT(host.is_late, 0);
    CHECK_OK(rc);
    CHECK_OK(host.rc);
    CHECK(host.n_waited >= least);
    CHECK(cudasim_device_bytes() == 0 && cudasim_host_bytes() == 0 && cudasim_objects() == 0);
}

static void test_functions_of_the_host_wait_for_pools(void)
{
    CHECK_OK(open_model(TARGET, 64, SPECBATCH_PREFILL_OWN, NULL));
    check_creation(5); /* at least the log's, with a line for each shape of weight */
}

/* The file of plans is read and written, and both take memory. */
static void test_they_wait_where_plans_are_kept(void)
{
    struct test_dir dir = test_dir_make();
    char path[128];

    snprintf(path, sizeof path, "%s/plans", dir.path);
    CHECK_OK(open_model(TARGET, 64, SPECBATCH_PREFILL_OWN, path));
    check_creation(2);
    CHECK_INT(access(path, R_OK), 0);
    test_dir_remove(&dir);
}

/* Slots of more than a span have plans of cuDNN, which take memory too. */
static void test_they_wait_where_prompts_are_long(void)
{
    struct test_dir dir = three_spans_make();

    cudasim_cudnn(91900);
    CHECK_OK(open_model(dir.path, 300, SPECBATCH_PREFILL_CUDNN, NULL));
    CHECK(strstr(specbatch_model_fingerprint(host.model), "prefill cudnn") != NULL);
    check_creation(6);
    cudasim_cudnn(0);
    test_dir_remove(&dir);
}

static void *create_so_many(void *rows)
{
    const int32_t rc = create(*(int32_t *)rows);

    *(int32_t *)rows = rc;
    return NULL;
}

static void test_threads_at_once(void)
{
    int32_t results[THREADS];
    pthread_t threads[THREADS];

    CHECK_OK(open_model(TARGET, 64, SPECBATCH_PREFILL_OWN, NULL));
    for (int32_t i = 0; i < THREADS; i++) {
        results[i] = ROWS + 3 * (i % 2) + i; /* some need what others have tested, some more */
        CHECK_INT(pthread_create(&threads[i], NULL, create_so_many, &results[i]), 0);
    }
    for (int32_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    for (int32_t i = 0; i < THREADS; i++)
        CHECK_OK(results[i]);
    specbatch_model_close(host.model);
    CHECK(cudasim_device_bytes() == 0 && cudasim_host_bytes() == 0 && cudasim_objects() == 0);
}

/* The log function leaves by longjmp. What was being created is lost, and the next pool is created
 * as ever. */
static void test_a_log_function_that_does_not_return(void)
{
    static jmp_buf escape;

    CHECK_OK(open_model(TARGET, 64, SPECBATCH_PREFILL_OWN, NULL));
    if (!setjmp(escape)) {
        host.escape = &escape;
        (void)create(ROWS);
    }
    CHECK(host.escape == NULL);
    CHECK_INT(pthread_create(&host.thread, NULL, create_another, NULL), 0);
    CHECK(has_ended());
    CHECK_INT(pthread_join(host.thread, NULL), 0);
    CHECK_OK(host.rc);
    specbatch_model_close(host.model);
}

TEST_BEGIN
RUN(test_functions_of_the_host_wait_for_pools);
RUN(test_they_wait_where_plans_are_kept);
RUN(test_they_wait_where_prompts_are_long);
RUN(test_threads_at_once);
RUN(test_a_log_function_that_does_not_return);
TEST_END
