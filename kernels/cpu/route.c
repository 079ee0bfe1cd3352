/* Which experts of a mixture a row goes to, and with what weights (backend.h, struct sb_mixture).
 * There are few logits, so only exponentials and sigmoids are vectors. */
#include "level.h"
#include "math.h"

/* What experts are chosen by: the scores of a row, of which some have a bias. */
struct ranks {
    const float *scores, *bias; /* bias: or NULL */
    int32_t n;
};

/* A NaN is chosen last. */
static inline float rank_of(const struct ranks *ranks, int32_t e)
{
    const float rank = ranks->bias ? ranks->scores[e] + ranks->bias[e] : ranks->scores[e];
    return rank == rank ? rank : -INFINITY;
}

/* The expert with the largest rank behind the one that was found last, which had this rank; last
 * -1: the first of all. */
static int32_t next_best(const struct ranks *ranks, int32_t last, float last_rank)
{
    int32_t best = -1;
    float best_rank = 0.0f;

    for (int32_t e = 0; e < ranks->n; e++) {
        const float rank = rank_of(ranks, e);
        const int is_behind = last < 0 || rank < last_rank || (rank == last_rank && e > last);
        if (is_behind && (best < 0 || rank > best_rank)) {
            best = e;
            best_rank = rank;
        }
    }
    return best;
}

/* Writes the n chosen experts in ascending order; returns the largest rank. */
static float choose(int32_t *chosen, int32_t n, const struct ranks *ranks)
{
    float largest = 0.0f, rank = 0.0f;

    for (int32_t i = 0, last = -1; i < n; i++) {
        int32_t at = i;
        last = next_best(ranks, last, rank);
        rank = rank_of(ranks, last);
        largest = i == 0 ? rank : largest;
        for (; at > 0 && chosen[at - 1] > last; at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = last;
    }
    return largest;
}

/* The sum of e^(x[i] - largest), which it also writes to y unless that is NULL. */
static float exponentials(float *y, const float *x, int32_t n, float largest)
{
    float e[V16], sum = 0.0f;

    for (int32_t i = 0; i < n; i += V16) {
        const int32_t count = n - i < V16 ? n - i : V16;
        v_store(e, v_exp(v_sub(v_load_n(x + i, count), v_set1(largest))));
        for (int32_t j = 0; j < count; j++) {
            sum += e[j];
            if (y)
                y[i + j] = e[j];
        }
    }
    return sum;
}

static void sigmoids(float *x, int32_t n)
{
    const v16 one = v_set1(1.0f), zero = v_set1(0.0f);

    for (int32_t i = 0; i < n; i += V16) {
        const int32_t count = n - i < V16 ? n - i : V16;
        const v16 e = v_exp(v_sub(zero, v_load_n(x + i, count)));
        v_store_n(x + i, v_div(one, v_add(one, e)), count);
    }
}

/* Chooses by softmax. weights: the p of the chosen ones; returns what they are divided by. */
static float by_softmax(int32_t *chosen, float *weights, const struct sb_mixture *mixture,
                        const float *logits)
{
    const struct ranks ranks = {logits, NULL, mixture->n_experts};
    const int32_t n = mixture->chosen;
    const float largest = choose(chosen, n, &ranks);
    float sum;

    for (int32_t i = 0; i < n; i++)
        weights[i] = logits[chosen[i]];
    sum = exponentials(weights, weights, n, largest);
    return mixture->renormalises ? sum : exponentials(NULL, logits, ranks.n, largest);
}

/* Likewise by sigmoid. */
static float by_sigmoid(int32_t *chosen, float *weights, const struct sb_mixture *mixture,
                        float *logits)
{
    const struct ranks ranks = {logits, mixture->bias, mixture->n_experts};
    float sum = 0.0f;

    sigmoids(logits, ranks.n);
    choose(chosen, mixture->chosen, &ranks);
    for (int32_t i = 0; i < mixture->chosen; i++) {
        weights[i] = logits[chosen[i]];
        sum += weights[i];
    }
    return mixture->renormalises ? sum + 1e-20f : 1.0f;
}

void SB_LEVEL(route)(const struct sb_cpu_route *args, int64_t first, int64_t last)
{
    const struct sb_mixture *mixture = args->mixture;
    const int32_t n = mixture->chosen, pairs = n + mixture->has_shared;

    for (int64_t row = first; row < last; row++) {
        float *logits = mixture->logits + row * mixture->n_experts;
        int32_t *chosen = args->chosen + row * pairs;
        float *weights = args->weights + row * pairs;
        const float sum = mixture->scoring == SB_SCORE_SIGMOID
                              ? by_sigmoid(chosen, weights, mixture, logits)
                              : by_softmax(chosen, weights, mixture, logits);
        for (int32_t i = 0; i < n; i++)
            weights[i] = weights[i] / sum * mixture->scale;
        if (mixture->has_shared) {
            chosen[n] = mixture->n_experts;
            weights[n] = 1.0f;
        }
    }
}

/* y += weight * x, [n]: two roundings, as struct sb_mixture says. */
void SB_LEVEL(add_weighted)(float *y, const float *x, float weight, int64_t n)
{
    const v16 w = v_set1(weight);
    int64_t i;

    for (i = 0; i + V16 <= n; i += V16)
        v_store(y + i, v_add(v_load(y + i), v_mul(v_load(x + i), w)));
    if (i < n)
        v_store_n(y + i, v_add(v_load_n(y + i, n - i), v_mul(v_load_n(x + i, n - i), w)), n - i);
}
