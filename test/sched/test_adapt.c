/*
 * The adaptive draft length alone, against simulated costs and acceptance. There is no clock and no
 * model, so every run of the test is the same.
 *
 * A world is n rows that run for ever: a request that has all its tokens is replaced by a new one.
 * A round with x proposals a row takes PLAIN_NS * (1 + slope * x), or less if its cost has a knee.
 * Tokens that the draft has not seen take it catch_up plain rounds each. A proposal is accepted
 * with its row's own probability.
 *
 * On a busy machine rounds are measured to take longer than they do. What is learnt from is the
 * measured time; what is judged is the time that the chosen rounds take by themselves, since a busy
 * machine would lengthen any other choice as well.
 */
#include "sbtest.h"
#include "sched/adapt.h"
#include "support/trace.h"

enum { REPLAY_ALL, REPLAY_PLAIN, REPLAY_NONE };
enum { MAX_ROWS = 200, N_SHAPES = 32, PLAIN_NS = 1000000, PROMPT = 40, LIFE = 200 };

struct world {
    int32_t n, k, uniform;
    double slope;    /* what a proposal a row costs, in plain rounds */
    double knee;     /* up to so many proposals a row, each costs only a tenth of that */
    double catch_up; /* plain rounds a token; 0: the draft does not lag */
    /* What makes measured times longer. noise: by up to this share. outliers: the share of rounds
     * that seem to take 3 to 30 times as long. interrupts: how many there are in the time of a
     * plain round; each lasts 2 to 6 plain rounds. slow: this many times, all rounds. */
    double noise, outliers, interrupts, slow;
    /* The backend records: the first two rounds of a shape, a number of rows and a longest length,
     * are not replayed, and take `recording` plain rounds longer. */
    int32_t records;
    double recording;
    int32_t replays; /* REPLAY_*: which rounds are replayed from the third on */
    struct shape {
        int32_t n, longest, seen;
        int64_t used;
    } shapes[N_SHAPES]; /* those whose recordings are kept */
    double a[MAX_ROWS]; /* each row's chance that a proposal is accepted */
    uint64_t random;

    struct sb_adapt adapt;
    struct sb_seq seqs[MAX_ROWS];
    struct sb_round_row rows[MAX_ROWS];
    int64_t now; /* rounds so far */
    /* Sums over the rounds of the latest `run`. at_zero: rounds without proposals. */
    double time, tokens, asked;
    int64_t rounds, at_zero, probes;
    double row_asked[MAX_ROWS];
};

static double uniform(struct world *w)
{
    return (double)(trace_random(&w->random) >> 11) * 0x1p-53;
}

static struct world *make_world(int32_t n, int32_t k, double a, double slope)
{
    static struct world w;

    memset(&w, 0, sizeof w);
    w.n = n;
    w.k = k;
    w.slope = slope;
    w.slow = 1.0;
    w.random = 7;
    for (int32_t b = 0; b < MAX_ROWS; b++)
        w.a[b] = a;
    for (int32_t b = 0; b < n; b++)
        w.seqs[b].n_tokens = PROMPT;
    return &w;
}

static void start(struct world *w)
{
    sb_adapt_init(&w->adapt, w->k, w->uniform, w->catch_up > 0.0);
}

/* What a round with x proposals a row takes, in plain rounds. */
static double cost_of(const struct world *w, double x)
{
    const double flat = x < w->knee ? x : w->knee;
    return 1.0 + w->slope * (0.1 * flat + (x - flat));
}

static double round_cost(const struct world *w)
{
    double x = 0.0;

    for (int32_t b = 0; b < w->n; b++)
        x = w->uniform ? fmax(x, w->rows[b].n_draft) : x + (double)w->rows[b].n_draft / w->n;
    return cost_of(w, x);
}

/* What is measured of a round that takes `cost`. */
static double measured(struct world *w, double cost)
{
    double time = cost;

    if (w->noise > 0.0)
        time *= 1.0 + w->noise * uniform(w);
    if (w->outliers > 0.0 && uniform(w) < w->outliers)
        time *= 3.0 * pow(10.0, uniform(w));
    for (double left = cost; w->interrupts > 0.0 && left > 0.0; left -= 1.0)
        if (uniform(w) < w->interrupts * fmin(left, 1.0))
            time += 2.0 + 4.0 * uniform(w);
    return w->slow * time;
}

