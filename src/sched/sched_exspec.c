/*
 * exspec: the paper's Algorithm 3. A window of W > B residents keeps its rows ragged; each round takes
 * rows of the same length, which need no realignment among themselves:
 *
 *     window   len 41 41 57 41 60 57 41        group: the four of length 41
 *
 * - The largest group wins, ties go to the one whose oldest member waits longest. A group may be
 *   smaller than B. When it would not fill even half of the places that a mixed batch could, or
 *   when a row outside it has waited too long, the B oldest rows are taken as they are and realigned
 *   as eqspec does (the paper's fallback).
 * - Rows of one length may end in different columns, since an earlier fallback shifted some of them.
 *   The group then meets at the commonest start; the others are moved, and counted.
 * - A row's start and length together must leave room for the round's writes. Where the group's
 *   start does not, the group moves to column 0 before anything is written.
 *
 * Cost: what a round of B rows touches; groups are kept by residents.h, and the window is never walked.
 */
#include "sched/sched.h"

/* Rounds that a ready row may be passed over, in units of the rounds a fair rotation takes. */
enum { PATIENCE = 4 };

static int starved(const struct sb_sched *sched, int32_t n_ready)
{
    const struct sb_residents *all = &sched->residents;
    const struct sb_seq *oldest = all->seq[sb_oldest(all, SB_READY)];
    const int32_t rotation = (n_ready + sched->limits.batch - 1) / sched->limits.batch;

    return sched->n_rounds - oldest->last_round > (uint64_t)PATIENCE * (uint64_t)rotation;
}

/* The start that most rows of the round have, if a round's writes fit behind it, else 0. */
static int32_t common_start(struct sb_sched *sched)
{
    const struct sb_round *round = sched->round;
    int32_t best = 0, votes = 0;

    for (int32_t b = 0; b < round->n_rows; b++) {
        const int32_t start = round->rows[b].seq->start;
        if (++sched->count[start] > votes) {
            votes = sched->count[start];
            best = start;
        }
    }
    for (int32_t b = 0; b < round->n_rows; b++)
        sched->count[round->rows[b].seq->start] = 0;
    if (best + sb_content(round->rows[0].seq) + sched->limits.draft_len + 1 > sched->target->kv.cap)
        best = 0;
    return best;
}

static void take_group(struct sb_sched *sched, int32_t length)
{
    const struct sb_residents *all = &sched->residents;
    struct sb_round *round = sched->round;
    int32_t start;

    for (int32_t at = sb_oldest_alike(all, length); at >= 0 && round->n_rows < sched->limits.batch;
         at = sb_next_alike(all, at))
        sb_take(sched, all->seq[at]);
    start = common_start(sched);
    for (int32_t b = 0; b < round->n_rows; b++)
        sched->n_grouped += !sb_align(sched, round->rows[b].seq, start);
}

static void take_mixed(struct sb_sched *sched)
{
    struct sb_round *round = sched->round;
    int32_t end = 0;

    sb_take_ready(sched);
    for (int32_t b = 0; b < round->n_rows; b++)
        if (sb_content(round->rows[b].seq) > end)
            end = sb_content(round->rows[b].seq);
    for (int32_t b = 0; b < round->n_rows; b++)
        sb_align(sched, round->rows[b].seq, end - sb_content(round->rows[b].seq));
    sched->n_mixed = round->n_rows;
}

static void form(struct sb_sched *sched)
{
    const int32_t batch = sched->limits.batch, n_ready = sb_residents_n_ready(&sched->residents);
    const int32_t places = n_ready < batch ? n_ready : batch;
    int32_t size;
    const int32_t length = sb_residents_group(&sched->residents, &size);

    if (n_ready > 0 && 2 * size >= places && !starved(sched, n_ready))
        take_group(sched, length);
    else if (n_ready > 0)
        take_mixed(sched);
    sb_take_newcomers(sched);
}

const struct sb_policy sb_policy_exspec = {
    .name = "exspec", .windowed = 1, .grouped = 1, .admits = sb_admit_always, .form = form};
