/*
 * The exported functions on models, pools, results and counters; those on text are in api_text.c,
 * and those on drafts in api_draft.c.
 * Each checks its arguments, has the options resolved by their owner, and calls inward; what it
 * does is decided there.
 *
 * A call that computes enters the library's floating-point environment first, and at its end
 * restores the caller's. A call on a pool first takes the pool for its thread. Another thread, or a
 * callback that calls the library, then gets E_BUSY instead of a pool in the middle of a step.
 *
 * A callback may never return: it may be left by longjmp or by an exception. The pool is then still
 * taken by a call that does not exist any more. The next call notices that and marks the pool dead.
 */
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "line.h"
#include "model/convert.h"
#include "options.h"
#include "port.h"
#include "pool/pool.h"
#include "pool/session.h"
#include "sched/policies.h"
#include "status.h"

/* ------------------------------------------------------------- calls without a pool */

/* What a caller finds again behind a call: its floating-point mode and, if the call succeeds, its
 * last error, although parts of the call may have failed, such as opening a file that need not be
 * there. */
struct caller {
    struct sb_fp_env env;
    char error[SPECBATCH_ERROR_MAX];
};

static void call_begin(struct caller *caller)
{
    sb_error_copy(caller->error);
    sb_port_fp_enter(&caller->env);
}

static int32_t call_end(const struct caller *caller, int32_t rc)
{
    sb_port_fp_leave(&caller->env);
    if (rc == SPECBATCH_OK)
        sb_error_restore(caller->error);
    return rc;
}

/* ------------------------------------------------------------------ version, status */

int32_t specbatch_version(void)
{
    return SPECBATCH_VERSION_NUMBER;
}

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *specbatch_version_string(void)
{
    return VERSION_TEXT(SPECBATCH_VERSION_MAJOR, SPECBATCH_VERSION_MINOR, SPECBATCH_VERSION_PATCH);
}

int32_t specbatch_abi_version(void)
{
    return SPECBATCH_SOVERSION;
}

static int32_t has_cuda(void)
{
    struct caller caller;
    int32_t exists;

    call_begin(&caller);
    exists = sb_model_device_exists(SPECBATCH_DEVICE_CUDA);
    call_end(&caller, SPECBATCH_OK);
    return exists;
}

int32_t specbatch_has(const char *feature)
{
    if (!feature)
        return 0;
    if (strcmp(feature, "cpu") == 0)
        return 1;
    if (strcmp(feature, "cuda") == 0)
        return has_cuda();
    if (strcmp(feature, "avx2") == 0)
        return sb_port_has_avx2();
    if (strcmp(feature, "avx512") == 0)
        return sb_port_has_avx512();
    if (strcmp(feature, "avx512_bf16") == 0)
        return sb_port_has_avx512_bf16();
    if (strcmp(feature, "amx") == 0)
        return sb_port_has_amx();
    return 0;
}

const char *specbatch_last_error(void)
{
    return sb_last_error();
}

/* ---------------------------------------------------------------------------- model */

int32_t specbatch_model_open(specbatch_model **out, const char *path,
                             const specbatch_model_options *options)
{
    specbatch_model_options full;
    struct caller caller;
    int32_t rc;

    if (!out || !path)
        return sb_null_argument(out ? "path" : "out");
    if ((rc = sb_model_options_resolve(&full, options)) != SPECBATCH_OK)
        return rc;
    call_begin(&caller);
    return call_end(&caller, sb_model_open(out, path, &full));
}

int32_t specbatch_convert(const char *to, const char *from, const specbatch_model_options *options)
{
    specbatch_model_options full;
    struct caller caller;
    int32_t rc;

    if (!to || !from)
        return sb_null_argument(to ? "from" : "to");
    if ((rc = sb_model_options_resolve(&full, options)) != SPECBATCH_OK)
        return rc;
    call_begin(&caller);
    return call_end(&caller, sb_model_convert(to, from, &full));
}

void specbatch_model_retain(specbatch_model *model)
{
    sb_model_retain(model);
}

void specbatch_model_close(specbatch_model *model)
{
    sb_model_release(model);
}

const char *specbatch_model_arch(const specbatch_model *model)
{
    return model ? model->config.arch->model_type : "";
}

const char *specbatch_model_dtype(const specbatch_model *model)
{
    return model ? sb_dtype_name(model->dtype) : "";
}

const char *specbatch_model_fingerprint(const specbatch_model *model)
{
    return model ? model->fingerprint : "";
}

