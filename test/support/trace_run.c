/* What a trace gives to its pool and takes from it: proposals that know the oracle's tokens, and
 * results, which are compared with the oracle's. */
#include "support/trace_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "support/drafts.h"

int32_t trace_below(struct trace_run *run, int32_t n)
{
    return (int32_t)(trace_random(&run->state) % (uint64_t)n);
}

int trace_complain(struct trace_run *run, const char *what, long a, long b, long c)
{
    const specbatch_pool_options *o = &run->options;
    int n = snprintf(run->why, run->size,
                     "%s (%ld, %ld, %ld): model %s weights %d class %d kv %d level %d policy %s B "
                     "%d W %d K %d chunk %d "
                     "threads %d max_len %d draft %d of class %d flags %u columns %" PRIu64
                     " budget %" PRIu64 " prefixes %" PRIu64 " pool %d; %s",
                     what, a, b, c, run->model->path, run->model->weights, run->model->compute,
                     run->model->kv, run->level, specbatch_policy_name(o->policy), o->batch,
                     o->window, o->draft_len, o->prefill_chunk, o->n_threads, o->max_len,
                     run->draft_kind, run->draft_class, o->flags, o->cache_columns, o->budget_bytes,
                     o->prefix_bytes, 1 + (run->first_job > 0), specbatch_last_error());
    (void)n;
    return 1;
}

const struct trace_prompt *trace_text_of(const struct trace_run *run, const struct trace_job *job)
{
    return trace_text(run->world, run->model, job->prompt);
}

uint64_t trace_stat(const struct trace_run *run, const char *name)
{
    uint64_t value = 0;

    return specbatch_pool_stat(run->pool, name, &value) == SPECBATCH_OK ? value : 0;
}

/* ------------------------------------------------------------------ the draft */

/* Proposes the oracle's next tokens. Each proposal is right with the chosen probability; a wrong
 * one may be any integer, also one that is no token id. */
static void oracle_row(struct trace_run *run, specbatch_draft_row *row)
{
    const struct trace_job *job = row->request_user;

    row->n_out = trace_below(run, 8) ? row->k : trace_below(run, row->k + 1);
    for (int32_t i = 0; i < row->n_out; i++) {
        const int32_t at = (int32_t)row->n_tokens - trace_text_of(run, job)->n + i;
        const int32_t wrong[4] = {-1, TRACE_VOCAB, INT32_MAX, trace_below(run, TRACE_VOCAB)};
        row->out[i] = at < run->world->n_new && trace_below(run, 100) < run->accept_percent
                          ? run->model->tokens[job->prompt][at]
                          : wrong[trace_below(run, 4)];
    }
}

static int32_t oracle_draft(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    for (size_t b = 0; b < n_rows; b++) {
        ((struct trace_job *)rows[b]->request_user)->shown = 1;
        oracle_row(user, rows[b]);
    }
    return 0;
}

/* A request's end is told once, if it was ever shown, and not before it ends. */
static void oracle_retire(void *user, uint64_t id, void *request_user)
{
    struct trace_run *run = user;
    struct trace_job *job = request_user;

    job->retired++;
    run->badly_told += !job->shown || job->retired > 1 || job->collected || job->id != id;
}

specbatch_model *trace_draft_model(const struct trace_run *run)
{
    const struct trace_model *models = run->world->models[run->draft_class];
    const struct trace_model *same = &models[run->m];

    switch (run->draft_kind) {
    case TRACE_DRAFT_MODEL:
    case TRACE_DRAFT_LIST:
    case TRACE_DRAFT_SURE:
        return same->draft[run->level] ? same->draft[run->level] : same->target[run->level];
    case TRACE_DRAFT_SELF:
        return same->target[run->level];
    case TRACE_DRAFT_STRANGER:
        return models[(run->m + 1) % run->world->n_models].target[run->level];
    default:
        return NULL;
    }
}

/* A table of what the oracle gives for one text, and of that text. */
static int32_t make_table(struct trace_run *run, specbatch_draft **draft)
{
    const int p = trace_below(run, run->world->n_prompts);
    const struct trace_prompt *prompt = &run->world->prompts[p];
    specbatch_table_options options = SPECBATCH_TABLE_OPTIONS_INIT;
    int32_t ids[sizeof prompt->ids / sizeof *prompt->ids + TRACE_ORACLE], rc = SPECBATCH_OK;
    char path[128];

    snprintf(path, sizeof path, "%s/table", run->world->folder);
    memcpy(ids, prompt->ids, (size_t)prompt->n * sizeof *ids);
    if (trace_ask(run->world, run->model, p))
        return SPECBATCH_E_INTERNAL;
    memcpy(ids + prompt->n, run->model->tokens[p], (size_t)run->world->n_new * sizeof *ids);
    options.max_match = 1 + trace_below(run, 8);
    options.min_count = 1 + trace_below(run, 2);
    rc = specbatch_table_make(path, run->model->target[run->level], ids,
                              (size_t)(prompt->n + run->world->n_new), &options);
    return rc == SPECBATCH_OK ? specbatch_draft_from_table(draft, path) : rc;
}

