/*
 * Compares the CPU kernels with independent references and with themselves. (Matrix products are in
 * test_gemm.c, attention is in test_attention.c.)
 *
 * Where the contract fixes the order of every operation (copies, the selection of ids), the
 * reference is a plain loop, and bits are compared. Elsewhere the reference is in double precision,
 * and may differ by a few float roundings. Everything is run in several ways, at each SIMD level
 * with one and with three threads, and every way must give the bits of the first. Rows are shuffled
 * and repeated, so that a row's bits can depend on nothing but the row.
 */
#define SB_LEVEL_SCALAR 1
#include "backend/cpu_ops.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"

#include <fenv.h>

#include "support/cpu_ways.h"

#include "port.h"
#include "sbtest.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct sb_backend *cpu;

/* Fails at the first of n floats whose bits differ, except that any NaN equals any NaN. */
#define CHECK_SAME(got, expected, n, what)                                                        \
    do {                                                                                          \
        int64_t at_ = cpu_first_difference(got, expected, n);                                     \
        if (at_ >= 0)                                                                             \
            FAIL("%s: element %lld is %a, expected %a", what, (long long)at_, (double)(got)[at_], \
                 (double)(expected)[at_]);                                                        \
    } while (0)

/* ------------------------------------------------------------------ weights */

static void test_embed(void)
{
    enum { N = 131, K = 75, M = 33 };
    struct cpu ways[CPU_WAYS];
    float x[M * K], expected[M * K];
    uint16_t rows[2 * N * K]; /* room for f32 */
    int32_t ids[M], id_at[M];

    for (int compute = SPECBATCH_COMPUTE_BF16; compute <= SPECBATCH_COMPUTE_SPLIT; compute++)
        for (int dtype = SB_F32; dtype <= SB_F16; dtype++) {
            const float scale = compute == SPECBATCH_COMPUTE_F32 ? 33.9411255f : 1.0f;
            int n_ways = cpu_open(ways, compute);
            struct sb_pass pass = {.n_tokens = M, .ids = ids, .id_at = id_at};
            for (int i = 0; i < N * K; i++)
                cpu_narrow(rows, i, cpu_uniform(), (enum sb_dtype)dtype);
            for (int t = 0; t < M; t++) {
                id_at[t] = M - 1 - t;
                ids[id_at[t]] = t == 5 ? -1 : t == 6 ? N : (int32_t)(cpu_random() % N);
                for (int k = 0; k < K; k++) {
                    int32_t id = ids[id_at[t]];
                    float v = id < 0 || id >= N
                                  ? 0.0f
                                  : cpu_widen(rows, (int64_t)id * K + k, (enum sb_dtype)dtype);
                    expected[t * K + k] = compute == SPECBATCH_COMPUTE_BF16 ? cpu_round_bf16(v)
                                                                            : v * scale;
                }
            }
            for (int w = 0; w < n_ways; w++) {
                struct sb_weight table = {.n_out = N, .n_in = K};
                CHECK_OK(
                    cpu->weight_create(&table, ways[w].device, &cpu_mem, (enum sb_dtype)dtype));
                CHECK_OK(
                    cpu->weight_fill(&table, ways[w].device, 0, N, rows, (enum sb_dtype)dtype));
                memset(x, 0xff, sizeof x);
                cpu->embed(ways[w].exec, x, &table, scale, &pass);
                cpu->weight_free(&table, ways[w].device, &cpu_mem);
                CHECK_SAME(x, expected, M * K, ways[w].name);
            }
            cpu_close(ways, n_ways);
        }
}

