/*
 * Interruptions: from a callback, from a signal handler and from other threads, in the middle of
 * rounds and between them, under every policy. Each ends one step or run, and no token changes.
 */
#include "sbtest.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>

#include "support/drafts.h"
#include "support/pool_check.h"
#include "support/small_pool.h"

enum { N = 6, MAX_NEW = 30 };

static specbatch_pool *pool;
static int32_t reference[N][MAX_NEW];

/* What the draft callback does beside proposing. */
static struct {
    int n_calls;
    int interrupt_at;   /* the call in which it interrupts the pool; 0: none */
    int by_signal;      /* it does so by raising a signal */
    int inside_rc;      /* what specbatch_pool_interrupt returned */
    sem_t *wake;        /* posted in every call, if not NULL */
    uint64_t of_a_step; /* requests that it was asked for since this was last set to 0 */
} script;

static void on_signal(int number)
{
    (void)number;
    script.inside_rc = specbatch_pool_interrupt(pool);
}

static void scripted_row(specbatch_draft_row *row)
{
    script.of_a_step++;
    if (++script.n_calls == script.interrupt_at) {
        if (script.by_signal)
            raise(SIGUSR1);
        else
            script.inside_rc = specbatch_pool_interrupt(pool);
    }
    if (script.wake)
        sem_post(script.wake);
    for (int32_t i = 0; i < row->k; i++)
        row->out[i] = row->tokens[(row->n_tokens + (size_t)i) % row->n_tokens];
    row->n_out = row->k;
}

static int32_t scripted_draft(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++)
        scripted_row(rows[b]);
    return 0;
}

static int32_t submit_all(void)
{
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < N && rc == SPECBATCH_OK; i++) {
        specbatch_request request = small_request(MAX_NEW - 2 * i);
        request.n_ids -= (size_t)i;
        rc = specbatch_pool_submit(pool, &request, NULL);
    }
    return rc;
}

/* Makes the pool of a test, with N requests: drafted by the callback, or by the draft model. */
static int32_t begin(int32_t policy, int with_model)
{
    const specbatch_draft_ops ops = only_propose(scripted_draft, NULL);
    specbatch_pool_options options = small_options(policy);
    int32_t rc;

    memset(&script, 0, sizeof script);
    script.inside_rc = 1;
    options.batch = 3;
    options.draft_len = 3;
    rc = with_model ? specbatch_pool_create(&pool, target, draft, &options)
                    : create_with_ops(&pool, target, &ops, &options);
    return rc == SPECBATCH_OK ? submit_all() : rc;
}

/* Collects all results and compares them with the reference, or makes them the reference. */
static void compare_results(int make)
{
    for (int i = 0; i < N; i++) {
        specbatch_result *result = take(pool);
        const int32_t *ids;
        size_t n;

        CHECK(result != NULL);
        ids = specbatch_result_tokens(result, &n);
        const uint64_t at = specbatch_result_id(result) - 1;
        CHECK_INT(n, (size_t)MAX_NEW - 2 * at);
        if (make)
            memcpy(reference[at], ids, n * sizeof *ids);
        CHECK_MEM(reference[at], ids, n * sizeof *ids);
        specbatch_result_free(result);
    }
    CHECK(!take(pool));
}

/* A run without interruptions is a loop of steps. It gives the tokens that the others must have. */
static void test_a_run_goes_to_the_end(void)
{
    size_t active = 9;

    CHECK_OK(begin(SPECBATCH_POLICY_RAGGED, 0));
    CHECK_OK(specbatch_pool_run(pool));
    CHECK_OK(specbatch_pool_step(pool, &active));
    CHECK_INT(active, 0);
    CHECK_OK(specbatch_pool_run(pool)); /* with nothing to do */
    CHECK_ERROR(specbatch_pool_run(NULL), SPECBATCH_E_INVALID, "pool");
    compare_results(1);
    specbatch_pool_free(pool);
}

/* An interruption that finds no step ends the next one, however many there were; and only that. */
static void test_an_interruption_ends_one_step(void)
{
    size_t active = 9;

    CHECK_OK(begin(SPECBATCH_POLICY_RAGGED, 0));
    CHECK_OK(specbatch_pool_interrupt(pool));
    CHECK_OK(specbatch_pool_interrupt(pool));
    CHECK_ERROR(specbatch_pool_step(pool, &active), SPECBATCH_E_INTERRUPTED, "interrupt");
    CHECK_INT(active, 9);
    CHECK_INT(stat(pool, "rounds"), 0);
    CHECK_OK(specbatch_pool_interrupt(pool));
    CHECK_ERROR(specbatch_pool_run(pool), SPECBATCH_E_INTERRUPTED, "interrupt");
    CHECK_OK(specbatch_pool_run(pool));
    CHECK_OK(specbatch_pool_interrupt(pool));
    CHECK_ERROR(specbatch_pool_run(pool), SPECBATCH_E_INTERRUPTED, "interrupt");
    CHECK_OK(specbatch_pool_run(pool));
    CHECK_ERROR(specbatch_pool_interrupt(NULL), SPECBATCH_E_INVALID, "pool");
    compare_results(0);
    specbatch_pool_free(pool);
}

/* An interruption between two steps touches no request of the round before: one that began and
 * ended in it has told all that it has to tell, and may be gone. */
