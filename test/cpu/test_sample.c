/*
 * Sampling on the CPU: the noise against published vectors and the C library, tokens against a
 * second implementation that sorts (support/sample_reference.h), the choices of many positions
 * against the distribution that they are to have, and every SIMD level against the first.
 */
#define SB_LEVEL_SCALAR 1
#include "kernels/cpu/kernels.h"

#include "support/sample_cases.h"

#include "port.h"
#include "sbtest.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { LARGE = 151936 }; /* ids of a usual vocabulary */

static const struct sb_backend *cpu;

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

/* Whether a log-probability is right. Besides its own roundings, it has those of sixteen sums of
 * n / 16 powers. */
static int is_logprob(float logprob, double expected, int32_t n)
{
    return fabs(logprob - expected) <= 3e-6 + 3e-7 * fabs(expected) + n / 16 * 0x1p-24;
}

/* What all ways choose for a row of n logits, which is left as it is. Checks that they agree with
 * each other and with the reference. */
static void check_one(int32_t *id, struct cpu *ways, int n_ways, const float *logits, int32_t n,
                      const struct sample_one *one)
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
                    &(struct sb_select){1, n, n, row, &at, id, &logprob, &margin, &one->all, NULL});
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

/* All ways of the CPU, as the cases ask for a choice. A row with a NaN has no reference. */
static int32_t choose(float *logits, int32_t n, const struct sample_one *one, int64_t lists,
                      int64_t masks)
{
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    int32_t id = 0, at = 0, n_nan = 0, n_right = 0;

    (void)lists, (void)masks;
    for (int32_t i = 0; i < n; i++)
        n_nan += isnan(logits[i]) != 0;
    if (n_nan == 0)
        check_one(&id, ways, n_ways, logits, n, one);
    for (int w = 0; w < n_ways && n_nan > 0; w++) {
        float logprob = 0.0f;
        cpu->select(ways[w].exec, &(struct sb_select){1, n, n, logits, &at, &id, &logprob, NULL,
                                                      &one->all, NULL});
        n_right += id == SB_PICK_NAN && isnan(logprob);
    }
    cpu_close(ways, n_ways);
    return n_nan == 0 || n_right == n_ways ? id : SB_PICK_NONE;
}

static void test_equal_values(void)
{
    sample_equal_values(choose, LARGE, 20);
}

static void test_special_values(void)
{
    sample_special_values(choose);
}

/* ------------------------------------------------------------------ rounds */

/* One way, over all rows of a round at once or row by row. */
static void run_round(const struct sample_round *round, struct cpu *way, int is_split,
                      int32_t ids[SAMPLE_OUT], float logprob[SAMPLE_OUT], float margin[SAMPLE_OUT])
{
    static float logits[SAMPLE_OUT * SAMPLE_STRIDE];

    memcpy(logits, round->logits, sizeof logits);
    for (int i = 0; i < (is_split ? SAMPLE_OUT : 1); i++) {
        struct sb_samplers all = round->all;
        all.out += i;
        cpu->select(way->exec,
                    &(struct sb_select){is_split ? 1 : SAMPLE_OUT, SAMPLE_STRIDE, round->limit,
                                        logits + i * SAMPLE_STRIDE, round->at + i, ids, logprob,
                                        margin, &all, NULL});
    }
    for (int i = 0; i < SAMPLE_OUT * SAMPLE_STRIDE; i++)
        if (i % SAMPLE_STRIDE >= round->limit)
            CHECK_MEM(&logits[i], &round->logits[i], sizeof *logits);
}

