/* Submits all prompts, steps until no request is active, and collects results as they come. A
 * prompt's own settings go before those of the run. */
#include "run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "signals.h"
#include "support.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The request's `user` is its prompt, by which results are put into their places. The request
 * points into `wish`, which the caller keeps as long. */
static void make_request(struct ex_request *out, struct ex_wish *wish, struct ex_prompt *prompt,
                         const struct ex_settings *settings)
{
    *wish = ex_wish_of(&prompt->own, &settings->wish);
    ex_wish_request(out, wish);
    out->request.ids = prompt->ids;
    out->request.n_ids = prompt->n_ids;
    out->request.user = prompt;
}

static int submit_all(specbatch_pool *pool, const struct ex_prompts *prompts,
                      const struct ex_settings *settings)
{
    struct ex_request wished;
    struct ex_wish wish;
    size_t i;

    for (i = 0; i < prompts->n; i++) {
        make_request(&wished, &wish, &prompts->at[i], settings);
        if (specbatch_pool_submit(pool, &wished.request, NULL) != SPECBATCH_OK)
            return ex_complain("the prompt of line %zu: %s", prompts->at[i].line,
                               specbatch_last_error());
    }
    return 1;
}

/* Where the results of each prompt are, and how many there will be. */
static void lay_out(struct ex_run *run, const struct ex_prompts *prompts,
                    const struct ex_settings *settings)
{
    size_t i, k, n;

    run->first = ex_alloc(prompts->n, sizeof *run->first);
    for (i = 0; i < prompts->n; i++) {
        const struct ex_wish wish = ex_wish_of(&prompts->at[i].own, &settings->wish);
        run->first[i] = run->n;
        n = (size_t)ex_wish_answers(&wish);
        run->prompt = ex_realloc(run->prompt, run->n + n, sizeof *run->prompt);
        for (k = 0; k < n; k++)
            run->prompt[run->n++] = i;
    }
    run->results = ex_alloc(run->n, sizeof *run->results);
    run->order = ex_alloc(run->n, sizeof *run->order);
    run->counters = ex_alloc((size_t)specbatch_stat_count(), sizeof *run->counters);
}

/* The place of a result: of all answers that of its number, of the best ones the next. */
static size_t place_of(const struct ex_run *run, const struct ex_prompts *prompts,
                       const struct ex_settings *settings, const specbatch_result *result)
{
    const struct ex_prompt *prompt = specbatch_result_user(result);
    const struct ex_wish wish = ex_wish_of(&prompt->own, &settings->wish);
    size_t at = run->first[prompt - prompts->at];

    if (ex_wish_made(&wish) == ex_wish_answers(&wish))
        return at + (size_t)specbatch_result_answer(result);
    while (run->results[at])
        at++;
    return at;
}

static void collect_ready(struct ex_run *run, specbatch_pool *pool,
                          const struct ex_prompts *prompts, const struct ex_settings *settings)
{
    specbatch_result *result;
    size_t n_tokens;

    while (specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
        const size_t at = place_of(run, prompts, settings, result);
        run->results[at] = result;
        run->order[run->n_done++] = at;
        specbatch_result_tokens(result, &n_tokens);
        run->n_tokens += n_tokens;
    }
}

static void keep_counters(struct ex_run *run, const specbatch_pool *pool)
{
    int32_t i;
    for (i = 0; i < specbatch_stat_count(); i++)
        specbatch_pool_stat(pool, specbatch_stat_name(i), &run->counters[i]);
}

int ex_run_in(struct ex_run *run, specbatch_pool *pool, const struct ex_prompts *prompts,
              const struct ex_settings *settings, ex_tick_fn tick, void *user)
{
    const double began = now();
    size_t active = 1;

    memset(run, 0, sizeof *run);
    lay_out(run, prompts, settings);
    if (!submit_all(pool, prompts, settings))
        return 0;
    while (active && !run->stop) {
        if (specbatch_pool_step(pool, &active) != SPECBATCH_OK)
            return ex_complain("%s", specbatch_last_error());
        collect_ready(run, pool, prompts, settings);
        run->seconds = now() - began;
        keep_counters(run, pool);
        run->stop = ex_signal() != 0;
        if (tick)
            tick(user, run);
    }
    return 1;
}

static int32_t open_source(specbatch_draft **draft, const char *name,
                           const specbatch_model_options *options)
{
    static const char table[] = "table:";
    specbatch_model *model = NULL;
    int32_t rc;

    if (strcmp(name, "ngram") == 0)
        rc = specbatch_draft_from_ngrams(draft, NULL);
    else if (strncmp(name, table, sizeof table - 1) == 0)
        rc = specbatch_draft_from_table(draft, name + sizeof table - 1);
    else if ((rc = specbatch_model_open(&model, name, options)) == SPECBATCH_OK)
        rc = specbatch_draft_from_model(draft, model);
    specbatch_model_close(model); /* the draft has a reference of its own */
    return rc;
}

