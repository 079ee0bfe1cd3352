/*
 * Sampling on the device: every id, log-probability, alternative and margin must have the bits of
 * the CPU's best level, and every id be that of the second implementation
 * (support/sample_reference.h), which sorts. test/cpu/test_sample.c shows that the CPU's levels
 * agree, and that what they choose has the distribution that it is to have. Inputs are device
 * allocations of exactly their size, as in test_cuda_kernels.c.
 */
#include <float.h>

#include "cuda/against_cpu.h"
#include "support/sample_cases.h"

/* How long the arrays of samplers are. */
struct lengths {
    int64_t rows, lists, masks, tokens, out;
};

/* Samplers in the device's memory. */
static struct sb_samplers given_samplers(const struct sb_samplers *all, struct lengths n)
{
    struct sb_samplers out = *all;

    out.rows = given(all->rows, (size_t)n.rows * sizeof *all->rows);
    out.lists = n.lists > 0 ? given_ints(all->lists, n.lists) : NULL;
    out.masks = n.masks > 0 ? given(all->masks, (size_t)n.masks * sizeof *all->masks) : NULL;
    out.tokens = given_ints(all->tokens, n.rows * all->row_stride);
    out.id_at = given_ints(all->id_at, n.tokens);
    out.pos = given_ints(all->pos, n.tokens);
    out.out = given_ints(all->out, n.out);
    return out;
}

/* What one way chooses, for each row of a round. */
struct chosen {
    int32_t ids[SAMPLE_OUT];
    float logprob[SAMPLE_OUT], margin[SAMPLE_OUT];
    int32_t top_ids[SAMPLE_OUT * SB_TOP_MAX];
    float tops[SAMPLE_OUT * SB_TOP_MAX];
};

static void choose_on_cpu(struct chosen *out, const struct sb_select *host)
{
    const size_t bytes = (size_t)host->m * (size_t)host->stride * sizeof(float);
    struct sb_select args = *host;
    struct sb_scores scores;

    memset(out, 0, sizeof *out);
    if (host->scores) {
        scores = (struct sb_scores){host->scores->wants, SB_TOP_MAX, out->top_ids, out->tops};
        args.scores = &scores;
    }
    args.logits = cpu_memory(bytes);
    memcpy(args.logits, host->logits, bytes);
    args.ids = out->ids;
    args.logprob = out->logprob;
    args.margin = out->margin;
    cpu->select(way->exec, &args);
    free(args.logits);
}

/* The device, over all rows at once or row by row. What is beyond the limit has to stay. */
static void choose_on_device(struct chosen *out, const struct sb_select *host, struct lengths n,
                             int is_split)
{
    const int64_t all = (int64_t)host->m * host->stride;
    const struct sb_samplers samplers = given_samplers(host->samplers, n);
    float *logits = given_floats(host->logits, all), *after = cpu_floats(all);
    int32_t *at = given_ints(host->at, host->m), *ids = fresh((size_t)host->m * 4);
    float *logprob = fresh((size_t)host->m * 4), *margin = fresh((size_t)host->m * 4);
    const size_t top_bytes = (size_t)host->m * SB_TOP_MAX * 4;
    void *scratch = fresh(sb_cuda_select_scratch());
    struct sb_scores scores = {NULL, SB_TOP_MAX, NULL, NULL};

    memset(out, 0, sizeof *out);
    if (host->scores) {
        scores.wants = given(host->scores->wants, (size_t)host->m * sizeof *host->scores->wants);
        scores.ids = fresh(top_bytes);
        scores.logprobs = fresh(top_bytes);
    }
    for (int32_t i = 0; i < (is_split ? host->m : 1); i++) {
        struct sb_samplers from = samplers;
        from.out += i;
        CHECK_CUDA(sb_cuda_select(
            &(struct sb_select){is_split ? 1 : host->m, host->stride, host->limit,
                                logits + (int64_t)i * host->stride, at + i, ids, logprob, margin,
                                &from, host->scores ? &scores : NULL},
            scratch, stream));
    }
    CHECK_CUDA(fetch(out->ids, ids, (size_t)host->m * 4));
    CHECK_CUDA(fetch(out->logprob, logprob, (size_t)host->m * 4));
    CHECK_CUDA(fetch(out->margin, margin, (size_t)host->m * 4));
    if (host->scores) {
        CHECK_CUDA(fetch(out->top_ids, scores.ids, top_bytes));
        CHECK_CUDA(fetch(out->tops, scores.logprobs, top_bytes));
    }
    CHECK_CUDA(fetch(after, logits, (size_t)all * 4));
    for (int64_t i = 0; i < all; i++)
        if (i % host->stride >= host->limit)
            CHECK_MEM(&after[i], &host->logits[i], sizeof *after);
    free(after);
    free_all();
}

