/*
 * Sampling on the CPU: the noise against published vectors and the C library, tokens against a
 * second implementation that sorts (support/sample_reference.h), the choices of many positions
 * against the distribution that they are to have, and every SIMD level against the first.
 */
#define SB_LEVEL_SCALAR 1
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/noise.h"

#include "support/cpu_ways.h"
#include "support/sample_reference.h"

#include "port.h"
#include "sbtest.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { LARGE = 151936 }; /* ids of a usual vocabulary */

static const struct sb_backend *cpu;

static const struct sb_sampler plain = {.seed = 1,
                                        .temperature = 1.0f,
                                        .top_p = 1.0f,
                                        .typical_p = 1.0f,
                                        .repetition = 1.0f,
                                        .n_tokens = 1,
                                        .mask_at = -1};

/* ------------------------------------------------------------------ noise */

/* The vectors that Random123 publishes for philox4x32 with 10 rounds. */
static void test_philox_vectors(void)
{
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t result[4];
    } known[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         UINT64_C(0x299f31d0a4093822),
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (int i = 0; i < COUNT(known); i++) {
        uint32_t c[4];
        memcpy(c, known[i].counter, sizeof c);
        sb_philox(c, known[i].key, 1);
        CHECK_MEM(c, known[i].result, sizeof c);
        for (int w = 0; w < 4; w++)
            CHECK_INT(sample_reference_philox(known[i].key, known[i].counter, w),
                      known[i].result[w]);
    }
}

/* Which word of which counter an id has. */
static void test_noise_words(void)
{
    static const int32_t firsts[] = {0, 64, 1 << 20, 151936 - 64, INT32_MAX - 63};
    const uint64_t seed = UINT64_C(0x123456789abcdef0);

    for (int i = 0; i < COUNT(firsts); i++) {
        uint32_t x[SB_NOISE_BLOCK];
        sb_noise_words(x, seed, 77, firsts[i]);
        for (int k = 0; k < SB_NOISE_BLOCK; k++) {
            const uint32_t id = (uint32_t)firsts[i] + (uint32_t)k, counter[4] = {77, id / 4, 0, 0};
            CHECK_INT(x[k], sample_reference_philox(seed, counter, (int)(id % 4)));
        }
    }
}

/* Within one unit in the last place of the C library's logarithm, itself good to half of one. */
static void test_log(void)
{
    for (int i = 0; i < 2000000; i++) {
        const double v = ((double)cpu_random() + 0.5) * 0x1p-32, x = i % 2 ? v : -log(v);
        const double got = sb_log_double(x), expected = log(x);
        if (!(fabs(got - expected) <= nextafter(fabs(expected), INFINITY) - fabs(expected)))
            FAIL("log of %a is %a, expected %a", x, got, expected);
    }
    CHECK(sb_log_double(1.0) == 0.0);
}

/* No noise is above its bound, which is tightest at powers of two: the least number with so many
 * leading zeros has the largest noise. */
static void test_noise_bounds(void)
{
    uint32_t x[SB_NOISE_BLOCK];
    float bounds[SB_NOISE_BLOCK];

    CHECK(fabs(sb_noise(0) - 33 * log(2.0)) < 2e-6);
    CHECK(fabs(sb_noise(UINT32_MAX) + log(33 * log(2.0))) < 1e-6);
    for (int i = 0; i < 20000; i++) {
        for (int k = 0; k < SB_NOISE_BLOCK; k++)
            x[k] = i == 0 ? (k < 32 ? UINT32_C(1) << k : (UINT32_C(1) << (k - 32)) - 1)
                          : cpu_random() >> k % 32;
        sb_noise_bounds(bounds, x);
        for (int k = 0; k < SB_NOISE_BLOCK; k++) {
            const float noise = sb_noise(x[k]);
            if (!(noise > -3.2f && noise <= bounds[k] && noise <= SB_NOISE_MAX))
                FAIL("the noise of %08x is %a, its bound %a", x[k], (double)noise,
                     (double)bounds[k]);
            /* and the bound is of use: not more than a factor of two above it, but for the
             * smallest */
            CHECK(x[k] < 256 || bounds[k] <= -logf((float)x[k] * 0x1p-32f) + 0.7f);
        }
    }
}

/* ------------------------------------------------------------------ single rows */

