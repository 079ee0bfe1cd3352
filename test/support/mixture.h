/*
 * Which experts of a mixture a row goes to and with what weights, as struct sb_mixture of backend.h
 * says it: with every float operation in its order, e^x being that of kernels/cpu/math.h. A file
 * that includes this one defines SB_LEVEL_SCALAR before anything else.
 */
#ifndef TEST_SUPPORT_MIXTURE_H
#define TEST_SUPPORT_MIXTURE_H

#include <math.h>
#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"

/* The numbers of a mixture that decide. */
struct choice {
    int experts, chosen, renormalises;
};

static inline double rank_of(float logit)
{
    return isnan(logit) ? -INFINITY : (double)logit;
}

/* Marks the chosen ones of all experts, and returns the largest logit. */
static inline double choose(char *chosen, const struct choice *c, const float *logits)
{
    double largest = -INFINITY;

    memset(chosen, 0, (size_t)c->experts);
    for (int i = 0; i < c->chosen; i++) {
        int best = -1;
        for (int e = 0; e < c->experts; e++)
            if (!chosen[e] && (best < 0 || rank_of(logits[e]) > rank_of(logits[best])))
                best = e;
        chosen[best] = 1;
        largest = fmax(largest, rank_of(logits[best]));
    }
    return largest;
}

static inline float exp_of(float x)
{
    float lanes[V16];

    v_store(lanes, v_exp(v_set1(x)));
    return lanes[0];
}

/* The same, and the weights of the chosen ones in w, which has a place for each expert. */
static inline void weigh(float *w, char *chosen, const struct choice *c, const float *logits)
{
    const float largest = (float)choose(chosen, c, logits);
    float sum = 0.0f;

    for (int e = 0; e < c->experts; e++) {
        w[e] = exp_of(logits[e] - largest);
        if (chosen[e] || !c->renormalises)
            sum += w[e];
    }
    for (int e = 0; e < c->experts; e++)
        w[e] /= sum;
}

#endif
