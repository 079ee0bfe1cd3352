/*
 * Mixtures of experts on a device, by all their launches (src/backend/cuda/mix_run.c).
 *
 *   f32 class      the bits of the CPU's operation, which test/cpu/test_mix.c compares with what
 *                  struct sb_mixture says
 *   16-bit class   the bits of what struct sb_mixture says, with each expert's products made by the
 *                  launchers of single weights, for all rows at once
 *
 * Rows of the operation are drawn from a few, and so repeat in any order: a row has the same bits
 * wherever it is. There are weights of 16 bits and f32, quantised ones, and experts that have both,
 * each in another way. Device allocations have exactly their size, as in test_cuda_kernels.c, but
 * for weights, which lie in one.
 */
#define SB_LEVEL_SCALAR 1
#include "backend/cuda/mix_run.h"
#include "backend/cuda/quant_pack.h"

#include "cuda/against_cpu.h"
#include "kernels/cuda/quant_tile.h"
#include "support/mixture.h"
#include "support/random_blocks.h"

enum { BASE_ROWS = 7, MOST_ROWS = 300, MOST_EXPERTS = 301 };

/* What the weights of the experts are: all in 16 bits, or f32; all quantised, in blocks of 32 or
 * of 256 columns; all in codes of MXFP4; or some of each, gate and up in different types too. */
enum content { PLAIN, QUANTISED, K_QUANTS, CODES, MIXED };

struct shape {
    int32_t hidden, inter, experts, chosen;
};

/* A map as the CPU and the device have it. */
struct map {
    struct sb_weight cpu[2], dev[2]; /* the second of each: next of the first, or unused */
};

struct problem {
    struct shape s;
    enum sb_dtype type; /* of the device's class */
    enum content content;
    enum kind kind;
    enum sb_gate gate;
    struct choice choice;
    int32_t experts;                 /* with the shared one */
    float *bias;                     /* [experts] */
    float *gate_up_bias, *down_bias; /* [experts, 2 * inter], [experts, hidden]; or NULL */
    struct map (*maps)[2];           /* [experts]: gate and up; down */
    struct sb_mlp *on_cpu, *on_dev;
    char *arena; /* the device's weights on the host, of which pieces are dealt out */
    size_t arena_used, arena_bytes;
    char *h;       /* [BASE_ROWS] gemm inputs, of the device's type */
    float *floats; /* the same */
    float *logits, *expected;
};

static uint64_t state = 11;

static size_t input_bytes(const struct problem *p, int32_t n)
{
    return (size_t)sb_cuda_ld(p->type, n) * sb_dtype_size(p->type);
}

/* ------------------------------------------------------------------ weights */

/* A part of a map: rows of one type. */
struct part {
    enum sb_dtype dtype;
    int32_t rows;
};

/* Which parts a map has; returns how many. */
static int parts_of(struct part parts[2], const struct problem *p, int32_t expert, int is_down)
{
    const int32_t n_out = is_down ? p->s.hidden : 2 * p->s.inter;

    parts[0] = (struct part){p->type, n_out};
    if (p->content == QUANTISED)
        parts[0].dtype = is_down ? SB_Q8_0 : SB_Q4_0;
    if (p->content == K_QUANTS)
        parts[0].dtype = is_down ? SB_Q6_K : SB_Q4_K;
    if (p->content == CODES)
        parts[0].dtype = SB_MXFP4;
    if (p->content != MIXED || expert % 3 == 1)
        return 1;
    parts[0].dtype = is_down && expert % 3 == 0 ? SB_Q4_0 : SB_Q8_0;
    if (is_down || expert % 3 == 2)
        return 1;
    parts[0].rows = n_out / 2;
    parts[1] = (struct part){p->type, n_out / 2};
    return 2;
}

