/*
 * exspec: the paper's Algorithm 3, which realigns rows only where it must. A window of W > B
 * residents keeps its rows ragged, and a round prefers rows that end in the same column already.
 *
 *     |...aaaaaaaa        |     a, c and d end in one column, whatever their lengths: they are a
 *     |bbbbbbbbbbbbb      |     group, and a round of them needs no realignment
 *     |ccccccccccc        |
 *     |.....dddddd        |
 *
 * The paper leaves open which rows a round takes. The rule is this library's own:
 *
 * - No place stays empty while a ready row waits. Rounds of one small group would reach a high
 *   grouping rate, but small rounds cost more than the realignments that they save.
 * - The lowest column with a batch of ready rows is decoded, without realignment. This lets rows
 *   that are behind catch up with the rest. The window's rows then stay in a band of columns about
 *   as wide as what one round adds to a row, and in so narrow a band groups are found.
 * - Where no column has a batch, rows are taken from the lowest column up. They meet in one column:
 *   the one in which most of them end already, out of those that are far enough right for the
 *   longest row and leave room for the columns that the round writes. Only rows that end elsewhere
 *   are realigned.
 * - If no row ends in such a column, the rows have come to the end of their slots, and start over
 *   in the lowest column that the longest of them allows. That begins a new lap. The rest of the
 *   band comes to the end of its slots in the next rounds, and until all of it has, rows of the old
 *   lap are taken before those of the new one. They start over in the same column as the first did,
 *   where their lengths allow it, and so the band stays together. If the lowest column came first
 *   here too, the first B rows to start over would run alone until they had caught up, and
 *   meanwhile a window of 6 B would group no better than one of B.
 * - A row that has been passed over for too long is in the next round. That is looked up for the
 *   oldest row only, so it is one row a round. A ready row therefore waits at most PATIENCE
 *   rotations and as many rounds as there are residents.
 *
 *     |          bbbbbbbbb|     old lap: rows from column lap_from on. b and c have no room for K
 *     |     aaaaaa        |     more tokens. a has started over in column lap_start and has grown
 *     |            ccccccc|     since; c starts over there too, and a's turn comes after that
 *
 * Cost: that of the rows which a round takes. Columns are found by residents.h, and the window is
 * never walked.
 * Rejected: groups of one length, as in the paper's text, which realign rows that end in one column
 * already; taking first the column with most rows, or the highest: rows that are behind then stay
 * behind, and the band becomes ever wider.
 */
#include "sched/policies.h"
#include "sched/sched.h"

/* For so many rotations a ready row may be passed over. In a rotation every ready row could have
 * been in a round once. */
enum { PATIENCE = 4 };

/* The slot of the ready row that has waited for too long, or -1. */
static int32_t find_starved(const struct sb_sched *sched)
{
    const struct sb_residents *all = &sched->residents;
    const int32_t oldest = sb_oldest(all, SB_READY), batch = sched->limits.batch;
    const int32_t rotation = (sb_residents_n_ready(all) + batch - 1) / batch;

    if (oldest < 0 ||
        sched->n_rounds - all->seq[oldest]->last_round <= (uint64_t)PATIENCE * (uint64_t)rotation)
        return -1;
    return oldest;
}

/* The last column in which rows may end when a round begins: its K proposals are written behind it.
 * It is the same for all rows, since their slots have one length. */
static int32_t last_column(const struct sb_sched *sched)
{
    return sb_slot_columns(&sched->slots.sizes, sched->common) - sched->limits.draft_len;
}

/* The lowest column of the lap with a batch of ready rows, which the round decodes as it is. -1: no
 * column has a batch, or it leaves no room, or there is a starved row in another column. */
static int32_t find_group(const struct sb_sched *sched, int32_t starved)
{
    const struct sb_residents *all = &sched->residents;
    const int32_t column = sb_residents_lowest(all, sched->lap_from, sched->limits.batch);

    if (column > last_column(sched) || (starved >= 0 && all->column[starved] != column))
        return -1;
    return column;
}

/* Takes rows of the columns `from` to `end` - 1, the oldest rows of each column first, while there
 * are places left. The starved row has a place of its own; when it is taken here, *starved becomes
 * -1. Returns how many places are left. */