/* A round of one row with one sampler, whose position is that after `n_before` proposals. */
struct one {
    struct sb_sampler sampler;
    int32_t out, id_at[1], pos[1], tokens[16];
    struct sb_samplers all;
};

static void one_init(struct one *one, const struct sb_sampler *sampler, int32_t n_before)
{
    *one = (struct one){.sampler = *sampler};
    one->id_at[0] = n_before;
    one->pos[0] = sampler->n_tokens - 1 + n_before;
    one->all = (struct sb_samplers){.rows = &one->sampler,
                                    .row_stride = COUNT(one->tokens),
                                    .tokens = one->tokens,
                                    .id_at = one->id_at,
                                    .pos = one->pos,
                                    .out = &one->out};
}

/* Whether a log-probability is right. Besides its own roundings, it has those of sixteen sums of
 * n / 16 powers. */
static int is_logprob(float logprob, double expected, int32_t n)
{
    return fabs(logprob - expected) <= 3e-6 + 3e-7 * fabs(expected) + n / 16 * 0x1p-24;
}

/* What all ways choose for a row of n logits, which is left as it is. Checks that they agree with
 * each other and with the reference. */
static void check_one(int32_t *id, struct cpu *ways, int n_ways, const float *logits, int32_t n,
                      const struct one *one)
{
    const size_t bytes = (size_t)n * sizeof(float);
    float *row = cpu_memory(bytes), first_logprob = 0.0f, first_margin = 0.0f;
    double expected_logprob;
    const int32_t at = 0,
                  expected = sample_reference(&expected_logprob, NULL, logits, n, &one->all, 0);

    for (int w = 0; w < n_ways; w++) {
        float logprob = 0.0f, margin = 0.0f;
        memcpy(row, logits, bytes);
        cpu->select(ways[w].exec,
                    &(struct sb_select){1, n, n, row, &at, id, &logprob, &margin, &one->all});
        if (w == 0) {
            first_logprob = logprob;
            first_margin = margin;
        }
        CHECK_INT(*id, expected);
        CHECK(cpu_first_difference(&logprob, &first_logprob, 1) < 0);
        CHECK(cpu_first_difference(&margin, &first_margin, 1) < 0);
    }
    if (isfinite(expected_logprob) && !is_logprob(first_logprob, expected_logprob, n))
        FAIL("log-probability %.9g, expected %.9g", (double)first_logprob, expected_logprob);
    free(row);
}

/* What has no noise is chosen by noise alone, and equal values by the lowest id. */
static void test_equal_logits(void)
{
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    float *logits = cpu_floats(LARGE), *noise = cpu_memory(LARGE * sizeof *noise);
    uint32_t *mask = cpu_memory((LARGE + 31) / 32 * sizeof *mask);
    struct one one;
    int32_t id, best = 0, n_ties = 0;

    for (int32_t i = 0; i < LARGE; i++) {
        const uint32_t counter[4] = {1, (uint32_t)i / 4, 0, 0};
        logits[i] = 2.5f;
        noise[i] = sb_noise(sample_reference_philox(plain.seed, counter, i % 4));
        best = noise[i] > noise[best] ? i : best;
    }
    one_init(&one, &plain, 0);
    check_one(&id, ways, n_ways, logits, LARGE, &one);
    CHECK_INT(id, best);

    /* two ids of the same noise, and no others */
    one.sampler.mask_at = 0;
    one.all.masks = mask;
    for (int32_t i = 0; i < LARGE && n_ties < 20; i++)
        for (int32_t k = i + 1; k < LARGE && k < i + 40000; k++)
            if (noise[i] == noise[k] && noise[i] > 0.5f) {
                memset(mask, 0, (LARGE + 31) / 32 * sizeof *mask);
                mask[i / 32] |= UINT32_C(1) << i % 32;
                mask[k / 32] |= UINT32_C(1) << k % 32;
                check_one(&id, ways, n_ways, logits, LARGE, &one);
                CHECK_INT(id, i);
                n_ties++;
                i += 500;
                break;
            }
    CHECK(n_ties == 20);
    free(logits);
    free(noise);
    free(mask);
    cpu_close(ways, n_ways);
}