static void test_weight_types(void)
{
    struct cpu ways[CPU_WAYS];
    struct sb_weight weight = {.n_out = 1, .n_in = 1};
    uint16_t half[2] = {0x3f80, 0x4000};
    float single[2] = {1.0f, 2.0f}, x = 1.0f, y[1];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    CHECK_OK(cpu->weight_create(&weight, ways[0].device, &cpu_mem, SB_BF16));
    CHECK_INT(weight.dtype, SB_BF16);
    CHECK_ERROR(cpu->weight_fill(&weight, ways[0].device, 0, 1, single, SB_F32),
                SPECBATCH_E_UNSUPPORTED, "bf16");
    cpu->weight_free(&weight, ways[0].device, &cpu_mem);
    /* rows of a smaller type are taken, since widening loses nothing */
    CHECK_OK(cpu->weight_create(&weight, ways[0].device, &cpu_mem, SB_F32));
    CHECK_OK(cpu->weight_fill(&weight, ways[0].device, 0, 1, half + 1, SB_BF16));
    cpu->gemm(ways[0].exec, y, &x, &weight, NULL, 1);
    cpu->weight_free(&weight, ways[0].device, &cpu_mem);
    CHECK(y[0] == 2.0f);
    cpu_close(ways, n_ways);

    n_ways = cpu_open(ways, SPECBATCH_COMPUTE_BF16);
    CHECK_OK(cpu->weight_create(&weight, ways[0].device, &cpu_mem, SB_F32));
    CHECK_INT(weight.dtype, SB_BF16);
    CHECK(weight.bytes == 64 * 32 * 2); /* a panel of one block */
    cpu->weight_free(&weight, ways[0].device, &cpu_mem);
    cpu_close(ways, n_ways);
}

/* ------------------------------------------------------------------ rows */

/* An index picks every third of the rows, in reverse order. */
enum { NORM_ROWS = 33, NORM_PICKED = 11 };

/* Whether h, and x after norm, agree with a plain computation of the row in double precision. */
static int norm_is_right(const float *h, const float *x_after, const float *x, const float *y,
                         const float *y_weight, const float *weight, int n)
{
    double sum_y = 0.0, sum_x = 0.0;

    for (int k = 0; k < n; k++)
        sum_y += y ? (double)y[k] * y[k] : 0.0;
    for (int k = 0; k < n; k++) {
        const double scale = y_weight ? y_weight[k] / sqrt(sum_y / n + 1e-6) : 1.0;
        const double expected = x[k] + (y ? y[k] * scale : 0.0);
        if (fabs(x_after[k] - expected) > 1e-6 * (fabs(expected) + 1.0))
            return 0;
        sum_x += (double)x_after[k] * x_after[k];
    }
    for (int k = 0; k < n; k++) {
        const double expected = x_after[k] / sqrt(sum_x / n + 1e-6) * weight[k];
        if (fabs(h[k] - expected) > 1e-6 * fabs(expected))
            return 0;
    }
    return 1;
}

/* form 0: nothing is added to x; 1: y is added; 2: y is normed and added. */
static void check_norm(struct cpu *ways, int n_ways, int n, int form)
{
    enum { M = NORM_ROWS };
    float *x = cpu_floats(M * n), *y = cpu_floats(M * n), *weight = cpu_floats(n),
          *y_weight = cpu_floats(n);
    float *h = cpu_floats(M * n), *after = cpu_floats(M * n), *h0 = cpu_floats(M * n),
          *after0 = cpu_floats(M * n);
    const float *add = form > 0 ? y : NULL, *add_weight = form == 2 ? y_weight : NULL;
    int32_t index[NORM_PICKED];
    const struct sb_norm whole = {.m = M,
                                  .n = n,
                                  .eps = 1e-6f,
                                  .h = h,
                                  .x = after,
                                  .y = add,
                                  .y_weight = add_weight,
                                  .weight = weight};
    struct sb_norm picked = whole;

    picked.m = NORM_PICKED;
    picked.index = index;
    for (int i = 0; i < NORM_PICKED; i++)
        index[i] = M - 1 - 3 * i;
    for (int w = 0; w < n_ways; w++) {
        memcpy(after, x, sizeof(float) * (size_t)(M * n));
        cpu->norm(ways[w].exec, &whole);
        if (w == 0) {
            memcpy(h0, h, sizeof(float) * (size_t)(M * n));
            memcpy(after0, after, sizeof(float) * (size_t)(M * n));
        }
        CHECK_SAME(h, h0, M * n, ways[w].name);
        CHECK_SAME(after, after0, M * n, ways[w].name);
        memcpy(after, x, sizeof(float) * (size_t)(M * n));
        cpu->norm(ways[w].exec, &picked);
        for (int i = 0; i < NORM_PICKED; i++) {
            CHECK_SAME(h + i * n, h0 + index[i] * n, n, ways[w].name);
            CHECK_SAME(after + index[i] * n, after0 + index[i] * n, n, ways[w].name);
        }
        CHECK_SAME(after, x, n, "a row that is not in the index");
    }
    for (int r = 0; r < M; r++)
        CHECK(norm_is_right(h0 + r * n, after0 + r * n, x + r * n, add ? y + r * n : NULL,
                            add_weight, weight, n));
    free(x);
    free(y);
    free(weight);
    free(y_weight);
    free(h);
    free(after);
    free(h0);
    free(after0);
}

