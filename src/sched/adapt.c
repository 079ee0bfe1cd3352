/*
 * The method of adapt.h: estimates of acceptance and cost, the choice of lengths, and the budget.
 * Its constants come first, each with its unit.
 */
#include "sched/adapt.h"

/* ---- Acceptance. A count of trials decays, so that it is a mean over the latest ones. */

/* An acceptance count is multiplied by 1 - 1 / TRIALS at each trial: a mean over so many. */
#define TRIALS 48.0f
/* Before the first trial, the first proposal counts as accepted in 0.7 of 4 trials. */
#define FIRST_CHANCE 0.7f
#define FIRST_TRIALS 4.0f
/* A row's record is (accepted + PRIOR_WEIGHT) / (expected + PRIOR_WEIGHT): so many proposals pull
 * it towards 1, which is the pool's record. */
#define PRIOR_WEIGHT 6.0f
/* A record that a round adds nothing to is multiplied by DECAY. The pool's record decays down to
 * MIN_TRIALS, so that a few probes then suffice to show a change. */
#define DECAY 0.99f
#define MIN_TRIALS 6.0f

/* ---- Cost, in plain rounds of as many rows. */

/* What one proposal a row adds to a round's time, before anything has been measured. */
#define FIRST_SLOPE 0.1f
/* A plain time is a mean over so many rounds: where plain rounds are rare, and where most are. */
#define PLAIN_ALONE 3.0f
#define PLAIN_IN_A_ROW 8.0f
/* The time of catching up a token is a mean over so many rounds. */
#define CATCHING_UP 4.0f
/* A point at x proposals a row is a mean over POINT_PROPOSALS / x rounds, and over 4 at least. */
#define POINT_PROPOSALS 16.0f
/* The weight of every point is multiplied by POINT_DECAY each round. Below MIN_WEIGHT the point is
 * forgotten, so that what was expensive once is tried again. */
#define POINT_DECAY 0.98f
#define MIN_WEIGHT 0.25f
/* A point's first times count as so many times what is known of other points at most. */
#define FIRST_ERROR 3.0f
/* A time that is longer or shorter than expected by more than this factor is an outlier, and counts
 * as this factor. After CHANGE outliers in a row on the same side, each further one squares it. */
#define OUTLIER 1.25f

/* ---- Choice. */

/* The thresholds that are compared: powers of THRESHOLD_STEP down to THRESHOLD_MIN. */
#define THRESHOLD_STEP 0.85f
#define THRESHOLD_MIN 0.02f
/* Speculation must promise so many times the speed of plain decoding. */
#define MIN_GAIN 1.02f
/* A uniform length stays as it is while it promises more than this share of the best one's gain. */
#define STAY 0.97f

/* ---- Budget, in plain rounds. */

#define DEPOSIT 0.02f      /* of a plain round */
#define BUDGET_FIRST 3.0f  /* what a pool begins with; above it, probes are more frequent */
#define BUDGET_MAX 32.0f   /* what is earned beyond this is not kept */
#define REPAY_ROUNDS 32.0f /* rounds in which catching up must have paid for itself */
#define CREDIT_MAX 8.0f    /* what catching up may cost beyond the budget */
#define CREDIT_DECAY 0.95f /* of unused credit, a round */

enum {
    FIRST_MEASURED = 3,  /* times of which the shortest is the first estimate */
    CHANGE = 3,          /* outliers in a row that show that something has changed */
    CHANGE_MAX = 7,      /* beyond so many the factor is no longer squared */
    UNIQUE_MAX = 6,      /* unique rounds in a row that teach nothing of cost */
    PLAIN_GAP = 64,      /* rounds of a size between two plain ones that measure */
    FIRST_PLAIN_GAP = 8, /* the same until FIRST_MEASURED are measured */
    PROBE_GAP = 8,       /* rounds between two probes where plain decoding is best */
    RICH_PROBE_GAP = 2,  /* the same while the budget is above BUDGET_FIRST */
    FAR = 8,             /* tokens: a draft further behind than this is a cost to be weighed */
    SAMPLE = 64          /* rows, evenly apart, for which thresholds are compared: more would take
                            longer and tell little */
};