static void test_an_interrupted_step_leaves_ended_requests_alone(void)
{
    const specbatch_pool_options options = small_options(SPECBATCH_POLICY_RAGGED);
    const specbatch_request request = small_request(1);
    specbatch_event event = SPECBATCH_EVENT_INIT;

    for (int is_freed = 0; is_freed < 2; is_freed++) {
        CHECK_OK(specbatch_pool_create(&pool, target, NULL, &options));
        CHECK_OK(specbatch_pool_submit(pool, &request, NULL));
        CHECK_OK(specbatch_pool_step(pool, NULL));
        CHECK_OK(specbatch_pool_next_event(pool, &event));
        CHECK_INT(event.finish, SPECBATCH_FINISH_LENGTH);
        if (is_freed)
            specbatch_result_free(take(pool));
        CHECK_OK(specbatch_pool_interrupt(pool));
        CHECK_ERROR(specbatch_pool_step(pool, NULL), SPECBATCH_E_INTERRUPTED, "interrupt");
        CHECK_INT(specbatch_pool_next_event(pool, &event), SPECBATCH_E_EMPTY);
        CHECK_OK(pool_check(pool));
        specbatch_pool_free(pool);
    }
}

/* Interrupts in call number `at` of the draft callback. The round it comes in gives no tokens, and
 * the next step asks for the same proposals again. */
static void interrupt_inside(int32_t policy, int at, int by_signal)
{
    uint64_t tokens, asked;
    int32_t rc = SPECBATCH_OK;

    CHECK_OK(begin(policy, 0));
    script.interrupt_at = at;
    script.by_signal = by_signal;
    do {
        tokens = stat(pool, "tokens_committed");
        script.of_a_step = 0;
        rc = specbatch_pool_step(pool, NULL);
    } while (rc == SPECBATCH_OK && script.n_calls < 1000 && script.inside_rc == 1);
    CHECK_INT(script.inside_rc, SPECBATCH_OK);
    CHECK_INT(rc, SPECBATCH_E_INTERRUPTED);
    CHECK_INT(stat(pool, "tokens_committed"), tokens);
    CHECK_OK(pool_check(pool));
    asked = script.of_a_step;
    script.of_a_step = 0;
    CHECK_OK(specbatch_pool_step(pool, NULL));
    if (policy == SPECBATCH_POLICY_RAGGED)
        CHECK_INT(script.of_a_step, asked);
    CHECK_OK(specbatch_pool_run(pool));
    compare_results(0);
    specbatch_pool_free(pool);
}

static void test_from_a_callback(void)
{
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++)
        for (int at = 1; at <= 12 && policy != SPECBATCH_POLICY_PLAIN; at++) {
            interrupt_inside(policy, at, 0);
            if (sbtest_failed_now)
                FAIL("%s, call %d", specbatch_policy_name(policy), at);
        }
}

static void test_from_a_signal_handler(void)
{
    struct sigaction action, old;

    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK(sigaction(SIGUSR1, &action, &old) == 0);
    interrupt_inside(SPECBATCH_POLICY_EXSPEC, 5, 1);
    sigaction(SIGUSR1, &old, NULL);
}

/* --------------------------------------------------------------- from other threads */

enum { N_INTERRUPTIONS = 40 };

static sem_t wake, first_done;

/* Interrupts the pool so many times: whenever the draft callback is asked, or now and then. */
static void *interrupter(void *with_model)
{
    const struct timespec nap = {0, 200000};

    for (int i = 0; i < N_INTERRUPTIONS; i++) {
        if (i > 0 && with_model)
            nanosleep(&nap, NULL);
        else if (i > 0)
            sem_wait(&wake);
        specbatch_pool_interrupt(pool);
        if (i == 0)
            sem_post(&first_done);
    }
    return NULL;
}

static void interrupt_from_a_thread(int32_t policy, int with_model)
{
    pthread_t thread;
    int n_interrupted = 0;
    int32_t rc;

    CHECK_OK(begin(policy, with_model));
    script.wake = &wake;
    CHECK(sem_init(&wake, 0, 0) == 0 && sem_init(&first_done, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, interrupter, with_model ? &wake : NULL) == 0);
    sem_wait(&first_done);
    while ((rc = specbatch_pool_run(pool)) == SPECBATCH_E_INTERRUPTED) {
        n_interrupted++;
        CHECK_OK(pool_check(pool));
    }
    for (int i = 0; i < N_INTERRUPTIONS; i++)
        sem_post(&wake); /* for those that the callback was not asked often enough for */
    pthread_join(thread, NULL);
    CHECK_INT(rc, SPECBATCH_OK);
    CHECK(n_interrupted >= 1);
    compare_results(0);
    specbatch_pool_free(pool);
    sem_destroy(&wake);
    sem_destroy(&first_done);
}

static void test_from_another_thread(void)
{
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++)
        for (int with_model = 0; with_model <= 1; with_model++) {
            interrupt_from_a_thread(policy, with_model);
            if (sbtest_failed_now)
                FAIL("%s, %s", specbatch_policy_name(policy), with_model ? "model" : "callback");
        }
}

TEST_BEGIN
if (open_pair() != 0) {
    printf("FAIL the models do not open: %s\n", specbatch_last_error());
    return 1;
}
RUN(test_a_run_goes_to_the_end);
RUN(test_an_interruption_ends_one_step);
RUN(test_an_interrupted_step_leaves_ended_requests_alone);
RUN(test_from_a_callback);
RUN(test_from_a_signal_handler);
RUN(test_from_another_thread);
close_pair();
TEST_END