/* Compares the device with the CPU and, in rows without a NaN, with the reference. */
static void check_choices(const struct sb_select *host, struct lengths n, int is_split)
{
    static struct chosen expected, got;

    choose_on_cpu(&expected, host);
    choose_on_device(&got, host, n, is_split);
    CHECK_SAME(got.logprob, expected.logprob, host->m, "log-probability, limit %d",
               (int)host->limit);
    for (int32_t i = 0; i < host->m; i++) {
        const int32_t at = host->at[i];
        double ignored;
        if (host->scores) {
            const struct sb_want *want = &host->scores->wants[at];
            const size_t top = (size_t)at * SB_TOP_MAX;
            CHECK_MEM(got.top_ids + top, expected.top_ids + top, (size_t)want->n_top * 4);
            CHECK_SAME(got.tops + top, expected.tops + top, want->n_top, "alternatives, limit %d",
                       (int)host->limit);
            if (want->given >= 0)
                continue;
        }
        CHECK_INT(got.ids[at], expected.ids[at]);
        if (expected.ids[at] == SB_PICK_NAN)
            continue;
        /* the sign of a zero margin is not compared */
        CHECK(got.margin[at] == expected.margin[at] ||
              (isnan(got.margin[at]) && isnan(expected.margin[at])));
        CHECK_INT(got.ids[at],
                  sample_reference(&ignored, NULL, host->logits + (int64_t)i * host->stride,
                                   host->limit, host->samplers, i));
    }
}

/* The same for one row of n logits. Returns the id. */
static int32_t check_one(float *logits, int32_t n, const struct sample_one *one, int64_t lists,
                         int64_t masks)
{
    const struct sb_want want = {-1, sample_below(6), sample_below(2)};
    const struct sb_scores scores = {&want, SB_TOP_MAX, NULL, NULL};
    const int32_t at = 0;
    const struct sb_select host = {1, n, n, logits, &at, NULL, NULL, NULL, &one->all, &scores};
    struct chosen chosen;

    check_choices(&host, (struct lengths){1, lists, masks, 1, 1}, 0);
    choose_on_cpu(&chosen, &host);
    return chosen.ids[0];
}

/* Random samplers with everything in force, on few logits and with many ties. Two of three times
 * places have wants. */
static void test_rounds(void)
{
    static const int32_t limits[] = {1, 2, 16, 33, 65, 130, SAMPLE_STRIDE};
    static struct sample_round round;
    struct sb_want wants[SAMPLE_OUT];
    const struct sb_scores scores = {wants, SB_TOP_MAX, NULL, NULL};

    for (int turn = 0; turn < 3 * COUNT(limits) && !sbtest_failed_now; turn++) {
        sample_round_draw(&round, limits[turn % COUNT(limits)]);
        for (int i = 0; i < SAMPLE_OUT; i++)
            wants[i] = (struct sb_want){sample_below(4) ? -1 : sample_below(round.limit),
                                        sample_below(SB_TOP_MAX + 1), sample_below(2)};
        check_choices(&(struct sb_select){SAMPLE_OUT, SAMPLE_STRIDE, round.limit, round.logits,
                                          round.at, NULL, NULL, NULL, &round.all,
                                          turn % 3 ? &scores : NULL},
                      (struct lengths){SAMPLE_ROWS, round.n_lists, COUNT(round.masks), SAMPLE_OUT,
                                       SAMPLE_OUT},
                      turn % 4 == 3);
    }
}