int ex_open_draft(specbatch_draft **draft, const char *const *names, size_t n,
                  const specbatch_model_options *options)
{
    specbatch_draft *sources[32] = {NULL};
    int32_t rc = SPECBATCH_OK;
    size_t i;

    for (i = 0; i < n && rc == SPECBATCH_OK; i++)
        rc = open_source(&sources[i], names[i], options);
    if (rc == SPECBATCH_OK && n == 1)
        specbatch_draft_retain(*draft = sources[0]);
    else if (rc == SPECBATCH_OK)
        rc = specbatch_draft_from_list(draft, sources, n);
    if (rc != SPECBATCH_OK)
        ex_complain("--draft: %s", specbatch_last_error());
    for (i = 0; i < n; i++)
        specbatch_draft_release(sources[i]);
    return rc == SPECBATCH_OK;
}

int ex_run(struct ex_run *run, specbatch_model *target, specbatch_draft *draft,
           const struct ex_prompts *prompts, const struct ex_settings *settings, ex_tick_fn tick,
           void *user)
{
    specbatch_pool_options options = settings->pool;
    specbatch_pool *pool = NULL;
    size_t i;
    int ok;

    memset(run, 0, sizeof *run);
    for (options.queue_max = i = 0; i < prompts->n; i++) {
        const struct ex_wish wish = ex_wish_of(&prompts->at[i].own, &settings->wish);
        options.queue_max += (uint64_t)ex_wish_made(&wish);
    }
    if (specbatch_pool_create(&pool, target, draft, &options) != SPECBATCH_OK)
        return ex_complain("%s", specbatch_last_error());
    ok = ex_run_in(run, pool, prompts, settings, tick, user);
    specbatch_pool_free(pool);
    return ok;
}

void ex_run_free(struct ex_run *run)
{
    size_t i;
    for (i = 0; run->results && i < run->n; i++)
        specbatch_result_free(run->results[i]);
    free(run->results);
    free(run->prompt);
    free(run->first);
    free(run->order);
    free(run->counters);
    memset(run, 0, sizeof *run);
}

uint64_t ex_run_counter(const struct ex_run *run, const char *name)
{
    int32_t i;
    for (i = 0; i < specbatch_stat_count(); i++)
        if (strcmp(specbatch_stat_name(i), name) == 0)
            return run->counters[i];
    return 0;
}

double ex_ratio(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0.0;
}

/* Whether one has what the other has of a kind. */
static int same(const void *a, size_t n_a, const void *b, size_t n_b, size_t size)
{
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * size) == 0);
}

static int same_result(const specbatch_result *a, const specbatch_result *b)
{
    size_t n_a, n_b;
    const int32_t *ids_a = specbatch_result_tokens(a, &n_a),
                  *ids_b = specbatch_result_tokens(b, &n_b);
    const size_t n = n_a;
    const float *logprobs_a, *logprobs_b;

    if (!same(ids_a, n_a, ids_b, n_b, sizeof *ids_a))
        return 0;
    logprobs_a = specbatch_result_logprobs(a, &n_a);
    logprobs_b = specbatch_result_logprobs(b, &n_b);
    if (!same(logprobs_a, n_a, logprobs_b, n_b, sizeof *logprobs_a))
        return 0;
    ids_a = specbatch_result_top_ids(a, &n_a);
    ids_b = specbatch_result_top_ids(b, &n_b);
    logprobs_a = specbatch_result_top_logprobs(a, NULL);
    logprobs_b = specbatch_result_top_logprobs(b, NULL);
    return same(ids_a, n * n_a, ids_b, n * n_b, sizeof *ids_a) &&
           same(logprobs_a, n * n_a, logprobs_b, n * n_b, sizeof *logprobs_a);
}

size_t ex_run_count_equal(const struct ex_run *a, const struct ex_run *b)
{
    size_t equal = 0, i;

    for (i = 0; i < a->n; i++)
        equal += (size_t)same_result(a->results[i], b->results[i]);
    return equal;
}

int ex_run_verify(const struct ex_run *run, specbatch_model *target,
                  const struct ex_prompts *prompts, const struct ex_settings *settings,
                  size_t *n_equal)
{
    size_t i;

    *n_equal = 0;
    for (i = 0; i < run->n && !ex_signal(); i++) {
        struct ex_prompt *prompt = &prompts->at[run->prompt[i]];
        struct ex_request wished;
        struct ex_wish wish;
        specbatch_audit_report report = SPECBATCH_AUDIT_REPORT_INIT;
        if (!run->results[i])
            continue;
        make_request(&wished, &wish, prompt, settings);
        if (specbatch_audit(target, &settings->pool, &wished.request, run->results[i], &report) !=
            SPECBATCH_OK)
            return ex_complain("audit of %s: %s", prompt->id, specbatch_last_error());
        if (report.equal)
            ++*n_equal;
        else
            ex_complain("%s differs from plain decoding at token %" PRId64 ": plain %" PRId32
                        ", got %" PRId32 ", margin %.9g",
                        prompt->id, report.first_divergence, report.token_expected,
                        report.token_got, (double)report.margin);
    }
    return 1;
}
