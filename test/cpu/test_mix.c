/*
 * Compares the CPU's mixtures of experts with two plain computations of what struct sb_mixture of
 * backend.h says. One is in double precision, and may differ by float roundings. The other has
 * every float operation in the order that is written there, with each product by the backend for
 * that row alone, and its bits are compared: for few and many rows, which are drawn at random and
 * so repeat, in all ways of this machine (support/cpu_ways.h).
 */
#define SB_LEVEL_SCALAR 1
#include "backend/cpu_ops.h"
#include "backend/quantiser.h"

#include "support/cpu_ways.h"
#include "support/mixture.h"

#include "port.h"
#include "sbtest.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { BASE_ROWS = 13, MAX_EXPERTS = 65, MAX_ROWS = 256 };

struct shape {
    int hidden, inter, experts, chosen;
};

struct problem {
    struct shape s;
    enum kind kind;
    enum sb_dtype dtype;
    enum sb_gate gate;
    struct choice choice;
    int experts;          /* with the shared one */
    float *bias;          /* [experts] */
    void *gate_up, *down; /* rows [experts, 2 * inter, hidden], [experts, hidden, inter] */
    float *gate_up_bias, *down_bias; /* [experts, 2 * inter], [experts, hidden]; or NULL */
    float *h, *logits;               /* [BASE_ROWS, hidden], [BASE_ROWS, experts] */
    float *expected;                 /* [BASE_ROWS, hidden] */
};

static const struct sb_backend *cpu;

/* ------------------------------------------------------------------ weights */

/* What a float cannot hold is 0. */
static double sigmoid(float x)
{
    const double p = 1.0 / (1.0 + exp(-(double)x));

    return p < 0x1p-126 ? 0.0 : p;
}

/* Weights in double precision. */
static void weigh_exactly(double w[MAX_EXPERTS], char chosen[MAX_EXPERTS], const struct problem *p,
                          const float *logits)
{
    const struct choice *c = &p->choice;
    const int is_softmax = c->scoring == SB_SCORE_SOFTMAX;
    float ranks[MAX_EXPERTS], sigmoids[MAX_EXPERTS];
    double largest, sum = c->scoring == SB_SCORE_SIGMOID ? 1e-20 : 0.0;

    rank_all(ranks, sigmoids, c, logits);
    largest = choose(chosen, c, ranks);
    for (int e = 0; e < c->experts; e++) {
        w[e] = is_softmax ? exp((double)logits[e] - largest) : sigmoid(logits[e]);
        if (chosen[e] || (is_softmax && !c->renormalises))
            sum += w[e];
    }
    for (int e = 0; e < c->experts; e++)
        w[e] *= (is_softmax || c->renormalises ? 1.0 / sum : 1.0) * (double)c->scale;
    if (c->has_shared) {
        chosen[c->experts] = 1;
        w[c->experts] = 1.0;
    }
}

/* ------------------------------------------------------------------ the two references */

static size_t matrix_bytes(const struct problem *p, int rows, int columns)
{
    return (size_t)rows * sb_dtype_row_bytes(p->dtype, (size_t)columns);
}

static void make_experts(struct sb_mlp *mlps, const struct problem *p, const struct cpu *way)
{
    const struct shape *s = &p->s;

    for (int e = 0; e < p->experts; e++) {
        const size_t gate_up = matrix_bytes(p, 2 * s->inter, s->hidden);
        const size_t down = matrix_bytes(p, s->hidden, s->inter);
        CHECK(cpu_weight(&mlps[e].gate_up, way, (char *)p->gate_up + (size_t)e * gate_up,
                         2 * s->inter, s->hidden, p->dtype));
        CHECK(cpu_weight(&mlps[e].down, way, (char *)p->down + (size_t)e * down, s->hidden,
                         s->inter, p->dtype));
    }
}

static void free_experts(struct sb_mlp *mlps, const struct problem *p, const struct cpu *way)
{
    for (int e = 0; e < p->experts; e++) {
        cpu->weight_free(&mlps[e].gate_up, way->device, &cpu_mem);
        cpu->weight_free(&mlps[e].down, way->device, &cpu_mem);
    }
}