/* Deals out room in the arena, and returns where. */
static size_t room_for(struct problem *p, size_t bytes)
{
    const size_t at = p->arena_used;

    p->arena_used += (bytes + 255) / 256 * 256;
    if (p->arena_used > p->arena_bytes) {
        p->arena_bytes = 2 * p->arena_used;
        p->arena = realloc(p->arena, p->arena_bytes);
        if (!p->arena)
            exit(2);
    }
    memset(p->arena + at, 0, p->arena_used - at);
    return at;
}

/* Rows of a part in the type that it has on the CPU: f32, 16 bits, or blocks. */
static void *make_rows(const struct problem *p, const struct part *part, int32_t n_in, int32_t e)
{
    const size_t row = sb_dtype_row_bytes(part->dtype, (size_t)n_in);
    char *rows = cpu_memory((size_t)part->rows * row);

    for (int32_t r = 0; r < part->rows; r++)
        if (sb_dtype_is_quantised(part->dtype))
            random_row(rows + (size_t)r * row, part->dtype, (size_t)n_in, RANDOM_CENTRED, 0.2f,
                       &state);
        else
            for (int32_t k = 0; k < n_in; k++)
                put(rows + (size_t)r * row, k,
                    p->kind == CROWDED && e == 0 ? NAN : cpu_uniform() * 0.5f, part->dtype, 0);
    return rows;
}

/* Puts the rows into the arena as products read them, and returns where. */
static size_t place_rows(struct problem *p, const struct part *part, const char *rows, int32_t n_in,
                         int32_t gated)
{
    const enum sb_dtype dtype = part->dtype;
    const int64_t ld = sb_cuda_ld(dtype, n_in);
    const size_t row = sb_dtype_row_bytes(dtype, (size_t)n_in);
    size_t at;

    if (sb_dtype_is_quantised(dtype)) {
        at = room_for(p, sb_tile_weight_bytes(dtype, part->rows, n_in));
        sb_quant_pack(p->arena + at, dtype, n_in, 0, part->rows, rows);
        return at;
    }
    at = room_for(p, (size_t)sb_cuda_weight_size(dtype, part->rows, n_in) * sb_dtype_size(dtype));
    if (dtype == SB_F32)
        memcpy(p->arena + at, rows, (size_t)part->rows * row);
    for (int64_t r = 0; dtype != SB_F32 && r < part->rows; r++)
        for (int64_t k = 0; k < n_in; k++)
            memcpy(p->arena + at +
                       2 * (size_t)(sb_cuda_tiled(sb_cuda_tiled_row(r, gated), k / 8, ld) + k % 8),
                   rows + (size_t)r * row + 2 * (size_t)k, 2);
    return at;
}

static void make_map(struct problem *p, int32_t e, int is_down)
{
    const int32_t n_in = is_down ? p->s.inter : p->s.hidden;
    const int gates = !is_down && p->gate == SB_GATE_SILU && p->type != SB_F32;
    struct map *map = &p->maps[e][is_down];
    struct part parts[2];
    const int n = parts_of(parts, p, e, is_down);

    for (int i = 0; i < n; i++) {
        void *rows = make_rows(p, &parts[i], n_in, e);
        const int32_t gated = gates && n == 1 ? p->s.inter : 0;
        map->dev[i] = (struct sb_weight){
            .n_out = parts[i].rows, .n_in = n_in, .dtype = parts[i].dtype, .gated = gated};
        map->dev[i].bytes = place_rows(p, &parts[i], rows, n_in, gated);
        if (p->type == SB_F32)
            CHECK(cpu_weight(&map->cpu[i], way, rows, parts[i].rows, n_in, parts[i].dtype));
        free(rows);
    }
    if (n == 2) {
        map->dev[0].next = &map->dev[1];
        map->cpu[0].next = &map->cpu[1];
    }
}