static void test_norm(void)
{
    static const int widths[] = {1, 15, 16, 17, 100, 1024};
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    for (int i = 0; i < COUNT(widths) && !sbtest_failed_now; i++)
        for (int form = 0; form < 3 && !sbtest_failed_now; form++)
            check_norm(ways, n_ways, widths[i], form);
    cpu->norm(ways[0].exec, &(struct sb_norm){.n = 8, .eps = 1e-6f});
    cpu_close(ways, n_ways);
}

/* How far a result may be off, as a share of it: the last digit of the exponent u in e^-u is worth
 * that much. */
static double gate_bound(double x, enum sb_gate gate)
{
    const double size = fmin(fabs(x), 100.0);

    return 5e-7 + (gate == SB_GATE_GELU   ? 2e-7 * size * fabs(x) * fabs(x)
                   : gate == SB_GATE_SILU ? 0.0
                                          : 2e-7 * size);
}

static void test_gates(void)
{
    static const float special[] = {0.0f,    -0.0f, 1e-30f, 88.0f, -88.0f, 104.0f,
                                    -104.0f, 1e30f, -1e30f, 3e38f, -3e38f};
    static const int widths[] = {1, 16, 31, 1000, 20000};
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    for (int i = 0; i < 3 * COUNT(widths); i++) {
        const enum sb_gate gate = (enum sb_gate)(i % 3);
        int n = widths[i / 3], m = 3;
        float *x = cpu_floats(2 * m * n), *y = cpu_floats(m * n), *first = cpu_floats(m * n);
        for (int k = 0; k < n; k++) {
            x[k] = k < COUNT(special) ? special[k] : x[k] * 20.0f; /* row 0's gates */
            x[2 * n + k] = x[k];
            x[3 * n + k] = x[n + k]; /* row 1 repeats row 0 */
        }
        for (int w = 0; w < n_ways; w++) {
            sb_cpu_op_gate(ways[w].exec, w == 0 ? first : y, x, gate, m, n);
            CHECK_SAME(w == 0 ? first : y, first, m * n, ways[w].name);
        }
        CHECK_SAME(first, first + n, n, "equal rows");
        /* row 0, against double precision */
        for (int k = 0; k < n; k++) {
            double expected = cpu_gate_exactly(x[k], x[n + k], gate),
                   bound = gate_bound(x[k], gate);
            CHECK(!isnan(first[k]));
            if (!(fabs(first[k] - expected) <= bound * fabs(expected) + 1e-37))
                FAIL("gate %d of %a, times %a, is %a, expected %a", (int)gate, (double)x[k],
                     (double)x[n + k], (double)first[k], expected);
        }
        free(x);
        free(y);
        free(first);
    }
    cpu_close(ways, n_ways);
}