static void test_special_values(void)
{
    sample_special_values(check_one);
}

static void test_equal_values(void)
{
    sample_equal_values(check_one, 40000, 4);
}

/* The filters on more ids than the block has threads, with and without ties. */
static void test_filters(void)
{
    static const struct sb_sampler filters[] = {
        {.top_p = 1.0f, .typical_p = 1.0f},
        {.top_k = 50, .top_p = 1.0f, .typical_p = 1.0f},
        {.top_k = 2000, .top_p = 0.9f, .typical_p = 1.0f},
        {.top_p = 0.95f, .typical_p = 1.0f},
        {.top_p = 1.0f, .typical_p = 0.9f},
        {.top_p = 1.0f, .typical_p = 1.0f, .min_p = 0.05f},
        {.top_k = 900, .top_p = 0.99f, .typical_p = 0.8f, .min_p = 0.5f}};
    static const int32_t sizes[] = {517, 5003};

    for (int turn = 0; turn < 4 * COUNT(filters) && !sbtest_failed_now; turn++) {
        const int32_t n = sizes[turn / COUNT(filters) % 2];
        float *logits = cpu_floats(n);
        struct sb_sampler sampler = filters[turn % COUNT(filters)];
        struct sample_one one;
        sampler.seed = (uint64_t)turn << 33;
        sampler.temperature = turn % 3 ? 1.0f : 0.8f;
        sampler.n_tokens = 1;
        sampler.greedy_from = INT32_MAX;
        sampler.mask_at = -1;
        for (int i = 0; i < n; i++)
            logits[i] = turn < 2 * COUNT(filters) ? rintf(logits[i] * 10.0f) : logits[i] * 10.0f;
        sample_one_init(&one, &sampler, 0);
        (void)check_one(logits, n, &one, 0, 0);
        free(logits);
    }
}

/* Filters whose last id has 21 bits, in a row of equal logits; also where there are more such ids
 * than the block can list. */
static void test_large_ids(void)
{
    enum { N = (1 << 20) + 100 };
    static const int32_t equal[] = {90, 5000};
    float *logits = cpu_floats(N);
    struct sample_one one;

    sample_one_init(&one, &sample_plain, 0);
    one.sampler.top_k = 20;
    for (int turn = 0; turn < COUNT(equal); turn++) {
        const int32_t first = N - equal[turn];
        for (int i = 0; i < N; i++)
            logits[i] = i < first ? -1.0f : 3.0f;
        const int32_t id = check_one(logits, N, &one, 0, 0);
        CHECK(id >= first && id < first + 20);
    }
    free(logits);
}

/* A row that several blocks look at first, so that the kernel that chooses begins before they have
 * ended. Nothing changes the row, so its largest logit is what they found; or it is +infinity,
 * which counts as the largest float, and top_k then leaves the lowest id of these. */
static void test_rows_in_parts(void)
{
    enum { N = 8200 };
    float *logits = cpu_floats(N);
    struct sample_one one;

    for (int i = 0; i < N; i++)
        logits[i] *= 6.0f;
    sample_one_init(&one, &sample_plain, 0);
    one.sampler.top_k = 5;
    for (int turn = 0; turn < 3; turn++) {
        logits[8000 + turn] = turn < 2 ? 20.0f + (float)turn : INFINITY;
        (void)check_one(logits, N, &one, 0, 0);
    }
    logits[9] = FLT_MAX;
    one.sampler.top_k = 1;
    CHECK_INT(check_one(logits, N, &one, 0, 0), 9);
    free(logits);
}

/* Samplers of the rows below, with what several blocks find of a row: choices, candidates, or no
 * more than its top; and, last, one whose row is changed, and one that is greedy. */