static void test_special_values(void)
{
    enum { N = 70 };
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    float logits[N];
    uint32_t mask[3] = {0, 0, 0};
    struct one one;
    int32_t id, at = 0;

    one_init(&one, &plain, 0);
    one.all.masks = mask;
    one.all.mask_words = 3;
    for (int i = 0; i < N; i++)
        logits[i] = (float)i;
    /* nothing is allowed: by the mask, or since all are -infinity; also where the largest would be
     * chosen */
    for (int greedy = 0; greedy < 2; greedy++) {
        one.sampler.temperature = greedy ? 0.0f : 1.0f;
        one.sampler.mask_at = 0;
        check_one(&id, ways, n_ways, logits, N, &one);
        CHECK_INT(id, SB_PICK_NONE);
        mask[1] = 8;
        check_one(&id, ways, n_ways, logits, N, &one);
        CHECK_INT(id, 35);
        mask[1] = 0;
    }
    one.sampler = plain;
    one.sampler.top_k = 3;
    for (int i = 0; i < N; i++)
        logits[i] = -INFINITY;
    check_one(&id, ways, n_ways, logits, N, &one);
    CHECK_INT(id, SB_PICK_NONE);
    logits[66] = -3e38f;
    check_one(&id, ways, n_ways, logits, N, &one);
    CHECK_INT(id, 66);
    /* infinities count as the largest float */
    logits[5] = logits[7] = INFINITY;
    for (one.pos[0] = 0; one.pos[0] < 40; one.pos[0]++) {
        check_one(&id, ways, n_ways, logits, N, &one);
        CHECK(id == 5 || id == 7);
    }
    one.sampler.temperature = 0.0f;
    check_one(&id, ways, n_ways, logits, N, &one);
    CHECK_INT(id, 5);
    /* a temperature so small or large that logits divided by it are infinite or 0 */
    for (int i = 0; i < N; i++)
        logits[i] = i == 33 ? 1001.0f : 1000.0f;
    one.sampler = plain;
    one.sampler.temperature = 1.2e-38f;
    check_one(&id, ways, n_ways, logits, N, &one);
    CHECK_INT(id, 33);
    logits[0] = -INFINITY;
    one.sampler.temperature = 3e38f;
    for (one.pos[0] = 0; one.pos[0] < 40; one.pos[0]++) {
        check_one(&id, ways, n_ways, logits, N, &one);
        CHECK(id > 0);
    }
    logits[69] = NAN;
    for (int w = 0; w < n_ways; w++) {
        float logprob = 0.0f;
        cpu->select(ways[w].exec,
                    &(struct sb_select){1, N, N, logits, &at, &id, &logprob, NULL, &one.all});
        CHECK_INT(id, SB_PICK_NAN);
        CHECK(isnan(logprob));
    }
    cpu_close(ways, n_ways);
}

/* ------------------------------------------------------------------ rounds */

/* A round of several rows, each with up to PLACES - 1 proposals, all of them sampled for. */
enum { ROWS = 5, PLACES = 4, OUT = ROWS * PLACES, STRIDE = 203, WORDS = 7, LISTED = 30 };

struct round {
    struct sb_sampler rows[ROWS];
    int32_t lists[ROWS * 100], n_lists;
    uint32_t masks[ROWS * PLACES * WORDS];
    int32_t tokens[OUT], id_at[OUT], pos[OUT], out[OUT], at[OUT];
    struct sb_samplers all;
    float logits[OUT * STRIDE];
    int32_t limit;
};

static int32_t below(int32_t n)
{
    return (int32_t)(cpu_random() % (uint32_t)n);
}
static int one_in(int32_t n)
{
    return below(n) == 0;
}

/* A share: often one that is met exactly, or by the first. */
static float random_share(void)
{
    static const float shares[] = {0.0f, 0.25f, 0.5f, 0.75f, 0.999f, 1e-9f};
    return one_in(3) ? shares[below(COUNT(shares))] : (cpu_uniform() + 1.0f) / 2.0f;
}

static void list(struct round *round, int32_t value)
{
    round->lists[round->n_lists++] = value;
}

/* Fills in the lists of a sampler. Few ids occur, often twice, and some are outside of the
 * vocabulary. */
static void add_lists(struct round *round, struct sb_sampler *r)
{
    r->listed_at = round->n_lists;
    for (int32_t i = 0; i < r->n_listed; i++)
        list(round, below(12) - 1);
    r->bias_at = round->n_lists;
    for (int32_t i = 0; i < r->n_bias; i++)
        list(round, one_in(5) ? STRIDE + i : below(20));
    for (int32_t i = 0; i < r->n_bias; i++) {
        const float bias = cpu_uniform() * 5.0f;
        memcpy(&round->lists[round->n_lists++], &bias, sizeof bias);
    }
    r->bans_at = round->n_lists;
    for (int32_t i = 0; i < r->n_bans; i++)
        list(round, below(25) - 2);
}

