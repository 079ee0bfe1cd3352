/*
 * The thread pool. A loop is cut into ranges, and each thread has a share of them: a run of
 * neighbours, the same in every loop of that size. A thread claims the ranges of its own share one
 * by one, and then those that are left in the shares of others.
 *
 *     caller                                     worker i
 *     unfinished = n                             polls shares[i].unclaimed, later sleeps
 *     fills in the shares;
 *     each unclaimed = its size    ----------->  claims: unclaimed 5 -> 4 gives it range end - 5
 *     claims ranges itself                       runs it, claims again, in the end from others
 *     waits until unfinished == 0  <-----------  unfinished -= all that it ran; wakes the caller
 *                                                if that was the last and the caller sleeps
 *
 * Shares are for caches: with the same weights in every pass, a thread reads those that it read in
 * the pass before, and no two threads compete for one counter. That ranges may be claimed by others
 * is for busy machines: a thread that is not running delays nobody unless it holds a range. (Two
 * alternatives: with a fixed share for each thread and a barrier, every loop is as slow as the most
 * delayed thread. With one counter for all, a thread gets other weights in each pass; plain
 * decoding of a small model was a fifth slower.)
 *
 * What is ordered by what:
 *   - A claim is one compare-and-swap that succeeds only while unclaimed > 0, and so only while the
 *     caller is inside sb_threads_for. Hence a worker that wakes late cannot touch a loop that is
 *     over, and the caller need not wait for workers that have claimed nothing.
 *   - The plain fields of a share are written before the release store to its `unclaimed`, and read
 *     after a claim, which acquires. They are written again only after `unfinished` has reached
 *     zero: each thread takes its ranges off it after its last read, by a release that the caller's
 *     load acquires. The results of the ranges reach the caller by the same pair.
 *   - A waiting thread polls `spins` times and then sleeps on a condition. A worker may sleep
 *     whenever its own share is empty, and the caller when it has found no range to claim. Before a
 *     thread sleeps it says so in a flag, under the lock, and then looks once more; whoever brings
 *     the news looks at the flag afterwards. Either the news or the flag is seen, as the places say
 *     where this happens, so no wake is lost.
 *   - A worker that finds itself on the caller's processor does not poll, because the caller cannot
 *     bring news while it does. A busy machine puts them there. This is only a hint: the number is
 *     old as soon as it is read.
 *   - The flag of the workers is cleared by who wakes them. So a worker that has been woken, but
 *     waits for a processor, is not woken again by each of the loops that the caller meanwhile
 *     runs alone.
 *   - Of more workers than there are processors only as many are woken as can run at once, since no
 *     loop needs a worker to come. The others sleep on, and may never see a loop.
 */
#include "backend/threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "port.h"
#include "status.h"

/* How often a waiting thread polls before it sleeps. That takes tens of microseconds, which is
 * longer than the gap between two operations. On a busy machine, four times as many cost a third
 * of the speed, because the polls took the processor from threads that had work. */
#define SPINS 1000

enum { STOP = -1 }; /* in place of a number of ranges: the worker ends */

/* One thread's share of the loop. It fills a cache line, and has all that a thread needs to know
 * which claims from it. Workers have the shares from 1 on, the caller has share 0. */
struct share {
    _Alignas(SB_MEM_ALIGN) atomic_llong unclaimed; /* how many of its ranges, or STOP */
    int64_t end;                                   /* the range after its last one */
    sb_range_fn fn;
    void *ctx;
    int64_t n_items, grain;
    struct sb_threads *threads; /* that it belongs to */
    pthread_t worker;
};

struct sb_threads {
    struct sb_mem mem;
    int32_t n_threads; /* the caller among them */
    int32_t n_workers; /* that have been started */
    int32_t n_useful;  /* workers that a loop wakes: no more than there are other processors */
    int32_t spins; /* polls before a wait sleeps. 0 where there are more threads than processors:
                      a thread that polls would keep another from running */
    struct share *shares; /* [n_threads] */
    int64_t process;      /* the process that started the workers */
    int sync_ready;       /* the mutex and the conditions below exist */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* there is work, or the pool stops */
    pthread_cond_t done; /* the last range is finished */

    _Alignas(SB_MEM_ALIGN) atomic_llong unfinished; /* ranges of the loop */
    atomic_int caller_sleeps;                       /* the caller waits on `done`, or is about to */
    atomic_int caller_at; /* the processor on which the caller began its latest loop, or -1 */
    /* Some worker waits on `wake`, or is about to, and has not been woken since. */
    _Alignas(SB_MEM_ALIGN) atomic_int workers_sleep;
};

