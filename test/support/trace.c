/* Random traces: what is drawn, submitted, stepped and compared; trace.h says what they test. */
#include "support/trace.h"

#include <fenv.h>
#include <stdio.h>
#include <string.h>

#include "pool/pool.h"
#include "sched/policies.h"
#include "support/place.h"
#include "support/pool_check.h"
#include "support/trace_run.h"

enum {
    SHORT_PROMPTS = 14, /* of up to 64 tokens: what the scalar level gets */
    SHORT_TURNS = 2,    /* and so many turns */
    SCENE_JOBS = 6,     /* requests of a trace with a scene of its own */
    LONGEST = 512       /* the most that max_len is */
};

static int32_t below(uint64_t *state, int32_t n)
{
    return (int32_t)(trace_random(state) % (uint64_t)n);
}

static int32_t chosen(int32_t bias, uint64_t *state, int32_t n)
{
    const int32_t value = below(state, n);
    return bias >= 0 ? bias : value;
}

/* Whether a class is another than F32, or than BF16, for a checkpoint. SPLIT is so only where
 * weights are bf16 or quantised, and INT8 where they are quantised. */
static int is_of_its_own(const struct trace_model *model)
{
    const unsigned wide = 1u << SB_F32 | 1u << SB_F16;
    int mixed;
    const unsigned types = trace_types(model->target[0], &mixed);

    if (model->compute == SPECBATCH_COMPUTE_INT8)
        return (types & ~(wide | 1u << SB_BF16)) != 0;
    return model->compute != SPECBATCH_COMPUTE_SPLIT || (types & ~wide) != 0;
}

/* Draws the target: a checkpoint in a class. One for which the class is no other makes way for the
 * next one for which it is. */
static void choose_model(struct trace_run *run)
{
    const struct trace_bias *bias = run->bias;
    const struct trace_world *world = run->world;
    const int class = chosen(bias->class, &run->state, world->n_classes);

    run->m = chosen(bias->model, &run->state, world->n_models);
    run->model = &run->world->models[class][run->m];
    while (bias->model < 0 && !is_of_its_own(run->model)) {
        run->m = (run->m + 1) % world->n_models;
        run->model = &run->world->models[class][run->m];
    }
}

static void choose_level(struct trace_run *run)
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
    static const float sure[] = {1e-6f, 0.003f, 0.1f, 1.0f}; /* of 517 tokens */
    uint64_t *state = &run->state;

    run->draft_kind = chosen(run->bias->draft, state, TRACE_DRAFTS);
    run->draft_class = (int)(run->model - run->world->models[0]) / (TRACE_MODELS + 1);
    if (run->draft_kind == TRACE_DRAFT_STRANGER || below(state, 4) == 0)
        run->draft_class = below(state, run->world->n_classes);
    run->accept_percent = 25 * below(state, 5);
    run->ngrams = (specbatch_ngram_options)SPECBATCH_NGRAM_OPTIONS_INIT;
    run->ngrams.max_match = 1 + below(state, 16);
    run->ngrams.min_match = 1 + below(state, below(state, 2) ? 1 : run->ngrams.max_match);
    run->first_source = below(state, TRACE_SOURCES);
    run->options.draft_min_prob = run->draft_kind == TRACE_DRAFT_SURE ||
                                          (run->draft_kind == TRACE_DRAFT_LIST && below(state, 2))
                                      ? sure[below(state, 4)]
                                      : 0.0f;
}

