/* A pool's options, what it is made of, what it costs, and its end. */
#include "pool/pool.h"
#include "sched/policies.h"

#include "options.h"
#include "port.h"
#include "status.h"

/* ---------------------------------------------------------------- options */

/* Zero takes the default; then the value must be in range. */
static int32_t or_default(int32_t *value, int32_t normal, const char *field, int32_t low,
                          int32_t high)
{
    if (*value == 0)
        *value = normal;
    return sb_check_range("pool options", field, *value, low, high);
}

static int32_t at_most(int32_t value, int32_t most)
{
    return value < most ? value : most;
}

/* Residents of a policy that decodes any ready row: beside the batch there are slots in which the
 * prompts of newcomers are filled in while all B rows decode. A batch of one has no such slot,
 * which would double its memory. */
static int32_t with_spare(int32_t batch)
{
    return batch == 1 ? 1 : batch + (batch + 7) / 8;
}

/* Residents that a pool keeps: the option `window` for a policy that has one. */
static int32_t window_of(const struct sb_policy *policy, const specbatch_pool_options *o)
{
    switch (policy->slots) {
    case SB_SLOTS_WINDOW:
        return o->window == 0 ? 6 * o->batch : o->window;
    case SB_SLOTS_SPARE:
        return with_spare(o->batch);
    default:
        return o->batch;
    }
}

/* K, for the option and the policy. */
static int32_t draft_len_of(const struct sb_policy *policy, int32_t draft_len)
{
    if (draft_len == -1 || !policy->speculates)
        return 0;
    return draft_len == 0 ? 5 : draft_len;
}

/* Lengths of slots, by resolved options. A sequence of max_len tokens fits in the longest, wherever
 * in its columns a policy lets it begin. */
static struct sb_slot_sizes slot_sizes(const specbatch_pool_options *o)
{
    return sb_slot_sizes(o->max_len + o->draft_len + 1);
}

static int32_t check_columns(const specbatch_pool_options *o)
{
    const int32_t longest = slot_sizes(o).longest;

    return o->cache_columns == 0 || o->cache_columns >= (uint64_t)longest
               ? SPECBATCH_OK
               : sb_fail(SPECBATCH_E_INVALID,
                         "pool options: cache_columns is %llu, fewer than the %d of one slot for "
                         "max_len %d",
                         (unsigned long long)o->cache_columns, longest, o->max_len);
}

int32_t sb_pool_options_resolve(specbatch_pool_options *full, const specbatch_pool_options *given,
                                int32_t target_context)
{
    static const char what[] = "pool options";
    const uint32_t flags = SPECBATCH_POOL_SORT_BY_LENGTH | SPECBATCH_POOL_EQSPEC_REPLACE |
                           SPECBATCH_POOL_FIXED_K | SPECBATCH_POOL_GROW_SLOTS;
    const struct sb_policy *policy;
    int32_t rc;

    SB_TRY(sb_options_copy(full, sizeof *full, given, what));
    SB_TRY(sb_check_range(what, "policy", full->policy, 0, sb_policy_count() - 1));
    policy = sb_policy_at(full->policy);
    SB_TRY(or_default(&full->batch, 8, "batch", 1, 4096));
    full->window = window_of(policy, full);
    SB_TRY(sb_check_range(what, "window", full->window, full->batch, 65536));
    SB_TRY(sb_check_range(what, "draft_len", full->draft_len, -1, SB_DRAFT_LEN_MAX));
    full->draft_len = draft_len_of(policy, full->draft_len);
    SB_TRY(or_default(&full->max_len, at_most(target_context, 2048), "max_len", 1, target_context));
    SB_TRY(or_default(&full->prefill_chunk, 128, "prefill_chunk", 1, 8192));
    SB_TRY(or_default(&full->n_threads, at_most(sb_port_n_processors(), 256), "n_threads", 1, 256));
    SB_TRY(sb_check_flags(SPECBATCH_E_OPTIONS, what, "flags", full->flags, flags));
    SB_TRY(check_columns(full));
    if (!(full->draft_min_prob >= 0.0f && full->draft_min_prob <= 1.0f))
        SB_FAIL(SPECBATCH_E_INVALID, "%s: draft_min_prob is %g, outside 0..1", what,
                (double)full->draft_min_prob);
    SB_TRY(sb_check_flags(SPECBATCH_E_OPTIONS, what, "reserved", (uint32_t)full->reserved, 0));
    if (full->queue_max == 0)
        full->queue_max = 65536;
    if (full->budget_bytes == 0)
        full->budget_bytes = UINT64_MAX;
    SB_TRY(sb_check_hooks(what, full->alloc, full->free));
done:
    return rc;
}