/* No limit hides a NaN of a gate, nor one of what is gated. */
static void test_gates_keep_nans(void)
{
    enum { N = 37 };
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    for (int i = 0; i < 3 * n_ways; i++) {
        float x[2 * N], y[N];
        for (int k = 0; k < 2 * N; k++)
            x[k] = cpu_uniform() + 1.0f;
        x[3] = x[N + 35] = NAN;
        sb_cpu_op_gate(ways[i / 3].exec, y, x, (enum sb_gate)(i % 3), 1, N);
        for (int k = 0; k < N; k++)
            CHECK((k == 3 || k == 35) == (isnan(y[k]) != 0));
    }
    cpu_close(ways, n_ways);
}

/* A soft cap in all ways and cut anywhere, against double precision. Numbers far below the cap stay
 * what they are, but for the last digits; those far above it become the cap, and NaN stays NaN. */
static void test_soft_caps(void)
{
    static const float special[] = {0.0f,  -0.0f,  1e-30f, -1e-6f,   1e4f,      -1e4f,
                                    3e38f, -3e38f, 1e-3f,  INFINITY, -INFINITY, NAN};
    static const float caps[] = {0.8f, 30.0f, 50.0f};
    static const int sizes[] = {1, 15, 37, 70000};
    struct cpu ways[CPU_WAYS];
    const int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    for (int i = 0; i < COUNT(caps) * COUNT(sizes); i++) {
        const float cap = caps[i / COUNT(sizes)];
        const int n = sizes[i % COUNT(sizes)];
        float *x = cpu_floats(n), *y = cpu_floats(n), *first = cpu_floats(n);
        for (int k = 0; k < n; k++)
            x[k] = k < COUNT(special) ? special[k] : x[k] * 3.0f * cap;
        for (int w = 0; w < n_ways; w++) {
            float *to = w == 0 ? first : y;
            memcpy(to, x, (size_t)n * sizeof *x);
            cpu->soft_cap(ways[w].exec, to, cap, n);
            CHECK_SAME(to, first, n, ways[w].name);
        }
        for (int k = 0; k < n; k++) {
            const double expected = (double)cap * tanh((double)x[k] / (double)cap);
            if (isnan(x[k]) ? !isnan(first[k])
                            : !(fabs(first[k] - expected) <= 4e-7 * fabs(expected) + 1e-37))
                FAIL("%a capped by %a is %a, expected %a", (double)x[k], (double)cap,
                     (double)first[k], expected);
        }
        free(x);
        free(y);
        free(first);
    }
    cpu->soft_cap(ways[0].exec, NULL, 1.0f, 0);
    cpu_close(ways, n_ways);
}

/* ------------------------------------------------------------------ selection, acceptance,
 * moves */

static void check_choice(const float *row, int32_t limit, int32_t id, float logprob, float margin)
{
    int32_t best = 0;
    double sum = 0.0, second = -INFINITY;

    for (int32_t i = 1; i < limit; i++)
        if (row[i] > row[best])
            best = i;
    CHECK_INT(id, best);
    for (int32_t i = 0; i < limit; i++) {
        sum += exp((double)row[i] - row[best]);
        if (i != best && row[i] > second)
            second = row[i];
    }
    if (!(fabs(logprob + log(sum)) <= 2e-6 + 2e-7 * log(sum)))
        FAIL("log-probability %.9g, expected %.9g", (double)logprob, -log(sum));
    CHECK(limit == 1 ? isinf(margin) : margin == (float)((double)row[best] - second));
}