static void make_weights(struct problem *p)
{
    const size_t n = (size_t)p->experts;
    char *dev;

    p->maps = calloc(n, sizeof *p->maps);
    p->on_cpu = calloc(n, sizeof *p->on_cpu);
    p->on_dev = calloc(n, sizeof *p->on_dev);
    for (int32_t e = 0; e < p->experts; e++)
        for (int is_down = 0; is_down < 2; is_down++)
            make_map(p, e, is_down);
    dev = given(p->arena, p->arena_used);
    for (int32_t e = 0; e < p->experts; e++) {
        for (int i = 0; i < 4; i++) {
            struct sb_weight *weight = &p->maps[e][i / 2].dev[i % 2];
            weight->data = dev + weight->bytes;
        }
        p->on_dev[e] = (struct sb_mlp){p->maps[e][0].dev[0], p->maps[e][1].dev[0]};
        p->on_cpu[e] = (struct sb_mlp){p->maps[e][0].cpu[0], p->maps[e][1].cpu[0]};
    }
}

/* ------------------------------------------------------------------ problems */

static struct problem problem_make(const struct shape *s, enum sb_dtype type, enum content content,
                                   enum kind kind, int form)
{
    struct problem p = {.s = *s,
                        .type = type,
                        .content = content,
                        .kind = kind,
                        .gate = gate_of_form(form),
                        .bias = cpu_floats(s->experts)};
    const size_t row = input_bytes(&p, s->hidden);

    p.choice = choice_of(form, s->experts, s->chosen, p.bias);
    p.experts = s->experts + p.choice.has_shared;
    for (int e = 0; kind == CROWDED && e < 2; e++)
        p.bias[e] = e == 0 ? -2.0f : 2.0f;

    if (form & FORM_CLAMPED) {
        p.gate_up_bias = cpu_floats(p.experts * 2 * s->inter);
        p.down_bias = cpu_floats(p.experts * s->hidden);
    }
    make_weights(&p);
    p.h = calloc(BASE_ROWS, row);
    p.floats = cpu_floats(BASE_ROWS * s->hidden);
    if (kind == WILD)
        p.floats[5 * s->hidden] = NAN, p.floats[6 * s->hidden] = INFINITY;
    for (int32_t i = 0; i < BASE_ROWS * s->hidden; i++) {
        char *to = p.h + (size_t)(i / s->hidden) * row;
        put(to, i % s->hidden, p.floats[i], type, 0);
    }
    p.logits = cpu_floats(BASE_ROWS * s->experts);
    for (int32_t i = 0; i < BASE_ROWS * s->experts; i++)
        p.logits[i] = logit_of(kind, i / s->experts, i % s->experts);
    p.expected = cpu_floats(BASE_ROWS * s->hidden);
    return p;
}

static void problem_free(struct problem *p)
{
    for (int32_t e = 0; e < p->experts; e++)
        for (int i = 0; i < 4; i++)
            cpu->weight_free(&p->maps[e][i / 2].cpu[i % 2], way->device, &cpu_mem);
    free(p->bias);
    free(p->gate_up_bias);
    free(p->down_bias);
    free(p->maps);
    free(p->on_cpu);
    free(p->on_dev);
    free(p->arena);
    free(p->h);
    free(p->floats);
    free(p->logits);
    free(p->expected);
    free_all();
}

/* ------------------------------------------------------------------ expectations */

static struct sb_mixture mixture_of(const struct problem *p, int32_t m)
{
    return (struct sb_mixture){.m = m,
                               .hidden = p->s.hidden,
                               .inter = p->s.inter,
                               .n_experts = p->s.experts,
                               .chosen = p->s.chosen,
                               .has_shared = p->choice.has_shared,
                               .scoring = p->choice.scoring,
                               .renormalises = p->choice.renormalises,
                               .scale = p->choice.scale,
                               .gate = p->gate};
}

