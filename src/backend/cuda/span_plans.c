/* Making and freeing plans; span_plans.h says what they are. */
#include "backend/cuda/span_plans.h"

#include "status.h"

struct sb_sdpa_shape sb_span_shape(const struct sb_span_calls *calls, int32_t span, int32_t cap)
{
    const struct sb_geometry *g = &calls->geometry;

    return (struct sb_sdpa_shape){.type = calls->type,
                                  .heads = g->heads,
                                  .kv_heads = g->kv_heads,
                                  .head_dim = g->head_dim,
                                  .n_q = SB_SPAN,
                                  .n_kv = (span + 1) * SB_SPAN,
                                  .kv_ld = (int64_t)cap * g->head_dim,
                                  .y_ld = (int64_t)g->heads * g->head_dim};
}

int32_t sb_span_plans_create(struct sb_span_plans **out, const struct sb_span_calls *calls,
                             int32_t cap, int32_t n)
{
    struct sb_span_plans *plans = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_NEW(plans, sb_alloc(&calls->mem, 1, sizeof *plans + (size_t)n * sizeof plans->plans[0]),
           "plans of attention");
    plans->cap = cap;
    for (; plans->n < n; plans->n++)
        SB_TRY(sb_sdpa_plan_create(&plans->plans[plans->n], calls->sdpa));
    *out = plans;
    plans = NULL;
done:
    sb_span_plans_free(calls, plans);
    return rc;
}

int32_t sb_span_plans_make(int *made, struct sb_span_plans *plans,
                           const struct sb_span_calls *calls)
{
    int32_t rc = SPECBATCH_OK;

    *made = 1;
    for (int32_t i = 0; *made && i < plans->n; i++) {
        const struct sb_sdpa_shape shape = sb_span_shape(calls, i, plans->cap);
        SB_TRY(sb_sdpa_plan_make(made, plans->plans[i], calls->sdpa, &shape, &calls->engine));
        *made = *made && sb_sdpa_workspace(plans->plans[i]) <= calls->workspace;
    }
done:
    return rc;
}

void sb_span_plans_unmake(struct sb_span_plans *plans)
{
    for (int32_t i = 0; i < plans->n; i++)
        sb_sdpa_plan_unmake(plans->plans[i]);
}

void sb_span_plans_free(const struct sb_span_calls *calls, struct sb_span_plans *plans)
{
    for (int32_t i = 0; plans && i < plans->n; i++)
        sb_sdpa_plan_free(calls->sdpa, plans->plans[i]);
    sb_free(&calls->mem, plans);
}

size_t sb_span_plans_workspace(const struct sb_span_plans *plans)
{
    size_t most = 0;

    for (int32_t i = 0; i < plans->n; i++)
        if (sb_sdpa_workspace(plans->plans[i]) > most)
            most = sb_sdpa_workspace(plans->plans[i]);
    return most;
}