static void test_select(void)
{
    static const int32_t limits[] = {1, 2, 15, 16, 17, 33, 500, 5000};
    enum { M = 9, STRIDE = 5003 };
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    float *logits = cpu_floats(M * STRIDE), logprob[M], margin[M], other[M];
    int32_t ids[M], at[M];

    for (int i = 0; i < COUNT(limits); i++) {
        int32_t limit = limits[i];
        for (int r = 0; r < M; r++) {
            at[r] = (r + 4) % M;
            /* Few distinct values make ties. What lies beyond the limit is larger, or NaN. */
            for (int k = 0; k < STRIDE; k++)
                logits[r * STRIDE + k] = k >= limit ? (k % 2 ? NAN : 1e9f)
                                                    : floorf(cpu_uniform() * 8.0f) * 0.75f;
        }
        for (int w = 0; w < n_ways; w++) {
            cpu->select(ways[w].exec, &(struct sb_select){M, STRIDE, limit, logits, at, ids,
                                                          logprob, margin, NULL, NULL});
            for (int r = 0; r < M; r++)
                check_choice(logits + r * STRIDE, limit, ids[at[r]], logprob[at[r]], margin[at[r]]);
            if (w == 0)
                memcpy(other, logprob, sizeof other);
            CHECK_SAME(logprob, other, M, ways[w].name);
            /* row 3 alone */
            cpu->select(ways[w].exec, &(struct sb_select){1, STRIDE, limit, logits + 3 * STRIDE, at,
                                                          ids, logprob, NULL, NULL, NULL});
            CHECK_SAME(logprob + at[0], other + at[3], 1, ways[w].name);
        }
    }
    free(logits);
    cpu_close(ways, n_ways);
}

static void test_select_special(void)
{
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    int32_t at = 0, id;
    float row[40], logprob, margin;

    for (int w = 0; w < n_ways; w++)
        for (int i = 0; i < 40; i++) {
            for (int k = 0; k < 40; k++)
                row[k] = -INFINITY;
            cpu->select(ways[w].exec,
                        &(struct sb_select){1, 40, 40, row, &at, &id, NULL, NULL, NULL, NULL});
            CHECK_INT(id, 0); /* all are equal, so the lowest id */
            row[i] = -3e38f;
            cpu->select(ways[w].exec, &(struct sb_select){1, 40, 40, row, &at, &id, &logprob,
                                                          &margin, NULL, NULL});
            CHECK_INT(id, i);
            CHECK(logprob == 0.0f && isinf(margin));
            row[i] = NAN;
            cpu->select(ways[w].exec, &(struct sb_select){1, 40, 40, row, &at, &id, &logprob,
                                                          &margin, NULL, NULL});
            CHECK_INT(id, -1);
            row[i] = 0.0f;
            row[(i + 1) % 40] = -0.0f;
            cpu->select(ways[w].exec,
                        &(struct sb_select){1, 40, 40, row, &at, &id, NULL, &margin, NULL, NULL});
            CHECK_INT(id, i == 39 ? 0 : i); /* 0 and -0 are equal, so the lower id */
            CHECK(margin == 0.0f);
        }
    cpu_close(ways, n_ways);
}

static void test_accept(void)
{
    enum { ROWS = 33, STRIDE = 6 };
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    int32_t tokens[ROWS * STRIDE], picks[ROWS * STRIDE], n_draft[ROWS], n_accept[ROWS];

    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < ROWS * STRIDE; i++) {
            /* -1 stands for a proposal outside the vocabulary, which never equals a pick */
            tokens[i] = (int32_t)(cpu_random() % 3) - 1;
            picks[i] = (int32_t)(cpu_random() % 2);
        }
        for (int b = 0; b < ROWS; b++)
            n_draft[b] = (int32_t)(cpu_random() % STRIDE);
        for (int w = 0; w < n_ways; w++) {
            cpu->accept(ways[w].exec, tokens, picks, n_draft, ROWS, STRIDE, n_accept);
            for (int b = 0; b < ROWS; b++) {
                int32_t n = 0, open = 1;
                for (int j = 0; j < n_draft[b]; j++) {
                    open = open && tokens[b * STRIDE + j + 1] == picks[b * STRIDE + j];
                    n += open;
                }
                CHECK_INT(n_accept[b], n);
            }
        }
    }
    cpu->accept(ways[0].exec, tokens, picks, n_draft, 0, STRIDE, n_accept);
    cpu_close(ways, n_ways);
}

/* Moves inside a slot, in place, and from one slot to another of a different size, in caches of
 * each type. */
