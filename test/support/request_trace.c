/* Traces of random requests; request_trace.h says what they are. */
#include "support/request_trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "support/drafts.h"
#include "support/trace.h"

struct run {
    struct request_trace *trace;
    uint64_t state;
    specbatch_pool_options options;
    specbatch_pool *pool;
    int draft_kind, n_submitted, n_answers, n_collected;
    int32_t accept_percent; /* how often a proposal of the test's own draft is right */
    char *why;
    size_t size;
};

enum { ROUNDS_PER_POINT = 16 }; /* of waiting, as the header says */

enum draft_kind { NONE, MODEL, SELF, NGRAMS, OWN, LIST, DRAFTS };

static int32_t below(struct run *run, int32_t n)
{
    return (int32_t)(trace_random(&run->state) % (uint64_t)n);
}

static int complain(struct run *run, const char *what, const struct random_request *job)
{
    const specbatch_pool_options *o = &run->options;
    const int n = snprintf(run->why, run->size,
                           "%s (request %" PRIu64 "): policy %s B %d K %d chunk %d threads %d "
                           "flags %u columns %" PRIu64 " prefixes %" PRIu64 " draft %d; %s",
                           what, job ? job->id : 0, specbatch_policy_name(o->policy), o->batch,
                           o->draft_len, o->prefill_chunk, o->n_threads, o->flags, o->cache_columns,
                           o->prefix_bytes, run->draft_kind, specbatch_last_error());
    (void)n;
    return 1;
}

/* ------------------------------------------------------------------ the pool */

/* Proposes what plain decoding gives, with the chosen probability. */
static int32_t propose(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    struct run *run = user;

    for (size_t b = 0; b < n_rows; b++) {
        const struct random_request *job = rows[b]->request_user;
        const struct random_answer *plain = &job->plain[rows[b]->request_id - job->id];
        rows[b]->n_out = below(run, 6) ? rows[b]->k : below(run, rows[b]->k + 1);
        for (int32_t i = 0; i < rows[b]->n_out; i++) {
            const size_t at = rows[b]->n_tokens - job->request.n_ids + (size_t)i;
            rows[b]->out[i] = at < plain->n && below(run, 100) < run->accept_percent
                                  ? plain->tokens[at]
                                  : below(run, 600) - 5;
        }
    }
    return 0;
}

/* N-grams, and where they have nothing a model. */
static int32_t create_with_list(struct run *run)
{
    specbatch_draft *sources[2] = {NULL, NULL}, *list = NULL;
    int32_t rc = specbatch_draft_from_ngrams(&sources[0], NULL);

    if (rc == SPECBATCH_OK)
        rc = specbatch_draft_from_model(&sources[1],
                                        run->trace->small ? run->trace->small : run->trace->target);
    if (rc == SPECBATCH_OK)
        rc = specbatch_draft_from_list(&list, sources, 2);
    specbatch_draft_release(sources[0]);
    specbatch_draft_release(sources[1]);
    return create_with(&run->pool, run->trace->target, rc, list, &run->options);
}

static int32_t create_pool(struct run *run)
{
    const specbatch_ngram_options ngrams = SPECBATCH_NGRAM_OPTIONS_INIT;
    const specbatch_draft_ops own = only_propose(propose, run);
    specbatch_model *target = run->trace->target, *small = run->trace->small;

    switch (run->draft_kind) {
    case NGRAMS:
        return create_with_ngrams(&run->pool, target, &ngrams, &run->options);
    case LIST:
        return create_with_list(run);
    case OWN:
        return create_with_ops(&run->pool, target, &own, &run->options);
    default:
        return create_with_model(&run->pool, target,
                                 run->draft_kind == MODEL  ? small
                                 : run->draft_kind == SELF ? target
                                                           : NULL,
                                 &run->options);
    }
}

