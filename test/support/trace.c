/* Random traces; trace.h says what they are and what they test. */
#include "support/trace.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/pool.h"
#include "support/drafts.h"
#include "support/emulated_tiles.h"
#include "support/place.h"
#include "support/pool_check.h"

static const char *const model_names[TRACE_MODELS] = {
    "qwen3_untied_f32_sharded", "llama_untied_f32_sharded", "glm4_unbiased_bf16",
    "llama3_scaled_biased_tied_bf16", "qwen2_tied_f32"};
static const int32_t prompt_lengths[TRACE_PROMPTS] = {
    1, 1, 2, 3, 7, 7, 7, 7, 16, 16, 33, 33, 63, 64, 65, 90, 90, 127, 128, 129, 130, 200, 300, 400};
enum {
    VOCAB = 517,
    MAX_REQUESTS = 24,
    SHORT_PROMPTS = 14 /* of up to 64 tokens: what the scalar level gets */
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

/* ------------------------------------------------------------------ world */

/* Opens a model at a level. *out stays NULL where this machine lacks it. */
static int32_t open_level(specbatch_model **out, const char *path, int32_t compute, int level)
{
    specbatch_model_options options = place_options();
    int32_t rc;

    if (place_is_cuda())
        return level == SPECBATCH_SIMD_AUTO ? specbatch_model_open(out, path, &options)
                                            : SPECBATCH_OK;
    options.compute = compute;
    options.simd = level;
    rc = level == TRACE_EMULATED ? open_with_emulated_tiles(out, path, &options)
                                 : specbatch_model_open(out, path, &options);
    return rc == SPECBATCH_E_UNSUPPORTED && level >= SPECBATCH_SIMD_AVX2 ? SPECBATCH_OK : rc;
}

static int open_levels(specbatch_model *out[TRACE_LEVELS], const struct trace_model *model,
                       const char *suffix)
{
    char path[620];

    snprintf(path, sizeof path, "%s%s", model->path, suffix);
    for (int level = 0; level < TRACE_LEVELS; level++)
        if (open_level(&out[level], path, model->compute, level) != SPECBATCH_OK)
            return -1;
    return 0;
}

static int has_draft(const struct trace_model *model)
{
    char path[620];

    snprintf(path, sizeof path, "%s.draft", model->path);
    return access(path, F_OK) == 0;
}

/* Decodes a prompt plainly, unless that has been done. It is done when a trace first needs it,
 * since most test programs need only a part of all models and prompts. */
static int ask_oracle(const struct trace_world *world, struct trace_model *model, int p)
{
    const struct trace_prompt *prompt = &world->prompts[p];
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
    specbatch_request request = SPECBATCH_REQUEST_INIT;
    specbatch_pool *pool = NULL;
    specbatch_result *result = NULL;
    const size_t n_new = (size_t)world->n_new;
    size_t active = 1, n = 0;
    int rc = -1;

    if (model->asked[p])
        return 0;
    options.policy = SPECBATCH_POLICY_PLAIN;
    options.batch = options.n_threads = 1;
    request.ids = prompt->ids;
    request.n_ids = (size_t)prompt->n;
    request.max_new = world->n_new;
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS | SPECBATCH_REQUEST_LOGPROBS;
    if (specbatch_pool_create(&pool, model->oracle, NULL, &options) ||
        specbatch_pool_submit(pool, &request, NULL))
        goto done;
    while (active)
        if (specbatch_pool_step(pool, &active))
            goto done;
    if (specbatch_pool_collect(pool, &result))
        goto done;
    memcpy(model->tokens[p], specbatch_result_tokens(result, &n),
           n_new * sizeof model->tokens[p][0]);
    memcpy(model->logprobs[p], specbatch_result_logprobs(result, NULL),
           n_new * sizeof model->logprobs[p][0]);
    model->asked[p] = n == n_new;
    rc = model->asked[p] ? 0 : -1;
done:
    specbatch_result_free(result);
    specbatch_pool_free(pool);
    return rc;
}

/* Opens the model that decodes plainly. It is the target itself; on a device in the numerics class
 * whose bits are the CPU's, it is the same checkpoint on the CPU. */
static int open_oracle(struct trace_model *model)
{
    specbatch_model_options options = SPECBATCH_MODEL_OPTIONS_INIT;

    options.compute = model->compute;
    if (place_is_cuda() && place_is_reference())
        return specbatch_model_open(&model->oracle, model->path, &options);
    model->oracle = model->target[0];
    specbatch_model_retain(model->oracle);
    return 0;
}

/* Opens model m of the world in a class. */
static int open_model(struct trace_model *model, const char *dir, int m, int32_t compute)
{
    model->compute = compute;
    if (m < TRACE_MODELS)
        snprintf(model->path, sizeof model->path, "%s/%s", dir, model_names[m]);
    else
        snprintf(model->path, sizeof model->path, "%s", place_checkpoint());
    if (open_levels(model->target, model, "") || open_oracle(model))
        return -1;
    return has_draft(model) ? open_levels(model->draft, model, ".draft") : 0;
}

int trace_world_open(struct trace_world *world, const char *dir)
{
    static const int32_t classes[TRACE_CLASSES] = {SPECBATCH_COMPUTE_F32, SPECBATCH_COMPUTE_BF16,
                                                   SPECBATCH_COMPUTE_SPLIT};
    uint64_t state = 42;

    memset(world, 0, sizeof *world);
    world->n_prompts = place_is_small() ? 16 : TRACE_PROMPTS;
    world->max_requests = place_is_small() ? 6 : MAX_REQUESTS;
    world->n_new = place_is_small() ? TRACE_ORACLE / 2 : TRACE_ORACLE;
    for (int p = 0; p < TRACE_PROMPTS; p++) {
        world->prompts[p].n = prompt_lengths[p];
        for (int i = 0; i < prompt_lengths[p]; i++)
            world->prompts[p].ids[i] = 3 + below(&state, VOCAB - 3);
    }
    world->n_models = TRACE_MODELS + (place_checkpoint() != NULL);
    world->n_classes = place_is_cuda() ? 1 : TRACE_CLASSES;
    for (int c = 0; c < world->n_classes; c++)
        for (int m = 0; m < world->n_models; m++)
            if (open_model(&world->models[c][m], dir, m,
                           place_is_cuda() ? place_options().compute : classes[c]))
                return -1;
    return 0;
}

int trace_world_ask(struct trace_world *world, int class)
{
    for (int m = 0; m < world->n_models; m++)
        for (int p = 0; p < world->n_prompts; p++)
            if (ask_oracle(world, &world->models[class][m], p))
                return -1;
    return 0;
}

static void close_model(struct trace_model *model)
{
    specbatch_model_close(model->oracle);
    for (int level = 0; level < TRACE_LEVELS; level++) {
        specbatch_model_close(model->target[level]);
        specbatch_model_close(model->draft[level]);
    }
}

void trace_world_close(struct trace_world *world)
{
    for (int c = 0; c < world->n_classes; c++)
        for (int m = 0; m < world->n_models; m++)
            close_model(&world->models[c][m]);
}

/* ------------------------------------------------------------------ a trace */

struct job {
    int prompt;
    int32_t max_new, draft_len, stop[2];
    size_t n_stop;
    uint32_t flags;
    uint64_t id;
    int cancelled, collected;
    int shown, retired; /* what the oracle draft was told of it */
};

struct run {
    struct trace_world *world;
    struct trace_model *model;
    uint64_t state;
    int m, level, draft_kind, hostile; /* m: the model's place in its class */
    int32_t accept_percent;            /* chance that a proposal of oracle_draft is right */
    specbatch_ngram_options ngrams;
    specbatch_pool_options options;
    specbatch_pool *pool;
    struct job jobs[MAX_REQUESTS];
    int n_jobs, n_submitted, n_collected;
    int badly_told; /* notices that the oracle draft should not have got */
    char *why;
    size_t size;
};

static int complain(struct run *run, const char *what, long a, long b, long c)
{
    int n = snprintf(
        run->why, run->size,
        "%s (%ld, %ld, %ld): model %s class %d level %d policy %s B %d W %d K %d chunk %d "
        "threads %d max_len %d draft %d flags %u; %s",
        what, a, b, c, run->model->path, run->model->compute, run->level,
        specbatch_policy_name(run->options.policy), run->options.batch, run->options.window,
        run->options.draft_len, run->options.prefill_chunk, run->options.n_threads,
        run->options.max_len, run->draft_kind, run->options.flags, specbatch_last_error());
    (void)n;
    return 1;
}

/* Proposes the oracle's next tokens. Each proposal is right with the chosen probability; a wrong
 * one may be any integer, also one that is no token id. */
static void oracle_row(struct run *run, specbatch_draft_row *row)
{
    const struct job *job = row->request_user;

    row->n_out = below(&run->state, 8) ? row->k : below(&run->state, row->k + 1);
    for (int32_t i = 0; i < row->n_out; i++) {
        const int32_t at = (int32_t)row->n_tokens - run->world->prompts[job->prompt].n + i;
        const int32_t wrong[4] = {-1, VOCAB, INT32_MAX, below(&run->state, VOCAB)};
        row->out[i] = at < run->world->n_new && below(&run->state, 100) < run->accept_percent
                          ? run->model->tokens[job->prompt][at]
                          : wrong[below(&run->state, 4)];
    }
}

static int32_t oracle_draft(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    for (size_t b = 0; b < n_rows; b++) {
        ((struct job *)rows[b]->request_user)->shown = 1;
        oracle_row(user, rows[b]);
    }
    return 0;
}

/* A request's end is told once, if it was ever shown, and not before it ends. */
static void oracle_retire(void *user, uint64_t id, void *request_user)
{
    struct run *run = user;
    struct job *job = request_user;

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
static void choose_model(struct run *run, const struct trace_bias *bias)
{
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

static void choose_options(struct run *run, const struct trace_bias *bias)
{
    static const int32_t chunks[] = {1, 5, 32, 64, 128, 512};
    specbatch_pool_options *o = &run->options;
    uint64_t *state = &run->state;

    *o = (specbatch_pool_options)SPECBATCH_POOL_OPTIONS_INIT;
    choose_model(run, bias);
    run->level = chosen(bias->level, state, TRACE_LEVELS);
    if (!run->model->target[run->level] ||
        (bias->level < 0 && run->level == SPECBATCH_SIMD_SCALAR && below(state, 4)))
        run->level = SPECBATCH_SIMD_AUTO; /* a quarter of the scalar level's share: it is slow */
    run->draft_kind = chosen(bias->draft, state, TRACE_DRAFTS);
    run->accept_percent = 25 * below(state, 5);
    run->hostile = below(state, 3);
    run->ngrams = (specbatch_ngram_options)SPECBATCH_NGRAM_OPTIONS_INIT;
    run->ngrams.max_match = 1 + below(state, 16);
    run->ngrams.min_match = 1 + below(state, below(state, 2) ? 1 : run->ngrams.max_match);
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

/* Draws the requests: of any lengths, all of one length, or the longest beside the shortest.
 * max_len is just large enough for the longest, so that its row reaches the end of its slot, unless
 * the bias asks for room. */
static int choose_jobs(struct run *run, const struct trace_bias *bias)
{
    uint64_t *state = &run->state;
    const int n_prompts = run->level == SPECBATCH_SIMD_SCALAR ? SHORT_PROMPTS
                                                              : run->world->n_prompts;
    const int pattern = below(state, 4), same = below(state, n_prompts);
    int32_t longest = 1;

    run->n_jobs = 1 + below(state, run->world->max_requests);
    for (int i = 0; i < run->n_jobs; i++) {
        struct job *job = &run->jobs[i];
        int32_t total;
        *job = (struct job){.prompt = pattern == 0   ? same
                                      : pattern == 1 ? (i % 2 ? n_prompts - 1 - i % 3 : i % 8)
                                                     : below(state, n_prompts)};
        job->max_new = 1 + below(state, below(state, 4) ? 24 : run->world->n_new);
        job->draft_len = below(state, 4)              ? 0
                         : run->options.draft_len > 0 ? 1 + below(state, run->options.draft_len)
                                                      : -1;
        if (below(state, 10) == 0)
            job->draft_len = -1;
        job->flags = below(state, 2) ? SPECBATCH_REQUEST_IGNORE_EOS : 0u;
        job->flags |= below(state, 4) ? SPECBATCH_REQUEST_LOGPROBS : 0u;
        if (ask_oracle(run->world, run->model, job->prompt))
            return complain(run, "oracle", job->prompt, 0, 0);
        job->n_stop = (size_t)below(state, 3);
        job->stop[0] = run->model->tokens[job->prompt][below(state, run->world->n_new)];
        job->stop[1] = below(state, VOCAB);
        total = run->world->prompts[job->prompt].n + job->max_new;
        if (total > longest)
            longest = total;
    }
    run->options.max_len = bias->roomy ? 512 : longest;
    return 0;
}

static int submit(struct run *run)
{
    struct job *job = &run->jobs[run->n_submitted++];
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = run->world->prompts[job->prompt].ids;
    request.n_ids = (size_t)run->world->prompts[job->prompt].n;
    request.max_new = job->max_new;
    request.draft_len = run->options.policy == SPECBATCH_POLICY_PLAIN ? -1 : job->draft_len;
    request.flags = job->flags;
    request.stop_ids = job->stop;
    request.n_stop_ids = job->n_stop;
    request.user = job;
    if (specbatch_pool_submit(run->pool, &request, &job->id) != SPECBATCH_OK)
        return complain(run, "submit", run->n_submitted, 0, 0);
    return 0;
}

/* After how many of the oracle's tokens this request must end, and with which SPECBATCH_FINISH_*.
 */
static int32_t expected_length(const struct run *run, const struct job *job, int32_t *finish)
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

static int check_result(struct run *run, const specbatch_result *result)
{
    struct job *job = run->jobs;
    const float *logprobs = specbatch_result_logprobs(result, NULL);
    const int32_t *tokens;
    int32_t finish, length;
    size_t n;

    while (job->id != specbatch_result_id(result))
        job++;
    tokens = specbatch_result_tokens(result, &n);
    length = expected_length(run, job, &finish);
    if (specbatch_result_user(result) != job)
        return complain(run, "another request's user pointer", (long)job->id, 0, 0);
    if (job->shown != job->retired)
        return complain(run, "the draft was shown, was told of the end", (long)job->id, job->shown,
                        job->retired);
    if (job->collected++)
        return complain(run, "collected twice", (long)job->id, 0, 0);
    if (specbatch_result_finish(result) == SPECBATCH_FINISH_CANCELLED && job->cancelled) {
        if (n > (size_t)length)
            return complain(run, "cancelled, and longer than plain", (long)job->id, (long)n,
                            length);
    } else if (n != (size_t)length || specbatch_result_finish(result) != finish) {
        return complain(run, "length or finish", (long)job->id, (long)n, length);
    }
    for (size_t i = 0; i < n; i++)
        if (tokens[i] != run->model->tokens[job->prompt][i])
            return complain(run, "token (request, index, got)", (long)job->id, (long)i, tokens[i]);
    if (!logprobs != !(job->flags & SPECBATCH_REQUEST_LOGPROBS))
        return complain(run, "log-probabilities given or not", (long)job->id, 0, 0);
    if (logprobs && memcmp(logprobs, run->model->logprobs[job->prompt], n * sizeof *logprobs) != 0)
        return complain(run, "log-probability", (long)job->id, (long)n, 0);
    run->world->n_requests++;
    run->world->n_tokens += n;
    return 0;
}

static int collect_all(struct run *run)
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
    return rc == SPECBATCH_E_EMPTY ? 0 : complain(run, "collect", rc, 0, 0);
}

/* Overwrites what the adaptive draft length has learnt by random values, so that it also makes
 * choices to which no measurement would lead. */
static void shake(struct run *run)
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

static int one_event(struct run *run, const struct trace_bias *bias)
{
    size_t active;

    while (run->n_submitted < run->n_jobs && below(&run->state, 3))
        if (submit(run))
            return 1;
    if (run->n_submitted > 0 && below(&run->state, 24) == 0) {
        struct job *job = &run->jobs[below(&run->state, run->n_submitted)];
        if (specbatch_pool_cancel(run->pool, job->id) == SPECBATCH_OK)
            job->cancelled = 1;
    }
    if (!(run->options.flags & SPECBATCH_POOL_FIXED_K) && below(&run->state, 3) == 0)
        shake(run);
    if (specbatch_pool_step(run->pool, &active) != SPECBATCH_OK)
        return complain(run, "step", 0, 0, 0);
    if (!bias->no_invariants && pool_check(run->pool) != SPECBATCH_OK)
        return complain(run, "invariant", 0, 0, 0);
    return below(&run->state, 2) ? collect_all(run) : 0;
}

/* The model that proposes, or NULL. */
static specbatch_model *draft_model(struct run *run)
{
    const struct trace_world *world = run->world;

    switch (run->draft_kind) {
    case TRACE_DRAFT_MODEL:
        return run->model->draft[run->level] ? run->model->draft[run->level]
                                             : run->model->target[run->level];
    case TRACE_DRAFT_SELF:
        return run->model->target[run->level];
    case TRACE_DRAFT_STRANGER:
        return world->models[below(&run->state, world->n_classes)][(run->m + 1) % world->n_models]
            .target[run->level];
    default:
        return NULL;
    }
}

static int32_t create_pool(struct run *run)
{
    specbatch_model *target = run->model->target[run->level];
    specbatch_draft_ops oracle = only_propose(oracle_draft, run);

    oracle.retire = oracle_retire;
    if (run->draft_kind == TRACE_DRAFT_NGRAMS)
        return create_with_ngrams(&run->pool, target, &run->ngrams, &run->options);
    if (run->draft_kind == TRACE_DRAFT_ORACLE)
        return create_with_ops(&run->pool, target, &oracle, &run->options);
    return create_with_model(&run->pool, target, draft_model(run), &run->options);
}

int trace_run(struct trace_world *world, uint64_t seed, const struct trace_bias *bias, char *why,
              size_t size)
{
    static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO};
    struct run run = {.world = world, .state = seed * 7919 + 1, .why = why, .size = size};
    int bad = 0;

    choose_options(&run, bias);
    if (choose_jobs(&run, bias))
        return 1;
    if (create_pool(&run) != SPECBATCH_OK)
        return complain(&run, "create", 0, 0, 0);
    fesetround(roundings[run.hostile]);
    for (int events = 0; !bad && run.n_collected < run.n_jobs; events++) {
        bad = events > 20000 ? complain(&run, "does not end", run.n_collected, run.n_jobs, 0)
                             : one_event(&run, bias);
        if (!bad && run.n_submitted == run.n_jobs)
            bad = collect_all(&run);
    }
    if (!bad && fegetround() != roundings[run.hostile])
        bad = complain(&run, "the host's rounding mode was changed", 0, 0, 0);
    if (!bad && run.badly_told)
        bad = complain(&run, "the draft was told of an end twice or at a wrong time", 0, 0, 0);
    fesetround(FE_TONEAREST);
    specbatch_pool_free(run.pool);
    return bad;
}