static void test_move(void)
{
    enum {
        MOVES = 3,
        SLOTS = 2 * MOVES,
        PLANES = 4,
        HEADS = 2,
        DIM = 5,
        CAP = 40, /* of the smallest slot */
        STRIDE = SLOTS * HEADS * (CAP + SLOTS) * DIM + 7
    };
    static const int32_t moves[][3] = {{3, 1, 20}, {1, 3, 20}, {0, 25, 15}, {25, 0, 15},
                                       {7, 7, 9},  {5, 6, 0},  {0, 1, 39}};
    struct cpu ways[CPU_WAYS];
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);
    const size_t bytes = PLANES * STRIDE * sizeof(float); /* enough for elements of every type */
    char *before = (char *)cpu_floats(PLANES * STRIDE), *expected = cpu_memory(bytes),
         *got = cpu_memory(bytes);
    int64_t from_base[MOVES], to_base[MOVES], base[SLOTS];
    int32_t from_cap[MOVES], to_cap[MOVES], cap[SLOTS], from[MOVES], to[MOVES], len[MOVES];
    struct sb_move args = {.n = MOVES,
                           .n_planes = PLANES,
                           .kv_heads = HEADS,
                           .head_dim = DIM,
                           .plane_stride = STRIDE,
                           .from_base = from_base,
                           .to_base = to_base,
                           .from_cap = from_cap,
                           .to_cap = to_cap,
                           .from = from,
                           .to = to,
                           .len = len};

    for (int slot = 0; slot < SLOTS; slot++) {
        cap[slot] = CAP + (slot * 5) % SLOTS;
        base[slot] = slot == 0 ? 0 : base[slot - 1] + (int64_t)HEADS * cap[slot - 1] * DIM;
    }
    for (int i = 0; i < 3 * 2 * COUNT(moves); i++) {
        const enum sb_dtype type = (enum sb_dtype)(i % 3);
        const int64_t size = (int64_t)sb_dtype_size(type);
        cpu_set_kv(ways, n_ways, type);
        memcpy(expected, before, bytes);
        for (int m = 0; m < MOVES; m++) {
            const int32_t *move = moves[(i / 3 + m) % COUNT(moves)];
            const int in = m, out = i / 3 < COUNT(moves) ? m : SLOTS - 1 - m;
            from_base[m] = base[in];
            from_cap[m] = cap[in];
            to_base[m] = base[out];
            to_cap[m] = cap[out];
            from[m] = move[0];
            to[m] = move[1];
            len[m] = move[2];
            for (int64_t p = 0; p < PLANES * HEADS; p++) {
                const int64_t plane = p / HEADS * STRIDE, head = p % HEADS;
                const int64_t there = plane + base[out] + (head * cap[out] + to[m]) * DIM,
                              here = plane + base[in] + (head * cap[in] + from[m]) * DIM;
                memcpy(expected + there * size, before + here * size,
                       (size_t)(len[m] * DIM * size));
            }
        }
        for (int w = 0; w < n_ways; w++) {
            memcpy(got, before, bytes);
            cpu->move(ways[w].exec, got, &args);
            CHECK_MEM(got, expected, bytes);
        }
    }
    args.n = 0;
    cpu->move(ways[0].exec, got, &args);
    free(before);
    free(expected);
    free(got);
    cpu_close(ways, n_ways);
}

/* ------------------------------------------------------------------ functions and environment */

/* Distance from the double result in units of the float's last place. */
static double ulps(float got, double expected)
{
    int exponent;
    frexp(expected, &exponent);
    return fabs(got - expected) / ldexp(1.0, exponent - 24);
}