/* ------------------------------------------------------------ what it takes */

/* The limits that the options imply: for stating what a pool takes, and for creating it. */
struct plan {
    struct sb_sched_limits sched;
    struct sb_runner_limits runner;
    struct sb_round_limits round;
    struct sb_draft_limits draft;
};

/* Prompt tokens of a pass. A chunk must not have a part of a span (backend.h), so the option is
 * rounded up to whole spans. */
static int32_t chunk_of(const struct specbatch_model *target, const specbatch_pool_options *o)
{
    const int32_t span = target->span > 0 ? target->span : 1;

    return (o->prefill_chunk + span - 1) / span * span;
}

/* The longest slots that the caches are made of, unless a budget decides. More than one for each
 * resident would be of no use. */
static int32_t n_longest(const specbatch_pool_options *o)
{
    const uint64_t most = (uint64_t)o->window,
                   n = o->cache_columns > 0 ? o->cache_columns / (uint64_t)slot_sizes(o).longest
                                            : (uint64_t)with_spare(o->batch);

    return (int32_t)(n < most ? n : most);
}

/* For caches of n longest slots. */
static struct plan make_plan(const struct specbatch_model *target, const specbatch_pool_options *o,
                             int32_t n)
{
    const struct sb_policy *policy = sb_policy_at(o->policy);
    const struct sb_slot_sizes sizes = slot_sizes(o);
    const int32_t n_slots = o->window, chunk = chunk_of(target, o);
    const int32_t prefill_rows = n_slots < chunk ? n_slots : chunk;
    struct plan plan = {
        .sched = {.batch = o->batch,
                  .n_slots = n_slots,
                  .draft_len = o->draft_len,
                  .prefill_chunk = chunk,
                  .replace = (o->flags & SPECBATCH_POOL_EQSPEC_REPLACE) != 0,
                  .grouped = policy->grouped,
                  .adaptive = !(o->flags & SPECBATCH_POOL_FIXED_K),
                  .grows = (o->flags & SPECBATCH_POOL_GROW_SLOTS) && !policy->realigns},
        /* The one sequence beyond rows and prompts is the sink of padded rounds (round.h). */
        .runner = {.max_tokens = o->batch * (o->draft_len + 1) + chunk,
                   .max_seqs = o->batch + prefill_rows + 1,
                   .max_out = o->batch * (o->draft_len + 1),
                   .max_scored = chunk,
                   .n_passes = 1,
                   .n_slots = n_slots,
                   .cap = sizes.longest,
                   .halvings = sizes.halvings,
                   .n_columns = (int64_t)n * sizes.longest,
                   .n_threads = o->n_threads,
                   .span = target->span,
                   .is_placed = 1},
        .round = {.max_rows = o->batch,
                  .draft_len = o->draft_len,
                  .max_chunks = prefill_rows,
                  .prefill_chunk = chunk},
    };

    plan.draft = (struct sb_draft_limits){.target = plan.runner,
                                          .batch = o->batch,
                                          .draft_len = o->draft_len,
                                          .prefill_chunk = chunk,
                                          .max_len = o->max_len,
                                          .min_prob = o->draft_min_prob};
    return plan;
}

