/*
 * Many random requests through pools that live long: nothing may grow, get lost or change.
 *
 *   soak [--requests N] [--audit N] [--drain N] [--seed S] [--session FILE]
 *
 * Each policy gets a pool of its own and an equal part of the requests. They want all that a
 * request can (test/support/random_request.h), come at any time, and are cancelled now and then.
 * Meanwhile prefixes are pinned and unpinned, and events and tokens are read by some and ignored by
 * others. Whenever --drain requests have been submitted, the pool empties, saves what it keeps as a
 * session and loads it again. Then nothing is on its way, so this must hold:
 *
 *     ids      every id was answered once: each answer of each request was collected, none twice
 *     bytes    the pool's memory is flat: behind the first quarter of these points its bytes, by
 *              its memory functions, never exceed what they were within that quarter, but for
 *              TABLES: some double when more comes at once than ever before
 *     process  the same of the memory that the process has, but for SLACK
 *
 * Of --audit answers one is compared with plain decoding by specbatch_audit. Exits with 1 when
 * anything differs. Tests compare every answer of short lives (test/contract/test_requests.c); to
 * do that here would make the soak's pools stand idle for most of its time.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/support/args.h"
#include "examples/support/support.h"
#include "specbatch.h"
#include "support/drafts.h"
#include "support/random_request.h"
#include "support/trace.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"

enum { JOBS = 32, TABLES = 1 << 13, SLACK = 1 << 20, LINE = 64 };

/* Idle memory at the points where the pool is empty. */
struct level {
    uint64_t first, warm, last; /* at the first point; the most while warming up; at the last one */
    uint64_t most;              /* afterwards */
};

struct counts {
    uint64_t requests, answers, tokens, cancelled, late, failed, audited, pins, sessions, points;
};

struct soak {
    int32_t n_requests, audit, drain; /* the options */
    const char *session;              /* where sessions are saved */
    uint64_t state;                   /* of the random numbers */
    specbatch_model *target, *small;
    specbatch_pool_options options;
    specbatch_pool *pool;
    atomic_uint_fast64_t bytes; /* that the pool, its draft and its results have now */
    uint64_t next_id, pin;      /* pin: 0 when there is none */
    struct counts counts;
    struct level pool_bytes, resident;
    struct random_request jobs[JOBS];
    int busy[JOBS];
};

static void need(int condition, const char *what)
{
    if (!condition) {
        ex_complain("%s (%s)", what, specbatch_last_error());
        exit(EX_FAILED);
    }
}

static int32_t below(struct soak *soak, int32_t n)
{
    return (int32_t)(trace_random(&soak->state) % (uint64_t)n);
}

/* ------------------------------------------------------------------ memory */

static void *count_alloc(void *user, size_t size, size_t align)
{
    struct soak *soak = user;
    void *block = align <= LINE ? aligned_alloc(LINE, (size + LINE - 1) / LINE * LINE) : NULL;

    if (block)
        atomic_fetch_add(&soak->bytes, size);
    return block;
}

static void count_free(void *user, void *block, size_t size)
{
    struct soak *soak = user;

    atomic_fetch_sub(&soak->bytes, size);
    free(block);
}

