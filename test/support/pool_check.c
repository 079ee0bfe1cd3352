/* The invariants of a pool between two steps; see pool_check.h. */
#include "support/pool_check.h"

#include <stdlib.h>

#include "sched/policies.h"
#include "status.h"
#include "support/prefix_check.h"

static int32_t check_seq(const struct specbatch_pool *pool, const struct sb_seq *seq)
{
    const struct sb_sched *sched = &pool->sched;
    const struct sb_seq *oldest = sched->residents.seq[sb_oldest(&sched->residents, SB_ALL)];
    const unsigned long long id = (unsigned long long)seq->id;

    if (seq->finish)
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu has finished and still holds slot %d",
                       id, seq->slot);
    /* A prompt that is only scored has no room for more, and all others do until they finish. */
    if ((seq->n_tokens >= seq->max_tokens && seq->max_tokens > seq->n_prompt) ||
        seq->n_tokens < seq->n_prompt)
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu: %d tokens of %d", id, seq->n_tokens,
                       seq->max_tokens);
    /* Only a sequence that was preempted is filled in again when it has an answer. */
    if (seq->n_tokens > seq->n_prompt && !sched->limits.grows ? seq->kv_len != sb_seq_content(seq)
                                                              : seq->kv_len > sb_seq_content(seq))
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu: %d entries for %d tokens", id,
                       seq->kv_len, seq->n_tokens);
    if (seq->draft_kv_len > sb_seq_content(seq))
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu: the draft has %d entries for %d tokens",
                       id, seq->draft_kv_len, seq->n_tokens);
    if (seq->start < 0 || seq->start + sb_seq_content(seq) > seq->cap ||
        (!sched->policy->realigns && seq->n_tokens + sched->limits.draft_len + 1 > seq->cap))
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu: columns %d to %d of %d", id, seq->start,
                       seq->start + sb_seq_content(seq), seq->cap);
    if (seq->start != 0 && !sched->policy->realigns)
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu: padded by a policy that does not pad",
                       id);
    if (sched->policy->ends_together && seq->rounds > 0 &&
        seq->start + sb_seq_content(seq) != oldest->start + sb_seq_content(oldest) &&
        !sched->limits.replace)
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu ends in another column than its batch",
                       id);
    return SPECBATCH_OK;
}

/* Of the answers to one prompt that have a slot either all have the columns of the prompt, or none
 * has; then the first fills it in, and the others follow. */
static int32_t check_siblings(const struct sb_seq *seq)
{
    const struct sb_seq *first = seq;
    const int lacks = seq->kv_len < seq->n_prompt - 1;

    while (first->sibling_previous)
        first = first->sibling_previous;
    if (seq->follows != (seq != first && lacks))
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu follows: %d, with %d of %d columns",
                       (unsigned long long)seq->id, seq->follows, seq->kv_len, seq->n_prompt - 1);
    if (first->slot < 0 || lacks != (first->kv_len < first->n_prompt - 1))
        return sb_fail(SPECBATCH_E_INTERNAL,
                       "request %llu has the prompt: %d, its first sibling %d",
                       (unsigned long long)seq->id, !lacks, lacks);
    return SPECBATCH_OK;
}

/* Every column is one resident's or free. Residents' columns are marked one by one, and the free
 * ones by the lists of slots. */
static int32_t check_columns(const struct sb_sched *sched, uint8_t *taken)
{
    const struct sb_residents *all = &sched->residents;
    const struct sb_slots *slots = &sched->slots;
    const struct sb_slot_sizes *sizes = &slots->sizes;
    const int64_t unit = sb_slot_columns(sizes, sizes->halvings),
                  n_columns = sched->target->limits.n_columns;
    int64_t n = 0;

    for (int32_t at = sb_oldest(all, SB_ALL); at >= 0; at = sb_next(all, SB_ALL, at))
        for (int32_t c = 0; c < all->seq[at]->cap; c++, n++)
            if (all->seq[at]->at + c >= n_columns || taken[all->seq[at]->at + c]++)
                return sb_fail(SPECBATCH_E_INTERNAL, "request %llu: column %lld is another's",
                               (unsigned long long)all->seq[at]->id,
                               (long long)(all->seq[at]->at + c));
    for (int32_t class = 0; class <= sizes->halvings; class += 1)
        for (int32_t i = slots->first[class]; i >= 0; i = slots->units[i].next)
            for (int32_t c = 0; c < sb_slot_columns(sizes, class); c++, n++)
                if (taken[i * unit + c]++)
                    return sb_fail(SPECBATCH_E_INTERNAL, "column %lld is free and is not",
                                   (long long)(i * unit + c));
    return n == n_columns ? SPECBATCH_OK
                          : sb_fail(SPECBATCH_E_INTERNAL, "%lld of %lld columns are lost",
                                    (long long)(n_columns - n), (long long)n_columns);
}

