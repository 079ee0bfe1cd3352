/*
 * The round that every policy shares. Its phases:
 *
 *    prefill        prompt chunks that ride along are chosen
 *    form           the policy takes rows, and may ask for realignments
 *    choose         how many proposals each row asks for, K at most       adapt.c
 *    realign        what was asked for                                    realignment.c
 *    prepare        the passes of draft and target are built              draft.h, verify.c
 *    issue          up to K draft passes and the target's pass run        draft.h, verify.c
 *    trim           the policy may lower how many proposals rows keep
 *    commit         what the rows have won becomes part of them           verify.c
 *    after_commit   the policy may ask for realignments
 *    realign        what was asked for                                    realignment.c
 *    learn          what the round has cost and won                       adapt.c
 *
 * Rejected: a loop for each policy. The paper's code has two, and they disagree about
 * end-of-sequence and about what they count.
 */
#include "sched/sched.h"

#include "engine/masks.h"
#include "port.h"
#include "sched/policies.h"
#include "status.h"

/* ---------------------------------------------------------------- memory */

/* Columns in which a sequence may end, as sb_end_column counts: its last token has no entry in the
 * cache yet, so that is column cap + 1 at most. 0: residents are not kept by column. */
static int32_t n_columns(const struct sb_sched_limits *limits, int32_t cap)
{
    return limits->grouped ? cap + 2 : 0;
}

static struct sb_slot_sizes sizes_of(const struct sb_runner_limits *target)
{
    return (struct sb_slot_sizes){.longest = target->cap, .halvings = target->halvings};
}

static int32_t n_longest(const struct sb_runner_limits *target)
{
    return (int32_t)(target->n_columns / target->cap);
}

size_t sb_sched_bytes(const struct sb_sched_limits *limits, const struct sb_runner_limits *target)
{
    const struct sb_slot_sizes sizes = sizes_of(target);

    return sb_realignment_bytes(limits->n_slots) + (size_t)limits->n_slots * sizeof(int32_t) +
           sb_slots_bytes(&sizes, n_longest(target)) +
           sb_residents_bytes(limits->n_slots, n_columns(limits, target->cap));
}

int32_t sb_sched_create(struct sb_sched *s, const struct sb_mem *mem)
{
    const struct sb_slot_sizes sizes = sizes_of(&s->target->limits);
    const int32_t n_slots = s->limits.n_slots;
    int32_t rc = SPECBATCH_OK;

    s->mem = *mem;
    sb_adapt_init(&s->adapt, s->limits.adaptive ? s->limits.draft_len : 0,
                  s->target->backend->records, s->draft->runner != NULL);
    s->adapt.blends = s->draft->blends;
    SB_TRY(sb_residents_create(&s->residents, mem, n_slots,
                               n_columns(&s->limits, s->target->limits.cap), s->limits.batch));
    SB_TRY(sb_slots_create(&s->slots, mem, &sizes, n_longest(&s->target->limits)));
    SB_NEW(s->free_numbers, sb_alloc(mem, (size_t)n_slots, sizeof *s->free_numbers), "slots");
    SB_TRY(sb_realignment_create(&s->realignment, mem, n_slots, s->target, s->draft->runner));
    for (int32_t i = n_slots; i-- > 0;)
        s->free_numbers[s->n_free++] = i;
done:
    return rc;
}

void sb_sched_free(struct sb_sched *s)
{
    sb_realignment_free(&s->realignment);
    sb_free(&s->mem, s->free_numbers);
    sb_slots_free(&s->slots);
    sb_residents_free(&s->residents);
}

/* ------------------------------------------------------------- for policies */

int sb_admit_always(const struct sb_sched *s)
{
    (void)s;
    return 1;
}

void sb_take(struct sb_sched *s, struct sb_seq *seq)
{
    const int32_t remaining = seq->max_tokens - seq->n_tokens;
    int32_t k = seq->draft_len < s->limits.draft_len ? seq->draft_len : s->limits.draft_len;

    if (k > remaining - 1)
        k = remaining - 1; /* the bonus token is the last one */
    s->round->rows[s->round->n_rows++] = (struct sb_round_row){
        .seq = seq, .limit = k, .n_draft = seq->draft_sources ? k : 0};
}

void sb_take_ready(struct sb_sched *s)
{
    const struct sb_residents *all = &s->residents;

    for (int32_t at = sb_oldest(all, SB_READY); at >= 0 && s->round->n_rows < s->limits.batch;
         at = sb_next(all, SB_READY, at))
        sb_take(s, all->seq[at]);
}

void sb_take_newcomers(struct sb_sched *s)
{
    struct sb_round *round = s->round;

    for (int32_t i = 0; i < round->n_chunks && round->n_rows < s->limits.batch; i++) {
        const struct sb_chunk *chunk = &round->chunks[i];
        if (!sb_chunk_completes_prompt(chunk) || chunk->seq->n_tokens == chunk->seq->max_tokens)
            continue;
        round->rows[round->n_rows++] = (struct sb_round_row){.seq = chunk->seq, .n_draft = 0};
        round->n_newcomers++;
    }
}