static void random_sampler(struct round *round, struct sb_sampler *r)
{
    *r = plain;
    r->seed = (uint64_t)cpu_random() << 32 | cpu_random();
    r->temperature = one_in(6) ? 0.0f : one_in(3) ? 1.0f : 0.2f + cpu_uniform() * 0.15f;
    r->top_k = one_in(2) ? 0 : 1 + below(round->limit + 3);
    r->top_p = one_in(2) ? 1.0f : random_share();
    r->typical_p = one_in(2) ? 1.0f : random_share();
    r->min_p = one_in(2) ? 0.0f : random_share();
    r->n_tokens = 1 + below(LISTED);
    r->n_prompt = below(r->n_tokens + 1);
    r->spares_prompt = below(2);
    r->is_greedy = one_in(10);
    if (one_in(2)) {
        r->window = below(LISTED);
        r->n_listed = r->window < r->n_tokens ? r->window : r->n_tokens;
        r->n_listed += below(r->n_tokens - r->n_listed + 1);
        r->repetition = one_in(3) ? 1.0f : 1.5f + cpu_uniform();
        r->frequency = one_in(3) ? 0.0f : cpu_uniform();
        r->presence = one_in(3) ? 0.0f : cpu_uniform();
    }
    r->n_bias = one_in(2) ? 0 : below(6);
    r->n_bans = one_in(2) ? 0 : below(6);
    r->ban_before = r->n_tokens + below(PLACES + 1);
    add_lists(round, r);
}

static void random_round(struct round *round, int32_t limit)
{
    const int is_tied = one_in(2);

    round->limit = limit;
    round->n_lists = 0;
    round->all = (struct sb_samplers){.rows = round->rows,
                                      .lists = round->lists,
                                      .masks = round->masks,
                                      .mask_words = WORDS,
                                      .row_stride = PLACES,
                                      .tokens = round->tokens,
                                      .id_at = round->id_at,
                                      .pos = round->pos,
                                      .out = round->out};
    for (int i = 0; i < COUNT(round->masks); i++)
        round->masks[i] = one_in(4) ? UINT32_MAX : cpu_random() | cpu_random();
    for (int b = 0; b < ROWS; b++) {
        random_sampler(round, &round->rows[b]);
        round->rows[b].mask_at = one_in(3) ? b * PLACES * WORDS : -1;
    }
    for (int i = 0; i < OUT; i++) {
        round->tokens[i] = below(12) - 1;
        round->out[i] = (i * 7 + 3) % OUT; /* logits in another order than tokens, */
        round->id_at[i] = (i + 5) % OUT;   /* and tokens in another than places */
        round->pos[i] = round->rows[round->id_at[i] / PLACES].n_tokens - 1 +
                        round->id_at[i] % PLACES;
        round->at[i] = (i * 3 + 1) % OUT;
    }
    for (int i = 0; i < OUT * STRIDE; i++) {
        round->logits[i] = cpu_uniform() * 6.0f;
        if (is_tied)
            round->logits[i] = floorf(round->logits[i]);
        if (one_in(40))
            round->logits[i] = -INFINITY;
        if (i % STRIDE >= limit)
            round->logits[i] = i % 2 ? NAN : 1e9f;
    }
}

/* One way, over all rows of a round at once or row by row. */
static void run_round(const struct round *round, struct cpu *way, int is_split, int32_t ids[OUT],
                      float logprob[OUT], float margin[OUT])
{
    static float logits[OUT * STRIDE];

    memcpy(logits, round->logits, sizeof logits);
    for (int i = 0; i < (is_split ? OUT : 1); i++) {
        struct sb_samplers all = round->all;
        all.out += i;
        cpu->select(way->exec, &(struct sb_select){is_split ? 1 : OUT, STRIDE, round->limit,
                                                   logits + i * STRIDE, round->at + i, ids, logprob,
                                                   margin, &all});
    }
    for (int i = 0; i < OUT * STRIDE; i++)
        if (i % STRIDE >= round->limit)
            CHECK_MEM(&logits[i], &round->logits[i], sizeof *logits);
}

