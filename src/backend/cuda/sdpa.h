/*
 * Attention of one sequence (scaled dot product attention) by a library that may not be there. One
 * of two files implements it:
 *
 *   sdpa_cudnn.c    by cuDNN's backend API, where its headers are at build time; cudnn.c finds the
 *                   library at run time
 *   sdpa_absent.c   not at all: sb_sdpa_open gives NULL
 *
 * A plan is a call with everything fixed but the addresses, the scale and the data: the shape, the
 * strides, the engine and the engine's knobs. span_plans.h says which plans there are, prefill.h
 * when they may be used.
 *
 *   y[i][h] = sum over keys 0 .. n_kv - n_q + i of
 *                 softmax(scale q[i][h] . k[h / group]) v[h / group]
 *
 *   q  [n_q, heads, head_dim]         packed, 16 bit
 *   k, v  [kv_heads, n_kv, head_dim]  kv_ld elements from head to head, where they lie in a cache
 *   y  [n_q, heads, head_dim]         y_ld elements from row to row, 16 bit
 */
#ifndef SB_SDPA_H
#define SB_SDPA_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc.h"
#include "backend/backend.h"

enum { SB_SDPA_KNOBS = 16 };

struct sb_sdpa_shape {
    enum sb_dtype type;
    int32_t heads, kv_heads, head_dim, n_q, n_kv;
    int64_t kv_ld, y_ld;
};

/* How attention is computed. It is the same for every shape, so that all of them are one class. */
struct sb_sdpa_engine {
    int64_t id;
    int32_t n_knobs;
    struct {
        int32_t knob;
        int64_t value;
    } knobs[SB_SDPA_KNOBS];
};

struct sb_sdpa; /* the library, opened; one thread at a time */
struct sb_sdpa_plan;

struct sb_sdpa_call {
    const void *q, *k, *v;
    void *y;
    float scale;
    void *workspace; /* of sb_sdpa_workspace bytes, from a multiple of 256 on */
    cudaStream_t stream;
};

/* *out NULL: there is no library, its version is not accepted, or it does not start; `why` says
 * which. E_NOMEM. */
int32_t sb_sdpa_open(struct sb_sdpa **out, const struct sb_mem *mem, char *why, size_t why_size);
void sb_sdpa_close(struct sb_sdpa *sdpa);
size_t sb_sdpa_version(const struct sb_sdpa *sdpa);

/* Gets at most `most` engines that the library offers for a shape, the best first, without those
 * that it calls nondeterministic. Returns how many. */
int32_t sb_sdpa_engines(struct sb_sdpa *sdpa, const struct sb_sdpa_shape *shape,
                        struct sb_sdpa_engine *engines, int32_t most);
/* Memory for a plan. E_NOMEM. */
int32_t sb_sdpa_plan_create(struct sb_sdpa_plan **out, struct sb_sdpa *sdpa);
/* Makes the plan, once. *made 0: the engine does not compute this shape. Takes no memory by the
 * host's functions. E_NOMEM. */
int32_t sb_sdpa_plan_make(int *made, struct sb_sdpa_plan *plan, struct sb_sdpa *sdpa,
                          const struct sb_sdpa_shape *shape, const struct sb_sdpa_engine *engine);
/* Gives back what the library has made, as _free does before it frees the memory. */
void sb_sdpa_plan_unmake(struct sb_sdpa_plan *plan);
void sb_sdpa_plan_free(struct sb_sdpa *sdpa, struct sb_sdpa_plan *plan);
/* Bytes of device memory that a call needs. */
size_t sb_sdpa_workspace(const struct sb_sdpa_plan *plan);
/* Queues the call. Returns 0 where the library refuses it. */
int sb_sdpa_run(struct sb_sdpa *sdpa, const struct sb_sdpa_plan *plan,
                const struct sb_sdpa_call *call);

#endif
