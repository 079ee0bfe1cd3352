/* Random traces: what is drawn, submitted, stepped and compared; trace.h says what they test. */
#include "support/trace.h"

#include <fenv.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pool/pool.h"
#include "support/drafts.h"
#include "support/place.h"
#include "support/pool_check.h"
#include "support/trace_run.h"

enum {
    VOCAB = 517,
    SHORT_PROMPTS = 14, /* of up to 64 tokens: what the scalar level gets */
    SHORT_TURNS = 2     /* and so many turns */
};

uint64_t trace_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int32_t below(uint64_t *state, int32_t n)
{
    return (int32_t)(trace_random(state) % (uint64_t)n);
}

int32_t trace_below(struct trace_run *run, int32_t n)
{
    return below(&run->state, n);
}

int trace_complain(struct trace_run *run, const char *what, long a, long b, long c)
{
    const specbatch_pool_options *o = &run->options;
    int n = snprintf(
        run->why, run->size,
        "%s (%ld, %ld, %ld): model %s class %d kv %d level %d policy %s B %d W %d K %d chunk %d "
        "threads %d max_len %d draft %d of class %d flags %u columns %" PRIu64 " budget %" PRIu64
        " prefixes %" PRIu64 " pool %d; %s",
        what, a, b, c, run->model->path, run->model->compute, run->model->kv, run->level,
        specbatch_policy_name(o->policy), o->batch, o->window, o->draft_len, o->prefill_chunk,
        o->n_threads, o->max_len, run->draft_kind, run->draft_class, o->flags, o->cache_columns,
        o->budget_bytes, o->prefix_bytes, 1 + (run->first_job > 0), specbatch_last_error());
    (void)n;
    return 1;
}

static const struct trace_prompt *text_of(const struct trace_run *run, const struct trace_job *job)
{
    return trace_text(run->world, run->model, job->prompt);
}

/* Proposes the oracle's next tokens. Each proposal is right with the chosen probability; a wrong
 * one may be any integer, also one that is no token id. */
