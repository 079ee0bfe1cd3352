/*
 * Log-probabilities that are wanted beside the choice, on the CPU: of given ids, of the most
 * probable ones, and of what filters leave, against a second implementation that looks at all ids
 * for each, and every SIMD level and number of threads against the first.
 */
#include "support/cpu_ways.h"
#include "support/sample_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sbtest.h"

enum { M = 7, STRIDE = 1203, TOP = SB_TOP_MAX };

static const struct sb_backend *cpu;

/* Rows of logits, what is wanted of each, and what was told. Row r goes to the place at[r]. */
static struct {
    float logits[M * STRIDE];
    int32_t limit, at[M];
    struct sb_want wants[M];
    struct sb_sampler samplers[M];
    int32_t id_at[M], pos[M], out[M], tokens[M];
    struct sb_samplers all;
} rows;

struct told {
    int32_t ids[M], top_ids[M * TOP];
    float logprob[M], top_logprobs[M * TOP];
};

/* Few distinct values make ties. What lies beyond the limit is larger, or NaN. n_finite: how many
 * ids of a row are not -infinity. */
static void make_rows(int32_t limit, int32_t n_finite)
{
    rows.limit = limit;
    for (int r = 0; r < M; r++) {
        rows.at[r] = (r + 3) % M;
        rows.id_at[r] = rows.out[r] = r;
        rows.pos[r] = 5;
        for (int32_t i = 0; i < STRIDE; i++)
            rows.logits[r * STRIDE + i] = i >= limit ? (i % 2 ? NAN : 1e9f)
                                          : (i + r) % limit < n_finite
                                              ? floorf(cpu_uniform() * 20.0f) * 0.5f
                                              : -INFINITY;
        rows.samplers[r] = (struct sb_sampler){.top_p = 1.0f,
                                               .typical_p = 1.0f,
                                               .repetition = 1.0f,
                                               .n_tokens = 6,
                                               .mask_at = -1,
                                               .seed = (uint64_t)r};
        rows.wants[rows.at[r]] = (struct sb_want){.given = -1, .n_top = (r * 9 + 1) % (TOP + 1)};
    }
    rows.all = (struct sb_samplers){.rows = rows.samplers,
                                    .row_stride = 1,
                                    .tokens = rows.tokens,
                                    .id_at = rows.id_at,
                                    .pos = rows.pos,
                                    .out = rows.out};
}

static void tell(struct told *told, const struct cpu *way)
{
    static float logits[M * STRIDE];
    const struct sb_scores scores = {rows.wants, TOP, told->top_ids, told->top_logprobs};
    const struct sb_select args = {.m = M,
                                   .stride = STRIDE,
                                   .limit = rows.limit,
                                   .logits = logits,
                                   .at = rows.at,
                                   .ids = told->ids,
                                   .logprob = told->logprob,
                                   .samplers = &rows.all,
                                   .scores = &scores};

    memcpy(logits, rows.logits, sizeof logits);
    memset(told, 0x55, sizeof *told); /* what is not wanted is not written */
    cpu->select(way->exec, &args);
}

/* What is told in all ways, which agree. */
static void tell_all(struct told *told)
{
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    struct told other;

    tell(told, &ways[0]);
    for (int w = 1; w < n_ways; w++) {
        tell(&other, &ways[w]);
        CHECK_MEM(other.ids, told->ids, sizeof told->ids);
        CHECK_MEM(other.top_ids, told->top_ids, sizeof told->top_ids);
        CHECK(cpu_first_difference(other.logprob, told->logprob, M) < 0);
        CHECK(cpu_first_difference(other.top_logprobs, told->top_logprobs, M * TOP) < 0);
    }
    cpu_close(ways, n_ways);
}

static int is_near(float got, double expected)
{
    if (isinf(expected))
        return (double)got == expected;
    return fabs(got - expected) <= 4e-6 + 4e-7 * fabs(expected);
}

/* Checks the alternatives of row r against values [limit], of which the largest is the most
 * probable; log_sum: what makes log-probabilities of them. Ids with -infinity have none. */
