/*
 * The scheduler's choices against a naive walk. After random admissions, fillings, rounds and
 * cancellations, what residents.c keeps incrementally is compared with what one finds by looking at
 * every resident. exspec's rounds in a real pool are compared with those that a walk over its whole
 * window forms. That walk could share a mistake with the policy; so the properties that exspec's
 * rule is there for are checked too: full rounds, a bound on waiting, and no realignment of a row
 * that is in place.
 *
 * The naive side keeps its own list by age: an array in which a row that has run goes to the end.
 */
#include "sbtest.h"
#include "pool/pool.h"
#include "sched/policies.h"
#include "support/drafts.h"
#include "support/pool_check.h"
#include "support/trace.h"

#define MODELS "test/data/models/"

enum { N_SLOTS = 60, MAX_COLUMN = 90, MAX_WINDOW = 192, MAX_REQUESTS = 400 };

static struct sb_seq *by_age[MAX_WINDOW]; /* oldest first */
static int n_by_age;

static int below(uint64_t *random, int n)
{
    return (int)(trace_random(random) % (uint64_t)n);
}

static void naive_remove(const struct sb_seq *seq)
{
    int i = 0;

    while (by_age[i] != seq)
        i++;
    memmove(&by_age[i], &by_age[i + 1], (size_t)(--n_by_age - i) * sizeof(struct sb_seq *));
}

static void naive_append(struct sb_seq *seq)
{
    by_age[n_by_age++] = seq;
}

static int naive_n_ready(void)
{
    int n = 0;

    for (int i = 0; i < n_by_age; i++)
        n += sb_seq_is_ready(by_age[i]);
    return n;
}

static int column(const struct sb_seq *seq)
{
    return seq->start + seq->n_tokens;
}

/* Ready rows that end in the column. */
static int naive_count(int32_t end)
{
    int n = 0;

    for (int i = 0; i < n_by_age; i++)
        n += sb_seq_is_ready(by_age[i]) && column(by_age[i]) == end;
    return n;
}

/* The lowest column from `from` on in which at least n ready rows end, or -1. */
static int naive_lowest(int32_t from, int n)
{
    int lowest = -1;

    for (int i = 0; i < n_by_age; i++) {
        const int end = column(by_age[i]);
        if (sb_seq_is_ready(by_age[i]) && end >= from && (lowest < 0 || end < lowest) &&
            naive_count(end) >= n)
            lowest = end;
    }
    return lowest;
}

/* --------------------------------------------------------------- residents */

static int list_differs(const struct sb_residents *r, enum sb_list list)
{
    int32_t at = sb_oldest(r, list);

    for (int i = 0; i < n_by_age; i++) {
        if (list != SB_ALL && sb_seq_is_ready(by_age[i]) != (list == SB_READY))
            continue;
        if (at < 0 || r->seq[at] != by_age[i])
            return 1;
        at = sb_next(r, list, at);
    }
    return at >= 0;
}

static int alike_differs(const struct sb_residents *r, int32_t end)
{
    int32_t at = sb_oldest_alike(r, end);

    for (int i = 0; i < n_by_age; i++)
        if (sb_seq_is_ready(by_age[i]) && column(by_age[i]) == end) {
            if (at < 0 || r->seq[at] != by_age[i])
                return 1;
            at = sb_next_alike(r, at);
        }
    return at >= 0;
}

/* The first thing in which the residents differ from the naive list; NULL when everything agrees.
 */
static const char *difference(const struct sb_residents *r, int batch, uint64_t *random)
{
    if (r->n != n_by_age || list_differs(r, SB_ALL))
        return "residents by age";
    if (sb_residents_n_ready(r) != naive_n_ready() || list_differs(r, SB_READY))
        return "ready rows by age";
    if (list_differs(r, SB_FILLING))
        return "filling rows by age";
    if (r->n_columns == 0)
        return NULL;
    for (int32_t end = 0; end <= MAX_COLUMN; end++)
        if (alike_differs(r, end))
            return "ready rows of a column";
    for (int i = 0; i < 8; i++) {
        const int32_t from = i == 0 ? 0 : below(random, MAX_COLUMN + 2),
                      n = i < 2 ? batch : 1 + below(random, batch);
        if (sb_residents_lowest(r, from, n) != naive_lowest(from, n))
            return "lowest columns";
    }
    return NULL;
}

struct crowd {
    struct sb_residents residents;
    struct sb_seq seqs[N_SLOTS];
    int32_t spread; /* columns that newcomers end in */
    uint64_t random;
};

