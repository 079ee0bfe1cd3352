/* The thread pool does every item once, whatever the sizes; its workers all come when they are
 * called, and no thread waits for one that has nothing in hand. It is also created and freed many
 * times, put to sleep and woken, run out of memory, and refused threads. */
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "backend/threads.h"

#include "port.h"
#include "sbtest.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
enum { ITEMS = 3000 };

static const struct sb_mem mem = {NULL, NULL, NULL};

struct tally {
    /* How often each item was done. Not atomic, so that the thread sanitizer reports two threads
     * that work on one item. */
    int32_t times[ITEMS];
    atomic_int ranges;
};

static void count_items(void *ctx, int64_t first, int64_t last)
{
    struct tally *tally = ctx;
    for (int64_t i = first; i < last; i++)
        tally->times[i]++;
    atomic_fetch_add(&tally->ranges, 1);
}

/* Runs a loop over n items several times. Returns what went wrong, or NULL. */
static const char *check_loop(struct sb_threads *threads, int64_t n, int64_t grain, int rounds)
{
    static struct tally tally;

    memset(&tally, 0, sizeof tally);
    for (int round = 0; round < rounds; round++)
        sb_threads_for(threads, n, grain, count_items, &tally);
    for (int64_t i = 0; i < ITEMS; i++)
        if (tally.times[i] != (i < n ? rounds : 0))
            return "an item was done the wrong number of times";
    return atomic_load(&tally.ranges) > rounds * (n / grain + 1) ? "too many ranges" : NULL;
}

static void test_loops(void)
{
    static const int32_t counts[] = {1, 2, 3, 8, 17};
    static const int64_t sizes[] = {0, 1, 2, 7, 100, ITEMS}, grains[] = {1, 3, 64, 5000};

    for (int c = 0; c < COUNT(counts); c++) {
        struct sb_threads *threads;
        CHECK_OK(sb_threads_create(&threads, &mem, counts[c]));
        for (int s = 0; s < COUNT(sizes); s++)
            for (int g = 0; g < COUNT(grains); g++) {
                const char *wrong = check_loop(threads, sizes[s], grains[g], 5);
                if (wrong)
                    FAIL("%d threads, %d items by %d: %s", (int)counts[c], (int)sizes[s],
                         (int)grains[g], wrong);
            }
        sb_threads_free(threads);
    }
}

/* Many short loops with pauses in between, some long enough for the workers to sleep. */
static void test_sleep_and_wake(void)
{
    struct sb_threads *threads;

    CHECK_OK(sb_threads_create(&threads, &mem, 4));
    for (int i = 0; i < 300; i++) {
        const char *wrong = check_loop(threads, 16, 1, 3);
        struct timespec gap = {0, i % 10 == 0 ? 2000000 : 1000 * (i % 50)};
        if (wrong)
            FAIL("loop %d: %s", i, wrong);
        nanosleep(&gap, NULL);
    }
    sb_threads_free(threads);
}

struct meeting {
    int wanted;
    atomic_int arrived, given_up;
};

/* Waits until as many as are wanted have arrived, for ten seconds or so. */
static void wait_for_all(struct meeting *meeting)
{
    const struct timespec nap = {0, 10000};

    for (int32_t naps = 0; atomic_load(&meeting->arrived) < meeting->wanted; naps++) {
        if (naps == 100000)
            atomic_store(&meeting->given_up, 1);
        if (atomic_load(&meeting->given_up))
            return;
        nanosleep(&nap, NULL);
    }
}

/* Returns when as many threads as are wanted are in it at once. */
static void meet(void *ctx, int64_t first, int64_t last)
{
    struct meeting *meeting = ctx;

    atomic_fetch_add(&meeting->arrived, (int)(last - first));
    wait_for_all(meeting);
}

/* Every worker comes, from its sleep too, if there are processors for all. */
static void test_every_worker_comes(void)
{
    const int32_t n_processors = sb_port_n_processors(), most = n_processors < 8 ? n_processors : 8;
    struct sb_threads *threads;

    if (most < 2)
        SKIP("one processor");
    CHECK_OK(sb_threads_create(&threads, &mem, most));
    for (int i = 0; i < 200; i++) {
        struct meeting meeting = {.wanted = most};
        struct timespec gap = {0, i % 10 == 0 ? 2000000 : 1000 * (i % 50)};
        sb_threads_for(threads, most, 1, meet, &meeting);
        CHECK(!atomic_load(&meeting.given_up));
        nanosleep(&gap, NULL);
    }
    sb_threads_free(threads);
}

/* Item 0 waits until all the others are done. */
static void wait_for_the_others(void *ctx, int64_t first, int64_t last)
{
    struct meeting *meeting = ctx;

    if (first == 0)
        wait_for_all(meeting);
    else
        atomic_fetch_add(&meeting->arrived, (int)(last - first));
}