/* Claims and runs ranges of a share until none is left to claim. Returns how many it ran. */
static int64_t run_share(struct share *share)
{
    int64_t n = 0;
    long long left = atomic_load_explicit(&share->unclaimed, memory_order_relaxed);

    while (left > 0) {
        if (!atomic_compare_exchange_weak_explicit(&share->unclaimed, &left, left - 1,
                                                   memory_order_acquire, memory_order_relaxed))
            continue;
        int64_t first = (share->end - left) * share->grain, last = first + share->grain;
        share->fn(share->ctx, first, last < share->n_items ? last : share->n_items);
        n++;
        left = atomic_load_explicit(&share->unclaimed, memory_order_relaxed);
    }
    return n;
}

/* Runs what is left of the loop, the thread's own share first. Here the news is `unfinished`, and
 * the flag is `caller_sleeps`. This thread stores the first and then reads the second; the caller
 * stores the second and then reads the first. All four are sequentially consistent, so at least one
 * of the two threads sees the other's store. */
static void run_shares(struct sb_threads *t, const struct share *own)
{
    const int32_t begin = (int32_t)(own - t->shares);
    int64_t n = 0;

    for (int32_t i = 0; i < t->n_threads; i++)
        n += run_share(&t->shares[(begin + i) % t->n_threads]);
    if (n > 0 && atomic_fetch_sub(&t->unfinished, n) == n && atomic_load(&t->caller_sleeps)) {
        pthread_mutex_lock(&t->lock);
        pthread_cond_signal(&t->done);
        pthread_mutex_unlock(&t->lock);
    }
}

/* Whether a worker has to go on: there are ranges in its share, or the pool stops. */
static int has_news(const struct share *own)
{
    return atomic_load_explicit(&own->unclaimed, memory_order_relaxed) != 0;
}

