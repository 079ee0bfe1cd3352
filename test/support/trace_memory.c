/*
 * What a trace draws about memory: how many columns the caches have, what is kept for later
 * prompts, pins, and sessions. trace.h tells it; here is how.
 *
 * A longest slot has max_len + K + 1 columns, rounded up by at most TOP_SLACK. So caches of that
 * many columns, rounded up to TOP_SLACK, have exactly one, and the requests of the trace compete
 * for it and its halves.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pool/pool.h"
#include "sched/policies.h"
#include "support/drafts.h"
#include "support/trace_run.h"

enum { TOP_SLACK = 128 };

/* ------------------------------------------------------------------ options */

/* K, as the pool will have it. */
static int32_t draft_len(const specbatch_pool_options *o)
{
    return o->draft_len > 0 && sb_policy_at(o->policy)->speculates ? o->draft_len : 0;
}

static uint64_t longest_slot(const specbatch_pool_options *o)
{
    return ((uint64_t)(o->max_len + draft_len(o) + 1) + TOP_SLACK - 1) / TOP_SLACK * TOP_SLACK;
}

/* Bytes of a block of columns in the target's cache, and in the draft's if it has one. */
static uint64_t block_bytes(const struct trace_run *run)
{
    const specbatch_model *draft = draft_len(&run->options) > 0 ? trace_draft_model(run) : NULL;
    struct sb_kv target_kv, draft_kv = {.bytes = 0};

    if (sb_kv_plan(&target_kv, run->model->target[run->level], SB_PREFIX_BLOCK) != SPECBATCH_OK ||
        (draft && sb_kv_plan(&draft_kv, draft, SB_PREFIX_BLOCK) != SPECBATCH_OK))
        return 0;
    return target_kv.bytes + draft_kv.bytes;
}

/* From one longest slot to more than all residents need; or what the library gives by itself, or
 * what a budget that has room for so many leaves. */
static int32_t choose_columns(struct trace_run *run, const specbatch_draft *draft)
{
    specbatch_pool_options *o = &run->options;
    const int32_t n = trace_below(run, 3) ? 1 : 1 + trace_below(run, o->window);
    uint64_t bytes;
    int32_t rc;

    if (run->crowded) {
        o->cache_columns = longest_slot(o);
        return SPECBATCH_OK;
    }
    if (trace_below(run, 3) == 0)
        return SPECBATCH_OK;
    o->cache_columns = (uint64_t)n * longest_slot(o);
    if (trace_below(run, 4) == 0) {
        o->cache_columns += (uint64_t)trace_below(run, 1000);
    } else if (trace_below(run, 4) == 0) {
        rc = specbatch_pool_bytes(&bytes, run->model->target[run->level], draft, o);
        if (rc != SPECBATCH_OK)
            return rc;
        o->cache_columns = 0;
        o->budget_bytes = bytes;
    }
    return SPECBATCH_OK;
}

int32_t trace_choose_memory(struct trace_run *run, const specbatch_draft *draft)
{
    static const uint64_t blocks[] = {0, 1, 3, 6, 12, 100};
    const int32_t memory = run->bias->memory, scene = run->bias->scene;
    const int at = scene == TRACE_STRANGERS            ? 1
                   : scene == TRACE_CROWD              ? 1 + trace_below(run, 2)
                   : memory == 1 || run->first_job > 0 ? 1 + trace_below(run, 5)
                                                       : trace_below(run, 6);
    specbatch_pool_options *o = &run->options;

    o->flags &= ~(uint32_t)SPECBATCH_POOL_GROW_SLOTS;
    o->prefix_bytes = o->cache_columns = o->budget_bytes = 0;
    if (memory == 0) {
        /* More than all residents take, so that the last columns belong to nobody. */
        o->cache_columns = (uint64_t)(6 * o->batch + o->window + 1) * longest_slot(o);
        return SPECBATCH_OK;
    }
    if (run->crowded || trace_below(run, 2))
        o->flags |= SPECBATCH_POOL_GROW_SLOTS;
    o->prefix_bytes = blocks[scene == TRACE_TALK || scene == TRACE_TAKEOVER ? 5 : at] *
                      block_bytes(run);
    if (o->prefix_bytes > 0 && trace_below(run, 2))
        o->prefix_bytes += block_bytes(run) - 1;
    return choose_columns(run, draft);
}

/* ------------------------------------------------------------------ pins */

