/*
 * The scheduler's choices against a naive walk: what residents.c keeps incrementally is, after random
 * admissions, fillings, rounds and cancellations, what one finds by looking at every resident; and exspec's
 * rounds in a real pool are those that walking its whole window would form.
 *
 * The naive side keeps its own list by age, an array in which a row that runs is moved to the end.
 */
#include "sbtest.h"
#include "sched/pool.h"
#include "support/trace.h"

#define MODELS "test/data/models/"

enum { N_SLOTS = 60, MAX_LENGTH = 90 };

static struct sb_seq *by_age[N_SLOTS]; /* oldest first */
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

static int naive_count(int32_t length)
{
    int n = 0;

    for (int i = 0; i < n_by_age; i++)
        n += sb_seq_is_ready(by_age[i]) && (length == 0 || by_age[i]->n_tokens == length);
    return n;
}

/* The length of the first row in age order whose group none exceeds; more than a batch counts as a batch. */
static int32_t naive_group(int batch, int *size)
{
    int32_t length = 0;

    *size = 0;
    for (int i = 0; i < n_by_age; i++) {
        const int n = sb_seq_is_ready(by_age[i]) ? naive_count(by_age[i]->n_tokens) : 0;
        if ((n < batch ? n : batch) > *size) {
            *size = n < batch ? n : batch;
            length = by_age[i]->n_tokens;
        }
    }
    return length;
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

static int alike_differs(const struct sb_residents *r, int32_t length)
{
    int32_t at = sb_oldest_alike(r, length);

    for (int i = 0; i < n_by_age; i++)
        if (sb_seq_is_ready(by_age[i]) && by_age[i]->n_tokens == length) {
            if (at < 0 || r->seq[at] != by_age[i])
                return 1;
            at = sb_next_alike(r, at);
        }
    return at >= 0;
}

/* NULL when everything agrees. */
static const char *difference(struct sb_residents *r, int batch)
{
    int size;
    int32_t kept_size;
    const int32_t length = naive_group(batch, &size);

    if (r->n != n_by_age || list_differs(r, SB_ALL))
        return "residents by age";
    if (sb_residents_n_ready(r) != naive_count(0) || list_differs(r, SB_READY))
        return "ready rows by age";
    if (list_differs(r, SB_FILLING))
        return "filling rows by age";
    for (int32_t n = 1; r->n_lengths > 0 && n <= MAX_LENGTH; n++)
        if (alike_differs(r, n))
            return "ready rows of a length";
    if (r->n_lengths > 0 && (sb_residents_group(r, &kept_size) != length || kept_size != size))
        return "the largest group";
    return NULL;
}

struct crowd {
    struct sb_residents residents;
    struct sb_seq seqs[N_SLOTS];
    int32_t spread; /* lengths that prompts have */
    uint64_t random;
};

static void admit(struct crowd *c)
{
    for (int32_t slot = 0; slot < N_SLOTS; slot++)
        if (c->seqs[slot].slot < 0) {
            const int32_t n = 1 + below(&c->random, c->spread);
            c->seqs[slot] = (struct sb_seq){.slot = slot, .n_tokens = n};
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

/* Some of the oldest filling rows are done, as after a round with prompt chunks: told oldest first. */
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

/* Up to a batch of ready rows run, the largest group's or the oldest, and grow. */
static void run(struct crowd *c, int batch)
{
    struct sb_seq *rows[N_SLOTS];
    int n = 0, size;
    const int32_t length = below(&c->random, 4) ? naive_group(batch, &size) : 0;

    for (int i = 0; i < n_by_age && n < batch; i++)
        if (sb_seq_is_ready(by_age[i]) && (length == 0 || by_age[i]->n_tokens == length))
            rows[n++] = by_age[i];
    for (int i = 0; i < n; i++) {
        rows[i]->n_tokens += 1 + below(&c->random, 3);
        rows[i]->kv_len = rows[i]->n_tokens - 1;
        naive_remove(rows[i]);
        naive_append(rows[i]);
        sb_residents_ran(&c->residents, rows[i]);
    }
    for (int i = 0; i < n; i++)
        if (rows[i]->n_tokens > MAX_LENGTH - 4)
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
        why = difference(&c->residents, batch);
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
        CHECK_OK(sb_residents_create(&c.residents, &mem, N_SLOTS, seed % 8 ? MAX_LENGTH + 1 : 0, batch));
        why = live(&c, batch);
        sb_residents_free(&c.residents);
        if (why)
            FAIL("%s differ, seed %" PRIu64, why, seed);
    }
}

/* ------------------------------------------------------------------ exspec */

static struct {
    const struct sb_policy *policy; /* the real one */
    struct sb_seq *rows[N_SLOTS];   /* of the round being formed */
    int n_rows;
    int wrong, n_groups, n_mixed, n_starved;
} spy;

/* What was resident at the last round and is no longer has left; newcomers come in the order of their ids. */
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

/* exspec's rules, by walking. Returns whether the rows are a group. */
static int naive_form(const struct sb_sched *s)
{
    const int batch = s->limits.batch, n_ready = naive_count(0);
    const int places = n_ready < batch ? n_ready : batch, rotation = (n_ready + batch - 1) / batch;
    const struct sb_seq *oldest = NULL;
    int size, starved, group;
    const int32_t length = naive_group(batch, &size);

    for (int i = n_by_age; i-- > 0;)
        if (sb_seq_is_ready(by_age[i]))
            oldest = by_age[i];
    starved = oldest && s->n_rounds - oldest->last_round > 4u * (unsigned)rotation;
    spy.n_starved += starved && 2 * size >= places;
    group = 2 * size >= places && !starved;
    spy.n_rows = 0;
    for (int i = 0; i < n_by_age && spy.n_rows < batch; i++)
        if (sb_seq_is_ready(by_age[i]) && (!group || by_age[i]->n_tokens == length))
            spy.rows[spy.n_rows++] = by_age[i];
    return group;
}

static void spy_form(struct sb_sched *s)
{
    int group;

    follow_residents(s);
    group = naive_form(s);
    spy.policy->form(s);
    spy.wrong += s->round->n_rows - s->round->n_newcomers != spy.n_rows || s->n_mixed != (group ? 0 : spy.n_rows);
    for (int b = 0; b < spy.n_rows && b < s->round->n_rows; b++)
        spy.wrong += s->round->rows[b].seq != spy.rows[b];
    spy.n_groups += group && spy.n_rows > 0;
    spy.n_mixed += !group;
}

/* Proposals that are nearly never right; now and then the round is broken off. */
static int32_t fickle(void *user, uint64_t id, const int32_t *ids, size_t n, int32_t k, int32_t *out)
{
    (void)id, (void)ids, (void)n;
    for (int32_t i = 0; i < k; i++)
        out[i] = below(user, 500);
    return below(user, 40) ? k : -1;
}

static int submit(specbatch_pool *pool, uint64_t *random)
{
    int32_t ids[16];
    specbatch_request request = SPECBATCH_REQUEST_INIT;

    request.ids = ids;
    request.n_ids = (size_t)(below(random, 3) ? 1 + below(random, 4) : 1 + below(random, 16));
    for (size_t i = 0; i < request.n_ids; i++)
        ids[i] = below(random, 500);
    request.max_new = 1 + below(random, 30);
    request.draft_len = below(random, 4);
    request.flags = SPECBATCH_REQUEST_IGNORE_EOS;
    return specbatch_pool_submit(pool, &request, NULL);
}

/* A pool's life under the spy. Results are left with the pool: their sequences are looked at. */
static int32_t watch(specbatch_pool *pool, uint64_t *random)
{
    const struct sb_policy spied = {.name = "spy", .windowed = 1, .grouped = 1, .admits = sb_admit_always,
                                    .form = spy_form};
    uint64_t n = 0;
    size_t active = 1;
    int32_t rc = SPECBATCH_OK;

    n_by_age = 0;
    spy.policy = pool->sched.policy;
    pool->sched.policy = &spied;
    while ((rc == SPECBATCH_OK || rc == SPECBATCH_E_CANCELLED) && (active > 0 || n < 60)) {
        for (int i = below(random, 8); i > 0 && n < 60; i--, n++)
            if (submit(pool, random) != SPECBATCH_OK)
                return SPECBATCH_E_INTERNAL;
        if (n > 0 && below(random, 6) == 0)
            (void)specbatch_pool_cancel(pool, 1 + (uint64_t)below(random, (int)n));
        rc = specbatch_pool_step(pool, &active);
        for (int b = 0; rc == SPECBATCH_OK && b < pool->round.n_rows; b++) {
            naive_remove(pool->round.rows[b].seq);
            naive_append(pool->round.rows[b].seq);
        }
    }
    pool->sched.policy = spy.policy;
    return rc;
}

static void test_exspec_forms_the_rounds_of_a_walk(void)
{
    specbatch_model *target = NULL, *draft = NULL;

    CHECK_OK(specbatch_model_open(&target, MODELS "qwen3_untied_f32_sharded", NULL));
    CHECK_OK(specbatch_model_open(&draft, MODELS "qwen3_untied_f32_sharded.draft", NULL));
    for (uint64_t seed = 0; seed < 16; seed++) {
        specbatch_pool_options options = SPECBATCH_POOL_OPTIONS_INIT;
        specbatch_pool *pool = NULL;
        uint64_t random = seed;
        options.policy = SPECBATCH_POLICY_EXSPEC;
        options.batch = 1 + below(&random, 6);
        options.window = options.batch + below(&random, 4 * options.batch + 1);
        options.draft_len = 4;
        options.flags = SPECBATCH_POOL_FIXED_K;
        options.max_len = 64;
        options.prefill_chunk = 8;
        options.n_threads = 1;
        options.draft = seed % 2 ? fickle : NULL;
        options.draft_user = &random;
        CHECK_OK(specbatch_pool_create(&pool, target, seed % 2 ? NULL : draft, &options));
        CHECK_OK(watch(pool, &random));
        specbatch_pool_free(pool);
        if (spy.wrong)
            FAIL("a round of seed %" PRIu64 " has other rows", seed);
    }
    specbatch_model_close(draft);
    specbatch_model_close(target);
    CHECK(spy.n_groups > 100 && spy.n_mixed > 100 && spy.n_starved > 0);
}

TEST_BEGIN
RUN(test_residents_are_what_a_walk_finds);
RUN(test_exspec_forms_the_rounds_of_a_walk);
TEST_END
