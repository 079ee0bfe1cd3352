/*
 * Who gets which slot, and when a sequence gives its slot back or moves to a larger one.
 *
 * A resident has a number, which tables are indexed by, and columns (engine/slots.h). A request is
 * admitted when there are both, and requests are admitted in the order of the queue: one that needs
 * much is not overtaken by others that need little, or it might wait for ever.
 *
 * Which class of slot:
 *
 *   normally              for the prompt, max_new and what a round may write beyond them
 *   policies that realign the largest class that a resident or the newcomer needs, for all of them,
 *                         since rows that end in one column must all reach that column. A newcomer
 *                         that needs larger slots waits until there is room for everybody in such;
 *                         then the others are moved. They keep them until nobody is resident.
 *   slots that grow       for the tokens so far and what the next round may add. A sequence that
 *                         comes near the end of its slot is moved to one of the next class. Where
 *                         no such slot is free, the resident whose turn comes last (pool/queue.h)
 *                         is preempted: it loses its slot and what is cached of it, waits in the
 *                         queue, and is computed anew when it is admitted again. That may be the
 *                         sequence itself.
 *
 *       round          growth                                          round
 *       |aaaaaaa. |    |aaaaaaa. |bbbb|    needs more, none is free    |aaaaaaa.         |
 *       |bbbb|    |              |----| <- b, the last, goes
 *
 * A preempted sequence keeps its tokens. It is filled in like a prompt, except that spans are those
 * of its own prompt (verify.c), and so its cached entries come to be bit for bit what they were.
 *
 * Nobody waits for ever: the last makes room, and so the first resident always proceeds. Alone it
 * fits in a slot of the longest class. It gives its own slot back for that where the caches have
 * but one such slot, of which its own is a part.
 *
 * Priorities are in the turns, and so decide here and nowhere else. Residents share rounds evenly
 * whatever their priority: all but exspec keep few more of them than a round has rows, and exspec
 * chooses them by column.
 *
 * Rejected: to preempt the resident with the fewest tokens, which costs less to compute anew, but
 * may hit the same sequence again and again; to keep the columns of a preempted sequence in host
 * memory, which a pool would have to take at its creation.
 */
#include "sched/policies.h"
#include "sched/sched.h"

#include "status.h"

/* ----------------------------------------------------------------- admission */

/* The smallest class of slots that the sequence fits in. */
static int32_t class_for(const struct sb_sched *s, const struct sb_seq *seq)
{
    const int32_t n = s->limits.grows ? seq->n_tokens : seq->max_tokens;

    return sb_slot_class(&s->slots.sizes, n + s->limits.draft_len + 1);
}

/* The class of the slot that the sequence would get now. */
static int32_t class_at_admission(const struct sb_sched *s, const struct sb_seq *seq)
{
    const int32_t class = class_for(s, seq);

    return s->policy->realigns && s->residents.n > 0 && s->common < class ? s->common : class;
}

int sb_sched_can_admit(const struct sb_sched *s, const struct sb_seq *seq)
{
    const int32_t class = class_at_admission(s, seq);

    if (s->n_free == 0 || !s->policy->admits(s))
        return 0;
    return s->policy->realigns ? s->residents.n < sb_slots_most(&s->slots, class)
                               : sb_slots_has(&s->slots, class);
}

/* Asks for the sequence to be moved to a slot of the class. */
static void ask_move(struct sb_sched *s, struct sb_seq *seq, int32_t class)
{
    sb_realignment_ask_move(&s->realignment, seq, sb_slots_take(&s->slots, class),
                            sb_slot_columns(&s->slots.sizes, class));
}

/* Moves all residents to slots of a larger class, of which there are more in all than residents.
 * Those that are moved and those that are not yet moved lie in no more slots of that class than
 * they are many. So one is always free, and after each run those that were left behind. */