static void expect_of_cpu(struct problem *p)
{
    const int32_t pairs = BASE_ROWS * (p->s.chosen + p->choice.has_shared);
    struct sb_mixture mixture = mixture_of(p, BASE_ROWS);
    float *rows = cpu_floats((int64_t)pairs * p->s.hidden);
    float *act = cpu_floats((int64_t)pairs * p->s.inter);
    float *out = cpu_floats((int64_t)pairs * p->s.hidden);
    float *gate_up = cpu_floats((int64_t)pairs * 2 * p->s.inter);
    float *logits = cpu_floats(BASE_ROWS * p->s.experts);

    memcpy(logits, p->logits, (size_t)(BASE_ROWS * p->s.experts) * sizeof *logits);
    mixture.experts = p->on_cpu;
    mixture.bias = p->choice.bias;
    mixture.gate_up_bias = p->gate_up_bias;
    mixture.down_bias = p->down_bias;
    mixture.logits = logits;
    mixture.h = p->floats;
    mixture.y = p->expected;
    mixture.rows = rows;
    mixture.act = act;
    mixture.out = out;
    mixture.gate_up = gate_up;
    cpu->mix(way->exec, &mixture);
    free(rows);
    free(act);
    free(out);
    free(gate_up);
    free(logits);
}

/* y [BASE_ROWS, n_out], on the host, of x, on the device, by a map of the 16-bit class. bias:
 * [n_out] on the host, or NULL */
static void multiply(float *y, const struct problem *p, const void *x, const struct sb_weight *map,
                     const float *bias)
{
    int32_t n_out = 0, at = 0;

    for (const struct sb_weight *w = map; w; w = w->next)
        n_out += w->n_out;
    for (const struct sb_weight *w = map; w; at += w->n_out, w = w->next) {
        const size_t row = (size_t)w->n_out * sizeof *y;
        float *some = cpu_memory(BASE_ROWS * row), *dev = fresh(BASE_ROWS * row);
        const float *of_part = bias ? given_floats(bias + at, w->n_out) : NULL;
        CHECK_CUDA(sb_dtype_is_quantised(w->dtype)
                       ? sb_cuda_gemm_quant(dev, w->n_out, x, p->type, w->data, w->dtype, of_part,
                                            BASE_ROWS, w->n_out, w->n_in, stream)
                       : sb_cuda_gemm_mma(dev, x, w->data, p->type, of_part, BASE_ROWS, w->n_out,
                                          w->n_in, w->gated, product_limits(p->type), stream));
        CHECK_CUDA(fetch(some, dev, BASE_ROWS * row));
        for (int32_t r = 0; r < BASE_ROWS; r++)
            memcpy(y + r * n_out + at, some + r * w->n_out, row);
        free(some);
    }
}

/* out [BASE_ROWS, hidden] = an expert's MLP of all rows h, on the device. */
static void one_mlp(float *out, const struct problem *p, const void *h, int32_t e)
{
    const int mark = n_owned;
    const int64_t n = (int64_t)BASE_ROWS * 2 * p->s.inter;
    float *gate_up = cpu_floats(n);
    void *act = fresh(BASE_ROWS * input_bytes(p, p->s.inter));

    multiply(gate_up, p, h, &p->on_dev[e].gate_up,
             p->gate_up_bias ? p->gate_up_bias + e * 2 * p->s.inter : NULL);
    CHECK_CUDA(sb_cuda_gate(act, p->type, given_floats(gate_up, n), p->gate, BASE_ROWS, p->s.inter,
                            stream));
    multiply(out, p, act, &p->on_dev[e].down, p->down_bias ? p->down_bias + e * p->s.hidden : NULL);
    free(gate_up);
    free_to(mark);
}

static void expect_of_launchers(struct problem *p)
{
    const int32_t n = p->s.hidden, mark = n_owned;
    void *h = given(p->h, BASE_ROWS * input_bytes(p, n));
    float *out = cpu_floats(BASE_ROWS * n), w[BASE_ROWS][MOST_EXPERTS];
    char chosen[BASE_ROWS][MOST_EXPERTS];

    memset(p->expected, 0, (size_t)(BASE_ROWS * n) * sizeof(float));
    for (int r = 0; r < BASE_ROWS; r++)
        weigh(w[r], chosen[r], &p->choice, p->logits + r * p->s.experts);
    for (int32_t e = 0; e < p->experts && !sbtest_failed_now; e++) {
        int is_wanted = 0;
        for (int r = 0; r < BASE_ROWS; r++)
            is_wanted |= chosen[r][e];
        if (!is_wanted)
            continue;
        one_mlp(out, p, h, e);
        for (int32_t i = 0; i < BASE_ROWS * n; i++) {
            const float product = w[i / n][e] * out[i];
            p->expected[i] = chosen[i / n][e] ? p->expected[i] + product : p->expected[i];
        }
    }
    free(out);
    free_to(mark);
}