/* Whether the round is replayed: its shape has been seen twice, and 32 other shapes have not taken
 * its place since. */
static int is_replayed(struct world *w)
{
    struct shape *shape = &w->shapes[0];
    int32_t longest = 0;

    for (int32_t b = 0; b < w->n; b++)
        longest = w->rows[b].n_draft > longest ? w->rows[b].n_draft : longest;
    for (int i = 0; i < N_SHAPES; i++) {
        struct shape *other = &w->shapes[i];
        if (other->seen > 0 && other->n == w->n && other->longest == longest) {
            shape = other;
            break;
        }
        shape = other->used < shape->used ? other : shape;
    }
    if (shape->seen == 0 || shape->n != w->n || shape->longest != longest)
        *shape = (struct shape){.n = w->n, .longest = longest};
    shape->used = w->now++;
    return shape->seen++ >= 2 &&
           (w->replays == REPLAY_ALL || (w->replays == REPLAY_PLAIN && longest == 0));
}

static void one_round(struct world *w)
{
    struct sb_adapt_round round = {0};
    int32_t lag = 0, asked = 0;

    for (int32_t b = 0; b < w->n; b++)
        w->rows[b] = (struct sb_round_row){.seq = &w->seqs[b], .n_draft = w->k};
    sb_adapt_choose(&w->adapt, w->rows, w->n, 0);
    for (int32_t b = 0; b < w->n; b++) {
        struct sb_round_row *row = &w->rows[b];
        asked += row->n_draft;
        w->row_asked[b] += row->n_draft;
        if (row->n_draft > 0 && row->seq->n_tokens - row->seq->draft_kv_len > 2)
            lag += row->seq->n_tokens - row->seq->draft_kv_len;
        while (row->n_accept < row->n_draft && uniform(w) < w->a[b])
            row->n_accept++;
        row->seq->n_tokens += row->n_accept + 1;
        if (row->n_draft > 0)
            row->seq->draft_kv_len = row->seq->n_tokens - 1;
        round.committed += (uint64_t)row->n_accept + 1;
    }
    const int unique = w->records && !is_replayed(w);
    const double cost = round_cost(w), caught_up = w->catch_up * lag,
                 recording = unique ? w->recording : 0.0;
    round.ns = (uint64_t)((measured(w, cost) + caught_up + recording) * PLAIN_NS);
    round.unique = unique;
    round.caught_up = (uint64_t)lag;
    round.catch_up_ns = (uint64_t)(caught_up * PLAIN_NS);
    w->probes += w->adapt.probing;
    w->at_zero += asked == 0;
    sb_adapt_learn(&w->adapt, w->rows, w->n, &round);
    w->rounds++;
    w->time += cost + caught_up;
    w->tokens += (double)round.committed / w->n;
    w->asked += (double)asked / w->n;
    for (int32_t b = 0; b < w->n; b++)
        if (w->seqs[b].n_tokens > PROMPT + LIFE)
            w->seqs[b] = (struct sb_seq){.n_tokens = PROMPT};
}

static void run(struct world *w, int rounds)
{
    w->time = w->tokens = w->asked = 0.0;
    w->rounds = w->at_zero = w->probes = 0;
    memset(w->row_asked, 0, sizeof w->row_asked);
    for (int i = 0; i < rounds; i++)
        one_round(w);
}

/* The best fixed length for rows of acceptance a; *rate: tokens in the time of a plain round. */
static int32_t best_length(const struct world *w, double a, double *rate)
{
    double tokens = 1.0, power = 1.0;
    int32_t best = 0;

    *rate = 1.0;
    for (int32_t k = 1; k <= w->k; k++) {
        power *= a;
        tokens += power;
        if (tokens / cost_of(w, k) > *rate) {
            *rate = tokens / cost_of(w, k);
            best = k;
        }
    }
    return best;
}

/* ------------------------------------------------------------------------ tests */