static void admit(struct crowd *c)
{
    for (int32_t slot = 0; slot < N_SLOTS; slot++)
        if (c->seqs[slot].slot < 0) {
            const int32_t n = 1 + below(&c->random, c->spread), start = below(&c->random, 3);
            c->seqs[slot] = (struct sb_seq){.slot = slot, .n_tokens = n, .start = start};
            if (below(&c->random, 3) == 0)
                c->seqs[slot].kv_len = n - 1;
            naive_append(&c->seqs[slot]);
            sb_residents_add(&c->residents, &c->seqs[slot]);
            return;
        }
}

static void leave(struct crowd *c, struct sb_seq *seq)
{
    sb_residents_remove(&c->residents, seq);
    naive_remove(seq);
    seq->slot = -1;
}

/* Some of the oldest filling rows become ready, as after a round with prompt chunks. They are
 * reported oldest first. */
static void fill(struct crowd *c)
{
    struct sb_seq *done[N_SLOTS];
    int reach = 1 + below(&c->random, 12), n = 0;

    for (int i = 0; i < n_by_age && reach > 0; i++)
        if (!sb_seq_is_ready(by_age[i])) {
            reach--;
            if (below(&c->random, 2))
                done[n++] = by_age[i];
        }
    for (int i = 0; i < n; i++)
        done[i]->kv_len = done[i]->n_tokens - 1;
    for (int i = 0; i < n; i++)
        sb_residents_filled(&c->residents, done[i]);
}

/* Up to a batch of ready rows, one column's or the oldest, run: some are realigned, and all grow.
 */
static void run(struct crowd *c, int batch)
{
    struct sb_seq *rows[N_SLOTS];
    const int32_t end = below(&c->random, 4) ? naive_lowest(0, 1 + below(&c->random, batch)) : -1;
    int n = 0;

    for (int i = 0; i < n_by_age && n < batch; i++)
        if (sb_seq_is_ready(by_age[i]) && (end < 0 || column(by_age[i]) == end))
            rows[n++] = by_age[i];
    for (int i = 0; i < n; i++) {
        if (below(&c->random, 3) == 0)
            rows[i]->start = below(&c->random, MAX_COLUMN - 3 - rows[i]->n_tokens);
        rows[i]->n_tokens += 1 + below(&c->random, 3);
        rows[i]->kv_len = rows[i]->n_tokens - 1;
        naive_remove(rows[i]);
        naive_append(rows[i]);
        sb_residents_ran(&c->residents, rows[i]);
    }
    for (int i = 0; i < n; i++)
        if (column(rows[i]) > MAX_COLUMN - 4)
            leave(c, rows[i]);
}

/* One crowd from its first admission until nobody is left. */
static const char *live(struct crowd *c, int batch)
{
    const char *why = NULL;

    for (int event = 0; !why && (event < 400 || n_by_age > 0); event++) {
        const int what = below(&c->random, 10);
        if (what < 4 && event < 400)
            admit(c);
        else if (what < 6)
            fill(c);
        else if (what < 9)
            run(c, batch);
        else if (n_by_age > 0)
            leave(c, by_age[below(&c->random, n_by_age)]);
        why = difference(&c->residents, batch, &c->random);
    }
    return why;
}

static void test_residents_are_what_a_walk_finds(void)
{
    const struct sb_mem mem = {NULL, NULL, NULL};

    for (uint64_t seed = 0; seed < 120; seed++) {
        struct crowd c = {.random = seed};
        const int batch = 1 + below(&c.random, 12);
        const char *why;
        c.spread = seed % 2 ? 4 : 40;
        for (int i = 0; i < N_SLOTS; i++)
            c.seqs[i].slot = -1;
        n_by_age = 0;
        CHECK_OK(
            sb_residents_create(&c.residents, &mem, N_SLOTS, seed % 8 ? MAX_COLUMN + 1 : 0, batch));
        why = live(&c, batch);
        sb_residents_free(&c.residents);
        if (why)
            FAIL("%s differ, seed %" PRIu64, why, seed);
    }
}

/* ------------------------------------------------------------------ exspec */

