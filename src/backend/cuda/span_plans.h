/*
 * Plans for the spans of a prompt: one call of the attention library (sdpa.h) for each span.
 *
 *   prompt   |  span 0  |  span 1  |  span 2  | ..          256 tokens each, from a multiple of 256
 *   queries     256        256        256
 *   keys        256        512        768                   the prompt up to the span's end
 *
 * A plan depends on the length of a slot too, because that is the distance between the heads in a
 * cache. So there is a set of plans for each length of slot.
 */
#ifndef SB_CUDA_SPAN_PLANS_H
#define SB_CUDA_SPAN_PLANS_H

#include "backend/cuda/sdpa.h"

enum { SB_SPAN = 256 }; /* tokens; changes bits */

/* What all calls for a model's spans have in common. */
struct sb_span_calls {
    struct sb_mem mem;
    struct sb_sdpa *sdpa;
    enum sb_dtype type;
    struct sb_geometry geometry;
    struct sb_sdpa_engine engine;
    size_t workspace; /* bytes that a call may use */
};

/* For slots of `cap` columns: plan i is span i's. */
struct sb_span_plans {
    struct sb_span_plans *next; /* of a list that the owner keeps */
    int32_t cap, n;
    struct sb_sdpa_plan *plans[];
};

/* What the library is told about span `span` in slots of `cap` columns. */
struct sb_sdpa_shape sb_span_shape(const struct sb_span_calls *calls, int32_t span, int32_t cap);
/* Memory for plans of the first n spans. E_NOMEM. */
int32_t sb_span_plans_create(struct sb_span_plans **out, const struct sb_span_calls *calls,
                             int32_t cap, int32_t n);
/* Makes them, once. *made 0: the engine does not do all of these shapes within the workspace. Calls
 * no function of the host, so that a lock may be held. E_NOMEM. */
int32_t sb_span_plans_make(int *made, struct sb_span_plans *plans,
                           const struct sb_span_calls *calls);
/* Gives back what the library has made, as _free does before it frees the memory. */
void sb_span_plans_unmake(struct sb_span_plans *plans);
void sb_span_plans_free(const struct sb_span_calls *calls, struct sb_span_plans *plans);
/* Bytes of workspace that these plans really use, at most. */
size_t sb_span_plans_workspace(const struct sb_span_plans *plans);

#endif