const char *specbatch_model_digest(const specbatch_model *model)
{
    return model ? model->digest : "";
}

int32_t specbatch_model_vocab_size(const specbatch_model *model)
{
    return model ? model->config.vocab : 0;
}

int32_t specbatch_model_layers(const specbatch_model *model)
{
    return model ? model->config.layers : 0;
}

int32_t specbatch_model_context(const specbatch_model *model)
{
    return model ? model->config.context : 0;
}

uint64_t specbatch_model_bytes(const specbatch_model *model)
{
    return model ? model->bytes : 0;
}

int32_t specbatch_model_has_tokenizer(const specbatch_model *model)
{
    return model && model->tokenizer;
}

const int32_t *specbatch_model_eos(const specbatch_model *model, size_t *n)
{
    if (n)
        *n = model ? (size_t)model->config.n_eos : 0;
    return model ? model->config.eos : NULL;
}

/* ----------------------------------------------------------------- policies, options */

int32_t specbatch_policy_count(void)
{
    return sb_policy_count();
}

const char *specbatch_policy_name(int32_t policy)
{
    return sb_policy_at(policy) ? sb_policy_at(policy)->name : NULL;
}

int32_t specbatch_policy_by_name(const char *name)
{
    char names[128];

    if (!name)
        return sb_null_argument("name");
    for (int32_t i = 0; i < sb_policy_count(); i++)
        if (strcmp(sb_policy_at(i)->name, name) == 0)
            return i;
    sb_line_names(names, sizeof names, specbatch_policy_name);
    return sb_fail(SPECBATCH_E_NOT_FOUND, "no policy is called \"%.60s\"; there are %s", name,
                   names);
}

int32_t specbatch_model_options_init(specbatch_model_options *options, size_t size)
{
    return sb_options_init(options, size);
}

int32_t specbatch_pool_options_init(specbatch_pool_options *options, size_t size)
{
    return sb_options_init(options, size);
}

int32_t specbatch_request_init(specbatch_request *request, size_t size)
{
    return sb_options_init(request, size);
}

/* ----------------------------------------------------------------------------- pool */

int32_t specbatch_pool_bytes(uint64_t *bytes, const specbatch_model *target,
                             const specbatch_draft *draft, const specbatch_pool_options *options)
{
    specbatch_pool_options full;
    int32_t rc;

    if (!bytes || !target)
        return sb_null_argument(bytes ? "target" : "bytes");
    if ((rc = sb_pool_options_resolve(&full, options, target->config.context)) != SPECBATCH_OK)
        return rc;
    return sb_pool_bytes(bytes, target, draft, &full);
}

int32_t specbatch_pool_create(specbatch_pool **out, specbatch_model *target, specbatch_draft *draft,
                              const specbatch_pool_options *options)
{
    specbatch_pool_options full;
    struct caller caller;
    int32_t rc;

    if (!out || !target)
        return sb_null_argument(out ? "target" : "out");
    if ((rc = sb_pool_options_resolve(&full, options, target->config.context)) != SPECBATCH_OK)
        return rc;
    call_begin(&caller);
    return call_end(&caller, sb_pool_create(out, target, draft, &full));
}

static int32_t busy_elsewhere(void)
{
    return sb_fail(SPECBATCH_E_BUSY, "another thread is inside a call on the pool");
}

/* Takes the pool for this thread, or says who has it. When this thread has it already, the call
 * comes from a callback, or a callback was left for good; the stack tells which (port.h). */
static int32_t take(specbatch_pool *pool)
{
    const void *self = sb_port_thread(), *owner = NULL;

    if (atomic_compare_exchange_strong(&pool->owner, &owner, self))
        return SPECBATCH_OK;
    if (owner != self)
        return busy_elsewhere();
    if (!sb_port_callback_is_gone(&pool->call))
        return sb_fail(
            SPECBATCH_E_BUSY,
            "the pool was called from one of its own callbacks (or one was left by "
            "longjmp or an exception, and this call comes from too far down the stack to tell)");
    pool->call.callback = NULL;
    if (!pool->fatal) {
        pool->fatal = SPECBATCH_E_INTERNAL;
        snprintf(pool->why, sizeof pool->why, "a callback was left by longjmp or an exception");
    }
    return SPECBATCH_OK;
}

static void give_back(specbatch_pool *pool)
{
    atomic_store(&pool->owner, NULL);
}