/* Policies that realign have slots of one length. */
static int32_t check_slots(const struct sb_sched *sched)
{
    const struct sb_residents *all = &sched->residents;
    uint8_t *taken = calloc((size_t)sched->target->limits.n_columns, 1);
    int32_t rc = taken ? check_columns(sched, taken) : SPECBATCH_E_NOMEM;

    free(taken);
    for (int32_t at = sb_oldest(all, SB_ALL); at >= 0; at = sb_next(all, SB_ALL, at))
        if (rc == SPECBATCH_OK && sched->policy->realigns &&
            all->seq[at]->cap != sb_slot_columns(&sched->slots.sizes, sched->common))
            rc = sb_fail(SPECBATCH_E_INTERNAL, "request %llu: a slot of %d columns",
                         (unsigned long long)all->seq[at]->id, all->seq[at]->cap);
    return rc;
}

/* Between steps only pins hold blocks. */
static int32_t check_holds(const struct sb_prefix *prefix)
{
    const struct sb_prefix_node *nodes = prefix->tree.nodes;
    int32_t held = 0, by_pins = 0;

    for (int32_t at = 0; at < prefix->tree.n_blocks; at++)
        held += nodes[at].holds;
    for (size_t i = 0; i < prefix->n_pins; i++)
        for (int32_t at = prefix->pins[i].last; at >= 0; at = nodes[at].key.parent)
            by_pins++;
    return held == by_pins ? SPECBATCH_OK
                           : sb_fail(SPECBATCH_E_INTERNAL, "%d holds of blocks, %d of them by pins",
                                     held, by_pins);
}

/* Bytes of the requests that have not been collected. */
static uint64_t request_bytes(const struct specbatch_pool *pool)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < pool->by_id.n_buckets; i++)
        for (const struct sb_seq *seq = pool->by_id.buckets[i]; seq; seq = seq->hash_next)
            bytes += sb_seq_bytes(seq);
    return bytes;
}

static int32_t check_counter(const struct specbatch_pool *pool, enum sb_stat which, uint64_t want)
{
    if (pool->stats[which] == want)
        return SPECBATCH_OK;
    return sb_fail(SPECBATCH_E_INTERNAL, "%s is %llu, and a walk finds %llu", sb_stat_name(which),
                   (unsigned long long)pool->stats[which], (unsigned long long)want);
}

int32_t pool_check(const struct specbatch_pool *pool)
{
    const struct sb_sched *sched = &pool->sched;
    const struct sb_residents *all = &sched->residents;
    const struct sb_runner *draft = pool->draft->runner;
    uint64_t live = 0;
    int32_t n = 0, rc = SPECBATCH_OK;

    for (int32_t at = sb_oldest(all, SB_ALL); at >= 0; at = sb_next(all, SB_ALL, at), n++) {
        SB_TRY(check_seq(pool, all->seq[at]));
        SB_TRY(check_siblings(all->seq[at]));
        live += (uint64_t)all->seq[at]->kv_len * sb_kv_column_bytes(&pool->runner.kv);
        if (draft)
            live += (uint64_t)all->seq[at]->draft_kv_len * sb_kv_column_bytes(&draft->kv);
    }
    SB_TRY(check_slots(sched));
    SB_TRY(prefix_check(&pool->prefix.tree));
    SB_TRY(check_holds(&pool->prefix));
    SB_TRY(check_counter(pool, SB_STAT_kv_live_bytes, live));
    SB_TRY(check_counter(pool, SB_STAT_request_bytes, request_bytes(pool)));
    if (n != all->n || n + sched->n_free != sched->limits.n_slots ||
        (size_t)n + pool->queue.n != pool->n_active)
        SB_FAIL(SPECBATCH_E_INTERNAL, "%d residents, %d free of %d slots, %zu queued, %zu active",
                n, sched->n_free, sched->limits.n_slots, pool->queue.n, pool->n_active);
done:
    return rc;
}
