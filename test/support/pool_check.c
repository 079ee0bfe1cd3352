/* The invariants of a pool between two steps; see pool_check.h. */
#include "support/pool_check.h"

#include "sched/policies.h"
#include "status.h"

static int32_t check_seq(const struct specbatch_pool *pool, const struct sb_seq *seq)
{
    const struct sb_sched *sched = &pool->sched;
    const struct sb_seq *oldest = sched->residents.seq[sb_oldest(&sched->residents, SB_ALL)];
    const unsigned long long id = (unsigned long long)seq->id;

    if (seq->finish)
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu has finished and still holds slot %d",
                       id, seq->slot);
    if (seq->n_tokens >= seq->max_tokens || seq->n_tokens < seq->n_prompt)
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu: %d tokens of %d", id, seq->n_tokens,
                       seq->max_tokens);
    if (seq->n_tokens > seq->n_prompt ? seq->kv_len != sb_seq_content(seq)
                                      : seq->kv_len > sb_seq_content(seq))
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu: %d entries for %d tokens", id,
                       seq->kv_len, seq->n_tokens);
    if (seq->draft_kv_len > sb_seq_content(seq))
        return sb_fail(SPECBATCH_E_INTERNAL, "request %llu: the draft has %d entries for %d tokens",
                       id, seq->draft_kv_len, seq->n_tokens);
    if (seq->start < 0 || seq->start + sb_seq_content(seq) > seq->cap)
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
        live += (uint64_t)all->seq[at]->kv_len * sb_kv_column_bytes(&pool->runner.kv);
        if (draft)
            live += (uint64_t)all->seq[at]->draft_kv_len * sb_kv_column_bytes(&draft->kv);
    }
    SB_TRY(check_counter(pool, SB_STAT_kv_live_bytes, live));
    SB_TRY(check_counter(pool, SB_STAT_request_bytes, request_bytes(pool)));
    if (n != all->n || n + sched->n_free != sched->limits.n_slots ||
        (size_t)n + pool->queue.n != pool->n_active)
        SB_FAIL(SPECBATCH_E_INTERNAL, "%d residents, %d free of %d slots, %zu queued, %zu active",
                n, sched->n_free, sched->limits.n_slots, pool->queue.n, pool->n_active);
done:
    return rc;
}