static int32_t plan_bytes(const struct plan *plan, const struct specbatch_model *target,
                          const struct specbatch_draft *draft, uint64_t *cache, uint64_t *work)
{
    uint64_t draft_cache = 0, draft_work = 0;
    size_t cache_bytes, work_bytes;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_runner_bytes(target, &plan->runner, &cache_bytes, &work_bytes));
    if (draft)
        SB_TRY(draft->ops->bytes(draft, &plan->draft, &draft_cache, &draft_work));
    *cache = cache_bytes + draft_cache;
    *work = work_bytes + sb_round_bytes(&plan->round) +
            sb_sched_bytes(&plan->sched, &plan->runner) + sb_prefix_bytes(&plan->runner) +
            draft_work;
done:
    return rc;
}

/* Adds as many blocks to the plan as the option prefix_bytes has room for. What a block takes in
 * all caches together is what one block would add to them. */
static int32_t plan_blocks(struct plan *plan, const struct specbatch_model *target,
                           const struct specbatch_draft *draft,
                           const specbatch_pool_options *options)
{
    struct plan one = *plan;
    uint64_t none_bytes, one_bytes, n, work;
    int32_t rc = SPECBATCH_OK;

    if (options->prefix_bytes == 0)
        return rc;
    one.runner.block_columns = one.draft.target.block_columns = SB_PREFIX_BLOCK;
    SB_TRY(plan_bytes(plan, target, draft, &none_bytes, &work));
    SB_TRY(plan_bytes(&one, target, draft, &one_bytes, &work));
    n = options->prefix_bytes / (one_bytes - none_bytes);
    if (n == 0)
        SB_FAIL(SPECBATCH_E_INVALID,
                "pool options: prefix_bytes is %llu, and a block of %d tokens takes %llu",
                (unsigned long long)options->prefix_bytes, SB_PREFIX_BLOCK,
                (unsigned long long)(one_bytes - none_bytes));
    if (n > INT32_MAX)
        n = INT32_MAX;
    plan->runner.block_columns = plan->draft.target.block_columns = (int64_t)n * SB_PREFIX_BLOCK;
done:
    return rc;
}

/* The whole plan, for caches of n longest slots. */
static int32_t plan_for(struct plan *plan, const struct specbatch_model *target,
                        const struct specbatch_draft *draft, const specbatch_pool_options *options,
                        int32_t n)
{
    *plan = make_plan(target, options, n);
    return plan_blocks(plan, target, draft, options);
}

/* Whether the draft may propose for the target, also if the pool will not use it. */
static int32_t check_draft(const struct specbatch_draft *draft,
                           const struct specbatch_model *target)
{
    return draft && draft->ops->check ? draft->ops->check(draft, target) : SPECBATCH_OK;
}

int32_t sb_pool_bytes(uint64_t *bytes, const struct specbatch_model *target,
                      const struct specbatch_draft *draft, const specbatch_pool_options *options)
{
    const struct specbatch_draft *used = options->draft_len > 0 ? draft : NULL;
    struct plan plan;
    uint64_t cache, work;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(check_draft(draft, target));
    SB_TRY(plan_for(&plan, target, used, options, n_longest(options)));
    SB_TRY(plan_bytes(&plan, target, used, &cache, &work));
    *bytes = cache + work;
done:
    return rc;
}

static int32_t create_draft(struct specbatch_pool *pool, const struct plan *plan)
{
    const struct specbatch_draft *source = pool->source;

    if (!source)
        return sb_draft_create_none(&pool->draft, &pool->mem);
    return source->ops->create(&pool->draft, source, &pool->runner, &pool->mem, &plan->draft);
}

/* Whether caches of n longest slots, and all else, take no more than the budget. */
static int fits_budget(const struct specbatch_pool *pool, int32_t n)
{
    struct plan plan;
    uint64_t cache, work;

    return plan_for(&plan, pool->target, pool->source, &pool->options, n) == SPECBATCH_OK &&
           plan_bytes(&plan, pool->target, pool->source, &cache, &work) == SPECBATCH_OK &&
           cache + work <= pool->options.budget_bytes;
}

/* The longest slots that the caches are made of: where only a budget is given, as many as it has
 * room for, one for each resident at most, and one at least. */
