/*
 * The adaptive draft length: how many proposals each row of a round asks for, from none to its
 * limit. It maximises tokens per second, and bounds what speculation can lose where it does not
 * pay.
 *
 *     sb_adapt_choose ---> draft, verify, trim, commit ---> sb_adapt_learn
 *     lowers n_draft                                        acceptance, cost, budget
 *
 * What is won and what it costs are both measured while the pool runs. Times are in plain rounds: 1
 * is the time of a round of as many rows without proposals.
 *
 *     s_j                    chance that proposals 1 to j of a row are all accepted
 *     1 + s_1 + .. + s_k     tokens that a row with k proposals is expected to win
 *     x                      proposals a row, the mean over the round's rows
 *     1 + y(n, x)            time of a round of n rows; y is what its proposals add, realignment
 *                            included
 *
 * Choice. Row r asks for every proposal j whose chance s_j exceeds a threshold; the threshold is
 * the one with the highest expected tokens per second. One threshold serves all rows, because
 * whatever x costs, the best x proposals a row are those with the highest chances. Where the
 * backend records (CUDA graphs), a round costs what its longest row costs, and each number of steps
 * is a recording of its own. There all rows get one length, out of 1, 2, 3, 5, 7, 10, 14,
 * ..., K, and the last round's length stays unless another promises 3 % more.
 *
 * Acceptance. The pool keeps, for each j, the chance that proposal j is accepted if those before it
 * were, as exponentially weighted counts. A j that was never tried is taken to be as good as j - 1.
 * A row's own record, what was accepted of what the pool's chances let expect, scales them.
 *
 * Cost. For each number of rows (1 to 7, then four sizes an octave) the y measured at every x that
 * has been tried. Between two such points y is a straight line, and beyond the last one it grows in
 * proportion to x. A size without points takes those of the nearest size that has some.
 *
 *     y |            o      beyond some x arithmetic is what limits: one line through all points
 *       |          .        would make the choice swing between too long and too short here
 *       | . o . o
 *       +--------------- x
 *
 * A point that is not measured again is forgotten after 140 to 310 rounds. A point that is too low
 * is chosen and so corrected; one that is too high is never chosen, and only forgetting mends it.
 *
 * Outliers. A machine that other programs use makes some times longer by any factor, and these must
 * not be learnt. sched.c gives what the thread worked, where that can be told, instead of the time
 * that passed; what remains is met here. The shortest of the first three times is the first
 * estimate. Every later time counts as 1.25 times as long or as short as the estimate at most. So
 * single outliers move it by a few per cent, and plain and speculative rounds alike.
 *
 *     time |  o                     o o o o     one outlier is cut off. Three in a row on the same
 *          |                                    side are a change: of the cost of these rounds, or
 *          | . . o . o . o . o . o              of the machine's speed. Plain rounds tell which.
 *          +------------------------- rounds
 *
 * After three in a row, plain rounds are measured afresh. If the machine has become slower or
 * faster, times in plain rounds are then what they were. If not, further outliers are believed more
 * and more.
 *
 * Budget. A plain round deposits 2 % of its time. A speculative round withdraws its time (catch-up
 * included, and as far as it is believed) and deposits what its tokens would have cost in plain
 * rounds. At zero, only plain rounds run. So however wrong the estimates are, speculation loses no
 * more than those 2 %, the budget's first 3 rounds, and the credit below. Measurements are paid
 * from the budget too, so expensive probes happen rarely.
 *
 * Probes. Where plain decoding is best, one row speculates every 8 rounds, or every 2 while the
 * budget is well filled. Where speculation is best, a round in 64 is plain, and half-way between
 * two of those one row keeps its limit.
 *
 * Catching up. A draft model first has to compute the tokens that it has not seen. A row whose
 * draft is far behind may be started on credit: at most 8 rounds, if 32 rounds would repay it.
 * Unused credit decays by 5 % a round.
 *
 * Some times say nothing of what rounds cost. A round with prompt chunks takes the prompt's time,
 * so it teaches acceptance only, and withdraws only its catching up. Where the backend records, a
 * round that is not replayed includes what loading kernels and recording took. That is paid once,
 * and would make every new length look too expensive to be tried again; so such a round teaches
 * acceptance only too, and withdraws the cost known so far. This holds for six of them in a row. If
 * there are more, shapes change faster than recordings are of use, and their times are what rounds
 * cost here.
 *
 * Sources in turn. In a list with a model, rounds with the same number of proposals differ in cost
 * by whether the model ran. A point is then what rounds cost in the mean, of both kinds as they
 * have come lately, and acceptance is that of both together. A run of rounds of one kind is no
 * change of the machine, so only plain rounds can show one there. How far a model lags counts for
 * rows that another source may serve too: they may wait for budget and credit without need.
 *
 * Nothing here sees a token, so nothing here can change one. Rejected: fitting draft and
 * verification apart, because a replayed round yields one time, not two; a cost linear in x (see
 * the picture); one length for all rows everywhere, since requests differ in acceptance; medians of
 * the latest times, which are coarser than a mean where one row of many proposes and y is small.
 */