static struct {
    const struct sb_policy *policy;  /* the real one */
    struct sb_seq *rows[MAX_WINDOW]; /* that the walk takes into the round being formed */
    int n_rows;
    int meeting;                  /* the column in which they shall end */
    int last;                     /* the last column in which they may end */
    int ended[MAX_WINDOW];        /* by slot: the column in which a row ended before the round */
    int waited[MAX_REQUESTS + 1]; /* by id: rounds that took others while it was ready */
    const char *wrong;            /* the first expectation that did not hold */
    /* Rounds: of one group; that leave a full column for a starved row's sake; in which the lowest
     * full column is beyond `last`. */
    int n_groups, n_starved, n_tight;
    int n_realigned, n_stayed; /* rows of rounds with realignment: realigned, and in place */
    int lap_from, lap_start;   /* the first column of the old lap, 0: none; where the new one starts
                                */
    int n_laps, n_started_over; /* laps; rounds that start over after the first of their lap */
} spy;

static void expect(int holds, const char *what)
{
    if (!holds && !spy.wrong)
        spy.wrong = what;
}

/* Brings the naive list up to date: residents of the last round that have no slot any more have
 * left, and new ones were admitted in the order of their ids. */
static void follow_residents(const struct sb_sched *s)
{
    const struct sb_residents *all = &s->residents;

    for (int i = n_by_age; i-- > 0;)
        if (by_age[i]->slot < 0)
            naive_remove(by_age[i]);
    for (uint64_t newest = 0; n_by_age < all->n;) {
        struct sb_seq *next = NULL;
        for (int i = 0; i < n_by_age; i++)
            newest = by_age[i]->id > newest ? by_age[i]->id : newest;
        for (int32_t at = sb_oldest(all, SB_ALL); at >= 0; at = sb_next(all, SB_ALL, at))
            if (all->seq[at]->id > newest && (!next || all->seq[at]->id < next->id))
                next = all->seq[at];
        naive_append(next);
    }
}

/* Takes the row into the round unless it is there already. */
static void naive_take(struct sb_seq *seq)
{
    for (int i = 0; i < spy.n_rows; i++)
        if (spy.rows[i] == seq)
            return;
    spy.rows[spy.n_rows++] = seq;
}

/* Of the columns in which all of the round's rows can end, the one in which most of them do; the
 * next from `first` on if there are several. If no row ends in such a column, the rows start over.
 */
static int naive_meeting(int draft_len, int first)
{
    int longest = 0, best = -1, n_best = 0;

    for (int i = 0; i < spy.n_rows; i++)
        longest = spy.rows[i]->n_tokens > longest ? spy.rows[i]->n_tokens : longest;
    for (int at = 0, end = first <= spy.last ? first : 0; at <= spy.last;
         at++, end = (end + 1) % (spy.last + 1)) {
        int n = 0;
        if (end < longest)
            continue;
        for (int i = 0; i < spy.n_rows; i++)
            n += column(spy.rows[i]) == end;
        if (n > n_best) {
            best = end;
            n_best = n;
        }
    }
    if (best >= 0)
        return best;
    /* The first round that starts over chooses the column. Its rows that end beyond what a row can
     * reach from there tell where the old lap begins. */
    if (spy.lap_from > 0) {
        spy.n_started_over++;
        return longest > spy.lap_start ? longest : spy.lap_start;
    }
    spy.lap_start = longest;
    for (int i = 0; i < spy.n_rows; i++)
        if (column(spy.rows[i]) > longest + draft_len + 1 &&
            (spy.lap_from == 0 || column(spy.rows[i]) < spy.lap_from))
            spy.lap_from = column(spy.rows[i]);
    spy.n_laps += spy.lap_from > 0;
    return longest;
}

/* Forms a round by exspec's rule, walking over all residents. */
static void naive_form(const struct sb_sched *s)
{
    const int batch = s->limits.batch, n_ready = naive_n_ready();
    const uint64_t rotation = (uint64_t)((n_ready + batch - 1) / batch);
    struct sb_seq *oldest = NULL;
    int starved, group, full, first;

    if (naive_lowest(spy.lap_from, 1) < 0)
        spy.lap_from = 0;
    full = naive_lowest(spy.lap_from, batch);
    for (int i = n_by_age; i-- > 0;)
        if (sb_seq_is_ready(by_age[i]))
            oldest = by_age[i];
    starved = oldest && s->n_rounds - oldest->last_round > 4 * rotation;
    group = full >= 0 && full <= spy.last && (!starved || column(oldest) == full);
    spy.n_starved += starved && full >= 0 && full <= spy.last && !group;
    spy.n_tight += full > spy.last;
    spy.n_groups += group;
    spy.n_rows = 0;
    if (starved)
        naive_take(oldest);
    first = group ? full : spy.lap_from;
    for (int at = 0, n = s->residents.n_columns, end = first; at < n; at++, end = (end + 1) % n)
        for (int i = 0; i < n_by_age && spy.n_rows < batch; i++)
            if (sb_seq_is_ready(by_age[i]) && column(by_age[i]) == end)
                naive_take(by_age[i]);
    spy.meeting = naive_meeting(s->limits.draft_len, first);
}