static void check_top(const struct told *told, int r, const float *values, double log_sum)
{
    const int32_t at = rows.at[r], n_top = rows.wants[at].n_top;
    int32_t before = -1;

    for (int32_t k = 0; k < n_top; k++) {
        const int32_t id = told->top_ids[at * TOP + k];
        int32_t next = -1;
        for (int32_t i = 0; i < rows.limit; i++) {
            const int is_behind = before < 0 || values[i] < values[before] ||
                                  (values[i] == values[before] && i > before);
            if (is_behind && values[i] > -INFINITY && (next < 0 || values[i] > values[next]))
                next = i;
        }
        CHECK_INT(id, next);
        CHECK(is_near(told->top_logprobs[at * TOP + k],
                      next < 0 ? (double)-INFINITY : values[next] - log_sum));
        if (next < 0)
            for (; k < n_top; k++)
                CHECK_INT(told->top_ids[at * TOP + k], -1);
        before = next;
    }
    for (int32_t k = n_top; k < TOP; k++)
        CHECK_INT(told->top_ids[at * TOP + k], 0x55555555);
}

/* The logarithm of the sum of e^x over a row. */
static double log_sum(const float *values)
{
    double largest = -INFINITY, sum = 0.0;

    for (int32_t i = 0; i < rows.limit; i++)
        largest = fmax(largest, (double)values[i]);
    for (int32_t i = 0; i < rows.limit; i++)
        sum += exp(values[i] - largest);
    return largest + log(sum);
}

/* All rows are greedy; some have a given id. */
static void test_scores_of_the_model(void)
{
    static const int32_t limits[] = {1, 2, 15, 16, 17, 33, 500, 1200}, finite[] = {1, 20, 1200};
    struct told told;

    for (int i = 0; i < 8 * 3 && !sbtest_failed_now; i++) {
        make_rows(limits[i / 3], finite[i % 3]);
        for (int r = 0; r < M; r += 2)
            rows.wants[rows.at[r]].given = (int32_t)(cpu_random() % (uint32_t)rows.limit);
        tell_all(&told);
        for (int r = 0; r < M && !sbtest_failed_now; r++) {
            const float *values = rows.logits + r * STRIDE;
            const int32_t given = rows.wants[rows.at[r]].given, id = told.ids[rows.at[r]];
            CHECK(given >= 0 ? id == 0x55555555 : id >= 0 && id < rows.limit);
            CHECK(is_near(told.logprob[rows.at[r]],
                          values[given >= 0 ? given : id] - log_sum(values)));
            check_top(&told, r, values, log_sum(values));
        }
    }
}

/* Each row has another sampler, and log-probabilities are of what it leaves. */
static void make_samplers(void)
{
    static const int32_t bias_ids[2] = {3, 7};
    static int32_t lists[4];
    static const float bias[2] = {2.0f, -INFINITY};

    memcpy(lists, bias_ids, sizeof bias_ids);
    memcpy(lists + 2, bias, sizeof bias);
    rows.all.lists = lists;
    for (int r = 0; r < M; r++) {
        struct sb_sampler *s = &rows.samplers[r];
        rows.wants[rows.at[r]].is_filtered = 1;
        s->greedy_from = INT32_MAX;
        s->n_bias = r % 2 ? 2 : 0;
        s->temperature = 0.5f + 0.3f * (float)r;
        s->top_k = r == 1 || r == 5 ? 10 : 0;
        s->top_p = r == 2 || r == 5 ? 0.7f : 1.0f;
        s->typical_p = r == 3 ? 0.8f : 1.0f;
        s->min_p = r == 4 || r == 5 ? 0.2f : 0.0f;
    }
}