/* p->expected, whose products are those of one way for single rows. */
static void expect(struct problem *p, const struct cpu *way)
{
    const int hidden = p->s.hidden, inter = p->s.inter;
    struct sb_mlp mlps[MAX_EXPERTS];
    float *gate_up = cpu_floats(2 * inter), *act = cpu_floats(inter), *out = cpu_floats(hidden);
    float w[MAX_EXPERTS];
    char chosen[MAX_EXPERTS];

    make_experts(mlps, p, way);
    for (int r = 0; r < BASE_ROWS; r++) {
        float *y = p->expected + r * hidden;
        weigh(w, chosen, &p->choice, p->logits + r * p->s.experts);
        memset(y, 0, (size_t)hidden * sizeof *y);
        for (int e = 0; e < p->experts; e++) {
            if (!chosen[e])
                continue;
            cpu->gated(way->exec, act, gate_up, p->h + r * hidden, &mlps[e].gate_up,
                       p->gate_up_bias ? p->gate_up_bias + e * 2 * inter : NULL, p->gate, 1, inter);
            cpu->gemm(way->exec, out, act, &mlps[e].down,
                      p->down_bias ? p->down_bias + e * hidden : NULL, 1);
            for (int i = 0; i < hidden; i++) {
                const float product = w[e] * out[i];
                y[i] = y[i] + product;
            }
        }
    }
    free_experts(mlps, p, way);
    free(gate_up);
    free(act);
    free(out);
}

/* A row's product with x in double precision, on which its bias is added if rows have biases, and
 * the sum of the terms' sizes in *size. */
static double dot(const struct problem *p, const void *rows, const float *bias, int64_t row,
                  const double *x, int n, double *size)
{
    double sum = bias ? (double)bias[row] : 0.0;

    *size = fabs(sum);
    for (int i = 0; i < n; i++) {
        const double product = x[i] * (double)cpu_widen(rows, row * n + i, p->dtype);
        sum += product;
        *size += fabs(product);
    }
    return sum;
}

/* An expert's MLP of a row h. size: of the sums, of which an error is a share. */
static void one_mlp(double *out, double *size, const struct problem *p, int e, const double *h)
{
    const int hidden = p->s.hidden, inter = p->s.inter;
    double *act = cpu_memory((size_t)inter * sizeof *act), some, most = 1.0;

    for (int i = 0; i < inter; i++) {
        const int64_t row = (int64_t)e * 2 * inter + i;
        const double g = dot(p, p->gate_up, p->gate_up_bias, row, h, hidden, &some);
        const double up = dot(p, p->gate_up, p->gate_up_bias, row + inter, h, hidden, size);
        act[i] = cpu_gate_exactly(g, up, p->gate);
        most = fmax(most, fmax(some, *size));
    }
    *size = 0.0;
    for (int i = 0; i < hidden; i++) {
        out[i] = dot(p, p->down, p->down_bias, (int64_t)e * hidden + i, act, inter, &some);
        *size = fmax(*size, most * (some + 1.0));
    }
    free(act);
}

/* Whether a row of p->expected is what double precision gives. */
static int is_right(const struct problem *p, int r)
{
    const int hidden = p->s.hidden;
    double *h = cpu_memory((size_t)hidden * 3 * sizeof *h), *y = h + hidden, *out = y + hidden;
    double w[MAX_EXPERTS], size = 0.0, some = 0.0;
    char chosen[MAX_EXPERTS];
    int right = 1;

    weigh_exactly(w, chosen, p, p->logits + r * p->s.experts);
    for (int i = 0; i < hidden; i++) {
        h[i] = (double)p->h[r * hidden + i];
        y[i] = 0.0;
    }
    for (int e = 0; e < p->experts; e++) {
        if (!chosen[e])
            continue;
        one_mlp(out, &some, p, e, h);
        for (int i = 0; i < hidden; i++)
            y[i] += w[e] * out[i];
        size += isnan(w[e]) ? 0.0 : w[e] * some;
    }
    for (int i = 0; i < hidden; i++) {
        const float got = p->expected[r * hidden + i];
        right &= isnan(y[i]) ? isnan(got) : fabs((double)got - y[i]) <= 2e-6 * size + 1e-30;
    }
    free(h);
    return right;
}

/* ------------------------------------------------------------------ the operation */