/* Random samplers with everything in force, on few logits and with many ties. */
static void test_rounds(void)
{
    static const int32_t limits[] = {1, 2, 15, 16, 17, 64, 65, 130, STRIDE};
    static struct round round;
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    int32_t ids[OUT], first_ids[OUT];
    float logprob[OUT], margin[OUT], first_logprob[OUT], first_margin[OUT];

    for (int turn = 0; turn < 600; turn++) {
        random_round(&round, limits[turn % COUNT(limits)]);
        for (int w = 0; w < n_ways && !sbtest_failed_now; w++) {
            run_round(&round, &ways[w], turn % 4 == 3, w == 0 ? first_ids : ids,
                      w == 0 ? first_logprob : logprob, w == 0 ? first_margin : margin);
            if (w == 0)
                continue;
            CHECK_MEM(ids, first_ids, sizeof ids);
            CHECK(cpu_first_difference(logprob, first_logprob, OUT) < 0);
            CHECK(cpu_first_difference(margin, first_margin, OUT) < 0);
        }
        for (int i = 0; i < OUT; i++) {
            double expected;
            const int32_t at = round.at[i];
            CHECK_INT(first_ids[at], sample_reference(&expected, NULL, round.logits + i * STRIDE,
                                                      round.limit, &round.all, i));
            if (isfinite(expected))
                CHECK(is_logprob(first_logprob[at], expected, round.limit));
        }
    }
    cpu_close(ways, n_ways);
}

/* A position after n proposals is sampled as it is when these tokens are committed ones, and no
 * later proposal matters. */
static void test_proposals_are_the_prefix(void)
{
    enum { N = 40 };
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    struct sb_sampler sampler = plain;
    int32_t tokens[LISTED], id, expected = 0;
    struct one one;

    sampler.repetition = 1.3f;
    sampler.frequency = 0.7f;
    sampler.presence = 0.4f;
    sampler.n_prompt = 9;
    sampler.window = 11; /* begins in the prompt, and slides out of it */
    for (int turn = 0; turn < 200; turn++) {
        const int32_t n_before = turn % 8, n_tokens = 8 + below(LISTED - 8 - n_before);
        float *logits = cpu_floats(N);
        sampler.seed = cpu_random();
        sampler.spares_prompt = turn / 8 % 2;
        for (int i = 0; i < LISTED; i++)
            tokens[i] = below(10);
        for (int is_late = 0; is_late < 2; is_late++) {
            sampler.n_tokens = is_late ? n_tokens + n_before : n_tokens;
            sampler.n_listed = sampler.n_tokens;
            one_init(&one, &sampler, is_late ? 0 : n_before);
            one.all.lists = tokens;
            for (int i = 0; i < COUNT(one.tokens); i++)
                one.tokens[i] = i > 0 && i <= n_before ? tokens[n_tokens + i - 1] : below(N);
            CHECK_INT(one.pos[0], n_tokens + n_before - 1);
            check_one(&id, ways, n_ways, logits, N, &one);
            expected = is_late ? expected : id;
            CHECK_INT(id, expected);
        }
        free(logits);
    }
    cpu_close(ways, n_ways);
}

/* The filters on a large vocabulary, with and without ties. */
static void test_large_filters(void)
{
    static const struct sb_sampler filters[] = {
        {.top_k = 50, .top_p = 1.0f, .typical_p = 1.0f},
        {.top_k = 100000, .top_p = 0.9f, .typical_p = 1.0f},
        {.top_p = 0.95f, .typical_p = 1.0f},
        {.top_p = 1.0f, .typical_p = 0.9f},
        {.top_p = 1.0f, .typical_p = 1.0f, .min_p = 0.05f},
        {.top_k = 40000, .top_p = 0.99f, .typical_p = 0.8f, .min_p = 0.5f}};
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    struct one one;
    int32_t id;

    for (int turn = 0; turn < 2 * COUNT(filters) && !sbtest_failed_now; turn++) {
        float *logits = cpu_floats(LARGE);
        struct sb_sampler sampler = filters[turn % COUNT(filters)];
        sampler.seed = (uint64_t)turn << 33;
        sampler.temperature = turn % 3 ? 1.0f : 0.8f;
        sampler.n_tokens = 1;
        sampler.mask_at = -1;
        for (int i = 0; i < LARGE; i++) {
            logits[i] *= 10.0f;
            if (turn < COUNT(filters))
                logits[i] = rintf(logits[i]);
        }
        one_init(&one, &sampler, 0);
        check_one(&id, ways, n_ways, logits, LARGE, &one);
        free(logits);
    }
    cpu_close(ways, n_ways);
}