static int32_t n_longest_in_budget(const struct specbatch_pool *pool)
{
    const specbatch_pool_options *o = &pool->options;
    int32_t n = 1, too_many = o->window + 1;

    if (o->budget_bytes == UINT64_MAX || o->cache_columns > 0)
        return n_longest(o);
    while (too_many - n > 1) {
        const int32_t middle = n + (too_many - n) / 2;
        if (fits_budget(pool, middle))
            n = middle;
        else
            too_many = middle;
    }
    return n;
}

/* Tells by the counters what the memory is for that a whole pool has taken. */
static void count_bytes(struct specbatch_pool *pool)
{
    const struct sb_runner *target = &pool->runner, *draft = pool->draft->runner;
    const size_t column = sb_kv_column_bytes(&target->kv) +
                          (draft ? sb_kv_column_bytes(&draft->kv) : 0);
    uint64_t *stats = pool->stats;

    stats[SB_STAT_target_bytes] = pool->target->bytes;
    stats[SB_STAT_draft_bytes] = draft ? draft->model->bytes : 0;
    stats[SB_STAT_prefix_bytes] = (uint64_t)target->limits.block_columns * column;
    stats[SB_STAT_kv_reserved_bytes] = stats[SB_STAT_cache_bytes] - stats[SB_STAT_prefix_bytes];
    stats[SB_STAT_activation_bytes] = target->activation_bytes +
                                      (draft ? draft->activation_bytes : 0);
    stats[SB_STAT_logits_bytes] = target->logits_bytes + (draft ? draft->logits_bytes : 0);
    stats[SB_STAT_table_bytes] = stats[SB_STAT_work_bytes] - stats[SB_STAT_activation_bytes] -
                                 stats[SB_STAT_logits_bytes];
}

static int32_t check_budget(struct specbatch_pool *pool, const struct plan *plan)
{
    const uint64_t budget = pool->options.budget_bytes;
    uint64_t cache, work;
    int32_t rc = plan_bytes(plan, pool->target, pool->source, &cache, &work);

    if (rc != SPECBATCH_OK)
        return rc;
    if (cache + work > budget)
        return sb_fail(SPECBATCH_E_BUDGET,
                       "the pool needs %llu bytes, %llu of them for caches of %lld columns; the "
                       "budget is %llu",
                       (unsigned long long)(cache + work), (unsigned long long)cache,
                       (long long)plan->runner.n_columns, (unsigned long long)budget);
    pool->stats[SB_STAT_cache_bytes] = cache;
    pool->stats[SB_STAT_work_bytes] = work;
    pool->stats[SB_STAT_cache_columns] = (uint64_t)plan->runner.n_columns;
    return SPECBATCH_OK;
}

/* ------------------------------------------------------------ begin and end */

static void log_pool(const struct specbatch_pool *pool, const struct plan *plan, int has_draft)
{
    const struct sb_runner_limits *runner = &plan->runner;

    sb_log(
        &pool->log, SPECBATCH_LOG_INFO,
        "pool: policy %s, batch %d, up to %d sequences in %lld columns, slots of %d to %d, K = %d, "
        "draft %s, %llu bytes",
        pool->sched.policy->name, plan->sched.batch, plan->sched.n_slots,
        (long long)runner->n_columns, runner->cap >> runner->halvings, runner->cap,
        plan->sched.draft_len,
        pool->source ? pool->source->ops->name
        : has_draft  ? "unused"
                     : "none",
        (unsigned long long)(pool->stats[SB_STAT_cache_bytes] + pool->stats[SB_STAT_work_bytes]));
}