/* The memory that this process has, in bytes; 0 where the system does not tell. */
static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;

    if (file && fscanf(file, "%*u %lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void note_level(struct level *level, uint64_t now, int first, int warming)
{
    level->last = now;
    if (first)
        *level = (struct level){now, now, now, 0};
    else if (warming && now > level->warm)
        level->warm = now;
    else if (!warming && now > level->most)
        level->most = now;
}

/* ------------------------------------------------------------------ requests */

static int submit(struct soak *soak)
{
    int j = 0;
    struct random_request *job;

    while (j < JOBS && soak->busy[j])
        j++;
    if (j == JOBS)
        return 0;
    job = &soak->jobs[j];
    random_request_draw(job, soak->target, &soak->state);
    job->request.user = job;
    soak->busy[j] = 1;
    need(specbatch_pool_submit(soak->pool, &job->request, &job->id) == SPECBATCH_OK, "submit");
    need(job->id == soak->next_id, "an id that is not the next one");
    soak->next_id += (uint64_t)job->n_made;
    soak->counts.requests++;
    return 1;
}

static void cancel(struct soak *soak)
{
    const int j = below(soak, JOBS);
    struct random_request *job = &soak->jobs[j];
    const int32_t i = soak->busy[j] ? below(soak, job->n_made) : 0;

    if (soak->busy[j] && specbatch_pool_cancel(soak->pool, job->id + (uint64_t)i) == SPECBATCH_OK)
        job->cancelled[i] = 1;
}

static void audit(struct soak *soak, const struct random_request *job,
                  const specbatch_result *result)
{
    specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;

    need(specbatch_audit(soak->target, &soak->options, &job->request, result, &report) ==
             SPECBATCH_OK,
         "audit");
    need(report.equal, "an answer that is not plain decoding's");
    soak->counts.audited++;
}

static int32_t check_end(const struct random_request *job, const specbatch_result *result, size_t n)
{
    const int32_t i = specbatch_result_answer(result), finish = specbatch_result_finish(result),
                  status = specbatch_result_status(result);

    need(n <= (size_t)job->request.max_new, "more tokens than were asked for");
    need(status == SPECBATCH_OK || (status == SPECBATCH_E_NO_CHOICE && job->request.mask),
         "an error of its own");
    need(finish != SPECBATCH_FINISH_CANCELLED || job->cancelled[i], "cancelled by nobody");
    need(finish != SPECBATCH_FINISH_DEADLINE || job->deadline != RANDOM_UNBOUNDED,
         "late without a deadline");
    return finish;
}

static void take(struct soak *soak, const specbatch_result *result)
{
    struct random_request *job = specbatch_result_user(result);
    const int32_t i = specbatch_result_answer(result);
    size_t n;
    int32_t finish;

    need(i >= 0 && i < job->n_made && specbatch_result_id(result) == job->id + (uint64_t)i,
         "an id that is not its request's");
    need(!job->collected[i]++ && job->n_collected < job->answers.n, "an answer comes twice");
    specbatch_result_tokens(result, &n);
    finish = check_end(job, result, n);
    if (soak->audit > 0 && below(soak, soak->audit) == 0)
        audit(soak, job, result);
    soak->counts.answers++;
    soak->counts.tokens += n;
    soak->counts.cancelled += finish == SPECBATCH_FINISH_CANCELLED;
    soak->counts.late += finish == SPECBATCH_FINISH_DEADLINE;
    soak->counts.failed += specbatch_result_status(result) != SPECBATCH_OK;
    if (++job->n_collected == job->answers.n)
        soak->busy[job - soak->jobs] = 0;
}

static void collect(struct soak *soak)
{
    specbatch_result *result;

    while (specbatch_pool_collect(soak->pool, &result) == SPECBATCH_OK) {
        take(soak, result);
        specbatch_result_free(result);
    }
}

/* ------------------------------------------------------------------ beside them */

/* Some hosts read events, some poll, some do neither. */
static void look(struct soak *soak)
{
    const int j = below(soak, JOBS);
    specbatch_event event = SPECBATCH_EVENT_INIT;
    int32_t ids[8];
    size_t n;

    if (soak->options.policy % 2)
        while (specbatch_pool_next_event(soak->pool, &event) == SPECBATCH_OK)
            ;
    else if (soak->busy[j])
        specbatch_pool_poll(soak->pool, soak->jobs[j].id, ids, 8, &n);
}

static void pin_or_unpin(struct soak *soak)
{
    const struct random_request *job = &soak->jobs[below(soak, JOBS)];

    if (soak->pin) {
        need(specbatch_pool_unpin(soak->pool, soak->pin) == SPECBATCH_OK, "unpin");
        soak->pin = 0;
    } else if (job->request.n_ids > 0 &&
               specbatch_pool_pin(soak->pool, job->request.ids, job->request.n_ids, &soak->pin) ==
                   SPECBATCH_OK) {
        soak->counts.pins++;
    }
}

static void save_and_load(struct soak *soak)
{
    const struct random_request *job = &soak->jobs[below(soak, JOBS)];
    int32_t ids[RANDOM_PROMPT];
    size_t n;

    if (job->request.n_ids == 0)
        return;
    need(specbatch_pool_save_session(soak->pool, job->request.ids, job->request.n_ids,
                                     soak->session, NULL) == SPECBATCH_OK,
         "a session is not saved");
    need(specbatch_pool_load_session(soak->pool, soak->session, ids, RANDOM_PROMPT, &n) ==
                 SPECBATCH_OK &&
             n == job->request.n_ids && memcmp(ids, job->request.ids, n * sizeof *ids) == 0,
         "a session is not loaded");
    soak->counts.sessions++;
}

/* ------------------------------------------------------------------ a pool's life */

static size_t step(struct soak *soak)
{
    size_t active = 0;

    need(specbatch_pool_step(soak->pool, &active) == SPECBATCH_OK, "step");
    look(soak);
    if (below(soak, 25) == 0)
        cancel(soak);
    if (below(soak, 200) == 0)
        pin_or_unpin(soak);
    if (below(soak, 3) == 0)
        collect(soak);
    return active;
}

/* Steps until nothing is on its way, and notes what memory there is then. */
static void empty(struct soak *soak, int warming)
{
    const int first = soak->counts.points++ == 0;

    while (step(soak) > 0)
        ;
    collect(soak);
    for (int j = 0; j < JOBS; j++)
        need(!soak->busy[j], "an answer was lost");
    save_and_load(soak);
    note_level(&soak->pool_bytes, atomic_load(&soak->bytes), first, warming);
    note_level(&soak->resident, resident_bytes(), first, warming);
}

static void live(struct soak *soak, int32_t n)
{
    for (int32_t i = 0; i < n;) {
        if (below(soak, 2) && submit(soak) && ++i % soak->drain == 0)
            empty(soak, i <= n / 4);
        step(soak);
    }
    empty(soak, 0);
}

/* Slots too few for all, kept prefixes, and a draft that the policy's number tells: n-grams and a
 * model behind them, a model alone, n-grams alone. */
static void open_pool(struct soak *soak, int32_t policy)
{
    specbatch_pool_options *o = &soak->options;
    specbatch_draft *draft[3] = {NULL, NULL, NULL};

    *o = (specbatch_pool_options)SPECBATCH_POOL_OPTIONS_INIT;
    o->policy = policy;
    o->batch = 6;
    o->n_threads = 1 + policy % 2;
    o->max_len = RANDOM_PROMPT + RANDOM_NEW;
    o->flags = SPECBATCH_POOL_GROW_SLOTS;
    o->cache_columns = 3 * 160;
    o->prefix_bytes = 1 << 19;
    o->alloc = count_alloc;
    o->free = count_free;
    o->alloc_user = soak;
    need(specbatch_draft_from_ngrams(&draft[0], NULL) == SPECBATCH_OK &&
             specbatch_draft_from_model(&draft[1], soak->small) == SPECBATCH_OK &&
             specbatch_draft_from_list(&draft[2], draft, 2) == SPECBATCH_OK &&
             specbatch_pool_create(&soak->pool, soak->target, draft[(policy + 2) % 3], o) ==
                 SPECBATCH_OK,
         "a pool");
    for (int i = 0; i < 3; i++)
        specbatch_draft_release(draft[i]);
}

static uint64_t counter(const struct soak *soak, const char *name)
{
    uint64_t value = 0;

    need(specbatch_pool_stat(soak->pool, name, &value) == SPECBATCH_OK, name);
    return value;
}

static void print(const struct soak *soak)
{
    const struct counts *c = &soak->counts;
    const struct level *b = &soak->pool_bytes, *r = &soak->resident;

    printf("%-10s %6" PRIu64 " requests, %6" PRIu64 " answers (%" PRIu64 " cancelled, %" PRIu64
           " late, %" PRIu64 " without a choice), %" PRIu64 " tokens, %" PRIu64 " audited\n",
           specbatch_policy_name(soak->options.policy), c->requests, c->answers, c->cancelled,
           c->late, c->failed, c->tokens, c->audited);
    printf("%10s %" PRIu64 " prefix hits, %" PRIu64 " preemptions, %" PRIu64 " pins, %" PRIu64
           " sessions\n",
           "", counter(soak, "prefix_hits"), counter(soak, "preemptions"), c->pins, c->sessions);
    printf("%10s idle bytes first %" PRIu64 " warm %" PRIu64 " later %" PRIu64 " last %" PRIu64
           "; resident KiB first %" PRIu64 " warm %" PRIu64 " later %" PRIu64 " last %" PRIu64 "\n",
           "", b->first, b->warm, b->most, b->last, r->first / 1024, r->warm / 1024, r->most / 1024,
           r->last / 1024);
    fflush(stdout);
}

static void run_policy(struct soak *soak, int32_t policy, int32_t n)
{
    soak->next_id = 1;
    soak->pin = 0;
    memset(&soak->counts, 0, sizeof soak->counts);
    memset(soak->jobs, 0, sizeof soak->jobs);
    open_pool(soak, policy);
    live(soak, n);
    print(soak);
    need(soak->pool_bytes.most <= soak->pool_bytes.warm + TABLES, "the pool's memory grows");
    need(soak->resident.most <= soak->resident.warm + SLACK, "the process's memory grows");
    specbatch_pool_free(soak->pool);
    need(atomic_load(&soak->bytes) == 0, "memory that the pool has not given back");
}

int main(int argc, char **argv)
{
    static struct soak soak = {
        .n_requests = 1000, .audit = 50, .drain = 50, .state = 1, .session = "build/soak.session"};
    const struct ex_option options[] = {
        {"--requests", "N", EX_INT, &soak.n_requests, 100, 100000000, "over all policies (1000)"},
        {"--audit", "N", EX_INT, &soak.audit, 0, 1000000, "one of N answers; 0: none (50)"},
        {"--drain", "N", EX_INT, &soak.drain, 1, 1000000, "requests between two points (50)"},
        {"--seed", "S", EX_SEED, &soak.state, 0, 0, "(1)"},
        {"--session", "FILE", EX_STRING, &soak.session, 0, 0, "to save in (build/soak.session)"},
    };
    specbatch_model_options model = SPECBATCH_MODEL_OPTIONS_INIT;
    int parsed;

    parsed = ex_args_parse(options, sizeof options / sizeof options[0], argc, argv, "[options]");
    if (parsed != 1)
        return parsed < 0 ? EX_OK : EX_USAGE;
    if (soak.n_requests / specbatch_policy_count() < 4 * soak.drain) {
        ex_complain("--requests: a pool would have fewer than four points (--drain) to compare");
        return EX_USAGE;
    }
    model.compute = SPECBATCH_COMPUTE_F32;
    need(specbatch_model_open(&soak.target, TARGET, &model) == SPECBATCH_OK &&
             specbatch_model_open(&soak.small, TARGET ".draft", &model) == SPECBATCH_OK,
         TARGET);
    for (int32_t policy = 0; policy < specbatch_policy_count(); policy++)
        run_policy(&soak, policy, soak.n_requests / specbatch_policy_count());
    specbatch_model_close(soak.target);
    specbatch_model_close(soak.small);
    remove(soak.session);
    return EX_OK;
}