static int32_t make_source(struct trace_run *run, int kind, specbatch_draft **draft)
{
    specbatch_model *model = trace_draft_model(run);
    specbatch_draft_ops oracle = only_propose(oracle_draft, run);

    oracle.retire = oracle_retire;
    if (kind == TRACE_DRAFT_NGRAMS)
        return specbatch_draft_from_ngrams(draft, &run->ngrams);
    if (kind == TRACE_DRAFT_TABLE)
        return make_table(run, draft);
    if (kind == TRACE_DRAFT_ORACLE)
        return specbatch_draft_from_ops(draft, &oracle);
    return model ? specbatch_draft_from_model(draft, model) : SPECBATCH_OK;
}

static int32_t make_list(struct trace_run *run, specbatch_draft **draft)
{
    static const int kinds[TRACE_SOURCES] = {TRACE_DRAFT_NGRAMS, TRACE_DRAFT_ORACLE,
                                             TRACE_DRAFT_TABLE, TRACE_DRAFT_MODEL};
    specbatch_draft *sources[TRACE_SOURCES] = {NULL};
    int32_t rc = SPECBATCH_OK;

    for (int i = 0; i < TRACE_SOURCES && rc == SPECBATCH_OK; i++)
        rc = make_source(run, kinds[(run->first_source + i) % TRACE_SOURCES], &sources[i]);
    if (rc == SPECBATCH_OK)
        rc = specbatch_draft_from_list(draft, sources, TRACE_SOURCES);
    for (int i = 0; i < TRACE_SOURCES; i++)
        specbatch_draft_release(sources[i]);
    return rc;
}

int32_t trace_make_draft(struct trace_run *run, specbatch_draft **draft)
{
    return run->draft_kind == TRACE_DRAFT_LIST ? make_list(run, draft)
                                               : make_source(run, run->draft_kind, draft);
}

/* ------------------------------------------------------------------ results */

/* After how many of the oracle's tokens this request must end, and with which SPECBATCH_FINISH_*.
 */
static int32_t expected_length(const struct trace_run *run, const struct trace_job *job,
                               int32_t *finish)
{
    const int32_t *tokens = run->model->tokens[job->prompt];

    for (int32_t i = 0; i < job->max_new; i++) {
        if (!(job->flags & SPECBATCH_REQUEST_IGNORE_EOS) && tokens[i] == 2) {
            *finish = SPECBATCH_FINISH_EOS;
            return i + 1;
        }
        for (size_t s = 0; s < job->n_stop; s++)
            if (tokens[i] == job->stop[s]) {
                *finish = SPECBATCH_FINISH_STOP;
                return i + 1;
            }
    }
    *finish = SPECBATCH_FINISH_LENGTH;
    return job->max_new;
}

static int check_tokens(struct trace_run *run, const struct trace_job *job,
                        const specbatch_result *result)
{
    const float *logprobs = specbatch_result_logprobs(result, NULL);
    const int32_t *tokens;
    size_t n;

    tokens = specbatch_result_tokens(result, &n);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] != run->model->tokens[job->prompt][i])
            return trace_complain(run, "token (request, index, got)", (long)job->id, (long)i,
                                  tokens[i]);
    if (!logprobs != !(job->flags & SPECBATCH_REQUEST_LOGPROBS))
        return trace_complain(run, "log-probabilities given or not", (long)job->id, 0, 0);
    if (logprobs && memcmp(logprobs, run->model->logprobs[job->prompt], n * sizeof *logprobs) != 0)
        return trace_complain(run, "log-probability", (long)job->id, (long)n, 0);
    run->world->n_requests++;
    run->world->n_tokens += n;
    return 0;
}

/* A turn that was alone in the pool, and took more from the cache than the prompt that it quotes,
 * has taken some of the answer. */
static void note_turn(struct trace_run *run, const struct trace_job *job)
{
    const int32_t to = trace_turn_to(job->prompt);

    if (run->one_by_one && to >= 0)
        run->world->events[TRACE_ANSWERS] += trace_stat(run, "prefix_tokens") - run->hit_tokens >
                                             (uint64_t)trace_text(run->world, run->model, to)->n;
}

static int check_result(struct trace_run *run, const specbatch_result *result)
{
    struct trace_job *job = &run->jobs[run->first_job];
    int32_t finish, length;
    size_t n;

    while (job->id != specbatch_result_id(result))
        job++;
    specbatch_result_tokens(result, &n);
    length = expected_length(run, job, &finish);
    if (specbatch_result_user(result) != job)
        return trace_complain(run, "another request's user pointer", (long)job->id, 0, 0);
    if (job->shown != job->retired)
        return trace_complain(run, "the draft was shown, was told of the end", (long)job->id,
                              job->shown, job->retired);
    if (job->collected++)
        return trace_complain(run, "collected twice", (long)job->id, 0, 0);
    if (specbatch_result_finish(result) == SPECBATCH_FINISH_CANCELLED && job->cancelled) {
        if (n > (size_t)length)
            return trace_complain(run, "cancelled, and longer than plain", (long)job->id, (long)n,
                                  length);
    } else if (n != (size_t)length || specbatch_result_finish(result) != finish) {
        return trace_complain(run, "length or finish", (long)job->id, (long)n, length);
    }
    note_turn(run, job);
    return check_tokens(run, job, result);
}

int trace_collect(struct trace_run *run)
{
    specbatch_result *result;
    int32_t rc;

    while ((rc = specbatch_pool_collect(run->pool, &result)) == SPECBATCH_OK) {
        const int bad = check_result(run, result);
        specbatch_result_free(result);
        run->n_collected++;
        if (bad)
            return 1;
    }
    return rc == SPECBATCH_E_EMPTY ? 0 : trace_complain(run, "collect", rc, 0, 0);
}