/* 1 + the column that the round realigns the sequence to, 0 if it does not. */
static int realigned_to(const struct sb_sched *s, const struct sb_seq *seq)
{
    for (int32_t i = 0; i < s->realignment.n; i++)
        if (s->realignment.seq[i] == seq)
            return 1 + s->realignment.to[i].column;
    return 0;
}

/* Checks what must hold of a round whatever rule formed it, and what was counted of it. */
static void check_round(const struct sb_sched *s)
{
    const int n_ready = naive_n_ready(), batch = s->limits.batch,
              n = s->round->n_rows - s->round->n_newcomers;
    int n_stay = 0;

    expect(n == (n_ready < batch ? n_ready : batch), "a place is empty");
    expect(s->realignment.n <= n, "another row is realigned");
    for (int32_t b = 0; b < n; b++) {
        const struct sb_seq *seq = s->round->rows[b].seq;
        const int shifted = realigned_to(s, seq), start = shifted ? shifted - 1 : seq->start;
        expect(start + seq->n_tokens == spy.meeting, "a row does not meet the others");
        expect(start >= 0 && spy.meeting <= spy.last, "a row does not fit where the round meets");
        expect(!shifted || spy.ended[seq->slot] != spy.meeting, "a row in place is realigned");
        n_stay += !shifted;
    }
    expect(s->n_grouped == (n_stay >= 2 ? n_stay : 0), "rows are miscounted as grouped");
    expect(s->n_mixed == (s->realignment.n > 0 ? n : 0), "rows are miscounted as mixed");
    spy.n_realigned += s->realignment.n;
    spy.n_stayed += s->realignment.n > 0 ? n_stay : 0;
}

static void spy_form(struct sb_sched *s)
{
    int n;

    follow_residents(s);
    for (int i = 0; i < n_by_age; i++)
        spy.ended[by_age[i]->slot] = column(by_age[i]);
    spy.last = sb_slot_columns(&s->slots.sizes, s->common) - s->limits.draft_len;
    naive_form(s);
    spy.policy->form(s);
    n = s->round->n_rows - s->round->n_newcomers;
    expect(n == spy.n_rows, "a round has more or fewer rows");
    for (int i = 0; i < spy.n_rows; i++) {
        int found = 0;
        for (int32_t b = 0; b < n; b++)
            found += s->round->rows[b].seq == spy.rows[i];
        expect(found == 1, "a round has other rows");
    }
    check_round(s);
}

/* After a round its rows are the newest, and no ready row may have waited beyond the bound. Of one
 * that was broken off those are that were realigned. */
static void note_round(const struct specbatch_pool *pool, int broken_off)
{
    const int batch = pool->sched.limits.batch, n_slots = pool->sched.limits.n_slots;
    const int patience = 4 * ((n_slots + batch - 1) / batch) + n_slots;

    for (int i = 0; i < n_by_age; i++)
        if (!broken_off && sb_seq_is_ready(by_age[i]) && ++spy.waited[by_age[i]->id] > patience)
            expect(0, "a row waits for too long");
    for (int b = 0; b < pool->round.n_rows - (broken_off ? pool->round.n_newcomers : 0); b++) {
        struct sb_seq *seq = pool->round.rows[b].seq;
        if (broken_off && column(seq) == spy.ended[seq->slot])
            continue;
        spy.waited[seq->id] = 0;
        naive_remove(seq);
        naive_append(seq);
    }
}

/* A draft whose proposals are nearly never right, and which now and then fails. */
static int32_t fickle(void *user, specbatch_draft_row *const *rows, size_t n_rows)
{
    for (size_t b = 0; b < n_rows; b++) {
        rows[b]->n_out = rows[b]->k;
        for (int32_t i = 0; i < rows[b]->k; i++)
            rows[b]->out[i] = below(user, 500);
    }
    return below(user, 40) ? 0 : -1;
}

