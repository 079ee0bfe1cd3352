/* The invariants of a pool between two steps; see pool_check.h. */
#include "support/pool_check.h"

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

int32_t pool_check(const struct specbatch_pool *pool)
{
    const struct sb_sched *sched = &pool->sched;
    const struct sb_residents *all = &sched->residents;
    int32_t n = 0, rc = SPECBATCH_OK;

    for (int32_t at = sb_oldest(all, SB_ALL); at >= 0; at = sb_next(all, SB_ALL, at), n++)
        SB_TRY(check_seq(pool, all->seq[at]));
    SB_TRY(prefix_check(&pool->prefix.tree));
    SB_TRY(check_holds(&pool->prefix));
    if (n != all->n || n + sched->n_free != sched->limits.n_slots ||
        (size_t)n + pool->queue.n != pool->n_active)
        SB_FAIL(SPECBATCH_E_INTERNAL, "%d residents, %d free of %d slots, %zu queued, %zu active",
                n, sched->n_free, sched->limits.n_slots, pool->queue.n, pool->n_active);
done:
    return rc;
}