/* Runs it for m rows, from[] of those of the problem. All that it is to write begins with NaNs. */
static void mix(float *y, const struct problem *p, const struct cpu *way,
                const struct sb_mlp *experts, const int *from, int m)
{
    const int hidden = p->s.hidden, inter = p->s.inter, n_experts = p->s.experts;
    const int pairs = m * (p->s.chosen + p->choice.has_shared);
    const size_t words = (size_t)pairs * (size_t)(2 * hidden + 3 * inter);
    float *h = cpu_floats((int64_t)m * hidden), *logits = cpu_floats((int64_t)m * n_experts);
    float *work = cpu_memory(words * sizeof *work), *gate_up = work + 2 * pairs * hidden;

    for (int r = 0; r < m; r++) {
        memcpy(h + r * hidden, p->h + from[r] * hidden, (size_t)hidden * sizeof *h);
        memcpy(logits + r * n_experts, p->logits + from[r] * n_experts,
               (size_t)n_experts * sizeof *h);
    }
    memset(work, 0xff, words * sizeof *work);
    memset(y, 0xff, (size_t)m * (size_t)hidden * sizeof *y);
    cpu->mix(way->exec, &(struct sb_mixture){.m = m,
                                             .hidden = hidden,
                                             .inter = inter,
                                             .n_experts = n_experts,
                                             .chosen = p->s.chosen,
                                             .has_shared = p->choice.has_shared,
                                             .scoring = p->choice.scoring,
                                             .renormalises = p->choice.renormalises,
                                             .scale = p->choice.scale,
                                             .bias = p->choice.bias,
                                             .gate = p->gate,
                                             .experts = experts,
                                             .gate_up_bias = p->gate_up_bias,
                                             .down_bias = p->down_bias,
                                             .logits = logits,
                                             .h = h,
                                             .y = y,
                                             .rows = work,
                                             .out = work + pairs * hidden,
                                             .gate_up = gate_up,
                                             .act = gate_up + 2 * pairs * inter});
    free(h);
    free(logits);
    free(work);
}

/* Whether m rows have the bits that are expected: the first one m times, or any. */
static int rows_agree(const struct problem *p, const struct cpu *way, const struct sb_mlp *experts,
                      int m, int is_one)
{
    const int hidden = p->s.hidden;
    float *y = cpu_floats((int64_t)m * hidden);
    int from[MAX_ROWS], agree = 1;

    for (int r = 0; r < m; r++)
        from[r] = is_one ? 0 : (int)(cpu_random() % BASE_ROWS);
    mix(y, p, way, experts, from, m);
    for (int r = 0; r < m; r++)
        agree &= cpu_first_difference(y + r * hidden, p->expected + from[r] * hidden, hidden) < 0;
    free(y);
    return agree;
}

static void check_way(const struct problem *p, const struct cpu *way)
{
    static const int counts[] = {1, 2, 17, 64, MAX_ROWS};
    struct sb_mlp experts[MAX_EXPERTS];

    make_experts(experts, p, way);
    for (int i = 0; i < COUNT(counts); i++)
        for (int is_one = 0; is_one < 2 && !sbtest_failed_now; is_one++)
            if (!rows_agree(p, way, experts, counts[i], is_one))
                FAIL("%s: %s, %d rows, hidden %d, inter %d, %d of %d experts", way->name,
                     sb_dtype_name(p->dtype), counts[i], p->s.hidden, p->s.inter, p->s.chosen,
                     p->s.experts);
    free_experts(experts, p, way);
}

/* ------------------------------------------------------------------ cases */

/* Rows of the experts' matrices. */
static void *make_rows(const struct problem *p, int rows, int columns)
{
    const size_t n = (size_t)p->experts * (size_t)rows * (size_t)columns;
    const size_t of_first = p->kind == CROWDED ? (size_t)rows * (size_t)columns : 0;
    void *made = cpu_memory((size_t)p->experts * matrix_bytes(p, rows, columns));
    float *values = cpu_floats((int64_t)n);

    for (size_t i = 0; i < n; i++)
        values[i] *= 0.5f;
    sb_convert_rows(made, p->dtype, values, SB_F32, (size_t)(p->experts * rows), (size_t)columns);
    if (of_first > 0)
        memset(made, 0xff, matrix_bytes(p, rows, columns));
    free(values);
    return made;
}

static struct problem make_problem(const struct shape *s, enum kind kind, enum sb_dtype dtype,
                                   int form)
{
    struct problem p = {.s = *s,
                        .kind = kind,
                        .dtype = dtype,
                        .gate = gate_of_form(form),
                        .bias = cpu_floats(s->experts)};

    p.choice = choice_of(form, s->experts, s->chosen, p.bias);
    p.experts = s->experts + p.choice.has_shared;
    for (int e = 0; kind == CROWDED && e < 2 && e < s->experts; e++)
        p.bias[e] = e == 0 ? -2.0f : 2.0f;
    p.gate_up = make_rows(&p, 2 * s->inter, s->hidden);
    p.down = make_rows(&p, s->hidden, s->inter);
    if (form & FORM_CLAMPED) {
        p.gate_up_bias = cpu_floats(p.experts * 2 * s->inter);
        p.down_bias = cpu_floats(p.experts * s->hidden);
    }
    p.h = cpu_floats(BASE_ROWS * s->hidden);
    p.logits = cpu_floats(BASE_ROWS * s->experts);
    p.expected = cpu_floats(BASE_ROWS * s->hidden);
    for (int i = 0; i < BASE_ROWS * s->experts; i++)
        p.logits[i] = logit_of(kind, i / s->experts, i % s->experts);
    if (kind == WILD) /* one row is infinite, and one NaN; the others have nothing of it */
        p.h[7 * s->hidden] = INFINITY;
    if (kind == WILD)
        p.h[8 * s->hidden] = NAN;
    return p;
}