static int submit(specbatch_pool *pool, uint64_t *random, int max_new)
{
    int32_t ids[16];
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = ids;
    request.n_ids = (size_t)(below(random, 3) ? 1 + below(random, 4) : 1 + below(random, 16));
    for (size_t i = 0; i < request.n_ids; i++)
        ids[i] = below(random, 500);
    request.max_new = 1 + below(random, max_new);
    request.draft_len = below(random, 4);
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    return specbatch_pool_submit(pool, &request, NULL);
}

/* Runs random requests through a pool whose policy is the spied one. Results are not collected,
 * since the sequences of finished requests are still looked at. */
static int32_t watch(specbatch_pool *pool, uint64_t *random, uint64_t n_requests, int max_new)
{
    struct sb_policy spied = *pool->sched.policy;
    const int batch = pool->sched.limits.batch;
    uint64_t n = 0;
    size_t active = 1;
    int32_t rc = SPECBATCH_OK;

    n_by_age = spy.lap_from = 0;
    memset(spy.waited, 0, sizeof spy.waited);
    spy.policy = pool->sched.policy;
    spied.form = spy_form;
    pool->sched.policy = &spied;
    while ((rc == SPECBATCH_OK || rc == SPECBATCH_E_CANCELLED) && (active > 0 || n < n_requests)) {
        for (int i = below(random, 2 * batch + 4); i > 0 && n < n_requests; i--, n++)
            if (submit(pool, random, max_new) != SPECBATCH_OK)
                return SPECBATCH_E_INTERNAL;
        if (n > 0 && below(random, 6) == 0)
            (void)specbatch_pool_cancel(pool, 1 + (uint64_t)below(random, (int)n));
        rc = specbatch_pool_step(pool, &active);
        note_round(pool, rc != SPECBATCH_OK);
        if (pool_check(pool) != SPECBATCH_OK)
            return SPECBATCH_E_INTERNAL;
    }
    pool->sched.policy = spy.policy;
    return rc;
}

static void test_exspec_forms_the_rounds_of_a_walk(void)
{
    static const int32_t batches[] = {1, 2, 3, 4, 6, 8, 16, 32};
    specbatch_model *target = NULL, *draft = NULL;

    CHECK_OK(specbatch_model_open(&target, MODELS "qwen3_untied_f32_sharded", NULL));
    CHECK_OK(specbatch_model_open(&draft, MODELS "qwen3_untied_f32_sharded.draft", NULL));
    for (uint64_t seed = 0; seed < 24; seed++) {
        specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
        specbatch_pool *pool = NULL;
        uint64_t random = seed;
        /* Many requests in a full window, and slots with room beside the longest of them: laps.
         * Otherwise padding meets the end of the slots soon. */
        const int is_long = seed % 3 == 0, max_new = is_long ? 52 : 26;
        options.policy = SPECBATCH_POLICY_EXSPEC;
        options.batch = batches[seed % 8];
        options.window = is_long ? 6 * options.batch
                                 : options.batch + below(&random, 5 * options.batch + 1);
        options.draft_len = 4;
        options.flags = SPECBATCH_POOL_FIXED_K;
        options.max_len = 16 + max_new + (is_long ? 24 : 0);
        options.prefill_chunk = options.batch < 8 ? 8 : 32;
        if (seed % 4 > 0) /* slots for the whole window, or few that grow as longer ones come */
            options.cache_columns = (uint64_t)options.window * (uint64_t)(options.max_len + 16);
        options.n_threads = 1;
        const specbatch_draft_ops ops = only_propose(fickle, &random);
        CHECK_OK(seed % 16 < 8 ? create_with_model(&pool, target, draft, &options)
                               : create_with_ops(&pool, target, &ops, &options));
        CHECK_OK(
            watch(pool, &random, is_long ? MAX_REQUESTS : 60 + (uint64_t)options.window, max_new));
        specbatch_pool_free(pool);
        if (spy.wrong)
            FAIL("%s, seed %" PRIu64 ", batch %" PRId32, spy.wrong, seed, options.batch);
    }
    specbatch_model_close(draft);
    specbatch_model_close(target);
    CHECK(spy.n_groups > 100 && spy.n_realigned > 100 && spy.n_stayed > 100 && spy.n_starved > 0 &&
          spy.n_tight > 0 && spy.n_laps > 10 && spy.n_started_over > 5);
}

TEST_BEGIN
RUN(test_residents_are_what_a_walk_finds);
RUN(test_exspec_forms_the_rounds_of_a_walk);
TEST_END