static void test_filtered_scores(void)
{
    static float values[STRIDE];
    struct told told;

    for (int i = 0; i < 30 && !sbtest_failed_now; i++) {
        make_rows(40 + 40 * i, i % 3 ? 1200 : 20);
        make_samplers();
        tell_all(&told);
        for (int r = 0; r < M && !sbtest_failed_now; r++) {
            struct sample_left left;
            double logprob, sum = 0.0;
            const int32_t at = rows.at[r],
                          id = sample_reference(&logprob, &left, rows.logits + r * STRIDE,
                                                rows.limit, &rows.all, r);
            for (int32_t k = 0; k < rows.limit; k++)
                values[k] = -INFINITY;
            for (int32_t k = 0; k < left.n; k++) {
                values[left.ids[k]] = -left.depth[left.ids[k]];
                sum += left.weight[left.ids[k]];
            }
            CHECK_INT(told.ids[at], id);
            CHECK(is_near(told.logprob[at], values[id] - log(sum)));
            check_top(&told, r, values, log(sum));
            sample_left_free(&left);
        }
    }
}

/* Without a sampler, or with temperature 0 and nothing else, they are the model's own, to the bit.
 * With a bias they are those of temperature 1 without filters. In half of the rows the logits
 * differ by so little that many depths are equal. */
static void test_filtered_scores_of_greedy_rows(void)
{
    struct told told, other;
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    make_rows(1000, 1200);
    for (int r = 0; r < M; r += 2)
        for (int32_t i = 0; i < rows.limit; i++)
            rows.logits[r * STRIDE + i] = i == 500 ? 30.0f : cpu_uniform() * 1e-4f;
    tell(&told, &ways[0]);
    for (int turn = 0; turn < 2; turn++) {
        for (int r = 0; r < M; r++) {
            rows.wants[r].is_filtered = 1;
            rows.samplers[r].greedy_from = turn == 0 ? 0 : INT32_MAX;
        }
        tell(&other, &ways[0]);
        CHECK_MEM(&other, &told, sizeof told);
    }
    make_samplers();
    for (int turn = 0; turn < 2; turn++) {
        for (int r = 0; r < M; r++) {
            rows.samplers[r] = (struct sb_sampler){.top_p = 1.0f,
                                                   .typical_p = 1.0f,
                                                   .repetition = 1.0f,
                                                   .n_tokens = 6,
                                                   .mask_at = -1,
                                                   .n_bias = 2,
                                                   .greedy_from = INT32_MAX,
                                                   .temperature = (float)turn};
            if (turn == 0)
                rows.samplers[r].top_k = 3; /* has no effect */
        }
        tell(turn == 0 ? &told : &other, &ways[0]);
    }
    CHECK_MEM(other.top_ids, told.top_ids, sizeof told.top_ids);
    CHECK_MEM(other.top_logprobs, told.top_logprobs, sizeof told.top_logprobs);
    cpu_close(ways, n_ways);
}

/* NaN logits, and rows of which nothing may be chosen. */
static void test_rows_without_a_choice(void)
{
    struct told told;

    make_rows(100, 1200);
    make_samplers();
    for (int r = 0; r < M; r++) {
        rows.wants[rows.at[r]].given = r % 3 == 0 ? 50 : -1;
        rows.wants[rows.at[r]].n_top = 2;
        if (r % 2)
            rows.logits[r * STRIDE + 60] = NAN;
        for (int32_t i = 0; i < 100 && !(r % 2); i++)
            rows.logits[r * STRIDE + i] = -INFINITY;
    }
    tell_all(&told);
    for (int r = 0; r < M; r++) {
        const int32_t at = rows.at[r];
        if (rows.wants[at].given < 0)
            CHECK_INT(told.ids[at], r % 2 ? SB_PICK_NAN : SB_PICK_NONE);
        CHECK(isnan(told.logprob[at]));
        for (int k = 0; k < 2; k++) {
            CHECK_INT(told.top_ids[at * TOP + k], -1);
            CHECK(isnan(told.top_logprobs[at * TOP + k]));
        }
    }
}

TEST_BEGIN
cpu = sb_backend_cpu();
RUN(test_scores_of_the_model);
RUN(test_filtered_scores);
RUN(test_filtered_scores_of_greedy_rows);
RUN(test_rows_without_a_choice);
TEST_END
