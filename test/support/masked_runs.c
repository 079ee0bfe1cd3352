/* The requests of masked_runs.h: their rules, the pools that run them, and the comparison. */
#include "support/masked_runs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/drafts.h"

#define TARGET "test/data/models/qwen3_untied_f32_sharded"

/* Rules that let some ids through, one that forces stretches, one whose forced id is banned by a
 * bias, one that comes to a dead end. */
static struct masked_rule rules[] = {
    {.modulus = 7, .keep = 2},
    {.modulus = 3, .keep = 2, .period = 6, .free = 2},
    {.modulus = 5, .keep = 1, .period = 9, .free = 1},
    {.modulus = 11, .keep = 4, .period = 6, .free = 5, .forced = 77},
    {.modulus = 4, .keep = 3, .dead_at = 10},
};

static struct masked_job jobs[MASKED_JOBS];
static specbatch_model *target;
static specbatch_draft *draft_model;

specbatch_model *masked_target(void)
{
    return target;
}

specbatch_draft *masked_draft_model(void)
{
    return draft_model;
}

struct masked_job *masked_jobs(void)
{
    return jobs;
}

/* ------------------------------------------------------------------ rules */

int masked_allows(const struct masked_rule *rule, const int32_t *tokens, size_t n, size_t n_prompt,
                  int32_t id)
{
    const int32_t p = (int32_t)(n - n_prompt), t = tokens[n - 1];

    if (rule->dead_at > 0 && p >= rule->dead_at)
        return 0;
    if (rule->period > 0 && p % rule->period >= rule->free)
        return id == (rule->forced ? rule->forced : 3 + (7 * t + 13 * p) % (MASKED_VOCAB - 3));
    return (id + t + p) % rule->modulus < rule->keep;
}

/* Whether a position is given as the header promises: all ids have a token here. */
static int is_odd(const specbatch_mask_row *row)
{
    const struct masked_job *job = row->request_user;
    int odd = row->struct_size != sizeof *row || row->n_words != (MASKED_VOCAB + 31) / 32 ||
              row->n_prompt != MASKED_PROMPT || row->request_id == 0 ||
              row->n_tokens < row->n_prompt + row->n_answer ||
              memcmp(row->tokens, job->prompt, sizeof job->prompt) != 0;

    for (int32_t id = 0; id < 32 * (int32_t)row->n_words; id++)
        odd |= (int)(row->allowed[id / 32] >> id % 32 & 1) != (id < MASKED_VOCAB);
    for (size_t i = 0; i < row->n_tokens; i++)
        odd |= row->tokens[i] < 0 || row->tokens[i] >= MASKED_VOCAB;
    return odd;
}

int32_t masked_allow(void *user, specbatch_mask_row *const *rows, size_t n_rows)
{
    struct masked_rule *rule = user;

    rule->n_positions += (int32_t)n_rows;
    if (++rule->n_calls == rule->cancel_at)
        return 7;
    for (size_t i = 0; i < n_rows; i++) {
        const specbatch_mask_row *row = rows[i];
        rule->n_odd += is_odd(row);
        for (int32_t id = 0; id < MASKED_VOCAB; id++)
            if (!masked_allows(rule, row->tokens, row->n_tokens, row->n_prompt, id))
                row->allowed[id / 32] &= ~((uint32_t)1 << id % 32);
    }
    return 0;
}

/* ------------------------------------------------------------------ requests */

static void make_jobs(void)
{
    static const int32_t banned = 77;
    static const float ban = -INFINITY;
    static const int32_t rule_of[MASKED_JOBS] = {-1, 0, 1, 1, -1, 2, 3, 4};

    for (int32_t i = 0; i < MASKED_JOBS; i++) {
        struct masked_job *job = &jobs[i];
        const specbatch_sampling sampling = SPECBATCH_SAMPLING_INIT;
        *job = (struct masked_job){.max_new = MASKED_NEW - i,
                                   .rule = rule_of[i] < 0 ? NULL : &rules[rule_of[i]],
                                   .sampling = sampling};
        for (int32_t j = 0; j < MASKED_PROMPT; j++)
            job->prompt[j] = 3 + (37 * j + (j < 36 ? 5 : 101 * i)) % (MASKED_VOCAB - 3);
        job->sampling.seed = (uint64_t)i;
        job->sampling.temperature = i == 3 || i == 4 ? 0.9f : 0.0f;
        if (job->rule && job->rule->forced == banned) {
            job->sampling.bias_ids = &banned;
            job->sampling.bias = &ban;
            job->sampling.n_bias = 1;
        }
    }
}

static int32_t submit_all(specbatch_pool *pool)
{
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < MASKED_JOBS && rc == SPECBATCH_OK; i++) {
        struct masked_job *job = &jobs[i];
        specbatch_request request = SPECBATCH_REQUEST_INIT;
        specbatch_mask mask = SPECBATCH_MASK_INIT;
        mask.allow = masked_allow;
        mask.user = job->rule;
        request.ids = job->prompt;
        request.n_ids = MASKED_PROMPT;
        request.max_new = job->max_new;
        request.user = job;
        request.flags = SPECBATCH_REQUEST_LOGPROBS | (i % 2 ? SPECBATCH_REQUEST_IGNORE_EOS : 0);
        request.sampling = &job->sampling;
        request.mask = job->rule ? &mask : NULL;
        rc = specbatch_pool_submit(pool, &request, NULL);
    }
    return rc;
}

/* A step that a mask has cancelled is repeated. */
static int32_t run(specbatch_pool *pool)
{
    int32_t rc;

    do
        rc = specbatch_pool_run(pool);
    while (rc == SPECBATCH_E_CANCELLED);
    return rc;
}

/* ------------------------------------------------------------------ drafts */