static void oracle_row(struct trace_run *run, specbatch_draft_row *row)
{
    const struct trace_job *job = row->request_user;

    row->n_out = below(&run->state, 8) ? row->k : below(&run->state, row->k + 1);
    for (int32_t i = 0; i < row->n_out; i++) {
        const int32_t at = (int32_t)row->n_tokens - text_of(run, job)->n + i;
        const int32_t wrong[4] = {-1, VOCAB, INT32_MAX, below(&run->state, VOCAB)};
        row->out[i] = at < run->world->n_new && below(&run->state, 100) < run->accept_percent
                          ? run->model->tokens[job->prompt][at]
                          : wrong[below(&run->state, 4)];
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

static int32_t chosen(int32_t bias, uint64_t *state, int32_t n)
{
    const int32_t value = below(state, n);
    return bias >= 0 ? bias : value;
}

/* Draws the target: a checkpoint in a class. SPLIT differs from F32 only where weights are bf16, so
 * a checkpoint that has others makes way for the next one that has them. */
static void choose_model(struct trace_run *run)
{
    const struct trace_bias *bias = run->bias;
    const struct trace_world *world = run->world;
    const int class = chosen(bias->class, &run->state, world->n_classes);

    run->m = chosen(bias->model, &run->state, world->n_models);
    run->model = &run->world->models[class][run->m];
    while (bias->model < 0 && run->model->compute == SPECBATCH_COMPUTE_SPLIT &&
           strcmp(specbatch_model_dtype(run->model->target[0]), "bf16") != 0) {
        run->m = (run->m + 1) % world->n_models;
        run->model = &run->world->models[class][run->m];
    }
}

void trace_choose_level(struct trace_run *run)
{
    uint64_t *state = &run->state;

    run->level = chosen(run->bias->level, state, TRACE_LEVELS);
    if (!run->model->target[run->level] ||
        (run->bias->level < 0 && run->level == SPECBATCH_SIMD_SCALAR && below(state, 4)))
        run->level = SPECBATCH_SIMD_AUTO; /* a quarter of the scalar level's share: it is slow */
}

/* Draws what proposes. A model that does may be of another class than the target: it changes no
 * bit. */
static void choose_draft(struct trace_run *run)
{
    uint64_t *state = &run->state;

    run->draft_kind = chosen(run->bias->draft, state, TRACE_DRAFTS);
    run->draft_class = (int)(run->model - run->world->models[0]) / (TRACE_MODELS + 1);
    if (run->draft_kind == TRACE_DRAFT_STRANGER || below(state, 4) == 0)
        run->draft_class = below(state, run->world->n_classes);
    run->accept_percent = 25 * below(state, 5);
    run->ngrams = (specbatch_ngram_options)SPECBATCH_NGRAM_OPTIONS_INIT;
    run->ngrams.max_match = 1 + below(state, 16);
    run->ngrams.min_match = 1 + below(state, below(state, 2) ? 1 : run->ngrams.max_match);
}

/* Draws all options but max_len, which depends on the requests, and those about memory. */
static void choose_options(struct trace_run *run)
{
    static const int32_t chunks[] = {1, 5, 32, 64, 128, 512};
    const struct trace_bias *bias = run->bias;
    specbatch_pool_options *o = &run->options;
    uint64_t *state = &run->state;

    *o = (specbatch_pool_options)SPECBATCH_POOL_OPTIONS_INIT;
    o->policy = chosen(bias->policy, state, specbatch_policy_count());
    o->batch = 1 + below(state, 16);
    o->window = o->batch + below(state, 2 * o->batch + 1);
    o->draft_len = bias->min_draft_len + below(state, 9 - bias->min_draft_len);
    if (o->draft_len == 0)
        o->draft_len = -1;
    o->prefill_chunk = chunks[below(state, 6)];
    o->n_threads = 1 + below(state, 3);
    o->flags = (uint32_t)below(state, 8);
    if (bias->fixed_k >= 0)
        o->flags = (o->flags & 3u) | (bias->fixed_k ? SPECBATCH_POOL_FIXED_K : 0u);
}

/* The texts that a trace draws from are the first so many prompts, then the first so many turns. */
static int pick_text(struct trace_run *run, int n_prompts, int n_turns)
{
    const int at = below(&run->state, n_prompts + n_turns);

    return at < n_prompts ? at : TRACE_PROMPTS + at - n_prompts;
}

/* Draws which texts are asked for: one again and again, the longest beside the shortest, the turns
 * of two conversations in their order, each after what it answers, or any. */
static void choose_texts(struct trace_run *run)
{
    static const int conversations[] = {
        4,  TRACE_PROMPTS,     TRACE_PROMPTS + 1, TRACE_PROMPTS + 2,
        14, TRACE_PROMPTS + 3, TRACE_PROMPTS + 4, TRACE_PROMPTS + 5};
    const int scalar = run->level == SPECBATCH_SIMD_SCALAR;
    const int n_prompts = scalar ? SHORT_PROMPTS : run->world->n_prompts;
    const int n_turns = scalar ? SHORT_TURNS : run->world->n_turns;
    const int pattern = below(&run->state, 5), same = pick_text(run, n_prompts, n_turns);
    const int talk = n_turns == TRACE_TURNS ? 8 : 1 + n_turns;

    run->one_by_one = pattern == 4 && below(&run->state, 2);
    for (int i = 0; i < run->n_jobs; i++)
        run->jobs[i].prompt = pattern == 0   ? same
                              : pattern == 1 ? (i % 2 ? n_prompts - 1 - i % 3 : i % 8)
                              : pattern == 4 ? conversations[i % talk]
                                             : pick_text(run, n_prompts, n_turns);
}

/* Draws the rest of a request, whose text is known. */
static void choose_request(struct trace_run *run, struct trace_job *job)
{
    const int32_t n_new = run->world->n_new, k = run->options.draft_len;
    uint64_t *state = &run->state;

    job->max_new = run->one_by_one ? n_new : 1 + below(state, below(state, 4) ? 24 : n_new);
    job->draft_len = below(state, 4) ? 0 : k > 0 ? 1 + below(state, k) : -1;
    if (below(state, 10) == 0)
        job->draft_len = -1;
    job->flags = below(state, 2) ? SPECBATCH_REQUEST_IGNORE_EOS : 0u;
    job->flags |= below(state, 4) ? SPECBATCH_REQUEST_LOGPROBS : 0u;
    job->n_stop = (size_t)below(state, run->one_by_one ? 1 : 3);
    job->stop[0] = run->model->tokens[job->prompt][below(state, n_new)];
    job->stop[1] = below(state, VOCAB);
}

/* Draws the requests. max_len is just large enough for the longest, so that its row reaches the end
 * of its slot, unless the bias asks for room. */
static int choose_jobs(struct trace_run *run)
{
    int32_t longest = 1;

    run->n_jobs = 1 + below(&run->state, run->world->max_requests);
    run->change_at = below(&run->state, 3) ? run->n_jobs : 1 + below(&run->state, run->n_jobs);
    choose_texts(run);
    for (int i = 0; i < run->n_jobs; i++) {
        struct trace_job *job = &run->jobs[i];
        int32_t total;
        if (trace_ask(run->world, run->model, job->prompt))
            return trace_complain(run, "oracle", job->prompt, 0, 0);
        choose_request(run, job);
        total = text_of(run, job)->n + job->max_new;
        if (total > longest)
            longest = total;
    }
    run->options.max_len = run->bias->roomy ? 512 : longest;
    return 0;
}

int trace_submit(struct trace_run *run)
{
    struct trace_job *job = &run->jobs[run->n_submitted++];
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = text_of(run, job)->ids;
    request.n_ids = (size_t)text_of(run, job)->n;
    request.max_new = job->max_new;
    request.draft_len = run->options.policy == SPECBATCH_POLICY_PLAIN ? -1 : job->draft_len;
    request.flags = job->flags;
    request.stop_ids = job->stop;
    request.n_stop_ids = job->n_stop;
    request.user = job;
    run->hit_tokens = trace_stat(run, "prefix_tokens");
    if (specbatch_pool_submit(run->pool, &request, &job->id) != SPECBATCH_OK)
        return trace_complain(run, "submit", run->n_submitted, 0, 0);
    return 0;
}

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

static int collect_all(struct trace_run *run)
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

/* Overwrites what the adaptive draft length has learnt by random values, so that it also makes
 * choices to which no measurement would lead. */
static void shake(struct trace_run *run)
{
    struct sb_adapt *adapt = &run->pool->sched.adapt;
    uint64_t *state = &run->state;

    adapt->has_plain = 1;
    adapt->budget = (float)below(state, 4);
    adapt->quiet = below(state, 10);
    adapt->uniform = below(state, 2);
    for (int j = 1; j <= adapt->draft_len; j++)
        adapt->hits[j] = adapt->tries[j] * (float)below(state, 5) * 0.25f;
    for (int i = 0; i < SB_ADAPT_SIZES; i++)
        adapt->cost[i].since = below(state, 70);
}

static int submit_some(struct trace_run *run)
{
    const int limit = run->first_job > 0 ? run->n_jobs : run->change_at;

    while (run->n_submitted < limit && below(&run->state, 3)) {
        if (run->one_by_one && run->n_collected < run->n_submitted)
            break;
        if (trace_submit(run))
            return 1;
    }
    return 0;
}

static void cancel_one(struct trace_run *run)
{
    struct trace_job *job;

    if (run->n_submitted == run->first_job)
        return;
    job = &run->jobs[run->first_job + below(&run->state, run->n_submitted - run->first_job)];
    if (specbatch_pool_cancel(run->pool, job->id) == SPECBATCH_OK) {
        job->cancelled = 1;
        run->world->events[TRACE_CANCELLED]++;
    }
}

int trace_step(struct trace_run *run)
{
    if (specbatch_pool_step(run->pool, NULL) != SPECBATCH_OK)
        return trace_complain(run, "step", 0, 0, 0);
    if (!run->bias->no_invariants && pool_check(run->pool) != SPECBATCH_OK)
        return trace_complain(run, "invariant", 0, 0, 0);
    return 0;
}

static int one_event(struct trace_run *run)
{
    if (submit_some(run))
        return 1;
    if (below(&run->state, 24) == 0)
        cancel_one(run);
    if (trace_memory_event(run))
        return 1;
    if (!(run->options.flags & SPECBATCH_POOL_FIXED_K) && below(&run->state, 3) == 0)
        shake(run);
    if (trace_step(run))
        return 1;
    return below(&run->state, 2) ? collect_all(run) : 0;
}

const char *trace_event_name(int event)
{
    static const char *const names[TRACE_EVENTS] = {"hits",
                                                    "tokens taken from the cache",
                                                    "evictions",
                                                    "preemptions",
                                                    "bytes moved",
                                                    "turns that took an answer",
                                                    "requests cancelled",
                                                    "pins",
                                                    "unpins",
                                                    "sessions saved",
                                                    "sessions loaded into their own pool",
                                                    "sessions loaded into a fresh pool",
                                                    "hits of a session",
                                                    "sessions of another class refused"};

    return names[event];
}

/* One event, and what must follow when nothing is left to submit. */
static int go_on(struct trace_run *run)
{
    const int changes = run->first_job == 0 && run->change_at < run->n_jobs;
    const int limit = changes ? run->change_at : run->n_jobs;

    if (changes && run->n_collected == limit)
        return trace_change_pool(run);
    if (one_event(run))
        return 1;
    return run->n_submitted == limit ? collect_all(run) : 0;
}

specbatch_model *trace_draft_model(const struct trace_run *run)
{
    const struct trace_model *models = run->world->models[run->draft_class];
    const struct trace_model *same = &models[run->m];

    switch (run->draft_kind) {
    case TRACE_DRAFT_MODEL:
        return same->draft[run->level] ? same->draft[run->level] : same->target[run->level];
    case TRACE_DRAFT_SELF:
        return same->target[run->level];
    case TRACE_DRAFT_STRANGER:
        return models[(run->m + 1) % run->world->n_models].target[run->level];
    default:
        return NULL;
    }
}

static int32_t make_draft(struct trace_run *run, specbatch_draft **draft)
{
    specbatch_model *model = trace_draft_model(run);
    specbatch_draft_ops oracle = only_propose(oracle_draft, run);

    oracle.retire = oracle_retire;
    if (run->draft_kind == TRACE_DRAFT_NGRAMS)
        return specbatch_draft_from_ngrams(draft, &run->ngrams);
    if (run->draft_kind == TRACE_DRAFT_ORACLE)
        return specbatch_draft_from_ops(draft, &oracle);
    return model ? specbatch_draft_from_model(draft, model) : SPECBATCH_OK;
}

int trace_create(struct trace_run *run)
{
    specbatch_model *target = run->model->target[run->level];
    specbatch_draft *draft = NULL;
    int32_t rc = make_draft(run, &draft);

    if (rc == SPECBATCH_OK)
        rc = trace_choose_memory(run, draft);
    if (rc == SPECBATCH_OK)
        rc = specbatch_pool_create(&run->pool, target, draft, &run->options);
    specbatch_draft_release(draft);
    return rc == SPECBATCH_OK ? 0 : trace_complain(run, "create", rc, 0, 0);
}

int trace_run(struct trace_world *world, uint64_t seed, const struct trace_bias *bias, char *why,
              size_t size)
{
    static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO};
    struct trace_run run = {
        .world = world, .bias = bias, .state = seed * 7919 + 1, .why = why, .size = size};
    int bad;

    choose_model(&run);
    trace_choose_level(&run);
    choose_draft(&run);
    choose_options(&run);
    run.hostile = below(&run.state, 3);
    if (choose_jobs(&run) || trace_create(&run))
        return 1;
    fesetround(roundings[run.hostile]);
    bad = 0;
    for (int events = 0; !bad && run.n_collected < run.n_jobs; events++)
        bad = events > 20000 ? trace_complain(&run, "does not end", run.n_collected, run.n_jobs, 0)
                             : go_on(&run);
    if (!bad && fegetround() != roundings[run.hostile])
        bad = trace_complain(&run, "the host's rounding mode was changed", 0, 0, 0);
    if (!bad && run.badly_told)
        bad = trace_complain(&run, "the draft was told of an end twice or at a wrong time", 0, 0,
                             0);
    fesetround(FE_TONEAREST);
    bad = trace_count_pool(&run) || bad;
    specbatch_pool_free(run.pool);
    return bad;
}