static float at_most(float x, float most)
{
    return x < most ? x : most;
}

static float at_least(float x, float least)
{
    return x > least ? x : least;
}

/* The uniform lengths, 1, 2, 3, 5, 7, 10, 14, ...: the one after `length`. */
static int32_t next_length(int32_t length)
{
    return length + 1 + length / 3;
}

/* ------------------------------------------------------------------- estimates */

/* The index in `cost` of rounds of so many rows: 1 to 7 rows are a size each, then there are four
 * sizes from one power of two to the next. */
static int32_t size_of(int32_t n_rows)
{
    int32_t octave = 0;

    while (n_rows >> octave >= 8)
        octave++;
    return octave * 4 + (n_rows >> octave);
}

/* The point that covers x proposals a row: the first whose upper edge, 1/2, 1, 2, 3, 5, 7, ..., is
 * not below x. */
static int32_t point_at(float x)
{
    int32_t i = 0;

    for (float edge = 0.5f; i < SB_ADAPT_POINTS - 1 && x > edge; i++)
        edge = i == 0 ? 1.0f : (float)next_length((int32_t)edge);
    return i;
}

static int is_known(const struct sb_adapt_cost *cost)
{
    for (int32_t i = 0; i < SB_ADAPT_POINTS; i++)
        if (cost->point[i].time.weight > MIN_WEIGHT)
            return 1;
    return 0;
}

/* What rounds of this size cost, or while nothing is known of that, of the nearest known size. */
static const struct sb_adapt_cost *costs_of(const struct sb_adapt *a, int32_t size)
{
    for (int32_t away = 0; away < SB_ADAPT_SIZES; away++) {
        if (size >= away && is_known(&a->cost[size - away]))
            return &a->cost[size - away];
        if (size + away < SB_ADAPT_SIZES && is_known(&a->cost[size + away]))
            return &a->cost[size + away];
    }
    return &a->cost[size];
}

/* 1 + y(x): the time of a round with x proposals a row, in plain rounds. It is a straight line from
 * (0, 0) to the first point and from each point to the next, and never falls; beyond the last point
 * y is in proportion to x. */
static float price(const struct sb_adapt_cost *cost, float x)
{
    float x0 = 0.0f, y0 = 0.0f;

    for (int32_t i = 0; i < SB_ADAPT_POINTS; i++) {
        const struct sb_adapt_point *p = &cost->point[i];
        const float y = at_least(p->time.value - 1.0f, y0);
        if (p->time.weight <= MIN_WEIGHT)
            continue;
        if (x <= p->x)
            return 1.0f + y0 + (y - y0) * (x - x0) / (p->x - x0);
        x0 = p->x;
        y0 = y;
    }
    return 1.0f + (x0 > 0.0f ? y0 * x / x0 : FIRST_SLOPE * x);
}

/* Proposal j of the sequence was verified, and those before it were accepted; hit: it was too. The
 * sequence's record is what was accepted and what the pool's chances let expect. */
static void note_trial(struct sb_adapt *a, struct sb_seq *seq, int32_t j, int hit)
{
    const float keep = 1.0f - 1.0f / TRIALS;

    seq->hits = seq->hits * keep + (hit ? 1.0f : 0.0f);
    seq->expected = seq->expected * keep + a->chance[j];
    a->tries[j] = a->tries[j] * keep + 1.0f;
    a->hits[j] = a->hits[j] * keep + (hit ? 1.0f : 0.0f);
}

/* Verification ends at the first rejection, so the proposals behind it teach nothing, and those
 * that a mask has forced teach nothing of the draft. A row for which the draft proposes nothing
 * forgets its record by and by, so that it is tried again. */
static void note_row(struct sb_adapt *a, const struct sb_round_row *row)
{
    if (row->n_draft == row->n_forced) {
        row->seq->hits *= DECAY;
        row->seq->expected *= DECAY;
    }
    for (int32_t j = row->n_forced + 1; j <= row->n_draft && j <= row->n_accept + 1; j++)
        note_trial(a, row->seq, j, j <= row->n_accept);
}

/* chance[j] is hits over tries, with chance[j - 1] as one more trial: so an untried j has the
 * chance of the one before. */