static const struct {
    int32_t n, k;
    double a, slope;
} cases[] = {{1, 5, 0.0, 0.1},    {1, 5, 0.4, 0.1},  {1, 8, 0.6, 0.1},  {1, 8, 0.8, 0.1},
             {1, 16, 0.9, 0.05},  {1, 5, 0.5, 0.6},  {4, 5, 0.3, 0.15}, {4, 8, 0.7, 0.15},
             {4, 8, 0.8, 0.5},    {8, 5, 0.75, 0.6}, {8, 5, 0.9, 0.3},  {8, 5, 0.3, 0.6},
             {8, 8, 0.8, 0.02},   {16, 8, 0.6, 0.2}, {64, 8, 0.5, 0.9}, {64, 8, 0.9, 0.4},
             {2, 64, 0.95, 0.02}, {200, 8, 0.8, 0.2}};

/* After 300 rounds the speed is that of the best fixed length, but for what measuring costs. */
static void test_finds_the_best_length(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int one_length = 0; one_length < 2; one_length++) {
            struct world *w = make_world(cases[i].n, cases[i].k, cases[i].a, cases[i].slope);
            double rate;
            const int32_t best = best_length(w, cases[i].a, &rate);
            w->uniform = one_length;
            start(w);
            run(w, 300);
            run(w, 4000);
            const double got = w->tokens / w->time, length = w->asked / (double)w->rounds;
            printf("     n %2d K %2d a %.2f slope %.2f %s: k %.2f of %d, %.3f times plain, best "
                   "%.3f\n",
                   w->n, w->k, cases[i].a, w->slope, one_length ? "uniform" : "each   ", length,
                   best, got, rate);
            if (got < (w->k > 16 ? 0.9 : 0.95) * rate)
                FAIL("%.3f of the best fixed length's speed", got / rate);
        }
}

/* With a draft that is always right and costs little, every row asks for all of K. */
static void test_a_perfect_draft_gets_all_of_k(void)
{
    static const int32_t lengths[] = {1, 5, 8, 64};

    for (size_t i = 0; i < 4; i++)
        for (int one_length = 0; one_length < 2; one_length++) {
            struct world *w = make_world(4, lengths[i], 1.0, 0.01);
            w->uniform = one_length;
            start(w);
            run(w, 100);
            run(w, 640);
            /* All but the plain rounds that are measured: one in 65. */
            CHECK_INT(w->at_zero, 10);
            CHECK(w->asked == 630.0 * lengths[i]);
        }
}

/* From the sixth proposal a row on each costs ten times as much, as where arithmetic becomes the
 * limit: rows stop at five. */
static void test_stops_where_the_cost_bends(void)
{
    struct world *w = make_world(4, 16, 0.9, 0.5);
    double rate;

    w->knee = 5.0;
    const int32_t best = best_length(w, 0.9, &rate);
    start(w);
    run(w, 300);
    run(w, 4000);
    printf("     k %.2f of %d, %.3f times plain, best %.3f\n", w->asked / (double)w->rounds, best,
           w->tokens / w->time, rate);
    CHECK_INT(best, 5);
    CHECK(w->tokens / w->time > 0.9 * rate);
}

static void set_acceptance(struct world *w, double a)
{
    for (int32_t b = 0; b < MAX_ROWS; b++)
        w->a[b] = a;
}

/* When acceptance falls to nothing, speculation is given up within 32 rounds; when it rises again,
 * it is taken up within 300. */
static void test_follows_acceptance(void)
{
    static const struct {
        int32_t n;
        double slope;
    } places[] = {{1, 0.1}, {1, 0.02}, {4, 0.15}, {8, 0.3}, {16, 0.3}};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int one_length = 0; one_length < 2; one_length++) {
            struct world *w = make_world(places[i].n, 5, 0.9, places[i].slope);
            double kept, taken_up;
            w->uniform = one_length;
            w->catch_up = 0.005;
            start(w);
            run(w, 1000);
            set_acceptance(w, 0.0);
            run(w, 32);
            run(w, 1000);
            kept = w->tokens / w->time;
            set_acceptance(w, 0.9);
            run(w, 300);
            run(w, 64);
            taken_up = w->asked / (double)w->rounds;
            printf(
                "     n %2d slope %.2f %s: %.3f times plain when wrong, k %.2f when right again\n",
                w->n, w->slope, one_length ? "uniform" : "each   ", kept, taken_up);
            CHECK(kept > 0.95);
            CHECK(taken_up > 3.0);
        }
}

