/*
 * The self-test of attention by a library: whether a span's result is a function of its queries,
 * keys and values alone, and whether it is attention. prefill.h says why that has to be so,
 * prefill_prove.c how it is tested.
 */
#ifndef SB_CUDA_PREFILL_PROVE_H
#define SB_CUDA_PREFILL_PROVE_H

#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/span_plans.h"

/* *good: for every span, `plans` give the bits of the plans `class`, whatever lies and runs around.
 * Where plans and class are the same, *good also says that the results are near the own kernel's.
 * Calls no function of the host, so that a lock may be held. E_NOMEM, E_DEVICE. */
int32_t sb_prefill_prove(int *good, const struct sb_span_calls *calls, const struct sb_gpu *gpu,
                         const struct sb_span_plans *class, const struct sb_span_plans *plans);

#endif