static void set_chances(struct sb_adapt *a)
{
    a->chance[1] = a->hits[1] / a->tries[1];
    for (int32_t j = 2; j <= a->draft_len; j++)
        a->chance[j] = (a->hits[j] + a->chance[j - 1]) / (a->tries[j] + 1.0f);
}

/* ---------------------------------------------------------------------- choice */

/* How many proposals the row asks for: as many as have s_j above `threshold`, at most `most` and at
 * most its limit. *tokens: what it is then expected to win in the round, 1 + s_1 + .. + s_k. */
static int32_t reach(const struct sb_adapt *a, const struct sb_round_row *row, int32_t most,
                     float threshold, float *tokens)
{
    const float own = (row->seq->hits + PRIOR_WEIGHT) / (row->seq->expected + PRIOR_WEIGHT);
    float all = 1.0f;
    int32_t j = 0;

    for (*tokens = 1.0f; j < most && j < row->n_draft; j++) {
        all *= at_most(a->chance[j + 1] * own, 1.0f);
        if (all <= threshold)
            break;
        *tokens += all;
    }
    return j;
}

/* The mean of `reach` over a sample of the rows: returns the expected tokens a row; *asked: the
 * proposals a row. The step between sampled rows is odd: if every second row is easy, as many easy
 * rows as others are sampled. */
static float mean_reach(const struct sb_adapt *a, const struct sb_round_row *rows, int32_t n,
                        int32_t most, float threshold, float *asked)
{
    const int32_t step = ((n + SAMPLE - 1) / SAMPLE) | 1;
    float won = 0.0f, tokens;
    int32_t sum = 0, n_seen = 0;

    for (int32_t b = 0; b < n; b += step, n_seen++) {
        sum += reach(a, &rows[b], most, threshold, &tokens);
        won += tokens;
    }
    *asked = (float)sum / (float)n_seen;
    return won / (float)n_seen;
}

/* Each row has its own length: finds the threshold with the highest expected tokens per second.
 * Returns that speed in units of plain decoding's; 1, with a threshold that no proposal exceeds, if
 * none is faster. */
static float choose_each(const struct sb_adapt *a, const struct sb_round_row *rows, int32_t n,
                         const struct sb_adapt_cost *cost, float *threshold)
{
    float best = 1.0f;

    *threshold = 1.0f;
    for (float candidate = THRESHOLD_STEP; candidate > THRESHOLD_MIN; candidate *= THRESHOLD_STEP) {
        float asked;
        const float won = mean_reach(a, rows, n, a->draft_len, candidate, &asked),
                    gain = won / price(cost, asked);
        if (gain > best) {
            best = gain;
            *threshold = candidate;
        }
    }
    return best;
}

/* All rows have one length: finds the one with the highest expected tokens per second. Returns that
 * speed in units of plain decoding's; 1 and *k = 0 if none is faster. */
static float choose_one(const struct sb_adapt *a, const struct sb_round_row *rows, int32_t n,
                        const struct sb_adapt_cost *cost, int32_t *k)
{
    float best = 1.0f, last = 0.0f;

    *k = 0;
    for (int32_t length = 1;; length = next_length(length)) {
        const int32_t now = length < a->draft_len ? length : a->draft_len;
        float asked;
        const float gain = mean_reach(a, rows, n, now, -1.0f, &asked) / price(cost, (float)now);
        if (now == a->last)
            last = gain;
        if (gain > best) {
            best = gain;
            *k = now;
        }
        if (now == a->draft_len)
            break;
    }
    if (last > STAY * best && last > MIN_GAIN) {
        *k = a->last;
        best = last;
    }
    return best;
}

/* Tokens that the draft has not computed yet. */
static int32_t lag_of(const struct sb_adapt *a, const struct sb_seq *seq)
{
    return a->lags ? seq->n_tokens - seq->draft_kv_len : 0;
}

/* The row to probe with: of the rows that may propose, one whose draft lags least; if there are
 * several, they take turns. -1: no row may. */