static void choose_options(struct run *run)
{
    static const int32_t chunks[] = {1, 5, 32, 128};
    specbatch_pool_options *o = &run->options;

    *o = (specbatch_pool_options)SPECBATCH_POOL_OPTIONS_INIT;
    o->policy = run->trace->policy >= 0 ? run->trace->policy : below(run, specbatch_policy_count());
    o->batch = 1 + below(run, 6);
    o->draft_len = 1 + below(run, 7);
    o->prefill_chunk = chunks[below(run, 4)];
    o->n_threads = run->trace->one_thread ? 1 : 1 + below(run, 2);
    o->max_len = RANDOM_PROMPT + RANDOM_NEW;
    o->flags = (below(run, 4) ? SPECBATCH_POOL_FIXED_K : 0u) |
               (below(run, 2) ? SPECBATCH_POOL_GROW_SLOTS : 0u);
    if (below(run, 2))
        o->cache_columns = (uint64_t)(1 + below(run, 2)) * 160;
    if (below(run, 2))
        o->prefix_bytes = (uint64_t)1 << 20;
    if (below(run, 3) == 0)
        o->draft_min_prob = 0.3f;
    run->draft_kind = below(run, DRAFTS);
    run->accept_percent = 25 * below(run, 5);
}

/* ------------------------------------------------------------------ a run */

static void count_result(struct request_counts *counts, const struct random_request *job,
                         const specbatch_result *result)
{
    size_t n, n_scored;

    specbatch_result_tokens(result, &n);
    specbatch_result_prompt_logprobs(result, &n_scored);
    counts->requests++;
    counts->tokens += n;
    counts->sampled += job->request.sampling && job->sampling.temperature > 0.0f;
    counts->failed += specbatch_result_status(result) == SPECBATCH_E_NO_CHOICE;
    counts->masked += job->request.mask != NULL;
    counts->stopped += job->request.stops &&
                       specbatch_result_finish(result) == SPECBATCH_FINISH_STOP;
    counts->cancelled += specbatch_result_finish(result) == SPECBATCH_FINISH_CANCELLED;
    counts->accepted += specbatch_result_accepted(result);
    counts->rejected += specbatch_result_drafted(result) - specbatch_result_accepted(result);
    counts->late += specbatch_result_finish(result) == SPECBATCH_FINISH_DEADLINE;
    counts->several += job->answers.n > 1;
    counts->chosen += job->n_made > job->answers.n;
    counts->scored += n_scored > 0;
}

static int collect(struct run *run)
{
    struct request_counts *counts = &run->trace->counts;
    specbatch_result *result;
    const char *differs = NULL;

    while (!differs && specbatch_pool_collect(run->pool, &result) == SPECBATCH_OK) {
        struct random_request *job = specbatch_result_user(result);
        differs = random_request_compare(job, result);
        count_result(counts, job, result);
        specbatch_result_free(result);
        run->n_collected++;
        if (differs)
            return complain(run, differs, job);
    }
    return 0;
}

static uint64_t counter(const struct run *run, const char *name)
{
    uint64_t value = 0;

    return specbatch_pool_stat(run->pool, name, &value) == SPECBATCH_OK ? value : 0;
}

static int submit(struct run *run)
{
    struct random_request *job = &run->trace->jobs[run->n_submitted++];

    job->request.user = job;
    memset(job->cancelled, 0, sizeof job->cancelled);
    memset(job->collected, 0, sizeof job->collected);
    job->n_collected = 0;
    job->turn = (int64_t)counter(run, "rounds") - (int64_t)ROUNDS_PER_POINT * job->request.priority;
    run->n_answers += job->answers.n;
    return specbatch_pool_submit(run->pool, &job->request, &job->id) == SPECBATCH_OK
               ? 0
               : complain(run, "submit", job);
}

static void cancel(struct run *run)
{
    struct random_request *job = &run->trace->jobs[below(run, run->n_submitted)];
    const int32_t i = below(run, job->n_made);

    if (specbatch_pool_cancel(run->pool, job->id + (uint64_t)i) == SPECBATCH_OK)
        job->cancelled[i] = 1;
}

/* ------------------------------------------------------------------ turns */

