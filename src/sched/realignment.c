/* Shifting and moving cached columns, in one operation of the backend for each cache; see
 * realignment.h. */
#include "sched/realignment.h"

#include "fault.h"
#include "port.h"
#include "stats.h"
#include "status.h"

size_t sb_realignment_bytes(int32_t n_slots)
{
    return sb_moves_bytes(n_slots) +
           (size_t)n_slots * (sizeof(struct sb_seq *) + sizeof(struct sb_place));
}

int32_t sb_realignment_create(struct sb_realignment *r, const struct sb_mem *mem, int32_t n_slots,
                              struct sb_runner *target, struct sb_runner *draft)
{
    int32_t rc = SPECBATCH_OK;

    r->mem = *mem;
    r->target = target;
    r->draft = draft;
    SB_NEW(r->seq, sb_alloc(mem, (size_t)n_slots, sizeof(struct sb_seq *)), "slots");
    SB_NEW(r->to, sb_alloc(mem, (size_t)n_slots, sizeof *r->to), "slots");
    SB_TRY(sb_moves_create(&r->moves, mem, target->model, n_slots));
done:
    return rc;
}

void sb_realignment_free(struct sb_realignment *r)
{
    sb_moves_free(&r->moves);
    sb_free(&r->mem, r->to);
    sb_free(&r->mem, r->seq);
}

static void ask(struct sb_realignment *r, struct sb_seq *seq, struct sb_place to)
{
    r->seq[r->n] = seq;
    r->to[r->n++] = to;
}

int sb_realignment_ask(struct sb_realignment *r, struct sb_seq *seq, int32_t start)
{
    if (seq->start == start)
        return 0;
    if (seq->kv_len == 0 && seq->draft_kv_len == 0) {
        seq->start = start;
        return 0;
    }
    ask(r, seq, (struct sb_place){seq->at, seq->cap, start});
    return 1;
}

void sb_realignment_ask_move(struct sb_realignment *r, struct sb_seq *seq, int64_t at, int32_t cap)
{
    ask(r, seq, (struct sb_place){at, cap, seq->start});
}

/* Copies the columns in one model's cache, and adds to *bytes what that was. */
static int32_t copy_in(struct sb_realignment *r, struct sb_runner *runner, uint64_t *bytes)
{
    const struct sb_kv *kv = &runner->kv;
    const int is_draft = runner == r->draft;

    sb_moves_begin(&r->moves, r->n);
    for (int32_t i = 0; i < r->n; i++) {
        const struct sb_seq *seq = r->seq[i];
        const int32_t len = is_draft ? seq->draft_kv_len : seq->kv_len;
        sb_moves_set(&r->moves, i, kv, (struct sb_place){seq->at, seq->cap, seq->start}, r->to[i],
                     len);
        *bytes += (uint64_t)len * sb_kv_column_bytes(kv);
    }
    return sb_moves_run(&r->moves, runner);
}

/* Copies in both caches. */
static int32_t copy_all(struct sb_realignment *r, uint64_t *bytes)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(copy_in(r, r->target, bytes));
    if (r->draft)
        SB_TRY(copy_in(r, r->draft, bytes));
done:
    return rc;
}

int32_t sb_realignment_run(struct sb_realignment *r, uint64_t *stats)
{
    const uint64_t began = sb_port_now_ns();
    int32_t rc = SPECBATCH_OK;

    if (r->n == 0)
        return rc;
    SB_TRY(copy_all(r, &stats[SB_STAT_realign_bytes]));
    for (int32_t i = 0; i < r->n; i++) {
        struct sb_seq *seq = r->seq[i];
        const int32_t start = r->to[i].column;
        if (SB_FAULT(REPAD_WITHOUT_UNPAD) && start > seq->start &&
            seq->kv_len == sb_seq_content(seq))
            seq->kv_len += start - seq->start;
        else
            seq->start = start;
    }
    stats[SB_STAT_realigned_rows] += (uint64_t)r->n;
    stats[SB_STAT_realign_ns] += sb_port_now_ns() - began;
done:
    r->n = 0;
    return rc;
}

int32_t sb_realignment_run_moves(struct sb_realignment *r, struct sb_slots *slots, uint64_t *stats)
{
    int32_t rc = SPECBATCH_OK;

    if (r->n == 0)
        return rc;
    SB_TRY(copy_all(r, &stats[SB_STAT_moved_bytes]));
    for (int32_t i = 0; i < r->n; i++) {
        struct sb_seq *seq = r->seq[i];
        sb_slots_give(slots, seq->at, sb_slot_class(&slots->sizes, seq->cap));
        seq->at = r->to[i].at;
        seq->cap = r->to[i].cap;
    }
done:
    r->n = 0;
    return rc;
}