/* A thread that is held up holds up no more than the range that it has claimed: others do the rest
 * of its share. */
static void test_a_share_of_a_slow_thread(void)
{
    static const int32_t counts[] = {2, 3, 8};

    if (sb_port_n_processors() < 2)
        SKIP("one processor");
    for (int c = 0; c < COUNT(counts); c++) {
        struct sb_threads *threads;
        CHECK_OK(sb_threads_create(&threads, &mem, counts[c]));
        for (int i = 0; i < 50; i++) {
            struct meeting meeting = {.wanted = 99};
            sb_threads_for(threads, 100, 1, wait_for_the_others, &meeting);
            CHECK(!atomic_load(&meeting.given_up));
        }
        sb_threads_free(threads);
    }
}

static void test_create_and_free(void)
{
    for (int i = 0; i < 200; i++) {
        struct sb_threads *threads;
        CHECK_OK(sb_threads_create(&threads, &mem, 1 + i % 7));
        if (i % 3 == 0) {
            const char *wrong = check_loop(threads, 50, 1, 1);
            if (wrong)
                FAIL("pool %d: %s", i, wrong);
        }
        sb_threads_free(threads);
    }
    sb_threads_free(NULL);
}

struct environment {
    atomic_int denormals; /* halves of the smallest normal that were not flushed */
};

static void halve_tiny(void *ctx, int64_t first, int64_t last)
{
    struct environment *environment = ctx;
    volatile float tiny = 0x1p-126f;
    struct timespec nap = {0, 100000}; /* long enough for every worker to get some ranges */

    for (int64_t i = first; i < last; i++)
        if (tiny / 2.0f != 0.0f)
            atomic_fetch_add(&environment->denormals, 1);
    nanosleep(&nap, NULL);
}

static void test_workers_flush_denormals(void)
{
    struct sb_threads *threads;
    struct environment environment;
    struct sb_fp_env env;

    atomic_init(&environment.denormals, 0);
    CHECK_OK(sb_threads_create(&threads, &mem, 3));
    sb_port_fp_enter(&env);
    sb_threads_for(threads, 100, 1, halve_tiny, &environment);
    sb_port_fp_leave(&env);
    sb_threads_free(threads);
    CHECK_INT(atomic_load(&environment.denormals), 0);
}

static void *no_memory(void *user, size_t size, size_t align)
{
    int *left = user;
    return (*left)-- > 0 ? aligned_alloc(align, size) : NULL;
}

static void give_back(void *user, void *block, size_t size)
{
    (void)user;
    (void)size;
    free(block);
}

static void test_no_memory(void)
{
    int left;
    struct sb_mem scarce = {no_memory, give_back, &left};
    struct sb_threads *threads = NULL;

    for (int allowed = 0; allowed < 2; allowed++) {
        left = allowed;
        CHECK_ERROR(sb_threads_create(&threads, &scarce, 3), SPECBATCH_E_NOMEM, "thread pool");
        CHECK(!threads);
    }
}

/* The system refuses one of the threads. Those that run are stopped, and all memory is freed. */
static void test_no_threads(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("a sanitizer's shadow memory does not fit an address space limit");
#else
    struct rlimit before, tight;
    long pages = 0;
    int left = 100;
    struct sb_mem counted = {no_memory, give_back, &left};
    struct sb_threads *threads = NULL;
    FILE *statm = fopen("/proc/self/statm", "r");

    if (!statm || fscanf(statm, "%ld", &pages) != 1)
        SKIP("no /proc/self/statm");
    fclose(statm);
    CHECK_INT(getrlimit(RLIMIT_AS, &before), 0);
    tight = before;
    /* leave room for two or three stacks */
    tight.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (24u << 20);
    CHECK_INT(setrlimit(RLIMIT_AS, &tight), 0);
    int32_t rc = sb_threads_create(&threads, &counted, 64);
    CHECK_INT(setrlimit(RLIMIT_AS, &before), 0);
    CHECK_INT(rc, SPECBATCH_E_NOMEM);
    CHECK(strstr(specbatch_last_error(), "cannot start thread") && !threads);
    CHECK_OK(sb_threads_create(&threads, &mem, 4));
    CHECK(!check_loop(threads, 100, 1, 1));
    sb_threads_free(threads);
#endif
}

TEST_BEGIN
RUN(test_loops);
RUN(test_sleep_and_wake);
RUN(test_every_worker_comes);
RUN(test_a_share_of_a_slow_thread);
RUN(test_create_and_free);
RUN(test_workers_flush_denormals);
RUN(test_no_memory);
RUN(test_no_threads);
TEST_END