/* The state of answer i; 0: it is no more, since it was not among the best. */
static int32_t state_of(const struct run *run, const struct random_request *job, int32_t i)
{
    specbatch_request_state state = SPECBATCH_REQUEST_STATE_INIT;

    if (specbatch_pool_state(run->pool, job->id + (uint64_t)i, &state) != SPECBATCH_OK ||
        state.finish == SPECBATCH_FINISH_DEADLINE)
        return 0;
    return state.state;
}

static void note_who_waits(struct run *run)
{
    for (int j = 0; j < run->n_submitted; j++)
        for (int32_t i = 0; i < run->trace->jobs[j].n_made; i++)
            run->trace->jobs[j].queued[i] = state_of(run, &run->trace->jobs[j], i) ==
                                            SPECBATCH_STATE_QUEUED;
}

/* Of two requests that waited, that of the earlier turn was to get a slot first; of equals the
 * older one, whose place among the jobs is before. In a step that preempts some, one that waits
 * afterwards may have had a slot, so nothing can be said there. */
static int check_turns(struct run *run)
{
    const struct random_request *first_left = NULL, *last_gone = NULL;

    for (struct random_request *job = run->trace->jobs; job < run->trace->jobs + run->n_submitted;
         job++)
        for (int32_t i = 0; i < job->n_made; i++) {
            const int32_t state = job->queued[i] ? state_of(run, job, i) : 0;
            if (state == SPECBATCH_STATE_QUEUED && (!first_left || job->turn < first_left->turn))
                first_left = job;
            else if (state > SPECBATCH_STATE_QUEUED && (!last_gone || job->turn >= last_gone->turn))
                last_gone = job;
        }
    if (!first_left || !last_gone)
        return 0;
    run->trace->counts.overtaken += first_left < last_gone;
    return first_left->turn < last_gone->turn ||
                   (first_left->turn == last_gone->turn && first_left < last_gone)
               ? complain(run, "a slot out of turn", last_gone)
               : 0;
}

static int step(struct run *run, size_t *active)
{
    const uint64_t preemptions = counter(run, "preemptions");

    note_who_waits(run);
    if (specbatch_pool_step(run->pool, active) != SPECBATCH_OK)
        return complain(run, "step", NULL);
    return counter(run, "preemptions") == preemptions ? check_turns(run) : 0;
}

static void count_pool(struct run *run)
{
    struct request_counts *counts = &run->trace->counts;

    counts->hits += counter(run, "prefix_hits");
    counts->preemptions += counter(run, "preemptions");
    counts->forced += counter(run, "tokens_forced");
    counts->shared += counter(run, "shared_prompts");
}

static int run_pool(struct run *run)
{
    size_t active = 0;

    while (run->n_submitted < REQUEST_TRACE_JOBS || active) {
        if (run->n_submitted < REQUEST_TRACE_JOBS && (!active || below(run, 2))) {
            if (submit(run))
                return 1;
        } else if (below(run, 25) == 0) {
            cancel(run);
        }
        if (step(run, &active))
            return 1;
        if (below(run, 3) == 0 && collect(run))
            return 1;
    }
    return collect(run) ||
           (run->n_collected != run->n_answers && complain(run, "some were lost", NULL));
}

int32_t request_trace_ask(struct request_trace *trace, uint64_t seed)
{
    specbatch_model *oracle = trace->oracle ? trace->oracle : trace->target;
    uint64_t state = seed * 977;
    int32_t rc = SPECBATCH_OK;

    for (int i = 0; i < REQUEST_TRACE_JOBS && rc == SPECBATCH_OK; i++) {
        random_request_draw(&trace->jobs[i], oracle, &state);
        rc = random_request_ask(&trace->jobs[i], oracle, &state);
    }
    return rc;
}

int request_trace_run(struct request_trace *trace, uint64_t seed, char *why, size_t size)
{
    struct run run = {.trace = trace, .state = seed, .why = why, .size = size};
    int bad;

    choose_options(&run);
    bad = create_pool(&run) != SPECBATCH_OK ? complain(&run, "create", NULL) : run_pool(&run);
    if (run.pool)
        count_pool(&run);
    specbatch_pool_free(run.pool);
    return bad;
}