int32_t sb_pool_create(struct specbatch_pool **out, struct specbatch_model *target,
                       struct specbatch_draft *draft, const specbatch_pool_options *options)
{
    const struct sb_mem mem = {options->alloc, options->free, options->alloc_user};
    struct specbatch_pool *pool = NULL;
    struct plan plan;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_model_check_process(target));
    SB_TRY(check_draft(draft, target));
    SB_NEW(pool, sb_alloc(&mem, 1, sizeof *pool), "a pool");
    pool->process = sb_port_process();
    pool->mem = pool->queue.mem = pool->deadlines.mem = pool->by_id.mem = mem;
    pool->log = (struct sb_log){options->log, options->log_user};
    atomic_init(&pool->owner, NULL);
    pool->options = *options;
    pool->target = target;
    sb_model_retain(target);
    pool->source = options->draft_len > 0 ? draft : NULL; /* with K = 0 it would only take memory */
    sb_source_retain(pool->source);
    pool->queue.order = SB_BY_TURN;
    pool->deadlines.order = SB_BY_DEADLINE;
    SB_TRY(plan_for(&plan, target, pool->source, options, n_longest_in_budget(pool)));
    SB_TRY(check_budget(pool, &plan));
    SB_TRY(sb_runner_create(&pool->runner, target, &mem, &plan.runner, NULL));
    SB_TRY(create_draft(pool, &plan));
    SB_TRY(sb_prefix_create(&pool->prefix, &mem, &pool->runner, pool->draft->runner, pool->stats));
    SB_TRY(sb_round_create(&pool->round, &pool->runner, pool->draft->runner, &mem, &plan.round));
    pool->sched = (struct sb_sched){.policy = sb_policy_at(options->policy),
                                    .limits = plan.sched,
                                    .target = &pool->runner,
                                    .draft = pool->draft,
                                    .round = &pool->round,
                                    .stats = pool->stats};
    pool->sched.limits.adaptive &= pool->source != NULL;
    SB_TRY(sb_sched_create(&pool->sched, &mem));
    count_bytes(pool);
    log_pool(pool, &plan, draft != NULL);
    *out = pool;
    pool = NULL;
done:
    sb_pool_free(pool);
    return rc;
}

int32_t sb_pool_check_process(const struct specbatch_pool *pool)
{
    if (pool->process == sb_port_process())
        return SPECBATCH_OK;
    return sb_fail(
        SPECBATCH_E_INVALID,
        "the pool was created before a fork and belongs to the parent; create one in each");
}

/* Frees what computes: all that has memory on the device. */
static void free_machinery(struct specbatch_pool *pool)
{
    if (pool->sched.target)
        sb_sched_free(&pool->sched);
    sb_round_free(&pool->round);
    sb_prefix_free(&pool->prefix);
    sb_draft_free(pool->draft);
    sb_runner_free(&pool->runner);
}

/* Tells the draft that all requests it was shown have ended. Those that have ended were told of,
 * unless a callback did not return; and of those that wait, some may have been preempted. */
static void retire_all(struct specbatch_pool *pool)
{
    for (size_t i = 0; i < pool->by_id.n_buckets; i++)
        for (struct sb_seq *seq = pool->by_id.buckets[i]; seq; seq = seq->hash_next)
            sb_draft_retire(pool->draft, seq);
    for (struct sb_seq *seq = pool->dropped; seq; seq = seq->next)
        sb_draft_retire(pool->draft, seq);
}

/* Frees all requests. */
static void free_requests(struct specbatch_pool *pool)
{
    struct sb_seq *seq;

    while ((seq = sb_idmap_drain(&pool->by_id)) != NULL)
        sb_seq_free(&pool->mem, seq);
    while ((seq = pool->dropped) != NULL) {
        pool->dropped = seq->next;
        sb_seq_free(&pool->mem, seq);
    }
    sb_idmap_free(&pool->by_id);
    sb_queue_free(&pool->queue);
    sb_queue_free(&pool->deadlines);
}

/* The draft is told first, as part of a call on the pool: if it does not return, the pool is whole
 * and can be freed by another call. The source goes last, for the same reason.
 *
 * In a forked child a device's memory and streams still are the parent's: what belongs to them is
 * left alone there. */
void sb_pool_free(struct specbatch_pool *pool)
{
    struct specbatch_draft *source;
    struct sb_mem mem;

    if (!pool)
        return;
    sb_port_fp_enter(&pool->call);
    retire_all(pool);
    sb_port_fp_leave(&pool->call);
    mem = pool->mem;
    source = pool->source;
    free_requests(pool);
    if (sb_model_is_usable(pool->target))
        free_machinery(pool);
    sb_model_release(pool->target);
    sb_free(&mem, pool);
    sb_source_release(source);
}