static void test_exp_and_log(void)
{
    float lanes[V16];
    double worst_exp = 0.0, worst_log = 0.0;

    for (float x = -87.3f; x < 88.7f; x += 0.00037f) {
        v_store(lanes, v_exp(v_set1(x)));
        worst_exp = fmax(worst_exp, ulps(lanes[0], exp((double)x)));
    }
    for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 9973u)
        /* Near 1 the logarithm passes through 0, so the bound there is absolute, below. */
        if (bits < 0x3f7f0000u || bits > 0x3f810000u)
            worst_log = fmax(worst_log, ulps(sb_log(bits_f32(bits)), log((double)bits_f32(bits))));
    printf("     exp within %.2f ulp, log within %.2f ulp\n", worst_exp, worst_log);
    CHECK(worst_exp < 1.5 && worst_log < 1.5);
    for (float x = 0.99f; x < 1.01f; x += 1e-6f)
        CHECK(fabs(sb_log(x) - log((double)x)) < 1e-9);
    v_store(lanes, v_exp(v_set1(-INFINITY)));
    CHECK(lanes[0] == 0.0f);
    v_store(lanes, v_exp(v_set1(INFINITY)));
    CHECK(isinf(lanes[0]));
    v_store(lanes, v_exp(v_set1(NAN)));
    CHECK(isnan(lanes[0]) && isnan(sb_log(NAN)) && isinf(sb_log(INFINITY)) && sb_log(1.0f) == 0.0f);
    v_store(lanes, v_exp(v_set1(0.0f)));
    CHECK(lanes[0] == 1.0f);
}

/* For x that is not above 0 the shorter function has the bits of the other. (It has for all 2^31 of
 * them; here some that are spread over the range.) */
static void test_exp_of_negative(void)
{
    float x[V16], got[V16], expected[V16];

    for (uint64_t bits = 0x80000000u; bits + 7 * V16 <= 0xffffffffu; bits += 7919u) {
        for (uint32_t i = 0; i < V16; i++)
            x[i] = bits_f32((uint32_t)bits + 7 * i);
        v_store(expected, v_exp(v_load(x)));
        v_store(got, v_exp_negative(v_load(x)));
        const int64_t at = cpu_first_difference(got, expected, V16);
        if (at >= 0)
            FAIL("e^%a: %a, expected %a", (double)x[at], (double)got[at], (double)expected[at]);
    }
    v_store(got, v_exp_negative(v_set1(0.0f)));
    CHECK(got[0] == 1.0f);
}

/* The results of a gemm, a gated MLP and a selection. */
static void sample_results(struct cpu *way, const float *x, float out[64 + 32 + 1])
{
    struct sb_weight weight = {.n_out = 64, .n_in = 32};
    float logits[64];
    int32_t at = 0, id;

    memcpy(logits, x, sizeof logits);
    if (cpu->weight_create(&weight, way->device, &cpu_mem, SB_F32) == SPECBATCH_OK) {
        cpu->weight_fill(&weight, way->device, 0, 64, x, SB_F32);
        cpu->gemm(way->exec, out, x, &weight, NULL, 1);
        cpu->weight_free(&weight, way->device, &cpu_mem);
    }
    sb_cpu_op_gate(way->exec, out + 64, x, SB_GATE_SILU, 1, 32);
    cpu->select(way->exec,
                &(struct sb_select){1, 64, 64, logits, &at, &id, out + 64 + 32, NULL, NULL, NULL});
}

/* A host that rounds upwards and keeps denormals gets the same bits, and gets its own environment
 * back. */
static void test_fp_environment(void)
{
    enum { N = 64 + 32 + 1 };
    struct cpu ways[CPU_WAYS];
    struct sb_fp_env ours, host;
    float *x = cpu_floats(64 * 32), calm[N], hostile[N];
    volatile float tiny = 0x1p-126f, three = 3.0f;
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    for (int i = 0; i < 64 * 32; i += 5)
        x[i] *= 0x1p-126f;
    for (int w = 0; w < n_ways; w++) {
        sample_results(&ways[w], x, calm);
        sb_port_fp_enter(&ours);
        fesetenv(FE_DFL_ENV);
        fesetround(FE_UPWARD);
        sb_port_fp_enter(&host);
        int flushed = tiny / 2.0f == 0.0f, nearest = 1.0f / three == 0x1.555556p-2f;
        sample_results(&ways[w], x, hostile);
        sb_port_fp_leave(&host);
        int restored = fegetround() == FE_UPWARD && tiny / 2.0f != 0.0f &&
                       -1.0f / three == -0x1.555554p-2f;
        sb_port_fp_leave(&ours);
        CHECK(flushed && nearest && restored);
        CHECK_SAME(hostile, calm, N, ways[w].name);
    }
    free(x);
    cpu_close(ways, n_ways);
}