static int32_t whose_turn(struct sb_adapt *a, const struct sb_round_row *rows, int32_t n)
{
    const uint32_t turn = a->n_probes++;
    int32_t best = -1, least = 0;

    for (int32_t i = 0; i < n; i++) {
        const int32_t at = (int32_t)((turn + (uint32_t)i) % (uint32_t)n),
                      lag = lag_of(a, rows[at].seq);
        if (rows[at].n_draft > 0 && (best < 0 || lag < least)) {
            best = at;
            least = lag;
        }
    }
    return best;
}

/* Only row `at` asks: for one proposal, and at every fourth probe for as many as it may. With a
 * uniform length the round costs as much if other rows ask for as many, so those do whose catching
 * up costs no more than that. */
static void probe(struct sb_adapt *a, struct sb_round_row *rows, int32_t n,
                  const struct sb_adapt_cost *cost, int32_t at)
{
    const int32_t k = at < 0 ? 0 : a->n_probes % 4 ? 1 : rows[at].n_draft;
    const float paid = price(cost, (float)k) - 1.0f;

    a->probing = at >= 0;
    for (int32_t b = 0; b < n; b++) {
        const int joins = b == at ||
                          (a->uniform && a->catch_up.value * (float)lag_of(a, rows[b].seq) <= paid);
        if (!joins || k < rows[b].n_draft)
            rows[b].n_draft = joins ? k : 0;
    }
}

/* Gives the rows the lengths with the highest expected speed, if that is worth speculating for at
 * all. Row `spare` (-1: none) keeps its limit, as a measurement. Returns the expected speed. */
static float take_best(struct sb_adapt *a, struct sb_round_row *rows, int32_t n,
                       const struct sb_adapt_cost *cost, int32_t spare)
{
    int32_t k = a->draft_len;
    float threshold = -1.0f, tokens;
    const float gain = a->uniform ? choose_one(a, rows, n, cost, &k)
                                  : choose_each(a, rows, n, cost, &threshold);

    if (gain < MIN_GAIN)
        return gain;
    for (int32_t b = 0; b < n; b++)
        if (b != spare)
            rows[b].n_draft = reach(a, &rows[b], k, threshold, &tokens);
    a->last = k;
    a->probing = spare >= 0;
    return gain;
}

/* Rows whose draft is far behind may ask while budget and credit pay for their catching up, in the
 * order of the round; while the price of catching up is unknown, one of them may. The credit is
 * what REPAY_ROUNDS rounds of the expected speed `gain` would win over plain ones. It is granted
 * anew only when nothing is owed. */
static void start_within_means(struct sb_adapt *a, struct sb_round_row *rows, int32_t n, float gain)
{
    float left;

    if (a->budget > 0.0f)
        a->credit = at_most(REPAY_ROUNDS * (gain - 1.0f), CREDIT_MAX);
    left = a->budget + a->credit;
    for (int32_t b = 0; b < n; b++) {
        const int32_t lag = rows[b].n_draft > 0 ? lag_of(a, rows[b].seq) : 0;
        if (lag > FAR && left <= 0.0f)
            rows[b].n_draft = 0;
        else if (lag > FAR)
            left = a->catch_up.n == 0 ? 0.0f : left - a->catch_up.value * (float)lag;
    }
}

/* Whether this round is to measure plain decoding. */
static int plain_is_due(const struct sb_adapt *a, const struct sb_adapt_cost *cost, int mixed)
{
    const int32_t gap = cost->plain.n < FIRST_MEASURED ? FIRST_PLAIN_GAP : PLAIN_GAP;

    return !a->has_plain || (!mixed && (cost->n_due > 0 || cost->since > gap));
}

static void ask_for_none(struct sb_round_row *rows, int32_t n)
{
    for (int32_t b = 0; b < n; b++)
        rows[b].n_draft = 0;
}

/* Takes the lengths with the highest expected speed; where that is plain decoding, a probe if one
 * is due. Returns the expected speed in units of plain decoding's. */