static void check_rows_differ(int32_t n, double slope)
{
    struct world *w = make_world(n, 5, 0.0, slope);
    double good = 0.0, bad = 0.0, common = 1.0, tokens = 1.0, power = 1.0;

    for (int32_t b = 0; b < n; b += 2)
        w->a[b] = 0.95;
    for (int32_t k = 1; k <= 5; k++) {
        power *= 0.95;
        tokens += 0.5 * power;
        common = fmax(common, tokens / cost_of(w, k));
    }
    start(w);
    run(w, 300);
    run(w, 4000);
    for (int32_t b = 0; b < n; b++)
        *(w->a[b] > 0.0 ? &good : &bad) += w->row_asked[b] / (0.5 * n * (double)w->rounds);
    printf("     n %3d: k %.2f where it pays, %.2f where not; %.3f times plain, one length for all "
           "%.3f\n",
           n, good, bad, w->tokens / w->time, common);
    CHECK(good > 2.5 && bad < 0.3);
    CHECK(w->tokens / w->time > 1.05 * common);
}

/* Half of the requests are easy and half are hopeless: each row gets its own length, which is
 * faster than any one length for all. */
static void test_rows_differ(void)
{
    check_rows_differ(8, 0.6);
    check_rows_differ(150, 0.3); /* more rows than thresholds are compared for */
}

/* Where the backend records, all rounds that are no measurements have one of the few uniform
 * lengths. */
static void test_few_shapes(void)
{
    static const int32_t few[] = {0, 1, 2, 3, 5, 7, 10, 14, 16};
    struct world *w = make_world(4, 16, 0.85, 0.1);
    int changes = 0, last = -1;

    w->uniform = 1;
    w->noise = 0.1;
    start(w);
    for (int i = 0; i < 3000; i++) {
        int known = w->k == 0;
        run(w, 1);
        if (w->adapt.probing)
            continue;
        for (size_t f = 0; f < sizeof few / sizeof *few; f++)
            known |= w->rows[0].n_draft == few[f];
        CHECK(known);
        for (int32_t b = 1; b < w->n; b++)
            CHECK_INT(w->rows[b].n_draft, w->rows[0].n_draft);
        changes += i > 300 && w->rows[0].n_draft != last;
        last = w->rows[0].n_draft;
    }
    printf("     %d changes of length in 2700 noisy rounds\n", changes);
    CHECK(changes < 270);
}

/* Whatever it has learned, a row never asks for more than it may; and where adaptation is switched
 * off, nothing is lowered. */
static void test_limits_are_limits(void)
{
    for (int on = 0; on < 2; on++) {
        struct world *w = make_world(MAX_ROWS, 8, 0.5, 0.1);
        w->uniform = 1;
        w->catch_up = 1.0;
        start(w);
        w->adapt.draft_len = on ? 8 : 0;
        for (int i = 0; i < 3000; i++) {
            const int32_t n = (int32_t)(trace_random(&w->random) % (MAX_ROWS + 1));
            struct sb_adapt_round round = {.mixed = (int32_t)(trace_random(&w->random) % 2),
                                           .unique = (int32_t)(trace_random(&w->random) % 4 == 0),
                                           .committed = (uint64_t)n,
                                           .ns = trace_random(&w->random) >>
                                                 (trace_random(&w->random) % 64),
                                           .caught_up = trace_random(&w->random) % 50};
            int32_t may[MAX_ROWS];
            for (int32_t b = 0; b < n; b++) {
                may[b] = (int32_t)(trace_random(&w->random) % 9);
                w->rows[b] = (struct sb_round_row){.seq = &w->seqs[b], .n_draft = may[b]};
            }
            sb_adapt_choose(&w->adapt, w->rows, n, round.mixed);
            for (int32_t b = 0; b < n; b++) {
                CHECK(w->rows[b].n_draft >= 0 && w->rows[b].n_draft <= may[b]);
                CHECK(on || w->rows[b].n_draft == may[b]);
                w->rows[b].n_draft = (int32_t)(trace_random(&w->random) %
                                               (uint64_t)(w->rows[b].n_draft + 1));
                w->rows[b].n_accept = (int32_t)(trace_random(&w->random) %
                                                (uint64_t)(w->rows[b].n_draft + 1));
            }
            round.catch_up_ns = round.ns >> trace_random(&w->random) % 8;
            sb_adapt_learn(&w->adapt, w->rows, n, &round);
        }
        CHECK(isfinite(w->adapt.budget));
    }
}