/* ------------------------------------------------------------------ memory */

static size_t bytes_taken;
static int allocations_left;

static void *counted_alloc(void *user, size_t size, size_t align)
{
    (void)user;
    if (allocations_left-- <= 0)
        return NULL;
    bytes_taken += size;
    return aligned_alloc(align, size);
}

static void counted_free(void *user, void *block, size_t size)
{
    (void)user;
    bytes_taken -= size;
    free(block);
}

/* exec_bytes says what exec_create takes. Each allocation of it is made to fail, and then nothing
 * may be left behind. */
static void test_memory(void)
{
    const struct sb_mem counted = {counted_alloc, counted_free, NULL};
    const struct sb_exec_limits limits = {.max_tokens = 100,
                                          .max_width = 1000,
                                          .max_len = 10,
                                          .max_heads = 4,
                                          .max_head_dim = 8,
                                          .max_expert_width = 1000,
                                          .max_experts = 5,
                                          .max_chosen = 2};

    for (int32_t compute = SPECBATCH_COMPUTE_BF16; compute <= SPECBATCH_COMPUTE_F32; compute++) {
        struct sb_device_options options = {.compute = compute, .simd = SPECBATCH_SIMD_AUTO};
        struct sb_device *device;
        struct sb_exec *exec;
        struct sb_weight weight = {.n_out = 10, .n_in = 10};
        int allowed = 0;

        allocations_left = 0;
        CHECK_INT(cpu->device_open(&device, &counted, &options), SPECBATCH_E_NOMEM);
        CHECK_OK(cpu->device_open(&device, &cpu_mem, &options));
        CHECK_INT(cpu->weight_create(&weight, device, &counted, SB_F32), SPECBATCH_E_NOMEM);
        do {
            CHECK_INT(bytes_taken, 0);
            allocations_left = allowed++;
        } while (cpu->exec_create(&exec, device, &counted, 3, &limits, NULL) == SPECBATCH_E_NOMEM);
        CHECK(allowed > 4);
        CHECK(bytes_taken <= cpu->exec_bytes(device, 3, &limits));
        CHECK(bytes_taken + 1024 > cpu->exec_bytes(device, 3, &limits));
        CHECK_OK(cpu->exec_sync(exec));
        cpu->exec_free(exec);
        cpu->device_close(device);
        CHECK_INT(bytes_taken, 0);
    }
}

static void test_device(void)
{
    struct cpu ways[CPU_WAYS];
    struct sb_device *device;
    struct sb_device_options options = {.compute = SPECBATCH_COMPUTE_F32, .simd = 7};
    int n_ways = cpu_open(ways, SPECBATCH_COMPUTE_F32);

    CHECK_ERROR(cpu->device_open(&device, &cpu_mem, &options), SPECBATCH_E_UNSUPPORTED,
                "SIMD level");
    /* a class names arithmetic, and all levels do the same */
    for (int w = 0; w < n_ways; w++)
        CHECK_STR(cpu->device_class(ways[w].device), cpu->device_class(ways[0].device));
    cpu_close(ways, n_ways);
}

TEST_BEGIN
struct sb_fp_env env;
cpu = sb_backend_cpu();
sb_port_fp_enter(&env);
RUN(test_embed);
RUN(test_weight_types);
RUN(test_norm);
RUN(test_gates);
RUN(test_gates_keep_nans);
RUN(test_soft_caps);
RUN(test_select);
RUN(test_select_special);
RUN(test_accept);
RUN(test_move);
RUN(test_exp_and_log);
RUN(test_exp_of_negative);
RUN(test_fp_environment);
RUN(test_memory);
RUN(test_device);
TEST_END