static int32_t take_columns(struct sb_sched *sched, int32_t from, int32_t end, int32_t left,
                            int32_t *starved)
{
    const struct sb_residents *all = &sched->residents;

    for (int32_t c = sb_residents_lowest(all, from, 1); c >= 0 && c < end && left > 0;
         c = sb_residents_lowest(all, c + 1, 1))
        for (int32_t at = sb_oldest_alike(all, c); at >= 0 && left > 0;
             at = sb_next_alike(all, at)) {
            sb_take(sched, all->seq[at]);
            if (at == *starved)
                *starved = -1;
            else
                left--;
        }
    return left;
}

/* Fills the round from the column `from` up, and then from the lowest column up. A place is kept
 * for the starved row (its slot, or -1). */
static void take_rows(struct sb_sched *sched, int32_t from, int32_t starved)
{
    const struct sb_residents *all = &sched->residents;
    int32_t left = sched->limits.batch - (starved >= 0);

    left = take_columns(sched, from, all->n_columns, left, &starved);
    take_columns(sched, 0, from, left, &starved);
    if (starved >= 0)
        sb_take(sched, all->seq[starved]);
}

static int32_t longest_row(const struct sb_round *round)
{
    int32_t longest = 0;

    for (int32_t b = 0; b < round->n_rows; b++)
        if (round->rows[b].seq->n_tokens > longest)
            longest = round->rows[b].seq->n_tokens;
    return longest;
}

/* The column in which most of the round's rows end, out of those in which all can end; -1: none.
 * Rows were taken by column, so rows of one column are beside each other and can be counted in
 * passing. */
static int32_t meeting_column(const struct sb_sched *sched)
{
    const struct sb_round *round = sched->round;
    const int32_t longest = longest_row(round);
    int32_t column = -1, n = 0, best = -1, n_best = 0;

    for (int32_t b = 0; b < round->n_rows; b++) {
        n = sb_end_column(round->rows[b].seq) == column ? n + 1 : 1;
        column = sb_end_column(round->rows[b].seq);
        if (n > n_best && column >= longest && column <= last_column(sched)) {
            best = column;
            n_best = n;
        }
    }
    return best;
}

/* The column in which rows meet that start over. The first round to do so begins the new lap: its
 * rows that end beyond what a row can reach from there in this round tell where the old one begins.
 */
static int32_t start_over(struct sb_sched *sched)
{
    const struct sb_round *round = sched->round;
    const int32_t longest = longest_row(round), reach = longest + sched->limits.draft_len + 1;

    if (sched->lap_from > 0)
        return longest > sched->lap_start ? longest : sched->lap_start;
    for (int32_t b = 0; b < round->n_rows; b++) {
        const int32_t column = sb_end_column(round->rows[b].seq);
        if (column > reach && (sched->lap_from == 0 || column < sched->lap_from))
            sched->lap_from = column;
    }
    sched->lap_start = longest;
    return longest;
}

static void form(struct sb_sched *sched)
{
    const struct sb_round *round = sched->round;
    const int32_t starved = find_starved(sched);
    int32_t group, end, n_stay = 0;

    if (sb_residents_lowest(&sched->residents, sched->lap_from, 1) < 0)
        sched->lap_from = 0; /* all rows of the old lap have started over */
    group = find_group(sched, starved);
    take_rows(sched, group >= 0 ? group : sched->lap_from, starved);
    if ((end = meeting_column(sched)) < 0)
        end = start_over(sched);
    for (int32_t b = 0; b < round->n_rows; b++)
        n_stay += !sb_realignment_ask(&sched->realignment, round->rows[b].seq,
                                      end - round->rows[b].seq->n_tokens);
    sched->n_grouped = n_stay >= 2 ? n_stay : 0;
    sched->n_mixed = n_stay < round->n_rows ? round->n_rows : 0;
    sb_take_newcomers(sched);
}

const struct sb_policy sb_policy_exspec = {.name = "exspec",
                                           .slots = SB_SLOTS_WINDOW,
                                           .speculates = 1,
                                           .grouped = 1,
                                           .realigns = 1,
                                           .admits = sb_admit_always,
                                           .form = form};