/* Starts the world and runs it. Returns the speed in units of plain decoding's. */
static double share_of_plain(struct world *w, int rounds)
{
    start(w);
    run(w, rounds);
    return w->tokens / w->time;
}

/* That holds over the first thousand rounds, in which everything has yet to be learned. */
static void test_never_loses_more_than_5_percent(void)
{
    static const double slopes[] = {0.02, 0.1, 0.3, 0.6, 2.0}, catch_ups[] = {0.0, 0.002, 0.02};
    static const double acceptances[] = {0.0, 0.1, 0.5};
    static const int32_t rows[] = {1, 2, 8, 64};
    double worst[3] = {1.0, 1.0, 1.0};

    for (int i = 0; i < 5 * 3 * 4 * 3 * 4; i++) {
        struct world *w = make_world(rows[i / 4 % 4], 5, acceptances[i / 16 % 3],
                                     slopes[i / 48 % 5]);
        w->catch_up = catch_ups[i / 240];
        w->uniform = i % 2;
        w->noise = i / 2 % 2 ? 0.1 : 0.0;
        const double share = share_of_plain(w, 1000);
        worst[i / 16 % 3] = fmin(worst[i / 16 % 3], share);
        if (share < 0.95)
            FAIL("n %d a %.1f slope %.2f catch-up %.3f uniform %d noise %.1f: %.3f of plain", w->n,
                 w->a[0], w->slope, w->catch_up, w->uniform, w->noise, share);
    }
    printf("     worst: %.3f of plain at a = 0, %.3f at 0.1, %.3f at 0.5\n", worst[0], worst[1],
           worst[2]);
}

/* Ways in which a busy machine makes measured times longer. In every second stretch of so many
 * rounds it is slower by the factor `slow`. */
static const struct busy {
    const char *what;
    double noise, outliers, interrupts, slow;
    int32_t stretch;
} busy[] = {{"5 in 100 rounds are outliers", 0.1, 0.05, 0.0, 1.0, 3000},
            {"10 in 100 rounds are outliers", 0.1, 0.1, 0.0, 1.0, 3000},
            {"20 in 100 rounds are outliers", 0.1, 0.2, 0.0, 1.0, 3000},
            {"interrupts, 1 in 10 plain rounds", 0.3, 0.0, 0.1, 1.0, 3000},
            {"half the speed for 1000 rounds", 0.1, 0.05, 0.0, 2.0, 1000},
            {"twice the speed for 1000 rounds", 0.1, 0.05, 0.0, 0.5, 1000},
            {"half the speed for 200 rounds", 0.1, 0.05, 0.0, 2.0, 200}};

/* The speed of 3000 rounds, the first included, as a share of the best fixed length's. */
static double share_of_best(struct world *w, const struct busy *how, double best)
{
    double time = 0.0, tokens = 0.0;

    w->noise = how->noise;
    w->outliers = how->outliers;
    w->interrupts = how->interrupts;
    start(w);
    for (int32_t i = 0; i < 3000 / how->stretch; i++) {
        w->slow = i % 2 ? how->slow : 1.0;
        run(w, how->stretch);
        time += w->time;
        tokens += w->tokens;
    }
    return tokens / time / best;
}

/* Times that a busy machine has lengthened are not believed: what is chosen is hardly slower than
 * the best fixed length, or than plain decoding where nothing is faster. */
static void test_a_busy_machine(void)
{
    for (size_t m = 0; m < sizeof busy / sizeof *busy; m++) {
        double worst[2] = {1.0, 1.0}; /* where speculation pays, and where plain decoding is best */
        for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
            struct world *w = make_world(cases[i / 2].n, cases[i / 2].k, cases[i / 2].a,
                                         cases[i / 2].slope);
            double rate, share;
            const int plain = best_length(w, cases[i / 2].a, &rate) == 0;
            w->uniform = i % 2;
            share = share_of_best(w, &busy[m], rate);
            worst[plain] = fmin(worst[plain], share);
            if (share < (plain ? 0.95 : w->k > 16 ? 0.85 : 0.9))
                FAIL("%s: n %d K %d a %.2f slope %.2f uniform %d: %.3f of the best fixed length",
                     busy[m].what, w->n, w->k, cases[i / 2].a, w->slope, w->uniform, share);
        }
        printf("     %-32s  worst: %.3f of the best length, %.3f of plain\n", busy[m].what,
               worst[0], worst[1]);
    }
}