static const struct sb_sampler in_parts[] = {
    {.temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f},
    {.temperature = 0.6f, .top_p = 0.95f, .typical_p = 1.0f, .top_k = 20},
    {.temperature = 1.5f, .top_p = 1.0f, .typical_p = 1.0f, .min_p = 0.1f},
    {.temperature = 1.0f, .top_p = 1.0f, .typical_p = 0.7f, .top_k = 60},
    {.temperature = 0.7f, .top_p = 0.8f, .typical_p = 1.0f},
    {.temperature = 0.3f, .top_p = 0.9999999f, .typical_p = 0.9f},
    {.temperature = 1.0f, .top_p = 0.0f, .typical_p = 1.0f},
    {.temperature = 1e7f, .top_p = 0.5f, .typical_p = 1.0f, .top_k = 40},
    {.temperature = 3e38f, .top_p = 1.0f, .typical_p = 1.0f, .top_k = 40},
    {.temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f, .top_k = 1},
    {.temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f, .top_k = 3000},
    {.temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f, .top_k = 9, .n_bias = 1},
    {.top_p = 1.0f, .typical_p = 1.0f}};

/* Rows of a vocabulary in parts, all in one launch, so that each has to find what is its own.
 * turn: how logits are spread, from all different to nearly all equal, where no list has room */
static void check_rows_in_parts(int32_t n, int turn)
{
    enum { ROWS = COUNT(in_parts), STRIDE = 2 };
    static const float steps[] = {0.0f, 0.01f, 0.5f, 20.0f};
    const int64_t all = (int64_t)ROWS * n;
    struct sb_sampler rows[ROWS];
    int32_t tokens[ROWS * STRIDE] = {0}, places[ROWS], pos[ROWS], out[ROWS], bias[] = {17, 0};
    struct sb_want wants[ROWS];
    const struct sb_samplers samplers = {.rows = rows,
                                         .lists = bias,
                                         .row_stride = STRIDE,
                                         .tokens = tokens,
                                         .id_at = places,
                                         .pos = pos,
                                         .out = out};
    const struct sb_scores scores = {wants, SB_TOP_MAX, NULL, NULL};
    float *logits = cpu_floats(all);
    const float larger = 30.0f;

    memcpy(bias + 1, &larger, sizeof larger);
    for (int64_t i = 0; i < all; i++) {
        logits[i] *= 6.0f;
        if (steps[turn] > 0.0f)
            logits[i] = rintf(logits[i] / steps[turn]) * steps[turn];
    }
    for (int i = 0; i < ROWS; i++) {
        rows[i] = in_parts[(i + turn) % ROWS];
        rows[i].seed = (uint64_t)(turn * ROWS + i);
        rows[i].n_tokens = 1;
        rows[i].mask_at = -1;
        rows[i].greedy_from = rows[i].temperature > 0.0f ? INT32_MAX : 0;
        places[i] = STRIDE * i;
        pos[i] = turn;
        out[i] = i;
        wants[i] = (struct sb_want){i == 4 ? 5 : -1, i % 3, i % 2};
    }
    logits[2 * n + 100] = INFINITY;
    for (int i = 0; i < ROWS; i++) /* beside it others are nearly all equally deep */
        if (rows[i].temperature > 1e6f)
            logits[i * n + 50] = 0x1p24f;
    for (int i = 0; turn == 3 && i < n; i++) /* fewer than top_k that are finite */
        logits[n + i] = i % 1000 == 7 ? logits[n + i] : -INFINITY;
    check_choices(&(struct sb_select){ROWS, n, n, logits, out, NULL, NULL, NULL, &samplers,
                                      turn % 2 ? &scores : NULL},
                  (struct lengths){ROWS, COUNT(bias), 0, ROWS, ROWS}, 0);
    free(logits);
}

static void test_many_rows_in_parts(void)
{
    for (int turn = 0; turn < 4 && !sbtest_failed_now; turn++)
        check_rows_in_parts(turn == 2 ? 50001 : 8200, turn);
}

static void test_many_changes(void)
{
    sample_many_changes(check_one, 2);
}

TEST_BEGIN
const int has_device = both_begin();
if (has_device) {
    RUN(test_rounds);
    RUN(test_special_values);
    RUN(test_equal_values);
    RUN(test_filters);
    RUN(test_large_ids);
    RUN(test_rows_in_parts);
    RUN(test_many_rows_in_parts);
    RUN(test_many_changes);
}
both_end(has_device);
TEST_END