void specbatch_pool_free(specbatch_pool *pool)
{
    if (!pool)
        return;
    if (take(pool) != SPECBATCH_OK)
        sb_log(&pool->log, SPECBATCH_LOG_ERROR, "pool_free: nothing is freed: %s", sb_last_error());
    else
        sb_pool_free(pool);
}

/* Every call on a pool begins with `enter` and, where that succeeded, ends with `leave`.
 * `dead_too`: the call is one that a dead pool still answers, which is only collect. */
static int32_t enter(specbatch_pool *pool, int dead_too)
{
    int32_t rc = pool ? sb_pool_check_process(pool) : sb_null_argument("pool");

    if (rc != SPECBATCH_OK || (rc = take(pool)) != SPECBATCH_OK)
        return rc;
    if (pool->fatal && !dead_too) {
        rc = sb_pool_dead(pool);
        give_back(pool);
        return rc;
    }
    sb_port_fp_enter(&pool->call);
    return SPECBATCH_OK;
}

static int32_t leave(specbatch_pool *pool, int32_t rc)
{
    sb_port_fp_leave(&pool->call);
    give_back(pool);
    return rc;
}

int32_t specbatch_pool_pin(specbatch_pool *pool, const int32_t *ids, size_t n_ids, uint64_t *pin)
{
    int32_t rc = enter(pool, 0);

    if (rc != SPECBATCH_OK)
        return rc;
    if (!pin || !ids)
        return leave(pool, sb_null_argument(pin ? "ids" : "pin"));
    return leave(pool, sb_pool_pin(pool, ids, n_ids, pin));
}

int32_t specbatch_pool_unpin(specbatch_pool *pool, uint64_t pin)
{
    int32_t rc = enter(pool, 0);

    return rc == SPECBATCH_OK ? leave(pool, sb_prefix_unpin(&pool->prefix, pin)) : rc;
}

int32_t specbatch_pool_submit(specbatch_pool *pool, const specbatch_request *request, uint64_t *id)
{
    specbatch_request full;
    int32_t rc = enter(pool, 0);

    if (rc != SPECBATCH_OK)
        return rc;
    rc = sb_request_resolve(&full, request, pool->options.draft_len);
    if (rc == SPECBATCH_OK)
        rc = sb_pool_end_if_fatal(pool, sb_pool_submit(pool, &full, id));
    return leave(pool, rc);
}

int32_t specbatch_pool_cancel(specbatch_pool *pool, uint64_t id)
{
    int32_t rc = enter(pool, 0);

    return rc == SPECBATCH_OK ? leave(pool, sb_pool_cancel(pool, id)) : rc;
}

int32_t specbatch_pool_step(specbatch_pool *pool, size_t *n_active)
{
    int32_t rc = enter(pool, 0);

    if (rc != SPECBATCH_OK)
        return rc;
    rc = sb_pool_step(pool);
    if (n_active && rc == SPECBATCH_OK)
        *n_active = pool->n_active;
    return leave(pool, rc);
}

int32_t specbatch_pool_run(specbatch_pool *pool)
{
    int32_t rc = enter(pool, 0);

    return rc == SPECBATCH_OK ? leave(pool, sb_pool_run(pool)) : rc;
}

/* This may run in a signal handler, or beside any call on the pool. So it stores one number, which
 * takes no lock, and leaves all else to the round that finds it. */
int32_t specbatch_pool_interrupt(specbatch_pool *pool)
{
    _Static_assert(ATOMIC_INT_LOCK_FREE == 2, "an atomic int is always free of locks");
    if (!pool)
        return sb_null_argument("pool");
    atomic_store(&pool->sched.interrupted, 1);
    return SPECBATCH_OK;
}

int32_t specbatch_pool_poll(specbatch_pool *pool, uint64_t id, int32_t *ids, size_t capacity,
                            size_t *n)
{
    int32_t rc = enter(pool, 0);

    if (rc != SPECBATCH_OK)
        return rc;
    if (!n || (!ids && capacity > 0))
        return leave(pool, sb_null_argument(n ? "ids" : "n"));
    return leave(pool, sb_pool_poll(pool, id, ids, capacity, n));
}

int32_t specbatch_pool_state(specbatch_pool *pool, uint64_t id, specbatch_request_state *state)
{
    int32_t rc = enter(pool, 0);

    return rc == SPECBATCH_OK ? leave(pool, sb_pool_state(pool, id, state)) : rc;
}

int32_t specbatch_pool_next_event(specbatch_pool *pool, specbatch_event *event)
{
    int32_t rc = enter(pool, 0);

    return rc == SPECBATCH_OK ? leave(pool, sb_pool_next_event(pool, event)) : rc;
}