/* Random samplers with everything in force, on few logits and with many ties. */
static void test_rounds(void)
{
    static const int32_t limits[] = {1, 2, 15, 16, 17, 64, 65, 130, SAMPLE_STRIDE};
    static struct sample_round round;
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    int32_t ids[SAMPLE_OUT], first_ids[SAMPLE_OUT];
    float logprob[SAMPLE_OUT], margin[SAMPLE_OUT], first_logprob[SAMPLE_OUT],
        first_margin[SAMPLE_OUT];

    for (int turn = 0; turn < 600; turn++) {
        sample_round_draw(&round, limits[turn % COUNT(limits)]);
        for (int w = 0; w < n_ways && !sbtest_failed_now; w++) {
            run_round(&round, &ways[w], turn % 4 == 3, w == 0 ? first_ids : ids,
                      w == 0 ? first_logprob : logprob, w == 0 ? first_margin : margin);
            if (w == 0)
                continue;
            CHECK_MEM(ids, first_ids, sizeof ids);
            CHECK(cpu_first_difference(logprob, first_logprob, SAMPLE_OUT) < 0);
            CHECK(cpu_first_difference(margin, first_margin, SAMPLE_OUT) < 0);
        }
        for (int i = 0; i < SAMPLE_OUT; i++) {
            double expected;
            const int32_t at = round.at[i];
            CHECK_INT(first_ids[at],
                      sample_reference(&expected, NULL, round.logits + i * SAMPLE_STRIDE,
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
    struct sb_sampler sampler = sample_plain;
    int32_t tokens[SAMPLE_LISTED], id, expected = 0;
    struct sample_one one;

    sampler.repetition = 1.3f;
    sampler.frequency = 0.7f;
    sampler.presence = 0.4f;
    sampler.n_prompt = 9;
    sampler.window = 11; /* begins in the prompt, and slides out of it */
    for (int turn = 0; turn < 200; turn++) {
        const int32_t n_before = turn % 8,
                      n_tokens = 8 + sample_below(SAMPLE_LISTED - 8 - n_before);
        float *logits = cpu_floats(N);
        sampler.seed = cpu_random();
        sampler.spares_prompt = turn / 8 % 2;
        for (int i = 0; i < SAMPLE_LISTED; i++)
            tokens[i] = sample_below(10);
        for (int is_late = 0; is_late < 2; is_late++) {
            sampler.n_tokens = is_late ? n_tokens + n_before : n_tokens;
            sampler.n_listed = sampler.n_tokens;
            sample_one_init(&one, &sampler, is_late ? 0 : n_before);
            one.all.lists = tokens;
            for (int i = 0; i < COUNT(one.tokens); i++)
                one.tokens[i] = i > 0 && i <= n_before ? tokens[n_tokens + i - 1] : sample_below(N);
            CHECK_INT(one.pos[0], n_tokens + n_before - 1);
            check_one(&id, ways, n_ways, logits, N, &one);
            expected = is_late ? expected : id;
            CHECK_INT(id, expected);
        }
        free(logits);
    }
    cpu_close(ways, n_ways);
}

static void test_many_changes(void)
{
    sample_many_changes(choose, 20);
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
    struct sample_one one;
    int32_t id;

    for (int turn = 0; turn < 2 * COUNT(filters) && !sbtest_failed_now; turn++) {
        float *logits = cpu_floats(LARGE);
        struct sb_sampler sampler = filters[turn % COUNT(filters)];
        sampler.seed = (uint64_t)turn << 33;
        sampler.temperature = turn % 3 ? 1.0f : 0.8f;
        sampler.n_tokens = 1;
        sampler.greedy_from = INT32_MAX;
        sampler.mask_at = -1;
        for (int i = 0; i < LARGE; i++) {
            logits[i] *= 10.0f;
            if (turn < COUNT(filters))
                logits[i] = rintf(logits[i]);
        }
        sample_one_init(&one, &sampler, 0);
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
    struct sample_one one;

    sample_one_init(&one, sampler, 0);
    for (int32_t i = 0; i < n; i++) {
        one.pos[0] = first + i;
        memcpy(row, logits, (size_t)n_ids * sizeof *row);
        cpu->select(way->exec,
                    &(struct sb_select){1, n_ids, n_ids, row, &i, ids, NULL, NULL, &one.all, NULL});
    }
    free(row);
}

/* The probabilities of ids after the filters: those of the weights that are left. */
static void exact(double *p, const float *logits, int32_t n, const struct sb_sampler *sampler)
{
    struct sample_left left = {0};
    struct sample_one one;
    double ignored, sum = 0.0;

    sample_one_init(&one, sampler, 0);
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
        struct sb_sampler sampler = sample_plain;
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
    struct sb_sampler next = sample_plain;

    next.seed = sample_plain.seed + 1;
    exact(p, logits, N, &sample_plain);
    draw(ids, &sample_plain, &ways[n_ways - 1], logits, N, 0, 2 * DRAWS);
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
    exact(p, logits, LARGE, &sample_plain);
    draw(ids, &sample_plain, &ways[n_ways - 1], logits, LARGE, 0, DRAWS);
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
RUN(test_equal_values);
RUN(test_special_values);
RUN(test_rounds);
RUN(test_proposals_are_the_prefix);
RUN(test_many_changes);
RUN(test_large_filters);
RUN(test_small_distributions);
RUN(test_pairs_are_independent);
RUN(test_large_distribution);
sb_port_fp_leave(&env);
TEST_END