static void free_problem(struct problem *p)
{
    free(p->bias);
    free(p->gate_up);
    free(p->down);
    free(p->gate_up_bias);
    free(p->down_bias);
    free(p->h);
    free(p->logits);
    free(p->expected);
}

/* That the rows of CROWDED crowd. */
static void check_crowd(const struct problem *p)
{
    float w[MAX_EXPERTS];
    char chosen[MAX_EXPERTS];

    for (int r = 0; r < BASE_ROWS; r++) {
        weigh(w, chosen, &p->choice, p->logits + r * p->s.experts);
        CHECK(!chosen[0] && chosen[1]);
        for (int i = 0; i < p->s.hidden; i++)
            CHECK(!isnan(p->expected[r * p->s.hidden + i]));
    }
}

static void one_problem(const struct cpu *ways, int n_ways, struct problem *p, int is_exact)
{
    expect(p, &ways[0]);
    for (int r = 0; r < BASE_ROWS && is_exact; r++)
        if (!(p->kind == WILD && (r == 7 || r == 8)) && !is_right(p, r))
            FAIL("row %d of %d experts differs from double precision", r, p->s.experts);
    if (p->kind == CROWDED)
        check_crowd(p);
    for (int w = 0; w < n_ways && !sbtest_failed_now; w++)
        check_way(p, &ways[w]);
}

/* Shapes whose rows are whole vectors and not, with one expert, with as many as are chosen, and
 * with so many or so wide that threads share the choice and the rows. */
static void test_shapes(void)
{
    static const struct shape shapes[] = {{33, 17, 7, 3}, {32, 32, 8, 2}, {16, 5, 4, 4},
                                          {1, 1, 3, 2},   {20, 16, 1, 1}, {24, 8, 64, 8},
                                          {8, 4, 17, 16}, {1024, 3, 4, 1}};
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    for (int i = 0; i < COUNT(shapes) && !sbtest_failed_now; i++)
        for (int form = 0; form < FORMS && !sbtest_failed_now; form++)
            for (int kind = USUAL; kind <= WILD && !sbtest_failed_now; kind++) {
                const struct shape *s = &shapes[i];
                struct problem p;
                if (kind == CROWDED && s->chosen == s->experts)
                    continue;
                p = make_problem(s, (enum kind)kind, i % 2 ? SB_BF16 : SB_F32, forms[form]);
                one_problem(ways, n_ways, &p, 1);
                free_problem(&p);
            }
    cpu_close(ways, n_ways);
}

/* In the other classes products have other bits, and none that double precision gives. */
static void test_classes(void)
{
    static const enum sb_dtype dtypes[] = {SB_F32, SB_BF16, SB_F16, SB_Q8_0};
    static const struct shape shape = {64, 32, 6, 2};

    for (int compute = SPECBATCH_COMPUTE_BF16; compute <= SPECBATCH_COMPUTE_INT8; compute++) {
        struct cpu ways[CPU_WAYS];
        const int n_ways = cpu_open(ways, compute);
        for (int i = 0; i < COUNT(dtypes) && !sbtest_failed_now; i++) {
            struct problem p = make_problem(&shape, i % 2 ? WILD : USUAL, dtypes[i], forms[5 + i]);
            one_problem(ways, n_ways, &p, 0);
            free_problem(&p);
        }
        cpu_close(ways, n_ways);
    }
}

/* A pass may have no rows. */
static void test_no_rows(void)
{
    static const struct shape shape = {64, 32, 6, 2};
    struct problem p = make_problem(&shape, USUAL, SB_F32, 0);
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    struct sb_mlp experts[MAX_EXPERTS];
    float y = 3.0f;

    make_experts(experts, &p, &ways[0]);
    mix(&y, &p, &ways[0], experts, NULL, 0);
    CHECK(y == 3.0f);
    free_experts(experts, &p, &ways[0]);
    cpu_close(ways, n_ways);
    free_problem(&p);
}

TEST_BEGIN
struct sb_fp_env env;
cpu = sb_backend_cpu();
sb_port_fp_enter(&env);
RUN(test_shapes);
RUN(test_classes);
RUN(test_no_rows);
sb_port_fp_leave(&env);
TEST_END