/* ------------------------------------------------------------------ a round */

/* Chooses the prompt chunks that ride along, prefill_chunk tokens at most together. A chunk goes up
 * to the next multiple of prefill_chunk in its own prompt, or to the end of it; the oldest
 * residents come first, and none gets a part of a chunk. Who follows another answer to the same
 * prompt computes nothing. */
static void choose_prefill(struct sb_sched *s)
{
    const int32_t chunk = s->limits.prefill_chunk;
    const struct sb_residents *all = &s->residents;
    struct sb_round *round = s->round;
    int32_t room = chunk;

    for (int32_t at = sb_oldest(all, SB_FILLING); at >= 0 && round->n_chunks < round->max_chunks;
         at = sb_next(all, SB_FILLING, at)) {
        struct sb_seq *seq = all->seq[at];
        if (seq->follows)
            continue;
        const int32_t to_boundary = chunk - seq->kv_len % chunk,
                      left = sb_seq_content(seq) - seq->kv_len;
        const int32_t n = left < to_boundary ? left : to_boundary;

        if (n > room)
            break;
        room -= n;
        round->chunks[round->n_chunks++] = (struct sb_chunk){.seq = seq, .n = n};
    }
}

/* A round changes the entries of its own sequences only, so no other is looked at. */
static void count_all_live(struct sb_sched *s)
{
    const struct sb_round *round = s->round;
    uint64_t *stats = s->stats;

    for (int32_t i = 0; i < round->n_chunks; i++)
        sb_sched_count_live(s, round->chunks[i].seq);
    for (int32_t b = 0; b < round->n_rows; b++)
        sb_sched_count_live(s, round->rows[b].seq);
    if (stats[SB_STAT_kv_live_peak_bytes] < stats[SB_STAT_kv_live_bytes])
        stats[SB_STAT_kv_live_peak_bytes] = stats[SB_STAT_kv_live_bytes];
}

/* Commits a row. Returns by how many tokens its sequence has grown: 0 if it has become shorter, as
 * a stop string may take tokens of earlier rounds back. The counters then go down, by the
 * wrap-around of unsigned numbers. */
static uint64_t commit_row(struct sb_sched *s, int32_t b)
{
    const struct sb_round_row *row = &s->round->rows[b];
    const uint64_t before = row->seq->accepted;
    const int32_t n = sb_commit(s->round, b);
    const int64_t accepted = (int64_t)(row->seq->accepted - before);
    const int64_t forced = accepted < row->n_forced ? accepted : row->n_forced;

    s->stats[SB_STAT_tokens_committed] += (uint64_t)n;
    s->stats[SB_STAT_tokens_accepted] += (uint64_t)accepted;
    s->stats[SB_STAT_tokens_forced] += forced > 0 ? (uint64_t)forced : 0;
    return n > 0 ? (uint64_t)n : 0;
}

/* Returns by how many tokens the sequences have grown, those left out that have become shorter. */
static uint64_t commit_all(struct sb_sched *s)
{
    struct sb_round *round = s->round;
    uint64_t won = 0, drafted = 0;

    /* Prompts first: residents.c has to know a newcomer as ready before it is told that it ran. */
    for (int32_t i = 0; i < round->n_chunks; i++) {
        s->stats[SB_STAT_prefill_tokens] += (uint64_t)round->chunks[i].n;
        if (sb_seq_is_ready(round->chunks[i].seq))
            sb_residents_filled(&s->residents, round->chunks[i].seq);
    }
    for (int32_t b = 0; b < round->n_rows; b++) {
        won += commit_row(s, b);
        drafted += (uint64_t)round->rows[b].n_draft;
        round->rows[b].seq->last_round = s->n_rounds;
        sb_residents_ran(&s->residents, round->rows[b].seq);
    }
    s->stats[SB_STAT_tokens_drafted] += drafted;
    s->stats[SB_STAT_decode_rows] += (uint64_t)round->n_rows;
    s->stats[SB_STAT_newcomer_rows] += (uint64_t)round->n_newcomers;
    s->stats[SB_STAT_plain_rounds] += sb_round_n_ready(round) > 0 && drafted == 0;
    s->stats[SB_STAT_probe_rounds] += (uint64_t)s->adapt.probing;
    s->stats[SB_STAT_decode_rounds] += round->n_rows > 0;
    s->stats[SB_STAT_group_rows] += (uint64_t)s->n_grouped;
    s->stats[SB_STAT_group_rounds] += s->n_grouped > 0 && s->n_grouped == sb_round_n_ready(round);
    s->stats[SB_STAT_mixed_rows] += (uint64_t)s->n_mixed;
    count_all_live(s);
    return won;
}

/* Ends the round if the pool has been interrupted. This is asked where nothing of the round has run
 * yet, so that it can be repeated. */