/* The prompt of a request of this pool and some of the oracle's answer to it. */
static struct trace_prompt some_text(struct trace_run *run, int *of)
{
    const int at = run->first_job + trace_below(run, run->n_submitted - run->first_job);
    const int p = run->jobs[at].prompt;
    const int32_t n_more = trace_below(run, run->world->n_new + 1);
    struct trace_prompt text = *trace_text(run->world, run->model, p);

    memcpy(text.ids + text.n, run->model->tokens[p], (size_t)n_more * sizeof text.ids[0]);
    text.n += n_more;
    *of = at;
    return text;
}

/* A prefix is refused if it is shorter than a block or longer than max_len, and if what is not
 * pinned has no room for it. */
static int pin_one(struct trace_run *run)
{
    int of;
    const struct trace_prompt text = some_text(run, &of);
    int32_t rc;

    if (run->n_pins == TRACE_PINNED)
        return 0;
    rc = specbatch_pool_pin(run->pool, text.ids, (size_t)text.n, &run->pins[run->n_pins]);
    if (rc != SPECBATCH_OK && rc != SPECBATCH_E_INVALID && rc != SPECBATCH_E_BUDGET)
        return trace_complain(run, "pin", rc, text.n, 0);
    run->n_pins += rc == SPECBATCH_OK;
    run->world->events[TRACE_PINS] += rc == SPECBATCH_OK;
    return 0;
}

static int unpin_one(struct trace_run *run)
{
    int at;

    if (run->n_pins == 0)
        return 0;
    at = trace_below(run, run->n_pins);
    if (specbatch_pool_unpin(run->pool, run->pins[at]) != SPECBATCH_OK)
        return trace_complain(run, "unpin", at, 0, 0);
    run->pins[at] = run->pins[--run->n_pins];
    run->world->events[TRACE_UNPINS]++;
    return 0;
}

/* ------------------------------------------------------------------ sessions */

static const char *session_path(const struct trace_run *run)
{
    static char path[100];

    snprintf(path, sizeof path, "%s/session", run->world->folder);
    return path;
}

int trace_save(struct trace_run *run)
{
    size_t kept = SIZE_MAX;

    run->session = some_text(run, &run->session_job);
    if (specbatch_pool_save_session(run->pool, run->session.ids, (size_t)run->session.n,
                                    session_path(run), &kept) != SPECBATCH_OK)
        return trace_complain(run, "save", run->session.n, 0, 0);
    if (kept > (size_t)run->session.n)
        return trace_complain(run, "more was kept than there is", (long)kept, run->session.n, 0);
    run->session_kept = kept;
    run->world->events[TRACE_SAVED] += kept > 0;
    return 0;
}

/* A buffer that is one id too short is refused, and the same call with another is not. */
int trace_load(struct trace_run *run)
{
    struct trace_prompt got;
    size_t n = 0;

    if (trace_below(run, 4) == 0 &&
        (specbatch_pool_load_session(run->pool, session_path(run), got.ids,
                                     (size_t)run->session.n - 1, &n) != SPECBATCH_E_BUFFER ||
         n != (size_t)run->session.n))
        return trace_complain(run, "loaded into a short buffer", (long)n, run->session.n, 0);
    n = 0;
    if (specbatch_pool_load_session(run->pool, session_path(run), got.ids,
                                    sizeof got.ids / sizeof got.ids[0], &n) != SPECBATCH_OK)
        return trace_complain(run, "load", run->session.n, 0, 0);
    if (n != (size_t)run->session.n || memcmp(got.ids, run->session.ids, n * sizeof got.ids[0]))
        return trace_complain(run, "ids of the session", (long)n, run->session.n, 0);
    return 0;
}

/* Runs the session's request in a pool of another class, and compares it with that class's oracle.
 * Returns 0 when all is equal. */
