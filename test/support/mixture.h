/*
 * Which experts of a mixture a row goes to and with what weights, as struct sb_mixture of backend.h
 * says it: with every float operation in its order, e^x being that of kernels/cpu/math.h. And the
 * logits and ways of choosing that tests have. A file that includes this one defines
 * SB_LEVEL_SCALAR before anything else.
 */
#ifndef TEST_SUPPORT_MIXTURE_H
#define TEST_SUPPORT_MIXTURE_H

#include <math.h>

#include "backend/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"

#include "support/cpu_ways.h"

enum { CHOICE_MOST = 512 }; /* experts */

/* What decides. bias: of sigmoids, or NULL */
struct choice {
    int experts, chosen, renormalises, has_shared;
    enum sb_scoring scoring;
    float scale;
    const float *bias;
};

/* Ways of choosing, and gates, as sums of these. With the clamped gate experts have biases. */
enum {
    FORM_GELU = 1,
    FORM_SUM_IS_1 = 2,
    FORM_SIGMOID = 4,
    FORM_SHARED = 8,
    FORM_BIAS = 16,
    FORM_CLAMPED = 32
};
static const int forms[] = {0,
                            FORM_GELU,
                            FORM_SUM_IS_1,
                            FORM_GELU | FORM_SUM_IS_1,
                            FORM_SHARED,
                            FORM_SIGMOID | FORM_SHARED | FORM_BIAS,
                            FORM_SIGMOID | FORM_SUM_IS_1 | FORM_BIAS,
                            FORM_SIGMOID | FORM_SUM_IS_1 | FORM_SHARED,
                            FORM_CLAMPED | FORM_SUM_IS_1};
enum { FORMS = sizeof forms / sizeof *forms };

static inline enum sb_gate gate_of_form(int form)
{
    return form & FORM_CLAMPED ? SB_GATE_CLAMPED : form & FORM_GELU ? SB_GATE_GELU : SB_GATE_SILU;
}

/* bias: [experts], for forms that have one */
static inline struct choice choice_of(int form, int experts, int chosen, const float *bias)
{
    return (struct choice){experts,
                           chosen,
                           (form & FORM_SUM_IS_1) != 0,
                           (form & FORM_SHARED) != 0,
                           form & FORM_SIGMOID ? SB_SCORE_SIGMOID : SB_SCORE_SOFTMAX,
                           form & FORM_SIGMOID ? 2.5f : 1.0f,
                           form & FORM_BIAS ? bias : NULL};
}

/* What the logits of a case are. CROWDED: every row chooses expert 1, and none chooses expert 0,
 * whose weights are NaN where their type has one. */
enum kind { USUAL, TIES, CROWDED, WILD };

static inline float logit_of(enum kind kind, int row, int e)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, -0.0f, 0.0f};
    const uint32_t n_special = sizeof special / sizeof *special;
    const float any = cpu_uniform() * 4.0f;

    if (kind == TIES)
        return row == 0 ? 1.5f : floorf(any) * 0.5f;
    if (kind == CROWDED)
        return e == 0 ? -1e3f : e == 1 ? 9.0f : any;
    if (kind != WILD)
        return row == 1 ? any * 50.0f : any;
    switch (row) {
    case 0:
        return NAN;
    case 1:
        return -INFINITY;
    case 2:
        return e == 2 ? NAN : any;
    case 3:
        return e == 0 ? any : NAN;
    case 4:
        return e == 1 ? any : -INFINITY;
    default:
        return cpu_random() % 3 == 0 ? special[cpu_random() % n_special] : any;
    }
}

static inline double rank_of(float rank)
{
    return isnan(rank) ? -INFINITY : (double)rank;
}

/* Marks the chosen ones of all experts, and returns the largest rank. */
static inline double choose(char *chosen, const struct choice *c, const float *ranks)
{
    double largest = -INFINITY;

    for (int e = 0; e < c->experts; e++)
        chosen[e] = 0;
    for (int i = 0; i < c->chosen; i++) {
        int best = -1;
        for (int e = 0; e < c->experts; e++)
            if (!chosen[e] && (best < 0 || rank_of(ranks[e]) > rank_of(ranks[best])))
                best = e;
        chosen[best] = 1;
        largest = fmax(largest, rank_of(ranks[best]));
    }
    return largest;
}

static inline float exp_of(float x)
{
    float lanes[V16];

    v_store(lanes, v_exp(v_set1(x)));
    return lanes[0];
}

/* What experts are ranked by, of their logits; and their p, if that is a sigmoid. */
static inline void rank_all(float *ranks, float *p, const struct choice *c, const float *logits)
{
    for (int e = 0; e < c->experts; e++) {
        if (c->scoring == SB_SCORE_SIGMOID)
            p[e] = 1.0f / (1.0f + exp_of(0.0f - logits[e]));
        ranks[e] = c->scoring == SB_SCORE_SOFTMAX ? logits[e] : c->bias ? p[e] + c->bias[e] : p[e];
    }
}

/* Marks the chosen experts and the shared one, whose weights are then in w. Both arrays have a
 * place for each. */
static inline void weigh(float *w, char *chosen, const struct choice *c, const float *logits)
{
    const int is_softmax = c->scoring == SB_SCORE_SOFTMAX;
    float ranks[CHOICE_MOST], largest, sum = 0.0f;

    rank_all(ranks, w, c, logits);
    largest = (float)choose(chosen, c, ranks);
    for (int e = 0; e < c->experts; e++) {
        if (is_softmax)
            w[e] = exp_of(logits[e] - largest);
        if (chosen[e] || (is_softmax && !c->renormalises))
            sum += w[e];
    }
    for (int e = 0; e < c->experts; e++) {
        if (is_softmax || c->renormalises)
            w[e] /= is_softmax ? sum : sum + 1e-20f;
        w[e] *= c->scale;
    }
    if (c->has_shared) {
        chosen[c->experts] = 1;
        w[c->experts] = 1.0f;
    }
}

#endif