/* Recording a shape takes as long as thirty plain rounds, twice. That is paid once a shape, so it
 * must not count against a length: apart from what recording takes, rounds are as fast as where
 * nothing is recorded. */
static void test_what_is_recorded_is_not_a_cost(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double speed[2];
        for (int records = 0; records < 2; records++) {
            struct world *w = make_world(cases[i].n, cases[i].k, cases[i].a, cases[i].slope);
            w->uniform = 1;
            w->records = records;
            w->recording = 30.0;
            start(w);
            run(w, 400);
            speed[records] = w->tokens / w->time; /* time leaves recording out */
        }
        printf("     n %2d K %2d a %.2f slope %.2f: %.3f times plain, recorded %.3f\n", cases[i].n,
               cases[i].k, cases[i].a, cases[i].slope, speed[0], speed[1]);
        if (speed[1] < 0.95 * speed[0])
            FAIL("%.3f of the speed that there is without recording", speed[1] / speed[0]);
    }
}

/* A device without memory for recordings replays no round. Then the times of rounds that are not
 * replayed are what rounds cost. */
static void test_a_device_that_never_replays_is_measured(void)
{
    struct world *w = make_world(4, 8, 0.7, 0.15);
    double rate;

    best_length(w, 0.7, &rate);
    w->uniform = w->records = 1;
    w->replays = REPLAY_NONE;
    start(w);
    run(w, 300);
    run(w, 2000);
    printf("     %.3f times plain, best %.3f\n", w->tokens / w->time, rate);
    CHECK(w->tokens / w->time > 0.95 * rate);
}

/* A device that replays plain rounds only, since the others are too large to be recorded: that must
 * not make speculation look cheap. The cost of the first six such rounds is never learned; it is
 * less than 5 % of two thousand. */
static void test_rounds_that_are_never_replayed_are_paid_for(void)
{
    for (double slope = 0.25; slope < 2.5; slope *= 2.0) {
        struct world *w = make_world(4, 8, 0.5, slope);
        double rate;
        best_length(w, 0.5, &rate);
        w->uniform = w->records = 1;
        w->replays = REPLAY_PLAIN;
        start(w);
        run(w, 2000);
        printf("     slope %.2f: %.3f times plain, best %.3f\n", slope, w->tokens / w->time, rate);
        if (w->tokens / w->time < 0.95 * rate)
            FAIL("%.3f of the best fixed length's speed", w->tokens / w->time / rate);
    }
}

/* Requests come and go so fast that recordings are dropped before they are replayed: plain rounds
 * stay rare all the same. */
static void test_changing_numbers_of_rows(void)
{
    struct world *w = make_world(128, 8, 0.8, 0.05);

    w->uniform = w->records = 1;
    start(w);
    run(w, 0);
    for (int i = 0; i < 6000; i++) {
        if (i == 1000)
            run(w, 0);
        w->n = 8 + (int32_t)(trace_random(&w->random) % 121);
        one_round(w);
    }
    printf("     %" PRId64 " of %" PRId64 " rounds are plain\n", w->at_zero, w->rounds);
    CHECK(w->at_zero * 20 < w->rounds);
}

TEST_BEGIN
RUN(test_finds_the_best_length);
RUN(test_a_perfect_draft_gets_all_of_k);
RUN(test_stops_where_the_cost_bends);
RUN(test_follows_acceptance);
RUN(test_rows_differ);
RUN(test_few_shapes);
RUN(test_limits_are_limits);
RUN(test_a_busy_machine);
RUN(test_what_is_recorded_is_not_a_cost);
RUN(test_a_device_that_never_replays_is_measured);
RUN(test_rounds_that_are_never_replayed_are_paid_for);
RUN(test_changing_numbers_of_rows);
RUN(test_never_loses_more_than_5_percent);
TEST_END