/* Draws all options but max_len, which depends on the requests, and those about memory. */
static void choose_options(struct trace_run *run)
{
    static const int32_t chunks[] = {1, 5, 32, 64, 128, 512};
    const struct trace_bias *bias = run->bias;
    specbatch_pool_options *o = &run->options;
    uint64_t *state = &run->state;

    o->policy = chosen(bias->policy, state, specbatch_policy_count());
    o->batch = 1 + below(state, 16);
    o->window = o->batch + below(state, 2 * o->batch + 1);
    o->draft_len = bias->min_draft_len + below(state, 9 - bias->min_draft_len);
    if (o->draft_len == 0)
        o->draft_len = -1;
    o->prefill_chunk = chunks[below(state, 6)];
    o->n_threads = 1 + below(state, bias->most_threads);
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

/* Which texts are asked for: one again and again, the longest beside the shortest, the turns of two
 * conversations in their order, strangers in turn, or any. */
enum pattern { SAME, FAR_APART, CONVERSATIONS, STRANGERS, ANY };

static enum pattern choose_pattern(struct trace_run *run)
{
    static const enum pattern mixed[] = {SAME, FAR_APART, ANY, ANY, CONVERSATIONS};

    if (run->bias->scene == TRACE_MIXED)
        return mixed[below(&run->state, 5)];
    return run->bias->scene == TRACE_STRANGERS ? STRANGERS : CONVERSATIONS;
}

static void choose_texts(struct trace_run *run)
{
    static const int talks[] = {4,  TRACE_PROMPTS,     TRACE_PROMPTS + 1, TRACE_PROMPTS + 2,
                                14, TRACE_PROMPTS + 3, TRACE_PROMPTS + 4, TRACE_PROMPTS + 5};
    static const int strangers[] = {10, 11, TRACE_PROMPTS};
    const int scalar = run->level == SPECBATCH_SIMD_SCALAR, scene = run->bias->scene;
    const int n_prompts = scalar ? SHORT_PROMPTS : run->world->n_prompts;
    const int n_turns = scalar ? SHORT_TURNS : run->world->n_turns;
    const int n_talks = n_turns == TRACE_TURNS ? 8 : 1 + n_turns;
    const int same = pick_text(run, n_prompts, n_turns);
    const enum pattern pattern = choose_pattern(run);

    run->one_by_one = scene == TRACE_TALK || scene == TRACE_STRANGERS ||
                      (scene != TRACE_CROWD && pattern == CONVERSATIONS && below(&run->state, 2));
    for (int i = 0; i < run->n_jobs; i++)
        run->jobs[i].prompt = pattern == SAME            ? same
                              : pattern == FAR_APART     ? (i % 2 ? n_prompts - 1 - i % 3 : i % 8)
                              : pattern == CONVERSATIONS ? talks[i % n_talks]
                              : pattern == STRANGERS     ? strangers[i % 3]
                                                         : pick_text(run, n_prompts, n_turns);
}

/* Draws the rest of a request, whose text is known. */
static void choose_request(struct trace_run *run, struct trace_job *job)
{
    const int32_t n_new = run->world->n_new, k = run->options.draft_len;
    uint64_t *state = &run->state;

    job->max_new = run->one_by_one || run->crowded ? n_new
                                                   : 1 + below(state, below(state, 4) ? 24 : n_new);
    job->draft_len = below(state, 4) ? 0 : k > 0 ? 1 + below(state, k) : -1;
    if (below(state, 10) == 0)
        job->draft_len = -1;
    job->flags = below(state, 2) ? SPECBATCH_REQUEST_IGNORE_EOS : 0u;
    job->flags |= below(state, 4) ? SPECBATCH_REQUEST_LOGPROBS : 0u;
    job->n_stop = (size_t)below(state, run->one_by_one ? 1 : 3);
    job->stop[0] = run->model->tokens[job->prompt][below(state, n_new)];
    job->stop[1] = below(state, TRACE_VOCAB);
    job->draft_sources = (uint32_t)below(state, 1 << TRACE_SOURCES);
}

/* Draws how many requests there are, when a fresh pool takes over, and whether they are crowded. */
static void choose_scene(struct trace_run *run)
{
    const struct trace_bias *bias = run->bias;
    uint64_t *state = &run->state;
    const int n = 1 + below(state, run->world->max_requests), changes = below(state, 3) == 0,
              at = 1 + below(state, n), crowded = below(state, 4) == 0;

    run->n_jobs = bias->scene == TRACE_MIXED ? n : SCENE_JOBS;
    run->change_at = bias->scene == TRACE_TAKEOVER           ? SCENE_JOBS / 2
                     : bias->scene == TRACE_MIXED && changes ? at
                                                             : run->n_jobs;
    run->crowded = bias->scene == TRACE_CROWD ||
                   (bias->scene == TRACE_MIXED && bias->memory != 0 && crowded);
    if (bias->scene == TRACE_CROWD) {
        if (sb_policy_at(run->options.policy)->realigns) /* whose slots do not grow */
            run->options.policy = SPECBATCH_POLICY_PLAIN;
        run->options.batch = run->options.window = SCENE_JOBS / 2;
    }
}

/* Draws the requests. max_len is mostly just large enough for the longest, so that its row reaches
 * the end of its slot, unless the bias asks for room. */
static int choose_jobs(struct trace_run *run)
{
    int32_t longest = 1;

    choose_scene(run);
    choose_texts(run);
    for (int i = 0; i < run->n_jobs; i++) {
        struct trace_job *job = &run->jobs[i];
        int32_t total;
        if (trace_ask(run->world, run->model, job->prompt))
            return trace_complain(run, "oracle", job->prompt, 0, 0);
        choose_request(run, job);
        total = trace_text_of(run, job)->n + job->max_new;
        if (total > longest)
            longest = total;
    }
    run->options.max_len = run->bias->roomy ? LONGEST : longest;
    if (!run->crowded && below(&run->state, 3) == 0)
        run->options.max_len += below(&run->state, LONGEST + 1 - run->options.max_len);
    return 0;
}

static int submit(struct trace_run *run)
{
    struct trace_job *job = &run->jobs[run->n_submitted++];
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = trace_text_of(run, job)->ids;
    request.n_ids = (size_t)trace_text_of(run, job)->n;
    request.max_new = job->max_new;
    request.draft_len = run->options.policy == SPECBATCH_POLICY_PLAIN ? -1 : job->draft_len;
    request.flags = job->flags;
    request.stop_ids = job->stop;
    request.n_stop_ids = job->n_stop;
    request.user = job;
    request.draft_sources = job->draft_sources & (run->draft_kind == TRACE_DRAFT_LIST ? ~0u : 1u);
    run->hit_tokens = trace_stat(run, "prefix_tokens");
    if (specbatch_pool_submit(run->pool, &request, &job->id) != SPECBATCH_OK)
        return trace_complain(run, "submit", run->n_submitted, 0, 0);
    return 0;
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
        if (submit(run))
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

static int step(struct trace_run *run)
{
    if (specbatch_pool_step(run->pool, NULL) != SPECBATCH_OK)
        return trace_complain(run, "step", 0, 0, 0);
    if (!run->bias->no_invariants && pool_check(run->pool) != SPECBATCH_OK)
        return trace_complain(run, "invariant", 0, 0, 0);
    return 0;
}

/* Counts the types of weights that take part. */
static void count_types(struct trace_run *run)
{
    struct trace_world *world = run->world;
    const int speculates = run->options.draft_len > 0 &&
                           sb_policy_at(run->options.policy)->speculates;
    const specbatch_model *draft = speculates ? trace_draft_model(run) : NULL;
    int mixed, draft_mixed;
    const unsigned target_types = trace_types(run->model->target[run->level], &mixed);
    const unsigned draft_types = draft ? trace_types(draft, &draft_mixed) : 0;

    for (int type = 0; type < SB_DTYPES; type++) {
        world->targets[type] += target_types >> type & 1;
        world->drafts[type] += draft_types >> type & 1;
    }
    world->events[TRACE_MIXED_TYPES] += draft && (target_types & draft_types) == 0;
    world->events[TRACE_MIXED_MAPS] += (uint64_t)mixed;
}

static int create(struct trace_run *run)
{
    specbatch_model *target = run->model->target[run->level];
    specbatch_draft *draft = NULL;
    int32_t rc = trace_make_draft(run, &draft);

    if (rc == SPECBATCH_OK)
        rc = trace_choose_memory(run, draft);
    if (rc == SPECBATCH_OK)
        rc = specbatch_pool_create(&run->pool, target, draft, &run->options);
    specbatch_draft_release(draft);
    count_types(run);
    return rc == SPECBATCH_OK ? 0 : trace_complain(run, "create", rc, 0, 0);
}

/* Draws what the fresh pool has of its own: a session knows nothing of it. */
static void choose_again(struct trace_run *run)
{
    static const int32_t chunks[] = {1, 32, 64, 512};
    specbatch_pool_options *o = &run->options;

    if (run->level != SPECBATCH_SIMD_SCALAR)
        choose_level(run);
    if (run->level == SPECBATCH_SIMD_SCALAR)
        run->level = SPECBATCH_SIMD_AUTO;
    if (below(&run->state, 3) == 0)
        choose_draft(run);
    o->batch = 1 + below(&run->state, 8);
    o->window = o->batch + below(&run->state, 2 * o->batch + 1);
    o->prefill_chunk = chunks[below(&run->state, 4)];
    o->n_threads = 1 + below(&run->state, run->bias->most_threads);
}

/* A fresh pool takes over, with a session of the one before. All its jobs have been collected. */
static int change_pool(struct trace_run *run)
{
    const int keeps = run->options.prefix_bytes > 0;
    struct trace_job *next = &run->jobs[run->n_submitted];

    if ((keeps &&
         (trace_save(run) || (below(&run->state, 3) == 0 && trace_try_other_class(run)))) ||
        trace_count_pool(run))
        return 1;
    specbatch_pool_free(run->pool);
    run->pool = NULL;
    run->n_pins = 0;
    run->first_job = run->n_submitted;
    choose_again(run);
    if (create(run))
        return 1;
    if (!keeps || run->options.prefix_bytes == 0)
        return 0;
    /* The next request is that of the session once more, so that it can hit. */
    next->prompt = run->jobs[run->session_job].prompt;
    next->max_new = run->jobs[run->session_job].max_new;
    next->n_stop = 0;
    if (trace_load(run) || submit(run) || step(run))
        return 1;
    run->world->events[TRACE_FRESH_LOADED]++;
    run->world->events[TRACE_SESSION_HITS] += trace_stat(run, "prefix_hits") > 0;
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
    if (step(run))
        return 1;
    return below(&run->state, 2) ? trace_collect(run) : 0;
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
                                                    "sessions of another class refused",
                                                    "drafts of other types than the target",
                                                    "targets with matrices of several types"};

    return names[event];
}

/* One event, and what must follow when nothing is left to submit. */
static int go_on(struct trace_run *run)
{
    const int changes = run->first_job == 0 && run->change_at < run->n_jobs;
    const int limit = changes ? run->change_at : run->n_jobs;

    if (changes && run->n_collected == limit)
        return change_pool(run);
    if (one_event(run))
        return 1;
    return run->n_submitted == limit ? trace_collect(run) : 0;
}

int trace_run(struct trace_world *world, uint64_t seed, const struct trace_bias *bias, char *why,
              size_t size)
{
    static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO};
    struct trace_run run = {
        .world = world, .bias = bias, .state = seed * 7919 + 1, .why = why, .size = size};
    int bad;

    run.options = (specbatch_pool_options)SPECBATCH_POOL_OPTIONS_INIT;
    choose_model(&run);
    choose_level(&run);
    choose_draft(&run);
    choose_options(&run);
    run.hostile = below(&run.state, 3);
    if (choose_jobs(&run) || create(&run))
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