int32_t specbatch_pool_collect(specbatch_pool *pool, specbatch_result **result)
{
    int32_t rc;

    if (!result)
        return sb_null_argument("result");
    rc = enter(pool, 1);
    return rc == SPECBATCH_OK ? leave(pool, sb_pool_collect(pool, result)) : rc;
}

int32_t specbatch_pool_save_session(specbatch_pool *pool, const int32_t *ids, size_t n_ids,
                                    const char *path, size_t *n_kept)
{
    int32_t rc = enter(pool, 0);

    if (rc != SPECBATCH_OK)
        return rc;
    if (!ids || !path)
        return leave(pool, sb_null_argument(ids ? "path" : "ids"));
    return leave(pool, sb_session_save(pool, ids, n_ids, path, n_kept));
}

int32_t specbatch_pool_load_session(specbatch_pool *pool, const char *path, int32_t *ids,
                                    size_t capacity, size_t *n)
{
    int32_t rc = enter(pool, 0);

    if (rc != SPECBATCH_OK)
        return rc;
    if (!path || !n || (!ids && capacity > 0))
        return leave(pool, sb_null_argument(!path ? "path" : !n ? "n" : "ids"));
    return leave(pool, sb_session_load(pool, path, ids, capacity, n));
}

/* -------------------------------------------------------------------------- results */

uint64_t specbatch_result_id(const specbatch_result *result)
{
    return result ? result->seq->id : 0;
}

void *specbatch_result_user(const specbatch_result *result)
{
    return result ? result->seq->user : NULL;
}

int32_t specbatch_result_status(const specbatch_result *result)
{
    return result ? result->seq->status : 0;
}

int32_t specbatch_result_finish(const specbatch_result *result)
{
    return result ? result->seq->finish : 0;
}

/* The number of generated tokens, also into *n if n is not NULL. */
static size_t give_count(const specbatch_result *result, size_t *n)
{
    const size_t count = result ? (size_t)sb_seq_n_generated(result->seq) : 0;

    if (n)
        *n = count;
    return count;
}

const int32_t *specbatch_result_tokens(const specbatch_result *result, size_t *n)
{
    give_count(result, n);
    return result ? result->seq->tokens + result->seq->n_prompt : NULL;
}

const float *specbatch_result_logprobs(const specbatch_result *result, size_t *n)
{
    const float *logprobs = result && !result->seq->hides_logprobs ? result->seq->logprobs : NULL;

    give_count(logprobs ? result : NULL, n);
    return logprobs;
}

/* The scores of a result, or none. */
static struct sb_seq_scores scores_of(const specbatch_result *result)
{
    return result && result->seq->scores ? *result->seq->scores
                                         : (struct sb_seq_scores){.n_top = 0};
}

/* Alternatives, or NULL where there are none. *n_top, if n_top is not NULL: how many a token has.
 */
static const void *give_top(const void *top, int32_t n, size_t *n_top)
{
    if (n_top)
        *n_top = (size_t)n;
    return n > 0 ? top : NULL;
}

/* The alternatives to each token of the prompt, once it has been scored. */
static int32_t n_prompt_top(const specbatch_result *result)
{
    size_t n;

    return specbatch_result_prompt_logprobs(result, &n) ? scores_of(result).n_top : 0;
}

const int32_t *specbatch_result_top_ids(const specbatch_result *result, size_t *n_top)
{
    const struct sb_seq_scores scores = scores_of(result);

    return give_top(scores.top_ids, scores.n_top, n_top);
}

const float *specbatch_result_top_logprobs(const specbatch_result *result, size_t *n_top)
{
    const struct sb_seq_scores scores = scores_of(result);

    return give_top(scores.top_logprobs, scores.n_top, n_top);
}

const float *specbatch_result_prompt_logprobs(const specbatch_result *result, size_t *n)
{
    const struct sb_seq_scores scores = scores_of(result);
    const int is_scored = scores.n_scored > 0 && scores.n_scored == result->seq->n_prompt - 1;

    if (n)
        *n = is_scored ? (size_t)scores.n_scored : 0;
    return is_scored ? scores.prompt_logprobs : NULL;
}

const int32_t *specbatch_result_prompt_top_ids(const specbatch_result *result, size_t *n_top)
{
    return give_top(scores_of(result).prompt_top_ids, n_prompt_top(result), n_top);
}

const float *specbatch_result_prompt_top_logprobs(const specbatch_result *result, size_t *n_top)
{
    return give_top(scores_of(result).prompt_top_logprobs, n_prompt_top(result), n_top);
}

