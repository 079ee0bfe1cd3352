/*
 * The audit: it replays a request on the target alone, without speculation and at batch 1, and
 * compares tokens and log-probabilities bit for bit.
 *
 * The replay is an ordinary pool with the plain policy, so it runs the very code whose promise it
 * checks. It finds whatever a batch, a policy, a draft or a schedule has changed. It cannot find a
 * wrong kernel, which changes both runs alike; that is what the reference answers in test/data are
 * for.
 */
#include "engine/stops.h"
#include "pool/pool.h"
#include "pool/request_sampling.h"

#include <string.h>

#include "options.h"
#include "status.h"

/* Checks that the result is that of this request, which has been submitted to the replaying pool.
 */
static int32_t check_same_request(const struct sb_seq *plain, const struct sb_seq *got)
{
    const char *differs = NULL;

    if (plain->n_prompt != got->n_prompt ||
        memcmp(plain->tokens, got->tokens, (size_t)got->n_prompt * sizeof *got->tokens) != 0)
        differs = "prompt";
    else if (plain->max_tokens != got->max_tokens)
        differs = "max_new";
    else if (plain->n_stop_ids != got->n_stop_ids ||
             memcmp(plain->stop_ids, got->stop_ids,
                    (size_t)got->n_stop_ids * sizeof *got->stop_ids) != 0)
        differs = "stop_ids";
    else if (!sb_stops_equal(plain->stops, got->stops))
        differs = "stop strings";
    else if (plain->min_new != got->min_new)
        differs = "min_new";
    else if (plain->ignore_eos != got->ignore_eos ||
             !plain->logprobs != (!got->logprobs || got->hides_logprobs))
        differs = "flags";
    else if (!sb_sampling_equal(plain->sampling, got->sampling))
        differs = "sampling";
    else if (!plain->mask.allow != !got->mask.allow)
        differs = "mask";
    else if (!sb_scores_want_same(plain, got))
        differs = "top_logprobs or flags";
    return differs ? sb_fail(SPECBATCH_E_INVALID,
                             "audit: the result is of another request: its %s differ%s", differs,
                             differs[strlen(differs) - 1] == 's' ? "" : "s")
                   : SPECBATCH_OK;
}

static int32_t replay(struct specbatch_pool **out, struct specbatch_model *target,
                      const specbatch_pool_options *given, const specbatch_request *request,
                      const struct sb_seq *got)
{
    specbatch_pool_options options = *given;
    struct specbatch_pool *pool = NULL;
    specbatch_request plain = *request;
    int32_t rc = SPECBATCH_OK;

    options.policy = SPECBATCH_POLICY_PLAIN;
    options.batch = options.window = 1;
    options.draft_len = 0;
    options.cache_columns = 0;
    options.flags &= ~(uint32_t)SPECBATCH_POOL_GROW_SLOTS;
    if (options.max_len < got->max_tokens)
        options.max_len = got->max_tokens;
    options.prefix_bytes = 0; /* what is compared with is computed from the beginning */
    plain.draft_len = 0;
    plain.deadline_ns = 0;
    plain.answers = NULL;
    SB_TRY(sb_pool_create(&pool, target, NULL, &options));
    pool->keep_margins = 1;
    pool->first_answer = got->answer;
    SB_TRY(sb_pool_submit(pool, &plain, NULL));
    SB_TRY(check_same_request(sb_idmap_find(&pool->by_id, pool->last_id), got));
    SB_TRY(sb_pool_run(pool));
    *out = pool;
    pool = NULL;
done:
    sb_pool_free(pool);
    return rc;
}

/* The index of the first of n tokens that differs, or whose log-probability or alternatives do
 * where both have them; -1: there is none. Scores of the prompt count as before all tokens. */
static int64_t first_difference(const struct sb_seq *plain, const struct sb_seq *got, int32_t n)
{
    if (!sb_scores_same_prompt(plain, got))
        return 0;
    for (int32_t i = 0; i < n; i++) {
        if (plain->tokens[plain->n_prompt + i] != got->tokens[got->n_prompt + i])
            return i;
        if (plain->logprobs && got->logprobs &&
            memcmp(&plain->logprobs[i], &got->logprobs[i], sizeof(float)) != 0)
            return i;
        if (!sb_scores_same_at(plain, got, i))
            return i;
    }
    return -1;
}

static void compare(specbatch_audit_report *report, const struct sb_seq *plain,
                    const struct sb_seq *got)
{
    const int32_t n_plain = sb_seq_n_generated(plain), n_got = sb_seq_n_generated(got);
    const int32_t n = n_plain < n_got ? n_plain : n_got;
    const int prefix = got->finish == SPECBATCH_FINISH_CANCELLED ||
                       got->finish == SPECBATCH_FINISH_DEADLINE ||
                       got->finish == SPECBATCH_FINISH_ERROR;
    int64_t at = first_difference(plain, got, n);

    if (at < 0 && (n_got > n_plain || (n_got < n_plain && !prefix)))
        at = n;
    report->n_tokens = (uint64_t)n;
    report->first_divergence = at;
    report->equal = at < 0;
    report->token_expected = at >= 0 && at < n_plain ? plain->tokens[plain->n_prompt + at] : -1;
    report->token_got = at >= 0 && at < n_got ? got->tokens[got->n_prompt + at] : -1;
    report->margin = at >= 0 && at < n_plain ? plain->margins[at] : 0.0f;
}

int32_t sb_audit(struct specbatch_model *target, const specbatch_pool_options *options,
                 const specbatch_request *request, const struct specbatch_result *result,
                 specbatch_audit_report *report)
{
    struct specbatch_pool *pool = NULL;
    int32_t rc = SPECBATCH_OK;

    if (strcmp(target->digest, result->model->digest) != 0)
        SB_FAIL(SPECBATCH_E_INVALID,
                "audit: the result is of another model: its digest is %s, not %s",
                result->model->digest, target->digest);
    SB_TRY(replay(&pool, target, options, request, result->seq));
    compare(report, pool->finished, result->seq);
done:
    sb_pool_free(pool);
    return rc;
}