/* ------------------------------------------------------------------ distributions */

/* The value that chi-square with so many degrees of freedom exceeds once in 10^4 (Wilson and
 * Hilferty's approximation). The seeds are fixed, so a test that passes does so always. */
static double chi_square_limit(int freedom)
{
    const double part = 2.0 / (9.0 * freedom), root = 1.0 - part + 3.719 * sqrt(part);
    return freedom * root * root * root;
}

/* Compares counts, of `total` draws, with probabilities: by chi-square, and by the total variation,
 * which is to be at most twice what is to be expected of draws at random. */
static void check_counts(const int32_t *counts, const double *p, int n, int32_t total,
                         const char *what)
{
    double chi = 0.0, variation = 0.0, expected_variation = 0.0;
    int freedom = -1;

    for (int i = 0; i < n; i++) {
        const double expected = p[i] * total;
        if (p[i] == 0.0 && counts[i] > 0)
            FAIL("%s: %d draws of what has no probability", what, (int)counts[i]);
        if (p[i] == 0.0)
            continue;
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        freedom++;
        variation += fabs(counts[i] - expected) / total / 2.0;
        expected_variation += sqrt(p[i] * (1.0 - p[i]) / (2.0 * 3.14159265 * total));
    }
    if (freedom > 0 && !(chi < chi_square_limit(freedom)))
        FAIL("%s: chi-square is %.1f with %d degrees of freedom", what, chi, freedom);
    if (!(variation <= 2.0 * expected_variation))
        FAIL("%s: total variation %.5f, expected %.5f", what, variation, expected_variation);
}

/* The token for each of n positions from `first` on, of which all have the same logits. */
static void draw(int32_t *ids, const struct sb_sampler *sampler, struct cpu *way,
                 const float *logits, int32_t n_ids, int32_t first, int32_t n)
{
    float *row = cpu_memory((size_t)n_ids * sizeof *row);
    struct one one;

    one_init(&one, sampler, 0);
    for (int32_t i = 0; i < n; i++) {
        one.pos[0] = first + i;
        memcpy(row, logits, (size_t)n_ids * sizeof *row);
        cpu->select(way->exec,
                    &(struct sb_select){1, n_ids, n_ids, row, &i, ids, NULL, NULL, &one.all});
    }
    free(row);
}

/* The probabilities of ids after the filters: those of the weights that are left. */
static void exact(double *p, const float *logits, int32_t n, const struct sb_sampler *sampler)
{
    struct sample_left left = {0};
    struct one one;
    double ignored, sum = 0.0;

    one_init(&one, sampler, 0);
    (void)sample_reference(&ignored, &left, logits, n, &one.all, 0);
    for (int32_t i = 0; i < n; i++)
        p[i] = 0.0;
    for (int32_t i = 0; i < left.n; i++)
        sum += p[left.ids[i]] = exp(-(double)left.depth[left.ids[i]]);
    for (int32_t i = 0; i < n; i++)
        p[i] /= sum;
    sample_left_free(&left);
}

static void test_small_distributions(void)
{
    enum { N = 12, DRAWS = 200000 };
    static const float logits[N] = {1.0f, -0.5f, 0.3f, 2.1f, -1.7f, 0.0f,
                                    1.5f, 0.9f,  2.0f, 0.9f, -3.0f, -6.0f};
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    int32_t *ids = cpu_memory(DRAWS * sizeof *ids);
    double p[N];

    for (int turn = 0; turn < 8 && !sbtest_failed_now; turn++) {
        struct sb_sampler sampler = plain;
        int32_t counts[N] = {0};
        char what[20];
        sampler.seed = UINT64_C(0x9876543210) + (uint64_t)turn;
        sampler.temperature = turn == 1 ? 0.6f : turn == 2 ? 2.5f : 1.0f;
        sampler.top_k = turn == 3 ? 5 : turn == 7 ? 8 : 0;
        sampler.top_p = turn == 4 || turn == 7 ? 0.8f : 1.0f;
        sampler.typical_p = turn == 5 ? 0.6f : 1.0f;
        sampler.min_p = turn == 6 ? 0.2f : 0.0f;
        exact(p, logits, N, &sampler);
        draw(ids, &sampler, &ways[n_ways - 1], logits, N, 1000 * turn, DRAWS);
        for (int i = 0; i < DRAWS; i++)
            counts[ids[i]]++;
        snprintf(what, sizeof what, "sampler %d", turn);
        check_counts(counts, p, N, DRAWS, what);
    }
    free(ids);
    cpu_close(ways, n_ways);
}