static int run_in(struct trace_run *run, specbatch_pool *pool, struct trace_model *other)
{
    const int p = run->jobs[run->session_job].prompt;
    const struct trace_prompt *text = trace_text(run->world, run->model, p);
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_result *result = NULL;
    const size_t n_new = (size_t)run->world->n_new;
    int equal;

    if (p >= TRACE_PROMPTS) /* which has other turns */
        return 0;
    request.ids = text->ids;
    request.n_ids = (size_t)text->n;
    request.max_new = run->world->n_new;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS;
    if (trace_ask(run->world, other, p) || specbatch_pool_submit(pool, &request, NULL) ||
        specbatch_pool_run(pool) || specbatch_pool_collect(pool, &result))
        return trace_complain(run, "a pool of another class", p, 0, 0);
    equal = memcmp(specbatch_result_tokens(result, NULL), other->tokens[p],
                   n_new * sizeof other->tokens[p][0]) == 0 &&
            memcmp(specbatch_result_logprobs(result, NULL), other->logprobs[p],
                   n_new * sizeof other->logprobs[p][0]) == 0;
    specbatch_result_free(result);
    return equal ? 0 : trace_complain(run, "after a session of another class", p, 0, 0);
}

/* A pool of another class, or of the same checkpoint with other weights, must refuse the session. A
 * trace that is to catch a fault by its results looks only at what a request gives there. */
int trace_try_other_class(struct trace_run *run)
{
    const int pick = trace_below(run, run->world->n_classes * run->world->n_models);
    const int class = pick % run->world->n_classes, any = pick / run->world->n_classes;
    struct trace_model *models = run->world->models[class];
    const int is_same = strcmp(models[any].path, run->model->path) == 0;
    struct trace_model *other = &models[is_same ? any : run->m];
    specbatch_model *target = other->target[run->level];
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_pool *pool = NULL;
    struct trace_prompt got;
    size_t n = 0;
    int bad = 0;
    int32_t rc;

    if (run->session_kept == 0 ||
        strcmp(specbatch_model_fingerprint(run->model->target[run->level]),
               specbatch_model_fingerprint(target)) == 0)
        return 0;
    options.policy = SPECBATCH_POLICY_PLAIN;
    options.batch = options.n_threads = 1;
    options.prefix_bytes = (uint64_t)1 << 22;
    if (specbatch_pool_create(&pool, target, NULL, &options) != SPECBATCH_OK)
        return trace_complain(run, "a pool of another class", 0, 0, 0);
    rc = specbatch_pool_load_session(pool, session_path(run), got.ids,
                                     sizeof got.ids / sizeof got.ids[0], &n);
    run->world->events[TRACE_REFUSED] += rc == SPECBATCH_E_INVALID;
    if (rc != SPECBATCH_E_INVALID && !run->bias->no_invariants)
        bad = trace_complain(run, "a session of another class", class, rc, 0);
    bad = bad || run_in(run, pool, other);
    specbatch_pool_free(pool);
    return bad;
}

/* ------------------------------------------------------------------ a trace */

/* Without prefix_bytes a pool refuses. */
static int refuses_all(struct trace_run *run)
{
    int of;
    const struct trace_prompt text = some_text(run, &of);
    uint64_t pin;

    if (specbatch_pool_pin(run->pool, text.ids, (size_t)text.n, &pin) == SPECBATCH_E_INVALID &&
        specbatch_pool_save_session(run->pool, text.ids, (size_t)text.n, session_path(run), NULL) ==
            SPECBATCH_E_INVALID)
        return 0;
    return trace_complain(run, "a pool that keeps nothing has pinned or saved", 0, 0, 0);
}

int trace_memory_event(struct trace_run *run)
{
    const int event = trace_below(run, 32);

    if (run->bias->memory == 0 || run->n_submitted == run->first_job)
        return 0;
    if (run->options.prefix_bytes == 0)
        return event == 0 && refuses_all(run);
    switch (event) {
    case 0:
    case 1:
        return run->bias->no_invariants ? 0 : pin_one(run);
    case 2:
        return unpin_one(run);
    case 3:
        return trace_save(run) || (trace_below(run, 8) == 0 && trace_try_other_class(run));
    case 4:
        if (run->session.n == 0)
            return 0;
        run->world->events[TRACE_LOADED]++;
        return trace_load(run);
    default:
        return 0;
    }
}

/* Adds what the pool has counted. What it takes must be within its budget. */
int trace_count_pool(struct trace_run *run)
{
    static const char *const names[] = {"prefix_hits", "prefix_tokens", "prefix_evictions",
                                        "preemptions", "moved_bytes"};
    const uint64_t bytes = trace_stat(run, "cache_bytes") + trace_stat(run, "work_bytes");

    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        run->world->events[TRACE_HITS + i] += trace_stat(run, names[i]);
    if (run->options.budget_bytes > 0 && bytes > run->options.budget_bytes)
        return trace_complain(run, "more than the budget", (long)bytes, 0, 0);
    return 0;
}