static float decide(struct sb_adapt *a, struct sb_round_row *rows, int32_t n, int32_t size,
                    int mixed)
{
    const int try_limit = !mixed && a->cost[size].since == PLAIN_GAP / 2;
    const int32_t gap = a->budget > BUDGET_FIRST ? RICH_PROBE_GAP : PROBE_GAP;
    const float gain = take_best(a, rows, n, costs_of(a, size),
                                 try_limit ? whose_turn(a, rows, n) : -1);

    if (gain >= MIN_GAIN)
        return gain;
    if (!mixed && a->cost[size].plain.n > 0 && a->quiet >= gap)
        probe(a, rows, n, costs_of(a, size), whose_turn(a, rows, n));
    else
        ask_for_none(rows, n);
    return 1.0f;
}

void sb_adapt_choose(struct sb_adapt *a, struct sb_round_row *rows, int32_t n, int mixed)
{
    const int32_t size = size_of(n);

    a->asked = a->probing = 0;
    if (a->draft_len == 0 || n == 0)
        return;
    a->cost[size].since += a->cost[size].since < INT32_MAX;
    set_chances(a);
    if (plain_is_due(a, &a->cost[size], mixed)) {
        a->probing = 1;
        ask_for_none(rows, n);
    } else if (a->budget + a->credit <= 0.0f) {
        ask_for_none(rows, n);
    } else {
        start_within_means(a, rows, n, decide(a, rows, n, size, mixed));
    }
    for (int32_t b = 0; b < n; b++)
        a->asked += rows[b].n_draft;
}

/* -------------------------------------------------------------------- learning */

/* After a round that tried nothing, old acceptance counts for less. */
static void decay_counts(struct sb_adapt *a)
{
    for (int32_t j = 1; j <= a->draft_len; j++)
        if (a->tries[j] > MIN_TRIALS) {
            a->tries[j] *= DECAY;
            a->hits[j] *= DECAY;
        }
}

static void deposit(struct sb_adapt *a, float rounds)
{
    a->budget = at_most(a->budget + rounds, BUDGET_MAX);
}

/* The time as far as it is believed: an outlier is cut off. */
static float believed(struct sb_adapt_mean *m, float time)
{
    const int32_t side = (time > m->value * OUTLIER) - (time < m->value / OUTLIER);
    float factor = OUTLIER;

    if (side * m->outliers <= 0)
        m->outliers = side;
    else if (side * m->outliers < CHANGE_MAX)
        m->outliers += side;
    for (int32_t i = CHANGE; i < side * m->outliers; i++)
        factor *= factor;
    return at_most(at_least(time, m->value / factor), m->value * factor);
}

/* Learns a time: the shortest of the first FIRST_MEASURED, and from then on a mean over `most`
 * times as far as they are believed. Returns what this one counts as. */
static float learn_mean(struct sb_adapt_mean *m, float time, float most)
{
    m->weight = at_most(m->weight + 1.0f, most);
    if (m->n < FIRST_MEASURED) {
        m->value = m->n++ == 0 ? time : at_most(time, m->value);
        return time;
    }
    time = believed(m, time);
    m->value += (time - m->value) / m->weight;
    return time;
}

/* After a change the next rounds are plain, and measured as if it was for the first time. */
static void note_change(struct sb_adapt_cost *cost, int32_t outliers)
{
    if (outliers != CHANGE && outliers != -CHANGE)
        return;
    cost->plain.n = cost->plain.outliers = 0;
    cost->n_due = FIRST_MEASURED;
}

/* One of several plain rounds in a row counts for less than one that is alone. */
static void learn_plain(struct sb_adapt *a, struct sb_adapt_cost *cost, float ns)
{
    if (cost->n_due > 0)
        cost->n_due--;
    learn_mean(&cost->plain, ns, cost->since > 1 ? PLAIN_ALONE : PLAIN_IN_A_ROW);
    if (cost->plain.n == FIRST_MEASURED)
        a->has_plain = 1;
    note_change(cost, cost->plain.outliers);
    cost->since = 0;
}

/* Learns the time of a round with x proposals a row, in plain rounds, where `known` was expected.
 * Returns what it counts as. */
static float learn_point(struct sb_adapt_cost *cost, float x, float time, float known, int blends)
{
    struct sb_adapt_point *p = &cost->point[point_at(x)];

    if (p->time.weight <= MIN_WEIGHT)
        *p = (struct sb_adapt_point){.x = x};
    if (p->time.n < FIRST_MEASURED)
        time = at_most(time, FIRST_ERROR * known);
    time = learn_mean(&p->time, time, at_least(POINT_PROPOSALS / x, 4.0f));
    p->x += (x - p->x) / p->time.weight;
    if (!blends)
        note_change(cost, p->time.outliers);
    return time;
}