#ifndef SB_ADAPT_H
#define SB_ADAPT_H

#include <stdint.h>

#include "engine/round.h"
#include "options.h"

enum {
    SB_ADAPT_SIZES = 48, /* of rounds, by their number of rows, up to 4096 */
    /* Points of a cost, by proposals a row: up to 1/2, 1, 2, 3, 5, 7, 10, 14, 19, 26, 35, 47, and
     * 63 or more. */
    SB_ADAPT_POINTS = 13
};

/* A mean of times that outliers hardly move. */
struct sb_adapt_mean {
    float value;
    float weight;     /* measurements, older ones counting for less */
    int32_t n;        /* measurements, counted up to FIRST_MEASURED */
    int32_t outliers; /* of the latest measurements in a row: above 0 too long, below 0 too short */
};

/* What rounds of one size cost. */
struct sb_adapt_cost {
    struct sb_adapt_mean plain; /* ns of a plain round */
    int32_t since;              /* rounds since the last of them was measured */
    int32_t n_due;              /* so many plain rounds are to be measured at once */
    int32_t n_unique[2];        /* plain and speculative rounds in a row that were unique */
    struct sb_adapt_point {
        struct sb_adapt_mean time; /* of a round, in plain rounds: 1 + y */
        float x;                   /* mean of the proposals a row of these rounds */
    } point[SB_ADAPT_POINTS];
};

struct sb_adapt {
    int32_t draft_len; /* K; 0: switched off, nothing is lowered or learned */
    int32_t uniform;   /* one length for all rows: the backend records */
    int32_t lags;      /* the draft has a cache that must catch up */
    int32_t blends;    /* the draft has a model that rounds may do without (engine/draft.h) */

    /* [j]: proposal j was verified and those before it were accepted, and how often it was accepted
     * too. chance: hits over tries, as of this round. */
    float tries[SB_DRAFT_LEN_MAX + 1], hits[SB_DRAFT_LEN_MAX + 1], chance[SB_DRAFT_LEN_MAX + 1];
    struct sb_adapt_cost cost[SB_ADAPT_SIZES];
    int32_t has_plain;             /* some size's plain rounds have been measured */
    float budget, credit;          /* plain rounds */
    struct sb_adapt_mean catch_up; /* plain rounds a token */

    int32_t quiet;     /* rounds since the last proposal */
    uint32_t n_probes; /* so far: they tell which row is next, and how far it goes */
    int32_t last;      /* the last length that was not a probe's; used if uniform */
    int32_t asked;     /* proposals of this round */
    int32_t probing;   /* this round is a measurement */
};

/* What a round was, for sb_adapt_learn. */
struct sb_adapt_round {
    int32_t mixed;      /* it had prompt chunks */
    int32_t unique;     /* its time is not that of later rounds of its shape, which are replayed */
    uint64_t committed; /* tokens */
    uint64_t ns;        /* of the whole round */
    uint64_t caught_up; /* tokens that the draft caught up on */
    uint64_t catch_up_ns; /* and the time that this took, of ns */
};

void sb_adapt_init(struct sb_adapt *adapt, int32_t draft_len, int uniform, int lags);
/* n_draft of the rows is what each may ask for, and then what it asks for. mixed: the round has
 * prompt chunks. */
void sb_adapt_choose(struct sb_adapt *adapt, struct sb_round_row *rows, int32_t n_rows, int mixed);
/* The rows as they were committed: n_draft as made, n_accept as trimmed. */
void sb_adapt_learn(struct sb_adapt *adapt, const struct sb_round_row *rows, int32_t n_rows,
                    const struct sb_adapt_round *round);

#endif