static int32_t enlarge_all(struct sb_sched *s, int32_t class)
{
    const struct sb_residents *all = &s->residents;
    int32_t at = sb_oldest(all, SB_ALL), rc = SPECBATCH_OK;

    while (at >= 0) {
        for (; at >= 0 && sb_slots_has(&s->slots, class); at = sb_next(all, SB_ALL, at))
            ask_move(s, all->seq[at], class);
        SB_TRY(sb_realignment_run_moves(&s->realignment, &s->slots, s->stats));
    }
done:
    return rc;
}

int32_t sb_sched_admit(struct sb_sched *s, struct sb_seq *seq)
{
    const int32_t class = class_at_admission(s, seq);
    int32_t rc = SPECBATCH_OK;

    if (s->policy->realigns && class != s->common)
        SB_TRY(enlarge_all(s, class));
    s->common = class;
    seq->slot = s->free_numbers[--s->n_free];
    seq->at = sb_slots_take(&s->slots, class);
    seq->cap = sb_slot_columns(&s->slots.sizes, class);
    seq->last_round = s->n_rounds;
    if (s->residents.n == 0)
        s->batch_round = s->n_rounds;
    sb_residents_add(&s->residents, seq);
done:
    return rc;
}

void sb_sched_retire(struct sb_sched *s, struct sb_seq *seq)
{
    s->stats[SB_STAT_kv_live_bytes] -= seq->live_bytes;
    seq->live_bytes = 0;
    sb_residents_remove(&s->residents, seq);
    sb_slots_give(&s->slots, seq->at, sb_slot_class(&s->slots.sizes, seq->cap));
    s->free_numbers[s->n_free++] = seq->slot;
    seq->slot = -1;
}

void sb_sched_count_live(struct sb_sched *s, struct sb_seq *seq)
{
    const struct sb_runner *draft = s->draft->runner;
    uint64_t bytes = (uint64_t)seq->kv_len * sb_kv_column_bytes(&s->target->kv);

    if (draft)
        bytes += (uint64_t)seq->draft_kv_len * sb_kv_column_bytes(&draft->kv);
    s->stats[SB_STAT_kv_live_bytes] += bytes - seq->live_bytes;
    seq->live_bytes = bytes;
}

void sb_sched_cached(struct sb_sched *s, struct sb_seq *seq)
{
    sb_sched_count_live(s, seq);
    if (sb_seq_is_ready(seq) && !s->residents.ready[seq->slot])
        sb_residents_filled(&s->residents, seq);
}

/* -------------------------------------------------------------------- growth */

/* Whether the sequence has a slot that the next round might overflow. */
static int must_grow(const struct sb_sched *s, const struct sb_seq *seq)
{
    return seq->slot >= 0 && sb_slot_columns(&s->slots.sizes, class_for(s, seq)) > seq->cap;
}

struct sb_seq *sb_sched_in_the_way(const struct sb_sched *s, const struct sb_seq *seq)
{
    const struct sb_residents *all = &s->residents;
    struct sb_seq *last = NULL;

    if (!must_grow(s, seq) || sb_slots_has(&s->slots, class_for(s, seq)))
        return NULL;
    for (int32_t at = sb_oldest(all, SB_ALL); at >= 0; at = sb_next(all, SB_ALL, at))
        if (!last || sb_seq_precedes(last, all->seq[at], SB_BY_TURN))
            last = all->seq[at];
    return last;
}

void sb_sched_preempt(struct sb_sched *s, struct sb_seq *seq)
{
    sb_sched_retire(s, seq);
    seq->kv_len = seq->draft_kv_len = 0;
    s->stats[SB_STAT_preemptions]++;
}

int32_t sb_sched_grow(struct sb_sched *s, struct sb_seq *seq)
{
    if (!must_grow(s, seq))
        return SPECBATCH_OK;
    ask_move(s, seq, class_for(s, seq));
    return sb_realignment_run_moves(&s->realignment, &s->slots, s->stats);
}
