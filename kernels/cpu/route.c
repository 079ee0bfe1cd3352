/* Which experts of a mixture a row goes to, and with what weights (backend.h, struct sb_mixture).
 * There are few logits, so only the exponentials are vectors. */
#include "level.h"
#include "math.h"

/* A NaN is chosen last. */
static inline float rank_of(float logit) { return logit == logit ? logit : -INFINITY; }

/* The expert with the largest logit behind the one that was found last, which had this rank; last
 * -1: the first of all. */
static int32_t next_best(const float *logits, int32_t n, int32_t last, float last_rank)
{
    int32_t best = -1;
    float best_rank = 0.0f;

    for (int32_t e = 0; e < n; e++) {
        const float rank = rank_of(logits[e]);
        const int is_behind = last < 0 || rank < last_rank || (rank == last_rank && e > last);
        if (is_behind && (best < 0 || rank > best_rank)) {
            best = e;
            best_rank = rank;
        }
    }
    return best;
}

/* Writes the n chosen experts in ascending order; returns the largest logit. */
static float choose(int32_t *chosen, int32_t n, const float *logits, int32_t n_experts)
{
    float largest = 0.0f, rank = 0.0f;

    for (int32_t i = 0, last = -1; i < n; i++) {
        int32_t at = i;
        last = next_best(logits, n_experts, last, rank);
        rank = rank_of(logits[last]);
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

void SB_LEVEL(route)(const struct sb_cpu_route *args, int64_t first, int64_t last)
{
    const struct sb_mixture *mixture = args->mixture;
    const int32_t n = mixture->chosen;

    for (int64_t row = first; row < last; row++) {
        const float *logits = mixture->logits + row * mixture->n_experts;
        int32_t *chosen = args->chosen + row * n;
        float *weights = args->weights + row * n;
        const float largest = choose(chosen, n, logits, mixture->n_experts);
        float sum;
        for (int32_t i = 0; i < n; i++)
            weights[i] = logits[chosen[i]];
        sum = exponentials(weights, weights, n, largest);
        if (!mixture->renormalises)
            sum = exponentials(NULL, logits, mixture->n_experts, largest);
        for (int32_t i = 0; i < n; i++)
            weights[i] /= sum;
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