/* ------------------------------------------------------------------ the operation */

/* Runs it for m rows, from[] of those of the problem. y [m, hidden] */
static void run(float *y, const struct problem *p, const int32_t *from, int32_t m)
{
    const int32_t of_row = p->s.chosen + p->choice.has_shared;
    const struct sb_exec_limits limits = {
        .max_tokens = m, .max_experts = p->experts, .max_chosen = of_row};
    const size_t pairs = (size_t)m * (size_t)of_row, row = input_bytes(p, p->s.hidden);
    const size_t logits_row = (size_t)p->s.experts * sizeof(float);
    struct sb_mixture mixture = mixture_of(p, m);
    char *h = cpu_memory((size_t)m * row), *logits = cpu_memory((size_t)m * logits_row);
    const int mark = n_owned;

    for (int32_t r = 0; r < m; r++) {
        memcpy(h + (size_t)r * row, p->h + (size_t)from[r] * row, row);
        memcpy(logits + (size_t)r * logits_row, p->logits + from[r] * p->s.experts, logits_row);
    }
    mixture.experts = p->on_dev;
    mixture.bias = p->choice.bias ? given_floats(p->bias, p->s.experts) : NULL;
    if (p->gate_up_bias) {
        mixture.gate_up_bias = given_floats(p->gate_up_bias, p->experts * 2 * p->s.inter);
        mixture.down_bias = given_floats(p->down_bias, p->experts * p->s.hidden);
    }
    mixture.logits = given(logits, (size_t)m * logits_row);
    mixture.h = given(h, (size_t)m * row);
    mixture.y = fresh((size_t)(m * p->s.hidden) * sizeof(float));
    mixture.rows = NULL; /* rows are gathered by the products */
    mixture.act = fresh(pairs * input_bytes(p, p->s.inter));
    mixture.gate_up = fresh(pairs * 2 * (size_t)p->s.inter * sizeof(float));
    mixture.out = fresh(pairs * (size_t)p->s.hidden * sizeof(float));
    CHECK_CUDA(sb_mix_run(p->type, &mixture, fresh(sb_cuda_pairs_bytes(&limits)), stream));
    CHECK_CUDA(fetch(y, mixture.y, (size_t)(m * p->s.hidden) * sizeof(float)));
    free(h);
    free(logits);
    free_to(mark);
}

static void check_rows(const struct problem *p, int32_t m)
{
    int32_t from[MOST_ROWS];
    float *y = cpu_floats((int64_t)m * p->s.hidden);

    for (int32_t r = 0; r < m; r++)
        from[r] = (int32_t)(cpu_random() % BASE_ROWS);
    run(y, p, from, m);
    for (int32_t r = 0; r < m && !sbtest_failed_now; r++)
        CHECK_SAME(y + (int64_t)r * p->s.hidden, p->expected + from[r] * p->s.hidden, p->s.hidden,
                   "row %d of %d: %s, content %d, logits %d, hidden %d, inter %d, %d of %d experts",
                   (int)r, (int)m, sb_dtype_name(p->type), p->content, p->kind, (int)p->s.hidden,
                   (int)p->s.inter, (int)p->s.chosen, (int)p->s.experts);
    free(y);
}

static void check(const struct shape *s, enum sb_dtype type, enum content content, enum kind kind,
                  int form, const int32_t *rows)
{
    struct problem p = problem_make(s, type, content, kind, form);

    if (type == SB_F32)
        expect_of_cpu(&p);
    else
        expect_of_launchers(&p);
    for (; *rows > 0 && !sbtest_failed_now; rows++)
        check_rows(&p, *rows);
    problem_free(&p);
}