/* Proposes what plain decoding gives; wrong: but for every third token. */
static int32_t propose(const specbatch_draft_row *row, int wrong)
{
    const struct masked_job *job = row->request_user;
    int32_t n = 0;

    for (size_t at = row->n_tokens - MASKED_PROMPT; n < row->k && at < job->n_tokens; at++, n++)
        row->out[n] = wrong && at % 3 == 2 ? (job->tokens[at] + 1) % MASKED_VOCAB : job->tokens[at];
    return n;
}

static int32_t propose_right(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++)
        rows[b]->n_out = propose(rows[b], 0);
    return 0;
}

static int32_t propose_wrong(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    (void)user;
    for (size_t b = 0; b < n_rows; b++)
        rows[b]->n_out = propose(rows[b], 1);
    return 0;
}

static int32_t make_pool(specbatch_pool **pool, const struct masked_way *way)
{
    const specbatch_draft_ops right = only_propose(propose_right, NULL),
                              wrong = only_propose(propose_wrong, NULL);
    specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;

    options.policy = way->policy;
    options.batch = way->batch;
    options.draft_len = way->draft_len;
    options.window = way->prefixes ? way->batch : 0; /* so that some come after others have ended */
    options.max_len = 100;
    options.n_threads = 1;
    options.prefill_chunk = 16;
    options.flags = (way->adaptive ? 0 : SPECBATCH_POOL_FIXED_K) |
                    (way->crowded ? SPECBATCH_POOL_GROW_SLOTS : 0);
    options.prefix_bytes = way->prefixes ? 1 << 20 : 0;
    options.cache_columns = way->crowded ? 240 : 0;
    switch (way->draft) {
    case MASKED_MODEL:
        return specbatch_pool_create(pool, target, draft_model, &options);
    case MASKED_SELF:
        return create_with_model(pool, target, target, &options);
    case MASKED_RIGHT:
        return create_with_ops(pool, target, &right, &options);
    case MASKED_WRONG:
        return create_with_ops(pool, target, &wrong, &options);
    case MASKED_NGRAMS:
        return create_with_ngrams(pool, target, NULL, &options);
    default:
        return specbatch_pool_create(pool, target, NULL, &options);
    }
}

/* ------------------------------------------------------------------ results */

static void note(struct masked_job *job, const specbatch_result *result)
{
    const int32_t *tokens = specbatch_result_tokens(result, &job->n_tokens);

    memcpy(job->tokens, tokens, job->n_tokens * sizeof *tokens);
    memcpy(job->logprobs, specbatch_result_logprobs(result, NULL),
           job->n_tokens * sizeof *job->logprobs);
    job->finish = specbatch_result_finish(result);
    job->status = specbatch_result_status(result);
}

static int is_equal(const struct masked_job *job, const specbatch_result *result)
{
    size_t n;
    const int32_t *tokens = specbatch_result_tokens(result, &n);

    return n == job->n_tokens && memcmp(tokens, job->tokens, n * sizeof *tokens) == 0 &&
           memcmp(specbatch_result_logprobs(result, NULL), job->logprobs,
                  n * sizeof *job->logprobs) == 0 &&
           specbatch_result_finish(result) == job->finish &&
           specbatch_result_status(result) == job->status;
}

/* Collects all results. make: they become what others are compared with. Returns how many differ or
 * are not there. */
static int collect(specbatch_pool *pool, int make)
{
    specbatch_result *result;
    int n_equal = 0;

    while (specbatch_pool_collect(pool, &result) == SPECBATCH_OK) {
        struct masked_job *job = specbatch_result_user(result);
        if (make)
            note(job, result);
        n_equal += is_equal(job, result);
        specbatch_result_free(result);
    }
    return MASKED_JOBS - n_equal;
}

static int run_way(const struct masked_way *way, int make, char *why, size_t size)
{
    specbatch_pool *pool = NULL;
    int differ = 0, odd = 0;
    int32_t rc;

    if ((rc = make_pool(&pool, way)) == SPECBATCH_OK && (rc = submit_all(pool)) == SPECBATCH_OK &&
        (rc = run(pool)) == SPECBATCH_OK)
        differ = collect(pool, make);
    for (size_t i = 0; i < way->n_counters && rc == SPECBATCH_OK; i++)
        rc = specbatch_pool_stat(pool, way->names[i], &way->values[i]);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        odd += rules[i].n_odd;
    specbatch_pool_free(pool);
    if (rc == SPECBATCH_OK && differ + odd == 0)
        return 0;
    snprintf(why, size,
             "policy %s B %d K %d draft %d adaptive %d prefixes %d crowded %d: %d of %d requests "
             "differ, %d positions are odd, status %d %s",
             specbatch_policy_name(way->policy), way->batch, way->draft_len, (int)way->draft,
             way->adaptive, way->prefixes, way->crowded, differ, MASKED_JOBS, odd, rc,
             rc ? specbatch_last_error() : "");
    return 1;
}

int masked_run(const struct masked_way *way, char *why, size_t size)
{
    return run_way(way, 0, why, size);
}

int masked_open(void)
{
    const struct masked_way plain = {.policy = SPECBATCH_POLICY_PLAIN, .batch = 1};
    specbatch_model *small = NULL;
    char why[400];
    int bad = 1;

    make_jobs();
    if (specbatch_model_open(&target, TARGET, NULL) == SPECBATCH_OK &&
        specbatch_model_open(&small, TARGET ".draft", NULL) == SPECBATCH_OK &&
        (draft_model = draft_of(small)) != NULL)
        bad = run_way(&plain, 1, why, sizeof why);
    specbatch_model_close(small);
    return bad ? -1 : 0;
}

void masked_close(void)
{
    specbatch_draft_release(draft_model);
    specbatch_model_close(target);
}