static void wait_for_news(struct sb_threads *t, const struct share *own)
{
    const int32_t at = sb_port_processor();
    const int is_beside = at >= 0 &&
                          at == atomic_load_explicit(&t->caller_at, memory_order_relaxed);

    for (int32_t i = 0; i < t->spins && !is_beside; i++) {
        if (has_news(own))
            return;
        sb_port_pause();
    }
    /* The news is the share, and the flag is `workers_sleep`, which both sides access by one
     * read-modify-write, wake_if_asleep after it has stored the news. The later of the two sees
     * what the other thread did before the earlier. */
    pthread_mutex_lock(&t->lock);
    while (!has_news(own)) {
        atomic_exchange(&t->workers_sleep, 1);
        if (!has_news(own))
            pthread_cond_wait(&t->wake, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
}

static void wake_if_asleep(struct sb_threads *t)
{
    if (atomic_fetch_add(&t->workers_sleep, 0) == 0)
        return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->workers_sleep, 0);
    if (t->n_useful == t->n_workers)
        pthread_cond_broadcast(&t->wake);
    else
        for (int32_t i = 0; i < t->n_useful; i++)
            pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

static void *worker_main(void *arg)
{
    struct share *own = arg;
    struct sb_fp_env env;

    sb_port_fp_enter(&env);
    while (atomic_load_explicit(&own->unclaimed, memory_order_relaxed) != STOP) {
        run_shares(own->threads, own);
        wait_for_news(own->threads, own);
    }
    return NULL;
}

static void wait_for_workers(struct sb_threads *t)
{
    for (int32_t i = 0; i < t->spins; i++) {
        if (atomic_load_explicit(&t->unfinished, memory_order_acquire) == 0)
            return;
        sb_port_pause();
    }
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->caller_sleeps, 1);
    while (atomic_load(&t->unfinished) != 0)
        pthread_cond_wait(&t->done, &t->lock);
    atomic_store(&t->caller_sleeps, 0);
    pthread_mutex_unlock(&t->lock);
}

void sb_threads_for(struct sb_threads *t, int64_t n_items, int64_t grain, sb_range_fn fn, void *ctx)
{
    const int64_t n_ranges = n_items / grain + (n_items % grain != 0);
    int64_t end = 0;

    if (n_items <= 0)
        return;
    if (n_ranges == 1 || t->n_workers == 0) {
        fn(ctx, 0, n_items);
        return;
    }
    atomic_store_explicit(&t->unfinished, n_ranges, memory_order_relaxed);
    atomic_store_explicit(&t->caller_at, sb_port_processor(), memory_order_relaxed);
    for (int32_t i = 0; i < t->n_threads && end < n_ranges; i++) {
        const int64_t sharers = t->n_threads - i, size = (n_ranges - end + sharers - 1) / sharers;
        struct share *share = &t->shares[i];
        end += size;
        share->end = end;
        share->fn = fn;
        share->ctx = ctx;
        share->n_items = n_items;
        share->grain = grain;
        atomic_store_explicit(&share->unclaimed, size, memory_order_release);
    }
    wake_if_asleep(t);
    run_shares(t, &t->shares[0]);
    wait_for_workers(t);
}

static int sync_init(struct sb_threads *t)
{
    if (pthread_mutex_init(&t->lock, NULL) != 0)
        return 0;
    if (pthread_cond_init(&t->wake, NULL) != 0) {
        pthread_mutex_destroy(&t->lock);
        return 0;
    }
    if (pthread_cond_init(&t->done, NULL) != 0) {
        pthread_cond_destroy(&t->wake);
        pthread_mutex_destroy(&t->lock);
        return 0;
    }
    return 1;
}

/* Workers block every signal, so that the host's handlers run on the host's own threads. */
static int32_t start_workers(struct sb_threads *t, int32_t n)
{
    sigset_t all, old;
    int32_t rc = SPECBATCH_OK;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (t->n_workers < n && rc == SPECBATCH_OK) {
        struct share *own = &t->shares[1 + t->n_workers];
        if (pthread_create(&own->worker, NULL, worker_main, own) == 0)
            t->n_workers++;
        else
            rc = sb_fail(SPECBATCH_E_NOMEM, "cannot start thread %d of %d", (int)t->n_workers + 1,
                         (int)n);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

int32_t sb_threads_create(struct sb_threads **out, const struct sb_mem *mem, int32_t n_threads)
{
    const int32_t n_processors = sb_port_n_processors();
    int32_t rc = SPECBATCH_OK;
    struct sb_threads *t;

    SB_NEW(t, sb_alloc(mem, 1, sizeof *t), "the thread pool");
    t->mem = *mem;
    t->process = sb_port_process();
    t->n_threads = n_threads;
    t->n_useful = (n_threads <= n_processors ? n_threads : n_processors) - 1;
    t->spins = n_threads <= n_processors ? SPINS : 0;
    atomic_init(&t->unfinished, 0);
    atomic_init(&t->caller_sleeps, 0);
    atomic_init(&t->caller_at, -1);
    atomic_init(&t->workers_sleep, 0);
    SB_NEW(t->shares, sb_alloc(mem, (size_t)n_threads, sizeof *t->shares), "the thread pool");
    for (int32_t i = 0; i < n_threads; i++) {
        t->shares[i].threads = t;
        atomic_init(&t->shares[i].unclaimed, 0);
    }
    t->sync_ready = sync_init(t);
    if (!t->sync_ready)
        SB_FAIL(SPECBATCH_E_NOMEM, "no mutex for the thread pool");
    SB_TRY(start_workers(t, n_threads - 1));
    *out = t;
done:
    if (rc != SPECBATCH_OK)
        sb_threads_free(t);
    return rc;
}

static void stop_workers(struct sb_threads *t)
{
    for (int32_t i = 1; i <= t->n_workers; i++)
        atomic_store(&t->shares[i].unclaimed, STOP);
    /* all of them, also those that no loop would wake */
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    for (int32_t i = 1; i <= t->n_workers; i++)
        pthread_join(t->shares[i].worker, NULL);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
}

/* The workers are stopped only in the process that started them. A forked child has a copy of the
 * lock, which a worker may have held, and of the flags of who sleeps, but it has no worker that
 * would ever unlock or wake: locking, joining or destroying could wait for ever there. */
void sb_threads_free(struct sb_threads *t)
{
    if (!t)
        return;
    if (t->sync_ready && t->process == sb_port_process())
        stop_workers(t);
    struct sb_mem mem = t->mem;
    sb_free(&mem, t->shares);
    sb_free(&mem, t);
}

size_t sb_threads_bytes(int32_t n_threads)
{
    return sizeof(struct sb_threads) + (size_t)n_threads * sizeof(struct share) +
           2 * (2 * SB_MEM_ALIGN);
}