/* Neighbouring positions, and neighbouring seeds, choose independently of each other. */
static void test_pairs_are_independent(void)
{
    enum { N = 5, DRAWS = 100000 };
    static const float logits[N] = {0.0f, 0.7f, -0.4f, 0.2f, -1.0f};
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    int32_t *ids = cpu_memory(2 * DRAWS * sizeof *ids), by_position[N * N] = {0},
            by_seed[N * N] = {0};
    double p[N], pairs[N * N];
    struct sb_sampler next = plain;

    next.seed = plain.seed + 1;
    exact(p, logits, N, &plain);
    draw(ids, &plain, &ways[n_ways - 1], logits, N, 0, 2 * DRAWS);
    for (int i = 0; i < DRAWS; i++)
        by_position[ids[2 * i] * N + ids[2 * i + 1]]++;
    draw(ids + DRAWS, &next, &ways[n_ways - 1], logits, N, 0, DRAWS);
    for (int i = 0; i < DRAWS; i++)
        by_seed[ids[i] * N + ids[DRAWS + i]]++;
    for (int i = 0; i < N * N; i++)
        pairs[i] = p[i / N] * p[i % N];
    check_counts(by_position, pairs, N * N, DRAWS, "positions");
    check_counts(by_seed, pairs, N * N, DRAWS, "seeds");
    free(ids);
    cpu_close(ways, n_ways);
}

static const float *sorted_by; /* the logits that `by_logit` compares */

static int by_logit(const void *a, const void *b)
{
    const float x = sorted_by[*(const int32_t *)a], y = sorted_by[*(const int32_t *)b];
    return x > y ? -1 : x < y;
}

/* On a large vocabulary: its ids in buckets of about the same probability, once by their numbers
 * and once by their logits. */
static void test_large_distribution(void)
{
    enum { BUCKETS = 40, DRAWS = 4000 };
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    float *logits = cpu_floats(LARGE);
    int32_t *ids = cpu_memory(DRAWS * sizeof *ids), *order = cpu_memory(LARGE * sizeof *order),
            *bucket = cpu_memory(LARGE * sizeof *bucket);
    double *p = cpu_memory(LARGE * sizeof *p);

    for (int i = 0; i < LARGE; i++) {
        logits[i] = (logits[i] + cpu_uniform() + cpu_uniform() + cpu_uniform()) * 4.0f;
        order[i] = i;
    }
    exact(p, logits, LARGE, &plain);
    draw(ids, &plain, &ways[n_ways - 1], logits, LARGE, 0, DRAWS);
    for (int by_rank = 0; by_rank < 2; by_rank++) {
        int32_t counts[BUCKETS] = {0};
        double in_bucket[BUCKETS] = {0}, before = 0.0;
        sorted_by = logits;
        if (by_rank)
            qsort(order, LARGE, sizeof *order, by_logit);
        for (int i = 0; i < LARGE; i++) {
            const int b = (int)fmin(before * BUCKETS, BUCKETS - 1);
            bucket[order[i]] = b;
            in_bucket[b] += p[order[i]];
            before += p[order[i]];
        }
        for (int i = 0; i < DRAWS; i++)
            counts[bucket[ids[i]]]++;
        check_counts(counts, in_bucket, BUCKETS, DRAWS, by_rank ? "by logit" : "by number");
    }
    free(logits);
    free(ids);
    free(order);
    free(bucket);
    free(p);
    cpu_close(ways, n_ways);
}

TEST_BEGIN
struct sb_fp_env env;
cpu = sb_backend_cpu();
sb_port_fp_enter(&env);
RUN(test_philox_vectors);
RUN(test_noise_words);
RUN(test_log);
RUN(test_noise_bounds);
RUN(test_equal_logits);
RUN(test_special_values);
RUN(test_rounds);
RUN(test_proposals_are_the_prefix);
RUN(test_large_filters);
RUN(test_small_distributions);
RUN(test_pairs_are_independent);
RUN(test_large_distribution);
sb_port_fp_leave(&env);
TEST_END