/* ------------------------------------------------------------------ tests */

/* Few rows have tiles of 8, more of them tiles of 32, or 16 where weights are quantised, and many
 * for each expert tiles of 64. */
static const int32_t rows[] = {1, 8, 9, 50, 0}, many_rows[] = {MOST_ROWS, 0};
static const struct shape usual = {72, 40, 7, 3}, wide = {256, 256, 5, 2};

static void in_class(enum sb_dtype type)
{
    static const struct shape shapes[] = {
        {33, 17, 40, 8}, {64, 130, 4, 4}, {1, 1, 3, 2}, {8, 8, 40, 35}, {5, 3, 1, 1}};

    for (int i = 0; i < FORMS && !sbtest_failed_now; i++)
        check(&usual, type, PLAIN, (enum kind)((i + i / 4) % 4), forms[i], rows);
    for (int i = 0; i < COUNT(shapes) && !sbtest_failed_now; i++)
        check(&shapes[i], type, PLAIN, i % 2 ? WILD : USUAL, forms[FORMS - 1 - i],
              rows + 2 * (i % 2));
    if (!sbtest_failed_now)
        check(&(struct shape){24, 16, 2, 1}, type, PLAIN, USUAL, FORM_SUM_IS_1, many_rows);
}

static void quantised_in_class(enum sb_dtype type)
{
    for (int kind = USUAL; kind <= WILD && !sbtest_failed_now; kind++)
        check(&(struct shape){64, 32, 7, 3}, type, kind % 2 ? MIXED : QUANTISED, (enum kind)kind,
              forms[kind + 1], rows);
    if (!sbtest_failed_now)
        check(&(struct shape){64, 32, 7, 3}, type, MIXED, USUAL, FORM_SIGMOID | FORM_SHARED, rows);
    if (!sbtest_failed_now)
        check(&(struct shape){64, 32, 7, 3}, type, MIXED, USUAL, FORM_CLAMPED | FORM_SUM_IS_1,
              rows);
    if (!sbtest_failed_now)
        check(&wide, type, K_QUANTS, USUAL, FORM_SUM_IS_1, rows + 1);
    if (!sbtest_failed_now)
        check(&(struct shape){96, 64, 7, 3}, type, CODES, USUAL, FORM_CLAMPED | FORM_SUM_IS_1,
              rows);
}

static void test_mix_f32(void)
{
    in_class(SB_F32);
}

static void test_mix_f32_quantised(void)
{
    quantised_in_class(SB_F32);
}

static void test_mix_bf16(void)
{
    in_class(SB_BF16);
}

static void test_mix_f16(void)
{
    in_class(SB_F16);
}

static void test_mix_16_bit_quantised(void)
{
    quantised_in_class(SB_BF16);
    if (!sbtest_failed_now)
        check(&usual, SB_F16, QUANTISED, USUAL, 0, rows);
}

/* More experts than the arguments of a launch hold. */
static void test_mix_many_experts(void)
{
    const struct shape many = {8, 8, MOST_EXPERTS - 1, 5};

    check(&many, SB_F32, PLAIN, USUAL, FORM_SUM_IS_1, rows + 2);
    if (!sbtest_failed_now)
        check(&many, SB_BF16, PLAIN, USUAL, FORM_SIGMOID | FORM_SHARED, rows + 2);
}

/* A pass may have no rows. */
static void test_mix_no_rows(void)
{
    CHECK_CUDA(
        sb_mix_run(SB_BF16, &(struct sb_mixture){.n_experts = 4, .chosen = 2}, NULL, stream));
}

TEST_BEGIN
const int has_device = both_begin();
if (has_device) {
    RUN(test_mix_f32);
    RUN(test_mix_f32_quantised);
    RUN(test_mix_bf16);
    RUN(test_mix_f16);
    RUN(test_mix_16_bit_quantised);
    RUN(test_mix_many_experts);
    RUN(test_mix_no_rows);
}
both_end(has_device);
TEST_END