int32_t specbatch_result_answer(const specbatch_result *result)
{
    return result ? result->seq->answer : 0;
}

const char *specbatch_result_text(const specbatch_result *result, size_t *length)
{
    if (length)
        *length = result ? result->text_length : 0;
    return result ? result->text : NULL;
}

const int32_t *specbatch_result_prompt(const specbatch_result *result, size_t *n)
{
    if (n)
        *n = result ? (size_t)result->seq->n_prompt : 0;
    return result ? result->seq->tokens : NULL;
}

size_t specbatch_result_prompt_length(const specbatch_result *result)
{
    return result ? (size_t)result->seq->n_prompt : 0;
}

uint64_t specbatch_result_rounds(const specbatch_result *result)
{
    return result ? result->seq->rounds : 0;
}

uint64_t specbatch_result_drafted(const specbatch_result *result)
{
    return result ? result->seq->drafted : 0;
}

uint64_t specbatch_result_accepted(const specbatch_result *result)
{
    return result ? result->seq->accepted : 0;
}

/* The times of a result; none for NULL. */
struct times {
    uint64_t queued, first_token, total;
};

static struct times times_of(const specbatch_result *result)
{
    struct times times = {0, 0, 0};

    if (result)
        sb_seq_times(result->seq, &times.queued, &times.first_token, &times.total);
    return times;
}

uint64_t specbatch_result_time_queued_ns(const specbatch_result *result)
{
    return times_of(result).queued;
}

uint64_t specbatch_result_time_first_token_ns(const specbatch_result *result)
{
    return times_of(result).first_token;
}

uint64_t specbatch_result_time_total_ns(const specbatch_result *result)
{
    return times_of(result).total;
}

const char *specbatch_result_fingerprint(const specbatch_result *result)
{
    return result ? result->model->fingerprint : NULL;
}

void specbatch_result_free(specbatch_result *result)
{
    struct sb_mem mem;

    if (!result)
        return;
    mem = result->mem;
    sb_seq_free(&mem, result->seq);
    sb_free(&mem, result->text);
    sb_model_release(result->model);
    sb_free(&mem, result);
}

/* --------------------------------------------------------------------- stats, audit */

/* Counters may be read from a callback and of a dead pool, so this does not use `enter`. A pool
 * that no thread is inside is taken while its counter is read. Only the owner field is written for
 * that, nothing that the caller could see; hence the cast from a const pool. */
int32_t specbatch_pool_stat(const specbatch_pool *pool, const char *name, uint64_t *value)
{
    const void *self = sb_port_thread(), *owner = NULL;
    int32_t stat;

    if (!pool || !name || !value)
        return sb_null_argument(!pool ? "pool" : !name ? "name" : "value");
    stat = sb_stat_by_name(name);
    if (stat < 0)
        return stat;
    if (!atomic_compare_exchange_strong(&((specbatch_pool *)pool)->owner, &owner, self) &&
        owner != self)
        return busy_elsewhere();
    *value = pool->stats[stat];
    if (!owner)
        give_back((specbatch_pool *)pool);
    return SPECBATCH_OK;
}

int32_t specbatch_stat_count(void)
{
    return SB_N_STATS;
}

const char *specbatch_stat_name(int32_t index)
{
    return sb_stat_name(index);
}

int32_t specbatch_audit(specbatch_model *target, const specbatch_pool_options *options,
                        const specbatch_request *request, const specbatch_result *result,
                        specbatch_audit_report *report)
{
    specbatch_pool_options full;
    specbatch_audit_report found = SPECBATCH_AUDIT_REPORT_INIT;
    specbatch_request plain;
    struct caller caller;
    int32_t rc;

    if (!target || !request || !result || !report)
        return sb_null_argument(!target    ? "target"
                                : !request ? "request"
                                : !result  ? "result"
                                           : "report");
    if ((rc = sb_options_check_size(report, "audit report")) != SPECBATCH_OK ||
        (rc = sb_pool_options_resolve(&full, options, target->config.context)) != SPECBATCH_OK ||
        (rc = sb_request_resolve(&plain, request, SB_DRAFT_LEN_MAX)) != SPECBATCH_OK)
        return rc;
    call_begin(&caller);
    rc = call_end(&caller, sb_audit(target, &full, &plain, result, &found));
    return rc == SPECBATCH_OK ? sb_options_report(report, &found, sizeof found, "audit report")
                              : rc;
}