/* Learns from the time of a round with x proposals a row. Returns what the round is booked at, in
 * plain rounds: the time as far as it is believed, or the known cost if it is unique. */
static float learn_cost(struct sb_adapt *a, int32_t size, float x, float ns, int unique)
{
    struct sb_adapt_cost *cost = &a->cost[size];
    const float known = price(costs_of(a, size), x), time = ns / cost->plain.value;

    if (unique)
        return known;
    for (int32_t i = 0; i < SB_ADAPT_POINTS; i++)
        cost->point[i].time.weight *= POINT_DECAY;
    return x > 0.0f ? learn_point(cost, x, time, known, a->blends)
                    : at_most(time, FIRST_ERROR * known);
}

/* x of a round, the proposals a row that its time is the price of: where lengths are uniform, rows
 * with fewer proposals are padded to the longest. */
static float paid_for(const struct sb_adapt *a, const struct sb_round_row *rows, int32_t n)
{
    int32_t sum = 0, longest = 0;

    for (int32_t b = 0; b < n; b++) {
        sum += rows[b].n_draft;
        if (rows[b].n_draft > longest)
            longest = rows[b].n_draft;
    }
    return a->uniform ? (float)longest : (float)sum / (float)n;
}

/* Counts unique rounds in a row. Returns whether this one is among the first UNIQUE_MAX of them,
 * whose time is left out. */
static int count_unique(struct sb_adapt_cost *cost, int speculative, int unique)
{
    int32_t *n = &cost->n_unique[speculative];

    *n = unique ? *n + 1 : 0;
    if (*n > UNIQUE_MAX + 1)
        *n = UNIQUE_MAX + 1;
    return unique && *n <= UNIQUE_MAX;
}

void sb_adapt_learn(struct sb_adapt *a, const struct sb_round_row *rows, int32_t n,
                    const struct sb_adapt_round *round)
{
    const int32_t size = size_of(n);
    struct sb_adapt_cost *cost = &a->cost[size];
    const float ns = (float)(round->ns > round->catch_up_ns ? round->ns - round->catch_up_ns : 1);
    float caught_up;
    int unique;

    if (a->draft_len == 0 || n == 0)
        return;
    unique = !round->mixed && count_unique(cost, a->asked > 0, round->unique);
    for (int32_t b = 0; b < n; b++)
        note_row(a, &rows[b]);
    a->credit *= CREDIT_DECAY;
    a->quiet = a->asked > 0 ? 0 : a->quiet + (a->quiet < INT32_MAX);
    if (a->asked == 0)
        decay_counts(a);
    if (a->asked == 0 && !round->mixed) {
        if (!unique)
            learn_plain(a, cost, ns);
        else if (cost->plain.n == FIRST_MEASURED)
            cost->since = PLAIN_GAP / 2; /* the next measurement is half a gap away */
    }
    if (cost->plain.n == 0)
        return;
    caught_up = (float)round->catch_up_ns / cost->plain.value;
    if (round->caught_up > 0 && caught_up > 0.0f)
        caught_up = (float)round->caught_up *
                    learn_mean(&a->catch_up, caught_up / (float)round->caught_up, CATCHING_UP);
    if (round->mixed)
        deposit(a, DEPOSIT * ns / cost->plain.value - caught_up);
    else if (a->asked == 0)
        deposit(a, DEPOSIT);
    else
        deposit(a, (float)round->committed / (float)n -
                       learn_cost(a, size, paid_for(a, rows, n), ns, unique) - caught_up);
}

void sb_adapt_init(struct sb_adapt *a, int32_t draft_len, int uniform, int lags)
{
    *a = (struct sb_adapt){
        .draft_len = draft_len, .uniform = uniform, .lags = lags, .budget = BUDGET_FIRST};
    a->tries[1] = FIRST_TRIALS;
    a->hits[1] = FIRST_TRIALS * FIRST_CHANCE;
}