static int32_t check_interruption(struct sb_sched *s)
{
    return atomic_exchange(&s->interrupted, 0)
               ? sb_fail(SPECBATCH_E_INTERRUPTED, "specbatch_pool_interrupt was called")
               : SPECBATCH_OK;
}

/* The clock for adapt.c. Reading it takes longer than reading the time, so others do without. */
static uint64_t work_clock(const struct sb_sched *s)
{
    return s->limits.adaptive ? sb_runner_clock(s->target) : 0;
}

/* Runs the passes of the round: builds them, issues them, and takes the verdict. */
static int32_t run_passes(struct sb_sched *s)
{
    const uint64_t began = sb_port_now_ns();
    uint64_t drafted;
    int32_t rc = SPECBATCH_OK;

    sb_round_begin(s->round, s->target);
    SB_TRY(sb_masks_force(s->round));
    SB_TRY(check_interruption(s)); /* realignment and masks may have taken a while */
    SB_TRY(s->draft->ops->prepare(s->draft, s->round));
    /* So may a callback have. After a draft model has prepared, its passes must run: its lengths
     * count entries by then that they have yet to compute. */
    if (!s->draft->runner)
        SB_TRY(check_interruption(s));
    sb_masks_propose(s->round);
    sb_verify_prepare(s->round, s->target);
    SB_TRY(sb_round_issue(s->round, s->target, s->draft, &drafted));
    sb_verify_finish(s->round);
    s->stats[SB_STAT_target_passes]++;
    s->stats[SB_STAT_draft_passes] = s->draft->passes;
    s->stats[SB_STAT_draft_ns] += drafted - began;
    s->stats[SB_STAT_verify_ns] += sb_port_now_ns() - drafted;
done:
    return rc;
}

/* The rows of a round that was broken off may have been realigned, and residents.h files them under
 * the column in which they ended before. The others keep their turn. A mask may have broken it off
 * after the passes of a draft model, whose cache then forgets the proposals; what it has of the
 * committed tokens has been computed. */
static void give_up(struct sb_sched *s)
{
    for (int32_t b = 0; b < sb_round_n_ready(s->round); b++) {
        struct sb_seq *seq = s->round->rows[b].seq;
        if (seq->draft_kv_len > sb_seq_content(seq))
            seq->draft_kv_len = sb_seq_content(seq);
        sb_residents_moved(&s->residents, seq);
        sb_sched_count_live(s, seq);
    }
}

/* Forced proposals are more than what adapt.h has chosen, so the time of their round says nothing.
 */
static int has_forced(const struct sb_round *round)
{
    for (int32_t b = 0; b < round->n_rows; b++)
        if (round->rows[b].n_forced > 0)
            return 1;
    return 0;
}

/* What a round that took so long cost, when the thread has worked for `work` of that. Some systems
 * count a thread's time in steps that are longer than a round, so that most rounds show no work at
 * all; an eighth of the time is the least that counts. */
static uint64_t cost_ns(uint64_t took, uint64_t work)
{
    return work > took ? took : work < took / 8 ? took / 8 : work;
}

int32_t sb_sched_round(struct sb_sched *s)
{
    const uint64_t began = sb_port_now_ns(), worked = work_clock(s), waited = s->draft->waited_ns,
                   caught_up = s->draft->caught_up, catch_up_ns = s->draft->catch_up_ns;
    struct sb_round *round = s->round;
    uint64_t won, took, work;
    int32_t rc = SPECBATCH_OK;

    round->n_rows = round->n_chunks = round->n_newcomers = s->n_grouped = s->n_mixed = 0;
    SB_TRY(check_interruption(s));
    choose_prefill(s);
    s->policy->form(s);
    if (round->n_rows + round->n_chunks == 0)
        return rc;
    sb_adapt_choose(&s->adapt, round->rows, sb_round_n_ready(round), round->n_chunks > 0);
    SB_TRY(sb_realignment_run(&s->realignment, s->stats));
    SB_TRY(run_passes(s));
    if (s->policy->trim)
        s->policy->trim(s);
    won = commit_all(s);
    if (s->policy->after_commit) {
        s->policy->after_commit(s);
        SB_TRY(sb_realignment_run(&s->realignment, s->stats));
    }
    s->n_rounds++;
    s->stats[SB_STAT_rounds]++;
    took = sb_port_now_ns() - began;
    work = work_clock(s) - worked + s->draft->waited_ns - waited;
    s->stats[SB_STAT_round_ns] += took;
    sb_adapt_learn(&s->adapt, round->rows, sb_round_n_ready(round),
                   &(struct sb_adapt_round){.mixed = round->n_chunks > 0 || has_forced(round),
                                            .unique = !round->repeats,
                                            .committed = won,
                                            .ns = cost_ns(took, work),
                                            .caught_up = s->draft->caught_up - caught_up,
                                            .catch_up_ns = s->draft->catch_up_ns - catch_up_ns});
done:
    if (rc != SPECBATCH_OK)
        give_up(s);
    return rc;
}
